"""Define the rules for idle time: launches, waits of the host, compilation, cold starts."""

from collections.abc import Sequence
from functools import partial

import polars as pl
from msgspec.structs import replace

from trace_analyzer import thresholds
from trace_analyzer.advice.graph_obstacles import appends_to_cache, has_waits, is_in_pieces, obstacles, waits_between
from trace_analyzer.advice.opportunity import (
    ANY_COPY,
    OF_PIPELINE,
    Opportunity,
    a_step,
    by_a_pipeline,
    code_of_events,
    for_results,
    held,
    idle_of,
    idle_opportunity,
    kernel_word,
    largest_operators,
    launched_within,
    longest,
    members_of,
    places_of,
    responsible_code,
    share_of_window,
    total,
    where_called,
    worth_ns,
)
from trace_analyzer.advice.window_context import COMPILED, AdviceContext, captures_of, replayed_ratio
from trace_analyzer.catalog import event_names
from trace_analyzer.catalog.fixes import has_fused
from trace_analyzer.frames.intervals import END_NS, LENGTH_NS, union, with_covered
from trace_analyzer.report.summaries import judged_parts
from trace_analyzer.units import count, counted, duration
from trace_analyzer.verdict.judge import WITHIN_LAUNCH
from trace_analyzer.vocabulary import EARLIER_WORK, PARTS, shortened_by

LAUNCHING = shortened_by("cuda-graphs")
"""Causes of idle time that fewer launches reduce."""

_ONCE = tuple(part.key for part in PARTS.values() if part.per == "once" and part.role == "named")
"""Causes of idle time that occur once in a program's life, if few intervals make up most of the recording."""
_FEW_STRETCHES = 3


def _once(context: AdviceContext) -> pl.DataFrame:
    """Return the idle time of one-time work, where a few long intervals are most of a window without steps.

    Graph captures alone do not count, as `graph_capture` covers them.
    """
    rows = context.idle.filter(pl.col("cause").is_in(_ONCE))
    if rows.filter(pl.col("cause") != "graph-capture").is_empty():
        return rows.clear()
    stretches = rows.group_by("gap_id").agg(LENGTH_NS.sum().alias("ns")).get_column("ns").top_k(_FEW_STRETCHES)
    once = context.steps <= 1 and not context.recompiled and 2 * int(stretches.sum()) > context.window_ns
    return rows if once else rows.clear()


def _is_cold(context: AdviceContext) -> bool:
    return context.verdict.cause == "cold-start" or not _once(context).is_empty()


def cuda_graphs(context: AdviceContext) -> Opportunity | None:
    """Propose CUDA graphs, unless graphs are replayed already, or waits leave nothing to capture.

    The saving is idle time of launches and of the operators around them; stretches of a thread without either stay, and
    so do optimizers, as the code compiles the model.
    """
    if _is_cold(context):
        return None
    updates, _ = launched_within(
        context, context.within.activities, f"{event_names.OPTIMIZER_STEP}|{event_names.ZERO_GRAD}"
    )
    others = context.within.activities.join(updates, on="activity_id", how="anti")
    ended = context.within.gaps.join(updates, on="activity_id", how="semi")
    idle = context.launching_idle.join(ended, on="gap_id", how="anti")
    if total(idle, LENGTH_NS) < worth_ns(context):
        return None
    replayed = replayed_ratio(others)
    if not (others.get_column("kind") == "kernel").any() or replayed > thresholds.REPLAYED_RATIO:
        return None
    if is_in_pieces(context) and total(_after_waits(context), LENGTH_NS):
        return None
    launches = others.get_column("launch_id").drop_nulls().n_unique()
    per_step = counted(launches / context.steps, "launch", "launches") + (" per step" if context.steps > 1 else "")
    per_step += ", without those of optimizers" if updates.height else ""
    between = context.idle.filter(pl.col("cause") == "device-gap")
    beside = (
        f", and between queued kernels for {a_step(total(between, LENGTH_NS), context.steps)}" if between.height else ""
    )
    unlinked = context.idle.filter(pl.col("cause") == "unlinked")
    if unlinked.height:
        beside += f"; {a_step(total(unlinked, LENGTH_NS), context.steps)} of it end with work of which no launch is known, and may have another cause"
    compiled, _ = launched_within(context, others, COMPILED)
    already = "; its code is already compiled, but launched kernel by kernel"
    already_compiled = already if 2 * compiled.height > others.height else ""
    widens = 2 * replayed > 1 and context.program != "serving" and not context.is_compiled
    opportunity = idle_opportunity(
        context,
        idle,
        LAUNCHING,
        f"the GPU waits while the CPU prepares and makes launches ({per_step}){beside}{already_compiled}{obstacles(context)}",
        ", without stretches of 1 ms or more in which the thread is in no operator and no call + time between queued kernels, and"
        " before work of which no launch is known",
        pl.concat([between, unlinked]),
    )
    return opportunity and replace(
        opportunity,
        if_more="a CPU that launches less often does the rest of its work while the device works",
        values={"between": waits_between(context)},
        case="decoding" if appends_to_cache(context) else "graphs" if widens else "",
        after=("synchronization",) if has_waits(context) else (),
    )


_GROWS_WITH_THE_BATCH = tuple(part.key for part in PARTS.values() if part.per != "step")
"""Parts of the window that double with twice the samples, or that occur once."""


def bigger_batch(context: AdviceContext) -> Opportunity | None:
    """Propose a bigger batch.

    Where launching is the limit, twice the batch takes the same time, which saves half of the step. Stretches of Python
    may prepare samples, and then grow with the batch.
    """
    if context.verdict.cause not in ("launch", *WITHIN_LAUNCH, "small-kernels"):
        return None
    parts, idle = judged_parts(context.verdict), context.launching_idle
    launching_ns = total(idle, LENGTH_NS)
    overhead = launching_ns + parts.get("latency", 0) + parts.get("device-gap", 0)
    silent_ns = total(context.idle.lazy().filter(pl.col("cause").is_in(LAUNCHING)), LENGTH_NS) - launching_ns
    if silent_ns > overhead:
        return None
    kernels = context.within.activities.filter(
        (pl.col("kind") == "kernel") & (pl.col("group") != "communication").fill_null(True)
    )
    if kernels.is_empty():
        return None
    typical = kernels.get_column("duration_ns").median()
    launches = max(1, context.launch_count)
    unused = f", and each launch leaves {duration(overhead / launches)} of the device unused"
    if kernels.height > 2 * launches:  # graphs: what one of them holds says nothing about its launch
        unused = f"; small kernels and idle time around them take {a_step(overhead, context.steps)}"
    grows = sum(parts.get(part, 0) for part in _GROWS_WITH_THE_BATCH) + silent_ns
    places = places_of(idle)
    return Opportunity(
        (context.window_ns - grows) // 2,
        "half of the window without one-time work, data loading, copies, and stretches of 1 ms or more without an operator or a"
        " call: where launching limits, twice the batch takes as long",
        f"the median kernel takes {duration(typical)} ({counted(kernels.height / context.steps, 'kernel')}"  # type: ignore[arg-type]
        f"{' per step' if context.steps > 1 else ''}){unused}",
        partial(largest_operators, kernels),
        longest(places, LENGTH_NS),
        members=places,
        is_replayed=silent_ns < worth_ns(context),
        case="decoding" if appends_to_cache(context) else "",
    )


def idle_before(context: AdviceContext, members: pl.DataFrame, causes: Sequence[str] = LAUNCHING) -> pl.DataFrame:
    """Return the idle time of these causes that ends with one of these activities."""
    return context.idle.filter(_ends_with(context, members), pl.col("cause").is_in(causes))


def _ends_with(context: AdviceContext, members: pl.DataFrame) -> pl.Expr:
    """Return whether a row of idle time is of a gap that ends with one of these activities."""
    ended = context.within.gaps.join(members, on="activity_id", how="semi").get_column("gap_id")
    return pl.col("gap_id").is_in(ended.implode())


def garbage_collection(context: AdviceContext) -> Opportunity | None:
    """Propose controlling garbage collection, which Python runs by itself or because the program calls it."""
    why = "Python's garbage collector runs while the GPU has nothing queued"
    opportunity = idle_of(context, ("garbage-collection",), why)
    if opportunity is None:
        return None
    idle = context.idle.filter(pl.col("cause") == "garbage-collection")
    called = context.host.texts(idle.get_column("event_id")).cast(pl.String).str.contains(_COLLECT).fill_null(False)
    asked = 2 * total(idle.filter(called), LENGTH_NS) > total(idle, LENGTH_NS)
    return replace(
        opportunity,
        why=opportunity.why + ("; the program itself calls gc.collect()" if asked else ""),
        case="gc.collect()" if asked else "",
    )


_COLLECT = r"<built-in (method|function) collect|^gc\.collect"
"""Names of the program's own calls of the collector; Python's automatic collections are other events."""


def _after_waits(context: AdviceContext) -> pl.DataFrame:
    """Return the idle time after calls that wait for the device, and in copies of what an operator waits for."""
    idle = context.idle.filter(pl.col("cause").is_in(["synchronization", "blocking-copy"]))
    return idle.filter((idle.get_column("cause") == "synchronization") | for_results(context, idle))


def synchronization(context: AdviceContext) -> Opportunity | None:
    """Propose fewer synchronizations: idle time after calls that wait for the device."""
    why = "after a blocking call the queue is empty, and the GPU waits for the next launch"
    waits = _waits(context)
    idle, kernels = _of_waiting_operators(context, waits.get_column("event_id"))
    gone_ns = total(idle, LENGTH_NS) + total(kernels, LENGTH_NS)
    extra = (
        " + idle time and kernels of the operators that wait for their own result, as they go too" if gone_ns else ""
    )
    idle = pl.concat([_after_waits(context), idle])
    opportunity = idle_opportunity(context, idle, ("synchronization",), why, extra, kernels)
    if opportunity is None:
        return None
    blocked_ns = waited_ns(context)
    calls = (
        f"such calls also block the CPU for {a_step(blocked_ns, context.steps)} while the device works: "
        if blocked_ns
        else ""
    )
    why = opportunity.why
    if is_part := gone_ns >= worth_ns(context):  # the replay takes out the waits alone
        why += f"; {a_step(gone_ns, context.steps)} of it is launching and work of the operators that wait, which go with the wait"
    if is_in_pieces(context):
        every = context.launch_count / context.wait_count
        why += f"; {counted(every, 'launch comes', 'launches come')} with each wait: without waits, a CUDA graph can contain more"
    return replace(
        opportunity,
        why=why,
        if_more=f"{calls}without them the CPU prepares its next work meanwhile, unless that work needs the results",
        where_if_more=partial(code_of_events, context, waits, waits.get_column("event_id")) if waits.height else None,
        is_part=is_part,
        case=_written_most(context, waits),
    )


def _of_waiting_operators(context: AdviceContext, waits: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return idle time of launching and device time of operators such as ``nonzero`` that wait for their own result.

    What is written instead has no such operator. Copies that the program asks for stay.
    """
    source_ids = context.around.events.get_column("source_id")
    own = source_ids[waits].drop_nulls().unique()
    is_own = context.host.by_name("kind", own).cast(pl.String).eq("operator")
    own = own.filter(is_own & context.host.by_name("source", own).cast(pl.String).ne(ANY_COPY)).implode()
    activities, idle = context.within.activities, context.idle
    launched = activities.filter(source_ids[activities.get_column("launch_id")].is_in(own).fill_null(False))
    of_events = source_ids[idle.get_column("event_id")].is_in(own).fill_null(False)
    idle = idle.filter(pl.col("cause").is_in(LAUNCHING), of_events | _ends_with(context, launched))
    return idle, held(context, launched, launched.get_column("bound").unique().to_list())


def waited_ns(context: AdviceContext) -> int:
    """Return the time in which a blocking call runs on the host while the device works."""
    return total(with_covered(union(_blocking(context), []), union(context.busy_parts, []), [], "ns"), "ns")


def _waits(context: AdviceContext) -> pl.DataFrame:
    """Return event_id, ns: idle time after calls that wait for the device, and the time for which they hold the CPU."""
    idle = _after_waits(context).filter(pl.col("event_id").is_not_null())
    held = with_covered(_blocking(context), union(context.busy_parts, []), [], "ns").select("event_id", "ns")
    waits = pl.concat([idle.select("event_id", LENGTH_NS.alias("ns")), held], how="vertical_relaxed")
    return waits.filter(pl.col("ns") > 0)


def _blocking(context: AdviceContext) -> pl.DataFrame:
    """Return the calls that wait for the device: those that synchronize, and copies that return after their copy.

    They are of processes that launch its work: another process in the file is another rank.
    """
    copies = context.within.activities.filter(pl.col("kind") == "memcpy")
    copied = copies.group_by(pl.col("launch_id").alias("event_id")).agg(END_NS.max().alias("copied_ns"))
    calls = context.host.calls.join(copied, on="event_id", how="left", maintain_order="left")
    blocks = (pl.col("work") == event_names.BLOCKING).fill_null(False) | (pl.col("copied_ns") < pl.col("end_ns"))
    launching = pl.col("thread_id").is_in(context.launch_threads.implode())
    own = pl.col("process_id").is_in(calls.filter(launching).get_column("process_id").unique().implode())
    return calls.filter(blocks, own)


_EXPERTS = r"(?i)moe|experts?(_\d+)?(/|$)"
"""Modules of mixtures of experts."""


def _written_most(context: AdviceContext, waits: pl.DataFrame) -> str:
    """Return the code that causes the most waiting, such as ``.item()``; "" where the rules recognise none."""
    events = waits.get_column("event_id")
    written = waits.select(context.around.sources(events).cast(pl.String).alias("written"), "ns")
    sums = written.group_by("written").agg(pl.col("ns").sum())
    most = str(sums.sort("ns", "written", descending=[True, False]).get_column("written").first() or "")
    if most == ANY_COPY and by_a_pipeline(context, events, waits.get_column("ns")):
        return OF_PIPELINE
    operators = context.around.events.get_column("operator_id")[events]
    of_source = pl.col("written") == most
    for case, (source, direction, within_module) in _BY_COPIES.items():
        if source != most:
            continue
        copies = where_called(context.within.activities, (event_names.copy_direction() == direction).fill_null(False))
        copied = operators.is_in(copies.get_column("operator_id").drop_nulls().implode()).fill_null(False)
        if within_module:
            copied &= context.around.modules(events).is_not_null()
        if 2 * total(written.filter(of_source & copied), "ns") > total(written.filter(of_source), "ns"):
            return case
    if most == _SCALER and context.optimizer and not has_fused(context.optimizer, context.platform):
        return f"{_SCALER} without a fused optimizer"
    if most in _BY_MASK:
        routed = context.around.modules(events).cast(pl.String).str.contains(_EXPERTS).fill_null(False)
        if 2 * total(written.filter(routed), "ns") > total(written, "ns"):
            return "routing to experts"
    return most


_BY_COPIES = {
    "copies to the host": (ANY_COPY, event_names.TO_HOST, False),
    "copies to the device within a module": (ANY_COPY, event_names.FROM_HOST, True),
    "copies to the device": (ANY_COPY, event_names.FROM_HOST, False),
    "index on the CPU": ("indexing", event_names.FROM_HOST, False),
}
"""Case -> source of waits, direction of its copies, and whether only those within modules count: a mask brings its size to
the host, an index on the CPU goes to the device; what forward() copies is no input, but a constant or made there."""
_SCALER = "GradScaler's check for overflow"
"""Source of waits: only a fused optimizer checks on the device."""
_BY_MASK = ("indexing", "nonzero")
"""Code that selects a number of rows that depends on the data."""


_EMPTIES = "torch.cuda.empty_cache()"
"""Source of waits, and case of code, of a program that gives memory back itself."""
_FREES = "^(cuda|hip)Free(Async)?$"
"""Calls by which memory is given back, where no stack names the source."""


def allocator(context: AdviceContext) -> Opportunity | None:
    """Propose fewer allocations: idle time in calls that allocate or free device memory, except in a cold start."""
    if _is_cold(context):
        return None
    opportunity = idle_of(
        context, ("allocation",), "calls that allocate or free device memory block the CPU, and often the device"
    )
    idle = context.idle.filter(pl.col("cause") == "allocation")
    sources = context.around.sources(idle.get_column("event_id")).cast(pl.String)
    freed = context.host.events.get_column("name")[idle.get_column("event_id")].cast(pl.String).str.contains(_FREES)
    # What is given back has to be allocated again.
    cases = ((_EMPTIES, sources == _EMPTIES), ("cudaFree", freed & sources.is_null()))
    all_ns = total(idle, LENGTH_NS)
    asked = (case for case, rows in cases if 4 * total(idle.filter(rows.fill_null(False)), LENGTH_NS) > all_ns)
    return opportunity and replace(opportunity, case=next(asked, ""))


def _compiling(context: AdviceContext, *, loads: bool) -> pl.DataFrame:
    """Return the idle time of compilation, either in runtime calls that load code or in Python's compilation."""
    idle = context.idle.filter(pl.col("cause") == "compilation")
    kinds = context.host.events.get_column("kind")[idle.get_column("event_id")]
    by_call = kinds.is_in([*event_names.CALLS, "overhead"]).fill_null(False)
    return idle.filter(by_call if loads else ~by_call)


def recompilation(context: AdviceContext) -> Opportunity | None:
    """Propose avoiding recompilation: idle time in which Python compiles code, except in a cold start."""
    regions = counted(context.recompiled, "region", "regions")
    again = f"; {regions} of the trace had been compiled before" if context.recompiled else ""
    frames = context.host.names.get_column("name").cast(pl.String)
    alone = frames.str.contains(_TRITON).any() and not frames.str.contains(r"torch[/\\]_(dynamo|inductor)[/\\]").any()
    why = f"{'Triton compiles' if alone else 'Dynamo, Inductor or Triton compile'} while the GPU waits{again}"
    opportunity = _compilation(context, why, loads=False)
    return opportunity and replace(opportunity, case="triton" if alone and not context.is_compiled else "")


_TRITON = r"(^|/)triton/(compiler|runtime)/"
"""Frames in which Triton compiles."""


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
            "idle time in compilation, allocation and graph captures, most of the window in a few long stretches",
        )
    saves = total(cold, LENGTH_NS)
    if not saves:
        return None
    return Opportunity(
        saves,
        how,
        f"{share_of_window(context, saves)}: the device waits for one-time work of the process: loading kernels,"
        " allocating memory, starting libraries",
        partial(responsible_code, context, cold),
        longest(cold, LENGTH_NS),
        members=members_of(cold),
        case="TorchScript" if context.is_scripted else "",
    )


def graph_capture(context: AdviceContext) -> Opportunity | None:
    """Propose to capture graphs once: idle time in captures, and in what ``torch.cuda.graph`` does before each."""
    idle = context.idle.filter(pl.col("cause") == "graph-capture")
    if _is_cold(context) or idle.is_empty():
        return None
    begun_ns = total(idle, LENGTH_NS) - judged_parts(context.verdict).get("graph-capture", 0)
    begins = begun_ns >= worth_ns(context)
    captures = captures_of(context.host).height
    again = context.steps > 1 and captures >= context.steps
    times = count(captures / context.steps)
    often = f"{'once' if times == '1' else f'{times} times'} a step" if again else "once per graph"
    begun = f"; each begins with a wait, a garbage collection and an emptied cache: {a_step(begun_ns, context.steps)}"
    why = f"launches are captured into graphs and the GPU does not run: this happens {often}{begun if begins else ''}"
    extra = ", and idle time between the wait by which torch.cuda.graph begins and its capture" if begins else ""
    opportunity = idle_opportunity(context, idle, ("graph-capture",), why, extra)
    when = "once, not in each step" if again else "before you measure or serve"
    return opportunity and replace(opportunity, case="in each step" if again else "", values={"when": when})


def host_wait(context: AdviceContext) -> Opportunity | None:
    """Propose reducing waits of the launching thread for other threads and processes."""
    why = "the launching thread waits for another thread or process, the network or a timer"
    return idle_of(context, ("host-wait",), why)


def earlier_work(context: AdviceContext) -> Opportunity | None:
    """Comment on idle time in which earlier launches ran: no saving, but a better recording."""
    idle = context.idle.filter(pl.col("cause") == EARLIER_WORK)
    if idle.is_empty():
        return None
    main = idle.sort(LENGTH_NS, descending=True, maintain_order=True).head(1)
    waiting = context.within.gaps.get_column("name")[main.get_column("gap_id")].item()
    waiter = context.host.texts(main.get_column("event_id")).item()
    ns = total(idle, LENGTH_NS)
    return Opportunity(
        ns,
        "time in which the device ran work launched before the recording; not a saving: the program becomes no faster, but the"
        " recording becomes complete",
        f"{share_of_window(context, ns)}: the device was not idle, but ran work launched before the recording",
        lambda steps: (
            f"before {kernel_word(waiting)}, which was launched at the beginning, while the CPU waited in {waiter}"
        ),
        longest(main, LENGTH_NS),
        members=members_of(idle),
        is_saving=False,
    )
