"""Measure comparisons: false alarms on unchanged passes, power on planted changes, what real pairs say, and what it costs.

Prints the figures that docs/compare.md quotes. FOLDER holds pairs of real recordings; without it, only simulated ones are measured.

    python benchmarks/compare.py [FOLDER] [--draws 400] [--runs 5]
"""

import argparse
import itertools
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "sample_traces")]

from compare_sides import Program  # noqa: E402

from trace_analyzer.compare.adjustment import step_difference  # noqa: E402
from trace_analyzer.compare.comparison import compare_profiles  # noqa: E402
from trace_analyzer.compare.facts import RecordedSteps  # noqa: E402
from trace_analyzer.compare.profiles import Profile, merged, profile_of  # noqa: E402
from trace_analyzer.compare.statistics import FLOOR_RATIO, difference  # noqa: E402
from trace_analyzer.pipeline import analyze  # noqa: E402


def draw(passes: Sequence[Profile], size: int, rng: random.Random, each: int) -> list[Profile]:
    """Return recordings of two sides: ``each`` consecutive passes are one; of single ones no pass is drawn twice."""
    if each == 1:
        return rng.sample(list(passes), 2 * size)
    starts = [rng.randrange(len(passes)) for _ in range(2 * size)]
    return [one_of([passes[(start + n) % len(passes)] for n in range(each)]) for start in starts]


def one_of(passes: Sequence[Profile]) -> Profile:
    """Return one recording whose steps are these passes."""
    side = merged("recording", passes)
    lengths = tuple(length for recording in side.recordings for length in recording.lengths_ns)
    return replace(side, recordings=(RecordedSteps("recording", lengths, has_steps=True),))


def slower(side: Profile, change: float) -> Profile:
    """Return a side of which all that owns time takes ``change`` longer."""
    if not change:
        return side
    longer = (pl.col("total_ns") * (1 + change)).round().cast(pl.Int64)
    units = None if side.units is None else side.units.with_columns(longer)
    lengths = [replace(r, lengths_ns=tuple(round(ns * (1 + change)) for ns in r.lengths_ns)) for r in side.recordings]
    return replace(side, units=units, recordings=tuple(lengths))


def unchanged(folder: Path, draws: int) -> None:
    """False alarms and power on consecutive passes of one process, as recordings of one pass and of five."""
    passes = [profile_of(analyze(path)) for path in sorted(folder.glob("*again*.json.gz"))]
    mean = sum(side.total_ns / side.steps for side in passes) / len(passes)
    print(
        f"\nunchanged: {len(passes)} passes, mean {mean / 1e6:.2f} ms; in brackets: the step as it is, no line left out"
    )
    print(f"{'recordings x passes':>20}{'false alarms':>18}{'+5 % found':>18}{'+10 % found':>18}")
    for size, each in ((3, 1), (4, 1), (5, 1), (3, 5), (5, 5)):
        if each == 1 and 2 * size > len(passes):
            continue
        rng = random.Random(size)
        counts = {change: [0, 0] for change in (0.0, 0.05, 0.1)}
        for _ in range(draws):
            drawn = draw(passes, size, rng, each)
            before = merged("before", drawn[:size])
            plain = merged("after", drawn[size:])
            for change, count in counts.items():
                after = slower(plain, change)
                floor = FLOOR_RATIO * before.total_ns / before.steps
                count[0] += bool(step_difference(before, after, floor=floor)[0].significant)
                samples = before.observations(), after.observations()
                count[1] += bool(difference(*samples, floor=floor, independent=(True, True)).significant)
        cells = "".join(f"{f'{a / draws:.1%} ({b / draws:.1%})':>18}" for a, b in counts.values())
        print(f"{f'{size} x {each}':>20}{cells}")


def planted() -> None:
    """Measure changes planted into a simulated program: the share of their time in the line that names them."""
    base = Program(steps=6)
    changes = {
        "aten::mm": (base.faster(mm_ns=500_000), 400_000),
        "aten::native_layer_norm": (base.faster(norm_ns=100_000), 160_000),
        "aten::add": (base.faster(adds=3), 400_000),
    }
    before = profile_of(analyze(base.trace()))
    print(f"\n{'planted in':<26}{'in its line':>12}")
    for name, (program, planted_ns) in changes.items():
        result = compare_profiles(before, profile_of(analyze(program.trace())))
        line = next(line for line in result.lines if line.name == name)
        print(f"{name:<26}{line.difference_ns / planted_ns:>12.1%}")


def pairs(folder: Path, runs: int) -> None:
    """Print headlines of every pair of files of one series, and the time that comparing takes beyond loading."""
    paths = [path for path in sorted(folder.glob("*.json.gz")) if "again" not in path.name or "again00" in path.name]
    reports = {path: analyze(path) for path in paths}
    sides: dict[Path, Profile] = {}
    cost: dict[Path, float] = {}
    for path, report in reports.items():
        report.tables["owners"]
        cost[path] = min(timed(lambda report=report: profile_of(report)) for _ in range(runs))
        sides[path] = profile_of(report)
    slowest = 0.0
    print()
    for before, after in itertools.combinations(paths, 2):
        if before.name.split("_")[:2] == after.name.split("_")[:2]:
            result = compare_profiles(sides[before], sides[after])
            took = min(timed(lambda a=before, b=after: compare_profiles(sides[a], sides[b])) for _ in range(runs))
            slowest = max(slowest, took)
            print(f"{before.name} -> {after.name} ({1000 * took:.0f} ms)\n    {result.headline}")
    print(
        f"\nslowest comparison {1000 * slowest:.0f} ms; summing up owners: {1000 * max(cost.values()):.0f} ms at most a side"
    )


def timed(function: object) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    function()  # type: ignore[operator]
    return time.perf_counter() - start


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    planted()
    if options.folder:
        unchanged(options.folder, options.draws)
        pairs(options.folder, options.runs)


if __name__ == "__main__":
    main()
