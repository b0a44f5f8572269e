"""Measure how much the verdicts depend on the thresholds: each is halved and doubled, on every given trace.

    python benchmarks/threshold_sensitivity.py [THRESHOLD ...] [TRACE ...]

Without thresholds, all of them are used; without traces, the samples, and those in the folder ``TRACE_CORPUS`` if it is
set. Prints Markdown: the verdict of each trace, then for each threshold and factor which verdicts (status, regime,
cause) change, and how often only the confidence or the runner-up does. Thresholds without effect are listed last.
`docs/definitions.md` quotes the result.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from trace_analyzer import thresholds
from trace_analyzer.ingest import Trace, load
from trace_analyzer.pipeline import report_of
from trace_analyzer.report import Verdict

FACTORS = (0.5, 2.0)
SAMPLES = Path(__file__).parents[1] / "sample_traces"

Knob = tuple[ModuleType, str]


def knobs() -> list[Knob]:
    """Return the thresholds of `trace_analyzer.thresholds` named on the command line, else all of them."""
    named = _every_knob()
    return [(thresholds, name) for name in named if name in sys.argv[1:]] or [(thresholds, name) for name in named]


def _every_knob() -> list[str]:
    return [name for name in vars(thresholds) if name.isupper() and not name.startswith("NS_PER")]


@contextmanager
def scaled(knob: Knob, factor: float) -> Iterator[None]:
    """Multiply the threshold by ``factor`` during the block; integers stay integers, quantiles and coverages at most
    1."""
    module, name = knob
    value = getattr(module, name)
    new = min(1.0, value * factor) if name.endswith(("_QUANTILE", "_COVERAGE")) else value * factor
    setattr(module, name, round(new) if isinstance(value, int) else new)
    try:
        yield
    finally:
        setattr(module, name, value)


def traces() -> list[Path]:
    """Return the traces named on the command line, else the samples and the corpus."""
    named = [Path(name) for name in sys.argv[1:] if name not in _every_knob()]
    if named:
        return named
    folders = [SAMPLES, *(Path(folder) for folder in [os.environ.get("TRACE_CORPUS")] if folder)]
    return [path for folder in folders for path in sorted(folder.glob("*.json.gz"))]


def judged(verdict: Verdict) -> str:
    """Return the verdict in one phrase."""
    if verdict.regime is None:
        return verdict.status
    return verdict.regime.removesuffix("-bound") + (f" ({verdict.cause})" if verdict.cause else "")


def doubted(verdict: Verdict) -> tuple[str, str | None]:
    """Return the confidence, and the runner-up."""
    return verdict.confidence, verdict.runner_up


def changes(trace: Trace, name: str) -> Iterator[tuple[Knob, float, str, bool]]:
    """Yield (threshold, factor, the changed verdict or "", whether only confidence or runner-up changed)."""
    base = report_of(trace).verdict
    for knob in knobs():
        for factor in FACTORS:
            with scaled(knob, factor):
                new = report_of(trace).verdict
            moved = judged(new) != judged(base)
            yield (
                knob,
                factor,
                f"`{name}`: {judged(base)} → {judged(new)}" if moved else "",
                doubted(new) != doubted(base) and not moved,
            )


def main() -> None:
    """Print the tables."""
    outcomes: dict[tuple[Knob, float], tuple[list[str], int]] = {}
    print("| trace | verdict | confidence | runner-up |\n|---|---|---|---|")
    for path in traces():
        trace, name = load(path), path.name.removesuffix(".json.gz")
        base = report_of(trace).verdict
        print(f"| `{name}` | {judged(base)} | {base.confidence} | {base.runner_up or ''} |", flush=True)
        for knob, factor, change, doubt in changes(trace, name):
            moved, doubts = outcomes.get((knob, factor), ([], 0))
            outcomes[knob, factor] = (moved + [change] * bool(change), doubts + doubt)
    print("\n| threshold | factor | verdicts that change | only confidence or runner-up |\n|---|---|---|---|")
    for (knob, factor), (moved, doubts) in outcomes.items():
        if moved or doubts:
            print(f"| `{knob[1]}` | {factor:g} | {'; '.join(moved) or 'none'} | {doubts} |")
    silent = [knob[1] for knob in knobs() if not any(any(outcomes[knob, factor]) for factor in FACTORS)]
    print(f"\nNothing changes for {', '.join(f'`{name}`' for name in silent)}.")


if __name__ == "__main__":
    main()
