"""Test FLOP and bytes of autograd functions and operators of libraries for training, worked out by hand.

Comments name the file and version of the library that each signature was read from. That PyTorch records tensors, numbers and None
of a function's arguments, of older versions tensors alone: torch/csrc/autograd/python_function.cpp, unpack_input.
"""

from typing import Any

import pytest
from test_work import BYTES, INT, INT8, bf, f, h, work

from trace_analyzer.analyses.work import Work


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        # apex, apex/normalization/fused_layer_norm.py at 014f30f: the result of mixed types has the weight's
        ("FusedLayerNormAffineMixedDtypesFunction", (f(4, 6), bf(6), bf(6), [6], 1e-5), Work(8 * 24, 96 + 24 + 48, "fp32")),
        ("FusedRMSNormAffineMixedDtypesFunction", (f(4, 6), bf(6), [6], 1e-5), Work(4 * 24, 96 + 12 + 48, "fp32")),
        # The same file: fused_layer_norm_affine_fwd(input, weight, bias, normalized_shape, eps, ...)
        ("apex::fused_layer_norm_affine_fwd", (h(4, 6), h(6), h(6), [6], 1e-5), Work(8 * 24, 96 + 24, "fp16")),
        ("apex::fused_rms_norm_affine_fwd", (h(4, 6), h(6), [6], 1e-5), Work(4 * 24, 96 + 12, "fp16")),
        # fused_layer_norm_affine_bwd(grad_output, mean, invvar, input_or_output, normalized_shape, weight, bias, eps, ...): mean may be missing
        ("apex::fused_layer_norm_affine_bwd", (h(4, 6), f(4), f(4), h(4, 6), [6], h(6), h(6), 1e-5), Work(13 * 24, 144 + 48, "fp16")),
        ("apex::fused_rms_norm_affine_bwd", (h(4, 6), f(4), h(4, 6), [6], h(6), 1e-5), Work(11 * 24, 144 + 24, "fp16")),
        # flash-attn, flash_attn/ops/layer_norm.py: DropoutAddLayerNormFn.forward(x0, residual, gamma, beta, ...); tensors alone are recorded
        ("DropoutAddLayerNormFn", (h(4, 6), h(6), h(6)), Work(8 * 24, 96 + 24, "fp16")),
        ("DropoutAddLayerNormFn", (h(4, 6), h(4, 6), h(6), h(6)), Work(9 * 24, 144 + 24, "fp16")),
        # flash-attn, ops/triton/layer_norm.py: LayerNormFn.forward(x, weight, bias, residual, ...); without a bias, tensors alone
        ("LayerNormFn", (h(4, 6), h(6), h(4, 6)), Work(8 * 24, 144 + 12, "fp16")),
        ("LigerFusedAddRMSNormFunction", (h(4, 6), h(4, 6), h(6), 1e-6), Work(120, 4 * 48 + 12, "fp16")),
        # Unsloth, unsloth/kernels/rope_embedding.py: forward(Q, cos, sin), Q (batch, seq, heads, width), tables longer than the sequence
        ("Fast_RoPE_Embedding", (h(2, 5, 4, 8), h(100, 8), h(100, 8)), Work(960, 2 * 640 + 2 * 40, "fp16")),
        # Transformer Engine, pytorch/attention/rope.py: FusedRoPEFunc.forward(t, freqs, ...): of heads of 8, 4 are turned
        ("FusedRoPEFunc", (h(5, 2, 4, 8), f(5, 1, 1, 4)), Work(480, 2 * 640 + 80, "fp16")),
        # Transformer Engine, module/linear.py at 0004dbd: the weight is cast to the input's type
        ("_Linear", (f(12, 8), None, None, bf(5, 2, 8), bf(12)), Work(2 * 10 * 12 * 8, 2 * (96 + 80 + 120), "bf16")),
        # Transformer Engine, module/grouped_linear.py at 0069563: (inp, m_splits, use_bias, ..., weights, biases)
        ("_GroupedLinear", (bf(10, 8), [4, 6, 0], True, bf(12, 8), bf(12, 8), bf(12, 8), bf(12)), Work(2 * 10 * 12 * 8, 2 * (80 + 3 * 96 + 120), "bf16")),
        # bitsandbytes, bitsandbytes/_ops.py at 0155ecc: gemm_4bit(A, B, shapeB, absmax, blocksize, quant_type, ...)
        ("bitsandbytes::gemm_4bit", (h(5, 8), ((48, 1), BYTES), [12, 8], f(2), 64, "nf4"), Work(960, 80 + 48 + 8 + 120, "fp16")),
        # int8_mm_dequant(A, row_stats, col_stats, dtype, bias); int8_linear_matmul.out(A, B, out)
        ("bitsandbytes::int8_mm_dequant", (((5, 12), INT), f(5), f(12), None, None), Work(120, 240 + 120 + 20 + 48, "fp16")),
        ("bitsandbytes::int8_linear_matmul", (((5, 8), INT8), ((12, 8), INT8), ((5, 12), INT)), Work(960, 40 + 96 + 240, "int8")),
        # optimizer_update_32bit(name, g, p, state1, state2, ...); optimizer_update_8bit_blockwise(name, g, p, state1, state2, ..., qmap1, ...)
        ("bitsandbytes::optimizer_update_32bit", ("adam", bf(100), bf(100), f(100), f(100), None, 0.0), Work(None, 200 + 400 + 1600, "bf16")),
        ("bitsandbytes::optimizer_update_8bit_blockwise", ("lion", bf(100), bf(100), ((100,), BYTES), None, 0.9), Work(None, 200 + 400 + 200, "bf16")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_training_libraries(operator: str, arguments: tuple[Any, ...], expected: Work) -> None:
    assert work(operator, *arguments) == expected


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        # A copy of a weight in another type beside it; weights of two shapes; a state of another size (paged away, or factored).
        ("_GroupedLinear", (bf(10, 8), [4, 6], True, bf(12, 8), bf(16, 8))),
        ("_LayerNormMLP", (h(4, 6), h(6), h(6), h(16, 7), h(6, 8))),
        ("bitsandbytes::optimizer_update_32bit", ("adam", bf(100), bf(100), f(10), None)),
        ("apex::fused_rms_norm_affine_bwd", (h(4, 6), f(4), h(5, 6), [6], h(6), 1e-5)),
    ],
)
def test_unknown_training_libraries(operator: str, arguments: tuple[Any, ...]) -> None:
    assert work(operator, *arguments) is None
