"""Files of ROCm's profilers, as their schemas describe them."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from trace_analyzer.errors import InputError
from trace_analyzer.ingest import Trace, load, rocm

MARK = "aten::mm, seq = 3, op_id = 8, sizes = [[2, 4], []]"
_STRINGS = [
    "", "hipLaunchKernel", "hipMemcpyAsync", "HIP_RUNTIME_API", "MARKER_CORE_RANGE_API",
    "MEMORY_COPY_HOST_TO_DEVICE", "roctxRangePush",
]  # fmt: skip
ROCPD = f"""
CREATE TABLE rocpd_string_u1 (id, string);
CREATE TABLE rocpd_info_process_u1 (id, pid); INSERT INTO rocpd_info_process_u1 VALUES (1, 77);
CREATE TABLE rocpd_info_thread_u1 (id, tid, name); INSERT INTO rocpd_info_thread_u1 VALUES (4, 78, 'python');
CREATE TABLE rocpd_info_agent_u1 (id, type, type_index, product_name);
INSERT INTO rocpd_info_agent_u1 VALUES (1, 'CPU', 0, 'EPYC'), (2, 'GPU', 0, 'AMD Instinct MI300X');
CREATE TABLE rocpd_info_kernel_symbol_u1 (id, kernel_name, display_name);
INSERT INTO rocpd_info_kernel_symbol_u1 VALUES (9, '_Z1fv.kd', 'f()');
CREATE TABLE rocpd_event_u1 (id, category_id, stack_id, extdata);
INSERT INTO rocpd_event_u1 VALUES (1, 3, 5, '{{}}'), (2, 3, 6, '{{}}'), (3, 4, 4, '{{"message":"{MARK}"}}'), (4, 3, 5, '{{}}'), (5, 3, 6, '{{}}');
CREATE TABLE rocpd_region_u1 (id, pid, tid, start, "end", name_id, event_id);
INSERT INTO rocpd_region_u1 VALUES (1, 1, 4, 100, 110, 1, 1), (2, 1, 4, 200, 210, 2, 2), (3, 1, 4, 90, 220, 6, 3);
CREATE TABLE rocpd_kernel_dispatch_u1 (id, pid, agent_id, kernel_id, stream_id, start, "end", group_segment_size, workgroup_size_x,
 workgroup_size_y, workgroup_size_z, grid_size_x, grid_size_y, grid_size_z, event_id);
INSERT INTO rocpd_kernel_dispatch_u1 VALUES (1, 1, 2, 9, 3, 120, 150, 64, 256, 1, 1, 1000, 1, 1, 4);
CREATE TABLE rocpd_memory_copy_u1 (id, pid, start, "end", name_id, dst_agent_id, src_agent_id, size, stream_id, event_id);
INSERT INTO rocpd_memory_copy_u1 VALUES (1, 1, 220, 260, 5, 2, 1, 4096, 3, 5);
"""
_RPD_STRINGS = ["", "hipLaunchKernel", "hipMemcpyAsync", "UserMarker", "KernelExecution", "CopyHostToDevice", "f()"]
RPD = f"""
CREATE TABLE rocpd_string (id, string); CREATE TABLE rocpd_ustring (id, string);
INSERT INTO rocpd_ustring VALUES (0, ''), (1, '{MARK}');
CREATE TABLE rocpd_api (id, pid, tid, start, "end", apiName_id, args_id);
INSERT INTO rocpd_api VALUES (5, 77, 78, 100, 110, 1, 0), (6, 77, 78, 200, 210, 2, 0), (7, 77, 78, 90, 220, 3, 1);
CREATE TABLE rocpd_op (id, gpuId, queueId, start, "end", description_id, opType_id);
INSERT INTO rocpd_op VALUES (1, 0, 3, 120, 150, 6, 4), (2, 0, 3, 220, 260, 0, 5);
CREATE TABLE rocpd_api_ops (id, api_id, op_id); INSERT INTO rocpd_api_ops VALUES (1, 5, 1), (2, 6, 2);
"""


def record(kind: int, operation: int, start: int, end: int, correlation: int, **more: object) -> dict[str, object]:
    """Return a record of rocprofv3's JSON."""
    ids = {"correlation_id": {"internal": correlation, "external": 0}, "thread_id": 78}
    return {"kind": kind, "operation": operation, "start_timestamp": start, "end_timestamp": end, **ids, **more}


HOST, GPU, STREAM = {"handle": 1}, {"handle": (1 << 63) + 2}, {"handle": 3}
_KINDS = [
    ("NONE", []), ("HIP_RUNTIME_API", ["hipLaunchKernel", "hipMemcpyAsync"]), ("MARKER_CORE_RANGE_API", ["roctxThreadRangeA"]),
    ("KERNEL_DISPATCH", ["NONE", "COMPLETE"]), ("MEMORY_COPY", ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]),
]  # fmt: skip
DISPATCH = {
    "agent_id": GPU, "queue_id": STREAM, "kernel_id": 9, "group_segment_size": 64,
    "workgroup_size": {"x": 256, "y": 1, "z": 1}, "grid_size": {"x": 1000, "y": 1, "z": 1},
}  # fmt: skip
JSON = json.dumps({"rocprofiler-sdk-tool": [{
    "metadata": {"pid": 77},
    "agents": [
        {"id": HOST, "type": 1, "logical_node_type_id": 0, "product_name": "EPYC"},
        {"id": GPU, "type": 2, "logical_node_type_id": 0, "product_name": "AMD Instinct MI300X"},
    ],
    "kernel_symbols": [{"kernel_id": 9, "kernel_name": "_Z1fv.kd", "formatted_kernel_name": "f()"}],
    "strings": {
        "buffer_records": [{"kind": kind, "operations": operations} for kind, operations in _KINDS],
        "marker_api": [{"key": 4, "value": MARK}],
    },
    "buffer_records": {
        "hip_api": [record(1, 0, 100, 110, 5), record(1, 1, 200, 210, 6)],
        "marker_api": [record(2, 0, 90, 220, 4)],
        "kernel_dispatch": [record(3, 1, 120, 150, 5, dispatch_info=DISPATCH)],
        "memory_copy": [record(4, 1, 220, 260, 6, stream_id=STREAM, src_agent_id=HOST, dst_agent_id=GPU, bytes=4096)],
    },
}]})  # fmt: skip


def written(script: str, table: str, strings: list[str], path: Path) -> Trace:
    """Return the trace of a database with these texts, or of JSON."""
    if not table:
        return load(script.encode())
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)
        database.executemany(f'INSERT INTO "{table}" VALUES (?, ?)', enumerate(strings))
        database.commit()
    return load(path)


@pytest.mark.parametrize(
    ("script", "table", "strings"),
    [(ROCPD, "rocpd_string_u1", _STRINGS), (RPD, "rocpd_string", _RPD_STRINGS), (JSON, "", [])],
)
def test_calls_work_and_ranges_are_those_of_the_database(
    script: str, table: str, strings: list[str], tmp_path: Path
) -> None:
    trace = written(script, table, strings, tmp_path / "a.db")
    host = trace.host_events.select("kind", "name", "start_ns", "duration_ns", "correlation", "sequence_number")
    assert [tuple(map(str, row)) for row in host.rows()] == [
        ("operator", "aten::mm", "0", "130", "None", "3"),
        ("runtime", "hipLaunchKernel", "10", "10", "5", "None"),
        ("runtime", "hipMemcpyAsync", "110", "10", "6", "None"),
    ]
    work = trace.device_events.select("kind", "name", "device", "stream", "start_ns", "duration_ns", "correlation")
    assert [tuple(map(str, row)) for row in work.rows()] == [
        ("kernel", "f()", "0", "3", "30", "30", "5"),
        ("memcpy", "CopyHostToDevice", "0", "3", "130", "40", "6"),
    ]


@pytest.mark.parametrize(("script", "table", "strings"), [(ROCPD, "rocpd_string_u1", _STRINGS), (JSON, "", [])])
def test_rocprofv3_names_devices_and_counts_blocks(script: str, table: str, strings: list[str], tmp_path: Path) -> None:
    trace = written(script, table, strings, tmp_path / "a.db")
    assert trace.devices.rows() == [(0, "0", "AMD Instinct MI300X")]
    assert trace.device_events.select("blocks", "threads_per_block", "shared_memory_bytes", "bytes").rows() == [
        (4, 256, 64, None), (None, None, None, 4096),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (JSON[:-9], "is JSON of rocprofv3 that is damaged"),
        (JSON.replace("78", '"x"'), "is JSON of rocprofv3 that is damaged or of another form"),
        (JSON[:25] + "[" * 100_000, "is JSON of rocprofv3 that is damaged"),
        ('{"rocprofiler-sdk-tool": [null, {}]}', "holds no events"),
    ],
)
def test_other_json_of_rocprofv3_is_one_line(content: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        load(content.encode())
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def processes(*changed: dict[str, object], strings_last: bool = False) -> bytes:
    """Return a document of a process for each change of its first record, and of one without."""
    made = []
    for number, change in enumerate((*changed, {})):
        (process,) = json.loads(JSON)["rocprofiler-sdk-tool"]
        process["metadata"]["pid"] += number
        process["buffer_records"]["hip_api"][0].update(change)
        if strings_last:
            process["strings"] = process.pop("strings")
        made.append(process)
    return json.dumps({"rocprofiler-sdk-tool": made}).encode()


@pytest.mark.parametrize(
    ("content", "is_in_pieces"),
    [
        (processes(), True),
        (processes({}, {"size": 9}), True),
        (processes({"args": [{"a": 1}, {"b": 2}]}), False),
        (processes({"args": "},{ }]"}), False),
        (processes(strings_last=True), True),
    ],
    ids=["one", "three", "nested lists", "text", "strings last"],
)
def test_records_in_pieces_are_those_of_the_whole(
    content: bytes, is_in_pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocm, "_PIECE", 1)
    taken: list[object] = []
    in_pieces = rocm._in_pieces

    def whole(_: bytes) -> None:
        raise pl.exceptions.ComputeError("")

    def watched(given: bytes) -> object:
        taken.append(in_pieces(given))
        return taken[-1]

    monkeypatch.setattr(rocm, "_in_pieces", watched)
    pieces = load(content)
    monkeypatch.setattr(rocm, "_in_pieces", whole)
    at_once = load(content)
    for name in ("host_events", "device_events", "threads", "devices"):
        assert_frame_equal(getattr(pieces, name), getattr(at_once, name))
    assert bool(taken) == is_in_pieces
