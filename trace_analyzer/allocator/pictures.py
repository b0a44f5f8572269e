"""Make the tables that charts of memory draw: the curve in time, the largest segments, and the peak as a tree."""

import polars as pl

from trace_analyzer.allocator.attribution import BEFORE

_POINTS = 2_000
_SEGMENTS = 40
_LEVELS = ("category", "module", "line")


def curve(levels: pl.DataFrame, device: int) -> pl.DataFrame:
    """Return event, live_bytes and reserved_bytes of a device, thinned out: of each bin its highest row stays."""
    own = levels.filter(pl.col("device") == device)
    bins = pl.int_range(pl.len()) * _POINTS // pl.max_horizontal(pl.len(), _POINTS)
    highest = pl.all().sort_by("live_bytes", descending=True).first()
    return own.group_by(bins.alias("bin"), maintain_order=True).agg(highest).drop("bin")


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
    """Return the peak as nodes: caller (-1: the root), path of category, module and line, and bytes."""
    live = at_peak.filter((pl.col("device") == device) & (pl.col("bytes") > 0))
    nodes: list[tuple[int, tuple[str, ...], int]] = [(-1, (), int(live.get_column("bytes").sum()))]
    places: dict[tuple[str, ...], int] = {(): 0}
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
