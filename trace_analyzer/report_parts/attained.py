"""Compare kernels with their device's measured rates."""

from dataclasses import replace

import polars as pl

from trace_analyzer.analyses import kernel_bounds, roofline
from trace_analyzer.analyses.device_models import MatchedDevices
from trace_analyzer.catalog.devices import Device
from trace_analyzer.report import (
    Attained,
    DeviceReport,
    MeasuredRoof,
)


def attained(code: int, activities: pl.DataFrame, matched: MatchedDevices) -> Attained | None:
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
        .agg(pl.col("roof_ns").sum() / pl.col("duration_ns").sum())
        .sort("bucket")
    )
    return Attained(
        memory_gbps=calibration.memory_gbps,
        peak_tflops=calibration.peak_tflops,
        launch_overhead_ns=calibration.launch_overhead_ns,
        launch_latency_ns=calibration.launch_latency_ns,
        roof_ratio=dict(ratios.iter_rows()),
        roofs=_measured_roofs(activities, matched.models.get(code) if matched.listed.get(code) else None, measured),
    )


def with_attained(report: DeviceReport, measured: Attained | None) -> DeviceReport:
    """Return the report with the attained shares, except those of suppressed buckets."""
    if measured is None:
        return report
    reported = {bucket.bucket for bucket in report.buckets}
    shares = {bucket: ratio for bucket, ratio in measured.roof_ratio.items() if bucket in reported}
    return replace(report, attained=replace(measured, roof_ratio=shares))


def _measured_roofs(
    activities: pl.DataFrame, datasheet: Device | None, measured: Device | None
) -> tuple[MeasuredRoof, ...]:
    """Return the measured roofs of kernels with known work: the memory's, then those with most kernel time."""
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
        measured_peak, listed_peak = (
            None if device is None else device.bandwidth if dtype is None else device.peak_flops(dtype, bool(matrix))
            for device in (measured, datasheet)
        )
        # A figure equal to the datasheet's to the last digit was not measured.
        return (
            None
            if measured_peak is None or measured_peak == listed_peak
            else MeasuredRoof(dtype, matrix, measured_peak, listed_peak)
        )

    pairs = [(None, None), *met.select("dtype", "matrix").iter_rows()]
    return tuple(item for pair in pairs if (item := roof(*pair)) is not None)
