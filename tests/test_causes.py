"""Test causes of idle time: each rule and each cause, with answers worked out by hand (microseconds)."""

from pathlib import Path
from typing import Any

import pytest
from kineto import (
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
    op,
    overhead,
    python,
)

from trace_analyzer.analyses.earlier_work import recording_pauses
from trace_analyzer.vocabulary import IDLE_CAUSES, WITHHELD

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


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], [(20, 80, "host-unknown")]),
        ([python("train.py(1): f", 0, 99)], [(20, 80, "python")]),
        ([op("aten::mm", 30, 20)], [(20, 30, "host-unknown"), (30, 50, "dispatch"), (50, 80, "host-unknown")]),
        (
            [call("cudaGetDevice", 30, 20)],
            [(20, 30, "host-unknown"), (30, 50, "runtime-call"), (50, 80, "host-unknown")],
        ),
        (
            [python("f", 0, 99), op("aten::mm", 30, 40), call("cudaGetDevice", 40, 10)],
            [
                (20, 30, "python"),
                (30, 40, "dispatch"),
                (40, 50, "runtime-call"),
                (50, 70, "dispatch"),
                (70, 80, "python"),
            ],
        ),
        # A call that begins and ends with its operator is inside it, whichever comes first in the file.
        (
            [op("aten::mm", 30, 20), call("cudaGetDevice", 30, 20)],
            [(20, 30, "host-unknown"), (30, 50, "runtime-call"), (50, 80, "host-unknown")],
        ),
        (
            [call("cudaGetDevice", 30, 20), op("aten::mm", 30, 20)],
            [(20, 30, "host-unknown"), (30, 50, "runtime-call"), (50, 80, "host-unknown")],
        ),
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
    assert parts(A, soon, call("cudaDeviceSynchronize", 6, 16)) == [
        (20, 24, "synchronization"),
        (24, 40, "launch-latency"),
    ]


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
    """Check that the launch latency is the one that the trace shows on an empty queue.

    149 launches take 7 us from the call's end to the start, so the 150th is late after 7 us, not after 100.
    """
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
    files = ("test_causes.py", "test_graph_capture.py", "test_earlier_work.py")
    text = "".join(Path(__file__).with_name(name).read_text("utf-8") for name in files)
    assert [cause for cause in IDLE_CAUSES if f'"{cause}"' not in text] == [WITHHELD], (
        "that one is of tests/test_checks.py"
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
