"""Choose a place on the timeline that represents several events: the longest of them."""

import polars as pl

from trace_analyzer.frames.intervals import longest_place


def longest_events(events: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the longest event per key: ``keys``, start_ns, end_ns; the first of equal ones.

    ``events`` have start_ns and duration_ns, ns.
    """
    return events.group_by(keys).agg(longest_place())


def longest_intervals(intervals: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the longest interval per key: ``keys``, start_ns, end_ns; the first of equal ones."""
    return longest_events(intervals.with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns")), keys)


def named_events(events: pl.DataFrame, names: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Add start_ns and end_ns of the longest event with the same ``keys`` to each row of ``names``, in their order."""
    places = longest_events(events, keys)
    return names.join(places, on=keys, how="left", maintain_order="left", nulls_equal=True)
