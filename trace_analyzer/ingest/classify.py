"""Classify raw rows into narrow typed frames, chunk by chunk, so that a file's text is never in memory as a whole.

Every event is in a frame, or counted by the reason why it was left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from math import prod
from typing import Any, NamedTuple

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from trace_analyzer.catalog.event_names import KINDS
from trace_analyzer.errors import Note
from trace_analyzer.ingest.raw import RAW_SCHEMA, nanoseconds, raw_frame
from trace_analyzer.ingest.trace import COPY_KINDS, NODE_NAMES, activity_names, node_names

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
# Rows on device tracks that are no device activities.
DEVICE_ROWS = {
    "cuda_sync": "sync",
    "xpu_sync": "sync",
    "gpu_user_annotation": "device-annotation",
    "cuda_event": "device-event",
    "graph_host_node": "device-event",
    "cuda_profiler_range": "profiler-range",
    "trace": "session",
}
FLOW_KINDS = {"ac2g": "launch", "async_cpu_to_gpu": "launch", "async": "launch", "fwdbwd": "forward-backward"}
# Activities of accelerators that this program does not support (yet).
_UNSUPPORTED = r"^(mtia_|hpu_|xpu_|npu_|ipu_|tpu_|glow|privateuse1_)"

# Instants that the profiler writes at the start and end of a recording.
_BOUNDARY = "^(Iteration Start: |Record Window End$)"

_DEVICE = ("kernel", "memcpy", "memset")
_ARROW = ("flow",)
_REST = ("metadata", "memory", "sync", "device-annotation", "session", "boundary")
_LEFT_OUT = ("marker", "counter", "device-event", "profiler-range", "unsupported", "unknown-phase")
KIND = pl.Enum([*KINDS, *_DEVICE, *_ARROW, *_REST, *_LEFT_OUT, *dict.fromkeys(FLOW_KINDS.values())])

# Arguments kept for host events, by kind; other host kinds keep all arguments.
CALL_NUMBERS = ("correlation", "external_id")
OPERATOR_NUMBERS = ("external_id", "sequence_number", "forward_thread")
PYTHON_NUMBERS = ("python_id", "python_parent_id")
_KINDS_WITH = {
    column: [
        kind
        for kind in KINDS
        if column in {
            "python": PYTHON_NUMBERS, "operator": OPERATOR_NUMBERS, "annotation": OPERATOR_NUMBERS, "runtime": CALL_NUMBERS,
            "driver": CALL_NUMBERS,
        }.get(kind, (column,))
    ]
    for column in dict.fromkeys((*CALL_NUMBERS, *OPERATOR_NUMBERS))
}  # fmt: skip
INPUT_NUMBERS = (
    "message_elements", "output_elements", "group_size", "global_rank_start", "global_rank_stride", "collective_seq",
    "source_rank", "destination_rank",
)  # fmt: skip
LISTED_INPUTS = ("input_dims", "input_types", "input_strides", "concrete_inputs")
_GROUP_TEXTS = (
    "input_splits", "output_splits", "process_group", "process_group_description", "process_group_ranks", "comms_id",
)  # fmt: skip
_INPUT_TEXTS = (
    *LISTED_INPUTS,
    "collective",
    "message_dtype",
    *_GROUP_TEXTS,
    "call_stack",
    "module_hierarchy",
    "kernel_file",
)
COLLECTIVE_TEXTS = ("collective", "message_dtype", *_GROUP_TEXTS)
COLLECTIVE_INPUTS = (*COLLECTIVE_TEXTS, *INPUT_NUMBERS)
"""Arguments of collectives, which their kernels have, too."""
CATEGORIES = (*_INPUT_TEXTS, "grid", "block", *COPY_KINDS, "module", "annotation")
"""Arguments with repeated texts."""
OTHER_INPUTS = (*(column for column in _INPUT_TEXTS if column not in LISTED_INPUTS), *INPUT_NUMBERS)
_DEVICE_NUMBERS = (
    "stream", "context", "correlation", "external_id", "bytes", "registers_per_thread", "shared_memory_bytes", "graph_id",
    "graph_node_id", "original_stream",
)  # fmt: skip
DEVICE_ARGUMENTS = (
    *_DEVICE_NUMBERS, "grid", "block", "occupancy_percent", *COPY_KINDS, *NODE_NAMES, *COLLECTIVE_INPUTS,
)  # fmt: skip
_DEVICE_TEXTS = dict.fromkeys(("device", "grid", "block", "occupancy_percent"), pl.String)
MEMORY_NUMBERS = (
    "bytes",
    "device_type",
    "memory_device",
    "memory_address",
    "total_allocated_bytes",
    "total_reserved_bytes",
)
_REST_NUMBERS = ("stream", "correlation", "wait_on_stream", *MEMORY_NUMBERS)
INTEGERS = tuple(
    dict.fromkeys((*CALL_NUMBERS, *OPERATOR_NUMBERS, *PYTHON_NUMBERS, *INPUT_NUMBERS, *_DEVICE_NUMBERS, *_REST_NUMBERS))
)
"""Columns that become integers."""
_BATCH = 100_000
_LIST = re.compile(r"[0-9]+|\[[0-9, ]*[0-9][0-9, ]*\]")
_EVENT = ("row", "kind", "name", "pid", "tid", "start_ns", "duration_ns")


class Classified(Struct, frozen=True):
    """Events by class; times are absolute, and names of processes and threads as in the file.

    ``python`` holds Python frames, the majority of a trace, with their own columns only; ``host`` holds all other CPU
    events; ``collectives`` holds the arguments of collectives that kernels have. ``edges`` are begin and end events before pairing; ``seen`` is the first row of every (pid, tid);
    ``skipped`` counts left-out events by (reason, cat); ``durationless`` counts spans without a duration.
    """

    python: pl.DataFrame
    host: pl.DataFrame
    inputs: pl.DataFrame
    device: pl.DataFrame
    collectives: pl.DataFrame
    arrows: pl.DataFrame
    rest: pl.DataFrame
    edges: pl.DataFrame
    seen: pl.DataFrame
    skipped: pl.DataFrame
    durationless: int


class TraceDocument(NamedTuple):
    """A file: its header, its classified events, and problems with its content.

    ``profiler`` names the program that wrote it, if it is not PyTorch Profiler.
    """

    header: dict[str, Any]
    events: Classified
    event_count: int
    notes: tuple[Note, ...]
    profiler: str | None = None


_FRAMES = tuple(name for name in Classified.__struct_fields__ if name != "durationless")


def joined(parts: list[Classified]) -> Classified:
    """Concatenate several `Classified` in order, sharing their memory. At least one is required."""
    frames = {name: [frame for part in parts if (frame := getattr(part, name)).height] for name in _FRAMES}
    stacked = {name: pl.concat(some, rechunk=False) for name, some in frames.items() if some}
    return replace(parts[0], **stacked, durationless=sum(part.durationless for part in parts))


def shifted(events: Classified, rows: int) -> Classified:
    """Increase the row numbers of the events by ``rows``."""
    if not rows:
        return events
    frames = {name: getattr(events, name) for name in _FRAMES if name != "skipped"}
    moved = {
        name: frame.clone().replace_column(0, frame.get_column("row") + rows)
        for name, frame in frames.items()
        if frame.height
    }
    return replace(events, **moved)


def sorted_events(raw: pl.DataFrame) -> Classified:
    """Classify the events of a raw frame (a subset of the columns of `RAW_SCHEMA`; times may already be in ns)."""
    times = {"start_ns": "ts", "duration_ns": "dur"}
    timed = _typed(
        _completed(
            raw.with_columns(
                nanoseconds(raw.get_column(text)).alias(name) for name, text in times.items() if text in raw.columns
            ),
            RAW_SCHEMA | dict.fromkeys(times, pl.Int64),
        ).with_columns(
            _kind().cast(KIND).alias("kind"),
            # a duration has no meaning for other phases
            pl.when(pl.col("ph") == "X").then("duration_ns").alias("duration_ns"),
        )
    )
    is_edge = (pl.col("ph").is_in(["B", "E"]) & pl.col("start_ns").is_not_null()).fill_null(False)
    edges = timed.filter(is_edge)
    return _sorted(timed.filter(~is_edge), edges) if edges.height else _sorted(timed, edges)


def sorted_objects(events: list[Any], first_row: int) -> Classified:
    """Classify parsed JSON (see `raw.strict_decoder`) in portions, as raw frames take much memory."""
    starts = range(0, max(1, len(events)), _BATCH)
    return joined([sorted_events(raw_frame(events[at : at + _BATCH], first_row + at)) for at in starts])


def sorted_python(frame: pl.DataFrame) -> Classified | None:
    """Classify Python frames; None where a row is invalid."""
    return replace(_nothing(), python=like(_nothing().python, frame)) if _are_spans(frame) else None


def sorted_calls(frame: pl.DataFrame) -> Classified | None:
    """Classify operators, annotations, or runtime calls, with the arguments of their kinds only."""
    if not _are_spans(frame):
        return None
    return replace(_nothing(), host=like(_nothing().host, frame), inputs=_inputs_part(frame))


def sorted_activities(frame: pl.DataFrame) -> Classified | None:
    """Classify device activities; None where a row is invalid."""
    if not _are_spans(frame):
        return None
    return replace(
        _nothing(), device=_device_part(_completed(frame, _DEVICE_TEXTS)), collectives=_collectives_part(frame)
    )


def sorted_arrows(frame: pl.DataFrame) -> Classified | None:
    """Classify starts and ends of arrows (``is_start``); None where a row is invalid."""
    if frame.get_column("id").null_count() or frame.get_column("start_ns").null_count():
        return None
    return replace(_nothing(), arrows=like(_nothing().arrows, frame.rename({"id": "flow_id"})))


def sorted_memory(frame: pl.DataFrame) -> Classified | None:
    """Classify instants of the memory profiler; None where a row is invalid."""
    if frame.get_column("start_ns").null_count() or not (frame.get_column("name") == "[memory]").all():
        return None
    lasts, device = pl.lit(0, dtype=pl.Int64), pl.col("pid").cast(pl.String)
    return replace(_nothing(), rest=like(_nothing().rest, frame.with_columns(duration_ns=lasts, device_label=device)))


def sorted_tracks(rows: pl.DataFrame) -> Classified:
    """Keep only the tracks of events: (row, pid, tid) of the first on each track, and possibly of others."""
    return replace(_nothing(), seen=rows)


def _are_spans(frame: pl.DataFrame) -> bool:
    """Return whether all rows have a start and a non-negative duration."""
    start, duration = frame.get_column("start_ns"), frame.get_column("duration_ns")
    return not (start.null_count() or duration.null_count()) and bool(duration.min() >= 0)  # type: ignore[operator]


def like(part: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with the columns of the part; nulls where the frame lacks one."""
    return frame.select(name if name in frame.columns else _null(name, dtype) for name, dtype in part.schema.items())


@cache
def _nothing() -> Classified:
    return sorted_events(pl.DataFrame(schema=RAW_SCHEMA))


def _completed(frame: pl.DataFrame, columns: Mapping[str, pl.DataType | type[pl.DataType]]) -> pl.DataFrame:
    """Add null columns for those that were not read."""
    return frame.with_columns(_null(name, dtype) for name, dtype in columns.items() if name not in frame.columns)


@cache
def _null(name: str, dtype: pl.DataType | type[pl.DataType]) -> pl.Expr:
    return pl.lit(None, dtype=dtype).alias(name)


def _typed(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of begin and end events: times without their texts, and repeated texts as categoricals."""
    return frame.select(
        "row", "kind", "start_ns", "duration_ns", pl.col("name", "pid", "tid").fill_null("").cast(pl.Categorical),
        *(name for name in RAW_SCHEMA if name not in ("row", "name", "pid", "tid", "ts", "dur")),
    )  # fmt: skip


def with_pairs(events: Classified) -> Classified:
    """Join begin and end events into spans: an E closes the B before it at the same depth of its thread."""
    if events.edges.is_empty():
        return events
    is_begin = pl.col("ph") == "B"
    at = ["pid", "tid", "depth"]
    pairs = (
        events.edges.sort("start_ns", "row", maintain_order=True)
        .with_columns(
            (pl.when(is_begin).then(1).otherwise(-1).cum_sum().over("pid", "tid") + (~is_begin).cast(pl.Int32)).alias(
                "depth"
            )
        )
        .with_columns(
            pl.when(pl.col("ph").shift(-1).over(at) == "E")
            .then(pl.col("start_ns").shift(-1).over(at))
            .alias("closed_ns"),
            (pl.col("ph").shift(1).over(at) == "B").fill_null(False).alias("closes"),
        )
        .filter(is_begin | ~pl.col("closes"))
        .with_columns((pl.col("closed_ns") - pl.col("start_ns")).alias("duration_ns"))
    )
    unmatched = pairs.filter(pl.col("duration_ns").is_null())
    spans = pairs.drop_nulls("duration_ns").with_columns(pl.lit("X").alias("ph")).select(events.edges.columns)
    counted = unmatched.group_by("cat").len("count").select(pl.lit("unmatched").alias("reason"), "cat", "count")
    both = joined([events, _sorted(spans, spans.clear())])
    return replace(both, edges=spans.clear(), skipped=pl.concat([both.skipped, counted]))


def _kind() -> pl.Expr:
    category, phase = pl.col("cat").str.to_lowercase(), pl.col("ph")
    return (
        pl.when(phase.is_in(["X", "B", "E"]))
        .then(
            category.replace_strict(HOST_KINDS | DEVICE_KINDS | DEVICE_ROWS, default=None, return_dtype=pl.String).fill_null(
                pl.when(category.str.contains(_UNSUPPORTED)).then(pl.lit("unsupported")).otherwise(pl.lit("other"))
            )
        )
        .when(phase.is_in(["s", "f", "t"])).then(pl.lit("flow"))
        .when(phase == "M").then(pl.lit("metadata"))
        .when(phase == "C").then(pl.lit("counter"))
        .when(phase.is_in(["i", "I", "R", "n"]))
        .then(
            pl.when(pl.col("name") == "[memory]").then(pl.lit("memory"))
            .when(pl.col("name").str.contains(_BOUNDARY)).then(pl.lit("boundary"))
            .otherwise(pl.lit("marker"))
        )
        .otherwise(pl.lit("unknown-phase"))
    )  # fmt: skip


def _reason() -> pl.Expr:
    """Return why an event is left out; null for events that stay.

    `events` adds the reasons that depend on the whole file.
    """
    kind = pl.col("kind").cast(pl.String)
    return (
        pl.when(kind == "metadata").then(None)
        .when(kind.is_in(["unknown-phase", "counter"])).then(kind)
        .when((kind == "flow") & ~_is_useful_arrow()).then(pl.lit("arrow"))
        .when(pl.col("start_ns").is_null()).then(pl.lit("no-time"))
        .when(pl.col("duration_ns") < 0).then(pl.lit("negative-duration"))
        .when(kind.is_in(_LEFT_OUT)).then(kind)
    )  # fmt: skip


def _is_useful_arrow() -> pl.Expr:
    known = pl.col("cat").str.to_lowercase().is_in(list(FLOW_KINDS)).fill_null(False)
    return known & pl.col("ph").is_in(["s", "f"]) & pl.col("id").is_not_null()


def _sorted(timed: pl.DataFrame, edges: pl.DataFrame) -> Classified:
    timed = timed.with_columns(_reason().alias("reason"))
    kept = _only(timed, pl.col("reason").is_null())
    host, device, arrows, rest = (_only(kept, pl.col("kind").is_in(kinds)) for kinds in (KINDS, _DEVICE, _ARROW, _REST))
    python_part, host_part = _host_parts(host)
    return Classified(
        python=python_part,
        host=host_part,
        inputs=_inputs_part(host),
        device=_device_part(device),
        collectives=_collectives_part(device),
        arrows=arrows.select(
            "row", "pid", "tid", "start_ns", pl.col("id").alias("flow_id"), (pl.col("ph") == "s").alias("is_start"),
            pl.col("cat").str.to_lowercase().replace_strict(FLOW_KINDS, return_dtype=KIND).alias("kind"),
        ),
        rest=rest.select(*_EVENT[:-1], _LASTS, "label", _DEVICE_LABEL, *_numbers(rest, _REST_NUMBERS)),
        edges=edges,
        seen=_only(timed, pl.col("kind") != "metadata").group_by("pid", "tid").agg(pl.col("row").min()).select("row", "pid", "tid"),
        skipped=timed.drop_nulls("reason").group_by("reason", "cat").len("count"),
        durationless=kept.select(((pl.col("ph") == "X") & pl.col("duration_ns").is_null()).sum()).item(),
    )  # fmt: skip


_LASTS = pl.col("duration_ns").fill_null(0)
_DEVICE_LABEL = pl.coalesce("device", pl.col("pid").cast(pl.String)).alias("device_label")


def _host_parts(host: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    is_python = pl.col("kind") == "python"
    python, rest = _only(host, is_python), _only(host, ~is_python)
    numbers = (
        pl.when(pl.col("kind").is_in(_KINDS_WITH[number.name])).then(number).alias(number.name)
        if isinstance(number, pl.Series)
        else number
        for number in _numbers(rest, _KINDS_WITH)
    )
    return (
        python.select(*_EVENT[:-1], _LASTS, *_numbers(python, PYTHON_NUMBERS)),
        rest.select(*_EVENT[:-1], _LASTS, *numbers),
    )


def _inputs_part(host: pl.DataFrame) -> pl.DataFrame:
    if not any(column in host.columns for column in _INPUT_TEXTS):
        return _nothing().inputs
    return _with_any(_only(host, pl.col("kind").is_in(["operator", "annotation"])), _INPUT_TEXTS)


def _collectives_part(device: pl.DataFrame) -> pl.DataFrame:
    if not any(column in device.columns for column in COLLECTIVE_TEXTS):
        return _nothing().collectives
    return _with_any(device, COLLECTIVE_TEXTS)


def _with_any(frame: pl.DataFrame, texts: tuple[str, ...]) -> pl.DataFrame:
    """Return the events with any of the texts, as categoricals, and the numbers of collectives."""
    known = [column for column in texts if column in frame.columns]
    frame = _only(frame, pl.any_horizontal(pl.col(known).is_not_null()))
    nulls = (_null(column, pl.Categorical()) for column in texts if column not in known)
    return frame.with_columns(pl.col(known).cast(pl.Categorical), *nulls).select(
        "row", *texts, *_numbers(frame, INPUT_NUMBERS)
    )


def _device_part(device: pl.DataFrame) -> pl.DataFrame:
    return device.with_columns(
        activity_names(device), node_names(device), *_numbers(device, _DEVICE_NUMBERS)
    ).select(
        *_EVENT[:-1], _LASTS, _DEVICE_LABEL,
        # A lane is drawn, not executed: its work ran on the original stream.
        pl.coalesce("original_stream", "stream").alias("stream"), *(name for name in _DEVICE_NUMBERS if "stream" not in name),
        _products(device.get_column("grid")).alias("blocks"),
        _products(device.get_column("block")).alias("threads_per_block"),
        pl.col("grid", "block").cast(pl.Categorical),
        pl.col("occupancy_percent").cast(pl.Float64, strict=False).fill_nan(None).replace(0, None),
        "annotation",
    )  # fmt: skip


def _numbers(frame: pl.DataFrame, columns: Iterable[str]) -> Iterator[pl.Series | pl.Expr]:
    for column in columns:
        yield (_number(frame.get_column(column)) if column in frame.columns else _null(column, pl.Int64()))


def _only(frame: pl.DataFrame, condition: pl.Expr) -> pl.DataFrame:
    """Return the rows that meet the condition; the frame itself, not a copy, where all rows do."""
    meet = frame.select(condition.fill_null(False)).to_series()
    return frame if meet.all() else frame.filter(meet) if meet.any() else frame.clear()


def _number(texts: pl.Series) -> pl.Series:
    """Parse integers, also with a decimal point or an exponent; null for other texts."""
    numbers = texts.cast(pl.Int64, strict=False)
    if numbers.null_count() == texts.null_count():
        return numbers
    number = pl.col("text").cast(pl.Float64, strict=False)
    whole = pl.when(number == number.floor()).then(number).cast(pl.Int64, strict=False)
    return texts.alias("text").to_frame().select(pl.coalesce(numbers, whole).alias(texts.name)).to_series()


def _products(texts: pl.Series) -> pl.Series:
    """Return products of JSON lists of integers: blocks of a grid, or threads of a block."""
    products = {text: _product(text) for text in texts.unique() if text is not None}
    return texts.replace_strict(products, default=None, return_dtype=pl.Int64)


@lru_cache(1 << 12)
def _product(text: str) -> int | None:
    if not _LIST.fullmatch(text):
        return None
    product = prod(map(float, re.findall("[0-9]+", text)))
    return int(product) if product < 1 << 63 else None
