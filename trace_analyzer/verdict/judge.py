"""Judge a partition: its regime, runner-up and cause."""

from collections.abc import Mapping

from trace_analyzer import thresholds as t
from trace_analyzer.report import Regime, Shares
from trace_analyzer.tuning import dataclass
from trace_analyzer.vocabulary import EARLIER_WORK, HOST_CAUSES, IDLE_CAUSES, PARTS, REGIMES, WORK

KERNEL_REGIMES: tuple[Regime, ...] = ("compute-bound", "memory-bandwidth-bound")


@dataclass(frozen=True)
class Judgement:
    """Hold the regime, runner-up, cause and time per regime of a partition."""

    regime: Regime
    runner_up: Regime | None
    cause: str | None
    groups_ns: Mapping[Regime, int]


def judge(parts_ns: Mapping[str, int], cold_gap_ns: int = 0) -> Judgement | None:
    """Return the regime of a partition, its runner-up and its cause; None where no part counts towards a regime.

    The regime with most time wins. Waiting (overhead, communication) wins at 0.6 of the largest kernel regime, if it
    takes at least a quarter of the window. Work from before the recording counts towards no regime, and not towards the
    window.
    """
    groups: dict[Regime, int] = {regime.key: 0 for regime in REGIMES.values()}
    for part, ns in parts_ns.items():
        if cure := PARTS[part].cure:
            groups[cure[0]] += ns
    window = sum(parts_ns.values()) - parts_ns.get(EARLIER_WORK, 0)
    ranked = sorted(groups, key=lambda regime: -groups[regime])
    first = ranked[0]
    if groups[first] == 0:
        return None
    waiting = next(regime for regime in ranked if regime not in KERNEL_REGIMES)
    kernels = max(groups[regime] for regime in KERNEL_REGIMES)
    waiting_wins = (
        groups[waiting] >= t.WAITING_WINS_RATIO * kernels and groups[waiting] >= t.WAITING_WINDOW_RATIO * window
    )
    regime = waiting if waiting_wins else first
    second = next(r for r in ranked if r != regime)
    runner_up = second if groups[second] >= t.RUNNER_UP_RATIO * groups[regime] else None
    return Judgement(regime, runner_up, _cause(regime, parts_ns, cold_gap_ns), groups)


def _cause(regime: Regime, parts_ns: Mapping[str, int], cold_gap_ns: int) -> str | None:
    """Return the regime's largest cause; cold start where first uses take half of the host's time."""
    host = sum(parts_ns.get(cause, 0) for cause in HOST_CAUSES)
    if regime == "overhead-bound" and cold_gap_ns and cold_gap_ns >= t.COLD_START_RATIO * host:
        return "cold-start"
    causes = cause_sums(regime, parts_ns)
    return max(causes, key=lambda cause: causes[cause]) if causes else None


def cause_sums(regime: Regime, parts_ns: Mapping[str, int]) -> dict[str, int]:
    """Return the time of each cause of a regime, ns."""
    sums: dict[str, int] = {}
    for part, ns in parts_ns.items():
        of, cause = PARTS[part].cure or (None, None)
        if of == regime and cause is not None:
            sums[cause] = sums.get(cause, 0) + ns
    return sums


def shares(parts_ns: Mapping[str, int]) -> Shares | None:
    """Return ratios of the window that sum to 1; None for an empty window."""
    window = sum(parts_ns.values())
    if not window:
        return None
    ratios = {part: parts_ns.get(part, 0) / window for part in WORK}
    return Shares(**ratios, idle=sum(parts_ns.get(cause, 0) for cause in IDLE_CAUSES) / window)
