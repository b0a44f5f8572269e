"""Choose what the verdict is about: the device and its window."""

import re
from typing import Literal, NamedTuple

import polars as pl

from trace_analyzer import analysis, errors
from trace_analyzer.analyses import left_out
from trace_analyzer.analyses.host import Host
from trace_analyzer.frames import intervals, lookups
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.options import Options
from trace_analyzer.report import Window

_MOST_STEPS = 1 << 62
"""Step numbers have at most 64 bits."""


class Judged(NamedTuple):
    """What the verdict is about: the device's code, the window, and its intervals (device, start_ns, end_ns)."""

    device: int
    window: Window
    spans: pl.DataFrame


def device_id(label: str) -> int | str:
    """Return the id of a device as the report writes it: an int where the file has a plain number."""
    return int(label) if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", label) else label


def device_ids(devices: pl.DataFrame) -> dict[int, int | str]:
    """Map codes to ids of ``devices`` (device, label)."""
    return {code: device_id(label) for code, label in devices.select("device", "label").iter_rows()}


def reported_devices(devices: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return table `devices` with those that have a window."""
    return devices.join(windows, on="device", how="semi", maintain_order="left")


def judged(
    options: Options,
    reported_devices: pl.DataFrame,
    windows: pl.DataFrame,
    device_steps: pl.DataFrame,
    idle_gaps: pl.DataFrame,
    gap_sums: pl.DataFrame,
) -> Judged | None:
    """Choose the requested device, else the busiest one, and the requested window; None where no device worked.

    Without recorded steps, the window excludes idle time before the first real work and after the last.

    Raises ``UsageError`` for a device or a step that did no work.
    """
    busy = reported_devices.join(windows, on="device", maintain_order="left")
    code = _judged_device(busy, options.device)
    if code is None:
        return None
    this = pl.col("device") == code
    whole, steps = windows.filter(this), device_steps.filter(this)
    if options.step == "steady" and steps.is_empty():
        device, start, end = whole.select("device", "start_ns", "end_ns").row(0)
        interval = left_out.trimmed((start, end), idle_gaps.filter(this), gap_sums.filter(this))
        kind: Literal["whole", "trimmed"] = "whole" if interval == (start, end) else "trimmed"
        return Judged(code, *(Window(kind, (interval,), ()), intervals.spans_on(device, [interval])))
    return Judged(code, *_window(whole, steps, options.step))


def trim_notes(judged: Judged | None, windows: pl.DataFrame, devices: pl.DataFrame) -> tuple[errors.Note, ...]:
    """Note the time that trimming removed from the judged device's window; nothing without trimming."""
    if judged is None or judged.window.kind != "trimmed":
        return ()
    (window,) = windows.filter(pl.col("device") == judged.device).select("start_ns", "end_ns").iter_rows()
    return left_out.trim_notes(device_ids(devices)[judged.device], window, judged.window.intervals[0])


def recorded_span(
    judged: Judged | None, windows: pl.DataFrame, linked_events: pl.DataFrame, host: Host
) -> left_out.RecordedSpan | None:
    """Return the recorded span around the work of the judged device; None where no launch of it is known."""
    if judged is None:
        return None
    start, end = lookups.where_equal(windows, "device", judged.device).select("start_ns", "end_ns").row(0)
    launches = lookups.where_equal(linked_events, "device", judged.device).get_column("launch_id").drop_nulls()
    return left_out.recorded_span((start, end), launches, host)


def measured_step_ms(options: Options, trace: Trace, device_steps: pl.DataFrame, judged: Judged | None) -> float | None:
    """Return the step time without the profiler in ms: the caller's, else the trace's where the device has steps."""
    known = trace.header.settings
    if options.measured_step_ms is not None or judged is None or known is None:
        return options.measured_step_ms
    steps_with_work = device_steps.filter(pl.col("device") == judged.device, pl.col("activity_count") > 0)
    return None if steps_with_work.is_empty() else known.measured_step_ms


def _judged_device(devices: pl.DataFrame, wanted: int | str | None) -> int | None:
    """Return the code of the device to judge, from ``devices`` (device, label, busy_ns); None where none worked."""
    if wanted is None:
        return devices.sort("busy_ns", descending=True, maintain_order=True).get_column("device").first()  # type: ignore[return-value]
    labels = [device_id(label) for label in devices.get_column("label")]
    for code, label in zip(devices.get_column("device"), labels, strict=True):
        if str(label) == str(wanted):
            return int(code)
    listed = ", ".join(map(str, labels)) or "none"
    raise errors.UsageError(f"device {wanted} did no work in this trace; those that did: {listed}")


def _window(whole: pl.DataFrame, steps: pl.DataFrame, step: int | str) -> tuple[Window, pl.DataFrame]:
    """Return the verdict's window and its intervals (device, start_ns, end_ns) of a device's window and steps."""
    kind: Literal["whole", "steady", "step"] = "whole"
    spans, inside, step_kind = whole, steps.clear(), None
    if step == "steady" and (steady := steps.filter("steady")).height:
        spans = intervals.union(steady, ["device"])
        kind, inside, step_kind = "steady", steady, steady.item(0, "step_kind")
    elif step not in ("all", "steady"):
        index = int(step)
        kind = "step"
        spans = inside = steps.filter(pl.col("index") == index).head(1) if abs(index) < _MOST_STEPS else steps.clear()
        if spans.filter(pl.col("end_ns") > pl.col("start_ns")).is_empty():
            listed = ", ".join(str(i) for i in steps.filter(pl.col("activity_count") > 0).get_column("index")) or "none"
            raise errors.UsageError(f"step {step} did no work on this device; steps that did: {listed}")
    spans = spans.select("device", "start_ns", "end_ns")
    times = tuple(spans.select("start_ns", "end_ns").iter_rows())
    return Window(kind, times, tuple(inside.get_column("index")), step_kind), spans


VALUES = (
    analysis.Value("reported_devices", reported_devices),
    analysis.Value("judged", judged),
    analysis.Value("recorded_span", recorded_span),
    analysis.Value("trim_notes", trim_notes),
    analysis.Value("measured_step_ms", measured_step_ms),
)
