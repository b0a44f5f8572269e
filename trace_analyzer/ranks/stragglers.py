"""Find the ranks that others wait for, how often, by how much, and why, by a comparison with their peers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import polars as pl

from trace_analyzer.compare.comparison import Comparison, compare_profiles
from trace_analyzer.compare.profiles import Profile, merged
from trace_analyzer.compare.statistics import FLOOR_RATIO
from trace_analyzer.units import duration

ProfileOf = Callable[[int], Profile | None]
"""Type of a function that returns a rank's work as a profile; None where it was not recorded."""
PERSISTENT = 0.8
"""Least share of steps in which a persistent straggler is late."""
_PEERS = 8
"""Number of peers for comparing a straggler: those of its role with lateness nearest to the median."""
_MOST_LISTED = 32


@dataclass(frozen=True)
class Straggler:
    """Hold a rank that others wait for."""

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
    gain_at_least_ns: Annotated[int, "What each of these steps wins at least if it alone comes in time, ns."]
    led_ratio: Annotated[float, "Share of its collectives in which it comes last."]
    why: Annotated[str, "What takes it longer than its peers, or why that is not known."]


def late_ranks(by_step: pl.DataFrame, floor_ns: float) -> pl.DataFrame:
    """Return ranks that are late by over ``floor_ns`` per step, the latest first.

    Columns: rank, late_ns, gain_ns, late_steps, steps, led_ratio, kind.

    ``by_step`` is the frame of `waits.by_rank_and_step`.
    """
    is_late = pl.col("own_late_ns") > floor_ns
    known = by_step.filter(pl.col("split") > 0)
    summed = (
        known.group_by("rank")
        .agg(
            pl.col("own_late_ns").filter(is_late).mean().alias("late_ns"),
            pl.col("gain_ns").filter(is_late).mean(),
            is_late.sum().cast(pl.Int64).alias("late_steps"),
            pl.len().cast(pl.Int64).alias("steps"),
            (pl.col("led").sum() / pl.col("split").sum()).alias("led_ratio"),
        )
        .filter(pl.col("late_steps") > 0)
    )
    kind = (
        pl.when(pl.col("late_steps") == 1)
        .then(pl.lit("once"))
        .when(pl.col("late_steps") >= PERSISTENT * pl.col("steps"))
        .then(pl.lit("persistent"))
        .otherwise(pl.lit("wandering"))
    )
    total = pl.col("late_ns") * pl.col("late_steps")
    return summed.with_columns(kind.alias("kind")).sort(total, "rank", descending=[True, False])


def stragglers(
    late: pl.DataFrame, hosts: Mapping[int, str], role_of: Mapping[int, str], profile_of: ProfileOf
) -> tuple[Straggler, ...]:
    """Return the stragglers of `late_ranks`, the latest first.

    Hosts replace their ranks where most of these are persistent.
    """
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
        result.append(
            Straggler(
                rank=rank,
                host=host,
                kind="host" if of_host else row["kind"],
                ranks=late_hosts[host] if of_host else (rank,),
                late_ns=round(row["late_ns"]),
                late_steps=row["late_steps"],
                steps=row["steps"],
                gain_at_least_ns=round(row["gain_ns"]),
                led_ratio=row["led_ratio"],
                why=why(rank, _peers(rank, role_of, all_late), profile_of),
            )
        )
    return tuple(result)


def _peers(rank: int, role_of: Mapping[int, str], late: set[int]) -> list[int]:
    """Return ranks of the same role that are not late, nearest numbers first."""
    role = role_of.get(rank)
    alike = [other for other in role_of if role_of[other] == role and other != rank and other not in late]
    return sorted(alike, key=lambda other: (abs(other - rank), other))[:_PEERS]


def why(rank: int, peers: Sequence[int], profile_of: ProfileOf) -> str:
    """Return what takes the rank longer per step than its peers, by `compare`; or why that is unknown."""
    own = profile_of(rank)
    if own is not None and not peers:
        return "no rank does the same work in time, so its cause is not known"
    others = [profile for peer in peers if (profile := profile_of(peer)) is not None]
    if own is None or not others:
        return "its work was not recorded, so its cause is not known"
    result = compare_profiles(merged(f"{len(others)} peers", others), own)
    return reason(result)


def reason(result: Comparison) -> str:
    """Return the line of a comparison with the largest excess over the peers, except communication."""
    if result.status == "refused" or result.before is None:
        return f"it cannot be compared with its peers: {result.reason}"
    least = FLOOR_RATIO * result.before.step_ns
    sums: dict[str, float] = {}
    for line in result.lines:
        if line.kind != "communication":
            name = line.category if line.kind == "idle" else line.name
            sums[name] = sums.get(name, 0.0) + line.difference_ns
    name, longest = max(sums.items(), key=lambda item: item[1], default=("", 0.0))
    waits = sum(line.difference_ns for line in result.lines if line.kind == "communication")
    if longest <= least:
        return "nothing that it does takes longer than on its peers: the cause was not recorded, or lies in few steps"
    less = f"; communication {duration(-waits)} less" if waits < -least else ""
    return f"{name} +{duration(longest)} a step{less}"
