"""Describe the problem of a job in one sentence."""

from collections.abc import Sequence

from trace_analyzer.ranks.joining import Problem
from trace_analyzer.ranks.stragglers import Straggler
from trace_analyzer.units import counted, duration, percent
from trace_analyzer.vocabulary import REGIMES

_WORDS = {
    "missing": "missing", "failed": "unreadable", "cut": "cut", "duplicate": "there twice", "foreign": "not of this job",
}  # fmt: skip


def sentence(
    stragglers: Sequence[Straggler],
    problems: Sequence[Problem],
    *,
    matched: int,
    seen: int,
    floor_ns: float,
    regime: str | None,
    waiting_ratio: float | None,
) -> str:
    """Return the verdict on the job: who is late, how often, by how much, why and the gain of a fix.

    Without a straggler, it names what all ranks share.
    """
    missing = len(
        [problem for problem in problems if problem.rank is not None and problem.kind in ("missing", "failed")]
    )
    few = [f"Of the {counted(seen, 'rank')} at hand:"] if seen and missing > seen else []
    return " ".join([*few, _verdict(stragglers, matched, seen, floor_ns, regime, waiting_ratio), *_doubts(problems)])


def _verdict(
    stragglers: Sequence[Straggler],
    matched: int,
    seen: int,
    floor_ns: float,
    regime: str | None,
    waiting_ratio: float | None,
) -> str:
    if not seen:
        return "No trace of a rank could be used."
    most = f"most ranks are {_regime(regime)}" if regime else "no rank's own bottleneck is known"
    if not matched:
        return f"{counted(seen, 'rank')}: no collective of two ranks was matched, so waits are not known; {most}."
    if not stragglers:
        waits = f" waiting in collectives takes {percent(waiting_ratio)} of a step;" if waiting_ratio else ""
        return f"No rank is late by more than {duration(floor_ns)} a step;{waits} {most}."
    first, more = stragglers[0], len(stragglers) - 1
    often = f"{first.late_steps} of {counted(first.steps, 'step')}"
    gain = (
        f"; if it came in time, each of these would win at least {duration(first.gain_at_least_ns)}"
        if first.gain_at_least_ns
        else ""
    )
    others = f" {counted(more, 'other rank')} {'is' if more == 1 else 'are'} late, too." if more else ""
    return f"{_who(first)} is late in {often}, by {duration(first.late_ns)}: {first.why}{gain}.{others}"


def _who(straggler: Straggler) -> str:
    if straggler.kind == "host":
        return f"Host {straggler.host} ({len(straggler.ranks)} of its ranks, most of all rank {straggler.rank})"
    return (
        f"Rank {straggler.rank}" if straggler.host.startswith("rank") else f"Rank {straggler.rank} on {straggler.host}"
    )


def _regime(regime: str) -> str:
    return REGIMES[regime].label.lower() if regime in REGIMES else regime


def _doubts(problems: Sequence[Problem]) -> list[str]:
    ranks: dict[str, set[int | str | None]] = {}
    for problem in problems:
        ranks.setdefault(problem.kind, set()).add(problem.path if problem.rank is None else problem.rank)
    if not ranks:
        return []
    texts = [
        f"{counted(len(own), 'rank')} {'is' if len(own) == 1 else 'are'} {_WORDS[kind]}" for kind, own in ranks.items()
    ]
    return [f"{', '.join(texts)}."]
