"""Merge stacks into one call tree: equal frames under equal callers are one node."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer.frames.lookups import Buffer, Tree, factorize
from trace_analyzer.schema import nulls

Ints = npt.NDArray[np.int64]
_NONE = -1


def column(values: npt.NDArray[np.integer[Any] | np.bool_]) -> pl.Series:
    """Return integers, or booleans as 0 and 1, as a series; Polars' own conversion imports masked arrays (25 ms)."""
    room = Buffer(values.size)
    if values.size:
        room.values[:] = np.ascontiguousarray(values, dtype=np.int64).data.cast("B").cast("q")
    return room.series()


def call_tree(
    parents: pl.Series, is_frame: pl.Series, texts: pl.Series, ends: pl.DataFrame, tips: pl.Series | None = None
) -> pl.DataFrame:
    """Merge the stacks above the rows of ``ends`` (row, nullable, and value_ns) into nodes.

    ``parents`` is the parent of each row, ``is_frame`` marks rows that are part of a stack, ``texts`` are the rows'
    names. ``tips`` are names of leaves, one for each end. An end without a row, or below no frame, consists of its tip.

    Returns node_id from 0, parent_id (null for roots), text, is_tip, value_ns (including descendants) and self_ns;
    parents precede their children.
    """
    nearest = _integers(Tree(parents).nearest(is_frame)) if parents.len() else np.empty(0, np.int64)
    above = _integers(parents)
    above = np.where(above >= 0, nearest[above], _NONE) if nearest.size else nearest
    rows = _integers(ends.get_column("row"))
    frames = np.where(rows >= 0, nearest[rows], _NONE) if nearest.size else np.full(rows.size, _NONE)
    names = pl.concat([texts.cast(pl.String), *([] if tips is None else [tips.cast(pl.String)])])
    codes = _integers(names.rank("dense").cast(pl.Int64) - 1) if names.len() else np.empty(0, np.int64)
    nodes = _Nodes(int(codes.max(initial=0)) + 1)
    node_of = np.full(nearest.size, _NONE)
    for level in _levels(frames, above):
        callers = above[level]
        node_of[level] = nodes.add(np.where(callers >= 0, node_of[callers], _NONE), codes[level])
    ended = np.where(frames >= 0, node_of[frames], _NONE) if nearest.size else frames
    frame_count = nodes.count
    if tips is not None:
        ended = nodes.add(ended, codes[texts.len() :])
    values = _integers(ends.get_column("value_ns"))
    shown = ended >= 0
    own = np.zeros(nodes.count, np.int64)
    np.add.at(own, ended[shown], values[shown])
    by_code = pl.DataFrame({"code": column(codes), "text": names}).unique("code").sort("code").get_column("text")
    return _table(nodes, own, by_code, frame_count)


class _Nodes:
    """Assign numbers to the distinct pairs of caller and text."""

    def __init__(self, texts: int) -> None:
        self._texts = texts
        self.parents: list[Ints] = []
        self.codes: list[Ints] = []
        self.count = 0

    def add(self, callers: Ints, codes: Ints) -> Ints:
        """Add nodes of one level and return the node of each row."""
        keys, places = np.unique((callers + 1) * self._texts + codes, return_inverse=True)
        self.parents.append(keys // self._texts - 1)
        self.codes.append(keys % self._texts)
        nodes: Ints = places.reshape(-1) + self.count
        self.count += len(keys)
        return nodes


def _distinct(rows: Ints) -> Ints:
    """Return the distinct rows that are not `_NONE`, in order; `numpy.unique` would import masked arrays (25 ms)."""
    ordered = np.sort(rows)
    return ordered[np.diff(ordered, prepend=_NONE) > 0]


def _levels(ends: Ints, above: Ints) -> list[Ints]:
    """Return the rows above the ends, including the ends, by depth: the outermost first."""
    needed = np.zeros(above.size, bool)
    level = _distinct(ends)
    while level.size:
        needed[level] = True
        level = _distinct(above[level])
        level = level[~needed[level]]
    # Each round doubles the distance of ``far``, so a depth of n takes log n rounds; rows of a cycle never end.
    depth, far = (above >= 0).astype(np.int64), above.copy()
    for _ in range(int(above.size).bit_length()):
        inner = np.flatnonzero(far >= 0)
        depth[inner] += depth[far[inner]]
        far[inner] = far[far[inner]]
    rows = np.flatnonzero(needed & (far < 0))
    rows = rows[np.argsort(depth[rows], kind="stable")]
    return np.split(rows, np.flatnonzero(np.diff(depth[rows])) + 1) if rows.size else []


def _table(nodes: _Nodes, own: Ints, texts: pl.Series, frame_count: int) -> pl.DataFrame:
    parents = np.concatenate([*nodes.parents, np.empty(0, np.int64)])
    total = own.copy()
    first = nodes.count
    for level in reversed(nodes.parents):
        first -= len(level)
        inner = level >= 0
        np.add.at(total, level[inner], total[first : first + len(level)][inner])
    codes = np.concatenate([*nodes.codes, np.empty(0, np.int64)])
    return pl.DataFrame(
        {
            "node_id": column(np.arange(nodes.count)),
            "parent_id": column(parents),
            "text": texts[column(codes)] if len(texts) else nulls(0, pl.String()),
            "is_tip": column(np.arange(nodes.count) >= frame_count).cast(pl.Boolean),
            "value_ns": column(total),
            "self_ns": column(own),
        }
    ).with_columns(pl.when(pl.col("parent_id") >= 0).then("parent_id").alias("parent_id"))


def _integers(series: pl.Series) -> Ints:
    integers: Ints = series.cast(pl.Int64).fill_null(_NONE).to_numpy().astype(np.int64)
    return integers


# Assign numbers to combinations of codes and sum by them, for few rows, where a Polars call takes longer than the work.

Codes = npt.NDArray[np.int64]
_MOST = 1 << 62


def codes_of(values: pl.Series) -> Codes:
    """Assign numbers to the values by appearance; null is a value."""
    return factorize(values)[0].to_numpy().astype(np.int64)


def combined(columns: Sequence[Codes]) -> Codes:
    """Assign numbers from 0 to the rows' combinations of codes, ordered by the first column, then by the next.

    >>> combined([np.array([7, 0, 7, 7]), np.array([1, 1, 0, 1])]).tolist()
    [2, 0, 1, 2]
    """
    numbers, count = np.zeros(len(columns[0]), np.int64), 1
    for codes in columns:
        width = int(codes.max(initial=0)) + 1
        if count * width > _MOST:
            numbers = np.unique(numbers, return_inverse=True)[1]
            count = len(numbers) + 1
        numbers, count = numbers * width + codes, count * width
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64)


def sums_by(codes: Codes, values: Codes, count: int) -> Codes:
    """Return the sum of the values for each code under ``count``."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, codes, values)
    return sums


def distinct_rows(frame: pl.DataFrame) -> tuple[pl.DataFrame, Codes]:
    """Return the distinct rows in order of appearance, and for each row the index of its distinct row."""
    numbers, firsts = factorize(*frame)
    return frame[firsts], numbers.to_numpy().astype(np.int64)
