"""Compare two sides: match their work, and split the difference of their steps into lines without remainder."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import polars as pl
from msgspec.structs import replace

from trace_analyzer import forks, installation, pipeline
from trace_analyzer.compare import comparison, judgement, matching, statistics
from trace_analyzer.compare.phrasing import headline, notes, scale_of, signed
from trace_analyzer.compare.profiles import Profile, categories
from trace_analyzer.compare.sides import SideSource, in_parts, profile_side
from trace_analyzer.frames.intervals import coalesce
from trace_analyzer.options import takes_options_of
from trace_analyzer.report import Report


@takes_options_of(pipeline.analyze)
def compare(
    before: SideSource, after: SideSource, *, whole: bool = False, units: tuple[int, int] | None = None, **options: Any
) -> comparison.Comparison:
    """Compare two sides: how their steps differ, line by line, without remainder.

    Each side is a path of a trace, of a folder or of a saved JSON report, a pattern such as ``runs/*.json.gz``, a
    `Report`, or a list of paths or reports. Each of several recordings counts as one observation. ``options`` are those
    of `trace_analyzer.analyze`, for sides that are paths. ``whole`` compares whole recordings instead of steps, and
    ``units`` are the numbers of units of work that those of BEFORE and of AFTER hold. An impossible comparison has the status ``refused`` and a
    reason. Raises ``InputError`` and ``UsageError`` like `analyze`.
    """

    def read(**changes: Any) -> list[Profile]:
        return [profile_side(source, partial(pipeline.analyze, **{**options, **changes})) for source in (before, after)]

    return compare_read(read, whole=whole, units=units)


def compare_read(
    read: Callable[..., Sequence[Profile]], *, whole: bool = False, units: tuple[int, int] | None = None
) -> comparison.Comparison:
    """Compare the sides that ``read`` returns; it takes options of `analyze` to change.

    The same device of both sides is compared where both have it, and whole recordings where only one side has steps and
    calls do not tell how many the other one holds.
    """
    changes: dict[str, Any] = {"step": "all"} if whole or units else {}
    before, after = read(**changes)
    there = [{device.label for device in side.facts.devices} for side in (before, after)]
    own = [side.facts.device for side in (before, after)]
    if own[0] != own[1] and (both := [label for label in own if label in there[0] & there[1]]):
        changes["device"] = both[0]
        before, after = read(**changes)
    if not changes.get("step") and judgement.refusal(before, after) is None and _unlike_steps(before, after):
        before, after = read(**changes, step="all")
    if units:
        before, after = (side.divided(count) for side, count in zip((before, after), units, strict=True))
    return compare_profiles(before, after)


def _unlike_steps(before: Profile, after: Profile) -> bool:
    """Return whether one side alone has steps, and calls do not tell how many the other one holds."""
    return before.has_steps != after.has_steps and (
        "parts" in (before.detail, after.detail) or judgement.unit_of_work(before, after) is None
    )


def compare_profiles(before: Profile, after: Profile) -> comparison.Comparison:
    """Compare two sides from their profiles. Raises ``ForkedError`` where Polars would hang."""
    forks.check()
    reason = judgement.refusal(before, after)
    if reason:
        return _refused(reason, before, after)
    if "parts" in (before.detail, after.detail):
        before, after = in_parts(before), in_parts(after)
    is_divided = before.unit_of_work > 1 or after.unit_of_work > 1
    unit = judgement.unit_of_work(before, after) if before.detail == "calls" and not is_divided else None
    if _unlike_steps(before, after):
        bare = "before" if after.has_steps else "after"
        return _refused(
            f"{bare} has no steps, and its calls do not tell how many steps of the other side it holds; analyze compare --whole compares the recordings",
            before,
            after,
        )
    if unit is not None and unit > 1:
        after = after.divided(unit)
    elif unit is not None and unit < -1:
        before = before.divided(-unit)
    return _compared(before, after, unit or 1)


def _refused(reason: str, before: Profile, after: Profile) -> comparison.Comparison:
    """Return a comparison without results, only with the reason."""
    one, other = (_side(side) if side.steps else None for side in (before, after))
    headline = f"Not compared: {reason.rstrip('.')}."
    return comparison.Comparison(
        comparison.SCHEMA_VERSION, installation.tool_version(), "refused", reason, headline, None, None, one, other
    )


def _compared(before: Profile, after: Profile, unit: int) -> comparison.Comparison:
    table = with_split(matching.matches(before, after), before.steps, after.steps)
    if len({side.facts.device_name for side in (before, after)}) == 1:  # then it is not the hardware that changed
        table = table.with_columns(pl.lit(None, pl.Float64).alias(f"by_{name}_ns") for name in ("hardware", "software"))
    matched = _matched_ratio(table)
    alike = judgement.likeness(before, after)
    are_calls_known = before.detail == "calls"
    is_whole = not (before.has_steps or after.has_steps)
    if is_whole and are_calls_known and not alike.calls and not matched.call:
        return _refused("the recordings share neither a call nor a kernel", before, after)
    same_work = judgement.is_same_work(matched.call, before, after) if are_calls_known else None
    same_program = judgement.is_same_program(same_work, alike) if same_work is not None else None
    floor = statistics.floor_of(*(side.total_ns / side.steps for side in (before, after)))
    whole, adjustment = statistics.step_difference(before, after, floor=floor)
    result = comparison.Comparison(
        schema_version=comparison.SCHEMA_VERSION,
        tool_version=installation.tool_version(),
        status="ok",
        reason=None,
        headline="",
        same_work=same_work,
        same_program=same_program,
        before=_side(before),
        after=_side(after),
        difference_ns=whole.value,
        interval_ns=whole.interval,
        significant=whole.significant,
        detectable_ns=whole.detectable,
        adjustment=adjustment,
        whole=is_whole and unit == 1,
        needed_steps=whole.needed,
        are_recordings_units=before.are_recordings_units and after.are_recordings_units,
        unit_of_work=unit,
        matched_ratio=matched,
        likeness=alike if are_calls_known else None,
        input_changes=judgement.input_changes(before, after) if same_program and matched.call < 1 else (),
        waterfall=_waterfalls(table, before, after, floor),
        lines=_lines(table, before, after, floor),
        promises=judgement.kept_promises(before, after, table) if same_work else (),
        devices=_devices(before, after),
        ranks=_ranks(before, after),
        matches=table,
        sides=(before, after),
    )
    return replace(result, headline=headline(result), notes=notes(result))


def _side(side: Profile) -> comparison.Side:
    return comparison.Side(
        path=side.path,
        recordings=len(side.recordings),
        steps=side.steps,
        total_ns=side.total_ns,
        step_ns=side.total_ns / side.steps,
        verdict=side.facts.regime,
        cause=side.facts.cause,
        headline=side.facts.headline,
        device=side.facts.device_name,
    )


def _devices(before: Profile, after: Profile) -> tuple[comparison.DeviceChange, ...]:
    """Return the steps of all devices, paired by label; the compared device is paired with that of AFTER."""
    sides = [
        {
            item.label: (item.total_ns / n, item.idle_ns / n)
            for item in side.facts.devices
            for n in [item.steps * side.unit_of_work]
        }
        for side in (before, after)
    ]
    compared, nothing = (before.facts.device, after.facts.device), (None, None)
    return tuple(
        comparison.DeviceChange(label, label in compared, one[0], other[0], one[1], other[1])
        for label in dict.fromkeys([*sides[0], *sides[1]])
        for one, other in [[side.get(label, nothing) for side in sides]]
    )


def _ranks(before: Profile, after: Profile) -> tuple[comparison.RankChange, ...]:
    """Return the ranks that both jobs have, by the change of their own work."""
    if not (before.is_job and after.is_job):
        return ()
    sides = [{r.rank: (r, len(r.lengths_ns) * side.unit_of_work) for r in side.recordings} for side in (before, after)]
    changes = [
        comparison.RankChange(
            rank,
            old.role,
            old.total_ns / n,
            new.total_ns / m,
            new.own_ns / m - old.own_ns / n,
            new.communication_ns / m - old.communication_ns / n,
            new.idle_ns / m - old.idle_ns / n,
        )
        for rank, (old, n) in sides[0].items()
        if rank is not None and rank in sides[1]
        for new, m in [sides[1][rank]]
    ]
    return tuple(sorted(changes, key=lambda change: (-abs(change.own_work_ns), change.rank)))


def _matched_ratio(table: pl.DataFrame) -> comparison.MatchedRatio:
    """Return the matched shares of kernel time by level; of all device work where no kernel took time."""
    work = table.filter(pl.col("kind") != "idle")
    kernels = work.filter(pl.col("kind") != "copy")
    sides = ["before_total_ns", "after_total_ns"]
    if 0 in kernels.select(pl.col(sides).sum()).row(0):
        kernels = work
    sums = kernels.select(
        (pl.col(side).filter(pl.col("level").is_in(levels)).sum() / pl.col(side).sum()).alias(f"{name} {side}")
        for name, levels in matching.MATCHED.items()
        for side in sides
    ).row(0, named=True)
    return comparison.MatchedRatio(**{name: min(sums[f"{name} {side}"] for side in sides) for name in matching.MATCHED})


def name_of_match() -> pl.Expr:
    """Return the expression for the name of a match's line, by its level."""
    level, category = pl.col("level"), pl.col("category")
    return (
        pl.when(pl.col("kind") == "copy").then(category)
        .when(level == "module").then(pl.coalesce("module", category))
        .when(level.is_in(["call", "operator", "replay", "anywhere", "new", "removed"]))
        .then(pl.coalesce("operator", "kernel", category))
        .when(level == "group").then(pl.coalesce("group", category))
        .otherwise(category)
        .alias("name")
    )  # fmt: skip


LINE_KEY = ("kind", "level", "phase", "name", "category")
"""Columns that identify a line."""
_SUMS = ("before_total_ns", "after_total_ns", "difference_ns", "by_count_ns", "by_time_ns")


def _lines(table: pl.DataFrame, before: Profile, after: Profile, floor: float) -> tuple[comparison.Line, ...]:
    """Sum the matches by kind, level, phase, name and category, largest difference first."""
    key = list(LINE_KEY)
    all_known = pl.col("by_hardware_ns").null_count() == 0
    frame = (
        table.with_columns(name_of_match())
        .group_by(key, maintain_order=True)
        .agg(
            pl.col(*_SUMS).sum(),
            *(
                pl.when(pl.col(c).null_count() == 0).then(pl.col(c).sum()).alias(c)
                for c in ("before_count", "after_count")
            ),
            *(pl.when(all_known).then(pl.col(c).sum()).alias(c) for c in ("by_hardware_ns", "by_software_ns")),
            pl.when(pl.col("module").n_unique() == 1).then(pl.col("module").first()).alias("module"),
            pl.col("before_rows", "after_rows").list.explode(),
        )
        .sort(pl.col("difference_ns").abs(), *key, descending=[True] + [False] * len(key), nulls_last=True)
    )
    return tuple(comparison.Line(**row) for row in _tested(frame, before, after, floor))


def _tested(frame: pl.DataFrame, before: Profile, after: Profile, floor: float) -> Iterator[dict[str, Any]]:
    """Yield the rows with the interval of their difference and whether it is more than chance, without before_rows and after_rows."""
    tests = statistics.against_chance(frame, before, after, floor=floor)
    for row, test in zip(frame.drop("before_rows", "after_rows").iter_rows(named=True), tests, strict=True):
        yield row | {"interval_ns": test.interval, "significant": test.significant}


def _waterfalls(
    table: pl.DataFrame, before: Profile, after: Profile, floor: float
) -> dict[str, tuple[comparison.Bar, ...]]:
    """Sum the difference by cause, group, bucket, operator and module, each to the total; largest difference first."""
    is_idle, kind = pl.col("kind") == "idle", pl.col("kind")
    work_kind = kind.replace({"kernel": "kernels", "copy": "copies"})
    of_work = pl.when(is_idle).then("kind").otherwise(pl.lit("work"))
    operator = pl.coalesce("operator", "outer_operator", "category")
    names = {
        "cause": (pl.when(is_idle).then("category").otherwise(work_kind), kind),
        "group": (pl.when(kind == "kernel").then(pl.coalesce("group", "category")).otherwise("category"), kind),
        "bucket": (pl.col("category"), kind),
        "operator": (pl.when(is_idle).then(kind).otherwise(operator), of_work),
        "module": (pl.when(is_idle).then(kind).otherwise(pl.col("module").fill_null("outside of modules")), of_work),
    }
    bars = {}
    for by, (name, kind_of) in names.items():
        frame = (
            table.group_by(name.alias("name"), kind_of.alias("kind"), maintain_order=True)
            .agg(pl.col(_SUMS).sum(), pl.col("before_rows", "after_rows").list.explode())
            .sort(pl.col("difference_ns").abs(), "name", "kind", descending=[True, False, False])
            .select(
                "name",
                "kind",
                (pl.col("before_total_ns") / before.steps).alias("before_ns"),
                (pl.col("after_total_ns") / after.steps).alias("after_ns"),
                pl.col(*_SUMS[2:], "before_rows", "after_rows"),
            )
        )
        bars[by] = tuple(comparison.Bar(**row) for row in _tested(frame, before, after, floor))
    return bars


def with_split(matches: pl.DataFrame, before_steps: int, after_steps: int) -> pl.DataFrame:
    """Add difference_ns, by_count_ns and by_time_ns, per step.

    With n calls of mean time m, by count is (n' - n)(m + m')/2, and by time is (m' - m)(n + n')/2. Both change sign
    when the sides are swapped, and sum to n'm' - nm without an interaction term (the Shapley value of two factors,
    Shapley 1953). Without counts, all is by time; work on one side only is by count.

    Where every kernel has a roof, also add by_hardware_ns and by_software_ns.

    By hardware is the change of the time at the roof, by software the change of the time lost relative to it.
    """
    n, m = pl.col("before_count") / before_steps, pl.col("after_count") / after_steps
    before, after = pl.col("before_total_ns") / before_steps, pl.col("after_total_ns") / after_steps
    change = after - before
    is_counted = pl.col("before_count").is_not_null() & pl.col("after_count").is_not_null()
    by_count = (
        pl.when(~is_counted).then(0.0)
        .when((n == 0) | (m == 0)).then(change)
        .otherwise((m - n) * (before / n + after / m) / 2)
    )  # fmt: skip
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


def differing_intervals(report: Report, result: comparison.Comparison) -> pl.DataFrame:
    """Return device, start_ns, end_ns, name: time of AFTER in the bars that differ.

    The names contain the difference per step.
    """
    before = result.both[0]
    scale, unit = scale_of(before.step_ns)
    floor = result.floor_ns
    names = {
        bar.name: f"{comparison.bar_label(bar)} {signed(bar.difference_ns, scale)} {unit} a step"
        for bar in result.waterfall["bucket"]
        if abs(bar.difference_ns) > floor
    }
    named = categories(report).with_columns(
        pl.col("category").replace_strict(names, default=None, return_dtype=pl.String).alias("name")
    )
    return coalesce(named.drop_nulls("name").select("device", "start_ns", "end_ns", "name"), ["device"], "name")


def parts_of_lines(result: comparison.Comparison) -> pl.DataFrame:
    """Return the parts of each line of work, by module and shapes.

    Columns: `LINE_KEY`, module, shapes, before_ns, after_ns, difference_ns (per step). The parts of a line sum to it;
    the largest difference comes first. Lines without known modules and shapes have no parts.
    """
    before, after = result.both
    sums = (
        result.matches.filter(pl.col("kind") != "idle")
        .with_columns(name_of_match())
        .group_by(*LINE_KEY, "module", "shapes", maintain_order=True)
        .agg(
            (pl.col("before_total_ns").sum() / before.steps).alias("before_ns"),
            (pl.col("after_total_ns").sum() / after.steps).alias("after_ns"),
            pl.col("difference_ns").sum(),
        )
    )
    known = sums.filter(pl.any_horizontal(pl.col("module", "shapes").is_not_null()).any().over(LINE_KEY))
    return known.sort(
        pl.col("difference_ns").abs(), "module", "shapes", descending=[True, False, False], nulls_last=True
    )
