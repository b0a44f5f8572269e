"""Exports of Nsight Systems: the tables and the report of the same Kineto trace, public recordings, and bad files."""

import gzip
import json
import random
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from conftest import CORPUS, SAMPLES
from kineto import analysed, idle_parts, kernel
from msgspec.structs import replace
from nsight_export import DRIVER, PUSH_POP, RUNTIME, START_END, Export, exported, thread
from polars.testing import assert_frame_equal

from trace_analyzer import cli, compare
from trace_analyzer.errors import InputError
from trace_analyzer.ingest import Trace, load
from trace_analyzer.pipeline import analyze, report_of
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow

PUBLIC = CORPUS.parent / "truth" / "nsys"
PLACES = ("name", "start_ns", "duration_ns", "correlation")
WORK = (
    "kind", *PLACES, "device", "stream", "bytes", "blocks", "threads_per_block", "registers_per_thread",
    "shared_memory_bytes", "graph_id", "graph_node_id",
)  # fmt: skip
HOST = ("kind", *PLACES, "sequence_number", "pid", "tid")
LACKING = ("Input type", "Input Strides", "Concrete Inputs", "est. achieved occupancy %", "Collective name")
"""Arguments that no export has."""
KEPT = {
    "cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "ac2g", None
}  # fmt: skip

needs_public = pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public recordings are absent")


def without_more(path: Path) -> bytes:
    """Return a Kineto trace without what an export does not have."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    document["traceEvents"] = [event for event in document["traceEvents"] if event.get("cat") in KEPT]
    for event in document["traceEvents"]:
        for name in LACKING:
            event.get("args", {}).pop(name, None)
    return json.dumps(document).encode()


def in_words(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col(name).cast(pl.String) for name in ("name", "kind") if name in frame.columns)


def of_host(trace: Trace) -> pl.DataFrame:
    """Return calls, operators and annotations, with the ids of their threads."""
    numbers = pl.when(pl.col("sequence_number") >= 0).then("sequence_number").alias("sequence_number")
    kept = trace.host_events.filter(pl.col("kind").is_in(["runtime", "driver", "operator", "annotation"]))
    return in_words(kept.with_columns(numbers).join(trace.threads.drop("name"), on="thread_id").select(HOST))


def facts(report: Report) -> tuple[object, ...]:
    """Return what a person reads first: the verdict, the window, its idle time by cause, its levers, the advice."""
    verdict, device = report.verdict, report.devices[0]
    levers = {lever.resource: lever.saves_ns for lever in verdict.levers}
    return (
        verdict.regime, verdict.cause, verdict.window, device.busy_ratio, idle_parts(report), levers,
        [advice.id for advice in report.advice],
    )  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(
    "path",
    [*sorted(SAMPLES.glob("synthetic_*.json.gz")), *CORPUS.glob("h100_[bq]*.json.gz")],
    ids=lambda path: path.name,
)
def test_a_kineto_trace_as_an_export_has_the_same_tables_and_report(path: Path, tmp_path: Path) -> None:
    kineto = load(without_more(path))
    nsight = load(exported(kineto).write(tmp_path / "a.sqlite"))
    for name, columns in (("device_events", WORK), ("sync_events", (*PLACES, "device", "stream"))):
        ours, theirs = (in_words(getattr(trace, name).select(columns)) for trace in (nsight, kineto))
        assert_frame_equal(ours, theirs)
    assert_frame_equal(of_host(nsight), of_host(kineto))
    assert nsight.header.devices == kineto.header.devices
    assert facts(report_of(nsight)) == facts(report_of(kineto))


def small() -> Export:
    """Return an export of two processes that number devices, contexts and calls alike."""
    export = Export()
    mm = export.text("aten::mm, seq = 3, op_id = 8, sizes = [[2, 4], []], input_op_ids = [(7,0)]")
    for pid in (11, 12):
        at = {"globalTid": thread(pid, pid + 100)}
        place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": thread(pid, 0), "correlationId": 5}
        name = export.text("void f<(int)4, (bool)1, (unsigned long)3>(<unnamed>::T &)")
        for call, start, end, of in (
            ("cudaLaunchKernel_v7000", 100, 110, RUNTIME),
            ("cuLaunchKernelEx_v2", 102, 108, DRIVER),
        ):
            at_call = {**at, "nameId": export.text(call), "eventClass": of, "correlationId": 5}
            export.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, **at_call)
        export.add("CUPTI_ACTIVITY_KIND_KERNEL", start=120, end=150, **place, demangledName=name, shortName=name)
        export.add("NVTX_EVENTS", start=90, end=112, **at, eventType=PUSH_POP, textId=mm)
        export.add("NVTX_EVENTS", start=91, end=111, **at, eventType=START_END, text="iteration 3")
        export.add("NVTX_EVENTS", start=95, end=None, **at, eventType=34, text="a mark")
        export.add("OSRT_API", start=200, end=260, **at, nameId=export.text("pthread_cond_wait"))
        export.add("ThreadNames", globalTid=at["globalTid"], nameId=export.text("worker"))
    return export


@pytest.mark.parametrize(("gpus", "labels"), [((), ["11/0", "12/0"]), ((3, 4), ["3", "4"]), ((3, 3), ["3"])])
def test_processes_that_share_numbers_stay_apart(gpus: tuple[int, ...], labels: list[str], tmp_path: Path) -> None:
    export = small()
    for gpu, pid in zip(gpus, (11, 12), strict=False):
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid)
    tables = analyze(export.write(tmp_path / "a.sqlite")).tables
    assert tables["devices"].get_column("label").to_list() == labels
    assert tables["activities"].get_column("launch_id").null_count() == 0
    assert tables["launches"].get_column("thread_id").n_unique() == 2


def payload(export: Export, name: str, **fields: int) -> dict[str, object]:
    """Return the columns of a call of NCCL with a payload, as NVTX packs it, and register its schema."""
    names = {"comm": ("NCCL communicator ID", 8), "size": ("Message size [bytes]", 8), "ranks": ("No. of ranks", 4)}
    schema, content = (1 << 24) + sum(map(ord, name)), b""
    for field, value in fields.items():
        label, width = names[field]
        export.add("NVTX_PAYLOAD_SCHEMA_ENTRIES", domainId=1, schemaId=schema, name=label, offset=len(content))
        content += value.to_bytes(width, "little")
    header = b"".join(number.to_bytes(8, "little") for number in (1, schema, len(content), 32 + len(content)))
    return {"textId": export.text(name), "domainId": 1, "binaryData": header + content}


MIB = 1 << 20
SENT = [
    ([("ncclAllReduce", 4 * MIB)], [("all_reduce", 4 * MIB)]),
    ([("ncclAllGather", MIB)], [("all_gather", 8 * MIB)]),
    ([("ncclReduceScatter", MIB)], [("reduce_scatter", 8 * MIB)]),
    ([("ncclSend", MIB), ("ncclRecv", MIB), ("ncclSend", 2 * MIB), ("ncclRecv", MIB)], [("send_recv", 3 * MIB)]),
    ([("ncclAllReduce", MIB), ("ncclAllReduce", MIB)], [("all_reduce", None)]),
]


@pytest.mark.parametrize(
    ("calls", "expected", "in_group"), [(*case, grouped) for case in SENT for grouped in {True, len(case[0]) > 1}]
)
def test_collectives_have_the_sizes_of_their_payloads(
    calls: list[tuple[str, int]], expected: list[tuple[str, int]], in_group: bool, tmp_path: Path
) -> None:
    export, at = Export(), {"globalTid": thread(11, 12), "eventType": PUSH_POP}
    ranges = [("ncclCommInitRankConfig", {"comm": 1 << 63, "ranks": 8})]
    ranges += [(name, {"comm": 1 << 63, "size": size}) for name, size in calls]
    ranges[1:] = [("ncclGroupStart", {}), *ranges[1:], ("ncclGroupEnd", {})] if in_group else ranges[1:]
    for place, (name, fields) in enumerate(ranges):
        export.add("NVTX_EVENTS", start=100 * place, end=100 * place + 90, **at, **payload(export, name, **fields))
    start, kind = 100 * len(ranges) - 60, calls[0][0].removeprefix("nccl").replace("Send", "SendRecv")
    ids = {"correlationId": 5, "globalTid": at["globalTid"], "eventClass": RUNTIME}
    export.add(
        "CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=start + 20, nameId=export.text("cudaLaunchKernel"), **ids
    )
    export.add(
        "CUPTI_ACTIVITY_KIND_KERNEL", start=2000, end=3000, deviceId=0, contextId=1, streamId=7, globalPid=thread(11, 0),
        correlationId=5, demangledName=export.text(f"ncclDevKernel_{kind}"),
    )  # fmt: skip
    found = analyze(export.write(tmp_path / "a.sqlite")).tables["collectives"]
    assert found.select("collective", "message_bytes").rows() == expected
    assert found.get_column("group_size").to_list() == [8 if expected[0][1] else None]


def test_names_are_those_of_kineto(tmp_path: Path) -> None:
    trace = load(small().write(tmp_path / "a.sqlite"))
    assert set(in_words(trace.device_events).get_column("name")) == {"void f<4, true, 3ul>((anonymous namespace)::T&)"}
    host = in_words(trace.host_events).filter(thread_id=0).select("kind", "name", "sequence_number", "external_id")
    assert host.rows() == [
        ("operator", "aten::mm", 3, 8), ("annotation", "iteration 3", None, None), ("runtime", "cudaLaunchKernel", None, None),
        ("driver", "cuLaunchKernelEx_v2", None, None), ("other", "pthread_cond_wait", None, None),
    ]  # fmt: skip
    assert trace.operator_inputs.get_column("input_dims").cast(pl.String).to_list() == ["[[2, 4], []]"] * 2
    assert trace.threads.get_column("name").to_list()[:2] == ["worker", "worker"]
    with pytest.raises(InputError, match="more than 1,000 bytes"):
        load(tmp_path / "a.sqlite", max_bytes=1_000)


@needs_public
@pytest.mark.parametrize(
    ("name", "regime", "window_ms", "exposed_ms"),
    [("mfu_2gpu_before", "compute-bound", 299.85, 17.2), ("h100_2gpu_1s", "communication-bound", 969.4, 0.0)],
)
def test_public_recordings_of_two_gpus(name: str, regime: str, window_ms: float, exposed_ms: float) -> None:
    """Check figures that are published (17.2 ms), and those that follow from sums over the file's tables."""
    report = analyze(PUBLIC / f"{name}.sqlite.gz", gpu="h100")
    assert report.verdict.regime == regime
    assert report.verdict.window is not None
    ((start, end), *_) = report.verdict.window.intervals
    assert (end - start) / 1e6 == pytest.approx(window_ms, abs=0.1)
    communication = report.devices[0].communication
    assert (communication.exposed_ns if communication else 0) / 1e6 == pytest.approx(exposed_ms, abs=0.05)
    for item in report.advice:
        if item.id == "synchronization":  # each of both processes waits for 160 ms
            assert item.where.startswith("cudaStreamSynchronize in aten::copy_ (163 ms)")


@needs_public
@pytest.mark.parametrize("source", ["synthetic_training", *(path.name for path in PUBLIC.glob("mfu*.gz"))])
def test_an_export_is_written_for_perfetto_as_pytorch_profiler_writes(source: str, tmp_path: Path) -> None:
    path, out = PUBLIC / source, tmp_path / "out.json"
    if not path.exists():
        path = exported(load(SAMPLES / f"{source}.json.gz")).write(tmp_path / "a.sqlite")
    run = CliRunner().invoke(cli.main, ["export", str(path), "--perfetto", str(out)])
    assert run.exit_code == 0, run.output
    before, after = analyze(path), analyze(out)
    assert facts(after) == facts(before)
    for name in ("causes", "kernels", "operators", "steps", "communication"):
        assert_frame_equal(after.tables[name], before.tables[name])
    rows = json.loads(out.read_text())["traceEvents"]
    assert all(0 <= row[key] < 1 << 32 for row in rows for key in ("pid", "tid"))
    assert sum(row["ph"] == "s" for row in rows) == before.tables["launches"]["activity_count"].sum()


def test_graphs_that_were_recorded_whole_are_said_to_be_unknown() -> None:
    report = analyze(PUBLIC / "flameox-nsight-2025.5.2.sqlite.gz")
    assert [note.count for note in report.notes if note.code == "whole-graphs"] == [2]
    assert report.trace.devices[0].name == "NVIDIA GeForce RTX 3060"


NSYS = """#!/bin/sh
[ "$1 $2" = "export --type=sqlite" ] || exit 9
case "$4" in *broken*) echo "reading"; echo "Importer error: \\033[31mno events" >&2; exit 1;; esac
cp "$(dirname "$0")/made.sqlite" "${3#--output=}"
"""


def test_a_report_is_exported_where_nsys_is_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = small().write(tmp_path / "made.sqlite")
    for name in ("run.nsys-rep", "broken.nsys-rep"):
        (tmp_path / name).write_bytes(b"\0\1 a report")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="--export needs nsys on the PATH"):
        analyze(tmp_path / "run.nsys-rep", export=True)
    (tmp_path / "nsys").write_text(NSYS)
    (tmp_path / "nsys").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    read, expected = analyze(tmp_path / "run.nsys-rep", export=True), analyze(made, export=True)
    assert read.trace.path == str(tmp_path / "run.nsys-rep")
    assert (read.verdict, read.devices) == (expected.verdict, expected.devices)
    with pytest.raises(InputError, match=r"broken.nsys-rep: nsys could not export it: Importer error: .*no events$"):
        analyze(tmp_path / "broken.nsys-rep", export=True)
    with pytest.raises(InputError, match="--export reads it with nsys"):
        analyze(tmp_path / "run.nsys-rep")


def test_the_file_is_not_touched(tmp_path: Path) -> None:
    path = small().write(tmp_path / "what? 100% #1.sqlite")
    before = path.read_bytes()
    tmp_path.chmod(0o500)
    try:
        analyze(path)
    finally:
        tmp_path.chmod(0o700)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert analyze(before).tables["activities"].equals(analyze(path).tables["activities"])


@pytest.mark.sampled
@pytest.mark.parametrize("part", [(table, column) for table in small().tables for column in small().tables[table][0]])
@pytest.mark.parametrize("value", [None, "<b>", -(1 << 63), (1 << 63) - 1, b"\0\xff", 1e300])
def test_any_column_may_be_missing_or_of_another_type(part: tuple[str, str], value: object, tmp_path: Path) -> None:
    table, column = part
    path = small().write(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as database:
        if value is None:
            database.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
        else:
            database.execute(f'UPDATE "{table}" SET "{column}" = ?', [value])
        database.commit()
    load(path)


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_database_is_read_or_refused(seed: int, tmp_path: Path) -> None:
    content = bytearray(small().write(tmp_path / "a.sqlite").read_bytes())
    random_ = random.Random(seed)
    for _ in range(random_.choice([1, 10, 100])):
        content[random_.randrange(20, len(content))] = random_.randrange(256)
    cut = random_.choice([len(content), random_.randrange(20, len(content))])
    with suppress(InputError):
        load(bytes(content[:cut]))


ENDLESS_VIEW = """
CREATE TABLE StringIds (id, value);
CREATE TABLE META_DATA_EXPORT (name, value);
CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start FROM n) SELECT * FROM n
"""


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("CREATE TABLE users (name)", "is an SQLite database of another program (users); expected"),
        ("PRAGMA user_version = 1", "is an SQLite database of another program (no tables)"),
        ("CREATE TABLE StringIds (id, value)", "of another program (StringIds)"),
        (ENDLESS_VIEW, "holds no events"),
    ],
)
def test_other_databases_are_one_line(script: str, message: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.executescript(script)
    with pytest.raises(InputError, match=r"a\.db: ") as error:
        analyze(tmp_path / "a.db")
    assert message in str(error.value)


def test_a_trace_and_an_export_of_one_program_compare_as_equal(tmp_path: Path) -> None:
    sample = SAMPLES / "synthetic_overhead_synchronization.json.gz"
    result = compare(sample, exported(load(sample)).write(tmp_path / "a.sqlite"))
    assert result.summary().startswith("6.89 ms instead of 6.89 a step, as fast")


@pytest.mark.parametrize(("stream", "hidden"), [(7, ["at most 40 us would be hidden"]), (8, [])])
def test_collectives_on_the_stream_of_other_kernels_are_serialized(stream: int, hidden: list[str]) -> None:
    work = (kernel("void gemm", 0, 100), kernel("ncclDevKernel_AllReduce_Sum_f32", 100, 40, stream=stream))
    notes = [note.message for note in analysed(*work).notes if note.code == "serialized-collectives"]
    assert [message.split("; on a stream of their own, ")[1] for message in notes] == hidden


KINETO = re.compile(
    r"prof\.step|ProfilerActivity|with_stack|profile_memory|torch\.profiler\b|(?<!emit_nvtx\()record_shapes"
)


@pytest.mark.parametrize("sample", ["synthetic_overhead_launch", "synthetic_overhead_data-loading"])
@pytest.mark.parametrize(
    ("kernels", "status"), [(None, "ok"), (1, "insufficient"), (0, "gpu-timeline-missing")], ids=["all", "one", "none"]
)
def test_nothing_asks_for_pytorch_profiler(sample: str, kernels: int | None, status: str, tmp_path: Path) -> None:
    trace = load(SAMPLES / f"{sample}.json.gz")
    trace = replace(trace, device_events=trace.device_events[:kernels])
    report = analyze(exported(trace).write(tmp_path / "t.sqlite"))
    assert report.verdict.status == status
    assert report.trace.profiler
    explained = [report.explain(f"advice:{advice.id}").summary() for advice in report.advice]
    page = report.to_html(tmp_path / "page.html").read_text()
    for text in (report.summary(verbose=True), report.to_markdown(), *explained, page):
        assert KINETO.findall(text) == []
