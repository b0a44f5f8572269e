"""Test statistics of comparisons: known quantiles, few false alarms, detected changes; recordings as units."""

import random

import pytest

from trace_analyzer.compare.statistics import autocorrelation, difference, effective_size, t_quantile

PAIRS = 1_000


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (2, 4.303), (4, 2.776), (10, 2.228), (30, 2.042), (1000, 1.962)]
)
def test_quantiles_are_those_of_the_tables(freedom: float, expected: float) -> None:
    """Check that quantiles of Student's t at 97.5 % are those printed in every textbook."""
    assert t_quantile(0.975, freedom) == pytest.approx(expected, abs=5e-4)


def correlated(rng: random.Random, count: int, correlation: float, spread: float = 3.0) -> list[float]:
    """Draw step times of one recording, of which consecutive ones resemble each other."""
    times, deviation = [], rng.gauss(0, 1)
    for _ in range(count):
        deviation = correlation * deviation + (1 - correlation**2) ** 0.5 * rng.gauss(0, 1)
        times.append(100 + spread * deviation)
    return times


def alarms(count: int, correlation: float, change: float, independent: bool, spread: float = 3.0) -> float:
    """Return the share of pairs of samples that the test calls different."""
    rng = random.Random(count)
    actual = 0
    for _ in range(PAIRS):
        before, after = (correlated(rng, count, correlation, spread) for _ in range(2))
        longer = [time * (1 + change) for time in after]
        actual += bool(difference(before, longer, floor=0.5, independent=(independent,) * 2).significant)
    return actual / PAIRS


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
@pytest.mark.parametrize(
    ("count", "correlation", "most"),
    [(3, 0.3, 0.05), (5, 0.3, 0.05), (10, 0.3, 0.05), (20, 0.3, 0.05), (30, 0.6, 0.065), (100, 0.6, 0.055)],
)
def test_few_false_alarms_between_unchanged_recordings(
    count: int, correlation: float, most: float, spread: float
) -> None:
    """Check the share within what chance adds to it (three standard deviations)."""
    chance = 3 * (most * (1 - most) / PAIRS) ** 0.5
    assert alarms(count, correlation, 0.0, independent=False, spread=spread) <= most + chance


@pytest.mark.slow
def test_ten_percent_are_found_by_five_recordings_a_side_with_few_false_alarms() -> None:
    assert alarms(5, 0.0, 0.10, independent=True) >= 0.9
    assert max(alarms(count, 0.0, 0.0, independent=True) for count in (3, 5, 10)) <= 0.065


def test_more_correlated_steps_are_worth_less() -> None:
    rng = random.Random(1)
    loose, tight = correlated(rng, 200, 0.0), correlated(rng, 200, 0.8)
    assert autocorrelation(tight) > autocorrelation(loose)
    assert effective_size(tight, False) < effective_size(loose, False) == pytest.approx(200 * 0.7 / 1.3)
    assert effective_size(tight, True) == 200
    assert autocorrelation([1.0, 1.0, 1.0]) == 0


def test_too_few_observations_say_nothing() -> None:
    assert difference([1.0], [2.0], floor=0.0).interval is None
    assert difference([1.0, 1.1], [2.0, 2.1], floor=0.0).significant is None
    assert difference([1.0, 1.1], [2.0, 2.1], floor=0.0, independent=(True, True)).interval is None
    assert difference([1.0, 1.1, 1.0], [2.0, 2.1, 2.0], floor=0.0, independent=(True, True)).significant


def test_the_floor_and_samples_without_scatter() -> None:
    same = difference([100.0] * 5, [100.0] * 5, floor=0.5)
    assert (same.value, same.interval, same.significant) == (0.0, (0.0, 0.0), False)
    assert difference([100.0] * 5, [100.4] * 5, floor=0.5).significant is False
    assert difference([100.0] * 5, [101.0] * 5, floor=0.5).significant is True


def test_the_difference_flips_with_the_sides() -> None:
    rng = random.Random(2)
    a, b = correlated(rng, 6, 0.3), correlated(rng, 8, 0.3)
    forward, backward = difference(a, b, floor=0.1), difference(b, a, floor=0.1)
    assert backward.interval is not None
    assert forward.value == -backward.value
    assert forward.interval == pytest.approx(tuple(-end for end in reversed(backward.interval)))
