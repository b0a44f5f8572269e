"""Define the rules for kernels that need not run: one could replace several, or their work was done before."""

import polars as pl
from msgspec.structs import replace

from trace_analyzer import thresholds
from trace_analyzer.advice.opportunity import (
    Opportunity,
    combined,
    held,
    idle_opportunity,
    in_a_step,
    kernel_opportunity,
    launched_within,
    outside,
    replayed_updates,
    run_opportunity,
    steps_of,
    total,
    where_called,
    worth_ns,
)
from trace_analyzer.advice.overhead import LAUNCHING, idle_before
from trace_analyzer.advice.window_context import COMPILED, AdviceContext, replayed_ratio
from trace_analyzer.analyses.fusion import MASKS
from trace_analyzer.catalog.event_names import LAYOUT_ASKED, OPTIMIZER_STEP, ZERO_GRAD, optimizer_step
from trace_analyzer.catalog.fixes import has_fused, optimizer_in_few_launches
from trace_analyzer.frames.intervals import LENGTH_NS, union
from trace_analyzer.frames.lookups import map_unique
from trace_analyzer.units import counted, size


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
        f"{in_a_step(context, runs.height, *_doing(context, 'attention', 'move'))} {moved} of scores through memory",
        bounds=("compute", "memory", "latency", "other"),
    )
    case = "MultiheadAttention" if is_module.any() else ""
    return opportunity and replace(opportunity, case=case, values=_arguments(runs))


def _arguments(runs: pl.DataFrame) -> dict[str, str]:
    """Return the arguments of a fused kernel for the attention that most is saved in, by what is between product and softmax."""
    sums = (
        runs.group_by("operators").agg(pl.col("saves_ns").sum()).sort("saves_ns", "operators", descending=[True, False])
    )
    before = sums.get_column("operators").item(0).partition("softmax")[0].strip(">_").split(">")
    arguments = about = ""
    if before[0] == "baddbmm":
        about = "  # with attn_mask and scale as baddbmm has them"
    else:
        if not MASKS.isdisjoint(before):
            arguments, about = ", attn_mask=mask", "  # or is_causal=True, where that is the mask"
        arguments += "" if {"mul", "div"} & set(before) else ", scale=1.0"
    return {"arguments": arguments, "about": about}


def fusion(context: AdviceContext) -> Opportunity | None:
    """Propose fusing chains with known tensors, else consecutive kernels."""
    others = union(context.within.fusions.filter(pl.col("kind") != "chain"), ["device"])
    chains = outside(context.within.fusions.filter(pl.col("kind") == "chain"), others)
    if total(chains, "saves_ns") < worth_ns(context):
        rows = _followers(context, others)
        opportunity = kernel_opportunity(
            context,
            rows,
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
        f"{in_a_step(context, chains.height, *_doing(context, 'chain', 'write'))} {size(total(chains, 'saved_bytes') / 2 / steps_of(context.steps, chains.height))} that, by shape and type,"
        " the next kernel reads again",
        chains="\n".join(codes.get_column("code").head(3)),
    )
    return opportunity and replace(opportunity, case="chains")


def _doing(context: AdviceContext, noun: str, verb: str) -> tuple[str, str]:
    """Write what one run of kernels does, and several do; where launching limits, that they launch is what one kernel spares."""
    one, many = ("launches several kernels and ", "launch several kernels each and ")
    if "overhead-bound" not in context.regimes:
        one = many = ""
    return f"{noun} {one}{verb}s", f"{noun}s {many}{verb}"


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
    products = pl.col("group").is_in(["matmul", "attention", "convolution", "communication"])
    kinds = (pl.col("kind") == "kernel") & pl.col("bound").is_in(["memory", "latency"]) & ~products
    others = union(context.within.fusions.filter(pl.col("kind") != "chain"), ["device"])
    before, behind = (pl.col("fusible").shift(places).over("stream") for places in (1, -1))
    rows = _fusible(context, others, kinds).filter(pl.col("fusible"), before | behind)
    rows = rows.join(replayed_updates(context), on="activity_id", how="anti", maintain_order="left")
    opportunity = kernel_opportunity(
        context,
        rows,
        "time of all such kernels, and the gaps before them: a compiler may fold each of them into another",
        f"{in_a_step(context, rows.height, 'small kernel stands', 'small kernels stand')} beside another one on the same stream, and a"
        " graph starts each",
    )
    return opportunity and _with_gaps(context, opportunity, rows)


def _with_gaps(context: AdviceContext, opportunity: Opportunity, rows: pl.DataFrame) -> Opportunity:
    """Return the opportunity of replayed kernels with the gaps before them."""
    gaps_ns = total(idle_before(context, rows, ("device-gap",)), LENGTH_NS)
    return replace(opportunity, saves_ns=opportunity.saves_ns + gaps_ns)


def _followers(context: AdviceContext, others: pl.DataFrame) -> pl.DataFrame:
    """Return the memory-bound kernels after the first of each run, except calls that equal the one before.

    A kernel without a recorded operator is taken for another call of those with its name: missing data makes no chain.
    """
    kinds = pl.col("group").is_in(["pointwise", "normalization"]) & (pl.col("bound") == "memory")
    same = {c: pl.col(c) == pl.col(c).shift(1).over("stream") for c in ("operator", "moved_bytes", "name")}
    called = context.within.activities.filter(pl.col("operator").is_not_null()).get_column("name").unique()
    unknown = same["operator"].is_null() & same["name"] & pl.col("name").is_in(called.implode())
    again = (same["operator"] & same["moved_bytes"]) | unknown
    follows = pl.col("fusible") & pl.col("fusible").shift(1).over("stream")
    return _fusible(context, others, kinds).filter(follows, ~again.fill_null(False))


def _fusible(context: AdviceContext, others: pl.DataFrame, kinds: pl.Expr) -> pl.DataFrame:
    """Return the activities by stream and time, with ``fusible``: those of these ``kinds`` that a compiler fuses.

    Other fixes replace those within ``others``. Kernels that are none of PyTorch's own (a compiler fused them, or a library
    wrote them, and no compiler fuses these), or that a library launches, are not fusible.
    """
    name, operator = pl.col("name"), pl.col("operator")
    written = name.str.contains(_WRITTEN) | operator.str.contains(_WRITTEN).fill_null(False)
    written |= ~pl.coalesce(operator.str.starts_with("aten::"), name.str.contains(_OF_TORCH))
    is_written = map_unique(context.within.activities.select("name", "operator"), written.alias("is_written"))
    return (
        outside(context.within.activities.with_columns(is_written), others)
        .sort("stream", "start_ns")
        .with_columns((kinds & ~pl.col("is_written")).fill_null(False).alias("fusible"))
    )


def fused_optimizer(context: AdviceContext) -> Opportunity | None:
    """Propose a fused optimizer: idle time before its launches, and its passes over memory; none takes sparse gradients."""
    if (replayed := _replayed_optimizer(context)) is not None:
        return replayed
    asked = context.host.those(pl.col("name").str.contains(LAYOUT_ASKED), "thread_id", "start_ns")
    asked = asked.rename({"thread_id": "launch_thread", "start_ns": "launch_ns"})
    if launched_within(context, asked, optimizer_step(context.optimizer))[1]:
        return None
    runs = context.within.fusions.filter(pl.col("kind") == "optimizer")
    is_foreach = (runs.get_column("tensors") == "foreach").any()
    if is_foreach and not has_fused(context.optimizer, context.platform):
        return None
    how = "the optimizer's time minus that of its longest operator: a fused kernel makes one pass"
    passes = run_opportunity(context, runs, how, "the optimizer reads and writes parameters and state several times")
    both = (_optimizer_launches(context, is_foreach=is_foreach), passes)
    return combined(known) if (known := [one for one in both if one is not None]) else None


def _replayed_optimizer(context: AdviceContext) -> Opportunity | None:
    """Propose a fused optimizer before its capture, where graphs replay one of several kernels."""
    rows = replayed_updates(context)
    length = pl.col("duration_ns")
    opportunity = kernel_opportunity(
        context,
        rows,
        "time of the optimizer's kernels but for the longest of each update, as a fused one makes one pass, and the gaps before them",
        f"{in_a_step(context, rows.height, 'kernel of a graph updates parameters', 'kernels of a graph update parameters')}",
        length * (1 - (length.max() / length.sum()).over("update")),
        optimizer=optimizer_in_few_launches(context.optimizer, context.platform, captured=True),
    )
    return opportunity and replace(_with_gaps(context, opportunity, rows), is_replayed=False)


def _optimizer_launches(context: AdviceContext, *, is_foreach: bool) -> Opportunity | None:
    """Return the saving of idle time before kernels of an optimizer that launches several per parameter, or per list of them."""
    members, updates = launched_within(context, context.within.activities, OPTIMIZER_STEP)
    compiled, _ = launched_within(context, members, COMPILED)
    members = members.join(compiled.select("activity_id"), on="activity_id", how="anti", maintain_order="left")
    launches = members.get_column("launch_id").n_unique() / updates if updates else 0
    several = pl.coalesce("operator", "name").str.contains(r"(?i)_foreach|_fused|multi_tensor|fused")
    in_lists = 2 * where_called(members, several).height > members.height
    if not is_foreach and (launches < thresholds.OPTIMIZER_LAUNCHES or in_lists):
        return None
    most = "each for a list of tensors" if is_foreach else "most of them for one tensor each"
    why = f"the optimizer makes {counted(launches, 'launch', 'launches')} per update, {most}"
    return idle_opportunity(
        context, idle_before(context, members), LAUNCHING, why, ", that ends with the optimizer's kernels"
    )


def set_to_none(context: AdviceContext) -> Opportunity | None:
    """Propose set_to_none: idle time and device time of zeroing gradients."""
    members, calls = launched_within(context, context.within.activities, ZERO_GRAD)
    if not calls:
        return None
    why = f"zero_grad() makes {counted(members.height / calls, 'launch', 'launches')} to write zeros that the next backward pass adds to"
    extra = ", that ends with the kernels of zero_grad() + the time in which they hold the device"
    kernels = held(context, members, members.get_column("bound").unique().to_list())
    return idle_opportunity(context, idle_before(context, members), LAUNCHING, why, extra, kernels)


def recompute_less(context: AdviceContext) -> Opportunity | None:
    """Propose less activation checkpointing, which repeats forward work in the backward pass."""
    rows = context.within.activities.filter("recomputed")
    return kernel_opportunity(
        context,
        rows,
        "all time of kernels that repeat forward work",
        f"{in_a_step(context, rows.height, 'kernel')} in the backward pass repeated work of the forward pass (activation"
        " checkpointing)",
    )
