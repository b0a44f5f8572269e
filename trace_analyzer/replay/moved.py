"""Convert a replayed program back to a recording, with all events at their replayed times."""

from dataclasses import replace

import numpy as np

from trace_analyzer.replay.graph import Graph
from trace_analyzer.replay.recording import Ints, Recording, ranges


def moved_recording(graph: Graph, times: Ints) -> Recording:
    """Return the recording that a replayed program would have produced: all recorded data at the new times."""
    recorded = graph.recorded
    activities, calls, segments = recorded.activities, recorded.calls, recorded.segments
    start, end = times[graph.starts], times[graph.ends]
    begun, done = times[graph.call_starts], times[graph.call_ends]
    moved_segments = replace(segments, start=segments.start.copy(), end=segments.end.copy())
    threads = np.intersect1d(segments.thread, calls.thread)
    by_thread = np.argsort(graph.thread, kind="stable")
    points, rows = ranges(graph.thread[by_thread], threads), ranges(segments.thread, threads)
    for hosts, row in zip(points, rows, strict=True):
        host = by_thread[hosts]
        if not host.size:
            continue
        old, new = graph.time[host], times[host]
        for column in (moved_segments.start, moved_segments.end):
            column[row] = _mapped(column[row], old, new)
    return replace(
        recorded,
        activities=replace(activities, start=start, end=end),
        calls=replace(calls, start=begun, end=done),
        segments=moved_segments,
    )


def _mapped(times: Ints, old: Ints, new: Ints) -> Ints:
    """Map times by interpolation between points; times outside of them move with the nearest point."""
    inside = np.interp(times, old, new)
    before, after = times < old[0], times > old[-1]
    inside = np.where(before, times - old[0] + new[0], np.where(after, times - old[-1] + new[-1], inside))
    return np.rint(inside).astype(np.int64)
