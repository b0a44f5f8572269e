"""Test the verdict by the replay: what limits is what a step waits for."""

import dataclasses
import json
from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from kineto import analysed, annotation, call, copy, kernel, launch, launched, op, python, sync, trace_bytes
from lazy_report import LazyReport
from msgspec.structs import replace
from simulator import Costs, Kernel, Simulation
from test_replay_changes import program
from test_replays import ADD, CAST, GEMM, GRIDS, NAMES, WHOLE, capture, eager, named, notes, operators, replay, taken
from tiers import examples

from trace_analyzer.pipeline import analyze
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.graph import (
    CONTENTION,
    EXECUTION,
    GAP,
    LATENCY,
    RETURN,
    SPIN,
    STAGING,
    WAIT,
    _last_of_steps,
    _mapped,
    steady_edges,
)
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.recording import Ints
from trace_analyzer.replay.refusals import refusal, refused_unseen
from trace_analyzer.replay.weights import Scene, Weights, infinite_gpu, instant_cpu
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("host", [98, 150, 40])
def test_a_busy_device_that_keeps_up_with_the_cpu_is_not_the_limit(host: int) -> None:
    """A device that is busy nine tenths of the time hides behind the CPU: what limits is what a step waits for."""
    verdict = paced(host, 90).verdict
    assert (verdict.regime == "overhead-bound") is (host > 90)
    of = {lever.resource: lever for lever in verdict.levers}
    device = next(lever for name, lever in of.items() if name != "host")
    assert of["host"].saves_ratio == pytest.approx(max(0, 1 - 90 / host), abs=0.02)
    assert device.saves_ratio == pytest.approx(0, abs=0.02)  # the host launches no faster than the device works


COLLECTIVE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def test_a_file_without_the_calls_that_wait_is_not_replayed() -> None:
    """PyTorch orders each collective by events: where none is left and the arrows are gone too, waits look like work."""
    rounds = [
        [
            launched("k", 100 * n, 100 * n + 10, 20, 2 * n + 1),
            launched(COLLECTIVE, 100 * n + 30, 100 * n + 40, 50, 2 * n + 2),
        ]
        for n in range(30)
    ]
    edited = analysed(rounds)
    assert "waits were removed" in str(refused_unseen(edited, 0))
    assert refused_unseen(analysed(rounds, call("cudaEventRecord", 25, 1)), 0) is None
    assert refused_unseen(analysed([launched("k", 50 * n, 50 * n + 10, 20, n + 1) for n in range(60)]), 0) is None


@pytest.mark.parametrize(
    ("name", "waits"), [(COLLECTIVE, True), ("sgemm", False), ("Memcpy PtoP (Device -> Device)", True)]
)
def test_without_waits_collectives_and_copies_may_still_have_to_end_first(name: str, waits: bool) -> None:
    """On a stream of its own, nothing but the wait may keep later work from starting before the results are there."""
    category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    rounds = [
        [launched("k", at, at + 10, 400, number), launch(at + 20, 5, number + 1), call("cudaDeviceSynchronize", at + 30, 900),
         kernel(name, at + 420, 500, stream=20, correlation=number + 1, category=category)]
        for at, number in zip(range(0, 30_000, 1_000), range(1, 60, 2), strict=True)
    ]  # fmt: skip
    replay = Replay.of(analysed(rounds), 0)
    then = replay.predict((Change("no-sync"),))
    assert then.step_ns < 0.8 * replay.recorded_step_ns
    assert (then.high_ns > 0.95 * replay.recorded_step_ns) is waits


@pytest.mark.parametrize("period", [1_010, 1_000], ids=["launched after the wait", "launched in the wait's last 3 us"])
def test_steps_whose_work_was_lost_are_not_judged(period: int) -> None:
    """The CPU launches ten kernels of 95 us and waits for them; of two of eight steps no kernel was recorded.

    A replay of the other steps has them as they were, and says what the whole recording says.
    """

    def replayed(lost: tuple[int, ...]) -> tuple[Any, Replay]:
        steps = []
        for n in range(8):
            at, ids = period * n, range(10 * n + 1, 10 * n + 11)
            steps.append(
                [annotation(f"ProfilerStep#{n}", at, period - 1), call("cudaDeviceSynchronize", at + 105, 901),
                 *(launch(at + 3 + 10 * i, 3, number) for i, number in enumerate(ids)),
                 *(kernel("k", at + 8 + 100 * i, 95, correlation=number) for i, number in enumerate(ids) if n not in lost)]
            )  # fmt: skip
        report = analysed(steps)
        replay = Replay.of(report, 0)
        return refusal(report, replay, 0, (Change("no-sync"),)), replay

    (whole_refused, whole), (refused, replay) = replayed(()), replayed((2, 5))
    assert (whole_refused, refused) == (None, None)
    assert abs(replay.identity_ratio) < 0.01
    for change in (Change("no-sync"), Change("speedup", {"target": "gpu", "factor": 2.0})):
        assert replay.predict((change,)).step_ns == pytest.approx(whole.predict((change,)).step_ns, rel=0.02)


@pytest.mark.parametrize("lost_us", [150, 400])
def test_without_waits_the_time_of_work_that_was_lost_stays(lost_us: int) -> None:
    """One of 60 waits ends long after the recorded work; up to 200 us later, it is a slow return."""
    rounds = [
        [launched("k", at, at + 10, 400, n + 1), call("cudaDeviceSynchronize", at + 20, 395 + lost_us * (n == 30))]
        for n, at in enumerate(range(0, 60_000, 1_000))
    ]
    before, after = (Replay.of(analysed(rounds), 0).weights(changes) for changes in ((), (Change("no-sync"),)))
    assert before.rest.max() == pytest.approx(lost_us * 1_000)
    assert after.rest[~after.removed].sum() == (before.rest.sum() if lost_us > 200 else 0)


@pytest.mark.parametrize("change", [instant_cpu, infinite_gpu])
def test_what_nothing_explains_is_a_part_of_the_time_whatever_changes(change: Callable[[Weights, Scene], None]) -> None:
    """Some kernels start 60 us late, and one of 60 waits ends 400 us late; all other gaps are 2 us."""
    rounds = [
        [[launched("k", at + 20 * m, at + 30 + 92 * m + late, 90 - late, 100 * n + m)
          for m in range(1, 9) for late in [60 if m == 5 and n % 5 == 0 else 0]],
         call("cudaDeviceSynchronize", at + 200, 667 + 400 * (n == 30))]
        for n, at in enumerate(range(0, 120_000, 2_000), start=1)
    ]  # fmt: skip
    replay = Replay.of(analysed(rounds), 0)
    before = replay.weights(())
    assert [before.rest[replay.graph.kind == kind].max() for kind in (GAP, RETURN)] == [60_000, 400_000]
    after = before.copy()
    change(after, replay.scene)
    assert (after.rest <= after.device).all()


@pytest.mark.parametrize("others", [1, 8])
def test_no_call_waits_for_what_is_launched_after_it_began(others: int) -> None:
    """Meanwhile another thread launches kernels, the last of which end just before the call returns."""
    rounds = [
        [launched("k", at, at + 10, 390, 100 * n), call("cudaEventSynchronize", at + 20, 395),
         [[launch(at + 30 + m, 1, 100 * n + m, tid=9), kernel("short", at + 401 + m, 1, stream=9, correlation=100 * n + m)]
          for m in range(1, others + 1)]]
        for n, at in enumerate(range(0, 30_000, 1_000), start=1)
    ]  # fmt: skip
    graph = Replay.of(analysed(rounds), 0).graph
    waits = np.flatnonzero(graph.kind == RETURN)
    awaited = np.searchsorted(graph.ends, graph.source[waits])
    assert (graph.ends[awaited] == graph.source[waits]).all()
    calls = graph.recorded.calls
    launches = calls.start[graph.recorded.activities.call[awaited]]
    assert (launches < calls.start[graph.ref[waits]]).all()
    assert waits.size == (30 if others == 1 else 0), "beyond a few, none is known to be what the call waits for"


@pytest.mark.parametrize(("ahead_us", "is_named"), [(1, False), (1, True), (15, True)])
def test_a_call_waits_for_its_work_though_the_clock_of_the_device_is_late(ahead_us: int, is_named: bool) -> None:
    """The call returns before the last kernel ends, by the two clocks; CUPTI's row names the stream that it waits for."""
    replay = Replay.of(late_clock(ahead_us, is_named=is_named), 0)
    assert (replay.graph.kind == RETURN).sum() == 8
    assert abs(replay.identity_ratio) < 0.001
    assert replay.predict((Change("no-sync"),)).step_ns == pytest.approx(1_000_000, rel=0.02)


@pytest.mark.parametrize(("ahead_us", "is_named"), [(2, False), (21, True)])
def test_clocks_that_disagree_are_the_reason_of_a_refusal(ahead_us: int, is_named: bool) -> None:
    report = late_clock(ahead_us, is_named=is_named)
    reason = refusal(report, Replay.of(report, 0), 0, ())
    assert reason is not None
    assert reason.endswith("the clocks of host and device may disagree")


def late_clock(ahead_us: int, *, is_named: bool) -> Report:
    """Return a loop whose waits return before the last kernel ends: the device's clock is so far ahead."""
    rows = [
        [annotation(f"ProfilerStep#{n}", at, 1_009), call("cudaStreamSynchronize", at + 105, 901, correlation=1_000 + n),
         *(launched("k", at + 3 + 10 * i, at + 11 + ahead_us + 100 * i, 95, 10 * n + i + 1) for i in range(10)),
         *([sync("Stream Sync", at + 106, 900, correlation=1_000 + n)] if is_named else [])]
        for n, at in enumerate(range(0, 8 * 1_010, 1_010))
    ]  # fmt: skip
    return analysed(rows)


def test_neither_graphs_nor_a_faster_cpu_shorten_a_wait_for_others() -> None:
    def predicted(frame: str) -> tuple[float, float]:
        at = range(0, 60_000, 1_000)
        rounds = [[python(frame, t + 20, 900), launched("k", t + 930, t + 940, 20, n + 1)] for n, t in enumerate(at)]
        replay = Replay.of(analysed(rounds), 0)
        changes = Change("graphs"), Change("speedup", {"target": "cpu", "factor": 2.0})
        return tuple(replay.predict((change,)).step_ns for change in changes)  # type: ignore[return-value]

    waits_ns = 59 * 900_000
    assert min(predicted("queue.py(154): get")) >= waits_ns
    assert max(predicted("train.py(9): get")) < 0.6 * waits_ns


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
        ("HtoD (Pageable -> Device)", 150, True),
        ("HtoD (Pageable -> Device)", -50, False),
        ("DtoH (Device -> Pageable)", 5, True),
        ("DtoH (Device -> Pageable)", 150, True),
    ],
)
def test_a_call_of_a_blocking_copy_waits_for_its_end_or_for_its_start(
    direction: str, ends_before: int, waits: bool
) -> None:
    replay = copied(direction, ends_before)
    graph = replay.graph
    assert (graph.kind == RETURN).any() == waits
    assert (graph.kind == STAGING).any() != waits
    assert not graph.rest.any(), "what follows the wait is the call's own time"
    assert np.all(graph.rest[graph.kind == RETURN] >= 0)
    assert replay.weights((Change("pinned"),)).removed[(graph.kind == RETURN) | (graph.kind == STAGING)].all()


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_a_round_trip_of_staged_copies_leads_back(target: str) -> None:
    """On a device twice as fast, copies end long before the calls that stage their bytes."""
    assert copied("HtoD (Pageable -> Device)", -45, 300).round_trip_of(target) < 0.001


def replayed(simulation: Simulation) -> Replay:
    return Replay.of(LazyReport.on(simulation.json().encode(), device=0), 0)


def test_each_wait_of_a_stream_for_another_takes_its_lag() -> None:
    """Check two streams that hand work to each other 40 times; 7 us pass from each end to the next start."""
    simulation = Simulation(costs=Costs(inter_kernel_ns=7_000), seed=5)
    main, streams = simulation.thread(), [simulation.stream(), simulation.stream(number=20)]
    for at in range(80):
        this, other = streams[at % 2], streams[1 - at % 2]
        main.wait_event(this, main.record_event(other))
        main.launch(Kernel("k", 50_000), this)
    main.synchronize_device()
    replay = replayed(simulation)
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
    replay = replayed(simulation)
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
    halved = dataclasses.replace(costs, launch_call_ns=3_000, wake_up_ns=5_000, host_factor=0.5)

    def step_ns(costs: Costs) -> Replay:
        simulation = Simulation(costs=costs, seed=5)
        main, stream = simulation.thread(), simulation.stream()
        for _ in range(60):
            main.launch(Kernel("k", 30_000), stream)
            main.synchronize(stream)
        return replayed(simulation)

    before, truth = step_ns(costs), step_ns(halved).recorded_step_ns
    predicted = before.outcome((Change("speedup", {"target": "cpu", "factor": 2.0}),)).step_ns
    saving = before.recorded_step_ns - truth
    assert saving > 59 * 7_000
    assert predicted == pytest.approx(truth, abs=0.05 * saving)


def test_each_hand_over_is_as_fast_as_the_cpu() -> None:
    costs = Costs(hand_over_ns=40_000)

    def step_ns(costs: Costs) -> Replay:
        simulation = Simulation(costs=costs, seed=5)
        main, autograd, stream = simulation.thread(), simulation.thread("pt_autograd_0"), simulation.stream()
        for _ in range(40):
            with main.op("aten::mm", before_ns=20_000):
                main.launch(Kernel("k", 5_000), stream)
            with main.hand_over(autograd), autograd.op("aten::mm", before_ns=20_000):
                autograd.launch(Kernel("k", 5_000), stream)
        return replayed(simulation)

    before = step_ns(costs)
    truth = step_ns(
        dataclasses.replace(costs, hand_over_ns=20_000, launch_call_ns=2_250, host_factor=0.5)
    ).recorded_step_ns
    predicted = before.outcome((Change("speedup", {"target": "cpu", "factor": 2.0}),)).step_ns
    assert predicted == pytest.approx(truth, abs=0.03 * (before.recorded_step_ns - truth))


def executed(*places: tuple[int, int, int]) -> list[Any]:
    """Build one pass with each kernel at a (place in time, stream, device)."""
    return [
        operators(0),
        [launch(10 * i + 2, 3, 1 + i) for i in range(4)],
        [kernel(name, 100 + 50 * at, 50, correlation=1 + i, stream=stream, device=device, grid=GRIDS[i], block=[128, 1, 1])
         for i, (name, (at, stream, device)) in enumerate(zip(NAMES, places, strict=True))],
    ]  # fmt: skip


OUT_OF_ORDER = executed((0, 7, 0), (2, 7, 0), (1, 8, 0), (3, 7, 0))
OF_TWO_DEVICES = executed((0, 7, 0), (1, 7, 0), (2, 7, 1), (3, 7, 1))
FEW = [
    call("cudaStreamBeginCapture", 0, 1), operators(5)[:3], [launch(10 * i + 7, 3, 500 + i) for i in range(3)],
    call("cudaStreamEndCapture", 60, 1),
]  # fmt: skip
# What was executed or captured, a graph, and how its kernels match; of no confidence only operators and modules are taken.
MATCHES: dict[str, tuple[list[Any], list[Any], str | None, float | None]] = {
    "streams run in another order than launches": (OUT_OF_ORDER, replay(), "sequence", 1.0),
    "and record no grids": (OUT_OF_ORDER, replay(grids=None), "names", 1.0),
    "two devices are no sequence": (OF_TWO_DEVICES, replay(), None, None),
    "ROCm records no grids of replayed kernels": (eager(), replay(grids=None), "names", 1.0),
    "kernels that are slower are of another size": (eager(), replay(grids=None, lasting=150), "names", 0.0),
    "those that are faster too": (eager(), replay(grids=None, lasting=15), "names", 0.0),
    "an old profiler records no grids at all": (eager(grids=None), replay(grids=None), "names", 1.0),
    "where equal names are no proof": (eager(grids=None), replay(grids=None, lasting=150), "names", 0.0),
    **{name: (eager(), [row | {"name": name} if row["name"] == "cudaGraphLaunch" else row for row in replay()], "sequence", 1.0)
       for name in ("hipGraphLaunch", "cuGraphLaunch", "cudaGraphLaunch_v10000")},
    "a name that says nothing is not against a capture": (capture(), replay(names=(GEMM, ADD, "kernel_v9", CAST)), "capture", 1.0),
    "a capture that fits in part": (capture(), replay(names=(GEMM, GEMM, GEMM, CAST)), "capture", 0.75),
    "a capture of other kernels": (capture(), replay(names=(ADD, GEMM, CAST, GEMM)), None, None),
    "of more launches": (capture(), replay(names=NAMES[:3]), None, None),
    "of few launches, which fit too many graphs": (FEW, replay(names=NAMES[:3]), None, None),
    "nodes that are not recorded for all": (capture(), replay(nodes=[9, None, 7, 6]), "capture", 1.0),
    "nodes that are not unique": (capture(), replay(nodes=[9, 9, 7, 6]), "capture", 1.0),
}  # fmt: skip


@pytest.mark.parametrize(("before", "graph", "match", "confidence"), MATCHES.values(), ids=MATCHES)
def test_how_kernels_of_a_graph_match(
    before: list[Any], graph: list[Any], match: str | None, confidence: float | None
) -> None:
    rows = taken(analysed(before, graph), len(graph) - 1)
    assert {row[3:5] for row in rows} == {(match, confidence)}
    if match is None:
        assert {row[:3] for row in rows} == {(None, None, None)}
    elif confidence == 1:
        assert rows == named(match, 1.0)
    elif confidence == 0:
        assert rows == [(row[0], None, None, "names", 0.0, row[5]) for row in WHOLE]


def test_an_annotation_names_no_module_that_a_match_names() -> None:
    annotations = json.dumps({str(node): ["attention"] for node in (9, 8, 7, 6)}).encode()
    report = analyze(trace_bytes([eager(), replay(nodes=[9, 8, 7, 6])]), capture=annotations)
    assert [row[5] for row in taken(report)] == [row[5] for row in WHOLE]


def test_executions_of_other_operators_and_modules_tell_neither() -> None:
    """Check that what is not known of kernels run as sums in one module and differences in another is noted."""
    others = [
        row | {"name": {"aten::add": "aten::sub", "nn.Module: Linear_0": "nn.Module: Other_0"}.get(row["name"], row["name"])}
        for part in eager(500, 20) for row in part
    ]  # fmt: skip
    report = analysed(eager(), others, replay())
    assert [(row[0], row[5]) for row in taken(report)] == [
        ("aten::mm", None), (None, None), ("aten::mm", "Head_1"), ("aten::_softmax", "Head_1"),
    ]  # fmt: skip
    assert notes(report, "ambiguous-replay") == [1]


NUMBERS = st.integers(-40, 40)


def ints(values: Any) -> Ints:
    """Return int64 numbers."""
    return np.array(values, dtype=np.int64)


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.integers(-1, 3), NUMBERS, st.booleans()), max_size=20),
    st.lists(NUMBERS, min_size=4, max_size=4),
)
def test_activities_that_end_a_step_are_those_of_a_loop(rows: list[tuple[int, int, bool]], stops: list[int]) -> None:
    """Check (step, end, whether the activity is on the device) against the ends of four steps."""
    step, end = (ints([row[place] for row in rows]) for place in (0, 1))
    own = np.array([row[2] for row in rows], bool)
    activities = SimpleNamespace(step=step, end=end)
    recorded: Any = SimpleNamespace(activities=activities, steps=SimpleNamespace(end=ints(stops)))
    expected = [
        np.flatnonzero(own & (((step == number) & (end <= stop)) | (end == stop))).tolist()
        for number, stop in enumerate(stops)
    ]
    assert [members.tolist() for members in _last_of_steps(recorded, np.flatnonzero(own))] == expected


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.integers(0, 2), NUMBERS, NUMBERS), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 2), NUMBERS), max_size=12),
)
def test_times_move_as_interpolated_thread_by_thread(
    points: list[tuple[int, int, int]], asked: list[tuple[int, int]]
) -> None:
    """Check times of threads with points (thread, old time, new time) against `numpy.interp` on each thread."""
    points.sort(key=lambda point: point[1])
    thread, old, new = (ints(column) for column in zip(*points, strict=True))
    graph: Any = SimpleNamespace(thread=thread, time=old)
    known = [(number, time) for number, time in asked if number in thread]
    moved = _mapped(ints([number for number, _ in known]), ints([time for _, time in known]), graph, new)
    for (number, time), result in zip(known, moved.tolist(), strict=True):
        before, after = old[thread == number], new[thread == number]
        shift = after[0] - before[0] if time < before[0] else after[-1] - before[-1]
        inside = before[0] <= time <= before[-1]
        assert result == (round(np.interp(time, before, after)) if inside else time + shift)


@pytest.mark.parametrize("steady", [(), (2,), (0, 1), (0, 2, 3)])
def test_edges_of_steady_steps_are_those_of_a_loop(steady: tuple[int, ...]) -> None:
    recorded = program().graph.recorded
    activities, calls, steps = recorded.activities, recorded.calls, recorded.steps
    chosen = np.zeros(steps.steady.size, dtype=bool)
    chosen[list(steady)] = True
    graph = replace(program().graph, recorded=recorded._replace(steps=replace(steps, steady=chosen)))
    edges = steady_edges(graph)
    last = [
        max((calls.end[call] for call in activities.call[activities.step == row] if call >= 0), default=-1)
        for row in range(steps.start.size)
    ]
    for edge, (kind, time) in enumerate(zip(graph.kind.tolist(), graph.time[graph.target].tolist(), strict=True)):
        if kind in (LATENCY, EXECUTION, GAP, WAIT, CONTENTION):
            expected = activities.step[graph.ref[edge]] in steady
        else:
            expected = any((last[row - 1] if row else -1) < time <= last[row] for row in steady)
        assert edges[edge] == (expected or not steady)
