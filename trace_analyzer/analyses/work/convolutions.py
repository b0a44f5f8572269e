"""Count convolutions and their gradients.

FLOP are counted as in ``torch.utils.flop_counter``, which includes taps in the padding.

There is one intentional difference: the counter does not divide the weight gradient of a grouped convolution by its
groups, though each group has only its own channels; here forward pass and both gradients of a convolution cost the
same.
"""

from functools import partial
from math import prod

from trace_analyzer.analyses.work import calls


def forward(
    call: calls.Call,
    *,
    bias: int | None,
    stride: int,
    padding: int,
    dilation: int | None = None,
    transposed: int | bool = False,
    output_padding: int | None = None,
    groups: int | None = None,
) -> calls.Work:
    """Count a convolution with its arguments at these positions; input and weight come first."""
    given, weight = call.tensor(0), call.tensor(1)
    if not call.valued and call.result is not None:
        return _into(call, call.result, bias)
    turned = transposed if isinstance(transposed, bool) else call.flag(transposed)
    rank = len(given.shape) - 2
    calls.require(rank >= 1 and len(weight.shape) == len(given.shape))
    step, pad = (_spatial(call, position, rank) for position in (stride, padding))
    spread = (1,) * rank if dilation is None else _spatial(call, dilation, rank)
    calls.require(min(step) > 0)
    if turned:
        extra = (0,) * rank if output_padding is None else _spatial(call, output_padding, rank)
        count = 1 if groups is None else call.number(groups)
        space = tuple(
            (n - 1) * s - 2 * p + d * (k - 1) + e + 1
            for n, s, p, d, k, e in zip(given.shape[2:], step, pad, spread, weight.shape[2:], extra, strict=True)
        )
        channels = weight.shape[1] * count
        calls.require(weight.shape[0] == given.shape[1])
    else:
        space = tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, s, p, d, k in zip(given.shape[2:], step, pad, spread, weight.shape[2:], strict=True)
        )
        channels = weight.shape[0]
        calls.require(weight.shape[1] > 0 and given.shape[1] % weight.shape[1] == 0)
    calls.require(min(space) > 0)
    return _product(call, (given.shape[0], channels, *space), bias, turned=turned)


def _product(call: calls.Call, result: calls.Shape, bias: int | None, *, turned: bool = False) -> calls.Work:
    given, weight = call.tensor(0), call.tensor(1)
    output, added = calls.Tensor(result, given.dtype), None if bias is None else call.optional(bias)
    read = _touched(given, weight, result[2:], turned=turned)
    flop = _flop(given.shape[0], given.shape[2:] if turned else result[2:], weight)
    return _work(flop, given, read + calls.total_bytes(weight, added, output))


def _into(call: calls.Call, result: calls.Shape, bias: int | None) -> calls.Work:
    """Count a convolution of unknown stride and padding, whose result is known from its reader."""
    given, weight = call.tensor(0), call.tensor(1)
    calls.require(len(weight.shape) == len(given.shape) == len(result) >= 3)
    calls.require(weight.shape[1] > 0 and given.shape[1] % weight.shape[1] == 0)
    # A usual stride, dilation and padding give this size; padding is limited to the reach of the taps.
    fits = all(
        any(
            (n + 2 * pad - reach - 1) // step + 1 == o
            for step in _STRIDES
            for reach in (spread * (k - 1) for spread in _DILATIONS)
            for pad in range(reach // 2 + 1)
        )
        for n, k, o in zip(given.shape[2:], weight.shape[2:], result[2:], strict=True)
    )
    if not fits or result[0] != given.shape[0] or result[1] != weight.shape[0]:
        raise calls.Unrecorded
    return _product(call, result, bias)


_STRIDES, _DILATIONS = range(1, 9), (1, 2, 4)
"""Strides and dilations of convolutions in real models."""


def _flop(batch: int, space: calls.Shape, weight: calls.Tensor) -> float:
    return 2.0 * batch * prod(space) * weight.elements


def _work(flop: float, operand: calls.Tensor, moved_bytes: float) -> calls.Work:
    if operand.dtype is None or operand.dtype.compute is None:
        raise calls.Unrecorded
    return calls.Work(flop, moved_bytes, operand.dtype.compute)


def _touched(given: calls.Tensor, weight: calls.Tensor, space: calls.Shape, *, turned: bool) -> float:
    """Return the bytes of the input that any tap reads: strides larger than the filter skip some."""
    if turned:
        return given.bytes
    taps = (min(n, count * k) for n, count, k in zip(given.shape[2:], space, weight.shape[2:], strict=True))
    return min(given.bytes, given.shape[0] * given.shape[1] * prod(taps) * given.size)


def _spatial(call: calls.Call, position: int, rank: int) -> calls.Shape:
    """Return one integer per spatial dimension; padding may also be a name, which is `Unrecorded`."""
    if isinstance(call.value(position), str):
        raise calls.Unrecorded
    return call.sizes(position, rank)


def backward(call: calls.Call) -> calls.Work:
    """Count convolution_backward.

    Its arguments are (grad_output, input, weight, bias_sizes, stride, ..., transposed@7, ..., output_mask@10).
    """
    gradient, given, weight = (call.tensor(position) for position in range(3))
    if call.valued:
        return _gradients(gradient, given, weight, call.mask(10), turned=call.flag(7))
    if not call.gradients:
        raise calls.Unrecorded
    calls.require(len(given.shape) == len(gradient.shape) == len(weight.shape) >= 3)
    # A transposed convolution has its filters by input channels, and its result is at least as large as its input.
    fits = gradient.shape[1] == weight.shape[0]
    turned = given.shape[1] == weight.shape[0] and (not fits or prod(gradient.shape[2:]) > prod(given.shape[2:]))
    wanted = ("input" in call.gradients, "weight" in call.gradients, False)
    return _gradients(gradient, given, weight, wanted, turned=turned)


def _gradients(
    gradient: calls.Tensor, given: calls.Tensor, weight: calls.Tensor, wanted: tuple[bool, ...], *, turned: bool
) -> calls.Work:
    rank = len(weight.shape)
    calls.require(rank >= 3 and len(given.shape) == len(gradient.shape) == rank and len(wanted) == 3)
    calls.require(gradient.shape[0] == given.shape[0])
    calls.require(given.shape[1] == weight.shape[0] if turned else gradient.shape[1] == weight.shape[0])
    one = _flop(given.shape[0], given.shape[2:] if turned else gradient.shape[2:], weight)
    of_input, of_weight, of_bias = wanted
    # The input's gradient reads the weight, and the weight's gradient reads the input, if they are requested.
    moved = [gradient]
    moved += [weight, calls.Tensor(given.shape, given.dtype)] if of_input else []
    moved += [given, calls.Tensor(weight.shape, weight.dtype)] if of_weight else []
    moved += [calls.Tensor((gradient.shape[1],), weight.dtype)] if of_bias else []
    return _work(one * (of_input + of_weight), weight, calls.total_bytes(*moved))


def backward_of_both(call: calls.Call) -> calls.Work:
    """Count cudnn_convolution_backward and miopen_convolution_backward before PyTorch 1.11.

    Their arguments are (self, grad_output, weight, ..., output_mask).
    """
    values = map(call.value, range(3, len(call.arguments)))
    wanted = (
        value for value in values if isinstance(value, list) and value and all(type(one) is bool for one in value)
    )
    mask = (*next(wanted, (True, True)), False)[:3]
    return _gradients(call.tensor(1), call.tensor(0), call.tensor(2), mask, turned=False)


def backward_input(call: calls.Call) -> calls.Work:
    """Count cudnn_convolution_backward_input(self_size, grad_output, weight, ...) before PyTorch 1.11.

    The size of its result is a concrete input, or that of the enclosing operator's first tensor; where neither is
    recorded, its bytes are unknown.
    """
    gradient, weight = call.tensor(1), call.tensor(2)
    calls.require(len(gradient.shape) == len(weight.shape) >= 3 and gradient.shape[1] == weight.shape[0])
    size = call.numbers(0) if call.valued else _outer_shape(call, 0)
    moved = None if size is None else calls.total_bytes(gradient, weight, calls.Tensor(size, gradient.dtype))
    flop = _flop(gradient.shape[0], gradient.shape[2:], weight)
    return calls.Work(flop, moved, weight.dtype.compute if weight.dtype else None)


def _outer_shape(call: calls.Call, position: int) -> calls.Shape | None:
    """Return the shape of an argument of cudnn_convolution_backward(self, grad_output, weight, ...)."""
    return call.outer_shapes[position] if position < len(call.outer_shapes) else None


def backward_weight(call: calls.Call) -> calls.Work:
    """Count cudnn_convolution_backward_weight(weight_size, grad_output, self, ...) before PyTorch 1.11."""
    gradient, given = call.tensor(1), call.tensor(2)
    size = call.numbers(0) if call.valued else _outer_shape(call, 2)
    if size is None:
        raise calls.Unrecorded
    weight = calls.Tensor(size, given.dtype)
    return _gradients(gradient, given, weight, (False, True, False), turned=False)


FORMULAS: dict[str, calls.Formula] = calls.operators(
    ("aten", "convolution _convolution convolution_overrideable", partial(forward, bias=2, stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8)),
    ("aten", "conv1d conv2d conv3d cudnn_convolution_relu", partial(forward, bias=2, stride=3, padding=4, dilation=5)),
    ("aten", "conv_transpose1d conv_transpose2d conv_transpose3d", partial(forward, bias=2, stride=3, padding=4, output_padding=5, groups=6, dilation=7, transposed=True)),
    ("aten", "cudnn_convolution", partial(forward, bias=None, padding=2, stride=3, dilation=4)),
    ("aten", "cudnn_convolution_add_relu", partial(forward, bias=4, stride=5, padding=6, dilation=7)),
    ("aten", "cudnn_convolution_transpose", partial(forward, bias=None, padding=2, output_padding=3, stride=4, dilation=5, groups=6, transposed=True)),
    ("aten", "miopen_convolution miopen_depthwise_convolution mkldnn_convolution", partial(forward, bias=2, padding=3, stride=4, dilation=5)),
    ("aten", "miopen_convolution_transpose", partial(forward, bias=2, padding=3, output_padding=4, stride=5, dilation=6, groups=7, transposed=True)),
    ("aten", "_conv_depthwise2d conv_depthwise3d slow_conv_dilated2d slow_conv_dilated3d", partial(forward, bias=3, stride=4, padding=5, dilation=6)),
    ("aten", "slow_conv_transpose2d slow_conv_transpose3d", partial(forward, bias=3, stride=4, padding=5, output_padding=6, dilation=7, transposed=True)),
    ("aten", "_slow_conv2d_forward", partial(forward, bias=3, stride=4, padding=5)),
    ("aten", "convolution_backward convolution_backward_overrideable", backward),
    ("aten", "cudnn_convolution_backward miopen_convolution_backward", backward_of_both),
    ("aten", "cudnn_convolution_backward_input miopen_convolution_backward_input", backward_input),
    ("aten", "cudnn_convolution_backward_weight miopen_convolution_backward_weight", backward_weight),
)  # fmt: skip
