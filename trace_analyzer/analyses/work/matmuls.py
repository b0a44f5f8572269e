"""Count matmuls: 2 FLOP per multiply-add, as in ``torch.utils.flop_counter``.

Bytes: operands and bias are read once, and the result is written once.
"""

from math import prod

from trace_analyzer.analyses.work.calls import (
    DTYPES,
    INT32,
    Call,
    Dtype,
    Formula,
    Shape,
    Tensor,
    Unrecorded,
    Work,
    broadcast,
    require,
    total_bytes,
)


def product(
    call: Call, left: int, right: int, *, added: int | None = None, beta: int | None = None, result: Dtype | None = None
) -> Work:
    """Count (..., m, k) x (..., k, n), both of two dimensions or both batched: 2 m k n FLOP per batch.

    ``added`` is the position of a summand, ``beta`` that of its factor (if that is 0, the summand is not read).
    """
    a, b = call.tensor(left), call.tensor(right)
    require(len(a.shape) == len(b.shape) and len(a.shape) in (2, 3))
    require(a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    shape = (*a.shape[:-2], m, n)
    packed = 2 if a.dtype is not None and a.dtype.compute == "fp4" else 1
    summand = None if added is None or _is_zero(call, beta) else call.optional(added)
    others = [] if added is None else [summand]
    return _work(
        2.0 * prod(shape) * k * packed, [a, b, *others], _result(call, shape, result or a.dtype, max(left, right))
    )


def _work(flop: float, inputs: list[Tensor | None], output: Tensor) -> Work:
    """Return the work of a matmul, in the type of the first operand.

    Raises `Unrecorded` for unknown types and those without a compute dtype, such as complex ones: their FLOP differ.
    """
    dtype = next(tensor.dtype for tensor in inputs if tensor is not None)
    if dtype is None or dtype.compute is None:
        raise Unrecorded
    return Work(flop, total_bytes(*inputs, output), dtype.compute)


def _result(call: Call, shape: Shape, dtype: Dtype | None, after: int) -> Tensor:
    """Return the result; a later argument of its shape is the tensor to which it is written."""
    given = [t for t in call.given(after + 1) if t.shape == shape]
    return Tensor(shape, given[-1].dtype if given and given[-1].dtype else dtype)


def _is_zero(call: Call, beta: int | None) -> bool:
    return beta is not None and call.valued and call.value(beta) in (0, False)


def mm(call: Call) -> Work:
    """Count mm(self, mat2), bmm(self, mat2)."""
    return product(call, 0, 1)


def addmm(call: Call) -> Work:
    """Count addmm(self, mat1, mat2, beta, alpha), baddbmm."""
    return product(call, 1, 2, added=0, beta=3)


def int_mm(call: Call) -> Work:
    """Count _int_mm(self, mat2): int8 factors, int32 result."""
    return product(call, 0, 1, result=INT32)


def scaled_mm(call: Call) -> Work:
    """Count _scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype); it also reads the scales.

    Up to PyTorch 2.2, its arguments are (self, mat2, bias, out_dtype, scale_a, scale_b, ...). Scales of blocks are
    padded to whole tiles: at most one scale per 32 elements is read.
    """
    out = call.type_at(6) or call.type_at(5) or call.type_at(3)
    plain = product(call, 0, 1, result=out)
    scales = [_read_scales(call.optional(2), call.tensor(0)), _read_scales(call.optional(3), call.tensor(1))]
    moved = None if plain.moved_bytes is None else plain.moved_bytes + total_bytes(*scales, call.optional(4))
    return Work(plain.flop, moved, plain.dtype)


def _read_scales(scales: Tensor | None, operand: Tensor) -> Tensor | None:
    """Return the scales of an operand that are read: at most one per 32 elements of a matrix of scales."""
    if scales is None or len(scales.shape) < 2:
        return scales
    return Tensor((min(scales.elements, max(1, operand.elements // 32)),), scales.dtype)


def scaled_mm_of_lists(call: Call) -> Work:
    """Count _scaled_mm_v2(self, mat2, scales, recipe, swizzle, scales, recipe, swizzle, bias, out_dtype, ...).

    Lists of scales are not counted, because their types are not recorded.
    """
    plain = product(call, 0, 1, result=call.type_at(9))
    bias = call.optional(8)
    moved = None if plain.moved_bytes is None else plain.moved_bytes + total_bytes(bias)
    return Work(plain.flop, moved, plain.dtype)


def grouped_mm(call: Call) -> Work:
    """Count _grouped_mm, _scaled_grouped_mm(self, mat2, [scales], offs, ...).

    (M, K) x (G, K, N) splits M; (G, M, K) x (K, N) splits N; (M, K) x (K, N) splits K and has G results. What is beyond
    the last offset is padding, which is not computed: so the FLOP are unknown, and the bytes are doubtful.
    """
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) in (2, 3) and len(b.shape) in (2, 3) and a.shape[-1] == b.shape[-2])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    rest = call.given(2)
    is_whole = len(a.shape) == len(b.shape) == 3
    if is_whole:
        require(a.shape[0] == b.shape[0])
        result: Shape = (a.shape[0], m, n)
    elif len(a.shape) == len(b.shape) == 2:
        offsets = [t for t in rest if len(t.shape) == 1 and t.dtype == INT32]
        if not offsets:
            raise Unrecorded
        result = (offsets[0].shape[0], m, n)
    else:
        result = (m, n)
    out = next((t for t in map(call.type_at, (10, 7, 5, 4)) if t is not None), None)
    if out is None and a.dtype is not None:
        out = DTYPES["c10::BFloat16"] if a.dtype.compute in ("fp8", "fp4") else a.dtype
    packed = 2 if a.dtype is not None and a.dtype.compute == "fp4" else 1
    work = _work(2.0 * prod(result) * k * packed, [a, b, *rest], Tensor(result, out))
    if is_whole:
        return work
    sure = total_bytes(Tensor(result, out)) if len(a.shape) == len(b.shape) == 2 else 0.0
    moved = work.moved_bytes or 0.0
    return Work(None, work.moved_bytes, work.dtype, moved - sure, least=True)


def mv(call: Call) -> Work:
    """Count mv(self, vec): (m, k) x (k)."""
    return _mv(call, 0, 1)


def addmv(call: Call) -> Work:
    """Count addmv(self, mat, vec, beta, alpha)."""
    return _mv(call, 1, 2, added=None if _is_zero(call, 3) else 0)


def _mv(call: Call, left: int, right: int, added: int | None = None) -> Work:
    a, b = call.tensor(left), call.tensor(right)
    require(len(a.shape) == 2 and len(b.shape) == 1 and a.shape[1] == b.shape[0])
    summand = None if added is None else call.optional(added)
    return _work(2.0 * a.elements, [a, b, summand], Tensor((a.shape[0],), a.dtype))


def dot(call: Call) -> Work:
    """Count dot(self, tensor), vdot: (k) x (k)."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) == len(b.shape) == 1 and a.shape == b.shape)
    return _work(2.0 * a.elements, [a, b], Tensor((), a.dtype))


def addr(call: Call) -> Work:
    """Count addr(self, vec1, vec2): the outer product, added."""
    a, b = call.tensor(1), call.tensor(2)
    require(len(a.shape) == len(b.shape) == 1)
    return _work(2.0 * a.elements * b.elements, [a, b, call.tensor(0)], Tensor((*a.shape, *b.shape), a.dtype))


def addbmm(call: Call) -> Work:
    """Count addbmm(self, batch1, batch2): a sum of products."""
    a, b = call.tensor(1), call.tensor(2)
    require(len(a.shape) == len(b.shape) == 3 and a.shape[0] == b.shape[0] and a.shape[2] == b.shape[1])
    return _work(2.0 * a.elements * b.shape[2], [a, b, call.optional(0)], Tensor((a.shape[1], b.shape[2]), a.dtype))


def linear(call: Call) -> Work:
    """Count linear(input, weight, bias): (..., k) x (n, k), transposed."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) >= 1 and len(b.shape) in (1, 2) and a.shape[-1] == b.shape[-1])
    n = b.shape[0] if len(b.shape) == 2 else 1
    return _work(2.0 * a.elements * n, [a, b, call.optional(2)], Tensor((*a.shape[:-1], n), a.dtype))


def matmul(call: Call) -> Work:
    """Count matmul(self, other): vectors, matrices or broadcast batches of them."""
    a, b = call.tensor(0), call.tensor(1)
    require(len(a.shape) >= 1 and len(b.shape) >= 1)
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    require(left[-1] == right[-2])
    shape = (*broadcast(left[:-2], right[:-2]), left[-2], right[-1])
    return _work(2.0 * prod(shape) * left[-1], [a, b], Tensor(shape, a.dtype))


def int4_mm(call: Call) -> Work:
    """Count _weight_int4pack_mm(self, packed, group_size, scales): eight weights in an int32.

    The matmul is computed in self's type.
    """
    a, packed = call.tensor(0), call.tensor(1)
    require(len(a.shape) == 2 and packed.dtype == INT32 and a.shape[1] > 0)
    n, rest = divmod(packed.elements * 8, a.shape[1])
    require(rest == 0)
    return _work(2.0 * a.elements * n, [a, packed, *call.given(2)], Tensor((a.shape[0], n), a.dtype))


def int8_mm(call: Call) -> Work:
    """Count _weight_int8pack_mm(self, weight, scales): (m, k) x (n, k), transposed; computed in self's type."""
    a, weight = call.tensor(0), call.tensor(1)
    require(len(a.shape) == len(weight.shape) == 2 and a.shape[1] == weight.shape[1])
    output = Tensor((a.shape[0], weight.shape[0]), a.dtype)
    return _work(2.0 * a.elements * weight.shape[0], [a, weight, *call.given(2)], output)


FORMULAS: dict[str, Formula] = {
    "aten::mm": mm,
    "aten::bmm": mm,
    "aten::addmm": addmm,
    "aten::addmm_": addmm,
    "aten::_addmm_activation": addmm,
    "aten::baddbmm": addmm,
    "aten::baddbmm_": addmm,
    "aten::addbmm": addbmm,
    "aten::addbmm_": addbmm,
    "aten::mv": mv,
    "aten::addmv": addmv,
    "aten::addmv_": addmv,
    "aten::dot": dot,
    "aten::vdot": dot,
    "aten::addr": addr,
    "aten::addr_": addr,
    "aten::linear": linear,
    "aten::matmul": matmul,
    "aten::_int_mm": int_mm,
    "aten::_scaled_mm": scaled_mm,
    "aten::_scaled_mm_v2": scaled_mm_of_lists,
    **dict.fromkeys(("aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2"), grouped_mm),
    **dict.fromkeys(("aten::_weight_int4pack_mm", "aten::_weight_int4pack_mm_with_scales_and_zeros"), int4_mm),
    "aten::_weight_int8pack_mm": int8_mm,
}
