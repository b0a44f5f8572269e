"""Describe the critical path of the replayed device: its stretches with their code, its parts with speed-up curves, and what
each resource can bring: the step if it takes no time, and its share of the path.

A resource limits a program where making it faster helps, which is not always the one that takes most time.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer.analyses.host import Context
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.findings import Findings
from trace_analyzer.frames.arrays import column
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.estimates import DeviceReplay, Estimates
from trace_analyzer.replay.graph import CALL, EDGES, OF_ACTIVITIES, OF_DURATION, RETURN, THREAD
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.recording import HOST_PARTS, UNKNOWN, Ints, Segments, by_track, is_any, numbers_from
from trace_analyzer.replay.refusals import refused_replayed, unexplained
from trace_analyzer.replay.weights import FIRST_DEVICE, NothingToChange, instant_cpu, scale_activities, scale_label
from trace_analyzer.replay.whatif import PathPart, located, path_parts
from trace_analyzer.report import Lever, Regime, Resource
from trace_analyzer.schema import F64, Column, Member, Table, columns
from trace_analyzer.sections import Section, Shown
from trace_analyzer.thresholds import UNRECORDED_RATIO
from trace_analyzer.verdict.judge import KERNEL_REGIMES, OF_HOST, OF_REGIME, Levers, groups_of, judged_parts
from trace_analyzer.vocabulary import NOT_OWN, PARTS, UNKNOWN_CAUSES, WITHHELD

CRITICAL_PATH = Table(
    "critical_path",
    "What the judged device's steps waited for, one after the other: the replay's critical path, in order of time.",
    columns("""
        device start_ns end_ns
        kind str device, host, or dependency: a wait that belongs to neither.
        edge str The kind of dependency, as docs/definitions.md lists them.
        name str Bucket of the work, or cause of the wait.
        thread_id i32 The host thread, a row of `threads`; null for the device.
        activity_id u32 The activity; null for the host.
        event_id u32 The innermost host event; for the device its launch. Null where none was recorded.
        operator module python_function
    """),
)


PATH_PARTS = 6
"""Number of parts of the critical path with a speed-up curve in reports: smaller parts have next to no effect."""
_LESS = {"1.11": 10, "1.33": 25, "2": 50, "4": 75, "inf": 100}
"""Speed-up factor -> reduction of a part's time in percent."""
CRITICAL_PATH_PARTS = Table(
    "critical_path_parts",
    "What the critical path of the judged device's steps consists of, the most first, and the step with each part shorter.",
    columns(
        """
        device
        kind str device, host, or dependency: a wait that belongs to neither.
        name str Bucket of the work, or cause of the wait.
        ns f64 Its time on the critical path of a replayed step.
        ratio f64 That as a share of the path.
        """,
        *(
            Column(
                f"step_{less}_less_ns",
                F64,
                f"The step with the part {less} % shorter: an estimate.",
                member=Member("speedups", key, "The step with the part so many times as fast."),
            )
            for key, less in _LESS.items()
        ),
        """
        operator str The operator with most of it; null where none is known.
        module str The module that holds most of it.
        python_function str The Python function that holds most of it.
        start_ns i64 Start of its longest stretch, ns since the trace's origin.
        end_ns i64 Its end.
        """,
    ),
)
CRITICAL_PATH_SECTION = Section(
    "Critical path",
    "What the time was spent on, one part after the other, and the time with less of it.",
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


def replayed_path(device_replay: DeviceReplay) -> pl.DataFrame | None:
    """Return the critical path of the unchanged replay (`path_of`); None without a replay."""
    return None if device_replay.replay is None else path_of(device_replay.replay)


def replayed_parts(device_replay: DeviceReplay) -> tuple[PathPart, ...] | None:
    """Return the parts of that path; None without a replay."""
    parts = None if device_replay.replay is None else path_parts(device_replay.replay, rows=PATH_PARTS)
    device_replay.trim()
    return parts


def path_of(replay: Replay) -> pl.DataFrame:
    """Return the critical path of the unchanged replay as rows of `CRITICAL_PATH`, without names of code.

    Times are those of the recording; thread edges are split by the innermost event.
    """
    graph, path = replay.graph, replay.path_now[::-1]
    kind, ref = graph.kind[path], graph.ref[path]
    is_call = is_any(kind, (CALL, RETURN))
    event = graph.recorded.calls.event
    edges = _frame({
        "start_ns": graph.time[graph.source[path]], "end_ns": graph.time[graph.target[path]], "kind": kind,
        "label": replay.known.label[path], "thread_id": graph.thread[graph.target[path]],
        "activity_id": np.where(is_any(kind, OF_ACTIVITIES), ref, -1),
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
        part.otherwise(pl.lit("dependency")).cast(pl.Categorical).alias("kind"),
        pl.Series("edge", EDGES, dtype=pl.Categorical)[rows.get_column("kind")],
        pl.Series("name", replay.known.labels, dtype=pl.Categorical)[rows.get_column("label")],
        *(pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name) for name in ids),
    )


_NUMBERS: Mapping[str, pl.DataType] = {
    "kind": pl.UInt8(), "label": pl.Int16(), "thread_id": pl.Int32(), "activity_id": pl.Int32(), "event_id": pl.Int32(), "edge": pl.Int32(),
}  # fmt: skip
"""Types of numbers in a path, which may have more rows than the trace has events; times have 64 bits."""


def _frame(columns: Mapping[str, npt.NDArray[np.integer[Any]]]) -> pl.DataFrame:
    return pl.DataFrame({name: column(values).cast(_NUMBERS.get(name, pl.Int64())) for name, values in columns.items()})


def _innermost(edges: pl.DataFrame, segments: Segments) -> pl.DataFrame:
    """Split edges of threads where the innermost event changes; time without any event is unknown."""
    wide = edges.select(pl.col("thread_id", "start_ns", "end_ns").cast(pl.Int64))
    thread, since, until = (own.to_numpy() for own in wide)
    pieces = segments.thread, segments.start
    starts, begins = by_track(pieces, (thread, since))
    first = np.maximum(np.searchsorted(starts, begins, "right") - 1, segments.firsts[thread])
    starts, ends = by_track(pieces, (thread, until))
    count = np.maximum(np.searchsorted(starts, ends, "left") - first, 0)
    edge, row = np.repeat(np.arange(edges.height), count), numbers_from(first, count)
    known = segments.is_event[row]
    edge, row = edge[known], row[known]
    starts, ends = np.maximum(segments.start[row], since[edge]), np.minimum(segments.end[row], until[edge])
    covered = _frame({
        "edge": edge, "start_ns": starts, "end_ns": ends, "label": segments.part[row], "event_id": segments.event[row],
    })  # fmt: skip
    # Between what segments cover: from the end of each edge's last one, or the edge's start, to the next one or the edge's end.
    at = np.concatenate([edge, np.arange(edges.height)])
    order = np.argsort(at, kind="stable")
    at, stop, end = at[order], np.concatenate([starts, until])[order], np.concatenate([ends, until])[order]
    begin = np.where(np.diff(at, prepend=-1) > 0, since[at], np.concatenate([since[:1], end[:-1]]))
    bare = np.flatnonzero(begin < stop)
    unknown, none = np.full(bare.size, UNKNOWN), np.full(bare.size, -1)
    rest = _frame({"edge": at[bare], "start_ns": begin[bare], "end_ns": stop[bare], "label": unknown, "event_id": none})
    split = pl.concat([covered, rest])
    whole = edges.select("kind", "thread_id", "activity_id")[split.get_column("edge")]
    return split.drop("edge").hstack(whole).select(edges.columns)


def critical_path(
    estimates: Estimates, replayed_path: pl.DataFrame | None, activities: pl.DataFrame, context: Context
) -> pl.DataFrame:
    """Return table `critical_path`: the path with the code of each piece, texts as categories; empty without estimates."""
    if estimates.now_ns is None or replayed_path is None:
        return CRITICAL_PATH.empty()
    path = replayed_path.with_columns(pl.col("activity_id", "event_id").cast(pl.UInt32))
    launch = activities.get_column("launch_id")[path.get_column("activity_id")]
    path = path.with_columns(pl.coalesce("event_id", launch.alias("launch_id")).alias("event_id"))
    ids = path.get_column("event_id")
    operators = context.events.get_column("operator_id")[ids]
    return path.select(
        pl.lit(estimates.device, pl.Int64).alias("device"),
        *path.columns,
        context.host.texts(operators).alias("operator"),
        context.modules(ids).alias("module"),
        context.functions(ids).alias("python_function"),
    )


def critical_path_parts(
    estimates: Estimates, replayed_parts: tuple[PathPart, ...] | None, stretches: pl.DataFrame
) -> pl.DataFrame:
    """Return table `critical_path_parts`, with the code that takes most of each part; empty without estimates."""
    if estimates.now_ns is None or replayed_parts is None:
        return CRITICAL_PATH_PARTS.empty()
    rows = [
        {
            "device": estimates.device, "kind": part.kind, "name": part.name, "ns": part.ns, "ratio": part.ratio,
            **{f"step_{less}_less_ns": part.speedups[key] for key, less in _LESS.items()},
            "operator": part.operator, "module": part.module, "python_function": part.python_function,
            "start_ns": part.start_ns, "end_ns": part.end_ns,
        }
        for part in located(replayed_parts, stretches)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=CRITICAL_PATH_PARTS.schema)


_HOST: Resource = "host"
_OF_BOUND: Mapping[str, Resource] = {
    "compute": "compute", "memory": "memory-bandwidth", "communication": "communication", "copy": "copies", "latency": "small-kernels",
}  # fmt: skip
"""Resource that an activity of each bound uses."""
_UNKNOWN = (*UNKNOWN_CAUSES, *NOT_OWN, WITHHELD)


def levers(device_replay: DeviceReplay, window_findings: Findings | None) -> Levers:
    """Return what the step of the judged device saves if each resource takes no time."""
    replay, findings = device_replay.replay, window_findings
    if replay is None or device_replay.unlinked is not None or findings is None:
        return Levers()
    used = _resources(replay)

    def measured(findings: Findings, step_ns: int) -> Levers:
        other = replay.without_profiler(step_ns)
        refused = refused_replayed(other) or unexplained(other)
        return Levers() if refused else Levers(saves_per_ns=_savings(other, findings, used)[1])

    saves, per_ns = _savings(replay, findings, used)
    if not saves:
        return Levers(measured=measured)
    parts_ns, now, path = judged_parts(findings.parts_ns, findings.recording), replay.identity.step_ns, replay.path_now
    shares, on_path = _shares(parts_ns), _path_ratios(replay, path, used)
    rows = [Lever(one, shares.get(one, 0.0), on_path.get(one, 0.0), ns, ns / now) for one, ns in saves.items()]
    of_host = _ordered(_host_levers(replay, path, parts_ns))
    device_replay.trim()
    return Levers(_ordered(rows), per_ns, of_host, measured=measured, host_alone_ratio=replay.floors[0] / now)


def _savings(
    replay: Replay, findings: Findings, used: npt.NDArray[np.str_]
) -> tuple[dict[Resource, float], dict[Regime, float] | None]:
    """Return what a step saves without each resource, and per ns of each regime's time; none where that is not known."""
    parts_ns, now = judged_parts(findings.parts_ns, findings.recording), replay.identity.step_ns
    if not now or (parts_ns != findings.parts_ns and now == replay.recorded_step_ns):
        return {}, None
    # The replay takes for host time what the device may have worked.
    if sum(parts_ns.get(part, 0) for part in _UNKNOWN) > UNRECORDED_RATIO * sum(parts_ns.values()):
        return {}, None
    present = [resource for resource in (_HOST, *_OF_BOUND.values()) if resource == _HOST or (used == resource).any()]
    saves = {resource: _saved_ns(replay, used, resource) for resource in present}
    window, groups = sum(parts_ns.values()), groups_of(parts_ns)
    saved = {regime: max(saves.get(one, 0.0) for one in resources) for regime, resources in OF_REGIME.items()}
    per_ns = {regime: saved[regime] / now * window / ns for regime, ns in groups.items() if ns}
    # A ns of a regime that the window lacks would be a ns of the step, except that kernels are hidden whichever their
    # bound is. Of those that no rule knows, it is not known what hides them.
    known = per_ns if parts_ns.get("other", 0) <= UNRECORDED_RATIO * window else {}
    of_kernels = next((known[regime] for regime in KERNEL_REGIMES if regime in known), 1.0)
    others = {regime: of_kernels if regime in KERNEL_REGIMES else 1.0 for regime in groups.keys() - per_ns}
    return saves, per_ns | others


def _ordered(rows: Iterable[Lever]) -> tuple[Lever, ...]:
    """Return the levers, the largest saving first; of equal ones that of most time."""
    return tuple(sorted(rows, key=lambda lever: (-lever.saves_ns, -lever.share_ratio)))


def _resources(replay: Replay) -> npt.NDArray[np.str_]:
    """Return the resource of each activity; "" for those of unknown bound.

    Work of other devices is communication, unless another process launched it: that is a rank of the same program.
    """
    bounds = replay.known.table.get_column("bound").cast(pl.String)
    own = bounds.replace_strict(_OF_BOUND, default="", return_dtype=pl.String).to_numpy()
    recorded = replay.graph.recorded
    activities, calls = recorded.activities, recorded.calls
    linked = activities.call >= 0
    process = np.full(int(activities.device.max(initial=recorded.device)) + 1, -1, dtype=np.int64)
    process[activities.device[linked]] = calls.process[activities.call[linked]]
    of_rank = process[activities.device] != process[recorded.device]
    return np.where((activities.device == recorded.device) | of_rank, own, "communication")


def _saved_ns(replay: Replay, used: npt.NDArray[np.str_], resource: Resource) -> float:
    """Return what a step saves if the resource takes no time, ns."""
    weights = replay.weights(())
    if resource == _HOST:  # it still waits for what it waits for: work stays in the program's order
        instant_cpu(weights, replay.scene)
    scale_activities(weights, replay.graph, used == resource, 0.0)
    floor = 0.0 if resource == _HOST else replay.floors[0]
    return max(replay.identity.step_ns - max(replay.run(weights).step_ns, floor), 0.0)


def _host_levers(replay: Replay, path: Ints, parts_ns: Mapping[str, int]) -> Iterator[Lever]:
    """Yield the levers of kinds of the host's work: each takes no time, or no call waits for the device."""
    labels, now, window = replay.known.labels, replay.identity.step_ns, max(sum(parts_ns.values()), 1)
    on_path = replay.by_label(path, replay.weights(()))
    for resource, names in OF_HOST.items():
        try:
            weights = replay.weights((Change("no-sync"),) if resource == "waits" else ())
        except NothingToChange:
            continue
        own = [labels.index(name) for name in names]
        for label in own if resource != "waits" else ():
            scale_label(weights, replay.known, label, 0.0)
        saved = max(now - max(replay.run(weights).step_ns, replay.floors[1]), 0.0)
        share = sum(parts_ns.get(name, 0) for name in names) / window
        path_ratio = float(on_path[own].sum() / max(on_path.sum(), 1.0))
        if share or path_ratio or saved:
            yield Lever(resource, share, path_ratio, saved, saved / now)


def _path_ratios(replay: Replay, path: Ints, used: npt.NDArray[np.str_]) -> dict[Resource, float]:
    """Return each resource's share of the critical path."""
    graph, weight = replay.graph, replay.identity.weight[path]
    runs = is_any(graph.kind[path], OF_DURATION)
    of_run = used[graph.ref[path[runs]]]
    total = max(float(weight.sum()), 1.0)
    ratios = {name: float(weight[runs][of_run == name].sum()) / total for name in _OF_BOUND.values()}
    return ratios | {_HOST: replay.host_on_path}


def _shares(parts_ns: Mapping[str, int]) -> dict[str, float]:
    """Return each resource's share of the window: busy time by bound, and idle time that the host causes."""
    window = max(sum(parts_ns.values()), 1)
    sums = {resource: parts_ns.get(bound, 0) for bound, resource in _OF_BOUND.items()}
    host = sum(ns for part, ns in parts_ns.items() if (PARTS[part].cure or ("",))[0] == "overhead-bound")
    small = sums["small-kernels"] + parts_ns.get("device-gap", 0)
    waits = sums["communication"] + parts_ns.get("device-wait", 0)
    sums |= {"small-kernels": small, "communication": waits, _HOST: host - small}
    return {resource: ns / window for resource, ns in sums.items()}


ANALYSES = (
    Value("levers", levers, cost=5),
    Value("replayed_path", replayed_path, cost=2),
    Value("replayed_parts", replayed_parts, cost=2),
    Analysis(CRITICAL_PATH, critical_path),
    Analysis(
        CRITICAL_PATH_PARTS, critical_path_parts, takes={"stretches": "critical_path"}, json="critical_path",
        section=CRITICAL_PATH_SECTION,
    ),
)  # fmt: skip
