"""Compare the estimated step without the profiler with the measured one: docs/definitions.md, section "The profiler's own cost".

FOLDER has recordings and truth.json or cases.json, with rows of mean_ms (the step before the profiler ran) and trace or
name. Programs that the host does not limit have no line.

    python benchmarks/recording.py FOLDER
"""

import json
import sys
from pathlib import Path

import numpy as np

from trace_analyzer.pipeline import analyze
from trace_analyzer.report.summaries import step_without_recording
from trace_analyzer.thresholds import RECORDING_ERROR, RECORDING_REPORTED_RATIO
from trace_analyzer.units import NS_PER_MS


def main() -> None:
    """Print the step with the profiler, without it, and the estimate of that, ms; then the medians of their ratios."""
    folder, rows, took, held = Path(sys.argv[1]), [], [], []
    truth = next(path for name in ("truth.json", "cases.json") if (path := folder / name).exists())
    for row in json.loads(truth.read_text("utf-8")):
        trace = folder / row.get("trace", f"{row.get('name')}.json.gz")
        verdict = analyze(trace).verdict if trace.exists() else None
        unbiased = verdict and verdict.debiased
        if unbiased is None or verdict.regime != "overhead-bound" or not verdict.window.steps:
            continue
        if unbiased.removed_ns < RECORDING_REPORTED_RATIO * sum(verdict.parts_ns.values()):
            continue
        recorded = sum(verdict.parts_ns.values())
        times = np.array([recorded, recorded - unbiased.removed_ns, recorded - unbiased.least_removed_ns])
        times = times / len(verdict.window.steps) / NS_PER_MS
        rows.append(times / row["mean_ms"])
        if told := step_without_recording(verdict):
            held.append(told[2] <= row["mean_ms"] * NS_PER_MS <= told[3])
        took.append((times[0] - row["mean_ms"]) / (times[0] - times[1]))
        print(
            f"{trace.name:42} {times[0]:7.2f} ms; without the profiler {row['mean_ms']:7.2f} ms,"
            f" estimated {times[1]:7.2f} to {times[2]:7.2f} ms"
        )
    recorded, low, high = np.median(rows, axis=0)
    inside = sum(row[1] <= 1 <= row[2] for row in rows)
    print(
        f"{len(rows)} programs, {inside} inside; median over the measured: {recorded:.2f} recorded, {low:.2f} to {high:.2f} estimated"
    )
    print(f"{len(held)} told on the first screen, {sum(held)} inside their interval, which is that of another process")
    less = sum(ratio <= RECORDING_ERROR for ratio in took)
    print(
        f"recording took {np.median(took):.2f} of its estimate in the median, up to {RECORDING_ERROR} of it in {less}"
    )


if __name__ == "__main__":
    main()
