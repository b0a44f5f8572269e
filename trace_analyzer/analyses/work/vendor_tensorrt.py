"""Count operators of TensorRT-LLM's PyTorch backend: matmuls, norms, gates, quantization and attention.

Argument orders: `cublasScaledMM.cpp`, `fp8BlockScalingGemm.cpp`, `fp8Quantize.cpp` and `fp4Quantize.cpp` in
`cpp/tensorrt_llm/thop`; `custom_ops/torch_custom_ops.py`, `custom_ops/flashinfer_custom_ops.py` and
`modules/attention.py` in `tensorrt_llm/_torch`.
"""

from dataclasses import replace

from trace_analyzer.analyses.work import vendor, vendor_products, vendor_quantization
from trace_analyzer.analyses.work.calls import (
    BYTE,
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

_SCALED = 32
"""Most 4-bit elements that share a scale."""


def product(call: Call) -> Work:
    """Count cublas_mm(a, b, bias, type, ...), cublas_scaled_mm(a, b, scale, scale, bias, type, ...): (m, k) x (k, n).

    Without a type, the result counts in a's type, the narrowest possible one.
    """
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0])
    kind = 5 if call.operator.endswith("cublas_scaled_mm") else 3
    output = Tensor((a.shape[0], b.shape[1]), call.type_at(kind) or a.dtype)
    if a.dtype is None or a.dtype.compute is None:
        raise Unrecorded
    moved = total_bytes(a, b, output, *call.given(2))
    return Work(2.0 * output.elements * a.shape[1], moved, a.dtype.compute)


def gated(call: Call) -> Work:
    """Count flashinfer_silu_and_mul, flashinfer_gelu_tanh_and_mul(both halves): activation 5, multiply.

    The result has the size of one half.
    """
    given = call.tensor(0)
    require(bool(given.shape) and given.shape[-1] % 2 == 0)
    return Work(3.0 * given.elements, 1.5 * given.bytes, compute(given.dtype))


def quantized_fp4(call: Call) -> Work:
    """Count fp4_quantize(input, scale, ...): maximum, multiply, clamp; half a byte per element, a scale per 32."""
    given = call.tensor(0)
    written = Tensor((given.elements // 2 + given.elements // _SCALED,), BYTE)
    return Work(3.0 * given.elements, total_bytes(given, written), compute(given.dtype), least=True)


def attention(call: Call) -> Work:
    """Count attn_custom_op_inplace(query, [key], [value], mask, ...): tokens of this step, without the cache.

    Tokens that pad a graph's batch are not computed: all bytes are doubtful.
    """
    query = call.tensor(0)
    moved = total_bytes(query, call.optional(1), call.optional(2))
    return replace(Work(None, moved, compute(query.dtype), least=True), doubtful_bytes=moved)


def block_scaled(call: Call) -> Work:
    """Count fp8_block_scaling_gemm and fp8_block_scaling_bmm(a, b, scale, scale): (..., m, k) x (..., n, k) transposed.

    The bytes of the scales are doubtful.
    """
    return replace(vendor_products.rowwise(call), doubtful_bytes=total_bytes(call.optional(2), call.optional(3)))


PRODUCTS: dict[str, Formula] = {
    **dict.fromkeys(in_namespaces("trtllm", "cublas_mm", "cublas_scaled_mm", "dsv3_router_gemm_op", "dsv3_fused_a_gemm_op"), product),
    **dict.fromkeys(
        in_namespaces("trtllm", "fp8_block_scaling_gemm", "fp8_block_scaling_bmm", "fp8_block_scaling_bmm_out"), block_scaled
    ),
    **dict.fromkeys(
        in_namespaces("trtllm", "nvfp4_gemm", "nvfp4_gemm_cublaslt", "cublas_fp4_scaled_mm"), vendor_products.rowwise_fp4
    ),
    "trtllm::attn_custom_op_inplace": attention,
}  # fmt: skip
"""Formulas of matmuls and attention."""
FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(
        in_namespaces("trtllm", "fp8_quantize_1x128", "fp8_batched_quantize_1x128_permute102"), vendor_quantization.returned_bytes
    ),
    "trtllm::fp4_quantize": quantized_fp4,
    **dict.fromkeys(in_namespaces("trtllm", "flashinfer_rmsnorm", "flashinfer_gemma_rmsnorm"), vendor.returned_rms_norm),
    **dict.fromkeys(
        in_namespaces("trtllm", "flashinfer_fused_add_rmsnorm", "flashinfer_gemma_fused_add_rmsnorm"), vendor.add_rms_norm
    ),
    "trtllm::flashinfer_fused_add_rmsnorm_quant": vendor_quantization.norm_quantized,
    **dict.fromkeys(in_namespaces("trtllm", "flashinfer_silu_and_mul", "flashinfer_gelu_tanh_and_mul"), gated),
    "trtllm::flashinfer_apply_rope_with_cos_sin_cache_inplace": vendor.rotary,
}  # fmt: skip
