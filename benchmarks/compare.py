"""Comparisons: false alarms on unchanged passes, power on planted changes, what real pairs say, and what it costs.

Prints the figures that docs/compare.md quotes. FOLDER holds pairs of real recordings; without it, only simulated ones are measured.

    python benchmarks/compare.py [FOLDER] [--draws 400] [--runs 5]
"""

import argparse
import itertools
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "sample_traces")]

from compare_sides import Program  # noqa: E402

from trace_analyzer.compare.comparison import compare_profiles  # noqa: E402
from trace_analyzer.compare.profiles import Profile, profile_of  # noqa: E402
from trace_analyzer.compare.statistics import FLOOR_RATIO, difference  # noqa: E402
from trace_analyzer.pipeline import analyze  # noqa: E402


def alarms(steps: Sequence[float], size: int, change: float, draws: int, rng: random.Random) -> float:
    """The share of draws of ``size`` recordings a side that are told apart, the one side ``change`` slower."""
    found = 0
    for _ in range(draws):
        drawn = rng.sample(list(steps), 2 * size)
        before, after = drawn[:size], [step * (1 + change) for step in drawn[size:]]
        floor = FLOOR_RATIO * sum(before) / size
        found += bool(difference(before, after, floor=floor, independent=(True, True)).significant)
    return found / draws


def unchanged(folder: Path, draws: int) -> None:
    """False alarms and power on consecutive passes of one process, files as recordings."""
    sides = [profile_of(analyze(path)) for path in sorted(folder.glob("*again*.json.gz"))]
    steps = [side.total_ns / side.steps for side in sides]
    print(f"\nunchanged: {len(steps)} passes, mean {sum(steps) / len(steps) / 1e6:.2f} ms")
    print(f"{'recordings a side':>20}{'false alarms':>14}{'+5 % found':>12}{'+10 % found':>13}")
    for size in (n for n in (3, 4, 5) if 2 * n <= len(steps)):
        rng = random.Random(size)
        shares = [alarms(steps, size, change, draws, rng) for change in (0.0, 0.05, 0.1)]
        print(f"{size:>20}{shares[0]:>14.1%}{shares[1]:>12.1%}{shares[2]:>13.1%}")


def planted() -> None:
    """Changes planted into a simulated program: the share of their time in the line that names them."""
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
    """Headlines of every pair of files of one series, and the time that comparing takes beyond loading."""
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
    """Seconds that a call takes."""
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
