"""Judge whether the CPU runs ahead of the device: launch lead, queue depth and state."""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.frames.intervals import clip, split_by, sweep_sum
from trace_analyzer.frames.lookups import over_group
from trace_analyzer.metrics import RUN_AHEAD
from trace_analyzer.schema import DEVICE, I64, Column, Table

QUEUE = Table(
    "queue",
    "Queue depth of a device as a step function.",
    (
        DEVICE,
        Column("time_ns", I64, "From this time on ..."),
        Column("depth", I64, "... so many launched activities have not started yet."),
        Column("queued_work_ns", I64, "Device time of these: how long it would stay busy if the CPU stopped."),
    ),
)

QUANTILES = (0.1, 0.5, 0.9)


def queue_depths(activities: pl.DataFrame) -> pl.DataFrame:
    """Return table `queue`: depth and queued work after each launch's end and each activity's start.

    An activity that started before its launch returned (a blocking copy, clock skew) was never queued.
    """
    leads = activities.select("device", "start_ns", "duration_ns", "lead_ns")
    queued = leads.filter(pl.col("lead_ns") >= 0).select(
        "device",
        (pl.col("start_ns") - pl.col("lead_ns")).alias("start_ns"),
        pl.col("start_ns").alias("end_ns"),
        pl.lit(1).alias("depth"),
        pl.col("duration_ns").alias("queued_work_ns"),
    )
    frame = sweep_sum(queued, "device", ["depth", "queued_work_ns"]).rename({"start_ns": "time_ns"})
    return QUEUE.conform(frame)


def depth_within(queue: pl.DataFrame, spans: pl.DataFrame) -> float | None:
    """Return the mean queue depth over intervals (device, start_ns, end_ns), weighted by time; None without any."""
    end = over_group(queue, "device", pl.col("time_ns").shift(-1)).alias("end_ns")
    steps = queue.select("device", pl.col("time_ns").alias("start_ns"), end, "depth").drop_nulls("end_ns")
    length = pl.col("end_ns") - pl.col("start_ns")
    cut = split_by(spans.select("device", "start_ns", "end_ns"), steps, ["device"], ["depth"])
    mean: float | None = cut.select((pl.col("depth").fill_null(0) * length).sum() / length.sum()).item()
    return mean if cut.height else None


def queue_statistics(queue: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the queue depth and queued work weighted by time within each window.

    Returns device, depth_mean, depth_p50, depth_max, queued_work_mean, queued_work_p50, queued_work_max (ns) and
    empty_queue_ratio.
    """
    end = over_group(queue, "device", pl.col("time_ns").shift(-1)).alias("end_ns")
    spans = queue.select(pl.all().exclude("time_ns"), pl.col("time_ns").alias("start_ns"), end).drop_nulls("end_ns")
    inside = clip(spans, windows.select("device", "start_ns", "end_ns"), ["device"])
    lengths = windows.select("device", (pl.col("end_ns") - pl.col("start_ns")).alias("window_ns"))
    depth = _weighted(inside, "depth", lengths, "depth").rename({"nothing_ratio": "empty_queue_ratio"})
    queued_work = _weighted(inside, "queued_work_ns", lengths, "queued_work").drop("nothing_ratio")
    return depth.join(queued_work, on="device", how="left", maintain_order="left")


def _weighted(spans: pl.DataFrame, figure: str, lengths: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return mean, p50 and max of a step function that is 0 outside ``spans``, and the share of time at 0."""
    held = (
        spans.filter(pl.col(figure) > 0)
        .group_by("device", figure)
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("time_ns"))
        .sort("device", figure, descending=[False, True])
        .join(lengths, on="device", maintain_order="left")
        .with_columns(pl.col("time_ns").cum_sum().over("device").alias("at_least_ns"))
    )
    window = pl.col("window_ns").first()
    stats = held.group_by("device").agg(
        ((pl.col(figure) * pl.col("time_ns")).sum() / window).alias(f"{name}_mean"),
        # The median is the largest value that the function reaches for at least half of the window.
        pl.col(figure).filter(2 * pl.col("at_least_ns") >= pl.col("window_ns")).max().fill_null(0).alias(f"{name}_p50"),
        pl.col(figure).max().alias(f"{name}_max"),
        (1 - pl.col("time_ns").sum() / window).alias("nothing_ratio"),
    )
    return (
        lengths.select("device")
        .join(stats, on="device", how="left", maintain_order="left")
        .with_columns(
            pl.col(f"{name}_mean").fill_null(0.0),
            pl.col(f"{name}_p50", f"{name}_max").fill_null(0),
            pl.col("nothing_ratio").fill_null(1.0),
        )
    )


def lead_quantiles(launches: pl.DataFrame) -> pl.DataFrame:
    """Return device, lead_p10, lead_p50, lead_p90 (ns, nearest) and call_p50: the median launch call."""
    leads = [
        pl.col("lead_ns").quantile(q, interpolation="nearest").cast(pl.Int64).alias(f"lead_p{round(100 * q)}")
        for q in QUANTILES
    ]
    return launches.group_by("device").agg(*leads, pl.col("duration_ns").median().alias("call_p50")).sort("device")


def run_ahead_state(
    busy_ratio: float, empty_queue_ratio: float, lead_p50: float | None, call_p50: float | None
) -> str | None:
    """Return ahead, keeping-up or behind; None where no launch is linked."""
    if lead_p50 is None or call_p50 is None:
        return None
    if empty_queue_ratio > thresholds.BEHIND_EMPTY_RATIO and busy_ratio < thresholds.BEHIND_BUSY_RATIO:
        return "behind"
    if lead_p50 > thresholds.AHEAD_LEAD_CALLS * call_p50 and empty_queue_ratio < thresholds.AHEAD_EMPTY_RATIO:
        return "ahead"
    return "keeping-up"


ANALYSES = (
    Analysis(QUEUE, queue_depths, {"activities": "linked_events"}, needs=(RUN_AHEAD,)),
    Value("queue_statistics", queue_statistics),
    Value("launch_leads", lead_quantiles),
)
