"""Find the ranks that others wait for and why, the ranks that do the same work, and what slows the job; say it in a sentence.

The stages of a pipeline, and the bubble of each, are found by the sends between its ranks.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

import polars as pl
from msgspec import Struct

from trace_analyzer.compare import comparison, decomposition, profiles, sides
from trace_analyzer.ranks.joining import Problem
from trace_analyzer.units import counted, duration, percent
from trace_analyzer.vocabulary import REGIMES, WORK, phrase


def imbalance(work: pl.DataFrame, role_of: pl.DataFrame, least_ns: float) -> pl.DataFrame:
    """Return operators whose time differs between the ranks of a role, by (max - mean) / max, largest loss first.

    ``least_ns`` is the least (max - mean) per step that is listed. Columns: role, operator, category, ranks, mean_ns,
    max_ns, max_rank, ratio.
    """
    compute = work.filter(pl.col("kind") == "kernel").join(role_of, on="rank")
    sizes = role_of.group_by("role").len("ranks")
    grouped = (
        compute.group_by("role", "operator", "category")
        .agg(
            pl.col("step_ns").sum().alias("sum_ns"),
            pl.col("step_ns").max().alias("max_ns"),
            pl.col("rank").sort_by("step_ns", "rank", descending=[True, False]).first().alias("max_rank"),
        )
        .join(sizes, on="role")
        .filter(pl.col("ranks") > 1)
        .with_columns((pl.col("sum_ns") / pl.col("ranks")).alias("mean_ns"))
        .with_columns(((pl.col("max_ns") - pl.col("mean_ns")) / pl.col("max_ns")).alias("ratio"))
    )
    loss = pl.col("max_ns") - pl.col("mean_ns")
    return grouped.filter(loss > least_ns).sort(
        loss, "role", "operator", "category", descending=[True, False, False, False], nulls_last=True
    ).select("role", "operator", "category", "ranks", "mean_ns", "max_ns", "max_rank", "ratio")  # fmt: skip


SlowdownKind = Literal["worker", "data", "stages", "network", "even"]
WORST = 0.8
"""Least share of steps in which a rank must be the slowest to be the cause."""
LEAST = 1.05
"""Largest ratio of the slowest rank's work to the mean for ranks to count as even."""
NETWORK = 0.2
"""Least share of exposed transfer in the step at which the network slows an even job."""


class Slowdown(Struct, frozen=True):
    """What keeps the steps longer than even ranks would take, from steps without their communication.

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
    by_step = rows.group_by("step", maintain_order=True).agg(
        (pl.col("own_ns").max() / pl.col("own_ns").mean()).alias("ratio"),
        pl.col("rank").sort_by("own_ns", "rank", descending=[True, False]).first().alias("worst"),
    )
    estimate = by_step.select(pl.col("ratio").mean()).item()
    worst, worst_steps = by_step.group_by("worst").len().sort("len", "worst", descending=[True, False]).row(0)
    means = rows.group_by("role", "rank", maintain_order=True).agg(
        pl.col("own_ns").mean().alias("mean"), _cv("own_ns").alias("cv")
    )
    between = means.group_by("role", maintain_order=True).agg(_cv("mean"), pl.len()).drop_nulls()
    weighted = (pl.col("mean") * pl.col("len")).sum() / pl.col("len").sum()
    between_cv = between.select(weighted).item() if between.height else None
    within_cv = means.select(pl.col("cv").mean()).item()
    stages = means.group_by("role").agg(pl.col("mean").mean())
    stages_ratio = stages.select(pl.col("mean").max() / pl.col("mean").mean()).item() if stages.height > 1 else None
    steps = by_step.height
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
    return Slowdown(kind, estimate, between_cv, within_cv, stages_ratio, worst, worst_steps, steps)


def _cv(column: str) -> pl.Expr:
    """Return the coefficient of variation; null for fewer than two values."""
    mean = pl.col(column).mean()
    return pl.when((pl.len() > 1) & (mean > 0)).then(pl.col(column).std() / mean).alias(column)


ProfileOf = Callable[[int], profiles.Profile | None]
"""Type of a function that returns a rank's work as a profile; None where it was not recorded."""
_PEERS = 8
"""Number of peers for comparing a straggler: those of its role with lateness nearest to the median."""
_MOST_LISTED = 32


class Straggler(Struct, frozen=True):
    """A rank that others wait for."""

    rank: Annotated[int, "The rank; of kind `host` the latest one of the host."]
    host: Annotated[str, "Host that it runs on."]
    kind: Annotated[
        Literal["persistent", "once", "wandering", "host"],
        "How its lateness recurs, or `host` where most ranks of a host are late.",
    ]
    ranks: Annotated[tuple[int, ...], "Late ranks of the host; of other kinds the rank alone."]
    late_ns: Annotated[int, "Mean lateness in the steps in which it is late, ns."]
    late_steps: Annotated[int, "Steps in which it is late."]
    steps: Annotated[int, "Steps that were judged."]
    gain_at_least_ns: Annotated[
        int | None,
        "What each of these steps wins at least as it comes in time, if the others named do, ns; null where no more than half of its group was recorded.",
    ]
    led_ratio: Annotated[float, "Share of its collectives in which it comes last."]
    why: Annotated[str, "What takes it longer than its peers, or why that is not known."]
    recording_ns: Annotated[
        float | None,
        "Part of its lateness that is of recording at least: the estimate of what that takes of its step over that of the median rank, ns; null where it is not estimated.",
    ] = None


def stragglers(
    late: pl.DataFrame,
    hosts: Mapping[int, str],
    role_of: Mapping[int, str],
    profile_of: ProfileOf,
    recording: Mapping[int, float],
) -> tuple[Straggler, ...]:
    """Return the stragglers of `late_ranks`, the latest first.

    Hosts replace their ranks where most of these are persistent. ``recording`` is what it took of a step at
    least, ns, by rank.
    """
    usual_ns = statistics.median(recording.values()) if recording else 0.0
    sizes: dict[str, list[int]] = {}
    for rank, host in hosts.items():
        sizes.setdefault(host, []).append(rank)
    persistent = set(late.filter(pl.col("kind") == "persistent").get_column("rank"))
    late_hosts = {
        host: tuple(sorted(persistent & set(ranks)))
        for host, ranks in sizes.items()
        if 1 < len(ranks) < len(hosts) and 2 * len(persistent & set(ranks)) > len(ranks)
    }
    result: list[Straggler] = []
    named: set[str] = set()
    all_late = set(late.get_column("rank"))
    for row in late.iter_rows(named=True):
        rank = row["rank"]
        host = hosts[rank]
        of_host = rank in late_hosts.get(host, ())
        if (of_host and host in named) or len(result) >= _MOST_LISTED:
            continue
        named |= {host} if of_host else set()
        role = role_of.get(rank)
        alike = [other for other in role_of if role_of[other] == role and other != rank and other not in all_late]
        result.append(
            Straggler(
                rank=rank,
                host=host,
                kind="host" if of_host else row["kind"],
                ranks=late_hosts[host] if of_host else (rank,),
                late_ns=round(row["late_ns"]),
                late_steps=row["late_steps"],
                steps=row["steps"],
                gain_at_least_ns=None if row["gain_ns"] is None else round(row["gain_ns"]),
                led_ratio=row["led_ratio"],
                why=why(rank, sorted(alike, key=lambda other: (abs(other - rank), other))[:_PEERS], profile_of),
                recording_ns=max(0.0, recording[rank] - usual_ns) if rank in recording else None,
            )
        )
    return tuple(result)


def why(rank: int, peers: Sequence[int], profile_of: ProfileOf) -> str:
    """Return what takes the rank longer per step than its peers, by `compare`; or why that is unknown."""
    own = profile_of(rank)
    if own is not None and not peers:
        return "no rank does the same work in time, so its cause is not known"
    others = [profile for peer in peers if (profile := profile_of(peer)) is not None]
    if own is None or not others:
        return "no device's work was recorded, so its cause is not known"
    return reason(decomposition.compare_profiles(sides.merged(f"{len(others)} peers", others), own))


def reason(result: comparison.Comparison) -> str:
    """Return the line of a comparison with the largest excess over the peers, except communication."""
    if result.status == "refused" or result.before is None:
        return f"it cannot be compared with its peers: {result.reason}"
    least = result.floor_ns
    sums: dict[str, float] = {}
    for line in result.lines:
        if line.kind != "communication":
            name = phrase(line.category) if line.kind == "idle" else line.name
            sums[name] = sums.get(name, 0.0) + line.difference_ns
    name, longest = max(sums.items(), key=lambda item: item[1], default=("", 0.0))
    waits = sum(line.difference_ns for line in result.lines if line.kind == "communication")
    if longest <= least:
        return "nothing that it does takes longer than on its peers: the cause was not recorded, or lies in few steps"
    less = f"; communication {duration(-waits)} less" if waits < -least else ""
    return f"{name} +{duration(longest)} a step{less}"


_MOST_WAITED = 0.5
"""Share of waits from which the rank that they are for is named."""
WHOLE = {"step": "a step", "window": "the window"}
"""What shares of the time of a unit are of: ranks have many steps, or one window each."""
_WORDS = {
    "missing": "missing", "failed": "unreadable", "cut": "cut", "duplicate": "there twice", "foreign": "not of this job",
}  # fmt: skip


def sentence(
    stragglers: Sequence[Straggler],
    *,
    matched: int,
    seen: int,
    floor_ns: float,
    regime: str | None,
    waiting_ratio: float | None,
    step_ns: float | None,
    unit: str,
    waited: tuple[int, float] | None,
) -> str:
    """Return the verdict on the job: who is late, how often, by how much, why and the gain of a fix; figures are of a ``unit``.

    Without a straggler, it names what all ranks share, and the rank for which they wait most of their waits (``waited``: rank, share).
    """
    if not seen:
        return "No trace of a rank could be used."
    who = "most ranks are" if seen > 1 else "it is"
    label = regime and (REGIMES[regime].label.lower() if regime in REGIMES else regime)
    most = f"{who} {label}" if label else "no rank's own bottleneck is known"
    if not matched:
        return f"{counted(seen, 'rank')}{'' if seen > 1 else ' alone'}: no collective of two ranks was matched, so waits are not known; {most}."
    if not stragglers:
        whom = f", {percent(waited[1])} of it for rank {waited[0]}" if waited and waited[1] > _MOST_WAITED else ""
        waits = (
            f" waiting in collectives takes {percent(waiting_ratio)} of {WHOLE[unit]}{whom};" if waiting_ratio else ""
        )
        if step_ns is not None and floor_ns > step_ns:
            few = "one window" if unit == "window" else "so few steps"
            return f"No rank stands out: {few} cannot tell a late rank from jitter;{waits} {most}."
        return f"No rank is late by more than jitter, {duration(floor_ns)} a {unit};{waits} {most}."
    first, more = stragglers[0], len(stragglers) - 1
    often = f"{first.late_steps} of {counted(first.steps, unit)}"
    gain = (
        f"; if {'all late ranks' if more else 'it'} came in time, each of {'its late steps' if more else 'these'} would win at least {duration(first.gain_at_least_ns)}"
        if first.gain_at_least_ns
        else ""
    )
    by_recording = f" ({duration(first.recording_ns or 0)} of it or more by recording itself, estimated)"
    recorded = by_recording if first.recording_ns else ""
    others = f" {counted(more, 'other rank')} {'is' if more == 1 else 'are'} late, too." if more else ""
    return f"{_who(first)} is late in {often}, by {duration(first.late_ns)}{recorded}: {first.why}{gain}.{others}"


def _who(straggler: Straggler) -> str:
    if straggler.kind == "host":
        return f"Host {straggler.host} ({len(straggler.ranks)} of its ranks, most of all rank {straggler.rank})"
    return (
        f"Rank {straggler.rank}" if straggler.host.startswith("rank") else f"Rank {straggler.rank} on {straggler.host}"
    )


def with_problems(verdict: str, problems: Sequence[Problem], seen: int) -> str:
    """Return the verdict on the job with the problems of its ranks behind it; few of many ranks are named before it."""
    ranks: dict[str, set[int | str | None]] = {}
    for problem in problems:
        ranks.setdefault(problem.kind, set()).add(problem.path if problem.rank is None else problem.rank)
    missing = sum(problem.rank is not None and problem.kind in ("missing", "failed") for problem in problems)
    few = [f"Of the {counted(seen, 'rank')} at hand:"] if 1 < seen < missing else []
    texts = [
        f"{counted(len(own), 'rank')} {'is' if len(own) == 1 else 'are'} {_WORDS[kind]}" for kind, own in ranks.items()
    ]
    return " ".join([*few, verdict, *([f"{', '.join(texts)}."] if texts else [])])


class Stage(Struct, frozen=True):
    """A stage of the pipeline: means over its ranks and steady steps."""

    stage: Annotated[int, "Number of the stage, from 0."]
    ranks: Annotated[tuple[int, ...], "Its ranks."]
    role: Annotated[str | None, "Role of most of its ranks; null where none is known."]
    step_ns: Annotated[float, "Time of a step, ns."]
    idle_ns: Annotated[float, "Time of a step without work, ns."]
    sends_ns: Annotated[float, "Sends and receives that no other work hides, ns per step."]
    bubble_ratio: Annotated[float, "(idle_ns + sends_ns) / step_ns."]


class Pipeline(Struct, frozen=True):
    """The pipeline of a job.

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
    places = [(rank, place, role_of.get(rank)) for chain in chains for place, rank in enumerate(chain)]
    of_stage = pl.DataFrame(places, schema={"rank": pl.Int64, "stage": pl.Int64, "role": pl.String}, orient="row")
    idle = ~pl.col("part").is_in(WORK)
    means = (
        parts.group_by("rank", "step")
        .agg(pl.col("total_ns").sum().alias("step_ns"), pl.col("total_ns").filter(idle).sum().alias("idle_ns"))
        .join(by_step.select("rank", "step", "sends_exposed_ns"), on=["rank", "step"], how="left", nulls_equal=True)
        .group_by("rank")
        .agg(pl.col("step_ns", "idle_ns").mean(), pl.col("sends_exposed_ns").fill_null(0).mean().alias("sends_ns"))
    )
    figures = ("step_ns", "idle_ns", "sends_ns")
    stages = (
        of_stage.join(means, on="rank", how="left")
        .sort("stage", "rank")
        .group_by("stage", maintain_order=True)
        .agg(pl.col("rank"), pl.col("role").drop_nulls().mode().min(), pl.col(figures).mean())
        .drop_nulls("step_ns")
        .with_columns(
            ((pl.col("idle_ns") + pl.col("sends_ns")) / pl.col("step_ns")).fill_nan(0.0).alias("bubble_ratio")
        )
    )
    count, many = _microbatches(sends, chains), max(map(len, chains))
    return Pipeline(
        tuple(Stage(stage, tuple(ranks), *rest) for stage, ranks, *rest in stages.iter_rows()),
        count,
        (many - 1) / (count + many - 1) if count else None,
    )


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
