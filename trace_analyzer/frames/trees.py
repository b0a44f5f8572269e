"""Trees of rows: what each row inherits from itself and the rows above it."""

import polars as pl

from trace_analyzer.frames import _loops, buffers
from trace_analyzer.frames._loops import Column
from trace_analyzer.frames.buffers import Buffer
from trace_analyzer.tables import nulls


class Tree:
    """What hangs below what: ``parents`` holds the row above each, null for none."""

    def __init__(self, parents: pl.Series) -> None:
        self._parents = buffers.rows(parents)
        self._rows = buffers.rows(pl.int_range(parents.len(), dtype=pl.UInt32, eager=True))

    def nearest(self, wanted: pl.Series) -> pl.Series:
        """For each row the nearest of itself and those above it that is ``wanted``, a flag or byte; null where none is."""
        return self._inherited(wanted, self._rows, _loops.NEAREST)

    def outermost(self, wanted: pl.Series) -> pl.Series:
        """For each row the farthest of itself and those above it that is ``wanted``; null where none is."""
        return self._inherited(wanted, self._rows, _loops.FARTHEST)

    def least(self, values: pl.Series, end: int) -> pl.Series:
        """For each row the least of the small numbers that it and those above it have; null where none is under ``end``."""
        return self._inherited(values < end, buffers.rows(values), _loops.LEAST)

    def _inherited(self, wanted: pl.Series, values: Column, rule: int) -> pl.Series:
        if not wanted.max():
            return nulls(wanted.len(), pl.UInt32())
        result, stack = (Buffer(wanted.len(), of_rows=True) for _ in range(2))
        _loops.inherited(self._parents, buffers.flags(wanted), values, rule, result.values, stack.values)
        return result.series()
