"""Attribute idle time to code that can be changed."""

from dataclasses import dataclass, replace

import polars as pl

from trace_analyzer.analyses.host import Context, Host
from trace_analyzer.analyses.late_host import main_threads
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.catalog.event_names import PHASES
from trace_analyzer.frames.intervals import clip, innermost, lookup_at
from trace_analyzer.frames.lookups import argmax_by_group, factorize, scatter, sum_by_group
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.schema import Table, columns
from trace_analyzer.sections import DEVICE_LABEL, WHOLE_TRACE, Section, Shown
from trace_analyzer.vocabulary import HOST_CAUSES

BLAME = Table(
    "blame",
    "The intervals of `idle`, each with what the host did then and in whose name.",
    columns("""
        gap_id device start_ns end_ns
        cause str Why the device idled.
        event_id u32 The host event to blame: the innermost then; the late launch, for its latency.
        thread_id i32 Its thread, or that of the open annotation.
        operator_id u32 `event_id` of the innermost operator around it.
        operator module python_function
        annotation str Innermost annotation around it, steps left out.
        phase str data-loading, forward, backward or optimizer; null when it is not known.
        step i64 Index of the step of the device that it lies in; null outside of all.
    """),
)

IDLE_BY = Table(
    "idle_by",
    "Idle time summed up in several ways; each sums to the idle time of the device.",
    columns("""
        by str operator, module, python_function, annotation, phase or step.
        device
        key str Its value as in `blame`; null is time that nobody is known to answer for.
        cause str Why the device idled.
        idle_ns i64 Idle time.
        count u32 Intervals of `blame`.
        longest_start_ns i64 Start of the longest of them ...
        longest_end_ns i64 ... and its end.
    """),
)

IDLE_BY_FUNCTION_SECTION = Section(
    "By function",
    show=(
        Shown("key", "function", "frame"),
        DEVICE_LABEL,
        Shown("cause", "cause", "part"),
        Shown("count", "intervals"),
        Shown("idle_ns", "device idle"),
    ),
    sort=("-idle_ns",),
    place=("longest_start_ns", "longest_end_ns"),
    record="Record with with_stack=True to see which function to blame.",
    key="idle-python-function",
    table="idle_by",
    only=(("by", "python_function"),),
    known=("key",),
    scope=WHOLE_TRACE,
)

IDLE_BY_MODULE_SECTION = replace(
    IDLE_BY_FUNCTION_SECTION,
    title="By module",
    show=(Shown("key", "module", "module"), *IDLE_BY_FUNCTION_SECTION.show[1:]),
    record="Record with with_stack=True to see which module to blame.",
    key="idle-module",
    only=(("by", "module"),),
)

DIMENSIONS = ("operator", "module", "python_function", "annotation", "phase", "step")
"""Dimensions of table `idle_by`, which are columns of table `blame`."""


@dataclass(frozen=True)
class Attribution:
    """Hold intervals of idle time with codes for the names that they are attributed to.

    ``intervals`` are those of table `idle`, with ``around_id``, the host event that the interval is attributed to, and
    ``code``, a row of ``codes``: operator, module, python_function, annotation and phase. Many intervals share few
    codes.
    """

    intervals: pl.DataFrame
    codes: pl.DataFrame

    def within(self, windows: pl.DataFrame) -> "Attribution":
        """Return the attribution inside the disjoint ``windows`` (device, start_ns, end_ns)."""
        return replace(self, intervals=clip(self.intervals, windows, ["device"]))

    def named(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Replace ``code`` by its names."""
        return rows.drop("code").hstack(self.codes[rows.get_column("code")])


def blame(trace: Trace, host: Host, idle: pl.DataFrame, gaps: pl.DataFrame, context: Context) -> Attribution:
    """Attribute each interval of table `idle` to an operator, module, Python function and phase.

    Without an event in progress, launch latency belongs to its launch, and host time to the annotation that was open on
    the launching thread or on the main thread. Device time belongs to no code, but has the phase of the late work.
    Names are categorical.
    """
    late = gaps.get_column("launch_id")[idle.get_column("gap_id")]
    latency = pl.col("cause") == "launch-latency"
    pieces = idle.with_columns(pl.coalesce("event_id", pl.when(latency).then(late)).alias("event_id"))
    annotation = _annotations(trace, host, pieces, late)
    around = pieces.select(pl.coalesce("event_id", annotation).alias("around_id")).to_series()
    code, codes = _codes(context, around, late)
    return Attribution(pieces.with_columns(around, code.alias("code")), codes)


def _codes(context: Context, around: pl.Series, late: pl.Series) -> tuple[pl.Series, pl.DataFrame]:
    """Return a code per event for its names (only a phase without an event), and the names by code."""
    events, none = context.events, around.is_null()
    is_asked = pl.Series([False]).new_from_index(0, events.height).scatter(around.drop_nulls(), True)
    ids = is_asked.arg_true()
    names = pl.DataFrame(
        {
            "operator": context.names(events.get_column("operator_id")[ids]),
            "module": context.modules(ids),
            "python_function": context.functions(ids),
            "annotation": context.names(events.get_column("annotation_id")[ids]),
            "phase": events.get_column("phase")[ids],
        }
    )
    numbers, firsts = factorize(*names)
    known = names[firsts]
    phases = pl.DataFrame({"phase": [*PHASES, None]}, schema={"phase": known.schema["phase"]})
    nobody = events.get_column("phase")[late.filter(none)].to_physical().cast(pl.UInt32).fill_null(len(PHASES))
    codes = scatter(none.arg_true(), nobody + known.height, around.len())
    of_events = scatter(ids, numbers, events.height)[around]
    return of_events.zip_with(~none, codes), pl.concat([known, phases], how="diagonal")


def blame_table(attribution: Attribution, device_steps: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Return table `blame`, with categorical names."""
    around = attribution.intervals.get_column("around_id")
    of = context.events.select("thread_id", "operator_id")[around]
    windows = device_steps.select("device", "start_ns", "end_ns", pl.col("index").alias("step"))
    rows = lookup_at(attribution.named(attribution.intervals).hstack(of), "start_ns", windows, ["device"], ["step"])
    return rows.select(list(BLAME.schema))


def _annotations(trace: Trace, host: Host, pieces: pl.DataFrame, late: pl.Series) -> pl.Series:
    """Return the annotation in progress at each piece without a host event; null elsewhere."""
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
        open_ = lookup_at(open_, "start_ns", segments, [thread], [f"on_{thread}"])
    thread_ids = open_.select(pl.coalesce("on_thread_id", "on_main_thread")).to_series()
    return scatter(silent.arg_true(), thread_ids, pieces.height)


def idle_by(attribution: Attribution, device_steps: pl.DataFrame) -> pl.DataFrame:
    """Return table `idle_by`: idle time summed by operator, module, function, annotation, phase and step.

    Every dimension sums to the idle time of the device; a null key is time that cannot be attributed.
    """
    windows = device_steps.select("device", "start_ns", "end_ns", pl.col("index").alias("step"))
    rows = lookup_at(attribution.intervals, "start_ns", windows, ["device"], ["step"])
    groups = attribution.named(_groups(rows, ["device", "cause", "code", "step"]))
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
    return IDLE_BY.conform(pl.concat(sums))


def blamed_code(blamed: Attribution) -> pl.DataFrame:
    """Sum idle time by cause and code, largest first.

    Returns cause, operator, python_function, annotation, module and phase (null where the combined intervals differ),
    idle_ns, and the longest interval: start_ns, end_ns.
    """
    code = ["cause", "operator", "python_function", "annotation"]
    sole = [pl.when(pl.col(c).n_unique() == 1).then(pl.col(c).first()).alias(c) for c in ("module", "phase")]
    return (
        blamed.named(_groups(blamed.intervals, ["cause", "code"]))
        .group_by(code, maintain_order=True)
        .agg(pl.col("idle_ns").sum(), *sole, pl.col("start_ns", "end_ns").first())
        .with_columns(pl.col(*code, "module", "phase").cast(pl.String))
        .sort("idle_ns", *code, descending=[True, *[False] * len(code)], nulls_last=True)
    )


def _groups(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Group intervals that agree in ``by``: idle_ns, count and the longest one; sort by the longest."""
    numbers, firsts = factorize(*rows.select(by))
    lengths = rows.get_column("end_ns") - rows.get_column("start_ns")
    longest = argmax_by_group(numbers, lengths, firsts.len())
    return (
        rows.select(by)[firsts]
        .with_columns(
            sum_by_group(numbers, lengths, firsts.len()).alias("idle_ns"),
            sum_by_group(numbers, pl.ones(numbers.len(), eager=True), firsts.len()).alias("count"),
            lengths[longest].alias("longest_ns"),
            *rows.select("start_ns", "end_ns")[longest],
        )
        .sort("longest_ns", "start_ns", descending=[True, False])
    )


ANALYSES = (
    Value("attribution", blame),
    Analysis(BLAME, blame_table),
    Analysis(IDLE_BY, idle_by, placed=(IDLE_BY_FUNCTION_SECTION, IDLE_BY_MODULE_SECTION)),
)
