"""Compare two sides: how their steps differ, line by line, without remainder."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import polars as pl

from trace_analyzer import forks
from trace_analyzer.compare import judgement, matching, statistics
from trace_analyzer.compare.adjustment import Adjustment, step_difference
from trace_analyzer.compare.decomposition import with_split
from trace_analyzer.compare.judgement import InputChange, Likeness
from trace_analyzer.compare.profiles import Profile, in_parts
from trace_analyzer.compare.promises import KeptPromise, kept_promises
from trace_analyzer.compare.significance import against_chance
from trace_analyzer.results import Result
from trace_analyzer.version import tool_version

SCHEMA_VERSION = 1
Status = Literal["ok", "refused"]


@dataclass(frozen=True)
class Side:
    """Describe one side: its steps (or units of work) on the compared device, and its verdict."""

    path: Annotated[str, "File or folder, as it was given."]
    recordings: Annotated[int, "Recordings that were summed up."]
    steps: Annotated[int, "Steps, or units of work."]
    total_ns: Annotated[int, "Time of all steps, ns."]
    step_ns: Annotated[float, "Mean time of a step, ns."]
    verdict: Annotated[str | None, "Regime of its verdict; null where it has none."]
    cause: Annotated[str | None, "Cause of the regime; null where it has none."]
    headline: Annotated[str, "Its verdict in a sentence."]
    device: Annotated[str | None, "Name of the device that it ran on; null where it is not recorded."]


@dataclass(frozen=True)
class MatchedRatio:
    """Hold the share of kernel time that was matched, from 0 to 1: the lower of the two sides' shares."""

    call: Annotated[float, "Call by call: equal phase, module, operator and shapes."]
    outer: Annotated[float, "By outer operator, or finer."]
    module: Annotated[float, "By module, or finer."]
    bucket: Annotated[float, "By bucket, or finer: matched at all."]


@dataclass(frozen=True)
class Line:
    """Hold one line of the difference.

    Totals are over all steps of a side, and sum to its ``total_ns``. ``difference_ns`` and its parts are per step.
    """

    kind: Annotated[Literal["idle", "kernel", "copy", "communication"], "What the device did in this time."]
    name: Annotated[str, "Cause of idle time, operator or kernel."]
    level: Annotated[str, "Finest level at which both sides have it, or `new` or `removed`."]
    category: Annotated[str, "Bucket, cause of idle time or direction of copies."]
    phase: Annotated[str | None, "Forward, backward or optimizer; null where it is not known."]
    module: Annotated[str | None, "Module, null where none was recorded."]
    before_total_ns: Annotated[int, "Time in all steps of BEFORE, ns."]
    after_total_ns: Annotated[int, "Time in all steps of AFTER, ns."]
    before_count: Annotated[int | None, "Times that it ran in BEFORE; null where the level counts nothing."]
    after_count: Annotated[int | None, "Times that it ran in AFTER; null where the level counts nothing."]
    difference_ns: Annotated[float, "Difference per step, AFTER minus BEFORE, ns."]
    by_count_ns: Annotated[float, "Part of the difference due to the number of calls, ns."]
    by_time_ns: Annotated[float, "Part of the difference due to the time per call, ns."]
    by_hardware_ns: Annotated[float | None, "Change of the time at the roof, ns; null where not all work is known."]
    by_software_ns: Annotated[float | None, "Change of the time over the roof, ns; null where not all work is known."]
    interval_ns: Annotated[
        tuple[float, float] | None,
        "95 % confidence interval of the difference, ns; null where too few steps were recorded.",
    ]
    significant: Annotated[bool | None, "Whether it is more than chance; null where too few steps were recorded."]


@dataclass(frozen=True)
class Bar:
    """Hold one bar of a waterfall: the time per step of each side, and the difference with its parts."""

    name: Annotated[str, "What the bar is of: a cause, group, bucket, operator or module."]
    kind: Annotated[str, "What the device did in this time."]
    before_ns: Annotated[float, "Time of a step of BEFORE, ns."]
    after_ns: Annotated[float, "Time of a step of AFTER, ns."]
    difference_ns: Annotated[float, "AFTER minus BEFORE, ns per step."]
    by_count_ns: Annotated[float, "Part of the difference due to the number of calls, ns."]
    by_time_ns: Annotated[float, "Part of the difference due to the time per call, ns."]
    interval_ns: Annotated[
        tuple[float, float] | None,
        "95 % confidence interval of the difference, ns; null where too few steps were recorded, or it is under the floor.",
    ] = None
    significant: Annotated[bool | None, "Whether it is more than chance; null where too few steps were recorded."] = (
        None
    )


@dataclass(frozen=True)
class DeviceChange:
    """Hold the time per step on one of several devices, and the idle time in it."""

    device: Annotated[str, "The device's id in the file."]
    is_compared: Annotated[bool, "Whether the lines are of this device."]
    before_ns: Annotated[float | None, "Time of a step of BEFORE, ns; null where it lacks the device."]
    after_ns: Annotated[float | None, "Time of a step of AFTER, ns; null where it lacks the device."]
    before_idle_ns: Annotated[float | None, "Idle time of a step of BEFORE, ns; null where it lacks the device."]
    after_idle_ns: Annotated[float | None, "Idle time of a step of AFTER, ns; null where it lacks the device."]


@dataclass(frozen=True)
class Comparison(Result):
    """Hold the difference of two sides; ``lines`` sum to the difference of the steps without remainder.

    Both sides are in steps, or in units of work where steps do not correspond.
    """

    schema_version: Annotated[int, "Version of this schema."]
    tool_version: Annotated[str, "Version of the program that wrote it."]
    status: Annotated[Status, "Whether the sides could be compared."]
    reason: Annotated[str | None, "Why the comparison is refused; null where it is not."]
    headline: Annotated[str, "The comparison in a sentence."]
    same_work: Annotated[
        bool | None, "Whether equal calls hold half of each side's kernel time; null where calls are not known."
    ]
    same_program: Annotated[bool | None, "Whether both sides run the same program; null where calls are not known."]
    before: Annotated[Side | None, "The first side; null where it has no steps."]
    after: Annotated[Side | None, "The second side; null where it has no steps."]
    difference_ns: Annotated[float | None, "Difference per step, AFTER minus BEFORE, ns."] = None
    interval_ns: Annotated[
        tuple[float, float] | None, "95 % confidence interval of the difference, ns; null for too few observations."
    ] = None
    significant: Annotated[
        bool | None, "Whether the difference is more than chance; null for too few observations."
    ] = None
    detectable_ns: Annotated[
        float | None, "Difference that as many observations would show with a chance of 80 %, ns."
    ] = None
    adjustment: Annotated[
        Adjustment | None, "The test without a line that varies by chance; null without such a line."
    ] = None
    are_recordings_units: Annotated[bool, "Whether each recording is an observation; else each step is."] = False
    unit_of_work: Annotated[
        int, "Units of work in a step: above 1 where AFTER does more, below -1 where BEFORE does."
    ] = 1
    matched_ratio: Annotated[MatchedRatio | None, "Share of kernel time that was matched, by level."] = None
    likeness: Annotated[Likeness | None, "How alike the programs are; null where calls are not known."] = None
    input_changes: Annotated[
        tuple[InputChange, ...], "Sizes of inputs that changed, where the program is the same."
    ] = ()
    waterfall: Annotated[
        Mapping[str, tuple[Bar, ...]], "By cause, group, bucket, operator and module: bars that sum to the difference."
    ] = field(default_factory=dict)
    lines: Annotated[tuple[Line, ...], "Lines of the difference."] = ()
    promises: Annotated[tuple[KeptPromise, ...], "Advice on BEFORE that AFTER shows."] = ()
    devices: Annotated[tuple[DeviceChange, ...], "Devices of both sides, where a side has several."] = ()
    notes: Annotated[tuple[str, ...], "What to know before trusting it."] = ()
    matches: Annotated[pl.DataFrame, "Frame behind the lines, for plots; no part of the JSON."] = field(
        default_factory=pl.DataFrame, repr=False, compare=False
    )
    sides: Annotated[tuple[Profile, ...], "Profiles of both sides, for plots; no part of the JSON."] = field(
        default=(), repr=False, compare=False
    )

    def summary(self, width: int = 100) -> str:
        """Return the comparison as plain text, ``width`` cells wide."""
        from trace_analyzer.compare.text import summary

        return summary(self, width)

    def to_markdown(self) -> str:
        """Return the comparison as Markdown, for pull requests."""
        from trace_analyzer.compare.text import to_markdown

        return to_markdown(self)

    def to_html(self, path: str | Path) -> Path:
        """Write the comparison as one offline HTML file and return its path.

        Raises ``OSError`` when it cannot be written.
        """
        from trace_analyzer.compare.html import write_html

        return write_html(self, Path(path))


def compare_profiles(before: Profile, after: Profile) -> Comparison:
    """Compare two sides from their profiles. Raises ``ForkedError`` where Polars would hang."""
    forks.check()
    reason = judgement.refusal(before, after)
    if reason:
        return _refused(reason, before, after)
    if "parts" in (before.detail, after.detail):
        before, after = in_parts(before), in_parts(after)
    unit = judgement.unit_of_work(before, after) if before.detail == "calls" else None
    if before.has_steps != after.has_steps and unit is None:
        bare = "before" if after.has_steps else "after"
        return _refused(
            f"{bare} has no steps, and its calls do not tell how many steps of the other side it holds; call prof.step()",
            before,
            after,
        )
    if unit is not None and unit > 1:
        after = after.divided(unit)
    elif unit is not None and unit < -1:
        before = before.divided(-unit)
    return _compared(before, after, unit or 1)


def _refused(reason: str, before: Profile, after: Profile) -> Comparison:
    """Return a comparison without results, only with the reason."""
    sides = [_side(side) if side.steps else None for side in (before, after)]
    return Comparison(
        SCHEMA_VERSION,
        tool_version(),
        "refused",
        reason,
        f"Not compared: {reason.rstrip('.')}.",
        None,
        None,
        sides[0],
        sides[1],
    )


def _compared(before: Profile, after: Profile, unit: int) -> Comparison:
    from trace_analyzer.compare.phrasing import headline, notes

    table = with_split(matching.matches(before, after), before.steps, after.steps)
    matched = _matched_ratio(table)
    alike = judgement.likeness(before, after)
    are_calls_known = before.detail == "calls"
    same_work = judgement.is_same_work(matched.call, before, after) if are_calls_known else None
    same_program = judgement.is_same_program(same_work, alike) if same_work is not None else None
    floor = statistics.FLOOR_RATIO * before.total_ns / before.steps
    whole, adjustment = step_difference(before, after, floor=floor)
    result = Comparison(
        schema_version=SCHEMA_VERSION,
        tool_version=tool_version(),
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
        are_recordings_units=before.are_recordings_units and after.are_recordings_units,
        unit_of_work=unit,
        matched_ratio=matched,
        likeness=alike if are_calls_known else None,
        input_changes=judgement.input_changes(before, after) if same_program and matched.call < 1 else (),
        waterfall=_waterfalls(table, before, after, floor),
        lines=_lines(table, before, after, floor),
        promises=kept_promises(before, after, table) if same_work else (),
        devices=_devices(before, after),
        matches=table,
        sides=(before, after),
    )
    return replace(result, headline=headline(result), notes=notes(result))


def _side(side: Profile) -> Side:
    return Side(
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


def _devices(before: Profile, after: Profile) -> tuple[DeviceChange, ...]:
    """Return the steps of all devices, paired by label; the compared device is paired with that of AFTER."""
    sides = [
        {
            item.label: (item.total_ns / n, item.idle_ns / n)
            for item in side.facts.devices
            for n in [item.steps * side.unit_of_work]
        }
        for side in (before, after)
    ]
    nothing = (None, None)
    return tuple(
        DeviceChange(label, label in (before.facts.device, after.facts.device), one[0], other[0], one[1], other[1])
        for label in dict.fromkeys([*sides[0], *sides[1]])
        for one, other in [(sides[0].get(label, nothing), sides[1].get(label, nothing))]
    )


def _matched_ratio(table: pl.DataFrame) -> MatchedRatio:
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
    return MatchedRatio(**{name: min(sums[f"{name} {side}"] for side in sides) for name in matching.MATCHED})


def name_of_match() -> pl.Expr:
    """Return the expression for the name of a match's line, by its level."""
    level, category = pl.col("level"), pl.col("category")
    return (
        pl.when(pl.col("kind") == "copy")
        .then(category)
        .when(level == "outer")
        .then(pl.coalesce("outer_operator", category))
        .when(level == "module")
        .then(pl.coalesce("module", category))
        .when(level == "kernel")
        .then(pl.coalesce("kernel", category))
        .when(level.is_in(["call", "operator", "replay", "innermost", "anywhere"]))
        .then(pl.coalesce("operator", "kernel", category))
        .when(level.is_in(["new", "removed"]))
        .then(pl.coalesce("operator", "kernel", category))
        .when(level == "group")
        .then(pl.coalesce("group", category))
        .otherwise(category)
        .alias("name")
    )


LINE_KEY = ("kind", "level", "phase", "name", "category")
"""Columns that identify a line."""
_SUMS = (
    "before_total_ns",
    "after_total_ns",
    "difference_ns",
    "by_count_ns",
    "by_time_ns",
)


def _lines(table: pl.DataFrame, before: Profile, after: Profile, floor: float) -> tuple[Line, ...]:
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
    tests = against_chance(frame, before, after, floor=floor)
    rows = frame.drop("before_rows", "after_rows").iter_rows(named=True)
    return tuple(
        Line(**row, interval_ns=test.interval, significant=test.significant)
        for row, test in zip(rows, tests, strict=True)
    )


def _waterfalls(table: pl.DataFrame, before: Profile, after: Profile, floor: float) -> dict[str, tuple[Bar, ...]]:
    """Sum the difference by cause, group, bucket, operator and module; each sums to the total difference."""
    is_idle = pl.col("kind") == "idle"
    work_kind = pl.col("kind").replace({"kernel": "kernels", "copy": "copies"})
    names = {
        "cause": pl.when(is_idle).then("category").otherwise(work_kind),
        "group": pl.when(pl.col("kind") == "kernel").then(pl.coalesce("group", "category")).otherwise("category"),
        "bucket": pl.col("category"),
        "operator": pl.when(is_idle)
        .then(pl.lit("idle"))
        .otherwise(pl.coalesce("operator", "outer_operator", "category")),
        "module": pl.when(is_idle).then(pl.lit("idle")).otherwise(pl.col("module").fill_null("outside of modules")),
    }
    queries = [
        _bars(table.lazy(), name, before.steps, after.steps, keeps_kinds=by in ("cause", "group", "bucket"))
        for by, name in names.items()
    ]
    frames = pl.collect_all(queries)
    return {
        by: tuple(
            Bar(**row, interval_ns=test.interval, significant=test.significant)
            for row, test in zip(
                frame.drop("before_rows", "after_rows").iter_rows(named=True),
                against_chance(frame, before, after, floor=floor),
                strict=True,
            )
        )
        for by, frame in zip(names, frames, strict=True)
    }


def _bars(
    table: pl.LazyFrame, name: pl.Expr, before_steps: int, after_steps: int, *, keeps_kinds: bool
) -> pl.LazyFrame:
    """Return the query for the columns of `Bar`, largest difference first."""
    is_idle = pl.col("kind") == "idle"
    kind = (
        pl.col("kind") if keeps_kinds else pl.when(is_idle).then(pl.lit("idle")).otherwise(pl.lit("work")).alias("kind")
    )
    return (
        table.group_by(name.alias("name"), kind, maintain_order=True)
        .agg(pl.col(*_SUMS).sum(), pl.col("before_rows", "after_rows").list.explode())
        .sort(pl.col("difference_ns").abs(), "name", "kind", descending=[True, False, False])
        .select(
            "name",
            "kind",
            (pl.col("before_total_ns") / before_steps).alias("before_ns"),
            (pl.col("after_total_ns") / after_steps).alias("after_ns"),
            "difference_ns",
            "by_count_ns",
            "by_time_ns",
            "before_rows",
            "after_rows",
        )
    )
