"""Measure the cost of a further report in a process that has made some, as in notebooks, tests and ranks.

Asserts nothing.

Reports of a small trace in one process, in turn: unchanged, without the cache of `trace_analyzer.tuning.remembered`,
and with prefetching threads. CPU time and wall time of each, and their ratios to the first.

    python benchmarks/again.py [TRACE] [--runs 20]
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType

from trace_analyzer import pipeline

SAMPLE = Path(__file__).resolve().parents[1] / "sample_traces" / "synthetic_overhead_data-loading.json.gz"


def forget() -> None:
    """Clear the caches of `trace_analyzer.tuning.remembered`."""
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_qualname == "remembered.<locals>.of_frame":
            dict(zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True))["memory"].cell_contents.clear()


def threads() -> None:
    """Prefetch tables, however small the trace is."""
    pipeline.SMALL_EVENTS = 0


VARIANTS: dict[str, Callable[[], None]] = {
    "as it is": lambda: None,
    "nothing remembered": forget,
    "tables made ahead": threads,
}


def main() -> None:
    """Print the medians of all variants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", default=str(SAMPLE))
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    small = pipeline.SMALL_EVENTS
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    for _ in range(options.runs + 1):
        for name, prepare in VARIANTS.items():
            pipeline.SMALL_EVENTS = small
            prepare()
            cpu, wall = time.process_time(), time.perf_counter()
            pipeline.analyze(options.trace)
            times[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    medians = {
        name: [statistics.median(column) for column in zip(*rows[1:], strict=True)] for name, rows in times.items()
    }
    base = medians["as it is"]
    for name, (cpu, wall) in medians.items():
        print(f"{name:20} {cpu * 1e3:6.0f} ms CPU {cpu / base[0]:5.2f}   {wall * 1e3:6.0f} ms {wall / base[1]:5.2f}")


if __name__ == "__main__":
    main()
