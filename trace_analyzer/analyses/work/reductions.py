"""Count reductions: the input is read once, the result written once.

FLOP per element read follow from the definition.
"""

from dataclasses import replace
from math import prod

from trace_analyzer.analyses.work.calls import (
    BOOL,
    INT64,
    Call,
    Dtype,
    Formula,
    Shape,
    Tensor,
    Unrecorded,
    Work,
    compute,
    floating,
    require,
    total_bytes,
)


def reduced(given: Tensor, dims: Shape | None) -> int:
    """Return the number of elements that remain after reducing these dimensions (all of them by default)."""
    rank = max(1, len(given.shape))
    require(dims is None or all(-rank <= dim < rank for dim in dims))
    gone = set(range(rank)) if not dims else {dim % rank for dim in dims}
    return prod(n for i, n in enumerate(given.shape) if i not in gone)


def _dims(call: Call, position: int) -> Shape | None:
    """Return the dimensions at this position: None or an empty list means all.

    Without values, all dimensions are assumed to be reduced, which gives the smallest result.
    """
    if position >= len(call.arguments) or not call.valued:
        return None
    value = call.value(position)
    return None if value is None or value == [] else call.numbers(position)


def _formula(flop: float, *, dims: int, result: Dtype | None = None, dtype: int | None = None) -> Formula:
    """Return a formula; ``dims`` and ``dtype`` are positions in the overload with dimensions.

    Other overloads have too few arguments to contain them.
    """

    def formula(call: Call) -> Work:
        given = call.tensor(0)
        whole = len(call.arguments) <= 2 and dims == 1
        left = 1 if whole else reduced(given, _dims(call, dims))
        named = None if dtype is None else call.type_at(1 if whole else dtype)
        answer = Tensor((left,), result or named or given.dtype)
        least = not (whole or call.valued)
        return Work(flop * given.elements, total_bytes(given, answer), compute(floating(given.dtype)), least=least)

    return formula


def norm(call: Call) -> Work:
    """Count linalg_vector_norm(self, ord, dim, keepdim, dtype): square, add."""
    given = call.tensor(0)
    answer = Tensor((reduced(given, _dims(call, 2)),), call.type_at(4) or given.dtype)
    return Work(2.0 * given.elements, total_bytes(given, answer), compute(given.dtype), least=not call.valued)


def both_moments(call: Call) -> Work:
    """Count var_mean, std_mean, which write two results."""
    one = _SPREAD(call)
    given = call.tensor(0)
    whole = len(call.arguments) <= 2
    left = 1 if whole else reduced(given, _dims(call, 1))
    return replace(one, moved_bytes=None if one.moved_bytes is None else one.moved_bytes + left * given.size)


def range_of(call: Call) -> Work:
    """Count aminmax(self, dim, keepdim): two comparisons, two results."""
    given = call.tensor(0)
    answer = Tensor((reduced(given, _dims(call, 1)),), given.dtype)
    return Work(2.0 * given.elements, total_bytes(given, answer, answer), compute(given.dtype), least=not call.valued)


def running_extremum(call: Call) -> Work:
    """Count cummax, cummin(self, dim): values and indices are written."""
    given = call.tensor(0)
    written = Tensor(given.shape, given.dtype), Tensor(given.shape, INT64)
    return Work(float(given.elements), total_bytes(given, *written), compute(given.dtype))


def old_norm(call: Call) -> Work:
    """Count norm(self, p, [dim, keepdim]) of PyTorch before 1.12: square, add."""
    given = call.tensor(0)
    whole = len(call.arguments) <= 2
    answer = Tensor((1 if whole else reduced(given, _dims(call, 2)),), given.dtype)
    return Work(
        2.0 * given.elements, total_bytes(given, answer), compute(given.dtype), least=not (whole or call.valued)
    )


def extremum(call: Call) -> Work:
    """Count max, min: (self), or (self, dim, keepdim) with indices; the elementwise (self, other) stays unknown."""
    given, other = call.tensor(0), call.optional(1)
    if other is not None:
        raise Unrecorded
    whole = len(call.arguments) == 1
    left = 1 if whole else reduced(given, _dims(call, 1))
    result = Tensor((left,), given.dtype)
    return Work(
        float(given.elements),
        total_bytes(given, result, None if whole else Tensor((left,), INT64)),
        compute(given.dtype),
        least=not (whole or call.valued),
    )


def scan(call: Call) -> Work:
    """Count cumsum, cumprod, ...: read and written once."""
    given = call.tensor(0)
    answer = Tensor(given.shape, call.type_at(2) or (INT64 if given.dtype and given.dtype.rank < 20 else given.dtype))
    return Work(float(given.elements), total_bytes(given, answer), compute(given.dtype))


_SUM = _formula(1, dims=1, dtype=3)
_TRUTH = _formula(1, dims=1, result=BOOL)
_SPREAD = _formula(4, dims=1)

FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("aten::sum", "aten::nansum", "aten::mean", "aten::prod"), _SUM),
    **dict.fromkeys(("aten::amax", "aten::amin"), _formula(1, dims=1)),
    "aten::logsumexp": _formula(4, dims=1),
    **dict.fromkeys(("aten::all", "aten::any"), _TRUTH),
    **dict.fromkeys(("aten::argmax", "aten::argmin"), _formula(1, dims=1, result=INT64)),
    **dict.fromkeys(("aten::max", "aten::min"), extremum),
    **dict.fromkeys(("aten::var", "aten::std"), _SPREAD),
    "aten::linalg_vector_norm": norm,
    **dict.fromkeys(("aten::var_mean", "aten::std_mean"), both_moments),
    **dict.fromkeys(("aten::aminmax", "aten::_aminmax"), range_of),
    "aten::norm": old_norm,
    **dict.fromkeys(
        [f"aten::{name}" for name in ("cummax", "cummin", "_cummax_helper", "_cummin_helper")], running_extremum
    ),
    **dict.fromkeys([f"aten::{name}" for name in ("cumsum", "cumprod", "cumsum_", "cumprod_", "_logcumsumexp")], scan),
}
