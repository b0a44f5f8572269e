"""Compare two sides: what differs between their steps, line by line, without remainder."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import polars as pl

from trace_analyzer import forks
from trace_analyzer.compare import judgement, matching, statistics
from trace_analyzer.compare.adjustment import Adjustment, step_difference
from trace_analyzer.compare.decomposition import with_split
from trace_analyzer.compare.judgement import InputChange, Likeness
from trace_analyzer.compare.profiles import Profile, in_parts
from trace_analyzer.compare.promises import KeptPromise, kept_promises
from trace_analyzer.results import Result
from trace_analyzer.version import tool_version

SCHEMA_VERSION = 1
Status = Literal["ok", "refused"]


@dataclass(frozen=True)
class Side:
    """Describe one side: its steps (or units of work) on the judged device, and its verdict."""

    path: str
    recordings: int
    steps: int
    total_ns: int
    step_ns: float
    verdict: str | None
    cause: str | None
    headline: str
    device: str | None


@dataclass(frozen=True)
class MatchedRatio:
    """Hold the share of kernel time that was matched: the lower of both sides.

    ``call`` is by call, ``outer`` by outer operator or finer, ``module`` by module or finer, ``bucket`` by bucket or finer: at all.
    """

    call: float
    outer: float
    module: float
    bucket: float


@dataclass(frozen=True)
class Line:
    """Hold one line of the difference.

    Totals are over all steps of a side, and sum to its ``total_ns``; ``difference_ns`` and what it splits into are per step. Counts are null
    where the level counts nothing. ``significant`` is null where too few steps were recorded.
    """

    kind: Literal["idle", "kernel", "copy", "communication"]
    name: str
    level: str
    category: str
    phase: str | None
    module: str | None
    before_total_ns: int
    after_total_ns: int
    before_count: int | None
    after_count: int | None
    difference_ns: float
    by_count_ns: float
    by_time_ns: float
    by_hardware_ns: float | None
    by_software_ns: float | None
    interval_ns: tuple[float, float] | None
    significant: bool | None


@dataclass(frozen=True)
class Bar:
    """Hold one bar of a waterfall: time a step of each side, and the difference with its split."""

    name: str
    kind: str
    before_ns: float
    after_ns: float
    difference_ns: float
    by_count_ns: float
    by_time_ns: float


@dataclass(frozen=True)
class DeviceChange:
    """Hold what a step of one of several devices takes, and how much of it the device idles, in ns a step.

    Null where a side lacks the device.
    """

    device: str
    is_compared: bool
    before_ns: float | None
    after_ns: float | None
    before_idle_ns: float | None
    after_idle_ns: float | None


@dataclass(frozen=True)
class Comparison(Result):
    """Hold what a comparison says; ``lines`` sum to the difference of the steps without remainder.

    ``same_work`` and ``same_program`` are null where a saved report keeps no calls. ``interval_ns`` is the 95 % confidence interval of ``difference_ns``; ``detectable_ns`` the difference that as many steps would have found
    with a chance of 80 %. ``adjustment`` is set where these are of the step without a line that comes and goes by chance. ``are_recordings_units`` says whether each side is several recordings: else a difference is one of the recordings.
    ``unit_of_work`` is how many units of work of the one side a step of the other holds. ``waterfall`` has lists by cause, group of buckets, bucket, operator and module, each
    of which sums to the difference. ``devices`` are all devices of both sides where one of these has several: the lines are of the one that is
    compared. ``matches`` is the frame behind the lines.
    """

    schema_version: int
    tool_version: str
    status: Status
    reason: str | None
    headline: str
    same_work: bool | None
    same_program: bool | None
    before: Side | None
    after: Side | None
    difference_ns: float | None = None
    interval_ns: tuple[float, float] | None = None
    significant: bool | None = None
    detectable_ns: float | None = None
    adjustment: Adjustment | None = None
    are_recordings_units: bool = False
    unit_of_work: int = 1
    matched_ratio: MatchedRatio | None = None
    likeness: Likeness | None = None
    input_changes: tuple[InputChange, ...] = ()
    waterfall: Mapping[str, tuple[Bar, ...]] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()
    promises: tuple[KeptPromise, ...] = ()
    devices: tuple[DeviceChange, ...] = ()
    notes: tuple[str, ...] = ()
    matches: pl.DataFrame = field(default_factory=pl.DataFrame, repr=False, compare=False)
    sides: tuple[Profile, ...] = field(default=(), repr=False, compare=False)

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
    """Compare two sides of which the owners were summed up. Raises ``ForkedError`` where Polars would hang."""
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
    """Return a comparison that says nothing but why."""
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
        waterfall=_waterfalls(table, before.steps, after.steps),
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
    """Return the steps of all devices, paired by their label; the compared one's by that of AFTER."""
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
    """Return the shares of kernel time by level; of all device work where no kernel owns time."""
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
    """Return the expression for the name of the line that a match belongs to, by its level."""
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
"""What matches of one line share."""
_SUMS = (
    "before_total_ns",
    "after_total_ns",
    "difference_ns",
    "by_count_ns",
    "by_time_ns",
)


def _lines(table: pl.DataFrame, before: Profile, after: Profile, floor: float) -> tuple[Line, ...]:
    """Sum up the matches by kind, level, phase, name and category, the greatest difference first."""
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
    samples = _samples(frame, before, after)
    lines = []
    for number, row in enumerate(frame.drop("before_rows", "after_rows").iter_rows(named=True)):
        tested = samples is not None and abs(row["difference_ns"]) > floor
        real = (
            statistics.difference(
                *((s.get(number, [0.0] * n)) for s, n in samples),  # type: ignore[union-attr]
                floor=floor,
                independent=(before.are_recordings_units, after.are_recordings_units),
            )
            if tested
            else None
        )
        lines.append(
            Line(
                **row,
                interval_ns=real.interval if real else None,
                significant=real.significant if real else _below(samples),
            )
        )
    return tuple(lines)


def _below(samples: object) -> bool | None:
    """Return whether a difference under the floor is significant: it is not, where that can be tested."""
    return None if samples is None else False


def _samples(lines: pl.DataFrame, before: Profile, after: Profile) -> list[tuple[dict[int, list[float]], int]] | None:
    """Return for each side the time a step of each line by unit of observation, and how many units there are."""
    samples = []
    for side, column in ((before, "before_rows"), (after, "after_rows")):
        weights = side.weights()
        if side.units is None or len(weights) < 2:
            return None
        rows = lines.with_row_index("line").select("line", pl.col(column).alias("row")).explode("row").drop_nulls()
        sums = rows.join(side.units, on="row").group_by("line", "unit").agg(pl.col("total_ns").sum())
        times: dict[int, list[float]] = {}
        for line, unit, total in sums.iter_rows():
            times.setdefault(line, [0.0] * len(weights))[unit] = total / weights[unit]
        samples.append((times, len(weights)))
    return samples


def _waterfalls(table: pl.DataFrame, before_steps: int, after_steps: int) -> dict[str, tuple[Bar, ...]]:
    """Sum up the difference by cause, group, bucket, operator and module; each sums to the difference."""
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
        _bars(table.lazy(), name, before_steps, after_steps, keeps_kinds=by in ("cause", "group", "bucket"))
        for by, name in names.items()
    ]
    frames = pl.collect_all(queries)
    return {
        by: tuple(Bar(**row) for row in frame.iter_rows(named=True)) for by, frame in zip(names, frames, strict=True)
    }


def _bars(
    table: pl.LazyFrame, name: pl.Expr, before_steps: int, after_steps: int, *, keeps_kinds: bool
) -> pl.LazyFrame:
    """Return the query of the columns of `Bar`, the greatest difference first."""
    is_idle = pl.col("kind") == "idle"
    kind = (
        pl.col("kind") if keeps_kinds else pl.when(is_idle).then(pl.lit("idle")).otherwise(pl.lit("work")).alias("kind")
    )
    return (
        table.group_by(name.alias("name"), kind, maintain_order=True)
        .agg(pl.col(*_SUMS).sum())
        .sort(pl.col("difference_ns").abs(), "name", "kind", descending=[True, False, False])
        .select(
            "name",
            "kind",
            (pl.col("before_total_ns") / before_steps).alias("before_ns"),
            (pl.col("after_total_ns") / after_steps).alias("after_ns"),
            "difference_ns",
            "by_count_ns",
            "by_time_ns",
        )
    )
