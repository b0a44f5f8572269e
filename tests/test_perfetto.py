"""The exported trace: originals unchanged, added tracks that sum to the report's figures, opened by Perfetto where it runs."""

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from compare_sides import Program

from trace_analyzer.cli import main
from trace_analyzer.pipeline import analyze
from trace_analyzer.render.perfetto import write_perfetto

SAMPLE = Path(__file__).parents[1] / "sample_traces" / "synthetic_overhead_data-loading.json.gz"


def exported(source: Path, path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The added events and the others."""
    write_perfetto(source, analyze(source), path)
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(content, parse_float=Decimal)
    rows = document["traceEvents"]
    original = json.loads(gzip.decompress(source.read_bytes()), parse_float=Decimal)["traceEvents"]
    count = len(rows) - len(original)
    assert rows[count:] == original
    return rows[:count], original


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_originals_stay_and_idle_time_is_added_to_the_nanosecond(tmp_path: Path, name: str) -> None:
    added, original = exported(SAMPLE, tmp_path / name)
    report = analyze(SAMPLE)
    idle = Counter[str]()
    for event in added:
        assert {"ph", "pid", "tid", "name"} <= event.keys()
        assert event["pid"] not in {row["pid"] for row in original}
        if event["ph"] == "X" and event["tid"] == 0:
            idle[event["name"]] += int(event["dur"] * 1000)
    assert idle == {cause: ns for cause, ns in report.devices[0].gaps.by_cause_ns.items() if ns}
    assert sum(event["ph"] == "C" for event in added) == report.tables["queue"].height
    first = next(event for event in added if event["ph"] == "X")
    assert int(first["ts"] * 1000) == int(report.trace.origin_ns) + report.tables["blame"]["start_ns"][0]


@pytest.mark.slow
def test_the_exported_trace_says_the_same(tmp_path: Path) -> None:
    """Added tracks are no work of a device: the analysis of the exported trace is that of the original."""
    exported(SAMPLE, tmp_path / "out.json")
    again, first = analyze(tmp_path / "out.json"), analyze(SAMPLE)
    assert again.verdict.headline == first.verdict.headline
    assert again.devices[0].gaps == first.devices[0].gaps


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    before, after, out = tmp_path / "before.json", tmp_path / "after.json", tmp_path / "out.json"
    before.write_bytes(Program().trace())
    after.write_bytes(Program(mm_ns=600_000).trace())
    run = CliRunner().invoke(main, ["export", str(after), "--perfetto", str(out), "--before", str(before)])
    assert run.exit_code == 0, run.stderr
    names = {event["name"] for event in json.loads(out.read_bytes())["traceEvents"]}
    assert "matmul +0.80 ms a step" in names
    assert CliRunner().invoke(main, ["export", str(after), "--perfetto", str(out)]).exit_code == 2
    assert CliRunner().invoke(main, ["export", str(after), "--perfetto", str(after)]).exit_code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["after.json", "before.json", "out.json"]


def test_a_trace_that_is_an_array(tmp_path: Path) -> None:
    source, out = tmp_path / "array.json", tmp_path / "out.json"
    rows = json.loads(gzip.decompress(SAMPLE.read_bytes()))["traceEvents"]
    source.write_text(json.dumps(rows))
    write_perfetto(source, analyze(source), out)
    assert json.loads(out.read_text())[-len(rows) :] == rows


def test_perfetto_reads_the_tracks(tmp_path: Path) -> None:
    perfetto = pytest.importorskip("perfetto.trace_processor")
    exported(SAMPLE, tmp_path / "out.json")
    try:
        processor = perfetto.TraceProcessor(trace=str(tmp_path / "out.json"))
    except Exception as error:
        pytest.skip(f"Perfetto's trace processor does not start here: {error}")
    with processor:
        rows = processor.query("select count(*) as n from slice where category = 'analyze'")
        assert next(iter(rows)).n > 0
