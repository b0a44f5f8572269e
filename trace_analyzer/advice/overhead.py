"""Define the rules for idle time: launches, waits of the host, compilation, cold starts."""

from dataclasses import replace
from functools import partial

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.advice.graph_obstacles import obstacles
from trace_analyzer.advice.opportunity import (
    Opportunity,
    combined,
    end_ns_of,
    held_ns,
    idle_of,
    idle_opportunity,
    largest_operators,
    launched_within,
    length_ns,
    longest,
    members_of,
    responsible_code,
    run_opportunity,
    share_of_window,
    total,
    where_called,
)
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.analyses.host import CALLS
from trace_analyzer.catalog.host_work import BLOCKING
from trace_analyzer.frames.intervals import union, with_covered
from trace_analyzer.units import count, counted, duration, percent
from trace_analyzer.vocabulary import EARLIER_WORK

LAUNCHING = ("python", "dispatch", "runtime-call", "launch-latency", "host-unknown")
"""Causes of idle time that fewer launches reduce."""


_ONCE = ("compilation", "allocation", "graph-capture")
"""Causes of idle time that occur once in a program's life, if few intervals make up most of the recording."""
_FEW_STRETCHES = 3


def _once(context: AdviceContext) -> pl.DataFrame:
    """Return the idle time of one-time work, where a few long intervals are most of a window without steps.

    Graph captures alone do not count, as `graph_capture` covers them.
    """
    rows = context.idle.filter(pl.col("cause").is_in(_ONCE))
    if rows.filter(pl.col("cause") != "graph-capture").is_empty():
        return rows.clear()
    stretches = rows.group_by("gap_id").agg(length_ns().sum().alias("ns")).get_column("ns").top_k(_FEW_STRETCHES)
    once = context.steps <= 1 and not context.recompiled and 2 * int(stretches.sum()) > context.window_ns
    return rows if once else rows.clear()


def _is_cold(context: AdviceContext) -> bool:
    return context.verdict.cause == "cold-start" or not _once(context).is_empty()


def _replayed_ratio(context: AdviceContext) -> float:
    """Return the share of activities that graph launches enqueued."""
    launched = context.within.activities.drop_nulls("launch_id")
    return launched.filter(pl.col("activity_count") > 1).height / launched.height if launched.height else 0.0


def cuda_graphs(context: AdviceContext) -> Opportunity | None:
    """Propose CUDA graphs, unless graphs are replayed already.

    The saving is idle time between launches, and time in kernels too small to fill the device.
    """
    if _is_cold(context) or _replayed_ratio(context) > thresholds.REPLAYED_RATIO:
        return None
    parts = context.verdict.parts_ns
    launches = context.within.activities.get_column("launch_id").drop_nulls().n_unique()
    per_step = counted(launches / context.steps, "launch", "launches") + (" per step" if context.steps > 1 else "")
    compiled, _ = launched_within(context, context.within.activities, _COMPILED)
    already = "; its code is compiled already, but launched kernel by kernel"
    already_compiled = already if 2 * compiled.height > context.within.activities.height else ""
    return idle_of(
        context,
        LAUNCHING,
        f"the CPU needs longer to prepare a kernel than the GPU to run it ({per_step}){already_compiled}{obstacles(context)}",
        " + time in kernels too small to fill the device and between queued kernels",
        parts.get("latency", 0) + parts.get("device-gap", 0),
    )


_COMPILED = r"^Torch-Compiled Region|^## Call CompiledFxGraph"
"""Names that Dynamo and Inductor give to their compiled code at run time."""


_GROWS_WITH_THE_BATCH = (
    "data-loading",
    "host-wait",
    "copy",
    "compilation",
    "allocation",
    "graph-capture",
    "earlier-work",
)
"""Parts of the window that double with twice the samples, or that occur once."""


def bigger_batch(context: AdviceContext) -> Opportunity | None:
    """Propose a bigger batch.

    Where the CPU is the limit, twice the batch takes the same time, which saves half of the step.
    """
    if context.verdict.cause not in ("launch", "small-kernels"):
        return None
    parts = context.verdict.parts_ns
    small = parts.get("latency", 0) + parts.get("device-gap", 0)
    idle = context.idle.filter(pl.col("cause").is_in(LAUNCHING))
    overhead = total(idle, length_ns()) + small
    kernels = context.within.activities.filter(
        (pl.col("kind") == "kernel") & (pl.col("group") != "communication").fill_null(True)
    )
    if kernels.is_empty():
        return None
    typical = kernels.get_column("duration_ns").median()
    launches = max(1, context.within.activities.get_column("launch_id").drop_nulls().n_unique())
    grows = sum(parts.get(part, 0) for part in _GROWS_WITH_THE_BATCH)
    return Opportunity(
        (context.window_ns - grows) // 2,
        "half of the window: where the CPU limits, a step of twice the batch takes as long; but of what comes once, and of data"
        " loading and copies, which grow with the batch",
        f"the median kernel takes {duration(typical)} ({counted(kernels.height / context.steps, 'kernel')}"  # type: ignore[arg-type]
        f"{' per step' if context.steps > 1 else ''}), and each launch leaves {duration(overhead / launches)} of the device"
        " unused",
        partial(largest_operators, kernels),
        longest(idle, length_ns()),
        members=members_of(idle),
    )


def _idle_before(context: AdviceContext, members: pl.DataFrame) -> pl.DataFrame:
    """Return the idle time from launching that ends with one of these activities."""
    ended = context.within.gaps.join(members.select("activity_id"), on="activity_id", how="semi").get_column("gap_id")
    return context.idle.filter(pl.col("gap_id").is_in(ended.implode()), pl.col("cause").is_in(LAUNCHING))


def fused_optimizer(context: AdviceContext) -> Opportunity | None:
    """Propose a fused optimizer: idle time before its launches, and its passes over memory."""
    waits = _optimizer_launches(context) if "overhead-bound" in context.regimes else None
    passes = _optimizer_passes(context) if "memory-bandwidth-bound" in context.regimes else None
    return combined(both) if (both := [one for one in (waits, passes) if one is not None]) else None


def _optimizer_passes(context: AdviceContext) -> Opportunity | None:
    """Return the saving where optimizers pass over parameters, gradients and state several times."""
    runs = context.within.fusions.filter(pl.col("kind") == "optimizer")
    how = "the optimizer's time but that of its longest operator: a fused kernel is one pass"
    return run_opportunity(context, runs, how, "the optimizer reads and writes parameters and state several times")


def _optimizer_launches(context: AdviceContext) -> Opportunity | None:
    """Return the saving of idle time before kernels of an optimizer that launches several per parameter."""
    members, updates = launched_within(context, context.within.activities, r"^Optimizer\.step#")
    launches = members.get_column("launch_id").n_unique() / updates if updates else 0
    several = pl.coalesce("operator", "name").str.contains(r"(?i)_foreach|_fused|multi_tensor|fused")
    fused = where_called(members, several).height / members.height if members.height else 1.0
    if launches < thresholds.OPTIMIZER_LAUNCHES or fused > 0.5:
        return None
    why = f"the optimizer makes {count(launches)} launches per step, some for each parameter"
    return idle_opportunity(
        context, _idle_before(context, members), LAUNCHING, why, ", that ends with the optimizer's kernels"
    )


def set_to_none(context: AdviceContext) -> Opportunity | None:
    """Propose set_to_none: idle time and device time of zeroing gradients."""
    members, calls = launched_within(context, context.within.activities, r"^Optimizer\.zero_grad#")
    if not calls:
        return None
    why = f"zero_grad() makes {counted(members.height / calls, 'launch', 'launches')} to write zeros that the next backward pass adds to"
    extra = ", that ends with the kernels of zero_grad() + the time in which they hold the device"
    device_ns = held_ns(context, members.with_columns(end_ns_of()), members.get_column("bound").unique().to_list())
    return idle_opportunity(context, _idle_before(context, members), LAUNCHING, why, extra, device_ns)


def garbage_collection(context: AdviceContext) -> Opportunity | None:
    """Propose controlling garbage collection: idle time in which Python collects garbage."""
    return idle_of(context, ("garbage-collection",), "Python collects garbage while the GPU has nothing queued")


def synchronization(context: AdviceContext) -> Opportunity | None:
    """Propose fewer synchronizations: idle time after calls that wait for the device."""
    why = "after a blocking call the queue is empty, and the GPU waits for the next launch"
    opportunity = idle_of(context, ("synchronization",), why)
    if opportunity is None:
        return None
    blocked_ns = waited_ns(context)
    calls = f"such calls also hold the CPU for {duration(blocked_ns)} in which the device works: " if blocked_ns else ""
    return replace(
        opportunity,
        if_more=f"{calls}without them, the CPU does its next work while the device computes, unless that needs its results",
        case=_written_most(context, "synchronization"),
    )


def waited_ns(context: AdviceContext) -> int:
    """Return the time in which a blocking call runs on the host while the device works."""
    calls = context.host.calls.filter(pl.col("work") == BLOCKING).with_columns(pl.lit(0).alias("track"))
    busy = context.busy_parts.with_columns(pl.lit(0).alias("track"))
    waits = with_covered(union(calls, ["track"]), union(busy, ["track"]), ["track"], "busy_ns")
    return total(waits, pl.col("busy_ns"))


def _written_most(context: AdviceContext, cause: str) -> str:
    """Return the code behind most idle time of a cause in the rules' notation: ``.item()``; "" where they name none."""
    rows = context.idle.filter(pl.col("cause") == cause, pl.col("event_id").is_not_null())
    written = rows.select(context.around.sources(rows.get_column("event_id")).alias("written"), length_ns().alias("ns"))
    sums = written.group_by(pl.col("written").cast(pl.String)).agg(pl.col("ns").sum())
    return str(sums.sort("ns", "written", descending=[True, False]).get_column("written").first() or "")


_WORKERS = "_MultiProcessingDataLoaderIter"


def data_loading(context: AdviceContext) -> Opportunity | None:
    """Propose faster data loading: idle time in which the training loop waits for the data loader."""
    names = context.host.names.get_column("name")
    parallel = bool(names.str.contains(_WORKERS, literal=True).any())
    alone = bool(names.str.contains("_SingleProcessDataLoaderIter", literal=True).any())
    how = (
        " (its workers do not keep up)"
        if parallel
        else " (num_workers=0: it loads in the training process itself)"
        if alone
        else ""
    )
    opportunity = idle_of(
        context, ("data-loading",), f"the loop waits in the data loader while the GPU has nothing queued{how}"
    )
    return opportunity and _with_values(opportunity, workers="2 * workers" if parallel else "8")


def _with_values(opportunity: Opportunity, **values: object) -> Opportunity:
    return replace(opportunity, values=values)


def allocator(context: AdviceContext) -> Opportunity | None:
    """Propose fewer allocations: idle time in calls that allocate or free device memory, except in a cold start."""
    if _is_cold(context):
        return None
    return idle_of(context, ("allocation",), "calls that get or free device memory stop the CPU, and often the device")


def _compiling(context: AdviceContext, *, loads: bool) -> pl.DataFrame:
    """Return the idle time of compilation, either in runtime calls that load code or in Python's compilation."""
    idle = context.idle.filter(pl.col("cause") == "compilation")
    kinds = context.host.events.get_column("kind")[idle.get_column("event_id")]
    by_call = kinds.is_in([*CALLS, "overhead"]).fill_null(False)
    return idle.filter(by_call if loads else ~by_call)


def recompilation(context: AdviceContext) -> Opportunity | None:
    """Propose avoiding recompilation: idle time in which Python compiles code, except in a cold start."""
    regions = counted(context.recompiled, "region", "regions")
    again = f"; {regions} of the trace had been compiled before" if context.recompiled else ""
    why = f"Dynamo, Inductor or Triton compile while the GPU waits{again}"
    return _compilation(context, why, loads=False)


def lazy_loading(context: AdviceContext) -> Opportunity | None:
    """Propose loading code early: idle time in calls that load code, except in a cold start."""
    why = "the driver loads kernels at their first use while the GPU waits"
    return _compilation(context, why, ", in calls that load code", loads=True)


def _compilation(context: AdviceContext, why: str, extra: str = "", *, loads: bool) -> Opportunity | None:
    """Return the opportunity of one kind of compilation, except in a cold start.

    The replay models both kinds together only.
    """
    if _is_cold(context):
        return None
    opportunity = idle_opportunity(context, _compiling(context, loads=loads), ("compilation",), why, extra)
    return opportunity and replace(opportunity, is_replayed=_compiling(context, loads=not loads).is_empty())


def warm_up(context: AdviceContext) -> Opportunity | None:
    """Propose a warm-up.

    The saving is host time in long gaps that end at a kernel's first use, or one-time work that fills the recording.
    """
    cold, how = context.cold, "host time in gaps of 1 ms or more that end at the first use of a kernel"
    if cold.is_empty():
        cold, how = (
            _once(context),
            "idle time in compilation, allocation and captures, of which few stretches are most of the window",
        )
    saves = total(cold, length_ns())
    if not saves:
        return None
    return Opportunity(
        saves,
        how,
        f"{share_of_window(context, saves)}: what is waited for happens once per process: kernels are loaded, memory is"
        " allocated, libraries start",
        partial(responsible_code, context, cold),
        longest(cold, length_ns()),
        members=members_of(cold),
    )


def graph_capture(context: AdviceContext) -> Opportunity | None:
    """Comment on idle time in captures of graphs."""
    why = "launches go into graphs that are being captured, and the GPU rests: this happens once per graph"
    return None if _is_cold(context) else idle_of(context, ("graph-capture",), why)


def pinned_memory(context: AdviceContext) -> Opportunity | None:
    """Propose pinned memory: idle time in copies that block the CPU."""
    opportunity = idle_of(context, ("blocking-copy",), "copies of pageable memory hold the CPU until they are done")
    return opportunity and replace(
        opportunity, if_more="without that, the CPU does its next work while the device copies"
    )


_PREPARES = (
    r"(?i)tokeniz|\b(batch_)?encode(_plus|_batch)?$|randn|normal_|uniform_|randint|randperm|bernoulli|\brand$|exponential_|multinomial"
    r"|image_transforms|torchvision/transforms|PIL/|cv2|librosa|\bresize\b|json/decoder"
)
"""Functions and operators that prepare data: random numbers, text, images."""


def _prepares(context: AdviceContext, idle: pl.DataFrame) -> pl.Series:
    """Return which intervals of idle time the CPU spends on preparing data."""
    by_event = context.host.each(pl.col("name").str.contains(_PREPARES).fill_null(False))[idle.get_column("event_id")]
    function = context.blamed.named(idle.select("event_id", "code")).get_column("python_function").cast(pl.String)
    return by_event.fill_null(False) | function.str.contains(_PREPARES).fill_null(False)


_IN_REGION = """# run the compiled region once before the loop, with these shapes: its first call compiles, or loads what is kept
# does it come back later? TORCH_LOGS=recompiles,guards names the guards that fail, and those that each call checks"""
_PART_OF_CODE = 0.1
"""Least share of the idle time for which the advice shows code."""
_ON_CPU = """mask = torch.ones(n, n, device="cuda").tril()  # CPU tensors: create them where they are used
# transform data in the data loader's workers, not between launches"""
_BEFORE_LAUNCH = (
    "# run them once before the loop, with these shapes: a first call starts its library, or searches for its kernel"
)


def cpu_operators(context: AdviceContext) -> Opportunity | None:
    """Propose less CPU computation: idle time in long operators, except those that prepare data.

    An operator that launches work afterwards does not compute on the CPU: it takes long to prepare its launch.
    """
    idle = context.idle.filter(pl.col("cause") == "cpu-operator")
    idle = idle.filter(~_prepares(context, idle))
    launching = context.within.activities.get_column("operator_id").drop_nulls()
    before_launch = idle.filter(pl.col("event_id").is_in(launching.implode()))
    why = "operators hold the CPU for over 1 ms at a time, without a call to the GPU's runtime, while the GPU waits"
    if before_launch.height:
        share = percent(total(before_launch, length_ns()) / max(1, total(idle, length_ns())))
        why += f"; {share} of it before operators of the GPU launch their kernels"
    regions = context.host.texts(before_launch.get_column("event_id")).cast(pl.String).str.contains(_COMPILED)
    compiled_ns, launch_ns = (total(before_launch.filter(rows), length_ns()) for rows in (regions, ~regions))
    rest_ns = total(idle, length_ns()) - compiled_ns - launch_ns
    lines = ((compiled_ns, _IN_REGION), (rest_ns, _ON_CPU), (launch_ns, _BEFORE_LAUNCH))
    codes = [code for ns, code in sorted(lines, reverse=True) if ns >= _PART_OF_CODE * total(idle, length_ns())]
    opportunity = idle_opportunity(context, idle, ("cpu-operator",), why)
    return opportunity and replace(opportunity, values={"snippet": "\n".join(codes)})


def cpu_preparation(context: AdviceContext) -> Opportunity | None:
    """Propose moving preparation out of the loop: idle time in which the CPU makes random numbers, tokens or images."""
    idle = context.idle.filter(pl.col("cause").is_in(["cpu-operator", "python"]))
    causes = ("cpu-operator", "python")
    why = "the loop makes random numbers, tokens or images on the CPU while the GPU waits"
    return idle_opportunity(
        context, idle.filter(_prepares(context, idle)), causes, why, " in functions that prepare data"
    )


def host_wait(context: AdviceContext) -> Opportunity | None:
    """Propose reducing waits of the launching thread for other threads and processes."""
    why = (
        "the launching thread waits for another thread or process, for the network or for a timer, and launches nothing"
    )
    return idle_of(context, ("host-wait",), why)


def earlier_work(context: AdviceContext) -> Opportunity | None:
    """Comment on idle time in which earlier launches ran: no saving, but a better recording."""
    idle = context.idle.filter(pl.col("cause") == EARLIER_WORK)
    if idle.is_empty():
        return None
    main = idle.sort(length_ns(), descending=True, maintain_order=True).head(1)
    waiting = context.within.gaps.get_column("name")[main.get_column("gap_id")].item()
    waiter = context.host.texts(main.get_column("event_id")).item()
    ns = total(idle, length_ns())
    return Opportunity(
        ns,
        "idle time in which the device worked on what was launched before the recording; it is no saving: the program does not"
        " become faster, but the recording shows all of it",
        f"{share_of_window(context, ns)}: the device was not idle, but worked on what was launched before the recording",
        lambda: f"before {waiting}, which was launched at the beginning, while the CPU sat in {waiter}",
        longest(main, length_ns()),
        members=members_of(idle),
    )
