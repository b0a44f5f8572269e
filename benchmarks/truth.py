"""Compare predictions of what-ifs with recordings of the changed program: the tables of docs/whatif.md, "Public truth".

Asserts nothing.

    python benchmarks/truth.py [--pairs FOLDER]
"""

import argparse
import gzip
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from pathlib import Path

import numpy as np
import polars as pl

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "sample_traces")]

from replay import device_of  # noqa: E402

from trace_analyzer.pipeline import analyze  # noqa: E402
from trace_analyzer.replay.changes import HIGH, LOW, Change  # noqa: E402
from trace_analyzer.replay.graph import EXECUTION  # noqa: E402
from trace_analyzer.replay.outcomes import BEST, BEST_CASES, with_options  # noqa: E402
from trace_analyzer.replay.prediction import Replay  # noqa: E402
from trace_analyzer.replay.refusals import refusal  # noqa: E402
from trace_analyzer.replay.weights import NotApplicable, NothingToChange  # noqa: E402
from trace_analyzer.report import Report  # noqa: E402
from trace_analyzer.report.verdicts import is_saving_known  # noqa: E402
from trace_analyzer.units import duration, percent  # noqa: E402

COLD_RATIO = 0.9
"""A first pass is cold if later ones take less than this share of it."""


@dataclass(frozen=True)
class Truth:
    """Hold one comparison, ns: ``predicted`` is (time, low, high), None where it is refused."""

    name: str
    now: float
    predicted: tuple[float, float, float] | None
    came: float

    @property
    def error(self) -> float:
        """Return the error of the predicted difference to now, as a share of the one that came."""
        assert self.predicted
        return abs(self.predicted[0] - self.came) / abs(self.now - self.came)

    @property
    def is_known(self) -> bool:
        """Return whether the saving is told as known."""
        return self.predicted is not None and is_saving_known(self.now, *self.predicted)

    @property
    def inside(self) -> bool:
        """Return whether the interval holds what came."""
        return self.predicted is not None and self.predicted[1] <= self.came <= self.predicted[2]


def main() -> None:
    """Print all comparisons, and how many intervals hold what came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    corpus = Path(os.environ.get("TRACE_CORPUS", ROOT / "../shared/traces"))
    parser.add_argument("--traces", type=Path, default=corpus)
    parser.add_argument("--pairs", type=Path, default=corpus.parent / "pairs")
    options = parser.parse_args()
    truths = []
    for title, found in (
        ("a changed program, its step", changed(options.pairs)),
        ("a changed program, the device's work", narrowed(options.pairs)),
        ("another batch, the step", batches(options.pairs)),
        ("another batch, the device's work", batches(options.pairs, work=True)),
        ("a warm pass, from the cold first alone", warm(options.traces)),
    ):
        truths += show(title, list(found))
    print_inside([truth for truth in show("another batch on an H200, the step", list(of_series())) if truth.predicted])
    predicted = [truth for truth in truths if truth.predicted]
    noise = of_recordings(options.pairs)
    changed_more = [truth for truth in predicted if abs(truth.now - truth.came) > noise * truth.now]
    groups = {
        "all": predicted,
        f"changed by over {noise:.0%}": changed_more,
        "known": [t for t in predicted if t.is_known],
    }
    print_inside(predicted)
    print("off by, in the median:")
    for name, group in groups.items():
        print(f"  {name:24} {len(group):3} changes, {np.median([truth.error for truth in group]):6.1%} of the change")


def print_inside(truths: list[Truth]) -> None:
    """Print how many intervals hold what came."""
    print(f"\ninside the interval: {sum(truth.inside for truth in truths)} of {len(truths)}")


def of_recordings(pairs: Path) -> float:
    """Return by how much recordings of one unchanged pass differ, as a share of the shortest; 0 without any."""
    steps = [replay_of(path).recorded_step_ns for path in sorted(pairs.glob("*_again*.json.gz"))]
    return max(steps) / min(steps) - 1 if steps else 0.0


def show(title: str, found: list[Truth]) -> list[Truth]:
    """Print and return the comparisons of one kind, as docs/whatif.md has them."""
    print(f"\n| {title} | before | predicted | interval | half of it | came | off, of the change |")
    print("|---|--:|--:|---|--:|--:|--:|")
    print(*(row(truth) for truth in found), sep="\n")
    return found


def row(truth: Truth) -> str:
    """Return the row of a comparison: half of the interval is a share of the prediction."""
    now, came = duration(truth.now), duration(truth.came)
    if truth.predicted is None:
        return f"| {truth.name} | {now} | refused | | | {came} | |"
    then, low, high = truth.predicted
    return (
        f"| {truth.name} | {now} | {duration(then)}{'' if truth.is_known else ', not known'} | {duration(low)} to"
        f" {duration(high)} | {percent((high - low) / 2 / then)} | {came}{'' if truth.inside else ', outside'}"
        f" | {percent(truth.error)} |"
    )


@cache
def replayed(path: Path) -> tuple[Report, Replay]:
    """Return the report and the replay of a recording's judged device."""
    report = analyze(path)
    return report, Replay.of(report, device_of(report) or 0)


def replay_of(path: Path) -> Replay:
    """Return the replay of a recording's judged device."""
    return replayed(path)[1]


def predicted_step(replay: Replay, changes: tuple[Change, ...]) -> tuple[float, float, float] | None:
    """Return the predicted step and its interval; None where it is refused."""
    try:
        then = replay.predict(changes)
    except NothingToChange:
        then = replay.predict(())
    except NotApplicable:
        return None
    return then.step_ns, then.low_ns, then.high_ns


CHANGED = (
    ("ResNet-50 on a V100, `prefetch 4`", "v100_resnet50_workers0", "v100_resnet50_workers4", Change("prefetch", {"workers": 4})),
    ("Segment Anything on an A100, `bf16`", "a100_sam_amg_before", "a100_sam_amg_after", Change("bf16")),
    ("one of 8 ranks on H100, `overlap`", "../truth/overlap_8xh100/before", "../truth/overlap_8xh100/after", Change("overlap")),
)  # fmt: skip
"""Recordings before and after a change."""


def changed(pairs: Path) -> Iterator[Truth]:
    """Yield each recorded change of a program."""
    for name, before, after, change in CHANGED:
        now, then = (pairs / f"{file}.json.gz" for file in (before, after))
        if now.exists() and then.exists():
            report, replay = replayed(now)
            refused = refusal(report, replay, replay.graph.recorded.device, (change,))
            predicted = None if refused else predicted_step(replay, (change,))
            yield Truth(name, replay.recorded_step_ns, predicted, replay_of(then).recorded_step_ns)


def narrowed(pairs: Path) -> Iterator[Truth]:
    """Yield the device's work of the program in 16 bits: its step has a compilation and a graph's capture besides."""
    before, after = (pairs / f"a100_sam_amg_{name}.json.gz" for name in ("before", "after"))
    if before.exists() and after.exists():
        yield _of_work("Segment Anything on an A100, `bf16`", Change("bf16"), replay_of(before), replay_of(after))


def batches(pairs: Path, *, work: bool = False) -> Iterator[Truth]:
    """Yield each batch of a recorded series predicted from each other one: the step, or the device's ``work`` alone."""
    sizes = {2: "batch2_again05", 16: "batch16", 64: "batch64", 128: "batch128"}
    yield from between({size: pairs / f"a100_forward_{name}.json.gz" for size, name in sizes.items()}, work=work)


def of_series() -> Iterator[Truth]:
    """Yield the same of the steps of the series among the samples."""
    for name, sizes in SERIES.items():
        yield from between(
            {size: ROOT / f"sample_traces/gpu_cases/{name}_b{size}.json.gz" for size in sizes}, f"{name}, "
        )


SERIES = {
    "prefill": (1, 2, 4, 8, 16, 32),
    "resnet50_forward_bf16cl": (1, 4, 16, 64, 256),
    "resnet50_forward_fp32": (1, 4, 16, 64, 256),
}
"""Batches of each series in `sample_traces/gpu_cases`."""


def between(files: dict[int, Path], of: str = "", *, work: bool = False) -> Iterator[Truth]:
    """Yield each batch of a series predicted from each other one."""
    for before, after in permutations((size for size, path in files.items() if path.exists()), 2):
        now, then = (replay_of(files[size]) for size in (before, after))
        change = Change("batch", {"times": after / before})
        name = f"{of}{before} -> {after} samples"
        if not work:
            yield Truth(name, now.recorded_step_ns, predicted_step(now, (change,)), then.recorded_step_ns)
            continue
        yield _of_work(name, change, now, then)


def warm(traces: Path) -> Iterator[Truth]:
    """Yield the warm step predicted from the cold first step or pass of a trace alone, and the later ones of that trace."""
    for path in sorted(traces.glob("*.json.gz")):
        report = analyze(path)
        marks = report.tables["host_events"].filter(pl.col("kind") == "annotation")
        steps = marks.filter(pl.col("name").cast(pl.String).str.contains(r"^ProfilerStep#|\|(warmup|measure)\|forward"))
        spans = [
            (start, start + length) for start, length in steps.sort("start_ns").select("start_ns", "duration_ns").rows()
        ]
        outer = [
            one
            for one in spans
            if not any(one[0] <= other[0] and other[1] <= one[1] for other in spans if other != one)
        ]
        if len(outer) < 2 or device_of(report) is None:
            continue
        first, *later = (cut(path, int(report.trace.origin_ns), *span) for span in outer)
        now = of_pass(first)
        rest = [of_pass(one).recorded_step_ns for one in later]
        came = float(np.median(rest))
        if came < COLD_RATIO * now.recorded_step_ns:
            yield Truth(path.name[:-8], now.recorded_step_ns, predicted_step(now, (Change("warm"),)), came)


def cut(path: Path, origin_ns: int, start_ns: int, end_ns: int) -> bytes:
    """Return the trace with the host's events within a span, and the work that they launched."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    kept, launched = [], set()
    begin, end = ((origin_ns + ns) / 1_000 for ns in (start_ns, end_ns))
    for event in document["traceEvents"]:
        if event.get("ph") != "X" or "stream" in event.get("args", {}):
            continue
        if begin <= event["ts"] and event["ts"] + event["dur"] <= end:
            kept.append(event)
            launched.add(event.get("args", {}).get("correlation"))
    work = [
        e
        for e in document["traceEvents"]
        if "stream" in e.get("args", {}) and e["args"].get("correlation") in launched - {None}
    ]
    others = [event for event in document["traceEvents"] if event.get("ph") == "M"]
    return json.dumps({**document, "traceEvents": [*others, *kept, *work]}).encode()


def of_pass(content: bytes) -> Replay:
    """Return the replay of a file's judged device."""
    report = analyze(content)
    return Replay.of(report, device_of(report) or 0)


def _of_work(name: str, change: Change, now: Replay, then: Replay) -> Truth:
    """Return the comparison of the device's work."""
    ways = [change, *with_options((change,), BEST), change.towards(LOW), change.towards(HIGH)]
    ends = [_work(now, (one,)) for one in ways]
    likely = _work(now, (change,))
    if change.name in BEST_CASES:
        ends.append((likely + _work(now, ())) / 2)
    return Truth(name, _work(now, ()), (likely, min(ends), max(ends)), _work(then, ()))


def _work(replay: Replay, changes: tuple[Change, ...]) -> float:
    """Return the sum of the durations of activities under changes."""
    return float(replay.weights(changes).device[replay.graph.kind == EXECUTION].sum())


if __name__ == "__main__":
    main()
