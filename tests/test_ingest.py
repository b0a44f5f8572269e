"""Ingest: categories, encodings, broken files, and that every event is in a table or counted."""

import bz2
import gzip
import io
import itertools
import json
import os
import re
from pathlib import Path
from threading import Thread
from typing import Any

import kineto
import pytest
import zstandard
from generator import RandomTrace, random_traces
from hypothesis import given, settings, strategies as st
from kineto import A100, Event, event, flow, kernel, launched, loaded, notes, op, python, rows, sync, trace_bytes
from reference import accounted
from tiers import examples

from trace_analyzer.errors import InputError, InputTooLarge, NotATrace
from trace_analyzer.ingest import Trace, build, load, source
from trace_analyzer.ingest.trace import ProcessGroup, versions_of

KERNEL = kernel("k", 10, 5, correlation=1)
PAIR = launched("k", 1, 10, 5, 1)


def kinds(trace: Trace) -> dict[str, str]:
    tables = (trace.host_events, trace.device_events)
    return {name: kind for table in tables for name, kind in table.select("name", "kind").iter_rows()}


@pytest.mark.parametrize("number", [7, 2**31 - 1, 2**31, -(2**40)])
def test_ids_of_any_width_are_kept(number: int) -> None:
    trace = loaded(op("a", 1, 9, **{"Sequence number": 0}), op("b", 2, 3, **{"Sequence number": number}))
    assert trace.host_events.get_column("sequence_number").to_list() == [0, number]


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("cpu_op", "operator"), ("Operator", "operator"), ("user_annotation", "annotation"),
        ("python_function", "python"), ("cuda_runtime", "runtime"), ("Runtime", "runtime"), ("xpu_runtime", "runtime"),
        ("cuda_driver", "driver"), ("overhead", "overhead"), ("kernel", "kernel"), ("Kernel", "kernel"),
        ("gpu_memcpy", "memcpy"), ("Memcpy", "memcpy"), ("gpu_memset", "memset"), ("Memset", "memset"),
        ("something_new", "other"),
    ],
)  # fmt: skip
def test_categories_of_all_versions(category: str, kind: str) -> None:
    assert kinds(loaded(event(category, "e", 1, 2, pid=1, tid=2))) == {"e": kind}


@pytest.mark.parametrize("category", ["cuda_event", "cuda_profiler_range", "mtia_ccp_events"])
def test_rows_of_no_use_are_counted(category: str) -> None:
    trace = loaded(KERNEL, event(category, "e", 1, 2, pid=0, tid=7, stream=7))
    assert kinds(trace) == {"k": "kernel"}
    assert sum(notes(trace).values()) == 1
    is_accelerator = category.startswith("mtia")
    assert (dict(trace.unsupported), "unsupported" in notes(trace)) == (
        {category: 1} if is_accelerator else {},
        is_accelerator,
    )


def test_synchronizations_and_annotations_on_device_tracks_have_their_own_tables() -> None:
    marks = (event("gpu_user_annotation", name, at, 2, pid=0, tid=7) for name, at in (("step", 9), ("forward", 3)))
    trace = loaded(KERNEL, *marks, sync("Stream Wait Event", 3, 2, wait_on_stream=20))
    assert kinds(trace) == {"k": "kernel"}
    assert notes(trace) == {}
    assert rows(trace.device_annotations, "name", "device", "stream", "start_ns", "duration_ns") == [
        ("forward", 0, 7, 0, 2), ("step", 0, 7, 6, 2),
    ]  # fmt: skip
    columns = ("name", "device", "stream", "start_ns", "wait_on_stream")
    assert rows(trace.sync_events, *columns) == [("Stream Wait Event", 0, 7, 0, 20)]


def test_times_count_from_the_first_event() -> None:
    trace = loaded(op("aten::mm", 1_000.5, 9), kernel("k", 1_001.25, 5.001) | {"ts": "1001.25", "dur": "5.001"})
    assert (trace.origin_ns, trace.duration_ns) == (1_000_500, 9_000)
    assert trace.host_events.select("start_ns", "duration_ns").rows() == [(0, 9_000)]
    assert trace.device_events.select("start_ns", "duration_ns").rows() == [(750, 5_001)]


def test_threads_are_pairs_of_pid_and_tid_as_text() -> None:
    name = {"ph": "M", "name": "thread_name", "pid": "p", "tid": "main", "args": {"name": "worker"}}
    trace = loaded(
        op("a", 1, 1, pid=5, tid="x"), op("b", 2, 1, pid="5", tid="x"), op("c", 3, 1, pid="p", tid="main"), name
    )
    assert trace.threads.rows() == [(0, 0, "5", "x", None), (1, 1, "p", "main", "worker")]
    assert trace.host_events.get_column("thread_id").to_list() == [0, 0, 1]


def test_missing_and_negative_durations() -> None:
    none = {key: value for key, value in KERNEL.items() if key != "dur"} | {"name": "none"}
    trace = loaded(KERNEL, none, KERNEL | {"name": "back", "dur": -1})
    assert rows(trace.device_events, "name", "duration_ns") == [("none", 0), ("k", 5)], "the shorter first"
    assert notes(trace) == {"no-duration": 1, "negative-duration": 1}


@pytest.mark.parametrize("ts", [4e15, -4e15, 10**15])
def test_absurd_times_are_left_out(ts: float) -> None:
    trace = loaded(KERNEL, KERNEL, KERNEL | {"ts": ts})
    assert (trace.device_events.height, notes(trace)) == (2, {"implausible-time": 1})
    assert trace.duration_ns == 5_000


@pytest.mark.parametrize("ts", [None, "", "soon", "NaN", [1], {"us": 1}])
def test_events_without_time_are_left_out(ts: object) -> None:
    trace = loaded(KERNEL, KERNEL | {"ts": ts})
    assert (trace.device_events.height, notes(trace)) == (1, {"no-time": 1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"ts":Infinity', {"no-time": 1}),
        ('"ts":NaN', {"no-time": 1}),
        ('"ts":12,"dur":NaN', {"no-duration": 1}),
        ('"ts":12,"dur":Infinity', {"no-duration": 1}),
        ('"ts":12,"dur":1,"args":{"est. achieved occupancy %":NaN,"blocks per SM":Infinity}', {}),
        ('"ts":12,"dur":1,"args":{"est. achieved occupancy %":0}', {}),
    ],
)
def test_numbers_that_json_or_a_kernel_does_not_have(text: str, expected: dict[str, int]) -> None:
    odd = b',{"ph":"X","cat":"kernel","name":"odd","pid":0,"tid":7,' + text.encode() + b"}]}"
    trace = load(trace_bytes([KERNEL])[:-2] + odd)
    assert notes(trace) == expected
    assert trace.device_events.get_column("occupancy_percent").to_list() == [None] * trace.device_events.height


def test_begin_and_end_events_become_spans() -> None:
    edges = "B outer 1 1, B inner 2 1, E - 4 1, E - 9 1, B next 9 1, E - 11 1, B elsewhere 3 2, E - 5 2, E stray 20 1"
    fields = (dict(zip(("ph", "name", "ts", "tid"), edge.split(), strict=True)) for edge in edges.split(", "))
    opened = {"ph": "B", "cat": "cpu_op", "name": "open", "pid": 1, "tid": 1, "ts": 21}
    trace = loaded(*({"cat": "cpu_op", "pid": 1} | edge for edge in fields), opened)
    assert rows(trace.host_events, "name", "start_ns", "duration_ns") == [
        ("outer", 0, 8), ("inner", 1, 2), ("next", 8, 2), ("elsewhere", 2, 2)
    ]  # fmt: skip
    assert notes(trace) == {"unmatched": 2}


@pytest.mark.parametrize(
    ("ids", "devices"),
    [
        (["3", 3], [(3, "3", None)]),
        (["01", 1], [(1, "1", None), (2, "01", None)]),
        ([7, "gpu", None], [(0, "0", "NVIDIA A100-SXM4-80GB"), (7, "7", None), (8, "gpu", None)]),
        (["b", "a"], [(0, "a", None), (1, "b", None)]),
        ([-1, 10**30], [(-1, "-1", None), (0, "1" + "0" * 30, None)]),
    ],
)
def test_device_ids_of_any_kind(ids: list[Any], devices: list[tuple[Any, ...]]) -> None:
    other = A100 | {"id": 9, "name": "other"}
    trace = loaded(
        *(kernel("k", t, 1, device=device) | {"pid": 0} for t, device in enumerate(ids)), deviceProperties=[A100, other]
    )
    assert trace.devices.rows() == devices
    assert set(trace.device_events.get_column("device")) == {code for code, _, _ in devices}


@pytest.mark.parametrize(("twin", "name"), [({}, A100["name"]), ({"name": "x"}, None)])
def test_an_unknown_device_takes_properties_that_all_entries_share(twin: dict[str, str], name: str | None) -> None:
    trace = loaded(kernel("k", 1, 1, device=5), deviceProperties=[A100, A100 | {"id": 1} | twin])
    assert trace.devices.rows() == [(5, "5", name)]


@pytest.mark.parametrize(
    "header",
    [
        {"deviceProperties": {"0": A100}}, {"deviceProperties": [1, None, [], {}]}, {"deviceProperties": None},
        {"deviceProperties": [{"id": None, "name": 5, "numSms": "many", "totalGlobalMem": 1e300, "computeMajor": [8]}]},
        {"distributedInfo": [0]}, {"distributedInfo": {"rank": "first", "world_size": {}}}, {"baseTimeNanoseconds": "dawn"},
        {"schemaVersion": None, "displayTimeUnit": "h"}, {"deviceProperties": [{"id": "\ud800"}, {"name": "\ud800"}]},
    ],
)  # fmt: skip
def test_a_malformed_header_is_missing(header: dict[str, Any]) -> None:
    trace = loaded(KERNEL, **header)
    assert trace.device_events.height == 1
    assert (trace.header.rank, trace.header.world_size, trace.header.base_time_ns) == (None, None, None)
    assert all(entry.sm_count is None for entry in trace.header.devices)


def test_the_header_names_the_host_the_device_and_the_process_groups() -> None:
    groups = [
        {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 4, "ranks": [0, 1, 2, 3]},
        {"pg_name": 7, "ranks": [0, "x"]}, {"pg_desc": "nameless"}, 5,
    ]  # fmt: skip
    job = {"rank": 3, "world_size": 16, "pg_config": groups}
    more = {"host_name": "node-3", "baseTimeNanoseconds": 1_700_000_000_000_000_001, "deviceProperties": [A100]}
    header = loaded(KERNEL, distributedInfo=job, **more).header
    assert (header.rank, header.world_size, header.base_time_ns) == (3, 16, "1700000000000000001")
    assert header.host_name == "node-3"
    assert header.process_groups == (
        ProcessGroup("0", "default_pg", "cuda:nccl", 4, (0, 1, 2, 3)),
        ProcessGroup("7", None, None, None, ()),
    )
    (device,) = header.devices
    assert (device.index, device.name, device.sm_count, device.compute_capability) == ("0", A100["name"], 108, "8.0")
    assert loaded(KERNEL, host_name=["a"], distributedInfo={"pg_config": {"0": 1}}).header.process_groups == ()


def test_process_groups_of_collectives_are_read_by_both_readers() -> None:
    args = {
        "Collective name": "alltoallv", "In msg nelems": 8, "Out msg nelems": 6, "Group size": 2, "dtype": "Float",
        "In split size": "[4, 4]", "Out split size": [2, 4], "Process Group Name": "7", "Process Group Description": "ep",
        "Process Group Ranks": "[0, 4]", "Global rank start": 0, "Global rank stride": 4, "Seq": 41,
        "Comms Id": 2**64 - 1, "Src Rank": 0, "Dst Rank": 4,
    }  # fmt: skip
    events = [op("record_param_comms", 10 * n, 5, **args) for n in range(3_000)]
    small, large = (loaded(KERNEL, *some).operator_inputs.row(0, named=True) for some in (events[:1], events))
    expected = {
        "collective": "alltoallv", "message_elements": 8, "output_elements": 6, "group_size": 2, "message_dtype": "Float",
        "input_splits": "[4, 4]", "output_splits": "[2, 4]", "process_group": "7", "process_group_description": "ep",
        "process_group_ranks": "[0, 4]", "global_rank_start": 0, "global_rank_stride": 4, "collective_seq": 41,
        "comms_id": str(2**64 - 1), "source_rank": 0, "destination_rank": 4,
    }  # fmt: skip
    assert {key: small[key] for key in expected} == expected == {key: large[key] for key in expected}


@pytest.mark.parametrize(
    ("grid", "blocks"),
    [
        ([2, 3, 4], 24), ([7], 7), ("2", 2), (None, None), ([0, 1, 1], 0), ([10**12, 10**12], None),
        ("x", None), ([], None),
    ],
)  # fmt: skip
def test_blocks_of_a_grid(grid: object, blocks: int | None) -> None:
    trace = loaded(kernel("k", 1, 1, grid=grid))
    assert trace.device_events.get_column("blocks").to_list() == [blocks]


@pytest.mark.parametrize("value", ["x", 1.5, 10**30, None, [], {}])
def test_numbers_that_are_none_are_missing(value: object) -> None:
    odd = event("gpu_memcpy", "c", 1, 1, pid=0, tid=7, stream=value, bytes=value, correlation=value, context=value)
    columns = ["stream", "bytes", "correlation", "context"]
    assert loaded(odd).device_events.select(columns).rows() == [(None,) * 4]


MEMORY = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 4,
          "args": {"Device Type": 1, "Device Id": 0, "Addr": 64, "Bytes": -512, "Total Allocated": 1024, "Total Reserved": 2048}}  # fmt: skip


def test_flows_and_memory() -> None:
    trace = loaded(*PAIR, flow(1, *PAIR), MEMORY)
    columns = ("flow_id", "kind", "is_start", "time_ns")
    assert rows(trace.flows, *columns) == [("1", "launch", True, 0), ("1", "launch", False, 9)]
    assert trace.memory_events.drop("thread_id").rows() == [(3_000, 1, 0, 64, -512, 1024, 2048)]


@pytest.mark.parametrize(
    "first", [MEMORY, {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1}], ids=["memory", "flow"]
)
def test_time_is_zero_at_the_first_event_of_any_table(first: dict[str, object]) -> None:
    trace = loaded(*PAIR, first | {"ts": 0.5})
    held = trace.memory_events if first is MEMORY else trace.flows
    assert (held.item(0, "time_ns"), trace.host_events.item(0, "start_ns")) == (0, 500)
    assert (trace.origin_ns, trace.duration_ns) == (500, loaded(*PAIR).duration_ns + 500)


def test_host_events_are_in_order_of_nesting() -> None:
    trace = loaded(
        kineto.call("cudaMalloc", 1, 5),
        op("inner", 1, 5),
        op("outer", 1, 9),
        python("frame", 1, 9),
        kineto.annotation("all", 1, 9),
    )
    assert trace.host_events.get_column("name").to_list() == ["all", "frame", "outer", "inner", "cudaMalloc"]


def two_members(content: bytes) -> bytes:
    return gzip.compress(content[:50]) + gzip.compress(content[50:])


def two_frames(content: bytes) -> bytes:
    return zstandard.compress(content[:50]) + zstandard.compress(content[50:])


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace.zst", "trace"])
@pytest.mark.parametrize("packed", [bytes, gzip.compress, two_members, zstandard.compress, two_frames])
def test_compression_is_known_by_content_not_name(tmp_path: Path, name: str, packed: Any) -> None:
    path = tmp_path / name
    path.write_bytes(packed(trace_bytes([PAIR])))
    trace = load(path)
    assert (trace.event_count, trace.notes, trace.path) == (2, (), str(path))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (lambda c: b"\xef\xbb\xbf" + c, {}),
        (lambda c: c.replace(b", ", b",\r\n\t "), {}),
        (lambda c: b"\n " + c + b"\r\n", {}),
        (lambda c: c + b"\0\0", {"trailing-garbage": 1}),
        (lambda c: c[:-2] + b",]}", {}),
        (lambda c: c.replace(b'"k"', b'"k\xff"'), {"invalid-utf8": 1}),
        (lambda c: c.replace(b'"k"', b'"k\xed\xa0\x80"'), {"invalid-utf8": 3}),
        (lambda c: c.replace(b'"k"', rb'"k\ud800"'), {}),
        (lambda c: c[:-2] + b',1,null,"x",[{}]]}', {"not-an-event": 4}),
        (lambda c: c.replace(b'"schemaVersion": 1', b'"schemaVersion": 1, "schemaVersion": 2'), {}),
        (lambda c: c.replace(b'"name": "k"', b'"name": "first", "name": "k"'), {}),
        (lambda c: gzip.compress(c) + b"junk", {"trailing-garbage": 1}),
        (lambda c: c.replace(b'"stream": 7', b'"stream": 7.0'), {}),
    ],
    ids=["BOM", "CRLF", "blanks", "NUL", "comma", "bad byte", "surrogate bytes", "surrogate escape", "no objects", "twice",
         "name twice", "after gzip", "an integer with a point"],
)  # fmt: skip
def test_odd_files_are_read_whole(changed: Any, expected: dict[str, int]) -> None:
    trace = load(changed(trace_bytes([PAIR])))
    assert notes(trace) == expected
    assert trace.host_events.height == trace.device_events.height == 1
    (name, stream) = trace.device_events.select("name", "stream").row(0)
    assert (name.rstrip("\ufffd"), stream) == ("k", 7)


@pytest.mark.parametrize("ending", ["]", "]\n", ",", ""])
def test_a_bare_array_of_events(ending: str) -> None:
    trace = load(json.dumps(PAIR)[:-1].encode() + ending.encode())
    assert (trace.event_count, trace.host_events.height, trace.device_events.height) == (2, 1, 1)
    assert notes(trace) == ({} if "]" in ending else {"truncated": 1})


def is_object(line: bytes) -> bool:
    """Tell whether the line is a whole object; one truncated behind its arguments ends with a bracket too."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


@given(random_traces().filter(lambda trace: b"[\n{" in trace.content), st.data())
@settings(max_examples=examples(20))
def test_a_file_that_breaks_off_keeps_every_event_before(trace: RandomTrace, data: st.DataObject) -> None:
    first = trace.content.index(b"[\n{") + 2
    cut = data.draw(st.integers(first, len(trace.content) - 4))
    whole = sum(is_object(line.rstrip(b",")) for line in trace.content[first:cut].splitlines())
    if not whole:
        with pytest.raises(NotATrace, match="holds no event that can be read: the file is truncated at byte"):
            load(trace.content[:cut])
        return
    kept = load(trace.content[:cut])
    assert kept.event_count == whole
    assert notes(kept)["truncated"] == 1
    message = next(note.message for note in kept.notes if note.code == "truncated")
    assert f"after event {whole:,}" in message
    assert accounted(kept) == whole


@pytest.mark.parametrize("packed", [gzip.compress, zstandard.compress])
def test_a_compressed_file_that_breaks_off_keeps_events(packed: Any) -> None:
    content = trace_bytes([kernel(f"k{t * t}", t, 1) for t in range(20_000)])
    trace = load(packed(content)[:-5_000])
    assert 10_000 < trace.event_count < 20_000
    assert notes(trace)["truncated"] == 1


@pytest.mark.slow
def test_damaged_gzip_keeps_what_was_read_and_a_small_file_loses_nothing_by_its_checksum() -> None:
    large = trace_bytes([kernel(os.urandom(20).hex(), t, 1) for t in range(60_000)])
    packed, small = (bytearray(gzip.compress(content, 1)) for content in (large, trace_bytes([PAIR])))
    packed[-6] ^= 1
    small[-6] ^= 1
    assert load(bytes(packed)).event_count > 20_000
    assert "gzip-damaged" in notes(load(bytes(packed)))
    assert load(bytes(small)).event_count == 2


@pytest.mark.parametrize("character", [b"\n", b"\t", b"\x1b", b"\0"])
def test_raw_control_characters_in_names(character: bytes) -> None:
    assert load(trace_bytes([PAIR]).replace(b'"k"', b'"k' + character + b'"')).event_count == 2


def nested(depth: int) -> bytes:
    wide = op("deep", 1, 1, **{"Input Dims": 0})
    return trace_bytes([wide, KERNEL]).replace(b'"Input Dims": 0', b'"Input Dims": ' + b"[" * depth + b"]" * depth)


def test_moderate_nesting_is_kept() -> None:
    trace = load(nested(50))
    assert trace.operator_inputs.get_column("input_dims").item() == "[" * 50 + "]" * 50
    assert load(nested(900)).event_count == 2, "as deep as the decoder just takes"


def test_an_event_that_nests_beyond_reason_is_left_out() -> None:
    trace = load(nested(100_000))
    assert notes(trace) == {"too-deep": 1}
    assert accounted(trace) == trace.event_count == 2
    assert notes(load(nested(3)[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")) == {"deep-header": 1}


FAULTS = {
    "a plus sign": (b'"ts": 20', b'"ts": +20', 1),
    "a literal of Python": (b'"correlation": 3', b'"correlation": None', 1),
    "a brace is missing": (b"}}, {", b"}, {", 1),
    "a brace too many": (b"}}, {", b"}}}, {", 0),
    "a quote is missing": (b'"k2"', b'"k2', 1),
    "a quote too many": (b'"k2"', b'"k2""', 1),
    "a colon is missing": (b'"name": "k2"', b'"name" "k2"', 1),
    "a stray bracket": (b"}}, {", b"}}, ], {", 0),
    "a comma too many": (b'"cat": "kernel",', b'"cat": "kernel",,', 1),
    "a comment": (b"}}, {", b"}}, /* a */ {", 0),
    "NUL bytes": (b"}}, {", b"\0\0\0\0\0", 2),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_syntax_error_costs_the_event_that_it_stands_in(what: str) -> None:
    old, new, lost = FAULTS[what]
    whole = trace_bytes([kernel(f"k{t}", 10 * t, 5, correlation=t) for t in range(8)], distributedInfo={"rank": 5})
    at = whole.index(old, whole.index(b'"k1"'))
    content = whole[:at] + new + whole[at + len(old) :]
    trace = load(content)
    assert trace.event_count == 8 - lost
    assert {"syntax-error"} <= notes(trace).keys() <= {"syntax-error", "nul-bytes"}
    (note,) = (note for note in trace.notes if note.code == "syntax-error")
    assert note.count == 1
    assert at <= int(re.search(r"at byte ([\d,]+)", note.message)[1].replace(",", "")) <= at + 20  # type: ignore[index]


@pytest.mark.parametrize(
    "value",
    [
        "inf",
        "-inf",
        "nan",
        "-nan",
        "nan(0x8000)",
        "-nan(ind)",
        "-nan(snan)",
        "Inf",
        "NAN",
        "infinity",
        "1.#INF",
        "-1.#IND00",
        "1.#QNAN",
    ],
)
def test_a_number_that_only_c_reads_is_unknown_and_its_event_is_read(value: str) -> None:
    whole = trace_bytes([kernel(f"k{t}", 10 * t, 5, correlation=t) for t in range(8)])
    trace = load(whole.replace(b'"correlation": 3', b'"correlation": ' + value.encode()))
    assert trace.device_events.get_column("correlation").to_list() == [None, 1, 2, None, 4, 5, 6, 7]
    assert notes(trace) == {"not-json": 1}
    assert [note.message for note in trace.notes] == [
        "events hold nan or inf as C prints them, which are unknown values"
    ]
    trace = load(whole.replace(b'"ts": 30', b'"ts": ' + value.encode()))
    assert (trace.device_events.height, notes(trace)) == (7, {"not-json": 1, "no-time": 1})


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (r"torch\cuda\__init__.py(219): _lazy_init", "torch\\cuda\\__init__.py(219): _lazy_init"),
        (r"C:\Users\me\train.py(3): step", "C:\\Users\\me\\train.py(3): step"),
        (r"D:\new\table\x.py(1): f", "D:\\new\\table\\x.py(1): f"),
        (r"a\d \"quoted\" \\ b", 'a\\d "quoted" \\ b'),
        (r"torch\utils\data.py(1): f", "torch\\utils\\data.py(1): f"),
    ],
)
def test_backslashes_without_an_escape_stand_for_themselves(written: str, name: str) -> None:
    events = [kernel(f"k{t}", 10 * t, 5, correlation=t) for t in range(8)]
    for at in (0, 4, 8):
        order = [*events[:at], python("NAME", 1, 1), *events[at:]]
        trace = load(trace_bytes(order).replace(b"NAME", written.encode()))
        assert trace.host_events.get_column("name").to_list() == [name]
        assert (trace.device_events.height, notes(trace)) == (8, {"not-json": 1})
        assert [note.message for note in trace.notes] == ["events hold backslashes without an escape"]


def test_the_bytes_that_are_not_read_are_those_from_the_broken_event_to_the_next() -> None:
    whole = trace_bytes([kernel(f"k{t}", 10 * t, 5) for t in range(8)])
    content = whole.replace(b'"ts": 30', b'"ts": ?30')
    start, end = (content.rindex(b"{", 0, content.index(name)) for name in (b'"k3"', b'"k4"'))
    assert f": {end - start:,} bytes around it were not read" in load(content).notes[0].message


def test_each_syntax_error_is_counted_and_the_header_behind_them_is_read() -> None:
    content = trace_bytes([kernel(f"k{t}", 10 * t, 5) for t in range(8)], distributedInfo={"rank": 5})
    content = content.replace(b'"distributedInfo": {"rank": 5}, ', b"")[:-1] + b', "distributedInfo": {"rank": 5}}'
    trace = load(content.replace(b'"ts": 20', b'"ts": .20').replace(b'"ts": 50', b'"ts": 0x50'))
    assert trace.event_count == 6
    assert notes(trace) == {"syntax-error": 2}
    assert "2 syntax errors, the first at byte" in trace.notes[0].message
    assert trace.header.rank == 5
    header = load(b'{"deviceProperties": [{"id": 0, name: 3}], ' + content[1:])
    assert (header.event_count, notes(header)) == (8, {"syntax-error": 1})


def test_the_byte_of_a_syntax_error_is_that_of_the_file() -> None:
    for name in ("k", "\u00e9\u65e5\U0001f600", "\udcff\udcc3x"):
        content = trace_bytes([PAIR]).replace(b'"k"', b'"' + name.encode("utf-8", "surrogateescape") + b'"')
        content = b"\xef\xbb\xbf" + content + b"\n"
        at = content.index(b'"ts"', content.index(name.encode("utf-8", "surrogateescape")))
        broken = content[:at] + b"?" + content[at:]
        assert f"at byte {at:,}" in load(broken).notes[-1].message


def test_a_second_event_list_does_not_replace_the_first() -> None:
    one, two = (trace_bytes([KERNEL | {"name": name}]) for name in "ab")
    content = one[:-1] + b"," + two[two.index(b'"traceEvents"') :]
    for read in (load(content), load(content[:-1])):  # a broken one is read value by value
        assert read.device_events.get_column("name").to_list() == ["a", "b"]


METADATA_ONLY = b'{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}'


UNREADABLE = [
    (b"", "bytes: is empty"),
    (b" \r\n", "bytes: is empty"),
    (gzip.compress(b"", mtime=0), "is empty"),
    (b"\x1f\x8b", "gzip stream"),
    (b"\x1f\x8b\x08" + b"\xff" * 30, "gzip stream is damaged"),
    (b"\x28\xb5\x2f\xfd" + b"\xff" * 30, "zstd stream is damaged"),
    *((zstandard.compress(trace_bytes([PAIR]))[:-cut], "zstd stream is truncated after 0 bytes") for cut in (1, 3, 20)),
]
NO_TRACE = [
    (b"<b>\n404</b>", "is not JSON (starts with '<b>')"),
    (b" \n<HTML lang=en>", "is a page of HTML"),
    (bz2.compress(b"{}"), "is compressed by bzip2"),
    (gzip.compress(b"\x28\xb5\x2f\xfd", mtime=0), "is compressed twice; decompress it once (`unzstd`)"),
    (gzip.compress(b"hello", mtime=0), "is not JSON"),
    (b"\xfe\xff" + "{}".encode("utf-16-be"), "is UTF-16 text"),
    *(
        (f"{mark}[]".encode(f"utf-{bits}-{order}"), f"is UTF-{bits} text")
        for mark, bits, order in itertools.product(("", "\ufeff"), (16, 32), ("le", "be"))
    ),
    (b"hello", "is not JSON (starts with 'hello')"),
    (b"\x00\x01\xff", "is a binary file, not JSON"),
    *(
        (text, "`traceEvents`")
        for text in (b"null", b"12", b'"text"', b"{}", b'{"traceEvents": null}', b'{"traceEvents": {}}')
    ),
    (b'{"events": [1, 2', "holds no event that can be read: the file is truncated at byte 1,"),
    (b"{'traceEvents': []}", "is a Python literal"),
    (b"[" * 100_000, "holds no event that can be read"),
    (b'{"traceEvents": [nonsense]}', "holds no event that can be read: syntax error at byte 17"),
    (b'{"name": "app", x}', "holds no event that can be read: syntax error at byte 16"),
    (b'{"traceEvents": []}', "holds no event: was the profiler active"),
    (b'{"a": ' + b"[" * 100_000, "the file is truncated at byte 1,"),
    (METADATA_ONLY + b"]}", "only metadata (1 event): was the profiler active"),
    (METADATA_ONLY + b', {"ph": "X", "cat": "ker', "only metadata can be read: the file is truncated at byte"),
    (METADATA_ONLY + b', {"ph": "X", "ts": oops}]}', "bytes around it were not read"),
    (METADATA_ONLY + b', {"ph": "X", "ts": "x"}]}', "only metadata can be read: 1 without a readable time"),
    (METADATA_ONLY + b", 1, 2]}", "only metadata can be read: 2 entries are no objects"),
    (METADATA_ONLY + b', {"ph": "X", "args": ' + b"[" * 99_999 + b"]" * 99_999 + b"}]}", "1 nest too deeply"),
    ((20 << 20) * b"[", "no phase (`ph`) is in its first 16,777,216 bytes"),
    ((20 << 20) * b'{"a":', "no phase (`ph`) is in its first 16,777,216 bytes"),
]
NO_LARGE_TRACE = [
    *(
        (head + unit * (20 << 20), "no phase (`ph`) is in its first 16,777,216 bytes")
        for head, unit in ((b'{"traceEvents": [', b"1,"), (b"[", b"{},"), (b'{"x": [', b'"",'))
    ),
    (METADATA_ONLY + b", 1" * 1_000_000, "more than 100,000 entries in a row that are no objects"),
    (METADATA_ONLY + b", " + b"[" * 2_000_000, "nests 1,000,000 levels deep"),
    (METADATA_ONLY + b', {"ph": "X", "args": ' + b'{"x":[' * 600_000, "nests 1,000,000 levels deep"),
]


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        *((content, InputError, message) for content, message in UNREADABLE),
        *((content, NotATrace, message) for content, message in NO_TRACE),
        *(pytest.param(content, NotATrace, message, marks=pytest.mark.slow) for content, message in NO_LARGE_TRACE),
    ],
)
def test_what_is_no_trace(content: bytes, error: type[InputError], message: str) -> None:
    with pytest.raises(InputError) as caught:
        load(content)
    assert type(caught.value) is error
    assert message in str(caught.value)
    assert str(caught.value).startswith("bytes: ")
    assert "\n" not in str(caught.value)


def test_open_files_and_limits() -> None:
    content = trace_bytes([PAIR])
    assert load(io.BytesIO(gzip.compress(content))).event_count == 2
    with pytest.raises(InputTooLarge, match="more than 100 bytes"):
        list(source.content_of(gzip.compress(content), max_bytes=100).blocks())
    mark = b'{"traceName": "' + b" " * (257 - 15) + b"ustar" + b'", '
    assert mark.index(b"ustar") == 257, "where an archive of tar has it"
    assert load(mark + content[1:]).event_count == 2


def test_places_that_are_no_trace(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    cases = [
        (tmp_path, "is a directory"), (tmp_path / "absent.json", "no such file"), (pipe, "is a pipe that nobody writes to"),
        (Path("/dev/null"), "is a device"), (tmp_path / ("x" * 300), "cannot be opened"), (tmp_path / "absent" / "f", "no such file"),
    ]  # fmt: skip
    for path, message in cases:
        with pytest.raises(InputError) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}: {message}")
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError):
        load("a\0b")


@pytest.mark.parametrize("address", ["https://host/trace.json", "s3://bucket/trace.json.gz"])
def test_an_address_is_named_whole_with_what_to_do(address: str) -> None:
    with pytest.raises(InputError) as caught:
        load(Path(address))  # a `Path` has one slash of the two
    assert str(caught.value) == f"{address}: is an address, not a file on this machine; download it and name the file"


def test_a_pipe_with_a_writer_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = trace_bytes([PAIR])
    writer = Thread(target=pipe.write_bytes, args=(content,))  # opening a FIFO for writing waits for its reader
    writer.start()
    trace = load(pipe)
    writer.join()
    assert trace.event_count == 2


def test_every_event_is_in_a_table_or_counted() -> None:
    odd: list[Event] = [
        {"ph": "C", "cat": "hardware_counters", "name": "c", "ts": 1, "pid": 1, "tid": 1, "args": {"v": 1}},
        {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "ts": 1, "pid": "Traces", "tid": "x", "s": "g"},
        {"ph": "?", "name": "strange", "ts": 1}, {"name": "no phase", "ts": 1}, {},
        KERNEL | {"ts": "x"}, KERNEL | {"dur": -1}, KERNEL | {"ts": 1e15}, KERNEL | {"dur": None},
        event("gpu_user_annotation", "a", 1, 1, pid=0, tid=7), event("mtia_x", "m", 1, 1, pid=0, tid=7),
        {"ph": "E", "cat": "cpu_op", "name": "stray", "ts": 3, "pid": 1, "tid": 1},
        {"ph": "t", "id": 1, "cat": "ac2g", "name": "step of an arrow", "ts": 1, "pid": 1, "tid": 1},
        {"ph": "s", "id": 1, "cat": "unknown", "name": "other arrow", "ts": 1, "pid": 1, "tid": 1},
        {"ph": "s", "cat": "ac2g", "name": "arrow without id", "ts": 1, "pid": 1, "tid": 1},
    ]  # fmt: skip
    every = [*PAIR, *flow(1, *PAIR), op("o", 1, 2), python("p", 1, 2), kineto.annotation("a", 1, 2), kineto.overhead("b", 1, 2), sync("s", 1, 2),
             kineto.copy("HtoD (Pinned -> Device)", 1, 2), kineto.memset(1, 2), *odd]  # fmt: skip
    trace = loaded(*every)
    assert trace.event_count == len(every)
    assert accounted(trace) == trace.event_count


@given(random_traces())
@settings(max_examples=examples(15))
def test_random_traces_lose_nothing(trace: RandomTrace) -> None:
    read = load(trace.content)
    assert accounted(read) == read.event_count == len(trace.document["traceEvents"])  # type: ignore[arg-type]
    assert read.notes == ()


def test_the_profiler_says_where_recordings_begin_and_end() -> None:
    marks = [{"ph": "i", "name": name, "ts": ts, "pid": "", "tid": "", "s": "g"}
             for name, ts in (("Iteration Start: PyTorch Profiler", 0), ("Record Window End", 50), ("else", 60))]  # fmt: skip
    assert loaded(KERNEL, *marks).boundaries == (-10_000, 40_000)


def test_host_events_are_in_order_also_on_a_line_that_is_too_long_for_int64(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = [op(f"o{i}", 1e9 * (i % 7), 5 + i % 3, tid=i % 5) for i in range(60)]
    table = loaded(*spans).host_events
    monkeypatch.setattr(build, "_LONGEST_LINE", 0.0)
    assert loaded(*spans).host_events.equals(table)
    in_order = table.sort("thread_id", "start_ns", "duration_ns", "row", descending=[False, False, True, False])
    assert table.equals(in_order)


def test_versions_of_a_header_are_written_alike() -> None:
    header = {
        "cuda_runtime_version": 12060, "cuda_driver_version": 12080, "hip_runtime_version": 71326183,
        "nccl_version": "2.27.5",
        "pytorch_version": "2.8.0+cu128", "torch_version": "<b>2</b>", "python_version": None, "cudnn_version": True,
    }  # fmt: skip
    assert versions_of(header) == {
        "PyTorch": "2.8.0+cu128", "CUDA": "12.6", "driver (CUDA)": "12.8", "HIP": "7.13", "NCCL": "2.27.5"
    }  # fmt: skip
