"""Test each line and bar of a comparison against chance, by its times in both sides' units of observation."""

from collections.abc import Sequence

import polars as pl

from trace_analyzer.compare import statistics
from trace_analyzer.compare.profiles import Profile
from trace_analyzer.compare.statistics import Difference

_ROWS = ("before_rows", "after_rows")


def against_chance(groups: pl.DataFrame, before: Profile, after: Profile, *, floor: float) -> list[Difference]:
    """Return the test of each group of rows, in their order.

    ``groups`` needs difference_ns, and before_rows and after_rows, the lists of its rows on both sides. Differences of
    at most ``floor`` ns per step are not significant. Interval and significance are None with too few steps.
    """
    differences = groups.get_column("difference_ns").to_list()
    sides, columns = (before, after), groups.select(_ROWS)
    if any(side.units is None or len(side.weights()) < 2 for side in sides):
        return [Difference(value, None, None, None) for value in differences]
    large = groups.get_column("difference_ns").abs() > floor
    asked = columns.with_row_index("group").filter(large)
    times = [
        _times(asked.select("group", pl.col(column).alias("row")), side)
        for side, column in zip(sides, _ROWS, strict=True)
    ]
    independent = (before.are_recordings_units, after.are_recordings_units)
    return [
        statistics.difference(*(side[group] for side in times), floor=floor, independent=independent)
        if group in times[0]
        else Difference(value, None, False, None)
        for group, value in enumerate(differences)
    ]


def _times(groups: pl.DataFrame, side: Profile) -> dict[int, Sequence[float]]:
    """Return the time per step of each group (group, row: a list) by unit of observation; 0 where it has none."""
    assert side.units is not None
    weights = side.weights()
    rows = groups.explode("row").drop_nulls()
    sums = rows.join(side.units, on="row").group_by("group", "unit").agg(pl.col("total_ns").sum())
    times = {group: [0.0] * len(weights) for group in groups.get_column("group")}
    for group, unit, total in sums.iter_rows():
        times[group][unit] = total / weights[unit]
    return times  # type: ignore[return-value]
