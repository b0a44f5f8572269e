"""Test the truth script in `sample_traces/`, and hold reports and predictions to the pairs that it recorded on a GPU."""

import json
import math
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest
import record_truth
from conftest import SAMPLES
from lazy_report import report_on
from record_truth import CHANGES, REPEATS, SIZES, Compared, Program, compare, main, measurements, noise

from trace_analyzer.replay.whatif import changes_of
from trace_analyzer.report import Report, summaries
from trace_analyzer.units import percent

SAMPLE = SAMPLES / "synthetic_overhead_synchronization.json.gz"
RECORDED = SAMPLES / "gpu_truth"
ROWS = json.loads((RECORDED / "truth.json").read_text())
TRACED = {row["trace"]: row for row in ROWS if "trace" in row}
GPU_BOUND = 0.004
"""How far a step on a busy GPU may be from the measured one, as a share of it."""
KNOWN_MISSES = {("large", "compile")}
"""Pairs whose measured step lies outside the interval, beyond the noise."""


def folder(tmp_path: Path, after_ms: float, before_ms: float = 6.89) -> Path:
    """Write measurements of one pair whose program before is a sample, and one that failed."""
    shutil.copy(SAMPLE, tmp_path / "tiny_sync.json.gz")
    rows = [
        {"size": "tiny", "options": {"sync": True}, "mean_ms": before_ms, "trace": "tiny_sync.json.gz"},
        {"size": "tiny", "options": {}, "mean_ms": after_ms},
        {"size": "tiny", "options": {"tf32": True}, "error": "RuntimeError: no memory"},
    ]
    (tmp_path / "truth.json").write_text(json.dumps(rows))
    return tmp_path


def test_seven_changes_and_more_of_three_sizes() -> None:
    assert len(CHANGES) >= 7
    assert len(SIZES) == 3


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_differs_in_one_thing_and_can_be_predicted(name: str) -> None:
    pair = CHANGES[name]
    different = [key for key, value in vars(pair.before).items() if getattr(pair.after, key) != value]
    assert len(different) == 1
    assert len(changes_of(**pair.whatif)) == 1 + (name == "graph"), "a graph of a step holds its optimizer, too"


@pytest.mark.slow
@pytest.mark.parametrize(("after_ms", "inside"), [(4.1, True), (5.5, False)])
def test_predictions_stand_beside_what_was_measured(
    tmp_path: Path, after_ms: float, inside: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = compare(folder(tmp_path, after_ms))
    assert row.predicted_ms == pytest.approx(4.12, rel=0.01)
    assert row.is_inside == inside
    main(["compare", str(tmp_path)])
    assert f"{int(inside)} of 1 measured steps inside" in capsys.readouterr().out


def test_what_the_profiler_costs_is_not_taken_out_of_the_device(tmp_path: Path) -> None:
    (row,) = compare(folder(tmp_path, 2.0, before_ms=5.5))
    assert row.predicted_ms == pytest.approx(3.745, rel=0.001), "the device takes as long, 4.12 * 5.5 / 6.89 is less"


@pytest.mark.slow
def test_what_the_profiler_costs_is_taken_out_of_the_cpu(compared: list[Compared]) -> None:
    row = next(row for row in compared if (row.size, row.change) == ("tiny", "bf16"))
    assert row.now_ms < 15 < 29.6, "the recorded step"
    assert row.predicted_ms == pytest.approx(row.now_ms, rel=0.01), "narrower kernels spare no launch"


def measured_here(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Measure programs in this process, which can be changed; return the contexts that processes were asked of."""
    pytest.importorskip("torch")
    contexts: list[object] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, workers: int, context: object) -> None:
            super().__init__(workers)
            contexts.append(context)

    monkeypatch.setattr(record_truth, "ProcessPoolExecutor", Pool)
    return contexts


@pytest.mark.slow
def test_programs_are_recorded_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = measured_here(monkeypatch)
    monkeypatch.setattr(record_truth, "SIZES", {"tiny": {"width": 16, "layers": 2, "batch": 4}})
    monkeypatch.setattr(record_truth, "GROUP_SECONDS", 0.001)
    monkeypatch.setattr(record_truth, "HEADS", 4)
    monkeypatch.setattr(record_truth, "SEQUENCES", 4)
    changes = [name for name in CHANGES if "compile" not in name]
    rows = record_truth.record(tmp_path, "cpu", ["tiny"], changes)
    programs = {side for name in changes for side in (CHANGES[name].before, CHANGES[name].after)}
    assert len(rows) == len(contexts) == len(programs) + REPEATS
    assert json.loads((tmp_path / "truth.json").read_text()) == rows
    found = measurements(rows)
    assert set(found) == {("tiny", program) for program in programs}
    assert len(found["tiny", Program()]) == 1 + REPEATS
    for row, *_ in found.values():
        assert row["mean_ms"] > 0
        assert (tmp_path / row["trace"]).stat().st_size > 1_000
    assert found["tiny", CHANGES["data"].before][0]["mean_ms"] > record_truth.LOADING_MS
    compared = compare(tmp_path)
    assert len(compared) == len(changes)
    assert all(row.predicted_ms is None and row.reason for row in compared), "a CPU's trace has no device"


@pytest.mark.slow
def test_each_program_has_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(record_truth, "SIZES", {"tiny": {"width": 16, "layers": 1, "batch": 4}})
    monkeypatch.setattr(record_truth, "measured", process_of)
    rows = record_truth.record(tmp_path, "cpu", ["tiny"], ["tf32"])
    assert len({os.getpid(), *(row["process"] for row in rows)}) == 1 + 2 + REPEATS


def process_of(*_: object) -> dict[str, int]:
    """Return the id of the process, in place of a measurement."""
    return {"process": os.getpid()}


@pytest.mark.slow
def test_a_program_that_fails_leaves_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured_here(monkeypatch)
    monkeypatch.setattr(record_truth, "step_of", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("no memory")))
    row, *_ = record_truth.record(tmp_path, "cpu", ["tiny"], ["sync"])
    assert row == {"size": "tiny", "options": {"sync": True}, "error": "RuntimeError: no memory"}


def test_nothing_to_compare_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["compare", str(tmp_path)])
    assert caught.value.code == 2
    assert f"{tmp_path} holds no truth.json: record first" in capsys.readouterr().err


@pytest.mark.parametrize(("within", "deviation"), [(0.1, math.sqrt(0.5)), (0.8, 0.8)])
def test_the_noise_is_that_of_a_ratio_of_two_equal_programs(within: float, deviation: float) -> None:
    programs = [("tiny", {}, 10.0), ("tiny", {}, 10.0 * math.e), ("tiny", {"sync": True}, 99.0), ("large", {}, 400.0)]
    rows = [{"size": size, "options": made, "mean_ms": ms, "sd_ms": within * ms} for size, made, ms in programs]
    assert noise(measurements(rows)) == {"tiny": pytest.approx(math.sqrt(2) * deviation)}


@pytest.mark.parametrize(
    ("measured_ms", "inside", "near"), [(9.0, True, True), (11.5, False, True), (13.0, False, False)]
)
def test_a_step_within_the_noise_of_the_interval_is_told_apart(measured_ms: float, inside: bool, near: bool) -> None:
    row = Compared("tiny", "sync", 12.0, measured_ms, 0.1, predicted_ms=9.0, low_ms=8.0, high_ms=10.0)
    assert (row.is_inside, row.is_within_noise) == (inside, near)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Report]:
    """Return the reports on the recorded traces."""
    return {name: report_on(RECORDED / name) for name in TRACED}


@pytest.fixture(scope="module")
def compared() -> list[Compared]:
    """Return the predictions for the recorded pairs."""
    return compare(RECORDED)


def test_the_recorded_pairs_are_small_and_anonymous() -> None:
    assert {name.name for name in RECORDED.glob("*.gz")} == set(TRACED)
    assert sum(path.stat().st_size for path in RECORDED.iterdir()) < 6 << 20


@pytest.mark.slow
def test_the_regime_is_that_of_its_size(recorded: dict[str, Report]) -> None:
    for name, row in TRACED.items():
        if row["options"] in ({"graph": True}, {"bf16": True}):
            continue
        verdict = recorded[name].verdict
        expected = ("compute-bound", None) if row["size"] == "large" else ("overhead-bound", "launch")
        assert (verdict.regime, verdict.cause) == expected, name


@pytest.mark.slow
def test_the_step_without_recording_is_nearer_to_the_measured_one(recorded: dict[str, Report]) -> None:
    estimated = 0
    for name, report in recorded.items():
        window, unbiased, measured = report.verdict.window, report.verdict.debiased, 1e6 * TRACED[name]["mean_ms"]
        assert window is not None
        recorded_ns = window.length_ns / len(window.steps)
        loads = "load_ms" in TRACED[name]["options"]  # which the full queue of a busy GPU hides in six steps
        if TRACED[name]["size"] == "large" and not loads:
            assert recorded_ns == pytest.approx(measured, rel=GPU_BOUND), name
        if unbiased is None or unbiased.removed_ns < GPU_BOUND * window.length_ns:
            continue
        estimated += 1
        assert abs(unbiased.window_ns / len(window.steps) - measured) < abs(recorded_ns - measured), name
        if told := summaries.step_without_recording(report.verdict):
            assert told[2] <= measured <= told[3], name
    assert estimated >= 7


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small_plain.json.gz", "tiny_plain.json.gz"])
def test_the_passes_of_an_optimizer_take_the_time_of_their_kernels(recorded: dict[str, Report], name: str) -> None:
    """Each run of kernels spans idle time between these, which is several times as long."""
    report = recorded[name]
    (item,) = (item for item in report.advice if item.id == "fused-optimizer")
    run = report.tables["fusions"].row(by_predicate=pl.col("kind") == "optimizer", named=True)  # one a step, all alike
    window, taken_ns = report.verdict.window, run["time_ns"] / run["count"]
    assert window is not None
    assert taken_ns < (run["end_ns"] - run["start_ns"]) / 4
    assert f"several times ({percent(taken_ns * len(window.steps) / window.length_ns)} of a step)" in item.why


@pytest.mark.slow
def test_what_came_is_within_the_noise_of_the_interval(compared: list[Compared]) -> None:
    outside = {(row.size, row.change) for row in compared if row.predicted_ms is not None and not row.is_within_noise}
    assert outside <= KNOWN_MISSES
    assert record_truth.conclusion(compared) in (SAMPLES / "README.md").read_text()


@pytest.mark.slow
def test_no_prediction_has_the_wrong_sign_beyond_the_noise(compared: list[Compared]) -> None:
    for row in compared:
        if row.predicted_ms is not None:
            predicted, measured = (math.log(ms / row.now_ms) for ms in (row.predicted_ms, row.measured_ms))
            least = max(2 * row.noise, GPU_BOUND)
            assert not (abs(predicted) > least and abs(measured) > least and predicted * measured < 0), row
