"""Who is accountable for idle time: each of its intervals with the code that a person can change."""

import polars as pl

from trace_analyzer import tables
from trace_analyzer.analyses.causes import HOST_CAUSES, main_threads
from trace_analyzer.analyses.context import Context
from trace_analyzer.analyses.intervals import at, clip, innermost
from trace_analyzer.catalog.code import is_annotation
from trace_analyzer.ingest.trace import Trace

DIMENSIONS = ("operator", "module", "python_function", "annotation", "phase", "step")
"""By what table `idle_by` sums up: columns of `blame`."""


def blame(trace: Trace, idle: pl.DataFrame, gaps: pl.DataFrame, steps: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Table `blame`: the intervals of `idle`, one by one, with what the host did and in whose name.

    Where no event was in progress: launch latency is its launch's, host time belongs to the annotation that
    was open on the launching thread or on the main thread, and device time names nobody, but keeps the phase
    of the work that was late.
    """
    late = gaps.select("gap_id", pl.col("launch_id").alias("late_id"))
    latency = pl.col("cause") == "launch-latency"
    pieces = idle.join(late, on="gap_id", how="left", maintain_order="left").with_columns(
        pl.coalesce("event_id", pl.when(latency).then("late_id")).alias("event_id")
    )
    pieces = _with_annotation(trace, pieces, context)
    around = pieces.select(pl.coalesce("event_id", "annotation_event")).to_series()
    phase = pieces.select(pl.coalesce("event_id", "annotation_event", "late_id")).to_series()
    of = context.events
    found = at(
        pieces, "start_ns", steps.select("device", "start_ns", "end_ns", pl.col("index").alias("step")), ["device"], ["step"]
    ).with_columns(
        of.get_column("thread_id").gather(around).alias("thread_id"),
        of.get_column("operator_id").gather(around).alias("operator_id"),
        context.modules(around).alias("module"),
        context.functions(around).alias("python_function"),
        context.names(of.get_column("annotation_id").gather(around)).alias("annotation"),
        of.get_column("phase").gather(phase).alias("phase"),
    )  # fmt: skip
    named = found.with_columns(context.names(found.get_column("operator_id")).alias("operator"))
    return tables.BLAME.conform(named)


def _with_annotation(trace: Trace, pieces: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Pieces with annotation_event: the annotation in progress where the host did nothing that was recorded."""
    silent = pl.col("event_id").is_null() & pl.col("cause").is_in(HOST_CAUSES)
    rows = pieces.with_row_index("piece")
    events = context.events
    annotations = innermost(events.filter(is_annotation()), ["thread_id"], "event_id")
    threads = events.select(pl.col("event_id").alias("late_id"), "thread_id")
    main = main_threads(trace)
    open_ = (
        rows.filter(silent)
        .select("piece", "start_ns", "late_id")
        .join(threads, on="late_id", how="left", maintain_order="left")
        .join(trace.threads.select("thread_id", "process_id"), on="thread_id", how="left", maintain_order="left")
        .join(main, on="process_id", how="left", maintain_order="left")
    )
    for thread in ("thread_id", "main_thread"):
        segments = annotations.rename({"thread_id": thread, "event_id": f"on_{thread}"})
        open_ = at(open_, "start_ns", segments, [thread], [f"on_{thread}"])
    found = open_.select("piece", pl.coalesce("on_thread_id", "on_main_thread").alias("annotation_event"))
    return rows.join(found, on="piece", how="left", maintain_order="left").drop("piece")


def idle_by(blamed: pl.DataFrame) -> pl.DataFrame:
    """Table `idle_by`: idle time summed up by operator, module, Python function, annotation, phase and step.

    Every dimension sums to the idle time of the device; a null key is time that nobody is known to answer for.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    sums = [
        blamed.group_by("device", pl.col(by).cast(pl.String).alias("key"), "cause")
        .agg(
            length.sum().alias("idle_ns"),
            pl.len().alias("count"),
            pl.col("start_ns").sort_by(length, descending=True).first().alias("longest_start_ns"),
            pl.col("end_ns").sort_by(length, descending=True).first().alias("longest_end_ns"),
        )
        .with_columns(pl.lit(by).alias("by"))
        .sort("device", "idle_ns", "key", "cause", descending=[False, True, False, False], nulls_last=True)
        for by in DIMENSIONS
    ]
    return tables.IDLE_BY.conform(pl.concat(sums))


def blamed_code(blamed: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Idle time within ``windows`` (device, start_ns, end_ns) by cause and code, most first.

    Returns cause, operator, python_function, annotation, module and phase (null where several share the rest),
    idle_ns, and the longest interval: start_ns, end_ns.
    """
    code = ["cause", "operator", "python_function", "annotation"]
    length = pl.col("end_ns") - pl.col("start_ns")
    sole = [pl.when(pl.col(c).n_unique() == 1).then(pl.col(c).first()).alias(c) for c in ("module", "phase")]
    rows = blamed.with_row_index("row")
    inside = clip(
        rows.select("row", "device", "start_ns", "end_ns"), windows.select("device", "start_ns", "end_ns"), ["device"]
    )
    return (
        inside.select("start_ns", "end_ns")
        .hstack(blamed.select(*code, "module", "phase")[inside.get_column("row")])
        .sort(length, "start_ns", descending=[True, False])
        .group_by(code, maintain_order=True)
        .agg(length.sum().alias("idle_ns"), *sole, pl.col("start_ns", "end_ns").first())
        .sort("idle_ns", *code, descending=[True, *[False] * len(code)], nulls_last=True)
    )
