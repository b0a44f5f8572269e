"""Compare the estimated step without the profiler with the measured one: docs/definitions.md, section "The profiler's own cost".

FOLDER has recordings and truth.json, with rows of size, options, mean_ms (the step before any profiler ran in the
process) and trace. Programs that the host does not limit have no line.

    python benchmarks/recording.py FOLDER
"""

import json
import sys
from pathlib import Path

import numpy as np

from trace_analyzer.pipeline import analyze
from trace_analyzer.units import NS_PER_MS


def main() -> None:
    """Print the step with the profiler, without it, and the estimate of that, ms; then the medians of their ratios."""
    folder, rows = Path(sys.argv[1]), []
    for row in json.loads((folder / "truth.json").read_text("utf-8")):
        verdict = analyze(folder / row["trace"]).verdict if "trace" in row else None
        unbiased = verdict and verdict.debiased
        if verdict is None or unbiased is None or verdict.regime != "overhead-bound":
            continue
        recorded = sum(verdict.parts_ns.values())
        times = np.array([recorded, recorded - unbiased.removed_ns, recorded - unbiased.least_removed_ns])
        times = times / len(verdict.window.steps) / NS_PER_MS
        rows.append(times / row["mean_ms"])
        print(
            f"{row['trace']:42} {times[0]:7.2f} ms; without the profiler {row['mean_ms']:7.2f} ms,"
            f" estimated {times[1]:7.2f} to {times[2]:7.2f} ms"
        )
    recorded, low, high = np.median(rows, axis=0)
    inside = sum(row[1] <= 1 <= row[2] for row in rows)
    print(
        f"{len(rows)} programs, {inside} inside; median over the measured: {recorded:.2f} recorded, {low:.2f} to {high:.2f} estimated"
    )


if __name__ == "__main__":
    main()
