"""Test FLOP and bytes of operators of PyTorch's versions and of libraries, worked out by hand.

Comments name the file and version of the library that each signature was read from. vLLM is `csrc/torch_bindings.cpp` at 00256d5,
where nothing else is said, SGLang `sgl-kernel/csrc/common_extension.cc` at 40ef116.
"""

from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st
from kineto import analysed, kernel, launch, op
from test_work import BF16, BOOL, BYTES, FP8, HALF, INT, INT8, LONG, bf, f, figures, h, q8, work

from trace_analyzer.analyses.work import Record, Work, call_work
from trace_analyzer.analyses.work.masks import Mask


def i(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, LONG


EXPERTS = (h(10, 64), h(8, 96, 64), h(8, 64, 48), f(10, 2), ((10, 2), INT))
"""Ten tokens of 64, each to 2 of 8 experts with an inner width of 48 and a gate."""
WEIGHTS = 2 * (96 * 64 + 64 * 48)
"""Bytes of one of these experts."""
# A half-precision a of (4, 256) by 16 columns of 4-bit weights, whose scales are (2, 16).
A, SCALES, PACKED = h(4, 256), h(2, 16), Work(2 * 4 * 256 * 16, 2048 + 2048 + 64 + 128, "fp16")
MARLIN, GPTQ = ((16, 32), INT), ((32, 16), INT)
OF_EXPERTS = Work(2 * 20 * 64 * 144, 2 * 2 * 640 + 80 + 80 + 8 * 2 * (96 * 64 + 64 * 48), "fp16")

# vLLM, csrc/moe/torch_bindings.cpp: moe_wna16_marlin_gemm(a, c, b_q_weight, b_scales, b_zeros, g_idx, perm, workspace, sorted_token_ids,
# expert_ids, num_tokens_past_padded, topk_weights, moe_block_size, top_k, mul_topk_weights, [is_ep], b_type_id, size_m, size_n, size_k, ...):
# ten tokens of 64, each to 2 of 8 experts of 96 rows in 4 bits, with room for 20 + 8 * 15 sorted ids.
MARLIN_EXPERTS = (
    h(10, 64), None, ((8, 4, 192), INT), h(8, 2, 96), None, None, None, ((64,), INT), ((140,), INT), ((9,), INT), ((1,), INT), f(10, 2),
)  # fmt: skip
OF_MARLIN = Work(2 * 20 * 96 * 64, 1280 + 2 * 20 * 96 + 8 * (4 * 768 + 2 * 192), "fp16")

PAIR = 2 * (8 + 8)
"""FLOP of one pair of query and key of width 8: two products."""

# torch 2.13 (CPU), torch._C._jit_get_all_schemas(): aten::_flash_attention_forward(query, key, value, cum_seq_q, cum_seq_k, max_q,
# max_k, dropout_p, is_causal, return_debug_mask, *, scale, window_size_left, window_size_right, seqused_k, alibi_slopes, block_table,
# num_splits), and .quantized with q_descale, k_descale, v_descale behind return_debug_mask.
TORCH_FLASH = (None, None, 6, 6, 0.0, True, False)
# xformers 0.0.28, xformers/csrc/attention/attention.cpp: (query, key, value, attn_bias, seqstart_q, seqstart_k, max_seqlen_q, dropout_p,
# compute_logsumexp, custom_mask_type, scale, seqlen_k, window_size)
XFORMERS = (None, None, None, None, 0.0, True)
# flash-attn, hopper/flash_api.cpp at 01afd16: fwd(q, k, v, k_new, v_new, q_v, out, cu_seqlens_q, cu_seqlens_k, cu_seqlens_k_new,
# seqused_q, seqused_k, max_seqlen_q, max_seqlen_k, page_table, kv_batch_idx, leftpad_k, rotary_cos, rotary_sin, seqlens_rotary,
# q_descale, k_descale, v_descale, softmax_scale, is_causal, window_size_left, window_size_right, attention_chunk, softcap, ...)
FA3 = (*[None] * 20, 0.125, True, -1, -1)
# flash-attn, hopper/flash_attn_interface.py at 01afd16: bwd(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k,
# seqused_q, seqused_k, max_seqlen_q, max_seqlen_k, softmax_scale, is_causal, window_size_left, window_size_right, ...)
FA3_BACKWARD = (h(1, 4, 2, 8),) * 5 + (f(1, 2, 4),) + (h(1, 4, 2, 8),) * 3 + (None,) * 6 + (0.125, True, -1, -1)

SLOTS = ((4,), LONG)

OPERATORS: list[tuple[str, tuple[Any, ...], Work]] = [
    # Gradients, indices, bags, statistics and paged attention
    ("aten::adaptive_max_pool2d_backward", (h(1, 2, 3, 3), h(1, 2, 6, 6), i(1, 2, 3, 3)), Work(18, 2 * 90 + 8 * 18, "fp16")),
    # Rows 2 of 5, then elements at indices that are not recorded.
    ("aten::_index_put_impl_", (f(50, 4), None, f(3, 4), False, False), Work(0, 48, "fp32")),
    ("aten::masked_scatter_", (f(50,), ((50,), BOOL), f(9)), Work(0, 50, None)),
    ("aten::searchsorted", (f(100,), f(7), False, False), Work(None, 28 + 56, "fp32")),
    ("aten::bucketize", (f(7), f(100,), True, False), Work(None, 28 + 28, "fp32")),
    ("aten::scatter", (f(5, 4), 0, i(2, 4), f(2, 4)), Work(0, 64 + 32 + 32, "fp32")),
    # Six rows of 16 into three bags; with the last offset, two.
    ("aten::_embedding_bag", (f(100, 16), i(6), i(3), False, 0, False, None, False), Work(96, 48 + 24 + 192 + 384, "fp32")),
    ("aten::_embedding_bag", (f(100, 16), i(6), i(3), False, 0, False, None, True), Work(96, 48 + 24 + 128 + 384, "fp32")),
    ("aten::_embedding_bag_dense_backward", (f(3, 16), i(6), i(6), i(3), i(3), 100, False, 0), Work(96, 192 + 96 + 6400, "fp32")),
    ("aten::split_with_sizes_copy", (h(9, 4), [4, 5], 0), Work(0, 144, "fp16")),
    ("aten::var_mean", (f(4, 6), [1], 1, False), Work(96, 4 * (24 + 8), "fp32")),
    ("aten::aminmax", (f(4, 6), 1, False), Work(48, 4 * (24 + 8), "fp32")),
    ("aten::norm", (f(4, 6), 2), Work(48, 100, "fp32")),
    ("aten::norm", (f(4, 6), 2, [1], False), Work(48, 112, "fp32")),
    ("aten::cummax", (h(4, 6), 1), Work(24, 24 * (2 + 2 + 8), "fp16")),
    # Synchronized batch norm: statistics 4, normalize 2 and affine 2, sums 4, gradient 6 an element.
    ("aten::batch_norm_stats", (h(2, 3, 4), 1e-5), Work(96, 48 + 24, "fp16")),
    ("aten::batch_norm_elemt", (h(2, 3, 4), f(3), f(3), f(3), f(3), 1e-5), Work(96, 96 + 48, "fp16")),
    ("aten::batch_norm_backward_reduce", (h(2, 3, 4), h(2, 3, 4), f(3), f(3), f(3), True, True, True), Work(96, 96 + 72, "fp16")),
    ("aten::batch_norm_backward_elemt", (h(2, 3, 4), h(2, 3, 4), f(3), f(3), f(3), f(3), f(3), ((4,), INT)), Work(144, 144 + 60 + 16, "fp16")),
    ("aten::batch_norm_gather_stats_with_counts", (h(2, 3, 4), f(8, 3), f(8, 3), f(3), f(3), 0.1, 1e-5, f(8)), Work(144, 4 * (48 + 6 + 8), "fp32")),
    ("_C::paged_attention_v1", (h(9, 4, 8), h(9, 4, 8), h(99, 4, 1, 16, 8)), Work(None, 2 * 576, "fp16")),
    # Arguments that differ between versions
    # torch 2.2, native_functions.yaml: _scaled_mm(self, mat2, *, bias, out_dtype, scale_a, scale_b, scale_result, use_fast_accum)
    ("aten::_scaled_mm", (q8(2, 3), q8(3, 5), bf(5), 15, f(), f(), None, False), Work(60, 21 + 10 + 4 + 20, "fp8")),
    # torch 2.13: scales of blocks of one row are padded to 128 x 4, of which 64 / 32 and 6 * 64 / 32 are read
    ("aten::_scaled_mm", (q8(1, 64), q8(64, 6), q8(128, 4), q8(128, 4), None, None, 15, False), Work(768, 64 + 384 + 12 + 2 + 12, "fp8")),
    # torch 2.13: _scaled_mm_v2(self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias, out_dtype, ...)
    ("aten::_scaled_mm_v2", (q8(2, 3), q8(3, 5), [[1]], [0], [0], [[1]], [0], [0], bf(5), 15), Work(60, 21 + 20 + 10, "fp8")),
    # torch 2.13: _scaled_grouped_mm_v2(self, mat2, six of scales, offs, bias, out_dtype, ...)
    ("aten::_scaled_grouped_mm_v2", (q8(2, 4, 3), q8(2, 3, 5), [[1]], [0], [0], [[1]], [0], [0], None, None, 15), Work(240, 24 + 30 + 80, "fp8")),
    ("aten::_weight_int4pack_mm_with_scales_and_zeros", (bf(2, 16), ((4, 2), INT), 16, bf(1, 4), bf(1, 4)), Work(256, 64 + 32 + 16 + 16, "bf16")),
    # torch 2.13: _native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps)
    ("aten::_native_batch_norm_legit", (h(2, 3, 4), h(3), h(3), True, 0.1, 1e-5), Work(8 * 24, 96 + 12 + 24, "fp16")),
    ("aten::_native_batch_norm_legit", (h(2, 3, 4), h(3), h(3), f(3), f(3), False, 0.1, 1e-5), Work(4 * 24, 96 + 12 + 24, "fp16")),
    # torch 2.13: _batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps)
    ("aten::_batch_norm_with_update", (h(2, 3, 4), h(3), h(3), f(3), f(3), 0.1, 1e-5), Work(8 * 24, 96 + 12 + 24 + 24, "fp16")),
    # torch 2.13: batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask, reserve)
    ("aten::batch_norm_backward", (h(2, 3, 4), h(2, 3, 4), h(3), f(3), f(3), f(3), f(3), True, 1e-5, [True, True, True]), Work(13 * 24, 144 + 24 + 18, "fp16")),
    # torch 2.13: _masked_softmax(self, mask, dim, mask_type), _transform_bias_rescale_qkv(qkv, qkv_bias, num_heads)
    ("aten::_masked_softmax", (h(2, 4, 6, 6), ((2, 6), BOOL), 3, 1), Work(5 * 288, 1152 + 12, "fp16")),
    ("aten::_transform_bias_rescale_qkv", (h(2, 6, 24), h(24), 4), Work(288 + 96, 1152 + 48, "fp16")),
    # Inference and recommendation
    ("_C::cutlass_scaled_mm", (((4, 6), BF16), ((4, 8), FP8), ((8, 6), FP8), f(1), f(1)), Work(2 * 24 * 8, 48 + 32 + 48 + 8, "fp8")),
    ("sgl_kernel::dsv3_fused_a_gemm", (((4, 6), BF16), ((4, 8), BF16), ((6, 8), BF16)), Work(384, 2 * (24 + 32 + 48), "bf16")),
    ("_C::cutlass_scaled_fp4_mm", (((4, 6), BF16), ((4, 8), BYTES), ((6, 8), BYTES)), Work(2 * 24 * 16, 48 + 32 + 48, "fp4")),
    ("sgl_kernel::fp8_scaled_mm", (((4, 8), FP8), ((8, 6), FP8), f(4), f(6), 5), Work(384, 32 + 48 + 48 + 40, "fp8")),
    ("sgl_kernel::int8_scaled_mm", (((4, 8), INT8), ((8, 6), INT8), f(4), f(6), 6), Work(384, 32 + 48 + 96 + 40, "int8")),
    ("fbgemm::f8f8bf16_rowwise", (((4, 8), FP8), ((6, 8), FP8), f(4), f(6)), Work(384, 32 + 48 + 48 + 40, "fp8")),
    ("mslk::f8f8bf16_rowwise_batched", (((2, 4, 8), FP8), ((2, 6, 8), FP8)), Work(768, 64 + 96 + 96, "fp8")),
    ("fbgemm::bf16i4bf16_rowwise", (((4, 8), BF16), ((6, 4), INT8), ((1, 6), BF16)), Work(384, 64 + 24 + 48 + 12, "bf16")),
    # 4-bit weights: eight in an int32; 128 weights share a scale.
    ("_C::awq_gemm", (h(4, 256), ((256, 2), INT), h(2, 16), ((2, 2), INT), 8), Work(2 * 4 * 256 * 16, 2 * 1024 + 4 * 512 + 64 + 128, "fp16")),
    ("_C::gptq_marlin_gemm", (h(4, 256), None, ((16, 32), INT), None, h(2, 16)), Work(32_768, 2048 + 2048 + 64 + 128, "fp16")),
    ("vllm::outplace_fused_experts", EXPERTS, Work(2 * 20 * 64 * 144, 2 * 2 * 640 + 80 + 80 + 8 * WEIGHTS, "fp16")),
    # One token reads the weights of its 2 experts alone.
    ("vllm::inplace_fused_experts", (h(1, 64), *EXPERTS[1:3], f(1, 2), ((1, 2), INT)), Work(2 * 2 * 64 * 144, 256 + 16 + 2 * WEIGHTS, "fp16")),
    ("_C::silu_and_mul_quant", (((4, 6), FP8), h(4, 12), f(1)), Work(8 * 24, 24 + 96 + 4, "fp16")),
    ("_C::rms_norm_static_fp8_quant", (((4, 6), FP8), h(4, 6), h(6), f(1), 1e-6), Work(6 * 24, 24 + 48 + 12 + 4, "fp16")),
    ("_C::fused_add_rms_norm_static_fp8_quant", (((4, 6), FP8), h(4, 6), h(4, 6), h(6), f(1)), Work(7 * 24, 24 + 48 + 2 * 48 + 12 + 4, "fp16")),
    ("sgl_kernel::sgl_per_token_group_quant_fp8", (h(4, 6), ((4, 6), FP8), f(4)), Work(72, 48 + 24 + 16, "fp16")),
    ("_C_cache_ops::concat_and_cache_mla", (h(4, 8), h(4, 2), ((9, 16, 10), FP8), ((4,), LONG)), Work(0, 80 + 40 + 32, "fp16")),
    ("sgl_kernel::merge_state_v2", (h(4, 6), f(4), h(4, 6), f(4), h(4, 6), f(4)), Work(48, 3 * 48 + 3 * 16, "fp16")),
    ("FlashAttnFunc", (h(2, 16, 4, 8), h(2, 16, 2, 8), h(2, 16, 2, 8)), Work(None, 2 * (2 * 1024 + 2 * 512), "fp16")),
    ("FlashAttnQKVPackedFunc", (h(2, 16, 3, 4, 8),), Work(None, 2 * 4 * 1024, "fp16")),
    ("FlashAttnFuncBackward", (h(2, 16, 4, 8),), Work(None, 2 * 2048, "fp16")),
    ("vllm::unified_attention_with_output", (h(9, 4, 8), h(9, 1, 8), h(9, 1, 8), h(9, 4, 8)), Work(None, 2 * (576 + 144), "fp16")),
    ("_vllm_fa2_C::varlen_fwd", (h(9, 4, 8), h(99, 16, 1, 8), h(99, 16, 1, 8)), Work(None, 2 * 576, "fp16")),
    ("fbgemm::bounds_check_indices", (((3,), LONG), ((100,), LONG), ((13,), LONG)), Work(None, 8 * 116, None)),
    ("fbgemm::asynchronous_complete_cumsum", (((100,), INT),), Work(100, 800, None)),
    ("fbgemm::permute_2D_sparse_data", (((6,), INT), ((3, 10), INT), ((50,), LONG)), Work(None, 24 + 120 + 240 + 800, None)),
    ("fbgemm::permute_1D_sparse_data", (((6,), INT), ((3,), INT), ((50,), LONG)), Work(None, 24 + 12 + 24 + 800, None)),
    # FBGEMM, jagged_tensor_ops: jagged_to_padded_dense(values, offsets, max_lengths, padding_value), dense_to_jagged(dense, offsets, total_L)
    ("fbgemm::jagged_to_padded_dense", (h(50, 8), [[5]], [20], 0.0), Work(None, 800 + 1280, "fp16")),
    ("fbgemm::dense_to_jagged", (h(4, 20, 8), [[5]], 50), Work(None, 1600, "fp16")),
    ("fbgemm::block_bucketize_sparse_features", (((30,), INT), ((50,), LONG)), Work(None, 120 + 800, None)),
    ("torch::autograd::CppNode<SplitLookupFunction_adam_Op>", (f(10, 64),), Work(None, 2560, None)),
    ("vllm::rocm_unquantized_gemm", (h(2, 4, 8), h(6, 8), h(6)), Work(2 * 48 * 8, 2 * (64 + 48 + 48 + 6), "fp16")),
    ("vllm::w8a8_triton_block_scaled_mm_func", (((4, 8), FP8), ((6, 8), FP8), f(4, 1), f(1, 1)), Work(384, 32 + 48 + 48 + 20, "fp8")),
    # Blocks of 18 bytes hold 32 elements of 4 bits.
    ("_C::ggml_mul_mat_a8", (((6, 36), BYTES), h(4, 64), 2, 6), Work(2 * 24 * 64, 216 + 512 + 48, "int8")),
    ("_C::allspark_w8a16_gemm", (h(4, 8), ((8, 32), BYTES), h(1, 32), None, 30), Work(2 * 120 * 8, 64 + 240 + 64 + 240, "fp16")),
    ("flashinfer::rmsnorm", (h(4, 6), h(4, 6), h(6)), Work(96, 48 + 48 + 12, "fp16")),
    ("flashinfer::silu_and_mul", (h(4, 6), h(4, 12)), Work(144, 48 + 96, "fp16")),
    # Two query heads, one of keys and one of values, of 8; of each, 4 are turned; 100 positions in the cache.
    ("_C::rotary_embedding", (((5,), LONG), h(5, 16), h(5, 8), 8, h(100, 4), True), Work(3 * 60, 40 + 40 + 2 * 2 * 60, "fp16")),
    ("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", (h(5, 2, 8), h(5, 1, 8), h(5, 2, 8), h(5, 1, 8), f(100, 8), ((5,), LONG)),
     Work(360, 4 * 120 + 160 + 40, "fp16")),
    ("_C::scaled_fp4_quant", (((4, 16), BYTES), h(4, 32), ((128, 4), "int"), f(1)), Work(384, 64 + 256, "fp16")),
    ("_C_cache_ops::convert_fp8", (((4, 6), BYTES), h(4, 6), 1.0), Work(48, 24 + 48, "fp16")),
    ("_C_cache_ops::concat_mla_q", (h(4, 6), h(4, 2), h(4, 8)), Work(0, 2 * 64, "fp16")),
    ("fbgemm::quantize_fp8_per_row", (h(4, 6),), Work(72, 48 + 24, "fp16")),
    ("flash_attn_3::fwd", (h(2, 4, 2, 8), h(2, 4, 1, 8), h(2, 4, 1, 8), *FA3),
     Work(2 * 2 * 2 * 10 * 16, 2 * (2 * 128 + 2 * 64), "fp16")),
    ("xformers::efficient_attention_backward_cutlass", (h(2, 4, 2, 8), h(2, 4, 2, 8), h(2, 4, 2, 8), h(2, 4, 2, 8)), Work(None, 7 * 256, "fp16")),
    ("FlashAttnKVPackedFunc", (h(2, 4, 2, 8), h(2, 4, 2, 2, 8)), Work(None, 2 * 256 + 512, "fp16")),
    # Attention
    # A window of 2 to the left of 6 queries: 1 + 2 + 3 * 4 pairs.
    ("aten::_flash_attention_forward", (h(1, 6, 1, 8),) * 3 + (*TORCH_FLASH, 0.1, 2, 0), Work(PAIR * 15, 4 * 96, "fp16")),
    ("aten::_flash_attention_forward", (q8(1, 6, 1, 8),) * 3 + (*TORCH_FLASH, f(1, 1), f(1, 1), f(1, 1), 0.1, 2, 0), Work(PAIR * 15, 4 * 48, "fp8")),
    # Keys in a cache: how many are in use is a tensor; a block table.
    ("aten::_flash_attention_forward", (h(1, 6, 1, 8), h(1, 99, 1, 8), h(1, 99, 1, 8), *TORCH_FLASH, 0.1, None, None, ((1,), INT)), Work(None, 192, "fp16")),
    ("aten::_flash_attention_forward", (h(6, 1, 8), h(9, 16, 1, 8), h(9, 16, 1, 8), ((2,), INT), ((2,), INT), *TORCH_FLASH[2:], 0.1, None, None, None, None, ((1, 9), INT)),
     Work(None, 192, "fp16")),
    ("aten::_flash_attention_forward_no_dropout_inplace", (h(1, 6, 1, 8),) * 4 + (*TORCH_FLASH, 0.1, 2, 0), Work(PAIR * 15, 4 * 96, "fp16")),
    # One query behind 9 keys sees those of a window of 2 to its left, and reads no more.
    ("aten::_flash_attention_forward", (h(1, 1, 1, 8), h(1, 9, 1, 8), h(1, 9, 1, 8), *TORCH_FLASH, 0.1, 2, 0), Work(PAIR * 3, 2 * (8 + 2 * 24 + 8), "fp16")),
    ("aten::_scaled_dot_product_flash_attention", (q8(1, 1, 6, 8),) * 3 + (f(1, 1), f(1, 1), f(1, 1), 0.0, True, False, 0.1), Work(PAIR * 21, 4 * 48, "fp8")),
    ("aten::_cudnn_attention_backward", (h(1, 1, 6, 8),) * 5 + (f(1, 1, 6), None, None, None, None, None, 6, 6, 0.0, True),
     Work(5 * 16 * 21, 2 * 48 * (5 + 3) + 24, "fp16")),
    # torch 2.2: (query, key, value, bias, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, dropout_p, custom_mask_type, compute_log_sumexp, ...)
    ("aten::_efficient_attention_forward", (h(1, 6, 1, 8),) * 3 + (None, None, None, None, 0.0, 1, False), Work(PAIR * 21, 4 * 96, "fp16")),
    # torch 2.13: a window behind seqlen_k
    ("aten::_efficient_attention_forward", (h(1, 6, 1, 8),) * 3 + (None,) * 5 + (0.0, 1, False, 0.1, None, 2), Work(None, 4 * 96, "fp16")),
    ("xformers::efficient_attention_forward_cutlass", (h(1, 6, 1, 8),) * 3 + (*XFORMERS, 1, 0.1, None, None), Work(PAIR * 21, 4 * 96, "fp16")),
    ("xformers::efficient_attention_forward_cutlass", (h(1, 6, 1, 8),) * 3 + (*XFORMERS, 0, 0.1, None, None), Work(PAIR * 36, 4 * 96, "fp16")),
    ("xformers::efficient_attention_forward_cutlass", (h(1, 6, 1, 8),) * 3 + (*XFORMERS, 1, 0.1, None, 2), Work(None, 4 * 96, "fp16")),
    # xformers 0.0.16, ops/fmha/cutlass.py at 00afc12: a flag `causal` stands where the type of the mask stands later
    ("xformers::efficient_attention_forward_cutlass", (h(1, 6, 1, 8),) * 3 + (*XFORMERS, True, 0.1), Work(PAIR * 21, 4 * 96, "fp16")),
    # Two sequences in one row: lengths are not recorded.
    ("xformers::efficient_attention_forward_cutlass", (h(1, 6, 1, 8),) * 3 + (None, ((3,), INT), ((3,), INT), 4, 0.0, True, 1, 0.1, None, None), Work(None, 4 * 96, "fp16")),
    # xformers 0.0.26, ops/fmha/flash.py: flash_fwd(query, key, value, cu_seqlens_q, cu_seqlens_k, seqused_k, ...)
    ("xformers_flash::flash_fwd", (h(6, 1, 8), h(99, 1, 8), h(99, 1, 8), ((3,), INT), ((3,), INT), ((2,), INT), 4, 50), Work(None, 192, "fp16")),
    ("xformers_flash::flash_fwd", (h(6, 1, 8),) * 3 + (((3,), INT), ((3,), INT), None, 4, 4), Work(None, 4 * 96, "fp16")),
    # xformers 0.0.26, ops/fmha/flash.py: flash_bwd(dout, query, key, value, out, softmax_lse, dq, dk, dv, ...)
    ("xformers_flash::flash_bwd", (h(6, 1, 8),) * 4, Work(None, 7 * 96, "fp16")),
    ("flash_attn_3::_flash_attn_forward", (h(1, 4, 2, 8),) * 3 + FA3, Work(2 * PAIR * 10, 4 * 128, "fp16")),
    ("flash_attn_3::fwd", (h(1, 4, 2, 8),) * 3 + (*FA3, 2, 0.0), Work(None, 4 * 128, "fp16")),
    ("flash_attn_3::fwd", (h(1, 4, 2, 8),) * 3 + (*FA3, 0, 0.0), Work(2 * PAIR * 10, 4 * 128, "fp16")),
    ("flash_attn_3::bwd", FA3_BACKWARD, Work(5 * 2 * 16 * 10, 8 * 128 + 32, "fp16")),
    # hopper/flash_attn_interface.py at 01afd16: _flash_attn_backward(dout, q, k, v, out, softmax_lse, cu_seqlens_q, ..., max_seqlen_k, dq, dk, dv, scale, causal, ...)
    ("flash_attn_3::_flash_attn_backward", (*FA3_BACKWARD[:6], *[None] * 6, *FA3_BACKWARD[6:9], 0.125, True, -1, -1), Work(5 * 2 * 16 * 10, 8 * 128 + 32, "fp16")),
    # flash-attn 2.7 beta, flash_attn/flash_attn_interface.py at 0053002: namespace flashattn, and a block table behind return_softmax
    ("flashattn::_flash_attn_forward", (h(1, 4, 2, 8),) * 3 + (0.0, 0.125, True, -1, -1, 0.0, None, False), Work(2 * PAIR * 10, 4 * 128, "fp16")),
    ("flash_attn::_flash_attn_varlen_forward", (h(4, 2, 8), h(9, 16, 2, 8), h(9, 16, 2, 8), ((2,), INT), ((2,), INT), 4, 99, 0.0, 0.125, True, -1, -1, 0.0, None, False, ((1, 9), INT)),
     Work(None, 256, "fp16")),
    # aiter, aiter/ops/mha.py at 00472f7: mha_varlen_fwd(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, ...)
    ("aiter::mha_varlen_fwd", (h(4, 2, 8),) * 3 + (((2,), INT), ((2,), INT), 4, 4, 0.0, 0.125, False, True, -1, -1), Work(None, 4 * 128, "fp16")),
    # vLLM, vllm/attention/layer.py at 004a5da: unified_mla_attention(q, kv_c_normed, k_pe, layer_name); its result is narrower
    ("vllm::unified_mla_attention", (h(9, 4, 192), h(9, 512), h(9, 1, 64)), Work(None, 2 * 9 * 4 * 192, "fp16")),
    ("vllm::unified_mla_attention_with_output", (h(9, 4, 192), h(9, 512), h(9, 1, 64), h(9, 512)), Work(None, 2 * (9 * 4 * 192 + 9 * 512), "fp16")),
    # vLLM, csrc/torch_bindings.cpp at 00256d5: (out, lse, q_nope, q_pe, cache, ...); SGLang, sgl-kernel/csrc/common_extension.cc at 40ef116: no lse
    ("_C::sm100_cutlass_mla_decode", (h(2, 4, 8), f(2, 4), h(2, 4, 8), h(2, 4, 2), h(99, 16, 10)), Work(None, 2 * (64 + 64 + 16), "fp16")),
    ("sgl_kernel::cutlass_mla_decode", (h(2, 4, 8), h(2, 4, 8), h(2, 4, 2), h(99, 16, 10)), Work(None, 2 * (64 + 64 + 16), "fp16")),
    # flash-attn, hopper/flash_api.cpp: values of another width, as in latent attention, make a narrower result
    ("flash_attn_3::fwd", (h(6, 1, 24), h(9, 16, 1, 24), h(9, 16, 1, 8), *[None] * 11, ((1, 9), INT)), Work(None, 2 * (6 * 24 + 6 * 8), "fp16")),
    # flash-attn, hopper/flash_attn_interface.py and flash_attn/cute/interface.py: FlashAttnVarlenFunc(q, k, v, cu_seqlens_q, cu_seqlens_k,
    # seqused_q, seqused_k, page_table or max_seqlen_q ...): lengths in use or keys in blocks mean a cache
    ("FlashAttnVarlenFunc", (h(6, 1, 8), h(9, 1, 8), h(9, 1, 8), ((2,), INT), ((2,), INT), None, None, 6, 9), Work(None, 2 * (48 + 72 + 72 + 48), "fp16")),
    ("FlashAttnVarlenFunc", (h(6, 1, 8), h(9, 1, 8), h(9, 1, 8), ((2,), INT), ((2,), INT), None, ((1,), INT), 6, 9), Work(None, 2 * 96, "fp16")),
    ("FlashAttnVarlenFunc", (h(6, 1, 8), h(9, 16, 1, 8), h(9, 16, 1, 8), ((2,), INT), None, None, ((1,), INT), ((1, 9), INT)), Work(None, 2 * 96, "fp16")),
    # Transformer Engine: between what differs by version, query, key and value
    ("FusedAttnFunc", (True, 4, 4, ((2,), INT), ((2,), INT), h(1, 4, 2, 8), h(1, 4, 1, 8), h(1, 4, 1, 8), None), Work(None, 2 * (64 + 32 + 32 + 64), "fp16")),
    # Products
    # vLLM 0.5, csrc/torch_bindings.cpp: (a, b_q_weight, b_scales, b_zeros, g_idx, perm, workspace, ...)
    ("_C::gptq_marlin_gemm", (A, MARLIN, SCALES, ((0, 0), INT), ((0,), INT), ((0,), INT), ((64,), INT), 4, 4, 16, 256), PACKED),
    # vLLM 0.11, csrc/torch_bindings.cpp: (a, c, b_q_weight, b_bias, b_scales, global_scale, b_zeros, ...); c is the result
    ("_C::gptq_marlin_gemm", (A, h(4, 16), MARLIN, h(16), SCALES, None, None), PACKED),
    # vLLM, csrc/torch_bindings.cpp at 00256d5: marlin_gemm(a, c, b_q_weight, b_bias, b_scales, a_scales, global_scale, ...)
    ("_C::marlin_gemm", (q8(4, 256), None, MARLIN, None, SCALES, f(4, 1), None), Work(2 * 4 * 256 * 16, 1024 + 2048 + 64 + 128, "fp8")),
    # vLLM 0.4: marlin_gemm(a, b_q_weight, b_scales, workspace, size_m, size_n, size_k)
    ("_C::marlin_gemm", (A, MARLIN, SCALES, ((64,), INT), 4, 16, 256), PACKED),
    # SGLang, sgl-kernel/csrc/common_extension.cc at 40ef116: (a, c, b_q_weight, b_scales, global_scale, ...)
    ("sgl_kernel::gptq_marlin_gemm", (A, None, MARLIN, SCALES, None, None), PACKED),
    # vLLM, csrc/torch_bindings.cpp at 00256d5: gptq_gemm(a, b_q_weight, b_gptq_qzeros, b_gptq_scales, b_g_idx, ...): zeros before scales
    ("_C::gptq_gemm", (A, GPTQ, ((2, 2), INT), SCALES, ((256,), INT), True, False, 4), PACKED),
    # The same with 8 bits a weight: four in a word.
    ("_C::gptq_gemm", (A, ((64, 16), INT), ((2, 4), INT), SCALES, ((256,), INT), True, False, 8), Work(PACKED.flop, 2048 + 4096 + 64 + 128, "fp16")),
    # machete_mm(A, B, b_type, out_type, group_scales, group_zeros, group_size, channel_scales, token_scales, schedule): without groups
    # the scales of tokens, (m, 1), are the first of two dimensions.
    ("_C::machete_mm", (A, GPTQ, 1, 5, None, None, None, None, f(4, 1), None), Work(PACKED.flop, 2048 + 2048 + 128, "fp16")),
    # vLLM, csrc/libtorch_stable/torch_bindings.cpp at 0135b6c: cutlass_w4a8_mm(A, B, group_scales, group_size, channel_scales, ...)
    ("_C::cutlass_w4a8_mm", (q8(4, 256), GPTQ, q8(2, 16), 128, f(16, 1), f(4, 1), 15, None), Work(PACKED.flop, 1024 + 2048 + 128, "fp8")),
    # The same file: cutlass_scaled_fp4_mm(out, a, b, block_scale_a, block_scale_b, alpha); one row of 4 needs 2 of 128 x 4 scales.
    ("_C::cutlass_scaled_fp4_mm", (bf(1, 6), ((1, 16), BYTES), ((6, 16), BYTES), q8(128, 4), q8(128, 4), f(1)), Work(4 * 6 * 16, 12 + 16 + 96 + 2 + 12, "fp4")),
    # vLLM, vllm/utils/flashinfer.py: flashinfer_mm_fp4(A, B, A_scale, B_scale, g_scale, dtype, use_8x4_sf_layout, backend)
    ("vllm::flashinfer_mm_fp4", (((1, 16), BYTES), ((16, 6), BYTES), q8(128, 4), q8(4, 128), f(1), 15, False), Work(4 * 6 * 16, 12 + 16 + 96 + 2 + 12, "fp4")),
    # MSLK: f4f4bf16(XQ, WQ, x_scale, w_scale, output, global_scale, mxfp4_block_size)
    ("mslk::f4f4bf16", (((2, 16), BYTES), ((6, 16), BYTES)), Work(4 * 12 * 16, 24 + 32 + 96, "fp4")),
    # MSLK and FBGEMM: f8f8bf16_rowwise(XQ, WQ, x_scale, w_scale, bias, use_fast_accum, output): written once
    ("fbgemm::f8f8bf16_rowwise", (q8(4, 8), q8(6, 8), f(4), f(6), bf(6), True, bf(4, 6)), Work(384, 32 + 48 + 48 + 40 + 12, "fp8")),
    ("fbgemm::bf16fp8bf16_fast_gemv", (bf(1, 8), q8(6, 8), f(1)), Work(96, 16 + 48 + 12 + 4, "bf16")),
    ("fbgemm::bf16i4bf16_rowwise_batched", (bf(2, 4, 8), ((2, 6, 4), INT8), bf(1, 6), bf(1, 6)), Work(768, 128 + 48 + 96 + 24, "bf16")),
    # SGLang, fp8_kernel.py: deep_gemm_fp8_fp8_bf16_nt(A, As, B, Bs, C)
    ("sglang::deep_gemm_fp8_fp8_bf16_nt", (q8(4, 8), f(4, 1), q8(6, 8), f(1, 1), bf(4, 6)), Work(384, 32 + 48 + 48 + 20, "fp8")),
    # vLLM, quantization/utils/deepgemm: w8a8_block_fp8_matmul_deepgemm(A, B, As, Bs, block_size, output_dtype)
    ("vllm::w8a8_block_fp8_matmul_deepgemm", (q8(4, 8), q8(6, 8), f(4, 1), f(1, 1)), Work(384, 32 + 48 + 48 + 20, "fp8")),
    # SGLang, common_extension.cc: bmm_fp8(A, B, D, A_scale, B_scale, workspace_buffer, cublas_handle)
    ("sgl_kernel::bmm_fp8", (q8(2, 4, 8), q8(2, 8, 6), bf(2, 4, 6), f(1), f(1), ((10**6,), BYTES), 0), Work(768, 64 + 96 + 96, "fp8")),
    ("vllm::bmm_fp8", (q8(2, 4, 8), q8(2, 8, 6), f(1), f(1), 15), Work(768, 64 + 96 + 96, "fp8")),
    # SGLang, common_extension.cc: qserve_w4a8_per_chn_gemm(in_feats, kernel, wscales, ascales, w_szs, a_ssums, out_feats)
    ("sgl_kernel::qserve_w4a8_per_chn_gemm", (((4, 8), INT8), ((6, 4), INT8), h(6), h(4), h(6), h(4), h(4, 6)), Work(384, 32 + 24 + 40 + 48, "int8")),
    # aiter: gemm_a16w16(A, B, bias, otype, ...), as recorded with an otype of 15, bfloat16
    ("aiter::gemm_a16w16", (bf(4, 8), bf(6, 8), None, 15), Work(384, 2 * (32 + 48 + 24), "bf16")),
    # SGLang, fused_moe.py: booleans at 25 (inplace: filter_expert) and 22, 26 (outplace: no_combine, filter_expert)
    ("sglang::inplace_fused_experts", (*EXPERTS, *[None] * 20, False, None, True), OF_EXPERTS),
    ("sglang::outplace_fused_experts", (*EXPERTS, *[None] * 17, False, None, None, None, False, None, True), OF_EXPERTS),
    # vLLM, vllm/_aiter_ops.py at 0002bde: (hidden, w1, w2, topk_weight, topk_ids, expert_mask, ...)
    ("vllm::rocm_aiter_fused_moe", EXPERTS, OF_EXPERTS),
    # 8-bit weights may meet 8-bit activations, which are twice as fast.
    ("vllm::outplace_fused_experts", (h(1, 64), ((8, 96, 64), INT8), ((8, 64, 48), INT8), f(1, 2), ((1, 2), INT)), Work(2 * 2 * 64 * 144, 256 + 16 + 2 * 9216, "int8")),
    # 4-bit weights, two in a byte, are widened.
    ("vllm::outplace_fused_experts", (h(1, 64), ((8, 96, 32), BYTES), ((8, 64, 24), BYTES), f(1, 2), ((1, 2), INT)), Work(2 * 2 * 64 * 144, 256 + 16 + 9216, "fp16")),
    # aiter, aiter/fused_moe.py: fused_moe_(hidden_states, w1, w2, topk_weight, topk_ids, expert_mask, ..., num_local_tokens at 14, hidden_pad at 17)
    ("aiter::fused_moe_", (*EXPERTS, None, 0, 0, False, None, None, None, None, -1, None, 0, 15, 0, 0), OF_EXPERTS),
    # aiter, aiter/ops/gemm_op_a8w8.py at 0006ebd: gemm_a8w8_ck(XQ, WQ, x_scale, w_scale, Out, bias, splitK)
    ("aiter::gemm_a8w8_ck", (q8(4, 8), q8(6, 8), f(4, 1), f(1, 6), bf(4, 6)), Work(384, 32 + 48 + 48 + 40, "fp8")),
    # torchao, torchao/ops.py: quant_llm_linear(EXPONENT, MANTISSA, in_feats, weights, scales, splitK): 6 bits a weight
    ("torchao::quant_llm_linear", (3, 2, h(4, 64), ((16, 48), BYTES), h(16), 1), Work(2 * 4 * 64 * 16, 512 + 768 + 32 + 128, "fp16")),
    ("_moe_C::moe_wna16_marlin_gemm", (*MARLIN_EXPERTS, 16, 2, True, False, 4, 10, 96, 64, True), OF_MARLIN),
    ("_moe_C::moe_wna16_marlin_gemm", (*MARLIN_EXPERTS, 16, 2, True, 4, 10, 96, 64, True), OF_MARLIN),
    # quack, quack/gemm_interface.py with gemm_gated_out: gemm_out(A, B, out, bias, ...), gemm_add_out(A, B, C, out, ...), gemm_act_out(A, B, preact_out,
    # postact_out, C, bias, ...), gemm_gated_out(A, B (k, 2 n), preact_out, postact_out, ...); before gemm_out: gemm(A, B)
    ("quack::gemm_out", (bf(4, 8), bf(8, 6), bf(4, 6), None, 1.0), Work(384, 2 * (32 + 48 + 24), "bf16")),
    ("quack::gemm", (bf(2, 4, 8), bf(2, 8, 6)), Work(768, 4 * (32 + 48 + 24), "bf16")),
    ("quack::gemm_add_out", (bf(4, 8), bf(8, 6), bf(4, 6), bf(4, 6), 1.0, 1.0), Work(384, 2 * (32 + 48 + 48), "bf16")),
    ("quack::gemm_act_out", (bf(4, 8), bf(8, 6), None, bf(4, 6), None, bf(6), "relu"), Work(384, 2 * (32 + 48 + 24 + 6), "bf16")),
    ("quack::gemm_gated_out", (bf(4, 8), bf(8, 6), bf(4, 6), bf(4, 3), None, None, "swiglu"), Work(384, 2 * (32 + 48 + 24 + 12), "bf16")),
    # Norms, caches, quantization, routing and scans
    # vLLM, csrc/libtorch_stable/torch_bindings.cpp at 0135b6c: rms_norm_weightless(result, input, epsilon)
    ("_C::rms_norm_weightless", (h(4, 6), h(4, 6), 1e-6), Work(72, 96, "fp16")),
    ("_C::fused_add_rms_norm_weightless", (h(4, 6), h(4, 6), 1e-6), Work(96, 192, "fp16")),
    ("_C::silu_and_mul_with_clamp", (h(4, 6), h(4, 12), 7.0), Work(144, 144, "fp16")),
    # aiter, aiter/ops/rmsnorm.py at 0bc300f: rmsnorm2d_fwd(input, weight, epsilon, ...); rmsnorm2d_fwd_with_add(out, input, residual_in, residual_out, weight)
    ("aiter::rmsnorm2d_fwd", (h(4, 6), h(6), 1e-6, 0), Work(96, 96 + 12, "fp16")),
    ("aiter::rmsnorm2d_fwd_with_add", (h(4, 6), h(4, 6), h(4, 6), h(4, 6), h(6), 1e-6), Work(120, 192 + 12, "fp16")),
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
    ("torchvision::nms", (f(9, 4), f(9), 0.5), Work(None, 180, "fp32")),
    # torch 2.13: aten::_jagged_to_padded_dense_forward(values, offsets[], max_lengths, padding), _padded_dense_to_jagged_forward(dense, offsets[], total_L)
    ("aten::_jagged_to_padded_dense_forward", (h(50, 8), [[5]], [20], 0.0), Work(None, 800 + 1280, "fp16")),
    ("aten::_padded_dense_to_jagged_forward", (h(4, 20, 8), [[5]], 50), Work(None, 1600, "fp16")),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "arguments", "expected"), OPERATORS, ids=[row[0] for row in OPERATORS])
def test_operators(operator: str, arguments: tuple[Any, ...], expected: Work) -> None:
    assert figures(work(operator, *arguments)) == figures(expected)


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        # Experts on several devices: the map has more than are here; no such width, empty, without ids.
        ("vllm::outplace_fused_experts", (*EXPERTS, ((16,), INT))),
        ("vllm::outplace_fused_experts", (h(10, 64), h(8, 96, 64), h(8, 32, 48), f(10, 2), ((10, 2), INT))),
        ("vllm::outplace_fused_experts", (h(10, 64), h(8, 96, 0), h(8, 64, 48), f(10, 2), ((10, 2), INT))),
        ("vllm::outplace_fused_experts", EXPERTS[:3]),
        ("aten::_index_put_impl_", (f(50, 4), None, ((), HALF), False, False)),
        ("aten::_embedding_bag_dense_backward", (f(3, 16), i(6), i(6), i(3), i(3), 2**60)),
        # No damage, but shapes that the formula does not know: three dimensions, keys in blocks, unpacked heads.
        ("aten::scaled_dot_product_attention", (h(3, 5, 8), h(3, 5, 8), h(3, 5, 8), None, 0.0, False)),
        ("FlashAttnQKVPackedFunc", (h(1, 4, 8, 8),)),
        ("FlashAttnKVPackedFunc", (h(1, 4, 2, 8), h(1, 4, 8, 8))),
        ("aiter::mha_batch_prefill", (h(6, 1, 8), h(99, 1, 8), h(99, 1, 8), ((2,), INT), ((2,), INT), ((6,), INT), 6, 6, 0.0, 0.1, 0.0, False, True, 2, 0)),
        ("FusedAttnFunc", (True, h(1, 4, 2, 8), ((1, 4, 2, 8), BOOL), h(1, 4, 2, 8))),
        # Packed into more than 8 bits a weight: not this operator's layout.
        ("_C::gptq_gemm", (A, ((256, 16), INT), ((2, 2), INT), SCALES)),
        ("_C::machete_mm", (A, h(256, 16), 1)),
        ("sglang::inplace_fused_experts", (*EXPERTS, *[None] * 20, True)),
        ("sglang::outplace_fused_experts", (*EXPERTS, *[None] * 17, True)),
        ("vllm::rocm_aiter_fused_moe", (*EXPERTS, ((17,), INT))),
        ("aiter::fused_moe_", (*EXPERTS, None, 0, 0, False, None, None, None, None, -1, ((1,), INT))),
        # Experts of other devices: a flag, or room for more of them than are here.
        ("_moe_C::moe_wna16_marlin_gemm", (*MARLIN_EXPERTS, 16, 2, True, True, 4, 10, 96, 64, True)),
        ("_moe_C::moe_wna16_marlin_gemm", (*MARLIN_EXPERTS, 8, 2, True, 4, 10, 96, 64, True)),
        ("vllm::rocm_aiter_fused_moe", (*EXPERTS, *[None] * 10, 16, 0)),
        # Rows of several products, by offsets that are not recorded.
        ("quack::gemm_out", (bf(10, 8), bf(2, 8, 6), bf(10, 6), None, 1.0, None, ((3,), INT))),
        ("quack::gemm_out", (bf(10, 8), bf(8, 6), bf(2, 10, 6), None, 1.0, None, None, ((3,), INT))),
        # Rows that a tensor counts (masked_m); a result smaller than the input; no half type.
        ("sgl_kernel::sgl_per_token_group_quant_8bit_v2", (h(2, 4, 8), q8(2, 4, 8), f(2, 4, 2), 4, 1e-10, -448.0, 448.0, False, False, ((2,), INT))),
        ("_C::static_scaled_int8_quant", (((3, 6), INT8), h(4, 6), f(1))),
        ("_C::scaled_fp4_quant", (f(1),)),
    ],
)  # fmt: skip
def test_what_is_unknown(operator: str, arguments: tuple[Any, ...]) -> None:
    assert work(operator, *arguments) is None


@pytest.mark.parametrize(
    ("operator", "arguments", "least", "doubtful"),
    [
        ("vllm::outplace_fused_experts", EXPERTS, False, 6 * WEIGHTS),
        ("aten::_embedding_bag", (f(100, 16), i(6), i(3), False, 0, False, None, False), False, 384),
        # All 6 indices may name one row.
        ("aten::embedding", (f(100, 16), i(6)), False, 384),
        ("aten::index_select", (f(100, 16), 0, i(6)), False, 384),
        ("aten::_index_put_impl_", (f(50, 4), None, f(3, 4), False, False), True, 0),
        # All slots may be empty; several positions may name one row of the table; a search may end early.
        ("_C_cache_ops::reshape_and_cache_flash", (h(9, 1, 8), h(9, 1, 8), q8(99, 16, 1, 8), q8(99, 16, 1, 8), SLOTS), False, 192),
        ("_C::rotary_embedding", (((5,), LONG), h(5, 16), h(5, 8), 8, h(100, 4), True), False, 40),
        ("_moe_C::moe_align_block_size", (((10, 2), INT), 8, 64, ((532,), INT)), True, 0),
    ],
)  # fmt: skip
def test_what_is_least_and_what_is_doubted_is_told(
    operator: str, arguments: tuple[Any, ...], least: bool, doubtful: float
) -> None:
    actual = work(operator, *arguments)
    assert (actual.least, actual.doubtful_bytes) == (least, doubtful)


def test_lists_that_amp_unscales_are_read_and_written() -> None:
    actual = work("aten::_amp_foreach_non_finite_check_and_unscale_", [[3, 4], [8]], f(1), f(1), list_element_bytes=4.0)
    assert figures(actual) == (40, 160, "fp32")


def test_rows_behind_the_last_offset_are_doubted() -> None:
    cut_rows = work("aten::_grouped_mm", h(4, 3), h(2, 3, 5), ((2,), INT))
    assert (cut_rows.least, cut_rows.doubtful_bytes) == (True, cut_rows.moved_bytes)
    cut_sum = work("aten::_grouped_mm", h(4, 6), h(6, 5), ((2,), INT))
    assert (cut_sum.least, cut_sum.doubtful_bytes) == (True, 2 * (24 + 30) + 8)


def test_what_shapes_alone_do_not_tell_is_less_or_unknown() -> None:
    """Keys in a cache, a part of a head that is not turned, experts' rows that may be another device's."""
    paged = list(FA3)
    paged[8] = ((2, 9), INT)
    cached = work("flash_attn_3::fwd", h(2, 1, 2, 8), h(99, 16, 1, 8), h(99, 16, 1, 8), *paged)
    assert figures(cached) == (None, 2 * 64, "fp16")
    assert cached.least
    assert work("ApplyRotaryEmb", h(2, 5, 4, 8), h(100, 2), h(100, 2)) is None
    assert work("_LayerNormMLP", h(4, 6), h(16, 6), h(16, 6), h(6, 8)) is None
    assert work("_C::cutlass_moe_mm", h(8, 6), h(8, 4), h(2, 4, 6)) is None


def test_a_lookup_reads_a_row_of_mean_width_per_index_and_writes_its_bags() -> None:
    """Three tables of half precision and 30 indices into them in 4 bags each."""
    known = work(
        "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function", f(0), h(9_000), h(0), h(0, 0), ((3,), INT), ((3,), LONG),
        ((4,), INT), 120, 64, ((4,), LONG), 20, ((30,), LONG), ((13,), LONG),
    )  # fmt: skip
    assert figures(known) == (None, 8 * 43 + 30 * 40 * 2 + 4 * 120 * 4, None)
    assert (known.least, known.doubtful_bytes) == (True, 2400 + 1920), (
        "a row that several indices name may be read once"
    )


@pytest.mark.parametrize(
    ("before", "moved"),
    [
        # FBGEMM, codegen/training/pt2/embedding_split_host_pt2_autograd_template.cpp: placeholder, host_weights, dev_weights, uvm, cache, placements, weights_offsets, D_offsets, total_D
        ((f(0), h(0), h(9_000), h(0), h(0, 0), ((3,), INT), ((3,), LONG), ((4,), INT)), 8 * 43 + 2400 + 1920),
        # FBGEMM 1.1: placeholder, list of weights, D_offsets, total_D: the list's type is not recorded
        ((f(0), [[0], [9_000]], ((4,), INT)), 8 * 43),
    ],
)
def test_lookups_of_later_versions(before: tuple[Any, ...], moved: float) -> None:
    rest = (120, 64, ((4,), LONG), 20, ((30,), LONG), ((13,), LONG), 0)
    assert figures(work("fbgemm::split_embedding_codegen_lookup_adam_function_pt2", *before, *rest)) == (
        None,
        moved,
        None,
    )


def test_a_lookup_without_pooling_returns_rows() -> None:
    before = (f(0), h(9_000), h(0), h(0, 0), ((3,), INT), ((3,), LONG), ((4,), INT), 120, 64, ((4,), LONG), 20)
    known = work("fbgemm::split_embedding_codegen_lookup_sgd_function", *before, ((30,), LONG), ((13,), LONG), 2)
    assert figures(known) == (None, 8 * 43 + 2400, None)


def test_a_lookup_of_unknown_width_reads_its_indices_at_least() -> None:
    record = Record(
        "fbgemm::split_embedding_codegen_lookup_sgd_function",
        "[[0], [9000], [0], [0, 0], [3], [3], [4], [], [], [4], [], [30], [13]]",
        '["float", "c10::Half", "c10::Half", "c10::Half", "int", "long", "int", "Scalar", "Scalar", "long", "Scalar", "long", "long"]',
    )
    assert figures(call_work(record).work) == (None, 8 * 43, None)


def test_work_that_is_known_in_part_says_nothing_of_the_roof() -> None:
    """Check that a lookup of unknown widths, which moves far more than its indices, has no known share of the roof."""
    lookups = op("fbgemm::bounds_check_indices", 0, 20, **{"Input Dims": [[10**8]], "Input type": ["float"]})
    backward = "torch::autograd::CppNode<SplitLookupFunction_adam_Op>"
    update = op(backward, 30, 20, **{"Input Dims": [[10**6, 64]], "Input type": ["float"]})
    report = analysed(
        lookups, launch(5, 5, 1), kernel("bounds_check_indices_kernel", 20, 400, correlation=1),
        update, launch(35, 5, 2), kernel("split_embedding_backward_codegen_adam_unweighted_kernel_cta_per_row_1", 500, 4_000, correlation=2),
    )  # fmt: skip
    known = report.tables["activities"].select("work_from", pl.col("moved_bytes").is_not_null()).rows()
    assert known == [("call", True), ("at-least", True)]
    bounds = report.tables["bounds"].select(pl.col("known_ns").sum()).item()
    assert bounds == 400_000


def test_the_backward_pass_of_attention_reads_what_its_forward_call_did() -> None:
    shapes = "[[2, 16, 4, 8], [2, 16, 2, 8], [2, 16, 2, 8]]"
    record = Record("FlashAttnFuncBackward", "[[2, 16, 4, 8]]", '["c10::Half"]', outer="forward", outer_dims=shapes)
    assert figures(call_work(record).work) == (None, 2 * (4 * 1024 + 4 * 512), "fp16")


def test_doubt_of_attention() -> None:
    """Of 9 keys and one query, a window that is not recorded may leave 8 unread; tokens of vLLM's step may be padding."""
    known = work("FlashAttnFunc", h(1, 1, 1, 8), h(1, 9, 1, 8), h(1, 9, 1, 8))
    assert known.doubtful_bytes == 2 * 2 * 8 * 8
    step = work("vllm::unified_attention_with_output", bf(9, 4, 8), bf(9, 1, 8), bf(9, 1, 8), bf(9, 4, 8))
    assert step.doubtful_bytes == step.moved_bytes


@given(
    st.integers(0, 9), st.integers(0, 9), st.none() | st.integers(0, 9), st.none() | st.integers(0, 9), st.booleans()
)
def test_keys_seen(queries: int, keys: int, left: int | None, right: int | None, end: bool) -> None:
    offset = keys - queries if end else 0
    seen = {
        key
        for query in range(queries)
        for key in range(keys)
        if (left is None or key >= query + offset - left) and (right is None or key <= query + offset + right)
    }
    assert Mask(left, right, from_end=end).keys_seen(queries, keys) == len(seen)


def test_a_type_that_is_not_recorded_may_be_a_half() -> None:
    dims, types = "[[4, 16], [], []]", '["unsigned char", "Scalar", "Scalar"]'
    known = call_work(Record("fbgemm::FP8RowwiseQuantizedToFloat", dims, types)).work
    assert figures(known) == (64, 64 + 64, "fp16")
    assert known.least
