"""Causes that are planted in simulated loops are found again, and nothing else moves; what changes a verdict."""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext

import polars as pl
import pytest
from simulator import Kernel, Simulation, Stream, Thread

from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report

STEPS, LAYERS = 12, 8
PLANTED_NS = 900_000
GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>(int)"

Plant = Callable[[Thread, Stream], None]


class Steady(Simulation):
    """A machine without scatter: two runs differ by what is planted, and by nothing else."""

    def jittered(self, ns: int) -> int:
        """The cost as it is."""
        return ns


def nothing(thread: Thread, stream: Stream) -> None:
    """Plant nothing."""


def loop(
    plant: Plant = nothing, *, kernel_ns: int = 5_000, mm_ns: int = 12_000, add_ns: int = 10_000, frames: bool = True
) -> Report:
    """Steps of some layers, each a product and an addition; ``plant`` happens at the seam of each step."""
    simulation = Steady(python_frames=frames)
    thread, stream = simulation.thread(), simulation.stream()
    for number in range(STEPS):
        with thread.step(number), thread.frame("train.py(12): step"):
            for _ in range(LAYERS):
                with thread.op("aten::mm", before_ns=mm_ns):
                    thread.launch(Kernel(GEMM, kernel_ns, (432, 1, 1)), stream)
                with thread.op("aten::add", before_ns=add_ns):
                    thread.launch(Kernel(ADD, kernel_ns, (432, 1, 1)), stream)
            plant(thread, stream)
    return analyze(simulation.json().encode())


def causes(report: Report) -> Counter[str]:
    return Counter(report.devices[0].gaps.by_cause_ns)


def annotated(name: str) -> Plant:
    def plant(thread: Thread, stream: Stream) -> None:
        with thread.annotation(name):
            thread.spend(PLANTED_NS)

    return plant


def framed(name: str) -> Plant:
    def plant(thread: Thread, stream: Stream) -> None:
        with thread.frame(name, before_ns=0, after_ns=0):
            thread.spend(PLANTED_NS)

    return plant


def operating(ns: int, times: int) -> Plant:
    def plant(thread: Thread, stream: Stream) -> None:
        for _ in range(times):
            with thread.op("aten::sort", before_ns=ns, after_ns=0):
                pass

    return plant


PLANTS: dict[str, Plant] = {
    "data-loading": annotated("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
    "compilation": framed("torch/_dynamo/convert_frame.py(1180): _compile"),
    "allocation": lambda thread, stream: thread.malloc(PLANTED_NS),
    "garbage-collection": annotated("Python GC"),
    "python": framed("train.py(40): log"),
    "dispatch": operating(PLANTED_NS // 3, 3),
    "cpu-operator": operating(5 * PLANTED_NS, 1),
}


@pytest.mark.parametrize("cause", PLANTS)
def test_a_planted_cause_is_found_again_and_nothing_else_moves(cause: str) -> None:
    """The last step's is behind the last kernel: it ends no gap."""
    planted = (STEPS - 1) * PLANTED_NS * (5 if cause == "cpu-operator" else 1)
    before, after = causes(loop()), causes(loop(PLANTS[cause]))
    moved = {name: after[name] - before[name] for name in before if after[name] != before[name]}
    assert moved.pop(cause) >= 0.95 * planted
    assert sum(abs(ns) for ns in moved.values()) <= 0.02 * planted


def test_what_nobody_recorded_is_unknown() -> None:
    before, after = causes(loop(frames=False)), causes(loop(framed("train.py(40): log"), frames=False))
    planted = (STEPS - 1) * PLANTED_NS
    assert after["host-unknown"] - before["host-unknown"] >= 0.95 * planted


def ahead(plant: Plant, *, wait_stream: bool = False) -> tuple[Report, Counter[str]]:
    """A loop in which the CPU runs ahead, and the truth of the simulated machine about its idle time."""
    simulation = Steady(python_frames=True)
    thread, stream, side = simulation.thread(), simulation.stream(), simulation.stream(number=20)
    for number in range(STEPS):
        with thread.step(number):
            for _ in range(LAYERS):
                with thread.op("aten::mm", before_ns=12_000):
                    thread.launch(Kernel(GEMM, 200_000, (432, 1, 1)), stream)
            plant(thread, side if wait_stream else stream)
            with thread.frame("train.py(40): log", before_ns=300_000) if not wait_stream else nullcontext():
                pass
    truth: Counter[str] = Counter()
    for gap in simulation.truth(0):
        truth.update(gap.by_cause_ns)
    return analyze(simulation.json().encode()), truth


def test_a_planted_synchronization_leaves_the_drain_that_the_machine_shows() -> None:
    report, truth = ahead(lambda thread, stream: thread.synchronize(stream))
    assert truth["synchronization"] > 1_000_000
    assert causes(report)["synchronization"] == pytest.approx(truth["synchronization"], rel=0.05)
    assert report.verdict.cause in ("synchronization", None)
    quiet, _ = ahead(nothing)
    assert causes(quiet)["synchronization"] == 0


# What moves a verdict


def ratio(report: Report, regime: str) -> float:
    value = next((e.value for e in report.verdict.evidence if e.metric == f"{regime}_ratio"), 0.0)
    assert isinstance(value, float)
    return value


def test_shorter_kernels_push_towards_overhead_and_a_bigger_batch_away_from_it() -> None:
    shares = [ratio(loop(kernel_ns=ns), "overhead") for ns in (2_500, 5_000, 10_000, 20_000, 40_000, 160_000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[1] > shares[2] > shares[3]
    assert loop(kernel_ns=5_000).verdict.regime == "overhead-bound"
    assert loop(kernel_ns=160_000).verdict.regime != "overhead-bound"


def test_slowing_an_operator_moves_blame_to_it() -> None:
    def blamed(report: Report) -> dict[str, int]:
        rows = (
            report.tables["blame"].group_by("operator").agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
        )
        return dict(rows.drop_nulls("operator").iter_rows())

    before, after = blamed(loop()), blamed(loop(add_ns=30_000))
    slowed = (STEPS * LAYERS - 1) * 20_000
    assert after["aten::add"] - before["aten::add"] == pytest.approx(slowed, rel=0.05)
    assert abs(after["aten::mm"] - before["aten::mm"]) <= 0.02 * slowed
    assert max(after, key=lambda name: after[name]) == "aten::add"


def test_the_advice_names_what_was_planted() -> None:
    report = loop(PLANTS["data-loading"])
    assert (report.verdict.regime, report.verdict.cause) == ("overhead-bound", "data-loading")
    assert report.advice[0].id == "data-loading"
    assert report.advice[0].saves_ns_at_most == pytest.approx(sum(
        step.idle_ns for step in report.steps if step.steady
    ), rel=0.5)  # fmt: skip


def test_a_broken_step_is_shown_and_kept_out() -> None:
    """One step of twelve takes ten times as long: it is named, and the steady figures do not know it."""
    hits = iter(range(STEPS))

    def once(thread: Thread, stream: Stream) -> None:
        if next(hits) == 6:
            thread.malloc(50 * PLANTED_NS)

    report = loop(once)
    assert [step.index for step in report.steps if step.state == "outlier"] == [7], "the hole before its work"
    assert report.verdict.parts_ns["allocation"] == 0
    broken = next(step for step in report.steps if step.state == "outlier")
    assert (broken.regime, broken.cause) == ("overhead-bound", "allocation")
