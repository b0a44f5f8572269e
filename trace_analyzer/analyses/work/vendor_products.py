"""Count matmuls of inference libraries: scaled and weight-quantized ones, and mixtures of experts.

Argument orders are those of the libraries' registrations: vLLM (`csrc/torch_bindings.cpp`, `fused_moe.py`), SGLang
(`sgl-kernel/csrc/common_extension.cc`), FBGEMM and MSLK (`gemm_ops`). FLOP: 2 per multiply-add, in the operands' type.
"""

from dataclasses import replace

from trace_analyzer.analyses.work.calls import (
    DTYPES,
    Call,
    Dtype,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    in_namespaces,
    require,
    tensor_of,
    total_bytes,
)

_BF16 = DTYPES["c10::BFloat16"]
"""Result type of fp8 and int8 matmuls where the call does not specify it."""


def _counted(flop: float, dtype: Dtype | None, *tensors: Tensor | None) -> Work:
    if dtype is None or dtype.compute is None:
        raise Unrecorded
    return Work(flop, total_bytes(*tensors), dtype.compute)


def written(call: Call) -> Work:
    """Count (output, a, b, ...): a (m, k); b (k, n) or transposed (n, k)."""
    output, a, b = (call.tensor(i) for i in range(3))
    require(len(a.shape) == len(b.shape) == len(output.shape) == 2)
    m, k = a.shape
    require(output.shape in ((m, b.shape[1]), (m, b.shape[0])) and k in b.shape)
    return _counted(2.0 * output.elements * k, a.dtype, output, a, b, *call.given(3))


def written_fp4(call: Call) -> Work:
    """Count cutlass_scaled_fp4_mm(output, a, b, scales ...): two elements per byte of a (m, k / 2) and b (n, k / 2)."""
    output, a, b = (call.tensor(i) for i in range(3))
    require(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[1])
    require(output.shape == (a.shape[0], b.shape[0]))
    return replace(_counted(4.0 * output.elements * a.shape[1], _BF16, output, a, b, *call.given(3)), dtype="fp4")


def scaled(call: Call) -> Work:
    """Count fp8_scaled_mm, int8_scaled_mm(a, b, scale_a, scale_b, out_dtype, bias): (m, k) x (k, n)."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0])
    output = Tensor((a.shape[0], b.shape[1]), call.type_at(4) or _BF16)
    return _counted(2.0 * output.elements * a.shape[1], a.dtype, a, b, output, *call.given(2))


def rowwise(call: Call) -> Work:
    """Count f8f8bf16_rowwise and related operators (x, w, scales ...).

    (..., m, k) x (..., n, k), transposed, gives bf16.
    """
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) >= 2 and len(b.shape) in (2, len(a.shape)) and a.shape[-1] == b.shape[-1])
    output = Tensor((*a.shape[:-1], b.shape[-2]), _BF16)
    return _counted(2.0 * output.elements * a.shape[-1], a.dtype, a, b, output, *call.given(2))


def rowwise_int4(call: Call) -> Work:
    """Count bf16i4bf16_rowwise and related operators (x, w, scales ...): two weights per byte of w (n, k / 2)."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) == len(b.shape) == 2 and a.shape[1] == 2 * b.shape[1])
    output = Tensor((a.shape[0], b.shape[0]), _BF16)
    return _counted(2.0 * output.elements * a.shape[1], a.dtype, a, b, output, *call.given(2))


def packed_weight(call: Call) -> Work:
    """Count awq_gemm, gptq_gemm and Marlin's matmuls of a (m, k) with packed weights.

    Their scales (groups, n) show n: they are the first two-dimensional tensor with a float type after the weight.
    Workspaces are not counted.
    """
    a = call.tensor(0)
    rest = call.given(1)
    require(len(a.shape) == 2)
    scales = next((t for t in rest if len(t.shape) == 2 and t.dtype is not None and _is_scale(t.dtype)), None)
    if scales is None or not rest:
        raise Unrecorded
    weight = next(t for t in rest if len(t.shape) == 2)
    output = Tensor((a.shape[0], scales.shape[1]), a.dtype)
    return _counted(2.0 * output.elements * a.shape[1], a.dtype, a, weight, scales, output)


def _is_scale(dtype: Dtype) -> bool:
    return dtype.compute in ("fp16", "bf16", "fp32", "fp8")


def linear(call: Call) -> Work:
    """Count rocm_unquantized_gemm(x, w, bias): (..., k) x (n, k), transposed, to x's type."""
    x, w = call.tensor(0), call.tensor(1)
    require(len(w.shape) == 2 and bool(x.shape) and x.shape[-1] == w.shape[1])
    output = Tensor((*x.shape[:-1], w.shape[0]), x.dtype)
    return _counted(2.0 * output.elements * w.shape[1], x.dtype, x, w, output, call.optional(2))


def from_blocks(call: Call) -> Work:
    """Count ggml_mul_mat_a8, ggml_mul_mat_vec_a8(blocks, x, kind, n): x (m, k) by n rows of blocks, in 8 bits."""
    blocks, x, n = call.tensor(0), call.tensor(1), call.number(3)
    require(len(x.shape) == 2 and n >= 0)
    output = tensor_of((x.shape[0], n), x.dtype)
    return replace(_counted(2.0 * output.elements * x.shape[1], x.dtype, blocks, x, output), dtype="int8")


def bytes_weight(call: Call) -> Work:
    """Count allspark_w8a16_gemm(a, w, scales, zeros, n, ...): a (m, k) by n columns of one-byte weights, padded."""
    a, w, n = call.tensor(0), call.tensor(1), call.number(4)
    require(len(a.shape) == len(w.shape) == 2 and 0 <= n * a.shape[1] <= w.elements)
    output = tensor_of((a.shape[0], n), a.dtype)
    weights = Tensor((n * a.shape[1],), w.dtype)
    return _counted(2.0 * output.elements * a.shape[1], a.dtype, a, weights, call.optional(2), output)


def experts(call: Call) -> Work:
    """Count inplace_fused_experts, outplace_fused_experts(hidden, w1, w2, topk_weights, topk_ids, ...).

    Each of a token's top k experts multiplies the token's state (h) by w1 (experts, 2 i, h; i without a gate) and the
    result by w2 (experts, h, i); weights may be packed along their last dimension. The weights of at least k experts
    are read; those of others, up to the number of rows, are doubtful. With experts on several devices the work is
    unknown, as a trace does not contain which tokens are computed here.
    """
    hidden, w1, w2, ids = call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(4)
    require(len(hidden.shape) == len(ids.shape) == 2 and len(w1.shape) == len(w2.shape) == 3)
    tokens, width = hidden.shape
    count, wide = w1.shape[0], w1.shape[1]
    require(w2.shape[0] == count and w2.shape[1] == width and ids.shape[0] == tokens and count > 0)
    if any(
        len(t.shape) == 1 and t.shape[0] > count and t.dtype in (DTYPES["int"], DTYPES["long"]) for t in call.given(5)
    ):
        raise Unrecorded
    require(w1.shape[2] > 0)
    packed, rest = divmod(width, w1.shape[2])
    require(rest == 0 and packed > 0)
    inner = w2.shape[2] * packed
    require(wide in (inner, 2 * inner))
    top, rows = ids.shape[1], ids.elements
    weights = w1.bytes + w2.bytes
    read, must = weights * min(count, rows) / count, weights * min(count, top) / count
    dtype = w1.dtype if w1.dtype is not None and w1.dtype.compute == "fp8" else hidden.dtype
    plain = _counted(
        2.0 * rows * width * (wide + inner), dtype, hidden, ids, call.tensor(3), Tensor(hidden.shape, hidden.dtype)
    )
    assert plain.moved_bytes is not None
    return replace(plain, moved_bytes=plain.moved_bytes + read, doubtful_bytes=read - must)


FORMULAS: dict[str, Formula] = {
    "vllm::rocm_unquantized_gemm": linear,
    **dict.fromkeys(in_namespaces("vllm", "w8a8_triton_block_scaled_mm_func", "rocm_aiter_gemm_w8a8", "rocm_aiter_w8a8_gemm", "rocm_aiter_gemm_w8a8_blockscale"), rowwise),
    **dict.fromkeys(in_namespaces("_C sgl_kernel", "ggml_mul_mat_a8", "ggml_mul_mat_vec_a8"), from_blocks),
    "_C::allspark_w8a16_gemm": bytes_weight,
    **dict.fromkeys(in_namespaces("_C _C_stable_libtorch", "cutlass_scaled_mm", "cutlass_scaled_mm_azp"), written),
    **dict.fromkeys(in_namespaces("_C _moe_C sgl_kernel", "dsv3_fused_a_gemm", "dsv3_router_gemm"), written),
    **dict.fromkeys(in_namespaces("_C _C_stable_libtorch sgl_kernel", "cutlass_scaled_fp4_mm"), written_fp4),
    **dict.fromkeys(in_namespaces("sgl_kernel", "fp8_scaled_mm", "int8_scaled_mm", "fp8_blockwise_scaled_mm"), scaled),
    **dict.fromkeys(
        in_namespaces(
            "fbgemm mslk", "f8f8bf16", "f8f8bf16_rowwise", "f8f8bf16_blockwise", "f8f8bf16_tensorwise", "f8f8bf16_rowwise_batched",
            "i8i8bf16", "i8i8bf16_dynamic",
        ),
        rowwise,
    ),
    **dict.fromkeys(in_namespaces("fbgemm mslk", "bf16i4bf16_rowwise", "f8i4bf16_rowwise"), rowwise_int4),
    **dict.fromkeys(
        in_namespaces("_C _C_stable_libtorch sgl_kernel", "awq_gemm", "gptq_gemm", "gptq_marlin_gemm", "marlin_gemm", "awq_marlin_gemm", "machete_mm"), packed_weight
    ),
    **dict.fromkeys(in_namespaces("vllm sglang", "inplace_fused_experts", "outplace_fused_experts"), experts),
}  # fmt: skip
