"""Small files with many names: the size of all derived data is bounded."""

from typing import Any

import pytest
from kineto import A100, analysed, annotation, launched, notes, trace_bytes

from trace_analyzer.analyses import steps
from trace_analyzer.pipeline import analyze
from trace_analyzer.render.html import timeline


@pytest.mark.slow
def test_steps_in_which_a_device_did_nothing_are_left_out_where_there_are_very_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marks = [annotation(f"ProfilerStep#{n}", 10 * n, 9.9) for n in range(40)]
    work: list[Any] = [launched("k", 10 * d + 1, 10 * d + 3, 4, d + 1, device=d, takes=1) for d in range(12)]
    few = analysed(marks, work)
    assert len(few.steps) > 40
    assert "many-steps" not in notes(few)
    monkeypatch.setattr(steps, "MAX_STEP_ROWS", 100)
    monkeypatch.setattr("trace_analyzer.report_notes.MAX_STEP_ROWS", 100)
    report = analysed(marks, work)
    assert len(report.steps) == report.tables["steps"].height == 12
    assert notes(report)["many-steps"] == 12 * 40 - 12


@pytest.mark.slow
def test_a_file_of_many_devices_and_steps_has_rows_in_proportion() -> None:
    marks = [annotation(f"ProfilerStep#{n}", 10 * n, 9.9) for n in range(1_000)]
    work = [launched("k", 10 * d + 1, 10 * d + 3, 4, d + 1, device=d, takes=1) for d in range(256)]
    content = trace_bytes([marks, work])
    assert len(analyze(content).to_json()) < 12 * len(content)


@pytest.mark.parametrize("place", ["tid", "stream"])
def test_the_timeline_shows_the_busiest_of_very_many_rows(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MAX_TRACKS", 10)
    pairs = [launched("k", 20 * n, 20 * n + 8, 1 + n % 7, n + 1) for n in range(60)]
    for n, (call, kernel) in enumerate(pairs):
        if place == "tid":
            call["tid"] = 1_000 + n
        else:
            kernel["tid"] = kernel["args"]["stream"] = n
    columns = timeline.timeline_columns(analysed(pairs))
    assert len(columns.tracks) == 10
    assert "rows of streams and threads" in columns.left_out[-1]
    timeline.payload(columns)


@pytest.mark.slow
def test_a_device_s_name_has_the_length_that_drivers_have_room_for() -> None:
    report = analysed(launched("k", 1, 5, 3, 1), devices=[A100 | {"name": "x" * 1_000_000}])
    assert report.trace.devices[0].name == "x" * 255 + "\u2026"
    assert len(report.to_json()) < 50_000
