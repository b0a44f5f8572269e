"""Intervals as frames: union, gaps, splitting, innermost. Half-open, int64 ns, one chain each.

A frame of intervals has ``start_ns`` and ``end_ns``; ``by`` names the columns that keep tracks apart
(a device, a thread). Sorting by several columns takes ten times as long as by one integer, and joining
as long as sorting. So where order matters the tracks are laid end to end on one line, where every
instant of every track has its own place; and rows are found once and then gathered, not joined.
"""

import polars as pl

START, END = "start_ns", "end_ns"
_FROM, _TO = "line_from", "line_to"
_LONGEST_LINE = 1 << 62
"""Longer lines (thousands of threads that each last for months) take wider integers."""


def union(spans: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Maximal covered intervals per track: a new one begins where all earlier spans have ended.

    Touching spans are one; empty spans cover nothing. Returns ``by``, start_ns, end_ns, in order.
    """
    covered = (
        _on_line(spans.select(*by, START, END).filter(pl.col(START) < pl.col(END)), by)
        .sort(_FROM)
        .with_columns(pl.col(_TO).cum_max().alias("until"))
        .with_columns((pl.col(_FROM) > pl.col("until").shift(1)).fill_null(True).alias("begins"))
    )
    ends = covered.filter(pl.col("begins").shift(-1, fill_value=True)).select(
        (pl.col("until") - pl.col(_FROM) + pl.col(START)).cast(pl.Int64).alias(END)
    )
    return covered.filter("begins").select(*by, START).hstack(ends)


def in_order(spans: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """The spans sorted by track and start."""
    return _on_line(spans, by).sort(_FROM).drop(_FROM, _TO)


def longest_place() -> list[pl.Expr]:
    """Of a group's events (start_ns, duration_ns): start_ns and end_ns of the longest, of several the first."""
    longest = pl.col("duration_ns").arg_max()
    start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("duration_ns")
    return [start.get(longest), end.get(longest).alias("end_ns")]


def at(points: pl.DataFrame, time: str, segments: pl.DataFrame, by: list[str], columns: list[str]) -> pl.DataFrame:
    """``points`` with ``columns`` of the segment of its track that contains ``time``; null outside all.

    Segments of one track must be disjoint. The order of points is kept.
    """
    if points.is_empty() or segments.is_empty():
        return _outside(points, segments, columns)
    segments = _in_order(segments.select(*by, START, END, *columns), by)
    rows = _last_before(points, time, segments, by)
    inside = points.get_column(time) < segments.get_column(END).gather(rows)
    rows = rows.to_frame("row").select(pl.when(inside).then("row")).to_series()
    return points.with_columns(segments.get_column(column).gather(rows) for column in columns)


def _outside(rows: pl.DataFrame, segments: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """``rows`` with ``columns`` of the segments, all null: what a look-up finds where either frame is empty."""
    return rows.with_columns(pl.lit(None, segments.schema[column]).alias(column) for column in columns)


def with_covered(
    spans: pl.DataFrame, islands: pl.DataFrame, by: list[str], name: str, start: str = START, end: str = END
) -> pl.DataFrame:
    """``spans`` with column ``name``: how much of the track the disjoint ``islands`` cover from ``start`` to ``end``.

    The order of spans is kept.
    """
    if spans.is_empty() or islands.is_empty():
        return spans.with_columns(pl.lit(0, pl.Int64).alias(name))
    length = pl.col(END) - pl.col(START)
    sums = _in_order(islands.select(*by, START, END), by).with_columns(
        (length.cum_sum() - length).over(by).alias("before_ns")
    )
    until, since = (_covered_before(spans, time, sums, by) for time in (end, start))
    return spans.with_columns((until - since).alias(name))


def _covered_before(points: pl.DataFrame, time: str, sums: pl.DataFrame, by: list[str]) -> pl.Series:
    """How much of its track is covered before each point; ``sums`` are islands with before_ns, what those before cover."""
    rows = _last_before(points, time, sums, by)
    found = sums.select(START, END, "before_ns")[rows].with_columns(points.get_column(time).alias("time_ns"))
    covered = pl.col("before_ns") + pl.min_horizontal("time_ns", END) - pl.col(START)
    return found.select(covered.fill_null(0)).to_series()


def labelled(spans: pl.DataFrame, segments: pl.DataFrame, by: list[str], columns: list[str]) -> pl.DataFrame:
    """``spans`` cut where ``segments`` of their track begin and end, with ``columns`` of the segment around each piece.

    Segments of one track must be disjoint; outside all of them the columns are null. The order of spans is kept,
    pieces in order of time.
    """
    return _cut(spans, segments, by, columns, outside=True)


def clip(spans: pl.DataFrame, windows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """The parts of spans inside the disjoint ``windows`` of their track, with the windows' other columns."""
    extra = [c for c in windows.columns if c not in (*by, START, END)]
    if windows.height == 1:
        return _clipped(spans, windows, by, extra)
    return _cut(spans, windows, by, extra, outside=False)


def _clipped(spans: pl.DataFrame, window: pl.DataFrame, by: list[str], extra: list[str]) -> pl.DataFrame:
    """The same for a single window, as most are: nothing has to be looked up."""
    place = window.row(0, named=True)
    start, end = pl.max_horizontal(START, place[START]), pl.min_horizontal(END, place[END])
    is_instant = (pl.col(START) == pl.col(END)) & (start == pl.col(START)) & (pl.col(START) < place[END])
    return spans.filter(*(pl.col(c) == place[c] for c in by), (start < end) | is_instant).with_columns(
        start.alias(START), end.alias(END), *(pl.lit(place[c], window.schema[c]).alias(c) for c in extra)
    )


def _cut(
    spans: pl.DataFrame, segments: pl.DataFrame, by: list[str], columns: list[str], *, outside: bool
) -> pl.DataFrame:
    """Pieces of spans as `labelled` says; only those within segments where not ``outside``."""
    if spans.is_empty() or segments.is_empty():
        return _outside(spans if outside else spans.clear(), segments, columns)
    segments = segments.select(*by, START, END, *columns).filter(pl.col(START) < pl.col(END)).sort(*by, START)
    first = _places(spans, segments, by, START, exact=True)
    last = _places(spans, segments, by, END, exact=False)
    last = last.zip_with(last > first, first)
    if not outside:
        inside = (last > first) | (first % 2 == 1)
        spans, first, last = spans.filter(inside), first.filter(inside), last.filter(inside)
    if first.equals(last):
        within = _within(first)
        return spans.with_columns(segments.get_column(column).gather(within) for column in columns)
    pieces = (
        pl.DataFrame({"first": first, "last": last})
        .with_row_index("span")
        .with_columns(pl.int_ranges("first", pl.col("last") + 1, dtype=pl.UInt32).alias("place"))
        .explode("place", empty_as_null=False)
    )
    place = pl.col("place")
    if not outside:
        pieces = pieces.filter(place % 2 == 1)
    starts = _edges(segments, pieces.select(pl.when(place > pl.col("first")).then(place)).to_series())
    ends = _edges(segments, pieces.select(pl.when(place < pl.col("last")).then(place + 1)).to_series())
    within = _within(pieces.get_column("place"))
    return (
        spans[pieces.get_column("span")]
        .with_columns(pl.coalesce(starts, START).alias(START), pl.coalesce(ends, END).alias(END))
        .with_columns(segments.get_column(column).gather(within) for column in columns)
        .filter((pl.col(START) < pl.col(END)) | (pieces.get_column("first") == pieces.get_column("last")))
    )


def _places(spans: pl.DataFrame, segments: pl.DataFrame, by: list[str], time: str, *, exact: bool) -> pl.Series:
    """Of each span the place of its ``time``: 2r + 1 within segment r, 2r between that and the one before it.

    A time on the edge of two places is in the later one if ``exact``, else in the earlier one.
    """
    rows = _last_before(spans, time, segments, by, exact=exact)
    time_ns, end_ns = spans.get_column(time), segments.get_column(END).gather(rows)
    places = 2 * rows + 1 + ((time_ns >= end_ns) if exact else (time_ns > end_ns)).cast(pl.UInt32)
    if not places.null_count():
        return places
    # Before all segments of the track, or on a track without any.
    first = segments.select(by).with_row_index("first").group_by(by).agg(pl.col("first").min() * 2)
    early = spans.select(by).with_row_index("span").filter(places.is_null())
    found = early.join(first, on=by, how="left", maintain_order="left").get_column("first")
    return places.scatter(early.get_column("span"), found.fill_null(0))


def _within(places: pl.Series) -> pl.Series:
    """The segments that places lie within; null for places between segments."""
    return pl.select(pl.when(places % 2 == 1).then(places // 2)).to_series()


def _edges(segments: pl.DataFrame, places: pl.Series) -> pl.Series:
    """When places begin: with their segment, or with the end of the one before."""
    starts = segments.get_column(START).gather(_within(places))
    ends = segments.get_column(END).gather(pl.select(pl.when(places % 2 == 0).then(places // 2 - 1)).to_series())
    return starts.zip_with(starts.is_not_null(), ends)


def _last_before(
    points: pl.DataFrame, time: str, segments: pl.DataFrame, by: list[str], *, exact: bool = True
) -> pl.Series:
    """Of each point the row of the last of its track's ``segments`` that starts before ``time`` (or at it); null for none.

    Segments must be in order of time within their track.
    """
    keys = points.select(*by, pl.col(time).alias("time_ns"))
    if segments.is_empty() or points.is_empty():
        return pl.repeat(None, points.height, dtype=pl.UInt32, eager=True)
    tracks = segments.get_column(by[0])
    if len(by) == 1 and tracks.null_count() == 0 and tracks.min() == tracks.max():
        return _last_on_track(keys, segments.get_column(START), tracks.min(), exact=exact)
    starts = segments.select(*by, START).with_row_index("segment")
    sorted_ = _is_in_order(keys, by, "time_ns")
    found = (keys if sorted_ else keys.with_row_index("point").sort("time_ns")).join_asof(
        starts, left_on="time_ns", right_on=START, by=by, allow_exact_matches=exact, check_sortedness=False
    )
    return (found if sorted_ else found.select("point", "segment").sort("point")).get_column("segment")


def _last_on_track(keys: pl.DataFrame, starts: pl.Series, track: object, *, exact: bool) -> pl.Series:
    """The same where all segments are on one track: points need no order, as there is only one list to search."""
    before = starts.search_sorted(keys.get_column("time_ns"), side="right" if exact else "left")
    found = keys.select(
        pl.when((pl.first() == track) & (before > 0) & pl.col("time_ns").is_not_null()).then(before - 1)
    )
    return found.to_series().cast(pl.UInt32)


def _in_order(spans: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """The spans so that those of each track are in order of their start."""
    return spans if _is_in_order(spans, by, START) else spans.sort(START)


def _is_in_order(frame: pl.DataFrame, by: list[str], time: str) -> bool:
    """Whether all times are in order, or those of one track after the other; false where that is not easily seen."""
    if frame.get_column(time).is_sorted():
        return True
    track, later = pl.col(by[0]), pl.col(time) >= pl.col(time).shift(1)
    in_order = (track > track.shift(1)) | ((track == track.shift(1)) & later)
    return len(by) == 1 and bool(frame.select(in_order.slice(1).fill_null(False).all()).item())


def innermost(spans: pl.DataFrame, by: list[str], span_id: str) -> pl.DataFrame:
    """Segments of each track with the id of its innermost span: of those in progress, the last to start.

    Of spans that start together the shorter is the inner one, then the later row. Returns ``by``,
    start_ns, end_ns, ``span_id``; segments are disjoint, in order, and cover what any span covers.
    """
    if spans.is_empty():
        return spans.select(*by, START, END, span_id)
    nest, ends = _nest(spans, by, span_id)
    starts, stops = nest.get_column(_FROM), ends.get_column(_TO)
    # From its start on a span is the innermost one, from its end on the one around it, both until the next edge.
    begun = nest.select(
        pl.col(_FROM),
        pl.min_horizontal(pl.col(_FROM).shift(-1), stops.gather(nest.get_column("closed"))).alias(_TO),
        pl.col("rank").alias("inner"),
    )
    ended = ends.select(
        pl.col(_TO).alias(_FROM),
        pl.min_horizontal(pl.col(_TO).shift(-1), starts.shift(-1).gather(ends.get_column("opened") - 1)).alias(_TO),
        nest.get_column("outer").gather(ends.get_column("rank")).alias("inner"),
    )
    segments = (
        pl.concat([begun, ended.filter(pl.col("inner").is_not_null())]).filter(pl.col(_FROM) < pl.col(_TO)).sort(_FROM)
    )
    owner = nest.select(*by, (pl.col(_FROM) - pl.col(START)).alias("offset"), span_id)[segments.get_column("inner")]
    return owner.hstack(segments.select(_FROM, _TO)).select(
        *by,
        (pl.col(_FROM) - pl.col("offset")).cast(pl.Int64).alias(START),
        (pl.col(_TO) - pl.col("offset")).cast(pl.Int64).alias(END),
        span_id,
    )


def enclosing(spans: pl.DataFrame, by: list[str], span_id: str) -> pl.DataFrame:
    """``span_id``, parent_id of every span: of the spans of its track that contain it, the last to start; null for none.

    Empty spans are left out; of spans that start together the longer, then the earlier row, is the outer one.
    """
    if spans.is_empty():
        return spans.select(span_id, pl.col(span_id).alias("parent_id"))
    nest, _ = _nest(spans, by, span_id)
    return nest.select(span_id, pl.col(span_id).gather("outer").alias("parent_id"))


def _on_line(spans: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Spans with line_from and line_to: their bounds on a line on which tracks, in order, follow each other apart."""
    tracks = spans.group_by(by).agg(pl.col(START).min().alias("low"), pl.col(END).max().alias("high")).sort(by)
    if tracks.height < 2:
        return spans.with_columns(pl.col(START).alias(_FROM), pl.col(END).alias(_TO))
    length = pl.col("high") - pl.col("low") + 1
    fits = tracks.select(length.cast(pl.Float64).sum()).item() < _LONGEST_LINE
    wide = length.cast(pl.Int64 if fits else pl.Int128)
    offsets = tracks.select(*by, (wide.cum_sum() - wide - pl.col("low")).alias("offset"))
    return (
        spans.join(offsets, on=by, how="left", nulls_equal=True, maintain_order="left")
        .with_columns((pl.col(START) + pl.col("offset")).alias(_FROM), (pl.col(END) + pl.col("offset")).alias(_TO))
        .drop("offset")
    )


def _nest(spans: pl.DataFrame, by: list[str], span_id: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spans that are not empty, outer ones first, and their ends, inner ones first; made to nest where they cross.

    A span's ``rank`` is its row, ``outer`` the rank of the one around it and ``closed`` the number of ends up to its start.
    Ends have line_to, ``rank``, and ``opened``, the number of starts before them.
    """
    ordered = (
        _on_line(spans.select(*by, START, END, span_id).filter(pl.col(START) < pl.col(END)), by)
        .with_row_index("order")
        .sort(_FROM, _TO, "order", descending=[False, True, False])
        .drop("order")
        .with_row_index("rank")
    )
    nest, ends = _edges_of(ordered)
    crossing = _crossing(nest, ends)
    if crossing.len():
        nest, ends = _edges_of(_nested(nest, ends, crossing))
    around = nest.select(pl.col("rank").alias("outer"), "depth", pl.col("rank").alias("outer_rank"))
    # Of the spans that started before at the depth around this one, the last is still in progress.
    inside = nest.select("rank", pl.col("depth") - 1).join_asof(
        around, left_on="rank", right_on="outer_rank", by="depth", allow_exact_matches=False, check_sortedness=False
    )
    return nest.with_columns(inside.get_column("outer")), ends


def _edges_of(spans: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spans with ``closed`` and their ``depth`` (1 for the outermost), and their ends with ``opened``."""
    count = pl.int_range(1, pl.len() + 1, dtype=pl.UInt32)
    ends = spans.select(_TO, "rank").reverse().sort(_TO, maintain_order=True)
    closed = (
        spans.select(_FROM)
        .join_asof(ends.select(_TO, count.alias("closed")), left_on=_FROM, right_on=_TO, check_sortedness=False)
        .get_column("closed")
        .fill_null(0)
    )
    opened = ends.select(_TO).join_asof(
        spans.select(_FROM, count.alias("opened")),
        left_on=_TO, right_on=_FROM, allow_exact_matches=False, check_sortedness=False,
    )  # fmt: skip
    return (
        spans.with_columns(closed, (pl.col("rank") + 1 - closed).alias("depth")),
        ends.with_columns(opened.get_column("opened")),
    )


def _crossing(nest: pl.DataFrame, ends: pl.DataFrame) -> pl.Series:
    """Ranks of spans that do not end at the depth at which they started: none if and only if all spans nest."""
    open_ = pl.col("opened") - pl.int_range(pl.len(), dtype=pl.UInt32)
    return ends.filter(nest.get_column("depth").gather(ends.get_column("rank")) != open_).get_column("rank")


def _nested(nest: pl.DataFrame, ends: pl.DataFrame, crossing: pl.Series) -> pl.DataFrame:
    """Spans, but ended where a later one that outlasts them starts: from there on that is the inner one, so nothing is lost.

    Only what overlaps the ``crossing`` ones can be affected, and nothing within whose bounds there is no other edge.
    """
    island = nest.select((pl.col("depth") == 1).cum_sum().alias("island")).to_series()
    first_end = ends.get_column(_TO).gather(nest.get_column("closed"))
    alone = (pl.col(_FROM).shift(-1) >= pl.col(_TO)).fill_null(True) & (first_end == pl.col(_TO))
    affected = nest.filter(island.is_in(island.gather(crossing).unique().implode()) & ~alone)
    cut = _nested_ends(affected.get_column(_FROM).to_list(), affected.get_column(_TO).to_list())
    to = nest.get_column(_TO).clone().scatter(affected.get_column("rank"), pl.Series(cut, dtype=nest.schema[_TO]))
    return nest.drop("closed", "depth").with_columns(to.alias(_TO))


def _nested_ends(starts: list[int], ends: list[int]) -> list[int]:
    """Ends of spans in order of start, each cut where a later span starts that ends after it."""
    cut = ends.copy()
    opened: list[int] = []
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        while opened and ends[opened[-1]] <= start:
            opened.pop()
        while opened and ends[opened[-1]] < end:
            cut[opened.pop()] = start
        opened.append(i)
    return cut
