"""Test the page around the timeline in a real browser: tables, jumps, themes, paper, phone, accessibility."""

import base64
import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace
from report_factory import cpu_report, empty_report, gpu_report, hostile_report
from test_html_browser import CHROMIUM, DRIVER, Browser, browser, started  # noqa: F401  (fixtures)
from test_timeline_browser import sample

from trace_analyzer.render import charts, html
from trace_analyzer.render.html import write_html
from trace_analyzer.report import Report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"),
]

AXE = Path(
    os.environ.get("AXE_CORE", Path(__file__).parents[1] / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js")
)
"""The accessibility checker axe-core, which `.ci/run` fetches with npm."""

ENTER, ESCAPE, ARROW_RIGHT, TAB = "\ue007", "\ue00c", "\ue014", "\ue004"
"""Keys, as WebDriver names them."""
REPORTS = {
    "gpu": gpu_report(),
    "three devices": gpu_report(40, 3),
    "cpu": cpu_report(),
    "empty": empty_report(),
    "hostile": hostile_report(),
}


@pytest.fixture
def page(browser: Browser) -> Iterator[Browser]:  # noqa: F811
    """Yield the browser, and forget the choice of theme afterwards."""
    yield browser
    browser.run("localStorage.clear()")


def find(page: Browser, css: str) -> Any:
    return page.driver.find_element("css selector", css)


def find_all(page: Browser, css: str) -> list[Any]:
    return page.driver.find_elements("css selector", css)


def choose(page: Browser, theme: str) -> None:
    find(page, f"label:has([value={theme}])").click()


def draw_plots(page: Browser, css: str = "[data-plot]") -> list[Any]:
    """Scroll to each of the plots until it is drawn."""
    places = find_all(page, css)
    for place in places:
        page.run("arguments[0].scrollIntoView({ behavior: 'instant', block: 'center' })", place)
        page.wait(lambda place=place: place.get_attribute("data-drawn"))
    return places


def rows(page: Browser, table: str) -> list[str]:
    """Return the texts of the first cells of the rows that a table shows."""
    return [cell.text for cell in find_all(page, f"#{table}-rows tr:not([hidden]) td:first-child")]


def head(page: Browser, table: str, label: str) -> None:
    page.run("arguments[0].click()", next(e for e in find_all(page, f"#table-{table} th button") if e.text == label))


def start_ns(page: Browser) -> int:
    return int(page.run("return location.hash").split("=")[1].split(",")[0])


def test_a_table_sorts_unfolds_and_filters(page: Browser) -> None:
    page.open(gpu_report(60), unfold=True)
    times = "return [...document.querySelectorAll('#gaps-rows tr')].map((row) => Number(row.cells[1].dataset.sort))"
    head(page, "gaps", "Start")
    falling = page.run(times)
    assert falling == sorted(falling, reverse=True)
    assert find(page, "#table-gaps [aria-sort]").get_attribute("aria-sort") == "descending"
    head(page, "gaps", "Start")
    assert page.run(times) == falling[::-1]
    assert len(rows(page, "gaps")) == 12
    more = find(page, "#table-gaps [data-more]")
    assert more.text == "Show all 59"
    page.run("arguments[0].click()", more)
    assert len(rows(page, "gaps")) == 59
    assert more.get_attribute("aria-expanded") == "true"
    field = find(page, "#table-gaps input")
    field.send_keys("3.89 PYTHON")
    assert rows(page, "gaps") == ["Python"]
    assert find(page, "#table-gaps output").text == "1 of 1 found"
    field.send_keys("zzz")
    assert rows(page, "gaps") == []


def test_a_row_leads_to_its_place_on_the_timeline(page: Browser) -> None:
    page.open(gpu_report(40), unfold=True)
    row = find(page, "#gaps-rows tr td:last-child")
    place = page.run("return Number(arguments[0].parentElement.dataset.start)", row)
    page.run("arguments[0].click()", row)
    page.wait(lambda: page.length_ns() < 100_000)
    assert abs(start_ns(page) - place) < 20_000
    page.wait(lambda: page.run("return document.getElementById('timeline').getBoundingClientRect().top") < 720)


def test_a_row_can_be_reached_and_used_with_the_keyboard(page: Browser) -> None:
    page.open(gpu_report(40), unfold=True)
    button = find(page, "#causes-rows button")
    page.run("arguments[0].focus()", button)
    button.send_keys(ENTER)
    page.wait(lambda: page.length_ns() < 100_000)


def test_a_gap_of_several_causes_is_an_interval_and_back_leads_to_its_row(page: Browser) -> None:
    report = sample("synthetic_overhead_data-loading")
    page.open(report, unfold=True)
    longest = report.tables["gaps"].sort("duration_ns").row(-1, named=True)
    button = find(page, "#gaps-rows button")
    page.run("arguments[0].focus()", button)
    before = page.run("return scrollY")
    button.send_keys(ENTER)
    interval = f"&iv={longest['start_ns']},{longest['start_ns'] + longest['duration_ns']}"
    page.settled(interval)
    assert page.part("interval-panel").is_displayed()
    assert page.run("return scrollY") < before
    assert page.run("return document.activeElement.dataset.tl") == "rows"  # whose keys act at once
    page.driver.back()
    page.wait(lambda: abs(page.run("return scrollY") - before) < 50)
    page.settled("#t=0,")
    assert not page.part("interval-panel").is_displayed()


def test_the_tab_key_stops_at_no_figure(page: Browser) -> None:
    page.open(gpu_report(), unfold=True)
    draw_plots(page)
    stops = "return [...Bokeh.index.roots].map((view) => view.canvas_view?.events_el.tabIndex ?? -1)"
    assert set(page.run(stops)) == {-1}


def test_without_javascript_the_page_has_all_rows_and_no_empty_figures(page: Browser) -> None:
    page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        write_html(gpu_report(60), page.folder / "report.html")
        page.go((page.folder / "report.html").as_uri())
        assert "JavaScript is off" in find(page, "main").text
        assert not [each for each in find_all(page, ".timeline, .plot, [data-more]") if each.is_displayed()]
        find(page, "#idle").click()
        assert find_all(page, "#gaps-rows tr")[-1].is_displayed()
    finally:
        page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def tap(page: Browser, point: dict[str, float], touch: bool) -> None:
    if touch:
        for kind, points in (("touchStart", [{"x": point["x"], "y": point["y"]}]), ("touchEnd", [])):
            page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    else:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            page.mouse(kind, point["x"], point["y"])


AT_POINT = """
const [name, renderer, index] = arguments;
const view = [...Bokeh.index.roots].find(({ model }) => model.name === `plot-${name}`);
const source = view.model.renderers.filter((r) => r.data_source.get_column('start_ns'))[renderer].data_source;
const [x, y] = source.get_column('x')
  ? [source.get_column('x')[index], source.get_column('y')[index]]
  : [Math.sqrt(source.get_column('left')[index] * source.get_column('right')[index]), source.get_column('top')[index] / 2];
const { left, top } = view.el.getBoundingClientRect();
return {
  x: left + view.frame.x_scale.compute(x), y: top + view.frame.y_scale.compute(y),
  start: source.get_column('start_ns')[index], end: source.get_column('end_ns')[index],
};
"""


@pytest.mark.parametrize("touch", [False, True], ids=["mouse", "finger"])
@pytest.mark.parametrize("plot", ["roofline", "gaps"])
def test_a_tap_on_a_point_leads_to_its_kernel_and_on_a_bar_to_its_gap(page: Browser, plot: str, touch: bool) -> None:
    report = sample("synthetic_compute" if plot == "roofline" else "synthetic_overhead_launch")
    page.open(report, width=390 if touch else 1280, height=844, unfold=True)
    draw_plots(page, f"#plot-{plot}")
    heights = "return [...Bokeh.index.roots].find(({ model }) => model.name === 'plot-gaps').model.renderers[0].data_source.get_column('top')"
    bars = page.run(f"return [...(() => {{ {heights} }})()]") if plot == "gaps" else []
    point = page.run(AT_POINT, plot, 0, bars.index(max(bars)) if bars else 0)
    tap(page, point, touch)
    page.wait(lambda: page.length_ns() <= 1.5 * (point["end"] - point["start"]) + 50)
    assert start_ns(page) <= point["start"]
    if plot == "roofline":
        assert page.part("details").is_displayed()
        assert "&sel=" in page.run("return location.hash")


ON_CURVE = """
const [name, time] = arguments;
const view = [...Bokeh.index.roots].find(({ model }) => model.name === `plot-${name}`);
const { data_source: source, glyph, tags } = view.model.renderers[0];
const { left, top } = view.el.getBoundingClientRect();
const x = time / tags[0].unit_ns;
return { x: left + view.frame.x_scale.compute(x), y: top + view.frame.y_scale.compute(0) - 2 };
"""


@pytest.mark.parametrize("touch", [False, True], ids=["mouse", "finger"])
@pytest.mark.parametrize("plot", ["queue_depth", "queued_work"])
def test_a_tap_on_an_empty_queue_leads_to_the_idle_time_there(page: Browser, plot: str, touch: bool) -> None:
    report = sample("synthetic_overhead_synchronization")
    page.open(report, width=390 if touch else 1280, height=844, unfold=True)
    draw_plots(page, f"#plot-{plot}")
    drain = report.tables["drains"].sort("idle_ns").row(-1, named=True)
    tap(page, page.run(ON_CURVE, plot, (drain["start_ns"] + drain["end_ns"]) // 2), touch)
    page.wait(lambda: page.part("details").is_displayed())
    assert "Cause" in page.part("details-facts").text
    start, end = page.run("const { view } = document.getElementById('timeline').timeline; return [view.from, view.to]")
    assert start < drain["end_ns"]
    assert end > drain["start_ns"]


def test_a_part_of_the_window_and_a_step_lead_to_the_timeline(page: Browser) -> None:
    page.open(gpu_report(), unfold=True)
    page.run("arguments[0].click()", next(e for e in find_all(page, ".hero .legend button") if e.text == "Compute"))
    page.wait(lambda: page.length_ns() < 100_000)
    page.run("document.querySelectorAll('.step')[1].click()")
    page.wait(lambda: 300_000 < start_ns(page) < 400_000)


def test_a_definition_shows_for_the_keyboard_and_goes_with_escape(page: Browser) -> None:
    page.open(gpu_report(), unfold=True)
    term, tip = find(page, ".chip.regime"), find(page, ".tip")
    page.run("arguments[0].focus()", term)
    page.wait(tip.is_displayed)
    assert tip.text.startswith("The device waits for the CPU")
    assert find(page, f"#{term.get_attribute('aria-describedby')}").get_attribute("textContent") == tip.text
    term.send_keys(ESCAPE)
    assert not tip.is_displayed()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_plots_are_drawn_in_the_theme_when_they_come_into_view(page: Browser, theme: str) -> None:
    page.open(gpu_report(), unfold=True)
    choose(page, theme)
    assert draw_plots(page)
    wider = "return [...document.querySelectorAll('.plot-place')].filter((e) => e.firstElementChild.offsetWidth > e.clientWidth).map((e) => e.id)"
    assert page.run(wider) == []
    inks = page.run(
        "return Bokeh.documents.flatMap((d) => [...d._all_models.values()])"
        ".filter((m) => m.type === 'LinearAxis' && m.axis_label).map((m) => m.axis_label_text_color)"
    )
    soft = page.run("return getComputedStyle(document.documentElement).getPropertyValue('--text-soft').trim()")
    assert set(inks) == {soft}


def test_the_theme_is_remembered(page: Browser) -> None:
    page.open(gpu_report(), unfold=True)
    choose(page, "dark")
    dark = page.run("return getComputedStyle(document.body).backgroundColor")
    page.open(gpu_report(), unfold=True)
    assert page.run("return getComputedStyle(document.body).backgroundColor") == dark


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_the_page_never_scrolls_sideways(page: Browser, report: Report, width: int) -> None:
    page.open(report, width=width, height=844, unfold=True)
    assert page.run("return document.documentElement.scrollWidth") <= width


def test_paper_shows_what_a_reader_of_paper_can_use(page: Browser) -> None:
    page.open(gpu_report())
    choose(page, "dark")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    hidden = "return [...document.querySelectorAll(arguments[0])].every((e) => getComputedStyle(e).display === 'none')"
    assert page.run(hidden, ".bar, .tl-tools, .listing-head input, .card-foot, .unfold")
    assert not find(page, "#kernels-rows td").is_displayed()
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert page.run("return getComputedStyle(document.documentElement).colorScheme") == "light"
    assert find(page, "#kernels-rows td").is_displayed()
    page.run("dispatchEvent(new Event('afterprint'))")
    assert page.run("return document.querySelectorAll('.fold > details[open]').length") == 0
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    page.run("dispatchEvent(new Event('themechange'))")  # the colours of the screen again
    page.run("document.querySelector('[data-unfold]').click()")
    page.wait(lambda: not find_all(page, "[data-plot]:not([data-drawn])"))
    labels = "return Bokeh.documents[0].get_model_by_name('chosen-box').glyph.line_color.value"
    on_screen = page.run(labels)
    on_paper = page.run(f"dispatchEvent(new Event('beforeprint')); {labels}")
    assert (on_screen, on_paper) == ("#e9ecef", "#1b1f24")
    zoomed = "return Number(document.getElementById('timeline').style.getPropertyValue('--paper-zoom'))"
    assert page.run(zoomed) == pytest.approx(690 / page.run("return document.getElementById('timeline').offsetWidth"))
    assert page.run(f"dispatchEvent(new Event('afterprint')); {labels}") == on_screen
    pdf = base64.b64decode(page.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF")
    assert 1 <= pdf.count(b"/Type /Page\n") <= 12


PAINTED = """
const colours = arguments[0].map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
const { canvas } = [...Bokeh.index.roots].find(({ model }) => model.name === 'rows').canvas_view.primary;
const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
copy.drawImage(canvas, 0, 0);
const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
return colours.map((colour) => {
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255 && colour.every((value, k) => value === data[i + k])) return true;
  return false;
});
"""


def test_a_dark_page_is_printed_in_the_light_colours_and_stays_dark(page: Browser) -> None:
    page.open(gpu_report())
    choose(page, "dark")
    matmul = [charts.palette(theme)["k-matmul"] for theme in ("light", "dark")]
    page.wait(lambda: page.run(PAINTED, matmul) == [False, True])
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert page.run(PAINTED, matmul) == [True, False]
    ticks = page.run("return [...document.querySelectorAll('[data-tl=axis] span')].map((tick) => tick.textContent)")
    assert ticks[:2] == ["0 us", "200 us"]
    page.run("dispatchEvent(new Event('afterprint'))")
    page.wait(lambda: page.run(PAINTED, matmul) == [False, True])


def test_hostile_names_are_text_in_tables_plots_and_tips(page: Browser) -> None:
    page.open(hostile_report(), unfold=True)
    draw_plots(page)
    button = find(page, "#kernels-rows button")
    page.run("arguments[0].focus()", button)
    assert "onerror=alert" in button.text
    assert page.run("return document.querySelectorAll('img, [onerror], [onmouseover]').length") == 0


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (npm)")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_axe_finds_nothing_serious(page: Browser, report: Report, theme: str) -> None:
    page.open(report)
    choose(page, theme)
    for details in find_all(page, "details"):
        page.run("arguments[0].open = true", details)
    page.run(AXE.read_text(encoding="utf-8"))
    violations = page.driver.execute_async_script(
        "axe.run().then((result) => arguments[0](result.violations.map(({ id, impact, nodes }) =>"
        " ({ id, impact, nodes: nodes.map((node) => `${node.html.slice(0, 120)}: ${node.failureSummary}`) }))))"
    )
    grave = [violation for violation in violations if violation["impact"] in ("serious", "critical")]
    assert grave == [], json.dumps(grave, indent=1)


ORDER = "return [...document.querySelectorAll('main h1, main h2')].map((heading) => heading.id)"
OPEN = "return [...document.querySelectorAll('.fold > details[open] h2')].map((heading) => heading.id)"


def test_the_page_begins_with_verdict_advice_and_timeline_and_folds_the_rest(page: Browser) -> None:
    page.open(sample("synthetic_overhead_launch"))
    order = page.run(ORDER)
    assert order[:3] == ["headline", "advice", "timeline-title"]
    assert page.run(OPEN) == []
    page.run("document.querySelector('nav a[href=\"#kernels\"]').click()")
    assert page.run(OPEN) == ["kernels"]
    assert find(page, "#kernels-rows td").is_displayed()
    first = find(page, ".card")
    more = first.find_element("css selector", ".card-foot a")
    page.run("arguments[0].click()", more)
    assert page.run(OPEN) == ["kernels", "advice-docs"]
    text = find(page, f"#{more.get_attribute('href').partition('#')[2]}").text
    assert "Bound" in text
    page.run("document.querySelector('[data-unfold]').click()")
    assert len(page.run(OPEN)) == page.run("return document.querySelectorAll('.fold > details').length")
    page.run("document.querySelector('[data-unfold]').click()")
    assert page.run(OPEN) == []


EVERY_CSV = """
return [...document.querySelectorAll('.listing:not(.beside)')].filter((table) => table.querySelector('[data-csv]')).map((table) =>
  [table.querySelector('[data-csv]'), [...table.querySelectorAll('thead th')].map((head) => head.textContent.trim() + (head.dataset.unit ? ` (${head.dataset.unit})` : '')), table.querySelectorAll('tbody tr').length]);
"""


TAKEN = (
    "Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.taken = text; } } });"
    "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; }); return '#'; };"
    "HTMLAnchorElement.prototype.click = function () { window.savedAs = this.download; };"
)


def test_the_code_of_an_advice_and_a_table_can_be_taken_along(page: Browser) -> None:
    report = sample("synthetic_overhead_launch")
    page.open(report)
    page.run(TAKEN)
    above = "const code = document.querySelector('.card code'); return code.getClientRects()[0].top - code.parentElement.getBoundingClientRect().top"
    assert page.run(above) < 20, "no empty line stands above the code"
    page.run("document.querySelector('[data-copy]').click()")
    page.wait(lambda: page.run("return document.querySelector('[data-copy]').textContent") == "Copied")
    assert page.run("return window.taken") == report.advice[0].code
    page.run("document.querySelector('[data-copy]').click()")
    page.wait(lambda: page.run("return document.querySelector('[data-copy]').textContent") == "Copy")
    page.run("document.querySelector('#table-kernels [data-csv]').click()")
    page.wait(lambda: page.run("return window.saved"))
    lines = page.run("return window.saved").strip().split("\r\n")
    assert page.run("return window.savedAs") == "kernels.csv"
    assert lines[0].startswith("Name,")
    assert len(lines) == 1 + min(report.tables["kernels"].height, 100)
    for button, heads, rows in page.run(EVERY_CSV):
        page.run("window.saved = null; arguments[0].click()", button)
        page.wait(lambda: page.run("return window.saved"))
        first, *rest = csv.reader(page.run("return window.saved").splitlines())
        assert (first, len(rest)) == (heads, rows)


def test_an_advice_outlines_all_of_its_members_with_launches_and_goes_from_one_to_the_next(page: Browser) -> None:
    report = sample("synthetic_overhead_launch")
    page.open(report)
    page.run("document.querySelector('[data-advice]').click()")
    page.wait(lambda: page.part("advice-panel").is_displayed())
    item = report.advice[0]
    assert page.part("advice-title").text == item.title
    members = report.tables["advice_members"].filter(advice=item.id).height
    outlined = page.run("return document.getElementById('timeline').timeline.overlays.advice.events.length")
    assert outlined >= min(members, 2000)
    assert f"{outlined:,} events outlined" in page.part("advice-count").text
    rows = page.run(
        "const t = document.getElementById('timeline').timeline; return t.overlays.advice.outlines.map(({ row }) => t.store.tracks[row.track].family)"
    )
    assert "idle" in rows or "stream" in rows
    steps = len({step.index for step in report.steps if step.steady})
    assert page.part("advice-place").text == f"step 1: 1 of {steps}"
    page.part("advice-next").click()
    assert page.part("advice-place").text == f"step 2: 2 of {steps}"
    page.run("document.getElementById('timeline').timeline.select(-1)")
    page.driver.find_element("tag name", "body").send_keys(ESCAPE)
    assert not page.part("advice-panel").is_displayed()


FLAME_COLOURS = """
const { graph } = document.getElementById('flame');
const { painter, store } = document.getElementById('timeline').timeline;
const { data } = graph.canvas.getContext('2d').getImageData(0, 0, graph.canvas.width, graph.canvas.height);
const ratio = graph.canvas.width / graph.canvas.parentElement.clientWidth;
const wide = graph.boxes.filter(({ node, width }) => node.caller && width > 8);
return wide.flatMap(({ node, x, row }) => {
  const kind = store.kind_values.indexOf(node.colour.replace(/^p-/, 'idle-').replace(/^k-/, ''));
  const at = 4 * (Math.ceil((row * 19 + 1) * ratio) * graph.canvas.width + Math.ceil((x + 1) * ratio));
  const [red, green, blue] = data.slice(at, at + 3);
  return kind < 0 ? [] : [[node.colour, (red << 16) + (green << 8) + blue, painter.colours[kind].rgb]];
});
"""
IDLE_AREA = """
const [from, to] = arguments;
const { timeline } = document.getElementById('timeline');
timeline.show({ from, to });
cancelAnimationFrame(timeline.frame); timeline.frame = null; timeline.painter.fetched = null; timeline.draw();
const row = timeline.tracks.layout.rows.find(({ track }) => timeline.store.tracks[track].family === 'idle');
const { left, right, top, bottom } = Bokeh.documents[0].get_model_by_name('boxes').data;
let [area, lower] = [0, 0];
for (let i = 0; i < left.length; i++) {
  if (bottom[i] !== row.bottom) continue;
  const share = (bottom[i] - top[i]) / (row.bottom - row.top);
  area += share * Math.max(0, Math.min(right[i], to) - Math.max(left[i], from));
  lower += share < 1;
}
return { area, lower };
"""


def test_a_flame_graph_zooms_searches_and_changes_its_tree(page: Browser) -> None:
    report = sample("synthetic_overhead_launch")
    page.open(report)
    graph = "document.getElementById('flame').graph"
    page.run("document.querySelector('#flames').closest('details').open = true")
    page.wait(lambda: page.run(f"return {graph}.boxes.length") > 1)
    summary = find(page, "[data-flame=flame-summary]")
    assert summary.text.startswith("Waiting of the device: ")
    whole = page.run(f"return {graph}.flame.root.value")
    assert whole == report.tables["idle"].select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    drawn = page.run(FLAME_COLOURS)
    assert {name.partition("-")[0] for name, _, _ in drawn} == {"p", "k"}
    assert all(there == here for _, there, here in drawn), "a cause and a package have one colour on the page"
    idle = report.tables["idle"]
    end = report.trace.duration_ns
    far = page.run(IDLE_AREA, 0, end)
    assert far["lower"], "idle time shorter than a pixel"
    assert far["area"] == pytest.approx(idle.select(pl.col("end_ns") - pl.col("start_ns")).sum().item(), rel=0.15)
    longest = idle.sort(pl.col("end_ns") - pl.col("start_ns")).row(-1, named=True)
    near = page.run(IDLE_AREA, longest["start_ns"], longest["end_ns"])
    assert near == {"area": pytest.approx(longest["end_ns"] - longest["start_ns"]), "lower": 0}
    canvas = find(page, "[data-flame=canvas]")
    canvas.send_keys("\ue015")  # arrow down: into the widest frame
    assert " of it in " in summary.text
    find(page, "[data-flame=reset]").click()
    assert " of it in " not in summary.text
    find(page, "[data-flame=search]").send_keys("aten::")
    assert "frames, " in find(page, "[data-flame=match-count]").text
    find_all(page, "[data-flame-view]")[-1].click()
    assert summary.text.startswith("Kernel time: ")


def test_a_page_holds_the_command_that_made_it(page: Browser, tmp_path: Path) -> None:
    html.write_html(gpu_report(), tmp_path / "report.html", command="analyze 't race.json' --step all")
    page.go((tmp_path / "report.html").as_uri())
    page.run("document.querySelector('[data-unfold]').click()")
    assert "analyze 't race.json' --step all" in find(page, ".trace code").text


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_names_of_roofs_lie_over_nothing_and_the_legend_has_them(page: Browser, width: int) -> None:
    page.open(sample("synthetic_memory-bandwidth"), width=width, height=844, unfold=True)
    page.run("document.getElementById('plot-roofline').scrollIntoView()")
    page.wait(lambda: find_all(page, "#plot-roofline[data-drawn]"))
    names = """
    const { model } = [...Bokeh.index.roots].find(({ model }) => model.name === 'plot-roofline');
    return model.renderers.filter(({ glyph }) => glyph.type === 'Text').map(({ visible }) => visible);
    """
    page.wait(lambda: page.run(names) and set(page.run(names)) == {width > 640})
    signs = [sign.text for sign in find_all(page, ".plot .legend .sign")]
    assert signs
    assert all("FLOP/s" in sign for sign in signs)


@pytest.mark.parametrize("report", [REPORTS["gpu"], REPORTS["three devices"], REPORTS["cpu"]])
def test_every_table_has_csv_and_none_scrolls_from_1280_pixels_on(page: Browser, report: Report) -> None:
    page.open(report, width=1280, height=844, unfold=True)
    without = "return [...document.querySelectorAll('.fold table')].filter((e) => !e.closest('.listing')?.querySelector('[data-csv]')).length"
    assert page.run(without) == 0
    clipped = "return [...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.parentElement.id)"
    assert page.run(clipped) == []
    size = {"width": 1920, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert page.run(clipped) == []


def test_paper_is_no_wider_than_its_text(page: Browser) -> None:
    """Chromium shrinks a whole document whose tables are wider than the paper."""
    page.open(gpu_report(40, 3))
    page.run("dispatchEvent(new Event('beforeprint'))")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    size = {"width": 703, "height": 1000, "deviceScaleFactor": 1, "mobile": False}  # A4 less 12 mm on each side
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    width = page.run("return document.documentElement.scrollWidth")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    page.run("dispatchEvent(new Event('afterprint'))")
    assert width <= 703


LONG_NAME = "a_training_run_with_quite_a_long_descriptive_name_rank_0_of_16_2024-11-05T12-30-00.pt.trace.json.gz"
HEADER = """
const parts = [...document.querySelectorAll('.bar > :not(.popover)')].filter((part) => part.offsetWidth);
const boxes = parts.map((part) => part.getBoundingClientRect());
const reachable = [...document.querySelectorAll('.bar .to-perfetto, .bar .theme label')].filter((part) => {
  const { left, right, top, bottom } = part.getBoundingClientRect();
  return part.offsetWidth && !part.contains(document.elementFromPoint((left + right) / 2, (top + bottom) / 2));
});
return [boxes.every((box, i) => i === 0 || boxes[i - 1].right <= box.left), reachable.length];
"""


@pytest.mark.parametrize("width", [390, 1280, 1440, 1920])
def test_nothing_in_the_header_lies_over_anything_else(page: Browser, width: int) -> None:
    report = gpu_report(40)
    page.open(replace(report, trace=replace(report.trace, path=LONG_NAME)), width=width, height=844)
    assert page.run(HEADER) == [True, 0]
    if width >= 1280:
        find(page, ".to-perfetto").click()
        assert page.driver.find_element("id", "perfetto").is_displayed()
        assert find(page, "nav a").is_displayed()


def test_the_levers_stand_beside_the_verdict(page: Browser) -> None:
    page.open(sample("synthetic_overhead_data-loading"), width=1440)
    assert page.run(
        "const [verdict, levers] = ['h1', '.levers'].map((part) => document.querySelector(part).getBoundingClientRect()); return verdict.right <= levers.left && levers.top < verdict.bottom"
    )


def test_the_parts_of_the_window_are_one_stop_of_the_keyboard(page: Browser) -> None:
    page.open(gpu_report(40))
    first, second = find_all(page, ".hero .legend button")[:2]
    page.run("arguments[0].focus()", first)
    first.send_keys(ARROW_RIGHT)
    assert page.driver.switch_to.active_element == second
    second.send_keys(TAB)
    assert page.run("return Boolean(document.activeElement.closest('.advice, .aside'))")


COVERED = """
const covered = [];
let tested = 0;
for (const more of document.querySelectorAll('[data-more]')) {
  if (more.getAttribute('aria-expanded') !== 'true') more.click();
  const scroll = more.closest('.listing').querySelector('.scroll');
  scroll.scrollIntoView({ behavior: 'instant', block: 'center' });
  for (let top = 200; top < 240 && scroll.scrollHeight > scroll.clientHeight + 240; top += 8) {
    scroll.scrollTop = top;
    tested += 1;
    for (const head of scroll.querySelectorAll('thead th')) {
      const r = head.getBoundingClientRect();
      for (const x of [r.left + 3, (r.left + r.right) / 2, r.right - 3]) for (const y of [r.top + 3, r.bottom - 3])
        if (!document.elementFromPoint(x, y)?.closest('th')) covered.push(`${head.textContent} at ${top}`);
    }
  }
}
return [tested, covered];
"""


def test_a_table_shown_whole_keeps_its_headings_in_sight_over_its_rows(page: Browser) -> None:
    report = sample("synthetic_overhead_launch")
    many = {name: pl.concat([report.tables[name]] * 9) for name in ("kernels", "operators")}
    page.open(replace(report, tables={**report.tables, **many}), unfold=True)
    tested, covered = page.run(COVERED)
    assert tested >= 10
    assert covered == []


def test_a_file_has_whole_names_and_units(page: Browser) -> None:
    report, name = gpu_report(), "gemm_" + "x" * 300
    kernels = report.tables["kernels"].with_columns(pl.lit(name).alias("name"))
    page.open(replace(report, tables={**report.tables, "kernels": kernels}), unfold=True)
    page.run(TAKEN + "document.querySelector('#table-kernels [data-csv]').click()")
    page.wait(lambda: page.run("return window.saved"))
    heads, *rows = csv.reader(page.run("return window.saved").splitlines())
    assert "Time (ns)" in heads
    assert {row[0] for row in rows} == {name}


def test_one_dock_shows_what_was_asked_for_last_and_never_hides_it(page: Browser) -> None:
    page.open(sample("synthetic_overhead_launch"), width=1440, height=900)
    page.run("document.querySelector('[data-advice]').click()")
    page.wait(lambda: page.part("advice-tables").is_displayed())
    gap = "const t = document.getElementById('timeline').timeline; t.select(t.overlays.advice.events[0]); return t.selected"
    assert page.run(gap) >= 0
    page.wait(lambda: page.part("details").is_displayed())
    assert page.part("advice-next").is_displayed()
    assert not page.part("advice-tables").is_displayed()
    assert page.part("dock").size["height"] <= 0.34 * 900 + 1
    row = "const t = document.getElementById('timeline').timeline; const { bottom } = t.tracks.rowInLayout(t.selected); return t.scroller.getBoundingClientRect().top + bottom <= t.element('dock').getBoundingClientRect().top"
    assert page.run(row)
    page.part("close").click()
    assert page.part("advice-tables").is_displayed()


def test_a_track_can_be_pinned(page: Browser) -> None:
    page.open(gpu_report(40))
    track = page.run(
        "const t = window.own = document.getElementById('timeline').timeline;"
        "const row = t.store.rows.find(({ track }) => t.store.tracks[track].thread !== null); t.select(row.first); return row.track"
    )
    pinned = "return [...own.tracks.pinned]"
    assert track not in page.run(pinned)
    page.driver.find_element("tag name", "body").send_keys("p")
    assert track in page.run(pinned)
    page.run("document.querySelector('.tl-pinned .tl-pin[aria-pressed=true]').click()")
    assert track not in page.run(pinned)
