"""Operators summed up by name: CPU time with and without children, and the device time they launched."""

import polars as pl

from trace_analyzer import tables
from trace_analyzer.analyses.intervals import innermost
from trace_analyzer.ingest.trace import Trace


def operator_table(trace: Trace, activities: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Table `operators`, by CPU self time. Runtime calls count as self time of their operator."""
    spans = trace.host_events.filter(pl.col("kind") == "operator").with_columns(
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    )
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    own = innermost(spans, ["thread_id"], "event_id").group_by("event_id").agg(length.alias("self_ns"))
    launched = launches.group_by("operator_id").agg(pl.len().alias("launch_count"))
    device = activities.group_by("operator_id").agg(pl.col("duration_ns").sum().alias("device_ns"))
    frame = (
        spans.join(own, on="event_id", how="left")
        .join(launched.drop_nulls(), left_on="event_id", right_on="operator_id", how="left")
        .join(device.drop_nulls("operator_id"), left_on="event_id", right_on="operator_id", how="left")
        .group_by("name")
        .agg(
            pl.len().alias("count"),
            pl.col("duration_ns").sum().alias("host_ns"),
            pl.col("self_ns").sum().alias("host_self_ns"),
            pl.col("launch_count").sum(),
            pl.col("device_ns").sum(),
        )
        .sort("host_self_ns", "name", descending=[True, False])
    )
    return tables.OPERATORS.conform(frame)
