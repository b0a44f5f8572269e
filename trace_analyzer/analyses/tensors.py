"""Derive the tensors that a call reads and writes from its operator and recorded inputs; None where unknown.

Kineto records no outputs: their shape and type follow from PyTorch's rules for pointwise operators
(broadcasting and type promotion, docs "Tensor attributes"), normalizations, softmax and reductions.
"""

import json
import re
from math import prod
from typing import Any, NamedTuple

import polars as pl

from trace_analyzer.analyses.work.calls import MOST_ELEMENTS, Malformed, Shape, broadcast
from trace_analyzer.frames import intervals, lookups

ELEMENT_BYTES: dict[str, int] = {
    **dict.fromkeys(("byte", "char", "bool", "unsigned char", "signed char"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "short int"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "long int", "complexfloat", "complex<float>"), 8),
    **dict.fromkeys(("complexdouble", "complex<double>"), 16),
}
"""Bytes per element, by the names of c10 and of Kineto's input types, in lower case and without ``c10::``."""

# From the lowest type to the highest of promotion; half and bfloat16 promote to float.
_PROMOTION = (
    "bool", "unsigned char", "signed char", "short int", "int", "long int", "half", "bfloat16", "float",
    "double",
)  # fmt: skip
_FLOATS = {"half", "bfloat16", "float", "double"}
_TEXT_LIMIT = 4096
"""Longer lists of shapes are those of multi-tensor calls, which read no single tensor."""


class TensorType(NamedTuple):
    """Shape and element type, which determine whether one call's output can be the next one's input."""

    shape: Shape
    dtype: str

    @property
    def key(self) -> str:
        """Return a text that is equal for tensors that can be the same."""
        return f"{list(self.shape)} {self.dtype}"

    @property
    def bytes(self) -> int:
        """Return the size in memory if dense."""
        return prod(self.shape) * ELEMENT_BYTES[self.dtype]


class CallTensors(NamedTuple):
    """The tensors that a call reads, and the one that it writes."""

    inputs: tuple[TensorType, ...]
    output: TensorType | None


def call_tensors(operator: str, dims: str | None, types: str | None, concrete: str | None) -> CallTensors | None:
    """Return the tensors of one call of a fusible operator or batched matmul; None for all others."""
    name = operator.removeprefix("aten::")
    plain = name.rstrip("_")
    if operator == name or dims is None or types is None or max(len(dims), len(types)) > _TEXT_LIMIT:
        return None
    try:
        tensors = [_tensor(shape, dtype) for shape, dtype in zip(json.loads(dims), json.loads(types), strict=True)]
        values = json.loads(concrete) if concrete else []
        return _call(name, plain, tensors, values)
    except (ValueError, TypeError, KeyError, IndexError, Malformed):
        return None


def _tensor(shape: Any, dtype: Any) -> TensorType | None:
    """Return the tensor of one input; None for scalars, lists and unknown types."""
    known = str(dtype).lower().removeprefix("c10::")
    if not isinstance(shape, list) or not shape or known not in ELEMENT_BYTES:
        return None
    sizes = tuple(int(n) for n in shape)
    return TensorType(sizes, known) if min(sizes) > 0 and prod(sizes) <= MOST_ELEMENTS else None


def _call(name: str, plain: str, tensors: list[TensorType | None], values: list[Any]) -> CallTensors | None:
    read = tuple(tensor for tensor in tensors if tensor is not None)
    if not read:
        return None
    if name == "copy_":
        target, source = tensors[0], tensors[1]
        return None if target is None or source is None else CallTensors((source,), target)
    if plain in _PRODUCTS:
        left, right = (tensors[i] for i in _PRODUCTS[plain])
        return None if left is None or right is None else CallTensors(read, _product(left, right))
    if plain in _LIKE_FIRST:
        return CallTensors(read, tensors[0])
    if plain in _REDUCTIONS:
        return CallTensors(read[:1], _reduced(read[0], values))
    if plain not in _OPERANDS:
        return None
    read = tuple(tensor for tensor in tensors[: _OPERANDS[plain]] if tensor is not None)
    result = _pointwise(plain, read) if read and not name.endswith("_") else tensors[0]
    return CallTensors(read, result and TensorType(result.shape, "bool") if plain in _COMPARISONS else result)


def _pointwise(plain: str, read: tuple[TensorType, ...]) -> TensorType:
    dtypes = {tensor.dtype for tensor in read}
    prevailing = "float" if {"half", "bfloat16"} <= dtypes else max(dtypes, key=_PROMOTION.index)
    if prevailing not in _FLOATS and plain not in _ON_INTEGERS:
        prevailing = "float"
    return TensorType(broadcast(*(tensor.shape for tensor in read)), prevailing)


def _product(left: TensorType, right: TensorType) -> TensorType | None:
    """Return the result of (b, m, k) x (b, k, n)."""
    if len(left.shape) != 3 or len(right.shape) != 3:
        return None
    return TensorType((*left.shape[:2], right.shape[2]), left.dtype)


def _reduced(tensor: TensorType, values: list[Any]) -> TensorType | None:
    """Return the result of ``reduce(self, dim, keepdim, ...)`` where its scalar inputs were recorded."""
    if tensor.dtype not in _FLOATS or len(values) < 3 or not re.fullmatch(r"\[-?\d+(, ?-?\d+)*\]", str(values[1])):
        return None
    axes = {int(axis) % len(tensor.shape) for axis in json.loads(values[1])}
    kept = [1 if i in axes else n for i, n in enumerate(tensor.shape) if i not in axes or str(values[2]) == "True"]
    return TensorType(tuple(kept), tensor.dtype) if kept else None


_UNARY = (
    "abs acos asin atan bitwise_not ceil clamp clamp_max clamp_min cos cosh elu erf erfc exp exp2 expm1 floor frac gelu"
    " hardsigmoid hardswish hardtanh leaky_relu log log10 log1p log2 logit mish neg reciprocal relu round rsqrt sigmoid"
    " sign silu sin sinh softplus sqrt square tan tanh trunc isinf isnan logical_not"
)
_BINARY = (
    "add atan2 bitwise_and bitwise_or bitwise_xor div elu_backward eq fmod ge gelu_backward gt hardswish_backward le"
    " leaky_relu_backward logical_and logical_or lt masked_fill maximum minimum mul ne pow remainder rsub"
    " sigmoid_backward silu_backward sub tanh_backward threshold_backward"
)
_TERNARY = "addcdiv addcmul lerp where"
_OPERANDS = {name: n for n, names in enumerate((_UNARY, _BINARY, _TERNARY), 1) for name in names.split()}
"""Pointwise operators with their number of inputs: a further tensor may be ``out``."""
_INTEGER_OPERATORS = (
    "abs add bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp clamp_max clamp_min floor fmod masked_fill maximum"
    " minimum mul neg pow relu remainder round rsub sign square sub trunc where"
)
_ON_INTEGERS = frozenset(_INTEGER_OPERATORS.split())
"""Operators with integer results on integers; the others return floats."""
_COMPARISONS = {"eq", "ge", "gt", "isinf", "isnan", "le", "logical_and", "logical_not", "logical_or", "lt", "ne"}
_LIKE_FIRST = {
    "_log_softmax", "_log_softmax_backward_data", "_softmax", "_softmax_backward_data", "batch_norm",
    "cudnn_batch_norm", "miopen_batch_norm", "native_batch_norm", "native_dropout", "native_dropout_backward",
    "native_group_norm", "native_layer_norm", "native_layer_norm_backward",
}  # fmt: skip
_REDUCTIONS = {"amax", "amin", "mean", "sum"}
_PRODUCTS = {"bmm": (0, 1), "baddbmm": (1, 2)}


# Group device activities into calls of operators, with the tensors that each reads and writes.

_STREAM = ["device", "stream"]
_LAUNCH = ["process_id", "launch_thread", "launch_start_ns"]


def calls_with_tensors(activities: pl.DataFrame, operator_inputs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Group activities into calls per operator and stream, in order, with the tensors that they read and write.

    ``tensors`` is the row of these. ``fusible`` is true where a fused kernel can include all of the call's work:
    pointwise, normalization or reduction, bound by memory or latency.
    """
    fusible = (
        pl.col("group").is_in(["pointwise", "normalization"])
        & pl.col("bound").is_in(["memory", "latency"])
        & (pl.col("bucket") != "optimizer")
    ).fill_null(False)
    begins = pl.any_horizontal(
        pl.col("operator_id").is_null(), *(pl.col(c).ne_missing(pl.col(c).shift(1)) for c in (*_STREAM, "operator_id"))
    )
    ordered = intervals.sort_spans(
        activities.select(
            *_STREAM, "start_ns", "activity_id", "operator_id", "operator", *_LAUNCH, "duration_ns",
            (~fusible).cast(pl.Int64).alias("unfit"),
            (pl.col("bucket") == "softmax").fill_null(False).cast(pl.Int64).alias("softmax"),
        ),
        _STREAM,
    )  # fmt: skip
    first = ordered.select(begins).to_series()
    calls, count = (first.cum_sum() - 1).cast(pl.UInt32), int(first.sum())
    ends = ordered.get_column("start_ns") + ordered.get_column("duration_ns")

    def summed(column: str) -> pl.Series:
        return lookups.sum_by_group(calls, ordered.get_column(column), count)

    runs = (
        ordered.filter(first)
        .select(*_STREAM, "operator_id", "operator", *_LAUNCH, "activity_id", "start_ns")
        .with_columns(
            pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).alias("call"),
            ends[lookups.argmax_by_group(calls, ends, count)].alias("end_ns"),
            summed("duration_ns").alias("time_ns"),
            lookups.sum_by_group(calls, pl.ones(ordered.height, eager=True), count).alias("kernel_count"),
            (summed("unfit") == 0).alias("fusible"),
            (summed("softmax") > 0).alias("is_softmax"),
        )
    )
    numbers, tensors = _tensors(runs, operator_inputs)
    runs = runs.hstack(lookups.lookup(numbers, runs, "operator_id"))
    known = tensors.get_column("reads").is_not_null()[runs.get_column("tensors")]
    return runs.with_columns(pl.col("fusible") & known.fill_null(False)), tensors


def _tensors(runs: pl.DataFrame, operator_inputs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return (operator_id, tensors) of operators with recorded arguments, and the rows that ``tensors`` refers to.

    The rows have ``reads`` and ``writes``, the tensors' keys, and read_bytes and write_bytes, null where unknown.
    """
    keys = ["operator", "input_dims", "input_types", "concrete_inputs"]
    recorded = operator_inputs.select(pl.col("event_id").alias("operator_id"), *keys[1:])
    ids = runs.get_column("operator_id")
    inputs = lookups.lookup_inner(
        runs.select("operator_id", "operator")[lookups.first_index(ids).drop_nulls()].drop_nulls(),
        recorded,
        "operator_id",
    )
    numbers, firsts = lookups.factorize(*inputs.select(keys))
    calls = [call_tensors(*row) for row in inputs.select(keys)[firsts].iter_rows()]
    known = pl.DataFrame(
        [
            pl.Series("reads", [call and [t.key for t in call.inputs] for call in calls], dtype=pl.List(pl.String)),
            pl.Series("writes", [call and call.output and call.output.key for call in calls], dtype=pl.String),
            pl.Series(
                "read_bytes", [call and float(sum(t.bytes for t in call.inputs)) for call in calls], dtype=pl.Float64
            ),
            pl.Series(
                "write_bytes", [call and call.output and float(call.output.bytes) for call in calls], dtype=pl.Float64
            ),
        ]
    )
    return inputs.select("operator_id", numbers.alias("tensors")), known


def reads_previous(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.Series:
    """Return whether each call reads the previous call's output, evaluated once per distinct pair."""
    pairs = calls.select("tensors", pl.col("tensors").shift(1).alias("before"))
    numbers, firsts = lookups.factorize(*pairs)
    reads, written = (
        tensors.get_column(column)[pairs.get_column(number)[firsts]]
        for column, number in (("reads", "tensors"), ("writes", "before"))
    )
    is_shared = pl.DataFrame([reads, written]).select(
        pl.col("reads").list.contains(pl.col("writes")) & pl.col("writes").is_not_null()
    )
    return is_shared.to_series().fill_null(False)[numbers]


def with_tensors(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """Add the tensors of `_tensors` to calls."""
    return calls.hstack(tensors[calls.get_column("tensors")]).drop("tensors")


def plain_operators(calls: pl.DataFrame) -> pl.DataFrame:
    """Return calls with strings instead of categoricals, and operators without namespace and in-place suffix."""
    plain = pl.col("operator").str.strip_prefix("aten::").str.replace("_+$", "")
    return lookups.as_strings(calls.with_columns(lookups.map_unique(calls.select("operator"), plain).to_series()))


def operators_in_order() -> pl.Expr:
    """Join the operators of a run into one text, in the notation of `catalog.fusions`."""
    return pl.concat_str(pl.lit(">"), pl.col("operator").str.join(">"), pl.lit(">")).alias("operators")


def elements(key: pl.Expr) -> pl.Expr:
    """Return the number of elements of a tensor's key."""
    sizes = key.str.extract(r"^\[([0-9, ]+)\]").str.replace_all(" ", "").str.split(",")
    return sizes.list.eval(pl.element().cast(pl.Float64, strict=False).product()).list.first()
