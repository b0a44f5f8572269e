"""Measure how often a verdict holds by its confidence: the table of docs/definitions.md, section Confidence.

Each recording is judged again with less in it: without shapes, without the device's name and figures, without steps,
with its first half only. The regime of the whole recording is the truth; the verdict of a poorer one holds if it names
that regime, or the two that are in balance there.

    python benchmarks/confidence.py [--corpus FOLDER]
"""

import argparse
import gzip
import json
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trace_analyzer.errors import TraceAnalyzerError
from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Verdict

ROOT = Path(__file__).resolve().parents[1]
Trace = dict[str, Any]
_SHAPES = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs", "Input dims", "Input types")


def without_shapes(trace: Trace) -> None:
    """Remove shapes, types and strides of operators."""
    for event in trace["traceEvents"]:
        for name in _SHAPES:
            event.get("args", {}).pop(name, None) if isinstance(event.get("args"), dict) else None


def without_device(trace: Trace) -> None:
    """Remove what names the device."""
    trace.pop("deviceProperties", None)


def without_steps(trace: Trace) -> None:
    """Remove the marks of steps."""
    marks = ("user_annotation", "gpu_user_annotation")
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") not in marks]


def first_half(trace: Trace) -> None:
    """Keep what begins in the first half."""
    begins = [event["ts"] for event in trace["traceEvents"] if event.get("ph") == "X"]
    middle = (min(begins) + max(begins)) / 2
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("ts", 0) <= middle]


CHANGES: dict[str, Callable[[Trace], None]] = {
    "without shapes": without_shapes, "without the device": without_device, "without steps": without_steps, "first half": first_half,
}  # fmt: skip


def main() -> None:
    """Print the verdicts that differ, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=Path(os.environ.get("TRACE_CORPUS", ROOT / "../shared/traces")))
    corpus = parser.parse_args().corpus
    paths = sorted([*corpus.glob("*.json.gz"), *(corpus.parent / "pairs").glob("*.json.gz")])
    held: dict[str, list[bool]] = defaultdict(list)
    for path in paths:
        content = gzip.decompress(path.read_bytes())
        whole = analyze(content).verdict
        if whole.regime is None:
            continue
        for name, change in CHANGES.items():
            trace = json.loads(content, strict=False)
            trace = trace if isinstance(trace, dict) else {"traceEvents": trace}
            change(trace)
            poorer = _verdict(trace)
            if poorer is None or poorer.regime is None:
                held["no verdict"].append(True)
                continue
            holds = bool({poorer.regime, poorer.runner_up} & {whole.regime, whole.runner_up} - {None})
            held[poorer.confidence].append(holds)
            if not holds:
                print(
                    f"{path.name}, {name}: {whole.regime} -> {poorer.regime}, {poorer.confidence} {poorer.confidence_ratio:.2f}"
                )
    for level in ("high", "medium", "low", "no verdict"):
        of = held[level]
        print(f"| {level} | {len(of)} | {sum(of) / len(of) if of and level != 'no verdict' else float('nan'):.0%} |")


def _verdict(trace: Trace) -> Verdict | None:
    try:
        return analyze(json.dumps(trace).encode()).verdict
    except TraceAnalyzerError:
        return None


if __name__ == "__main__":
    main()
