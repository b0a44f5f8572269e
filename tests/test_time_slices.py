"""Test turns of another program on a shared device: equal, periodic gaps of queued work that usually starts at once."""

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
from kineto import analysed, annotation, call, kernel, launch, launched, notes

from trace_analyzer.report import Report

pytestmark = pytest.mark.slow

GEMM, ADD = "ampere_fp16_s16816gemm_fp16_128x64", "void at::native::vectorized_elementwise_kernel<4, x>(int)"
TURNS = 12


def worked(turns: list[int], own: list[int], names: tuple[str, ...] = (GEMM, ADD), rest: int = 1) -> Iterator[Any]:
    """Queue kernels every 100 us at once, ``rest`` us apart; after ``own`` us comes a gap of ``turns`` us more, and so on."""
    at, number, name = 20, 0, cycle(names)
    for gap, length in zip(turns, own, strict=True):
        for _ in range(length // 100):
            number += 1
            yield launch(5 * number, 4, number)
            yield kernel(next(name), at, 100 - rest, correlation=number, grid=[5_000, 1, 1])
            at += 100
        at += gap
    # On an empty queue work starts at once: the clocks agree.
    yield [launched("last", at + 20 * n, at + 20 * n + 10, 5, number + 1 + n) for n in range(9)]


def slices(report: Report) -> int:
    return report.tables["idle"].filter(cause="time-slice").height


@pytest.mark.parametrize(("turn_us", "rest_us"), [(200, 1), (2_000, 1), (2_000, 25)])
def test_equal_periodic_turns_are_another_programs(turn_us: int, rest_us: int) -> None:
    """However short turns are, and however many shorter gaps there are."""
    turns = [turn_us + turn_us * (n % 5) // 150 for n in range(TURNS)]
    report = analysed(*worked(turns, [2_000] * TURNS, rest=rest_us))
    assert slices(report) == TURNS - 1
    assert report.verdict.parts_ns["time-slice"] == (sum(turns[:-1]) + rest_us * (TURNS - 1)) * 1_000
    assert notes(report)["time-sliced-device"] == TURNS - 1
    (note,) = (note.message for note in report.notes if note.code == "time-sliced-device")
    assert "idles 11 times for " in note
    assert f"every {(turn_us + 2_000) // 1_000}." in note
    assert (report.verdict.status, report.verdict.regime) == ("ok", "memory-bandwidth-bound")
    assert "another program seems to run" in report.verdict.headline
    assert report.verdict.confidence != "high"
    assert not report.verdict.levers


@pytest.mark.parametrize(
    ("turns", "own", "names"),
    [
        ([2_000 + 300 * (n % 7) for n in range(TURNS)], [2_000] * TURNS, (GEMM, ADD)),
        ([2_000] * TURNS, [100 * 5 ** (n % 4) for n in range(TURNS)], (GEMM, ADD)),
        ([2_000] * TURNS, [2_000] * TURNS, ("first", *[GEMM] * 19)),
        ([2_000] * 6, [2_000] * 6, (GEMM, ADD)),
        ([300] * TURNS, [2_000] * TURNS, (*[GEMM] * 3, *[ADD] * 17)),
    ],
    ids=["lengths differ", "distances differ", "the same work waits each time", "few", "the same place each time"],
)
def test_waits_that_nearly_are_turns(turns: list[int], own: list[int], names: tuple[str, ...]) -> None:
    report = analysed(*worked(turns, own, names))
    assert slices(report) == 0
    assert "time-sliced-device" not in notes(report)
    assert report.verdict.parts_ns["unexplained"] > 1_000_000


@pytest.mark.parametrize("late", ["no launch", "an event"])
def test_a_late_launch_or_an_event_is_no_turn(late: str) -> None:
    loop = []
    for n, name in zip(range(TURNS * 4), cycle((GEMM, ADD, ADD)), strict=False):
        at = 500 * n + (n // 4) * 2_000
        called = at if late == "no launch" else 20 * n
        waits = [call("cudaEventRecord", called, 2), call("cudaStreamWaitEvent", called + 3, 2)]
        loop.append([waits if late == "an event" else [], launched(name, called + 6, at + 20, 490, n + 1)])
    assert slices(analysed(loop, annotation("a", 0, 1))) == 0
