"""Define the rules for work without new results: casts, copies in compiled code, kernels with unknown work."""

from dataclasses import replace

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.advice.opportunity import (
    Opportunity,
    copies_of,
    in_a_step,
    kernel_opportunity,
    launched_within,
    profiled,
    total,
    where_called,
)
from trace_analyzer.advice.window_context import COMPILED, AdviceContext
from trace_analyzer.catalog.event_names import WITHIN_DEVICE
from trace_analyzer.catalog.kernels import function_name

_CAST = r"^aten::_to_copy$"
_CASTING = (
    r"^aten::(linear|matmul|mm|bmm|addmm|baddbmm|einsum|conv(olution|[123]d|_transpose[123]d)|scaled_dot_product_attention)$"
    r"|ToCopyBackward"
)
"""Operators whose inputs autocast converts (torch/csrc/autograd and ATen/autocast_mode.h), and their backward pass."""


def casts(context: AdviceContext) -> Opportunity | None:
    """Propose keeping weights and activations in the type that autocast converts them to at each call."""
    rows = _cast_kernels(context)
    opportunity = kernel_opportunity(
        context,
        rows,
        pl.col("duration_ns"),
        "all time of kernels that convert inputs of matmuls and convolutions, and their gradients",
        f"{in_a_step(context, rows.height, 'kernel only converts', 'kernels only convert')} between types, at each call of an operator under"
        " autocast",
    )
    underflows = context.half == "float16" and context.program == "training"
    return opportunity and replace(opportunity, case="fp16" if underflows else "")


def _cast_kernels(context: AdviceContext) -> pl.DataFrame:
    inside, _ = launched_within(context, context.within.activities, _CAST)
    if inside.is_empty():
        return inside
    kernels = inside.filter((pl.col("kind") == "kernel") & pl.col("group").is_in(["pointwise", "other"]))
    return launched_within(context, kernels, _CASTING)[0]


def runs_in_16_bits(context: AdviceContext) -> bool:
    """Return whether autocast is active, or matmuls and convolutions take most of their time in at most 16 bits."""
    known = context.within.activities.filter(pl.col("group") == "matmul").drop_nulls("dtype")
    narrow = known.filter(pl.col("dtype").is_in(["bf16", "fp16", "fp8", "int8"]))
    return 2 * total(narrow, "duration_ns") > total(known, "duration_ns") or not _cast_kernels(context).is_empty()


def compiled_copies(context: AdviceContext) -> Opportunity | None:
    """Propose removing device copies in compiled code: of graph inputs, and of views that it changes."""
    rows, _ = launched_within(context, copies_of(context, WITHIN_DEVICE), COMPILED)
    return kernel_opportunity(
        context,
        rows,
        pl.col("duration_ns"),
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
        pl.col("duration_ns"),
        "all time of these copies",
        f"{in_a_step(context, rows.height, 'copy', 'copies')} within the device: clones, contiguous copies and copies into buffers"
        " read and write what is there already",
    )


def custom_kernels(context: AdviceContext) -> Opportunity | None:
    """Report kernels of no known library with unknown work, by name and time."""
    unknown = context.within.activities.filter(
        (pl.col("kind") == "kernel") & (pl.col("bucket") == "other") & pl.col("flop").is_null()
    )
    of_library = pl.col("name").str.contains(r"^(void )?(at::native|at_cuda_detail|cub::|thrust::)")
    rows = where_called(unknown, ~pl.col("operator").str.starts_with("aten::").fill_null(False) & ~of_library)
    least_ns = thresholds.CUSTOM_KERNEL_RATIO * context.window_ns
    long_ = rows.group_by("name").agg(pl.col("duration_ns").sum()).filter(pl.col("duration_ns") >= least_ns)
    names = [
        str(name) for name in long_.sort("duration_ns", "name", descending=[True, False]).get_column("name").to_list()
    ]
    rows = rows.filter(pl.col("name").cast(pl.String).is_in(names))
    return kernel_opportunity(
        context,
        rows,
        pl.col("duration_ns"),
        "all time of these kernels: their least possible time is unknown",
        f"{', '.join(map(function_name, names[:3]))}: kernels whose work the trace does not record",
        **profiled(context, names[0] if names else ""),
    )
