"""What each resource is worth: its share of the time, of the critical path, and what the step saves without it."""

from functools import cache

import pytest
from replay_pairs import PAIRS

from trace_analyzer.pipeline import analyze
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.whatif import whatif
from trace_analyzer.report import Report

LIMITS = {"gpu": "compute", "cpu": "host", "copies": "copies", "overlap, links limit": "communication"}


@cache
def report(name: str) -> Report:
    return analyze(PAIRS[name].before(1))


@pytest.mark.parametrize("name", LIMITS)
def test_the_resource_that_limits_saves_most(name: str) -> None:
    assert report(name).verdict.levers[0].resource == LIMITS[name]


@pytest.mark.parametrize("name", [*LIMITS, "staging", "bucket"])
def test_levers_are_parts_of_one_replay(name: str) -> None:
    """Check that shares and paths are parts of a whole, and that no lever saves more than its side's floor."""
    of = report(name)
    rows, result = of.verdict.levers, whatif(of)
    assert rows == result.levers
    assert result.replay is not None
    assert result.cpu_floor_ns is not None
    assert result.device_floor_ns is not None
    assert sum(row.share_ratio for row in rows) <= 1 + 1e-9
    assert sum(row.path_ratio for row in rows) <= 1 + 1e-9
    now = result.step_ns
    assert now is not None
    for row in rows:
        floor = result.device_floor_ns if row.resource == "host" else result.cpu_floor_ns
        assert 0 <= row.saves_ns <= now - floor + 1
        assert row.saves_ratio == pytest.approx(row.saves_ns / now)
    assert list(rows) == sorted(rows, key=lambda row: -row.saves_ns)


def test_a_lever_is_the_step_with_its_part_infinitely_fast() -> None:
    of = report("overlap, links limit")
    fast = (Change("speedup", {"target": "communication", "factor": float("inf")}),)
    (lever,) = (row for row in of.verdict.levers if row.resource == "communication")
    assert lever.saves_ns == pytest.approx(lever.saves_ns / lever.saves_ratio - Replay.of(of, 0).predict(fast).step_ns)
