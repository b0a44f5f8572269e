"""Count reductions, normalizations, softmax and losses: each tensor is read or written once.

FLOP per element read follow from the definition. Kernels that do not keep a row on the chip read it two or three times;
that is not counted.
"""

from math import prod

from trace_analyzer.analyses.work.calls import (
    BOOL,
    FLOAT32,
    INT64,
    Call,
    Dtype,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    compute,
    floating,
    require,
    total_bytes,
)

_REDUCTIONS: tuple[tuple[str, float, int, tuple[Dtype | None, ...], int | None], ...] = (
    # names, FLOP per element, position of the dimensions, types of the results (None: the input's), position of a type
    ("sum nansum mean prod", 1, 1, (None,), 3),
    ("amax amin", 1, 1, (None,), None),
    ("logsumexp", 4, 1, (None,), None),
    ("all any", 1, 1, (BOOL,), None),
    ("argmax argmin", 1, 1, (INT64,), None),
    ("max min", 1, 1, (None, INT64), None),
    ("var std", 4, 1, (None,), None),
    ("var_mean std_mean", 4, 1, (None, None), None),
    ("aminmax _aminmax", 2, 1, (None, None), None),
    ("linalg_vector_norm", 2, 2, (None,), 4),
    ("norm", 2, 2, (None,), None),  # (self, p, [dim, keepdim]), before PyTorch 1.12
)


def _reduction(flop: float, dims: int, results: tuple[Dtype | None, ...], dtype: int | None) -> Formula:
    def formula(call: Call) -> Work:
        given = call.tensor(0)
        with_indices = results[1:] == (INT64,)
        if with_indices and call.optional(1) is not None:
            raise Unrecorded  # the elementwise overload of max and min
        # Overloads without dimensions have too few arguments to contain them, and return no indices.
        whole = len(call.arguments) <= 2
        value = call.value(dims) if call.valued and not whole and dims < len(call.arguments) else None
        # No dimensions mean all. Without values, all are assumed, which gives the smallest result.
        reduced = None if value is None or value == [] else call.numbers(dims)
        rank = max(1, len(given.shape))
        require(reduced is None or all(-rank <= dim < rank for dim in reduced))
        gone = range(rank) if reduced is None else {dim % rank for dim in reduced}
        left = 1 if whole else prod(n for i, n in enumerate(given.shape) if i not in gone)
        named = None if dtype is None else call.type_at(1 if whole else dtype)
        written = results[:1] if whole and with_indices else results
        moved = total_bytes(given, *(Tensor((left,), result or named or given.dtype) for result in written))
        number = given.dtype if with_indices else floating(given.dtype)
        return Work(float(flop * given.elements), moved, compute(number), least=not (whole or call.valued))

    return formula


def scan(call: Call) -> Work:
    """Count cumsum, cumprod, ...: read and written once."""
    given = call.tensor(0)
    answer = Tensor(given.shape, call.type_at(2) or (INT64 if given.dtype and given.dtype.rank < 20 else given.dtype))
    return Work(float(given.elements), total_bytes(given, answer), compute(given.dtype))


_STATISTICS = 4  # mean: add; variance: subtract, square, add
_SCALE = 2  # subtract the mean, divide by the deviation
_INPUT_GRADIENT = 10  # normalized value 2, weighted gradient 1, two sums 3, combination 4
_WEIGHT_GRADIENT = 2  # multiply, add


def _statistics(count: int, dtype: Dtype | None) -> Tensor:
    """Return mean and deviation of ``count`` rows, stored in FP32 for narrower types."""
    return Tensor((2, count), FLOAT32 if dtype is not None and dtype.bytes < 4 else dtype)


def _normalized(
    call: Call, weight: int, bias: int, *others: Tensor | None, flop: int = _STATISTICS + _SCALE, least: bool = False
) -> Work:
    """Count a normalization of tensor 0: it is read and written, and its affine parameters cost one FLOP each."""
    given, affine = call.tensor(0), [call.optional(weight), call.optional(bias)]
    moved = total_bytes(given, *affine, Tensor(given.shape, given.dtype), *others)
    return Work(float((flop + 2 - affine.count(None)) * given.elements), moved, compute(given.dtype), least=least)


def layer_norm(call: Call) -> Work:
    """Count native_layer_norm(input, normalized_shape, weight, bias, eps)."""
    given, weight = call.tensor(0), call.optional(2)
    row = weight.shape if weight is not None and not call.valued else call.numbers(1)
    require(bool(row) and given.shape[-len(row) :] == tuple(row))
    return _normalized(call, 2, 3, _statistics(given.elements // max(1, prod(row)), given.dtype))


def batch_norm(call: Call) -> Work:
    """Count native_batch_norm, cudnn_batch_norm, miopen_batch_norm(input, weight, bias, mean, var, training, ...).

    Without running statistics, _native_batch_norm_legit has the flag training in their place; _batch_norm_with_update
    always trains.
    """
    given = call.tensor(0)
    require(len(given.shape) >= 2)
    if call.valued and "with_update" not in call.operator:
        training = call.flag(5) or call.flag(3)
    else:
        training = call.operator.startswith(("aten::cudnn", "aten::_batch_norm_with_update"))
    computed = _statistics(given.shape[1], given.dtype) if training else None
    # Without values, it is unknown whether statistics were computed too; training operators of libraries always compute
    # them.
    least = not call.valued and not training
    flop = _STATISTICS * training + _SCALE
    return _normalized(call, 1, 2, call.optional(3), call.optional(4), computed, flop=flop, least=least)


def group_norm(call: Call) -> Work:
    """Count native_group_norm(input, weight, bias, N, C, HxW, group, eps)."""
    given = call.tensor(0)
    require(len(given.shape) >= 2)
    rows = given.shape[0] * (call.number(6) if call.valued else 1)
    return _normalized(call, 1, 2, _statistics(rows, given.dtype), least=not call.valued)


def batch_statistics(call: Call) -> Work:
    """Count batch_norm_stats(input, eps) of synchronized batch norm: mean and standard deviation of each channel."""
    given = call.tensor(0)
    require(len(given.shape) >= 2)
    moved = total_bytes(given, _statistics(given.shape[1], given.dtype))
    return Work(float(_STATISTICS * given.elements), moved, compute(given.dtype))


def batch_sums(call: Call) -> Work:
    """Count batch_norm_backward_reduce(grad_out, input, mean, invstd, ...): subtract, multiply, two sums.

    Four results per channel are written.
    """
    gradient, given = call.tensor(0), call.tensor(1)
    require(gradient.elements == given.elements and len(given.shape) >= 2)
    sums = _statistics(given.shape[1], given.dtype)
    return Work(4.0 * given.elements, total_bytes(gradient, given, sums, sums, sums), compute(given.dtype))


_GRADIENTS: tuple[tuple[str, int, int, tuple[int, ...], int, int | None, int | None], ...] = (
    # names, positions of: gradient, input, saved statistics, weight, bias, requested gradients (None: all of them)
    ("native_layer_norm_backward", 0, 1, (3, 4), 5, 6, 7),
    ("native_group_norm_backward", 0, 1, (2, 3), 4, 4, 9),
    ("native_batch_norm_backward batch_norm_backward", 0, 1, (5, 6), 2, 2, 9),
    ("cudnn_batch_norm_backward miopen_batch_norm_backward", 1, 0, (5, 6), 2, 2, None),
    ("_fused_rms_norm_backward", 0, 1, (3,), 4, None, 5),
)
"""Backward passes of normalizations; without a position of a bias, batch norm has one where it has a weight."""


def _gradient(
    gradient: int, given: int, saved: tuple[int, ...], weight: int, bias: int | None, mask: int | None
) -> Formula:
    def formula(call: Call) -> Work:
        incoming, one, scale = call.tensor(gradient), call.tensor(given), call.optional(weight)
        if mask is None:
            call.tensor(weight)
            wanted: tuple[bool, ...] = (True, True, True)
        elif call.valued:
            wanted = call.mask(mask) if bias is not None else (*(*call.mask(mask), False, False)[:2], False)
        else:
            wanted = (True, scale is not None, bias is not None and call.optional(bias) is not None)
        require(incoming.elements == one.elements and len(wanted) == 3)
        of_input, of_weight, of_bias = wanted
        flop = _INPUT_GRADIENT * of_input + _WEIGHT_GRADIENT * of_weight + of_bias
        written = [Tensor(one.shape, one.dtype)] * of_input + [scale] * (of_weight + of_bias)
        moved = total_bytes(incoming, one, *map(call.optional, saved), scale, *written)
        return Work(float(flop * one.elements), moved, compute(one.dtype))

    return formula


def gathered_statistics(call: Call) -> Work:
    """Count batch_norm_gather_stats_with_counts(input, mean, invstd, ...): the statistics of each rank.

    Only the type of the input is used.
    """
    parts = call.given(1)
    require(bool(parts))
    return Work(6.0 * parts[0].elements, total_bytes(*parts), compute(parts[0].dtype), least=True)


def softmax(call: Call) -> Work:
    """Count _softmax, _log_softmax(self, dim, half_to_float): maximum, subtract, exp, add, divide."""
    given = call.tensor(0)
    # Without values, it is unknown whether a 16-bit type was widened (half_to_float).
    least = not call.valued and given.dtype is not None and given.dtype.bytes < 4
    widened = call.valued and call.flag(2)
    answer = Tensor(given.shape, FLOAT32 if widened else floating(given.dtype))
    return Work(5.0 * given.elements, total_bytes(given, answer), compute(given.dtype), least=least)


def softmax_backward(call: Call) -> Work:
    """Count _softmax_backward_data, _log_softmax_backward_data(grad_output, output, dim, input_dtype).

    FLOP per element: multiply, add; subtract, multiply.
    """
    gradient, output = call.tensor(0), call.tensor(1)
    require(gradient.elements == output.elements)
    answer = Tensor(output.shape, call.type_at(3) or output.dtype)
    return Work(4.0 * output.elements, total_bytes(gradient, output, answer), compute(output.dtype))


def nll_loss(call: Call) -> Work:
    """Count nll_loss_forward(self, target, weight, ...): one element per row is read and added."""
    given, target = call.tensor(0), call.tensor(1)
    require(len(given.shape) in (1, 2, 4))
    picked = Tensor(target.shape, given.dtype)
    return Work(float(target.elements), total_bytes(target, picked, call.optional(2)), compute(given.dtype))


def nll_loss_backward(call: Call) -> Work:
    """Count nll_loss_backward(grad_output, self, target, weight, ...): writes zeros and one element per row."""
    gradient, given, target = (call.tensor(i) for i in range(3))
    moved = total_bytes(gradient, target, Tensor(given.shape, given.dtype))
    return Work(float(target.elements), moved, compute(given.dtype))


FORMULAS: dict[str, Formula] = {
    **{f"aten::{name}": _reduction(*row[1:]) for row in _REDUCTIONS for name in row[0].split()},
    **{f"aten::{name}": _gradient(*row[1:]) for row in _GRADIENTS for name in row[0].split()},
    **dict.fromkeys([f"aten::{name}" for name in ("cumsum", "cumprod", "cumsum_", "cumprod_", "_logcumsumexp")], scan),
    "aten::native_layer_norm": layer_norm,
    **{f"aten::{library}_batch_norm": batch_norm for library in ("native", "cudnn", "miopen")},
    **dict.fromkeys(("aten::_native_batch_norm_legit", "aten::_batch_norm_with_update"), batch_norm),
    "aten::native_group_norm": group_norm,
    "aten::batch_norm_stats": batch_statistics,
    "aten::batch_norm_backward_reduce": batch_sums,
    "aten::batch_norm_gather_stats_with_counts": gathered_statistics,
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax"), softmax),
    **dict.fromkeys(("aten::_softmax_backward_data", "aten::_log_softmax_backward_data"), softmax_backward),
    **dict.fromkeys(("aten::nll_loss_forward", "aten::nll_loss2d_forward"), nll_loss),
    **dict.fromkeys(("aten::nll_loss_backward", "aten::nll_loss2d_backward"), nll_loss_backward),
}
