"""Measure whether cost grows linearly with the trace: time and memory per event at several sizes.

A given trace is repeated to several sizes (by `benchmarks/ingest.py`); costs are per event relative to a trace of one
event and, in brackets, per further event relative to the previous size, without the fixed cost of any real trace. It
uses CPU time of whole processes, which varies less between machines than wall time, and the least of several runs.
`benchmarks/growth.py` has streams that no real program makes.

    python benchmarks/linearity.py TRACE [--mb 50 200 1000] [--runs 3]
"""

import argparse
import sys
import tempfile
from pathlib import Path

from growth import one_stream, write
from ingest import COMMANDS, run, written_apart


def least(name: str, path: Path, runs: int) -> tuple[float, float]:
    """Return CPU seconds and peak memory (bytes) of a command, the least of several runs."""
    _, cpu, peak = zip(*(run(sys.executable, COMMANDS[name], path) for _ in range(runs)), strict=True)
    return min(cpu), min(peak)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--mb", type=float, nargs="+", default=[50, 200, 1000])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        write(one_stream(1), path)
        base = {name: least(name, path, options.runs) for name in ("load", "analyze")}
        print("| MB | events | load us / event | analyze us / event | load bytes / event | analyze bytes / event |")
        print("|---|---|---|---|---|---|")
        previous, smaller = base, 0
        for megabytes in options.mb:
            count = written_apart(options.trace, path, megabytes, "native")
            cost = {name: least(name, path, options.runs) for name in base}
            per_event = [
                f"{scale * (cost[name][of] - base[name][of]) / count:.1f}"
                f" ({scale * (cost[name][of] - previous[name][of]) / max(count - smaller, 1):.1f})"
                for of, scale in enumerate((1e6, 1))
                for name in base
            ]
            print(f"| {megabytes:g} | {count:,} | {' | '.join(per_event)} |", flush=True)
            previous, smaller = cost, count


if __name__ == "__main__":
    main()
