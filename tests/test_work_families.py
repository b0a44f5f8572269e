"""Test FLOP and bytes of gradients, indices, bags, statistics and paged attention."""

from typing import Any

import pytest
from test_work import BOOL, HALF, INT, LONG, f, h, work

from trace_analyzer.analyses.work import FORMULAS, Work


def i(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, LONG


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        ("aten::adaptive_max_pool2d_backward", (h(1, 2, 3, 3), h(1, 2, 6, 6), i(1, 2, 3, 3)), Work(18, 2 * 90 + 8 * 18, "fp16")),
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
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_operators(operator: str, arguments: tuple[Any, ...], expected: Work) -> None:
    assert work(operator, *arguments) == expected


def test_lists_that_amp_unscales_are_read_and_written() -> None:
    actual = work("aten::_amp_foreach_non_finite_check_and_unscale_", [[3, 4], [8]], f(1), f(1), list_element_bytes=4.0)
    assert actual == Work(40, 160, "fp32")


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("aten::_index_put_impl_", (f(50, 4), None, ((), HALF), False, False)),
        ("aten::_embedding_bag_dense_backward", (f(3, 16), i(6), i(6), i(3), i(3), 2**60)),
    ],
)
def test_what_does_not_fit_is_unknown(operator: str, arguments: tuple[Any, ...]) -> None:
    assert operator in FORMULAS
    assert work(operator, *arguments) is None


@pytest.mark.parametrize(
    ("operator", "arguments", "least", "doubtful"),
    [
        ("aten::_embedding_bag", (f(100, 16), i(6), i(3), False, 0, False, None, False), False, 384),
        # All 6 indices may name one row.
        ("aten::embedding", (f(100, 16), i(6)), False, 384),
        ("aten::index_select", (f(100, 16), 0, i(6)), False, 384),
        ("aten::_index_put_impl_", (f(50, 4), None, f(3, 4), False, False), True, 0),
    ],
)
def test_what_is_least_and_what_is_doubted_is_told(
    operator: str, arguments: tuple[Any, ...], least: bool, doubtful: float
) -> None:
    actual = work(operator, *arguments)
    assert actual is not None
    assert (actual.least, actual.doubtful_bytes) == (least, doubtful)
