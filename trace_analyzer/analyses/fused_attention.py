"""Bound the saving of a fused kernel for unfused attention."""

from collections.abc import Mapping

import polars as pl

from trace_analyzer.analyses.roofline import memories, with_limits
from trace_analyzer.catalog.devices import Device


def beyond_fused_roof(
    attention: pl.DataFrame, activities: pl.DataFrame, devices: Mapping[int, Device | None]
) -> pl.DataFrame:
    """Return attention as `fusions` has it, with the most that a fused kernel saves.

    That is the time of the calls minus the fused kernel's roof.

    The roof is max(FLOP of both matmuls / peak of their type, bytes of q, k, v and the output / bandwidth): the
    roofline model of `analyses.roofline`. A causal kernel skips half of the pairs, so a mask halves the FLOP. Unknown
    figures count as 0.
    """
    runs = attention.with_row_index("run")
    ids = runs.select("run", "device", "products").explode("products", empty_as_null=True, keep_nulls=True)
    products = activities.filter(pl.col("operator_id").is_in(ids.get_column("products").implode()))
    compute = (
        with_limits(products, devices)
        .select("operator_id", (pl.col("flop") / pl.col("peak_flop_per_s") * 1e9).alias("compute_ns"))
        .group_by("operator_id")
        .agg(pl.col("compute_ns").sum())
    )
    sums = (
        ids.join(compute, left_on="products", right_on="operator_id", how="left")
        .group_by("run")
        .agg(pl.col("compute_ns").sum())
    )
    memory_ns = pl.col("fused_bytes") / pl.col("byte_per_s") * 1e9
    compute_ns = pl.col("compute_ns").fill_null(0) / pl.when("masked").then(2).otherwise(1)
    roof_ns = pl.max_horizontal(compute_ns, memory_ns.fill_null(0))
    return (
        runs.join(sums, on="run", how="left", maintain_order="left")
        .join(memories(devices), on="device", how="left", maintain_order="left")
        .with_columns(
            (pl.col("time_ns") - roof_ns).clip(lower_bound=0).cast(pl.Float64).alias("saves_ns"),
            pl.col("time_ns").alias("moving_ns"),
            pl.lit("attention").alias("kind"),
            pl.lit("time of all its calls, the two matmuls too, less that of a fused kernel at its roof").alias("how"),
        )
        .drop("run", "products", "masked", "fused_bytes", "compute_ns", "byte_per_s")
    )
