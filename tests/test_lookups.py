"""Test look-ups and sums by row number, compared with joins and groups."""

import itertools
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st
from kineto import annotation, call, kernel, loaded, op, python
from tiers import examples

from trace_analyzer.analyses.host import Tree, host_of
from trace_analyzer.frames import arrays, lookups, lookups as rows_module

_ids = st.one_of(st.none(), st.integers(0, 12))
_names = st.sampled_from(["dispatch", "python", "unlinked", "another"])


def u32(values: list[int | None]) -> pl.Series:
    return pl.Series(values, dtype=pl.UInt32)


@given(st.lists(st.integers(0, 12), unique=True), st.lists(_ids))
def test_what_is_looked_up_is_what_a_left_join_finds(known: list[int], asked: list[int | None]) -> None:
    table = pl.DataFrame({"id": u32(known), "name": [f"n{i}" for i in known]}, schema_overrides={"name": pl.String})
    rows = pl.DataFrame({"id": u32(asked)})
    expected = rows.join(table, on="id", how="left", maintain_order="left").drop("id")
    assert lookups.lookup(table, rows, "id").equals(expected)
    assert lookups.lookup_inner(rows, table, "id").equals(rows.join(table, on="id", how="inner", maintain_order="left"))


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
        numbers, firsts = lookups.factorize(*frame.select(columns[:count]))
    assert firsts.to_list() == list(known.values())
    assert [keys[firsts[number]] for number in numbers] == keys


@pytest.mark.parametrize(
    "dtype", [pl.String(), pl.Categorical(), pl.Enum(["another", "dispatch", "python", "unlinked"])]
)
@given(st.lists(st.tuples(st.none() | _names, st.floats(allow_nan=False))))
def test_texts_are_looked_at_once_each(dtype: pl.DataType, rows: list[tuple[str | None, float]]) -> None:
    frame = pl.DataFrame(rows, schema={"name": pl.String, "size": pl.Float64}, orient="row")
    figures = pl.col("name").str.contains("p").alias("found"), pl.col("size") * 2
    assert lookups.map_unique(frame.cast({"name": dtype}), *figures).equals(frame.select(figures))


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
    actual = lookups.sum_runs(frame, "gap", "cause", "ns")
    assert actual.schema == pl.Schema(schema)
    assert actual.rows() == expected


def test_the_first_row_changes_and_others_where_any_column_does() -> None:
    frame = pl.DataFrame({"a": [1, 1, 2, 2], "b": ["x", "x", "x", "y"]})
    assert frame.select(lookups.starts_group("a", "b")).to_series().to_list() == [True, False, True, True]


@pytest.mark.parametrize(
    ("values", "kept"), [([1, 1], 2), ([1, 2], 1), ([None, 1], 1), ([2, 2], 0), ([], 0), ([None], 0)]
)
def test_own_rows_are_those_of_the_value(values: list[int | None], kept: int) -> None:
    frame = pl.DataFrame({"device": values}, schema={"device": pl.Int64})
    rows = lookups.where_equal(frame, "device", 1)
    assert rows.get_column("device").to_list() == [1] * kept


@given(st.lists(st.tuples(st.sampled_from([None, 1, 2]), st.integers(-9, 9))))
def test_a_figure_of_each_group_is_that_within_it(rows: list[tuple[int | None, int]]) -> None:
    frame = pl.DataFrame(rows, schema={"device": pl.Int64, "ns": pl.Int64}, orient="row")
    for some in (frame, frame.filter(pl.col("device") == 1)):
        sums = pl.col("ns").cum_sum()
        assert some.select(lookups.over_group(some, "device", sums)).equals(some.select(sums.over("device")))


ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2**40), st.integers(0, 2**40)), max_size=30)


@given(ROWS)
@settings(max_examples=examples(100))
def test_combinations_are_those_of_tuples(rows: list[tuple[int, int, int]]) -> None:
    numbers = arrays.combined(list(np.array(rows, np.int64).reshape(-1, 3).T)).tolist()
    expected = {row: number for number, row in enumerate(sorted(set(rows)))}
    assert numbers == [expected[row] for row in rows]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=20))
@settings(max_examples=examples(50))
def test_figures_by_code(rows: list[tuple[int, int]]) -> None:
    codes, values = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    groups = [[value for code, value in rows if code == wanted] for wanted in range(6)]
    assert arrays.sums_by(codes, values, 6).tolist() == [sum(group) for group in groups]
    assert arrays.codes_of(pl.Series(["b", None, "a", "b", None])).tolist() == [0, 1, 2, 0, 1], "null is a value"


def test_each_event_takes_what_its_kind_and_name_say() -> None:
    host = host_of(loaded(
        python("train.py(1): f", 0, 90), op("aten::mm", 1, 5), op("aten::mm", 10, 5),
        annotation("Optimizer.step#SGD.step", 20, 9),
        call("cudaDeviceSynchronize", 30, 5, correlation=7), call("cudaMalloc", 40, 5),
    ))  # fmt: skip
    assert host.events.select("kind", "name", "end_ns", "work", "marks").rows() == [
        ("python", "train.py(1): f", 90_000, None, False),
        ("operator", "aten::mm", 6_000, None, False),
        ("operator", "aten::mm", 15_000, None, False),
        ("annotation", "Optimizer.step#SGD.step", 29_000, None, True),
        ("runtime", "cudaDeviceSynchronize", 35_000, "blocking", False),
        ("runtime", "cudaMalloc", 45_000, "allocation", False),
    ]
    assert host.names.height == 5
    assert host.calls.select("name", "correlation").rows() == [("cudaDeviceSynchronize", 7), ("cudaMalloc", None)]
    assert host.each(pl.col("name").str.starts_with("aten")).to_list() == [False, True, True, False, False, False]
    assert host.those(pl.col("kind") == "operator").get_column("event_id").to_list() == [1, 2]
    assert host.calls_of(pl.col("name").str.contains("Malloc")).get_column("event_id").to_list() == [5]
    assert host.texts(pl.Series([4, None], dtype=pl.UInt32)).to_list() == ["cudaDeviceSynchronize", None]
    none = host_of(loaded(kernel("k", 0, 1)))
    assert (none.events.height, none.names.height, none.calls.height) == (0, 0, 0)


def test_ancestors_of_a_deep_stack() -> None:
    """0 holds 1 holds 2 ... holds 999; 1000 stands alone."""
    parents = pl.Series([None, *range(999), None], dtype=pl.UInt32)
    tree = Tree(parents)
    wanted = pl.Series([row in (3, 500, 1000) for row in range(1001)])
    assert tree.nearest(wanted).to_list() == [*[None] * 3, *[3] * 497, *[500] * 500, 1000]
    assert tree.outermost(wanted).to_list() == [*[None] * 3, *[3] * 997, 1000]
    values = pl.Series([{3: 2, 500: 3, 700: 0, 1000: 1}.get(row, 4) for row in range(1001)])
    assert tree.least(values, 4).to_list() == [*[None] * 3, *[2] * 697, *[0] * 300, 1]


def test_numbered_rows_are_found_without_a_join() -> None:
    ids, values = pl.Series([4, 1], dtype=pl.UInt32), pl.Series("v", [1.5, None])
    assert lookups.scatter(ids, values, 5).to_list() == [None, None, None, None, 1.5]
    assert lookups.inverse_index(ids, 5).to_list() == [None, 1, None, None, 0]
