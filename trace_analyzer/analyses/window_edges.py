"""Choose the part of a trace for the verdict where no steps are known."""

from collections.abc import Sequence

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.notes import Note
from trace_analyzer.units import duration, percent

Interval = tuple[int, int]

NAMED = ("data-loading", "compilation", "graph-capture", "allocation", "cpu-operator", "earlier-work")
"""Causes of idle time with an actionable name: such time is never trimmed."""


def trimmed(window: Interval, gaps: pl.DataFrame, sums: pl.DataFrame) -> Interval:
    """Return the window of a device without idle time before its first real work and after its last.

    ``gaps`` are those of the device, in order, ``sums`` their `causes.gap_sums`. Work before a gap is not real if the
    device was busy there for at most a hundredth of its total busy time; likewise for work after a gap. Idle time at an
    edge is trimmed up to its innermost gap of at least a tenth of the window, if at least half of it has causes outside
    `NAMED`.
    """
    start, end = window
    length = pl.col("end_ns") - pl.col("start_ns")
    before = pl.col("start_ns") - start - length.cum_sum().shift(1, fill_value=0)
    busy = (end - start) - gaps.select(length.sum()).item()
    named = sums.filter(pl.col("cause").cast(pl.String).is_in(NAMED)).group_by("gap_id").agg(pl.col("idle_ns").sum())
    rows = (
        gaps.select("gap_id", "start_ns", "end_ns", before.alias("before_ns"))
        .join(named, on="gap_id", how="left", maintain_order="left")
        .with_columns(pl.col("idle_ns").fill_null(0).alias("named_ns"), (busy - pl.col("before_ns")).alias("after_ns"))
    )
    few, long = thresholds.EDGE_WORK_RATIO * busy, thresholds.EDGE_IDLE_RATIO * (end - start)

    if not busy:
        return window

    def is_trimmed(edge: pl.DataFrame) -> bool:
        idle, named_ns = edge.select(length.sum(), pl.col("named_ns").sum()).row(0)
        return bool(edge.height) and 2 * named_ns <= idle

    head, tail = rows.filter(pl.col("before_ns") <= few), rows.filter(pl.col("after_ns") <= few)
    # Up to the last long gap; short gaps after it belong to the work.
    head = head.filter(pl.int_range(pl.len()) <= _last(head, length >= long))
    tail = tail.filter(pl.int_range(pl.len()) >= _first(tail, length >= long))
    return (
        int(head.get_column("end_ns").item(-1)) if is_trimmed(head) else start,
        int(tail.get_column("start_ns").item(0)) if is_trimmed(tail) else end,
    )


def trim_notes(device: int | str, window: Interval, judged: Interval) -> tuple[Note, ...]:
    """Note the time that `trimmed` removed from the window of a device."""
    edges = (("before its first real work", judged[0] - window[0]), ("after its last", window[1] - judged[1]))
    taken = [f"{duration(ns)} {where}" for where, ns in edges if ns]
    return tuple(
        Note(
            "trimmed-window",
            "info",
            f"device {device} idled, but for {percent(thresholds.EDGE_WORK_RATIO)} of its work at most, for {' and '.join(taken)}: the verdict leaves"
            " this out (--step all judges everything); with prof.step() in the loop, steps mark what belongs to it",
        )
        for _ in taken[:1]
    )


def _last(rows: pl.DataFrame, condition: pl.Expr) -> int:
    """Return the index of the last row that meets a condition, else -1."""
    rows_met = rows.select(condition.alias("is")).to_series().arg_true()
    return int(rows_met.item(-1)) if rows_met.len() else -1


def _first(rows: pl.DataFrame, condition: pl.Expr) -> int:
    """Return the index of the first row that meets a condition, else the number of rows."""
    rows_met = rows.select(condition.alias("is")).to_series().arg_true()
    return int(rows_met.item(0)) if rows_met.len() else rows.height


def complement(window: Interval, intervals: Sequence[Interval]) -> list[Interval]:
    """Return the non-empty parts of ``window`` outside the ordered disjoint ``intervals``."""
    edges = [window[0], *(edge for interval in intervals for edge in interval), window[1]]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]
