"""Judge a partition: its regime, runner-up and cause, how close its kernels come to their roof, and how sure that is.

A regime is as sure as its share of the worlds that the trace admits. What a trace leaves open (the bound of kernels without
shapes, the cost of recording, ...) moves time from one regime to another. A world takes one of the equally likely moves of
each such doubt, and all combinations are judged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trace_analyzer import thresholds as t, vocabulary
from trace_analyzer.analyses.profiler_overhead import SLOWED, ProfilerOverhead, explained, is_measured
from trace_analyzer.catalog.event_names import DATA_LOADING
from trace_analyzer.findings import DeviceFindings, Findings
from trace_analyzer.report import BoundShare, Debiased, Evidence, Lever, Regime, Resource, Shares
from trace_analyzer.units import duration, percent

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KERNEL_REGIMES: tuple[Regime, ...] = ("compute-bound", "memory-bandwidth-bound")
ORDER: tuple[Regime, ...] = tuple(regime.key for regime in vocabulary.REGIMES.values())
"""Columns of arrays of regimes."""
_OVERHEAD, _MEMORY, _COMPUTE, _COMMUNICATION = map(
    ORDER.index, ("overhead-bound", "memory-bandwidth-bound", "compute-bound", "communication-bound")
)

OF_REGIME: Mapping[Regime, frozenset[Resource]] = {
    "overhead-bound": frozenset({"host", "small-kernels"}),
    "memory-bandwidth-bound": frozenset({"memory-bandwidth"}),
    "compute-bound": frozenset({"compute"}),
    "communication-bound": frozenset({"communication", "copies"}),
}
"""Resources whose time counts towards each regime."""
OF_HOST: Mapping[Resource, tuple[str, ...]] = {
    "data-loading": ("data-loading",), "python": ("python",), "dispatch": ("dispatch", "cpu-operator", "runtime-call", "launch-latency"),
    "host-unknown": ("host-unknown",), "waits": ("synchronization", "blocking-copy"),
}  # fmt: skip
"""Kinds of the host's work: causes of idle time, which label edges of the replay too."""


class Levers(NamedTuple):
    """The levers, the largest saving first, and what the step saves per ns of each regime's time in the window.

    ``host`` are those of the host's work. Without a replay there are none, and shares of time decide. Loading then counts
    with idle time that is charged to waits before it (``loading_behind_waits_ns``). ``measured`` returns the levers of
    findings whose step was measured without the profiler, ns. ``host_alone_ratio`` is the share of a step that it takes
    with a device that takes no time.
    """

    rows: tuple[Lever, ...] = ()
    saves_per_ns: Mapping[Regime, float] | None = None
    host: tuple[Lever, ...] = ()
    loading_behind_waits_ns: int = 0
    measured: Callable[[Findings, int], "Levers"] | None = None
    host_alone_ratio: float = 0.0

    def of(self, regime: Regime) -> tuple[Lever, ...]:
        """Return the levers of a regime's resources."""
        return tuple(lever for lever in self.rows if lever.resource in OF_REGIME[regime])


NO_LEVERS = Levers()


class Judgement(NamedTuple):
    """The regime, runner-up, cause and time per regime of a partition, and the levers that decided."""

    regime: Regime
    runner_up: Regime | None
    cause: str | None
    groups_ns: Mapping[Regime, int]
    levers: Levers = NO_LEVERS


def groups_of(parts_ns: Mapping[str, int]) -> dict[Regime, int]:
    """Return the time of each regime, ns."""
    groups: dict[Regime, int] = dict.fromkeys(ORDER, 0)
    for part, ns in parts_ns.items():
        if cure := vocabulary.PARTS[part].cure:
            groups[cure[0]] += ns
    return groups


def leaders(
    groups_ns: Floats, window_ns: float, levers: Levers = NO_LEVERS, waiting_wins: float = t.WAITING_WINS_RATIO
) -> tuple[Ints, Ints]:
    """Return the leading regime of each row of times by regime, and the one in balance with it: columns of `ORDER`, -1 for none.

    The largest leads: the largest saving where savings per ns are known and one is worth it, else the largest time. As
    waiting can be removed completely, and kernel time only in part, overhead or communication, whichever is larger,
    already leads within a fifth of the largest saving, or from ``waiting_wins`` of the larger kernel regime's time on
    if it takes a quarter of the window. The second is in balance if the two are within a fifth of each other. Where no
    resource alone saves `BALANCED_RATIO` of the window, it is in balance if it saves anything worth it, else if of the
    others it holds most of the critical path, and `BALANCED_RATIO` of it: each then hides the other. A host that takes as
    long as the step without the device hides what the device could save, also where the path is the device's.
    """
    amounts, first = groups_ns, _largest(groups_ns, groups_ns, waiting_wins, t.WAITING_WINDOW_RATIO * window_ns)
    if levers.saves_per_ns is not None:
        saved = groups_ns * [levers.saves_per_ns[key] for key in ORDER]
        decides = saved.max(axis=1) >= t.WORTH_RATIO * window_ns
        amounts = np.where(decides[:, np.newaxis], saved, groups_ns)
        first = np.where(decides, _largest(saved, groups_ns, t.RUNNER_UP_RATIO, 0.0), first)
    rows, rest, rest_ns = np.arange(len(first)), amounts.copy(), groups_ns.copy()
    rest[rows, first], rest_ns[rows, first] = 0.0, -1.0
    led, other = amounts[rows, first], rest[rows, second := _most(rest, rest_ns)]
    balanced = np.minimum(led, other) >= t.RUNNER_UP_RATIO * np.maximum(led, other)
    if levers.saves_per_ns is not None:
        alone = levers.host_alone_ratio >= 1 - t.BALANCED_RATIO
        little = np.where(decides, led < t.BALANCED_RATIO * window_ns, alone)
        balanced = np.where(little, decides & (other >= t.WORTH_RATIO * window_ns), balanced)
        path = np.array([sum(lever.path_ratio for lever in levers.of(key)) for key in ORDER])
        path[_OVERHEAD] += alone
        on_path = path * (groups_ns > 0)
        on_path[rows, first] = 0.0
        hidden = little & ~balanced & (on_path.max(axis=1) >= t.BALANCED_RATIO)
        second, balanced = np.where(hidden, on_path.argmax(axis=1), second), hidden | balanced
    return first, np.where(balanced, second, -1)


_ROUNDING = 1e-9
"""Savings that differ by less come from one floor: they are times of a group, multiplied and divided again."""


def _largest(amounts: Floats, groups_ns: Floats, waiting_wins: float, least: float) -> Ints:
    """Return the column of the largest amount (`_most`), or of waiting where that wins."""
    both = amounts[:, [_OVERHEAD, _COMMUNICATION]]
    waiting, kernels = both.max(axis=1), amounts[:, [_MEMORY, _COMPUTE]].max(axis=1)
    wins = (waiting >= waiting_wins * kernels) & (waiting >= least)
    return np.where(wins, np.where(both[:, 0] >= both[:, 1], _OVERHEAD, _COMMUNICATION), _most(amounts, groups_ns))


def _most(amounts: Floats, groups_ns: Floats) -> Ints:
    """Return the column of the largest amount; of equal ones, as where the CPU's floor limits all, that of most time."""
    tied = amounts >= (1 - _ROUNDING) * amounts.max(axis=1, keepdims=True)
    return np.asarray(np.where(tied, groups_ns, -1.0).argmax(axis=1))


def judge(parts_ns: Mapping[str, int], cold_gap_ns: int = 0, levers: Levers = NO_LEVERS) -> Judgement | None:
    """Return the regime of a partition, its runner-up and its cause; None where no part counts towards a regime.

    The rule is that of `leaders`. Work from before the recording and turns of other programs count towards no regime,
    and not towards the window.
    """
    groups = groups_of(parts_ns)
    if not any(groups.values()):
        return None
    window = sum(ns for part, ns in parts_ns.items() if part not in vocabulary.NOT_OWN)
    first, second = leaders(np.array([list(groups.values())], dtype=float), window, levers)
    regime, runner_up = ORDER[int(first[0])], None if second[0] < 0 else ORDER[int(second[0])]
    return Judgement(regime, runner_up, _cause(regime, parts_ns, cold_gap_ns, levers), groups, levers)


_HIDING: Mapping[str, Resource] = {cause: lever for lever in ("data-loading", "waits") for cause in OF_HOST[lever]}
"""Causes that hide each other, as data may be loaded behind a wait: of these, the saving decides; cause -> its lever."""


WITHIN_LAUNCH = ("host-unknown", "python")
"""Parts of late launches that are the cause where they take most of that time, and longer than each other cause."""


def _cause(regime: Regime, parts_ns: Mapping[str, int], cold_gap_ns: int, levers: Levers) -> str | None:
    """Return the largest cause of what the regime saves by; cold start where first uses take half of the host's time."""
    host = sum(parts_ns.get(cause, 0) for cause in vocabulary.HOST_CAUSES)
    if regime == "overhead-bound" and cold_gap_ns and cold_gap_ns >= t.COLD_START_RATIO * host:
        return "cold-start"
    causes, best = vocabulary.cause_sums(regime, parts_ns), next(iter(levers.of(regime)), None)
    if best is not None:
        apart = {"small-kernels", "copies"} & {*causes}
        of_best = {best.resource} & apart or {*causes} - apart or apart
        causes = {cause: ns for cause, ns in causes.items() if cause in of_best}
    elif 2 * causes.get("small-kernels", 0) < sum(causes.values()):
        causes.pop("small-kernels", None)  # the host takes more, by causes that are each less
    largest = max(causes, key=lambda cause: causes[cause], default=None)
    if largest not in _HIDING:
        others = [ns for cause, ns in causes.items() if cause != "launch"]
        within = WITHIN_LAUNCH if largest == "launch" else ()
        most = (part for part in within if parts_ns.get(part, 0) > max([causes["launch"] / 2, *others]))
        return next(most, largest)
    saved: dict[str, float] = {lever.resource: lever.saves_ns for lever in levers.host}
    by_time = {**causes, DATA_LOADING: causes.get(DATA_LOADING, 0) + levers.loading_behind_waits_ns}
    saves = {cause: saved.get(_HIDING[cause], 0.0) if saved else by_time[cause] for cause in causes.keys() & _HIDING}
    return max(saves, key=lambda cause: (saves[cause], causes[cause], cause))


def idle_ns(parts_ns: Mapping[str, int]) -> int:
    """Return the idle time of a partition, ns: without work that the trace does not contain."""
    return sum(parts_ns.get(cause, 0) for cause in vocabulary.IDLE_CAUSES if cause not in vocabulary.UNSEEN)


def shares(parts_ns: Mapping[str, int]) -> Shares | None:
    """Return ratios of the window that sum to 1; None for an empty window."""
    window = sum(parts_ns.values())
    if not window:
        return None
    ratios = {part: parts_ns.get(part, 0) / window for part in vocabulary.WORK}
    unseen = sum(parts_ns.get(part, 0) for part in vocabulary.UNSEEN)
    return Shares(**ratios, unrecorded=unseen / window, idle=idle_ns(parts_ns) / window)


def debiased(
    parts_ns: Mapping[str, int], recording: ProfilerOverhead | None, cold_gap_ns: int = 0, levers: Levers = NO_LEVERS
) -> Debiased | None:
    """Return the partition without the profiler's overhead, and whether its regime stays the same.

    ``survives`` is None where the regime changes with the estimate, but not with its lower bound.
    """
    # Levers are those of the program without the profiler where its step was measured.
    judgement = judge(parts_ns, cold_gap_ns, NO_LEVERS if is_measured(recording) else levers)
    if recording is None or judgement is None:
        return None
    parts, least = _without(parts_ns, recording.taken_ns), _without(parts_ns, recording.least_ns)
    after, at_least = (judge(rest, cold_gap_ns, levers) for rest in (parts, least))
    same, same_at_least = (one is not None and one.regime == judgement.regime for one in (after, at_least))
    removed_ns = sum(parts_ns.values()) - sum(parts.values())
    return Debiased(
        method=recording.method,
        event_cost_ns={kind: cost for kind, (_, cost) in recording.event_cost_ns.items()},
        events=recording.events,
        least_removed_ns=sum(parts_ns.values()) - sum(least.values()),
        removed_ns=removed_ns,
        most_removed_ns=removed_ns + _most_taken_ns(parts_ns, recording) - _taken_ns(recording.taken_ns),
        window_ns=sum(parts.values()),
        shares=shares(parts),
        parts_ns=parts,
        regime=None if after is None else after.regime,
        cause=None if after is None else after.cause,
        survives=True if same else None if same_at_least else False,
        why=explained(recording, sum(parts_ns.values())),
    )


def _taken_ns(taken_ns: Mapping[str, int]) -> int:
    """Return what recording took of the causes of idle time that it lengthens, ns."""
    return sum(taken_ns.get(cause, 0) for cause in SLOWED)


def _most_taken_ns(parts_ns: Mapping[str, int], recording: ProfilerOverhead) -> int:
    """Return the most that recording may have taken of them, ns: more than the estimate by its error, unless it is measured."""
    taken = _taken_ns(recording.taken_ns)
    return taken if is_measured(recording) else max(taken, min(round(t.RECORDING_ERROR * taken), slowed_ns(parts_ns)))


def judged_parts(parts_ns: Mapping[str, int], recording: ProfilerOverhead | None) -> Mapping[str, int]:
    """Return the partition that is judged: without recording, where the step without it was measured."""
    return _without(parts_ns, recording.taken_ns) if is_measured(recording) else parts_ns


def _without(parts_ns: Mapping[str, int], taken_ns: Mapping[str, int]) -> dict[str, int]:
    """Subtract time from parts, and remove the profiler's own part."""
    taken = {"profiler": parts_ns.get("profiler", 0), **taken_ns}
    return {part: ns - min(ns, taken.get(part, 0)) for part, ns in parts_ns.items()}


_BOUNDS: dict[Regime, str] = {"compute-bound": "compute", "memory-bandwidth-bound": "memory"}
_FAR_BELOW: dict[Regime, str] = {
    "compute-bound": "the GPU spends its time in matmuls, convolutions and attention, which reach little of its peak",
    "memory-bandwidth-bound": "kernels spend their time moving data, far more slowly than the memory could",
}
_FEW_TILES = "the kernels have too few tiles to fill the GPU, which costs them more time than their roof does"


def roof_share(findings: Findings, regime: Regime | None) -> BoundShare | None:
    """Return the roof share of a regime's kernels; None where it is unknown, and for regimes without kernels."""
    bound = None if regime is None else _BOUNDS.get(regime)
    return next((share for share in findings.bounds if share.bound == bound and share.roof_ratio is not None), None)


def by_names(device: DeviceFindings) -> bool:
    """Return whether names alone decide what is compute or memory.

    This is for matmuls and convolutions if these matter, else for all kernels.
    """
    products, kernels = device.shapes_ratio or 0.0, device.work_ratio or 0.0
    matters = device.matmul_ratio > t.MATMUL_DOUBT_RATIO and products < t.POOR_COVERAGE
    return (products if matters else kernels) < t.PRIORS_RATIO


def sentence_far_below(findings: Findings, regime: Regime) -> str | None:
    """Write the sentence on a regime whose kernels stay far below their roof; None where they do not, or unknown."""
    share = roof_share(findings, regime)
    if share is None or not _stands_for_all(share) or (share.roof_ratio or 0.0) >= t.INEFFICIENT_ROOF_RATIO:
        return None
    return _FEW_TILES if 2 * share.few_tiles_ns > share.time_ns else _FAR_BELOW[regime]


def roof_phrase(findings: Findings, regime: Regime) -> str:
    """Write the share of the roof that the regime's kernels reach, for the headline; may be empty."""
    if regime in _BOUNDS and by_names(findings.device):
        return "; by kernel names, since little of their work is known"
    share = roof_share(findings, regime)
    if share is None or not _stands_for_all(share):
        return ""
    below = f", {percent(share.below_half_ratio)} of their time below half of it" if share.below_half_ratio else ""
    return f"; they reach {percent(share.roof_ratio)} of their roof{below}"


def roof_doubts(findings: Findings) -> list[str]:
    """Return the doubt about peaks that compute-bound kernels exceed; what memory-bound ones exceed may be the cache's."""
    if not any(share.bound == "compute" and share.known_ns and share.roof_ratio is None for share in findings.bounds):
        return []
    return [
        "compute-bound kernels take less time than their FLOP need at the peak, which is impossible: the device's peaks or the"
        " kernels' FLOP are wrong (correct them with --gpu NAME or --peak-tflops)"
    ]


def far_from_roof(findings: Findings, regime: Regime) -> list[str]:
    """Return why the roof alone does not limit the regime's kernels; empty where it does, or where that is unknown.

    Kernels that take more than twice their time at the roof lose more time to other limits than to the roof.
    """
    share = roof_share(findings, regime)
    if share is None or not _stands_for_all(share) or (share.roof_ratio or 0.0) >= t.HALF_ROOF_RATIO:
        return []
    why = "something else limits them more, such as lower clocks, latency, or a kernel that does not suit these sizes"
    if sentence_far_below(findings, regime) == _FEW_TILES:
        why = "they have too few tiles"
    return [f"its kernels reach {percent(share.roof_ratio)} of their roof: {why}"]


def roof_evidence(findings: Findings, judgement: Judgement) -> list[Evidence]:
    """Return the shares of the regime's kernels as evidence, else those of the runner-up's."""
    share = roof_share(findings, judgement.regime) or roof_share(findings, judgement.runner_up)
    if share is None:
        return []
    known = percent(share.known_ns / share.time_ns)
    return [
        Evidence(
            "roof_ratio",
            share.roof_ratio,
            "ratio",
            f"share of their roof that {share.bound}-bound kernels reach, where it is known ({known} of their time)",
        ),
        Evidence(
            "below_half_roof_ratio",
            share.below_half_ratio,
            "ratio",
            "share of that time in kernels that reach less than half of their roof",
        ),
    ]


def _stands_for_all(share: BoundShare) -> bool:
    """Return whether the roof is known for enough of the kernels' time to represent all of them."""
    return share.known_ns >= t.KNOWN_RATE_RATIO * share.time_ns


_SHARES = np.linspace(0.0, 1.0, 5)
"""Shares of a doubtful time that move. Of matmuls and convolutions with known shapes in 18 recordings, names are wrong
for 0 to 100 % of their time, every share about equally often."""
MOST_WORLDS = 4096
"""Most worlds that are judged; of more, so many are drawn, which leaves a share of 0.95 uncertain by 0.003."""
_WAITING_WINS = (0.45, t.WAITING_WINS_RATIO, 0.8)
"""Plausible values of that rule: a kernel regime rarely loses less than a fifth or more than half of its time."""


class Doubt(NamedTuple):
    """What the trace leaves open: ``moves`` has a row per equally likely world, with the ns it adds to each regime."""

    words: str
    moves: Floats


def confidence_ratio(judgement: Judgement, doubts: Sequence[Doubt]) -> float:
    """Return the share of worlds that name the regime, alone or as one of two in balance."""
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
    regime, window = ORDER.index(judgement.regime), sum(judgement.groups_ns.values())
    levers = judgement.levers._replace(host_alone_ratio=0.0)  # a host that takes less time hides less
    named = [leaders(worlds, window, levers, waiting_wins) for waiting_wins in _WAITING_WINS]
    return float(np.mean([(first == regime) | (second == regime) for first, second in named]))


def slowed_ns(parts_ns: Mapping[str, int]) -> int:
    """Return the idle time that recording may have caused: a host that is faster also hides the latency of its launches."""
    return sum(parts_ns.get(part, 0) for part in (*SLOWED, "launch-latency"))


def doubts_of(findings: Findings, judgement: Judgement, flip_ns: float | None = None) -> Iterator[Doubt]:
    """Yield what the trace leaves open about the partition of its window.

    Other regimes limit where a step takes less than ``flip_ns`` without the profiler.
    """
    parts, window = findings.parts_ns, sum(findings.parts_ns.values())
    yield from _doubts_of_bounds(findings, judgement)
    if other := parts.get("other", 0):
        words = f"{percent(other / window)} of the window is in kernels of unknown bound"
        yield Doubt(words, _either(other, *KERNEL_REGIMES))
    if unknown := sum(parts.get(part, 0) for part in ("unlinked", "unexplained", "untraced", vocabulary.WITHHELD)):
        words = f"{percent(unknown / window)} of the window is idle time of unknown cause"
        yield Doubt(words, _either(unknown, "overhead-bound", "communication-bound"))
    if lost := parts.get(vocabulary.UNRECORDED, 0):
        yield Doubt(unrecorded(lost / window), _either(lost, *KERNEL_REGIMES))
    if earlier := parts.get(vocabulary.EARLIER_WORK, 0):
        words = (
            f"for {percent(earlier / window)} of the window the device ran unknown work, launched before the recording"
        )
        yield Doubt(words, np.vstack([_either(earlier, *KERNEL_REGIMES), _move({})]))
    if recording := findings.recording:
        yield _doubt_of_recording(findings, recording, flip_ns)
    if (count := len(findings.steps_ns)) > 1:
        steps = np.array([list(groups_of(step).values()) for step in findings.steps_ns], dtype=float)
        whole = steps.sum(axis=0)
        # One step left out, at the same length of the window.
        yield Doubt("its steps differ", np.vstack([_move({}), (whole - steps) * count / (count - 1) - whole]))


def _doubt_of_recording(findings: Findings, recording: ProfilerOverhead, flip_ns: float | None) -> Doubt:
    """Return what recording may have cost: nothing is left of the host's time in a step that is short enough for a flip."""
    least, most = _taken_ns(recording.least_ns), _most_taken_ns(findings.parts_ns, recording)
    taken = np.linspace(least, most, len(_SHARES)) if most > least else np.array([most])
    if flip_ns is not None:
        window, steps = sum(findings.parts_ns.values()), findings.window.step_count
        taken = np.where((window - taken) / steps < flip_ns, window, taken)
    words = f"recording may have taken {f'{duration(least)} to ' if most > least else ''}{duration(most)} of the window"
    return Doubt(words, np.vstack([_move({"overhead-bound": -ns}) for ns in taken]))


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
