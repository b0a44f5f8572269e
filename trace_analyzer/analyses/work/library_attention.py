"""Count attention of libraries: flash-attn 2 and 3, xformers, aiter, vLLM, SGLang, Transformer Engine.

Argument orders are those of flash-attn (`flash_attn/flash_attn_interface.py`, `hopper/flash_api.cpp`), xformers
(`csrc/attention/attention.cpp`, `ops/fmha/flash.py`), aiter (`aiter/ops/mha.py`), vLLM (`vllm/attention/layer.py`,
`csrc/torch_bindings.cpp`) and SGLang (`sgl-kernel/csrc/flash_extension.cc`).
"""

from dataclasses import replace

from trace_analyzer.analyses.work.attention import (
    CAUSAL_FROM_END,
    SEQUENCE_FIRST,
    backward,
    cached,
    efficient,
    forward,
    gradients,
    packed,
    ragged,
    uniform,
    unmasked_bytes,
    whole,
    windowed_at,
)
from trace_analyzer.analyses.work.calls import (
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
    return ragged(call, first=0, offsets=(3, 4), longest=(5, 6), mask=windowed_at(9, 10, 11))


def packed_or_cached(call: Call) -> Work:
    """Count the bytes of attention(q, k, v, two offsets, ...) whose mask has no fixed position.

    Further lists of integers (used lengths) or keys in blocks mean a cache; then some queries may not be used.
    """
    query, key = call.tensor(0), call.tensor(1)
    lengths = [t for t in call.given(5) if t.dtype is not None and t.dtype.compute is None and t.shape]
    if lengths or len(key.shape) != len(query.shape):
        return _some_queries(cached(call, value=2))
    return unmasked_bytes(call)


def _some_queries(work: Work) -> Work:
    """Return the work of a call that may not use all queries: all its bytes are doubtful."""
    return replace(work, doubtful_bytes=work.moved_bytes or 0.0)


def unmasked_gradient_bytes(call: Call) -> Work:
    """Count the bytes of efficient_attention_backward_cutlass(gradient, q, k, v, ...).

    All four are read, and the gradients of q, k and v are written. The mask's position differs between versions.
    """
    gradient, query, key, value = (call.tensor(i) for i in range(4))
    if not len(query.shape) == len(key.shape) == len(value.shape) >= 3 or key.shape[:-1] != value.shape[:-1]:
        raise Unrecorded
    return Work(None, total_bytes(gradient, query, query, key, key, value, value), compute(query.dtype))


def packed_keys_bytes(call: Call) -> Work:
    """Count the bytes of FlashAttnKVPackedFunc(q, kv, ...): kv is (..., 2, heads, width); the result is like q."""
    query, both = call.tensor(0), call.tensor(1)
    if len(both.shape) < 3 or both.shape[-3] != 2:
        raise Unrecorded
    return Work(None, total_bytes(query, query, both), compute(query.dtype))


def packed_bytes(call: Call) -> Work:
    """Count the bytes of FlashAttnQKVPackedFunc(qkv), (..., 3, heads, width); the result is a third of it."""
    given = call.tensor(0)
    if len(given.shape) < 3 or given.shape[-3] != 3:
        raise Unrecorded
    return Work(None, 4 / 3 * given.bytes, compute(given.dtype))


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
        return _some_queries(cached(call, value=2))
    chunk = call.value(_CHUNK)
    chunked = isinstance(chunk, int) and not isinstance(chunk, bool) and chunk > 0
    if chunked or call.optional(7) is not None or call.optional(8) is not None:
        return unmasked_bytes(call)
    return forward(call, layout=SEQUENCE_FIRST, mask=windowed_at(24, 25, 26))


def whole_backward(offsets: range) -> Formula:
    """Return the formula of a backward pass of flash-attn 3, whose offsets and lengths are at these positions.

    Its arguments are (gradient, q, k, v, result, sums, ..., causal, window ...).
    """

    def count(call: Call) -> Work:
        if any(call.optional(position) is not None for position in offsets):
            return unmasked_gradient_bytes(call)
        return backward(call, layout=SEQUENCE_FIRST, mask=windowed_at(16, 17, 18), output=4)

    return count


def unified(call: Call) -> Work:
    """Count vllm::unified_attention_with_output(query, key, value, output, ...): tokens of this step, not the cache.

    Tokens that pad a graph's batch are not computed, and the cache may have a narrower type: all bytes are doubtful.
    """
    query, key, value = call.tensor(0), call.optional(1), call.optional(2)
    output = call.optional(3) or query
    moved = total_bytes(query, key, value, output)
    return Work(None, moved, compute(query.dtype), moved, least=True)


def latent(call: Call) -> Work:
    """Count vllm::unified_mla_attention(query, latent, rope key, [output], ...): the query and a given result."""
    query = call.tensor(0)
    moved = total_bytes(query, call.optional(3))
    return Work(None, moved, compute(query.dtype), moved, least=True)


def latent_decode(call: Call) -> Work:
    """Count sm100_cutlass_mla_decode(out, sums, query, rope query, cache, ...): output and queries, not the cache."""
    first = 2 if call.operator.startswith("_C::") else 1
    output, query, turned = call.tensor(0), call.tensor(first), call.tensor(first + 1)
    return Work(None, total_bytes(output, query, turned), compute(query.dtype), least=True)


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


_KINDS = ("", "Varlen", "QKVPacked", "VarlenQKVPacked", "KVPacked", "VarlenKVPacked")

FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(
        (
            *in_namespaces("flash_attn flashattn aiter", "_flash_attn_forward"),
            *in_namespaces("aiter", "mha_fwd", "fmha_v3_fwd"),
        ),
        whole(SEQUENCE_FIRST, windowed_at(5, 6, 7)),
    ),
    **dict.fromkeys(
        in_namespaces("aiter", "mha_bwd", "fmha_v3_bwd"), gradients(SEQUENCE_FIRST, windowed_at(8, 9, 10), 4)
    ),
    **dict.fromkeys(
        in_namespaces("flash_attn flashattn", "_flash_attn_backward"),
        gradients(SEQUENCE_FIRST, windowed_at(11, 12, 13), 4),
    ),
    **dict.fromkeys(in_namespaces("flash_attn flashattn", "_flash_attn_varlen_forward"), varlen),
    **dict.fromkeys(
        in_namespaces("flash_attn flashattn", "_flash_attn_varlen_backward"),
        packed(1, (9, 10), (11, 12), windowed_at(15, 16, 17), backward_pass=True),
    ),
    "aiter::mha_batch_prefill": paged,
    **dict.fromkeys(
        in_namespaces("aiter", "mha_varlen_fwd", "fmha_v3_varlen_fwd", "_flash_attn_varlen_forward"), packed_or_cached
    ),
    "xformers::efficient_attention_forward_cutlass": efficient,
    **dict.fromkeys(in_namespaces("xformers_flash xformers_flash3", "flash_fwd"), packed_or_cached),
    **dict.fromkeys(
        (
            *in_namespaces("xformers_flash xformers_flash3", "flash_bwd"),
            "xformers::efficient_attention_backward_cutlass",
        ),
        unmasked_gradient_bytes,
    ),
    "FlashAttnFunc": unmasked_bytes,
    "FlashAttnVarlenFunc": packed_or_cached,
    **dict.fromkeys(("FlashAttnQKVPackedFunc", "FlashAttnVarlenQKVPackedFunc"), packed_bytes),
    **dict.fromkeys(("FlashAttnKVPackedFunc", "FlashAttnVarlenKVPackedFunc"), packed_keys_bytes),
    **{f"FlashAttn{kind}FuncBackward": of_gradient for kind in _KINDS},
    "_vllm_fa2_C::varlen_fwd": lambda call: cached(call, value=2),
    **dict.fromkeys(("_C::paged_attention_v1", "_C::paged_attention_v2", "_rocm_C::paged_attention"), cached),
    **dict.fromkeys(in_namespaces("vllm", "unified_mla_attention", "unified_mla_attention_with_output"), latent),
    **dict.fromkeys(("_C::sm100_cutlass_mla_decode", "sgl_kernel::cutlass_mla_decode"), latent_decode),
    **dict.fromkeys(
        ("flash_attn_3::fwd", "flash_attn_3::_flash_attn_forward", "_vllm_fa3_C::fwd", "sgl_kernel::fwd"),
        whole_or_cached,
    ),
    "flash_attn_3::bwd": whole_backward(range(9, 13)),  # dq, dk and dv come first
    "flash_attn_3::_flash_attn_backward": whole_backward(range(6, 10)),
    **dict.fromkeys(in_namespaces("vllm", "unified_attention", "unified_attention_with_output"), unified),
    "FusedAttnFunc": fused,
    "FusedAttnFuncBackward": of_gradient,
}
