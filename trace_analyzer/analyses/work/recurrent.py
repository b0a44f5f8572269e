"""Count recurrent layers of cuDNN and MIOpen, fused cells, Fourier transforms, distances and weight normalization."""

from dataclasses import replace
from math import prod

from trace_analyzer.analyses.work.calls import (
    DTYPES,
    FLOAT32,
    Call,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    compute,
    require,
    tensor_of,
)
from trace_analyzer.analyses.work.matmuls import broadcast
from trace_analyzer.analyses.work.movement import moved


def recurrent(call: Call) -> Work:
    """Count _cudnn_rnn, miopen_rnn(input, weights, ...): every weight multiplies one row per sample, step and layer.

    The input is (steps, samples, width), or (rows, width) for packed sequences. Tensors saved for the backward pass are
    not counted.
    """
    given, weights = call.tensor(0), call.tensors(1)
    require(len(given.shape) in (2, 3))
    rows = prod(given.shape[:-1])
    elements = sum(weight.elements for weight in weights if len(weight.shape) == 2)
    if not elements or given.dtype is None or given.dtype.compute is None:
        raise Unrecorded
    read = sum(weight.elements for weight in weights) * given.size
    return Work(2.0 * rows * elements, given.bytes + read, given.dtype.compute, least=True)


def recurrent_backward(call: Call) -> Work:
    """Count _cudnn_rnn_backward, miopen_rnn_backward(input, weights, ...): two matmuls for each forward one."""
    work = recurrent(call)
    return replace(work, flop=None if work.flop is None else 2 * work.flop)


_LSTM = 3 * 4 + 1 + 3 + 2
"""FLOP per element of an LSTM cell: three sigmoids, a tanh; f c + i g; o tanh(c)."""
_GRU = 2 * 4 + 1 + 5
"""FLOP per element of a GRU cell: two sigmoids, a tanh; n + r h, (1 - z) n + z h."""


def lstm_cell(call: Call) -> Work:
    """Count _thnn_fused_lstm_cell(input_gates, hidden_gates, cx, biases): h, c and four gates are written."""
    gates, hidden, state = (call.tensor(i) for i in range(3))
    require(gates.elements == hidden.elements == 4 * state.elements)
    sums = 1 + sum(call.optional(i) is not None for i in (3, 4))
    written = [Tensor(state.shape, state.dtype)] * 2 + [Tensor(gates.shape, gates.dtype)]
    flop = float((_LSTM + 4 * sums) * state.elements)
    return moved(gates, hidden, state, call.optional(3), call.optional(4), *written, flop=flop)


def gru_cell(call: Call) -> Work:
    """Count _thnn_fused_gru_cell(input_gates, hidden_gates, hx, biases): three gates.

    h and five saved tensors are written.
    """
    gates, hidden, state = (call.tensor(i) for i in range(3))
    require(gates.elements == hidden.elements == 3 * state.elements)
    sums = 1 + sum(call.optional(i) is not None for i in (3, 4))
    written = [Tensor(state.shape, state.dtype)] * 6
    flop = float((_GRU + 3 * sums) * state.elements)
    return moved(gates, hidden, state, call.optional(3), call.optional(4), *written, flop=flop)


_COMPLEX = {4: DTYPES["c10::complex<float>"], 8: DTYPES["c10::complex<double>"], 2: DTYPES["c10::complex<c10::Half>"]}
_REAL = {8: FLOAT32, 16: DTYPES["double"], 4: DTYPES["c10::Half"]}
"""Result types of Fourier transforms by the bytes of the input's elements."""


def fourier(call: Call) -> Work:
    """Count _fft_c2c(self, dims, ...), _fft_r2c(self, dims, norm, onesided), _fft_c2r(self, dims, norm, last_size).

    FLOP depend on the factorization of the sizes.
    """
    given = call.tensor(0)
    if given.dtype is None:
        raise Unrecorded
    if call.operator == "aten::_fft_c2c":
        return replace(moved(given, Tensor(given.shape, given.dtype)), flop=None)
    last = next(reversed(call.numbers(1)), 0)
    require(bool(given.shape) and -len(given.shape) <= last < len(given.shape))
    shape = list(given.shape)
    to_real = call.operator == "aten::_fft_c2r"
    onesided = not to_real and call.flag(3)
    shape[last] = call.number(3) if to_real else shape[last] // 2 + 1 if onesided else shape[last]
    dtype = (_REAL if to_real else _COMPLEX).get(int(given.dtype.bytes))
    return replace(moved(given, tensor_of(tuple(shape), dtype)), flop=None)


def distances(call: Call) -> Work:
    """Count _cdist_forward(x1, x2, p, ...) for each pair of rows: subtract, power, add."""
    one, other = call.tensor(0), call.tensor(1)
    require(len(one.shape) >= 2 and len(other.shape) >= 2 and one.shape[-1] == other.shape[-1])
    shape = (*broadcast(one.shape[:-2], other.shape[:-2]), one.shape[-2], other.shape[-2])
    return moved(one, other, Tensor(shape, one.dtype), flop=3.0 * prod(shape) * one.shape[-1])


def distances_backward(call: Call) -> Work:
    """Count _cdist_backward(grad, x1, x2, p, distances): subtract, multiply, add.

    All are read, and the gradient of x1 is written.
    """
    gradient, one, other, known = (call.tensor(i) for i in (0, 1, 2, 4))
    require(gradient.elements == known.elements and bool(one.shape))
    flop = 4.0 * gradient.elements * one.shape[-1]
    return moved(one, gradient, other, known, Tensor(one.shape, one.dtype), flop=flop)


def weight_norm(call: Call) -> Work:
    """Count _weight_norm_interface(v, g, dim): square, add, scale; the norms are also written."""
    weight, scale = call.tensor(0), call.tensor(1)
    return moved(
        weight, scale, Tensor(weight.shape, weight.dtype), Tensor(scale.shape, FLOAT32), flop=3.0 * weight.elements
    )


def weight_norm_backward(call: Call) -> Work:
    """Count _weight_norm_interface_backward(grad, v, g, norms, dim): product, sum, and a scaled difference 3."""
    gradient, weight, scale, norms = (call.tensor(i) for i in range(4))
    require(gradient.elements == weight.elements)
    written = Tensor(weight.shape, weight.dtype), Tensor(scale.shape, scale.dtype)
    return Work(
        5.0 * weight.elements, moved(gradient, weight, scale, norms, *written).moved_bytes, compute(weight.dtype)
    )


PRODUCTS: dict[str, Formula] = {
    **dict.fromkeys(("aten::_cudnn_rnn", "aten::miopen_rnn"), recurrent),
    **dict.fromkeys(("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward"), recurrent_backward),
}
"""Layers that compute matmuls."""
FORMULAS: dict[str, Formula] = {
    "aten::_thnn_fused_lstm_cell": lstm_cell,
    "aten::_thnn_fused_gru_cell": gru_cell,
    **dict.fromkeys(("aten::_fft_c2c", "aten::_fft_r2c", "aten::_fft_c2r"), fourier),
    "aten::_cdist_forward": distances,
    "aten::_cdist_backward": distances_backward,
    "aten::_weight_norm_interface": weight_norm,
    "aten::_weight_norm_interface_backward": weight_norm_backward,
}
