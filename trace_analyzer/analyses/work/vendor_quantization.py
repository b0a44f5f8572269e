"""Count quantization and dequantization of vLLM, SGLang, aiter and FBGEMM, alone or after a norm or activation.

Argument orders are those of the libraries' registrations: vLLM (`csrc/torch_bindings.cpp`,
`csrc/libtorch_stable/torch_bindings.cpp`, `vllm/_aiter_ops.py`), SGLang (`sgl-kernel/csrc/common_extension.cc`), aiter
(`aiter/ops/rmsnorm.py`), FBGEMM (`quantize_ops`, `gen_ai`).
"""

import math
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
    tensor_of,
    total_bytes,
)
from trace_analyzer.analyses.work.vendor import moved


def quantized(call: Call) -> Work:
    """Count static_scaled_fp8_quant, dynamic_scaled_fp8_quant(out, input, scale): multiply, clamp.

    The result may have further rows as padding.
    """
    output, given, scale = call.tensor(0), call.tensor(1), call.optional(2)
    if output.elements < given.elements:
        raise Unrecorded
    return moved(2.0 * given.elements, given, Tensor(given.shape, output.dtype), given, scale)


def gated_quantized(call: Call) -> Work:
    """Count silu_and_mul_quant, silu_and_mul_per_block_quant(out, input, scales): gate 6, multiply, clamp."""
    output, given = call.tensor(0), call.tensor(1)
    require(given.elements == 2 * output.elements)
    return moved(8.0 * output.elements, given, output, given, *call.given(2))


_RESIDUALS = {
    "fused_add_rms_norm_static_fp8_quant": 2,
    "fused_add_rmsnorm_quant": 2,
    "flashinfer_fused_add_rmsnorm_quant": 2,
    "rms_norm_dynamic_per_token_quant": 6,
    "rms_norm_per_block_quant": 6,
}
"""Position of the residual, by the name of the operator that adds one."""


def norm_quantized(call: Call) -> Work:
    """Count rms_norm_static_fp8_quant and similar (out, input, weight, scale, ...): normalize 4, scale and clamp 2.

    A residual is read and written, and takes an addition.
    """
    output, given = call.tensor(0), call.tensor(1)
    require(output.elements == given.elements)
    place = _RESIDUALS.get(call.operator.partition("::")[2])
    residual = None if place is None else call.optional(place)
    require(residual is None or residual.elements == given.elements)
    flop = (6.0 + (residual is not None)) * given.elements
    return moved(flop, given, output, given, *call.given(2), residual)


def added_norm_quantized(call: Call) -> Work:
    """Count aiter::add_rmsnorm_quant(out, input, residual_in, residual_out, scale, weight, ...): each tensor once."""
    given = call.tensor(1)
    require(given.elements == call.tensor(2).elements == call.tensor(3).elements)
    return moved(7.0 * given.elements, given, *(call.tensor(i) for i in range(6)))


def group_quantized(call: Call) -> Work:
    """Count sgl_per_token_group_quant_fp8 and similar (input, out, scales, ...): maximum, multiply, clamp.

    An input of twice the output's size is that of a gate (fuse_silu_and_mul). With a tensor of row counts (masked_m),
    the work is unknown.
    """
    given, output = call.tensor(0), call.tensor(1)
    if call.optional(9) is not None:
        raise Unrecorded
    is_gated = given.elements == 2 * output.elements
    require(output.elements == given.elements or is_gated)
    flop = (9.0 if is_gated else 3.0) * output.elements
    return moved(flop, given, given, output, call.optional(2))


def quantized_fp4(call: Call) -> Work:
    """Count scaled_fp4_quant(out, input, scales, scale) and (input, scale, ...): maximum, multiply, clamp.

    The input is the largest tensor in FP16 or BF16; two of its elements become one byte. Scales, one per 16 elements,
    may be padded and are not counted.
    """
    halves = [t for t in call.given() if compute(t.dtype) in ("fp16", "bf16")]
    if not halves:
        raise Unrecorded
    given = max(halves, key=lambda tensor: tensor.elements)
    return replace(moved(3.0 * given.elements, given, Tensor((given.elements // 2,), BYTE), given), least=True)


def gated_fp4(call: Call) -> Work:
    """Count silu_and_mul_nvfp4_quant(out, scales, input, scale): a gate, then `quantized_fp4` of its result."""
    output, given = call.tensor(0), call.tensor(2)
    require(output.bytes * 4 == given.elements)
    return replace(moved(4.5 * given.elements, given, output, given), least=True)


def from_packed_words(call: Call) -> Work:
    """Count awq_dequantize(words, scales, zeros, ...): eight elements per word (k, n / 8), to (k, n).

    The result has the scales' type.
    """
    words, scales = call.tensor(0), call.tensor(1)
    require(len(words.shape) == len(scales.shape) == 2 and scales.shape[1] == 8 * words.shape[1])
    written = Tensor((words.shape[0], scales.shape[1]), scales.dtype)
    return moved(2.0 * written.elements, written, words, scales, call.optional(2), written)


def from_blocks(call: Call) -> Work:
    """Count ggml_dequantize(blocks, kind, m, n, dtype): bytes of blocks to (m, n), in FP16 by default."""
    blocks, m, n = call.tensor(0), call.number(2), call.number(3)
    written = tensor_of((m, n), call.type_at(4) or DTYPES["c10::Half"])
    return moved(2.0 * written.elements, written, blocks, written)


def converted(call: Call) -> Work:
    """Count convert_fp8(out, input, ...): multiply and clamp."""
    output, given = call.tensor(0), call.tensor(1)
    require(output.elements == given.elements)
    return moved(2.0 * given.elements, given if compute(given.dtype) else output, output, given)


_ROWWISE_SCALES = 8
"""Bytes that FBGEMM's rowwise formats append to each row: a scale and a bias in float (fbgemm_gpu, quantize_ops)."""
_HALVES = (1, 5)
"""FBGEMM's numbers (SparseType) of 16-bit types that can be requested for a result."""


def to_rowwise_bytes(call: Call) -> Work:
    """Count FloatToFP8RowwiseQuantized, FloatToFused8BitRowwiseQuantized(input): bytes, and scales of each row."""
    given = call.tensor(0)
    require(len(given.shape) == 2)
    written = Tensor((given.shape[0], given.shape[1] + _ROWWISE_SCALES), BYTE)
    return moved(3.0 * given.elements, given, given, written)


def from_rowwise_bytes(call: Call) -> Work:
    """Count FP8RowwiseQuantizedToFloat(input, forward, [type]), Fused8BitRowwiseQuantizedToFloat(input)."""
    given = call.tensor(0)
    require(len(given.shape) == 2 and given.shape[1] > _ROWWISE_SCALES)
    narrow = call.value(2) in _HALVES if call.valued else len(call.arguments) > 2
    dtype = DTYPES["c10::Half"] if narrow else FLOAT32
    written = Tensor((given.shape[0], given.shape[1] - _ROWWISE_SCALES), dtype)
    return replace(moved(2.0 * written.elements, written, given, written), least=narrow and not call.valued)


def to_bytes(call: Call) -> Work:
    """Count FloatToHFP8Quantized(input), which writes a byte per element."""
    given = call.tensor(0)
    return moved(2.0 * given.elements, given, given, Tensor(given.shape, BYTE))


def from_bytes(call: Call) -> Work:
    """Count HFP8QuantizedToFloat(input), which writes a float per byte."""
    given = call.tensor(0)
    return moved(2.0 * given.elements, Tensor(given.shape, FLOAT32), given, Tensor(given.shape, FLOAT32))


def returned_bytes(call: Call) -> Work:
    """Count quantize_fp8_per_row, quantize_fp8_per_tensor(input, ...): maximum, scale, clamp; a byte per element."""
    given = call.tensor(0)
    return replace(moved(3.0 * given.elements, given, given, Tensor(given.shape, BYTE)), least=True)


def gated_returned_bytes(call: Call) -> Work:
    """Count rocm_aiter_act_mul_and_fp8_group_quant(input, ...): a gate, then `returned_bytes` of its result."""
    given = call.tensor(0)
    written = Tensor((given.elements // 2,), BYTE)
    return replace(moved(9.0 * written.elements, given, given, written), least=True)


def hadamard(call: Call) -> Work:
    """Count hadacore_transform(x, in place), fast_hadamard_transform(x, scale): n log2 n FLOP per row of n elements."""
    given = call.tensor(0)
    require(bool(given.shape) and given.shape[-1] > 0)
    size = total_bytes(given, Tensor(given.shape, given.dtype))
    return Work(given.elements * math.log2(given.shape[-1]), size, compute(given.dtype))


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(
        in_namespaces(
            "_C",
            "static_scaled_fp8_quant",
            "dynamic_scaled_fp8_quant",
            "dynamic_per_token_scaled_fp8_quant",
            "static_scaled_int8_quant",
            "dynamic_scaled_int8_quant",
        ),
        quantized,
    ),
    "aiter::dynamic_per_token_scaled_quant": quantized,
    **dict.fromkeys(in_namespaces("_C", "silu_and_mul_quant", "silu_and_mul_per_block_quant"), gated_quantized),
    **dict.fromkeys(
        in_namespaces("_C", "rms_norm_static_fp8_quant", "fused_add_rms_norm_static_fp8_quant", "rms_norm_dynamic_per_token_quant", "rms_norm_per_block_quant"),
        norm_quantized,
    ),
    **dict.fromkeys(in_namespaces("flashinfer", "rmsnorm_quant", "fused_add_rmsnorm_quant"), norm_quantized),
    **dict.fromkeys(in_namespaces("aiter", "rmsnorm_quant", "rmsnorm2d_fwd_with_dynamicquant"), norm_quantized),
    **dict.fromkeys(in_namespaces("aiter", "add_rmsnorm_quant", "rmsnorm2d_fwd_with_add_dynamicquant"), added_norm_quantized),
    **dict.fromkeys(
        in_namespaces(
            "sgl_kernel",
            "sgl_per_token_group_quant_8bit",
            "sgl_per_token_group_quant_8bit_v2",
            "sgl_per_token_group_quant_fp8",
            "sgl_per_token_group_quant_int8",
            "sgl_per_tensor_quant_fp8",
            "sgl_per_token_quant_fp8",
        ),
        group_quantized,
    ),
    **dict.fromkeys(
        in_namespaces("_C", "per_token_group_fp8_quant", "per_token_group_fp8_quant_packed", "per_token_group_quant_int8"),
        group_quantized,
    ),
    **dict.fromkeys(in_namespaces("_C _C_stable_libtorch sgl_kernel", "scaled_fp4_quant"), quantized_fp4),
    **dict.fromkeys(in_namespaces("_C _C_stable_libtorch", "silu_and_mul_nvfp4_quant"), gated_fp4),
    **dict.fromkeys(in_namespaces("_C _C_stable_libtorch sgl_kernel", "awq_dequantize"), from_packed_words),
    **dict.fromkeys(in_namespaces("_C sgl_kernel", "ggml_dequantize"), from_blocks),
    "_C_cache_ops::convert_fp8": converted,
    **dict.fromkeys(
        in_namespaces("fbgemm", "FloatToFP8RowwiseQuantized", "FloatToFused8BitRowwiseQuantized"), to_rowwise_bytes
    ),
    **dict.fromkeys(
        in_namespaces("fbgemm", "FP8RowwiseQuantizedToFloat", "Fused8BitRowwiseQuantizedToFloat"), from_rowwise_bytes
    ),
    "fbgemm::FloatToHFP8Quantized": to_bytes,
    "fbgemm::HFP8QuantizedToFloat": from_bytes,
    **dict.fromkeys(in_namespaces("fbgemm mslk", "quantize_fp8_per_row", "quantize_fp8_per_tensor"), returned_bytes),
    **dict.fromkeys(
        in_namespaces("vllm", "rocm_aiter_per_token_quant", "rocm_aiter_per_tensor_quant", "rocm_aiter_group_fp8_quant", "triton_per_token_group_quant_fp8"),
        returned_bytes,
    ),
    "vllm::rocm_aiter_act_mul_and_fp8_group_quant": gated_returned_bytes,
    **dict.fromkeys(("_C::hadacore_transform", "sgl_kernel::fast_hadamard_transform"), hadamard),
}  # fmt: skip
