"""Take the allocator's record from the memory events of a trace (``profile_memory=True``)."""

import polars as pl

from trace_analyzer.allocator.attribution import categorized
from trace_analyzer.allocator.replay import LEVELS, lives
from trace_analyzer.allocator.snapshot import ANNOTATIONS, BLOCKS, EVENTS, SEGMENTS, Snapshot
from trace_analyzer.frames.intervals import innermost_at
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.options import Options
from trace_analyzer.pipeline import graph_of

CPU = 0
"""Device type of memory of the host (c10/core/DeviceType.h)."""
_NS_PER_US = 1_000
_PHASES = ("optimizer", "backward", "forward")


def record_of(trace: Trace) -> tuple[Snapshot, pl.DataFrame, pl.DataFrame]:
    """Return the record as a snapshot without segments, its blocks with their attribution, and table `levels`.

    The totals of the events give the levels: they are the allocator's own. Events without a total or an address, as
    PyTorch before 1.10 wrote them, are left out.
    """
    rows = (
        trace.memory_events.filter(pl.col("device_type") != CPU)
        .drop_nulls(["device", "address", "bytes", "total_allocated_bytes"])
        .with_columns(event=pl.int_range(pl.len()).over("device"), time_us=pl.col("time_ns") // _NS_PER_US)
        .with_row_index("stack")  # an event is the call stack of its allocation
    )
    is_start = pl.col("bytes") >= 0
    events = EVENTS.conform(
        rows.with_columns(
            pl.col("stack").cast(pl.Int64),
            action=pl.when(is_start).then(pl.lit("alloc")).otherwise(pl.lit("free_completed")),
            bytes=pl.col("bytes").abs(),
            stream=pl.lit(None, pl.Int64),
        )
    )
    after = rows.select(
        "device",
        "event",
        "time_us",
        "bytes",
        live_bytes="total_allocated_bytes",
        reserved_bytes=pl.coalesce("total_reserved_bytes", "total_allocated_bytes"),
    )
    before = after.filter(pl.col("event") == 0).with_columns(
        event=pl.lit(-1, pl.Int64),
        time_us=pl.lit(None, pl.Int64),
        live_bytes=(pl.col("live_bytes") - pl.col("bytes")).clip(lower_bound=0),
    )
    levels = LEVELS.conform(pl.concat([before, after]).sort("device", "event"))
    frames = pl.DataFrame(schema={"name": pl.String, "file": pl.String, "line": pl.Int64})
    snapshot = Snapshot(
        trace.path, events, SEGMENTS.empty(), BLOCKS.empty(), ANNOTATIONS.empty(), frames, (), is_expandable=True
    )
    found = lives(snapshot).join(_code(trace, rows.filter(is_start)), on="stack", how="left", maintain_order="left")
    return snapshot, categorized(found, snapshot), levels


def _code(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Return stack, line, module, operator and pass of the host event around each allocation."""
    graph = graph_of(trace, Options(), kept=["host", "context"])
    host, context = graph.take("host"), graph.take("context")
    spans = host.events.select("thread_id", "start_ns", "end_ns", "event_id")
    around = innermost_at(rows.select("stack", "thread_id", "time_ns"), "time_ns", spans, "event_id")
    known = around.drop_nulls("event_id")
    ids = known.get_column("event_id")
    phase = context.events.get_column("phase")[ids].cast(pl.String)
    return (
        known.select(pl.col("stack").cast(pl.Int64))
        .hstack(context.code(ids).cast(pl.String))
        .select(
            "stack",
            "module",
            "operator",
            line=pl.coalesce("python_function", "operator"),
            attention=pl.col("operator").str.contains("(?i)softmax|attention").fill_null(False),
            evaluation=pl.lit(False),
        )
        .with_columns(pl.Series("pass", phase).replace_strict(list(_PHASES), list(_PHASES), default=None))
    )
