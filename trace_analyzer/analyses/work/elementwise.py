"""Count element-wise arithmetic: on tensors, on lists of them (``_foreach_*``, fused optimizers), and in Inductor's kernels.

Every input is read once with its own size, and the output is written once. FLOP per output element follow from the
function's definition, where every addition, multiplication, division, comparison and elementary function (exp, tanh,
erf, ...) counts as one. Bytes of lists need the element type from the kernel's name, because Kineto records only shapes.
"""

from math import prod

from trace_analyzer.analyses.work.calls import (
    BOOL,
    Call,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    broadcast,
    compute,
    doubtful_bytes,
    floating,
    promoted,
    require,
    same_tensor,
    total_bytes,
)

_FUNCTIONS = (
    # number of leading tensors, FLOP per element, type of the result (that of the operands, if any floating, or bool)
    (1, 1, "", "abs neg floor ceil round trunc frac sign sgn relu square angle real imag conj_physical _conj_physical "
     "bitwise_not positive relu6 hardtanh"),
    (1, 1, "floating", "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf "
     "erfc erfinv sqrt rsqrt reciprocal lgamma digamma logit deg2rad rad2deg i0 sinc"),
    (1, 1, "bool", "isnan isinf isfinite isposinf isneginf logical_not signbit"),
    (1, 2, "", "threshold hardshrink softshrink leaky_relu"),
    (1, 3, "", "elu celu softplus hardsigmoid nan_to_num log_sigmoid_forward"),
    (1, 4, "", "hardswish selu"),
    (1, 4, "floating", "sigmoid"),
    (1, 5, "", "silu gelu mish"),
    (1, 0, "", "tril triu roll flip"),
    (2, 1, "", "mul sub add rsub maximum minimum fmax fmin remainder fmod floor_divide copysign hypot bitwise_and bitwise_or "
     "bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ "
     "__ixor__ xlogy nextafter heaviside gcd lcm ldexp logaddexp logaddexp2 prelu _prelu_kernel clamp_min clamp_max pow "
     "masked_fill"),
    (2, 1, "floating", "div true_divide atan2"),
    (2, 1, "bool", "eq ne lt le gt ge equal_to greater greater_equal less less_equal not_equal isclose logical_and "
     "logical_or logical_xor"),
    (2, 0, "", "complex"),
    (2, 2, "", "mse_loss l1_loss masked_scale _masked_scale native_dropout_backward"),
    (2, 4, "", "polar"),
    (2, 5, "", "smooth_l1_loss huber_loss"),
    (3, 1, "", "where"),
    (3, 2, "", "clamp clip"),
    (3, 3, "", "addcmul addcdiv lerp mse_loss_backward"),
    (3, 5, "", "smooth_l1_loss_backward huber_loss_backward"),
    (3, 7, "", "binary_cross_entropy"),
    (4, 6, "", "binary_cross_entropy_backward"),
    # Derivatives from the function's definition, times the incoming gradient.
    (2, 1, "", "threshold_backward relu_backward"),
    (2, 2, "", "hardtanh_backward leaky_relu_backward hardshrink_backward softshrink_backward"),
    (2, 3, "", "sigmoid_backward tanh_backward hardsigmoid_backward"),
    (2, 4, "", "logit_backward"),
    (2, 5, "", "softplus_backward hardswish_backward"),
    (2, 8, "", "silu_backward"),
    (2, 11, "", "gelu_backward"),
    (2, 12, "", "mish_backward"),
    (3, 6, "", "log_sigmoid_backward"),
    (5, 4, "", "elu_backward"),
)  # fmt: skip
_WITH_ITSELF = {"aten::isnan": "aten::ne", "aten::isfinite": "aten::eq"}
"""Operators that compare a tensor with itself to find NaN (ATen/native/TensorCompare.cpp)."""


def _function(name: str, inputs: int, flop: float, kind: str) -> Formula:
    in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")

    def formula(call: Call) -> Work:
        tensors = [tensor for i in range(inputs) if (tensor := call.optional(i)) is not None]
        if not tensors:
            raise Unrecorded
        outputs = call.given(inputs)
        if call.operator == _WITH_ITSELF.get(call.outer or "") and len(tensors) == 2 and same_tensor(*tensors):
            tensors = tensors[:1]
        # A sum with a factor also multiplies.
        scaled = name.rstrip("_") in ("add", "sub", "rsub") and call.valued and call.value(2) not in (None, 1, True)
        operands = promoted(tensors)
        number = floating(operands) if kind == "floating" else operands
        written = Tensor(broadcast(*(tensor.shape for tensor in tensors)), BOOL if kind == "bool" else number)
        visited = written.elements
        if in_place:
            written = tensors[0]
        elif outputs and outputs[-1].elements:
            written = outputs[-1]
        visited = max(visited, written.elements)
        return Work((flop + scaled) * visited, total_bytes(*tensors, written), compute(number), doubtful_bytes(tensors))

    return formula


def dropout(call: Call) -> Work:
    """Count native_dropout(input, p, train), _fused_dropout: draw, compare, multiply; the mask is written, too."""
    given = call.tensor(0)
    return Work(3.0 * given.elements, 2 * given.bytes + given.elements * BOOL.bytes, compute(given.dtype))


_LISTS = {
    # (FLOP per element, most lists that are read, least, times that a list is written; None: all but the gradients)
    "aten::_foreach_norm": (2, 1, 1, 0),  # square, add
    "aten::_foreach_max": (1, 1, 1, 0),
    "aten::_foreach_copy_": (0, 2, 2, 0),  # the list that is written comes first
    "aten::_foreach_zero_": (0, 1, 1, 0),
    "aten::_amp_foreach_non_finite_check_and_unscale_": (2, 1, 1, 1),  # compare, multiply
    # Moments 3 + 4, bias corrections 2, root, add, divide, update 2; (params, grads, exp_avgs, exp_avg_sqs, ...)
    "aten::_fused_adam_": (15, 4, 2, None),
    "aten::_fused_adamw_": (17, 4, 2, None),
    "aten::_fused_sgd_": (5, 3, 2, None),  # params, grads, momenta
    "aten::_fused_adagrad_": (6, 3, 2, None),
}


def _lists(flop: float, most: int, least: int, written: int | None) -> Formula:
    def formula(call: Call) -> Work:
        lists = [argument for argument in call.arguments[:most] if isinstance(argument, tuple)]
        for position in range(least if lists else 1):
            call.tensors(position)
        first = lists[0]
        if call.operator != "aten::_foreach_copy_":
            require(len({len(tensors) for tensors in lists}) == 1)
        lists += [first] * (len(lists) - 1 if written is None else written)
        try:
            moved = sum(total_bytes(*tensors) for tensors in lists)
        except Unrecorded:
            moved = None
        dtype = first[0].dtype
        return Work(flop * sum(tensor.elements for tensor in first), moved, dtype.compute if dtype else None)

    return formula


TRITON, _TEMPLATE = "triton_", "triton_tem_"
"""Prefixes of the names of kernels that Inductor generated, and of those from its own templates."""


def triton(call: Call) -> Work:
    """Count a call of ``triton_*``(tensors ..., sizes of the iteration space ...); a trace does not contain its FLOP.

    A kernel that reads a slice or some rows of a tensor receives the whole tensor, so each tensor counts for at most as
    many elements as the kernel has iterations. A tensor updated in place counts once: a lower bound. The last numbers
    of a matmul or attention template (``triton_tem_*``) are its grid. Such a kernel receives the whole tensor of which
    an operand is a view, and a mask of blocks may leave keys unread: all its bytes are doubtful.
    """
    tensors = call.given()
    if not tensors:
        raise Unrecorded
    if call.operator.startswith(_TEMPLATE):
        moved = total_bytes(*tensors)
        return Work(None, moved, compute(promoted(tensors)), moved)
    sizes = [n for n in call.arguments if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    used = 2 if call.operator.startswith("triton_poi") else 3
    iterations = prod(sizes[-used:]) if sizes else max(tensor.elements for tensor in tensors)
    moved = sum(min(tensor.stored, iterations) * tensor.size for tensor in tensors)
    return Work(None, float(moved), compute(promoted(tensors)))


_NAMED = [(name, inputs, flop, kind) for inputs, flop, kind, names in _FUNCTIONS for name in names.split()]
FORMULAS: dict[str, Formula] = {
    **{
        f"aten::{each}": _function(each, inputs, flop, kind)
        for name, inputs, flop, kind in _NAMED
        for each in ((name,) if name.startswith("__") else (name, f"{name}_"))
    },
    **dict.fromkeys(("aten::native_dropout", "aten::_fused_dropout"), dropout),
    **{
        f"aten::_foreach_{name}{end}": _lists(flop, inputs, 0, 1)
        for name, inputs, flop, _ in _NAMED
        for end in ("", "_")
    },
    **{operator: _lists(*row) for operator, row in _LISTS.items()},
}
