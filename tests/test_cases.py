"""Test the answers of small files that were made after public reports; each answer was worked out by hand.

The files lie beside the corpus, in ``cases``; the tests are skipped where they are absent.
"""

from collections.abc import Callable
from functools import cache

import polars as pl
import pytest
from conftest import CORPUS
from lazy_report import report_on

from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.report import Advice, Report
from trace_analyzer.units import percent

CASES = CORPUS.parent / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the files of cases are not here")
OVERHEAD, COMPUTE = "overhead-bound", "compute-bound"


@cache
def case(number: str) -> Report:
    (path,) = CASES.glob(f"{number}*.json.gz")
    return report_on(path)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("number", "regime", "idle", "steps", "sure", "noted"),
    [
        ("01a", OVERHEAD, 0.80, 5, {"medium"}, 1),
        ("02c", OVERHEAD, 0.80, 3, {"high", "medium"}, 202),
        ("03g", OVERHEAD, 0.80, 5, {"high"}, 1),
        ("04c", COMPUTE, 0.05, 0, {"medium", "low"}, 3),
        ("05c", COMPUTE, 0.05, 5, {"medium", "low"}, None),
        ("07a", OVERHEAD, 0.80, 5, {"high"}, None),
        pytest.param("07f", OVERHEAD, 0.80, 5, {"high", "medium"}, None, marks=pytest.mark.slow),
        ("36e", OVERHEAD, 0.80, 5, {"medium", "low"}, None),
        ("36g", OVERHEAD, 0.78, 5, {"high", "medium"}, None),
    ],
)
def test_regime_idle_time_steps_and_confidence(
    number: str, regime: str, idle: float, steps: int, sure: set[str], noted: int | None
) -> None:
    """Events without a time are left out and counted."""
    report = case(number)
    assert (report.verdict.status, report.verdict.regime) == ("ok", regime)
    busy = next(item.value for item in report.verdict.evidence if item.metric == "busy_ratio")
    assert 1 - busy == pytest.approx(idle, abs=0.01)
    assert report.tables["steps"].get_column("steady").sum() == steps
    assert report.verdict.confidence in sure
    assert noted in (None, sum(note.count for note in report.notes))


def impossible_duration(report: Report) -> None:
    """Check that it ends with the stream's next work."""
    assert report.devices[0].busy_ns == pytest.approx(1_200_000, rel=0.05)
    assert {note.code: note.count for note in report.notes} == {"impossible-duration": 1}


def no_json(report: Report) -> None:
    """Check that values that are none cost no event."""
    assert {note.code: note.message for note in report.notes} == {
        "not-json": "events hold nan or inf as C prints them, which are unknown values"
    }
    assert case("07f").tables["activities"].height == 120


def event_without_time(report: Report) -> None:
    """Check that it does not stretch the trace."""
    assert report.trace.duration_ns == case("00-base-sparse").trace.duration_ns


def no_correlation_id(report: Report) -> None:
    """Check that minus one is none."""
    causes = report.devices[0].gaps.by_cause_ns
    assert causes["dispatch"] > 0.7 * sum(causes.values())
    assert causes["unexplained"] == 0


@pytest.mark.slow
def test_a_step_whose_work_was_lost_has_no_regime() -> None:
    steps = case("05c").tables["steps"]
    lost = steps.filter(state="lost")
    assert (lost.height, lost.get_column("regime").null_count()) == (2, 2)
    assert steps.filter("steady").get_column("regime").null_count() == 0


def test_a_graph_of_one_rank_is_not_cut_by_the_waits_of_another() -> None:
    """Each rank waits once a step, at its end: a graph may hold the rest."""
    report = case("16b")
    assert Replay.of(report, 0).predict((Change("graphs"),)).step_ns < 1_000_000


def test_a_wait_for_work_whose_record_is_lost_is_no_launch_overhead() -> None:
    lost, control = case("19c"), case("19f")
    assert lost.verdict.status == "insufficient"
    parts = lost.verdict.parts_ns
    known = control.verdict.parts_ns
    idle = sum(known[part] for part in known if part not in {"compute", "memory", "latency", "other"})
    assert 1 - idle / sum(known.values()) == pytest.approx(0.82, abs=0.01)
    assert parts["unrecorded-work"] / sum(parts.values()) == pytest.approx(0.72, abs=0.01)


def serving_by_kv_sums(report: Report) -> None:
    """Check that SGLang's names give 2,112 tokens a mixed step, 64 a decoding step, and the lengths of their keys."""
    rows = report.tables["serving"]
    assert rows.select("step_kind", "count", "prefill_tokens", "decode_tokens").rows() == [
        ("decode", 4, None, 4 * 64), ("mixed", 4, 4 * 2_048, 4 * 64),
    ]  # fmt: skip
    assert rows.select("prefill_keys", "decode_keys").rows() == [(None, 4 * 100_032), (4 * 2_048, 4 * 65_600)]
    rates = pl.Series([4 * 64, 4 * 2_112]) / rows.get_column("time_ns") * 1e9
    assert rows.get_column("tokens_per_s").to_list() == pytest.approx(rates.to_list())


def intel_without_a_timeline(report: Report) -> None:
    """Check 120 launches, each recorded by runtime and driver, and the words of Intel's profiler."""
    assert report.verdict.status == "gpu-timeline-missing"
    assert all(words in report.verdict.headline for words in ("has 120 launches", "PTI"))
    text = report.summary()
    assert [word in text for word in ("ProfilerActivity.XPU", "CUDA", "CUPTI")] == [True, False, False]


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
    assert (report.verdict.regime, report.verdict.cause) == ("communication-bound", "collectives")
    waits = percent(1 - 2 * 7 / 8 * 10e6 / 450e9 / 490e-6)
    sentence = f"Up to {waits} of communication may be waiting for other ranks: analyze ranks FOLDER."
    assert sentence in " ".join(report.summary().split())
    overlap = advice(report, "overlap")
    assert "(451 us) may be waiting for other ranks, which analyze ranks FOLDER tells" in overlap.why


def advice(report: Report, fix: str) -> Advice:
    (item,) = (item for item in report.advice if item.id == fix)
    return item


def loading_behind_an_item(report: Report) -> None:
    """Check that both the loader's 300 us a step and the wait's are said, and what they share."""
    load = advice(report, "data-loading")
    assert advice(report, "synchronization").saving.at_most_ns >= 320_000
    assert load.saving.at_most_ns >= 300_000
    assert "300 us of it follow a wait for the device, and are hidden too if that wait goes" in load.why
    assert (load.shared_with, load.shared_ratio) == ("synchronization", pytest.approx(1))


def loading_behind_a_wait(report: Report) -> None:
    """Check the 600 us of each millisecond in which the loader keeps the device idle, and what the wait shares of it."""
    load = advice(report, "data-loading")
    assert (load.saving.at_most_ns, load.saving.at_most_ratio) == (600_000, pytest.approx(0.6))
    assert "342 us of it follow a wait" in load.why
    assert load.predicted is not None
    assert load.predicted.low_ns == 400_000
    resources = [lever.resource for lever in report.verdict.levers]
    assert resources[:2] == ["host", "compute"], "24 kernels in steps that repeat"
    assert advice(report, "synchronization").shared_with == "data-loading"
    assert (report.verdict.cause, report.advice[0].id) == ("data-loading", "data-loading")


def python_that_no_graph_removes(report: Report) -> None:
    """Check that 2 ms of tokenizing a step belong to their function, and to no graph of launches that take 100 us."""
    assert "cuda-graphs" not in [item.id for item in report.advice]
    item = advice(report, "cpu-preparation")
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


DAMAGED = {"01a": impossible_duration, "36g": no_correlation_id, "03g": event_without_time, "07a": no_json}
SLOW = pytest.mark.slow


@pytest.mark.parametrize("name", ["01a", "36g", pytest.param("03g", marks=SLOW), pytest.param("07a", marks=SLOW)])
def test_answers_on_damaged_files(name: str) -> None:
    DAMAGED[name](case(name))
