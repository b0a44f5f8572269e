"""List the intervals that each advice concerns, so that a timeline can outline them."""

from collections.abc import Mapping

import polars as pl

from trace_analyzer.analysis import Analysis
from trace_analyzer.schema import Table, columns

ADVICE_MEMBERS = Table(
    "advice_members",
    "The intervals that each piece of advice is about: kernels, copies, runs of kernels, or idle time.",
    columns("""
        advice str `id` of the advice.
        device start_ns end_ns
    """),
)


def advice_members(advice_intervals: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return table `advice_members`, each advice's intervals in order of time, from intervals by advice."""
    rows = [frame.select(pl.lit(advice).alias("advice"), pl.all()) for advice, frame in advice_intervals.items()]
    members = pl.concat(rows, how="diagonal_relaxed") if rows else ADVICE_MEMBERS.empty()
    return ADVICE_MEMBERS.conform(members).sort("advice", "device", "start_ns", "end_ns")


ANALYSES = (Analysis(ADVICE_MEMBERS, advice_members),)
