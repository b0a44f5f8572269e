"""Decide what limits the verdict's window from its partition, with evidence and confidence."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from typing import NamedTuple

from trace_analyzer import thresholds as t, vocabulary
from trace_analyzer.analyses.left_out import LeftOut
from trace_analyzer.analyses.profiler_overhead import is_measured
from trace_analyzer.catalog.event_names import TO_PEER, WITHIN_DEVICE, in_function, prepares_input_files
from trace_analyzer.findings import Findings, measured
from trace_analyzer.report import Confidence, Debiased, Evidence, Regime, Verdict
from trace_analyzer.report.devices import DeviceReport
from trace_analyzer.units import NS_PER_S, counted, duration, percent, visible
from trace_analyzer.verdict.judge import (
    KERNEL_REGIMES,
    NO_LEVERS,
    OF_REGIME,
    WITHIN_LAUNCH,
    Doubt,
    Judgement,
    Levers,
    by_names,
    confidence_ratio,
    debiased,
    doubts_of,
    far_from_roof,
    idle_ns,
    judge,
    judged_parts,
    lowering,
    roof_doubts,
    roof_evidence,
    roof_phrase,
    sentence_far_below,
    shares,
    slowed_ns,
    unrecorded,
)


def verdict(findings: Findings, levers: Levers = NO_LEVERS) -> Verdict:
    """Return the verdict for a trace with device activities, by the levers of its replay, else by shares of time.

    Where the step without the profiler was measured, the verdict is on the program without it.
    """
    traced, device = findings.parts_ns, findings.device.report
    levers = levers._replace(loading_behind_waits_ns=findings.loading_behind_waits_ns)
    if (withheld := withheld_inputs(findings, "the window")) is not None:
        return _without_inputs(findings, *withheld)
    unbiased = debiased(traced, findings.recording, findings.cold_gap_ns, levers)
    of = None
    if unbiased is not None and is_measured(recording := findings.recording):
        without = recording._replace(taken_ns={}, least_ns={})
        findings = findings._replace(parts_ns=judged_parts(traced, recording), recording=without)
        if unbiased.removed_ns and findings.window.steps:
            of = f"the {findings.window.steps_noun} without the profiler"
    parts, window = findings.parts_ns, sum(findings.parts_ns.values())
    unknown = sum(parts.get(part, 0) for part in COUNTED_NOWHERE)
    judgement = judge(parts, findings.cold_gap_ns, levers)
    too_little = is_too_little(device)
    if judgement is None or too_little or is_undecided(judgement, parts):
        return _insufficient(findings, judgement, unknown, too_little=too_little)
    of_regime = OF_REGIME[judgement.regime]
    flip = _flip(findings, judgement)
    doubts = tuple(doubts_of(findings, judgement, None if flip is None else flip.step_ns))
    confidence, ratio = confidence_of(findings, judgement, doubts)
    return Verdict(
        status="ok",
        regime=judgement.regime,
        runner_up=judgement.runner_up,
        cause=judgement.cause,
        confidence=confidence,
        confidence_why=_why(findings, judgement, doubts, unbiased, flip),
        device=device.index,
        window=findings.window,
        shares=shares(traced),
        parts_ns=traced,
        headline=headline_of(findings, judgement, window, of),
        evidence=tuple(_evidence(findings, judgement, window)),
        debiased=unbiased,
        # Of equal savings, that of the regime: a table that shows the first contradicts no verdict.
        levers=tuple(sorted(levers.rows, key=lambda one: (-one.saves_ns, one.resource not in of_regime))),
        host_levers=levers.host,
        confidence_ratio=ratio,
    )


def is_too_little(device: DeviceReport) -> bool:
    """Return whether a device did too little to be judged."""
    return device.kernel_count < t.INSUFFICIENT_KERNELS and device.busy_ns < t.INSUFFICIENT_TIME_NS


def is_undecided(judgement: Judgement, parts_ns: Mapping[str, int]) -> bool:
    """Return whether more time than the regime's is unknown, so that it could change the regime.

    Kernels with an unknown bound may be compute or memory; idle time with an unknown cause may come from the host or
    from peers.
    """
    if sum(parts_ns.get(part, 0) for part in COUNTED_NOWHERE) <= judgement.groups_ns[judgement.regime]:
        return False
    others = (judge(parts, levers=judgement.levers) for parts in _worlds(parts_ns))
    return any(other is None or other.regime != judgement.regime for other in others)


def _worlds(parts_ns: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield the parts with what counts towards no regime as either of what it may be."""
    unknown = {part: parts_ns.get(part, 0) for part in COUNTED_NOWHERE}
    kernels = unknown.pop("other", 0)
    known = {part: ns for part, ns in parts_ns.items() if part not in COUNTED_NOWHERE}
    for bound, waiting in product(("compute", "memory"), ("python", "device-wait")):
        yield _with(known, {bound: kernels, waiting: sum(unknown.values())})


def _with(parts_ns: Mapping[str, int], more_ns: Mapping[str, int]) -> dict[str, int]:
    return {**parts_ns, **{part: parts_ns.get(part, 0) + ns for part, ns in more_ns.items()}}


def withheld_inputs(findings: Findings, of: str) -> tuple[str, str] | None:
    """Return the sentence and the reason why suppressed inputs allow no verdict; None where they do.

    Idle time without causes may come from the host, or from other streams and peers. Where either could change the
    regime, there is no verdict.
    """
    parts = findings.parts_ns
    if findings.device.parts_withheld is not None:
        sentence = f"What the device did in {of} is not known: the trace does not support it"
        return f"{sentence} ({_check_of(findings.device.parts_withheld)}).", findings.device.parts_withheld
    hidden = parts.get(vocabulary.WITHHELD, 0)
    if not hidden or findings.device.causes_withheld is None:
        return None
    rest = {part: ns for part, ns in parts.items() if part != vocabulary.WITHHELD}
    either = (judge(rest), *(judge({**rest, part: rest.get(part, 0) + hidden}) for part in ("python", "device-wait")))
    if len({judgement and judgement.regime for judgement in either}) == 1:
        return None
    idle = percent(hidden / sum(parts.values()))
    sentence = f"The device idles for {idle} of {of}, and why is not known: the trace does not support causes"
    return f"{sentence} ({_check_of(findings.device.causes_withheld)}).", findings.device.causes_withheld


def _check_of(reason: str) -> str:
    """Return the check and its value, without its meaning."""
    return reason.partition(": ")[0]


def _without_inputs(findings: Findings, headline: str, reason: str) -> Verdict:
    """Return a verdict without a regime, as the trace lacks its inputs or does not support them."""
    parts = {} if findings.device.parts_withheld is not None else findings.parts_ns
    evidence = (*_busy_evidence(findings, sum(findings.parts_ns.values())), *_trust_evidence(findings))
    device, window = findings.device.report.index, findings.window
    return Verdict(
        "insufficient", None, None, None, "low", (reason,), device, window, shares(parts), parts, headline, evidence
    )


def _insufficient(findings: Findings, judgement: Judgement | None, unknown_ns: int, *, too_little: bool) -> Verdict:
    device, window = findings.device.report, sum(findings.parts_ns.values())
    known = "" if judgement is None else f", more than what the rest names as the limit ({_share(findings, judgement)})"
    if too_little or not window:
        headline = (
            f"Too little device work to judge: {counted(device.kernel_count, 'kernel')} in {duration(device.busy_ns)}."
            " Record several whole steps after a warm-up."
        )
    elif (kernels := findings.parts_ns.get("other", 0)) > unknown_ns / 2:
        headline = (
            f"For {percent(kernels / window)} of the window it is not known what limits the kernels{known}: no operator with"
            " shapes launched them and no rule knows their names."
        )
        worlds = [judge(parts) for parts in _worlds(findings.parts_ns)]
        if all(world and world.regime in KERNEL_REGIMES for world in worlds):
            headline += " Compute or memory, they limit more than the CPU."
    elif findings.parts_ns.get(vocabulary.UNRECORDED, 0) > unknown_ns / 2:
        headline = (
            f"For {percent(findings.parts_ns[vocabulary.UNRECORDED] / window)} of the window the CPU waited for device work that the trace lacks{known}."
            " Its records were lost: record fewer steps at once, with no other profiler attached."
        )
    elif unknown_ns:
        headline = (
            f"{percent(unknown_ns / window)} of the window has no known cause (launches or events are missing){known}."
            " Record again with CPU and GPU activities both, starting before the work is launched."
        )
    else:
        headline = "Nothing that the device did counts towards a regime."
    return _without_inputs(findings, headline, "the trace does not hold what a verdict needs")


def _share(findings: Findings, judgement: Judgement) -> str:
    """Name the time that counts towards the regime, with its share of the window."""
    noun = vocabulary.regime_noun(judgement.regime, findings.parts_ns)
    return f"{noun}: {percent(judgement.groups_ns[judgement.regime] / sum(findings.parts_ns.values()))}"


COUNTED_NOWHERE = tuple(
    part.key for part in vocabulary.PARTS.values() if part.cure is None and part.key not in vocabulary.NOT_OWN
)
"""Parts that count towards no regime."""


def headline_of(findings: Findings, judgement: Judgement, window: int, of: str | None = None) -> str:
    """Write the verdict in one sentence; ``of`` names the window, by default by its kind."""
    regime = vocabulary.REGIMES[judgement.regime]
    clause = vocabulary.CAUSES[judgement.cause].definition if judgement.cause else regime.clause
    of = of or _WINDOWS.get(findings.window.kind) or f"the {findings.window.steps_noun}"
    unknown = sum(findings.parts_ns.get(part, 0) for part in COUNTED_NOWHERE) / window
    known = f"; {percent(unknown)} cannot be explained" if unknown > t.UNKNOWN_DOUBT_RATIO else ""
    ratios = {part: findings.parts_ns.get(part, 0) / window for part in vocabulary.NOT_OWN}
    others = "".join(_NOT_OWN[part].format(percent(r)) for part, r in ratios.items() if r > t.EARLIER_REPORTED_RATIO)
    if judgement.cause == "copies":
        clause = f"copies {_copied(findings)} run while nothing else does"
    clause = sentence_far_below(findings, judgement.regime) or clause
    waits = findings.device.peer_wait_ratio if judgement.cause == "collectives" else None
    peers = (
        f" Up to {percent(waits)} of communication may be waiting for other ranks: analyze ranks FOLDER."
        if waits
        else ""
    )
    second, levers = judgement.runner_up, judgement.levers.rows
    balanced = f"; in balance with {vocabulary.REGIMES[second].noun}" if second is not None else ""
    if balanced and levers and levers[0].saves_ratio < t.BALANCED_RATIO:
        balanced += ", and no resource alone saves a tenth"
    small = findings.parts_ns.get("latency", 0)
    beside = judgement.regime == "overhead-bound" and judgement.cause != "small-kernels"
    most = (
        f"; {percent(small / window)} in small kernels"
        if beside and 2 * small > judgement.groups_ns[judgement.regime]
        else ""
    )
    noted = roof_phrase(findings, judgement.regime) + most + known + others + balanced
    if judgement.cause in WITHIN_LAUNCH:
        clause += f" in {percent(findings.parts_ns[judgement.cause] / idle_ns(findings.parts_ns))} of the idle time"
    limit = vocabulary.limit_label(judgement.regime, judgement.cause)
    sentence = f"{limit}: {clause} ({_share(findings, judgement)} of {of}{noted})."
    return sentence + peers + _left_out_sentence(findings.left_out, findings.device.breaks_off)


def _copied(findings: Findings) -> str:
    """Write between what the device's exposed copies move: between host and device, between devices, or both."""
    exposed = {True: 0, False: 0}
    for copies in findings.device.report.copies:
        exposed[copies.direction == TO_PEER] += copies.exposed_ns if copies.direction != WITHIN_DEVICE else 0
    if exposed[False] and exposed[True]:
        return "between host and device, and between devices,"
    return "between devices" if exposed[True] else "between host and device"


_NOT_OWN = {
    vocabulary.EARLIER_WORK: "; {} is work from before the recording",
    vocabulary.TIME_SLICE: "; in {} another program seems to run",
}
_WINDOWS = {"whole": "the window", "trimmed": "the window from the first work to the last", "step": "the step"}


def _left_out_sentence(left: LeftOut | None, breaks_off: bool) -> str:
    """Write what the window leaves out, where that is most of the trace; else ""."""
    if left is None or not left.is_most:
        return ""
    sentence = f" The window leaves out {percent(left.ratio)} of the {_left_out_noun(left)}: {_left_out_words(left, breaks_off)}."
    return sentence + (" If each call begins with that, speed it up first." if _prepares_inputs_first(left) else "")


def _prepares_inputs_first(left: LeftOut) -> bool:
    """Return whether the host prepares inputs for most of what is left out, before the device's first work."""
    span = left.span
    if span is None or not left.is_outside or span.before is None:
        return False
    return 2 * span.before_ns > left.time_ns and prepares_input_files(span.before)


def _left_out_noun(left: LeftOut) -> str:
    return "device time" if left.of_device_time else "trace"


def _left_out_words(left: LeftOut, breaks_off: bool) -> str:
    """Write what the window leaves out, and how much: ``cold start: 5.1 s of 5.9 s``."""
    ns, what = left.inside_ns, ""
    if left.is_outside and (span := left.span) is not None:
        first = span.before_ns >= span.after_ns
        ns, name = (span.before_ns, span.before) if first else (span.after_ns, span.after)
        side = "behind the last GPU event of the truncated file" if breaks_off and not first else _SIDES[first]
        what = f" {side}{f', most of it {in_function(visible(name))}' if name else ''}"
    elif (judgement := judge(left.parts_ns, left.cold_gap_ns)) is not None:
        what = f" ({vocabulary.phrase(judgement.cause) if judgement.cause else judgement.regime})"
    rest = left.time_ns - ns
    others = f", and {duration(rest)} elsewhere" if rest > t.LEFT_OUT_REST_RATIO * left.time_ns else ""
    return f"{duration(ns)} of {duration(left.total_ns)}{what}{others}"


_SIDES = {True: "before the device's first work", False: "after the device's last work"}


def _busy_evidence(findings: Findings, window: int) -> list[Evidence]:
    idle = idle_ns(findings.parts_ns)
    known = window and findings.device.report.busy_ratio is not None  # null where a check of the trace suppresses it
    busy_ratio = sum(findings.parts_ns.get(part, 0) for part in vocabulary.WORK) / window if known else None
    return [
        Evidence("busy_ratio", busy_ratio, "ratio", "share of the window in which recorded work runs"),
        Evidence("idle_ns", idle if findings.device.parts_withheld is None else None, "ns", "idle time of the window"),
    ]


def _trust_evidence(findings: Findings) -> list[Evidence]:
    coverage = findings.device.report.link_coverage_time_ratio
    latency = findings.device.launch_latency_ns if findings.device.causes_withheld is None else None
    words = "longest idle time after a launch that counts as launch latency: the 99th percentile on an empty queue"
    return [
        Evidence("link_coverage_time_ratio", coverage, "ratio", "share of device time whose launch is known"),
        Evidence("launch_latency_bound_ns", latency, "ns", words),
    ]


def _evidence(findings: Findings, judgement: Judgement, window: int) -> list[Evidence]:
    evidence = _busy_evidence(findings, window)
    ahead = findings.device.report.run_ahead
    evidence += [
        Evidence(f"{what}_ratio", ns / window, "ratio", f"share of the window that counts as {limit}")
        for regime, ns in sorted(judgement.groups_ns.items(), key=lambda item: -item[1])
        if ns
        for what, limit in [_counts_as(regime, findings.parts_ns)]
    ]
    evidence += roof_evidence(findings, judgement)
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
        words = "mean queue depth while the device waited: the CPU was not to blame"
        evidence.append(Evidence("queue_depth_while_waiting", findings.waiting_depth, "launches", words))
    idle = idle_ns(findings.parts_ns)
    if findings.device.idle_peak is not None and idle:
        dtype, peak = findings.device.idle_peak
        words = f"what the device could have computed meanwhile, in {dtype}"
        evidence.append(Evidence("idle_flop", idle / NS_PER_S * peak, "FLOP", words))
    if judgement.cause == "cold-start":
        sums = vocabulary.cause_sums("overhead-bound", findings.parts_ns)
        largest, words = max(sums, key=lambda c: sums[c]), "the cause if cold starts did not count"
        evidence.append(Evidence("cause_without_cold_start", largest, "", words))
    if findings.device.steps_from is not None:
        evidence.append(Evidence("steps_from", findings.device.steps_from, "", "what marks the steps"))
    if findings.device.launches_per_step is not None:
        evidence.append(
            Evidence("launches_per_step", findings.device.launches_per_step, "launches", "calls that enqueue work")
        )
    return evidence + _trust_evidence(findings)


def _counts_as(regime: Regime, parts_ns: Mapping[str, int]) -> tuple[str, str]:
    """Name time and the regime that it counts towards; communication with copies as its only cause is called by its cause."""
    only, *others = [*vocabulary.cause_sums(regime, parts_ns)] or [""]
    limit = vocabulary.CAUSES[only].limit if only and not others else ""
    return (only, limit.lower()) if limit else (regime.removesuffix("-bound"), regime)


def confidence_of(findings: Findings, judgement: Judgement, doubts: Sequence[Doubt]) -> tuple[Confidence, float]:
    """Return high, medium or low, and the share of admissible worlds in which the regime holds."""
    ratio, left = confidence_ratio(judgement, doubts), findings.left_out
    is_rest = findings.device.breaks_off and left is not None and left.is_most
    if ratio < t.MEDIUM_CONFIDENCE or is_rest:
        return "low", ratio
    return "medium" if ratio < t.HIGH_CONFIDENCE or any(True for _ in _caps(findings, judgement)) else "high", ratio


class Flip(NamedTuple):
    """The step (the window, without steps) without the profiler, ns, below which other regimes limit."""

    step_ns: float
    regimes: tuple[Regime, ...]


def _why(
    findings: Findings, judgement: Judgement, doubts: Sequence[Doubt], unbiased: Debiased | None, flip: Flip | None
) -> tuple[str, ...]:
    """Return the facts that lower the confidence, and those that could change the verdict."""
    words = (doubt.words for doubt in lowering(judgement, doubts))
    facts = dict.fromkeys(chain(words, _caps(findings, judgement), _remarks(findings, judgement)))
    if unbiased is not None and unbiased.survives and unbiased.cause and unbiased.cause != judgement.cause:
        facts[f"without the profiler's estimated cost, most of it is {vocabulary.phrase(unbiased.cause)}"] = None
    if flip is not None:
        what, option = ("a step", " (--measured-step-ms)") if findings.window.steps else ("the window", "")
        below = f"under about {duration(flip.step_ns)} without the profiler"
        facts[f"if {what} takes {below}, it is {' or '.join(flip.regimes)}{option}"] = None
    return tuple(facts)


def _caps(findings: Findings, judgement: Judgement) -> Iterator[str]:
    """Yield what no figure can weigh, so that confidence is medium at most."""
    yield from _doubts_of_peaks(findings, judgement)
    yield from _doubts_of_the_record(findings, judgement)
    yield from far_from_roof(findings, judgement.regime)
    report = findings.device.report
    if report.kernel_count < t.FEW_KERNELS and report.busy_ns < t.FEW_KERNELS_TIME_NS:
        yield f"only {counted(report.kernel_count, 'kernel')} in {duration(report.busy_ns)} of device time"


def _flip(findings: Findings, judgement: Judgement) -> Flip | None:
    """Return below which step without the profiler other regimes limit; None where recording cannot slow the host so much."""
    if judgement.regime != "overhead-bound" or is_measured(findings.recording):
        return None

    def regime_at(step_ns: float) -> Regime | None:
        known, of = measured(findings, round(step_ns)), judgement.levers.measured
        parts = judged_parts(known.parts_ns, known.recording)
        then = judge(parts, findings.cold_gap_ns, of(known, round(step_ns)) if of else NO_LEVERS)
        return None if then is None or is_undecided(then, parts) else then.regime

    window, steps = sum(findings.parts_ns.values()), findings.window.step_count
    most = min(slowed_ns(findings.parts_ns), t.RECORDING_MOST_RATIO * window)
    low, high = (window - most) / steps, window / steps
    below = [regime_at(low)]
    for _ in range(_HALVINGS if below[0] != judgement.regime else 0):
        regime = regime_at(middle := (low + high) / 2)
        low, high = (low, middle) if regime == judgement.regime else (middle, high)
        below = below if high == middle else [regime, *below]
    if judgement.regime in below or None in below:
        return None
    return Flip((low + high) / 2, tuple(dict.fromkeys(filter(None, below))))


_HALVINGS = 5
"""Of the step's interval: the flip is known to 2 % of the recorded step."""


def _doubts_of_peaks(findings: Findings, judgement: Judgement) -> Iterator[str]:
    """Yield unknown, assumed or exceeded peaks, and names as the only evidence, where a kernel regime rests on them."""
    device = findings.device
    if judgement.regime not in KERNEL_REGIMES:
        return
    if by_names(device):
        yield "little of the kernels' work is known, and they count as compute or memory by their names"
    yield from roof_doubts(findings)
    if not device.peaks_known and device.assumed_peaks is not None:
        yield (
            "the trace names no device: peaks are assumed from the architecture in kernel names"
            f" ({device.assumed_peaks}; name the device with --gpu NAME)"
        )
    elif not device.peaks_known:
        yield "the device's peaks are unknown (name the device with --gpu NAME)"
    if device.model is not None and device.model.matched == "likeness":
        yield (
            f"the catalogue does not know the device's name: peaks are those of {device.model.name}, which has the same multiprocessors,"
            " memory and capability, as other devices may (name the device with --gpu NAME)"
        )


def _doubts_of_the_record(findings: Findings, judgement: Judgement) -> Iterator[str]:
    """Yield data that was not recorded, lies outside the window, or is lost or doubtful in the file."""
    device = findings.device
    if judgement.cause == "dependency" and not device.waits_recorded:
        yield "what queued work waited for is not recorded: waiting for other streams or peers is inferred"
    window = sum(findings.parts_ns.values())
    if (lost := findings.parts_ns.get(vocabulary.UNRECORDED, 0)) > t.UNRECORDED_RATIO * window:
        yield unrecorded(lost / window)
    if findings.parts_ns.get(vocabulary.TIME_SLICE, 0):
        yield "another program seems to use the device in turn: kernels may hold its turns too"
    unnamed, idle = findings.parts_ns.get("host-unknown", 0), idle_ns(findings.parts_ns)
    if judgement.regime == "overhead-bound" and unnamed > t.UNNAMED_RATIO * idle:
        yield f"in {percent(unnamed / idle)} of its idle time the host recorded nothing"
    left = findings.left_out
    if left is not None and left.is_most:
        wider = "" if left.is_outside else " (--step all judges all of the device's work)"
        yield f"{percent(left.ratio)} of the {_left_out_noun(left)} lies outside of the window{wider}"
    if device.breaks_off:
        yield "the file is truncated: what followed is not judged"
    elif device.damaged:
        yield "the file is damaged, or changed while it was read: lost events are not judged"
    if device.unit_doubted:
        yield "the file's times may be nanoseconds, and all times 1,000 times too long"
    if device.flows_missing:
        yield "the file has no launch arrows: other events may have been removed from it too"
    yield from device.doubted_checks


def _remarks(findings: Findings, judgement: Judgement) -> Iterator[str]:
    """Yield facts that change figures but not the confidence: which peaks, too few steps."""
    device = findings.device
    if device.model is not None and device.model.matched == "properties" and judgement.regime in KERNEL_REGIMES:
        yield f"the trace does not name the device: its multiprocessors, memory and capability are those of {device.model.name}"
    if judgement.regime in KERNEL_REGIMES and device.peaks_known and device.assumed_peaks is not None:
        named = ", the rest by kernel name" if device.known_ratio and device.known_ratio < 1 - t.WORTH_RATIO else ""
        yield (
            f"{percent(device.known_ratio)} of kernel time counts as compute or memory by its FLOP, its bytes and these"
            f" peaks ({device.assumed_peaks}){named}"
        )
    if device.step_count < t.MIN_STEADY_STEPS:
        none = "no steps are marked" if device.profiler else "no steps are marked (call prof.step())"
        yield f"{'one step was recorded' if device.step_count else none}: warm-up and steady work cannot be separated"
