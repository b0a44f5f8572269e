"""Draw the charts as independent Bokeh documents for the page, in its colours and without code."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trace_analyzer.render.charts import CHARTS, Axis, Chart
from trace_analyzer.render.html.bokeh_models import Model, column, constant, data_source, document, glyphs
from trace_analyzer.render.palette import palette
from trace_analyzer.report import Report

_FONT = "system-ui, sans-serif"

Tips = Sequence[tuple[str, str]]
"""Content of a tooltip: headings and columns."""

Drawn = Iterator[tuple[Model, Tips | None]]
"""Renderers of a part of a chart, each with its tooltip if it can be hovered over and tapped."""


@dataclass(frozen=True)
class Drawing:
    """Hold a plot as Bokeh's document JSON, and its legend as names with the CSS variables of their colours.

    ``marks`` are the signs of its points, or lines, with their meaning.
    """

    document: Mapping[str, Any]
    legend: tuple[tuple[str, str], ...]
    marks: tuple[tuple[str, str], ...]
    height: int


def drawings(report: Report, names: tuple[str, ...]) -> dict[str, Drawing]:
    """Return the named plots for which the report has data.

    Glyphs are tagged with the CSS variable of their colour, so that ``assets/plots.js`` applies the theme's colours.
    """
    charts = {name: CHARTS[name](report) for name in names}
    return {name: _drawing(name, chart) for name, chart in charts.items() if chart is not None}


def _drawing(name: str, chart: Chart) -> Drawing:
    renderers: list[Model] = []
    tools: list[Model] = []
    for draw in (_draw_bars, _draw_bins, _draw_lines, _draw_points, _draw_notes):
        for renderer, tips in draw(chart):
            renderers.append(renderer)
            tools += [] if tips is None else _tools(renderer, tips)
    figure = _figure(f"plot-{name}", chart, renderers, tools)
    return Drawing(document([figure], f"{name}-"), _legend(chart), chart.marks, chart.height)


def _legend(chart: Chart) -> tuple[tuple[str, str], ...]:
    """Return the legend for the page, which shows names as text, never as markup."""
    if chart.points:
        return tuple((points.label, _variable(points.colour)) for points in chart.points)
    return tuple((line.label, _variable(line.colour)) for line in chart.lines) if len(chart.lines) > 1 else ()


def _figure(name: str, chart: Chart, renderers: Sequence[Model], tools: Sequence[Model]) -> Model:
    """Return a figure that fits its container, on the page's background; heading and legend are page elements."""
    x_axis, y_axis = _axis(chart.x, named=bool(chart.bars)), _axis(chart.y)
    return Model(
        "Figure", name=name, height=chart.height, sizing_mode="stretch_width",
        x_range=Model("FactorRange", factors=list(dict.fromkeys(name for name, _, _ in chart.bars))) if chart.bars else _range(chart.x),
        y_range=_range(chart.y, **({"start": 0} if chart.bins is not None or chart.bars else {})),
        x_scale=_scale(chart.x, named=bool(chart.bars)), y_scale=_scale(chart.y),
        title=None, renderers=renderers, toolbar=Model("Toolbar", tools=tools), toolbar_location=None,
        left=[y_axis], below=[x_axis], center=[Model("Grid", axis=x_axis), Model("Grid", axis=y_axis, dimension=1)],
        background_fill_alpha=0, border_fill_alpha=0, outline_line_color=None, min_border_right=16, lod_threshold=None,
    )  # fmt: skip


def _range(axis: Axis, **more: Any) -> Model:
    """Return the range of an axis; ends that are not fixed follow the data."""
    ends = {} if axis.ends is None else {"start": axis.ends[0], "end": axis.ends[1]}
    return Model("Range1d" if ends else "DataRange1d", **{**ends, **more})


def _scale(axis: Axis, *, named: bool = False) -> Model:
    return Model("CategoricalScale" if named else "LogScale" if axis.log else "LinearScale")


def _axis(axis: Axis, *, named: bool = False) -> Model:
    """Return an axis with its label and its own ticks, or Bokeh's."""
    ticks = (
        {"ticker": Model("FixedTicker", ticks=list(axis.ticks)), "major_label_overrides": dict(axis.ticks)}
        if axis.ticks
        else {}
    )
    return Model(
        "CategoricalAxis" if named else "LogAxis" if axis.log else "LinearAxis", axis_label=axis.title,
        axis_label_text_font_style="normal", axis_label_text_font=_FONT, major_label_text_font=_FONT,
        axis_label_text_font_size="11pt", major_label_text_font_size="10pt", minor_tick_line_color=None, **ticks,
    )  # fmt: skip


def _variable(colour: str) -> str:
    """Return the CSS variable of a colour, without its dashes; that of other kernels for a group without a colour."""
    return colour if colour in palette() else "k-other"


def _glyph(kind: str, colour: str, **attributes: Any) -> Model:
    """Return a glyph with its theme colour."""
    return Model(kind, tags=[f"--{_variable(colour)}"], **attributes)


def _fill(colour: str) -> str:
    return palette()[_variable(colour)]


def _tools(renderer: Model, tips: Tips) -> list[Model]:
    """Return the tools that show a row's texts and lead to its place."""
    return [Model("HoverTool", renderers=[renderer], tooltips=tips), Model("TapTool", renderers=[renderer])]


def _draw_bars(chart: Chart) -> Drawn:
    for colour in dict.fromkeys(colour for _, _, colour in chart.bars):
        own = [(name, height) for name, height, its in chart.bars if its == colour]
        source = data_source({"name": [name for name, _ in own], "height": [height for _, height in own]})
        bars = _glyph(
            "VBar", colour, x=column("name"), top=column("height"), width=0.8, fill_color=_fill(colour), line_color=None
        )
        yield glyphs(bars, source), None


def _draw_bins(chart: Chart) -> Drawn:
    bins = chart.bins
    if bins is None:
        return
    source = data_source(
        {
            "left": bins.edges[:-1],
            "right": bins.edges[1:],
            "top": bins.height,
            "start_ns": bins.start_ns,
            "end_ns": bins.end_ns,
        }
    )
    boxes = _glyph(
        "Quad", bins.colour, left=column("left"), right=column("right"), top=column("top"), bottom=0,
        fill_color=_fill(bins.colour), line_color=None,
    )  # fmt: skip
    yield glyphs(boxes, source), [(f"{chart.x.label} from", "@left"), (chart.y.title, "@top")]


def _draw_lines(chart: Chart) -> Drawn:
    for line in chart.lines:
        x, y = _steps(line.x, line.y) if line.place else (line.x, line.y)
        curve = _glyph(
            "Line", line.colour, x=column("x"), y=column("y"), line_color=_fill(line.colour),
            line_width=1.2 if line.place else 1.5, line_dash="dashed" if line.dashed else "solid",
        )  # fmt: skip
        place = {"tags": [{"place": line.place, "unit_ns": line.unit_ns}]} if line.place else {}
        yield glyphs(curve, data_source({"x": x, "y": y}), **place), None


def _steps(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the corners of a step function, in which each value lasts until the next one."""
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]


def _draw_points(chart: Chart) -> Drawn:
    for points in chart.points:
        source = data_source(
            {
                chart.x.label: points.x, chart.y.label: points.y, "size": points.size, "shape": list(points.markers),
                "start_ns": points.start_ns, "end_ns": points.end_ns,
                **{name: list(texts) for name, texts in points.texts.items()},
            }
        )  # fmt: skip
        colour = _fill(points.colour)
        marks = _glyph(
            "Scatter", points.colour, x=column(chart.x.label), y=column(chart.y.label), size=column("size"), marker=column("shape"),
            fill_color=colour, line_color=colour, fill_alpha=0.6, line_alpha=0.9,
        )  # fmt: skip
        yield glyphs(marks, source), [(name, f"@{{{name}}}") for name in points.texts]


def _draw_notes(chart: Chart) -> Drawn:
    for above in (True, False):
        notes = [note for note in chart.notes if note.above == above]
        if notes:
            source = data_source(
                {
                    "x": [note.x for note in notes],
                    "y": [note.y for note in notes],
                    "text": [note.text for note in notes],
                }
            )
            texts = Model(
                "Text", x=column("x"), y=column("y"), text=column("text"), text_align=constant("right"),
                text_baseline=constant("bottom" if above else "top"), text_font=constant(_FONT), text_font_size=constant("9pt"),
                x_offset=-4, y_offset=-2 if above else 2,
            )  # fmt: skip
            yield glyphs(texts, source), None
