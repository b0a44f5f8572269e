"""Read databases of ROCm's profilers: rocprofv3 (rocpd) and the ROCm Profile Data tracer (.rpd).

Schemas: rocprofiler-sdk, ``source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql`` (version 3), and rocmProfileData,
``rocpd_python/rocpd/schema_data/tableSchema.cmd``. Both have times in ns, and texts in a table of their own. Neither
has Python functions; operators are there if the program ran in ``torch.autograd.profiler.emit_nvtx``.
"""

import polars as pl

from trace_analyzer.errors import Note
from trace_analyzer.ingest.classify import TraceDocument
from trace_analyzer.ingest.databases import Database, Events, labelled, sizes_of
from trace_analyzer.ingest.nsight import emitted

RECORD = "record with `rocprofv3 --hip-trace --kernel-trace --memory-copy-trace --marker-trace --output-format rocpd`"
"""How a recording that can be analysed is made."""
_AXES = ("_x", "_y", "_z")
_SPAN = {"start_ns": "start", "end_ns": "end"}
_PLACE = {**_SPAN, "process": "pid", "stream": "stream_id", "event": "event_id"}
_DISPATCH = {
    **_PLACE, "agent": "agent_id", "kernel": "kernel_id", "shared_memory_bytes": "group_segment_size",
    **{f"grid{axis}": f"grid_size{axis}" for axis in _AXES}, **{f"block{axis}": f"workgroup_size{axis}" for axis in _AXES},
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
        return database.lookup(f"rocpd_{name}{suffix}", columns, texts)

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
    ids = labelled(ids, (strings.rename({"name_id": "category_id", "name": "category"}), "category_id"))

    def placed(block: pl.DataFrame) -> pl.DataFrame:
        joined = labelled(block, (ids, "event"), (pids, "process"))
        return joined.with_columns(events.numbered(joined.get_column("pid"), joined.get_column("correlation")))

    def on_device(block: pl.DataFrame, agent: pl.Expr) -> pl.DataFrame:
        known = labelled(block.with_columns(agent.alias("agent")), (agents.select("agent", "device"), "agent"))
        stream = pl.col("stream").cast(pl.String).alias("tid")
        return known.with_columns(pl.col("device").fill_null("0"), pl.col("device").fill_null("0").alias("pid"), stream)

    for block in database.blocks(f"rocpd_region{suffix}", _REGION):
        regions = labelled(placed(block), (strings, "name_id"), (threads, "thread"))
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
            f"grid{axis}": (pl.col(f"grid{axis}") + pl.col(f"block{axis}") - 1) // pl.col(f"block{axis}")
            for axis in _AXES
        }
        named = labelled(on_device(placed(block).with_columns(**sizes), pl.col("agent")), (kernels, "kernel"))
        name = pl.coalesce("name", "raw").str.strip_suffix(".kd").alias("name")
        events.add_activities(named.with_columns(pl.lit("kernel").alias("kind"), name, *sizes_of(_AXES)))
    gpus = agents.get_column("agent").implode()
    for block in database.blocks(f"rocpd_memory_copy{suffix}", _COPY):
        copies = on_device(placed(block), pl.when(pl.col("target").is_in(gpus)).then("target").otherwise("source"))
        name = (
            pl.col("name")
            .str.replace(*_KIND_OF_COPY)
            .str.replace_all("(?i)HOST", "Host")
            .str.replace_all("(?i)DEVICE", "Device")
        )
        named = labelled(copies, (strings, "name_id"))
        events.add_activities(named.with_columns(pl.lit("memcpy").alias("kind"), name))
    return [{"id": row["device"], "name": row["name"]} for row in agents.iter_rows(named=True)]


def rpd_document(database: Database) -> TraceDocument:
    """Return the events of an .rpd file: an operation belongs to the calls of `rocpd_api_ops`."""
    events = Events()
    strings = database.lookup("rocpd_string", {"name_id": "id", "name": "string"}, ("name",))
    texts = database.lookup("rocpd_ustring", {"args_id": "id", "args": "string"}, ("args",))
    if "rocpd_ustring" not in database.tables:
        texts = strings.rename({"name_id": "args_id", "name": "args"})
    call = {**_SPAN, "correlation": "id", "pid": "pid", "tid": "tid", "name_id": "apiName_id", "args_id": "args_id"}
    for block in database.blocks("rocpd_api", call):
        calls = labelled(block, (strings, "name_id"), (texts, "args_id"))
        is_range = (pl.col("name") == _MARKER_OF_RPD).fill_null(False)
        named = pl.when(is_range).then("args").otherwise("name").alias("name")
        _add_host(events, calls.with_columns(named, is_range.alias("is_range")), pl.lit("runtime"))
    links = database.lookup("rocpd_api_ops", {"op": "op_id", "correlation": "api_id"})
    kernels = database.lookup("rocpd_kernelapi", {"correlation": "api_ptr_id", "kernel_id": "kernelName_id"})
    names = strings.rename({"name_id": "kernel_id", "name": "kernel"})
    kinds = strings.rename({"name_id": "type_id", "name": "type"})
    work = {
        **_SPAN,
        "op": "id",
        "device": "gpuId",
        "stream": "queueId",
        "name_id": "description_id",
        "type_id": "opType_id",
    }
    for block in database.blocks("rocpd_op", work):
        linked = labelled(
            block,
            (strings, "name_id"),
            (kinds, "type_id"),
            (links, "op"),
            (kernels, "correlation"),
            (names, "kernel_id"),
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
        events.add_activities(linked.with_columns(*place, kind.alias("kind"), name.alias("name")))
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
