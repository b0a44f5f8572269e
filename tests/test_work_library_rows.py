"""Test FLOP and bytes of norms, caches, quantization, routing and scans of libraries, worked out by hand.

Comments name the file and version of the library that each signature was read from. vLLM is `csrc/torch_bindings.cpp` at 00256d5,
where nothing else is said, SGLang `sgl-kernel/csrc/common_extension.cc` at 40ef116.
"""

from typing import Any

import pytest
from test_work import BYTES, INT, INT8, LONG, f, h, q8, work

from trace_analyzer.analyses.work import Record, Work, call_work

SLOTS = ((4,), LONG)


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        # vLLM, csrc/libtorch_stable/torch_bindings.cpp at 0135b6c: rms_norm_weightless(result, input, epsilon)
        ("_C::rms_norm_weightless", (h(4, 6), h(4, 6), 1e-6), Work(72, 96, "fp16")),
        ("_C::fused_add_rms_norm_weightless", (h(4, 6), h(4, 6), 1e-6), Work(96, 192, "fp16")),
        ("_C::silu_and_mul_with_clamp", (h(4, 6), h(4, 12), 7.0), Work(144, 144, "fp16")),
        # aiter, aiter/ops/rmsnorm.py at 0bc300f: rmsnorm2d_fwd(input, weight, epsilon, ...); rmsnorm2d_fwd_with_add(out, input, residual_in, residual_out, weight)
        ("aiter::rmsnorm2d_fwd", (h(4, 6), h(6), 1e-6, 0), Work(96, 96 + 12, "fp16")),
        ("aiter::rmsnorm2d_fwd_with_add", (h(4, 6), h(4, 6), h(4, 6), h(4, 6), h(6), 1e-6), Work(120, 192 + 12, "fp16")),
        # quack, quack/rmsnorm.py: (x, weight, out, bias, rstd, mean, residual, residual_out, eps, is_layernorm)
        # vLLM: one token, whose norm's weight is as large as its input and no residual; residual at 6 behind scale_ub
        ("_C::rms_norm_static_fp8_quant", (q8(1, 6), h(1, 6), h(6), f(1), 1e-6), Work(36, 6 + 12 + 12 + 4, "fp16")),
        ("_C::rms_norm_dynamic_per_token_quant", (q8(1, 6), h(1, 6), h(6), f(1, 1), 1e-6, None, h(1, 6)), Work(42, 6 + 12 + 12 + 4 + 24, "fp16")),
        # aiter, aiter/ops/rmsnorm.py at 0bc300f: add_rmsnorm_quant(out, input, residual_in, residual_out, scale, weight, ...)
        ("aiter::add_rmsnorm_quant", (q8(4, 6), h(4, 6), h(4, 6), h(4, 6), f(4, 1), h(6), 1e-6), Work(168, 24 + 3 * 48 + 16 + 12, "fp16")),
        # vLLM: reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, ...): 4 slots of 9 tokens, the rest is padding
        ("_C_cache_ops::reshape_and_cache_flash", (h(9, 1, 8), h(9, 1, 8), q8(99, 16, 1, 8), q8(99, 16, 1, 8), SLOTS), Work(0, 2 * 64 + 32 + 2 * 32, "fp16")),
        ("_C_cache_ops::concat_and_cache_mla", (h(9, 8), h(9, 2), q8(9, 16, 10), SLOTS), Work(0, 64 + 16 + 32 + 40, "fp16")),
        # SGLang: store_kv_cache(k_cache, v_cache, out_loc, k, v); concat_mla_k(k, k_nope, k_rope)
        ("sgl_kernel::store_kv_cache", (h(99, 8), h(99, 8), SLOTS, h(4, 8), h(4, 8)), Work(0, 4 * 64 + 32, "fp16")),
        ("sgl_kernel::concat_mla_k", (h(4, 3, 12), h(4, 3, 8), h(4, 1, 4)), Work(0, 2 * (144 + 96 + 16), "fp16")),
        # vLLM: the result has rows that pad it
        ("_C::static_scaled_fp8_quant", (q8(17, 6), h(4, 6), f(1)), Work(48, 24 + 48 + 4, "fp16")),
        # vLLM: scaled_fp4_quant(output, input, output_scale, input_scale); libtorch_stable at 0135b6c: (input, input_scale, swizzled) and .out
        ("_C::scaled_fp4_quant", (((4, 16), BYTES), h(4, 32), ((128, 4), INT), f(1), True), Work(384, 64 + 256, "fp16")),
        ("_C::scaled_fp4_quant", (h(4, 32), f(1), True), Work(384, 64 + 256, "fp16")),
        ("_C::scaled_fp4_quant", (h(4, 32), f(1), True, ((4, 16), BYTES), ((128, 4), INT)), Work(384, 64 + 256, "fp16")),
        # vLLM, libtorch_stable: per_token_group_fp8_quant(input, output_q, output_s, group_size, ...)
        ("_C::per_token_group_fp8_quant", (h(4, 8), q8(4, 8), f(4, 2), 4), Work(96, 64 + 32 + 32, "fp16")),
        # SGLang: sgl_per_token_group_quant_8bit_v2(input, output_q, output_s, ..., fuse_silu_and_mul, masked_m)
        ("sgl_kernel::sgl_per_token_group_quant_8bit_v2", (h(4, 16), q8(4, 8), f(4, 2), 4, 1e-10, -448.0, 448.0, False, True, None), Work(9 * 32, 128 + 32 + 32, "fp16")),
        ("vllm::rocm_aiter_group_fp8_quant", (h(4, 8), 4), Work(96, 64 + 32, "fp16")),
        # FBGEMM, quantize_ops: FP8RowwiseQuantizedToFloat(input, forward, output_dtype): 5 is bfloat16
        ("fbgemm::FP8RowwiseQuantizedToFloat", (((4, 16), BYTES), True), Work(64, 64 + 128, "fp32")),
        ("fbgemm::FP8RowwiseQuantizedToFloat", (((4, 16), BYTES), True, 5), Work(64, 64 + 64, "fp16")),
        # vLLM, csrc/moe/torch_bindings.cpp at 00cf1a8: moe_align_block_size(topk_ids, num_experts, block_size, sorted_token_ids, ...): room for padding
        ("_moe_C::moe_align_block_size", (((10, 2), INT), 8, 64, ((532,), INT), ((9,), INT), ((1,), INT)), Work(None, 160, None)),
        ("_moe_C::topk_softmax", (f(10, 2), ((10, 2), INT), ((10, 2), INT), h(10, 8)), Work(160, 80 + 80 + 80 + 160, "fp16")),
        # SGLang: topk_softmax(topk_weights, topk_indices, gating_output, renormalize, ...); moe_fused_gate(input, bias, ...)
        ("sgl_kernel::topk_softmax", (f(10, 2), ((10, 2), INT), h(10, 8), True, 0.0, None), Work(160, 80 + 80 + 160, "fp16")),
        ("sgl_kernel::moe_fused_gate", (f(10, 8), f(8), 4, 2), Work(160, 320 + 32, "fp32")),
        ("sgl_kernel::moe_sum_reduce", (h(10, 2, 8), h(10, 8), 1.0), Work(320, 320 + 160, "fp16")),
        # SGLang: apply_shuffle_mul_sum(input, output, permutation, factors)
        # SGLang: top_p_renorm_probs(probs, renorm_probs, ...); top_p_sampling_from_probs(probs, output, ...)
        # torchvision, torchvision/csrc/ops/roi_align.cpp: roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned)
        ("torchvision::nms", (f(9, 4), f(9), 0.5), Work(None, 180, "fp32")),
        # vLLM: selective_scan_fwd(u, delta, A, B, C, D, z, delta_bias, ..., ssm_states): the states are no gate
        # Mamba, selective_scan_interface.py: SelectiveScanFn.forward(u, delta, A, B, C, D, z, delta_bias, ...); without z and values, None is not recorded
        # Mamba, ops/triton/ssd_combined.py at 01b717a: MambaChunkScanCombinedFn.forward(x, dt, A, B, C, chunk_size, ...)
        # The same file: MambaSplitConv1dScanCombinedFn.forward(zxbcdt, ...); selective_scan_interface.py: MambaInnerFn.forward(xz, ...)
        # torch 2.13: aten::_jagged_to_padded_dense_forward(values, offsets[], max_lengths, padding), _padded_dense_to_jagged_forward(dense, offsets[], total_L)
        ("aten::_jagged_to_padded_dense_forward", (h(50, 8), [[5]], [20], 0.0), Work(None, 800 + 1280, "fp16")),
        ("aten::_padded_dense_to_jagged_forward", (h(4, 20, 8), [[5]], 50), Work(None, 1600, "fp16")),
        # quack, quack/rmsnorm.py: _rmsnorm_bwd(x, weight, dout, rstd, dx, dw_partial, db_partial, dresidual_out, dresidual, ...); softmax.py: (x, out)
        # torchvision, torchvision/csrc/ops/roi_align.cpp: _roi_align_backward(grad, rois, scale, pooled height, width, batch, channels, ...)
        # xformers, xformers/csrc/swiglu/swiglu_op.cpp: silu_bw_fused(x1, x2, dx4)
        # vLLM and SGLang: causal_conv1d_fwd(x, weight, bias, conv_states, query_start_loc, ...) of packed sequences
        # SGLang: causal_conv1d_update(x, conv_state, weight, bias, ...)
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_rows_of_libraries(operator: str, arguments: tuple[Any, ...], expected: Work) -> None:
    assert work(operator, *arguments) == expected


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        # Rows that a tensor counts (masked_m); a result smaller than the input; no half type.
        ("sgl_kernel::sgl_per_token_group_quant_8bit_v2", (h(2, 4, 8), q8(2, 4, 8), f(2, 4, 2), 4, 1e-10, -448.0, 448.0, False, False, ((2,), INT))),
        ("_C::static_scaled_int8_quant", (((3, 6), INT8), h(4, 6), f(1))),
        ("_C::scaled_fp4_quant", (f(1),)),
    ],
)  # fmt: skip
def test_unknown_rows(operator: str, arguments: tuple[Any, ...]) -> None:
    assert work(operator, *arguments) is None


@pytest.mark.parametrize(
    ("operator", "arguments", "least", "doubtful"),
    [
        # All slots may be empty; several positions may name one row of the table; a search may end early.
        ("_C_cache_ops::reshape_and_cache_flash", (h(9, 1, 8), h(9, 1, 8), q8(99, 16, 1, 8), q8(99, 16, 1, 8), SLOTS), False, 192),
        ("_C::rotary_embedding", (((5,), LONG), h(5, 16), h(5, 8), 8, h(100, 4), True), False, 40),
        ("_moe_C::moe_align_block_size", (((10, 2), INT), 8, 64, ((532,), INT)), True, 0),
    ],
)  # fmt: skip
def test_doubt_of_rows(operator: str, arguments: tuple[Any, ...], least: bool, doubtful: float) -> None:
    known = work(operator, *arguments)
    assert known is not None
    assert (known.least, known.doubtful_bytes) == (least, doubtful)


def test_a_type_that_is_not_recorded_may_be_a_half() -> None:
    dims, types = "[[4, 16], [], []]", '["unsigned char", "Scalar", "Scalar"]'
    known = call_work(Record("fbgemm::FP8RowwiseQuantizedToFloat", dims, types)).work
    assert known == Work(64, 64 + 64, "fp16")
    assert known.least
