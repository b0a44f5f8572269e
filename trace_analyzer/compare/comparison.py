"""The result of a comparison: how two sides' steps differ, line by line, without remainder.

What text, page and plots show of it is computed here: counts and times per step, waterfalls and flame graphs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, mean, median
from typing import Annotated, Literal

import polars as pl
from msgspec import Struct

from trace_analyzer.catalog.kernels import is_line, line_label
from trace_analyzer.compare import judgement, profiles, statistics
from trace_analyzer.results import Result

SCHEMA_VERSION = 1
Status = Literal["ok", "refused"]


class Side(Struct, frozen=True):
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


class MatchedRatio(Struct, frozen=True):
    """The share of kernel time that was matched, from 0 to 1: the lower of the two sides' shares."""

    call: Annotated[float, "Call by call: equal phase, module, operator and shapes."]
    outer: Annotated[float, "By operator, or finer."]
    module: Annotated[float, "By module, or finer."]
    bucket: Annotated[float, "By bucket, or finer: matched at all."]


class Line(Struct, frozen=True):
    """One line of the difference.

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


class Bar(Struct, frozen=True):
    """One bar of a waterfall: the time per step of each side, and the difference with its parts."""

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


def bar_label(bar: Bar) -> str:
    """Return the label of a bar; operators and modules keep their names."""
    return line_label(bar.name) if bar.kind != "work" or is_line(bar.name) else bar.name


class DeviceChange(Struct, frozen=True):
    """The time per step on one of several devices, and the idle time in it."""

    device: Annotated[str, "The device's id in the file."]
    is_compared: Annotated[bool, "Whether the lines are of this device."]
    before_ns: Annotated[float | None, "Time of a step of BEFORE, ns; null where it lacks the device."]
    after_ns: Annotated[float | None, "Time of a step of AFTER, ns; null where it lacks the device."]
    before_idle_ns: Annotated[float | None, "Idle time of a step of BEFORE, ns; null where it lacks the device."]
    after_idle_ns: Annotated[float | None, "Idle time of a step of AFTER, ns; null where it lacks the device."]


class RankChange(Struct, frozen=True):
    """The time per step of a rank that both jobs have; own work is neither idle nor communication."""

    rank: Annotated[int, "Number of the rank."]
    role: Annotated[str | None, "Name of the ranks that make the same calls, in BEFORE; null where none is known."]
    before_ns: Annotated[float, "Time of a step of BEFORE, ns."]
    after_ns: Annotated[float, "Time of a step of AFTER, ns."]
    own_work_ns: Annotated[float, "Difference of its own work, AFTER minus BEFORE, ns per step."]
    communication_ns: Annotated[float, "Difference of communication that holds the device, ns per step."]
    idle_ns: Annotated[float, "Difference of idle time, ns per step."]

    @property
    def times_ns(self) -> tuple[float, ...]:
        """Return its times, in their order."""
        return self.before_ns, self.after_ns, self.own_work_ns, self.communication_ns, self.idle_ns


class Comparison(Result, frozen=True):
    """The difference of two sides; ``lines`` sum to the difference of the steps without remainder.

    Both sides are in steps, or in units of work where steps do not correspond.
    """

    PLOTTED = ("matches", "sides")

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
        statistics.Adjustment | None, "The test without a line that varies by chance; null without such a line."
    ] = None
    are_recordings_units: Annotated[bool, "Whether each recording is an observation; else each step is."] = False
    whole: Annotated[bool, "Whether whole recordings are compared, as not both sides have steps."] = False
    needed_steps: Annotated[
        int | None, "Observations a side that would show this difference; null where it is within the floor."
    ] = None
    unit_of_work: Annotated[
        int, "Units of work in a step: above 1 where AFTER does more, below -1 where BEFORE does."
    ] = 1
    matched_ratio: Annotated[MatchedRatio | None, "Share of kernel time that was matched, by level."] = None
    likeness: Annotated[judgement.Likeness | None, "How alike the programs are; null where calls are not known."] = None
    input_changes: Annotated[
        tuple[judgement.InputChange, ...], "Sizes of inputs that changed, where the program is the same."
    ] = ()
    waterfall: Annotated[
        Mapping[str, tuple[Bar, ...]], "By cause, group, bucket, operator and module: bars that sum to the difference."
    ] = {}
    lines: Annotated[tuple[Line, ...], "Lines of the difference."] = ()
    promises: Annotated[tuple[judgement.KeptPromise, ...], "Advice on BEFORE that AFTER shows."] = ()
    devices: Annotated[tuple[DeviceChange, ...], "Devices of both sides, where a side has several."] = ()
    ranks: Annotated[
        tuple[RankChange, ...], "Ranks of both sides, where each is a job, largest change of own work first."
    ] = ()
    notes: Annotated[tuple[str, ...], "What to know before trusting it."] = ()
    matches: Annotated[pl.DataFrame, "Frame behind the lines, for plots; no part of the JSON."] = pl.DataFrame()
    sides: Annotated[tuple[profiles.Profile, ...], "Profiles of both sides, for plots; no part of the JSON."] = ()

    @property
    def of_ranks(self) -> tuple[float, RankChange, float]:
        """Return the usual change of own work, the rank farthest from it, and the mean change of communication.

        The usual one is the median of the rank's role, or that of all ranks where its role has fewer than three.
        """
        of_all = [item.own_work_ns for item in self.ranks]
        by_role = {
            item.role: [other.own_work_ns for other in self.ranks if other.role == item.role] for item in self.ranks
        }
        usual_of = {role: median(own if len(own) > 2 else of_all) for role, own in by_role.items()}
        first = max(self.ranks, key=lambda item: abs(item.own_work_ns - usual_of[item.role]))
        usual = usual_of[first.role]
        return usual, first, mean(item.communication_ns for item in self.ranks)

    @property
    def both(self) -> tuple[Side, Side]:
        """Return both sides of a comparison that is not refused."""
        assert self.before is not None
        assert self.after is not None
        return self.before, self.after

    @property
    def floor_ns(self) -> float:
        """Return the difference of a step up to which any may be chance."""
        return statistics.floor_of(*(side.step_ns for side in self.both))


_MOST_BARS = 12
_LEAST_BAR = 0.01
"""Bars below this share of the largest one are too short to be visible, and are merged."""
_DEPTH = 9
"""Number of levels of the flame graph: the step, the kind of time, modules, the operator."""
_LEAST_SHARE = 0.002
"""Frames of the flame graph below this share of the step are not drawn."""
_EVEN = 0.02
"""Frames whose sides differ by at most this share count as equal."""
_KINDS = {"idle": "Idle", "kernel": "Kernels", "copy": "Copies", "communication": "Communication"}
"""Labels of the kinds of time, the flame graph's second level."""


def counts_a_step(line: Line, result: Comparison) -> tuple[float, float] | None:
    """Return a line's number of calls or gaps per step of each side; None where its level has no counts."""
    if line.before_count is None or line.after_count is None:
        return None
    before, after = result.both
    return line.before_count / before.steps, line.after_count / after.steps


def times_a_step(line: Line, result: Comparison) -> tuple[float, float]:
    """Return the time of a line per step of each side, ns; both sides must have steps."""
    before, after = result.both
    return line.before_total_ns / before.steps, line.after_total_ns / after.steps


class WaterfallRow(Struct, frozen=True):
    """A bar of a waterfall, from the end of the previous bar; ``difference_ns`` is None for the two whole steps.

    ``within_chance`` is true where the difference is not significant.
    """

    name: str
    start_ns: float
    end_ns: float
    difference_ns: float | None = None
    within_chance: bool = False


def waterfall_rows(bars: Sequence[Bar], before_ns: float, after_ns: float) -> list[WaterfallRow]:
    """Return the bars from the step before to the step after, largest changes first; the rest is one bar."""
    least = _LEAST_BAR * max((abs(bar.difference_ns) for bar in bars), default=0.0)
    shown = [bar for bar in bars if abs(bar.difference_ns) > least][:_MOST_BARS]
    changes = [(bar_label(bar), bar.difference_ns, bar.significant is False) for bar in shown]
    if len(bars) > len(shown):
        changes.append(("all others", after_ns - before_ns - sum(bar.difference_ns for bar in shown), False))
    rows, level = [WaterfallRow("before", 0.0, before_ns)], before_ns
    for name, change, within_chance in changes:
        rows.append(WaterfallRow(name, level, level + change, change, within_chance))
        level += change
    return [*rows, WaterfallRow("after", 0.0, after_ns)]


class FlameRow(Struct, frozen=True):
    """A drawn frame: the place of its caller (-1 for the step), its width, and the time per step of both sides, in ns."""

    name: str
    caller: int
    width_ns: float
    before_ns: float
    after_ns: float

    @property
    def change(self) -> str:
        """Return ``slower``, ``faster`` or, within 2 %, ``even``."""
        difference = self.after_ns - self.before_ns
        if abs(difference) <= _EVEN * max(self.before_ns, self.after_ns):
            return "even"
        return "slower" if difference > 0 else "faster"


def flame_rows(result: Comparison) -> list[FlameRow]:
    """Return the frames of the differential flame graph, the step first, and callees behind their callers.

    Each has the width of the larger side, including its children, so that removed work is visible too.
    """
    before, after = result.both
    table = result.matches.select(
        "kind", "category", "module", pl.coalesce("operator", "outer_operator", "kernel", "category").alias("operator"),
        (pl.col("before_total_ns") / before.steps).alias("before"), (pl.col("after_total_ns") / after.steps).alias("after"),
    )  # fmt: skip
    sums: dict[tuple[str, ...], tuple[float, float]] = {("step",): (0.0, 0.0)}
    for kind, category, module, operator, one, other in table.iter_rows():
        own = line_label(category) if kind == "idle" or operator == category else operator
        modules = [] if kind == "idle" else (module or "").split("/")
        path = ("step", *[part for part in (_KINDS[kind], *modules, own) if part][: _DEPTH - 1])
        for depth in range(1, len(path) + 1):
            earlier = sums.get(path[:depth], (0.0, 0.0))
            sums[path[:depth]] = earlier[0] + one, earlier[1] + other
    callees = defaultdict[tuple[str, ...], list[tuple[str, ...]]](list)
    for path in sums:
        callees[path[:-1]].append(path)
    widths: dict[tuple[str, ...], float] = {}
    for path in sorted(sums, key=len, reverse=True):
        widths[path] = max(*sums[path], sum(widths[callee] for callee in callees[path]))
    rows: list[FlameRow] = []

    def add(path: tuple[str, ...], caller: int) -> None:
        if widths[path] >= _LEAST_SHARE * widths["step",]:
            place = len(rows)
            rows.append(FlameRow(path[-1], caller, widths[path], *sums[path]))
            for callee in sorted(callees[path], key=lambda item: (-widths[item], item[-1])):
                add(callee, place)

    add(("step",), -1)
    return rows


def scale_ends(rows: Sequence[WaterfallRow]) -> tuple[float, float]:
    """Return the axis range of a waterfall in ns: from 0, or from below all changes where they are close together."""
    ends = [end for row in rows if row.difference_ns is not None for end in (row.start_ns, row.end_ns)] or [
        row.end_ns for row in rows
    ]
    low, high = min(ends), max(*ends, rows[0].end_ns, rows[-1].end_ns)
    start = max(0.0, low - 0.3 * (high - low)) if high - low < 0.4 * high else 0.0
    return start, high + 0.35 * (high - start)  # room for the text of the longest bar on a phone


def times_by_colour(rows: Iterable[tuple[str, str, int]], most_names: int = 3) -> list[tuple[str, str]]:
    """Return the ten colours with most time, each after its ``most_names`` categories with most time.

    ``rows`` are colour, category and time, ns.
    """
    sums, names = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for colour, category, ns in rows:
        sums[colour] += ns
        names[colour][line_label(category)] += ns
    return [
        (", ".join(name for name, _ in names[colour].most_common(most_names)), colour)
        for colour, _ in sums.most_common(10)
    ]


def role_rows(result: Comparison) -> list[tuple[str, list[int], list[float]]]:
    """Return each role of a job with several, its ranks, and the means of their times, ns, as `RankChange` has them."""
    roles = sorted({item.role for item in result.ranks if item.role is not None}, key=lambda role: (len(role), role))
    return [
        (role, sorted(item.rank for item in own), [*map(fmean, zip(*(item.times_ns for item in own), strict=True))])
        for role in (roles if len(roles) > 1 else ())
        for own in [[item for item in result.ranks if item.role == role]]
    ]
