"""Build the dependency graph of a recording: points in time, and edges from each point to those that wait for it.

A point is the start or end of an activity, of a runtime call, or of a thread's silence. Points are in order of time, so
that every edge leads forward and one pass over the points replays the recording.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from trace_analyzer.frames import _path_loops
from trace_analyzer.replay.device_edges import device_links, launch_orders, trimmed
from trace_analyzer.replay.host_edges import (
    IDLE_CALL_NS,
    Silences,
    hand_overs,
    queue_room,
    returns,
    silences,
    spins,
    staged,
)
from trace_analyzer.replay.recording import (
    HOST_PARTS,
    SYNC_DEVICE,
    SYNC_EVENT,
    SYNC_STREAM,
    UNKNOWN,
    Flags,
    Ints,
    Kinds,
    Recording,
    by_track,
    distinct,
    is_any,
    numbers_from,
)

THREAD, CALL, LATENCY, EXECUTION, GAP, WAIT, CONTENTION, RETURN, SPIN, HAND_OVER, QUEUE, STAGING = range(12)
EDGES = (
    "thread", "call", "launch-latency", "execution", "stream-order", "stream-wait", "contention", "synchronization",
    "polling", "hand-over", "queue-room", "staging",
)  # fmt: skip
"""Names of the kinds of edges in tables and JSON; the index is the kind's number."""
OF_ACTIVITIES = (LATENCY, EXECUTION, GAP, WAIT, CONTENTION, STAGING)
"""Kinds of edges with an activity as `ref`."""
OF_DURATION = (EXECUTION, CONTENTION, STAGING)
"""Kinds of edges that last as long as an activity, or as a part of it."""

_ACTIVITY_END, _CALL_END, _RELEASE, _RESUME, _CALL_START, _ACTIVITY_START, _EMPTY_END = range(7)
"""Order of points at one instant: ends come before points that may have waited for them."""


class Graph(Struct, frozen=True, dict=True):
    """A recording's graph. Edges to the same point are contiguous; `offsets` has their ranges.

    ``weight`` is in ns, ``host`` its CPU part, and ``rest`` its unexplained part. ``ref`` is an activity for `LATENCY`,
    `EXECUTION`, `GAP`, `WAIT`, `STAGING` and `CONTENTION` (the one that occupied the SMs), a call for `CALL`, `RETURN`
    and `QUEUE`, and for `THREAD` a row of ``parts``, which are the ns of each of `HOST_PARTS`. ``starts``, ``ends``,
    ``call_starts`` and ``call_ends`` are points; ``thread`` is the thread of each host point, else -1.
    """

    recorded: Recording
    time: Ints
    offsets: Ints
    source: Ints
    target: Ints
    kind: Kinds
    ref: Ints
    weight: Ints
    host: Ints
    rest: Ints
    inferred: Flags
    parts: Ints
    starts: Ints
    ends: Ints
    call_starts: Ints
    call_ends: Ints
    thread: Ints

    @cached_property
    def of_threads(self) -> tuple[Ints, Ints]:
        """Return the edges of kind `THREAD`, and the row of ``parts`` for each."""
        edges = np.flatnonzero(self.kind == THREAD)
        return edges, self.ref[edges]

    @cached_property
    def caught_up(self) -> "Graph":
        """Return the graph of a device that has done what was launched before the recording as that begins.

        Else the queued steps of a CPU that is ahead would all end with that work, where the device takes no time.
        """
        steady, activities = self.recorded.steps.steady, self.recorded.activities
        moved = self.starts[~np.append(steady, False)[activities.step] & steady.any()]
        time = self.time.copy()
        time[moved[np.diff(self.offsets)[moved] == 0]] = self.time.min(initial=0)
        return replace(self, time=time)

    def replay(self, weights: Ints) -> tuple[Ints, Ints]:
        """Return the time of each point under ``weights``, and its binding edge (-1 for none)."""
        times, binding = np.empty_like(self.time), np.empty_like(self.time)
        columns = (self.offsets, self.source, weights, self.time, times, binding)
        _path_loops.longest(*(column.data for column in columns))
        return times, binding


class _Raw(NamedTuple):
    """Edges of one kind before points are sorted."""

    kind: int
    source: Ints
    target: Ints
    weight: Ints
    ref: Ints
    host: Ints
    inferred: Flags

    @staticmethod
    def of(
        kind: int,
        ends: tuple[Ints, Ints],
        weight: Ints,
        ref: Ints,
        host: Ints | None = None,
        inferred: Flags | bool = False,
    ) -> "_Raw":
        """Return edges, by default without a ``host`` part and not ``inferred``."""
        none = np.zeros(weight.size, dtype=np.int64)
        flags = np.full(weight.size, inferred) if isinstance(inferred, bool) else inferred
        return _Raw(kind, *ends, weight, ref, none if host is None else host, flags)


_COLUMNS = ("source", "target", "weight", "ref", "host", "inferred")


def build(recorded: Recording, fitted: Flags | None = None) -> Graph:
    """Return the graph of a recording.

    Typical values per class come from the ``fitted`` activities, by default from all.
    """
    return _assembled(recorded, *_unordered(recorded, fitted))


def _unordered(recorded: Recording, fitted: Flags | None) -> tuple[tuple[Ints, Ints, Ints], list[_Raw], Ints, Ints]:
    """Return the points, their edges, the unexplained time of each point, and the parts of thread edges."""
    activities, calls = recorded.activities, recorded.calls
    n, m = activities.start.size, calls.start.size
    end = trimmed(activities)
    orders = launch_orders(recorded)
    room = queue_room(recorded, orders)
    blocked = np.append(is_any(calls.kind, (SYNC_DEVICE, SYNC_STREAM, SYNC_EVENT)), False)
    blocked[room.call[~room.hidden]] = True
    waited = returns(recorded, end, orders)
    # A call that waits for work returns after it, whatever the clocks say.
    np.minimum.at(end, waited.source, np.maximum(calls.end[waited.target], activities.start[waited.source]))
    device = device_links(recorded, end, orders, blocked, np.ones(n, dtype=bool) if fitted is None else fitted)
    copy, staging = staged(activities, calls, end)
    quiet = silences(recorded)
    polled = spins(recorded, quiet, end)
    handed = hand_overs(recorded, quiet, polled.silence)
    resumed = distinct(np.concatenate([polled.silence, handed.silence]))
    used = distinct(np.concatenate([resumed, handed.release]))

    first = 2 * n + 2 * m
    begins, stops = np.full(quiet.start.size, -1), np.full(quiet.start.size, -1)
    has_begin, has_stop = used[np.abs(quiet.start[used]) < _OUTSIDE], used[np.abs(quiet.end[used]) < _OUTSIDE]
    begins[has_begin] = first + np.arange(has_begin.size)
    stops[has_stop] = first + has_begin.size + np.arange(has_stop.size)
    time = np.concatenate([activities.start, end, calls.start, calls.end, quiet.start[has_begin], quiet.end[has_stop]])
    rank = np.concatenate([
        np.full(n, _ACTIVITY_START), np.where(end > activities.start, _ACTIVITY_END, _EMPTY_END),
        np.full(m, _CALL_START), np.where(calls.end > calls.start, _CALL_END, _EMPTY_END),
        np.full(has_begin.size, _RELEASE), np.full(has_stop.size, _RESUME),
    ])  # fmt: skip

    starts, ends, call_starts, call_ends = (
        np.arange(a, a + k) for a, k in ((0, n), (n, n), (2 * n, m), (2 * n + m, m))
    )
    base = waited.base.copy()
    base[room.call[~room.hidden]], made = room.base[~room.hidden], room.activity >= 0
    base[staging] = np.minimum(base[staging], IDLE_CALL_NS)
    thread, parts = _thread_edges(recorded, (time, rank), quiet, (begins, stops), resumed)
    raw = [
        thread,
        _Raw.of(CALL, (call_starts, call_ends), base, np.arange(m), base),
        _Raw.of(EXECUTION, (starts, ends), end - activities.start, np.arange(n)),
        *(
            _Raw.of(kind, (links.source, links.target), links.weight, links.ref, links.host, inferred)
            for kind, links, inferred in (
                (LATENCY, device.latency, False),
                (GAP, device.gap, False),
                (WAIT, device.wait, True if device.wait.inferred is None else device.wait.inferred),
                (CONTENTION, device.contention, True),
            )
        ),
        _Raw.of(RETURN, (ends[waited.source], call_ends[waited.target]), waited.lag, waited.target, waited.lag, waited.inferred),
        _Raw.of(SPIN, (ends[polled.release], stops[polled.silence]), polled.lag, polled.release, polled.lag, True),
        _Raw.of(HAND_OVER, (begins[handed.release], stops[handed.silence]), handed.lag, handed.silence, handed.lag, True),
        _first_points(recorded, (time, rank), (has_begin, has_stop), quiet),
        _Raw.of(STAGING, (starts[copy], call_ends[staging]), calls.end[staging] - activities.start[copy], copy),
        _Raw.of(QUEUE, (starts[room.activity[made]], call_ends[room.call[made]]), room.lag[made], room.call[made], room.lag[made], True),
    ]  # fmt: skip
    rest = np.zeros(time.size, dtype=np.int64)
    rest[starts] = device.rest
    rest[call_ends] = waited.rest
    no_thread = np.full(2 * n, -1, dtype=np.int64)
    threads = [no_thread, calls.thread, calls.thread, quiet.thread[has_begin], quiet.thread[has_stop]]
    return (time, rank, np.concatenate(threads)), raw, rest, parts


def _first_points(recorded: Recording, points: tuple[Ints, Ints], silent: tuple[Ints, Ints], quiet: Silences) -> _Raw:
    """Return an edge to each thread's first point from the last earlier point of another thread in its process.

    That other thread is assumed to have started the work, unless the thread was working when the recording began.
    """
    time, rank = points
    has_begin, has_stop = silent
    n, calls = recorded.activities.start.size, recorded.calls
    point = np.arange(2 * n, time.size)
    of_thread = np.concatenate([calls.thread, calls.thread, quiet.thread[has_begin], quiet.thread[has_stop]])
    order = np.lexsort((rank[point], time[point]))
    point, of_thread = point[order], of_thread[order]
    process = recorded.processes[of_thread] if of_thread.size else of_thread
    _, firsts = np.unique(of_thread, return_index=True)
    # Before the first point of a thread, all points of its process belong to other threads.
    by_process = np.argsort(process, kind="stable")
    follows = process[by_process[1:]] == process[by_process[:-1]]
    previous = np.full(point.size, -1, dtype=np.int64)
    previous[by_process[1:][follows]] = by_process[:-1][follows]
    firsts = firsts[previous[firsts] >= 0]
    source, target = point[previous[firsts]], point[firsts]
    lag = time[target] - time[source]
    return _Raw.of(HAND_OVER, (source, target), lag, np.arange(lag.size), lag, True)


_OUTSIDE = np.iinfo(np.int64).max // 8


def _thread_edges(
    recorded: Recording, points: tuple[Ints, Ints], quiet: Silences, silence_points: tuple[Ints, Ints], resumed: Ints
) -> tuple[_Raw, Ints]:
    """Return the edges between consecutive points of each thread, except calls, and the parts of each edge."""
    time, rank = points
    begins, stops = silence_points
    n, m, calls = recorded.activities.start.size, recorded.calls.start.size, recorded.calls
    has_begin, has_stop = np.flatnonzero(begins >= 0), np.flatnonzero(stops >= 0)
    point = np.concatenate([np.arange(2 * n, 2 * n + 2 * m), begins[has_begin], stops[has_stop]])
    thread = np.concatenate([calls.thread, calls.thread, quiet.thread[has_begin], quiet.thread[has_stop]])
    item = np.concatenate([np.arange(m), np.arange(m), m + has_begin, m + has_stop])
    order = np.lexsort((item, rank[point], time[point], thread))
    point, thread, item = point[order], thread[order], item[order]
    same = (thread[1:] == thread[:-1]) & ~((item[1:] == item[:-1]) & (item[1:] < m))
    source, target = point[:-1][same], point[1:][same]
    parts = _parts(recorded, thread[:-1][same], time[source], time[target])
    slept = np.zeros(quiet.start.size + m, dtype=bool)
    slept[m + resumed] = True
    silent = (item[:-1] == item[1:])[same] & slept[item[1:][same]]
    parts[:, silent] = 0
    length = parts.sum(axis=0)
    return _Raw.of(THREAD, (source, target), length, np.arange(source.size), length), parts


def _parts(recorded: Recording, thread: Ints, begin: Ints, end: Ints) -> Ints:
    """Return the time of each part of `HOST_PARTS` in each interval of a thread, one row per part."""
    segments = recorded.segments
    result = np.zeros((len(HOST_PARTS), thread.size), dtype=np.int64)
    if not thread.size or not segments.start.size:
        result[UNKNOWN] = end - begin
        return result
    columns = (segments.firsts, segments.start, segments.end, segments.part, thread, begin, end, result.reshape(-1))
    _path_loops.spend(*(column.data for column in columns))
    result[UNKNOWN] += (end - begin) - result.sum(axis=0)
    return result


def _assembled(recorded: Recording, points: tuple[Ints, Ints, Ints], raw: list[_Raw], rest: Ints, parts: Ints) -> Graph:
    """Return the graph with points in order and edges sorted by target; edges that lead back are dropped.

    Empties ``raw`` column by column during sorting, which is when most memory is in use.
    """
    time, rank, threads = points
    order = np.lexsort((rank, time))
    place = np.empty_like(order)
    place[order] = np.arange(order.size)

    kind = np.concatenate([np.full(part.source.size, part.kind, dtype=np.int8) for part in raw])
    columns = {name: [getattr(part, name) for part in raw] for name in _COLUMNS}
    raw.clear()
    source, target = (place[np.concatenate(columns.pop(name))] for name in ("source", "target"))
    forward = np.flatnonzero(source < target)
    sorted_ = forward[np.argsort(target[forward], kind="stable")]
    source, target, kind = source[sorted_], target[sorted_], kind[sorted_]
    weight, ref, host, inferred = (np.concatenate(columns.pop(name))[sorted_] for name in _COLUMNS[2:])
    offsets = np.append(0, np.cumsum(np.bincount(target, minlength=order.size)))
    measured = time[order]
    edge_rest = _on_binding(measured, (offsets, source, target), weight, rest[order])
    n, m = recorded.activities.start.size, recorded.calls.start.size
    _path_loops.check(offsets.data, source.data)
    return Graph(
        recorded, measured, offsets, source, target, kind, ref, weight + edge_rest, host, edge_rest, inferred,
        parts, place[:n], place[n : 2 * n], place[2 * n : 2 * n + m], place[2 * n + m : 2 * n + 2 * m],
        threads[order],
    )  # fmt: skip


def _on_binding(time: Ints, edges: tuple[Ints, Ints, Ints], weight: Ints, rest: Ints) -> Ints:
    """Put the unexplained time of each point on its edge with the latest time, as measured."""
    offsets, source, target = edges
    on_edge = np.zeros(weight.size, dtype=np.int64)
    late = np.flatnonzero((rest > 0) & (np.diff(offsets) > 0))
    if not late.size:
        return on_edge
    mine = np.flatnonzero((rest > 0)[target])
    order = mine[np.lexsort((time[source[mine]] + weight[mine], target[mine]))]
    last = np.append(target[order][1:] != target[order][:-1], True)
    on_edge[order[last]] = rest[target[order[last]]]
    return on_edge


class Anchors(NamedTuple):
    """The points between which steps are measured: from the latest of one group to the latest of another."""

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

    def path(self, graph: Graph, times: Ints, binding: Ints) -> Ints:
        """Return the edges of the path that ends a pass over a graph and lie within a measured step, latest first."""
        latest, ending = self.latest(times), self.ends[-1]
        groups = np.append(self.groups, self.points.size)
        members = self.points[groups[ending] : groups[ending + 1]]
        last = int(members[times[members].argmax()])
        path = np.empty(graph.time.size, dtype=np.int64)
        edges = path[: _path_loops.walk_back(graph.source.data, binding.data, last, -1, path.data)]
        time = times[graph.target[edges]]
        # Steps do not overlap: as many have begun before a time as have ended, or one more.
        begun, over = (np.searchsorted(latest[groups], time) for groups in (self.begins, self.ends))
        inside: Ints = edges[begun > over]
        return inside


class Measure(NamedTuple):
    """The activities between which steps are measured: from the latest of one group to the latest of another.

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
    steps_of = np.repeat(np.arange(steps.end.size), high - low)
    with_it = order[numbers_from(low, high - low)]
    others = step[with_it] != steps_of
    row, place = np.concatenate([step[inside], steps_of[others]]), np.concatenate([inside, with_it[others]])
    by_step = np.lexsort((place, row))
    members = own[place[by_step]]
    return np.split(members, np.searchsorted(row[by_step], np.arange(1, steps.end.size))) if steps.end.size else []


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


def moved_recording(graph: Graph, times: Ints) -> Recording:
    """Return the recording that a replayed program would have produced: all recorded data at the new times."""
    recorded = graph.recorded
    activities, calls, segments = recorded.activities, recorded.calls, recorded.segments
    start, end = times[graph.starts], times[graph.ends]
    call_starts, call_ends = times[graph.call_starts], times[graph.call_ends]
    makes_calls = np.zeros(recorded.processes.size, dtype=bool)
    makes_calls[calls.thread] = True
    thread = segments.thread
    rows = np.flatnonzero(makes_calls[thread])
    edges = segments.edges.copy()
    edges[rows] = _mapped(thread[rows], edges[rows], graph, times)
    return recorded._replace(
        activities=activities._replace(start=start, end=end),
        calls=calls._replace(start=call_starts, end=call_ends),
        segments=segments._replace(edges=edges),
    )


def _mapped(thread: Ints, at: Ints, graph: Graph, times: Ints) -> Ints:
    """Map times of threads with points by interpolation between these; outside of them, they move with the nearest."""
    host = np.argsort(graph.thread, kind="stable")
    host = host[np.searchsorted(graph.thread[host], 0) :]
    points, old, new = graph.thread[host], graph.time[host], times[host]
    if not (at.size and host.size):
        return at
    first, last = np.searchsorted(points, thread, "left"), np.searchsorted(points, thread, "right") - 1
    known, asked = by_track((points, old), (thread, at))
    before = np.clip(np.searchsorted(known, asked, "right") - 1, first, last)
    after = np.minimum(before + 1, last)
    length = np.maximum(old[after] - old[before], 1)
    inside = (new[after] - new[before]) / length * (at - old[before]) + new[before]
    outside: Flags = (at < old[first]) | (at > old[last])
    return np.rint(np.where(outside, at - old[before] + new[before], inside)).astype(np.int64)
