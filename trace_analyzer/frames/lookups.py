"""Look up rows by number: a gather takes a tenth of the time of a hash join.

``column[rows]`` takes a third of the time of ``column.gather(rows)``, which supports negative numbers. Compiled loops
share the memory of series; plain ones take lists.
"""

from array import array
from types import FunctionType
from typing import Literal

import polars as pl
from polars import selectors as cs

from trace_analyzer.frames import _row_loops
from trace_analyzer.frames._row_loops import NEVER, NONE, Column
from trace_analyzer.schema import nulls

try:
    from trace_analyzer.frames import _arrow
except ImportError:  # the installation had no C compiler
    _arrow = None  # type: ignore[assignment]

_Letter = Literal["q", "I", "B"]
"""Type codes of integers in `array` and `struct`."""


def times_of(series: pl.Series, *, missing: int = NEVER) -> Column:
    """Return integers as int64, null as ``missing``."""
    return _values(series.cast(pl.Int64), missing, "q")


def rows_of(series: pl.Series) -> Column:
    """Return row numbers as uint32, null as `NONE`."""
    return _values(series.cast(pl.UInt32), NONE, "I")


def flags_of(series: pl.Series) -> Column:
    """Return booleans as uint8, null as 0."""
    return _values(series.cast(pl.UInt8), 0, "B")


def _values(series: pl.Series, missing: int, letter: _Letter) -> Column:
    if series.null_count():
        series = series.fill_null(missing)
    if _arrow is None:
        return _copied(series.to_list(), letter)
    return memoryview(_arrow.Values(series.rechunk())).cast(letter)


def _copied(values: list[int], letter: _Letter) -> Column:
    """Copy values: a list for plain Python, a typed array for compiled loops."""
    return values if isinstance(_row_loops.sums, FunctionType) else memoryview(array(letter, values))


class Buffer:
    """A column of int64 (row numbers: uint32) that a loop writes through ``values``."""

    values: Column

    def __init__(self, length: int, *, of_rows: bool = False) -> None:
        self._of_rows = of_rows
        letter: _Letter = "I" if of_rows else "q"
        if _arrow is None:
            self.values = _copied([0] * length, letter)
        else:
            self._column = _arrow.uint32s(length) if of_rows else _arrow.int64s(length)
            self.values = memoryview(self._column).cast(letter)

    def series(self, length: int | None = None, *, whole: bool = False) -> pl.Series:
        """Return the first ``length`` values as a series; `NONE` is null, unless the column is ``whole``.

        May be called once only.
        """
        kept = len(self.values) if length is None else length
        if isinstance(self.values, list) or _arrow is None:
            values = list(self.values[:kept])
            if self._of_rows:
                return pl.Series([None if row == NONE else row for row in values], dtype=pl.UInt32)
            return pl.Series(values, dtype=pl.Int64)
        self.values.release()
        self._column.keep(kept)
        if self._of_rows and not whole:
            self._column.without(NONE)
        return pl.Series(self._column)


def scatter(ids: pl.Series, values: pl.Series, height: int) -> pl.Series:
    """Return a column of ``height`` rows with ``values`` at the distinct rows ``ids``, null elsewhere."""
    return nulls(height, values.dtype).scatter(ids, values).alias(values.name)


def inverse_index(ids: pl.Series, height: int) -> pl.Series:
    """Return for each number under ``height`` the row of ``ids`` with that number; null for none."""
    return _places(ids, height).series()


def count_distinct(ids: pl.Series) -> int:
    """Count the distinct row numbers, none of which is null."""
    return inverse_index(ids, _width(ids)).count()


def first_index(ids: pl.Series, height: int | None = None) -> pl.Series:
    """Return for each number under ``height`` (default: all) the first row of ``ids`` with that number."""
    return argmax_by_group(ids, _zeros(ids.len()), _width(ids) if height is None else height)


def lookup(table: pl.DataFrame, rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """Return the other columns of ``table`` for each row's key; null where the table lacks it.

    Keys are row numbers of another table, distinct in this one.
    """
    return table.drop(key)[_row_index(table, rows, key)]


def lookup_inner(rows: pl.DataFrame, table: pl.DataFrame, key: str) -> pl.DataFrame:
    """Return the rows whose key ``table`` has, in order, with its other columns; see `lookup`."""
    index = _row_index(table, rows, key)
    known = rows.filter(index.is_not_null()) if index.null_count() else rows
    return known.hstack(table.drop(key)[index.drop_nulls()])


_ZERO = pl.Series([0], dtype=pl.UInt32)


def _zeros(height: int) -> pl.Series:
    """Return a column of zeros; ``pl.zeros`` takes longer than a loop over few rows."""
    return _ZERO.new_from_index(0, height)


def _places(ids: pl.Series, height: int) -> Buffer:
    room = Buffer(height, of_rows=True)
    _row_loops.places(rows_of(ids), room.values)
    return room


def _row_index(table: pl.DataFrame, rows: pl.DataFrame, key: str) -> pl.Series:
    """Return the row of ``table`` with each row's key; null for none."""
    known, asked = table.get_column(key), rows.get_column(key)
    index = Buffer(asked.len(), of_rows=True)
    places = _places(known, _width(known))
    _row_loops.picked(places.values, rows_of(asked), index.values)
    return index.series()


def gather(values: pl.Series, rows: pl.Series) -> pl.Series:
    """Return ``values[rows]`` for many more rows than values; booleans are gathered as bytes, five times as fast."""
    if values.null_count() == values.len():
        return nulls(rows.len(), values.dtype).alias(values.name)
    if values.dtype == pl.Boolean and _alike(values):
        return values.new_from_index(0, rows.len())
    if values.null_count():
        filled = values.fill_null(values.drop_nulls().first())[rows]
        return pl.select(pl.when(gather(values.is_not_null(), rows)).then(filled).alias(values.name)).to_series()
    return values.cast(pl.UInt8)[rows].cast(pl.Boolean) if values.dtype == pl.Boolean else values[rows]


def where_equal(rows: pl.DataFrame, column: str, value: int) -> pl.DataFrame:
    """Keep the rows with that value, without a copy where all rows have it."""
    values = rows.get_column(column)
    return rows if _alike(values) and values.min() == value else rows.filter(pl.col(column) == value)


def over_group(rows: pl.DataFrame, by: str, figure: pl.Expr) -> pl.Expr:
    """Return the figure per group; a single group needs no ``over``, which takes three times as long."""
    return figure if _alike(rows.get_column(by)) else figure.over(by)


def _alike(values: pl.Series) -> bool:
    """Return whether all values are equal and none is null."""
    return values.null_count() == 0 and values.min() == values.max()


def starts_group(*columns: str) -> pl.Expr:
    """Return whether a row differs from the one before in any of these null-free columns; the first row does."""
    return pl.any_horizontal(pl.col(c) != pl.col(c).shift(1) for c in columns).fill_null(True)


def factorize(*columns: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Assign numbers to combinations of values by appearance; return each row's number and each combination's first row.

    Null is a value. Few combinations are looked up in a table, which takes a tenth of the time of grouping.
    """
    numbers, firsts = _zeros(columns[0].len()), _zeros(min(1, columns[0].len()))
    for column in columns:
        if column.null_count() == column.len():
            continue
        codes = _codes(column)
        if _alike(codes):
            continue
        if not _has_table(firsts.len(), codes):
            codes = _renumbered(codes)
        numbers, firsts = _refined(numbers, firsts.len(), codes)
    return numbers, firsts


def as_strings(rows: pl.DataFrame) -> pl.DataFrame:
    """Cast categorical columns to strings, which have text functions."""
    return rows.with_columns((cs.categorical() | cs.enum()).cast(pl.String))


def map_unique(rows: pl.DataFrame, *figures: pl.Expr) -> pl.DataFrame:
    """Evaluate expressions once per distinct row: a hundred thousand kernels have few names."""
    numbers, firsts = factorize(*rows)
    return as_strings(rows[firsts]).select(figures)[numbers]


_TABLE = 1 << 20


def _codes(column: pl.Series) -> pl.Series:
    """Replace values by numbers from 0; null stays null."""
    if column.dtype == pl.Boolean:
        return column.cast(pl.UInt8)
    codes = (column.cast(pl.Categorical) if column.dtype == pl.String else column).to_physical()
    if codes.dtype.is_integer() and (codes.min() or 0) >= 0 and (codes.max() or 0) < NONE:  # type: ignore[operator]
        return codes
    return codes.rank("dense") - 1


def _renumbered(codes: pl.Series) -> pl.Series:
    """Replace codes by numbers from 0 to the number of distinct codes."""
    if _has_table(1, codes):
        return _split(_zeros(codes.len()), codes, _width(codes) + 1)[0]
    return codes.rank("dense") - 1


def _has_table(groups: int, codes: pl.Series) -> bool:
    """Return whether a table of all codes of all groups takes no more memory than a few columns."""
    return groups * _width(codes) <= max(_TABLE, 4 * codes.len())


def _width(codes: pl.Series) -> int:
    return 1 + int(codes.max() or 0)  # type: ignore[arg-type]


def _refined(groups: pl.Series, count: int, codes: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Assign numbers to combinations of group and code; return the numbers and their first rows."""
    if not _has_table(count, codes):
        pairs = pl.DataFrame({"group": groups, "code": codes})
        known = pairs.with_row_index("row").unique(["group", "code"], keep="first", maintain_order=True)
        numbers = pairs.join(
            known.with_row_index("number"), on=["group", "code"], how="left", nulls_equal=True, maintain_order="left"
        )
        return numbers.get_column("number"), known.get_column("row")
    return _split(groups, codes, count * (_width(codes) + 1))


def _split(groups: pl.Series, codes: pl.Series, size: int, *, in_runs: bool = False) -> tuple[pl.Series, pl.Series]:
    """Assign numbers to combinations of group and code with a table of ``size`` entries."""
    table, numbers, firsts = (Buffer(n, of_rows=True) for n in (size, len(groups), len(groups)))
    columns = rows_of(groups), rows_of(codes), _width(codes), in_runs
    count = _row_loops.refine(*columns, table.values, numbers.values, firsts.values)
    return numbers.series(whole=True), firsts.series(count, whole=True)


def sum_runs(rows: pl.DataFrame, run: str, name: str, values: str) -> pl.DataFrame:
    """Sum ``values`` by name within each run of rows that share the row number ``run``."""
    numbers, codes = rows.get_column(run), _codes(rows.get_column(name))
    numbers, firsts = _split(numbers, codes, _width(codes) + 1, in_runs=True)
    return rows.select(run, name)[firsts].with_columns(
        sum_by_group(numbers, rows.get_column(values), firsts.len()).alias(values)
    )


def sum_by_group(groups: pl.Series, values: pl.Series, count: int, *, codes: pl.Series | None = None) -> pl.Series:
    """Sum integer values, or ``values[codes]``, by group number under ``count``."""
    sums = Buffer(count)
    rows = rows_of(groups)
    named = rows if codes is None else rows_of(codes)
    _row_loops.sums(rows, codes is not None, named, times_of(values), sums.values)
    return sums.series()


def argmax_by_group(groups: pl.Series, values: pl.Series, count: int) -> pl.Series:
    """Return the row of the greatest integer of each numbered group, the first of equal ones."""
    rows = Buffer(count, of_rows=True)
    _row_loops.greatest(rows_of(groups), times_of(values), rows.values)
    return rows.series()


# Inherit values from ancestors in a tree of rows.


def _all_rows(of: pl.Series) -> Column:
    return rows_of(pl.int_range(of.len(), dtype=pl.UInt32, eager=True))


class Tree:
    """A tree of rows: ``parents`` is the parent of each row, null for a root."""

    def __init__(self, parents: pl.Series) -> None:
        self._parents = rows_of(parents)

    def nearest(self, wanted: pl.Series) -> pl.Series:
        """Return for each row the nearest ``wanted`` row (flag or byte) of itself and its ancestors; null for none."""
        return self._inherited(wanted, _all_rows(wanted), _row_loops.NEAREST)

    def outermost(self, wanted: pl.Series) -> pl.Series:
        """Return for each row the farthest ``wanted`` row among itself and its ancestors; null for none."""
        return self._inherited(wanted, _all_rows(wanted), _row_loops.FARTHEST)

    def least(self, values: pl.Series, end: int) -> pl.Series:
        """Return for each row the least number under ``end`` among itself and its ancestors; null for none."""
        return self._inherited(values < end, rows_of(values), _row_loops.LEAST)

    def _inherited(self, wanted: pl.Series, values: Column, rule: int) -> pl.Series:
        if not wanted.max():
            return nulls(wanted.len(), pl.UInt32())
        result, stack = (Buffer(wanted.len(), of_rows=True) for _ in range(2))
        _row_loops.inherited(self._parents, flags_of(wanted), values, rule, result.values, stack.values)
        return result.series()
