"""Hold the verdict against the replay's floors: a regime whose cures save nothing in a replay is not the only limit."""

from dataclasses import replace

from trace_analyzer.analysis import Value
from trace_analyzer.replay.estimates import Estimates
from trace_analyzer.report import Confidence, Verdict
from trace_analyzer.thresholds import WORTH_RATIO
from trace_analyzer.units import capitalized, percent

_NOTHING = 0.0005
_LOWER: dict[Confidence, Confidence] = {"high": "medium", "medium": "low", "low": "low"}


def verdict_with_floors(window_verdict: Verdict, estimates: Estimates) -> Verdict:
    """Return the verdict; where the floors contradict its regime, the headline says so, and the confidence is a level lower.

    They do where the device takes no time in the replay of a regime of the device, or the CPU none in one of overhead, and
    the step is less than `WORTH_RATIO` shorter: no fix of what the regime names saves that.
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
    """Return a sentence, and a doubt in short; None where the floors do not contradict the regime, or are not known."""
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
