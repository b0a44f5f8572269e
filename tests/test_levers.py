"""What each resource holds of a step, and what the step gains without it."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, strategies as st
from lazy_report import LazyReport
from replay_pairs import PAIRS

from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.levers import HOST, RESOURCES, _covered_ns, levers
from trace_analyzer.replay.prediction import Replay

LIMITS = {"gpu": "compute", "cpu": HOST, "copies": "copies", "overlap, links limit": "communication"}


@cache
def replayed(name: str) -> Replay:
    return Replay.of(LazyReport.on(PAIRS[name].before(1), device=0), 0)


@pytest.mark.parametrize("name", LIMITS)
def test_the_resource_that_limits_saves_most(name: str) -> None:
    rows = levers(replayed(name))
    assert max(rows, key=lambda lever: lever.saves_ns).resource == LIMITS[name]


@pytest.mark.parametrize("name", [*LIMITS, "staging", "bucket"])
def test_levers_are_parts_of_one_replay(name: str) -> None:
    """Check that shares add up, that no lever saves more than its side's floor, and that the host's is the floor's."""
    replay = replayed(name)
    rows, now, (cpu_floor, device_floor) = levers(replay), replay.identity.step_ns, replay.floors()
    assert [row.resource for row in rows] == [key for key in (HOST, *RESOURCES) if key in {r.resource for r in rows}]
    assert sum(row.share_ratio for row in rows) == pytest.approx(1)
    assert sum(row.path_ratio for row in rows) <= 1 + 1e-9
    assert rows[0].saves_ns == now - device_floor
    for row in rows[1:]:
        assert 0 <= row.saves_ns <= now - cpu_floor + 1
        assert 0 <= row.share_ratio <= 1


def test_a_lever_is_the_step_with_its_part_infinitely_fast() -> None:
    replay = replayed("overlap, links limit")
    faster = replay.predict((Change("speedup", {"target": "communication", "factor": float("inf")}),)).step_ns
    (lever,) = (row for row in levers(replay) if row.resource == "communication")
    assert lever.saves_ns == pytest.approx(replay.identity.step_ns - faster)


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=8)


@given(spans, st.lists(st.integers(0, 50), max_size=6, unique=True))
def test_covered_time_is_that_of_a_naive_count(rows: list[tuple[int, int]], edges: list[int]) -> None:
    windows = list(zip(sorted(edges)[::2], sorted(edges)[1::2], strict=False))
    instants = {at for start, length in rows for at in range(start, start + length)}
    naive = sum(at in instants for begin, end in windows for at in range(begin, end))
    start, end = (np.array([row[0] + by * row[1] for row in rows], dtype=np.int64) for by in (0, 1))
    begins, ends = (np.array([window[i] for window in windows], dtype=np.int64) for i in (0, 1))
    assert _covered_ns(start, end, begins, ends) == naive
