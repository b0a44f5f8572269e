"""Interval operations against their definitions, evaluated one instant at a time."""

import itertools
from collections.abc import Iterable

import polars as pl
import pytest
from hypothesis import example, given, strategies as st
from polars.testing import assert_frame_equal

from trace_analyzer.frames import intervals

TRACK = ["track"]
HORIZON = 14
Span = tuple[int, int, int]  # track, start, end

_tracks = st.integers(0, 2)
_instants = st.integers(0, HORIZON)
_span = st.tuples(_tracks, _instants, _instants).map(lambda s: (s[0], min(s[1:]), max(s[1:])))
spans = st.lists(_span, max_size=9)
points = st.lists(st.tuples(_tracks, _instants), max_size=9)
disjoint = st.lists(
    st.tuples(_tracks, st.lists(_instants, min_size=2, max_size=6, unique=True)), max_size=3, unique_by=lambda t: t[0]
).map(
    lambda tracks: [
        (track, start, end)
        for track, edges in tracks
        for start, end in zip(sorted(edges)[::2], sorted(edges)[1::2], strict=False)
    ]
)


def frame(rows: Iterable[Span]) -> pl.DataFrame:
    table = pl.DataFrame(list(rows), schema={"track": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    return table.with_row_index("id")


def times(rows: Iterable[tuple[int, int]]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema={"track": pl.Int64, "time_ns": pl.Int64}, orient="row")


def covered(rows: Iterable[Span]) -> set[tuple[int, int]]:
    return {(track, t) for track, start, end in rows for t in range(start, end)}


@given(spans)
def test_what_is_running_is_summed_up_at_every_edge(rows: list[Span]) -> None:
    actual = intervals.sweep_sum(
        frame(rows).with_columns(pl.lit(1).alias("count"), pl.col("id").cast(pl.Int64) + 5), "track", ["count", "id"]
    )
    edges = sorted({(track, time) for track, *bounds in rows for time in bounds})
    expected = []
    for track, time in edges:
        in_progress = [5 + i for i, (own, start, end) in enumerate(rows) if own == track and start <= time < end]
        expected.append((track, time, len(in_progress), sum(in_progress)))
    assert actual.rows() == expected


@given(spans)
def test_union_covers_the_same_in_the_fewest_intervals(rows: list[Span]) -> None:
    merged = intervals.union(frame(rows), TRACK).rows()
    assert covered(merged) == covered(rows)
    assert merged == sorted(merged)
    assert all(a[0] != b[0] or a[2] < b[1] for a, b in itertools.pairwise(merged))


@given(spans, st.integers(0, 4))
def test_union_of_what_is_little_apart(rows: list[Span], apart: int) -> None:
    expected: list[Span] = []
    for track, start, end in intervals.union(frame(rows), TRACK).rows():
        if expected and expected[-1][0] == track and start - expected[-1][2] <= apart:
            start = expected.pop()[1]
        expected.append((track, start, end))
    assert intervals.union(frame(rows), TRACK, apart_ns=apart).rows() == expected


def test_labelled_cuts_at_edges_and_names_the_segment() -> None:
    segments = [(0, 1, 3), (0, 3, 4), (0, 6, 8), (1, 9, 9)]
    pieces = intervals.split_by(
        frame([(0, 0, 5), (1, 1, 5), (0, 7, 7), (0, 2, 6), (0, 3, 3)]),
        frame(segments).rename({"id": "segment"}),
        TRACK,
        ["segment"],
    )
    assert pieces.rows() == [
        (0, 0, 0, 1, None), (0, 0, 1, 3, 0), (0, 0, 3, 4, 1), (0, 0, 4, 5, None),
        (1, 1, 1, 5, None),
        (2, 0, 7, 7, 2),
        (3, 0, 2, 3, 0), (3, 0, 3, 4, 1), (3, 0, 4, 6, None),
        (4, 0, 3, 3, 1),
    ]  # fmt: skip


@given(points, spans)
def test_latest_is_the_last_to_start_by_the_instant(where: list[tuple[int, int]], rows: list[Span]) -> None:
    rows = sorted(rows)
    expected = [
        max((n for n, (on, start, _) in enumerate(rows) if on == track and start <= t), default=None)
        for track, t in where
    ]
    assert intervals.last_started(times(where), "time_ns", frame(rows), TRACK).to_list() == expected


@given(st.lists(_instants), st.lists(_instants))
def test_instants_passed_are_those_up_to_the_time(instants: list[int], where: list[int]) -> None:
    actual = intervals.count_until(pl.Series(sorted(instants), dtype=pl.Int64), pl.Series(where, dtype=pl.Int64))
    assert actual.to_list() == [sum(instant <= t for instant in instants) for t in where]


@given(spans)
def test_in_order_keeps_the_order_of_equals_or_puts_the_shortest_first(rows: list[Span]) -> None:
    table = frame(rows)
    assert_frame_equal(intervals.sort_spans(table, TRACK), table.sort("track", "start_ns", maintain_order=True))
    shortest = intervals.sort_spans(table, TRACK, shortest_first=True)
    assert_frame_equal(shortest, table.sort("track", "start_ns", "end_ns", maintain_order=True))


@given(spans, disjoint)
def test_labelled_pieces_lie_between_neighbouring_edges(rows: list[Span], segments: list[Span]) -> None:
    def around(track: int, t: int) -> int | None:
        return next((n for n, (on, start, end) in enumerate(segments) if on == track and start <= t < end), None)

    expected = []
    for number, (track, start, end) in enumerate(rows):
        edges = {t for on, *edges in segments if on == track and edges[0] < edges[1] for t in edges}
        cuts = [start, *sorted(t for t in edges if start < t < end), end]
        expected += [(number, track, a, b, around(track, a)) for a, b in itertools.pairwise(cuts)]
    actual = intervals.split_by(frame(rows), frame(segments).rename({"id": "segment"}), TRACK, ["segment"])
    assert actual.rows() == expected


@given(points, disjoint)
def test_at_is_the_segment_around_the_instant(where: list[tuple[int, int]], segments: list[Span]) -> None:
    expected = [
        next((number for number, (on, start, end) in enumerate(segments) if on == track and start <= t < end), None)
        for track, t in where
    ]
    actual = intervals.lookup_at(times(where), "time_ns", frame(segments), TRACK, ["id"])
    assert actual.columns == ["track", "time_ns", "id"]
    assert actual["id"].to_list() == expected
    assert actual.drop("id").rows() == where


@given(spans, disjoint)
def test_with_covered_counts_covered_instants(rows: list[Span], islands: list[Span]) -> None:
    islands_cover = covered(islands)
    expected = [sum((track, t) in islands_cover for t in range(start, end)) for track, start, end in rows]
    actual = intervals.with_covered(frame(rows), frame(islands), TRACK, "covered_ns")
    assert actual["covered_ns"].to_list() == expected
    assert actual.drop("covered_ns").equals(frame(rows))


@given(spans, disjoint)
def test_clip_keeps_what_lies_in_the_windows(rows: list[Span], windows: list[Span]) -> None:
    expected = sorted(
        (number, track, max(start, left), min(end, right), window)
        for number, (track, start, end) in enumerate(rows)
        for window, (on, left, right) in enumerate(windows)
        if on == track and max(start, left) < min(end, right)
    )
    inside = intervals.clip(frame(rows), frame(windows).rename({"id": "window"}), TRACK)
    assert sorted(inside.filter(pl.col("start_ns") < pl.col("end_ns")).rows()) == expected


@given(spans, disjoint, st.lists(st.sampled_from("abc"), min_size=9, max_size=9))
def test_overlaps_add_up_what_lies_in_each_segment(rows: list[Span], segments: list[Span], labels: list[str]) -> None:
    expected: dict[tuple[int, str], int] = {}
    for (track, start, end), label in zip(rows, labels, strict=False):
        for row, (on, left, right) in enumerate(segments):
            overlap = min(end, right) - max(start, left) if on == track else 0
            if overlap > 0:
                expected[row, label] = expected.get((row, label), 0) + overlap
    labelled_ = frame(rows).with_columns(pl.Series("label", labels[: len(rows)], dtype=pl.Categorical))
    actual = intervals.overlap_sums(labelled_, "label", frame(segments), TRACK)
    assert {(row, label): ns for row, label, ns in actual.rows()} == expected


@given(spans, _span)
def test_one_window_clips_like_several(rows: list[Span], window: Span) -> None:
    several = frame([window, (9, 0, 1)]).rename({"id": "window"})
    # Both edges in order, as they are of disjoint intervals of one track, and as they come.
    in_order = [(window[0], *edges) for edges in zip(*(sorted(row[i] for row in rows) for i in (1, 2)), strict=True)]
    for some in (frame(rows), frame(in_order)):
        assert_frame_equal(intervals.clip(some, several.head(1), TRACK), intervals.clip(some, several, TRACK))


@given(spans)
def test_innermost_starts_last_of_equals_the_shortest_and_of_these_the_last_row(rows: list[Span]) -> None:
    expected = {}
    for track, t in itertools.product(range(3), range(HORIZON)):
        running = [(start, -end, i) for i, (on, start, end) in enumerate(rows) if on == track and start <= t < end]
        if running:
            expected[track, t] = max(running)[2]
    segments = intervals.innermost(frame(rows), TRACK, "id")
    stated = [((track, t), inner) for track, start, end, inner in segments.rows() for t in range(start, end)]
    assert len(stated) == len(dict(stated)), "segments overlap"
    assert dict(stated) == expected
    assert segments.select("track", "start_ns").rows() == sorted(segments.select("track", "start_ns").rows())


@given(disjoint, st.lists(st.sampled_from(["a", "b", None]), min_size=9, max_size=9))
def test_joined_segments_cover_the_same_and_never_touch_their_like(rows: list[Span], labels: list[str | None]) -> None:
    # Single instants are the finest cut of the segments' union.
    instants = sorted(
        (track, t, t + 1, label)
        for (track, start, end), label in zip(rows, labels, strict=False)
        for t in range(start, end)
    )
    columns = {"track": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64, "label": pl.String}
    actual = intervals.coalesce(pl.DataFrame(instants, schema=columns, orient="row"), TRACK, "label").rows()
    assert [(track, t, t + 1, label) for track, start, end, label in actual for t in range(start, end)] == instants
    assert all((a[0], a[2], a[3]) != (b[0], b[1], b[3]) for a, b in itertools.pairwise(actual))


def test_empty_frames_leave_the_columns_that_others_leave() -> None:
    none, some = frame([]), frame([(0, 1, 2)])
    segments = some.rename({"id": "segment"})
    for actual in (
        lambda spans, segments: intervals.lookup_at(spans, "start_ns", segments, TRACK, ["segment"]),
        lambda spans, segments: intervals.split_by(spans, segments, TRACK, ["segment"]),
        lambda spans, segments: intervals.clip(spans, segments, TRACK),
        lambda spans, segments: intervals.with_covered(spans, segments, TRACK, "covered_ns"),
        lambda spans, _: intervals.innermost(spans, TRACK, "id"),
        lambda spans, _: intervals.union(spans, TRACK),
    ):
        whole = actual(some, segments).schema
        assert actual(none, segments).schema == actual(some, segments.clear()).schema == whole


@given(spans)
def test_a_span_is_enclosed_by_the_last_to_start_that_contains_it(rows: list[Span]) -> None:
    parents = intervals.enclosing(frame(rows), TRACK).to_list()
    empty = {i for i, (_, start, end) in enumerate(rows) if start == end}
    actual = {i: parent for i, parent in enumerate(parents) if i not in empty}
    assert all(parents[i] is None for i in empty)
    order = {i: (start, -end, i) for i, (_, start, end) in enumerate(rows)}
    for child, (track, start, end) in ((i, rows[i]) for i in actual):
        around = [
            i
            for i in actual
            if order[i] < order[child] and rows[i][0] == track and rows[i][1] <= start and end <= rows[i][2]
        ]
        assert actual[child] == max(around, key=order.__getitem__, default=None)


def test_tracks_may_be_longer_together_than_64_bits_count() -> None:
    months = 1 << 61
    rows = [(track, 0, months) for track in range(6)] + [(5, 7, 9), (5, months - 2, months - 1)]
    table = frame(rows)
    assert intervals.union(table, TRACK).rows() == rows[:6]
    assert intervals.enclosing(table, TRACK).to_list() == [*[None] * 6, 5, 5]
    assert (
        intervals.innermost(table.filter(track=5), TRACK, "id").rows()
        == intervals.innermost(table, TRACK, "id").filter(track=5).rows()
    )


@given(points, disjoint, st.booleans())
def test_inside_are_the_points_of_some_window(rows: list[tuple[int, int]], windows: list[Span], ordered: bool) -> None:
    """Check one window, which is looked at otherwise than several, and points in order, otherwise than others."""
    rows = sorted(rows, key=lambda row: row[1]) if ordered else rows
    for some in (windows, windows[:1]):
        actual = intervals.filter_inside(times(rows), "time_ns", frame(some).drop("id"), TRACK)
        assert actual.rows() == [row for row in rows if row in covered(some)]


@pytest.mark.parametrize("tracks", [[0], [0, 1]])
def test_points_need_no_order_and_no_track(tracks: list[int]) -> None:
    """Segments of one track are searched otherwise than those of several."""
    segments = frame([(track, 10, 20) for track in tracks])
    where: list[tuple[int | None, int | None]] = [(0, 15), (2, 15), (None, 15), (0, None), (0, 9), (0, 10), (0, 20)]
    schema = {"track": pl.Int64, "time_ns": pl.Int64}
    actual = intervals.lookup_at(pl.DataFrame(where, schema=schema, orient="row"), "time_ns", segments, TRACK, ["id"])
    assert actual["id"].to_list() == [0, None, None, None, None, 0, None]


def test_empty_segments_hide_none_that_start_with_them() -> None:
    rows = [(0, 3, 5), (0, 5, 5), (0, 5, 8)]
    for segments in itertools.permutations(rows):
        named = frame(segments).with_columns(pl.col("end_ns").alias("until"))
        actual = intervals.lookup_at(times([(0, 5), (0, 4), (0, 8)]), "time_ns", named, TRACK, ["until"])
        assert actual["until"].to_list() == [8, 5, None]


@example([(0, 0, 4)], [], [(0, 3)])  # an island without length alone
@given(spans, disjoint, points)
def test_without_tracks_all_spans_are_on_one(
    rows: list[Span], islands: list[Span], instants: list[tuple[int, int]]
) -> None:
    some = frame((0, start, end) for _, start, end in rows)
    first = islands[0][0] if islands else 0
    own = frame([(0, start, end) for track, start, end in islands if track == first] or [(0, 3, 3)])
    at = times((0, time) for _, time in instants)
    for made in (
        lambda by: intervals.union(some, by),
        lambda by: intervals.clip(some, own.select("track", "start_ns", "end_ns"), by),
        lambda by: intervals.cut_out(some, own.select("track", "start_ns", "end_ns"), by),
        lambda by: intervals.with_covered(some, own, by, "covered_ns"),
        lambda by: intervals.lookup_at(at, "time_ns", own, by, ["id"]),
        lambda by: intervals.filter_inside(at, "time_ns", own, by),
        lambda by: intervals.innermost(some, by, "id"),
    ):
        on_one, without = made(TRACK), made([])
        assert_frame_equal(
            on_one.drop("track", strict=False), without.drop("track", strict=False), check_column_order=False
        )
