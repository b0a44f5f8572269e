"""Find how sure a regime is: its share of the worlds that the trace admits.

What a trace leaves open (the bound of kernels without shapes, the cost of recording, ...) moves time from one regime to
another. A world takes one of the equally likely moves of each such doubt, and all combinations are judged.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from trace_analyzer import thresholds as t
from trace_analyzer.findings import Findings
from trace_analyzer.report import Regime
from trace_analyzer.units import duration, percent
from trace_analyzer.verdict.judge import KERNEL_REGIMES, ORDER, Floats, Judgement, groups_of, leaders
from trace_analyzer.vocabulary import EARLIER_WORK, UNRECORDED, WITHHELD

_SHARES = np.linspace(0.0, 1.0, 5)
"""Shares of a doubtful time that move. Of matmuls and convolutions with known shapes in 18 recordings, names are wrong
for 0 to 100 % of their time, every share about equally often."""
MOST_WORLDS = 4096
"""Most worlds that are judged; of more, so many are drawn, which leaves a share of 0.95 uncertain by 0.003."""
_WAITING_WINS = (0.45, t.WAITING_WINS_RATIO, 0.8)
"""Plausible values of that rule: a kernel regime rarely loses less than a fifth or more than half of its time."""


@dataclass(frozen=True)
class Doubt:
    """Hold what the trace leaves open: ``moves`` has a row per equally likely world, with the ns it adds to each regime."""

    words: str
    moves: Floats


def confidence_ratio(judgement: Judgement, doubts: Sequence[Doubt]) -> float:
    """Return the share of worlds in which the regime holds: the same leader, or one of the two that a tie names."""
    return _held(judgement, sum(_moved(doubts), np.zeros((1, len(ORDER)))))


def lowering(judgement: Judgement, doubts: Sequence[Doubt]) -> tuple[Doubt, ...]:
    """Return the doubts without which the regime would be surer, those that matter most first."""
    moved = _moved(doubts)
    every = sum(moved, np.zeros((1, len(ORDER))))
    ratio = _held(judgement, every)
    without = [(_held(judgement, every - own), doubt) for own, doubt in zip(moved, doubts, strict=True)]
    return tuple(doubt for more, doubt in sorted(without, key=lambda pair: -pair[0]) if more > ratio + 1e-9)


def _moved(doubts: Sequence[Doubt]) -> list[Floats]:
    """Return what each doubt adds to each regime in each world: in all, or in `MOST_WORLDS` drawn ones."""
    sizes = [len(doubt.moves) for doubt in doubts]
    count = prod(sizes)
    worlds = np.arange(count) if count <= MOST_WORLDS else np.random.default_rng(0).integers(count, size=MOST_WORLDS)
    taken = np.unravel_index(worlds, sizes) if doubts else ()
    return [doubt.moves[at] for doubt, at in zip(doubts, taken, strict=True)]


def _held(judgement: Judgement, moved: Floats) -> float:
    worlds = np.maximum([judgement.groups_ns[regime] for regime in ORDER] + moved, 0.0)
    named = [ORDER.index(regime) for regime in (judgement.regime, judgement.runner_up) if regime is not None]
    window = sum(judgement.groups_ns.values())
    held = [
        np.isin(leaders(worlds, window, judgement.saves_per_ns, waiting_wins), named) for waiting_wins in _WAITING_WINS
    ]
    return float(np.mean(held))


def doubts_of(findings: Findings, judgement: Judgement) -> Iterator[Doubt]:
    """Yield what the trace leaves open about the partition of its window."""
    parts, window = findings.parts_ns, sum(findings.parts_ns.values())
    yield from _doubts_of_bounds(findings, judgement)
    if other := parts.get("other", 0):
        words = f"{percent(other / window)} of the window is in kernels of unknown bound"
        yield Doubt(words, _either(other, *KERNEL_REGIMES))
    if unknown := sum(parts.get(part, 0) for part in ("unlinked", "unexplained", "untraced", WITHHELD)):
        words = f"{percent(unknown / window)} of the window is idle time of unknown cause"
        yield Doubt(words, _either(unknown, "overhead-bound", "communication-bound"))
    if lost := parts.get(UNRECORDED, 0):
        yield Doubt(unrecorded(lost / window), _either(lost, *KERNEL_REGIMES))
    if earlier := parts.get(EARLIER_WORK, 0):
        words = (
            f"for {percent(earlier / window)} of the window the device ran unknown work, launched before the recording"
        )
        yield Doubt(words, np.vstack([_either(earlier, *KERNEL_REGIMES), _move({})]))
    if recording := findings.recording:
        most, least = (sum(taken.values()) for taken in (recording.taken_ns, recording.least_ns))
        taken = np.linspace(least, most, len(_SHARES)) if most > least else [most]
        words = f"recording took {f'{duration(least)} to ' if most > least else ''}{duration(most)} of it"
        yield Doubt(words, np.vstack([_move({"overhead-bound": -ns}) for ns in taken]))
    if (count := len(findings.steps_ns)) > 1:
        steps = np.array([list(groups_of(step).values()) for step in findings.steps_ns], dtype=float)
        whole = steps.sum(axis=0)
        # One step left out, at the same length of the window.
        yield Doubt("its steps differ", np.vstack([_move({}), (whole - steps) * count / (count - 1) - whole]))


def unrecorded(ratio: float) -> str:
    """Write that the trace lacks work in so much of the window."""
    return f"for {percent(ratio)} of the window the CPU waited for device work that the trace lacks"


_SIDES: Mapping[str, tuple[Regime, Regime]] = {
    "compute": ("compute-bound", "memory-bandwidth-bound"),
    "memory": ("memory-bandwidth-bound", "compute-bound"),
}
"""Bound -> its regime, and that of kernels on the other side of the ridge."""


def _doubts_of_bounds(findings: Findings, judgement: Judgement) -> Iterator[Doubt]:
    """Yield kernels whose names decide that they are compute, and kernels near the ridge of the roofline."""
    for share in findings.bounds:
        if share.bound not in _SIDES or not share.time_ns:
            continue
        own, other = _SIDES[share.bound]
        time = judgement.groups_ns[own] / share.time_ns  # activities overlap, parts do not
        if share.named_ns:
            words = f"names alone say that {percent(share.named_ns / share.time_ns)} of the time of matmuls and convolutions is compute"
            yield Doubt(words, np.vstack([_move({own: -ns, other: ns}) for ns in _SHARES * share.named_ns * time]))
        if near := share.near_ridge_ns * time:
            words = f"{percent(share.near_ridge_ns / share.time_ns)} of the time of {share.bound}-bound kernels would count otherwise if the device's peaks are somewhat off"
            yield Doubt(words, np.vstack([_move({}), _move({own: -near, other: near})]))


def _either(ns: float, one: Regime, other: Regime) -> Floats:
    return np.vstack([_move({one: ns * share, other: ns * (1 - share)}) for share in _SHARES])


def _move(ns: dict[Regime, float]) -> Floats:
    return np.array([[ns.get(regime, 0.0) for regime in ORDER]])
