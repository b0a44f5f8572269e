"""Count unambiguous operators of inference libraries (vLLM, SGLang, FlashInfer, aiter, fbgemm), by names and shapes.

Argument orders are those of the libraries' registrations: vLLM (`csrc/torch_bindings.cpp`, `csrc/moe/torch_bindings.cpp`), SGLang
(`sgl-kernel/csrc/common_extension.cc`), FlashInfer (`norm.py`, `cascade.py`), FBGEMM (`quantize_ops`, `gen_ai`).
"""

import math
from dataclasses import replace

from trace_analyzer.analyses.work.calls import (
    BYTE,
    DTYPES,
    FLOAT32,
    Call,
    Formula,
    Tensor,
    Work,
    compute,
    in_namespaces,
    require,
    tensor_of,
    total_bytes,
)


def _moved(flop: float, main: Tensor, *tensors: Tensor | None) -> Work:
    return Work(flop, total_bytes(*tensors), compute(main.dtype))


def rms_norm(call: Call) -> Work:
    """Count rms_norm(out, input, weight, eps): square, add, divide, scale."""
    output, given, weight = (call.tensor(i) for i in range(3))
    require(output.elements == given.elements)
    return _moved(4.0 * given.elements, given, output, given, weight)


def add_rms_norm(call: Call) -> Work:
    """Count fused_add_rms_norm(input, residual, weight, eps): both are read and written in place."""
    given, residual, weight = (call.tensor(i) for i in range(3))
    require(given.elements == residual.elements)
    return _moved(5.0 * given.elements, given, given, given, residual, residual, weight)


def add_rms_norm_to(call: Call) -> Work:
    """Count aiter::add_rmsnorm(out, input, residual_in, residual_out, weight, eps)."""
    tensors = [call.tensor(i) for i in range(5)]
    require(len({tensor.elements for tensor in tensors[:4]}) == 1)
    return _moved(5.0 * tensors[1].elements, tensors[1], *tensors)


def gated(call: Call) -> Work:
    """Count silu_and_mul, gelu_and_mul(out, input): the input has both halves; activation 5, multiplication 1."""
    output, given = call.tensor(0), call.tensor(1)
    require(given.elements == 2 * output.elements)
    return _moved(6.0 * output.elements, given, output, given)


def rotary(call: Call) -> Work:
    """Count rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox): in place, 3 FLOP per element.

    The rotated part of each head is as wide as the cache, which is less than the head in models with partial rotation.
    Without values, the head size is unknown: whole heads count, but are doubtful.
    """
    positions, query, key, table = call.tensor(0), call.tensor(1), call.optional(2), call.tensor(4)
    require(len(table.shape) == 2)
    rows = Tensor((min(positions.elements, table.shape[0]), table.shape[1]), table.dtype)
    head = call.number(3) if call.valued else table.shape[1]
    require(head > 0)
    part = min(1.0, table.shape[1] / head)
    given = [query, *([key] if key else [])]
    turned, rest = sum(t.elements for t in given) * part, sum(t.bytes for t in given) * part * 2
    work = Work(3.0 * turned, total_bytes(positions, rows) + rest, compute(query.dtype))
    return work if call.valued else replace(work, doubtful_bytes=rest)


def store_cache(call: Call) -> Work:
    """Count reshape_and_cache_flash, store_cache(key, value, key_cache, value_cache, slots).

    They write in the cache's type.
    """
    key, value, key_cache, value_cache, slots = (call.tensor(i) for i in range(5))
    written = (Tensor(key.shape, key_cache.dtype), Tensor(value.shape, value_cache.dtype))
    return _moved(0.0, key, key, value, slots, *written)


def quantized(call: Call) -> Work:
    """Count static_scaled_fp8_quant, dynamic_scaled_fp8_quant(out, input, scale): multiply, clamp."""
    output, given, scale = call.tensor(0), call.tensor(1), call.optional(2)
    require(output.elements == given.elements)
    return _moved(2.0 * given.elements, given, output, given, scale)


def activated(call: Call) -> Work:
    """Count gelu_new, gelu_fast, gelu_quick(out, input): activation 5."""
    output, given = call.tensor(0), call.tensor(1)
    require(given.elements == output.elements)
    return _moved(5.0 * output.elements, given, output, given)


def gated_quantized(call: Call) -> Work:
    """Count silu_and_mul_quant, silu_and_mul_per_block_quant(out, input, scales): as `gated`, then multiply and clamp."""
    output, given = call.tensor(0), call.tensor(1)
    require(given.elements == 2 * output.elements)
    return _moved(8.0 * output.elements, given, output, given, *call.given(2))


def norm_quantized(call: Call) -> Work:
    """Count rms_norm_static_fp8_quant and related operators (out, input, weight, scale, ...).

    FLOP per element: normalize 4, scale and clamp 2.

    A residual, the last tensor with the input's size, is read and written.
    """
    output, given = call.tensor(0), call.tensor(1)
    require(output.elements == given.elements)
    residuals = [t for t in call.given(2) if t.elements == given.elements]
    flop = (7.0 if residuals else 6.0) * given.elements
    return _moved(flop, given, output, given, *call.given(2), *residuals[-1:])


def group_quantized(call: Call) -> Work:
    """Count sgl_per_token_group_quant_fp8 and related operators (input, out, scales, ...).

    FLOP per element: largest value, multiply, clamp.
    """
    given, output = call.tensor(0), call.tensor(1)
    require(output.elements == given.elements)
    return _moved(3.0 * given.elements, given, given, output, call.optional(2))


def latent_cache(call: Call) -> Work:
    """Count concat_and_cache_mla(latent, rope key, cache, slots, ...): both are written in the cache's type."""
    latent, key, cache, slots = (call.tensor(i) for i in range(4))
    written = (Tensor(latent.shape, cache.dtype), Tensor(key.shape, cache.dtype))
    return _moved(0.0, latent, latent, key, slots, *written)


def all_touched(call: Call) -> Work:
    """Count merge_attn_states, topk_softmax, moe_sum and related operators.

    Each tensor moves once; there are 2 FLOP per element of the largest.
    """
    tensors = call.given()
    require(bool(tensors))
    largest = max(tensors, key=lambda tensor: tensor.elements)
    return _moved(2.0 * largest.elements, largest, *tensors)


def group_norm(call: Call) -> Work:
    """Count aiter::_groupnorm_run(input, groups, weight, bias, eps): statistics 4, normalize 2, affine 2."""
    given, weight, bias = call.tensor(0), call.tensor(2), call.tensor(3)
    return _moved(8.0 * given.elements, given, given, Tensor(given.shape, given.dtype), weight, bias)


def permuted(call: Call) -> Work:
    """Count fbgemm::permute_pooled_embs(pooled, ...): read once, written once."""
    given = call.tensor(0)
    return _moved(0.0, given, given, Tensor(given.shape, given.dtype), *call.given(1))


_ROWWISE_SCALES = 8
"""Bytes that FBGEMM's rowwise formats append to each row: scale and bias as float (fbgemm_gpu, quantize_ops)."""


def to_rowwise_bytes(call: Call) -> Work:
    """Count FloatToFP8RowwiseQuantized, FloatToFused8BitRowwiseQuantized(input).

    They write a byte per element, and the scales of each row.
    """
    given = call.tensor(0)
    require(len(given.shape) == 2)
    written = Tensor((given.shape[0], given.shape[1] + _ROWWISE_SCALES), BYTE)
    return _moved(3.0 * given.elements, given, given, written)


def from_rowwise_bytes(call: Call) -> Work:
    """Count FP8RowwiseQuantizedToFloat, Fused8BitRowwiseQuantizedToFloat(input), the inverse operation."""
    given = call.tensor(0)
    require(len(given.shape) == 2 and given.shape[1] > _ROWWISE_SCALES)
    written = Tensor((given.shape[0], given.shape[1] - _ROWWISE_SCALES), FLOAT32)
    return _moved(2.0 * written.elements, written, given, written)


def to_bytes(call: Call) -> Work:
    """Count FloatToHFP8Quantized(input): a byte per element."""
    given = call.tensor(0)
    return _moved(2.0 * given.elements, given, given, Tensor(given.shape, BYTE))


def from_bytes(call: Call) -> Work:
    """Count HFP8QuantizedToFloat(input): a float per byte."""
    given = call.tensor(0)
    return _moved(2.0 * given.elements, Tensor(given.shape, FLOAT32), given, Tensor(given.shape, FLOAT32))


def norm_and_rotation(call: Call) -> Work:
    """Count fused_qk_norm_rope(qkv, query heads, key heads, value heads, head size, eps, weights, cache, ...).

    Query and key heads of each token are normalized (4 FLOP per element) and rotated up to the cache's width (3), in
    place.
    """
    packed, table, positions = call.tensor(0), call.tensor(8), call.tensor(10)
    query, key, value, width = (call.number(i) for i in range(1, 5))
    heads = query + key + value
    require(heads > 0 and width > 0 and len(table.shape) == 2 and packed.elements % (heads * width) == 0)
    normalized = packed.elements * (query + key) / heads
    rows = Tensor((min(positions.elements, table.shape[0]), table.shape[1]), table.dtype)
    turned = normalized * min(1.0, table.shape[1] / width)
    moved = 2 * normalized * packed.size + total_bytes(call.tensor(6), call.tensor(7), rows, positions)
    return Work(4.0 * normalized + 3.0 * turned, moved, compute(packed.dtype))


def rotary_to(call: Call) -> Work:
    """Count apply_rope_pos_ids_cos_sin_cache(q, k, q out, k out, cache, positions, ...).

    The part of a head that is not rotated need not move if the operation is in place, so it is doubtful.
    """
    query, key, query_out, key_out, table, positions = (call.tensor(i) for i in range(6))
    require(query.elements == query_out.elements and key.elements == key_out.elements and len(table.shape) == 2)
    rows = Tensor((min(positions.elements, table.shape[0]), table.shape[1]), table.dtype)
    turned = min(1.0, table.shape[1] / query.shape[-1]) * (query.elements + key.elements)
    inputs = (query, key, positions, rows)
    return Work(
        3.0 * turned,
        total_bytes(*inputs, query_out, key_out),
        compute(query.dtype),
        doubtful_bytes=total_bytes(query, key, query_out, key_out),
    )


def quantized_fp4(call: Call) -> Work:
    """Count scaled_fp4_quant(out, input, scales, scale): largest value, multiply, clamp; two elements per byte.

    Scales, one per 16 elements, may be padded and are not counted.
    """
    output, given = call.tensor(0), call.tensor(1)
    require(output.bytes * 2 == given.elements)
    return replace(_moved(3.0 * given.elements, given, output, given), least=True)


def gated_fp4(call: Call) -> Work:
    """Count silu_and_mul_nvfp4_quant(out, scales, input, scale): `gated`, then `quantized_fp4`."""
    output, given = call.tensor(0), call.tensor(2)
    require(output.bytes * 4 == given.elements)
    return replace(_moved(4.5 * given.elements, given, output, given), least=True)


def from_packed_words(call: Call) -> Work:
    """Count awq_dequantize(words, scales, zeros, ...): (k, n / 8) words to (k, n) of the scales' type.

    A word has eight elements.
    """
    words, scales = call.tensor(0), call.tensor(1)
    require(len(words.shape) == len(scales.shape) == 2 and scales.shape[1] == 8 * words.shape[1])
    written = Tensor((words.shape[0], scales.shape[1]), scales.dtype)
    return _moved(2.0 * written.elements, written, words, scales, call.optional(2), written)


def from_blocks(call: Call) -> Work:
    """Count ggml_dequantize(blocks, kind, m, n, dtype): bytes of blocks, to (m, n), by default in a 16-bit type."""
    blocks, m, n = call.tensor(0), call.number(2), call.number(3)
    written = tensor_of((m, n), call.type_at(4) or DTYPES["c10::Half"])
    return _moved(2.0 * written.elements, written, blocks, written)


def penalized(call: Call) -> Work:
    """Count apply_repetition_penalties_(logits, prompt mask, output mask, penalties).

    Masks are read, and the logits that they select, whose number is not recorded.
    """
    masks = [call.tensor(i) for i in (1, 2, 3)]
    return Work(None, total_bytes(*masks), None, least=True)


def converted(call: Call) -> Work:
    """Count convert_fp8(out, input, ...): multiply and clamp."""
    output, given = call.tensor(0), call.tensor(1)
    require(output.elements == given.elements)
    return _moved(2.0 * given.elements, given if compute(given.dtype) else output, output, given)


def joined_query(call: Call) -> Work:
    """Count concat_mla_q(a, b, out): both are read, and written next to each other."""
    one, other, output = (call.tensor(i) for i in range(3))
    require(output.elements == one.elements + other.elements)
    return _moved(0.0, one, one, other, output)


def turned_cache(call: Call) -> Work:
    """Count concat_and_cache_mla_rope_fused(positions, q, k, latent, cos and sin, neox, slots, cache, ...).

    Query and key are rotated in place; key and latent are written to the cache. Tokens without a slot are not written,
    so these bytes are doubtful.
    """
    positions, query, key, latent, slots, cache = (call.tensor(i) for i in (0, 1, 2, 3, 6, 7))
    written = [Tensor(latent.shape, cache.dtype), Tensor(key.shape, cache.dtype)]
    work = _moved(
        3.0 * (query.elements + key.elements), query, positions, query, query, key, key, latent, slots, *written
    )
    return replace(work, doubtful_bytes=total_bytes(*written))


def rows_shuffled(call: Call) -> Work:
    """Count shuffle_rows(input, map, out): rows of the result may all come from one row of the input."""
    given, places, output = (call.tensor(i) for i in range(3))
    require(given.shape[-1:] == output.shape[-1:])
    read = min(given.bytes, output.bytes)
    return Work(0.0, total_bytes(places, output) + read, compute(output.dtype), doubtful_bytes=read)


def hadamard(call: Call) -> Work:
    """Count hadacore_transform(x, in place): n log2 n FLOP per row, read and written."""
    given = call.tensor(0)
    require(bool(given.shape) and given.shape[-1] > 0)
    return _moved(given.elements * math.log2(given.shape[-1]), given, given, Tensor(given.shape, given.dtype))


def scanned(call: Call) -> Work:
    """Count selective_scan_fwd(u, delta, A, B, C, D, z, ...): the result has u's shape.

    States do not count as bytes.

    Each element of a state takes, per time step: exponent 2, product 2, multiply-add 2, product with C 2.
    """
    given, delta, a, b, c = (call.tensor(i) for i in range(5))
    require(given.elements == delta.elements and len(a.shape) == 2)
    flop = 8.0 * given.elements * a.shape[1]
    return replace(
        _moved(flop, given, given, delta, a, b, c, *call.given(5)[:1], Tensor(given.shape, given.dtype)), least=True
    )


def to_rowwise_fp8(call: Call) -> Work:
    """Count quantize_fp8_per_row, quantize_fp8_per_tensor(input, ...): a byte per element.

    FLOP per element: largest value, scale, clamp.
    """
    given = call.tensor(0)
    return replace(_moved(3.0 * given.elements, given, given, Tensor(given.shape, BYTE)), least=True)


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(in_namespaces("_C sgl_kernel flashinfer", "rms_norm", "rmsnorm"), rms_norm),
    "aiter::rmsnorm": rms_norm,
    **dict.fromkeys(in_namespaces("_C sgl_kernel flashinfer", "fused_add_rms_norm", "fused_add_rmsnorm"), add_rms_norm),
    "aiter::add_rmsnorm": add_rms_norm_to,
    **dict.fromkeys(in_namespaces("sgl_kernel flashinfer", "gemma_rmsnorm"), rms_norm),
    **dict.fromkeys(in_namespaces("sgl_kernel flashinfer", "gemma_fused_add_rmsnorm"), add_rms_norm),
    **dict.fromkeys(
        in_namespaces(
            "_C sgl_kernel flashinfer aiter",
            "silu_and_mul",
            "mul_and_silu",
            "gelu_and_mul",
            "gelu_tanh_and_mul",
            "fatrelu_and_mul",
            "swigluoai_and_mul",
        ),
        gated,
    ),
    **dict.fromkeys(in_namespaces("_C", "gelu_new", "gelu_fast", "gelu_quick"), activated),
    **dict.fromkeys(in_namespaces("_C", "silu_and_mul_quant", "silu_and_mul_per_block_quant"), gated_quantized),
    **dict.fromkeys(
        in_namespaces(
            "_C",
            "rms_norm_static_fp8_quant",
            "fused_add_rms_norm_static_fp8_quant",
            "rms_norm_dynamic_per_token_quant",
            "rms_norm_per_block_quant",
        ),
        norm_quantized,
    ),
    **dict.fromkeys(
        in_namespaces(
            "sgl_kernel",
            "sgl_per_token_group_quant_8bit",
            "sgl_per_token_group_quant_fp8",
            "sgl_per_token_group_quant_int8",
            "sgl_per_tensor_quant_fp8",
            "sgl_per_token_quant_fp8",
        ),
        group_quantized,
    ),
    **dict.fromkeys(in_namespaces("_C sgl_kernel", "rotary_embedding", "batched_rotary_embedding"), rotary),
    **dict.fromkeys(
        ("_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", "sglang::store_cache"), store_cache
    ),
    "_C_cache_ops::concat_and_cache_mla": latent_cache,
    **dict.fromkeys(
        in_namespaces(
            "_C",
            "static_scaled_fp8_quant",
            "dynamic_scaled_fp8_quant",
            "dynamic_per_token_scaled_fp8_quant",
            "static_scaled_int8_quant",
            "dynamic_scaled_int8_quant",
        ),
        quantized,
    ),
    **dict.fromkeys(
        (
            "_C::merge_attn_states",
            "sgl_kernel::merge_state",
            "sgl_kernel::merge_state_v2",
            "flashinfer::merge_state",
            "_moe_C::sgl_moe_align_block_size",
            "_moe_C::topk_softmax",
            "sgl_kernel::topk_softmax",
            "_moe_C::moe_sum",
            *("_moe_C::moe_align_block_size", "sgl_kernel::moe_align_block_size", "sgl_kernel::moe_fused_gate"),
        ),
        all_touched,
    ),
    "aiter::_groupnorm_run": group_norm,
    **dict.fromkeys(in_namespaces("fbgemm", "permute_pooled_embs", "permute_pooled_embs_auto_grad"), permuted),
    "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs_gpu> >": permuted,
    **dict.fromkeys(
        in_namespaces("fbgemm", "FloatToFP8RowwiseQuantized", "FloatToFused8BitRowwiseQuantized"), to_rowwise_bytes
    ),
    **dict.fromkeys(
        in_namespaces("fbgemm", "FP8RowwiseQuantizedToFloat", "Fused8BitRowwiseQuantizedToFloat"), from_rowwise_bytes
    ),
    "fbgemm::FloatToHFP8Quantized": to_bytes,
    "fbgemm::HFP8QuantizedToFloat": from_bytes,
    "_C::fused_qk_norm_rope": norm_and_rotation,
    "sgl_kernel::apply_rope_pos_ids_cos_sin_cache": rotary_to,
    **dict.fromkeys(in_namespaces("_C _C_stable_libtorch sgl_kernel", "scaled_fp4_quant"), quantized_fp4),
    **dict.fromkeys(in_namespaces("_C _C_stable_libtorch", "silu_and_mul_nvfp4_quant"), gated_fp4),
    **dict.fromkeys(in_namespaces("_C _C_stable_libtorch sgl_kernel", "awq_dequantize"), from_packed_words),
    **dict.fromkeys(in_namespaces("_C sgl_kernel", "ggml_dequantize"), from_blocks),
    "_C::apply_repetition_penalties_": penalized,
    "_C_cache_ops::convert_fp8": converted,
    "_C_cache_ops::concat_mla_q": joined_query,
    "_C_cache_ops::concat_and_cache_mla_rope_fused": turned_cache,
    "sgl_kernel::shuffle_rows": rows_shuffled,
    "_C::hadacore_transform": hadamard,
    "_C::selective_scan_fwd": scanned,
    **dict.fromkeys(in_namespaces("fbgemm mslk", "quantize_fp8_per_row", "quantize_fp8_per_tensor"), to_rowwise_fp8),
}
