# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Loop over ordered intervals: sort, unite, nest, cut and look up spans.

Plain Python that Cython compiles, by the rules of `trace_analyzer.frames._row_loops`. Spans are given as their tracks,
starts and ends; they are ordered by track and start, the longest of equal starts first. Segments are ordered disjoint
spans.
"""

try:
    import cython
except ImportError:  # Cython is needed for compiling only
    from contextlib import nullcontext
    from types import SimpleNamespace

    cython = SimpleNamespace(nogil=nullcontext())

from trace_analyzer.frames._row_loops import NEVER, NONE, Column

_NEAR = 8
"""Longest distance over which a row is moved to its place by insertion."""
_FEW = 64
"""Number of sorted runs up to which they are merged directly."""


def _precedes(tracks: Column, starts: Column, ends: Column, i: int, j: int) -> bool:
    """Return whether span i comes before span j in sorted order."""
    if tracks[i] != tracks[j]:
        return tracks[i] < tracks[j]
    if starts[i] != starts[j]:
        return starts[i] < starts[j]
    return ends[i] > ends[j]


def _in_order(tracks: Column, starts: Column, ends: Column) -> bool:
    """Return whether the spans are sorted."""
    track = start = end = 0
    for i in range(len(tracks)):
        # `_precedes` for a row and the previous one.
        if i and (
            tracks[i] < track or (tracks[i] == track and (starts[i] < start or (starts[i] == start and ends[i] > end)))
        ):
            return False
        track, start, end = tracks[i], starts[i], ends[i]
    return True


def _by_track(tracks: Column, rows: Column, known: Column, counts: Column) -> bool:
    """Group rows by track, stably; refuse a single track, and more tracks than fit into ``known``."""
    size = at = 0
    for i in range(len(tracks)):
        track = tracks[i]
        if size and known[at] == track:
            counts[at] += 1
            continue
        at = 0
        while at < size and known[at] < track:
            at += 1
        if at == size or known[at] != track:
            if size == len(known):
                return False
            for j in range(size, at, -1):
                known[j], counts[j] = known[j - 1], counts[j - 1]
            known[at], counts[at] = track, 0
            size += 1
        counts[at] += 1
    if size < 2:
        return False
    before = 0
    for j in range(size):  # from here on, the next free place of the track
        before += counts[j]
        counts[j] = before - counts[j]
    at = 0
    for i in range(len(tracks)):
        if known[at] != tracks[i]:
            at = 0
            while known[at] != tracks[i]:
                at += 1
        rows[counts[at]] = i
        counts[at] += 1
    return True


def _run(tracks: Column, starts: Column, ends: Column, rows: Column, low: int) -> int:
    """Return the end of the sorted run that starts at ``low``, after inserting rows that are nearly in place."""
    n = len(rows)
    for i in range(low + 1, n):
        row = rows[i]
        if not _precedes(tracks, starts, ends, row, rows[i - 1]):
            continue
        least = max(low, i - _NEAR)
        k = i - 1
        while k > least and _precedes(tracks, starts, ends, row, rows[k - 1]):
            k -= 1
        if k > low and _precedes(tracks, starts, ends, row, rows[k - 1]):
            return i
        for j in range(i, k, -1):
            rows[j] = rows[j - 1]
        rows[k] = row
    return n


def _runs(tracks: Column, starts: Column, ends: Column, rows: Column) -> list[int]:
    """Return the edges of the sorted runs of rows."""
    at, edges = 0, [0]
    while at < len(rows):
        with cython.nogil:
            at = _run(tracks, starts, ends, rows, at)
        edges.append(at)
    return edges


def _merged(
    tracks: Column, starts: Column, ends: Column, rows: Column, spare: Column, low: int, middle: int, high: int
) -> None:
    """Merge two sorted runs of rows into ``spare``."""
    i, j = low, middle
    for k in range(low, high):
        if j == high or (i < middle and not _precedes(tracks, starts, ends, rows[j], rows[i])):
            spare[k] = rows[i]
            i += 1
        else:
            spare[k] = rows[j]
            j += 1


def order(
    tracks: Column, starts: Column, ends: Column, rows: Column, spare: Column, known: Column, counts: Column
) -> bool:
    """Write the sorted order of the spans into ``rows``, stably; return whether they were unsorted.

    Spans mostly come in a few runs that are sorted or nearly sorted, or alternate between a few sorted tracks. Runs are
    merged pairwise; where there are many, spans are first grouped by track, if the tracks fit into ``known``.
    """
    n = len(tracks)
    if not (len(starts) == len(ends) == len(rows) == len(spare) == n and len(known) == len(counts)):
        raise ValueError("columns of different lengths")
    with cython.nogil:
        if _in_order(tracks, starts, ends):
            return False
        for i in range(n):
            rows[i] = i
    edges = _runs(tracks, starts, ends, rows)
    if len(edges) > _FEW:
        with cython.nogil:
            grouped = _by_track(tracks, rows, known, counts)
        if grouped:
            edges = _runs(tracks, starts, ends, rows)
    while len(edges) > 2:
        merged = [0]
        for e in range(0, len(edges) - 1, 2):
            low, middle = edges[e], edges[e + 1]
            high = edges[e + 2] if e + 2 < len(edges) else middle
            merged.append(high)
            with cython.nogil:
                _merged(tracks, starts, ends, rows, spare, low, middle, high)
        with cython.nogil:
            for i in range(n):
                rows[i] = spare[i]
        edges = merged
    return True


def union(tracks: Column, starts: Column, ends: Column, apart: int, rows: Column, stops: Column) -> int:
    """Write the first span and the end of each maximal interval of sorted spans; return their number."""
    n = len(tracks)
    if not (len(starts) == len(ends) == len(rows) == len(stops) == n):
        raise ValueError("columns of different lengths")
    count = 0
    track = until = 0
    with cython.nogil:
        for i in range(n):
            start, end = starts[i], ends[i]
            if start >= end:
                continue
            if count and tracks[i] == track and start <= until + apart:
                if end > until:
                    stops[count - 1] = until = end
                continue
            track, until = tracks[i], end
            rows[count], stops[count] = i, end
            count += 1
        return count


def enclosing(tracks: Column, starts: Column, ends: Column, outer: Column, stack: Column) -> None:
    """Write the enclosing span of each sorted span.

    A span that a later one outlasts is cut at the later one's start.
    """
    n = len(tracks)
    if not (len(starts) == len(ends) == len(outer) == len(stack) == n):
        raise ValueError("columns of different lengths")
    depth = track = 0
    none = NONE
    with cython.nogil:
        for i in range(n):
            outer[i] = none
            end = ends[i]
            if starts[i] >= end:
                continue
            if depth and tracks[i] != track:
                depth = 0
            track = tracks[i]
            # Remove spans that ended before, or are cut here.
            while depth and ends[stack[depth - 1]] < end:
                depth -= 1
            if depth:
                outer[i] = stack[depth - 1]
            stack[depth] = i  # each earlier span is on the stack at most once
            depth += 1


def innermost(
    tracks: Column, starts: Column, ends: Column, stack: Column, rows: Column, since: Column, until: Column
) -> int:
    """Write the segments of sorted spans with one innermost span each; return their number.

    A span makes at most two segments: one that ends at its start, and one that ends at its end.
    """
    n = len(tracks)
    if not (len(starts) == len(ends) == len(stack) == n and len(rows) == len(since) == len(until) == 2 * n):
        raise ValueError("columns of different lengths")
    count = depth = track = time = 0
    with cython.nogil:
        for i in range(n):
            start, end = starts[i], ends[i]
            if start >= end:
                continue
            while depth and (tracks[i] != track or ends[stack[depth - 1]] <= start):
                depth -= 1
                if time < ends[stack[depth]]:
                    rows[count], since[count] = stack[depth], time
                    until[count] = time = ends[stack[depth]]
                    count += 1
            if depth and time < start:
                rows[count], since[count], until[count] = stack[depth - 1], time, start
                count += 1
            while depth and ends[stack[depth - 1]] < end:
                depth -= 1  # the span is cut here
            track, time = tracks[i], start
            stack[depth] = i
            depth += 1
        while depth:
            depth -= 1
            if time < ends[stack[depth]]:
                rows[count], since[count] = stack[depth], time
                until[count] = time = ends[stack[depth]]
                count += 1
        return count


def _sought(tracks: Column, starts: Column, track: int, time: int, near: int) -> int:
    """Return the last segment on this or an earlier track that started by ``time``; -1 for none.

    The search starts at ``near``.
    """
    n = len(tracks)
    step = 1
    low, high = near, near
    if near < 0 or tracks[near] < track or (tracks[near] == track and starts[near] <= time):
        high = low + 1
        while high < n and (tracks[high] < track or (tracks[high] == track and starts[high] <= time)):
            low, step = high, 2 * step
            high = low + step
        high = min(high, n)
    else:
        low = high - 1
        while low >= 0 and not (tracks[low] < track or (tracks[low] == track and starts[low] <= time)):
            high, step = low, 2 * step
            low = high - step
        low = max(low, -1)
    while high - low > 1:
        middle = (low + high) // 2
        if tracks[middle] < track or (tracks[middle] == track and starts[middle] <= time):
            low = middle
        else:
            high = middle
    return low


def _stays(tracks: Column, starts: Column, track: int, time: int, near: int) -> bool:
    """Return whether ``near`` is still the last started segment."""
    return (
        near >= 0
        and tracks[near] == track
        and starts[near] <= time
        and (near + 1 == len(tracks) or tracks[near + 1] != track or starts[near + 1] > time)
    )


def around(tracks: Column, starts: Column, ends: Column, on: Column, times: Column, result: Column) -> None:
    """Write the segment around each time; without ends, the last started segment."""
    n, points, without_ends = len(tracks), len(on), len(ends) == 0
    if not (len(starts) == n and (without_ends or len(ends) == n) and len(times) == len(result) == points):
        raise ValueError("columns of different lengths")
    none, never = NONE, NEVER
    last = -1
    with cython.nogil:
        for i in range(points):
            result[i] = none
            track, time = on[i], times[i]
            if time == never:
                continue
            if not _stays(tracks, starts, track, time, last):
                last = _sought(tracks, starts, track, time, last)
            if last >= 0 and tracks[last] == track and (without_ends or time < ends[last]):
                result[i] = last


def passed(instants: Column, times: Column, counts: Column) -> None:
    """Write the number of sorted instants at or before each time."""
    points = len(times)
    if len(counts) != points:
        raise ValueError("columns of different lengths")
    last = -1
    with cython.nogil:
        for i in range(points):
            time = times[i]
            if not _stays(instants, instants, time, time, last):
                last = _sought(instants, instants, time, time, last)
            counts[i] = last + 1


def covered(
    tracks: Column,
    starts: Column,
    ends: Column,
    before: Column,
    on: Column,
    since: Column,
    until: Column,
    lengths: Column,
) -> None:
    """Write the length that the segments cover between two times; ``before`` receives the running sum."""
    n, points = len(tracks), len(on)
    if not (len(starts) == len(ends) == len(before) == n and len(since) == len(until) == len(lengths) == points):
        raise ValueError("columns of different lengths")
    never = NEVER
    length = 0
    with cython.nogil:
        for i in range(n):
            if i and tracks[i] != tracks[i - 1]:
                length = 0
            before[i] = length
            length += ends[i] - starts[i]
        first = last = -1
        for i in range(points):
            length = 0
            if until[i] != never:
                if not _stays(tracks, starts, on[i], until[i], last):
                    last = _sought(tracks, starts, on[i], until[i], last)
                if last >= 0 and tracks[last] == on[i]:
                    length += before[last] + min(until[i], ends[last]) - starts[last]
            if since[i] != never:
                if not _stays(tracks, starts, on[i], since[i], first):
                    first = _sought(tracks, starts, on[i], since[i], first)
                if first >= 0 and tracks[first] == on[i]:
                    length -= before[first] + min(since[i], ends[first]) - starts[first]
            lengths[i] = length


def cut(
    tracks: Column,
    starts: Column,
    ends: Column,
    on: Column,
    since: Column,
    until: Column,
    outside: bool,
    spans: Column,
    segments: Column,
    begins: Column,
    stops: Column,
) -> int:
    """Write the pieces of spans cut at the edges of segments, as far as there is room; return the number of pieces.

    A piece has its span, its segment, its start and its end. ``outside`` includes pieces outside all segments.
    """
    n, count, room = len(tracks), 0, len(spans)
    if not (
        len(starts) == len(ends) == n
        and len(since) == len(until) == len(on)
        and len(segments) == len(begins) == len(stops) == room
    ):
        raise ValueError("columns of different lengths")
    none = NONE
    last = -1
    with cython.nogil:
        for i in range(len(on)):
            track, time, end = on[i], since[i], until[i]
            if not _stays(tracks, starts, track, time, last):
                last = _sought(tracks, starts, track, time, last)
            at = max(last, 0)
            while True:
                # Up to the end of the segment around ``time``, or to the start of the next one.
                while at < n and (tracks[at] < track or (tracks[at] == track and ends[at] <= time)):
                    at += 1
                stop, segment = end, none
                if at < n and tracks[at] == track:
                    if starts[at] > time:
                        stop = min(end, starts[at])
                    else:
                        stop, segment = min(end, ends[at]), at
                if outside or segment != none:
                    if count < room:
                        spans[count], segments[count], begins[count], stops[count] = i, segment, time, stop
                    count += 1
                if stop >= end:
                    break
                time = stop
        return count


def overlaps(
    tracks: Column,
    starts: Column,
    ends: Column,
    on: Column,
    since: Column,
    until: Column,
    codes: Column,
    width: int,
    totals: Column,
) -> None:
    """Write the length of each segment that spans of each code under ``width`` cover."""
    n, count = len(tracks), len(on)
    if not (
        len(starts) == len(ends) == n and len(since) == len(until) == len(codes) == count and len(totals) == n * width
    ):
        raise ValueError("columns of different lengths")
    with cython.nogil:
        for i in range(len(totals)):
            totals[i] = 0
        last = -1
        for i in range(count):
            if codes[i] >= width:
                raise ValueError("no such code")
            track, time, end = on[i], since[i], until[i]
            if not _stays(tracks, starts, track, time, last):
                last = _sought(tracks, starts, track, time, last)
            at = max(last, 0)
            while at < n and (tracks[at] < track or (tracks[at] == track and starts[at] < end)):
                if tracks[at] == track and ends[at] > time:
                    totals[at * width + codes[i]] += min(end, ends[at]) - max(time, starts[at])
                at += 1
