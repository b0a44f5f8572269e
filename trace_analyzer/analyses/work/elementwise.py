"""Count element-wise arithmetic, reductions, normalizations, softmax and losses.

Element-wise is arithmetic on tensors, on lists of them (``_foreach_*``, fused optimizers), and in Inductor's kernels.
Every input is read once with its own size, and the output is written once. FLOP per output element follow from the
function's definition, where every addition, multiplication, division, comparison and elementary function (exp, tanh,
erf, ...) counts as one. Bytes of lists need the element type from the kernel's name, because Kineto records only shapes.

FLOP of reductions are per element read. Kernels that do not keep a row on the chip read it two or three times; that is
not counted.
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
    broadcast,
    compute,
    doubtful_bytes,
    floating,
    operators,
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
    "_foreach_norm": (2, 1, 1, 0),  # square, add
    "_foreach_max": (1, 1, 1, 0),
    "_foreach_copy_": (0, 2, 2, 0),  # the list that is written comes first
    "_foreach_zero_": (0, 1, 1, 0),
    "_amp_foreach_non_finite_check_and_unscale_": (2, 1, 1, 1),  # compare, multiply
    # Moments 3 + 4, bias corrections 2, root, add, divide, update 2; (params, grads, exp_avgs, exp_avg_sqs, ...)
    "_fused_adam_": (15, 4, 2, None),
    "_fused_adamw_": (17, 4, 2, None),
    "_fused_sgd_": (5, 3, 2, None),  # params, grads, momenta
    "_fused_adagrad_": (6, 3, 2, None),
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


FORMULAS: dict[str, Formula] = operators(
    *(
        ("aten", each, _function(each, inputs, flop, kind))
        for name, inputs, flop, kind in _NAMED
        for each in ((name,) if name.startswith("__") else (name, f"{name}_"))
    ),
    ("aten", "native_dropout _fused_dropout", dropout),
    *(("aten", f"_foreach_{name} _foreach_{name}_", _lists(flop, inputs, 0, 1)) for name, inputs, flop, _ in _NAMED),
    *(("aten", name, _lists(*row)) for name, row in _LISTS.items()),
    *(("aten", row[0], _reduction(*row[1:])) for row in _REDUCTIONS),
    *(("aten", row[0], _gradient(*row[1:])) for row in _GRADIENTS),
    ("aten", "cumsum cumprod cumsum_ cumprod_ _logcumsumexp", scan),
    ("aten", "native_layer_norm", layer_norm),
    ("aten", "native_batch_norm cudnn_batch_norm miopen_batch_norm", batch_norm),
    ("aten", "_native_batch_norm_legit _batch_norm_with_update", batch_norm),
    ("aten", "native_group_norm", group_norm),
    ("aten", "batch_norm_stats", batch_statistics),
    ("aten", "batch_norm_backward_reduce", batch_sums),
    ("aten", "batch_norm_gather_stats_with_counts", gathered_statistics),
    ("aten", "_softmax _log_softmax _safe_softmax", softmax),
    ("aten", "_softmax_backward_data _log_softmax_backward_data", softmax_backward),
    ("aten", "nll_loss_forward nll_loss2d_forward", nll_loss),
    ("aten", "nll_loss_backward nll_loss2d_backward", nll_loss_backward),
)
