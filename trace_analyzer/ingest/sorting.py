"""Raw rows -> narrow typed frames by what the events are, chunk by chunk, so that a file never stands in memory as text.

Every event ends up in a frame, or is counted under the reason why it is left out.
"""

from dataclasses import dataclass, fields

import polars as pl

from trace_analyzer.ingest.times import nanoseconds

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

# Instants that the profiler writes where a recording begins and ends.
_BOUNDARY = "^(Iteration Start: |Record Window End$)"

_HOST = ("annotation", "python", "operator", "other", "overhead", "runtime", "driver")
_DEVICE = ("kernel", "memcpy", "memset")
_REST = ("flow", "metadata", "memory", "sync", "session", "boundary")
_LEFT_OUT = ("marker", "counter", "device-annotation", "device-event", "profiler-range", "unsupported", "unknown-phase")
KIND = pl.Enum([*_HOST, *_DEVICE, *_REST, *_LEFT_OUT])

_EVENT = ("row", "kind", "name", "pid", "tid", "start_ns", "duration_ns")
_HOST_NUMBERS = ("correlation", "external_id", "sequence_number", "forward_thread", "python_id", "python_parent_id")
_DEVICE_NUMBERS = (
    "stream", "context", "correlation", "external_id", "bytes", "registers_per_thread", "shared_memory_bytes", "graph_id",
    "graph_node_id",
)  # fmt: skip
_INPUTS = (
    "input_dims",
    "input_types",
    "input_strides",
    "concrete_inputs",
    "collective",
    "message_dtype",
    "call_stack",
    "module_hierarchy",
)
_REST_NUMBERS = (
    "stream", "correlation", "wait_on_stream", "bytes", "device_type", "memory_device", "total_allocated_bytes",
    "total_reserved_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class Sorted:
    """Events by what they are; times are absolute, names of processes and threads as the file has them.

    ``edges`` are begin and end events, still to be paired; ``seen`` the first row of every (pid, tid);
    ``skipped`` counts (reason, cat) of the events that are left out, ``durationless`` spans without a duration.
    """

    host: pl.DataFrame
    inputs: pl.DataFrame
    device: pl.DataFrame
    rest: pl.DataFrame
    edges: pl.DataFrame
    seen: pl.DataFrame
    skipped: pl.DataFrame
    durationless: int


def joined(parts: list[Sorted]) -> Sorted:
    """One `Sorted` of several, in order. At least one is needed."""
    frames = {
        field.name: pl.concat([getattr(part, field.name) for part in parts], rechunk=True)
        for field in fields(Sorted)
        if field.name != "durationless"
    }
    return Sorted(**frames, durationless=sum(part.durationless for part in parts))


def sorted_events(raw: pl.DataFrame) -> Sorted:
    """The events of a raw frame (`RAW_SCHEMA`) by what they are."""
    timed = raw.with_columns(
        _kind().cast(KIND).alias("kind"),
        nanoseconds(raw.get_column("ts")).alias("start_ns"),
        nanoseconds(raw.get_column("dur")).alias("duration_ns"),
        pl.col("name").fill_null("").cast(pl.Categorical),
        pl.col("pid", "tid").fill_null("").cast(pl.Categorical),
    )
    is_edge = pl.col("ph").is_in(["B", "E"]) & pl.col("start_ns").is_not_null()
    return _sorted(timed.filter(~is_edge.fill_null(False)), timed.filter(is_edge))


def with_pairs(events: Sorted) -> Sorted:
    """The same with begin and end events joined into spans: an E closes the B before it at the same depth of its thread."""
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
    return Sorted(
        **{field.name: getattr(both, field.name) for field in fields(Sorted) if field.name not in ("edges", "skipped")},
        edges=spans.clear(),
        skipped=pl.concat([both.skipped, counted]),
    )


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
    """Why an event is left out; null for the others. `events` adds what only the whole file can tell."""
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


def _sorted(timed: pl.DataFrame, edges: pl.DataFrame) -> Sorted:
    timed = timed.with_columns(_reason().alias("reason"))
    kept = timed.filter(pl.col("reason").is_null())
    device_label = pl.coalesce("device", pl.col("pid").cast(pl.String)).alias("device_label")
    host = kept.filter(pl.col("kind").is_in(_HOST))
    device = kept.filter(pl.col("kind").is_in(_DEVICE))
    rest = kept.filter(pl.col("kind").is_in(_REST))
    missing = kept.filter((pl.col("ph") == "X") & pl.col("duration_ns").is_null())
    no_time = pl.col("duration_ns").fill_null(0)
    return Sorted(
        host=host.select(*_EVENT[:-1], no_time, *map(_number, _HOST_NUMBERS)),
        inputs=host.filter(pl.col("kind").is_in(["operator", "annotation"]) & pl.any_horizontal(pl.col(*_INPUTS).is_not_null()))
        .select("row", *_INPUTS, _number("message_elements"), _number("group_size")),
        device=device.select(
            *_EVENT[:-1], no_time, device_label, *map(_number, _DEVICE_NUMBERS),
            _product("grid").alias("blocks"), _product("block").alias("threads_per_block"), "grid", "block",
            pl.col("occupancy_percent").cast(pl.Float64, strict=False).fill_nan(None),
        ),
        rest=rest.select(*_EVENT[:-1], no_time, "ph", "cat", "id", "label", device_label, *map(_number, _REST_NUMBERS)),
        edges=edges,
        seen=timed.filter(pl.col("kind") != "metadata").group_by("pid", "tid").agg(pl.col("row").min()),
        skipped=timed.drop_nulls("reason").group_by("reason", "cat").len("count"),
        durationless=missing.height,
    )  # fmt: skip


def _number(column: str) -> pl.Expr:
    """An integer, also where it is written with a point or an exponent; null for all else."""
    number = pl.col(column).cast(pl.Float64, strict=False)
    whole = pl.when(number == number.floor()).then(number).cast(pl.Int64, strict=False)
    return pl.coalesce(pl.col(column).cast(pl.Int64, strict=False), whole).alias(column)


def _product(column: str) -> pl.Expr:
    """Product of a JSON list of integers: blocks of a grid, threads of a block."""
    return (
        pl.when(pl.col(column).str.contains(r"[0-9]"))
        .then(pl.col(column).str.extract_all(r"[0-9]+"))
        .list.eval(pl.element().cast(pl.Float64, strict=False).product())
        .list.first()
        .cast(pl.Int64, strict=False)
    )
