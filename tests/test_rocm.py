"""Databases of ROCm's profilers, as their schemas describe them."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from trace_analyzer.ingest import Trace, load

MARK = "aten::mm, seq = 3, op_id = 8, sizes = [[2, 4], []]"
_STRINGS = [
    "",
    "hipLaunchKernel",
    "hipMemcpyAsync",
    "HIP_RUNTIME_API",
    "MARKER_CORE_RANGE_API",
    "MEMORY_COPY_HOST_TO_DEVICE",
    "roctxRangePush",
]
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


def written(script: str, table: str, strings: list[str], path: Path) -> Trace:
    """Return the trace of a database with these texts."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)
        database.executemany(f'INSERT INTO "{table}" VALUES (?, ?)', enumerate(strings))
        database.commit()
    return load(path)


@pytest.mark.parametrize(
    ("script", "table", "strings"), [(ROCPD, "rocpd_string_u1", _STRINGS), (RPD, "rocpd_string", _RPD_STRINGS)]
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


def test_rocpd_names_devices_and_counts_blocks(tmp_path: Path) -> None:
    trace = written(ROCPD, "rocpd_string_u1", _STRINGS, tmp_path / "a.db")
    assert trace.devices.rows() == [(0, "0", "AMD Instinct MI300X")]
    assert trace.device_events.select("blocks", "threads_per_block", "shared_memory_bytes", "bytes").rows() == [
        (4, 256, 64, None), (None, None, None, 4096),
    ]  # fmt: skip
