"""Test the verdict's window: steps that are proven, edges without work, and what a window leaves out (microseconds)."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st
from kineto import analysed, annotation, call, copy, kernel, launch, launched, op, python

from trace_analyzer.analyses.left_out import LeftOut, RecordedSpan
from trace_analyzer.frames.intervals import cut_out
from trace_analyzer.report import Report
from trace_analyzer.verdict.decide import _left_out_words

pytestmark = pytest.mark.slow

GEMM = "ampere_sgemm_128x64_tn"


# What lies beside the device's work


def prepared(name: str, until: int, **options: Any) -> Report:
    """Analyse an operator of ``until`` us on the launching thread before the device's first work, which takes 10 ms."""
    work = [launched(GEMM if n % 3 else "relu", until + 100 * n, until + 100 * n + 10, 85, n + 10) for n in range(100)]
    return analysed(op(name, 0, until), work, **options)


def test_what_was_recorded_before_the_devices_work_is_reported_with_its_name() -> None:
    report = prepared("my::preprocess", 20_000)
    sentence = "The window leaves out 67 % of the trace: 20.0 ms of 30.0 ms before the device's first work, most of it in my::preprocess."
    assert sentence in report.verdict.headline
    assert report.verdict.confidence != "high"
    assert "67 % of the trace lies outside of the window" in report.verdict.confidence_why
    text, page = report.summary(), report.to_markdown()
    assert "9.98 of 30.0 ms traced" in text
    assert "9.98 of 30.0 ms traced, from the first device work to the last" in page


@pytest.mark.parametrize(
    ("name", "until", "says"),
    [("my::preprocess", 20_000, True), ("my::preprocess", 5_000, False), ("my::load", 20_000, False)],
)
def test_inputs_prepared_before_the_devices_work_are_the_first_to_speed_up(name: str, until: int, says: bool) -> None:
    headline = prepared(name, until).verdict.headline
    assert ("If each call begins with that, speed it up first." in headline) is says


def test_inputs_that_took_less_than_what_came_after_the_devices_work_are_not_the_first_to_speed_up() -> None:
    work = [launched(GEMM if n % 3 else "relu", 8_000 + 100 * n, 8_010 + 100 * n, 85, n + 10) for n in range(100)]
    headline = analysed(op("my::preprocess", 0, 8_000), work, op("my::save", 18_100, 20_000)).verdict.headline
    assert "after the device's last work, most of it in my::save" in headline
    assert "speed it up first" not in headline


def test_a_step_is_no_name_of_what_came_before() -> None:
    assert ": 20.0 ms of 30.0 ms before the device's first work." in prepared("ProfilerStep#3", 20_000).verdict.headline


def test_less_than_half_beside_the_devices_work_changes_no_verdict() -> None:
    report = prepared("my::preprocess", 5_000)
    assert "leaves out" not in report.verdict.headline
    assert "9.98 of 15.0 ms traced" in report.summary()


def test_what_is_left_out_elsewhere_is_told_beside_the_largest_part() -> None:
    left = LeftOut(60, 100, False, {"compute": 20}, 0, RecordedSpan((0, 100), (35, 95), "prepare"))
    before = "before the device's first work, most of it in prepare"
    assert _left_out_words(left, breaks_off=False) == f"35 ns of 100 ns {before}, and 25 ns elsewhere"
    most = LeftOut(60, 100, False, {"compute": 10}, 0, RecordedSpan((0, 100), (58, 98), "prepare"))
    assert _left_out_words(most, breaks_off=False) == f"58 ns of 100 ns {before}"
    inside = LeftOut(60, 100, False, {"compute": 40}, 0, RecordedSpan((0, 100), (12, 92), "prepare"))
    assert _left_out_words(inside, breaks_off=False) == "40 ns of 100 ns (compute-bound), and 20 ns elsewhere"


def test_other_threads_tell_nothing_of_what_came_before() -> None:
    work = [launched(GEMM, 100 * n, 100 * n + 10, 85, n + 10) for n in range(100)]
    assert "leaves out" not in analysed(work, op("aten::idle", 0, 90_000, tid=77)).verdict.headline


# Edges without work


def edged(*events: object, **options: Any) -> Report:
    """Analyse work in [20 ms, 30 ms), without rhythm, and other events as given."""
    work = [launched(GEMM if n % 3 else "relu", 20_000 + 100 * n, 20_010 + 100 * n, 80 + n % 5, n + 10) for n in range(100)]  # fmt: skip
    return analysed(*events, work, **options)


def tiny(at: int, correlation: int) -> list[object]:
    return [call("cudaMemcpyAsync", at, 3, correlation=correlation), copy("HtoD (Pinned -> Device)", at + 5, 2, correlation=correlation)]  # fmt: skip


def window(report: Report) -> tuple[str, tuple[tuple[int, int], ...]]:
    return report.verdict.window.kind, report.verdict.window.intervals


def test_idle_time_before_the_first_real_work_is_trimmed_and_reported() -> None:
    report = edged(tiny(0, 1))
    kind, ((start, end),) = window(report)
    assert (kind, start) == ("trimmed", 20_010_000)
    assert report.devices[0].window_ns == end - 5_000
    (note,) = (note for note in report.notes if note.code == "trimmed-window")
    assert "20.0 ms before its first real work" in note.message
    assert "the window from the first work to the last" in report.verdict.headline
    assert "The window leaves out 67 % of the trace: 20.0 ms of 30.0 ms (cold start)." in report.verdict.headline
    assert report.verdict.confidence != "high"
    assert sum(report.verdict.parts_ns.values()) == end - start
    assert "of 30.0 ms traced, from the first device work to the last, without idle edges" in report.to_markdown()


@pytest.mark.parametrize(
    ("events", "start_ns", "end_ns"),
    [
        ([tiny(60_000, 1)], 10_000, 9_994_000),
        # Several small copies are no work.
        ([tiny(0, 1), tiny(500, 2), tiny(15_000, 3), tiny(40_000, 4), tiny(50_000, 5)], 20_010_000, 29_994_000),
    ],
)
def test_idle_time_beside_real_work_is_trimmed(events: list[object], start_ns: int, end_ns: int) -> None:
    assert window(edged(*events)) == ("trimmed", ((start_ns, end_ns),))


@pytest.mark.sampled
@pytest.mark.parametrize(
    "events",
    [
        [tiny(19_000, 1)],  # under a tenth of the window
        [launched(GEMM, 0, 10, 500, 1)],  # real work
        [tiny(0, 1), annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 100, 19_800)],
        [tiny(0, 1), call("cudaMalloc", 100, 19_800)],
        [tiny(0, 1), python("torch/_dynamo/convert_frame.py(1180): _compile", 100, 19_800)],
    ],
    ids=["short", "work", "loading data", "allocating", "compiling"],
)
def test_what_is_not_trimmed(events: list[object]) -> None:
    report = edged(*events)
    assert window(report)[0] == "whole"
    assert not any(note.code == "trimmed-window" for note in report.notes)


def test_a_window_that_is_asked_for_is_not_trimmed() -> None:
    assert window(edged(tiny(0, 1), step="all"))[0] == "whole"
    assert window(edged(tiny(0, 1), annotation("ProfilerStep#1", 0, 40_000)))[0] == "whole", "the step is what was marked"  # fmt: skip


# Time that a steady window leaves out


def steps(first_ms: int, *, others: int = 4) -> Report:
    """Analyse a first step whose kernels, all used for the first time, come late, and then steps of 10 ms."""
    cold = [launched(f"cold {k}", first_ms * 100 * k, first_ms * 100 * k + 10, 60, k + 1) for k in range(1, 10)]
    begin = first_ms * 1_000
    warm = [
        [annotation(f"ProfilerStep#{n}", begin + 10_000 * n - 9_990, 9_980),
         *(launched(GEMM, begin + 10_000 * (n - 1) + 990 * k, begin + 10_000 * (n - 1) + 990 * k + 10, 940, 100 * n + k) for k in range(1, 10))]
        for n in range(1, others + 1)
    ]  # fmt: skip
    return analysed(annotation("ProfilerStep#0", 0, begin - 20), cold, warm)


def test_what_is_left_out_is_called_as_causes_are() -> None:
    """Check a first step of 100 ms in which an operator sorts on the CPU, followed by steps of 10 ms."""
    first = [op("aten::sort", 100, 98_000), launched(GEMM, 98_500, 98_600, 900, 1)]
    rest = [
        [annotation(f"ProfilerStep#{n}", 90_000 + 10_000 * n, 9_990),
         *(launched(GEMM, 90_000 + 10_000 * n + 990 * k, 90_010 + 10_000 * n + 990 * k, 940, 100 * n + k) for k in range(1, 10))]
        for n in range(1, 5)
    ]  # fmt: skip
    opening = [launched(GEMM, 10, 20, 60, 9_999)]
    report = analysed(annotation("ProfilerStep#0", 0, 99_980), opening, first, rest)
    assert "(work on the CPU)." in report.verdict.headline


def test_a_window_that_leaves_out_most_says_so_and_what_it_was() -> None:
    report = steps(100)
    assert window(report)[0] == "steady"
    assert report.verdict.regime == "compute-bound"
    assert report.verdict.headline.endswith(
        "The window leaves out 79 % of the trace: 99.8 ms of 140 ms (cold start), and 10.1 ms elsewhere."
    )
    assert report.verdict.confidence != "high"
    assert any("79 % of the trace lies outside of the window" in why for why in report.verdict.confidence_why)


def test_a_window_of_most_of_the_trace_is_as_before() -> None:
    report = steps(10)
    assert "leaves out" not in report.verdict.headline
    assert not any("outside of the window" in why for why in report.verdict.confidence_why)


def test_device_time_counts_as_time_does() -> None:
    """Check a first step that holds most of the device time, 29.7 ms of 30.6 ms, in less than half of the time."""
    dense = [kernel(GEMM, 100 + 1_000 * n, 990, correlation=n + 1) for n in range(30)]
    calls = [launch(50 + n, 1, n + 1) for n in range(30)]
    sparse = [
        [annotation(f"ProfilerStep#{n}", 31_000 + 12_000 * n - 12_000, 11_900),
         launched("relu", 31_000 + 12_000 * n - 1_000, 31_000 + 12_000 * n - 900, 300, 100 + n)]
        for n in range(1, 4)
    ]  # fmt: skip
    report = analysed(annotation("ProfilerStep#0", 0, 30_500), dense, calls, sparse)
    assert "of the device time: 29.7 ms of 30.6 ms (compute-bound)." in report.verdict.headline


# Cutting windows


@given(st.lists(st.integers(0, 100), min_size=2, max_size=12))
def test_intervals_and_their_complement_are_the_window(edges: list[int]) -> None:
    start, *inner, end = sorted(edges)
    pairs = list(zip(inner[::2], inner[1::2], strict=False))
    window, islands = (
        pl.DataFrame(rows, {"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row") for rows in ([(start, end)], pairs)
    )
    rest = cut_out(window.filter(pl.col("start_ns") < pl.col("end_ns")), islands, []).rows()
    covered = [t for a, b in (*pairs, *rest) for t in range(a, b)]
    assert sorted(covered) == list(range(start, end))
    assert all(a < b for a, b in rest)
