"""Split the weight of each edge into parts that changes scale, and sum them for a pass; what changes know of a
trace, and the reasons why one does not apply.
"""

from collections.abc import Callable, Mapping
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from trace_analyzer import thresholds as t
from trace_analyzer.catalog.devices import Device, find_device, interconnects_of
from trace_analyzer.catalog.event_names import ONE_WORKER
from trace_analyzer.frames import _path_loops
from trace_analyzer.frames.lookups import as_strings, factorize
from trace_analyzer.replay import recording
from trace_analyzer.replay.graph import (
    CALL,
    GAP,
    HAND_OVER,
    LATENCY,
    OF_DURATION,
    QUEUE,
    RETURN,
    SPIN,
    STAGING,
    THREAD,
    WAIT,
    Graph,
)
from trace_analyzer.replay.recording import Flags, Ints, is_any
from trace_analyzer.vocabulary import PARTS

Floats = npt.NDArray[np.float64]

LONGEST_NS = 2**62
"""Largest sum of weights, 146 years: no path is longer, so that none overflows."""
GRAPH_GAP_NS = 1_000
"""Gap between consecutive kernels of a CUDA graph."""
SYNCS = (recording.SYNC_DEVICE, recording.SYNC_STREAM, recording.SYNC_EVENT)
COPIES = (recording.COPY, recording.BLOCKING_COPY)
COPY_CALLS, SYNCHRONIZATION, LAUNCH_LATENCY, POLLING, HANDING, ROOM, STREAM_ORDER, STREAM_WAIT, UNEXPLAINED = range(
    len(recording.HOST_PARTS), len(recording.HOST_PARTS) + 9
)
LABELS = (
    *recording.HOST_PARTS, "blocking-copy", "synchronization", "launch-latency", "polling", "hand-over", "queue-room", "device-gap", "device-wait",
    "unexplained",
)  # fmt: skip
"""Labels of an edge's time: parts of host time, then waits; device work has the numbers from here on."""
FIRST_DEVICE = len(LABELS)
_OF_KIND = {
    LATENCY: LAUNCH_LATENCY, SPIN: POLLING, HAND_OVER: HANDING, QUEUE: ROOM, GAP: STREAM_ORDER, WAIT: STREAM_WAIT,
}  # fmt: skip


class Weights(Struct):
    """The time of each edge in three parts that changes scale: device, host, and the parts of threads.

    ``rest`` is the unexplained part of ``device``; ``removed`` edges are ignored.
    """

    device: Floats
    host: Floats
    parts: Floats
    rest: Floats
    removed: Flags
    at_least_ns: float = 0.0

    def copy(self) -> "Weights":
        """Return a copy that can be changed independently."""
        device, host, parts, rest = (column.copy() for column in (self.device, self.host, self.parts, self.rest))
        return Weights(device, host, parts, rest, self.removed.copy(), self.at_least_ns)

    def of(self, graph: Graph, *, unexplained: bool = True) -> Ints:
        """Return the weight of each edge for a pass; ``unexplained=False`` removes unexplained time.

        Raises `NotApplicable` where a sum of weights could overflow.
        """
        total = self.device + self.host
        if not unexplained:
            total -= self.rest
        own, rows = graph.of_threads
        total[own] += self.parts.sum(axis=0)[rows]
        if total.sum() > LONGEST_NS:
            raise NotApplicable("the step would take over a century")
        weights = np.rint(total).astype(np.int64)
        weights[self.removed] = _path_loops.REMOVED
        return weights


def measured(graph: Graph) -> Weights:
    """Return the weights as recorded."""
    is_thread = graph.kind == THREAD
    host = np.where(is_thread, 0, graph.host).astype(np.float64)
    device = np.where(is_thread, 0, graph.weight - graph.host).astype(np.float64)
    # Thread edges have no unexplained time, as threads are recorded completely.
    return Weights(
        device,
        host,
        graph.parts.astype(np.float64),
        graph.rest.astype(np.float64),
        np.zeros(graph.kind.size, dtype=bool),
    )


class Attributes(Struct, frozen=True, dict=True):
    """The codes of each activity's group, bucket and operator; device work has labels from `FIRST_DEVICE` on.

    ``label`` of edges is a row of ``labels``; -1 for `THREAD`, whose parts are the first labels.
    """

    label: Ints
    labels: tuple[str, ...]
    activity_label: Ints
    table: pl.DataFrame

    @cached_property
    def kernel_codes(self) -> Ints:
        """Return a number per activity that is equal for equal kernel, operator and blocks."""
        return factorize(*self.table.select("name", "operator", "blocks"))[0].to_numpy()


def attributes(graph: Graph, activities: pl.DataFrame) -> Attributes:
    """Return the labels of edges and activities."""
    table = activities.select(
        pl.col("kind", "name", "group", "bucket", "operator", "dtype", "bound").cast(pl.Categorical),
        "device", "start_ns", "operator_id", "blocks", "waves", "bytes", "duration_ns", "stream",
    )  # fmt: skip
    direction = pl.col("name").str.extract(r"(HtoD|DtoH|DtoD|PtoP)").fill_null("copy")
    named = (
        pl.when(pl.col("kind") == "kernel").then(pl.coalesce("bucket", pl.lit("other")))
        .when(pl.col("kind") == "memset").then(pl.lit("memset"))
        .otherwise(pl.lit("memcpy ") + direction)
    )  # fmt: skip
    rows, firsts = factorize(*table.select("kind", "bucket", "name"))
    names = as_strings(table.select("kind", "bucket", "name")[firsts]).select(named.alias("label")).to_series()
    kinds = names.unique().sort()
    code = dict(zip(kinds.to_list(), range(FIRST_DEVICE, FIRST_DEVICE + kinds.len()), strict=True))
    of_activity = names.replace_strict(code, return_dtype=pl.Int64)[rows].to_numpy()
    label = np.full(graph.kind.size, -1, dtype=np.int64)
    for kind, number in _OF_KIND.items():
        label[graph.kind == kind] = number
    runs = is_any(graph.kind, OF_DURATION)
    label[runs] = of_activity[graph.ref[runs]] if of_activity.size else 0
    calls = is_any(graph.kind, (CALL, RETURN))
    if calls.any():
        called = graph.recorded.calls.kind[graph.ref[calls]]
        is_return = graph.kind[calls] == RETURN
        of_call = np.full(called.size, recording.RUNTIME)
        of_call[is_any(called, (recording.ALLOC, recording.FREE))] = recording.ALLOCATION
        of_call[is_any(called, COPIES) & is_return] = COPY_CALLS
        of_call[is_any(called, SYNCS)] = SYNCHRONIZATION
        label[calls] = of_call
    label[2 * graph.rest > graph.weight] = UNEXPLAINED
    return Attributes(label, (*LABELS, *kinds.to_list()), of_activity, table.hstack([names.cast(pl.Categorical)[rows]]))


def scale_label(weights: Weights, known: Attributes, label: int, factor: float) -> None:
    """Multiply all time of one label by ``factor``."""
    if label < len(recording.HOST_PARTS):
        weights.parts[label] *= factor
    own = known.label == label
    for column in (weights.device, weights.host, weights.rest):
        column[own] *= factor


def scale_host(weights: Weights, factor: float) -> None:
    """Multiply CPU time by ``factor``; waits for other threads and processes stay, unless ``factor`` is 0."""
    waiting = weights.parts[list(recording.WAITS)].copy()
    weights.parts *= factor
    if factor:
        weights.parts[list(recording.WAITS)] = waiting
    weights.host *= factor


def quickened(weights: Weights, factor: float) -> Weights:
    """Return the weights with the CPU's own work that recording lengthens multiplied by ``factor``."""
    less = weights.copy()
    less.parts[list(_SLOWED)] *= factor
    less.host *= factor
    return less


def least_factor(graph: Graph, events: pl.DataFrame) -> float:
    """Return the least share of the CPU's own work, as recorded, that it takes without the profiler.

    Recording takes at most `RECORDING_MAX_NS` for each event of a thread with calls, `RECORDING_LAUNCH_MAX_NS` for each launch,
    and `RECORDING_MOST_RATIO` of all.
    """
    calls, calling = graph.recorded.calls, np.zeros(graph.recorded.processes.size, dtype=bool)
    calling[calls.thread] = True
    launches = int((calls.kind == recording.LAUNCH).sum())
    others = int(calling[events.get_column("thread_id").to_numpy()].sum()) - launches
    took = launches * t.RECORDING_LAUNCH_MAX_NS + others * t.RECORDING_MAX_NS
    own = graph.parts[list(_SLOWED)].sum() + graph.host[graph.kind == CALL].sum()
    return float(1 - min(took / max(own, 1), t.RECORDING_MOST_RATIO))


def steps_by_factor(graph: Graph, step_of: Callable[[Ints], float]) -> Callable[[float], float]:
    """Return the step, by ``step_of`` weights, with the CPU's own work multiplied by a factor, of which each is replayed once."""
    without, whole = (quickened(measured(graph), factor).of(graph) for factor in (0.0, 1.0))
    return cache(lambda factor: step_of(np.rint(without + factor * (whole - without)).astype(np.int64)))


def factor_of(step_of: Callable[[float], float], ratio: float) -> float | None:
    """Return the factor of the CPU's own work with which the step takes a ratio of its time, by bisection; None without one.

    A CPU that is ahead of the device is not seen in the step: of all factors with this step, to `WORTH_RATIO`, it is the
    middle one.
    """
    step = max(step_of(1.0), 1.0) * ratio

    def largest_within(most_ns: float) -> float:
        low, high = 0.0, 1 + 2 * t.WORTH_RATIO
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if step_of(middle) > most_ns else (middle, high)
        return low

    if step_of(0.0) > step * (1 + t.WORTH_RATIO):
        return None
    return min((largest_within(step * (1 - t.WORTH_RATIO)) + largest_within(step * (1 + t.WORTH_RATIO))) / 2, 1.0)


_SLOWED = tuple(number for number, name in enumerate(recording.HOST_PARTS) if PARTS[name].slowed)
_HALVINGS = 10
"""Of the factor's interval: its error is 0.1 % of the CPU's work."""


def scale_activities(weights: Weights, graph: Graph, chosen: Flags, factor: float | Floats) -> None:
    """Multiply the durations of the chosen activities, of waits for their tails, and of calls that stage them.

    ``factor`` is one number for all, or one per activity.
    """
    runs = np.flatnonzero(is_any(graph.kind, OF_DURATION))
    own = runs[chosen[graph.ref[runs]]]
    factors = factor[graph.ref[own]] if isinstance(factor, np.ndarray) else factor
    weights.device[own] *= factors


class NotApplicable(Exception):
    """Signal that a change cannot be predicted from this trace, with the reason for people."""


class NothingToChange(NotApplicable):
    """Signal that a change has nothing to act on in this program, with the reason for people."""


class UnknownTarget(NotApplicable):
    """Signal that the trace has no part with the name given for a speed-up."""


class Scene(Struct, frozen=True, dict=True):
    """The inputs of changes: graph, labels of edges, the analysed trace, steady steps, recorded step and memory."""

    graph: Graph
    known: Attributes
    report: recording.Analysed
    steady: Flags
    steady_steps: int
    step_ns: float = 0.0
    recorded_bytes: int | None = None

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Return the tables of the trace by name."""
        return self.report.tables

    @cached_property
    def sm_count(self) -> int | None:
        """Return the number of multiprocessors of the replayed device; None where it is unknown."""
        devices = self.tables["devices"]
        label = devices.filter(pl.col("device") == self.graph.recorded.device).item(0, "label")
        return next((device.sm_count for device in self.report.devices if str(device.index) == label), None)

    @cached_property
    def model(self) -> Device | None:
        """Return the replayed device in the catalogue; None where it is unknown."""
        devices = self.tables["devices"]
        name = devices.filter(pl.col("device") == self.graph.recorded.device).item(0, "name")
        return find_device(name, sm_count=self.sm_count)

    @property
    def memory_bytes(self) -> float | None:
        """Return the memory of the replayed device by the file, else by the catalogue; None where it is unknown."""
        model = self.model
        if self.recorded_bytes is not None:
            return self.recorded_bytes
        return None if model is None or model.memory_gib is None else model.memory_gib * 2**30

    @property
    def host_gbps(self) -> float | None:
        """Return the peak of the replayed device's link to the host, GB/s; None where it is unknown."""
        links = interconnects_of(self.model.name) if self.model is not None else ()
        return max((link.gbps for link in links if link.kind in ("pcie", "c2c")), default=None)

    @cached_property
    def collective(self) -> Flags:
        """Return which activities are collectives."""
        group = self.known.table.get_column("group")
        return (group == "communication").fill_null(False).to_numpy().astype(bool)

    @property
    def communicates(self) -> bool:
        """Return whether the replayed device takes part in collectives."""
        return bool((self.collective & (self.graph.recorded.activities.device == self.graph.recorded.device)).any())

    @cached_property
    def has_workers(self) -> bool:
        """Return whether the recording already has data-loading workers."""
        return bool(self._names.str.contains(WORKERS, literal=True).any())

    @cached_property
    def takes_one_worker(self) -> bool:
        """Return whether the program resets more data-loading workers to one."""
        return bool(self._names.str.contains(ONE_WORKER).any())

    @cached_property
    def _names(self) -> pl.Series:
        return self.tables["host_events"].get_column("name").unique().cast(pl.String)


def tighten(weights: Weights, gaps: Flags) -> None:
    """Shorten gaps between activities to those within a graph; what is unexplained of them stays."""
    weights.device[gaps] = np.minimum(weights.device[gaps] - weights.rest[gaps], GRAPH_GAP_NS) + weights.rest[gaps]


def instant_cpu(weights: Weights, scene: Scene) -> None:
    """Let the CPU take no time, but wait where the program waits."""
    scale_host(weights, 0.0)
    graph = scene.graph
    weights.device[is_any(graph.kind, (LATENCY, RETURN))] = 0
    weights.rest[graph.kind == RETURN] = 0
    tighten(weights, graph.kind == GAP)


def infinite_cpu(weights: Weights, scene: Scene) -> None:
    """Let the CPU take no time and never delay the device: what remains is device time, ordered by streams."""
    instant_cpu(weights, scene)
    weights.removed |= is_any(scene.graph.kind, (RETURN, STAGING))


def infinite_gpu(weights: Weights, scene: Scene) -> None:
    """Let the device take no time: what remains is CPU time."""
    for label in range(FIRST_DEVICE, len(scene.known.labels)):
        scale_label(weights, scene.known, label, 0.0)
    idle = is_any(scene.graph.kind, (GAP, WAIT))
    weights.device[idle] = 0
    weights.rest[idle] = 0


WORKERS = "_MultiProcessingDataLoaderIter"
"""Name of a data loader's iterator with workers, in PyTorch's annotation of ``__next__``."""
