"""Draw charts as HoloViews elements, which can be shown in notebooks, restyled and combined.

For example ``report.plots["gaps"].opts(color="red")``. Importing this module imports HoloViews with its Bokeh backend,
which takes longer than analysing a small trace; pages draw the same charts without it.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from bokeh.models import FixedTicker, PlainText

from trace_analyzer.errors import UsageError, did_you_mean
from trace_analyzer.render.charts import CHARTS, palette
from trace_analyzer.report import Report
from trace_analyzer.sections import Axis, Boxes, Chart, Labels, LineMark, Mark, Points, Strokes

try:
    import holoviews as hv
    import holoviews.plotting.bokeh
except ModuleNotFoundError as error:
    raise UsageError(f"plots need {error.name}: pip install 'torch-trace-analyzer[plots]'") from None


class Plots(dict[str, Any]):
    """Map names to HoloViews objects; its text representation is the names."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"no plot {str(name)[:100]!r}{did_you_mean(str(name), self)}")

    def __repr__(self) -> str:
        return f"<{len(self)} plots: {', '.join(self)}>"


def plots(report: Report) -> Plots:
    """Draw all plots for which the report has data, by name."""
    charts = {name: describe(report) for name, describe in CHARTS.items()}
    return Plots({name: plot(chart) for name, chart in charts.items() if chart is not None})


def plot(chart: Chart) -> hv.Element:
    """Draw a chart; in a notebook, load the scripts that display it first."""
    load_into_notebook()
    elements = [_element(mark, chart) for mark in chart.marks]
    drawn = elements[0] if len(elements) == 1 else hv.Overlay(elements)
    ends = {name: axis.ends for name, axis in (("xlim", chart.x), ("ylim", chart.y)) if axis.ends != (None, None)}
    return drawn.opts(
        width=chart.width, height=chart.height, toolbar="above" if chart.zooms else None, show_grid=True, fontsize={"labels": 11, "ticks": 10},
        xlabel=chart.x.title, ylabel=chart.y.title, logx=chart.x.log, logy=chart.y.log, hooks=[_ticks(chart)], **ends,
    )  # fmt: skip


def _element(mark: Mark, chart: Chart) -> hv.Element:
    x, y = chart.x.label or "x", chart.y.label or "y"
    match mark:
        case Boxes():
            columns = {side: np.asarray(getattr(mark, side), float) for side in ("left", "bottom", "right", "top")}
            others = _columns(mark) | {"colour": _colours(mark.colours, len(mark.left))}
            boxes = hv.Rectangles(columns | others, list(columns), list(others))
            return boxes.opts(color="colour", line_color=None, **_hover(mark))
        case Points():
            count = len(mark.x)
            looks = {
                "size": [7.0] * count if mark.size is None else mark.size,
                "shape": list(mark.markers) or ["circle"] * count,
            }
            others = _columns(mark) | looks
            points = hv.Points({x: mark.x, y: mark.y} | others, [x, y], list(others), label=mark.label)
            return points.opts(
                size="size", marker="shape", color=_colour(mark.colour), fill_alpha=0.6, line_alpha=0.9, **_hover(mark)
            )
        case LineMark():
            steps = {"interpolation": "steps-post"} if mark.place else {}
            curve = hv.Curve((mark.x, mark.y), x, y, label=mark.label)
            return curve.opts(color=_colour(mark.colour), line_width=1.5, line_dash=mark.dash, **steps)
        case Strokes():
            ends = hv.Segments((mark.x0, mark.y0, mark.x1, mark.y1))
            return ends.opts(color=_colour(mark.colour), line_width=mark.width)
        case Labels():
            texts = {x: mark.x, y: mark.y, "text": list(mark.texts), "colour": _colours(mark.colours, len(mark.texts))}
            return hv.Labels(texts, [x, y], ["text", "colour"]).opts(
                text_align=mark.align, text_baseline=mark.baseline, text_color="colour", text_font_size="9pt"
            )


def _columns(mark: Boxes | Points) -> dict[str, Any]:
    """Return the texts of a mark, and its place on the timeline, if any."""
    spans = {} if mark.start_ns is None else {"start_ns": mark.start_ns, "end_ns": mark.end_ns}
    return {name: list(texts) for name, texts in mark.texts.items()} | spans


def _hover(mark: Boxes | Points) -> dict[str, Any]:
    tools = [*(["hover"] if mark.texts else []), *(["tap"] if mark.start_ns is not None else [])]
    return {"tools": tools, "hover_tooltips": list(mark.texts)} if mark.texts else {"tools": tools}


def _colour(name: str) -> str:
    return palette().get(name, palette()["k-other"])


def _colours(names: str | Sequence[str], count: int) -> list[str]:
    return list(map(_colour, [names] * count if isinstance(names, str) else names))


def _ticks(chart: Chart) -> Callable[[Any, hv.Element], None]:
    """Return a hook that sets the labels of the axes.

    HoloViews' own option converts the values to integers, which JavaScript cannot represent above 2**53.
    """
    axes: Mapping[str, Axis] = {"xaxis": chart.x, "yaxis": chart.y}

    def set_ticks(plot: Any, _: hv.Element) -> None:
        for name, axis in axes.items():
            if axis.ticks:
                labels = {tick: PlainText(text=text) for tick, text in axis.ticks.items()}
                plot.handles[name].update(ticker=FixedTicker(ticks=list(axis.ticks)), major_label_overrides=labels)
            elif axis.counts:
                plot.handles[name].ticker.min_interval = 1

    return set_ticks


def load_into_notebook() -> None:
    """Load the scripts that display HoloViews plots, once, if this runs in a notebook."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None:
        _load_into_notebook()


@cache
def _load_into_notebook() -> None:
    hv.extension("bokeh", inline=True, logo=False)  # inline: a machine without network draws them too
