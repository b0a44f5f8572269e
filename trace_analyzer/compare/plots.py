"""Draw a comparison (waterfalls, timelines, differential flame graph) and a series of batches with HoloViews.

The only computation here is the position of rectangles. Importing this module loads HoloViews with its Bokeh backend.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import holoviews as hv
import holoviews.plotting.bokeh
from bokeh.models import FixedTicker, Line, Text
from bokeh.models.renderers import GlyphRenderer

from trace_analyzer.catalog.line_labels import line_label
from trace_analyzer.compare import figures
from trace_analyzer.compare.comparison import Bar, Comparison
from trace_analyzer.compare.phrasing import CHANCE, scale_of, scaled, signed
from trace_analyzer.compare.scaling import Scaling
from trace_analyzer.render.charts import palette
from trace_analyzer.units import shorten, visible

_NARROWEST, _WIDEST = 340, 640
"""Least widths in pixels: of plots that a phone shows completely, and of those that it scrolls."""
_CELLS = 100
"""Characters of a label that fit into the whole width."""
_MOST_KEYS, _MOST_NAMES = 10, 3
"""Number of colours in the legend of the timelines, and of names for a colour of several categories."""
_FURTHEST = 4
"""Limit of the device's line, as a multiple of the largest batch, where it crosses the host's time beyond the data."""
_INK, _LINE = "#5f6673", "#ffffff"
"""Grey that is readable on a light and on a dark page, until the page's script applies the theme; lines between
frames."""
_LEAST_LABELLED = 0.04
"""Frames of the flame graph below this share of the step have no label."""
_LABEL_CELLS = 24


def _colours() -> dict[str, str]:
    known = palette()
    return {"slower": known["p-python"], "faster": known["p-compute"], "even": known["share"], "total": known["queue"]}


def waterfall(bars: Sequence[Bar], before_ns: float, after_ns: float) -> hv.Element:
    """Draw a waterfall from the step before to the step after, largest changes first; the rest is one bar."""
    scale, unit = scale_of(max(before_ns, after_ns))
    rows, colours = figures.waterfall_rows(bars, before_ns, after_ns), _colours()
    count = len(rows)
    start, end = (ns / scale for ns in figures.scale_ends(rows))
    boxes = [
        (
            max(start, min(row.start_ns, row.end_ns) / scale), count - place - 0.9, max(row.start_ns, row.end_ns) / scale, count - place - 0.1,
            visible(row.name), scaled(row.end_ns, scale) if row.difference_ns is None else signed(row.difference_ns, scale) + (f" {CHANCE}" if row.within_chance else ""),
            colours["total" if row.difference_ns is None else "slower" if row.difference_ns > 0 else "faster"],
        )
        for place, row in enumerate(rows)
    ]  # fmt: skip
    ticks = {count - place - 0.5: _end(visible(row.name)) for place, row in enumerate(rows)}
    rectangles = hv.Rectangles(boxes, ["x0", "y0", "x1", "y1"], ["name", "change", "colour"]).opts(
        color="colour", line_color=None, tools=["hover"], hover_tooltips=[("", "@name"), (unit, "@change")],
    )  # fmt: skip
    sizes = hv.Labels([(box[2], count - place - 0.5, f" {box[5]}") for place, box in enumerate(boxes)], ["x", "y"], "size").opts(
        text_font_size="8.5pt", text_color=_INK, text_align="left"
    )  # fmt: skip
    return (rectangles * sizes).opts(
        xlim=(start, end), ylim=(0, count), xlabel=f"{unit} a step" + (f", from {scaled(start * scale, scale)} on" if start else ""), ylabel="", yticks=FixedTicker(ticks=list(ticks)),
        hooks=[_named_ticks(ticks)], **_frame_options(60 + 26 * count, _NARROWEST), toolbar=None,
    )  # fmt: skip


def _frame_options(height: int, least_width: int) -> dict[str, Any]:
    """Return the options of every plot: the page's width, at least so many pixels."""
    return {"responsive": True, "height": height, "min_width": least_width, "show_grid": True, "default_tools": []}


def _end(name: str) -> str:
    """Return the end of a long name, the most informative part of a module path."""
    return name if len(name) <= _LABEL_CELLS else f"…{name[1 - _LABEL_CELLS :]}"


def _named_ticks(labels: dict[float, str]) -> Any:
    """Return a hook that sets the labels of the vertical axis; labels are text, never HTML."""

    def hook(plot: Any, element: object) -> None:
        axis = plot.state.yaxis[0]
        axis.ticker = FixedTicker(ticks=list(labels))
        axis.major_label_overrides = labels
        plot.state.ygrid.visible = False
        mark_ink(plot, element)

    return hook


def mark_ink(plot: Any, element: object) -> None:
    """Tag the glyphs drawn in `_INK`, so that the page's script gives them the theme's text colour."""
    for model in plot.state.select({"type": GlyphRenderer}):
        glyph = model.glyph
        if (isinstance(glyph, Text) and glyph.text_color == _INK) or (
            isinstance(glyph, Line) and glyph.line_color == _INK
        ):
            glyph.tags = ["ink"]


def timelines(result: Comparison) -> hv.Element | None:
    """Draw one typical step of each side on one axis, by category; None where a side has no single events."""
    sides = [side.timeline() if side.timeline else None for side in result.sides]
    if any(side is None or side.is_empty() for side in sides):
        return None
    assert result.before is not None
    scale, unit = scale_of(result.before.step_ns)
    known, boxes = palette(), []
    for place, side in zip((1, 0), sides, strict=True):
        assert side is not None
        for start, end, kind, category, name in side.iter_rows():
            colour = _colour(known, kind, category)
            box = (
                start / scale,
                place + 0.1,
                end / scale,
                place + 0.9,
                visible(line_label(category)),
                visible(line_label(name) if name == category else name),
                (end - start) / scale,
                colour,
            )
            boxes.append(box)
    return hv.Rectangles(boxes, ["x0", "y0", "x1", "y1"], ["category", "name", "length", "colour"]).opts(
        color="colour", line_color=None, tools=["hover", "xpan", "xbox_zoom", "reset"], **_frame_options(220, _WIDEST),
        active_tools=["xbox_zoom"], xlabel=unit, xlim=(0, max(box[2] for box in boxes)), ylabel="", toolbar="above", hooks=[_named_ticks({1.5: "before", 0.5: "after"})],
        hover_tooltips=[("", "@category"), ("", "@name"), (unit, "@length{0,0.000}")],
    )  # fmt: skip


def timeline_key(result: Comparison) -> list[tuple[str, str]]:
    """Return the categories and the colour of most time in both typical steps, in descending order."""
    known, times = palette(), figures.category_times(result)
    return figures.times_by_colour(times, {key: _colour(known, *key) for key in times}, _MOST_KEYS, _MOST_NAMES)


def _colour(known: Mapping[str, str], kind: str, category: str) -> str:
    if kind == "idle":
        return known.get(f"p-{category}", known["p-unexplained"])
    if kind == "kernel":
        return known.get(
            f"k-{category}", known["k-matmul" if category in ("convolution", "attention", "bmm") else "k-pointwise"]
        )
    return known["p-communication" if kind == "communication" else "p-copy"]


def flame_graph(result: Comparison) -> hv.Element:
    """Draw a differential flame graph of kinds of time, modules and operators, coloured by change.

    A frame has the width of the larger side.

    After Gregg 2016, "The Flame Graph" (https://doi.org/10.1145/2909476), with both widths kept.
    """
    frames, colours = figures.flame_rows(result), _colours()
    step = frames[0]
    scale, unit = scale_of(max(step.before_ns, step.after_ns))
    depth = 1 + max(frame.depth for frame in frames)
    boxes = [
        (
            frame.start_ns / scale, float(frame.depth), (frame.start_ns + frame.width_ns) / scale, frame.depth + 0.92,
            visible(frame.name), frame.before_ns / scale, frame.after_ns / scale, colours[frame.change],
        )
        for frame in frames
    ]  # fmt: skip
    rectangles = hv.Rectangles(boxes, ["x0", "y0", "x1", "y1"], ["name", "before", "after", "colour"]).opts(
        color="colour", line_color=_LINE, tools=["hover"], xlabel=f"{unit} a step", ylabel="", yaxis=None, toolbar=None,
        xlim=(0, step.width_ns / scale), ylim=(0, depth), **_frame_options(60 + 28 * depth, _WIDEST),
        hover_tooltips=[("", "@name"), ("before", "@before{0,0.000}"), ("after", "@after{0,0.000}")],
    )  # fmt: skip
    texts = [
        (
            (box[0] + box[2]) / 2,
            box[1] + 0.45,
            shorten(box[4], max(3, int(frame.width_ns / step.width_ns * _CELLS))),
            _INK if frame.change == "even" else "#ffffff",
        )
        for frame, box in zip(frames, boxes, strict=True)
        if frame.width_ns > _LEAST_LABELLED * step.width_ns
    ]
    labels = hv.Labels(texts, ["x", "y"], ["name", "ink"]).opts(text_font_size="8pt", text_color="ink")
    return rectangles * labels


def scaling_plot(result: Scaling) -> hv.Element:
    """Draw step, busy and idle time over the batch, with the host's lower bound and the device's line."""
    scale, unit = scale_of(max(point.step_ns for point in result.points))
    known, batch, time = palette(), hv.Dimension("batch"), hv.Dimension("time", label=f"{unit} a step")
    series = {"step": _INK, "busy": known["p-compute"], "idle": known["p-python"]}
    curves = [
        curve
        for name, colour in series.items()
        for points in [[(p.batch, getattr(p, f"{name}_ns") / scale) for p in result.points]]
        for curve in (
            hv.Curve(points, batch, time, label=name).opts(color=colour),
            hv.Scatter(points, batch, time).opts(color=colour, size=7, tools=["hover"]),
        )
    ]
    if result.host_floor_ns is not None:
        curves.append(hv.HLine(result.host_floor_ns / scale).opts(color=known["text-muted"], line_dash="dashed"))
    last: float = result.points[-1].batch
    if result.device_line:
        line = result.device_line
        last = max(last, min(result.flip_batch or 0, _FURTHEST * last))
        fitted = [(b, (line.fixed_ns + line.per_item_ns * b) / scale) for b in (result.points[0].batch, last)]
        curves.append(
            hv.Curve(fitted, batch, time, label="device line").opts(color=known["p-compute"], line_dash="dotted")
        )
    return hv.Overlay(curves).opts(
        **_frame_options(420, _NARROWEST),
        legend_position="top",
        legend_cols=4,
        toolbar=None,
        ylim=(0, None),
        hooks=[mark_ink],
    )
