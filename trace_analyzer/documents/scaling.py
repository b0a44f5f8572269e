"""Describe a series of batches as a document."""

from functools import partial

from trace_analyzer.compare.phrasing import scale_of, scaled
from trace_analyzer.compare.scaling import Scaling
from trace_analyzer.documents import Chapter, Document, Figure, Notes, PlainTable, largest_lever
from trace_analyzer.sections import Axis, Chart, LineMark, Points
from trace_analyzer.units import duration, percent

_OPERATORS = 12
_SCALING = "Where the host's time a step and the device's line cross, the device takes over."


def document(result: Scaling) -> Document:
    """Return the document: points with their plot, exponents, lower bound, line, proof and contradictions."""
    if result.status == "refused" or not result.points:
        return Document(
            "scaling", result.headline, [Chapter("notes", "Notes", [Notes(result.notes)])] if result.notes else []
        )
    scale, unit = scale_of(max(point.step_ns for point in result.points))
    points = [
        (str(p.batch), scaled(p.step_ns, scale), scaled(p.busy_ns, scale), scaled(p.idle_ns, scale), percent(p.busy_ratio),
         p.verdict or "–", largest_lever(p.levers), p.path)
        for p in result.points
    ]  # fmt: skip
    exponents = [
        (f"{item.exponent:.2f}", item.name, f"{item.from_batch} to {item.to_batch}", f"{duration(item.before_ns)} to {duration(item.after_ns)}",
         f"{item.work} x {item.work_ratio:.3g}")
        for item in (*result.step, *result.busy, *result.operators[:_OPERATORS])
    ]  # fmt: skip
    title = "Step, busy and idle time"
    return Document(
        "scaling",
        result.headline,
        (
            Chapter("times", title, [
                Figure(title, _SCALING, partial(scaling_chart, result)),
                PlainTable(("Batch", f"Step ({unit})", "Busy", "Idle", "Busy %", "Verdict", "Saves most", "Trace"), "rrrrrlll", points),
            ]),
            Chapter("exponents", "Exponents", [PlainTable(("Exponent", "Time", "Batches", "From, to", "Work"), "rllll", exponents)],
                    "0 is flat, 1 grows with the work."),
            Chapter("notes", "Notes", [Notes(lines)] if (lines := [*_lines(result), *result.notes, *result.contradictions]) else []),
        ),
    )  # fmt: skip


def _lines(result: Scaling) -> list[str]:
    lines = []
    if result.host_floor_ns is not None:
        lines.append(f"the host takes {duration(result.host_floor_ns)} a step, whatever the batch")
    if line := result.device_line:
        lines.append(f"the device takes {duration(line.fixed_ns)} + {duration(line.per_item_ns)} an item")
    if result.flip_batch:
        bound = ", an upper bound: kernels of small batches grow less than later ones" if result.is_upper_bound else ""
        lines.append(f"both take as long at batch {result.flip_batch:.0f}{bound}")
    return lines


_LEAST_WIDTH = 340  # pixels: a phone shows all of it
_FURTHEST = 4
"""Limit of the device's line, as a multiple of the largest batch, where it crosses the host's time beyond the data."""


def scaling_chart(result: Scaling) -> Chart:
    """Declare step, busy and idle time over the batch, with the host's lower bound and the device's line."""
    scale, unit = scale_of(max(point.step_ns for point in result.points))
    batches = [float(point.batch) for point in result.points]
    marks: list[LineMark | Points] = []
    legend = {"step": "text-soft", "busy": "p-compute", "idle": "p-python"}
    for name, colour in legend.items():
        times = [getattr(point, f"{name}_ns") for point in result.points]
        heights, texts = [ns / scale for ns in times], [scaled(ns, scale) for ns in times]
        marks.append(LineMark(name, batches, heights, colour))
        marks.append(
            Points(name, colour, batches, heights, {"batch": [f"{b:g}" for b in batches], f"{name}, {unit}": texts})
        )
    last = batches[-1]
    if result.device_line:
        line = result.device_line
        last = max(last, min(result.flip_batch or 0, _FURTHEST * last))
        ends = [batches[0], last]
        fitted = [(line.fixed_ns + line.per_item_ns * batch) / scale for batch in ends]
        marks.append(LineMark("device line", ends, fitted, "p-compute", "dotted"))
    if result.host_floor_ns is not None:
        marks.append(LineMark("host", [batches[0], last], [result.host_floor_ns / scale] * 2, "text-muted", "dashed"))
    return Chart(
        Axis("batch", ends=(0, 1.05 * last)), Axis("time", f"{unit} a step", ends=(0, None)), tuple(marks), legend=tuple(legend.items()),
        signs=(*((("╌", "host's time"),) if result.host_floor_ns is not None else ()), *((("┈", "device's line"),) if result.device_line else ())),
        height=420, least_width=_LEAST_WIDTH,
    )  # fmt: skip
