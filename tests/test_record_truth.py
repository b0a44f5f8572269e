"""Test the truth script in `sample_traces/`, and hold reports and predictions to the pairs that it recorded on a GPU."""

import json
import math
import shutil
from pathlib import Path

import pytest
import record_truth
from record_truth import CHANGES, SIZES, Compared, compare, main, noise

from trace_analyzer.pipeline import analyze
from trace_analyzer.replay.whatif import changes_of
from trace_analyzer.report import Report

SAMPLES = Path(__file__).parents[1] / "sample_traces"
SAMPLE = SAMPLES / "synthetic_overhead_synchronization.json.gz"
RECORDED = SAMPLES / "gpu_truth"
ROWS = json.loads((RECORDED / "truth.json").read_text())
SIDES = {
    side["trace"]: side | {"size": row["size"]}
    for row in ROWS
    for side in (row["before"], row["after"])
    if "trace" in side
}
BEFORE = [name for name in SIDES if "_before" in name]
GPU_BOUND = 0.003
"""How far a step on a busy GPU may be from the measured one, as a share of it."""


def folder(tmp_path: Path, after_ms: float, **before: object) -> Path:
    """Write a recording of one pair whose program before is a sample, with a measured step of 6.89 ms."""
    shutil.copy(SAMPLE, tmp_path / "tiny_sync_before.json.gz")
    row = {"size": "tiny", "change": "sync", "before": {"mean_ms": 6.89, "trace": "tiny_sync_before.json.gz", **before},
           "after": {"mean_ms": after_ms}}  # fmt: skip
    (tmp_path / "truth.json").write_text(json.dumps([row, {**row, "after": {"error": "RuntimeError: no memory"}}]))
    return tmp_path


def test_seven_changes_and_more_of_three_sizes() -> None:
    assert len(CHANGES) >= 7
    assert len(SIZES) == 3


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_differs_in_one_thing_and_can_be_predicted(name: str) -> None:
    pair = CHANGES[name]
    different = [key for key, value in vars(pair.before).items() if getattr(pair.after, key) != value]
    assert len(different) == (name != "no_change")
    assert len(changes_of(**pair.whatif)) == len(different)


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
    (row,) = compare(folder(tmp_path, 2.0, mean_ms=5.5))
    assert row.predicted_ms == pytest.approx(3.745, rel=0.001), "the device takes as long, 4.12 * 5.5 / 6.89 is less"


@pytest.mark.slow
def test_what_the_profiler_costs_is_taken_out_of_the_cpu(compared: list[Compared]) -> None:
    row = next(row for row in compared if (row.size, row.change) == ("tiny", "bf16"))
    assert row.now_ms < 20 < 29.8, "the recorded step"
    assert row.predicted_ms == pytest.approx(row.now_ms, rel=0.01), "narrower kernels spare no launch"


@pytest.mark.slow
def test_a_pair_is_recorded_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(record_truth, "SIZES", {"tiny": {"width": 16, "layers": 2, "batch": 4}})
    monkeypatch.setattr(record_truth, "GROUP_SECONDS", 0.001)
    monkeypatch.setattr(record_truth, "HEADS", 4)
    monkeypatch.setattr(record_truth, "SEQUENCES", 4)
    rows = record_truth.record(tmp_path, "cpu", ["tiny"], [name for name in CHANGES if "compile" not in name])
    assert len(rows) == len(CHANGES) - 2
    assert json.loads((tmp_path / "truth.json").read_text()) == rows
    for row in rows:
        for side in ("before", "after"):
            assert row[side]["mean_ms"] > 0
            assert (tmp_path / row[side]["trace"]).stat().st_size > 1_000
    data = next(row for row in rows if row["change"] == "data")
    assert data["before"]["mean_ms"] > record_truth.LOADING_MS
    assert all(row.predicted_ms is None and row.reason for row in compare(tmp_path)), "a CPU's trace has no device"


@pytest.mark.slow
def test_a_side_that_fails_leaves_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(record_truth, "step_of", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("no memory")))
    (row,) = record_truth.record(tmp_path, "cpu", ["tiny"], ["sync"])
    assert row["before"] == {"error": "RuntimeError: no memory"}


def test_nothing_to_compare_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["compare", str(tmp_path)])
    assert caught.value.code == 2
    assert f"{tmp_path} holds no truth.json: record first" in capsys.readouterr().err


def test_the_noise_is_that_of_a_ratio_of_two_equal_programs() -> None:
    programs = [("tiny", {}, 10.0), ("tiny", {}, 10.0 * math.e), ("tiny", {"sync": True}, 99.0), ("large", {}, 400.0)]
    sides = [{"size": size, "side": {"options": options, "mean_ms": ms}} for size, options, ms in programs]
    rows = [{"size": each["size"], "before": each["side"], "after": {"error": "RuntimeError"}} for each in sides]
    assert noise(rows) == {"tiny": pytest.approx(1.0)}, "two logarithms that differ by 1 deviate by 1 / sqrt(2)"


@pytest.mark.parametrize(
    ("measured_ms", "inside", "near"), [(9.0, True, True), (11.5, False, True), (13.0, False, False)]
)
def test_a_step_within_the_noise_of_the_interval_is_told_apart(measured_ms: float, inside: bool, near: bool) -> None:
    row = Compared("tiny", "sync", 12.0, measured_ms, 0.1, predicted_ms=9.0, low_ms=8.0, high_ms=10.0)
    assert (row.is_inside, row.is_within_noise) == (inside, near)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Report]:
    """Return the reports on the recorded traces."""
    return {name: analyze(RECORDED / name) for name in SIDES}


@pytest.fixture(scope="module")
def compared() -> list[Compared]:
    """Return the predictions for the recorded pairs."""
    return compare(RECORDED)


def test_the_recorded_pairs_are_small_and_anonymous() -> None:
    assert {name.name for name in RECORDED.glob("*.gz")} == set(SIDES)
    assert sum(path.stat().st_size for path in RECORDED.iterdir()) < 7 << 20


@pytest.mark.slow
def test_the_regime_before_is_that_of_its_size(recorded: dict[str, Report]) -> None:
    for name in BEFORE:
        verdict = recorded[name].verdict
        expected = ("compute-bound", None) if SIDES[name]["size"] == "large" else ("overhead-bound", "launch")
        assert (verdict.regime, verdict.cause) == expected, name


@pytest.mark.slow
def test_the_step_without_recording_is_nearer_to_the_measured_one(recorded: dict[str, Report]) -> None:
    estimated = 0
    for name, report in recorded.items():
        window, unbiased, measured = report.verdict.window, report.verdict.debiased, 1e6 * SIDES[name]["mean_ms"]
        assert window is not None
        recorded_ns = window.length_ns / len(window.steps)
        if SIDES[name]["size"] == "large":
            assert recorded_ns == pytest.approx(measured, rel=GPU_BOUND), name
        if unbiased is None or unbiased.removed_ns < GPU_BOUND * window.length_ns:
            continue
        estimated += 1
        assert abs(unbiased.window_ns / len(window.steps) - measured) < abs(recorded_ns - measured), name
    assert estimated >= 12


@pytest.mark.slow
def test_what_came_is_within_the_noise_of_the_interval(compared: list[Compared]) -> None:
    predicted = [row for row in compared if row.predicted_ms is not None]
    assert len(compared) == len(BEFORE)
    assert len(predicted) >= 8
    for row in predicted:
        assert row.is_within_noise, row
        if row.size == "large":
            assert row.predicted_ms == pytest.approx(row.measured_ms, rel=GPU_BOUND), row


@pytest.mark.slow
def test_no_prediction_has_the_wrong_sign_beyond_the_noise(compared: list[Compared]) -> None:
    for row in compared:
        if row.predicted_ms is not None:
            predicted, measured = (math.log(ms / row.now_ms) for ms in (row.predicted_ms, row.measured_ms))
            least = max(2 * row.noise, GPU_BOUND)
            assert not (abs(predicted) > least and abs(measured) > least and predicted * measured < 0), row
