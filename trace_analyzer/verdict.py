"""Findings -> the verdict: what limits the window, by the partition, with evidence and confidence."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trace_analyzer import thresholds as t
from trace_analyzer.analyses.profiler_overhead import Recording
from trace_analyzer.report import (
    Confidence,
    Debiased,
    DeviceReport,
    Evidence,
    Regime,
    Shares,
    Status,
    Verdict,
    Window,
)
from trace_analyzer.units import NS_PER_S, counted, duration, percent
from trace_analyzer.vocabulary import (
    CAUSES,
    HOST_CAUSES,
    IDLE_CAUSES,
    PARTS,
    REGIMES,
    UNKNOWN_PARTS,
    WITHHELD,
    WORK,
)

_NOT_COUNTED = tuple(part.key for part in PARTS.values() if part.cure is None)
"""Parts that count as no regime."""
KERNEL_REGIMES: tuple[Regime, ...] = ("compute-bound", "memory-bandwidth-bound")


@dataclass(frozen=True)
class Judgement:
    """What a partition says by itself."""

    regime: Regime
    runner_up: Regime | None
    cause: str | None
    groups_ns: Mapping[Regime, int]


@dataclass(frozen=True)
class DeviceFindings:
    """What the verdict looks at of a device, in whatever window.

    ``parts_withheld`` and ``causes_withheld`` are the reasons why the trace supports no partition, or no causes of idle
    time; null where it does.
    """

    device: DeviceReport
    steps_found: int
    launches_per_step: float | None
    peaks_known: bool
    contraction_ratio: float
    shapes_ratio: float | None
    known_ratio: float | None
    assumed_peaks: str | None
    waits_recorded: bool
    launch_latency_ns: int
    steps_from: str | None
    set_aside_ratio: float
    idle_peak: tuple[str, float] | None
    flows_missing: bool
    breaks_off: bool
    damaged: bool
    failed_checks: tuple[str, ...] = ()
    parts_withheld: str | None = None
    causes_withheld: str | None = None


@dataclass(frozen=True, kw_only=True)
class Findings(DeviceFindings):
    """All that the verdict looks at: the same, and the window with its partition."""

    window: Window
    parts_ns: Mapping[str, int]
    cold_gap_ns: int
    recording: Recording | None
    waiting_depth: float | None


def judge(parts_ns: Mapping[str, int], cold_gap_ns: int = 0) -> Judgement | None:
    """The regime of a partition, its runner-up and its cause; None where nothing is in any group.

    The largest group wins; waiting (overhead, communication) already at 0.6 of the largest kernel group
    when it holds a quarter of the window.
    """
    groups: dict[Regime, int] = {regime.key: 0 for regime in REGIMES.values()}
    for part, ns in parts_ns.items():
        if cure := PARTS[part].cure:
            groups[cure[0]] += ns
    window = sum(parts_ns.values())
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
    """The cause within the regime that holds most; cold start where first uses hold half of the host time."""
    host = sum(parts_ns.get(cause, 0) for cause in HOST_CAUSES)
    if regime == "overhead-bound" and cold_gap_ns and cold_gap_ns >= t.COLD_START_RATIO * host:
        return "cold-start"
    causes = cause_sums(regime, parts_ns)
    return max(causes, key=lambda cause: causes[cause]) if causes else None


def cause_sums(regime: Regime, parts_ns: Mapping[str, int]) -> dict[str, int]:
    """Time of each cause of a regime, ns."""
    sums: dict[str, int] = {}
    for part, ns in parts_ns.items():
        of, cause = PARTS[part].cure or (None, None)
        if of == regime and cause is not None:
            sums[cause] = sums.get(cause, 0) + ns
    return sums


def shares(parts_ns: Mapping[str, int]) -> Shares | None:
    """Ratios of the window that sum to 1; None for an empty window."""
    window = sum(parts_ns.values())
    if not window:
        return None
    ratios = {part: parts_ns.get(part, 0) / window for part in WORK}
    return Shares(**ratios, idle=sum(parts_ns.get(cause, 0) for cause in IDLE_CAUSES) / window)


def verdict(findings: Findings) -> Verdict:
    """The verdict for a trace with device activities."""
    parts, device = findings.parts_ns, findings.device
    window = sum(parts.values())
    if (withheld := _withheld(findings, "the window")) is not None:
        return _without_inputs(findings, *withheld)
    unknown = sum(parts.get(part, 0) for part in UNKNOWN_PARTS)
    judgement = judge(parts, findings.cold_gap_ns)
    too_little = device.kernel_count < t.INSUFFICIENT_KERNELS and device.busy_ns < t.INSUFFICIENT_TIME_NS
    too_unknown = window > 0 and unknown > t.UNKNOWN_RATIO * window
    if judgement is None or too_little or too_unknown:
        return _insufficient(findings, unknown, too_little=too_little)
    unbiased = debiased(parts, findings.recording, findings.cold_gap_ns)
    confidence, why = _confidence(findings, judgement, window, unbiased)
    return Verdict(
        status="ok",
        regime=judgement.regime,
        runner_up=judgement.runner_up,
        cause=judgement.cause,
        confidence=confidence,
        confidence_why=why,
        device=device.index,
        window=findings.window,
        shares=shares(parts),
        parts_ns=parts,
        headline=_headline(findings, judgement, window),
        evidence=tuple(_evidence(findings, judgement, window)),
        debiased=unbiased,
    )


def _withheld(findings: Findings, of: str) -> tuple[str, str] | None:
    """The sentence and the reason where no verdict can rest on what is told; None where one can.

    Idle time without causes may be the host's, or that of other streams and peers: where either would change the
    regime, nothing is judged.
    """
    parts = findings.parts_ns
    if findings.parts_withheld is not None:
        sentence = f"What the device did in {of} cannot be told: the trace does not support it"
        return f"{sentence} ({_check_of(findings.parts_withheld)}).", findings.parts_withheld
    hidden = parts.get(WITHHELD, 0)
    if not hidden or findings.causes_withheld is None:
        return None
    rest = {part: ns for part, ns in parts.items() if part != WITHHELD}
    either = (judge(rest), *(judge({**rest, part: rest.get(part, 0) + hidden}) for part in ("python", "device-wait")))
    if len({judgement and judgement.regime for judgement in either}) == 1:
        return None
    idle = percent(hidden / sum(parts.values()))
    sentence = f"The device idles for {idle} of {of}, and why cannot be told: the trace does not support causes"
    return f"{sentence} ({_check_of(findings.causes_withheld)}).", findings.causes_withheld


def _check_of(reason: str) -> str:
    """The check and its value, without what that means."""
    return reason.partition(": ")[0]


def _without_inputs(findings: Findings, headline: str, reason: str) -> Verdict:
    """No verdict, as it would rest on what the trace does not hold or does not support."""
    parts = {} if findings.parts_withheld is not None else findings.parts_ns
    return Verdict(
        "insufficient",
        None,
        None,
        None,
        "low",
        (reason,),
        findings.device.index,
        findings.window,
        shares(parts),
        parts,
        headline,
        (*_busy_evidence(findings, sum(findings.parts_ns.values())), *_trust_evidence(findings)),
    )


@dataclass(frozen=True)
class StepVerdict:
    """What one step's partition says by itself; null where nothing of it is in any group."""

    regime: Regime | None
    cause: str | None
    runner_up: Regime | None
    confidence: Confidence | None
    headline: str | None
    cold_start_ns: int | None = None
    recording_ns: int | None = None
    unrecorded_regime: Regime | None = None


def step_verdict(findings: Findings, activity_count: int, busy_ns: int) -> StepVerdict:
    """The verdict of one step, whose partition, window, cold start and recording ``findings`` have; all else is the device's.

    The confidence is low where the step alone would not do for a verdict.
    """
    if (withheld := _withheld(findings, "the step")) is not None:
        return StepVerdict(None, None, None, "low", withheld[0])
    cold, window = findings.cold_gap_ns, sum(findings.parts_ns.values())
    judgement = judge(findings.parts_ns, cold)
    if judgement is None:
        return StepVerdict(None, None, None, None, None, cold)
    unbiased = debiased(findings.parts_ns, findings.recording, cold)
    own = replace(findings, set_aside_ratio=0.0)
    unknown = sum(findings.parts_ns.get(part, 0) for part in UNKNOWN_PARTS)
    too_little = activity_count < t.INSUFFICIENT_KERNELS and busy_ns < t.INSUFFICIENT_TIME_NS
    level, _ = _confidence(own, judgement, window, unbiased)
    return StepVerdict(
        regime=judgement.regime,
        cause=judgement.cause,
        runner_up=judgement.runner_up,
        confidence="low" if too_little or unknown > t.UNKNOWN_RATIO * window else level,
        headline=_headline(own, judgement, window) + _recording_sentence(unbiased, judgement, window),
        cold_start_ns=cold,
        recording_ns=None if unbiased is None else unbiased.removed_ns,
        unrecorded_regime=None if unbiased is None else unbiased.regime,
    )


def _recording_sentence(unbiased: Debiased | None, judgement: Judgement, window: int) -> str:
    """What recording took of a step, where it is worth a word, and what the step is without it."""
    if unbiased is None or unbiased.removed_ns < t.RECORDING_TOLD_RATIO * window:
        return ""
    took = f"{duration(unbiased.removed_ns)} ({percent(unbiased.removed_ns / window)})"
    said = (
        f" Recording took {took} of it"
        if unbiased.method == "measured"
        else f" Recording is estimated at up to {took} of it"
    )
    if judgement.regime != unbiased.regime:
        maybe = "it may be" if unbiased.survives is None else "it is"
        return f"{said}; without that {maybe} {unbiased.regime or 'of no regime'}."
    return f"{said}."


def debiased(parts_ns: Mapping[str, int], recording: Recording | None, cold_gap_ns: int = 0) -> Debiased | None:
    """The partition without what recording took of it, and whether its regime is the same.

    An estimate that changes the regime only where it removes more than the least it can be cannot tell.
    """
    judgement = judge(parts_ns, cold_gap_ns)
    if recording is None or judgement is None:
        return None
    parts, least = _without(parts_ns, recording.taken_ns), _without(parts_ns, recording.least_ns)
    after, at_least = judge(parts, cold_gap_ns), judge(least, cold_gap_ns)
    same = after is not None and after.regime == judgement.regime
    same_at_least = at_least is not None and at_least.regime == judgement.regime
    return Debiased(
        method=recording.method,
        event_cost_ns={kind: cost for kind, (_, cost) in recording.event_cost_ns.items()},
        events=recording.events,
        least_removed_ns=sum(parts_ns.values()) - sum(least.values()),
        removed_ns=sum(parts_ns.values()) - sum(parts.values()),
        window_ns=sum(parts.values()),
        shares=shares(parts),
        parts_ns=parts,
        regime=None if after is None else after.regime,
        cause=None if after is None else after.cause,
        survives=True if same else None if same_at_least else False,
        why=_recording_why(recording, sum(parts_ns.values())),
    )


_EVENT_NAMES = {"operator": "operator", "python": "Python frame", "runtime": "runtime call"}


def _recording_why(recording: Recording, window_ns: int) -> str:
    """What recording cost, in words."""
    if recording.method == "measured":
        told = (
            f"a step takes {duration(recording.measured_step_ns)} without the profiler,"
            f" {duration(recording.step_ns)} with it"
        )
        beyond = recording.rest_ns > t.WORTH_RATIO * window_ns
        return f"{told}; {duration(recording.rest_ns)} of that is not idle time that the CPU makes" if beyond else told
    each = ", ".join(
        f"{f'{duration(least)} to ' if 0 < least < cost else 'up to '}{duration(cost)} per {_EVENT_NAMES[kind]}"
        for kind, (least, cost) in recording.event_cost_ns.items()
    )
    calls = (
        "; runtime calls by what those cost that only look something up" if "runtime" in recording.event_cost_ns else ""
    )
    return (
        f"{counted(recording.events or 0, 'event was', 'events were')} recorded on the way to late launches, at {each} (by how"
        f" closely such events follow each other in this trace{calls})"
    )


def _without(parts_ns: Mapping[str, int], taken_ns: Mapping[str, int]) -> dict[str, int]:
    """The partition without some time of its parts, and without that of the profiler's own rows."""
    taken = {"profiler": parts_ns.get("profiler", 0), **taken_ns}
    return {part: ns - min(ns, taken.get(part, 0)) for part, ns in parts_ns.items()}


def without_regime(status: Status, headline: str, evidence: tuple[Evidence, ...] = ()) -> Verdict:
    """A verdict that says why there is none."""
    return Verdict(status, None, None, None, "low", (), None, None, None, {}, headline, evidence)


def _insufficient(findings: Findings, unknown_ns: int, *, too_little: bool) -> Verdict:
    device, window = findings.device, sum(findings.parts_ns.values())
    if too_little or not window:
        headline = (
            f"Too little device work to judge: {counted(device.kernel_count, 'kernel')} in {duration(device.busy_ns)}."
            " Record several whole steps after a warm-up."
        )
    elif unknown_ns:
        headline = (
            f"{percent(unknown_ns / window)} of the window has no known cause (launches or events are missing)."
            " Record again with CPU and GPU activities both, starting before the work is launched."
        )
    else:
        headline = (
            "Nothing is known of what the kernels of this trace do: no operator launched them and no rule knows their names."
            " Record CPU activities too."
        )
    return _without_inputs(findings, headline, "the trace does not hold what a verdict needs")


def _headline(findings: Findings, judgement: Judgement, window: int) -> str:
    share = judgement.groups_ns[judgement.regime] / window
    regime = REGIMES[judgement.regime]
    clause = CAUSES[judgement.cause].definition if judgement.cause else regime.clause
    of = {"steady": "the steady steps", "whole": "the window", "step": "the step"}[findings.window.kind]
    unknown = sum(findings.parts_ns.get(part, 0) for part in _NOT_COUNTED) / window
    known = f"; {percent(unknown)} cannot be explained" if unknown > t.UNKNOWN_DOUBT_RATIO else ""
    return f"{regime.label}: {clause} ({regime.noun}: {percent(share)} of {of}{known})."


def _busy_evidence(findings: Findings, window: int) -> list[Evidence]:
    idle = sum(findings.parts_ns.get(cause, 0) for cause in IDLE_CAUSES)
    known = window and findings.device.busy_ratio is not None  # else a check of the trace withholds it
    busy_ratio = 1 - idle / window if known else None
    return [
        Evidence("busy_ratio", busy_ratio, "ratio", "share of the window in which the device works"),
        Evidence("idle_ns", idle if findings.parts_withheld is None else None, "ns", "idle time of the window"),
    ]


def _trust_evidence(findings: Findings) -> list[Evidence]:
    coverage = findings.device.link_coverage_time_ratio
    return [
        Evidence("link_coverage_time_ratio", coverage, "ratio", "share of device time whose launch is known"),
        Evidence(
            "launch_latency_bound_ns",
            findings.launch_latency_ns if findings.causes_withheld is None else None,
            "ns",
            "longest idle time after a launch that counts as its latency: the 99th percentile on an empty queue",
        ),
    ]


def _evidence(findings: Findings, judgement: Judgement, window: int) -> list[Evidence]:
    evidence = _busy_evidence(findings, window)
    ahead = findings.device.run_ahead
    evidence += [
        Evidence(
            f"{regime.removesuffix('-bound')}_ratio",
            ns / window,
            "ratio",
            f"share of the window that counts as {regime}",
        )
        for regime, ns in sorted(judgement.groups_ns.items(), key=lambda item: -item[1])
        if ns
    ]
    if ahead.state is not None:
        evidence += [
            Evidence("run_ahead", ahead.state, "", "whether the CPU launches faster than the device works"),
            Evidence(
                "empty_queue_ratio", ahead.empty_queue_ratio, "ratio", "share of the trace in which nothing was queued"
            ),
            Evidence(
                "launch_lead_p50_ns",
                ahead.launch_lead_ns.p50,
                "ns",
                "median time from launch to start: large is healthy",
            ),
        ]
    if findings.waiting_depth is not None:
        evidence.append(
            Evidence(
                "queue_depth_while_waiting",
                findings.waiting_depth,
                "launches",
                "mean number in the queue while the device waited: the CPU had done its part",
            )
        )
    idle = sum(findings.parts_ns.get(cause, 0) for cause in IDLE_CAUSES)
    if findings.idle_peak is not None and idle:
        dtype, peak = findings.idle_peak
        evidence.append(
            Evidence(
                "idle_flop",
                idle / NS_PER_S * peak,
                "FLOP",
                f"what the device could have computed meanwhile, in {dtype}",
            )
        )
    if judgement.cause == "cold-start":
        sums = cause_sums("overhead-bound", findings.parts_ns)
        evidence.append(
            Evidence("cause_without_cold_start", max(sums, key=lambda c: sums[c]), "", "the cause otherwise found")
        )
    if findings.steps_from is not None:
        evidence.append(Evidence("steps_from", findings.steps_from, "", "what marks the steps"))
    if findings.launches_per_step is not None:
        evidence.append(
            Evidence("launches_per_step", findings.launches_per_step, "launches", "calls that enqueue work")
        )
    return evidence + _trust_evidence(findings)


def _confidence(
    findings: Findings, judgement: Judgement, window: int, unbiased: Debiased | None
) -> tuple[Confidence, tuple[str, ...]]:
    """high, medium or low, and what lowers it or would change the verdict."""
    doubts: list[str] = []
    remarks: list[str] = []
    coverage = findings.device.link_coverage_time_ratio
    if coverage is not None and coverage < t.GOOD_COVERAGE:
        doubts.append(f"launches are known for only {percent(coverage)} of device time")
        if coverage < t.POOR_COVERAGE:
            doubts.append("most idle time cannot be explained without launches")
    unknown = sum(findings.parts_ns.get(part, 0) for part in _NOT_COUNTED) / window
    if unknown > t.UNKNOWN_DOUBT_RATIO:
        doubts.append(f"{percent(unknown)} of the window has no known bound or cause")
    if judgement.runner_up is not None:
        doubts.append(f"{judgement.runner_up} is close behind")
    if judgement.regime in KERNEL_REGIMES:
        known = findings.shapes_ratio or 0.0
        if findings.contraction_ratio > t.CONTRACTION_DOUBT_RATIO and known < t.POOR_COVERAGE:
            doubts.append(
                f"FLOP and bytes are known for {percent(known)} of the time of contractions: the others count as"
                " compute because of their kind, or as memory because of a name of decoding: batch sizes may differ"
            )
        if not findings.peaks_known:
            doubts.append("the device's peaks are unknown (--gpu NAME tells them)")
        elif findings.assumed_peaks is not None:
            remarks.append(
                f"compute and memory are told apart for {percent(findings.known_ratio)} of kernel time by FLOP and bytes"
                f" against assumed peaks ({findings.assumed_peaks}), for the rest by the kind of kernel"
            )
    if findings.steps_found < t.MIN_STEADY_STEPS:
        found = "one step was recorded" if findings.steps_found else "no steps are marked (call prof.step())"
        remarks.append(f"{found}: warm-up cannot be told from steady work")
    if judgement.cause == "dependency" and not findings.waits_recorded:
        doubts.append("what queued work waited for is not recorded: waiting for other streams or peers is inferred")
    if findings.set_aside_ratio > t.SET_ASIDE_DOUBT_RATIO:
        doubts.append(
            f"{percent(findings.set_aside_ratio)} of the time lies in steps that are unlike the others and set aside"
            " (--step all judges everything)"
        )
    if findings.breaks_off:
        doubts.append("the file breaks off: what stood behind that is not judged")
    elif findings.damaged:
        doubts.append("the file is damaged, or changed while it was read: what is lost of it is not judged")
    if findings.flows_missing:
        doubts.append("the file has no launch arrows: other events may have been removed from it too")
    doubts += findings.failed_checks
    if unbiased is not None and judgement.regime == "overhead-bound":
        by, removed = unbiased.regime or "no regime", f"{duration(unbiased.removed_ns)} of recording"
        if unbiased.survives is None:
            doubts.append(
                f"without up to {removed} (estimated) it may be {by}: record again with less (--measured-step-ms)"
            )
        elif not unbiased.survives:
            doubts.append(f"without {removed} ({unbiased.method}) it is {by}: the profiler makes it overhead-bound")
    level: Confidence = "high" if not doubts else "medium" if len(doubts) == 1 else "low"
    return level, (*doubts, *remarks)
