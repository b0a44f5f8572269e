"""Define the rules for kernels that one kernel could replace."""

from dataclasses import replace

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.advice.opportunity import (
    Opportunity,
    in_a_step,
    kernel_opportunity,
    length_ns,
    outside,
    run_opportunity,
    steps_of,
    total,
    worth_ns,
)
from trace_analyzer.advice.overhead import replayed_ratio
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.frames.intervals import union
from trace_analyzer.frames.lookups import map_unique
from trace_analyzer.units import size


def attention_kernel(context: AdviceContext) -> Opportunity | None:
    """Propose fused attention, whose scores do not pass through memory between the two matmuls."""
    runs = context.within.fusions.filter(pl.col("kind") == "attention")
    how = "time of all calls of unfused attention, its two matmuls too, minus the roofline time of one fused kernel (the longer of FLOP over peak and bytes over bandwidth)"
    moved = size(total(runs, "saved_bytes") / steps_of(context.steps, runs.height))
    is_module = runs.get_column("module").cast(pl.String) == "MultiheadAttention"
    opportunity = run_opportunity(
        context,
        runs,
        how,
        f"{in_a_step(context, runs.height, 'attention moves', 'attentions move')} {moved} of scores through memory",
        bounds=("compute", "memory", "latency", "other"),
    )
    return opportunity and replace(opportunity, case="MultiheadAttention" if is_module.any() else "")


def fusion(context: AdviceContext) -> Opportunity | None:
    """Propose fusing chains with known tensors, else consecutive kernels."""
    others = union(context.within.fusions.filter(pl.col("kind") != "chain"), ["device"])
    chains = outside(context.within.fusions.filter(pl.col("kind") == "chain"), others)
    if total(chains, "saves_ns") < worth_ns(context):
        rows = _followers(context, others)
        opportunity = kernel_opportunity(
            context,
            rows,
            pl.col("duration_ns"),
            "time of all such kernels but the first of each chain: a fused chain moves its data once",
            f"{in_a_step(context, rows.height, 'pointwise or normalization kernel follows', 'pointwise and normalization kernels follow')}"
            " another one on the same stream: each of them reads and writes all its data again",
        )
        # The replay fuses the chains of table `fusions`, and these kernels are not among them.
        return opportunity and replace(opportunity, is_replayed=False)
    codes = chains.group_by("code").agg(pl.col("saves_ns").sum()).sort("saves_ns", "code", descending=[True, False])
    opportunity = run_opportunity(
        context,
        chains,
        "time of the chains, times the share of their bytes that only passes from one kernel to the next",
        f"{in_a_step(context, chains.height, 'chain writes', 'chains write')} {size(total(chains, 'saved_bytes') / 2 / steps_of(context.steps, chains.height))} that, by shape and type,"
        " the next kernel reads again",
        chains="\n".join(codes.get_column("code").head(3)),
    )
    return opportunity and replace(opportunity, case="chains")


_WRITTEN = r"multi_tensor|_foreach_|(?i:_?fused_?(?:adam|sgd|adagrad|lamb))|(?i:cudnn|miopen|convolution|batched_transpose|nchw|nhwc)"
"""Names and operators of kernels that process many tensors, or that a library launches."""
_OF_TORCH = r"^(void )?at::native"
"""Names of PyTorch's own kernels, which an operator of its own launches unless the operator is not recorded."""


def fuse_replayed(context: AdviceContext) -> Opportunity | None:
    """Propose compiling where graphs launch the kernels already, and many of them are too small to fill the device."""
    if (
        context.verdict.cause != "small-kernels"
        or replayed_ratio(context.within.activities) <= thresholds.REPLAYED_RATIO
    ):
        return None
    rows = _followers(context, union(context.within.fusions.filter(pl.col("kind") != "chain"), ["device"]), small=True)
    gaps = context.within.gaps.join(rows, on="activity_id", how="semi").get_column("gap_id")
    between = context.idle.filter(pl.col("cause") == "device-gap", pl.col("gap_id").is_in(gaps.implode()))
    opportunity = kernel_opportunity(
        context,
        rows,
        pl.col("duration_ns"),
        "time of all such kernels but the first of each chain, and the gaps before them",
        f"{in_a_step(context, rows.height, 'small kernel follows', 'small kernels follow')} another one on the same stream, and a graph"
        " starts each",
    )
    return opportunity and replace(opportunity, saves_ns=opportunity.saves_ns + total(between, length_ns()))


def _followers(context: AdviceContext, others: pl.DataFrame, *, small: bool = False) -> pl.DataFrame:
    """Return the memory-bound kernels after the first of each run, except those that other fixes replace.

    These are pointwise and normalization kernels, or all ``small`` ones, too, that neither multiply matrices nor attend.
    Kernels that are none of PyTorch's own (a compiler fused them, or a library wrote them, and no compiler fuses these),
    that a library launches, or a call that equals the one before are none.
    """
    name, operator = pl.col("name"), pl.col("operator")
    written = name.str.contains(_WRITTEN) | operator.str.contains(_WRITTEN).fill_null(False)
    written |= ~pl.coalesce(operator.str.starts_with("aten::"), name.str.contains(_OF_TORCH))
    is_written = map_unique(context.within.activities.select("name", "operator"), written.alias("is_written"))
    kinds = (pl.col("group").is_in(["pointwise", "normalization"])) & (pl.col("bound") == "memory")
    if small:
        products = pl.col("group").is_in(["matmul", "attention", "convolution", "communication"])
        kinds = (pl.col("kind") == "kernel") & pl.col("bound").is_in(["memory", "latency"]) & ~products
    fusible = (kinds & ~pl.col("is_written")).fill_null(False)
    again = pl.all_horizontal(pl.col(c) == pl.col(c).shift(1).over("stream") for c in ("operator", "moved_bytes"))
    return (
        outside(context.within.activities.with_columns(is_written), others)
        .sort("stream", "start_ns")
        .filter(fusible, fusible.shift(1).over("stream"), ~again.fill_null(False))
    )
