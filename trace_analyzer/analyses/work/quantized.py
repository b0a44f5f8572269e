"""Count matmuls with weights of few bits, and those of experts.

Argument orders are those of the libraries that `trace_analyzer.analyses.work.matmuls` names. FLOP: 2 per multiply-add.
"""

from msgspec.structs import replace

from trace_analyzer.analyses.work import calls
from trace_analyzer.analyses.work.matmuls import BF16, counted

_PACKED_GROUP = 8
"""Least bytes of 4-bit elements that share a scale."""


def _fp4(left: int, output: int | None = None, *, nk: bool = True) -> calls.Formula:
    """Return the formula of (a, b, scales of a, scales of b, ...) from ``left`` on, two elements per byte.

    a is (m, k / 2), b (n, k / 2), or (k / 2, n) without ``nk``. One scale per 16 elements is read; tensors of scales are
    padded to whole tiles. The result is at ``output``, or has the type at position 5, else bf16.
    """

    def formula(call: calls.Call) -> calls.Work:
        a, b = call.tensor(left), call.tensor(left + 1)
        calls.require(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[nk])
        shape = (a.shape[0], b.shape[not nk])
        result = calls.Tensor(shape, call.type_at(5) or BF16) if output is None else call.tensor(output)
        calls.require(result.shape == shape)
        scales = [
            calls.Tensor((min(scale.elements, rows * -(-a.shape[1] // _PACKED_GROUP)),), scale.dtype)
            for scale, rows in zip((call.optional(left + 2), call.optional(left + 3)), shape, strict=True)
            if scale is not None
        ]
        return replace(counted(4.0 * result.elements * a.shape[1], BF16, result, a, b, *scales), dtype="fp4")

    return formula


def packed_weight(call: calls.Call) -> calls.Work:
    """Count awq_gemm, gptq_gemm and Marlin's matmuls of a (m, k) with packed weights of 2 to 8 bits.

    The weight is the first matrix of integers; the output may precede it. The next matrix of a float type contains its
    scales (groups, n), whose shape determines n. Zero points and workspaces are not counted.
    """
    a = call.tensor(0)
    calls.require(len(a.shape) == 2)
    matrices = [t for t in call.given(1) if len(t.shape) == 2 and t.dtype is not None and t.elements]
    place = next((i for i, t in enumerate(matrices) if not _is_scale(t)), None)
    scales = None if place is None else next((t for t in matrices[place:] if _is_scale(t)), None)
    if place is None or scales is None:
        raise calls.Unrecorded
    return _packed(a, matrices[place], scales.shape[1], scales)


def prepacked_weight(call: calls.Call) -> calls.Work:
    """Count machete_mm, cutlass_w4a8_mm(a, b, ...): a (m, k); b in words, (k / elements per word, n)."""
    a, b = call.tensor(0), call.tensor(1)
    calls.require(len(a.shape) == 2)
    if len(b.shape) != 2 or b.dtype != calls.DTYPES["int"]:
        raise calls.Unrecorded
    return _packed(a, b, b.shape[1])


def _packed(a: calls.Tensor, weight: calls.Tensor, n: int, *scales: calls.Tensor) -> calls.Work:
    m, k = a.shape
    bits, rest = divmod(8 * weight.elements * int(weight.size), max(1, k * n))
    if rest or bits not in (2, 3, 4, 6, 8):
        raise calls.Unrecorded
    narrow = a.dtype is not None and a.dtype.compute in ("fp8", "int8")
    output = calls.Tensor((m, n), BF16 if narrow else a.dtype)
    return counted(2.0 * output.elements * k, a.dtype, a, weight, *scales, output)


def eight_bit_rows(call: calls.Call) -> calls.Work:
    """Count qserve_w4a8_per_chn_gemm(a, w, scales ..., output): a (m, k), two weights per byte of w (n, k / 2).

    The matmul is computed in 8 bits.
    """
    given = call.given()
    calls.require(len(given) > 2)
    a, b, output = given[0], given[1], given[-1]
    calls.require(len(a.shape) == len(b.shape) == 2 and a.shape[1] == 2 * b.shape[1])
    calls.require(output.shape == (a.shape[0], b.shape[0]))
    return counted(2.0 * output.elements * a.shape[1], calls.DTYPES["signed char"], *given)


def _is_scale(tensor: calls.Tensor) -> bool:
    return tensor.dtype is not None and tensor.dtype.compute in ("fp16", "bf16", "fp32", "fp8")


def from_blocks(call: calls.Call) -> calls.Work:
    """Count ggml_mul_mat_a8, ggml_mul_mat_vec_a8(blocks, x, kind, n): x (m, k) times n rows of blocks, in 8 bits."""
    blocks, x, n = call.tensor(0), call.tensor(1), call.number(3)
    calls.require(len(x.shape) == 2 and n >= 0)
    output = calls.tensor_of((x.shape[0], n), x.dtype)
    return replace(counted(2.0 * output.elements * x.shape[1], x.dtype, blocks, x, output), dtype="int8")


def bytes_weight(call: calls.Call) -> calls.Work:
    """Count allspark_w8a16_gemm(a, w, scales, zeros, n, ...): a (m, k) times n columns of 8-bit weights, padded."""
    a, w, n = call.tensor(0), call.tensor(1), call.number(4)
    calls.require(len(a.shape) == len(w.shape) == 2 and 0 <= n * a.shape[1] <= w.elements)
    output = calls.tensor_of((a.shape[0], n), a.dtype)
    weights = calls.Tensor((n * a.shape[1],), w.dtype)
    return counted(2.0 * output.elements * a.shape[1], a.dtype, a, weights, call.optional(2), output)


def few_bits(call: calls.Call) -> calls.Work:
    """Count torchao::quant_llm_linear(exponent, mantissa, x, w, scales, ...): x (m, k), n rows of packed weights."""
    bits, x, w = 1 + call.number(0) + call.number(1), call.tensor(2), call.tensor(3)
    calls.require(len(x.shape) == len(w.shape) == 2 and w.shape[1] * 8 == x.shape[1] * bits)
    output = calls.Tensor((x.shape[0], w.shape[0]), x.dtype)
    return counted(2.0 * output.elements * x.shape[1], x.dtype, x, w, call.optional(4), output)


def experts(call: calls.Call) -> calls.Work:
    """Count inplace_fused_experts, outplace_fused_experts(hidden, w1, w2, topk_weights, topk_ids, ...).

    Each of a token's top k experts multiplies it (h) by w1 (experts, 2 i, h; i without a gate) and the result by w2
    (experts, h, i); weights may be packed along their last dimension. The weights of k experts must be read; those of
    further experts, at most one per row, may be read: they are doubtful. With experts on several devices, the work is
    unknown, because a trace does not show which tokens are computed on this device.
    """
    if _elsewhere(call):
        raise calls.Unrecorded
    return _local_experts(call)


def _local_experts(call: calls.Call) -> calls.Work:
    hidden, w1, w2, ids = call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(4)
    calls.require(len(hidden.shape) == len(ids.shape) == 2 and len(w1.shape) == len(w2.shape) == 3)
    tokens, width = hidden.shape
    count, wide = w1.shape[0], w1.shape[1]
    calls.require(w2.shape[0] == count and w2.shape[1] == width and ids.shape[0] == tokens and count > 0)
    calls.require(w1.shape[2] > 0)
    packed, rest = divmod(width, w1.shape[2])
    calls.require(rest == 0 and packed > 0)
    inner = w2.shape[2] * packed
    calls.require(wide in (inner, 2 * inner))
    top, rows = ids.shape[1], ids.elements
    weights = w1.bytes + w2.bytes
    read, must = weights * min(count, rows) / count, weights * min(count, top) / count
    narrow = w1.dtype is not None and w1.dtype.compute in ("fp8", "fp4", "int8")
    plain = counted(
        2.0 * rows * width * (wide + inner),
        w1.dtype if narrow and (packed == 1 or w1.dtype != calls.BYTE) else hidden.dtype,
        hidden, ids, call.tensor(3), calls.Tensor(hidden.shape, hidden.dtype),
    )  # fmt: skip
    return replace(plain, moved_bytes=(plain.moved_bytes or 0.0) + read, doubtful_bytes=read - must)


_SWITCHES = range(19, 27)
"""Positions of SGLang's flags that skip tokens of absent experts (filter_expert) or keep results apart (no_combine)."""


def _elsewhere(call: calls.Call) -> bool:
    """Return whether experts may be on other devices: a map has more experts than weights, or a flag skips some."""
    weights = call.tensor(1)
    count = weights.shape[0] if weights.shape else 0
    maps = [t for t in call.given(5) if len(t.shape) == 1 and t.dtype in (calls.DTYPES["int"], calls.DTYPES["long"])]
    return any(t.shape[0] > count for t in maps) or (call.valued and any(map(call.flag, _SWITCHES)))


def masked_experts(count: int, padding: tuple[int, int]) -> calls.Formula:
    """Return the formula of aiter's fused_moe_ and of vLLM's operator around it.

    Arguments are (hidden, w1, w2, topk_weight, topk_ids, expert_mask, ...). With a mask, a number of tokens at
    ``count``, padding of widths at ``padding``, or weights of shared experts, the work is unknown.
    """

    def formula(call: calls.Call) -> calls.Work:
        others = [t for t in call.given(20) if len(t.shape) > 2]
        padded = call.valued and any(isinstance(call.value(i), int) and call.value(i) for i in padding)
        if others or padded or call.optional(5) is not None or call.optional(count) is not None:
            raise calls.Unrecorded
        return _local_experts(call)

    return formula


def marlin_experts(call: calls.Call) -> calls.Work:
    """Count moe_wna16_marlin_gemm(a, c, packed weights, ...).

    After the packed weights come scales, ..., sorted ids, expert ids, padded, topk_weights, block, top k, flags (the
    second one of earlier versions is is_ep), the weights' type, and the sizes m, n and k. Without is_ep, the buffer of
    sorted ids shows whether all experts are on this device: then it has room for block - 1 further ids per expert.
    """
    last = max((i for i, argument in enumerate(call.arguments) if isinstance(argument, calls.Tensor)), default=None)
    if last is None or not call.valued:
        raise calls.Unrecorded
    values = [call.value(i) for i in range(last + 1, last + 9)]
    flags = [value for value in values[2:4] if isinstance(value, bool)]
    sizes = values[3 + len(flags) : 6 + len(flags)]
    if not flags or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in (*values[:2], *sizes)):
        raise calls.Unrecorded
    (block, top), (m, n, k) = values[:2], sizes
    a, rows = call.tensor(0), m * top
    experts_here = [t for t in call.given(1) if len(t.shape) == 3]
    if len(experts_here) < 2 or a.shape != (m, k):
        raise calls.Unrecorded
    weight, scales = experts_here[:2]
    count = weight.shape[0]
    ids = call.tensor(last - 3)
    if flags[-1] if len(flags) == 2 else ids.elements != rows + count * (block - 1):
        raise calls.Unrecorded
    kept = calls.total_bytes(weight, scales) / max(1, count)
    read, must = kept * min(count, rows), kept * min(count, top)
    plain = counted(2.0 * rows * n * k, a.dtype, a, calls.tensor_of((rows, n), scales.dtype if a.size < 2 else a.dtype))
    return replace(plain, moved_bytes=(plain.moved_bytes or 0.0) + read, doubtful_bytes=read - must)


FORMULAS: dict[str, calls.Formula] = calls.operators(
    ("vllm", "flashinfer_mm_fp4", _fp4(0, nk=False)),
    ("_C sgl_kernel", "ggml_mul_mat_a8 ggml_mul_mat_vec_a8", from_blocks),
    ("_C", "allspark_w8a16_gemm", bytes_weight),
    ("_C _C_stable_libtorch sgl_kernel", "cutlass_scaled_fp4_mm", _fp4(1, output=0)),
    ("sgl_kernel", "qserve_w4a8_per_chn_gemm qserve_w4a8_per_group_gemm", eight_bit_rows),
    ("fbgemm mslk", "f4f4bf16", _fp4(0)),
    ("_C _C_stable_libtorch sgl_kernel", "awq_gemm gptq_gemm gptq_marlin_gemm marlin_gemm awq_marlin_gemm", packed_weight),
    ("_rocm_C", "gptq_gemm_rdna3 gptq_gemm_rdna3_wmma", packed_weight),
    ("_C _C_stable_libtorch sgl_kernel", "machete_mm cutlass_w4a8_mm", prepacked_weight),
    ("vllm sglang", "inplace_fused_experts outplace_fused_experts", experts),
    ("vllm", "rocm_aiter_fused_moe", masked_experts(13, (15, 16))),
    ("aiter", "fused_moe_", masked_experts(14, (17, 18))),
    ("torchao", "quant_llm_linear", few_bits),
    ("_moe_C sgl_kernel", "moe_wna16_marlin_gemm", marlin_experts),
)  # fmt: skip
