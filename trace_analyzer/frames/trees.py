"""Inherit values from ancestors in a tree of rows."""

import polars as pl

from trace_analyzer.frames import _row_loops, buffers
from trace_analyzer.frames._row_loops import Column
from trace_analyzer.frames.buffers import Buffer
from trace_analyzer.schema import nulls


class Tree:
    """Hold a tree of rows: ``parents`` is the parent of each row, null for a root."""

    def __init__(self, parents: pl.Series) -> None:
        self._parents = buffers.rows(parents)
        self._rows = buffers.rows(pl.int_range(parents.len(), dtype=pl.UInt32, eager=True))

    def nearest(self, wanted: pl.Series) -> pl.Series:
        """Return for each row the nearest ``wanted`` row (flag or byte) of itself and its ancestors; null for none."""
        return self._inherited(wanted, self._rows, _row_loops.NEAREST)

    def outermost(self, wanted: pl.Series) -> pl.Series:
        """Return for each row the farthest ``wanted`` row among itself and its ancestors; null for none."""
        return self._inherited(wanted, self._rows, _row_loops.FARTHEST)

    def least(self, values: pl.Series, end: int) -> pl.Series:
        """Return for each row the least number under ``end`` among itself and its ancestors; null for none."""
        return self._inherited(values < end, buffers.rows(values), _row_loops.LEAST)

    def _inherited(self, wanted: pl.Series, values: Column, rule: int) -> pl.Series:
        if not wanted.max():
            return nulls(wanted.len(), pl.UInt32())
        result, stack = (Buffer(wanted.len(), of_rows=True) for _ in range(2))
        _row_loops.inherited(self._parents, buffers.flags(wanted), values, rule, result.values, stack.values)
        return result.series()
