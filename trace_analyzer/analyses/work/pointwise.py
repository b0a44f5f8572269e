"""Count element-wise arithmetic: every input is read once with its own size, and the output is written once.

FLOP per output element follow from the function's definition, where every addition, multiplication, division,
comparison and elementary function (exp, tanh, erf, ...) counts as one.
"""

from dataclasses import dataclass

from trace_analyzer.analyses.work.calls import (
    BOOL,
    Call,
    Dtype,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    compute,
    doubtful_bytes,
    floating,
    promoted,
    same_tensor,
    total_bytes,
)
from trace_analyzer.analyses.work.matmuls import broadcast


@dataclass(frozen=True)
class Pointwise:
    """Declare ``inputs`` (number of leading tensors), ``result`` (same, floating or bool) and FLOP per element."""

    inputs: int
    flop: float
    result: str = "same"


_ONE_INPUT = {
    1: "abs neg exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc erfinv sqrt rsqrt reciprocal floor ceil round trunc frac sign sgn relu square lgamma digamma "
    "angle real imag conj_physical bitwise_not positive pow logit relu6 hardtanh deg2rad rad2deg i0 sinc",
    2: "clamp threshold hardshrink softshrink leaky_relu clip",
    3: "elu celu softplus hardsigmoid nan_to_num log_sigmoid_forward",
    4: "sigmoid hardswish selu",
    5: "silu gelu mish",
}
_TO_BOOL = "isnan isinf isfinite isposinf isneginf logical_not signbit"
_FLOATING = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv "
    "sqrt rsqrt reciprocal sigmoid lgamma digamma logit deg2rad rad2deg i0 sinc"
)
_TWO_INPUTS = {
    1: "mul sub add rsub div true_divide maximum minimum fmax fmin atan2 remainder fmod floor_divide copysign hypot "
    "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ "
    "__rshift__ __iand__ __ior__ __ixor__ xlogy nextafter heaviside gcd lcm ldexp logaddexp logaddexp2 prelu _prelu_kernel "
    "clamp_min clamp_max pow",
}
_COMPARISONS = "eq ne lt le gt ge equal_to greater greater_equal less less_equal not_equal isclose logical_and logical_or logical_xor"
# Derivatives from the function's definition, times the incoming gradient.
_BACKWARD = {
    "threshold_backward": (2, 1), "relu_backward": (2, 1), "hardtanh_backward": (2, 2), "leaky_relu_backward": (2, 2),
    "sigmoid_backward": (2, 3), "tanh_backward": (2, 3), "silu_backward": (2, 8), "gelu_backward": (2, 11),
    "elu_backward": (5, 4), "softplus_backward": (2, 5), "hardswish_backward": (2, 5), "hardsigmoid_backward": (2, 3),
    "mish_backward": (2, 12), "logit_backward": (2, 4), "hardshrink_backward": (2, 2), "softshrink_backward": (2, 2),
    "log_sigmoid_backward": (3, 6),
}  # fmt: skip
_OTHERS = {
    "addcmul": Pointwise(3, 3),
    "addcdiv": Pointwise(3, 3),
    "lerp": Pointwise(3, 3),
    "where": Pointwise(3, 1),
    "masked_fill": Pointwise(2, 1),
    "polar": Pointwise(2, 4),
    "complex": Pointwise(2, 0),
    "smooth_l1_loss": Pointwise(2, 5),
    "huber_loss": Pointwise(2, 5),
    "mse_loss": Pointwise(2, 2),
    "l1_loss": Pointwise(2, 2),
    "binary_cross_entropy": Pointwise(3, 7),
    "mse_loss_backward": Pointwise(3, 3),
    "smooth_l1_loss_backward": Pointwise(3, 5),
    "huber_loss_backward": Pointwise(3, 5),
    "binary_cross_entropy_backward": Pointwise(4, 6),
    "masked_scale": Pointwise(2, 2),
    "_masked_scale": Pointwise(2, 2),
    "native_dropout_backward": Pointwise(2, 2),
    "tril": Pointwise(1, 0),
    "triu": Pointwise(1, 0),
    "roll": Pointwise(1, 0),
    "flip": Pointwise(1, 0),
    "_conj_physical": Pointwise(1, 1),
}


_WITH_ITSELF = {"aten::isnan": ("aten::ne",), "aten::isfinite": ("aten::eq",)}
"""Operators that compare a tensor with itself to find NaN (ATen/native/TensorCompare.cpp)."""


def _specifications() -> dict[str, Pointwise]:
    table = {name: Pointwise(1, flop) for flop, names in _ONE_INPUT.items() for name in names.split()}
    table |= {name: Pointwise(1, table[name].flop, "floating") for name in _FLOATING.split()}
    table |= {name: Pointwise(1, 1, "bool") for name in _TO_BOOL.split()}
    table |= {name: Pointwise(2, flop) for flop, names in _TWO_INPUTS.items() for name in names.split()}
    table |= {name: Pointwise(2, 1, "floating") for name in ("div", "true_divide", "atan2")}
    table |= {name: Pointwise(2, 1, "bool") for name in _COMPARISONS.split()}
    table |= {name: Pointwise(3, 2) for name in ("clamp", "clip")}
    table |= {name: Pointwise(inputs, flop) for name, (inputs, flop) in _BACKWARD.items()}
    return table | _OTHERS


SPECIFICATIONS = _specifications()


def elementwise(tensors: list[Tensor], spec: Pointwise, *, into: Tensor | None, flop: float) -> Work:
    """Count one pass over the broadcast shape of ``tensors``, written to ``into`` or to a new tensor."""
    shape = broadcast(*(tensor.shape for tensor in tensors))
    result = promoted(tensors)
    written = into if into is not None else Tensor(shape, _result(result, spec))
    visited = max(written.elements, Tensor(shape, None).elements)
    return Work(
        flop * visited,
        total_bytes(*tensors, written),
        compute(floating(result) if spec.result == "floating" else result),
        doubtful_bytes(tensors),
    )


def _result(dtype: Dtype | None, spec: Pointwise) -> Dtype | None:
    return BOOL if spec.result == "bool" else floating(dtype) if spec.result == "floating" else dtype


def _formula(name: str, spec: Pointwise) -> Formula:
    def formula(call: Call) -> Work:
        tensors = [tensor for i in range(spec.inputs) if (tensor := call.optional(i)) is not None]
        if not tensors:
            raise Unrecorded
        outputs = call.given(spec.inputs)
        if call.operator in _WITH_ITSELF.get(call.outer or "", ()) and len(tensors) == 2 and same_tensor(*tensors):
            tensors = tensors[:1]
        in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
        into = tensors[0] if in_place else outputs[-1] if outputs and outputs[-1].elements else None
        return elementwise(tensors, spec, into=into, flop=_flop(call, name, spec))

    return formula


def _flop(call: Call, name: str, spec: Pointwise) -> float:
    """Return FLOP per element; a sum with a factor also multiplies."""
    scaled = name.rstrip("_") in ("add", "sub", "rsub") and call.valued and call.value(2) not in (None, 1, True)
    return spec.flop + scaled


def fused_dropout(call: Call) -> Work:
    """Count native_dropout(input, p, train), _fused_dropout.

    A random number is drawn, compared and multiplied; the mask is also written.
    """
    given = call.tensor(0)
    return Work(3.0 * given.elements, 2 * given.bytes + given.elements * BOOL.bytes, compute(given.dtype))


def _names(name: str) -> tuple[str, ...]:
    return (name,) if name.startswith("__") else (name, f"{name}_")


FORMULAS: dict[str, Formula] = {
    f"aten::{name}": _formula(name, spec) for base, spec in SPECIFICATIONS.items() for name in _names(base)
} | dict.fromkeys(("aten::native_dropout", "aten::_fused_dropout"), fused_dropout)
