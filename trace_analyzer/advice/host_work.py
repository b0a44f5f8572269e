"""Define the rules for work of the CPU while the device waits."""

from dataclasses import replace
from functools import partial

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.advice.opportunity import (
    Opportunity,
    idle_opportunity,
    length_ns,
    longest,
    members_of,
    responsible_code,
    share_of_window,
    total,
)
from trace_analyzer.advice.window_context import COMPILED, AdviceContext
from trace_analyzer.catalog.event_names import preparation_of
from trace_analyzer.frames.intervals import clip
from trace_analyzer.units import count, percent


def _preparations(context: AdviceContext, idle: pl.DataFrame) -> pl.Series:
    """Return the data that the CPU prepares in each idle interval (``prepared``), except in launching operators."""
    events = idle.get_column("event_id")
    by_event = context.host.each(preparation_of(pl.col("name")), events)
    function = pl.col("python_function").cast(pl.String)
    by_function = context.blamed.codes.select(preparation_of(function)).to_series()[idle.get_column("code")]
    prepared = pl.DataFrame([by_event.alias("by_event"), by_function.alias("by_function"), events.alias("event_id")])
    computes = ~context.is_launching.fill_null(False)
    return prepared.select(pl.when(computes).then(pl.coalesce("by_event", "by_function")).alias("prepared")).to_series()


_PART_OF_CODE = 0.1
"""Least share of the idle time for which the advice shows code."""
_FACTORY = r"^aten::(arange|empty|eye|full|linspace|logspace|ones|range|scalar_tensor|tril_indices|triu_indices|zeros)(_like)?$"
"""Operators that make tensors, on the CPU without ``device=``; the group is their name in torch."""


def cpu_operators(context: AdviceContext) -> Opportunity | None:
    """Propose less CPU computation: idle time in long operators, except those that prepare data.

    An operator that launches work afterwards does not compute on the CPU: it takes long to prepare its launch.
    """
    idle = context.idle.filter(pl.col("cause") == "cpu-operator")
    idle = idle.filter(_preparations(context, idle).is_null())
    before_launch, idle_ns = idle.filter(context.is_launching), total(idle, length_ns())
    why = "single operators keep the CPU busy for over 1 ms without a runtime call, while the GPU waits"
    if before_launch.height:
        share = percent(total(before_launch, length_ns()) / max(1, idle_ns))
        why += f"; {share} of it in GPU operators before their launch"
    regions = context.host.texts(before_launch.get_column("event_id")).cast(pl.String).str.contains(COMPILED)
    compiled_ns, launch_ns = (total(before_launch.filter(rows), length_ns()) for rows in (regions, ~regions))
    others = idle.filter(~context.is_launching.fill_null(False))
    events = others.get_column("event_id")
    factory = context.host.texts(context.around.outermost_operators(pl.col("name").str.contains(_FACTORY))[events])
    made = others.with_columns(factory.cast(pl.String).str.extract(_FACTORY).alias("factory")).drop_nulls("factory")
    made_ns, rest_ns = total(made, length_ns()), idle_ns - compiled_ns - launch_ns - total(made, length_ns())
    most = made.group_by("factory").agg(length_ns().sum().alias("ns")).sort("ns", "factory", descending=[True, False])
    cases = (
        (compiled_ns, "compiled region"),
        (made_ns, "made on the CPU"),
        (rest_ns, "computed on the CPU"),
        (launch_ns, "TorchScript" if context.is_scripted else "before its launch"),
    )
    relevant = tuple(case for ns, case in sorted(cases, reverse=True) if ns >= _PART_OF_CODE * idle_ns)
    factory_name = most.item(0, "factory") if most.height else ""
    opportunity = idle_opportunity(context, idle, ("cpu-operator",), why)
    return opportunity and replace(opportunity, values={"factory": factory_name}, case=relevant)


def cpu_preparation(context: AdviceContext) -> Opportunity | None:
    """Propose moving preparation out of the loop: idle time in which the CPU makes random numbers, tokens or images."""
    causes = ("cpu-operator", "python")
    idle = context.idle.filter(pl.col("cause").is_in(causes))
    idle = idle.with_columns(_preparations(context, idle)).drop_nulls("prepared")
    by_kind = (
        idle.group_by("prepared").agg(length_ns().sum().alias("ns")).sort("ns", "prepared", descending=[True, False])
    )
    kinds = [kind for kind, ns in by_kind.iter_rows() if ns >= _PART_OF_CODE * total(idle, length_ns())]
    served = " in inference" if context.program == "inference" else ""
    cases = tuple(f"{kind}{served if kind != 'random numbers' else ''}" for kind in kinds)
    why = f"the loop prepares {' and '.join(kinds)} on the CPU while the GPU waits"
    opportunity = idle_opportunity(context, idle.drop("prepared"), causes, why, " in functions that prepare data")
    return opportunity and replace(opportunity, case=cases)


def record_stacks(context: AdviceContext) -> Opportunity | None:
    """Ask for stacks where the host recorded nothing for a large share of idle time: it saves nothing by itself."""
    idle = context.idle.filter(pl.col("cause") == "host-unknown")
    ns, all_ns = total(idle, length_ns()), total(context.idle, length_ns())
    if ns < max(1, thresholds.UNNAMED_RATIO * all_ns):
        return None
    return Opportunity(
        ns,
        "idle time in which the host recorded nothing; not a saving: it shows what could be one",
        f"{percent(ns / all_ns)} of the idle time has no name, {share_of_window(context, ns)}: the launching thread recorded"
        " nothing then, often plain Python",
        partial(responsible_code, context, idle),
        longest(idle, length_ns()),
        members=members_of(idle),
        is_saving=False,
        case="ranges"
        if context.profiler is not None
        else "stacks"
        if (context.host.names.get_column("kind") == "python").any()
        else "",
    )


def python_work(context: AdviceContext) -> Opportunity | None:
    """Propose moving Python out of the loop: idle time in stretches of it without an operator or a call."""
    causes = ("python",)
    idle = context.idle.filter(pl.col("cause").is_in(causes))
    idle = clip(idle.filter(_preparations(context, idle).is_null()), context.silences, ["device"])
    why = "the launching thread is in Python for 1 ms or more at a time, without an operator or a launch"
    return idle_opportunity(context, idle, causes, why, " in stretches of 1 ms or more without an operator or a call")


def labels_at_once(context: AdviceContext) -> Opportunity | None:
    """Propose one call for all labels of an input, where a zero-shot pipeline makes one for each."""
    frames = context.host.those((pl.col("kind") == "python") & pl.col("name").str.contains(_ZERO_SHOT))
    function = pl.col("name").str.extract(_ZERO_SHOT, 2)
    calls, runs = (frames.filter(function == name) for name in ("__call__", "_forward"))
    if calls.is_empty() or runs.height < 2 * calls.height:
        return None
    each = runs.height / calls.height
    work = pl.concat([members_of(context.busy_parts), members_of(context.idle)])
    task = str(runs.select(pl.col("name").str.extract(_ZERO_SHOT, 1)).item(0, 0))
    return Opportunity(
        round(context.window_ns * (1 - 1 / each)),
        "the window without one of its calls per label",
        f"the pipeline prepares and runs each input {count(each)} times, once per label",
        lambda steps: str(runs.item(0, "name")),
        longest(work, length_ns()),
        members=work,
        case=task,
    )


_ZERO_SHOT = r"transformers/pipelines/zero_shot_(classification|object_detection)\.py\(\d+\): (__call__|_forward)$"
"""Frames of Hugging Face pipelines that run a model once per label; the groups are the task and the function."""
