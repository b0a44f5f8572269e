"""Changes to a program, each a function that changes the weights of a graph; they compose.

A change raises `NotApplicable` where the trace does not say what it would do, or has nothing for it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

import numpy as np
import polars as pl

from trace_analyzer.catalog.devices import Device
from trace_analyzer.replay.device_edges import medians
from trace_analyzer.replay.graph import CALL, GAP, LATENCY, QUEUE, RETURN, THREAD, WAIT, Graph
from trace_analyzer.replay.recording import (
    ALLOC,
    ALLOCATION,
    BLOCKING_COPY,
    COMPILATION,
    COPY,
    DATA,
    DISPATCH,
    FREE,
    GRAPH,
    LAUNCH,
    PYTHON,
    RECORD,
    RUNTIME,
    SET,
    UNKNOWN,
    Flags,
    Ints,
)
from trace_analyzer.replay.recording import (
    WAIT as WAIT_CALL,
)
from trace_analyzer.replay.weights import (
    FIRST_DEVICE,
    HANDING,
    SYNCS,
    Attributes,
    Floats,
    Weights,
    remove,
    scale_activities,
    scale_host,
    scale_label,
)

GRAPH_LAUNCH_NS = 10_000
"""The CPU time of one launch of a CUDA graph."""
GRAPH_GAP_NS = 1_000
"""Kernels of a CUDA graph follow each other within this."""
FIXED_KERNEL_NS = 2_000
"""The part of a kernel's time that its work does not change: start and drain."""
SLOW_LAUNCH_NS, SLOW_LAUNCH_MEDIANS = 1_000_000, 20
"""A launch beyond both loads its module first, as `thresholds.SLOW_LAUNCH_NS` says."""
UNFILLED_RATIO = 0.05
"""Where matmuls and convolutions that leave SMs empty take more of the device's time, libraries choose others for a bigger batch."""
_SIGNATURE = 16
_QUEUED = (LAUNCH, GRAPH, COPY, SET, RECORD, WAIT_CALL)
_THREADS_PER_SM = 2048


class NotApplicable(Exception):
    """Why a change cannot be predicted from this trace, for people."""


class NothingToChange(NotApplicable):
    """Why a change would do nothing here, for people: the program has nothing of the kind."""


class UnknownTarget(NotApplicable):
    """Why nothing is made faster: the trace has nothing of that name."""


@dataclass(frozen=True)
class Change:
    """One change by name, with its options."""

    name: str
    options: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The change in a few words."""
        return CHANGES[self.name].label.format(
            **{k: f"{v:g}" if isinstance(v, float | int) else v for k, v in self.options.items()}
        )


@dataclass(frozen=True)
class Scene:
    """What changes may look at: the graph, what its edges are, the analysed tables, the device, and which edges are of steady steps."""

    graph: Graph
    known: Attributes
    tables: Mapping[str, pl.DataFrame]
    device: Device | None
    steady: Flags
    steady_steps: int


Effect = Callable[[Weights, Scene, Mapping[str, float | str]], None]


@dataclass(frozen=True)
class Kind:
    """A kind of change: what it does, in words for people, and its effect on weights.

    ``host`` says that it needs links from calls to activities.
    """

    label: str
    effect: Effect
    host: bool = True


def _of_calls(scene: Scene, edge: int, kinds: tuple[int, ...]) -> Flags:
    """Return the edges of one kind that belong to calls of some kinds."""
    graph = scene.graph
    chosen: Flags = graph.kind == edge
    chosen[chosen] = np.isin(graph.recorded.calls.kind[graph.ref[chosen]], kinds)
    return chosen


def _blocking_copies(scene: Scene) -> Flags:
    return _of_calls(scene, RETURN, (COPY, BLOCKING_COPY))


def no_sync(weights: Weights, scene: Scene, _: Mapping[str, float | str]) -> None:
    """Let no call wait for the device: synchronizing calls are gone, blocking copies are enqueued."""
    returns = _of_calls(scene, RETURN, SYNCS) | _blocking_copies(scene)
    calls = _of_calls(scene, CALL, SYNCS)
    if not (returns.any() or calls.any()):
        raise NothingToChange("no call waits for the device")
    remove(weights, returns)
    weights.host[calls] = 0
    weights.device[calls] = 0


def pinned(weights: Weights, scene: Scene, _: Mapping[str, float | str]) -> None:
    """Copy from and to pinned memory without waiting: the call only enqueues, and the driver stages nothing."""
    graph, activities = scene.graph, scene.graph.recorded.activities
    returns = _blocking_copies(scene)
    if not (returns.any() or activities.pageable.any()):
        raise NothingToChange("no copy blocks, and none is of pageable memory")
    remove(weights, returns)
    calls = graph.recorded.calls
    copying = np.isin(calls.kind, (COPY, BLOCKING_COPY))
    staged = np.zeros(calls.start.size, dtype=bool)
    staged[activities.call[activities.pageable & (activities.call >= 0)]] = True
    free = copying & ~staged & (calls.kind == COPY)
    usual = float(np.median((calls.end - calls.start)[free])) if free.any() else 6_000.0
    call = np.flatnonzero(graph.kind == CALL)
    own = call[staged[graph.ref[call]]]
    weights.host[own] = np.minimum(weights.host[own], usual)
    latency = np.flatnonzero(graph.kind == LATENCY)
    own = latency[activities.pageable[graph.ref[latency]]]
    others = latency[~activities.pageable[graph.ref[latency]] & (weights.host[latency] < usual * 3)]
    typical = float(np.median((weights.host + weights.device)[others])) if others.size else 2 * usual
    weights.host[own] = np.minimum(weights.host[own], usual)
    weights.device[own] = np.minimum(weights.device[own], max(typical - usual, 0.0))
    rate = _pinned_rates(scene)
    scale_activities(weights, graph, activities.pageable, rate)


def _pinned_rates(scene: Scene) -> Floats:
    """Return what part of its time each pageable copy takes at the bandwidth of this trace's pinned copies of its direction."""
    table = scene.known.table.with_columns(
        pl.Series("pageable", scene.graph.recorded.activities.pageable),
        pl.Series("label code", scene.known.activity_label),
    )
    large = (pl.col("bytes") >= 1 << 20) & (pl.col("duration_ns") > 0)
    rates = (
        table.filter(pl.col("label").str.starts_with("memcpy") & large)
        .group_by("label code", "pageable")
        .agg((pl.col("bytes").sum() / pl.col("duration_ns").sum()).alias("rate"))
    )
    pair = rates.filter(~pl.col("pageable")).join(rates.filter("pageable"), on="label code", suffix=" pageable")
    factor = {row["label code"]: min(1.0, row["rate pageable"] / row["rate"]) for row in pair.iter_rows(named=True)}
    return np.array([factor.get(label, 1.0) for label in scene.known.activity_label.tolist()])


def prefetch(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Let workers load data beside the loop: its waits go, but a step takes no less than its loading over the workers."""
    workers = float(options["workers"])
    loading = weights.parts[DATA].sum()
    if not loading:
        raise NothingToChange("no time goes to loading data")
    graph = scene.graph
    own = np.flatnonzero((graph.kind == THREAD) & scene.steady)
    per_step = weights.parts[DATA][graph.ref[own]].sum() / max(scene.steady_steps, 1)
    weights.at_least_ns = max(weights.at_least_ns, per_step / workers)
    weights.parts[DATA] = 0


def graphs(weights: Weights, scene: Scene, _: Mapping[str, float | str]) -> None:
    """Replay each steady step as one CUDA graph: one launch, no operators, no Python; data, waits and allocations stay."""
    graph = scene.graph
    calls = graph.recorded.calls
    launches = _of_calls(scene, CALL, _QUEUED) & scene.steady
    if not launches.any():
        raise NotApplicable("no launch is known")
    blocked = np.unique(graph.ref[_blocking_copies(scene)])
    launches[launches] = ~np.isin(graph.ref[launches], blocked)
    thread = np.flatnonzero((graph.kind == THREAD) & scene.steady)
    for part in (DISPATCH, PYTHON, UNKNOWN, RUNTIME):
        weights.parts[part][graph.ref[thread]] = 0
    weights.host[launches] = 0
    weights.device[launches] = 0
    weights.host[(scene.known.label == HANDING) & scene.steady] = 0
    remove(weights, (graph.kind == QUEUE) & scene.steady)
    weights.host[_first_launches(scene, launches)] = GRAPH_LAUNCH_NS
    latency = (graph.kind == LATENCY) & scene.steady
    long_ = np.zeros(graph.kind.size, dtype=bool)
    rows = np.flatnonzero(latency)
    call = graph.recorded.activities.call[graph.ref[rows]]
    long_[rows] = ~np.isin(call, blocked) & ((calls.end - calls.start)[call] > 0)
    usual = np.median((weights.host + weights.device - weights.rest)[latency]) if latency.any() else 0.0
    total = weights.host + weights.device - weights.rest
    slow = long_ & (total > usual)
    weights.device[slow] -= np.minimum(weights.device[slow] - weights.rest[slow], total[slow] - usual)
    weights.host[slow] = np.minimum(weights.host[slow], usual)
    gaps = (graph.kind == GAP) & scene.steady
    weights.device[gaps] = np.minimum(weights.device[gaps] - weights.rest[gaps], GRAPH_GAP_NS) + weights.rest[gaps]


def _first_launches(scene: Scene, launches: Flags) -> Ints:
    """Return the edge of the first launch call of each steady step; without steps, of all."""
    graph = scene.graph
    calls, activities = graph.recorded.calls, graph.recorded.activities
    step = np.full(calls.start.size, -1, dtype=np.int64)
    linked = activities.call >= 0
    step[activities.call[linked]] = activities.step[linked]
    rows = np.flatnonzero(launches & np.isin(graph.kind, (CALL,)))
    rows = rows[np.isin(calls.kind[graph.ref[rows]], (LAUNCH, GRAPH, COPY, SET))]
    order = rows[np.argsort(calls.start[graph.ref[rows]], kind="stable")]
    _, first = np.unique(step[graph.ref[order]], return_index=True)
    return order[first]


def fuse(weights: Weights, scene: Scene, _: Mapping[str, float | str]) -> None:
    """Run each chain of table `fusions` as one kernel: less traffic, one launch, no gaps inside."""
    graph = scene.graph
    factor, inner = _fused(scene)
    if not inner.any():
        raise NothingToChange("no kernels that one kernel could replace")
    scale_activities(weights, graph, factor < 1, factor)
    gaps = np.flatnonzero(graph.kind == GAP)
    own = gaps[inner[graph.ref[gaps]]]
    weights.device[own] = weights.rest[own]
    calls = np.zeros(graph.recorded.calls.start.size, dtype=bool)
    gone = graph.recorded.activities.call[inner]
    calls[gone[gone >= 0]] = True
    call = np.flatnonzero(graph.kind == CALL)
    weights.host[call[calls[graph.ref[call]]]] = 0
    begins = np.zeros(graph.time.size, dtype=bool)
    begins[graph.call_starts[calls]] = True
    thread = np.flatnonzero(graph.kind == THREAD)
    stretch = graph.ref[thread[begins[graph.target[thread]]]]
    for part in (DISPATCH, PYTHON, UNKNOWN, RUNTIME):
        weights.parts[part][stretch] = 0


def _fused(scene: Scene) -> tuple[Floats, Flags]:
    """Return what part of its time each activity takes in its fused kernel, and which start within one."""
    table, fusions = scene.known.table, scene.tables["fusions"]
    factor, inner = np.ones(table.height), np.zeros(table.height, dtype=bool)
    keys = table.select(pl.struct("name", "operator", "blocks").rank("dense").alias("key")).to_series().to_numpy()
    start = table.get_column("start_ns").to_numpy()
    track = scene.graph.recorded.activities.track
    for row in fusions.iter_rows(named=True):
        length = row["kernel_count"] // max(row["count"], 1)
        first = np.flatnonzero(
            (start >= row["start_ns"])
            & (start < row["end_ns"])
            & (table.get_column("device") == row["device"]).to_numpy()
        )
        if length < 2 or first.size < length:
            continue
        for runs in _runs(keys, track, first[:1], length, row["count"]):
            if not inner[runs].any() and (factor[runs] == 1).all():
                factor[runs] = 1 - row["saves_ns"] / max(row["time_ns"], 1)
                inner[runs[1:]] = True
    return factor, inner


def _runs(keys: Ints, track: Ints, first: Ints, length: int, count: int) -> list[Ints]:
    """Return up to ``count`` runs of ``length`` activities of one stream whose kernels are those from ``first`` on."""
    own = np.flatnonzero(track == track[first[0]])
    at = int(np.searchsorted(own, first[0]))
    wanted = keys[own[at : at + min(length, _SIGNATURE)]]
    if at + length > own.size:
        return []
    last = own.size - length + 1
    equal = np.ones(last, dtype=bool)
    for shift, key in enumerate(wanted.tolist()):
        equal &= keys[own[shift : shift + last]] == key
    found: list[Ints] = []
    reached = -1
    for begin in np.flatnonzero(equal).tolist():
        if begin >= reached and len(found) < count:
            found.append(own[begin : begin + length])
            reached = begin + length
    return found


def speedup(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Make what ``target`` names ``factor`` times as fast: cpu, gpu, a group or bucket of kernels, an operator, a module."""
    target, factor = str(options["target"]), float(options["factor"])
    by = 0.0 if factor == inf else 1 / factor
    if target == "cpu":
        scale_host(weights, by)
        return
    if target == "gpu":
        scale_activities(weights, scene.graph, np.ones(scene.known.table.height, dtype=bool), by)
        return
    chosen = _chosen(scene, target)
    if not chosen.any():
        names = sorted({"cpu", "gpu", *_names(scene, "bucket"), *_names(scene, "group")})
        raise UnknownTarget(f"no bucket, group, operator or module {target!r}; some that there are: {', '.join(names)}")
    scale_activities(weights, scene.graph, chosen, by)


def _names(scene: Scene, column: str) -> list[str]:
    return scene.known.table.get_column(column).drop_nulls().unique().to_list()


def _chosen(scene: Scene, target: str) -> Flags:
    """Return the activities of a bucket, a group, a kind of copy, an operator or a module, in this order."""
    table = scene.known.table
    for column in ("bucket", "group", "label", "operator"):
        chosen = table.select((pl.col(column) == target).fill_null(False)).to_series().to_numpy()
        if chosen.any():
            return chosen.astype(bool)
    if target == "copies":
        return (table.get_column("kind") == "memcpy").to_numpy().astype(bool)
    plain = table.select((pl.col("operator") == f"aten::{target}").fill_null(False)).to_series().to_numpy()
    return plain.astype(bool) if plain.any() else _of_module(scene, target)


def _of_module(scene: Scene, module: str) -> Flags:
    """Return the activities launched within calls of an ``nn.Module``, by the last part of its path, and by its backward pass."""
    events = scene.tables["host_events"].select("event_id", "kind", "name", "thread_id", "start_ns", "duration_ns")
    name = module.rsplit("/", 1)[-1]
    text = pl.col("name").cast(pl.String)
    forward = events.filter((pl.col("kind") == "python") & text.is_in([f"nn.Module: {name}", name]))
    backward = scene.tables["backward_links"].filter(
        pl.col("module").cast(pl.String).str.split("/").list.contains(name).fill_null(False)
    )
    behind = events.filter(pl.col("event_id").is_in(backward.get_column("event_id").implode()))
    calls, activities = scene.graph.recorded.calls, scene.graph.recorded.activities
    inside = np.zeros(calls.start.size + 1, dtype=bool)
    for spans in (forward, behind):
        for thread, start, length in spans.select("thread_id", "start_ns", "duration_ns").iter_rows():
            low, high = np.searchsorted(calls.thread, thread, "left"), np.searchsorted(calls.thread, thread, "right")
            first, last = low + np.searchsorted(calls.start[low:high], (start, start + length))
            inside[first:last] = True
    return inside[activities.call] & (activities.call >= 0)


def narrower(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Run eligible FP32 work in a narrower type, at the roof: contractions on matrix units; in 16 bits, half the traffic of the rest."""
    half = options["dtype"] == "bf16"
    rows = scene.tables["tensor_cores"].filter((pl.col("reason") == "fp32") & (pl.col("time_ns") > 0))
    if not half:
        rows = rows.filter(pl.col("target_dtype") == "tf32")
    key = ["device", "name", "operator"]
    sums = (
        rows.with_columns(pl.col("name", "operator").cast(pl.String))
        .group_by(key)
        .agg(pl.col("could_ns", "time_ns").sum(), pl.col("target_dtype").first())
    )
    share = (
        pl.col("could_ns")
        / pl.col("time_ns")
        * (pl.when(pl.col("target_dtype") == "tf32").then(0.5).otherwise(1.0) if half else 1.0)
    )
    joined = scene.known.table.select(*key, "dtype", "bound").join(
        sums.select(*key, share.alias("share")), on=key, how="left", nulls_equal=True, maintain_order="left"
    )
    factor = joined.get_column("share").fill_null(1.0).clip(0.0, 1.0).to_numpy().copy()
    if half:
        traffic = joined.select(
            ((pl.col("dtype") == "fp32") & (pl.col("bound") == "memory") & pl.col("share").is_null()).fill_null(False)
        ).to_series()
        factor[traffic.to_numpy().astype(bool)] = 0.5
    if not (factor < 1).any():
        raise NothingToChange("no kernel is known to compute in FP32 where a narrower type is faster")
    scale_activities(weights, scene.graph, factor < 1, factor)


def batch(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Multiply the batch: kernels take longer by the waves of thread blocks that they need, loading and copies in proportion."""
    times, graph, table = float(options["times"]), scene.graph, scene.known.table
    if scene.device is None or not scene.device.sm_count:
        raise NotApplicable("the device's number of multiprocessors is not known")
    blocks = table.get_column("blocks").fill_null(0).to_numpy().astype(np.float64)
    threads = table.get_column("threads_per_block").fill_null(0).to_numpy().astype(np.float64)
    is_kernel = (table.get_column("kind") == "kernel").to_numpy() & (blocks > 0) & (threads > 0)
    fits = np.maximum(_THREADS_PER_SM // np.maximum(threads, 1), 1)
    waves = blocks / (scene.device.sm_count * fits)
    duration = table.get_column("duration_ns").to_numpy().astype(np.float64)
    matmul = (table.get_column("group") == "matmul").fill_null(False).to_numpy()
    own = (table.get_column("device") == graph.recorded.device).to_numpy()
    unfilled = duration[own & matmul & is_kernel & (waves * fits < 1)].sum()
    if unfilled > UNFILLED_RATIO * duration[own].sum():
        raise NotApplicable(
            f"matmuls and convolutions that leave multiprocessors empty take {unfilled / duration[own].sum():.0%} of the device's time: "
            "libraries choose other kernels for a bigger batch"
        )
    fixed = np.minimum(duration, FIXED_KERNEL_NS)
    scaled = fixed + (duration - fixed) * np.maximum(1, times * waves) / np.maximum(1, waves)
    scaled = np.where(is_kernel, scaled, duration * times)
    updates = _of_optimizer(scene)
    factor = np.where(updates | (duration == 0), 1.0, scaled / np.maximum(duration, 1))
    scale_activities(weights, graph, np.ones(table.height, dtype=bool), factor)
    weights.parts[DATA] *= times
    weights.at_least_ns *= times


def _of_optimizer(scene: Scene) -> Flags:
    """Return the activities that optimizers launched: parameters do not grow with the batch."""
    text = pl.col("name").cast(pl.String)
    spans = scene.tables["host_events"].filter(text.str.contains(r"^Optimizer\.(step|zero_grad)#"))
    calls, activities = scene.graph.recorded.calls, scene.graph.recorded.activities
    inside = np.zeros(calls.start.size + 1, dtype=bool)
    for thread, start, length in spans.select("thread_id", "start_ns", "duration_ns").iter_rows():
        low, high = np.searchsorted(calls.thread, thread, "left"), np.searchsorted(calls.thread, thread, "right")
        first, last = low + np.searchsorted(calls.start[low:high], (start, start + length))
        inside[first:last] = True
    return inside[activities.call] & (activities.call >= 0)


def warm(weights: Weights, scene: Scene, _: Mapping[str, float | str]) -> None:
    """Leave out what happens once: compiling, loading modules, allocating memory that a cache keeps."""
    graph, calls = scene.graph, scene.graph.recorded.calls
    taken = calls.end - calls.start
    typical = medians(taken, calls.name) if taken.size else taken
    slow = np.isin(calls.kind, _QUEUED) & (taken > SLOW_LAUNCH_NS) & (taken > SLOW_LAUNCH_MEDIANS * typical)
    slow[np.unique(graph.ref[graph.kind == QUEUE])] = False
    once = _of_calls(scene, CALL, (ALLOC, FREE))
    removed = _of_calls(scene, RETURN, (ALLOC, FREE))
    if not (slow.any() or once.any() or weights.parts[[ALLOCATION, COMPILATION]].any()):
        raise NothingToChange("nothing was compiled, loaded or allocated")
    weights.parts[[ALLOCATION, COMPILATION]] = 0
    weights.host[once] = 0
    weights.device[once] = 0
    remove(weights, removed)
    call = np.flatnonzero(graph.kind == CALL)
    own = call[slow[graph.ref[call]]]
    weights.host[own] = np.minimum(weights.host[own], typical[graph.ref[own]])
    latency = np.flatnonzero(graph.kind == LATENCY)
    launched = graph.recorded.activities.call[graph.ref[latency]]
    own, launched = latency[slow[launched]], launched[slow[launched]]
    weights.host[own] = np.minimum(weights.host[own], typical[launched])


def infinite_cpu(weights: Weights, scene: Scene, _: Mapping[str, float | str]) -> None:
    """Let the CPU take no time and never hold the device back: what remains is the device's, ordered by its streams."""
    scale_host(weights, 0.0)
    graph = scene.graph
    latency = graph.kind == LATENCY
    weights.device[latency] = 0
    remove(weights, graph.kind == RETURN)
    gaps = np.isin(graph.kind, (GAP,))
    weights.device[gaps] = np.minimum(weights.device[gaps] - weights.rest[gaps], GRAPH_GAP_NS) + weights.rest[gaps]


def infinite_gpu(weights: Weights, scene: Scene, _: Mapping[str, float | str]) -> None:
    """Let the device take no time: what remains is the CPU's."""
    for label in range(FIRST_DEVICE, len(scene.known.labels)):
        scale_label(weights, scene.known, label, 0.0)
    idle = np.isin(scene.graph.kind, (GAP, WAIT))
    weights.device[idle] = 0
    weights.rest[idle] = 0


CHANGES: Mapping[str, Kind] = {
    "no-sync": Kind("no synchronization", no_sync),
    "pinned": Kind("pinned, asynchronous copies", pinned),
    "prefetch": Kind("data loaded by {workers} workers", prefetch),
    "warm": Kind("one-time work gone", warm),
    "fuse": Kind("chains of kernels fused", fuse),
    "tf32": Kind(
        "FP32 matmuls and convolutions in TF32, at the roof",
        lambda w, s, o: narrower(w, s, {"dtype": "tf32"}),
        host=False,
    ),
    "bf16": Kind("FP32 work in bfloat16, at the roof", lambda w, s, o: narrower(w, s, {"dtype": "bf16"}), host=False),
    "batch": Kind("batch {times} times as big", batch),
    "speedup": Kind("{target} {factor} times as fast", speedup, host=False),
    "graphs": Kind("each step a CUDA graph", graphs),
}
"""All changes, in the order in which they are applied."""


def changed(weights: Weights, scene: Scene, changes: tuple[Change, ...]) -> Weights:
    """Apply changes in the order of `CHANGES`, and return the weights."""
    order = list(CHANGES)
    for change in sorted(changes, key=lambda change: order.index(change.name)):
        CHANGES[change.name].effect(weights, scene, change.options)
    return weights
