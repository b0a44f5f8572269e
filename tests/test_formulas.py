"""FLOP and bytes of calls, against products worked out by hand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trace_analyzer.analyses.formulas import DTYPES, Work, call_work


def work(operator: str, dims: object, types: object) -> Work | None:
    return call_work(operator, json.dumps(dims), json.dumps(types))


HALF, FLOAT, BF16, INT8 = "c10::Half", "float", "c10::BFloat16", "signed char"


@pytest.mark.parametrize(
    ("operator", "dims", "types", "expected"),
    [
        ("aten::mm", [[2, 3], [3, 5]], [FLOAT, FLOAT], Work(60, 4 * 31, "fp32")),
        (
            "aten::addmm",
            [[5], [2, 3], [3, 5], [], []],
            [HALF, HALF, HALF, "Scalar", "Scalar"],
            Work(60, 2 * 31, "fp16"),
        ),
        ("aten::bmm", [[7, 2, 3], [7, 3, 5]], [BF16, BF16], Work(420, 7 * 2 * 31, "bf16")),
        ("aten::baddbmm", [[7, 2, 5], [7, 2, 3], [7, 3, 5]], [BF16] * 3, Work(420, 7 * 2 * 31, "bf16")),
        ("aten::_int_mm", [[2, 3], [3, 5]], [INT8, INT8], Work(60, 31, "int8")),
    ],
)
def test_contractions(operator: str, dims: object, types: object, expected: Work) -> None:
    assert work(operator, dims, types) == expected


@pytest.mark.parametrize(
    ("operator", "dims", "types"),
    [
        ("aten::add", [[2, 3], [2, 3]], [FLOAT, FLOAT]),
        ("aten::mm", [[2, 3], [4, 5]], [FLOAT, FLOAT]),
        ("aten::mm", [[2, 3]], [FLOAT]),
        ("aten::mm", [[2, 3], [3]], [FLOAT, FLOAT]),
        ("aten::mm", [[2, 0], [0, 5]], [FLOAT, FLOAT]),
        ("aten::mm", [[2, -3], [-3, 5]], [FLOAT, FLOAT]),
        ("aten::mm", [[2, 3], [3, 5]], ["c10::complex<float>", FLOAT]),
        ("aten::mm", [[2, 3], [3, 5]], []),
        ("aten::mm", [[[2], 3], [3, 5]], [FLOAT, FLOAT]),
        ("aten::mm", {"a": 1}, [FLOAT, FLOAT]),
        ("aten::mm", 5, [FLOAT]),
        ("aten::bmm", [[7, 2, 3], [8, 3, 5]], [FLOAT, FLOAT]),
    ],
)
def test_what_is_unknown_is_none(operator: str, dims: object, types: object) -> None:
    assert work(operator, dims, types) is None


@pytest.mark.parametrize("text", [None, "", "[[2,3],[3,5]", "NaN"])
def test_text_that_is_no_shape(text: str | None) -> None:
    assert call_work("aten::mm", text, '["float","float"]') is None
    assert call_work("aten::mm", "[[2,3],[3,5]]", text) is None


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.sampled_from(sorted(DTYPES)))
def test_a_batch_is_so_many_products(b: int, m: int, k: int, n: int, dtype: str) -> None:
    one = work("aten::mm", [[m, k], [k, n]], [dtype, dtype])
    many = work("aten::bmm", [[b, m, k], [b, k, n]], [dtype, dtype])
    assert one is not None
    assert one.flop == sum(2 for _ in range(m * n) for _ in range(k))
    assert many == Work(b * one.flop, b * one.moved_bytes, one.dtype)
