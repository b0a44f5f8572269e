"""Find attention whose scores pass through memory between two batched matmuls."""

import polars as pl

from trace_analyzer.analyses.fusion_calls import elements, operators_in_order, plain_operators, with_tensors

_STREAM = ["device", "stream"]
_ATTENTION_CALLS = 8
"""Most calls between the two matmuls of one attention: scale, mask, softmax, dropout, casts."""
_MASKS = ["add", "baddbmm", "masked_fill", "where"]
"""Operators that may mask scores, between the matmuls or in the first one."""


def unfused_attention(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """Find softmax between two batched matmuls: a fused kernel keeps the scores on the chip.

    The scores must be the first matmul's output and the second's first input, by number of elements. ``calls`` and
    ``tensors`` come from `fusion_calls.calls_with_tensors`.
    """
    marked = _with_products(calls, tensors)
    softmax = _softmax_between(marked, tensors)
    between = softmax.select(
        "before", "after", "write_bytes", pl.int_ranges("before", pl.col("after") + 1).alias("position")
    ).explode("position")
    inner = (pl.col("position") > pl.col("before")) & (pl.col("position") < pl.col("after"))
    # A fused kernel reads q, k and v and writes the output. Of the second matmul's inputs, v is the one that is not the
    # scores; baddbmm's first input has the size of the scores, or is not read. Uncertain bytes are excluded, which
    # keeps the roof low.
    added = pl.when(pl.col("operator").first() == "baddbmm").then(pl.col("write_bytes").first()).otherwise(0)
    q_and_k = (pl.col("read_bytes").first() - added).clip(lower_bound=0)
    v = (pl.col("read_bytes").last() - pl.col("write_bytes").filter("inner").max()).clip(lower_bound=0).fill_null(0)
    fused_bytes = q_and_k + v + pl.col("write_bytes").last().fill_null(0)
    moved_bytes = (pl.col("read_bytes") + pl.col("write_bytes").fill_null(0)).sum()
    return (
        between.drop("write_bytes")
        .with_columns(inner.alias("inner"))
        .join(marked, on="position", how="inner", maintain_order="left")
        .pipe(with_tensors, tensors)
        .pipe(plain_operators)
        .group_by(pl.col("before").alias("first"), maintain_order=True)
        .agg(
            pl.col("device", "activity_id", "start_ns").first(),
            pl.col("end_ns").max(),
            operators_in_order(),
            pl.col("writes").first().alias("tensors"),
            pl.col("kernel_count", "time_ns").sum(),
            moved_bytes.alias("moved_bytes"),
            (moved_bytes - fused_bytes).clip(lower_bound=0).alias("saved_bytes"),
            fused_bytes.alias("fused_bytes"),
            (pl.col("operator").is_in(_MASKS)).any().alias("masked"),
            pl.concat_list(pl.col("operator_id").first(), pl.col("operator_id").last()).alias("products"),
            pl.col("call").filter("inner"),
        )
        .drop("first")
    )


def _with_products(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """Add each call's index, whether it is a batched matmul, and the indices of the surrounding matmuls."""
    if not calls.get_column("is_softmax").any():
        calls = calls.clear()
    writes = tensors.get_column("writes").is_not_null()[calls.get_column("tensors")]
    product = pl.col("operator").is_in(["aten::bmm", "aten::baddbmm"]) & writes
    position = pl.int_range(pl.len(), dtype=pl.Int64)
    return calls.with_columns(product.fill_null(False).alias("product"), position.alias("position")).with_columns(
        pl.when("product").then("position").forward_fill().over(_STREAM).alias("before"),
        pl.when("product").then("position").backward_fill().over(_STREAM).alias("after"),
        (~pl.col("fusible") & ~pl.col("product")).cum_sum().alias("strangers"),
    )


def _softmax_between(marked: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """Return each softmax of scores that one matmul wrote and the next one reads, by the indices of the two."""
    sizes = with_tensors(marked.filter("product"), tensors).select(
        "position", "writes", "reads", "write_bytes", "strangers", "call"
    )
    return (
        marked.filter("is_softmax", pl.col("after") - pl.col("before") <= _ATTENTION_CALLS)
        .pipe(with_tensors, tensors)
        .select("position", "before", "after", "device", elements=elements(pl.col("writes")))
        .join(sizes.rename({"position": "before"}), on="before", how="inner", suffix="_before")
        .join(
            sizes.select(pl.col("position").alias("after"), "reads", "strangers", pl.col("call").alias("last_call")),
            on="after",
            how="inner",
            suffix="_after",
        )
        .filter(
            pl.col("strangers") == pl.col("strangers_after"),
            pl.col("elements") == elements(pl.col("writes")),
            pl.col("elements") == elements(pl.col("reads_after").list.first()),
        )
        .unique("before", keep="first", maintain_order=True)
        .unique("after", keep="first", maintain_order=True)
    )
