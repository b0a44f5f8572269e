"""Test the page of a comparison in a real browser: timelines, flame graph, unfolding lines, figures as in JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
from compare_sides import Program
from test_html_browser import CHROMIUM, DRIVER, Browser, browser, started  # noqa: F401  (fixtures)

from trace_analyzer.compare.api import compare
from trace_analyzer.compare.phrasing import scale_of, scaled, signed
from trace_analyzer.pipeline import analyze

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"),
]

BASE = Program(steps=4, layers=2, host_ns=60_000, mm_ns=40_000, loading_ns=1_000_000)
AFTER = BASE.faster(loading_ns=100_000, slow_layer=1, mm_ns=90_000)

BOXES = """
const column = arguments[0];
const view = [...Bokeh.index.roots].find(({ model }) => model.renderers?.some((r) => r.data_source.get_column(column)));
const data = view.model.renderers.map((r) => r.data_source).find((source) => source.get_column(column));
view.el.scrollIntoView({ block: 'center' });
const { left, top } = view.el.getBoundingClientRect();
return Array.from(data.get_column(column), (_, i) => {
  const row = Object.fromEntries([...Object.keys(data.data)].map((name) => [name, data.get_column(name)[i]]));
  const [x, y] = ['0', '1'].map((n) => { const axis = n === '0' ? ['left', 'right', 'x0', 'x1'] : ['bottom', 'top', 'y0', 'y1'];
    const ends = axis.filter((name) => name in row).map((name) => row[name]); return (ends[0] + ends[1]) / 2; });
  return { ...row, at: [left + view.frame.x_scale.compute(x), top + view.frame.y_scale.compute(y)] };
});
"""
TIPS = """
const found = [];
const walk = (node) => { for (const e of node.querySelectorAll('*')) {
  if (e.classList.contains('bk-Tooltip') && getComputedStyle(e).display !== 'none') found.push(e.shadowRoot ? e.shadowRoot.textContent : e.textContent);
  if (e.shadowRoot) walk(e.shadowRoot); } };
walk(document);
return found.join(' ');
"""


def boxes(page: Browser, column: str) -> list[dict[str, Any]]:
    """Return the rectangles of the plot with such a column, with the middle of each in the window."""
    return list(page.run(BOXES, column))


def test_the_page_of_a_comparison(browser: Browser, tmp_path: Path) -> None:  # noqa: F811
    result = compare(analyze(BASE.trace()), analyze(AFTER.trace()))
    document = json.loads(result.to_json())
    before, after = document["before"], document["after"]
    scale, unit = scale_of(max(before["step_ns"], after["step_ns"]))
    browser.go(result.to_html(tmp_path / "page.html").as_uri(), height=900)
    browser.wait(lambda: browser.run("return window.Bokeh && [...Bokeh.index.roots].length > 5"))

    # The figures are those of the JSON.
    text = browser.run("return document.body.innerText")
    assert document["headline"] in text
    for side in (before, after):
        assert f"{scaled(side['step_ns'], scale)} {unit}" in text
    browser.run("document.querySelectorAll('details').forEach((e) => { e.open = true })")
    rows = [row.text for row in browser.driver.find_elements("css selector", "#lines > table > tbody > tr")[1:]]
    shown = [line for line in document["lines"] if abs(line["difference_ns"] / scale) >= 0.005]
    assert len(rows) == len(shown)
    for line, row in zip(shown, rows, strict=True):
        assert signed(line["difference_ns"], scale) in row
        assert scaled(line["before_total_ns"] / before["steps"], scale) in row

    # A line unfolds into its parts.
    browser.run("document.querySelectorAll('#lines th details').forEach((e) => { e.open = false })")
    line = next(e for e in browser.driver.find_elements("css selector", "#lines th details") if "aten::mm" in e.text)
    assert "Layer" not in line.text
    browser.run("arguments[0].querySelector('summary').click()", line)
    browser.wait(lambda: "Layer" in line.text)

    # Both timelines lie on one axis, and are as long as a step of their side.
    pieces = boxes(browser, "length")
    for place, side in ((1, before), (0, after)):
        own = [piece for piece in pieces if place < piece["y0" if "y0" in piece else "bottom"] < place + 1]
        length = max(piece["x1" if "x1" in piece else "right"] for piece in own)
        assert length * scale == pytest.approx(side["step_ns"], rel=0.05)
    assert {piece["category"] for piece in pieces} >= {"Data loading", "Matmul"}

    # A frame of the flame graph shows both of its times.
    frames = {frame["name"]: frame for frame in boxes(browser, "before")}
    bar = next(bar for bar in document["waterfall"]["bucket"] if bar["name"] == "data-loading")
    frame = frames["Data loading"]
    assert (frame["before"], frame["after"]) == pytest.approx((bar["before_ns"] / scale, bar["after_ns"] / scale))
    browser.mouse("mouseMoved", *frame["at"])
    browser.wait(lambda: f"{frame['before']:.3f}" in browser.run(TIPS))
    assert "Data loading" in browser.run(TIPS)

    for width in (1280, 390):
        browser.go((tmp_path / "page.html").as_uri(), width) if width == 390 else None
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
