"""Parse a recorded operator call: its arguments from Kineto's JSON text, and their types.

A formula reads a `Call` and returns a `Work`, or raises: `Unrecorded` when the trace lacks the formula's inputs,
`Malformed` when the record is impossible for the operator.
"""

import json
import re
from collections.abc import Callable
from functools import cached_property
from math import prod
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct

Shape = tuple[int, ...]

MOST_ELEMENTS = 2**50
"""Limit on the elements of a tensor: a larger shape is damaged, and its products could overflow."""


class Unrecorded(Exception):
    """Signal that the trace lacks the formula's inputs."""


class Malformed(Exception):
    """Signal that the recorded arguments are impossible for this operator; the message names the kind of problem."""


class Dtype(NamedTuple):
    """An element type: its size, its arithmetic (by the device catalogue) and its rank in type promotion."""

    bytes: float
    compute: str | None
    rank: int


# Promotion as in torch.result_type, for the types in profiles: bool < integers < floats < complex, wider wins.
BOOL, INT32, INT64, FLOAT32 = (Dtype(1, None, 0), Dtype(4, None, 13), Dtype(8, None, 14), Dtype(4, "fp32", 23))
BYTE = Dtype(1, "int8", 11)
_FP8 = Dtype(1, "fp8", 20)
_FLOATS, _COMPLEX = 20, 30

# Kineto's names of element types (C++ names, which differ between compilers).
DTYPES: dict[str, Dtype] = {
    "bool": BOOL,
    "signed char": BYTE,
    "unsigned char": BYTE,
    **dict.fromkeys(("short", "short int", "unsigned short", "unsigned short int"), Dtype(2, None, 12)),
    **dict.fromkeys(("int", "unsigned int"), INT32),
    **dict.fromkeys(("long", "long int", "long long", "unsigned long", "unsigned long int"), INT64),
    "c10::Float4_e2m1fn_x2": Dtype(1, "fp4", 20),
    **dict.fromkeys(
        (
            "c10::Float8_e4m3fn",
            "c10::Float8_e5m2",
            "c10::Float8_e4m3fnuz",
            "c10::Float8_e5m2fnuz",
            "c10::Float8_e8m0fnu",
        ),
        _FP8,
    ),
    "c10::Half": Dtype(2, "fp16", 21),
    "c10::BFloat16": Dtype(2, "bf16", 22),
    "float": FLOAT32,
    "double": Dtype(8, "fp64", 24),
    "c10::complex<c10::Half>": Dtype(4, None, 31),
    "c10::complex<float>": Dtype(8, None, 32),
    "c10::complex<double>": Dtype(16, None, 33),
}

# c10::ScalarType, by which concrete inputs name types.
_SCALAR_TYPES = {
    0: "unsigned char", 1: "signed char", 2: "short", 3: "int", 4: "long", 5: "c10::Half", 6: "float", 7: "double",
    8: "c10::complex<c10::Half>", 9: "c10::complex<float>", 10: "c10::complex<double>", 11: "bool", 15: "c10::BFloat16",
    23: "c10::Float8_e5m2", 24: "c10::Float8_e4m3fn", 25: "c10::Float8_e5m2fnuz", 26: "c10::Float8_e4m3fnuz",
    44: "c10::Float8_e8m0fnu", 45: "c10::Float4_e2m1fn_x2",
}  # fmt: skip


class Tensor(Struct, frozen=True, dict=True):
    """A tensor argument; strides are null in traces from before PyTorch 2."""

    shape: Shape
    dtype: Dtype | None
    strides: Shape | None = None

    @cached_property
    def elements(self) -> int:
        """Return the number of elements that a loop over the tensor visits."""
        return prod(self.shape)

    @cached_property
    def stored(self) -> int:
        """Return the number of distinct elements in memory.

        An expanded dimension (stride 0) counts once, and windows may overlap.
        """
        if self.strides is None or len(self.strides) != len(self.shape) or not self.elements:
            return self.elements
        distinct = prod(n for n, stride in zip(self.shape, self.strides, strict=True) if stride)
        span = 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        return min(distinct, span)

    @property
    def bytes(self) -> float:
        """Return the bytes of its distinct elements. Raises `Unrecorded` where the type is unknown."""
        return self.stored * self.size

    @property
    def size(self) -> float:
        """Return the bytes of an element. Raises `Unrecorded` where the type is unknown."""
        if self.dtype is None:
            raise Unrecorded
        return self.dtype.bytes


class Work(Struct, frozen=True):
    """FLOP and bytes of one call, and its compute dtype (as the catalogue names it); unknown is None.

    ``least`` is true where sizes of written or gathered data are not recorded: FLOP and bytes then cover the recorded
    part. ``doubtful_bytes`` is the part of the bytes that may not have moved: reads of operands that may be the same
    tensor, or that may be expanded where strides were not recorded. ``key_bytes`` are read for each key and value in a
    cache, whose number is not recorded, by a call of ``queries`` tokens.
    """

    flop: float | None
    moved_bytes: float | None
    dtype: str | None
    doubtful_bytes: float = 0.0
    least: bool = False
    key_bytes: float | None = None
    queries: int | None = None


class Call(NamedTuple):
    """An operator call: for each argument a tensor, a tuple of tensors, a concrete value, or None where unknown.

    ``valued`` is true where the trace records values: only then, None is an omitted optional argument. ``outer`` is the
    enclosing operator, with its shapes where these are more informative, ``result`` the shape of the result if other
    events show it, and ``gradients`` the gradients that a backward pass computed, as its kernels show: input, weight or
    both.
    """

    operator: str
    arguments: tuple[Any, ...]
    kinds: tuple[str, ...]
    valued: bool
    outer: str | None = None
    outer_shapes: tuple[Shape | None, ...] = ()
    result: Shape | None = None
    gradients: tuple[str, ...] = ()

    def tensor(self, position: int) -> Tensor:
        """Return the tensor at this position. Raises `Malformed` for any other argument."""
        tensor = self.optional(position)
        if tensor is None:
            raise Malformed("arguments that do not fit the operator")
        return tensor

    def optional(self, position: int) -> Tensor | None:
        """Return the tensor at this position, if there is one."""
        argument = self.arguments[position] if position < len(self.arguments) else None
        return argument if isinstance(argument, Tensor) else None

    def tensors(self, position: int) -> tuple[Tensor, ...]:
        """Return the list of tensors at this position.

        Raises `Unrecorded` where its shapes were not recorded (before PyTorch 2.1).
        """
        argument = self.arguments[position] if position < len(self.arguments) else None
        if isinstance(argument, tuple):
            return argument
        if position < len(self.kinds) and self.kinds[position] == "TensorList":
            raise Unrecorded
        raise Malformed("arguments that do not fit the operator")

    def value(self, position: int) -> Any:
        """Return the concrete value at this position (None: an omitted optional argument).

        Raises `Unrecorded` where values were not recorded.
        """
        if not self.valued:
            raise Unrecorded
        argument = self.arguments[position] if position < len(self.arguments) else None
        return None if isinstance(argument, Tensor | tuple) else argument

    def number(self, position: int) -> int:
        """Return the integer at this position. Raises `Unrecorded` or `Malformed`."""
        argument = self.value(position)
        if type(argument) is not int:
            raise Malformed("arguments that do not fit the operator")
        return argument

    def flag(self, position: int) -> bool:
        """Return the boolean at this position; an omitted one is False. Raises `Unrecorded`."""
        return self.value(position) is True

    def numbers(self, position: int) -> Shape:
        """Return the list of integers at this position; one integer becomes a list.

        Raises `Unrecorded` or `Malformed`.
        """
        value = self.value(position)
        values = [value] if type(value) is int else value
        if not isinstance(values, list) or any(type(n) is not int for n in values):
            raise Malformed("arguments that do not fit the operator")
        return tuple(values)

    def sizes(self, position: int, rank: int) -> Shape:
        """Return a size for each of ``rank`` dimensions; a list of one applies to all. Raises like `numbers`."""
        values = self.numbers(position)
        values = values * rank if len(values) == 1 else values
        require(len(values) == rank and all(0 <= n < 2**31 for n in values))
        return values

    def mask(self, position: int) -> tuple[bool, ...]:
        """Return the list of booleans at this position: the requested gradients. Raises `Unrecorded` or `Malformed`."""
        value = self.value(position)
        if not isinstance(value, list):
            raise Malformed("arguments that do not fit the operator")
        return tuple(item is True for item in value)

    def wanted(self, position: int, of_input: bool, *parameters: Tensor | None) -> tuple[bool, ...]:
        """Return the requested gradients; without values, those of the input (``of_input``) and given parameters."""
        return self.mask(position) if self.valued else (of_input, *(one is not None for one in parameters))

    def type_at(self, position: int) -> Dtype | None:
        """Return the element type that a concrete input names; None where it names none or values are not recorded."""
        value = self.value(position) if self.valued else None
        return DTYPES.get(_SCALAR_TYPES.get(value, "")) if isinstance(value, int) else None

    def given(self, first: int = 0) -> list[Tensor]:
        """Return all tensor arguments from a position on."""
        return [argument for argument in self.arguments[first:] if isinstance(argument, Tensor)]


Formula = Callable[[Call], Work]


def require(condition: bool) -> None:
    """Raise `Malformed` unless the shapes agree."""
    if not condition:
        raise Malformed("shapes that contradict each other")


class Record(NamedTuple):
    """Kineto's record of a call: its name, and its arguments as JSON text, None where missing.

    ``list_element_bytes`` is the element size of tensor lists, of which Kineto records only the shapes. The other
    fields come from `trace_analyzer.analyses.work.completion`: the enclosing operator with its shapes, the shape of the
    result, the operand type where none was recorded, and the computed gradients, joined by commas.
    """

    operator: str
    input_dims: str | None
    input_types: str | None
    input_strides: str | None = None
    concrete_inputs: str | None = None
    list_element_bytes: float | None = None
    outer: str | None = None
    outer_dims: str | None = None
    result_dims: str | None = None
    assumed_type: str | None = None
    gradients: str | None = None


def call_of(record: Record) -> Call:
    """Return the call from Kineto's record.

    Raises `Malformed` for invalid text, and `Unrecorded` where shapes or types were not recorded.
    """
    if record.input_dims is None or (record.input_types is None and record.assumed_type is None):
        raise Unrecorded
    shapes = _list(record.input_dims)
    names = _assumed(record, shapes) if record.input_types is None else _list(record.input_types)
    if len(shapes) != len(names):
        raise Malformed("unequal numbers of shapes and types")
    spread = _list(record.input_strides) if record.input_strides else []
    values = _list(record.concrete_inputs) if record.concrete_inputs else []
    if not all(isinstance(name, str) for name in names):
        raise Malformed("types that are not names")
    arguments = tuple(
        _argument(
            shape,
            name,
            spread[i] if i < len(spread) else None,
            values[i] if i < len(values) else "",
            record.list_element_bytes,
        )
        for i, (shape, name) in enumerate(zip(shapes, names, strict=True))
    )
    outer = () if record.outer_dims is None else tuple(_shape_or_none(shape) for shape in _list(record.outer_dims))
    result = None if record.result_dims is None else _shape(_list(record.result_dims))
    gradients = tuple(record.gradients.split(",")) if record.gradients else ()
    return Call(record.operator, arguments, tuple(names), bool(values), record.outer, outer, result, gradients)


# Arguments that are no floating-point operands, for operators in files without types.
_INDICES, _MASKS = "long int", "bool"
_OTHER_TYPES: dict[str, dict[int, str]] = {
    "aten::embedding": {1: _INDICES},
    "aten::embedding_dense_backward": {1: _INDICES},
    **{key: {2: _INDICES} for key in ("aten::index_select", "aten::gather", "aten::index_add_")},
    **{f"aten::{name}{end}": {2: _INDICES} for name in ("scatter", "scatter_add") for end in ("", "_")},
    **{key: {1: _INDICES} for key in ("aten::nll_loss_forward", "aten::nll_loss")},
    "aten::nll_loss_backward": {2: _INDICES},
    **{f"aten::masked_fill{end}": {1: _MASKS} for end in ("", "_")},
    **{key: {0: _MASKS} for key in ("aten::where", "aten::_s_where")},
    "aten::native_dropout_backward": {1: _MASKS},
}


def _assumed(record: Record, shapes: list[Any]) -> list[str]:
    """Return types for shapes without recorded ones: the kernel's operand type, except for indices and masks."""
    others = _OTHER_TYPES.get(record.operator, {})
    return [
        "" if not isinstance(shape, list) or not shape
        else "TensorList" if isinstance(shape[0], list)
        else others.get(i, record.assumed_type or "")
        for i, shape in enumerate(shapes)
    ]  # fmt: skip


def _shape_or_none(shape: Any) -> Shape | None:
    return _shape(shape) if isinstance(shape, list) and shape and not isinstance(shape[0], list) else None


def tensor_of(shape: Shape, dtype: Dtype | None) -> Tensor:
    """Return a dense tensor with a shape from values of the call. Raises `Malformed` for impossible sizes."""
    require(all(0 <= n <= MOST_ELEMENTS for n in shape) and prod(shape) <= MOST_ELEMENTS)
    return Tensor(shape, dtype)


def same_tensor(one: Tensor, other: Tensor) -> bool:
    """Return whether two arguments can be one tensor, with equal shape, type and, where recorded, strides."""
    return one.shape == other.shape and one.dtype == other.dtype and one.strides == other.strides


def doubtful_bytes(tensors: list[Tensor]) -> float:
    """Return the bytes of operands that may not be read: they may equal another operand, or be expanded."""
    return sum(
        tensor.bytes
        for i, tensor in enumerate(tensors)
        if tensor.strides is None or any(same_tensor(tensor, earlier) for earlier in tensors[:i])
    )


def promoted(tensors: list[Tensor]) -> Dtype | None:
    """Return the result type of arithmetic on these tensors; None where a type is unknown.

    A tensor without dimensions (a wrapped number) counts only if its category is higher.
    """
    if not tensors or any(tensor.dtype is None for tensor in tensors):
        return None
    dimensioned = [tensor.dtype for tensor in tensors if tensor.shape and tensor.dtype]
    numbers = [tensor.dtype for tensor in tensors if not tensor.shape and tensor.dtype]
    best = max(dimensioned or numbers, key=attrgetter("rank"))
    number = max(numbers, key=attrgetter("rank"), default=best)
    if number.rank // 10 <= best.rank // 10:
        return best
    return FLOAT32 if _FLOATS <= number.rank < _COMPLEX else number


def floating(dtype: Dtype | None) -> Dtype | None:
    """Return the result type of a function without integer results (a division, an exponential)."""
    return FLOAT32 if dtype is not None and dtype.rank < _FLOATS else dtype


def compute(dtype: Dtype | None) -> str | None:
    """Return the device catalogue's name of arithmetic on this type; None for integers and unknown types."""
    return dtype.compute if dtype is not None and dtype.rank >= _FLOATS else None


def total_bytes(*tensors: Tensor | None) -> float:
    """Return the bytes of the given tensors. Raises `Unrecorded` where a type is unknown."""
    return float(sum(tensor.bytes for tensor in tensors if tensor is not None))


def moved(tensor: Tensor, *others: Tensor | None, flop: float = 0.0) -> Work:
    """Count each of these tensors once, with arithmetic in the type of the first."""
    return Work(flop, total_bytes(tensor, *others), compute(tensor.dtype))


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape that these broadcast to. Raises Malformed where they do not."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    sizes = [set(column) - {1} for column in zip(*padded, strict=True)]
    if any(len(size) > 1 for size in sizes):
        raise Malformed("shapes that contradict each other")
    return tuple(size.pop() if size else 1 for size in sizes)


def operators(*rows: tuple[str, str, Formula]) -> dict[str, Formula]:
    """Return the formula of each operator, from rows of namespaces, names and the formula of all of these.

    >>> list(operators(("_C sgl_kernel", "rmsnorm", lambda call: Work(0.0, 0.0, None))))
    ['_C::rmsnorm', 'sgl_kernel::rmsnorm']
    """
    return {
        f"{namespace}::{name}": formula
        for namespaces, names, formula in rows
        for namespace in namespaces.split()
        for name in names.split()
    }


def _list(text: str) -> list[Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list):
        raise Malformed("text that is not a list")
    return values


def _argument(shape: Any, name: str, strides: Any, value: Any, list_element_bytes: float | None) -> Any:
    if name == "TensorList":
        if not isinstance(shape, list) or not shape:
            return None
        element = None if list_element_bytes is None else _OPAQUE.get(list_element_bytes)
        inner = strides if isinstance(strides, list) and len(strides) == len(shape) else [None] * len(shape)
        return tuple(Tensor(_shape(one), element, _strides(of)) for one, of in zip(shape, inner, strict=True))
    if name not in DTYPES and shape == []:
        return _value(value)
    if name in ("", "Scalar", "ScalarList"):
        raise Malformed("shapes of arguments that are not tensors")
    if strides == [] and shape:  # a sparse tensor, which has no storage of its shape
        raise Unrecorded
    return Tensor(_shape(shape), DTYPES.get(name), _strides(strides))


# An element with known size only; two bytes mean neither of the two 16-bit types.
_OPAQUE = {
    float(size): Dtype(size, "fp32" if size == 4 else "fp64" if size == 8 else None, 23) for size in (1, 2, 4, 8, 16)
}


def _shape(shape: Any) -> Shape:
    if not isinstance(shape, list) or any(type(n) is not int for n in shape):
        raise Malformed("shapes that are not lists of integers")
    if any(n < 0 for n in shape):
        raise Malformed("negative sizes")
    if len(shape) > 64 or prod(shape) > MOST_ELEMENTS or max(shape, default=0) > MOST_ELEMENTS:
        raise Malformed("sizes larger than any memory")
    return tuple(shape)


def _strides(strides: Any) -> Shape | None:
    if not isinstance(strides, list) or any(type(n) is not int or n < 0 for n in strides):
        return None
    return tuple(strides)


# C++ prints whole floats as `2.`, which is no JSON.
_WHOLE_FLOAT = re.compile(r"(?<=[0-9])\.(?![0-9])")


def _value(text: Any) -> Any:
    """Parse a concrete input in Kineto's notation: ``[1, 1]``, ``True``, ``0.125``, ``mean``; empty text is None."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return json.loads(_WHOLE_FLOAT.sub(".0", text).replace("True", "true").replace("False", "false"))
    except (ValueError, RecursionError):
        return text
