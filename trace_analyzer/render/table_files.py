"""The report's tables as files: one Parquet or CSV file per table, named as the table."""

import os
import secrets
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from trace_analyzer.report import Report

Format = Literal["parquet", "csv"]
FORMATS: tuple[str, ...] = get_args(Format)


def write_tables(report: Report, folder: Path, form: Format = "parquet") -> tuple[Path, ...]:
    """Write every table of the report into ``folder``, which is made if need be, and return the files.

    Each file is whole or not there: it is written under another name first. Files of the same names are
    replaced, others left alone. Raises ``ValueError`` for an unknown format and ``OSError`` when a file
    cannot be written; files that were finished before stay.
    """
    if form not in FORMATS:
        raise ValueError(f"unknown format {form!r}: choose from {', '.join(FORMATS)}")
    folder.mkdir(parents=True, exist_ok=True)
    return tuple(_write(table, folder / f"{name}.{form}", form) for name, table in report.tables.items())


def _write(table: pl.DataFrame, path: Path, form: Format) -> Path:
    temporary = path.with_name(f".analyze-{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("xb") as file:
            if form == "csv":
                table.write_csv(file)
            else:
                table.write_parquet(file)
        os.replace(temporary, path)
    except BaseException:  # KeyboardInterrupt too: the temporary file must never stay
        temporary.unlink(missing_ok=True)
        raise
    return path
