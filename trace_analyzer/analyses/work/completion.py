"""Complete the record of a call from surrounding events: a type, a result's shape, an outer call.

Kineto records no outputs. Before PyTorch 2.1, it also records no values, so that the stride of a convolution is
unknown, and some files have shapes without types. Other events fill these gaps; such data is marked as not recorded.
"""

from collections.abc import Iterable

import polars as pl

from trace_analyzer.analyses.host import Host
from trace_analyzer.catalog.kernels import operand_type
from trace_analyzer.frames.intervals import innermost, lookup_at
from trace_analyzer.frames.lookups import lookup, map_unique

CONTEXT = ("outer", "outer_dims", "result_dims", "assumed_type", "gradients")
"""Columns of `with_context`; null where unnecessary or unknown."""

CONSUMER_OPERATORS = 12
"""Number of operators after a convolution among which the first reader of its result is searched; batch norm first
counts its batches."""

_FORWARD = (
    *("aten::cudnn_convolution", "aten::miopen_convolution", "aten::mkldnn_convolution", "aten::conv1d", "aten::conv2d"),
    *("aten::conv3d", "aten::thnn_conv2d", "aten::_convolution_nogroup"),
)  # fmt: skip
"""Convolutions whose result has as many channels as their weight has filters."""
_RESIZING = (
    *(f"aten::{kind}_pool{n}d{end}" for kind, end in (("max", "_with_indices"), ("avg", "")) for n in (2, 3)),
    *(f"aten::_adaptive_avg_pool{n}d" for n in (2, 3)),
    *(f"aten::upsample_{kind}" for kind in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "trilinear3d")),
    *("aten::constant_pad_nd", *(f"aten::{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3))),
)  # fmt: skip
"""Operators whose result has another size but the channels of their input."""
FORWARD = "forward"
"""Placeholder for the enclosing operator of a backward pass whose shapes come from its forward call."""
_OUTER: dict[str, tuple[str, ...]] = {
    "aten::ne": ("aten::isnan",),
    "aten::eq": ("aten::isfinite",),
    **{
        f"aten::{library}_convolution_backward_{of}": (f"aten::{library}_convolution_backward",)
        for library in ("cudnn", "miopen")
        for of in ("input", "weight")
    },
}
"""Operators whose enclosing operator is more informative: the operand of `isnan`, and all shapes of a convolution's
gradients."""


OF_FORWARD = r"^(?:_LinearBackward|_LayerNormLinearBackward|FlashAttn(?:Varlen)?FuncBackward)$"
"""Backward passes of autograd functions, recorded with gradients only; the forward call's shapes provide the rest."""


def with_context(calls: pl.DataFrame, host: Host, inputs: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return calls (kernels with their operator's arguments) with `CONTEXT`.

    ``inputs`` are all arguments, ``links`` backward operators with their forward operator. A list of types without any
    name is as good as none (PyTorch before 1.9).
    """
    types = pl.col("input_types")
    calls = calls.with_columns(pl.when(types.cast(pl.String).str.contains("[a-z]")).then(types))
    return (
        calls.hstack(_surrounding_calls(calls, host, inputs, links))
        .hstack(_results(calls, host, inputs))
        .hstack(_assumed_types(calls))
        .hstack(_gradients(calls))
        .with_columns(pl.col(CONTEXT).cast(pl.String))
    )


def _assumed_types(calls: pl.DataFrame) -> pl.DataFrame:
    """Return (assumed_type): the operand type from the kernel's name, where the file has shapes but no types."""
    lacking = (calls.get_column("input_dims").is_not_null() & calls.get_column("input_types").is_null()).any()
    if not lacking:
        return _nulls(calls, "assumed_type")
    of_name = map_unique(calls.select("name"), operand_type()).to_series()
    return calls.select(pl.when(pl.col("input_types").is_null()).then(of_name).alias("assumed_type"))


_BACKWARD = "aten::convolution_backward"
_OF_INPUT, _OF_WEIGHT = (
    r"(?i)dgrad|bwd_?data|backward_?data|bwdd",
    r"(?i)wgrad|bwd_?weight|backward_?weight|backward_?filter|bwdw",
)


def _gradients(calls: pl.DataFrame) -> pl.DataFrame:
    """Return (gradients): those computed by the backward pass of a convolution or linear layer without values.

    Kernel names show them (dgrad, wgrad). Otherwise, two matmul kernels compute both gradients, and a single one that
    of the weight, as a first layer needs no gradient of its input.
    """
    operator = pl.col("operator").cast(pl.String)
    asked = calls.filter(
        ((operator == _BACKWARD) & pl.col("concrete_inputs").is_null()) | operator.str.contains(OF_FORWARD)
    )
    asked = asked.filter((pl.col("group") == "matmul") & ~pl.col("helper"))
    of = {"input": _OF_INPUT, "weight": _OF_WEIGHT}
    names = asked.hstack(
        map_unique(asked.select("name"), *(pl.col("name").str.contains(text).alias(of_) for of_, text in of.items()))
    )
    input_, weight = pl.col("input").sum(), pl.col("weight").sum()
    unnamed = pl.len() - input_ - weight
    by_operator = names.group_by("operator_id", maintain_order=True).agg(
        pl.when((input_ > 0) & ((weight > 0) | (unnamed > 0)) | (weight > 0) & (unnamed > 0) | (unnamed > 1))
        .then(pl.lit("input,weight"))
        .when(input_ > 0)
        .then(pl.lit("input"))
        .otherwise(pl.lit("weight"))
        .alias("gradients")
    )
    return lookup(by_operator, calls, "operator_id")


def _surrounding_calls(calls: pl.DataFrame, host: Host, inputs: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return (outer, outer_dims): the enclosing operator that is more informative, or the call's forward call."""
    around = _outer(calls, host, inputs)
    asked = calls.filter(pl.col("operator").cast(pl.String).str.contains(OF_FORWARD)).select("operator_id").unique()
    forward = (
        asked.join(links.select(pl.col("event_id").alias("operator_id"), "forward_id"), on="operator_id")
        .join(inputs.select(pl.col("operator_id").alias("forward_id"), "input_dims"), on="forward_id")
        .select("operator_id", pl.lit(FORWARD).alias("outer"), pl.col("input_dims").cast(pl.String).alias("outer_dims"))
    )
    of_forward = lookup(forward, calls, "operator_id")
    return around.select(
        pl.coalesce(pl.col(name).cast(pl.String), of_forward.get_column(name)) for name in ("outer", "outer_dims")
    )


def _outer(calls: pl.DataFrame, host: Host, inputs: pl.DataFrame) -> pl.DataFrame:
    """Return (outer, outer_dims): the enclosing operator that is more informative, with its shapes."""
    asked = calls.filter(pl.col("operator").cast(pl.String).is_in(list(_OUTER)))
    around, spans = within_operators(asked, host, {name for outer in _OUTER.values() for name in outer})
    shapes = inputs.select(pl.col("operator_id").alias("outer_id"), pl.col("input_dims").alias("outer_dims"))
    outer_calls = (
        around.join(
            spans.select("outer_id", pl.col("outer").cast(pl.String)), on="outer_id", how="left", maintain_order="left"
        )
        .join(shapes, on="outer_id", how="left", maintain_order="left")
        .select("activity_id", "outer", "outer_dims")
    )
    return lookup(outer_calls, calls, "activity_id")


def within_operators(calls: pl.DataFrame, host: Host, names: Iterable[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return calls within operators of these names, and these operators.

    They are (activity_id, thread_id, start_ns, outer_id), with the innermost one, and (thread_id, start_ns, end_ns,
    outer_id, outer).
    """
    spans = host.those((pl.col("kind") == "operator") & pl.col("name").is_in(sorted(names))).select(
        "thread_id",
        "start_ns",
        "end_ns",
        pl.col("event_id").alias("outer_id"),
        pl.col("name").cast(pl.Categorical).alias("outer"),
    )
    places = calls.select(
        "activity_id", pl.col("launch_thread").alias("thread_id"), pl.col("launch_start_ns").alias("start_ns")
    ).drop_nulls()
    segments = innermost(spans, ["thread_id"], "outer_id")
    return lookup_at(places, "start_ns", segments, ["thread_id"], ["outer_id"]).drop_nulls("outer_id"), spans


def _results(calls: pl.DataFrame, host: Host, inputs: pl.DataFrame) -> pl.DataFrame:
    """Return (result_dims): the result's shape of a convolution, pool, padding or resampling.

    It is the shape that the thread's next reader records: the next operator that reads a tensor with as many dimensions
    and samples, and with as many channels as a convolution has filters, or as the input of another operator has.
    """
    asked = (
        calls.filter(
            pl.col("operator").cast(pl.String).is_in((*_FORWARD, *_RESIZING)) & pl.col("concrete_inputs").is_null()
        )
        .select("operator_id", pl.col("operator").cast(pl.String), pl.col("input_dims").cast(pl.String))
        .unique("operator_id")
    )
    if asked.is_empty():
        return _nulls(calls, "result_dims")
    shape = r"^\[\[(\d+), (\d+)((?:, \d+)+)\]"
    given = r"^\[\[\d+, (\d+)"
    weight = r"^\[\[[\d, ]+\], \[(\d+), \d+(?:, \d+)+\]"
    operators = host.those(pl.col("kind") == "operator").select(
        "thread_id", "start_ns", "end_ns", pl.col("event_id").alias("operator_id")
    )
    ordered = (
        operators.join(inputs.select("operator_id", "input_dims"), on="operator_id", how="left")
        .sort("thread_id", "start_ns", "operator_id")
        .with_columns(pl.int_range(pl.len()).over("thread_id").alias("place"))
    )
    first = pl.col("input_dims").cast(pl.String).str.extract_groups(shape)
    readers = ordered.select(
        "thread_id",
        pl.col("start_ns").alias("time_ns"),
        "place",
        first.struct.field("1").alias("samples"),
        first.struct.field("2").alias("channels"),
        first.struct.field("3").str.count_matches(",").alias("rank"),
        pl.col("input_dims").cast(pl.String).str.extract(r"^\[(\[[\d, ]+\])").alias("result_dims"),
    ).drop_nulls("samples")
    ended = (
        asked.join(operators, on="operator_id")
        .select(
            "operator_id",
            "thread_id",
            pl.col("end_ns").alias("time_ns"),
            pl.col("input_dims").str.extract(shape, 1).alias("samples"),
            pl.col("input_dims")
            .str.extract(pl.when(pl.col("operator").is_in(_FORWARD)).then(pl.lit(weight)).otherwise(pl.lit(given)), 1)
            .alias("channels"),
            pl.col("input_dims").str.extract(shape, 3).str.count_matches(",").alias("rank"),
        )
        .drop_nulls()
    )
    following = ordered.select("thread_id", pl.col("start_ns").alias("time_ns"), pl.col("place").alias("next_place"))
    keys = ["thread_id", "samples", "channels", "rank"]
    results = (
        ended.sort("time_ns")
        .join_asof(following.sort("time_ns"), on="time_ns", by="thread_id", strategy="forward", check_sortedness=False)
        .join_asof(readers.sort("time_ns"), on="time_ns", by=keys, strategy="forward", check_sortedness=False)
        .filter(pl.col("place") - pl.col("next_place") < CONSUMER_OPERATORS)
        .select("operator_id", "result_dims")
    )
    return lookup(results, calls, "operator_id")


def _nulls(calls: pl.DataFrame, name: str) -> pl.DataFrame:
    return pl.repeat(None, calls.height, dtype=pl.String, eager=True).alias(name).to_frame()
