"""Steps on a device, which of them are representative, and the verdict's window."""

import polars as pl
import pytest
from kineto import analysed, annotation, kernel, launched, rows

from trace_analyzer.errors import UsageError
from trace_analyzer.report import Report

GEMM = "ampere_sgemm_128x64_tn"


def step(
    number: int, start: int, busy: int = 50, *, name: str = "ProfilerStep#{}", count: int = 2, length: int = 100
) -> list[object]:
    """A step of ``length`` us from ``start`` that launches ``count`` kernels, the first 20 us later."""
    marks = [annotation(name.format(number), start, length)]
    work = [launched(GEMM, start + 5 + 6 * n, start + 20 + busy * n, busy, 10 * number + n + 1) for n in range(count)]
    return [*marks, *work]


def table(report: Report, *columns: str) -> list[tuple[object, ...]]:
    return rows(report.tables["steps"], *columns)


def test_a_step_runs_from_the_previous_last_activity_to_its_own() -> None:
    report = analysed(step(3, 0), step(4, 200), step(5, 400))
    assert table(report, "index", "name", "start_ns", "end_ns", "busy_ns", "activity_count") == [
        (3, "ProfilerStep#3", 20, 120, 100, 2), (4, "ProfilerStep#4", 120, 320, 100, 2), (5, "ProfilerStep#5", 320, 520, 100, 2),
    ]  # fmt: skip
    assert table(report, "host_start_ns", "host_end_ns") == [(0, 100), (200, 300), (400, 500)]


def test_work_belongs_to_the_step_that_launched_it() -> None:
    late = launched("late", 50, 600, 5, 99)
    report = analysed(step(0, 0), step(1, 200), late, launched("outside", 150, 160, 5, 98))
    assert table(report, "index", "start_ns", "end_ns", "activity_count") == [(0, 20, 605, 3), (1, 605, 605, 2)]


def test_annotations_copied_onto_devices_count_once() -> None:
    copied = annotation("ProfilerStep#0", 20, 100, tid=7, pid=0) | {"cat": "gpu_user_annotation"}
    assert len(table(analysed(step(0, 0), step(1, 200), copied), "index")) == 2


@pytest.mark.parametrize(
    ("steps", "states"),
    [
        ([step(n, 200 * n) for n in range(4)], ["first", "ok", "ok", "ok"]),
        ([step(0, 0), step(1, 200), step(2, 400), step(3, 600, count=0)], ["first", "ok", "ok", "empty"]),
        (
            [*(step(n, 200 * n, count=3, busy=30) for n in range(3)), step(3, 600, count=1)],
            ["first", "ok", "ok", "cut"],
        ),
        ([*(step(n, 200 * n) for n in range(4)), step(4, 1_600)], ["first", "ok", "ok", "ok", "outlier"]),
    ],
)
def test_states(steps: list[object], states: list[str]) -> None:
    report = analysed(steps)
    assert table(report, "state") == [(state,) for state in states]
    assert table(report, "steady") == [(state == "ok",) for state in states]
    assert report.verdict.window is not None
    assert report.verdict.window.kind == "steady"
    assert report.verdict.window.steps == tuple(n for n, state in enumerate(states) if state == "ok")


def test_with_fewer_than_two_left_nothing_is_set_aside() -> None:
    report = analysed(step(0, 0), step(1, 200))
    assert table(report, "state", "steady") == [("first", True), ("ok", True)]
    assert report.verdict.window is not None
    assert (report.verdict.window.kind, report.verdict.window.intervals) == ("whole", ((20_000, 320_000),))


def test_the_steady_window_may_be_several_intervals() -> None:
    steps = [step(n, 200 * n) for n in range(3)]
    outlier, more = step(3, 1_000), [step(n, 200 * n + 500) for n in (4, 5)]
    window = analysed(steps, outlier, more).verdict.window
    assert window is not None
    assert (window.steps, window.intervals) == ((1, 2, 4, 5), ((120_000, 520_000), (1_120_000, 1_620_000)))


def test_a_step_or_all_of_it_can_be_asked_for() -> None:
    events = [step(n, 200 * n) for n in range(4)]
    one, whole = (analysed(events, step=wanted).verdict.window for wanted in (2, "all"))
    assert one is not None
    assert whole is not None
    assert (one.kind, one.intervals, one.steps) == ("step", ((320_000, 520_000),), (2,))
    assert (whole.kind, whole.intervals) == ("whole", ((20_000, 720_000),))
    with pytest.raises(UsageError, match=r"step 9 .*: 0, 1, 2, 3"):
        analysed(events, step=9)


def test_other_annotations_mark_steps_when_they_repeat_around_the_launches() -> None:
    names = "execute_context_{}(8)_generation_3(3)"
    report = analysed([step(n, 200 * n, name=names) for n in range(4)], annotation("inside", 10, 2))
    assert table(report, "index", "activity_count") == [(0, 2), (1, 2), (2, 2), (3, 2)]
    assert table(analysed([step(n, 200 * n, name=names) for n in range(2)]), "index") == [], "twice is no pattern"
    apart = [launched(GEMM, 1_000 + 10 * n, 1_005 + 10 * n, 1, 900 + n) for n in range(9)]
    assert table(analysed([step(n, 200 * n, name=names) for n in range(4)], apart), "index") == [], (
        "under 80 % of launches"
    )


def test_without_steps_the_window_is_the_whole_trace() -> None:
    report = analysed(kernel(GEMM, 5, 3_000))
    assert report.steps == ()
    assert report.verdict.window is not None
    assert (report.verdict.window.kind, report.verdict.window.intervals) == ("whole", ((0, 3_000_000),))


def test_a_step_has_the_regime_of_its_own_partition() -> None:
    slow = [
        annotation("ProfilerStep#9", 3_000, 900),
        *(launched(GEMM, 3_000 + 80 * n, 3_010 + 80 * n, 4, 900 + n) for n in range(1, 9)),
    ]
    report = analysed([step(n, 200 * n, busy=90) for n in range(4)], slow)
    assert table(report, "index", "regime")[-2:] == [(3, "compute-bound"), (9, "overhead-bound")]
    assert [item.regime for item in report.steps] == report.tables["steps"].get_column("regime").to_list()


def test_durations_of_steps_sum_to_their_span() -> None:
    steps = analysed([step(n, 200 * n) for n in range(5)]).tables["steps"]
    total = steps.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    assert total == steps.get_column("end_ns").max() - steps.get_column("start_ns").min()
