"""Locate one side's differences on its timeline, and pair calls in order."""

import polars as pl

from trace_analyzer.compare.comparison import LINE_KEY, Comparison, name_of_match
from trace_analyzer.compare.phrasing import bar_label, scale_of, signed
from trace_analyzer.compare.profiles import categories
from trace_analyzer.compare.statistics import FLOOR_RATIO
from trace_analyzer.frames.intervals import coalesce
from trace_analyzer.report import Report


def differing_intervals(report: Report, result: Comparison) -> pl.DataFrame:
    """Return device, start_ns, end_ns, name: time of AFTER in the bars that differ.

    The names contain the difference per step.
    """
    assert result.before is not None
    scale, unit = scale_of(result.before.step_ns)
    floor = FLOOR_RATIO * result.before.step_ns
    names = {
        bar.name: f"{bar_label(bar)} {signed(bar.difference_ns, scale)} {unit} a step"
        for bar in result.waterfall["bucket"]
        if abs(bar.difference_ns) > floor
    }
    named = categories(report).with_columns(
        pl.col("category").replace_strict(names, default=None, return_dtype=pl.String).alias("name")
    )
    return coalesce(named.drop_nulls("name").select("device", "start_ns", "end_ns", "name"), ["device"], "name")


def parts_of_lines(result: Comparison) -> pl.DataFrame:
    """Return the parts of each line of work, by module and shapes.

    Columns: `LINE_KEY`, module, shapes, before_ns, after_ns, difference_ns (per step). The parts of a line sum to it;
    the largest difference comes first. Lines without known modules and shapes have no parts.
    """
    assert result.before is not None
    assert result.after is not None
    sums = (
        result.matches.filter(pl.col("kind") != "idle")
        .with_columns(name_of_match())
        .group_by(*LINE_KEY, "module", "shapes", maintain_order=True)
        .agg(
            (pl.col("before_total_ns").sum() / result.before.steps).alias("before_ns"),
            (pl.col("after_total_ns").sum() / result.after.steps).alias("after_ns"),
            pl.col("difference_ns").sum(),
        )
    )
    known = sums.filter(pl.any_horizontal(pl.col("module", "shapes").is_not_null()).any().over(LINE_KEY))
    return known.sort(
        pl.col("difference_ns").abs(), "module", "shapes", descending=[True, False, False], nulls_last=True
    )


def paired_calls(before: Report, after: Report, operator: str) -> pl.DataFrame:
    """Pair the calls of an operator of both reports in order, by phase and module: for example only layer 7 changed.

    Returns phase, module, number (of the call within these), before_ns, after_ns (attributed time) and difference_ns,
    largest difference first. Phases and modules with different numbers of calls on the sides have no rows.
    """
    key = ["phase", "module"]
    sides = [_calls_in_order(report, operator) for report in (before, after)]
    sizes = [side.group_by(key).len() for side in sides]
    equal = sizes[0].join(sizes[1], on=[*key, "len"], how="inner", nulls_equal=True).select(key)
    paired = sides[0].join(sides[1], on=[*key, "number"], how="inner", nulls_equal=True, suffix="_after")
    return (
        paired.join(equal, on=key, how="semi", nulls_equal=True)
        .select(*key, "number", pl.col("total_ns").alias("before_ns"), pl.col("total_ns_after").alias("after_ns"))
        .with_columns((pl.col("after_ns") - pl.col("before_ns")).alias("difference_ns"))
        .sort(pl.col("difference_ns").abs(), "number", descending=[True, False])
    )


def _calls_in_order(report: Report, operator: str) -> pl.DataFrame:
    pieces = categories(report).filter((pl.col("operator") == operator) & pl.col("activity_id").is_not_null())
    calls = pieces.group_by("operator_id", "phase", "module", maintain_order=True).agg(pl.col("total_ns").sum())
    return calls.with_columns(pl.int_range(pl.len()).over("phase", "module").alias("number"))
