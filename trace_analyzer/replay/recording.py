"""Read a replay's input from a trace into NumPy columns: activities, runtime calls, host threads and steps."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from trace_analyzer.catalog.event_names import BLOCKING, CALLS, host_work, is_annotation
from trace_analyzer.frames.arrays import column
from trace_analyzer.frames.intervals import END_NS, innermost, split_by, union
from trace_analyzer.frames.lookups import factorize, inverse_index, map_unique
from trace_analyzer.report import Check, DeviceReport
from trace_analyzer.thresholds import CPU_OPERATOR_NS, HOST_WAIT_NS
from trace_analyzer.vocabulary import NAMED_WORK, PARTS, shortened_by

Ints = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int32]

LAUNCH, GRAPH, COPY, BLOCKING_COPY, SET, SYNC_DEVICE, SYNC_STREAM, SYNC_EVENT, ALLOC, FREE, RECORD, WAIT = range(12)
"""Kinds of runtime calls that a replay keeps; the time of other calls belongs to their thread."""
_CALLS = (
    (WAIT, r"(?i)StreamWaitEvent"),
    (RECORD, r"(?i)EventRecord"),
    (GRAPH, r"(?i)GraphLaunch"),
    (COPY, r"(?i)(memcpy|memoryCopy).*Async"),
    (BLOCKING_COPY, r"(?i)memcpy|memoryCopy"),
    (SET, r"(?i)memset|memoryFill"),
    (LAUNCH, r"(?i)launch|memprefetch|enqueue|appendmemory"),
    (SYNC_STREAM, r"(?i)StreamSynchronize|QueueFinish"),
    (SYNC_EVENT, r"(?i)EventSynchronize|EventWait|EventsWait|EventHostSync|signal_wait"),
)
_FREE = r"^(cuda|hip)Free$|^(cu|hip)Mem(Free|Release)"

HOST_PARTS = tuple(part.key for part in PARTS.values() if part.replay)
"""Kinds of work of a host thread between the kept calls, which the vocabulary's entries declare."""
DISPATCH, PYTHON, UNKNOWN, DATA, ALLOCATION, COMPILATION, RUNTIME, COMPUTING = map(
    HOST_PARTS.index,
    ("dispatch", "python", "host-unknown", "data-loading", "allocation", "compilation", "runtime-call", "cpu-operator"),
)
WAITS = tuple(number for number, name in enumerate(HOST_PARTS) if PARTS[name].replay == "wait")
LAUNCHING = tuple(number for number, name in enumerate(HOST_PARTS) if name in shortened_by("cuda-graphs"))
"""Parts of a launch."""
OF_SAMPLES = tuple(number for number, name in enumerate(HOST_PARTS) if PARTS[name].per == "sample")
"""Parts that grow with the samples of a step."""
_NAMED = tuple(number for number, name in enumerate(HOST_PARTS) if name in NAMED_WORK)
_PARTS_OF_WORK = {HOST_PARTS[number]: number for number in _NAMED}

COPY_KINDS = ("HtoD", "DtoH", "DtoD", "PtoP")
KERNEL, MEMSET, FIRST_COPY, OTHER_COPY, GRAPH_KERNEL = 0, 1, 2, 2 + len(COPY_KINDS), 3 + len(COPY_KINDS)
"""Kinds of activities, each with its own launch latencies and gaps."""

_NO_EVENT = np.iinfo(np.uint32).max
SILENCE_NS = 20_000
"""Least time without any event in which a thread may sleep; shorter pauses are Python code."""


class Analysed(Protocol):
    """Provide an analysed trace: a `Report`, or the values of an unfinished analysis."""

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Return the tables by name."""

    @property
    def trust(self) -> Sequence[Check]:
        """Return the checks of the trace's data."""

    @property
    def devices(self) -> Sequence[DeviceReport]:
        """Return the figures of devices."""


class Activities(NamedTuple):
    """Device activities in order of start; ``call`` is a row of `Calls` or -1, ``track`` numbers its stream."""

    start: Ints
    end: Ints
    kind: Ints
    device: Ints
    track: Ints
    call: Ints
    graph: Flags
    pageable: Flags
    step: Ints


class Calls(NamedTuple):
    """Outermost runtime calls by thread and start; ``name`` numbers the name, ``event`` is the host event."""

    start: Ints
    end: Ints
    thread: Ints
    process: Ints
    kind: Ints
    name: Ints
    awaits: Ints
    waiting: Ints
    event: Ints


class Segments(NamedTuple):
    """The time of host threads, cut into pieces with the kind of work; ``busy`` where silence is work.

    A piece lasts from its edge to the next one, as most of a trace's millions end where another starts. Those of a thread
    begin at its row of ``firsts``. Pieces between events, and after a thread's last one, have none (`is_event`); the
    latter counts as busy, and its end means nothing.
    """

    firsts: Ints
    edges: Ints
    part: Kinds
    busy: Flags
    event: npt.NDArray[np.uint32]

    @staticmethod
    def of(spans: list[Any], threads: int) -> "Segments":
        """Return the pieces of ordered spans (thread, start, end, part, busy, event); empty the list to save memory."""
        thread, start, end, part, busy, event = spans
        spans.clear()
        last = np.append(thread[1:] != thread[:-1], True)[: thread.size]
        bare = np.flatnonzero(last | np.append(start[1:] != end[:-1], True)[: thread.size])
        at, firsts, stops = bare + 1, np.searchsorted(thread, np.arange(threads + 1)), np.append(end[bare], 0)
        del thread, end
        firsts += np.searchsorted(bare, firsts)
        edges = np.insert(start, np.append(at, start.size), stops)
        return Segments(
            firsts,
            edges,
            np.insert(part, at, UNKNOWN),
            np.insert(busy, at, last[bare]),
            np.insert(event, at, _NO_EVENT),
        )

    @property
    def start(self) -> Ints:
        """Return the start of each piece."""
        return self.edges[:-1]

    @property
    def end(self) -> Ints:
        """Return the end of each piece."""
        return self.edges[1:]

    @property
    def is_event(self) -> Flags:
        """Return whether each piece is that of an event."""
        known: Flags = self.event != _NO_EVENT
        return known

    @property
    def present(self) -> Ints:
        """Return the threads that have pieces."""
        return np.flatnonzero(np.diff(self.firsts))

    @property
    def thread(self) -> Ints:
        """Return the thread of each piece."""
        return np.repeat(np.arange(self.firsts.size - 1), np.diff(self.firsts))


class Steps(Struct, frozen=True):
    """The steps of one device.

    ``first`` is the time from which the first step is measured, ``steady`` marks steady steps.
    """

    index: Ints
    start: Ints
    end: Ints
    steady: Flags


class Recording(NamedTuple):
    """All columns of a recording.

    ``tracks`` has device and stream of each track, ``processes`` that of each thread.
    """

    activities: Activities
    calls: Calls
    segments: Segments
    steps: Steps
    tracks: Ints
    processes: Ints
    device: int


def recording(report: Analysed, device: int) -> Recording:
    """Return the recording of an analysed trace, with the steps of ``device`` (a device code)."""
    tables = report.tables
    threads = tables["threads"]
    processes = _ints(threads.get_column("process_id"))
    events = tables["host_events"].select(
        "event_id", "kind", "name", "thread_id", "start_ns", "duration_ns", "correlation"
    )
    kinds = _name_kinds(events)
    calls, call_of_event = _calls(events, kinds, processes, tables["launches"])
    activities, tracks = _activities(tables["activities"], call_of_event)
    marked = tables["steps"].filter(device=device).sort("start_ns", maintain_order=True)
    steps = _steps(marked)
    tracks_of = {(int(d), int(s)): number for number, (d, s) in enumerate(tracks)}
    calls = _with_streams(calls, events, call_of_event, tables["sync_events"], tracks_of)
    stepped = activities._replace(step=_steps_of(activities, calls, marked, device))
    segments = Segments.of(_host_spans(events, kinds), processes.size)
    segments = _computing(segments, tables["activities"].get_column("operator_id"))
    return Recording(stepped, calls, segments, steps, tracks, processes, device)


def distinct(values: npt.NDArray[np.signedinteger[Any]]) -> Ints:
    """Return the distinct row numbers in order, without sorting."""
    return np.flatnonzero(np.bincount(values))


_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


def ranges(ordered: npt.NDArray[np.signedinteger[Any]], values: Ints) -> list[slice]:
    """Return the range of each value in an ascending column of numbers."""
    begins, ends = (np.searchsorted(ordered, values, side).tolist() for side in _SIDES)
    return [slice(begin, end) for begin, end in zip(begins, ends, strict=True)]


def by_track(known: tuple[Ints, Ints], asked: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Return numbers for ``known`` and ``asked`` (track, time) that order them by track, then by time."""
    times = [time for _, time in (known, asked) if time.size]
    low = min((int(time.min()) for time in times), default=0)
    span = max((int(time.max()) for time in times), default=0) - low + 1
    return known[0] * span + (known[1] - low), asked[0] * span + (asked[1] - low)


def numbers_from(first: Ints, count: Ints) -> Ints:
    """Return the numbers from each first one on, ``count`` of each: (5, 0), (2, 1) gives 5, 6, 0."""
    return np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)


def is_any(values: npt.NDArray[np.signedinteger[Any]], kinds: Sequence[int]) -> Flags:
    """Return whether each value is one of a few numbers; comparisons take a tenth of the time of `numpy.isin`."""
    chosen: Flags = np.zeros(values.shape, dtype=bool)
    for kind in kinds:
        chosen |= values == kind
    return chosen


def median(values: npt.NDArray[Any]) -> float:
    """Return the median of at least one value; `numpy.median` would import masked arrays (12 ms)."""
    half = values.size // 2
    low, high = np.partition(values, (max(half - 1, 0), half))[[max(half - 1, 0), half]].tolist()
    return float(high) if values.size % 2 else (low + high) / 2


def _ints(series: pl.Series) -> Ints:
    """Return integers; -1 for null."""
    numbers = series.cast(pl.Int64)
    return np.ascontiguousarray((numbers.fill_null(-1) if numbers.null_count() else numbers).to_numpy())


def _picked(series: pl.Series, rows: Ints) -> Ints:
    """Return the integers of some rows, without copying the others."""
    return series.to_numpy()[rows].astype(np.int64) if not series.null_count() else _ints(series)[rows]


def _name_kinds(events: pl.DataFrame) -> pl.DataFrame:
    """Add to each host event the numbers of its name and kind of call, and its part of host time."""
    codes, firsts = factorize(events.get_column("kind"), events.get_column("name"))
    names = events.select("kind", "name")[firsts].with_columns(
        pl.col("name").cast(pl.String), pl.col("kind").cast(pl.String)
    )
    is_call = pl.col("kind").is_in(CALLS)
    work, name = pl.col("work"), pl.col("name").str.slice(0, 256)
    call = pl.coalesce(
        *(pl.when(is_call & name.str.contains(pattern)).then(pl.lit(kind, pl.Int64)) for kind, pattern in _CALLS),
        pl.when(is_call & (work == BLOCKING)).then(pl.lit(SYNC_DEVICE, pl.Int64)),
        pl.when(is_call & name.str.contains(_FREE)).then(pl.lit(FREE, pl.Int64)),
        pl.when(is_call & (work == "allocation")).then(pl.lit(ALLOC, pl.Int64)),
    )
    is_operator = (pl.col("kind") == "operator") & ~is_annotation()
    part = (
        pl.when(work.is_in(list(_PARTS_OF_WORK)))
        .then(work.replace_strict(_PARTS_OF_WORK, default=None, return_dtype=pl.Int64))
        .when(is_call).then(RUNTIME)
        .when(is_operator).then(DISPATCH)
        # Without frames, an annotation names what ran, and not what took its time.
        .otherwise(PYTHON if names.get_column("kind").is_in(["python"]).any() else UNKNOWN)
    )  # fmt: skip
    known = names.join(host_work(names), on=["kind", "name"], how="left", maintain_order="left").with_columns(
        call.fill_null(-1).cast(pl.Int8).alias("call"),
        part.cast(pl.Int8).alias("part"),
        # Scopes, and autograd functions without a namespace, run the program's own code, which may wait.
        (is_operator & name.str.contains(":")).alias("occupies"),
    )
    return known.select("call", "part", "occupies")[codes].with_columns(codes.alias("name_id"))


def _calls(events: pl.DataFrame, kinds: pl.DataFrame, processes: Ints, launches: pl.DataFrame) -> tuple[Calls, Rows]:
    """Return the kept calls, and for each host event the row of the call that it is or lies in; -1 for none."""
    kind = kinds.get_column("call").to_numpy().copy()
    launching = np.zeros(events.height, dtype=bool)
    launching[_ints(launches.get_column("launch_id"))] = True
    kind[launching & (kind < 0)] = LAUNCH
    rows = np.flatnonzero(kind >= 0)
    thread, start, length = (
        _picked(events.get_column(name), rows) for name in ("thread_id", "start_ns", "duration_ns")
    )
    end = start + length
    order = np.lexsort((-end, start, thread))
    rows, thread, start, end = rows[order], thread[order], start[order], end[order]
    # A call that starts before an earlier call of its thread ends lies within it.
    outer = np.ones(rows.size, dtype=bool)
    if rows.size:
        ends, starts = by_track((thread, end), (thread, start))
        outer[1:] = starts[1:] >= np.maximum.accumulate(ends)[:-1]
    number = np.cumsum(outer) - 1
    of_event = np.full(events.height, -1, dtype=np.int32)
    of_event[rows] = number
    name = _picked(kinds.get_column("name_id"), rows)
    none = np.full(int(outer.sum()), -1, dtype=np.int64)
    kept = thread[outer]
    calls = Calls(
        start[outer], end[outer], kept, processes[kept] if kept.size else kept, kind[rows][outer].astype(np.int64), name[outer],
        none, none, rows[outer],
    )  # fmt: skip
    return calls, of_event


def _activities(table: pl.DataFrame, call_of_event: Rows) -> tuple[Activities, Ints]:
    """Return the activities in order of start, and device and stream of each track."""
    name = pl.col("name")
    direction = name.str.extract(r"(HtoD|DtoH|DtoD|PtoP)").replace_strict(
        {text: FIRST_COPY + number for number, text in enumerate(COPY_KINDS)}, default=OTHER_COPY, return_dtype=pl.Int64
    )
    kind = (
        pl.when(pl.col("kind") == "kernel").then(KERNEL)
        .when(pl.col("kind") == "memset").then(MEMSET)
        .otherwise(direction)
    )  # fmt: skip
    of_name = map_unique(
        table.select("kind", "name"),
        kind.cast(pl.Int64).alias("kind"),
        name.str.contains("(?i)pageable").alias("pageable"),
    )
    frame = table.select(
        "device", pl.col("stream").fill_null(-1), "start_ns", "duration_ns", "launch_id"
    ).hstack(of_name)  # fmt: skip
    numbers, firsts = factorize(frame.get_column("device"), frame.get_column("stream"))
    places = frame.select("device", "stream")[firsts].with_row_index("number").sort("device", "stream")
    track = inverse_index(places.get_column("number"), places.height)[numbers]
    launch = _ints(frame.get_column("launch_id"))
    call = np.where(launch >= 0, call_of_event[np.maximum(launch, 0)] if call_of_event.size else -1, -1)
    start = _ints(frame.get_column("start_ns"))
    counts = np.bincount(call[call >= 0], minlength=1) if (call >= 0).any() else np.zeros(1, dtype=np.int64)
    graph = (call >= 0) & (counts[np.minimum(np.maximum(call, 0), counts.size - 1)] > 2)
    columns = Activities(
        start, start + _ints(frame.get_column("duration_ns")), np.where(graph, GRAPH_KERNEL, _ints(frame.get_column("kind"))),
        _ints(frame.get_column("device")), _ints(track), call, graph,
        frame.get_column("pageable").to_numpy().astype(bool), np.full(frame.height, -1, dtype=np.int64),
    )  # fmt: skip
    return columns, places.select("device", "stream").to_numpy().astype(np.int64)


def _with_streams(
    calls: Calls, events: pl.DataFrame, call_of_event: Rows, sync_events: pl.DataFrame,
    tracks_of: dict[tuple[int, int], int],
) -> Calls:  # fmt: skip
    """Add the track that a call waits for, and the waiting track, from CUPTI's rows; -1 where unknown.

    For a stream's wait for an event, only the number of the awaited stream is known; it is stored as ``-2 - number``.
    """
    rows = sync_events.drop_nulls("correlation").unique("correlation", keep="first", maintain_order=True)
    kept = events.select("event_id", "correlation").with_columns(column(call_of_event).alias("call"))
    joined = kept.filter(pl.col("call") >= 0).drop_nulls("correlation").join(rows, on="correlation", how="inner")
    waiting, awaits = calls.waiting.copy(), calls.awaits.copy()
    for call, device, stream, awaited in joined.select("call", "device", "stream", "wait_on_stream").iter_rows():
        track = tracks_of.get((device, stream), -1)
        if calls.kind[call] == WAIT:
            waiting[call] = track
            awaits[call] = -1 if awaited is None or awaited < 0 else -2 - awaited
        else:
            awaits[call] = track
    return calls._replace(waiting=waiting, awaits=awaits)


def _steps(rows: pl.DataFrame) -> Steps:
    steady = rows.get_column("steady").fill_null(False).to_numpy().astype(bool)
    index, start, end = (_ints(rows.get_column(name)) for name in ("index", "start_ns", "end_ns"))
    return Steps(index, start, end, steady)


def _steps_of(activities: Activities, calls: Calls, rows: pl.DataFrame, device: int) -> Ints:
    """Return the row of the device's steps in whose annotation each activity was launched, else in which it ran; -1 for none."""
    number = np.full(activities.start.size, -1, dtype=np.int64)
    if rows.is_empty():
        return number
    starts, begins, ends = (_ints(rows.get_column(name)) for name in ("start_ns", "host_start_ns", "host_end_ns"))
    own = activities.device == device
    at = np.searchsorted(starts, activities.start, "right") - 1
    number[own] = at[own]
    linked = activities.call >= 0
    if (begins >= 0).all() and linked.any():
        order = np.argsort(begins, kind="stable")
        launched = calls.start[activities.call[linked]]
        place = np.searchsorted(begins[order], launched, "right") - 1
        row = order[np.maximum(place, 0)]
        number[linked] = np.where((place >= 0) & (launched < ends[row]), row, -1)
    return number


def _host_spans(events: pl.DataFrame, kinds: pl.DataFrame) -> list[Any]:
    """Return the columns of `Segments.of`: a thread's work by innermost event; within named work, all counts to that."""
    spans = events.select("thread_id", "start_ns", END_NS, "event_id")
    inner = innermost(spans, ["thread_id"], "event_id")
    named = spans.hstack(kinds.select("part", "call", "occupies"))
    whole_work = [number for number in _NAMED if number not in WAITS]
    for work in whole_work:
        within = named.filter((pl.col("part") == work) & (pl.col("call") < 0)).select("thread_id", "start_ns", "end_ns")
        if not within.is_empty():
            whole = union(within, ["thread_id"]).with_columns(pl.lit(work, pl.Int8).alias(f"inside {work}"))
            inner = split_by(inner, whole, ["thread_id"], [f"inside {work}"])
    event = inner.get_column("event_id")
    own = named.get_column("part")[event]
    part = inner.select(pl.coalesce("^inside .*$", own)).to_series().to_numpy().copy()
    occupied = named.get_column("occupies")[event].to_numpy().astype(bool)
    busy = occupied | is_any(part, (*whole_work, RUNTIME))
    waiting = np.flatnonzero(is_any(part, WAITS))
    length = _picked(events.get_column("duration_ns"), event.to_numpy()[waiting].astype(np.int64))
    part[waiting[length < HOST_WAIT_NS]] = PYTHON
    thread = inner.get_column("thread_id").cast(pl.Int32).to_numpy()
    start, end = (_ints(inner.get_column(name)) for name in ("start_ns", "end_ns"))
    return [thread, start, end, part, busy, event.to_numpy()]


def _computing(segments: Segments, launching: pl.Series) -> Segments:
    """Mark what operators without a launch do for long as work on the CPU, as table `causes` does."""
    long = (segments.part == DISPATCH) & (segments.end - segments.start > CPU_OPERATOR_NS)
    rows = np.flatnonzero(long)
    launches = column(segments.event[rows].astype(np.int64)).is_in(launching.drop_nulls().cast(pl.Int64).implode())
    part = segments.part.copy()
    part[rows[~launches.to_numpy().astype(bool)]] = COMPUTING
    return segments._replace(part=part)
