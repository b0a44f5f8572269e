"""Measure the cost of CPython's limited API: CPU time of reading and analysing with modules compiled either way.

Both builds alternate, and so does which one is first. Each run is a process with one thread that reads and analyses
four times; the first time, which imports, does not count, and the least of the others does. Other load on the machine
only lengthens times, so the ratio of the least times is the difference of the builds, and the ratio of medians
indicates its reliability. Two checkouts, one of which is built with ``LIMITED = False`` in setup.py:

    python benchmarks/limited_api.py CHECKOUT_WITH CHECKOUT_WITHOUT TRACE [--runs 9]
"""

import argparse
import os
import statistics
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

SCRIPT = """
import sys, time
from trace_analyzer.pipeline import report_of
from trace_analyzer.ingest import load
times = []
for _ in range(4):
    start = time.process_time()
    trace = load(sys.argv[1])
    middle = time.process_time()
    report_of(trace).summary()
    times.append((middle - start, time.process_time() - middle))
print(*map(min, zip(*times[1:])))
"""


def seconds(checkout: Path, trace: Path) -> tuple[float, float]:
    """Return CPU seconds of reading and of analysing, the least of three runs."""
    environment = os.environ | {
        "PYTHONPATH": str(checkout),
        "POLARS_MAX_THREADS": "1",
        "TRACE_ANALYZER_PLUGINS": "none",
    }
    command = [sys.executable, "-c", SCRIPT, str(trace)]
    done = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=True)
    reading, analysing = map(float, done.stdout.split())
    return reading, analysing


def main() -> None:
    """Print medians of both builds and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, nargs=2)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    for checkout in options.checkouts:
        built = sorted((checkout / "trace_analyzer" / "frames").glob(f"*{EXTENSION_SUFFIXES[0]}"))
        limited = sorted((checkout / "trace_analyzer" / "frames").glob("*.abi3.*"))
        print(f"{checkout}: {len(limited)} modules of the limited API, {len(built)} of one version of Python")
    turns = []
    for turn in range(options.runs):
        order = options.checkouts[:: 1 if turn % 2 else -1]
        done = {checkout: seconds(checkout.resolve(), options.trace.resolve()) for checkout in order}
        turns.append([done[checkout] for checkout in options.checkouts])
    print("| what | with, least CPU s | without | ratio of least | ratio of medians |\n|---|---|---|---|---|")
    for number, what in enumerate(("reading", "analysing")):
        builds = [[turn[build][number] for turn in turns] for build in (0, 1)]
        (own, other), medians = map(min, builds), [statistics.median(build) for build in builds]
        print(f"| {what} | {own:.3f} | {other:.3f} | {own / other:.3f} | {medians[0] / medians[1]:.3f} |")


if __name__ == "__main__":
    main()
