"""Test one contract for every renderer: pure, deterministic, and able to render every report."""

import time
from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace
from report_factory import empty_report, gpu_report
from text_reports import STATUSES, all_reports, report_saying

from trace_analyzer.catalog.event_names import in_function
from trace_analyzer.errors import Note
from trace_analyzer.redact import Redaction, without_directories
from trace_analyzer.render.documents import to_markdown
from trace_analyzer.render.html import html
from trace_analyzer.render.names import kernel_label, short_name
from trace_analyzer.render.terminal import summary
from trace_analyzer.report import Confidence, Report, Status

TEXT: dict[str, Callable[[Report], str]] = {
    "text": summary,
    "colour": lambda report: summary(report, 80, colour=True, verbose=True),
    "json": Report.to_json,
    "markdown": to_markdown,
}

RENDERERS = {**TEXT, "html": html}

each_renderer = pytest.mark.parametrize("render", RENDERERS.values(), ids=RENDERERS)
each_report = pytest.mark.parametrize("name", all_reports())


@pytest.mark.sampled
@each_renderer
@each_report
def test_it_renders_every_report_the_same_way_twice(render: Callable[[Report], str], name: str) -> None:
    text = render(all_reports()[name])
    assert text == render(all_reports()[name])
    assert text.encode("utf-8")


@pytest.mark.sampled
@each_renderer
@each_report
def test_it_renders_every_redacted_report(render: Callable[[Report], str], name: str) -> None:
    text = render(Redaction(all_reports()[name].trace.path).report(all_reports()[name]))
    assert "/data/runs" not in text
    assert "train_step.pt.trace.json.gz" in text


@pytest.mark.sampled
@each_renderer
@each_report
def test_it_tells_the_verdict(render: Callable[[Report], str], name: str) -> None:
    words = all_reports()[name].verdict.headline.split()
    assert " ".join(words[-4:]) in render(all_reports()[name])


@pytest.mark.sampled
@pytest.mark.parametrize("render", [partial(summary, verbose=True), to_markdown, html])
@pytest.mark.parametrize(
    ("level", "sentence"),
    [("high", "High confidence. One step was recorded; a"), ("low", "Low confidence: one step was recorded; a")],
)
def test_what_leaves_the_confidence_high_is_no_reason_for_it(
    render: Callable[[Report], str], level: Confidence, sentence: str
) -> None:
    report = gpu_report()
    sure = replace(report.verdict, confidence=level, confidence_why=("one step was recorded", "a"))
    assert sentence in render(replace(report, verdict=sure))


@pytest.mark.sampled
@pytest.mark.parametrize("render", [summary, to_markdown, html])
@pytest.mark.parametrize("status", STATUSES)
def test_a_broken_file_does_not_blame_the_recording(render: Callable[[Report], str], status: Status) -> None:
    report = empty_report(status)
    broken = replace(report, notes=(Note("truncated", "warning", "the file is truncated at byte 9"),))
    advised, instead = (unwrapped(render(each)).split("What to record instead")[1] for each in (report, broken))
    assert "Copy the file again" in instead
    assert "Record " not in instead.split("How far")[0]
    assert "Record " in advised
    assert "Copy the file again" not in advised


def unwrapped(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("render", TEXT.values(), ids=TEXT)
@pytest.mark.parametrize("character", ["\x07", "\x1b]0;x", "\x9b", "\u202e", "\u2028", "\r"])
def test_nothing_from_a_trace_acts_on_a_terminal(render: Callable[[Report], str], character: str) -> None:
    assert character not in render(report_saying(f"a{character}b"))


_LONG = 50_000
_NASTY = ("_", "a.", "a(", "::", "(1): ", "x.py(1): ", "-", "a.b/")


@pytest.mark.parametrize(("before", "after"), [("", ""), ("x/", "/"), ("void ", "<"), ("f(", ")" * (_LONG // 2))])
@pytest.mark.parametrize("piece", _NASTY)
@pytest.mark.parametrize("read", [short_name, lambda name: kernel_label(name, 80), in_function, without_directories])
def test_long_names_are_read_in_linear_time(read: Callable[[str], str], piece: str, before: str, after: str) -> None:
    name = before + piece * (_LONG // len(piece)) + after
    started = time.process_time()
    read(name)
    assert time.process_time() - started < 3, "minutes, when each place in the name is tried anew"
