"""How fast traces load, against bare ``json.load`` of the same file, in time and memory.

Every figure is of a whole process; the commands of one file take turns, and the ratio is of their
medians, so it holds when the machine's speed drifts. The file is a given trace repeated with shifted
times and ids until it has the wanted size.

    python benchmarks/ingest.py TRACE [--mb 200] [--layout native|compact|indent2|indent4] [--gz] [--runs 3]
"""

import argparse
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COMMANDS = {
    "json.load": "import json, gzip, sys; json.load((gzip.open if sys.argv[1].endswith('gz') else open)(sys.argv[1], 'rb'))",
    "load": "import sys; from trace_analyzer.ingest import load; load(sys.argv[1])",
    "analyze": "import sys; from trace_analyzer.pipeline import analyze; analyze(sys.argv[1])",
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "native": {"separators": (", ", ": ")},
    "compact": {"separators": (",", ":")},
    "indent2": {"indent": 2},
    "indent4": {"indent": 4},
}
_SHIFTED = ("correlation", "External id", "Python id", "Python parent id", "Ev Idx")


def tiled(document: dict[str, Any], copies: int) -> Iterator[dict[str, Any]]:
    """The events of a trace, over and over: each copy later, with ids of its own."""
    events = [event for event in document["traceEvents"] if isinstance(event, dict)]
    times = [event["ts"] for event in events if event.get("ph") == "X"]
    span = int(max(times) - min(times)) + 1_000_000
    for copy in range(copies):
        for event in events:
            moved = dict(event)
            if "ts" in event:
                moved["ts"] = round(event["ts"] + copy * span, 3)
            if isinstance(args := event.get("args"), dict):
                moved["args"] = args | {
                    key: args[key] + copy * 10_000_000
                    for key in _SHIFTED
                    if isinstance(args.get(key), int) and args[key]
                }
            if isinstance(event.get("id"), int):
                moved["id"] = event["id"] + copy * 10_000_000
            yield moved


def write_tiled(source: Path, target: Path, megabytes: float, layout: str) -> int:
    """Write the repeated trace; return its number of events."""
    document = json.loads((gzip.open if source.suffix == ".gz" else open)(source, "rb").read())
    header = {key: value for key, value in document.items() if key != "traceEvents"}
    options = LAYOUTS[layout]
    separator = ",\n  " if layout == "native" else "," if layout == "compact" else ",\n"
    size = len(json.dumps(document, **options))
    copies = max(1, round(megabytes * 1e6 / size))
    written = 0
    with gzip.open(target, "wt", compresslevel=4) if target.suffix == ".gz" else open(target, "w") as file:
        file.write(json.dumps(header)[:-1] + ', "traceEvents": [\n')
        for event in tiled(document, copies):
            file.write((separator if written else "") + json.dumps(event, **options))
            written += 1
        file.write("\n]}")
    return written


def run(code: str, path: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak memory (bytes) of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    probe = f"{code}\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    shown = subprocess.run([sys.executable, "-c", probe, str(path)], check=True, capture_output=True, text=True).stdout
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, float(shown.split()[-1])


def main() -> None:
    """Make the file, run the commands in turn, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--layout", choices=LAYOUTS, default="native")
    parser.add_argument("--gz", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json" + (".gz" if options.gz else ""))
        events = write_tiled(options.trace, path, options.mb, options.layout)
        size = path.stat().st_size if not options.gz else _inflated_size(path)
        print(
            f"{size / 1e6:.0f} MB, {events:,} events, layout {options.layout}, {os.cpu_count()} cores, {options.runs} runs"
        )
        results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in COMMANDS}
        for _ in range(options.runs):
            for name, code in COMMANDS.items():
                results[name].append(run(code, path))
    base = statistics.median(wall for wall, _, _ in results["json.load"])
    print("| command | wall s | CPU s | json.load / wall | peak memory / size |\n|---|---|---|---|---|")
    for name, runs in results.items():
        wall, cpu, peak = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"| {name} | {wall:.2f} | {cpu:.2f} | {base / wall:.2f} | {peak / size:.2f} |")


def _inflated_size(path: Path) -> int:
    with gzip.open(path) as file:
        return sum(len(chunk) for chunk in iter(lambda: file.read(1 << 22), b""))


if __name__ == "__main__":
    main()
