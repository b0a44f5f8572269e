"""Split collectives into waiting for the last rank and transfer, and find who was late."""

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer.ranks.tables import SYNCHRONIZING


def with_waits(rows: pl.DataFrame, world_size: int | None = None) -> pl.DataFrame:
    """Add wait_ns, transfer_ns, late_ns, margin_ns, is_last; null where a row has no match or does not wait.

    The last rank waits for nobody, so the shortest duration of a collective is its transfer, and what the others take longer is waiting: no
    clock is needed. ``is_most`` says whether more than half of the group (of the job, where no group is recorded) was recorded. ``late_ns`` is by how much a rank starts after the middle one (of two middle ones, the earlier);
    ``margin_ns`` is by how much the last one starts after the second last.
    """
    is_split = pl.col("match").is_not_null() & pl.col("kind").is_in(SYNCHRONIZING)
    sums = (
        rows.filter(is_split)
        .group_by("match")
        .agg(
            pl.col("duration_ns").min().alias("shortest_ns"),
            pl.col("duration_ns").bottom_k(2).max().alias("second_ns"),
            pl.col("duration_ns").quantile(0.5, "higher").cast(pl.Int64).alias("middle_ns"),
            pl.col("rank").sort_by("duration_ns", "rank").first().alias("last_rank"),
            pl.len().alias("members"),
            (2 * pl.len() > pl.coalesce(pl.col("group_size").max(), world_size or 0)).alias("is_most"),
        )
    )
    joined = rows.join(sums, on="match", how="left", maintain_order="left")
    wait = pl.when(is_split).then(pl.col("duration_ns") - pl.col("shortest_ns"))
    return joined.with_columns(
        wait.alias("wait_ns"),
        pl.when(is_split).then("shortest_ns").alias("transfer_ns"),
        pl.when(is_split).then((pl.col("middle_ns") - pl.col("duration_ns")).clip(0)).alias("late_ns"),
        pl.when(is_split).then(pl.col("second_ns") - pl.col("shortest_ns")).alias("margin_ns"),
        pl.when(is_split)
        .then((pl.col("last_rank") == pl.col("rank")) & (pl.col("second_ns") > pl.col("shortest_ns")))
        .alias("is_last"),
    ).drop("shortest_ns", "second_ns", "middle_ns", "last_rank")


def with_exposed_waits(rows: pl.DataFrame, exposed: pl.DataFrame) -> pl.DataFrame:
    """Add exposed_wait_ns and exposed_transfer_ns: what of wait and transfer nothing on the device hid.

    ``exposed`` has rank and the columns of `EXPOSED`; a piece that joins several counts as evenly exposed.
    """
    waits = rows.filter(pl.col("wait_ns") > 0).select("rank", "row", "wait_ns")
    inside = pl.min_horizontal("end_ns", "wait_ns") - pl.col("start_ns")
    share = pl.col("exposed_ns") * inside.clip(0) / (pl.col("end_ns") - pl.col("start_ns"))
    sums = (
        exposed.join(waits, on=["rank", "row"])
        .group_by("rank", "row")
        .agg(share.sum().round().cast(pl.Int64).alias("exposed_wait_ns"))
    )
    is_split = pl.col("wait_ns").is_not_null()
    joined = rows.join(sums, on=["rank", "row"], how="left", maintain_order="left").with_columns(
        pl.when(is_split).then(pl.col("exposed_wait_ns").fill_null(0)).alias("exposed_wait_ns")
    )
    return joined.with_columns(
        pl.when(is_split).then(pl.col("exposed_ns") - pl.col("exposed_wait_ns")).alias("exposed_transfer_ns")
    )


def with_own_lateness(rows: pl.DataFrame, least_ns: int = 0) -> pl.DataFrame:
    """Add own_late_ns: lateness less waits and lateness in other groups since the rank last met this one.

    A rank that waits for a straggler in one group comes late to the next: that lateness is the straggler's. What its peers of the collective
    waited for elsewhere, too (the middle of them), made nobody late. ``gain_ns`` is what at least comes of it if the last rank alone comes
    earlier: no more than its margin, its own lateness, and the exposed wait of every other member; 0 where no more than half of the group
    was recorded. Lateness of ``least_ns`` or less counts as none: it may be that ends do not agree.
    """
    group = pl.coalesce("group", pl.format("size {}", "group_size"), pl.lit("ungrouped"))
    split = rows.filter(pl.col("wait_ns").is_not_null()).with_columns(group.alias("of")).sort("rank", "start_ns", "row")
    split = split.with_columns(pl.col("wait_ns").cum_sum().over("rank").alias("total"))
    before = pl.col("total").shift(1).over("rank", "of").fill_null(0)
    split = split.with_columns((pl.col("total") - pl.col("wait_ns") - before).alias("elsewhere"))
    usual = pl.col("elsewhere").quantile(0.5, "lower").over("match").cast(pl.Int64)
    late = pl.col("late_ns") - (pl.col("elsewhere") - usual).clip(0)
    split = split.with_columns(pl.when(late > least_ns).then(late).otherwise(0).alias("late"))
    split = split.with_columns(_uncharged(split).alias("own_late_ns"))
    others = pl.when(pl.col("is_last")).then(None).otherwise(pl.col("exposed_wait_ns")).min().over("match")
    gain = pl.when(pl.col("is_last") & pl.col("is_most")).then(pl.min_horizontal("margin_ns", "own_late_ns", others))
    own = split.with_columns(gain.fill_null(0).alias("gain_ns")).select("rank", "row", "own_late_ns", "gain_ns")
    return rows.join(own, on=["rank", "row"], how="left", maintain_order="left")


def _uncharged(split: pl.DataFrame) -> pl.Series:
    """Return ``late`` less what the rank was late by in other groups (``of``) since it last met this one.

    All ranks advance together, one collective at a time: what is charged to one decides what is left of the next.
    """
    if split.is_empty():
        return pl.Series(dtype=pl.Int64)
    numbers = split.select(
        (pl.col("rank").rank("dense") - 1).alias("rank"),
        pl.int_range(pl.len()).over("rank").alias("place"),
        (pl.col("of").rank("dense").over("rank") - 1).alias("slot"),
    )
    rank, place, slot = (numbers.get_column(name).cast(pl.Int64).to_numpy() for name in ("rank", "place", "slot"))
    shape = int(place.max()) + 1, int(rank.max()) + 1
    late, slots = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    late[place, rank], slots[place, rank] = split.get_column("late").to_numpy(), slot
    own = uncharged(late, slots)
    return pl.Series(own[place, rank])


def uncharged(late: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return lateness less what the same column was charged in other slots since it last was in this one; at least 0.

    ``late`` and ``slots`` are collectives by ranks; slots number the groups of a rank.
    """
    own = np.zeros_like(late)
    ranks = np.arange(late.shape[1])
    charged = np.zeros(late.shape[1], dtype=np.int64)
    known = np.zeros((late.shape[1], int(slots.max(initial=0)) + 1), dtype=np.int64)
    for place in range(late.shape[0]):
        own[place] = np.maximum(late[place] - (charged - known[ranks, slots[place]]), 0)
        charged += own[place]
        known[ranks, slots[place]] = charged
    return own


def by_rank_and_step(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum up rows with waits by rank and step: times, and how many of the split collectives the rank was the last of."""
    names = (
        "wait_ns", "transfer_ns", "exposed_wait_ns", "exposed_transfer_ns", "own_late_ns", "gain_ns",
    )  # fmt: skip
    return (
        rows.group_by("rank", "step")
        .agg(
            pl.col(*names).sum(),
            pl.when(pl.col("wait_ns").is_null()).then("duration_ns").sum().alias("unsplit_ns"),
            pl.col("wait_ns").count().cast(pl.Int64).alias("split"),
            pl.col("is_last").sum().cast(pl.Int64).alias("led"),
            pl.col("duration_ns").sum().alias("communication_ns"),
            pl.len().cast(pl.Int64).alias("collectives"),
        )
        .sort("rank", "step", nulls_last=True)
    )
