"""Determine when a host thread continues: after waits for the device, for another thread, or for room in a queue."""

from typing import NamedTuple

import numpy as np

from trace_analyzer.replay.device_edges import ENQUEUING, Orders, medians
from trace_analyzer.replay.recording import (
    ALLOC,
    BLOCKING_COPY,
    COPY,
    FIRST_COPY,
    FREE,
    GRAPH,
    LAUNCH,
    RUNTIME,
    SILENCE_NS,
    SYNC_DEVICE,
    SYNC_EVENT,
    SYNC_STREAM,
    Activities,
    Calls,
    Flags,
    Ints,
    Recording,
    by_track,
    distinct,
    is_any,
    median,
)
from trace_analyzer.thresholds import CLOCK_TOLERANCE_NS, UNRECORDED_NS

CLOCK_NS = 1_000
"""Tolerance between host and device times."""
RETURN_MAX_NS = 30_000
"""Longest time from the end of awaited work to the return of the waiting call; a longer one includes other work."""
STREAM_RETURN_MAX_NS = 60_000
DRAINED_RATIO = 0.75
"""Least share of calls of a name that return just after the device drains, for the allocating calls of that name to
count as waits."""
SPIN_MIN_NS = 500_000
SPIN_RETURN_NS, SPIN_RETURN_RATIO = 60_000, 0.02
"""Longest time after a kernel, in ns or as share of the silence, at which a thread that polls memory written by that
kernel continues."""
AFTER_LAUNCH_NS = 20_000
BLOCKED_TIMES, BLOCKED_NS, BLOCKED_DEPTH = 10, 40_000, 450
"""A launch call beyond both limits, at such a queue depth, waited for room in the queue."""
BLOCKED_QUANTILE = 0.1
"""Quantile of call durations that `BLOCKED_TIMES` multiplies: as most calls may have waited, it is the quickest
ones'."""
FREED_NS = 50_000
"""Longest time from the start that made room to the return of the waiting call, if few return at the same depth."""
SAME_ROOM, SAME_ROOM_CALLS, SAME_ROOM_TIMES = 2, 10, 2
"""Calls that returned at the same queue depth, within this tolerance, count as waiting, however briefly and late."""
HAND_OVER_NS = 200_000
"""Longest time (or half the silence) after another thread's silence begins at which a thread resumes because of it."""
IDLE_CALL_NS, _RETURN_NS = 5_000, 5_000
_CANDIDATES = 6
_FAR = np.iinfo(np.int64).max // 4


class Returns(NamedTuple):
    """Edges from ends of activities to ends of waiting calls; ``base`` is each call's duration without waiting.

    Sources are activities, targets calls. ``rest`` is the unexplained time of each call. ``copies`` marks calls of
    copies.
    """

    source: Ints
    target: Ints
    lag: Ints
    inferred: Flags
    base: Ints
    rest: Ints


class Silences(NamedTuple):
    """Intervals without an event in which a thread may have slept; the outermost lack a start or an end."""

    thread: Ints
    start: Ints
    end: Ints


class Resumes(NamedTuple):
    """Why silent threads continued: ``silence`` ended ``lag`` ns after a ``release``.

    A release is the start of another silence, or the end of an activity.
    """

    silence: Ints
    release: Ints
    lag: Ints


class Room(NamedTuple):
    """Launch calls that waited, or could wait, for room in a queue, and the activities whose start made room (-1: unrecorded).

    ``hidden`` marks those that did not wait; ``base`` is the duration without waiting of those that did.
    """

    call: Ints
    activity: Ints
    lag: Ints
    base: Ints
    hidden: Flags


def returns(recorded: Recording, end: Ints, orders: Orders) -> Returns:
    """Return what synchronizing, copying and freeing calls waited for."""
    calls, activities = recorded.calls, recorded.activities
    base = calls.end - calls.start
    pairs = [
        _last_launched(recorded, end, orders, (SYNC_DEVICE, FREE)),
        _own_stream(recorded, end, orders),
        _latest_end(recorded, end, np.flatnonzero(calls.kind == SYNC_EVENT), RETURN_MAX_NS),
        _latest_end(recorded, end, _drained(recorded, end, orders, np.flatnonzero(calls.kind == ALLOC)), RETURN_MAX_NS),
        _copies(activities, calls, end),
    ]
    lacking = is_any(calls.kind, (SYNC_DEVICE, SYNC_STREAM, SYNC_EVENT))
    latest = np.full(calls.start.size, -_FAR, dtype=np.int64)
    for source, target in pairs:
        np.maximum.at(latest, target, end[source])
    pairs.append(_unlinked(recorded, end, np.flatnonzero(lacking & _outlasts(calls, latest))))
    source = np.concatenate([pair[0] for pair in pairs])
    target = np.concatenate([pair[1] for pair in pairs])
    inferred = np.concatenate([np.full(pair[0].size, n in (1, 2, 3, 5)) for n, pair in enumerate(pairs)])
    inferred &= calls.awaits[target] < 0
    lag = calls.end[target] - end[source]
    waited = end[source] > calls.start[target]
    typical = _typical_lags(calls, target, lag, waited)
    np.maximum.at(latest, pairs[-1][1], end[pairs[-1][0]])
    idle = _idle_base(calls, latest)
    # A call that did not wait keeps its duration; for one that waited, only the typical duration is known.
    base = np.where(latest > calls.start, np.minimum(base, idle), base)
    # One that outlasts all that it is known to wait for waits for work that the trace lacks, which is no work of the CPU.
    lacking &= _outlasts(calls, latest)
    base = np.where(lacking, np.minimum(base, idle), base)
    keeps = is_any(calls.kind[target], (FREE, ALLOC, COPY, BLOCKING_COPY))
    # Calls that free or move memory continue after the wait; other calls return after the typical time.
    own = np.where(keeps & waited, np.maximum(calls.end[target] - latest[target], 0), typical)
    lag = np.where(waited, own, np.minimum(own, np.maximum(lag, 0)))
    ready = calls.start + base
    np.maximum.at(ready, target, end[source] + lag)
    rest = calls.end - ready
    rest[rest <= 20_000] = 0
    return Returns(source, target, lag, inferred, base, rest)


def _typical_lags(calls: Calls, target: Ints, lag: Ints, waited: Flags) -> Ints:
    """Return the typical time from the end of awaited work to the return, for each kind of call."""
    typical = np.full(int(calls.kind.max(initial=0)) + 1, _RETURN_NS, dtype=np.int64)
    lag = np.maximum(lag, 0)
    near = waited & (lag <= STREAM_RETURN_MAX_NS)
    for kind in distinct(calls.kind[target[near]]):
        own = near & (calls.kind[target] == kind)
        least = np.full(calls.start.size, _FAR, dtype=np.int64)
        np.minimum.at(least, target[own], lag[own])
        typical[kind] = int(median(least[least < _FAR]))
    return typical[calls.kind[target]]


def _idle_base(calls: Calls, latest: Ints) -> Ints:
    """Return the duration of calls of each name with nothing left to wait for."""
    taken = calls.end - calls.start
    base = np.full(calls.start.size, IDLE_CALL_NS, dtype=np.int64)
    waiting = is_any(calls.kind, (SYNC_DEVICE, SYNC_STREAM, SYNC_EVENT, ALLOC, FREE))
    # A longer one waited for work that the trace lacks.
    sample = waiting & (latest <= calls.start) & (taken <= UNRECORDED_NS)
    if sample.any():
        usual = dict(zip(calls.name[sample].tolist(), medians(taken[sample], calls.name[sample]).tolist(), strict=True))
        for name, value in usual.items():
            base[calls.name == name] = value
    return base


def _last_launched(recorded: Recording, end: Ints, orders: Orders, kinds: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Return, for calls that wait for a device, the last earlier launched activity on each of its streams."""
    calls, activities = recorded.calls, recorded.activities
    rows = np.flatnonzero(is_any(calls.kind, kinds))
    none = np.zeros(0, dtype=np.int64)
    if not rows.size or not activities.start.size:
        return none, none
    last = np.full((len(orders), rows.size), -1, dtype=np.int64)
    for track, (members, launch_starts) in enumerate(orders):
        if not members.size:
            continue
        at = np.searchsorted(launch_starts, calls.start[rows], "left") - 1
        source = members[np.maximum(at, 0)]
        fits = (at >= 0) & (end[source] <= calls.end[rows] + CLOCK_NS)
        last[track, fits] = source[fits]
    ends = np.where(last >= 0, end[last], -_FAR)
    best = ends.argmax(axis=0)
    known = calls.awaits[rows]
    device = np.where(known >= 0, recorded.tracks[np.maximum(known, 0), 0], recorded.tracks[best, 0])
    same = recorded.tracks[:, :1] == device[None, :]
    place, column = np.nonzero((last >= 0) & same)
    return last[place, column], rows[column]


def _own_stream(recorded: Recording, end: Ints, orders: Orders) -> tuple[Ints, Ints]:
    """Return, for calls that wait for a stream, the last activity launched on it.

    The stream is the one that CUPTI records, else that of the thread's last launch.
    """
    calls, activities = recorded.calls, recorded.activities
    rows = np.flatnonzero(calls.kind == SYNC_STREAM)
    none = np.zeros(0, dtype=np.int64)
    if not rows.size or not activities.start.size:
        return none, none
    source = last_of_thread(activities, calls, rows)
    for track, (members, launch_starts) in enumerate(orders):
        known = np.flatnonzero(calls.awaits[rows] == track)
        at = np.searchsorted(launch_starts, calls.start[rows[known]], "left") - 1
        source[known] = np.where(at >= 0, members[np.maximum(at, 0)] if members.size else -1, -1)
    # A call that is known to wait for the stream returns after its work, whatever the clocks say.
    tolerance = np.where(calls.awaits[rows] >= 0, CLOCK_TOLERANCE_NS, CLOCK_NS)
    fits = (source >= 0) & (end[np.maximum(source, 0)] <= calls.end[rows] + tolerance)
    # The thread's last launch may be on another stream: the awaited activity ended just before the call returned.
    guessed = np.flatnonzero(calls.awaits[rows] < 0)
    bound, targets = _latest_end(recorded, end, rows[guessed], STREAM_RETURN_MAX_NS)
    gap = np.full(calls.start.size, _FAR, dtype=np.int64)
    gap[rows[fits]] = calls.end[rows[fits]] - end[source[fits]]
    better = gap[targets] > STREAM_RETURN_MAX_NS
    return np.concatenate([source[fits], bound[better]]), np.concatenate([rows[fits], targets[better]])


def last_of_thread(activities: Activities, calls: Calls, rows: Ints) -> Ints:
    """Return, for calls, the activity that their thread launched last before them; -1 for none."""
    last = np.full(calls.start.size + 1, -1, dtype=np.int64)
    linked = np.flatnonzero(activities.call >= 0)
    last[activities.call[linked] + 1] = linked
    row = np.where(last >= 0, np.arange(last.size), 0)
    before = np.maximum.accumulate(row)[rows]
    same = (before > 0) & (calls.thread[np.maximum(before - 1, 0)] == calls.thread[rows])
    return np.where(same, last[before], -1)


def _latest_end(recorded: Recording, end: Ints, rows: Ints, most: int) -> tuple[Ints, Ints]:
    """Return, for calls, the earlier launched activity that ended last during them, if just before they returned."""
    calls, activities = recorded.calls, recorded.activities
    none = np.zeros(0, dtype=np.int64)
    if not rows.size or not activities.start.size:
        return none, none
    order = np.argsort(end, kind="stable")
    at = np.searchsorted(end[order], calls.end[rows] + CLOCK_NS, "right") - 1
    launched = calls.start[activities.call] if calls.start.size else activities.start
    for _ in range(_CANDIDATES):
        source = order[np.maximum(at, 0)]
        later = (at >= 0) & (activities.call[source] >= 0) & (launched[source] >= calls.start[rows])
        if not later.any():
            break
        at = at - later
    source = order[np.maximum(at, 0)]
    fits = (at >= 0) & (end[source] > calls.start[rows]) & (calls.end[rows] - end[source] <= most)
    fits &= (activities.call[source] < 0) | (launched[source] < calls.start[rows])
    return source[fits], rows[fits]


def _outlasts(calls: Calls, latest: Ints) -> Flags:
    """Return which calls outlast the ``latest`` end of what each is known to wait for."""
    longer: Flags = calls.end - np.maximum(latest, calls.start) > UNRECORDED_NS
    return longer


def _unlinked(recorded: Recording, end: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return, for calls, the activity of unknown launch that ended last during them, if just before they returned."""
    calls, activities = recorded.calls, recorded.activities
    source, target = _latest_end(recorded, end, rows, RETURN_MAX_NS)
    known = calls.awaits[target]
    own = (known < 0) | (recorded.tracks[np.maximum(known, 0), 0] == activities.device[source])
    own &= activities.call[source] < 0
    return source[own], target[own]


def _drained(recorded: Recording, end: Ints, orders: Orders, rows: Ints) -> Ints:
    """Return the calls that returned just after all earlier launched work had ended.

    Against coincidences, `DRAINED_RATIO` of the calls of a name during which the work ended must have returned so.
    """
    calls = recorded.calls
    drained = np.full(rows.size, -_FAR, dtype=np.int64)
    for members, launch_starts in orders:
        if members.size:
            at = np.searchsorted(launch_starts, calls.start[rows], "left") - 1
            drained = np.maximum(drained, np.where(at >= 0, end[members[np.maximum(at, 0)]], -_FAR))
    inside = (drained > calls.start[rows]) & (drained <= calls.end[rows] + CLOCK_NS)
    just = inside & (calls.end[rows] - drained <= RETURN_MAX_NS)
    name = calls.name[rows]
    so, ended = (np.bincount(name[flags], minlength=name.max(initial=0) + 1) for flags in (just, inside))
    return rows[just & (so >= DRAINED_RATIO * ended)[name]]


def _copies(activities: Activities, calls: Calls, end: Ints) -> tuple[Ints, Ints]:
    """Return the activities of copies whose calls return after them: of pageable memory, or by a blocking call."""
    own, call = _blocking(activities, calls)
    fits = end[own] <= calls.end[call] + CLOCK_NS
    return own[fits], call[fits]


def staged(activities: Activities, calls: Calls, end: Ints) -> tuple[Ints, Ints]:
    """Return the activities and calls of copies to the device that begin during their call and end after it.

    The call returns with the last bytes of pageable memory in the driver's buffer, which empties only as the copy goes
    on: the call waits for the copy's start, and so for all earlier work of the stream.
    """
    own, call = _blocking(activities, calls)
    fits = (activities.kind[own] == FIRST_COPY) & (activities.start[own] < calls.end[call])
    fits &= end[own] > calls.end[call] + CLOCK_NS
    return own[fits], call[fits]


def _blocking(activities: Activities, calls: Calls) -> tuple[Ints, Ints]:
    """Return the activities and calls of copies of pageable memory, or by a blocking call."""
    own = np.flatnonzero(activities.call >= 0)
    call = activities.call[own]
    blocks = (calls.kind[call] == BLOCKING_COPY) | ((calls.kind[call] == COPY) & activities.pageable[own])
    return own[blocks], call[blocks]


def silences(recorded: Recording) -> Silences:
    """Return intervals of at least `SILENCE_NS` without an event, in which a thread may have slept or polled memory."""
    segments = recorded.segments
    long_ = np.flatnonzero(~segments.busy & (segments.end - segments.start >= SILENCE_NS))
    present = segments.present
    first, last = segments.firsts[present], segments.firsts[present + 1] - 1
    far = np.full(present.size, _FAR)
    thread = np.concatenate([np.searchsorted(segments.firsts, long_, "right") - 1, present, present])
    start = np.concatenate([segments.start[long_], -far, segments.start[last]])
    end = np.concatenate([segments.end[long_], segments.start[first], far])
    order = np.lexsort((start, thread))
    return Silences(thread[order], start[order], end[order])


def spins(recorded: Recording, quiet: Silences, end: Ints) -> Resumes:
    """Return silences after a launch that end just after its kernel, as the CPU polled memory.

    Releases are activities.
    """
    calls, activities = recorded.calls, recorded.activities
    none = np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero((quiet.start > -_FAR) & (quiet.end < _FAR) & (quiet.end - quiet.start >= SPIN_MIN_NS))
    if not rows.size or not calls.start.size or not activities.start.size:
        return Resumes(none, none, none)
    ends, starts = by_track((calls.thread, calls.end), (quiet.thread[rows], quiet.start[rows]))
    at = np.searchsorted(ends, starts, "right") - 1
    call = np.maximum(at, 0)
    last = np.full(calls.start.size, -1, dtype=np.int64)
    linked = np.flatnonzero(activities.call >= 0)
    last[activities.call[linked]] = linked
    activity = last[call]
    fits = (at >= 0) & (calls.thread[call] == quiet.thread[rows]) & (activity >= 0)
    fits &= is_any(calls.kind[call], (LAUNCH, GRAPH)) & (quiet.start[rows] - calls.end[call] <= AFTER_LAUNCH_NS)
    lag = quiet.end[rows] - end[activity]
    length = quiet.end[rows] - quiet.start[rows]
    fits &= (lag >= 0) & (lag <= np.maximum(SPIN_RETURN_NS, SPIN_RETURN_RATIO * length))
    return Resumes(rows[fits], activity[fits], lag[fits])


def hand_overs(recorded: Recording, quiet: Silences, taken: Ints) -> Resumes:
    """Return silences that end after another thread of the process worked and fell silent. Releases are silences.

    A thread that only queries the runtime, such as the watchdog of NCCL every 100 ms, does no work.
    """
    none = np.zeros(0, dtype=np.int64)
    free = np.ones(quiet.start.size, dtype=bool)
    free[taken] = False
    rows = np.flatnonzero((quiet.end < _FAR) & free)
    works = np.zeros(recorded.processes.size, dtype=bool)
    segments = recorded.segments
    own_work = (segments.part != RUNTIME) & segments.is_event
    works[segments.present] = np.logical_or.reduceat(own_work, segments.firsts[segments.present])
    works[recorded.calls.thread] = True
    releases = np.flatnonzero((quiet.start > -_FAR) & works[quiet.thread])
    if not rows.size or not releases.size:
        return Resumes(none, none, none)
    process = recorded.processes[quiet.thread]
    order = releases[np.argsort(quiet.start[releases], kind="stable")]
    at = np.searchsorted(quiet.start[order], quiet.end[rows], "right") - 1
    releases = np.full(rows.size, -1, dtype=np.int64)
    for _ in range(_CANDIDATES):
        other = order[np.maximum(at, 0)]
        fits = (
            (at >= 0) & (releases < 0) & (quiet.thread[other] != quiet.thread[rows]) & (process[other] == process[rows])
        )
        fits &= (quiet.start[other] > quiet.start[rows]) & (quiet.end[other] > quiet.end[rows])
        releases[fits] = other[fits]
        at = at - 1
    known = releases >= 0
    lag = quiet.end[rows] - quiet.start[np.maximum(releases, 0)]
    length = np.minimum(quiet.end[rows] - quiet.start[rows], _FAR)
    known &= lag <= np.maximum(HAND_OVER_NS, np.where(length < _FAR, length // 2, 0))
    return Resumes(rows[known], releases[known], lag[known])


def queue_room(recorded: Recording, orders: Orders) -> Room:
    """Return the launch calls that waited for room in their queue, with the activity whose start made room.

    Before a device's first activity, a long call whose work starts later than the call took waited for unrecorded work, if that
    activity was launched before the recording, or if there are several such calls.
    """
    calls, activities = recorded.calls, recorded.activities
    none = np.zeros(0, dtype=np.int64)
    linked = np.flatnonzero(activities.call >= 0)
    rows = np.flatnonzero(is_any(calls.kind, ENQUEUING))
    if not rows.size or not linked.size:
        return Room(none, none, none, none, none.astype(bool))
    typical = np.zeros(calls.start.size, dtype=np.int64)
    typical[rows] = medians((calls.end - calls.start)[rows], calls.name[rows], BLOCKED_QUANTILE)
    first = np.full(calls.start.size, -1, dtype=np.int64)
    first[activities.call[linked[::-1]]] = linked[::-1]
    rows = rows[first[rows] >= 0]
    taken = calls.end[rows] - calls.start[rows]
    longer, long_ = np.zeros((2, calls.start.size), dtype=bool)
    longer[rows] = taken > SAME_ROOM_TIMES * typical[rows]
    long_[rows] = (taken > BLOCKED_TIMES * typical[rows]) & (taken > BLOCKED_NS)
    slow = rows[longer[rows] | (taken > SAME_ROOM_TIMES * IDLE_CALL_NS)]
    suspects, launched = (_by_track(part, activities.track[first[part]], len(orders)) for part in (slow, rows))
    parts = [
        _blocked(recorded, order, (suspects[track], longer, long_), launched[track])
        for track, order in enumerate(orders)
    ]
    call = np.concatenate([none, *(part[0] for part in parts)])
    activity = np.concatenate([none, *(part[1] for part in parts)])
    hidden = np.concatenate([np.zeros(0, dtype=bool), *(part[2] for part in parts)])
    lag = calls.end[call] - activities.start[activity]
    usual = int(median(lag[~hidden])) if (~hidden).any() else 0
    lag = np.where(hidden, np.minimum(lag, usual), lag)
    own = first[rows]
    leading = np.zeros(int(activities.device.max()) + 2, dtype=np.int64)  # the first of each device, and of none (-1)
    leading[activities.device[::-1]] = np.arange(activities.start.size)[::-1]
    begun = leading[activities.device[own]]
    unseen = long_[rows] & (calls.start[rows] < activities.start[begun]) & ~np.isin(rows, call)
    unseen &= activities.start[own] - calls.end[rows] > taken
    unseen &= (activities.call[begun] < 0) | (unseen.sum() >= SAME_ROOM_CALLS)
    more = np.full(int(unseen.sum()), -1, dtype=np.int64)
    call = np.append(call, rows[unseen])
    base = np.where(longer[call], typical[call], np.minimum(typical[call], IDLE_CALL_NS))
    return Room(call, np.append(activity, more), np.append(lag, more), base, np.append(hidden, more > 0))


def _by_track(rows: Ints, tracks: Ints, count: int) -> list[Ints]:
    """Split rows by their track, in order."""
    order = np.argsort(tracks, kind="stable")
    bounds = np.searchsorted(tracks[order], np.arange(1, count))
    return np.split(rows[order], bounds)


def _at_one_depth(between: Ints) -> Flags:
    """Return which calls return at the most frequent queue depth."""
    values, counts = np.unique(between, return_counts=True)
    alike: Flags = np.abs(between - values[counts.argmax()]) <= SAME_ROOM if values.size else between > 0
    return alike


def _is_together(lag: Ints, started: Ints) -> bool:
    """Return whether calls return at one ``lag`` after starts, as where all wait alike and none is longer than the others.

    80 % of the lags then lie within a quarter of the usual time between starts.
    """
    low, high = (np.partition(lag, at)[at] for at in (lag.size // 10, 9 * lag.size // 10))
    return bool(4 * (high - low) <= median(np.diff(started)))


def _blocked(
    recorded: Recording, launched: tuple[Ints, Ints], suspects: tuple[Ints, Flags, Flags], rows: Ints
) -> tuple[Ints, Ints, Flags]:
    """Return calls of one stream and the activities whose start made room: waiting calls first, then all others."""
    calls, activities = recorded.calls, recorded.activities
    (members, launch_starts), (slow, longer, long_) = launched, suspects
    order = np.argsort(activities.start[members], kind="stable")
    started = activities.start[members][order]
    place = np.searchsorted(launch_starts, calls.start[slow], "left")
    depth = place - np.searchsorted(started, calls.start[slow], "right")
    at = np.searchsorted(started, calls.end[slow], "right") - 1
    source = order[np.maximum(at, 0)] if order.size else at
    fits = (depth >= BLOCKED_DEPTH) & (at >= 0)
    if order.size:
        fits &= activities.start[members[source]] > calls.start[slow]
    if fits.any():
        between, own = place[fits] - source[fits], longer[slow[fits]]
        lag = calls.end[slow[fits]] - activities.start[members[source[fits]]]
        alike = _at_one_depth(between)
        if not _is_together(lag[alike], started):
            alike = own.copy()
            alike[own] = _at_one_depth(between[own])
        fits[fits] = (long_[slow[fits]] & (lag <= FREED_NS)) | (alike & (alike.sum() >= SAME_ROOM_CALLS))
    call, activity = slow[fits], members[source[fits]] if order.size else slow[fits]
    if not call.size:
        return call, activity, np.zeros(0, dtype=bool)
    # The queue's capacity is the number of calls since the one that made room; fewer where events fill it.
    room = int((place[fits] - source[fits]).max())
    others = rows[~np.isin(rows, call)]
    behind = np.searchsorted(launch_starts, calls.start[others], "left") - room
    others, behind = others[behind >= 0], behind[behind >= 0]
    freed = members[behind]
    known = activities.start[freed] <= calls.end[others]
    others, freed = others[known], freed[known]
    hidden = np.append(np.zeros(call.size, dtype=bool), np.ones(others.size, dtype=bool))
    return np.append(call, others), np.append(activity, freed), hidden
