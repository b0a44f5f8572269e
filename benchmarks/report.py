"""Measure size and speed of the HTML report: building it, loading it in headless Chromium, and moving in its timeline.

The report is that of a given trace (else a sample), repeated up to the requested number of timeline events. Every copy
is stretched by a different factor, so that copies do not compress into one. Needs chromium, chromedriver and selenium.

    python benchmarks/report.py [TRACE] [--events 100_000 1_000_000 5_000_000]

Columns: size of the file; wall time and peak memory of the process that builds it from the analysed report; first paint
of the page (the verdict), start of inflating the events, and end of drawing the timeline, all since the start of
navigation; time between frames of a zoom and pan in which every frame takes new boxes from the events. The two columns
of CPU time are those of the page's main thread, which do not depend on other load.
"""

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
from msgspec.structs import replace

from trace_analyzer.pipeline import analyze
from trace_analyzer.render.html.view import page
from trace_analyzer.report import Report

SAMPLE = Path(__file__).parents[1] / "sample_traces" / "synthetic_overhead_launch.json.gz"

TIMES = frozenset({"start_ns", "end_ns", "time_ns", "host_start_ns", "host_end_ns", "first_start_ns"})
IDS = {
    "event_id": "host_events", "launch_id": "host_events", "operator_id": "host_events", "forward_id": "host_events",
    "activity_id": "activities", "gap_id": "gaps",
}  # fmt: skip
REPEATED = (
    "activities", "launches", "gaps", "idle", "partition", "queue", "backward_links", "host_events",
    "operator_inputs", "sync_events", "device_annotations", "memory_events",
)  # fmt: skip
"""Tables of which every copy has separate rows."""

FRAMES = 240
MOVE = """
const [frames, done] = arguments;
const model = (name) => Bokeh.documents[0].get_model_by_name(name);
const [view, boxes] = [model('view'), model('boxes')];
let slices = 0;
boxes.properties.data.change.connect(() => { slices += 1; });
const full = { start: view.start, end: view.end };
const length = full.end - full.start;
const times = [];
let last = performance.now();
const step = (frame) => {
  const now = performance.now();
  if (frame > 2) times.push(now - last);
  last = now;
  if (frame >= frames) return done({ times, slices });
  // in to a thousandth of the trace and out again, four times, the middle moving through the whole trace
  const depth = 0.5 - 0.5 * Math.cos((frame / frames) * 4 * 2 * Math.PI);
  const shown = length * 1000 ** -depth * (1 + 1e-3 * (frame % 2));
  const middle = full.start + shown / 2 + (length - shown) * (frame / frames);
  view.setv({ start: middle - shown / 2, end: middle + shown / 2 });
  requestAnimationFrame(() => step(frame + 1));
};
requestAnimationFrame(() => step(0));
"""
LOAD = """
const mark = (name) => performance.getEntriesByName(name)[0]?.startTime;
return [mark('first-contentful-paint'), mark('timeline-start'), mark('timeline-ready')];
"""


def repeated(report: Report, copies: int) -> Report:
    """Return the report of the same trace ``copies`` times in a row, each time a little faster or slower."""
    choice = random.Random(0)
    factors = [choice.uniform(0.8, 1.2) for _ in range(copies)]
    span = report.trace.duration_ns + 1_000_000
    starts = [0.0]
    for factor in factors:
        starts.append(starts[-1] + span * factor)
    clock = pl.DataFrame(
        {"copy": range(copies), "factor": factors, "offset": starts[:-1]}, schema_overrides={"copy": pl.Int64}
    )
    heights = {name: table.height for name, table in report.tables.items()}
    tables = {
        name: _repeated(table, clock, heights) if name in REPEATED else table for name, table in report.tables.items()
    }
    trace = replace(report.trace, duration_ns=int(starts[-1]))
    return replace(report, tables=tables, trace=trace)


def _repeated(table: pl.DataFrame, clock: pl.DataFrame, heights: dict[str, int]) -> pl.DataFrame:
    def at(time_ns: pl.Expr) -> pl.Expr:
        return (time_ns * pl.col("factor") + pl.col("offset")).floor().cast(pl.Int64)

    changed = [at(pl.col(name)).alias(name) for name in table.columns if name in TIMES]
    if "duration_ns" in table.columns and "start_ns" in table.columns:
        start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("duration_ns")
        changed.append((at(end) - at(start)).alias("duration_ns"))
    changed += [
        (pl.col(name) + pl.col("copy") * heights[owner]).cast(table.schema[name])
        for name, owner in IDS.items()
        if name in table.columns
    ]
    return clock.join(table, how="cross").with_columns(changed).select(table.columns)


def build(trace: Path, events: int, target: Path) -> dict[str, float]:
    """Write the report with so many events; return the time for it, and the peak memory of this process."""
    report = analyze(str(trace))
    one = sum(
        report.tables[name].height
        for name in ("activities", "idle", "host_events", "sync_events", "device_annotations")
    )
    copies = max(1, round(events / one))
    report = repeated(report, copies)
    page(analyze(str(SAMPLE)))  # one-time imports are not measured
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    target.write_text(page(report), encoding="utf-8")
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"events": one * copies, "wall_s": wall, "peak_mb": after / 1024, "before_mb": before / 1024}


def browser() -> Any:
    """Return a headless Chromium without a network."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for switch in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1920,1080",
                   "--host-resolver-rules=MAP * ~NOTFOUND"):  # fmt: skip
        options.add_argument(switch)
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    driver.set_script_timeout(300)
    return driver


def cpu_ms(driver: Any) -> float:
    """Return the CPU time of the tasks of the page's main thread so far."""
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return 1000 * next(float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration")


def measured(path: Path) -> dict[str, float]:
    """Load the page and move in it; return milliseconds."""
    driver = browser()
    try:
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        driver.get(path.as_uri())
        deadline = time.monotonic() + 120
        while not driver.execute_script("return document.documentElement.dataset.ready"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path}: the timeline was not drawn within two minutes")
            time.sleep(0.05)
        paint, start, ready = driver.execute_script(LOAD)
        load_cpu = cpu_ms(driver)
        time.sleep(1)
        driver.execute_script("document.getElementById('timeline').scrollIntoView()")
        still = cpu_ms(driver)
        moved = driver.execute_async_script(MOVE, FRAMES)
        move_cpu = (cpu_ms(driver) - still) / FRAMES
    finally:
        driver.quit()
    times = sorted(moved["times"])
    assert moved["slices"] >= 0.9 * FRAMES, f"only {moved['slices']} of {FRAMES} frames took new boxes"
    return {
        "paint": paint, "start": start, "ready": ready, "load_cpu": load_cpu, "move_cpu": move_cpu,
        "p50": times[len(times) // 2], "p95": times[int(len(times) * 0.95)],
    }  # fmt: skip


def main() -> None:
    """Build each size in its own process, measure it, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, nargs="?", default=SAMPLE)
    parser.add_argument("--events", type=int, nargs="+", default=[100_000, 1_000_000, 5_000_000])
    parser.add_argument("--keep", type=Path, help="keep the reports in this directory")
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        print(json.dumps(build(options.trace, options.events[0], options.build)))
        return
    print(f"{os.cpu_count()} cores\n")
    print(
        "| events | MB | build s | peak memory MB | first paint ms | inflating from ms | drawn ms | load CPU ms | frame p50 ms | frame p95 ms | CPU per frame ms |"
    )
    print("|" + "---|" * 11)
    with tempfile.TemporaryDirectory() as folder:
        for events in options.events:
            path = Path(options.keep or folder, f"report-{events}.html").resolve()
            command = [sys.executable, __file__, str(options.trace), "--events", str(events), "--build", str(path)]
            built = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            shown = measured(path)
            print(
                f"| {built['events']:,} | {path.stat().st_size / 1e6:.1f} | {built['wall_s']:.2f} | {built['peak_mb']:.0f}"
                f" | {shown['paint']:.0f} | {shown['start']:.0f} | {shown['ready']:.0f} | {shown['load_cpu']:.0f}"
                f" | {shown['p50']:.0f} | {shown['p95']:.0f} | {shown['move_cpu']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
