"""Measure how close kernels come to their roof, by bound: a kernel far below its roof is not limited by it.

The roof of a kernel is the roofline model's (see `trace_analyzer.analyses.roofline`). A kernel that fills the device,
lasts, and stays far below both of its roofs is limited by neither: it is *inefficient*.
"""

from collections.abc import Mapping

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analysis import Analysis
from trace_analyzer.catalog.devices import Device
from trace_analyzer.frames.intervals import lookup_at
from trace_analyzer.schema import BOUND, COUNT, DEVICE, F64, I64, TIME, Column, Table

BOUNDS = Table(
    "bounds",
    "Kernels summed up by what bounds them, with how near they come to their roof.",
    (
        DEVICE,
        BOUND,
        COUNT,
        TIME,
        Column("known_ns", I64, "Durations of those whose roof is known."),
        Column("roof_ratio", F64, "Time that these would take at their roof, over the time they took."),
        Column("below_half_ratio", F64, "Share of their time in kernels that reach less than half of their roof."),
        Column("inefficient_ns", I64, "Durations of kernels that fill the device and stay far below both roofs."),
    ),
)

ROOFED = ("compute", "memory")
"""Bounds with a roof."""


def is_inefficient(devices: Mapping[int, Device | None]) -> pl.Expr:
    """Return whether a kernel fills its device, is long enough, and stays below `thresholds.INEFFICIENT_ROOF_RATIO`.

    Needs the columns of activities and roof_ns. An operator with several kernels shares its minimum bytes among them,
    though each kernel may process all the data (a radix sort), so of these only matmul kernels are considered. False
    where the roof is unknown, or may be higher than the record shows.
    """
    sms = {code: None if device is None else device.sm_count for code, device in devices.items()}
    sm_count = pl.col("device").replace_strict(sms, default=None, return_dtype=pl.Int64)
    fills = (pl.col("blocks") >= sm_count).fill_null(True)
    alone = pl.col("operator_id").is_null() | (pl.len().over("operator_id") == 1)
    return (
        pl.col("bound").is_in(ROOFED)
        & (pl.col("duration_ns") >= thresholds.SMALL_KERNEL_NS)
        & fills
        & (pl.col("work_from") != "at-least")
        & (alone | (pl.col("group") == "matmul"))
        & (pl.col("roof_ns") < thresholds.INEFFICIENT_ROOF_RATIO * pl.col("duration_ns"))
    ).fill_null(False)


def bound_table(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return table `bounds`: kernels (see `roofline.with_roofs`) summed by device and bound, longest first."""
    return BOUNDS.conform(_summed(kernels, "device"))


def window_bounds(kernels: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return window, then the columns of table `bounds`, for the kernels that start in each window.

    ``windows`` are disjoint on each device: device, window, start_ns, end_ns.
    """
    inside = lookup_at(kernels, "start_ns", windows, ["device"], ["window"]).drop_nulls("window")
    sums = _summed(inside, "window", "device")
    return sums.select("window").hstack(BOUNDS.conform(sums))


def _summed(kernels: pl.DataFrame, *by: str) -> pl.DataFrame:
    sums = kernels.group_by(*by, "bound").agg(*_shares()).with_columns(pl.col("bound").cast(pl.String))
    return sums.sort(*by, "time_ns", "bound", descending=[*[False] * len(by), True, False])


def _shares() -> list[pl.Expr]:
    """Return sums of kernels, and how close those with a known roof come to it; null without any."""
    # A kernel that moved more than was recorded has an unknown roof.
    roof = pl.when((pl.col("work_from") != "at-least").fill_null(True)).then("roof_ns")
    time, known = pl.col("duration_ns"), roof.is_not_null()
    known_ns = time.filter(known).sum()
    below = time.filter(roof < thresholds.HALF_ROOF_RATIO * time).sum()
    return [
        pl.len().cast(pl.UInt32).alias("count"),
        time.sum().alias("time_ns"),
        known_ns.alias("known_ns"),
        pl.when(known_ns > 0).then(roof.sum() / known_ns).alias("roof_ratio"),
        pl.when(known_ns > 0).then(below / known_ns).alias("below_half_ratio"),
        time.filter(pl.col("inefficient").fill_null(False)).sum().alias("inefficient_ns"),
    ]


ANALYSES = (Analysis(BOUNDS, bound_table, {"kernels": "rated"}),)
