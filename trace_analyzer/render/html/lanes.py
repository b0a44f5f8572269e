"""Rows for events that share a track: within a row, no two events overlap."""

import numpy as np
import numpy.typing as npt
import polars as pl


def with_depth(events: pl.DataFrame) -> pl.DataFrame:
    """Events (sorted by track, start and nesting) with the row of their track that each belongs to.

    Properly nested events get their nesting depth. Tracks whose events overlap without being nested get
    first-fit rows instead: the topmost row that is free.
    """
    nested = events.with_columns(depth=nesting_depth().over("track"))
    clashing = nested.filter(_overlaps_in_row()).get_column("track").unique()
    if clashing.is_empty():
        return nested
    refitted = [
        track.with_columns(depth=pl.Series(first_fit(*_intervals(track)), dtype=pl.Int64))
        for track in nested.filter(pl.col("track").is_in(clashing.implode())).partition_by("track")
    ]
    return pl.concat([nested.filter(~pl.col("track").is_in(clashing.implode())), *refitted])


def nesting_depth() -> pl.Expr:
    """How many events are open when one starts: those started before it minus those ended by then."""
    solid = pl.col("duration_ns") > 0  # an event without duration is never open
    started = solid.cast(pl.Int64).cum_sum() - solid.cast(pl.Int64)
    ends = _end_ns().filter(solid).sort()
    return started - ends.search_sorted(pl.col("start_ns"), side="right").cast(pl.Int64)


def first_fit(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The topmost free row for each event, in order of start.

    A row is the chain that leads from its first event to the next one that starts no earlier than it ends;
    the events that a chain leaves out go through the same again, one row further down.
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
    """The positions reached from 0 by always going to the one that follows: a truly sequential walk."""
    position, chain = 0, []
    while position < len(following):
        chain.append(position)
        position = following[position]
    return chain


def _end_ns() -> pl.Expr:
    return pl.col("start_ns") + pl.col("duration_ns")


def _overlaps_in_row() -> pl.Expr:
    return (pl.col("start_ns") < _end_ns().cum_max().shift(1)).over("track", "depth")


def _intervals(events: pl.DataFrame) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return events.get_column("start_ns").to_numpy(), events.select(_end_ns()).to_series().to_numpy()
