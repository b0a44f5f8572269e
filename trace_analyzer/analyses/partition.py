"""Partition a device's window: each instant is one kind of work, or idle time with one cause."""

import polars as pl

from trace_analyzer import metrics
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.frames.intervals import coalesce, overlap_sums, sort_spans, sweep_sum
from trace_analyzer.schema import DEVICE, END, PART, START, Table
from trace_analyzer.vocabulary import WORK

PARTITION = Table(
    "partition",
    "Each device's whole window as disjoint intervals.",
    (
        DEVICE,
        START,
        END,
        PART,
    ),
)


def partition(busy: pl.DataFrame, idle: pl.DataFrame) -> pl.DataFrame:
    """Return table `partition`: busy time by bound and idle time by cause, disjoint, covering each window."""
    caused = idle.select("device", "start_ns", "end_ns", pl.col("cause").cast(pl.Categorical).alias("part"))
    parts = sort_spans(pl.concat([busy, caused]), ["device"]).select(list(PARTITION.schema))
    return coalesce(parts, ["device"], "part")


def part_sums(busy: pl.DataFrame, idle: pl.DataFrame, windows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Sum both halves of the partition over the disjoint ``windows``: ``by``, part, time_ns."""
    sums = pl.concat(
        [
            overlap_sums(busy, "part", windows, ["device"]),
            overlap_sums(idle.rename({"cause": "part"}), "part", windows, ["device"]),
        ]
    )
    return (
        windows.select(by)[sums.get_column("row")]
        .with_columns(sums.get_column("part"), sums.get_column("overlap_ns").alias("time_ns"))
        .group_by(*by, "part")
        .agg(pl.col("time_ns").sum())
        .sort(*by, "part")
    )


def busy_parts(activities: pl.DataFrame) -> pl.DataFrame:
    """Return device, start_ns, end_ns, part: of the bounds in progress, the first in the order of `WORK`."""
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    lasting = activities.select("device", "start_ns", "duration_ns", "bound").filter(pl.col("duration_ns") > 0)
    spans = lasting.select(
        "device",
        "start_ns",
        end,
        *((pl.col("bound") == work).fill_null(False).cast(pl.Int32).alias(work) for work in WORK),
    )
    part = pl.coalesce(*(pl.when(pl.col(work) > 0).then(pl.lit(work, dtype=pl.Categorical)) for work in WORK))
    parts = (
        sweep_sum(spans, "device", list(WORK))
        .select("device", "start_ns", pl.col("start_ns").shift(-1).alias("end_ns"), part.alias("part"))
        .drop_nulls("part")
    )
    return coalesce(parts, ["device"], "part")


ANALYSES = (
    Value("busy_parts", busy_parts, needs=(metrics.PARTITION,)),
    Analysis(PARTITION, partition, {"busy": "busy_parts", "idle": "idle_causes"}, needs=(metrics.PARTITION,)),
)
