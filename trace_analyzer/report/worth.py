"""Choose the items of a report that deserve a line, equally for all renderers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from trace_analyzer import thresholds
from trace_analyzer.report.code_report import Advice, Blame, Predicted
from trace_analyzer.report.device_report import Communication, DeviceReport, FusionOpportunity, TensorCores
from trace_analyzer.report.verdicts import Debiased, Verdict
from trace_analyzer.sections import WHOLE_TRACE, Section, Shown

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
    """Return the rows of at least ``least_ns`` with a place in code."""
    return tuple(
        row
        for row in blame
        if row.idle_ns >= least_ns and (row.operator or row.python_function or row.module or row.annotation)
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
    moved = [] if device.communication is None else [_communication_row(device.communication)]
    least_ns = WORTH_A_LINE * device.window_ns
    copies = [
        asdict(copies)
        for copies in device.copies
        if copies.direction != "within-device" and max(copies.exposed_ns, copies.call_ns) >= least_ns
    ]
    return [*moved, *copies]


def _communication_row(moved: Communication) -> Mapping[str, Any]:
    is_known = moved.known_ns >= moved.time_ns / 2
    return asdict(moved) | {
        "direction": "communication",
        "bus_byte_per_s": moved.bus_byte_per_s if is_known else None,
    }


def saved_ratio(item: Advice, verdict: Verdict) -> float | None:
    """Return the share of the verdict's window that an advice can save at most; None without a window."""
    window = verdict.window
    return item.saves_ns_at_most / window.length_ns if window and window.length_ns else None


def saves_nothing(then: Predicted) -> bool:
    """Return whether the predicted step is about as long as the present one."""
    return then.step_ns > then.now_ns * (1 - thresholds.WORTH_RATIO)


def is_recording_worth_a_line(unbiased: Debiased) -> bool:
    """Return whether profiler overhead was measured, or is at least a hundredth of the window."""
    return unbiased.method == "measured" or unbiased.removed_ns >= thresholds.RECORDING_REPORTED_RATIO * (
        unbiased.window_ns + unbiased.removed_ns
    )
