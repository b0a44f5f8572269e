"""Compare shares of FLOP with shares of time by bucket and by group, as the article does."""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.roofline import work_rates, work_sums


def bucket_work(kernels: pl.DataFrame) -> pl.DataFrame:
    """Sum kernels (see `roofline.with_roofs`) of one device by bucket, longest first.

    In addition to sums and rates: ``time_ratio`` and ``flop_ratio`` are shares of the total over all buckets (of known
    FLOP), and ``known_ratio`` is the share of the bucket's time with known FLOP. A rate is null where that is below
    `thresholds.KNOWN_RATE_RATIO`. Shares of FLOP are null where it is for all matmuls and convolutions together, which
    have nearly all FLOP.
    """
    sums = (
        kernels.drop_nulls("bucket")
        .group_by("bucket")
        .agg(pl.col("group").mode().sort().first(), *work_sums())
        .sort("time_ns", "bucket", descending=[True, False])
    )
    return sums.with_columns(*work_rates(), *_shares()).with_columns(*_well_known())


def group_work(kernels: pl.DataFrame) -> pl.DataFrame:
    """Sum kernels by group, with ``slower_ratio``: the matmul group's FLOP/s divided by the group's.

    This is the article's "normalization achieves 250x less FLOP/s". It is null where too little of either group's time
    has known FLOP for its rate to represent the group.
    """
    sums = (
        kernels.drop_nulls("group")
        .group_by("group")
        .agg(*work_sums())
        .sort("time_ns", "group", descending=[True, False])
    )
    rate = pl.when(pl.col("known_ratio") >= thresholds.KNOWN_RATE_RATIO).then("achieved_flop_per_s")
    matmul = rate.filter(pl.col("group") == "matmul").first()
    slower = pl.when(rate > 0).then(matmul / rate)
    return (
        sums.with_columns(*work_rates(), *_shares())
        .with_columns(slower.alias("slower_ratio"))
        .with_columns(*_well_known())
    )


def _shares() -> list[pl.Expr]:
    time, flop = pl.col("time_ns"), pl.col("flop")
    return [
        pl.when(time.sum() > 0).then(time / time.sum()).otherwise(0.0).alias("time_ratio"),
        pl.when(flop.sum() > 0).then(flop / flop.sum()).alias("flop_ratio"),
        pl.when(time > 0).then(pl.col("flop_time_ns") / time).otherwise(0.0).alias("known_ratio"),
    ]


def _well_known() -> list[pl.Expr]:
    """Return rates and shares of FLOP, null where too little of a group's work is known to represent it."""
    enough = pl.col("known_ratio") >= thresholds.KNOWN_RATE_RATIO
    known, time = (pl.col(column).filter(pl.col("group") == "matmul").sum() for column in ("flop_time_ns", "time_ns"))
    products_known = (time == 0) | (known >= thresholds.KNOWN_RATE_RATIO * time)
    return [
        pl.when(enough).then("achieved_flop_per_s").alias("achieved_flop_per_s"),
        pl.when(products_known).then("flop_ratio").alias("flop_ratio"),
    ]
