"""Check that combinations of codes: numbers, sums and first rows equal those computed with dictionaries."""

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from trace_analyzer.frames.arrays import codes_of, combined, first_of_each, sums_by

ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2**40), st.integers(0, 2**40)), max_size=30)


@given(ROWS)
@settings(max_examples=examples(100))
def test_combinations_are_those_of_tuples(rows: list[tuple[int, int, int]]) -> None:
    columns = (
        [np.array(column, np.int64) for column in zip(*rows, strict=True)] if rows else [np.zeros(0, np.int64)] * 3
    )
    numbers = combined(columns).tolist()
    expected = {row: number for number, row in enumerate(sorted(set(rows)))}
    assert numbers == [expected[row] for row in rows]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=20))
@settings(max_examples=examples(50))
def test_figures_by_code(rows: list[tuple[int, int]]) -> None:
    codes, values = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    groups = [[value for code, value in rows if code == wanted] for wanted in range(6)]
    assert sums_by(codes, values, 6).tolist() == [sum(group) for group in groups]
    firsts = [[code for code, _ in rows].index(code) for code in sorted({code for code, _ in rows})]
    assert first_of_each(codes).tolist() == firsts


def test_null_is_a_value() -> None:
    assert codes_of(pl.Series(["b", None, "a", "b", None])).tolist() == [0, 1, 2, 0, 1]
