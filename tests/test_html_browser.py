"""Test the HTML report in a real browser: Debian's Chromium, headless, with no network."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_factory import gpu_report

from trace_analyzer.render.html import notebook_html, write_html
from trace_analyzer.report import Report

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"),
]

SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip

CTRL = 2  # Chromium's modifier bit

KERNEL_NS = 130_000  # the second kernel of `gpu_report` starts here and lasts 60 us


class Browser:
    """Use the page like a person: open, click, type, read."""

    def __init__(self, driver: Any, folder: Path) -> None:
        self.driver = driver
        self.folder = folder
        self.pages: dict[int, tuple[Report, Path]] = {}

    def open(
        self, report: Report, *, width: int = 1280, height: int = 720, fragment: str = "", unfold: bool = False
    ) -> None:
        """Show the report in a window of this size, its timeline drawn if it has one; ``unfold`` opens all parts."""
        if id(report) not in self.pages:
            self.pages[id(report)] = report, write_html(report, self.folder / f"report{len(self.pages)}.html")
        self.go(self.pages[id(report)][1].as_uri() + fragment, width, height)
        drawn = "document.documentElement.dataset.ready && location.hash"
        self.wait(lambda: self.run(f"return !document.getElementById('timeline') || ({drawn})"))
        if unfold:
            self.run("document.querySelector('[data-unfold]').click()")

    def go(self, address: str, width: int = 1280, height: int = 720) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get("about:blank")  # else a new fragment alone would not load the page again
        self.logs()
        self.driver.get(address)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: Callable[[], Any]) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 20, poll_frequency=0.05).until(lambda _: condition())

    def part(self, name: str) -> Any:
        return self.driver.find_element("css selector", f'[data-tl="{name}"]')

    def logs(self) -> list[str]:
        """Return messages of the console since the last look, without Bokeh's greetings."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def requests(self) -> list[str]:
        """Return addresses asked for since the last look that are not the page, in it, or of the browser itself."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        own = ("file:", "data:", "about:", "blob:", "chrome:", "chrome-untrusted:")
        return [url for url in asked if not url.startswith(own)]

    def point(self, time_ns: int, track: str) -> tuple[float, float]:
        """Return where an instant of a track's first row is in the window."""
        self.run("document.getElementById('timeline').scrollIntoView()")
        fragment = self.run("return location.hash")
        start, end = (int(value) for value in fragment.split("=")[1].split("&")[0].split(","))
        box = self.run(
            "const r = document.querySelector('[data-tl=canvas]').getBoundingClientRect();return [r.left, r.width]"
        )
        top = self.run(  # in one step, as a redraw replaces the labels
            "const label = [...document.querySelectorAll('.track')].find(e => e.innerText.trim() === arguments[0]);"
            "const r = label.getBoundingClientRect(); return r.top + r.height / 2",
            track,
        )
        return box[0] + (time_ns - start) / (end - start) * box[1], top

    def mouse(self, kind: str, x: float, y: float) -> None:
        held = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **held})

    def hover(self, time_ns: int, track: str) -> str:
        """Return the tooltip at an instant of a track."""
        self.mouse("mouseMoved", *self.point(time_ns, track))
        self.wait(lambda: self.part("tooltip").is_displayed())
        return str(self.part("tooltip").text)

    def click(self, time_ns: int, track: str) -> None:
        x, y = self.point(time_ns, track)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)

    def settled(self, expected: str) -> None:
        """Wait until the address shows the view, which it does a moment after the last redraw."""
        self.wait(lambda: expected in self.run("return location.hash"))

    def length_ns(self) -> int:
        start, end = self.run("return location.hash").split("=")[1].split("&")[0].split(",")
        return int(end) - int(start)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    folder = tmp_path_factory.mktemp("browser")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in (*SWITCHES, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    yield Browser(driver, folder)
    driver.quit()


@pytest.fixture
def browser(started: Browser) -> Iterator[Browser]:
    """Yield the browser, and check that it neither logs errors nor sends requests during the test."""
    started.requests()
    yield started
    assert started.logs() == []
    assert started.requests() == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_loads_and_draws(browser: Browser, theme: str) -> None:
    browser.open(gpu_report())
    browser.driver.find_element("css selector", f"label:has([value={theme}])").click()
    assert "GPU waits for Python" in browser.driver.find_element("tag name", "h1").text
    assert [span.text for span in browser.driver.find_elements("css selector", ".track")] == [
        "Stream 7", "Idle, by cause", "Annotations", "Runtime calls", "Operators", "Python",
    ]  # fmt: skip
    assert not browser.part("trouble").is_displayed()


def opened(browser: Browser, start: int, end: int, **size: int) -> None:
    browser.open(gpu_report(), fragment=f"#t={start},{end}", **size)
    browser.settled(f"#t={start},{end}")


@pytest.mark.parametrize(
    ("interval", "at", "track", "expected"),
    [
        ((KERNEL_NS - 5_000, KERNEL_NS + 65_000), KERNEL_NS + 30_000, "Stream 7",
         ("ampere_sgemm_128x64_tn", "60 us", "Stream 7", "Matmul", "Compute", "[128, 1, 1]", "aten::mm", "4 us ahead")),
        ((0, 400_000), 100_000, "Idle, by cause", ("Cause\nPython", "train.py(12): step")),
    ],
)  # fmt: skip
def test_kernels_and_idle_time_show_what_they_are_under_the_pointer(
    browser: Browser, interval: tuple[int, int], at: int, track: str, expected: tuple[str, ...]
) -> None:
    opened(browser, *interval)
    tooltip = browser.hover(at, track)
    assert [words for words in expected if words not in tooltip] == []


def test_a_click_shows_the_launch(browser: Browser) -> None:
    opened(browser, 0, 400_000)
    browser.click(KERNEL_NS + 30_000, "Stream 7")
    browser.settled("&sel=1")
    assert browser.part("details-name").text == "ampere_sgemm_128x64_tn"
    arrow = browser.run("return Bokeh.documents[0].get_model_by_name('arrow').data")
    assert (arrow["x0"], arrow["x1"]) == ([126_000], [KERNEL_NS])
    browser.part("go-other").click()
    browser.wait(lambda: browser.part("details-name").text == "cudaLaunchKernel")
    assert "ampere_sgemm_128x64_tn" in browser.part("details-facts").text


def test_search_counts_and_goes_from_match_to_match(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(gpu_report())
    browser.driver.find_element("tag name", "body").send_keys("/")
    field = browser.driver.switch_to.active_element
    field.send_keys("SGEMM")
    browser.wait(lambda: browser.part("match-count").text == "6 found")
    field.send_keys(Keys.ENTER)
    browser.wait(lambda: browser.part("match-count").text == "1 of 6")
    field.send_keys(Keys.SHIFT, Keys.ENTER)
    browser.wait(lambda: browser.part("match-count").text == "6 of 6")
    browser.settled("&sel=11")


def test_the_wheel_zooms_with_ctrl_dragging_moves_and_a_key_shows_all(browser: Browser) -> None:
    opened(browser, 200_000, 600_000)
    x, y = browser.point(400_000, "Operators")
    wheel = {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": -60, "modifiers": CTRL}
    browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", wheel)
    browser.wait(lambda: browser.length_ns() < 300_000)
    before = browser.run("return location.hash")
    for kind, at in (("mousePressed", x), ("mouseMoved", x + 60), ("mouseReleased", x + 60)):
        browser.mouse(kind, at, y)
    browser.wait(lambda: browser.run("return location.hash") != before)
    assert "sel=" not in browser.run("return location.hash")
    assert browser.length_ns() < 300_000
    body = browser.driver.find_element("tag name", "body")
    body.send_keys("0")
    browser.settled("#t=0,1200000")
    body.send_keys("?")
    assert browser.part("help-text").is_displayed()


def test_two_fingers_zoom(browser: Browser) -> None:
    opened(browser, 200_000, 600_000, width=390, height=844)
    x, y = browser.point(400_000, "Operators")
    for kind, spread in (("touchStart", 20), ("touchMove", 40), ("touchMove", 80), ("touchEnd", None)):
        points = [] if spread is None else [{"x": x + side * spread, "y": y, "id": side + 1} for side in (-1, 1)]
        browser.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    browser.wait(lambda: browser.length_ns() < 200_000)


def test_a_drag_over_the_overview_chooses_the_view(browser: Browser) -> None:
    opened(browser, 0, 10_000)
    browser.point(0, "Stream 7")
    left, width, top = browser.run(
        "const r = document.getElementById('figure-overview').getBoundingClientRect();"
        "return [r.left, r.width, r.top + r.height / 2]"
    )
    for kind, at in (("mousePressed", 0.5), ("mouseMoved", 0.6), ("mouseMoved", 0.75), ("mouseReleased", 0.75)):
        browser.mouse(kind, left + at * width, top)
    browser.wait(lambda: browser.length_ns() > 200_000)
    assert browser.length_ns() == pytest.approx(300_000, rel=0.05)


def test_a_row_leads_to_its_place(browser: Browser) -> None:
    browser.open(gpu_report())
    browser.driver.find_element("css selector", ".card button.link").click()
    browser.wait(lambda: browser.length_ns() < 500_000)
    start = int(browser.run("return location.hash").split("=")[1].split(",")[0])
    assert 0 < start < 100_000


def test_a_folded_track_opens(browser: Browser) -> None:
    browser.open(gpu_report())
    for state in ("false", "true"):
        fold = next(e for e in browser.driver.find_elements("css selector", "button.track") if e.text == "Python")
        assert fold.get_attribute("aria-expanded") == state
        browser.run("arguments[0].click()", fold)


def test_it_works_in_a_notebooks_frame(browser: Browser) -> None:
    path = browser.folder / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{notebook_html(gpu_report())}", encoding="utf-8")
    browser.go(path.as_uri())
    browser.driver.switch_to.frame(browser.driver.find_element("tag name", "iframe"))
    browser.wait(lambda: browser.run("return document.documentElement.dataset.ready"))
    browser.driver.switch_to.default_content()
