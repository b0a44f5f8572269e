"""Test the page of a comparison in a real browser: timelines, flame graph, unfolding lines, figures as in JSON."""

import json
from pathlib import Path

import pytest
from compare_sides import Program
from test_html_browser import CHROMIUM, DRIVER, Browser, browser, started  # noqa: F401  (fixtures)

from trace_analyzer.compare import decomposition, phrasing
from trace_analyzer.pipeline import analyze

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"),
]

BASE = Program(steps=4, layers=2, host_ns=60_000, mm_ns=40_000, loading_ns=1_000_000)
AFTER = BASE.faster(loading_ns=100_000, slow_layer=1, mm_ns=90_000)

BOXES = """
const { model } = [...Bokeh.index.roots].find((view) => view.model.name === arguments[0]);
return model.renderers.map(({ data_source: source }) => source).flatMap((source) => Array.from(
  source.get_column('right'), (_, i) => Object.fromEntries(Object.keys(source.data).map((name) => [name, source.get_column(name)[i]]))));
"""
FRAME = """
const { canvas, boxes } = document.getElementById('flame').graph;
canvas.scrollIntoView({ block: 'center' });
const box = boxes.find(({ node }) => node.label === arguments[0]);
const { left, top } = canvas.getBoundingClientRect();
return [left + box.x + box.width / 2, top + box.row * 19 + 9];
"""

TOOLBARS = """
const all = (root) => [...root.querySelectorAll('*')].flatMap((e) => [e, ...(e.shadowRoot ? all(e.shadowRoot) : [])]);
return all(document).filter((e) => e.matches('.bk-Toolbar')).map((e) => getComputedStyle(e).display);
"""


def test_the_page_of_a_comparison(browser: Browser, tmp_path: Path) -> None:  # noqa: F811
    result = decomposition.compare(analyze(BASE.trace()), analyze(AFTER.trace()))
    document = json.loads(result.to_json())
    before, after = document["before"], document["after"]
    scale, unit = phrasing.scale_of(max(before["step_ns"], after["step_ns"]))
    browser.go(result.to_html(tmp_path / "page.html").as_uri(), height=900)
    browser.wait(lambda: browser.run("return document.documentElement.dataset.ready"))

    # The figures are those of the JSON.
    text = browser.run("return document.body.innerText").replace("\u00a0", " ")
    assert document["headline"] in text
    for side in (before, after):
        assert f"{phrasing.scaled(side['step_ns'], scale)} {unit}" in text
    browser.run("document.querySelectorAll('details').forEach((e) => { e.open = true })")
    lines = "section[aria-labelledby=lines] .scroll > table > tbody > tr"
    browser.wait(lambda: browser.run("return [...Bokeh.index.roots].length") >= 4)
    rows = [row.text for row in browser.driver.find_elements("css selector", lines)]
    shown = [line for line in document["lines"] if abs(line["difference_ns"] / scale) >= 0.005]
    assert len(rows) == len(shown)
    for line, row in zip(shown, rows, strict=True):
        assert phrasing.signed(line["difference_ns"], scale) in row
        assert phrasing.scaled(line["before_total_ns"] / before["steps"], scale) in row

    # A line unfolds into its parts.
    browser.run("document.querySelectorAll('td > details').forEach((e) => { e.open = false })")
    line = next(e for e in browser.driver.find_elements("css selector", "td > details") if "aten::mm" in e.text)
    assert "Layer" not in line.text
    browser.run("arguments[0].querySelector('summary').click()", line)
    browser.wait(lambda: "Layer" in line.text)

    # Both timelines lie on one axis, and are as long as a step of their side.
    pieces = browser.run(BOXES, "plot-timelines-0")
    for place, side in ((1, before), (0, after)):
        length = max(piece["right"] for piece in pieces if place < piece["bottom"] < place + 1)
        assert length * scale == pytest.approx(side["step_ns"], rel=0.05)
    assert {piece["t0"] for piece in pieces} >= {"Data loading", "Matmul"}

    # A frame of the flame graph shows both of its times.
    bar = next(bar for bar in document["waterfall"]["bucket"] if bar["name"] == "data-loading")
    at = browser.run(FRAME, "Data loading")
    browser.mouse("mouseMoved", *at)
    tip = f"{phrasing.scaled(bar['before_ns'], scale)} before, {phrasing.scaled(bar['after_ns'], scale)} after"
    browser.wait(lambda: tip in browser.run("return document.querySelector('[data-flame=tip]').textContent"))

    for width in (1280, 390):
        browser.go((tmp_path / "page.html").as_uri(), width) if width == 390 else None
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")

    # On paper its plots are as wide as the paper.
    browser.go((tmp_path / "page.html").as_uri(), 1440)
    browser.wait(lambda: browser.run("return document.documentElement.dataset.ready"))
    browser.run("dispatchEvent(new Event('beforeprint'))")
    zoom = browser.run("return document.querySelector('.plot-place').style.getPropertyValue('--paper-zoom')")
    assert float(zoom) < 0.6
    browser.run("dispatchEvent(new Event('afterprint'))")

    # Nor have they tools there.
    browser.wait(lambda: browser.run(TOOLBARS) and set(browser.run(TOOLBARS)) == {"flex"})
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert set(browser.run(TOOLBARS)) == {"none"}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
