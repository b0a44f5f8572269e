"""Test FLOP and bytes of operators of PyTorch whose arguments differ between versions, worked out by hand."""

from typing import Any

import pytest
from test_work import BOOL, INT, bf, f, h, q8, work

from trace_analyzer.analyses.work import Work


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
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
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_versions(operator: str, arguments: tuple[Any, ...], expected: Work) -> None:
    assert work(operator, *arguments) == expected


def test_rows_behind_the_last_offset_are_doubted() -> None:
    cut_rows = work("aten::_grouped_mm", h(4, 3), h(2, 3, 5), ((2,), INT))
    assert cut_rows is not None
    assert (cut_rows.least, cut_rows.doubtful_bytes) == (True, cut_rows.moved_bytes)
    cut_sum = work("aten::_grouped_mm", h(4, 6), h(6, 5), ((2,), INT))
    assert cut_sum is not None
    assert (cut_sum.least, cut_sum.doubtful_bytes) == (True, 2 * (24 + 30) + 8)
