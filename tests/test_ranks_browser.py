"""Test the page of a job in a real browser: the map of ranks, the lanes of a step, the picker of ranks."""

import test_html_browser as pages
from made_ranks import MS, job, summaries
from msgspec.structs import replace
from selenium.webdriver.common.keys import Keys
from test_html_browser import Browser

from trace_analyzer.ranks.job import judge
from trace_analyzer.ranks.summary import from_bytes, to_bytes

pytestmark = pages.pytestmark
started, browser = pages.started, pages.browser

RANKS, STEPS, LATE = 8, 6, 5
LABELS, AXIS = 64, 18  # px beside and below the map (ranks.js)


def text_of(page: Browser, name: str) -> str:
    return str(page.driver.find_element("id", name).text)


def chosen(page: Browser) -> tuple[int, int]:
    """Return the rank and the step that the picker shows."""
    rank, step = (page.driver.find_element("id", name).get_property("value") for name in ("rank", "step"))
    return int(rank), int(step)


def corner(page: Browser, name: str) -> tuple[float, float]:
    """Return where a canvas begins in the window."""
    script = "const e = document.getElementById(arguments[0]); e.scrollIntoView({ block: 'center' });"
    left, top = page.run(f"{script} const r = e.getBoundingClientRect(); return [r.left, r.top]", name)
    return left, top


def test_a_cell_of_the_map_leads_to_the_lanes_and_to_the_report_of_the_rank(browser: Browser) -> None:
    program = [("work", 5 * MS), ("meet", [list(range(RANKS))])] * 3
    made = job(RANKS, STEPS, program, lambda rank, step: 60 * MS * (rank == LATE))
    parts = [from_bytes(content) for content in summaries(made)]
    parts = [replace(part, path=str(browser.folder / f"trace.rank{part.rank}.json")) for part in parts]
    report = browser.folder / f"trace.rank{LATE}.report.html"
    report.write_text("<title>the rank's own report</title>", encoding="utf-8")
    path = judge([to_bytes(part) for part in parts]).to_html(browser.folder / "job.html")
    browser.go(path.as_uri())
    browser.wait(lambda: text_of(browser, "heat-status"))

    width, height = browser.run("const e = document.getElementById('heat'); return [e.clientWidth, e.clientHeight]")
    left, top = corner(browser, "heat")
    at = left + LABELS + (2 + 0.5) * (width - LABELS) / STEPS, top + (6 + 0.5) * (height - AXIS) / RANKS
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        browser.mouse(kind, *at)
    assert chosen(browser) == (6, 2)
    assert text_of(browser, "lanes-status").startswith(f"Step 2: {3 * RANKS} collectives of {RANKS} ranks; ")
    drawn = "return document.getElementById('lanes').toDataURL()"
    images = [browser.run(drawn)]
    for key in "+", "+", Keys.ARROW_RIGHT, "-":
        browser.driver.find_element("id", "lanes").send_keys(key)
        images.append(browser.run(drawn))
    assert len(set(images)) == 5, "each key changes what the lanes show"
    left, top = corner(browser, "lanes")
    dragged = []
    for begin, end in ((200, 300), (300, 200)):
        for kind, x in (("mousePressed", begin), ("mouseMoved", end), ("mouseReleased", end)):
            browser.mouse(kind, left + x, top + 5)
        dragged.append(browser.run(drawn))
    assert dragged[0] != images[-1] == dragged[1], "dragging moves the lanes, and back"
    fingers = [[(200, 5), (300, 5)], [(150, 5), (350, 5)], []]
    for kind, points in zip(("touchStart", "touchMove", "touchEnd"), fingers, strict=True):
        touches = [{"x": left + x, "y": top + y, "id": number} for number, (x, y) in enumerate(points)]
        browser.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})
    assert browser.run(drawn) not in (images[-1], dragged[0]), "two fingers zoom"
    for key in *"-----", Keys.ARROW_LEFT:
        browser.driver.find_element("id", "lanes").send_keys(key)
    assert browser.run(drawn) == images[0], "no key leads beyond the step"
    assert not browser.driver.find_element("id", "report").is_displayed()
    assert "trace.rank6.json" in text_of(browser, "command")

    button = browser.driver.find_element("css selector", f"button[data-rank='{LATE}']")
    browser.run("arguments[0].scrollIntoView({ block: 'center' })", button)
    assert button.size["height"] >= 24, "WCAG 2.2, 2.5.8: a target is at least 24 px high"
    button.click()
    assert chosen(browser)[0] == LATE
    assert f"rank {LATE}" in text_of(browser, "heat-status")
    link = browser.driver.find_element("id", "report")
    assert link.is_displayed()
    own = browser.driver.current_window_handle
    link.click()
    browser.wait(lambda: len(browser.driver.window_handles) == 2)
    browser.driver.switch_to.window(next(w for w in browser.driver.window_handles if w != own))
    browser.wait(lambda: browser.driver.title == "the rank's own report")
    assert browser.driver.current_url == report.as_uri()
    browser.driver.close()
    browser.driver.switch_to.window(own)
