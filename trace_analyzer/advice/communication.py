"""Define the rules for collectives, copies, casts, waits between streams, and kernels with unknown work."""

from collections.abc import Sequence
from functools import partial
from math import inf

import polars as pl
from msgspec.structs import replace

from trace_analyzer import thresholds
from trace_analyzer.advice.opportunity import (
    ANY_COPY,
    KERNEL,
    OF_PIPELINE,
    Opportunity,
    by_a_pipeline,
    combined,
    copies_of,
    for_results,
    held_ns,
    idle_of,
    idle_opportunity,
    in_a_step,
    kernel_opportunity,
    kernel_word,
    largest_names,
    largest_operators,
    launched_within,
    longest,
    members_of,
    profiled,
    share_of_window,
    total,
    where_called,
)
from trace_analyzer.advice.window_context import BY_INDUCTOR, COMPILED, AdviceContext
from trace_analyzer.analyses.communication import with_exposed
from trace_analyzer.analyses.tensor_cores import mostly_narrow
from trace_analyzer.catalog.devices import interconnects_of
from trace_analyzer.catalog.event_names import DDP, FROM_HOST, TO_HOST, TO_PEER, WITHIN_DEVICE, copy_direction
from trace_analyzer.frames.intervals import END_NS, LENGTH_NS
from trace_analyzer.frames.lookups import lookup
from trace_analyzer.replay.kernel_changes import BUCKET_BYTES, BUCKETED
from trace_analyzer.report.summaries import judged_parts
from trace_analyzer.units import NS_PER_S, bandwidth, percent, size

_COMPUTES = ("compute", "memory", "latency", "other")
"""Parts of the window in which kernels compute."""


def _part_of(context: AdviceContext, part: str, hides: Sequence[str], why: str) -> Opportunity | None:
    """Return the opportunity to hide a part of the window behind other work.

    The saving is at most all of it, and at most as much as work of parts ``hides`` can hide.
    """
    rows = context.within.activities.filter(pl.col("bound") == part)
    if rows.is_empty():
        return None
    parts = judged_parts(context.verdict)
    hiding_ns = held_ns(context, rows, hides)
    saves = min(parts.get(part, 0), sum(parts.get(other, 0) for other in hides) - hiding_ns)
    if saves <= 0:
        return None
    what = "the other work" if saves < parts[part] else f"{part}"
    return Opportunity(
        saves,
        f"the shorter of two times: {part} that runs alone, and other work that hides none of it; here {what}",
        f"{share_of_window(context, parts[part])}: {why}",
        partial(largest_operators, rows),
        longest(rows, pl.col("duration_ns")),
        members=members_of(rows),
    )


def _waiting(context: AdviceContext, ns: float) -> str:
    """Write how much of a time of collectives may be waiting for other ranks; "" in a job of one."""
    if not context.peer_wait_ratio:
        return ""
    waits = share_of_window(context, ns * context.peer_wait_ratio)
    return f"; up to {waits} may be waiting for other ranks, which analyze ranks FOLDER tells"


def overlap(context: AdviceContext) -> Opportunity | None:
    """Propose overlapping exposed collectives, and name those with most exposed time."""
    opportunity = _part_of(context, "communication", _COMPUTES, "collectives run while nothing else does")
    exposed = context.within.collectives.filter(pl.col("exposed_ns") > 0).sort("exposed_ns", descending=True)
    if opportunity is None or exposed.is_empty():
        return opportunity
    where = partial(largest_names, exposed, pl.coalesce("collective", KERNEL), pl.col("exposed_ns"))
    first, case = where().partition(" ")[0], _split_by(context, exposed)
    if not case.startswith("pipeline"):
        case = _OF_COLLECTIVE.get(first, case)
    place = longest(exposed.head(1), pl.col("duration_ns"))
    why = opportunity.why + _waiting(context, judged_parts(context.verdict)["communication"])
    return replace(opportunity, why=why, where=where, place=place, case=case)


_OF_COLLECTIVE = {"all_to_all": "exchange", "send_recv": "exchange", "barrier": "barrier"}
"""Collective -> case of code, whatever the program; NCCL exchanges by kernels that send and receive."""


def gradient_buckets(context: AdviceContext) -> Opportunity | None:
    """Propose larger gradient messages where exposed ones are so small that latency dominates."""
    rows = context.within.collectives.filter(
        pl.col("collective").is_in(BUCKETED),
        pl.col("message_bytes") < thresholds.SMALL_MESSAGE_BYTES,
        (pl.col("group_size") >= 2).fill_null(True),  # fewer ranks exchange nothing
    )
    typical = rows.get_column("message_bytes").median()
    # At best as many messages stay as there are steps, or buckets of their bytes: the shortest ones.
    stay = pl.max_horizontal(pl.lit(context.steps), (pl.col("message_bytes").sum() // BUCKET_BYTES + 1).cast(pl.Int64))
    gone = rows.group_by("collective", "group_size").agg(
        (pl.col("exposed_ns").sum() - pl.col("exposed_ns").sort().head(stay).sum()).alias("ns")
    )
    alone = min(total(gone, "ns"), held_ns(context, rows, ["communication"]))
    if alone <= 0:
        return None
    return Opportunity(
        alone,
        f"exposed time of collectives under {thresholds.SMALL_MESSAGE_BYTES >> 20} MiB, without that of the shortest: one of a kind"
        f" a step, or for each {BUCKET_BYTES // 1_000_000} MB",
        f"{in_a_step(context, rows.height, 'collective moves', 'collectives move')} {size(typical)} in the median: they take longer to"  # type: ignore[arg-type]
        f" start than to send{_waiting(context, alone)}",
        partial(largest_names, rows, pl.col("collective"), pl.col("exposed_ns")),
        longest(rows, pl.col("duration_ns")),
        members=members_of(rows),
        case=_split_by(context, rows),
    )


_GROUPS = {"pipeline": r"(?i)pipeline|(^|[_:-])pp($|[_:-])", "split": r"(?i)tensor_model|(^|[_:-])tp($|[_:-])"}
"""Case of code -> descriptions of process groups, as Megatron and meshes of devices name them."""
_DATA_PARALLEL = r"torch[/\\]nn[/\\]parallel[/\\](data_parallel|replicate|scatter_gather)\.py|nn\.Module: DataParallel"
"""Files and the module of the program that one process runs on several devices."""


def _split_by(context: AdviceContext, collectives: pl.DataFrame) -> str:
    """Return the case of code for collectives by the group that most of their exposed time is in, else by the trainer."""
    if context.host.names.get_column("name").cast(pl.String).str.contains(_DATA_PARALLEL).any():
        return "DataParallel"
    trainer = _trained_by(context, collectives)
    launched = lookup(context.within.activities.select("activity_id", "operator_id"), collectives, "activity_id")
    inputs = lookup(context.within.shapes, launched, "operator_id").get_column("process_group_description")
    groups = collectives.with_columns(inputs.cast(pl.String).alias("group"))
    most = (
        case
        for case, pattern in _GROUPS.items()
        if 2 * total(groups.filter(pl.col("group").str.contains(pattern)), "exposed_ns") > total(groups, "exposed_ns")
    )
    case = next(most, "")
    return f"{case} of Megatron" if case and trainer == "Megatron" else case or trainer


_TRAINERS = {
    "FSDP": r"FSDP::|FullyShardedDataParallel|distributed[/\\](_composable[/\\])?fsdp[/\\]",
    "DeepSpeed": r"(^|[/\\])deepspeed[/\\]|nn\.Module: DeepSpeedEngine",
    "Megatron": r"(^|[/\\])megatron[/\\]",
    "DDP": DDP,
}
"""Case of code -> annotations, operators, modules and files of what exchanges gradients; Megatron has a DDP of its own."""


def _trained_by(context: AdviceContext, collectives: pl.DataFrame) -> str:
    """Return the case of code for collectives of training, by what the trace names; "" for those of other programs.

    It is "sharded" where most of them gather weights and scatter gradients: optimizers shard their state by hand, too.
    Those of the forward pass exchange no gradients but activations, and have the code of a split model ("split").
    """
    if context.program != "training":
        return ""
    names = context.host.names.get_column("name").cast(pl.String)
    for trainer, pattern in _TRAINERS.items():
        if names.str.contains(pattern).any():
            return trainer
    launched = lookup(context.within.activities.select("activity_id", "launch_id"), collectives, "activity_id")
    phase = context.around.events.get_column("phase")[launched.get_column("launch_id")]
    exposed = collectives.with_columns((phase == "forward").fill_null(False).alias("forward"))
    is_shard = pl.col("collective").is_in(["all_gather", "reduce_scatter"])
    if 2 * total(exposed.filter(is_shard), "exposed_ns") > total(exposed, "exposed_ns"):
        return "sharded"
    # The backward pass exchanges the gradients of a split model's activations as often.
    return "split" if 4 * total(exposed.filter("forward"), "exposed_ns") > total(exposed, "exposed_ns") else ""


def copies(context: AdviceContext) -> Opportunity | None:
    """Propose overlapping copies between host and device that run alone, after pinning memory where most are pageable."""
    copies = copies_of(context, TO_PEER, inverted=True)
    pageable = total(where_called(copies, pl.col("name").str.contains("(?i)pageable")), "duration_ns")
    spent = total(copies, "duration_ns")
    pinned = pinned_memory(context) if 2 * pageable > spent else None
    pageable_clause = (
        f"; {percent(pageable / spent)} of the copies' time is from or to pageable memory" if pinned else ""
    )
    opportunity = _copies_of(context, copies, f"the device only copies{pageable_clause}")
    if opportunity is None:
        return None
    if 2 * opportunity.saves_ns < spent - (pinned.saves_ns if pinned else 0):
        less = (
            "kernels are too short to hide most of it: keep on the device what is copied again, or copy narrower types"
        )
        opportunity = replace(opportunity, why=f"{opportunity.why}; {less}")
    if pinned:
        parts = judged_parts(context.verdict)
        most = held_ns(context, copies, ["copy"]) + parts.get("blocking-copy", 0)
        both = combined([opportunity, pinned])
        opportunity = replace(both, saves_ns=min(both.saves_ns, most))
    return replace(
        opportunity,
        values={"first": "Pin memory, then hide" if pinned else "Hide"},
        is_replayed=pinned is None,  # the replay hides copies of pinned memory alone
        case=_way_of(copies, "duration_ns"),
        after=("pinned-memory",) if pinned else (),
    )


def pinned_memory(context: AdviceContext) -> Opportunity | None:
    """Propose pinned memory: idle time in copies that block the CPU, and time of copies of pageable memory.

    Copies between and within devices do not count, and neither do those that bring what an operator waits for.
    """
    copies = context.within.activities.filter(pl.col("kind") == "memcpy")
    on_devices = where_called(copies, copy_direction().is_in([TO_PEER, WITHIN_DEVICE]).fill_null(False))
    causes = ("blocking-copy",)
    idle = context.idle.filter(pl.col("cause").is_in(causes))
    idle = idle.filter(~for_results(context, idle))
    idle = idle.join(
        on_devices.select(pl.col("launch_id").alias("event_id")), on="event_id", how="anti", maintain_order="left"
    )
    pageable = where_called(copies, pl.col("name").str.contains("(?i)pageable"))
    written = context.around.sources(pageable.get_column("launch_id")).cast(pl.String)
    pageable = pageable.filter(written.is_in([ANY_COPY]) | written.is_null())
    why = "copies from or to pageable memory block the CPU until they are done"
    both = [idle_opportunity(context, idle, causes, why), _beyond_link(context, pageable)]
    known = sorted(filter(None, both), key=lambda one: -one.saves_ns)
    called = ["name", "operator", "dtype", "launch_id"]
    blocking = idle.join(copies, left_on="event_id", right_on="launch_id", coalesce=False).select(
        *called, LENGTH_NS.alias("ns")
    )
    held = pl.concat([blocking, pageable.select(*called, pl.col("duration_ns").alias("ns"))], how="vertical_relaxed")
    if_more = "without that, the CPU prepares its next work while the device copies"
    within_modules = held.filter(context.around.modules(held.get_column("launch_id")).is_not_null())
    case = _way_of(held, "ns") or ("within a module" if 2 * total(within_modules, "ns") > total(held, "ns") else "")
    case = OF_PIPELINE if by_a_pipeline(context, held.get_column("launch_id"), held.get_column("ns")) else case
    return replace(combined(known), if_more=if_more, case=case) if known else None


def _beyond_link(context: AdviceContext, pageable: pl.DataFrame) -> Opportunity | None:
    """Return the time that copies of pageable memory take beyond that of their bytes at the host link's peak."""
    links = interconnects_of(context.model.name) if context.model is not None else ()
    rate = next((link.byte_per_s for link in links if link.kind in ("c2c", "pcie")), None)
    least = pl.col("bytes").fill_null(0) / (rate or inf) * NS_PER_S
    return kernel_opportunity(
        context,
        pageable,
        "time of copies of pageable memory that nothing hides, beyond that of their bytes at the peak of the link to the host",
        f"{in_a_step(context, pageable.height, 'copy goes', 'copies go')} through a buffer of the driver, as the"
        " memory is pageable",
        (pl.col("duration_ns") - least).clip(lower_bound=0),
    )


def _way_of(copies: pl.DataFrame, figure: str) -> str:
    """Return the case of code for copies by the direction that makes most of a figure: "to-host", to the device "", else both."""
    for case, direction in {"to-host": TO_HOST, "": FROM_HOST}.items():
        own = where_called(copies, (copy_direction() == direction).fill_null(False))
        if 2 * total(own, figure) > total(copies, figure):
            return case
    return "either way"


def peer_copies(context: AdviceContext) -> Opportunity | None:
    """Propose overlapping copies between devices that run alone."""
    return _copies_of(context, copies_of(context, TO_PEER), "the device only copies to or from another device")


def _copies_of(context: AdviceContext, copies: pl.DataFrame, why: str) -> Opportunity | None:
    """Return the opportunity to hide these copies behind other work: their share of what hiding all copies saves."""
    everything = _part_of(context, "copy", (*_COMPUTES, "communication"), why)
    if everything is None or copies.is_empty():
        return None
    alone = held_ns(context, copies, ["copy"])
    return replace(
        everything,
        saves_ns=min(everything.saves_ns, alone),
        why=f"{share_of_window(context, alone)}: {why}",
        where=partial(largest_operators, copies),
        place=longest(copies, pl.col("duration_ns")),
        members=members_of(copies),
    )


def small_copies(context: AdviceContext) -> Opportunity | None:
    """Propose merging copies that take longer to start than to transfer, several per step."""
    small = copies_of(context, TO_PEER, inverted=True).filter(pl.col("bytes") < thresholds.SMALL_COPY_BYTES)
    if small.height <= context.steps:
        return None
    spans = context.within.activities.select("device", "start_ns", END_NS, "bound")
    opportunity = kernel_opportunity(
        context,
        with_exposed(small, spans.filter(pl.col("bound") != "copy")),
        f"time of copies under {thresholds.SMALL_COPY_BYTES >> 10} KiB in which nothing else ran",
        f"{in_a_step(context, small.height, 'copy', 'copies')} between host and device moved {size(small.get_column('bytes').median())} in the median:"  # type: ignore[arg-type]
        " they take longer to start than to move",
        pl.col("exposed_ns"),
    )
    return opportunity and replace(opportunity, case=_way_of(small, "duration_ns"))


def dependencies(context: AdviceContext) -> Opportunity | None:
    """Propose reducing idle time in which queued work waits for other streams or peers."""
    has_peers = context.peer_wait_ratio is not None
    what = "another stream or a peer (analyze ranks FOLDER tells)" if has_peers else "another stream"
    waits = idle_of(
        context, ("device-wait",), f"work was queued while the device idled: it waited for {what}, not for the CPU"
    )
    return waits and replace(waits, case="peers" if has_peers else "")


def transport(context: AdviceContext) -> Opportunity | None:
    """Propose the device's links for large collectives, where even the fastest is far below their bandwidth."""
    links = interconnects_of(context.model.name) if context.model is not None else ()
    rows = context.within.collectives.filter(
        (pl.col("message_bytes") >= thresholds.SMALL_MESSAGE_BYTES) & pl.col("bus_byte_per_s").is_not_null()
    )
    if not links or rows.is_empty():
        return None
    link = links[0]
    best = float(rows.select(pl.col("bus_byte_per_s").max()).item())
    if best >= thresholds.SLOW_TRANSPORT_RATIO * link.byte_per_s:
        return None
    alone = held_ns(context, rows, ["communication"])
    return Opportunity(
        round(alone * (1 - best / link.byte_per_s)),
        f"time in which these collectives run alone, minus their time at the {bandwidth(link.byte_per_s)} of {link.kind}",
        f"the fastest collective of 4 MiB or more moves {bandwidth(best)}, {percent(best / link.byte_per_s)} of {link.kind}'s"
        f" peak: latency does not explain that{_waiting(context, alone)}",
        partial(largest_names, rows, pl.coalesce("collective", KERNEL), pl.col("exposed_ns")),
        longest(rows, pl.col("duration_ns")),
        members=members_of(rows),
    )


_CAST = r"^aten::_to_copy$"
_CASTING = (
    r"^aten::(linear|matmul|mm|bmm|addmm|baddbmm|einsum|conv(olution|[123]d|_transpose[123]d)|scaled_dot_product_attention)$"
    r"|ToCopyBackward"
)
"""Operators whose inputs autocast converts (torch/csrc/autograd and ATen/autocast_mode.h), and their backward pass."""


def casts(context: AdviceContext) -> Opportunity | None:
    """Propose keeping weights and activations in the type that autocast converts them to at each call."""
    rows = cast_kernels(context)
    opportunity = kernel_opportunity(
        context,
        rows,
        "all time of kernels that convert inputs of matmuls and convolutions, and their gradients",
        f"{in_a_step(context, rows.height, 'kernel only converts', 'kernels only convert')} between types, at each call of an operator under"
        " autocast",
    )
    underflows = context.half == "float16" and context.program == "training"
    return opportunity and replace(opportunity, case="fp16" if underflows else "")


def cast_kernels(context: AdviceContext) -> pl.DataFrame:
    """Return the kernels by which autocast converts inputs of operators."""
    inside, _ = launched_within(context, context.within.activities, _CAST)
    kernels = inside.filter((pl.col("kind") == "kernel") & pl.col("group").is_in(["pointwise", "other"]))
    return launched_within(context, kernels, _CASTING)[0]


def runs_in_16_bits(context: AdviceContext) -> bool:
    """Return whether autocast is active, or matmuls and convolutions take most of their time in at most 16 bits."""
    return mostly_narrow(context.within.activities) or not cast_kernels(context).is_empty()


def compiled_copies(context: AdviceContext) -> Opportunity | None:
    """Propose removing device copies in compiled code: of graph inputs, and of views that it changes."""
    rows, _ = launched_within(context, copies_of(context, WITHIN_DEVICE), COMPILED)
    return kernel_opportunity(
        context,
        rows,
        "all time of these copies",
        f"{in_a_step(context, rows.height, 'copy', 'copies')} within the device in compiled regions: inputs that are copied into a graph's"
        " memory, or tensors that are changed in place",
    )


def device_copies(context: AdviceContext) -> Opportunity | None:
    """Propose removing copies within the device that compiled code does not make."""
    copies = copies_of(context, WITHIN_DEVICE)
    compiled, _ = launched_within(context, copies, COMPILED)
    rows = copies.join(compiled.select("activity_id"), on="activity_id", how="anti", maintain_order="left")
    return kernel_opportunity(
        context,
        rows,
        "all time of these copies",
        f"{in_a_step(context, rows.height, 'copy', 'copies')} within the device: clones, contiguous copies and copies into buffers"
        " read and write what is there already",
    )


QUANTIZED = r"(?i)(?:[aefiptuw]|int|uint)[48](?:[^\d]|$)|[48]_?bit|^quant|[^n]quant|[^u]nquant|scaled|gptq|awq|marlin|machete|allspark|ggml"
"""Names of operators and kernels whose operands have fewer bits than those of `torch.matmul`."""


def custom_kernels(context: AdviceContext) -> Opportunity | None:
    """Report kernels of no known library with unknown work, by name and time, and own matmuls among them."""
    kernels = context.within.activities.filter(pl.col("kind") == "kernel", pl.col("flop").is_null())
    name, operator = pl.col("name"), pl.col("operator")
    of_library = name.str.contains(r"^(void )?(at::native|at_cuda_detail|cub::|thrust::)")
    is_custom = ~operator.str.starts_with("aten::").fill_null(False) & ~of_library
    called = pl.coalesce("operator", "name")
    is_own = ~pl.any_horizontal(called.str.contains(QUANTIZED), called.str.contains(BY_INDUCTOR))
    # Libraries call theirs gemm: one without an operator may be theirs.
    is_own &= operator.is_not_null() | name.str.contains("(?i)matmul")
    is_matmul = pl.col("bucket") == "matmul"
    matmuls = where_called(kernels.filter(is_matmul, pl.col("dtype").is_null()), is_custom & is_own)
    rows = pl.concat([where_called(kernels.filter(pl.col("bucket") == "other"), is_custom), matmuls])
    least_ns = thresholds.CUSTOM_KERNEL_RATIO * context.window_ns
    long_ = rows.group_by("name").agg(pl.col("duration_ns").sum()).filter(pl.col("duration_ns") >= least_ns)
    names = [
        str(name) for name in long_.sort("duration_ns", "name", descending=[True, False]).get_column("name").to_list()
    ]
    rows = rows.filter(pl.col("name").cast(pl.String).is_in(names))
    opportunity = kernel_opportunity(
        context,
        rows,
        "no figure: the least possible time of these kernels is unknown",
        f"{', '.join(map(kernel_word, names[:3]))}: kernels whose work the trace does not record",
        **profiled(context, names[0] if names else ""),
    )
    is_product = not rows.filter(is_matmul, pl.col("name").cast(pl.String) == (names[0] if names else "")).is_empty()
    return opportunity and replace(opportunity, is_saving=False, case="own matmul" if is_product else "")
