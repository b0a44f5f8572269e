"""Test the vectorized measuring and moving of recordings against loops over steps and threads."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_replay_changes import program
from tiers import examples

from trace_analyzer.replay.graph import CONTENTION, EXECUTION, GAP, LATENCY, WAIT, _last_of_steps, _mapped, steady_edges
from trace_analyzer.replay.recording import Ints

NUMBERS = st.integers(-40, 40)


def ints(values: Any) -> Ints:
    """Return int64 numbers."""
    return np.array(values, dtype=np.int64)


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.integers(-1, 3), NUMBERS, st.booleans()), max_size=20),
    st.lists(NUMBERS, min_size=4, max_size=4),
)
def test_activities_that_end_a_step_are_those_of_a_loop(rows: list[tuple[int, int, bool]], stops: list[int]) -> None:
    """Check (step, end, whether the activity is on the device) against the ends of four steps."""
    step, end, own = (
        ints([row[0] for row in rows]),
        ints([row[1] for row in rows]),
        np.array([row[2] for row in rows], bool),
    )
    recorded: Any = SimpleNamespace(
        activities=SimpleNamespace(step=step, end=end), steps=SimpleNamespace(end=ints(stops))
    )
    expected = [
        np.flatnonzero(own & (((step == number) & (end <= stop)) | (end == stop))).tolist()
        for number, stop in enumerate(stops)
    ]
    assert [members.tolist() for members in _last_of_steps(recorded, np.flatnonzero(own))] == expected


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.integers(0, 2), NUMBERS, NUMBERS), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 2), NUMBERS), max_size=12),
)
def test_times_move_as_interpolated_thread_by_thread(
    points: list[tuple[int, int, int]], asked: list[tuple[int, int]]
) -> None:
    """Check times of threads with points (thread, old time, new time) against `numpy.interp` on each thread."""
    points.sort(key=lambda point: point[1])
    thread, old, new = (ints(column) for column in zip(*points, strict=True))
    graph: Any = SimpleNamespace(thread=thread, time=old)
    known = [(number, time) for number, time in asked if number in thread]
    moved = _mapped(ints([number for number, _ in known]), ints([time for _, time in known]), graph, new)
    for (number, time), result in zip(known, moved.tolist(), strict=True):
        before, after = old[thread == number], new[thread == number]
        shift = after[0] - before[0] if time < before[0] else after[-1] - before[-1]
        inside = before[0] <= time <= before[-1]
        assert result == (round(np.interp(time, before, after)) if inside else time + shift)


@pytest.mark.parametrize("steady", [(), (2,), (0, 1), (0, 2, 3)])
def test_edges_of_steady_steps_are_those_of_a_loop(steady: tuple[int, ...]) -> None:
    recorded = program().graph.recorded
    activities, calls, steps = recorded.activities, recorded.calls, recorded.steps
    chosen = np.zeros(steps.steady.size, dtype=bool)
    chosen[list(steady)] = True
    graph = replace(program().graph, recorded=replace(recorded, steps=replace(steps, steady=chosen)))
    edges = steady_edges(graph)
    last = [
        max((calls.end[call] for call in activities.call[activities.step == row] if call >= 0), default=-1)
        for row in range(steps.start.size)
    ]
    for edge, (kind, time) in enumerate(zip(graph.kind.tolist(), graph.time[graph.target].tolist(), strict=True)):
        if kind in (LATENCY, EXECUTION, GAP, WAIT, CONTENTION):
            expected = activities.step[graph.ref[edge]] in steady
        else:
            expected = any((last[row - 1] if row else -1) < time <= last[row] for row in steady)
        assert edges[edge] == (expected or not steady)
