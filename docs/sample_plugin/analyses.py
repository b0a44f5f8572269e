"""Count the launches of each host thread."""

import polars as pl

from trace_analyzer.analysis import Analysis
from trace_analyzer.schema import Table, columns
from trace_analyzer.sections import Section

BUSY_THREADS = Table("busy_threads", "Launches by host thread.", columns("thread_id\nlaunch_count u32 Launches."))


def busy_threads(launches: pl.DataFrame) -> pl.DataFrame:
    """Return table `busy_threads`: launches counted by thread."""
    return launches.group_by("thread_id").agg(pl.len().alias("launch_count")).sort("thread_id")


ANALYSES = (Analysis(BUSY_THREADS, busy_threads, json="busy_threads", section=Section("Threads that launch")),)
