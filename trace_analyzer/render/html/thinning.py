"""Choose what a report leaves out when its file must be small: Python frames first, details before events."""

from dataclasses import dataclass

import polars as pl

from trace_analyzer import units
from trace_analyzer.render.html.timeline_rows import IS_MODULE
from trace_analyzer.report import Report


@dataclass(frozen=True)
class Thinning:
    """Hold the shares of Python frames and of other host events to keep (the longest), and whether to keep details."""

    python_ratio: float = 1.0
    details: bool = True
    host_ratio: float = 1.0


EVERYTHING = Thinning()

_SHARES = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 0.0)

LADDER = (
    EVERYTHING,
    *(Thinning(python_ratio=share) for share in _SHARES),
    Thinning(python_ratio=0.0, details=False),
    *(Thinning(python_ratio=0.0, details=False, host_ratio=share) for share in _SHARES),
)
"""Steps from everything to the minimum of a timeline: activities, their launches and idle time."""


def kept(report: Report, thinning: Thinning) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return the host events to show, and a description of those left out."""
    events = report.tables["host_events"]
    if thinning == EVERYTHING:
        return events, ()
    python = (pl.col("kind") == "python") & ~IS_MODULE
    launching = pl.col("event_id").is_in(report.tables["launches"].get_column("launch_id").implode())
    events, frames = _longest(events, python, thinning.python_ratio, "Python frames")
    events, others = _longest(events, ~python & ~launching, thinning.host_ratio, "other host events")
    details = () if thinning.details else ("shapes, grids, FLOP and other details of single events",)
    return events, (*frames, *others, *details)


def _longest(events: pl.DataFrame, chosen: pl.Expr, ratio: float, what: str) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Keep only this share of the chosen events, the longest; also return a description of the others."""
    durations = events.filter(chosen).get_column("duration_ns")
    if ratio == 1.0 or durations.is_empty():
        return events, ()
    least = durations.quantile(1 - ratio, "higher") if ratio else None
    short = pl.lit(True) if least is None else pl.col("duration_ns") < least
    left = events.filter(~(chosen & short))
    missing = events.height - left.height
    limit = "" if least is None else f" shorter than {units.duration(least)}"
    return left, (f"{units.count(missing)} {what}{limit}",) if missing else ()
