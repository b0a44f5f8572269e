"""Count autograd functions and custom operators of libraries for training.

They are Liger's, Apex's, Megatron's, Transformer Engine's, flash-attn's, Unsloth's, bitsandbytes' and Mamba's. An autograd function written in Python appears under its class, with the arguments of its ``forward``; its backward pass as the same
name and ``Backward``, with the gradients of its results alone. What was saved for it is not recorded: where the function's definition
leaves no choice (the input of a norm is as large as the gradient of its result), it is counted, and the rest is ``at-least``.
"""

from dataclasses import replace

from trace_analyzer.analyses.work.calls import (
    BYTE,
    DTYPES,
    FLOAT32,
    Call,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    compute,
    in_namespaces,
    require,
    total_bytes,
)
from trace_analyzer.analyses.work.movement import moved


def _like(tensor: Tensor) -> Tensor:
    return Tensor(tensor.shape, tensor.dtype)


def norm(flop: float) -> Formula:
    """Return the formula of norms(input, weight, [bias], ...): the input is read, a result of its shape written."""

    def formula(call: Call) -> Work:
        given = call.tensor(0)
        row = given.shape[-1:]
        parameters = [t for t in (call.optional(1), call.optional(2)) if t is not None and t.shape == row]
        require(bool(row))
        return moved(given, *parameters, _like(given), flop=(flop + len(parameters)) * given.elements)

    return formula


def of_result(tensors: int, flop: float) -> Formula:
    """Return the formula of a backward pass in which so many tensors of the gradient's shape are read or written, itself one."""

    def formula(call: Call) -> Work:
        gradient = call.tensor(0)
        return replace(moved(gradient, flop=flop * gradient.elements), moved_bytes=tensors * gradient.bytes, least=True)

    return formula


def gate(call: Call) -> Work:
    """Count LigerSiLUMulFunction, LigerGELUMulFunction(a, b): activation 5, multiply."""
    a, b = call.tensor(0), call.tensor(1)
    require(a.elements == b.elements)
    return moved(a, b, _like(a), flop=6.0 * a.elements)


def halves(call: Call) -> Work:
    """Count SwiGLUFunction, BiasSwiGLUFunction(input, [bias], ...): the input holds both halves; activation 5, multiply.

    flash-attn's function of that name takes them as two tensors.
    """
    given, other = call.tensor(0), call.optional(1)
    if other is not None and other.shape == given.shape:
        return gate(call)
    require(given.elements % 2 == 0)
    bias = call.optional(1)
    rows = bias if bias is not None and bias.shape == given.shape[-1:] else None
    flop = 3.0 * given.elements + (given.elements if rows is not None else 0)
    return moved(given, rows, Tensor((given.elements // 2,), given.dtype), flop=flop)


def rotation(call: Call) -> Work:
    """Count LigerRopeFunction(q, k, cos, sin, ...) and FusedRoPEFunc(t, freqs, ...): 3 FLOP an element; tables are read once."""
    turned = [call.tensor(0)]
    if call.operator.startswith("Liger"):
        turned.append(call.tensor(1))
    tables = call.given(len(turned))[: 3 - len(turned) + 1]
    return moved(turned[0], *turned[1:], *tables, *map(_like, turned), flop=3.0 * sum(t.elements for t in turned))


def rotation_backward(call: Call) -> Work:
    """Count the backward pass of rotations: gradients are turned back."""
    turned = [t for t in call.given() if len(t.shape) == len(call.tensor(0).shape)]
    work = moved(turned[0], *turned[1:], *map(_like, turned), flop=3.0 * sum(t.elements for t in turned))
    return replace(work, least=True)


def softmax(call: Call) -> Work:
    """Count Megatron's ScaledMaskedSoftmax and its kin(scores, [mask], scale): scale; maximum, subtract, exp, add, divide."""
    given, mask = call.tensor(0), call.optional(1)
    require(len(given.shape) >= 2)
    mask = mask if mask is not None and mask.shape[-1:] == given.shape[-1:] else None
    return moved(given, mask, _like(given), flop=6.0 * given.elements)


def cross_entropy(call: Call) -> Work:
    """Count LigerCrossEntropyFunction(logits, target, ...): read, and the gradient written in place; 8 each.

    Rows of an ignored target are not read: that is doubted.
    """
    given, target = call.tensor(0), call.tensor(1)
    require(len(given.shape) == 2 and target.elements == given.shape[0])
    losses = Tensor(target.shape, FLOAT32)
    return replace(moved(given, _like(given), target, losses, flop=8.0 * given.elements), doubtful_bytes=given.bytes)


def added_norm(residual: int, *parameters: int) -> Formula:
    """Return the formula of norms of a sum, whose residual and parameters stand there: LayerNormFn, DropoutAddLayerNormFn.

    Both are read, and the result is written; whether the sum is kept too is not told by the shapes.
    """

    def formula(call: Call) -> Work:
        given, other = call.tensor(0), call.optional(residual)
        weights = [t for t in map(call.optional, parameters) if t is not None and t.shape == given.shape[-1:]]
        require(bool(given.shape) and (other is None or other.elements == given.elements))
        flop = (6.0 + len(weights) + (other is not None)) * given.elements
        return replace(moved(given, other, *weights, _like(given), flop=flop), least=True)

    return formula


def biased_activation(call: Call) -> Work:
    """Count Megatron's GeLUFunction(input, bias): add, and an activation of 8."""
    given, bias = call.tensor(0), call.tensor(1)
    require(bias.shape == given.shape[-1:])
    return moved(given, bias, _like(given), flop=9.0 * given.elements)


def whole_rotation(call: Call) -> Work:
    """Count flash-attn's ApplyRotaryEmb(x, cos, sin, ...) where cos and sin, of half a head each, turn all of it."""
    given, cos, sin = (call.tensor(i) for i in range(3))
    require(bool(given.shape) and bool(cos.shape) and cos.shape == sin.shape)
    if 2 * cos.shape[-1] != given.shape[-1]:
        raise Unrecorded
    work = moved(given, cos, sin, _like(given), flop=3.0 * given.elements)
    return replace(work, doubtful_bytes=total_bytes(cos, sin))


def losses(call: Call) -> Work:
    """Count CrossEntropyLoss, SoftmaxCrossEntropyLoss, Fast_CrossEntropyLoss(logits, labels, ...): a loss a row; 4 an element.

    Rows of an ignored label need not be read: that is doubted.
    """
    given, target = call.tensor(0), call.tensor(1)
    require(len(given.shape) >= 2 and target.elements * given.shape[-1] == given.elements)
    work = moved(given, target, Tensor((target.elements,), FLOAT32), flop=4.0 * given.elements)
    return replace(work, doubtful_bytes=given.bytes)


def two_products(call: Call) -> Work:
    """Count Transformer Engine's _LayerNormMLP: the input (..., h), a weight (f or 2 f, h) and one (h, f), in this order.

    Other tensors of two dimensions or more (copies of weights in another type) leave the call unknown.
    """
    matrices = [t for t in call.given() if len(t.shape) >= 2]
    if len(matrices) != 3:
        raise Unrecorded
    given, first, second = matrices
    width = given.shape[-1]
    require(len(first.shape) == len(second.shape) == 2 and first.shape[1] == second.shape[0] == width > 0)
    require(first.shape[0] in (second.shape[1], 2 * second.shape[1]))
    if given.dtype is None or given.dtype.compute is None:
        raise Unrecorded
    flop = 2.0 * given.elements * (first.shape[0] + second.shape[1])
    return Work(flop, total_bytes(given, first, second, _like(given)), given.dtype.compute, least=True)


def dense(call: Call) -> Work:
    """Count Apex's FusedDenseFunc, DenseNoBiasFunc(x, w, [bias]): (..., k) x (n, k), transposed."""
    given, weight, bias = call.tensor(0), call.tensor(1), call.optional(2)
    require(len(weight.shape) == 2 and bool(given.shape) and given.shape[-1] == weight.shape[1])
    if given.dtype is None or given.dtype.compute is None:
        raise Unrecorded
    output = Tensor((*given.shape[:-1], weight.shape[0]), given.dtype)
    flop = 2.0 * output.elements * weight.shape[1]
    return Work(flop, total_bytes(given, weight, bias, output), given.dtype.compute)


def linear(call: Call) -> Work:
    """Count Transformer Engine's _Linear, _LayerNormLinear: the two tensors of two dimensions or more, which share their last.

    Which of them is the weight changes nothing. More of them (copies of the weight in another type) leave the call unknown. Casts, scales
    and what is kept for the backward pass are not counted.
    """
    matrices = [t for t in call.given() if len(t.shape) >= 2]
    if len(matrices) != 2:
        raise Unrecorded
    one, other = matrices
    k = one.shape[-1]
    require(k == other.shape[-1] and k > 0)
    rows, width = one.elements // k, other.elements // k
    dtype = one.dtype or other.dtype
    if dtype is None or dtype.compute is None:
        raise Unrecorded
    output = Tensor((rows, width), dtype)
    return Work(2.0 * rows * width * k, total_bytes(one, other, output), dtype.compute, least=True)


def linear_gradients(call: Call) -> Work:
    """Count _LinearBackward, _LayerNormLinearBackward(gradient) by the shapes of the forward call.

    These are of the input (..., k) and the weight (n, k). The gradient of the input and that of the weight take one product each. Two kernels that multiply compute both, one the one or
    the other, which are as much.
    """
    gradient = call.tensor(0)
    matrices = [shape for shape in call.outer_shapes if shape is not None and len(shape) >= 2]
    if len(matrices) != 2 or not call.gradients or gradient.dtype is None or gradient.dtype.compute is None:
        raise Unrecorded
    one, other = (Tensor(shape, gradient.dtype) for shape in matrices)
    k = one.shape[-1]
    require(k == other.shape[-1] and k > 0 and one.elements * (other.elements // k) == gradient.elements * k)
    flop = 2.0 * len(call.gradients) * gradient.elements * k
    # Either product reads the gradient and one of both, and writes what is as large as the other.
    gradients = (one, other) if len(call.gradients) == 2 else ()
    return Work(flop, total_bytes(gradient, one, other, *gradients), gradient.dtype.compute, least=True)


def four_bit_vector(call: Call) -> Work:
    """Count bitsandbytes::gemv_4bit(A, B, shape of B, scales, code, block): B is (n, k), two in a byte."""
    a, b = call.tensor(0), call.tensor(1)
    shape = call.numbers(2)
    require(len(shape) == 2 and bool(a.shape) and a.shape[-1] == shape[1])
    output = Tensor((*a.shape[:-1], shape[0]), a.dtype)
    return moved(a, b, call.optional(3), call.optional(4), output, flop=2.0 * a.elements * shape[0])


def from_four_bits(call: Call) -> Work:
    """Count bitsandbytes::dequantize_4bit(A, scales, block, kind, shape, dtype): look up, multiply."""
    packed, elements = call.tensor(0), 1
    for n in call.numbers(4):
        require(n >= 0)
        elements *= n
    require(elements <= 2 * packed.elements * (packed.dtype.bytes if packed.dtype else 1))
    output = Tensor((elements,), call.type_at(5))
    return replace(moved(output, packed, call.optional(1)), flop=float(elements))


def to_four_bits(call: Call) -> Work:
    """Count bitsandbytes::quantize_4bit(A, block, ...): largest value, divide, choose; half a byte each."""
    given = call.tensor(0)
    return moved(given, Tensor((-(-given.elements // 2),), BYTE), flop=3.0 * given.elements)


def from_bytes(call: Call) -> Work:
    """Count bitsandbytes::dequantize_blockwise(A, scales, code, block, dtype): look up, multiply."""
    packed = call.tensor(0)
    output = Tensor(packed.shape, call.type_at(4))
    return replace(moved(output, packed, call.optional(1), call.optional(2)), flop=float(packed.elements))


def to_bytes(call: Call) -> Work:
    """Count bitsandbytes::quantize_blockwise(A, code, block), int8_vectorwise_quant(A, ...): largest value, divide, choose."""
    given = call.tensor(0)
    return moved(given, Tensor(given.shape, BYTE), flop=3.0 * given.elements)


def eight_bit_product(call: Call) -> Work:
    """Count bitsandbytes::int8_linear_matmul(A, B): (..., k) x (n, k), transposed, to int32."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(b.shape) == 2 and bool(a.shape) and a.shape[-1] == b.shape[1])
    output = Tensor((*a.shape[:-1], b.shape[0]), DTYPES["int"])
    return Work(2.0 * output.elements * b.shape[1], total_bytes(a, b, output), "int8")


def skinny(call: Call) -> Work:
    """Count vLLM's wvSplitK, wvSplitKQ, LLMM1(weight, x, ...) of ROCm: (n, k) and (m, k), transposed.

    Of 8 bits, the result is among the arguments.
    """
    weight, given = call.tensor(0), call.tensor(1)
    require(len(weight.shape) == len(given.shape) == 2 and weight.shape[1] == given.shape[1])
    shape = (given.shape[0], weight.shape[0])
    output = next((t for t in call.given(2) if t.shape == shape), Tensor(shape, given.dtype))
    flop = 2.0 * output.elements * weight.shape[1]
    return Work(flop, total_bytes(weight, given, output), compute(given.dtype))


_RMS, _LAYER = norm(3.0), norm(6.0)
_NORMS = {
    **dict.fromkeys(("LigerRMSNormFunction", "FusedRMSNormFunction", "FusedRMSNormAffineFunction", "FusedRMSNormAffineMixedDtypesFunction", "Fast_RMS_Layernorm", "_RMSNorm"), _RMS),
    **dict.fromkeys(
        ("LigerLayerNormFunction", "FusedLayerNormFunction", "FusedLayerNormAffineFunction", "FusedLayerNormAffineMixedDtypesFunction", "FastLayerNormFN", "Fast_Layernorm", "_LayerNorm"),
        _LAYER,
    ),
}  # fmt: skip
_GATES = ("LigerSiLUMulFunction", "LigerGELUMulFunction")
_HALVES = ("SwiGLUFunction", "BiasSwiGLUFunction")
_ROTATIONS = ("LigerRopeFunction", "FusedRoPEFunc", "Fast_RoPE_Embedding")
_SOFTMAXES = ("ScaledUpperTriangMaskedSoftmax", "ScaledMaskedSoftmax", "ScaledSoftmax", "GenericScaledMaskedSoftmax")

PRODUCTS: dict[str, Formula] = {
    **dict.fromkeys(("_Linear", "_LayerNormLinear"), linear),
    **dict.fromkeys(("_LinearBackward", "_LayerNormLinearBackward"), linear_gradients),
    "_LayerNormMLP": two_products,
    **dict.fromkeys(("FusedDenseFunc", "DenseNoBiasFunc"), dense),
    "bitsandbytes::gemv_4bit": four_bit_vector,
    "bitsandbytes::int8_linear_matmul": eight_bit_product,
    **dict.fromkeys(in_namespaces("_rocm_C", "wvSplitK", "wvSplitKrc", "wvSplitKQ", "LLMM1"), skinny),
}
"""Those that multiply matrices."""
FORMULAS: dict[str, Formula] = {
    **_NORMS,
    # Read: the gradient and the input (or result); written: the input's gradient. Normalized value 2, two sums 3, combination 4.
    **{f"{name}Backward": of_result(3, 9.0) for name in _NORMS},
    **dict.fromkeys(_GATES, gate),
    # Read: the gradient, a and b; written: the gradients of both. The activation again 5, its derivative 5, products 3.
    **{f"{name}Backward": of_result(5, 13.0) for name in _GATES},
    **dict.fromkeys(_HALVES, halves),
    **{f"{name}Backward": of_result(5, 13.0) for name in _HALVES},
    **dict.fromkeys(_ROTATIONS, rotation),
    **{f"{name}Backward": rotation_backward for name in _ROTATIONS},
    **dict.fromkeys(_SOFTMAXES, softmax),
    # Read: the gradient and the result; written: the scores' gradient. Multiply, add; subtract, multiply, scale.
    **{f"{name}Backward": of_result(3, 5.0) for name in _SOFTMAXES},
    "LayerNormFn": added_norm(3, 1, 2),
    "DropoutAddLayerNormFn": added_norm(1, 2, 3),
    # Read: the gradient and the sum; written: the sum's gradient.
    **{f"{name}Backward": of_result(3, 9.0) for name in ("LayerNormFn", "DropoutAddLayerNormFn")},
    "GeLUFunction": biased_activation,
    # Read: the gradient and the input; written: the input's gradient. The derivative 12, multiply.
    "GeLUFunctionBackward": of_result(3, 13.0),
    "ApplyRotaryEmb": whole_rotation,
    **dict.fromkeys(
        ("CrossEntropyLoss", "SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLossFn", "Fast_CrossEntropyLoss"), losses
    ),
    "LigerCrossEntropyFunction": cross_entropy,
    "bitsandbytes::dequantize_4bit": from_four_bits,
    "bitsandbytes::quantize_4bit": to_four_bits,
    "bitsandbytes::dequantize_blockwise": from_bytes,
    **dict.fromkeys(in_namespaces("bitsandbytes", "quantize_blockwise", "int8_vectorwise_quant"), to_bytes),
}
