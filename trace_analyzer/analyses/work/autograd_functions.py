"""Count autograd functions and custom operators of training libraries.

The libraries are Liger, Apex, Megatron, Transformer Engine, flash-attn, Unsloth, bitsandbytes and Mamba. A trace names
an autograd function in Python by its class and records the arguments of its ``forward``; its backward pass has the same
name with the suffix ``Backward``, and only the gradients of the results are recorded. Saved tensors are not recorded:
those whose size the function's definition determines are counted (the input of a norm is as large as the gradient of
its result), and without the others the work is ``at-least``.

Of the arguments, tensors, numbers and None are recorded (`unpack_input` in PyTorch's
`torch/csrc/autograd/python_function.cpp`); earlier versions record only tensors. Where an optional tensor may be
missing, the shapes decide which argument a tensor is.
"""

from dataclasses import replace

from trace_analyzer.analyses.work.calls import (
    BYTE,
    DTYPES,
    FLOAT32,
    Call,
    Formula,
    Shape,
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


def _vectors(call: Call, given: Tensor, most: int = 2) -> list[Tensor]:
    """Return the parameters after the input: vectors as long as its last dimension."""
    return [t for t in call.given(1) if t.shape == given.shape[-1:]][:most]


def norm(flop: float) -> Formula:
    """Return the formula of a norm(input, weight, [bias], ...): reads the input, writes a result of its shape.

    The result of Apex's functions of mixed types has the weight's type.
    """

    def formula(call: Call) -> Work:
        given = call.tensor(0)
        require(bool(given.shape))
        parameters = _vectors(call, given)
        mixed = parameters and "MixedDtypes" in call.operator
        written = Tensor(given.shape, parameters[0].dtype if mixed else given.dtype)
        return moved(given, *parameters, written, flop=(flop + len(parameters)) * given.elements)

    return formula


def norm_gradients(call: Call) -> Work:
    """Count apex::fused_layer_norm_affine_bwd(gradient, [mean], deviation, input or result, shape, weight, [bias]...).

    FLOP per element: normalized value 2, two sums 3, combination 4; for each parameter's gradient, multiply and add.
    """
    gradient = call.tensor(0)
    given = next((t for t in call.given(1) if t.shape == gradient.shape), None)
    if given is None:
        raise Unrecorded
    parameters = _vectors(call, gradient)
    flop = (9.0 + 2 * len(parameters)) * gradient.elements
    return moved(gradient, given, _like(given), *parameters, *map(_like, parameters), flop=flop)


def of_result(tensors: int, flop: float) -> Formula:
    """Return the formula of a backward pass that moves ``tensors`` of the gradient's shape, itself included."""

    def formula(call: Call) -> Work:
        gradient = call.tensor(0)
        return replace(moved(gradient, flop=flop * gradient.elements), moved_bytes=tensors * gradient.bytes, least=True)

    return formula


def gate(call: Call) -> Work:
    """Count LigerSiLUMulFunction, LigerGELUMulFunction(a, b): 6 FLOP per element (activation 5, multiply)."""
    a, b = call.tensor(0), call.tensor(1)
    require(a.elements == b.elements)
    return moved(a, b, _like(a), flop=6.0 * a.elements)


def halves(call: Call) -> Work:
    """Count SwiGLUFunction, BiasSwiGLUFunction(input, [bias], ...); the input contains both halves.

    FLOP per result: activation 5, multiply. flash-attn's SwiGLUFunction takes the halves as two tensors.
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
    """Count LigerRopeFunction(q, k, cos, sin, ...), Fast_RoPE_Embedding(q, cos, sin): 3 FLOP per element, in place.

    Shapes are (batch, heads, sequence, width) in Liger and (batch, sequence, heads, width) in Unsloth.
    Of the tables, one row per position in the sequence is read, and only its first half: both halves are equal.
    """
    turned = [call.tensor(i) for i in range(2 if call.operator.startswith(("Liger", "Fast_RoPE_Embedding_QK")) else 1)]
    require(len(turned[0].shape) == 4)
    places = turned[0].shape[1] if call.operator.startswith("Fast") else turned[0].shape[0] * turned[0].shape[2]
    tables = [t for t in call.given(len(turned))[:2] if t.shape and t.shape[-1] > 0]
    rows = [Tensor((min(places, t.elements // t.shape[-1]), -(-turned[0].shape[-1] // 2)), t.dtype) for t in tables]
    work = moved(turned[0], *turned[1:], *rows, *map(_like, turned), flop=3.0 * sum(t.elements for t in turned))
    return replace(work, doubtful_bytes=total_bytes(*rows))


def rotation_by_angles(call: Call) -> Work:
    """Count FusedRoPEFunc(t, freqs, ...): 3 FLOP per element within the width of the angles, which are read once.

    Packed sequences share angles: their bytes are doubtful.
    """
    given, angles = call.tensor(0), call.tensor(1)
    require(bool(given.shape) and bool(angles.shape) and given.shape[-1] > 0)
    part = min(1.0, angles.shape[-1] / given.shape[-1])
    work = moved(given, angles, _like(given), flop=3.0 * part * given.elements)
    return replace(work, doubtful_bytes=angles.bytes)


def rotation_backward(call: Call) -> Work:
    """Count the backward pass of rotations, which rotates the gradients back."""
    turned = [t for t in call.given() if len(t.shape) == len(call.tensor(0).shape)]
    work = moved(turned[0], *turned[1:], *map(_like, turned), flop=3.0 * sum(t.elements for t in turned))
    return replace(work, least=True)


def softmax(call: Call) -> Work:
    """Count Megatron's ScaledSoftmax, ScaledMaskedSoftmax, GenericScaledMaskedSoftmax(scores, [mask], scale).

    FLOP per element: scale; maximum, subtract, exp, add, divide.
    """
    given, mask = call.tensor(0), call.optional(1)
    require(len(given.shape) >= 2)
    mask = mask if mask is not None and mask.shape[-1:] == given.shape[-1:] else None
    return moved(given, mask, _like(given), flop=6.0 * given.elements)


def _lower_triangles(scores: Tensor) -> int:
    """Return the number of elements on and below the diagonals of (batch, n, n)."""
    require(len(scores.shape) == 3 and scores.shape[1] == scores.shape[2])
    batch, n, _ = scores.shape
    return batch * n * (n + 1) // 2


def triangular_softmax(call: Call) -> Work:
    """Count ScaledUpperTriangMaskedSoftmax(scores, scale): reads the lower triangle of (batch, n, n), writes all."""
    given = call.tensor(0)
    seen = _lower_triangles(given)
    work = moved(given, flop=6.0 * seen)
    return replace(work, moved_bytes=seen * given.size + given.bytes)


def triangular_gradients(call: Call) -> Work:
    """Count the backward pass of `triangular_softmax`: lower triangles of gradient, result and scores' gradient."""
    gradient = call.tensor(0)
    seen = _lower_triangles(gradient)
    work = moved(gradient, flop=5.0 * seen)
    return replace(work, moved_bytes=3 * seen * gradient.size, least=True)


def cross_entropy(call: Call) -> Work:
    """Count LigerCrossEntropyFunction(logits, target, ...): 8 FLOP per logit; writes the gradient in place.

    Rows with an ignored target are not read, and no gradient is written unless requested: both are doubtful.
    """
    given, target = call.tensor(0), call.tensor(1)
    require(len(given.shape) == 2 and target.elements == given.shape[0])
    losses = Tensor(target.shape, FLOAT32)
    work = moved(given, _like(given), target, losses, flop=8.0 * given.elements)
    return replace(work, doubtful_bytes=2 * given.bytes)


def added_norm(call: Call) -> Work:
    """Count LayerNormFn(x, weight, bias, residual, ...), DropoutAddLayerNormFn(x, residual, weight, bias, ...).

    Another tensor of x's shape, a residual or a gate (Mamba), is also read, and the result is written. The shapes do
    not show whether the sum is kept.
    """
    given = call.tensor(0)
    require(bool(given.shape))
    other = next((t for t in call.given(1) if t.shape == given.shape), None)
    weights = _vectors(call, given)
    flop = (6.0 + len(weights) + (other is not None)) * given.elements
    return replace(moved(given, other, *weights, _like(given), flop=flop), least=True)


def summed_norm(call: Call) -> Work:
    """Count LigerFusedAddRMSNormFunction(x, residual, weight, ...): reads x and residual, writes sum and result."""
    given, other, weight = (call.tensor(i) for i in range(3))
    require(given.elements == other.elements)
    return moved(given, other, weight, _like(given), _like(given), flop=5.0 * given.elements)


def biased_activation(call: Call) -> Work:
    """Count Megatron's GeLUFunction(input, bias): 9 FLOP per element (add, activation 8)."""
    given, bias = call.tensor(0), call.tensor(1)
    require(bias.shape == given.shape[-1:])
    return moved(given, bias, _like(given), flop=9.0 * given.elements)


def whole_rotation(call: Call) -> Work:
    """Count flash-attn's ApplyRotaryEmb(x, cos, sin, ...) where cos and sin, half a head wide, rotate whole heads."""
    given, cos, sin = (call.tensor(i) for i in range(3))
    require(bool(given.shape) and bool(cos.shape) and cos.shape == sin.shape)
    if 2 * cos.shape[-1] != given.shape[-1]:
        raise Unrecorded
    places = given.shape[-3] if len(given.shape) > 2 else 1
    rows = [Tensor((min(places, t.elements // t.shape[-1]), t.shape[-1]), t.dtype) for t in (cos, sin)]
    work = moved(given, *rows, _like(given), flop=3.0 * given.elements)
    return replace(work, doubtful_bytes=total_bytes(*rows))


def losses(call: Call) -> Work:
    """Count CrossEntropyLoss, SoftmaxCrossEntropyLoss, Fast_CrossEntropyLoss(logits, labels, ...): 4 FLOP per logit.

    One loss per row is written. Rows with an ignored label need not be read: these bytes are doubtful.
    """
    given, target = call.tensor(0), call.tensor(1)
    require(len(given.shape) >= 2 and target.elements * given.shape[-1] == given.elements)
    work = moved(given, target, Tensor((target.elements,), FLOAT32), flop=4.0 * given.elements)
    return replace(work, doubtful_bytes=given.bytes)


def _counted(flop: float, operands: list[Tensor], *results: Shape) -> Work:
    """Return the work of a matmul whose operands may be cast first: to their narrowest type, or to 8 bits or less.

    The type that a recipe requests is not recorded, so the operands' bytes are doubtful.
    """
    types = [t.dtype for t in operands if t.dtype is not None and t.dtype.compute is not None]
    if len(types) < len(operands):
        raise Unrecorded
    narrowest = min(types, key=lambda dtype: dtype.bytes)
    cast = total_bytes(*(Tensor(t.shape, narrowest) for t in operands))
    written = total_bytes(*(Tensor(shape, narrowest) for shape in results))
    return Work(flop, cast + written, narrowest.compute, cast, least=True)


def two_products(call: Call) -> Work:
    """Count Transformer Engine's _LayerNormMLP: input (..., h), weight (f or 2 f, h), weight (h, f), in this order.

    With further tensors of two or more dimensions (copies of weights in another type), the work is unknown.
    """
    matrices = [t for t in call.given() if len(t.shape) >= 2]
    if len(matrices) != 3:
        raise Unrecorded
    given, first, second = matrices
    width = given.shape[-1]
    fits = len(first.shape) == len(second.shape) == 2 and first.shape[1] == second.shape[0] == width > 0
    if not fits or first.shape[0] not in (second.shape[1], 2 * second.shape[1]):
        raise Unrecorded
    return _counted(2.0 * given.elements * (first.shape[0] + second.shape[1]), matrices, given.shape)


def dense(call: Call) -> Work:
    """Count Apex's FusedDenseFunc, DenseNoBiasFunc(x, w, [bias]): (..., k) x (n, k), transposed.

    flash-attn's FusedDenseFunc has three more arguments: return_residual, process_group, sequence_parallel. It may
    gather rows from other devices, and under autocast it may write half of FP32's bytes. A process group is not
    recorded, and old versions of PyTorch record only tensors.
    """
    given, weight, bias = call.tensor(0), call.tensor(1), call.optional(2)
    require(len(weight.shape) == 2 and bool(given.shape) and given.shape[-1] == weight.shape[1])
    if given.dtype is None or given.dtype.compute is None:
        raise Unrecorded
    output = Tensor((*given.shape[:-1], weight.shape[0]), given.dtype)
    flop = 2.0 * output.elements * weight.shape[1]
    moved = total_bytes(given, weight, bias, output)
    if call.operator == "DenseNoBiasFunc":
        return Work(flop, moved, given.dtype.compute)
    alone = call.valued and len(call.arguments) == 6 and call.arguments[4] is None
    return Work(
        flop, moved, given.dtype.compute, output.bytes / 2 if given.dtype.compute == "fp32" else 0.0, least=not alone
    )


def linear(call: Call) -> Work:
    """Count Transformer Engine's _Linear, _LayerNormLinear: (..., k) x (n, k), transposed.

    These are the only two tensors of two or more dimensions; either may be the weight. With more of them (copies of
    the weight in another type), the work is unknown. Casts, scales, tensors saved for the backward pass, and rows
    gathered from other devices are not counted.
    """
    matrices = [t for t in call.given() if len(t.shape) >= 2]
    if len(matrices) != 2:
        raise Unrecorded
    one, other = matrices
    k = one.shape[-1]
    if k != other.shape[-1] or k <= 0:
        raise Unrecorded
    rows, width = one.elements // k, other.elements // k
    return _counted(2.0 * rows * width * k, matrices, (rows, width))


def grouped_linear(call: Call) -> Work:
    """Count Transformer Engine's _GroupedLinear(input, splits, ..., weights, biases): one weight multiplies each row.

    All weights are (n, k); those without rows are not read.
    """
    given = call.tensor(0)
    weights = [t for t in call.given(1) if len(t.shape) == 2]
    if (
        not weights
        or len({t.shape for t in weights}) != 1
        or given.shape[-1:] != weights[0].shape[1:]
        or not given.shape[-1]
    ):
        raise Unrecorded
    rows, width = given.elements // given.shape[-1], weights[0].shape[0]
    used = weights[: min(rows, len(weights))]
    return _counted(2.0 * given.elements * width, [given, *used], (rows, width))


def linear_gradients(call: Call) -> Work:
    """Count _LinearBackward, _LayerNormLinearBackward(gradient) from the shapes of the forward call.

    These are the shapes of the input (..., k) and the weight (n, k). The gradients of input and weight take one matmul
    each. Two matmul kernels compute both gradients; a single one computes either, with the same FLOP.
    """
    gradient = call.tensor(0)
    matrices = [shape for shape in call.outer_shapes if shape is not None and len(shape) >= 2]
    if len(matrices) != 2 or not call.gradients:
        raise Unrecorded
    one, other = (Tensor(shape, gradient.dtype) for shape in matrices)
    k = one.shape[-1]
    if k != other.shape[-1] or k <= 0 or one.elements * (other.elements // k) != gradient.elements * k:
        raise Unrecorded
    flop = 2.0 * len(call.gradients) * gradient.elements * k
    # Each matmul reads the gradient and one of input and weight, and writes a result as large as the other.
    written = (one.shape, other.shape) if len(call.gradients) == 2 else ()
    return _counted(flop, [gradient, one, other], *written)


def four_bit_vector(call: Call) -> Work:
    """Count bitsandbytes::gemv_4bit, gemm_4bit(A, B, shape of B, scales, ...): B is (n, k), two elements per byte."""
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
    """Count bitsandbytes::quantize_4bit(A, block, ...): maximum, divide, choose; half a byte per element."""
    given = call.tensor(0)
    return moved(given, Tensor((-(-given.elements // 2),), BYTE), flop=3.0 * given.elements)


def from_bytes(call: Call) -> Work:
    """Count bitsandbytes::dequantize_blockwise(A, scales, code, block, dtype): look up, multiply."""
    packed = call.tensor(0)
    output = Tensor(packed.shape, call.type_at(4))
    return replace(moved(output, packed, call.optional(1), call.optional(2)), flop=float(packed.elements))


def to_bytes(call: Call) -> Work:
    """Count bitsandbytes::quantize_blockwise(A, code, block), int8_vectorwise_quant(A, ...): to bytes.

    FLOP per element: maximum, divide, choose.
    """
    given = call.tensor(0)
    return moved(given, Tensor(given.shape, BYTE), flop=3.0 * given.elements)


def from_sums(call: Call) -> Work:
    """Count bitsandbytes::int8_mm_dequant(A, row scales, column scales, dtype, bias): 2 FLOP each, FP16 by default."""
    given = call.tensor(0)
    output = Tensor(given.shape, call.type_at(3) or DTYPES["c10::Half"])
    return moved(output, given, call.optional(1), call.optional(2), call.optional(4), flop=2.0 * given.elements)


def optimizer_update(call: Call) -> Work:
    """Count bitsandbytes::optimizer_update_32bit, _8bit_blockwise(name, gradient, parameter, state, [state], ...).

    The gradient is read; parameter and states are read and written. The FLOP depend on the optimizer. Where the
    optimizer skips zeros, fewer bytes are moved.
    """
    gradient, *kept = (call.optional(i) for i in range(1, 5))
    known = [t for t in kept if t is not None and gradient is not None and t.elements == gradient.elements]
    if gradient is None or len(known) < 2:
        raise Unrecorded
    size = total_bytes(gradient, *known, *known)
    return Work(None, size, compute(gradient.dtype), size - gradient.bytes, least=True)


def eight_bit_product(call: Call) -> Work:
    """Count bitsandbytes::int8_linear_matmul(A, B): (..., k) x (n, k), transposed, to int32."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(b.shape) == 2 and bool(a.shape) and a.shape[-1] == b.shape[1])
    output = Tensor((*a.shape[:-1], b.shape[0]), DTYPES["int"])
    return Work(2.0 * output.elements * b.shape[1], total_bytes(a, b, output), "int8")


def skinny(call: Call) -> Work:
    """Count vLLM's wvSplitK, wvSplitKQ, LLMM1(weight, x, ...) of ROCm: (n, k) and (m, k), transposed.

    With operands of 8 bits, the result is among the arguments.
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
_ROTATIONS = ("LigerRopeFunction", "Fast_RoPE_Embedding", "Fast_RoPE_Embedding_QK")
_SOFTMAXES = ("ScaledMaskedSoftmax", "ScaledSoftmax", "GenericScaledMaskedSoftmax")

PRODUCTS: dict[str, Formula] = {
    **dict.fromkeys(("_Linear", "_LayerNormLinear"), linear),
    **dict.fromkeys(("_LinearBackward", "_LayerNormLinearBackward"), linear_gradients),
    "_GroupedLinear": grouped_linear,
    "_LayerNormMLP": two_products,
    **dict.fromkeys(("FusedDenseFunc", "DenseNoBiasFunc"), dense),
    **dict.fromkeys(in_namespaces("bitsandbytes", "gemv_4bit", "gemm_4bit"), four_bit_vector),
    "bitsandbytes::int8_linear_matmul": eight_bit_product,
    **dict.fromkeys(in_namespaces("_rocm_C", "wvSplitK", "wvSplitKrc", "wvSplitKQ", "LLMM1"), skinny),
}
"""Formulas of functions and operators that compute matmuls."""
FORMULAS: dict[str, Formula] = {
    **_NORMS,
    # Read: gradient and input (or result); written: input's gradient. Normalized value 2, two sums 3, combination 4.
    **{f"{name}Backward": of_result(3, 9.0) for name in _NORMS},
    **dict.fromkeys(_GATES, gate),
    # Read: gradient, a and b; written: both gradients. Activation again 5, its derivative 5, multiplications 3.
    **{f"{name}Backward": of_result(5, 13.0) for name in _GATES},
    **dict.fromkeys(_HALVES, halves),
    **{f"{name}Backward": of_result(5, 13.0) for name in _HALVES},
    **dict.fromkeys(_ROTATIONS, rotation),
    "FusedRoPEFunc": rotation_by_angles,
    **{f"{name}Backward": rotation_backward for name in (*_ROTATIONS, "FusedRoPEFunc")},
    **dict.fromkeys(_SOFTMAXES, softmax),
    # Read: the gradient and the result; written: the scores' gradient. Multiply, add; subtract, multiply, scale.
    **{f"{name}Backward": of_result(3, 5.0) for name in _SOFTMAXES},
    "ScaledUpperTriangMaskedSoftmax": triangular_softmax,
    "ScaledUpperTriangMaskedSoftmaxBackward": triangular_gradients,
    **dict.fromkeys(("LayerNormFn", "DropoutAddLayerNormFn"), added_norm),
    "LigerFusedAddRMSNormFunction": summed_norm,
    **dict.fromkeys(in_namespaces("apex", "fused_layer_norm_affine_fwd", "fused_layer_norm_fwd"), _LAYER),
    **dict.fromkeys(in_namespaces("apex", "fused_rms_norm_affine_fwd", "fused_rms_norm_fwd"), _RMS),
    **dict.fromkeys(
        in_namespaces(
            "apex",
            *(f"fused_{kind}_norm{affine}_bwd" for kind in ("layer", "rms") for affine in ("", "_affine")),
        ),
        norm_gradients,
    ),
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
    "bitsandbytes::int8_mm_dequant": from_sums,
    **dict.fromkeys(
        in_namespaces("bitsandbytes", "optimizer_update_32bit", "optimizer_update_8bit_blockwise"), optimizer_update
    ),
    "bitsandbytes::quantize_4bit": to_four_bits,
    "bitsandbytes::dequantize_blockwise": from_bytes,
    **dict.fromkeys(in_namespaces("bitsandbytes", "quantize_blockwise", "int8_vectorwise_quant"), to_bytes),
}
