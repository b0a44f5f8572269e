"""Make the parts of a report from the analyses' tables: figures of devices, facts about the file, and rows."""

from collections.abc import Mapping
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from trace_analyzer import report
from trace_analyzer.analyses import blame, communication, kernel_bounds, operators, roofline, run_ahead, tensor_cores
from trace_analyzer.analyses.device_models import MatchedDevices, possible_share
from trace_analyzer.analyses.host import Host, call_line
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.devices import Device
from trace_analyzer.catalog.event_names import CALLS
from trace_analyzer.catalog.fixes import Accelerator, accelerator_of
from trace_analyzer.catalog.kernels import article as article_figures
from trace_analyzer.checks import NO_RUN_AHEAD, suppress_metrics, suppress_step_metrics
from trace_analyzer.findings import bound_shares, ordered, time_ratio, time_ratios
from trace_analyzer.frames import intervals, lookups
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.vocabulary import EARLIER_WORK, IDLE_CAUSES, PARTS
from trace_analyzer.windows import device_id, device_ids

_TOP_FUSIONS = 10
"""Number of fusion opportunities in the report; the table has all of them."""


class DeviceTables(Struct, frozen=True):
    """The values from which device reports are made."""

    windows: pl.DataFrame
    activities: pl.DataFrame
    gaps: pl.DataFrame
    gap_sums: pl.DataFrame
    busy_parts: pl.DataFrame
    rated: pl.DataFrame
    bounds: pl.DataFrame
    launch_leads: pl.DataFrame
    queue_statistics: pl.DataFrame
    collectives: pl.DataFrame
    communication: pl.DataFrame
    fusions: pl.DataFrame
    tensor_cores: pl.DataFrame
    copies: pl.DataFrame


def device_reports(
    reported_devices: pl.DataFrame,
    device_tables: DeviceTables,
    matched_devices: MatchedDevices,
    checks: tuple[report.Check, ...],
) -> Mapping[int, report.DeviceReport]:
    """Return the figures of each device over the whole trace by its code, without those that checks suppress."""
    reports = {}
    for row in reported_devices.iter_rows(named=True):
        figures = replace(_device_report(row, device_tables), sm_count=matched_devices.sm_counts.get(row["device"]))
        rates = attained(row["device"], device_tables.activities, matched_devices)
        reports[row["device"]] = with_attained(suppress_metrics(figures, checks), rates)
    return reports


def _device_report(row: dict[str, Any], tables: DeviceTables) -> report.DeviceReport:
    """Return the figures of one device over the whole trace."""
    code = int(row["device"])
    this = pl.col("device") == code
    start, end, busy = tables.windows.filter(this).select("start_ns", "end_ns", "busy_ns").row(0)
    activities, gaps, sums, busy_parts, rated = (
        lookups.where_equal(frame, "device", code)
        for frame in (tables.activities, tables.gaps, tables.gap_sums, tables.busy_parts, tables.rated)
    )
    linked_count = activities.height - activities.get_column("launch_id").null_count()
    caused = sums.group_by("cause").agg(pl.col("idle_ns").sum())
    earlier_ns = int(caused.filter(pl.col("cause") == EARLIER_WORK).get_column("idle_ns").sum())
    parts = busy_parts.group_by("part").agg(intervals.LENGTH_NS.sum().alias("ns"))
    return report.DeviceReport(
        index=device_id(row["label"]),
        name=row["name"],
        window_ns=end - start,
        busy_ns=busy,
        idle_ns=end - start - busy,
        busy_ratio=busy / (end - start) if end > start else None,
        activity_count=activities.height,
        kernel_count=int(activities.get_column("kind").eq("kernel").sum()),
        linked_count=linked_count,
        link_coverage_ratio=linked_count / activities.height if activities.height else None,
        link_coverage_time_ratio=time_ratio(activities, pl.col("launch_id").is_not_null()),
        gaps=report.Gaps(
            gaps.height,
            int(gaps.select(pl.col("duration_ns").max().fill_null(0)).item() or 0),
            ordered(caused, IDLE_CAUSES),
        ),
        partition_ns=ordered(pl.concat([parts, caused.rename({"cause": "part", "idle_ns": "ns"})]), PARTS),
        run_ahead=_run_ahead(this, tables, busy / (end - start) if end > start else 0.0),
        buckets=_buckets(rated),
        groups=_groups(rated),
        bounds=bound_shares(tables.bounds.filter(this)),
        mfu=roofline.utilization(rated, roofline.mfu_ns(), end - start),
        mfu_at_most=roofline.utilization(rated, roofline.mfu_most_ns(), end - start, earlier_ns),
        hfu=roofline.utilization(rated, roofline.hfu_ns(), end - start),
        recomputed_ns=_total_ns(rated.filter("recomputed")),
        recomputed_flop=rated.filter("recomputed").select(roofline.known_sum("flop")).item(),
        flop_time_ratio=time_ratio(rated, pl.col("flop").is_not_null()),
        communication=_communication(tables.collectives.filter(this), tables.communication.filter(this), busy_parts),
        fusions=tuple(
            report.FusionOpportunity(**row)
            for row in tables.fusions.filter(this).drop("device").head(_TOP_FUSIONS).to_dicts()
        ),
        work_coverage=_work_coverage(activities),
        tensor_cores=tuple(
            report.TensorCores(**row, code=tensor_cores.cure(row["reason"], row["target_dtype"]))
            for row in tensor_cores.by_reason(tables.tensor_cores.filter(this)).to_dicts()
        ),
        copies=tuple(report.Copies(**row) for row in communication.copy_sums(tables.copies.filter(this)).to_dicts()),
    )


def _work_coverage(activities: pl.DataFrame) -> report.WorkCoverage:
    """Return the shares of kernel time with known work: for all kernels, and for kernels with a known operator."""
    flop, moved = pl.col("flop").is_not_null(), pl.col("moved_bytes").is_not_null()
    known = (flop, moved, moved | (pl.col("flop") > 0))
    kernels = activities.select("kind", "operator_id", "duration_ns", "flop", "moved_bytes").filter(
        pl.col("kind") == "kernel"
    )
    linked = kernels.filter(pl.col("operator_id").is_not_null())
    return report.WorkCoverage(*time_ratios(kernels, *known), *time_ratios(linked, *known))


def _run_ahead(this: pl.Expr, tables: DeviceTables, busy_ratio: float) -> report.RunAhead:
    leads = tables.launch_leads.filter(this).to_dicts()
    if not leads:
        return NO_RUN_AHEAD
    lead, queue = leads[0], tables.queue_statistics.filter(this).to_dicts()[0]
    return report.RunAhead(
        run_ahead.run_ahead_state(busy_ratio, queue["empty_queue_ratio"], lead["lead_p50"], lead["call_p50"]),  # type: ignore[arg-type]
        report.LaunchLead(lead["lead_p10"], lead["lead_p50"], lead["lead_p90"]),
        report.TimeWeighted(queue["depth_mean"], queue["depth_p50"], queue["depth_max"]),
        report.TimeWeighted(queue["queued_work_mean"], queue["queued_work_p50"], queue["queued_work_max"]),
        queue["empty_queue_ratio"],
    )


def _buckets(rated: pl.DataFrame) -> tuple[report.BucketTime, ...]:
    sums = operators.bucket_work(rated).rename({"count": "kernel_count", "moved_bytes": "bytes"})
    return tuple(report.BucketTime(**row) for row in sums.select(report.BucketTime.__struct_fields__).to_dicts())


def _groups(rated: pl.DataFrame) -> tuple[report.GroupTime, ...]:
    """Return the article's table for one device, next to the article's own figures."""
    listed_groups = article_figures().groups
    own = ("article_flop_ratio", "article_time_ratio")
    sums = operators.group_work(rated).rename({"count": "kernel_count"})
    return tuple(
        report.GroupTime(
            **row,
            article_flop_ratio=listed_groups[row["group"]].flop_ratio if row["group"] in listed_groups else None,
            article_time_ratio=listed_groups[row["group"]].time_ratio if row["group"] in listed_groups else None,
        )
        for row in sums.select(name for name in report.GroupTime.__struct_fields__ if name not in own).to_dicts()
    )


def _communication(
    collectives: pl.DataFrame, communication: pl.DataFrame, busy_parts: pl.DataFrame
) -> report.Communication | None:
    """Sum the communication of one device, with the exposed time of the partition; None without any."""
    if collectives.is_empty():
        return None
    spans = collectives.with_columns(intervals.END_NS)
    time_ns = int(intervals.union(spans, ["device"]).select(intervals.LENGTH_NS.sum()).item())
    exposed_ns = int(busy_parts.filter(pl.col("part") == "communication").select(intervals.LENGTH_NS.sum()).item())
    known = collectives.drop_nulls("bus_byte_per_s")
    known_ns = _total_ns(known)
    best = communication.drop_nulls("best_bus_byte_per_s").sort("best_bus_byte_per_s").tail(1)
    moved = float(known.select((pl.col("bus_byte_per_s") * pl.col("duration_ns")).sum()).item())
    return report.Communication(
        kernel_count=collectives.height,
        time_ns=time_ns,
        exposed_ns=exposed_ns,
        hidden_ns=time_ns - exposed_ns,
        known_ns=known_ns,
        message_bytes=collectives.select(roofline.known_sum("message_bytes")).item(),
        bus_byte_per_s=moved / known_ns if known_ns else None,
        best_bus_byte_per_s=best.get_column("best_bus_byte_per_s").item() if best.height else None,
        link=best.get_column("link").item() if best.height else None,
        link_ratio=best.get_column("link_ratio").item() if best.height else None,
    )


def _total_ns(frame: pl.DataFrame) -> int:
    return int(frame.get_column("duration_ns").sum())


def attained(code: int, activities: pl.DataFrame, matched: MatchedDevices) -> report.Attained | None:
    """Return the device's measured rates and its kernels' shares of these roofs; None without a calibration."""
    calibration = matched.calibrations.get(code)
    if calibration is None:
        return None
    measured = calibration.device(matched.models.get(code))
    activities = activities.filter(pl.col("device") == code)
    ratios = (
        roofline.roofs(activities, {code: measured})
        .select("activity_id", "roof_ns")
        .drop_nulls()
        .join(activities.select("activity_id", "bucket", "duration_ns"), on="activity_id")
        .drop_nulls("bucket")
        .filter(pl.col("duration_ns") > 0)
        .group_by("bucket")
        .agg(possible_share(pl.col("roof_ns").sum() / pl.col("duration_ns").sum()))
        .drop_nulls()
        .sort("bucket")
    )
    return report.Attained(
        memory_gbps=calibration.memory_gbps,
        peak_tflops=calibration.peak_tflops,
        launch_overhead_ns=calibration.launch_overhead_ns,
        launch_latency_ns=calibration.launch_latency_ns,
        roof_ratio=dict(ratios.iter_rows()),
        roofs=_measured_roofs(activities, matched.models.get(code) if matched.listed.get(code) else None, measured),
    )


def with_attained(device: report.DeviceReport, measured: report.Attained | None) -> report.DeviceReport:
    """Return the device's report with the attained shares, except those of suppressed buckets."""
    if measured is None:
        return device
    reported = {bucket.bucket for bucket in device.buckets}
    shares = {bucket: ratio for bucket, ratio in measured.roof_ratio.items() if bucket in reported}
    return replace(device, attained=replace(measured, roof_ratio=shares))


def _measured_roofs(
    activities: pl.DataFrame, datasheet: Device | None, measured: Device | None
) -> tuple[report.MeasuredRoof, ...]:
    """Return the measured roofs of kernels with known work: the memory's, then those with most kernel time."""
    if measured is None:
        return ()
    met = kernel_bounds.time_by_type(activities.filter(pl.col("kind") == "kernel"))

    def roof(dtype: str | None, matrix: bool | None) -> report.MeasuredRoof | None:
        measured_peak, listed_peak = (
            None if device is None else device.bandwidth if dtype is None else device.peak_flops(dtype, bool(matrix))
            for device in (measured, datasheet)
        )
        # A figure equal to the datasheet's to the last digit was not measured.
        return (
            None
            if measured_peak is None or measured_peak == listed_peak
            else report.MeasuredRoof(dtype, matrix, measured_peak, listed_peak)
        )

    pairs = [(None, None), *met.select("dtype", "matrix").iter_rows()]
    return tuple(item for pair in pairs if (item := roof(*pair)) is not None)


def accelerator(trace: Trace, host: Host, device_models: Mapping[int, Device | None]) -> Accelerator | None:
    """Return whose work the trace holds, or shows that it launched; None for a run on the CPU."""
    vendor = next((model.vendor for model in device_models.values() if model), None)
    calls, operators = (
        host.names.filter(pl.col("kind").is_in(kinds)).get_column("name").cast(pl.String)
        for kinds in (CALLS, ("operator",))
    )
    return accelerator_of(vendor, calls, operators, trace.unsupported)


def trace_info(
    trace: Trace,
    recorded: report.Recorded,
    reported_devices: pl.DataFrame,
    device_models: Mapping[int, Device | None],
    accelerator: Accelerator | None,
) -> report.TraceInfo:
    """Return facts about the file, its devices and what was recorded."""
    # Devices of merged ranks are named after their process: "[TP00] 0", "80/0".
    worked = set(trace.devices.get_column("label").str.extract("([^ /]*)$"))
    return report.TraceInfo(
        path=trace.path,
        event_count=trace.event_count,
        duration_ns=trace.duration_ns,
        origin_ns=str(trace.origin_ns),
        base_time_ns=trace.header.base_time_ns,
        rank=trace.header.rank,
        world_size=trace.header.world_size,
        devices=tuple(
            report.DeviceInfo(
                device_id(label),
                name,
                model.name if (model := device_models.get(code)) and not model.assumed else None,
                trace.header.memory_bytes(name),
            )
            for code, label, name in reported_devices.iter_rows()
        ),
        idle_devices=tuple(
            f"{entry.index}: {entry.name or 'unnamed'}" for entry in trace.header.devices if entry.index not in worked
        ),
        recorded=recorded,
        accelerator=accelerator,
        profiler=trace.header.profiler,
        settings=trace.header.settings,
        versions=trace.header.versions,
    )


def input_texts(trace: Trace) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Return the distinct shapes, call stacks and module hierarchies of operators."""
    inputs = (trace.operator_inputs.get_column(c) for c in ("input_dims", "call_stack", "module_hierarchy"))
    shapes, stacks, hierarchies = (column[lookups.factorize(column)[1]].cast(pl.String) for column in inputs)
    return shapes, stacks, hierarchies


def recorded(trace: Trace, host: Host, input_texts: tuple[pl.Series, pl.Series, pl.Series]) -> report.Recorded:
    """Determine from the events what was recorded, whatever the header states."""
    python, (shapes, stacks, hierarchies) = host.names.filter(pl.col("kind") == "python"), input_texts
    return report.Recorded(
        shapes=shapes.str.contains(r"\d").any(),
        stack=python.height > 0 or stacks.str.len_chars().gt(0).any(),
        memory=trace.memory_events.height > 0,
        modules=python.get_column("name").str.starts_with("nn.Module").any() or hierarchies.str.len_chars().gt(0).any(),
    )


TOP_CODE = 20
"""Number of rows of attribution and of host costs in the report; the tables have all of them."""


def step_reports(
    steps: pl.DataFrame, step_work: pl.DataFrame, devices: pl.DataFrame, checks: tuple[report.Check, ...]
) -> tuple[report.StepReport, ...]:
    """Return each step with its verdict and its work, without the figures that failed checks suppress."""
    ids = device_ids(devices)
    figures = step_work.select("device", pl.col("step").alias("index"), "flop", "mfu_ratio", "mfu_most_ratio")
    rows = (
        steps.join(figures, on=["device", "index"], how="left", maintain_order="left")
        .rename({"mfu_ratio": "mfu", "mfu_most_ratio": "mfu_at_most"})
        .with_columns(
            intervals.LENGTH_NS.alias("duration_ns"), (intervals.LENGTH_NS - pl.col("busy_ns")).alias("idle_ns")
        )
        .select(report.StepReport.__struct_fields__)
    )
    reports = tuple(report.StepReport(**{**row, "device": ids[row["device"]]}) for row in rows.to_dicts())
    return suppress_step_metrics(reports, checks)


def blame_rows(window_attribution: blame.Attribution | None, verdict: report.Verdict) -> tuple[report.Blame, ...]:
    """Return the code that causes most idle time in the verdict's window."""
    if window_attribution is None or verdict.window is None:
        return ()
    rows = blame.blamed_code(window_attribution).head(TOP_CODE).to_dicts()
    return tuple(report.Blame(**row, call_line=call_line(row["python_function"], row["operator"])) for row in rows)


def host_cost_rows(host_costs: pl.DataFrame) -> tuple[report.HostCost, ...]:
    """Return the rows of table `host_costs` with the highest cost."""
    columns = [name for name in report.HostCost.__struct_fields__ if name in host_costs.columns]
    rows = host_costs.drop_nulls("name").select(columns).head(TOP_CODE).to_dicts()
    return tuple(report.HostCost(**row, call_line=call_line(row["python_function"], row["operator"])) for row in rows)


VALUES = (
    Value("device_tables", DeviceTables),
    Value("device_reports", device_reports),
    Value("input_texts", input_texts),
    Value("recorded", recorded),
    Value("accelerator", accelerator),
    Value("trace_info", trace_info),
    Value("step_reports", step_reports),
    Value("blame_rows", blame_rows),
    Value("host_cost_rows", host_cost_rows),
)
