"""Define the rules for optimizers: updates of many launches or passes, and gradients that are set to zero."""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.advice.opportunity import (
    Opportunity,
    combined,
    held,
    idle_opportunity,
    launched_within,
    run_opportunity,
    where_called,
)
from trace_analyzer.advice.overhead import LAUNCHING, idle_before
from trace_analyzer.advice.window_context import COMPILED, AdviceContext
from trace_analyzer.catalog.event_names import LAYOUT_ASKED, OPTIMIZER_STEP
from trace_analyzer.catalog.fixes import FUSED
from trace_analyzer.units import counted


def fused_optimizer(context: AdviceContext) -> Opportunity | None:
    """Propose a fused optimizer: idle time before its launches, and its passes over memory; none takes sparse gradients."""
    asked = context.host.those(pl.col("name").str.contains(LAYOUT_ASKED), "thread_id", "start_ns")
    asked = asked.rename({"thread_id": "launch_thread", "start_ns": "launch_ns"})
    if launched_within(context, asked, rf"^Optimizer\.step#{context.optimizer}")[1]:
        return None
    runs = context.within.fusions.filter(pl.col("kind") == "optimizer")
    is_foreach = (runs.get_column("tensors") == "foreach").any()
    if is_foreach and context.optimizer not in FUSED:
        return None
    how = "the optimizer's time minus that of its longest operator: a fused kernel makes one pass"
    passes = run_opportunity(context, runs, how, "the optimizer reads and writes parameters and state several times")
    both = (_optimizer_launches(context, is_foreach=is_foreach), passes)
    return combined(known) if (known := [one for one in both if one is not None]) else None


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
    members, calls = launched_within(context, context.within.activities, r"^Optimizer\.zero_grad#")
    if not calls:
        return None
    why = f"zero_grad() makes {counted(members.height / calls, 'launch', 'launches')} to write zeros that the next backward pass adds to"
    extra = ", that ends with the kernels of zero_grad() + the time in which they hold the device"
    kernels = held(context, members, members.get_column("bound").unique().to_list())
    return idle_opportunity(context, idle_before(context, members), LAUNCHING, why, extra, kernels)
