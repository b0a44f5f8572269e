"""Test that a trace told in another way gets the same answer, and that a poorer one gets no contrary answer."""

import gzip
import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import CORPUS, SAMPLES
from lazy_report import report_on

from trace_analyzer.report import Report
from trace_analyzer.thresholds import STEP_REPEATS

pytestmark = [pytest.mark.slow, pytest.mark.sampled]

Events = list[dict[str, Any]]
TRACES = [
    *(SAMPLES / f"synthetic_{name}.json.gz" for name in ("overhead_data-loading", "memory-bandwidth", "communication_collectives")),
    *(CORPUS / f"{name}.json.gz" for name in ("a100_alexnet_cold_start", "h100_bert_small_fillmask", "mi300_vllm_decode_graph")),
]  # fmt: skip


def elsewhere(events: Events) -> Events:
    """Tell it a day later, backwards, in another process."""
    for event in events:
        if "ts" in event:
            event["ts"] += 86_400_000_000
        if isinstance(event.get("pid"), int) and event["pid"] >= 64:  # smaller ones are devices
            event["pid"] += 70_000
    return [e for e in events if e["ph"] == "M"] + [e for e in events[::-1] if e["ph"] != "M"]


def own_marks(events: Events) -> Events:
    """Tell steps by names of the program's own, which show that they are steps where they repeat."""
    mark = re.compile(r"^ProfilerStep#(\d+)$")
    if len({event["name"] for event in events if mark.match(event["name"])}) >= STEP_REPEATS:
        for event in events:
            event["name"] = mark.sub(r"train_iter \1", event["name"])
    return events


def with_more(events: Events) -> Events:
    """Add a process that does nothing, metadata that says all again, and categories that nobody knows."""
    at = next(e["ts"] for e in events if e.get("cat") == "kernel")
    inside = {"ts": at, "dur": 3, "pid": 99_999, "tid": 1, "args": {}}
    again = [event for event in events if event["ph"] == "M"]
    idle = {"ph": "X", "cat": "user_annotation", "name": "helper"} | inside
    return [*events, *again, idle, {"ph": "X", "cat": "something_new", "name": "x"} | inside]


@cache
def document(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def analysed(path: Path, change: Callable[[Events], Events]) -> Report:
    """Analyse the changed trace; times stay exact."""
    content = json.loads(document(path), parse_float=Decimal)
    content["traceEvents"] = change(content["traceEvents"])
    text = json.dumps(content, default=lambda digits: f"@{digits}@")
    return report_on(text.replace('"@', "").replace('@"', "").encode())


as_it_is = cache(report_on)


def lacking(category: str, *keys: str) -> Callable[[Events], Events]:
    """Leave out events of a category, and arguments."""

    def change(events: Events) -> Events:
        kept = [event for event in events if event.get("cat") != category]
        for event in kept:
            event["args"] = {key: value for key, value in (event.get("args") or {}).items() if key not in keys}
        return kept

    return change


def answer(report: Report) -> tuple[Any, ...]:
    """Return the answer without what names the marks of steps."""
    verdict = report.verdict
    judged = (verdict.status, verdict.headline, verdict.confidence, verdict.confidence_ratio, verdict.window)
    return (*judged, verdict.parts_ns, verdict.levers, verdict.host_levers, report.advice)


present = pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.skipif(not path.exists(), reason="no corpus"), id=path.name.split(".")[0]) for path in TRACES],
)  # fmt: skip


@present
@pytest.mark.parametrize("change", [elsewhere, own_marks, with_more])
def test_who_tells_it_in_another_way_gets_the_same_answer(path: Path, change: Callable[[Events], Events]) -> None:
    report, other = as_it_is(path), analysed(path, change)
    assert answer(other) == answer(report)


@present
@pytest.mark.parametrize(
    "change",
    [lacking("python_function"), lacking("", "Input Dims", "Input type", "Concrete Inputs"), lacking("ac2g")],
    ids=["stacks", "shapes", "arrows"],
)
def test_who_tells_less_gets_no_contrary_answer(path: Path, change: Callable[[Events], Events]) -> None:
    report, other = as_it_is(path), analysed(path, change)
    assert other.verdict.regime in (report.verdict.regime, None)
    assert (other.verdict.confidence_ratio or 0) <= (report.verdict.confidence_ratio or 0)
    if not other.trace.recorded.stack:
        assert not re.search(r"\.py[:(]\d", str(other) + other.to_agent_text())
