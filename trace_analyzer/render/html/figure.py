"""Build the timeline's Bokeh figures: the overview strip, the rows, and the curves below them.

They contain no events. `assets/timeline.js` fills their sources with the visible ones, so that the cost of a redraw
does not depend on the number of events.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer.render.html.bokeh_models import Model, column, data_source, glyphs
from trace_analyzer.render.html.timeline import TimelineColumns
from trace_analyzer.report import Report
from trace_analyzer.vocabulary import WORK

_OVERVIEW_BINS = 1200


def timeline_figures(report: Report, columns: TimelineColumns) -> tuple[Model, ...]:
    """Return empty figures over the whole trace, from top to bottom; only the overview has data.

    They share the time axis.
    """
    span = max(columns.end_ns, 1)
    view = Model("Range1d", start=0.0, end=float(span), name="view")
    share = busy_bins(report, span) if report.tables["partition"].height else host_bins(columns, span)
    curves = (_curve(kind, view) for kind in columns.curve_kinds)
    return _overview(share, span, view), _rows(view), *curves


def busy_bins(report: Report, span_ns: int) -> npt.NDArray[np.float64]:
    """Return the busy share of each of several equal bins, over all devices."""
    partition = report.tables["partition"]
    busy = partition.filter(pl.col("part").is_in(WORK))
    share = _bins(busy.get_column("start_ns"), busy.get_column("end_ns"), span_ns)
    return share / partition.get_column("device").n_unique()


def host_bins(columns: TimelineColumns, span_ns: int) -> npt.NDArray[np.float64]:
    """Return the bins of the first thread's outermost operators, for a trace without device work."""
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
    """Return the covered share of each bin: the time since passed starts minus the time since passed ends."""
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


def _bare_figure(name: str, x_range: Model, y_range: Model, **attributes: Any) -> Model:
    """Return a figure without labels and axes, which are page elements around it.

    It has neither axes nor title, because Bokeh processes even hidden ones, and their grids, at every redraw.
    """
    return Model(
        "Figure", name=name, x_range=x_range, y_range=y_range, title=None, toolbar_location=None, sizing_mode="stretch_both",
        min_border=0, outline_line_color=None, background_fill_alpha=0, border_fill_alpha=0,
        lod_threshold=None,  # otherwise Bokeh silently draws a subset while zooming
        **attributes,
    )  # fmt: skip


def _overview(share: npt.NDArray[np.float64], span_ns: int, view: Model) -> Model:
    edges = np.linspace(0, span_ns, len(share) + 1)
    source = data_source({"x": edges, "y": np.append(share, share[-1])}, name="overview-source")
    area = glyphs(_area(fill_alpha=0.75), source, name="overview-area")
    place = {side: Model("Node", target="frame", symbol=side) for side in ("left", "right", "top", "bottom")}
    box = Model(
        "BoxAnnotation", name="overview-box", fill_alpha=0.08, line_width=1.5, line_alpha=0.7, editable=True, level="overlay", **place
    )  # fmt: skip
    tool = Model("RangeTool", x_range=view, start_gesture="pan", name="range-tool", overlay=box)
    ends = Model("Range1d", start=0.0, end=float(span_ns)), Model("Range1d", start=0, end=1.05)
    return _bare_figure("overview", *ends, renderers=[area], toolbar=Model("Toolbar", tools=[tool]))


def _rows(view: Model) -> Model:
    sides = {side: column(side) for side in ("left", "right", "top", "bottom")}
    boxes = Model("Quad", **sides, fill_color=column("fill"), line_color=None)
    chosen = Model("Quad", **sides, fill_color=None, line_width=2)
    ends = {end: column(end) for end in ("x0", "y0", "x1", "y1", "cx0", "cy0", "cx1", "cy1")}
    arrow = _empty("arrow", ends)
    renderers = [
        glyphs(boxes, _empty("boxes", [*sides, "fill"])),
        glyphs(chosen, _empty("chosen", sides), name="chosen-box"),
        glyphs(Model("Bezier", **ends, line_width=2), arrow, name="arrow-line"),
        glyphs(Model("Scatter", x=column("x1"), y=column("y1"), size=7), arrow, name="arrow-head"),
    ]
    grid = Model("Grid", dimension=0, ticker=Model("FixedTicker", ticks=[], name="ticks"), name="grid")
    return _bare_figure(
        "rows", view, Model("Range1d", start=1, end=0, name="rows-y"), renderers=renderers, center=[grid]
    )


def _empty(name: str, columns: Iterable[str]) -> Model:
    return data_source({key: [] for key in columns}, name=name)


def _curve(kind: str, view: Model) -> Model:
    # never empty, as a step area without points blocks the tab (Bokeh 3.9.2)
    source = data_source({"x": [0, 1], "y": [0, 0]}, name=f"{kind}-source")
    area = glyphs(_area(fill_alpha=0.55), source, name=f"{kind}-area")
    return _bare_figure(kind, view, Model("Range1d", start=0, end=1, name=f"{kind}-y"), renderers=[area])


def _area(**attributes: Any) -> Model:
    return Model("VAreaStep", x=column("x"), y1=0, y2=column("y"), step_mode="after", **attributes)
