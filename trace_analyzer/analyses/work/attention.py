"""Count scaled dot product attention: two matmuls forward, five backward (the scores are computed again).

FLOP are counted as in ``torch.utils.flop_counter``, for all heads of the query, with one difference: masked pairs of
causal or windowed attention are not counted, because fused kernels skip them; the counter ignores masks. As in the
counter, the softmax is left out.

Argument orders are those of ATen (`native_functions.yaml`), flash-attn (`flash_attn/flash_attn_interface.py`,
`hopper/flash_api.cpp`), xformers (`csrc/attention/attention.cpp`, `ops/fmha/flash.py`), aiter (`aiter/ops/mha.py`), vLLM
(`vllm/attention/layer.py`, `csrc/torch_bindings.cpp`) and SGLang (`sgl-kernel/csrc/flash_extension.cc`).
"""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from msgspec.structs import replace

from trace_analyzer.analyses.work.calls import (
    FLOAT32,
    Call,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    compute,
    operators,
    require,
    total_bytes,
)
from trace_analyzer.analyses.work.masks import CAUSAL_FROM_END, CAUSAL_FROM_START, Mask
from trace_analyzer.analyses.work.rows import Row, formulas


class Layout(NamedTuple):
    """Locate sizes in query, key and value: (batch, heads, sequence, width) or (batch, sequence, heads, width)."""

    heads: int
    sequence: int


HEADS_FIRST, SEQUENCE_FIRST = Layout(1, 2), Layout(2, 1)


def _mask_of(call: Call, mask: Callable[[Call], Mask]) -> Mask | None:
    """Return the mask; None where the record does not show whether there is one."""
    try:
        return mask(call)
    except Unrecorded:
        return None


def _unread(seen: Mask | None, queries: int, keys: int, *tensors: Tensor) -> tuple[float, float]:
    """Return the bytes of key and value that no query sees, and the doubtful ones where the mask is unknown."""
    size = total_bytes(*tensors)
    if seen is not None:
        return size * (keys - seen.keys_seen(queries, keys)) / max(1, keys), 0.0
    return 0.0, size * max(0, keys - queries) / max(1, keys)


def dense(
    layout: Layout,
    mask: Callable[[Call], Mask],
    *,
    bias: int | None = None,
    first: int = 0,
    output: int | None = None,
    offsets: int | None = None,
) -> Formula:
    """Return the formula of attention; query, key and value are the arguments from ``first`` on.

    ``output`` is the position of the result in the arguments of a backward pass, which begin with the gradient. With a
    tensor at ``offsets``, sequences are packed in a batch of one, and the work is unknown.
    """

    def formula(call: Call) -> Work:
        if offsets is not None and call.optional(offsets) is not None:
            raise Unrecorded
        start = first if output is None else first + 1
        query, key, value = (call.tensor(start + i) for i in range(3))
        if not len(query.shape) == len(key.shape) == len(value.shape) == 4:
            raise Unrecorded
        batch, heads, width = query.shape[0], query.shape[layout.heads], query.shape[3]
        queries, keys = query.shape[layout.sequence], key.shape[layout.sequence]
        shared, value_width = key.shape[layout.heads], value.shape[3]
        require(key.shape[0] == value.shape[0] == batch and key.shape[3] == width)
        require(value.shape[layout.sequence] == keys and value.shape[layout.heads] == shared)
        require(shared > 0 and heads % shared == 0)
        result = Tensor((batch, heads, queries, value_width), query.dtype)
        moved = total_bytes(query, key, value, None if bias is None else call.optional(bias))
        if output is None:
            moved += total_bytes(result)
        else:
            gradient = call.tensor(first)
            require(gradient.elements == result.elements)
            moved += total_bytes(gradient, call.optional(output), Tensor(result.shape[:3], FLOAT32))
            moved += sum(tensor.elements * tensor.size for tensor in (query, key, value))
        known = _mask_of(call, mask)
        per_pair = width + value_width if output is None else 3 * width + 2 * value_width
        flop = None if known is None else 2.0 * batch * heads * known.pairs(queries, keys) * per_pair
        unread, doubtful = _unread(known, queries, keys, key, value)
        return Work(flop, moved - unread, compute(query.dtype), doubtful)

    return formula


def ragged(
    first: int, offsets: tuple[int, int], longest: tuple[int, int], mask: Callable[[Call], Mask], backward: bool = False
) -> Formula:
    """Return the formula of attention over packed sequences of unequal length: (tokens, heads, width).

    A trace does not contain their lengths. They are known for a single sequence, and where all sequences are as long
    as the longest: then there are that many tokens per sequence. Otherwise, only the bytes are known.
    """

    def formula(call: Call) -> Work:
        query, key, value = (call.tensor(first + i) for i in range(3))
        if not len(query.shape) == len(key.shape) == len(value.shape) == 3:
            raise Unrecorded
        tokens, heads, width = query.shape
        keys, shared, value_width = key.shape[0], key.shape[1], value.shape[2]
        require(key.shape[2] == width and value.shape[:2] == key.shape[:2] and shared > 0 and heads % shared == 0)
        queries_each = uniform(call, tokens, offsets[0], longest[0])
        keys_each = uniform(call, keys, offsets[1], longest[1])
        seen, unread, doubtful = None, 0.0, total_bytes(key, value) * max(0, keys - tokens) / max(1, keys)
        known = _mask_of(call, mask)
        if known is not None and queries_each is not None and keys_each is not None:
            require(queries_each[0] == keys_each[0])
            seen = known.pairs(queries_each[1], keys_each[1]) * queries_each[0]
            unread, doubtful = _unread(known, queries_each[1], keys_each[1], key, value)
        per_pair = 2.0 * heads * ((3 * width + 2 * value_width) if backward else (width + value_width))
        result = Tensor((tokens, heads, value_width), query.dtype)
        moved = total_bytes(query, key, value, result)
        if backward:
            moved = 2 * moved + total_bytes(Tensor((tokens, heads), FLOAT32))
        return Work(None if seen is None else per_pair * seen, moved - unread, compute(query.dtype), doubtful)

    return formula


def uniform(call: Call, tokens: int, offsets: int, longest: int) -> tuple[int, int] | None:
    """Return (number of sequences, length of each) where the shapes determine both; else None."""
    bounds = call.tensor(offsets)
    require(len(bounds.shape) == 1 and bounds.shape[0] > 1)
    count = bounds.shape[0] - 1
    if count == 1:
        return 1, tokens
    return (count, tokens // count) if call.valued and call.number(longest) * count == tokens else None


def _causal_at(position: int) -> Callable[[Call], Mask]:
    return lambda call: CAUSAL_FROM_START if call.flag(position) else Mask()


def windowed_at(causal: int, left: int, right: int) -> Callable[[Call], Mask]:
    """Return a reader of flash-attn's mask; a window size that is missing or negative is no limit."""

    def mask(call: Call) -> Mask:
        sizes = [value if isinstance(value, int) and value >= 0 else None for value in map(call.value, (left, right))]
        return Mask(sizes[0], 0 if call.flag(causal) else sizes[1], from_end=True)

    return mask


def _efficient_mask(call: Call) -> Mask:
    """Return the mask of the memory-efficient kernel, whose position differs between versions.

    Its type is 0 for none, 1 for causal from the start, 2 for causal from the end, or a flag for causal (xformers up
    to 0.0.18). Lengths of keys or a window after it make the number of pairs unknown.
    """
    before, here = call.value(8), call.value(9)
    if any(call.optional(i) for i in range(10, 14)) or any(_is_count(call.value(i)) for i in range(11, 14)):
        raise Unrecorded
    if isinstance(here, bool) and isinstance(before, bool):
        return CAUSAL_FROM_START if here else Mask()
    return _mask_of_type(before if isinstance(here, bool) else here)


def _efficient_gradient_mask(call: Call) -> Mask:
    """Return the mask (custom_mask_type) of the memory-efficient backward pass; with a window, pairs are unknown."""
    if _is_count(call.value(18)):
        raise Unrecorded
    return _mask_of_type(call.value(14))


def _mask_of_type(number: object) -> Mask:
    if type(number) is not int or not 0 <= number <= 2:
        raise Unrecorded
    return (Mask(), CAUSAL_FROM_START, CAUSAL_FROM_END)[number]


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


def efficient(call: Call) -> Work:
    """Count efficient_attention_forward(query, key, value, bias, offsets ...); only bytes for packed sequences."""
    offsets = [t for t in (call.optional(i) for i in range(3, 6)) if t is not None and len(t.shape) == 1]
    if not offsets:
        return dense(SEQUENCE_FIRST, _efficient_mask, bias=3)(call)
    if any(call.optional(i) for i in range(6, 14)):
        return cached(call, value=2)
    return unmasked_bytes(call)


def unmasked_bytes(call: Call) -> Work:
    """Count the bytes of attention(q, k, v, ...) whose mask or lengths are not recorded.

    Where there are more keys than queries, a window may leave some keys unread: these bytes are doubtful.
    """
    query, key, value = (call.tensor(i) for i in range(3))
    if not len(query.shape) == len(key.shape) == len(value.shape) >= 3 or key.shape[:-1] != value.shape[:-1]:
        raise Unrecorded
    queries, keys = (prod(t.shape[:-2]) for t in (query, key))
    output = Tensor((*query.shape[:-1], value.shape[-1]), query.dtype)
    doubtful = total_bytes(key, value) * max(0, keys - queries) / max(1, keys)
    return Work(None, total_bytes(query, key, value, output), compute(query.dtype), doubtful)


def cached(call: Call, *, query: int = 0, value: int, padded: bool = False) -> Work:
    """Count attention with a cache: only query and result, because reads of the cache are not recorded.

    The result is as wide as the values, if there are any at position ``value``. A call that may not use all queries is
    ``padded``: all its bytes are doubtful.
    """
    asked, values = call.tensor(query), call.optional(value)
    result = asked if values is None else Tensor((*asked.shape[:-1], values.shape[-1]), asked.dtype)
    moved = total_bytes(asked, result)
    work = Work(None, moved, compute(asked.dtype), moved * padded, least=True)
    keys = None if values is None else call.optional(value - 1)
    if values is None or keys is None or min(len(keys.shape), len(values.shape), len(asked.shape)) < 3:
        return work
    return replace(work, key_bytes=_last(keys, 2) + _last(values, 2), queries=prod(asked.shape[:-2]))


def _last(tensor: Tensor, dimensions: int) -> float:
    """Return the bytes of a tensor's entry of these last dimensions."""
    return float(prod(tensor.shape[-dimensions:]) * tensor.size)


def _reading(query: int, *tensors: int) -> Formula:
    """Return the formula of a row with what it reads for each key and value: an entry of each of these tensors.

    These are keys and values of this step's tokens, which a cache may hold in a narrower type, or a cache of both.
    """

    def counted(call: Call) -> Work:
        work, given = _OF_ROWS[call.operator](call), [call.optional(position) for position in tensors]
        sizes = [
            _last(tensor, len(tensor.shape) - 1) if tensors[1:] else _last(tensor, 1) for tensor in given if tensor
        ]
        known = len(sizes) == len(tensors)
        return replace(work, key_bytes=sum(sizes) if known else None, queries=call.tensor(query).shape[0])

    return counted


def _of_blocks(call: Call) -> Work:
    """Count paged_attention(out, query, keys, values, ...), whose values are (blocks, heads, width, length of a block)."""
    work, values = _OF_ROWS[call.operator](call), call.optional(3)
    if values is None or len(values.shape) != 4:
        return work
    key_bytes = 2.0 * values.shape[1] * values.shape[2] * values.size
    return replace(work, key_bytes=key_bytes, queries=call.tensor(1).shape[0])


def flash(call: Call, *, first: int = 0) -> Work:
    """Count _flash_attention_forward(query, key, value, offsets, longest, dropout, causal, debug, ...).

    With operands in fp8, three scales follow, which shift the window. Lengths or a block table mean that the keys are
    in a cache.
    """
    query = call.tensor(first)
    moved = first + (3 if query.dtype is not None and query.dtype.compute == "fp8" else 0)
    if call.optional(moved + 13) is not None or call.optional(first + 15) is not None:
        return cached(call, query=first, value=first + 2)
    mask = windowed_at(first + 8, moved + 11, moved + 12)
    if call.optional(first + 3) is None:
        return dense(SEQUENCE_FIRST, mask, first=first)(call)
    return ragged(first, (first + 3, first + 4), (first + 5, first + 6), mask)(call)


def flash_backward(call: Call) -> Work:
    """Count _flash_attention_backward(gradient, query, key, value, result, sums, offsets, longest, dropout, causal, ...)."""
    mask = windowed_at(11, 15, 16)
    if call.optional(6) is None:
        return dense(SEQUENCE_FIRST, mask, output=4)(call)
    return ragged(1, (6, 7), (8, 9), mask, backward=True)(call)


def _scaled_flash(call: Call) -> Work:
    """Count _scaled_dot_product_flash_attention(query, key, value, [three scales], dropout, causal, debug, scale)."""
    causal = 7 if len(call.arguments) > 9 else 4
    return dense(HEADS_FIRST, _causal_at(causal))(call)


def paged(call: Call) -> Work:
    """Count aiter::mha_batch_prefill(q, k_cache, v_cache, cu_seqlens_q, kv_indptr, kv_page_indices, max_q, max_k, ...).

    The keys are in a cache. Where all queries are as long as the longest keys, every sequence has exactly that many
    keys, because causal attention needs at least as many keys as queries.
    """
    query, key, value = (call.tensor(i) for i in range(3))
    if not len(query.shape) == len(key.shape) == len(value.shape) == 3:
        raise Unrecorded
    tokens, heads, width = query.shape
    sequences = uniform(call, tokens, 3, 6)
    windowed = any(isinstance(size, int) and size >= 0 for size in (call.value(13), call.value(14)))
    if sequences is None or call.number(7) != sequences[1] or not call.flag(12) or windowed:
        raise Unrecorded
    count, length = sequences
    per_token = key.shape[1] * width * key.size + value.shape[1] * value.shape[2] * value.size
    flop = 2.0 * count * heads * CAUSAL_FROM_END.pairs(length, length) * (width + value.shape[2])
    output = Tensor((tokens, heads, value.shape[2]), query.dtype)
    return Work(flop, total_bytes(query, output) + tokens * per_token, compute(query.dtype))


def varlen(call: Call) -> Work:
    """Count _flash_attn_varlen_forward(q, k, v, offsets ..., longest ..., dropout, scale, causal, window ...).

    A block table or lengths of used keys mean that the keys are in a cache.
    """
    if call.optional(15) is not None or call.optional(17) is not None:
        return cached(call, value=2)
    return ragged(0, (3, 4), (5, 6), windowed_at(9, 10, 11))(call)


def packed_or_cached(call: Call) -> Work:
    """Count the bytes of attention(q, k, v, two offsets, ...) whose mask has no fixed position.

    Further lists of integers (used lengths) or keys in blocks mean a cache; then some queries may not be used.
    """
    query, key = call.tensor(0), call.tensor(1)
    lengths = [t for t in call.given(5) if t.dtype is not None and t.dtype.compute is None and t.shape]
    if lengths or len(key.shape) != len(query.shape):
        return cached(call, value=2, padded=True)
    return unmasked_bytes(call)


def packed_bytes(call: Call) -> Work:
    """Count the bytes of FlashAttnKVPackedFunc(q, kv), (..., 2, heads, width), and FlashAttnQKVPackedFunc(qkv), (..., 3, ...)."""
    count = 3 if "QKV" in call.operator else 2
    packed = call.tensor(3 - count)
    if len(packed.shape) < 3 or packed.shape[-3] != count:
        raise Unrecorded
    # The result is like the query.
    moved = 4 / 3 * packed.bytes if count == 3 else packed.bytes + 2 * call.tensor(0).bytes
    return Work(None, moved, compute(packed.dtype))


def of_gradient(call: Call) -> Work:
    """Count the backward pass of an autograd function: reads the gradient, writes the query's gradient.

    Where the forward call is known, it also reads query, key, value and result, and writes the gradients of key and
    value.
    """
    gradient = call.tensor(0)
    shapes = [shape for shape in call.outer_shapes[:3] if shape is not None]
    if len(shapes) == 3:
        query, key, value = (Tensor(shape, gradient.dtype) for shape in shapes)
        require(gradient.shape[:-1] == query.shape[:-1] and key.shape[:-1] == value.shape[:-1])
        moved = total_bytes(gradient, gradient, query, query, key, key, value, value)
        return Work(None, moved, compute(gradient.dtype))
    return Work(None, 2 * gradient.bytes, compute(gradient.dtype), least=True)


_OF_CACHES = (3, 5, 10, 11, 14, 15, 16)
"""Arguments of flash-attn 3 that add keys, make them from the query, count the used ones or pick them from a cache."""
_CHUNK = 27
"""Position of flash-attn 3's attention chunk, an integer; in old versions, a float at this position is the softcap."""


def whole_or_cached(call: Call) -> Work:
    """Count flash_attn_3::fwd(q, k, v, k new, v new, ...).

    Keys and values are read whole, unless they are in a cache. The FLOP of packed sequences are unknown.
    """
    if not call.valued or any(call.optional(position) is not None for position in _OF_CACHES):
        return cached(call, value=2, padded=True)
    if _is_count(call.value(_CHUNK)) or call.optional(7) is not None or call.optional(8) is not None:
        return unmasked_bytes(call)
    return dense(SEQUENCE_FIRST, windowed_at(24, 25, 26))(call)


def whole_backward(offsets: range) -> Formula:
    """Return the formula of a backward pass of flash-attn 3, whose offsets and lengths are at these positions.

    Its arguments are (gradient, q, k, v, result, sums, ..., causal, window ...).
    """

    def formula(call: Call) -> Work:
        if any(call.optional(position) is not None for position in offsets):
            return _GRADIENT_BYTES(call)
        return dense(SEQUENCE_FIRST, windowed_at(16, 17, 18), output=4)(call)

    return formula


def fused(call: Call) -> Work:
    """Count Transformer Engine's FusedAttnFunc, whose first three tensors of three or more dimensions are q, k, v.

    Their positions differ between versions. Padding between packed sequences is not read, and fp8 kernels read narrower
    copies: all bytes are doubtful.
    """
    given = [t for t in call.given() if len(t.shape) >= 3 and compute(t.dtype) is not None]
    if len(given) < 3 or len({len(t.shape) for t in given[:3]}) != 1 or given[1].shape[:-1] != given[2].shape[:-1]:
        raise Unrecorded
    query, key, value = given[:3]
    output = Tensor((*query.shape[:-1], value.shape[-1]), query.dtype)
    moved = total_bytes(query, key, value, output)
    return Work(None, moved, compute(query.dtype), moved, least=True)


_ROWS: tuple[Row, ...] = (
    # Operators of which only bytes are known, as in `trace_analyzer.analyses.work.rows`; the cache that they read is not.
    ("_C", "paged_attention_v1 paged_attention_v2", 0, 0, "0 =0 least unknown"),
    ("_rocm_C", "paged_attention", 0, 0, "0 =0 least unknown"),
    ("_C", "sm100_cutlass_mla_decode", 0, 2, "0 2 3 least unknown"),  # out, sums, query, rope query, cache
    ("sgl_kernel", "cutlass_mla_decode", 0, 1, "0 1 2 least unknown"),  # out, query, rope query, cache
    # Tokens that pad a graph's batch are not computed, and the cache may have a narrower type: all bytes are doubtful.
    ("vllm sglang", "unified_attention unified_attention_with_output", 0, 0, "0 1? 2? 3/0 least unknown doubtful"),
    ("vllm", "unified_mla_attention unified_mla_attention_with_output", 0, 0, "0 3? least unknown doubtful"),
    # The gradient of the result, query, key and value; the mask's position differs between versions.
    ("xformers_flash xformers_flash3", "flash_bwd", 0, 1, "0 1! 2! 3! unknown"),
    ("xformers", "efficient_attention_backward_cutlass", 0, 1, "0 1! 2! 3! unknown"),
)
_OF_ROWS = formulas(_ROWS)
_GRADIENT_BYTES = _OF_ROWS["xformers::efficient_attention_backward_cutlass"]

FORMULAS: dict[str, Formula] = _OF_ROWS | operators(
    ("vllm", "unified_attention", _reading(0, 1, 2)),
    ("vllm sglang", "unified_attention_with_output", _reading(0, 1, 2)),
    ("_C", "sm100_cutlass_mla_decode", _reading(2, 4)),
    ("sgl_kernel", "cutlass_mla_decode", _reading(1, 3)),
    ("_C", "paged_attention_v1 paged_attention_v2", _of_blocks),
    ("aten", "scaled_dot_product_attention", dense(HEADS_FIRST, _causal_at(5), bias=3)),
    ("aten", "_scaled_dot_product_flash_attention", _scaled_flash),
    ("aten", "_scaled_dot_product_flash_attention_for_cpu", dense(HEADS_FIRST, _causal_at(4))),
    ("aten", "_scaled_dot_product_efficient_attention", dense(HEADS_FIRST, _causal_at(6), bias=3)),
    ("aten", "_scaled_dot_product_cudnn_attention", dense(HEADS_FIRST, _causal_at(6), bias=3)),
    ("aten", "_scaled_dot_product_fused_attention_overrideable", dense(HEADS_FIRST, _causal_at(5), bias=3)),
    ("aten", "_cudnn_attention_forward", dense(HEADS_FIRST, _causal_at(10), bias=3, offsets=4)),
    ("aten", "_flash_attention_forward", flash),
    ("aten", "_flash_attention_forward_no_dropout_inplace", lambda call: flash(call, first=1)),
    ("aten", "_efficient_attention_forward", efficient),
    ("aten", "_scaled_dot_product_flash_attention_backward", dense(HEADS_FIRST, _causal_at(11), output=4)),
    ("aten", "_scaled_dot_product_flash_attention_for_cpu_backward", dense(HEADS_FIRST, _causal_at(7), output=4)),
    ("aten", "_scaled_dot_product_efficient_attention_backward", dense(HEADS_FIRST, _causal_at(11), output=5, bias=4)),
    ("aten", "_scaled_dot_product_cudnn_attention_backward", dense(HEADS_FIRST, _causal_at(14), output=4, bias=8)),
    ("aten", "_cudnn_attention_backward", dense(HEADS_FIRST, _causal_at(14), output=4, bias=8, offsets=9)),
    ("aten", "_scaled_dot_product_fused_attention_overrideable_backward", dense(HEADS_FIRST, _causal_at(13), output=6, bias=4)),
    ("aten", "_flash_attention_backward", flash_backward),
    ("aten", "_efficient_attention_backward", dense(SEQUENCE_FIRST, _efficient_gradient_mask, output=5, bias=4, offsets=6)),
    ("flash_attn flashattn aiter", "_flash_attn_forward", dense(SEQUENCE_FIRST, windowed_at(5, 6, 7))),
    ("aiter", "mha_fwd fmha_v3_fwd", dense(SEQUENCE_FIRST, windowed_at(5, 6, 7))),
    ("aiter", "mha_bwd fmha_v3_bwd", dense(SEQUENCE_FIRST, windowed_at(8, 9, 10), output=4)),
    ("flash_attn flashattn", "_flash_attn_backward", dense(SEQUENCE_FIRST, windowed_at(11, 12, 13), output=4)),
    ("flash_attn flashattn", "_flash_attn_varlen_forward", varlen),
    ("flash_attn flashattn", "_flash_attn_varlen_backward", ragged(1, (9, 10), (11, 12), windowed_at(15, 16, 17), backward=True)),
    ("aiter", "mha_batch_prefill", paged),
    ("aiter", "mha_varlen_fwd fmha_v3_varlen_fwd _flash_attn_varlen_forward", packed_or_cached),
    ("xformers", "efficient_attention_forward_cutlass", efficient),
    ("xformers_flash xformers_flash3", "flash_fwd", packed_or_cached),
    ("_vllm_fa2_C", "varlen_fwd", lambda call: cached(call, value=2)),
    ("flash_attn_3", "fwd _flash_attn_forward", whole_or_cached),
    ("_vllm_fa3_C sgl_kernel", "fwd", whole_or_cached),
    ("flash_attn_3", "bwd", whole_backward(range(9, 13))),  # dq, dk and dv come first
    ("flash_attn_3", "_flash_attn_backward", whole_backward(range(6, 10))),
) | {
    "FlashAttnFunc": unmasked_bytes,
    "FlashAttnVarlenFunc": packed_or_cached,
    **{f"FlashAttn{v}{kind}PackedFunc": packed_bytes for v in ("", "Varlen") for kind in ("QKV", "KV")},
    **{f"FlashAttn{v}{kind}FuncBackward": of_gradient for v in ("", "Varlen") for kind in ("", "QKVPacked", "KVPacked")},
    "FusedAttnFunc": fused,
    "FusedAttnFuncBackward": of_gradient,
}  # fmt: skip
