"""Describe recommended changes, and the code that keeps devices waiting."""

from dataclasses import dataclass
from typing import Annotated

from trace_analyzer.field_types import Amount, IdleCause, Quantity
from trace_analyzer.results import used
from trace_analyzer.sections import Section, Shown


@dataclass(frozen=True)
class Blame:
    """Hold idle time of the verdict's window by cause and by the code that was running; unknown values are null.

    ``python_function`` is the name in the trace, ``file.py(12): f``, with the line of its ``def``. ``start_ns`` and
    ``end_ns`` are the bounds of the longest interval. ``call_line`` is the line of the call, if the source file is
    available and the line unambiguous.
    """

    cause: Annotated[IdleCause, "Why the device idled."]
    operator: Annotated[str | None, "Innermost operator."]
    module: Annotated[str | None, "Path of the nn.Modules around it; null where several share the rest."]
    python_function: Annotated[
        str | None,
        "Innermost function of the program, `file.py(12): f`; the line is that of its `def`.",
    ]
    annotation: Annotated[str | None, "Innermost annotation."]
    phase: Annotated[str | None, "data-loading, forward, backward or optimizer."]
    idle_ns: Annotated[Amount, "Idle time."]
    start_ns: Annotated[int, "Start of the longest interval."]
    end_ns: Annotated[int, "Its end."]
    call_line: Annotated[int | None, "Line of the call, where the source is at hand and leaves no doubt."] = None


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


@dataclass(frozen=True)
class HostCost:
    """Hold host work in the whole trace that can leave a device idle, with the code that requested it.

    ``idle_ns`` is the idle time that it caused on devices, ``hidden_ns`` the part of ``host_ns`` in which they worked.
    """

    kind: Annotated[
        str,
        "The cause of idle time that it is; or `recompilation` or `guards`, whose time is part of other rows' too.",
    ]
    source: Annotated[str | None, "Code that causes it, such as `.item()`."]
    name: Annotated[str, "The event that cost most."]
    copy: Annotated[str | None, "What a blocking call copied."]
    operator: Annotated[str | None, "Innermost operator."]
    module: Annotated[str | None, "Path of the nn.Modules around it."]
    python_function: Annotated[
        str | None,
        "Innermost function of the program, `file.py(12): f`; the line is that of its `def`.",
    ]
    count: Annotated[Amount, "How often it was asked for."]
    host_ns: Annotated[int | None, "Time of the host in it."]
    hidden_ns: Annotated[
        int | None,
        "Part of it in which some device worked; null where causes of idle time are withheld.",
    ]
    idle_ns: Annotated[
        int | None,
        "Idle time that it caused, over all devices: for a blocking call the drain that it left behind; null"
        " where causes of idle time are withheld.",
    ]
    start_ns: Annotated[int, "Start of the costliest."]
    end_ns: Annotated[int, "Its end."]
    call_line: Annotated[int | None, "Line of the call, where the source is at hand and leaves no doubt."] = None


@dataclass(frozen=True)
class Predicted:
    """Hold the step's predicted time after a change: the estimate of a replay, with its interval."""

    step_ns: Annotated[Quantity, "The step with the change, or the window of a trace without steps."]
    low_ns: Annotated[Quantity, "Start of the interval."]
    high_ns: Annotated[Quantity, "End of the interval."]
    now_ns: Annotated[Quantity, "The step without the change, replayed too."]
    has_steps: Annotated[bool, "Whether it is the step, not the window."] = True
    batch: Annotated[
        float,
        "How many times as big the batch is then: the step is for as many samples as now, that share of the bigger one.",
    ] = 1.0


@dataclass(frozen=True, repr=False)
class Advice:
    """Hold one recommended change: what, why, where, and an upper bound of its saving.

    ``start_ns`` and ``end_ns`` are the bounds of an example on the timeline, if any. ``id`` is the id of the fix in the
    catalogue, ``docs`` its section in the documentation: when it helps, when not, and how its bound is computed.
    ``predicted`` is present where a replay accepts the trace and supports the change. ``shared_with`` is an earlier
    advice that already counts most of the same time.
    """

    title: Annotated[str, "What to change."]
    why: Annotated[str, "The figures of this trace that ask for it."]
    where: Annotated[str, "Operator, module, function or file."]
    code: Annotated[str, "The change as code."]
    saves_ns_at_most: Annotated[Amount, "Upper bound on the time that it saves in the verdict's window."]
    how_bound: Annotated[str, "How that bound was computed."]
    start_ns: Annotated[int | None, "Start of a place on the timeline that shows it."] = None
    end_ns: Annotated[int | None, "End of that place."] = None
    id: Annotated[str, "The fix, as the catalogue calls it."] = ""
    docs: Annotated[
        str,
        "The section of the documentation on it: when it helps, when not, how its bound is computed.",
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
        return f"<Advice {used('trace_analyzer.render.row_phrases:brief')(self)}>"

    def __str__(self) -> str:
        """Return the change, the saving, the place, and the code."""
        return used("trace_analyzer.render.row_phrases:card")(self)
