"""Measure comparisons: false alarms on unchanged passes, power for planted changes, results on real pairs, and cost.

Prints the figures that docs/compare.md quotes. FOLDER holds pairs of real recordings; without it, only simulated ones are measured.

    python benchmarks/compare.py [FOLDER] [--draws 4000] [--runs 5]
"""

import argparse
import itertools
import math
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "sample_traces")]

from compare_sides import Program, Times, is_found, joined, splits, times_of  # noqa: E402

from trace_analyzer.compare.decomposition import compare_profiles  # noqa: E402
from trace_analyzer.compare.profiles import Profile, profile_of  # noqa: E402
from trace_analyzer.pipeline import analyze  # noqa: E402


def draw(passes: Sequence[Times], size: int, rng: random.Random, each: int) -> list[Times]:
    """Draw recordings of two sides with ``each`` consecutive passes; single passes are drawn without repetition."""
    if each == 1:
        return rng.sample(list(passes), 2 * size)
    starts = [rng.randrange(len(passes)) for _ in range(2 * size)]
    return [joined([passes[(start + n) % len(passes)] for n in range(each)]) for start in starts]


def wilson(hits: int, draws: int) -> str:
    """Return the share of hits, with its 95 % interval (Wilson 1927, https://doi.org/10.1080/01621459.1927.10502953)."""
    z, p = 1.96, hits / draws
    middle, half = p + z * z / (2 * draws), z * math.sqrt(p * (1 - p) / draws + z * z / (4 * draws * draws))
    low, high = ((middle + sign * half) / (1 + z * z / draws) for sign in (-1, 1))
    return f"{p:.1%} ({low:.1%} to {high:.1%})"


def unchanged(folder: Path, draws: int) -> None:
    """Measure false alarms and power on consecutive passes of one process, with one and five passes per recording."""
    passes = [times_of(profile_of(analyze(path))) for path in sorted(folder.glob("*again*.json.gz"))]
    mean = sum(sum(item.values()) for item in passes) / len(passes)
    print(f"\nunchanged: {len(passes)} passes, mean {mean / 1e6:.2f} ms; {draws} draws, with 95 % intervals")
    every = [is_found(*sides) for sides in splits(passes, 3)]
    print(f"false alarms of all {len(every)} splits into 3 and 3 recordings of one pass: {sum(every) / len(every):.2%}")
    print(f"{'recordings x passes':>20}{'false alarms':>24}{'+5 % found':>24}{'+10 % found':>24}")
    for size, each in ((3, 1), (4, 1), (5, 1), (3, 5), (5, 5)):
        if each == 1 and 2 * size > len(passes):
            continue
        rng, shown = random.Random(size), {0.0: 0, 0.05: 0, 0.1: 0}
        for _ in range(draws):
            drawn = draw(passes, size, rng, each)
            for change in shown:
                shown[change] += is_found(drawn[:size], drawn[size:], change)
        print(f"{f'{size} x {each}':>20}{''.join(f'{wilson(n, draws):>24}' for n in shown.values())}")


def population(kind: str, rng: random.Random) -> Times:
    """Simulate a recording of an unchanged program: its lines vary independently, together, or one comes and goes."""
    means = {"dispatch": (20e6, 0.004), "python": (6e6, 0.02), "launch-latency": (3e6, 0.01), "matmul": (2e6, 0.01)}
    times = {name: ns * (1 + scatter * rng.gauss(0, 1)) for name, (ns, scatter) in means.items()}
    if kind == "together":
        factor = 1 + 0.05 * rng.gauss(0, 1)
        return {name: factor * ns for name, ns in times.items()}
    if kind == "heavy tail":
        times["dispatch"] += 1e6 * rng.lognormvariate(0, 1.2)
    if kind.startswith("comes and goes"):
        chance = float(kind.split()[-2]) / 100
        times["cpu-operator"] = 4e6 * (rng.random() < chance) * (1 + 0.02 * rng.gauss(0, 1))
    return times


def simulated(draws: int) -> None:
    """Measure false alarms between independent recordings of simulated, unchanged programs."""
    print(f"\n{f'unchanged, simulated, {draws} draws':<34}{'3 recordings':>24}{'5 recordings':>24}")
    for kind in ("alone", "together", "heavy tail", *(f"comes and goes in {n} %" for n in (5, 20, 50))):
        cells = []
        for size in (3, 5):
            rng = random.Random(size)
            drawn = ([population(kind, rng) for _ in range(2 * size)] for _ in range(draws))
            cells.append(wilson(sum(is_found(item[:size], item[size:]) for item in drawn), draws))
        print(f"{kind:<34}{''.join(f'{cell:>24}' for cell in cells)}")


def planted() -> None:
    """Measure changes planted into a simulated program: the share of their time in the expected line."""
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
    """Print the headline for every pair of files in a series, and the time of comparing in addition to loading."""
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
            slowest = max(slowest, took + cost[before] + cost[after])
            parts = " + ".join(f"{1000 * part:.0f}" for part in (cost[before], cost[after], took))
            print(f"{before.name} -> {after.name} ({parts} ms)\n    {result.headline}")
    print(f"\nslowest comparison beyond loading, with both sides' owners summed up: {1000 * slowest:.0f} ms")


def timed(function: object) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    function()  # type: ignore[operator]
    return time.perf_counter() - start


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    planted()
    simulated(options.draws)
    if options.folder:
        unchanged(options.folder, options.draws)
        pairs(options.folder, options.runs)


if __name__ == "__main__":
    main()
