"""Test gaps that work from before the recording explains, worked out by hand (microseconds)."""

from typing import Any

import pytest
from kineto import analysed, call, copy, idle_parts, kernel, launch, op

from trace_analyzer.report import Report

GEMM = "ampere_sgemm_128x64_tn"
NAME = "resolve<long>"
SINCE = 105 + 15
"""From here on, the launch's latency has passed: the other launches take 15 us from their end to the kernel's start."""


def held(
    *more: Any, until: int = 9_000, stream: int = 20, launched: int = 100, blocked: tuple[int, int] = (120, 8_990),
    name: str = "cudaMemcpyAsync", before: int = 3,
) -> Report:  # fmt: skip
    """Analyse a kernel on stream 7, one launched at ``launched`` that starts ``until`` as the CPU waits, then work."""
    start, end = blocked
    work = [[launch(until + 100 * n, 5, 50 + n), kernel(GEMM, until + 100 * n + 20, 80, correlation=50 + n, stream=20)] for n in range(1, 90)]  # fmt: skip
    return analysed(
        [launch(0, 5, 1), kernel("arange", 10, before, correlation=1)],
        [launch(launched, 5, 2), kernel(NAME, until, 7, correlation=2, stream=stream)],
        [op("aten::to", start - 5, end - start + 10), call(name, start, end - start, correlation=3)],
        [copy("DtoH (Device -> Pageable)", until + 8, 4, correlation=3, stream=stream)] if "Memcpy" in name else [],
        work,
        *more,
    )


def causes(report: Report) -> set[str]:
    return {cause for _, _, cause in idle_parts(report)}


def test_what_waits_behind_work_that_was_launched_before() -> None:
    report = held()
    assert (SINCE, 9_000, "earlier-work") in idle_parts(report)
    assert "unexplained" not in causes(report)
    (row,) = report.tables["idle"].filter(cause="earlier-work").to_dicts()
    assert report.tables["host_events"].filter(event_id=row["event_id"]).get_column("name").to_list() == ["cudaMemcpyAsync"]  # fmt: skip


def test_it_is_in_no_group_and_reported() -> None:
    report = held()
    assert report.verdict.regime == "compute-bound"
    assert "49 % is work from before the recording" in report.verdict.headline
    assert report.verdict.confidence != "high"
    assert report.verdict.runner_up is None
    (note,) = (note for note in report.notes if note.code == "earlier-work")
    assert all(part in note.message for part in (NAME, "cudaLaunchKernel", "cudaMemcpyAsync", "8.90 ms"))
    (item,) = (item for item in report.advice if item.id == "earlier-work")
    assert report.advice[0].id not in ("earlier-work", "less-work"), "last resorts come last"
    assert NAME in item.where
    assert "cudaMemcpyAsync" in item.where


def test_the_mfu_is_an_interval_as_earlier_work_may_be_products() -> None:
    """Products of known work after 8.9 ms of work from before the recording, of which nothing is known."""
    dims = {"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]}
    device = held([op("aten::mm", 9_000 + 100 * n - 1, 20, **dims) for n in range(1, 90)]).devices[0]
    assert device.mfu is not None
    assert device.mfu_at_most is not None
    earlier = device.partition_ns["earlier-work"] / device.window_ns
    assert device.mfu_at_most - device.mfu == pytest.approx(earlier, rel=1e-6)
    assert earlier > 0.4


@pytest.mark.sampled
@pytest.mark.parametrize(
    "call_name", ["cudaDeviceSynchronize", "hipMemcpyWithStream", "cudaMemcpy", "cudaEventSynchronize", "cudaStreamSynchronize"]
)  # fmt: skip
def test_any_call_that_waits_for_the_device_will_do(call_name: str) -> None:
    assert "earlier-work" in causes(held(name=call_name))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("changed", "is_earlier"),
    [
        ({"stream": 7}, True),  # hardly any work before, on any stream
        ({"stream": 7, "before": 85}, True),
        ({"stream": 7, "before": 95}, False),  # a hundredth of the gap, and the stream had worked
        ({"stream": 20, "before": 95}, True),  # the first of its stream
        ({"launched": 900}, True),
        ({"launched": 1_100}, False),  # beyond the first tenth of the gap
        ({"blocked": (120, 7_000)}, False),  # the CPU continued, and did not launch
        ({"until": 1_000, "blocked": (120, 990)}, False),  # under a millisecond
        ({"name": "cudaMalloc"}, False),  # it waits for the driver
    ],
)
def test_all_three_facts_are_needed(changed: dict[str, Any], is_earlier: bool) -> None:
    assert ("earlier-work" in causes(held(**changed))) is is_earlier


def test_a_long_time_of_work_before_the_gap_shows_that_the_recording_had_begun() -> None:
    assert "earlier-work" not in causes(held(before=1_000, launched=1_005, blocked=(1_015, 8_990)))


def test_event_waits_and_collectives_explain_nothing_at_the_beginning() -> None:
    waits = [call("cudaEventRecord", 20, 2), call("cudaStreamWaitEvent", 25, 2)]
    nccl = [launch(20_000, 2, 900), kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20_010, 5, correlation=900, stream=30)]  # fmt: skip
    assert "earlier-work" in causes(held(waits, nccl))


@pytest.mark.sampled
@pytest.mark.parametrize(("until", "size", "expected"), [(30_000, 8, "earlier-work"), (30_000, 40_000_000, "blocking-copy"), (9_000, 8, "blocking-copy")])  # fmt: skip
def test_a_copy_that_waits_itself(until: int, size: int, expected: str) -> None:
    """Check that a blocking copy that itself waits for the device is distinguished from one that stages its bytes.

    It is launched by the call that blocks: longer than staging its bytes takes, it waited for the device.
    """
    report = analysed(
        [launch(0, 5, 1), kernel("arange", 10, 3, correlation=1)],
        [call("cudaMemcpyAsync", 100, until - 90, correlation=2), copy("DtoH (Device -> Pageable)", until, 4, correlation=2, bytes=size)],
        [[launch(until + 100 * n, 5, 50 + n), kernel(GEMM, until + 100 * n + 20, 80, correlation=50 + n)] for n in range(1, 20)],
    )  # fmt: skip
    assert (100, until, expected) in idle_parts(report)
