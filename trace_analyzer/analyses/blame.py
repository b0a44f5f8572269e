"""Who is accountable for idle time: each of its intervals with the code that a person can change."""

import polars as pl

from trace_analyzer import tables
from trace_analyzer.analyses.causes import HOST_CAUSES, main_threads
from trace_analyzer.analyses.context import Context
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.intervals import at, clip, innermost
from trace_analyzer.analyses.rows import greatest, numbered, spread, totals
from trace_analyzer.ingest.trace import Trace

DIMENSIONS = ("operator", "module", "python_function", "annotation", "phase", "step")
"""By what table `idle_by` sums up: columns of `blame`."""


def blame(
    trace: Trace, host: Host, idle: pl.DataFrame, gaps: pl.DataFrame, steps: pl.DataFrame, context: Context
) -> pl.DataFrame:
    """Table `blame`: the intervals of `idle`, one by one, with what the host did and in whose name.

    Where no event was in progress: launch latency is its launch's, host time belongs to the annotation that
    was open on the launching thread or on the main thread, and device time names nobody, but keeps the phase
    of the work that was late. Names are categorical.
    """
    late = gaps.get_column("launch_id")[idle.get_column("gap_id")]
    latency = pl.col("cause") == "launch-latency"
    pieces = idle.with_columns(pl.coalesce("event_id", pl.when(latency).then(late)).alias("event_id"))
    annotation = _annotations(trace, host, pieces, late)
    around = pieces.select(pl.coalesce("event_id", annotation)).to_series()
    of = context.events
    windows = steps.select("device", "start_ns", "end_ns", pl.col("index").alias("step"))
    operator_ids = of.get_column("operator_id")[around]
    return at(pieces, "start_ns", windows, ["device"], ["step"]).select(
        "gap_id",
        "device",
        "start_ns",
        "end_ns",
        "cause",
        "event_id",
        of.get_column("thread_id")[around],
        operator_ids,
        context.names(operator_ids).alias("operator"),
        context.modules(around).alias("module"),
        context.functions(around).alias("python_function"),
        context.names(of.get_column("annotation_id")[around]).alias("annotation"),
        of.get_column("phase")[around.zip_with(around.is_not_null(), late)],
        "step",
    )


def _annotations(trace: Trace, host: Host, pieces: pl.DataFrame, late: pl.Series) -> pl.Series:
    """The annotation in progress at each piece where the host did nothing that was recorded; null elsewhere."""
    events = host.events
    silent = pieces.get_column("event_id").is_null() & pieces.get_column("cause").is_in(HOST_CAUSES)
    annotations = innermost(events.filter("marks"), ["thread_id"], "event_id")
    late = late.filter(silent)
    open_ = (
        pieces.filter(silent)
        .select("start_ns", *(events.get_column(of)[late] for of in ("thread_id", "process_id")))
        .join(main_threads(trace, host), on="process_id", how="left", maintain_order="left")
    )
    for thread in ("thread_id", "main_thread"):
        segments = annotations.rename({"thread_id": thread, "event_id": f"on_{thread}"})
        open_ = at(open_, "start_ns", segments, [thread], [f"on_{thread}"])
    found = open_.select(pl.coalesce("on_thread_id", "on_main_thread")).to_series()
    return spread(silent.arg_true(), found, pieces.height)


def idle_by(blamed: pl.DataFrame) -> pl.DataFrame:
    """Table `idle_by`: idle time summed up by operator, module, Python function, annotation, phase and step.

    Every dimension sums to the idle time of the device; a null key is time that nobody is known to answer for.
    """
    groups = _groups(blamed, ["device", "cause", *DIMENSIONS])
    sums = [
        groups.group_by("device", pl.col(by).cast(pl.String).alias("key"), "cause")
        .agg(
            pl.col("idle_ns", "count").sum(),
            pl.col("start_ns").first().alias("longest_start_ns"),
            pl.col("end_ns").first().alias("longest_end_ns"),
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
    clipped = clip(
        blamed.select("device", "start_ns", "end_ns", *code, "module", "phase"),
        windows.select("device", "start_ns", "end_ns"),
        ["device"],
    )
    sole = [pl.when(pl.col(c).n_unique() == 1).then(pl.col(c).first()).alias(c) for c in ("module", "phase")]
    return (
        _groups(clipped, [*code, "module", "phase"])
        .group_by(code, maintain_order=True)
        .agg(pl.col("idle_ns").sum(), *sole, pl.col("start_ns", "end_ns").first())
        .with_columns(pl.col(*code, "module", "phase").cast(pl.String))
        .sort("idle_ns", *code, descending=[True, *[False] * len(code)], nulls_last=True)
    )


def _groups(blamed: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Intervals that agree in ``by``: idle_ns, count, and the longest, of several the first; that of the longest is first."""
    numbers, firsts = numbered(*blamed.select(by))
    lengths = blamed.get_column("end_ns") - blamed.get_column("start_ns")
    longest = greatest(numbers, lengths, firsts.len())
    return (
        blamed.select(by)[firsts]
        .with_columns(
            totals(numbers, lengths, firsts.len()).alias("idle_ns"),
            totals(numbers, pl.ones(numbers.len(), eager=True), firsts.len()).alias("count"),
            lengths[longest].alias("longest_ns"),
            *blamed.select("start_ns", "end_ns")[longest],
        )
        .sort("longest_ns", "start_ns", descending=[True, False])
    )
