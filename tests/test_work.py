"""Test FLOP and bytes of calls, worked out by hand; damaged arguments are never an exception."""

import json
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from kineto import analysed, launched, op

from trace_analyzer.analyses.work import FORMULAS, Record, Work, call_work, masks
from trace_analyzer.analyses.work.movement import PREFIXES

HALF, FLOAT, BF16, DOUBLE, INT8, BYTES, INT, LONG, BOOL, FP8 = (
    "c10::Half", "float", "c10::BFloat16", "double", "signed char", "unsigned char", "int", "long int", "bool",
    "c10::Float8_e4m3fn",
)  # fmt: skip


def figures(work: Work | None) -> tuple[float | None, float | None, str | None] | None:
    """Return FLOP, bytes and dtype of work, without what is doubtful of them."""
    return work and (work.flop, work.moved_bytes, work.dtype)


def work(operator: str, *arguments: Any, list_element_bytes: float | None = None) -> Work | None:
    """Return the work of a call written as a person would: (shape, type[, strides]) for a tensor, a list of shapes
    for a list of tensors, anything else is a value and None a missing argument."""
    dims, types, strides, values = [], [], [], []
    for argument in arguments:
        is_tensor = isinstance(argument, tuple)
        is_list = isinstance(argument, list) and bool(argument) and isinstance(argument[0], list)
        dims.append(list(argument[0]) if is_tensor else argument if is_list else [])
        types.append(
            argument[1] if is_tensor else "TensorList" if is_list else "" if argument is None
            else "ScalarList" if isinstance(argument, list) else "Scalar"
        )  # fmt: skip
        strides.append(list(argument[2]) if is_tensor and len(argument) == 3 else dense(dims[-1]) if is_tensor else [])
        values.append("" if is_tensor or is_list or argument is None else str(argument))
    return call_work(Record(operator, *map(json.dumps, (dims, types, strides, values)), list_element_bytes)).work


def dense(shape: list[int]) -> list[int]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return strides


def h(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, HALF


def f(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, FLOAT


def bf(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, BF16


def q8(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, FP8


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        ("aten::mm", (f(2, 3), f(3, 5)), Work(60, 4 * 31, "fp32")),
        ("aten::mm", (h(2, 0), h(0, 5)), Work(0, 2 * 10, "fp16")),
        ("aten::addmm", (h(5), h(2, 3), h(3, 5), 1, 1), Work(60, 2 * (31 + 5), "fp16")),
        ("aten::addmm", (h(5), h(2, 3), h(3, 5), 0, 1), Work(60, 2 * 31, "fp16")),
        ("aten::bmm", (h(7, 2, 3), h(7, 3, 5)), Work(420, 7 * 2 * 31, "fp16")),
        ("aten::bmm", (((7, 2, 3), HALF, (0, 3, 1)), h(7, 3, 5)), Work(420, 2 * (6 + 7 * 25), "fp16")),
        ("aten::mv", (h(2, 3), h(3)), Work(12, 2 * 11, "fp16")),
        ("aten::linear", (h(2, 4, 3), h(5, 3), h(5)), Work(240, 2 * (24 + 15 + 5 + 40), "fp16")),
        ("aten::_int_mm", (((2, 3), INT8), ((3, 5), INT8)), Work(60, 21 + 4 * 10, "int8")),
        # out_dtype 15 is bfloat16
        ("aten::_scaled_mm", (q8(2, 3), q8(3, 5), f(), f(), None, None, 15, False), Work(60, 21 + 8 + 20, "fp8")),
        # 4 rows for 2 experts, of 3 x 5 weights each: rows behind the last offset are not computed (pytorch, issue 154557)
        ("aten::_grouped_mm", (h(4, 3), h(2, 3, 5), ((2,), "int")), Work(None, 2 * (12 + 30 + 20) + 8, "fp16")),
        # the sum over the tokens is cut: each of 2 experts gets a 4 x 5 gradient
        ("aten::_grouped_mm", (h(4, 6), h(6, 5), ((2,), "int")), Work(None, 2 * (24 + 30 + 40) + 8, "fp16")),
        # two whole products
        ("aten::_grouped_mm", (h(2, 4, 3), h(2, 3, 5)), Work(240, 2 * (24 + 30 + 40), "fp16")),
        # 3 x 3 taps of 4 channels for each of 2 x 6 x 7 x 7 outputs
        ("aten::convolution", (h(2, 4, 9, 9), h(6, 4, 3, 3), h(6), [1, 1], [0, 0], [1, 1], False, [0, 0], 1), Work(2 * 2 * 6 * 49 * 36, 2 * (648 + 216 + 6 + 588), "fp16")),
        ("aten::cudnn_convolution", (h(2, 4, 9, 9), h(6, 4, 3, 3), [1, 1], [2, 2], [1, 1], 1, True, False, True), Work(2 * 2 * 6 * 25 * 36, 2 * (648 + 216 + 300), "fp16")),
        ("aten::miopen_convolution", (h(2, 4, 9, 9), h(6, 4, 3, 3), None, [1, 1], [2, 2], [1, 1], 1, False, False), Work(2 * 2 * 6 * 25 * 36, 2 * (648 + 216 + 300), "fp16")),
        # one tap at every second place: a quarter of the input is read
        ("aten::cudnn_convolution", (h(1, 4, 8, 8), h(6, 4, 1, 1), [0, 0], [2, 2], [1, 1], 1), Work(2 * 6 * 16 * 4, 2 * (64 + 24 + 96), "fp16")),
        # gradients of weight and bias only; the gradient is 2 x 6 x 7 x 7
        (
            "aten::convolution_backward",
            (h(2, 6, 7, 7), h(2, 4, 9, 9), h(6, 4, 3, 3), [6], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, True]),
            Work(2 * 2 * 6 * 49 * 36, 2 * (588 + 648 + 216 + 6), "fp16"),
        ),
        ("aten::cudnn_convolution_backward_weight", ([6, 4, 3, 3], h(2, 6, 7, 7), h(2, 4, 9, 9)), Work(2 * 2 * 6 * 49 * 36, 2 * (588 + 648 + 216), "fp16")),
        ("aten::add", (h(4, 6), h(4, 6), 1), Work(24, 2 * 72, "fp16")),
        ("aten::add", (h(4, 6), h(4, 6), 0.5), Work(48, 2 * 72, "fp16")),
        ("aten::add", (h(4, 6), h(6), 1), Work(24, 2 * 54, "fp16")),
        ("aten::add_", (h(4, 6), f(4, 6), 1), Work(24, 2 * 48 + 4 * 24, "fp32")),
        ("aten::mul", (f(4, 6), ((), DOUBLE)), Work(24, 4 * 48 + 8, "fp32")),
        ("aten::mul", (((4, 6), HALF, (0, 1)), h(4, 6)), Work(24, 2 * (6 + 48), "fp16")),
        ("aten::mul", (h(4, 6), h(4, 6), h(4, 6)), Work(24, 2 * 72, "fp16")),
        ("aten::div", (((6,), LONG), 2), Work(6, 8 * 6 + 4 * 6, "fp32")),
        ("aten::gt", (f(6), 0), Work(6, 24 + 6, "fp32")),
        ("aten::where", (((6,), BOOL), f(6), 0.0), Work(6, 6 + 48, "fp32")),
        ("aten::clamp", (f(6), None, 1.0), Work(12, 48, "fp32")),
        ("aten::gelu", (h(6), None), Work(30, 24, "fp16")),
        ("aten::gelu_backward", (h(6), h(6), None), Work(66, 36, "fp16")),
        ("aten::abs", (((6,), DOUBLE), ((0,), DOUBLE)), Work(6, 96, "fp64")),
        ("aten::native_dropout", (h(6), 0.1, True), Work(18, 24 + 6, "fp16")),
        ("aten::copy_", (f(4, 6), h(4, 6), False), Work(0, 24 * 6, "fp32")),
        ("aten::copy_", (f(4, 6), h(6), False), Work(0, 24 * 4 + 12, "fp32")),
        ("aten::fill_", (h(4, 6), 0.0), Work(0, 48, "fp16")),
        ("aten::sum", (f(4, 6), None), Work(24, 4 * 25, "fp32")),
        ("aten::sum", (f(4, 6), [-1], False, None), Work(24, 4 * 28, "fp32")),
        ("aten::mean", (h(4, 6), [0], True, 6), Work(24, 48 + 24, "fp16")),
        ("aten::argmax", (f(4, 6), 1, False), Work(24, 96 + 32, "fp32")),
        ("aten::linalg_vector_norm", (f(4, 6), 2.0, [0, 1], False, None), Work(48, 100, "fp32")),
        ("aten::native_layer_norm", (h(4, 6), [6], h(6), h(6), 1e-5), Work(8 * 24, 2 * (24 + 6 + 6 + 24) + 4 * 8, "fp16")),
        ("aten::_fused_rms_norm", (h(4, 6), [6], h(6), 1e-5), Work(4 * 24, 2 * (24 + 6 + 24), "fp16")),
        ("aten::_softmax", (h(4, 6), -1, False), Work(120, 96, "fp16")),
        ("aten::_softmax", (h(4, 6), -1, True), Work(120, 48 + 96, "fp16")),
        ("aten::_softmax_backward_data", (f(4, 6), f(4, 6), -1, 6), Work(96, 12 * 24, "fp32")),
        ("aten::index_select", (h(100, 6), 0, ((4,), LONG)), Work(0, 32 + 96, "fp16")),
        ("aten::index_select", (h(2, 6), 0, ((40,), LONG)), Work(0, 320 + 2 * (12 + 240), "fp16")),
        ("aten::gather", (h(100, 6), 0, ((4, 6), LONG, (1, 0)), False), Work(0, 32 + 96, "fp16")),
        ("aten::embedding_dense_backward", (h(4, 6), ((4,), LONG), 10, -1, False), Work(24, 48 + 32 + 120, "fp16")),
        ("aten::max_pool2d_with_indices", (h(1, 2, 8, 8), [2, 2], [], [0, 0], [1, 1], False), Work(4 * 32, 2 * 160 + 8 * 32, "fp16")),
        ("aten::upsample_nearest2d", (h(1, 2, 4, 4), None, [2.0, 2.0]), Work(0, 2 * (32 + 128), "fp16")),
        ("_C::fused_add_rms_norm", (h(4, 6), h(4, 6), h(6), 1e-5), Work(120, 2 * (96 + 6), "fp16")),
        ("sgl_kernel::silu_and_mul", (h(4, 6), h(4, 12)), Work(144, 2 * 72, "fp16")),
        ("fbgemm::FloatToFP8RowwiseQuantized", (f(10, 256), 0), Work(3 * 2560, 4 * 2560 + 10 * 264, "fp32")),
        ("fbgemm::FP8RowwiseQuantizedToFloat", (((10, 264), BYTES), 0), Work(2 * 2560, 10 * 264 + 4 * 2560, "fp32")),
        ("fbgemm::FloatToHFP8Quantized", (f(100), 0), Work(200, 500, "fp32")),
        ("fbgemm::HFP8QuantizedToFloat", (((100,), BYTES), 0), Work(200, 500, "fp32")),
    ],
)  # fmt: skip
def test_operators(operator: str, arguments: tuple[Any, ...], expected: Work) -> None:
    assert figures(work(operator, *arguments)) == figures(expected)


ONE = 2 * 2 * 3 * 8
"""FLOP of a pair of query and key, over both products, for 2 x 3 heads of width 8."""


@pytest.mark.parametrize(
    ("operator", "arguments", "flop"),
    [
        ("aten::_scaled_dot_product_flash_attention", (h(2, 3, 5, 8),) * 3 + (0.0, False), 2 * ONE * 25),
        ("aten::_scaled_dot_product_flash_attention", (h(2, 3, 5, 8),) * 3 + (0.0, True), 2 * ONE * 15),
        ("aten::_scaled_dot_product_efficient_attention", (h(2, 3, 5, 8),) * 3 + (None, True, 0.0, True), 2 * ONE * 15),
        ("aten::_scaled_dot_product_cudnn_attention", (h(2, 3, 5, 8), h(2, 1, 7, 8), h(2, 1, 7, 8), None, True, 0.0, False), 2 * ONE * 35),
        ("aten::_flash_attention_forward", (h(2, 5, 3, 8),) * 3 + (None, None, 5, 5, 0.0, True, False, 0.1, None, None), 2 * ONE * 15),
        ("aten::_efficient_attention_forward", (h(2, 5, 3, 8),) * 3 + (None,) * 5 + (0.0, 1), 2 * ONE * 15),
        ("flash_attn::_flash_attn_forward", (h(2, 2, 3, 8), h(2, 5, 3, 8), h(2, 5, 3, 8), 0.0, 0.1, True, -1, -1), 2 * ONE * 9),
        ("flash_attn::_flash_attn_forward", (h(2, 5, 3, 8),) * 3 + (0.0, 0.1, True, 1, 0), 2 * ONE * 9),
        ("aiter::mha_fwd", (h(2, 5, 3, 8),) * 3 + (0.0, 0.1, True, -1, 0), 2 * ONE * 15),
        ("aiter::mha_bwd", (h(2, 5, 3, 8),) * 5 + (f(2, 3, 5), 0.0, 0.1, True, -1, 0), 5 * ONE * 15),
        ("aten::_scaled_dot_product_flash_attention_backward", (h(2, 3, 5, 8),) * 5 + (f(2, 3, 5), None, None, 5, 5, 0.0, False), 5 * ONE * 25),
        ("aten::_flash_attention_backward", (h(2, 5, 3, 8),) * 5 + (f(2, 3, 5), None, None, 5, 5, 0.0, True), 5 * ONE * 15),
        # 10 tokens in 2 sequences of at most 5: both have 5
        ("flash_attn::_flash_attn_varlen_forward", (h(10, 3, 8),) * 3 + (((3,), "int"), ((3,), "int"), 5, 5, 0.0, 0.1, False, -1, -1), 2 * ONE * 25),
        ("flash_attn::_flash_attn_varlen_forward", (h(9, 3, 8),) * 3 + (((3,), "int"), ((3,), "int"), 5, 5, 0.0, 0.1, False, -1, -1), None),
        ("flash_attn::_flash_attn_varlen_forward", (h(9, 3, 8),) * 3 + (((2,), "int"), ((2,), "int"), 9, 9, 0.0, 0.1, False, -1, -1), ONE * 81),
    ],
)  # fmt: skip
def test_attention_flop(operator: str, arguments: tuple[Any, ...], flop: float | None) -> None:
    actual = work(operator, *arguments)
    assert actual.flop == flop


def test_attention_bytes() -> None:
    forward = work("aten::_scaled_dot_product_flash_attention", h(2, 6, 5, 8), h(2, 3, 7, 8), h(2, 3, 7, 8), 0.0, False)
    assert forward.moved_bytes == 2 * (480 + 336 + 336 + 480)


@given(
    st.integers(0, 12), st.integers(0, 12), st.none() | st.integers(0, 9), st.none() | st.integers(0, 9), st.booleans()
)
def test_pairs_are_those_that_a_mask_leaves(
    queries: int, keys: int, left: int | None, right: int | None, end: bool
) -> None:
    offset = keys - queries if end else 0
    seen = sum(
        (left is None or key >= query + offset - left) and (right is None or key <= query + offset + right)
        for query in range(queries)
        for key in range(keys)
    )
    assert masks.Mask(left, right, from_end=end).pairs(queries, keys) == seen
    assert (masks.Mask(right=0), masks.Mask(right=0, from_end=True)) == (masks.CAUSAL_FROM_START, masks.CAUSAL_FROM_END)


MIB = 2**20


@pytest.mark.parametrize(
    ("operator", "arguments", "gflop", "moved_mib"),
    [
        ("aten::_scaled_dot_product_flash_attention", (bf(1, 8, 141, 64),) * 3 + (0.0, False, False, 0.125), 0.040716288, 0.55078125),
        # of a product with bias the other tool counts the additions too: 141 x 512
        ("aten::addmm", (bf(512), bf(141, 512), bf(512, 512), 1, 1), 0.0739968 - 141 * 512 / 1e9, 0.7763671875),
        ("aten::add", (bf(1, 141, 512), bf(1, 141, 512), 1), 7.2192e-05, 0.4130859375),
        ("aten::convolution", (bf(128, 3, 224, 224), bf(768, 3, 16, 16), None, [16, 16], [0, 0], [1, 1], False, [0, 0], 1), 29.595009024, 74.625),
        ("aten::convolution_backward", (bf(2, 896, 59, 91), bf(2, 896, 59, 91), bf(896, 896, 1, 1), [0], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False]), 34.482552832, None),
        ("aten::convolution_backward", (bf(2, 896, 59, 91), bf(2, 896, 59, 91), bf(896, 56, 3, 3), [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 16, [True, True, False]), 19.396435968, None),
        ("flash_attn::_flash_attn_backward", (bf(2, 2048, 32, 128), bf(2, 2048, 32, 128), bf(2, 11040, 32, 128), bf(2, 11040, 32, 128), bf(2, 2048, 32, 128), f(2, 32, 2048), None, None, None, 0.0, 0.1, False, -1, -1), 1852.2046464, None),
    ],
)  # fmt: skip
def test_figures_that_another_tool_published(
    operator: str, arguments: tuple[Any, ...], gflop: float, moved_mib: float | None
) -> None:
    """Check work against reports of github.com/AMD-AGI/TraceLens (evals/e2e_tests_comparative, 4dc822d, c6c1b79).

    Their bytes of gradients are left out: they count the incoming gradient once per product and attention's output not at all.
    """
    actual = work(operator, *arguments)
    assert actual.flop == pytest.approx(gflop * 1e9, rel=1e-9)
    if moved_mib is not None:
        assert actual.moved_bytes == moved_mib * MIB


def test_lists_of_tensors_have_only_shapes_so_the_kernel_s_name_tells_the_type() -> None:
    lists = [[4, 6], [5]]
    assert figures(work("aten::cat", [[4, 6], [2, 6]], 0, list_element_bytes=2)) == (0, 2 * 2 * 36, None)
    assert work("aten::cat", [[4, 6], [2, 6]], 0) is None
    assert figures(work("aten::_foreach_mul_", lists, 0.9, list_element_bytes=4)) == (29, 8 * 29, "fp32")
    assert figures(work("aten::_foreach_mul_", lists, 0.9)) == (29, None, None)
    fused = work("aten::_fused_adamw_", lists, lists, lists, lists, [], [[], []], 0.001, list_element_bytes=4)
    assert figures(fused) == (17 * 29, 4 * 7 * 29, "fp32")


def test_a_fused_kernel_touches_each_tensor_once_but_no_more_than_it_iterates() -> None:
    assert figures(work("triton_poi_fused_add_0", f(4, 6), f(4, 6), 24)) == (None, 4 * 48, "fp32")
    # one row of a table of 1000
    assert figures(work("triton_red_fused_norm_1", f(1000, 6), f(4, 6), 4, 6)) == (None, 4 * 48, "fp32")


def test_a_template_has_its_grid_as_last_numbers_and_reads_views_of_what_it_is_passed() -> None:
    # PyTorch 2.13 torch/_inductor/select_algorithm.py TritonTemplateKernel.call_kernel: tensors, then the grid
    known = work("triton_tem_fused_mm_0", f(40, 60), f(60, 50), f(40, 50), 2, 1, 1)
    assert figures(known) == (None, 4 * (2400 + 3000 + 2000), "fp32")
    assert known.doubtful_bytes == known.moved_bytes


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("aten::some_new_operator", (f(2, 3),)), ("aten::mm", (((2, 3), "c10::complex<float>"), f(3, 5))),
        ("aten::mm", (((2, 3), "some type"), f(3, 5))), ("aten::index", (f(2, 3), None)),
        ("fbgemm::FP8RowwiseQuantizedToFloat", (((10, 8), BYTES), 0)),
    ],
)  # fmt: skip
def test_what_is_unknown_is_none_and_no_problem(operator: str, arguments: tuple[Any, ...]) -> None:
    assert work(operator, *arguments) is None


MM = json.dumps([FLOAT, FLOAT])


@pytest.mark.parametrize(
    ("dims", "types", "problem"),
    [
        ("[[2,3],[4,5]]", MM, "shapes that contradict each other"),
        ("[[2,3]]", '["float"]', "arguments that do not fit the operator"),
        ("[[2,3],[3]]", MM, "shapes that contradict each other"),
        ("[[2,3]]", MM, "unequal numbers of shapes and types"),
        ("[[2,-3],[-3,5]]", MM, "negative sizes"),
        ("[[2,3],[3,1000000000000000000000]]", MM, "sizes larger than any memory"),
        ("[[[2],3],[3,5]]", MM, "shapes that are not lists of integers"),
        ('[["2",3],[3,5]]', MM, "shapes that are not lists of integers"),
        ("[[2,3],[3,5]]", "[1,2]", "types that are not names"),
        ('{"a":1}', MM, "text that is not a list"),
        ("[[2,3],[3,5]", MM, "text that is not a list"),
        ("NaN", MM, "text that is not a list"),
        ("", MM, "text that is not a list"),
        ("[" * 5000, MM, "text that is not a list"),
    ],
)
def test_damage_is_named(dims: str, types: str, problem: str) -> None:
    outcome = call_work(Record("aten::mm", dims, types))
    assert (outcome.work, outcome.problem) == (None, problem)


@pytest.mark.parametrize(("dims", "types"), [(None, MM), ("[[2,3],[3,5]]", None)])
def test_what_was_not_recorded_is_no_damage(dims: str | None, types: str | None) -> None:
    outcome = call_work(Record("aten::mm", dims, types))
    assert (outcome.work, outcome.problem) == (None, None)


sizes = (
    st.integers(-3, 9)
    | st.sampled_from([2**31, 2**62, 2**80, 10**400])
    | st.booleans()
    | st.floats()
    | st.text("a1", max_size=2)
)
nested = st.recursive(sizes | st.none(), lambda inner: st.lists(inner, max_size=5), max_leaves=12)
shapes = st.lists(st.lists(sizes, max_size=5) | nested, max_size=12)
known_types = st.sampled_from([FLOAT, HALF, LONG, BOOL, "TensorList", "Scalar", "ScalarList", "", "x"])
names = st.lists(known_types | st.integers(), max_size=12)
odd_values = ["", "[1, 1]", "[]", "[0]", "True", "0.5", "-1", "[-9]", "1" * 5000, "1e999", "[[", "nan", "[True]", "0"]
values = st.lists(st.sampled_from(odd_values) | sizes, max_size=12)
operators = st.sampled_from([*FORMULAS, "triton_poi_fused_add_0", *(f"{prefix}x" for prefix in PREFIXES)])


@given(operators, shapes, names, shapes, values, st.sampled_from([None, 2.0, 3.0]))
@example(
    "aten::upsample_nearest2d", [[1, 2, 4, 4], [], []], [FLOAT, "", "ScalarList"], [], ["", "", "[1e999, 2.]"], None
)
def test_nothing_that_stands_in_a_trace_raises(
    operator: str, dims: Any, types: Any, strides: Any, concrete: Any, element: float | None
) -> None:
    check_finite(Record(operator, *map(json.dumps, (dims, types, strides, concrete)), element))


def check_finite(call: Record) -> None:
    outcome = call_work(call)
    if outcome.work is not None:
        for figure in (outcome.work.flop, outcome.work.moved_bytes):
            assert figure is None or 0 <= figure < float("inf")


well_formed = st.lists(
    st.one_of(
        st.tuples(st.lists(st.integers(0, 5), max_size=5), st.sampled_from([FLOAT, HALF, LONG, BOOL]), st.just("")),
        st.tuples(st.just([]), st.just("Scalar"), st.sampled_from(["1", "0", "2", "True", "False", "0.5", "-1", "99999999999999999999"])),
        st.tuples(st.just([]), st.just("ScalarList"), st.sampled_from(["[1, 1]", "[2]", "[]", "[0, 0]", "[-1]", "[True, True, True]"])),
        st.tuples(st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=3), st.just("TensorList"), st.just("")),
        st.tuples(st.just([]), st.just(""), st.just("")),
    ),
    min_size=1,
    max_size=12,
)  # fmt: skip


@given(operators, well_formed)
def test_nor_does_a_call_of_a_stranger_signature(operator: str, arguments: list[tuple[Any, str, str]]) -> None:
    dims, types, concrete = (json.dumps(column) for column in zip(*arguments, strict=True))
    check_finite(Record(operator, dims, types, None, concrete, 4.0))


def record(operator: str, dims: Any, types: Any = None, **context: Any) -> Work | None:
    """Return the work of a call as old or stripped files have it: no strides, no values, perhaps no types."""
    known = Record(operator, json.dumps(dims), None if types is None else json.dumps(types))
    return call_work(known._replace(**context)).work


def test_types_that_were_not_recorded_are_those_of_the_kernel() -> None:
    """Check a table of 10 x 4 halves and 3 indices of 8 bytes: 24 + 2 * 12 read, 2 * 12 written."""
    assert record("aten::mm", [[2, 3], [3, 5]]) is None
    assert figures(record("aten::mm", [[2, 3], [3, 5]], assumed_type="c10::Half")) == (60, 2 * 31, "fp16")
    assert figures(record("aten::embedding", [[10, 4], [3], [], [], []], assumed_type="c10::Half")) == (
        0,
        24 + 48,
        "fp16",
    )
    assert figures(record("aten::add", [[4, 6], [6], []], assumed_type="float")) == (24, 4 * 54, "fp32")
    assert record("aten::relu", [[]], assumed_type="float") is None


def test_the_flop_of_a_sparse_matrix_are_not_those_of_its_shape() -> None:
    """Check an operand of two dimensions without strides, which has no storage of that shape."""
    assert record("aten::mm", [[4, 4], [4, 2]], ["float", "float"], input_strides="[[], [2, 1]]") is None


@pytest.mark.parametrize("types", [None, [], "", ["", ""]], ids=["none", "an empty list", "an empty text", "blanks"])
def test_lists_of_types_without_a_name_are_no_types(types: Any) -> None:
    """Check 2 x 3 x 5 x 2 FLOP of single precision, which the kernel's name tells (PyTorch before 1.9)."""
    product = op("aten::mm", 0, 20, **{"Input dims": [[2, 3], [3, 5]], "Input type": types})
    report = analysed(product, launched("volta_sgemm_128x64_nn", 5, 30, 50, 1))
    assert report.tables["activities"].select("flop", "dtype").row(0) == (60.0, "fp32")


CONV = [[2, 4, 9, 9], [6, 4, 3, 3], [], [], [], [], [], [], []]
CONV_TYPES = ["float", "float", *["GenericList"] * 3, "Int", "Bool", "Bool", "Bool"]


@pytest.mark.parametrize(
    ("result", "space"),
    [("[2, 6, 7, 7]", 49), ("[2, 6, 9, 9]", 81), ("[2, 6, 5, 5]", 25), ("[2, 6, 11, 11]", None), ("[2, 6, 200, 7]", None), (None, None)],
)  # fmt: skip
def test_the_reader_of_a_result_tells_a_convolution_without_values(result: str | None, space: int | None) -> None:
    """Check no padding, a padding of 1, a stride of 2; no convolution of 3 x 3 taps makes 11 or 200 of 9."""
    actual = record("aten::cudnn_convolution", CONV, CONV_TYPES, result_dims=result)
    if space is None:
        assert actual is None
        return
    assert actual.flop == 2 * 2 * 6 * space * 36
    assert actual.moved_bytes == 4 * (648 + 216 + 2 * 6 * space)


def test_the_operator_around_a_gradient_tells_its_sizes() -> None:
    """Cudnn_convolution_backward(self, grad_output, weight, ...) stands around its two parts."""
    outer = {"outer_dims": json.dumps([[2, 4, 9, 9], [2, 6, 7, 7], [6, 4, 3, 3], [], []])}
    types = ["GenericList", "float", "float", "GenericList", "GenericList", "GenericList", "Int"]
    flop = 2 * 2 * 6 * 49 * 36
    # Alone, the weight's gradient lacks the filter's size, and that of the input only the bytes of the result.
    for part, other, alone in (("weight", [2, 4, 9, 9], None), ("input", [6, 4, 3, 3], Work(flop, None, "fp32"))):
        name, dims = f"aten::cudnn_convolution_backward_{part}", [[], [2, 6, 7, 7], other, [], [], [], []]
        assert figures(record(name, dims, types, **outer)) == (flop, 4 * (588 + 648 + 216), "fp32")
        assert record(name, dims, types) == alone


def test_a_tensor_compared_with_itself_is_read_once() -> None:
    dims, types = [[4, 6], [4, 6]], ["float", "float"]
    assert figures(record("aten::ne", dims, types)) == (24, 4 * 48 + 24, "fp32")
    assert figures(record("aten::ne", dims, types, outer="aten::isnan")) == (24, 4 * 24 + 24, "fp32")
    assert figures(record("aten::eq", dims, types, outer="aten::isfinite")) == (24, 4 * 24 + 24, "fp32")
    assert figures(record("aten::ne", [[4, 6], [6]], types, outer="aten::isnan")) == (24, 4 * 30 + 24, "fp32")


@pytest.mark.parametrize(
    ("operator", "arguments", "doubtful"),
    [
        ("aten::mul", (h(4, 6), h(4, 6)), 48),  # may be x * x
        ("aten::mul", (h(4, 6), f(4, 6)), 0),
        ("aten::mul", (h(4, 6), ((4, 6), HALF, (1, 4))), 0),  # of other strides
        ("aten::add", (h(4, 6), h(6), 1), 0),
        ("aten::copy_", (h(4, 6), h(4, 6), False), 0),
    ],
)
def test_what_need_not_be_read_twice_is_reported(operator: str, arguments: tuple[Any, ...], doubtful: float) -> None:
    actual = work(operator, *arguments)
    assert actual.doubtful_bytes == doubtful


def test_without_strides_a_source_may_be_expanded() -> None:
    copied = record("aten::copy_", [[4, 6], [4, 6], []], ["float", "float", "Scalar"])
    assert (copied.moved_bytes, copied.doubtful_bytes) == (192, 96)
