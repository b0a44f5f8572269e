"""Test traces of other writers than Kineto, of other vendors, and files of other tools."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from kineto import A100, analysed, call, event, flow, kernel, launch, launched, loaded, notes, op, python, trace_bytes
from reference import assert_same as assert_as_reference, read as read_reference

from trace_analyzer.cli import main
from trace_analyzer.ingest import Trace, fast, load

pytestmark = pytest.mark.slow

BUSY = "ampere_sgemm_128x64_tn"


def monitor_copy(kinds: dict[str, Any], *, name: str = "Memcpy", category: str = "gpu_memcpy", **args: Any) -> Any:
    """Build a copy as PyTorch's CUPTI monitor writes it (torch/profiler/_cupti/monitor_trace.py)."""
    return kernel(name, 10, 5, category=category, correlation=1, **kinds, flags=0, **args)


@pytest.fixture(params=["strict", "fast"])
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trace]:
    """Return each reader, whose tables equal those of the reference."""
    monkeypatch.setattr(fast, "_WORTH_BYTES", 0 if request.param == "fast" else 1 << 40)

    def reader(*events: Any) -> Trace:
        content = trace_bytes(events)
        trace = load(content)
        assert_as_reference(trace, read_reference(content))
        return trace

    return reader


@pytest.mark.parametrize(
    ("kinds", "name"),
    [
        ({"copy kind": "HtoD", "src kind": "pageable", "dst kind": "device"}, "Memcpy HtoD (Pageable -> Device)"),
        ({"copy kind": "DtoH", "src kind": "device", "dst kind": "pinned"}, "Memcpy DtoH (Device -> Pinned)"),
        ({"copy kind": "PtoP", "src kind": "device", "dst kind": "device"}, "Memcpy PtoP (Device -> Device)"),
        ({"copy kind": "DtoD", "src kind": "device_static", "dst kind": "managed"}, "Memcpy DtoD (Device Static -> Managed)"),
        # other builds write CUPTI's numbers, and those without a name
        ({"copy kind": 1, "src kind": 1, "dst kind": 3}, "Memcpy HtoD (Pageable -> Device)"),
        ({"copy kind": "8", "src kind": "3", "dst kind": "3"}, "Memcpy DtoD (Device -> Device)"),
        ({"copy kind": 9, "src kind": 2, "dst kind": 77}, "Memcpy HtoH (Pinned -> Unknown)"),
        ({"copy kind": "<b>", "src kind": [1]}, "Memcpy Unknown (Unknown -> Unknown)"),
        ({}, "Memcpy"),
    ],
)  # fmt: skip
def test_a_copy_is_named_after_its_kinds(read: Callable[..., Trace], kinds: dict[str, Any], name: str) -> None:
    others = kernel(BUSY, 0, 5), kernel("Memcpy HtoD (Pinned -> Device)", 30, 5, category="gpu_memcpy")
    names = read(monitor_copy(kinds), *others).device_events.get_column("name").to_list()
    assert names == [BUSY, name, "Memcpy HtoD (Pinned -> Device)"]


@pytest.mark.parametrize(
    ("kind", "name"), [(3, "Memset (Device)"), ("pinned", "Memset (Pinned)"), (99, "Memset (Unknown)")]
)
def test_a_memset_is_named_after_its_memory(read: Callable[..., Trace], kind: Any, name: str) -> None:
    row = monitor_copy({"memory kind": kind}, name="Memset", category="gpu_memset", value=0)
    assert read(row).device_events.get_column("name").to_list() == [name]


def test_kinds_name_no_kernel(read: Callable[..., Trace]) -> None:
    rows = [kernel("Memcpy", 0, 1), kernel("mine", 5, 1, **{"copy kind": "HtoD", "memory kind": 3})]
    assert read(*rows).device_events.get_column("name").to_list() == ["Memcpy", "mine"]


def test_copies_of_both_exporters_give_the_same_report() -> None:

    def copies(named: bool) -> list[Any]:
        kinds = {"copy kind": "HtoD", "src kind": "pageable", "dst kind": "device"}
        name = "Memcpy HtoD (Pageable -> Device)" if named else "Memcpy"
        return [
            [call("cudaMemcpyAsync", 100 * n, 60, correlation=n + 1),
             kernel(name, 100 * n + 10, 40, category="gpu_memcpy", correlation=n + 1, bytes=1 << 20, **({} if named else kinds))]
            for n in range(55)
        ]  # fmt: skip

    new, old = (analysed(copies(named)) for named in (False, True))
    (row,) = new.tables["copies"].to_dicts()
    assert (row["direction"], row["host_memory"], row["count"]) == ("host-to-device", "pageable", 55)
    assert new.tables["copies"].equals(old.tables["copies"])
    assert new.verdict == old.verdict


# Annotations of graphs' nodes that an exporter wrote on their kernels


def replayed(*nodes: dict[str, Any]) -> list[Any]:
    """Build one graph launch with a kernel for each node, each with its own arguments."""
    rows = [kernel(f"k{n}", 10 + 10 * n, 8, correlation=1) for n in range(len(nodes))]
    for n, (row, args) in enumerate(zip(rows, nodes, strict=True)):
        row["args"] |= {"graph id": 1, "graph node id": 100 + n} | args
    return [call("cudaGraphLaunch", 0, 5, correlation=1), rows]


def test_annotations_in_the_trace_name_modules() -> None:
    report = analysed(
        replayed(
            {"name": "attention"},  # mark_kernels({"name": ...}), spread into the arguments
            {"module_fqn": "layers.0.mlp", "name": "mm"},  # torchtitan
            {"annotation": json.dumps([{"name": "outer"}, {"name": "inner"}])},  # several scopes stay a list
            {"annotation": "plain"},
            {"str": "first version"},
            {"annotation": '[{"name": 3}, broken'},
            {},
        )
    )
    activities = report.tables["activities"].sort("start_ns")
    assert activities.get_column("replayed_module").to_list() == [
        "attention", "layers.0.mlp", "inner", "plain", "first version", None, None,
    ]  # fmt: skip
    assert activities.get_column("replay_match").to_list() == ["annotation"] * 5 + [None] * 2
    assert notes(report)["graph-annotations"] == 5


def test_saved_annotations_name_what_the_trace_does_not() -> None:
    capture = json.dumps({"100": ["saved"], "101": ["also saved"]}).encode()
    report = analysed(replayed({"name": "written"}, {}), capture=capture)
    modules = report.tables["activities"].sort("start_ns").get_column("replayed_module")
    assert modules.to_list() == ["written", "also saved"]


def test_a_lane_is_no_stream(read: Callable[..., Trace]) -> None:
    rows = replayed({"stream": 900, "original_stream": 33}, {"stream": 7})
    assert read(*rows).device_events.get_column("stream").to_list() == [33, 7]


def test_host_nodes_of_graphs_are_no_work() -> None:
    row = event("graph_host_node", "HostNode: fn", 40, 5, pid=0, tid=7, **{"graph node id": 5, "device": 0})
    trace = loaded(replayed({}), row)
    assert trace.device_events.height == 1
    assert trace.host_events.height == 1
    assert notes(trace)["device-event"] == 1


# Collectives whose kernels carry their arguments

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
MESSAGE = {
    "Collective name": "allreduce", "In msg nelems": 1_000, "Out msg nelems": 1_000, "dtype": "BFloat16", "Group size": 4,
}  # fmt: skip


def test_collectives_in_graphs_need_no_operator(read: Callable[..., Trace]) -> None:
    rows = [call("cudaGraphLaunch", 0, 5, correlation=1),
            *(kernel(ALL_REDUCE, 10 + 30 * n, 20, correlation=1, stream=20, **MESSAGE, Seq=n) for n in range(3))]  # fmt: skip
    assert read(*rows).collective_inputs.select(
        "collective", "message_elements", "group_size", "collective_seq"
    ).rows() == [("allreduce", 1_000, 4, n) for n in range(3)]
    collectives = analysed(rows).tables["collectives"]
    assert collectives.select("collective", "group_size", "message_dtype", "message_bytes").rows() == [("all_reduce", 4, "BFloat16", 2_000.0)] * 3  # fmt: skip
    assert collectives.get_column("bus_byte_per_s").to_list() == pytest.approx([2_000 / 20e-6 * 2 * 3 / 4] * 3)


def test_an_operator_s_arguments_come_first() -> None:
    """Check one operator with two kernels, which share its message; their own copies of it count for nothing."""
    around = op("record_param_comms", 0, 20, **MESSAGE)
    rows = [launched(ALL_REDUCE, 1 + 8 * n, 30 + 40 * n, 30, n + 1, **MESSAGE) for n in range(2)]
    assert analysed(around, rows).tables["collectives"].get_column("message_bytes").to_list() == [1_000.0, 1_000.0]


@pytest.mark.parametrize("size", [0, 1, -1, -(2**40), 2**62])
def test_groups_that_exchange_nothing_have_no_bandwidth(size: int) -> None:
    message = MESSAGE | {"Group size": size}
    around = op("record_param_comms", 0, 20, **message)
    for rows in ([launched(ALL_REDUCE, 0, 30, 30, 1, **message)], [around, launched(ALL_REDUCE, 1, 30, 30, 1)]):
        report = analysed(rows)
        rates = report.tables["communication"].select("bus_byte_per_s", "best_bus_byte_per_s", "link_ratio").row(0)
        assert rates == (None, None, None) if size < 2 else all(0 < rate < 1e12 for rate in rates if rate is not None)
        assert "inf" not in report.summary(verbose=True)


# Copies by direction: between devices, within one, to the host, and those that a collective makes


def copied(direction: str, operator: str = "aten::copy_", **args: Any) -> list[Any]:
    """Build ten copies of 100 us in a row, each launched by an operator, then products that could hide them."""
    return [
        [[op(operator, 20 * n, 15, **args), call("cudaMemcpyAsync", 20 * n + 2, 5, correlation=n + 1),
          kernel(f"Memcpy {direction}", 300 + 100 * n, 100, category="gpu_memcpy", correlation=n + 1, bytes=1 << 20, stream=9)]
         for n in range(10)],
        [launched(BUSY, 201 + 5 * n, 1_300 + 100 * n, 100, 100 + n, takes=2) for n in range(10)],
    ]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", ["PtoP (Device -> Device)", "PeerToPeer (Device -> Device)", "PtoP (Device Static -> Managed)"]
)
def test_peer_copies_are_between_devices(name: str) -> None:
    report = analysed(copied(name))
    assert "copies between devices" in report.verdict.headline.lower()
    advice = {item.id: item for item in report.advice}
    assert "peer-copies" in advice
    assert not {"copies", "small-copies", "pinned-memory", "device-copies"} & {*advice}
    text = report.summary(verbose=True)
    assert not [word for word in ("pin_memory", "DataLoader", "host and device") if word in text]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "operator", ["record_param_comms", "c10d::_allgather_base_", "symm_mem::low_contention_all_gather"]
)
@pytest.mark.parametrize("name", ["PtoP (Device -> Device)", "DtoD (Device -> Device)"])
def test_a_copy_engine_s_all_gather_is_communication(name: str, operator: str) -> None:
    report = analysed(copied(name, operator, **{"Collective name": "allgather"}))
    assert set(report.tables["activities"].filter(kind="memcpy").get_column("bound")) == {"communication"}
    assert report.tables["collectives"].get_column("collective").to_list() == ["all_gather"] * 10
    assert not {"copies", "peer-copies", "device-copies"} & {item.id for item in report.advice}


def test_copies_to_the_host_have_their_code() -> None:
    (advice,) = (item for item in analysed(copied("DtoH (Device -> Pinned)")).advice if item.id == "copies")
    assert "host.copy_(result, non_blocking=True)" in advice.code
    assert "DataLoader" not in advice.code
    (advice,) = (item for item in analysed(copied("HtoD (Pinned -> Device)")).advice if item.id == "copies")
    assert "batch.pin_memory()" in advice.code
    assert "DataLoader" not in advice.code, "the trace has none"


def test_copies_within_the_device_have_their_advice() -> None:
    ids = {item.id for item in analysed(copied("DtoD (Device -> Device)")).advice}
    assert "device-copies" in ids
    assert not {"copies", "peer-copies", "pinned-memory"} & ids


# Accelerators of other vendors, without a device timeline


def host_only(
    name: str, category: str, inner: tuple[str, str] | None = None, *, inner_id: int | None = None
) -> list[Any]:
    """Build ten launches, each with an operator and, where ``inner`` is a name and category, the driver's call in it."""
    return [
        [op("aten::add", 100 * n, 40), call(name, 100 * n + 5, 20, correlation=n + 1, category=category),
         call(inner[0], 100 * n + 8, 10, correlation=n + 1 if inner_id is None else inner_id, category=inner[1]) if inner else []]
        for n in range(10)
    ]  # fmt: skip


XPU = ("urEnqueueKernelLaunchWithArgsExp", "xpu_runtime")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("rows", "accelerator", "profiler", "activity"),
    [
        (host_only(*XPU, ("zeCommandListAppendLaunchKernelWithArguments", "xpu_driver")), "xpu", "PTI", "XPU"),
        (host_only(*XPU, ("zeCommandListAppendLaunchKernel", "xpu_driver"), inner_id=0), "xpu", "PTI", "XPU"),
        (host_only("piEnqueueKernelLaunch", "xpu_runtime"), "xpu", "PTI", "XPU"),
        (host_only("hipLaunchKernel", "cuda_runtime"), "hip", "roctracer", "CUDA"),
        (host_only("cudaLaunchKernel", "cuda_runtime", ("cuLaunchKernelEx", "cuda_driver")), "cuda", "CUPTI", "CUDA"),
    ],
)
def test_a_missing_timeline_in_the_vendor_s_words(
    rows: list[Any], accelerator: str, profiler: str, activity: str
) -> None:
    """Check also that a launch counts once though runtime and driver record it, with one id or with none."""
    report = analysed(rows, devices=[])
    assert report.verdict.status == "gpu-timeline-missing"
    assert report.trace.accelerator == accelerator
    assert f"has 10 launches but no GPU activity: {profiler}" in report.verdict.headline
    text = " ".join(report.summary().split())
    assert f"ProfilerActivity.{activity}" in text
    words = re.findall(r"\b(?:PTI|roctracer|CUPTI|ProfilerActivity\.(?!CPU)\w+)", text)
    assert {*words} == {profiler, f"ProfilerActivity.{activity}"}


@pytest.mark.parametrize("name", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_graphs_whose_kernels_are_all_lost_do_not_blame_the_profiler_s_absence(name: str) -> None:
    headline = analysed(host_only(name, "cuda_runtime"), devices=[]).verdict.headline
    assert "10 launches but no GPU activity: all launch graphs, whose kernels" in headline
    assert "was not available" not in headline


@pytest.mark.parametrize("python_calls", [0, 400], ids=["of few events", "of many events"])
def test_a_missing_timeline_is_not_the_profiler_s_absence_where_its_events_are_lost(python_calls: int) -> None:
    """Check kernels of negative durations: they are in the file, so CUPTI was available."""
    frames = [python("f", 10_000 + 10 * n, 5) for n in range(python_calls)]
    kernels = [kernel("k", 100 * n + 50, -5, correlation=n + 1) for n in range(10)]
    report = analysed(host_only("cudaLaunchKernel", "cuda_runtime"), frames, kernels, devices=[])
    assert report.verdict.status == "gpu-timeline-missing"
    assert "10 events of the file cannot be read" in report.verdict.headline
    assert "was not available" not in report.verdict.headline
    assert "Export the file again as the profiler writes it" in " ".join(report.summary().split())


def test_ascend_hardware_is_no_run_on_the_cpu() -> None:
    """Check a `trace_view.json` of torch_npu, whose device events have no category."""
    names = {1: "Python", 4: "Ascend Hardware", 5: "CANN", 6: "Communication"}
    rows = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}} for pid, name in names.items()
    ]
    work = [{"ph": "X", "name": "Matmul", "pid": pid, "tid": 3, "ts": f"{100 + n}.5", "dur": 8, "args": {"Task Type": "AI_CORE"}}
            for pid in (4, 6) for n in range(3)]  # fmt: skip
    host = {
        "ph": "X",
        "name": "AscendCL@aclnnMatmul",
        "pid": 5,
        "tid": 2,
        "ts": "90.0",
        "dur": 5,
        "args": {"Mode": "ACL_OP"},
    }
    report = analysed(rows, op("aten::mm", 80, 20, pid=1), host, work, devices=[])
    assert (report.verdict.status, report.trace.accelerator) == ("unsupported-accelerator", "npu")
    lost = "Ascend NPUs in this trace cannot be accounted for: Ascend Hardware (3), Communication (3)"
    assert lost in report.verdict.headline
    assert "CPU-only" not in report.summary()
    assert report.tables["host_events"].height == 2
    assert notes(report)["unsupported"] == 6


@pytest.mark.parametrize(
    ("category", "accelerator"), [("hpu_op", "hpu"), ("mtia_ccp_events", "mtia"), ("privateuse1_kernel", "other")]
)
def test_unsupported_accelerators_by_name(category: str, accelerator: str) -> None:
    report = analysed(event(category, "work", 10, 5, pid=0, tid=1), op("aten::mm", 0, 5), devices=[])
    assert (report.verdict.status, report.trace.accelerator) == ("unsupported-accelerator", accelerator)
    assert f"{category} (1)" in report.verdict.headline


def test_advice_for_apple_s_gpu_names_its_profiler() -> None:
    report = analysed(op("aten::_mps_convolution", 0, 50), devices=[])
    assert report.trace.accelerator == "mps"
    text = report.summary()
    assert "torch.mps.profiler" in text
    assert "ProfilerActivity.CUDA" not in text


def test_a_run_on_the_cpu_has_no_accelerator() -> None:
    report = analysed(op("aten::mm", 0, 50))
    assert report.trace.accelerator is None
    assert report.verdict.status == "cpu-run"


# Files of other tools: one true line, and no byte of theirs on the terminal

BINARY = bytes(range(256)) * 20
XPLANE, PERFETTO = b"\n\x80\x01\x08\x01\x12\x09/host:CPU", b"\n\x10\x08\x01P\x01"
NSIGHT = "is a report of Nsight Systems; --export reads it with nsys, or analyze what `nsys export --type=sqlite FILE` writes"
LEGACY = [
    {"name": "aten::mm", "ph": "X", "ts": 1, "dur": 5, "tid": 1, "pid": "CPU functions", "args": {}},
    {"name": "sgemm", "ph": "X", "ts": 2, "dur": 3, "tid": 0, "pid": "CUDA functions", "args": {}},
]
OF_JAX = [
    {"ph": "M", "pid": 3, "name": "process_name", "args": {"name": "/device:TPU:0"}},
    {"ph": "M", "pid": 7, "name": "process_name", "args": {"name": "/host:CPU"}},
    {"ph": "X", "pid": 3, "tid": 1, "ts": 1.5, "dur": 2.0, "name": "fusion.1", "args": {}},
]


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.nsys-rep", b"NSYS" + BINARY, NSIGHT),
        ("a.qdrep", BINARY, NSIGHT),
        ("a.ncu-rep", b"NVR\0" + BINARY, "is a report of Nsight Compute; record with torch.profiler"),
        ("a.xplane.pb", XPLANE + BINARY, "is a profile of JAX or TensorFlow"),
        ("no-suffix", XPLANE + BINARY, "is a profile of JAX or TensorFlow"),
        ("a.pftrace", PERFETTO + BINARY, "is a Perfetto trace in protobuf; export JSON"),
        ("a.json", PERFETTO + BINARY, "is a Perfetto trace in protobuf; export JSON"),
        ("a.bin", b"ELF" + BINARY, "is a binary file, not JSON"),
        ("et.json", b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}', "is an execution trace"),
        ("legacy.json", json.dumps(LEGACY).encode(), "is an export of the profiler before Kineto"),
        ("jax.json", json.dumps({"traceEvents": OF_JAX}).encode(), "is a trace of JAX or TensorFlow"),
    ],
)
def test_other_tools_files_are_named(tmp_path: Path, name: str, content: bytes, line: str) -> None:
    for path, written in ((tmp_path / name, content), (tmp_path / f"{name}.gz", gzip.compress(content))):
        path.write_bytes(written)
        result = CliRunner().invoke(main, [str(path), "--no-report"])
        (told,) = result.output.strip().splitlines()
        assert line in told
        assert result.exit_code == 2
        assert told.isprintable()


def test_events_of_torch_beside_those_names_are_analysed() -> None:
    process = {"ph": "M", "pid": 100, "tid": 0, "name": "process_name", "args": {"name": "/host:CPU"}}
    assert loaded(process, launched(BUSY, 0, 10, 10, 1)).device_events.height == 1
    assert loaded(op("aten::mm", 0, 5, pid="CPU functions"), launched(BUSY, 0, 10, 10, 1)).device_events.height == 1


# Ranks merged into one file, which write the same number of their device


def ranks(*marks: str, devices: tuple[int, ...] = ()) -> list[Any]:
    """Build a launch and a kernel of each rank, half a millisecond apart, on tracks with the rank's mark before the pid."""
    rows = []
    for n, mark in enumerate(marks):
        device = devices[n] if devices else 0
        called = launch(500 * n, 5, 1, pid=f"{mark}{80 + n}")
        work = kernel(BUSY, 500 * n + 10, 400, correlation=1, device=device) | {"pid": f"{mark}{device}"}
        rows += [called, work, flow(1, called, work)]
    return rows


@pytest.mark.parametrize(
    "marks", [("[TP00] ", "[TP01] "), ("rank0 ", "rank1 ", "rank2 "), ("[TP00-PP00] ", "[TP00-PP01] ")]
)
def test_merged_ranks_with_one_device_number_are_several_devices(marks: tuple[str, ...]) -> None:
    report = analysed(ranks(*marks))
    assert report.tables["devices"].get_column("label").to_list() == [f"{mark}0" for mark in marks]
    assert report.tables["activities"].group_by("device").agg(pl.col("duration_ns").sum()).get_column("duration_ns").to_list() == [400_000] * len(marks)  # fmt: skip
    assert report.tables["launches"].get_column("lead_ns").to_list() == [5_000] * len(marks)


@pytest.mark.parametrize(
    ("marks", "devices", "labels"),
    [
        (("[TP00] ", "[TP01] "), (0, 1), ["0", "1"]),  # numbers differ: they stay
        (("[TP00] ",), (), ["0"]),  # one rank
        (("", ""), (), ["0"]),  # no mark
        (("", "[TP01] "), (), ["0", "[TP01] 0"]),  # the first rank has no mark
    ],
)
def test_other_tracks_keep_their_number(marks: tuple[str, ...], devices: tuple[int, ...], labels: list[str]) -> None:
    assert loaded(ranks(*marks, devices=devices)).devices.get_column("label").to_list() == labels


def unmarked(
    tracks: tuple[int, ...], apart: float = 500, correlations: tuple[int, ...] = (1, 1), **header: Any
) -> Trace:
    """Load the work of two processes on tracks with these numbers, which both write stream 7 of device 0."""
    return loaded([
        [launch(apart * n, 2, correlation, pid=80 + n), kernel(BUSY, apart * n + 10, 400, correlation=correlation) | {"pid": track}]
        for n, (track, correlation) in enumerate(zip(tracks, correlations, strict=True))
    ], **header)  # fmt: skip


TWICE = {"deviceProperties": [A100, A100]}


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ({"tracks": (1000, 1001)}, ["1000/0", "1001/0"]),  # by the processes of their tracks
        ({"tracks": (0, 1000), "apart": 5}, ["0", "1000/0"]),  # also at the same time on the same stream
        ({"tracks": (0, 0), **TWICE}, ["80/0", "81/0"]),  # by the header and who launched them
        ({"tracks": (0, 0), "apart": 5, **TWICE}, ["80/0", "81/0"]),
        ({"tracks": (0, 0), "correlations": (1, 2), **TWICE}, ["80/0", "81/0"]),
        ({"tracks": (0, 0)}, ["0"]),  # two processes may share a device
        ({"tracks": (0, 0), "apart": 5}, ["80/0", "81/0"]),  # a stream runs one kernel at a time
        ({"tracks": (0, 0), "apart": 5, "correlations": (1, 0)}, ["0"]),
        ({"tracks": (0, 0), "correlations": (1, 0), **TWICE}, ["0"]),  # what launched one is not known
    ],
)
def test_ranks_without_marks_are_told_apart_by_processes_and_properties(
    given: dict[str, Any], labels: list[str]
) -> None:
    trace = unmarked(**given)
    assert trace.devices.get_column("label").to_list() == labels
    assert trace.device_events.group_by("device").len().get_column("len").to_list() == [2 // len(labels)] * len(labels)


def test_annotations_of_merged_ranks_are_on_their_device() -> None:
    spans = [event("gpu_user_annotation", "step", 500 * n, 100, pid=1000 + n, tid=7, device=0) for n in range(2)]
    trace = loaded(spans, [kernel(BUSY, 500 * n, 400) | {"pid": 1000 + n} for n in range(2)])
    assert trace.device_annotations.get_column("device").to_list() == trace.device_events.get_column("device").to_list()
