"""Determine when an activity can start: after its launch, and after earlier activities of its stream and of others.

Functions return edges between points of the recording; ``starts[a]`` and ``ends[a]`` are the points of activity ``a``.
"""

import itertools
from typing import NamedTuple

import numpy as np

from trace_analyzer.replay.recording import (
    BLOCKING_COPY,
    COPY,
    GRAPH,
    GRAPH_KERNEL,
    LAUNCH,
    OTHER_COPY,
    SET,
    WAIT,
    Activities,
    Calls,
    Flags,
    Ints,
    Recording,
    by_track,
    median,
)

LATENCY_MAX_NS = 100_000
"""Longest launch latency on an empty stream; a longer one includes a wait."""
LONG_CALL_MEDIANS = 3
"""Longest launch call, in medians of its kind; a longer one did other work first, such as loading a module."""
GAP_MAX_NS = 20_000
"""Longest gap between queued activities of one stream; a longer one has another reason."""
OVERLAP_ROUNDING_NS = 1_500
"""Longest overlap of activities of one stream that rounding of times explains."""
LATE_NS = 5_000
"""An activity that starts later than explained by more than this waited for another stream, if an activity there
ended just before."""
REST_NS = 20_000
"""Largest unexplained delay of a start that is ignored; a larger one is kept as unexplained time."""
WAIT_LAG_RATIO, WAIT_LAG_MAX_NS = 0.1, 50_000
SHORT_WAIT_NS, WAIT_LAG_SHORT_NS = 50_000, 10_000
"""Accept an activity as a wait's source only if it ended within this share of the delay before the start (and within
WAIT_LAG_MAX_NS); for a delay under SHORT_WAIT_NS, within WAIT_LAG_SHORT_NS."""
TAIL_RATIO = 0.15
"""Last share of a kernel's duration in which it leaves SMs to other kernels."""
EMPTY_RATIO = 0.9
"""Least share of the time from a call to its copy in which an empty stream shows that staging, not the stream,
delayed the copy."""
_DEFAULT_LATENCY_NS, _DEFAULT_GAP_NS = 7_000, 1_000
_NEVER = np.iinfo(np.int64).min // 4
"""Time of an unexplained start; far enough from the end of the range for adding durations."""
_KINDS = OTHER_COPY + 2
_CANDIDATES = 6
"""Number of neighbours that are searched for one on another stream."""

Orders = list[tuple[Ints, Ints]]
"""For each track: its activities in order of launch, and the starts of their calls."""
ENQUEUING = (LAUNCH, GRAPH, COPY, BLOCKING_COPY, SET)


class Links(NamedTuple):
    """Edges of one kind: from point ``source`` to ``target``, ``weight`` ns, of which ``host`` is CPU time.

    ``ref`` is the activity or call that an edge belongs to.
    """

    source: Ints
    target: Ints
    weight: Ints
    ref: Ints
    host: Ints | None = None
    inferred: Flags | None = None


class DeviceLinks(NamedTuple):
    """The edges to starts of activities, and the unexplained delay of each start, ns."""

    latency: Links
    gap: Links
    wait: Links
    contention: Links
    rest: Ints
    boundary: Flags


def trimmed(activities: Activities) -> Ints:
    """Return the ends of activities; overlaps by rounding are cut at the start of the stream's next activity."""
    order = np.lexsort((activities.start, activities.track))
    end = activities.end.copy()
    this, following = order[:-1], order[1:]
    over = activities.end[this] - activities.start[following]
    rounded = (activities.track[this] == activities.track[following]) & (over > 0) & (over <= OVERLAP_ROUNDING_NS)
    end[this[rounded]] = activities.start[following][rounded]
    return end


def device_links(recorded: Recording, end: Ints, orders: Orders, blocked: Flags, fitted: Flags) -> DeviceLinks:
    """Return the edges to starts of activities; ``end`` from `trimmed`, ``orders`` from `launch_orders`.

    ``blocked`` marks calls that waited for room in a queue; typical values per class come from ``fitted`` activities.
    """
    activities, calls = recorded.activities, recorded.calls
    count = activities.start.size
    starts, ends = np.arange(count), count + np.arange(count)
    before = previous(activities, end)
    awaited = _awaited(recorded, end, orders)
    waits = np.zeros(count, dtype=bool)
    waits[awaited.ref] = True
    leads = _first_of_call(activities)
    # What is launched within a call that waits is launched when the wait is over.
    after_call = (activities.call >= 0) & blocked[activities.call]
    latency, host = _latencies(activities, calls, end, before, leads & ~waits & ~after_call & fitted, leads)
    anchor, weight = _launches(recorded, after_call, latency)
    own = np.flatnonzero(leads)
    gap = _gaps(activities, calls, end, before, (~waits & fitted, weight))
    follows = np.flatnonzero(before >= 0)

    ready = np.full(count, _NEVER, dtype=np.int64)
    launch_starts = np.where(after_call[own], calls.end[activities.call[own]], calls.start[activities.call[own]])
    ready[own] = launch_starts + weight[own]
    ready[follows] = np.maximum(ready[follows], end[before[follows]] + gap[follows])
    lag = _wait_lag(activities, end, awaited, ready)
    np.maximum.at(ready, awaited.ref, end[awaited.source] + np.minimum(lag, awaited.weight))

    late = activities.start - ready
    boundary = _boundaries(activities, late)
    open_ = ~boundary & (late > LATE_NS)
    order = np.argsort(end, kind="stable")
    sources = _just_ended(activities, end, order, ready, np.flatnonzero(open_))
    bound = np.flatnonzero(sources >= 0)
    ready[bound] = np.maximum(
        ready[bound], end[sources[bound]] + np.minimum(lag, activities.start[bound] - end[sources[bound]])
    )
    wait_ref = np.concatenate([awaited.ref, bound])
    wait_source = np.concatenate([awaited.source, sources[bound]])
    slack = activities.start[wait_ref] - end[wait_source]

    late = activities.start - ready
    open_ = ~boundary & (late > REST_NS)
    holders = _held(activities, end, order, np.flatnonzero(open_))
    delayed = np.flatnonzero(holders >= 0)
    ready[delayed] = activities.start[delayed]

    rest = np.where(boundary | (ready == _NEVER), 0, activities.start - ready)
    rest[rest <= REST_NS] = 0
    keep = ~boundary
    own, follows = own[keep[own]], follows[keep[follows]]
    kept = keep[wait_ref]
    return DeviceLinks(
        Links(anchor[own], starts[own], weight[own], own, np.where(after_call, 0, host)[own]),
        Links(ends[before[follows]], starts[follows], gap[follows], follows),
        Links(
            ends[wait_source[kept]], starts[wait_ref[kept]], np.minimum(lag, slack)[kept], wait_ref[kept],
            inferred=np.concatenate([np.zeros(awaited.ref.size, dtype=bool), np.ones(bound.size, dtype=bool)])[kept],
        ),
        Links(
            starts[holders[delayed]], starts[delayed], activities.start[delayed] - activities.start[holders[delayed]], holders[delayed]
        ),
        rest,
        boundary,
    )  # fmt: skip


def _launches(recorded: Recording, after_call: Flags, latency: Ints) -> tuple[Ints, Ints]:
    """Return the node from which each activity's launch latency counts, and the latency, ns.

    The node is the start of its call, or the call's end where the call waited for room in a queue (``after_call``), as
    the launch follows the wait.
    """
    activities, calls = recorded.activities, recorded.calls
    nodes, count = 2 * activities.start.size, calls.start.size
    if not count:
        return np.arange(activities.start.size), latency
    starts, ends = nodes + np.arange(count), nodes + count + np.arange(count)
    anchor = np.where(after_call, ends[activities.call], starts[activities.call])
    call_ns = (calls.end - calls.start)[activities.call]
    return anchor, np.where(after_call, np.maximum(latency - np.minimum(call_ns, latency), 1), latency)


def previous(activities: Activities, end: Ints) -> Ints:
    """Return, for each activity, the activity of its stream with the latest end up to its start; -1 for none."""
    count = activities.start.size
    earlier = np.full(count, -1, dtype=np.int64)
    order = np.lexsort((activities.start, end, activities.track))
    ends, starts = by_track((activities.track[order], end[order]), (activities.track, activities.start))
    at = np.searchsorted(ends, starts, "right") - 1
    # An activity of duration 0 ends at its start, possibly together with others: only earlier rows precede it.
    for _ in range(_CANDIDATES):
        source = order[np.maximum(at, 0)]
        wrong = (at >= 0) & (activities.track[source] == activities.track) & (end[source] == activities.start)
        wrong &= (source >= np.arange(count)) & (activities.start[source] == activities.start)
        if not wrong.any():
            break
        at = at - wrong
    source = order[np.maximum(at, 0)]
    fits = (at >= 0) & (activities.track[source] == activities.track) & (source != np.arange(count))
    earlier[fits] = source[fits]
    return earlier


def _first_of_call(activities: Activities) -> Flags:
    first = np.zeros(activities.start.size, dtype=bool)
    linked = np.flatnonzero(activities.call >= 0)
    tracks = int(activities.track.max(initial=0)) + 1
    _, place = np.unique(activities.call[linked] * tracks + activities.track[linked], return_index=True)
    first[linked[place]] = True
    return first


def _latencies(
    activities: Activities, calls: Calls, end: Ints, before: Ints, fitted: Flags, leads: Flags
) -> tuple[Ints, Ints]:
    """Return the time from each call's start to its first activity's start, and the call's own part of this time."""
    latency = np.zeros(activities.start.size, dtype=np.int64)
    own = np.flatnonzero(leads)
    call = activities.call[own]
    launch_starts, done = calls.start[call], calls.end[call]
    taken = done - launch_starts
    typical = medians(taken, calls.name[call])
    is_long = taken > LONG_CALL_MEDIANS * typical
    is_idle = (before[own] < 0) | (end[before[own]] <= launch_starts)
    measured, lead = activities.start[own] - launch_starts, activities.start[own] - done
    is_starved = is_idle & (lead <= LATENCY_MAX_NS) & (measured >= 0)
    sample = is_starved & ~is_long & ~activities.pageable[own] & fitted[own]
    kind = activities.kind[own]
    usual = class_means(measured, kind, sample, _KINDS, _DEFAULT_LATENCY_NS)
    usual_lead = class_means(lead, kind, sample, _KINDS, 0)
    value = np.where(is_long, np.maximum(taken + usual_lead[kind], 0), usual[kind])
    # A call that returns after its copy lasts as long as the copy's wait; staging is known where the stream was empty.
    staged = activities.pageable[own] | (calls.kind[call] == BLOCKING_COPY)
    empty = np.where(is_idle, measured, activities.start[own] - end[before[own]])
    staging = staged & (measured >= 0) & (empty >= EMPTY_RATIO * measured)
    usual_staging = class_means(measured, kind, staging & ~is_long & fitted[own], _KINDS, _DEFAULT_LATENCY_NS)
    value = np.where(staged, np.where(staging, measured, usual_staging[kind]), value)
    latency[own] = value
    host = np.zeros_like(latency)
    host[own] = np.minimum(taken, value)
    return latency, host


def _gaps(activities: Activities, calls: Calls, end: Ints, before: Ints, known: tuple[Flags, Ints]) -> Ints:
    """Return the typical gap from the end of the stream's previous activity to the start of each activity.

    It is measured on activities that were launched in time; ``known`` are the activities to look at, and their launch
    latency.
    """
    fitted, latency = known
    gap = np.zeros(activities.start.size, dtype=np.int64)
    own = np.flatnonzero(before >= 0)
    source = before[own]
    measured = activities.start[own] - end[source]
    same = (activities.call[own] >= 0) & (activities.call[own] == activities.call[source])
    queued = (activities.call[own] < 0) | same
    if calls.start.size:
        call = activities.call[own]
        queued |= np.maximum(calls.start[call] + latency[own], calls.end[call]) <= end[source]
    pair = activities.kind[source] * _KINDS + activities.kind[own]
    inside = same & (activities.kind[own] == GRAPH_KERNEL)
    pair = np.where(inside, _KINDS * _KINDS, pair)
    sample = queued & (measured <= GAP_MAX_NS) & fitted[own]
    usual = class_means(measured, pair, sample, _KINDS * _KINDS + 1, _DEFAULT_GAP_NS)
    gap[own] = usual[pair]
    return gap


def class_means(values: Ints, classes: Ints, sample: Flags, count: int, default: int) -> Ints:
    """Return the sample mean of each class; a class without samples gets the mean of all, or ``default``."""
    if not sample.any():
        return np.full(count, default, dtype=np.int64)
    totals = np.bincount(classes[sample], weights=values[sample], minlength=count)
    counts = np.bincount(classes[sample], minlength=count)
    overall = totals.sum() / counts.sum()
    return np.round(np.where(counts > 0, totals / np.maximum(counts, 1), overall)).astype(np.int64)


def medians(values: Ints, classes: Ints, quantile: float = 0.5) -> Ints:
    """Return, for each value, the lower median (or another quantile) of its class."""
    order = np.lexsort((values, classes))
    ordered = classes[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: ordered.size])
    counts = np.diff(np.append(first, ordered.size))
    middle = values[order][first + np.floor((counts - 1) * quantile).astype(np.int64)]
    result = np.empty_like(values)
    result[order] = np.repeat(middle, counts)
    return result


def launch_orders(recorded: Recording) -> Orders:
    """Return, for each track, its activities in launch order, and the starts of their calls.

    Of those of unknown launch it has what ran before the first linked one: a stream keeps its order, so it was launched before.
    """
    activities, calls, tracks = recorded.activities, recorded.calls, recorded.tracks.shape[0]
    linked = np.flatnonzero(activities.call >= 0)[::-1]
    first = np.full(tracks, _NEVER, dtype=np.int64)
    first[activities.track[linked]] = activities.start[linked]
    members = np.flatnonzero((activities.call >= 0) | (activities.start < first[activities.track]))
    launch_starts = np.append(calls.start, _NEVER)[activities.call[members]]
    order = np.lexsort((activities.start[members], launch_starts, activities.track[members]))
    members, launch_starts = members[order], launch_starts[order]
    edges = np.searchsorted(activities.track[members], np.arange(tracks + 1))
    return [(members[a:b], launch_starts[a:b]) for a, b in itertools.pairwise(edges)]


def _awaited(recorded: Recording, end: Ints, orders: Orders) -> Links:
    """Return edges from ``cudaStreamWaitEvent``: from ends of other streams' activities to the next launched activity.

    Here ``source`` and ``ref`` are activities, and ``weight`` is the time between them.
    """
    activities, calls = recorded.activities, recorded.calls
    none = np.zeros(0, dtype=np.int64)
    waits = np.flatnonzero(calls.kind == WAIT)
    target = _waiting(recorded, waits, orders)
    waits, target = waits[target >= 0], target[target >= 0]
    awaited = calls.awaits[waits]
    sources, targets = [none], [none]
    for track, (members, launch_starts) in enumerate(orders):
        if not members.size:
            continue
        number = recorded.tracks[track, 1]
        asked = (activities.track[target] != track) & ((awaited == -1) | (awaited == -2 - number))
        at = np.searchsorted(launch_starts, calls.start[waits], "left") - 1
        asked &= at >= 0
        source = members[np.maximum(at, 0)]
        asked &= end[source] <= activities.start[target]
        sources.append(source[asked])
        targets.append(target[asked])
    source, ref = np.concatenate(sources), np.concatenate(targets)
    return Links(source, ref, activities.start[ref] - end[source], ref)


def _waiting(recorded: Recording, waits: Ints, orders: Orders) -> Ints:
    """Return the first activity that each wait delays; -1 where it is unknown."""
    activities, calls = recorded.activities, recorded.calls
    first = np.full(calls.start.size + 1, -1, dtype=np.int64)
    linked = np.flatnonzero(activities.call >= 0)[::-1]
    first[activities.call[linked]] = linked
    row = np.where(first[:-1] >= 0, np.arange(calls.start.size), calls.start.size)
    following = np.minimum.accumulate(row[::-1])[::-1]
    after = np.append(following, calls.start.size)[waits + 1]
    same = (after < calls.start.size) & (calls.thread[np.minimum(after, calls.start.size - 1)] == calls.thread[waits])
    target = np.where(same, first[after], -1)
    for track, (members, launch_starts) in enumerate(orders):
        known = np.flatnonzero(calls.waiting[waits] == track)
        at = np.searchsorted(launch_starts, calls.start[waits[known]], "right")
        fits = at < members.size
        target[known] = np.where(fits, members[np.minimum(at, members.size - 1)] if members.size else -1, -1)
    return target


def _wait_lag(activities: Activities, end: Ints, awaited: Links, ready: Ints) -> int:
    """Return the typical time from the end of an awaited activity to the start of the waiting one."""
    binding = (end[awaited.source] >= ready[awaited.ref]) & (awaited.weight <= GAP_MAX_NS)
    return int(median(awaited.weight[binding])) if binding.any() else _DEFAULT_GAP_NS


def _boundaries(activities: Activities, late: Ints) -> Flags:
    """Return whether each activity is the first of its device and starts later than the recording explains."""
    _, first = np.unique(activities.device, return_index=True)
    boundary = np.zeros(activities.start.size, dtype=bool)
    boundary[first] = late[first] > REST_NS
    return boundary


def _just_ended(activities: Activities, end: Ints, order: Ints, ready: Ints, rows: Ints) -> Ints:
    """Return, for late activities, the last ended one on another stream, if it ended just before; -1 for none."""
    freeing = np.full(activities.start.size, -1, dtype=np.int64)
    at = np.searchsorted(end[order], activities.start[rows], "right") - 1
    for _ in range(_CANDIDATES):
        same = (at >= 0) & (activities.track[order[np.maximum(at, 0)]] == activities.track[rows])
        if not same.any():
            break
        at = at - same
    source = order[np.maximum(at, 0)]
    late, lag = activities.start[rows] - ready[rows], activities.start[rows] - end[source]
    most = np.where(late < SHORT_WAIT_NS, WAIT_LAG_SHORT_NS, np.minimum(WAIT_LAG_RATIO * late, WAIT_LAG_MAX_NS))
    fits = (
        (at >= 0) & (activities.track[source] != activities.track[rows]) & (end[source] >= ready[rows]) & (lag <= most)
    )
    freeing[rows[fits]] = source[fits]
    return freeing


def _held(activities: Activities, end: Ints, order: Ints, rows: Ints) -> Ints:
    """Return, for late activities, a kernel in its last part that occupied the SMs until then; -1 for none."""
    holding = np.full(activities.start.size, -1, dtype=np.int64)
    at = np.searchsorted(end[order], activities.start[rows], "right")
    for _ in range(_CANDIDATES):
        source = order[np.minimum(at, order.size - 1)]
        left = end[source] - activities.start[rows]
        fits = (at < order.size) & (activities.device[source] == activities.device[rows])
        fits &= (activities.track[source] != activities.track[rows]) & (
            activities.start[source] < activities.start[rows]
        )
        fits &= (left > 0) & (left <= TAIL_RATIO * (end[source] - activities.start[source]))
        fits &= holding[rows] < 0
        holding[rows[fits]] = source[fits]
        at = at + 1
    return holding
