"""Test windows, busy time and gaps of a device, over all its streams."""

import pytest
from kineto import Event, analysed, copy, kernel, launch, launched, memset, op, rows


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
