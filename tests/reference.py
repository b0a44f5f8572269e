"""Read traces strictly, as a reference: Python's json and exact decimals, event by event, no product code.

`read` returns every table of ingest as a list of rows, for comparison with the product's frames by `assert_same`, and
counts every event as kept or left out for a reason. Written from docs/definitions.md and docs/tables.md.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from itertools import pairwise
from typing import Any

import polars as pl

from trace_analyzer.ingest import Trace

Row = dict[str, Any]

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,9})?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_EXACT = Context(prec=1000, Emax=MAX_EMAX, Emin=MIN_EMIN)
HOST = {
    "annotation": ("user_annotation",), "python": ("python_function",), "operator": ("cpu_op", "operator"), "overhead": ("overhead",),
    "runtime": ("cuda_runtime", "hip_runtime", "xpu_runtime", "privateuse1_runtime", "mtia_runtime", "runtime"),
    "driver": ("cuda_driver", "xpu_driver", "privateuse1_driver"),
}  # fmt: skip
NESTING = ("annotation", "python", "operator", "other", "overhead", "runtime", "driver")
DEVICE = {
    "kernel": ("kernel", "concurrent_kernel"),
    "memcpy": ("gpu_memcpy", "memcpy"),
    "memset": ("gpu_memset", "memset"),
}
ROWS = {
    "sync": ("cuda_sync", "xpu_sync"), "device-annotation": ("gpu_user_annotation",), "device-event": ("cuda_event",),
    "profiler-range": ("cuda_profiler_range",), "session": ("trace",),
}  # fmt: skip
KINDS = {name: kind for group in (HOST, DEVICE, ROWS) for kind, names in group.items() for name in names}
UNSUPPORTED = ("mtia_", "hpu_", "xpu_", "npu_", "ipu_", "tpu_", "glow", "privateuse1_")
FLOWS = {"ac2g": "launch", "async_cpu_to_gpu": "launch", "async": "launch", "fwdbwd": "forward-backward"}
LEFT_OUT = frozenset((
    "no-time", "implausible-time", "outside-time", "negative-duration", "unmatched", "unknown-phase", "device-event",
    "profiler-range", "marker", "arrow", "counter", "unsupported", "not-an-event", "too-deep",
))  # fmt: skip
"""Codes of the notes that count events in no table."""

HOST_NUMBERS = {
    "correlation": "correlation", "external_id": ("External id", "external id"), "sequence_number": "Sequence number",
    "forward_thread": "Fwd thread id", "python_id": "Python id", "python_parent_id": "Python parent id",
}  # fmt: skip
CALL = {"correlation", "external_id"}
OPERATOR = {"external_id", "sequence_number", "forward_thread"}
PYTHON = {"python_id", "python_parent_id"}
KEPT = {"runtime": CALL, "driver": CALL, "operator": OPERATOR, "annotation": OPERATOR, "python": PYTHON}
"""Numbers with a meaning for a kind of host event; for other kinds all numbers, except those of Python frames."""
DEVICE_NUMBERS = {
    "stream": ("original_stream", "stream"), "context": "context", "correlation": "correlation",
    "external_id": ("External id", "external id"), "bytes": ("bytes", "Bytes"),
    "registers_per_thread": "registers per thread", "shared_memory_bytes": "shared memory",
    "graph_id": "graph id", "graph_node_id": "graph node id",
}  # fmt: skip
INPUTS = {
    "input_dims": ("Input Dims", "Input dims"), "input_types": "Input type", "input_strides": "Input Strides",
    "concrete_inputs": "Concrete Inputs", "collective": "Collective name", "message_dtype": "dtype",
    "input_splits": "In split size", "output_splits": "Out split size", "process_group": "Process Group Name",
    "process_group_description": "Process Group Description", "process_group_ranks": "Process Group Ranks",
    "comms_id": "Comms Id", "call_stack": "Call stack", "module_hierarchy": "Module Hierarchy", "kernel_file": "kernel_file",
}  # fmt: skip
OF_OPERATORS = (
    "input_dims", "input_types", "input_strides", "concrete_inputs", "call_stack", "module_hierarchy", "kernel_file",
)  # fmt: skip
INPUT_NUMBERS = {
    "message_elements": ("In msg nelems", "In msg size"), "output_elements": ("Out msg nelems", "Out msg size"), "group_size": "Group size", "collective_seq": "Seq",
    "global_rank_start": "Global rank start", "global_rank_stride": "Global rank stride",
    "source_rank": "Src Rank", "destination_rank": "Dst Rank",
}  # fmt: skip


class Digits(str):
    """Mark a number as written in the file."""


class Anything:
    """Equal every value, for meaningless fields."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


ANYTHING = Anything()


@dataclass
class Reference:
    """The reader's result: rows of each table in order, and counts of events in no table."""

    tables: dict[str, list[Row]]
    event_count: int
    origin_ns: int
    duration_ns: int
    left_out: Counter[str]
    no_duration: int
    metadata: int
    pairs: int
    sessions: list[tuple[int, int]]
    boundaries: list[int]
    unsupported: dict[str, int]
    header: Row = field(default_factory=dict)


def accounted(trace: Trace, *, metadata: int = 0, pairs: int = 0) -> int:
    """Count the events in tables, plus those that notes count as left out.

    Metadata events become names, and a begin and its end become one row: the caller knows their numbers.
    """
    tables = (
        trace.host_events, trace.device_events, trace.sync_events, trace.device_annotations, trace.flows, trace.memory_events,
    )  # fmt: skip
    kept = sum(table.height for table in tables) + len(trace.profiler_sessions) + len(trace.boundaries)
    return kept + sum(note.count for note in trace.notes if note.code in LEFT_OUT) + metadata + pairs


def parse(content: bytes) -> tuple[list[Any], Row]:
    """Parse valid JSON to events and header, numbers as their digits; bytes that are no UTF-8 become U+FFFD."""
    text = content.decode("utf-8-sig", "replace")
    document = json.loads(text, strict=False, parse_float=Digits, parse_int=Digits, parse_constant=Digits)
    if isinstance(document, list):
        return document, {}
    return document.pop("traceEvents"), document


def nanoseconds(value: Any) -> int | None:
    """Return microseconds, given as a number or text, in ns; None for all else."""
    try:
        us = Decimal(value.strip()) if isinstance(value, str) else None
    except InvalidOperation:
        return None
    if us is None or not us.is_finite() or us.adjusted() > 20:
        return None
    ns = int(_EXACT.multiply(us, Decimal(1000)).to_integral_value(ROUND_HALF_EVEN))
    return ns if abs(ns) < 1 << 62 else None


def integer(value: Any) -> int | None:
    """Return an integer that fits 64 bits, or None. A value with a point or an exponent is read as a float64."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        return None
    number = Decimal(value if value.lstrip("+-").isdigit() else float(value))
    if not number.is_finite() or number.adjusted() > 18 or number != number.to_integral_value():
        return None
    return int(number) if -(1 << 63) <= number < 1 << 63 else None


def text(value: Any) -> str | None:
    """Return a value as a cell: texts unchanged, numbers as their digits, other values as JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    return _SURROGATE.sub("\ufffd", _json(value))


def _json(value: Any) -> str:
    if isinstance(value, Digits):
        return value
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(key)}: {_json(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def first(args: Row, keys: str | tuple[str, ...]) -> Any:
    """Return the first value among several spellings of a key."""
    return next((args[key] for key in ((keys,) if isinstance(keys, str) else keys) if args.get(key) is not None), None)


def product(value: Any) -> Any:
    """Return the product of a list of integers, or of one; `Anything` for other values."""
    items = value if isinstance(value, list) else [value]
    if not items or items == [None]:
        return None
    if not all(isinstance(item, Digits) and item.isdigit() for item in items):
        return ANYTHING
    result = math.prod(map(int, items))
    return result if result < 1 << 53 else ANYTHING


def kind_of(event: Row) -> str:
    """Return the kind of an event, by its phase and category."""
    phase, category = text(event.get("ph")), (text(event.get("cat")) or "").lower()
    if phase in ("X", "B", "E"):
        return KINDS.get(category) or ("unsupported" if category.startswith(UNSUPPORTED) else "other")
    if phase in ("i", "I", "R", "n"):
        name = text(event.get("name")) or ""
        if name == "[memory]":
            return "memory"
        return "boundary" if name.startswith("Iteration Start: ") or name == "Record Window End" else "marker"
    return {"s": "flow", "f": "flow", "t": "flow", "M": "metadata", "C": "counter"}.get(phase or "", "unknown-phase")


def reason(event: Row, kind: str, start: int | None, duration: int | None) -> str | None:
    """Return why the event is left out, as far as the event alone determines it."""
    if kind == "metadata":
        return None
    if kind in ("unknown-phase", "counter"):
        return kind
    known = (text(event.get("cat")) or "").lower() in FLOWS
    if kind == "flow" and not (known and event["ph"] in ("s", "f") and event.get("id") is not None):
        return "arrow"
    if start is None:
        return "no-time"
    if event["ph"] == "X" and duration is not None and duration < 0:
        return "negative-duration"
    return kind if kind in LEFT_OUT else None


def read(content: bytes) -> Reference:
    """Read all tables of the trace."""
    entries, header = parse(content)
    left_out: Counter[str] = Counter()
    unsupported: Counter[str] = Counter()
    left_out["not-an-event"] = sum(not isinstance(entry, dict) for entry in entries)
    kept, edges, seen = [], [], []
    for row, event in enumerate(entries):
        if not isinstance(event, dict):
            continue
        item = _item(row, event)
        if item["phase"] in ("B", "E") and item["start"] is not None:
            edges.append(item)
        else:
            kept.append(item)
    spans, unmatched = _pairs(edges)
    left_out["unmatched"] = unmatched
    timed, no_duration = [], 0
    for item in [*kept, *spans]:
        if item["kind"] != "metadata":
            seen.append((item["row"], item["pid"], item["tid"]))
        why = reason(item["event"] | {"ph": item["phase"]}, item["kind"], item["start"], item["duration"])
        if why is None:
            timed.append(item)
            no_duration += item["phase"] == "X" and item["duration"] is None
        else:
            left_out[why] += 1
            unsupported.update([item["category"]] if why == "unsupported" else [])
    for item in timed:
        item["duration"] = (item["phase"] == "X" and item["duration"]) or 0
    events = [item for item in timed if item["kind"] != "metadata"]
    _tell_ranks_apart(events, header)
    for find in (_far, _misplaced):
        odd = find(events)
        kept = [e for e in events if id(e) not in odd]
        if odd:
            lost = [n for e in events if id(e) in odd and e["kind"] in (*NESTING, *DEVICE) and (n := _correlation(e))]
            left = [n for e in kept if e["kind"] in DEVICE and (n := _correlation(e))]
            inside = sum(min(left) <= n <= max(left) for n in lost) if left else 0
            outside = find is _far and lost and left and inside / len(lost) < 0.1
            left_out["outside-time" if outside else "implausible-time"] += len(odd)
        events = kept
    _shorten(events)
    events += [item for item in timed if item["kind"] == "metadata"]
    return _located(events, header, seen, left_out, no_duration, dict(unsupported), len(entries), len(spans))


def _item(row: int, event: Row) -> Row:
    args, name = event.get("args"), text(event.get("name")) or ""
    if kind_of(event) == "python":
        name = re.sub(" at 0x[0-9a-fA-F]+>$", ">", name)
    return {
        "row": row, "event": event, "args": args if isinstance(args, dict) else {}, "phase": text(event.get("ph")),
        "kind": kind_of(event), "category": text(event.get("cat")), "name": name,
        "pid": text(event.get("pid")) or "", "tid": text(event.get("tid")) or "",
        "start": nanoseconds(event.get("ts")), "duration": nanoseconds(event.get("dur")),
    }  # fmt: skip


def _pairs(edges: list[Row]) -> tuple[list[Row], int]:
    """Return the spans of begin and end events per thread: an end closes the last begin that is open."""
    opened: dict[tuple[str, str], list[Row]] = {}
    spans, strays = [], 0
    for edge in sorted(edges, key=lambda e: (e["start"], e["row"])):
        stack = opened.setdefault((edge["pid"], edge["tid"]), [])
        if edge["phase"] == "B":
            stack.append(edge)
        elif stack:
            begin = stack.pop()
            spans.append(begin | {"phase": "X", "duration": edge["start"] - begin["start"]})
        else:
            strays += 1
    return spans, strays + sum(map(len, opened.values()))


SECOND, HOUR = 10**9, 3_600 * 10**9


def _correlation(item: Row) -> int:
    """Return a positive correlation id; 0 without one."""
    number = integer(text(item["args"].get("correlation")))
    calls = item["kind"] in (*DEVICE, "runtime", "driver", "overhead", "other")
    return number if number is not None and number > 0 and calls else 0


def _far(events: list[Row]) -> set[int]:
    """Return ids of events at 0, or few and far from all others (see `trace_analyzer.ingest.possible`)."""
    starts = sorted(e["start"] for e in events)
    ends = [e["start"] + e["duration"] for e in events]
    if not starts or max(starts[-1], *ends) - starts[0] <= (60 if starts[0] > 0 else 2) * SECOND:
        return set()
    clusters = [[starts[0]]]
    for before, after in pairwise(starts):
        if after - before > HOUR:
            clusters.append([])
        clusters[-1].append(after)
    clusters = [c for c in clusters if c[-1] > 0] or clusters
    largest = max(clusters, key=len)
    clusters = [c for c in clusters if 20 * len(c) >= len(largest) and abs(c[0] - largest[0]) <= 720 * HOUR]
    first, last = clusters[0][0], clusters[-1][-1]
    later = [at for at in starts if at > max(0, first - 1)]
    distant = bool(later) and later[0] >= 2 * SECOND
    return {
        id(e)
        for e in events
        if not first <= e["start"] <= last
        or (distant and e["start"] <= 0 and e["duration"] == 0)
        or (e["kind"] not in DEVICE and e["start"] + e["duration"] > last + HOUR)
    }


def _misplaced(events: list[Row]) -> set[int]:
    """Return ids of activities seconds before, or an hour after, all calls of their id, unlike most of their device."""
    called: dict[int, list[int]] = {}
    for e in events:
        if e["kind"] in ("runtime", "driver"):
            called.setdefault(_correlation(e), []).append(e["start"])
    found = set()
    for label in {_label(e) for e in events if e["kind"] in DEVICE}:
        of_device = [e for e in events if e["kind"] in DEVICE and _label(e) == label]
        linked = [(e, called[n]) for e in of_device if (n := _correlation(e)) and n in called]
        odd = [e for e, at in linked if e["start"] - min(at) < -SECOND // 10 or e["start"] - max(at) > HOUR]
        found |= {id(e) for e in odd if 2 * len(odd) < len(linked)}
    return found


def _shorten(events: list[Row]) -> None:
    """End each activity of impossible duration where its stream's next work, or the recording, ends."""
    streams: dict[Any, list[Row]] = {}
    for e in events:
        if e["kind"] in DEVICE:
            streams.setdefault(_stream(e), []).append(e)
    last = max((e["start"] + e["duration"] for e in events if e["kind"] not in (*DEVICE, "flow")), default=None)
    for rows in streams.values():
        shared = Counter(_correlation(e) for e in rows)
        in_order = [
            e for e in rows
            if integer(text(e["args"].get("graph id"))) is None and not (_correlation(e) and shared[_correlation(e)] > 1)
        ]  # fmt: skip
        in_order.sort(key=lambda e: (e["start"], e["duration"]))
        limits = [*(e["start"] for e in in_order[1:]), last][: len(in_order)]
        for at, (e, limit) in enumerate(zip(in_order, limits, strict=True)):
            excess = 0 if limit is None else e["start"] + e["duration"] - limit
            long = e["duration"] >= 10**6 and 2 * excess > e["duration"]
            if long and (at + 1 < len(in_order) or excess > 2 * SECOND):
                e["recorded"], e["duration"] = e["duration"], max(0, e["duration"] - excess)


def _located(
    events: list[Row], header: Row, seen: list[tuple[int, str, str]], left_out: Counter[str], no_duration: int,
    unsupported: dict[str, int], count: int, pairs: int,
) -> Reference:  # fmt: skip
    held = (*NESTING, *DEVICE, "sync", "device-annotation", "session", "memory", "flow")
    spans = [e for e in events if e["kind"] in held]
    spans = spans or [e for e in events if e["kind"] != "metadata"]
    origin = min((e["start"] for e in spans), default=0)
    end = max((e["start"] + e["duration"] for e in spans), default=0)
    threads = _threads(events, seen)
    numbers = {(t["pid"], t["tid"]): t["thread_id"] for t in threads}
    for event in events:
        event["thread_id"] = numbers.get((event["pid"], event["tid"]))
        event["start"] = None if event["start"] is None else event["start"] - origin
    devices = _devices(events, header)
    codes = {d["label"]: d["device"] for d in devices}
    host = sorted((e for e in events if e["kind"] in NESTING), key=_nesting)
    device = sorted((e for e in events if e["kind"] in DEVICE), key=_place)
    sync = sorted((e for e in events if e["kind"] == "sync"), key=lambda e: (e["start"], e["row"]))
    marks = sorted((e for e in events if e["kind"] == "device-annotation"), key=lambda e: (e["start"], e["row"]))
    memory = sorted((e for e in events if e["kind"] == "memory"), key=lambda e: (e["start"], e["row"]))
    sessions = sorted((e for e in events if e["kind"] == "session"), key=lambda e: e["start"])
    return Reference(
        tables={
            "threads": threads, "devices": devices,
            "host_events": [_host_row(i, e) for i, e in enumerate(host)],
            "operator_inputs": sorted(
                (_input_row(i, e) for i, e in enumerate(host) if _has_inputs(e)), key=lambda row: row["event_id"]
            ),
            "device_events": [_device_row(i, e, codes) for i, e in enumerate(device)],
            "collective_inputs": sorted(
                (_collective_row(i, e) for i, e in enumerate(device) if _has_collective(e)), key=lambda row: row["activity_id"]
            ),
            "sync_events": [_sync_row(e, codes) for e in sync],
            "device_annotations": [_annotation_row(e, codes) for e in marks],
            "flows": [_flow_row(e) for e in sorted(events, key=lambda e: e["row"]) if e["kind"] == "flow"],
            "memory_events": [_memory_row(e) for e in memory],
        },
        event_count=count, origin_ns=origin, duration_ns=end - origin, left_out=+left_out, no_duration=no_duration,
        metadata=sum(e["kind"] == "metadata" for e in events), pairs=pairs,
        sessions=[(e["start"], e["start"] + e["duration"]) for e in sessions],
        boundaries=sorted(e["start"] for e in events if e["kind"] == "boundary"), unsupported=unsupported, header=header,
    )  # fmt: skip


def _known(number: int | None) -> tuple[bool, int]:
    """Return what sorts a number behind missing ones."""
    return number is not None, number or 0


def _nesting(e: Row) -> tuple[Any, ...]:
    python = integer(e["args"].get("Python id")) if e["kind"] == "python" else None
    external = None if e["kind"] == "python" else integer(first(e["args"], ("External id", "external id")))
    ids = _known(python), _known(external)
    return e["thread_id"], e["start"], -e["duration"], NESTING.index(e["kind"]), *ids, e["name"], e["row"]


def _place(e: Row) -> tuple[Any, ...]:
    numbers = (_known(integer(e["args"].get(key))) for key in ("context", "stream", "correlation"))
    return e["start"], _label(e), *numbers, e["duration"], e["name"], e["row"]


def _threads(events: list[Row], seen: list[tuple[int, str, str]]) -> list[Row]:
    names = {
        (e["pid"], e["tid"]): text(e["args"].get("name"))
        for e in sorted(events, key=lambda e: e["row"])
        if e["kind"] == "metadata" and e["name"] == "thread_name"
    }
    pairs = list(dict.fromkeys((pid, tid) for _, pid, tid in sorted(seen)))
    processes = list(dict.fromkeys(pid for pid, _ in pairs))
    return [
        {"thread_id": i, "process_id": processes.index(pid), "pid": pid, "tid": tid, "name": names.get((pid, tid))}
        for i, (pid, tid) in enumerate(pairs)
    ]


def _label(event: Row) -> str:
    named = text(event["args"].get("device"))
    return event.get("rank") or (event["pid"] if named is None else named)


def _stream(event: Row) -> tuple[Any, ...]:
    return _label(event), *(integer(text(event["args"].get(key))) for key in ("context", "stream"))


def _tell_ranks_apart(events: list[Row], header: Row) -> None:
    """Give events on a device whose number several ranks write the name of their rank's device."""
    work = [e for e in events if e["kind"] in DEVICE]
    tracks = {(_label(e), e["pid"]) for e in work}
    several = [number for number, count in Counter(number for number, _ in tracks).items() if count > 1]
    if several:
        for e in events:
            number, track = _label(e), e["pid"]
            if number in several and (number, track) in tracks:
                marked = track == number or track.endswith(f" {number}")
                e["rank"] = track if marked else f"{track}/{number}"
        return
    entries = header.get("deviceProperties")
    entries = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    twice = [n for n, count in Counter(text(e.get("id", "")) or "None" for e in entries).items() if count > 1]
    calls: dict[int, dict[str, int]] = {}
    for e in sorted((e for e in events if e["kind"] in ("runtime", "driver")), key=lambda e: e["start"]):
        if (number := _correlation(e)) > 0:
            calls.setdefault(number, {}).setdefault(e["pid"], e["start"])
    work = sorted((e for e in work if not twice or _label(e) in twice), key=lambda e: (e["start"], e["row"]))
    used: Counter[int] = Counter()
    owners: dict[int, str] = {}
    for e in work:
        number = _correlation(e)
        places = list(calls.get(number, {}).items())
        if used[number] >= len(places) or places[used[number]][1] > e["start"]:
            return
        owners[id(e)] = places[used[number]][0]
        used[number] += 1
    if len(set(owners.values())) < 2:
        return
    overlapping = {
        _label(second)
        for first in work
        for second in work
        if owners[id(first)] != owners[id(second)]
        and _stream(first) == _stream(second)
        and first["start"] <= second["start"] < first["start"] + first["duration"]
    }
    for e in work:
        if twice or _label(e) in overlapping:
            e["rank"] = f"{owners[id(e)]}/{_label(e)}"


def _devices(events: list[Row], header: Row) -> list[Row]:
    labels = {_label(e) for e in events if e["kind"] in DEVICE}
    numbers = {label: n for label in labels if (n := integer(label)) is not None and str(n) == label}
    codes = sorted((n, label) for label, n in numbers.items())
    free = max(numbers.values(), default=-1) + 1
    codes += [(free + i, label) for i, label in enumerate(sorted(labels - numbers.keys()))]
    entries = header.get("deviceProperties")
    known: dict[str, str | None] = {}
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict):
            name = entry.get("name")
            usable = isinstance(name, str) and not isinstance(name, Digits) and name.strip()
            known.setdefault(text(entry.get("id", "")) or "None", text(name) if usable else None)
    alike = set(known.values())
    only = next(iter(alike)) if len(alike) == 1 else None
    # The code of a number in unusual notation depends on the notation, which a reader may change.
    plain = all(label.lstrip("-").isdigit() or not _NUMBER.fullmatch(label) for label in labels)
    return [
        {"device": code if plain else ANYTHING, "label": label, "name": known.get(label) or only}
        for code, label in codes
    ]


def _nonzero(number: int | None) -> int | None:
    return None if number in (None, 0, -1, 2**32 - 1) else number


def _host_row(i: int, e: Row) -> Row:
    kept = KEPT.get(e["kind"], CALL | OPERATOR)
    numbers = {c: integer(first(e["args"], keys)) if c in kept else None for c, keys in HOST_NUMBERS.items()}
    numbers["correlation"] = _nonzero(numbers["correlation"])
    return {"event_id": i, "kind": e["kind"], **_basics(e), **numbers, "row": e["row"]}


def _basics(e: Row) -> Row:
    return {"name": e["name"], "thread_id": e["thread_id"], "start_ns": e["start"], "duration_ns": e["duration"]}


def _has_inputs(e: Row) -> bool:
    return e["kind"] in ("operator", "annotation") and any(first(e["args"], k) is not None for k in INPUTS.values())


def _has_collective(e: Row) -> bool:
    return any(first(e["args"], keys) is not None for column, keys in INPUTS.items() if column not in OF_OPERATORS)


def _collective_row(i: int, e: Row) -> Row:
    row = _input_row(i, e)
    return {"activity_id": i} | {column: row[column] for column in row if column not in ("event_id", *OF_OPERATORS)}


SIZES = ("bytes", "registers_per_thread", "shared_memory_bytes", "message_elements", "output_elements")


def _sized(row: Row) -> Row:
    """Return the row without sizes below 0 or above 4 TiB."""
    return {name: None if name in SIZES and v is not None and not 0 <= v <= 2**42 else v for name, v in row.items()}


def _input_row(i: int, e: Row) -> Row:
    texts = {column: first(e["args"], keys) for column, keys in INPUTS.items()}
    numbers = {column: integer(first(e["args"], keys)) for column, keys in INPUT_NUMBERS.items()}
    return _sized({"event_id": i, **texts, **numbers})


def _device_row(i: int, e: Row, codes: dict[str, int]) -> Row:
    numbers = _sized({column: integer(first(e["args"], keys)) for column, keys in DEVICE_NUMBERS.items()})
    numbers["correlation"] = _nonzero(numbers["correlation"])
    share = e["args"].get("est. achieved occupancy %")
    occupancy = (float(share) or None) if isinstance(share, str) and _NUMBER.fullmatch(share) else None
    grid, block = e["args"].get("grid"), e["args"].get("block")
    return {
        "activity_id": i, "kind": e["kind"], **_basics(e), "name": _activity_name(e), "annotation": _node_name(e["args"]),
        "device": codes[_label(e)], **numbers, "grid": grid,
        "block": block, "blocks": product(grid), "threads_per_block": product(block),
        "occupancy_percent": occupancy, "row": e["row"], "recorded_ns": e.get("recorded"),
    }  # fmt: skip


COPIES = ["Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"]
MEMORY = ["Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"]


def _kind_of(args: Row, key: str, names: list[str]) -> str:
    given = str(text(args.get(key))).lower()
    if given in map(str, range(len(names))):
        return names[int(given)]
    return next((name for name in names if name.lower().replace(" ", "_") == given), names[0])


def _activity_name(e: Row) -> str:
    args = e["args"]
    if not any(args.get(key) is not None for key in ("copy kind", "src kind", "dst kind", "memory kind")):
        return str(e["name"])
    if e["name"] == "Memcpy":
        ends = " -> ".join(_kind_of(args, key, MEMORY) for key in ("src kind", "dst kind"))
        return f"Memcpy {_kind_of(args, 'copy kind', COPIES)} ({ends})"
    return f"Memset ({_kind_of(args, 'memory kind', MEMORY)})" if e["name"] == "Memset" else e["name"]


def _node_name(args: Row) -> str | None:
    given = next((v for k in ("module_fqn", "annotation", "str", "name") if (v := text(args.get(k))) is not None), None)
    if given is None or not given.startswith("["):
        return given or None
    try:
        scopes = json.loads(given)
    except ValueError:
        return None
    keys = ("module_fqn", "name", "str")
    names = [s if isinstance(s, str) else first(s, keys) for s in scopes if isinstance(s, (str, dict))]
    return next((name for name in reversed(names) if isinstance(name, str) and name), None)


def _sync_row(e: Row, codes: dict[str, int]) -> Row:
    numbers = {c: integer(e["args"].get(c)) for c in ("stream", "correlation", "wait_on_stream")}
    numbers["correlation"] = _nonzero(numbers["correlation"])
    times = {"start_ns": e["start"], "duration_ns": e["duration"]}
    return {"name": e["name"], "device": codes.get(_label(e)), **times, **numbers}


def _annotation_row(e: Row, codes: dict[str, int]) -> Row:
    stream = integer(e["args"].get("stream"))
    tid = integer(e["tid"]) if re.fullmatch(r"[+-]?[0-9]+", e["tid"]) else None
    return {
        "name": e["name"], "device": codes.get(_label(e)), "stream": tid if stream is None else stream,
        "start_ns": e["start"], "duration_ns": e["duration"],
    }  # fmt: skip


def _flow_row(e: Row) -> Row:
    return {
        "flow_id": text(e["event"]["id"]), "kind": FLOWS[e["category"].lower()], "is_start": e["phase"] == "s",
        "thread_id": e["thread_id"], "time_ns": e["start"],
    }  # fmt: skip


def _memory_row(e: Row) -> Row:
    columns = {
        "device_type": "Device Type", "device": "Device Id", "address": "Addr", "bytes": ("bytes", "Bytes"),
        "total_allocated_bytes": "Total Allocated", "total_reserved_bytes": "Total Reserved",
    }  # fmt: skip
    numbers = {column: integer(first(e["args"], keys)) for column, keys in columns.items()}
    return {"thread_id": e["thread_id"], "time_ns": e["start"], **numbers}


# Comparison

_VALUES = {*INPUTS, "grid", "block"}
"""Columns of JSON text, which are compared by value, as blanks are arbitrary."""


def assert_same(trace: Trace, reference: Reference) -> None:
    """Assert that every column of every table, and every count, agrees."""
    assert trace.event_count == reference.event_count
    assert (trace.origin_ns, trace.duration_ns) == (reference.origin_ns, reference.duration_ns)
    counts = {note.code: note.count for note in trace.notes}
    assert {code: n for code, n in counts.items() if code in LEFT_OUT} == dict(reference.left_out)
    assert counts.get("no-duration", 0) == reference.no_duration
    assert list(trace.profiler_sessions) == reference.sessions
    assert list(trace.boundaries) == reference.boundaries
    assert dict(trace.unsupported) == reference.unsupported
    for name, rows in reference.tables.items():
        frame: pl.DataFrame = getattr(trace, name)
        if name in ("operator_inputs", "collective_inputs"):
            frame = frame.sort(frame.columns[0])
        assert frame.height == len(rows), name
        for column in frame.columns:
            expected = [row[column] for row in rows]
            actual = frame.get_column(column).to_list()
            if actual != expected:
                _assert_cells(actual, expected, f"{name}.{column}")
    metadata, pairs = reference.metadata, reference.pairs
    assert accounted(trace, metadata=metadata, pairs=pairs) == trace.event_count


def _assert_cells(actual: list[Any], expected: list[Any], where: str) -> None:
    for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
        same = one == other or _same_number(one, other) or _same_json(one, other)
        if not same and not (where.split(".")[1] in _VALUES and _same_value(one, other)):
            raise AssertionError(f"{where}, row {i}: {one!r}, not {other!r}")


def _same_number(cell: Any, value: Any) -> bool:
    """Return whether two texts are one number in two notations, as float64 has it."""
    texts = (cell, value)
    return all(isinstance(t, str) and _NUMBER.fullmatch(t) for t in texts) and float(cell) == float(value)


def _same_json(cell: Any, value: Any) -> bool:
    """Return whether two texts are one list or object, its numbers as float64 has them."""
    if not all(isinstance(t, str) and t.startswith(("[", "{")) for t in (cell, value)):
        return False
    try:
        return bool(json.loads(cell, strict=False) == json.loads(value, strict=False))
    except (ValueError, RecursionError):
        return False


def _same_value(cell: str | None, value: Any) -> bool:
    """Return whether JSON text of a cell holds the value; texts and numbers stand as they are."""
    if value is None or isinstance(value, str):
        return cell == text(value)
    if cell is None:
        return False
    parsed = json.loads(cell, strict=False, parse_float=Digits, parse_int=Digits, parse_constant=Digits)
    return bool(_plain(parsed) == _plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {text(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Digits):
        return Decimal(value)
    return text(value) if isinstance(value, str) else value


def columns_read() -> Iterator[tuple[str, str]]:
    """Yield (table, column) of everything that the reference reads, for a test that none is missing."""
    event = _item(0, {"ph": "X", "cat": "cpu_op", "ts": Digits("1"), "id": Digits("1")}) | {"thread_id": 0, "start": 0}
    rows = {
        "host_events": _host_row(0, event), "operator_inputs": _input_row(0, event),
        "device_events": _device_row(0, event, {"": 0}), "collective_inputs": _collective_row(0, event), "sync_events": _sync_row(event, {}),
        "device_annotations": _annotation_row(event, {}),
        "flows": _flow_row(event | {"category": "ac2g"}), "memory_events": _memory_row(event),
    }  # fmt: skip
    for name, row in rows.items():
        yield from ((name, column) for column in row)
