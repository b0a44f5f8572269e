"""Launch lead, queue depth, and the run-ahead state."""

import polars as pl
import pytest
from kineto import analysed, call, kernel, launch, launched, rows

from trace_analyzer.analyses.run_ahead import queue_depths, queue_statistics, run_ahead_state

WINDOW = pl.DataFrame({"device": [0], "start_ns": [0], "end_ns": [100]})


def queue(*queued: tuple[int, int], lasting: int = 7) -> pl.DataFrame:
    """Return the queue of activities (launch end, start), each of which runs ``lasting`` ns."""
    schema = dict.fromkeys(["device", "start_ns", "lead_ns", "duration_ns"], pl.Int64)
    return queue_depths(pl.DataFrame([(0, start, start - end, lasting) for end, start in queued], schema, orient="row"))


def test_the_queue_grows_at_launch_ends_and_shrinks_at_starts() -> None:
    assert queue((0, 10), (2, 20), (2, 30), (12, 12)).select("time_ns", "depth").rows() == [
        (0, 1), (2, 3), (10, 2), (12, 2), (20, 1), (30, 0),
    ]  # fmt: skip


def test_a_negative_lead_never_enters_the_queue() -> None:
    assert queue((10, 5), (20, 30)).select("time_ns", "depth").rows() == [(20, 1), (30, 0)]


@pytest.mark.parametrize(
    ("queued", "mean", "median", "most", "empty"),
    [
        ([(0, 100)], 1.0, 1, 1, 0.0),
        ([(0, 50)], 0.5, 1, 1, 0.5),
        ([(0, 49)], 0.49, 0, 1, 0.51),
        ([(-50, 50), (40, 60), (50, 250)], 1.2, 1, 2, 0.0),
        ([(200, 300)], 0.0, 0, 0, 1.0),
    ],
)
def test_the_queue_is_weighted_by_time(
    queued: list[tuple[int, int]], mean: float, median: int, most: int, empty: float
) -> None:
    stats = queue_statistics(queue(*queued, lasting=3), WINDOW)
    depth = stats.select("depth_mean", "depth_p50", "depth_max", "empty_queue_ratio").row(0)
    assert depth == pytest.approx((mean, median, most, empty))
    queued_work = stats.select("queued_work_mean", "queued_work_p50", "queued_work_max").row(0)
    assert queued_work == pytest.approx((3 * mean, 3 * median, 3 * most))


def test_the_queued_work_is_the_device_time_of_what_is_queued() -> None:
    activities = pl.DataFrame({"device": [0, 0], "start_ns": [50, 80], "lead_ns": [50, 60], "duration_ns": [30, 4]})
    assert queue_depths(activities).select("time_ns", "queued_work_ns").rows() == [(0, 30), (20, 34), (50, 4), (80, 0)]


@pytest.mark.parametrize(
    ("busy", "empty", "lead", "call", "state"),
    [
        (0.5, 0.6, 10, 5, "behind"), (0.89, 0.51, 1_000, 5, "behind"), (0.9, 0.6, 10, 5, "keeping-up"), (0.5, 0.5, 10, 5, "keeping-up"),
        (1.0, 0.05, 51, 5, "ahead"), (0.3, 0.05, 51, 5, "ahead"), (1.0, 0.05, 50, 5, "keeping-up"), (1.0, 0.1, 51, 5, "keeping-up"),
        (1.0, 0.0, None, None, None),
    ],
)  # fmt: skip
def test_the_word(busy: float, empty: float, lead: float | None, call: float | None, state: str | None) -> None:
    assert run_ahead_state(busy, empty, lead, call) == state


def test_leads_are_once_per_launch_and_from_its_first_activity() -> None:
    graph = [call("cudaGraphLaunch", 0, 4, correlation=9), *(kernel("n", 30 - n, 1, correlation=9) for n in range(3))]
    report = analysed(graph, launched("k", 10, 45, 5, 1), launched("slow", 40, 42, 1, 2, takes=4))
    launches = rows(report.tables["launches"], "first_start_ns", "lead_ns", "activity_count")
    assert launches == [(28, 24, 3), (45, 30, 1), (42, -2, 1)]
    lead = report.devices[0].run_ahead.launch_lead_ns
    assert (lead.p10, lead.p50, lead.p90) == (-2_000, 24_000, 30_000)
    assert report.devices[0].run_ahead.queue_depth.max == 3, "four were queued only before the window"


def test_a_device_without_links_has_no_word() -> None:
    ahead = analysed(kernel("k", 0, 5)).devices[0].run_ahead
    assert {ahead.state, ahead.launch_lead_ns.p50, ahead.queue_depth.mean, ahead.empty_queue_ratio} == {None}


def test_a_cpu_that_launches_all_at_once_is_ahead() -> None:
    burst = [[launch(n, 1, n), kernel("k", 20 + 30 * n, 30, correlation=n)] for n in range(1, 12)]
    report = analysed(burst)
    assert report.devices[0].run_ahead.state == "ahead"
    slow = [launched("k", 100 * n, 100 * n + 8, 5, n) for n in range(1, 12)]
    assert analysed(slow).devices[0].run_ahead.state == "behind"
