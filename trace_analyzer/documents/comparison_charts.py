"""Declare the charts of a comparison (waterfalls, timelines, differential flame graph) and of a series of batches.

The only computation here is the position of boxes.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from trace_analyzer.catalog.line_labels import line_label
from trace_analyzer.charts import Axis, Boxes, Chart, Flame, Labels, LineMark, Points
from trace_analyzer.compare import figures
from trace_analyzer.compare.comparison import Bar, Comparison
from trace_analyzer.compare.phrasing import CHANCE, scale_of, scaled, signed
from trace_analyzer.compare.scaling import Scaling
from trace_analyzer.units import visible
from trace_analyzer.vocabulary import GROUPS, PARTS

_NARROWEST, _WIDEST = 340, 640
"""Least widths in pixels: of plots that a phone shows completely, and of those that it scrolls."""
_MOST_KEYS, _MOST_NAMES = 10, 3
"""Number of colours in the legend of the timelines, and of names for a colour of several categories."""
_FURTHEST = 4
"""Limit of the device's line, as a multiple of the largest batch, where it crosses the host's time beyond the data."""
_LABEL_CELLS = 24
COLOURS: Mapping[str, str] = {"slower": "p-python", "faster": "p-compute", "even": "share"}
"""Colours of changes."""


def waterfall(bars: Sequence[Bar], before_ns: float, after_ns: float) -> Chart:
    """Declare a waterfall from the step before to the step after, largest changes first; the rest is one bar."""
    scale, unit = scale_of(max(before_ns, after_ns))
    rows = figures.waterfall_rows(bars, before_ns, after_ns)
    start, end = (ns / scale for ns in figures.scale_ends(rows))
    middles = [len(rows) - place - 0.5 for place in range(len(rows))]
    changes = [
        scaled(row.end_ns, scale) if row.difference_ns is None
        else signed(row.difference_ns, scale) + (f" {CHANCE}" if row.within_chance else "")
        for row in rows
    ]  # fmt: skip
    right = [max(row.start_ns, row.end_ns) / scale for row in rows]
    boxes = Boxes(
        [max(start, min(row.start_ns, row.end_ns) / scale) for row in rows], right,
        [middle - 0.4 for middle in middles], [middle + 0.4 for middle in middles],
        ["queue" if row.difference_ns is None else COLOURS["slower" if row.difference_ns > 0 else "faster"] for row in rows],
        {"": [visible(row.name) for row in rows], unit: changes},
    )  # fmt: skip
    names = {middle: _end(visible(row.name)) for middle, row in zip(middles, rows, strict=True)}
    begins = f", from {scaled(start * scale, scale)} on" if start else ""
    return Chart(
        Axis(f"{unit} a step{begins}", ends=(start, end)), Axis("", ticks=names, names=True, ends=(0, len(rows))),
        (boxes, Labels(right, middles, changes, "text-soft")), height=60 + 26 * len(rows), least_width=_NARROWEST,
    )  # fmt: skip


def _end(name: str) -> str:
    """Return the end of a long name, the most informative part of a module path."""
    return name if len(name) <= _LABEL_CELLS else f"…{name[1 - _LABEL_CELLS :]}"


def timelines(result: Comparison) -> Chart | None:
    """Declare one typical step of each side on one axis, by category; None where a side has no single events.

    Its legend has the colours with most time in both.
    """
    sides = [side.timeline() if side.timeline else None for side in result.sides]
    before, after = sides if len(sides) == 2 else (None, None)
    if result.before is None or before is None or after is None or before.is_empty() or after.is_empty():
        return None
    scale, unit = scale_of(result.before.step_ns)
    rows = [(place, *row) for place, side in ((1, before), (0, after)) for row in side.iter_rows()]
    boxes = Boxes(
        [start / scale for _, start, *_ in rows], [end / scale for _, _, end, *_ in rows],
        [place + 0.1 for place, *_ in rows], [place + 0.9 for place, *_ in rows],
        [_colour(kind, category) for *_, kind, category, _ in rows],
        {
            "category": [line_label(category) for *_, category, _ in rows],
            "name": [visible(line_label(name) if name == category else name) for *_, category, name in rows],
            unit: [scaled(end - start, scale) for _, start, end, *_ in rows],
        },
    )  # fmt: skip
    times = figures.category_times(result)
    key = figures.times_by_colour(times, {each: _colour(*each) for each in times}, _MOST_KEYS, _MOST_NAMES)
    return Chart(
        Axis(unit, ends=(0, max(boxes.right))), Axis("", ticks={1.5: "before", 0.5: "after"}, names=True, ends=(0, 2)), (boxes,),
        legend=tuple((visible(name), colour) for name, colour in key), height=220, least_width=_WIDEST, zooms=True,
    )  # fmt: skip


def _colour(kind: str, category: str) -> str:
    if kind == "idle":
        return f"p-{category if category in PARTS else 'unexplained'}"
    if kind == "kernel":
        product = "matmul" if category in ("convolution", "attention", "bmm") else "pointwise"
        return f"k-{category if category in GROUPS else product}"
    return "p-communication" if kind == "communication" else "p-copy"


def flame_graph(result: Comparison) -> Flame:
    """Declare a differential flame graph of kinds of time, modules and operators, coloured by change.

    A frame has the width of the larger side.

    After Gregg 2016, "The Flame Graph" (https://doi.org/10.1145/2909476), with both widths kept.
    """
    frames = figures.flame_rows(result)
    scale, unit = scale_of(max(frames[0].before_ns, frames[0].after_ns))
    callers: list[int] = []
    open_frames: list[int] = []
    for place, frame in enumerate(frames):
        del open_frames[frame.depth :]
        callers.append(open_frames[-1] if open_frames else -1)
        open_frames.append(place)
    names = [visible(frame.name) for frame in frames]
    both = [f"{unit} a step: {scaled(f.before_ns, scale)} before, {scaled(f.after_ns, scale)} after" for f in frames]
    nodes = pl.DataFrame(
        {
            "caller": callers, "frame": names, "label": names, "colour": [COLOURS[frame.change] for frame in frames],
            "value_ns": [frame.width_ns for frame in frames], "note": both,
        }
    )  # fmt: skip
    return Flame("differential", "The longer side", nodes)


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
        Axis("batch"), Axis("time", f"{unit} a step", ends=(0, None)), tuple(marks), legend=tuple(legend.items()),
        signs=(*((("╌", "host's time"),) if result.host_floor_ns is not None else ()), *((("┈", "device's line"),) if result.device_line else ())),
        height=420, least_width=_NARROWEST,
    )  # fmt: skip
