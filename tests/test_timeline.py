"""Test the timeline's data without a browser."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from conftest import sample_report
from msgspec.structs import replace
from report_factory import gpu_report

from trace_analyzer import cli, ingest, pipeline, vocabulary
from trace_analyzer.render import html
from trace_analyzer.render.html.timeline import EVERYTHING, LADDER, kept, payload, timeline_columns
from trace_analyzer.render.html.tracks import UNCAUSED
from trace_analyzer.replay.weights import LABELS
from trace_analyzer.report import Report


def uneven_report(kernels: int) -> Report:
    """Return a report with host events of random lengths: their columns cannot be packed into next to nothing."""
    report = gpu_report(kernels)
    host = report.tables["host_events"]
    lengths = np.random.default_rng(0).integers(1, 900, host.height)
    shorter = host.with_columns(duration_ns=pl.col("duration_ns") - pl.Series(lengths))
    return replace(report, tables={**report.tables, "host_events": shorter})


LARGE = uneven_report(3_000)


# ---- leaving out -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_rung_leaves_out_no_less_than_the_one_before() -> None:
    sizes = [len(payload(timeline_columns(LARGE, step))) for step in LADDER]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0] / 2


def test_python_goes_first_and_launches_never() -> None:
    for step in LADDER:
        events, _ = kept(LARGE, step)
        launches = events.filter(pl.col("kind") == "runtime").height
        assert launches == 3_000
        if step.host_ratio == 1:
            lost = LARGE.tables["host_events"].join(events, on="event_id", how="anti")
            assert set(lost.get_column("kind")) <= {"python"}


def test_what_is_left_out_is_counted() -> None:
    events, stated = kept(LARGE, LADDER[-1])
    missing = LARGE.tables["host_events"].height - events.height
    counted = [int(words.split(" ")[0].replace(",", "")) for words in stated if words[0].isdigit()]
    assert sum(counted) == missing
    assert stated[-1].startswith("shapes")
    assert kept(LARGE, EVERYTHING)[1] == ()


def test_all_activities_and_idle_time_stay() -> None:
    columns = timeline_columns(LARGE, LADDER[-1])
    assert columns.activity_count == LARGE.tables["activities"].height
    idle = columns.events.filter(pl.col("kind").cast(pl.String).str.starts_with("idle-"))
    assert idle.height == LARGE.tables["idle"].height


@pytest.mark.slow
def test_a_page_is_as_small_as_asked_and_says_what_it_left_out(tmp_path: Path) -> None:
    whole = LARGE.to_html(tmp_path / "whole.html").stat().st_size
    limit = (whole - 8_000) / 1e6
    small = LARGE.to_html(tmp_path / "small.html", max_mb=limit)
    assert small.stat().st_size <= limit * 1e6
    assert "Left out to keep this file small: " in small.read_text()
    assert "Python frames" in small.read_text()
    assert "Left out" not in (tmp_path / "whole.html").read_text()


@pytest.mark.slow
def test_a_page_that_fits_is_left_as_it_is() -> None:
    assert html.html(gpu_report(), max_mb=100) == html.html(gpu_report())


@pytest.mark.slow
def test_the_command_keeps_a_report_small_or_says_that_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "load", lambda *_, **__: None)
    monkeypatch.setattr(pipeline, "report_of", lambda *_, **__: LARGE)
    path = tmp_path / "small.html"
    limit = (len(html.html(LARGE).encode()) - 8_000) / 1e6
    reported = CliRunner().invoke(cli.main, ["t.json", "--report", str(path), "--max-report-mb", f"{limit:.4f}"])
    assert path.stat().st_size <= limit * 1e6
    assert "--max-report-mb" not in reported.stderr
    reported = CliRunner().invoke(cli.main, ["t.json", "--report", str(path), "--max-report-mb", "0.1"])
    assert "--max-report-mb 0.1: the report takes" in reported.stderr


def test_the_critical_path_is_a_row_of_the_device_that_knows_what_each_stretch_belongs_to() -> None:
    report = sample_report("synthetic_overhead_synchronization.json.gz")
    path, columns = report.tables["critical_path"], timeline_columns(report)
    (track,) = (track for track in columns.tracks if track.family == "path")
    assert track.group.startswith("GPU 0")
    ((first, count),) = track.rows
    assert (first, count) == (columns.events.height - path.height, path.height), "behind all others, whose numbers stay"
    shown = columns.events.slice(first, count)
    assert shown.get_column("start_ns").equals(path.get_column("start_ns"))
    assert shown.get_column("name").cast(pl.String).equals(path.get_column("name"))
    names = columns.events.get_column("name").cast(pl.String)
    linked = path.with_columns(link=shown.get_column("link"), detail=shown.get_column("detail"))
    known = linked.filter(pl.col("link") >= 0)
    work = known.filter(pl.col("edge") == "execution")
    kernels = report.tables["activities"].get_column("name").cast(pl.String)
    assert work.height > 0
    assert names[work.get_column("link")].equals(kernels[work.get_column("activity_id")], check_names=False)
    calls = known.filter(pl.col("activity_id").is_null(), pl.col("event_id").is_not_null())
    events = report.tables["host_events"].get_column("name").cast(pl.String)
    assert calls.height > 0
    assert names[calls.get_column("link")].equals(events[calls.get_column("event_id")], check_names=False)
    for column in ("operator", "edge", "module", "python_function"):
        reported = columns.details.get_column(column).cast(pl.String)[known.get_column("detail") - 1]
        assert reported.equals(known.get_column(column).cast(pl.String), check_names=False)
    colours = set(shown.get_column("kind"))
    assert {"matmul", "pointwise", "path-host-unknown", "path-synchronization"} <= colours


def test_every_cause_on_a_critical_path_has_a_colour() -> None:
    assert {UNCAUSED.get(label, label) for label in LABELS} <= set(vocabulary.PARTS)
