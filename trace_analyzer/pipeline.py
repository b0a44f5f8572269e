"""`analyze`: the one place that knows the order in which a trace becomes a report."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from trace_analyzer import tables, thresholds
from trace_analyzer.advice import advise
from trace_analyzer.analyses import backward, causes, idle, kernels, links, operators, partition, run_ahead, steps
from trace_analyzer.catalog.devices import Device, device_named, find_device, with_overrides
from trace_analyzer.errors import UsageError
from trace_analyzer.ingest import DEFAULT_MAX_BYTES, Progress, Source, Trace, load
from trace_analyzer.notes import Note
from trace_analyzer.report import (
    SCHEMA_VERSION,
    Bucket,
    DeviceInfo,
    DeviceReport,
    Evidence,
    Gaps,
    LaunchLead,
    QueueDepth,
    Recorded,
    Report,
    RunAhead,
    Runway,
    StepReport,
    TraceInfo,
    Verdict,
    Window,
)
from trace_analyzer.verdict import Findings, judge, verdict, without_regime
from trace_analyzer.version import tool_version


@dataclass(frozen=True)
class Options:
    """What the caller may choose; `analyze` documents it."""

    device: int | str | None = None
    step: int | str = "steady"
    gpu: str | None = None
    peak_tflops: Mapping[str, float] | None = None
    peak_gbps: float | None = None


def analyze(
    source: Source,
    *,
    device: int | str | None = None,
    step: int | str = "steady",
    gpu: str | None = None,
    peak_tflops: Mapping[str, float] | None = None,
    peak_gbps: float | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    progress: Progress | None = None,
) -> Report:
    """Analyse one trace of PyTorch Profiler.

    Parameters
    ----------
    source: a path, ``"-"`` for standard input, bytes or a binary file; gzip or zstd or plain.
    device: the device to judge, by the file's id; the one with most busy time by default.
    step: ``"steady"``, ``"all"`` (the whole trace) or a step's index: the window of the verdict.
    gpu: name of a device of the catalogue, instead of the one in the file's header.
    peak_tflops: dtype -> dense peak in TFLOP/s, instead of the catalogue's; key ``""`` is for all.
    peak_gbps: memory bandwidth in GB/s, instead of the catalogue's.
    max_bytes: limit on the decompressed size of the source.
    progress: called with (stage, fraction or None).

    Raises ``InputError`` when the source is no readable trace and ``UsageError`` for a device, step or
    GPU that does not exist.
    """
    options = Options(device, step, gpu, peak_tflops, peak_gbps)
    trace = load(source, max_bytes=max_bytes, progress=progress)
    if progress is not None:
        progress("analysing", None)
    return report_of(trace, options)


def report_of(trace: Trace, options: Options | None = None) -> Report:
    """The report of a loaded trace."""
    options = options or Options()
    models = _models(trace, options)
    analysis = _analysis(trace, models)
    frames = analysis.frames
    reports = tuple(_device_report(row, frames) for row in trace.devices.iter_rows(named=True))
    info = _trace_info(trace, models)
    codes = dict(zip(trace.devices.get_column("device"), reports, strict=True))
    code = _judged_device(codes, options.device)
    judged = (
        _without_activities(trace)
        if code is None
        else _verdict(code, codes[code], analysis, info, models, options, breaks_off=_breaks_off(trace))
    )
    return Report(
        schema_version=SCHEMA_VERSION,
        tool_version=tool_version(),
        trace=info,
        notes=(*trace.notes, *analysis.notes, *_unlinked_notes(reports)),
        verdict=judged,
        devices=reports,
        steps=_step_reports(frames["steps"], trace),
        advice=advise(judged, frames, code, None if code is None else models.get(code)),
        tables={table.name: frames[table.name] for table in tables.ALL},
    )


@dataclass(frozen=True)
class Analysis:
    """All tables by name (those of the report and a few per device), and what the analyses say beside them."""

    frames: Mapping[str, pl.DataFrame]
    notes: tuple[Note, ...]
    launch_latency_ns: int
    steps_from: str | None


def _analysis(trace: Trace, models: Mapping[int, Device | None]) -> Analysis:
    """Every analysis, in the order in which they follow from each other."""
    linked, notes = links.launch_links(trace)
    activities = _activities(trace, linked, models)
    windows = idle.device_windows(activities)
    gaps = idle.idle_gaps(activities)
    latency_ns = causes.launch_latency_ns(activities, gaps)
    idle_pieces = causes.idle_causes(trace, activities, gaps, latency_ns)
    pieces = partition.partition(activities, idle_pieces)
    marks, steps_from = steps.host_steps(trace, activities)
    launches = links.launches(trace, activities)
    queue = run_ahead.queue_depths(activities)
    frames = {
        "windows": windows,
        "queue_statistics": run_ahead.queue_statistics(queue, windows),
        "leads": run_ahead.lead_quantiles(launches),
        "activities": tables.ACTIVITIES.conform(activities),
        "launches": launches,
        "gaps": causes.gap_table(gaps, idle_pieces, activities),
        "idle": idle_pieces,
        "partition": pieces,
        "steps": _with_regimes(steps.device_steps(marks, activities), pieces),
        "queue": queue,
        "kernels": kernels.kernel_table(activities),
        "operators": operators.operator_table(trace, activities, launches),
        "backward_links": backward.backward_links(trace),
        "devices": trace.devices,
        "threads": trace.threads,
        "host_events": trace.host_events,
        "operator_inputs": trace.operator_inputs,
        "sync_events": trace.sync_events,
        "flows": trace.flows,
        "memory_events": trace.memory_events,
    }
    return Analysis(frames, notes, latency_ns, steps_from)


def _activities(trace: Trace, linked: pl.DataFrame, models: Mapping[int, Device | None]) -> pl.DataFrame:
    """Device events with launch, operator, bucket, work and bound: table `activities` and a few more columns."""
    calls = (
        trace.host_events.join(
            trace.threads.select("thread_id", "process_id"), on="thread_id", how="left", maintain_order="left"
        )
        .select(
            pl.col("event_id").alias("launch_id"),
            pl.col("name").alias("launch_name"),
            "process_id",
            pl.col("thread_id").alias("launch_thread"),
            pl.col("start_ns").alias("launch_start_ns"),
            (pl.col("start_ns") + pl.col("duration_ns")).alias("launch_end_ns"),
        )
        .join(linked.select("launch_id").unique(), on="launch_id", how="semi", maintain_order="left")
    )
    operator = links.operators_of(
        trace,
        calls.select(
            "launch_id", pl.col("launch_thread").alias("thread_id"), pl.col("launch_start_ns").alias("start_ns")
        ),
    ).select("launch_id", "operator_id", "operator")
    activities = (
        trace.device_events.join(linked, on="activity_id", how="left", maintain_order="left")
        .join(calls, on="launch_id", how="left", maintain_order="left")
        .join(operator, on="launch_id", how="left", maintain_order="left")
        .with_columns((pl.col("start_ns") - pl.col("launch_end_ns")).alias("lead_ns"))
    )
    activities = kernels.with_buckets(kernels.with_blocks(activities))
    activities = kernels.with_work(activities, trace.operator_inputs)
    return kernels.with_bounds(activities, models)


def _models(trace: Trace, options: Options) -> dict[int, Device | None]:
    """Device code -> its row of the catalogue, by the header's properties or as the caller says."""
    chosen = device_named(options.gpu) if options.gpu else None
    known = {entry.index: entry for entry in trace.header.devices}
    alike = {(e.name, e.memory_bytes, e.compute_capability, e.sm_count, e.warp_size) for e in known.values()}
    models: dict[int, Device | None] = {}
    for code, label, name in trace.devices.iter_rows():
        entry = known.get(label) or (trace.header.devices[0] if len(alike) == 1 else None)
        found = (
            None
            if entry is None
            else find_device(
                name or entry.name,
                sm_count=entry.sm_count or None,
                memory_bytes=entry.memory_bytes or None,
                compute_capability=entry.compute_capability,
                warp_size=entry.warp_size or None,
            )
        )
        models[code] = with_overrides(chosen or found, options.peak_tflops or {}, options.peak_gbps)
    return models


def _with_regimes(table: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Steps with the regime that each one's own partition says."""
    windows = table.filter(pl.col("start_ns") < pl.col("end_ns")).select("device", "index", "start_ns", "end_ns")
    sums = partition.part_sums(pieces, windows, ["device", "index"])
    rows = []
    for (device, index), part in sums.partition_by("device", "index", as_dict=True).items():
        judgement = judge(dict(part.select("part", "time_ns").iter_rows()))
        rows.append((device, index, judgement and judgement.regime))
    found = pl.DataFrame(rows, schema={"device": pl.Int64, "index": pl.Int64, "regime": pl.String}, orient="row")
    return tables.STEPS.conform(
        table.drop("regime").join(found, on=["device", "index"], how="left", maintain_order="left")
    )


def _index(label: str) -> int | str:
    """The id of a device as the report writes it: an int where the file's is a plain number."""
    return int(label) if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", label) else label


def _trace_info(trace: Trace, models: Mapping[int, Device | None]) -> TraceInfo:
    worked = set(trace.devices.get_column("label"))
    return TraceInfo(
        path=trace.path,
        event_count=trace.event_count,
        duration_ns=trace.duration_ns,
        origin_ns=str(trace.origin_ns),
        base_time_ns=trace.header.base_time_ns,
        rank=trace.header.rank,
        world_size=trace.header.world_size,
        devices=tuple(
            DeviceInfo(_index(label), name, model.name if (model := models.get(code)) else None)
            for code, label, name in trace.devices.iter_rows()
        ),
        idle_devices=tuple(
            f"{entry.index}: {entry.name or 'unnamed'}" for entry in trace.header.devices if entry.index not in worked
        ),
        recorded=_recorded(trace),
    )


def _recorded(trace: Trace) -> Recorded:
    """What the events show to have been recorded, whatever the header says."""
    inputs = trace.operator_inputs
    python = trace.host_events.filter(pl.col("kind") == "python")
    return Recorded(
        shapes=inputs.get_column("input_dims").str.contains(r"\d").any(),
        stack=python.height > 0 or inputs.get_column("call_stack").str.len_chars().gt(0).any(),
        memory=trace.memory_events.height > 0,
        modules=python.get_column("name").str.starts_with("nn.Module").any()
        or inputs.get_column("module_hierarchy").str.len_chars().gt(0).any(),
    )


def _device_report(row: dict[str, Any], frames: Mapping[str, pl.DataFrame]) -> DeviceReport:
    """The figures of one device over the whole trace."""
    this = pl.col("device") == int(row["device"])
    start, end, busy = frames["windows"].filter(this).select("start_ns", "end_ns", "busy_ns").row(0)
    activities = frames["activities"].filter(this)
    linked = activities.filter(pl.col("launch_id").is_not_null())
    gaps = frames["gaps"].filter(this)
    idle_ns = frames["idle"].filter(this)
    length = pl.col("end_ns") - pl.col("start_ns")
    parts = frames["partition"].filter(this).group_by("part").agg(length.sum())
    total_time = _total_ns(activities)
    return DeviceReport(
        index=_index(row["label"]),
        name=row["name"],
        window_ns=end - start,
        busy_ns=busy,
        idle_ns=end - start - busy,
        busy_ratio=busy / (end - start) if end > start else None,
        activity_count=activities.height,
        kernel_count=activities.filter(pl.col("kind") == "kernel").height,
        linked_count=linked.height,
        link_coverage_ratio=linked.height / activities.height if activities.height else None,
        link_coverage_time_ratio=_total_ns(linked) / total_time if total_time else None,
        gaps=Gaps(
            gaps.height,
            int(gaps.select(pl.col("duration_ns").max().fill_null(0)).item() or 0),
            _ordered(idle_ns.group_by("cause").agg(length.sum()), causes.CAUSES),
        ),
        partition_ns=_ordered(parts, partition.PARTS),
        run_ahead=_run_ahead(this, frames, busy / (end - start) if end > start else 0.0),
        buckets=_buckets(activities),
    )


def _ordered(sums: pl.DataFrame, order: tuple[str, ...]) -> dict[str, int]:
    """All keys of ``order``, in order, with their sums."""
    known = dict(sums.iter_rows())
    return {key: int(known.get(key, 0)) for key in order}


def _run_ahead(this: pl.Expr, frames: Mapping[str, pl.DataFrame], busy_ratio: float) -> RunAhead:
    leads = frames["leads"].filter(this).to_dicts()
    if not leads:
        return RunAhead(
            None, LaunchLead(None, None, None), QueueDepth(None, None, None), Runway(None, None, None), None
        )
    lead, queue = leads[0], frames["queue_statistics"].filter(this).to_dicts()[0]
    return RunAhead(
        run_ahead.run_ahead_state(busy_ratio, queue["empty_queue_ratio"], lead["lead_p50"], lead["call_p50"]),  # type: ignore[arg-type]
        LaunchLead(lead["lead_p10"], lead["lead_p50"], lead["lead_p90"]),
        QueueDepth(queue["depth_mean"], queue["depth_p50"], queue["depth_max"]),
        Runway(queue["runway_mean"], queue["runway_p50"], queue["runway_max"]),
        queue["empty_queue_ratio"],
    )


def _buckets(activities: pl.DataFrame) -> tuple[Bucket, ...]:
    sums = (
        activities.drop_nulls("bucket")
        .group_by("bucket")
        .agg(
            pl.col("group").mode().sort().first(),
            pl.len().alias("kernel_count"),
            pl.col("duration_ns").sum().alias("time_ns"),
        )
        .with_columns((pl.col("time_ns") / pl.col("time_ns").sum()).fill_nan(0.0).alias("time_ratio"))
        .sort("time_ns", "bucket", descending=[True, False])
    )
    return tuple(
        Bucket(**row) for row in sums.select("bucket", "group", "kernel_count", "time_ns", "time_ratio").to_dicts()
    )


def _step_reports(table: pl.DataFrame, trace: Trace) -> tuple[StepReport, ...]:
    labels = {code: _index(label) for code, label, _ in trace.devices.iter_rows()}
    return tuple(
        StepReport(
            index=row["index"],
            name=row["name"],
            start_ns=row["start_ns"],
            duration_ns=row["end_ns"] - row["start_ns"],
            device=labels[row["device"]],
            busy_ns=row["busy_ns"],
            idle_ns=row["end_ns"] - row["start_ns"] - row["busy_ns"],
            regime=row["regime"],
            state=row["state"],
            steady=row["steady"],
        )
        for row in table.to_dicts()
    )


def _unlinked_notes(reports: tuple[DeviceReport, ...]) -> list[Note]:
    return [
        Note(
            "low-link-coverage",
            "warning",
            f"device {report.index}: only {report.linked_count:,} of {report.activity_count:,} activities have a known"
            " launch; run-ahead and idle causes speak for those only",
            report.activity_count - report.linked_count,
        )
        for report in reports
        if report.link_coverage_ratio is not None and report.link_coverage_ratio < thresholds.GOOD_COVERAGE
    ]


def _verdict(
    code: int,
    report: DeviceReport,
    analysis: Analysis,
    info: TraceInfo,
    models: Mapping[int, Device | None],
    options: Options,
    *,
    breaks_off: bool,
) -> Verdict:
    """The verdict for one device, from the findings in its window."""
    frames = analysis.frames
    this = pl.col("device") == code
    window, spans = _window(frames, this, options.step)
    parts = partition.part_sums(frames["partition"].filter(this), spans, ["device"]).select("part", "time_ns")
    activities = frames["activities"].filter(this)
    table = frames["steps"].filter(this)
    launches = frames["launches"].filter(this)
    launched = launches.height
    return verdict(
        Findings(
            device=report,
            window=window,
            parts_ns=_ordered(parts, partition.PARTS),
            cold_gap_ns=causes.cold_gap_ns(frames["idle"].filter(this), frames["gaps"].filter(this), activities, spans),
            steps_found=table.height,
            launches_per_step=launched / table.height if table.height else None,
            recorded=info.recorded,
            peaks_known=models.get(code) is not None,
            contraction_ratio=_total_ns(activities.filter(pl.col("group") == "matmul")) / max(1, _total_ns(activities)),
            shapes_ratio=_shapes_ratio(activities),
            waits_recorded=causes.first_event_wait_ns(frames["host_events"], frames["sync_events"]) is not None,
            launch_latency_ns=analysis.launch_latency_ns,
            steps_from=analysis.steps_from,
            host_events_per_launch=frames["host_events"].height / launched if launched else None,
            breaks_off=breaks_off,
            flows_missing=launched > 0 and not frames["flows"].get_column("kind").eq("launch").any(),
        )
    )


def _shapes_ratio(activities: pl.DataFrame) -> float | None:
    """Share of matmul-group kernel time whose FLOP and bytes are known: only there can shapes overrule the prior."""
    contractions = activities.filter(pl.col("group") == "matmul")
    total = _total_ns(contractions)
    return _total_ns(contractions.filter(pl.col("flop").is_not_null())) / total if total else None


def _total_ns(frame: pl.DataFrame) -> int:
    return int(frame.select(pl.col("duration_ns").sum()).item())


def _judged_device(codes: Mapping[int, DeviceReport], wanted: int | str | None) -> int | None:
    """Code of the device to judge: the wanted one, else the one with most busy time; None where none worked."""
    if wanted is None:
        return max(codes, key=lambda code: codes[code].busy_ns, default=None)
    for code, report in codes.items():
        if str(report.index) == str(wanted):
            return code
    listed = ", ".join(str(report.index) for report in codes.values()) or "none"
    raise UsageError(f"device {wanted} did no work in this trace; those that did: {listed}")


def _window(frames: Mapping[str, pl.DataFrame], this: pl.Expr, step: int | str) -> tuple[Window, pl.DataFrame]:
    """The verdict's window, and its intervals as (device, start_ns, end_ns)."""
    columns = ["device", "start_ns", "end_ns"]
    table = frames["steps"].filter(this)
    whole = frames["windows"].filter(this).select(columns)
    if step == "all":
        return Window("whole", tuple(whole.select("start_ns", "end_ns").iter_rows()), ()), whole
    if step == "steady":
        steady = table.filter("steady", pl.col("state") == "ok")
        if steady.height < 2 or not table.get_column("steady").any():
            return Window("whole", tuple(whole.select("start_ns", "end_ns").iter_rows()), ()), whole
        touching = (pl.col("start_ns") != pl.col("end_ns").shift(1)).fill_null(True).cum_sum().alias("run")
        spans = (
            steady.with_columns(touching)
            .group_by("device", "run", maintain_order=True)
            .agg(pl.col("start_ns").first(), pl.col("end_ns").last())
            .select(columns)
        )
        steps_in = tuple(steady.get_column("index"))
        return Window("steady", tuple(spans.select("start_ns", "end_ns").iter_rows()), steps_in), spans
    one = table.filter(pl.col("index") == int(step))
    if one.is_empty() or one.row(0, named=True)["end_ns"] <= one.row(0, named=True)["start_ns"]:
        listed = ", ".join(str(i) for i in table.filter(pl.col("activity_count") > 0).get_column("index")) or "none"
        raise UsageError(f"step {step} did no work on this device; steps that did: {listed}")
    spans = one.head(1).select(columns)
    return Window("step", tuple(spans.select("start_ns", "end_ns").iter_rows()), (int(step),)), spans


def _breaks_off(trace: Trace) -> bool:
    """Whether events of the file are known to be lost."""
    return any(note.code == "truncated" for note in trace.notes)


def _without_activities(trace: Trace) -> Verdict:
    """Why a trace without device activities has no regime, and what to record instead."""
    calls = trace.host_events.filter(
        pl.col("kind").is_in(["runtime", "driver"]) & pl.col("name").str.contains(links.LAUNCHING)
    ).height
    ranges = sum(note.count for note in trace.notes if note.code == "profiler-range")
    evidence = (
        Evidence("launch_calls", calls, "calls", "runtime calls that enqueue device work"),
        Evidence("host_events", trace.host_events.height, "events", "events recorded on the CPU"),
    )
    if trace.unsupported:
        kinds = ", ".join(f"{category} ({n:,})" for category, n in trace.unsupported.items())
        return without_regime(
            "unsupported-accelerator",
            f"The device events of this trace cannot be accounted for: {kinds}."
            " Traces with kernel, gpu_memcpy and gpu_memset events (CUDA, ROCm, XPU) can.",
            evidence,
        )
    if _breaks_off(trace):
        return without_regime(
            "gpu-timeline-missing" if calls else "no-gpu-activity",
            f"What can be read of this trace has {calls:,} launches and no GPU activity, but the file breaks off:"
            " GPU events may have stood behind that. Export or copy it again.",
            evidence,
        )
    if calls:
        why = (
            f"only {ranges:,} profiler ranges (hardware counters) were recorded"
            if ranges
            else "CUPTI (or roctracer) was not available, was in use by another tool, or may not be used by this user"
        )
        return without_regime(
            "gpu-timeline-missing",
            f"The trace has {calls:,} launches but no GPU activity: {why}."
            " Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] and no other profiler attached.",
            evidence,
        )
    return without_regime(
        "no-gpu-activity",
        "The trace has no GPU activity and no launches: this is a CPU-only run."
        " To judge a GPU workload, record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
        evidence,
    )


__all__ = ["Options", "analyze", "report_of"]
