"""Test laws of the replay: faster parts make no step longer, lower bounds hold, loops agree with plain Python."""

import importlib.util
import json
import random
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from lazy_report import LazyReport
from replay_pairs import gemm, op
from simulator import Costs, Kernel, Simulation
from tiers import examples

from trace_analyzer.frames import _path_loops
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.graph import EXECUTION
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.refusals import refusal
from trace_analyzer.replay.weights import NotApplicable, least_factor

pytestmark = pytest.mark.slow

NAMES = ("ampere_bf16_s16816gemm_bf16_128x256_tn", "void at::native::vectorized_elementwise_kernel<4, x>(int)")
CPU_CHANGES = (Change("no-sync"), Change("graphs"), Change("speedup", {"target": "cpu", "factor": 3.0}))

kinds = ["launch", "launch", "launch", "side", "item", "sync", "device", "free", "wait", "think", "backward"]
action = st.tuples(st.sampled_from(kinds), st.integers(1_500, 300_000))
programs = st.tuples(st.lists(action, min_size=4, max_size=16), st.integers(0, 99))


def simulated(actions: list[tuple[str, int]], seed: int) -> Replay:
    """Return the replay of a loop of the actions."""
    simulation = Simulation(seed=seed)
    main, autograd = simulation.thread(), simulation.thread("pt_autograd_0")
    stream, side = simulation.stream(), simulation.stream(number=20)
    for number in range(4):
        with main.step(number):
            for kind, ns in [*actions, ("launch", 5_000)]:
                if kind in ("launch", "side"):
                    with main.op("aten::mm"):
                        main.launch(Kernel(NAMES[ns % 2], ns, (432, 1, 1)), stream if kind == "launch" else side)
                elif kind == "item":
                    main.memcpy("DtoH", 4, stream, pageable=bool(ns % 2))
                elif kind == "sync":
                    main.synchronize(stream if ns % 2 else side)
                elif kind == "device":
                    main.synchronize_device()
                elif kind == "free":
                    main.free(ns)
                elif kind == "wait":
                    pair = (stream, side) if ns % 2 else (side, stream)
                    main.wait_event(pair[0], main.record_event(pair[1]))
                elif kind == "think":
                    main.spend(ns)
                else:
                    with main.hand_over(autograd), autograd.op("aten::mm"):
                        autograd.launch(Kernel(NAMES[ns % 2], ns, (432, 1, 1)), stream)
    return Replay.of(LazyReport.on(simulation.json().encode(), device=0), 0)


@settings(max_examples=examples(4))
@given(programs)
def test_the_identity_is_the_recording(program: tuple[list[tuple[str, int]], int]) -> None:
    replay = simulated(*program)
    # Typical values differ from each single latency by the simulator's jitter.
    assert abs(replay.identity_ratio) * replay.recorded_step_ns <= 0.02 * replay.recorded_step_ns + 4_000
    assert replay.identity.step_ns == pytest.approx(replay.recorded_step_ns), "estimates are anchored"
    assert (replay.graph.source < replay.graph.target).all()
    assert (replay.identity.times >= replay.graph.time.min()).all()


@settings(max_examples=examples(4))
@given(programs, st.sampled_from(["cpu", "gpu", "matmul", "pointwise"]), st.floats(1, 50), st.floats(1, 50))
def test_what_is_faster_makes_nothing_later(
    program: tuple[list[tuple[str, int]], int], target: str, one: float, other: float
) -> None:
    replay = simulated(*program)
    slow, fast = sorted((one, other))
    asked = [(Change("speedup", {"target": target, "factor": factor}),) for factor in (1.0, slow, fast)]
    try:
        times = [int(replay.outcome(changes).times.max()) for changes in asked]
    except NotApplicable:
        return
    # Weights are integer nanoseconds.
    assert times[0] + replay.graph.kind.size >= times[1] >= times[2] - replay.graph.kind.size


@settings(max_examples=examples(4))
@given(programs, st.floats(1, 50))
def test_floors_bound(program: tuple[list[tuple[str, int]], int], factor: float) -> None:
    replay = simulated(*program)
    cpu_floor, device_floor = replay.floors
    now, below = replay.identity.step_ns, 1 - abs(replay.identity_ratio)
    assert cpu_floor <= now
    assert device_floor <= now
    slowed = least_factor(replay.graph, replay.scene.tables["host_events"]) if cpu_floor < 0.99 * now else 1.0
    assert replay.predict((faster("gpu", factor),)).low_ns >= below * slowed * cpu_floor
    for change in CPU_CHANGES:
        try:
            predicted = replay.predict((change,))
        except NotApplicable:
            continue
        assert below * device_floor <= predicted.low_ns <= predicted.step_ns <= predicted.high_ns
        assert predicted.step_ns <= now


def faster(target: str, factor: float) -> Change:
    return Change("speedup", {"target": target, "factor": factor})


COMPOSED = (*CPU_CHANGES, Change("pinned"), Change("warm"), faster("matmul", 4.0), faster("gpu", 1.5))


@settings(max_examples=examples(4))
@given(programs, st.lists(st.sampled_from(range(len(COMPOSED))), min_size=2, max_size=3, unique=True))
def test_what_only_removes_time_raises_nothing(program: tuple[list[tuple[str, int]], int], chosen: list[int]) -> None:
    replay = simulated(*program)
    now, asked = replay.identity.step_ns, tuple(COMPOSED[at] for at in chosen)
    try:
        alone = [replay.predict((change,)) for change in asked]
        together = replay.predict(asked)
    except NotApplicable:
        return
    for predicted in (*alone, together):
        assert 0 <= predicted.low_ns <= predicted.step_ns <= predicted.high_ns <= now
    assert together.step_ns <= min(predicted.step_ns for predicted in alone)
    assert together.low_ns <= min(predicted.low_ns for predicted in alone)
    graph, without = replay.graph, replay.predict((faster("gpu", inf),))
    ran = replay.weights(()).device[(graph.kind == EXECUTION) & replay.scene.steady].sum() / replay.scene.steady_steps
    assert now - without.low_ns <= 1.01 * ran, "no more than what is removed"
    curve = [replay.predict((faster("gpu", factor),)).step_ns for factor in (1.33, 2.0, 4.0)]
    assert curve == sorted(curve, reverse=True)


def _plain() -> ModuleType:
    """Load the loops as Python runs them where they were not compiled."""
    path = Path(__file__).parents[1] / "trace_analyzer/frames/_path_loops.py"
    spec = importlib.util.spec_from_file_location("plain_path_loops", path)
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    return plain


PLAIN = _plain()
edges = st.lists(st.tuples(st.integers(1, 29), st.integers(0, 99), st.integers(0, 1_000), st.booleans()), max_size=60)


@given(st.integers(1, 30), edges, st.integers(0, 29), st.integers(-1, 10))
def test_compiled_loops_agree_with_plain_python(
    points: int, raw: list[tuple[int, int, int, bool]], point: int, until: int
) -> None:
    within = ((1 + target % max(points - 1, 1), source, weight, gone) for target, source, weight, gone in raw)
    listed = sorted(
        (t, source % t, PLAIN.REMOVED if gone else weight) for t, source, weight, gone in within if t < points
    )
    target, source, weight = (np.array([edge[i] for edge in listed], dtype=np.int64) for i in range(3))
    offsets = np.searchsorted(target, np.arange(points + 1)).astype(np.int64)
    roots = np.arange(points, dtype=np.int64) * 7
    outcomes = []
    for loops in (_path_loops, PLAIN):
        loops.check(offsets.data, source.data)
        times, binding, path = (np.zeros(points, dtype=np.int64).data for _ in range(3))
        loops.longest(offsets.data, source.data, weight.data, roots.data, times, binding)
        count = loops.walk_back(source.data, binding, point % points, until, path)
        outcomes.append((times.tolist(), binding.tolist(), path[:count].tolist()))
    assert outcomes[0] == outcomes[1]
    for at in range(points):
        mine = [outcomes[0][0][s] + w for t, s, w in listed if t == at and w != PLAIN.REMOVED]
        assert outcomes[0][0][at] == (max(mine) if mine else roots[at])


@pytest.mark.parametrize("loops", [_path_loops, PLAIN], ids=["compiled", "plain"])
@pytest.mark.parametrize(
    ("offsets", "source"),
    [([0, 1, 1], [0]), ([0, 0, 1], [1]), ([0, 0, 1], [-1]), ([0, 0], [0]), ([0, 1, 0, 1], [0]), ([], [])],
)
def test_edges_that_lead_back_are_refused(loops: ModuleType, offsets: list[int], source: list[int]) -> None:
    with pytest.raises(ValueError, match="edge"):
        loops.check(np.array(offsets, dtype=np.int64).data, np.array(source, dtype=np.int64).data)


tracks_of_segments = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 2)), max_size=6), min_size=1, max_size=3
)


@given(tracks_of_segments, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 30)), max_size=12))
def test_stretches_are_spent_as_a_naive_count_says(
    tracks: list[list[tuple[int, int, int]]], wanted: list[tuple[int, int, int]]
) -> None:
    segments: list[tuple[int, int, int]] = []
    firsts = [0]
    for track in tracks:
        reached = 0
        for pause, length, part in track:
            segments.append((reached + pause, reached + pause + length, part))
            reached += pause + length
        firsts.append(len(segments))
    stretches = sorted((track, start, start + length) for track, start, length in wanted if track < len(tracks))
    naive = [[0] * len(stretches) for _ in range(3)]
    for place, (track, start, stop) in enumerate(stretches):
        for begin, end, part in segments[firsts[track] : firsts[track + 1]]:
            naive[part][place] += max(0, min(end, stop) - max(begin, start))
    for loops in (_path_loops, PLAIN):
        spent = np.zeros((3, len(stretches)), dtype=np.int64)
        begins, ends, parts = (np.array([segment[i] for segment in segments], dtype=np.int64) for i in range(3))
        track, start, stop = (np.array([stretch[i] for stretch in stretches], dtype=np.int64) for i in range(3))
        columns = np.array(firsts), begins, ends, parts.astype(np.int8), track, start, stop, spent.reshape(-1)
        loops.spend(*(column.data for column in columns))
        assert spent.tolist() == naive


@pytest.mark.parametrize("loops", [_path_loops, PLAIN], ids=["compiled", "plain"])
@pytest.mark.parametrize(("track", "part"), [(1, 0), (-1, 0), (0, 2), (0, -1)])
def test_stretches_of_unknown_tracks_and_parts_are_refused(loops: ModuleType, track: int, part: int) -> None:
    own = np.array([0]), np.array([5]), np.array([part], dtype=np.int8), np.array([track]), np.array([0]), np.array([5])
    with pytest.raises(ValueError, match="no such track or part"):
        loops.spend(*(column.data for column in (np.array([0, 1]), *own, np.zeros(2, dtype=np.int64))))


def ahead(count: int, copy: bool) -> Simulation:
    """Simulate a CPU that runs as many steps ahead as the queue holds, with a pageable copy at the start of each."""
    rng, simulation = random.Random(1), Simulation(costs=Costs(queue_limit=1_022), seed=3)
    main, stream = simulation.thread(), simulation.stream()
    kernels = [rng.choice([4_000, 20_000, 200_000, 900_000]) for _ in range(count)]
    for number in range(1_022 // count + 10):
        with main.step(number):
            main.spend(2_000_000)
            if copy:
                main.memcpy("HtoD", 8 << 20, stream, pageable=True, gb_per_s=10.0)
            for ns in kernels:
                op(main, "aten::mm", gemm(ns), stream, 1_000)
    main.synchronize_device()
    return simulation


def begun_amid(simulation: Simulation, warm_up: int) -> bytes:
    """Return the trace of the last six steps, with what the device still does of the ``warm_up`` steps before them."""
    trace = simulation.trace()
    events = trace["traceEvents"]
    marks = [e["ts"] for e in events if e.get("cat") == "user_annotation" and "ProfilerStep" in e["name"]]
    begin, enabled = marks[-6], marks[-6 - warm_up]
    launched = {e["args"]["correlation"]: e["ts"] for e in events if e.get("cat") == "cuda_runtime"}

    def is_recorded(event: dict[str, Any]) -> bool:
        if event["ph"] in "sf":
            return launched[event["id"]] >= begin
        if event.get("cat") in ("kernel", "gpu_memcpy"):
            return event["ts"] + event["dur"] > begin and launched[event["args"]["correlation"]] >= enabled
        return event.get("ts", begin) >= begin

    return json.dumps({**trace, "traceEvents": [event for event in events if is_recorded(event)]}).encode()


@pytest.mark.parametrize(("count", "copy"), [(260, False), (150, False), (60, False), (260, True)])
def test_a_recording_that_begins_amid_queued_work_has_the_estimates_of_the_whole(count: int, copy: bool) -> None:
    """Whatever is known of the work from before: two steps of it, one or none, of up to 17 that the queue holds."""
    simulation, warm_ups = ahead(count, copy), (2, 1) if copy else (2, 1, 0)
    changes = [Change(name) for name in ("no-sync", "graphs", *(["pinned"] if copy else []))]
    changes += [Change("speedup", {"target": side, "factor": 2.0}) for side in ("cpu", "gpu")]
    reports = [LazyReport.on(simulation.json().encode(), device=0)]
    reports += [LazyReport.on(begun_amid(simulation, warm_up), device=0) for warm_up in warm_ups]
    whole, *parts = (Replay.of(report, 0) for report in reports)
    cpu_floor, device_floor = whole.floors
    for report, part in zip(reports[1:], parts, strict=True):
        assert refusal(report, part, 0, tuple(changes)) is None
        assert part.floors == (pytest.approx(cpu_floor, rel=0.15), pytest.approx(device_floor, rel=0.005))
        for change in changes:
            assert part.predict((change,)).step_ns == pytest.approx(whole.predict((change,)).step_ns, rel=0.005), change
