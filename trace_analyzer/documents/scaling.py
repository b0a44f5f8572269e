"""Describe a series of batches as a document."""

from functools import partial

from trace_analyzer.compare.phrasing import scale_of, scaled
from trace_analyzer.compare.scaling import Scaling
from trace_analyzer.documents import Chapter, Document, Figure, Notes, PlainTable
from trace_analyzer.documents.comparison_charts import scaling_chart
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
         p.verdict or "–", p.path)
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
                PlainTable(("Batch", f"Step ({unit})", "Busy", "Idle", "Busy %", "Verdict", "Trace"), "rrrrrll", points),
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
