"""Compute unions, cuts, look-ups and nesting of half-open int64 intervals in ns.

A frame of intervals has ``start_ns`` and ``end_ns``; ``by`` names the columns that distinguish tracks (a device, a
thread); without any, all are on one. Order-dependent operations are one pass over the ordered intervals, by the loops of `_span_loops`: they find
row numbers, which are then gathered instead of joined. Most frames are already in order.
"""

from collections.abc import Iterable

import polars as pl

from trace_analyzer.frames import _span_loops, lookups
from trace_analyzer.frames._row_loops import Column
from trace_analyzer.frames.lookups import Buffer, factorize, scatter, starts_group, where_equal

# Number the tracks of spans, as the loops of `_span_loops` need them.

_NARROW = (pl.Int64, pl.Int32, pl.Int16, pl.Int8, pl.UInt32, pl.UInt16, pl.UInt8)
_LEAST = -(1 << 63)


def track_codes(frame: pl.DataFrame, by: list[str]) -> Column:
    """Return the number of each row's track, in the order of tracks; null is the first track."""
    numbers = _integers(frame, by)
    if numbers is None or numbers.null_count():
        numbers = _numbered(frame, frame, by, nulls_equal=True)
    return lookups.times_of(numbers)


def shared_track_codes(segments: pl.DataFrame, points: pl.DataFrame, by: list[str]) -> tuple[Column, Column]:
    """Return the track numbers of segments, and of points, which may be on other tracks, or null for no track."""
    ours, theirs = _integers(segments, by), _integers(points, by)
    least = None if ours is None else ours.min() if by else 0
    if ours is None or theirs is None or not isinstance(least, int) or least == _LEAST:
        ours, theirs, least = _numbered(segments, segments, by), _numbered(points, segments, by), 0
    return lookups.times_of(ours), lookups.times_of(theirs, missing=least - 1)


def _integers(frame: pl.DataFrame, by: list[str]) -> pl.Series | None:
    """Return the only integer column of ``by``, or one track without any; None where tracks are distinguished otherwise."""
    if not by:
        return pl.repeat(0, frame.height, dtype=pl.Int32, eager=True)
    column = frame.get_column(by[0])
    return column if len(by) == 1 and column.dtype in _NARROW else None


def _numbered(frame: pl.DataFrame, known: pl.DataFrame, by: list[str], *, nulls_equal: bool = False) -> pl.Series:
    """Return the number of each row's track among the known ones, in order; null for other tracks."""
    numbers, firsts = factorize(*frame.select(by))
    distinct = known.select(by)[firsts if known is frame else factorize(*known.select(by))[1]]
    ordered = distinct.sort(by).with_row_index("number of the track")
    codes = frame.select(by)[firsts].join(ordered, on=by, how="left", nulls_equal=nulls_equal, maintain_order="left")
    return codes.get_column("number of the track")[numbers]


START, END = "start_ns", "end_ns"
END_NS = (pl.col(START) + pl.col("duration_ns")).alias(END)
"""End of an event that has a start and a duration."""
LENGTH_NS = pl.col(END) - pl.col(START)
"""Length of an interval."""
_Flat = tuple[Column, Column, Column]
"""Tracks, starts and ends of spans, by row."""


def spans_on(device: int, intervals: Iterable[tuple[int, int]]) -> pl.DataFrame:
    """Return device, start_ns, end_ns of intervals of one device."""
    schema = {"device": pl.Int64, START: pl.Int64, END: pl.Int64}
    return pl.DataFrame([(device, *interval) for interval in intervals], schema=schema, orient="row")


def union(spans: pl.DataFrame, by: list[str], *, apart_ns: int = 0) -> pl.DataFrame:
    """Merge spans into maximal covered intervals per track, joining gaps of up to ``apart_ns``.

    Touching spans are merged; empty spans cover nothing. Returns ``by``, start_ns, end_ns, in order.
    """
    spans, sorted_ = _sorted(spans.select(*by, START, END), by)
    rows, ends = Buffer(spans.height, of_rows=True), Buffer(spans.height)
    count = _span_loops.union(*sorted_, apart_ns, rows.values, ends.values)
    return spans.select(*by, START)[rows.series(count, whole=True)].with_columns(ends.series(count).alias(END))


def sort_spans(spans: pl.DataFrame, by: list[str], *, shortest_first: bool = False) -> pl.DataFrame:
    """Sort spans by track and start, stably or with the shortest of equal starts first."""
    spans = spans.rechunk()
    starts = lookups.times_of(spans.get_column(START))
    # Loops put the longest of equal starts first.
    rows = _order(
        (track_codes(spans, by), starts, lookups.times_of(-spans.get_column(END)) if shortest_first else starts)
    )
    return spans if rows is None else spans[rows]


def _sorted(spans: pl.DataFrame, by: list[str]) -> tuple[pl.DataFrame, _Flat]:
    """Sort spans by track and start, the longest first; return them with their bounds."""
    bounds = (track_codes(spans, by), *_times(spans))
    rows = _order(bounds)
    return (spans, bounds) if rows is None else _sorted(spans[rows], by)


def _known(segments: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return the segments of positive length on a known track, sorted."""
    wanted = segments.select(pl.all_horizontal(pl.col(by).is_not_null(), pl.col(START) < pl.col(END))).to_series()
    return _sorted(segments if wanted.all() else segments.filter(wanted), by)[0]


def _order(bounds: _Flat) -> pl.Series | None:
    """Return the row order that the loops need; None where the rows are sorted already."""
    rows, spare = (Buffer(len(bounds[0]), of_rows=True) for _ in range(2))
    known, counts = (Buffer(_FEW_TRACKS) for _ in range(2))
    is_wrong = _span_loops.order(*bounds, rows.values, spare.values, known.values, counts.values)
    return rows.series(whole=True) if is_wrong else None


_FEW_TRACKS = 64
"""Number of tracks up to which spans are grouped by track before sorting."""


def _times(spans: pl.DataFrame) -> tuple[Column, Column]:
    return lookups.times_of(spans.get_column(START)), lookups.times_of(spans.get_column(END))


def sweep_sum(spans: pl.DataFrame, by: str, sums: list[str]) -> pl.DataFrame:
    """Sum columns over the spans in progress, at each instant where one starts or ends.

    Spans do not end before they start, and sums are of signed integers.
    """
    starts = spans.select(by, START, pl.col(START).alias(END), *sums)
    ends = spans.select(by, pl.col(END).alias(START), END, *(-pl.col(name) for name in sums))
    # A track's spans all end on it, so the running sum returns to 0 between tracks.
    upto = sort_spans(pl.concat([starts, ends]), [by]).select(by, START, pl.col(sums).cum_sum())
    return upto.filter(starts_group(by, START).shift(-1, fill_value=True))


def coalesce(segments: pl.DataFrame, by: list[str], label: str) -> pl.DataFrame:
    """Merge sorted, disjoint segments that touch and have the same ``label``; keep the first row of each."""
    apart = pl.col(START) != pl.col(END).shift(1)
    other = pl.col(label).ne_missing(pl.col(label).shift(1))
    begins = segments.select((starts_group(*by) | apart | other).fill_null(True).alias("begins")).to_series()
    ends = segments.get_column(END).filter(begins.shift(-1, fill_value=True))
    return segments.filter(begins).with_columns(ends)


def longest_place() -> list[pl.Expr]:
    """Return expressions for start_ns and end_ns of a group's longest event, the earliest of equal ones."""
    longest = pl.col("duration_ns").max()
    start = pl.col("start_ns").filter(pl.col("duration_ns") == longest).min()
    return [start, (start + longest).alias("end_ns")]


def lookup_at(
    points: pl.DataFrame, time: str, segments: pl.DataFrame, by: list[str], columns: list[str]
) -> pl.DataFrame:
    """Add ``columns`` of the segment around ``time`` to each point; null outside all segments.

    Segments of one track must be disjoint. Points keep their order.
    """
    if points.is_empty() or segments.is_empty():
        return _outside(points, segments, columns)
    segments = _known(segments.select(*by, START, END, *columns), by)
    index = _around(points, time, segments, by)
    return points.with_columns(segments.get_column(column)[index] for column in columns)


def _around(points: pl.DataFrame, time: str, segments: pl.DataFrame, by: list[str]) -> pl.Series:
    """Return the row of the sorted segment around each point; null for none."""
    return _last_started(points, time, segments, segments.get_column(END), by)


def last_started(points: pl.DataFrame, time: str, starts: pl.DataFrame, by: list[str]) -> pl.Series:
    """Return the row of the last of the sorted ``starts`` on each point's track up to ``time``; null for none."""
    return _last_started(points, time, starts, starts.get_column(START).clear(), by)


def _last_started(points: pl.DataFrame, time: str, spans: pl.DataFrame, ends: pl.Series, by: list[str]) -> pl.Series:
    """Return the row of the last span that starts up to each point and has not ended by then; null for none."""
    ours, theirs = shared_track_codes(spans, points, by)
    index = Buffer(points.height, of_rows=True)
    starts, times = lookups.times_of(spans.get_column(START)), lookups.times_of(points.get_column(time))
    _span_loops.around(ours, starts, lookups.times_of(ends), theirs, times, index.values)
    return index.series()


def rank_places(points: pl.DataFrame, by: list[str]) -> tuple[pl.Series, pl.DataFrame]:
    """Return the number of each point's place (track, start_ns), and the distinct places in order."""
    ordered = sort_spans(points.with_row_index("row"), by)
    is_first = ordered.select(starts_group(*by, START)).to_series()
    numbers = (is_first.cum_sum() - 1).cast(pl.UInt32)
    return scatter(ordered.get_column("row"), numbers, points.height), ordered.filter(is_first).drop("row")


def count_until(instants: pl.Series, times: pl.Series) -> pl.Series:
    """Count the sorted instants at or before each time."""
    counts = Buffer(times.len(), of_rows=True)
    _span_loops.passed(lookups.times_of(instants), lookups.times_of(times), counts.values)
    return counts.series(whole=True)


def counts_until(points: pl.DataFrame, time: str, instants: pl.DataFrame, by: list[str]) -> pl.Series:
    """Count the sorted instants (start_ns) of each point's track at or before ``time``."""
    numbers = instants.select(pl.int_range(1, pl.len() + 1).over(by)).to_series()
    return numbers[last_started(points, time, instants, by)].fill_null(0)


def _outside(rows: pl.DataFrame, segments: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Add ``columns`` of the segments to ``rows`` as nulls."""
    return rows.with_columns(pl.lit(None, segments.schema[column]).alias(column) for column in columns)


def with_covered(
    spans: pl.DataFrame, islands: pl.DataFrame, by: list[str], name: str, start: str = START, end: str = END
) -> pl.DataFrame:
    """Add column ``name``: the length between ``start`` and ``end`` that the track's disjoint ``islands`` cover.

    Spans keep their order.
    """
    if spans.is_empty() or islands.is_empty():
        return spans.with_columns(pl.lit(0, pl.Int64).alias(name))
    islands = _known(islands.select(*by, START, END), by)
    ours, theirs = shared_track_codes(islands, spans, by)
    before, lengths = Buffer(islands.height), Buffer(spans.height)
    since, until = (lookups.times_of(spans.get_column(time)) for time in (start, end))
    _span_loops.covered(ours, *_times(islands), before.values, theirs, since, until, lengths.values)
    return spans.with_columns(lengths.series().alias(name))


def overlap_sums(spans: pl.DataFrame, label: str, segments: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return row, label, overlap_ns: the length of each disjoint segment that the spans of each label cover.

    Pairs without overlap have no row. Labels are as in `factorize`.
    """
    segments = _known(segments.select(*by, START, END).with_row_index("row"), by)
    codes, firsts = factorize(spans.get_column(label))
    ours, theirs = shared_track_codes(segments, spans, by)
    totals = Buffer(segments.height * firsts.len())
    _span_loops.overlaps(
        ours, *_times(segments), theirs, *_times(spans), lookups.rows_of(codes), firsts.len(), totals.values
    )
    overlap = totals.series().alias("overlap_ns").to_frame().with_row_index("at").filter(pl.col("overlap_ns") != 0)
    at = overlap.get_column("at")
    row, name = segments.get_column("row")[at // firsts.len()], spans.get_column(label)[firsts[at % firsts.len()]]
    return overlap.select(row, name, "overlap_ns")


def split_by(spans: pl.DataFrame, segments: pl.DataFrame, by: list[str], columns: list[str]) -> pl.DataFrame:
    """Cut ``spans`` at the edges of ``segments`` and add ``columns`` of the segment around each piece.

    Segments of one track must be disjoint; outside all of them the columns are null. Spans keep their order; their
    pieces are in order of time.
    """
    return _cut(spans, segments, by, columns, outside=True)


def cut_out(spans: pl.DataFrame, islands: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return the parts of spans outside the disjoint ``islands`` of their track, in the order of `split_by`."""
    cut = split_by(spans, islands.with_columns(pl.lit(True).alias("is inside")), by, ["is inside"])
    return cut.filter(pl.col("is inside").is_null()).drop("is inside")


def filter_inside(points: pl.DataFrame, time: str, windows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Keep the points inside one of the disjoint windows of their track, in order."""
    if windows.height != 1:
        marked = windows.select(*by, START, END, pl.lit(True).alias("is inside"))
        return lookup_at(points, time, marked, by, ["is inside"]).filter("is inside").drop("is inside")
    place = windows.row(0, named=True)
    for column in by:
        points = where_equal(points, column, place[column])
    times = points.get_column(time)
    if times.is_sorted():
        return points[times.search_sorted(place[START], "left") : times.search_sorted(place[END], "left")]
    return points.filter(times.is_between(place[START], place[END], closed="left"))


def clip(spans: pl.DataFrame, windows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Keep the parts of spans inside the disjoint ``windows`` of their track, with the windows' columns."""
    extra = [c for c in windows.columns if c not in (*by, START, END)]
    if windows.height == 1:
        return _clipped(spans, windows, by, extra)
    return _cut(spans, windows, by, extra, outside=False)


def _clipped(spans: pl.DataFrame, window: pl.DataFrame, by: list[str], extra: list[str]) -> pl.DataFrame:
    """Clip spans to a single window, by a slice where the spans are sorted."""
    place = window.row(0, named=True)
    for column in by:
        spans = where_equal(spans, column, place[column])
    labels = [pl.lit(place[c], window.schema[c]).alias(c) for c in extra]
    start, end = pl.max_horizontal(START, place[START]), pl.min_horizontal(END, place[END])
    starts, ends = spans.get_column(START), spans.get_column(END)
    if place[START] < place[END] and starts.is_sorted() and ends.is_sorted():
        before = min(starts.search_sorted(place[START], "left"), ends.search_sorted(place[START], "right"))
        spans = spans[before : starts.search_sorted(place[END], "left")]
        if spans.is_empty() or (spans.item(0, START) >= place[START] and spans.item(-1, END) <= place[END]):
            return spans.with_columns(labels)
    else:
        is_instant = (pl.col(START) == pl.col(END)) & (start == pl.col(START)) & (pl.col(START) < place[END])
        spans = spans.filter((start < end) | is_instant)
    return spans.with_columns(start.alias(START), end.alias(END), *labels)


def _cut(
    spans: pl.DataFrame, segments: pl.DataFrame, by: list[str], columns: list[str], *, outside: bool
) -> pl.DataFrame:
    """Cut spans as `split_by` does; drop the pieces outside segments unless ``outside``."""
    if spans.is_empty() or segments.is_empty():
        return _outside(spans if outside else spans.clear(), segments, columns)
    segments = _known(segments.select(*by, START, END, *columns), by)
    spans = spans.rechunk()
    ours, theirs = shared_track_codes(segments, spans, by)

    def pieces(room: int) -> tuple[int, Buffer, Buffer, Buffer, Buffer]:
        made = Buffer(room, of_rows=True), Buffer(room, of_rows=True), Buffer(room), Buffer(room)
        values = (column.values for column in made)
        return _span_loops.cut(ours, *_times(segments), theirs, *_times(spans), outside, *values), *made

    count = pieces(0)[0]
    if outside and count == spans.height:  # no span is cut
        index = _around(spans, START, segments, by)
    else:
        _, rows, within, starts, ends = pieces(count)
        kept = spans.drop(START, END)[rows.series(whole=True)]
        spans = kept.with_columns(starts.series().alias(START), ends.series().alias(END)).select(spans.columns)
        index = within.series(whole=not outside)
    return spans.with_columns(segments.get_column(column)[index] for column in columns)


def innermost(spans: pl.DataFrame, by: list[str], span_id: str) -> pl.DataFrame:
    """Return segments of each track with the id of the innermost span: the last started one in progress.

    Of spans with equal starts the shorter one is the inner, then the later row. Returns ``by``, start_ns, end_ns,
    ``span_id``; segments are disjoint, in order, and cover the union of the spans.
    """
    spans, sorted_ = _sorted(spans.select(*by, START, END, span_id), by)
    stack, rows = Buffer(spans.height, of_rows=True), Buffer(2 * spans.height, of_rows=True)
    since, until = Buffer(2 * spans.height), Buffer(2 * spans.height)
    count = _span_loops.innermost(*sorted_, stack.values, rows.values, since.values, until.values)
    del sorted_, stack  # of millions of spans, before the segments are gathered
    owners = spans.select(*by, span_id)[rows.series(count, whole=True)]
    return owners.select(*by, since.series(count).alias(START), until.series(count).alias(END), span_id)


def innermost_at(
    points: pl.DataFrame, time: str, spans: pl.DataFrame, span_id: str, thread: str = "thread_id"
) -> pl.DataFrame:
    """Add ``span_id`` of the innermost of the spans (thread_id, start_ns, end_ns, ``span_id``) around each point's time.

    ``thread`` is the column with the points' thread; null outside of all spans.
    """
    segments = innermost(spans, ["thread_id"], span_id).rename({"thread_id": thread})
    return lookup_at(points, time, segments, [thread], [span_id])


def enclosing(spans: pl.DataFrame, by: list[str]) -> pl.Series:
    """Return the row of the span around each span: the last started one that contains it.

    Null for none, and for empty spans. Of spans with equal starts the longer one is the outer, then the earlier row.
    """
    bounds = (track_codes(spans, by), *_times(spans))
    rows = _order(bounds)
    if rows is not None:
        inside = enclosing(spans[rows], by)
        return scatter(rows, rows[inside], spans.height)
    outer, stack = Buffer(spans.height, of_rows=True), Buffer(spans.height, of_rows=True)
    _span_loops.enclosing(*bounds, outer.values, stack.values)
    return outer.series()
