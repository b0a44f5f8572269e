"""Compare shares of FLOP with shares of time, by bucket and by group, as the article does."""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.roofline import work_rates, work_sums


def bucket_work(kernels: pl.DataFrame) -> pl.DataFrame:
    """Sum kernels (see `roofline.with_roofs`) of one device by bucket, longest first.

    Beside sums and rates: ``time_ratio`` and ``flop_ratio`` of the sum over all buckets (of the FLOP that are
    known), and ``known_ratio``, the share of the bucket's time whose FLOP are known. A rate is null where that is under
    `thresholds.KNOWN_RATE_RATIO`, and shares of FLOP are where it is for all matmuls and convolutions together: these hold nearly all FLOP.
    """
    sums = (
        kernels.drop_nulls("bucket")
        .group_by("bucket")
        .agg(pl.col("group").mode().sort().first(), *work_sums())
        .sort("time_ns", "bucket", descending=[True, False])
    )
    return sums.with_columns(*work_rates(), *_shares()).with_columns(*_well_known())


def group_work(kernels: pl.DataFrame) -> pl.DataFrame:
    """Sum kernels by group, with ``slower_ratio``: FLOP/s of the matmul group over those of the group.

    That figure is the article's "normalization achieves 250x less FLOP/s". It is null where the FLOP of too
    little of either group's time are known for its rate to stand for the group.
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
    """Return rates and shares of FLOP that stand for their group, null where too little of its work is known."""
    enough = pl.col("known_ratio") >= thresholds.KNOWN_RATE_RATIO
    known, time = (pl.col(column).filter(pl.col("group") == "matmul").sum() for column in ("flop_time_ns", "time_ns"))
    products_known = (time == 0) | (known >= thresholds.KNOWN_RATE_RATIO * time)
    return [
        pl.when(enough).then("achieved_flop_per_s").alias("achieved_flop_per_s"),
        pl.when(products_known).then("flop_ratio").alias("flop_ratio"),
    ]
