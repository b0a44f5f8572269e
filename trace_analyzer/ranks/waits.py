"""Split collectives into waiting for the last rank and transfer, and attribute lateness to ranks."""

from collections.abc import Callable, Collection, Mapping
from itertools import starmap

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from trace_analyzer.frames.intervals import LENGTH_NS
from trace_analyzer.ranks.clocks import Alignment, matched
from trace_analyzer.ranks.joining import Spool
from trace_analyzer.ranks.matching import WAYS

Integers = npt.NDArray[np.int64]
UNSPLIT = (
    "are sends or receives, which hold two ranks only",
    "end on one rank before another starts: they are not one collective",
    "need not hold all of their ranks, and end apart",
    "state neither a number nor a process group by which to match them",
    "have no peer in the other traces",
)
"""Reasons for which a collective is not split into waiting and transfer."""


def with_waits(rows: pl.DataFrame, world_size: int | None, allowed_ns: int, sends: int) -> pl.DataFrame:
    """Add wait_ns, late_ns, is_most, is_last, null where a row is not split, and reason (of `UNSPLIT`), null where it is.

    The last rank waits for nobody, so the shortest duration of a collective is its transfer, and the excess of the
    others is waiting, without any use of clocks. A kind that need not hold its members, such as a broadcast, is split
    where they end together, within ``allowed_ns``, as then it held them. ``is_most`` is true where more than half of
    the group (of the job, where no group is recorded) was recorded. ``late_ns`` is the delay of a rank's start after
    the median start (the earlier of two medians). A match in which a rank ends before another starts, by over
    ``allowed_ns``, is removed. ``sends`` is the code of sends and receives, which are never split.
    """
    own = rows.filter(pl.col("match").is_not_null(), pl.col("kind") != sends)
    duration, end = pl.col("duration_ns"), pl.col("end_ns")
    matches = own.group_by("match").agg(
        (2 * pl.len() > pl.coalesce(pl.col("group_size").max(), world_size or 0)).alias("is_most"),
        ((end - duration).max() - end.min() <= allowed_ns).alias("is_possible"),
        (pl.col("is_split").all() | (end.max() - end.min() <= allowed_ns)).alias("is_held"),
        duration.min().alias("shortest_ns"),
        duration.bottom_k(2).max().alias("second_ns"),
        duration.sort().get(pl.len() // 2).alias("middle_ns"),
    )
    of_sends, is_wrong = pl.col("kind") == sends, pl.col("is_split") & ~pl.col("is_possible")
    waits = rows.join(matches, on="match", how="left", maintain_order="left").with_columns(
        pl.when(of_sends).then(0).when(is_wrong).then(1)
        .when(~pl.col("is_held")).then(2)
        .when(pl.col("match").is_null()).then(pl.when(pl.col("key").is_null() & ~pl.col("is_split")).then(3).otherwise(4))
        .cast(pl.UInt8).alias("reason")
    ).with_columns(pl.when(pl.col("reason").ne_missing(1)).then(name).alias(name) for name in ("match", "by"))  # fmt: skip
    is_split = pl.col("reason").is_null()
    return waits.with_columns(
        pl.when(is_split).then(duration - pl.col("shortest_ns")).alias("wait_ns"),
        pl.when(is_split).then((pl.col("middle_ns") - duration).clip(0)).alias("late_ns"),
        pl.when(is_split).then("is_most").alias("is_most"),
    ).select(
        pl.exclude(
            "signature", "key", "group_size", "clock", "is_split", "is_possible", "is_held", "shortest_ns", "second_ns", "middle_ns"
        ),
        ((pl.col("wait_ns") == 0) & (pl.col("second_ns") > pl.col("shortest_ns"))).alias("is_last"),
    )  # fmt: skip


def with_exposed_waits(rows: pl.DataFrame, exposed: pl.DataFrame) -> pl.DataFrame:
    """Add exposed_wait_ns: the part of the wait that no other device work hid.

    ``exposed`` has rank and the columns of `EXPOSED`, for partly exposed collectives; a merged piece counts as evenly
    exposed.
    """
    is_whole = pl.col("exposed_ns") == pl.col("duration_ns")
    waits = rows.filter(pl.col("wait_ns") > 0).select("rank", "row", "wait_ns")
    inside = pl.min_horizontal("end_ns", "wait_ns") - pl.col("start_ns")
    share = pl.col("exposed_ns") * inside.clip(0) / LENGTH_NS
    sums = (
        exposed.join(waits, on=["rank", "row"])
        .group_by("rank", "row")
        .agg(share.sum().round().cast(pl.Int64).alias("partly_ns"))
    )
    wait = pl.when(is_whole).then("wait_ns").otherwise(pl.col("partly_ns").fill_null(0))
    return (
        rows.join(sums, on=["rank", "row"], how="left", maintain_order="left")
        .with_columns(pl.when(pl.col("wait_ns").is_not_null()).then(wait).alias("exposed_wait_ns"))
        .drop("partly_ns")
    )


_OF_LATENESS = ("rank", "of", "match", "wait_ns", "late_ns")


class Lateness:
    """Attribute lateness to the rank that caused it, part by part of the job; earlier attributions are remembered.

    A rank that waits for a straggler in one group arrives late in the next: that lateness is the straggler's. ``ranks``
    is the largest rank plus one; lateness of at most ``least_ns`` counts as none, as ends may not agree.
    """

    def __init__(self, ranks: int, least_ns: int = 0) -> None:
        self._least_ns = least_ns
        self._slots = pl.DataFrame(schema={"rank": pl.Int32, "of": pl.UInt64, "slot": pl.Int64})
        self._total, self._charged = np.zeros(ranks, dtype=np.int64), np.zeros(ranks, dtype=np.int64)
        self._total_then, self._charged_then = (np.zeros((ranks, 0), dtype=np.int64) for _ in range(2))

    def added(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add own_late_ns: lateness less waits and lateness in other groups since the rank's last row of this group.

        The part of such waits that its peers had too (their median) made nobody late. Rows are in order of rank and
        start.
        """
        split = rows.filter(pl.col("wait_ns").is_not_null()).select(_OF_LATENESS)
        if split.is_empty():
            return rows.with_columns(pl.lit(None, pl.Int64).alias("own_late_ns"))
        slots, rank = self._slotted(split), split.get_column("rank").to_numpy()
        place = split.select(pl.int_range(pl.len()).over("rank")).to_series().to_numpy()
        # Of each row what its rank waited in other groups since the last of this.
        waits = _Grid(rank, place, slots, split.get_column("wait_ns").to_numpy())
        elsewhere = waits.advanced(self._total, self._total_then, lambda values, others: (others, values))
        split = split.with_columns(pl.Series("elsewhere", elsewhere))
        usual = pl.col("elsewhere").quantile(0.5, "lower").over("match").cast(pl.Int64)
        late = pl.col("late_ns") - (pl.col("elsewhere") - usual).clip(0)
        own = split.select(pl.when(late > self._least_ns).then(late).otherwise(0)).to_series().to_numpy()
        charged = _Grid(rank, place, slots, own).advanced(self._charged, self._charged_then, _uncharged)
        return rows.with_columns(_spread(charged, rows.get_column("wait_ns").is_not_null(), "own_late_ns"))

    def _slotted(self, split: pl.DataFrame) -> Integers:
        """Return the slot of each row's group among those of its rank, and make room for new ones."""
        members = split.select("rank", "of").unique(maintain_order=True)
        new = members.join(self._slots, on=["rank", "of"], how="anti", maintain_order="left")
        if new.height:
            sizes = self._slots.group_by("rank").agg(pl.len().cast(pl.Int64).alias("used"))
            place = pl.int_range(pl.len()).over("rank") + pl.col("used").fill_null(0)
            numbered = new.join(sizes, on="rank", how="left", maintain_order="left").select(
                "rank", "of", place.alias("slot")
            )
            self._slots = pl.concat([self._slots, numbered])
        room = int(self._slots.get_column("slot").max()) + 1 - self._total_then.shape[1]  # type: ignore[arg-type]
        if room > 0:
            self._total_then, self._charged_then = (
                np.pad(then, ((0, 0), (0, room))) for then in (self._total_then, self._charged_then)
            )
        joined = split.select("rank", "of").join(self._slots, on=["rank", "of"], how="left", maintain_order="left")
        return joined.get_column("slot").to_numpy()


def _uncharged(late: Integers, others: Integers) -> tuple[Integers, Integers]:
    """Return lateness less what was attributed to the rank in other groups, which is attributed to it in turn."""
    left = np.maximum(late - others, 0)
    return left, left


def gains(rows: pl.DataFrame, ranks: Collection[int]) -> pl.DataFrame:
    """Return rank, step and gain_ns: what the step wins at least as each of ``ranks`` comes in time, as the others do.

    In each collective, the latest of all other ranks then decides: a rank gains by how much it is later than that one,
    at most its own lateness and the exposed wait of every such rank. Null where over half of its lateness is in groups
    of which no more than half was recorded. ``rows`` are those of `Reduced`.
    """
    if rows.is_empty():
        return pl.DataFrame(schema={"rank": pl.Int64, "step": pl.Int64, "gain_ns": pl.Int64})
    split = rows.filter(pl.col("wait_ns").is_not_null())
    is_named = pl.col("rank").is_in(list(ranks))
    others = split.filter(~is_named).group_by("match").agg(pl.col("exposed_wait_ns").min().alias("others_ns"))
    gain = pl.min_horizontal((pl.col("others_ns") - pl.col("wait_ns")).clip(0), "own_late_ns")
    late = pl.col("own_late_ns")
    is_known = 2 * late.filter("is_most").sum() >= late.sum()
    return (
        split.filter(is_named)
        .join(others, on="match", how="left")
        .group_by("rank", "step")
        .agg(pl.when(is_known).then(gain.filter("is_most").sum()).alias("gain_ns"))
    )


def _spread(values: Integers, at: pl.Series, name: str) -> pl.Series:
    """Return a column with the values where ``at`` is true, in order, and null elsewhere."""
    spread = np.zeros(len(at), dtype=np.int64)
    spread[at.to_numpy()] = values
    column = pl.Series(name, spread)
    return column if at.all() else column.set(~at, None)


class _Grid:
    """Values and slots by rank and position in its rows; slots are -1 where a rank has fewer rows."""

    def __init__(self, rank: Integers, place: Integers, slot: Integers, values: Integers) -> None:
        self.ranks, column = np.unique(rank, return_inverse=True)
        self._at = place, column
        shape = int(place.max()) + 1, len(self.ranks)
        self.values, self.slots = np.zeros(shape, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
        self.values[self._at], self.slots[self._at] = values, slot

    def advanced(
        self, total: Integers, then: Integers, step: Callable[[Integers, Integers], tuple[Integers, Integers]]
    ) -> Integers:
        """Return a result for each row, and add to ``total`` of its rank; ``then`` is the total at the last row of a slot.

        ``step`` gets values and what was added in other slots since then, and returns results and what to add. All
        ranks advance together, one collective at a time, as each addition affects the next one.
        """
        results = np.zeros_like(self.values)
        for place in range(len(results)):
            at = self.slots[place] >= 0
            own, slot = self.ranks[at], self.slots[place][at]
            results[place][at], added = step(self.values[place][at], total[own] - then[own, slot])
            total[own] += added
            then[own, slot] = total[own]
        taken: Integers = results[self._at]
        return taken


def by_rank_and_step(rows: pl.DataFrame, sends: int) -> pl.DataFrame:
    """Sum rows with waits by rank and step: times, and the number of split collectives in which the rank was last."""
    is_split = pl.col("wait_ns").is_not_null()
    return rows.group_by("rank", "step").agg(
        pl.col("wait_ns").sum(),
        (pl.col("duration_ns").filter(is_split).sum() - pl.col("wait_ns").sum()).alias("transfer_ns"),
        pl.col("exposed_wait_ns").sum(),
        (pl.col("exposed_ns").filter(is_split).sum() - pl.col("exposed_wait_ns").sum()).alias("exposed_transfer_ns"),
        pl.col("own_late_ns").sum(),
        pl.col("duration_ns").filter(~is_split).sum().alias("unsplit_ns"),
        pl.col("exposed_ns").filter(pl.col("kind") == sends).sum().alias("sends_exposed_ns"),
        pl.col("wait_ns").count().cast(pl.Int64).alias("split"),
        pl.col("is_last").sum().cast(pl.Int64).alias("led"),
        pl.col("duration_ns").sum().alias("communication_ns"),
        pl.len().cast(pl.Int64).alias("collectives"),
    )


KEPT_ROWS = 300_000
"""Most collectives that are kept individually: whole steps, those with most lateness."""


class Reduced(Struct, frozen=True):
    """A job's collectives by rank and step (`waits.by_rank_and_step`), and some of them individually.

    ``by`` is the number of matches by way of matching. ``unsplit`` has reason, collectives and total_ns of those that
    are not split.
    """

    by_step: pl.DataFrame
    rows: pl.DataFrame
    matched: int
    unmatched: int
    by: Mapping[str, int]
    unsplit: pl.DataFrame


def reduced(spool: Spool, alignment: Alignment, world_size: int | None, doubt_ns: int) -> Reduced:
    """Reduce the spooled collectives; lateness of at most ``doubt_ns`` counts as none."""
    lateness = Lateness(len(alignment.clock_of), doubt_ns)
    sends = spool.kinds.index("send_recv") if "send_recv" in spool.kinds else len(spool.kinds)

    def part(rows: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
        waits = with_waits(matched(rows, alignment), world_size, alignment.allowed_ns, sends)
        return lateness.added(with_exposed_waits(waits, pieces))

    sums: list[pl.DataFrame] = []
    unsplit: list[pl.DataFrame] = []
    kept = pl.DataFrame()
    ways = np.zeros(len(WAYS), dtype=np.int64)
    count, first = 0, 0
    for own in starmap(part, spool.parts()):
        ways += np.bincount(own.get_column("by").drop_nulls().to_numpy(), minlength=len(WAYS))
        count += own.height
        sums.append(by_rank_and_step(own, sends))
        left = own.filter(pl.col("reason").is_not_null()).group_by("reason")
        unsplit.append(
            left.agg(pl.len().cast(pl.Int64).alias("collectives"), pl.col("duration_ns").sum().alias("total_ns"))
        )
        kept, first = _kept(kept, own, sums[-1], first)
        del own  # free the memory before the next part is read
    by_step = pl.concat(sums)
    if len(sums) > 1:
        by_step = by_step.group_by("rank", "step").agg(pl.all().sum())
    named = kept.with_columns(
        (pl.col("duration_ns") - pl.col("wait_ns")).alias("transfer_ns"),
        (pl.col("exposed_ns") - pl.col("exposed_wait_ns")).alias("exposed_transfer_ns"),
    ).with_columns(
        pl.col("kind").replace_strict(range(len(spool.kinds)), spool.kinds, return_dtype=pl.String),
        pl.col("by").replace_strict(range(len(WAYS)), WAYS, return_dtype=pl.String),
        pl.col("rank").cast(pl.Int64),
    )
    total = int(ways.sum())
    by = {way: int(ways[WAYS.index(way)]) for way in sorted(WAYS) if ways[WAYS.index(way)]}
    return Reduced(
        by_step.with_columns(pl.col("rank").cast(pl.Int64)).sort("rank", "step", nulls_last=True),
        named,
        total,
        count - total,
        by,
        pl.concat(unsplit).group_by("reason").agg(pl.all().sum()).sort("total_ns", descending=True),
    )


def _kept(kept: pl.DataFrame, new: pl.DataFrame, sums: pl.DataFrame, first: int) -> tuple[pl.DataFrame, int]:
    """Return the rows to keep from earlier and new ones, and the next match number.

    ``sums`` are sums of the new rows by rank and step. Matches of new rows are numbered from ``first``.
    """
    last = new.get_column("match").max()
    sizes = [sums.group_by("step").agg(pl.col("collectives", "own_late_ns").sum())]
    if kept.width:
        sizes.append(
            kept.group_by("step").agg(pl.len().cast(pl.Int64).alias("collectives"), pl.col("own_late_ns").sum())
        )
    steps = pl.concat(sizes).group_by("step").agg(pl.all().sum())
    numbered = most_late(new, steps, KEPT_ROWS).with_columns((pl.col("match") + first).alias("match"))
    together = pl.concat([most_late(kept, steps, KEPT_ROWS), numbered]) if kept.width else numbered
    if together.height > KEPT_ROWS:  # more than the limit in a single step
        together = _latest(together, KEPT_ROWS)
    return together, first + int(last or 0) + 1  # type: ignore[arg-type]


def most_late(rows: pl.DataFrame, steps: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return at most ``most`` rows: those of the steps with most lateness.

    Of a single larger step, they are its `_latest`. ``steps`` has step, collectives and own_late_ns of all
    rows that may be kept; ``rows`` may be a subset of these.
    """
    ordered = steps.sort("own_late_ns", "step", descending=[True, False], nulls_last=True)
    whole = ordered.filter(pl.col("collectives").cum_sum() <= most).get_column("step")
    if len(whole) == steps.height:
        return rows
    if whole.is_empty():
        return _latest(rows.filter(pl.col("step").eq_missing(ordered.get_column("step")[0])), most)
    return rows.filter(pl.col("step").is_in(whole.implode(), nulls_equal=True))


def _latest(rows: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return at most ``most`` rows: whole collectives, those with most lateness first, then the longest.

    What a late rank costs follows from the rows of all ranks: its own is the shortest of its collective.
    """
    if rows.height <= most:
        return rows
    alone = -1 - pl.int_range(pl.len(), dtype=pl.Int64)  # without a peer in the other traces
    numbered = rows.with_columns(pl.coalesce("match", alone).alias("collective"))
    sizes = numbered.group_by("collective").agg(pl.len(), pl.col("own_late_ns").max(), pl.col("duration_ns").max())
    order = ["own_late_ns", "duration_ns", "collective"]
    kept = sizes.sort(order, descending=[True, True, False], nulls_last=True).filter(pl.col("len").cum_sum() <= most)
    return numbered.join(kept, on="collective", how="semi", maintain_order="left").drop("collective")
