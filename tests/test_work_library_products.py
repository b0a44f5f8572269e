"""Test FLOP and bytes of matrix products of libraries, worked out by hand.

Comments name the file and version of the library that each signature was read from.
"""

from typing import Any

import pytest
from test_work import BYTES, INT, INT8, bf, f, h, q8, work

from trace_analyzer.analyses.work import Work

# A half-precision a of (4, 256) by 16 columns of 4-bit weights, whose scales are (2, 16).
A, SCALES, PACKED = h(4, 256), h(2, 16), Work(2 * 4 * 256 * 16, 2048 + 2048 + 64 + 128, "fp16")
MARLIN, GPTQ = ((16, 32), INT), ((32, 16), INT)
EXPERTS = (h(10, 64), h(8, 96, 64), h(8, 64, 48), f(10, 2), ((10, 2), INT))
"""Ten tokens of 64, each to 2 of 8 experts with an inner width of 48 and a gate."""
OF_EXPERTS = Work(2 * 20 * 64 * 144, 2 * 2 * 640 + 80 + 80 + 8 * 2 * (96 * 64 + 64 * 48), "fp16")

# vLLM, csrc/moe/torch_bindings.cpp: moe_wna16_marlin_gemm(a, c, b_q_weight, b_scales, b_zeros, g_idx, perm, workspace, sorted_token_ids,
# expert_ids, num_tokens_past_padded, topk_weights, moe_block_size, top_k, mul_topk_weights, [is_ep], b_type_id, size_m, size_n, size_k, ...):
# ten tokens of 64, each to 2 of 8 experts of 96 rows in 4 bits, with room for 20 + 8 * 15 sorted ids.
MARLIN_EXPERTS = (
    h(10, 64), None, ((8, 4, 192), INT), h(8, 2, 96), None, None, None, ((64,), INT), ((140,), INT), ((9,), INT), ((1,), INT), f(10, 2),
)  # fmt: skip
OF_MARLIN = Work(2 * 20 * 96 * 64, 1280 + 2 * 20 * 96 + 8 * (4 * 768 + 2 * 192), "fp16")


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
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
        # vLLM, csrc/rocm/torch_bindings.cpp at 001cd45: wvSplitKQ(in_a, in_b, in_bias, out_c, scale_a, scale_b, CuCount)
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
        # xformers, xformers/csrc/swiglu/swiglu_op.cpp: dual_gemm_silu_identity_mul(x, w1, b1, w2, b2), gemm_fused_operand_sum(a, b), before (a, b, out_mm, out_sum)
        ("xformers::dual_gemm_silu_identity_mul", (h(4, 8), h(6, 8), None, h(6, 8), None), Work(768, 2 * (32 + 96 + 72), "fp16")),
        ("xformers::gemm_fused_operand_sum", (h(6, 4), h(4, 8)), Work(384, 2 * (24 + 32 + 48 + 6), "fp16")),
        ("xformers::gemm_fused_operand_sum", (h(6, 4), h(4, 8), h(6, 8), h(6)), Work(384, 2 * (24 + 32 + 48 + 6), "fp16")),
        # quack, quack/gemm_interface.py with gemm_gated_out: gemm_out(A, B, out, bias, ...), gemm_add_out(A, B, C, out, ...), gemm_act_out(A, B, preact_out,
        # postact_out, C, bias, ...), gemm_gated_out(A, B (k, 2 n), preact_out, postact_out, ...); before gemm_out: gemm(A, B)
        ("quack::gemm_out", (bf(4, 8), bf(8, 6), bf(4, 6), None, 1.0), Work(384, 2 * (32 + 48 + 24), "bf16")),
        ("quack::gemm", (bf(2, 4, 8), bf(2, 8, 6)), Work(768, 4 * (32 + 48 + 24), "bf16")),
        ("quack::gemm_add_out", (bf(4, 8), bf(8, 6), bf(4, 6), bf(4, 6), 1.0, 1.0), Work(384, 2 * (32 + 48 + 48), "bf16")),
        ("quack::gemm_act_out", (bf(4, 8), bf(8, 6), None, bf(4, 6), None, bf(6), "relu"), Work(384, 2 * (32 + 48 + 24 + 6), "bf16")),
        ("quack::gemm_gated_out", (bf(4, 8), bf(8, 6), bf(4, 6), bf(4, 3), None, None, "swiglu"), Work(384, 2 * (32 + 48 + 24 + 12), "bf16")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_products_of_libraries(operator: str, arguments: tuple[Any, ...], expected: Work) -> None:
    assert work(operator, *arguments) == expected


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
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
        # The same file: under autocast, operands are cast within the operator.
        ("xformers::gemm_fused_operand_sum", (f(6, 4), f(4, 8))),
        # Rows of several products, by offsets that are not recorded.
        ("quack::gemm_out", (bf(10, 8), bf(2, 8, 6), bf(10, 6), None, 1.0, None, ((3,), INT))),
        ("quack::gemm_out", (bf(10, 8), bf(8, 6), bf(2, 10, 6), None, 1.0, None, None, ((3,), INT))),
    ],
)
def test_unknown_products(operator: str, arguments: tuple[Any, ...]) -> None:
    assert work(operator, *arguments) is None
