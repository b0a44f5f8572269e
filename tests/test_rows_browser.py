"""Test rows of the timeline on one page: classes and colours of frames, lanes, and the way to Perfetto."""

import polars as pl
import pytest
import test_html_browser as pages
from msgspec.structs import replace
from report_factory import _host, frame, gpu_report
from test_html_browser import Browser

from trace_analyzer.ingest.tables import HOST_EVENTS
from trace_analyzer.report import Report

pytestmark = pages.pytestmark
started, browser = pages.started, pages.browser

SPY = """
window.written = new Set();
const { fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { window.written.add(text); return fillText.call(this, text, ...at); };
const { timeline } = document.getElementById('timeline');
timeline.tracks.folded.clear();
timeline.tracks.relayout();
timeline.show({ from: 6_000_000, to: 6_100_000 });
"""
FRAMES = """
const { timeline } = document.getElementById('timeline');
const { store, painter, model } = timeline;
const hex = (event) => `#${painter.colours[store.kind[event]].rgb.toString(16).padStart(6, '0')}`;
const find = (name) => store.name_values.indexOf(name);
const events = arguments[0].map((name) => store.name.indexOf(find(name)));
timeline.select(events[0]);
return { colours: events.map(hex), facts: timeline.element('details-facts').textContent };
"""
ROWS = "return document.getElementById('timeline').timeline.tracks.layout.rows.length"


def report_with_modules() -> Report:
    """Return the factory's report, in which a module is called from the program's own frame."""
    report = gpu_report(kernels=60)
    host = report.tables["host_events"]
    calls = [
        _host("python", "nn.Module: Linear_0", 6_010_000, 80_000),
        _host("python", "torch/nn/modules/linear.py(12): forward", 6_011_000, 78_000),
    ]
    rows = [{**call, "event_id": host.height + i, "row": host.height + i} for i, call in enumerate(calls)]
    return replace(report, tables={**report.tables, "host_events": pl.concat([host, frame(HOST_EVENTS, rows)])})


@pytest.fixture
def page(browser: Browser) -> Browser:
    browser.open(report_with_modules())
    return browser


def test_rows_show_what_they_are(page: Browser) -> None:
    page.run(SPY)
    page.wait(lambda: page.run("return [...window.written].some((text) => text.startsWith('Linear.forward'))"))
    assert "Linear.forward · linear.py" in page.run("return [...window.written]")
    own, library = "train.py(12): step", "torch/nn/modules/linear.py(12): forward"
    shown = page.run(FRAMES, [library, own])
    assert "ClassLinear" in shown["facts"]
    assert shown["colours"][0] != shown["colours"][1]

    whole = page.run(ROWS)
    page.run("document.getElementById('timeline').timeline.show({ from: 196_500, to: 199_500 })")
    page.wait(lambda: page.run(ROWS) < whole)  # lanes without events in the view are hidden

    assert not page.driver.find_element("id", "perfetto").is_displayed()
    page.driver.find_element("css selector", ".to-perfetto").click()
    how = page.driver.find_element("id", "perfetto").text
    assert "from this machine's disk, so no link can open it" in how
    assert report_with_modules().trace.path in how
    assert "analyze export" in how
