"""Test the truth script in `sample_traces/`, as far as it needs no GPU."""

import json
import shutil
from pathlib import Path

import pytest
import record_truth
from record_truth import CHANGES, SIZES, compare, main

from trace_analyzer.replay.whatif import changes_of

SAMPLE = Path(__file__).parents[1] / "sample_traces" / "synthetic_overhead_synchronization.json.gz"


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
    assert len(different) == 1
    assert len(changes_of(**pair.whatif)) == 1


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


def test_what_the_profiler_costs_is_taken_out(tmp_path: Path) -> None:
    (row,) = compare(folder(tmp_path, 2.0, mean_ms=6.89 / 2))
    assert row.predicted_ms == pytest.approx(4.12 / 2, rel=0.01)


@pytest.mark.slow
def test_a_pair_is_recorded_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(record_truth, "SIZES", {"tiny": {"width": 16, "layers": 2, "batch": 4}})
    monkeypatch.setattr(record_truth, "GROUP_SECONDS", 0.001)
    rows = record_truth.record(tmp_path, "cpu", ["tiny"], ["sync", "data"])
    assert len(rows) == 2
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
