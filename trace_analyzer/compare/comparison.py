"""Hold the result of a comparison: how two sides' steps differ, line by line, without remainder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Annotated, Literal

import polars as pl

from trace_analyzer.compare.judgement import InputChange, KeptPromise, Likeness
from trace_analyzer.compare.profiles import Profile
from trace_analyzer.compare.statistics import Adjustment
from trace_analyzer.results import Result

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
    outer: Annotated[float, "By operator, or finer."]
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
class RankChange:
    """Hold the time per step of a rank that both jobs have; own work is neither idle nor communication."""

    rank: Annotated[int, "Number of the rank."]
    role: Annotated[str | None, "Name of the ranks that make the same calls, in BEFORE; null where none is known."]
    before_ns: Annotated[float, "Time of a step of BEFORE, ns."]
    after_ns: Annotated[float, "Time of a step of AFTER, ns."]
    own_work_ns: Annotated[float, "Difference of its own work, AFTER minus BEFORE, ns per step."]
    communication_ns: Annotated[float, "Difference of communication that holds the device, ns per step."]
    idle_ns: Annotated[float, "Difference of idle time, ns per step."]


@dataclass(frozen=True, repr=False)
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
    whole: Annotated[bool, "Whether whole recordings are compared, as not both sides have steps."] = False
    needed_steps: Annotated[
        int | None, "Observations a side that would show this difference; null where it is within the floor."
    ] = None
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
    ranks: Annotated[
        tuple[RankChange, ...], "Ranks of both sides, where each is a job, largest change of own work first."
    ] = ()
    notes: Annotated[tuple[str, ...], "What to know before trusting it."] = ()
    matches: Annotated[pl.DataFrame, "Frame behind the lines, for plots; no part of the JSON."] = field(
        default_factory=pl.DataFrame, repr=False, compare=False
    )
    sides: Annotated[tuple[Profile, ...], "Profiles of both sides, for plots; no part of the JSON."] = field(
        default=(), repr=False, compare=False
    )

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
