"""Define the rules for work of the CPU: while the device waits, and in a run on the CPU alone."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from string import Template

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from trace_analyzer import thresholds
from trace_analyzer.advice.opportunity import (
    Opportunity,
    idle_of,
    idle_opportunity,
    longest,
    members_of,
    merged,
    places_of,
    responsible_code,
    share_of_window,
    total,
    worth_ns,
)
from trace_analyzer.advice.overhead import cuda_graphs
from trace_analyzer.advice.window_context import (
    BY_INDUCTOR,
    BY_TORCHSCRIPT,
    COMPILED,
    GRADIENTS,
    OF_SCRIPTED,
    AdviceContext,
)
from trace_analyzer.analyses.cpu import CpuRun
from trace_analyzer.catalog import event_names
from trace_analyzer.catalog.fixes import (
    FUSED,
    OF_CPU,
    for_compiled,
    optimizer_in_few_launches,
    page_of,
    pages,
    with_remark,
)
from trace_analyzer.frames.intervals import LENGTH_NS, clip
from trace_analyzer.report import Advice, Saving
from trace_analyzer.run_metadata import RunMetadata
from trace_analyzer.units import NS_PER_S, count, counted, duration, flops, percent

_PART_OF_CODE = 0.1
"""Least share of the idle time for which the advice shows code."""
_FACTORY = r"^aten::(arange|empty|eye|full|linspace|logspace|ones|range|scalar_tensor|tril_indices|triu_indices|zeros)(_like)?$"
"""Operators that make tensors, on the CPU without ``device=``; the group is their name in torch."""


def cpu_operators(context: AdviceContext) -> Opportunity | None:
    """Propose less CPU computation: idle time in long operators, except those that prepare data.

    An operator that launches work afterwards does not compute on the CPU: it takes long to prepare its launch.
    """
    idle = context.idle.filter(pl.col("cause") == "cpu-operator", context.prepared.is_null())
    before_launch, idle_ns = idle.filter(context.is_launching), total(idle, LENGTH_NS)
    why = "single operators keep the CPU busy for over 1 ms without a runtime call, while the GPU waits"
    if before_launch.height:
        share = percent(total(before_launch, LENGTH_NS) / max(1, idle_ns))
        why += f"; {share} of it in GPU operators before their launch"
    regions = context.host.texts(before_launch.get_column("event_id")).cast(pl.String).str.contains(COMPILED)
    compiled_ns, launch_ns = (total(before_launch.filter(rows), LENGTH_NS) for rows in (regions, ~regions))
    others = idle.filter(~context.is_launching.fill_null(False))
    events = others.get_column("event_id")
    factory = context.host.texts(context.around.outermost_operators(pl.col("name").str.contains(_FACTORY))[events])
    made = others.with_columns(factory.cast(pl.String).str.extract(_FACTORY).alias("factory")).drop_nulls("factory")
    made_ns, rest_ns = total(made, LENGTH_NS), idle_ns - compiled_ns - launch_ns - total(made, LENGTH_NS)
    most = made.group_by("factory").agg(LENGTH_NS.sum().alias("ns")).sort("ns", "factory", descending=[True, False])
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
    rows = context.idle.with_columns(context.prepared).lazy()
    idle = rows.filter(pl.col("cause").is_in(causes), pl.col("prepared").is_not_null())
    sums = idle.group_by("prepared").agg(LENGTH_NS.sum().alias("ns"))
    by_kind = sums.sort("ns", "prepared", descending=[True, False]).collect()
    kinds = [kind for kind, ns in by_kind.iter_rows() if ns >= _PART_OF_CODE * total(by_kind, "ns")]
    served = " in inference" if context.program == "inference" else ""
    cases = tuple(f"{kind}{served if kind != 'random numbers' else ''}" for kind in kinds)
    why = f"the loop prepares {' and '.join(kinds)} on the CPU while the GPU waits"
    opportunity = idle_opportunity(context, idle, causes, why, " in functions that prepare data")
    return opportunity and replace(opportunity, case=cases)


def record_stacks(context: AdviceContext) -> Opportunity | None:
    """Ask for stacks where the host recorded nothing for a large share of idle time: it saves nothing by itself.

    It is first where this is the verdict's cause, or most of the idle time, or where no other advice has a known estimate.
    """
    idle = context.idle.lazy().filter(pl.col("cause") == "host-unknown")
    ns, all_ns = total(idle, LENGTH_NS), total(context.idle, LENGTH_NS)
    if ns < max(1, thresholds.UNNAMED_RATIO * all_ns) or "overhead-bound" not in context.regimes:
        return None
    places = places_of(idle)
    is_stacked = (context.host.names.get_column("kind") == "python").any() or not context.around.stacks.is_empty()
    case = "ranges" if context.profiler is not None else "stacks" if is_stacked else ""
    return Opportunity(
        ns,
        "idle time in which the host recorded nothing; not a saving: it shows what could be one",
        f"{percent(ns / all_ns)} of the idle time is unrecorded host time, {share_of_window(context, ns)}: the launching thread recorded"
        " nothing then, often plain Python",
        partial(responsible_code, context, idle),
        longest(places, LENGTH_NS),
        members=places,
        is_saving=False,
        is_first=context.verdict.cause == "host-unknown" or 2 * ns > all_ns,
        is_first_of_bounds=True,
        case=case,
        values={"what": "labels" if case == "stacks" else "stacks"},
    )


def python_work(context: AdviceContext) -> Opportunity | None:
    """Propose moving Python out of the loop: idle time in stretches of it without an operator or a call.

    Where no graph can take the launches around it, all that is outside of modules counts.
    """
    causes = ("python",)
    idle = context.idle.filter(pl.col("cause").is_in(causes), context.prepared.is_null())
    if total(idle, LENGTH_NS) < worth_ns(context):
        return None
    between = idle.clear()
    if cuda_graphs(context) is None:
        outside = context.around.modules(idle.get_column("event_id")).is_null()
        between, idle = idle.filter(outside), idle.filter(~outside)
    idle = pl.concat([between, clip(idle, context.silences, [])])
    why = "the launching thread is in Python for 1 ms or more at a time, without an operator or a launch"
    extra = " in stretches of 1 ms or more without an operator or a call"
    if between.height:
        why, extra = (
            "the launching thread is in Python outside of modules, where no graph takes it",
            f"{extra}, and outside of modules",
        )
    return idle_opportunity(context, idle, causes, why, extra)


_WORKERS = "_MultiProcessingDataLoaderIter"
_PIPELINES = {event_names.ONE_WORKER: "chunk pipeline", r"transformers/pipelines/\w+\.py\(": "transformers pipeline"}
"""Frames of Hugging Face pipelines -> case of code for them, the first that matches: a pipeline makes its own DataLoader."""


def data_loading(context: AdviceContext) -> Opportunity | None:
    """Propose faster data loading: idle time in which the training loop waits for the data loader."""
    names = context.host.names.get_column("name")
    parallel = bool(names.str.contains(_WORKERS, literal=True).any())
    alone = bool(names.str.contains("_SingleProcessDataLoaderIter", literal=True).any())
    how = (
        " (its workers do not keep up)"
        if parallel
        else " (num_workers=0: the launching process loads it)"
        if alone
        else ""
    )
    opportunity = idle_of(
        context, ("data-loading",), f"the loop waits in the data loader while the GPU has nothing queued{how}"
    )
    cases = {**_PIPELINES, event_names.OF_DATALOADER: ""}
    case = next((case for name, case in cases.items() if names.str.contains(name).any()), "another loader")
    return opportunity and replace(
        opportunity,
        values={"workers": "2 * workers"} if parallel else {},
        case=case,
        options={"workers": 1} if case in ("chunk pipeline", "another loader") else {},
    )


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
        "the window, less all but one of the calls for each input",
        f"the pipeline prepares and runs each input {count(each)} times, once per label",
        lambda steps: str(runs.item(0, "name")),
        longest(work, LENGTH_NS),
        members=work,
        case=task,
    )


_ZERO_SHOT = r"transformers/pipelines/zero_shot_(classification|object_detection)\.py\(\d+\): (__call__|_forward)$"
"""Frames of Hugging Face pipelines that run a model once per label; the groups are the task and the function."""


class CpuFix(Struct, frozen=True):
    """The page of a fix: its texts, and which time of the main thread it concerns.

    This is time in ``parts`` of table `cpu_time` (of ``python``, that in PyTorch's own calls is ``python-of-torch``), in
    ``phases`` of a step (all without), in operators whose first operand has so many ``bits`` (any without; 0 is unknown), in events
    whose name matches ``only``, and not ``unless`` (Rust regex), and only if its matmuls reach under ``slower_than`` FLOP/s. It is
    worth saying from a share ``least`` of the window on. The change ``saves`` at most all of it; one that only shows what to
    change ranks by its time, or, as a ``last_resort``, behind all others. With ``keeps_longest``, the longest operator of each chain stays.
    """

    id: str
    title: str
    code: str
    sections: Mapping[str, str]
    cases: Mapping[str, Mapping[str, str]]
    parts: list[str]
    least: float
    saves: bool
    phases: list[str] | None = None
    bits: list[int] | None = None
    only: str = ""
    unless: str = "^$"
    slower_than: float | None = None
    keeps_longest: bool = False
    last_resort: bool = False


def cpu_advice(run: CpuRun, names: pl.DataFrame, settings: RunMetadata | None) -> tuple[Advice, ...]:
    """Return the fixes whose time is worth it, largest saving first; ``names`` are those of the trace's host events, and
    ``settings`` what its recording states.
    """
    name = names.get_column("name").cast(pl.String)
    own = run.pieces.get_column("name").cast(pl.String)
    shown = {
        "cells": name.str.contains(_CELLS).any(),
        "one thread": settings is not None and settings.cpu_threads == 1,
        "layers of cells": name.is_in(_LAYERS_OF_CELLS).any(),
        "numbers in a loop": _reads_numbers(run),
        "training": names.get_column("phase").is_in(GRADIENTS).any(),
        "convolutions": name.str.contains("convolution").any(),
        "Adam": name.str.extract(event_names.OPTIMIZER_STEP).str.contains("Adam").any(),
        "DDP": name.str.contains(event_names.DDP).any(),
        "workers": name.str.contains("_MultiProcessingDataLoaderIter").any(),
        "another loader": not name.str.contains(event_names.OF_DATALOADER).any(),
        "numbers": _leading(run, "python") in ("tensor()", "as_tensor()"),
        "masks": 2 * own.is_in(["aten::nonzero", "aten::masked_select"]).sum() > own.is_in(["aten::index"]).sum(),
        "attention": _leading(run, "normalization") == "aten::_softmax" and name.is_in(["aten::bmm"]).any(),
    }
    cases = [case for case, is_shown in shown.items() if is_shown]
    classes = own.str.extract(event_names.OPTIMIZER_STEP).drop_nulls()
    updates = own.filter(run.pieces.get_column("phase") == "optimizer")
    optimizers = (
        [] if updates.str.contains(_ALL_FUSED_OR_NONE).any() else classes.unique(maintain_order=True).to_list() or [""]
    )
    of_torch = (pl.col("part") == "python") & pl.col("in_torch")
    # Without a gradient of the whole table, the optimizer neither passes over it nor frees it.
    of_update = (pl.col("phase") == "optimizer") & (
        (pl.col("part") == "pointwise") | pl.col("name").str.contains(_ZERO_GRAD)
    )
    part = (
        pl.when(pl.col("phase").is_in(["forward", "backward"]) & name.is_in([_SEARCH_FOR_NAN]).any()).then(pl.lit("checked"))
        .when("of_table").then(pl.lit("table-gradient"))
        .when(of_update & pl.col("of_table").any()).then(pl.lit("table-update"))
        .when((pl.col("name") == "aten::index_select") & name.is_in(["aten::embedding"]).any()).then(pl.lit("table-rows"))
        .when(of_torch).then(pl.lit("python-of-torch"))
        .otherwise("part")
    )  # fmt: skip
    run = replace(run, pieces=run.pieces.with_columns(part.alias("part")))
    of_page = ("id", "title", "code", "sections", "cases", "last_resort", *OF_CPU)
    fixes = (
        CpuFix(**{key: page[key] for key in of_page if key in page}) for page in pages().values() if "parts" in page
    )
    advice = (_advice(fix, run, cases, optimizers) for fix in fixes)
    same_code: dict[str, list[tuple[tuple[bool, float], Advice]]] = {}
    for pair in sorted(filter(None, advice), key=lambda pair: pair[0]):
        same_code.setdefault(pair[1].code.partition("\n")[0].partition("  #")[0], []).append(pair)
    items = (item for _, item in sorted(map(_together, same_code.values()), key=lambda pair: pair[0]))
    if name.str.contains(BY_INDUCTOR).any():
        return tuple(replace(item, code=for_compiled(item.code)) for item in items)
    is_scripted = name.str.contains(BY_TORCHSCRIPT).any()
    return tuple(replace(item, code=with_remark(item.code, OF_SCRIPTED)) if is_scripted else item for item in items)


def _reads_numbers(run: CpuRun) -> bool:
    """Whether Python reads a number of a tensor every few operators, but for an optimizer's counters and a loader's samples."""
    is_left_out = (pl.col("phase").fill_null("") == "optimizer") | (pl.col("part") == "data-loading")
    operators = run.pieces.filter(pl.col("name").str.starts_with("aten::"), ~is_left_out)
    names = operators.unique("event_id").get_column("name")
    return 0 < names.len() <= _OPERATORS_A_NUMBER * names.is_in(["aten::_local_scalar_dense"]).sum()


def _leading(run: CpuRun, part: str) -> str | None:
    """Return the function or operator that holds most of a part of the main thread's time."""
    own = run.pieces.filter(pl.col("part") == part).group_by("name").agg(LENGTH_NS.sum().alias("time_ns"))
    return own.sort("time_ns", "name").item(-1, "name") if own.height else None


_CELLS = r"^aten::(lstm|gru|rnn_(tanh|relu))_cell$"
_LAYERS_OF_CELLS = ["aten::gru", "aten::rnn_relu", "aten::rnn_tanh"]
"""Recurrent layers that call operators for each time step, and that Dynamo does not compile (`torch._dynamo.config.allow_rnn`)."""
_SEARCH_FOR_NAN = "aten::_is_any_true"
"""What autograd's anomaly detection asks of each gradient (torch/csrc/autograd/engine.cpp), and no function of PyTorch's Python."""
_ZERO_GRAD = r"^Optimizer\.zero_grad"
_UPDATES = ("pointwise", "table-update")
"""Parts of an optimizer's passes over the parameters."""
_OPERATORS_A_NUMBER = 50
"""A pass through a small model and its loss, whose value is logged, calls more operators."""
_ALL_FUSED_OR_NONE = rf"^aten::_fused_|{event_names.LAYOUT_ASKED}"
"""Operators of an optimizer that is fused, or that takes sparse gradients."""
_MOST_WORKERS = 16
"""Where more would be needed, each sample has to take less work."""
_ATTENTION = ["aten::_softmax", "aten::bmm"]
"""What attention that is written out calls, beside pointwise operators."""
_LIGHT = ("dispatch", "tiny-operators", "python", "python-of-torch", "host-unknown")
"""Parts of calls, which split no chain of operators that can be fused."""


def _longest_ns(pieces: pl.DataFrame, concerned: pl.Expr, fused: list[str]) -> int:
    """Return the time of the longest operator of each chain, ns; of chains with an operator named in ``fused`` none stays.

    A chain ends where another operator or loading runs: what is on both sides of a matmul is not one pass over memory.
    """
    ends = ~concerned & ~pl.col("part").is_in(_LIGHT)
    chains = pieces.sort("start_ns").with_columns(ends.cum_sum().alias("chain"))
    runs = (
        chains.filter(concerned)
        .filter(~pl.col("name").fill_null("").is_in(fused).any().over("chain"))
        .group_by("chain", "event_id")
        .agg(LENGTH_NS.sum().alias("ns"))
    )
    return total(runs.group_by("chain").agg(pl.col("ns").max()), "ns")


def _one_pass_ns(pieces: pl.DataFrame) -> int:
    """Return the time of an optimizer's longest pass over the parameters, ns: fused, an update still makes one.

    The operator that is called least makes one pass, the others as many more as they are called more often.
    """
    names = pieces.filter(pl.col("part").is_in(_UPDATES)).group_by("name")
    sums = names.agg(pl.col("time_ns").sum(), pl.col("event_id").n_unique().alias("runs"))
    return int(sums.select((pl.col("time_ns") * pl.col("runs").min() / pl.col("runs")).max().fill_null(0)).item())


def _flop_per_s(pieces: pl.DataFrame) -> float | None:
    """Return what the operators of known FLOP reach together; None where there are none."""
    known = pieces.filter(pl.col("flop").is_not_null())
    flop = float(known.unique("event_id").get_column("flop").sum())
    return flop / total(known, LENGTH_NS) * NS_PER_S if flop else None


def _advice(
    fix: CpuFix, run: CpuRun, cases: Sequence[str], optimizers: Sequence[str]
) -> tuple[tuple[bool, float], Advice] | None:
    """Return the rank of a fix and the advice; None where too little time is concerned.

    ``optimizers`` are the classes of the trace's optimizers, "" where it names none; none where they cannot be fused further.
    """
    parts, fuses = {*fix.parts}, fix.phases == ["optimizer"]
    if fuses and not optimizers:
        return None
    if fuses and not {"", *FUSED}.issuperset(optimizers):
        # Without a fused form the arithmetic stays: the CPU computes each parameter in turn, however it is called.
        parts -= {*_UPDATES}
    name = pl.col("name").fill_null("")
    concerned = pl.col("part").is_in(parts) & name.str.contains(fix.only) & ~name.str.contains(fix.unless)
    is_attention = "attention" in cases and "attention" in fix.cases
    if is_attention:  # its matmuls skip what a mask hides, and keep their result in the cache
        concerned |= name.is_in(_ATTENTION)
    if fix.phases is not None:
        concerned &= pl.col("phase").fill_null("").is_in(fix.phases)
    if fix.bits is not None:
        concerned &= pl.col("bits").is_in(fix.bits)
    pieces = run.pieces.filter(concerned).with_columns(LENGTH_NS.alias("time_ns")).sort("time_ns", descending=True)
    time = total(pieces, "time_ns")
    silent = run.window_ns - total(run.pieces, LENGTH_NS)
    time += silent if "host-unknown" in fix.parts and "" in (fix.phases or [""]) else 0
    kept = _longest_ns(run.pieces, concerned, _ATTENTION if is_attention else []) if fix.keeps_longest else 0
    kept += _one_pass_ns(pieces) if fuses else 0
    if time <= kept or time - kept < fix.least * run.window_ns:
        return None
    rate = _flop_per_s(pieces)
    if fix.slower_than is not None and (rate is None or rate >= fix.slower_than):
        return None
    saved, steps = time - kept if fix.saves else 0, max(1, run.steps)
    reached = f"; its matmuls reach {flops(rate)}" if fix.slower_than is not None and rate else ""
    # As many workers as load a batch while the main thread does all else.
    workers = min(max(1, math.ceil(time / max(1, run.window_ns - time))), _MOST_WORKERS)
    each = f", {duration(time / steps)} a step" if run.steps else ""
    events = round(pieces.get_column("event_id").n_unique() / steps)
    within = f", in {counted(events, 'event')}" if events else ""
    named = pieces.group_by("name").agg(pl.col("time_ns").sum()).sort("time_ns", "name", descending=[True, False])
    named = named.filter(~pl.col("name").str.contains(event_names.PROFILER_STEP_NAME))
    where = [f"{name} ({duration(ns / steps)})" for name, ns in named.head(3).iter_rows()]
    start, end = pieces.select("start_ns", "end_ns").row(0) if pieces.height else (None, None)
    return (fix.last_resort, -(saved or time)), Advice(
        title=fix.title,
        why=f"{percent(time / run.window_ns)} of the main thread's time{each}{within}{reached}",
        where=", ".join(where),
        code=Template(next((fix.cases[case]["code"] for case in cases if case in fix.cases), fix.code)).substitute(
            optimizer="\n".join(map(optimizer_in_few_launches, optimizers)), workers=workers
        ),
        saves_ns_at_most=saved,
        how_bound=_within_a_sentence(fix.sections["Bound"]),
        saving=Saving(saved / steps, saved / run.window_ns, saved / steps, saved / run.window_ns, run.steps > 0),
        start_ns=start,
        end_ns=end,
        id=fix.id,
        docs=page_of(fix.id),
    )


def _together(ranked: Sequence[tuple[tuple[bool, float], Advice]]) -> tuple[tuple[bool, float], Advice]:
    """Merge advice on different time into the first, with the reasons, places, savings and ranks of all."""
    items = [item for _, item in ranked]
    ns, ratio, most_ns, most_ratio = (
        sum(getattr(item.saving, figure) for item in items) for figure in ("ns", "ratio", "at_most_ns", "at_most_ratio")
    )
    return (ranked[0][0][0], sum(rank for (_, rank), _ in ranked)), merged(
        items,
        where="; ".join(item.where for item in items),
        saves_ns_at_most=sum(item.saves_ns_at_most for item in items),
        saving=Saving(ns, ratio, most_ns, most_ratio, items[0].saving.has_steps),
    )


def _within_a_sentence(text: str) -> str:
    return " ".join(f"{text[:1].lower()}{text[1:]}".rstrip(".").split())
