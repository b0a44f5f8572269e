"""Count matmuls of inference libraries: scaled and weight-quantized ones, and those of experts.

Argument orders are those of the libraries' registrations: vLLM (`csrc/torch_bindings.cpp`,
`csrc/libtorch_stable/torch_bindings.cpp`, `csrc/rocm/torch_bindings.cpp`, `fused_moe.py`, `_aiter_ops.py`,
`utils/flashinfer.py`), SGLang (`sgl-kernel/csrc/common_extension.cc`, `fused_moe_triton/fused_moe.py`,
`fp8_kernel.py`), FBGEMM and MSLK (`gemm_ops`, `quantize_ops`). FLOP: 2 per multiply-add, in the operands' type.
"""

from dataclasses import replace
from math import prod

from trace_analyzer.analyses.work.calls import (
    BYTE,
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
"""Result type of fp8 and int8 matmuls where the call does not record it."""
_PACKED_GROUP = 8
"""Least bytes of 4-bit elements that share a scale."""


def _counted(flop: float, dtype: Dtype | None, *tensors: Tensor | None) -> Work:
    if dtype is None or dtype.compute is None:
        raise Unrecorded
    return Work(flop, total_bytes(*tensors), dtype.compute)


def written(call: Call) -> Work:
    """Count cutlass_scaled_mm, dsv3_router_gemm(output, a, b, ...): a (m, k); b (k, n) or transposed (n, k)."""
    output, a, b = (call.tensor(i) for i in range(3))
    require(len(a.shape) == len(b.shape) == len(output.shape) == 2)
    m, k = a.shape
    require(output.shape in ((m, b.shape[1]), (m, b.shape[0])) and k in b.shape)
    return _counted(2.0 * output.elements * k, a.dtype, output, a, b, *call.given(3))


def written_fp4(call: Call) -> Work:
    """Count cutlass_scaled_fp4_mm(output, a, b, scales ...): two elements per byte of a (m, k / 2) and b (n, k / 2).

    One scale per 16 elements is read; tensors of scales are padded to whole tiles.
    """
    output, a, b = (call.tensor(i) for i in range(3))
    require(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[1])
    require(output.shape == (a.shape[0], b.shape[0]))
    return _fp4(output, a, b, call.optional(3), call.optional(4))


def returned_fp4(call: Call) -> Work:
    """Count flashinfer_mm_fp4(a, b, scales of a, scales of b, scale, dtype, ...): a (m, k / 2), b (k / 2, n)."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0])
    output = Tensor((a.shape[0], b.shape[1]), call.type_at(5) or _BF16)
    return _fp4(output, a, b, call.optional(2), call.optional(3))


def rowwise_fp4(call: Call) -> Work:
    """Count f4f4bf16(x, w, scales ...): two elements per byte of x (m, k / 2) and w (n, k / 2), to bf16."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[1])
    return _fp4(Tensor((a.shape[0], b.shape[0]), _BF16), a, b, call.optional(2), call.optional(3))


def _fp4(output: Tensor, a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None) -> Work:
    bytes_each = a.shape[1]
    scales = [
        Tensor((min(scale.elements, rows * -(-bytes_each // _PACKED_GROUP)),), scale.dtype)
        for scale, rows in ((scale_a, output.shape[0]), (scale_b, output.shape[1]))
        if scale is not None
    ]
    return replace(_counted(4.0 * output.elements * bytes_each, _BF16, output, a, b, *scales), dtype="fp4")


def scaled(call: Call) -> Work:
    """Count fp8_scaled_mm, int8_scaled_mm(a, b, scale_a, scale_b, out_dtype, bias): (m, k) x (k, n)."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0])
    output = Tensor((a.shape[0], b.shape[1]), call.type_at(4) or _BF16)
    return _counted(2.0 * output.elements * a.shape[1], a.dtype, a, b, output, *call.given(2))


def rowwise(call: Call) -> Work:
    """Count f8f8bf16_rowwise and similar (x, w, scales ..., [output]): (..., m, k) x (..., n, k) transposed, bf16."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) >= 2 and len(b.shape) in (2, len(a.shape)) and a.shape[-1] == b.shape[-1])
    output = Tensor((*a.shape[:-1], b.shape[-2]), _BF16)
    scales = [t for t in call.given(2) if t.shape != output.shape]
    return _counted(2.0 * output.elements * a.shape[-1], _wider(a, b), a, b, output, *scales)


def _wider(a: Tensor, b: Tensor) -> Dtype | None:
    """Return the wider type of two operands, to which the kernel converts the narrower one."""
    return a.dtype if a.dtype is None or b.dtype is None or a.size >= b.size else b.dtype


def interleaved(call: Call) -> Work:
    """Count deep_gemm_fp8_fp8_bf16_nt(a, scales, b, scales, output): (m, k) x (n, k), transposed."""
    a, b, output = call.tensor(0), call.tensor(2), call.tensor(4)
    require(len(b.shape) == 2 and bool(a.shape) and a.shape[-1] == b.shape[1])
    require(output.elements * a.shape[-1] == a.elements * b.shape[0])
    return _counted(2.0 * output.elements * a.shape[-1], a.dtype, a, b, output, call.optional(1), call.optional(3))


def batched(call: Call) -> Work:
    """Count bmm_fp8(a, b, [output], scales ..., [work area]): (b, m, k) x (b, k, n)."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) == len(b.shape) == 3 and a.shape[0] == b.shape[0] and a.shape[2] == b.shape[1])
    shape = (*a.shape[:2], b.shape[2])
    given = [t for t in call.given(2) if t.shape == shape]
    output = given[0] if given else Tensor(shape, call.type_at(4) or _BF16)
    return _counted(2.0 * prod(shape) * a.shape[2], a.dtype, a, b, output)


def rowwise_int4(call: Call) -> Work:
    """Count bf16i4bf16_rowwise and similar (x, w, scales ...): two weights per byte of w (..., n, k / 2)."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) == len(b.shape) >= 2 and a.shape[:-2] == b.shape[:-2] and a.shape[-1] == 2 * b.shape[-1])
    output = Tensor((*a.shape[:-1], b.shape[-2]), _BF16)
    return _counted(2.0 * output.elements * a.shape[-1], a.dtype, a, b, output, *call.given(2))


def packed_weight(call: Call) -> Work:
    """Count awq_gemm, gptq_gemm and Marlin's matmuls of a (m, k) with packed weights of 2 to 8 bits.

    The weight is the first matrix of integers; the output may precede it. The next matrix of a float type contains its
    scales (groups, n), whose shape determines n. Zero points and workspaces are not counted.
    """
    a = call.tensor(0)
    require(len(a.shape) == 2)
    matrices = [t for t in call.given(1) if len(t.shape) == 2 and t.dtype is not None and t.elements]
    place = next((i for i, t in enumerate(matrices) if not _is_scale(t)), None)
    scales = None if place is None else next((t for t in matrices[place:] if _is_scale(t)), None)
    if place is None or scales is None:
        raise Unrecorded
    return _packed(a, matrices[place], scales.shape[1], scales)


def prepacked_weight(call: Call) -> Work:
    """Count machete_mm, cutlass_w4a8_mm(a, b, ...): a (m, k); b in words, (k / elements per word, n)."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) == 2)
    if len(b.shape) != 2 or b.dtype != DTYPES["int"]:
        raise Unrecorded
    return _packed(a, b, b.shape[1])


def _packed(a: Tensor, weight: Tensor, n: int, *scales: Tensor) -> Work:
    m, k = a.shape
    bits, rest = divmod(8 * weight.elements * int(weight.size), max(1, k * n))
    if rest or bits not in (2, 3, 4, 6, 8):
        raise Unrecorded
    narrow = a.dtype is not None and a.dtype.compute in ("fp8", "int8")
    output = Tensor((m, n), _BF16 if narrow else a.dtype)
    return _counted(2.0 * output.elements * k, a.dtype, a, weight, *scales, output)


def eight_bit_rows(call: Call) -> Work:
    """Count qserve_w4a8_per_chn_gemm(a, w, scales ..., output): a (m, k), two weights per byte of w (n, k / 2).

    The matmul is computed in 8 bits.
    """
    given = call.given()
    require(len(given) > 2)
    a, b, output = given[0], given[1], given[-1]
    require(len(a.shape) == len(b.shape) == 2 and a.shape[1] == 2 * b.shape[1])
    require(output.shape == (a.shape[0], b.shape[0]))
    return _counted(2.0 * output.elements * a.shape[1], DTYPES["signed char"], *given)


def _is_scale(tensor: Tensor) -> bool:
    return tensor.dtype is not None and tensor.dtype.compute in ("fp16", "bf16", "fp32", "fp8")


def linear(call: Call) -> Work:
    """Count rocm_unquantized_gemm(x, w, bias), gemm_a16w16(x, w, bias, dtype, ...): (..., k) x (n, k), transposed."""
    x, w = call.tensor(0), call.tensor(1)
    require(len(w.shape) == 2 and bool(x.shape) and x.shape[-1] == w.shape[1])
    output = Tensor((*x.shape[:-1], w.shape[0]), call.type_at(3) or x.dtype)
    return _counted(2.0 * output.elements * w.shape[1], x.dtype, x, w, output, call.optional(2))


def from_blocks(call: Call) -> Work:
    """Count ggml_mul_mat_a8, ggml_mul_mat_vec_a8(blocks, x, kind, n): x (m, k) times n rows of blocks, in 8 bits."""
    blocks, x, n = call.tensor(0), call.tensor(1), call.number(3)
    require(len(x.shape) == 2 and n >= 0)
    output = tensor_of((x.shape[0], n), x.dtype)
    return replace(_counted(2.0 * output.elements * x.shape[1], x.dtype, blocks, x, output), dtype="int8")


def bytes_weight(call: Call) -> Work:
    """Count allspark_w8a16_gemm(a, w, scales, zeros, n, ...): a (m, k) times n columns of 8-bit weights, padded."""
    a, w, n = call.tensor(0), call.tensor(1), call.number(4)
    require(len(a.shape) == len(w.shape) == 2 and 0 <= n * a.shape[1] <= w.elements)
    output = tensor_of((a.shape[0], n), a.dtype)
    weights = Tensor((n * a.shape[1],), w.dtype)
    return _counted(2.0 * output.elements * a.shape[1], a.dtype, a, weights, call.optional(2), output)


def few_bits(call: Call) -> Work:
    """Count torchao::quant_llm_linear(exponent, mantissa, x, w, scales, ...): x (m, k), n rows of packed weights."""
    bits, x, w = 1 + call.number(0) + call.number(1), call.tensor(2), call.tensor(3)
    require(len(x.shape) == len(w.shape) == 2 and w.shape[1] * 8 == x.shape[1] * bits)
    output = Tensor((x.shape[0], w.shape[0]), x.dtype)
    return _counted(2.0 * output.elements * x.shape[1], x.dtype, x, w, call.optional(4), output)


def experts(call: Call) -> Work:
    """Count inplace_fused_experts, outplace_fused_experts(hidden, w1, w2, topk_weights, topk_ids, ...).

    Each of a token's top k experts multiplies it (h) by w1 (experts, 2 i, h; i without a gate) and the result by w2
    (experts, h, i); weights may be packed along their last dimension. The weights of k experts must be read; those of
    further experts, at most one per row, may be read: they are doubtful. With experts on several devices, the work is
    unknown, because a trace does not show which tokens are computed on this device.
    """
    if _elsewhere(call):
        raise Unrecorded
    return _local_experts(call)


def _local_experts(call: Call) -> Work:
    hidden, w1, w2, ids = call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(4)
    require(len(hidden.shape) == len(ids.shape) == 2 and len(w1.shape) == len(w2.shape) == 3)
    tokens, width = hidden.shape
    count, wide = w1.shape[0], w1.shape[1]
    require(w2.shape[0] == count and w2.shape[1] == width and ids.shape[0] == tokens and count > 0)
    require(w1.shape[2] > 0)
    packed, rest = divmod(width, w1.shape[2])
    require(rest == 0 and packed > 0)
    inner = w2.shape[2] * packed
    require(wide in (inner, 2 * inner))
    top, rows = ids.shape[1], ids.elements
    weights = w1.bytes + w2.bytes
    read, must = weights * min(count, rows) / count, weights * min(count, top) / count
    plain = _counted(
        2.0 * rows * width * (wide + inner),
        _experts_type(hidden, w1, packed),
        hidden, ids, call.tensor(3), Tensor(hidden.shape, hidden.dtype),
    )  # fmt: skip
    assert plain.moved_bytes is not None
    return replace(plain, moved_bytes=plain.moved_bytes + read, doubtful_bytes=read - must)


_SWITCHES = range(19, 27)
"""Positions of SGLang's flags that skip tokens of absent experts (filter_expert) or keep results apart (no_combine)."""


def _elsewhere(call: Call) -> bool:
    """Return whether experts may be on other devices: a map has more experts than weights, or a flag skips some."""
    weights = call.tensor(1)
    count = weights.shape[0] if weights.shape else 0
    maps = [t for t in call.given(5) if len(t.shape) == 1 and t.dtype in (DTYPES["int"], DTYPES["long"])]
    return any(t.shape[0] > count for t in maps) or (call.valued and any(map(call.flag, _SWITCHES)))


def _experts_type(hidden: Tensor, weight: Tensor, packed: int) -> Dtype | None:
    """Return the narrowest type in which the matmuls may be computed: 8-bit weights may meet 8-bit activations."""
    narrow = weight.dtype is not None and weight.dtype.compute in ("fp8", "fp4", "int8")
    return weight.dtype if narrow and (packed == 1 or weight.dtype != BYTE) else hidden.dtype


def masked_experts(count: int, padding: tuple[int, int]) -> Formula:
    """Return the formula of aiter's fused_moe_ and of vLLM's operator around it.

    Arguments are (hidden, w1, w2, topk_weight, topk_ids, expert_mask, ...). With a mask, a number of tokens at
    ``count``, padding of widths at ``padding``, or weights of shared experts, the work is unknown.
    """

    def formula(call: Call) -> Work:
        others = [t for t in call.given(20) if len(t.shape) > 2]
        padded = call.valued and any(isinstance(call.value(i), int) and call.value(i) for i in padding)
        if others or padded or call.optional(5) is not None or call.optional(count) is not None:
            raise Unrecorded
        return _local_experts(call)

    return formula


def marlin_experts(call: Call) -> Work:
    """Count moe_wna16_marlin_gemm(a, c, packed weights, ...).

    After the packed weights come scales, ..., sorted ids, expert ids, padded, topk_weights, block, top k, flags (the
    second one of earlier versions is is_ep), the weights' type, and the sizes m, n and k. Without is_ep, the buffer of
    sorted ids shows whether all experts are on this device: then it has room for block - 1 further ids per expert.
    """
    if not call.valued:
        raise Unrecorded
    last = max(i for i, argument in enumerate(call.arguments) if isinstance(argument, Tensor))
    values = [call.value(i) for i in range(last + 1, last + 9)]
    flags = [value for value in values[2:4] if isinstance(value, bool)]
    sizes = values[3 + len(flags) : 6 + len(flags)]
    if not flags or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in (*values[:2], *sizes)):
        raise Unrecorded
    (block, top), (m, n, k) = values[:2], sizes
    a, rows = call.tensor(0), m * top
    experts_here = [t for t in call.given(1) if len(t.shape) == 3]
    if len(experts_here) < 2 or a.shape != (m, k):
        raise Unrecorded
    weight, scales = experts_here[:2]
    count = weight.shape[0]
    ids = call.tensor(last - 3)
    if flags[-1] if len(flags) == 2 else ids.elements != rows + count * (block - 1):
        raise Unrecorded
    kept = total_bytes(weight, scales) / max(1, count)
    read, must = kept * min(count, rows), kept * min(count, top)
    plain = _counted(2.0 * rows * n * k, a.dtype, a, tensor_of((rows, n), scales.dtype if a.size < 2 else a.dtype))
    assert plain.moved_bytes is not None
    return replace(plain, moved_bytes=plain.moved_bytes + read, doubtful_bytes=read - must)


def with_epilogue(call: Call) -> Work:
    """Count quack's gemm(A, B), gemm_out(A, B, out, ...) and similar: (m, k) x (k, n), or batches of them.

    Each tensor is read or written once. With lists of integers (offsets, rows to gather), the work is unknown.
    """
    first, second, given = call.tensor(0), call.tensor(1), call.given()
    fits = len(first.shape) == len(second.shape) in (2, 3) and first.shape[:-2] == second.shape[:-2]
    types = {t.dtype.compute if t.dtype is not None else None for t in given}
    if not fits or first.shape[-1] != second.shape[-2] or not types <= {"fp16", "bf16", "fp32"}:
        raise Unrecorded
    output = tensor_of((*first.shape[:-1], second.shape[-1]), first.dtype)
    returned = output if call.operator == "quack::gemm" else None
    return _counted(2.0 * output.elements * first.shape[-1], first.dtype, *given, returned)


def both_halves(call: Call) -> Work:
    """Count xformers::dual_gemm_silu_identity_mul(x, w1, [b1], w2, [b2]): (m, k) x two (n, k), transposed.

    Both matmuls' results and their gate are written. With types wider than the kernel's (autocast), the work is
    unknown.
    """
    x, first, second = call.tensor(0), call.tensor(1), call.tensor(3)
    require(len(x.shape) == len(first.shape) == 2 and first.shape == second.shape and x.shape[1] == first.shape[1])
    _require_halves(call)
    output = Tensor((x.shape[0], first.shape[0]), x.dtype)
    return _counted(4.0 * output.elements * x.shape[1], x.dtype, *call.given(), output, output, output)


def product_and_sum(call: Call) -> Work:
    """Count xformers::gemm_fused_operand_sum(a, b, [product, sums]): (m, k) x (k, n), and the sums of a's rows."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0])
    _require_halves(call)
    output, sums = Tensor((a.shape[0], b.shape[1]), a.dtype), Tensor((a.shape[0],), a.dtype)
    return _counted(2.0 * output.elements * a.shape[1], a.dtype, a, b, output, sums)


def _require_halves(call: Call) -> None:
    if any(t.dtype is None or t.dtype.compute not in {"fp16", "bf16"} for t in call.given()):
        raise Unrecorded


_AITER_PRODUCTS = (
    "gemm_w8a8", "w8a8_gemm", "gemm_w8a8_blockscale", "gemm_a8w8", "gemm_a8w8_blockscale", "triton_gemm_a8w8_blockscale",
)  # fmt: skip
_AITER_KERNELS = (
    *(f"{kind}{kernel}" for kind in ("", "bpreshuffle_", "blockscale_", "blockscale_bpreshuffle_") for kernel in ("ck", "cktile", "asm")),
    "bpreshuffle", "blockscale", "blockscale_bpreshuffle",
)  # fmt: skip
FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("vllm::rocm_unquantized_gemm", "aiter::gemm_a16w16"), linear),
    **dict.fromkeys(
        (
            *in_namespaces("vllm", "w8a8_triton_block_scaled_mm_func", "w8a8_block_fp8_matmul_deepgemm", "padded_cutlass"),
            *in_namespaces("vllm", *(f"rocm_aiter_{name}" for name in _AITER_PRODUCTS)),
            *in_namespaces("aiter", "gemm_a8w8", *(f"gemm_a8w8_{name}" for name in _AITER_KERNELS)),
        ),
        rowwise,
    ),
    "sglang::deep_gemm_fp8_fp8_bf16_nt": interleaved,
    **dict.fromkeys(("sgl_kernel::bmm_fp8", "vllm::bmm_fp8"), batched),
    "vllm::flashinfer_mm_fp4": returned_fp4,
    **dict.fromkeys(in_namespaces("_C sgl_kernel", "ggml_mul_mat_a8", "ggml_mul_mat_vec_a8"), from_blocks),
    "_C::allspark_w8a16_gemm": bytes_weight,
    **dict.fromkeys(in_namespaces("_C _C_stable_libtorch", "cutlass_scaled_mm", "cutlass_scaled_mm_azp"), written),
    **dict.fromkeys(
        in_namespaces("_C _moe_C sgl_kernel", "dsv3_fused_a_gemm", "dsv3_router_gemm", "fp32_router_gemm"), written
    ),
    **dict.fromkeys(in_namespaces("_C _C_stable_libtorch sgl_kernel", "cutlass_scaled_fp4_mm"), written_fp4),
    **dict.fromkeys(in_namespaces("sgl_kernel", "fp8_scaled_mm", "int8_scaled_mm", "fp8_blockwise_scaled_mm"), scaled),
    **dict.fromkeys(in_namespaces("sgl_kernel", "qserve_w4a8_per_chn_gemm", "qserve_w4a8_per_group_gemm"), eight_bit_rows),
    **dict.fromkeys(
        in_namespaces(
            "fbgemm mslk", "f8f8bf16", "f8f8bf16_rowwise", "f8f8bf16_rowwise_out", "f8f8f16_rowwise", "f8f8bf16_blockwise",
            "f8f8bf16_tensorwise", "f8f8bf16_rowwise_batched", "f8f8bf16_cublas", "f8f8bf16_lite", "f8f8bf16_rowwise_preshuffle",
            "f8f8f16_rowwise_preshuffle", "i8i8bf16", "i8i8bf16_dynamic", "bf16_fast_gemv", "bf16fp8bf16_fast_gemv",
            "fp8fp8bf16_fast_gemv",
        ),
        rowwise,
    ),
    **dict.fromkeys(
        in_namespaces(
            "fbgemm mslk", "bf16i4bf16_rowwise", "f8i4bf16_rowwise", "bf16i4bf16_rowwise_batched", "bf16i4bf16_shuffled",
            "f8i4bf16_shuffled", "bf16i4bf16_shuffled_batched",
        ),
        rowwise_int4,
    ),
    **dict.fromkeys(in_namespaces("fbgemm mslk", "f4f4bf16"), rowwise_fp4),
    **dict.fromkeys(
        in_namespaces("_C _C_stable_libtorch sgl_kernel", "awq_gemm", "gptq_gemm", "gptq_marlin_gemm", "marlin_gemm", "awq_marlin_gemm"), packed_weight
    ),
    **dict.fromkeys(in_namespaces("_rocm_C", "gptq_gemm_rdna3", "gptq_gemm_rdna3_wmma"), packed_weight),
    **dict.fromkeys(in_namespaces("_C _C_stable_libtorch sgl_kernel", "machete_mm", "cutlass_w4a8_mm"), prepacked_weight),
    **dict.fromkeys(in_namespaces("vllm sglang", "inplace_fused_experts", "outplace_fused_experts"), experts),
    "vllm::rocm_aiter_fused_moe": masked_experts(13, (15, 16)),
    "aiter::fused_moe_": masked_experts(14, (17, 18)),
    "torchao::quant_llm_linear": few_bits,
    "xformers::dual_gemm_silu_identity_mul": both_halves,
    "xformers::gemm_fused_operand_sum": product_and_sum,
    **dict.fromkeys(
        in_namespaces("quack", "gemm", *(f"gemm_{kind}" for kind in ("out", "add_out", "add_inplace", "act_out", "dact_out", "gated_out", "dgated_out"))),
        with_epilogue,
    ),
    **dict.fromkeys(in_namespaces("_moe_C sgl_kernel", "moe_wna16_marlin_gemm"), marlin_experts),
}  # fmt: skip
