"""Build the timeline's Bokeh figures: the overview strip, the rows, the curves under them.

They hold no events. `assets/timeline.js` fills their sources with what the view shows, so that a redraw costs
the same for a thousand events as for a million.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from bokeh.models import ColumnDataSource, FixedTicker, Grid, Range1d, RangeTool
from bokeh.models.annotations import BoxAnnotation
from bokeh.plotting import figure

from trace_analyzer.render.html.timeline import TimelineColumns
from trace_analyzer.report import Report
from trace_analyzer.vocabulary import WORK

_OVERVIEW_BINS = 1200


@dataclass(frozen=True)
class TimelineFigures:
    """Hold the overview, the rows and the curves, one above the other; they share the time axis."""

    overview: figure
    rows: figure
    curves: tuple[figure, ...]

    @property
    def all(self) -> tuple[figure, ...]:
        """Return the figures from top to bottom."""
        return self.overview, self.rows, *self.curves


def timeline_figures(report: Report, columns: TimelineColumns) -> TimelineFigures:
    """Return empty figures over the whole trace; only the overview has its data already."""
    span = max(columns.end_ns, 1)
    view = Range1d(start=0.0, end=float(span), name="view")
    share = busy_bins(report, span) if report.tables["partition"].height else host_bins(columns, span)
    figures = TimelineFigures(
        _overview(share, span, view), _rows(view), tuple(_curve(kind, view) for kind in columns.curve_kinds)
    )
    for plot in figures.all:
        for renderer in plot.renderers:
            # they look the same at all times; else Bokeh works out colours for each look at every redraw
            renderer.update(selection_glyph=None, nonselection_glyph=None, muted_glyph=None)
    return figures


def busy_bins(report: Report, span_ns: int) -> npt.NDArray[np.float64]:
    """Return the share of each of equally wide bins in which the devices worked, all devices together."""
    partition = report.tables["partition"]
    busy = partition.filter(pl.col("part").is_in(WORK))
    share = _bins(busy.get_column("start_ns"), busy.get_column("end_ns"), span_ns)
    return share / partition.get_column("device").n_unique()


def host_bins(columns: TimelineColumns, span_ns: int) -> npt.NDArray[np.float64]:
    """Return the bins of the first thread's outermost operators, when nothing ran on a device."""
    rows = next((track.rows for track in columns.tracks if track.family == "operators"), ((0, 0),))
    operators = (
        columns.events.slice(rows[0][0], sum(count for _, count in rows))
        .filter(kind="operator")
        .select("start_ns", end_ns=pl.col("start_ns") + pl.col("duration_ns"))
        .sort("start_ns", "end_ns", descending=[False, True])
    )
    outermost = operators.filter(pl.col("start_ns") >= pl.col("end_ns").cum_max().shift(1, fill_value=0))
    return _bins(outermost.get_column("start_ns"), outermost.get_column("end_ns"), span_ns)


def _bins(start: pl.Series, end: pl.Series, span_ns: int) -> npt.NDArray[np.float64]:
    """Return the covered share of each bin: time since the starts passed minus since the ends passed."""
    edges = np.linspace(0, span_ns, _OVERVIEW_BINS + 1)
    inside = _passed(edges, start.sort().to_numpy()) - _passed(edges, end.sort().to_numpy())
    covered: npt.NDArray[np.float64] = np.diff(inside) / (span_ns / _OVERVIEW_BINS)
    return covered.clip(min=0)


def _passed(edges: npt.NDArray[np.float64], instants: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Sum (edge - instant) over the sorted instants before each edge."""
    before = np.searchsorted(instants, edges)
    sums = np.concatenate([[0.0], np.cumsum(instants, dtype=np.float64)])
    passed: npt.NDArray[np.float64] = edges * before - sums[before]
    return passed


def _bare_figure(name: str, x_range: Range1d, y_range: Range1d) -> figure:
    """Return a figure that is nothing but its frame: labels and axes are page elements around it.

    It has neither axes nor title: Bokeh works on hidden ones, and on their grids, at every redraw.
    """
    plot = figure(
        name=name, x_range=x_range, y_range=y_range, x_axis_type=None, y_axis_type=None, title=None, tools="", toolbar_location=None,
        sizing_mode="stretch_both", min_border=0, outline_line_color=None, background_fill_alpha=0,
        border_fill_alpha=0,
        lod_threshold=None,  # else Bokeh draws a silent subset while zooming
    )  # fmt: skip
    return plot


def _overview(share: npt.NDArray[np.float64], span_ns: int, view: Range1d) -> figure:
    plot = _bare_figure("overview", Range1d(start=0.0, end=float(span_ns)), Range1d(start=0, end=1.05))
    edges = np.linspace(0, span_ns, len(share) + 1)
    source = ColumnDataSource({"x": edges, "y": np.append(share, share[-1])}, name="overview-source")
    plot.varea_step("x", 0, "y", source=source, step_mode="after", name="overview-area", fill_alpha=0.75)
    tool = RangeTool(x_range=view, start_gesture="pan", name="range-tool")
    tool.overlay = BoxAnnotation(
        fill_alpha=0.08, line_width=1.5, line_alpha=0.7, name="overview-box", editable=True, level="overlay"
    )
    plot.add_tools(tool)
    return plot


def _rows(view: Range1d) -> figure:
    plot = _bare_figure("rows", view, Range1d(start=1, end=0, name="rows-y"))
    plot.add_layout(Grid(dimension=0, ticker=FixedTicker(ticks=[], name="ticks"), name="grid"))
    boxes = ColumnDataSource({key: [] for key in ("left", "right", "top", "bottom", "fill")}, name="boxes")
    plot.quad("left", "right", "top", "bottom", source=boxes, fill_color="fill", line_color=None)
    chosen = ColumnDataSource({key: [] for key in ("left", "right", "top", "bottom")}, name="chosen")
    plot.quad("left", "right", "top", "bottom", source=chosen, fill_color=None, line_width=2, name="chosen-box")
    arrow = ColumnDataSource({key: [] for key in ("x0", "y0", "x1", "y1", "cx0", "cy0", "cx1", "cy1")}, name="arrow")
    plot.bezier("x0", "y0", "x1", "y1", "cx0", "cy0", "cx1", "cy1", source=arrow, line_width=2, name="arrow-line")
    plot.scatter("x1", "y1", source=arrow, size=7, marker="circle", name="arrow-head")
    return plot


def _curve(kind: str, view: Range1d) -> figure:
    plot = _bare_figure(kind, view, Range1d(start=0, end=1, name=f"{kind}-y"))
    # never empty: a step area without points hangs the tab (Bokeh 3.9.2)
    source = ColumnDataSource({"x": [0, 1], "y": [0, 0]}, name=f"{kind}-source")
    plot.varea_step("x", 0, "y", source=source, step_mode="after", name=f"{kind}-area", fill_alpha=0.55)
    return plot
