"""Test the exported trace: originals unchanged, and added tracks that sum to the report's figures."""

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import conftest
import polars as pl
import pytest
from click.testing import CliRunner
from compare_sides import Program
from made_ranks import MS, job, write_traces

from trace_analyzer.cli import main
from trace_analyzer.pipeline import analyze
from trace_analyzer.ranks.recording import summarize
from trace_analyzer.render.exports import _with_added, events, write_perfetto

pytestmark = pytest.mark.slow

SAMPLES = sorted(conftest.SAMPLES.glob("synthetic_*.json.gz"))
SAMPLE = conftest.SAMPLES / "synthetic_overhead_data-loading.json.gz"


def events_of(path: Path) -> list[dict[str, Any]]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(content, parse_float=Decimal)["traceEvents"]


def exported(source: Path, path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Export the source, and return the added events and the others."""
    write_perfetto(source, analyze(source), path)
    rows, original = events_of(path), events_of(source)
    count = len(rows) - len(original)
    assert rows[count:] == original
    return rows[:count], original


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_originals_stay_and_idle_time_is_added_to_the_nanosecond(tmp_path: Path, name: str) -> None:
    """Added tracks are no work of a device: the analysis of the exported trace is that of the original."""
    added, original = exported(SAMPLE, tmp_path / name)
    report, again = analyze(SAMPLE), analyze(tmp_path / name)
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
    assert again.verdict.headline == report.verdict.headline
    assert again.devices[0].gaps == report.devices[0].gaps


def test_the_command(tmp_path: Path) -> None:
    before, after, out = tmp_path / "before.json", tmp_path / "after.json", tmp_path / "out.json"
    before.write_bytes(Program().trace())
    after.write_bytes(Program(mm_ns=600_000).trace())
    run = CliRunner().invoke(main, ["export", str(after), "--perfetto", str(out), "--before", str(before)])
    assert run.exit_code == 0, run.stderr
    names = {event["name"] for event in json.loads(out.read_bytes())["traceEvents"]}
    assert "Matmul +0.80 ms a step" in names
    assert CliRunner().invoke(main, ["export", str(after), "--perfetto", str(out)]).exit_code == 2
    assert CliRunner().invoke(main, ["export", str(after), "--perfetto", str(after)]).exit_code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["after.json", "before.json", "out.json"]


def test_a_trace_that_is_an_array(tmp_path: Path) -> None:
    source = tmp_path / "array.json"
    source.write_text(json.dumps(json.loads(gzip.decompress(SAMPLE.read_bytes()))["traceEvents"]))
    write_perfetto(source, analyze(source), tmp_path / "out.json")
    original = json.loads(source.read_text())
    assert json.loads((tmp_path / "out.json").read_text())[-len(original) :] == original


def violations(rows: list[dict[str, Any]]) -> list[str]:
    """Return what Perfetto's importer of the Trace Event Format would drop or misread of events.

    Process and thread are unsigned numbers of 32 bits; complete events have a duration and nest on their thread; counters
    are numbers; metadata is of known names (https://perfetto.dev/docs/getting-started/other-formats, and the format's own text).
    """
    broken, spans, counted = [], defaultdict(list), defaultdict[int, Any](int)
    for row in rows:
        args, phase = row.get("args"), row["ph"]
        if not all(isinstance(row[key], int) and 0 <= row[key] < 1 << 32 for key in ("pid", "tid")):
            broken.append(f"pid or tid: {row}")
        if phase == "X":
            if row["dur"] < 0 or row["ts"] < 0 or not isinstance(row["name"], str) or not isinstance(args, dict):
                broken.append(f"complete event: {row}")
            spans[row["pid"], row["tid"]].append((row["ts"], -row["dur"]))
        elif phase == "C":
            if row["ts"] < counted[row["pid"]]:
                broken.append(f"counter goes back in time: {row}")
            counted[row["pid"]] = row["ts"]
            if row["ts"] < 0 or not args or not all(isinstance(v, int) for v in args.values()):
                broken.append(f"counter: {row}")
        elif phase != "M" or row["name"] not in ("process_name", "process_sort_index", "thread_name"):
            broken.append(f"no known event: {row}")
    for track, owned in spans.items():
        open_ends: list[Decimal] = []
        for start, minus in sorted(owned):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            if open_ends and start - minus > open_ends[-1]:
                broken.append(f"slices of {track} overlap without nesting at {start}")
            open_ends.append(start - minus)
    return broken


def test_tracks_of_each_device_hold_its_own_rows() -> None:
    report = analyze(SAMPLE.with_name("synthetic_communication_dependency.json.gz"))
    tables, origin = report.tables, int(report.trace.origin_ns)
    busy = tables["activities"].get_column("device").unique().to_list()
    assert len(busy) > 1
    spans = tables["owners"].select("device", "start_ns", "end_ns").group_by("device").first()
    added = list(events(report, spans.with_columns(pl.lit("x").alias("name"))))
    for device in busy:
        own = [event for event in added if event["pid"] == 2_000_000_000 + device]
        named = {event["name"]: event["args"] for event in own if event["ph"] == "M"}
        assert named["process_name"]["name"].startswith("analyze: GPU ")
        threads = {event["tid"] for event in own if event["name"] == "thread_name"}
        assert threads == {event["tid"] for event in own if event["ph"] == "X"}
        queue = tables["queue"].filter(pl.col("device") == device)
        counters = [(e["ts"] - origin, *e["args"].values()) for e in own if e["ph"] == "C"]
        assert counters == list(queue.select("time_ns", "depth").iter_rows())
        assert counters == sorted(counters, key=lambda item: item[0])
        assert sum(event["name"] == "x" for event in own) == 1
    assert violations([dict(event) for event in added]) == []


def test_originals_stay_however_the_file_comes_in_blocks() -> None:
    text = b' {"traceEvents" : [ {"ph": "s", "id": 1}, {"ph": "f", "id": 1}], "name": "a"} '
    for size in (1, 3, 100):
        blocks = [text[start : start + size] for start in range(0, len(text), size)]
        rows = json.loads(b"".join(_with_added(blocks, b'{"ph": "M"}', "a")))["traceEvents"]
        assert rows == [{"ph": "M"}, {"ph": "s", "id": 1}, {"ph": "f", "id": 1}]
        assert b"".join(_with_added(blocks, b"", "a")) == text


@pytest.mark.sampled
@pytest.mark.parametrize("source", SAMPLES, ids=lambda path: path.stem)
def test_the_tracks_are_of_the_format(source: Path, tmp_path: Path) -> None:
    added, _ = exported(source, tmp_path / "out.json")
    assert added
    assert violations(added) == []
    piece = next(row for row in added if row["ph"] == "X" and row["dur"] > 1)
    overlap = {"ts": piece["ts"] + piece["dur"] / 2}
    for wrong in (overlap, {"dur": -1}, {"pid": -1}, {"ph": "B"}, {"ph": "C", "args": {"a": "b"}}):
        assert violations([piece, piece | wrong]), "its rules find what breaks them"


def job_events(folder: Path, out: Path) -> list[dict[str, Any]]:
    """Export the job's traces in ``folder`` by the command, and return all events."""
    run = CliRunner().invoke(main, ["export", str(folder), "--perfetto", str(out)])
    assert run.exit_code == 0, run.stderr
    rows = events_of(out)
    assert violations(rows) == []
    return rows


def test_all_ranks_are_one_timeline_on_a_common_clock(tmp_path: Path) -> None:
    """Check the times of every kernel, and the waits, against the true ones of a job whose hosts' clocks differ and drift."""
    program = [("work", 20 * MS), ("meet", [[0, 1, 2]])]
    made = job(3, 20, program, lambda rank, step: 9 * MS * (rank == 1 and step == 2), ranks_per_host=1,
               offsets={"host1": 3 * MS, "host2": -7_123_456}, drifts={"host1": 1e-5})  # fmt: skip
    folder = tmp_path / "job"
    folder.mkdir()
    write_traces(made, folder)
    rows = job_events(folder, tmp_path / "out.json.gz")
    names = {row["pid"]: row["args"]["name"] for row in rows if row["name"] == "process_name"}
    assert len(set(names.values())) == len(names) == len({row["pid"] for row in rows})
    for rank in range(3):
        own = [row for row in rows if row["ph"] == "X" and names[row["pid"]].startswith(f"rank {rank}: ")]
        kernels = sorted((float(row["ts"]), float(row["dur"])) for row in own if row["cat"] == "kernel")
        true = [(start, end - start) for _, _, _, start, end in made.ran[rank]]
        assert kernels == [pytest.approx((start / 1e3, length / 1e3), abs=0.2) for start, length in true]
        waits = [row for row in own if row["name"].startswith("waits for ")]
        long = [row for row in waits if row["dur"] > 1]  # less is of the rounding of drifting clocks
        true_waits = [] if rank == 1 else [("waits for rank 1", pytest.approx(9_000, abs=0.2))]
        assert [(row["name"], float(row["dur"])) for row in long] == true_waits
        assert sum(row["cat"] == "analyze" for row in own) == 20 + len(waits)


def test_a_cut_rank_is_in_the_timeline_and_a_summary_alone_has_its_collectives(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    made = job(3, 4, [("work", 20 * MS), ("meet", [[0, 1, 2]])])
    paths = write_traces(made, folder)
    paths[0].write_bytes(paths[0].read_bytes()[:-600])
    (folder / "trace.rank2.rank.gz").write_bytes(summarize(str(paths[2])))
    paths[2].unlink()
    rows = job_events(folder, tmp_path / "out.json")
    ranks = Counter(row["args"]["name"].split(":")[0] for row in rows if row["name"] == "process_name")
    assert ranks == {"rank 0": 3, "rank 1": 3, "rank 2": 1}
    refused = CliRunner().invoke(main, ["export", str(folder), "--perfetto", str(tmp_path / "x.json"), "--gpu", "A100"])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


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
