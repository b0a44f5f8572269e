"""Measure how often a verdict holds by its confidence: trace_analyzer/catalog/confidence.toml.

Each recording is judged again with less in it: without shapes, without the device's name and figures, without steps,
with its first half only. The regime of the whole recording is the truth; the verdict of a poorer one holds if it names
that regime, or the two that are in balance there.

    python benchmarks/confidence.py [--corpus FOLDER] [--write]

``--write`` keeps the counts in that file, from which ``python docs/generate.py`` makes the table of docs/definitions.md,
and ``analyze explain TRACE verdict`` its sentence.
"""

import argparse
import gzip
import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
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
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    corpus = options.corpus
    others = (path for folder in ("pairs", "truth") for path in (corpus.parent / folder).rglob("*.json.gz"))
    paths = sorted([*corpus.glob("*.json.gz"), *others])
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
    counts = {level: (sum(held[level]), len(held[level])) for level in (*LEVELS, "no verdict")}
    for level, (right, judged) in counts.items():
        print(f"{level}: {judged}" + (f", of which {right} hold" if level in LEVELS else ""))
    if options.write:
        write(counts)


LEVELS = ("high", "medium", "low")


def write(counts: Mapping[str, tuple[int, int]]) -> None:
    """Keep how many verdicts of each confidence there were, and how many held."""
    rows = [f'  {{ level = "{level}", verdicts = {counts[level][1]}, held = {counts[level][0]} }},' for level in LEVELS]
    recordings = sum(judged for _, judged in counts.values()) // len(CHANGES)
    head = "# How often verdicts held in poorer recordings, by confidence: written by benchmarks/confidence.py --write."
    lines = (
        head,
        f"recordings = {recordings}",
        f"without_verdict = {counts['no verdict'][1]}",
        "levels = [",
        *rows,
        "]",
    )
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


FILE = ROOT / "trace_analyzer" / "catalog" / "confidence.toml"


def _verdict(trace: Trace) -> Verdict | None:
    try:
        return analyze(json.dumps(trace).encode()).verdict
    except TraceAnalyzerError:
        return None


if __name__ == "__main__":
    main()
