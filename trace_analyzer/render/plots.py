"""Draw HoloViews objects of a report, which can be shown, restyled and combined.

For example ``report.plots["gaps"].opts(color="red")``. `charts` describes their content. Importing this module imports
HoloViews with its Bokeh backend, which takes longer than analysing a small trace; the page draws the same charts
without it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import holoviews as hv
import holoviews.plotting.bokeh
from bokeh.models import FixedTicker

from trace_analyzer.render.charts import CHARTS, Bins, Chart, ChartLine, Points
from trace_analyzer.render.palette import palette
from trace_analyzer.report import Report


def plots(report: Report) -> dict[str, hv.Element]:
    """Draw all plots for which the report has data, by name."""
    made = {name: draw(report) for name, draw in PLOTS.items()}
    return {name: plot for name, plot in made.items() if plot is not None}


def _drawn(describe: Callable[[Report], Chart | None], report: Report) -> hv.Element | None:
    chart = describe(report)
    return None if chart is None else _element(chart)


PLOTS: Mapping[str, Callable[[Report], hv.Element | None]] = {
    name: partial(_drawn, describe) for name, describe in CHARTS.items()
}
"""Name -> the function that draws the plot, which returns None where the report has no data."""


def _element(chart: Chart) -> hv.Element:
    if chart.bars:
        rows = [(name, height, _colour(colour)) for name, height, colour in chart.bars]
        bars = hv.Bars(rows, chart.x.label, [chart.y.label, "colour"])
        turned = 30 if chart.x.label == "Bucket" else 0
        return _framed(
            bars.opts(color="colour", line_color=None, ylabel=f"{chart.y.label} ({chart.y.unit})", xrotation=turned),
            chart,
        )
    if chart.bins is not None:
        return _framed(_histogram(chart, chart.bins), chart)
    if chart.points:
        notes = [
            hv.Labels(
                {chart.x.label: [note.x], chart.y.label: [note.y], "peak": [note.text]}, [chart.x.label, chart.y.label], "peak"
            ).opts(text_align="right", text_baseline="bottom" if note.above else "top", text_font_size="9pt")
            for note in chart.notes
        ]  # fmt: skip
        overlay = hv.Overlay(
            [
                *(_line(chart, line) for line in chart.lines),
                *(_points(chart, points) for points in chart.points),
                *notes,
            ]
        )
        return _framed(overlay, chart).opts(logx=True, logy=True, hooks=[_ticks("yaxis", chart.y.ticks)])
    curves = {line.label: _line(chart, line) for line in chart.lines}
    if len(curves) == 1:
        return _framed(next(iter(curves.values())), chart)
    return _framed(hv.NdOverlay(curves, kdims="Device"), chart)


def _line(chart: Chart, line: ChartLine) -> hv.Element:
    if not line.place:
        curve = hv.Curve((line.x, line.y), chart.x.label, chart.y.label)
        dash = {"line_dash": "dashed"} if line.dashed else {}
        return curve.opts(color=_colour(line.colour), line_width=1.5, **dash)
    curve = hv.Curve((line.x, line.y), chart.x.title, chart.y.title)
    return curve.opts(interpolation="steps-post", color=_colour(line.colour), line_width=1.2)


def _points(chart: Chart, points: Points) -> hv.Element:
    frame = {
        chart.x.label: points.x, chart.y.label: points.y, **points.texts,
        "start_ns": points.start_ns, "end_ns": points.end_ns, "size": points.size, "shape": list(points.markers),
    }  # fmt: skip
    others = [name for name in frame if name not in (chart.x.label, chart.y.label)]
    return hv.Points(frame, [chart.x.label, chart.y.label], others, label=points.label).opts(
        size="size", marker="shape", color=_colour(points.colour), fill_alpha=0.6, line_alpha=0.9,
        tools=["hover", "tap"], hover_tooltips=list(points.texts),
    )  # fmt: skip


def _histogram(chart: Chart, bins: Bins) -> hv.Element:
    histogram = hv.Histogram(
        (bins.edges, bins.height, bins.start_ns, bins.end_ns),
        kdims=[chart.x.label],
        vdims=[chart.y.label, "start_ns", "end_ns"],
    )
    return histogram.opts(
        logx=True, hooks=[_ticks("xaxis", chart.x.ticks)], color=_colour(bins.colour), line_color=None,
        tools=["hover", "tap"], hover_tooltips=[chart.x.label, chart.y.label], ylabel=chart.y.title, ylim=(0, None),
    )  # fmt: skip


def _colour(name: str) -> str:
    return palette().get(name, palette()["k-other"])


def _ticks(axis: str, labels: Mapping[float, str]) -> Callable[[Any, hv.Element], None]:
    """Return a hook that sets the labels at these values of an axis.

    HoloViews' own option converts them to integers, which JavaScript cannot represent above 2**53.
    """

    def set_ticks(plot: Any, _: hv.Element) -> None:
        plot.handles[axis].update(ticker=FixedTicker(ticks=list(labels)), major_label_overrides=dict(labels))

    return set_ticks


def _framed(plot: hv.Element, chart: Chart) -> hv.Element:
    """Apply the common options of all plots."""
    return plot.opts(
        width=chart.width, height=chart.height, toolbar=None, show_grid=True, fontsize={"labels": 11, "ticks": 10},
    )  # fmt: skip
