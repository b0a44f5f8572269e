"""Test FLOP and bytes of gradients, samplers, indices, bags, recurrent layers and autograd functions."""

from typing import Any

import pytest
from test_work import BF16, BOOL, BYTES, HALF, INT, INT8, LONG, f, h, work

from trace_analyzer.analyses.work import MATMUL_FORMULAS, Work

COMPLEX = "c10::complex<float>"


def i(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, LONG


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        # The gradient of (2, 3, 8, 6) is read, that of (2, 3, 4, 3) written; bilinear: 4 taps, multiply and add.
        ("aten::upsample_nearest2d_backward", (f(2, 3, 8, 6), [8, 6], [2, 3, 4, 3]), Work(288, 4 * (288 + 72), "fp32")),
        ("aten::upsample_bilinear2d_backward", (f(2, 3, 8, 6), [8, 6], [2, 3, 4, 3], False), Work(8 * 288, 4 * 360, "fp32")),
        ("aten::_upsample_bilinear2d_aa_backward", (f(2, 3, 8, 6), [8, 6], [2, 3, 4, 3], False), Work(None, 4 * 360, "fp32")),
        ("aten::upsample_bicubic2d", (f(2, 3, 4, 3), [8, 6], False), Work(32 * 288, 4 * 360, "fp32")),
        ("aten::_upsample_bilinear2d_aa", (f(2, 3, 4, 3), [8, 6], False), Work(None, 4 * 360, "fp32")),
        ("aten::reflection_pad2d_backward", (f(1, 2, 6, 5), f(1, 2, 4, 3), [1, 1, 1, 1]), Work(60, 4 * 84, "fp32")),
        ("aten::adaptive_max_pool2d", (h(1, 2, 6, 6), [3, 3]), Work(72, 2 * 90 + 8 * 18, "fp16")),
        ("aten::adaptive_max_pool2d_backward", (h(1, 2, 3, 3), h(1, 2, 6, 6), i(1, 2, 3, 3)), Work(18, 2 * 90 + 8 * 18, "fp16")),
        ("aten::grid_sampler_2d", (f(1, 2, 8, 8), f(1, 5, 6, 2), 0, 0, False), Work(2 * 4 * 60, 4 * (128 + 60 + 60), "fp32")),
        ("aten::grid_sampler_2d", (f(1, 2, 8, 8), f(1, 5, 6, 2), 2, 0, False), Work(None, 4 * 248, "fp32")),
        ("aten::grid_sampler_2d_backward", (f(1, 2, 5, 6), f(1, 2, 8, 8), f(1, 5, 6, 2), 0, 0), Work(None, 4 * (60 + 2 * 128 + 2 * 60), "fp32")),
        ("aten::unfold_backward", (f(2, 3, 4), [2, 9], 1, 4, 2), Work(24, 4 * (24 + 18), "fp32")),
        # Nine taps of 8 x 8 places with padding 1; back again each element is added.
        ("aten::im2col", (f(1, 2, 8, 8), [3, 3], [1, 1], [1, 1], [1, 1]), Work(0, 4 * (128 + 18 * 64), "fp32")),
        ("aten::col2im", (f(1, 18, 64), [8, 8], [3, 3], [1, 1], [1, 1], [1, 1]), Work(1152, 4 * (128 + 1152), "fp32")),
        ("aten::glu", (h(4, 6), -1), Work(60, 2 * 36, "fp16")),
        ("aten::glu_backward", (h(4, 3), h(4, 6), -1), Work(108, 2 * (12 + 48), "fp16")),
        # Rows 2 of 5, then elements at indices that are not recorded.
        ("aten::index_fill_", (f(5, 4), 0, i(2), 1.0), Work(0, 16 + 32, "fp32")),
        ("aten::_index_put_impl_", (f(50, 4), None, f(3, 4), False, False), Work(0, 48, "fp32")),
        ("aten::take", (f(50,), i(6)), Work(0, 48 + 48, "fp32")),
        ("aten::masked_scatter_", (f(50,), ((50,), BOOL), f(9)), Work(0, 50, None)),
        ("aten::searchsorted", (f(100,), f(7), False, False), Work(None, 28 + 56, "fp32")),
        ("aten::bucketize", (f(7), f(100,), True, False), Work(None, 28 + 28, "fp32")),
        ("aten::scatter", (f(5, 4), 0, i(2, 4), f(2, 4)), Work(0, 64 + 32 + 32, "fp32")),
        # Six rows of 16 into three bags; with the last offset, two.
        ("aten::_embedding_bag", (f(100, 16), i(6), i(3), False, 0, False, None, False), Work(96, 48 + 24 + 192 + 384, "fp32")),
        ("aten::_embedding_bag", (f(100, 16), i(6), i(3), False, 0, False, None, True), Work(96, 48 + 24 + 128 + 384, "fp32")),
        ("aten::_embedding_bag_dense_backward", (f(3, 16), i(6), i(6), i(3), i(3), 100, False, 0), Work(96, 192 + 96 + 6400, "fp32")),
        ("aten::split_with_sizes_copy", (h(9, 4), [4, 5], 0), Work(0, 144, "fp16")),
        ("aten::_fft_c2c", (((4, 8), COMPLEX), [1], 0, True), Work(None, 512, None)),
        ("aten::_fft_r2c", (f(4, 8), [1], 0, True), Work(None, 128 + 8 * 20, "fp32")),
        ("aten::_fft_c2r", (((4, 5), COMPLEX), [1], 0, 8), Work(None, 160 + 128, None)),
        ("aten::_cdist_forward", (f(9, 4), f(7, 4), 2.0, None), Work(3 * 63 * 4, 4 * (36 + 28 + 63), "fp32")),
        ("aten::_cdist_backward", (f(9, 7), f(9, 4), f(7, 4), 2.0, f(9, 7)), Work(4 * 252, 4 * (63 + 36 + 28 + 63 + 36), "fp32")),
        ("aten::_weight_norm_interface", (f(8, 4), f(8, 1), 0), Work(96, 4 * (32 + 8 + 32 + 8), "fp32")),
        ("aten::_thnn_fused_lstm_cell", (f(2, 12), f(2, 12), f(2, 3), f(12), f(12)), Work((18 + 12) * 6, 4 * (24 + 24 + 6 + 24 + 12 + 24), "fp32")),
        ("aten::_thnn_fused_gru_cell", (f(2, 9), f(2, 9), f(2, 3)), Work((14 + 3) * 6, 4 * (18 + 18 + 6 + 36), "fp32")),
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
        # Libraries of training.
        ("LigerRMSNormFunction", (h(2, 5, 8), h(8), 1e-6, 0.0), Work(4 * 80, 2 * (160 + 8), "fp16")),
        ("FusedLayerNormAffineFunction", (h(2, 5, 8), h(8), h(8), [8], 1e-5), Work(8 * 80, 2 * (160 + 16), "fp16")),
        ("FusedRMSNormFunction", (h(2, 5, 8), [8], 1e-5), Work(3 * 80, 320, "fp16")),
        ("LigerRMSNormFunctionBackward", (h(2, 5, 8),), Work(720, 3 * 160, "fp16")),
        ("LigerSiLUMulFunction", (h(10, 8), h(10, 8)), Work(480, 3 * 160, "fp16")),
        ("LigerSiLUMulFunctionBackward", (h(10, 8),), Work(13 * 80, 5 * 160, "fp16")),
        ("SwiGLUFunction", (h(10, 16), False), Work(480, 320 + 160, "fp16")),
        ("BiasSwiGLUFunction", (h(10, 16), h(16), False), Work(640, 320 + 32 + 160, "fp16")),
        # Of each row of a table, the first half (Liger-Kernel, ops/rope.py: cos_offsets up to half a head).
        ("LigerRopeFunction", (h(1, 4, 6, 8), h(1, 2, 6, 8), h(1, 6, 8), h(1, 6, 8)), Work(3 * 288, 2 * (2 * 288 + 48), "fp16")),
        ("LigerRopeFunctionBackward", (h(1, 4, 6, 8), h(1, 2, 6, 8)), Work(3 * 288, 2 * 2 * 288, "fp16")),
        # Of 6 x 6 scores 21 are read, and all are written.
        ("ScaledUpperTriangMaskedSoftmax", (h(4, 6, 6), 0.5), Work(6 * 84, 168 + 288, "fp16")),
        ("ScaledUpperTriangMaskedSoftmaxBackward", (h(4, 6, 6),), Work(5 * 84, 3 * 168, "fp16")),
        ("ScaledMaskedSoftmax", (h(1, 4, 6, 6), ((1, 1, 6, 6), BOOL), 0.5), Work(6 * 144, 576 + 36, "fp16")),
        ("ScaledMaskedSoftmaxBackward", (h(1, 4, 6, 6),), Work(720, 3 * 288, "fp16")),
        ("LigerCrossEntropyFunction", (h(10, 100), i(10), None), Work(8000, 2 * 2000 + 80 + 40, "fp16")),
        ("DaoAILab::_causal_conv1d_fwd_cpp", (h(2, 8, 30), h(8, 4), h(8), None, None, h(2, 8, 30)), Work(8 * 480, 2 * (960 + 32 + 8), "fp16")),
        ("_Linear", (h(12, 8), h(5, 2, 8), h(12)), Work(2 * 10 * 12 * 8, 2 * (96 + 80 + 120), "fp16")),
        ("_LayerNormLinear", (h(5, 2, 8), h(8), h(8), h(12, 8), h(12)), Work(1920, 2 * (96 + 80 + 120), "fp16")),
        ("bitsandbytes::gemv_4bit", (h(1, 8), ((48, 1), BYTES), [12, 8], f(2), f(16), 64), Work(192, 16 + 48 + 8 + 64 + 24, "fp16")),
        ("bitsandbytes::dequantize_4bit", (((48, 1), BYTES), f(2), 64, "nf4", [12, 8], 5), Work(96, 48 + 8 + 192, "fp16")),
        ("bitsandbytes::quantize_4bit", (h(12, 8), 64, "nf4", 0), Work(288, 192 + 48, "fp16")),
        ("bitsandbytes::int8_linear_matmul", (((5, 8), INT8), ((12, 8), INT8)), Work(960, 40 + 96 + 240, "int8")),
        ("_rocm_C::wvSplitK", (((12, 8), BF16), ((5, 8), BF16), None, 304), Work(960, 2 * (96 + 40 + 60), "bf16")),
        ("_C::paged_attention_v1", (h(9, 4, 8), h(9, 4, 8), h(99, 4, 1, 16, 8)), Work(None, 2 * 576, "fp16")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_operators(operator: str, arguments: tuple[Any, ...], expected: Work) -> None:
    assert work(operator, *arguments) == expected


def test_a_recurrent_layer_multiplies_each_row_by_every_matrix() -> None:
    """Check that a recurrent layer multiplies each row by every matrix.

    Five steps of two samples of 8, an LSTM of 3: (12, 8) and (12, 3), and two biases.
    """
    weights = [[12, 8], [12, 3], [12], [12]]
    forward = work("aten::_cudnn_rnn", h(5, 2, 8), weights, 4, None, h(1, 2, 3), list_element_bytes=2.0)
    assert forward == Work(2 * 10 * (96 + 36), 2 * (80 + 96 + 36 + 24), "fp16")
    backward = work("aten::_cudnn_rnn_backward", h(5, 2, 8), weights, 4, list_element_bytes=2.0)
    assert backward is not None
    assert backward.flop == 2 * forward.flop
    assert {"aten::_cudnn_rnn", "_Linear", "bitsandbytes::gemv_4bit"} <= set(MATMUL_FORMULAS)


def test_lists_that_amp_unscales_are_read_and_written() -> None:
    actual = work("aten::_amp_foreach_non_finite_check_and_unscale_", [[3, 4], [8]], f(1), f(1), list_element_bytes=4.0)
    assert actual == Work(40, 160, "fp32")


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        # A copy of the weight in another type: which two are multiplied is not known.
        ("_Linear", (h(12, 8), ((12, 8), BYTES), h(5, 8))),
        ("_Linear", (h(12, 8), h(5, 7))),
        ("aten::_index_put_impl_", (f(50, 4), None, ((), HALF), False, False)),
        ("aten::unfold_backward", (f(2, 3), [-1, 9], 1, 4, 2)),
        ("aten::_embedding_bag_dense_backward", (f(3, 16), i(6), i(6), i(3), i(3), 2**60)),
        ("aten::_fft_r2c", (f(4, 8), [7], 0, True)),
        ("aten::upsample_nearest2d_backward", (f(2, 3, 8, 6), [8, 6], [2, 5, 4, 3])),
        ("bitsandbytes::dequantize_4bit", (((48, 1), BYTES), f(2), 64, "nf4", [1200, 8], 5)),
    ],
)
def test_what_does_not_fit_is_unknown(operator: str, arguments: tuple[Any, ...]) -> None:
    assert work(operator, *arguments) is None


@pytest.mark.parametrize(
    ("operator", "arguments", "least", "doubtful"),
    [
        ("aten::_embedding_bag", (f(100, 16), i(6), i(3), False, 0, False, None, False), False, 384),
        # All 6 indices may name one row.
        ("aten::embedding", (f(100, 16), i(6)), False, 384),
        ("aten::index_select", (f(100, 16), 0, i(6)), False, 384),
        # flash-attn, flash_attn/ops/fused_dense.py: (x, weight, bias, return_residual, process_group, sequence_parallel). A group is not recorded.
        ("FusedDenseFunc", (h(4, 8), h(6, 8), h(6), False, None, True), False, 0),
        ("FusedDenseFunc", (h(4, 8), h(6, 8), h(6), False, True), True, 0),
        ("FusedDenseFunc", (h(4, 8), h(6, 8), h(6)), True, 0),
        ("DenseNoBiasFunc", (h(4, 8), h(6, 8)), False, 0),
        ("aten::grid_sampler_2d", (f(1, 2, 8, 8), f(1, 5, 6, 2), 0, 0, False), False, 512),
        ("aten::_index_put_impl_", (f(50, 4), None, f(3, 4), False, False), True, 0),
        ("LigerSiLUMulFunctionBackward", (h(10, 8),), True, 0),
        # A recipe may have cast both operands to 8 bits before.
        ("_Linear", (h(12, 8), h(5, 2, 8), h(12)), True, 2 * (96 + 80)),
    ],
)
def test_what_is_least_and_what_is_doubted_is_told(
    operator: str, arguments: tuple[Any, ...], least: bool, doubtful: float
) -> None:
    actual = work(operator, *arguments)
    assert actual is not None
    assert (actual.least, actual.doubtful_bytes) == (least, doubtful)
