"""Make the tables that charts of memory draw: the curve in time, the largest segments, and the peak as a tree."""

import polars as pl

from trace_analyzer.allocator.attribution import BEFORE, NAMED
from trace_analyzer.allocator.replay import with_held

_POINTS, _BINS = 2_000, 400
_SEGMENTS = 40
_LEVELS = ("category", "module", "line")


def curve(levels: pl.DataFrame, lives: pl.DataFrame, device: int) -> pl.DataFrame:
    """Return event, live_bytes and reserved_bytes of a device, thinned out, and the bytes of each category then.

    Of each bin the row with most live bytes stays. ``rest`` has what no recorded allocation of a known category holds.
    """
    own = levels.filter(pl.col("device") == device)
    bins = pl.int_range(pl.len()) * _BINS // pl.max_horizontal(pl.len(), _BINS)
    highest = pl.all().sort_by("live_bytes", descending=True).first()
    rows = (
        own.group_by(bins.alias("bin"), maintain_order=True)
        .agg(highest)
        .select("device", "event", "live_bytes", "reserved_bytes")
    )
    recorded = lives.filter((pl.col("device") == device) & pl.col("start_event").is_not_null())
    by_category = {category: recorded.filter(pl.col("category") == category) for category in NAMED}
    return with_held(rows, by_category).with_columns(rest=pl.col("live_bytes") - pl.sum_horizontal(NAMED))


def segments(blocks: pl.DataFrame, device: int) -> pl.DataFrame:
    """Return the blocks of the largest segments, with the segment's row and the offset in it."""
    own = blocks.filter(pl.col("device") == device)
    largest = (
        own.group_by("segment")
        .agg(pl.col("bytes").sum(), start=pl.col("address").min())
        .sort("bytes", "segment", descending=[True, False])
        .head(_SEGMENTS)
        .with_row_index("row")
    )
    placed = own.join(largest.select("segment", "row", "start"), on="segment").sort("row", "address").head(_POINTS)
    return placed.with_columns(offset_bytes=pl.col("address") - pl.col("start"))


def tree(at_peak: pl.DataFrame, device: int) -> list[tuple[int, tuple[str, ...], int]]:
    """Return the peak as nodes: caller (-1: none), path of category, module and line, and bytes."""
    live = at_peak.filter((pl.col("device") == device) & (pl.col("bytes") > 0))
    nodes: list[tuple[int, tuple[str, ...], int]] = []
    places: dict[tuple[str, ...], int] = {(): -1}
    for depth in range(1, len(_LEVELS) + 1):
        sums = live.group_by(_LEVELS[:depth]).agg(pl.col("bytes").sum())
        for *path, size in (
            sums.sort("bytes", *_LEVELS[:depth], descending=[True, *[False] * depth]).head(_POINTS).rows()
        ):
            caller = places.get(tuple(path[:-1]))
            if caller is not None and not (depth > 1 and path[-1] in (path[-2], BEFORE)):
                places[tuple(path)] = len(nodes)
                nodes.append((caller, tuple(path), size))
    return nodes
