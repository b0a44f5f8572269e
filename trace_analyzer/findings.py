"""Aggregate tables to the findings that the verdict reads: of a device, of the verdict's window, and of each step."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import polars as pl
from msgspec import Struct

from trace_analyzer import units
from trace_analyzer.analyses import causes, kernel_bounds, partition, profiler_overhead, roofline, run_ahead
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.left_out import LeftOut, RecordedSpan, left_out, ns_in_windows
from trace_analyzer.analyses.profiler_overhead import Prices, ProfilerOverhead
from trace_analyzer.analyses.steps import HostSteps
from trace_analyzer.analysis import CAUSES_OF_IDLE, PARTITION, Value
from trace_analyzer.catalog.devices import Device
from trace_analyzer.checks import doubted_reasons, suppressed_metrics
from trace_analyzer.errors import UNIT, UsageError, breaks_off, is_damaged
from trace_analyzer.frames.intervals import LENGTH_NS, clip, cut_out, filter_inside
from trace_analyzer.frames.lookups import where_equal
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.report import BoundShare, Check, DeviceReport, Window
from trace_analyzer.units import NS_PER_MS
from trace_analyzer.vocabulary import PARTS
from trace_analyzer.windows import Judged


class DeviceFindings(NamedTuple):
    """The findings on a device, whatever the window.

    ``model`` is its row of the catalogue. ``known_ratio`` is the share of kernel time with known FLOP and bytes,
    ``work_ratio`` the share with at least one of them known. ``parts_withheld`` and ``causes_withheld`` are the reasons
    why the trace supports no partition or no causes of idle time; null where it does. ``profiler`` is that of the
    header. ``peer_wait_ratio`` is the share of exposed communication that may be waiting for other ranks; null in a job
    of one.
    """

    report: DeviceReport
    step_count: int
    launches_per_step: float | None
    peaks_known: bool
    matmul_ratio: float
    shapes_ratio: float | None
    known_ratio: float | None
    assumed_peaks: str | None
    waits_recorded: bool
    launch_latency_ns: int
    steps_from: str | None
    idle_peak: tuple[str, float] | None
    profiler: str | None
    flows_missing: bool
    breaks_off: bool
    damaged: bool
    unit_doubted: bool
    model: Device | None = None
    work_ratio: float | None = 1.0
    doubted_checks: tuple[str, ...] = ()
    parts_withheld: str | None = None
    causes_withheld: str | None = None
    peer_wait_ratio: float | None = None


class Findings(NamedTuple):
    """The findings on the verdict's window: device, window and partition, also of each of its steps.

    ``waiting_depth`` is the mean queue depth in idle time with a cause other than the CPU, None without such time;
    ``loading_behind_waits_ns`` is the idle time after waits in which data was loading.
    """

    device: DeviceFindings
    window: Window
    parts_ns: Mapping[str, int]
    cold_gap_ns: int
    recording: ProfilerOverhead | None
    waiting_depth: float | None
    bounds: tuple[BoundShare, ...] = ()
    left_out: LeftOut | None = None
    steps_ns: tuple[Mapping[str, int], ...] = ()
    loading_behind_waits_ns: int = 0


class StepFindings(Struct, frozen=True):
    """The findings on a step: its device, its number, and its count of activities."""

    findings: Findings
    device: int
    index: int
    activity_count: int
    busy_ns: int


def device_findings(
    trace: Trace,
    host: Host,
    host_steps: HostSteps,
    activities: pl.DataFrame,
    launches: pl.DataFrame,
    device_steps: pl.DataFrame,
    launch_latency_ns: int,
    communication: pl.DataFrame,
    device_models: Mapping[int, Device | None],
    checks: tuple[Check, ...],
    device_reports: Mapping[int, DeviceReport],
) -> Mapping[int, DeviceFindings]:
    """Return the findings of each device, by its code."""
    has_flows = trace.flows.get_column("kind").eq("launch").any()

    def of_device(code: int, report: DeviceReport) -> DeviceFindings:
        own, launched, steps, sent = (
            where_equal(frame, "device", code) for frame in (activities, launches, device_steps, communication)
        )
        reasons = {item.metric: item.reason for item in suppressed_metrics(checks, report.index)}
        model, steady = device_models.get(code), steps.filter("steady")
        in_steps = filter_inside(own, "start_ns", steady, ["device"]).get_column("launch_id").drop_nulls().n_unique()
        kernels, profiler = own.filter(pl.col("kind") == "kernel"), trace.header.profiler
        return DeviceFindings(
            report=report,
            step_count=steps.height,
            launches_per_step=in_steps / steady.height if steady.height else None,
            peaks_known=model is not None and not model.assumed,
            matmul_ratio=time_ratio(own, pl.col("group") == "matmul") or 0.0,
            # Shapes can overrule the prior for these kernels only.
            shapes_ratio=_known_ratio(own, pl.col("group") == "matmul"),
            known_ratio=_known_ratio(own, pl.col("kind") == "kernel"),
            assumed_peaks=_assumed_peaks(own, model),
            waits_recorded=causes.first_event_wait_ns(host, trace.sync_events) is not None,
            launch_latency_ns=launch_latency_ns,
            steps_from=host_steps.source if steady.height else None,
            idle_peak=_idle_peak(own, model),
            breaks_off=breaks_off(trace.notes),
            damaged=is_damaged(trace.notes),
            unit_doubted=any(note.code == UNIT for note in trace.notes),
            model=model,
            work_ratio=time_ratio(kernels, pl.col("moved_bytes").is_not_null() | (pl.col("flop") > 0).fill_null(False)),
            doubted_checks=doubted_reasons(checks, report.index),
            parts_withheld=reasons.get(PARTITION),
            causes_withheld=reasons.get(CAUSES_OF_IDLE),
            profiler=profiler,
            flows_missing=profiler is None and launched.height > 0 and not has_flows,
            peer_wait_ratio=_peer_wait_ratio(sent, trace.header.world_size),
        )

    return {code: of_device(code, report) for code, report in device_reports.items()}


def _peer_wait_ratio(communication: pl.DataFrame, world_size: int | None) -> float | None:
    """Return the share of exposed collectives that their link does not explain: at most it waits for other ranks.

    Where the message or the link is not known, that is all of it. None without another rank.
    """
    sizes = communication.get_column("group_size")
    if (world_size or sizes.max() or 1) < 2:  # type: ignore[operator]
        return None
    needed = (pl.col("bus_byte_per_s") / pl.col("link_byte_per_s")).clip(0, 1).fill_null(0)
    waits = pl.when((pl.col("group_size") >= 2).fill_null(True)).then(pl.col("exposed_ns") * (1 - needed)).otherwise(0)
    exposed, waiting = communication.select(pl.col("exposed_ns").sum(), waits.sum().alias("waits")).row(0)
    return waiting / exposed if exposed else None


def window_parts(judged: Judged | None, busy_parts: pl.DataFrame, idle_causes: pl.DataFrame) -> pl.DataFrame:
    """Return device, part, time_ns: the partition of the verdict's window."""
    if judged is None:
        return pl.DataFrame(schema={"device": pl.Int64, "part": pl.String, "time_ns": pl.Int64})
    idle = where_equal(idle_causes, "device", judged.device)
    return partition.part_sums(busy_parts, idle, judged.spans, ["device"])


class WindowSources(NamedTuple):
    """The values from which window findings are made."""

    windows: pl.DataFrame
    device_steps: pl.DataFrame
    busy_parts: pl.DataFrame
    idle_causes: pl.DataFrame
    cold_idle: pl.DataFrame
    loading_behind_waits: pl.DataFrame
    queue: pl.DataFrame
    rated: pl.DataFrame
    recording_prices: Prices | None
    measured_step_ms: float | None
    recorded_span: RecordedSpan | None


def window_findings(
    judged: Judged | None,
    device_findings: Mapping[int, DeviceFindings],
    window_parts: pl.DataFrame,
    step_parts: Mapping[tuple[int, int], Mapping[str, int]],
    window_sources: WindowSources,
) -> Findings | None:
    """Return the findings of the verdict's window; None where no device did any work.

    Raises ``UsageError`` for a measured step time where the device has no steps.
    """
    if judged is None:
        return None
    sources, window, spans = window_sources, judged.window, judged.spans
    steps = sources.device_steps.filter(pl.col("device") == judged.device, pl.col("activity_count") > 0)
    lengths = (
        [end - start for start, end in window.intervals]
        if window.steps
        else steps.select(LENGTH_NS).to_series().to_list()
    )
    count = len(window.steps) or steps.height
    if sources.measured_step_ms is not None and not count:
        raise UsageError("a measured step time needs steps, and this trace has none; call prof.step()")
    one = spans.with_columns(pl.lit(0, dtype=pl.UInt32).alias("window"))
    idle, queue = (where_equal(frame, "device", judged.device) for frame in (sources.idle_causes, sources.queue))
    rated = filter_inside(where_equal(sources.rated, "device", judged.device), "start_ns", spans, ["device"])
    parts, device = ordered(window_parts.select("part", "time_ns"), PARTS), device_findings[judged.device]
    recording = _recordings(sources, one, {0: (sum(lengths), count)}).get(0)
    return Findings(
        device=device,
        window=window,
        parts_ns=parts,
        cold_gap_ns=ns_in_windows(sources.cold_idle, one).get(0, 0),
        recording=recording and recording.with_waits(_waits_ns(device, parts)),
        waiting_depth=run_ahead.depth_within(
            queue, clip(idle.filter(pl.col("cause") == "device-wait"), spans, ["device"])
        ),
        bounds=bound_shares(roofline.bound_table(rated)),
        left_out=_left_out(judged, device, window_parts, sources),
        steps_ns=tuple(step_parts.get((judged.device, index), {}) for index in window.steps),
        loading_behind_waits_ns=ns_in_windows(sources.loading_behind_waits, one).get(0, 0),
    )


def measured(findings: Findings, step_ns: int) -> Findings:
    """Return the findings as if a step without the profiler, or the window where it has none, had been measured, ns."""
    parts, steps = findings.parts_ns, findings.window.step_count
    slowed = {cause: parts.get(cause, 0) for cause in profiler_overhead.SLOWED}
    recording = profiler_overhead.extra_of(slowed, sum(parts.values()), steps, step_ns)
    return findings._replace(recording=recording.with_waits(_waits_ns(findings.device, parts)))


def _waits_ns(device: DeviceFindings, parts_ns: Mapping[str, int]) -> int:
    """Return the time of a partition that may be waiting for other ranks."""
    return round((device.peer_wait_ratio or 0.0) * parts_ns.get("communication", 0))


def _left_out(judged: Judged, device: DeviceFindings, parts: pl.DataFrame, sources: WindowSources) -> LeftOut | None:
    """Return the part of the recording outside the window; None for a step that the caller asked for."""
    if judged.window.kind == "step":
        return None
    whole = where_equal(sources.windows, "device", judged.device)
    rest = cut_out(whole.select(judged.spans.columns), judged.spans, ["device"])
    cold = ns_in_windows(sources.cold_idle, rest.with_columns(pl.lit(0, dtype=pl.UInt32).alias("window"))).get(0, 0)
    window_ns, whole_ns = (int(spans.select(LENGTH_NS.sum()).item()) for spans in (judged.spans, whole))
    parts_ns = dict(parts.select("part", "time_ns").iter_rows())
    return left_out((window_ns, whole_ns), parts_ns, device.report.partition_ns, cold, sources.recorded_span)


def step_parts(window_sources: WindowSources) -> Mapping[tuple[int, int], Mapping[str, int]]:
    """Return the partition of each step with a duration, by its device's code and its number."""
    sources, key = window_sources, ["device", "index"]
    steps = sources.device_steps.filter(pl.col("start_ns") < pl.col("end_ns")).select(*key, "start_ns", "end_ns")
    sums = partition.part_sums(sources.busy_parts, sources.idle_causes, steps, key)
    parts: dict[tuple[int, int], dict[str, int]] = {}
    for device, index, part, ns in sums.select(*key, "part", "time_ns").iter_rows():
        parts.setdefault((device, index), {})[part] = ns
    return parts


def step_findings(
    device_findings: Mapping[int, DeviceFindings],
    step_parts: Mapping[tuple[int, int], Mapping[str, int]],
    window_sources: WindowSources,
) -> tuple[StepFindings, ...]:
    """Return the findings of each step with a duration, for the reported devices; none of a step whose work was lost."""
    sources = window_sources
    key = ["device", "index", "window", "activity_count", "busy_ns", "first_ns", "last_ns"]
    edges = (pl.col("start_ns").alias("first_ns"), pl.col("end_ns").alias("last_ns"))
    windows = (
        sources.device_steps.filter(
            pl.col("start_ns") < pl.col("end_ns"),
            pl.col("state") != "lost",
            pl.col("device").is_in(list(device_findings)),
        )
        .with_row_index("window")
        .with_columns(edges)
    )
    columns = ["device", "window", "start_ns", "end_ns"]
    spans = windows.select(columns)
    cold, loading = (ns_in_windows(rows, spans) for rows in (sources.cold_idle, sources.loading_behind_waits))
    # The extra time of an unusual step over the measured step time is no profiler overhead.
    is_measured = sources.measured_step_ms is not None
    usual = windows.filter(pl.col("state") == "ok").select(columns) if is_measured else spans
    lengths = {window: (end - start, 1) for _, window, start, end in usual.iter_rows()}
    recordings = _recordings(sources, usual, lengths)
    bounds: dict[int, list[BoundShare]] = {}
    known = roofline.window_bounds(sources.rated, spans)
    for window, share in zip(known.get_column("window"), bound_shares(known), strict=True):
        bounds.setdefault(window, []).append(share)
    return tuple(
        StepFindings(
            Findings(
                device=device_findings[device],
                window=Window("step", ((start, end),), (index,)),
                parts_ns=(parts := step_parts.get((device, index), {})),
                cold_gap_ns=cold.get(window, 0),
                recording=(own := recordings.get(window)) and own.with_waits(_waits_ns(device_findings[device], parts)),
                waiting_depth=None,
                bounds=tuple(bounds.get(window, ())),
                loading_behind_waits_ns=loading.get(window, 0),
            ),
            device,
            index,
            activity_count,
            busy_ns,
        )
        for device, index, window, activity_count, busy_ns, start, end in windows.select(key).iter_rows()
    )


def _recordings(
    sources: WindowSources, windows: pl.DataFrame, recorded: Mapping[int, tuple[int, int]]
) -> dict[int, ProfilerOverhead]:
    """Return the profiler overhead in each window's idle time: from the measured step time, else estimated from events.

    ``windows`` has the columns (device, window, start_ns, end_ns); ``recorded`` maps a window to the length and number
    of its steps.
    """
    if sources.measured_step_ms is not None:
        step_ns = round(sources.measured_step_ms * NS_PER_MS)
        return profiler_overhead.measured(sources.idle_causes, windows, recorded, step_ns)
    prices = sources.recording_prices
    return {} if prices is None else profiler_overhead.estimated(prices, windows)


def bound_shares(bounds: pl.DataFrame) -> tuple[BoundShare, ...]:
    """Return the rows of table `bounds`."""
    rows = bounds.rename({"count": "kernel_count"}).select(BoundShare.__struct_fields__)
    return tuple(BoundShare(**row) for row in rows.to_dicts())


def _idle_peak(activities: pl.DataFrame, model: Device | None) -> tuple[str, float] | None:
    """Return the dtype with most kernel time (else the device's common one) and its peak in FLOP/s."""
    known = activities.select("dtype", "duration_ns").drop_nulls("dtype").group_by("dtype").agg(pl.all().sum())
    used = known.sort("duration_ns", "dtype", descending=[True, False]).get_column("dtype").to_list()
    peaks = ((dtype, model.peak_flops(dtype) if model else None) for dtype in (*used, "bf16", "fp16", "fp32"))
    return next(((dtype, peak) for dtype, peak in peaks if peak is not None), None)


def _known_ratio(activities: pl.DataFrame, those: pl.Expr) -> float | None:
    """Return the share of some activities' time with known FLOP and known bytes; ``those`` selects the activities."""
    known = pl.col("flop").is_not_null() & pl.col("moved_bytes").is_not_null()
    return time_ratio(
        activities.select("duration_ns", known.alias("known"), those.alias("those")).filter("those"), pl.col("known")
    )


def _assumed_peaks(activities: pl.DataFrame, model: Device | None) -> str | None:
    """Name the catalogue's figures that decided bounds: those of dtypes with at least a tenth of the decided time."""
    columns = ("dtype", "duration_ns", "flop", "moved_bytes", "group", "uses_tensor_cores")
    decided = kernel_bounds.time_by_type(activities.select(columns).drop_nulls("moved_bytes"))
    if model is None or decided.is_empty():
        return None
    times = decided.filter(pl.col("duration_ns") >= pl.col("duration_ns").sum() / 10)
    peaks = (
        f"{dtype} {units.flops(peak)} ({'tensor cores' if matrix else 'vector units'})"
        for dtype, matrix, _ in times.iter_rows()
        if (peak := model.peak_flops(dtype, matrix=matrix)) is not None
    )
    return ", ".join([f"{model.name}: {units.bandwidth(model.bandwidth)}", *peaks])


def time_ratio(rows: pl.DataFrame, condition: pl.Expr) -> float | None:
    """Return the share of the rows' time in rows that meet the condition; None where the total is 0."""
    return time_ratios(rows, condition)[0]


def time_ratios(rows: pl.DataFrame, *conditions: pl.Expr) -> list[float | None]:
    """Return the share of the rows' time that meets each condition; None where the total is 0."""
    time = pl.col("duration_ns")
    total, *met = rows.select(
        time.sum(), *(time.filter(c).sum().alias(f"met_{i}") for i, c in enumerate(conditions))
    ).row(0)
    return [ns / total if total else None for ns in met]


def ordered(sums: pl.DataFrame, order: Iterable[str]) -> dict[str, int]:
    """Return the sum of each key of ``order``, in that order; 0 for a missing key."""
    known = dict(sums.iter_rows())
    return {key: int(known.get(key, 0)) for key in order}


VALUES = (
    Value("device_findings", device_findings),
    Value("window_parts", window_parts, needs=(PARTITION,)),
    Value("window_sources", WindowSources),
    Value("step_parts", step_parts),
    Value("window_findings", window_findings),
    Value("step_findings", step_findings),
)
