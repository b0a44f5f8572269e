"""Test the verdict with lower bounds of the replay: where removing a regime saves nothing, it names the limit."""

from dataclasses import replace

import pytest
from kineto import analysed, annotation, call, launched, op, python

from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.estimates import Estimates, verdict_with_floors
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.refusals import refused_unseen
from trace_analyzer.report import Regime, Report, Verdict


def judged(regime: Regime | None, confidence: str = "high") -> Verdict:
    """Return a verdict of which only the regime and the confidence count."""
    status = "ok" if regime else "insufficient"
    return Verdict(status, regime, None, None, confidence, ("one window",), 0, None, None, {}, "A headline.", ())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("regime", "floors", "says"),
    [
        ("compute-bound", (98.5, 60), "In the replay the CPU is the limit: an infinitely fast device saves 1.5 % of a step."),
        ("memory-bandwidth-bound", (100, 60), "In the replay the CPU is the limit: an infinitely fast device saves nothing of a step."),
        ("communication-bound", (99, 60), "In the replay the CPU is the limit: an infinitely fast device saves 1.0 % of a step."),
        ("overhead-bound", (60, 99), "In the replay the device is the limit: an infinitely fast CPU saves 1.0 % of a step."),
        ("compute-bound", (99, 99), "In the replay CPU and device are the limit together: no fix of one alone saves 2 %."),
        ("overhead-bound", (99, 99), "In the replay CPU and device are the limit together: no fix of one alone saves 2 %."),
        ("compute-bound", (97, 60), None),
        ("compute-bound", (60, 99), None),
        ("overhead-bound", (99, 97), None),
        ("overhead-bound", None, None),
        (None, (99, 60), None),
    ],
)  # fmt: skip
def test_floors_that_contradict_the_regime_are_reported_once_and_count_as_a_doubt(
    regime: Regime | None, floors: tuple[float, float] | None, says: str | None
) -> None:
    before = judged(regime)
    after = verdict_with_floors(before, Estimates(0, None, 100.0, floors))
    if says is None:
        assert after == before
        return
    assert after.headline == f"A headline. {says}"
    assert (after.confidence, after.confidence_why[1:]) == ("medium", ("one window",))
    assert after.confidence_why[0] == says.partition(":")[0].replace("In", "in", 1)
    assert replace(after, headline="", confidence="high", confidence_why=()) == replace(
        before, headline="", confidence="high", confidence_why=()
    )


@pytest.mark.parametrize(("confidence", "then"), [("high", "medium"), ("medium", "low"), ("low", "low")])
def test_a_contradiction_lowers_the_confidence_by_a_level(confidence: str, then: str) -> None:
    assert (
        verdict_with_floors(judged("compute-bound", confidence), Estimates(0, None, 100.0, (99, 60))).confidence == then
    )


def paced(host: int, device: int) -> Report:
    """Build steps of ten kernels, each launched at the end of its own operator, for which the CPU does not wait."""
    period = max(host, device)
    return analysed(
        [
            [annotation(f"ProfilerStep#{n}", 10 * period * n, 10 * period),
             *([op("aten::add", at, host), launched("k", at + host - 6, at + host, device, 10 * n + i + 1)]
               for i, at in enumerate(range(10 * period * n, 10 * period * (n + 1), period)))]
            for n in range(10)
        ]
    )  # fmt: skip


@pytest.mark.parametrize(("device", "contradicts"), [(90, True), (100, False)])
def test_a_busy_device_that_keeps_up_with_the_cpu_is_not_the_limit(device: int, contradicts: bool) -> None:
    """A device that is busy nine tenths of the time is its regime; a replay finds that only the CPU decides."""
    verdict = paced(98 if contradicts else 40, device).verdict
    assert verdict.regime != "overhead-bound"
    assert ("In the replay the CPU is the limit" in verdict.headline) == contradicts


def test_a_file_without_the_calls_that_wait_is_not_replayed() -> None:
    """PyTorch orders each collective by events: where none is left and the arrows are gone too, waits look like work."""
    collective = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    rounds = [
        [
            launched("k", 100 * n, 100 * n + 10, 20, 2 * n + 1),
            launched(collective, 100 * n + 30, 100 * n + 40, 50, 2 * n + 2),
        ]
        for n in range(30)
    ]
    edited = analysed(rounds)
    assert "waits were removed" in str(refused_unseen(edited, 0))
    assert refused_unseen(analysed(rounds, call("cudaEventRecord", 25, 1)), 0) is None
    assert refused_unseen(analysed([launched("k", 50 * n, 50 * n + 10, 20, n + 1) for n in range(60)]), 0) is None


def test_neither_graphs_nor_a_faster_cpu_shorten_a_wait_for_others() -> None:
    def predicted(frame: str) -> tuple[float, float]:
        rounds = [
            [python(frame, 1_000 * n + 20, 900), launched("k", 1_000 * n + 930, 1_000 * n + 940, 20, n + 1)]
            for n in range(60)
        ]
        replay = Replay.of(analysed(rounds), 0)
        changes = Change("graphs"), Change("speedup", {"target": "cpu", "factor": 2.0})
        return tuple(replay.predict((change,)).step_ns for change in changes)  # type: ignore[return-value]

    waits_ns = 59 * 900_000
    assert min(predicted("queue.py(154): get")) >= waits_ns
    assert max(predicted("train.py(9): get")) < 0.6 * waits_ns
