"""Measure the latency from a launch to the start of its activity on an empty queue."""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.host import STREAM_WAITS, Host
from trace_analyzer.analysis import Value


def launch_latency_ns(host: Host, activities: pl.DataFrame, launches: pl.DataFrame, gaps: pl.DataFrame) -> int:
    """Return this trace's latency from launch end to start on an empty queue: the 99th percentile, at most 100 us.

    ``activities`` needs launch_id, launch_start_ns and launch_end_ns. Launches after a stream's wait for an event are
    excluded, as their activity may have waited for that event. Without other launches on an idle device, the maximum is
    used.
    """
    launched = activities.select("launch_id", "start_ns", "launch_start_ns", "launch_end_ns")
    latency = (
        gaps.select(pl.col("start_ns").alias("gap_start_ns"))
        .hstack(launched[gaps.get_column("activity_id")])
        .filter(pl.col("launch_start_ns") >= pl.col("gap_start_ns"), pl.col("launch_end_ns") <= pl.col("start_ns"))
        .join(launches_after_waits(host, launches), on="launch_id", how="anti")
        .select(
            (pl.col("start_ns") - pl.col("launch_end_ns")).quantile(
                thresholds.LAUNCH_LATENCY_QUANTILE, interpolation="nearest"
            )
        )
        .item()
    )
    cap = thresholds.LAUNCH_LATENCY_MAX_NS
    return cap if latency is None else min(int(latency), cap)


def launches_after_waits(host: Host, launches: pl.DataFrame) -> pl.DataFrame:
    """Return launches before which, since the previous launch, their thread made a stream wait for an event."""
    waits = (
        host.calls_of(pl.col("name").str.contains(STREAM_WAITS))
        .select("thread_id", pl.col("start_ns").alias("wait_ns"))
        .sort("wait_ns")
    )
    if waits.is_empty():
        return launches.select("launch_id").clear()
    # Calls are in order of thread and start.
    previous = pl.when(pl.col("thread_id") == pl.col("thread_id").shift(1)).then(pl.col("start_ns").shift(1))
    return (
        launches.select("launch_id", "thread_id", "start_ns", previous.alias("previous_ns"))
        .join_asof(waits, left_on="start_ns", right_on="wait_ns", by="thread_id", check_sortedness=False)
        .filter((pl.col("wait_ns") > pl.col("previous_ns")).fill_null(pl.col("wait_ns").is_not_null()))
        .select("launch_id")
    )


ANALYSES = (
    Value(
        "launch_latency_ns",
        launch_latency_ns,
        {"activities": "linked_events", "launches": "unmasked_launches", "gaps": "idle_gaps"},
    ),
)
