"""Number the tracks of spans, as the loops of `_span_loops` need them."""

import polars as pl

from trace_analyzer.frames import buffers
from trace_analyzer.frames._row_loops import Column
from trace_analyzer.frames.lookups import factorize

_NARROW = (pl.Int64, pl.Int32, pl.Int16, pl.Int8, pl.UInt32, pl.UInt16, pl.UInt8)
_LEAST = -(1 << 63)


def track_codes(frame: pl.DataFrame, by: list[str]) -> Column:
    """Return the number of each row's track, in the order of tracks; null is the first track."""
    numbers = _integers(frame, by)
    if numbers is None or numbers.null_count():
        numbers = _numbered(frame, frame, by, nulls_equal=True)
    return buffers.times(numbers)


def shared_track_codes(segments: pl.DataFrame, points: pl.DataFrame, by: list[str]) -> tuple[Column, Column]:
    """Return the track numbers of segments, and of points, which may be on other tracks, or null for no track."""
    ours, theirs = _integers(segments, by), _integers(points, by)
    least = None if ours is None else ours.min()
    if ours is None or theirs is None or not isinstance(least, int) or least == _LEAST:
        ours, theirs, least = _numbered(segments, segments, by), _numbered(points, segments, by), 0
    return buffers.times(ours), buffers.times(theirs, missing=least - 1)


def _integers(frame: pl.DataFrame, by: list[str]) -> pl.Series | None:
    """Return the only integer column of ``by``; None where tracks are distinguished otherwise."""
    column = frame.get_column(by[0])
    return column if len(by) == 1 and column.dtype in _NARROW else None


def _numbered(frame: pl.DataFrame, known: pl.DataFrame, by: list[str], *, nulls_equal: bool = False) -> pl.Series:
    """Return the number of each row's track among the known ones, in order; null for other tracks."""
    numbers, firsts = factorize(*frame.select(by))
    distinct = known.select(by)[firsts if known is frame else factorize(*known.select(by))[1]]
    ordered = distinct.sort(by).with_row_index("number of the track")
    codes = frame.select(by)[firsts].join(ordered, on=by, how="left", nulls_equal=nulls_equal, maintain_order="left")
    return codes.get_column("number of the track")[numbers]
