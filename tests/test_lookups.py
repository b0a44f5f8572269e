"""Test look-ups and sums by row number, compared with joins and groups."""

import itertools
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trace_analyzer.frames import lookups as rows_module
from trace_analyzer.frames.lookups import (
    factorize,
    lookup,
    lookup_inner,
    map_unique,
    over_group,
    starts_group,
    sum_runs,
    where_equal,
)

_ids = st.one_of(st.none(), st.integers(0, 12))
_names = st.sampled_from(["dispatch", "python", "unlinked", "another"])


def u32(values: list[int | None]) -> pl.Series:
    return pl.Series(values, dtype=pl.UInt32)


@given(st.lists(st.integers(0, 12), unique=True), st.lists(_ids))
def test_what_is_looked_up_is_what_a_left_join_finds(known: list[int], asked: list[int | None]) -> None:
    table = pl.DataFrame({"id": u32(known), "name": [f"n{i}" for i in known]}, schema_overrides={"name": pl.String})
    rows = pl.DataFrame({"id": u32(asked)})
    expected = rows.join(table, on="id", how="left", maintain_order="left").drop("id")
    assert lookup(table, rows, "id").equals(expected)
    assert lookup_inner(rows, table, "id").equals(rows.join(table, on="id", how="inner", maintain_order="left"))


_values = {
    "name": (st.none() | _names, pl.Categorical()),
    "part": (st.none() | _names, pl.Enum(["another", "dispatch", "python", "unlinked"])),
    "id": (_ids, pl.UInt32()),
    "far": (st.sampled_from([None, -(1 << 63), -1, 0, (1 << 63) - 1]), pl.Int64()),
}


@pytest.mark.parametrize("room", [0, 1 << 20])
@given(
    st.lists(st.tuples(*(values for values, _ in _values.values()))), st.permutations(list(_values)), st.integers(1, 4)
)
def test_combinations_are_numbered_as_they_appear(room: int, rows: list[Any], columns: list[str], count: int) -> None:
    """``room``: that of the table, without which it takes groups."""
    frame = pl.DataFrame(rows, schema={name: dtype for name, (_, dtype) in _values.items()}, orient="row")
    keys = frame.select(columns[:count]).rows()
    known: dict[Any, int] = {}
    for i, key in enumerate(keys):
        known.setdefault(key, i)
    with patch.object(rows_module, "_TABLE", room):
        numbers, firsts = factorize(*frame.select(columns[:count]))
    assert firsts.to_list() == list(known.values())
    assert [keys[firsts[number]] for number in numbers] == keys


@pytest.mark.parametrize(
    "dtype", [pl.String(), pl.Categorical(), pl.Enum(["another", "dispatch", "python", "unlinked"])]
)
@given(st.lists(st.tuples(st.none() | _names, st.floats(allow_nan=False))))
def test_texts_are_looked_at_once_each(dtype: pl.DataType, rows: list[tuple[str | None, float]]) -> None:
    frame = pl.DataFrame(rows, schema={"name": pl.String, "size": pl.Float64}, orient="row")
    figures = pl.col("name").str.contains("p").alias("found"), pl.col("size") * 2
    assert map_unique(frame.cast({"name": dtype}), *figures).equals(frame.select(figures))


@given(st.lists(st.tuples(st.integers(0, 3), _names, st.integers(-9, 1 << 40))))
def test_runs_are_summed_up_one_by_one_and_by_name(rows: list[tuple[int, str, int]]) -> None:
    schema = {"gap": pl.UInt32, "cause": pl.Categorical(), "ns": pl.Int64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    expected: list[tuple[int, str, int]] = []
    for _, run in itertools.groupby(rows, key=lambda row: row[0]):
        sums: dict[tuple[int, str], int] = {}
        for gap, name, ns in run:
            sums[gap, name] = sums.get((gap, name), 0) + ns
        expected += [(*key, ns) for key, ns in sums.items()]
    actual = sum_runs(frame, "gap", "cause", "ns")
    assert actual.schema == pl.Schema(schema)
    assert actual.rows() == expected


def test_the_first_row_changes_and_others_where_any_column_does() -> None:
    frame = pl.DataFrame({"a": [1, 1, 2, 2], "b": ["x", "x", "x", "y"]})
    assert frame.select(starts_group("a", "b")).to_series().to_list() == [True, False, True, True]


@pytest.mark.parametrize(
    ("values", "kept"), [([1, 1], 2), ([1, 2], 1), ([None, 1], 1), ([2, 2], 0), ([], 0), ([None], 0)]
)
def test_own_rows_are_those_of_the_value(values: list[int | None], kept: int) -> None:
    frame = pl.DataFrame({"device": values}, schema={"device": pl.Int64})
    rows = where_equal(frame, "device", 1)
    assert rows.get_column("device").to_list() == [1] * kept


@given(st.lists(st.tuples(st.sampled_from([None, 1, 2]), st.integers(-9, 9))))
def test_a_figure_of_each_group_is_that_within_it(rows: list[tuple[int | None, int]]) -> None:
    frame = pl.DataFrame(rows, schema={"device": pl.Int64, "ns": pl.Int64}, orient="row")
    for some in (frame, frame.filter(pl.col("device") == 1)):
        sums = pl.col("ns").cum_sum()
        assert some.select(over_group(some, "device", sums)).equals(some.select(sums.over("device")))
