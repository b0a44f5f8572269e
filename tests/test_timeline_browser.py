"""Test the timeline in a real browser, held against the tables that it shows."""

import random
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
import test_html_browser as pages
from conftest import SAMPLES, corpus_rows
from msgspec.structs import replace
from report_factory import HOSTILE, cpu_report, frame, frames, gpu_report, hostile_report
from test_html_browser import KERNEL_NS, Browser
from tiers import examples

from trace_analyzer import pipeline, registry
from trace_analyzer.ingest.tables import HOST_EVENTS
from trace_analyzer.report import Report

pytestmark = pages.pytestmark
started, browser = pages.started, pages.browser

HOUR_NS = 3_600_000_000_000
SHIFT = 8  # Chromium's modifier bit


@cache
def sample(name: str) -> Report:
    return pipeline.analyze(str(SAMPLES / f"{name}.json.gz"))


def one_kernel_report() -> Report:
    """Return the report on a single kernel on a single device, without a recorded launch."""
    report = gpu_report(kernels=2)
    kernel = report.tables["activities"].head(1).with_columns(launch_id=pl.lit(None, pl.UInt32))
    empty = {table.name: table.empty() for table in registry.TABLES}
    return replace(report, tables={**empty, "activities": kernel, "devices": report.tables["devices"]})


def long_report() -> Report:
    """Return a report of four hours: times that no 32-bit integer holds, and durations over 4.29 s."""
    factor = 4 * HOUR_NS // 1_200_000
    report = gpu_report()
    times = ("start_ns", "end_ns", "duration_ns", "time_ns")
    stretched = {
        name: table.with_columns(pl.col(key) * factor for key in times if key in table.columns)
        for name, table in report.tables.items()
    }
    return replace(report, tables=stretched)


def memory_report() -> Report:
    """Return a report of CPU and device allocations, a forward and a backward operator, a wait and a module."""
    report = gpu_report()
    host = report.tables["host_events"]
    operators = host.filter(pl.col("name") == "aten::linear").get_column("event_id").to_list()
    module = {"kind": "python", "name": "nn.Module: Net_0", "thread_id": 0, "start_ns": 1_500, "duration_ns": 90_000}
    extra = frames(
        memory_events=[
            {"time_ns": 100_000 * i, "device_type": kind, "device": 0 if kind else -1, "bytes": 1,
             "total_allocated_bytes": (i + 1) * 2**20, "thread_id": 0}
            for i in range(8) for kind in (0, 1)
        ],
        backward_links=[{"event_id": operators[-1], "forward_id": operators[0]}],
        device_annotations=[
            {"name": "step", "device": 0, "stream": 7, "start_ns": 30_000, "duration_ns": 400_000},
            {"name": "forward", "device": 0, "stream": 7, "start_ns": 30_000, "duration_ns": 160_000},
            {"name": "all_gather", "device": 0, "stream": 20, "start_ns": 90_000, "duration_ns": 200_000},
        ],
        sync_events=[{"name": "Event Sync", "device": 0, "stream": 7, "start_ns": 200_000, "duration_ns": 9_000}],
    )  # fmt: skip
    added = frame(HOST_EVENTS, [{**module, "event_id": host.height, "row": host.height}])
    changed = {name: extra[name] for name in ("memory_events", "backward_links", "sync_events", "device_annotations")}
    return replace(report, tables={**report.tables, **changed, "host_events": pl.concat([host, added])})


REPORTS = {
    "launch": lambda: sample("synthetic_overhead_launch"),
    "collectives": lambda: sample("synthetic_communication_collectives"),
    "graph": lambda: sample("synthetic_memory-bandwidth_cuda-graph"),
    "cpu": lambda: sample("cpu_mlp"),
    "one kernel": one_kernel_report,
    "eight devices": lambda: gpu_report(200, 8),
    "four hours": long_report,
    "everything": memory_report,
}

TIMELINE = "const { timeline } = document.getElementById('timeline');"
UNFOLD = f"""{TIMELINE}
timeline.tracks.folded.clear();
timeline.overlays.showPath(true);
timeline.root.style.setProperty('--tl-visible', 'var(--tl-height)');
timeline.tracks.relayout();
"""
SHOWN = """
const timeline = document.getElementById('timeline').timeline;
const model = (name) => Bokeh.documents[0].get_model_by_name(name);
timeline.show({ from: arguments[0], to: arguments[1] });
cancelAnimationFrame(timeline.frame); timeline.frame = null; timeline.painter.fetched = null; timeline.draw();
const { left, right, bottom } = model('boxes').data; // of idle time the top is its share
return {
  from: timeline.painter.fetched.from, to: timeline.painter.fetched.to, quantum: timeline.painter.fetched.boxes.quantum,
  boxes: [...left].map((_, i) => [bottom[i], left[i], right[i]]),
  rows: timeline.tracks.layout.rows.map(({ bottom, track }) => [bottom, track]),
  tracks: timeline.store.tracks.map(({ group, label, thread }) => [group, label, thread]),
};
"""


def shown_by_track(
    browser: Browser, start: float, end: float
) -> tuple[dict[str, Any], dict[tuple[str, str], list[Any]]]:
    """Return the timeline's account of what it shows between two times, and its boxes by group and track label."""
    shown = browser.run(SHOWN, start, end)
    track_of = dict(map(tuple, shown["rows"]))
    boxes: dict[tuple[str, str], list[Any]] = {tuple(track[:2]): [] for track in shown["tracks"]}
    for bottom, left, right in shown["boxes"]:
        group, label, _ = shown["tracks"][track_of[bottom]]
        boxes[group, label].append((bottom, left, right))
    return shown, boxes


def events_by_track(report: Report) -> Mapping[tuple[str, str], pl.DataFrame]:
    """Return the tables' own events by group and label of their track, computed without the renderer."""
    t = report.tables
    lengths = (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns")
    names = {code: f"GPU {label}" + (f" · {name}" if name else "") for code, label, name in t["devices"].iter_rows()}
    device = pl.col("device").replace_strict(names, default="Device", return_dtype=pl.String)
    titles = t["threads"].select("thread_id", title=pl.coalesce("name", pl.format("Thread {}", "tid")), pid="pid")
    several = t["threads"].join(t["host_events"], on="thread_id", how="semi").get_column("process_id").n_unique() > 1
    title = pl.format("Process {} · {}", "pid", "title") if several else pl.col("title")
    module = (pl.col("kind") == "python") & pl.col("name").str.starts_with("nn.Module: ")
    labels = {
        "annotation": "Annotations", "runtime": "Runtime calls", "driver": "Runtime calls", "operator": "Operators",
        "overhead": "Profiler", "python": "Python",
    }  # fmt: skip
    host = pl.when(module).then(pl.lit("Modules")).otherwise(pl.col("kind").replace_strict(labels, default="Other"))
    keys, times = ("group", "label"), ("start_ns", "duration_ns")
    everything = pl.concat(
        [
            t["activities"].select(group=device, label=pl.format("Stream {}", "stream")).hstack(
                t["activities"].select(times)
            ),
            t["idle"].with_columns(lengths).select(*times, group=device, label=pl.lit("Idle, by cause")),
            t["partition"].filter(part="communication").with_columns(lengths).select(
                *times, group=device, label=pl.lit("Communication only")
            ),
            t["device_annotations"].select(
                *times,
                group=device,
                label=pl.when(pl.col("stream").n_unique().over("device") > 1)
                .then(pl.format("Annotations, {}", "stream"))
                .otherwise(pl.lit("Annotations")),
            ),
            t["sync_events"].select(*times, group=device, label=pl.lit("Synchronization")),
            t["critical_path"].with_columns(lengths).select(*times, group=device, label=pl.lit("Critical path")),
            t["host_events"].join(titles, on="thread_id").select(*times, group=title, label=host),
            t["phase_intervals"].with_columns(lengths).join(titles, on="thread_id").select(
                *times, group=title, label=pl.lit("Phases of steps")
            ),
        ],
        how="diagonal",
    )  # fmt: skip
    parts = everything.partition_by(*keys, as_dict=True)
    return {(str(group), str(label)): part for (group, label), part in parts.items()}


def check_boxes(events: pl.DataFrame, boxes: list[tuple[float, float, float]], shown: Mapping[str, Any]) -> None:
    """Check that each event of the window is in a box, each box holds an event, each wide event has its own box."""
    start, end, quantum = shown["from"], shown["to"], shown["quantum"]
    inside = events.with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns")).filter(
        (pl.col("start_ns") < end) & (pl.col("end_ns") > start)
    )
    clipped = [
        (max(a, start), min(b, end), b - a >= quantum) for a, b in inside.select("start_ns", "end_ns").iter_rows()
    ]
    exact = {(left, right) for _, left, right in boxes}
    by_row: dict[float, list[tuple[float, float]]] = {}
    for bottom, left, right in boxes:
        by_row.setdefault(bottom, []).append((left, right))
    for row in by_row.values():
        assert all(one[1] <= other[0] for one, other in pairwise(row)), "boxes of a row overlap"
    for left, right, wide in clipped:
        if wide:
            assert (left, right) in exact
        else:
            assert any(a <= left and right <= b for row in by_row.values() for a, b in row), "an event is lost"
    starts = set(inside.get_column("start_ns")) | {left for left, _, _ in clipped}
    assert {left for _, left, _ in boxes} <= starts, "a box is invented"


def check_windows(browser: Browser, report: Report, windows: int) -> None:
    """Check random windows of a report, wide and narrow, all rows unfolded."""
    browser.open(report)
    browser.run(UNFOLD)
    events = events_by_track(report)
    end = max(part.select((pl.col("start_ns") + pl.col("duration_ns")).max()).item() for part in events.values())
    chance = random.Random(report.trace.path)
    for _ in range(windows):
        length = end * 10 ** -chance.uniform(0, 3)
        start = chance.uniform(0, end - length)
        shown, boxes = shown_by_track(browser, start, start + length)
        assert boxes.keys() == events.keys()
        for track, part in events.items():
            check_boxes(part, boxes[track], shown)


@pytest.mark.parametrize("name", REPORTS)
def test_every_box_agrees_with_the_tables_at_random_windows(browser: Browser, name: str) -> None:
    check_windows(browser, REPORTS[name](), windows=examples(10))


INK_OF = """
const timeline = document.getElementById('timeline').timeline;
const ink = timeline.element('ink');
const copy = Object.assign(document.createElement('canvas'), { width: ink.width, height: ink.height });
const read = copy.getContext('2d', { willReadFrequently: true });
read.drawImage(ink, 0, 0);
const { data } = read.getImageData(0, 0, ink.width, ink.height);
const [red, green, blue] = [1, 3, 5].map((at) => parseInt(timeline.painter.pathColours.colour.slice(at, at + 2), 16));
let count = 0;
for (let i = 0; i < data.length; i += 4) {
  if (data[i] === red && data[i + 1] === green && data[i + 2] === blue && data[i + 3] === 255) count += 1;
}
return count;
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_critical_path_lies_over_the_rows_when_asked_for(browser: Browser, theme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    report = sample("synthetic_overhead_synchronization")
    browser.open(report)
    assert browser.part("path").get_attribute("aria-pressed") == "false"
    assert browser.run(INK_OF) == 0
    keys = browser.driver.find_elements("css selector", ".timeline .path-kind")
    assert not [key for key in keys if key.is_displayed()]
    layout = f"{TIMELINE} return timeline.tracks.layout.height"
    height = browser.run(layout)
    browser.part("path").click()
    browser.wait(lambda: browser.run(INK_OF) > 500)
    assert browser.run(layout) > height
    browser.settled("path=1")
    assert [key for key in keys if key.is_displayed()] == keys
    browser.part("path").click()
    browser.wait(lambda: browser.run(INK_OF) == 0)
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_stretch_of_the_critical_path_says_what_it_is_and_leads_on(browser: Browser) -> None:
    report = sample("synthetic_overhead_synchronization")
    path = report.tables["critical_path"]
    rows = path.with_row_index().filter(pl.col("edge") == "synchronization")
    stretch = rows.row(rows.height // 2, named=True)
    browser.open(report, fragment="#path=1")
    assert browser.part("path").get_attribute("aria-pressed") == "true"
    select = "const t = document.getElementById('timeline').timeline; t.goTo(t.overlays.path.first + arguments[0]);"
    browser.run(select, stretch["index"])
    assert browser.part("details-name").text == "Critical path: Synchronization"
    facts = browser.part("details-facts").text
    assert stretch["operator"] in facts
    assert "wait of the CPU for the device" in facts
    assert f"{stretch['start_ns']:,} ns" in facts
    story = browser.part("story")
    assert story.text.startswith("It belongs to cudaStreamSynchronize")
    story.find_elements("css selector", "button")[0].click()
    assert browser.part("details-name").text == "cudaStreamSynchronize"
    before = path.row(stretch["index"] - 1, named=True)
    browser.run(select, stretch["index"])
    browser.part("story").find_elements("css selector", "button")[1].click()
    assert f"{before['start_ns']:,} ns" in browser.part("details-facts").text


def test_where_nothing_was_replayed_no_path_is_offered(browser: Browser) -> None:
    browser.open(cpu_report(), fragment="#path=1")
    assert not browser.part("path").is_displayed()


FRAMES = """
const [views, done] = arguments;
const { timeline } = document.getElementById('timeline');
timeline.painter.telling = -1; // as if the page had shown its numbers just now
timeline.tracks.closeLanes = () => {}; // what waits for the view to rest
const changed = ({ type, target, attributeName }) => `${type} ${target.className} ${attributeName}`;
const changes = [];
const observer = new MutationObserver((records) => changes.push(...records.map(changed)));
observer.observe(timeline.root, { subtree: true, childList: true, characterData: true, attributes: true });
const seen = [];
const frame = (i) => {
  if (i > 0) seen.push([timeline.painter.fetched.from, timeline.painter.fetched.to]);
  if (i === views.length) return done({ seen, changes: [...changes, ...observer.takeRecords().map(changed)] });
  timeline.show({ from: views[i][0], to: views[i][1] });
  requestAnimationFrame(() => requestAnimationFrame(() => frame(i + 1)));
};
frame(0);
"""


def test_a_frame_lays_out_no_text_and_zooming_takes_no_box_that_is_out_of_sight(browser: Browser) -> None:
    browser.open(gpu_report(40))
    zoom = [[500_000, 900_000], [550_000, 850_000], [600_000, 700_000], [600_000, 1_400_000]]
    assert browser.driver.execute_async_script(FRAMES, zoom) == {"seen": zoom, "changes": []}
    move = [[600_000, 1_400_000], [700_000, 1_500_000], [800_000, 1_600_000], [1_000_000, 1_800_000]]
    fetched = [500_000, 1_700_000]  # a quarter more on both sides
    assert browser.driver.execute_async_script(FRAMES, move) == {
        "seen": [zoom[-1], fetched, fetched, [800_000, 2_000_000]], "changes": []
    }  # fmt: skip


STATISTICS = """
const timeline = document.getElementById('timeline').timeline;
timeline.ruler.chooseInterval({ from: arguments[0], to: arguments[1] });
return timeline.ruler.statistics;
"""


def clipped_sums(events: pl.DataFrame, key: str, start: int, end: int) -> dict[str, int]:
    length = pl.min_horizontal(pl.col("end_ns"), end) - pl.max_horizontal(pl.col("start_ns"), start)
    return dict(events.filter(length > 0).group_by(key).agg(length.sum()).iter_rows())


@pytest.mark.parametrize("name", ["launch", "collectives", "graph", "eight devices", "four hours"])
def test_statistics_of_an_interval_agree_with_polars(browser: Browser, name: str) -> None:
    report = REPORTS[name]()
    browser.open(report)
    activities = report.tables["activities"].with_columns(
        end_ns=pl.col("start_ns") + pl.col("duration_ns"), bucket=pl.coalesce("bucket", "kind")
    )
    chance = random.Random(name)
    last = int(activities.get_column("end_ns").max())  # type: ignore[arg-type]
    for _ in range(5):
        start, end = sorted(chance.sample(range(last), 2))
        statistics = browser.run(STATISTICS, start, end)
        codes = activities.get_column("device").unique().sort().to_list()
        for device, code in zip(statistics["devices"], codes, strict=True):
            here = activities.filter(device=code)
            idle = report.tables["idle"].filter(device=code)
            for key, events in (("bucket", here), ("name", here), ("cause", idle)):
                listed = {"bucket": "buckets", "name": "kernels", "cause": "causes"}[key]
                sums = {row["key"]: row["ns"] for row in device[listed] if row["ns"]}
                assert sums == clipped_sums(events, key, start, end)
            edges = pl.concat([here.select(t="start_ns", d=1), here.select(t="end_ns", d=-1)]).sort("t", "d")
            spans = edges.with_columns(n=pl.col("d").cum_sum(), end_ns=pl.col("t").shift(-1)).filter(pl.col("n") > 0)
            busy = clipped_sums(spans.select("end_ns", start_ns="t", all=pl.lit("busy")), "all", start, end)
            assert device["busyNs"] == busy.get("busy", 0)
            assert device["busyNs"] + device["idleNs"] == device["windowNs"]


def test_the_queue_is_that_of_the_table(browser: Browser) -> None:
    for name in ("launch", "graph", "collectives"):
        report = REPORTS[name]()
        browser.open(report)
        steps = browser.run(
            f"{TIMELINE} return timeline.curves.map(({{ kind, time, value }}) => [kind, [...time], [...value]])"
        )
        queue = report.tables["queue"]
        assert queue.height
        for kind, time, value in steps[:2]:
            column = {"queue": "depth", "queued_work": "queued_work_ns"}[kind]
            assert list(zip(time, value, strict=True)) == list(queue.select("time_ns", column).iter_rows())


# ---- what a person does ----------------------------------------------------------------------------------------


def drag(browser: Browser, start: tuple[float, float], end: tuple[float, float], modifiers: int = 0) -> None:
    held = {"button": "left", "clickCount": 1, "modifiers": modifiers}
    for kind, (x, y) in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
        browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **held})


def test_shift_and_drag_selects_an_interval_that_the_address_keeps(browser: Browser) -> None:
    browser.open(gpu_report(), fragment="#t=0,400000")
    browser.settled("#t=0,400000")
    drag(browser, browser.point(100_000, "Stream 7"), browser.point(200_000, "Stream 7"), SHIFT)
    browser.wait(lambda: browser.part("interval-panel").is_displayed())
    browser.wait(lambda: "&iv=" in browser.run("return location.hash"))
    panel_text = browser.part("interval-tables").text
    for expected in ("Busy", "Idle by cause", "Python", "Matmul", "ampere_sgemm_128x64_tn"):
        assert expected in panel_text
    fragment = browser.run("return location.hash")
    browser.open(gpu_report(), fragment=fragment)
    assert browser.part("interval-panel").is_displayed()
    assert browser.part("interval-tables").text == panel_text
    browser.driver.find_element("tag name", "body").send_keys("\ue00c")  # Escape
    assert not browser.part("interval-panel").is_displayed()


def test_the_axis_is_a_ruler_and_a_mode_selects_too(browser: Browser) -> None:
    browser.open(gpu_report(), fragment="#t=0,400000")
    browser.settled("#t=0,400000")
    x0, _ = browser.point(100_000, "Stream 7")
    x1, _ = browser.point(200_000, "Stream 7")
    top = browser.run("return document.querySelector('[data-tl=axis]').getBoundingClientRect().top + 8")
    drag(browser, (x0, top), (x1, top))
    browser.wait(lambda: browser.part("interval-panel").is_displayed())
    assert browser.part("interval-title").text.startswith("Selected 1")
    browser.part("interval-close").click()
    browser.part("select-mode").click()
    x0, y0 = browser.point(100_000, "Stream 7")
    drag(browser, (x0, y0), (browser.point(300_000, "Stream 7")[0], y0))
    browser.wait(lambda: browser.part("interval-panel").is_displayed())
    assert browser.part("interval-title").text.startswith("Selected 2")


def test_a_marker_at_the_edge_leads_to_the_other_end(browser: Browser) -> None:
    browser.open(gpu_report(), fragment=f"#t={KERNEL_NS + 10_000},{KERNEL_NS + 50_000}&sel=1")
    browser.settled("&sel=1")
    markers = browser.part("markers").find_elements("css selector", "button")
    assert [marker.text for marker in markers] == ["← cudaLaunchKernel"]
    browser.run("arguments[0].scrollIntoView({ block: 'center' })", markers[0])
    markers[0].click()
    browser.wait(lambda: browser.part("details-name").text == "cudaLaunchKernel")
    browser.wait(lambda: not browser.part("markers").find_elements("css selector", "button"))


def test_a_forward_operator_leads_to_its_backward_one(browser: Browser) -> None:
    browser.open(memory_report())
    linked = browser.run(
        TIMELINE
        + """
    const { activities, start, link, name, name_values } = timeline.store;
    for (let i = activities; i < start.length; i++)
      if (link[i] >= 0 && name_values[name[i]] === 'aten::linear') { timeline.goTo(i); return [i, link[i]]; }
    """
    )
    browser.settled(f"&sel={linked[0]}")
    assert "Forward" in browser.part("details-facts").text
    assert "←" in browser.part("markers").text
    browser.part("go-other").click()
    browser.settled(f"&sel={linked[1]}")
    assert "Backward" in browser.part("details-facts").text


def test_the_stack_of_a_kernel_leads_to_its_python_frame(browser: Browser) -> None:
    browser.open(gpu_report(), fragment="#t=0,400000&sel=1")
    browser.settled("&sel=1")
    browser.driver.find_element("css selector", ".tl-stack summary").click()
    frames_shown = browser.driver.find_elements("css selector", "[data-tl=details-stack] button")
    assert [frame.text for frame in frames_shown] == [
        "cudaLaunchKernel", "aten::mm", "aten::linear", "train.py(12): step", "ProfilerStep#0",
    ]  # fmt: skip
    frames_shown[3].click()
    browser.wait(lambda: browser.part("details-name").text == "train.py(12): step")


def test_a_bucket_can_be_filtered_and_searched(browser: Browser) -> None:
    from selenium.webdriver.support.ui import Select

    browser.open(gpu_report())
    choice = Select(browser.part("filter"))
    assert len(choice.options) == 5
    choice.select_by_visible_text("Matmul (6)")
    browser.wait(lambda: browser.part("match-count").text == "6 found")
    browser.part("next").click()
    browser.wait(lambda: browser.part("details-name").text == "ampere_sgemm_128x64_tn")
    choice.select_by_visible_text("All events")
    browser.wait(lambda: browser.part("match-count").text == "")


def test_memory_and_queue_are_shown_for_the_chosen_place(browser: Browser) -> None:
    from selenium.webdriver.support.ui import Select

    browser.open(memory_report())

    def panels() -> list[str]:
        panels_of_page = browser.driver.find_elements("css selector", "[data-curve]")
        return [panel.get_attribute("data-curve") for panel in panels_of_page if panel.is_displayed()]

    assert panels() == ["queue", "queued_work", "memory"]
    Select(browser.part("place")).select_by_visible_text("CPU")
    browser.wait(lambda: panels() == ["memory"])
    assert "8 MiB" in browser.driver.find_element("css selector", "[data-curve=memory]").text


def test_the_queue_says_its_depth_and_leads_to_what_ran(browser: Browser) -> None:
    report = sample("synthetic_compute")
    browser.open(report)
    rows = report.tables["queue"].filter(device=0)
    deepest = rows.sort("depth").row(-1, named=True)
    following = rows.filter(pl.col("time_ns") > deepest["time_ns"]).get_column("time_ns").min()
    instant = (deepest["time_ns"] + following) / 2
    browser.open(report, fragment=f"#t={deepest['time_ns'] - 500_000},{following + 500_000}")
    x, _ = browser.point(int(instant), "Stream 7")
    panel = "document.querySelector('#figure-queue').getBoundingClientRect()"
    browser.run("document.querySelector('#figure-queue').scrollIntoView({ behavior: 'instant', block: 'center' })")
    y = browser.run(f"return {panel}.top + 40")
    browser.mouse("mouseMoved", x, y)
    browser.wait(lambda: browser.part("tooltip").is_displayed())
    assert f"GPU 0\n{deepest['depth']}" in browser.part("tooltip").text
    for kind in ("mousePressed", "mouseReleased"):
        browser.mouse(kind, x, y)
    browser.wait(lambda: browser.part("details").is_displayed())
    running = report.tables["activities"].filter(
        (pl.col("start_ns") <= instant) & (pl.col("start_ns") + pl.col("duration_ns") > instant)
    )
    assert browser.part("details-name").text in running.get_column("name").to_list()


def view_of(browser: Browser) -> tuple[int, int]:
    start, end = browser.run("return location.hash").split("=")[1].split("&")[0].split(",")
    return int(start), int(end)


def test_every_key_does_what_the_help_says(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(gpu_report(), fragment="#t=400000,800000&sel=1")
    browser.settled("&sel=1")
    body = browser.driver.find_element("tag name", "body")
    length = 400_000

    def pressed(key: str, *, inside: bool = False) -> tuple[int, int]:
        before = browser.run("return location.hash")
        (browser.part("rows") if inside else body).send_keys(key)
        browser.wait(lambda: browser.run("return location.hash") != before)
        return view_of(browser)

    start, end = pressed("d")
    assert (start, end - start) == (pytest.approx(460_000, abs=2), pytest.approx(length, abs=2))
    assert pressed("a")[0] == pytest.approx(400_000, abs=2)
    assert pressed(Keys.ARROW_RIGHT, inside=True)[0] == pytest.approx(460_000, abs=2)
    assert pressed(Keys.ARROW_LEFT, inside=True)[0] == pytest.approx(400_000, abs=2)
    browser.run("document.activeElement.blur()")
    start, end = pressed("s")
    assert end - start == pytest.approx(1.4 * length, rel=0.01)
    start, end = pressed("w")
    assert end - start == pytest.approx(length, rel=0.01)
    start, end = pressed("f")
    assert start < KERNEL_NS < KERNEL_NS + 60_000 < end < 300_000
    pressed(Keys.ESCAPE)
    assert not browser.part("details").is_displayed()


GO_TO = "document.dispatchEvent(new CustomEvent('place', { detail: { start: arguments[0], end: arguments[1] } }))"


def row_is_in_sight(browser: Browser) -> bool:
    """Return whether the selected event's row lies between the top of the rows and the panel with its details."""
    return bool(browser.run(TIMELINE + """
        const row = timeline.tracks.rowInLayout(timeline.selected), rows = timeline.scroller.getBoundingClientRect();
        const top = rows.top + row.top, floor = timeline.element('details').getBoundingClientRect().top;
        return top >= Math.max(rows.top, 0) - 1 && rows.top + row.bottom <= floor;
    """))  # fmt: skip


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 720), (1920, 1080)])
def test_what_is_selected_is_in_sight(browser: Browser, width: int, height: int) -> None:
    report = gpu_report(200, 8)
    events = report.tables["activities"].height + report.tables["idle"].height
    last = events + report.tables["host_events"].height - 1
    for event in (1, report.tables["activities"].height - 1, events + 5, last):
        browser.open(report, width=width, height=height, fragment=f"#t=0,900000&sel={event}")
        assert row_is_in_sight(browser), event
    place = report.tables["activities"].sort("device", "start_ns").row(-1, named=True)
    browser.run(GO_TO, place["start_ns"], place["start_ns"] + place["duration_ns"])
    assert row_is_in_sight(browser)


def test_a_link_to_a_part_shows_the_timeline_and_a_report_begins_with_the_verdict(browser: Browser) -> None:
    top = "return document.getElementById('timeline').getBoundingClientRect().top"
    browser.open(gpu_report(), fragment="#t=0,400000")
    assert 0 <= browser.run(top) < 200
    browser.open(gpu_report())
    assert browser.run("return scrollY") == 0


def test_one_finger_moves_the_view(browser: Browser) -> None:
    browser.open(gpu_report(), width=390, height=844, fragment="#t=200000,600000")
    browser.settled("#t=200000,600000")
    x, y = browser.point(400_000, "Operators")
    for kind, moved in (("touchStart", 0), ("touchMove", -30), ("touchMove", -80), ("touchEnd", None)):
        points = [] if moved is None else [{"x": x + moved, "y": y}]
        browser.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    browser.wait(lambda: "#t=200000" not in browser.run("return location.hash"))
    assert browser.length_ns() == pytest.approx(400_000, abs=2)


def test_hostile_names_stay_text_in_every_part_of_the_timeline(browser: Browser) -> None:
    browser.open(hostile_report(), fragment=f"#t={KERNEL_NS + 10_000},{KERNEL_NS + 50_000}&sel=1&iv=0,400000")
    browser.settled("&sel=1")
    browser.part("search").send_keys(HOSTILE[0])
    browser.wait(lambda: browser.part("match-count").text.removeprefix("0 found").endswith("found"))
    for part in ("markers", "interval-tables", "filter"):
        assert HOSTILE[0][:20] in browser.part(part).get_attribute("textContent"), part
    browser.hover(KERNEL_NS + 30_000, "Stream 7")
    assert browser.run("return document.querySelectorAll('img, [onerror], [onmouseover]').length") == 0


def test_hostile_fragments_are_no_places(browser: Browser) -> None:
    browser.open(cpu_report(), fragment="#t=<img src=x>,1e999&sel=99999999&iv=-5,NaN")
    browser.settled("#t=0,400000")
    assert not browser.part("details").is_displayed()
    assert not browser.part("interval-panel").is_displayed()


def test_the_verdict_is_painted_before_the_events_are_inflated(browser: Browser) -> None:
    browser.open(gpu_report())
    marks = "['first-contentful-paint', 'timeline-start']"
    painted, started_at = browser.run(f"return {marks}.map((name) => performance.getEntriesByName(name)[0].startTime)")
    assert painted < started_at


@pytest.mark.skipif(not corpus_rows(), reason="no corpus of recorded traces")
@pytest.mark.parametrize("place", range(4))
def test_recorded_traces_agree_with_their_tables_too(
    browser: Browser, corpus_report: Callable[[str], Report], place: int
) -> None:
    rows = sorted(corpus_rows(), key=lambda row: int(row["events"]))
    check_windows(browser, corpus_report(rows[place * (len(rows) - 1) // 3]["file"]), windows=examples(10))


TRACKS = """
const { timeline } = document.getElementById('timeline');
const track = (family) => timeline.store.tracks.findIndex((each) => each.family === family);
return timeline.painter.shown.filter(({ track: id }) => id === track(arguments[0])).map(({ top, bottom }) => [top, bottom]);
"""


def test_device_rows_stay_in_sight_above_the_rows_of_threads(browser: Browser) -> None:
    browser.open(sample("synthetic_overhead_launch"))
    browser.run(f"{TIMELINE} timeline.tracks.folded.clear(); timeline.tracks.setRowsHeight(220);")
    browser.wait(lambda: browser.run(f"{TIMELINE} return timeline.frame") is None)
    before = browser.run(TRACKS, "stream")
    browser.run(f"{TIMELINE} timeline.scroller.scrollTop = 120;")
    browser.wait(lambda: browser.run("return document.querySelectorAll('.tl-labels .stuck').length") > 0)
    browser.wait(lambda: browser.run(f"{TIMELINE} return timeline.frame") is None)
    assert browser.run(TRACKS, "stream") == before
    ceiling = browser.run(f"{TIMELINE} return timeline.tracks.ceiling")
    assert all(top >= ceiling for top, _ in browser.run(TRACKS, "operators"))
    label, stuck, rows, bottom = browser.run("""
    const rows = document.querySelector('[data-tl=rows]').getBoundingClientRect();
    const places = [[...document.querySelectorAll('.tl-labels .heading')].at(-1), document.querySelector('.tl-labels .stuck')];
    return [...places.map((label) => label.getBoundingClientRect().top), rows.top, rows.bottom];
    """)
    assert label >= rows + ceiling - 1
    assert rows + ceiling - 1 <= stuck < bottom, "it stays beside what is in sight of its track"


def test_the_timeline_fills_the_window_and_gives_it_back(browser: Browser) -> None:
    browser.open(gpu_report(40))
    page = browser.driver.find_element("tag name", "body")
    page.send_keys("v")
    box = "const { top, width, height } = document.getElementById('timeline').getBoundingClientRect(); return [top, width, height]"
    browser.wait(lambda: browser.run(box)[0] == 0)
    assert browser.run(box)[2] == 720
    assert browser.run("return document.querySelector('[data-tl=rows]').clientHeight") > 200
    page.send_keys("\ue00c")  # Escape
    browser.wait(lambda: browser.run(box)[2] != 720)
    grip = browser.part("grip")
    height = browser.run("return document.querySelector('[data-tl=rows]').clientHeight")
    grip.send_keys("\ue013")  # arrow up
    assert browser.run("return document.querySelector('[data-tl=rows]').clientHeight") < height


def test_idle_time_tells_its_story_to_the_nanosecond_and_no_card_lies_over_it(browser: Browser) -> None:
    report = sample("synthetic_overhead_synchronization")
    idle = report.tables["idle"].sort(pl.col("end_ns") - pl.col("start_ns")).row(-1, named=True)
    browser.open(report)
    browser.run(GO_TO, idle["start_ns"], idle["end_ns"])
    browser.wait(lambda: browser.part("story").is_displayed())
    story = browser.part("story").text
    assert "The CPU was in" in story
    assert "the waiting ended with" in story
    assert f"{idle['start_ns']:,} ns" in browser.part("details-facts").text
    floor = browser.run("return document.querySelector('[data-tl=details]').getBoundingClientRect().top")
    browser.run(
        "const { timeline } = document.getElementById('timeline');"
        "timeline.panels.drawTooltip = (pointer) => timeline.panels.placeTooltip(pointer, 'name', [['a', 'b'], ['c', 'd']]);"
        "timeline.panels.drawTooltip({ clientX: 400, clientY: arguments[0] - 4 });",
        floor,
    )
    tooltip = browser.run("return document.querySelector('[data-tl=tooltip]').getBoundingClientRect().bottom")
    assert tooltip <= floor
    browser.part("story").find_elements("css selector", "button")[-1].click()
    browser.wait(lambda: not browser.part("story").is_displayed())


def test_an_interval_tells_what_the_threads_did(browser: Browser) -> None:
    report = sample("synthetic_overhead_launch")
    browser.open(report)
    statistics = browser.run(STATISTICS, 0, 10**12)
    calls = report.tables["host_events"].filter(pl.col("kind").is_in(["runtime", "driver"]))
    sums: dict[str, int] = {}
    for row in (row for thread in statistics["threads"] for row in thread["names"] if row["family"] == "call"):
        sums[row["key"]] = sums.get(row["key"], 0) + row["ns"]
    assert sums == {n: ns for n, ns in calls.group_by("name").agg(pl.col("duration_ns").sum()).iter_rows() if ns}
    assert "own time" in browser.part("interval-tables").text


def test_rows_are_as_high_as_they_are_dragged(browser: Browser) -> None:
    browser.open(sample("synthetic_overhead_launch"))
    place = """
    const { timeline } = document.getElementById('timeline');
    const item = timeline.tracks.layout.items.find(({ track }) => timeline.store.tracks[track]?.family === 'stream');
    const { x, bottom, width } = document.querySelector(`.tl-grip[data-track="${item.track}"]`).getBoundingClientRect();
    return [x + width / 2, bottom - 2, item.row];
    """
    browser.run("document.getElementById('timeline').scrollIntoView()")
    x, y, height = browser.run(place)
    browser.mouse("mouseMoved", x, y)
    browser.mouse("mousePressed", x, y)
    browser.mouse("mouseMoved", x, y + 20)
    browser.mouse("mouseReleased", x, y + 20)
    assert browser.run(place)[2] == height + 20


def test_arrows_lie_over_headings(browser: Browser) -> None:
    """An arrow from a thread up to a stream crosses the thread's heading: no part of that lies over the rows' canvas."""
    browser.open(sample("synthetic_overhead_launch"))
    covering = browser.run("""
    const { timeline } = document.getElementById('timeline');
    const { left, right } = timeline.element('canvas').getBoundingClientRect();
    return timeline.tracks.layout.items.filter(({ heading }) => heading !== undefined).filter(({ top, height }) => {
      const y = timeline.element('canvas').getBoundingClientRect().top + top + height / 2;
      return document.elementsFromPoint((left + right) / 2, y).some((element) => element.closest('.tl-labels .heading'));
    }).length;
    """)
    assert covering == 0
