"""Find the pauses of a recording: silences of a trace in which nothing was recorded."""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analysis import Value
from trace_analyzer.frames.intervals import count_until, union
from trace_analyzer.ingest.trace import Trace


def recording_pauses(trace: Trace) -> pl.DataFrame:
    """Return start_ns, end_ns of the silences that are recording pauses, by evidence.

    A silence is an interval in which no thread and no device has an event in progress. It is a pause when it lasts at
    least 10 ms and Python frames were recorded (some frame is always open while Python runs), or it covers over half of
    the trace, or it lies between two profiler sessions, or the profiler marks the begin or end of a recording within
    it, or correlation ids restart after it.
    """
    span = "start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    all_ = pl.lit(0).alias("all")

    def active(spans: pl.DataFrame, track: str) -> pl.DataFrame:
        return union(spans, [track], apart_ns=thresholds.PAUSE_NS - 1).select(all_, "start_ns", "end_ns")

    # A thread's events are in order and have few such intervals; only these are sorted.
    of_threads = active(trace.host_events.select("thread_id", *span), "thread_id")
    of_devices = active(trace.device_events.select(all_, *span), "all")
    silences = (
        active(pl.concat([of_threads, of_devices]), "all")
        .select(pl.col("end_ns").alias("start_ns"), pl.col("start_ns").shift(-1).alias("end_ns"))
        .head(-1)
    )
    if silences.is_empty() or trace.host_events.get_column("kind").eq("python").any():
        return silences
    length = pl.col("end_ns") - pl.col("start_ns")
    return silences.filter(
        (length > thresholds.PAUSE_SPAN_RATIO * trace.duration_ns)
        | _between_sessions(trace, silences)
        | _holds_boundary(trace, silences)
        | _correlations_restart(trace, silences)
    )


def _between_sessions(trace: Trace, silences: pl.DataFrame) -> pl.Series:
    """Return whether each silence overlaps the time between two profiler sessions."""
    sessions = pl.DataFrame(trace.profiler_sessions, schema={"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    covered = union(sessions.with_columns(pl.lit(0).alias("all")), ["all"])
    opened, closed = covered.get_column("end_ns").head(-1), covered.get_column("start_ns").tail(-1)
    before = opened.search_sorted(silences.get_column("end_ns"), side="left")
    return before > closed.search_sorted(silences.get_column("start_ns"), side="right")


def _holds_boundary(trace: Trace, silences: pl.DataFrame) -> pl.Series:
    """Return whether the profiler marks the begin or end of a recording within each silence."""
    instants = pl.Series(trace.boundaries, dtype=pl.Int64).sort()
    until = instants.search_sorted(silences.get_column("end_ns"), side="right")
    return until > instants.search_sorted(silences.get_column("start_ns"), side="left")


def _correlations_restart(trace: Trace, silences: pl.DataFrame) -> pl.Series:
    """Return whether every correlation id after a silence is lower than every one before it, per silence."""
    ends = silences.get_column("end_ns")
    calls = trace.host_events.select("start_ns", "correlation").drop_nulls("correlation")
    # Number of silences before each call.
    after = count_until(ends, calls.get_column("start_ns")).alias("after")
    bounds = calls.group_by(after).agg(
        pl.col("correlation").min().alias("lowest"), pl.col("correlation").max().alias("highest")
    )
    by_place = pl.DataFrame({"after": pl.int_range(silences.height + 1, dtype=pl.UInt32, eager=True)}).join(
        bounds, on="after", how="left", maintain_order="left"
    )
    lowest_before = pl.col("lowest").cum_min().forward_fill()
    highest_after = pl.col("highest").cum_max(reverse=True).backward_fill().shift(-1)
    return by_place.select((highest_after < lowest_before).fill_null(False)).to_series().head(-1)


ANALYSES = (Value("recording_pauses", recording_pauses),)
