"""Build the trace's typed tables from classified events, with times from the origin and notes on unusual data.

Devices that ranks write with the same number into one file are told apart here. Kineto draws a device's work in a process
with the device's number. Programs that merge files of ranks leave `args.device` as it was, and give each rank's processes a
mark ("[TP00] 0") or a number of their own; or nothing.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import polars as pl
from msgspec.structs import replace

from trace_analyzer import tuning, units
from trace_analyzer.catalog.event_names import CALLS
from trace_analyzer.errors import UNIT, Note
from trace_analyzer.frames.intervals import END_NS
from trace_analyzer.frames.lookups import map_unique
from trace_analyzer.ingest import possible, tables, trace
from trace_analyzer.ingest.classify import KIND, Classified, TraceDocument, with_pairs
from trace_analyzer.schema import Column, Table, nulls

_NPU_PROCESSES = ("Ascend Hardware", "Communication", "Overlap Analysis")
_LONGEST_LINE = float(1 << 62)
_ROWS = 1 << 32

_REASONS: dict[str, tuple[str, str]] = {
    "no-time": ("warning", "events without a readable timestamp were skipped"),
    "implausible-time": (
        "warning",
        "events whose time cannot be (0, far from all others, or from their launch) were skipped",
    ),
    "outside-time": (
        "warning",
        "events whose time cannot be were skipped: by their correlation ids, they are from before or after all others",
    ),
    "negative-duration": ("warning", "events with a negative duration were skipped"),
    "unmatched": ("warning", "begin or end events without their counterpart were skipped"),
    "unknown-phase": ("info", "events of a phase that this program does not use were skipped"),
    "device-event": ("info", "recorded device events are no work"),
    "profiler-range": ("info", "profiler ranges (hardware counters) are no timeline of device work"),
    "marker": ("info", "instant markers carry no duration"),
    "arrow": ("info", "arrows that are neither launches nor forward-backward pairs are not used"),
    "counter": ("info", "counter samples are not analysed"),
    "unsupported": ("warning", "device events of a kind that cannot be accounted for were skipped"),
}


def trace_tables(document: TraceDocument, path: str, notes: tuple[Note, ...] = ()) -> trace.Trace:
    """Return the typed tables of a document.

    Parts of the document are freed once they are in tables, so a caller that keeps no reference saves their memory.
    """
    header, header_notes = trace.header_of(document.header)
    header = replace(header, profiler=document.profiler)
    event_count, display_unit = document.event_count, document.header.get("displayTimeUnit")
    notes = (*notes, *document.notes, *header_notes)
    events = possible.with_possible_times(of_ranks(_without_npus(with_pairs(document.events)), header.devices))
    del document
    notes = (*notes, *_unit_notes(events, display_unit), *_skip_notes(events))
    events, odd_sizes = possible.with_possible_sizes(events)
    if odd_sizes:
        notes = (*notes, Note("implausible-size", "warning", "sizes below 0 or above 4 TiB are unknown", odd_sizes))
    if shortened := events.device.height - events.device.get_column("recorded_ns").null_count():
        message = "activities last longer than their stream allows: each ends where the next one begins"
        notes = (*notes, Note("impossible-duration", "warning", message, shortened))
    origin, end = _extent(events)
    threads = _threads(events)
    devices = _devices(events.device, header.devices)
    unsupported = events.skipped.filter(pl.col("reason") == "unsupported").group_by("cat").agg(pl.col("count").sum())
    flows = tables.FLOWS.conform(_located(events.arrows.sort("row"), threads, origin).rename({"start_ns": "time_ns"}))
    rest = _located(_coded(events.rest.sort("row"), devices), threads, origin)
    hosts, works = [_without_addresses(events.python), events.host], [events.device]
    inputs, collectives = [events.inputs], [events.collectives]
    del events
    device_events = _device_events(works, devices, threads, origin)
    host = _host_events(hosts, threads, origin)
    sessions = rest.filter(pl.col("kind") == "session").sort("start_ns")
    return trace.Trace(
        path=path,
        header=header,
        event_count=event_count,
        origin_ns=origin,
        duration_ns=end - origin,
        notes=notes,
        threads=threads,
        devices=devices,
        host_events=host,
        operator_inputs=_inputs(tables.OPERATOR_INPUTS, inputs, host),
        device_events=device_events,
        collective_inputs=_inputs(tables.COLLECTIVE_INPUTS, collectives, device_events),
        sync_events=tables.SYNC_EVENTS.conform(
            rest.filter(pl.col("kind") == "sync").sort("start_ns", "row").with_columns(_CORRELATION)
        ),
        device_annotations=_device_annotations(rest),
        flows=flows,
        memory_events=tables.MEMORY_EVENTS.conform(
            rest.filter(pl.col("kind") == "memory")
            .sort("start_ns", "row")
            .with_columns(
                pl.col("start_ns").alias("time_ns"),
                pl.col("memory_device").alias("device"),
                pl.col("memory_address").alias("address"),
            )
        ),
        profiler_sessions=tuple(sessions.select("start_ns", END_NS).iter_rows()),
        boundaries=tuple(rest.filter(pl.col("kind") == "boundary").get_column("start_ns").sort()),
        unsupported=dict(unsupported.sort("cat").iter_rows()),
    )


def _without_addresses(frames: pl.DataFrame) -> pl.DataFrame:
    """Name methods of built-in types without the address of their object: calls of one method have one name."""
    plain = pl.col("name").str.replace(r" at 0x[0-9a-fA-F]+>$", ">").cast(pl.Categorical)
    return frames.with_columns(map_unique(frames.select("name"), plain))


def _without_npus(events: Classified) -> Classified:
    """Count the events of Ascend NPUs as unsupported: torch_npu writes them without a category, in processes of this name."""
    named = events.rest.filter((pl.col("kind") == "metadata") & (pl.col("name") == "process_name"))
    named = named.select("pid", pl.col("label").cast(pl.String)).unique("pid", keep="last", maintain_order=True)
    if not named.get_column("label").eq(_NPU_PROCESSES[0]).any():
        return events
    named = named.filter(pl.col("label").is_in(_NPU_PROCESSES))
    counts = events.host.join(named, on="pid").group_by(pl.col("label").alias("cat")).len("count")
    counted = counts.select(pl.lit("unsupported").alias("reason"), "cat", "count").cast(dict(events.skipped.schema))  # type: ignore[arg-type]
    host = events.host.join(named, on="pid", how="anti", maintain_order="left")
    return replace(events, host=host, skipped=pl.concat([events.skipped, counted]))


def _extent(events: Classified) -> tuple[int, int]:
    """Return the first start and last end of the events that tables hold, ns; of all timed events where they hold none."""
    rows = events.rest.filter(pl.col("kind").is_in(["sync", "device-annotation", "session", "memory"]))
    held = [events.python, events.host, events.device, rows, events.arrows.with_columns(duration_ns=0)]
    ends = pl.concat(
        frame.select(pl.col("start_ns").min(), END_NS.max())
        for frame in ([frame for frame in held if frame.height] or [events.rest.filter(pl.col("kind") != "metadata")])
    )
    start, end = ends.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return int(start or 0), int(end or 0)


def _threads(events: Classified) -> pl.DataFrame:
    """Return every (pid, tid) of the file, numbered in order of appearance, with names from metadata."""
    names = (
        events.rest.filter((pl.col("kind") == "metadata") & (pl.col("name") == "thread_name"))
        .select("pid", "tid", pl.col("label").alias("thread_name"))
        .unique(["pid", "tid"], keep="last", maintain_order=True)
    )
    frame = (
        events.seen.group_by("pid", "tid").agg(pl.col("row").min())
        .sort("row")
        .with_row_index("thread_id")
        .with_columns(pl.col("thread_id").min().over("pid").rank("dense").alias("process_id") - 1)
        .join(names, on=["pid", "tid"], how="left", maintain_order="left")
        .rename({"thread_name": "name"})
    )  # fmt: skip
    return tables.THREADS.conform(frame)


def _located(events: pl.DataFrame, threads: pl.DataFrame, origin: int) -> pl.DataFrame:
    """Add threads to events, and convert their times to times relative to the origin."""
    return events.with_columns(_thread_ids(events, threads), pl.col("start_ns") - origin)


def _thread_ids(events: pl.DataFrame, threads: pl.DataFrame) -> pl.Series:
    """Return each event's thread by pid and tid, as categoricals: looking up one number is faster."""
    pid, tid = (pl.col(name).cast(pl.Categorical).to_physical().cast(pl.UInt64) for name in ("pid", "tid"))
    track = (pid * _ROWS + tid).alias("track")
    places = threads.select("thread_id", track)
    return events.select(track).join(places, on="track", how="left", maintain_order="left").get_column("thread_id")


def _devices(activities: pl.DataFrame, header: tuple[trace.DeviceProperties, ...]) -> pl.DataFrame:
    """Return devices with activities. A numeric id is its own code; other ids get the free codes after it."""
    labels = (
        activities.select(pl.col("device_label").alias("label"))
        .unique(maintain_order=True)
        .with_columns(pl.col("label").cast(pl.Int64, strict=False).alias("number"))
        .with_columns(pl.when(pl.col("number").cast(pl.String) == pl.col("label")).then("number"))
        .sort("number", "label", nulls_last=True)
    )
    free = pl.col("number").max().fill_null(-1) + pl.col("number").is_null().cum_sum()
    names = pl.DataFrame(
        {"label": [entry.index for entry in header], "name": [entry.name for entry in header]},
        schema={"label": pl.String, "name": pl.String},
    ).unique("label", keep="first", maintain_order=True)
    frame = labels.with_columns(pl.coalesce("number", free).alias("device")).join(
        names, on="label", how="left", maintain_order="left"
    )
    alike = {entry.name for entry in header}
    if len(alike) == 1:  # an id that the header lacks is one of these devices
        frame = frame.with_columns(pl.col("name").fill_null(pl.lit(next(iter(alike)), dtype=pl.String)))
    return tables.DEVICES.conform(frame)


def _coded(events: pl.DataFrame, devices: pl.DataFrame) -> pl.DataFrame:
    codes = devices.select(pl.col("label").alias("device_label"), "device")
    return events.join(codes, on="device_label", how="left", maintain_order="left")


_CORRELATION = pl.when(~pl.col("correlation").is_in([0, -1, (1 << 32) - 1])).then("correlation").alias("correlation")
"""The correlation id without 0 and -1 (of 32 bits, too), which profilers write where there is none."""


def _host_events(parts: list[pl.DataFrame], threads: pl.DataFrame, origin: int) -> pl.DataFrame:
    columns = ["pid", "tid", "kind", "name", "start_ns", "duration_ns", "row", "python_id", "external_id"]
    spans = pl.concat((part.select(c for c in columns if c in part.columns) for part in parts), how="diagonal")
    spans = spans.rechunk()  # sorting a column of several chunks takes ten times as long
    thread = _thread_ids(spans, threads)
    # One key for thread and start: each key with many equal values slows sorting.
    length = spans.select((pl.col("start_ns").max() - origin).cast(pl.Float64)).item() or 0.0
    wide = pl.Int64 if (length + 1) * threads.height < _LONGEST_LINE else pl.Int128
    line = pl.lit(thread).cast(wide) * (int(length) + 1) + pl.col("start_ns") - origin
    order = _outer_first(spans.with_columns(line.alias("line")))
    del spans
    made = {"event_id": pl.int_range(len(order), dtype=pl.UInt32, eager=True), "thread_id": thread.gather(order)}
    frame = _filled(tables.HOST_EVENTS, parts, order, made)
    short = (_narrowed(frame.get_column(name)) for name in _CARRIED)
    return frame.with_columns(pl.col("start_ns") - origin, _CORRELATION, *short)


_CARRIED = ("external_id", "sequence_number", "forward_thread", "python_id", "python_parent_id")
"""Ids of host events that analyses compare at most; the public table has them in 64 bits."""


def _narrowed(ids: pl.Series) -> pl.Series:
    """Return ids in 32 bits where all fit, which saves 4 bytes an event of each for the whole analysis."""
    narrow = ids.cast(pl.Int32, strict=False)
    return narrow if narrow.null_count() == ids.null_count() else ids


def _outer_first(spans: pl.DataFrame) -> pl.Series:
    """Return the order of the spans by line; of those with equal starts the longest first, then by nesting and id.

    A caller has a lower id than what it calls. The row decides last, between events that nothing distinguishes.
    """
    nesting = pl.col("kind").to_physical().cast(pl.Int64)
    name = pl.col("name").cast(pl.String)
    return _with_ties(spans, "line", -pl.col("duration_ns"), nesting, "python_id", "external_id", name, "row")


def _with_ties(frame: pl.DataFrame, key: str, *merits: pl.Expr | str) -> pl.Series:
    """Return the order of the rows by ``key``, and by ``merits`` between equal ones: few, which saves time."""
    order = frame.get_column(key).arg_sort()
    keys = frame.get_column(key)[order]
    is_next = keys.eq_missing(keys.shift(1))
    together = (is_next | is_next.shift(-1, fill_value=False)).arg_true()
    some = order[together]
    return order.scatter(together, some[frame[some].select(pl.arg_sort_by(key, *merits)).to_series()])


def _filled(table: Table, parts: list[pl.DataFrame], order: pl.Series, made: dict[str, pl.Series]) -> pl.DataFrame:
    """Return the table from the columns in ``made``, and the others from ``parts``, in that order.

    The parts lose all their columns, each when it is used, so that only one column is in memory twice. The freed memory
    is returned to the system at the end, as later steps hardly reuse blocks of that size.
    """
    columns = [column for column in table.columns if column.name not in made]
    pieces = {column.name: [_piece(part, column) for part in parts] for column in columns}
    parts.clear()
    made |= {column.name: _in_order(pieces.pop(column.name), order).cast(_kept(column)) for column in columns}
    tuning.return_freed_memory()
    return pl.DataFrame({column.name: made.pop(column.name).cast(_kept(column)) for column in table.columns})


def _kept(column: Column) -> pl.DataType:
    """Return a column's type in memory: text is categorical, as millions of rows share few values."""
    if column.dtype != pl.String:
        return column.dtype
    return KIND if column.name == "kind" else pl.Categorical()


def _piece(part: pl.DataFrame, column: Column) -> pl.Series:
    if column.name in part.columns:
        return part.get_column(column.name)
    return nulls(part.height, _kept(column)).alias(column.name)


def _in_order(pieces: list[pl.Series], order: pl.Series) -> pl.Series:
    if all(piece.null_count() == len(piece) for piece in pieces):
        return nulls(len(order), pieces[0].dtype)
    stacked = pl.concat(pieces, rechunk=True)
    pieces.clear()
    return stacked[order]


def _by_number(numbers: pl.Series, values: pl.Series) -> pl.Series:
    """Put each value at the index of its number, up to the highest number; other indices are null."""
    size = int(numbers.max()) + 1 if len(numbers) else 0  # type: ignore[arg-type]
    return nulls(size, values.dtype).scatter(numbers, values)


def _inputs(table: Table, parts: list[pl.DataFrame], events: pl.DataFrame) -> pl.DataFrame:
    """Return the arguments in ``parts`` of these events, by the table's first column, the event's id."""
    rows, key = pl.concat([part.get_column("row") for part in parts], rechunk=True), table.columns[0].name
    numbers = _by_number(events.get_column("row"), events.get_column(key)).gather(rows, null_on_oob=True)
    ids = pl.DataFrame({"row": rows, key: numbers}).with_row_index("at").drop_nulls().sort("row")
    return _filled(table, parts, ids.get_column("at"), {key: ids.get_column(key)})


def _device_events(
    parts: list[pl.DataFrame], devices: pl.DataFrame, threads: pl.DataFrame, origin: int
) -> pl.DataFrame:
    columns = [
        "pid", "tid", "device_label", "context", "stream", "correlation", "name", "start_ns", "duration_ns",
        "row",
    ]  # fmt: skip
    spans = pl.concat([part.select(columns) for part in parts]).rechunk()
    label, name = (pl.col(text).cast(pl.String) for text in ("device_label", "name"))
    order = _with_ties(spans, "start_ns", label, "context", "stream", "correlation", "duration_ns", name, "row")
    spans = _located(_coded(spans[order], devices), threads, origin)
    made = {
        "activity_id": pl.int_range(len(order), dtype=pl.UInt32, eager=True),
        **spans.select("start_ns", "thread_id", "device").to_dict(),
    }
    return _filled(tables.DEVICE_EVENTS, parts, order, made).with_columns(_CORRELATION)


def _device_annotations(rest: pl.DataFrame) -> pl.DataFrame:
    """Return annotations on devices' tracks; Kineto writes their stream into `tid` only."""
    frame = rest.filter(pl.col("kind") == "device-annotation").sort("start_ns", "row")
    stream = pl.col("tid").cast(pl.String).cast(pl.Int64, strict=False)
    return tables.DEVICE_ANNOTATIONS.conform(frame.with_columns(pl.coalesce("stream", stream)))


def _unit_notes(events: Classified, display_unit: object) -> Iterator[Note]:
    """Warn where a file displays nanoseconds but has no fraction of a microsecond: its times may be nanoseconds."""
    if display_unit != "ns":
        return
    spans = [frame.select("start_ns", "duration_ns") for frame in (events.python, events.host, events.device)]
    is_whole = ((pl.col("start_ns") % units.NS_PER_US == 0) & (pl.col("duration_ns") % units.NS_PER_US == 0)).all()
    if pl.concat(spans).select(is_whole).item():
        yield Note(
            UNIT,
            "warning",
            "`displayTimeUnit` is ns and all times are whole numbers: they are read as microseconds, as the trace format has it; if"
            " the file was written in nanoseconds, all times here are 1,000 times too long",
        )


def _skip_notes(events: Classified) -> Iterator[Note]:
    counts = events.skipped.group_by("reason").agg(pl.col("count").sum()).sort("reason")
    for reason, count in counts.iter_rows():
        severity, message = _REASONS[reason]
        yield Note(reason, severity, message, count)  # type: ignore[arg-type]
    if events.durationless:
        yield Note("no-duration", "warning", "events without a duration count as lasting no time", events.durationless)


_NUMBER, _TRACK = pl.col("device_label").cast(pl.String), pl.col("pid").cast(pl.String)


def of_ranks(events: Classified, header: Sequence[trace.DeviceProperties]) -> Classified:
    """Name devices of several ranks by their process: a number that several processes write is that of several devices.

    Where one process has the work of all ranks, it is named by the process that launched it, if the header lists the
    number more than once, or work of several processes runs at once on one stream.
    """
    tracks = events.device.select(_NUMBER.alias("number"), _TRACK.alias("track")).drop_nulls().unique()
    several = tracks.filter(pl.len().over("number") > 1)
    if several.height:
        track, number = pl.col("track"), pl.col("number")
        marked = (track == number) | track.str.ends_with(pl.lit(" ") + number)
        named = several.with_columns(
            pl.when(marked).then("track").otherwise(pl.format("{}/{}", "track", "number")).alias("rank")
        )
        return replace(events, device=_renamed(events.device, named), rest=_renamed(events.rest, named))
    twice = [number for number, count in Counter(entry.index for entry in header).items() if count > 1]
    owners = _owners(events, twice) if twice else _at_once(events)
    if owners is None:
        return events
    device = events.device.join(owners, on="row", how="left", maintain_order="left")
    return replace(
        events, device=device.with_columns(pl.coalesce("rank", "device_label").alias("device_label")).drop("rank")
    )


def _at_once(events: Classified) -> pl.DataFrame | None:
    """Return `_owners` where work of several processes overlaps on one stream, which runs one kernel at a time; else None.

    A stream is one of a context: databases number the contexts of all processes apart, merged files do not.
    """
    calls = events.host.filter(pl.col("kind").is_in(CALLS)).get_column("pid")
    if calls.n_unique() < 2:
        return None
    owners = _owners(events, events.device.get_column("device_label").cast(pl.String).unique().drop_nulls().to_list())
    if owners is None:
        return None
    by = ["device_label", "context", "stream"]
    work = events.device.join(owners, on="row").sort("start_ns", "row")
    ended = END_NS.cum_max().shift().over(by)
    overlaps = (pl.col("start_ns") < ended) & (pl.col("rank") != pl.col("rank").shift().over(by))
    several = work.filter(overlaps).select("device_label").unique()
    owned = work.join(several, on="device_label", how="semi").select("row", "rank")
    return owned if owned.height else None


def _renamed(events: pl.DataFrame, named: pl.DataFrame) -> pl.DataFrame:
    """Replace (number, track) of the rows that ``named`` has by its rank."""
    keys = events.select("row", _NUMBER.alias("number"), _TRACK.alias("track"))
    ranks = keys.join(named, on=["number", "track"], how="left", maintain_order="left").get_column("rank")
    return events.with_columns(
        pl.coalesce(ranks, "device_label").cast(events.schema["device_label"]).alias("device_label")
    )


def _owners(events: Classified, numbers: Sequence[str]) -> pl.DataFrame | None:
    """Return (row, rank) of activities with these device numbers, by the process that launched each.

    Ranks share correlation ids: the calls and the activities of one id belong together in order of time. None where some
    activity has no call, or where one process launched all.
    """
    # A driver call inside a runtime call has its id.
    calls = (
        events.host.filter(pl.col("kind").is_in(CALLS), pl.col("correlation") > 0)
        .select("correlation", "start_ns", pl.col("pid").cast(pl.String).alias("process"))
        .sort("start_ns")
        .unique(["process", "correlation"], keep="first", maintain_order=True)
        .with_columns(pl.int_range(pl.len()).over("correlation").alias("place"))
    )
    work = (
        events.device.filter(_NUMBER.is_in(list(numbers)))
        .select("row", "correlation", "start_ns", _NUMBER.alias("number"))
        .sort("start_ns", "row")
        .with_columns(pl.int_range(pl.len()).over("correlation").alias("place"))
    )
    owned = work.join(calls, on=["correlation", "place"], how="left")
    starts_before = (pl.col("start_ns_right") <= pl.col("start_ns")).fill_null(False)
    if not owned.select(starts_before.all()).item() or owned.get_column("process").n_unique() < 2:
        return None
    return owned.select("row", pl.format("{}/{}", "process", "number").alias("rank"))
