"""Declare the rules of advice for what kernels compute and move."""

import json
from dataclasses import replace
from math import prod

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.advice.opportunity import (
    Opportunity,
    kernel_opportunity,
    outside,
    profiled,
    run_opportunity,
    total,
    where_called,
    worth_ns,
)
from trace_analyzer.advice.traffic import runs_in_16_bits
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.frames.intervals import union
from trace_analyzer.frames.lookups import as_strings, factorize, lookup, map_unique
from trace_analyzer.units import count, counted, percent, size


def attention_kernel(context: AdviceContext) -> Opportunity | None:
    """Return the saving of fused attention, whose scores do not go through memory between the two matmuls."""
    runs = context.within.fusions.filter(pl.col("kind") == "attention")
    how = (
        "time of all calls of unfused attention, its two matmuls too, less that of a fused kernel at its roof: FLOP over"
        " peak or bytes over bandwidth, whichever takes longer"
    )
    moved = size(total(runs, "saved_bytes"))
    is_module = runs.get_column("module").cast(pl.String) == "MultiheadAttention"
    return run_opportunity(
        context,
        runs,
        how,
        f"the scores of {counted(runs.height, 'attention moves', 'attentions move')} {moved} through memory",
        bounds=("compute", "memory", "latency", "other"),
        snippet=_WITHOUT_WEIGHTS if is_module.any() else _FUSED_ATTENTION,
    )


_FUSED_ATTENTION = """out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # is_causal=True instead of a causal mask
# Hugging Face: from_pretrained(..., attn_implementation="sdpa")"""
_WITHOUT_WEIGHTS = """out, _ = attention(q, k, v, need_weights=False)  # nn.MultiheadAttention fuses unless its weights are returned
# elsewhere: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"""


def fusion(context: AdviceContext) -> Opportunity | None:
    """Return the saving of fusing chains whose tensors are known, else kernels that follow each other."""
    others = union(context.within.fusions.filter(pl.col("kind") != "chain"), ["device"])
    chains = outside(context.within.fusions.filter(pl.col("kind") == "chain"), others)
    if total(chains, "saves_ns") < worth_ns(context):
        return _followers(context, others)
    codes = chains.group_by("code").agg(pl.col("saves_ns").sum()).sort("saves_ns", "code", descending=[True, False])
    return run_opportunity(
        context,
        chains,
        "share of the chains' bytes that only goes from one kernel to the next, of their time",
        f"{counted(chains.height, 'chain writes', 'chains write')} {size(total(chains, 'saved_bytes') / 2)} to memory that only their next kernel"
        " reads",
        snippet="\n".join(codes.get_column("code").head(3)),
    )


_WRITTEN = (
    r"^triton_|CompiledFunction|Torch-Compiled|^## Call Compiled|multi_tensor|_foreach_|(?i:_?fused_?(?:adam|sgd|adagrad|lamb))"
    r"|(?i:cudnn|miopen|convolution|batched_transpose|nchw|nhwc)"
)
"""Names and operators of kernels that a compiler fused, that pass over many tensors at once, or that a library launches."""


def _followers(context: AdviceContext, others: pl.DataFrame) -> Opportunity | None:
    """Return memory-bound kernels after the first of each run on a stream, outside of what other fixes replace.

    What is fused already, or launched inside a library, is no link of such a chain.
    """
    name, operator = pl.col("name"), pl.col("operator")
    written = name.str.contains(_WRITTEN) | operator.str.contains(_WRITTEN).fill_null(False)
    is_written = map_unique(context.within.activities.select("name", "operator"), written.alias("is_written"))
    fusible = (
        pl.col("group").is_in(["pointwise", "normalization"]) & (pl.col("bound") == "memory") & ~pl.col("is_written")
    )
    followers = (
        outside(context.within.activities.with_columns(is_written), others)
        .sort("stream", "start_ns")
        .with_columns((fusible & fusible.shift(1).over("stream").fill_null(False)).alias("follows"))
        .filter("follows")
    )
    opportunity = kernel_opportunity(
        context,
        followers,
        pl.col("duration_ns"),
        "time of every such kernel but the first of its chain: a fused chain moves data once",
        f"{counted(followers.height, 'pointwise or normalization kernel follows', 'pointwise and normalization kernels follow')}"
        " another one on the same stream: each reads and writes all its data again",
        snippet="model = torch.compile(model)  # one pass over memory instead of one per operator",
    )
    # The replay fuses the chains of table `fusions`, which these kernels are not.
    return opportunity and replace(opportunity, is_replayed=False)


def channels_last(context: AdviceContext) -> Opportunity | None:
    """Return the saving without the kernels in which convolution libraries convert the layout of images and back."""
    rows = where_called(
        context.within.activities,
        pl.col("name").str.contains(r"(?i)nchwToNhwc|nhwcToNchw|NCHW2CNHW|CNHW2NCHW|^batched_transpose_\d+x\d+"),
    )
    return kernel_opportunity(
        context,
        rows,
        pl.col("duration_ns"),
        "all time of the kernels that change the layout",
        f"{counted(rows.height, 'kernel only turns', 'kernels only turn')} images from one layout into the other around"
        " convolutions",
    )


def skinny_matmuls(context: AdviceContext) -> Opportunity | None:
    """Return the saving of larger batches for matmuls and attention that memory bandwidth limits.

    A few rows are multiplied by all weights, or a query by a whole cache.
    """
    unfused_attention = union(context.within.fusions.filter(pl.col("kind") == "attention"), ["device"])
    # In 16 bit, attention of n queries for each key has about n FLOP per byte: many queries read no cache for a few.
    whole = (pl.col("bucket") == "attention") & (pl.col("flop") > thresholds.FEW_QUERIES * pl.col("moved_bytes"))
    skinny = (pl.col("bound") == "memory") & (pl.col("group") == "matmul") & ~whole.fill_null(False)
    rows = outside(context.within.activities.filter(skinny), unfused_attention)
    rows = rows.filter(_reads_weights(rows.hstack(lookup(context.within.shapes, rows, "operator_id"))))
    few = 2 * total(where_called(rows, pl.col("name").str.contains(_FOUR_BITS)), "duration_ns") > total(
        rows, "duration_ns"
    )
    named = total(rows.filter(pl.col("moved_bytes").is_null()), "duration_ns")
    how = ", most of them by their names alone" if 2 * named > total(rows, "duration_ns") else ""
    opportunity = kernel_opportunity(
        context,
        rows,
        pl.col("duration_ns") / 2,
        "half the time of memory-bound matmuls and attention: half the bytes for the same work",
        f"{counted(rows.height, 'matmul or attention kernel reads', 'matmuls and attention kernels read')} much for little"
        f" arithmetic{how}",
        or_fewer_bits="" if few or context.program == "training" else ", or fewer bits",
    )
    return opportunity and replace(opportunity, case="few bits" if few else "")


_FOUR_BITS = r"(?i)mxfp4|nvfp4|fp4|int4|w4a|awq|gptq|marlin"
"""Names of kernels whose weights have 4 bits."""


def _reads_weights(rows: pl.DataFrame) -> pl.Series:
    """Return whether weights, or the cache of attention, are most of the bytes; true for what no shapes were recorded of.

    Weights are the second factor of a product and of a convolution; both factors of a batched product are activations.
    """
    keys = ["operator", "input_dims", "dtype", "moved_bytes"]
    numbers, firsts = factorize(*rows.select(keys))
    answers = [_weights_are_most(*row) for row in as_strings(rows.select(keys)[firsts]).iter_rows()]
    return pl.Series(answers, dtype=pl.Boolean)[numbers]


_BATCHED = ("aten::bmm", "aten::baddbmm")
_WEIGHT_ARGUMENTS = {"aten::mm": 1, "aten::addmm": 2, "aten::linear": 1, "aten::_scaled_mm": 1}
_ITEM_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}


def _weights_are_most(
    operator: str | None, input_dims: str | None, dtype: str | None, moved_bytes: float | None
) -> bool:
    if operator in _BATCHED:
        return False
    is_convolution = "convolution" in (operator or "")
    argument = 1 if is_convolution else _WEIGHT_ARGUMENTS.get(operator or "")
    if argument is None or input_dims is None or not moved_bytes or dtype not in _ITEM_BYTES:
        return not is_convolution
    dims = json.loads(input_dims)
    if argument >= len(dims) or (not is_convolution and _sums_over_rows(dims[argument - 1], dims[argument])):
        return False
    return bool(2 * prod(dims[argument]) * _ITEM_BYTES[dtype] > moved_bytes)


_MANY_ROWS = 8
"""A product that sums over so many times more than it has rows and columns is a weight's gradient: it sums over the batch."""


def _sums_over_rows(left: list[int], right: list[int]) -> bool:
    return len(left) == len(right) == 2 and left[1] == right[0] and left[1] >= _MANY_ROWS * max(left[0], right[1])


_SCALED = """
scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()  # in training; once: scaler = torch.amp.GradScaler("cuda")"""
"""Gradients of FP16 underflow unless the loss is scaled."""
_TORCH_DTYPES = {"tf32": "bfloat16", "bf16": "bfloat16", "fp16": "float16"}


def fewer_bytes(context: AdviceContext) -> Opportunity | None:
    """Return the saving of 16-bit types in fp32 pointwise and normalization kernels that memory limits.

    What changes their type also takes products out of fp32: those that TF32 would make faster are counted here too.
    """
    dtype = next((d for d in ("bf16", "fp16") if context.model and context.model.peak_flops(d)), None)
    if dtype is None or runs_in_16_bits(context):
        return None
    passes = context.within.activities.filter(
        (pl.col("bound") == "memory")
        & pl.col("group").is_in(["pointwise", "normalization"])
        & ~pl.col("bucket").is_in(["optimizer", "loss"])
    )
    name = pl.col("name")
    wide = where_called(passes, name.str.contains(r"\bfloat\b") & ~name.str.contains(r"(?i)half|bfloat16|double"))
    if wide.is_empty():
        return None
    products = _products_in_16_bits(context, dtype)
    ran = (
        f", and {counted(products.height, _products(products).removesuffix('s'), _products(products))} ran in it"
        if products.height
        else ""
    )
    return kernel_opportunity(
        context,
        pl.concat([wide.with_columns((pl.col("duration_ns") / 2).alias("halved_ns")), products], how="diagonal"),
        pl.col("halved_ns"),
        "half the time of memory-bound pointwise and normalization kernels on fp32: half the bytes"
        f"{'; and time of products in fp32 beyond their roof in 16 bit' if products.height else ''}",
        f"{counted(wide.height, 'memory-bound kernel reads and writes', 'memory-bound kernels read and write')} fp32{ran}",
        dtype=dtype,
        torch_dtype=_TORCH_DTYPES[dtype],
        scaled=_SCALED if dtype == "fp16" else "",
    )


def _products_in_16_bits(context: AdviceContext, dtype: str) -> pl.DataFrame:
    """Return products in fp32 that TF32 would make faster, with the most that a 16-bit type can save of each (``halved_ns``).

    Their roof is in 16 bit no lower than that in TF32 times half, or times the ratio of the peaks if that is less.
    """
    tf32, narrow = (context.model.peak_flops(d) if context.model else None for d in ("tf32", dtype))
    slow = _missed(context, "fp32").filter(pl.col("target_dtype") == "tf32")
    least = min(0.5, tf32 / narrow) if tf32 and narrow else 0.0
    roof_ns = pl.col("duration_ns") - pl.col("saves_ns")
    return slow.select(pl.exclude("saves_ns"), (pl.col("duration_ns") - least * roof_ns).alias("halved_ns"))


def _missed(context: AdviceContext, *reasons: str) -> pl.DataFrame:
    """Return kernels of the verdict's regimes that could use tensor cores better, with what each can save."""
    bounds = [bound for bound, regime in _REGIMES.items() if regime in context.regimes] or list(_REGIMES)
    missed = context.within.missed.select("activity_id", "reason", "target_dtype", "saves_ns")
    return context.within.activities.filter(pl.col("bound").is_in(bounds)).join(
        missed.filter(pl.col("reason").is_in(reasons)), on="activity_id", how="inner", maintain_order="left"
    )


_REGIMES = {"compute": "compute-bound", "memory": "memory-bandwidth-bound"}


def out_of_fp32(context: AdviceContext, *, tf32: bool) -> Opportunity | None:
    """Return the saving of matmul and convolution out of fp32, in the nearest type that tensor cores compute faster."""
    slow = _missed(context, "fp32").filter((pl.col("target_dtype") == "tf32") == tf32)
    if slow.is_empty() or (not tf32 and runs_in_16_bits(context)):
        return None
    dtype = slow.get_column("target_dtype").item(0)
    return kernel_opportunity(
        context,
        slow,
        pl.col("saves_ns"),
        f"time of matmuls and convolutions in fp32 beyond their roof on tensor cores in {dtype}, or beyond their share of the ratio of"
        " the peaks where shapes are unknown",
        f"{counted(slow.height, _products(slow).removesuffix('s'), _products(slow))} ran in fp32",
        dtype=dtype,
        torch_dtype=_TORCH_DTYPES[dtype],
        scaled=_SCALED if dtype == "fp16" else "",
    )


def padding(context: AdviceContext) -> Opportunity | None:
    """Return the saving of padding sizes that keep products from tensor cores, or from aligned vector loads."""
    unknown = context.within.activities.filter(pl.col("group") == "matmul", pl.col("flop").is_null())
    narrow = where_called(unknown, pl.col("name").str.contains(r"(?i)_align[12](\D|$)")).with_columns(
        (pl.col("duration_ns") / 2).alias("saves_ns")
    )
    known = _missed(context, "unaligned", "vector-units")
    written_out = union(context.within.fusions.filter(pl.col("kind") == "attention"), ["device"])
    rows = outside(
        pl.concat([known, narrow.join(known, on="activity_id", how="anti")], how="diagonal_relaxed"), written_out
    )
    sizes = _odd_sizes(rows.hstack(lookup(context.within.shapes, rows, "operator_id")))
    return kernel_opportunity(
        context,
        rows,
        pl.col("saves_ns"),
        "time of these kernels beyond their roof on tensor cores; half of it where FLOP and bytes are not known",
        f"{counted(rows.height, 'matmul or convolution uses', 'matmuls and convolutions use')} kernels for sizes or strides that are no multiples of 8 (align1, align2), or"
        f" that do without tensor cores{f'; odd: {sizes}' if sizes else ''}",
        snippet=f"size = (size + 7) // 8 * 8  # {sizes or 'every size of a matmul: 8 in 16 bit, 64 at best'}",
    )


_FACTORS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
"""Products, and which of their arguments is the first factor."""


def _odd_sizes(rows: pl.DataFrame) -> str:
    """Return which sizes of the product that can save most are no multiples of 8, with their dimension; may be empty."""
    known = rows.filter(pl.col("operator").cast(pl.String).is_in(list(_FACTORS)) & pl.col("input_dims").is_not_null())
    sums = as_strings(known.select("operator", "input_dims", "saves_ns")).group_by("operator", "input_dims")
    top = sums.agg(pl.col("saves_ns").sum()).sort("saves_ns", "operator", "input_dims", descending=[True, False, False])
    for operator, input_dims, _ in top.head(1).iter_rows():
        first, second = json.loads(input_dims)[_FACTORS[operator] :][:2]
        sizes = (("rows", first[-2]), ("inner size", first[-1]), ("columns", second[-1]))
        odd = [f"{name} {count(size)} -> {count(-(-size // 8) * 8)}" for name, size in sizes if size % 8]
        return f"{operator} with {', '.join(odd)}" if odd else ""
    return ""


def low_precision(context: AdviceContext) -> Opportunity | None:
    """Return the saving of 8-bit matmul and convolution, on a device that is faster in 8 bit than in 16."""
    wide, narrow = (context.model.peak_flops(d) if context.model else None for d in ("bf16", "fp8"))
    if wide is None or narrow is None or narrow <= wide:
        return None
    half = pl.col("dtype").is_in(["bf16", "fp16"]) | pl.col("name").str.contains(r"(?i)bf16|fp?16|half|bfloat")
    eight = pl.col("name").str.contains(r"(?i)fp8|f8|e4m3|e5m2|int8|i8|mxfp|e2m1")
    products = context.within.activities.filter(pl.col("bound") == "compute", pl.col("bucket").is_in(["matmul", "moe"]))
    rows = where_called(products, half.fill_null(False) & ~eight)
    return kernel_opportunity(
        context,
        rows,
        pl.col("duration_ns") * (1 - wide / narrow),
        f"time of matmuls in 16 bit, if they reach the peak of fp8: {narrow / wide:.3g} times that of bf16 on this device",
        f"{counted(rows.height, 'matmul')} ran in 16 bit",
        dtype="fp8",
    )


def inefficient_kernels(context: AdviceContext) -> Opportunity | None:
    """Return kernels that fill the device and stay far below both roofs, but those that other fixes replace."""
    unfused = union(context.within.fusions.filter(pl.col("kind").is_in(["attention", "optimizer"])), ["device"])
    slow = context.within.roofs.filter("inefficient").select("activity_id", "roof_ns", "lost_ns")
    rows = outside(
        context.within.activities.filter(pl.col("group") != "communication")
        .join(context.within.missed, on="activity_id", how="anti")
        .join(slow, on="activity_id", how="inner", maintain_order="left"),
        unfused,
    )
    reached = total(rows, "roof_ns") / max(1, total(rows, "duration_ns"))
    sums = rows.group_by("name", "bucket", "operator").agg(pl.col("duration_ns").sum())
    longest = sums.sort("duration_ns", "name", "operator", descending=[True, False, False])
    opportunity = kernel_opportunity(
        context,
        rows,
        pl.col("lost_ns"),
        "time of these kernels minus that at their roof",
        f"{counted(rows.height, 'kernel fills', 'kernels fill')} the device and"
        f" {'reaches' if rows.height == 1 else 'reach'} {percent(reached)} of what memory and arithmetic units allow: neither"
        " limits them",
        **profiled(context, str(longest.get_column("name").first() or "")),
    )
    bucket, operator = (str(longest.get_column(column).first() or "") for column in ("bucket", "operator"))
    has_code = bucket in ("attention", "convolution") and operator.startswith("aten::")
    case = "" if bucket in _GENERATED else bucket if has_code else "custom"
    return opportunity and replace(opportunity, case=case)


_GENERATED = (
    "matmul",
    "normalization",
    "softmax",
    "reduction",
    "pointwise",
    "copy_cast",
    "fill",
    "rng_dropout",
    "loss",
)
"""Buckets of kernels that torch.compile generates, or tries several of."""


def max_autotune(context: AdviceContext) -> Opportunity | None:
    """Return the time of compute-bound matmul and convolution beyond their roof.

    Those that other fixes bring to tensor cores do not count, nor do those that are good already.
    """
    rows = (
        context.within.activities.filter(pl.col("bound") == "compute", pl.col("group") == "matmul")
        .join(context.within.missed, on="activity_id", how="anti")
        .join(_efficient(context.within.roofs).select("activity_id", "lost_ns", "roof_ns"), on="activity_id")
        .filter(pl.col("roof_ns") < thresholds.GOOD_ROOF_RATIO * pl.col("duration_ns"))
    )
    reached = total(rows, "roof_ns") / max(1, total(rows, "duration_ns"))
    convolutions = rows.filter(pl.col("bucket") == "convolution")
    mostly = 2 * total(convolutions, "lost_ns") > total(rows, "lost_ns")
    opportunity = kernel_opportunity(
        context,
        rows,
        pl.col("lost_ns"),
        "time of matmuls and convolutions that reach under 80 % of the device's peak, minus that at the peak",
        f"{_products(rows)} reach {percent(reached)} of what the device can do; 80 % is good",
        products=_products(rows),
    )
    return opportunity and replace(opportunity, case="convolution" if mostly else "")


def _products(rows: pl.DataFrame) -> str:
    """Name kernels of matmuls, convolutions or both."""
    convolutions = rows.filter(pl.col("bucket") == "convolution").height
    return (
        "matmuls and convolutions" if 0 < convolutions < rows.height else "convolutions" if convolutions else "matmuls"
    )


def _efficient(roofs: pl.DataFrame) -> pl.DataFrame:
    """Return rows of the kernels that are not `inefficient_kernels`."""
    return roofs.filter(~pl.col("inefficient"))


def recompute_less(context: AdviceContext) -> Opportunity | None:
    """Return the saving of forward work that activation checkpointing repeats in the backward pass."""
    rows = context.within.activities.filter("recomputed")
    return kernel_opportunity(
        context,
        rows,
        pl.col("duration_ns"),
        "all time of kernels that do forward work again",
        f"{counted(rows.height, 'kernel')} in the backward pass did work of the forward pass again (activation"
        " checkpointing)",
    )


def less_work(context: AdviceContext) -> Opportunity | None:
    """Advise to halve what compute-bound kernels would take at their roof: the rest of their time better kernels can win."""
    inefficient = context.within.roofs.filter("inefficient")
    rest = context.within.activities.join(inefficient, on="activity_id", how="anti", maintain_order="left")
    heavy = rest.filter((pl.col("bound") == "compute") & ~pl.col("recomputed").fill_null(False)).join(
        context.within.roofs.select("activity_id", "roof_ns"), on="activity_id", how="left", maintain_order="left"
    )
    known_ns = total(heavy.drop_nulls("roof_ns"), "duration_ns")
    reached = total(heavy, "roof_ns") / max(1, known_ns)
    by_kind = known_ns < thresholds.KNOWN_RATE_RATIO * total(heavy, "duration_ns")
    limited = (
        "{} by arithmetic as far as their kind tells, as their work is not known" if by_kind else "{} by arithmetic"
    )
    return kernel_opportunity(
        context,
        heavy,
        pl.min_horizontal("duration_ns", pl.coalesce("roof_ns", "duration_ns")) / 2,
        "half the time that compute-bound kernels take at the device's peak, if half the work is done; of all their time"
        " where their work is not known; kernels that repeat other work left out",
        f"{limited.format(counted(heavy.height, 'kernel is limited', 'kernels are limited'))}: what remains of that at the device's peak"
        " shortens only with less of it, or on a faster device",
        reached=f": kernels reach {percent(reached)} of the roof" if reached else "",
    )
