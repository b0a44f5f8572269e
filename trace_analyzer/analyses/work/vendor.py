"""Count norms, activations, rotations and caches of inference libraries: vLLM, SGLang, FlashInfer, aiter, quack.

Argument orders are those of the libraries' registrations: vLLM (`csrc/torch_bindings.cpp`,
`csrc/libtorch_stable/torch_bindings.cpp`, `vllm/_aiter_ops.py`), SGLang (`sgl-kernel/csrc/common_extension.cc`),
FlashInfer (`norm.py`), aiter (`aiter/ops/rmsnorm.py`), quack (`rmsnorm.py`).
"""

from dataclasses import replace

from trace_analyzer.analyses.work.calls import (
    Call,
    Formula,
    Tensor,
    Work,
    compute,
    in_namespaces,
    require,
    total_bytes,
)


def moved(flop: float, main: Tensor, *tensors: Tensor | None) -> Work:
    """Return the work of tensors that are read or written once each, with arithmetic in the type of ``main``."""
    return Work(flop, total_bytes(*tensors), compute(main.dtype))


def rms_norm(call: Call) -> Work:
    """Count rms_norm(out, input, [weight], eps): square, add, divide; with a weight, scale."""
    output, given, weight = call.tensor(0), call.tensor(1), call.optional(2)
    require(output.elements == given.elements)
    return moved((3.0 + (weight is not None)) * given.elements, given, output, given, weight)


def returned_rms_norm(call: Call) -> Work:
    """Count aiter's rmsnorm2d_fwd(input, weight, eps): an RMS norm that returns its result."""
    given, weight = call.tensor(0), call.tensor(1)
    require(given.shape[-1:] == weight.shape[-1:])
    return moved(4.0 * given.elements, given, Tensor(given.shape, given.dtype), given, weight)


def add_rms_norm(call: Call) -> Work:
    """Count fused_add_rms_norm(input, residual, [weight], eps): reads and writes both in place."""
    given, residual, weight = call.tensor(0), call.tensor(1), call.optional(2)
    require(given.elements == residual.elements)
    flop = (4.0 + (weight is not None)) * given.elements
    return moved(flop, given, given, given, residual, residual, weight)


def add_rms_norm_to(call: Call) -> Work:
    """Count aiter::add_rmsnorm(out, input, residual_in, residual_out, weight, eps)."""
    tensors = [call.tensor(i) for i in range(5)]
    require(len({tensor.elements for tensor in tensors[:4]}) == 1)
    return moved(5.0 * tensors[1].elements, tensors[1], *tensors)


def norm_of_all(call: Call) -> Work:
    """Count quack::_rmsnorm_fwd(x, weight, out, bias, rstd, [mean], residual, residual_out, ...): each tensor once."""
    given = call.tensor(0)
    require(bool(given.shape))
    like = [t for t in call.given(1) if t.elements == given.elements]
    return moved((4.0 + (len(like) > 1)) * given.elements, given, *call.given())


def norm_gradients_of_all(call: Call) -> Work:
    """Count quack::_rmsnorm_bwd(x, weight, gradient, rstd, dx, [parts of dw], ...): each tensor once.

    FLOP per element: normalized value 2, two sums 3, combination 4; for the weight's gradient, multiply and add.
    """
    given = call.tensor(0)
    require(bool(given.shape) and call.tensor(2).elements == given.elements)
    return moved((9.0 + 2 * (call.optional(5) is not None)) * given.elements, given, *call.given())


def softmax_into(call: Call) -> Work:
    """Count quack::_softmax_fwd(x, out): maximum, subtract, exp, add, divide."""
    given, output = call.tensor(0), call.tensor(1)
    require(given.elements == output.elements)
    return moved(5.0 * given.elements, given, given, output)


def gated(call: Call) -> Work:
    """Count silu_and_mul, gelu_and_mul(out, input): the input contains both halves; activation 5, multiply."""
    output, given = call.tensor(0), call.tensor(1)
    require(given.elements == 2 * output.elements)
    return moved(6.0 * output.elements, given, output, given)


def gate_gradients(call: Call) -> Work:
    """Count xformers::silu_bw_fused(a, b, gradient): reads these, writes the gradients of a and b, and the gate.

    FLOP per element: gate 6, its derivative 5, multiplications 2. Autocast may have halved FP32 operands before: their
    bytes are doubtful.
    """
    given = [call.tensor(i) for i in range(3)]
    require(len({tensor.elements for tensor in given}) == 1)
    work = moved(13.0 * given[0].elements, given[0], *given, *given)
    return replace(work, doubtful_bytes=total_bytes(*(t for t in given if t.size > 2)))


def activated(call: Call) -> Work:
    """Count gelu_new, gelu_fast, gelu_quick(out, input): 5 FLOP per element."""
    output, given = call.tensor(0), call.tensor(1)
    require(given.elements == output.elements)
    return moved(5.0 * output.elements, given, output, given)


def _rows(positions: Tensor, table: Tensor) -> Tensor:
    """Return at most as many rows of a table as there are positions; several positions may name one row."""
    require(len(table.shape) == 2)
    return Tensor((min(positions.elements, table.shape[0]), table.shape[1]), table.dtype)


def rotary(call: Call) -> Work:
    """Count rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox): in place, 3 FLOP per element.

    The cache's width of each head is rotated, which is less than the head in models with partial rotation. Without
    values, the head size is unknown: whole heads count, and are doubtful. Rows of the cache that several positions may
    name are also doubtful.
    """
    positions, query, key, table = call.tensor(0), call.tensor(1), call.optional(2), call.tensor(4)
    rows = _rows(positions, table)
    head = call.number(3) if call.valued else table.shape[1]
    require(head > 0)
    part = min(1.0, table.shape[1] / head)
    given = [query, *([key] if key else [])]
    turned, rest = sum(t.elements for t in given) * part, sum(t.bytes for t in given) * part * 2
    doubtful = rows.bytes + (0.0 if call.valued else rest)
    return Work(3.0 * turned, total_bytes(positions, rows) + rest, compute(query.dtype), doubtful)


def norm_and_rotation(call: Call) -> Work:
    """Count fused_qk_norm_rope(qkv, query heads, key heads, value heads, head size, eps, weights, cache, ...).

    The query and key heads of each token are normalized (4 FLOP per element) and, within the cache's width, rotated
    (3), in place.
    """
    packed, table, positions = call.tensor(0), call.tensor(8), call.tensor(10)
    query, key, value, width = (call.number(i) for i in range(1, 5))
    heads = query + key + value
    require(heads > 0 and width > 0 and packed.elements % (heads * width) == 0)
    normalized = packed.elements * (query + key) / heads
    rows = _rows(positions, table)
    turned = normalized * min(1.0, table.shape[1] / width)
    size = 2 * normalized * packed.size + total_bytes(call.tensor(6), call.tensor(7), rows, positions)
    return Work(4.0 * normalized + 3.0 * turned, size, compute(packed.dtype), rows.bytes)


def rotary_to(call: Call) -> Work:
    """Count apply_rope_pos_ids_cos_sin_cache(q, k, q out, k out, cache, positions, ...).

    The part of a head that is not rotated need not move in place: these bytes are doubtful.
    """
    query, key, query_out, key_out, table, positions = (call.tensor(i) for i in range(6))
    require(query.elements == query_out.elements and key.elements == key_out.elements)
    rows = _rows(positions, table)
    turned = min(1.0, table.shape[1] / query.shape[-1]) * (query.elements + key.elements)
    doubtful = total_bytes(query, key, query_out, key_out, rows)
    size = total_bytes(query, key, positions, rows, query_out, key_out)
    return Work(3.0 * turned, size, compute(query.dtype), doubtful)


def _stored(slots: Tensor, *parts: tuple[Tensor, Tensor]) -> Work:
    """Count tokens written to caches, as many as slots, in the caches' types; tokens without a slot are not written."""
    read, written = [], []
    for given, cache in parts:
        rows = min(given.shape[0], slots.elements)
        shape = (rows, given.elements // max(1, given.shape[0]))
        read.append(Tensor(shape, given.dtype))
        written.append(Tensor(shape, cache.dtype))
    work = moved(0.0, parts[0][0], *read, slots, *written)
    return replace(work, doubtful_bytes=total_bytes(*read, *written))


def store_cache(call: Call) -> Work:
    """Count reshape_and_cache_flash, store_cache(key, value, key_cache, value_cache, slots).

    Key and value may have more tokens than slots: the other tokens pad a graph's batch.
    """
    key, value, key_cache, value_cache, slots = (call.tensor(i) for i in range(5))
    require(bool(key.shape) and bool(value.shape))
    return _stored(slots, (key, key_cache), (value, value_cache))


def store_cache_last(call: Call) -> Work:
    """Count store_kv_cache(key_cache, value_cache, slots, key, value)."""
    key_cache, value_cache, slots, key, value = (call.tensor(i) for i in range(5))
    require(bool(key.shape) and bool(value.shape))
    return _stored(slots, (key, key_cache), (value, value_cache))


def latent_cache(call: Call) -> Work:
    """Count concat_and_cache_mla(latent, rope key, cache, slots, ...): writes both in the cache's type."""
    latent, key, cache, slots = (call.tensor(i) for i in range(4))
    require(bool(latent.shape) and bool(key.shape))
    return _stored(slots, (latent, cache), (key, cache))


def turned_cache(call: Call) -> Work:
    """Count concat_and_cache_mla_rope_fused(positions, q, k, latent, cos and sin, neox, slots, cache, ...).

    Query and key are rotated in place; key and latent are written to the cache. Tokens without a slot are not written:
    these bytes are doubtful.
    """
    positions, query, key, latent, slots, cache = (call.tensor(i) for i in (0, 1, 2, 3, 6, 7))
    written = [Tensor(latent.shape, cache.dtype), Tensor(key.shape, cache.dtype)]
    work = moved(
        3.0 * (query.elements + key.elements), query, positions, query, query, key, key, latent, slots, *written
    )
    return replace(work, doubtful_bytes=total_bytes(latent, *written))


def joined(call: Call) -> Work:
    """Count concat_mla_q(a, b, out): reads both, and writes them side by side."""
    one, other, output = (call.tensor(i) for i in range(3))
    require(output.elements == one.elements + other.elements)
    return moved(0.0, one, one, other, output)


def joined_keys(call: Call) -> Work:
    """Count concat_mla_k(out, a, b): b has one head, which is written beside each head of a."""
    output, one, other = (call.tensor(i) for i in range(3))
    require(bool(one.shape) and output.shape[:-1] == one.shape[:-1])
    return moved(0.0, output, output, one, other)


def group_norm(call: Call) -> Work:
    """Count aiter::_groupnorm_run(input, groups, weight, bias, eps): statistics 4, normalize 2, affine 2."""
    given, weight, bias = call.tensor(0), call.tensor(2), call.tensor(3)
    return moved(8.0 * given.elements, given, given, Tensor(given.shape, given.dtype), weight, bias)


_GATES = (
    "silu_and_mul", "mul_and_silu", "gelu_and_mul", "gelu_tanh_and_mul", "fatrelu_and_mul", "swigluoai_and_mul",
    "silu_and_mul_with_clamp",
)  # fmt: skip
FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(
        in_namespaces("_C sgl_kernel flashinfer", "rms_norm", "rmsnorm", "gemma_rmsnorm", "rms_norm_weightless"), rms_norm
    ),
    **dict.fromkeys(in_namespaces("aiter", "rmsnorm", "rms_norm_cu"), rms_norm),
    **dict.fromkeys(
        ("aiter::rms_norm", "aiter::rmsnorm2d_fwd", "vllm::rocm_aiter_rms_norm"), returned_rms_norm
    ),
    **dict.fromkeys(
        in_namespaces(
            "_C sgl_kernel flashinfer", "fused_add_rms_norm", "fused_add_rmsnorm", "gemma_fused_add_rmsnorm",
            "fused_add_rms_norm_weightless",
        ),
        add_rms_norm,
    ),
    **dict.fromkeys(
        ("aiter::fused_add_rms_norm_cu", "vllm::rocm_aiter_rmsnorm2d_fwd_with_add"), add_rms_norm
    ),
    **dict.fromkeys(in_namespaces("aiter", "add_rmsnorm", "rmsnorm2d_fwd_with_add"), add_rms_norm_to),
    "quack::_rmsnorm_fwd": norm_of_all,
    "quack::_rmsnorm_bwd": norm_gradients_of_all,
    "quack::_softmax_fwd": softmax_into,
    **dict.fromkeys(in_namespaces("_C sgl_kernel flashinfer aiter", *_GATES), gated),
    "xformers::silu_bw_fused": gate_gradients,
    **dict.fromkeys(in_namespaces("_C", "gelu_new", "gelu_fast", "gelu_quick"), activated),
    **dict.fromkeys(in_namespaces("_C sgl_kernel", "rotary_embedding", "batched_rotary_embedding"), rotary),
    "_C::fused_qk_norm_rope": norm_and_rotation,
    "sgl_kernel::apply_rope_pos_ids_cos_sin_cache": rotary_to,
    **dict.fromkeys(
        ("_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", "sglang::store_cache"), store_cache
    ),
    "sgl_kernel::store_kv_cache": store_cache_last,
    "_C_cache_ops::concat_and_cache_mla": latent_cache,
    "_C_cache_ops::concat_and_cache_mla_rope_fused": turned_cache,
    **dict.fromkeys(("_C_cache_ops::concat_mla_q", "sgl_kernel::concat_mla_absorb_q"), joined),
    **dict.fromkeys(("sgl_kernel::concat_mla_k", "vllm::flashinfer_concat_mla_k"), joined_keys),
    "aiter::_groupnorm_run": group_norm,
}  # fmt: skip
