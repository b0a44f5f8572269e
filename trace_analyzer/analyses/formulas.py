"""FLOP and bytes of a call from its operator, shapes and types. Unknown is None, never a guess.

A multiply-add counts as two FLOP, as in ``torch.utils.flop_counter``. Bytes are what must move at
least: every input read once, the output written once.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Work:
    """FLOP and bytes of one call, and the dtype it computes in (as the device catalogue names it)."""

    flop: float
    moved_bytes: float
    dtype: str


# Kineto's names of element types -> (dtype of the catalogue, bytes).
DTYPES: dict[str, tuple[str, int]] = {
    "float": ("fp32", 4),
    "double": ("fp64", 8),
    "c10::Half": ("fp16", 2),
    "c10::BFloat16": ("bf16", 2),
    "c10::Float8_e4m3fn": ("fp8", 1),
    "c10::Float8_e5m2": ("fp8", 1),
    "c10::Float8_e4m3fnuz": ("fp8", 1),
    "c10::Float8_e5m2fnuz": ("fp8", 1),
    "signed char": ("int8", 1),
}


def call_work(operator: str, dims: str | None, types: str | None) -> Work | None:
    """Work of one call, from Kineto's ``Input Dims`` and ``Input type`` as JSON text."""
    operands = _OPERANDS.get(operator)
    if operands is None or dims is None or types is None:
        return None
    try:
        shapes = [tuple(int(n) for n in shape) for shape in json.loads(dims)]
        names = [str(name) for name in json.loads(types)]
        left, right = (shapes[i] for i in operands)
        dtype, size = DTYPES[names[operands[0]]]
    except (ValueError, TypeError, KeyError, IndexError):
        return None
    return (
        _FORMULAS[len(left)](left, right, dtype, size) if len(left) == len(right) and len(left) in _FORMULAS else None
    )


def _mm(left: Shape, right: Shape, dtype: str, size: int) -> Work | None:
    """(m, k) x (k, n): 2 m k n FLOP."""
    (m, k), (k2, n) = left, right
    if k != k2 or min(m, k, n) < 1:
        return None
    return Work(2.0 * m * k * n, float(size * (m * k + k * n + m * n)), dtype)


def _bmm(left: Shape, right: Shape, dtype: str, size: int) -> Work | None:
    """(b, m, k) x (b, k, n): b products."""
    one = _mm(left[1:], right[1:], dtype, size) if left[0] == right[0] else None
    return one and Work(left[0] * one.flop, left[0] * one.moved_bytes, dtype)


_FORMULAS: dict[int, Callable[[Shape, Shape, str, int], Work | None]] = {2: _mm, 3: _bmm}

# Operator -> positions of its two factors.
_OPERANDS = {
    "aten::mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::addmm_": (1, 2),
    "aten::baddbmm": (1, 2),
    "aten::baddbmm_": (1, 2),
    "aten::_scaled_mm": (0, 1),
    "aten::_int_mm": (0, 1),
}
