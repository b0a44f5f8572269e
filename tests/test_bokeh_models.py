"""Test documents written without Bokeh's models: Bokeh reads every one, with the intended content."""

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from report_factory import cpu_report, gpu_report, hostile_report
from tiers import examples

from trace_analyzer.render.charts import CHARTS
from trace_analyzer.render.html.codec import Model, bokeh_library, column, data_source, document, glyphs
from trace_analyzer.render.html.figures import drawing, timeline_figures
from trace_analyzer.render.html.timeline import timeline_columns
from trace_analyzer.report import Report
from trace_analyzer.sections import Axis, Boxes, Chart, Labels, LineMark, Points, Strokes

REPORTS = {"gpu": gpu_report(), "devices": gpu_report(9, 3), "cpu": cpu_report(), "hostile": hostile_report()}


def refuse(message: str, *values: object) -> None:
    """Raise for what Bokeh warns of and ignores."""
    raise AttributeError(message % values)


def read(written: dict[str, Any]) -> list[Any]:
    """Return the roots as Bokeh reads them, as strictly as the browser reads JSON. Raises for what Bokeh does not know."""
    from bokeh.core import has_props  # not earlier: it takes a second, in each worker that collects this module
    from bokeh.document import Document

    with pytest.MonkeyPatch.context() as patch:
        # A handler would depend on the level that other libraries in this process set for Bokeh's loggers.
        patch.setattr(has_props.log, "warning", refuse)
        return Document.from_json(json.loads(json.dumps(written, allow_nan=False))).roots


@pytest.mark.sampled
@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_bokeh_reads_the_documents_of_a_page(report: Report) -> None:
    figures = read(document(timeline_figures(report, timeline_columns(report)), "p"))
    assert [figure.name for figure in figures[:2]] == ["overview", "rows"]
    view = figures[1].x_range
    assert all(figure.x_range is view for figure in figures[1:])
    assert figures[0].toolbar.tools[0].x_range is view
    for name, describe in CHARTS.items():
        if (chart := describe(report)) is not None:
            assert read(dict(drawing(name, chart).document))[0].name == f"plot-{name}"


def test_each_part_of_a_chart_is_drawn_where_it_says() -> None:
    floats = np.array([1.0, 10.0])
    shapes = ["circle", "square"]
    points = Points("gemm", "k-matmul", floats, floats * 2, {"kernel": ["a", "b"]}, floats + 3, shapes, floats, floats)
    chart = Chart(
        Axis("intensity", log=True),
        Axis("rate", "FLOP/s", log=True, ticks={1.0: "1", 10.0: "$$10$$"}, ends=(1.0, 100.0)),
        (LineMark("roof", floats, floats, "queue", "dashed"), points, Labels([10.0], [10.0], ["peak"], align="right", baseline="top")),
    )  # fmt: skip
    (plot,) = read(dict(drawing("roofline", chart).document))
    parts = (plot, plot.below[0], plot.y_range, plot.x_range)
    assert [type(part).__name__ for part in parts] == ["figure", "LogAxis", "Range1d", "DataRange1d"]
    labels = plot.left[0].major_label_overrides
    assert (labels[1.0], labels[10.0].text) == ("1", "$$10$$"), "a text between dollars is no formula"
    assert (plot.y_range.start, plot.y_range.end) == (1, 100)
    line, marks, texts = plot.renderers
    assert line.glyph.line_dash == [6]
    assert list(marks.data_source.data["y"]) == [2, 20]
    assert (marks.glyph.marker.field, marks.glyph.tags) == ("shape", ["--k-matmul"])
    assert texts.glyph.text_baseline.value == "top"
    assert [tool.renderers for tool in plot.toolbar.tools] == [[marks], [marks]]
    (counted,) = read(dict(drawing("queue", Chart(Axis("time", "ms"), Axis("depth", counts=True), ())).document))
    assert (counted.left[0].ticker.min_interval, counted.below[0].ticker.min_interval) == (1, 0), "no half of a count"


def test_boxes_have_their_colours_texts_and_an_axis_of_names() -> None:
    boxes = Boxes([0, 1], [0.8, 1.8], [0, 0], [2, 1], ["k-matmul", "queue"], {"bucket": ["a", "b"]})
    x = Axis("bucket", ticks={0.4: "a", 1.4: "b"}, names=True)
    whiskers = Strokes([0], [0], [1], [1])
    chart = Chart(x, Axis("time", "ms", ends=(0, None)), (boxes, whiskers), legend=(("a", "unheard-of"),), zooms=True)
    made = drawing("buckets", chart)
    (plot,) = read(dict(made.document))
    assert plot.y_range.start == 0
    first, second, segments = plot.renderers
    assert [list(each.data_source.data["right"]) for each in (first, second)] == [[0.8], [1.8]]
    assert [each.glyph.tags for each in (first, second, segments)] == [["--k-matmul"], ["--queue"], ["--text-soft"]]
    assert second.data_source.data["t0"] == ["b"]
    assert [grid.dimension for grid in plot.center] == [1], "names have no grid"
    assert made.legend == (("a", "k-other"),)
    tools = [type(tool).__name__ for tool in plot.toolbar.tools]
    assert tools == ["HoverTool", "HoverTool", "BoxZoomTool", "ResetTool"]


@settings(max_examples=examples(100))
@given(st.lists(st.floats(width=64) | st.integers(-(2**53), 2**53) | st.text(), max_size=5))
def test_values_come_back_as_they_were(values: list[Any]) -> None:
    (source,) = read(document([data_source({"x": values})], "p"))
    assert type(source).__name__ == "ColumnDataSource"
    back = source.data["x"]
    assert len(back) == len(values)
    sent, received = ([value for value in each if not isinstance(value, str)] for each in (values, back))
    assert np.array_equal(received, sent, equal_nan=True)
    texts = [value for value in back if isinstance(value, str)]
    assert all(text.isprintable() for text in texts if text.isascii() and "\n" not in text)


@settings(max_examples=examples(50))
@given(st.lists(st.floats(width=64) | st.integers(-(2**53), 2**53), max_size=9))
def test_arrays_come_back_as_they_were(values: list[float]) -> None:
    array = np.array(values, dtype=np.float64)
    (source,) = read(document([data_source({"x": array})], "p"))
    assert np.array_equal(source.data["x"], array, equal_nan=True)


def test_what_two_models_share_is_one_and_ids_are_numbers_of_the_document() -> None:
    source = data_source({"x": [1]})
    roots = [Model("Plot", renderers=[glyphs(Model("Scatter", x=column("x"), y=column("x")), source)]) for _ in "ab"]
    written = document(roots, "a-")
    first, second = read(written)
    assert first.renderers[0].data_source is second.renderers[0].data_source
    ids = re.findall(r'"id": "(a-\d+)"', json.dumps(written))
    assert list(dict.fromkeys(ids)) == [f"a-{place}" for place in range(1, len(set(ids)) + 1)]
    assert written == document(roots, "a-")


def test_bokeh_refuses_what_it_does_not_know() -> None:
    with pytest.raises(AttributeError, match="begin"):
        read(document([Model("Range1d", begin=0)], "p"))
    with pytest.raises(ValueError, match="expected"):
        read(document([Model("Plot", x_range="time")], "p"))


def test_without_bokeh_the_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trace_analyzer.render.html.codec.find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match="bokeh"):
        bokeh_library()
