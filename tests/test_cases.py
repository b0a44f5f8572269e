"""Test the answers of small files that were made after public reports; each answer was worked out by hand.

The files lie beside the corpus, in ``cases``; the tests are skipped where they are absent.
"""

from collections.abc import Callable
from functools import cache

import polars as pl
import pytest
from conftest import CORPUS

from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report
from trace_analyzer.units import percent

CASES = CORPUS.parent / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the files of cases are not here")
OVERHEAD, COMPUTE = "overhead-bound", "compute-bound"


@cache
def case(number: str) -> Report:
    (path,) = CASES.glob(f"{number}*.json.gz")
    return analyze(path)


def idle_ratio(report: Report) -> float:
    return 1 - next(item.value for item in report.verdict.evidence if item.metric == "busy_ratio")


def counts(report: Report) -> dict[str, int]:
    return {note.code: note.count for note in report.notes}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("number", "regime", "idle", "steps", "sure"),
    [
        ("01a", OVERHEAD, 0.80, 5, {"medium"}),
        ("02c", OVERHEAD, 0.80, 3, {"high", "medium"}),
        ("03g", OVERHEAD, 0.80, 5, {"high"}),
        ("04c", COMPUTE, 0.05, 0, {"medium", "low"}),
        ("05c", COMPUTE, 0.05, 5, {"medium", "low"}),
        ("07a", OVERHEAD, 0.80, 5, {"high"}),
        pytest.param("07f", OVERHEAD, 0.80, 5, {"high", "medium"}, marks=pytest.mark.slow),
        ("36e", OVERHEAD, 0.80, 5, {"medium", "low"}),
        ("36g", OVERHEAD, 0.78, 5, {"high", "medium"}),
    ],
)
def test_regime_idle_time_steps_and_confidence(
    number: str, regime: str, idle: float, steps: int, sure: set[str]
) -> None:
    report = case(number)
    assert (report.verdict.status, report.verdict.regime) == ("ok", regime)
    assert idle_ratio(report) == pytest.approx(idle, abs=0.01)
    assert report.tables["steps"].get_column("steady").sum() == steps
    assert report.verdict.confidence in sure


def test_an_impossible_duration_ends_with_the_streams_next_work() -> None:
    report = case("01a")
    assert report.devices[0].busy_ns == pytest.approx(1_200_000, rel=0.05)
    assert counts(report) == {"impossible-duration": 1}


@pytest.mark.slow
def test_events_without_a_time_are_left_out_and_counted() -> None:
    assert sum(counts(case("02c")).values()) == 202
    assert sum(counts(case("03g")).values()) == 1
    assert case("03g").trace.duration_ns == case("00-base-sparse").trace.duration_ns
    assert sum(counts(case("04c")).values()) == 3


@pytest.mark.slow
def test_values_that_are_no_json_cost_no_event() -> None:
    assert counts(case("07a")).keys() == {"not-json"}
    assert case("07f").tables["activities"].height == 120


@pytest.mark.slow
def test_a_wait_for_work_whose_record_is_lost_is_no_launch_overhead() -> None:
    lost, control = case("19c"), case("19f")
    assert lost.verdict.status == "insufficient"
    parts = lost.verdict.parts_ns
    known = control.verdict.parts_ns
    idle = sum(known[part] for part in known if part not in {"compute", "memory", "latency", "other"})
    assert 1 - idle / sum(known.values()) == pytest.approx(0.82, abs=0.01)
    assert parts["unrecorded-work"] / sum(parts.values()) == pytest.approx(0.72, abs=0.01)


def test_minus_one_is_no_correlation_id() -> None:
    causes = case("36g").devices[0].gaps.by_cause_ns
    assert causes["dispatch"] > 0.7 * sum(causes.values())
    assert causes["unexplained"] == 0


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
    assert report.trace.idle_devices == ()
    verdict = report.verdict
    assert verdict.parts_ns["compute"] / sum(verdict.parts_ns.values()) == pytest.approx(0.16)
    assert [device.busy_ns for device in report.devices] == [6 * 160_000] * 2
    steps = report.tables["steps"]
    assert steps.group_by("device").len().get_column("len").to_list() == [6, 6]
    assert (steps.get_column("host_end_ns") - steps.get_column("host_start_ns")).to_list() == [999_000] * 12


def a_rank_alone(report: Report) -> None:
    """Check that 10 MB at 490 us are communication, of which all but the 39 us of the links may be waiting for peers."""
    verdict = report.verdict
    assert (verdict.regime, verdict.cause) == ("communication-bound", "collectives")
    waits = percent(1 - 2 * 7 / 8 * 10e6 / 450e9 / 490e-6)
    assert f"Up to {waits} of communication may be waiting for other ranks: analyze ranks FOLDER." in " ".join(
        report.summary().split()
    )
    (overlap,) = (item for item in report.advice if item.id == "overlap")
    assert "(451 us) may be waiting for other ranks, which analyze ranks FOLDER tells" in overlap.why


def saving(report: Report, fix: str) -> tuple[int, float]:
    """Return the bound of an advice in a step: us, and its share."""
    (item,) = (item for item in report.advice if item.id == fix)
    return round(item.saving.at_most_ns / 1_000), item.saving.at_most_ratio


def loading_behind_an_item(report: Report) -> None:
    """Check that both the loader's 300 us a step and the wait's are said, and what they share."""
    (wait,) = (item for item in report.advice if item.id == "synchronization")
    (load,) = (item for item in report.advice if item.id == "data-loading")
    assert wait.saving.at_most_ns >= 320_000
    assert load.saving.at_most_ns >= 300_000
    assert "300 us of it follow a wait for the device, and are hidden too if that wait goes" in load.why
    assert load.shared_with == "synchronization"
    assert load.shared_ratio == pytest.approx(1)


def loading_behind_a_wait(report: Report) -> None:
    """Check the 600 us of each millisecond in which the loader keeps the device idle, and what the wait shares of it."""
    assert saving(report, "data-loading") == (600, pytest.approx(0.6))
    (load,) = (item for item in report.advice if item.id == "data-loading")
    assert "342 us of it follow a wait" in load.why
    assert (load.saving.at_most_ns, load.predicted and load.predicted.low_ns) == (600_000, 400_000)
    assert [lever.resource for lever in report.verdict.levers][:2] == ["host", "compute"], (
        "24 kernels in steps that repeat"
    )
    (wait,) = (item for item in report.advice if item.id == "synchronization")
    assert wait.shared_with == "data-loading"
    assert (report.verdict.cause, report.advice[0].id) == ("data-loading", "data-loading")


def python_that_no_graph_removes(report: Report) -> None:
    """Check that 2 ms of tokenizing a step belong to their function, and to no graph of launches that take 100 us."""
    assert "cuda-graphs" not in [item.id for item in report.advice]
    (item,) = (item for item in report.advice if item.id == "cpu-preparation")
    assert item.where == "tokenizer.py(3): encode_batch (610 us a step)"
    assert "another thread or process" in item.code


def silence_that_needs_stacks(report: Report) -> None:
    """Check that 2 ms of silence a step have no other answer than stacks, and none of the graph's."""
    assert report.advice[0].id == "record-stacks"
    assert report.advice[0].saves_ns_at_most == 0
    assert "with_stack=True" in report.advice[0].code
    assert "cuda-graphs" not in [item.id for item in report.advice]


def five_steps_are_several(report: Report) -> None:
    """Check that a recording of five marked steps is not asked for several."""
    text = report.summary()
    assert "What to record instead" in text
    assert "several whole steps" not in text


ANSWERS: dict[str, Callable[[Report], None]] = {
    "16b-merged-ranks-same-device-number": two_ranks_of_one_number,
    "19c-lost-kernel-streamsync": five_steps_are_several,
    "19f-control": five_steps_are_several,
    "22a-xpu-host-only": intel_without_a_timeline,
    "24c-item-then-load-long": loading_behind_an_item,
    "24e-loader-after-sync": loading_behind_a_wait,
    "29a-python-tokenize": python_that_no_graph_removes,
    "29f-silence-dominates": silence_that_needs_stacks,
    "28b-peer-copy": copies_between_devices,
    "35a-rank-alone-nccl-wait": a_rank_alone,
    "38a-serving-kv": serving_by_kv_sums,
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", ANSWERS)
def test_answers_on_writers_and_vendors(name: str) -> None:
    ANSWERS[name](case(name))
