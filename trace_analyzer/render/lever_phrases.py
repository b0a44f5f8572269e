"""Write what each resource can bring: on the first screen, on the page, and as a sentence."""

from collections.abc import Sequence

from trace_analyzer import thresholds, units
from trace_analyzer.report import Lever, Verdict
from trace_analyzer.report.summaries import larger_regime
from trace_analyzer.vocabulary import REGIMES, label


def shown_levers(verdict: Verdict) -> Sequence[Lever]:
    """Return the lever that saves most, then the two that take most time of the others."""
    rest = sorted(verdict.levers[1:], key=lambda lever: -lever.share_ratio)
    return (*verdict.levers[:1], *rest[:2])


def levers_sentence(verdict: Verdict) -> str:
    """Write what the two first levers save; "" without a replay."""
    saved = [f"{units.percent(lever.saves_ratio)} {name}" for name, lever in lever_rows(verdict)[:2]]
    return f"{levers_title(verdict)} {', '.join(saved)}." if saved else ""


def levers_title(verdict: Verdict) -> str:
    """Write what the figures of levers are."""
    return f"{units.capitalized(_unit(verdict))} would be shorter by"


def _unit(verdict: Verdict) -> str:
    return "a step" if verdict.window is not None and verdict.window.steps else "the window"


_TIMES = {
    "host": "host time", "compute": "compute-bound kernels", "memory-bandwidth": "memory-bound kernels",
    "communication": "communication", "copies": "copies", "small-kernels": "small kernels",
}  # fmt: skip
"""Names of what takes no time under each lever."""
LEVER_PARTS = {
    "host": "python", "compute": "compute", "memory-bandwidth": "memory", "communication": "communication", "copies": "copy",
    "small-kernels": "latency",
}  # fmt: skip
"""Part of the window in whose colour each lever is drawn."""


def lever_rows(verdict: Verdict) -> list[tuple[str, Lever]]:
    """Return the levers to show, each with its name after `levers_title`: ``without host time``."""
    return [(f"without {_TIMES[lever.resource]}", lever) for lever in shown_levers(verdict)]


def rule_applied(verdict: Verdict) -> str:
    """Write why the largest figure is not the verdict, if so: a step does not wait for it, or waiting can go."""
    larger = larger_regime(verdict)
    if larger is None:
        return ""
    regime, ratio = larger
    what = units.capitalized(REGIMES[regime].noun) if regime == "overhead-bound" else label(REGIMES[regime].part)
    saves = next((one.saves_ratio for one in verdict.levers if LEVER_PARTS[one.resource] == REGIMES[regime].part), None)
    if verdict.levers:
        less = "" if saves is None else f"; without that, {_unit(verdict)} would be {units.percent(saves)} shorter"
        return f"{what} takes {units.percent(ratio)}{less}."
    return (
        f"{what} takes {units.percent(ratio)}, but waiting can be recovered in full,"
        f" so it decides from {units.percent(thresholds.WAITING_WINS_RATIO)} of that share on."
    )
