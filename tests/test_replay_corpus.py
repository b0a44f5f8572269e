"""Test replays of real traces: the replayed step equals the recorded one, and a recorded change is predicted."""

from pathlib import Path

import polars as pl
import pytest
from conftest import CORPUS, corpus_rows

from trace_analyzer.pipeline import analyze
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.refusals import refusal
from trace_analyzer.report import Report

REPLAYABLE = [row["file"] for row in corpus_rows() if row["device"]]
SAMPLES = sorted((Path(__file__).parents[1] / "sample_traces").glob("synthetic_*.json.gz"))
PAIRS = CORPUS.parent / "pairs"
needs_pairs = pytest.mark.skipif(not PAIRS.exists(), reason="the recorded pairs are not there")


def replayed(path: Path) -> tuple[Report, Replay, str | None]:
    report = analyze(path)
    device = report.tables["devices"].filter(pl.col("label") == str(report.verdict.device)).item(0, "device")
    replay = Replay.of(report, device)
    return report, replay, refusal(report, replay, device, ())


@pytest.mark.slow
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name.split(".")[0])
def test_a_sample_replays_as_recorded(path: Path) -> None:
    _, replay, refused = replayed(path)
    assert refused is None
    assert abs(replay.identity_ratio) < 0.002
    assert replay.summary.unexplained_ratio == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", REPLAYABLE)
def test_a_real_trace_replays_as_recorded_or_is_refused(name: str) -> None:
    _, replay, refused = replayed(CORPUS / name)
    if refused is None:
        assert abs(replay.identity_ratio) < 0.005
        for target in ("cpu", "gpu"):
            if replay.is_explained((Change("speedup", {"target": target, "factor": 2.0}),)):
                assert replay.round_trip_of(target) < 0.01
    cpu_floor, device_floor = replay.floors()
    assert max(cpu_floor, device_floor) <= replay.identity.step_ns


@pytest.mark.slow
@needs_pairs
def test_workers_that_load_data_are_predicted() -> None:
    """Check the prediction of four workers for a script without any; two recordings of it differ by up to 10 %."""
    _, before, refused = replayed(PAIRS / "v100_resnet50_workers0.json.gz")
    _, after, _ = replayed(PAIRS / "v100_resnet50_workers4.json.gz")
    assert refused is None
    predicted = before.predict((Change("prefetch", {"workers": 4}),))
    assert predicted.step_ns == pytest.approx(after.recorded_step_ns, rel=0.12)
    assert predicted.step_ns < 0.8 * before.recorded_step_ns
