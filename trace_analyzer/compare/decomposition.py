"""Split the difference of each match exactly into the effect of the number of calls and the effect of their time."""

from fractions import Fraction

import polars as pl


def split(
    before_ns: int, after_ns: int, before_count: Fraction | int | None, after_count: Fraction | int | None
) -> tuple[Fraction, Fraction]:
    """Split a difference into (by count, by time).

    With n calls of mean time m, by count is (n' - n)(m + m')/2, and by time is (m' - m)(n + n')/2. Both change sign
    when the sides are swapped, and sum to n'm' - nm without an interaction term (the Shapley value of two factors,
    Shapley 1953). Without counts, all is by time; work on one side only is by count. Arguments are all totals, or all
    per step.
    """
    change = Fraction(after_ns) - Fraction(before_ns)
    if before_count is None or after_count is None:
        return Fraction(0), change
    if not before_count or not after_count:
        return change, Fraction(0)
    means = Fraction(before_ns) / Fraction(before_count) + Fraction(after_ns) / Fraction(after_count)
    by_count = (Fraction(after_count) - Fraction(before_count)) * means / 2
    return by_count, change - by_count


def with_split(matches: pl.DataFrame, before_steps: int, after_steps: int) -> pl.DataFrame:
    """Add difference_ns, by_count_ns and by_time_ns, per step.

    Where every kernel has a roof, also add by_hardware_ns and by_software_ns.

    By hardware is the change of the time at the roof, by software the change of the time lost relative to it.
    """
    n, m = pl.col("before_count") / before_steps, pl.col("after_count") / after_steps
    before, after = pl.col("before_total_ns") / before_steps, pl.col("after_total_ns") / after_steps
    change = after - before
    is_counted = pl.col("before_count").is_not_null() & pl.col("after_count").is_not_null()
    by_count = (
        pl.when(~is_counted)
        .then(0.0)
        .when((n == 0) | (m == 0))
        .then(change)
        .otherwise((m - n) * (before / n + after / m) / 2)
    )
    roof = pl.col("after_roof_ns") / after_steps - pl.col("before_roof_ns") / before_steps
    is_roofed = (
        (pl.col("kind") == "kernel")
        & (pl.col("before_known_ns") == pl.col("before_total_ns"))
        & (pl.col("after_known_ns") == pl.col("after_total_ns"))
        & (pl.col("before_roof_ns") + pl.col("after_roof_ns") > 0)
    )
    return matches.with_columns(change.alias("difference_ns"), by_count.alias("by_count_ns")).with_columns(
        (pl.col("difference_ns") - pl.col("by_count_ns")).alias("by_time_ns"),
        pl.when(is_roofed).then(roof).alias("by_hardware_ns"),
        pl.when(is_roofed).then(change - roof).alias("by_software_ns"),
    )
