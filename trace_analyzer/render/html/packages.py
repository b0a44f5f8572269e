"""Tell Python frames apart by the package that they are of: each gets a colour, the program's own files first."""

from collections.abc import Mapping
from dataclasses import dataclass
from os.path import commonpath
from pathlib import PurePosixPath

import polars as pl

from trace_analyzer.catalog.code import FRAME, named_code
from trace_analyzer.report import Report

COLOURED = 7
"""Packages that have a colour of their own: ``--k-py-1`` and on in assets/palette.css."""
OWN_COLOURED = 4
"""Of these as many at most for the program's own code: libraries want to be told from it."""
PLAIN = "python"
"""The kind of frames of all others."""

_FILE = r"^(.+)\(\d+\): "
_INSTALLED = r"^.*(?:site|dist)-packages/"
_STANDARD = r"^(?:.*/lib/python3\.\d+/|<frozen .*>)"
_COMPILED = r"(?:^|/)c[a-z0-9]{50,}\.py$"
"""Files that Inductor writes are named by their hash."""


@dataclass(frozen=True)
class Packages:
    """Hold the kind of each Python frame by its name, the package of each kind, and the kinds of the program's own code."""

    kinds: pl.DataFrame
    labels: Mapping[str, str]
    own: frozenset[str]


NO_PACKAGES = Packages(pl.DataFrame(schema={"name": pl.String, "kind": pl.String}), {}, frozenset())


def packages(report: Report) -> Packages:
    """Return the packages of a report's Python frames; own code first, then what has most frames."""
    frames = report.tables["host_events"].filter(pl.col("kind") == "python")
    names = frames.group_by("kind", "name").agg(pl.len().alias("count"))
    known = names.join(named_code(names), on=["kind", "name"], how="left").with_columns(
        _package(_shared_folder(names.get_column("name"))).alias("package"),
        (~pl.col("library").fill_null(True) & pl.col("name").str.contains(_FILE)).alias("is_own"),
    )
    counted = (
        known.filter(pl.col("package").is_not_null())
        .group_by("package")
        .agg(pl.col("count").sum(), pl.col("is_own").any())
        .sort("count", "package", descending=[True, False])
    )
    first = counted.filter("is_own").head(OWN_COLOURED)
    others = counted.join(first, on="package", how="anti", maintain_order="left").head(COLOURED - first.height)
    ranked = pl.concat([first, others]).with_row_index("place", offset=1)
    ranked = ranked.select("package", "is_own", slot=pl.format("py-{}", "place"))
    kinds = known.join(ranked.select("package", "slot"), on="package", how="left").select(
        "name", kind=pl.col("slot").fill_null(PLAIN)
    )
    own = ranked.filter("is_own").get_column("slot")
    return Packages(kinds, dict(ranked.select("slot", "package").iter_rows()), frozenset(own))


def frame_label(name: str) -> str | None:
    """Return ``function · file.py`` of a Python frame; None for any other name."""
    match = FRAME.fullmatch(name)
    if match is None or not match["file"].endswith(".py"):
        return None
    return f"{match['function']} · {match['file'].replace(chr(92), '/').rsplit('/', 1)[-1]}"


def _package(shared: str) -> pl.Expr:
    """Return the package of a frame: the first folder under which Python finds it, else the file; null for built-in functions.

    ``shared`` is the folder that all of the program's own files are in.
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
    """Return the folder that all files with an absolute path are in, outside of installed packages and Python's own."""
    files = names.str.extract(_FILE).drop_nulls().str.replace_all("\\", "/", literal=True)
    installed = files.str.contains(_INSTALLED) | files.str.contains(_STANDARD) | files.str.contains(_COMPILED)
    own = files.filter(files.str.starts_with("/") & ~installed).unique()
    return commonpath([PurePosixPath(file).parent for file in own]) if len(own) else ""
