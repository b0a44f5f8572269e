"""Graph capture: idle time while launches are recorded into a graph, worked out by hand (microseconds)."""

from typing import Any

import pytest
from kineto import PROCESS, Event, analysed, annotation, call, idle_parts, kernel, launch, launched, op, python

from trace_analyzer.report import Report

# Kernel a runs in [10, 20), kernel b from 90 on, whose launch is [80, 85): [20, 80) is host time.
A, B = launched("a", 0, 10, 10, 1), launched("b", 80, 90, 10, 2)
LATENCY = (80, 90, "launch-latency")


def begin(at: int, **where: Any) -> Event:
    return call("cudaStreamBeginCapture", at, 2, **where)


def end(at: int, **where: Any) -> Event:
    return call("cudaStreamEndCapture", at, 2, **where)


def host_time(*events: Any) -> list[tuple[Any, ...]]:
    causes = idle_parts(analysed(A, B, *events))
    assert causes[-1] == LATENCY
    return causes[:-1]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([begin(30), end(60)], [(20, 30, "host-unknown"), (30, 62, "graph-capture"), (62, 80, "host-unknown")]),
        ([begin(30), op("aten::mm", 35, 10), launch(38, 2, 50), end(60)],
         [(20, 30, "host-unknown"), (30, 62, "graph-capture"), (62, 80, "host-unknown")]),
        # HIP, the driver's names, and a capture into a graph that exists.
        ([call("hipStreamBeginCapture", 30, 2), call("hipStreamEndCapture", 60, 2)],
         [(20, 30, "host-unknown"), (30, 62, "graph-capture"), (62, 80, "host-unknown")]),
        ([call("cuStreamBeginCapture_v2", 30, 2, category="cuda_driver"), call("cuStreamEndCapture", 60, 2, category="cuda_driver")],
         [(20, 30, "host-unknown"), (30, 62, "graph-capture"), (62, 80, "host-unknown")]),
        # Two streams in capture at once: until the last end.
        ([begin(25), begin(30), end(40), end(60)], [(20, 25, "host-unknown"), (25, 62, "graph-capture"), (62, 80, "host-unknown")]),
        # Another thread of the process captures, or launches into the capture.
        ([begin(30, tid=7), end(60, tid=7)], [(20, 30, "host-unknown"), (30, 62, "graph-capture"), (62, 80, "host-unknown")]),
        # The capture had begun before the recording.
        ([end(60), call("cudaGetDevice", 22, 1)], [(20, 62, "graph-capture"), (62, 80, "host-unknown")]),
        # The recording ends within it, or its end was not recorded: launches of the thread on a device are not part of
        # it.
        ([begin(30)], [(20, 30, "host-unknown"), (30, 80, "graph-capture")]),
        # Loading code and data comes before it, memory for it does not.
        ([begin(30), call("cuModuleLoadData", 40, 10, category="cuda_driver"), call("cudaMalloc", 52, 6), end(60)],
         [(20, 30, "host-unknown"), (30, 40, "graph-capture"), (40, 50, "compilation"), (50, 62, "graph-capture"), (62, 80, "host-unknown")]),
        # What PyTorch and serving frameworks call it.
        ([python("torch/_inductor/cudagraph_trees.py(1210): _record", 30, 30)],
         [(20, 30, "host-unknown"), (30, 60, "graph-capture"), (60, 80, "host-unknown")]),
        ([python("vllm/v1/worker/gpu_model_runner.py(2700): capture_model", 30, 30), op("aten::mm", 35, 10)],
         [(20, 30, "host-unknown"), (30, 60, "graph-capture"), (60, 80, "host-unknown")]),
        # Instantiating a graph belongs to capturing it.
        ([call("cudaGraphInstantiate", 30, 20)], [(20, 30, "host-unknown"), (30, 50, "graph-capture"), (50, 80, "host-unknown")]),
        # Another process's capture is separate.
        ([begin(30, pid=9, tid=9), end(60, pid=9, tid=9), launch(300, 1, 70, pid=9, tid=9)], [(20, 80, "host-unknown")]),
    ],
)  # fmt: skip
def test_host_time_in_a_capture(events: list[Event], expected: list[tuple[Any, ...]]) -> None:
    assert host_time(*events) == expected


def captured(kernels: int = 40) -> Report:
    """Analyse graph captures of 9 of 10 ms between two replays; captured launches have no activity."""
    eager = [[op("aten::mm", 100 * n, 60), launched("ampere_sgemm_128x64_tn", 100 * n + 20, 100 * n + 30, 60, n + 1)] for n in range(10)]  # fmt: skip
    inside = [[op("aten::mm", 1_100 + 200 * n, 150), launch(1_110 + 200 * n, 5, 500 + n)] for n in range(kernels)]
    replay = [call("cudaGraphLaunch", 9_800, 20, correlation=900), *(
        kernel("ampere_sgemm_128x64_tn", 9_830 + 30 * n, 25, correlation=900) for n in range(10))]  # fmt: skip
    return analysed(eager, begin(1_050), inside, end(9_500), replay)


def test_a_capture_is_one_time_work_and_its_launches_launch_nothing() -> None:
    report = captured()
    assert (report.verdict.regime, report.verdict.cause) == ("overhead-bound", "graph-capture")
    assert report.verdict.parts_ns["graph-capture"] == 9_502_000 - 1_050_000
    assert report.advice[0].id == "graph-capture"
    assert report.advice[0].saves_ns_at_most == 9_502_000 - 1_050_000
    (missing,) = (check for check in report.trust if check.name == "missing_activities")
    assert (missing.value, missing.status) == (0.0, "ok")
    assert report.tables["launches"].height == 11


def test_a_trace_of_a_capture_alone_has_no_missing_timeline() -> None:
    inside = [launch(40 + 5 * n, 2, 10 + n) for n in range(3)]
    assert analysed(begin(30), inside, end(60), op("aten::mm", 0, 20)).verdict.status == "no-gpu-activity"
    assert analysed(begin(30), inside, end(60), launch(80, 2, 90)).verdict.status == "gpu-timeline-missing"
    record = python("torch/_inductor/cudagraph_trees.py(1210): _record", 30, 30)
    assert analysed(record, inside).verdict.status == "no-gpu-activity", "its calls were not recorded"


def test_a_capture_within_steps_is_reported_of_its_step() -> None:
    steps = [[annotation(f"ProfilerStep#{n}", 1_000 * n, 900), launched("k", 1_000 * n + 800, 1_000 * n + 810, 60, n + 1)] for n in range(4)]  # fmt: skip
    report = analysed(steps, begin(2_000, tid=PROCESS), end(2_700))
    assert [step.cause for step in report.steps[1:]] == ["launch", "graph-capture", "launch"]
