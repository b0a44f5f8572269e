"""Hold small traces made after public reports (the corpus's neighbour `cases`) against answers worked out by hand."""

from collections.abc import Callable

import polars as pl
import pytest
from conftest import CORPUS

from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report

CASES = CORPUS.parent / "cases"

pytestmark = pytest.mark.skipif(not CASES.exists(), reason="the cases beside the corpus ($TRACE_CORPUS) are absent")


def serving_by_kv_sums(report: Report) -> None:
    """Check that SGLang's names give 2,112 tokens a mixed step, 64 a decoding step, and the lengths of their keys."""
    rows = report.tables["serving"]
    assert rows.select("step_kind", "count", "prefill_tokens", "decode_tokens").rows() == [
        ("decode", 4, None, 4 * 64), ("mixed", 4, 4 * 2_048, 4 * 64),
    ]  # fmt: skip
    assert rows.select("prefill_keys", "decode_keys").rows() == [(None, 4 * 100_032), (4 * 2_048, 4 * 65_600)]
    tokens = pl.Series([4 * 64, 4 * 2_112])
    assert rows.get_column("tokens_per_s").to_list() == pytest.approx(
        (tokens / rows.get_column("time_ns") * 1e9).to_list()
    )


def intel_without_a_timeline(report: Report) -> None:
    """Check 120 launches, each recorded by runtime and driver, and the words of Intel's profiler."""
    assert report.verdict.status == "gpu-timeline-missing"
    assert "has 120 launches" in report.verdict.headline
    assert "PTI" in report.verdict.headline
    text = report.summary()
    assert "ProfilerActivity.XPU" in text
    assert "CUDA" not in text
    assert "CUPTI" not in text


def copies_between_devices(report: Report) -> None:
    """Check 400 us of copies a step, alone: 40 %, between devices, and no word of host memory or its loader."""
    verdict = report.verdict
    assert (verdict.regime, verdict.cause) == ("communication-bound", "copies")
    assert verdict.parts_ns["copy"] / sum(verdict.parts_ns.values()) == pytest.approx(0.4)
    text = report.summary(verbose=True)
    assert "between devices" in text
    assert not [word for word in ("pin_memory", "DataLoader", "copies between host and device") if word in text]


def two_ranks_of_one_number(report: Report) -> None:
    """Check two devices, each 16 % busy in 6 steps of 1 ms."""
    assert report.tables["devices"].get_column("label").to_list() == ["[TP00] 0", "[TP01] 0"]
    verdict = report.verdict
    assert verdict.parts_ns["compute"] / sum(verdict.parts_ns.values()) == pytest.approx(0.16)
    assert [device.busy_ns for device in report.devices] == [6 * 160_000] * 2
    steps = report.tables["steps"]
    assert steps.group_by("device").len().get_column("len").to_list() == [6, 6]
    assert (steps.get_column("host_end_ns") - steps.get_column("host_start_ns")).to_list() == [999_000] * 12


ANSWERS: dict[str, Callable[[Report], None]] = {
    "16b-merged-ranks-same-device-number": two_ranks_of_one_number,
    "22a-xpu-host-only": intel_without_a_timeline,
    "28b-peer-copy": copies_between_devices,
    "38a-serving-kv": serving_by_kv_sums,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_right_answer(name: str) -> None:
    ANSWERS[name](analyze(CASES / f"{name}.json.gz"))
