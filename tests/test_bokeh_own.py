"""Check that documents written without Bokeh's models equal those of `bokeh.plotting` for the same drawing."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.document import Document
from bokeh.model import Model as BokehModel
from bokeh.models import (
    BoxAnnotation,
    ColumnDataSource,
    FactorRange,
    FixedTicker,
    Grid,
    HoverTool,
    Range1d,
    RangeTool,
    TapTool,
)
from bokeh.plotting import figure
from report_factory import gpu_report

from trace_analyzer.render.charts import Axis, Bins, Chart, ChartLine, EndLabel, Points
from trace_analyzer.render.html import drawings
from trace_analyzer.render.html.bokeh_models import document
from trace_analyzer.render.html.figure import busy_bins, timeline_figures
from trace_analyzer.render.html.timeline import timeline_columns
from trace_analyzer.render.palette import palette

FONT = "system-ui, sans-serif"
PAINTED = {
    "Quad": {"fill_color", "line_color"}, "Bezier": {"line_color"}, "Scatter": {"fill_color", "line_color"},
    "VAreaStep": {"fill_color"}, "Text": {"text_color"}, "LogTicker": {"num_minor_ticks"},
}  # fmt: skip
"""What the page's scripts set in its theme's colours, and how many ticks that are not drawn."""
COLOURED = {"Quad", "Scatter"}
"""Of those, what has its colours in a chart."""
FLOATS = np.array([1.0, 10.0])


def plain(made: Any, seen: dict[int, int], *, painted: bool) -> Any:
    """Return a model with all that it refers to as plain values, defaults too; one that came before as its number."""
    if isinstance(made, BokehModel):
        if id(made) in seen:
            return seen[id(made)]
        seen[id(made)] = len(seen)
        kind = type(made).__name__
        left = PAINTED.get(kind, set()) if painted or kind not in COLOURED else set()
        values = made.properties_with_values(include_defaults=True)
        return kind, {
            name: plain(values[name], seen, painted=painted)
            for name in sorted(values)
            if name not in left | {"subscribed_events"}
        }
    if isinstance(made, Mapping):
        return {key: plain(item, seen, painted=painted) for key, item in made.items()}
    if isinstance(made, np.ndarray | list | tuple):
        return [plain(item, seen, painted=painted) for item in made]
    return repr(float(made)) if isinstance(made, int | float | np.number) else repr(made)


def same(written: Any, *own: BokehModel, painted: bool = False) -> None:
    roots = Document.from_json(json.loads(json.dumps(written))).roots
    seen: tuple[dict[int, int], dict[int, int]] = {}, {}
    assert [plain(root, seen[0], painted=painted) for root in roots] == [
        plain(root, seen[1], painted=painted) for root in own
    ]


def framed(name: str, chart: Chart, **ends: Any) -> figure:
    """Return Bokeh's figure of a chart without its data."""
    plot = figure(
        **ends, height=chart.height, name=f"plot-{name}", sizing_mode="stretch_width", toolbar_location=None, tools="", title=None,
        x_axis_type="log" if chart.x.log else "auto", y_axis_type="log" if chart.y.log else "auto",
        x_axis_label=chart.x.title, y_axis_label=chart.y.title, background_fill_alpha=0, border_fill_alpha=0,
        outline_line_color=None, min_border_right=16, lod_threshold=None,
    )  # fmt: skip
    for axis in (plot.xaxis[0], plot.yaxis[0]):
        axis.update(
            axis_label_text_font_style="normal", axis_label_text_font=FONT, major_label_text_font=FONT,
            axis_label_text_font_size="11pt", major_label_text_font_size="10pt", minor_tick_line_color=None,
        )  # fmt: skip
    return plot


def plain_looks(plot: figure) -> figure:
    for renderer in plot.renderers:
        renderer.update(selection_glyph=None, nonselection_glyph=None, muted_glyph=None)
    return plot


def test_lines_points_and_notes_on_logarithmic_axes() -> None:
    points = Points(
        "gemm", "k-matmul", FLOATS, FLOATS * 2, FLOATS + 3, {"kernel": ["a", "b"]}, ["circle", "square"], FLOATS, FLOATS
    )
    chart = Chart(
        Axis("intensity", log=True),
        Axis("rate", "FLOP/s", log=True, ticks={1.0: "1", 10.0: "10"}, ends=(1.0, 100.0)),
        lines=(ChartLine("roof", FLOATS, FLOATS, "queue", dashed=True),),
        points=(points,),
        notes=(EndLabel(10.0, 10.0, "peak", above=False),),
    )
    plot = framed("roofline", chart, y_range=Range1d(start=1.0, end=100.0))
    plot.yaxis[0].update(ticker=FixedTicker(ticks=[1.0, 10.0]), major_label_overrides={1.0: "1", 10.0: "10"})
    source = ColumnDataSource({"x": FLOATS, "y": FLOATS})
    line = plot.line("x", "y", source=source, line_color=palette()["queue"], line_width=1.5, line_dash="dashed")
    line.glyph.tags = ["--queue"]
    columns = {"intensity": FLOATS, "rate": FLOATS * 2, "size": FLOATS + 3, "shape": ["circle", "square"]}
    source = ColumnDataSource({**columns, "start_ns": FLOATS, "end_ns": FLOATS, "kernel": ["a", "b"]})
    colour = palette()["k-matmul"]
    marks = plot.scatter(
        "intensity", "rate", size="size", marker="shape", source=source, fill_color=colour, line_color=colour, fill_alpha=0.6,
        line_alpha=0.9,
    )  # fmt: skip
    marks.glyph.tags = ["--k-matmul"]
    plot.add_tools(HoverTool(renderers=[marks], tooltips=[("kernel", "@{kernel}")]), TapTool(renderers=[marks]))
    plot.text(
        "x", "y", "text", source=ColumnDataSource({"x": [10.0], "y": [10.0], "text": ["peak"]}), text_align="right", text_baseline="top",
        text_font=value(FONT), text_font_size="9pt", x_offset=-4, y_offset=2,
    )  # fmt: skip
    same(drawings._drawing("roofline", chart).document, plain_looks(plot))


def test_bars_and_bins() -> None:
    bars = Chart(Axis("bucket"), Axis("time", "ms"), bars=(("a", 2.0, "k-matmul"), ("b", 1.0, "k-matmul")))
    plot = framed("buckets", bars, x_range=FactorRange(factors=["a", "b"]))
    plot.y_range.update(start=0)
    source, colour = ColumnDataSource({"name": ["a", "b"], "height": [2.0, 1.0]}), palette()["k-matmul"]
    plot.vbar("name", top="height", width=0.8, source=source, fill_color=colour, line_color=None).glyph.tags = [
        "--k-matmul"
    ]
    same(drawings._drawing("buckets", bars).document, plain_looks(plot))
    chart = Chart(
        Axis("gap", log=True), Axis("count"), bins=Bins(np.append(FLOATS, 99.0), FLOATS, "k-matmul", FLOATS, FLOATS)
    )
    plot = framed("gaps", chart)
    plot.y_range.update(start=0)
    sides = {"left": FLOATS, "right": np.array([10.0, 99.0]), "top": FLOATS, "start_ns": FLOATS, "end_ns": FLOATS}
    boxes = plot.quad(
        "left", "right", "top", bottom=0, source=ColumnDataSource(sides), fill_color=colour, line_color=None
    )
    boxes.glyph.tags = ["--k-matmul"]
    tips = [("gap from", "@left"), (chart.y.title, "@top")]
    plot.add_tools(HoverTool(renderers=[boxes], tooltips=tips), TapTool(renderers=[boxes]))
    same(drawings._drawing("gaps", chart).document, plain_looks(plot))


def bare(name: str, x_range: Range1d, y_range: Range1d) -> figure:
    return figure(
        name=name, x_range=x_range, y_range=y_range, x_axis_type=None, y_axis_type=None, title=None, tools="", toolbar_location=None,
        sizing_mode="stretch_both", min_border=0, outline_line_color=None, background_fill_alpha=0, border_fill_alpha=0,
        lod_threshold=None,
    )  # fmt: skip


def test_the_timeline() -> None:
    report = gpu_report()
    columns = timeline_columns(report)
    span = columns.end_ns
    view, share = Range1d(start=0.0, end=float(span), name="view"), busy_bins(report, span)
    overview = bare("overview", Range1d(start=0.0, end=float(span)), Range1d(start=0, end=1.05))
    source = ColumnDataSource(
        {"x": np.linspace(0, span, len(share) + 1), "y": np.append(share, share[-1])}, name="overview-source"
    )
    overview.varea_step("x", 0, "y", source=source, step_mode="after", name="overview-area", fill_alpha=0.75)
    tool = RangeTool(x_range=view, start_gesture="pan", name="range-tool")
    tool.overlay = BoxAnnotation(
        fill_alpha=0.08, line_width=1.5, line_alpha=0.7, name="overview-box", editable=True, level="overlay"
    )
    overview.add_tools(tool)
    rows = bare("rows", view, Range1d(start=1, end=0, name="rows-y"))
    rows.add_layout(Grid(dimension=0, ticker=FixedTicker(ticks=[], name="ticks"), name="grid"))
    sides, ends = ("left", "right", "top", "bottom"), ("x0", "y0", "x1", "y1", "cx0", "cy0", "cx1", "cy1")
    boxes, chosen, arrow = (
        ColumnDataSource({key: [] for key in keys}, name=name)
        for name, keys in (("boxes", [*sides, "fill"]), ("chosen", sides), ("arrow", ends))
    )
    rows.quad(*sides, source=boxes, fill_color="fill", line_color=None)
    rows.quad(*sides, source=chosen, fill_color=None, line_width=2, name="chosen-box")
    rows.bezier(*ends, source=arrow, line_width=2, name="arrow-line")
    rows.scatter("x1", "y1", source=arrow, size=7, marker="circle", name="arrow-head")
    curves = []
    for kind in columns.curve_kinds:
        curve = bare(kind, view, Range1d(start=0, end=1, name=f"{kind}-y"))
        source = ColumnDataSource({"x": [0, 1], "y": [0, 0]}, name=f"{kind}-source")
        curve.varea_step("x", 0, "y", source=source, step_mode="after", name=f"{kind}-area", fill_alpha=0.55)
        curves.append(curve)
    own = map(plain_looks, (overview, rows, *curves))
    same(document(timeline_figures(report, columns), "p"), *own, painted=True)
