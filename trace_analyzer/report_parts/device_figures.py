"""Aggregate the figures of each device over the whole trace."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import polars as pl

from trace_analyzer.analyses import article_groups, copies, roofline, run_ahead, tensor_cores
from trace_analyzer.analyses.device_models import MatchedDevices
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.kernels import article as article_figures
from trace_analyzer.findings import bound_shares, ordered, time_ratio, time_ratios
from trace_analyzer.frames.intervals import union
from trace_analyzer.frames.lookups import where_equal
from trace_analyzer.mask import NO_RUN_AHEAD, suppress_metrics
from trace_analyzer.report import (
    BucketTime,
    Check,
    Communication,
    Copies,
    DeviceReport,
    FusionOpportunity,
    Gaps,
    GroupTime,
    LaunchLead,
    QueueDepth,
    QueuedWork,
    RunAhead,
    TensorCores,
    WorkCoverage,
)
from trace_analyzer.report_parts.attained import attained, with_attained
from trace_analyzer.vocabulary import EARLIER_WORK, IDLE_CAUSES, PARTS
from trace_analyzer.windows import device_id

_TOP_FUSIONS = 10
"""Number of fusion opportunities in the report; the table has all of them."""


@dataclass(frozen=True)
class DeviceTables:
    """Hold the values from which device reports are made."""

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
    checks: tuple[Check, ...],
) -> Mapping[int, DeviceReport]:
    """Return the figures of each device over the whole trace by its code, without those that checks suppress."""
    reports = {}
    for row in reported_devices.iter_rows(named=True):
        figures = replace(_device_report(row, device_tables), sm_count=matched_devices.sm_counts.get(row["device"]))
        report = suppress_metrics(figures, checks)
        reports[row["device"]] = with_attained(
            report, attained(row["device"], device_tables.activities, matched_devices)
        )
    return reports


def _device_report(row: dict[str, Any], tables: DeviceTables) -> DeviceReport:
    """Return the figures of one device over the whole trace."""
    code = int(row["device"])
    this = pl.col("device") == code
    start, end, busy = tables.windows.filter(this).select("start_ns", "end_ns", "busy_ns").row(0)
    activities, gaps, sums, busy_parts, rated = (
        where_equal(frame, "device", code)
        for frame in (tables.activities, tables.gaps, tables.gap_sums, tables.busy_parts, tables.rated)
    )
    linked_count = activities.height - activities.get_column("launch_id").null_count()
    caused = sums.group_by("cause").agg(pl.col("idle_ns").sum())
    earlier_ns = int(caused.filter(pl.col("cause") == EARLIER_WORK).get_column("idle_ns").sum())
    length = pl.col("end_ns") - pl.col("start_ns")
    parts = busy_parts.group_by("part").agg(length.sum().alias("ns"))
    return DeviceReport(
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
        gaps=Gaps(
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
            FusionOpportunity(**row) for row in tables.fusions.filter(this).drop("device").head(_TOP_FUSIONS).to_dicts()
        ),
        work_coverage=_work_coverage(activities),
        tensor_cores=tuple(
            TensorCores(**row, code=tensor_cores.cure(row["reason"], row["target_dtype"]))
            for row in tensor_cores.by_reason(tables.tensor_cores.filter(this)).to_dicts()
        ),
        copies=tuple(Copies(**row) for row in copies.copy_sums(tables.copies.filter(this)).to_dicts()),
    )


def _work_coverage(activities: pl.DataFrame) -> WorkCoverage:
    """Return the shares of kernel time with known work: for all kernels, and for kernels with a known operator."""
    flop, moved = pl.col("flop").is_not_null(), pl.col("moved_bytes").is_not_null()
    known = (flop, moved, moved | (pl.col("flop") > 0))
    kernels = activities.select("kind", "operator_id", "duration_ns", "flop", "moved_bytes").filter(
        pl.col("kind") == "kernel"
    )
    linked = kernels.filter(pl.col("operator_id").is_not_null())
    return WorkCoverage(*time_ratios(kernels, *known), *time_ratios(linked, *known))


def _run_ahead(this: pl.Expr, tables: DeviceTables, busy_ratio: float) -> RunAhead:
    leads = tables.launch_leads.filter(this).to_dicts()
    if not leads:
        return NO_RUN_AHEAD
    lead, queue = leads[0], tables.queue_statistics.filter(this).to_dicts()[0]
    return RunAhead(
        run_ahead.run_ahead_state(busy_ratio, queue["empty_queue_ratio"], lead["lead_p50"], lead["call_p50"]),  # type: ignore[arg-type]
        LaunchLead(lead["lead_p10"], lead["lead_p50"], lead["lead_p90"]),
        QueueDepth(queue["depth_mean"], queue["depth_p50"], queue["depth_max"]),
        QueuedWork(queue["queued_work_mean"], queue["queued_work_p50"], queue["queued_work_max"]),
        queue["empty_queue_ratio"],
    )


def _buckets(rated: pl.DataFrame) -> tuple[BucketTime, ...]:
    sums = article_groups.bucket_work(rated).rename({"count": "kernel_count", "moved_bytes": "bytes"})
    return tuple(BucketTime(**row) for row in sums.select(field.name for field in fields(BucketTime)).to_dicts())


def _groups(rated: pl.DataFrame) -> tuple[GroupTime, ...]:
    """Return the article's table for one device, next to the article's own figures."""
    listed_groups = article_figures().groups
    own = ("article_flop_ratio", "article_time_ratio")
    sums = article_groups.group_work(rated).rename({"count": "kernel_count"})
    return tuple(
        GroupTime(
            **row,
            article_flop_ratio=listed_groups[row["group"]].flop_ratio if row["group"] in listed_groups else None,
            article_time_ratio=listed_groups[row["group"]].time_ratio if row["group"] in listed_groups else None,
        )
        for row in sums.select(field.name for field in fields(GroupTime) if field.name not in own).to_dicts()
    )


def _communication(
    collectives: pl.DataFrame, communication: pl.DataFrame, busy_parts: pl.DataFrame
) -> Communication | None:
    """Sum the communication of one device, with the exposed time of the partition; None without any."""
    if collectives.is_empty():
        return None
    spans = collectives.with_columns((pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"))
    length = pl.col("end_ns") - pl.col("start_ns")
    time_ns = int(union(spans, ["device"]).select(length.sum()).item())
    exposed_ns = int(busy_parts.filter(pl.col("part") == "communication").select(length.sum()).item())
    known = collectives.drop_nulls("bus_byte_per_s")
    known_ns = _total_ns(known)
    best = communication.drop_nulls("best_bus_byte_per_s").sort("best_bus_byte_per_s").tail(1)
    moved = float(known.select((pl.col("bus_byte_per_s") * pl.col("duration_ns")).sum()).item())
    return Communication(
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


VALUES = (Value("device_tables", DeviceTables), Value("device_reports", device_reports))
