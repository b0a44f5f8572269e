"""Planted changes: the replay of a simulated program predicts the changed program's step, and every edge is needed."""

from functools import cache

import numpy as np
import pytest
from lazy_report import LazyReport
from replay_pairs import PAIRS, VARIED
from tiers import is_thorough

from trace_analyzer.replay import graph
from trace_analyzer.replay.changes import CHANGES, Change
from trace_analyzer.replay.outcomes import BEST_CASES
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.refusals import refusal

pytestmark = pytest.mark.slow

SAVING_ERROR = 0.03
every_pair = pytest.mark.parametrize("name", PAIRS)

# The pair that shows that an edge is needed.
NEEDED = {
    graph.EXECUTION: "gpu", graph.THREAD: "cpu", graph.CALL: "cpu", graph.LATENCY: "returns", graph.GAP: "gpu", graph.WAIT: "communication", graph.RETURN: "returns", graph.SPIN: "polling",
    graph.HAND_OVER: "hand-over", graph.QUEUE: "queue", graph.CONTENTION: "contention", graph.STAGING: "staging",
}  # fmt: skip


@cache
def replays(name: str) -> tuple[Replay, str | None, float]:
    """Return the replay of the program before the change, why it is refused, and the step after the change."""
    pair = PAIRS[name]
    before = LazyReport.on(pair.before(1), device=0)
    replay = Replay.of(before, 0)
    return (
        replay,
        refusal(before, replay, 0, pair.changes),
        Replay.of(LazyReport.on(pair.after(1), device=0), 0).recorded_step_ns,
    )


# Targets of a speed-up, and the pair that speeds them up.
SPED_UP = {
    "cpu": "cpu", "gpu": "gpu", "a bucket": "bucket", "a group": "group", "an operator": "operator", "a module": "module",
    "communication": "communication", "copies": "copies", "several devices": "devices",
}  # fmt: skip


def test_every_edge_has_a_pair_that_needs_it() -> None:
    assert sorted(NEEDED) == list(range(len(graph.EDGES)))
    assert set(NEEDED.values()) <= set(PAIRS)


def test_every_change_has_a_planted_pair() -> None:
    planted = {change.name for pair in PAIRS.values() for change in pair.changes}
    assert planted == set(CHANGES)
    assert set(SPED_UP.values()) <= {name for name, pair in PAIRS.items() if pair.changes[0].name == "speedup"}


def test_every_best_case_has_a_pair_that_falls_short_of_it() -> None:
    varied = {change.name for pair in VARIED.values() for change in pair.changes}
    assert varied >= set(BEST_CASES) - {"bf16"}, "bf16 is tf32 with another roof"
    assert "bf16" in BEST_CASES


@every_pair
def test_a_planted_change_is_predicted(name: str) -> None:
    replay, refused, truth = replays(name)
    assert refused is None
    assert abs(replay.identity_ratio) < 0.005
    predicted = replay.predict(PAIRS[name].changes)
    saving = abs(replay.recorded_step_ns - truth)
    assert abs(predicted.step_ns - truth) <= max(SAVING_ERROR * saving, 0.001 * truth)
    assert predicted.low_ns * (1 - 1e-5) <= truth <= predicted.high_ns, "times are whole nanoseconds"


@pytest.mark.parametrize("name", VARIED)
def test_an_interval_holds_what_a_change_brings_that_falls_short_of_its_best_case(name: str) -> None:
    """Of two or five programs each, in which kernels, graphs and workers do worse than the model has them."""
    pair, inside = VARIED[name], []
    seeds = range(1, 6 if is_thorough() else 3)
    for seed in seeds:
        replay = Replay.of(LazyReport.on(pair.before(seed), device=0), 0)
        truth = Replay.of(LazyReport.on(pair.after(seed), device=0), 0).recorded_step_ns
        predicted = replay.predict(pair.changes)
        assert predicted.low_ns <= 1.001 * truth, "the lower end is the best case"
        inside.append(predicted.low_ns <= truth <= predicted.high_ns)
    assert sum(inside) >= 0.8 * len(seeds)


@pytest.mark.parametrize("edge", NEEDED)
def test_without_an_edge_a_prediction_is_wrong(edge: int) -> None:
    name = NEEDED[edge]
    replay, _, truth = replays(name)
    weights = replay.weights(PAIRS[name].changes)
    weights.removed |= replay.graph.kind == edge
    predicted = replay.run(weights).step_ns
    assert abs(predicted - truth) > SAVING_ERROR * abs(replay.recorded_step_ns - truth)


@pytest.mark.sampled
@every_pair
def test_a_round_trip_leads_back(name: str) -> None:
    replay, _, _ = replays(name)
    streams = len(np.unique(replay.graph.recorded.activities.track))
    assert max(map(replay.round_trip_of, ("cpu", "gpu"))) < (0.01 if streams == 1 else 0.05)


def test_changes_compose() -> None:
    replay, _, _ = replays("no-sync")
    both = (Change("no-sync"), Change("speedup", {"target": "gpu", "factor": 2.0}))
    alone = [replay.predict((change,)).step_ns for change in both]
    together = replay.predict(both).step_ns
    assert together < min(alone)
    assert replay.predict(both[::-1]) == replay.predict(both)


def test_factors_multiply() -> None:
    replay, _, _ = replays("bucket")
    twice = Change("speedup", {"target": "matmul", "factor": 2.0})
    fourfold = Change("speedup", {"target": "matmul", "factor": 4.0})
    assert replay.predict((twice, twice)).step_ns == pytest.approx(replay.predict((fourfold,)).step_ns, rel=1e-4)
