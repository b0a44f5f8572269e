"""Measure time and memory of loading traces, compared with ``json.load`` and HolisticTraceAnalysis on the same file.

Every figure is for a whole process, including ``analyze TRACE --no-report``. The commands for one file alternate, and
the ratio is that of their medians, so it is robust against drift of the machine's speed. The file is a given trace,
repeated with shifted times and ids up to the requested size.

    python benchmarks/ingest.py TRACE [--mb 200] [--layout native|compact|indent2|indent4|all] [--gz] [--runs 3] [--hta PYTHON]
    python benchmarks/ingest.py TRACE --against PYTHON    # beside another checkout, by turns; PYTHON is that of its environment
    python benchmarks/ingest.py TRACE --tricks            # what the tricks of trace_analyzer/tuning.py win
"""

import argparse
import gzip
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

COMMANDS = {
    "json.load": [
        "-c",
        "import json, gzip, sys; json.load((gzip.open if sys.argv[1].endswith('gz') else open)(sys.argv[1], 'rb'))",
    ],
    "load": ["-c", "import sys; from trace_analyzer.ingest import load; load(sys.argv[1])"],
    "analyze": ["-m", "trace_analyzer", "--no-report"],
}
"""Arguments of Python before the path of the trace."""
LOAD = "from trace_analyzer.ingest import fast, strict, load; import contextlib, sys; {}; load(sys.argv[1])"
ARENAS = "from trace_analyzer import tuning; tuning.limit_arenas(); "
ANALYZE = "from trace_analyzer import analyze; from trace_analyzer.ingest import build; from trace_analyzer.replay import estimates; import sys; {}; analyze(sys.argv[1])"
TRICKS = {
    "one reading thread": ["-c", LOAD.format("fast.READING_THREADS = 1")],
    "strict": ["-c", LOAD.format("fast._scanner = None")],
    "strict, collecting": [
        "-c",
        LOAD.format("fast._scanner = None; strict.without_garbage_collection = contextlib.nullcontext"),
    ],
    "analysis": ["-c", ARENAS + ANALYZE.format("")],
    "analysis, arenas and freed pages as by default": ["-c", ANALYZE.format("")],
    "analysis, freed memory kept": [
        "-c",
        ARENAS + ANALYZE.format("build.return_freed_memory = estimates.return_freed_memory = lambda: None"),
    ],
    "analysis, no replay": ["-c", ARENAS + ANALYZE.format("estimates.MAX_EVENTS = 0")],
}
"""Loading or analysing without a trick of `trace_analyzer.tuning`; ``strict`` is the reader that pauses garbage
collection.

Without the replay, an analysis lacks its estimates: the difference is their cost.
"""
HTA = [
    "-c",
    "import sys; from hta.common.trace import Trace; Trace(trace_files={0: sys.argv[1]}).parse_traces(use_multiprocessing=False)",
]


def _native(event: dict[str, Any]) -> str:
    """Return an event in the format of Kineto's own logger: a few fields per line."""
    lines: list[str] = []
    for key, value in event.items():
        text = f'"{key}": ' + (
            "{\n      " + ", ".join(f'"{k}": {json.dumps(v)}' for k, v in value.items()) + "\n    }"
            if key == "args" and isinstance(value, dict)
            else json.dumps(value)
        )
        if key in ("ph", "ts", "args") or not lines:
            lines.append(text)
        else:
            lines[-1] += ", " + text
    return "  {\n    " + ",\n    ".join(lines) + "\n  }"


def _dumped(**options: Any) -> Callable[[dict[str, Any]], str]:
    return lambda event: json.dumps(event, **options)


LAYOUTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "native": _native,
    "compact": _dumped(separators=(",", ":")),
    "indent2": _dumped(indent=2),
    "indent4": _dumped(indent=4),
}
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
"""As for most users, Python caches compiled modules."""
_SHIFTED = ("correlation", "External id", "Python id", "Python parent id", "Ev Idx")


def tiled(document: dict[str, Any], copies: int) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace repeatedly: each copy later, with its own ids."""
    events = [event for event in document["traceEvents"] if isinstance(event, dict)]
    times = [(event["ts"], event["ts"] + event.get("dur", 0)) for event in events if event.get("ph") == "X"]
    # A longer pause would be most of a short trace, and its verdict would have no advice to measure.
    span = int(max(end for _, end in times) - min(start for start, _ in times)) + 1_000
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
    written_as = LAYOUTS[layout]
    separator = "," if layout == "compact" else ",\n"
    size = sum(len(written_as(event)) + len(separator) for event in tiled(document, 1))
    copies = max(1, round(megabytes * 1e6 / size))
    written = 0
    with gzip.open(target, "wt", compresslevel=1) if target.suffix == ".gz" else open(target, "w") as file:
        file.write(json.dumps(header)[:-1] + ', "traceEvents": [\n')
        for event in tiled(document, copies):
            file.write((separator if written else "") + written_as(event))
            written += 1
        file.write("\n]}")
    return written


def written_apart(source: Path, target: Path, megabytes: float, layout: str) -> int:
    """Return `write_tiled`, run in a separate process.

    Memory that this process used would count for its child processes.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(write_tiled, (source, target, megabytes, layout))


def run(python: str, arguments: list[str], path: Path) -> tuple[float, float, float]:
    """Return wall seconds, CPU seconds and peak memory (bytes) of one process."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [python, *arguments, str(path)], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"failed: {python} {' '.join(arguments)} {path}")
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def main() -> None:
    """Make the files, run the commands in turn, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--layout", choices=[*LAYOUTS, "all"], default="native")
    parser.add_argument("--gz", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--hta", help="python that has HolisticTraceAnalysis installed")
    parser.add_argument("--against", metavar="PYTHON", help="python of another checkout, as installed there")
    parser.add_argument("--only", nargs="*", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--tricks", action="store_true")
    options = parser.parse_args()
    measured = {"load": COMMANDS["load"], **TRICKS} if options.tricks else {n: COMMANDS[n] for n in options.only}
    print("| layout | MB | events | command | wall s | CPU s | json.load / wall | peak memory / size |")
    print("|---|---|---|---|---|---|---|---|")
    for layout in LAYOUTS if options.layout == "all" else [options.layout]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json" + (".gz" if options.gz else ""))
            events = written_apart(options.trace, path, options.mb, layout)
            size = path.stat().st_size if not options.gz else _inflated_size(path)
            commands = {name: (sys.executable, arguments) for name, arguments in measured.items()}
            if options.against:
                # The current folder may contain a checkout.
                commands |= {
                    f"{name}, other checkout": (options.against, ["-P", *arguments])
                    for name, arguments in measured.items()
                    if name != "json.load"
                }
            if options.hta:
                commands["HolisticTraceAnalysis"] = (options.hta, HTA)
            results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
            for _ in range(options.runs):
                for name, (python, arguments) in commands.items():
                    results[name].append(run(python, arguments, path))
        base = (
            statistics.median(wall for wall, _, _ in results["json.load"]) if "json.load" in results else float("nan")
        )
        shown = f"| {layout}{', gz' if options.gz else ''} | {size / 1e6:.0f} | {events:,} |"
        for name, runs in results.items():
            wall, cpu, peak = (statistics.median(column) for column in zip(*runs, strict=True))
            print(f"{shown} {name} | {wall:.2f} | {cpu:.2f} | {base / wall:.2f} | {peak / size:.2f} |", flush=True)


def _inflated_size(path: Path) -> int:
    with gzip.open(path) as file:
        return sum(len(chunk) for chunk in iter(lambda: file.read(1 << 22), b""))


if __name__ == "__main__":
    main()
