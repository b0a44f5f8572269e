"""How far the replay can be trusted, measured: the table of docs/definitions.md, section Replay.

Identity of real traces and samples (all activities, and class values from the other half of the steps), round trips,
planted changes of simulated programs, recorded pairs of programs, what the estimates of a report cost, and CPU time and memory at
a million events.

    python benchmarks/replay.py [--corpus FOLDER] [--seeds 5] [--events 1000000]
"""

import argparse
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "sample_traces")]

from replay_pairs import PAIRS, gemm, op, steps  # noqa: E402
from simulator import Simulation  # noqa: E402

from trace_analyzer.analysis import Value  # noqa: E402
from trace_analyzer.errors import TraceAnalyzerError  # noqa: E402
from trace_analyzer.ingest import load  # noqa: E402
from trace_analyzer.pipeline import analyze, report_of  # noqa: E402
from trace_analyzer.registry import ANALYSES  # noqa: E402
from trace_analyzer.replay import estimates  # noqa: E402
from trace_analyzer.replay.changes import Change  # noqa: E402
from trace_analyzer.replay.graph import build  # noqa: E402
from trace_analyzer.replay.prediction import Replay  # noqa: E402
from trace_analyzer.replay.recording import recording  # noqa: E402
from trace_analyzer.replay.refusals import refusal  # noqa: E402
from trace_analyzer.report import Report  # noqa: E402


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=Path(os.environ.get("TRACE_CORPUS", ROOT / "../shared/traces")))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    traces = sorted((ROOT / "sample_traces").glob("synthetic_*.json.gz")) + sorted(options.corpus.glob("*.json.gz"))
    pairs = options.corpus.parent / "pairs"
    identities([*traces, *sorted(pairs.glob("*.json.gz"))])
    planted(options.seeds)
    recorded(pairs)
    in_report(traces)
    cost(options.events)


def in_report(traces: Sequence[Path]) -> None:
    """CPU time of the estimates of a report, of the largest trace, beside that of its analysis."""
    largest = max(traces, key=lambda path: path.stat().st_size)
    spent: list[float] = []

    def timed(replay_sources: estimates.ReplaySources) -> estimates.Estimates:
        began = time.thread_time()
        result = estimates.estimates(replay_sources)
        spent.append(time.thread_time() - began)
        return result

    declared = tuple(Value("estimates", timed) if d.name == "estimates" else d for d in ANALYSES)
    for _ in range(3):
        began = time.process_time()
        report = report_of(load(largest), analyses=declared)
        whole = time.process_time() - began
        events = report.tables["activities"].height + report.tables["host_events"].height
        print(f"{largest.name}, {events:,} events: analysis {whole:.2f} s of CPU, estimates {spent[-1]:.2f} s")


def device_of(report: Report) -> int | None:
    """The code of the judged device; None where none did any work."""
    rows = report.tables["devices"].filter(pl.col("label") == str(report.verdict.device))
    return None if rows.is_empty() else rows.item(0, "device")


def identities(traces: Sequence[Path]) -> None:
    """Replay error with all durations kept, and round trips."""
    print(
        "trace                                    step ms   error  half out  unexplained  inferred  round trip cpu, gpu"
    )
    errors, halves, trips = [], [], []
    for path in traces:
        try:
            report = analyze(path)
        except TraceAnalyzerError as error:
            print(f"{path.name[:40]:40} {error}")
            continue
        device = device_of(report)
        if device is None:
            continue
        replay = Replay.of(report, device)
        refused = refusal(report, replay, device, ())
        if refused:
            print(f"{path.name[:40]:40} refused: {refused[:90]}")
            continue
        held_out = half_held_out(report, device)
        trip = [replay.round_trip_of(target) for target in ("cpu", "gpu")]
        summary = replay.summary
        print(
            f"{path.name[:40]:40} {replay.recorded_step_ns / 1e6:8.2f} {summary.error_ratio:+7.3%} {held_out:+8.3%} "
            f"{summary.unexplained_ratio:11.2%} {summary.inferred_ratio:9.2%} {trip[0]:9.2%} {trip[1]:7.2%}"
        )
        errors.append(abs(summary.error_ratio))
        halves.append(abs(held_out))
        trips.append(max(trip))
    for name, values in (("error", errors), ("half held out", halves), ("round trip", trips)):
        print(
            f"{name:14} {len(values)} traces: mean {np.mean(values):.3%}, median {np.median(values):.3%}, worst {max(values):.2%}"
        )


def half_held_out(report: Report, device: int) -> float:
    """The replay error with class values from every other step, or from the first half of the window."""
    found = recording(report, device)
    step, start = found.activities.step, found.activities.start
    steady = found.steps.steady.sum() > 1
    fitted = (step % 2 == 0) if steady else start <= np.median(start)
    replay = Replay(build(found, fitted), report.tables["activities"], report.tables, None)
    return replay.identity_ratio


def planted(seeds: int) -> None:
    """Predicted against true steps of changed simulated programs."""
    print(
        "\nplanted                              pairs  saving off by (mean, worst)  step off by (worst)  inside the interval"
    )
    for name, pair in PAIRS.items():
        off, step_off, inside = [], [], []
        for seed in range(1, seeds + 1):
            replay = Replay.of(analyze(pair.before(seed), device=0), 0)
            truth = Replay.of(analyze(pair.after(seed), device=0), 0).recorded_step_ns
            predicted = replay.predict(pair.changes)
            saving = abs(replay.recorded_step_ns - truth)
            off.append(abs(predicted.step_ns - truth) / max(saving, 0.001 * truth))
            step_off.append(abs(predicted.step_ns / truth - 1))
            inside.append(predicted.low_ns <= truth <= predicted.high_ns)
        print(
            f"{name:36} {seeds:5} {np.mean(off):12.2%} {max(off):8.2%} {max(step_off):18.2%} {sum(inside):12} of {seeds}"
        )


def recorded(pairs: Path) -> None:
    """Recorded programs before and after a change."""
    before, after = pairs / "v100_resnet50_workers0.json.gz", pairs / "v100_resnet50_workers4.json.gz"
    if not before.exists():
        return
    reports = [analyze(path) for path in (before, after)]
    replays = [Replay.of(report, device_of(report) or 0) for report in reports]
    predicted, truth = replays[0].predict((Change("prefetch", {"workers": 4}),)), replays[1].recorded_step_ns
    print(
        f"\nresnet50, workers 0 -> 4: {replays[0].recorded_step_ns / 1e6:.1f} -> {predicted.step_ns / 1e6:.1f} ms "
        f"({predicted.low_ns / 1e6:.1f} to {predicted.high_ns / 1e6:.1f}), recorded {truth / 1e6:.1f}: {predicted.step_ns / truth - 1:+.1%}"
    )


def cost(events: int) -> None:
    """CPU time and memory of graph, pass, prediction and path; CPU time travels better than wall time."""
    simulation = Simulation(seed=1)
    main_thread, stream = simulation.thread(), simulation.stream()
    # An operator, its launch and its kernel: three events each.
    per_step = events // 24

    def step(_: int) -> None:
        for _ in range(per_step):
            op(main_thread, "aten::mm", gemm(5_000), stream)

    report = analyze(steps(simulation, main_thread, step).json().encode(), device=0)
    # Tables are made when they are asked for: what an analysis has made does not count.
    needed = ("activities", "host_events", "launches", "threads", "steps", "sync_events", "fusions", "tensor_cores")
    frames = [report.tables[name] for name in needed]
    rows = frames[0].height + frames[1].height
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    replay = Replay.of(report, 0)
    built = time.process_time()
    weights = replay.weights(())
    passing = time.process_time()
    replay.run(weights)
    passed = time.process_time()
    replay.predict((Change("graphs"),))
    predicted = time.process_time()
    replay.critical_path()
    walked = time.process_time()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(
        f"\n{rows:,} events: graph {built - began:.2f} s ({1e6 * (built - began) / rows:.2f} us an event), "
        f"pass {passed - passing:.3f} s ({1e9 * (passed - passing) / replay.graph.kind.size:.1f} ns an edge), prediction with interval "
        f"{predicted - passed:.2f} s, path with speed-ups {walked - predicted:.2f} s, memory +{grown / 1024:.0f} MB at most"
    )


if __name__ == "__main__":
    main()
