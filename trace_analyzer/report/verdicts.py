"""Describe the file, what limits the workload, the code that keeps devices waiting, and what to change."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Struct

from trace_analyzer import results, thresholds
from trace_analyzer.catalog.fixes import Accelerator
from trace_analyzer.json_types import (
    Amount,
    Cause,
    CheckStatus,
    Confidence,
    DecimalText,
    DeviceIndex,
    IdleCause,
    Part,
    Quantity,
    Ratio,
    Regime,
    Status,
    Utilization,
    Value,
)
from trace_analyzer.run_metadata import RunMetadata
from trace_analyzer.sections import Section, Shown


class DeviceInfo(Struct, frozen=True):
    """A device that did work: its id (an int if the file's id is one) and its names."""

    index: Annotated[DeviceIndex, "The device's id in the file; a string where it is no number."]
    name: Annotated[str | None, "Name from the file's header."]
    catalog_name: Annotated[
        str | None, "Its name in the device catalogue, where its peaks come from; null where it is not listed there."
    ]
    memory_bytes: Annotated[int | None, "Its memory, by the file's header; null where that has none."] = None


class Recorded(Struct, frozen=True):
    """Which data the profiler was configured to record."""

    shapes: Annotated[bool, "Shapes of the operators' inputs."]
    stack: Annotated[bool, "Python stacks."]
    memory: Annotated[bool, "Allocations."]
    modules: Annotated[bool, "nn.Module calls."]


class TraceInfo(Struct, frozen=True):
    """Facts on the file: its origin and its content."""

    path: Annotated[str, "Path as it was given; `stdin` for standard input."]
    event_count: Annotated[Amount, "Events in the file, of all kinds."]
    duration_ns: Annotated[Amount, "From the first event's start to the last one's end."]
    origin_ns: Annotated[
        DecimalText,
        "Absolute time of 0 ns in this report, as the file counts it: add it to find a place again in Perfetto.",
    ]
    base_time_ns: Annotated[
        str | None, "`baseTimeNanoseconds` of the file's header, a decimal string; null when it has none."
    ]
    rank: Annotated[int | None, "Rank of the process."]
    world_size: Annotated[int | None, "Ranks in the job."]
    devices: Annotated[tuple[DeviceInfo, ...], "Devices that did work."]
    idle_devices: Annotated[tuple[str, ...], "Devices of the header that did no work."]
    recorded: Annotated[Recorded, "What the profiler recorded."]
    accelerator: Annotated[
        Accelerator | None,
        "Whose work the trace holds, or shows that it launched: cuda, hip, xpu (Intel), mps (Apple), npu (Ascend), hpu"
        " (Gaudi), mtia or other; null for a run on the CPU.",
    ] = None
    profiler: Annotated[
        str | None, "Program that wrote the file (`Nsight Systems 2025.3.2`, `rocprofv3`); null for PyTorch Profiler."
    ] = None
    settings: Annotated[RunMetadata | None, "Settings of a recording by this program; null for other traces."] = None
    versions: Annotated[Mapping[str, str], "Software -> its version in the file's header."] = {}


class Check(Struct, frozen=True):
    """Whether the trace supports its metrics in one respect; ``device`` is null for a check of the whole file.

    A failed check withholds metrics of its device: they are null in the report, and lists are empty.
    `DeviceReport.withheld` names them with the reason. Idle time without causes has the cause ``withheld``.
    """

    name: Annotated[str, "Stable name, for programs (docs/definitions.md lists them)."]
    device: Annotated[DeviceIndex | None, "The device that it is about; null for the whole file."]
    status: Annotated[CheckStatus, "Whether figures can be trusted in this respect; a failed check withholds some."]
    value: Annotated[
        Quantity | None, "What was measured; null where there is nothing to check, and where nobody can know it."
    ]
    unit: Annotated[Literal["ratio", "events", "arrows"], "Unit of the value."]
    meaning: Annotated[str, "What the value is, and what it means, for people."]
    withholds: Annotated[
        tuple[str, ...],
        "Metrics of `devices[]` that are withheld because of it (docs/definitions.md lists them): fields that are"
        " null or empty, `mfu` of `steps[]` too. `partition` is the verdict's `parts_ns` and `shares` too;"
        " without `idle_causes` all idle time has the cause `withheld`.",
    ]


class Withheld(Struct, frozen=True):
    """A withheld metric, the check that failed, and its message."""

    metric: Annotated[str, "Its name, as `trust[].withholds` has it."]
    check: Annotated[str, "Name of the check that fails."]
    reason: Annotated[str, "The check with its value and what it means, for people."]


class Evidence(Struct, frozen=True):
    """One measured fact behind the verdict: ``value`` in ``unit``, and why it matters."""

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


class Window(Struct, frozen=True):
    """The interval (or intervals) that the verdict covers."""

    kind: Annotated[
        Literal["steady", "whole", "trimmed", "step"],
        "Which window: steady steps, one step, the whole of a device's work (from its first activity to its last), or that without idle edges.",
    ]
    intervals: Annotated[tuple[tuple[int, int], ...], "Start and end (exclusive), ns since the trace's origin."]
    steps: Annotated[tuple[int, ...], "Indices of the steps in it."]
    step_kind: Annotated[
        Literal["prefill", "decode", "mixed"] | None, "What these steps of a serving framework do; null for others."
    ] = None

    @property
    def length_ns(self) -> int:
        """Return the sum of the lengths of its intervals."""
        return sum(end - start for start, end in self.intervals)

    @property
    def step_count(self) -> int:
        """Return the number of its steps; without steps it counts as one."""
        return max(1, len(self.steps))

    @property
    def steps_noun(self) -> str:
        """Name its steps, without their number: ``steady steps``, ``decode step``."""
        return f"{self.step_kind or 'steady'} step{'' if len(self.steps) == 1 else 's'}"


class Shares(Struct, frozen=True):
    """How the device spent the verdict's window, as ratios that sum to 1."""

    compute: Annotated[Ratio, "Share of kernels that arithmetic limits."]
    memory: Annotated[Ratio, "Share of kernels that memory bandwidth limits, device-to-device copies and memsets."]
    latency: Annotated[Ratio, "Share of kernels too small to fill the device."]
    communication: Annotated[Ratio, "Share of communication that nothing else hides."]
    copy: Annotated[Ratio, "Share of copies that nothing else hides."]
    other: Annotated[Ratio, "Share of kernels whose limit is unknown."]
    idle: Annotated[Ratio, "Share of idle time."]
    unrecorded: Annotated[
        Ratio,
        "Share of work that the trace does not contain: launched before the recording, of other programs, or lost.",
    ] = 0.0


class Debiased(Struct, frozen=True):
    """The verdict's window without the profiler's overhead on the CPU."""

    method: Annotated[
        Literal["estimated", "measured"],
        "Whether the cost of recording was estimated from the trace or follows from the step time without"
        " profiler that the caller gave.",
    ]
    event_cost_ns: Annotated[
        Mapping[str, Amount],
        "Estimated cost of recording an event, per kind of event, by how closely such events follow each other in"
        " this trace; runtime calls by those that only query state; launches by their durations.",
    ]
    events: Annotated[Amount | None, "Events recorded before late launches; null when measured."]
    least_removed_ns: Annotated[Amount, "Lower bound of what recording took of the window."]
    removed_ns: Annotated[Amount, "What recording took of the window."]
    most_removed_ns: Annotated[Amount, "What recording took of the window at most, by the error of such estimates."]
    window_ns: Annotated[Amount, "The window without it."]
    shares: Annotated[Shares | None, "What the device did in that window, as ratios that sum to 1."]
    parts_ns: Annotated[Mapping[Part, Amount], "The window without it, in ns by part."]
    regime: Annotated[Regime | None, "Regime without it."]
    cause: Annotated[Cause | None, "Cause without it."]
    survives: Annotated[
        bool | None, "Whether the regime is the same without it; null where the estimate cannot decide."
    ]
    why: Annotated[str, "The figures behind it."]

    @property
    def is_measured(self) -> bool:
        """Return whether the step without the profiler was measured: the verdict is then on the program without it."""
        return self.method == "measured"


Resource = Literal[
    "host", "compute", "memory-bandwidth", "communication", "copies", "small-kernels", "data-loading", "python", "dispatch",
    "host-unknown", "waits",
]  # fmt: skip


class Lever(Struct, frozen=True):
    """What a resource is worth: its share of the window, of the critical path, and what can be won at most."""

    resource: Annotated[
        Resource,
        "What could be faster; small kernels are too short or too small to use the device; the last five are work of the host.",
    ]
    share_ratio: Annotated[Ratio, "Share of the window's time."]
    path_ratio: Annotated[Ratio, "Share of the critical path: what a step gains at most per percent of its speed."]
    saves_ns: Annotated[float, "What a step (without steps: the window) saves if it takes no time, ns."]
    saves_ratio: Annotated[Ratio, "That, as a share of the replayed step."]


class Verdict(Struct, frozen=True):
    """What limits the workload, or why this is unknown."""

    status: Annotated[Status, "Whether the trace could be judged. Only `ok` has a regime."]
    regime: Annotated[Regime | None, "What limits the window; null unless the status is `ok`."]
    runner_up: Annotated[Regime | None, "The regime that came close, if one did."]
    cause: Annotated[Cause | None, "Cause of the regime; null where the regime alone explains it."]
    confidence: Annotated[Confidence, "How far the verdict can be trusted with what was recorded."]
    confidence_why: Annotated[tuple[str, ...], "What lowers the confidence, and what would raise it."]
    device: Annotated[DeviceIndex | None, "The device that is judged."]
    window: Annotated[Window | None, "The interval that is judged; null when nothing is judged."]
    shares: Annotated[
        Shares | None, "What the device did in that window; the shares sum to 1. Null when nothing is judged."
    ]
    parts_ns: Annotated[
        Mapping[Part, Amount],
        "The same window in ns, idle time by cause; empty when nothing is judged or a check withholds it.",
    ]
    headline: Annotated[str, "The verdict in one sentence."]
    evidence: Annotated[tuple[Evidence, ...], "The measured facts behind it, the weightiest first."]
    debiased: Annotated[
        Debiased | None, "The window without what recording itself cost the CPU; null where that is not known."
    ] = None
    levers: Annotated[
        tuple[Lever, ...],
        "What each resource can bring, by the replay, the largest saving first; empty where it is refused.",
    ] = ()
    host_levers: Annotated[
        tuple[Lever, ...],
        "The same for each kind of the host's work: data loading, Python, dispatch, time without records, waits for the device.",
    ] = ()
    confidence_ratio: Annotated[
        Ratio | None, "Share of the worlds that the trace admits in which the regime holds; null without a regime."
    ] = None


class StepReport(Struct, frozen=True):
    """One step on one device; regime, cause, runner-up, confidence and headline refer to the step's own partition."""

    index: Annotated[int, "Number of the step."]
    name: Annotated[str, "Name of its annotation."]
    start_ns: Annotated[int, "Start, ns since the trace's origin."]
    duration_ns: Annotated[Amount, "Length."]
    device: Annotated[DeviceIndex, "The device's id in the file; a string where it is no number."]
    busy_ns: Annotated[Amount, "Time in which the device worked."]
    idle_ns: Annotated[Amount, "The rest."]
    regime: Annotated[Regime | None, "Regime of this step alone; null when it is not known."]
    state: Annotated[
        Literal["ok", "first", "warm-up", "cut", "empty", "lost", "outlier"],
        "Why it is set aside from the steady steps; `ok` if not.",
    ]
    steady: Annotated[bool, "Whether it is part of the steady window."]
    flop: Annotated[Quantity | None, "FLOP of its kernels, where known."] = None
    mfu: Annotated[Utilization | None, "Model FLOP utilization of the step."] = None
    mfu_at_most: Annotated[
        Utilization | None, "The same if matmuls and convolutions of unknown work had run at their peak."
    ] = None
    cause: Annotated[Cause | None, "Cause within that regime; null where it has none."] = None
    runner_up: Annotated[Regime | None, "Regime that came close to it, if any."] = None
    confidence: Annotated[
        Confidence | None, "How sure that is; null without a regime, low where the step alone is too little to judge."
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
    unrecorded_regime: Annotated[Regime | None, "Regime of this step without that; null where it is not known."] = None

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


PythonFunction = Annotated[
    str | None, "Innermost function of the program, `file.py(12): f`; the line is that of its `def`."
]
CallLine = Annotated[int | None, "Line of the call, where the source is at hand and leaves no doubt."]


class Blame(Struct, frozen=True):
    """Idle time of the verdict's window by cause and by the code that was running; unknown values are null."""

    cause: Annotated[IdleCause, "Why the device idled."]
    operator: Annotated[str | None, "Innermost operator."]
    module: Annotated[str | None, "Path of the nn.Modules around it; null where several share the rest."]
    python_function: PythonFunction
    annotation: Annotated[str | None, "Innermost annotation."]
    phase: Annotated[str | None, "data-loading, forward, backward or optimizer."]
    idle_ns: Annotated[Amount, "Idle time."]
    start_ns: Annotated[int, "Start of the longest interval."]
    end_ns: Annotated[int, "Its end."]
    call_line: CallLine = None


BLAME_SECTION = Section(
    "Who kept the device waiting in the judged window",
    show=(
        Shown("idle_ns", "device idle", terminal=0, markdown=True),
        Shown("cause", "cause", "part", 0, markdown=True),
        Shown("at", "at", "text", 0, markdown=True, page=False, phrase="place"),
        Shown("python_function", "in function", "frame"),
        Shown("module", "module", "module"),
        Shown("operator", "operator", "name"),
        Shown("annotation", "annotation", "name"),
        Shown("phase", "phase", "text"),
    ),
    top=True,
    key="culprits",
    lines=1,
)


class HostCost(Struct, frozen=True):
    """Host work in the whole trace that can leave a device idle, with the code that requested it."""

    kind: Annotated[
        str, "The cause of idle time that it is; or `recompilation` or `guards`, whose time is part of other rows' too."
    ]
    source: Annotated[str | None, "Code that causes it, such as `.item()`."]
    name: Annotated[str, "The event that cost most."]
    copy: Annotated[str | None, "What most of the calls copied; null for nothing."]
    operator: Annotated[str | None, "Innermost operator."]
    module: Annotated[str | None, "Path of the nn.Modules around it."]
    python_function: PythonFunction
    count: Annotated[Amount, "How often it was asked for."]
    host_ns: Annotated[int | None, "Time of the host in it."]
    hidden_ns: Annotated[
        int | None, "Part of it in which some device worked; null where causes of idle time are withheld."
    ]
    idle_ns: Annotated[
        int | None,
        "Idle time that it caused, over all devices: for a blocking call the drain that it left behind; null"
        " where causes of idle time are withheld.",
    ]
    start_ns: Annotated[int, "Start of the costliest."]
    end_ns: Annotated[int, "Its end."]
    call_line: CallLine = None


def is_saving_known(now_ns: float, step_ns: float, low_ns: float, high_ns: float) -> bool:
    """Return whether an estimate tells what is saved: half of its interval is at most half of that, or all is too little.

    An interval that holds the present step does not.
    """
    is_narrow = high_ns - low_ns <= abs(now_ns - step_ns) and not low_ns <= now_ns <= high_ns
    return bool(is_narrow or now_ns - low_ns < thresholds.WORTH_RATIO * now_ns)


def middle_ratio(now_ns: float, low_ns: float, high_ns: float) -> float:
    """Return the share of the present step by which estimates are ordered: the middle of what their ends save."""
    return sum(max(0.0, 1 - ns / now_ns) for ns in (low_ns, high_ns)) / 2 if now_ns else 0.0


class Predicted(Struct, frozen=True):
    """The step's predicted time after a change: the estimate of a replay, with its interval."""

    step_ns: Annotated[Quantity, "The step with the change, or the window of a trace without steps."]
    low_ns: Annotated[Quantity, "Start of the interval."]
    high_ns: Annotated[Quantity, "End of the interval."]
    now_ns: Annotated[Quantity, "The step without the change, replayed too."]
    has_steps: Annotated[bool, "Whether it is the step, not the window."] = True
    is_known: Annotated[
        bool, "Whether half of the interval is at most half of the saving, and the present step outside of it."
    ] = True
    batch: Annotated[
        float,
        "How many times as big the batch is then: the step is for as many samples as now, that share of the bigger one.",
    ] = 1.0


class Saving(Struct, frozen=True):
    """What a change saves of a step, or of the window without steps, with its bound."""

    ns: Annotated[Quantity, "What it saves of a step: the replay's estimate, else the bound."]
    ratio: Annotated[Ratio, "Its share of the step."]
    at_most_ns: Annotated[Quantity, "Upper bound of what it saves of a step; 0 where it saves nothing by itself."]
    at_most_ratio: Annotated[Ratio, "The bound's share of the step."]
    has_steps: Annotated[bool, "Whether it is a step, not the window."]


class Advice(Struct, frozen=True):
    """One recommended change: what, why, where, and an upper bound of its saving."""

    title: Annotated[str, "What to change."]
    why: Annotated[str, "The figures of this trace that ask for it."]
    where: Annotated[str, "Operator, module, function or file."]
    code: Annotated[str, "The change as code."]
    saves_ns_at_most: Annotated[
        Amount, "Upper bound on the time that it saves in the verdict's window; 0 where it saves nothing by itself."
    ]
    how_bound: Annotated[str, "How that bound was computed."]
    saving: Annotated[Saving, "The saving in a step."]
    start_ns: Annotated[int | None, "Start of a place on the timeline that shows it."] = None
    end_ns: Annotated[int | None, "End of that place."] = None
    id: Annotated[str, "The fix, as the catalogue calls it."] = ""
    docs: Annotated[
        str, "The page of the documentation on it: why it helps, when not, what it risks, how its bound is computed."
    ] = ""
    predicted: Annotated[
        Predicted | None,
        "What a replay makes of it; null where the trace cannot be replayed, or the change is not known to it.",
    ] = None
    shared_with: Annotated[
        str | None, "An earlier advice that already counts most of the same time; null without one."
    ] = None
    shared_ratio: Annotated[float | None, "The share of its time that both are about, which is saved once."] = None
    is_of_limit: Annotated[bool, "Whether it acts on the verdict's regime or the runner-up."] = True

    def __repr__(self) -> str:
        """Return the advice in one line: its id, the change, and the saving."""
        return f"<Advice {results.used('trace_analyzer.render.row_phrases:brief')(self)}>"

    def __str__(self) -> str:
        """Return the change, the saving, the place, and the code."""
        return results.used("trace_analyzer.render.row_phrases:card")(self)
