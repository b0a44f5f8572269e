"""Draw the charts as Bokeh documents for the page: in its colours, without code, each on its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.document import Document
from bokeh.models import ColumnDataSource, FactorRange, FixedTicker, HoverTool, Range1d, TapTool
from bokeh.plotting import figure

from trace_analyzer.render.charts import CHARTS, Axis, Chart
from trace_analyzer.render.palette import palette
from trace_analyzer.report import Report

_FONT = "system-ui, sans-serif"


@dataclass(frozen=True)
class Drawing:
    """Hold a plot as Bokeh's document JSON; its legend as names with the CSS variables of their colours.

    ``marks`` are the signs of its points, or lines, and what they mean.
    """

    document: Mapping[str, Any]
    legend: tuple[tuple[str, str], ...]
    marks: tuple[tuple[str, str], ...]
    height: int


def drawings(report: Report, names: tuple[str, ...]) -> dict[str, Drawing]:
    """Return the named plots that the report has data for.

    Glyphs are tagged with the CSS variable of their colour: ``assets/plots.js`` gives them the theme's.
    """
    charts = {name: CHARTS[name](report) for name in names}
    return {name: _drawing(name, chart) for name, chart in charts.items() if chart is not None}


def _drawing(name: str, chart: Chart) -> Drawing:
    plot = _figure(chart)
    plot.name = f"plot-{name}"
    for draw in (_draw_bars, _draw_bins, _draw_lines, _draw_points, _draw_notes):
        draw(plot, chart)
    for renderer in plot.renderers:
        renderer.update(selection_glyph=None, nonselection_glyph=None, muted_glyph=None)
    document = Document()
    document.add_root(plot)
    return Drawing(document.to_json(deferred=False), _legend(chart), chart.marks, chart.height)


def _legend(chart: Chart) -> tuple[tuple[str, str], ...]:
    """Return the page's own legend, where names can be no markup."""
    if chart.points:
        return tuple((points.label, _variable(points.colour)) for points in chart.points)
    return tuple((line.label, _variable(line.colour)) for line in chart.lines) if len(chart.lines) > 1 else ()


def _figure(chart: Chart) -> figure:
    """Return a figure that fits its place, on the page's background; its heading and its legend are the page's."""
    names = list(dict.fromkeys(name for name, _, _ in chart.bars))
    ranges: dict[str, Any] = {"x_range": FactorRange(factors=names)} if names else _ends("x_range", chart.x)
    ranges |= _ends("y_range", chart.y)
    plot = figure(
        **ranges, height=chart.height, sizing_mode="stretch_width", toolbar_location=None, tools="", title=None,
        x_axis_type="log" if chart.x.log else "auto", y_axis_type="log" if chart.y.log else "auto",
        x_axis_label=chart.x.title, y_axis_label=chart.y.title,
        background_fill_alpha=0, border_fill_alpha=0, outline_line_color=None, min_border_right=16,
        lod_threshold=None, output_backend="canvas",
    )  # fmt: skip
    for axis, of in ((plot.xaxis[0], chart.x), (plot.yaxis[0], chart.y)):
        axis.update(
            axis_label_text_font_style="normal", axis_label_text_font=_FONT, major_label_text_font=_FONT,
            axis_label_text_font_size="11pt", major_label_text_font_size="10pt", minor_tick_line_color=None,
        )  # fmt: skip
        if of.ticks:
            axis.update(ticker=FixedTicker(ticks=list(of.ticks)), major_label_overrides=dict(of.ticks))
    plot.grid.minor_grid_line_color = None
    if chart.bins is not None or chart.bars:
        plot.y_range.update(start=0)
    return plot


def _ends(name: str, axis: Axis) -> dict[str, Any]:
    return {} if axis.ends is None else {name: Range1d(start=axis.ends[0], end=axis.ends[1])}


def _variable(colour: str) -> str:
    """Return the CSS variable of a colour, without its dashes: that of other kernels for a group that has none."""
    return colour if colour in palette() else "k-other"


def _tagged(renderer: Any, colour: str) -> Any:
    renderer.glyph.tags = [f"--{_variable(colour)}"]
    return renderer


def _fill(colour: str) -> str:
    return palette()[_variable(colour)]


def _draw_bars(plot: figure, chart: Chart) -> None:
    for colour in dict.fromkeys(colour for _, _, colour in chart.bars):
        own = [(name, height) for name, height, its in chart.bars if its == colour]
        source = ColumnDataSource({"name": [name for name, _ in own], "height": [height for _, height in own]})
        _tagged(
            plot.vbar("name", top="height", width=0.8, source=source, fill_color=_fill(colour), line_color=None), colour
        )


def _draw_bins(plot: figure, chart: Chart) -> None:
    bins = chart.bins
    if bins is None:
        return
    source = ColumnDataSource(
        {
            "left": bins.edges[:-1],
            "right": bins.edges[1:],
            "top": bins.height,
            "start_ns": bins.start_ns,
            "end_ns": bins.end_ns,
        }
    )
    renderer = plot.quad(
        "left", "right", "top", bottom=0, source=source, fill_color=_fill(bins.colour), line_color=None
    )
    _tagged(renderer, bins.colour)
    plot.add_tools(
        HoverTool(renderers=[renderer], tooltips=[(f"{chart.x.label} from", "@left"), (chart.y.title, "@top")]),
        TapTool(renderers=[renderer]),
    )


def _draw_lines(plot: figure, chart: Chart) -> None:
    for line in chart.lines:
        x, y = _steps(line.x, line.y) if line.place else (line.x, line.y)
        source = ColumnDataSource({"x": x, "y": y})
        renderer = plot.line(
            "x", "y", source=source, line_color=_fill(line.colour), line_width=1.2 if line.place else 1.5,
            line_dash="dashed" if line.dashed else "solid",
        )  # fmt: skip
        _tagged(renderer, line.colour)
        if line.place:
            renderer.tags = [{"place": line.place, "unit_ns": line.unit_ns}]


def _steps(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the corners of a step function: each value lasts until the next."""
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]


def _draw_points(plot: figure, chart: Chart) -> None:
    for points in chart.points:
        source = ColumnDataSource(
            {
                chart.x.label: points.x, chart.y.label: points.y, "size": points.size, "shape": list(points.markers),
                "start_ns": points.start_ns, "end_ns": points.end_ns,
                **{name: list(texts) for name, texts in points.texts.items()},
            }
        )  # fmt: skip
        colour = _fill(points.colour)
        renderer = plot.scatter(
            chart.x.label, chart.y.label, size="size", marker="shape", source=source, fill_color=colour, line_color=colour,
            fill_alpha=0.6, line_alpha=0.9,
        )  # fmt: skip
        _tagged(renderer, points.colour)
        tips = [(name, f"@{{{name}}}") for name in points.texts]
        plot.add_tools(HoverTool(renderers=[renderer], tooltips=tips), TapTool(renderers=[renderer]))


def _draw_notes(plot: figure, chart: Chart) -> None:
    for above in (True, False):
        notes = [note for note in chart.notes if note.above == above]
        if notes:
            source = ColumnDataSource(
                {
                    "x": [note.x for note in notes],
                    "y": [note.y for note in notes],
                    "text": [note.text for note in notes],
                }
            )
            plot.text(
                "x", "y", "text", source=source, text_align="right", text_baseline="bottom" if above else "top",
                text_font=value(_FONT), text_font_size="9pt", x_offset=-4, y_offset=-2 if above else 2,
            )  # fmt: skip
