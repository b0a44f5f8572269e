"""The partition of a device's window: each instant is one kind of work, or idle with one cause."""

import polars as pl

from trace_analyzer import tables
from trace_analyzer.analyses.causes import CAUSES
from trace_analyzer.analyses.intervals import clip, in_order

WORK = ("compute", "memory", "latency", "other", "communication", "copy")
"""Parts of busy time. Where activities overlap, the instant counts for the first of these."""
PARTS = (*WORK, *CAUSES)


def partition(activities: pl.DataFrame, idle: pl.DataFrame) -> pl.DataFrame:
    """Table `partition`: busy time by bound and idle time by cause, disjoint, covering each window."""
    pieces = pl.concat(
        [_busy_parts(activities), idle.select("device", "start_ns", "end_ns", pl.col("cause").alias("part"))]
    )
    return tables.PARTITION.conform(in_order(pieces, ["device"]))


def part_sums(pieces: pl.DataFrame, windows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """``by``, part, time_ns: the partition summed over ``windows`` (device, start_ns, end_ns, ``by``)."""
    numbered = windows.with_row_index("row")
    sums = (
        clip(pieces, numbered.select("row", "device", "start_ns", "end_ns"), ["device"])
        .group_by("row", "part")
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("time_ns"))
    )
    return (
        sums.hstack(windows.select(by)[sums.get_column("row")])
        .group_by(*by, "part")
        .agg(pl.col("time_ns").sum())
        .sort(*by, "part")
    )


def _busy_parts(activities: pl.DataFrame) -> pl.DataFrame:
    """+1 at starts and -1 at ends per bound: the first bound in the order of `WORK` that is running."""
    spans = activities.filter(pl.col("duration_ns") > 0)
    edges = pl.concat(
        [
            spans.select("device", "bound", pl.col("start_ns").alias("time_ns"), pl.lit(1).alias("change")),
            spans.select(
                "device",
                "bound",
                (pl.col("start_ns") + pl.col("duration_ns")).alias("time_ns"),
                pl.lit(-1).alias("change"),
            ),
        ]
    )
    running = [pl.when(pl.col("bound") == work).then("change").otherwise(0).sum().alias(work) for work in WORK]
    part = pl.coalesce(*(pl.when(pl.col(work) > 0).then(pl.lit(work)) for work in WORK))
    return (
        edges.group_by("device", "time_ns")
        .agg(running)
        .sort("device", "time_ns")
        .with_columns(pl.col(work).cum_sum().over("device") for work in WORK)
        .with_columns(part.alias("part"), pl.col("time_ns").shift(-1).over("device").alias("end_ns"))
        .drop_nulls("part")
        .with_columns(
            (
                pl.col("device").rle_id()
                + pl.col("part").rle_id()
                + (pl.col("time_ns") != pl.col("end_ns").shift(1)).fill_null(True).cum_sum()
            ).alias("run")
        )
        .group_by("device", "part", "run", maintain_order=True)
        .agg(pl.col("time_ns").first().alias("start_ns"), pl.col("end_ns").last())
        .select("device", "start_ns", "end_ns", "part")
    )
