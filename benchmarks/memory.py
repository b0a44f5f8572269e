"""Measure what reading a large memory snapshot takes: CPU time and peak memory of `analyze memory`, at one size and at four times it (Linux).

The record of SNAPSHOT is repeated, with call stacks of its own for each repetition, until the file has the size. PyTorch
pickles one list of frames for each allocation, so that lists are not shared between repetitions.

    python benchmarks/memory.py SNAPSHOT [--mb 125]
"""

import argparse
import gzip
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_MEASURED = """
import resource, sys
from trace_analyzer.cli import main
main(["memory", sys.argv[1], "--format", "json", "-o", sys.argv[1] + ".json"], standalone_mode=False)
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss: the parent's, too
print(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]), peak)
"""


def repeated(document: dict[str, Any], times: int) -> dict[str, Any]:
    """Return a snapshot whose record begins with ``times`` repetitions of all blocks that are allocated and freed in it."""
    (trace,) = document["device_traces"][:1]
    begun: dict[int, list[int]] = {}
    whole: set[int] = set()
    for number, event in enumerate(trace):
        if event["action"] == "alloc":
            begun[event["addr"]] = [number]
        elif event["action"] in ("free_requested", "free_completed") and event["addr"] in begun:
            begun[event["addr"]].append(number)
            if event["action"] == "free_completed":
                whole |= set(begun.pop(event["addr"]))
    rows = [trace[number] for number in sorted(whole)]
    record = []
    for _ in range(times):
        stacks = {id(row["frames"]): list(row["frames"]) for row in rows}
        record += [{**row, "frames": stacks[id(row["frames"])]} for row in rows]
    return {**document, "device_traces": [record + trace]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("snapshot")
    parser.add_argument("--mb", type=float, default=125)
    asked = parser.parse_args()
    content = Path(asked.snapshot).read_bytes()
    document = pickle.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    once, twice = (len(pickle.dumps(repeated(document, times))) for times in (0, 1))
    with tempfile.TemporaryDirectory() as folder:
        for size in (asked.mb, 4 * asked.mb):
            path = Path(folder, "snapshot.pickle")
            times = max(round((size * 1e6 - once) / (twice - once)), 0)
            made = repeated(document, times)
            with path.open("wb") as file:
                pickle.dump(made, file)
            events = len(made["device_traces"][0])
            del made
            done = subprocess.run([sys.executable, "-c", _MEASURED, path], capture_output=True, text=True, check=True)
            seconds, peak = map(float, done.stdout.split())
            mb = path.stat().st_size / 1e6
            print(
                f"{mb:6.0f} MB, {events:9,} events: {seconds:5.1f} s of CPU time, peak {peak / 976.6:5.0f} MB = {peak / 976.6 / mb:.1f} times the file"
            )


if __name__ == "__main__":
    main()
