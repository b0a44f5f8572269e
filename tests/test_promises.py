"""Test results of BEFORE's advice: complete, partial, none, and without a faster step."""

from collections.abc import Callable
from functools import cache

import pytest
from compare_sides import Program
from msgspec.structs import replace
from simulator import Kernel, Stream, Thread

from trace_analyzer.compare import comparison, decomposition
from trace_analyzer.compare.judgement import KeptPromise
from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow

HOST_BOUND = Program(mm_ns=4_000, norm_ns=4_000, add_ns=4_000, host_ns=60_000)
LOADING = HOST_BOUND.faster(loading_ns=3_000_000)


Seam = Callable[[Thread, Stream], None]


def collect(thread: Thread, _: Stream) -> None:
    with thread.frame("<built-in function collect>"):
        thread.spend(2_000_000)


def allocate(thread: Thread, _: Stream) -> None:
    with thread.op("aten::empty"):
        thread.malloc(1_500_000)


def copy(thread: Thread, stream: Stream) -> None:
    for _ in range(4):
        with thread.op("aten::copy_"):
            thread.memcpy("HtoD", 8_000_000, stream, pageable=True)


@cache
def report(program: Program) -> Report:
    return analyze(program.trace())


def compared(before: Program, after: Program) -> comparison.Comparison:
    return decomposition.compare(report(before), report(after))


def loading_kept(after: Program) -> tuple[comparison.Comparison, KeptPromise]:
    """Return the comparison with the program that loads data for 3 ms, and what came of the advice on that."""
    result = compared(LOADING, after)
    (kept,) = (item for item in result.promises if item.id == "data-loading")
    return result, kept


def test_a_promise_that_is_kept() -> None:
    result, kept = loading_kept(HOST_BOUND)
    assert (kept.evidence, kept.bound_held) == ("advice gone", True)
    assert kept.came_ns == pytest.approx(3e6, rel=0.1)
    assert "still advises it" not in result.summary(400)


@pytest.mark.parametrize("left_ns", [1_500_000, 2_400_000])
def test_a_part_of_a_promise(left_ns: int) -> None:
    result, kept = loading_kept(LOADING.faster(loading_ns=left_ns))
    assert kept.came_ns == pytest.approx(3e6 - left_ns, rel=0.1)
    assert kept.promised_ns_at_most > kept.came_ns
    assert kept.bound_held
    assert (kept.predicted_ns, kept.prediction_held) == (None, None)
    assert "came, within the bound, and AFTER's report still advises it" in result.summary(400)


@pytest.mark.parametrize(
    ("came", "held", "text"),
    [(0.9, True, "came, within the bound;"), (1.1, False, "came, more than the bound;"),
     (1.1, True, "came, more than the bound in its own lines, not in the whole;")],
)  # fmt: skip
def test_a_bound_is_said_to_hold_only_where_no_more_came(came: float, held: bool, text: str) -> None:
    result, kept = loading_kept(HOST_BOUND)
    changed = replace(kept, came_ns=came * kept.promised_ns_at_most, bound_held=held)
    assert text in replace(result, promises=(changed,)).summary(400)


@pytest.mark.sampled
@pytest.mark.parametrize("left_ns", [2_950_000, 3_000_000, 3_500_000])
def test_a_promise_of_which_nothing_came(left_ns: int) -> None:
    assert not compared(LOADING, LOADING.faster(loading_ns=left_ns, seed=1)).promises


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "seam"), [("garbage-collection", collect), ("allocator", allocate), ("copies", copy)])
def test_other_promises(name: str, seam: Seam) -> None:
    base = Program(mm_ns=100_000, norm_ns=40_000, add_ns=40_000, host_ns=10_000)
    before = base.faster(extra=seam)
    kept = {item.id: item for item in compared(before, base).promises}
    assert all(item.came_ns < 0.05 * kept[name].came_ns for item in kept.values() if item.id != name)
    assert kept[name].evidence == "advice gone"
    assert kept[name].came_ns == pytest.approx(kept[name].step_ns, rel=0.1)
    assert not compared(before, before.faster(seed=1)).promises


def test_launches_that_are_faster_are_no_part_of_a_graph() -> None:
    """Faster host code takes time off the causes that graphs aim at: nothing shows that graphs did."""
    assert "cuda-graphs" in {item.id for item in report(HOST_BOUND).advice}
    assert not compared(HOST_BOUND, HOST_BOUND.faster(host_ns=45_000)).promises


def test_a_graph_keeps_its_promise_where_a_capture_names_its_kernels() -> None:
    graphed = analyze(HOST_BOUND.faster(graphed=True).trace(), capture=HOST_BOUND.trace())
    result = decomposition.compare(report(HOST_BOUND), graphed)
    kept = {item.id: item for item in result.promises}["cuda-graphs"]
    assert kept.bound_held
    assert kept.came_ns > 0


def test_the_line_fell_and_the_step_did_not() -> None:
    """Check that, if what loading took the host now takes elsewhere, the line's time came and the step's did not."""
    result, kept = loading_kept(HOST_BOUND.faster(extra=lambda thread, _: thread.spend(3_000_000)))
    assert kept.came_ns == pytest.approx(3e6, rel=0.1)
    assert abs(kept.step_ns) < 0.1 * kept.came_ns
    assert kept.prediction_held is False
    assert "did not hold" in result.summary(400)
    result, kept = loading_kept(HOST_BOUND.faster(add_ns=400_000))
    assert kept.came_ns > 1.1 * kept.step_ns
    assert "as other lines take +" in result.summary(400)


def products(waits: bool) -> Seam:
    """Make 20 launches; if ``waits``, the CPU waits for each, so that the next launch finds an empty queue."""

    def launch(thread: Thread, stream: Stream) -> None:
        for _ in range(20):
            with thread.op("aten::sin", before_ns=50_000):
                thread.launch(Kernel("sin_kernel", 20_000, (432, 1, 1)), stream)
            if waits:
                thread.synchronize(stream)

    return launch


def test_a_wait_that_is_gone_is_credited_with_the_launches_that_it_made_late() -> None:
    """Most of what a wait costs lies in the launches after it; as many of them are made, so no graph came."""
    base = Program(mm_ns=400_000, host_ns=60_000)
    result = compared(base.faster(extra=products(True)), base.faster(extra=products(False)))
    (kept,) = result.promises
    assert kept.id == "synchronization"
    assert kept.came_ns == pytest.approx(kept.step_ns, rel=0.05)
    assert kept.late_launches_ns > kept.came_ns / 2
    assert kept.bound_held
    assert "in launches that waits had made late" in result.summary(400)


def test_waits_that_stay_take_no_credit_for_launches() -> None:
    waiting = Program(mm_ns=400_000, host_ns=60_000, extra=products(True))
    assert not compared(waiting, waiting.faster(host_ns=20_000)).promises
