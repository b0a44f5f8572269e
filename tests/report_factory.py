"""Build reports from literal frames: small, complete, and with names that try to become markup."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

import polars as pl
from msgspec.structs import replace

from trace_analyzer import errors, registry, schema, verdict
from trace_analyzer.analyses.idle import cause_table
from trace_analyzer.analysis import Analysis
from trace_analyzer.report import (
    SCHEMA_VERSION,
    Advice,
    Blame,
    BucketTime,
    Check,
    CheckStatus,
    DeclaredTable,
    DeviceInfo,
    DeviceReport,
    Evidence,
    Gaps,
    HostCost,
    LaunchLead,
    Recorded,
    Regime,
    Report,
    RunAhead,
    Saving,
    Shares,
    Status,
    StepReport,
    TimeWeighted,
    TraceInfo,
    Verdict,
    Window,
)

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '"onmouseover="alert(3)',
    "${7*7}{{7*7}}",
)

Rows = Sequence[Mapping[str, Any]]
_PARTS = {"compute": 40, "memory": 20, "python": 30, "launch-latency": 10}
"""Microseconds of each part for a kernel."""


def _declared() -> tuple[DeclaredTable, ...]:
    """Return the declared analyses that outputs show."""
    shown = (a for a in registry.ANALYSES if isinstance(a, Analysis) and (a.json is not None or a.section is not None))
    return tuple(DeclaredTable(analysis.table, analysis.json, analysis.section) for analysis in shown)


def frame(table: schema.Table, rows: Rows = ()) -> pl.DataFrame:
    """Build a frame of the table's schema; columns that a row leaves out are null."""
    return pl.DataFrame(list(rows), schema=table.schema) if rows else table.empty()


def frames(**rows: Rows) -> dict[str, pl.DataFrame]:
    """Build all tables of a report; those not named are empty."""
    return _empty() | {table.name: frame(table, rows[table.name]) for table in registry.TABLES if table.name in rows}


@cache
def _empty() -> dict[str, pl.DataFrame]:
    return {table.name: table.empty() for table in registry.TABLES}


def empty_report(
    status: Status = "no-gpu-activity", headline: str = "Nothing ran on a GPU in this trace.", **rows: Rows
) -> Report:
    """Build a report without devices: no regime and no advice, only the given rows."""
    return Report(
        declared=_declared(), schema_version=SCHEMA_VERSION, tool_version="0.1.0", trace=_trace(devices=()),
        trust=(_check("lost_events", None, "ok", 0, "events"),),
        notes=(errors.Note("no-gpu", "warning", "Record with ProfilerActivity.CUDA to see the device."),),
        verdict=verdict.without_regime(status, headline), devices=(), steps=(), blame=(), host_costs=(), advice=(),
        tables=frames(**rows),
    )  # fmt: skip


@cache
def cpu_report() -> Report:
    """Build the report on a trace of the CPU alone: nested operators on one thread."""
    return empty_report(threads=[_thread(0, "main")], host_events=_host_events(kernels=0))


@cache
def gpu_report(kernels: int = 12, devices: int = 1) -> Report:
    """Build a report on devices whose kernels of 60 us start every 100 us, each launched 4 us before."""
    parts = {name: us * 1_000 * kernels for name, us in _PARTS.items()}
    tables = frames(**_gpu_tables(kernels, devices))
    capture = Advice(
        "Capture the step in a CUDA graph", "Launches cost 30 % of the step.", f"aten::mm in {HOSTILE[2]}",
        "g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n    step()", 360_000, "All idle time whose cause is the host.",
        Saving(360_000, 0.3, 360_000, 0.3, has_steps=False), 100_000, 400_000,
    )  # fmt: skip
    judged = Verdict(
        status="ok", regime="overhead-bound", runner_up="compute-bound", cause="launch", confidence="medium",
        confidence_why=("only two steady steps", "shapes were not recorded"), device=0,
        window=Window("steady", ((0, 100_000 * kernels),), (1, 2)), shares=Shares(0.4, 0.2, 0, 0, 0, 0, 0.4), parts_ns=parts,
        headline="Overhead-bound: the GPU waits for Python 30 % of the time.",
        evidence=(
            Evidence("busy_ratio", 0.6, "ratio", "A GPU that waits cannot be sped up by faster kernels."),
            Evidence("median_gap_ns", 40_000, "ns", "Longer than a launch takes."),
            Evidence("hostile", HOSTILE[1], "", HOSTILE[2]),
        ),
    )  # fmt: skip
    late = Blame(
        "python", "aten::add", "Net_0/Linear_1", "net.py(12): forward", None, "forward", 300_000, 90_000, 120_000
    )
    waited = HostCost(
        "synchronization", ".item()", "cudaStreamSynchronize", "DtoH (Device -> Pageable)", "aten::item", None, "net.py(30): step",
        3, 40_000, 10_000, 20_000, 5_000, 18_000,
    )  # fmt: skip
    return replace(
        empty_report(),
        trace=_trace(devices=tuple(DeviceInfo(i, "NVIDIA H100 80GB HBM3", "H100 SXM") for i in range(devices))),
        trust=(
            _check("link_coverage", 0, "fail", 0.4, withholds=("run_ahead",)),
            _check("lost_events", None, "warn", 12, "events"),
            _check("graph_share", 0, "ok", 0.0),
        ),
        notes=(
            errors.Note("few-steps", "info", "Only two steps are steady."),
            errors.Note("hostile", "warning", f"odd name {HOSTILE[0]}"),
        ),
        verdict=judged,
        devices=tuple(_device(index, kernels, parts) for index in range(devices)),
        steps=_steps(kernels),
        blame=(
            late,
            Blame("launch-latency", None, None, None, None, None, 100_000, 120_000, 130_000),
        ),
        host_costs=(waited,),
        advice=(capture,),
        tables=tables | {"causes": cause_table(tables["idle"])},
    )


@cache
def hostile_report() -> Report:
    """Build a report in which every text from a trace tries to become markup or script."""
    report = gpu_report()
    hostile = {
        name: table.with_columns(
            pl.lit("".join(HOSTILE)).alias(column)
            for column in ("name", "operator", "bucket", "bound", "grid", "label", "tid")
            if column in table.columns
        )
        for name, table in report.tables.items()
    }
    text = "".join(HOSTILE)
    return replace(
        report,
        trace=replace(report.trace, path=f"/tmp/{text}.json", idle_devices=(text,)),
        verdict=replace(
            report.verdict, headline=text, cause=text, confidence_why=(text,), parts_ns={text: 1, "compute": 2}
        ),
        devices=tuple(replace(device, index=text, name=text) for device in report.devices),
        steps=tuple(replace(step, name=text) for step in report.steps),
        trust=tuple(replace(check, name=text, meaning=text, withholds=(text,)) for check in report.trust),
        blame=tuple(
            replace(item, operator=text, module=text, python_function=text, annotation=text) for item in report.blame
        ),
        host_costs=tuple(
            replace(item, source=text, name=text, copy=text, operator=text, python_function=text)
            for item in report.host_costs
        ),
        advice=tuple(
            replace(item, title=text, why=text, where=text, code=text, how_bound=text) for item in report.advice
        ),
        tables=hostile,
    )


def _check(
    name: str,
    device: int | None,
    status: CheckStatus,
    value: float,
    unit: Literal["ratio", "events"] = "ratio",
    withholds: tuple[str, ...] = (),
) -> Check:
    return Check(name, device, status, value, unit, "what it means", withholds)


def _trace(devices: tuple[DeviceInfo, ...]) -> TraceInfo:
    return TraceInfo(
        path="/data/runs/train_step.pt.trace.json.gz", event_count=1234, duration_ns=1_200_000, origin_ns="1700000000000000000",
        base_time_ns=None, rank=None, world_size=None, devices=devices, idle_devices=(),
        recorded=Recorded(shapes=True, stack=True, memory=False, modules=False),
    )  # fmt: skip


def _device(index: int, kernels: int, parts: Mapping[str, int]) -> DeviceReport:
    window, busy = 100_000 * kernels, 60_000 * kernels
    causes = {name: ns for name, ns in parts.items() if name in ("python", "launch-latency")}
    run_ahead = RunAhead(
        "behind", LaunchLead(2_000, 4_000, 9_000), TimeWeighted(0.4, 0, 3), TimeWeighted(9_000.0, 0, 60_000), 0.61
    )
    buckets = (
        BucketTime("matmul", "matmul", kernels // 2, busy * 2 // 3, 2 / 3),
        BucketTime("pointwise", "pointwise", kernels // 2, busy // 3, 1 / 3),
    )
    return DeviceReport(
        index=index, name="NVIDIA H100 80GB HBM3", window_ns=window, busy_ns=busy, idle_ns=window - busy, busy_ratio=busy / window,
        activity_count=kernels, kernel_count=kernels, linked_count=kernels, link_coverage_ratio=1.0, link_coverage_time_ratio=1.0,
        gaps=Gaps(kernels, 40_000, causes), partition_ns=parts, run_ahead=run_ahead, buckets=buckets,
    )  # fmt: skip


def _steps(kernels: int) -> tuple[StepReport, ...]:
    length = 100_000 * kernels // 3
    states: tuple[tuple[Literal["first", "ok"], Regime], ...] = (
        ("first", "compute-bound"), ("ok", "overhead-bound"), ("ok", "overhead-bound"),
    )  # fmt: skip
    return tuple(
        StepReport(
            i, f"ProfilerStep#{i}", i * length, length, 0, length * 6 // 10, length * 4 // 10, regime, state, steady=state == "ok"
        )
        for i, (state, regime) in enumerate(states)
    )  # fmt: skip


def _thread(thread_id: int, name: str | None) -> dict[str, Any]:
    return {"thread_id": thread_id, "process_id": 0, "pid": "100", "tid": str(100 + thread_id), "name": name}


def _host_events(kernels: int) -> list[dict[str, Any]]:
    """Build a step annotation around operators, each with a child, a launch and a Python caller."""
    events: list[dict[str, Any]] = [_host("annotation", "ProfilerStep#0", 0, 100_000 * max(kernels, 4))]
    for i in range(max(kernels, 4)):
        start = 100_000 * i
        events.append(_host("python", "train.py(12): step", start + 1_000, 95_000))
        events.append(_host("operator", "aten::linear", start + 5_000, 80_000))
        events.append(_host("operator", "aten::mm" if i % 2 else "aten::add", start + 10_000, 60_000))
        if i < kernels:
            events.append(_host("runtime", "cudaLaunchKernel", start + 20_000, 6_000, correlation=i + 1))
    ordered = sorted(events, key=lambda event: (event["start_ns"], -event["duration_ns"]))
    return [{**event, "event_id": event_id, "row": event_id} for event_id, event in enumerate(ordered)]


def _host(kind: str, name: str, start_ns: int, duration_ns: int, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "thread_id": 0, "start_ns": start_ns, "duration_ns": duration_ns, **more}


def _gpu_tables(kernels: int, devices: int) -> dict[str, Rows]:
    host = _host_events(kernels)
    launches = [event for event in host if event["kind"] == "runtime"]
    per_device = [(device, i) for device in range(devices) for i in range(kernels)]
    return {
        "threads": [_thread(0, "main")],
        "devices": [{"device": d, "label": str(d), "name": "NVIDIA H100 80GB HBM3"} for d in range(devices)],
        "host_events": host,
        "launches": [
            {**launch, "launch_id": launch["event_id"], "activity_count": 1, "device": 0, "lead_ns": 4_000}
            for launch in launches
        ],
        "activities": [_activity(device, i, launches[i], kernels) for device, i in per_device],
        "gaps": [
            {
                "gap_id": device * kernels + i, "device": device, "start_ns": 100_000 * i + 90_000,
                "end_ns": 100_000 * i + 130_000, "duration_ns": 40_000, "cause": "python",
            }
            for device, i in per_device
            if i < kernels - 1
        ],
        "idle": [
            row for device, i in per_device if i < kernels - 1 for row in _idle(device, device * kernels + i, i, host)
        ],
        "partition": [row for device, i in per_device for row in _partition(device, i)],
        "queue": [
            row
            for device, i in per_device
            for row in (
                {"device": device, "time_ns": 100_000 * i + 26_000, "depth": 1, "queued_work_ns": 60_000},
                {"device": device, "time_ns": 100_000 * i + 30_000, "depth": 0, "queued_work_ns": 0},
            )
        ],
        "kernels": [
            {
                "device": device, "name": _kernel_name(i), "kind": "kernel", "bucket": ("pointwise", "matmul")[i], "bound": "compute",
                "count": kernels // 2, "time_ns": 60_000 * kernels // 2, "median_ns": 60_000.0, "time_ratio": 0.5, "operator": "aten::mm",
            }
            for device in range(devices)
            for i in range(2)
        ],
    }  # fmt: skip


def _kernel_name(i: int) -> str:
    return (
        "ampere_sgemm_128x64_tn"
        if i % 2
        else "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
    )


def _activity(device: int, i: int, launch: Mapping[str, Any], kernels: int) -> dict[str, Any]:
    of_kind = ("pointwise", "memory", "aten::add") if i % 2 == 0 else ("matmul", "compute", "aten::mm")
    return {
        "activity_id": device * kernels + i, "kind": "kernel", "name": _kernel_name(i), "device": device, "stream": 7,
        "start_ns": 100_000 * i + 30_000, "duration_ns": 60_000, "correlation": i + 1, "blocks": 128, "grid": "[128, 1, 1]",
        "block": "[256, 1, 1]", "registers_per_thread": 32, "shared_memory_bytes": 49_152, "launch_id": launch["event_id"],
        "bucket": of_kind[0], "group": of_kind[0], "bound": of_kind[1], "operator": of_kind[2], "lead_ns": 4_000, "flop": 2e9,
        "moved_bytes": 1e6, "row": i,
    }  # fmt: skip


def _idle(device: int, gap_id: int, i: int, host: Rows) -> list[dict[str, Any]]:
    start = 100_000 * i + 90_000
    of_gap = {"gap_id": gap_id, "device": device}
    return [
        {**of_gap, "start_ns": start, "end_ns": start + 30_000, "cause": "python", "event_id": host[1]["event_id"]},
        {**of_gap, "start_ns": start + 30_000, "end_ns": start + 40_000, "cause": "launch-latency"},
    ]


def _partition(device: int, i: int) -> list[dict[str, Any]]:
    start = 100_000 * i + 30_000
    return [
        {"device": device, "start_ns": start, "end_ns": start + 60_000, "part": "compute"},
        {"device": device, "start_ns": start + 60_000, "end_ns": start + 100_000, "part": "python"},
    ]
