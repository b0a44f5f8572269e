"""Slow oracles: the definitions of docs/definitions.md, evaluated per activity and per instant.

Written from that page alone, without the analyser, so that the two can be compared. Where the page leaves a choice, the
function documents the choice made here. Not covered: the cause `untraced` (its evidence is a matter of judgement) and
bounds from operators' shapes.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from math import inf
from statistics import median

DEVICE_GAP_LIMIT_NS = 20_000
CPU_OPERATOR_NS = 1_000_000
LONG_CALL_NS = 1_000_000
LONG_CALL_FACTOR = 20
EARLIER_WORK_NS = 1_000_000
UNRECORDED_NS = 200_000
_SYNCHRONIZES = "Synchronize"
KERNEL_LATENCY_NS = 3_000
SMALL_KERNEL_NS = 20_000

WORK = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
HOST = ("user_annotation", "python_function", "cpu_op", "overhead", "cuda_runtime", "cuda_driver")
"""Categories of events on host threads, each of which may enclose those after it."""


@dataclass(frozen=True)
class Activity:
    """Describe a piece of work on a device."""

    kind: str
    name: str
    device: int
    context: int | None
    stream: int | None
    pid: object
    tid: object
    start: int
    end: int
    correlation: int
    blocks: int | None
    row: int


@dataclass(frozen=True)
class HostEvent:
    """Describe something with a duration on a host thread; ``is_call`` marks runtime and driver calls."""

    category: str
    name: str
    pid: object
    tid: object
    start: int
    end: int
    correlation: int
    row: int

    @property
    def is_call(self) -> bool:
        return self.category in ("cuda_runtime", "cuda_driver")

    def covers(self, t: int) -> bool:
        return self.start <= t < self.end


@dataclass(frozen=True)
class FlowEnd:
    """Describe one end of an ``ac2g`` arrow."""

    is_start: bool
    flow_id: object
    pid: object
    tid: object
    time: int


@dataclass(frozen=True)
class Trace:
    """The content of a file that the oracles need, times in ns as in the file."""

    activities: tuple[Activity, ...]
    host: tuple[HostEvent, ...]
    flows: tuple[FlowEnd, ...]
    sm_count: dict[int, int]
    has_event_wait: bool


def parse(content: bytes | str) -> Trace:
    """Read a trace with exact decimals."""
    document = json.loads(content, parse_float=Decimal)
    activities, host, flows, has_event_wait = [], [], [], False
    for row, event in enumerate(document["traceEvents"]):
        category, args = event.get("cat"), event.get("args", {})
        if event["ph"] in "sf" and category in ("ac2g", "async_cpu_to_gpu"):
            ends = (event["id"], event["pid"], event["tid"], _ns(event["ts"]))
            flows.append(FlowEnd(event["ph"] == "s", *ends))
        if event["ph"] != "X":
            continue
        start = _ns(event["ts"])
        end = start + _ns(event.get("dur", 0))
        has_event_wait |= category == "cuda_sync" or "StreamWaitEvent" in event["name"]
        if end < start:
            continue
        if category in WORK:
            grid = args.get("grid")
            device = args.get("device", event["pid"])
            place = (device, args.get("context"), args.get("stream"), event["pid"], event["tid"])
            blocks = grid[0] * grid[1] * grid[2] if grid else None
            rest = (start, end, args.get("correlation", 0), blocks, row)
            activities.append(Activity(WORK[category], event["name"], *place, *rest))
        elif category in HOST:
            place = (event["pid"], event["tid"], start, end, args.get("correlation", 0), row)
            host.append(HostEvent(category, event["name"], *place))
    sm_count = {entry["id"]: entry["numSms"] for entry in document.get("deviceProperties", [])}
    return Trace(tuple(activities), tuple(host), tuple(flows), sm_count, has_event_wait)


def _ns(microseconds: int | Decimal) -> int:
    ns = microseconds * 1_000
    assert ns == int(ns)
    return int(ns)


def naive_window(activities: Sequence[Activity]) -> tuple[int, int]:
    """Return the time from the first activity start to the last activity end."""
    return min(a.start for a in activities), max(a.end for a in activities)


def naive_busy(activities: Sequence[Activity]) -> int:
    """Return the length of the union: every elementary piece between two consecutive edges is covered or not."""
    return sum(right - left for left, right in _pieces(activities) if _covered(activities, left, right))


def naive_gaps(activities: Sequence[Activity]) -> list[tuple[int, int]]:
    """Return the maximal idle intervals; an activity without duration ends one and starts the next."""
    return [(left, right) for left, right in _pieces(activities) if not _covered(activities, left, right)]


def _covered(activities: Sequence[Activity], left: int, right: int) -> bool:
    return any(a.start <= left and right <= a.end for a in activities)


def _pieces(activities: Sequence[Activity]) -> list[tuple[int, int]]:
    edges = sorted({a.start for a in activities} | {a.end for a in activities})
    return list(pairwise(edges))


def naive_links(trace: Trace) -> dict[int, HostEvent | None]:
    """Return the launch of each activity, by the activity's row."""
    owners = _owners(trace)
    return {a.row: _launch(trace, a, owners.get((a.device, a.context))) for a in trace.activities}


def _launch(trace: Trace, activity: Activity, pid: object | None) -> HostEvent | None:
    if pid is not None:
        actual = _candidates(trace, activity, pid)
        if actual:
            return _best(actual, activity)
    ends = {f.flow_id for f in trace.flows if not f.is_start and _at(f) == _at(activity)}
    tails = {_at(f) for f in trace.flows if f.is_start and f.flow_id in ends}
    by_flow = [e for e in trace.host if e.is_call and (e.pid, e.tid, e.start) in tails]
    return min(by_flow, key=lambda e: e.row) if by_flow else None


def _at(place: FlowEnd | Activity) -> tuple[object, object, int]:
    return place.pid, place.tid, place.time if isinstance(place, FlowEnd) else place.start


def _enqueues(name: str) -> bool:
    return any(word in name for word in ("Launch", "Memcpy", "Memset"))


def _candidates(trace: Trace, activity: Activity, pid: object) -> list[HostEvent]:
    """Return calls with the activity's correlation; those that enqueue work, if there is one among them."""
    number = activity.correlation
    calls = [e for e in trace.host if e.is_call and e.pid == pid and number and e.correlation == number]
    return [e for e in calls if _enqueues(e.name)] or calls


def _best(calls: list[HostEvent], activity: Activity) -> HostEvent:
    """Return the latest call that starts at or before the activity, else the earliest call."""
    before = [e for e in calls if e.start <= activity.start]
    if before:
        return max(before, key=lambda e: (e.start, -e.row))
    return min(calls, key=lambda e: (e.start, e.row))


def _owners(trace: Trace) -> dict[tuple[int, int | None], object]:
    """Return the process of each (device, context) that most arrows name, else by leads; absent when ambiguous.

    An arrow determines the process of the calls at its start, if there is only one. Where the calls of only one process
    have numbers, all activities belong to it.
    """
    calls = [e for e in trace.host if e.is_call]
    numbered = {e.pid for e in calls if e.correlation}
    owners = {}
    for place in {(a.device, a.context) for a in trace.activities}:
        members = [a for a in trace.activities if (a.device, a.context) == place]
        numbers = {a.correlation for a in members} - {0}
        named = Counter(_named_by_arrows(trace, members))
        most = [pid for pid, count in named.items() if count == max(named.values())]
        if len(numbered) == 1:
            (owners[place],) = numbered
        elif len(most) == 1:
            (owners[place],) = most
        elif pids := {e.pid for e in calls if e.correlation in numbers}:
            ranked = sorted((-named[pid], *_fit(trace, members, pid), str(pid), pid) for pid in pids)
            if len(ranked) == 1 or ranked[0][:3] != ranked[1][:3]:
                owners[place] = ranked[0][-1]
    return owners


def _named_by_arrows(trace: Trace, members: list[Activity]) -> Iterator[object]:
    """Yield the process that each arrow to these activities names."""
    called = {(e.pid, e.tid, e.start) for e in trace.host if e.is_call}
    places = {_at(a) for a in members}
    for flow_id, _ in {(f.flow_id, _at(f)) for f in trace.flows if not f.is_start and _at(f) in places}:
        pids = {f.pid for f in trace.flows if f.is_start and f.flow_id == flow_id and _at(f) in called}
        if len(pids) == 1:
            yield from pids


def _is_unrecorded(trace: Trace, links: dict[int, HostEvent | None], device: int, t: int) -> bool:
    """Return whether a synchronizing call waits at that instant though its process's work has ended, for over 200 us."""
    for call in trace.host:
        if not (_SYNCHRONIZES in call.name and call.start <= t < call.end):
            continue
        devices = {a.device for a in trace.activities if (own := links[a.row]) is not None and own.pid == call.pid}
        ends = [a.end for a in trace.activities if a.device in devices and a.start < call.end]
        since = max(call.start, *ends, call.start)
        if device in devices and since <= t and call.end - since > UNRECORDED_NS:
            return True
    return False


def _fit(trace: Trace, members: list[Activity], pid: object) -> tuple[int, float]:
    """Rate a fit, smaller is better: activities without a call or before it, then median lead of the others."""
    pairs = [(a, _candidates(trace, a, pid)) for a in members]
    leads = [a.start - _best(calls, a).end for a, calls in pairs if calls]
    behind = [lead for lead in leads if lead >= 0]
    return len(members) - len(behind), median(behind) if behind else inf


def naive_cause_at(trace: Trace, device: int, t: int, latency_bound: int | None) -> str | None:
    """Return the cause of idle time at one instant; None when the device works or is outside its window."""
    links = naive_links(trace)
    members = [a for a in trace.activities if a.device == device]
    gap = next(((g0, g1) for g0, g1 in naive_gaps(members) if g0 <= t < g1), None)
    if gap is None:
        return None
    g0, g1 = gap
    ender = min((a for a in members if a.start == g1), key=lambda a: _ending_order(a, links[a.row]))
    launch = links[ender.row]
    if launch is None:
        return "unlinked"
    device_from = _device_time_from(members, links, ender, launch, latency_bound or 0)
    if t >= device_from and _is_earlier_work(trace, links, gap, ender, launch):
        return "earlier-work"
    if _is_unrecorded(trace, links, device, t):
        return "unrecorded-work"
    if t >= device_from:
        return _device_time(trace, g1 - max(g0, device_from))
    if t < launch.start:
        return _host_cause(trace, links, members, g0, launch, t)
    if t < launch.end:
        return _launch_call_cause(trace, links, launch)
    return "launch-latency"


def _ending_order(activity: Activity, launch: HostEvent | None) -> tuple[bool, int, int, int]:
    """Return a sort key: earliest launch start, lowest stream, then correlation; unlinked activities come last."""
    start = launch.start if launch else 0
    return launch is None, start, activity.stream or 0, activity.correlation


def _is_earlier_work(
    trace: Trace, links: dict[int, HostEvent | None], gap: tuple[int, int], ender: Activity, launch: HostEvent
) -> bool:
    """Decide by rule 6 if work is from before the recording; no copy of these traces waits for 10 ms for itself."""
    members = [a for a in trace.activities if a.device == ender.device]
    g0, g1 = gap
    since, length = max(g0, launch.start), g1 - g0
    before = _busy_within(members, min(a.start for a in members), g0)
    stream = [a.start for a in members if (a.context, a.stream) == (ender.context, ender.stream)]
    is_first = min(stream) == ender.start
    if launch.start > g0 + length / 10 or g1 - since < EARLIER_WORK_NS or _is_drained(trace, links, ender, since):
        return False
    if before > length / 10 or (before > length / 100 and not is_first):
        return False
    waits = [e for e in trace.host if e.is_call and e.pid == launch.pid and re.search("Synchronize|Memcpy", e.name)]
    spans = [(max(e.start, since), min(e.end, g1), e) for e in waits if e.start < g1 and e.end > since]
    edges = sorted({edge for left, right, _ in spans for edge in (left, right)})
    covered = sum(r - s for s, r in pairwise(edges) if any(left <= s and r <= right for left, right, _ in spans))
    if not spans or covered < 0.9 * (g1 - since):
        return False
    *_, longest = max(spans, key=lambda span: (span[1] - span[0], -span[2].row))
    return longest != launch


def _is_drained(trace: Trace, links: dict[int, HostEvent | None], ender: Activity, since: int) -> bool:
    """Decide if a synchronize of the only process of the device had returned: of the device, or of its only stream."""
    used = {(own.pid, a.device, a.stream) for a in trace.activities if (own := links[a.row]) is not None}
    pids = {pid for pid, device, _ in used if device == ender.device}
    own = {(device, stream) for pid, device, stream in used if pid in pids}
    if len(pids) != 1 or len({device for device, _ in own}) != 1:
        return False
    waits = (r"(Device|Ctx)Synchronize$", *((r"StreamSynchronize$",) if len(own) == 1 else ()))
    ends = [e.end for e in trace.host if e.is_call and e.pid in pids and any(re.search(w, e.name) for w in waits)]
    return any(end <= since for end in ends)


def _captures(trace: Trace, links: dict[int, HostEvent | None], pid: object) -> list[tuple[int, int]]:
    """Return when a process captures graphs: from a begin to its end, nested ones to the last end, by thread.

    Without an end, until the thread launches work that a device executed, else until its last event; without a begin,
    from its first event.
    """
    actual = []
    for tid in {e.tid for e in trace.host if e.pid == pid}:
        events = [e for e in trace.host if (e.pid, e.tid) == (pid, tid)]
        worked = sorted(e.start for e in links.values() if e is not None and (e.pid, e.tid) == (pid, tid))
        marks = sorted((e for e in events if re.search("Stream(Begin|End)Capture", e.name)), key=_depth)
        depth = 0
        for place, mark in enumerate(marks):
            begins = "StreamBeginCapture" in mark.name
            if place == 0 and not begins:
                actual.append((min(e.start for e in events), mark.end))
            depth = max(0, depth + (1 if begins else -1))
            if depth and place + 1 < len(marks):
                actual.append((mark.start, marks[place + 1].end))
            elif depth:
                later = [start for start in worked if start >= mark.end]
                actual.append((mark.start, later[0] if later else max(e.end for e in events)))
    return actual


def _device_time_from(
    members: Sequence[Activity],
    links: dict[int, HostEvent | None],
    ender: Activity,
    launch: HostEvent,
    latency_bound: int,
) -> int:
    """Start of the gap's device time: queued work stays queued until the gap ends.

    Rules 2 and 5. An activity that started before its launch returned was never queued.
    """
    queued_from = [launch.end + latency_bound]
    for activity in members:
        other = links[activity.row]
        waits = other is not None and other.end < activity.start and activity.start >= ender.start
        if other is not None and waits and activity is not ender:
            queued_from.append(other.end)
    return min(queued_from)


def _device_time(trace: Trace, length: int) -> str:
    """Apply rule 6 by the length of the gap's device time, which is one interval at the gap's end."""
    if length < DEVICE_GAP_LIMIT_NS:
        return "device-gap"
    explained = trace.has_event_wait or any(_is_communication(a) for a in trace.activities)
    return "device-wait" if explained else "unexplained"


def _host_cause(
    trace: Trace, links: dict[int, HostEvent | None], members: Sequence[Activity], g0: int, launch: HostEvent, t: int
) -> str:
    """Return the cause of idle time on the host by rule 3."""
    if t < g0 + _waited(trace, links, members, g0, launch.pid):
        return "synchronization"
    own, *others = _threads(trace, links, launch)
    asked = [own, *(p for p in others if p != own and not _only_waits(trace, links, p, t))]
    thread = next((p for p in asked if _recorded(trace, p, t)), None)
    stack = [e for e in trace.host if (e.pid, e.tid) == thread and e.category != "overhead" and e.covers(t)]
    names = [_named_work(trace, links, e) for e in stack]
    if any(start <= t < end for start, end in _captures(trace, links, launch.pid)):
        names.append("graph-capture")
    for cause in ("data-loading", "compilation", "graph-capture", "allocation", "garbage-collection", "blocking-copy"):
        if cause in names:
            return cause
    if any(e.category == "overhead" and e.covers(t) for e in trace.host):
        return "profiler"
    if any(_waits(e) for e in stack):
        return "host-wait"
    working = [e for e in stack if e.category != "user_annotation"]
    if not working:
        return "host-unknown"
    innermost = max(working, key=_depth)
    if innermost.is_call:
        return "runtime-call"
    if innermost.category == "python_function":
        return "python"
    return "cpu-operator" if _is_cpu_work(trace, innermost) else "dispatch"


def _depth(event: HostEvent) -> tuple[int, int, int, int]:
    """Sort key that grows inwards.

    Of events with equal begin and end, the inner one is later by nesting, else in the file.
    """
    return event.start, -event.end, HOST.index(event.category), event.row


def _waited(trace: Trace, links: dict[int, HostEvent | None], members: Sequence[Activity], g0: int, pid: object) -> int:
    """Return how long a blocking call in progress at g0 had waited for the busy device."""
    calls = [e for e in trace.host if e.pid == pid and e.covers(g0) and _blocks(trace, links, e)]
    return max((_busy_within(members, e.start, g0) for e in calls), default=0)


def _busy_within(members: Sequence[Activity], start: int, end: int) -> int:
    clipped = [(max(a.start, start), min(a.end, end)) for a in members]
    edges = sorted({edge for left, right in clipped if left < right for edge in (left, right)})
    return sum(r - s for s, r in pairwise(edges) if any(left <= s and r <= right for left, right in clipped))


def _blocks(trace: Trace, links: dict[int, HostEvent | None], event: HostEvent) -> bool:
    return event.is_call and ("Synchronize" in event.name or _is_blocking_copy(trace, links, event))


def _is_blocking_copy(trace: Trace, links: dict[int, HostEvent | None], event: HostEvent) -> bool:
    """Return whether the event is a copy call that returns after its own copy ends."""
    copies = [a for a in trace.activities if a.kind == "memcpy" and links[a.row] == event]
    return event.is_call and "Memcpy" in event.name and any(event.end > a.end for a in copies)


def _threads(trace: Trace, links: dict[int, HostEvent | None], launch: HostEvent) -> list[tuple[object, object]]:
    """Return the launching thread, that of the process's previous launch, and the main thread (tid equals pid)."""
    launches = {e for e in links.values() if e is not None and e.pid == launch.pid and e.start < launch.start}
    previous = max(launches, key=lambda e: (e.start, e.row), default=launch)
    return [(launch.pid, launch.tid), (launch.pid, previous.tid), (launch.pid, launch.pid)]


def _recorded(trace: Trace, thread: tuple[object, object], t: int) -> bool:
    """Return whether the thread recorded an event then; a plain annotation is a name, not an event."""
    stack = [e for e in trace.host if (e.pid, e.tid) == thread and e.covers(t) and e.category != "overhead"]
    return any(e.category != "user_annotation" or _is_data_loading(e) for e in stack)


def _is_data_loading(event: HostEvent) -> bool:
    return "DataLoader" in event.name


def _waits(event: HostEvent) -> bool:
    """Return whether the event is a frame of at least 100 us that waits for other threads."""
    return event.category == "python_function" and "queue.py" in event.name and event.end - event.start >= 100_000


def _only_waits(trace: Trace, links: dict[int, HostEvent | None], thread: tuple[object, object], t: int) -> bool:
    """Return whether a thread waits then, and does no other named work."""
    stack = [e for e in trace.host if (e.pid, e.tid) == thread and e.covers(t)]
    return any(_waits(e) for e in stack) and all(_named_work(trace, links, e) is None for e in stack)


def _named_work(trace: Trace, links: dict[int, HostEvent | None], event: HostEvent) -> str | None:
    name = event.name
    if _is_data_loading(event):
        return "data-loading"
    if "_dynamo/convert_frame.py" in name:
        return "compilation"
    if event.is_call and any(word in name for word in ("cudaMalloc", "cudaFree", "cudaHostAlloc")):
        return "allocation"
    if name == "<built-in function collect>":
        return "garbage-collection"
    return "blocking-copy" if _is_blocking_copy(trace, links, event) else None


def _is_cpu_work(trace: Trace, operator: HostEvent) -> bool:
    """Return whether the operator has self time over 1 ms without a runtime call inside."""
    thread = [e for e in trace.host if (e.pid, e.tid) == (operator.pid, operator.tid) and e.category != "overhead"]
    inside = [e for e in thread if _depth(operator) < _depth(e) and e.end <= operator.end]
    edges = sorted({operator.start, operator.end} | {e.start for e in inside} | {e.end for e in inside})
    own = sum(r - s for s, r in pairwise(edges) if not any(e.start <= s and r <= e.end for e in inside))
    return own > CPU_OPERATOR_NS and not any(e.is_call for e in inside)


def _launch_call_cause(trace: Trace, links: dict[int, HostEvent | None], launch: HostEvent) -> str:
    """Return the cause of idle time in a launch call by rule 4."""
    named = _named_work(trace, links, launch)
    if named is not None:
        return named
    launches = {e for e in links.values() if e is not None}
    typical = median(e.end - e.start for e in launches)
    duration = launch.end - launch.start
    out_of_proportion = duration > LONG_CALL_NS and duration > LONG_CALL_FACTOR * typical
    return "compilation" if out_of_proportion else "launch-latency"


def naive_partition_at(trace: Trace, device: int, t: int, latency_bound: int | None) -> str | None:
    """Return the part of the device's window at one instant; None outside the window."""
    members = [a for a in trace.activities if a.device == device]
    running = {_bound(trace, a) for a in members if a.start <= t < a.end}
    for part in ("compute", "memory", "latency", "other", "communication", "copy"):
        if part in running:
            return part
    return naive_cause_at(trace, device, t, latency_bound)


def _is_communication(activity: Activity) -> bool:
    return "nccl" in activity.name.lower()


def _bound(trace: Trace, activity: Activity) -> str:
    """Return the limit of an activity without recorded shapes: for kernels the prior of their name's bucket."""
    if activity.kind == "memset" or "DtoD" in activity.name:
        return "memory"
    if activity.kind == "memcpy":
        return "copy"
    if _is_communication(activity):
        return "communication"
    duration, sms = activity.end - activity.start, trace.sm_count.get(activity.device)
    few_blocks = activity.blocks is not None and sms is not None and activity.blocks < sms
    if duration < KERNEL_LATENCY_NS or (duration < SMALL_KERNEL_NS and few_blocks):
        return "latency"
    if "gemm" in activity.name:
        return "compute"
    return "memory" if "elementwise_kernel" in activity.name else "other"
