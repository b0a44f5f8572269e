"""Find idle gaps in which a shared device worked for another program in turn (time-slicing).

A turn of another program interrupts this one anywhere: its work is queued, waits for nothing recorded, and goes on after a
gap of one length. What a program itself waits for comes before the same work each time, or varies.
"""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.causes import launches_after_waits
from trace_analyzer.analyses.host import Host
from trace_analyzer.analysis import Value
from trace_analyzer.errors import Note
from trace_analyzer.units import duration
from trace_analyzer.vocabulary import TIME_SLICE


def time_slices(
    gap_segments: pl.DataFrame,
    idle_gaps: pl.DataFrame,
    activities: pl.DataFrame,
    host: Host,
    unmasked_launches: pl.DataFrame,
) -> pl.DataFrame:
    """Return gap_id of the gaps that are turns of another program.

    Of the gaps of a device with work queued from their start, of `TIME_SLICE_NS` or more, that no communication and no
    launch after a wait for an event ends, `TIME_SLICES` or more and at least half must have one length (within
    `TIME_SLICE_SPREAD` of the median) and most of these one distance (within `TIME_SLICE_DISTANCE_SPREAD`). Most of the
    activities with the names that end them must begin without such a gap.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    queued = (
        gap_segments.filter(pl.col("cause") == "device", length >= thresholds.TIME_SLICE_NS)
        .join(idle_gaps.select("gap_id", "start_ns", "activity_id"), on=["gap_id", "start_ns"])
        .join(launches_after_waits(host, unmasked_launches), on="launch_id", how="anti")
    )
    if queued.height < thresholds.TIME_SLICES:
        return queued.select("gap_id").clear()
    ended = activities.select("name", "bucket")[queued.get_column("activity_id")]
    waits = queued.hstack(ended).filter(pl.col("bucket").ne_missing("communication")).sort("device", "start_ns")
    is_equal = _within(length, thresholds.TIME_SLICE_SPREAD)
    equal = waits.filter(is_equal, 2 * is_equal.sum().over("device") >= pl.len().over("device"))
    distance = pl.col("start_ns").diff().over("device")
    turns = equal.with_columns(distance.alias("distance_ns")).filter(
        pl.len().over("device") >= thresholds.TIME_SLICES,
        _within(pl.col("distance_ns"), thresholds.TIME_SLICE_DISTANCE_SPREAD).mean().over("device") > 0.5,
    )
    who = ["device", "name"]
    named = activities.select(who).join(turns.select(who).unique(), on=who).group_by("device").len("named")
    return turns.join(named, on="device").filter(2 * pl.len().over("device") < pl.col("named")).select("gap_id")


def _within(value: pl.Expr, ratio: float) -> pl.Expr:
    """Return whether a value of a device is within this ratio of the device's median."""
    median = value.median().over("device")
    return (value - median).abs() <= ratio * median


def time_slice_notes(idle_causes: pl.DataFrame, devices: pl.DataFrame) -> tuple[Note, ...]:
    """Note for each device how many turns of another program there are, and of which length and distance."""
    turns = (
        idle_causes.filter(pl.col("cause") == TIME_SLICE)
        .join(devices.select("device", "label"), on="device")
        .group_by("device", "label")
        .agg(
            pl.len(),
            (pl.col("end_ns") - pl.col("start_ns")).median().alias("ns"),
            pl.col("start_ns").sort().diff().median().alias("every_ns"),
        )
        .sort("device")
    )
    return tuple(
        Note(
            "time-sliced-device",
            "warning",
            f"device {label} idles {count:,} times for {duration(ns)}, every {duration(every)}, before queued work that usually"
            " starts at once: another program seems to use it in turn (time-slicing), and kernels may hold such turns too;"
            " nvidia-smi or rocm-smi lists the programs; record again with the device to yourself",
            count,
        )
        for _, label, count, ns, every in turns.iter_rows()
    )


ANALYSES = (Value("time_slices", time_slices), Value("time_slice_notes", time_slice_notes))
