"""Measure the cost of features that an older checkout lacks, and of the rest of an analysis. Asserts nothing.

One process per run, with one thread of the graph: CPU time by stage and by feature, and the peak memory while a
feature's values are made, next to the peak of all other values (Linux). With ``--against``, the same stages in another
checkout's environment, in turn, and the rest as a multiple of them. Values of a feature may be needed by others as
well; of advice, only the rules that do not belong to the verdict's regimes count as a feature.

    python benchmarks/features.py TRACE [--against PYTHON] [--runs 3]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

FEATURES = {
    "estimates of a replay, critical path": (
        "device_replay",
        "replayed_path",
        "replayed_parts",
        "standard_estimates",
        "fix_estimates",
        "estimates",
        "what_would_help",
        "critical_path",
        "critical_path_parts",
    ),
    "advice for other regimes than the verdict's": (),
    "operators of graph replays": ("replays", "graph_captures", "executions"),
    "clocks of host and device, late starts": ("clock_bounds", "late_starts"),
    "serving": ("serving", "serving_marks", "serving_verdicts"),
    "work before the trace": ("earlier_work", "earlier_work_notes"),
    "when the recording ran": ("recorded_span",),
}
"""Values of the graph without a counterpart in `a70ead5`; for advice, single rules."""
OTHER_REGIMES = "advice for other regimes than the verdict's"
STAGES = ("imports", "catalogues", "load", "analysis", "text")
_PROGRAM = """
import json, os, sys, time
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if os.path.getsize(sys.argv[1]) <= 1 << 20:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
features, other = json.loads(sys.argv[2]), sys.argv[3]
try:
    from trace_analyzer.tuning import limit_arenas
    limit_arenas()
except ImportError:
    pass
times = [time.process_time()]
from trace_analyzer import pipeline
from trace_analyzer.ingest import load
from trace_analyzer.render.terminal import summary
times.append(time.process_time())
try:
    from trace_analyzer.cli.analyze import _prepare as prepare
except ImportError:  # a checkout in which the command does not read the catalogues beside the trace
    prepare = lambda: None
prepare()
times.append(time.process_time())
trace = load(sys.argv[1])
times.append(time.process_time())

def highest():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))

def lower():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")

is_linux = sys.platform == "linux"
spent, peaks, feature_of = {}, {}, {value: name for name, values in features.items() for value in values}
if features:
    from msgspec.structs import replace
    from functools import wraps
    from trace_analyzer.advice import rules, window_context
    from trace_analyzer import advice

    def measured(key, make):
        @wraps(make)
        def made(*args, **values):
            if is_linux:
                lower()
            start = time.process_time()
            result = make(*args, **values)
            spent[key] = spent.get(key, 0) + time.process_time() - start
            if is_linux:
                peaks[key] = max(peaks.get(key, 0), highest())
            return result
        return made

    class Graph(pipeline.TableGraph):
        def __init__(self, nodes, given, kept):
            super().__init__((replace(n, make=measured(feature_of.get(n.name, ""), n.make)) for n in nodes), given, kept)

    def timed(fix_id, rule):
        def ruled(context):
            start = time.process_time()
            result = rule(context)
            if not context.regimes.intersection(advice.fixes()[fix_id].regimes):
                spent[other] = spent.get(other, 0) + time.process_time() - start
            return result
        return ruled

    of_fixes = rules.rules_of_fixes()
    advice.rules_of_fixes = lambda: {fix_id: timed(fix_id, rule) for fix_id, rule in of_fixes.items()}
    pipeline.TableGraph, pipeline.PREFETCHING_THREADS = Graph, 0
elif hasattr(pipeline, "_ASIDE"):
    pipeline._ASIDE = 0
else:
    pipeline.PREFETCHING_THREADS = 0
report = pipeline.report_of(trace)
times.append(time.process_time())
summary(report, 100, False)
times.append(time.process_time())
import resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if is_linux else 1 << 20)
print(json.dumps([times, spent, peaks, max(peak, *peaks.values(), 0)]))
"""


def measure(python: str, trace: Path, features: bool) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Return CPU ms by stage, CPU ms by feature, and peak MB by feature; "" is the rest, "peak" the process's peak."""
    asked = [json.dumps(FEATURES if features else {}), OTHER_REGIMES]
    done = subprocess.run(
        [python, "-P", "-c", _PROGRAM, os.fspath(trace.resolve()), *asked],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    times, spent, peaks, peak = json.loads(done.stdout.splitlines()[-1])
    stages = {name: 1e3 * (b - a) for name, a, b in zip(STAGES, times, times[1:], strict=False)}
    return stages, {name: 1e3 * seconds for name, seconds in spent.items()}, {**peaks, "peak": peak}


def main() -> None:
    """Measure in turn and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--against", metavar="PYTHON", help="Python of the other checkout's environment")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    here, there = [], []
    for _ in range(options.runs):
        here.append(measure(sys.executable, options.trace, features=True))
        if options.against:
            there.append(measure(options.against, options.trace, features=False))
    stages = {name: statistics.median(run[0][name] for run in here) for name in STAGES}
    features = {name: statistics.median(run[1].get(name, 0.0) for run in here) for name in FEATURES}
    peaks = {name: statistics.median(run[2].get(name, 0.0) for run in here) for name in (*FEATURES, "", "peak")}
    print(
        f"{options.trace.name}: medians of {options.runs} runs\n\n| feature | CPU ms | peak MB |\n| --- | ---: | ---: |"
    )
    for name, ms in features.items():
        print(f"| {name} | {ms:.0f} | {peaks[name] or '':{'.0f' if peaks[name] else ''}} |")
    print(f"| everything else | {stages['analysis'] - sum(features.values()):.0f} | {peaks['']:.0f} |\n")
    rest: dict[str, Any] = {**stages, "analysis without features": stages["analysis"] - sum(features.values())}
    rest["all without features"] = sum(stages.values()) - sum(features.values())
    rest["all"] = sum(stages.values())
    others: dict[str, float] = {}
    if there:
        others = {name: statistics.median(run[0][name] for run in there) for name in STAGES}
        others["analysis without features"] = others["analysis"]
        others["all without features"] = others["all"] = sum(others[name] for name in STAGES)
    print("| stage | CPU ms | other checkout | ratio |\n| --- | ---: | ---: | ---: |")
    for name, ms in rest.items():
        other = others.get(name)
        print(
            f"| {name} | {ms:.0f} | {'' if other is None else f'{other:.0f}'} | {f'{ms / other:.2f}' if other else ''} |"
        )
    if there:
        other = statistics.median(run[2]["peak"] for run in there)
        alone = max(peaks[""], 0.0)
        print(
            f"\nPeak memory, MB: {peaks['peak']:.0f}, of values that are no feature {alone:.0f}; other checkout {other:.0f}"
        )


if __name__ == "__main__":
    main()
