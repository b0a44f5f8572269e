"""Real traces: the index's exact figures from a slow reference, and verdicts accepted by a person."""

import contextlib
import gzip
import itertools
import json
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl
import pytest
import truth
from conftest import CORPUS, SAMPLES as SAMPLE_FOLDER, corpus_rows
from lazy_report import report_on
from program_laws import below_floors_say_why, check_estimates, check_flip, check_regime
from test_advice_code import check_code
from test_advice_laws import bounds_hold, counted_once, order_holds
from test_blame import drains_hold_idle_time_once, idle_time_is_blamed_once, operators_spend_what_they_last
from test_links import owners_sum_to_the_steps
from test_stacks import threads_count_once

from trace_analyzer import registry, units, vocabulary
from trace_analyzer.catalog.kernels import operand_type
from trace_analyzer.frames.intervals import LENGTH_NS
from trace_analyzer.pipeline import analyze
from trace_analyzer.render.phrasing import predicted_briefly
from trace_analyzer.render.row_phrases import saves_at_most
from trace_analyzer.replay import prediction, refusals, weights
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.whatif import whatif
from trace_analyzer.report import DeviceReport, Report

pytestmark = [pytest.mark.skipif(not corpus_rows(), reason="the corpus ($TRACE_CORPUS) is absent"), pytest.mark.sampled]

DOCS = Path(__file__).parents[1] / "docs"
Row = dict[str, str]
Reports = Callable[[str], Report]
ROWS = corpus_rows()
FILES = sorted({row["file"] for row in ROWS})

every_row = pytest.mark.parametrize("row", ROWS, ids=[f"{row['file']}:{row['device'] or '-'}" for row in ROWS])
DEVICES = [row for row in ROWS if row["window_ns"]]
every_device = pytest.mark.parametrize("row", DEVICES, ids=[f"{row['file']}:{row['device']}" for row in DEVICES])
every_file = pytest.mark.parametrize("file", FILES)
LAWS = (
    idle_time_is_blamed_once, operators_spend_what_they_last, drains_hold_idle_time_once, owners_sum_to_the_steps,
    bounds_hold, order_holds, counted_once, threads_count_once,
)  # fmt: skip


@pytest.mark.slow
@every_row
def test_counts(row: Row, corpus_report: Reports) -> None:
    report = corpus_report(row["file"])
    kinds = dict(report.tables["activities"].group_by("kind").len().iter_rows())
    linked = report.tables["activities"].filter(pl.col("launch_id").is_not_null())
    expected = {
        "events": report.trace.event_count, "kernels": kinds.get("kernel", 0), "memcpy": kinds.get("memcpy", 0),
        "memset": kinds.get("memset", 0), "gpu_activities_linked": linked.height,
        "kernels_unlinked": kinds.get("kernel", 0) - linked.filter(pl.col("kind") == "kernel").height,
    }  # fmt: skip
    assert {key: int(row[key]) for key in expected} == expected


def device_of(row: Row, report: Report) -> DeviceReport:
    return next(device for device in report.devices if str(device.index) == row["device"])


@every_device
def test_times(row: Row, corpus_report: Reports) -> None:
    """The index breaks ties of starts by file order, so some gaps may be unlinked that are not here."""
    device = device_of(row, corpus_report(row["file"]))
    actual = (device.window_ns, device.busy_ns, device.idle_ns, device.gaps.count)
    assert actual == tuple(int(row[key]) for key in ("window_ns", "busy_ns", "idle_ns", "gap_count"))
    assert device.name == row["device_name"] or not row["device_name"]
    assert device.gaps.by_cause_ns["unlinked"] == pytest.approx(int(row["idle_unlinked_ns"]), rel=0.001)


@every_device
def test_idle_time_before_the_launch_is_the_host_s(row: Row, corpus_report: Reports) -> None:
    """Check that time before the launch began bounds the host's blame, but for its call and for queued work."""
    causes = device_of(row, corpus_report(row["file"])).gaps.by_cause_ns
    before_call = sum(causes[cause] for cause in vocabulary.HOST_CAUSES if cause != "launch-latency")
    late = int(row["idle_launch_after_gap_start_ns"]) + int(row["idle_launch_in_progress_ns"])
    assert before_call <= late * 1.001
    in_calls = late - int(row["idle_before_launch_start_ns"])
    named_calls = sum(causes[cause] for cause in ("blocking-copy", "allocation", "compilation"))
    assert before_call - named_calls - causes["untraced"] <= int(row["idle_before_launch_start_ns"]) * 1.001 + in_calls


@every_row
def test_the_verdict_is_one_that_a_person_accepts(row: Row, corpus_report: Reports) -> None:
    verdict = corpus_report(row["file"]).verdict
    assert verdict.status in row["accepted_status"].split("|")
    if verdict.status == "ok":
        accepted = row["accepted_regime"].split("|")
        assert verdict.regime in accepted or not row["accepted_regime"]
        causes = row["accepted_cause"].split("|")
        assert (verdict.cause or "") in causes or not row["accepted_cause"]


@pytest.mark.slow
@every_file
def test_conservation(file: str, corpus_report: Reports) -> None:
    report = corpus_report(file)
    assert report.tables["idle"].filter(LENGTH_NS <= 0).is_empty()
    sums = report.tables["idle"].group_by("gap_id").agg(LENGTH_NS.sum().alias("parts_ns"))
    gaps = report.tables["gaps"].join(sums, on="gap_id", how="full")
    assert gaps.filter(pl.col("duration_ns") != pl.col("parts_ns").fill_null(0)).is_empty()
    for device in report.devices:
        assert sum(device.gaps.by_cause_ns.values()) == device.idle_ns == device.window_ns - device.busy_ns
        assert sum(device.partition_ns.values()) == device.window_ns


@pytest.mark.slow
@every_file
def test_the_laws_of_random_traces_hold(file: str, corpus_report: Reports) -> None:
    report = corpus_report(file)
    for law in LAWS:
        law(report)
    assert report.advice or report.verdict.status != "ok"


@pytest.mark.slow
@every_file
def test_where_stacks_are_recorded_little_of_the_host_s_time_is_unnamed(file: str, corpus_report: Reports) -> None:
    report = corpus_report(file)
    host = report.tables["idle"].filter(pl.col("cause").is_in(vocabulary.HOST_CAUSES))
    unknown = host.filter(pl.col("cause") == "host-unknown")
    if report.trace.recorded.stack:
        assert unknown.select(LENGTH_NS.sum()).item() <= 0.05 * host.select(LENGTH_NS.sum()).item()


@pytest.mark.slow
@every_file
def test_code_contradicts_nothing_of_the_trace(file: str, corpus_report: Reports) -> None:
    check_code(corpus_report(file), gzip.decompress((CORPUS / file).read_bytes()).decode(errors="replace"))


CASES = [*sorted((CORPUS.parent / "cases").rglob("*.json.gz")), SAMPLE_FOLDER / "cpu_mlp.json.gz"]
"""Small traces made after reports, and a run on the CPU."""


def advice_holds(path: Path, report: Report) -> None:
    """Check the laws of advice, beside those of the corpus."""
    for law in (bounds_hold, order_holds, counted_once) if report.verdict.status == "ok" else ():
        law(report)
    check_code(report, gzip.decompress(path.read_bytes()).decode(errors="replace"))
    if path.name in WITHOUT_STRIDES:
        every_speed_is_explained(report)


@pytest.mark.slow
@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_advice_s_laws_hold_on_small_cases(path: Path) -> None:
    advice_holds(path, report_on(path))


@every_file
def test_one_of_something_is_reported_in_the_singular(file: str, corpus_report: Reports) -> None:
    report = corpus_report(file)
    things = "kernels|launches|matmuls|convolutions|copies|calls|events|steps|chains|products|attentions|collectives|devices|activities"
    assert re.findall(rf"(?<![\d.,])1 (?:{things})\b", report.summary(200, verbose=True) + report.to_markdown()) == []


@every_file
@pytest.mark.parametrize(("width", "most"), [(80, 46), (100, 36), (140, 34)])
def test_the_answer_is_whole_on_one_screen(file: str, width: int, most: int, corpus_report: Reports) -> None:
    lines = corpus_report(file).summary(width).splitlines()
    assert len(lines) <= most
    assert not [line for line in lines if "…" in line and not line.startswith("     ")], "names of places may be cut"


@every_file
def test_no_kernel_computes_faster_than_its_peak(file: str, corpus_report: Reports) -> None:
    roofs = corpus_report(file).tables["roofs"]
    assert roofs.filter(pl.col("achieved_flop_per_s") > 1.05 * pl.col("peak_flop_per_s")).is_empty()


def every_speed_is_explained(report: Report) -> None:
    assert report.tables["activities"].filter(faster_than_memory="unexplained").is_empty()


@every_file
def test_no_kernel_moves_more_bytes_than_cache_and_clock_explain(file: str, corpus_report: Reports) -> None:
    every_speed_is_explained(corpus_report(file))


WITHOUT_STRIDES = ("a100_sam_amg_before.json.gz", "a100_sam_amg_after.json.gz", "a100_forward_batch128.json.gz")
"""Pairs that have shapes without strides, where expanded operands look dense."""


@every_file
def test_the_type_in_a_kernels_name_is_that_of_an_operand(file: str, corpus_report: Reports) -> None:
    """It stands for the recorded types in files that lack them."""
    tables = corpus_report(file).tables
    types = tables["operator_inputs"].select("event_id", pl.col("input_types").cast(pl.String)).drop_nulls()
    works = tables["activities"].filter(pl.col("bucket").cast(pl.String).is_in(["matmul", "convolution", "attention"]))
    named = works.with_columns(operand_type()).join(types, left_on="operator_id", right_on="event_id")
    other = ~pl.col("input_types").str.contains(pl.format('"{}"', "operand_type"), literal=True)
    assert named.filter(other).select("name", "operand_type", "input_types").unique().rows() == []


@every_device
def test_the_work_of_eager_kernels_is_known(row: Row, corpus_report: Reports) -> None:
    """Of H100 and MI300 traces with shapes; CUDA and HIP graphs have no operators to link to."""
    report = corpus_report(row["file"])
    device = device_of(row, report)
    if report.trace.recorded.shapes and re.search("H100|MI300", device.name or ""):
        assert (device.work_coverage.linked_either_ratio or 1.0) >= 0.9


@every_file
def test_the_tables_keep_their_schema(file: str, corpus_report: Reports) -> None:
    report = corpus_report(file)
    assert {name: dict(frame.schema) for name, frame in report.tables.items()} == {
        table.name: table.schema for table in registry.TABLES
    }


def test_the_corpus_is_whole() -> None:
    assert [file for file in FILES if not (CORPUS / file).exists()] == []


PAGE = DOCS / "real-traces.md"


def reported(name: str, report: Report) -> tuple[str, ...]:
    """Return the row of the page's table."""
    verdict, advice = report.verdict, report.advice
    evidence = {item.metric: item.value for item in verdict.evidence}
    regime = verdict.regime and evidence[f"{verdict.regime.removesuffix('-bound')}_ratio"]
    figures = ("" if figure is None else units.percent(figure) for figure in (evidence.get("busy_ratio"), regime))  # type: ignore[arg-type]
    limit = ": ".join(filter(None, (verdict.regime, verdict.cause)))
    first = advice[0].id if advice else ""
    return (name, verdict.status, limit, verdict.runner_up or "", verdict.confidence, *figures, first)


def listed(report: Report) -> str:
    """Return the advice of the page's second table, in its order."""
    effects = (
        (item.id, predicted_briefly(item).removeprefix("estimate: ") or saves_at_most(item)) for item in report.advice
    )
    return "; ".join(" ".join(effect).strip() for effect in effects)


def rows_of_the_page() -> list[tuple[str, ...]]:
    lines = (line for line in PAGE.read_text("utf-8").splitlines() if line[:1] == "|")
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


@every_file
def test_the_page_on_real_traces_says_what_the_program_says(file: str, corpus_report: Reports) -> None:
    name, report, rows = file.removesuffix(".json.gz"), corpus_report(file), rows_of_the_page()
    assert reported(name, report) in rows
    assert not report.advice or (name, listed(report)) in [row[:2] for row in rows]
    assert f"**{name}**" in PAGE.read_text("utf-8"), "a paragraph on each"


PAIRS = CORPUS.parent / "pairs"
PAIRS_OF_THE_PAGE = [row[:2] for row in rows_of_the_page() if (PAIRS / f"{row[0]}.json.gz").exists()]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "advice"), PAIRS_OF_THE_PAGE)
def test_the_page_on_real_traces_lists_the_advice_of_pairs(name: str, advice: str) -> None:
    assert listed(report_on(PAIRS / f"{name}.json.gz")) == advice


REPLAYABLE = [row["file"] for row in corpus_rows() if row["device"]]
SAMPLES = sorted((Path(__file__).parents[1] / "sample_traces").glob("synthetic_*.json.gz"))
TRUTHS = sorted((CORPUS.parent / "truth").glob("*/*.json.gz"))
JUDGED = [*SAMPLES, *(CORPUS / name for name in sorted(set(REPLAYABLE))), *sorted(PAIRS.glob("*.json.gz")), *TRUTHS]
needs_pairs = pytest.mark.skipif(not PAIRS.exists(), reason="the recorded pairs are not there")


def replayed(report: Report) -> tuple[prediction.Replay, str | None]:
    device = report.tables["devices"].filter(pl.col("label") == str(report.verdict.device)).item(0, "device")
    replay = prediction.Replay.of(report, device)
    return replay, refusals.refusal(report, replay, device, ())


@pytest.mark.slow
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name.split(".")[0])
def test_a_sample_replays_as_recorded(path: Path) -> None:
    replay, refused = replayed(report_on(path))
    assert refused is None
    assert abs(replay.identity_ratio) < 0.002
    assert replay.summary.unexplained_ratio == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", REPLAYABLE)
def test_a_real_trace_replays_as_recorded_or_is_refused(name: str, corpus_report: Reports) -> None:
    replay, refused = replayed(corpus_report(name))
    if refused is None:
        assert abs(replay.identity_ratio) < 0.005
        for target in ("cpu", "gpu"):
            with contextlib.suppress(weights.NotApplicable):
                replay.predict((Change("speedup", {"target": target, "factor": 2.0}),))
                assert replay.round_trip_of(target) < 0.01
    cpu_floor, device_floor = replay.floors
    assert max(cpu_floor, device_floor) <= replay.identity.step_ns


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("path", JUDGED, ids=lambda path: path.name.split(".")[0])
def test_every_what_if_obeys_the_laws_and_so_does_advice(path: Path, corpus_report: Reports) -> None:
    report = corpus_report(path.name) if path.parent == CORPUS else report_on(path)
    if path.parent != CORPUS:
        advice_holds(path, report)
    replay, refused = replayed(report)
    result = whatif(report)
    document = result.document()
    check_estimates(document)
    below_floors_say_why(result)
    check_regime(report)
    check_flip(report, partial(report_on, path))
    if refused is not None:
        return
    known = [
        Change(s["name"], s["options"]) for s in document["scenarios"] if s["refused"] is None and s["name"] != "tf32"
    ]
    for one, other in itertools.pairwise(known):
        with contextlib.suppress(weights.NotApplicable):
            together = replay.predict((one, other)).step_ns
            assert together <= min(replay.predict((change,)).step_ns for change in (one, other)) * (1 + 1e-9)


@pytest.mark.slow
@needs_pairs
def test_the_tables_of_public_truth_are_what_the_benchmark_prints() -> None:
    """Check predictions, too: of a recorded change, the device's work is off by less than 15 % of what came."""
    steps, work = list(truth.changed(PAIRS)), list(truth.narrowed(PAIRS))
    of_batches = [*truth.batches(PAIRS), *truth.batches(PAIRS, work=True)]
    page = (DOCS / "whatif.md").read_text()
    assert [row for one in (*steps, *work, *of_batches) if (row := truth.row(one)) not in page] == []
    assert steps
    assert all(one.inside for one in (*steps, *work))
    assert max(one.error for one in (steps[0], *work)) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("file", [row["file"] for row in corpus_rows()][::3])
def test_the_order_of_events_changes_nothing(file: str, corpus_report: Reports) -> None:
    document = json.loads(gzip.decompress((CORPUS / file).read_bytes()))
    random.Random(7).shuffle(document["traceEvents"])
    one, other = json.loads(corpus_report(file).to_json()), json.loads(analyze(json.dumps(document).encode()).to_json())
    assert one.pop("trace")["event_count"] == other.pop("trace")["event_count"]
    assert one == other
