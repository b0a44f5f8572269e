"""Test FLOP and bytes of TensorRT-LLM's operators, worked out by hand.

Comments name the file of NVIDIA/TensorRT-LLM that each signature was read from.
"""

from typing import Any

import pytest
from test_work import BYTES, INT, LONG, bf, f, q8, work

from trace_analyzer.analyses.work import Work


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        # cpp/tensorrt_llm/thop/cublasScaledMM.cpp: cublas_mm(mat_a, mat_b, bias, out_dtype, ...), mat_b (k, n); 6 is float
        ("cublas_mm", (bf(4, 8), bf(8, 6), None, None), Work(384, 2 * (32 + 48 + 24), "bf16")),
        ("cublas_mm", (bf(4, 8), bf(8, 6), bf(6), 6, 0), Work(384, 2 * (32 + 48 + 6) + 96, "bf16")),
        # cublas_scaled_mm(mat_a, mat_b, scale_a, scale_b, bias, out_dtype, ...); 15 is bf16
        ("cublas_scaled_mm", (q8(4, 8), q8(8, 6), f(1), f(1), None, 15), Work(384, 32 + 48 + 8 + 48, "fp8")),
        # thop/dsv3RouterGemmOp.cpp, dsv3FusedAGemmOp.cpp: (mat_a, mat_b, bias, out_dtype)
        ("dsv3_router_gemm_op", (bf(4, 8), bf(8, 6), None, 6), Work(384, 2 * (32 + 48) + 96, "bf16")),
        # thop/fp8BlockScalingGemm.cpp: fp8_block_scaling_gemm(mat1, mat2, mat1Scale, mat2Scale), mat2 (n, k), to bf16;
        # fp8_block_scaling_bmm_out(mat1, mat2, mat1Scale, mat2Scale, out)
        ("fp8_block_scaling_gemm", (q8(4, 8), q8(6, 8), f(4), f(1, 1)), Work(384, 32 + 48 + 20 + 48, "fp8")),
        ("fp8_block_scaling_bmm_out", (q8(2, 4, 8), q8(2, 6, 8), f(2, 4), f(2, 1, 1), bf(2, 4, 6)), Work(768, 64 + 96 + 40 + 96, "fp8")),
        # tensorrt_llm/_torch/custom_ops/torch_custom_ops.py: nvfp4_gemm(act_fp4, weight, act_sf, weight_scale, alpha, ...): 128 elements are 64 bytes
        ("nvfp4_gemm", (((4, 64), BYTES), ((6, 64), BYTES), ((512,), BYTES), ((1024,), BYTES), f(1)), Work(2 * 4 * 6 * 128, 48 + 256 + 384 + 32 + 48, "fp4")),
        # thop/fp8Quantize.cpp: fp8_quantize_1x128(input, ...); thop/fp4Quantize.cpp: fp4_quantize(input, globalScale, sfVecSize, ...)
        ("fp8_quantize_1x128", (bf(4, 128),), Work(3 * 512, 1024 + 512, "bf16")),
        ("fp4_quantize", (bf(4, 128), f(1), 16, False), Work(3 * 512, 1024 + 256 + 16, "bf16")),
        # tensorrt_llm/_torch/custom_ops/flashinfer_custom_ops.py
        ("flashinfer_rmsnorm", (bf(4, 8), bf(8), 1e-6), Work(128, 2 * (64 + 8), "bf16")),
        ("flashinfer_fused_add_rmsnorm", (bf(4, 8), bf(4, 8), bf(8), 1e-6), Work(160, 2 * (4 * 32 + 8), "bf16")),
        ("flashinfer_fused_add_rmsnorm_quant", (q8(4, 8), bf(4, 8), bf(4, 8), bf(8), f(1), 1e-6), Work(7 * 32, 32 + 3 * 64 + 16 + 4, "bf16")),
        ("flashinfer_silu_and_mul", (bf(4, 16),), Work(192, 2 * (64 + 32), "bf16")),
        ("flashinfer_apply_rope_with_cos_sin_cache_inplace", (((4,), LONG), bf(4, 16), bf(4, 8), 8, f(100, 8), True),
         Work(3 * 96, 32 + 4 * 32 + 4 * 96, "bf16")),
        # tensorrt_llm/_torch/modules/attention.py: attn_custom_op_inplace(q, k, v, attention_mask, ..., output): q may hold all three
        ("attn_custom_op_inplace", (bf(4, 24), None, None, "causal", None, None, None, None, None, "3", bf(4, 16)), Work(None, 192, "bf16")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_tensorrt(operator: str, arguments: tuple[Any, ...], expected: Work) -> None:
    assert work(f"trtllm::{operator}", *arguments) == expected


def test_products_that_do_not_fit_are_unknown() -> None:
    assert work("trtllm::cublas_mm", bf(4, 8), bf(6, 8), None, None) is None
    assert work("trtllm::cublas_mm", ((4, 8), INT), ((8, 6), INT), None, None) is None


def test_padding_of_scales_and_of_a_graph_s_batch_is_doubted() -> None:
    product = work("trtllm::fp8_block_scaling_gemm", q8(4, 8), q8(6, 8), f(4), f(1, 1))
    attention = work("trtllm::attn_custom_op_inplace", bf(4, 24), None, None, "causal")
    assert product is not None
    assert attention is not None
    assert product.doubtful_bytes == 20
    assert attention.least
    assert attention.doubtful_bytes == 192
