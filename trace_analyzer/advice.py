"""Findings and verdict -> advice: what to change, where, and how much it can save at most.

What can be changed is data (catalog/fixes.toml). Here stands, for each fix, the rule that says whether the
findings ask for it: a function of the scene that returns what was found, or None. A fix belongs to regimes: what a
regime cannot use is not said. docs/advice.md has a section on each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.blame import Attribution
from trace_analyzer.analyses.causes import cold_idle
from trace_analyzer.analyses.communication import with_exposed
from trace_analyzer.analyses.host import CALLS, Host
from trace_analyzer.catalog.code import in_function
from trace_analyzer.catalog.devices import Device
from trace_analyzer.catalog.fixes import Fix, Platform, fixes, platform_of
from trace_analyzer.frames.intervals import clip, filter_inside, lookup_at, spans_on, union
from trace_analyzer.frames.lookups import (
    as_strings,
    factorize,
    lookup,
    lookup_inner,
    map_unique,
    sum_by_group,
    where_equal,
)
from trace_analyzer.report import Advice, Verdict, Window
from trace_analyzer.units import count, counted, duration, percent, size

LAUNCHING = ("python", "dispatch", "runtime-call", "launch-latency", "host-unknown")
"""Causes of idle time that fewer launches cure."""


@dataclass(frozen=True)
class WindowTables:
    """What lies in a window of a device, whatever the verdict on it.

    ``activities`` are those that start in the window, with the thread and the time of their launch, the class
    of their ``module`` and whether they are ``recomputed``; ``collectives``, ``roofs`` and ``missed`` (contractions that could
    use matrix units better) are those of these activities. ``fusions`` are the runs of kernels that start in the window.
    ``gaps`` has a row for each gap, with the activity that had to wait and its name.
    """

    gaps: pl.DataFrame
    activities: pl.DataFrame
    collectives: pl.DataFrame
    roofs: pl.DataFrame
    missed: pl.DataFrame
    fusions: pl.DataFrame


@dataclass(frozen=True, kw_only=True)
class AdviceContext(WindowTables):
    """What the rules look at: the verdict, and what lies in its window.

    ``regimes`` are that of the verdict and its runner-up. ``blamed`` tells whose the window's idle time is, and ``idle`` and
    ``cold`` are its intervals without and with what comes once, at a cold start. ``busy_parts`` are those of the window's
    partition, and ``recompiled`` regions of the trace had been compiled before.
    """

    verdict: Verdict
    regimes: frozenset[str]
    window_ns: int
    busy_parts: pl.DataFrame
    blamed: Attribution
    idle: pl.DataFrame
    cold: pl.DataFrame
    host: Host
    steps: int
    recompiled: int
    model: Device | None
    platform: Platform


@dataclass(frozen=True)
class Opportunity:
    """What a rule found: the bound on the saving and its formula, the figures, the place; ``values`` fill the fix's words."""

    saves_ns: int
    how_bound: str
    why: str
    where: str
    place: tuple[int | None, int | None]
    values: Mapping[str, object] = field(default_factory=dict)


def surroundings(window: Window, frames: Mapping[str, pl.DataFrame], device: int) -> WindowTables:
    """What lies in the ``window`` of the device with that code."""
    spans = spans_on(device, window.intervals)
    launched = frames["launches"].select(
        "launch_id", "activity_count", pl.col("thread_id").alias("launch_thread"), pl.col("start_ns").alias("launch_ns")
    )
    activities = filter_inside(
        where_equal(frames["activities"].select(_ACTIVITY), "device", device), "start_ns", spans, ["device"]
    )
    modules = frames["activity_modules"].select("activity_id", "module")
    ids = activities.select("activity_id")
    class_ = pl.col("module").str.replace(r"_\d+$", "").cast(pl.Categorical)
    classes = modules.with_columns(map_unique(modules.select("module"), class_))
    gaps, names = frames["gaps"], frames["activities"].get_column("name")
    return WindowTables(
        gaps=gaps.select("gap_id", "activity_id", names[gaps.get_column("activity_id")]),
        activities=activities.hstack(lookup(launched, activities, "launch_id"))
        .hstack(lookup(classes, activities, "activity_id"))
        .hstack(lookup(frames["rated"].select("activity_id", "recomputed"), activities, "activity_id")),
        collectives=lookup_inner(frames["collectives"], ids, "activity_id"),
        roofs=lookup_inner(frames["roofs"], ids, "activity_id"),
        missed=lookup_inner(frames["tensor_core_misses"], ids, "activity_id"),
        fusions=filter_inside(where_equal(frames["fusion_runs"], "device", device), "start_ns", spans, ["device"]),
    )


def advise(
    verdict: Verdict,
    window: Window,
    within: WindowTables,
    frames: Mapping[str, pl.DataFrame],
    blamed: Attribution,
    host: Host,
    device: int,
    model: Device | None,
) -> tuple[Advice, ...]:
    """Advice for a verdict with a regime, most time saved first; times are for the verdict's ``window``.

    Where the best of the regime comes close to that of the runner-up, the verdict decides which is first. What changes
    the work instead of doing it faster comes last.
    ``within`` are the window's `surroundings`, ``blamed`` tells whose its idle time is, ``device`` is the code of the
    judged device and ``model`` its row of the catalogue, where known.
    """
    if verdict.regime is None:
        return ()
    scene = _scene(verdict, window, within, frames, blamed, host, device, model)
    asked = [(fix, _RULES[fix.id](scene)) for fix in fixes().values() if scene.regimes.intersection(fix.regimes)]
    worth = _worth(scene)
    items = [
        (
            fix,
            Advice(
                title=fix.title_of(scene.platform, **found.values),
                code=fix.code_of(scene.platform, **found.values),
                why=found.why,
                where=found.where,
                saves_ns_at_most=min(found.saves_ns, scene.window_ns),
                how_bound=found.how_bound,
                start_ns=found.place[0],
                end_ns=found.place[1],
                id=fix.id,
                docs=fix.docs,
            ),
        )
        for fix, found in asked
        if found is not None and found.saves_ns > 0 and found.saves_ns >= worth
    ]
    return _ranked(items, verdict.regime)


def _ranked(items: Sequence[tuple[Fix, Advice]], regime: str) -> tuple[Advice, ...]:
    """Most time saved first, last resorts behind; the regime's first leads if it is as close as runners-up are."""
    ranked = sorted(items, key=lambda pair: (pair[0].last_resort, -pair[1].saves_ns_at_most))
    leads = next(
        (
            item
            for fix, item in ranked
            if regime in fix.regimes
            and not fix.last_resort
            and item.saves_ns_at_most >= thresholds.RUNNER_UP_RATIO * ranked[0][1].saves_ns_at_most
        ),
        None,
    )
    return tuple(item for _, item in sorted(ranked, key=lambda pair: pair[1] is not leads))


def _scene(
    verdict: Verdict,
    window: Window,
    within: WindowTables,
    frames: Mapping[str, pl.DataFrame],
    blamed: Attribution,
    host: Host,
    device: int,
    model: Device | None,
) -> AdviceContext:
    spans = spans_on(device, window.intervals)
    idle, is_cold = blamed.intervals, verdict.cause == "cold-start"
    cold = idle.clear()
    if is_cold:
        cold = cold_idle(idle, *(where_equal(frames[name], "device", device) for name in ("gaps", "activities")))
    calls = host.names.filter(pl.col("kind").is_in(CALLS))
    return AdviceContext(
        **vars(within),
        verdict=verdict,
        regimes=frozenset(filter(None, (verdict.regime, verdict.runner_up))),
        window_ns=sum(verdict.parts_ns.values()),
        busy_parts=clip(where_equal(frames["busy"], "device", device), spans, ["device"]),
        blamed=blamed,
        idle=idle.join(cold, on=["gap_id", "start_ns"], how="anti", maintain_order="left") if is_cold else idle,
        cold=cold,
        host=host,
        steps=max(1, len(window.steps)),
        recompiled=frames["host_costs"].filter(pl.col("kind") == "recompilation").height,
        model=model,
        platform=platform_of(model.vendor if model else None, calls.get_column("name")),
    )


_ACTIVITY = (
    "activity_id", "kind", "name", "device", "stream", "start_ns", "duration_ns", "bytes", "launch_id", "operator_id",
    "operator", "bucket", "group", "bound", "dtype", "flop", "moved_bytes",
)  # fmt: skip
"""Of the columns of activities, those that rules look at."""


# Places and sums


def _length() -> pl.Expr:
    return pl.col("end_ns") - pl.col("start_ns")


def _total(frame: pl.DataFrame, figure: str | pl.Expr) -> int:
    return int(frame.select((pl.col(figure) if isinstance(figure, str) else figure).sum()).item() or 0)


def _longest(rows: pl.DataFrame, length: pl.Expr) -> tuple[int | None, int | None]:
    """The longest of some intervals: a place on the timeline."""
    if rows.is_empty():
        return None, None
    longest = length.arg_max()
    start, ns = rows.select(pl.col("start_ns").get(longest), length.get(longest).alias("length_ns")).row(0)
    return int(start), int(start) + round(ns)


def _most(rows: pl.DataFrame, name: pl.Expr, figure: pl.Expr) -> str:
    """The three names that hold most time, with it."""
    sums = (
        rows.group_by(name.alias("by"))
        .agg(figure.sum().alias("ns"))
        .with_columns(pl.col("by").cast(pl.String))
        .sort("ns", "by", descending=[True, False])
    )
    return "; ".join(f"{name or 'unknown operator'} ({duration(ns)})" for name, ns in sums.head(3).iter_rows())


def _doing(scene: AdviceContext, idle: pl.DataFrame) -> str:
    """Who is to blame for most of some idle time, in which function; where nobody is, the work that had to wait."""
    blamed = idle.filter(pl.col("event_id").is_not_null())
    if blamed.is_empty():
        waiting = scene.gaps.get_column("name")[idle.get_column("gap_id")]
        return "before " + _most(idle.with_columns(waiting), pl.col("name"), _length())
    name_ids = scene.host.events.get_column("name_id")[blamed.get_column("event_id")]
    numbers, firsts = factorize(name_ids, blamed.get_column("code"))
    lengths = blamed.select(_length()).to_series()
    who = ["name", "python_function"]
    sums = (
        scene.blamed.named(blamed.select("event_id", "code")[firsts])
        .select(
            scene.host.names.get_column("text")[name_ids[firsts]].alias("name"),
            "python_function",
            sum_by_group(numbers, lengths, firsts.len()).alias("ns"),
        )
        .group_by(who)
        .agg(pl.col("ns").sum())
        .with_columns(pl.col(who).cast(pl.String))
        .sort("ns", *who, descending=[True, False, False])
    )
    return "; ".join(
        f"{name}{f' {in_function(function)}' if function and function != name else ''} ({duration(ns)})"
        for name, function, ns in sums.head(3).iter_rows()
    )


def _operators(kernels: pl.DataFrame) -> str:
    """The operators that hold most time, each with the class of the module around it."""
    who = kernels.select("operator", "name", "module")
    numbers, firsts = factorize(*who)
    sums = sum_by_group(numbers, kernels.get_column("duration_ns"), firsts.len())
    name = pl.coalesce("operator", "name")
    told = pl.coalesce(pl.format("{} in {}", name, "module"), name)
    return _most(as_strings(who[firsts]).with_columns(sums.alias("ns")), told, pl.col("ns"))


def _called(rows: pl.DataFrame, condition: pl.Expr) -> pl.DataFrame:
    """Those of the activities whose name, operator and dtype meet a condition."""
    return rows.filter(map_unique(rows.select("name", "operator", "dtype"), condition.alias("is called")).to_series())


def _worth(scene: AdviceContext) -> float:
    """What a fix must save to be said, ns."""
    return thresholds.WORTH_RATIO * scene.window_ns


def _share(scene: AdviceContext, ns: float) -> str:
    return f"{percent(min(1.0, ns / scene.window_ns))} of the window ({duration(ns)})"


def _idle_of(
    scene: AdviceContext, causes: tuple[str, ...], why: str, extra: str = "", extra_ns: int = 0
) -> Opportunity | None:
    """What some causes of idle time ask for: it saves at most all of it."""
    return _idle_found(scene, scene.idle.filter(pl.col("cause").is_in(causes)), causes, why, extra, extra_ns)


def _idle_found(
    scene: AdviceContext, idle: pl.DataFrame, causes: tuple[str, ...], why: str, extra: str = "", extra_ns: int = 0
) -> Opportunity | None:
    saves = _total(idle, _length()) + extra_ns
    if saves == 0:
        return None
    return Opportunity(
        saves,
        f"all idle time of the window with cause {' + '.join(causes)}{extra}",
        f"{_share(scene, saves)}: {why}",
        _doing(scene, idle) if idle.height else "",
        _longest(idle, _length()),
    )


def _kernels_found(
    scene: AdviceContext, rows: pl.DataFrame, saves: pl.Expr, how_bound: str, why: str, **values: object
) -> Opportunity | None:
    """What some kernels ask for; ``saves`` is the time that each can save."""
    timed = rows.with_columns(_end(), saves.alias("saves_ns"), pl.col("duration_ns").alias("time_ns"))
    found = Opportunity(_total(timed, "saves_ns"), how_bound, why, _operators(rows), _longest(timed, _length()), values)
    return _within_their_part(scene, found, timed, timed.get_column("bound").unique().to_list())


def _runs_found(
    scene: AdviceContext, runs: pl.DataFrame, how_bound: str, why: str, **values: object
) -> Opportunity | None:
    """What runs of kernels of memory and latency that one kernel could replace ask for."""
    found = Opportunity(_total(runs, "saves_ns"), how_bound, why, _written(runs), _longest(runs, _length()), values)
    return _within_their_part(scene, found, runs, ["memory", "latency"])


def _within_their_part(
    scene: AdviceContext, found: Opportunity, rows: pl.DataFrame, bounds: Sequence[str | None]
) -> Opportunity | None:
    """What rows (device, start_ns, end_ns, time_ns, saves_ns) ask for, with their share of the window; None for nothing.

    All together they save no more than the part of the window that they hold, what runs beside others being hidden, and
    where several run at once as much of it as the best one of them.
    """
    best = rows.filter(pl.col("time_ns") > 0).select((pl.col("saves_ns") / pl.col("time_ns")).max()).item() or 0.0
    saves_ns = min(found.saves_ns, round(min(1.0, best) * _held(scene, rows, bounds)))
    if saves_ns <= 0:
        return None
    # Rounding may take a nanosecond.
    is_cut = found.saves_ns > saves_ns + 1
    cut = "; no more than the part of the window that they hold, as work runs beside them" if is_cut else ""
    share = percent(min(1.0, _total(rows, "time_ns") / scene.window_ns))
    return replace(
        found, saves_ns=saves_ns, how_bound=found.how_bound + cut, why=f"{found.why} ({share} of the window)"
    )


def _held(scene: AdviceContext, rows: pl.DataFrame, bounds: Sequence[str | None]) -> int:
    """Time of the window in which some rows (device, start_ns, end_ns) ran and work of some bounds held the device."""
    parts = scene.busy_parts.filter(pl.col("part").is_in(bounds)).select("device", "start_ns", "end_ns")
    return _total(clip(parts, union(rows.select("device", "start_ns", "end_ns"), ["device"]), ["device"]), _length())


def _written(runs: pl.DataFrame) -> str:
    """The three patterns that can save most time, with where they are written."""
    keys = ["what", "module", "function"]
    sums = runs.group_by(keys).agg(pl.len().alias("runs"), pl.col("saves_ns").sum())
    top = sums.sort("saves_ns", *keys, descending=[True, False, False, False]).head(3)
    return "; ".join(
        f"{what}{f' in {module}' if module else ''}{f', {in_function(function)}' if function else ''},"
        f" {'once' if times == 1 else f'{count(times)} times'} ({duration(saves)})"
        for what, module, function, times, saves in top.iter_rows()
    )


# Overhead


def _is_cold(scene: AdviceContext) -> bool:
    return scene.verdict.cause == "cold-start"


def _replayed_ratio(scene: AdviceContext) -> float:
    """Share of the activities that graph launches enqueued already."""
    launched = scene.activities.drop_nulls("launch_id")
    return launched.filter(pl.col("activity_count") > 1).height / launched.height if launched.height else 0.0


def _cuda_graphs(scene: AdviceContext) -> Opportunity | None:
    """Idle time between launches and in kernels too small to fill the device, unless graphs are replayed already."""
    if _is_cold(scene) or _replayed_ratio(scene) > thresholds.REPLAYED_RATIO:
        return None
    parts = scene.verdict.parts_ns
    launches = scene.activities.get_column("launch_id").drop_nulls().n_unique()
    per_step = counted(launches / scene.steps, "launch", "launches") + (" per step" if scene.steps > 1 else "")
    compiled, _ = _launched_within(scene, _COMPILED)
    already = "; its code is compiled already, but launched kernel by kernel"
    told = already if 2 * compiled.height > scene.activities.height else ""
    return _idle_of(
        scene,
        LAUNCHING,
        f"the CPU needs longer to prepare a kernel than the GPU to run it ({per_step}){told}",
        " + time in kernels too small to fill the device and between queued kernels",
        parts.get("latency", 0) + parts.get("device-gap", 0),
    )


_COMPILED = r"^Torch-Compiled Region|^## Call CompiledFxGraph"
"""What Dynamo and Inductor call the code that they compiled, where it runs."""


def _bigger_batch(scene: AdviceContext) -> Opportunity | None:
    """Half of what fewer launches save: twice the batch needs as many launches for twice the samples."""
    if scene.verdict.cause not in ("launch", "small-kernels"):
        return None
    parts = scene.verdict.parts_ns
    small = parts.get("latency", 0) + parts.get("device-gap", 0)
    idle = scene.idle.filter(pl.col("cause").is_in(LAUNCHING))
    overhead = _total(idle, _length()) + small
    kernels = scene.activities.filter(
        (pl.col("kind") == "kernel") & (pl.col("group") != "communication").fill_null(True)
    )
    if kernels.is_empty():
        return None
    typical = kernels.get_column("duration_ns").median()
    launches = max(1, scene.activities.get_column("launch_id").drop_nulls().n_unique())
    return Opportunity(
        overhead // 2,
        "half of the time that launching takes: with twice the batch as many launches serve twice the samples",
        f"the median kernel takes {duration(typical)} ({counted(kernels.height / scene.steps, 'kernel')}"  # type: ignore[arg-type]
        f"{' per step' if scene.steps > 1 else ''}), and each launch leaves {duration(overhead / launches)} of the device"
        " unused",
        _operators(kernels),
        _longest(idle, _length()),
    )


def _launched_within(scene: AdviceContext, pattern: str) -> tuple[pl.DataFrame, int]:
    """Activities whose launch lies in an annotation of that name, and how many of these there are."""
    spans = scene.host.those(
        pl.col("kind").is_in(["annotation", "operator"]) & pl.col("name").str.contains(pattern)
    ).select(pl.col("thread_id").alias("launch_thread"), "start_ns", "end_ns")
    within = union(spans, ["launch_thread"]).with_columns(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("span"),
    )
    found = lookup_at(scene.activities, "launch_ns", within, ["launch_thread"], ["span"]).drop_nulls("span")
    return found, found.get_column("span").n_unique()


def _end() -> pl.Expr:
    return (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")


def _idle_before(scene: AdviceContext, members: pl.DataFrame) -> pl.DataFrame:
    """Idle time of launching that ends with one of these activities."""
    ended = scene.gaps.join(members.select("activity_id"), on="activity_id", how="semi").get_column("gap_id")
    return scene.idle.filter(pl.col("gap_id").is_in(ended.implode()), pl.col("cause").is_in(LAUNCHING))


def _fused_optimizer(scene: AdviceContext) -> Opportunity | None:
    """What an optimizer costs that is no single kernel: idle time before its launches, and its passes over memory."""
    waits = _optimizer_launches(scene) if "overhead-bound" in scene.regimes else None
    passes = _optimizer_passes(scene) if "memory-bandwidth-bound" in scene.regimes else None
    if waits is None or passes is None:
        return waits or passes
    return Opportunity(
        waits.saves_ns + passes.saves_ns,
        f"{waits.how_bound}; and {passes.how_bound}",
        f"{waits.why}; {passes.why}",
        waits.where,
        waits.place,
    )


def _optimizer_passes(scene: AdviceContext) -> Opportunity | None:
    """Device time of optimizers that pass over parameters, gradients and state several times."""
    runs = scene.fusions.filter(pl.col("kind") == "optimizer")
    how = "the optimizer's time but that of its longest operator: a fused kernel is one pass"
    return _runs_found(scene, runs, how, "the optimizer reads and writes parameters and state several times")


def _optimizer_launches(scene: AdviceContext) -> Opportunity | None:
    """Idle time before the kernels of an optimizer that launches some for each parameter."""
    members, updates = _launched_within(scene, r"^Optimizer\.step#")
    launches = members.get_column("launch_id").n_unique() / updates if updates else 0
    several = pl.coalesce("operator", "name").str.contains(r"(?i)_foreach|_fused|multi_tensor|fused")
    fused = _called(members, several).height / members.height if members.height else 1.0
    if launches < thresholds.OPTIMIZER_LAUNCHES or fused > 0.5:
        return None
    why = f"the optimizer makes {count(launches)} launches per step, some for each parameter"
    return _idle_found(scene, _idle_before(scene, members), LAUNCHING, why, ", that ends with the optimizer's kernels")


def _set_to_none(scene: AdviceContext) -> Opportunity | None:
    """Idle time and device time of zeroing gradients."""
    members, calls = _launched_within(scene, r"^Optimizer\.zero_grad#")
    if not calls:
        return None
    why = f"zero_grad() makes {counted(members.height / calls, 'launch', 'launches')} to write zeros that the next backward pass adds to"
    extra = ", that ends with the kernels of zero_grad() + the time in which they hold the device"
    held = _held(scene, members.with_columns(_end()), members.get_column("bound").unique().to_list())
    return _idle_found(scene, _idle_before(scene, members), LAUNCHING, why, extra, held)


def _garbage_collection(scene: AdviceContext) -> Opportunity | None:
    return _idle_of(scene, ("garbage-collection",), "Python collects garbage while the GPU has nothing queued")


def _synchronization(scene: AdviceContext) -> Opportunity | None:
    why = "after a blocking call the queue is empty, and the GPU waits for the next launch"
    return _idle_of(scene, ("synchronization",), why)


_WORKERS = "_MultiProcessingDataLoaderIter"


def _data_loading(scene: AdviceContext) -> Opportunity | None:
    names = scene.host.names.get_column("name")
    parallel = bool(names.str.contains(_WORKERS, literal=True).any())
    alone = bool(names.str.contains("_SingleProcessDataLoaderIter", literal=True).any())
    how = (
        " (its workers do not keep up)"
        if parallel
        else " (num_workers=0: it loads in the training process itself)"
        if alone
        else ""
    )
    found = _idle_of(
        scene, ("data-loading",), f"the loop waits in the data loader while the GPU has nothing queued{how}"
    )
    return found and _with_values(found, workers="2 * workers" if parallel else "8")


def _with_values(found: Opportunity, **values: object) -> Opportunity:
    return replace(found, values=values)


def _allocator(scene: AdviceContext) -> Opportunity | None:
    if _is_cold(scene):
        return None
    return _idle_of(scene, ("allocation",), "calls that get or free device memory stop the CPU, and often the device")


def _compiling(scene: AdviceContext, *, loads: bool) -> pl.DataFrame:
    """Idle time of compilation, by whether a runtime call loads code or Python compiles it."""
    idle = scene.idle.filter(pl.col("cause") == "compilation")
    kinds = scene.host.events.get_column("kind")[idle.get_column("event_id")]
    by_call = kinds.is_in([*CALLS, "overhead"]).fill_null(False)
    return idle.filter(by_call if loads else ~by_call)


def _recompilation(scene: AdviceContext) -> Opportunity | None:
    regions = counted(scene.recompiled, "region", "regions")
    again = f"; {regions} of the trace had been compiled before" if scene.recompiled else ""
    why = f"Dynamo, Inductor or Triton compile while the GPU waits{again}"
    return None if _is_cold(scene) else _idle_found(scene, _compiling(scene, loads=False), ("compilation",), why)


def _lazy_loading(scene: AdviceContext) -> Opportunity | None:
    why = "the driver loads kernels at their first use while the GPU waits"
    extra = ", in calls that load code"
    return None if _is_cold(scene) else _idle_found(scene, _compiling(scene, loads=True), ("compilation",), why, extra)


def _warm_up(scene: AdviceContext) -> Opportunity | None:
    """Host time in long gaps that end at the first use of a kernel name."""
    saves = _total(scene.cold, _length())
    if not saves:
        return None
    return Opportunity(
        saves,
        "host time in gaps of 1 ms or more that end at the first use of a kernel",
        f"{_share(scene, saves)}: what is waited for happens once per process: kernels are loaded, memory is"
        " allocated, libraries start",
        _doing(scene, scene.cold),
        _longest(scene.cold, _length()),
    )


def _pinned_memory(scene: AdviceContext) -> Opportunity | None:
    return _idle_of(scene, ("blocking-copy",), "copies of pageable memory hold the CPU until they are done")


def _cpu_operators(scene: AdviceContext) -> Opportunity | None:
    why = "operators hold the CPU for over 1 ms at a time, without a call to the GPU's runtime, while the GPU waits"
    return _idle_of(scene, ("cpu-operator",), why)


# Kernels


def _attention_kernel(scene: AdviceContext) -> Opportunity | None:
    """Attention written out: what lies between its two products goes through memory."""
    runs = scene.fusions.filter(pl.col("kind") == "attention")
    how = "time of the kernels between the two products, which a fused kernel does on the chip"
    moved = size(_total(runs, "saved_bytes"))
    return _runs_found(
        scene,
        runs,
        how,
        f"the scores of {counted(runs.height, 'attention moves', 'attentions move')} {moved} through memory",
    )


def _fusion(scene: AdviceContext) -> Opportunity | None:
    """Chains whose tensors are known where there are any worth it, else kernels that follow each other."""
    others = union(scene.fusions.filter(pl.col("kind") != "chain"), ["device"])
    chains = _outside(scene.fusions.filter(pl.col("kind") == "chain"), others)
    if _total(chains, "saves_ns") < _worth(scene):
        return _followers(scene, others)
    codes = chains.group_by("code").agg(pl.col("saves_ns").sum()).sort("saves_ns", "code", descending=[True, False])
    return _runs_found(
        scene,
        chains,
        "share of the chains' bytes that only goes from one kernel to the next, of their time",
        f"{counted(chains.height, 'chain writes', 'chains write')} {size(_total(chains, 'saved_bytes') / 2)} to memory that only their next kernel"
        " reads",
        snippet="\n".join(codes.get_column("code").head(3)),
    )


def _outside(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Rows that start in none of some spans."""
    marked = spans.with_columns(pl.lit(True).alias("within"))
    return lookup_at(rows, "start_ns", marked, ["device"], ["within"]).filter(pl.col("within").is_null()).drop("within")


def _followers(scene: AdviceContext, others: pl.DataFrame) -> Opportunity | None:
    """Memory-bound kernels on a stream but the first of each row of them, outside of what other fixes replace."""
    fusible = pl.col("group").is_in(["pointwise", "normalization"]) & (pl.col("bound") == "memory")
    followers = (
        _outside(scene.activities, others)
        .sort("stream", "start_ns")
        .with_columns((fusible & fusible.shift(1).over("stream").fill_null(False)).alias("follows"))
        .filter("follows")
    )
    return _kernels_found(
        scene,
        followers,
        pl.col("duration_ns"),
        "time of every such kernel but the first of its chain: a fused chain moves data once",
        f"{counted(followers.height, 'pointwise or normalization kernel follows', 'pointwise and normalization kernels follow')}"
        " another one on the same stream: each reads and writes all its data again",
        snippet="model = torch.compile(model)  # one pass over memory instead of one per operator",
    )


def _channels_last(scene: AdviceContext) -> Opportunity | None:
    """Kernels that convolution libraries launch to change the layout of images, and to change it back."""
    rows = _called(scene.activities, pl.col("name").str.contains(r"(?i)nchwToNhwc|nhwcToNchw|NCHW2CNHW|CNHW2NCHW"))
    return _kernels_found(
        scene,
        rows,
        pl.col("duration_ns"),
        "all time of the kernels that change the layout",
        f"{counted(rows.height, 'kernel only turns', 'kernels only turn')} images from one layout into the other around"
        " convolutions",
    )


def _thin_products(scene: AdviceContext) -> Opportunity | None:
    """Products and attention that the memory holds: a few rows against all weights, a query against a whole cache."""
    written_out = union(scene.fusions.filter(pl.col("kind") == "attention"), ["device"])
    # In 16 bit, attention of n queries for each key has about n FLOP per byte: many queries read no cache for a few.
    whole = (pl.col("bucket") == "attention") & (pl.col("flop") > thresholds.FEW_QUERIES * pl.col("moved_bytes"))
    thin = (pl.col("bound") == "memory") & (pl.col("group") == "matmul") & ~whole.fill_null(False)
    rows = _outside(scene.activities.filter(thin), written_out)
    return _kernels_found(
        scene,
        rows,
        pl.col("duration_ns") / 2,
        "half the time of memory-bound products and attention: half the bytes for the same work",
        f"{counted(rows.height, 'product or attention kernel reads', 'products and attention kernels read')} much for little"
        " arithmetic",
    )


_TORCH_DTYPES = {"tf32": "bfloat16", "bf16": "bfloat16", "fp16": "float16"}


def _fewer_bytes(scene: AdviceContext) -> Opportunity | None:
    """Memory-bound pointwise and normalization kernels on fp32, where the device computes in 16 bit too."""
    dtype = next((d for d in ("bf16", "fp16") if scene.model and scene.model.peak_flops(d)), None)
    if dtype is None:
        return None
    passes = scene.activities.filter(
        (pl.col("bound") == "memory")
        & pl.col("group").is_in(["pointwise", "normalization"])
        & ~pl.col("bucket").is_in(["optimizer", "loss"])
    )
    name = pl.col("name")
    rows = _called(passes, name.str.contains(r"\bfloat\b") & ~name.str.contains(r"(?i)half|bfloat16|double"))
    return _kernels_found(
        scene,
        rows,
        pl.col("duration_ns") / 2,
        "half the time of memory-bound pointwise and normalization kernels on fp32: half the bytes",
        f"{counted(rows.height, 'memory-bound kernel reads and writes', 'memory-bound kernels read and write')} fp32",
        dtype=dtype,
        torch_dtype=_TORCH_DTYPES[dtype],
    )


def _missed(scene: AdviceContext, *reasons: str) -> pl.DataFrame:
    """Kernels of the scene's regimes that could use matrix units better, for some reasons, with what each can save."""
    bounds = [bound for bound in ("compute", "memory") if _REGIMES[bound] in scene.regimes]
    missed = scene.missed.select("activity_id", "reason", "target_dtype", "saves_ns")
    return scene.activities.filter(pl.col("bound").is_in(bounds)).join(
        missed.filter(pl.col("reason").is_in(reasons)), on="activity_id", how="inner", maintain_order="left"
    )


_REGIMES = {"compute": "compute-bound", "memory": "memory-bandwidth-bound"}


def _out_of_fp32(scene: AdviceContext, *, tf32: bool) -> Opportunity | None:
    """Contractions in fp32, by the type nearest to it in which the device's matrix units are faster."""
    slow = _missed(scene, "fp32").filter((pl.col("target_dtype") == "tf32") == tf32)
    if slow.is_empty():
        return None
    dtype = slow.get_column("target_dtype").item(0)
    return _kernels_found(
        scene,
        slow,
        pl.col("saves_ns"),
        f"time of contractions in fp32 beyond their roof on matrix units in {dtype}, or beyond their share of the ratio of"
        " the peaks where shapes are unknown",
        f"{counted(slow.height, 'contraction')} ran in fp32",
        dtype=dtype,
        torch_dtype=_TORCH_DTYPES[dtype],
    )


def _padding(scene: AdviceContext) -> Opportunity | None:
    """Products that odd sizes keep from matrix units, or from loading whole vectors for them."""
    unknown = scene.activities.filter(pl.col("group") == "matmul", pl.col("flop").is_null())
    narrow = _called(unknown, pl.col("name").str.contains(r"(?i)_align[12](\D|$)")).with_columns(
        (pl.col("duration_ns") / 2).alias("saves_ns")
    )
    known = _missed(scene, "unaligned", "vector-units")
    rows = pl.concat([known, narrow.join(known, on="activity_id", how="anti")], how="diagonal_relaxed")
    return _kernels_found(
        scene,
        rows,
        pl.col("saves_ns"),
        "time of these kernels beyond their roof on matrix units; half of it where FLOP and bytes are not known",
        f"{counted(rows.height, 'contraction uses', 'contractions use')} kernels for sizes or strides that are no multiples of 8 (align1, align2), or"
        " that do without matrix units",
    )


def _low_precision(scene: AdviceContext) -> Opportunity | None:
    """Contractions in 16 bit, on a device that is faster in 8."""
    wide, narrow = (scene.model.peak_flops(d) if scene.model else None for d in ("bf16", "fp8"))
    if wide is None or narrow is None or narrow <= wide:
        return None
    half = pl.col("dtype").is_in(["bf16", "fp16"]) | pl.col("name").str.contains(r"(?i)bf16|fp?16|half|bfloat")
    eight = pl.col("name").str.contains(r"(?i)fp8|f8|e4m3|e5m2|int8|i8|mxfp|e2m1")
    products = scene.activities.filter(pl.col("bound") == "compute", pl.col("bucket").is_in(["matmul", "moe"]))
    rows = _called(products, half.fill_null(False) & ~eight)
    return _kernels_found(
        scene,
        rows,
        pl.col("duration_ns") * (1 - wide / narrow),
        f"time of products in 16 bit, if they reach the peak of fp8: {narrow / wide:.3g} times that of bf16 on this device",
        f"{counted(rows.height, 'product')} ran in 16 bit",
        dtype="fp8",
        snippet="torchao.float8.convert_to_float8_training(model)  # serving: torchao.quantize_, or an fp8 checkpoint",
    )


def _max_autotune(scene: AdviceContext) -> Opportunity | None:
    """Time of compute-bound contractions beyond their roof, but of those that other fixes bring to matrix units."""
    rows = (
        scene.activities.filter(pl.col("bound") == "compute", pl.col("group") == "matmul")
        .join(scene.missed, on="activity_id", how="anti")
        .join(scene.roofs.select("activity_id", "lost_ns", "roof_ns"), on="activity_id")
    )
    reached = _total(rows, "roof_ns") / max(1, _total(rows, "duration_ns"))
    return _kernels_found(
        scene,
        rows,
        pl.col("lost_ns"),
        "time of contractions minus that at the device's peak",
        f"contractions reach {percent(reached)} of what the device can do; 80 % is good",
    )


def _recompute_less(scene: AdviceContext) -> Opportunity | None:
    """Forward work that activation checkpointing does again in the backward pass."""
    rows = scene.activities.filter("recomputed")
    return _kernels_found(
        scene,
        rows,
        pl.col("duration_ns"),
        "all time of kernels that do forward work again",
        f"{counted(rows.height, 'kernel')} in the backward pass did work of the forward pass again (activation"
        " checkpointing)",
    )


def _less_work(scene: AdviceContext) -> Opportunity | None:
    """Half of what compute-bound kernels would take at their roof: the rest of their time better kernels can win."""
    heavy = scene.activities.filter((pl.col("bound") == "compute") & ~pl.col("recomputed").fill_null(False)).join(
        scene.roofs.select("activity_id", "roof_ns"), on="activity_id", how="left", maintain_order="left"
    )
    return _kernels_found(
        scene,
        heavy,
        pl.min_horizontal("duration_ns", pl.coalesce("roof_ns", "duration_ns")) / 2,
        "half the time that compute-bound kernels take at the device's peak, if half the work is done; of all their time"
        " where their work is not known; kernels that repeat other work left out",
        f"{counted(heavy.height, 'kernel is', 'kernels are')} limited by arithmetic: what remains of that at the device's peak"
        " shortens only with less of it, or on a faster device",
    )


# Communication


def _part_of(scene: AdviceContext, part: str, why: str) -> Opportunity | None:
    """What a part of the partition asks for: it saves at most all time in which nothing else ran."""
    saves = scene.verdict.parts_ns.get(part, 0)
    rows = scene.activities.filter(pl.col("bound") == part)
    if saves == 0 or rows.is_empty():
        return None
    return Opportunity(
        saves,
        f"time in which {part} ran and no kernel computed",
        f"{_share(scene, saves)}: {why}",
        _operators(rows),
        _longest(rows, pl.col("duration_ns")),
    )


def _overlap(scene: AdviceContext) -> Opportunity | None:
    """Collectives that run alone, with those of most exposed time."""
    found = _part_of(scene, "communication", "collectives run while nothing else does")
    exposed = scene.collectives.filter(pl.col("exposed_ns") > 0).sort("exposed_ns", descending=True)
    if found is None or exposed.is_empty():
        return found
    where = _most(exposed, pl.coalesce("collective", "name"), pl.col("exposed_ns"))
    return replace(found, where=where, place=_longest(exposed.head(1), pl.col("duration_ns")))


def _gradient_buckets(scene: AdviceContext) -> Opportunity | None:
    """Exposed collectives of gradients whose messages are too small to be worth their latency."""
    kinds = ["all_reduce", "reduce_scatter", "all_gather"]
    rows = scene.collectives.filter(
        pl.col("collective").is_in(kinds) & (pl.col("message_bytes") < thresholds.SMALL_MESSAGE_BYTES)
    )
    if rows.is_empty():
        return None
    typical = rows.get_column("message_bytes").median()
    return Opportunity(
        min(_total(rows, "exposed_ns"), _held(scene, rows.with_columns(_end()), ["communication"])),
        f"exposed time of collectives under {thresholds.SMALL_MESSAGE_BYTES >> 20} MiB",
        f"{counted(rows.height, 'collective moves', 'collectives move')} {size(typical)} in the median: that takes longer to"  # type: ignore[arg-type]
        " start than to send",
        _most(rows, pl.col("collective"), pl.col("exposed_ns")),
        _longest(rows, pl.col("duration_ns")),
    )


def _copies(scene: AdviceContext) -> Opportunity | None:
    copies = scene.activities.filter(pl.col("bound") == "copy")
    pageable = _total(_called(copies, pl.col("name").str.contains("(?i)pageable")), "duration_ns")
    share = percent(pageable / max(1, _total(copies, "duration_ns")))
    told = f"; {share} of the copies' time is from or to pageable memory" if pageable else ""
    return _part_of(scene, "copy", f"the device only copies{told}")


def _small_copies(scene: AdviceContext) -> Opportunity | None:
    """Copies that take longer to start than to move, several in a step."""
    is_copy = (pl.col("kind") == "memcpy") & (pl.col("bound") == "copy")
    small = scene.activities.filter(is_copy & (pl.col("bytes") < thresholds.SMALL_COPY_BYTES))
    if small.height <= scene.steps:
        return None
    spans = scene.activities.select("device", "start_ns", _end(), "bound")
    return _kernels_found(
        scene,
        with_exposed(small, spans.filter(pl.col("bound") != "copy")),
        pl.col("exposed_ns"),
        f"time of copies under {thresholds.SMALL_COPY_BYTES >> 10} KiB in which nothing else ran",
        f"{counted(small.height, 'copy', 'copies')} between host and device moved {size(small.get_column('bytes').median())} in the median:"  # type: ignore[arg-type]
        " that takes longer to start than to move",
    )


def _dependencies(scene: AdviceContext) -> Opportunity | None:
    why = "work was queued and the device still idled: it waited for another stream or a peer, not for the CPU"
    return _idle_of(scene, ("device-wait",), why)


_RULES: Mapping[str, Callable[[AdviceContext], Opportunity | None]] = {
    "cuda-graphs": _cuda_graphs,
    "bigger-batch": _bigger_batch,
    "fused-optimizer": _fused_optimizer,
    "set-to-none": _set_to_none,
    "garbage-collection": _garbage_collection,
    "synchronization": _synchronization,
    "data-loading": _data_loading,
    "allocator": _allocator,
    "recompilation": _recompilation,
    "lazy-loading": _lazy_loading,
    "warm-up": _warm_up,
    "pinned-memory": _pinned_memory,
    "cpu-operators": _cpu_operators,
    "attention-kernel": _attention_kernel,
    "fusion": _fusion,
    "channels-last": _channels_last,
    "fewer-bytes": _fewer_bytes,
    "thin-products": _thin_products,
    "tensor-cores": lambda scene: _out_of_fp32(scene, tf32=False),
    "tf32": lambda scene: _out_of_fp32(scene, tf32=True),
    "padding": _padding,
    "low-precision": _low_precision,
    "max-autotune": _max_autotune,
    "recompute-less": _recompute_less,
    "less-work": _less_work,
    "overlap": _overlap,
    "gradient-buckets": _gradient_buckets,
    "copies": _copies,
    "small-copies": _small_copies,
    "dependencies": _dependencies,
}
RULES = tuple(_RULES)
"""Ids of the fixes that have a rule: all of the catalogue."""
