"""Test loops over intervals and trees, compiled and as plain Python: equal, correct, and with indices in range."""

import itertools
import runpy
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
import test_intervals
import test_lookups
from conftest import SAMPLES
from hypothesis import given, strategies as st

import trace_analyzer as ta
from trace_analyzer.frames import _path_loops, _row_loops, _span_loops, intervals, lookups
from trace_analyzer.frames._row_loops import NEVER, NONE
from trace_analyzer.replay import graph

IS_COMPILED = not isinstance(_span_loops.order, FunctionType)


def _plain(*modules: ModuleType) -> SimpleNamespace:
    """Load the loops as plain Python, as used without compilation."""
    paths = [Path(lookups.__file__).with_name(f"{module.__name__.rpartition('.')[2]}.py") for module in modules]
    return SimpleNamespace(**{name: loop for path in paths for name, loop in runpy.run_path(str(path)).items()})


COMPILED = SimpleNamespace(**(vars(_row_loops) | vars(_span_loops)))
PLAIN = _plain(_row_loops, _span_loops)


class Checked(list[int]):
    """Check every index of a column, as compiled loops do not."""

    def __getitem__(self, i: Any) -> Any:
        assert 0 <= i < len(self), i
        return super().__getitem__(i)

    def __setitem__(self, i: Any, value: Any) -> None:
        assert 0 <= i < len(self), i
        super().__setitem__(i, value)


Span = tuple[int, int, int]
_any_span = st.tuples(st.integers(-1, 2), st.integers(0, 9), st.integers(0, 9))
_edges = st.sampled_from([NEVER, NEVER + 1, 0, (1 << 63) - 1])
anything = st.lists(st.one_of(_any_span, st.tuples(_edges, st.integers(0, 9), st.integers(0, 9))), max_size=12)
_parents = st.integers(0, 12).flatmap(
    lambda n: st.lists(st.one_of(st.just(NONE), st.integers(0, n + 1)), min_size=n, max_size=n)
)


def columns(rows: list[Span]) -> tuple[list[int], list[int], list[int]]:
    return [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]


def ran(name: str, *parts: Any) -> Any:
    """Return a loop's result, or its failure, and all that it wrote: plain with checked indices, and then compiled.

    Parts are columns to read, (letter, values), columns to write, (letter, length), and others.
    """
    filled = [(p[0], p[1] if isinstance(p[1], list) else [7] * p[1]) if isinstance(p, tuple) else p for p in parts]
    rooms = [i for i, p in enumerate(parts) if isinstance(p, tuple) and isinstance(p[1], int)]
    arguments = [Checked(p[1]) if isinstance(p, tuple) else p for p in filled]
    actual = _called(getattr(PLAIN, name), arguments), *(list(arguments[i]) for i in rooms)
    packed = [memoryview(array(*p)) if isinstance(p, tuple) else p for p in filled]
    assert (_called(getattr(COMPILED, name), packed), *(list(packed[i]) for i in rooms)) == actual
    return actual


def _called(loop: Callable[..., Any], arguments: list[Any]) -> Any:
    try:
        return loop(*arguments)
    except ValueError as error:
        return str(error)


def flat_of(rows: list[Span]) -> list[tuple[str, list[int]]]:
    return [("q", column) for column in columns(rows)]


@given(anything | st.lists(_any_span, min_size=150, max_size=300), st.integers(0, 6))
def test_order_is_that_of_a_stable_sort(rows: list[Span], tracks: int) -> None:
    """``tracks``: so many are put together before they are sorted."""
    room = ("q", tracks)
    is_wrong, order, *_ = ran("order", *flat_of(rows), ("I", len(rows)), ("I", len(rows)), room, room)
    expected = sorted(range(len(rows)), key=lambda r: (rows[r][0], rows[r][1], -rows[r][2]))
    assert is_wrong == (expected != list(range(len(rows))))
    if is_wrong:
        assert order == expected


@given(anything)
def test_loops_over_spans_stay_in_range_whatever_these_are(rows: list[Span]) -> None:
    n = len(rows)
    count, *_ = ran("union", *flat_of(rows), 0, ("I", n), ("q", n))
    assert count <= n
    ran("enclosing", *flat_of(rows), ("I", n), ("I", n))
    count, *_ = ran("innermost", *flat_of(rows), ("I", n), ("I", 2 * n), ("q", 2 * n), ("q", 2 * n))
    assert count <= 2 * n


@given(anything, anything, st.booleans(), st.integers(0, 9))
def test_look_ups_stay_in_range_of_any_segments(
    segments: list[Span], rows: list[Span], outside: bool, room: int
) -> None:
    on, since, until = flat_of(rows)
    n = len(rows)
    ran("around", *flat_of(segments), on, since, ("I", n))
    ran("around", *flat_of(segments)[:2], ("q", []), on, since, ("I", n))
    ran("passed", since, until, ("I", n))
    ran("covered", *flat_of(segments), ("q", len(segments)), on, since, until, ("q", n))
    ran("cut", *flat_of(segments), on, since, until, outside, ("I", room), ("I", room), ("q", room), ("q", room))
    codes = ("I", [(track + room) % 11 for track, _, _ in rows])
    ran("overlaps", *flat_of(segments), on, since, until, codes, room, ("q", len(segments) * room))


@given(st.lists(st.tuples(st.integers(0, 12) | st.just(NONE), st.integers(0, 5) | st.just(NONE))), st.integers(0, 9))
def test_sums_are_of_the_groups_that_there_are_or_of_values_by_code(rows: list[tuple[int, int]], size: int) -> None:
    groups, codes, values = ("I", [row[0] for row in rows]), ("I", [row[1] for row in rows]), [3, -5, 1 << 40, 0, 7]
    own = [values[code % 5] for _, code in rows]
    _, totals = ran("sums", groups, False, groups, ("q", own), ("q", size))
    assert totals == [
        sum(value for value, (group, _) in zip(own, rows, strict=True) if group == i) for i in range(size)
    ]
    failed, totals = ran("sums", groups, True, codes, ("q", values), ("q", size))
    if any(group < size and code >= len(values) for group, code in rows):
        assert failed == "no such code"
    else:
        assert totals == [sum(values[code] for group, code in rows if group == i) for i in range(size)]


_codes = st.integers(0, 4) | st.just(NONE)


@given(st.lists(st.tuples(st.integers(0, 4), _codes)), st.booleans(), st.integers(0, 30), st.integers(0, 9))
def test_groups_are_split_where_there_is_room(rows: list[tuple[int, int]], in_runs: bool, size: int, room: int) -> None:
    groups, codes, n = ("I", [group for group, _ in rows]), ("I", [code for _, code in rows]), len(rows)
    ran("refine", groups, codes, 4, in_runs, ("I", size), ("I", n), ("I", room))
    starts = [i for i in range(n) if i == 0 or rows[i - 1][0] != rows[i][0]]
    keys = [(bisect_right(starts, i) if in_runs else 0, *row) for i, row in enumerate(rows)]
    count, _, numbers, firsts = ran(
        "refine", groups, codes, 5, in_runs, ("I", 6 if in_runs else 30), ("I", n), ("I", n)
    )
    assert [keys[first] for first in firsts[:count]] == list(dict.fromkeys(keys))
    assert [keys.index(key) for key in keys] == [firsts[number] for number in numbers]


@given(st.lists(st.tuples(st.integers(0, 12) | st.just(NONE), st.integers(-9, 9))), st.integers(0, 9))
def test_the_greatest_of_each_group_is_the_first_of_these(values: list[tuple[int, int]], size: int) -> None:
    _, rows = ran("greatest", ("I", [group for group, _ in values]), ("q", [value for _, value in values]), ("I", size))
    of = [[i for i, (group, _) in enumerate(values) if group == g] for g in range(size)]
    assert rows == [max(own, key=lambda i: (values[i][1], -i), default=NONE) for own in of]


@given(st.lists(st.integers(0, 9)), st.integers(0, 9), st.lists(st.integers(0, 12) | st.just(NONE)))
def test_rows_are_found_by_numbers_where_there_is_room(numbers: list[int], size: int, asked: list[int]) -> None:
    outcome, places = ran("places", ("I", numbers), ("I", size))
    if any(number >= size for number in numbers):
        assert outcome == "no room for such a number"
        return
    last = {number: row for row, number in enumerate(numbers)}
    assert places == [last.get(number, NONE) for number in range(size)]
    _, actual = ran("picked", ("I", places), ("I", asked), ("I", len(asked)))
    assert actual == [last.get(number, NONE) for number in asked]


def way_up(parents: list[int], row: int) -> list[int] | None:
    """Return the row and those above it, or None where that has no end or leads out of the rows."""
    way: list[int] = []
    while row != NONE:
        if row >= len(parents) or row in way:
            return None
        way.append(row)
        row = parents[row]
    return way


@given(_parents, st.data())
def test_what_is_above_is_found_in_any_order_and_refused_without_a_tree(
    parents: list[int], data: st.DataObject
) -> None:
    n = len(parents)
    wishes = data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    values = data.draw(st.lists(st.sampled_from([0, 1, 2, NONE]), min_size=n, max_size=n))
    ways = [way_up(parents, row) for row in range(n)]
    above = [[row for row in way or [] if wishes[row]] for way in ways]
    least = [min(values[row] for row in way or [0]) for way in ways]
    for rule, wished, own, expected in (
        (_row_loops.NEAREST, wishes, list(range(n)), [next(iter(rows), NONE) for rows in above]),
        (_row_loops.FARTHEST, wishes, list(range(n)), [next(reversed(rows), NONE) for rows in above]),
        (_row_loops.LEAST, [v != NONE for v in values], values, least),
    ):
        outcome, actual, _ = ran("inherited", ("I", parents), ("B", wished), ("I", own), rule, ("I", n), ("I", n))
        if None in ways:
            assert outcome == "no tree"
        else:
            assert (outcome, actual) == (None, expected)


COLUMNS: dict[str, tuple[str, str, str, list[Any]]] = {
    "order": ("qqqIIqq", "2222233", "", []),
    "union": ("qqqIq", "22222", "", [0]),
    "sums": ("IIqq", "2225", "13", [False]),
    "enclosing": ("qqqII", "22222", "", []),
    "innermost": ("qqqIIqq", "2222444", "", []),
    "inherited": ("IBIII", "22222", "", [True]),
    "around": ("qqqqqI", "222333", "", []),
    "covered": ("qqqqqqqq", "22223333", "", []),
    "cut": ("qqqqqqIIqq", "2223331111", "", [True]),
    "refine": ("IIIII", "22929", "24", [1, True]),
    "greatest": ("IqI", "225", "2", []),
    "overlaps": ("qqqqqqIq", "22233332", "", [1]),
    "picked": ("III", "522", "0", []),
    "passed": ("qqI", "522", "0", []),
}
"""Loop -> types and lengths of its columns, columns of any length (of groups, say), its other arguments."""
PLACES = {"cut": 6, "inherited": 3, "refine": 2, "overlaps": 7, "union": 3, "sums": 1}
"""Number of columns before the other arguments."""


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_different_lengths_are_refused(name: str) -> None:
    letters, sizes, of_any_length, others = COLUMNS[name]
    for loops, wrong in itertools.product((PLAIN, COMPILED), range(len(sizes))):
        if str(wrong) not in of_any_length:
            lengths = [int(size) - (i == wrong) for i, size in enumerate(sizes)]
            arguments = [memoryview(array(letter, [0] * n)) for letter, n in zip(letters, lengths, strict=True)]
            at = PLACES.get(name, 0)
            with pytest.raises(ValueError, match="different lengths"):
                getattr(loops, name)(*arguments[:at], *others, *arguments[at:])


_LAWS = {
    f"{module.__name__}: {name}": law
    for module in (test_intervals, test_lookups)
    for name, law in vars(module).items()
    if name.startswith("test_") and not hasattr(law, "pytestmark")
}


@contextmanager
def plain_loops(*, arrow: bool) -> Iterator[None]:
    """Let the frames use the plain loops, with columns that share their memory or without."""
    with (
        patch.object(lookups, "_row_loops", PLAIN),
        patch.object(intervals, "_span_loops", PLAIN),
        patch.object(lookups, "_row_loops", PLAIN),
        patch.object(lookups, "_arrow", lookups._arrow if arrow else None),
    ):
        yield


@pytest.mark.parametrize("arrow", [True, False])
@pytest.mark.parametrize("name", _LAWS)
def test_plain_loops_keep_the_laws_of_the_compiled_ones(name: str, arrow: bool) -> None:
    """``arrow``: with columns that share their memory all the same."""
    law = _LAWS[name]
    if arrow and lookups._arrow is None:
        pytest.skip("not compiled")
    with plain_loops(arrow=arrow):
        law()


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.json.gz")), ids=lambda path: path.name)
def test_a_report_and_its_replay_are_equal_without_compiled_loops(sample: Path) -> None:
    def outputs() -> tuple[str, ...]:
        report = ta.analyze(sample)
        return report.to_json(), report.to_markdown(), ta.whatif(report).summary()

    compiled = outputs()
    path_loops = _plain(_path_loops)
    with (
        plain_loops(arrow=False),
        patch.object(graph, "_path_loops", path_loops),
    ):
        assert outputs() == compiled


@pytest.mark.skipif(not IS_COMPILED, reason="not compiled")
def test_compiled_loops_take_copies_where_columns_cannot_be_shared() -> None:
    with patch.object(lookups, "_arrow", None):
        test_intervals.test_labelled_cuts_at_edges_and_names_the_segment()
        test_lookups.test_ancestors_of_a_deep_stack()


@pytest.mark.parametrize("shared", [True, False])
def test_columns_go_to_the_loops_and_back(shared: bool) -> None:
    with patch.object(lookups, "_arrow", lookups._arrow if shared else None):
        pieces = pl.concat([pl.Series([1, None], dtype=pl.Int32), pl.Series([3], dtype=pl.Int32)], rechunk=False)
        assert list(lookups.times_of(pieces)) == [1, NEVER, 3]
        assert list(lookups.rows_of(pl.Series([4, None, 6]).slice(1))) == [NONE, 6]
        assert list(lookups.flags_of(pl.Series([True, None, False]))) == [1, 0, 0]
        assert list(lookups.times_of(pl.Series([], dtype=pl.Int64))) == []
        room = lookups.Buffer(3, of_rows=True)
        room.values[0], room.values[1] = 5, NONE
        series = room.series(2)
        assert (series.to_list(), series.dtype) == ([5, None], pl.UInt32)
        room = lookups.Buffer(1)
        room.values[0] = NEVER
        series = room.series()
        assert (series.to_list(), series.dtype) == ([NEVER], pl.Int64)


def test_tracks_are_distinguished_by_columns_of_any_type() -> None:
    segments = pl.DataFrame(
        {"a": ["x", "y", "y"], "b": [1, 1, None], "start_ns": [0, 5, 2], "end_ns": [9, 9, 3], "c": [1, 2, 3]}
    )
    points = pl.DataFrame({"a": ["y", "x", "z", None, "y"], "b": [1, 1, 1, 1, None], "t": [5, 5, 5, 5, 2]})
    assert intervals.lookup_at(points, "t", segments, ["a", "b"], ["c"])["c"].to_list() == [2, 1, None, None, None]
    assert intervals.lookup_at(points, "t", segments, ["a"], ["c"])["c"].to_list() == [2, 1, None, None, 3]
    assert intervals.union(segments, ["b"]).rows() == [(None, 2, 3), (1, 0, 9)]
    assert intervals.union(segments, ["a", "b"]).rows() == [("x", 1, 0, 9), ("y", None, 2, 3), ("y", 1, 5, 9)]
    for least in (NEVER, 0):
        tracks = pl.DataFrame({"k": [least], "start_ns": [0], "end_ns": [9], "c": [1]})
        keyed = pl.DataFrame({"k": [least, None, 1], "t": [5, 5, 5]})
        assert intervals.lookup_at(keyed, "t", tracks, ["k"], ["c"])["c"].to_list() == [1, None, None]


class TestArrow:
    arrow = pytest.importorskip("trace_analyzer.frames._arrow", reason="not compiled")

    def test_only_whole_columns_of_known_types_are_read(self) -> None:
        numbers = pl.Series([1, 2])
        assert memoryview(self.arrow.Values(numbers.slice(1))).cast("q").tolist() == [2]
        with pytest.raises(ValueError, match="nulls"):
            self.arrow.Values(pl.Series([1, None]))
        with pytest.raises(ValueError, match="piece"):
            self.arrow.Values(pl.concat([numbers, numbers], rechunk=False))
        for other in (pl.Series([1.5]), pl.Series(["a"]), pl.Series([True]), pl.Series([1], dtype=pl.Int32)):
            with pytest.raises(TypeError, match="no column of"):
                self.arrow.Values(other)

    def test_values_outlive_their_series(self) -> None:
        view = memoryview(self.arrow.Values(pl.Series(range(100_000)) * 2)).cast("q")
        assert (view[0], view[99_999]) == (0, 199_998)
        with pytest.raises(TypeError, match="read-only"):
            view[0] = 1

    def test_a_column_is_taken_once_and_not_while_it_is_written(self) -> None:
        column = self.arrow.uint32s(2)
        view = memoryview(column).cast("I")
        view[0], view[1] = 3, 4
        for early in (lambda: pl.Series(column), lambda: column.keep(1), lambda: column.without(3)):
            with pytest.raises(ValueError, match="in use"):
                early()
        view.release()
        with pytest.raises(ValueError, match="longer"):
            column.keep(3)
        column.without(3)
        assert pl.Series(column).to_list() == [None, 4]
        for late in (lambda: memoryview(column), lambda: pl.Series(column)):
            with pytest.raises((BufferError, ValueError), match="taken already"):
                late()
        with pytest.raises(MemoryError):
            self.arrow.int64s(1 << 62)
