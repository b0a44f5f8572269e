"""Test whether two samples of step times differ, by Welch's test."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import fmean
from typing import Annotated, Any

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from trace_analyzer.compare.profiles import Profile

LEVEL = 0.95
"""Confidence level of intervals: 5 % false alarms."""
POWER = 0.8
"""Probability of detecting a difference of size `Difference.detectable`."""
LEAST_CORRELATION = 0.3
"""Least assumed correlation of consecutive steps in one recording: on 252 passes of one process on an A100, Welch's
test has 4 % false alarms at 5 steps with it, and 13 % without."""
FLOOR_RATIO = 0.005
"""Differences below this share of the step are never significant, as recordings of unchanged programs differ by as
much."""
LEAST_OBSERVATIONS = 3
"""Least observations per side: two correlated steps are worth little more than one, and two recordings per side
cause 12 % false alarms."""
PRIOR_FREEDOM = 0.5
"""Weight of that floor as the spread of a recording's steps, in degrees of freedom (moderated variances, Smyth 2004,
https://doi.org/10.2202/1544-6115.1027): the differences of three steps alone leave a line's or step's spread open. It
only raises the spread: of simulated steps with a lag-1 autocorrelation of 0.3, 3 against 3 and more raise false alarms
of at most 4.5 %, and of 6 % if it lowered one."""
_LEAST, _MANY = 1e-12, 1e4
_LEAST_FREEDOM = 0.6
"""Least degrees of freedom: below it, Student's t has no useful quantile."""


class Difference(Struct, frozen=True):
    """A difference of means with its confidence interval; the interval is None where there are too few observations.

    ``detectable`` is the difference that so many observations detect with probability `POWER`; ``needed`` is how many
    would detect ``value``. An interval wider than the step says nothing, and is None too.
    """

    value: float
    interval: tuple[float, float] | None
    significant: bool | None
    detectable: float | None
    needed: int | None = None


def difference(
    before: Sequence[float],
    after: Sequence[float],
    *,
    floor: float,
    independent: tuple[bool, bool] = (False, False),
    level: float = LEVEL,
    lost: int = 0,
) -> Difference:
    """Compare the means of two samples by Welch's test.

    ``independent`` is true for a sample whose observations are separate recordings. Steps of one recording count as
    n(1-r)/(1+r) observations, where r is their lag-1 autocorrelation, at least `LEAST_CORRELATION` (Bayley and
    Hammersley 1946, https://doi.org/10.2307/2983560), and their variance is raised by the floor with
    `PRIOR_FREEDOM`. Differences of at most ``floor``, which is `FLOOR_RATIO` of the step, are not significant. ``level``
    is the confidence of the interval, ``lost`` the degrees of freedom used up by selecting the samples.
    """
    value = fmean(after) - fmean(before)
    if min(len(before), len(after)) < LEAST_OBSERVATIONS:
        return Difference(value, None, None, None)
    sizes = [effective_size(x, is_independent) for x, is_independent in zip((before, after), independent, strict=True)]
    scatters = any(map(variance, (before, after)))
    priors = [0.0 if is_independent or not scatters else PRIOR_FREEDOM for is_independent in independent]
    frees = [
        n - 1 if own else len(x) - 1 + prior
        for x, n, own, prior in zip((before, after), sizes, independent, priors, strict=True)
    ]
    spreads = [
        max(variance(x), (prior * floor**2 + (len(x) - 1) * variance(x)) / (prior + len(x) - 1))
        for x, prior in zip((before, after), priors, strict=True)
    ]
    parts = [spread / n for spread, n in zip(spreads, sizes, strict=True)]
    error = math.sqrt(sum(parts))
    if error <= _LEAST * (abs(fmean(before)) + abs(fmean(after))):
        half = detectable = 0.0
    else:
        # Welch 1947 (https://doi.org/10.1093/biomet/34.1-2.28), with effective sizes instead of sizes.
        freedom = sum(parts) ** 2 / sum(part**2 / n for part, n in zip(parts, frees, strict=True))
        freedom = max(_LEAST_FREEDOM, freedom - lost) if lost else freedom
        half = error * t_quantile((1 + level) / 2, freedom)
        detectable = half + error * t_quantile(POWER, freedom)
    needed = None
    if abs(value) > floor:
        wanted = (t_quantile((1 + level) / 2, _MANY) + t_quantile(POWER, _MANY)) / value
        needed = max(len(before), len(after), math.ceil(wanted**2 * error**2 * min(len(before), len(after))))
    if floor and half > max(floor / FLOOR_RATIO, fmean(before), fmean(after)):
        return Difference(value, None, False, None, needed)
    significant = abs(value) > max(half, floor)
    return Difference(value, (value - half, value + half), significant, max(detectable, floor), needed)


def effective_size(sample: Sequence[float], is_independent: bool) -> float:
    """Return the effective number of independent observations in a sample.

    The autocorrelation of n values is too low by (1 + 4r)/n in the mean (Marriott and Pope 1954,
    https://doi.org/10.1093/biomet/41.3-4.390).
    """
    if is_independent:
        return float(len(sample))
    measured = autocorrelation(sample)
    correlation = min(0.99, max(LEAST_CORRELATION, measured + (1 + 4 * measured) / len(sample)))
    return max(1.0, len(sample) * (1 - correlation) / (1 + correlation))


def autocorrelation(sample: Sequence[float]) -> float:
    """Return the lag-1 autocorrelation of a sample; 0 for a constant one."""
    middle = fmean(sample)
    deviations = [x - middle for x in sample]
    spread = sum(d * d for d in deviations)
    return 0.0 if spread == 0 else sum(a * b for a, b in pairwise(deviations)) / spread


def variance(sample: Sequence[float]) -> float:
    """Return the unbiased variance."""
    middle = fmean(sample)
    return math.fsum((x - middle) ** 2 for x in sample) / (len(sample) - 1)


@lru_cache(maxsize=4096)
def t_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t for a probability over 0.5; infinite where it exceeds 1e12."""
    low = 0.0
    while _t_probability(max(1.0, 2 * low), freedom) < probability:
        low = max(1.0, 2 * low)
        if low > 1e12:
            return math.inf
    # The distribution is concave here: Newton's steps from the left never pass the quantile.
    t, constant = low, math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    for _ in range(100):
        density = math.exp(constant - (freedom + 1) / 2 * math.log1p(t * t / freedom))
        step = (probability - _t_probability(t, freedom)) / density
        t += step
        if abs(step) <= 1e-13 * t:
            break
    return t


def _t_probability(t: float, freedom: float) -> float:
    """Return P(T <= t) for t >= 0 (https://dlmf.nist.gov/8.17, Abramowitz and Stegun 26.7.1)."""
    return 1 - incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b), by its continued fraction.

    Source: https://dlmf.nist.gov/8.17.22.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    # Lentz's method for 1/(1+ d1/(1+ d2/(1+ ...))).
    tiny = 1e-300
    c, d, fraction = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny), 0.0
    fraction = d
    for m in range(1, 500):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + numerator * d or tiny)
            c = 1 + numerator / c or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * fraction


def floor_of(before_ns: float, after_ns: float) -> float:
    """Return `FLOOR_RATIO` of the mean of both steps, so that it is the same where the sides are swapped."""
    return FLOOR_RATIO * (before_ns + after_ns) / 2


Samples = tuple[list[float], list[float]]
"""Times per step in ns of both sides, one per unit of observation."""
_ROWS = ("before_rows", "after_rows")


def against_chance(groups: pl.DataFrame, before: Profile, after: Profile, *, floor: float) -> list[Difference]:
    """Return the test of each group of rows, in their order.

    ``groups`` needs difference_ns, and before_rows and after_rows, the lists of its rows on both sides. Differences of
    at most ``floor`` ns per step are not significant. Interval and significance are None with too few steps.
    """
    differences = groups.get_column("difference_ns").to_list()
    sides = (before, after)
    if any(side.units is None or len(side.weights()) < 2 for side in sides):
        return [Difference(value, None, None, None) for value in differences]
    asked = groups.select(_ROWS).with_row_index("group").filter(groups.get_column("difference_ns").abs() > floor)
    rows = [asked.select("group", pl.col(column).alias("row")).explode("row") for column in _ROWS]
    times = _times(sides, rows)
    independent = (before.are_recordings_units, after.are_recordings_units)
    return [
        difference(*times[group], floor=floor, independent=independent)
        if group in times
        else Difference(value, None, False, None)
        for group, value in enumerate(differences)
    ]


def _times(sides: tuple[Profile, Profile], groups: Sequence[pl.DataFrame]) -> dict[Any, Samples]:
    """Return the times of the groups (group, row) of both sides, sorted by group; 0 where a side has none."""
    before, after = (side.unit_times(own) for side, own in zip(sides, groups, strict=True))
    nothing = [[0.0] * len(side.weights()) for side in sides]
    return {name: (before.get(name, nothing[0]), after.get(name, nothing[1])) for name in sorted({**before, **after})}


LEAST_SHARE = 0.75
"""Least share of the steps' within-side variation (sum of squares) that a line must account for to be left out."""
LINE_LEVEL, REST_LEVEL = 0.99, 0.97
"""Confidence that the line does not differ, and of the rest's interval: together false alarms of 1 % and 3 %
(Bonferroni), as the same observations select the line. At 0.96, 5.03 % of all splits of 12 unchanged passes into
three and three recordings raise a false alarm, at 0.97 4.65 %."""


class Adjustment(Struct, frozen=True):
    """The test of the step without one line, which varies equally on both sides."""

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
    lines: Mapping[str, Samples] = {}
    # Too few steps allow no test, with or without a line.
    if min(map(len, steps)) >= LEAST_OBSERVATIONS and before.units is not None and after.units is not None:
        sides = (before, after)
        lines = _times(sides, [side.rows.select(pl.col("category").alias("group"), "row") for side in sides])
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
    measured = fmean(steps[1]) - fmean(steps[0]) if measured is None else measured
    plain = _about(difference(*steps, floor=floor, independent=independent), measured, floor)
    if plain.significant is None or not lines:
        return plain, None
    # The line without which steps vary least within their sides.
    scatter = {name: _scatter(_without(steps, times)) for name, times in lines.items()}
    name = min(scatter, key=lambda item: (scatter[item], item))
    times = lines[name]
    every = (*times[0], *times[1])
    if scatter[name] > (1 - LEAST_SHARE) * _scatter(steps) or max(every) - min(every) <= floor:
        return plain, None
    alone = difference(*times, floor=0.0, independent=independent, level=LINE_LEVEL)
    rest = difference(*_without(steps, times), floor=floor, independent=independent, level=REST_LEVEL, lost=1)
    if alone.significant is not False or rest.interval is None:
        return plain, None
    return _about(replace(rest, needed=plain.needed), measured, floor), Adjustment(
        name, min(every), max(every), rest.value, rest.interval
    )


def _about(test: Difference, measured: float, floor: float) -> Difference:
    """Return the test for the measured difference, with its interval extended to include that.

    The measured difference deviates from the test's where a line was left out, and where recordings have different
    numbers of steps.
    """
    if test.interval is None:
        return replace(test, value=measured, needed=test.needed if abs(measured) > floor else None)
    low, high = min(test.interval[0], measured), max(test.interval[1], measured)
    significant = bool(test.significant) and abs(measured) > floor and not low <= 0 <= high
    return replace(test, value=measured, interval=(low, high), significant=significant)


def _without(steps: Samples, times: Samples) -> Samples:
    rest = [[step - time for step, time in zip(side, own, strict=True)] for side, own in zip(steps, times, strict=True)]
    return rest[0], rest[1]


def _scatter(samples: Sequence[Sequence[float]]) -> float:
    """Return the sum of squared deviations within the sides."""
    return sum((x - middle) ** 2 for side in samples for middle in [fmean(side)] for x in side)
