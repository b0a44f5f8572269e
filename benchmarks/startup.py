"""Measure the response time for a small trace, compared with the bare imports that it needs. Asserts nothing.

Whole processes alternate; the ratio of their medians is robust against drift of the machine's speed. The first round
does not count, and writes the bytecode that an installed package has. Then follow the most expensive imports, by
``python -X importtime``.

    python benchmarks/startup.py [TRACE] [--runs 5]
    python benchmarks/startup.py [TRACE] --tricks    # one thread of OpenBLAS, no models of Bokeh, queries in a query
"""

import argparse
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ingest import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "sample_traces" / "synthetic_overhead_data-loading.json.gz"
ANALYZE = ["-m", "trace_analyzer"]
BASES = {
    "analyze --help": "import polars",
    "analyze --no-report": "import polars",
    "analyze, with report": "import holoviews with bokeh",
}
"""Baseline of each command."""
_ANALYSES = "import gc; gc.set_threshold(20_000); {}; import trace_analyzer.pipeline, numpy"
_ONE_THREAD = "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'"
_WHOLE = "import sys; from trace_analyzer import analyze, tuning; tuning.limit_threads(sys.argv[1]); tuning.collect_garbage_rarely(); {}; analyze(sys.argv[1])"
_TEMPLATE = "from trace_analyzer.render.html.view import environment; environment().get_template('page.html.j2')"


def tricks(trace: Path) -> dict[str, list[str]]:
    """Map names to arguments of Python: with and without tricks."""
    return {
        "import of the analyses": ["-c", _ANALYSES.format(_ONE_THREAD)],
        "with all threads of OpenBLAS": ["-c", _ANALYSES.format("pass")],
        "import of the page, its template": ["-c", _TEMPLATE],
        "with Bokeh's models": ["-c", f"{_TEMPLATE}; import bokeh.plotting"],
        "analysis": ["-c", _WHOLE.format("pass"), str(trace)],
        "analysis, looking for garbage as by default": [
            "-c",
            _WHOLE.format("import gc; gc.set_threshold(700)"),
            str(trace),
        ],
        "analysis outside of a query": ["-c", _WHOLE.format("tuning.within_query = lambda make: make()"), str(trace)],
    }


_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| (\s*)(\S+)")


def commands(trace: Path) -> dict[str, list[str]]:
    """Map names to arguments of Python."""
    return {
        "import polars": ["-c", "import polars"],
        "analyze --help": [*ANALYZE, "--help"],
        "analyze --no-report": [*ANALYZE, str(trace), "--no-report"],
        "import holoviews with bokeh": ["-c", "import holoviews; holoviews.extension('bokeh')"],
        "analyze, with report": [*ANALYZE, str(trace)],
    }


def run(arguments: list[str], folder: str) -> tuple[float, float, float] | None:
    """Return wall, CPU and user CPU seconds of one process; None where it fails, for example without holoviews."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return None if done.returncode else (wall, user + system, user)


def import_times(arguments: list[str], folder: str) -> list[tuple[str, int, int]]:
    """Return (module, own us, us with all its imports) for every import of a command."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [(name, int(own), int(whole)) for own, whole, _, name in _IMPORT.findall(done.stderr)]


def show_tricks(trace: Path, runs: int) -> None:
    """Print the time of imports and analysis without each trick."""
    times: dict[str, list[float]] = {name: [] for name in tricks(trace)}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(runs + 1):
            for name, arguments in tricks(trace).items():
                result = run(arguments, folder)
                if turn and result:
                    times[name].append(result[1])
    print("| process | CPU s, least | CPU s, median |\n|---|---|---|")
    for name, values in times.items():
        print(f"| {name} | {min(values):.3f} | {statistics.median(values):.3f} |")


def main() -> None:
    """Run the commands in turn and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, nargs="?", default=SAMPLE)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tricks", action="store_true")
    options = parser.parse_args()
    trace = options.trace.resolve()
    if options.tricks:
        show_tricks(trace, options.runs)
        return
    with tempfile.TemporaryDirectory() as folder:
        results: dict[str, list[tuple[float, float, float] | None]] = {name: [] for name in commands(trace)}
        for turn in range(options.runs + 1):
            for name, arguments in commands(trace).items():
                result = run(arguments, folder)
                if turn:
                    results[name].append(result)
        imports = import_times(commands(trace)["analyze, with report"], folder)
    sound = {name: [r for r in runs if r] for name, runs in results.items()}
    medians = {name: [statistics.median(c) for c in zip(*runs, strict=True)] for name, runs in sound.items() if runs}
    print(f"{trace.name}, {options.runs} runs, Python {sys.version.split()[0]}\n")
    print("| process | wall s | CPU s | user s | against | wall | CPU | user |\n|---|---|---|---|---|---|---|---|")
    for name, row in medians.items():
        base = BASES.get(name, "–")
        ratios = [own / other for own, other in zip(row, medians[base], strict=True)] if base in medians else []
        shown = [f"{r:.1f} x" for r in ratios] or ["–"] * len(row)
        print(f"| {' | '.join([name, *(f'{s:.2f}' for s in row), base, *shown])} |")
    print("\n| import of `analyze`, with report | own ms | with its own imports ms |\n|---|---|---|")
    for name, own, whole in sorted(imports, key=lambda row: -row[2])[:25]:
        print(f"| {name} | {own / 1000:.1f} | {whole / 1000:.1f} |")


if __name__ == "__main__":
    main()
