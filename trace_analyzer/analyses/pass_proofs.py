"""Prove that repetitions of a sequence of launches are separate passes, not layers of one pass.

Layers repeat like passes. They may wait for their stream, copy a result to the host or a number from it, fetch their
weights from host memory, and be separate graphs. A proof of a pass is something that no layer does.
"""

import json
from collections.abc import Iterator
from math import prod
from typing import Any

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.inner_layers import is_pass_around, layers_of

TABLE_LOOKUP = "aten::embedding"
"""Operator that looks up rows of a table: of a vocabulary once per pass, of positions in each layer of some models."""
POOLED_LOOKUPS = ("aten::embedding_bag", "aten::_embedding_bag")
"""Operators that sum rows of a table for each sample, which recommenders do at the beginning of a pass and no layer
does."""
_OPERANDS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::matmul", "aten::linear", "aten::_scaled_mm", "aten::_int_mm"), (0, 1)),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm", "aten::_addmm_activation"), (1, 2)),
    **dict.fromkeys(
        ("aten::cudnn_convolution", "aten::miopen_convolution", "aten::convolution_overrideable", "aten::_slow_conv2d_forward",
         "aten::thnn_conv2d", "aten::conv_depthwise3d", "aten::_conv_depthwise2d", "aten::cudnn_convolution_relu"), (0, 1)),
}  # fmt: skip
"""Matmuls and convolutions -> positions of their input and their weight."""

PROOF_COLUMNS = (
    "operator",
    "operator_id",
    "copied_ns",
    "copied_bytes",
    "graph_id",
    "is_lookup",
    "is_pooled",
    "ends_pass",
    "waited_for_all",
    "multiplies",
)
"""Columns of launches that `proven` needs in addition to segment and device_ns."""

_TENSOR = {"elements": pl.Int64, "first": pl.Int64, "last": pl.Int64}
_ROLES = ("operator_id", "role", *_TENSOR)


def proven(cut: pl.DataFrame, operator_inputs: pl.DataFrame) -> bool:
    """Return whether each segment of ``cut``, except the first and last, contains something that only a pass does.

    ``cut`` are launches in order with segment, work, device_ns and `PROOF_COLUMNS`; ``operator_inputs`` are the recorded
    arguments. A proof is one of these, the same in all segments:

    - a loss, an optimizer's kernel, pooled lookups, or a lookup in a table with the recorded shape of a vocabulary;
    - an input: a tensor from the host, or the result of a lookup, with the recorded shape of the tensor that a matmul or
      convolution multiplies by its weight;
    - layers, and outside of them a head and either a lookup or an input from the host with more than a few numbers: a
      layer with a lookup of its own, such as that of relative positions, contains no layers, and a group of layers, one
      of which has a lookup, contains no head;
    - without shapes, a copy from the host that is too large for a number (64 KiB), where copies take too little device
      time to be weights;
    - the same graph;
    - a wait for the whole device, where copies take equally little time.
    """
    last = int(cut.get_column("segment").max() or 0)  # type: ignore[arg-type]
    whole = cut.filter(pl.col("segment").is_between(2, last - 1))
    if whole.is_empty():
        return False
    segments = whole.get_column("segment").n_unique()
    roles = _roles(whole, operator_inputs)
    has_shapes = roles.get_column("role").is_in(["input"]).any()
    in_vocabulary = roles.filter(pl.col("role") == "vocabulary").get_column("operator_id")
    looks_up = pl.col("is_pooled") | pl.col("operator_id").is_in(in_vocabulary.implode()).fill_null(False)
    held = whole.group_by("segment").agg(
        (pl.col("ends_pass") | looks_up).any().alias("ends"),
        pl.col("waited_for_all").any().alias("waits"),
        (pl.col("copied_bytes").max().fill_null(0) >= thresholds.SMALL_COPY_BYTES).alias("copies"),
    )
    copies_little = whole.select(
        pl.col("copied_ns").sum() <= thresholds.INPUT_COPY_RATIO * pl.col("device_ns").sum()
    ).item()
    ends, waits, copies = held.select(pl.col("ends", "waits", "copies").all()).row(0)
    replayed = whole.drop_nulls("graph_id").group_by("graph_id").agg(pl.col("segment").n_unique())
    return bool(
        ends
        or (copies_little and (waits or (copies and not has_shapes)))
        or (replayed.get_column("segment") == segments).any()
        or _entered(whole, roles).n_unique() == segments
        or _opens_layers(whole, copies_little=copies_little)
    )


def _opens_layers(whole: pl.DataFrame, *, copies_little: bool) -> bool:
    """Return whether each segment contains layers, and an opening of a pass outside of them but not inside any layer.

    Nearly all segments launch the same work, so layers are searched for in the first one.
    """
    opens = {"lookup": pl.col("is_lookup")}
    if copies_little:
        opens["input"] = (pl.col("copied_bytes") >= thresholds.INPUT_BYTES).fill_null(False)
    first = whole.filter(pl.col("segment") == pl.col("segment").min())
    kept = [name for name, is_it in opens.items() if whole.group_by("segment").agg(is_it.any()).to_series(1).all()]
    layers = layers_of(first) if kept else None
    if layers is None or not is_pass_around(first, layers):
        return False
    return any(not first.filter(~layers.outside).select(opens[name].any()).item() for name in kept)


def _entered(whole: pl.DataFrame, roles: pl.DataFrame) -> pl.Series:
    """Return the segments in which a tensor from the host or from a table is the input of a matmul or convolution."""
    tensors = (
        whole.select("segment", "operator_id")
        .drop_nulls()
        .join(roles, on="operator_id", how="inner")
        .select("segment", "role", *_TENSOR)
        .unique()
    )
    weights = tensors.filter(pl.col("role") == "weight")
    inputs = tensors.filter(pl.col("role") == "input")
    came = tensors.filter(~pl.col("role").is_in(["weight", "input"])).join(
        weights, on=["segment", "elements"], how="anti"
    )
    return (
        came.join(inputs, on=["segment", "elements"], suffix="_of_input")
        .filter((pl.col("first") == pl.col("first_of_input")) | (pl.col("last") == pl.col("last_of_input")))
        .get_column("segment")
        .unique()
    )


def _roles(whole: pl.DataFrame, operator_inputs: pl.DataFrame) -> pl.DataFrame:
    """Return tensors of the launches' operators: operator_id, role, elements, and the first and last dimension."""
    of_interest = pl.col("operator").cast(pl.String).is_in([*_OPERANDS, TABLE_LOOKUP]) | (pl.col("copied_bytes") > 0)
    asked = whole.filter(of_interest).select(
        "operator_id", pl.col("operator").cast(pl.String), pl.col("copied_bytes") > 0
    )
    shapes = operator_inputs.select(
        pl.col("event_id").cast(pl.UInt32).alias("operator_id"), pl.col("input_dims").cast(pl.String)
    )
    calls = asked.unique("operator_id").join(shapes, on="operator_id", how="inner").drop_nulls("input_dims")
    kinds = calls.select("operator", "input_dims", "copied_bytes").unique()
    rows = [
        (operator, dims, copied, role, prod(shape), shape[0], shape[-1])
        for operator, dims, copied in kinds.iter_rows()
        for role, shape in _tensors(operator, _shapes(dims), copied=bool(copied))
        if 1 < prod(shape) < 2**50
    ]
    schema = {"operator": pl.String, "input_dims": pl.String, "copied_bytes": pl.Boolean, "role": pl.String, **_TENSOR}
    named = pl.DataFrame(rows, schema=schema, orient="row")
    return calls.join(named, on=["operator", "input_dims", "copied_bytes"], how="inner", nulls_equal=True).select(
        _ROLES
    )


def _shapes(dims: str) -> list[Any]:
    """Return the recorded shapes; empty where the record is damaged."""
    try:
        shapes = json.loads(dims)
    except ValueError:
        return []
    return shapes if isinstance(shapes, list) else []


def _tensors(operator: str, shapes: list[Any], *, copied: bool) -> Iterator[tuple[str, list[int]]]:
    """Yield (role, shape) of a call's tensors: a copy's, a lookup's result, a matmul's input and weight.

    A table with few or narrow rows may hold relative positions or rotations, which layers look up.
    """
    if operator in _OPERANDS:
        for role, position in zip(("input", "weight"), _OPERANDS[operator], strict=True):
            if position < len(shapes) and _is_shape(shapes[position]):
                yield role, shapes[position]
    elif operator == TABLE_LOOKUP:
        if len(shapes) > 1 and _is_shape(shapes[0]) and _is_shape(shapes[1]):
            rows, width = shapes[0][0], shapes[0][-1]
            is_vocabulary = rows >= thresholds.VOCABULARY_ROWS and width >= thresholds.VOCABULARY_WIDTH
            yield "vocabulary" if is_vocabulary else "table", [*shapes[1], width]
    elif copied and shapes and _is_shape(shapes[0]):
        yield "copy", shapes[0]


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(n, int) and 0 < n < 2**40 for n in value)
