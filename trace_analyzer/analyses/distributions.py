"""Bin times for plots: by logarithm, or along the trace."""

import numpy as np
import numpy.typing as npt
import polars as pl


def logarithmic_histogram(times: pl.DataFrame, bins_per_decade: int) -> pl.DataFrame:
    """Count positive times in bins of equal logarithmic width, over whole decades.

    ``times`` has value_ns, start_ns, end_ns and at least one row; if it has weight_ns, its sum is the height instead of
    the count. Returns low_ns, high_ns, height, and start_ns, end_ns of each bin's largest time, null for an empty bin.
    """
    edges = _edges(times.get_column("value_ns"), bins_per_decade)
    inside = np.searchsorted(edges[1:-1], times.get_column("value_ns").to_numpy(), side="right")
    bins = (
        times.with_columns(bin=pl.Series(inside, dtype=pl.Int64))
        .group_by("bin")
        .agg(
            (pl.col("weight_ns").sum() if "weight_ns" in times.columns else pl.len()).alias("height"),
            pl.col("start_ns", "end_ns").get(pl.col("value_ns").arg_max()),
        )
        .with_columns(pl.exclude("bin").cast(pl.Float64))
    )
    return (
        pl.DataFrame({"bin": np.arange(len(edges) - 1), "low_ns": edges[:-1], "high_ns": edges[1:]})
        .join(bins, on="bin", how="left", maintain_order="left")
        .with_columns(pl.col("height").fill_null(0))
        .drop("bin")
    )


def highest_per_bin(steps: pl.DataFrame, column: str, bins: int) -> pl.DataFrame:
    """Reduce a step function of time to at most one change per bin, with the highest value in the bin.

    ``steps`` has time_ns and ``column``, in order of time, and at least one row. Returns the same columns, with the time of
    the first change in each of ``bins`` bins that has one.
    """
    start, end = steps.select(pl.min("time_ns").alias("start"), pl.max("time_ns").alias("end")).row(0)
    width = max((end - start) / bins, 1)
    return (
        steps.select("time_ns", column)
        .group_by(((pl.col("time_ns") - start) // width).alias("bin"), maintain_order=True)
        .agg(pl.col("time_ns").first(), pl.col(column).max())
        .drop("bin")
    )


def _edges(values: pl.Series, bins_per_decade: int) -> npt.NDArray[np.float64]:
    least, most = np.log10(values.min()), np.log10(values.max())  # type: ignore[arg-type]
    first, last = np.floor(least), max(np.ceil(most), np.floor(least) + 1)
    return 10 ** np.linspace(first, last, round((last - first) * bins_per_decade) + 1)
