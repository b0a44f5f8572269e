"""Take the allocator's record from the memory events of a trace (``profile_memory=True``), and declare its tables."""

import polars as pl

from trace_analyzer import analysis, schema
from trace_analyzer.allocator.attribution import ATTENTION, BEFORE, categorized, live_at_peak, shows
from trace_analyzer.allocator.savings import MEMORY_LEVELS, growing
from trace_analyzer.allocator.snapshot import (
    ANNOTATIONS,
    BLOCKS,
    EVENTS,
    FRAMES,
    LEVELS,
    SEGMENTS,
    STACK_FRAMES,
    Snapshot,
    lives_of,
)
from trace_analyzer.analyses.host import Context
from trace_analyzer.frames.intervals import innermost_at
from trace_analyzer.sections import WHOLE_TRACE, Section, Shown

CPU = 0
"""Device type of memory of the host (c10/core/DeviceType.h)."""
_NS_PER_US = 1_000
_AROUND = r"^(.+/.+)/[^/]+$"
"""Path of the module around the innermost, unless it is the whole model."""
_PHASES = ("optimizer", "backward", "forward")

MEMORY = schema.Table(
    "memory",
    "What is live at the peak of each device's memory, the most bytes first.",
    schema.columns("""
        torch_device i64 Number of the device in PyTorch, `cuda:N`: profilers of ROCm count otherwise. Of several processes
            that use it, the one that holds most at once.
        category str What holds it: parameters, gradients, optimizer state, activations, temporaries, library workspaces,
            allocated before the record, or unknown.
        module operator python_function
        live_bytes i64 Bytes live at the peak.
        live_ratio f64 Share of the peak.
        block_count u32 Blocks that hold them.
        start_ns i64 When the peak is reached, ns since the trace's origin.
        end_ns i64 When the next event changes it.
    """),
)
SECTION = Section(
    "Memory at the peak",
    "What is live when most device memory is in use. `analyze memory` says what would lower it.",
    show=(
        Shown("category", "held by", "word", 0, markdown=True),
        Shown("live_bytes", "live", terminal=0, markdown=True, phrase="live-memory"),
        Shown("live_ratio", "share of the peak", "share", 0, markdown=True),
        Shown("block_count", "blocks", terminal=90, markdown=True),
        Shown("operator", "operator", "name", 70, markdown=True),
        Shown("module", "module", "module", 110, markdown=True),
        Shown("python_function", "function", "frame", markdown=True),
        Shown("torch_device", "device", terminal=0, markdown=True, unless_zero=True),
    ),
    scope=WHOLE_TRACE,
)


def record_of(
    memory_events: pl.DataFrame, threads: pl.DataFrame, context: Context
) -> tuple[Snapshot, pl.DataFrame, pl.DataFrame]:
    """Return the record as a snapshot without segments, its blocks with their attribution, and table `levels`.

    The totals of the events give the levels: they are the allocator's own. Events without a total or an address, as
    PyTorch before 1.10 wrote them, are left out. Times of the levels are also in ns, as ``time_ns``. Each process has
    an allocator of its own: of several on one device, the one that holds most at once is taken.
    """
    process = pl.col("process_id")
    rows = (
        memory_events.filter(pl.col("device_type") != CPU)
        .drop_nulls(["device", "address", "bytes", "total_allocated_bytes"])
        .join(threads.select("thread_id", "process_id"), on="thread_id", how="left", maintain_order="left")
        .filter(process.eq_missing(process.sort_by("total_allocated_bytes").last().over("device")))
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
        "time_ns",
        "bytes",
        live_bytes="total_allocated_bytes",
        reserved_bytes=pl.coalesce("total_reserved_bytes", "total_allocated_bytes"),
    )
    before = after.filter(pl.col("event") == 0).with_columns(
        event=pl.lit(-1, pl.Int64),
        time_us=pl.lit(None, pl.Int64),
        live_bytes=(pl.col("live_bytes") - pl.col("bytes")).clip(lower_bound=0),
    )
    levels = pl.concat([before, after]).sort("device", "event").select(*LEVELS.schema, "time_ns")
    frames, stacks = pl.DataFrame(schema=FRAMES), pl.DataFrame(schema=STACK_FRAMES)
    snapshot = Snapshot(events, SEGMENTS.empty(), BLOCKS.empty(), ANNOTATIONS.empty(), frames, stacks, True)
    found = lives_of(snapshot).join(
        _code(context, rows.filter(is_start)), on="stack", how="left", maintain_order="left"
    )
    return snapshot, categorized(found, snapshot), levels


def _code(context: Context, rows: pl.DataFrame) -> pl.DataFrame:
    """Return stack, line, module, operator, function and pass of the host event around each allocation."""
    spans = context.events.select("thread_id", "start_ns", "end_ns", "event_id")
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
            "python_function",
            instance=pl.col("module").str.extract(_AROUND),
            unit=pl.col("module").str.extract(_AROUND).str.replace_all(r"_\d+(/|$)", "$1"),
            line=pl.coalesce("python_function", "operator"),
            **{
                role: (shows(role, "operator") & ~shows("scoreless", "operator")).fill_null(False) for role in ATTENTION
            },
            evaluation=pl.lit(False),
        )
        .with_columns(pl.Series("pass", phase).replace_strict(list(_PHASES), list(_PHASES), default=None))
    )


def memory(memory_record: tuple[Snapshot, pl.DataFrame, pl.DataFrame]) -> pl.DataFrame:
    """Return table `memory`."""
    _, blocks, levels = memory_record
    times = levels.with_columns(start_ns="time_ns", end_ns=pl.col("time_ns").shift(-1).over("device"))
    code, share = ["module", "operator", "python_function"], pl.col("bytes").sum() / pl.col("live_bytes").first()
    return MEMORY.conform(
        live_at_peak(blocks, levels, BEFORE)
        .group_by("device", "event", "category", *code)
        .agg(live_ratio=share, live_bytes=pl.col("bytes").sum(), block_count=pl.len())
        .join(times.select("device", "event", "start_ns", "end_ns"), on=["device", "event"])
        .rename({"device": "torch_device"})
        .sort("torch_device", "live_bytes", "category", *code, descending=[False, True, *[False] * 4], nulls_last=True)
    )


def memory_levels(memory_record: tuple[Snapshot, pl.DataFrame, pl.DataFrame]) -> pl.DataFrame:
    """Return table `memory_levels`."""
    _, blocks, levels = memory_record
    return MEMORY_LEVELS.conform(growing(levels, blocks))


ANALYSES = (
    analysis.Value("memory_record", record_of),
    analysis.Analysis(MEMORY_LEVELS, memory_levels),
    analysis.Analysis(MEMORY, memory, json="memory", section=SECTION),
)
