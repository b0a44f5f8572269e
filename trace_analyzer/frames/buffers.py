"""Share the memory of columns with compiled loops.

With compiled loops, sequences share the memory of series; otherwise they are lists.
"""

from array import array
from types import FunctionType
from typing import Literal

import polars as pl

from trace_analyzer.frames import _row_loops
from trace_analyzer.frames._row_loops import NEVER, NONE, Column

try:
    from trace_analyzer.frames import _arrow
except ImportError:  # the installation had no C compiler
    _arrow = None  # type: ignore[assignment]

_Letter = Literal["q", "I", "B"]
"""Type codes of integers in `array` and `struct`."""


def times(series: pl.Series, *, missing: int = NEVER) -> Column:
    """Return integers as int64, null as ``missing``."""
    return _values(series.cast(pl.Int64), missing, "q")


def rows(series: pl.Series) -> Column:
    """Return row numbers as uint32, null as `NONE`."""
    return _values(series.cast(pl.UInt32), NONE, "I")


def flags(series: pl.Series) -> Column:
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
    """Hold a column of int64 (row numbers: uint32) that a loop writes through ``values``."""

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
