# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Loop over an acyclic graph with ordered points: longest paths from the roots, and the path back.

Plain Python that Cython compiles, by the rules of `trace_analyzer.frames._row_loops`. Columns are memory views of int64
(``parts``: int8), whose items are Python's integers: those of NumPy have a width, and overflow. The edges that lead to a
point are contiguous, from ``offsets`` of the point to ``offsets`` of the next; ``sources`` are earlier points. Lengths
and the order of edges are checked before the loop.
"""

try:
    import cython
except ImportError:  # Cython is needed for compiling only
    from contextlib import nullcontext
    from types import SimpleNamespace

    cython = SimpleNamespace(nogil=nullcontext())

from trace_analyzer.frames._row_loops import Column

REMOVED = -(1 << 62)
"""Weight of an edge that is ignored."""


def check(offsets: Column, sources: Column) -> None:
    """Raise ``ValueError`` unless every edge leads from an earlier point to a later one."""
    points = len(offsets) - 1
    if points < 0 or offsets[0] != 0 or offsets[points] != len(sources):
        raise ValueError("offsets do not fit the edges")
    wrong = 0
    with cython.nogil:
        for p in range(points):
            if offsets[p] > offsets[p + 1]:
                wrong = 1
                break
            for e in range(offsets[p], offsets[p + 1]):
                if sources[e] < 0 or sources[e] >= p:
                    wrong = 1
    if wrong:
        raise ValueError("an edge leads back")


def longest(offsets: Column, sources: Column, weights: Column, roots: Column, times: Column, binding: Column) -> None:
    """Set the time of each point to the latest time that one of its edges allows, and its binding edge to that edge.

    A point without a counted edge keeps its time in ``roots``, and has binding edge -1. `check` must have accepted the
    edges.
    """
    points = len(offsets) - 1
    if not (len(roots) == len(times) == len(binding) == points and len(weights) == len(sources)):
        raise ValueError("columns of different lengths")
    removed = REMOVED
    with cython.nogil:
        for p in range(points):
            best, edge = removed, -1
            for e in range(offsets[p], offsets[p + 1]):
                if weights[e] == removed:
                    continue
                time = times[sources[e]] + weights[e]
                if edge < 0 or time > best:
                    best, edge = time, e
            times[p] = roots[p] if edge < 0 else best
            binding[p] = edge


def walk_back(sources: Column, binding: Column, point: int, until: int, path: Column) -> int:
    """Write the binding edges from ``point`` back to a root or to a point up to ``until``; return their number."""
    points, count, room = len(binding), 0, len(path)
    if point >= points:
        raise ValueError("no such point")
    with cython.nogil:
        while point > until and binding[point] >= 0 and count < room:
            path[count] = binding[point]
            count += 1
            point = sources[binding[point]]
    return count


def spend(
    firsts: Column,
    begins: Column,
    ends: Column,
    parts: Column,
    tracks: Column,
    starts: Column,
    stops: Column,
    spent: Column,
) -> None:
    """Add to ``spent`` the part of each interval that the track's segments of each part cover.

    The segments of a track are disjoint and contiguous in order of time, from ``firsts`` of the track to ``firsts`` of
    the next. Intervals are ordered by track and start, and none ends before it starts. ``spent`` has one row of
    intervals for each part.
    """
    count, segments, known = len(tracks), len(begins), len(firsts) - 1
    if not (len(starts) == len(stops) == count and len(ends) == len(parts) == segments):
        raise ValueError("columns of different lengths")
    rooms, wrong = (len(spent) // count if count else 0), 0
    with cython.nogil:
        track, row, until = 0, 0, 0
        for i in range(count):
            if i == 0 or tracks[i] != track:
                track = tracks[i]
                if track < 0 or track >= known or firsts[track] < 0 or firsts[track + 1] > segments:
                    wrong = 1
                    break
                row, until = firsts[track], firsts[track + 1]
            while row < until and ends[row] <= starts[i]:
                row += 1
            for r in range(row, until):
                if begins[r] >= stops[i]:
                    break
                since = begins[r] if begins[r] > starts[i] else starts[i]
                end = ends[r] if ends[r] < stops[i] else stops[i]
                if end > since:
                    if parts[r] < 0 or parts[r] >= rooms:
                        wrong = 1
                        break
                    spent[parts[r] * count + i] += end - since
    if wrong:
        raise ValueError("no such track or part")
