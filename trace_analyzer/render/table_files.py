"""Write the report's tables as one Parquet or CSV file each, named as the table."""

from pathlib import Path
from typing import Literal, get_args

from trace_analyzer.files import Outputs
from trace_analyzer.report import Report

Format = Literal["parquet", "csv"]
FORMATS: tuple[str, ...] = get_args(Format)


def write_tables(report: Report, folder: Path, form: Format = "parquet") -> tuple[Path, ...]:
    """Write every table of the report into ``folder``, which is created if needed, and return the files.

    They appear together when all of them are written, or none does. Existing files of these names are replaced, others
    stay. Raises ``ValueError`` for an unknown format and ``OSError`` when a file cannot be written.
    """
    if form not in FORMATS:
        raise ValueError(f"unknown format {form!r}: choose from {', '.join(FORMATS)}")
    paths = []
    with Outputs() as outputs:
        outputs.make_folder(folder)
        for name, table in report.tables.items():
            paths.append(folder / f"{name}.{form}")
            with outputs.open(paths[-1]) as file:
                if form == "csv":
                    table.write_csv(file)
                else:
                    table.write_parquet(file)
    return tuple(paths)
