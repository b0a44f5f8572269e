"""Events -> the trace's typed tables. Every event is kept, or counted under a reason in the notes."""

from collections.abc import Iterator

import polars as pl

from trace_analyzer import tables
from trace_analyzer.ingest.document import Document
from trace_analyzer.ingest.times import nanoseconds
from trace_analyzer.ingest.trace import Trace, header_of
from trace_analyzer.notes import Note
from trace_analyzer.units import NS_PER_S

# Category, in lower case -> kind. PyTorch 1.8 to 1.12 wrote some of them capitalised.
HOST_KINDS = {
    "cpu_op": "operator",
    "operator": "operator",
    "user_annotation": "annotation",
    "python_function": "python",
    "cuda_runtime": "runtime",
    "hip_runtime": "runtime",
    "xpu_runtime": "runtime",
    "privateuse1_runtime": "runtime",
    "mtia_runtime": "runtime",
    "runtime": "runtime",
    "cuda_driver": "driver",
    "xpu_driver": "driver",
    "privateuse1_driver": "driver",
    "overhead": "overhead",
}
DEVICE_KINDS = {
    "kernel": "kernel",
    "concurrent_kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
# Rows on device tracks that are no work.
DEVICE_ROWS = {
    "cuda_sync": "sync",
    "xpu_sync": "sync",
    "gpu_user_annotation": "device-annotation",
    "cuda_event": "device-event",
    "cuda_profiler_range": "profiler-range",
    "trace": "session",
}
FLOW_KINDS = {"ac2g": "launch", "async_cpu_to_gpu": "launch", "async": "launch", "fwdbwd": "forward-backward"}
# Device work of accelerators whose events cannot be accounted for (yet).
_UNSUPPORTED = r"^(mtia_|hpu_|xpu_|npu_|ipu_|tpu_|glow|privateuse1_)"

# Farther than this from the median event, a timestamp is damage, not time.
_PLAUSIBLE_NS = 30 * 24 * 3600 * NS_PER_S

# Outer kinds first, for events that start and end together.
_NESTING = {"annotation": 0, "python": 1, "operator": 2, "other": 3, "overhead": 4, "runtime": 5, "driver": 6}

_REASONS: dict[str, tuple[str, str]] = {
    "no-time": ("warning", "events without a readable timestamp were skipped"),
    "implausible-time": ("warning", "events more than 30 days from the others were skipped"),
    "negative-duration": ("warning", "events with a negative duration were skipped"),
    "unmatched": ("warning", "begin or end events without their counterpart were skipped"),
    "unknown-phase": ("info", "events of a phase that this program does not use were skipped"),
    "device-annotation": ("info", "annotations copied onto device tracks are no work"),
    "device-event": ("info", "recorded device events are no work"),
    "profiler-range": ("info", "profiler ranges (hardware counters) are no timeline of device work"),
    "marker": ("info", "instant markers carry no duration"),
    "arrow": ("info", "arrows that are neither launches nor forward-backward pairs are not used"),
    "counter": ("info", "counter samples are not analysed"),
    "unsupported": ("warning", "device events of a kind that cannot be accounted for were skipped"),
}


def trace_tables(document: Document, path: str, notes: tuple[Note, ...] = ()) -> Trace:
    """The typed tables of a document, with one note per thing that was odd or left out."""
    timed = _timed(document.events)
    origin = _origin(timed)
    events = timed.with_columns(pl.col("start_ns") - origin).with_columns(
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    )
    threads = _threads(events)
    events = _with_thread(events, threads)
    devices = _devices(events, header_of(document.header).devices)
    events = _with_device_codes(events, devices)
    kept = events.filter(pl.col("skipped").is_null())
    return Trace(
        path=path,
        header=header_of(document.header),
        event_count=document.event_count,
        origin_ns=origin,
        duration_ns=int(kept.filter(pl.col("is_span")).get_column("end_ns").max() or 0),  # type: ignore[arg-type]
        notes=(*notes, *document.notes, *_skip_notes(events)),
        threads=threads,
        devices=devices,
        host_events=_host_events(kept),
        operator_inputs=_operator_inputs(kept),
        device_events=_device_events(kept),
        sync_events=_sync_events(kept),
        flows=_flows(kept),
        memory_events=_memory_events(kept),
        profiler_sessions=tuple(
            kept.filter(pl.col("kind") == "session").sort("start_ns").select("start_ns", "end_ns").iter_rows()
        ),
        unsupported=_unsupported(events),
    )


def _timed(raw: pl.DataFrame) -> pl.DataFrame:
    """Events with kind, exact times, and the reason why each one that is left out is left out."""
    category = pl.col("cat").str.to_lowercase()
    phase = pl.col("ph")
    span = phase.is_in(["X", "B", "E"])
    device_like = category.str.contains(_UNSUPPORTED)
    kind = (
        pl.when(phase.is_in(["s", "f", "t"])).then(pl.lit("flow"))
        .when(phase == "M").then(pl.lit("metadata"))
        .when(phase == "C").then(pl.lit("counter"))
        .when(phase.is_in(["i", "I", "R", "n"]))
        .then(pl.when(pl.col("name") == "[memory]").then(pl.lit("memory")).otherwise(pl.lit("marker")))
        .when(span)
        .then(
            category.replace_strict(HOST_KINDS | DEVICE_KINDS | DEVICE_ROWS, default=None, return_dtype=pl.String)
            .fill_null(pl.when(device_like).then(pl.lit("unsupported")).otherwise(pl.lit("other")))
        )
        .otherwise(pl.lit("unknown-phase"))
    )
    frame = raw.with_columns(
        kind.alias("kind"),
        nanoseconds(raw.get_column("ts")).alias("start_ns"),
        nanoseconds(raw.get_column("dur")).alias("duration_ns"),
        (phase == "X").alias("is_span"),
        pl.col("name").fill_null(""),
    )
    frame = _paired(frame)
    distance = (pl.col("start_ns") - pl.col("start_ns").filter(pl.col("is_span")).median().cast(pl.Int64)).abs()
    timeless = pl.col("kind") == "metadata"
    return frame.with_columns(
        pl.when(timeless).then(None)
        .when(pl.col("kind").is_in(["unknown-phase", "counter"])).then(pl.col("kind"))
        .when(pl.col("unmatched")).then(pl.lit("unmatched"))
        .when((pl.col("kind") == "flow") & ~_is_useful_arrow()).then(pl.lit("arrow"))
        .when(pl.col("start_ns").is_null()).then(pl.lit("no-time"))
        .when((distance > _PLAUSIBLE_NS) | (pl.col("duration_ns") > _PLAUSIBLE_NS)).then(pl.lit("implausible-time"))
        .when(pl.col("duration_ns") < 0).then(pl.lit("negative-duration"))
        .when(pl.col("kind").is_in(["marker", "device-annotation", "device-event", "profiler-range", "unsupported"]))
        .then(pl.col("kind"))
        .alias("skipped"),
        (pl.col("is_span") & pl.col("duration_ns").is_null()).alias("durationless"),
        pl.col("duration_ns").fill_null(0),
    )


def _is_useful_arrow() -> pl.Expr:
    known = pl.col("cat").str.to_lowercase().is_in(list(FLOW_KINDS)).fill_null(False)
    return known & pl.col("ph").is_in(["s", "f"]) & pl.col("id").is_not_null()


def _paired(frame: pl.DataFrame) -> pl.DataFrame:
    """Begin and end events joined into spans: an E closes the B before it at the same depth of its thread."""
    frame = frame.with_columns(pl.lit(False).alias("unmatched"))
    edge = frame.filter(pl.col("ph").is_in(["B", "E"]) & pl.col("start_ns").is_not_null())
    if edge.is_empty():
        return frame
    begins = pl.col("ph") == "B"
    step = pl.when(begins).then(1).otherwise(-1)
    at = ["pid", "tid", "depth"]
    pairs = (
        edge.sort("start_ns", "row", maintain_order=True)
        .with_columns((step.cum_sum().over("pid", "tid") + (~begins).cast(pl.Int32)).alias("depth"))
        .with_columns(
            pl.when(pl.col("ph").shift(-1).over(at) == "E").then(pl.col("start_ns").shift(-1).over(at)).alias("closed_ns"),
            (pl.col("ph").shift(1).over(at) == "B").fill_null(False).alias("closes"),
        )
        .select("row", "closed_ns", "closes")
    )
    joined = frame.join(pairs, on="row", how="left")
    is_begin = pl.col("ph") == "B"
    return (
        joined.filter(~pl.col("closes").fill_null(False))
        .with_columns(
            pl.when(is_begin).then(pl.col("closed_ns") - pl.col("start_ns")).otherwise("duration_ns").alias("duration_ns"),
            (is_begin & pl.col("closed_ns").is_not_null() | pl.col("is_span")).alias("is_span"),
            ((is_begin & pl.col("closed_ns").is_null()) | (pl.col("ph") == "E")).alias("unmatched"),
        )
        .drop("closed_ns", "closes")
    )


def _origin(timed: pl.DataFrame) -> int:
    """Start of the first plausible event with a duration; of any timed event where there is none."""
    kept = timed.filter(pl.col("skipped").is_null() & pl.col("start_ns").is_not_null())
    spans = kept.filter(pl.col("is_span"))
    return int((spans if spans.height else kept).get_column("start_ns").min() or 0)  # type: ignore[arg-type]


def _threads(events: pl.DataFrame) -> pl.DataFrame:
    """Every (pid, tid) of the file, numbered in order of appearance, with the names of its metadata."""
    names = (
        events.filter((pl.col("kind") == "metadata") & (pl.col("name") == "thread_name"))
        .select(pl.col("pid").fill_null(""), pl.col("tid").fill_null(""), pl.col("label").alias("thread_name"))
        .unique(["pid", "tid"], keep="last", maintain_order=True)
    )
    frame = (
        events.filter(pl.col("kind") != "metadata")
        .select(pl.col("pid", "tid").fill_null(""))
        .unique(maintain_order=True)
        .with_row_index("thread_id")
        .with_columns(pl.col("thread_id").min().over("pid").rank("dense").alias("process_id") - 1)
        .join(names, on=["pid", "tid"], how="left", maintain_order="left")
        .rename({"thread_name": "name"})
    )
    return tables.THREADS.conform(frame)


def _with_thread(events: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    keys = threads.select("thread_id", "pid", "tid")
    return events.with_columns(pl.col("pid", "tid").fill_null("")).join(
        keys, on=["pid", "tid"], how="left", maintain_order="left"
    )


def _is_activity() -> pl.Expr:
    return pl.col("kind").is_in(list(DEVICE_KINDS.values())) & pl.col("skipped").is_null()


def _devices(events: pl.DataFrame, header: tuple) -> pl.DataFrame:  # type: ignore[type-arg]
    """Devices with activities. A numeric id is its own code; others take the free codes after it."""
    labels = (
        events.filter(_is_activity())
        .select(pl.coalesce("device", "pid").alias("label"))
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
    if len(alike) == 1:  # an id that is not in the header is one of these
        frame = frame.with_columns(pl.col("name").fill_null(pl.lit(next(iter(alike)), dtype=pl.String)))
    return tables.DEVICES.conform(frame)


def _with_device_codes(events: pl.DataFrame, devices: pl.DataFrame) -> pl.DataFrame:
    codes = devices.select(pl.col("label"), pl.col("device").alias("device_code"))
    return events.with_columns(pl.coalesce("device", "pid").alias("device_label")).join(
        codes, left_on="device_label", right_on="label", how="left", maintain_order="left"
    )


def _int(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Int64, strict=False)


def _nonzero(column: str) -> pl.Expr:
    return pl.when(_int(column) != 0).then(_int(column)).alias(column)


def _product(column: str) -> pl.Expr:
    """Product of a JSON list of integers: blocks of a grid, threads of a block."""
    return (
        pl.when(pl.col(column).str.contains(r"[0-9]"))
        .then(pl.col(column).str.extract_all(r"[0-9]+"))
        .list.eval(pl.element().cast(pl.Float64, strict=False).product())
        .list.first()
        .cast(pl.Int64, strict=False)
    )


def _host_events(kept: pl.DataFrame) -> pl.DataFrame:
    frame = (
        kept.filter(pl.col("is_span") & pl.col("kind").is_in([*_NESTING]))
        .with_columns(pl.col("kind").replace_strict(_NESTING, return_dtype=pl.Int8).alias("nesting"))
        .sort(
            "thread_id", "start_ns", "duration_ns", "nesting", "row",
            descending=[False, False, True, False, False],
        )
        .with_columns(
            pl.int_range(pl.len(), dtype=pl.UInt32).alias("event_id"),
            _nonzero("correlation"),
            *(_int(c) for c in ("external_id", "sequence_number", "forward_thread", "python_id", "python_parent_id")),
        )
    )
    return tables.HOST_EVENTS.conform(frame)


def _operator_inputs(kept: pl.DataFrame) -> pl.DataFrame:
    recorded = pl.any_horizontal(
        pl.col(c).is_not_null() for c in ("input_dims", "input_types", "concrete_inputs", "collective", "call_stack", "module_hierarchy")
    )
    rows = kept.filter(pl.col("kind").is_in(["operator", "annotation"]) & recorded)
    ids = _host_events(kept).select("row", "event_id")
    frame = rows.join(ids, on="row", how="inner", maintain_order="left").with_columns(
        _int("message_elements"), _int("group_size")
    )
    return tables.OPERATOR_INPUTS.conform(frame)


def _device_events(kept: pl.DataFrame) -> pl.DataFrame:
    frame = (
        kept.filter(_is_activity())
        .sort("start_ns", "row")
        .with_columns(
            pl.int_range(pl.len(), dtype=pl.UInt32).alias("activity_id"),
            pl.col("device_code").alias("device"),
            _nonzero("correlation"),
            *(
                _int(c)
                for c in ("stream", "context", "external_id", "bytes", "registers_per_thread", "shared_memory_bytes",
                          "graph_id", "graph_node_id")
            ),
            _product("grid").alias("blocks"),
            _product("block").alias("threads_per_block"),
            pl.col("occupancy_percent").cast(pl.Float64, strict=False).fill_nan(None),
        )
    )
    return tables.DEVICE_EVENTS.conform(frame)


def _sync_events(kept: pl.DataFrame) -> pl.DataFrame:
    frame = (
        kept.filter(pl.col("kind") == "sync")
        .sort("start_ns", "row")
        .with_columns(
            pl.col("device_code").alias("device"), _nonzero("correlation"), _int("stream"), _int("wait_on_stream")
        )
    )
    return tables.SYNC_EVENTS.conform(frame)


def _flows(kept: pl.DataFrame) -> pl.DataFrame:
    kind = pl.col("cat").str.to_lowercase().replace_strict(FLOW_KINDS, default=None, return_dtype=pl.String)
    frame = (
        kept.filter(pl.col("kind") == "flow")
        .with_columns(
            pl.col("id").alias("flow_id"),
            kind.alias("kind"),
            (pl.col("ph") == "s").alias("is_start"),
            pl.col("start_ns").alias("time_ns"),
        )
    )
    return tables.FLOWS.conform(frame)


def _memory_events(kept: pl.DataFrame) -> pl.DataFrame:
    frame = (
        kept.filter(pl.col("kind") == "memory")
        .sort("start_ns", "row")
        .with_columns(
            pl.col("start_ns").alias("time_ns"),
            _int("memory_device").alias("device"),
            *(_int(c) for c in ("device_type", "bytes", "total_allocated_bytes", "total_reserved_bytes")),
        )
    )
    return tables.MEMORY_EVENTS.conform(frame)


def _unsupported(events: pl.DataFrame) -> dict[str, int]:
    counts = events.filter(pl.col("kind") == "unsupported").group_by("cat").len().sort("cat")
    return dict(counts.iter_rows())


def _skip_notes(events: pl.DataFrame) -> Iterator[Note]:
    counts = events.drop_nulls("skipped").group_by("skipped").len().sort("skipped")
    for reason, count in counts.iter_rows():
        severity, message = _REASONS[reason]
        yield Note(reason, severity, message, count)  # type: ignore[arg-type]
    if count := events.filter(pl.col("durationless") & pl.col("skipped").is_null()).height:
        yield Note("no-duration", "warning", "events without a duration count as lasting no time", count)
