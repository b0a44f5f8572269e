"""Does the CPU run ahead of the device? Launch lead, queue depth, and a word for it."""

import polars as pl

from trace_analyzer import tables, thresholds
from trace_analyzer.analyses.intervals import clip

QUANTILES = (0.1, 0.5, 0.9)


def queue_depths(activities: pl.DataFrame) -> pl.DataFrame:
    """Table `queue`: +1 where a launch ended, -1 where its activity started.

    An activity that started before its launch returned (a blocking copy, clock skew) was never queued.
    """
    queued = activities.filter(pl.col("lead_ns") >= 0)
    changes = pl.concat(
        [
            queued.select(
                "device", (pl.col("start_ns") - pl.col("lead_ns")).alias("time_ns"), pl.lit(1).alias("change")
            ),
            queued.select("device", pl.col("start_ns").alias("time_ns"), pl.lit(-1).alias("change")),
        ]
    )
    frame = (
        changes.group_by("device", "time_ns")
        .agg(pl.col("change").sum())
        .sort("device", "time_ns")
        .with_columns(pl.col("change").cum_sum().over("device").alias("depth"))
    )
    return tables.QUEUE.conform(frame)


def queue_statistics(queue: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """device, depth_mean, depth_p50, depth_max, empty_queue_ratio: weighted by time within each window."""
    spans = (
        queue.with_columns(
            pl.col("time_ns").alias("start_ns"), pl.col("time_ns").shift(-1).over("device").alias("end_ns")
        )
        .drop_nulls("end_ns")
        .select("device", "start_ns", "end_ns", "depth")
    )
    inside = clip(spans, windows.select("device", "start_ns", "end_ns"), ["device"])
    length = pl.col("end_ns") - pl.col("start_ns")
    waiting = (
        inside.filter(pl.col("depth") > 0)
        .group_by("device", "depth")
        .agg(length.sum().alias("time_ns"))
        .sort("device", "depth", descending=[False, True])
        .join(windows.select("device", length.alias("window_ns")), on="device")
        .with_columns(pl.col("time_ns").cum_sum().over("device").alias("at_least_ns"))
    )
    stats = waiting.group_by("device").agg(
        ((pl.col("depth") * pl.col("time_ns")).sum() / pl.col("window_ns").first()).alias("depth_mean"),
        # The median depth is the greatest that holds for half of the window or longer.
        pl.col("depth").filter(2 * pl.col("at_least_ns") >= pl.col("window_ns")).max().fill_null(0).alias("depth_p50"),
        pl.col("depth").max().alias("depth_max"),
        (1 - pl.col("time_ns").sum() / pl.col("window_ns").first()).alias("empty_queue_ratio"),
    )
    return (
        windows.select("device")
        .join(stats, on="device", how="left")
        .with_columns(
            pl.col("depth_mean").fill_null(0.0),
            pl.col("depth_p50", "depth_max").fill_null(0),
            pl.col("empty_queue_ratio").fill_null(1.0),
        )
    )


def lead_quantiles(launches: pl.DataFrame) -> pl.DataFrame:
    """device, lead_p10, lead_p50, lead_p90 (ns, nearest) and call_p50: the median launch call."""
    leads = [
        pl.col("lead_ns").quantile(q, interpolation="nearest").cast(pl.Int64).alias(f"lead_p{round(100 * q)}")
        for q in QUANTILES
    ]
    return launches.group_by("device").agg(*leads, pl.col("duration_ns").median().alias("call_p50")).sort("device")


def run_ahead_state(
    busy_ratio: float, empty_queue_ratio: float, lead_p50: float | None, call_p50: float | None
) -> str | None:
    """ahead, keeping-up or behind; None where no launch is linked."""
    if lead_p50 is None or call_p50 is None:
        return None
    if empty_queue_ratio > thresholds.BEHIND_EMPTY_RATIO and busy_ratio < thresholds.BEHIND_BUSY_RATIO:
        return "behind"
    if lead_p50 > thresholds.AHEAD_LEAD_CALLS * call_p50 and empty_queue_ratio < thresholds.AHEAD_EMPTY_RATIO:
        return "ahead"
    return "keeping-up"
