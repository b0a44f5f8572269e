"""Change a program: each change is a function that changes the weights of a graph; changes can be combined.

A change raises `NotApplicable` where the trace does not determine its effect, or has nothing to apply it to.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Annotated, Any

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from trace_analyzer import thresholds as t
from trace_analyzer.frames.arrays import column
from trace_analyzer.replay.device_edges import medians
from trace_analyzer.replay.graph import CALL, GAP, LATENCY, QUEUE, RETURN, STAGING, THREAD
from trace_analyzer.replay.kernel_changes import (
    LAUNCH_MEDIANS,
    batch,
    buckets,
    chosen_activities,
    fuse,
    named_alone,
    narrower,
    of_updates,
    overlap,
    overlap_copies,
    speedup,
    target_label,
)
from trace_analyzer.replay.recording import (
    ALLOC,
    ALLOCATION,
    BLOCKING_COPY,
    COMPILATION,
    COMPUTING,
    COPY,
    COPY_KINDS,
    DATA,
    DISPATCH,
    FIRST_COPY,
    FREE,
    GRAPH,
    GRAPH_KERNEL,
    KERNEL,
    LAUNCH,
    LAUNCHING,
    PYTHON,
    RECORD,
    RUNTIME,
    SET,
    UNKNOWN,
    WAIT as WAIT_CALL,
    Flags,
    Ints,
    by_track,
    is_any,
    median,
)
from trace_analyzer.replay.weights import (
    HANDING,
    SYNCS,
    Floats,
    NotApplicable,
    NothingToChange,
    Scene,
    Weights,
    scale_activities,
    scale_host,
    tighten,
)
from trace_analyzer.units import counted, number

TO_HOST = FIRST_COPY + COPY_KINDS.index("DtoH")
"""Kind of activity: a copy to the host."""
GRAPH_LAUNCH_NS = 10_000
"""CPU time of one launch of a CUDA graph."""
LONE_MIN_NS = 100_000
"""Least time of Python, or without an event, between two calls that no graph holds: modules and hooks around a launch take less."""
SILENCE_MAX_NS = 1_000_000
"""Longest time without an event that may surround each launch; a longer one is the program's own work."""
MANY_WAITS = 2
"""Least number of waits per step that is an obstacle: a single one at the end of a step stays outside its graph."""
SHORT_PIECE = 10
"""Least number of launches between waits that is worth a graph: sizes after a wait often depend on the data."""
WORKERS_SLOW = 1.25
"""Slowdown of the main thread while a data-loading worker runs.

In the one recorded pair workers run for 0.6 of a step, which makes 15 %: its main thread takes 13 % longer in the median step,
and 23 % in the mean.
"""
_QUEUED = (LAUNCH, GRAPH, COPY, SET, RECORD, WAIT_CALL)

AUTO = "auto"
"""A number of data-loading workers: the fewest that suffice."""


class Change(Struct, frozen=True):
    """One change by name, with its options."""

    name: Annotated[str, "Name of the change."]
    options: Annotated[Mapping[str, float | str], "Its options: a factor, a kernel, an operator or a module."] = {}

    def with_workers(self, least: Callable[[], int | None]) -> "Change":
        """Return the change with ``least()`` as its number of workers where that is `AUTO`, and known."""
        return replace(self, options={"workers": least() or AUTO}) if self.options.get("workers") == AUTO else self

    def towards(self, end: str) -> "Change":
        """Return the change at the ``low`` or ``high`` end of what the trace leaves open, where it has one."""
        return replace(self, options={**self.options, "end": end}) if self.name in ("batch", "warm") else self

    @property
    def needs_links(self) -> bool:
        """Return whether it concerns CPU work, whose effect reaches the device only through known launches."""
        return CHANGES[self.name].host or self.options.get("target") == "cpu"

    @property
    def label(self) -> str:
        """Return a short description of the change."""
        if self.options.get("factor") == inf:
            return f"{target_label(str(self.options['target']))} infinitely fast"
        named = {**self.options, **{k: target_label(str(v)) for k, v in self.options.items() if k == "target"}}
        if "workers" in named:
            named["workers"] = "more workers" if named["workers"] == AUTO else counted(int(named["workers"]), "worker")
        shown = {k: number(v) if isinstance(v, float | int) else v for k, v in named.items()}
        text = CHANGES[self.name].label.format(**shown)
        part = self.options.get("only", self.options.get("of"))
        return f"{text} ({part} only)" if part else text


Effect = Callable[[Weights, Scene, Mapping[str, float | str]], None]


class Kind(Struct, frozen=True):
    """Describe a kind of change: its label for people, and its effect on weights.

    ``host`` is true where it needs links from calls to activities.
    """

    label: str
    effect: Effect
    host: bool = True


def _of_calls(scene: Scene, edge: int, kinds: tuple[int, ...]) -> Flags:
    """Return the edges of one kind that belong to calls of certain kinds."""
    graph = scene.graph
    chosen: Flags = graph.kind == edge
    chosen[chosen] = is_any(graph.recorded.calls.kind[graph.ref[chosen]], kinds)
    return chosen


def _blocking_copies(scene: Scene) -> Flags:
    return _of_calls(scene, RETURN, (COPY, BLOCKING_COPY))


def _calls_of_blocking_copies(scene: Scene) -> Ints:
    """Return the calls that wait for their copy to end, or to begin."""
    graph = scene.graph
    staging = graph.recorded.activities.call[graph.ref[graph.kind == STAGING]]
    return np.concatenate([graph.ref[_blocking_copies(scene)], staging])


def _waiting(scene: Scene) -> Flags:
    waiting = np.zeros(scene.graph.recorded.calls.start.size, dtype=bool)
    waiting[scene.graph.ref[_of_calls(scene, RETURN, SYNCS)]] = True
    waiting[_calls_of_blocking_copies(scene)] = True
    return waiting & _own(scene)


def _own(scene: Scene) -> Flags:
    """Return which calls are of processes that launch the device's work: another process in the file is another rank."""
    recorded = scene.graph.recorded
    made = recorded.activities.call[(recorded.activities.device == recorded.device) & (recorded.activities.call >= 0)]
    return np.isin(recorded.calls.process, recorded.calls.process[made])


def _behind_copies(scene: Scene, kinds: tuple[int, ...]) -> Flags:
    """Return which calls are right behind copies of pageable memory; ``non_blocking`` saves waits behind those to the device."""
    activities, calls = scene.graph.recorded.activities, scene.graph.recorded.calls
    behind = np.zeros(calls.start.size + 1, dtype=bool)
    behind[activities.call[activities.pageable & is_any(activities.kind, kinds) & (activities.call >= 0)] + 1] = True
    behind[1:-1] &= calls.thread[1:] == calls.thread[:-1]
    return behind[:-1]


def no_sync(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Remove synchronizing calls, and let blocking copies only be enqueued; waits for work that the trace lacks stay.

    With the option ``reach``, waits for collectives and copies on streams of their own stay: nothing else may keep later
    work from starting before their results are there.
    """
    returns = (_of_calls(scene, RETURN, SYNCS) | _blocking_copies(scene)) & (weights.rest <= t.UNRECORDED_NS)
    if "reach" in options:
        activities, collective = scene.graph.recorded.activities, scene.collective
        with_kernels = activities.track[is_any(activities.kind, (KERNEL, GRAPH_KERNEL)) & ~collective]
        own = collective | ~np.isin(activities.track, with_kernels)
        returns &= ~np.isin(scene.graph.source, scene.graph.ends[own])
    calls = _of_calls(scene, CALL, SYNCS)
    if not (returns.any() or calls.any()):
        raise NothingToChange("no call waits for the device")
    weights.removed |= returns
    weights.host[calls] = 0


def pinned(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Make copies pinned and asynchronous: the call only enqueues, nothing is staged, and nobody waits for the copy.

    With ``reach`` ``roof``, what is copied to the host is read a step later, and its memory kept: no wait follows, nor silence.
    """
    graph, activities, reach = scene.graph, scene.graph.recorded.activities, str(options.get("reach", ""))
    read = _behind_copies(scene, (TO_HOST,)) & (reach == "roof")
    waits = _of_calls(scene, RETURN, SYNCS)
    waits[waits] = (read | _behind_copies(scene, (FIRST_COPY,)))[graph.ref[waits]]
    weights.parts[UNKNOWN, graph.ref[(graph.kind == THREAD) & np.isin(graph.source, graph.call_ends[read])]] = 0
    returns = _blocking_copies(scene) | (graph.kind == STAGING) | waits
    if not (returns.any() or activities.pageable.any()):
        raise NothingToChange("no copy blocks, and none is of pageable memory")
    weights.removed |= returns
    calls = graph.recorded.calls
    staged = np.zeros(calls.start.size, dtype=bool)
    staged[activities.call[activities.pageable & (activities.call >= 0)]] = True
    free = ~staged & (calls.kind == COPY)
    usual = median((calls.end - calls.start)[free]) if free.any() else 6_000.0
    call = np.flatnonzero(graph.kind == CALL)
    own = call[staged[graph.ref[call]]]
    weights.host[own] = np.minimum(weights.host[own], usual)
    latency = np.flatnonzero(graph.kind == LATENCY)
    own = latency[activities.pageable[graph.ref[latency]]]
    others = latency[~activities.pageable[graph.ref[latency]] & (weights.host[latency] < usual * 3)]
    typical = median((weights.host + weights.device)[others]) if others.size else 2 * usual
    # The unexplained part of such a copy's start delay is staging.
    total = np.minimum(weights.host[own] + weights.device[own], typical)
    weights.host[own] = np.minimum(np.minimum(weights.host[own], usual), total)
    weights.device[own] = total - weights.host[own]
    weights.rest[own] = 0
    scale_activities(weights, graph, activities.pageable, _pinned_rates(scene, reach))


def _pinned_rates(scene: Scene, reach: str) -> Floats:
    """Return the factor on each pageable copy's time at the bandwidth of pinned copies in its direction.

    Without such copies it is `t.GOOD_ROOF_RATIO` of the link's peak; all of it where ``reach`` is ``roof``, and half of it,
    as in a slot of the generation before, where it is ``slot``. Of an unknown link only the ends are known: a copy takes no
    time, or the present one.
    """
    table = scene.known.table.with_columns(
        column(scene.graph.recorded.activities.pageable).cast(pl.Boolean).alias("pageable"),
        column(scene.known.activity_label).alias("label code"),
    )
    large = (pl.col("bytes") >= 1 << 20) & (pl.col("duration_ns") > 0)
    rates = (
        table.filter((pl.col("kind") == "memcpy") & large)
        .group_by("label code", "pageable")
        .agg((pl.col("bytes").sum() / pl.col("duration_ns").sum()).alias("rate"))
    )
    to_host = [code for code, name in enumerate(scene.known.labels) if name in ("memcpy HtoD", "memcpy DtoH")]
    unknown = inf if reach == "roof" else 0.0
    share = {"roof": 1.0, "slot": 0.5}.get(reach, t.GOOD_ROOF_RATIO) * scene.host_gbps if scene.host_gbps else unknown
    linked = pl.when(pl.col("label code").is_in(to_host)).then(pl.lit(share)).otherwise(0.0)
    pair = rates.filter("pageable").join(
        rates.filter(~pl.col("pageable")), on="label code", how="left", suffix=" pinned"
    )
    factor = np.ones(len(scene.known.labels))
    for code, rate, known in pair.select("label code", "rate", pl.coalesce("rate pinned", linked)).iter_rows():
        factor[code] = min(1.0, rate / known) if known else 1.0
    return factor[scene.known.activity_label]


def prefetch(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Let workers load data in parallel.

    Waits for data disappear, but a step takes at least its loading time divided by the workers, and while a worker loads,
    the main thread takes `WORKERS_SLOW` as long; with the option ``reach``, always or never. Where workers load data
    already, it is only known that a batch takes them one step: twice as many load at best two batches per step.
    """
    if not weights.parts[DATA].any():
        raise NothingToChange("no time goes to loading data")
    own = np.flatnonzero((scene.graph.kind == THREAD) & scene.steady)
    per_step = weights.parts[DATA][scene.graph.ref[own]].sum() / max(scene.steady_steps, 1)
    least = scene.step_ns / 2 if scene.has_workers else per_step / float(options["workers"])
    weights.at_least_ns = max(weights.at_least_ns, least)
    weights.parts[DATA] = 0
    beside = 0.0 if scene.has_workers else min(1.0, per_step / max(scene.step_ns - per_step, 1.0))
    share = {"never": 0.0, "always": float(not scene.has_workers)}.get(str(options.get("reach", "")), beside)
    scale_host(weights, 1 + (WORKERS_SLOW - 1) * share)


def graphs(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Replay each steady step but for its optimizers as one CUDA graph, or as one graph per piece between waits.

    Launches and what surrounds them go; waits, loading of code, `_outside`, `named_alone` and `of_updates` stay; with
    ``reach`` no silences.
    """
    graph, covered = scene.graph, scene.steady & ~of_updates(scene)
    launches = _of_calls(scene, CALL, _QUEUED) & covered
    if not launches.any():
        raise NotApplicable("no launch outside of an optimizer's step is known")
    blocks, _ = _loading(scene)
    blocks[_calls_of_blocking_copies(scene)] = True
    launches[launches] = ~blocks[graph.ref[launches]]
    _refuse_no_graph(scene, launches, covered)
    thread = np.flatnonzero((graph.kind == THREAD) & covered)
    rows = graph.ref[thread]
    stays = _outside(weights.parts[:, rows], "reach" not in options)
    stays[LAUNCHING.index(UNKNOWN)] |= named_alone(scene, LONE_MIN_NS)[thread]
    for at, part in enumerate(LAUNCHING):
        weights.parts[part, rows[~stays[at]]] = 0
    weights.host[launches] = weights.device[launches] = 0
    weights.host[(scene.known.label == HANDING) & scene.steady] = 0
    weights.removed |= (graph.kind == QUEUE) & covered
    weights.host[_first_launches(scene, launches)] = GRAPH_LAUNCH_NS
    latency = (graph.kind == LATENCY) & covered
    total = weights.host + weights.device - weights.rest
    usual = median(total[latency]) if latency.any() else 0.0
    slow = latency & (total > usual)
    slow[slow] = ~blocks[graph.recorded.activities.call[graph.ref[slow]]]
    weights.device[slow] -= np.minimum(weights.device[slow] - weights.rest[slow], total[slow] - usual)
    weights.host[slow] = np.minimum(weights.host[slow], usual)
    tighten(weights, (graph.kind == GAP) & covered)


def _outside(parts: Floats, silent: bool) -> Flags:
    """Return which parts of `LAUNCHING` no graph holds, in each stretch between two calls of a thread.

    These are operators that take longer than any launch, Python that takes longer than it does around most launches, and
    where ``silent`` what is not recorded for longer than that.
    """

    def lone(lengths: Floats) -> float:
        # Stretches without any count: where only a reward or a logger takes time, its length is not the usual one.
        return max(LAUNCH_MEDIANS * (median(lengths) if lengths.size else 0.0), LONE_MIN_NS)

    long = t.CPU_OPERATOR_NS
    limits = {PYTHON: lone(parts[PYTHON]), DISPATCH: long, RUNTIME: long}
    if silent:
        limits[UNKNOWN] = min(lone(parts[UNKNOWN]), SILENCE_MAX_NS)
    return np.stack([parts[part] > limits.get(part, inf) for part in LAUNCHING])


def _refuse_no_graph(scene: Scene, launches: Flags, covered: Flags) -> None:
    """Raise `NotApplicable` where graphs launch the work already, or where waits leave no piece worth a graph."""
    graph, activities, calls = scene.graph, scene.graph.recorded.activities, scene.graph.recorded.calls
    made, own = graph.ref[(graph.kind == CALL) & covered], np.zeros(calls.start.size + 1, dtype=bool)
    own[made] = True
    ran = (activities.end - activities.start) * own[activities.call]
    replayed = np.append(calls.kind == GRAPH, False)[activities.call]
    if ran[replayed].sum() > t.REPLAYED_RATIO * ran.sum():
        raise NothingToChange("graphs launch the work already")
    waits = int(_waiting(scene)[made].sum())
    launched = (is_any(calls.kind, (LAUNCH, GRAPH, COPY, SET)) & _own(scene))[graph.ref[launches]].sum()
    if in_pieces(waits, int(launched), scene.steady_steps):
        raise NotApplicable(
            f"{counted(waits / scene.steady_steps, 'call')}{' a step' if graph.recorded.steps.steady.any() else ''} wait for the device,"
            " which no graph can contain: too few launches are between them for a graph"
        )


def in_pieces(waits: float, launches: float, steps: int) -> bool:
    """Return whether waits are so frequent that a graph of the launches between them is not worth its own launch."""
    return waits >= MANY_WAITS * steps and launches < SHORT_PIECE * waits


def _first_launches(scene: Scene, launches: Flags) -> Ints:
    """Return the edges of calls that launch graphs: the first of each steady step, and after each waiting call."""
    graph = scene.graph
    calls, activities = graph.recorded.calls, graph.recorded.activities
    step = np.full(calls.start.size, -1, dtype=np.int64)
    linked = activities.call >= 0
    step[activities.call[linked]] = activities.step[linked]
    rows = np.flatnonzero(launches & (graph.kind == CALL))
    rows = rows[is_any(calls.kind[graph.ref[rows]], (LAUNCH, GRAPH, COPY, SET))]
    order = rows[np.argsort(calls.start[graph.ref[rows]], kind="stable")]
    # A graph contains no call that waits, whatever thread waits.
    waits = _waiting(scene)
    piece = np.searchsorted(np.sort(calls.start[waits]), calls.start, "right")
    graph_numbers = step * (waits.sum() + 1) + piece
    _, first = np.unique(graph_numbers[graph.ref[order]], return_index=True)
    return order[first]


def _loading(scene: Scene) -> tuple[Flags, Ints]:
    """Return which launch calls load code first, and what calls of their names usually take."""
    calls = scene.graph.recorded.calls
    taken = calls.end - calls.start
    typical = medians(taken, calls.name) if taken.size else taken
    slow = is_any(calls.kind, _QUEUED) & (taken > t.SLOW_LAUNCH_NS) & (taken > t.SLOW_LAUNCH_MEDIANS * typical)
    slow[scene.graph.ref[scene.graph.kind == QUEUE]] = False
    return slow, typical


def warm(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Remove one-time work: compilation, loading of modules, allocation of memory that a cache keeps, slow first launches.

    ``only`` restricts this to ``allocation``, or to ``compilation`` with loading of modules. With option ``end``, slow first
    launches keep their time (``high``), or the host takes no longer for any first launch than for others (``low``).
    """
    graph, only = scene.graph, options.get("only", "")
    slow, typical = _loading(scene)
    slow &= only != "allocation"
    parts = {"allocation": [ALLOCATION], "compilation": [COMPILATION]}.get(str(only), [ALLOCATION, COMPILATION])
    kept = (ALLOC, FREE) if only != "compilation" else ()
    once = _of_calls(scene, CALL, kept)
    hurried = not only and _hurry_first_launches(weights, scene, str(options.get("end", "")))
    if not (slow.any() or once.any() or weights.parts[parts].any() or hurried):
        raise NothingToChange("nothing was compiled, loaded or allocated")
    weights.parts[parts] = 0
    weights.host[once] = weights.device[once] = 0
    weights.removed |= _of_calls(scene, RETURN, kept)
    call = np.flatnonzero(graph.kind == CALL)
    own = call[slow[graph.ref[call]]]
    weights.host[own] = np.minimum(weights.host[own], typical[graph.ref[own]])
    latency = np.flatnonzero(graph.kind == LATENCY)
    launched = graph.recorded.activities.call[graph.ref[latency]]
    own, launched = latency[slow[launched]], launched[slow[launched]]
    weights.host[own] = np.minimum(weights.host[own], typical[launched])


LOW, HIGH = "low", "high"
_WITHIN_CALLS, _OUTSIDE_CALLS = (DISPATCH, RUNTIME, COMPUTING), (PYTHON, UNKNOWN)
"""Parts of the host's time within operators and calls, and outside of them."""


def _hurry_first_launches(weights: Weights, scene: Scene, end: str) -> bool:
    """Let what precedes slow first launches (table `first_launches`) take the usual time; return whether any does.

    Only time within the operators that launch is taken for one-time; outside of them a thread may wait for others.
    """
    firsts, graph = scene.tables["first_launches"].sort("thread_id", "start_ns"), scene.graph
    begin = "start_ns" if end == LOW else "operator_start_ns"
    slow = pl.col("is_slow") & (pl.col("end_ns") - pl.col(begin) >= t.COLD_START_GAP_NS)
    firsts = firsts.clear() if end == HIGH else firsts if end == LOW else firsts.filter(slow)
    edges = np.flatnonzero((graph.kind == THREAD) & scene.steady)
    if firsts.is_empty() or not edges.size:
        return False
    thread, start, until = (firsts[name].to_numpy().astype(np.int64) for name in ("thread_id", begin, "end_ns"))
    own, time = graph.thread[graph.target[edges]], graph.time[graph.target[edges]]
    begins, points = by_track((thread, start), (own, time))
    row = np.maximum(np.searchsorted(begins, points, "left") - 1, 0)
    inside = (thread[row] == own) & (start[row] < time) & (time <= until[row])
    row, parts = row[inside], graph.ref[edges[inside]]
    chosen = np.array([*_WITHIN_CALLS, *(_OUTSIDE_CALLS if end == LOW else ())])[:, None]
    taken = np.bincount(row, weights=weights.parts[chosen, parts].sum(axis=0), minlength=thread.size)
    share = np.minimum(firsts.get_column("usual_ns").to_numpy() / np.maximum(taken, 1), 1)[row]
    weights.parts[chosen, parts] *= share
    return bool((share < 1).any())


CHANGES: Mapping[str, Kind] = {
    "no-sync": Kind("no synchronization", no_sync),
    "pinned": Kind("pinned, asynchronous copies", pinned),
    "prefetch": Kind("prefetched data, {workers}", prefetch),
    "warm": Kind("one-time work gone", warm),
    "fuse": Kind("kernels fused", fuse, host=False),
    "tf32": Kind(
        "FP32 matmuls and convolutions in TF32", lambda w, s, o: narrower(w, s, {**o, "dtype": "tf32"}), host=False
    ),
    "bf16": Kind("FP32 work in 16 bits", lambda w, s, o: narrower(w, s, {**o, "dtype": "bf16"}), host=False),
    "batch": Kind("batch {times} times as big", batch),
    "speedup": Kind("{target} {factor} times as fast", speedup, host=False),
    "overlap": Kind("communication beside computation, at best", overlap, host=False),
    "overlap-copies": Kind("copies beside computation, at best", overlap_copies, host=False),
    "buckets": Kind("small messages sent as one", buckets),
    "graphs": Kind("CUDA graphs", graphs),
}
"""All changes, in the order of their application."""


_SIDES: Mapping[str, str] = {
    "no-sync": "host", "prefetch": "host", "warm": "host", "graphs": "host", "fuse": "device", "tf32": "device", "bf16": "device",
    "overlap": "device", "overlap-copies": "device",
}  # fmt: skip
"""Changes of one side of a program only, of which the other side's time is a floor; `fuse` also spares launches."""


def side_of(change: Any) -> str | None:
    """Return the side of the program that a change is for, by its name and options; None for both."""
    if change.name != "speedup":
        return _SIDES.get(change.name)
    return "host" if change.options["target"] == "cpu" else "device"


def of_links(change: Change, scene: Scene) -> bool:
    """Return whether a change is of collectives; of one rank alone, nobody knows how much of them is waiting for peers."""
    if change.name != "speedup":
        return change.name == "overlap"
    chosen = chosen_activities(scene, str(change.options["target"]))
    return bool(chosen.any() and scene.collective[chosen].all())


def changed(weights: Weights, scene: Scene, changes: tuple[Change, ...]) -> Weights:
    """Apply changes in the order of `CHANGES`, and return the weights."""
    for change in sorted(changes, key=lambda change: [*CHANGES].index(change.name)):
        CHANGES[change.name].effect(weights, scene, change.options)
    return weights
