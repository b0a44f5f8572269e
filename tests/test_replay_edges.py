"""Test edges of the replay's graph, one recording each: what a call waited for, and what it did not wait for."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from kineto import analysed, call, copy, launched
from lazy_report import LazyReport
from simulator import Costs, Kernel, Simulation

from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.graph import RETURN, SPIN, WAIT
from trace_analyzer.replay.prediction import Replay


def copied(direction: str, copy_ends_before_call: int, length: int = 100) -> Replay:
    """Replay copies of pageable memory by calls of 400 us, each between two kernels."""
    return Replay.of(
        analysed(
            [
                [launched("k", 1_000 * n, 1_000 * n + 10, 20, 2 * n + 1),
                 call("cudaMemcpyAsync", 1_000 * n + 50, 400, correlation=2 * n + 2),
                 copy(direction, 1_000 * n + 450 - copy_ends_before_call - length, length, correlation=2 * n + 2)]
                for n in range(30)
            ]
        ),
        0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("direction", "ends_before", "waits"),
    [
        ("HtoD (Pageable -> Device)", 5, True),
        ("HtoD (Pageable -> Device)", 150, False),
        ("DtoH (Device -> Pageable)", 5, True),
        ("DtoH (Device -> Pageable)", 150, True),
    ],
)
def test_a_call_that_returns_long_after_its_copy_to_the_device_did_not_wait_for_it(
    direction: str, ends_before: int, waits: bool
) -> None:
    """Check that a copy's bytes are staged when its call returns; what comes from the device must have arrived."""
    graph = copied(direction, ends_before).graph
    assert (graph.kind == RETURN).any() == waits
    assert np.all(graph.rest[graph.kind == RETURN] >= 0)


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_a_round_trip_of_staged_copies_leads_back(target: str) -> None:
    """On a device twice as fast, copies end long before the calls that stage their bytes."""
    assert copied("HtoD (Pageable -> Device)", -45, 300).round_trip_of(target) < 0.001


def test_each_wait_of_a_stream_for_another_takes_its_lag() -> None:
    """Check two streams that hand work to each other 40 times; 7 us pass from each end to the next start."""
    simulation = Simulation(costs=Costs(inter_kernel_ns=7_000), seed=5)
    main, streams = simulation.thread(), [simulation.stream(), simulation.stream(number=20)]
    for at in range(80):
        this, other = streams[at % 2], streams[1 - at % 2]
        main.wait_event(this, main.record_event(other))
        main.launch(Kernel("k", 50_000), this)
    main.synchronize_device()
    replay = Replay.of(LazyReport.on(simulation.json().encode(), device=0), 0)
    faster = replay.outcome((Change("speedup", {"target": "gpu", "factor": 2.0}),)).step_ns
    lags = 79 * float(np.median(replay.graph.weight[replay.graph.kind == WAIT]))
    assert lags > 79 * 1_000
    assert abs(replay.identity_ratio) < 0.001
    assert replay.identity.step_ns == pytest.approx(80 * 50_000 + lags, rel=0.01)
    infinite = replay.outcome((Change("speedup", {"target": "cpu", "factor": inf}),)).step_ns
    assert infinite == pytest.approx(replay.identity.step_ns, rel=0.01), "the lag is the device's"
    assert faster == pytest.approx(80 * 25_000 + lags, rel=0.01)


def test_a_thread_that_polls_goes_on_after_the_lag_of_its_polling() -> None:
    """Check polling every 30 us: a device twice as fast makes that no shorter, a CPU twice as fast does."""
    simulation = Simulation(seed=5)
    main, stream = simulation.thread(), simulation.stream()
    for _ in range(60):
        written = main.launch(Kernel("k", 2_000_000), stream)
        main.poll(written, every_ns=30_000)
    main.synchronize_device()
    replay = Replay.of(LazyReport.on(simulation.json().encode(), device=0), 0)
    lag = replay.graph.weight[replay.graph.kind == SPIN]
    assert lag.size == 60
    assert lag.sum() == pytest.approx(60 * 30_000, rel=0.1)
    now = replay.identity.step_ns
    assert abs(replay.identity_ratio) < 0.001
    device, host = (replay.outcome((Change("speedup", {"target": t, "factor": 2.0}),)).step_ns for t in ("gpu", "cpu"))
    assert now - device == pytest.approx(60 * 1_000_000, rel=0.005)
    assert now - host > 0.5 * lag.sum()


def test_launches_and_returns_between_waits_are_as_fast_as_the_cpu() -> None:
    """A kernel, a wait for it, and again: launch call and return halve with a CPU twice as fast,
    the device's start does not.
    """
    costs = Costs(launch_call_ns=6_000, launch_latency_ns=9_000, wake_up_ns=10_000)
    halved = replace(costs, launch_call_ns=3_000, wake_up_ns=5_000, host_factor=0.5)

    def step_ns(costs: Costs) -> Replay:
        simulation = Simulation(costs=costs, seed=5)
        main, stream = simulation.thread(), simulation.stream()
        for _ in range(60):
            main.launch(Kernel("k", 30_000), stream)
            main.synchronize(stream)
        return Replay.of(LazyReport.on(simulation.json().encode(), device=0), 0)

    before, truth = step_ns(costs), step_ns(halved).recorded_step_ns
    predicted = before.outcome((Change("speedup", {"target": "cpu", "factor": 2.0}),)).step_ns
    saving = before.recorded_step_ns - truth
    assert saving > 59 * 7_000
    assert predicted == pytest.approx(truth, abs=0.05 * saving)


def test_each_hand_over_is_as_fast_as_the_cpu() -> None:
    """Threads that take turns: all that they take halves with a CPU twice as fast."""
    costs = Costs(hand_over_ns=40_000)

    def step_ns(costs: Costs) -> Replay:
        simulation = Simulation(costs=costs, seed=5)
        main, autograd, stream = simulation.thread(), simulation.thread("pt_autograd_0"), simulation.stream()
        for _ in range(40):
            with main.op("aten::mm", before_ns=20_000):
                main.launch(Kernel("k", 5_000), stream)
            with main.hand_over(autograd), autograd.op("aten::mm", before_ns=20_000):
                autograd.launch(Kernel("k", 5_000), stream)
        return Replay.of(LazyReport.on(simulation.json().encode(), device=0), 0)

    before = step_ns(costs)
    truth = step_ns(replace(costs, hand_over_ns=20_000, launch_call_ns=2_250, host_factor=0.5)).recorded_step_ns
    predicted = before.outcome((Change("speedup", {"target": "cpu", "factor": 2.0}),)).step_ns
    assert predicted == pytest.approx(truth, abs=0.03 * (before.recorded_step_ns - truth))
