"""Reduce the collectives of a job part by part: match, split into waiting and transfer, attribute lateness, and sum."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import starmap

import numpy as np
import polars as pl

from trace_analyzer.ranks.alignment import Alignment, matched
from trace_analyzer.ranks.matching import WAYS
from trace_analyzer.ranks.spool import Spool
from trace_analyzer.ranks.waits import Lateness, by_rank_and_step, with_exposed_waits, with_transfers, with_waits

KEPT_ROWS = 300_000
"""Most collectives that are kept individually: whole steps, those with most lateness."""


@dataclass(frozen=True)
class Reduced:
    """Hold a job's collectives by rank and step (`waits.by_rank_and_step`), and some of them individually.

    ``by`` is the number of matches by way of matching.
    """

    by_step: pl.DataFrame
    rows: pl.DataFrame
    matched: int
    unmatched: int
    by: Mapping[str, int]


def reduced(spool: Spool, alignment: Alignment, world_size: int | None, doubt_ns: int) -> Reduced:
    """Reduce the spooled collectives; lateness of at most ``doubt_ns`` counts as none."""
    lateness = Lateness(len(alignment.clock_of), doubt_ns)

    def part(rows: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
        waits = with_waits(matched(rows, alignment), world_size, alignment.allowed_ns)
        return lateness.added(with_exposed_waits(waits, pieces))

    sums: list[pl.DataFrame] = []
    kept = pl.DataFrame()
    ways = np.zeros(len(WAYS), dtype=np.int64)
    count, first = 0, 0
    for own in starmap(part, spool.parts()):
        ways += np.bincount(own.get_column("by").drop_nulls().to_numpy(), minlength=len(WAYS))
        count += own.height
        sums.append(by_rank_and_step(own, spool.kinds))
        kept, first = _kept(kept, own, sums[-1], first)
        del own  # free the memory before the next part is read
    by_step = pl.concat(sums)
    if len(sums) > 1:
        by_step = by_step.group_by("rank", "step").agg(pl.all().sum())
    named = with_transfers(kept).with_columns(
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
        together = together.filter(_longest(together.get_column("duration_ns"), KEPT_ROWS))
    return together, first + int(last or 0) + 1  # type: ignore[arg-type]


def most_late(rows: pl.DataFrame, steps: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return at most ``most`` rows: those of the steps with most lateness.

    Of a single larger step, they are its longest collectives. ``steps`` has step, collectives and own_late_ns of all
    rows that may be kept; ``rows`` may be a subset of these.
    """
    ordered = steps.sort("own_late_ns", "step", descending=[True, False], nulls_last=True)
    whole = ordered.filter(pl.col("collectives").cum_sum() <= most).get_column("step")
    if len(whole) == steps.height:
        return rows
    if whole.is_empty():
        is_own = rows.select(pl.col("step").eq_missing(ordered.get_column("step")[0])).to_series()
        return rows.filter(_longest(rows.get_column("duration_ns").set(~is_own, -1), most) & is_own)
    return rows.filter(pl.col("step").is_in(whole.implode(), nulls_equal=True))


def _longest(durations: pl.Series, most: int) -> pl.Series:
    """Return which durations are the ``most`` longest; of equal ones, the first."""
    if len(durations) <= most:
        return pl.repeat(True, len(durations), dtype=pl.Boolean, eager=True)
    least = durations.top_k(most).min()
    is_least, is_longer = durations == least, durations > least
    return is_longer | (is_least & (is_least.cum_sum() <= most - is_longer.sum()))
