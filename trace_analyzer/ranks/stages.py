"""Find the stages of a job's pipeline by the sends between its ranks, and the bubble of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import polars as pl

from trace_analyzer.vocabulary import WORK


@dataclass(frozen=True)
class Stage:
    """Hold a stage of the pipeline: means over its ranks and steady steps."""

    stage: Annotated[int, "Number of the stage, from 0."]
    ranks: Annotated[tuple[int, ...], "Its ranks."]
    role: Annotated[str | None, "Role of most of its ranks; null where none is known."]
    step_ns: Annotated[float, "Time of a step, ns."]
    idle_ns: Annotated[float, "Time of a step without work, ns."]
    sends_ns: Annotated[float, "Sends and receives that no other work hides, ns per step."]
    bubble_ratio: Annotated[float, "(idle_ns + sends_ns) / step_ns."]


@dataclass(frozen=True)
class Pipeline:
    """Hold the pipeline of a job.

    ``ideal_ratio`` is (p - 1) / (m + p - 1) with p stages and m microbatches (Narayanan et al. 2021, "Efficient large-scale language model
    training on GPU clusters", section 2.2).
    """

    stages: Annotated[tuple[Stage, ...], "Its stages, in order."]
    microbatches: Annotated[
        int | None, "Sends from the first stage to the second in a step, on one channel; null where it is not known."
    ]
    ideal_ratio: Annotated[
        float | None,
        "Bubble of a schedule without interleaving whose stages take equal time; null without microbatches.",
    ]


def pipeline(
    sends: pl.DataFrame, by_step: pl.DataFrame, parts: pl.DataFrame, role_of: Mapping[int, str]
) -> Pipeline | None:
    """Return the pipeline; None without sends between ranks.

    ``sends``: rank, from, to, step, count, as recorded; ``by_step``: sums of collectives by rank and step; ``parts``:
    the partition of steady steps by rank. A rank's stage is its index among the ranks connected by sends, in order of
    rank.
    """
    chains = _chains(sends)
    if not chains:
        return None
    stage_of = {rank: place for chain in chains for place, rank in enumerate(chain)}
    idle = ~pl.col("part").is_in(WORK)
    means = (
        parts.group_by("rank", "step")
        .agg(pl.col("total_ns").sum().alias("step_ns"), pl.col("total_ns").filter(idle).sum().alias("idle_ns"))
        .join(by_step.select("rank", "step", "sends_exposed_ns"), on=["rank", "step"], how="left", nulls_equal=True)
        .group_by("rank")
        .agg(pl.col("step_ns", "idle_ns").mean(), pl.col("sends_exposed_ns").fill_null(0).mean().alias("sends_ns"))
    )
    known = {row["rank"]: row for row in means.iter_rows(named=True) if row["rank"] in stage_of}
    stages = []
    for place in range(max(map(len, chains))):
        ranks = tuple(sorted(rank for rank, stage in stage_of.items() if stage == place))
        rows = [known[rank] for rank in ranks if rank in known]
        if not rows:
            continue
        step, idle_ns, sends_ns = (
            sum(row[name] for row in rows) / len(rows) for name in ("step_ns", "idle_ns", "sends_ns")
        )
        roles = [role_of[rank] for rank in ranks if rank in role_of]
        role = max(sorted(set(roles)), key=roles.count) if roles else None
        stages.append(Stage(place, ranks, role, step, idle_ns, sends_ns, (idle_ns + sends_ns) / step if step else 0.0))
    count, many = _microbatches(sends, chains), max(map(len, chains))
    return Pipeline(tuple(stages), count, (many - 1) / (count + many - 1) if count else None)


def _chains(sends: pl.DataFrame) -> list[tuple[int, ...]]:
    """Return sets of ranks that are connected by sends, each in order."""
    if sends.is_empty():
        return []
    parent: dict[int, int] = {}

    def root(rank: int) -> int:
        while parent.setdefault(rank, rank) != rank:
            parent[rank] = rank = parent[parent[rank]]
        return rank

    for one, other in sends.select("from", "to").unique().sort("from", "to").iter_rows():
        parent[root(one)] = root(other)
    chains: dict[int, list[int]] = {}
    for rank in sorted(parent):
        chains.setdefault(root(rank), []).append(rank)
    return [tuple(chain) for chain in chains.values()]


def _microbatches(sends: pl.DataFrame, chains: list[tuple[int, ...]]) -> int | None:
    """Return the number of sends from first to second stages per step; None if it differs in the other direction."""
    firsts = pl.DataFrame([(chain[0], chain[1]) for chain in chains], schema=["first", "second"], orient="row")
    counts = sends.filter(pl.col("step").is_not_null()).group_by("from", "to", "step").agg(pl.col("count").max())
    forward, backward = (
        counts.join(firsts, left_on=["from", "to"], right_on=keys, how="semi").get_column("count")
        for keys in (["first", "second"], ["second", "first"])
    )
    if forward.is_empty() or forward.n_unique() > 1:
        return None
    return int(forward[0]) if backward.is_empty() or backward.unique().to_list() == [forward[0]] else None
