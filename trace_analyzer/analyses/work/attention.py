"""Count scaled dot product attention: two products forward, five backward (the scores are computed again).

FLOP as in ``torch.utils.flop_counter``, for all heads of the query, but masked pairs of a causal or windowed
attention are not counted, because fused kernels skip them; the counter ignores masks. The softmax is left out,
as there.
"""

from collections.abc import Callable

from trace_analyzer.analyses.work.calls import (
    FLOAT32,
    Call,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    compute,
    require,
    total_bytes,
)
from trace_analyzer.tuning import dataclass


@dataclass(frozen=True)
class Layout:
    """Locate sizes in query, key and value: (batch, heads, sequence, width) or (batch, sequence, heads, width)."""

    heads: int
    sequence: int


HEADS_FIRST, SEQUENCE_FIRST = Layout(1, 2), Layout(2, 1)


@dataclass(frozen=True)
class Mask:
    """Hold which keys a query sees: at most ``left`` before and ``right`` behind its own place; None is all.

    ``from_end`` aligns the last query with the last key (flash-attn), else the first with the first (PyTorch).
    """

    left: int | None = None
    right: int | None = None
    from_end: bool = False

    def pairs(self, queries: int, keys: int) -> int:
        """Count the pairs of query and key that are computed."""
        offset = keys - queries if self.from_end else 0
        upto = queries * keys if self.right is None else _clamped_sum(queries, offset + self.right + 1, keys)
        before = 0 if self.left is None else _clamped_sum(queries, offset - self.left, keys)
        return upto - before


CAUSAL_FROM_START, CAUSAL_FROM_END = Mask(right=0), Mask(right=0, from_end=True)


def _clamped_sum(count: int, first: int, most: int) -> int:
    """Sum over i < count of first + i, clamped to 0..most."""
    rising = range(max(0, -first), max(0, -first, min(count, most - first)))
    full = max(0, count - max(0, most - first))
    return sum((first + rising.start, first + rising.stop - 1)) * len(rising) // 2 + full * most


def _pairs(call: Call, mask: Callable[[Call], Mask], queries: int, keys: int) -> int | None:
    """Count the computed pairs; None where it is not recorded whether there is a mask."""
    try:
        return mask(call).pairs(queries, keys)
    except Unrecorded:
        return None


def forward(
    call: Call, *, layout: Layout, mask: Callable[[Call], Mask], bias: int | None = None, first: int = 0
) -> Work:
    """Count attention of query, key and value at ``first`` and after."""
    query, key, value = (call.tensor(first + i) for i in range(3))
    batch, heads, queries, keys, width, value_width = _sizes(query, key, value, layout)
    output = Tensor((batch, heads, queries, value_width), query.dtype)
    seen = _pairs(call, mask, queries, keys)
    flop = None if seen is None else 2.0 * batch * heads * seen * (width + value_width)
    extra = None if bias is None else call.optional(bias)
    return Work(flop, total_bytes(query, key, value, extra, output), compute(query.dtype))


def backward(
    call: Call, *, layout: Layout, mask: Callable[[Call], Mask], output: int, bias: int | None = None, first: int = 0
) -> Work:
    """Count gradients of query, key and value; grad_output stands at ``first``, before query, key and value."""
    gradient, query, key, value = (call.tensor(first + i) for i in range(4))
    batch, heads, queries, keys, width, value_width = _sizes(query, key, value, layout)
    require(gradient.elements == batch * heads * queries * value_width)
    seen = _pairs(call, mask, queries, keys)
    flop = None if seen is None else 2.0 * batch * heads * seen * (3 * width + 2 * value_width)
    sums = Tensor((batch, heads, queries), FLOAT32)
    read = total_bytes(gradient, query, key, value, call.optional(output), sums)
    written = sum(tensor.elements * tensor.size for tensor in (query, key, value))
    extra = None if bias is None else call.optional(bias)
    return Work(flop, read + written + total_bytes(extra), compute(query.dtype))


def _sizes(query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> tuple[int, int, int, int, int, int]:
    require(len(query.shape) == len(key.shape) == len(value.shape) == 4)
    batch, heads, queries, width = (
        query.shape[0],
        query.shape[layout.heads],
        query.shape[layout.sequence],
        query.shape[3],
    )
    keys, shared = key.shape[layout.sequence], key.shape[layout.heads]
    require(key.shape[0] == value.shape[0] == batch and key.shape[3] == width)
    require(value.shape[layout.sequence] == keys and value.shape[layout.heads] == shared)
    require(shared > 0 and heads % shared == 0)
    return batch, heads, queries, keys, width, value.shape[3]


def ragged(
    call: Call,
    *,
    first: int,
    offsets: tuple[int, int],
    longest: tuple[int, int],
    mask: Callable[[Call], Mask],
    gradients: bool = False,
) -> Work:
    """Count attention over packed sequences of unequal length: (tokens, heads, width).

    Their lengths are no part of a trace. They follow where there is one sequence, or where all are as long as
    the longest: then the tokens are that many times the sequences. Else only the bytes are known.
    """
    query, key, value = (call.tensor(first + i) for i in range(3))
    require(len(query.shape) == len(key.shape) == len(value.shape) == 3)
    tokens, heads, width = query.shape
    keys, shared, value_width = key.shape[0], key.shape[1], value.shape[2]
    require(key.shape[2] == width and value.shape[:2] == key.shape[:2] and shared > 0 and heads % shared == 0)
    queries_each = _uniform(call, tokens, offsets[0], longest[0])
    keys_each = _uniform(call, keys, offsets[1], longest[1])
    seen = None
    if queries_each is not None and keys_each is not None:
        require(queries_each[0] == keys_each[0])
        one = _pairs(call, mask, queries_each[1], keys_each[1])
        seen = None if one is None else one * queries_each[0]
    per_pair = 2.0 * heads * ((3 * width + 2 * value_width) if gradients else (width + value_width))
    result = Tensor((tokens, heads, value_width), query.dtype)
    moved = total_bytes(query, key, value, result)
    if gradients:
        moved = 2 * moved + total_bytes(Tensor((tokens, heads), FLOAT32))
    return Work(None if seen is None else per_pair * seen, moved, compute(query.dtype))


def _uniform(call: Call, tokens: int, offsets: int, longest: int) -> tuple[int, int] | None:
    """Return (sequences, length of each) where the shapes leave no choice."""
    bounds = call.tensor(offsets)
    require(len(bounds.shape) == 1 and bounds.shape[0] > 1)
    count = bounds.shape[0] - 1
    if count == 1:
        return 1, tokens
    return (count, tokens // count) if call.valued and call.number(longest) * count == tokens else None


def paged(call: Call) -> Work:
    """Count aiter::mha_batch_prefill(q, k_cache, v_cache, cu_seqlens_q, kv_indptr, kv_page_indices, max_q, max_k, ...).

    Keys lie in a cache. Where all queries are as long as the longest keys, and causal attention needs no fewer
    keys than queries, every sequence has exactly that many keys.
    """
    query, key, value = (call.tensor(i) for i in range(3))
    require(len(query.shape) == len(key.shape) == len(value.shape) == 3)
    tokens, heads, width = query.shape
    sequences = _uniform(call, tokens, 3, 6)
    if sequences is None or call.number(7) != sequences[1] or not call.flag(12):
        raise Unrecorded
    count, length = sequences
    per_token = key.shape[1] * width * key.size + value.shape[1] * value.shape[2] * value.size
    flop = 2.0 * count * heads * CAUSAL_FROM_END.pairs(length, length) * (width + value.shape[2])
    output = Tensor((tokens, heads, value.shape[2]), query.dtype)
    return Work(flop, total_bytes(query, output) + tokens * per_token, compute(query.dtype))


def unmasked_bytes(call: Call) -> Work:
    """Count the bytes of flash-attn's autograd functions (q, k, v, ...); whether there is a mask is not recorded."""
    query, key, value = (call.tensor(i) for i in range(3))
    require(len(query.shape) == len(key.shape) == len(value.shape) >= 3 and key.shape[:-1] == value.shape[:-1])
    output = Tensor((*query.shape[:-1], value.shape[-1]), query.dtype)
    return Work(None, total_bytes(query, key, value, output), compute(query.dtype))


def unmasked_gradient_bytes(call: Call) -> Work:
    """Count the bytes of efficient_attention_backward_cutlass(gradient, q, k, v, ...).

    All are read, and the gradients of q, k and v written. Where the mask stands differs between versions.
    """
    gradient, query, key, value = (call.tensor(i) for i in range(4))
    require(len(query.shape) == len(key.shape) == len(value.shape) >= 3 and key.shape[:-1] == value.shape[:-1])
    return Work(None, total_bytes(gradient, query, query, key, key, value, value), compute(query.dtype))


def packed_keys_bytes(call: Call) -> Work:
    """Count FlashAttnKVPackedFunc(q, kv, ...): key and value in one tensor; the result is as large as the query."""
    query, packed = call.tensor(0), call.tensor(1)
    require(2 in packed.shape)
    return Work(None, total_bytes(query, query, packed), compute(query.dtype))


def packed_bytes(call: Call) -> Work:
    """Count FlashAttnQKVPackedFunc(qkv): query, key and value in one tensor, of which the result has a third."""
    packed = call.tensor(0)
    require(3 in packed.shape)
    return Work(None, 4 / 3 * packed.bytes, compute(packed.dtype))


def of_gradient(call: Call) -> Work:
    """Count the backward pass of an autograd function: the gradient is read, and that of the query written.

    Where the forward call is known, query, key and value are read and have gradients, and the result is read.
    """
    gradient = call.tensor(0)
    shapes = [shape for shape in call.outer_shapes[:3] if shape is not None]
    if len(shapes) == 3:
        query, key, value = (Tensor(shape, gradient.dtype) for shape in shapes)
        require(gradient.shape[:-1] == query.shape[:-1] and key.shape[:-1] == value.shape[:-1])
        moved = total_bytes(gradient, gradient, query, query, key, key, value, value)
        return Work(None, moved, compute(gradient.dtype))
    return Work(None, 2 * gradient.bytes, compute(gradient.dtype), least=True)


def cached(call: Call) -> Work:
    """Count attention with a cache (query, ...): the query and a result like it; what it reads of the cache is not recorded."""
    query = call.tensor(0)
    return Work(None, 2 * query.bytes, compute(query.dtype), least=True)


_OF_CACHES = (3, 5, 11, 14, 15, 16)
"""Arguments of flash-attn 3 that add keys, make them from the query, or pick them from a cache (hopper/flash_api.cpp)."""


def whole_or_cached(call: Call) -> Work:
    """Count flash_attn_3::fwd(q, k, v, k new, v new, ...).

    Keys and values are read whole, unless they lie in a cache; the FLOP of packed sequences are not recorded.
    """
    if not call.valued or any(call.optional(position) is not None for position in _OF_CACHES):
        return cached(call)
    if call.optional(7) is not None or call.optional(8) is not None:
        return unmasked_bytes(call)
    return forward(call, layout=SEQUENCE_FIRST, mask=_windowed_at(24, 25, 26))


def unified(call: Call) -> Work:
    """Count vllm::unified_attention_with_output(query, key, value, output, ...): this step's tokens, not the cache's."""
    query, key, value = call.tensor(0), call.optional(1), call.optional(2)
    output = call.optional(3) or query
    return Work(None, total_bytes(query, key, value, output), compute(query.dtype), least=True)


def _causal_at(position: int) -> Callable[[Call], Mask]:
    return lambda call: CAUSAL_FROM_START if call.flag(position) else Mask()


def _windowed_at(causal: int, left: int, right: int) -> Callable[[Call], Mask]:
    """Read flash-attn's mask: a window size that is missing or below 0 is none."""

    def mask(call: Call) -> Mask:
        sizes = [value if isinstance(value, int) and value >= 0 else None for value in map(call.value, (left, right))]
        return Mask(sizes[0], 0 if call.flag(causal) else sizes[1], from_end=True)

    return mask


def _efficient_mask_at(position: int) -> Callable[[Call], Mask]:
    """Read custom_mask_type of the memory efficient kernel.

    0 is none, 1 causal from the start, 2 causal from the end.
    """
    masks = {0: Mask(), 1: CAUSAL_FROM_START, 2: CAUSAL_FROM_END}

    def mask(call: Call) -> Mask:
        if (number := call.number(position)) not in masks:
            raise Unrecorded
        return masks[number]

    return mask


def _maybe_ragged(whole: Formula, packed: Formula, offsets: int) -> Formula:
    """Choose the formula for packed sequences where their offsets are given."""
    return lambda call: packed(call) if call.optional(offsets) is not None else whole(call)


def _unless_packed(whole: Formula, offsets: int) -> Formula:
    """Refuse packed sequences of operators that keep a batch dimension of 1."""

    def formula(call: Call) -> Work:
        if call.optional(offsets) is not None:
            raise Unrecorded
        return whole(call)

    return formula


def _forward(layout: Layout, mask: Callable[[Call], Mask], bias: int | None = None) -> Formula:
    return lambda call: forward(call, layout=layout, mask=mask, bias=bias)


def _backward(layout: Layout, mask: Callable[[Call], Mask], output: int, bias: int | None = None) -> Formula:
    return lambda call: backward(call, layout=layout, mask=mask, output=output, bias=bias)


def _ragged(
    first: int,
    offsets: tuple[int, int],
    longest: tuple[int, int],
    mask: Callable[[Call], Mask],
    gradients: bool = False,
) -> Formula:
    return lambda call: ragged(call, first=first, offsets=offsets, longest=longest, mask=mask, gradients=gradients)


_FLASH_FORWARD = _maybe_ragged(
    _forward(SEQUENCE_FIRST, _windowed_at(8, 11, 12)),
    _ragged(0, (3, 4), (5, 6), _windowed_at(8, 11, 12)),
    3,
)
_FLASH_BACKWARD = _maybe_ragged(
    _backward(SEQUENCE_FIRST, _windowed_at(11, 15, 16), 4),
    _ragged(1, (6, 7), (8, 9), _windowed_at(11, 15, 16), gradients=True),
    6,
)

FORMULAS: dict[str, Formula] = {
    "aten::scaled_dot_product_attention": _forward(HEADS_FIRST, _causal_at(5), 3),
    "aten::_scaled_dot_product_flash_attention": _forward(HEADS_FIRST, _causal_at(4)),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _forward(HEADS_FIRST, _causal_at(4)),
    "aten::_scaled_dot_product_efficient_attention": _forward(HEADS_FIRST, _causal_at(6), 3),
    "aten::_scaled_dot_product_cudnn_attention": _forward(HEADS_FIRST, _causal_at(6), 3),
    "aten::_scaled_dot_product_fused_attention_overrideable": _forward(HEADS_FIRST, _causal_at(5), 3),
    "aten::_cudnn_attention_forward": _unless_packed(_forward(HEADS_FIRST, _causal_at(10), 3), 4),
    "aten::_flash_attention_forward": _FLASH_FORWARD,
    "aten::_efficient_attention_forward": _unless_packed(_forward(SEQUENCE_FIRST, _efficient_mask_at(9), 3), 4),
    "aten::_scaled_dot_product_flash_attention_backward": _backward(HEADS_FIRST, _causal_at(11), 4),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _backward(HEADS_FIRST, _causal_at(7), 4),
    "aten::_scaled_dot_product_efficient_attention_backward": _backward(HEADS_FIRST, _causal_at(11), 5, 4),
    "aten::_scaled_dot_product_cudnn_attention_backward": _backward(HEADS_FIRST, _causal_at(14), 4, 8),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": _backward(HEADS_FIRST, _causal_at(13), 6, 4),
    "aten::_flash_attention_backward": _FLASH_BACKWARD,
    "aten::_efficient_attention_backward": _unless_packed(_backward(SEQUENCE_FIRST, _efficient_mask_at(14), 5, 4), 6),
    **dict.fromkeys(
        (
            "flash_attn::_flash_attn_forward",
            "aiter::_flash_attn_forward",
            "aiter::mha_fwd",
            "aiter::fmha_v3_fwd",
        ),
        _forward(SEQUENCE_FIRST, _windowed_at(5, 6, 7)),
    ),
    **dict.fromkeys(("aiter::mha_bwd", "aiter::fmha_v3_bwd"), _backward(SEQUENCE_FIRST, _windowed_at(8, 9, 10), 4)),
    "flash_attn::_flash_attn_backward": _backward(SEQUENCE_FIRST, _windowed_at(11, 12, 13), 4),
    "flash_attn::_flash_attn_varlen_forward": _ragged(0, (3, 4), (5, 6), _windowed_at(9, 10, 11)),
    "flash_attn::_flash_attn_varlen_backward": _ragged(1, (9, 10), (11, 12), _windowed_at(15, 16, 17), gradients=True),
    "aiter::mha_batch_prefill": paged,
    "xformers::efficient_attention_forward_cutlass": _unless_packed(
        _forward(SEQUENCE_FIRST, _efficient_mask_at(9), 3), 4
    ),
    "xformers_flash::flash_fwd": unmasked_bytes,
    **dict.fromkeys(("FlashAttnFunc", "FlashAttnVarlenFunc"), unmasked_bytes),
    "xformers::efficient_attention_backward_cutlass": unmasked_gradient_bytes,
    **dict.fromkeys(("FlashAttnQKVPackedFunc", "FlashAttnVarlenQKVPackedFunc"), packed_bytes),
    **dict.fromkeys(("FlashAttnKVPackedFunc", "FlashAttnVarlenKVPackedFunc"), packed_keys_bytes),
    **{
        f"FlashAttn{kind}FuncBackward": of_gradient
        for kind in ("", "Varlen", "QKVPacked", "VarlenQKVPacked", "KVPacked", "VarlenKVPacked")
    },
    **dict.fromkeys(
        (
            "_vllm_fa2_C::varlen_fwd",
            *("_C::paged_attention_v1", "_C::paged_attention_v2", "_rocm_C::paged_attention"),
            *("vllm::unified_mla_attention", "vllm::unified_mla_attention_with_output"),
        ),
        cached,
    ),
    **dict.fromkeys(("flash_attn_3::fwd", "_vllm_fa3_C::fwd", "sgl_kernel::fwd"), whole_or_cached),
    **dict.fromkeys(("vllm::unified_attention", "vllm::unified_attention_with_output"), unified),
}
