"""Describe the verdict's window and the length of its trace."""

from trace_analyzer import units
from trace_analyzer.report import Report


def window_phrase(report: Report) -> str:
    """Write the verdict's window, ``1.08 s, 3 steady steps``, and the device where there are several."""
    verdict = report.verdict
    if verdict.window is None:
        return ""
    return ", ".join(filter(None, [window_length(report), window_kind(report), _device_named(report)]))


def window_length(report: Report) -> str:
    """Write the length of the verdict's window; for a window of activities with the trace's.

    For example ``12.9 of 43.5 s traced``.
    """
    window, trace_ns = report.verdict.window, report.trace.duration_ns
    if window is None:
        return ""
    return units.duration(window.length_ns) if window.steps else _length_of_trace(window.length_ns, trace_ns)


def window_kind(report: Report) -> str:
    """Write the kind of the verdict's window: ``3 steady steps``; "" for the whole trace."""
    window = report.verdict.window
    if window is None or (window.kind == "whole" and _is_all(window.length_ns, report.trace.duration_ns)):
        return ""
    if window.kind == "step":
        return f"step {', '.join(map(str, window.steps))}"
    return f"{len(window.steps)} steady steps" if window.kind == "steady" else _WINDOWS[window.kind]


def short_window_phrase(report: Report) -> str:
    """Write the verdict's window in few words: like `window_phrase`, but only lengths for a window of activities."""
    window = report.verdict.window
    if window is None or window.steps:
        return window_phrase(report)
    return ", ".join(filter(None, [window_length(report), _device_named(report)]))


def device_length(report: Report, window_ns: int) -> str:
    """Write the time from a device's first work to its last, and the trace's length if that is longer."""
    return _length_of_trace(window_ns, report.trace.duration_ns)


def _length_of_trace(length_ns: int, trace_ns: int) -> str:
    """Write the lengths of a window and its trace: ``12.9 of 43.5 s traced``, with a shared unit written once."""
    length, whole = units.duration(length_ns), units.duration(trace_ns)
    if _is_all(length_ns, trace_ns):
        return f"{length}, the whole trace"
    share_unit = length.split()[1:] == whole.split()[1:]
    return f"{length.split()[0] if share_unit else length} of {whole} traced"


def _is_all(length_ns: int, trace_ns: int) -> bool:
    return units.duration(length_ns) == units.duration(trace_ns)


def _device_named(report: Report) -> str:
    return f"device {report.verdict.device}" if len(report.devices) > 1 else ""


_WINDOWS = {
    "whole": "from the first device work to the last",
    "trimmed": "from the first device work to the last, without idle edges",
}
