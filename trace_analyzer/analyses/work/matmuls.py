"""Count matmuls: 2 FLOP per multiply-add, as in ``torch.utils.flop_counter``, in the type of the first operand.

Bytes: operands, scales and bias are read once, and the result is written once.

Argument orders are those of ATen (`native_functions.yaml`) and of the libraries' registrations: vLLM
(`csrc/torch_bindings.cpp`, `csrc/libtorch_stable/torch_bindings.cpp`, `csrc/rocm/torch_bindings.cpp`, `fused_moe.py`,
`_aiter_ops.py`, `utils/flashinfer.py`), SGLang (`sgl-kernel/csrc/common_extension.cc`, `fused_moe_triton/fused_moe.py`,
`fp8_kernel.py`), FBGEMM and MSLK (`gemm_ops`, `quantize_ops`).
"""

from math import prod

from msgspec.structs import replace

from trace_analyzer.analyses.work import calls

BF16 = calls.DTYPES["c10::BFloat16"]
"""Result type of fp8 and int8 matmuls where the call does not record it."""


def counted(flop: float, dtype: calls.Dtype | None, *tensors: calls.Tensor | None) -> calls.Work:
    """Return the work of a matmul that reads or writes each of these tensors once.

    Raises `Unrecorded` for unknown types and those without a compute dtype, such as complex ones: their FLOP differ.
    """
    if dtype is None or dtype.compute is None:
        raise calls.Unrecorded
    return calls.Work(flop, calls.total_bytes(*tensors), dtype.compute)


def product(
    left: int = 0,
    right: int = 1,
    *,
    nk: bool = False,
    added: int | None = None,
    beta: int | None = None,
    packed: int = 1,
    reads: tuple[int, ...] = (),
    rest: int | None = None,
    types: tuple[int, ...] = (),
    result: calls.Dtype | None = None,
) -> calls.Formula:
    """Return the formula of (..., m, k) x (..., k, n), or with ``nk`` of (..., m, k) x (n, k), transposed.

    ``added`` is the position of a summand, ``beta`` that of its factor (if that is 0, the summand is not read), and
    ``packed`` the elements in one of b. Also read are the tensors at ``reads`` and those from ``rest`` on. One of the
    result's shape is the tensor to which it is written; else, the result's type is at one of the positions ``types``, is
    ``result``, or is a's.
    """

    def formula(call: calls.Call) -> calls.Work:
        a, b = call.tensor(left), call.tensor(right)
        inner = (1, *b.shape) if nk and len(b.shape) == 1 else b.shape
        calls.require(len(a.shape) > (not nk) and len(inner) > 1)
        n, k = inner[-2:] if nk else inner[:-3:-1]
        calls.require(a.shape[-1] == k * packed and (inner[:-2] == a.shape[:-2] or (nk and len(inner) == 2)))
        shape = (*a.shape[:-1], n)
        others = [call.optional(i) for i in reads]
        if added is not None and not (beta is not None and call.valued and call.value(beta) in (0, False)):
            others.append(call.optional(added))
        given = [] if reads else call.given(max(left, right) + 1)
        into = [t for t in given if t.shape == shape and t.dtype]
        named = next((t for t in map(call.type_at, types) if t is not None), result or a.dtype)
        output = into[-1] if into else calls.Tensor(shape, named)
        others += [] if rest is None else [t for t in call.given(rest) if t.shape != shape]
        # A kernel converts the narrower operand to the wider type.
        dtype = b.dtype if packed == 1 and a.dtype and b.dtype and b.size > a.size else a.dtype
        elements = 2 if a.dtype is not None and a.dtype.compute == "fp4" else 1
        return counted(2.0 * prod(shape) * a.shape[-1] * elements, dtype, a, b, output, *others)

    return formula


def scaled_mm(call: calls.Call) -> calls.Work:
    """Count _scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype); it also reads the scales.

    Up to PyTorch 2.2, its arguments are (self, mat2, bias, out_dtype, scale_a, scale_b, ...). Scales of blocks are
    padded to whole tiles: at most one scale per 32 elements is read.
    """
    plain = product(types=(6, 5, 3))(call)
    scales = [_read_scales(call.optional(2), call.tensor(0)), _read_scales(call.optional(3), call.tensor(1))]
    return _reading(plain, *scales, call.optional(4))


def _reading(plain: calls.Work, *tensors: calls.Tensor | None) -> calls.Work:
    return replace(plain, moved_bytes=(plain.moved_bytes or 0.0) + calls.total_bytes(*tensors))


def _read_scales(scales: calls.Tensor | None, operand: calls.Tensor) -> calls.Tensor | None:
    """Return the scales of an operand that are read: at most one per 32 elements of a matrix of scales."""
    if scales is None or len(scales.shape) < 2:
        return scales
    return calls.Tensor((min(scales.elements, max(1, operand.elements // 32)),), scales.dtype)


def scaled_mm_of_lists(call: calls.Call) -> calls.Work:
    """Count _scaled_mm_v2(self, mat2, scales, recipe, swizzle, scales, recipe, swizzle, bias, out_dtype, ...).

    Lists of scales are not counted, because their types are not recorded.
    """
    return _reading(product(types=(9,))(call), call.optional(8))


def grouped_mm(call: calls.Call) -> calls.Work:
    """Count _grouped_mm, _scaled_grouped_mm(self, mat2, [scales], offs, ...).

    (M, K) x (G, K, N) splits M; (G, M, K) x (K, N) splits N; (M, K) x (K, N) splits K and has G results. What is beyond
    the last offset is padding, which is not computed: so the FLOP are unknown, and the bytes are doubtful.
    """
    a, b = call.tensor(0), call.tensor(1)
    calls.require(len(a.shape) in (2, 3) and len(b.shape) in (2, 3) and a.shape[-1] == b.shape[-2])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    rest = call.given(2)
    is_whole = len(a.shape) == len(b.shape) == 3
    if is_whole:
        calls.require(a.shape[0] == b.shape[0])
        result: calls.Shape = (a.shape[0], m, n)
    elif len(a.shape) == len(b.shape) == 2:
        offsets = [t for t in rest if len(t.shape) == 1 and t.dtype == calls.INT32]
        if not offsets:
            raise calls.Unrecorded
        result = (offsets[0].shape[0], m, n)
    else:
        result = (m, n)
    out = next((t for t in map(call.type_at, (10, 7, 5, 4)) if t is not None), None)
    if out is None and a.dtype is not None:
        out = calls.DTYPES["c10::BFloat16"] if a.dtype.compute in ("fp8", "fp4") else a.dtype
    packed = 2 if a.dtype is not None and a.dtype.compute == "fp4" else 1
    work = counted(2.0 * prod(result) * k * packed, a.dtype, a, b, *rest, calls.Tensor(result, out))
    if is_whole:
        return work
    sure = calls.total_bytes(calls.Tensor(result, out)) if len(a.shape) == len(b.shape) == 2 else 0.0
    moved = work.moved_bytes or 0.0
    return calls.Work(None, work.moved_bytes, work.dtype, moved - sure, least=True)


def _vector(left: int, right: int, added: int | None = None) -> calls.Formula:
    """Return the formula of mv(self, vec) or addmv(self, mat, vec, beta, alpha): (m, k) x (k)."""

    def formula(call: calls.Call) -> calls.Work:
        a, b = call.tensor(left), call.tensor(right)
        calls.require(len(a.shape) == 2 and len(b.shape) == 1 and a.shape[1] == b.shape[0])
        is_read = added is not None and not (call.valued and call.value(3) in (0, False))
        summand = call.optional(added) if added is not None and is_read else None
        return counted(2.0 * a.elements, a.dtype, a, b, summand, calls.Tensor((a.shape[0],), a.dtype))

    return formula


def matmul(call: calls.Call) -> calls.Work:
    """Count matmul(self, other): vectors, matrices or broadcast batches of them."""
    a, b = call.tensor(0), call.tensor(1)
    calls.require(len(a.shape) >= 1 and len(b.shape) >= 1)
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    calls.require(left[-1] == right[-2])
    shape = (*calls.broadcast(left[:-2], right[:-2]), left[-2], right[-1])
    return counted(2.0 * prod(shape) * left[-1], a.dtype, a, b, calls.Tensor(shape, a.dtype))


def int4_mm(call: calls.Call) -> calls.Work:
    """Count _weight_int4pack_mm(self, packed, group_size, scales): eight weights in an int32.

    The matmul is computed in self's type.
    """
    a, packed = call.tensor(0), call.tensor(1)
    calls.require(len(a.shape) == 2 and packed.dtype == calls.INT32 and a.shape[1] > 0)
    n, rest = divmod(packed.elements * 8, a.shape[1])
    calls.require(rest == 0)
    return counted(2.0 * a.elements * n, a.dtype, a, packed, *call.given(2), calls.Tensor((a.shape[0], n), a.dtype))


def written(call: calls.Call) -> calls.Work:
    """Count cutlass_scaled_mm, dsv3_router_gemm(output, a, b, ...): a (m, k); b (k, n) or transposed (n, k)."""
    output, a, b = (call.tensor(i) for i in range(3))
    calls.require(len(a.shape) == len(b.shape) == len(output.shape) == 2)
    m, k = a.shape
    calls.require(output.shape in ((m, b.shape[1]), (m, b.shape[0])) and k in b.shape)
    return counted(2.0 * output.elements * k, a.dtype, output, a, b, *call.given(3))


def interleaved(call: calls.Call) -> calls.Work:
    """Count deep_gemm_fp8_fp8_bf16_nt(a, scales, b, scales, output): (m, k) x (n, k), transposed."""
    a, b, output = call.tensor(0), call.tensor(2), call.tensor(4)
    calls.require(len(b.shape) == 2 and bool(a.shape) and a.shape[-1] == b.shape[1])
    calls.require(output.elements * a.shape[-1] == a.elements * b.shape[0])
    return counted(2.0 * output.elements * a.shape[-1], a.dtype, a, b, output, call.optional(1), call.optional(3))


def with_epilogue(call: calls.Call) -> calls.Work:
    """Count quack's gemm(A, B), gemm_out(A, B, out, ...) and similar: (m, k) x (k, n), or batches of them.

    Each tensor is read or written once. With lists of integers (offsets, rows to gather), the work is unknown.
    """
    first, second, given = call.tensor(0), call.tensor(1), call.given()
    fits = len(first.shape) == len(second.shape) in (2, 3) and first.shape[:-2] == second.shape[:-2]
    types = {t.dtype.compute if t.dtype is not None else None for t in given}
    if not fits or first.shape[-1] != second.shape[-2] or not types <= {"fp16", "bf16", "fp32"}:
        raise calls.Unrecorded
    output = calls.tensor_of((*first.shape[:-1], second.shape[-1]), first.dtype)
    returned = output if call.operator == "quack::gemm" else None
    return counted(2.0 * output.elements * first.shape[-1], first.dtype, *given, returned)


_AITER_PRODUCTS = (
    "gemm_w8a8", "w8a8_gemm", "gemm_w8a8_blockscale", "gemm_a8w8", "gemm_a8w8_blockscale", "triton_gemm_a8w8_blockscale",
)  # fmt: skip
_AITER_KERNELS = (
    *(f"{kind}{kernel}" for kind in ("", "bpreshuffle_", "blockscale_", "blockscale_bpreshuffle_") for kernel in ("ck", "cktile", "asm")),
    "bpreshuffle", "blockscale", "blockscale_bpreshuffle",
)  # fmt: skip
_OF_BYTES = product(nk=True, rest=2, result=BF16)
FORMULAS: dict[str, calls.Formula] = calls.operators(
    ("aten", "mm bmm", product()),
    ("aten", "addmm addmm_ _addmm_activation baddbmm baddbmm_", product(1, 2, added=0, beta=3)),
    ("aten", "mv", _vector(0, 1)),
    ("aten", "addmv addmv_", _vector(1, 2, added=0)),
    ("aten", "linear _weight_int8pack_mm", product(nk=True, reads=(2,))),
    ("aten", "matmul", matmul),
    ("aten", "_int_mm", product(result=calls.INT32)),
    ("aten", "_scaled_mm", scaled_mm),
    ("aten", "_scaled_mm_v2", scaled_mm_of_lists),
    ("aten", "_grouped_mm _scaled_grouped_mm _scaled_grouped_mm_v2", grouped_mm),
    ("aten", "_weight_int4pack_mm _weight_int4pack_mm_with_scales_and_zeros", int4_mm),
    ("vllm", "rocm_unquantized_gemm", product(nk=True, reads=(2,), types=(3,))),
    ("aiter", "gemm_a16w16", product(nk=True, reads=(2,), types=(3,))),
    ("vllm", "w8a8_triton_block_scaled_mm_func w8a8_block_fp8_matmul_deepgemm padded_cutlass", _OF_BYTES),
    ("vllm", " ".join(f"rocm_aiter_{name}" for name in _AITER_PRODUCTS), _OF_BYTES),
    ("aiter", " ".join(["gemm_a8w8", *(f"gemm_a8w8_{name}" for name in _AITER_KERNELS)]), _OF_BYTES),
    ("sglang", "deep_gemm_fp8_fp8_bf16_nt", interleaved),
    ("sgl_kernel vllm", "bmm_fp8", product(types=(4,), result=BF16)),
    ("_C _C_stable_libtorch", "cutlass_scaled_mm cutlass_scaled_mm_azp", written),
    ("_C _moe_C sgl_kernel", "dsv3_fused_a_gemm dsv3_router_gemm fp32_router_gemm", written),
    ("sgl_kernel", "fp8_scaled_mm int8_scaled_mm fp8_blockwise_scaled_mm", product(rest=2, types=(4,), result=BF16)),
    ("fbgemm mslk", "f8f8bf16 f8f8bf16_rowwise f8f8bf16_rowwise_out f8f8f16_rowwise f8f8bf16_blockwise f8f8bf16_tensorwise"
     " f8f8bf16_rowwise_batched f8f8bf16_cublas f8f8bf16_lite f8f8bf16_rowwise_preshuffle f8f8f16_rowwise_preshuffle i8i8bf16"
     " i8i8bf16_dynamic bf16_fast_gemv bf16fp8bf16_fast_gemv fp8fp8bf16_fast_gemv", _OF_BYTES),
    ("fbgemm mslk", "bf16i4bf16_rowwise f8i4bf16_rowwise bf16i4bf16_rowwise_batched bf16i4bf16_shuffled f8i4bf16_shuffled"
     " bf16i4bf16_shuffled_batched", product(nk=True, rest=2, result=BF16, packed=2)),
    ("quack", "gemm gemm_out gemm_add_out gemm_add_inplace gemm_act_out gemm_dact_out gemm_gated_out gemm_dgated_out", with_epilogue),
)  # fmt: skip
