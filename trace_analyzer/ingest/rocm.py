"""Read databases of ROCm's profilers: rocprofv3 (rocpd) and the ROCm Profile Data tracer (.rpd).

Schemas: rocprofiler-sdk, ``source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql`` (version 3), and rocmProfileData,
``rocpd_python/rocpd/schema_data/tableSchema.cmd``. Both have times in ns, and texts in a table of their own. Neither
has Python functions; operators are there if the program ran in ``torch.autograd.profiler.emit_nvtx``.
"""

import polars as pl

from trace_analyzer.errors import Note
from trace_analyzer.ingest.classify import TraceDocument
from trace_analyzer.ingest.databases import Database, Events
from trace_analyzer.ingest.nsight import emitted

RECORD = "record with `rocprofv3 --hip-trace --kernel-trace --memory-copy-trace --marker-trace --output-format rocpd`"
"""How a recording that can be analysed is made."""
_AXES = ("x", "y", "z")
_SPAN = {"start_ns": "start", "end_ns": "end"}
_PLACE = {**_SPAN, "process": "pid", "stream": "stream_id", "event": "event_id"}
_DISPATCH = {
    **_PLACE, "agent": "agent_id", "kernel": "kernel_id", "shared_memory_bytes": "group_segment_size",
    **{f"grid_{axis}": f"grid_size_{axis}" for axis in _AXES}, **{f"block_{axis}": f"workgroup_size_{axis}" for axis in _AXES},
}  # fmt: skip
_COPY = {**_PLACE, "source": "src_agent_id", "target": "dst_agent_id", "name_id": "name_id", "bytes": "size"}
_REGION = {**_SPAN, "process": "pid", "thread": "tid", "name_id": "name_id", "event": "event_id"}
_MESSAGE = r'"message"\s*:\s*"((?:[^"\\]|\\.)*)"'
_KIND_OF_COPY = (r"(?i)^(?:MEMORY_COPY_)?(HOST|DEVICE)_TO_(HOST|DEVICE)$", r"Copy${1}To${2}")
_MARKER_OF_RPD = "UserMarker"


def wrote_rocpd(database: Database) -> bool:
    """Return whether rocprofv3 wrote the database."""
    return bool(database.suffixes("rocpd_info_agent")) and bool(database.suffixes("rocpd_kernel_dispatch"))


def wrote_rpd(database: Database) -> bool:
    """Return whether the ROCm Profile Data tracer wrote the database."""
    return {"rocpd_api", "rocpd_op", "rocpd_string"} <= database.tables.keys()


def rocpd_document(database: Database) -> TraceDocument:
    """Return the events of a database of rocprofv3; each process has tables of its own, by a suffix."""
    events, devices = Events(), []
    for suffix in database.suffixes("rocpd_info_agent"):
        devices += _read_process(database, events, suffix)
    header = {"deviceProperties": devices}
    return TraceDocument(header, events.joined(), events.count, (_note("rocprofv3"),), "rocprofv3")


def _read_process(database: Database, events: Events, suffix: str) -> list[dict[str, object]]:
    """Read the tables of one process, and return the properties of its devices."""

    def table(name: str, columns: dict[str, str], texts: tuple[str, ...] = ()) -> pl.DataFrame:
        return database.all(f"rocpd_{name}{suffix}", columns, texts).unique(next(iter(columns)), keep="first")

    strings = table("string", {"name_id": "id", "name": "string"}, ("name",))
    pids = table("info_process", {"process": "id", "pid": "pid"})
    threads = table("info_thread", {"thread": "id", "tid": "tid", "label": "name"}, ("label",))
    kernels = table(
        "info_kernel_symbol", {"kernel": "id", "name": "display_name", "raw": "kernel_name"}, ("name", "raw")
    )
    agents = table(
        "info_agent", {"agent": "id", "index": "type_index", "kind": "type", "name": "product_name"}, ("kind", "name")
    ).filter(pl.col("kind") == "GPU").with_columns(pl.coalesce("index", "agent").cast(pl.String).alias("device"))  # fmt: skip
    ids = table(
        "event",
        {"event": "id", "correlation": "stack_id", "category_id": "category_id", "extra": "extdata"},
        ("extra",),
    )
    ids = ids.join(
        strings.select(pl.col("name_id").alias("category_id"), pl.col("name").alias("category")),
        on="category_id",
        how="left",
    )

    def placed(block: pl.DataFrame) -> pl.DataFrame:
        joined = block.join(ids, on="event", how="left", maintain_order="left").join(
            pids, on="process", how="left", maintain_order="left"
        )
        return joined.with_columns(events.numbered(joined.get_column("pid"), joined.get_column("correlation")))

    def on_device(block: pl.DataFrame, agent: pl.Expr) -> pl.DataFrame:
        known = block.with_columns(agent.alias("agent")).join(
            agents.select("agent", "device"), on="agent", how="left", maintain_order="left"
        )
        stream = pl.col("stream").cast(pl.String).alias("tid")
        return known.with_columns(pl.col("device").fill_null("0"), pl.col("device").fill_null("0").alias("pid"), stream)

    for block in database.blocks(f"rocpd_region{suffix}", _REGION):
        regions = placed(block).join(strings, on="name_id", how="left", maintain_order="left")
        regions = regions.join(threads, on="thread", how="left", maintain_order="left")
        is_marker = pl.col("category").str.starts_with("MARKER")
        message = pl.when(is_marker).then(pl.col("extra").str.extract(_MESSAGE))
        _add_host(
            events, regions.with_columns(pl.coalesce(message, "name").alias("name"), is_marker.fill_null(False).alias("is_range")),
            pl.when(pl.col("category").str.starts_with("HIP")).then(pl.lit("runtime"))
            .when(pl.col("category").str.starts_with("HSA")).then(pl.lit("driver")).otherwise(pl.lit("other")),
        )  # fmt: skip
    for block in database.blocks(f"rocpd_kernel_dispatch{suffix}", _DISPATCH):
        # Grids are in threads here, and in blocks in a trace of PyTorch Profiler.
        sizes = {
            f"grid_{axis}": (pl.col(f"grid_{axis}") + pl.col(f"block_{axis}") - 1) // pl.col(f"block_{axis}")
            for axis in _AXES
        }
        named = on_device(placed(block).with_columns(**sizes), pl.col("agent")).join(
            kernels, on="kernel", how="left", maintain_order="left"
        )
        shapes = (
            pl.format("[{}, {}, {}]", *(f"{kind}_{axis}" for axis in _AXES)).alias(kind) for kind in ("grid", "block")
        )
        name = pl.coalesce("name", "raw").str.strip_suffix(".kd").alias("name")
        events.add_activities(named.with_columns(pl.lit("kernel").alias("kind"), name, *shapes))
    gpus = agents.get_column("agent").implode()
    for block in database.blocks(f"rocpd_memory_copy{suffix}", _COPY):
        copies = on_device(placed(block), pl.when(pl.col("target").is_in(gpus)).then("target").otherwise("source"))
        name = (
            pl.col("name")
            .str.replace(*_KIND_OF_COPY)
            .str.replace_all("(?i)HOST", "Host")
            .str.replace_all("(?i)DEVICE", "Device")
        )
        named = copies.join(strings, on="name_id", how="left", maintain_order="left")
        events.add_activities(named.with_columns(pl.lit("memcpy").alias("kind"), name))
    return [{"id": row["device"], "name": row["name"]} for row in agents.iter_rows(named=True)]


def rpd_document(database: Database) -> TraceDocument:
    """Return the events of an .rpd file: an operation belongs to the calls of `rocpd_api_ops`."""
    events = Events()
    strings = database.all("rocpd_string", {"name_id": "id", "name": "string"}, ("name",)).unique(
        "name_id", keep="first"
    )
    texts = database.all("rocpd_ustring", {"args_id": "id", "args": "string"}, ("args",)).unique(
        "args_id", keep="first"
    )
    if "rocpd_ustring" not in database.tables:
        texts = strings.rename({"name_id": "args_id", "name": "args"})
    call = {**_SPAN, "correlation": "id", "pid": "pid", "tid": "tid", "name_id": "apiName_id", "args_id": "args_id"}
    for block in database.blocks("rocpd_api", call):
        calls = block.join(strings, on="name_id", how="left", maintain_order="left")
        calls = calls.join(texts, on="args_id", how="left", maintain_order="left")
        is_range = (pl.col("name") == _MARKER_OF_RPD).fill_null(False)
        named = pl.when(is_range).then("args").otherwise("name").alias("name")
        _add_host(events, calls.with_columns(named, is_range.alias("is_range")), pl.lit("runtime"))
    links = database.all("rocpd_api_ops", {"op": "op_id", "correlation": "api_id"}).unique("op", keep="first")
    kernels = database.all("rocpd_kernelapi", {"correlation": "api_ptr_id", "kernel_id": "kernelName_id"}).unique(
        "correlation"
    )
    names = strings.select(pl.col("name_id").alias("kernel_id"), pl.col("name").alias("kernel"))
    kinds = strings.select(pl.col("name_id").alias("type_id"), pl.col("name").alias("type"))
    work = {
        **_SPAN,
        "op": "id",
        "device": "gpuId",
        "stream": "queueId",
        "name_id": "description_id",
        "type_id": "opType_id",
    }
    for block in database.blocks("rocpd_op", work):
        described = block.join(strings, on="name_id", how="left", maintain_order="left").join(
            kinds, on="type_id", how="left", maintain_order="left"
        )
        linked = described.join(links, on="op", how="left", maintain_order="left").join(
            kernels, on="correlation", how="left", maintain_order="left"
        )
        place = (
            pl.col("device").cast(pl.String),
            pl.col("device").cast(pl.String).alias("pid"),
            pl.col("stream").cast(pl.String).alias("tid"),
        )
        kind = (
            pl.when(pl.col("type").str.contains("(?i)copy")).then(pl.lit("memcpy"))
            .when(pl.col("type").str.contains("(?i)memset|fill")).then(pl.lit("memset")).otherwise(pl.lit("kernel"))
        )  # fmt: skip
        description = pl.when(pl.col("name") != "").then("name")
        name = pl.when(kind == "kernel").then(pl.coalesce("kernel", description, "type")).otherwise("type")
        events.add_activities(
            linked.join(names, on="kernel_id", how="left", maintain_order="left").with_columns(
                *place, kind.alias("kind"), name.alias("name")
            )
        )
    return TraceDocument({}, events.joined(), events.count, (_note("rpd"),), "rpd")


def _add_host(events: Events, frame: pl.DataFrame, kind: pl.Expr) -> None:
    """Add calls with their kind, and ranges (``is_range``) as operators and annotations."""
    ids = pl.col("pid", "tid").cast(pl.String)
    events.add_calls(frame.filter(~pl.col("is_range")).with_columns(kind.alias("kind"), ids))
    ranges = frame.filter("is_range")
    marks = emitted(ranges.get_column("name"))
    events.add_calls(ranges.select("start_ns", "end_ns", ids).hstack(marks))


def _note(profiler: str) -> Note:
    message = (
        f"a database of {profiler}, which holds no Python functions, no types of operators' inputs, no registers; operators are"
        " there if the program ran in torch.autograd.profiler.emit_nvtx"
    )
    return Note("other-profiler", "info", message)
