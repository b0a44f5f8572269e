"""Measure the accuracy of the replay: the table of docs/definitions.md, section Replay.

Identity of real traces and samples (all activities, and typical values from the other half of the steps), round trips,
planted changes of simulated programs, the cost of a report's estimates, and CPU time and
memory at a million events.

    python benchmarks/replay.py [--corpus FOLDER] [--seeds 5] [--events 1000000]
"""

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "sample_traces")]

from replay_pairs import PAIRS, VARIED, Pair, gemm, op, steps  # noqa: E402
from simulator import Simulation  # noqa: E402

from trace_analyzer.errors import TraceAnalyzerError  # noqa: E402
from trace_analyzer.ingest import load  # noqa: E402
from trace_analyzer.pipeline import analyze, report_of  # noqa: E402
from trace_analyzer.registry import ANALYSES  # noqa: E402
from trace_analyzer.replay.changes import Change  # noqa: E402
from trace_analyzer.replay.graph import EXECUTION, build  # noqa: E402
from trace_analyzer.replay.prediction import Replay  # noqa: E402
from trace_analyzer.replay.recording import recording  # noqa: E402
from trace_analyzer.replay.refusals import refusal  # noqa: E402
from trace_analyzer.replay.weights import NotApplicable  # noqa: E402
from trace_analyzer.replay.whatif import path_parts  # noqa: E402
from trace_analyzer.report import Report  # noqa: E402


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=Path(os.environ.get("TRACE_CORPUS", ROOT / "../shared/traces")))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    traces = sorted((ROOT / "sample_traces").glob("synthetic_*.json.gz")) + sorted(options.corpus.glob("*.json.gz"))
    identities([*traces, *sorted((options.corpus.parent / "pairs").glob("*.json.gz"))])
    planted(PAIRS, options.seeds, "planted")
    planted(VARIED, 2 * options.seeds, "planted, best cases reached in part")
    in_report(traces)
    cost(options.events)


def in_report(traces: Sequence[Path]) -> None:
    """Measure CPU time of the estimates of a report on the largest trace, relative to its analysis."""
    largest = max(traces, key=lambda path: path.stat().st_size)
    spent: list[float] = []
    values = ("device_replay", "replayed_path", "replayed_parts", "standard_estimates")

    def timed(make: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(make)
        def made(*arguments: Any, **named: Any) -> Any:
            began = time.thread_time()
            result = make(*arguments, **named)
            spent.append(time.thread_time() - began)
            return result

        return made

    declared = tuple(replace(d, make=timed(d.make)) if d.name in values else d for d in ANALYSES)
    for _ in range(3):
        began = time.process_time()
        report = report_of(load(largest), analyses=declared)
        whole = time.process_time() - began
        events = report.tables["activities"].height + report.tables["host_events"].height
        print(
            f"{largest.name}, {events:,} events: analysis {whole:.2f} s of CPU, estimates {sum(spent[-len(values) :]):.2f} s"
        )


def device_of(report: Report) -> int | None:
    """Return the code of the judged device; None where none did any work."""
    rows = report.tables["devices"].filter(pl.col("label") == str(report.verdict.device))
    return None if rows.is_empty() else rows.item(0, "device")


def identities(traces: Sequence[Path]) -> None:
    """Print the replay error with all durations kept, and of round trips."""
    print(
        "trace                                    step ms   error  half out  all means  unexplained  inferred  round trip cpu, gpu"
    )
    errors, halves, means, trips = [], [], [], []
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
        trip = [round_trip(replay, target) for target in ("cpu", "gpu")]
        summary, mean = replay.summary, class_means(replay)
        print(
            f"{path.name[:40]:40} {replay.recorded_step_ns / 1e6:8.2f} {summary.error_ratio:+7.3%} {held_out:+8.3%} "
            f"{'' if mean is None else f'{mean:+.1%}':>9} {summary.unexplained_ratio:11.2%} {summary.inferred_ratio:9.2%}"
            + "".join(" refused" if ratio is None else f" {ratio:7.2%}" for ratio in trip)
        )
        errors.append(abs(summary.error_ratio))
        halves.append(abs(held_out))
        means += [] if mean is None else [abs(mean)]
        trips += [ratio for ratio in trip if ratio is not None]
    by_name = (("error", errors), ("half held out", halves), ("class means", means), ("round trip", trips))
    for name, values in by_name:
        print(
            f"{name:14} {len(values)} traces: mean {np.mean(values):.3%}, median {np.median(values):.3%}, worst {max(values):.2%}"
        )


def round_trip(replay: Replay, target: str) -> float | None:
    """Return the error of a round trip; None where its change is not predicted, as its path is unexplained."""
    try:
        replay.predict((Change("speedup", {"target": target, "factor": 2.0}),))
    except NotApplicable:
        return None
    return replay.round_trip_of(target)


def half_held_out(report: Report, device: int) -> float:
    """Return the replay error with typical values from every other step, or from the first half of the window."""
    recorded = recording(report, device)
    step, start = recorded.activities.step, recorded.activities.start
    steady = recorded.steps.steady.sum() > 1
    fitted = (step % 2 == 0) if steady else start <= np.median(start)
    replay = Replay(build(recorded, fitted), report)
    return replay.identity_ratio


def class_means(replay: Replay) -> float | None:
    """Return the replay error with durations also replaced by means of equal kernels in the other steps."""
    graph, activities = replay.graph, replay.graph.recorded.activities
    if graph.recorded.steps.steady.sum() < 2:
        return None
    keys = (
        replay.known.table.select(pl.struct("name", "operator", "blocks").rank("dense").alias("key"))
        .to_series()
        .to_numpy()
    )
    half = activities.step % 2
    taken = pl.DataFrame({"key": keys, "half": half, "ns": activities.end - activities.start})
    means = taken.group_by("key", half=1 - pl.col("half")).agg(mean=pl.col("ns").mean())
    lasts = (
        taken.join(means, on=["key", "half"], how="left", maintain_order="left")
        .select(pl.coalesce("mean", "ns"))
        .to_series()
    )
    weights = replay.weights(())
    runs = np.flatnonzero(graph.kind == EXECUTION)
    weights.device[runs] = lasts.to_numpy()[graph.ref[runs]]
    return replay.run(weights).step_ns / replay.recorded_step_ns - 1


def planted(pairs: Mapping[str, Pair], seeds: int, title: str) -> None:
    """Compare predicted with true steps of changed simulated programs."""
    print(f"\n{title:36} pairs  saving off by (mean, worst)  step off by (worst)  inside the interval")
    held, count = 0, 0
    for name, pair in pairs.items():
        off, step_off, inside = [], [], []
        for seed in range(1, seeds + 1):
            replay = Replay.of(analyze(pair.before(seed), device=0), 0)
            truth = Replay.of(analyze(pair.after(seed), device=0), 0).recorded_step_ns
            predicted = replay.predict(pair.changes)
            saving = abs(replay.recorded_step_ns - truth)
            off.append(abs(predicted.step_ns - truth) / max(saving, 0.001 * truth))
            step_off.append(abs(predicted.step_ns / truth - 1))
            inside.append(predicted.low_ns <= truth <= predicted.high_ns)
        held, count = held + sum(inside), count + seeds
        print(
            f"{name:36} {seeds:5} {np.mean(off):12.2%} {max(off):8.2%} {max(step_off):18.2%} {sum(inside):12} of {seeds}"
        )
    print(f"inside the interval: {held} of {count}")


def cost(events: int) -> None:
    """Measure CPU time and memory of graph, pass, prediction and path.

    CPU time varies less between machines than wall time.
    """
    simulation = Simulation(seed=1)
    main_thread, stream = simulation.thread(), simulation.stream()
    # An operator, its launch and its kernel are three events.
    per_step = events // 24

    def step(_: int) -> None:
        for _ in range(per_step):
            op(main_thread, "aten::mm", gemm(5_000), stream)

    report = analyze(steps(simulation, main_thread, step).json().encode(), device=0)
    # Tables are made on demand: values that an analysis has already made do not count.
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
    path_parts(replay)
    walked = time.process_time()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(
        f"\n{rows:,} events: graph {built - began:.2f} s ({1e6 * (built - began) / rows:.2f} us an event), "
        f"pass {passed - passing:.3f} s ({1e9 * (passed - passing) / replay.graph.kind.size:.1f} ns an edge), prediction with interval "
        f"{predicted - passed:.2f} s, path with speed-ups {walked - predicted:.2f} s, memory +{grown / 1024:.0f} MB at most"
    )


if __name__ == "__main__":
    main()
