"""Draw charts and the timeline as Bokeh documents, without code and in the colours of the page's theme.

Glyphs are tagged with the CSS variable of their colour: `assets/plots.js` applies the theme's. The timeline's figures
contain no events: `assets/timeline.js` fills their sources with the visible ones, so that the cost of a redraw does not
depend on the number of events.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer.analyses.host import MODULE
from trace_analyzer.frames.intervals import END_NS
from trace_analyzer.render import charts, names
from trace_analyzer.render.html import timeline, tracks
from trace_analyzer.render.html.codec import Model, column, constant, data_source, document, glyphs
from trace_analyzer.report import Report
from trace_analyzer.sections import Axis, Boxes, Chart, Flame, Labels, LineMark, Mark, Points, Strokes
from trace_analyzer.vocabulary import PARTS, WORK

_FONT = "system-ui, sans-serif"
_OVERVIEW_BINS = 1200
_BOX = ("left", "right", "bottom", "top")
_ENDS = ("x0", "y0", "x1", "y1")


class Drawing(NamedTuple):
    """A chart with its plot as Bokeh's document JSON; ``legend`` is names with the CSS variables of their colours."""

    chart: Chart
    document: Mapping[str, Any]
    legend: tuple[tuple[str, str], ...]


def drawing(name: str, chart: Chart) -> Drawing:
    """Return a chart as a plot of the page, which fits its place; heading and legend are elements of the page."""
    renderers: list[Model] = []
    tools: list[Model] = []
    for mark in chart.marks:
        for renderer, headings in _drawn(mark):
            renderers.append(renderer)
            if headings:
                tips = [(heading, f"@t{place}") for place, heading in enumerate(headings)]
                tools.append(Model("HoverTool", renderers=[renderer], tooltips=tips))
            if isinstance(mark, Boxes | Points) and mark.start_ns is not None:
                tools.append(Model("TapTool", renderers=[renderer]))
    if chart.zooms:
        tools += [Model("BoxZoomTool", dimensions="width"), Model("ResetTool")]
    axes = _axis(chart.x), _axis(chart.y)
    grids = [Model("Grid", axis=axis, dimension=k) for k, axis in enumerate(axes) if not (chart.x, chart.y)[k].names]
    plot = Model(
        "Figure", name=f"plot-{name}", height=chart.height, sizing_mode="stretch_width", x_range=_range(chart.x), y_range=_range(chart.y),
        x_scale=_scale(chart.x), y_scale=_scale(chart.y), title=None, renderers=renderers,
        toolbar=Model("Toolbar", tools=tools, logo=None, stylesheets=["@media print { :host { display: none } }"] if chart.zooms else []),
        toolbar_location="above" if chart.zooms else None,
        left=[axes[1]], below=[axes[0]], center=grids,
        background_fill_alpha=0, border_fill_alpha=0, outline_line_color=None, min_border_right=16, lod_threshold=None,
    )  # fmt: skip
    legend = tuple((name, _variable(colour)) for name, colour in chart.legend)
    return Drawing(chart, document([plot], f"{name}-"), legend)


def _range(axis: Axis) -> Model:
    ends = {name: end for name, end in zip(("start", "end"), axis.ends, strict=True) if end is not None}
    return Model("Range1d" if len(ends) == 2 else "DataRange1d", **ends)


def _scale(axis: Axis) -> Model:
    return Model("LogScale" if axis.log else "LinearScale")


def _axis(axis: Axis) -> Model:
    ticks: dict[str, Any] = {}
    if axis.ticks:
        # In a label that is no model, Bokeh looks for formulas between dollars.
        labels = {tick: Model("PlainText", text=text) if "$" in text else text for tick, text in axis.ticks.items()}
        ticks = {"ticker": Model("FixedTicker", ticks=list(axis.ticks)), "major_label_overrides": labels}
    elif axis.counts:
        ticks = {"ticker": Model("BasicTicker", min_interval=1)}
    return Model(
        "LogAxis" if axis.log else "LinearAxis", axis_label=axis.title, visible=not axis.hidden,
        axis_label_text_font_style="normal", axis_label_text_font=_FONT, major_label_text_font=_FONT,
        axis_label_text_font_size="11pt", major_label_text_font_size="10pt", minor_tick_line_color=None, **ticks,
    )  # fmt: skip


def _variable(colour: str) -> str:
    """Return the CSS variable of a colour, without its dashes; that of other kernels for a group without a colour."""
    return colour if colour in charts.palette() else "k-other"


def _glyph(kind: str, colour: str, **attributes: Any) -> Model:
    return Model(kind, tags=[f"--{_variable(colour)}"], **attributes)


def _fill(colour: str) -> str:
    return charts.palette()[_variable(colour)]


def _drawn(mark: Mark) -> Iterator[tuple[Model, Sequence[str]]]:
    """Yield the renderers of a mark, one for each colour, with the headings of its tooltip."""
    match mark:
        case Boxes():
            for colour, chosen in _by_colour(mark.colours, len(mark.left)):
                columns = {side: np.asarray(getattr(mark, side), float)[chosen] for side in _BOX}
                sides = {side: column(side) for side in _BOX}
                boxes = _glyph("Quad", colour, **sides, fill_color=_fill(colour), line_color=None)
                yield glyphs(boxes, data_source(columns | _extra(mark, chosen))), tuple(mark.texts)
        case Points():
            chosen = np.arange(len(mark.x))
            columns = {"x": np.asarray(mark.x, float), "y": np.asarray(mark.y, float)}
            sizes, shapes = mark.size, list(mark.markers) or ["circle"] * len(chosen)
            columns["size"] = np.full(len(chosen), 7.0) if sizes is None else np.asarray(sizes, float)
            fill = _fill(mark.colour)
            points = _glyph(
                "Scatter", mark.colour, x=column("x"), y=column("y"), size=column("size"), marker=column("shape"),
                fill_color=fill, line_color=fill, fill_alpha=0.6, line_alpha=0.9,
            )  # fmt: skip
            yield glyphs(points, data_source(columns | {"shape": shapes} | _extra(mark, chosen))), tuple(mark.texts)
        case LineMark():
            x, y = np.asarray(mark.x, float), np.asarray(mark.y, float)
            if mark.place:  # corners of a step function, in which each value lasts until the next one
                x, y = np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]
            curve = _glyph(
                "Line", mark.colour, x=column("x"), y=column("y"), line_color=_fill(mark.colour),
                line_width=1.2 if mark.place else 1.5, line_dash=mark.dash,
            )  # fmt: skip
            place = {"tags": [{"place": mark.place, "unit_ns": mark.unit_ns}]} if mark.place else {}
            yield glyphs(curve, data_source({"x": x, "y": y}), **place), ()
        case Strokes():
            columns = {end: np.asarray(getattr(mark, end), float) for end in _ENDS}
            ends = {end: column(end) for end in _ENDS}
            lines = _glyph("Segment", mark.colour, **ends, line_color=_fill(mark.colour), line_width=mark.width)
            yield glyphs(lines, data_source(columns)), ()
        case Labels():
            for colour, chosen in _by_colour(mark.colours, len(mark.texts)):
                source = data_source({
                    name: [values[k] for k in chosen] for name, values in (("x", mark.x), ("y", mark.y), ("text", mark.texts))
                })  # fmt: skip
                texts = _glyph(
                    "Text", colour, x=column("x"), y=column("y"), text=column("text"), text_align=constant(mark.align),
                    text_baseline=constant(mark.baseline), text_font=constant(_FONT), text_font_size=constant("9pt"), text_color=_fill(colour),
                    x_offset={"left": 4, "right": -4}.get(mark.align, 0), y_offset={"top": 2, "bottom": -2}.get(mark.baseline, 0),
                )  # fmt: skip
                yield glyphs(texts, source, tags=["spare"] if mark.spare else []), ()


def _by_colour(colours: str | Sequence[str], count: int) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    if isinstance(colours, str):
        yield colours, np.arange(count)
        return
    for colour in dict.fromkeys(colours):
        yield colour, np.flatnonzero(np.array(colours) == colour)


def _extra(mark: Boxes | Points, chosen: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return columns with the texts and the place on the timeline of the chosen rows."""
    texts = {f"t{k}": [values[row] for row in chosen] for k, values in enumerate(mark.texts.values())}
    if mark.start_ns is None or mark.end_ns is None:
        return texts
    spans = {"start_ns": mark.start_ns, "end_ns": mark.end_ns}
    return texts | {name: np.asarray(values, float)[chosen] for name, values in spans.items()}


def timeline_figures(report: Report, columns: timeline.TimelineColumns) -> tuple[Model, ...]:
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


def host_bins(columns: timeline.TimelineColumns, span_ns: int) -> npt.NDArray[np.float64]:
    """Return the bins of the first thread's outermost operators, for a trace without device work."""
    rows = next((track.rows for track in columns.tracks if track.family == "operators"), ((0, 0),))
    operators = (
        columns.events.slice(rows[0][0], sum(count for _, count in rows))
        .filter(kind="operator")
        .select("start_ns", END_NS)
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
    # On the first row of pixels the box's line would stay where it was: Bokeh clears half of that row (3.9.2).
    return _bare_figure("overview", *ends, renderers=[area], toolbar=Model("Toolbar", tools=[tool]), min_border_top=2)


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


MOST_NODES = 3000
"""Most nodes of a tree in the page, those with most time: the others are narrower than a pixel except on a wide
screen."""

_TITLES = {"idle": "Waiting of the device", "cpu": "CPU time", "kernels": "Kernel time"}
_COLOURS = {"module": "k-module", "operator": "k-operator", "call": "k-runtime", "annotation": "k-annotation"}


def flames(report: Report) -> tuple[Flame, ...]:
    """Return the trees to draw: idle and kernel time of the judged device, and CPU time.

    Nodes have caller (index among them, -1 for roots), frame, colour (a CSS variable) and value_ns; the callees of a
    caller are in descending order of time.
    """
    labels = dict(report.tables["devices"].select("device", "label").iter_rows())
    judged = next((code for code, label in labels.items() if label == str(report.verdict.device)), None)
    several = len(labels) > 1
    made = []
    for view, title in _TITLES.items():
        device = pl.col("device").is_null() if view == "cpu" else pl.col("device") == (-1 if judged is None else judged)
        tree = report.tables["stacks"].filter(pl.col("view") == view, device)
        if tree.get_column("value_ns").max():
            name = f"{title}, GPU {labels[judged]}" if several and view != "cpu" and judged is not None else title
            made.append(Flame(view, name, _nodes(report, tree), max(0, tree.height - MOST_NODES)))
    return tuple(made)


def _label(name: str) -> str:
    """Return the text of a box: a module's class, a function with its file, a kernel's name or a cause's label."""
    if name in PARTS:
        return PARTS[name].label
    return names.frame_label(name) or names.short_name(name.removeprefix(MODULE))


def _nodes(report: Report, tree: pl.DataFrame) -> pl.DataFrame:
    """Return the nodes with most time; a caller has at least the time of each callee, so it comes first."""
    kept = tree.sort("value_ns", "node_id", descending=[True, False]).head(MOST_NODES).with_row_index("place")
    places = kept.select(parent_id=pl.col("node_id"), caller=pl.col("place").cast(pl.Int64))
    python = tracks.packages(report).kinds.select(frame="name", of_package=pl.format("k-{}", "kind"))
    groups = (
        report.tables["activities"]
        .select(
            pl.col("name").cast(pl.String).alias("frame"), of_kernel=pl.format("k-{}", pl.coalesce("group", "kind"))
        )
        .unique("frame", keep="first", maintain_order=True)
    )
    joined = kept.join(places, on="parent_id", how="left", maintain_order="left")
    joined = joined.join(python, on="frame", how="left", maintain_order="left")
    joined = joined.join(groups, on="frame", how="left", maintain_order="left")
    kind = pl.col("kind")
    labels = {name: _label(name) for name in joined.get_column("frame").drop_nulls().unique()}
    colour = (
        pl.when(kind == "cause").then(pl.format("p-{}", "frame"))
        .when(kind == "kernel").then("of_kernel")
        .when(kind == "python").then("of_package")
        .otherwise(kind.replace_strict(_COLOURS, default="k-host", return_dtype=pl.String))
    )  # fmt: skip
    label = pl.col("frame").fill_null("").replace_strict(labels, default="", return_dtype=pl.String)
    return joined.select(
        pl.col("caller").fill_null(-1),
        frame=pl.when(kind == "cause").then(label).otherwise(pl.col("frame")).fill_null(""),
        label=label,
        colour=colour.fill_null("k-other"),
        value_ns="value_ns",
    )
