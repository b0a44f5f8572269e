"""Count operators of inference libraries (vLLM, SGLang, aiter, fbgemm) whose name and shapes leave no doubt."""

from trace_analyzer.analyses.work.calls import (
    BYTE,
    FLOAT32,
    Call,
    Formula,
    Tensor,
    Work,
    compute,
    in_namespaces,
    require,
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
    """Count silu_and_mul, gelu_and_mul(out, input): the input holds both halves; activation 5, multiply."""
    output, given = call.tensor(0), call.tensor(1)
    require(given.elements == 2 * output.elements)
    return _moved(6.0 * output.elements, given, output, given)


def rotary(call: Call) -> Work:
    """Count rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox): in place, 3 FLOP an element."""
    positions, query, key, table = call.tensor(0), call.tensor(1), call.optional(2), call.tensor(4)
    require(len(table.shape) == 2)
    rows = Tensor((min(positions.elements, table.shape[0]), table.shape[1]), table.dtype)
    turned = query.elements + (key.elements if key else 0)
    return _moved(3.0 * turned, query, positions, query, query, key, key, rows)


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
    """Count rms_norm_static_fp8_quant and its kin (out, input, weight, scale, ...): normalize 4, scale and clamp 2.

    A residual, the last tensor that is as large as the input, is read and written.
    """
    output, given = call.tensor(0), call.tensor(1)
    require(output.elements == given.elements)
    residuals = [t for t in call.given(2) if t.elements == given.elements]
    flop = (7.0 if residuals else 6.0) * given.elements
    return _moved(flop, given, output, given, *call.given(2), *residuals[-1:])


def group_quantized(call: Call) -> Work:
    """Count sgl_per_token_group_quant_fp8 and its kin (input, out, scales, ...): largest value, multiply, clamp."""
    given, output = call.tensor(0), call.tensor(1)
    require(output.elements == given.elements)
    return _moved(3.0 * given.elements, given, given, output, call.optional(2))


def latent_cache(call: Call) -> Work:
    """Count concat_and_cache_mla(latent, rope key, cache, slots, ...): both are written in the cache's type."""
    latent, key, cache, slots = (call.tensor(i) for i in range(4))
    written = (Tensor(latent.shape, cache.dtype), Tensor(key.shape, cache.dtype))
    return _moved(0.0, latent, latent, key, slots, *written)


def all_touched(call: Call) -> Work:
    """Count merge_attn_states, topk_softmax, moe_sum and their kin: each tensor once, 2 FLOP an element of the largest."""
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
"""Bytes that FBGEMM's rowwise formats append to each row: a scale and a bias in float (fbgemm_gpu, quantize_ops)."""


def to_rowwise_bytes(call: Call) -> Work:
    """Count FloatToFP8RowwiseQuantized, FloatToFused8BitRowwiseQuantized(input).

    They write a byte per element, and each row's scales.
    """
    given = call.tensor(0)
    require(len(given.shape) == 2)
    written = Tensor((given.shape[0], given.shape[1] + _ROWWISE_SCALES), BYTE)
    return _moved(3.0 * given.elements, given, given, written)


def from_rowwise_bytes(call: Call) -> Work:
    """Count FP8RowwiseQuantizedToFloat, Fused8BitRowwiseQuantizedToFloat(input): the way back."""
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


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(in_namespaces("_C sgl_kernel", "rms_norm", "rmsnorm"), rms_norm),
    "aiter::rmsnorm": rms_norm,
    **dict.fromkeys(in_namespaces("_C sgl_kernel", "fused_add_rms_norm", "fused_add_rmsnorm"), add_rms_norm),
    "aiter::add_rmsnorm": add_rms_norm_to,
    "sgl_kernel::gemma_rmsnorm": rms_norm,
    "sgl_kernel::gemma_fused_add_rmsnorm": add_rms_norm,
    **dict.fromkeys(
        in_namespaces(
            "_C sgl_kernel",
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
            "sgl_per_token_group_quant_fp8",
            "sgl_per_token_group_quant_int8",
            "sgl_per_tensor_quant_fp8",
            "sgl_per_token_quant_fp8",
        ),
        group_quantized,
    ),
    **dict.fromkeys(in_namespaces("_C sgl_kernel", "rotary_embedding"), rotary),
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
}
