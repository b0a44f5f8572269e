"""Read what ROCm's profilers write: rocprofv3 (rocpd, JSON) and the ROCm Profile Data tracer (.rpd).

Schemas: rocprofiler-sdk, ``source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql`` (version 3) and "Output formats" of
``source/docs/how-to/using-rocprofv3.rst``, and rocmProfileData, ``rocpd_python/rocpd/schema_data/tableSchema.cmd``. All
have times in ns, and texts in a table of their own. None has Python functions; operators are there if the program ran in
``torch.autograd.profiler.emit_nvtx``.
"""

import re
from collections.abc import Mapping

import polars as pl

from trace_analyzer.errors import Note
from trace_analyzer.ingest import classify, nsight
from trace_analyzer.ingest.databases import Database, Events, labelled, sizes_of

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

_HANDLE = pl.Struct({"handle": pl.UInt64})
_SIZE = pl.Struct(dict.fromkeys("xyz", pl.Int64))
_RECORD: dict[str, pl.DataType] = {
    **dict.fromkeys(("start_timestamp", "end_timestamp", "kind", "operation", "thread_id"), pl.Int64()),
    "correlation_id": pl.Struct({"internal": pl.Int64}),
}
_CALLS = ("hip_api", "hsa_api", "rccl_api", "marker_api")
_RECORDS: dict[str, dict[str, pl.DataType]] = {
    **dict.fromkeys(_CALLS, _RECORD),
    "kernel_dispatch": {**_RECORD, "stream_id": _HANDLE, "dispatch_info": pl.Struct({
        "agent_id": _HANDLE, "queue_id": _HANDLE, "kernel_id": pl.Int64, "group_segment_size": pl.Int64,
        "workgroup_size": _SIZE, "grid_size": _SIZE,
    })},
    "memory_copy": {**_RECORD, "stream_id": _HANDLE, "src_agent_id": _HANDLE, "dst_agent_id": _HANDLE, "bytes": pl.Int64()},
}  # fmt: skip
_JSON = pl.Struct({
    "metadata": pl.Struct({"pid": pl.Int64, "node": pl.Struct({"hostname": pl.String})}),
    "agents": pl.List(pl.Struct({"id": _HANDLE, "type": pl.Int64, "logical_node_type_id": pl.Int64, "product_name": pl.String})),
    "kernel_symbols": pl.List(pl.Struct({"kernel_id": pl.Int64, "formatted_kernel_name": pl.String, "kernel_name": pl.String})),
    "strings": pl.Struct({
        "buffer_records": pl.List(pl.Struct({"kind": pl.String, "operations": pl.List(pl.String)})),
        "marker_api": pl.List(pl.Struct({"key": pl.Int64, "value": pl.String})),
    }),
    "buffer_records": pl.Struct({name: pl.List(pl.Struct(fields)) for name, fields in _RECORDS.items()}),
})  # fmt: skip
"""What is read of a process in the JSON of rocprofv3."""
_PIECE = 16 << 20
"""Bytes of records that are parsed at once: parsed JSON takes ten times the memory of its text."""
_LISTS = re.compile(rb'"buffer_records"\s*:\s*\{|"(%s)"\s*:\s*\[\s*(?=\{)' % "|".join(_RECORDS).encode())
_NEXT, _END = re.compile(rb"\}\s*,\s*(?=\{)"), re.compile(rb"\}\s*\]")
_GPU = 2
"""Type of agents that are GPUs (rocprofiler-sdk/fwd.h, rocprofiler_agent_type_t)."""


def wrote_rocpd(database: Database) -> bool:
    """Return whether rocprofv3 wrote the database."""
    return bool(database.suffixes("rocpd_info_agent")) and bool(database.suffixes("rocpd_kernel_dispatch"))


def wrote_rpd(database: Database) -> bool:
    """Return whether the ROCm Profile Data tracer wrote the database."""
    return {"rocpd_api", "rocpd_op", "rocpd_string"} <= database.tables.keys()


def rocpd_document(database: Database) -> classify.TraceDocument:
    """Return the events of a database of rocprofv3; each process has tables of its own, by a suffix."""
    events, devices = Events(), []
    for suffix in database.suffixes("rocpd_info_agent"):
        devices += _read_process(database, events, suffix)
    header = {"deviceProperties": devices}
    return classify.TraceDocument(header, events.joined(), events.count, (_note("rocprofv3"),), "rocprofv3")


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
        return _numbered(events, labelled(block, (ids, "event"), (pids, "process")))

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
        named = labelled(_on_device(placed(block), agents, pl.col("agent")), (kernels, "kernel"))
        _add_kernels(events, named.with_columns(pl.coalesce("name", "raw").alias("name")))
    gpus = agents.get_column("agent").implode()
    for block in database.blocks(f"rocpd_memory_copy{suffix}", _COPY):
        agent = pl.when(pl.col("target").is_in(gpus)).then("target").otherwise("source")
        _add_copies(events, labelled(_on_device(placed(block), agents, agent), (strings, "name_id")))
    return [{"id": row["device"], "name": row["name"]} for row in agents.iter_rows(named=True)]


def _numbered(events: Events, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the events with ids of correlation that no two processes share."""
    return frame.with_columns(events.numbered(frame.get_column("pid"), frame.get_column("correlation")))


def _on_device(frame: pl.DataFrame, agents: pl.DataFrame, agent: pl.Expr) -> pl.DataFrame:
    """Return the activities on the device of their agent, by stream; of an unknown agent, on device 0."""
    known = labelled(frame.with_columns(agent.alias("agent")), (agents.select("agent", "device"), "agent"))
    device, stream = pl.col("device").fill_null("0"), pl.col("stream").cast(pl.String)
    return known.with_columns(device, device.alias("pid"), stream.alias("tid"))


def _add_kernels(events: Events, frame: pl.DataFrame) -> None:
    """Add kernels with their grids in blocks, as in a trace of PyTorch Profiler; rocprofv3 counts threads."""
    grid, block = ([pl.col(f"{kind}{axis}") for axis in _AXES] for kind in ("grid", "block"))
    sized = frame.with_columns((n + size - 1) // size for n, size in zip(grid, block, strict=True))
    name = pl.col("name").str.strip_suffix(".kd")
    events.add_activities(sized.with_columns(pl.lit("kernel").alias("kind"), name, *sizes_of(_AXES)))


def _add_copies(events: Events, frame: pl.DataFrame) -> None:
    """Add copies with names as `catalog/copies.toml` knows them."""
    name = pl.col("name").str.replace(*_KIND_OF_COPY)
    for place in ("Host", "Device"):
        name = name.str.replace_all(f"(?i){place}", place)
    events.add_activities(frame.with_columns(pl.lit("memcpy").alias("kind"), name))


def rocprofv3_document(content: bytes) -> classify.TraceDocument:
    """Return the events of the JSON of rocprofv3. Raises ``pl.exceptions.ComputeError`` where it has another form."""
    try:
        rest, taken = _in_pieces(content)
    except pl.exceptions.PolarsError:  # records of another form, or damage
        rest, taken = content, []
    document = pl.read_json(rest, schema={"rocprofiler-sdk-tool": pl.List(_JSON)}).to_series().explode()
    events, devices, hosts = Events(), [], []
    for number, process in enumerate(document.drop_nulls().to_frame("process").unnest("process").iter_slices(1)):
        devices += _read_json(process, taken[number] if taken else {}, events)
        hosts += process.select(pl.col("metadata").struct.field("node").struct.field("hostname")).to_series().to_list()
    header = {"deviceProperties": devices, "host_name": next(filter(None, hosts), None)}
    return classify.TraceDocument(header, events.joined(), events.count, (_note("rocprofv3", "JSON"),), "rocprofv3")


def _in_pieces(content: bytes) -> tuple[bytes, list[dict[str, pl.DataFrame]]]:
    """Parse the records a piece at a time; return the document without them, and those of each process by domain.

    Records hold no lists of objects, so `},{` separates them, and `}]` ends them. Where they hold some, or a text does, a
    piece is no JSON. Raises ``pl.exceptions.ComputeError`` then.
    """
    taken: list[dict[str, pl.DataFrame]] = []
    kept, at = [], 0
    for found in _LISTS.finditer(content):
        if not found[1]:
            taken.append({})
        if not found[1] or not taken or found.start() < at:
            continue
        end, pieces, domain, start = _END.search(content, found.end()), [], found[1].decode(), found.end()
        stop = end.start() + 1 if end else len(content)
        while start < stop:
            after = _NEXT.search(content, start + _PIECE, stop)
            piece = content[start : after.start() + 1 if after else stop]
            pieces.append(pl.read_json(b"[%b]" % piece, schema=_RECORDS[domain]))
            start = after.end() if after else stop
        records = pl.concat(pieces)
        lacking = records.get_column("start_timestamp").null_count()
        if lacking == records.height:  # texts of this domain
            continue
        if lacking or domain in taken[-1]:
            raise pl.exceptions.ComputeError("records of another form")
        taken[-1][domain] = records
        kept.append(content[at : found.end()])
        at = stop
    return b"".join([*kept, content[at:]]), taken


def _read_json(process: pl.DataFrame, taken: Mapping[str, pl.DataFrame], events: Events) -> list[dict[str, object]]:
    """Read the records of one process, some of which were ``taken``, and return the properties of its devices."""
    parts = {name: process.select(name).unnest(name) for name in ("metadata", "strings", "buffer_records")}
    pid = parts["metadata"].get_column("pid").fill_null(0)

    def rows(frame: pl.DataFrame, name: str) -> pl.DataFrame:
        return frame.select(pl.col(name).explode()).drop_nulls().unnest(name)

    names = rows(parts["strings"], "buffer_records").rename({"kind": "category"}).with_row_index("kind")
    operations = (
        names.explode("operations").with_columns(pl.col("kind").cast(pl.Int64))
        .with_columns(operation=pl.int_range(pl.len()).over("kind")).rename({"operations": "name"})
    )  # fmt: skip
    messages = (
        rows(parts["strings"], "marker_api")
        .unique("key", keep="first")
        .rename({"key": "correlation", "value": "message"})
    )
    agents = (
        rows(process, "agents").unnest("id").filter(pl.col("type") == _GPU)
        .select(agent="handle", name="product_name", device=pl.coalesce("logical_node_type_id", pl.int_range(pl.len())).cast(pl.String))
        .unique("agent", keep="first", maintain_order=True)
    )  # fmt: skip

    def records(name: str) -> pl.DataFrame:
        """Return the records of a domain with their place on the host, the name of their operation and their category."""
        found = (taken[name] if name in taken else rows(parts["buffer_records"], name)).rename(
            {"start_timestamp": "start_ns", "end_timestamp": "end_ns", "thread_id": "tid"}
        )
        found = found.with_columns(
            pl.lit(pid.item()).alias("pid"), pl.col("correlation_id").struct.field("internal").alias("correlation")
        )
        return labelled(found, (operations, ["kind", "operation"]))

    def on_device(frame: pl.DataFrame, agent: pl.Expr, stream: pl.Expr) -> pl.DataFrame:
        placed = _numbered(events, frame.drop("kind")).with_columns(stream=stream.cast(pl.Int64, strict=False))
        return _on_device(placed, agents, agent)

    for domain in _CALLS:
        calls = _numbered(events, labelled(records(domain), (messages, "correlation")))
        # Calls that pause or resume recording have no message.
        is_range = pl.lit(domain == "marker_api") & pl.col("message").is_not_null()
        named = pl.when(is_range).then("message").otherwise("name").alias("name")
        kind = pl.lit({"hip_api": "runtime", "hsa_api": "driver"}.get(domain, "other"))
        _add_host(events, calls.drop("kind").with_columns(named, is_range=is_range), kind)
    handle = pl.col("stream_id").struct.field("handle")
    work = records("kernel_dispatch").unnest("dispatch_info")
    sizes = (
        pl.col(size).struct.field(axis[1:]).alias(f"{kind}{axis}")
        for kind, size in (("grid", "grid_size"), ("block", "workgroup_size")) for axis in _AXES
    )  # fmt: skip
    symbols = rows(process, "kernel_symbols").unique("kernel_id", keep="first")
    symbols = symbols.select("kernel_id", kernel=pl.coalesce("formatted_kernel_name", "kernel_name"))
    queue = pl.col("queue_id").struct.field("handle")
    placed = on_device(work, pl.col("agent_id").struct.field("handle"), pl.coalesce(handle, queue))
    kernels = labelled(placed.with_columns(*sizes), (symbols, "kernel_id"))
    _add_kernels(events, kernels.with_columns(name="kernel", shared_memory_bytes="group_segment_size"))
    target = pl.col("dst_agent_id").struct.field("handle")
    to_gpu = target.is_in(agents.get_column("agent").implode())
    agent = pl.when(to_gpu).then(target).otherwise(pl.col("src_agent_id").struct.field("handle"))
    _add_copies(events, on_device(records("memory_copy"), agent, handle))
    return [{"id": row["device"], "name": row["name"]} for row in agents.iter_rows(named=True)]


def rpd_document(database: Database) -> classify.TraceDocument:
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
    return classify.TraceDocument({}, events.joined(), events.count, (_note("rpd"),), "rpd")


def _add_host(events: Events, frame: pl.DataFrame, kind: pl.Expr) -> None:
    """Add calls with their kind, and ranges (``is_range``) as operators and annotations."""
    ids = pl.col("pid", "tid").cast(pl.String)
    events.add_calls(frame.filter(~pl.col("is_range")).with_columns(kind.alias("kind"), ids))
    ranges = frame.filter("is_range")
    marks = nsight.emitted(ranges.get_column("name"))
    events.add_calls(ranges.select("start_ns", "end_ns", ids).hstack(marks))


def _note(profiler: str, form: str = "a database") -> Note:
    message = (
        f"{form} of {profiler}, which holds no Python functions, no types of operators' inputs, no registers; operators are"
        " there if the program ran in torch.autograd.profiler.emit_nvtx"
    )
    return Note("other-profiler", "info", message)
