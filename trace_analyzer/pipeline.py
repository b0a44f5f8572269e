"""`analyze`: the one place that knows the order in which a trace becomes a report."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import polars as pl

from trace_analyzer import tables, thresholds, units
from trace_analyzer.advice import WindowTables, advise, surroundings
from trace_analyzer.analyses import (
    article_groups,
    backward,
    blame,
    causes,
    communication,
    consistency,
    context,
    copies,
    fusion,
    host_costs,
    idle,
    kernel_bounds,
    links,
    modules,
    operators,
    partition,
    profiler_overhead,
    queue_underruns,
    recomputation,
    roofline,
    run_ahead,
    source,
    steps,
    tensor_cores,
)
from trace_analyzer.analyses.host import CALLS, Host, host_of
from trace_analyzer.analyses.work.sharing import with_work
from trace_analyzer.catalog.arithmetic import arithmetic_of_name
from trace_analyzer.catalog.article import article as article_figures
from trace_analyzer.catalog.calibration import Calibration, known_calibrations, matching, read_calibration
from trace_analyzer.catalog.code import code_of_name
from trace_analyzer.catalog.copy_directions import direction_rules
from trace_analyzer.catalog.devices import Device, device_named, devices, find_device, with_overrides
from trace_analyzer.catalog.fixes import fixes
from trace_analyzer.catalog.fusions import fusions
from trace_analyzer.catalog.host_work import work_of_name
from trace_analyzer.catalog.kernels import CONDITIONS, conditions, decision, rules
from trace_analyzer.catalog.step_marks import marks_of_name
from trace_analyzer.checks import (
    IDLE_CAUSES,
    PARTITION,
    RUN_AHEAD,
    checks,
    failed_reasons,
    is_suppressed,
    suppress_metrics,
    suppress_step_metrics,
    suppressed_metrics,
)
from trace_analyzer.errors import UsageError
from trace_analyzer.frames.intervals import clip, union
from trace_analyzer.frames.lookups import factorize, map_unique, scatter, where_equal
from trace_analyzer.graph import Later, Maker, OnDemand, beside
from trace_analyzer.ingest import DEFAULT_MAX_BYTES, Progress, Source, Trace, load
from trace_analyzer.ingest.trace import DeviceProperties
from trace_analyzer.notes import Note, breaks_off, is_damaged
from trace_analyzer.report import (
    SCHEMA_VERSION,
    Advice,
    Attained,
    Blame,
    Bucket,
    Check,
    Communication,
    Copies,
    DeviceInfo,
    DeviceReport,
    Evidence,
    Fusion,
    Gaps,
    Group,
    HostCost,
    LaunchLead,
    MeasuredRoof,
    QueueDepth,
    Recorded,
    Report,
    RunAhead,
    Runway,
    StepReport,
    TensorCores,
    TraceInfo,
    Verdict,
    Window,
    WorkCoverage,
)
from trace_analyzer.units import NS_PER_MS, percent
from trace_analyzer.verdict import DeviceFindings, Findings, StepVerdict, step_verdict, verdict, without_regime
from trace_analyzer.version import tool_version

TOP_CODE = 20
"""Rows of blame and of host costs that the report itself names; the tables have all."""
_TOP_FUSIONS = 10
"""Fusion opportunities that the report tells of; the table has all."""

_ASIDE = 2
"""Threads beside the one that waits for the verdict: while one of them waits for what another makes, the others go on."""

# Each costs milliseconds, and a damaged file may name a million.
_MAX_DEVICES = 256


@dataclass(frozen=True)
class Options:
    """What the caller may choose; `analyze` documents it."""

    device: int | str | None = None
    step: int | str = "steady"
    gpu: str | None = None
    peak_tflops: Mapping[str, float] | None = None
    peak_gbps: float | None = None
    measured_step_ms: float | None = None
    calibration: str | Path | None = None


def analyze(
    source: Source,
    *,
    device: int | str | None = None,
    step: int | str = "steady",
    gpu: str | None = None,
    peak_tflops: Mapping[str, float] | None = None,
    peak_gbps: float | None = None,
    measured_step_ms: float | None = None,
    calibration: str | Path | None = None,
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
    measured_step_ms: time of a step without the profiler, ms: tells exactly what recording cost; by default
        what the trace itself says, if `trace_analyzer.profile` recorded it.
    calibration: file of ``analyze calibrate`` for the trace's device; by default one in the user's folder
        that was measured on such a device; ``"none"`` for none.
    max_bytes: limit on the decompressed size of the source.
    progress: called with (stage, fraction or None); `trace_analyzer.stages.StageTimer` is one that times the stages.

    Raises ``InputError`` when the source is no readable trace and ``UsageError`` for a device, step or
    GPU that does not exist, or a measured step time where the trace has no steps.
    """
    options = Options(device, step, gpu, peak_tflops, peak_gbps, measured_step_ms, calibration)
    trace = load(source, max_bytes=max_bytes, progress=progress)
    return report_of(trace, options, progress)


def prepare() -> None:
    """Read the catalogues that every report needs, and make expressions of their rules; what asks for these later finds them made."""
    for made in (devices, fixes, fusions, direction_rules, article_figures):
        made()
    for of_name in (work_of_name, code_of_name, marks_of_name, arithmetic_of_name):
        of_name()
    for column in CONDITIONS:
        conditions(column, rules())
    decision(rules())


def report_of(trace: Trace, options: Options | None = None, progress: Progress | None = None) -> Report:
    """The report of a loaded trace. ``progress`` is called with the stages."""
    options, tell = options or Options(), progress or _silent
    calibrations = _calibrations(trace, options)
    listed = _listed(trace, options)
    models = _models(listed, options, calibrations)
    analysis = _analysis(trace, models, options)
    with beside(analysis.aside, _ASIDE):
        return _report(trace, analysis, options, listed, models, calibrations, tell)


def _checks(
    trace: Trace, windows: pl.DataFrame, figures: pl.DataFrame, missing_ratio: float | None, launches: pl.DataFrame
) -> tuple[Check, ...]:
    """Whether the trace supports its figures; see `trace_analyzer.checks`."""
    reported = _reported_devices({"windows": windows, "devices": trace.devices})
    return checks(
        {code: _index(label) for code, label in reported.select("device", "label").iter_rows()},
        figures,
        trace.notes,
        event_count=trace.event_count,
        missing_ratio=missing_ratio,
        launch_arrows=int(trace.flows.select(((pl.col("kind") == "launch") & pl.col("is_start")).sum()).item())
        if launches.height
        else None,
    )


def _silent(stage: str, fraction: float | None) -> None:
    """The progress that nobody asked for."""


@dataclass(frozen=True)
class _Judged:
    """What the verdict is on: the code of the device, and the window with its intervals as (device, start_ns, end_ns)."""

    device: int
    window: Window
    spans: pl.DataFrame


@dataclass(frozen=True)
class Analysis:
    """All tables by name (those of the report and a few per device), and what the analyses say beside them.

    Everything is made when it is first asked for. ``judged`` is what the verdict is on, and ``within`` lies there; both are
    None where no device worked. ``stages`` tells, in order, with what each stage is over; ``aside``
    is what nothing but the verdict waits for, and so can be made beside the rest.
    """

    frames: OnDemand
    host: Later[Host]
    notes: Later[tuple[Note, ...]]
    checks: Later[tuple[Check, ...]]
    blamed: Later[blame.Attribution]
    prices: Later[profiler_overhead.Prices | None]
    inputs: Later[tuple[pl.Series, pl.Series, pl.Series]]
    launch_latency_ns: Later[int]
    judged: Later[_Judged | None]
    within: Later[WindowTables | None]
    steps_from: Later[str | None]
    stages: Mapping[str, Later[Any]]
    aside: tuple[Later[Any], ...]


def _analysis(trace: Trace, models: Mapping[int, Device | None], options: Options) -> Analysis:
    """Every analysis, and which others it follows from."""
    host = Later(lambda: host_of(trace))
    linked = Later(lambda: links.launch_links(trace, host()))
    launched = Later(lambda: _launched(trace, host(), linked()[0]))
    launching = Later(lambda: links.launches(trace, launched()))
    worked = Later(lambda: _worked(trace, host(), launched(), models))
    activities = Later(lambda: worked()[0])
    # Idle time and its causes: those on the host need no more than the launches, so activities are asked for last.
    windows = Later(lambda: idle.device_windows(launched()))
    spaces = Later(lambda: idle.idle_gaps(launched()))
    latency_ns = Later(lambda: causes.launch_latency_ns(host(), launched(), launching(), spaces()))
    calls = Later(lambda: causes.runtime_calls(host(), launched()))
    parents = Later(lambda: context.parents_of(trace))
    pauses = Later(lambda: causes.recording_pauses(trace))
    stretches = Later(lambda: causes.stretches_of(launched(), spaces(), calls(), latency_ns()))
    late = Later(lambda: causes.host_pieces(trace, host(), stretches(), launching(), calls()))
    explained = Later(
        lambda: causes.idle_causes(trace, host(), stretches(), late()[0], calls(), pauses(), launching(), activities())
    )
    sums = Later(lambda: causes.gap_sums(spaces(), explained()))
    streams = Later(lambda: consistency.stream_figures(launched()))
    missing = Later(lambda: consistency.missing_activities_ratio(host(), launching()))
    figures = Later(lambda: consistency.device_figures(sums(), activities(), streams()))
    found = Later(lambda: _checks(trace, windows(), figures(), missing(), launching()))
    of_unknown_cause = Later(lambda: _lacking(trace, found(), IDLE_CAUSES))
    idle_time = Later(lambda: causes.without_causes(explained(), of_unknown_cause()))
    idle_pieces = Later(lambda: causes.with_events(idle_time(), late()[1]))
    gap_sums = Later(lambda: causes.gap_sums(spaces(), idle_time()) if of_unknown_cause() else sums())
    gaps = Later(lambda: causes.gap_table(spaces(), gap_sums(), launched()))
    in_doubt = Later(lambda: pl.col("device").is_in(_lacking(trace, found(), RUN_AHEAD)))
    queue = Later(lambda: run_ahead.queue_depths(launched()).filter(~in_doubt()))
    queue_statistics = Later(lambda: run_ahead.queue_statistics(queue(), windows()))
    launches = Later(lambda: launching().with_columns(pl.when(~in_doubt()).then("lead_ns").alias("lead_ns")))
    busy = Later(lambda: partition.busy_parts(activities()))
    inputs = Later(lambda: _inputs(trace))
    # Steps, and what the host was at
    marks = Later(lambda: steps.host_steps(host(), activities()))
    step_table = Later(lambda: steps.device_steps(marks()[0], launched()))
    backward_links = Later(lambda: backward.backward_links(trace, host()))
    around = Later(lambda: context.contexts(trace, host(), parents(), backward_links()))
    blamed = Later(lambda: blame.blame(trace, host(), idle_pieces(), gaps(), around()))
    costs = Later(lambda: host_costs.host_costs(calls(), activities(), idle_pieces(), around()))
    event_costs = Later(lambda: profiler_overhead.event_costs(host()))
    prices = Later(lambda: profiler_overhead.prices(gaps(), idle_time(), gap_sums(), launches(), host(), event_costs()))
    # What the kernels did
    roofs = Later(lambda: roofline.roofs(activities(), models))
    again = Later(lambda: recomputation.recomputed(trace, host(), activities()))
    rated = Later(lambda: roofline.with_roofs(activities(), roofs(), again()))
    places = Later(lambda: modules.places(host(), launched(), backward_links()))
    module_frames = Later(lambda: modules.module_frames(host()))
    located = Later(lambda: modules.with_module_event(places(), module_frames()))
    of_modules = Later(lambda: modules.activity_modules(module_frames(), located()))
    fusible = Later(lambda: fusion.fusion_runs(trace, host(), activities(), places(), of_modules()))
    missed = Later(lambda: tensor_cores.misses(rated(), models))
    copied = Later(lambda: copies.copy_table(activities()))
    collectives = Later(lambda: communication.collectives(trace, host(), activities()))
    frames: dict[str, pl.DataFrame | Maker] = {
        "windows": windows,
        "rated": rated,
        "activity_modules": of_modules,
        "fusion_runs": fusible,
        "tensor_core_misses": missed,
        "queue_statistics": queue_statistics,
        "leads": lambda: run_ahead.lead_quantiles(launches()),
        "activities": activities,
        "launches": launches,
        "gaps": gaps,
        "idle_causes": idle_time,
        "cold": lambda: causes.cold_idle(idle_time(), gaps(), activities()),
        "idle": idle_pieces,
        "blame": lambda: blame.blame_table(blamed(), step_table(), around()),
        "idle_by": lambda: blame.idle_by(blamed(), step_table()),
        "host_costs": lambda: _told_costs(costs(), of_unknown_cause()),
        "gap_sums": gap_sums,
        "busy": busy,
        "partition": lambda: partition.partition(busy(), idle_time()),
        "steps": step_table,
        "queue": queue,
        "drains": lambda: queue_underruns.drains(queue(), launches(), idle_time(), around()),
        "kernels": lambda: kernel_bounds.kernel_table(activities()),
        "operators": lambda: operators.operator_table(calls(), activities(), launches(), around()),
        "roofs": roofs,
        "roofline": lambda: roofline.roofline_table(rated(), trace.operator_inputs),
        "step_work": lambda: roofline.step_work(rated(), step_table()),
        "operator_work": lambda: roofline.operator_work(rated()),
        "modules": lambda: modules.module_table(module_frames(), rated(), located()),
        "collectives": collectives,
        "communication": lambda: communication.communication_table(collectives()),
        "copies": copied,
        "fusions": lambda: fusion.fusion_table(fusible()),
        "recomputation": lambda: recomputation.recomputation_table(rated(), again(), of_modules()),
        "tensor_cores": lambda: tensor_cores.tensor_core_table(missed(), trace.operator_inputs),
        "backward_links": backward_links,
        "devices": trace.devices,
        "threads": trace.threads,
        "host_events": trace.host_events,
        "operator_inputs": trace.operator_inputs,
        "sync_events": trace.sync_events,
        "device_annotations": trace.device_annotations,
        "flows": trace.flows,
        "memory_events": trace.memory_events,
    }
    made = OnDemand(frames)
    judged = Later(lambda: _judged(made, options))
    within = Later(lambda: None if (place := judged()) is None else surroundings(place.window, made, place.device))
    return Analysis(
        frames=made,
        host=host,
        notes=Later(lambda: (*linked()[1], *worked()[1], *_shared_notes(trace, activities()))),
        checks=found,
        blamed=blamed,
        prices=prices,
        inputs=inputs,
        launch_latency_ns=latency_ns,
        judged=judged,
        within=within,
        steps_from=Later(lambda: marks()[1]),
        stages={"linking launches": launched, "explaining idle time": gaps, "summing up": blamed},
        aside=(
            # What needs no host, no activities and no checks comes first, so that no thread waits for these.
            *(parents, inputs, pauses, around, worked, event_costs, calls, windows, missing, streams, of_modules),
            *(step_table, rated, busy, fusible, collectives, missed, copied, queue_statistics, prices, costs, within),
        ),
    )


def _report(
    trace: Trace,
    analysis: Analysis,
    options: Options,
    listed: Mapping[int, Device | None],
    models: Mapping[int, Device | None],
    calibrations: Mapping[int, Calibration],
    tell: Progress,
) -> Report:
    """What the analyses come to."""
    frames = analysis.frames
    for stage, made in analysis.stages.items():
        tell(stage, None)
        made()
    tell("judging", None)
    found = analysis.checks()
    devices = _reported_devices(frames)
    measured = {row["device"]: _device_report(row, frames) for row in devices.iter_rows(named=True)}
    codes = {
        code: _with_attained(suppress_metrics(report, found), _attained(code, frames, listed, models, calibrations))
        for code, report in measured.items()
    }
    reports = tuple(codes.values())
    info = _trace_info(trace, _recorded(trace, analysis.host(), analysis.inputs()), devices, models)
    place = analysis.judged()
    if options.measured_step_ms is None and place is not None:
        options = replace(options, measured_step_ms=_told_step_ms(trace, frames["steps"], place.device))
    of_device = {
        code: _findings(code, report, found, analysis, models.get(code), trace) for code, report in codes.items()
    }
    told = ~pl.col("device").is_in(_lacking(trace, found, PARTITION))
    frames |= frames.each(dict.fromkeys(("busy", "partition"), lambda parts: parts.filter(told)))
    step_table = Later(lambda: _with_verdicts(analysis, of_device, options.measured_step_ms))
    with beside((step_table,)):
        said, blamed, advice = (
            (_without_activities(trace), (), ())
            if place is None
            else _said(
                place, of_device[place.device], replace(analysis, frames=frames), models.get(place.device), options
            )
        )
    return Report(
        schema_version=SCHEMA_VERSION,
        tool_version=tool_version(),
        trace=info,
        trust=found,
        notes=(
            *trace.notes,
            *analysis.notes(),
            *_unreported_notes(trace, devices),
            *_unlinked_notes(reports),
            *_slow_notes(frames, trace),
        ),
        verdict=said,
        devices=reports,
        steps=suppress_step_metrics(_step_reports(step_table(), frames["step_work"], trace), found),
        blame=blamed,
        host_costs=_host_costs(frames["host_costs"]),
        advice=advice,
        tables=(frames | {"steps": step_table}).each({table.name: table.conform for table in tables.ALL}),
        steps_from=analysis.steps_from(),
    )


def _lacking(trace: Trace, found: tuple[Check, ...], metric: str) -> list[int]:
    """Codes of the devices of which a failed check withholds a metric."""
    return [
        code
        for code, label in trace.devices.select("device", "label").iter_rows()
        if is_suppressed(found, _index(label), metric)
    ]


def _told_costs(costs: pl.DataFrame, of_unknown_cause: list[int]) -> pl.DataFrame:
    """Table `host_costs` without what it cost the devices, where the idle time of one of them has no causes."""
    if not of_unknown_cause:
        return costs
    untold = (pl.lit(None, dtype=pl.Int64).alias(column) for column in ("idle_ns", "hidden_ns"))
    return costs.with_columns(untold).sort("host_ns", descending=True, nulls_last=True, maintain_order=True)


def _launched(trace: Trace, host: Host, linked: pl.DataFrame) -> pl.DataFrame:
    """Device events with their launch and its operator."""
    launch_ids = scatter(linked.get_column("activity_id"), linked.get_column("launch_id"), trace.device_events.height)
    calls = host.events.select(
        pl.col("name").alias("launch_name"),
        "process_id",
        pl.col("thread_id").alias("launch_thread"),
        pl.col("start_ns").alias("launch_start_ns"),
        pl.col("end_ns").alias("launch_end_ns"),
    )[launch_ids]
    places = calls.select(pl.col("launch_thread").alias("thread_id"), pl.col("launch_start_ns").alias("start_ns"))
    return (
        trace.device_events.with_columns(launch_ids)
        .hstack(calls)
        .hstack(links.operators_of(host, places).select("operator_id", "operator"))
        .with_columns((pl.col("start_ns") - pl.col("launch_end_ns")).alias("lead_ns"))
    )


def _worked(
    trace: Trace, host: Host, launched: pl.DataFrame, models: Mapping[int, Device | None]
) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """The same with bucket, work and bound (table `activities` and a few more columns), and notes."""
    activities = kernel_bounds.with_buckets(kernel_bounds.with_blocks(launched))
    activities, damaged = with_work(activities, trace, host)
    return kernel_bounds.with_memory_excess(kernel_bounds.with_bounds(activities, models), models), damaged


def _entries(trace: Trace) -> dict[int, DeviceProperties | None]:
    """Device code -> its entry in the header; an id that is not there has the others' when they are all alike."""
    known = {entry.index: entry for entry in trace.header.devices}
    alike = {(e.name, e.memory_bytes, e.compute_capability, e.sm_count, e.warp_size) for e in known.values()}
    shared = trace.header.devices[0] if len(alike) == 1 else None
    return {code: known.get(label) or shared for code, label, _ in trace.devices.iter_rows()}


def _calibrations(trace: Trace, options: Options) -> dict[int, Calibration]:
    """Device code -> what such a device was measured to do, where that is known."""
    if options.calibration == "none" or trace.devices.is_empty():
        return {}
    if options.calibration is not None:
        given = read_calibration(Path(options.calibration))
        return dict.fromkeys(trace.devices.get_column("device"), given)
    measured = known_calibrations()
    found = {
        code: matching(measured, entry.name, entry.sm_count, entry.memory_bytes)
        for code, entry in _entries(trace).items()
        if entry is not None
    }
    return {code: calibration for code, calibration in found.items() if calibration is not None}


def _attained(
    code: int,
    frames: Mapping[str, pl.DataFrame],
    listed: Mapping[int, Device | None],
    models: Mapping[int, Device | None],
    known: Mapping[int, Calibration],
) -> Attained | None:
    """What the device was measured to do, and its kernels against roofs of these figures."""
    calibration = known.get(code)
    if calibration is None:
        return None
    measured = calibration.device(models.get(code))
    activities = frames["activities"].filter(pl.col("device") == code)
    ratios = (
        roofline.roofs(activities, {code: measured})
        .select("activity_id", "roof_ns")
        .drop_nulls()
        .join(activities.select("activity_id", "bucket", "duration_ns"), on="activity_id")
        .drop_nulls("bucket")
        .filter(pl.col("duration_ns") > 0)
        .group_by("bucket")
        .agg(pl.col("roof_ns").sum() / pl.col("duration_ns").sum())
        .sort("bucket")
    )
    return Attained(
        memory_gbps=calibration.memory_gbps,
        peak_tflops=calibration.peak_tflops,
        launch_overhead_ns=calibration.launch_overhead_ns,
        launch_latency_ns=calibration.launch_latency_ns,
        roof_ratio=dict(ratios.iter_rows()),
        roofs=_measured_roofs(activities, models.get(code) if listed.get(code) else None, measured),
    )


def _with_attained(report: DeviceReport, attained: Attained | None) -> DeviceReport:
    """The report with what the device attains; without the shares of buckets that are withheld."""
    if attained is None:
        return report
    told = {bucket.bucket for bucket in report.buckets}
    shares = {bucket: ratio for bucket, ratio in attained.roof_ratio.items() if bucket in told}
    return replace(report, attained=replace(attained, roof_ratio=shares))


def _measured_roofs(
    activities: pl.DataFrame, datasheet: Device | None, measured: Device | None
) -> tuple[MeasuredRoof, ...]:
    """The roofs that kernels of known work met and that were measured: the memory, then those of most time."""
    if measured is None:
        return ()
    met = (
        activities.filter((pl.col("kind") == "kernel") & (pl.col("flop") > 0))
        .drop_nulls("dtype")
        .group_by("dtype", kernel_bounds.on_matrix_units().alias("matrix"))
        .agg(pl.col("duration_ns").sum())
        .sort("duration_ns", "dtype", "matrix", descending=[True, False, False])
    )

    def roof(dtype: str | None, matrix: bool | None) -> MeasuredRoof | None:
        found, listed = (
            None if device is None else device.bandwidth if dtype is None else device.peak_flops(dtype, bool(matrix))
            for device in (measured, datasheet)
        )
        # Equal to the datasheet's to the last digit: not measured.
        return None if found is None or found == listed else MeasuredRoof(dtype, matrix, found, listed)

    pairs = [(None, None), *met.select("dtype", "matrix").iter_rows()]
    return tuple(found for pair in pairs if (found := roof(*pair)) is not None)


def _models(
    listed: Mapping[int, Device | None], options: Options, calibrations: Mapping[int, Calibration]
) -> dict[int, Device | None]:
    """Device code -> what its metrics rest on: the catalogue, else what it was measured to do; and the caller's figures."""
    measured = {code: calibration.device(None) for code, calibration in calibrations.items()}
    return {
        code: with_overrides(device or measured.get(code), options.peak_tflops or {}, options.peak_gbps)
        for code, device in listed.items()
    }


def _listed(trace: Trace, options: Options) -> dict[int, Device | None]:
    """Device code -> its row of the catalogue, by the header's properties or as the caller says."""
    chosen = device_named(options.gpu) if options.gpu else None
    entries = _entries(trace)
    models: dict[int, Device | None] = {}
    for code, _, name in trace.devices.iter_rows():
        entry = entries[code]
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
        models[code] = chosen or found
    return models


def _with_verdicts(
    analysis: Analysis, of_device: Mapping[int, DeviceFindings], measured_step_ms: float | None
) -> pl.DataFrame:
    """Steps with what their own partitions say; ``of_device`` are the findings of each device, by its code."""
    frames = analysis.frames
    table = frames["steps"]
    key = ["device", "index", "window", "activity_count", "busy_ns", "first_ns", "last_ns"]
    edges = (pl.col("start_ns").alias("first_ns"), pl.col("end_ns").alias("last_ns"))
    windows = (
        table.filter(pl.col("start_ns") < pl.col("end_ns"), pl.col("device").is_in(list(of_device)))
        .with_row_index("window")
        .with_columns(edges)
    )
    sums = partition.part_sums(frames["busy"], frames["idle_causes"], windows.select(*key, "start_ns", "end_ns"), key)
    parts: dict[tuple[Any, ...], dict[str, int]] = {}
    for *step, part, ns in sums.iter_rows():
        parts.setdefault(tuple(step), {})[part] = ns
    columns = ["device", "window", "start_ns", "end_ns"]
    spans = windows.select(columns)
    cold = causes.cold_gap_ns(frames["cold"], spans)
    # What a step that did something else took longer than the measured one is not recording.
    usual = spans if measured_step_ms is None else windows.filter(pl.col("state") == "ok").select(columns)
    lengths = {window: (end - start, 1) for _, window, start, end in usual.iter_rows()}
    took = _recording(analysis, usual, lengths, measured_step_ms)
    said = [
        {"device": device, "index": index, **asdict(step_verdict(
            Findings(**vars(of_device[device]), parts_ns=of_step,
                     window=Window("step", ((start, end),), (index,)),
                     cold_gap_ns=cold.get(window, 0), recording=took.get(window), waiting_depth=None),
            activity_count, busy_ns,
        ))}
        for (device, index, window, activity_count, busy_ns, start, end), of_step in parts.items()
    ]  # fmt: skip
    verdicts = [field.name for field in fields(StepVerdict)]
    schema = {"device": pl.Int64(), "index": pl.Int64(), **{name: tables.STEPS.schema[name] for name in verdicts}}
    return tables.STEPS.conform(
        table.drop(verdicts).join(
            pl.DataFrame(said, schema=schema), on=["device", "index"], how="left", maintain_order="left"
        )
    )


def _index(label: str) -> int | str:
    """The id of a device as the report writes it: an int where the file's is a plain number."""
    return int(label) if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", label) else label


def _reported_devices(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Table `devices`, without the least busy ones where there are more than any machine has."""
    busiest = frames["windows"].sort("busy_ns", "device", descending=[True, False]).head(_MAX_DEVICES)
    return frames["devices"].join(busiest, on="device", how="semi", maintain_order="left")


def _unreported_notes(trace: Trace, reported: pl.DataFrame) -> list[Note]:
    more = trace.devices.height - reported.height
    message = f"the trace names {trace.devices.height:,} devices: only the {_MAX_DEVICES} busiest are reported"
    return [Note("many-devices", "warning", message, more)] if more else []


def _trace_info(
    trace: Trace, recorded: Recorded, devices: pl.DataFrame, models: Mapping[int, Device | None]
) -> TraceInfo:
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
            for code, label, name in devices.iter_rows()
        ),
        idle_devices=tuple(
            f"{entry.index}: {entry.name or 'unnamed'}" for entry in trace.header.devices if entry.index not in worked
        ),
        recorded=recorded,
        settings=trace.header.settings,
    )


def _inputs(trace: Trace) -> tuple[pl.Series, pl.Series, pl.Series]:
    """The shapes, call stacks and module hierarchies that operators were recorded with, each once."""
    inputs = (trace.operator_inputs.get_column(c) for c in ("input_dims", "call_stack", "module_hierarchy"))
    shapes, stacks, hierarchies = (column[factorize(column)[1]].cast(pl.String) for column in inputs)
    return shapes, stacks, hierarchies


def _recorded(trace: Trace, host: Host, inputs: tuple[pl.Series, pl.Series, pl.Series]) -> Recorded:
    """What the events show to have been recorded, whatever the header says; ``inputs`` come from `_inputs`."""
    python, (shapes, stacks, hierarchies) = host.names.filter(pl.col("kind") == "python"), inputs
    return Recorded(
        shapes=shapes.str.contains(r"\d").any(),
        stack=python.height > 0 or stacks.str.len_chars().gt(0).any(),
        memory=trace.memory_events.height > 0,
        modules=python.get_column("name").str.starts_with("nn.Module").any() or hierarchies.str.len_chars().gt(0).any(),
    )


def _device_report(row: dict[str, Any], frames: Mapping[str, pl.DataFrame]) -> DeviceReport:
    """The figures of one device over the whole trace."""
    code = int(row["device"])
    this = pl.col("device") == code
    start, end, busy = frames["windows"].filter(this).select("start_ns", "end_ns", "busy_ns").row(0)
    activities, gaps, sums, busy_parts, rated = (
        where_equal(frames[name], "device", code) for name in ("activities", "gaps", "gap_sums", "busy", "rated")
    )
    linked_count = activities.height - activities.get_column("launch_id").null_count()
    caused = sums.group_by("cause").agg(pl.col("idle_ns").sum())
    length = pl.col("end_ns") - pl.col("start_ns")
    parts = busy_parts.group_by("part").agg(length.sum().alias("ns"))
    return DeviceReport(
        index=_index(row["label"]),
        name=row["name"],
        window_ns=end - start,
        busy_ns=busy,
        idle_ns=end - start - busy,
        busy_ratio=busy / (end - start) if end > start else None,
        activity_count=activities.height,
        kernel_count=int(activities.get_column("kind").eq("kernel").sum()),
        linked_count=linked_count,
        link_coverage_ratio=linked_count / activities.height if activities.height else None,
        link_coverage_time_ratio=_time_ratio(activities, pl.col("launch_id").is_not_null()),
        gaps=Gaps(
            gaps.height,
            int(gaps.select(pl.col("duration_ns").max().fill_null(0)).item() or 0),
            _ordered(caused, causes.CAUSES),
        ),
        partition_ns=_ordered(pl.concat([parts, caused.rename({"cause": "part", "idle_ns": "ns"})]), partition.PARTS),
        run_ahead=_run_ahead(this, frames, busy / (end - start) if end > start else 0.0),
        buckets=_buckets(rated),
        groups=_groups(rated),
        mfu=roofline.mfu(rated, end - start),
        hfu=roofline.hfu(rated, end - start),
        recomputed_ns=_total_ns(rated.filter("recomputed")),
        recomputed_flop=rated.filter("recomputed").select(roofline.known_sum("flop")).item(),
        flop_time_ratio=_time_ratio(rated, pl.col("flop").is_not_null()),
        communication=_communication(frames["collectives"].filter(this), busy_parts),
        fusions=tuple(
            Fusion(**row) for row in frames["fusions"].filter(this).drop("device").head(_TOP_FUSIONS).to_dicts()
        ),
        work_coverage=_work_coverage(activities),
        tensor_cores=tuple(
            TensorCores(**row, code=tensor_cores.cure(row["reason"], row["target_dtype"]))
            for row in tensor_cores.by_reason(frames["tensor_cores"].filter(this)).to_dicts()
        ),
        copies=tuple(Copies(**row) for row in copies.copy_sums(frames["copies"].filter(this)).to_dicts()),
    )


def _work_coverage(activities: pl.DataFrame) -> WorkCoverage:
    """Shares of kernel time with known work: of all kernels, and of those whose operator is known."""
    flop, moved = pl.col("flop").is_not_null(), pl.col("moved_bytes").is_not_null()
    known = (flop, moved, moved | (pl.col("flop") > 0))
    kernels = activities.select("kind", "operator_id", "duration_ns", "flop", "moved_bytes").filter(
        pl.col("kind") == "kernel"
    )
    linked = kernels.filter(pl.col("operator_id").is_not_null())
    return WorkCoverage(*_time_ratios(kernels, *known), *_time_ratios(linked, *known))


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


def _buckets(rated: pl.DataFrame) -> tuple[Bucket, ...]:
    sums = article_groups.bucket_work(rated).rename({"count": "kernel_count", "moved_bytes": "bytes"})
    return tuple(Bucket(**row) for row in sums.select(field.name for field in fields(Bucket)).to_dicts())


def _groups(rated: pl.DataFrame) -> tuple[Group, ...]:
    """The article's table of one device, with the article's own figures beside it."""
    told = article_figures().groups
    own = ("article_flop_ratio", "article_time_ratio")
    sums = article_groups.group_work(rated).rename({"count": "kernel_count"})
    return tuple(
        Group(
            **row,
            article_flop_ratio=told[row["group"]].flop_ratio if row["group"] in told else None,
            article_time_ratio=told[row["group"]].time_ratio if row["group"] in told else None,
        )
        for row in sums.select(field.name for field in fields(Group) if field.name not in own).to_dicts()
    )


def _communication(collectives: pl.DataFrame, busy_parts: pl.DataFrame) -> Communication | None:
    """Communication of one device; its exposed time is that of the partition. None without any."""
    if collectives.is_empty():
        return None
    spans = collectives.with_columns((pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"))
    length = pl.col("end_ns") - pl.col("start_ns")
    time_ns = int(union(spans, ["device"]).select(length.sum()).item())
    exposed_ns = int(busy_parts.filter(pl.col("part") == "communication").select(length.sum()).item())
    known = collectives.drop_nulls("bus_byte_per_s")
    known_ns = _total_ns(known)
    moved = float(known.select((pl.col("bus_byte_per_s") * pl.col("duration_ns")).sum()).item())
    return Communication(
        kernel_count=collectives.height,
        time_ns=time_ns,
        exposed_ns=exposed_ns,
        hidden_ns=time_ns - exposed_ns,
        known_ns=known_ns,
        message_bytes=collectives.select(roofline.known_sum("message_bytes")).item(),
        bus_byte_per_s=moved / known_ns if known_ns else None,
    )


def _blame(blamed: blame.Attribution) -> tuple[Blame, ...]:
    """The code that holds most of the idle time of the verdict's window."""
    rows = blame.blamed_code(blamed).head(TOP_CODE).to_dicts()
    return tuple(Blame(**row, call_line=source.call_line(row["python_function"], row["operator"])) for row in rows)


def _host_costs(costs: pl.DataFrame) -> tuple[HostCost, ...]:
    """The costliest rows of table `host_costs`."""
    columns = [field.name for field in fields(HostCost) if field.name in costs.columns]
    rows = costs.drop_nulls("name").select(columns).head(TOP_CODE).to_dicts()
    return tuple(HostCost(**row, call_line=source.call_line(row["python_function"], row["operator"])) for row in rows)


def _step_reports(table: pl.DataFrame, work: pl.DataFrame, trace: Trace) -> tuple[StepReport, ...]:
    labels = {code: _index(label) for code, label, _ in trace.devices.iter_rows()}
    figures = work.select("device", pl.col("step").alias("index"), "flop", "mfu_ratio")
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
            flop=row["flop"],
            mfu=row["mfu_ratio"],
            cause=row["cause"],
            runner_up=row["runner_up"],
            confidence=row["confidence"],
            headline=row["headline"],
            cold_start_ns=row["cold_start_ns"],
            recording_ns=row["recording_ns"],
            unrecorded_regime=row["unrecorded_regime"],
        )
        for row in table.join(figures, on=["device", "index"], how="left", maintain_order="left").to_dicts()
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


def _slow_notes(frames: Mapping[str, pl.DataFrame], trace: Trace) -> list[Note]:
    """Where products of all kinds are about equally far from peak, what that may mean."""
    labels = {code: _index(label) for code, label, _ in trace.devices.iter_rows()}
    return [
        Note(
            "equally-far-from-peak",
            "info",
            f"device {labels[code]}: {count:,} large products of different kinds all reach {percent(lowest)} to"
            f" {percent(highest)} of their peak; what holds them may be common to all: lower clocks (a power or thermal"
            " limit; watch nvidia-smi or rocm-smi during a run), or a peak that is not this device's (--peak-tflops)",
            count,
        )
        for code, count, lowest, _, highest in roofline.equally_slow(
            frames["rated"], frames["operator_inputs"]
        ).iter_rows()
    ]


def _said(
    place: _Judged, of_device: DeviceFindings, analysis: Analysis, model: Device | None, options: Options
) -> tuple[Verdict, tuple[Blame, ...], tuple[Advice, ...]]:
    """The verdict, whose the idle time of its window is, and advice."""
    said = _verdict(place, of_device, analysis, options)
    if said.window is None:
        return said, (), ()
    whose, within = analysis.blamed().within(place.spans), analysis.within()
    assert within is not None  # as a device is judged
    frames, host = analysis.frames, analysis.host()
    return said, _blame(whose), advise(said, place.window, within, frames, whose, host, place.device, model)


def _verdict(place: _Judged, of_device: DeviceFindings, analysis: Analysis, options: Options) -> Verdict:
    """The verdict for one device, from its findings and those in its window."""
    frames, window, spans = analysis.frames, place.window, place.spans
    table = frames["steps"].filter(pl.col("device") == place.device, pl.col("activity_count") > 0)
    lengths = (
        [end - start for start, end in window.intervals]
        if window.steps
        else table.select(pl.col("end_ns") - pl.col("start_ns")).to_series().to_list()
    )
    count = len(window.steps) or table.height
    if options.measured_step_ms is not None and not count:
        raise UsageError("a measured step time needs steps, and this trace has none; call prof.step()")
    one = spans.with_columns(pl.lit(0, dtype=pl.UInt32).alias("window"))
    took = _recording(analysis, one, {0: (sum(lengths), count)}, options.measured_step_ms)
    idle_pieces, queue = (where_equal(frames[name], "device", place.device) for name in ("idle_causes", "queue"))
    told = spans if of_device.parts_withheld is None else spans.clear()
    parts = partition.part_sums(frames["busy"], idle_pieces, told, ["device"]).select("part", "time_ns")
    findings = Findings(
        **vars(of_device),
        window=window,
        parts_ns=_ordered(parts, partition.PARTS),
        cold_gap_ns=causes.cold_gap_ns(frames["cold"], one).get(0, 0),
        recording=took.get(0),
        waiting_depth=_waiting_depth(idle_pieces, queue, spans),
    )
    return verdict(findings)


def _findings(
    code: int,
    report: DeviceReport,
    found: tuple[Check, ...],
    analysis: Analysis,
    model: Device | None,
    trace: Trace,
) -> DeviceFindings:
    """What the verdict looks at of one device, in whatever window."""
    frames = analysis.frames
    activities, launches, table = (
        where_equal(frames[name], "device", code) for name in ("activities", "launches", "steps")
    )
    launched = launches.height
    reasons = {item.metric: item.reason for item in suppressed_metrics(found, report.index)}
    return DeviceFindings(
        device=report,
        steps_found=table.height,
        launches_per_step=launched / table.height if table.height else None,
        peaks_known=model is not None,
        contraction_ratio=_time_ratio(activities, pl.col("group") == "matmul") or 0.0,
        shapes_ratio=_shapes_ratio(activities),
        known_ratio=_known_ratio(activities, pl.col("kind") == "kernel"),
        assumed_peaks=_assumed_peaks(activities, model),
        waits_recorded=causes.first_event_wait_ns(analysis.host(), frames["sync_events"]) is not None,
        launch_latency_ns=analysis.launch_latency_ns(),
        steps_from=analysis.steps_from(),
        set_aside_ratio=_set_aside_ratio(table),
        idle_peak=_idle_peak(activities, model),
        breaks_off=breaks_off(trace.notes),
        damaged=is_damaged(trace.notes),
        failed_checks=failed_reasons(found, report.index),
        parts_withheld=reasons.get(PARTITION),
        causes_withheld=reasons.get(IDLE_CAUSES),
        flows_missing=launched > 0 and not frames["flows"].get_column("kind").eq("launch").any(),
    )


def _waiting_depth(idle_pieces: pl.DataFrame, queue: pl.DataFrame, spans: pl.DataFrame) -> float | None:
    """Mean queue depth while the device waited for something else than the CPU; None where it never did."""
    waits = clip(idle_pieces.filter(pl.col("cause") == "device-wait"), spans, ["device"])
    return run_ahead.depth_within(queue, waits)


def _set_aside_ratio(table: pl.DataFrame) -> float:
    """Share of the time of all steps in those that warm up or are unlike the others, and were set aside."""
    length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
    aside = pl.col("state").is_in(["warm-up", "outlier"]) & ~pl.col("steady")
    return float(table.select(length.filter(aside).sum() / length.sum()).fill_nan(0.0).item() or 0.0)


def _idle_peak(activities: pl.DataFrame, model: Device | None) -> tuple[str, float] | None:
    """The dtype that most kernel time is known to compute in, else the device's common one, with its peak, FLOP/s."""
    known = activities.select("dtype", "duration_ns").drop_nulls("dtype").group_by("dtype").agg(pl.all().sum())
    used = known.sort("duration_ns", "dtype", descending=[True, False]).get_column("dtype").to_list()
    peaks = ((dtype, model.peak_flops(dtype) if model else None) for dtype in (*used, "bf16", "fp16", "fp32"))
    return next(((dtype, peak) for dtype, peak in peaks if peak is not None), None)


def _shared_notes(trace: Trace, activities: pl.DataFrame) -> list[Note]:
    """Hints that other work than this process's may have had a device: then its idle time is only ours."""
    by_device = activities.group_by("device").agg(
        pl.col("context").drop_nulls().n_unique().alias("contexts"),
        pl.col("process_id").drop_nulls().n_unique().alias("processes"),
    )
    labels = trace.devices.select("device", "label")
    shared = by_device.join(labels, on="device").filter(pl.col("contexts").clip(pl.col("processes")) > 1).sort("device")
    notes = [
        Note(
            "shared-device",
            "warning",
            f"device {label} was used from {units.counted(contexts, 'context')} and"
            f" {units.counted(processes, 'process', 'processes')} of this file; more may not be"
            " in it, so idle means only that none of these had work",
            max(contexts, processes),
        )
        for label, contexts, processes in shared.select("label", "contexts", "processes").iter_rows()
    ]
    world, listed = trace.header.world_size, len(trace.header.devices)
    if world is not None and 0 < listed < world and activities.height:
        notes.append(
            Note(
                "more-ranks-than-devices",
                "info",
                f"{units.counted(world, 'rank')}, and {units.counted(listed, 'device')} listed: if ranks share a device, its idle time is only this one's",
                world,
            )
        )
    return notes


def _told_step_ms(trace: Trace, step_table: pl.DataFrame, code: int) -> float | None:
    """The step time without the profiler that the trace itself tells, where the device has steps to compare it with."""
    known = trace.header.settings
    if known is None:
        return None
    steps_with_work = step_table.filter(pl.col("device") == code, pl.col("activity_count") > 0)
    return None if steps_with_work.is_empty() else known.measured_step_ms


def _recording(
    analysis: Analysis, windows: pl.DataFrame, recorded: Mapping[int, tuple[int, int]], measured_step_ms: float | None
) -> dict[int, profiler_overhead.Recording]:
    """What recording took of the idle time of windows: by the measured step time, else as the events tell.

    ``windows`` are (device, window, start_ns, end_ns), ``recorded`` the length and number of each one's steps.
    """
    idle = analysis.frames["idle_causes"]
    if measured_step_ms is not None:
        return profiler_overhead.measured(idle, windows, recorded, round(measured_step_ms * NS_PER_MS))
    prices = analysis.prices()
    return {} if prices is None else profiler_overhead.estimated(prices, windows)


def _shapes_ratio(activities: pl.DataFrame) -> float | None:
    """Share of matmul-group kernel time whose FLOP and bytes are known: only there can shapes overrule the prior."""
    return _known_ratio(activities, pl.col("group") == "matmul")


def _known_ratio(activities: pl.DataFrame, those: pl.Expr) -> float | None:
    """Share of the time of those for which FLOP and bytes are known both."""
    known = pl.col("flop").is_not_null() & pl.col("moved_bytes").is_not_null()
    return _time_ratio(
        activities.select("duration_ns", known.alias("known"), those.alias("those")).filter("those"), pl.col("known")
    )


def _assumed_peaks(activities: pl.DataFrame, model: Device | None) -> str | None:
    """The catalogue's figures that decided bounds, in words: those of dtypes with a tenth of the decided time or more."""
    decided = (
        activities.select(
            "dtype", "duration_ns", "flop", "moved_bytes", kernel_bounds.on_matrix_units().alias("matrix")
        )
        .filter(pl.col("flop") > 0)
        .drop_nulls(["moved_bytes", "dtype"])
    )
    if model is None or decided.is_empty():
        return None
    times = (
        decided.group_by("dtype", "matrix")
        .agg(pl.col("duration_ns").sum())
        .filter(pl.col("duration_ns") >= pl.col("duration_ns").sum() / 10)
        .sort("duration_ns", "dtype", "matrix", descending=[True, False, False])
    )
    peaks = (
        f"{dtype} {units.flops(peak)} ({'matrix' if matrix else 'vector'} units)"
        for dtype, matrix, _ in times.iter_rows()
        if (peak := model.peak_flops(dtype, matrix=matrix)) is not None
    )
    return ", ".join([f"{model.name}: {units.bandwidth(model.bandwidth)}", *peaks])


def _time_ratio(rows: pl.DataFrame, condition: pl.Expr) -> float | None:
    """Share of the rows' time in those that meet the condition; None where they take none."""
    return _time_ratios(rows, condition)[0]


def _time_ratios(rows: pl.DataFrame, *conditions: pl.Expr) -> list[float | None]:
    """The same for each condition."""
    time = pl.col("duration_ns")
    total, *met = rows.select(
        time.sum(), *(time.filter(c).sum().alias(f"met_{i}") for i, c in enumerate(conditions))
    ).row(0)
    return [ns / total if total else None for ns in met]


def _total_ns(frame: pl.DataFrame) -> int:
    return int(frame.get_column("duration_ns").sum())


def _judged(frames: Mapping[str, pl.DataFrame], options: Options) -> _Judged | None:
    """The wanted device, else the one with most busy time, in its window; None where none worked."""
    code = _judged_device(
        _reported_devices(frames).join(frames["windows"], on="device", maintain_order="left"), options.device
    )
    return None if code is None else _Judged(code, *_window(frames, pl.col("device") == code, options.step))


def _judged_device(devices: pl.DataFrame, wanted: int | str | None) -> int | None:
    """Code of the device to judge, one of ``devices`` (device, label, busy_ns); None where none worked."""
    if wanted is None:
        return devices.sort("busy_ns", descending=True, maintain_order=True).get_column("device").first()  # type: ignore[return-value]
    labels = [_index(label) for label in devices.get_column("label")]
    for code, label in zip(devices.get_column("device"), labels, strict=True):
        if str(label) == str(wanted):
            return int(code)
    listed = ", ".join(map(str, labels)) or "none"
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


def _without_activities(trace: Trace) -> Verdict:
    """Why a trace without device activities has no regime, and what to record instead."""
    launching = pl.col("kind").is_in(CALLS) & pl.col("name").str.contains(links.LAUNCHING)
    calls = int(map_unique(trace.host_events.select("kind", "name"), launching).to_series().sum())
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
    if breaks_off(trace.notes):
        return without_regime(
            "gpu-timeline-missing" if calls else "no-gpu-activity",
            f"What can be read of this trace has {units.counted(calls, 'launch', 'launches')} and no GPU activity, but the file breaks off:"
            " GPU events may have stood behind that. Export or copy it again.",
            evidence,
        )
    if calls:
        why = (
            f"only {units.counted(ranges, 'profiler range')} (hardware counters) were recorded"
            if ranges
            else "CUPTI (or roctracer) was not available, was in use by another tool, or may not be used by this user"
        )
        return without_regime(
            "gpu-timeline-missing",
            f"The trace has {units.counted(calls, 'launch', 'launches')} but no GPU activity: {why}."
            " Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] and no other profiler attached.",
            evidence,
        )
    if trace.host_events.is_empty():
        return without_regime(
            "no-gpu-activity",
            "No operator, call or kernel can be read from this trace. Was the profiler active while the model ran?"
            " With a schedule, prof.step() has to be called wait + warmup + active times.",
            evidence,
        )
    if trace.host_events.get_column("kind").eq("other").all():
        return without_regime(
            "no-gpu-activity",
            "None of its events is of a category that PyTorch Profiler writes (cpu_op, cuda_runtime, kernel, ...): another"
            " tool recorded this trace. Export one with prof.export_chrome_trace(...) of torch.profiler.",
            evidence,
        )
    return without_regime(
        "no-gpu-activity",
        "The trace has no GPU activity and no launches: this is a CPU-only run."
        " To judge a GPU workload, record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
        evidence,
    )


__all__ = ["Options", "analyze", "report_of"]
