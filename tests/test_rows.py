"""Look-ups and sums by row number, against what joins and groups say."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trace_analyzer.analyses.rows import changes, looked_up, own, sums_by, sums_of_runs, with_known

_ids = st.one_of(st.none(), st.integers(0, 12))
_names = st.sampled_from(["dispatch", "python", "unlinked", "another"])


def u32(values: list[int | None]) -> pl.Series:
    return pl.Series(values, dtype=pl.UInt32)


@given(st.lists(st.integers(0, 12), unique=True), st.lists(_ids))
def test_what_is_looked_up_is_what_a_left_join_finds(known: list[int], asked: list[int | None]) -> None:
    table = pl.DataFrame({"id": u32(known), "name": [f"n{i}" for i in known]}, schema_overrides={"name": pl.String})
    rows = pl.DataFrame({"id": u32(asked)})
    expected = rows.join(table, on="id", how="left", maintain_order="left").drop("id")
    assert looked_up(table, rows, "id").equals(expected)
    assert with_known(rows, table, "id").equals(rows.join(table, on="id", how="inner", maintain_order="left"))


@given(st.lists(st.tuples(st.integers(0, 5), _names, st.integers(1, 1 << 40))))
def test_sums_by_row_and_name_are_those_of_a_group(rows: list[tuple[int, str, int]]) -> None:
    schema = {"row": pl.UInt32, "name": pl.Categorical(), "ns": pl.Int64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    found = sums_by(frame, "row", "name", "ns")
    assert found.schema == pl.Schema(schema)
    assert sorted(found.rows()) == sorted(frame.group_by("row", "name").agg(pl.col("ns").sum()).rows())


def test_sums_of_nothing_are_left_out() -> None:
    frame = pl.DataFrame({"row": u32([3, 3]), "name": pl.Series(["a", "b"], dtype=pl.Categorical), "ns": [0, 4]})
    assert sums_by(frame, "row", "name", "ns").rows() == [(3, "b", 4)]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(-9, 9))))
def test_runs_are_summed_up_one_by_one(rows: list[tuple[int, int, int]]) -> None:
    frame = pl.DataFrame(rows, schema={"a": pl.Int64, "b": pl.Int64, "ns": pl.Int64}, orient="row")
    expected: list[tuple[int, int, int]] = []
    for i, (a, b, ns) in enumerate(rows):
        if i and rows[i - 1][:2] == (a, b):
            expected[-1] = (a, b, expected[-1][2] + ns)
        else:
            expected.append((a, b, ns))
    assert sums_of_runs(frame, ["a", "b"], ["ns"]).rows() == expected


def test_the_first_row_changes_and_others_where_any_column_does() -> None:
    frame = pl.DataFrame({"a": [1, 1, 2, 2], "b": ["x", "x", "x", "y"]})
    assert frame.select(changes("a", "b")).to_series().to_list() == [True, False, True, True]


@pytest.mark.parametrize(
    ("values", "kept"), [([1, 1], 2), ([1, 2], 1), ([None, 1], 1), ([2, 2], 0), ([], 0), ([None], 0)]
)
def test_own_rows_are_those_of_the_value(values: list[int | None], kept: int) -> None:
    frame = pl.DataFrame({"device": values}, schema={"device": pl.Int64})
    rows = own(frame, "device", 1)
    assert rows.get_column("device").to_list() == [1] * kept
