"""Measure one-time host time: in long gaps that end at the first use of a kernel."""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.event_names import HOST_WAIT
from trace_analyzer.frames.intervals import clip
from trace_analyzer.vocabulary import HOST_CAUSES


def cold_gap_ns(cold: pl.DataFrame, windows: pl.DataFrame) -> dict[int, int]:
    """Return host time in gaps of at least 1 ms that end at the first use of a kernel name, by window.

    ``cold`` comes from `cold_idle`; ``windows`` are (device, window, start_ns, end_ns); windows without such time are
    left out.
    """
    inside = clip(cold, windows, ["device"])
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    return dict(inside.group_by("window").agg(length).sort("window").iter_rows())


def cold_idle(idle: pl.DataFrame, gaps: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """Return host time in ``idle`` within gaps of at least 1 ms that end at the first use of a kernel name.

    ``activities`` are in order of start. Waits of the host for other threads or processes are excluded, as they can
    recur.
    """
    long = gaps.filter(pl.col("duration_ns") >= thresholds.COLD_START_GAP_NS)
    if long.is_empty():
        return idle.clear()
    used = activities.select("activity_id", "kind", "device", "name").filter(pl.col("kind") == "kernel")
    names = used.join(long, on="activity_id", how="semi").get_column("name").unique()
    first_use = (
        used.filter(pl.col("name").is_in(names.implode()))
        .unique(["device", "name"], keep="first", maintain_order=True)
        .select("activity_id")
    )
    cold = long.join(first_use, on="activity_id", how="semi")
    within = idle.filter(pl.col("gap_id").is_in(cold.get_column("gap_id").implode()))
    return within.filter(pl.col("cause").is_in(HOST_CAUSES), pl.col("cause") != HOST_WAIT)


ANALYSES = (Value("cold_idle", cold_idle, {"idle": "idle_causes"}),)
