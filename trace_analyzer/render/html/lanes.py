"""Arrange events of a track in rows without overlaps."""

import numpy as np
import numpy.typing as npt
import polars as pl


def in_rows(track: pl.DataFrame) -> pl.DataFrame:
    """Return the track's events row by row, with ``depth`` (row) and ``gap_ns`` (since the row's previous end).

    Events are in order of start, the enclosing one first. Properly nested events get their nesting depth. Where events
    overlap without nesting, their connected run of events gets first-fit rows: each event gets the topmost free row.
    """
    nested = track.with_columns(depth=nesting_depth())
    laid = nested.sort("depth", maintain_order=True)
    if laid.select(_clashes().any()).item():
        laid = _refitted(nested).sort("depth", maintain_order=True)
    return laid.with_columns(
        gap_ns=pl.col("start_ns") - pl.when(_continues_row()).then(_end_ns().shift(1)).otherwise(0)
    )


def nesting_depth() -> pl.Expr:
    """Return the number of open events at each start: those started before it minus those ended by then."""
    solid = pl.col("duration_ns") > 0  # an event of duration 0 is never open
    started = solid.cast(pl.Int64).cum_sum() - solid.cast(pl.Int64)
    ends = _end_ns().filter(solid).sort()
    return started - ends.search_sorted(pl.col("start_ns"), side="right").cast(pl.Int64)


def first_fit(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the topmost free row for each event, in order of start.

    A row is a chain from its first event to the next one that starts after it ends, and so on; the events outside the
    chain are processed in the same way, one row further down.
    """
    rows = np.zeros(len(start), dtype=np.int64)
    left = np.arange(len(start))
    row = 0
    while len(left):
        following = np.maximum(np.searchsorted(start[left], end[left]), np.arange(1, len(left) + 1))
        chain = _chain(following.tolist())
        rows[left[chain]] = row
        left = np.delete(left, chain)
        row += 1
    return rows


def _chain(following: list[int]) -> list[int]:
    """Return the indices reached from 0 by following the chain: a sequential walk."""
    position, chain = 0, []
    while position < len(following):
        chain.append(position)
        position = following[position]
    return chain


def _refitted(nested: pl.DataFrame) -> pl.DataFrame:
    """Return first-fit rows for connected runs in which events clash; all other events keep their rows."""
    runs = nested.with_columns(run=(pl.col("start_ns") >= _end_ns().cum_max().shift(1)).fill_null(True).cum_sum())
    clashing = runs.sort("depth", maintain_order=True).filter(_clashes()).get_column("run").unique()
    touched = pl.col("run").is_in(clashing.implode())
    unruly = runs.filter(touched)
    depth = first_fit(unruly.get_column("start_ns").to_numpy(), unruly.select(_end_ns()).to_series().to_numpy())
    refitted = unruly.with_columns(depth=pl.Series(depth, dtype=pl.Int64))
    return pl.concat([runs.filter(~touched), refitted]).sort("start_ns", maintain_order=True).drop("run")


def _end_ns() -> pl.Expr:
    return pl.col("start_ns") + pl.col("duration_ns")


def _continues_row() -> pl.Expr:
    return (pl.col("depth") == pl.col("depth").shift(1)).fill_null(False)


def _clashes() -> pl.Expr:
    """Return whether an event starts before an earlier one of its row ends, for rows sorted one after the other.

    Rows are shifted by ``stride`` each, so that they do not overlap in time and one running maximum covers all.
    """
    stride = _end_ns().max() - pl.col("start_ns").min() + 1
    offset = pl.col("depth") * stride
    return (pl.col("start_ns") + offset < (_end_ns() + offset).cum_max().shift(1)).fill_null(False)
