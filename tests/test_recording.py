"""Profiler overhead: per event, per gap, and whether the verdict stays without it."""

import polars as pl
import pytest
from kineto import analysed, annotation, call, launched, loaded, op, overhead, python
from test_verdict import parts_of

from trace_analyzer.analyses.host import host_of
from trace_analyzer.analyses.profiler_overhead import ProfilerOverhead, event_costs
from trace_analyzer.errors import UsageError
from trace_analyzer.report import Debiased, Report
from trace_analyzer.verdict import debiased

GEMM = "ampere_fp16_s16816gemm_fp16_128x64"


def frames(count: int, start: float, apart: float, *, lasts: float = 0.1) -> list[object]:
    """Build Python frames one after the other."""
    return [python(f"a.py({n % 9}): f", start + apart * n, lasts) for n in range(count)]


def unbiased(report: Report) -> Debiased:
    assert report.verdict.debiased is not None
    return report.verdict.debiased


def test_events_that_follow_each_other_show_the_cost() -> None:
    quick, slow = frames(30, 0, 0.4), frames(30, 100, 0.9)
    nested = [python("outer", 200, 90), *(op("aten::add", 201 + 2 * n, 1) for n in range(30))]
    costs = event_costs(host_of(loaded(quick, slow, nested)))
    assert costs.rows() == [("operator", 2_000, 2_000), ("python", 400, 400)]


def lookups(count: int, start: float, apart: float, *, category: str = "cuda_runtime") -> list[object]:
    """Build calls that look something up, one after the other."""
    name = "cudaDeviceGetAttribute" if category == "cuda_runtime" else "cuCtxGetCurrent"
    return [call(name, start + apart * n, 0.1, category=category) for n in range(count)]


def test_calls_that_look_something_up_show_what_recording_a_call_costs() -> None:
    """The slow half are calls that do other work before the next call: they show no cost of recording."""
    busy = [call("cudaFuncSetAttribute", 100 + 0.3 * n, 0.05) for n in range(60)]
    costs = event_costs(host_of(loaded(lookups(16, 0, 0.6), lookups(16, 50, 0.6, category="cuda_driver"), busy)))
    assert costs.rows() == [("runtime", 600, 600)]
    assert event_costs(host_of(loaded(busy))).is_empty()


def test_runtime_calls_delay_a_launch_too() -> None:
    """Between two launches 60 lookups at 600 ns and the launch itself: of 66 us before the launch, 36.6 us are recording."""
    loop = [
        [lookups(60, 100 * n, 0.6), launched(GEMM, 100 * n + 52, 100 * n + 58, 30, n + 1)] for n in range(12)
    ]  # fmt: skip
    estimate = unbiased(analysed(loop))
    assert estimate.event_cost_ns == {"runtime": 600}
    assert estimate.events == 11 * 61
    assert estimate.removed_ns == 11 * 61 * 600
    assert "600 ns per runtime call" in estimate.why


def test_a_kind_of_event_that_a_coarse_clock_measures_as_nothing_is_not_named() -> None:
    """Frames are 1 us apart; of lookups, most begin in the same microsecond as the one before."""
    loop = [
        [frames(20, 100 * n, 1), [call("cudaDeviceGetAttribute", 100 * n + 30, 0) for _ in range(20)],
         launched(GEMM, 100 * n + 52, 100 * n + 58, 30, n + 1)]
        for n in range(12)
    ]  # fmt: skip
    why = unbiased(analysed(loop)).why
    assert "1 us per Python frame" in why
    assert "0 ns" not in why
    assert "query state" not in why


def test_no_cost_at_all_is_below_the_clock() -> None:
    loop = [
        [[call("cudaDeviceGetAttribute", 100 * n + 30, 0) for _ in range(20)], launched(GEMM, 100 * n + 52, 100 * n + 58, 30, n + 1)]
        for n in range(12)
    ]  # fmt: skip
    assert "each in less than the trace's clock resolves" in unbiased(analysed(loop)).why


def test_few_events_show_nothing_and_slow_ones_no_least() -> None:
    few, slow = frames(15, 0, 0.4), [op("aten::add", 100 + 8 * n, 7) for n in range(30)]
    assert event_costs(host_of(loaded(few, slow))).rows() == [("operator", 0, 3_000)]


def late(count: int = 12, *, events: int = 100, period: float = 100.0, busy: float = 30.0) -> list[object]:
    """Build iterations in which ``events`` Python frames, 0.5 us each, stand before a launch."""
    return [
        [frames(events, period * n, 0.5), launched(GEMM, period * n + 0.5 * events + 2, period * n + 0.5 * events + 8, busy, n + 1)]
        for n in range(count)
    ]  # fmt: skip


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


@pytest.mark.slow
def test_what_delayed_a_launch_counts_once_where_launches_are_out_of_order() -> None:
    """Kernel 5 starts before its launch, which comes after that of kernel 6 (and is of step 7): nothing is left to delay
    kernel 6.
    """
    rows = [[annotation(f"ProfilerStep#{n}", 100 * n, 99.9), *iteration] for n, iteration in enumerate(late(120))]
    rows[5] = [annotation("ProfilerStep#5", 500, 99.9), frames(100, 500, 0.5), launched(GEMM, 720, 558, 30, 6)]
    events = [unbiased(analysed(rows, step=n)).events for n in (6, 7)]
    assert events == [240, 60]


def test_it_takes_no_more_than_the_host_s_part_of_the_gap() -> None:
    report = analysed(late(events=160, busy=85.0))
    slowed = sum(report.verdict.parts_ns[cause] for cause in ("python", "host-unknown", "runtime-call"))
    assert unbiased(report).removed_ns == slowed


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


# Whether the verdict stays


def taken(least: int, most: int) -> ProfilerOverhead:
    return ProfilerOverhead("estimated", {"python": most}, {"python": least}, {"python": (200, 500)}, events=3)


@pytest.mark.parametrize(
    ("least", "most", "survives", "regime"),
    [(10, 20, True, "overhead-bound"), (10, 60, None, "compute-bound"), (50, 60, False, "compute-bound")],
)
def test_it_survives_or_not_or_is_not_known(least: int, most: int, survives: bool | None, regime: str) -> None:
    estimate = debiased(parts_of(python=70, compute=50), taken(least, most))
    assert estimate is not None
    assert (estimate.survives, estimate.regime, estimate.removed_ns, estimate.least_removed_ns) == (
        survives,
        regime,
        most,
        least,
    )
    assert sum(estimate.parts_ns.values()) == estimate.window_ns == 120 - most


def test_without_a_regime_or_a_recording_there_is_nothing_to_say() -> None:
    assert debiased(parts_of(other=7), taken(1, 2)) is None
    assert debiased(parts_of(python=7), None) is None


# Measured


def steps(count: int = 12, busy: float = 30.0) -> list[object]:
    return [
        late(count, busy=busy),
        [annotation(f"ProfilerStep#{n}", 100 * n - 1 if n else 0, 99) for n in range(count)],
    ]


@pytest.mark.slow
def test_the_measured_step_says_it_exactly() -> None:
    report = analysed(steps(), measured_step_ms=0.060)
    estimate = unbiased(report)
    assert (estimate.method, estimate.survives, estimate.regime) == ("measured", True, "overhead-bound")
    assert estimate.window_ns == pytest.approx(11 * 60_000, rel=0.001), "eleven steady steps"
    assert estimate.removed_ns == estimate.least_removed_ns
    assert "60 us without the profiler, 100 us with it" in estimate.why
    quick = unbiased(analysed(steps(), measured_step_ms=0.040))
    assert (quick.survives, quick.regime) == (False, "compute-bound")


def test_a_measured_step_that_is_no_shorter_takes_nothing() -> None:
    estimate = unbiased(analysed(steps(), measured_step_ms=0.2))
    assert (estimate.removed_ns, estimate.survives) == (0, True)


def test_what_the_cpu_s_idle_time_cannot_explain_is_reported() -> None:
    estimate = unbiased(analysed(steps(), measured_step_ms=0.01))
    assert "is not idle time caused by the CPU" in estimate.why


def test_a_measured_step_needs_steps() -> None:
    kernels = [launched(f"kernel {n % 5}", 100 * n, 100 * n + 10, 50, n + 1) for n in range(3)]
    with pytest.raises(UsageError, match="has none"):
        analysed(kernels, measured_step_ms=1.0)


@pytest.mark.slow
def test_the_whole_trace_counts_the_steps_that_worked() -> None:
    estimate = unbiased(analysed(steps(), step="all", measured_step_ms=0.060))
    table = analysed(steps()).tables["steps"]
    total = table.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    assert estimate.removed_ns == pytest.approx(total - 12 * 60_000, rel=0.001)
