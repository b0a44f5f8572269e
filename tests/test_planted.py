"""Check that planted causes are reported in random loops, and that no other causes change."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache

import polars as pl
import pytest
from lazy_report import report_on
from simulator import Kernel, Simulation, Stream, Thread

from trace_analyzer import thresholds, vocabulary
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow

STEPS = 10
PLANTED_NS = 900_000
GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>(int)"
MAIN, AUTOGRAD = 0, 1


class Steady(Simulation):
    """Simulate a machine without random variation: two runs differ only by what is planted."""

    def jittered(self, ns: int) -> int:
        return ns


@dataclass(frozen=True)
class Machine:
    """Simulate a process: its launching threads and the streams of two devices."""

    simulation: Simulation
    thread: Thread
    autograd: Thread
    stream: Stream
    peer: Stream


Plant = Callable[[Machine], None]


def nothing(machine: Machine) -> None:
    """Plant nothing."""


@dataclass(frozen=True)
class Loop:
    """Describe steps of layers, with or without backward, that launch products and additions late.

    Times are of a layer's operators on the CPU and of their kernels.
    """

    mm_ns: tuple[int, ...]
    add_ns: tuple[int, ...]
    kernel_ns: tuple[int, ...]
    backward: bool
    frames: bool = True

    def run(self, plant: Plant = nothing) -> Report:
        """Return the report, with ``plant`` applied at the boundary of each step."""
        simulation = Steady(python_frames=self.frames, devices=2)
        thread, autograd = simulation.thread(), simulation.thread("pt_autograd_0")
        machine = Machine(simulation, thread, autograd, simulation.stream(), simulation.stream(device=1))
        with thread.frame("train.py(3): main", before_ns=10_000):
            for number in range(STEPS):
                with thread.step(number), thread.frame("train.py(12): step"):
                    self._step(machine)
                    plant(machine)
        return report_on(simulation.json().encode(), device=0)

    def _step(self, machine: Machine) -> None:
        thread, stream = machine.thread, machine.stream
        numbers = [machine.simulation.next_sequence() for _ in self.mm_ns]
        for layer, number in enumerate(numbers):
            with thread.frame(f"nn.Module: Layer_{layer}"):
                with thread.op("aten::mm", before_ns=self.mm_ns[layer], sequence=number):
                    thread.launch(Kernel(GEMM, self.kernel_ns[layer], (432, 1, 1)), stream)
                with thread.op("aten::add", before_ns=self.add_ns[layer]):
                    thread.launch(Kernel(ADD, self.kernel_ns[layer], (432, 1, 1)), stream)
        with thread.hand_over(machine.autograd) if self.backward else nullcontext():
            for layer in reversed(range(len(numbers) if self.backward else 0)):
                node = machine.autograd.backward_op("MmBackward0", numbers[layer])
                with node, machine.autograd.op("aten::mm", before_ns=self.mm_ns[layer]):
                    machine.autograd.launch(Kernel(GEMM, self.kernel_ns[layer], (432, 1, 1)), stream)


def random_loop(seed: int) -> Loop:
    rng = random.Random(seed)

    def times(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.randint(low, high) for _ in range(layers))

    layers = rng.randint(3, 8)
    return Loop(times(9_000, 30_000), times(8_000, 20_000), times(3_500, 7_000), backward=bool(seed % 2))


SEEDS = pytest.mark.parametrize("seed", [1, 2, 3])


@cache
def unplanted(loop: Loop) -> Report:
    return loop.run()


def causes(report: Report) -> Counter[str]:
    return Counter(next(device for device in report.devices if device.index == 0).gaps.by_cause_ns)


def annotated(name: str) -> Plant:
    def plant(machine: Machine) -> None:
        with machine.thread.annotation(name):
            machine.thread.spend(PLANTED_NS)

    return plant


def framed(name: str) -> Plant:
    def plant(machine: Machine) -> None:
        with machine.thread.frame(name, before_ns=0, after_ns=0):
            machine.thread.spend(PLANTED_NS)

    return plant


def operating(ns: int, times: int) -> Plant:
    def plant(machine: Machine) -> None:
        for _ in range(times):
            with machine.thread.op("aten::sort", before_ns=ns, after_ns=0):
                pass

    return plant


def launching(ns: int) -> Plant:
    """Plant a launch of an earlier kernel whose call takes ``ns``."""

    def plant(machine: Machine) -> None:
        usual = machine.simulation.costs
        machine.simulation.costs = replace(usual, launch_call_ns=ns)
        machine.thread.launch(Kernel(ADD, 4_000, (432, 1, 1)), machine.stream)
        machine.simulation.costs = usual

    return plant


def copying(staging_ns: int) -> Plant:
    """Plant a copy of pageable memory, which the driver moves into a buffer of its own first."""

    def plant(machine: Machine) -> None:
        with machine.thread.op("aten::copy_"):
            machine.thread.memcpy("HtoD", 100_000, machine.stream, pageable=True, staging_ns=staging_ns)

    return plant


def capturing(machine: Machine) -> None:
    with machine.thread.capture():
        for _ in range(10):
            with machine.thread.op("aten::mm", before_ns=PLANTED_NS // 10 - 6_000, after_ns=0):
                machine.thread.capture_launch()


def depending(ns: int) -> Plant:
    """Plant a stream's wait for ``ns`` of a peer's work, then the CPU's for the stream, so it does not run ahead."""

    def plant(machine: Machine) -> None:
        thread = machine.thread
        thread.launch(Kernel(ADD, 1_000 + ns, (432, 1, 1)), machine.peer)
        thread.wait_event(machine.stream, thread.record_event(machine.peer))
        thread.launch(Kernel(ADD, 4_000, (432, 1, 1)), machine.stream)
        thread.synchronize(machine.stream)

    return plant


@dataclass(frozen=True)
class Planted:
    """Describe a planted cause, its duration, and other properties of the loop."""

    plant: Plant
    ns: int = PLANTED_NS
    instead: Plant = nothing


PLANTS: dict[str, Planted] = {
    "data-loading": Planted(annotated("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")),
    "compilation": Planted(framed("torch/_dynamo/convert_frame.py(1180): _compile")),
    "compilation by a call": Planted(lambda machine: machine.thread.call("cuModuleLoadData", PLANTED_NS)),
    "compilation by a launch": Planted(launching(4_500 + 2 * PLANTED_NS), 2 * PLANTED_NS, launching(4_500)),
    "graph-capture": Planted(capturing),
    "allocation": Planted(lambda machine: machine.thread.malloc(PLANTED_NS)),
    "garbage-collection": Planted(annotated("Python GC")),
    "blocking-copy": Planted(copying(PLANTED_NS), instead=copying(0)),
    "profiler": Planted(lambda machine: machine.thread.profiler_row("Buffer Flush", PLANTED_NS)),
    "host-wait": Planted(framed("queue.py(154): get")),
    "python": Planted(framed("train.py(40): log")),
    "dispatch": Planted(operating(PLANTED_NS // 3, 3)),
    "cpu-operator": Planted(operating(5 * PLANTED_NS, 1), 5 * PLANTED_NS),
    "runtime-call": Planted(lambda machine: machine.thread.call("cudaFuncGetAttributes", PLANTED_NS)),
    "launch-latency": Planted(launching(4_500 + PLANTED_NS), instead=launching(4_500)),
    "device-wait": Planted(depending(PLANTED_NS), instead=depending(0)),
    "device-wait of 90 us": Planted(depending(90_000), 90_000, depending(0)),
}
"""Cause (and variant) -> how it is planted."""


@pytest.mark.sampled
@SEEDS
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_cause_is_found_again_and_nothing_else_moves(name: str, seed: int) -> None:
    """The last step's is behind the last kernel, where it launches none: it ends no gap."""
    planted, loop = PLANTS[name], random_loop(seed)
    cause, total = name.split(" ")[0], (STEPS - 1) * planted.ns
    before = causes(unplanted(loop) if planted.instead is nothing else loop.run(planted.instead))
    report = loop.run(planted.plant)
    after = causes(report)
    moved = {key: after[key] - before[key] for key in before if after[key] != before[key]}
    assert 0.95 * total <= moved.pop(cause) <= 1.05 * STEPS * planted.ns
    assert sum(abs(ns) for ns in moved.values()) <= 0.02 * total
    assert after["host-unknown"] <= 0.05 * sum(after[each] for each in vocabulary.HOST_CAUSES)
    if cause == "data-loading":
        steady = sum(step.steady for step in report.steps)
        assert (report.verdict.regime, report.verdict.cause) == ("overhead-bound", cause)
        assert report.advice[0].id == cause
        assert report.advice[0].saves_ns_at_most == pytest.approx(steady * PLANTED_NS, rel=0.05)


@pytest.mark.parametrize("ns", [2_000_000, 50_000_000])
def test_planted_work_from_before_the_recording_is_found_again(ns: int) -> None:
    simulation = Steady()
    thread, first, busy = simulation.thread(), simulation.stream(), simulation.stream(number=20)
    simulation.occupy(busy, ns)
    thread.launch(Kernel(ADD, 3_000), first)
    thread.launch(Kernel(ADD, 5_000), busy)
    thread.synchronize(busy)
    for _ in range(50):
        with thread.op("aten::mm"):
            thread.launch(Kernel(GEMM, 90_000, (432, 1, 1)), busy)
    actual = causes(report_on(simulation.json().encode()))
    assert 0.98 * ns <= actual["earlier-work"] <= ns
    assert actual["unexplained"] == actual["host-unknown"] == 0


def losing(lost: int, *, in_graph: bool) -> Report:
    """Return the report on steps of 21 kernels; the last one, or the graph of five, is not recorded in ``lost`` of them."""
    simulation, gone = Steady(), set()
    thread, stream = simulation.thread(), simulation.stream()
    for number in range(STEPS):
        with thread.step(number):
            for _ in range(20):
                with thread.op("aten::add", before_ns=5_000):
                    thread.launch(Kernel(ADD, 8_000, (432, 1, 1)), stream)
            last = [thread.launch(Kernel(ADD, 500_000), stream)] if not in_graph else None
            last = last or thread.launch_graph([Kernel(ADD, 100_000, (432, 1, 1))] * 5, stream)
            gone |= {work.correlation for work in last if number in range(STEPS - 1 - lost, STEPS - 1)}
            thread.synchronize(stream)
    simulation.records = [
        row
        for row in simulation.records
        if row.category not in ("kernel", "ac2g") or row.args.get("correlation", row.flow_id) not in gone
    ]
    return report_on(simulation.json().encode())


@pytest.mark.sampled
@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize(("lost", "status"), [(1, "ok"), (2, "ok"), (8, "insufficient")])
def test_planted_lost_work_is_a_doubt_or_no_verdict_and_never_the_host_s(
    lost: int, status: str, *, in_graph: bool
) -> None:
    report, whole = losing(lost, in_graph=in_graph), losing(0, in_graph=in_graph)
    verdict, unrecorded = report.verdict, causes(report)["unrecorded-work"]
    assert (whole.verdict.status, causes(whole)["unrecorded-work"]) == ("ok", 0)
    assert unrecorded == pytest.approx(500_000 * lost, rel=0.05)
    assert causes(report).total() - unrecorded <= 1.05 * causes(whole).total()
    assert verdict.status == status
    judged = verdict.parts_ns.get("unrecorded-work", 0) / (sum(verdict.parts_ns.values()) or 1)
    doubt = any("work that the trace lacks" in why for why in verdict.confidence_why)
    assert doubt == (status == "ok" and judged > thresholds.UNRECORDED_RATIO)
    assert verdict.confidence != "high"


@SEEDS
def test_what_nobody_recorded_is_unknown(seed: int) -> None:
    silent = replace(random_loop(seed), frames=False)
    before, after = causes(silent.run()), causes(silent.run(framed("train.py(40): log")))
    assert after["host-unknown"] - before["host-unknown"] >= 0.95 * (STEPS - 1) * PLANTED_NS


def ahead(plant: Plant, seed: int) -> tuple[Report, Counter[str]]:
    """Return the report on a loop in which the CPU runs ahead, and the simulated machine's truth on its idle time."""
    rng = random.Random(seed)
    simulation = Steady(python_frames=True)
    thread, stream = simulation.thread(), simulation.stream()
    machine = Machine(simulation, thread, thread, stream, simulation.stream(number=20))
    layers = rng.randint(5, 10)
    with thread.frame("train.py(3): main", before_ns=10_000):
        for number in range(STEPS):
            with thread.step(number):
                for _ in range(layers):
                    with thread.op("aten::mm", before_ns=rng.randint(8_000, 20_000)):
                        thread.launch(Kernel(GEMM, rng.randint(150_000, 300_000), (432, 1, 1)), stream)
                plant(machine)
                with thread.frame("train.py(40): log", before_ns=rng.randint(200_000, 500_000)):
                    pass
    truth: Counter[str] = Counter()
    for gap in simulation.truth(0):
        truth.update(gap.by_cause_ns)
    return report_on(simulation.json().encode()), truth


@SEEDS
def test_a_planted_synchronization_leaves_the_drain_that_the_machine_shows(seed: int) -> None:
    report, truth = ahead(lambda machine: machine.thread.synchronize(machine.stream), seed)
    assert truth["synchronization"] > 1_000_000
    actual = causes(report)
    assert actual["synchronization"] == pytest.approx(truth["synchronization"], rel=0.05)
    others = {cause: ns - truth[cause] for cause, ns in actual.items() if cause != "synchronization"}
    assert sum(abs(ns) for ns in others.values()) <= 0.05 * truth.total()
    assert report.verdict.cause in ("synchronization", None)
    quiet, _ = ahead(nothing, seed)
    assert causes(quiet)["synchronization"] == 0


@SEEDS
def test_halved_kernels_push_towards_overhead_and_a_bigger_batch_away_from_it(seed: int) -> None:
    """As many launches for a multiple of the work, as with a batch of another size."""
    loop, ratios, regimes = random_loop(seed), [], []
    for by in (0.5, 1, 4, 64):
        verdict = replace(loop, kernel_ns=tuple(round(ns * by) for ns in loop.kernel_ns)).run().verdict
        ratios.append(next((e.value for e in verdict.evidence if e.metric == "overhead_ratio"), 0.0))
        regimes.append(verdict.regime)
    assert ratios == sorted(set(ratios), reverse=True)
    assert regimes[1] == "overhead-bound" != regimes[3]


@SEEDS
@pytest.mark.parametrize("slowed", ["mm", "add"])
def test_slowing_an_operator_moves_blame_to_it(slowed: str, seed: int) -> None:
    def blamed(report: Report) -> Counter[str]:
        rows = report.tables["idle_by"].filter(pl.col("by") == "operator", pl.col("device") == 0).drop_nulls("key")
        return Counter(dict(rows.group_by("key").agg(pl.col("idle_ns").sum()).iter_rows()))

    loop = random_loop(seed)
    slow = {f"{slowed}_ns": tuple(ns + 100_000 for ns in getattr(loop, f"{slowed}_ns"))}
    before, after = blamed(unplanted(loop)), blamed(replace(loop, **slow).run())  # type: ignore[arg-type]
    calls = len(loop.mm_ns) * (2 if loop.backward and slowed == "mm" else 1)
    took = (STEPS * calls - 1) * 100_000
    name = f"aten::{slowed}"
    assert after[name] - before[name] == pytest.approx(took, rel=0.05)
    assert sum(abs(after[key] - before[key]) for key in after | before if key != name) <= 0.02 * took
    assert after.most_common(1)[0][0] == name


@SEEDS
def test_a_broken_step_is_shown_and_kept_out(seed: int) -> None:
    hits = iter(range(STEPS))

    def once(machine: Machine) -> None:
        if next(hits) == 6:
            machine.thread.malloc(50 * PLANTED_NS)

    report = random_loop(seed).run(once)
    (broken,) = (step for step in report.steps if step.state == "outlier")
    assert broken.index == 7, "the hole before its work"
    assert report.verdict.parts_ns["allocation"] == 0
    assert (broken.regime, broken.cause) == ("overhead-bound", "allocation")
