"""Shorten one typical step of a side to a timeline with few enough intervals to draw."""

import polars as pl

from trace_analyzer.frames.intervals import coalesce

TIMELINE: dict[str, pl.DataType] = {
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "kind": pl.String(),
    "category": pl.String(),
    "name": pl.String(),
}
MOST_PIECES = 4000


def typical_step(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return the intervals of the step of median length, relative to its start: `TIMELINE`.

    ``pieces`` are intervals with kind, category and kernel. Touching intervals of one category are merged; of more than
    `MOST_PIECES`, those too short to be visible join the previous one.
    """
    steps = (
        pieces.group_by("step")
        .agg((pl.col("end_ns").max() - pl.col("start_ns").min()).alias("length"))
        .sort("length", "step", nulls_last=False)
    )
    if steps.is_empty():
        return pl.DataFrame(schema=TIMELINE)
    step = steps.row((steps.height - 1) // 2, named=True)
    own = pieces.filter(pl.col("step").eq_missing(step["step"]) & (pl.col("start_ns") < pl.col("end_ns")))
    shown = coalesce(own.with_columns(pl.lit(0, pl.Int64).alias("track")), ["track"], "category")
    if shown.height > MOST_PIECES:
        shown = _thinned(shown, step["length"])
    start = shown.get_column("start_ns").min()
    return shown.select(
        (pl.col("start_ns") - start).alias("start_ns"),
        (pl.col("end_ns") - start).alias("end_ns"),
        pl.col("kind", "category").cast(pl.String),
        pl.coalesce("operator", "kernel", "category").cast(pl.String).alias("name"),
    ).select(pl.col(name).cast(dtype) for name, dtype in TIMELINE.items())


def _thinned(pieces: pl.DataFrame, length: int) -> pl.DataFrame:
    """Return at most `MOST_PIECES` pieces: for each equal part of the step, the category with most time in it."""
    width = max(1, length // MOST_PIECES + 1)
    first = pieces.get_column("start_ns").min()
    part = ((pl.col("start_ns") - first) // width).alias("part")
    owned = (pl.col("end_ns") - pl.col("start_ns")).alias("owned")
    best = pieces.with_columns(part, owned).sort("owned", descending=True).unique("part", keep="first").sort("start_ns")
    following = pl.col("start_ns").shift(-1).fill_null(pieces.get_column("end_ns").max())
    return best.with_columns(following.alias("end_ns"))
