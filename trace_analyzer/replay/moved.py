"""Convert a replayed program back to a recording, with all events at their replayed times."""

from dataclasses import replace

import numpy as np

from trace_analyzer.replay.graph import Graph
from trace_analyzer.replay.recording import Flags, Ints, Recording, by_track


def moved_recording(graph: Graph, times: Ints) -> Recording:
    """Return the recording that a replayed program would have produced: all recorded data at the new times."""
    recorded = graph.recorded
    activities, calls, segments = recorded.activities, recorded.calls, recorded.segments
    start, end = times[graph.starts], times[graph.ends]
    call_starts, call_ends = times[graph.call_starts], times[graph.call_ends]
    makes_calls = np.zeros(recorded.processes.size, dtype=bool)
    makes_calls[calls.thread] = True
    rows = np.flatnonzero(makes_calls[segments.thread])
    thread, (at, until) = segments.thread[rows].astype(np.int64), (segments.start.copy(), segments.end.copy())
    moved = _mapped(np.append(thread, thread), np.append(at[rows], until[rows]), graph, times)
    at[rows], until[rows] = np.split(moved, 2)
    return replace(
        recorded,
        activities=replace(activities, start=start, end=end),
        calls=replace(calls, start=call_starts, end=call_ends),
        segments=replace(segments, start=at, end=until),
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
