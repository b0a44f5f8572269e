"""Tell late ranks from the jitter of their job, and make the tables of its map of ranks by steps."""

import math

import numpy as np
import polars as pl
from msgspec import Struct

from trace_analyzer.compare.statistics import t_quantile
from trace_analyzer.ranks.waits import gains, most_late

PERSISTENT = 0.8
"""Least share of steps in which a persistent straggler is late."""
FALSE_ALARMS = 0.05
"""Share of jobs whose ranks differ by jitter alone in which one may be named, by each test."""
FEW_VALUES = 5.0
"""Scales of few values n are uncertain, and are taken 1 + 5 / sqrt(n) times: of simulated jobs of 4 ranks and 3 steps
about 10 % raise a false alarm without it, 5 % with it."""
FEW_STEPS = 3
"""Least steps whose differences tell the jitter."""
FEW_RANKS, FEW_LATE = 3, 16
"""Of fewer values than the second, in several steps or of fewer ranks than the first, quartiles tell no jitter: of
simulated jobs of 3 ranks and 3 steps 38 % raise a false alarm by them, and at most 4.5 % by `_few_late`."""


class Jitter(Struct, frozen=True):
    """By how much ranks of a job are late in a step by chance: ``usual_ns``, and ``scale_ns`` of what exceeds it."""

    usual_ns: float
    scale_ns: float

    def most_ns(self, among: int, steps: int = 1) -> float:
        """Return what the mean lateness over so many steps exceeds on any of ``among`` ranks by chance in 5 % of jobs.

        Excesses are taken as exponential, which bounds those of a normal distribution: their mean exceeds t scales
        with a probability of at most exp(-steps (t - 1 - ln t)) (Chernoff 1952).
        """
        allowed = math.log(among / FALSE_ALARMS) / steps
        times = 1 + allowed
        for _ in range(50):
            times = 1 + allowed + math.log(times)
        return self.usual_ns + self.scale_ns * times


def jitter(own: pl.DataFrame) -> Jitter:
    """Estimate the jitter from rank, step and own_late_ns, such that neither a few late ranks nor late steps count.

    Its scale is that between ranks, or between steps of a rank if that is less, as where half of the ranks are late in
    each. Quartiles and octiles tell it, so that an eighth of the values may be of stragglers.
    """
    late = own.sort("rank", "step", nulls_last=True)
    values = late.get_column("own_late_ns").cast(pl.Float64)
    changes = late.select(pl.col("own_late_ns").diff().over("rank").cast(pl.Float64)).to_series().drop_nulls()
    scales = []
    for sample in (values, changes) if late.get_column("step").n_unique() >= FEW_STEPS else (values,):
        if len(sample) > 1:
            low, high, top = (sample.quantile(q, "nearest") or 0.0 for q in (0.5, 0.75, 0.875))
            scales.append(max(high - low, top - high) / math.log(2))
    doubt = 1 + FEW_VALUES / math.sqrt(max(1, len(values)))
    return Jitter(values.quantile(0.5, "lower") or 0.0, doubt * min(scales, default=0.0))


def _leads(last: int, of: int, ranks: int) -> bool:
    """Return whether a rank is last more often than any of so many equal ranks would be by chance in 5 % of jobs."""
    share, chance = last / of, 1 / ranks
    if share <= chance:
        return False
    rest = (1 - share) * math.log((1 - share) / (1 - chance)) if share < 1 else 0.0
    # The tail of a binomial distribution is at most exp(-n KL) (Chernoff 1952).
    return of * (share * math.log(share / chance) + rest) > math.log(ranks / FALSE_ALARMS)


def _few_late(own: pl.DataFrame, floor_ns: float, many: int) -> tuple[pl.DataFrame, set[int]]:
    """Add once_ns to rank, step and own_late_ns of a small job, and return the ranks that are late in the mean.

    The latest rank's lateness in a step is taken as exponential: one of S exceeds k times the mean of the others with a
    probability of at most S (1 + k / (S - 1)) ** -(S - 1). A rank's lead over the latest of the others is compared with its
    spread from step to step by Student's t. Each test has half of `FALSE_ALARMS`.
    """
    chance, late = FALSE_ALARMS / 2, pl.col("own_late_ns").cast(pl.Float64)
    most = own.group_by("step").agg(late.max().alias("most"))
    rest = max(0, most.height - 1)
    times = rest * ((chance / most.height) ** (-1 / rest) - 1) if rest else math.inf
    others = (pl.col("most").sum() - pl.col("most")) / rest * times if rest else pl.lit(math.inf)
    limits = most.select("step", pl.max_horizontal(others, pl.lit(float(floor_ns))).alias("once_ns"))
    latest, second = late.max().over("step"), late.top_k(2).min().over("step")
    lead = (late - pl.when(late == latest).then(second).otherwise(latest)).alias("lead")
    leads = (
        own.select("rank", lead)
        .group_by("rank")
        .agg(pl.len(), pl.col("lead").mean(), pl.col("lead").std().alias("std"))
    )
    often = {
        rank
        for rank, steps, mean, std in leads.iter_rows()
        if steps > 1 and mean > max(floor_ns, t_quantile(1 - chance / many, steps - 1) * std / math.sqrt(steps))
    }
    return own.join(limits, on="step", how="left", nulls_equal=True), often


def late_ranks(by_step: pl.DataFrame, rows: pl.DataFrame, floor_ns: float) -> tuple[pl.DataFrame, float]:
    """Return ranks that are late by more than the job's jitter and cost others time by it, the latest first.

    Columns: rank, late_ns, gain_ns, late_steps, steps, led_ratio, kind. Also returns the lateness in a step up to which
    no rank is named, at least ``floor_ns``. ``by_step`` and ``rows`` are those of `waits.Reduced`.

    A rank is late whose lateness in one step exceeds the `jitter`, or whose mean lateness does, of which a step counts
    up to that; of less than `FEW_STEPS`, which do not tell their jitter, also one that is the last in more collectives
    than chance makes it. `_few_late` judges the few values of a small job.
    """
    # Where there are steps, collectives outside of them are no step of their own.
    in_steps = pl.col("step").is_not_null() | pl.col("step").is_null().all()
    own = by_step.filter(pl.col("split") > 0).filter(in_steps)
    noise, many = jitter(own), max(1, own.get_column("rank").n_unique())
    sums = own.group_by("rank").agg(pl.len().cast(pl.Int64).alias("steps"), pl.col("led", "split").sum())
    if own.height < FEW_LATE and (own.get_column("step").n_unique() > 1 or many < FEW_RANKS):
        usual_ns, (own, often) = floor_ns, _few_late(own, floor_ns, many)
    else:
        usual_ns = max(floor_ns, noise.usual_ns + noise.scale_ns)
        own = own.with_columns(pl.lit(max(floor_ns, noise.most_ns(max(1, own.height)))).alias("once_ns"))
        means = own.group_by("rank").agg(pl.len(), pl.min_horizontal("own_late_ns", "once_ns").mean())
        often = {rank for rank, steps, mean in means.iter_rows() if mean > max(floor_ns, noise.most_ns(many, steps))}
    often |= {rank for rank, steps, led, split in sums.iter_rows() if steps < FEW_STEPS and _leads(led, split, many)}
    is_late = pl.col("own_late_ns") > pl.when(pl.col("rank").is_in(list(often))).then(usual_ns).otherwise("once_ns")
    late = own.filter(is_late).select("rank", "step", "own_late_ns")
    while True:  # without a rank that cost nothing, the others may gain less
        won = late.join(gains(rows, set(late.get_column("rank"))), on=["rank", "step"], how="left", nulls_equal=True)
        means = won.group_by("rank").agg(
            pl.col("own_late_ns").mean().alias("late_ns"),
            pl.len().cast(pl.Int64).alias("late_steps"),
            pl.col("gain_ns").mean(),
        )
        costly = means.filter(pl.col("gain_ns").fill_null(math.inf) > floor_ns)
        if costly.height == means.height:
            break
        late = late.join(costly, on="rank", how="semi")
    kind = (
        pl.when((pl.col("late_steps") >= PERSISTENT * pl.col("steps")) & (pl.col("steps") > 1))
        .then(pl.lit("persistent"))
        .when(pl.col("late_steps") == 1)
        .then(pl.lit("once"))
        .otherwise(pl.lit("wandering"))
    )
    led = by_step.group_by("rank").agg(led_ratio=pl.col("led").sum() / pl.col("split").sum())  # outside of steps, too
    summed = means.join(sums, on="rank").join(led, on="rank").with_columns(kind.alias("kind"))
    total = pl.col("late_ns") * pl.col("late_steps")
    return summed.sort(total, "rank", descending=[True, False]), float(own.get_column("once_ns").max() or floor_ns)  # type: ignore[arg-type]


def waited_for(rows: pl.DataFrame) -> tuple[int, float] | None:
    """Return the rank for which the others wait longest, and its share of all waits; None without waits."""
    last = rows.filter("is_last").select("match", pl.col("rank").alias("last"))
    sums = rows.join(last, on="match").group_by("last").agg(pl.col("wait_ns").sum())
    total = rows.get_column("wait_ns").sum()
    if not total or sums.is_empty():
        return None
    rank, waited = sums.sort("wait_ns", "last", descending=[True, False]).row(0)
    return rank, waited / total


MOST_COLLECTIVES = 300_000
"""Most collectives in the page, about 12 bytes each; steps with most lateness come first."""
_MOST_CELLS = 2_000_000


def drawn_steps(by_step: pl.DataFrame, ranks: int) -> list[int | None]:
    """Return the steps whose cells fit into the page for so many ranks, in order; at least the first one."""
    return by_step.get_column("step").unique().sort(nulls_last=True).to_list()[: max(1, _MOST_CELLS // max(1, ranks))]


def drawn_collectives(rows: pl.DataFrame, steps: list[int | None], by_step: pl.DataFrame) -> pl.DataFrame:
    """Return the collectives that fit into the page: those of the steps with most lateness.

    Where not even one step fits, they are its longest collectives.
    """
    shown = rows.filter(pl.col("step").is_in(steps, nulls_equal=True))
    late = by_step.group_by("step").agg(pl.col("own_late_ns").sum())
    sizes = shown.group_by("step").agg(pl.len().cast(pl.Int64).alias("collectives"))
    return most_late(shown, sizes.join(late, on="step", how="left", nulls_equal=True), MOST_COLLECTIVES)


def cells(
    by_step: pl.DataFrame, judged: pl.DataFrame, ranks: list[int], steps: list[int | None], regimes: list[str]
) -> pl.DataFrame:
    """Return rank, step, own_late_ns, wait_ns and regime, rank by rank.

    The regime is its index in ``regimes``, starting at 1; 0 means none.
    """
    key, codes = ["rank", "step"], list(range(1, len(regimes) + 1))
    return (
        pl.DataFrame({"rank": ranks}, schema={"rank": pl.Int64})
        .join(pl.DataFrame({"step": steps}, schema={"step": pl.Int64}), how="cross", maintain_order="left_right")
        .join(
            by_step.select(*key, "own_late_ns", "wait_ns"), on=key, how="left", nulls_equal=True, maintain_order="left",
        )
        .join(
            judged.select(*key, "regime").unique(key, keep="first", maintain_order=True),
            on=key, how="left", nulls_equal=True, maintain_order="left",
        )
        .with_columns(pl.col("regime").cast(pl.String).replace_strict(regimes, codes, default=0, return_dtype=pl.Int64))
    )  # fmt: skip


def placed_collectives(rows: pl.DataFrame, ranks: list[int], steps: list[int | None]) -> pl.DataFrame:
    """Add c_rank and c_step, indices in the page, and c_start, ns from the step's first start; sort by step."""
    places = {step: place for place, step in enumerate(steps)}
    begin = pl.col("end_ns") - pl.col("duration_ns")
    return (
        rows.filter(pl.col("rank").is_in(ranks))
        .with_columns(
            pl.col("rank")
            .replace_strict({rank: place for place, rank in enumerate(ranks)}, return_dtype=pl.Int64)
            .alias("c_rank"),
            pl.col("step").replace_strict(places, return_dtype=pl.Int64).alias("c_step"),
        )
        .with_columns((begin - begin.min().over("c_step")).alias("c_start"))
        .sort("c_step", "c_rank", "c_start")
    )


def offsets(placed: pl.DataFrame, steps: int) -> pl.Series:
    """Return the row at which the collectives of each step start, followed by the number of rows."""
    return pl.Series(np.searchsorted(placed.get_column("c_step").to_numpy(), np.arange(steps + 1)))


def named_waits(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the collectives in order of rank and start, with start_ns and last_rank: the rank that came last, null where none did."""
    last = rows.filter("is_last").select("match", pl.col("rank").alias("last_rank")).unique("match", keep="any")
    begin = (pl.col("end_ns") - pl.col("duration_ns")).alias("start_ns")
    return rows.join(last, on="match", how="left").with_columns(begin).sort("rank", "start_ns", "end_ns")
