"""Intervals as frames: union, gaps, splitting, innermost. Half-open, int64 ns, one chain each.

A frame of intervals has ``start_ns`` and ``end_ns``; ``by`` names the columns that keep tracks apart
(a device, a thread).
"""

import polars as pl

START, END = "start_ns", "end_ns"


def union(spans: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Maximal covered intervals per track: a new one begins where all earlier spans have ended.

    Touching spans are one; empty spans cover nothing. Returns ``by``, start_ns, end_ns, in order.
    """
    return (
        spans.filter(pl.col(START) < pl.col(END))
        .sort(*by, START)
        .with_columns(pl.col(END).cum_max().shift(1).over(by).alias("covered_until"))
        .with_columns((pl.col(START) > pl.col("covered_until")).fill_null(True).cum_sum().alias("island"))
        .group_by(*by, "island", maintain_order=True)
        .agg(pl.col(START).first(), pl.col(END).max())
        .drop("island")
    )


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
    return (
        points.with_row_index("point")
        .sort(time)
        .join_asof(
            segments.select(*by, pl.col(START).alias("segment_start"), pl.col(END).alias("segment_end"), *columns).sort(
                "segment_start"
            ),
            left_on=time,
            right_on="segment_start",
            by=by,
            check_sortedness=False,
        )
        .with_columns(pl.when(pl.col(time) < pl.col("segment_end")).then(pl.col(c)).alias(c) for c in columns)
        .sort("point")
        .drop("point", "segment_start", "segment_end")
    )


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
    length = pl.col("island_end") - pl.col("island_start")
    sums = (
        islands.select(*by, pl.col(START).alias("island_start"), pl.col(END).alias("island_end"))
        .sort("island_start")
        .with_columns((length.cum_sum() - length).over(by).alias("before_ns"))
    )
    before = (
        pl.concat([spans.select(*by, pl.col(bound).alias("time_ns")) for bound in (end, start)])
        .with_row_index("point")
        .sort("time_ns")
        .join_asof(sums, left_on="time_ns", right_on="island_start", by=by, check_sortedness=False)
        .sort("point")
        .select(
            (pl.col("before_ns") + pl.min_horizontal("time_ns", "island_end") - pl.col("island_start")).fill_null(0)
        )
        .to_series()
    )
    return spans.with_columns((before.head(spans.height) - before.tail(spans.height)).alias(name))


def labelled(spans: pl.DataFrame, segments: pl.DataFrame, by: list[str], columns: list[str]) -> pl.DataFrame:
    """``spans`` cut where ``segments`` of their track begin and end, with ``columns`` of the segment around each piece.

    Segments of one track must be disjoint; outside all of them the columns are null. The order of spans is kept,
    pieces in order of time.
    """
    if spans.is_empty() or segments.is_empty():
        return _outside(spans, segments, columns)
    segments = segments.filter(pl.col(START) < pl.col(END)).sort(*by, START)
    edges = (
        segments.select(*by, pl.concat_list(START, END).alias("time_ns"))
        .explode("time_ns", empty_as_null=False)
        .with_row_index("place", offset=1)
    )
    # Place p lies between edges p - 1 and p, so within segment p // 2 where p is odd.
    places = pl.DataFrame(
        {"first": _places(spans, edges, by, START, exact=True), "last": _places(spans, edges, by, END, exact=False)}
    )
    pieces = (
        places.with_columns(pl.max_horizontal("first", "last").alias("last"))
        .with_row_index("span")
        .with_columns(pl.int_ranges("first", pl.col("last") + 1, dtype=pl.UInt32).alias("place"))
        .explode("place", empty_as_null=False)
    )
    place, time = pl.col("place"), edges.get_column("time_ns")
    starts = time.gather(pieces.select(pl.when(place > pl.col("first")).then(place - 1)).to_series())
    ends = time.gather(pieces.select(pl.when(place < pl.col("last")).then(place)).to_series())
    within = pieces.select(pl.when(place % 2 == 1).then(place // 2)).to_series()
    return (
        spans[pieces.get_column("span")]
        .with_columns(pl.coalesce(starts, START).alias(START), pl.coalesce(ends, END).alias(END))
        .with_columns(segments.get_column(column).gather(within) for column in columns)
        .filter((pl.col(START) < pl.col(END)) | (pieces.get_column("first") == pieces.get_column("last")))
    )


def _places(spans: pl.DataFrame, edges: pl.DataFrame, by: list[str], time: str, *, exact: bool) -> pl.Series:
    """Of each span the place of the last of its track's ``edges`` before ``time`` (or at it), or what is before the first."""
    before_all = edges.group_by(by).agg((pl.col("place").min() - 1).alias("before"))
    return (
        spans.select(*by, time)
        .with_row_index("span")
        .sort(time)
        .join_asof(edges, left_on=time, right_on="time_ns", by=by, allow_exact_matches=exact, check_sortedness=False)
        .join(before_all, on=by, how="left", maintain_order="left")
        .sort("span")
        .select(pl.coalesce("place", "before", pl.lit(0, pl.UInt32)))
        .to_series()
    )


def clip(spans: pl.DataFrame, windows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """The parts of spans inside the disjoint ``windows`` of their track, with the windows' other columns."""
    extra = [c for c in windows.columns if c not in (*by, START, END)]
    inside = windows.with_columns(pl.lit(True).alias("inside"))
    return labelled(spans, inside, by, ["inside", *extra]).filter(pl.col("inside")).drop("inside")


def innermost(spans: pl.DataFrame, by: list[str], span_id: str) -> pl.DataFrame:
    """Segments of each track with the id of its innermost span: of those in progress, the last to start.

    Of spans that start together the shorter is the inner one, then the later row. Returns ``by``,
    start_ns, end_ns, ``span_id``; segments are disjoint, in order, and cover what any span covers.
    """
    if spans.is_empty():
        return spans.select(*by, START, END, span_id)
    return (
        _with_inner(spans, by, span_id)
        .with_columns(pl.col("time_ns").shift(-1).over(by).alias(END))
        .filter((pl.col("depth") > 0) & (pl.col("time_ns") < pl.col(END)))
        .select(*by, pl.col("time_ns").alias(START), END, pl.col("inner").alias(span_id))
    )


def enclosing(spans: pl.DataFrame, by: list[str], span_id: str) -> pl.DataFrame:
    """``span_id``, parent_id of every span: of the spans of its track that contain it, the last to start; null for none.

    Empty spans are left out; of spans that start together the longer, then the earlier row, is the outer one.
    """
    if spans.is_empty():
        return spans.select(span_id, pl.col(span_id).alias("parent_id"))
    # Every track ends at depth 0, so the first span of the next one finds nothing before it.
    return (
        _with_inner(spans, by, span_id)
        .with_columns(pl.when(pl.col("depth").shift(1) > 0).then(pl.col("inner").shift(1)).alias("parent_id"))
        .filter("is_start")
        .select(span_id, "parent_id")
    )


def _with_inner(spans: pl.DataFrame, by: list[str], span_id: str) -> pl.DataFrame:
    """Edges of the spans in order with ``inner``, the id of the innermost span after each.

    Where spans nest, +1 at starts and -1 at ends gives the depth, and after an end the innermost is the
    last that started at that depth; where they cross, they are made to nest first.
    """
    spans = (
        spans.filter(pl.col(START) < pl.col(END))
        .select(*by, START, END, span_id)
        .with_row_index("order")
        .sort(*by, START, END, "order", descending=[False] * len(by) + [False, True, False])
        .with_row_index("rank")
    )
    edges = _edges(spans, by)
    crossing = edges.filter(pl.col("opens") != pl.col("closes")).select(by).unique()
    if crossing.height:
        edges = _edges(_nested(spans, crossing, by), by)
    return edges.with_columns(pl.when("is_start").then(span_id).forward_fill().over(*by, "depth").alias("inner"))


def _edges(spans: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Starts and ends in order (ends first, inner ends before outer ones) with the depth after each.

    ``opens`` is the depth at which the edge's span started, ``closes`` that which the edge closes: they
    agree on every end exactly where spans nest. ``spans`` are in order of their rank, which is that of their starts.
    """
    spans = spans.with_columns(pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias("turn"))
    starts = spans.with_columns(pl.col(START).alias("time_ns"), pl.lit(True).alias("is_start"))
    ends = spans.with_columns(pl.col(END).alias("time_ns"), pl.lit(False).alias("is_start"), -pl.col("turn"))
    edges = (
        pl.concat([ends.reverse(), starts])  # in order of their turn, which stays so where times are equal
        .sort(*by, "time_ns", maintain_order=True)
        .with_columns(pl.when("is_start").then(1).otherwise(-1).cum_sum().over(by).alias("depth"))
    )
    opens = edges.get_column("depth").filter(edges.get_column("is_start"))
    return edges.with_columns(
        opens.gather(edges.get_column("turn").abs() - 1).alias("opens"),
        pl.when("is_start").then("depth").otherwise(pl.col("depth") + 1).alias("closes"),
    )


def _nested(spans: pl.DataFrame, crossing: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Spans with those on the ``crossing`` tracks ended where a later one that outlasts them starts.

    From there on the later one is the inner one, so nothing is lost.
    """
    rest = spans.join(crossing, on=by, how="anti", maintain_order="left")
    tracks = spans.join(crossing, on=by, how="semi", maintain_order="left").partition_by(by, maintain_order=True)
    nested = [
        track.with_columns(
            pl.Series(END, _nested_ends(track.get_column(START).to_list(), track.get_column(END).to_list()))
        )
        for track in tracks
    ]
    return pl.concat([rest, *nested]).filter(pl.col(START) < pl.col(END)).sort("rank")


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
