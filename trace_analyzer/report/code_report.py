"""Describe what to change, and the code that keeps devices waiting."""

from typing import Annotated

from trace_analyzer.field_types import Amount, IdleCause, Quantity
from trace_analyzer.sections import Section, Shown
from trace_analyzer.tuning import dataclass


@dataclass(frozen=True)
class Blame:
    """Hold idle time of the verdict's window by cause and by the code that was running; null is not known.

    ``python_function`` is as the trace names it, ``file.py(12): f``, and its line that of the ``def``. ``start_ns``
    and ``end_ns`` are the longest interval. ``call_line`` is the line of the call, where the source is at hand and
    leaves no doubt.
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
    """Hold what the host did in the whole trace that can leave a device idle, with the code that asked for it.

    ``idle_ns`` is what it cost the devices, ``hidden_ns`` the part of ``host_ns`` in which they worked.
    """

    kind: Annotated[
        str,
        "The cause of idle time that it is; or `recompilation` or `guards`, whose time is part of other rows' too.",
    ]
    source: Annotated[str | None, "What a person wrote there, such as `.item()`."]
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
    """Hold what a change makes of the step, by a replay of the trace: an estimate with its interval."""

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
    """Hold one thing to change: what, why, where, and how much it can save at most.

    ``start_ns`` and ``end_ns`` name a place on the timeline that shows it, where there is one. ``id`` is the fix
    of the catalogue, ``docs`` the section on it: when it helps, when not, and how its bound is computed. ``predicted`` is
    there where a replay accepts the trace and knows the change. ``shared_with`` is the advice above that counts most of its time too.
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
        str | None, "The advice above this one that counts most of its time too; null where none does."
    ] = None
    shared_ratio: Annotated[float | None, "The share of its time that both are about, which is saved once."] = None

    def __repr__(self) -> str:
        """Return the advice in a line: its id, what to change, and what that brings."""
        from trace_analyzer.render.advice_phrasing import brief

        return f"<Advice {brief(self)}>"

    def __str__(self) -> str:
        """Return what to change, what that brings, where, and the code."""
        from trace_analyzer.render.advice_phrasing import card

        return card(self)
