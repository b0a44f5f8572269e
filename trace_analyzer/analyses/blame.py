"""Attribute idle time to code that can be changed."""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl
from msgspec.structs import replace

from trace_analyzer import analysis, schema, thresholds, vocabulary
from trace_analyzer.analyses.causes import NO_THREAD, with_cause
from trace_analyzer.analyses.host import Context, Host
from trace_analyzer.catalog.event_names import CAPTURE, HOST_WAIT, PHASES
from trace_analyzer.frames import lookups
from trace_analyzer.frames.intervals import (
    LENGTH_NS,
    clip,
    coalesce,
    count_until,
    innermost,
    lookup_at,
    sort_spans,
    split_by,
    union,
)
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.sections import DEVICE_LABEL, WHOLE_TRACE, Section, Shown

# What the host did while a device waited for a late launch: the threads that could have launched earlier are examined in
# turn, for synchronization, then work that a rule names, then the innermost event.

# Kind of the innermost host event -> its cause where no work is named.
_INNERMOST_WORK = {"python": "python", "operator": "dispatch", "runtime": "runtime-call", "driver": "runtime-call"}
_RANKS = {work: rank for rank, work in enumerate((*vocabulary.NAMED_WORK, *vocabulary.INNERMOST_WORK))}
_RANK = pl.Int8

_PROCESS, _THREAD = ["process_id"], ["thread_id"]
_ROLES = ("thread_id", "previous_thread", "main_thread")
"""Threads that could have launched earlier, in the order of their examination."""


def host_pieces(
    trace: Trace,
    host: Host,
    gap_segments: pl.DataFrame,
    unmasked_launches: pl.DataFrame,
    runtime_calls: pl.DataFrame,
    graph_captures: pl.DataFrame,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cut the host's segments among ``gap_segments``, in any order, and add their cause (`causes.with_cause`).

    Causes are synchronization, then named work, then the threads' innermost events; the second frame has thread_id,
    start_ns, end_ns and event_id of the latter.
    """
    gap_segments = gap_segments.filter(pl.col("cause") == "host")
    work = _host_work_rows(host, runtime_calls)
    waited_until = (pl.col("start_ns") + pl.col("waited_ns").fill_null(0)).clip(upper_bound=pl.col("end_ns"))
    synchronized = gap_segments.with_columns(
        waited_until.alias("end_ns"), pl.lit("synchronization").alias("cause"), pl.col("blocker_id").alias("event_id")
    ).filter(pl.col("start_ns") < pl.col("end_ns"))
    rest = gap_segments.with_columns(waited_until.alias("start_ns")).filter(pl.col("start_ns") < pl.col("end_ns"))
    rest = _with_threads(trace, host, rest, unmasked_launches)
    threads = pl.concat([rest.get_column(role) for role in _ROLES]).drop_nulls().unique()
    on_threads = pl.col("thread_id").is_in(threads.implode()) & (pl.col("kind") != "overhead")
    near = _near(work.filter(on_threads), rest)
    events = _innermost_events(near)
    doing = _overlaid(coalesce(events.drop("event_id"), _THREAD, "rank"), near, _THREAD)
    unknown = pl.lit(None, dtype=_RANK).alias("rank"), NO_THREAD
    pieces = rest.select("gap_id", "device", "start_ns", "end_ns", "event_id", "process_id", *_ROLES, *unknown)
    for role in _ROLES:
        pieces = _filled(pieces, doing.rename({"thread_id": role}), role)
        doing = doing.filter(pl.col("rank") != _RANKS[HOST_WAIT])  # another thread may be waiting for this one
    pieces = _overlaid(pieces, graph_captures.with_columns(pl.lit(CAPTURE).alias("work")), _PROCESS)
    pieces = _overlaid(pieces, work.filter(pl.col("kind") == "overhead"), [])
    names = pl.Series("cause", [*_RANKS, "host-unknown"], dtype=pl.Categorical)
    named = pieces.with_columns(names.gather(pieces.get_column("rank").fill_null(len(_RANKS))))
    return pl.concat([with_cause(synchronized), with_cause(named)]), events.drop("rank")


def _host_work_rows(host: Host, calls: pl.DataFrame) -> pl.DataFrame:
    """Return host events with their work, from a rule or from their own blocking."""
    copies = lookups.inverse_index(
        calls.filter(pl.col("work") == "blocking-copy").get_column("launch_id"), host.events.height
    )
    work = pl.when(copies.is_not_null()).then(pl.lit("blocking-copy")).otherwise("work")
    return host.events.select("event_id", "kind", "thread_id", "start_ns", "end_ns", "marks", "work").with_columns(
        work.cast(host.events.schema["work"]).alias("work")
    )


def _with_threads(trace: Trace, host: Host, stretches: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Add the thread of the process's previous launch, and its main thread if that differs."""
    process = trace.threads.get_column("process_id")[launches.get_column("thread_id")]
    previous = sort_spans(launches.select("launch_id", "thread_id", "start_ns", process), _PROCESS).select(
        "launch_id",
        pl.when(~lookups.starts_group(*_PROCESS)).then(pl.col("thread_id").shift(1)).alias("previous_thread"),
    )
    own, before, main = (pl.col(role) for role in _ROLES)
    return (
        stretches.hstack(lookups.lookup(previous, stretches, "launch_id"))
        .join(main_threads(trace, host), on="process_id", how="left", maintain_order="left")
        .with_columns(
            pl.when(before.ne_missing(own)).then(before),
            pl.when(main.ne_missing(own) & main.ne_missing(before)).then(main),
        )
    )


def main_threads(trace: Trace, host: Host) -> pl.DataFrame:
    """Return process_id, main_thread: the thread with the process's number, else the one with most events."""
    # Events are sorted by thread.
    runs = host.events.get_column("thread_id").rle().struct.unnest()
    events = runs.group_by(pl.col("value").alias("thread_id")).agg(pl.col("len").sum())
    return (
        trace.threads.join(events, on="thread_id", how="inner")
        .sort((pl.col("pid") == pl.col("tid")), "len", descending=True)
        .unique("process_id", keep="first", maintain_order=True)
        .select("process_id", pl.col("thread_id").alias("main_thread"))
    )


def _near(work: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """Return the host events that overlap a segment or lie near one.

    Events farther away can neither be in progress there nor affect whether an operator counts as long.
    """
    margin = thresholds.CPU_OPERATOR_NS + 1
    around = union(stretches.select(pl.col("start_ns") - margin, pl.col("end_ns") + margin), [])
    started = count_until(around.get_column("start_ns"), work.get_column("end_ns"))
    over = count_until(around.get_column("end_ns"), work.get_column("start_ns") - 1)
    return work.filter(started > over)


def _innermost_events(work: pl.DataFrame) -> pl.DataFrame:
    """Return thread_id, start_ns, end_ns, event_id, rank: each thread's innermost work and its cause.

    An annotation without named work is ignored: its enclosing event is still in progress.
    """
    is_relevant = pl.col("kind").is_in(list(_INNERMOST_WORK)) & ~pl.col("marks")
    relevant = work.filter(is_relevant | pl.col("work").is_not_null())
    inner = innermost(relevant.with_row_index("row"), _THREAD, "row")
    kinds = {kind: _RANKS[cause] for kind, cause in _INNERMOST_WORK.items()}
    named = relevant.select(
        "event_id",
        pl.col("kind").replace_strict(kinds, default=None, return_dtype=_RANK).alias("rank"),
        (pl.col("kind") == "operator").alias("is_operator"),
    )[inner.get_column("row")]
    long = pl.col("is_operator") & (LENGTH_NS > thresholds.CPU_OPERATOR_NS)
    rank = pl.when(long).then(pl.lit(_RANKS["cpu-operator"], dtype=_RANK)).otherwise("rank").alias("rank")
    return inner.drop("row").hstack(named).with_columns(rank).drop("is_operator")


def _overlaid(pieces: pl.DataFrame, work: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Cut pieces at the begin and end of named work on their track, and take the rank of the work that comes first.

    Named work includes all events nested in it.
    """
    for name in vocabulary.NAMED_WORK:
        spans = work.filter(pl.col("work") == name)
        if spans.is_empty():
            continue
        covered = union(spans, by).with_columns(pl.lit(_RANKS[name], dtype=_RANK).alias("named_rank"))
        first = pl.min_horizontal("rank", "named_rank").alias("rank")
        pieces = split_by(pieces, covered, by, ["named_rank"]).with_columns(first).drop("named_rank")
    return pieces


def _filled(pieces: pl.DataFrame, doing: pl.DataFrame, role: str) -> pl.DataFrame:
    """Cut pieces without a rank by the work of the thread in that role, and rank them by it."""
    is_open = pl.col("rank").is_null() & pl.col(role).is_not_null()
    open_, done = pieces.filter(is_open), pieces.filter(~is_open)
    ranked = split_by(open_.drop("rank"), doing, [role], ["rank"]).with_columns(pl.col(role).alias("named_by"))
    return pl.concat([done, ranked.select(done.columns)])


BLAME = schema.Table(
    "blame",
    "The intervals of `idle`, each with what the host did then and in whose name.",
    schema.columns("""
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

IDLE_BY = schema.Table(
    "idle_by",
    "Idle time summed up in several ways; each sums to the idle time of the device.",
    schema.columns("""
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


class Attribution(NamedTuple):
    """Intervals of idle time with codes for the names that they are attributed to.

    ``intervals`` are those of table `idle`, with ``around_id``, the host event that the interval is attributed to, and
    ``code``, a row of ``codes``: operator, module, python_function, annotation and phase. Many intervals share few
    codes.
    """

    intervals: pl.DataFrame
    codes: pl.DataFrame

    def within(self, windows: pl.DataFrame) -> "Attribution":
        """Return the attribution inside the disjoint ``windows`` (device, start_ns, end_ns)."""
        return self._replace(intervals=clip(self.intervals, windows, ["device"]))

    def named(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Replace ``code`` by its names."""
        return rows.drop("code").hstack(self.codes[rows.get_column("code")])


def blame(
    trace: Trace, host: Host, idle: pl.DataFrame, gaps: pl.DataFrame, context: Context, step_marks: pl.DataFrame
) -> Attribution:
    """Attribute each interval of table `idle` to an operator, module, Python function and phase.

    Without an event in progress, launch latency belongs to its launch, and host time to the annotation that was open on
    the launching thread or on the main thread. Device time belongs to no code, but has the phase of the late work.
    An annotation that marks a step is the name of no code. Names are categorical.
    """
    late = gaps.get_column("launch_id")[idle.get_column("gap_id")]
    latency = pl.col("cause") == "launch-latency"
    pieces = idle.with_columns(pl.coalesce("event_id", pl.when(latency).then(late)).alias("event_id"))
    annotation = _annotations(trace, host, pieces, late)
    around = pieces.select(pl.coalesce("event_id", annotation).alias("around_id")).to_series()
    code, codes = _codes(context, around, late, step_marks)
    return Attribution(pieces.with_columns(around, code.alias("code")), codes)


def _codes(
    context: Context, around: pl.Series, late: pl.Series, step_marks: pl.DataFrame
) -> tuple[pl.Series, pl.DataFrame]:
    """Return a code per event for its names (only a phase without an event), and the names by code."""
    events, none = context.events, around.is_null()
    # Annotations alone mark steps.
    marks = step_marks.select("process_id", start_ns="host_start_ns", end_ns="host_end_ns")
    step_ids = events.filter("marks").join(marks, on=marks.columns, how="semi").get_column("event_id").implode()

    def names(ids: pl.Series) -> Iterator[pl.Series]:
        yield context.host.texts(events.get_column("operator_id")[ids]).alias("operator")
        yield context.modules(ids).alias("module")
        yield context.functions(ids).alias("python_function")
        annotation_ids = events.get_column("annotation_id")[ids]
        yield context.host.texts(annotation_ids.set(annotation_ids.is_in(step_ids), None)).alias("annotation")
        yield events.get_column("phase")[ids].alias("phase")

    ids = lookups.inverse_index(around.drop_nulls(), events.height).is_not_null().arg_true()
    numbers = schema.nulls(ids.len(), pl.UInt32())
    for column in names(ids):  # one at a time: there may be millions of ids
        numbers, firsts = lookups.factorize(numbers, column)
    known = pl.DataFrame(list(names(ids[firsts])))
    phases = pl.DataFrame({"phase": [*PHASES, None]}, schema={"phase": known.schema["phase"]})
    nobody = events.get_column("phase")[late.filter(none)].to_physical().cast(pl.UInt32).fill_null(len(PHASES))
    codes = lookups.scatter(none.arg_true(), nobody + known.height, around.len())
    of_events = lookups.scatter(ids, numbers, events.height)[around]
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
    silent = pieces.get_column("event_id").is_null() & pieces.get_column("cause").is_in(vocabulary.HOST_CAUSES)
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
    return lookups.scatter(silent.arg_true(), thread_ids, pieces.height)


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
    numbers, firsts = lookups.factorize(*rows.select(by))
    lengths = rows.get_column("end_ns") - rows.get_column("start_ns")
    longest = lookups.argmax_by_group(numbers, lengths, firsts.len())
    return (
        rows.select(by)[firsts]
        .with_columns(
            lookups.sum_by_group(numbers, lengths, firsts.len()).alias("idle_ns"),
            lookups.sum_by_group(numbers, pl.ones(numbers.len(), eager=True), firsts.len()).alias("count"),
            lengths[longest].alias("longest_ns"),
            *rows.select("start_ns", "end_ns")[longest],
        )
        .sort("longest_ns", "start_ns", descending=[True, False])
    )


ANALYSES = (
    analysis.Value("host_segments", host_pieces),
    analysis.Value("late_segments", lambda host_segments: host_segments[0]),
    analysis.Value("innermost_events", lambda host_segments: host_segments[1]),
    analysis.Value("attribution", blame),
    analysis.Analysis(BLAME, blame_table),
    analysis.Analysis(IDLE_BY, idle_by, placed=(IDLE_BY_FUNCTION_SECTION, IDLE_BY_MODULE_SECTION)),
)
