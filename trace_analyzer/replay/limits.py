"""Compare the verdict with the replay's lower bounds: a regime whose removal saves nothing is not the only limit."""

from dataclasses import replace

from trace_analyzer.analysis import Value
from trace_analyzer.replay.estimates import Estimates
from trace_analyzer.report import Confidence, Verdict
from trace_analyzer.thresholds import WORTH_RATIO
from trace_analyzer.units import capitalized, percent

_NOTHING = 0.0005
_LOWER: dict[Confidence, Confidence] = {"high": "medium", "medium": "low", "low": "low"}


def verdict_with_floors(window_verdict: Verdict, estimates: Estimates) -> Verdict:
    """Return the verdict, with a sentence and a lower confidence if the lower bounds contradict its regime.

    They do where removing all device time (for a device regime) or all CPU time (for overhead) shortens the step by
    less than `WORTH_RATIO`: no fix for that regime then saves more.
    """
    contradiction = _contradiction(window_verdict, estimates)
    if contradiction is None:
        return window_verdict
    sentence, doubt = contradiction
    return replace(
        window_verdict,
        headline=f"{window_verdict.headline} {sentence}",
        confidence=_LOWER[window_verdict.confidence],
        confidence_why=(doubt, *window_verdict.confidence_why),
    )


def _contradiction(verdict: Verdict, estimates: Estimates) -> tuple[str, str] | None:
    """Return a sentence and a short reason for doubt; None where the lower bounds are unknown or agree."""
    if verdict.regime is None or estimates.floors is None or not estimates.now_ns:
        return None
    now, (cpu_ns, device_ns) = estimates.now_ns, estimates.floors
    is_device, least = verdict.regime != "overhead-bound", (1 - WORTH_RATIO) * now
    own, other = (cpu_ns, device_ns) if is_device else (device_ns, cpu_ns)
    if own < least:
        return None
    if other >= least:
        doubt = "in the replay CPU and device are the limit together"
        return f"{capitalized(doubt)}: no fix of one alone saves {100 * WORTH_RATIO:.0f} %.", doubt
    limit, faster = ("CPU", "device") if is_device else ("device", "CPU")
    saved = 1 - own / now
    amount = "nothing" if saved < _NOTHING else percent(saved)
    step = "a step" if estimates.has_steps else "the window"
    doubt = f"in the replay the {limit} is the limit"
    return f"{capitalized(doubt)}: an infinitely fast {faster} saves {amount} of {step}.", doubt


VALUES = (Value("verdict", verdict_with_floors),)
