"""Find when each device worked and when it idled, over all its streams."""

import polars as pl

from trace_analyzer.frames.intervals import sort_spans, union
from trace_analyzer.frames.lookups import over_group, starts_group


def device_windows(activities: pl.DataFrame) -> pl.DataFrame:
    """Return device, start_ns, end_ns, busy_ns, from the first activity's start to the last one's end."""
    spans = activities.select("device", "start_ns", _END)
    busy = (
        union(spans, ["device"]).group_by("device").agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("busy_ns"))
    )
    return (
        spans.group_by("device")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .join(busy, on="device", how="left")
        .with_columns(pl.col("busy_ns").fill_null(0))
        .sort("device")
    )


def idle_gaps(activities: pl.DataFrame) -> pl.DataFrame:
    """Return maximal idle intervals: gap_id, device, start_ns, end_ns, activity_id (the activity that ends it).

    A gap lies where an activity starts after all earlier ones of its device have ended, so an activity
    without duration splits the idle interval it lies in. Of several that start together, the one whose
    launch started first ends the gap, then that of the lowest stream, then of the lowest correlation id.
    ``activities`` needs launch_start_ns.
    """
    place, merit = ("device", "start_ns"), ("launch_start_ns", "stream", "correlation", "activity_id")
    ordered = sort_spans(activities.select(*place, *merit, _END), ["device"])
    until = over_group(ordered, "device", pl.col("end_ns").cum_max().shift(1))
    is_first = starts_group(*place)
    together = ordered.filter(~is_first | ~is_first.shift(-1, fill_value=True)).sort(*place, *merit, nulls_last=True)
    best = together.unique(place, keep="first", maintain_order=True).select(*place, pl.col("activity_id").alias("best"))
    return (
        ordered.with_columns(until.alias("busy_until"))
        .filter(pl.col("start_ns") > pl.col("busy_until"))
        .join(best, on=place, how="left", maintain_order="left")
        .select(
            pl.int_range(pl.len(), dtype=pl.UInt32).alias("gap_id"),
            "device",
            pl.col("busy_until").alias("start_ns"),
            pl.col("start_ns").alias("end_ns"),
            pl.coalesce("best", "activity_id").alias("activity_id"),
        )
    )


_END = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
