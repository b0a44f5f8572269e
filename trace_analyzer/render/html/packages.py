"""Colour Python frames by their package, the program's own files first."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from trace_analyzer.analyses.frame_packages import frame_packages, frames_by_package
from trace_analyzer.catalog.code import FRAME
from trace_analyzer.report import Report

COLOURED = 7
"""Number of packages with their own colour: ``--k-py-1`` and so on in assets/palette.css."""
OWN_COLOURED = 4
"""Most of these for the program's own code, so that libraries have different colours."""
PLAIN = "python"
"""Kind of all other frames."""


@dataclass(frozen=True)
class Packages:
    """Hold the kind of each Python frame by name, the package of each kind, and the kinds of the program's own code."""

    kinds: pl.DataFrame
    labels: Mapping[str, str]
    own: frozenset[str]


NO_PACKAGES = Packages(pl.DataFrame(schema={"name": pl.String, "kind": pl.String}), {}, frozenset())


def packages(report: Report) -> Packages:
    """Return the packages of a report's Python frames: own code first, then by number of frames."""
    known = frame_packages(report.tables["host_events"])
    counted = frames_by_package(known)
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
    """Return ``function · file.py`` for a Python frame; None for any other name."""
    match = FRAME.fullmatch(name)
    if match is None or not match["file"].endswith(".py"):
        return None
    return f"{match['function']} · {match['file'].replace(chr(92), '/').rsplit('/', 1)[-1]}"
