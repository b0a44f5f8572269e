"""Read exports of Nsight Systems (``nsys export --type sqlite``), whose schema its user guide describes and each file holds.

Versions differ in their tables and columns: whatever is there is read (https://docs.nvidia.com/nsight-systems/UserGuide,
"SQLite Schema Reference"). Times are nanoseconds from the start of the session.
"""

from typing import Any

import polars as pl

from trace_analyzer.errors import Note
from trace_analyzer.ingest.classify import TraceDocument
from trace_analyzer.ingest.databases import Database, Events, labelled, sizes_of

RECORD = "record with `nsys profile --trace=cuda,nvtx,osrt`, and export with `nsys export --type=sqlite`"
"""How a recording that can be analysed is made."""

_ACTIVITY = {
    "start_ns": "start", "end_ns": "end", "number": "deviceId", "context": "contextId", "stream": "streamId",
    "correlation": "correlationId", "process": "globalPid",
}  # fmt: skip
_KERNEL = {
    **_ACTIVITY, "name_id": "demangledName", "short_id": "shortName", "registers_per_thread": "registersPerThread",
    "graph_id": "graphId", "graph_node_id": "graphNodeId", "static_bytes": "staticSharedMemory",
    "dynamic_bytes": "dynamicSharedMemory", **{f"{kind}{axis}": f"{kind}{axis}" for kind in ("grid", "block") for axis in "XYZ"},
}  # fmt: skip
_COPY = {
    **_ACTIVITY, "bytes": "bytes", "copy_kind": "copyKind", "source_kind": "srcKind", "destination_kind": "dstKind",
    "graph_node_id": "graphNodeId",
}  # fmt: skip
_MEMSET = {**_ACTIVITY, "bytes": "bytes", "memory_kind": "memKind", "graph_node_id": "graphNodeId"}
_GRAPH = {**_ACTIVITY, "graph_id": "graphId"}
_SYNC = {**_ACTIVITY, "type": "syncType", "old_type": "deprecatedSyncType", "event": "eventSyncId"}
_CALL = {
    "start_ns": "start", "end_ns": "end", "thread": "globalTid", "correlation": "correlationId", "name_id": "nameId",
    "class": "eventClass",
}  # fmt: skip
_RANGE = {
    "start_ns": "start", "end_ns": "end", "type": "eventType", "thread": "globalTid", "text": "text", "name_id": "textId",
    "domain": "domainId", "payload": "binaryData",
}  # fmt: skip
_ENTRY = {"domain": "domainId", "schema": "schemaId", "field": "name", "offset": "offset"}

_SYNCS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""Kinds of synchronization (cupti_activity.h, CUpti_ActivitySynchronizationType), as Kineto names them."""
_UNIFIED = {11: 1, 12: 2, 13: 8}
"""Migrations of unified memory by the direction of their copy."""
_OVERHEADS = {
    1: "Unknown", 2: "Driver Compiler", 3: "Buffer Flush", 4: "Instrumentation", 5: "Resource", 6: "Runtime Triggered Module Loading",
    7: "Lazy Function Loading", 8: "Command Buffer Full",
}  # fmt: skip
"""Kinds of overhead (cupti_activity.h, CUpti_ActivityOverheadKind), as Kineto names them."""
_RANGES = (59, 60, 70, 71)
"""Types of NVTX events that have an end: push and pop, start and end, and both of imported text files."""
_DRIVER = 1
"""Class of a driver's call; others in the table of the runtime are the runtime's."""
_GPU = {
    "id": "id", "totalGlobalMem": "totalMemory", "computeMajor": "computeMajor", "computeMinor": "computeMinor",
    "numSms": "smCount", "warpSize": "threadsPerWarp", "warps": "maxWarpsPerSm", "regsPerMultiprocessor": "maxRegistersPerSm",
    "sharedMemPerMultiprocessor": "maxShmemPerSm",
}  # fmt: skip

# What `torch.autograd.profiler.emit_nvtx` writes (torch/csrc/profiler/util.cpp, getNvtxStr).
_EMITTED = r"^(?<name>.*?)(?:, seq = (?<seq>\d+))?(?:, op_id = (?<op>\d+))?(?:, sizes = (?<sizes>\[.*?\]))?(?:, input_op_ids = .*)?$"
_OPERATOR = (
    r"^\w+(::\w+)+(\.\w+)?$|^detach_?$|^record_param_comms$|^autograd::engine::evaluate_function: "
    r"|^Torch-Compiled Region|^triton_[a-z]+_"  # `_RecordFunctionFast` in torch/_dynamo/eval_frame.py, torch/_inductor/runtime
)
"""Names of operators; every other range without a sequence number is the program's own."""
_BACKWARD = r"Backward\d*$|^autograd::engine::evaluate_function: |AccumulateGrad$"
_NCCL = r"^nccl[A-Z]\w*$"
_GROUP = {"ncclGroupStart": 1, "ncclGroupEnd": -1}
_FIELDS = {"NCCL communicator ID": pl.UInt64, "Message size [bytes]": pl.UInt64, "No. of ranks": pl.UInt32}
"""What is read of NCCL's payloads (nccl, src/include/nvtx_payload_schemas.h)."""
_SCHEMA_AT, _PAYLOAD_AT = 8, 32
"""Offsets in ``binaryData``: domain, schema, size of the payload and of all precede the payload, 8 bytes each."""
_PER_RANK = ("ncclReduceScatter", "ncclAlltoAll")
"""Calls whose size is that of one rank's part of their input (nccl, src/collectives.cc)."""
_VERSION = r"_v\d+$"
"""Version of the interface that CUPTI appends to names of the runtime's calls."""

# Its demangler writes literals with their type, and spaces, where that of Kineto (the C++ ABI's) does not.
_SPELLINGS = (
    (r"\((?:int|short|char|signed char|unsigned char|unsigned short)\)(-?\d)", "$1"),
    (r"\(unsigned int\)(\d+)", "${1}u"),
    (r"\(long\)(-?\d+)", "${1}l"),
    (r"\(unsigned long\)(\d+)", "${1}ul"),
    (r"\(long long\)(-?\d+)", "${1}ll"),
    (r"\(unsigned long long\)(\d+)", "${1}ull"),
    (r"\(bool\)0", "false"),
    (r"\(bool\)1", "true"),
    (r"<unnamed>", "(anonymous namespace)"),
    (r"\[lambda\(([^()\[\]]*)\) \(instance (\d+)\)\]", "{lambda($1)#$2}"),
    (r" ([*&])", "$1"),
)


def wrote(database: Database) -> bool:
    """Return whether the database is an export of Nsight Systems."""
    return "StringIds" in database.tables and any(
        table.startswith(("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "META_DATA_EXPORT")) for table in database.tables
    )


def document(database: Database) -> TraceDocument:
    """Return the events of an export, with notes on what it lacks."""
    table = database.lookup("StringIds", {"name_id": "id", "name": "value"}, ("name",))
    events, strings = Events(), table.drop_nulls().with_columns(pl.col("name").cast(pl.Categorical))
    _read_calls(database, events, strings)
    named, sized = _read_ranges(database, events, strings)
    graphs = _read_activities(database, events, strings)
    threads = database.all("ThreadNames", {"thread": "globalTid", "name_id": "nameId"})
    events.name_threads(threads.join(strings, on="name_id").select(*_THREAD, pl.col("name").alias("label")))
    facts = dict(database.all("META_DATA_EXPORT", {"name": "name", "value": "value"}, ("name", "value")).iter_rows())
    profiler = f"Nsight Systems {facts.get('EXPORT_PRODUCT_VERSION') or ''}".strip()
    return TraceDocument(
        _header(database), events.joined(), events.count, tuple(_notes(profiler, named, sized, graphs)), profiler
    )


_THREAD = (
    (pl.col("thread") // (1 << 24) % (1 << 24)).cast(pl.String).alias("pid"),
    (pl.col("thread") % (1 << 24)).cast(pl.String).alias("tid"),
)
"""Process and thread in a global id: 8 bits of host, 8 of virtual machine, 24 of process, 24 of thread."""


def _read_calls(database: Database, events: Events, strings: pl.DataFrame) -> None:
    """Read calls of the runtime and the driver, waits in the operating system's library, and what recording took."""
    for block in database.blocks("CUPTI_ACTIVITY_KIND_RUNTIME", _CALL):
        is_driver = pl.col("class") == _DRIVER
        name = pl.col("name").cast(pl.String)
        events.add_calls(
            labelled(block, (strings, "name_id")).with_columns(
                *_THREAD,
                events.numbered(block.get_column("thread") // (1 << 24), block.get_column("correlation")),
                pl.when(is_driver).then(pl.lit("driver")).otherwise(pl.lit("runtime")).alias("kind"),
                pl.when(is_driver).then(name).otherwise(name.str.replace(_VERSION, "")).alias("name"),
            )
        )
    for block in database.blocks("OSRT_API", _CALL):
        lasting = block.filter(pl.col("start_ns") != pl.col("end_ns"))
        events.add_calls(labelled(lasting, (strings, "name_id")).with_columns(*_THREAD, _kind("other")))
    for block in database.blocks("CUPTI_ACTIVITY_KIND_OVERHEAD", _CALL | {"type": "overheadType"}):
        name = pl.col("type").replace_strict(_OVERHEADS, default="Overhead", return_dtype=pl.String)
        events.add_calls(block.with_columns(*_THREAD, _kind("overhead"), name.alias("name")))


def _read_ranges(database: Database, events: Events, strings: pl.DataFrame) -> tuple[int, int]:
    """Read NVTX ranges, and return how many are operators and how many of these have shapes."""
    named, sized, messages = 0, 0, _Messages(database)
    for block in database.blocks("NVTX_EVENTS", _RANGE, ("text",), ("payload",)):
        ranges = labelled(block.filter(pl.col("type").is_in(_RANGES)), (strings, "name_id"))
        marks = emitted(ranges.select(pl.coalesce("text", pl.col("name").cast(pl.String))).to_series())
        named += marks.filter(pl.col("kind") == "operator").height
        sized += marks.height - marks.get_column("input_dims").null_count()
        sent = messages.of(ranges.select("thread", "start_ns", "domain", "payload").hstack(marks.select("name")))
        events.add_calls(ranges.select("start_ns", "end_ns", *_THREAD).hstack(marks).hstack(sent))
        events.skip("marker", block.height - ranges.height)
    return named, sized


class _Messages:
    """Read what NCCL's calls send: the sizes in their payloads, and ranks by the payloads of communicators made before."""

    def __init__(self, database: Database) -> None:
        entries = database.all("NVTX_PAYLOAD_SCHEMA_ENTRIES", _ENTRY, ("field",)).with_columns(
            pl.col("schema") % (1 << 32)
        )
        entries = entries.filter(pl.col("field").is_in(list(_FIELDS)) & pl.col("offset").is_between(0, 1 << 20))
        place = ["domain", "schema"]
        self._offsets = {
            field: entries.filter(field=field).select(*place, "offset").unique(place, keep="first") for field in _FIELDS
        }
        self._ranks = pl.DataFrame(schema={"communicator": pl.UInt64, "group_size": pl.Int64})

    def of(self, ranges: pl.DataFrame) -> pl.DataFrame:
        """Return collective, message_dtype, message_elements and group_size of ranges (thread, start_ns, domain, payload, name).

        The end of a group launches its kernels. It has those of the only collective, or the larger of what all sends and all
        receives move.
        """
        rows = ranges.with_row_index("place").filter(pl.col("name").cast(pl.String).str.starts_with("nccl"))
        rows = rows.with_columns(schema=_number("payload", pl.lit(_SCHEMA_AT), pl.UInt32).cast(pl.Int64))
        for field, dtype in _FIELDS.items():
            rows = labelled(rows, (self._offsets[field], ["domain", "schema"]))
            rows = rows.with_columns(_number("payload", pl.col("offset") + _PAYLOAD_AT, dtype).alias(field)).drop(
                "offset"
            )
        rows = rows.rename(dict(zip(_FIELDS, ("communicator", "size", "group_size"), strict=True)))
        made = rows.select("communicator", pl.col("group_size").cast(pl.Int64)).drop_nulls()
        self._ranks = pl.concat([self._ranks, made]).unique("communicator", keep="last")
        rows = labelled(rows.drop("group_size"), (self._ranks, "communicator"))
        ranks = pl.when(pl.col("name").is_in(_PER_RANK)).then("group_size").otherwise(1)
        change = pl.col("name").replace_strict(_GROUP, default=0, return_dtype=pl.Int64)
        calls = (
            rows.with_columns(bytes=pl.col("size").cast(pl.Int64, strict=False) * ranks, change=change)
            .sort("thread", "start_ns")
            .with_columns(depth=pl.col("change").cum_sum().over("thread"))
            .with_columns(group=((pl.col("change") == 1) & (pl.col("depth") == 1)).cum_sum().over("thread"))
        )
        is_point, is_sent = pl.col("name").is_in(["ncclSend", "ncclRecv"]), pl.col("name") == "ncclSend"
        sizes = pl.col("bytes")
        whole = (
            calls.filter((pl.col("depth") > 0) & pl.col("size").is_not_null())
            .group_by("thread", "group")
            .agg(
                of_all=pl.when(is_point.all()).then(pl.max_horizontal(sizes.filter(is_sent).sum(), sizes.filter(~is_sent).sum()))
                .when(pl.len() == 1).then(sizes.first()).first(),
                only=pl.when(~is_point.any() & (pl.len() == 1)).then(pl.col("name").first()).first(),
                ranks=pl.when(pl.col("communicator").n_unique() == 1).then(pl.col("group_size").first()).first(),
            )
        )  # fmt: skip
        is_end = pl.col("change") == -1
        found = labelled(calls, (whole, ["thread", "group"])).select(
            "place",
            collective=pl.when(is_end).then("only").when(~is_point & pl.col("bytes").is_not_null()).then("name"),
            message_elements=pl.when(is_end).then("of_all").otherwise("bytes"),
            group_size=pl.when(is_end).then("ranks").otherwise("group_size"),
        )
        found = found.with_columns(message_dtype=pl.when(pl.col("message_elements").is_not_null()).then(pl.lit("byte")))
        return labelled(ranges.select(pl.int_range(pl.len(), dtype=pl.UInt32).alias("place")), (found, "place")).drop(
            "place"
        )


def _number(column: str, at: pl.Expr, dtype: type[pl.DataType]) -> pl.Expr:
    """Return the little-endian integer at an offset of a binary column; null where it ends earlier."""
    piece = pl.col(column).bin.slice(at, 4 if dtype == pl.UInt32 else 8)
    return piece.bin.reinterpret(dtype=dtype, endianness="little")


def emitted(texts: pl.Series) -> pl.DataFrame:
    """Return name, kind, sequence_number, forward_thread, external_id, input_dims of ranges, as `emit_nvtx` writes them.

    Other ranges are annotations by their text, except for calls of NCCL.
    """
    frame = texts.fill_null("").alias("text").to_frame()
    name, number = pl.coalesce("name", "text"), pl.col("seq").cast(pl.Int64, strict=False)
    is_operator = pl.col("seq").is_not_null() | name.str.contains(_OPERATOR) | name.str.contains(_NCCL)
    return frame.hstack(frame.select(pl.col("text").str.extract_groups(_EMITTED).struct.unnest())).select(
        name.alias("name"),
        pl.when(is_operator).then(pl.lit("operator")).otherwise(pl.lit("annotation")).alias("kind"),
        number.alias("sequence_number"),
        # A range names no thread: 1 says that it is of the backward pass.
        pl.when(number.is_not_null()).then(name.str.contains(_BACKWARD).cast(pl.Int64)).alias("forward_thread"),
        pl.col("op").cast(pl.Int64, strict=False).alias("external_id"),
        pl.col("sizes").alias("input_dims"),
    )


class _Places:
    """Name the device, the stream and the process of activities.

    A device is the GPU that its process sees under its number; where that is unknown, processes may mean several GPUs by
    one number, and `build` tells them apart by the process on their track.
    """

    def __init__(self, database: Database, events: Events) -> None:
        gpus = database.all("TARGET_INFO_CUDA_DEVICE", {"gpu": "gpuId", "number": "cudaId", "pid": "pid"})
        self._gpus = gpus.drop_nulls().unique(["number", "pid"], keep="first")
        self._events = events
        self._used = pl.DataFrame(schema={"context": pl.Int64, "used": pl.Int64})

    def of_work(self, block: pl.DataFrame) -> pl.DataFrame:
        """Return the block with pid, tid, device, and with ids that no other process has."""
        block = self._of_process(block)
        used = block.select("context", pl.col("number").alias("used")).unique()
        self._used = pl.concat([self._used, used]).unique("context", keep="first")
        return self._named(block)

    def of_waits(self, block: pl.DataFrame) -> pl.DataFrame:
        """Return the same for synchronizations, whose device is that of their context: many files write 0."""
        block = labelled(self._of_process(block), (self._used, "context"))
        no_stream = pl.col("stream") == (1 << 32) - 1
        return self._named(
            block.with_columns(
                pl.coalesce("used", "number").alias("number"), pl.when(no_stream).then(-1).otherwise("stream").alias("stream")
            )
        )  # fmt: skip

    def _of_process(self, block: pl.DataFrame) -> pl.DataFrame:
        process = block.get_column("process") // (1 << 24)
        ids = (self._events.numbered(process, block.get_column(name)) for name in ("correlation", "context"))
        return block.with_columns((process % (1 << 24)).alias("pid"), *ids)

    def _named(self, block: pl.DataFrame) -> pl.DataFrame:
        block = labelled(block, (self._gpus, ["pid", "number"]))
        device = pl.coalesce("gpu", "number").cast(pl.String)
        is_known = pl.col("gpu").is_not_null() | (self._events.processes < 2)
        track = pl.when(is_known).then(device).otherwise(pl.col("pid").cast(pl.String))
        return block.with_columns(
            device.alias("device"), track.alias("pid"), pl.col("stream").cast(pl.String).alias("tid")
        )


def _read_activities(database: Database, events: Events, strings: pl.DataFrame) -> int:
    """Read kernels, copies, memsets and synchronizations, and return how many graphs are recorded as a whole."""
    places = _Places(database, events)
    names = strings.with_columns(_spelled(strings.get_column("name")))
    short = names.rename({"name_id": "short_id", "name": "short"})
    for block in database.blocks("CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL):
        shared = pl.col("static_bytes") + pl.col("dynamic_bytes")
        named = labelled(block, (names, "name_id"), (short, "short_id"))
        events.add_activities(
            places.of_work(named).with_columns(
                _kind("kernel"), pl.coalesce("name", "short"), shared.alias("shared_memory_bytes"), *sizes_of("XYZ")
            )
        )
    kinds = pl.col("^(source|destination|memory)_kind$").add(1).mod(8)  # The enumeration of memory begins elsewhere.
    for block in database.blocks("CUPTI_ACTIVITY_KIND_MEMCPY", _COPY):
        copies = places.of_work(block).with_columns(kinds, pl.col("copy_kind").replace(_UNIFIED))
        events.add_activities(copies.with_columns(_kind("memcpy"), pl.lit("Memcpy").alias("name")))
    for block in database.blocks("CUPTI_ACTIVITY_KIND_MEMSET", _MEMSET):
        memsets = places.of_work(block).with_columns(kinds)
        events.add_activities(memsets.with_columns(_kind("memset"), pl.lit("Memset").alias("name")))
    graphs = 0
    for block in database.blocks("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", _GRAPH):
        name = pl.format("CUDA graph {}", pl.col("graph_id").fill_null(0))
        events.add_activities(places.of_work(block).with_columns(_kind("kernel"), name.alias("name")))
        graphs += block.height
    recorded = database.all("CUPTI_ACTIVITY_KIND_CUDA_EVENT", {"event": "eventSyncId", "wait_on_stream": "streamId"})
    recorded = recorded.filter(~pl.col("event").is_in([0, (1 << 32) - 1])).unique("event", keep="none")
    for block in database.blocks("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", _SYNC):
        kind = pl.coalesce("type", "old_type")
        waits = labelled(places.of_waits(block), (recorded, "event"))
        events.add_waits(
            waits.with_columns(
                _kind("sync"), kind.replace_strict(_SYNCS, default="Sync", return_dtype=pl.String).alias("name"),
                pl.when(kind == 2).then("wait_on_stream").alias("wait_on_stream"),
            )
        )  # fmt: skip
    return graphs


def _kind(kind: str) -> pl.Expr:
    return pl.lit(kind).alias("kind")


def _spelled(names: pl.Series) -> pl.Series:
    """Return names of kernels as Kineto spells them."""
    for pattern, spelling in _SPELLINGS:
        names = names.cast(pl.String).str.replace_all(pattern, spelling)
    return names.cast(pl.Categorical)


def _header(database: Database) -> dict[str, Any]:
    """Return the header that `ingest.trace.header_of` reads, from what the file says of GPUs, host and start."""
    gpus = database.all("TARGET_INFO_GPU", {**_GPU, "name": "name"}, ("name",)).with_columns(
        (pl.col("warps") * pl.col("warpSize")).alias("maxThreadsPerMultiprocessor")
    )
    start = database.all("TARGET_INFO_SESSION_START_TIME", {"ns": "utcEpochNs"}).get_column("ns").drop_nulls()
    system = database.all("TARGET_INFO_SYSTEM_ENV", {"name": "name", "value": "value"}, ("name", "value"))
    return {
        "deviceProperties": gpus.to_dicts(),
        "baseTimeNanoseconds": start.first(),
        "host_name": dict(system.iter_rows()).get("Hostname"),
    }


def _notes(profiler: str, named: int, sized: int, graphs: int) -> list[Note]:
    """Say what an export lacks, and how a recording gets it."""
    lacks = ["Python functions", "types of operators' inputs", "memory events"]
    if not named:
        lacks = ["operators (run the program in torch.autograd.profiler.emit_nvtx(record_shapes=True))", *lacks]
    elif not sized:
        lacks = ["shapes (emit_nvtx(record_shapes=True) writes them)", *lacks]
    notes = [Note("other-profiler", "info", f"an export of {profiler}, which holds no {', no '.join(lacks)}")]
    if graphs:
        message = "graphs are recorded as a whole, so that their kernels are unknown; `nsys profile --cuda-graph-trace=node` records them"
        notes.append(Note("whole-graphs", "warning", message, graphs))
    return notes
