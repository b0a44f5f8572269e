"""Test the test of the step without a varying line: it detects what the line hides, without more false alarms."""

import random
from functools import cache

import polars as pl
import pytest
from compare_sides import Program

from trace_analyzer.compare import decomposition, profiles, statistics
from trace_analyzer.compare.facts import Facts, RecordedSteps
from trace_analyzer.compare.sides import merged
from trace_analyzer.pipeline import analyze

STEP_NS = 30_000_000
HOST_BOUND = Program(steps=2, mm_ns=4_000, norm_ns=4_000, add_ns=4_000, host_ns=60_000)
LOADED_NS = 3_000_000


@cache
def recording(loading_ns: int, seed: int, host_ns: int = 60_000) -> profiles.Profile:
    """Return a recording with this loading time: some recordings wait for the loader, some do not."""
    return profiles.profile_of(analyze(HOST_BOUND.faster(loading_ns=loading_ns, seed=seed, host_ns=host_ns).trace()))


def drawn(rng: random.Random, change: float) -> profiles.Profile:
    """Draw a side of recordings whose loading time varies by chance, made of profiles without reading traces."""
    return merged("side", [_recording(rng, change) for _ in range(5)])


def _recording(rng: random.Random, change: float) -> profiles.Profile:
    times = {"data-loading": STEP_NS // 8 if rng.random() < 0.5 else 0}
    for name, ratio in (("dispatch", 0.6), ("python", 0.2), ("synchronization", 0.2)):
        times[name] = round(STEP_NS * (ratio + 0.005 * rng.gauss(0, 1)) * (1 + change))
    rows = pl.DataFrame(
        [
            {"row": place, "call": None, "kind": "idle", "category": name, "group": "idle", "part": name, "kernel": None,
             "count": 1, "total_ns": ns, "roof_ns": 0.0, "known_ns": 0, "blocks": 0}
            for place, (name, ns) in enumerate(times.items())
        ],
        schema=profiles.ROWS,
    )  # fmt: skip
    units = rows.select("row", pl.lit(0, pl.UInt32).alias("unit"), "total_ns").cast(dict(profiles.UNITS))  # type: ignore[arg-type]
    steps = RecordedSteps("r", (sum(times.values()),), True)
    return profiles.Profile("r", (steps,), pl.DataFrame(schema=profiles.CALLS), rows, units, Facts())


def shares(change: float, draws: int) -> tuple[float, float]:
    """Return the shares of draws in which the step is significant, and in which a line was left out."""
    rng, significant, adjusted = random.Random(7), 0, 0
    for _ in range(draws):
        before, after = drawn(rng, 0.0), drawn(rng, change)
        result, adjustment = statistics.step_difference(before, after, floor=statistics.FLOOR_RATIO * STEP_NS)
        significant += bool(result.significant)
        adjusted += adjustment is not None
        assert result.interval is not None
        assert result.interval[0] <= result.value <= result.interval[1]
        assert not (result.significant and result.interval[0] <= 0 <= result.interval[1])
    return significant / draws, adjusted / draws


@pytest.mark.slow
def test_changes_are_found_behind_a_line_that_comes_and_goes_with_few_false_alarms() -> None:
    power, adjusted = shares(0.10, 60)
    assert power >= 0.9
    assert adjusted >= 0.9
    alarms, adjusted = shares(0.0, 100)
    assert alarms <= 0.1
    assert adjusted >= 0.8


@pytest.mark.slow
def test_the_line_is_named_and_the_interval_holds_the_difference() -> None:
    before = merged("before", [recording(LOADED_NS * (n % 2), n) for n in range(4)])
    after = merged("after", [recording(LOADED_NS * (n % 2), 9 + n, 70_000) for n in range(4)])
    result = decomposition.compare(before, after)
    assert result.adjustment is not None
    assert result.adjustment.left_out == "data-loading"
    assert result.significant
    assert result.interval_ns is not None
    assert 0 < result.interval_ns[0] <= (result.difference_ns or 0) <= result.interval_ns[1]
    assert any(note.startswith("Data loading varies from") for note in result.notes)
    assert result.adjustment.difference_ns == pytest.approx(result.difference_ns, rel=0.1)


@pytest.mark.slow
def test_a_line_that_differs_between_the_sides_is_never_left_out() -> None:
    before = merged("before", [recording(0, n) for n in range(3)])
    after = merged("after", [recording(LOADED_NS, n) for n in range(3)])
    result = decomposition.compare(before, after)
    assert result.adjustment is None
    assert result.significant


@pytest.mark.slow
def test_recordings_of_unlike_lengths_keep_the_difference_within_the_interval() -> None:
    """The difference weighs steps, the test recordings."""
    long = profiles.profile_of(analyze(HOST_BOUND.faster(steps=6, loading_ns=LOADED_NS, seed=5).trace()))
    result = decomposition.compare(
        merged("before", [recording(0, n) for n in range(8)]),
        merged("after", [*(recording(0, n) for n in range(8, 15)), long]),
    )
    assert result.interval_ns is not None
    assert result.interval_ns[0] <= (result.difference_ns or 0) <= result.interval_ns[1]
