"""Test whether steps differ, without the one line whose chance variation on both sides hides the change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import polars as pl

from trace_analyzer.compare import statistics
from trace_analyzer.compare.profiles import Profile
from trace_analyzer.compare.statistics import Difference, mean

Samples = tuple[list[float], list[float]]
"""Step times in ns of both sides, one per unit of observation."""

LEAST_SHARE = 0.75
"""Least share of the steps' within-side variation (sum of squares) that a line must account for to be left out."""
LINE_LEVEL, REST_LEVEL = 0.99, 0.97
"""Confidence that the line does not differ, and of the rest's interval: together false alarms of 1 % and 3 %
(Bonferroni), as the same observations select the line. At 0.96, 5.03 % of all splits of 12 unchanged passes into
three and three recordings raise a false alarm, at 0.97 4.65 %."""


@dataclass(frozen=True)
class Adjustment:
    """Hold the test of the step without one line, which varies equally on both sides."""

    left_out: Annotated[str, "The line: a cause of idle time or a bucket."]
    least_ns: Annotated[float, "Its least time in an observation of either side, ns per step."]
    most_ns: Annotated[float, "Its greatest time in an observation of either side, ns per step."]
    difference_ns: Annotated[float, "Difference of the rest of the step, ns."]
    interval_ns: Annotated[tuple[float, float], "95 % confidence interval of that difference, ns."]


def step_difference(before: Profile, after: Profile, *, floor: float) -> tuple[Difference, Adjustment | None]:
    """Test whether the steps of two sides differ.

    Where one line causes most variation within both sides and does not differ between them, the rest of the step is
    tested (subtracting a covariate with known coefficient 1). Assuming that the line's time is chance on both sides,
    the difference of the rest is due to the program; the interval is extended to include the measured difference.
    Without such a line, the whole step is tested.
    """
    measured = after.total_ns / after.steps - before.total_ns / before.steps
    independent = (before.are_recordings_units, after.are_recordings_units)
    steps: Samples = (before.observations(), after.observations())
    # Too few steps allow no test, with or without a line.
    lines = line_samples(before, after) if min(map(len, steps)) >= statistics.LEAST_OBSERVATIONS else {}
    return samples_difference(steps, lines, floor=floor, independent=independent, measured=measured)


def samples_difference(
    steps: Samples,
    lines: Mapping[str, Samples],
    *,
    floor: float,
    independent: tuple[bool, bool],
    measured: float | None = None,
) -> tuple[Difference, Adjustment | None]:
    """Test samples of steps and of their lines like `step_difference`.

    ``measured`` is the measured difference, by default that of the means.
    """
    measured = mean(steps[1]) - mean(steps[0]) if measured is None else measured
    plain = _about(statistics.difference(*steps, floor=floor, independent=independent), measured, floor)
    line = _scattering_line(steps, lines) if plain.interval is not None else None
    if line is None:
        return plain, None
    name, times = line
    every = (*times[0], *times[1])
    if max(every) - min(every) <= floor:
        return plain, None
    alone = statistics.difference(*times, floor=0.0, independent=independent, level=LINE_LEVEL)
    rest = statistics.difference(
        *_without(steps, times), floor=floor, independent=independent, level=REST_LEVEL, lost=1
    )
    if alone.significant is not False or rest.interval is None:
        return plain, None
    return _about(rest, measured, floor), Adjustment(name, min(every), max(every), rest.value, rest.interval)


def _about(test: Difference, measured: float, floor: float) -> Difference:
    """Return the test for the measured difference, with its interval extended to include that.

    The measured difference deviates from the test's where a line was left out, and where recordings have different
    numbers of steps.
    """
    if test.interval is None:
        return replace(test, value=measured)
    low, high = min(test.interval[0], measured), max(test.interval[1], measured)
    significant = bool(test.significant) and abs(measured) > floor and not low <= 0 <= high
    return replace(test, value=measured, interval=(low, high), significant=significant)


def line_samples(before: Profile, after: Profile) -> Mapping[str, Samples]:
    """Return the times per step of each cause and bucket of either side, by unit of observation.

    Empty where a side has no units.
    """
    if before.units is None or after.units is None:
        return {}
    sides = [_by_category(before, before.units), _by_category(after, after.units)]
    sizes = [len(side.weights()) for side in (before, after)]
    names = sorted({*sides[0], *sides[1]})
    return {name: (sides[0].get(name, [0.0] * sizes[0]), sides[1].get(name, [0.0] * sizes[1])) for name in names}


def _by_category(side: Profile, units: pl.DataFrame) -> dict[str, list[float]]:
    weights = side.weights()
    named = units.join(side.rows.select("row", "category"), on="row")
    sums = named.group_by("category", "unit").agg(pl.col("total_ns").sum())
    times: dict[str, list[float]] = {}
    for category, unit, total in sums.iter_rows():
        times.setdefault(category, [0.0] * len(weights))[unit] = total / weights[unit]
    return times


def _scattering_line(steps: Samples, lines: Mapping[str, Samples]) -> tuple[str, Samples] | None:
    """Return the line without which steps vary least within their sides.

    None where they vary nearly as much as with it.
    """
    if not lines:
        return None
    scatter = {name: _scatter(_without(steps, times)) for name, times in lines.items()}
    name = min(scatter, key=lambda item: (scatter[item], item))
    return (name, lines[name]) if scatter[name] <= (1 - LEAST_SHARE) * _scatter(steps) else None


def _without(steps: Samples, times: Samples) -> Samples:
    rest = [[step - time for step, time in zip(side, own, strict=True)] for side, own in zip(steps, times, strict=True)]
    return rest[0], rest[1]


def _scatter(samples: Sequence[Sequence[float]]) -> float:
    """Return the sum of squared deviations within the sides."""
    return sum((x - middle) ** 2 for side in samples for middle in [mean(side)] for x in side)
