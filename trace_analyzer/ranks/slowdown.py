"""Classify the slowdown of a job by its ranks' own work, which is a step without its communication."""

from dataclasses import dataclass
from typing import Annotated, Literal

import polars as pl

SlowdownKind = Literal["worker", "data", "stages", "network", "even"]
WORST = 0.8
"""Least share of steps in which a rank must be the slowest to be the cause."""
LEAST = 1.05
"""Largest ratio of the slowest rank's work to the mean for ranks to count as even."""
NETWORK = 0.2
"""Least share of exposed transfer in the step at which the network slows an even job."""


@dataclass(frozen=True)
class Slowdown:
    """Hold what keeps the steps longer than even ranks would take, from steps without their communication.

    Coefficients are null where there are too few steps or ranks.
    """

    kind: Annotated[SlowdownKind, "What differs most."]
    estimate: Annotated[float, "Mean over steps of the slowest rank's own work over the mean rank's."]
    between_cv: Annotated[float | None, "Coefficient of variation between the ranks of a role."]
    within_cv: Annotated[float | None, "Coefficient of variation between the steps of a rank."]
    stages_ratio: Annotated[float | None, "The longest role's mean over the mean of roles."]
    worst_rank: Annotated[int, "The rank that is slowest most often."]
    worst_steps: Annotated[int, "Steps in which it is."]
    steps: Annotated[int, "Steps that were judged."]


def own_work(parts: pl.DataFrame) -> pl.DataFrame:
    """Return rank, step, own_ns: the time of each steady step except time in which the device only communicated."""
    own = pl.col("total_ns").filter(pl.col("part") != "communication").sum().alias("own_ns")
    return parts.group_by("rank", "step").agg(own).sort("rank", "step", nulls_last=True)


def slowdown(own: pl.DataFrame, role_of: pl.DataFrame, transfer_ratio: float) -> Slowdown | None:
    """Return the kind of slowdown; None where no step is known for two ranks.

    ``own`` is rank, step, own_ns; ``role_of`` rank, role; ``transfer_ratio`` is the share of exposed transfer in the steps.
    """
    rows = own.join(role_of, on="rank").filter(pl.col("rank").n_unique().over("step") > 1)
    if rows.is_empty() or not rows.get_column("own_ns").sum():
        return None
    by_step = rows.group_by("step").agg(
        (pl.col("own_ns").max() / pl.col("own_ns").mean()).alias("ratio"),
        pl.col("rank").sort_by("own_ns", "rank", descending=[True, False]).first().alias("worst"),
    )
    estimate = by_step.select(pl.col("ratio").mean()).item()
    worst, worst_steps = by_step.group_by("worst").len().sort("len", "worst", descending=[True, False]).row(0)
    means = rows.group_by("role", "rank").agg(pl.col("own_ns").mean().alias("mean"), _cv("own_ns").alias("cv"))
    between = means.group_by("role").agg(_cv("mean"), pl.len()).drop_nulls()
    weighted = (pl.col("mean") * pl.col("len")).sum() / pl.col("len").sum()
    between_cv = between.select(weighted).item() if between.height else None
    within_cv = means.get_column("cv").mean()
    stages = means.group_by("role").agg(pl.col("mean").mean())
    stages_ratio = stages.select(pl.col("mean").max() / pl.col("mean").mean()).item() if stages.height > 1 else None
    steps = by_step.height
    between_cv, within_cv = (None if cv is None else float(cv) for cv in (between_cv, within_cv))  # type: ignore[arg-type]
    kind: SlowdownKind
    if estimate <= LEAST:
        kind = "network" if transfer_ratio >= NETWORK else "even"
    elif (between_cv or 0) > (within_cv or 0) and worst_steps >= WORST * steps:
        kind = "worker"
    elif stages_ratio is not None and stages_ratio - 1 > max(between_cv or 0, within_cv or 0):
        kind = "stages"
    elif (within_cv or 0) >= (between_cv or 0) and within_cv:
        kind = "data"
    else:
        kind = "worker"
    return Slowdown(kind, float(estimate), between_cv, within_cv, stages_ratio, worst, worst_steps, steps)


def _cv(column: str) -> pl.Expr:
    """Return the coefficient of variation; null for fewer than two values."""
    mean = pl.col(column).mean()
    return pl.when((pl.len() > 1) & (mean > 0)).then(pl.col(column).std() / mean).alias(column)
