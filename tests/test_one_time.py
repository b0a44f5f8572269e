"""One-time work: what precedes the first launch of a kernel beyond the usual; a warm step from a cold one."""

import kineto as k
import pytest
from lazy_report import LazyReport, report_on

from trace_analyzer.compare.profiles import profile_of
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.prediction import Replay


def pass_of(begin: int, number: int, *, library: int = 0, loads: int = 0, each: int = 0) -> list[object]:
    """Build ten products of 50 us, one every 100 us; ``library`` us in the third's operator, Python before the sixth and ``each``."""
    at, events = begin - each, []
    for place in range(10):
        at += each + (loads if place == 5 else 0)
        start = library if place == 2 else 0
        correlation = 100 * number + place + 1
        events.append(k.op("aten::mm", at, 20 + start))
        events.append(k.launched(f"k{place}", at + 10 + start, at + 18 + start, 50, correlation))
        at += 100 + start
    return events


def firsts(*events: object) -> dict[str, tuple[float, bool]]:
    """Return the usual time in us of each first launch, and whether it is slow."""
    rows = k.analysed([*events], devices=[k.A100]).tables["first_launches"]
    return {row["name"]: (row["usual_ns"] / 1_000, row["is_slow"]) for row in rows.to_dicts()}


def test_a_first_launch_is_slow_beside_later_launches_of_its_kernel() -> None:
    table = firsts(pass_of(0, 0, library=5_000), pass_of(10_000, 1))
    assert table["k2"] == (100, True)
    assert [name for name, (_, slow) in table.items() if slow] == ["k2"]
    assert set(table) == {f"k{place}" for place in range(10)}


def test_what_takes_as_long_later_is_not_one_time_work() -> None:
    again = firsts(pass_of(0, 0, library=5_000, loads=9_000), pass_of(30_000, 1, library=5_000, loads=9_000))
    assert not any(slow for _, slow in again.values())


def test_without_a_later_launch_the_usual_one_is_at_most_a_quarter_of_a_millisecond() -> None:
    alone = firsts(*(k.launched(f"k{n}", 5_000 * n, 5_000 * n + 10, 50, n + 1) for n in range(1, 5)))
    assert alone["k2"] == (250, True)


def warm(*events: object) -> tuple[Replay, tuple[float, float, float]]:
    """Return the replay, and the warm step with its interval, us."""
    replay = Replay.of(LazyReport.on(k.trace_bytes(events, deviceProperties=[k.A100])), 0)
    then = replay.predict((Change("warm"),))
    return replay, (then.step_ns / 1_000, then.low_ns / 1_000, then.high_ns / 1_000)


def many(*, gone: int = 0, **cold: int) -> list[object]:
    """Build six passes, of which the first is ``cold``; the others begin ``gone`` us earlier."""
    return [pass_of(0, 0, **cold), *(pass_of(20_000 - gone + 2_000 * n, n) for n in range(1, 6))]


@pytest.mark.slow
def test_a_window_is_warm_without_what_its_library_took_to_start() -> None:
    """What Python took before a first launch is one-time work at best; at worst the library is the program's own work."""
    cold, (then, low, high) = warm(many(library=8_000, loads=2_000, each=800))
    now, came = (
        cold.recorded_step_ns / 1_000,
        (
            Replay.of(LazyReport.on(k.trace_bytes(many(gone=gone), deviceProperties=[k.A100])), 0).recorded_step_ns
            / 1_000
            for gone in (8_000, 17_200)
        ),
    )
    assert then == pytest.approx(next(came), rel=0.01)
    assert low < 1.01 * next(came)
    assert high == pytest.approx(now, rel=0.001)


def test_only_what_precedes_a_first_launch_on_its_thread_is_one_time_work() -> None:
    """The operator of the slow first launch begins at 200 us, and launches at 8,210; another thread launches meanwhile."""
    beside = [
        [k.op("aten::add", 1_000 * n - 500, 510, tid=k.MAIN + 1), k.launch(1_000 * n, 8, 900 + n, tid=k.MAIN + 1),
         k.kernel("k0", 1_000 * n + 20, 9, correlation=900 + n)]
        for n in range(1, 8)
    ]  # fmt: skip
    events = k.trace_bytes([many(library=8_000), *beside], deviceProperties=[k.A100])
    replay = Replay.of(LazyReport.on(events), 0)
    edges, rows = replay.graph.of_threads
    changed = (replay.weights(()).parts != replay.weights((Change("warm"),)).parts).any(axis=0)[rows]
    ends, threads = (column[replay.graph.target[edges]] for column in (replay.graph.time, replay.graph.thread))
    assert len(set(threads.tolist())) == 2
    assert [*zip(threads[changed].tolist(), ends[changed].tolist(), strict=True)] == [(0, 8_210_000)]


def test_comparisons_and_series_leave_out_the_one_time_work_that_a_warm_step_lacks() -> None:
    cold, usual = (
        profile_of(report_on(k.trace_bytes(many(**more), deviceProperties=[k.A100])))
        for more in ({"library": 8_000}, {})
    )
    assert usual.once_ns == 0
    assert cold.once_ns == pytest.approx(8_000_000, rel=0.02)
    assert sum(cold.without_once()) * cold.steps == cold.total_ns - cold.once_ns
