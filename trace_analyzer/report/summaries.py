"""Summarize parts of a report, and choose the items that deserve a line, equally for all renderers."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from trace_analyzer import json_types, thresholds
from trace_analyzer.json_types import DeviceIndex
from trace_analyzer.report import Report
from trace_analyzer.report.devices import DeviceReport, FusionOpportunity, TensorCores
from trace_analyzer.report.verdicts import Blame, Check, Debiased, Predicted, StepReport, Verdict
from trace_analyzer.sections import WHOLE_TRACE, Section, Shown
from trace_analyzer.vocabulary import PARTS, UNSEEN, WORK


class PartTotals(Struct, frozen=True):
    """The parts of a window with any time, longest first: work of the device, recorded or not; idle time by cause; in ns."""

    work: Mapping[str, int]
    idle: Mapping[str, int]

    @property
    def idle_ns(self) -> int:
        """Return the sum of the idle time."""
        return sum(self.idle.values())

    @property
    def total_ns(self) -> int:
        """Return the sum of all parts."""
        return sum(self.work.values()) + self.idle_ns


def device_code(report: Report, device: DeviceIndex | None) -> int | None:
    """Return the code in tables of one of the report's devices; None where there is none."""
    labels = report.tables["devices"].select("device", "label").iter_rows()
    return next((code for code, label in labels if device is not None and label == str(device)), None)


def broken_checks(report: Report) -> list[Check]:
    """Return the checks of the trace that do not hold."""
    return [check for check in report.trust if check.status != "ok"]


class PartShare(Struct, frozen=True):
    """A part of a window with its share; ``unrecorded_ratio`` is its share without profiler overhead, if known."""

    part: str
    time_ns: int
    time_ratio: float
    unrecorded_ratio: float | None = None


PARTITION_SECTION = Section(
    "Where the time went",
    show=(
        Shown("part", "part", "word", markdown=True, phrase="part"),
        Shown("time_ratio", "share", markdown=True),
        Shown("time_ns", "time", markdown=True),
        Shown("unrecorded_ratio", "share without recording", markdown=True),
    ),
    top=True,
)


class SetAside(Struct, frozen=True):
    """The steps of one state that are not steady.

    ``limited`` is the first of them with a limit other than the verdict's; None without such a step.
    """

    state: str
    count: int
    limited: StepReport | None


class StepTotals(Struct, frozen=True):
    """Totals of one device's steps; lengths and busy ratio are those of the ``steady_count`` steady steps."""

    count: int
    steady_count: int
    median_ns: float
    shortest_ns: int
    longest_ns: int
    busy_ratio: float
    set_aside: tuple[SetAside, ...]

    @property
    def too_few(self) -> bool:
        """Return whether no step is steady though one is not set aside."""
        return not self.steady_count and sum(steps.count for steps in self.set_aside) < self.count


def part_totals(parts_ns: Mapping[str, int]) -> PartTotals:
    """Split the parts of a window into work and idle time; parts without time are left out."""
    longest = sorted(((part, ns) for part, ns in parts_ns.items() if ns > 0), key=lambda item: -item[1])
    work = {part: ns for part, ns in longest if part in (*WORK, *UNSEEN)}
    return PartTotals(work, {part: ns for part, ns in longest if part not in work})


def judged_parts(verdict: Verdict) -> Mapping[str, int]:
    """Return the partition that is judged: without recording, where the step without it was measured."""
    unbiased = verdict.debiased
    return unbiased.parts_ns if unbiased is not None and unbiased.is_measured else verdict.parts_ns


def larger_regime(verdict: Verdict) -> tuple[str, float] | None:
    """Return the regime with more of the window than the verdict's, and its share; None without one.

    Waiting can win over kernels that take longer, as it can be recovered in full (`trace_analyzer.verdict.judge`).
    """
    parts_ns = judged_parts(verdict)
    window = sum(parts_ns.values())
    sums: dict[str, int] = {}
    for part, ns in parts_ns.items():
        cure = PARTS[part].cure if part in PARTS else None
        if cure is not None:
            sums[cure[0]] = sums.get(cure[0], 0) + ns
    if verdict.regime is None or not sums:
        return None
    largest = max(sums, key=lambda regime: sums[regime])
    is_larger = sums[largest] > sums.get(verdict.regime, 0)
    return (largest, sums[largest] / window) if is_larger else None


def cause_ratio(verdict: Verdict) -> float:
    """Return the share of the window that counts as the verdict's cause."""
    parts_ns = judged_parts(verdict)
    limit = (verdict.regime, verdict.cause)
    own = sum(
        ns for part, ns in parts_ns.items() if part == verdict.cause or (part in PARTS and PARTS[part].cure == limit)
    )
    return own / max(sum(parts_ns.values()), 1)


def main_thread_parts(report: Report) -> Mapping[str, int]:
    """Return the time of the main thread by part, ns; empty where the trace has device work."""
    time = report.tables.get("cpu_time")
    return {} if time is None else dict(time.select("part", "time_ns").iter_rows())


def largest_unknown(verdict: Verdict) -> str | None:
    """Return the part with most time that counts towards no regime; None without any that could change the verdict."""
    least = thresholds.UNKNOWN_DOUBT_RATIO * sum(verdict.parts_ns.values())
    unknown = {
        part: ns for part, ns in verdict.parts_ns.items() if ns > least and part in PARTS and PARTS[part].cure is None
    }
    return max(unknown, key=lambda part: unknown[part], default=None)


def part_shares(parts_ns: Mapping[str, int], unrecorded_ns: Mapping[str, int] | None = None) -> tuple[PartShare, ...]:
    """Return the parts of a window with their shares: work, then idle time, each in descending order.

    ``unrecorded_ns`` are the parts of the window without profiler overhead.
    """
    totals, unrecorded_ns = part_totals(parts_ns), unrecorded_ns or {}
    window_ns = sum(unrecorded_ns.values())
    return tuple(
        PartShare(part, ns, ns / totals.total_ns, unrecorded_ns.get(part, 0) / window_ns if window_ns else None)
        for part, ns in (*totals.work.items(), *totals.idle.items())
    )


def shares_of(rows: Iterable[tuple[str, int]], total_ns: int) -> tuple[PartShare, ...]:
    """Return parts and their times, each with its share of ``total_ns``."""
    return tuple(PartShare(part, ns, ns / total_ns) for part, ns in rows)


def recomputed_ratio(device: DeviceReport) -> float | None:
    """Return the share of kernel time that repeats forward work in the backward pass; None without kernels."""
    time_ns = sum(bucket.time_ns for bucket in device.buckets)
    return device.recomputed_ns / time_ns if time_ns else None


def longest_and_rest(parts_ns: Mapping[str, int], most: int) -> tuple[list[tuple[str, int]], int, int]:
    """Split parts by length into at most ``most`` rows: the first ones, the number of others and their sum in ns.

    There are no others where all fit; else the last row is left for their sum.
    """
    rows = list(parts_ns.items())
    kept = len(rows) if len(rows) <= most else most - 1
    return rows[:kept], len(rows) - kept, sum(ns for _, ns in rows[kept:])


def busy_range(devices: Sequence[DeviceReport]) -> tuple[float, float] | None:
    """Return the lowest and the highest busy ratio of devices; None where all are unknown."""
    ratios = [device.busy_ratio for device in devices if device.busy_ratio is not None]
    return (min(ratios), max(ratios)) if ratios else None


def step_totals(steps: Iterable[StepReport], verdict: Verdict) -> StepTotals | None:
    """Summarize the steps of the verdict's device, or of all devices where it judges none; None without steps."""
    judged = [step for step in steps if verdict.device in (None, step.device)]
    if not judged:
        return None
    steady = [step for step in judged if step.steady]
    from statistics import median

    lengths = [step.duration_ns for step in steady] or [0]
    return StepTotals(
        count=len(judged),
        steady_count=len(steady),
        median_ns=median(lengths),
        shortest_ns=min(lengths),
        longest_ns=max(lengths),
        busy_ratio=sum(step.busy_ns for step in steady) / max(1, sum(lengths)),
        set_aside=_set_aside(judged, verdict),
    )


def step_strips(steps: Iterable[StepReport]) -> list[tuple[json_types.DeviceIndex, list[tuple[StepReport, float]]]]:
    """Return the steps of each device in order of time, each with its share of the total of all steps."""
    by_device = groupby(sorted(steps, key=lambda step: (str(step.device), step.start_ns)), key=lambda step: step.device)
    strips = [(device, list(members)) for device, members in by_device]
    lengths = [sum(step.duration_ns for step in members) or 1 for _, members in strips]
    return [
        (device, [(step, step.duration_ns / length) for step in members])
        for (device, members), length in zip(strips, lengths, strict=True)
    ]


def step_rows(steps: Iterable[StepReport], verdict: Verdict, most: int) -> tuple[list[dict[str, Any]], int]:
    """Return rows of the verdict's device's steps, including those set aside, and the number of steps left out.

    Of more than ``most`` steps, those set aside or with an unusual regime come first. A row has the fields of
    `StepReport` and ``busy_ratio``; times of 0 for profiler overhead or cold start become None.
    """
    judged = [step for step in steps if verdict.device in (None, step.device)]
    usual = Counter(step.regime for step in judged if step.steady).most_common(1)
    regime = usual[0][0] if usual else None
    ranked = sorted(judged, key=lambda step: (step.steady and step.regime == regime, step.start_ns))
    rows = [
        asdict(step)
        | {
            "busy_ratio": step.busy_ratio,
            "cold_start_ns": step.cold_start_ns or None,
            "recording_ns": step.recording_ns or None,
        }
        for step in sorted(ranked[:most], key=lambda step: step.start_ns)
    ]
    return rows, len(judged) - len(rows)


def _set_aside(steps: Sequence[StepReport], verdict: Verdict) -> tuple[SetAside, ...]:
    """Return the steps that were set aside, by state in order of appearance."""
    aside = [step for step in steps if not step.steady and step.state != "ok"]
    limit = (verdict.regime, verdict.cause)
    by_state = {
        state: [step for step in aside if step.state == state] for state in dict.fromkeys(step.state for step in aside)
    }
    return tuple(
        SetAside(
            state,
            len(members),
            next((step for step in members if step.regime and (step.regime, step.cause) != limit), None),
        )
        for state, members in by_state.items()
    )


WORTH_NAMING = 0.001
"""Least share of the window at which idle time is shown with the code that caused it."""
WORTH_A_LINE = 0.005
"""Least share of the window at which copies, fusions and missed tensor cores are shown."""

MOVEMENTS_SECTION = Section(
    "What moved between devices and host",
    show=(
        Shown("direction", "what", "word", 0, markdown=True, phrase="movement-name"),
        Shown("cost", "cost", "word", 0, markdown=True, phrase="movement"),
    ),
    top=True,
    lines=2,
    scope=WHOLE_TRACE,
)


def blamed(blame: Iterable[Blame], verdict: Verdict) -> tuple[Blame, ...]:
    """Return the code that delayed the judged device for long enough to be shown."""
    return blamed_rows(blame, WORTH_NAMING * verdict.window.length_ns if verdict.window else 0)


def blamed_rows(blame: Iterable[Blame], least_ns: float) -> tuple[Blame, ...]:
    """Return the rows of at least ``least_ns`` with a place in code, of idle time: not of work that the trace lacks."""
    return tuple(
        row
        for row in blame
        if row.idle_ns >= least_ns
        and row.cause not in UNSEEN
        and (row.operator or row.python_function or row.module or row.annotation)
    )


def is_idle_worth_naming(idle_ns: int, window_ns: int) -> bool:
    """Return whether the causes of a window's idle time deserve a line."""
    return idle_ns > 0 and idle_ns >= WORTH_NAMING * window_ns


def fusions(device: DeviceReport, most: int) -> Sequence[FusionOpportunity]:
    """Return at most ``most`` fusion opportunities that deserve a line."""
    return [fusion for fusion in device.fusions if fusion.saves_ns >= WORTH_A_LINE * device.window_ns][:most]


def tensor_cores(device: DeviceReport) -> Sequence[TensorCores]:
    """Return the reasons for poor use of tensor cores that deserve a line."""
    return [missed for missed in device.tensor_cores if missed.saves_ns >= WORTH_A_LINE * device.window_ns]


def movements(device: DeviceReport | None) -> Sequence[Mapping[str, Any]]:
    """Return communication and the copies between memories that deserve a line, as rows of `MOVEMENTS_SECTION`.

    A row has the fields of `Communication` or of `Copies`. The ``direction`` of the former is ``communication``, and
    its bus bandwidth is null where messages are unknown for most of its time.
    """
    if device is None:
        return []
    moved = []
    if sent := device.communication:
        rate = sent.bus_byte_per_s if sent.known_ns >= sent.time_ns / 2 else None
        moved.append(asdict(sent) | {"direction": "communication", "bus_byte_per_s": rate})
    least_ns = WORTH_A_LINE * device.window_ns
    copies = [
        asdict(copies)
        for copies in device.copies
        if copies.direction != "within-device" and max(copies.exposed_ns, copies.call_ns) >= least_ns
    ]
    return [*moved, *copies]


def saves_nothing(then: Predicted) -> bool:
    """Return whether the predicted step is known to be about as long as the present one."""
    return then.is_known and then.step_ns > then.now_ns * (1 - thresholds.WORTH_RATIO)


def step_without_recording(verdict: Verdict) -> tuple[float, float, float, float] | None:
    """Return the recorded step (the window, without steps), and by estimate, at least and at most without the profiler, ns.

    The ends are those of another process, whose CPU takes its own time. None where the step without the profiler was measured,
    or is hardly shorter.
    """
    unbiased, window = verdict.debiased, verdict.window
    if unbiased is None or unbiased.is_measured or window is None:
        return None
    recorded = unbiased.window_ns + unbiased.removed_ns
    if unbiased.removed_ns < thresholds.RECORDING_SHOWN_RATIO * recorded:
        return None
    removed = (0, unbiased.removed_ns, unbiased.most_removed_ns, unbiased.least_removed_ns)
    now, without, least, most = ((recorded - ns) / window.step_count for ns in removed)
    noise = thresholds.NOISE_STEPS if window.steps else thresholds.NOISE_WINDOW
    return now, without, (1 - noise) * least, min((1 + noise) * most, now)


def debiased_worth_a_line(verdict: Verdict) -> Debiased | None:
    """Return the window without the profiler, where its overhead was measured or is at least a hundredth of the window."""
    if (unbiased := verdict.debiased) is None:
        return None
    least_ns = thresholds.RECORDING_REPORTED_RATIO * (unbiased.window_ns + unbiased.removed_ns)
    return unbiased if unbiased.is_measured or unbiased.removed_ns >= least_ns else None
