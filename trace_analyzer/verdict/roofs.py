"""Measure how close a regime's kernels come to their roof: a kernel far below its roof is not limited by it."""

from trace_analyzer import thresholds as t
from trace_analyzer.findings import DeviceFindings, Findings
from trace_analyzer.report import BoundShare, Evidence, Regime
from trace_analyzer.units import percent
from trace_analyzer.verdict.judge import Judgement

_BOUNDS: dict[Regime, str] = {"compute-bound": "compute", "memory-bandwidth-bound": "memory"}
_FAR_BELOW: dict[Regime, str] = {
    "compute-bound": "the GPU spends its time in matmuls and convolutions, which reach little of its peak",
    "memory-bandwidth-bound": "kernels spend their time moving data, far more slowly than the memory could",
}


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
    return _FAR_BELOW[regime]


def roof_phrase(findings: Findings, regime: Regime) -> str:
    """Write the share of the roof that the regime's kernels reach, for the headline; may be empty."""
    if regime in _BOUNDS and by_names(findings.device):
        return "; by kernel names, since little of their work is known"
    share = roof_share(findings, regime)
    if share is None or not _stands_for_all(share):
        return ""
    below = f", {percent(share.below_half_ratio)} of their time below half of it" if share.below_half_ratio else ""
    return f"; they reach {percent(share.roof_ratio)} of their roof{below}"


def roof_doubts(findings: Findings, regime: Regime) -> list[str]:
    """Return doubts about a roof that kernels exceed; for memory the cause may be the cache."""
    share = roof_share(findings, regime) if regime == "compute-bound" else None
    if share is None or (share.roof_ratio or 0.0) <= t.BEYOND_ROOF_RATIO:
        return []
    return [
        f"compute-bound kernels reach {percent(share.roof_ratio)} of their roof, which is impossible: the device's peaks or the"
        " kernels' FLOP are wrong (correct them with --gpu NAME or --peak-tflops)"
    ]


def far_from_roof(findings: Findings, regime: Regime) -> list[str]:
    """Return why the roof alone does not limit the regime's kernels; empty where it does, or where that is unknown.

    Kernels that take more than twice their time at the roof lose more time to other limits than to the roof.
    """
    share = roof_share(findings, regime)
    if share is None or not _stands_for_all(share) or (share.roof_ratio or 0.0) >= t.HALF_ROOF_RATIO:
        return []
    return [
        f"its kernels reach {percent(share.roof_ratio)} of their roof: something else limits them more, such as lower"
        " clocks, tiles that do not fill the device, or latency"
    ]


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
