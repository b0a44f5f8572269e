"""Test that a hostile name stays text in every result and format, wherever it stands in the result."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import trace_analyzer as ta
from trace_analyzer.replay.changes import Change

SAMPLES = Path(__file__).parents[1] / "sample_traces"
COMPUTE = SAMPLES / "synthetic_compute.json.gz"
HOSTILE = "@octocat [x](http://evil.example) </pre></script><script>alert(1)</script> `|` \x1b[31m\u202e"
NAMES = {
    "path", "label", "host", "operator", "name", "target", "message", "detail", "reason", "headline", "sentence", "why", "title", "key", "text",
}  # fmt: skip
"""Fields with texts of the trace or of the user."""


@cache
def report(name: str) -> ta.Report:
    return ta.analyze(SAMPLES / f"synthetic_{name}.json.gz")


def hostile(value: Any) -> Any:
    """Return the value with the hostile text in each of these fields."""
    if isinstance(value, Change):  # its name is a key, its target is the user's
        return dataclasses.replace(value, options={**value.options, "target": HOSTILE})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        old = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        new = {name: HOSTILE if name in NAMES and isinstance(v, str) else hostile(v) for name, v in old.items()}
        return dataclasses.replace(value, **new)
    if isinstance(value, Mapping):
        return {key: HOSTILE if key in NAMES and isinstance(item, str) else item for key, item in value.items()}
    return tuple(map(hostile, value)) if isinstance(value, tuple) else value


RESULTS: dict[str, Callable[[], Any]] = {
    "whatif": lambda: ta.whatif(report("overhead_data-loading"), speedup={"matmul": 2.0}),
    "compare": lambda: ta.compare(report("overhead_data-loading"), report("compute")),
    "scaling": lambda: ta.scaling(report("overhead_data-loading"), report("compute")),
    "ranks": lambda: ta.analyze_ranks([str(COMPUTE)]),
    "explain": lambda: report("compute").explain("verdict"),
}


@pytest.mark.parametrize("verb", RESULTS)
def test_a_hostile_name_stays_text(verb: str, tmp_path: Path) -> None:
    result = hostile(RESULTS[verb]())
    shown = {"text": result.summary()}
    if hasattr(result, "to_markdown"):
        shown["markdown"] = result.to_markdown()
        for raw in ("@octocat", "[x](", "http://evil", "<script", "</pre>"):
            assert raw not in shown["markdown"]
    if hasattr(result, "to_html"):
        shown["page"] = result.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
        assert "<script>alert(1)" not in shown["page"]
    for text in shown.values():
        assert "octocat" in text
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
