"""Host costs (blocking calls, data loaders and others) with their code, worked out by hand (microseconds)."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from kineto import Event, analysed, annotation, call, copy, launched, loaded, op, overhead, python, rows
from test_advice import NCCL
from test_verdict import parts_of

from trace_analyzer import errors
from trace_analyzer.analyses.host import host_of
from trace_analyzer.analyses.profiler_overhead import ProfilerOverhead, event_costs, measured
from trace_analyzer.report import Debiased, Report
from trace_analyzer.verdict import judge

pytestmark = pytest.mark.slow

A, B = launched("a", 0, 10, 10, 1), launched("b", 80, 90, 10, 2)
LOADS, COMPILES = "enumerate(DataLoader)#_It.__next__", "torch/_dynamo/convert_frame.py(1180): _compile"


COST = ("kind", "source", "count", "host_ns", "idle_ns")


def costs(*events: Any, columns: tuple[str, ...] = COST) -> list[tuple[Any, ...]]:
    return rows(analysed(*events).tables["host_costs"], *columns)


def item(start: float) -> list[Event]:
    return [
        op("aten::item", start, 20), op("aten::_local_scalar_dense", start + 1, 18), call("cudaStreamSynchronize", start + 3, 15)
    ]  # fmt: skip


def test_a_blocking_call_costs_the_drain_that_it_leaves_behind() -> None:
    """In [8, 23) it waits 10 us for kernel a, and so delays everything after kernel a by 10 us."""
    columns = ("kind", "source", "name", "operator", "python_function", "count", "host_ns", "hidden_ns", "idle_ns")
    assert costs(A, B, item(5), python("train.py(3): main", 0, 200), columns=columns) == [
        ("synchronization", ".item()", "cudaStreamSynchronize", "aten::_local_scalar_dense", "train.py(3): main", 1, 15, 10, 10)
    ]  # fmt: skip
    busy = [launched("a", 0, 10, 50, 1), launched("b", 6, 60, 10, 2), item(20)]
    assert costs(busy) == [("synchronization", ".item()", 1, 15, 0)], (
        "behind a busy device nothing idles after the call"
    )
    twice = costs(A, B, item(5), call("cudaStreamSynchronize", 18.5, 1))
    assert twice[0][:3] == ("synchronization", ".item()", 1), "two calls of one item count once"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("around", "source"),
    [
        ([op("aten::nonzero", 4, 30)], "nonzero"),
        ([op("aten::index", 3, 40), op("aten::nonzero", 4, 30)], "indexing"),
        ([python("torch/_tensor_str.py(120): __init__", 2, 50), op("aten::nonzero", 4, 30)], "print of a tensor"),
        ([op("aten::is_nonzero", 3, 40), op("aten::item", 4, 30)], "a tensor as a condition"),
        ([op("aten::to", 3, 40), op("aten::_to_copy", 4, 30), op("aten::copy_", 5, 28)], ".cpu(), .to() or .copy_()"),
        ([python("torch/cuda/__init__.py(792): synchronize", 3, 40)], "torch.cuda.synchronize()"),
        ([], "stream or event .synchronize()"),
    ],
)
def test_what_a_person_wrote(around: list[Event], source: str) -> None:
    (actual,) = costs(A, B, *around, call("cudaStreamSynchronize", 8, 15))
    assert actual[:2] == ("synchronization", source)


def test_pageable_copies_tell_what_they_copied() -> None:
    copied = copy("HtoD (Pageable -> Device)", 30, 5, correlation=3)
    blocking = [op("aten::copy_", 24, 40), call("cudaMemcpyAsync", 25, 30, correlation=3), copied]
    actual = costs(A, B, blocking, columns=("kind", "source", "copy", "host_ns", "idle_ns"))
    assert ("blocking-copy", ".cpu(), .to() or .copy_()", "HtoD (Pageable -> Device)", 30, 20) in actual
    short = [
        [op("aten::copy_", at, 4), call("cudaMemcpyAsync", at, 3, correlation=at), copy("DtoH (Device -> Pageable)", at + 1, 1, correlation=at)]
        for at in (100, 110)
    ]  # fmt: skip
    assert costs(A, B, blocking, short, columns=("name", "copy", "count", "host_ns"))[0] == (
        "cudaMemcpyAsync", "DtoH (Device -> Pageable)", 3, 36,
    ), "of the copies of one place, the most frequent"  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "kind", "name"),
    [
        ([annotation(LOADS, 30, 40), op("aten::stack", 35, 10)], "data-loading", LOADS),
        (
            [annotation(LOADS, 30, 40), python("torch/utils/data/dataloader.py(700): __next__", 32, 30)],
            "data-loading",
            LOADS,
        ),
        ([call("cudaMalloc", 30, 40)], "allocation", "cudaMalloc"),
        ([annotation("Python GC", 30, 40)], "garbage-collection", "Python GC"),
        ([python(COMPILES, 30, 40)], "compilation", COMPILES),
        ([overhead("Lazy Function Loading", 30, 40)], "compilation", "Lazy Function Loading"),
        ([op("aten::mm", 25, 50), overhead("Lazy Function Loading", 30, 40)], "compilation", "Lazy Function Loading"),
        ([overhead("Buffer Flush", 30, 40)], "profiler", "Buffer Flush"),
    ],
)
def test_named_work_counts_once(events: list[Event], kind: str, name: str) -> None:
    actual = costs(A, B, *events, columns=("kind", "name", "count", "host_ns", "idle_ns"))
    assert actual == [(kind, name, 1, 40, 40)]


def test_a_slow_first_launch_is_the_compilation_of_its_operator_and_cpu_operators_are_named() -> None:
    ordinary = [launched("k", 10_000 + 20 * i, 10_010 + 20 * i, 5, 10 + i) for i in range(5)]
    first = [op("aten::conv2d", 30, 5_000), launched("b", 40, 4_050, 10, 2, takes=4_000)]
    actual = costs(A, *ordinary, first, columns=("kind", "name", "operator", "host_ns", "idle_ns"))
    assert ("compilation", "cudaLaunchKernel", "aten::conv2d", 4_000, 4_000) in actual
    sort = [op("aten::sort", 100, 2_000), launched("b", 3_000, 3_010, 10, 2)]
    assert costs(A, sort, columns=("kind", "operator", "host_ns", "idle_ns")) == [
        ("cpu-operator", "aten::sort", 2_000, 2_000)
    ]


def region(version: str, start: float) -> Event:
    return op(f"Torch-Compiled Region: {version}", start, 5)


def recompiled(*events: Any, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    table = analysed(A, B, *events).tables["host_costs"]
    return rows(table.filter(pl.col("kind") == "recompilation"), *columns)


def test_recompilations_are_read_from_the_names_of_regions() -> None:
    regions = [region("0/0", 30), region("0/3", 40), region("1/0", 50), region("1/99999999999999999999", 60)]
    actual = recompiled(*regions, columns=("name", "count", "host_ns", "idle_ns", "start_ns"))
    assert actual == [("Torch-Compiled Region: 0/3", 3, None, None, 40)], "compiled before the recording began"
    other = [python(COMPILES, 28, 10), region("1/0", 40), region("0/2", 50)]
    actual = recompiled(*other, columns=("name", "host_ns", "start_ns"))
    assert actual == [("Torch-Compiled Region: 0/2", None, 50)], "what was compiled is something else"


def test_a_recompilation_has_the_time_and_the_code_of_what_was_compiled_before_its_first_run() -> None:
    """Of [28, 48) all is idle; the compilation before the region ran first is not that of its second version."""
    events = [
        python("train.py(7): step", 0, 200), python(COMPILES, 1, 7), region("0/0", 21), python(COMPILES, 28, 20),
        region("0/1", 50), region("0/1", 60), region("0/0", 70),
    ]  # fmt: skip
    columns = ("source", "name", "python_function", "count", "host_ns", "idle_ns", "start_ns", "end_ns")
    assert recompiled(*events, columns=columns) == [
        ("torch.compile", "Torch-Compiled Region: 0/1", "train.py(7): step", 1, 20, 20, 28, 48)
    ]
    assert costs(A, B, *events)[0] == ("compilation", None, 2, 27, 20), "its time is the compilation's as well"


def test_guards_cost_all_idle_time_in_their_lookups() -> None:
    """From 30 to 60 the guards are looked up; a Python function runs in it, and an operator."""
    lookup = [op("TorchDynamo Cache Lookup", 30, 30), python("guard.py(2): check", 35, 10), op("aten::size", 50, 5)]
    table = analysed(A, B, lookup, python("train.py(7): step", 0, 200)).tables["host_costs"]
    columns = ("kind", "name", "operator", "python_function", "count", "host_ns", "hidden_ns", "idle_ns")
    assert rows(table, *columns) == [
        ("guards", "TorchDynamo Cache Lookup", "TorchDynamo Cache Lookup", "train.py(7): step", 1, 30, 0, 30)
    ]


GEMM = "ampere_fp16_s16816gemm_fp16_128x64"


def frames(count: int, start: float, apart: float) -> list[Event]:
    return [python(f"a.py({n % 9}): f", start + apart * n, 0.1) for n in range(count)]


def attributes(count: int, start: float, apart: float = 0) -> list[Event]:
    """Build runtime calls that look something up, one after the other or at once."""
    return [call("cudaDeviceGetAttribute", start + apart * n, 0.1 if apart else 0) for n in range(count)]


def iterations(before: Callable[[int], list[Event]], count: int = 12) -> list[Any]:
    """Build iterations of 100 us, in which something stands before a launch."""
    return [[before(100 * n), launched(GEMM, 100 * n + 52, 100 * n + 58, 30, n + 1)] for n in range(count)]


def unbiased(report: Report) -> Debiased:
    assert report.verdict.debiased is not None
    return report.verdict.debiased


def launches(name: str, takes: float) -> list[Event]:
    return [call(name, 200 * n, takes) for n in range(20)]


BUSY = [call("cudaFuncSetAttribute", 100 + 0.3 * n, 0.05) for n in range(60)]
ADDS = [python("outer", 200, 90), *(op("aten::add", 201 + 2 * n, 1) for n in range(30))]
CONTEXTS = [call("cuCtxGetCurrent", 50 + 0.6 * n, 0.1, category="cuda_driver") for n in range(16)]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([frames(30, 0, 0.4), frames(30, 100, 0.9), ADDS], [("operator", 2_000, 2_000), ("python", 400, 400)]),
        # few events show nothing, and slow ones no least
        ([frames(15, 0, 0.4), [op("aten::add", 100 + 8 * n, 7) for n in range(30)]], [("operator", 0, 3_000)]),
        # calls that do other work before the next call show no cost of recording
        ([attributes(16, 0, 0.6), CONTEXTS, BUSY], [("runtime", 600, 600)]),
        ([BUSY], []),
        # a launch costs 0.6 to 1.8 times its duration, 13 us at most; copies and graphs count as other calls
        ([launches("cuLaunchKernel", 5), launches("cudaGraphLaunch", 1)], [("launch", 3_000, 9_000)]),
        ([launches("cudaLaunchKernelExC", 100)], [("launch", 0, 13_000)]),
        ([launches("cudaMemcpyAsync", 5)], []),
    ],
)
def test_events_that_follow_each_other_show_the_cost(events: list[Any], expected: list[tuple[Any, ...]]) -> None:
    assert event_costs(host_of(loaded(events))).rows() == expected


def test_runtime_calls_delay_a_launch_too() -> None:
    """Between two launches 60 lookups at 600 ns and the launch itself: of 66 us before the launch, 36.6 us are recording."""
    estimate = unbiased(analysed(iterations(lambda at: attributes(60, at, 0.6))))
    assert estimate.event_cost_ns == {"runtime": 600}
    assert estimate.events == 11 * 61
    assert estimate.removed_ns == 11 * 61 * 600
    assert "600 ns per runtime call" in estimate.why


def test_a_kind_of_event_that_a_coarse_clock_measures_as_nothing_is_not_named() -> None:
    """Frames are 1 us apart; of lookups, most begin in the same microsecond as the one before."""
    why = unbiased(analysed(iterations(lambda at: [*frames(20, at, 1), *attributes(20, at + 30)]))).why
    assert "1 us per Python frame" in why
    assert "0 ns" not in why
    assert "query state" not in why
    why = unbiased(analysed(iterations(lambda at: attributes(20, at + 30)))).why
    assert "each in less than the trace's clock resolves" in why


def late(count: int = 12, *, events: int = 100, busy: float = 30.0) -> list[list[Any]]:
    """Build iterations in which ``events`` Python frames, 0.5 us each, stand before a launch."""
    half = 0.5 * events
    return [
        [frames(events, 100 * n, 0.5), launched(GEMM, 100 * n + half + 2, 100 * n + half + 8, busy, n + 1)]
        for n in range(count)
    ]


def test_a_late_launch_is_late_by_the_events_since_the_previous_one() -> None:
    """Between two launches 100 frames at 500 ns: of the gap's 66 us before the launch, 50 us are recording."""
    report = analysed(late())
    estimate = unbiased(report)
    assert estimate.method == "estimated"
    assert estimate.event_cost_ns == {"python": 500}
    assert estimate.events == 11 * 100
    gap = report.tables["gaps"].row(1, named=True)
    assert gap["duration_ns"] == 70_000
    assert estimate.removed_ns == 11 * 50_000
    assert estimate.window_ns + estimate.removed_ns == sum(report.verdict.parts_ns.values())


def test_what_delayed_a_launch_counts_once_where_launches_are_out_of_order() -> None:
    """Kernel 5 starts before its launch, which comes after that of kernel 6 (and is of step 7): nothing is left to delay
    kernel 6.
    """
    rows = [[annotation(f"ProfilerStep#{n}", 100 * n, 99.9), *iteration] for n, iteration in enumerate(late(120))]
    rows[5] = [annotation("ProfilerStep#5", 500, 99.9), frames(100, 500, 0.5), launched(GEMM, 720, 558, 30, 6)]
    events = [unbiased(analysed(rows, step=n)).events for n in (6, 7)]
    assert events == [242, 61]


def test_it_takes_no_more_than_the_host_s_part_of_the_gap() -> None:
    report = analysed(late(events=160, busy=85.0))
    slowed = sum(report.verdict.parts_ns[cause] for cause in ("python", "host-unknown", "runtime-call"))
    assert unbiased(report).removed_ns == slowed


def test_what_one_gap_cannot_take_the_next_one_can_until_the_cpu_waits() -> None:
    """Of 36.6 us per launch a gap of 7 us takes the 1 us before the launch, the next one all 64 us before its own."""
    uneven = [
        [attributes(60, 100 * n, 0.6), launched(GEMM, 100 * n + 52, 100 * n + 58, 93 if n % 2 else 30, n + 1)]
        for n in range(12)
    ]
    assert unbiased(analysed(uneven)).removed_ns == 36_600 + 5 * (1_000 + 64_000)
    waits = [call("cudaDeviceSynchronize", 200 * n + 90, 1) for n in range(6)]
    assert unbiased(analysed(uneven, waits)).removed_ns == 5 * 1_000 + 6 * 36_000


def test_what_a_blocking_call_waited_for_is_not_recording() -> None:
    waits = [call("cudaDeviceSynchronize", 100 * n + 40.2, 1.5) for n in range(12)]
    assert unbiased(analysed(late(events=80), waits)).events == 0
    early = [call("cudaDeviceSynchronize", 100 * n + 10.1, 0.2) for n in range(12)]
    assert unbiased(analysed(late(events=80), early)).events == 11 * 59, "frames from 10.3 us on"


def test_threads_that_launch_nothing_do_not_count() -> None:
    loader = [python(f"worker.py({n % 9}): load", 0.5 * n, 0.1, tid=200) for n in range(2_000)]
    alone, beside = unbiased(analysed(late())), unbiased(analysed(late(), loader))
    assert (alone.events, alone.removed_ns) == (beside.events, beside.removed_ns)


def test_the_profiler_s_own_rows_go_altogether() -> None:
    report = analysed(late(), overhead("Buffer Flush", 200, 20))
    assert report.verdict.parts_ns["profiler"] == 20_000
    assert unbiased(report).parts_ns["profiler"] == 0


def taken(least: int, most: int) -> ProfilerOverhead:
    return ProfilerOverhead("estimated", {"python": most}, {"python": least}, {"python": (200, 500)}, events=3)


@pytest.mark.parametrize(
    ("least", "most", "survives", "regime"),
    [(10, 20, True, "overhead-bound"), (10, 60, None, "compute-bound"), (50, 60, False, "compute-bound")],
)
def test_it_survives_or_not_or_is_not_known(least: int, most: int, survives: bool | None, regime: str) -> None:
    estimate = judge.debiased(parts_of(python=70, compute=50), taken(least, most))
    actual = (estimate.survives, estimate.regime, estimate.removed_ns, estimate.least_removed_ns)
    assert actual == (survives, regime, most, least)
    assert sum(estimate.parts_ns.values()) == estimate.window_ns == 120 - most
    assert judge.debiased(parts_of(other=7), taken(1, 2)) is None, "without a regime"
    assert judge.debiased(parts_of(python=7), None) is None, "without a recording"


def steps() -> list[object]:
    return [late(), [annotation(f"ProfilerStep#{n}", 100 * n - 1 if n else 0, 99) for n in range(12)]]


def test_the_measured_step_says_it_exactly() -> None:
    report = analysed(steps(), measured_step_ms=0.060)
    estimate = unbiased(report)
    assert (estimate.method, estimate.survives, estimate.regime) == ("measured", True, "overhead-bound")
    assert estimate.window_ns == pytest.approx(11 * 60_000, rel=0.001), "eleven steady steps"
    assert estimate.removed_ns == estimate.least_removed_ns
    assert "60 us without the profiler, 100 us with it" in estimate.why
    quick = unbiased(analysed(steps(), measured_step_ms=0.031))
    assert (quick.survives, quick.regime) == (False, "compute-bound")


def test_waits_for_peers_take_what_the_cpu_does_not_explain() -> None:
    """Of 3 ns that 6 ns of the CPU explain, each of two causes rounds 1.5 to 2: nothing remains."""
    idle = pl.DataFrame({"device": [0, 0], "start_ns": [0, 5], "end_ns": [3, 8], "cause": ["python", "dispatch"]})
    windows = pl.DataFrame({"device": [0], "window": [0], "start_ns": [0], "end_ns": [13]})
    rounded = measured(idle, windows, {0: (13, 1)}, 10)[0]
    assert (rounded.taken_ns, rounded.rest_ns) == ({"dispatch": 2, "python": 2}, 0)
    left = rounded._replace(rest_ns=20)
    assert [left.with_waits(ns).peers_ns for ns in (0, 15, 30)] == [0, 15, 20]
    assert left.with_waits(15).taken_ns == {"dispatch": 2, "python": 2, "communication": 15}


def test_a_measured_step_that_is_no_shorter_takes_nothing_and_one_too_short_is_reported() -> None:
    estimate = unbiased(analysed(steps(), measured_step_ms=0.2))
    assert (estimate.removed_ns, estimate.survives) == (0, True)
    estimate = unbiased(analysed(steps(), measured_step_ms=0.01))
    assert "is more than the CPU's idle time explains" in estimate.why


@pytest.mark.parametrize(("ranks", "regime"), [(8, "compute-bound"), (1, "communication-bound")])
def test_what_else_recording_took_may_be_waiting_for_peers(ranks: int, regime: str) -> None:
    """Of 100 us a step, a collective of microseconds takes 60; without the profiler a step takes 50: peers were late."""
    reduce = {"Collective name": "allreduce", "In msg nelems": 1_000, "dtype": "Float", "Group size": ranks}
    events = [
        [annotation(f"ProfilerStep#{n}", t, 99), op("aten::mm", t + 1, 8), op("record_param_comms", t + 11, 9, **reduce),
         launched(GEMM, t + 3, t + 9, 30, 2 * n + 1), launched(NCCL, t + 13, t + 39, 60, 2 * n + 2)]
        for n, t in enumerate(range(0, 1_200, 100))
    ]  # fmt: skip
    report = analysed(events, measured_step_ms=0.050)
    assert analysed(events).verdict.regime == "communication-bound"
    assert (report.verdict.regime, report.verdict.levers) == (regime, ())
    assert ("may be waiting for peers" in unbiased(report).why) == (ranks > 1)
    assert all(item.predicted is None for item in report.advice), "the replay knows no such step"


def test_a_measured_step_needs_steps() -> None:
    kernels = [launched(f"kernel {n % 5}", 100 * n, 100 * n + 10, 50, n + 1) for n in range(3)]
    with pytest.raises(errors.UsageError, match="has none"):
        _ = analysed(kernels, measured_step_ms=1.0).verdict


def test_the_whole_trace_counts_the_steps_that_worked() -> None:
    estimate = unbiased(analysed(steps(), step="all", measured_step_ms=0.060))
    table = analysed(steps()).tables["steps"]
    total = table.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    assert estimate.removed_ns == pytest.approx(total - 12 * 60_000, rel=0.001)
