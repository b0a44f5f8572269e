"""Measure steps in a replay: between which points, and which edges belong to steady steps."""

import numpy as np

from trace_analyzer.replay.graph import OF_ACTIVITIES, Graph
from trace_analyzer.replay.recording import Flags, Ints, Recording, is_any, numbers_from
from trace_analyzer.tuning import dataclass


@dataclass(frozen=True)
class Anchors:
    """Hold the points between which steps are measured: from the latest of one group to the latest of another."""

    points: Ints
    groups: Ints
    begins: Ints
    ends: Ints

    def mean(self, times: Ints) -> float:
        """Return the mean distance, ns."""
        latest = self.latest(times)
        return float((latest[self.ends] - latest[self.begins]).mean())

    def latest(self, times: Ints) -> Ints:
        """Return the time of each group, which is that of its latest point."""
        return np.maximum.reduceat(times[self.points], self.groups)


@dataclass(frozen=True)
class Measure:
    """Hold the activities between which steps are measured: from the latest of one group to the latest of another.

    A group consists of activities' ends or, where a step starts with the recording, of its first activity's start.
    """

    groups: tuple[tuple[Ints, bool], ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    def anchors(self, graph: Graph) -> Anchors:
        """Return the corresponding points of a graph."""
        points = [(graph.ends if is_end else graph.starts)[rows] for rows, is_end in self.groups]
        sizes = np.array([rows.size for rows in points], dtype=np.int64)
        return Anchors(np.concatenate(points), np.cumsum(sizes) - sizes, np.array(self.begins), np.array(self.ends))


def measure_of(recorded: Recording) -> Measure:
    """Return how to measure the steps of a recording.

    They are measured by their last activities' ends; without steady steps, by the window.
    """
    activities, steps = recorded.activities, recorded.steps
    own = np.flatnonzero(activities.device == recorded.device)
    groups: list[tuple[Ints, bool]] = []
    begins, ends = [], []
    ending = {}

    def add(rows: Ints, is_end: bool) -> int:
        groups.append((rows, is_end))
        return len(groups) - 1

    for row, members in enumerate(_last_of_steps(recorded, own)):
        if members.size:
            ending[row] = add(members, True)
    after = np.searchsorted(activities.start[own], steps.start, "left").tolist()
    for row in np.flatnonzero(steps.steady).tolist():
        if row not in ending:
            continue
        if row - 1 in ending and steps.end[row - 1] == steps.start[row]:
            begin = ending[row - 1]
        else:
            begin = add(own[after[row] : after[row] + 1], False)
        begins.append(begin)
        ends.append(ending[row])
    if not ends:
        begins, ends = [add(own[:1], False)], [add(own, True)]
    return Measure(tuple(groups), tuple(begins), tuple(ends))


def _last_of_steps(recorded: Recording, own: Ints) -> list[Ints]:
    """Return, for each step, its activities among ``own`` that end within it, and all that end with it."""
    activities, steps = recorded.activities, recorded.steps
    step, end = activities.step[own], activities.end[own]
    inside = np.flatnonzero((step >= 0) & (end <= np.append(steps.end, 0)[step]))
    order = np.argsort(end, kind="stable")
    low, high = np.searchsorted(end[order], steps.end, "left"), np.searchsorted(end[order], steps.end, "right")
    count = high - low
    with_it = order[numbers_from(low, count)]
    rows = np.concatenate([step[inside], np.repeat(np.arange(steps.end.size), count)])
    row, place = np.divmod(np.unique(rows * own.size + np.concatenate([inside, with_it])), max(own.size, 1))
    return np.split(own[place], np.searchsorted(row, np.arange(1, steps.end.size))) if steps.end.size else []


def steady_edges(graph: Graph) -> Flags:
    """Return whether each edge belongs to a steady step; all edges where no step is steady.

    The host's part of a step lasts from the last launch of the previous step to the step's own last launch.
    """
    recorded = graph.recorded
    activities, calls, steps = recorded.activities, recorded.calls, recorded.steps
    if not steps.steady.any():
        return np.ones(graph.kind.size, dtype=bool)
    linked = np.flatnonzero((activities.call >= 0) & (activities.step >= 0))
    last = np.full(steps.start.size, -1, dtype=np.int64)
    np.maximum.at(last, activities.step[linked], calls.end[activities.call[linked]])
    begin = np.append(-1, last[:-1])
    chosen = np.zeros(graph.kind.size, dtype=bool)
    is_device = is_any(graph.kind, OF_ACTIVITIES)
    time, known = graph.time[graph.target], steps.steady & (begin < last)
    # A time is in as many intervals (begin, last] as begin before it and do not end before it.
    begun, over = (np.searchsorted(np.sort(times[known]), time, "left") for times in (begin, last))
    chosen |= ~is_device & (begun > over)
    of_step = np.append(steps.steady, False)[activities.step]
    chosen[is_device] = of_step[graph.ref[is_device]]
    return chosen
