"""Test device work that the trace lacks: waits, launches and steps prove it, and it is neither idle time nor judged."""

import re
from typing import Any

import pytest
from kineto import Event, analysed, annotation, call, flow, kernel, launch, op

from trace_analyzer.explain.agent import agent_text
from trace_analyzer.explain.items import longest_gaps
from trace_analyzer.replay.whatif import whatif
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow


def step(number: int, *, lost: bool, wait: str = "cudaStreamSynchronize") -> list[Event]:
    """Build a step of 1 ms: ten small kernels, then one of 720 us, for whose end the CPU waits."""
    at = 1_000 * number
    events = [annotation(f"ProfilerStep#{number}", at, 999)]
    for i in range(10):
        one = 11 * number + i + 1
        called = launch(at + 25 * i + 2, 3, one)
        small = kernel("void add<float>()", at + 25 * i + 8, 10, correlation=one)
        events += [op("aten::add", at + 25 * i, 20), called, small, *flow(one, called, small)]
    last = 11 * number + 11
    events += [launch(at + 252, 3, last), call(wait, at + 260, 715)]
    return events if lost else [*events, kernel("void add<float>()", at + 255, 720, correlation=last)]


def unrecorded_ns(report: Report) -> int:
    return report.verdict.parts_ns["unrecorded-work"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "wait",
    [
        "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "hipStreamSynchronize",
        "hipDeviceSynchronize", "cuStreamSynchronize",
    ],
)  # fmt: skip
def test_a_wait_that_outlasts_all_recorded_work_proves_work(wait: str) -> None:
    lost = analysed(*(event for number in range(6) for event in step(number, lost=True, wait=wait)))
    assert (lost.verdict.status, lost.verdict.regime, lost.verdict.confidence) == ("insufficient", None, "low")
    assert unrecorded_ns(lost) / sum(lost.verdict.parts_ns.values()) == pytest.approx(0.715, abs=0.01)
    assert "the CPU waited for device work that the trace lacks" in lost.verdict.headline
    assert set(lost.tables["causes"].get_column("cause")) >= {"unrecorded-work"}
    (longest,) = longest_gaps(lost, 1).get_column("gap_id")
    assert lost.explain(f"gap:{longest}").title == "device 0 works unseen: Unrecorded work"
    assert re.search(rf"^gap:{longest}  \S+ [mu]s, Unrecorded work$", agent_text(lost), re.MULTILINE)
    control = analysed(*(event for number in range(6) for event in step(number, lost=False, wait=wait)))
    assert (control.verdict.status, unrecorded_ns(control)) == ("ok", 0)
    refused, estimated = whatif(lost), whatif(control)
    assert "nothing in the trace explains 7" in (refused.reason or "")
    assert estimated.status == "ok"


def test_a_little_of_it_is_a_doubt_and_more_than_the_limit_no_verdict() -> None:
    def report(lost: int) -> Report:
        return analysed(*(event for number in range(12) for event in step(number, lost=number in range(4, 4 + lost))))

    one, many = report(3), report(9)
    assert (one.verdict.status, one.verdict.regime) == ("ok", "memory-bandwidth-bound")
    assert one.verdict.confidence != "high"
    assert any("device work that the trace lacks" in why for why in one.verdict.confidence_why)
    assert many.verdict.status == "insufficient"


@pytest.mark.parametrize(
    "events",
    [
        # it returns as its work ends, within the time that waking up takes
        [launch(0, 3, 1), kernel("k", 5, 500, correlation=1), call("cudaDeviceSynchronize", 10, 690)],
        # work that another thread launches meanwhile
        [launch(0, 3, 1), kernel("k", 5, 10, correlation=1), call("cudaDeviceSynchronize", 20, 980),
         launch(30, 3, 2, tid=7), kernel("k", 40, 900, correlation=2)],
        # work on another device
        [launch(0, 3, 1), kernel("k", 5, 10, correlation=1), launch(4, 3, 2), kernel("k", 10, 980, correlation=2, device=1),
         call("cudaDeviceSynchronize", 20, 980)],
        # not a wait for the device
        [launch(0, 3, 1), kernel("k", 5, 10, correlation=1), call("cudaMalloc", 20, 980)],
    ],
)  # fmt: skip
def test_waits_that_the_record_explains(events: list[Event]) -> None:
    report = analysed(*events, launch(1_100, 3, 9), kernel("k", 1_110, 5, correlation=9))
    assert "unrecorded-work" not in set(report.tables["causes"].get_column("cause"))


def dense(number: int, kernels: int = 10) -> list[Event]:
    """Build a step of 1 ms with ten launches, the first of whose kernels of 93 us are recorded."""
    at = 1_000 * number
    events = [annotation(f"ProfilerStep#{number}", at, 999), call("cudaDeviceSynchronize", at + 105, 890)]
    for i in range(10):
        called, work = launch(at + 10 * i + 2, 3, 10 * number + i + 1), at + 8 + 98 * i
        run = kernel("ampere_sgemm_128x64_tn", work, 93, correlation=10 * number + i + 1)
        recorded = [run, *flow(10 * number + i + 1, called, run)] if i < kernels else []
        events += [op("aten::mm", at + 10 * i, 8), called, *recorded]
    return events


@pytest.mark.sampled
@pytest.mark.parametrize("lost", [[2], [2, 5], [3, 4], [5], [7]])
def test_steps_that_lost_all_kernels_are_set_aside(lost: list[int]) -> None:
    report = analysed(*(event for number in range(8) for event in dense(number, 0 if number in lost else 10)))
    states = dict(report.tables["steps"].select("index", "state").rows())
    assert {index for index, state in states.items() if state == "lost"} == set(lost)
    steady = report.tables["steps"].filter("steady")
    assert (steady.get_column("end_ns") - steady.get_column("start_ns")).max() <= 1_010_000
    assert report.verdict.regime == "compute-bound"
    assert report.verdict.confidence != "high"
    assert report.verdict.parts_ns["compute"] / sum(report.verdict.parts_ns.values()) == pytest.approx(0.93, abs=0.01)


def test_a_step_without_launches_is_empty_and_not_lost() -> None:
    quiet = [annotation("ProfilerStep#3", 3_000, 999), op("aten::empty", 3_010, 50)]
    report = analysed(*(event for number in range(8) for event in (quiet if number == 3 else dense(number))))
    assert dict(report.tables["steps"].select("index", "state").rows())[3] == "empty"


@pytest.mark.parametrize("name", ["cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch"])
def test_graph_launches_without_work_are_missing_activities(name: str) -> None:
    def graphs(**lost: Any) -> list[Event]:
        events: list[Event] = []
        for number in range(8):
            at = 1_000 * number
            events += [
                annotation(f"ProfilerStep#{number}", at, 999),
                call(name, at + 100, 5, correlation=1_000 + number),
            ]
            events += [launch(at + 10 * i, 3, 10 * number + i + 1) for i in range(9)]
            events += [kernel("k", at + 10 * i + 5, 10, correlation=10 * number + i + 1) for i in range(9)]
            if not lost:
                events += [kernel("g", at + 110 + 50 * i, 40, correlation=1_000 + number) for i in range(10)]
        return events

    def missing(report: Report) -> tuple[float | None, str]:
        return next((item.value, item.status) for item in report.trust if item.name == "missing_activities")

    assert missing(analysed(*graphs(lost=True))) == (1.0, "fail")
    assert missing(analysed(*graphs())) == (0.0, "ok")
