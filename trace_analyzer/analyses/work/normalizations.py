"""Count normalization, softmax and losses over rows.

FLOP per element follow from the definitions (see each function). Each tensor is read or written once, although kernels
that do not keep a row on the chip read it two or three times.
"""

from trace_analyzer.analyses.work.calls import (
    FLOAT32,
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

_STATISTICS = 4  # mean: add; variance: subtract, square, add
_SCALE = 2  # subtract the mean, divide by the deviation
_INPUT_GRADIENT = 10  # normalized value 2, weighted gradient 1, two sums 3, combination 4
_WEIGHT_GRADIENT = 2  # multiply, add


def _statistics(count: int, dtype: Dtype | None) -> Tensor:
    """Return mean and deviation of ``count`` rows, stored in FP32 for narrower types."""
    return Tensor((2, count), FLOAT32 if dtype is not None and dtype.bytes < 4 else dtype)


def _affine(given: Tensor, weight: Tensor | None, bias: Tensor | None) -> float:
    return float(given.elements * ((weight is not None) + (bias is not None)))


def layer_norm(call: Call) -> Work:
    """Count native_layer_norm(input, normalized_shape, weight, bias, eps)."""
    given, weight, bias = call.tensor(0), call.optional(2), call.optional(3)
    try:
        row = call.numbers(1)
    except Unrecorded:
        if weight is None:
            raise
        row = weight.shape
    require(bool(row) and given.shape[-len(row) :] == tuple(row))
    rows = given.elements // max(1, Tensor(tuple(row), None).elements)
    moved = total_bytes(given, weight, bias, Tensor(given.shape, given.dtype), _statistics(rows, given.dtype))
    return Work((_STATISTICS + _SCALE) * given.elements + _affine(given, weight, bias), moved, compute(given.dtype))


def layer_norm_backward(call: Call) -> Work:
    """Count native_layer_norm_backward(grad_out, input, shape, mean, rstd, weight, bias, output_mask)."""
    wanted = call.mask(7) if call.valued else (True, call.optional(5) is not None, call.optional(6) is not None)
    return _backward(call.tensor(0), call.tensor(1), (call.optional(3), call.optional(4)), call.optional(5), wanted)


def _backward(
    gradient: Tensor, given: Tensor, sums: tuple[Tensor | None, ...], weight: Tensor | None, wanted: tuple[bool, ...]
) -> Work:
    require(gradient.elements == given.elements and len(wanted) == 3)
    of_input, of_weight, of_bias = wanted
    flop = _INPUT_GRADIENT * of_input + _WEIGHT_GRADIENT * of_weight + of_bias
    written = [Tensor(given.shape, given.dtype)] if of_input else []
    written += [weight] * (of_weight + of_bias) if weight is not None else []
    return Work(
        float(flop * given.elements), total_bytes(gradient, given, *sums, weight, *written), compute(given.dtype)
    )


def batch_norm(call: Call) -> Work:
    """Count native_batch_norm, cudnn_batch_norm, miopen_batch_norm(input, weight, bias, mean, var, training, ...).

    Without running statistics, _native_batch_norm_legit has the flag training in their place; _batch_norm_with_update
    always trains.
    """
    given, weight, bias = call.tensor(0), call.optional(1), call.optional(2)
    require(len(given.shape) >= 2)
    if call.valued and "with_update" not in call.operator:
        training = call.flag(5) or call.flag(3)
    else:
        training = call.operator.startswith(("aten::cudnn", "aten::_batch_norm_with_update"))
    flop = (_STATISTICS if training else 0) + _SCALE
    moved = total_bytes(given, weight, bias, call.optional(3), call.optional(4), Tensor(given.shape, given.dtype))
    moved += _statistics(given.shape[1], given.dtype).bytes if training else 0.0
    # Without values, it is unknown whether statistics were computed too; training operators of libraries always compute
    # them.
    least = not call.valued and not training
    return Work(flop * given.elements + _affine(given, weight, bias), moved, compute(given.dtype), least=least)


def batch_norm_backward(call: Call) -> Work:
    """Count cudnn_batch_norm_backward, miopen_batch_norm_backward.

    Their arguments are (input, grad_output, weight, ..., save_mean, save_var).
    """
    given, gradient, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    return _backward(gradient, given, (call.optional(5), call.optional(6)), weight, (True, True, True))


def native_batch_norm_backward(call: Call) -> Work:
    """Count native_batch_norm_backward(grad_out, input, weight, mean, var, ..., train, eps, mask).

    Its arguments are (grad_out, input, weight, mean, var, save_mean, save_invstd, train, eps, mask).
    """
    weight = call.optional(2)
    wanted = call.wanted(9, True, weight, weight)
    return _backward(call.tensor(0), call.tensor(1), (call.optional(5), call.optional(6)), weight, wanted)


def batch_statistics(call: Call) -> Work:
    """Count batch_norm_stats(input, eps) of synchronized batch norm: mean and standard deviation of each channel."""
    given = call.tensor(0)
    require(len(given.shape) >= 2)
    return Work(
        float(_STATISTICS * given.elements),
        total_bytes(given, _statistics(given.shape[1], given.dtype)),
        compute(given.dtype),
    )


def batch_elements(call: Call) -> Work:
    """Count batch_norm_elemt(input, weight, bias, mean, invstd, eps): subtract, scale."""
    given, weight, bias = call.tensor(0), call.optional(1), call.optional(2)
    moved = total_bytes(given, weight, bias, call.optional(3), call.optional(4), Tensor(given.shape, given.dtype))
    return Work(_SCALE * given.elements + _affine(given, weight, bias), moved, compute(given.dtype))


def batch_sums(call: Call) -> Work:
    """Count batch_norm_backward_reduce(grad_out, input, mean, invstd, ...): subtract, multiply, two sums.

    Four results per channel are written.
    """
    gradient, given = call.tensor(0), call.tensor(1)
    require(gradient.elements == given.elements and len(given.shape) >= 2)
    sums = _statistics(given.shape[1], given.dtype)
    return Work(4.0 * given.elements, total_bytes(gradient, given, sums, sums, sums), compute(given.dtype))


def batch_gradient(call: Call) -> Work:
    """Count batch_norm_backward_elemt(grad_out, input, mean, invstd, weight, sums ...).

    FLOP per element: two differences, three products, scale.
    """
    gradient, given = call.tensor(0), call.tensor(1)
    require(gradient.elements == given.elements)
    return Work(
        6.0 * given.elements,
        total_bytes(gradient, given, *call.given(2), Tensor(given.shape, given.dtype)),
        compute(given.dtype),
    )


def gathered_statistics(call: Call) -> Work:
    """Count batch_norm_gather_stats_with_counts(input, mean, invstd, ...): the statistics of each rank.

    Only the type of the input is used.
    """
    parts = call.given(1)
    require(bool(parts))
    return Work(6.0 * parts[0].elements, total_bytes(*parts), compute(parts[0].dtype), least=True)


def group_norm(call: Call) -> Work:
    """Count native_group_norm(input, weight, bias, N, C, HxW, group, eps)."""
    given, weight, bias = call.tensor(0), call.optional(1), call.optional(2)
    require(len(given.shape) >= 2)
    rows = given.shape[0] * (call.number(6) if call.valued else 1)
    moved = total_bytes(given, weight, bias, Tensor(given.shape, given.dtype), _statistics(rows, given.dtype))
    flop = (_STATISTICS + _SCALE) * given.elements + _affine(given, weight, bias)
    return Work(flop, moved, compute(given.dtype), least=not call.valued)


def group_norm_backward(call: Call) -> Work:
    """Count native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)."""
    weight = call.optional(4)
    wanted = call.wanted(9, True, weight, weight)
    return _backward(call.tensor(0), call.tensor(1), (call.optional(2), call.optional(3)), weight, wanted)


def rms_norm(call: Call) -> Work:
    """Count _fused_rms_norm(input, normalized_shape, weight, eps): square, add; divide by the root."""
    given, weight = call.tensor(0), call.optional(2)
    moved = total_bytes(given, weight, Tensor(given.shape, given.dtype))
    return Work(3.0 * given.elements + _affine(given, weight, None), moved, compute(given.dtype))


def rms_norm_backward(call: Call) -> Work:
    """Count _fused_rms_norm_backward(grad_out, input, normalized_shape, rstd, weight, output_mask)."""
    wanted = (*call.wanted(5, True, call.optional(4)), False, False)[:2]
    return _backward(call.tensor(0), call.tensor(1), (call.optional(3),), call.optional(4), (*wanted, False))


def softmax(call: Call) -> Work:
    """Count _softmax, _log_softmax(self, dim, half_to_float): maximum, subtract, exp, add, divide."""
    given = call.tensor(0)
    # Without values, it is unknown whether a 16-bit type was widened (half_to_float).
    least = not call.valued and given.dtype is not None and given.dtype.bytes < 4
    widened = call.valued and call.flag(2)
    answer = Tensor(given.shape, FLOAT32 if widened else floating(given.dtype))
    return Work(5.0 * given.elements, total_bytes(given, answer), compute(given.dtype), least=least)


def masked_softmax(call: Call) -> Work:
    """Count _masked_softmax(self, mask, dim, mask_type) of fast transformer layers: `softmax` that reads a mask."""
    given = call.tensor(0)
    return Work(
        5.0 * given.elements, total_bytes(given, call.tensor(1), Tensor(given.shape, given.dtype)), compute(given.dtype)
    )


def biased_heads(call: Call) -> Work:
    """Count _transform_bias_rescale_qkv(qkv, bias, heads): adds the bias, scales the query, writes three results."""
    given, bias = call.tensor(0), call.tensor(1)
    require(given.shape[-1:] == bias.shape[-1:])
    flop = given.elements * 4 / 3
    return Work(flop, total_bytes(given, bias, Tensor(given.shape, given.dtype)), compute(given.dtype))


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
    given, target = call.tensor(1), call.tensor(2)
    return Work(
        float(target.elements),
        total_bytes(call.tensor(0), target, Tensor(given.shape, given.dtype)),
        compute(given.dtype),
    )


FORMULAS: dict[str, Formula] = {
    "aten::native_layer_norm": layer_norm,
    "aten::native_layer_norm_backward": layer_norm_backward,
    **{f"aten::{library}_batch_norm": batch_norm for library in ("native", "cudnn", "miopen")},
    **dict.fromkeys(("aten::_native_batch_norm_legit", "aten::_batch_norm_with_update"), batch_norm),
    "aten::batch_norm_stats": batch_statistics,
    "aten::batch_norm_elemt": batch_elements,
    "aten::batch_norm_backward_reduce": batch_sums,
    "aten::batch_norm_backward_elemt": batch_gradient,
    "aten::batch_norm_gather_stats_with_counts": gathered_statistics,
    **{f"aten::{library}_batch_norm_backward": batch_norm_backward for library in ("cudnn", "miopen")},
    **dict.fromkeys(("aten::native_batch_norm_backward", "aten::batch_norm_backward"), native_batch_norm_backward),
    "aten::native_group_norm": group_norm,
    "aten::native_group_norm_backward": group_norm_backward,
    "aten::_fused_rms_norm": rms_norm,
    "aten::_fused_rms_norm_backward": rms_norm_backward,
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax"), softmax),
    "aten::_masked_softmax": masked_softmax,
    "aten::_transform_bias_rescale_qkv": biased_heads,
    **dict.fromkeys(("aten::_softmax_backward_data", "aten::_log_softmax_backward_data"), softmax_backward),
    **dict.fromkeys(("aten::nll_loss_forward", "aten::nll_loss2d_forward"), nll_loss),
    **dict.fromkeys(("aten::nll_loss_backward", "aten::nll_loss2d_backward"), nll_loss_backward),
}
