"""Test facts on a run in a trace's header: written by a recording, read back, and never trusted."""

import gzip
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from kineto import annotation, call, kernel, trace_bytes
from lazy_report import report_on

from trace_analyzer import findings
from trace_analyzer.capture.facts import export
from trace_analyzer.pipeline import analyze
from trace_analyzer.run_metadata import HEADER_KEY, RunMetadata, settings_of

EVENTS = [call("cudaLaunchKernel", 10, 3, correlation=1), kernel("k", 15, 2, correlation=1)]


class Finished:
    """Stand for a profile whose export is this text."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_bytes(self.content)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_facts_survive_the_file(tmp_path: Path, name: str) -> None:
    metadata = RunMetadata(
        measured_step_ms=1.25, level="light", tf32_matmul=False, cudnn_version=91002, sm_clock_mhz=1980.0
    )
    path = export(Finished(trace_bytes(EVENTS)), tmp_path / name, metadata)
    report = report_on(path)
    assert report.trace.settings == metadata
    assert report.devices[0].linked_count == 1
    assert json.loads(report.to_json())["trace"]["settings"]["measured_step_ms"] == 1.25
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("content", [b"[]", b"{}", b"", b' { "traceEvents": []}', b"[1, 2]"])
def test_what_is_no_object_with_entries_stays_as_it_is_or_stays_json(tmp_path: Path, content: bytes) -> None:
    written = export(Finished(content), tmp_path / "t.json", RunMetadata(level="full")).read_bytes()
    if b"traceEvents" in content:
        assert json.loads(written) == {**json.loads(content), HEADER_KEY: {"level": "full"}}
    else:
        assert written == content


@pytest.mark.slow
def test_the_measured_step_reaches_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float | None] = []
    real = findings._recordings

    def recordings(sources: findings.WindowSources, *windows: Any) -> Any:
        asked.append(sources.measured_step_ms)
        return real(sources, *windows)

    monkeypatch.setattr(findings, "_recordings", recordings)
    metadata = {HEADER_KEY: {"measured_step_ms": 2.5}}
    steps = [annotation(f"ProfilerStep#{n}", 100 * n, 90) for n in range(3)]
    calls = [call("cudaLaunchKernel", 100 * n + 10, 3, correlation=n) for n in range(1, 3)]
    kernels = [kernel("k", 100 * n + 15, 20, correlation=n) for n in range(1, 3)]
    content = trace_bytes([*steps, *calls, *kernels], **metadata)
    analyze(content)
    analyze(content, measured_step_ms=4.0)
    analyze(trace_bytes(EVENTS, **metadata))  # unusable without steps
    assert asked == [2.5, 2.5, 4.0, 4.0, None, None], "for steps, and for the window"


def test_a_failed_export_leaves_nothing_and_the_earlier_file(tmp_path: Path) -> None:
    class Failing:
        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_bytes(b"half")
            raise OSError("disk full")

    kept = tmp_path / "t.json.gz"
    kept.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(OSError, match="disk full"):
        export(Failing(), kept)
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.json.gz"]
    assert gzip.decompress(kept.read_bytes()) == b"{}"


def test_other_traces_have_none() -> None:
    assert report_on(trace_bytes(EVENTS)).trace.settings is None


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("measured_step_ms", "12.5", 12.5), ("measured_step_ms", -1, None), ("measured_step_ms", "nan", None),
        ("measured_step_ms", 1e300, None), ("measured_step_ms", [3], None),
        ("cpu_threads", True, None), ("cpu_threads", "9" * 500, None), ("tf32_matmul", "true", None), ("tf32_matmul", False, False),
        ("torch_version", "2.13\x1b[31m\nx", "2.13�[31m�x"), ("torch_version", "x" * 500, "x" * 120),
        ("torch_version", {"a": 1}, None), ("torch_version", "", None),
    ],
)  # fmt: skip
def test_a_fact_has_its_type_and_its_limits(key: str, value: Any, kept: Any) -> None:
    assert settings_of({key: value}) == RunMetadata(**{key: kept})


def test_other_entries_are_passed_over() -> None:
    secret = {"level": "light", "token": "hunter2", "__class__": "x", "host": "box"}
    report = report_on(trace_bytes(EVENTS, **{HEADER_KEY: secret, "password": "hunter2"}))
    assert report.trace.settings == RunMetadata(level="light")
    assert "hunter2" not in report.to_json() + report.summary(verbose=True) + report.to_markdown()


def test_hostile_facts_stay_text() -> None:
    report = report_on(trace_bytes(EVENTS, **{HEADER_KEY: {"level": "</script><script>alert(1)</script>\x1b[2J"}}))
    assert "<script>alert(1)" not in report._repr_html_()
    assert "\x1b" not in report.summary(verbose=True) + report.to_json()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([entry.name for entry in fields(RunMetadata)]), JSON))
def test_anything_gives_facts_that_are_strict_json(value: dict[str, Any]) -> None:
    metadata = settings_of(value)
    assert metadata is not None
    json.dumps(asdict(metadata), allow_nan=False)
    assert settings_of(asdict(metadata)) == metadata
