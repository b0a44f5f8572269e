"""Define the rules for computation and memory traffic of kernels."""

import json
import re
from math import prod

import polars as pl
from msgspec.structs import replace

from trace_analyzer import thresholds
from trace_analyzer.advice.communication import QUANTIZED, cast_kernels, runs_in_16_bits
from trace_analyzer.advice.opportunity import (
    Opportunity,
    by_time,
    in_a_step,
    kernel_opportunity,
    kernel_word,
    launched_within,
    outside,
    profiled,
    replayed_updates,
    steps_of,
    total,
    where_called,
    worth_ns,
)
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.analyses.kernel_bounds import FACTORS
from trace_analyzer.analyses.tensor_cores import halved_in_16_bits, in_tf32
from trace_analyzer.catalog.devices import PEAK_NAMES
from trace_analyzer.catalog.event_names import OPTIMIZER_STEP
from trace_analyzer.frames.intervals import union
from trace_analyzer.frames.lookups import as_strings, factorize, lookup, map_unique
from trace_analyzer.units import count, counted, percent


def channels_last(context: AdviceContext) -> Opportunity | None:
    """Propose channels_last, to remove conversions of 16-bit images; fp32 convolutions may be slower in this layout."""
    rows = where_called(
        context.within.activities,
        pl.col("name").str.contains(r"(?i)nchwToNhwc|nhwcToNchw|NCHW2CNHW|CNHW2NCHW|^batched_transpose_\d+x\d+")
        & ~pl.col("name").str.contains(r"(?i)<float|_dword").fill_null(False),
    )
    return kernel_opportunity(
        context,
        rows,
        "all time of the kernels that change the memory layout",
        f"{in_a_step(context, rows.height, 'kernel only turns', 'kernels only turn')} images from one layout into the other around"
        " convolutions",
    )


def skinny_matmuls(context: AdviceContext) -> Opportunity | None:
    """Propose larger batches where memory bandwidth limits: a few rows by all weights, or a query by a whole cache."""
    unfused_attention = union(context.within.fusions.filter(pl.col("kind") == "attention"), ["device"])
    # In 16 bits, attention with n queries per key has about n FLOP per byte: with many queries, it is not decoding,
    # which reads a whole cache for a few queries.
    whole = (pl.col("bucket") == "attention") & (pl.col("flop") > thresholds.FEW_QUERIES * pl.col("moved_bytes"))
    skinny = (pl.col("bound") == "memory") & (pl.col("group") == "matmul") & ~whole.fill_null(False)
    candidates = context.within.activities.filter(skinny)
    rows = outside(candidates, unfused_attention)
    rows = rows.filter(_reads_weights(rows.hstack(lookup(context.within.shapes, rows, "operator_id"))))
    rows = rows.filter(~_is_other_work(rows, candidates))
    all_ns = total(rows, "duration_ns")
    in_few = pl.any_horizontal(pl.col("name", "operator").str.contains(_FOUR_BITS).fill_null(False))
    few = 2 * total(where_called(rows, in_few), "duration_ns") > all_ns
    named = total(rows.filter(pl.col("moved_bytes").is_null()), "duration_ns")
    how = ", most of them by their names alone" if 2 * named > all_ns else ""
    opportunity = kernel_opportunity(
        context,
        rows,
        "half the time of memory-bound matmuls and attention: half the bytes for the same work",
        f"{in_a_step(context, rows.height, 'matmul or attention kernel reads', 'matmuls and attention kernels read')} much for little"
        f" arithmetic{how}",
        pl.col("duration_ns") / 2,
        or_fewer_bits="" if few or context.program == "training" else ", or fewer bits",
    )
    return opportunity and replace(opportunity, case="few bits" if few else "")


_FOUR_BITS = r"(?i)fp4|nf4|int4|w4a|4_?bit|awq|gptq|exllama|marlin|tinygemm|_q4_"
"""Names of kernels and operators with 4-bit weights."""


def _is_other_work(rows: pl.DataFrame, candidates: pl.DataFrame) -> pl.Series:
    """Return whether each row, without an operator of its own, has the name of other work.

    Other candidates have this name and an operator; no row with an operator has this name.
    """
    known = rows.filter(pl.col("operator").is_not_null()).get_column("name")
    others = candidates.filter(
        pl.col("operator").is_not_null(), ~pl.col("activity_id").is_in(rows.get_column("activity_id").implode())
    ).get_column("name")
    is_other = pl.col("name").is_in(others.implode()) & ~pl.col("name").is_in(known.implode())
    return rows.select(pl.col("operator").is_null() & is_other).to_series()


def _reads_weights(rows: pl.DataFrame) -> pl.Series:
    """Return whether weights, or the cache of attention, are most of the bytes; true where no shapes were recorded.

    Weights are the second factor of a matmul or a convolution; both factors of a batched matmul are activations.
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
    if argument >= len(dims) or _sums_over_rows(dims[argument - 1], dims[argument]):
        return False
    return bool(2 * prod(dims[argument]) * _ITEM_BYTES[dtype] > moved_bytes)


_MANY_ROWS = 8
"""Least ratio of summed size to rows and columns in the matmul of a weight's gradient, which sums over the batch."""


def _sums_over_rows(left: list[int], right: list[int]) -> bool:
    return len(left) == len(right) == 2 and left[1] == right[0] and left[1] >= _MANY_ROWS * max(left[0], right[1])


_SCALED = """
scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()  # in training; once: scaler = torch.amp.GradScaler("cuda")"""
"""Code that scales the loss, as gradients in FP16 underflow without it."""
_TORCH_DTYPES = {"tf32": "bfloat16", "bf16": "bfloat16", "fp16": "float16"}


def fewer_bytes(context: AdviceContext) -> Opportunity | None:
    """Propose 16-bit types for pointwise and normalization kernels in FP32 that memory limits, and for products in TF32.

    The change of type also concerns matmuls and convolutions in TF32, and those in FP32 that TF32 would speed up.
    """
    dtype = next((d for d in ("bf16", "fp16") if context.model and context.model.peak_flops(d)), None)
    if dtype is None or runs_in_16_bits(context):
        return None
    own, launched = context.within.activities, launched_within(context, context.within.activities, OPTIMIZER_STEP)
    for updates in (launched[0], replayed_updates(context)):
        own = own.join(updates.select("activity_id"), on="activity_id", how="anti", maintain_order="left")
    halved = halved_in_16_bits(trains=context.program == "training")
    passes = own.filter(
        map_unique(own.select("bound", "group", "bucket", "operator"), halved.alias("halved")).to_series()
    )
    name = pl.col("name")
    wide = where_called(passes, name.str.contains(r"\bfloat\b") & ~name.str.contains(r"(?i)half|bfloat16|double"))
    narrowed = _of_regimes(context, own.filter(in_tf32(own)))
    if wide.is_empty() and narrowed.is_empty():
        return None
    products = _products_in_16_bits(context, narrowed, dtype)
    steps = steps_of(context.steps, wide.height + products.height)
    did = []
    if wide.height:
        one, many = "memory-bound kernel reads and writes fp32", "memory-bound kernels read and write fp32"
        did.append(counted(wide.height / steps, one, many))
    if products.height:
        types = "TF32" if narrowed.height == products.height else "fp32 or TF32" if narrowed.height else "fp32"
        ran = f"{_products(products)} ran in {types}"
        did.append(counted(products.height / steps, ran.replace("s ran", " ran"), ran))
    return kernel_opportunity(
        context,
        pl.concat([wide.with_columns((pl.col("duration_ns") / 2).alias("halved_ns")), products], how="diagonal"),
        "half the time of memory-bound pointwise and normalization kernels on fp32: half the bytes"
        f"{'; plus the time of fp32 matmuls and convolutions beyond their roof in 16 bit' if products.height else ''}",
        f"{'in a step, ' if steps > 1 else ''}{', and '.join(did)}",
        pl.col("halved_ns"),
        first="Move half the bytes" if "memory-bandwidth-bound" in context.regimes else "Compute in 16 bits",
        dtype=dtype,
        torch_dtype=_TORCH_DTYPES[dtype],
        scaled=_SCALED if dtype == "fp16" else "",
    )


def _products_in_16_bits(context: AdviceContext, narrowed: pl.DataFrame, dtype: str) -> pl.DataFrame:
    """Return FP32 matmuls that TF32 speeds up, or would, with the most that a 16-bit type can save for each (``halved_ns``).

    Their roof time in 16 bits is at least the TF32 roof time multiplied by 0.5, or by the ratio of the peaks if that is
    smaller.
    """
    tf32, narrow = (context.model.peak_flops(d) if context.model else None for d in ("tf32", dtype))
    least = min(0.5, tf32 / narrow) if tf32 and narrow else 0.0
    slow = _missed(context, "fp32").filter(pl.col("target_dtype") == "tf32")
    slow = slow.with_columns((pl.col("duration_ns") - pl.col("saves_ns")).alias("roof_ns"))
    known = narrowed.join(context.within.roofs.select("activity_id", "roof_ns"), on="activity_id", how="left")
    both = pl.concat([slow.drop("saves_ns"), known], how="diagonal_relaxed")
    roof = pl.coalesce("roof_ns", "duration_ns")
    return both.with_columns((pl.col("duration_ns") - least * roof).alias("halved_ns"))


def _of_regimes(context: AdviceContext, activities: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels that arithmetic or memory limits, or the one of these that the verdict names."""
    bounds = [bound for bound, regime in _REGIMES.items() if regime in context.regimes] or list(_REGIMES)
    return activities.filter(pl.col("bound").is_in(bounds))


def _missed(context: AdviceContext, *reasons: str) -> pl.DataFrame:
    """Return kernels of the verdict's regimes that could use tensor cores better, with the saving of each."""
    missed = context.within.missed.select("activity_id", "reason", "target_dtype", "saves_ns")
    return _of_regimes(context, context.within.activities).join(
        missed.filter(pl.col("reason").is_in(reasons)), on="activity_id", how="inner", maintain_order="left"
    )


_REGIMES = {"compute": "compute-bound", "memory": "memory-bandwidth-bound"}


def out_of_fp32(context: AdviceContext, *, tf32: bool) -> Opportunity | None:
    """Propose moving matmul and convolution out of FP32, to the nearest type that tensor cores compute faster."""
    slow = _missed(context, "fp32").filter((pl.col("target_dtype") == "tf32") == tf32)
    if slow.is_empty() or (not tf32 and runs_in_16_bits(context)):
        return None
    dtype = slow.get_column("target_dtype").item(0)
    opportunity = kernel_opportunity(
        context,
        slow,
        f"time of fp32 matmuls and convolutions beyond their roof on tensor cores in {dtype}; where shapes are unknown, beyond their"
        " time divided by the ratio of the peaks",
        f"{in_a_step(context, slow.height, _products(slow).removesuffix('s'), _products(slow))} ran in fp32",
        pl.col("saves_ns"),
        dtype=dtype,
        torch_dtype=_TORCH_DTYPES[dtype],
        scaled=_SCALED if dtype == "fp16" else "",
    )
    # Where one convolution runs in TF32, the program allows it: cuDNN has no such kernel for the others.
    convolutions = context.within.activities.filter(pl.col("bucket") == "convolution")
    convolves = tf32 and context.platform == "cuda" and "convolution" in slow.get_column("bucket")
    convolves = convolves and not in_tf32(convolutions).any()
    return replace(opportunity, case="convolutions") if opportunity and convolves else opportunity


def padding(context: AdviceContext) -> Opportunity | None:
    """Propose padding sizes that prevent tensor cores, or aligned vector loads."""
    unknown = context.within.activities.filter(pl.col("group") == "matmul", pl.col("flop").is_null())
    # Only loads for tensor cores need aligned rows: CUTLASS calls every kernel without them (simt) align1.
    name = pl.col("name")
    unaligned = name.str.contains(r"(?i)_align[12](\D|$)") & ~name.str.contains("(?i)simt")
    narrow = where_called(unknown, unaligned).with_columns((pl.col("duration_ns") / 2).alias("saves_ns"))
    known = _missed(context, "unaligned", "vector-units")
    written_out = union(context.within.fusions.filter(pl.col("kind") == "attention"), ["device"])
    rows = outside(
        pl.concat([known, narrow.join(known, on="activity_id", how="anti")], how="diagonal_relaxed"), written_out
    )
    sizes = _odd_sizes(rows.hstack(lookup(context.within.shapes, rows, "operator_id")))
    return kernel_opportunity(
        context,
        rows,
        "time of these kernels beyond their roof on tensor cores; half of it where FLOP and bytes are not known",
        f"{in_a_step(context, rows.height, 'matmul or convolution uses', 'matmuls and convolutions use')} kernels for sizes or strides that are not multiples of 8 (align1, align2), or"
        f" kernels without tensor cores{f'; odd: {sizes}' if sizes else ''}",
        pl.col("saves_ns"),
        sizes=sizes or "every size of a matmul: 8 in 16 bit, 64 at best",
    )


def _odd_sizes(rows: pl.DataFrame) -> str:
    """Return the sizes that are no multiples of 8, in the matmul with the largest saving; may be ""."""
    known = rows.filter(pl.col("operator").cast(pl.String).is_in(list(FACTORS)) & pl.col("input_dims").is_not_null())
    sums = as_strings(known.select("operator", "input_dims", "saves_ns")).group_by("operator", "input_dims")
    top = sums.agg(pl.col("saves_ns").sum()).sort("saves_ns", "operator", "input_dims", descending=[True, False, False])
    for operator, input_dims, _ in top.head(1).iter_rows():
        first, second = json.loads(input_dims)[FACTORS[operator] :][:2]
        sizes = (("rows", first[-2]), ("inner size", first[-1]), ("columns", second[-1]))
        odd = [f"{name} {count(size)} → {count(-(-size // 8) * 8)}" for name, size in sizes if size % 8]
        return f"{operator} with {', '.join(odd)}" if odd else ""
    return ""


def low_precision(context: AdviceContext) -> Opportunity | None:
    """Propose 8-bit matmul and convolution, on a device that is faster in 8 bits than in 16."""
    wide, narrow = (context.model.peak_flops(d) if context.model else None for d in ("bf16", "fp8"))
    if wide is None or narrow is None or narrow <= wide:
        return None
    half = pl.col("dtype").is_in(["bf16", "fp16"]) | pl.col("name").str.contains(r"(?i)bf16|fp?16|half|bfloat")
    eight = pl.col("name").str.contains(r"(?i)fp8|f8|e4m3|e5m2|int8|i8|mxfp|e2m1")
    products = context.within.activities.filter(pl.col("bound") == "compute", pl.col("bucket").is_in(["matmul", "moe"]))
    rows = where_called(products, half.fill_null(False) & ~eight)
    opportunity = kernel_opportunity(
        context,
        rows,
        f"time of 16-bit matmuls if they ran as much faster as fp8's peak is higher: {narrow / wide:.3g} times bf16's on this device",
        f"{in_a_step(context, rows.height, 'matmul')} ran in 16 bit",
        pl.col("duration_ns") * (1 - wide / narrow),
        dtype="fp8",
    )
    has_some = not where_called(products, eight | (pl.col("dtype") == "fp8").fill_null(False)).is_empty()
    return opportunity and replace(opportunity, case="in part" if has_some else "")


def inefficient_kernels(context: AdviceContext) -> Opportunity | None:
    """Propose replacing kernels that fill the device but stay far below both roofs, and that no other fix replaces."""
    rows = _far_below(context, "inefficient")
    if rows.is_empty():
        return None
    longest = by_time(rows)
    name, bucket, operator, dtype, _, blocks = longest.row(0)
    loads, explains = next((why for pattern, why in _LOADS.items() if re.search(pattern, name)), ("", ""))
    opportunity = kernel_opportunity(
        context,
        rows,
        "time of these kernels minus their time at the roof",
        f"{in_a_step(context, rows.height, 'kernel fills', 'kernels fill')} the device, and something else than memory and"
        f" arithmetic units takes most of {'its' if rows.height == 1 else 'their'} time: {_reaching(rows)}"
        f"{explains.format(blocks=count(blocks or 0), units=context.model and context.model.sm_count)}",
        pl.col("lost_ns"),
        **profiled(context, name),
    )
    is_aten = (operator or "aten::").startswith("aten::")
    case = loads if bucket in _GENERATED else "experts" if name.startswith("fused_moe_kernel") else "custom"
    if bucket == "matmul" and not is_aten:
        case = "own matmul" if dtype in _PLAIN and not re.search(QUANTIZED, operator) else "custom"
    elif operator and is_aten and bucket in ("attention", "convolution"):
        case = _attention_case(context, longest) or case if bucket == "attention" else bucket
    return opportunity and replace(opportunity, case=case)


_LOADS = {
    r"\bunrolled_elementwise_kernel<.*WithCast": (
        "converts",
        "; the first converts types, and loads each element by itself",
    ),
    r"\belementwise_kernel(_manual_unroll)?<": (
        "strided",
        "; operands of the first are strided, broadcast or of several types, so that it loads each element by itself",
    ),
    r"\bvectorized_elementwise_kernel<": (
        "contiguous",
        "; loads of the first are contiguous and vectorized, in {blocks} blocks on {units} multiprocessors: nothing in its launch"
        " explains that",
    ),
}
"""PyTorch's pointwise kernels (aten/src/ATen/native/cuda/CUDALoops.cuh) -> case of code, and what the name says of their loads."""
_PLAIN = ("bf16", "fp16", "fp32", "tf32")


def _reaching(rows: pl.DataFrame) -> str:
    """Name the kernels that take longest, each with the share of its roof that it reaches."""
    sums = (pl.col("duration_ns", "roof_ns").sum(), pl.col("roof_ns", "flop").count().name.suffix("_known"))
    longest = rows.group_by("name").agg(*sums).sort("duration_ns", "name", descending=[True, False]).head(3)
    unrated = ("does unknown work", "has an unknown roof")
    words = [kernel_word(str(name)) for name in longest.get_column("name")]
    return "; ".join(
        f"{'another ' * (word in words[:n])}{word} {f'reaches {percent(roof / ns)} of the roof' if rated else unrated[worked > 0]}"
        for n, (word, (_, ns, roof, rated, worked)) in enumerate(zip(words, longest.iter_rows(), strict=True))
    )


def _attention_case(context: AdviceContext, longest: pl.DataFrame) -> str:
    """Return the case of code for the first of these kernels, which is of attention; "" where PyTorch has no other one."""
    operator, dtype = longest.select("operator", "dtype").row(0)
    if not str(operator or "").startswith("aten::"):
        return ""
    if not _IN_16_BITS.search(str(operator)) and dtype not in ("bf16", "fp16"):
        return "attention in fp32"
    return "attention" if context.platform != "cuda" or context.half == "bfloat16" else ""


_IN_16_BITS = re.compile("_flash_|_cudnn_")
"""Operators of attention that PyTorch calls with 16-bit types only."""
_GENERATED = (
    "matmul", "normalization", "softmax", "reduction", "pointwise", "copy_cast", "fill", "rng_dropout", "loss",
)  # fmt: skip
"""Buckets of kernels that torch.compile generates, or selects from several candidates."""


def few_tiles(context: AdviceContext) -> Opportunity | None:
    """Propose smaller tiles, or more work at once, for kernels with fewer tiles than the device has multiprocessors."""
    rows, units = _far_below(context, "few_tiles"), (context.model and context.model.sm_count) or 1
    at_once = pl.max_horizontal("roof_ns", pl.col("duration_ns") * pl.col("tiles") / units)
    tiles: list[int] = rows.sort("duration_ns").get_column("tiles").to_list()
    return kernel_opportunity(
        context,
        rows,
        "time of these kernels minus that at their roof, or if as much of the same work ran on every multiprocessor",
        f"{in_a_step(context, rows.height, 'kernel has', 'kernels have')} fewer tiles than the device has multiprocessors"
        f" ({count(tiles[-1] if tiles else 0)} on {units} in the longest): the others have no part of it",
        pl.col("duration_ns") - at_once,
    )


def _far_below(context: AdviceContext, why: str) -> pl.DataFrame:
    """Return the kernels far below both roofs for a reason (column of `roofs`), without those that other fixes replace."""
    unfused = union(context.within.fusions.filter(pl.col("kind").is_in(["attention", "optimizer"])), ["device"])
    slow = context.within.roofs.filter(why).select("activity_id", "roof_ns", "lost_ns")
    rows = context.within.activities.filter(pl.col("group") != "communication")
    for others in (context.within.missed, cast_kernels(context)):
        rows = rows.join(others.select("activity_id"), on="activity_id", how="anti", maintain_order="left")
    return outside(rows.join(slow, on="activity_id", how="inner", maintain_order="left"), unfused)


def max_autotune(context: AdviceContext) -> Opportunity | None:
    """Propose other kernels: the time of compute-bound matmul, convolution and attention beyond their roof.

    Kernels of other fixes do not count. No advice where good kernels would save too little.
    """
    roofs = context.within.roofs.filter(~pl.col("inefficient") & ~pl.col("few_tiles"))
    best = _best(context)
    rows = (
        context.within.activities.filter(pl.col("bound") == "compute", pl.col("group") == "matmul")
        .join(context.within.missed, on="activity_id", how="anti")
        .join(roofs.select("activity_id", "roof_ns"), on="activity_id")
        .with_columns(
            (pl.col("roof_ns") / best.fill_null(thresholds.GOOD_ROOF_RATIO)).alias("good_ns"),
            (pl.col("roof_ns") / best.fill_null(1.0)).alias("best_ns"),
        )
        .filter(pl.col("good_ns") < pl.col("duration_ns"))
        .with_columns((pl.col("duration_ns") - pl.col("best_ns")).alias("lost_ns"))
    )
    good_ns = total(rows, "good_ns")
    if total(rows, "duration_ns") - good_ns < worth_ns(context):
        return None
    reached, is_good = (percent(total(rows, "roof_ns") / ns) for ns in (total(rows, "duration_ns"), good_ns))
    sums = rows.group_by("bucket", "operator", "dtype").agg(pl.col("lost_ns").sum())
    most = sums.sort("lost_ns", "bucket", "operator", "dtype", descending=[True, False, False, False])
    bucket = most.item(0, "bucket")
    case = "convolution" if bucket == "convolution" else ""
    if bucket == "attention":
        case = _attention_case(context, most) or "attention of another library"
    opportunity = kernel_opportunity(
        context,
        rows,
        f"time of matmuls, convolutions and attention that reach less than {is_good} of the device's peak, minus their time at"
        f" {'the peak' if rows.filter(pl.col('best_ns') > pl.col('roof_ns')).is_empty() else 'the rate of the best ones that its vendor measured'}",
        f"{_products(rows)} {'reaches' if _products(rows) == 'attention' else 'reach'} {reached} of the device's peak; {is_good} is good",
        pl.col("lost_ns"),
        products=_products(rows),
    )
    return opportunity and replace(opportunity, case=case)


def _best(context: AdviceContext) -> pl.Expr:
    """Return the share of the peak that the vendor's best matmuls of a ``dtype`` reach; null where it publishes none."""
    shares = {dtype: context.model and context.model.attainable_ratio(dtype) for dtype in PEAK_NAMES}
    return pl.col("dtype").cast(pl.String).replace_strict(shares, default=None, return_dtype=pl.Float64)


_NAMES = {"convolution": "convolutions", "attention": "attention"}
"""Buckets of group `matmul` whose kernels are no matmuls."""


def _products(rows: pl.DataFrame) -> str:
    """Name kernels of matmuls, convolutions, attention, or several of these."""
    buckets = rows.get_column("bucket").cast(pl.String).replace_strict(_NAMES, default="matmuls").unique()
    return " and ".join(name for name in ("matmuls", "convolutions", "attention") if name in buckets)


def less_work(context: AdviceContext) -> Opportunity | None:
    """Report kernels of the limit that reach much of the roof, by name: nothing known makes them faster."""
    limit = "memory" if context.verdict.regime == "memory-bandwidth-bound" else "compute"
    slow = context.within.roofs.filter(pl.col("inefficient") | pl.col("few_tiles"))
    rest = context.within.activities.join(slow, on="activity_id", how="anti", maintain_order="left")
    heavy = rest.filter(pl.col("bound") == limit).join(
        context.within.roofs.select("activity_id", "roof_ns"), on="activity_id", how="left", maintain_order="left"
    )
    known = heavy.drop_nulls("roof_ns")
    reached = total(heavy, "roof_ns") / max(1, total(known, "duration_ns"))
    if limit == "memory" and known.height and reached < thresholds.HALF_ROOF_RATIO:
        return None  # something else limits them more than the memory does
    best = _best(context).fill_null(1.0) if limit == "compute" else 1.0
    good_ns = total(known, pl.col("roof_ns") / best)
    good = f", good ones {percent(total(known, 'roof_ns') / good_ns)}" if good_ns > total(known, "roof_ns") else ""
    told = f": kernels reach {percent(reached)} of the roof{good}" if known.height else ""
    bound, case = "no figure: at the device's peak, only less work or a faster device shortens these kernels", limit
    if 2 * total(known, "duration_ns") < total(heavy, "duration_ns"):
        bound = "no figure: the least possible time of these kernels is unknown"
        case = "peaks" if context.model is None else "work" if context.within.shapes.height else "shapes"
        told = f": {_UNKNOWN[case]}"
    opportunity = kernel_opportunity(
        context,
        heavy,
        bound,
        f"{in_a_step(context, heavy.height, 'kernel counts', 'kernels count')} as limited by {_LIMITS[limit]}: {_reaching(heavy)}",
        reached=told,
        **profiled(context, str(by_time(heavy).get_column("name").first() or "")),
    )
    return opportunity and replace(opportunity, is_saving=False, case=case)


_UNKNOWN = {
    "peaks": "the device's peaks are unknown",
    "shapes": "record shapes, to see how far kernels are from the roof",
    "work": "how far kernels are from the roof is unknown",
}
"""Case of code -> what to say where less than half of the kernels' time has a roof."""
_LIMITS = {"compute": "arithmetic", "memory": "the memory's bandwidth"}
