"""Predict step times under changes, with intervals; refuse traces that cannot be replayed; find the critical path."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from math import hypot
from typing import Any

import numpy as np
from msgspec.structs import asdict, replace

from trace_analyzer.replay import changes as ch
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.graph import (
    CONTENTION,
    HAND_OVER,
    QUEUE,
    SPIN,
    THREAD,
    WAIT,
    Graph,
    Measure,
    build,
    measure_of,
    moved_recording,
    steady_edges,
)
from trace_analyzer.replay.outcomes import (
    BEST,
    BEST_CASES,
    INFERRED_RATIO,
    MAX_SPREAD,
    MAX_UNEXPLAINED,
    MIN_HALF_WIDTH,
    SPEEDUPS,
    TYPICAL_ERROR,
    WORST,
    Identity,
    Outcome,
    Prediction,
    beside_a_bigger_batch,
    deviation,
    faster,
    fewer,
    is_batch,
    kept,
    least_half,
    lows_alone,
    only_removes,
    unexplained_ratio,
    with_options,
)
from trace_analyzer.replay.recording import HOST_PARTS, Analysed, Ints, is_any, recording
from trace_analyzer.replay.weights import (
    FIRST_DEVICE,
    UNEXPLAINED,
    Attributes,
    Floats,
    NotApplicable,
    NothingToChange,
    Scene,
    Weights,
    attributes,
    factor_of,
    infinite_cpu,
    infinite_gpu,
    least_factor,
    measured,
    quickened,
    steps_by_factor,
)
from trace_analyzer.thresholds import WORTH_RATIO
from trace_analyzer.units import percent

_NOTHING = 1e-6
"""Smallest relative change of a step that counts."""
_INFERRED = (WAIT, CONTENTION, SPIN, HAND_OVER, QUEUE)


class Replay:
    """Replay a trace under changes: ``Replay.of(report, device).predict((Change("no-sync"),)).step_ns``."""

    def __init__(
        self,
        graph: Graph,
        report: Analysed,
        measure: Measure | None = None,
        measured_ns: float | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        self.graph = graph
        self.measure = measure or measure_of(graph.recorded)
        self.anchors = self.measure.anchors(graph)
        self._report = report
        self.results: dict[tuple[str, str], Any] = {}
        self._measured_ns = measured_ns
        self._memory_bytes = memory_bytes

    @staticmethod
    def of(
        report: Analysed, device: int, measured_ns: float | None = None, memory_bytes: int | None = None
    ) -> "Replay":
        """Return the replay of an analysed trace, for predicting the steps of one device (by code).

        ``measured_ns`` is the step without the profiler: the replay is then of the program without it (`quickened`).
        ``memory_bytes`` is the device's memory where the file has it; else it is that of the catalogue.
        """
        return Replay(build(recording(report, device)), report, measured_ns=measured_ns, memory_bytes=memory_bytes)

    @cached_property
    def known(self) -> Attributes:
        """Return the labels of edges and activities."""
        return attributes(self.graph, self._report.tables["activities"])

    @cached_property
    def scene(self) -> Scene:
        """Return the inputs of changes."""
        steady, count = steady_edges(self.graph), max(int(self.graph.recorded.steps.steady.sum()), 1)
        return Scene(self.graph, self.known, self._report, steady, count, self._base[1], self._memory_bytes)

    @cached_property
    def recorded_step_ns(self) -> float:
        """Return the recorded step: the mean of the steady steps, or the window."""
        return self.anchors.mean(self.graph.time)

    @cached_property
    def _base(self) -> tuple[Weights, float]:
        """Return the weights and the step of the program: as recorded, or without the profiler where that is known."""
        weights, step_ns = measured(self.graph), self.recorded_step_ns
        if self._measured_ns is None:
            return weights, step_ns
        known_ns = min(self._measured_ns, step_ns)
        factor = factor_of(self._steps, known_ns / step_ns)
        return (weights, step_ns) if factor is None else (quickened(weights, factor), known_ns)

    @cached_property
    def _steps(self) -> Callable[[float], float]:
        return steps_by_factor(self.graph, lambda weight: self.anchors.mean(self.graph.replay(weight)[0]))

    def without_profiler(self, step_ns: float) -> "Replay":
        """Return the replay of the program whose step takes ``step_ns`` without the profiler."""
        other = Replay(self.graph, self._report, self.measure, step_ns, self._memory_bytes)
        other.known, other._steps = self.known, self._steps
        return other

    @property
    def misses_measured(self) -> bool:
        """Return whether the step without the profiler is shorter than any with less work of the CPU."""
        return self._measured_ns is not None and self._base[1] > (1 + WORTH_RATIO) * self._measured_ns

    @property
    def _measured(self) -> Weights:
        return self._base[0]

    @cached_property
    def _unchanged(self) -> Outcome:
        """Return the pass without changes, not anchored."""
        return self._pass(self._measured.of(self.graph), 1.0)

    @cached_property
    def identity(self) -> Outcome:
        """Return the replay without changes, whose step is the recorded one, or the one without the profiler."""
        return replace(self._unchanged, step_ns=self._base[1] or self._unchanged.step_ns)

    @cached_property
    def _anchor(self) -> float:
        """Return the known step over the replayed one: each step is the known one times changed over unchanged."""
        return self._base[1] / self._unchanged.step_ns if self._unchanged.step_ns else 1.0

    def run(self, weights: Weights, *, unexplained: bool = True) -> Outcome:
        """Return one pass over the graph."""
        return self._pass(weights.of(self.graph, unexplained=unexplained), self._anchor, weights.at_least_ns)

    def _pass(self, weight: Ints, anchor: float, at_least_ns: float = 0.0) -> Outcome:
        times, binding = self.graph.replay(weight)
        return Outcome(weight, times, binding, max(self.anchors.mean(times) * anchor, at_least_ns))

    def weights(self, changes: tuple[Change, ...]) -> Weights:
        """Return the weights under changes. Raises `NotApplicable`."""
        return ch.changed(self._measured.copy(), self.scene, changes)

    def outcome(self, changes: tuple[Change, ...]) -> Outcome:
        """Return one pass under changes. Raises `NotApplicable`."""
        return self._replayed(changes)[1]

    def _replayed(self, changes: tuple[Change, ...]) -> tuple[Weights, Outcome]:
        weights = self.weights(changes) if changes else self._measured
        return weights, self.run(weights) if changes else self.identity

    @kept
    def predict(self, changes: tuple[Change, ...]) -> Prediction:
        """Return the step under changes with its interval. Raises `NotApplicable`.

        The step obeys `_lawful`; docs/definitions.md, section Replay, has the parts of the interval. A change that only
        removes time ends at the present step, and starts where all is gone that it removes (`_at_best`). Where nothing
        explains too much of the path, peers decide: the interval holds the present step, and that with as much less of it.
        """
        now = self.identity.step_ns
        weights, outcome = self._replayed(changes)
        if only_removes(changes) and not self._differs(weights):
            return Prediction(now, now, now)
        path = self.path(outcome)
        is_open = self._is_open(changes, unexplained_ratio(path, outcome, weights))
        step = self._lawful(changes, outcome.step_ns)
        inferred = self._inferred_ratio(path, outcome) > INFERRED_RATIO
        error = max(abs(self.identity_ratio), self.round_trip if inferred else 0.0)
        host_ns = self.host_on_path * now, self._host_ratio(path, outcome, weights) * outcome.step_ns
        half = max(
            hypot(
                error * step,
                self._effect_of_rest(weights, outcome.step_ns),
                deviation(changes, *host_ns, has_steps=self.has_steps),
            ),
            least_half(changes, self.identity.step_ns - step, step),
        )
        others = self._ends(changes, step)
        worst = max(step, self._if_halved(changes, weights, step), self._at_worst(changes), *others)
        at_best, least = self._at_best(changes, weights, outcome)
        best = min(step, outcome.step_ns, at_best, *others)
        # At its best, the error is the same share of the step.
        low, high, floor = (max(best * (1 - half / step), 0.0) if step else 0.0), worst + half, 0.0
        if only_removes(changes):
            names = {change.name for change in changes}
            if "fuse" not in names:  # how much a launch takes that it spares is itself an estimate
                floor = (1 - abs(self.identity_ratio)) * self._floor_of(changes)
            typical = 0.0 if names == {"prefetch"} else TYPICAL_ERROR  # loading is recorded, not typical
            low = max(low, least - max(error * step, typical * (now - least)))
            slowed = self._at_worst(changes) if "prefetch" in names else 0.0
            high = min(high, max(now, slowed))
            low, floor = self._without_recording(changes, low, floor)
            low = min([low, *lows_alone(changes, self.predict)])
        ends = [low, step, high, *([now, self._if_shared(path, weights)] if is_open else [])]
        others_alone = tuple(change for change in changes if not ch.of_links(change, self.scene))
        if others_alone != changes:
            ends += asdict(self.predict(others_alone)).values()
        return Prediction(step, max(min(ends), floor), max(ends))

    def _is_open(self, changes: tuple[Change, ...], then: float) -> bool:
        """Return whether so much of the path is unexplained, now or ``then``, that peers may decide what a change brings.

        Raises `NotApplicable` for changes of the CPU's work, and where nothing is communicated.
        """
        now = self.summary.unexplained_ratio
        if max(now, then) <= MAX_UNEXPLAINED:
            return False
        if self.scene.communicates and not any(change.needs_links for change in changes):
            return True
        of = "the critical path" if now > MAX_UNEXPLAINED else "what the step would wait for then"
        raise NotApplicable(f"nothing in the trace explains {percent(now if now > MAX_UNEXPLAINED else then)} of {of}")

    def _differs(self, weights: Weights) -> bool:
        """Return whether weights differ from those without changes: what is the same is certain."""
        columns = zip(asdict(weights).values(), asdict(self._measured).values(), strict=True)
        return not all(np.array_equal(changed, unchanged) for changed, unchanged in columns)

    def _lawful(self, changes: tuple[Change, ...], step: float) -> float:
        """Return the step: no longer than with less of changes that only remove time, not below their side's floor, and no
        shorter than without a bigger batch. It is the distance of two ends, of which the first may move more than the last.
        """
        if not only_removes(changes):
            others = beside_a_bigger_batch(changes)
            return step if others is None else max(step, self._lawful(others, self.step(others)))
        least = min([step, self.identity.step_ns, *(self.step(fewer) for fewer in fewer(changes))])
        return max(least, self._floor_of(changes))

    @kept
    def _floor_of(self, changes: tuple[Change, ...]) -> float:
        """Return the floor of changes of one side, on the CPU's with the launches that they spare; 0 for those of both."""
        sides = {*map(ch.side_of, changes)}
        if sides != {"device"}:
            return self.floors[1] if sides == {"host"} else 0.0
        return self._floor(self.weights(changes), infinite_gpu, self.graph.caught_up)

    def _without_recording(self, changes: tuple[Change, ...], low: float, floor: float) -> tuple[float, float]:
        """Return an interval's start and floor; where it ends at the CPU's, what is left without recording's part of that.

        A recorded CPU is an upper bound of the CPU; one that limits the recorded step is not known to be any faster.
        """
        cpu_ns, now = self._floor_of(changes), self.identity.step_ns
        limits = low <= (1 + WORTH_RATIO) * cpu_ns and self.floors[0] < (1 - WORTH_RATIO) * now
        if not limits or self._measured_ns is not None or {*map(ch.side_of, changes)} != {"device"}:
            return low, floor
        best, other = with_options(changes, BEST), self._unrecorded
        least = now * other._lawful(best, other.step(best)) / other.identity.step_ns
        return min(low, least), min(floor, least)

    @cached_property
    def _unrecorded(self) -> "Replay":
        """Return the replay with as little of the CPU's work as recording may leave."""
        factor = least_factor(self.graph, self._report.tables["host_events"])
        step_ns = self.recorded_step_ns * self._steps(factor) / self._steps(1.0)
        other = self.without_profiler(step_ns)
        other._base = quickened(self._measured, factor), step_ns
        return other

    @kept
    def step(self, changes: tuple[Change, ...]) -> float:
        """Return the step of one pass under changes."""
        return self.outcome(changes).step_ns

    def _effect_of_rest(self, weights: Weights, step: float) -> float:
        """Return how much unexplained time changes the saving, ns."""
        if not weights.rest.any() or not self._explained_ns:
            return 0.0
        return abs(step - self.run(weights, unexplained=False).step_ns * self.identity.step_ns / self._explained_ns)

    def _if_shared(self, path: Ints, weights: Weights) -> float:
        """Return the step if unexplained time changes as what is no collective on the path: peers do the same work."""
        then, now = self.by_label(path, weights), self.by_label(self.path_now, self._measured)
        own = np.ones(now.size, dtype=bool)
        own[[UNEXPLAINED, *self.known.activity_label[self.scene.collective]]] = False
        shared = weights.copy()
        shared.device -= shared.rest * (1 - then[own].sum() / max(now[own].sum(), 1.0))
        return self.run(shared).step_ns

    @cached_property
    def _explained_ns(self) -> float:
        """Return the step without unexplained time, ns."""
        return self.run(self._measured, unexplained=False).step_ns

    @cached_property
    def host_on_path(self) -> float:
        """Return the share of CPU time on the critical path."""
        return self._host_ratio(self.path_now, self.identity, self._measured)

    @cached_property
    def path_now(self) -> Ints:
        """Return the critical path without changes."""
        return self.path(self.identity)

    def _at_worst(self, changes: tuple[Change, ...]) -> float:
        """Return the step with what `WORST` options stand for; 0 without such a change."""
        worst = with_options(changes, WORST)
        return self._end(worst, 0.0) if worst != changes else 0.0

    def _at_best(self, changes: tuple[Change, ...], weights: Weights, outcome: Outcome) -> tuple[float, float]:
        """Return the step with what `BEST` options stand for, and what all that it takes off the recorded path leaves.

        That path still takes as long, unless one of its waits is gone: no change saves more than it removes. Nor is a step
        shorter than what its workers load, if their number is known.
        """
        best = with_options(tuple(change.towards(ch.LOW) for change in changes), BEST)
        if best != changes:
            weights, outcome = self._replayed(best)
        path, now = self.path_now, self.identity
        at_least = 0.0 if self.scene.has_workers else (1 - MIN_HALF_WIDTH) * weights.at_least_ns
        if weights.removed[path].any():
            return outcome.step_ns, at_least
        gone = float((now.weight[path] - outcome.weight[path]).sum()) * self._anchor / self.anchors.begins.size
        return outcome.step_ns, max(now.step_ns - gone, at_least)

    def _ends(self, changes: tuple[Change, ...], step: float) -> tuple[float, float]:
        """Return the step at both ends of what the trace leaves open of a batch or a warm step; else twice ``step``.

        Raises `NotApplicable` where their ratio exceeds `MAX_SPREAD` for a batch.
        """
        ways = [tuple(change.towards(end) for change in changes) for end in (ch.LOW, ch.HIGH)]
        if ways[0] == changes:
            return step, step
        low, high = (self._end(way, step) for way in ways)
        if max(low, high) > MAX_SPREAD * min(low, high) and is_batch(changes):
            raise NotApplicable(
                "how much longer kernels take that do not fill the device, and which others libraries choose for another batch, decides:"
                f" the step may take {max(low, high) / min(low, high):.1f} times as long with the one as with the other"
            )
        return low, high

    def _end(self, changes: tuple[Change, ...], step: float) -> float:
        """Return the step, or that without changes where nothing is left of them."""
        try:
            return self.step(changes)
        except NothingToChange:
            return max(step, self.identity.step_ns)

    def _if_halved(self, changes: tuple[Change, ...], weights: Weights, step: float) -> float:
        """Return the step if changes that are modelled at their best (`BEST_CASES`) gain half as much, or nothing measurable.

        Kernels gain half at each edge. Graphs may cover a part of the step only, so half of the step's gain is taken.
        """
        best = (*BEST_CASES, "prefetch") if self.scene.has_workers else BEST_CASES  # their number is not recorded
        others = tuple(change for change in changes if change.name not in best)
        if len(others) == len(changes):
            return step
        if (without_ns := self.step(others)) - step < WORTH_RATIO * without_ns:
            return max(without_ns, step)
        halved, without = Weights(**asdict(weights)), self.weights(others) if others else self._measured
        halved.device, halved.host = (weights.device + without.device) / 2, (weights.host + without.host) / 2
        halved.parts = (weights.parts + without.parts) / 2
        worst = self.run(halved).step_ns
        if any(change.name in ("graphs", *best[len(BEST_CASES) :]) for change in changes):
            worst = max(worst, (step + without_ns) / 2)
        return min(worst, max(step, self.identity.step_ns))

    @property
    def has_steps(self) -> bool:
        """Return whether steady steps, instead of the window, are measured."""
        return bool(self.graph.recorded.steps.steady.any())

    @cached_property
    def identity_ratio(self) -> float:
        """Return the error of the replayed step relative to the known step."""
        return self._unchanged.step_ns / self._base[1] - 1 if self._base[1] else 0.0

    @cached_property
    def summary(self) -> Identity:
        """Return the figures of the replay without changes."""
        unexplained = unexplained_ratio(self.path_now, self.identity, self._measured)
        inferred = self._inferred_ratio(self.path_now, self.identity)
        return Identity(self._unchanged.step_ns, self.identity_ratio, unexplained, inferred)

    @cached_property
    def floors(self) -> tuple[float, float]:
        """Return the step with an infinitely fast device, which shows the CPU's limit, and with an infinitely fast CPU.

        Unexplained time is removed from both, as it may belong to either.
        """
        return (
            self._floor(self._measured, infinite_gpu, self.graph.caught_up),
            self._floor(self._measured, infinite_cpu, self.graph),
        )

    def _floor(self, of: Weights, effect: Callable[[Weights, Scene], None], graph: Graph) -> float:
        effect(weights := of.copy(), self.scene)
        times = (graph.replay(weights.of(graph, unexplained=way))[0] for way in {True, not weights.rest.any()})
        return min(self.identity.step_ns, self._anchor * min(map(self.anchors.mean, times)))

    def path(self, outcome: Outcome) -> Ints:
        """Return the edges of the critical path that end within a measured step, latest first."""
        return self.anchors.path(self.graph, outcome.times, outcome.binding)

    def _host_ratio(self, path: Ints, outcome: Outcome, weights: Weights) -> float:
        """Return the share of CPU time on a path."""
        total = max(int(outcome.weight[path].sum()), 1)
        thread = path[self.graph.kind[path] == THREAD]
        return float((weights.host[path].sum() + weights.parts[:, self.graph.ref[thread]].sum()) / total)

    def _inferred_ratio(self, path: Ints, outcome: Outcome) -> float:
        inferred = self.graph.inferred[path] & is_any(self.graph.kind[path], _INFERRED)
        return float(outcome.weight[path[inferred]].sum() / max(int(outcome.weight[path].sum()), 1))

    @cached_property
    def round_trip(self) -> float:
        """Return the larger error of two round trips: of a CPU and of a device twice as fast."""
        return max(self.round_trip_of(target) for target in ("cpu", "gpu"))

    def round_trip_of(self, target: str) -> float:
        """Return how far a change, read as a recording and undone, misses the step without changes, relative to that."""
        recorded = moved_recording(self.graph, self.outcome(faster(target, 2.0)).times)
        moved = Replay(build(recorded), self._report, self.measure)
        back = moved.anchors.mean(moved.outcome(faster(target, 0.5)).times)
        return abs(back / self._unchanged.step_ns - 1) if self._unchanged.step_ns else 0.0

    def parts(self, changes: tuple[Change, ...] = ()) -> tuple[Floats, Iterator[tuple[int, Mapping[str, float]]]]:
        """Return the ns of a step that each label has of the path, and labels, the largest first, with `_speedups`."""
        weights, outcome = self._replayed(changes)
        label_ns = self.by_label(self.path(outcome) if changes else self.path_now, weights)
        order = np.argsort(-label_ns, kind="stable")
        largest = (int(label) for label in order[label_ns[order] > 0])
        curves = ((label, self._speedups(weights, label, outcome)) for label in largest)
        return label_ns / max(float(label_ns.sum()), 1.0) * outcome.step_ns, curves

    def _speedups(self, weights: Weights, label: int, outcome: Outcome) -> Mapping[str, float]:
        """Return the step with one label's time multiplied by each of `SPEEDUPS`, not below its side's floor."""
        of_host, has_side = label < len(HOST_PARTS), label < len(HOST_PARTS) or label >= FIRST_DEVICE
        floor = self.floors[of_host] if has_side and outcome is self.identity else 0.0
        total, step_ns, graph = outcome.weight, outcome.step_ns, self.graph
        own = np.flatnonzero((self.known.label == label) & ~weights.removed)
        taken = (weights.device + weights.host)[own]
        thread = np.flatnonzero((graph.kind == THREAD) & ~weights.removed) if of_host else own[:0]
        spent = weights.parts[label, graph.ref[thread]] if thread.size else taken[:0]

        def step(factor: float) -> float:
            faster = total.copy()
            faster[own] -= np.rint((1 - factor) * taken).astype(np.int64)
            faster[thread] -= np.rint((1 - factor) * spent).astype(np.int64)
            times, _ = graph.replay(faster)
            return min(max(self.anchors.mean(times) * self._anchor, weights.at_least_ns, floor), step_ns)

        gone = step(0.0)
        if gone >= step_ns * (1 - _NOTHING):
            return dict.fromkeys(SPEEDUPS, gone)
        steps = [step(factor) if factor else gone for factor in SPEEDUPS.values()]
        return dict(zip(SPEEDUPS, np.minimum.accumulate(steps).tolist(), strict=True))

    def by_label(self, path: Ints, weights: Weights) -> Floats:
        """Return the time of each label on the path."""
        label_ns = np.zeros(len(self.known.labels))
        thread = self.graph.kind[path] == THREAD
        label_ns[: len(HOST_PARTS)] += weights.parts[:, self.graph.ref[path[thread]]].sum(axis=1)
        own = path[~thread]
        np.add.at(label_ns, self.known.label[own], weights.device[own] + weights.host[own])
        return label_ns
