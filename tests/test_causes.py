"""Test causes of idle time: each rule and each cause, with answers worked out by hand (microseconds)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
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

from trace_analyzer import files
from trace_analyzer.analyses.earlier_work import recording_pauses
from trace_analyzer.catalog.event_names import BLOCKING, host_work
from trace_analyzer.files import ABANDONED_S, remove_abandoned, temporary_folder, write_text
from trace_analyzer.report import Report
from trace_analyzer.vocabulary import IDLE_CAUSES, NAMED_WORK, WITHHELD

Parts = list[tuple[Any, ...]]

# Kernel a runs in [10, 20), kernel b from 90 on. b's launch is [80, 85), so [20, 80) is host time, and as this trace's
# only launch on an empty queue took 5 us from its end to the kernel's start, [80, 90) is launch latency.
A, B = launched("a", 0, 10, 10, 1), launched("b", 80, 90, 10, 2)


def parts(*events: Any) -> Parts:
    return idle_parts(analysed(*events))


def host_time(*events: Any) -> Parts:
    """Return what [20, 80) is about when these events happen."""
    actual = parts(A, B, *events)
    assert actual[-1] == (80, 90, "launch-latency")
    return actual[:-1]


COMPILES = "torch/_dynamo/convert_frame.py(1200): _compile"
LOADS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


# Rule 3: host time by named work, then by the innermost event


def between_30_and_50(cause: str) -> Parts:
    """Return the parts of host time in which nothing else is known."""
    return [(20, 30, "host-unknown"), (30, 50, cause), (50, 80, "host-unknown")]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], [(20, 80, "host-unknown")]),
        ([python("train.py(1): f", 0, 99)], [(20, 80, "python")]),
        ([op("aten::mm", 30, 20)], between_30_and_50("dispatch")),
        ([call("cudaGetDevice", 30, 20)], between_30_and_50("runtime-call")),
        (
            [python("f", 0, 99), op("aten::mm", 30, 20), call("cudaGetDevice", 35, 10)],
            [
                (20, 30, "python"),
                (30, 35, "dispatch"),
                (35, 45, "runtime-call"),
                (45, 50, "dispatch"),
                (50, 80, "python"),
            ],
        ),
        # A call that begins and ends with its operator is inside it, whichever comes first in the file.
        ([op("aten::mm", 30, 20), call("cudaGetDevice", 30, 20)], between_30_and_50("runtime-call")),
        ([call("cudaGetDevice", 30, 20), op("aten::mm", 30, 20)], between_30_and_50("runtime-call")),
        ([op("aten::mm", 20, 60), python("f", 20, 60)], [(20, 80, "dispatch")]),
        ([op("aten::mm", 25, 55), annotation("forward", 30, 20)], [(20, 25, "host-unknown"), (25, 80, "dispatch")]),
        ([annotation("ProfilerStep#1", 0, 99)], [(20, 80, "host-unknown")]),
        ([event("odd_category", "x", 0, 99, pid=100, tid=100)], [(20, 80, "host-unknown")]),
        ([annotation(LOADS, 30, 50)], [(20, 30, "host-unknown"), (30, 80, "data-loading")]),
        ([python(COMPILES, 20, 60)], [(20, 80, "compilation")]),
        ([call("cuModuleLoadData", 20, 60, category="cuda_driver")], [(20, 80, "compilation")]),
        ([overhead("Lazy Function Loading", 20, 60)], [(20, 80, "compilation")]),
        ([call("cudaMalloc", 20, 60)], [(20, 80, "allocation")]),
        ([annotation("Python GC", 20, 60)], [(20, 80, "garbage-collection")]),
        ([overhead("Buffer Flush", 30, 50)], [(20, 30, "host-unknown"), (30, 80, "profiler")]),
        ([op("aten::mm", 20, 60), overhead("Buffer Flush", 30, 50)], [(20, 30, "dispatch"), (30, 80, "profiler")]),
    ],
)
def test_host_time_is_about(events: list[Event], expected: Parts) -> None:
    assert host_time(*events) == expected


def test_named_work_counts_through_everything_nested_in_it() -> None:
    inside = [op("aten::mm", 30, 20), call("cudaGetDevice", 35, 5)]
    assert host_time(annotation(LOADS, 20, 60), *inside) == [(20, 80, "data-loading")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [
        [("data-loading", annotation(LOADS, 20, 60)), ("compilation", python(COMPILES, 20, 60))],
        [("compilation", python(COMPILES, 20, 60)), ("allocation", call("cudaMalloc", 20, 60))],
        [("allocation", call("cudaMalloc", 20, 60)), ("garbage-collection", annotation("Python GC", 20, 60))],
        [("garbage-collection", annotation("Python GC", 20, 60)), ("profiler", overhead("Buffer Flush", 20, 60))],
        [("profiler", overhead("Buffer Flush", 20, 60)), ("dispatch", op("aten::mm", 20, 60))],
    ],
    ids=lambda order: " > ".join(cause for cause, _ in order),
)
def test_named_work_has_an_order(order: list[tuple[str, Event]]) -> None:
    (first, one), (_, other) = order
    assert host_time(one, other) == host_time(other, one) == [(20, 80, first)]


def test_an_operator_that_is_busy_by_itself_computes_on_the_cpu() -> None:
    late = launched("b", 3_000, 3_010, 10, 2)
    long, short = op("aten::sort", 100, 1_100), op("aten::mm", 1_300, 1_000)
    assert parts(A, late, python("f", 0, 3_000), long, short) == [
        (20, 100, "python"), (100, 1_200, "cpu-operator"), (1_200, 1_300, "python"), (1_300, 2_300, "dispatch"),
        (2_300, 3_000, "python"), (3_000, 3_010, "launch-latency"),
    ]  # fmt: skip
    calls = [call("cudaGetDevice", 600, 1)]
    assert (100, 600, "dispatch") in parts(A, late, python("f", 0, 3_000), long, *calls)


# Rule 3: blocking calls


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # It waited 10 us for kernel a.
        ([call("cudaDeviceSynchronize", 6, 34)], [(20, 30, "synchronization"), (30, 40, "runtime-call"), (40, 80, "host-unknown")]),
        # The CPU comes back late because of this call, even after its return.
        ([call("cudaStreamSynchronize", 6, 15)], [(20, 30, "synchronization"), (30, 80, "host-unknown")]),
        # It began when kernel a had 3 us left.
        ([call("cudaEventSynchronize", 17, 13)], [(20, 23, "synchronization"), (23, 30, "runtime-call"), (30, 80, "host-unknown")]),
        # Not in progress when the gap began.
        ([call("cudaDeviceSynchronize", 6, 14)], [(20, 80, "host-unknown")]),
        ([call("cudaDeviceSynchronize", 20, 30)], [(20, 50, "runtime-call"), (50, 80, "host-unknown")]),
        # Of two threads, the one that had waited longer counts.
        (
            [call("cudaDeviceSynchronize", 17, 4), call("cudaDeviceSynchronize", 15, 6, tid=7)],
            [(20, 25, "synchronization"), (25, 80, "host-unknown")],
        ),
        # The outer of two calls on one thread is still in progress.
        (
            [call("hipDeviceSynchronize", 12, 10), call("hipStreamSynchronize", 13, 2)],
            [(20, 28, "synchronization"), (28, 80, "host-unknown")],
        ),
        # It has precedence over named work.
        ([call("cudaDeviceSynchronize", 6, 15), annotation(LOADS, 21, 59)], [(20, 30, "synchronization"), (30, 80, "data-loading")]),
        # An event query does not block.
        ([call("cudaEventQuery", 6, 34)], [(20, 40, "runtime-call"), (40, 80, "host-unknown")]),
    ],
)  # fmt: skip
def test_a_blocking_call_is_to_blame_for_as_long_as_it_waited(events: list[Event], expected: Parts) -> None:
    assert host_time(*events) == expected


def test_a_blocking_call_never_takes_more_than_the_host_time() -> None:
    soon = launched("b", 24, 40, 10, 2, takes=2)
    expected = [(20, 24, "synchronization"), (24, 40, "launch-latency")]
    assert parts(A, soon, call("cudaDeviceSynchronize", 6, 16)) == expected


def test_a_blocking_call_of_another_process_is_not_to_blame() -> None:
    other = [call("cudaDeviceSynchronize", 6, 34, pid=9, tid=9), launch(300, 1, 50, pid=9, tid=9)]
    assert host_time(*other) == [(20, 80, "host-unknown")]


def test_a_copy_call_that_outlasts_its_copy_blocks() -> None:
    """Check a call [30, 60) with its copy [40, 45): it waits 5 us for the device, then 10 us more for itself."""
    slow = [call("cudaMemcpyAsync", 30, 30, correlation=3), copy("HtoD (Pageable -> Device)", 40, 5, correlation=3)]
    assert parts(A, B, slow) == [
        (20, 30, "host-unknown"), (30, 40, "blocking-copy"),
        (45, 50, "synchronization"), (50, 60, "blocking-copy"), (60, 80, "host-unknown"), (80, 90, "launch-latency"),
    ]  # fmt: skip
    together = [call("cudaMemcpyAsync", 30, 15, correlation=3), copy("HtoD (Pageable -> Device)", 40, 5, correlation=3)]
    assert "blocking-copy" not in {cause for _, _, cause in parts(A, B, together)}, "it ends with its copy"
    quick = [call("cudaMemcpyAsync", 30, 8, correlation=3), copy("HtoD (Pinned -> Device)", 40, 5, correlation=3)]
    assert "blocking-copy" not in {cause for _, _, cause in parts(A, B, quick)}


# Rule 3: which thread's work counts


def test_where_the_launching_thread_is_silent_the_previous_launcher_speaks() -> None:
    backward = [launch(80, 5, 2, tid=200), kernel("b", 90, 10, correlation=2)]
    by_main = [op("aten::mm", 25, 45)]
    assert parts(A, backward, by_main) == [
        (20, 25, "host-unknown"), (25, 70, "dispatch"), (70, 80, "host-unknown"), (80, 90, "launch-latency"),
    ]  # fmt: skip
    own = [python("f", 30, 10, tid=200)]
    assert parts(A, backward, by_main, own)[:4] == [
        (20, 25, "host-unknown"),
        (25, 30, "dispatch"),
        (30, 40, "python"),
        (40, 70, "dispatch"),
    ]


@pytest.mark.slow
def test_then_the_main_thread_speaks() -> None:
    first = [launch(0, 5, 1, tid=300), kernel("a", 10, 10, correlation=1)]
    second = [launch(80, 5, 2, tid=200), kernel("b", 90, 10, correlation=2)]
    main, previous = op("aten::mm", 25, 45), call("cudaGetDevice", 30, 10, tid=300)
    assert parts(first, second, main)[1] == (25, 70, "dispatch")
    assert parts(first, second, main, previous)[1:4] == [
        (25, 30, "dispatch"),
        (30, 40, "runtime-call"),
        (40, 70, "dispatch"),
    ]
    stranger = op("aten::add", 20, 60, tid=400)
    assert parts(first, second, main, stranger) == parts(first, second, main)


def test_a_wait_for_others_is_the_launching_threads_own() -> None:
    """Check that a wait of 100 us or more is a cause only on the launching thread, as others may wait for this one."""
    late = [launch(3_000, 5, 2, tid=200), kernel("b", 3_010, 10, correlation=2)]
    waits = [
        ("queue.py(154): get", 100, 1_000),
        ("threading.py(299): wait", 150, 900),
        ("queue.py(154): get", 1_300, 99),
    ]
    own = [python("f", 0, 3_000, tid=200), *(python(*wait, tid=200) for wait in waits)]
    assert parts(A, late, own) == [
        (20, 100, "python"), (100, 1_100, "host-wait"), (1_100, 3_000, "python"), (3_000, 3_010, "launch-latency"),
    ]  # fmt: skip
    others = [python("f", 0, 3_000), *(python(*wait) for wait in waits)]
    assert parts(A, late, others) == [
        (20, 100, "python"), (100, 1_100, "host-unknown"), (1_100, 3_000, "python"), (3_000, 3_010, "launch-latency"),
    ]  # fmt: skip


# Rule 2: queued work


def queued(start: int, *extra: Event) -> Parts:
    """Return the parts of idle time where kernel c was queued from ``start`` on, behind kernel b."""
    return parts(A, B, launch(start - 5, 5, 3), kernel("c", 200, 5, correlation=3, stream=9), *extra)[:-1]


@pytest.mark.slow
def test_while_other_work_is_queued_the_cpu_is_not_to_blame() -> None:
    assert queued(40) == [(20, 40 - 5, "host-unknown"), (35, 40, "runtime-call"), (40, 90, "unexplained")]
    assert queued(71) == [(20, 66, "host-unknown"), (66, 71, "runtime-call"), (71, 90, "device-gap")]
    assert queued(70)[-1] == (70, 90, "unexplained"), "20 us are not short any more"
    assert queued(15) == [(20, 90, "unexplained")], "queued before the gap"


def test_unlinked_work_is_not_known_to_be_queued() -> None:
    assert parts(A, B, kernel("c", 200, 5, stream=9))[:-1] == [(20, 80, "host-unknown"), (80, 90, "launch-latency")]


def test_graph_nodes_wait_for_each_other() -> None:
    graph = [call("cudaGraphLaunch", 25, 5, correlation=3), *(kernel("n", t, 5, correlation=3) for t in (31, 40, 70))]
    assert parts(A, graph) == [
        (20, 25, "host-unknown"),
        (25, 30, "launch-latency"),
        (30, 31, "device-gap"),
        (36, 40, "device-gap"),
        (45, 70, "unexplained"),
    ]


# Rule 4: the launch call


def test_a_call_out_of_all_proportion_loads_code() -> None:
    usual = [launched("a", 100 * n, 100 * n + 10, 95, n + 1) for n in range(8)]
    slow = launched("b", 1_000, 2_500, 5, 9, takes=1_400)
    assert parts(usual, slow)[-3:] == [
        (805, 1_000, "host-unknown"),
        (1_000, 2_400, "compilation"),
        (2_400, 2_500, "launch-latency"),
    ]
    steady = [launched("a", 2_000 * n, 2_000 * n + 1_500, 100, n, takes=1_400) for n in (1, 2, 3)]
    assert "compilation" not in {cause for _, _, cause in parts(steady)}, "in proportion"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cudaMallocAsync", [(30, 70, "allocation"), (70, 80, "launch-latency")]),
        ("cuModuleLoadData", [(30, 70, "compilation"), (70, 80, "launch-latency")]),
        ("cudaMemsetAsync", [(30, 80, "launch-latency")]),
    ],
)
def test_the_call_itself_may_be_named_work(name: str, expected: Parts) -> None:
    assert parts(A, call(name, 30, 40, correlation=2), memset(80, 5, correlation=2)) == [
        (20, 30, "host-unknown"),
        *expected,
    ]


def test_a_kernel_that_starts_before_its_call_returns() -> None:
    assert parts(A, launched("b", 30, 40, 5, 2, takes=100)) == [(20, 30, "host-unknown"), (30, 40, "launch-latency")]


# Rules 5 and 6: after the call


def test_latency_is_what_the_trace_shows_on_an_empty_queue() -> None:
    """149 launches take 7 us from the call's end to the start, so the 150th is late after 7 us, not after 100."""
    usual = [launched("k", 100 * n, 100 * n + 12, 20, n + 1) for n in range(150)]
    assert parts(usual, launched("late", 15_000, 15_200, 5, 500))[-3:] == [
        (14_932, 15_000, "host-unknown"), (15_000, 15_012, "launch-latency"), (15_012, 15_200, "unexplained"),
    ]  # fmt: skip
    early = [launch(14_920, 5, 500), kernel("late", 15_200, 5, correlation=500)]
    assert parts(usual, early)[-1] == (14_932, 15_200, "unexplained"), "its latency was over when the gap began"


def test_a_launch_after_a_stream_s_wait_does_not_show_the_latency() -> None:
    """Of 20 launches half follow a wait for an event, and start 50 us after their call; the others 7 us after it."""
    usual = [launched("k", 200 * n, 200 * n + 12, 20, n + 1) for n in range(10)]
    record = call("cudaEventRecord", 1, 1)
    waits = [
        [call("cudaStreamWaitEvent", 200 * n + 90, 2), launched("w", 200 * n + 100, 200 * n + 155, 20, n + 100)]
        for n in range(10)
    ]

    def from_100_us(*events: object) -> list[tuple[object, ...]]:
        return [part for part in parts(*events) if 100 <= part[0] < 155]

    reported = [(100, 112, "launch-latency"), (112, 155, "device-wait")]
    assert from_100_us(usual, record, waits) == reported
    elsewhere = [[{**wait, "tid": 200}, late] for wait, late in waits]
    assert from_100_us(usual, record, elsewhere) == [(100, 155, "launch-latency")], "another thread's wait says nothing"


def test_a_launch_that_returned_at_once_is_no_latency_for_ever() -> None:
    assert parts(A, launched("b", 25, 500, 5, 2)) == [
        (20, 25, "host-unknown"),
        (25, 130, "launch-latency"),
        (130, 500, "unexplained"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("witness", "cause"),
    [
        ([], "unexplained"),
        ([kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 1, device=3)], "device-wait"),
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


def test_without_a_launch_nothing_is_known() -> None:
    assert parts(A, kernel("b", 90, 10), call("cudaDeviceSynchronize", 6, 60)) == [(20, 90, "unlinked")]


LATE = launched("b", 15_000, 15_010, 40_000, 2000)
"""Kernel b is so long that the 15 ms before it are no half of the trace."""


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
    causes = {cause for _, _, cause in parts(A, LATE, evidence)}
    assert ("untraced" in causes) is paused


def test_a_pause_is_the_silence_itself() -> None:
    assert parts(A, LATE, python("f", 0, 8), op("aten::mm", 14_000, 500, tid=9)) == [
        (20, 14_000, "untraced"), (14_000, 15_000, "host-unknown"), (15_000, 15_010, "launch-latency"),
    ]  # fmt: skip


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


def test_correlation_ids_that_start_again_show_a_pause() -> None:
    first = [launch(0, 5, 3_000), kernel("a", 10, 10, correlation=3_000)]
    assert parts(first, LATE)[0] == (20, 15_000, "untraced")


def test_a_hole_of_over_half_the_span_is_a_pause() -> None:
    assert parts(A, launched("b", 15_000, 15_010, 10, 2))[0] == (20, 15_000, "untraced")


# The table


def test_every_cause_has_a_test() -> None:
    text = "".join(
        Path(__file__).with_name(name).read_text("utf-8")
        for name in ("test_causes.py", "test_unrecorded_work.py", "test_time_slices.py")
    )
    assert [cause for cause in IDLE_CAUSES if f'"{cause}"' not in text] == [WITHHELD], "that one is in test_checks.py"


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


DRAINED = sync("Stream Sync", 50, 5) | {"args": {"device": 0, "stream": 20}}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("drains", "is_earlier"),
    [
        (call("cudaDeviceSynchronize", 50, 5), False),
        (call("cuCtxSynchronize", 50, 5), False),
        (call("cudaStreamSynchronize", 50, 5), True),  # of which of the two streams?
        (call("cudaDeviceSynchronize", 50, 5, pid=9), True),
        (sync("Context Sync", 50, 5), False),
        (DRAINED, False),
        (sync("Stream Sync", 50, 5), True),  # of stream 7
    ],
    ids=str,
)
def test_nothing_is_from_before_the_recording_once_its_stream_was_drained(drains: Event, is_earlier: bool) -> None:
    report = held(drains)
    assert ("earlier-work" in causes(report)) is is_earlier
    assert ("earlier-work" in notes(report)) is is_earlier
    assert ("from before the recording" in report.verdict.headline) is is_earlier


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


# Kernel a runs in [10, 20), kernel b from 90 on, whose launch is [80, 85): [20, 80) is host time.
LATENCY = (80, 90, "launch-latency")


def begin(at: int, **where: Any) -> Event:
    return call("cudaStreamBeginCapture", at, 2, **where)


def end(at: int, **where: Any) -> Event:
    return call("cudaStreamEndCapture", at, 2, **where)


def around_captures(*events: Any) -> list[tuple[Any, ...]]:
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
    assert around_captures(*events) == expected


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


def named(kind: str, *names: str) -> dict[str, str]:
    """Name -> work of those that a rule names."""
    table = host_work(
        pl.DataFrame({"kind": [kind] * len(names), "name": names}, schema={"kind": pl.String, "name": pl.String})
    )
    return dict(table.select("name", "work").iter_rows())


def test_named_work_keeps_its_ranks() -> None:
    """Added entries may stand anywhere among these."""
    ranked = (
        "data-loading", "compilation", "graph-capture", "allocation", "garbage-collection", "blocking-copy",
        "profiler", "host-wait",
    )  # fmt: skip
    assert tuple(work for work in NAMED_WORK if work in ranked) == ranked


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("operator", "cudaMalloc"), ("python", "cudaDeviceSynchronize"), ("runtime", "enumerate(DataLoader)#x"), ("overhead", ""),
        ("operator", "aten::embedding"), ("python", "model.py(3): load_state_dict"), ("runtime", "cudaMemcpyAsync"),
        ("annotation", "torch/_dynamo/eval_frame.py(1): _fn"), ("operator", "x" * 100_000 + "dataloader.py(1): __next__"),
    ],
)  # fmt: skip
def test_names_that_say_nothing(kind: str, name: str) -> None:
    assert named(kind, name) == {}


@pytest.mark.parametrize(
    ("kind", "name", "work"),
    [
        ("runtime", "cudaFreeHost", "allocation"), ("runtime", "hipFree", "allocation"), ("driver", "cuMemAlloc_v2", "allocation"),
        ("runtime", "cudaMallocAsync", "allocation"), ("runtime", "hipStreamSynchronize", BLOCKING), ("driver", "cuEventSynchronize", BLOCKING),
        ("overhead", "Lazy Function Loading", "compilation"), ("overhead", "CUPTI Unknown", "profiler"),
    ],
)  # fmt: skip
def test_names_of_many_runtimes(kind: str, name: str, work: str) -> None:
    assert named(kind, name) == {name: work}


def gaps(*events: Event) -> list[tuple[object, ...]]:
    return rows(analysed(*events).tables["gaps"], "start_ns", "end_ns")


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


def ending(*events: Event) -> str:
    report = analysed(*events)
    named = report.tables["gaps"].join(report.tables["activities"], on="activity_id").get_column("name")
    return str(named.item())


@pytest.mark.slow
def test_of_activities_that_start_together_the_first_launched_ends_the_gap() -> None:
    first = kernel("first", 0, 5)
    late, early = (kernel(name, 20, 1, correlation=n, stream=s) for name, n, s in (("late", 1, 1), ("early", 2, 9)))
    assert ending(first, late, early, launch(12, 1, 1), launch(10, 1, 2)) == "early"
    assert ending(first, late, early, launch(12, 1, 1)) == "late", "an unknown launch comes last"
    assert ending(first, late, early, launch(10, 1, 1), launch(10, 1, 2, tid=5)) == "late", "then the lowest stream"
    same = [kernel(f"c{n}", 20, 1, correlation=n) for n in (8, 4)]
    assert ending(first, *same) == "c4", "then the lowest correlation"


def test_a_gap_says_what_ended_it_and_what_the_cpu_did() -> None:
    """Kernel a runs in [10, 20), b from 90 on, whose launch begins at 80; until then the CPU is in an operator."""
    report = analysed(launched("a", 0, 10, 10, 1), op("aten::mm", 15, 60), launched("b", 80, 90, 10, 2))
    gap = report.tables["gaps"].row(0, named=True)
    assert (gap["next_activity"], gap["next_launch_ns"], gap["cause"]) == ("b", 80_000, "dispatch")
    assert report.tables["idle"].get_column("host_event").to_list()[0] == "aten::mm"
    unlinked = analysed(kernel("a", 10, 10), kernel("b", 90, 10)).tables["gaps"].row(0, named=True)
    assert (unlinked["next_activity"], unlinked["next_launch_ns"]) == ("b", None)


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


def temporaries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.startswith(".analyze-"))


def killed(folder: Path) -> None:
    """Let a process be killed that writes a file and a folder."""
    done = subprocess.run([sys.executable, "-c", _KILLED, str(folder)], cwd=Path(__file__).parents[1], check=False)
    assert done.returncode == -signal.SIGKILL


def dead_process() -> int:
    """Return the process ID of a process that ran."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def left(folder: Path, machine: str, process: int, age_s: float = 0) -> Path:
    """Create a temporary file of that process, of that age."""
    path = folder / f".analyze-{machine}-{process}-{'0' * 12}.tmp"
    path.write_text("half")
    os.utime(path, (time.time() - age_s,) * 2)
    return path


@pytest.mark.skipif(os.name != "posix", reason="signals are those of Unix")
def test_the_next_run_deletes_what_a_killed_one_left(tmp_path: Path) -> None:
    killed(tmp_path)
    assert len(temporaries(tmp_path)) == 2
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
    path = left(tmp_path, files._machine() if machine == "this" else "0" * 8, number, age_s)
    remove_abandoned(tmp_path)
    assert path.exists() == stays


def test_other_names_links_and_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("text")
    others = (".analyze-x.tmp", ".analyze-00000000-1-zz.tmp", "analyze-00000000-1-000000000000.tmp", ".analyze.tmp")
    for name in others:
        left(tmp_path, "x", 1, 9 * ABANDONED_S).rename(tmp_path / name)
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


# The CPU queues 390 us of work until 30, which the device finishes at 410; the next launch is at 600.
AHEAD = [launched(f"k{i}", 10 * i, 20 + 130 * i, 130, i + 1) for i in range(3)]
LAST = launched("late", 600, 610, 10, 9)
COLUMNS = (
    "start_ns", "end_ns", "queued_work_ns", "idle_ns", "cause", "host_start_ns", "host_end_ns", "name",
    "operator", "source",
)  # fmt: skip


def drained(*events: Any, columns: tuple[str, ...] = COLUMNS) -> list[tuple[Any, ...]]:
    return rows(analysed(*events).tables["drains"], *columns)


def test_the_longest_event_between_the_launches_drained_the_queue() -> None:
    loads = annotation("enumerate(DataLoader)#_It.__next__", 40, 500)
    assert drained(AHEAD, LAST, op("aten::stack", 100, 50), loads) == [
        (280, 605, 260, 195, "data-loading", 25, 600, "enumerate(DataLoader)#_It.__next__", None, None)
    ]  # fmt: skip


def test_many_small_things_name_what_is_around_them() -> None:
    small = [op("aten::mul", 30 + 50 * i, 40) for i in range(11)]
    actual = drained(AHEAD, LAST, python("train.py(3): step", 0, 700), small, columns=("name", "operator"))
    assert actual == [("train.py(3): step", None)]
    assert drained(AHEAD, LAST, annotation("ProfilerStep#1", 0, 700), small, columns=("name",)) == [("aten::mul",)]


def test_a_blocking_call_drains_the_queue_while_the_device_is_busy() -> None:
    item = [op("aten::item", 40, 380), op("aten::_local_scalar_dense", 41, 378), call("cudaStreamSynchronize", 42, 376)]
    actual = drained(AHEAD, LAST, item, columns=("name", "source", "cause", "idle_ns"))
    assert actual == [("aten::item", ".item()", "synchronization", 195)]


def test_a_queue_that_was_never_long_has_not_run_out() -> None:
    assert drained([launched(f"k{i}", 200 * i, 200 * i + 10, 10, i + 1) for i in range(3)]) == []


def test_a_device_that_stays_busy_until_the_next_launch_has_not_idled() -> None:
    assert drained(AHEAD, launched("late", 300, 410, 10, 9)) == []


def test_nothing_recorded_names_nothing() -> None:
    assert drained(AHEAD, launch(600, 5, 9), LAST[1], columns=("idle_ns", "name", "cause")) == [
        (195, None, "host-unknown")
    ]
