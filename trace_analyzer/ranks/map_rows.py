"""Make the tables of a job's page: the map of ranks by steps, and the collectives of each step."""

import numpy as np
import polars as pl

from trace_analyzer.ranks.job import JobReport

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
    sizes = (
        rows.filter(pl.col("step").is_in(steps, nulls_equal=True))
        .group_by("step")
        .len()
        .join(by_step.group_by("step").agg(pl.col("own_late_ns").sum()), on="step", how="left", nulls_equal=True)
        .sort("own_late_ns", "step", descending=[True, False], nulls_last=True)
    )
    whole = sizes.filter(pl.col("len").cum_sum() <= MOST_COLLECTIVES).get_column("step")
    if whole.is_empty() and sizes.height:
        first = rows.filter(pl.col("step").eq_missing(sizes.get_column("step")[0]))
        return first.sort("duration_ns", "rank", "row", descending=[True, False, False]).head(MOST_COLLECTIVES)
    return rows.filter(pl.col("step").is_in(whole.implode(), nulls_equal=True))


def cells(report: JobReport, ranks: list[int], steps: list[int | None], regimes: list[str]) -> pl.DataFrame:
    """Return rank, step, own_late_ns, wait_ns and regime, rank by rank.

    The regime is its index in ``regimes``, starting at 1; 0 means none.
    """
    key, codes = ["rank", "step"], list(range(1, len(regimes) + 1))
    return (
        pl.DataFrame({"rank": ranks}, schema={"rank": pl.Int64})
        .join(pl.DataFrame({"step": steps}, schema={"step": pl.Int64}), how="cross", maintain_order="left_right")
        .join(
            report.by_step.select(*key, "own_late_ns", "wait_ns"), on=key, how="left", nulls_equal=True, maintain_order="left",
        )
        .join(
            report.steps.select(*key, "regime").unique(key, keep="first", maintain_order=True),
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


def named_waits(report: JobReport) -> pl.DataFrame:
    """Return the collectives in order of rank and start, with start_ns and last_rank: the rank that came last, null where none did."""
    last = report.rows.filter("is_last").select("match", pl.col("rank").alias("last_rank")).unique("match", keep="any")
    begin = (pl.col("end_ns") - pl.col("duration_ns")).alias("start_ns")
    return report.rows.join(last, on="match", how="left").with_columns(begin).sort("rank", "start_ns", "end_ns")
