"""Name the package of each Python frame."""

from os.path import commonpath
from pathlib import PurePosixPath

import polars as pl

from trace_analyzer.catalog.event_names import named_code

_FILE = r"^(.+)\(\d+\): "
_INSTALLED = r"^.*(?:site|dist)-packages/"
_STANDARD = r"^(?:.*/lib/python3\.\d+/|<frozen .*>)"
_COMPILED = r"(?:^|/)c[a-z0-9]{50,}\.py$"
"""Files that Inductor generates, named by their hash."""


def frame_packages(host_events: pl.DataFrame) -> pl.DataFrame:
    """Return distinct Python frames of table `host_events`: name, count, package, is_own (no library by the rules).

    The package of a built-in function is null.
    """
    names = host_events.filter(pl.col("kind") == "python").group_by("kind", "name").agg(pl.len().alias("count"))
    return names.join(named_code(names), on=["kind", "name"], how="left").select(
        "name",
        "count",
        _package(_shared_folder(names.get_column("name"))).alias("package"),
        (~pl.col("library").fill_null(True) & pl.col("name").str.contains(_FILE)).alias("is_own"),
    )


def frames_by_package(frames: pl.DataFrame) -> pl.DataFrame:
    """Return package, count and is_own from the frames of `frame_packages`, the package with most frames first."""
    return (
        frames.filter(pl.col("package").is_not_null())
        .group_by("package")
        .agg(pl.col("count").sum(), pl.col("is_own").any())
        .sort("count", "package", descending=[True, False])
    )


def _package(shared: str) -> pl.Expr:
    """Return the package of a frame: its first folder below Python's path, else the file; null for built-ins.

    ``shared`` is the common folder of the program's own files.
    """
    file = pl.col("name").str.extract(_FILE).str.replace_all("\\", "/", literal=True)
    inside = (
        file.str.replace(_INSTALLED, "")
        .str.replace(_STANDARD, "python/")
        .str.strip_prefix(shared)
        .str.strip_prefix("/")
    )
    first = inside.str.split("/").list.first()
    return pl.when(file.str.contains(_COMPILED)).then(pl.lit("compiled by Inductor")).otherwise(first)


def _shared_folder(names: pl.Series) -> str:
    """Return the common folder of all files with an absolute path, except installed packages and Python's own."""
    files = names.str.extract(_FILE).drop_nulls().str.replace_all("\\", "/", literal=True)
    installed = files.str.contains(_INSTALLED) | files.str.contains(_STANDARD) | files.str.contains(_COMPILED)
    own = files.filter(files.str.starts_with("/") & ~installed).unique()
    return commonpath([PurePosixPath(file).parent for file in own]) if len(own) else ""
