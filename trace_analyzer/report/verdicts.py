"""Describe what limits the workload, with evidence and confidence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from trace_analyzer.field_types import (
    Amount,
    Cause,
    Confidence,
    DeviceIndex,
    Part,
    Quantity,
    Ratio,
    Regime,
    Status,
    Value,
)
from trace_analyzer.sections import Section, Shown


@dataclass(frozen=True)
class Evidence:
    """Hold one measured fact behind the verdict: ``value`` in ``unit``, and why it matters."""

    metric: Annotated[str, "What was measured."]
    value: Annotated[Value, "The figure, in `unit`; null when it could not be measured."]
    unit: Annotated[str, "Unit of the value: `ns`, `ratio`, `count` and the like."]
    why: Annotated[str, "Why it matters."]


EVIDENCE_SECTION = Section(
    "Evidence",
    show=(
        Shown("metric", "what", "word", 0, markdown=True, phrase="metric"),
        Shown("value", "value", "number", 0, markdown=True, phrase="evidence"),
        Shown("why", "why it matters", "word", 0, markdown=True),
    ),
    top=True,
    lines=2,
)


@dataclass(frozen=True)
class Window:
    """Hold the interval (or intervals) that the verdict covers."""

    kind: Annotated[
        Literal["steady", "whole", "trimmed", "step"],
        "Which window: steady steps, one step, the whole of a device's work (from its first activity to its last), or that without idle edges.",
    ]
    intervals: Annotated[tuple[tuple[int, int], ...], "Start and end (exclusive), ns since the trace's origin."]
    steps: Annotated[tuple[int, ...], "Indices of the steps in it."]

    @property
    def length_ns(self) -> int:
        """Return the sum of the lengths of its intervals."""
        return sum(end - start for start, end in self.intervals)


@dataclass(frozen=True)
class Shares:
    """Hold how the device spent the verdict's window, as ratios that sum to 1."""

    compute: Annotated[Ratio, "Share of kernels that arithmetic limits."]
    memory: Annotated[Ratio, "Share of kernels that memory bandwidth limits, device-to-device copies and memsets."]
    latency: Annotated[Ratio, "Share of kernels too small to fill the device."]
    communication: Annotated[Ratio, "Share of communication that nothing else hides."]
    copy: Annotated[Ratio, "Share of copies that nothing else hides."]
    other: Annotated[Ratio, "Share of kernels whose limit is unknown."]
    idle: Annotated[Ratio, "Share of idle time."]


@dataclass(frozen=True)
class Debiased:
    """Hold the verdict's window without the profiler's overhead on the CPU.

    ``method`` is how the overhead is known: estimated from the trace (``event_cost_ns`` per kind of event, ``events``
    that delayed launches), or measured without the profiler. ``least_removed_ns`` is the lower bound of the estimate.
    ``survives`` is whether the regime stays the same; None where the estimate cannot decide.
    """

    method: Annotated[
        Literal["estimated", "measured"],
        "Whether the cost of recording was estimated from the trace or follows from the step time without"
        " profiler that the caller gave.",
    ]
    event_cost_ns: Annotated[
        Mapping[str, Amount],
        "Estimated cost of recording an event, per kind of event, by how closely such events follow each other in"
        " this trace; runtime calls by those that only query state.",
    ]
    events: Annotated[Amount | None, "Events recorded before late launches; null when measured."]
    least_removed_ns: Annotated[Amount, "Lower bound of what recording took of the window."]
    removed_ns: Annotated[Amount, "What recording took of the window."]
    window_ns: Annotated[Amount, "The window without it."]
    shares: Annotated[Shares | None, "What the device did in that window, as ratios that sum to 1."]
    parts_ns: Annotated[Mapping[Part, Amount], "The window without it, in ns by part."]
    regime: Annotated[Regime | None, "Regime without it."]
    cause: Annotated[Cause | None, "Cause without it."]
    survives: Annotated[
        bool | None, "Whether the regime is the same without it; null where the estimate cannot decide."
    ]
    why: Annotated[str, "The figures behind it."]


@dataclass(frozen=True)
class Verdict:
    """Hold what limits the workload, or why this is unknown."""

    status: Annotated[Status, "Whether the trace could be judged. Only `ok` has a regime."]
    regime: Annotated[Regime | None, "What limits the window; null unless the status is `ok`."]
    runner_up: Annotated[Regime | None, "The regime that came close, if one did."]
    cause: Annotated[Cause | None, "Cause of the regime; null where the regime alone explains it."]
    confidence: Annotated[Confidence, "How far the verdict can be trusted with what was recorded."]
    confidence_why: Annotated[tuple[str, ...], "What lowers the confidence, and what would raise it."]
    device: Annotated[DeviceIndex | None, "The device that is judged."]
    window: Annotated[Window | None, "The interval that is judged; null when nothing is judged."]
    shares: Annotated[
        Shares | None,
        "What the device did in that window; the shares sum to 1. Null when nothing is judged.",
    ]
    parts_ns: Annotated[
        Mapping[Part, Amount],
        "The same window in ns, idle time by cause; empty when nothing is judged or a check withholds it.",
    ]
    headline: Annotated[str, "The verdict in one sentence."]
    evidence: Annotated[tuple[Evidence, ...], "The measured facts behind it, the weightiest first."]
    debiased: Annotated[
        Debiased | None,
        "The window without what recording itself cost the CPU; null where that is not known.",
    ] = None


@dataclass(frozen=True)
class StepReport:
    """Hold one step on one device; regime, cause, runner-up, confidence and headline refer to the step's own partition.

    ``cold_start_ns`` is host time before the first use of kernels, ``recording_ns`` the profiler's overhead in the
    step, and ``unrecorded_regime`` the regime without this overhead.
    """

    index: Annotated[int, "Number of the step."]
    name: Annotated[str, "Name of its annotation."]
    start_ns: Annotated[int, "Start, ns since the trace's origin."]
    duration_ns: Annotated[Amount, "Length."]
    device: Annotated[DeviceIndex, "The device's id in the file; a string where it is no number."]
    busy_ns: Annotated[Amount, "Time in which the device worked."]
    idle_ns: Annotated[Amount, "The rest."]
    regime: Annotated[Regime | None, "Regime of this step alone; null when it is not known."]
    state: Annotated[
        Literal["ok", "first", "warm-up", "cut", "empty", "outlier"],
        "Why it is set aside from the steady steps; `ok` if not.",
    ]
    steady: Annotated[bool, "Whether it is part of the steady window."]
    flop: Annotated[Quantity | None, "FLOP of its kernels, where known."] = None
    mfu: Annotated[Quantity | None, "Model FLOP utilization of the step."] = None
    mfu_at_most: Annotated[
        Quantity | None, "The same if matmuls and convolutions of unknown work had run at their peak."
    ] = None
    cause: Annotated[Cause | None, "Cause within that regime; null where it has none."] = None
    runner_up: Annotated[Regime | None, "Regime that came close to it, if any."] = None
    confidence: Annotated[
        Confidence | None,
        "How sure that is; null without a regime, low where the step alone is too little to judge.",
    ] = None
    headline: Annotated[str | None, "The verdict on this step alone, in a sentence; null without a regime."] = None
    cold_start_ns: Annotated[
        Amount | None,
        "Host time in gaps of 1 ms or more that end at the first use of a kernel name; null without a verdict on"
        " the step.",
    ] = None
    recording_ns: Annotated[
        Amount | None,
        "What recording took of the step at most, estimated or by the measured step time; null where that is"
        " not known.",
    ] = None
    unrecorded_regime: Annotated[
        Regime | None,
        "Regime of this step without that; null where it is not known.",
    ] = None

    @property
    def busy_ratio(self) -> float | None:
        """Return the share of the step in which the device worked; None for a step of length 0."""
        return self.busy_ns / self.duration_ns if self.duration_ns else None


STEPS_SECTION = Section(
    "Steps",
    show=(
        Shown("name", "step", "word", markdown=True),
        Shown("state", "state", "word", markdown=True),
        Shown("duration_ns", "length", markdown=True),
        Shown("busy_ratio", "busy", markdown=True),
        Shown("regime", "limited by", "word", markdown=True, phrase="step-limit"),
        Shown("confidence", "confidence", "word", markdown=True),
        Shown("cold_start_ns", "cold start", markdown=True),
        Shown("recording_ns", "recording", markdown=True),
    ),
    top=True,
)
