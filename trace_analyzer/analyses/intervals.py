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


def split(spans: pl.DataFrame, cuts: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Every span cut at the ``time_ns`` of its track that lie strictly inside it; other columns repeat.

    ``cuts`` has ``by`` and time_ns. The order of spans is kept, pieces in order of time.
    """
    points = cuts.select(*by, "time_ns").unique().sort(*by, "time_ns").with_row_index("cut", offset=1)
    if points.is_empty() or spans.is_empty():
        return spans
    indexed = spans.with_row_index("span")
    inside = _cuts_inside(indexed.select("span", *by, START, END), points, by)
    starts = pl.concat([inside.select("span").unique().join(indexed.select("span", START), on="span"), inside])
    pieces = (
        starts.sort("span", START)
        .with_columns(pl.col(START).shift(-1).over("span").alias("next_ns"))
        .join(indexed.drop(START), on="span", how="left", maintain_order="left")
        .with_columns(pl.coalesce("next_ns", END).alias(END))
        .select(indexed.columns)
    )
    whole = indexed.join(inside.select("span").unique(), on="span", how="anti", maintain_order="left")
    return pl.concat([whole, pieces]).sort("span", START, maintain_order=True).drop("span")


def _cuts_inside(spans: pl.DataFrame, points: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """(span, start_ns) of every point strictly inside a span. ``points`` are numbered from 1 in order of track and time."""
    first = points.group_by(by).agg((pl.col("cut").min() - 1).alias("before_first"))
    return (
        spans.join(first, on=by, how="inner")
        .join(_last_cut(spans, points, by, START, exact=True), on="span", how="left")
        .join(_last_cut(spans, points, by, END, exact=False), on="span", how="left", suffix="_end")
        .with_columns(pl.coalesce("cut", "before_first"), pl.coalesce("cut_end", "before_first"))
        .filter(pl.col("cut") < pl.col("cut_end"))
        .select("span", pl.int_ranges(pl.col("cut") + 1, pl.col("cut_end") + 1, dtype=pl.UInt32).alias("cut"))
        .explode("cut", empty_as_null=False)
        .join(points.select("cut", pl.col("time_ns").alias(START)), on="cut", how="left")
        .select("span", START)
    )


def _last_cut(spans: pl.DataFrame, points: pl.DataFrame, by: list[str], at: str, *, exact: bool) -> pl.DataFrame:
    """(span, cut): the last point of the span's track before ``at``, or at it."""
    return (
        spans.select("span", *by, at)
        .sort(at)
        .join_asof(
            points.sort("time_ns"),
            left_on=at,
            right_on="time_ns",
            by=by,
            allow_exact_matches=exact,
            check_sortedness=False,
        )
        .select("span", "cut")
    )


def at(points: pl.DataFrame, time: str, segments: pl.DataFrame, by: list[str], columns: list[str]) -> pl.DataFrame:
    """``points`` with ``columns`` of the segment of its track that contains ``time``; null outside all.

    Segments of one track must be disjoint. The order of points is kept.
    """
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


def covered_before(points: pl.DataFrame, time: str, islands: pl.DataFrame, by: list[str], name: str) -> pl.DataFrame:
    """``points`` with column ``name``: how much of the track before ``time`` the disjoint ``islands`` cover."""
    length = pl.col("island_end") - pl.col("island_start")
    sums = (
        islands.select(*by, pl.col(START).alias("island_start"), pl.col(END).alias("island_end"))
        .sort("island_start")
        .with_columns((length.cum_sum() - length).over(by).alias("before_ns"))
    )
    return (
        points.with_row_index("point")
        .sort(time)
        .join_asof(sums, left_on=time, right_on="island_start", by=by, check_sortedness=False)
        .with_columns(
            (pl.col("before_ns") + pl.min_horizontal(time, "island_end") - pl.col("island_start"))
            .fill_null(0)
            .alias(name)
        )
        .sort("point")
        .drop("point", "island_start", "island_end", "before_ns")
    )


def labelled(spans: pl.DataFrame, segments: pl.DataFrame, by: list[str], columns: list[str]) -> pl.DataFrame:
    """``spans`` cut where ``segments`` of their track begin and end, with ``columns`` of the segment around each piece.

    Segments of one track must be disjoint; outside all of them the columns are null.
    """
    edges = pl.concat([segments.select(*by, pl.col(c).alias("time_ns")) for c in (START, END)])
    return at(split(spans, edges, by), START, segments, by, columns)


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
    agree on every end exactly where spans nest.
    """
    starts = spans.with_columns(pl.col(START).alias("time_ns"), pl.lit(True).alias("is_start"))
    ends = spans.with_columns(pl.col(END).alias("time_ns"), pl.lit(False).alias("is_start"))
    rank = pl.col("rank").cast(pl.Int64)
    return (
        pl.concat([starts, ends])
        .with_columns(pl.when("is_start").then(rank).otherwise(-rank).alias("turn"))
        .sort(*by, "time_ns", "is_start", "turn")
        .with_columns(pl.when("is_start").then(1).otherwise(-1).cum_sum().over(by).alias("depth"))
        .with_columns(
            pl.col("depth").filter("is_start").first().over("rank").alias("opens"),
            pl.when("is_start").then("depth").otherwise(pl.col("depth") + 1).alias("closes"),
        )
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
