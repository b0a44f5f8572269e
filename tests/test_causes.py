"""Test causes of idle time: each rule and each cause, with answers worked out by hand (microseconds)."""

import os
import re
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from commands import run_python
from kineto import (
    PROCESS,
    Event,
    analysed,
    annotation,
    call,
    copy,
    event,
    idle_parts,
    kernel,
    launch,
    launched,
    loaded,
    memset,
    notes,
    op,
    overhead,
    python,
    rows,
    sync,
)
from program_laws import check_regime

from trace_analyzer import files
from trace_analyzer.analyses.earlier_work import recording_pauses
from trace_analyzer.catalog.event_names import BLOCKING, host_work
from trace_analyzer.files import ABANDONED_S, remove_abandoned, temporary_folder, write_text
from trace_analyzer.report import Report, summaries
from trace_analyzer.vocabulary import IDLE_CAUSES, NAMED_WORK, WITHHELD

# Kernel a runs in [10, 20), kernel b from 90 on. b's launch is [80, 85), so [20, 80) is host time, and as this trace's
# only launch on an empty queue took 5 us from its end to the kernel's start, [80, 90) is launch latency.
A, B = launched("a", 0, 10, 10, 1), launched("b", 80, 90, 10, 2)


def idle(*events: Any) -> str:
    """Write the idle time of these events as instants with the cause between: "20 python 30 dispatch 80"."""
    words: list[str] = []
    for start, end, cause in idle_parts(analysed(*events)):
        words += ([] if words[-1:] == [f"{start:.10g}"] else [f"{start:.10g}"]) + [cause, f"{end:.10g}"]
    return " ".join(words)


def host_time(*events: Any) -> str:
    """Write what [20, 80) is about when these events happen; other idle time is launch latency until 90."""
    actual = idle(A, B, *events)
    assert actual.endswith(" 80 launch-latency 90")
    return actual.removesuffix(" launch-latency 90")


COMPILES = "torch/_dynamo/convert_frame.py(1200): _compile"
LOADS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


# Rule 3: host time by named work, then by the innermost event


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], "20 host-unknown 80"),
        ([python("train.py(1): f", 0, 99)], "20 python 80"),
        ([op("aten::mm", 30, 20)], "20 host-unknown 30 dispatch 50 host-unknown 80"),
        ([call("cudaGetDevice", 30, 20)], "20 host-unknown 30 runtime-call 50 host-unknown 80"),
        ([python("f", 0, 99), op("aten::mm", 30, 20), call("cudaGetDevice", 35, 10)],
         "20 python 30 dispatch 35 runtime-call 45 dispatch 50 python 80"),
        # A call that begins and ends with its operator is inside it, whichever comes first in the file.
        ([op("aten::mm", 30, 20), call("cudaGetDevice", 30, 20)], "20 host-unknown 30 runtime-call 50 host-unknown 80"),
        ([call("cudaGetDevice", 30, 20), op("aten::mm", 30, 20)], "20 host-unknown 30 runtime-call 50 host-unknown 80"),
        ([op("aten::mm", 20, 60), python("f", 20, 60)], "20 dispatch 80"),
        ([op("aten::mm", 25, 55), annotation("forward", 30, 20)], "20 host-unknown 25 dispatch 80"),
        ([annotation("ProfilerStep#1", 0, 99)], "20 host-unknown 80"),
        ([event("odd_category", "x", 0, 99, pid=100, tid=100)], "20 host-unknown 80"),
        ([call("cuModuleLoadData", 20, 60, category="cuda_driver")], "20 compilation 80"),
        ([overhead("Lazy Function Loading", 20, 60)], "20 compilation 80"),
        ([overhead("Buffer Flush", 30, 50)], "20 host-unknown 30 profiler 80"),
        ([op("aten::mm", 20, 60), overhead("Buffer Flush", 30, 50)], "20 dispatch 30 profiler 80"),
        # Named work counts through everything nested in it.
        ([annotation(LOADS, 30, 50), op("aten::mm", 40, 20), call("cudaGetDevice", 45, 5)], "20 host-unknown 30 data-loading 80"),
    ],
)  # fmt: skip
def test_host_time_is_about(events: list[Event], expected: str) -> None:
    assert host_time(*events) == expected


RANKED = {
    "data-loading": annotation(LOADS, 20, 60),
    "compilation": python(COMPILES, 20, 60),
    "allocation": call("cudaMalloc", 20, 60),
    "garbage-collection": annotation("Python GC", 20, 60),
    "profiler": overhead("Buffer Flush", 20, 60),
    "dispatch": op("aten::mm", 20, 60),
}


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), list(pairwise(RANKED)))
def test_named_work_has_an_order(first: str, second: str) -> None:
    one, other = RANKED[first], RANKED[second]
    assert host_time(one, other) == host_time(other, one) == f"20 {first} 80"


def test_an_operator_that_is_busy_by_itself_computes_on_the_cpu() -> None:
    late = launched("b", 3_000, 3_010, 10, 2)
    work = [python("f", 0, 3_000), op("aten::sort", 100, 1_100), op("aten::mm", 1_300, 1_000)]
    after = "1200 python 1300 dispatch 2300 python 3000 launch-latency 3010"
    assert idle(A, late, work) == f"20 python 100 cpu-operator {after}"
    assert (
        idle(A, late, work, call("cudaGetDevice", 600, 1))
        == f"20 python 100 dispatch 600 runtime-call 601 dispatch {after}"
    )


# Rule 3: blocking calls


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # It waited 10 us for kernel a.
        ([call("cudaDeviceSynchronize", 6, 34)], "20 synchronization 30 runtime-call 40 host-unknown 80"),
        # The CPU comes back late because of this call, even after its return.
        ([call("cudaStreamSynchronize", 6, 15)], "20 synchronization 30 host-unknown 80"),
        # It began when kernel a had 3 us left.
        ([call("cudaEventSynchronize", 17, 13)], "20 synchronization 23 runtime-call 30 host-unknown 80"),
        # Not in progress when the gap began.
        ([call("cudaDeviceSynchronize", 6, 14)], "20 host-unknown 80"),
        ([call("cudaDeviceSynchronize", 20, 30)], "20 runtime-call 50 host-unknown 80"),
        # Of two threads, the one that had waited longer counts.
        ([call("cudaDeviceSynchronize", 17, 4), call("cudaDeviceSynchronize", 15, 6, tid=7)], "20 synchronization 25 host-unknown 80"),
        # The outer of two calls on one thread is still in progress.
        ([call("hipDeviceSynchronize", 12, 10), call("hipStreamSynchronize", 13, 2)], "20 synchronization 28 host-unknown 80"),
        # It has precedence over named work.
        ([call("cudaDeviceSynchronize", 6, 15), annotation(LOADS, 21, 59)], "20 synchronization 30 data-loading 80"),
        # Another process's call is not to blame.
        ([call("cudaDeviceSynchronize", 6, 34, pid=9, tid=9), launch(300, 1, 50, pid=9, tid=9)], "20 host-unknown 80"),
        # An event query does not block.
        ([call("cudaEventQuery", 6, 34)], "20 runtime-call 40 host-unknown 80"),
    ],
)  # fmt: skip
def test_a_blocking_call_is_to_blame_for_as_long_as_it_waited(events: list[Event], expected: str) -> None:
    assert host_time(*events) == expected


def test_a_copy_call_that_outlasts_its_copy_blocks() -> None:
    """Check a call [30, 60) with its copy [40, 45): it waits 5 us for the device, then 10 us more for itself."""

    def copying(us: int, memory: str) -> str:
        return idle(
            A,
            B,
            call("cudaMemcpyAsync", 30, us, correlation=3),
            copy(f"HtoD ({memory} -> Device)", 40, 5, correlation=3),
        )

    assert copying(30, "Pageable") == (
        "20 host-unknown 30 blocking-copy 40 45 synchronization 50 blocking-copy 60 host-unknown 80 launch-latency 90"
    )
    assert "blocking-copy" not in copying(15, "Pageable"), "it ends with its copy"
    assert "blocking-copy" not in copying(8, "Pinned")


# Rule 3: which thread's work counts


def test_where_the_launching_thread_is_silent_the_previous_launcher_speaks() -> None:
    work = [A, launch(80, 5, 2, tid=200), kernel("b", 90, 10, correlation=2), op("aten::mm", 25, 45)]
    after = "70 host-unknown 80 launch-latency 90"
    assert idle(work) == f"20 host-unknown 25 dispatch {after}"
    assert idle(work, python("f", 30, 10, tid=200)) == f"20 host-unknown 25 dispatch 30 python 40 dispatch {after}"


@pytest.mark.slow
def test_then_the_main_thread_speaks() -> None:
    work = [
        *(launch(0, 5, 1, tid=300), kernel("a", 10, 10, correlation=1)),
        *(launch(80, 5, 2, tid=200), kernel("b", 90, 10, correlation=2), op("aten::mm", 25, 45)),
    ]
    after = "70 host-unknown 80 launch-latency 90"
    assert idle(work) == idle(work, op("aten::add", 20, 60, tid=400)) == f"20 host-unknown 25 dispatch {after}"
    assert idle(work, call("cudaGetDevice", 30, 10, tid=300)) == (
        f"20 host-unknown 25 dispatch 30 runtime-call 40 dispatch {after}"
    )


@pytest.mark.parametrize(("thread", "cause"), [(200, "host-wait"), (100, "host-unknown")])
def test_a_wait_for_others_is_the_launching_threads_own(thread: int, cause: str) -> None:
    """Check that a wait of 100 us or more is a cause only on the launching thread, as others may wait for this one."""
    late = [launch(3_000, 5, 2, tid=200), kernel("b", 3_010, 10, correlation=2)]
    frames = [
        ("f", 0, 3_000),
        ("queue.py(154): get", 100, 1_000),
        ("threading.py(299): wait", 150, 900),
        ("queue.py(154): get", 1_300, 99),
    ]
    assert idle(A, late, [python(*frame, tid=thread) for frame in frames]) == (
        f"20 python 100 {cause} 1100 python 3000 launch-latency 3010"
    )


# Rule 2: queued work


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (40, "20 host-unknown 35 runtime-call 40 unexplained 90"),
        (71, "20 host-unknown 66 runtime-call 71 device-gap 90"),
        (70, "20 host-unknown 65 runtime-call 70 unexplained 90"),  # 20 us are not short any more
        (15, "20 unexplained 90"),  # queued before the gap
    ],
)
def test_while_other_work_is_queued_the_cpu_is_not_to_blame(start: int, expected: str) -> None:
    queued = [launch(start - 5, 5, 3), kernel("c", 200, 5, correlation=3, stream=9)]
    assert idle(A, B, queued).startswith(expected + " ")


def test_unlinked_work_is_not_known_to_be_queued() -> None:
    assert idle(A, B, kernel("c", 200, 5, stream=9)).startswith("20 host-unknown 80 launch-latency 90 ")


# Rule 4: the launch call


def test_a_call_out_of_all_proportion_loads_code() -> None:
    usual = [launched("a", 100 * n, 100 * n + 10, 95, n + 1) for n in range(8)]
    slow = launched("b", 1_000, 2_500, 5, 9, takes=1_400)
    assert idle(usual, slow).endswith(" 805 host-unknown 1000 compilation 2400 launch-latency 2500")
    steady = [launched("a", 2_000 * n, 2_000 * n + 1_500, 100, n, takes=1_400) for n in (1, 2, 3)]
    assert "compilation" not in idle(steady), "in proportion"


# Rules 5 and 6: after the call


def test_latency_is_what_the_trace_shows_on_an_empty_queue() -> None:
    """149 launches take 7 us from the call's end to the start, so the 150th is late after 7 us, not after 100."""
    usual = [launched("k", 100 * n, 100 * n + 12, 20, n + 1) for n in range(150)]
    assert idle(usual, launched("late", 15_000, 15_200, 5, 500)).endswith(
        " 14932 host-unknown 15000 launch-latency 15012 unexplained 15200"
    )
    early = [launch(14_920, 5, 500), kernel("late", 15_200, 5, correlation=500)]
    assert idle(usual, early).endswith(" 14932 unexplained 15200"), "its latency was over when the gap began"


@pytest.mark.parametrize(
    ("thread", "expected"), [(100, " 100 launch-latency 112 device-wait 155 "), (200, " 100 launch-latency 155 ")]
)
def test_a_launch_after_its_thread_s_wait_does_not_show_the_latency(thread: int, expected: str) -> None:
    """Of 20 launches half follow a wait for an event, and start 50 us after their call; the others 7 us after it."""
    usual = [launched("k", 200 * n, 200 * n + 12, 20, n + 1) for n in range(10)]
    waits = [
        [call("cudaStreamWaitEvent", 200 * n + 90, 2, tid=thread), launched("w", 200 * n + 100, 200 * n + 155, 20, n + 100)]
        for n in range(10)
    ]  # fmt: skip
    assert expected in idle(usual, call("cudaEventRecord", 1, 1), waits)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("witness", "cause"),
    [
        ([], "unexplained"),
        ([kernel(NCCL, 0, 1, device=3)], "device-wait"),
        ([call("cudaEventRecord", 1, 1), call("cudaStreamWaitEvent", 30, 1)], "device-wait"),
        ([call("cudaStreamWaitEvent", 30, 1)], "unexplained"),
        ([event("cuda_sync", "Stream Wait Event", 31, 1, pid=0, tid=1_000_007)], "device-wait"),
        ([event("cuda_sync", "Context Sync", 31, 1, pid=0, tid=1_000_007)], "unexplained"),
        ([call("cudaEventRecord", 1, 1), call("cudaStreamWaitEvent", 600, 1)], "unexplained"),
    ],
    ids=["nothing", "communication", "event wait", "event never recorded", "wait row", "sync row", "later"],
)
def test_long_device_time_is_a_wait_where_there_is_something_to_wait_for(witness: list[Event], cause: str) -> None:
    report = analysed(A, launched("b", 25, 500, 5, 2), *witness, device=0)
    own = report.tables["idle"].filter(device=0)
    assert own.select("start_ns", "end_ns", "cause").rows()[-1] == (130_000, 500_000, cause)


# Rule 1: unlinked and untraced


LATE = launched("b", 15_000, 15_010, 40_000, 2000)
"""Kernel b is so long that the 15 ms before it are no half of the trace."""
MEMSET = memset(80, 5, correlation=2)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # Rule 1: without a launch nothing is known; a pause is the silence itself.
        ([kernel("b", 90, 10), call("cudaDeviceSynchronize", 6, 60)], "20 unlinked 90"),
        ([LATE, python("f", 0, 8), op("aten::mm", 14_000, 500, tid=9)], "20 untraced 14000 host-unknown 15000 launch-latency 15010"),
        # Rule 2: nodes of a graph wait for each other.
        ([call("cudaGraphLaunch", 25, 5, correlation=3), [kernel("n", t, 5, correlation=3) for t in (31, 40, 70)]],
         "20 host-unknown 25 launch-latency 30 device-gap 31 36 device-gap 40 45 unexplained 70"),
        # Rule 3: a blocking call never takes more than the host time.
        ([launched("b", 24, 40, 10, 2, takes=2), call("cudaDeviceSynchronize", 6, 16)], "20 synchronization 24 launch-latency 40"),
        # Rule 4: the launch call may be named work, or still run when the kernel starts.
        ([call("cudaMallocAsync", 30, 40, correlation=2), MEMSET], "20 host-unknown 30 allocation 70 launch-latency 80"),
        ([call("cuModuleLoadData", 30, 40, correlation=2), MEMSET], "20 host-unknown 30 compilation 70 launch-latency 80"),
        ([call("cudaMemsetAsync", 30, 40, correlation=2), MEMSET], "20 host-unknown 30 launch-latency 80"),
        ([launched("b", 30, 40, 5, 2, takes=100)], "20 host-unknown 30 launch-latency 40"),
        # Rule 5: a launch that returned at once is no latency for ever.
        ([launched("b", 25, 500, 5, 2)], "20 host-unknown 25 launch-latency 130 unexplained 500"),
    ],
)  # fmt: skip
def test_idle_time_after_kernel_a(events: list[Any], expected: str) -> None:
    assert idle(A, *events) == expected


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("evidence", "paused"),
    [
        ([], False),
        ([python("f", 0, 8)], True),
        ([python("f", 0, 8), op("aten::mm", 8_000, 10)], False),
        ([event("Trace", "PyTorch Profiler (0)", 0, 30, pid="Spans", tid="P"),
          event("Trace", "PyTorch Profiler (1)", 14_000, 60_000, pid="Spans", tid="P")], True),
        ([event("Trace", "PyTorch Profiler (0)", 0, 60_000, pid="Spans", tid="P")], False),
        ([launch(1, 1, 5_000)], False),
        ([launch(15_007, 1, 1)], False),
    ],
    ids=["plain Python is silent", "Python frames", "no 10 ms", "two sessions", "one session", "ids overlap", "id again"],
)  # fmt: skip
def test_a_pause_needs_evidence(evidence: list[Event], paused: bool) -> None:
    assert ("untraced" in idle(A, LATE, evidence)) is paused


@pytest.mark.parametrize(
    ("events", "silences"),
    [
        ([op("aten::mm", 10_010, 1)], [(10_000, 10_010_000)]),
        ([op("aten::mm", 10_009, 2)], []),
        ([op("aten::mm", 10_009.999, 2)], []),
        ([op("aten::mm", 15_000, 0), op("aten::mm", 30_010, 5)], [(10_000, 30_010_000)]),
        ([op("aten::mm", 9_000, 1, tid=9), op("aten::mm", 18_000, 1), op("aten::mm", 40_000, 1, tid=9)], [(18_001_000, 40_000_000)]),
        ([kernel("a", 12_000, 1_000, device=1), op("aten::mm", 40_000, 1)], [(10_000, 12_000_000), (13_000_000, 40_000_000)]),
        ([], []),
    ],
    ids=["just long enough", "too short", "by a ns", "an instant is no event", "threads together", "devices too", "nothing follows"],
)  # fmt: skip
def test_a_silence_is_where_no_thread_and_no_device_has_an_event(
    events: list[Event], silences: list[tuple[int, int]]
) -> None:
    trace = loaded(python("f", 0, 5), op("aten::mm", 0, 10), kernel("a", 5, 5), *events)
    assert recording_pauses(trace).rows() == silences


def test_correlation_ids_that_start_again_or_a_hole_of_over_half_the_span_show_a_pause() -> None:
    first = [launch(0, 5, 3_000), kernel("a", 10, 10, correlation=3_000)]
    for events in ((first, LATE), (A, launched("b", 15_000, 15_010, 10, 2))):
        assert idle(*events).startswith("20 untraced 15000 ")


# The table


def test_every_cause_has_a_test() -> None:
    names = ("test_causes.py", "test_unrecorded_work.py", "test_time_slices.py")
    text = "".join(Path(__file__).with_name(name).read_text("utf-8") for name in names)
    tested = set(re.findall(r'"([a-z-]+)"|\d ([a-z-]+) [\d{]', text))
    assert [cause for cause in IDLE_CAUSES if not {(cause, ""), ("", cause)} & tested] == [WITHHELD], (
        "in test_checks.py"
    )


def test_the_main_cause_of_a_gap_holds_most_of_it() -> None:
    report = analysed(A, B, op("aten::mm", 30, 45))
    assert report.tables["gaps"].select("cause", "duration_ns").rows() == [("dispatch", 70_000)]
    assert {k: v for k, v in report.devices[0].gaps.by_cause_ns.items() if v} == {
        "dispatch": 45_000, "launch-latency": 10_000, "host-unknown": 15_000,
    }  # fmt: skip


def test_host_causes_name_their_event() -> None:
    report = analysed(A, B, python("f", 20, 10), call("cudaDeviceSynchronize", 18, 3))
    names = report.tables["idle"].join(report.tables["host_events"], on="event_id", how="left").sort("start_ns")
    assert names.select("cause", "name").rows() == [
        ("synchronization", "cudaDeviceSynchronize"), ("python", "f"), ("host-unknown", None),
        ("launch-latency", "cudaLaunchKernel"), ("launch-latency", None),
    ]  # fmt: skip


GEMM = "ampere_sgemm_128x64_tn"
NAME = "resolve<long>"


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


def test_work_that_was_launched_before_is_in_no_group_and_reported() -> None:
    report = held()
    assert (120, 9_000, "earlier-work") in idle_parts(report), "15 us after the call, which is the others' latency"
    assert "unexplained" not in causes(report)
    (row,) = report.tables["idle"].filter(cause="earlier-work").to_dicts()
    assert report.tables["host_events"].filter(event_id=row["event_id"]).item(0, "name") == "cudaMemcpyAsync"
    assert (report.verdict.regime, report.verdict.runner_up) == ("compute-bound", None)
    assert "49 % is work from before the recording" in report.verdict.headline
    assert report.verdict.confidence != "high"
    check_regime(report)
    assert "earlier-work" in summaries.part_totals(report.verdict.parts_ns).work
    assert not summaries.blamed(report.blame, report.verdict), "nobody kept the device waiting"
    (note,) = (note for note in report.notes if note.code == "earlier-work")
    assert all(part in note.message for part in (NAME, "cudaLaunchKernel", "cudaMemcpyAsync", "8.90 ms"))
    (item,) = (item for item in report.advice if item.id == "earlier-work")
    assert report.advice[0].id not in ("earlier-work", "less-work"), "last resorts come last"
    assert item.where.startswith("before resolve, which was launched at the beginning")
    assert "cudaMemcpyAsync" in item.where


def test_the_mfu_is_an_interval_as_earlier_work_may_be_products() -> None:
    """Products of known work after 8.9 ms of work from before the recording, of which nothing is known."""
    dims = {"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]}
    device = held([op("aten::mm", 9_000 + 100 * n - 1, 20, **dims) for n in range(1, 90)]).devices[0]
    earlier = device.partition_ns["earlier-work"] / device.window_ns
    assert device.mfu_at_most - device.mfu == pytest.approx(earlier, rel=1e-6)
    assert earlier > 0.4


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("changed", "is_earlier"),
    [
        ({"stream": 7}, True),  # hardly any work before, on any stream
        ({"stream": 7, "before": 85}, True),
        ({"stream": 7, "before": 95}, False),  # a hundredth of the gap, and the stream had worked
        ({"stream": 20, "before": 95}, True),  # the first of its stream
        ({"before": 1_000, "launched": 1_005, "blocked": (1_015, 8_990)}, False),  # the recording had begun
        ({"launched": 900}, True),
        ({"launched": 1_100}, False),  # beyond the first tenth of the gap
        ({"blocked": (120, 7_000)}, False),  # the CPU continued, and did not launch
        ({"until": 1_000, "blocked": (120, 990)}, False),  # under a millisecond
        *(({"name": name}, True) for name in ("cudaDeviceSynchronize", "hipMemcpyWithStream", "cudaMemcpy")),
        *(({"name": name}, True) for name in ("cudaEventSynchronize", "cudaStreamSynchronize")),
        ({"name": "cudaMalloc"}, False),  # it waits for the driver
    ],
)
def test_all_three_facts_are_needed(changed: dict[str, Any], is_earlier: bool) -> None:
    assert ("earlier-work" in causes(held(**changed))) is is_earlier


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("drains", "is_earlier"),
    [
        (call("cudaDeviceSynchronize", 50, 5), False),
        (call("cuCtxSynchronize", 50, 5), False),
        (call("cudaStreamSynchronize", 50, 5), True),  # of which of the two streams?
        (call("cudaDeviceSynchronize", 50, 5, pid=9), True),
        (sync("Context Sync", 50, 5), False),
        (sync("Stream Sync", 50, 5) | {"args": {"device": 0, "stream": 20}}, False),
        (sync("Stream Sync", 50, 5), True),  # of stream 7
    ],
    ids=str,
)
def test_nothing_is_from_before_the_recording_once_its_stream_was_drained(drains: Event, is_earlier: bool) -> None:
    report = held(drains)
    assert ("earlier-work" in causes(report)) is is_earlier
    assert ("earlier-work" in notes(report)) is is_earlier
    assert ("from before the recording" in report.verdict.headline) is is_earlier


def test_event_waits_and_collectives_explain_nothing_at_the_beginning() -> None:
    waits = [call("cudaEventRecord", 20, 2), call("cudaStreamWaitEvent", 25, 2)]
    nccl = [launch(20_000, 2, 900), kernel(NCCL, 20_010, 5, correlation=900, stream=30)]
    assert "earlier-work" in causes(held(waits, nccl))


@pytest.mark.sampled
@pytest.mark.parametrize(("until", "size", "expected"), [(30_000, 8, "earlier-work"), (30_000, 40_000_000, "blocking-copy"), (9_000, 8, "blocking-copy")])  # fmt: skip
def test_a_copy_that_waits_itself(until: int, size: int, expected: str) -> None:
    """A blocking copy that takes longer than staging its bytes does waited for the device."""
    report = analysed(
        [launch(0, 5, 1), kernel("arange", 10, 3, correlation=1)],
        [call("cudaMemcpyAsync", 100, until - 90, correlation=2), copy("DtoH (Device -> Pageable)", until, 4, correlation=2, bytes=size)],
        [[launch(until + 100 * n, 5, 50 + n), kernel(GEMM, until + 100 * n + 20, 80, correlation=50 + n)] for n in range(1, 20)],
    )  # fmt: skip
    assert (100, until, expected) in idle_parts(report)


# Captures of graphs


def begin(at: int, **where: Any) -> Event:
    return call("cudaStreamBeginCapture", at, 2, **where)


def end(at: int, **where: Any) -> Event:
    return call("cudaStreamEndCapture", at, 2, **where)


CAPTURED = "20 host-unknown 30 graph-capture 62 host-unknown 80"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([begin(30), end(60)], CAPTURED),
        ([begin(30), op("aten::mm", 35, 10), launch(38, 2, 50), end(60)], CAPTURED),
        # HIP, the driver's names, and a capture into a graph that exists.
        ([call("hipStreamBeginCapture", 30, 2), call("hipStreamEndCapture", 60, 2)], CAPTURED),
        ([call("cuStreamBeginCapture_v2", 30, 2, category="cuda_driver"), call("cuStreamEndCapture", 60, 2, category="cuda_driver")], CAPTURED),
        # Two streams in capture at once: until the last end.
        ([begin(25), begin(30), end(40), end(60)], "20 host-unknown 25 graph-capture 62 host-unknown 80"),
        # Another thread of the process captures, or launches into the capture.
        ([begin(30, tid=7), end(60, tid=7)], CAPTURED),
        # The capture had begun before the recording.
        ([end(60), call("cudaGetDevice", 22, 1)], "20 graph-capture 62 host-unknown 80"),
        # The recording ends within it, or its end was not recorded: launches of the thread on a device are not part of
        # it.
        ([begin(30)], "20 host-unknown 30 graph-capture 80"),
        # Loading code and data comes before it, memory for it does not.
        ([begin(30), call("cuModuleLoadData", 40, 10, category="cuda_driver"), call("cudaMalloc", 52, 6), end(60)],
         "20 host-unknown 30 graph-capture 40 compilation 50 graph-capture 62 host-unknown 80"),
        # What PyTorch and serving frameworks call it.
        ([python("torch/_inductor/cudagraph_trees.py(1210): _record", 30, 30)], "20 host-unknown 30 graph-capture 60 host-unknown 80"),
        ([python("vllm/v1/worker/gpu_model_runner.py(2700): capture_model", 30, 30), op("aten::mm", 35, 10)],
         "20 host-unknown 30 graph-capture 60 host-unknown 80"),
        # Instantiating a graph belongs to capturing it.
        ([call("cudaGraphInstantiate", 30, 20)], "20 host-unknown 30 graph-capture 50 host-unknown 80"),
        # Another process's capture is separate.
        ([begin(30, pid=9, tid=9), end(60, pid=9, tid=9), launch(300, 1, 70, pid=9, tid=9)], "20 host-unknown 80"),
    ],
)  # fmt: skip
def test_host_time_in_a_capture(events: list[Event], expected: str) -> None:
    assert host_time(*events) == expected


def test_a_capture_is_one_time_work_and_its_launches_launch_nothing() -> None:
    """Captures take 9 of 10 ms between two replays; captured launches have no activity."""
    eager = [[op("aten::mm", 100 * n, 60), launched(GEMM, 100 * n + 20, 100 * n + 30, 60, n + 1)] for n in range(10)]
    inside = [[op("aten::mm", 1_100 + 200 * n, 150), launch(1_110 + 200 * n, 5, 500 + n)] for n in range(40)]
    replay = [
        call("cudaGraphLaunch", 9_800, 20, correlation=900),
        *(kernel(GEMM, 9_830 + 30 * n, 25, correlation=900) for n in range(10)),
    ]
    report = analysed(eager, begin(1_050), inside, end(9_500), replay)
    assert (report.verdict.regime, report.verdict.cause) == ("overhead-bound", "graph-capture")
    assert report.verdict.parts_ns["graph-capture"] == report.advice[0].saves_ns_at_most == 9_502_000 - 1_050_000
    assert report.advice[0].id == "graph-capture"
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
    assert [step.cause for step in report.steps[1:]] == ["host-unknown", "graph-capture", "host-unknown"]


def test_named_work_keeps_its_ranks() -> None:
    """Added entries may stand anywhere among these."""
    ranked = (
        "data-loading", "compilation", "graph-capture", "allocation", "garbage-collection", "blocking-copy",
        "profiler", "host-wait",
    )  # fmt: skip
    assert tuple(work for work in NAMED_WORK if work in ranked) == ranked


@pytest.mark.parametrize(
    ("kind", "name", "work"),
    [
        ("runtime", "cudaFreeHost", "allocation"), ("runtime", "hipFree", "allocation"), ("driver", "cuMemAlloc_v2", "allocation"),
        ("runtime", "cudaMallocAsync", "allocation"), ("runtime", "hipStreamSynchronize", BLOCKING), ("driver", "cuEventSynchronize", BLOCKING),
        ("overhead", "Lazy Function Loading", "compilation"), ("overhead", "CUPTI Unknown", "profiler"),
        ("operator", "cudaMalloc", None), ("python", "cudaDeviceSynchronize", None), ("runtime", "enumerate(DataLoader)#x", None),
        ("operator", "aten::embedding", None), ("python", "model.py(3): load_state_dict", None), ("runtime", "cudaMemcpyAsync", None),
        ("annotation", "torch/_dynamo/eval_frame.py(1): _fn", None), ("overhead", "", None),
        ("operator", "x" * 100_000 + "dataloader.py(1): __next__", None),
    ],
)  # fmt: skip
def test_names_of_many_runtimes(kind: str, name: str, work: str | None) -> None:
    table = host_work(pl.DataFrame({"kind": [kind], "name": [name]}))
    assert table.select("name", "work").rows() == ([(name, work)] if work else [])


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("activities", "window", "busy", "expected"),
    [
        ([(0, 5)], 5, 5, []),
        ([(0, 5), (5, 3)], 8, 8, []),
        ([(0, 5), (7, 3)], 10, 8, [(5, 7)]),
        ([(0, 10), (2, 3), (12, 1)], 13, 11, [(10, 12)]),
        ([(0, 5), (3, 6), (20, 1)], 21, 10, [(9, 20)]),
        ([(0, 5), (8, 0), (12, 1)], 13, 6, [(5, 8), (8, 12)]),  # without duration, inside: splits
        ([(0, 5), (5, 0), (12, 0), (12, 1)], 13, 6, [(5, 12)]),  # at the edges: does not
        ([(0, 0), (4, 2), (9, 0)], 9, 2, [(0, 4), (6, 9)]),  # starts and ends the window
        ([(3, 0)], 0, 0, []),
    ],
)
def test_gaps(activities: list[tuple[int, int]], window: int, busy: int, expected: list[tuple[int, int]]) -> None:
    events = [kernel("k", start, duration, stream=n) for n, (start, duration) in enumerate(activities)]
    report = analysed(*events)
    device = report.devices[0]
    assert (device.window_ns, device.busy_ns, device.idle_ns) == (window * 1_000, busy * 1_000, (window - busy) * 1_000)
    assert rows(report.tables["gaps"], "start_ns", "end_ns") == expected
    assert device.gaps.count == len(expected)
    assert device.gaps.longest_ns == 1_000 * max((b - a for a, b in expected), default=0)


def test_streams_share_a_device_and_devices_share_nothing() -> None:
    events = [
        kernel("a", 0, 10, device=0, stream=1), kernel("b", 8, 10, device=0, stream=2), copy("HtoD", 20, 5, device=0),
        kernel("c", 5, 5, device=1), memset(30, 5, device=1),
    ]  # fmt: skip
    report = analysed(*events)
    assert [(d.index, d.window_ns, d.busy_ns) for d in report.devices] == [(0, 25_000, 23_000), (1, 30_000, 10_000)]
    assert rows(report.tables["gaps"], "device", "start_ns", "end_ns") == [(0, 18, 20), (1, 10, 30)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launches", "ends"),
    [
        ([launch(12, 1, 1), launch(10, 1, 2)], "early"),
        ([launch(12, 1, 1)], "late"),  # an unknown launch comes last
        ([launch(10, 1, 1), launch(10, 1, 2, tid=5)], "late"),  # then the lowest stream
        ([kernel(f"c{n}", 19, 2, correlation=n) for n in (8, 4)], "c4"),  # then the lowest correlation
    ],
)
def test_of_activities_that_start_together_the_first_launched_ends_the_gap(launches: list[Event], ends: str) -> None:
    late, early = (kernel(name, 20, 1, correlation=n, stream=s) for name, n, s in (("late", 1, 1), ("early", 2, 9)))
    report = analysed(kernel("first", 0, 5), late, early, *launches)
    gaps = report.tables["gaps"].join(report.tables["activities"], on="activity_id")
    assert gaps.get_column("name").to_list() == [ends]


def test_a_gap_says_what_ended_it_and_what_the_cpu_did() -> None:
    report = analysed(A, op("aten::mm", 15, 60), B)
    gap = report.tables["gaps"].row(0, named=True)
    assert (gap["next_activity"], gap["next_launch_ns"], gap["cause"]) == ("b", 80_000, "dispatch")
    assert report.tables["idle"].get_column("host_event").to_list()[0] == "aten::mm"
    unlinked = analysed(kernel("a", 10, 10), kernel("b", 90, 10)).tables["gaps"].row(0, named=True)
    assert (unlinked["next_activity"], unlinked["next_launch_ns"]) == ("b", None)


# Temporary files of runs that were killed

_KILLED = """
import os, signal, sys
from pathlib import Path
from trace_analyzer.files import Outputs, temporary_folder

with Outputs() as outputs, temporary_folder(Path(sys.argv[1])) as folder, outputs.open(Path(sys.argv[1], "a")) as file:
    (folder / "part").write_text("half")
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def dead_process() -> int:
    """Return the process ID of a process that ran."""
    return int(run_python("import os; print(os.getpid())").stdout)


def left(path: Path, age_s: float = 0) -> Path:
    """Create a file of that age."""
    path.write_text("half")
    os.utime(path, (time.time() - age_s,) * 2)
    return path


@pytest.mark.skipif(os.name != "posix", reason="signals are those of Unix")
def test_the_next_run_deletes_what_a_killed_one_left(tmp_path: Path) -> None:
    assert run_python(_KILLED, tmp_path).returncode == -signal.SIGKILL
    assert [path.name.startswith(".analyze-") for path in tmp_path.iterdir()] == [True, True]
    write_text(tmp_path / "b", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.skipif(os.name != "posix", reason="processes are looked up as on Unix")
@pytest.mark.parametrize(
    ("machine", "process", "age_s", "stays"),
    [
        ("this", "dead", 0, False),
        ("this", "this", 0, True),
        ("this", "this", 2 * ABANDONED_S, False),
        ("another", "dead", 0, True),
        ("another", "dead", 2 * ABANDONED_S, False),
    ],
)
def test_only_what_nobody_writes_any_more_goes(
    tmp_path: Path, machine: str, process: str, age_s: float, stays: bool
) -> None:
    number = os.getpid() if process == "this" else dead_process()
    name = files._machine() if machine == "this" else "0" * 8
    path = left(tmp_path / f".analyze-{name}-{number}-{'0' * 12}.tmp", age_s)
    remove_abandoned(tmp_path)
    assert path.exists() == stays


def test_other_names_links_and_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("text")
    others = (".analyze-x.tmp", ".analyze-00000000-1-zz.tmp", "analyze-00000000-1-000000000000.tmp", ".analyze.tmp")
    for name in others:
        left(tmp_path / name, 9 * ABANDONED_S)
    link = tmp_path / f".analyze-{files._machine()}-{dead_process()}-{'1' * 12}.tmp"
    link.symlink_to("kept", target_is_directory=True)
    remove_abandoned(tmp_path)
    assert not link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((*others, "kept"))
    assert (tmp_path / "kept" / "file").read_text() == "text"


def test_a_folder_that_cannot_be_listed_is_no_failure(tmp_path: Path) -> None:
    remove_abandoned(tmp_path / "nowhere")


def test_what_this_process_writes_stays_while_others_write_beside_it(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as folder:
        write_text(tmp_path / "b", "whole")
        assert folder.is_dir()


# Drains: the CPU queues 390 us of work until 30, which the device finishes at 410; the next launch is at 600.
AHEAD = [launched(f"k{i}", 10 * i, 20 + 130 * i, 130, i + 1) for i in range(3)]
LAST = launched("late", 600, 610, 10, 9)
SMALL = [op("aten::mul", 30 + 50 * i, 40) for i in range(11)]


def drained(*events: Any, columns: str = "idle_ns name cause") -> list[tuple[Any, ...]]:
    return rows(analysed(*events).tables["drains"], *columns.split())


def test_the_longest_event_between_the_launches_drained_the_queue() -> None:
    columns = "start_ns end_ns queued_work_ns idle_ns cause host_start_ns host_end_ns name operator source"
    assert drained(AHEAD, LAST, op("aten::stack", 100, 50), annotation(LOADS, 40, 500), columns=columns) == [
        (280, 605, 260, 195, "data-loading", 25, 600, LOADS, None, None)
    ]


@pytest.mark.parametrize(
    ("events", "columns", "expected"),
    [
        # Many small things name what is around them, but for marks of steps.
        ([AHEAD, LAST, python("train.py(3): step", 0, 700), SMALL], "name operator", [("train.py(3): step", None)]),
        ([AHEAD, LAST, annotation("ProfilerStep#1", 0, 700), SMALL], "name", [("aten::mul",)]),
        # A blocking call drains the queue while the device is busy.
        ([AHEAD, LAST, op("aten::item", 40, 380), op("aten::_local_scalar_dense", 41, 378), call("cudaStreamSynchronize", 42, 376)],
         "name source cause idle_ns", [("aten::item", ".item()", "synchronization", 195)]),
        # A queue that was never long has not run out, nor has one of a device that stays busy until the next launch.
        ([launched(f"k{i}", 200 * i, 200 * i + 10, 10, i + 1) for i in range(3)], "name", []),
        ([AHEAD, launched("late", 300, 410, 10, 9)], "name", []),
        # Nothing recorded names nothing.
        ([AHEAD, LAST], "idle_ns name cause", [(195, None, "host-unknown")]),
    ],
)  # fmt: skip
def test_what_drained_the_queue(events: list[Any], columns: str, expected: list[tuple[Any, ...]]) -> None:
    assert drained(*events, columns=columns) == expected
