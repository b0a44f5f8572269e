"""Check that the sample traces get the verdicts that their README states, and that one of them gets the JSON that is checked in.

``UPDATE_GOLDEN=1 python -m pytest tests/test_samples.py`` rewrites the JSON, to review its diff.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import SAMPLES, sample_report
from lazy_report import changed
from msgspec.structs import replace

from trace_analyzer.report import Report

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text())


@cache
def report(name: str) -> Report:
    """Return the report on a sample, the same wherever and by whichever version it is made."""
    made = sample_report(name)
    return changed(made, tool_version="0", trace=replace(made.trace, path=name))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_verdict(name: str) -> None:
    verdict = report(name).verdict
    assert {"status": verdict.status, "regime": verdict.regime, "cause": verdict.cause} == EXPECTED[name]


def rows(value: Any) -> str:
    """Return a document's JSON with a line for each item of a list, so that a row that changes is a line of a diff."""
    text = json.dumps(value)
    if isinstance(value, list) and len(text) > 120:
        return "[\n" + ",\n".join(map(rows, value)) + "\n]"
    if isinstance(value, dict) and len(text) > 1000:
        return "{\n" + ",\n".join(f"{json.dumps(key)}: {rows(item)}" for key, item in value.items()) + "\n}"
    return text


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.json")), ids=lambda golden: golden.stem)
def test_golden_json(golden: Path) -> None:
    text = rows(json.loads(report(golden.name + ".gz").to_json())) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.sampled
@pytest.mark.parametrize("name", EXPECTED)
def test_parts_add_up(name: str) -> None:
    for device in report(name).devices:
        assert device.busy_ns + device.idle_ns == device.window_ns
        assert sum(device.gaps.by_cause_ns.values()) == device.idle_ns
        assert sum(device.partition_ns.values()) == device.window_ns


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize(("width", "most"), [(80, 38), (100, 30), (140, 30)])
def test_the_answer_is_whole_on_one_screen(name: str, width: int, most: int) -> None:
    lines = report(name).summary(width).splitlines()
    assert len(lines) <= most
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if "…" in line or "..." in line.replace("(...,", "")]


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("width", [80, 100, 140])
def test_only_names_of_kernels_are_cut(name: str, width: int) -> None:
    blocks = report(name).summary(width, verbose=True).split("\n\n")
    assert any(block.startswith("Top kernels and copies") for block in blocks) or "cpu" in name
    cut = [line for block in blocks for line in block.splitlines() if "…" in line]
    assert cut == [
        line for block in blocks if block.startswith("Top kernels") for line in block.splitlines() if "…" in line
    ]
