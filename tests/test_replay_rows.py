"""Single edges of the replay's graph on recordings of a few rows: each tolerance from both sides."""

from typing import Any

import numpy as np
import pytest
from replay_rows import US, Busy, Made, Work, call_returns, device_edges, handed, named, polled, queued, recorded, waits

from trace_analyzer.replay.device_edges import launch_orders, medians, previous, trimmed
from trace_analyzer.replay.host_edges import silences, staged
from trace_analyzer.replay.recording import (
    ALLOC,
    BLOCKING_COPY,
    COPY,
    FIRST_COPY,
    FREE,
    GRAPH,
    GRAPH_KERNEL,
    KERNEL,
    MEMSET,
    RECORD,
    RUNTIME,
    SYNC_DEVICE,
    SYNC_EVENT,
    SYNC_STREAM,
    WAIT,
)  # fmt: skip

# Order of work on a stream


@pytest.mark.parametrize(
    ("second", "track", "ends"),
    [(8.5, 0, 8.5), (8.49, 0, 10), (10, 0, 10), (12, 0, 10), (9, 1, 10), (0, 0, 10)],
    ids=["as much as rounding", "more", "none", "a gap", "another stream", "the same start"],
)
def test_work_that_overlaps_by_rounding_ends_where_the_next_begins(second: float, track: int, ends: float) -> None:
    rows = sorted([Work(0, 10), Work(second, 20, track=track)])
    assert trimmed(recorded(rows).activities).tolist() == [ends * US, 20 * US]


@pytest.mark.parametrize(
    ("rows", "before"),
    [
        ([Work(0, 10), Work(10, 20), Work(25, 30)], [-1, 0, 1]),
        ([Work(0, 10), Work(10, 20, track=1), Work(25, 30)], [-1, -1, 0]),
        ([Work(0, 20), Work(10, 30), Work(32, 33)], [-1, -1, 1]),
        ([Work(0, 50), Work(5, 10), Work(20, 30)], [-1, -1, 1]),
        ([Work(5, 5), Work(5, 5), Work(5, 9)], [-1, 0, 1]),
        ([Work(0, 5), Work(5, 5), Work(5, 9), Work(9, 9)], [-1, 0, 1, 2]),
        ([Work(-9, -5), Work(-5, 3)], [-1, 0]),
        ([Work(0, 3, track=1), Work(2, 5, track=0), Work(5, 6, track=1)], [-1, -1, 0]),
        ([], []),
    ],
)  # fmt: skip
def test_the_previous_activity_of_a_stream_is_the_one_that_ended_last(rows: list[Work], before: list[int]) -> None:
    activities = recorded(rows).activities
    assert previous(activities, activities.end).tolist() == before


def test_what_ran_before_the_first_linked_activity_of_a_stream_was_launched_before_it() -> None:
    rows = recorded([Work(0, 5), Work(5, 8, 0), Work(9, 12), Work(2, 3, track=1)], [Made(3, 4)])
    (members, begun), (others, _), *_ = launch_orders(rows)
    assert (members.tolist(), begun[1] / US, begun[0] < 0, others.tolist()) == ([0, 1], 3, True, [])


def test_activities_are_in_order_of_launch_on_each_stream() -> None:
    made = [Made(0, 5), Made(10, 15), Made(20, 25)]
    rows = recorded(
        [Work(30, 31, call=2), Work(40, 41, call=1), Work(45, 46, call=0, track=2), Work(50, 51, call=1), Work(60, 61)],
        made,
    )
    assert [(members.tolist(), (begun / US).tolist()) for members, begun in launch_orders(rows)[:3]] == [
        ([1, 3, 0], [10, 10, 20]), ([], []), ([2], [0]),
    ]  # fmt: skip


def test_medians_are_the_lower_of_the_middle_of_each_class() -> None:
    values, classes = np.array([4, 1, 9, 3, 7, 2]), np.array([0, 0, 0, 0, 1, 1])
    assert medians(values, classes).tolist() == [3, 3, 3, 3, 2, 2]
    assert medians(values, classes, 0.0).tolist() == [1, 1, 1, 1, 2, 2]
    assert medians(values, classes, 1.0).tolist() == [9, 9, 9, 9, 7, 7]


# Launch latency


def launches(latencies: list[float], *, call: float = 5, period: float = 1_000, lasts: float = 10) -> list[Work]:
    return [Work(period * n + wait, period * n + wait + lasts, call=n) for n, wait in enumerate(latencies)]


def calls(count: int, lengths: list[float] | None = None, period: float = 1_000) -> list[Made]:
    return [Made(period * n, period * n + (lengths[n] if lengths else 5)) for n in range(count)]


def latencies(work: list[Work], made: list[Made], **options: list[bool]) -> list[float]:
    """Return the weights of launches in order of activities, in us."""
    links = device_edges(recorded(work, made), **options).latency
    order = np.argsort(links.target)
    return [round(weight / US, 3) for weight in links.weight[order].tolist()]


@pytest.mark.parametrize(("slow", "mean"), [(105, 43.167), (105.1, 12.25)], ids=["100 us after its call", "later"])
def test_what_starts_far_behind_its_call_waited_for_something_else(slow: float, mean: float) -> None:
    """Check that the rest of what is late stays unexplained if it is over 20 us."""
    links = device_edges(recorded(launches([12, 12.5, slow]), calls(3)))
    assert links.latency.weight[0] == pytest.approx(mean * US, abs=1)
    assert (links.rest > 0).tolist() == [False, False, True]


# Work, calls, options, and what each launch takes, us.
LATENCIES: dict[str, tuple[list[Work], list[Made], dict[str, list[bool]], list[float]]] = {
    "the mean of those on an empty stream": (launches([10, 12, 14]), calls(3), {}, [12, 12, 12]),
    "of those that count": (launches([10, 12, 14]), calls(3), {"fitted": [True, True, False]}, [11, 11, 11]),
    "behind queued work": (
        [Work(10, 200, call=0), Work(202, 300, call=1), Work(1_014, 1_020, call=2)],
        [Made(0, 5), Made(100, 105), Made(1_000, 1_005)], {}, [12, 12, 12],
    ),
    "behind work that ended as it was launched": (
        [Work(10, 100, call=0), Work(116, 300, call=1), Work(1_010, 1_020, call=2)],
        [Made(0, 5), Made(100, 105), Made(1_000, 1_005)], {}, [12, 12, 12],
    ),
    "a long call": (launches([10, 12, 13, 13]), calls(4, [5, 5, 5, 15]), {}, [12] * 4),
    "over three medians, with the usual time behind a call": (
        launches([10, 12, 13, 22]), calls(4, [5, 5, 5, 15.1]), {}, [11.667] * 3 + [21.767],
    ),
    "each kind its own": (
        [Work(10, 20, call=0), Work(1_030, 1_040, call=1, kind=MEMSET), Work(2_012, 2_020, call=2),
         Work(3_050, 3_060, call=3, kind=MEMSET)],
        calls(4), {}, [11, 40, 11, 40],
    ),
    "without one of its own, the mean of all": (
        [*launches([10, 12]), Work(2_002, 2_500, call=2), Work(2_505, 2_600, call=3, kind=MEMSET)],
        [*calls(3), Made(2_100, 2_105)], {}, [8] * 4,
    ),
    "a pageable copy its own": (
        [Work(1_000 * n + wait, 1_000 * n + 50, call=n, kind=FIRST_COPY, pageable=n == 2) for n, wait in enumerate((10, 12, 30))],
        calls(3), {}, [11, 11, 30],
    ),
    "but 42 us that an event explains": (
        [Work(10, 50, call=0), Work(52, 90, call=2, track=1), Work(1_010, 1_020, call=3)],
        [Made(0, 5), Made(6, 7, WAIT), Made(10, 15), Made(1_000, 1_005)], {}, [10] * 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("work", "made", "options", "takes"), LATENCIES.values(), ids=LATENCIES)
def test_what_launches_take(
    work: list[Work], made: list[Made], options: dict[str, list[bool]], takes: list[float]
) -> None:
    assert latencies(work, made, **options) == takes


def test_only_the_first_activity_of_a_call_on_a_stream_was_launched() -> None:
    graph = [
        Work(10, 20, call=0, kind=GRAPH_KERNEL),
        Work(11, 30, call=0, track=1, kind=GRAPH_KERNEL),
        Work(21, 40, call=0, kind=GRAPH_KERNEL),
        Work(50, 60),
    ]
    recording = recorded(graph, [Made(0, 5, GRAPH)])
    assert [edge[:2] for edge in named(recording, device_edges(recording).latency)] == [("(0", "+0"), ("(0", "+1")]


@pytest.mark.parametrize(
    ("pageable", "kind", "before_ends", "takes"),
    [
        (True, COPY, 0, 80),
        (True, COPY, 8, 80),
        (True, COPY, 8.5, 11),
        (False, BLOCKING_COPY, 0, 80),
        (False, COPY, 0, 45.5),
    ],
    ids=["pageable", "empty for nine tenths", "empty for less", "blocking", "pinned"],
)
def test_bytes_are_staged_before_a_copy_starts(pageable: bool, kind: int, before_ends: float, takes: float) -> None:
    """Check that a staged copy's call takes as long as the staging and that an empty stream did not hold it back."""
    work = [
        Work(1_000 - 100, 1_000 + before_ends), Work(1_080, 1_090, call=0, kind=FIRST_COPY, pageable=pageable),
        Work(2_011, 2_020, call=1, kind=FIRST_COPY, pageable=pageable),
    ]  # fmt: skip
    assert latencies(work, [Made(1_000, 1_005, kind), Made(2_000, 2_005, kind)])[0] == takes


def test_a_copy_whose_stream_is_busy_is_staged_as_long_as_others_but_those_of_long_calls() -> None:
    copies = [
        Work(1_000 * n + wait, 1_000 * n + 300, call=n, kind=FIRST_COPY, pageable=True)
        for n, wait in enumerate((80, 82, 200, 60))
    ]
    made = [Made(1_000 * n, 1_000 * n + length, COPY) for n, length in enumerate((5, 5, 15.1, 5))]
    assert latencies(sorted([*copies, Work(2_900, 3_050)]), made) == [80, 82, 200, 81]


def test_the_cpus_part_of_a_latency_is_its_call() -> None:
    links = device_edges(recorded(launches([10, 12, 3]), calls(3))).latency
    assert links.host.tolist() == [5 * US] * 3
    short = device_edges(recorded(launches([3, 3, 3]), calls(3))).latency
    assert short.host.tolist() == [3 * US] * 3


# Gaps


def test_without_anything_to_learn_from_a_launch_takes_7_us_and_a_gap_1() -> None:
    work = [Work(9, 20, call=0), Work(22, 30, call=1)]
    recording = recorded(work, [Made(0, 5), Made(6, 11)])
    links = device_edges(recording, fitted=[False, False])
    assert named(recording, links.latency) == [("(0", "+0", 7), ("(1", "+1", 7)]
    assert named(recording, links.gap) == [("-0", "+1", 1)]


def test_what_waits_for_another_stream_says_nothing_of_launches_and_gaps() -> None:
    """The second on its stream starts 12 us after the first, and 42 us after its call, because of the other stream's end."""
    work = [Work(10, 40, call=0), Work(12, 45, call=1, track=1), Work(52, 90, call=3), Work(1_010, 1_020, call=4)]
    made = [Made(0, 5), Made(6, 7), Made(8, 9, WAIT), Made(10, 15), Made(1_000, 1_005)]
    recording = recorded(work, made)
    links = device_edges(recording)
    weights = {edge[1]: edge[2] for edge in named(recording, links.latency)}
    assert weights == {"+0": 8.667, "+1": 8.667, "+2": 8.667, "+3": 8.667}
    assert named(recording, links.gap)[0] == ("-0", "+2", 1), "none to learn from"
    assert [edge[:2] for edge in named(recording, links.wait)] == [("-1", "+2")]


def test_what_is_later_than_a_wait_usually_takes_is_unexplained() -> None:
    """It starts 50 us after the end that it waited for, where 1 us is usual."""
    work = late(810, 760)
    links = device_edges(recorded(work, calls(4)), fitted=[row.call != 3 for row in work])
    assert (links.rest / US).tolist() == [49.0 if row.call == 3 else 0.0 for row in work]


def test_what_follows_its_stream_as_usual_waited_for_no_other() -> None:
    """Its launch was long before, the work before it ended 18 us before: that another stream ended meanwhile is chance."""
    work, made = row_of([18, 18, 18])
    beside = Work(60, work[2].start - 1, track=1)
    assert bound(sorted([*work, beside]), made) == []
    unexplained = [*work[:2], work[2]._replace(start=work[2].start + 12, end=work[2].end), work[3]]
    assert bound(sorted([*unexplained, beside._replace(end=unexplained[2].start - 1)]), made) != []


def row_of(gaps: list[float], *, launched: float = 1, kinds: list[int] | None = None) -> tuple[list[Work], list[Made]]:
    """Build kernels of 50 us with these gaps between them, all launched at the beginning."""
    work, at = [], 100.0
    for n, gap in enumerate([0, *gaps]):
        at += gap
        work.append(Work(at, at + 50, call=n, kind=kinds[n] if kinds else KERNEL))
        at += 50
    return work, [Made(n, n + launched) for n in range(len(work))]


GRAPHS = [Work(10 + 12 * n, 20 + 12 * n, call=0, kind=GRAPH_KERNEL) for n in range(3)]
GRAPHS += [Work(52, 60, call=1, kind=GRAPH_KERNEL), Work(60.5, 70, call=1, kind=GRAPH_KERNEL)]
THREE = [Work(12, 50, call=0), Work(52, 100, call=1), Work(106, 120, call=2)]
ROW, ROW_CALLS = row_of([1, 9])
# Work, calls, options, and the weights of gaps, us.
GAPS: dict[str, tuple[list[Work], list[Made], dict[str, list[bool]], list[float]]] = {
    "the mean": (*row_of([1, 3]), {}, [2, 2]),
    "up to 20 us": (*row_of([2, 20]), {}, [11, 11]),
    "longer ones wait for something": (*row_of([2, 20.01]), {}, [2, 2]),
    "of those that count": (ROW, ROW_CALLS, {"fitted": [True, True, False]}, [1, 1]),
    "a call still under way when the work before ended": (
        ROW, [*ROW_CALLS[:2], Made(ROW_CALLS[1].start + 195, ROW_CALLS[1].start + 200.5)], {}, [1, 1],
    ),
    # A launch takes 12 us: made at 88 it is there at 100, when the work before it ends.
    "launched by then": (THREE, [Made(0, 5), Made(1, 6), Made(88, 93)], {}, [4, 4]),
    "under way": (THREE, [Made(0, 5), Made(1, 6), Made(88.1, 93.1)], {}, [2, 2]),
    "its call still under way": (THREE, [Made(0, 20), Made(21, 41), Made(81, 101)], {}, [2, 2]),
    "between kinds": (*row_of([1, 3, 9, 3], kinds=[KERNEL, KERNEL, MEMSET, KERNEL, MEMSET]), {}, [1, 3, 9, 3]),
    "within a graph": (GRAPHS, [Made(0, 1, GRAPH), Made(2, 3, GRAPH)], {}, [1.5, 1.5, 8, 1.5]),
    "unlinked work was queued": ([Work(0, 10), Work(14, 20)], [], {}, [4]),
    "one alone": ([Work(0, 10)], [], {}, []),
}  # fmt: skip


@pytest.mark.parametrize(("work", "made", "options", "weights"), GAPS.values(), ids=GAPS)
def test_a_gap_takes_the_mean_of_those_between_queued_work(
    work: list[Work], made: list[Made], options: dict[str, list[bool]], weights: list[float]
) -> None:
    links = device_edges(recorded(work, made), **options).gap
    assert [round(weight / US, 3) for weight in links.weight[np.argsort(links.target)].tolist()] == weights


# Waits for other streams


def handing(lag: float, *, awaits: int = -1, waiting: int = -1, wait_thread: int = 0) -> tuple[list[Work], list[Made]]:
    """Build twice work on stream 0, a wait for it, and work on stream 1 which starts ``lag`` after it."""
    work: list[Work] = []
    made: list[Made] = []
    for n in range(2):
        at = 1_000.0 * n
        work += [Work(at + 10, at + 210, call=len(made)), Work(at + 210 + lag, at + 300, call=len(made) + 2, track=1)]
        made += [Made(at, at + 5), Made(at + 20, at + 22, WAIT, wait_thread, awaits, waiting), Made(at + 30, at + 35)]
    return work, sorted(made, key=lambda row: row.thread)


def wait_edges(work: list[Work], made: list[Made]) -> list[tuple[str, str, float]]:
    recording = recorded(work, made)
    return named(recording, device_edges(recording).wait)


def test_a_wait_for_an_event_holds_back_the_next_launch_of_its_thread() -> None:
    """Each waits for the last work launched before on each other stream: in the second turn also for the first turn's."""
    assert wait_edges(*handing(7)) == [("-0", "+1", 7), ("-2", "+3", 7)]
    links = device_edges(recorded(*handing(7)))
    assert not links.wait.inferred.any(), "its call was seen"
    assert not links.rest.any()


@pytest.mark.parametrize(("awaits", "count"), [(-1, 2), (-2 - 7, 2), (-2 - 8, 0), (0, 0)])
def test_an_event_of_a_known_stream_is_awaited_there_only(awaits: int, count: int) -> None:
    links = device_edges(recorded(*handing(7, awaits=awaits))).wait
    assert links.inferred is not None
    assert int((~links.inferred).sum()) == count


@pytest.mark.parametrize(
    ("waiting", "inferred"), [(-1, True), (1, False), (3, True)], ids=["none", "named", "idle later"]
)
def test_a_wait_names_the_stream_that_it_holds_back(waiting: int, inferred: bool) -> None:
    """The thread's next launch is on a stream other than the waiting one; what starts just after is inferred else."""
    work = [Work(10, 210, call=0), Work(50, 60, call=2, track=2), Work(217, 300, call=3, track=1)]
    made = [Made(0, 5), Made(20, 22, WAIT, waiting=waiting), Made(30, 35), Made(40, 45)]
    assert device_edges(recorded(work, made)).wait.inferred.tolist() == [inferred]


def test_a_wait_for_what_had_not_ended_was_none() -> None:
    """Recorded work is evidence: an activity that started before the other one ended did not wait for it."""
    work = [Work(10, 210, call=0), Work(100, 300, call=2, track=1)]
    assert wait_edges(work, [Made(0, 5), Made(20, 22, WAIT), Made(30, 35)]) == []


def test_a_wait_of_another_thread_holds_back_nothing_here() -> None:
    work, made = handing(7, wait_thread=1)
    order = {0: 0, 2: 1, 3: 2, 5: 3}
    links = device_edges(recorded([row._replace(call=order[row.call]) for row in work], made)).wait
    assert links.inferred.all()
    work, made = (
        [Work(10, 210, call=0), Work(217, 300, call=2, track=1)],
        [Made(0, 5), Made(20, 22, WAIT), Made(30, 35, thread=1)],
    )
    assert device_edges(recorded(work, made)).wait.inferred.tolist() == [True], "the next launch is another thread's"


@pytest.mark.parametrize(("lags", "usual"), [((3, 5), 4), ((3, 20), 11), ((3, 20.5), 3)])
def test_a_wait_takes_its_usual_lag(lags: tuple[float, float], usual: float) -> None:
    work, made = handing(3)
    for row, lag in ((1, lags[0]), (3, lags[1])):
        work[row] = work[row]._replace(start=work[row - 1].end + lag)
    assert [edge[2] for edge in wait_edges(work, made)] == [
        min(lag, usual) if usual < 11 else min(lag, 11.5) for lag in lags
    ]


def late(starts: float, ended: float, *, track: int = 1, device: int = 0) -> list[Work]:
    """Build three usual launches and one that starts later, with work that ended elsewhere."""
    work = [*launches([10, 10, 10]), Work(3_000 + starts, 5_000, call=3), Work(2_900, 3_000 + ended, track=track)]
    return sorted(work)


def bound(work: list[Work], made: list[Made]) -> list[tuple[float, float]]:
    """Return the inferred waits as (end, start), us."""
    recording = recorded(work, made)
    links = device_edges(recording, fitted=[row.call != 3 for row in work]).wait
    n = len(work)
    return [
        (float(recording.activities.end[source - n]) / US, float(recording.activities.start[target]) / US)
        for source, target, is_inferred in zip(links.source.tolist(), links.target.tolist(), links.inferred.tolist(), strict=True)
        if is_inferred
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("starts", "ended", "waited"),
    [
        pytest.param(15, 14, False, id="as late as usual"), pytest.param(15.04, 14, True, id="later"),
        pytest.param(15.1, 9.9, False, id="ended before it was ready"),
        pytest.param(40, 30, True, id="short: within 10 us"), pytest.param(40, 29.9, False, id="short: not"),
        pytest.param(60, 55, True, id="50 us late: within 5 us"), pytest.param(60, 54.9, False, id="50 us late: not"),
        pytest.param(59.9, 49.9, True, id="less than 50: within 10"),
        pytest.param(210, 190, True, id="within a tenth"), pytest.param(210, 189.9, False, id="not within a tenth"),
        pytest.param(810, 760, True, id="within 50 us"), pytest.param(810, 759.9, False, id="not within 50 us"),
        pytest.param(40, 40, True, id="at its end"), pytest.param(40, 41, False, id="before its end"),
    ],
)  # fmt: skip
def test_what_is_late_waited_for_what_just_ended_elsewhere(starts: float, ended: float, waited: bool) -> None:
    """It could start 10 us after its launch, at 3,010 us."""
    assert bound(late(starts, ended), calls(4)) == ([(3_000 + ended, 3_000 + starts)] if waited else [])


def test_what_ended_on_its_own_stream_is_no_wait() -> None:
    assert bound(late(100, 99, track=0), calls(4)) == []


@pytest.mark.parametrize(
    ("left", "starts", "held"),
    [(150, 32, True), (150.1, 32, False), (150, 30, False), (150, 30.1, True), (0, 200, False)],
    ids=["its last 15 %", "not yet", "not late", "late", "ended"],
)
def test_what_is_late_was_held_back_by_a_kernel_in_its_last_part(left: float, starts: float, held: bool) -> None:
    """Check that a late kernel waited for the SMs that a kernel of 1 ms leaves in its last 150 us."""
    ends = 3_000 + starts + left
    work = sorted([*launches([10, 10, 10]), Work(3_000 + starts, 5_000, call=3), Work(ends - 1_000, ends, track=1)])
    recording = recorded(work, calls(4))
    links = device_edges(recording, fitted=[one.call != 3 for one in work])
    row = next(n for n, one in enumerate(work) if one.call == 3)
    holder = next(n for n, one in enumerate(work) if one.track == 1)
    expected = [(f"+{holder}", f"+{row}", round(work[row].start - work[holder].start, 3))] if held else []
    assert named(recording, links.contention) == expected
    if held:
        assert not links.rest.any()


def test_a_kernel_of_another_device_or_stream_holds_nothing_back() -> None:
    work = [*launches([10, 10, 10]), Work(3_060, 5_000, call=3)]
    beside = Work(2_150, 3_150, track=1)
    for other, held in ((beside, True), (beside._replace(track=2), False), (beside._replace(track=0), False)):
        recording = recorded(sorted([*work, other]), calls(4), devices=(0, 0, 1))
        assert bool(device_edges(recording).contention.source.size) == held
    after = Work(3_061, 4_000, track=1)
    assert not device_edges(recorded(sorted([*work, after]), calls(4))).contention.source.size


@pytest.mark.parametrize(("starts", "rest"), [(30, 0), (30.1, 20.1), (300, 290)])
def test_a_delay_that_nothing_explains_stays(starts: float, rest: float) -> None:
    work = [*launches([10, 10, 10]), Work(3_000 + starts, 5_000, call=3)]
    links = device_edges(recorded(work, calls(4)), fitted=[True, True, True, False])
    assert (links.rest / US).tolist() == [0, 0, 0, rest]


@pytest.mark.parametrize(("starts", "is_boundary"), [(30, False), (30.5, True)])
def test_the_first_activity_of_a_device_may_wait_for_earlier_work(starts: float, is_boundary: bool) -> None:
    work = launches([starts, 10, 10])
    links = device_edges(recorded(work, calls(3)), fitted=[False, True, True])
    assert links.boundary.tolist() == [is_boundary, False, False]
    assert (0 in links.latency.target.tolist()) != is_boundary
    assert not links.rest.any()


def test_each_device_has_a_boundary_of_its_own() -> None:
    work = [*launches([500, 10, 10]), Work(3_500, 3_600, call=3, track=1)]
    links = device_edges(recorded(work, calls(4), devices=(0, 1)), fitted=[False, True, True, False])
    assert links.boundary.tolist() == [True, False, False, True]


def test_a_launch_that_waited_for_room_counts_from_the_end_of_its_call() -> None:
    """Check that the latency counts from the call's end: the kernel's start does not show when the launch was made."""
    work, made = full_queue(waits=40)
    recording = recorded(work, made)
    links = device_edges(recording).latency
    sources = {edge[1]: edge[0] for edge in named(recording, links)}
    assert sources["+1"] == "(1"
    assert sources[f"+{len(work) - 1}"] == f"){len(work) - 1}"
    early = [Work(-990, -900, call=0), *(row._replace(call=row.call + 1) for row in work)]
    recording = recorded(early, [Made(-1_000, -995), *made])
    weights = {edge[0]: edge[2] for edge in named(recording, device_edges(recording).latency)}
    assert weights["(0"] == 10
    assert weights[f"){len(work)}"] == 5, "the usual time behind a call"


# Room in a queue


def full_queue(
    *, waits: int, depth: int = 500, length: float = 100, freed: float = 5, uneven: float = 0
) -> tuple[list[Work], list[Made]]:
    """Build launches of 5 us to a depth, then ``waits`` of ``length`` that return ``freed`` after a kernel starts, or up to nine
    times ``uneven`` later.
    """
    made = [Made(10 * n, 10 * n + 5) for n in range(depth)]
    work, begin = [], 10.0 * depth + 10
    for n in range(waits):
        made.append(Made(begin + 200 * n, begin + 200 * n + length + uneven * (n % 10)))
    for n in range(depth + waits):
        start = begin + length - freed + 200 * n
        work.append(Work(start, start + 190, call=n))
    return work, made


def blocked(work: list[Work], made: list[Made]) -> int:
    """Return how many calls waited for room."""
    return int((~queued(recorded(work, made)).hidden).sum())


@pytest.mark.parametrize(
    ("options", "count"),
    [
        pytest.param({"waits": 3}, 3, id="500 deep"),
        pytest.param({"waits": 3, "depth": 450}, 3, id="450 deep"), pytest.param({"waits": 3, "depth": 449}, 0, id="449 deep"),
        pytest.param({"waits": 3, "length": 50.1}, 3, id="over 10 usual calls"), pytest.param({"waits": 3, "length": 50}, 0, id="no longer"),
        pytest.param({"waits": 3, "freed": 50}, 3, id="freed 50 us before"), pytest.param({"waits": 3, "freed": 50.1}, 0, id="freed earlier"),
        pytest.param({"waits": 3, "freed": 99}, 0, id="long before"),
        # Ten calls alike waited, if each took over twice as long as usual.
        pytest.param({"waits": 10, "length": 10.5}, 10, id="ten alike"), pytest.param({"waits": 9, "length": 10.5}, 0, id="nine alike"),
        pytest.param({"waits": 10, "length": 10}, 0, id="ten, twice"), pytest.param({"waits": 10, "length": 50.1}, 10, id="ten long"),
        pytest.param({"waits": 10, "freed": 80}, 10, id="ten alike, freed long before"), pytest.param({"waits": 9, "freed": 80}, 0, id="nine alike, freed long before"),
        # What the quickest tenth takes is multiplied: 500 of 5,000.
        pytest.param({"waits": 4_490}, 4_490, id="most"), pytest.param({"waits": 4_520, "uneven": 10}, 0, id="over nine tenths, unlike"),
        # Where all wait alike, 80 % return within 50 us, a quarter of the 200 us between starts.
        pytest.param({"waits": 4_520}, 4_520, id="all"), pytest.param({"waits": 4_520, "uneven": 6}, 4_520, id="all, nearly alike"),
    ],
)  # fmt: skip
def test_a_call_that_is_long_where_much_is_queued_waited_for_room(options: dict[str, Any], count: int) -> None:
    assert blocked(*full_queue(**options)) == count


@pytest.mark.parametrize(("length", "count"), [(40, 0), (40.1, 3)])
def test_a_wait_for_room_takes_over_40_us(length: float, count: int) -> None:
    """Where calls take 1 us, ten calls are too few for a decision."""
    work, made = full_queue(waits=3, length=length)
    quick = [*(row._replace(end=row.start + 1) for row in made[:-3]), *made[-3:]]
    assert blocked(work, quick) == count


def test_calls_that_waited_take_as_long_as_the_quickest_without() -> None:
    room = queued(recorded(*full_queue(waits=3)))
    shown = ~room.hidden
    assert (room.lag[shown] / US).tolist() == [5, 5, 5]
    assert (room.base[shown] / US).tolist() == [5, 5, 5]
    assert room.activity[shown].tolist() == [0, 1, 2]
    assert room.call[shown].tolist() == [500, 501, 502]
    assert not room.hidden.all()


@pytest.mark.parametrize(("differ", "count"), [(2, 12), (3, 10)])
def test_calls_alike_find_the_same_number_queued(differ: int, count: int) -> None:
    """Give or take two; the last two returned when so many more had started."""
    work, made = full_queue(waits=12, length=10.5)
    for n in (10, 11):
        at = work[n + differ].start + 5
        made[500 + n] = made[500 + n]._replace(start=at - 10.5, end=at)
    assert blocked(work, made) == count


def test_calls_that_find_room_return_no_later() -> None:
    """As many calls before as the queue holds, work has started by then: hidden, and no later than those that waited."""
    work, made = full_queue(waits=3)
    at = made[-1].end + 100_000
    more = [Made(at + 10 * n, at + 10 * n + 5) for n in range(3)]
    extra = [Work(at + 100 + 200 * n, at + 290 + 200 * n, call=len(made) + n) for n in range(3)]
    room = queued(recorded([*work, *extra], [*made, *more]))
    hidden = [column[room.hidden].tolist() for column in (room.call, room.activity, room.lag, room.base)]
    assert hidden == [[503, 504, 505], [3, 4, 5], [5 * US] * 3, [5 * US] * 3]


def without_launches(count: int, work: list[Work], made: list[Made]) -> tuple[list[Work], list[Made]]:
    """Return a full queue whose first launches are not recorded."""
    return [row._replace(call=max(row.call - count, -1)) for row in work], made[count:]


def test_work_from_before_the_recording_fills_the_queue() -> None:
    assert blocked(*without_launches(200, *full_queue(waits=3))) == 3


@pytest.mark.parametrize(
    ("unlinked", "calls", "length", "count"),
    [(1, 1, 100, 1), (0, 9, 100, 0), (0, 10, 100, 10), (1, 3, 50, 0), (1, 1, 11_000, 0)],
    ids=["one", "nine", "ten", "no longer than usual", "longer than its work takes to start"],
)
def test_long_calls_before_the_first_activity_wait_for_unrecorded_work(
    unlinked: int, calls: int, length: float, count: int
) -> None:
    """Without work that is known to be from before, it takes ten of them."""
    made = [
        *(Made(2_100 * n, 2_100 * n + length) for n in range(calls)),
        *(Made(30_000 + 10 * n, 30_005 + 10 * n) for n in range(90)),
    ]
    work = [Work(21_000 + 200 * n, 21_190 + 200 * n, call=n - unlinked) for n in range(unlinked + len(made))]
    room = queued(recorded(work, made))
    waited = ~room.hidden
    assert (int(waited.sum()), set(room.activity[waited].tolist()) <= {-1}) == (count, True)
    assert (room.base[waited] / US).tolist() == [5] * count


def test_no_calls_wait_for_no_room() -> None:
    assert not queued(recorded()).call.size
    assert not queued(recorded([Work(0, 5)], [Made(0, 5, SYNC_DEVICE)])).call.size


# Calls that wait


def syncing(kind: int, *, ends: float = 100, returned: float = 108, **options: int) -> tuple[list[Work], list[Made]]:
    """Build three turns of a launch and a call of 20 us or longer that waits for its kernel."""
    work = [Work(1_000 * n + 10, 1_000 * n + ends, call=2 * n) for n in range(3)]
    made = [
        row for n in range(3)
        for row in (Made(1_000 * n, 1_000 * n + 5), Made(1_000 * n + 20, 1_000 * n + returned, kind, **options))
    ]  # fmt: skip
    return work, made


@pytest.mark.parametrize("kind", [SYNC_DEVICE, SYNC_STREAM, SYNC_EVENT, FREE, ALLOC])
def test_a_call_waits_for_what_was_launched_before(kind: int) -> None:
    actual = call_returns(recorded(*syncing(kind)))
    assert (actual.source.tolist(), actual.target.tolist()) == ([0, 1, 2], [1, 3, 5])
    assert (actual.lag / US).tolist() == [8, 8, 8]
    assert (actual.base[[1, 3, 5]] / US).tolist() == [5, 5, 5], "what a call takes without waiting is not known"
    assert not actual.rest.any()
    assert actual.inferred.all() == (kind not in (SYNC_DEVICE, FREE))


@pytest.mark.parametrize(
    ("kind", "returned", "waited"),
    [
        (SYNC_DEVICE, 98.9, False), (SYNC_DEVICE, 99, True), (SYNC_DEVICE, 900, True),
        (SYNC_STREAM, 98.9, False), (SYNC_STREAM, 99, True),
        (SYNC_EVENT, 98.9, False), (SYNC_EVENT, 99, True), (SYNC_EVENT, 130, True), (SYNC_EVENT, 130.1, False),
        (ALLOC, 98.9, False), (ALLOC, 130, True), (ALLOC, 130.1, False),
    ],
)  # fmt: skip
def test_what_ends_after_a_call_or_long_before_its_return_was_not_awaited(
    kind: int, returned: float, waited: bool
) -> None:
    """Clocks differ by 1 us; events and allocating calls return within 30."""
    assert [row[0] for row in waits(recorded(*syncing(kind, returned=returned)))] == [0, 1, 2] * waited


def test_a_call_that_finds_all_done_takes_what_it_took() -> None:
    actual = call_returns(recorded(*syncing(SYNC_DEVICE, ends=15, returned=23)))
    assert (actual.base[[1, 3, 5]] / US).tolist() == [3, 3, 3]
    assert (actual.lag / US).tolist() == [5, 5, 5], "the usual return, no later than it was"
    assert not actual.rest.any()


def test_calls_that_wait_take_what_others_of_the_name_take_without() -> None:
    work, made = syncing(SYNC_DEVICE)
    work[0] = work[0]._replace(end=15)
    made[1] = made[1]._replace(end=22)
    assert (call_returns(recorded(work, made)).base[[1, 3, 5]] / US).tolist() == [2, 2, 2]
    made[1] = made[1]._replace(name=99)
    assert (call_returns(recorded(work, made)).base[[1, 3, 5]] / US).tolist() == [2, 5, 5]


@pytest.mark.parametrize(("returned", "usual", "rest"), [(160, 60, 0), (160.1, 8, 52.1)])
def test_the_usual_return_is_that_of_quick_ones(returned: float, usual: float, rest: float) -> None:
    """Later than 60 us after the work, a call did something else: that is left unexplained."""
    work, made = syncing(SYNC_DEVICE)
    made[3], made[5] = made[3]._replace(end=1_000 + returned), made[5]._replace(end=2_000 + returned)
    actual = call_returns(recorded(work, made))
    assert (actual.lag / US).tolist() == [usual] * 3
    assert np.round(actual.rest[[1, 3, 5]] / US, 3).tolist() == [0, rest, rest]


@pytest.mark.parametrize(("late", "rest"), [(28, 0), (28.1, 20.1)])
def test_up_to_20_us_of_a_return_are_chance(late: float, rest: float) -> None:
    work, made = syncing(SYNC_DEVICE)
    made[5] = made[5]._replace(end=2_100 + late)
    assert np.round(call_returns(recorded(work, made)).rest / US, 3).tolist() == [0, 0, 0, 0, 0, rest]


def test_work_that_frees_memory_does_so_after_its_wait() -> None:
    work, made = syncing(FREE)
    made[5] = made[5]._replace(end=2_400)
    assert (call_returns(recorded(work, made)).lag / US).tolist() == [8, 8, 300]


@pytest.mark.parametrize(("drained", "waits_"), [(3, 3), (2, 0)])
def test_allocating_calls_wait_if_most_of_them_return_as_the_device_drains(drained: int, waits_: int) -> None:
    """Three of four are enough, two are chance."""
    work = [Work(1_000 * n + 10, 1_000 * n + 100, call=2 * n) for n in range(4)]
    made = [
        row for n in range(4)
        for row in (Made(1_000 * n, 1_000 * n + 5), Made(1_000 * n + 20, 1_000 * n + (108 if n < drained else 400), ALLOC))
    ]  # fmt: skip
    assert len(waits(recorded(work, made))) == waits_


ON_TWO = [Work(10, 100, call=0), Work(12, 104, call=1, track=1)]
OTHER_LATER = [Work(10, 100, call=0), Work(12, 300, call=1, track=1)]
LAUNCHES = [Made(0, 5), Made(6, 8)]
THREE_STREAMS = [Work(10, 100, call=0), Work(12, 80, call=1, track=1), Work(14, 90, call=2, track=2)]
THREE_CALLS = [*LAUNCHES, Made(9, 11)]
ONE_DEVICE, ONE_OTHER_DEVICE = (0,) * 8, (0, 0, 1)
# Activities, calls, devices of streams, and what is awaited: (activity, call, us).
AWAITED: dict[str, tuple[list[Work], list[Made], tuple[int, ...], list[tuple[int, int, float]]]] = {
    "an allocation while another stream works": (OTHER_LATER, [*LAUNCHES, Made(20, 108, ALLOC)], ONE_DEVICE, []),
    "an allocation as the device drains": (OTHER_LATER, [*LAUNCHES, Made(20, 308, ALLOC)], ONE_DEVICE, [(1, 2, 8)]),
    "an allocation that is quick": (OTHER_LATER, [Made(0, 5), Made(30, 35), Made(40, 45, ALLOC)], ONE_DEVICE, []),
    "a device, on all of its streams": (
        THREE_STREAMS, [*THREE_CALLS, Made(20, 108, SYNC_DEVICE)], ONE_DEVICE, [(0, 3, 8), (1, 3, 8), (2, 3, 8)],
    ),
    "a device, that of the last end": (
        THREE_STREAMS, [*THREE_CALLS, Made(20, 108, SYNC_DEVICE)], ONE_OTHER_DEVICE, [(0, 3, 8), (1, 3, 8)],
    ),
    "a device, which CUPTI names": (
        THREE_STREAMS, [*THREE_CALLS, Made(20, 108, SYNC_DEVICE, awaits=2)], ONE_OTHER_DEVICE, [(2, 3, 18)],
    ),
    "a device that is done, no longer than the call took": (
        [Work(10, 100, call=0), Work(1_010, 1_019, call=2)],
        [Made(0, 5), Made(20, 108, SYNC_DEVICE), Made(1_000, 1_005), Made(1_020, 1_022, SYNC_DEVICE)],
        ONE_DEVICE, [(0, 1, 8), (1, 3, 3)],
    ),
    "a stream of a thread that launched nothing": (
        [Work(10, 40, call=0)], [Made(0, 5), Made(20, 140, SYNC_STREAM, 1)], ONE_DEVICE, [],
    ),
    "a stream, as the thread launched last": (ON_TWO, [*LAUNCHES, Made(20, 108, SYNC_STREAM)], ONE_DEVICE, [(1, 2, 4)]),
    "a stream, as CUPTI names it": (ON_TWO, [*LAUNCHES, Made(20, 108, SYNC_STREAM, awaits=0)], ONE_DEVICE, [(0, 2, 8)]),
    "a stream without work": (ON_TWO, [*LAUNCHES, Made(20, 108, SYNC_STREAM, awaits=3)], ONE_DEVICE, []),
    "the other stream, where the last launch had not ended": (
        OTHER_LATER, [*LAUNCHES, Made(20, 108, SYNC_STREAM)], ONE_DEVICE, [(0, 2, 8)],
    ),
    "another thread launched last": (
        [Work(10, 100, call=2), Work(12, 104, call=0, track=1)], [Made(6, 8), Made(20, 108, SYNC_STREAM), Made(0, 5, thread=1)],
        ONE_DEVICE, [(1, 1, 4)],
    ),
    "and waits itself": (
        [Work(10, 100, call=1), Work(12, 104, call=0, track=1)],
        [Made(6, 8), Made(0, 5, thread=1), Made(20, 108, SYNC_STREAM, 1)], ONE_DEVICE, [(0, 2, 8)],
    ),
    "nothing that was launched meanwhile": (
        [Work(10, 100, call=1), Work(50, 104, call=0, track=1)],
        [Made(45, 48), Made(0, 5, thread=1), Made(20, 108, SYNC_EVENT, 1)], ONE_DEVICE, [(0, 2, 8)],
    ),
    "what nobody knows when it was launched": (
        [Work(10, 100, call=1), Work(50, 104, track=1)],
        [Made(45, 48), Made(0, 5, thread=1), Made(20, 108, SYNC_EVENT, 1)], ONE_DEVICE, [(1, 2, 4)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("work", "made", "devices", "expected"), AWAITED.values(), ids=AWAITED)
def test_what_a_call_waits_for(
    work: list[Work], made: list[Made], devices: tuple[int, ...], expected: list[tuple[int, int, float]]
) -> None:
    recording = recorded(work, made, devices=devices)
    assert waits(recording) == expected
    if any(call.awaits >= 0 for call in made):
        assert not call_returns(recording).inferred.any(), "CUPTI names it"


@pytest.mark.parametrize(
    ("kind", "options", "returned", "waits_"),
    [
        (SYNC_DEVICE, {}, 1_030, [1]), (SYNC_DEVICE, {}, 1_030.1, []), (SYNC_DEVICE, {"start": 830}, 1_008, []),
        (SYNC_STREAM, {"awaits": 0}, 1_008, [1]), (SYNC_STREAM, {"awaits": 1}, 1_008, []),
    ],
)  # fmt: skip
def test_a_call_that_outlasts_what_was_launched_waits_for_work_of_unknown_launch(
    kind: int, options: dict[str, int], returned: float, waits_: list[int]
) -> None:
    """As for kernels that were launched before the recording began: a wait that ends just after them is for them."""
    made = Made(0, 5), Made(20, returned, kind)._replace(**options)
    actual = call_returns(recorded([Work(10, 15, call=0), Work(500, 1_000)], made, devices=(0, 1)))
    assert [row for row in actual.source.tolist() if row] == waits_
    assert (actual.rest[1] > 0) == (not waits_ and "start" not in options)


@pytest.mark.parametrize(("last", "waited"), [(100, 1), (48, 1), (47.9, 0)])
def test_a_stream_that_ended_long_before_was_not_the_one_awaited(last: float, waited: int) -> None:
    """Check a call that returns just after stream 0 ends and over 60 us after stream 1, launched last, ended."""
    work = [Work(10, 105, call=0), Work(12, last, call=1, track=1)]
    rows = waits(recorded(work, [Made(0, 5), Made(6, 8), Made(20, 108, SYNC_STREAM)]))
    assert [row[0] for row in rows] == ([1] if waited else [0, 1])


@pytest.mark.parametrize(
    ("kind", "pageable", "direction", "ends", "waited"),
    [
        (COPY, True, FIRST_COPY, 100, True), (COPY, False, FIRST_COPY, 100, False), (BLOCKING_COPY, False, FIRST_COPY, 100, True),
        (COPY, True, FIRST_COPY, 101, True), (COPY, True, FIRST_COPY, 101.1, False), (COPY, True, FIRST_COPY, 40, True),
        (COPY, True, FIRST_COPY + 1, 40, True), (BLOCKING_COPY, True, FIRST_COPY, 39.9, True), (KERNEL, True, KERNEL, 90, False),
    ],
)  # fmt: skip
def test_a_copy_that_blocks_returns_after_it(
    kind: int, pageable: bool, direction: int, ends: float, waited: bool
) -> None:
    work = [Work(20, ends, call=0, kind=direction, pageable=pageable)]
    assert bool(waits(recorded(work, [Made(0, 100, kind)]))) == waited


@pytest.mark.parametrize(
    ("kind", "pageable", "direction", "starts", "ends", "waited"),
    [
        (COPY, True, FIRST_COPY, 20, 130, True),
        (BLOCKING_COPY, True, FIRST_COPY, 99.9, 130, True),
        (COPY, True, FIRST_COPY, 100, 130, False),
        (COPY, True, FIRST_COPY, 20, 101, False),
        (COPY, False, FIRST_COPY, 20, 130, False),
        (COPY, True, FIRST_COPY + 1, 20, 130, False),
    ],
    ids=["staged", "blocking", "small", "ended", "pinned", "from the device"],
)
def test_a_call_that_stages_bytes_waits_for_the_start_of_its_copy(
    kind: int, pageable: bool, direction: int, starts: float, ends: float, waited: bool
) -> None:
    recording = recorded([Work(starts, ends, call=0, kind=direction, pageable=pageable)], [Made(0, 100, kind)])
    copies, calls = staged(recording.activities, recording.calls, recording.activities.end)
    assert (copies.tolist(), calls.tolist()) == (([0], [0]) if waited else ([], []))


def test_calls_that_do_not_wait_for_the_device_return_at_once() -> None:
    assert waits(recorded(*syncing(RECORD))) == []
    assert waits(recorded([], [Made(0, 5, SYNC_DEVICE), Made(9, 15, SYNC_STREAM), Made(20, 25, ALLOC)])) == []
    assert waits(recorded([Work(0, 9)], [])) == []


# Silences, polling, hand-overs


@pytest.mark.parametrize(("pause", "count"), [(20, 1), (19.9, 0)])
def test_a_pause_of_20_us_is_a_silence(pause: float, count: int) -> None:
    quiet = silences(recorded(busy=[Busy(0, 50), Busy(50 + pause, 200)]))
    inner = (quiet.start > -(10**15)) & (quiet.end < 10**15)
    assert int(inner.sum()) == count
    if count:
        assert (int(quiet.start[inner][0]), int(quiet.end[inner][0])) == (50 * US, 70 * US)


def test_a_thread_is_silent_before_its_first_event_and_after_its_last() -> None:
    quiet = silences(recorded(busy=[Busy(10, 50), Busy(10, 30, thread=1)]))
    assert quiet.thread.tolist() == [0, 0, 1, 1]
    assert (quiet.end[[0, 2]] / US).tolist() == [10, 10]
    assert (quiet.start[[1, 3]] / US).tolist() == [50, 30]


@pytest.mark.parametrize(("busy", "length", "count"), [(False, 20, 1), (False, 19.9, 0), (True, 500, 0)])
def test_a_stretch_that_is_no_work_is_a_silence(busy: bool, length: float, count: int) -> None:
    quiet = silences(recorded(busy=[Busy(0, 10), Busy(10, 10 + length, busy=busy), Busy(10 + length, 600)]))
    assert quiet.thread.size - 2 == count


def test_no_threads_no_silences() -> None:
    assert not silences(recorded()).thread.size


def polling(
    *, begins: float = 5, ends: float = 1_010, silent_until: float = 1_040, kind: int = 0
) -> tuple[list[Work], list[Made], list[Busy]]:
    """Build a launch of 5 us, silence from ``begins``, the end of its kernel and then further work of the thread."""
    return [Work(15, ends, call=0)], [Made(0, 5, kind)], [Busy(0, begins), Busy(silent_until, silent_until + 50)]


@pytest.mark.parametrize(
    ("options", "spins_"),
    [
        pytest.param({}, True, id="polls"), pytest.param({"kind": GRAPH}, True, id="a graph"), pytest.param({"kind": RECORD}, False, id="no launch"),
        pytest.param({"begins": 25}, True, id="20 us after its call"), pytest.param({"begins": 25.1}, False, id="later"),
        pytest.param({"ends": 980}, True, id="60 us after the kernel"), pytest.param({"ends": 979.9}, False, id="later than that"),
        pytest.param({"ends": 1_040}, True, id="at its end"), pytest.param({"ends": 1_041}, False, id="before its end"),
        pytest.param({"ends": 450, "silent_until": 505}, True, id="half a millisecond"),
        pytest.param({"ends": 450, "silent_until": 504.9}, False, id="shorter"),
        pytest.param({"ends": 9_806, "silent_until": 10_005}, True, id="2 % of the silence"),
        pytest.param({"ends": 9_804, "silent_until": 10_005}, False, id="more"),
    ],
)  # fmt: skip
def test_silence_behind_a_launch_that_ends_just_after_its_kernel_is_polling(
    options: dict[str, Any], spins_: bool
) -> None:
    actual = polled(recorded(*polling(**options)))
    assert bool(actual.silence.size) == spins_
    if not options:
        assert (actual.release.tolist(), (actual.lag / US).tolist()) == ([0], [30])


def test_a_thread_polls_for_what_it_launched_last_itself() -> None:
    work, made, busy = polling()
    other = recorded(work, [made[0]._replace(thread=1)], busy)
    assert not polled(other).silence.size
    later = recorded([*work, Work(1_015, 1_030, call=1)], [Made(-20, -15), made[0]], busy)
    assert polled(later).release.tolist() == [1]


def test_silence_without_a_launch_polls_nothing() -> None:
    assert not polled(recorded([], [], [Busy(0, 5), Busy(900, 950)])).silence.size
    assert not polled(recorded([Work(0, 900)], [], [Busy(0, 5), Busy(900, 950)])).silence.size
    assert not polled(recorded([Work(600, 900, call=0)], [Made(400, 500)], [Busy(0, 5), Busy(900, 950)])).silence.size


def turns(*, rest: float = 300, wakes: float = 50, **options: int) -> list[Busy]:
    """Make thread 0 fall silent at 100, thread 1 work until ``100 + rest`` and thread 0 continue ``wakes`` later."""
    thread = options.get("thread", 1)
    return [Busy(0, 100), Busy(100 + rest + wakes, 2_000), Busy(110, 100 + rest, thread=thread)]


@pytest.mark.parametrize(
    ("rest", "wakes", "resumed"),
    [(300, 50, True), (30, 200, True), (30, 200.1, False), (300, 300, True), (300, 300.1, False)],
    ids=["soon after", "200 us after", "later", "within half the silence", "in more than half"],
)
def test_a_thread_goes_on_after_another_fell_silent(rest: float, wakes: float, resumed: bool) -> None:
    actual = [row for row in handed(recorded(busy=turns(rest=rest, wakes=wakes))) if row[0] == 100 + rest + wakes]
    assert actual == ([(100 + rest + wakes, 100 + rest, wakes)] if resumed else [])


def test_a_thread_begins_after_another_fell_silent() -> None:
    """Nothing was recorded of it before: there is no half of its silence."""
    assert (110, 100, 10) in handed(recorded(busy=turns()))


def handed_at_450(busy: list[Busy]) -> list[tuple[float, float, float]]:
    """Return the hand-overs at which thread 0 goes on."""
    return [row for row in handed(recorded(busy=busy)) if row[0] == 450]


def test_threads_of_another_process_hand_over_nothing() -> None:
    assert handed(recorded(busy=turns(), processes=(0, 0))) != []
    assert handed(recorded(busy=turns(), processes=(0, 1))) == []
    assert handed(recorded(busy=turns(thread=0)[:2])) == []


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param([Busy(-50, 90, thread=1)], [], id="it fell silent before"),
        pytest.param([Busy(110, 500, thread=1)], [], id="only after"),
        pytest.param([Busy(110, 400, thread=1), Busy(430, 1_000, thread=1)], [], id="it goes on itself"),
        pytest.param([Busy(110, 400, thread=1), Busy(110, 420, thread=2)], [(450, 420, 30)], id="the last of two"),
    ],
)
def test_the_last_that_fell_silent_handed_over(others: list[Busy], expected: list[tuple[float, float, float]]) -> None:
    assert handed_at_450([Busy(0, 100), Busy(450, 2_000), *others]) == expected


def test_a_thread_that_only_asks_the_runtime_hands_over_nothing() -> None:
    working = recorded(busy=turns())
    parts = np.where(working.segments.thread == 1, RUNTIME, working.segments.part).astype(np.int8)
    watching = working._replace(segments=working.segments._replace(part=parts))
    launching = watching._replace(calls=recorded(made=[Made(150, 155, thread=1)]).calls)
    ended = [[row for row in handed(recording) if row[0] == 450] for recording in (working, watching, launching)]
    assert ended == [[(450, 400, 50)], [], [(450, 400, 50)]]


def test_a_silence_in_which_a_thread_polled_was_no_hand_over() -> None:
    work, made, busy = polling()
    beside = recorded(work, made, [*busy, Busy(10, 1_035, thread=1)])
    assert polled(beside).silence.size == 1
    assert [row for row in handed(beside) if row[0] == 1_040] == []


def test_of_several_kernels_the_first_to_end_held_the_sms() -> None:
    """And none that ended before the work was ready, or that began after it."""
    work = [*launches([10, 10, 10]), Work(3_060, 5_000, call=3)]
    others = [Work(2_200, 3_110, track=1), Work(2_400, 3_100, track=2), Work(3_055, 3_105, track=3)]
    rows = sorted([*work, *others])
    recording = recorded(rows, calls(4))
    held = device_edges(recording, fitted=[row.call != 3 for row in rows]).contention
    late_one = next(n for n, row in enumerate(rows) if row.call == 3)
    assert [rows[row].track for row in held.ref[held.target == late_one].tolist()] == [2]
