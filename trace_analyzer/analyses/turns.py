"""Merge marks of several optimizers that alternate: one iteration updates a discriminator, then a generator."""

import polars as pl

from trace_analyzer import thresholds

_LONGEST = 12
"""Most marks in a turn: five updates of a critic and one of a generator are six."""
_TRACK = ["process_id", "thread_id", "source"]


def in_turns(ends: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """Return marks with ``ends``, one for each turn; empty where the ends do not alternate.

    Ends alternate where every n-th launches the same work, and neighbours launch other work or have other names: two
    optimizers that step one after the other, or a network trained against another. ``ends`` has the columns of marks in
    order, ``launched`` has process_id, at_ns and work. An incomplete last turn is left out.
    """
    turns = [_merged(part, launched) for part in ends.partition_by(_TRACK, maintain_order=True)]
    return pl.concat([ends.clear(), *turns])


def _merged(ends: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    marks = ends.with_columns(pl.col("host_end_ns").shift(1, fill_value=0).alias("host_start_ns"))
    length = _turn(marks, launched)
    if length < 2:
        return marks.clear()
    turn = (pl.int_range(pl.len()) // length).alias("turn")
    firsts = pl.all().exclude("host_end_ns").first()
    merged = marks.group_by(turn, maintain_order=True).agg(firsts, pl.col("host_end_ns").max(), pl.len().alias("ends"))
    return merged.filter(pl.col("ends") == length).select(marks.columns)


def _turn(marks: pl.DataFrame, launched: pl.DataFrame) -> int:
    """Return after how many marks the launches recur; 1 where neighbours launch the same work, or nothing recurs.

    The first mark also includes earlier work, so it is not compared.
    """
    counts = _counts(marks, launched)
    names = marks.select(pl.int_range(pl.len()).alias("mark"), "name")
    for length in range(1, min(_LONGEST, (marks.height - 1) // 2) + 1):
        pairs = _likeness(counts, names, length)
        again = (pairs.get_column("likeness") >= thresholds.PERIOD_LIKENESS) & pairs.get_column("same")
        if again.len() and again.mean() >= thresholds.PERIOD_LIKENESS:  # type: ignore[operator]
            near = _likeness(counts, names, 1)
            unlike = (near.get_column("likeness") < thresholds.TURN_LIKENESS) | ~near.get_column("same")
            return length if unlike.any() else 1
    return 1


def _counts(marks: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """Return mark, work, count: the launches between each mark's start and its end."""
    spans = marks.select("process_id", "host_start_ns", "host_end_ns").with_row_index("mark")
    return (
        launched.sort("at_ns")
        .join_asof(
            spans.sort("host_start_ns"),
            left_on="at_ns", right_on="host_start_ns", by="process_id", check_sortedness=False,
        )
        .filter(pl.col("at_ns") < pl.col("host_end_ns"))
        .group_by(pl.col("mark").cast(pl.Int64), "work")
        .agg(pl.len().cast(pl.Int64).alias("count"))
    )  # fmt: skip


def _likeness(counts: pl.DataFrame, names: pl.DataFrame, length: int) -> pl.DataFrame:
    """Return for each mark except the first, and the one ``length`` later: likeness, same (whether names are equal)."""
    later = pl.col("mark") - length
    sizes = counts.group_by("mark").agg(pl.col("count").sum().alias("size"))
    common = (
        counts.join(counts.with_columns(later), on=["mark", "work"], suffix="_later")
        .group_by("mark")
        .agg(pl.min_horizontal("count", "count_later").sum().alias("common"))
    )
    sized = names.join(sizes, on="mark", how="left").join(common, on="mark", how="left").fill_null(0)
    pairs = sized.join(sized.with_columns(later), on="mark", suffix="_later").filter(pl.col("mark") > 0)
    both = pl.col("size") + pl.col("size_later")
    return pairs.select(
        pl.when(both > 0).then(2 * pl.col("common") / both).otherwise(1.0).alias("likeness"),
        (pl.col("name") == pl.col("name_later")).alias("same"),
    )
