"""Test every verb on every hostile input and output event: one line or a result, and never "a bug in this program"."""

import html
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from broken_input import CASES, SOUND, Case
from click.testing import CliRunner, Result
from conftest import SAMPLES, sample_report
from msgspec.structs import replace
from program_laws import CONTROLS

import trace_analyzer as ta
from trace_analyzer.cli import VERBS, main
from trace_analyzer.replay.changes import Change
from trace_analyzer.results import field_names

VERBS_ON = {
    "report": ("report", "CASE", "--report", "out.html", "--tables", "tables"),
    "redacted": ("report", "CASE", "--redact", "--report", "out.html", "--format", "markdown"),
    "whatif": ("whatif", "CASE", "--plot", "plot.html", "--format", "json"),
    "compare": ("compare", "CASE", "t.json", "--html", "compared.html"),
    "compare after": ("compare", "t.json", "CASE", "--format", "json", "--redact"),
    "scaling": ("scaling", "CASE", "t.json", "--plot", "plot.html"),
    "export": ("export", "CASE", "--perfetto", "out.json"),
    "export before": ("export", "t.json", "--before", "CASE", "--perfetto", "out.json"),
    "baseline save": ("baseline", "save", "CASE", "out.json"),
    "baseline check": ("baseline", "check", "t.json", "CASE", "--format", "markdown"),
    "explain": ("explain", "CASE", "verdict", "--format", "json"),
    "agent": ("report", "CASE", "--no-report", "--format", "agent"),
    "ranks": ("ranks", "CASE", "--format", "json"),
    "loop": ("loop", "start", "loop", "CASE", "--format", "json"),
    "memory": ("memory", "CASE", "--html", "memory.html"),
    "memory before": ("memory", "t.json", "--before", "CASE"),
}
"""Each verb with a trace in each of its positions."""
ELSEWHERE = {"record", "calibrate", "completion", "doctor", "mcp", "skill"}
"""Verbs without a trace on the command line."""
STRIDE = int(os.environ.get("HOSTILE_STRIDE", "41"))
"""Each input is tested with one in so many verbs, and each verb with one in so many inputs;
tests/test_broken_input.py has all for the report."""


def test_every_verb_that_reads_a_trace_is_here() -> None:
    assert {words[0] for words in VERBS_ON.values()} == set(VERBS) - ELSEWHERE


def ran(folder: Path, words: tuple[str, ...], case: Case) -> Result:
    (folder / "t.json").write_bytes(SOUND)
    path = str(case.path(folder))
    return CliRunner().invoke(main, [path if word == "CASE" else word for word in words])


MET = [
    pytest.param(case, verb, id=f"{case.what}-{verb}")
    for number, case in enumerate(case for case in CASES if not case.options)
    for place, verb in enumerate(VERBS_ON)
    if (number + place) % STRIDE == 0
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "verb"), MET)
def test_no_input_is_a_bug(case: Case, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = ran(tmp_path, VERBS_ON[verb], case)
    assert "a bug in this program" not in result.stderr
    assert result.exit_code in (0, 1, 2, 3), result.output
    is_read = case.what == "a directory" or (case.what, verb) == ("a snapshot of memory", "memory")
    if case.error and not is_read:  # a directory is one side of a comparison
        assert result.exit_code == 2
    if result.exit_code == 2 and not result.stdout.startswith(("Not scaled: ", "Not compared: ")):
        assert result.stderr.startswith("analyze: ")
        assert result.stderr.count("\n") == 1, result.stderr
    for text in (result.stdout, result.stderr):
        assert not CONTROLS.search(text)
    if "json" in VERBS_ON[verb] and result.stdout:
        json.loads(result.stdout)
    written = [path for path in tmp_path.rglob("*") if path.name.startswith(".analyze-")]
    assert written == []


OUTPUTS = {
    "report": ("report", "t.json", "--report", "OUT"),
    "tables": ("report", "t.json", "--no-report", "--tables", "OUT"),
    "output": ("report", "t.json", "--no-report", "-o", "OUT"),
    "whatif": ("whatif", "t.json", "-o", "OUT"),
    "whatif plot": ("whatif", "t.json", "--plot", "OUT"),
    "compare": ("compare", "t.json", "t.json", "-o", "OUT"),
    "compare page": ("compare", "t.json", "t.json", "--html", "OUT"),
    "scaling": ("scaling", "t.json", "t.json", "-o", "OUT"),
    "scaling plot": ("scaling", "t.json", "t.json", "--plot", "OUT"),
    "export": ("export", "t.json", "--perfetto", "OUT"),
    "baseline save": ("baseline", "save", "t.json", "OUT"),
    "baseline check": ("baseline", "check", "t.json", "t.json", "-o", "OUT"),
}
PLACES = ("loop", "loop/x", "nowhere/x", "x" * 300, "t.json", "t.json/x", "folder", "/dev/full", "pipe")


PLACED = [
    pytest.param(what, place, id=f"{what}-{place[:20]}")
    for number, what in enumerate(OUTPUTS)
    for shift, place in enumerate(PLACES)
    if (number + shift) % 3 == 0
]


@pytest.mark.slow
@pytest.mark.parametrize(("what", "place"), PLACED)
def test_no_place_of_an_output_is_a_bug(what: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_bytes(SOUND)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    result = CliRunner().invoke(main, [place if word == "OUT" else word for word in OUTPUTS[what]])
    assert "a bug in this program" not in result.stderr
    if result.exit_code == 0:  # tables go into a folder that is there, or is made
        assert (what, place) in (("tables", "folder"), ("tables", "nowhere/x"))
        return
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1, result.stderr
    assert (tmp_path / "t.json").read_bytes() == SOUND
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


COMPUTE = SAMPLES / "synthetic_compute.json.gz"
HOSTILE = "@octocat [x](http://evil.example) </pre></script><script>alert(1)</script> `|` \x1b[31m\u202e"
NAMES = {
    "path", "label", "host", "operator", "name", "target", "message", "detail", "reason", "headline", "sentence", "why", "title", "key", "text",
}  # fmt: skip
"""Fields with texts of the trace or of the user."""


def report(name: str) -> ta.Report:
    return sample_report(f"synthetic_{name}.json.gz")


def hostile(value: Any) -> Any:
    """Return the value with the hostile text in each of these fields."""
    if isinstance(value, Change):  # its name is a key, its target is the user's
        return replace(value, options={**value.options, "target": HOSTILE})
    if names := field_names(value):
        old = {name: getattr(value, name) for name in names}
        new = {name: HOSTILE if name in NAMES and isinstance(v, str) else hostile(v) for name, v in old.items()}
        return type(value)(**new)
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


@pytest.mark.slow
@pytest.mark.parametrize("verb", RESULTS)
def test_a_hostile_name_stays_text(verb: str, tmp_path: Path) -> None:
    result = hostile(RESULTS[verb]())
    markdown, notebook = result.to_markdown(), result._repr_html_()
    page = result.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    frame = html.unescape(notebook.partition('srcdoc="')[2]) or "octocat"
    assert [raw for raw in ("@octocat", "[x](", "http://evil", "<script", "</pre>") if raw in markdown] == []
    assert [shown for shown in (markdown, page, notebook, frame) if "<script>alert(1)" in shown] == []
    for shown in (result.summary(), markdown, page, notebook, frame):
        assert "octocat" in shown
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
