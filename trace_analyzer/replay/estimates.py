"""Replay the judged device during an analysis: the effect of each change of the catalogue, and the critical path."""

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer.analyses.context import Context
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.catalog.fixes import Fix, fixes
from trace_analyzer.replay.changes import CHANGES, Change
from trace_analyzer.replay.graph import CALL, CONTENTION, EDGES, EXECUTION, GAP, LATENCY, RETURN, THREAD, WAIT
from trace_analyzer.replay.prediction import Prediction, Replay
from trace_analyzer.replay.recording import HOST_PARTS, UNKNOWN, Segments, column, distinct, is_any, ranges
from trace_analyzer.replay.refusals import refused_replayed, refused_unseen, without_links
from trace_analyzer.replay.weights import FIRST_DEVICE
from trace_analyzer.replay.whatif import (
    PathPart,
    Skipped,
    by_reason,
    located,
    path_parts,
    predict_each,
    standard_changes,
)
from trace_analyzer.report import Check, DeviceReport, Predicted, Verdict
from trace_analyzer.schema import (
    DEVICE,
    END,
    F64,
    FUNCTION,
    I32,
    I64,
    MODULE,
    OPERATOR,
    START,
    STR,
    U32,
    Column,
    Member,
    Table,
)
from trace_analyzer.sections import Section, Shown
from trace_analyzer.thresholds import WORTH_RATIO
from trace_analyzer.tuning import SMALL_EVENTS, dataclass, return_freed_memory
from trace_analyzer.units import duration
from trace_analyzer.windows import Judged

MAX_EVENTS = 2_000_000
"""Largest number of events for a replay in a report: at five million, it adds 2.1 GB to a peak of 3.1 GB, and 22 s to
41 s of CPU time.

``analyze whatif`` has no limit.
"""

WHAT_WOULD_HELP = Table(
    "what_would_help",
    "What the replay of the judged device estimates: the step now, with each change that saves 2 % or more, the floors, and what cannot be estimated.",
    (
        DEVICE,
        Column("kind", STR, "now, change, cpu-floor (as if the device took no time), device-floor (as if the CPU took no time) or refused."),
        Column("change", STR, "The change, as `analyze whatif` calls it; null for other rows."),
        Column("label", STR, "The row in words, with the reason where no step is estimated."),
        Column("step_ns", F64, "Estimated length of the step, or of the window without steps; null without an estimate."),
        Column("low_ns", F64, "Start of its interval."),
        Column("high_ns", F64, "End of its interval."),
        Column("saves_ratio", F64, "Share of the step that the change saves."),
        Column("start_ns", I64, "Start of the window whose steps these are, ns since the trace's origin."),
        Column("end_ns", I64, "Its end."),
    ),
)  # fmt: skip
WHAT_WOULD_HELP_SECTION = Section(
    "What would help most",
    "Estimates from a replay of the trace; `analyze whatif` has more.",
    show=(
        Shown("label", "change", "text", 0, markdown=True),
        Shown("step_ns", "step", terminal=0, markdown=True),
        Shown("low_ns", "from", terminal=64, markdown=True),
        Shown("high_ns", "to", terminal=64, markdown=True),
        Shown("saves_ratio", "saves", terminal=0, markdown=True),
    ),
    whole=True,
)
CRITICAL_PATH = Table(
    "critical_path",
    "What the judged device's steps waited for, one after the other: the replay's critical path, in order of time.",
    (
        DEVICE,
        START,
        END,
        Column("kind", STR, "device, host, or dependency: a wait that belongs to neither."),
        Column("edge", STR, "The kind of dependency, as docs/definitions.md lists them."),
        Column("name", STR, "Bucket of the work, or cause of the wait."),
        Column("thread_id", I32, "The host thread, a row of `threads`; null for the device."),
        Column("activity_id", U32, "The activity; null for the host."),
        Column("event_id", U32, "The innermost host event; for the device its launch. Null where none was recorded."),
        OPERATOR,
        MODULE,
        FUNCTION,
    ),
)


PATH_PARTS = 6
"""Number of parts of the critical path with a speed-up curve in reports: smaller parts have next to no effect."""
_LESS = {"1.11": 10, "1.33": 25, "2": 50, "4": 75, "inf": 100}
"""Speed-up factor -> reduction of a part's time in percent."""
CRITICAL_PATH_PARTS = Table(
    "critical_path_parts",
    "What the critical path of the judged device's steps consists of, the most first, and the step with each part shorter.",
    (
        DEVICE,
        Column("kind", STR, "device, host, or dependency: a wait that belongs to neither."),
        Column("name", STR, "Bucket of the work, or cause of the wait."),
        Column("ns", F64, "Its time on the critical path of a replayed step."),
        Column("ratio", F64, "That as a share of the path."),
        *(
            Column(
                f"step_{less}_less_ns",
                F64,
                f"The step with the part {less} % shorter: an estimate.",
                member=Member("speedups", key, "The step with the part so many times as fast."),
            )
            for key, less in _LESS.items()
        ),
        Column("operator", STR, "The operator with most of it; null where none is known."),
        Column("module", STR, "The module that holds most of it."),
        Column("python_function", STR, "The Python function that holds most of it."),
        Column("start_ns", I64, "Start of its longest stretch, ns since the trace's origin."),
        Column("end_ns", I64, "Its end."),
    ),
)
CRITICAL_PATH_SECTION = Section(
    "Critical path",
    "What the steps waited for, and how long a step would take with less of it.",
    show=(
        Shown("name", "part", "text", 0, markdown=True, phrase="path-part"),
        Shown("ratio", "of the path", terminal=0, markdown=True),
        *(
            Shown(f"step_{less}_less_ns", "without it" if less == 100 else f"{less} % less", terminal=0 if less in (50, 100) else 84, markdown=True)
            for less in _LESS.values()
        ),
        Shown("operator", form="name"),
        Shown("module", form="module"),
        Shown("python_function", "in function", "frame"),
    ),
    whole=True,
)  # fmt: skip


@dataclass(frozen=True)
class Estimates:
    """Hold the results of the replay of one device; ``reason`` is why it, or its predictions on CPU work, are missing.

    ``now_ns`` is the replayed step, null where refused. ``outside_ns`` is time of the window outside all steps.
    ``predictions`` are by `key_of`, ``path`` is the critical path, ``parts`` are its parts; ``skipped`` are changes
    without a prediction.
    """

    device: int | None
    reason: str | None = None
    now_ns: float | None = None
    floors: tuple[float, float] | None = None
    predictions: Mapping[str, tuple[Change, Prediction]] = field(default_factory=dict)
    path: pl.DataFrame | None = None
    parts: tuple[PathPart, ...] = ()
    has_steps: bool = True
    window: tuple[int, int] = (0, 0)
    skipped: tuple[Skipped, ...] = ()
    outside_ns: int = 0

    def of(self, change: Change | None) -> Predicted | None:
        """Return the predicted step under a change; None where it is unknown."""
        _, then = self.predictions.get(key_of(change), (None, None)) if change is not None else (None, None)
        if then is None or self.now_ns is None:
            return None
        batch = float(change.options["times"]) if change is not None and change.name == "batch" else 1.0
        step_ns, low_ns, high_ns = (ns / batch for ns in (then.step_ns, then.low_ns, then.high_ns))
        if batch > 1:  # at best, a step with the bigger batch takes no longer than a present step
            step_ns, low_ns, high_ns = (max(ns, self.now_ns / batch) for ns in (step_ns, low_ns, high_ns))
        return Predicted(step_ns, low_ns, high_ns, self.now_ns, self.has_steps, batch)


@dataclass(frozen=True)
class ReplaySources:
    """Hold the values for a replay, named like their tables; ``device_steps`` are the steps without verdicts."""

    judged: Judged | None
    checks: tuple[Check, ...]
    device_reports: Mapping[int, DeviceReport]
    activities: pl.DataFrame
    backward_links: pl.DataFrame
    launches: pl.DataFrame
    device_steps: pl.DataFrame
    fusions: pl.DataFrame
    tensor_cores: pl.DataFrame
    host_events: pl.DataFrame
    threads: pl.DataFrame
    sync_events: pl.DataFrame
    reported_devices: pl.DataFrame

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Return the tables by name."""
        by_name = {field.name: getattr(self, field.name) for field in fields(self)}
        tables = {name: value for name, value in by_name.items() if isinstance(value, pl.DataFrame)}
        return {**tables, "steps": self.device_steps, "devices": self.reported_devices}

    @property
    def trust(self) -> Sequence[Check]:
        """Return the checks of the trace's data."""
        return self.checks

    @property
    def devices(self) -> Sequence[DeviceReport]:
        """Return the figures of devices."""
        return tuple(self.device_reports.values())


def change_of(fix: Fix) -> Change | None:
    """Return the change that a fix is estimated with; None where no change models it."""
    if fix.replayed is None or fix.replayed.get("name") not in CHANGES:
        return None
    return Change(str(fix.replayed["name"]), {name: value for name, value in fix.replayed.items() if name != "name"})


_OF_ACTIVITIES = (LATENCY, EXECUTION, GAP, WAIT, CONTENTION)
"""Kinds of edges with an activity as `ref`."""


def key_of(change: Change) -> str:
    """Return a text that is equal exactly for equal changes."""
    return " ".join((change.name, *(f"{name}={value}" for name, value in sorted(change.options.items()))))


def estimates(window_verdict: Verdict, replayed: Estimates) -> Estimates:
    """Return the estimates; none where too little of the trace can be judged."""
    return Estimates(None) if window_verdict.status == "insufficient" else replayed


def replayed(replay_sources: ReplaySources) -> Estimates:
    """Return the effects of the standard changes, and of the catalogue's fixes, on the judged device.

    The verdict is not needed, so that the replay can run beside its making.
    """
    sources = replay_sources
    if sources.judged is None:
        return Estimates(None)
    device = sources.judged.device
    events = sources.host_events.height + sources.activities.height
    too_many = (
        f"reports of over {MAX_EVENTS:,} events leave it out; `analyze whatif TRACE` estimates it"
        if events > MAX_EVENTS
        else None
    )
    intervals = sources.judged.window.intervals
    window = intervals[0][0], intervals[-1][1]
    if (reason := refused_unseen(sources, device) or too_many) is not None:
        return Estimates(device, reason, window=window)
    if events > SMALL_EVENTS:
        return_freed_memory()
    made = _replayed(sources, device, window)
    if events > SMALL_EVENTS:
        return_freed_memory()
    return made


def _replayed(sources: ReplaySources, device: int, window: tuple[int, int]) -> Estimates:
    replay = Replay.of(sources, device)
    if (reason := refused_replayed(sources, replay, device, ())) is not None:
        return Estimates(device, reason, window=window)
    unlinked = without_links(sources, device)
    asked = (*standard_changes(), *filter(None, map(change_of, fixes().values())))
    pairs, skipped = predict_each(replay, tuple({key_of(change): change for change in asked}.values()), unlinked)
    predictions = {key_of(change): (change, then) for change, then in pairs}
    floors = replay.floors() if unlinked is None else None
    path, parts = path_of(replay), path_parts(replay, rows=PATH_PARTS)
    return Estimates(
        device,
        unlinked,
        replay.identity.step_ns,
        floors,
        predictions,
        path,
        parts,
        replay.has_steps,
        window,
        tuple(skipped),
        _outside_ns(sources, replay),
    )


def _outside_ns(sources: ReplaySources, replay: Replay) -> int:
    """Return the time of the window outside the replayed steps; 0 where the window itself is replayed."""
    if sources.judged is None or not replay.has_steps:
        return 0
    window_ns = sum(end - start for start, end in sources.judged.window.intervals)
    return max(0, round(window_ns - replay.recorded_step_ns * int(replay.graph.recorded.steps.steady.sum())))


def _now_label(estimates: Estimates) -> str:
    """Describe the present step, where the window has time outside the steps."""
    if estimates.outside_ns < WORTH_RATIO * (estimates.now_ns or 0) or not estimates.outside_ns:
        return "now"
    return f"now, a step; {duration(estimates.outside_ns)} of the verdict's window lie outside of steps"


def what_would_help(estimates: Estimates) -> pl.DataFrame:
    """Return table `what_would_help`; empty where no device worked."""
    if estimates.device is None:
        return WHAT_WOULD_HELP.empty()
    rows = []
    standard = set(map(key_of, standard_changes()))
    if estimates.now_ns is not None:
        now = estimates.now_ns
        rows.append({"kind": "now", "label": _now_label(estimates), "step_ns": now})
        worth = [
            (change, then, 1 - then.step_ns / now)
            for key, (change, then) in estimates.predictions.items()
            if now and key in standard and 1 - then.step_ns / now >= WORTH_RATIO
        ]
        rows += [
            {"kind": "change", "change": change.name, "label": change.label, "step_ns": then.step_ns, "low_ns": then.low_ns,
             "high_ns": then.high_ns, "saves_ratio": saves}
            for change, then, saves in sorted(worth, key=lambda row: row[1].step_ns)
        ]  # fmt: skip
    if estimates.floors is not None:
        cpu, device = estimates.floors
        rows.append({"kind": "device-floor", "label": "no CPU fix goes below", "step_ns": device})
        if cpu >= WORTH_RATIO * (estimates.now_ns or 0):
            rows.append({"kind": "cpu-floor", "label": "no GPU fix goes below", "step_ns": cpu})
    if estimates.reason is not None:
        what = "no estimate" if estimates.now_ns is None else "no estimate of what the CPU does"
        rows.append({"kind": "refused", "label": f"{what}: {estimates.reason}"})
    named = [one for one in estimates.skipped if key_of(Change(one.name, one.options)) in standard]
    rows += [
        {"kind": "refused", "label": f"no estimate of {labels}: {reason}"}
        for reason, labels in by_reason(named).items()
        if reason != estimates.reason
    ]
    none = dict.fromkeys(WHAT_WOULD_HELP.schema) | {
        "device": estimates.device, "start_ns": estimates.window[0], "end_ns": estimates.window[1]
    }  # fmt: skip
    return pl.DataFrame([none | row for row in rows], schema=WHAT_WOULD_HELP.schema)


def path_of(replay: Replay) -> pl.DataFrame:
    """Return the critical path of the unchanged replay as rows of `CRITICAL_PATH`, without names of code.

    Times are those of the recording; thread edges are split by the innermost event.
    """
    graph, path = replay.graph, replay.path(replay.identity)[::-1]
    kind, ref = graph.kind[path], graph.ref[path]
    is_call = is_any(kind, (CALL, RETURN))
    event = graph.recorded.calls.event
    edges = _frame({
        "start_ns": graph.time[graph.source[path]], "end_ns": graph.time[graph.target[path]], "kind": kind,
        "label": replay.known.label[path], "thread_id": graph.thread[graph.target[path]],
        "activity_id": np.where(is_any(kind, _OF_ACTIVITIES), ref, -1),
        "event_id": np.where(is_call, event[ref * is_call], -1) if event.size else np.full(ref.size, -1),
    })  # fmt: skip
    is_thread = pl.col("kind") == THREAD
    rows = pl.concat([edges.filter(~is_thread), _innermost(edges.filter(is_thread), graph.recorded.segments)])
    rows = rows.filter(pl.col("end_ns") > pl.col("start_ns")).sort("start_ns", "end_ns")
    of, ids = pl.col("label"), ("thread_id", "activity_id", "event_id")
    part = pl.when(of >= FIRST_DEVICE).then(pl.lit("device")).when(of < len(HOST_PARTS)).then(pl.lit("host"))
    return rows.select(
        "start_ns",
        "end_ns",
        part.otherwise(pl.lit("dependency")).alias("kind"),
        pl.Series("edge", EDGES)[rows.get_column("kind")],
        pl.Series("name", replay.known.labels)[rows.get_column("label")],
        *(pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name) for name in ids),
    )


def _frame(columns: Mapping[str, npt.NDArray[np.integer[Any]]]) -> pl.DataFrame:
    """Return columns of integers as a frame."""
    return pl.DataFrame({name: column(values) for name, values in columns.items()})


def _innermost(edges: pl.DataFrame, segments: Segments) -> pl.DataFrame:
    """Split edges of threads where the innermost event changes; time without any event is unknown."""
    if edges.is_empty():
        return edges
    thread, since, until = (edges.get_column(name).to_numpy() for name in ("thread_id", "start_ns", "end_ns"))
    first, last = np.zeros(edges.height, dtype=np.int64), np.zeros(edges.height, dtype=np.int64)
    numbers, by_thread = distinct(thread), np.argsort(thread, kind="stable")
    for rows, known in zip(ranges(thread[by_thread], numbers), ranges(segments.thread, numbers), strict=True):
        own = by_thread[rows]
        first[own] = known.start + np.searchsorted(segments.end[known], since[own], "right")
        last[own] = known.start + np.searchsorted(segments.start[known], until[own], "left")
    count = np.maximum(last - first, 0)
    edge = np.repeat(np.arange(edges.height), count)
    row = first[edge] + np.arange(edge.size) - np.repeat(np.cumsum(count) - count, count)
    covered = _frame({
        "edge": edge, "start_ns": np.maximum(segments.start[row], since[edge]), "end_ns": np.minimum(segments.end[row], until[edge]),
        "label": segments.part[row], "event_id": segments.event[row],
    })  # fmt: skip
    stops = _frame({"edge": np.arange(edges.height), "start_ns": until, "end_ns": until}).with_columns(
        label=pl.lit(UNKNOWN, pl.Int64), event_id=pl.lit(-1, pl.Int64)
    )
    bounds = pl.concat([covered, stops]).sort("edge", "start_ns", "end_ns")
    before = pl.col("end_ns").shift(1).over("edge").fill_null(edges.get_column("start_ns")[bounds.get_column("edge")])
    bare = bounds.with_columns(
        before.alias("start_ns"), pl.col("start_ns").alias("end_ns"), label=pl.lit(UNKNOWN, pl.Int64), event_id=pl.lit(-1, pl.Int64)
    )  # fmt: skip
    split = pl.concat([covered, bare.filter(pl.col("end_ns") > pl.col("start_ns"))])
    whole = edges.select("kind", "thread_id", "activity_id")[split.get_column("edge")]
    return split.drop("edge").hstack(whole).select(edges.columns)


def critical_path(estimates: Estimates, activities: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Return table `critical_path`: the path with the code of each piece; empty without a replay."""
    if estimates.path is None:
        return CRITICAL_PATH.empty()
    path = estimates.path.with_columns(pl.col("activity_id", "event_id").cast(pl.UInt32))
    launch = activities.get_column("launch_id")[path.get_column("activity_id")]
    path = path.with_columns(pl.coalesce("event_id", launch.alias("launch_id")).alias("event_id"))
    ids = path.get_column("event_id")
    operators = context.events.get_column("operator_id")[ids]
    return CRITICAL_PATH.conform(
        path.with_columns(
            pl.lit(estimates.device, pl.Int64).alias("device"),
            context.names(operators).cast(pl.String).alias("operator"),
            context.modules(ids).cast(pl.String).alias("module"),
            context.functions(ids).cast(pl.String).alias("python_function"),
        )
    )


def critical_path_parts(estimates: Estimates, stretches: pl.DataFrame) -> pl.DataFrame:
    """Return table `critical_path_parts`, with the code that takes most of each part; empty without a replay."""
    rows = [
        {
            "device": estimates.device, "kind": part.kind, "name": part.name, "ns": part.ns, "ratio": part.ratio,
            **{f"step_{less}_less_ns": part.speedups[key] for key, less in _LESS.items()},
            "operator": part.operator, "module": part.module, "python_function": part.python_function,
            "start_ns": part.start_ns, "end_ns": part.end_ns,
        }
        for part in located(estimates.parts, stretches)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=CRITICAL_PATH_PARTS.schema)


ANALYSES = (
    Value("replay_sources", ReplaySources),
    Value("replayed", replayed, cost=20),
    Value("estimates", estimates),
    Analysis(WHAT_WOULD_HELP, what_would_help, json="what_would_help", section=WHAT_WOULD_HELP_SECTION),
    Analysis(CRITICAL_PATH, critical_path),
    Analysis(
        CRITICAL_PATH_PARTS, critical_path_parts, takes={"stretches": "critical_path"}, json="critical_path",
        section=CRITICAL_PATH_SECTION,
    ),
)  # fmt: skip
