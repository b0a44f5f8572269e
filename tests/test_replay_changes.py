"""Test the effect of each change on the edges of one program that has something for all of them."""

import dataclasses
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from kineto import analysed, annotation, call, copy, launched, op as op_row, python
from lazy_report import LazyReport
from make_samples import ADD_FLOAT, ALL_REDUCE, BF16, MULTIPLY, Eager
from msgspec.structs import replace
from replay_pairs import LOADER, PAIRS, gemm, op, pointwise, steps
from simulator import Costs, Kernel, Simulation

from trace_analyzer.replay import changes, recording
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.graph import CALL, EXECUTION, GAP, HAND_OVER, LATENCY, QUEUE, RETURN, THREAD
from trace_analyzer.replay.kernel_changes import of_updates
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.weights import Floats, NotApplicable, NothingToChange, Weights, infinite_cpu, infinite_gpu

pytestmark = pytest.mark.slow

SLOW_LAUNCH_NS = 3_000_000
COPIED = 6 << 20


@cache
def program() -> Replay:
    """Run a loop that loads, copies, computes, communicates, waits each way, allocates, loads a module and updates."""
    costs = Costs(inter_kernel_ns=1_800)
    simulation = Simulation(costs=costs, header={"record_shapes": 1}, seed=3, python_frames=True)
    main, autograd = simulation.thread(), simulation.thread("pt_autograd_0")
    stream, links = simulation.stream(), simulation.stream(number=20)
    torch = Eager(simulation, main, stream, BF16)

    def step(_: int) -> None:
        with main.annotation(LOADER, cause="data-loading"):
            main.spend(700_000)
        with main.op("aten::copy_"):
            main.memcpy("HtoD", COPIED, stream, pageable=True, gb_per_s=6.0, staging_ns=400_000)
        main.memcpy("HtoD", COPIED, stream)
        with main.frame("train.py(3): forward", before_ns=30_000):
            for _ in range(3):
                torch.mm(2_048, 1_024, 1_024)
                for operator, functor in (("aten::mul", MULTIPLY), ("aten::add", ADD_FLOAT), ("aten::mul", MULTIPLY)):
                    torch.pointwise(operator, functor, 2_048, 1_024)
        main.memcpy("DtoH", 4, stream, pageable=True)
        simulation.costs = dataclasses.replace(costs, launch_call_ns=SLOW_LAUNCH_NS)
        op(main, "aten::mm", gemm(40_000), stream)
        simulation.costs = costs
        with main.frame("torch/_dynamo/convert_frame.py(500): _compile", before_ns=300_000):
            pass
        main.malloc(200_000)
        for _ in range(4):
            with main.hand_over(autograd), autograd.op("aten::mm"):
                autograd.launch(gemm(60_000), stream)
        main.wait_event(links, main.record_event(stream))
        main.launch(Kernel(ALL_REDUCE, 250_000, (24, 1, 1), (512, 1, 1)), links)
        main.wait_event(stream, main.record_event(links))
        main.synchronize(links)
        for _ in range(2):
            op(main, "aten::relu", pointwise(1_500), stream)
        with main.annotation("Optimizer.step#AdamW.step"):
            op(main, "aten::_fused_adamw_", pointwise(90_000), stream)
        main.free(100_000)
        main.synchronize_device()

    return Replay.of(LazyReport.on(steps(simulation, main, step).json().encode(), device=0), 0)


def calls(replay: Replay, *names: str) -> recording.Flags:
    """Return which calls have these names."""
    events = replay._report.tables["host_events"].get_column("name").cast(str).to_list()
    return np.array([events[event] in names for event in replay.graph.recorded.calls.event])


def of_calls(replay: Replay, kind: int, *names: str) -> recording.Flags:
    """Return which edges of a kind belong to calls of these names."""
    own = replay.graph.kind == kind
    own[own] = calls(replay, *names)[replay.graph.ref[own]]
    return own


def of_activities(replay: Replay, kind: int, chosen: recording.Flags) -> recording.Flags:
    """Return which edges of a kind belong to the chosen activities."""
    own = replay.graph.kind == kind
    own[own] = chosen[replay.graph.ref[own]]
    return own


def column(replay: Replay, name: str) -> list[object]:
    """Return a column of the activities, as text where it is one."""
    return replay.known.table.get_column(name).to_list()


def having(replay: Replay, name: str, *values: object) -> recording.Flags:
    """Return which activities have one of the values in a column."""
    return np.array([value in values for value in column(replay, name)])


def pageable(replay: Replay) -> recording.Flags:
    return replay.graph.recorded.activities.pageable


def weighed(replay: Replay, *changes: Change) -> tuple[Weights, Weights]:
    """Return the weights as recorded, and under changes."""
    return replay.weights(()), replay.weights(changes)


def same(before: Floats, after: Floats, besides: recording.Flags | None = None) -> bool:
    """Return whether nothing else is changed."""
    return bool((before == after)[slice(None) if besides is None else ~besides].all())


def kept_parts(before: Weights, after: Weights, *changed: int) -> bool:
    """Return whether the other parts of the threads' time are as they were."""
    rest = [part for part in range(len(recording.HOST_PARTS)) if part not in changed]
    return same(before.parts[rest], after.parts[rest])


SYNCS = ("cudaStreamSynchronize", "cudaDeviceSynchronize")


def test_the_program_has_something_for_every_change() -> None:
    graph = program().graph
    for kind in (CALL, LATENCY, EXECUTION, GAP, RETURN, HAND_OVER, THREAD):
        assert (graph.kind == kind).any()
    for name in (*SYNCS, "cudaMalloc", "cudaFree", "cudaMemcpyAsync", "cudaLaunchKernel"):
        assert calls(program(), name).any()
    parts = program().weights(()).parts.sum(axis=1)
    assert (parts[[recording.DISPATCH, recording.PYTHON, recording.DATA, recording.COMPILATION]] > 0).all()
    assert parts[recording.ALLOCATION] == 0
    assert 0 < program().scene.steady.sum() < program().graph.kind.size


def test_without_synchronization_only_calls_that_wait_for_the_device_change() -> None:
    replay = program()
    before, after = weighed(replay, Change("no-sync"))
    gone = of_calls(replay, RETURN, *SYNCS, "cudaMemcpyAsync")
    assert (after.removed == gone).all()
    calls_gone = of_calls(replay, CALL, *SYNCS)
    assert before.host[calls_gone].min() > 0
    assert after.host[calls_gone].max() == 0
    assert same(before.host, after.host, calls_gone)
    assert same(before.device, after.device)
    assert kept_parts(before, after)


def test_pinned_copies_are_enqueued_as_fast_as_those_that_are_pinned() -> None:
    replay = program()
    graph, recorded = replay.graph, replay.graph.recorded
    before, after = weighed(replay, Change("pinned"))
    assert (after.removed == of_calls(replay, RETURN, "cudaMemcpyAsync")).all()
    copying = calls(replay, "cudaMemcpyAsync")
    staged = np.zeros(copying.size, dtype=bool)
    staged[recorded.activities.call[pageable(replay)]] = True
    usual = np.sort((recorded.calls.end - recorded.calls.start)[copying & ~staged])
    own = np.flatnonzero(graph.kind == CALL)
    own = own[staged[graph.ref[own]]]
    assert after.host[own].max() <= usual[-1]
    latency = of_activities(replay, LATENCY, pageable(replay))
    assert (before.host + before.device)[latency].max() > 400_000, "one is staged in each step"
    assert (after.host + after.device)[latency].max() < 20_000
    assert (after.host + after.device)[latency].min() > 5_000, "a copy is still launched"
    runs = of_activities(replay, EXECUTION, pageable(replay))
    to_device = of_activities(replay, EXECUTION, pageable(replay) & having(replay, "label", "memcpy HtoD"))
    assert after.device[to_device] == pytest.approx((1_200 + COPIED / 24), rel=0.02), "24 GB/s, not 6"
    assert same(before.device, after.device, latency | to_device)
    assert (runs & ~to_device).any(), "the other direction has no pinned copy to learn from"
    changed = np.zeros(graph.kind.size, dtype=bool)
    changed[own] = True
    assert same(before.host, after.host, changed | latency)
    assert kept_parts(before, after)


@pytest.mark.parametrize(
    ("device", "at_best", "at_worst"), [("NVIDIA A100-SXM4-80GB", 6 / 31.5, 6 / 15.75), ("Frobnicator 9", 0.0, 1.0)]
)
def test_how_fast_pinned_copies_are_follows_from_the_link_alone(device: str, at_best: float, at_worst: float) -> None:
    """Copies at 6 GB/s, none from pinned memory: of a device whose link is not known, they may take any time up to theirs."""
    rows = [
        [launched("k", at, at + 11, 20, n + 1), call("cudaMemcpyAsync", at + 50, 1_060, correlation=n + 2),
         copy("HtoD (Pageable -> Device)", at + 100, 1_000, correlation=n + 2, bytes=6_000_000)]
        for n, at in zip(range(0, 90, 3), range(0, 60_000, 2_000), strict=True)
    ]  # fmt: skip
    replay = Replay.of(analysed(rows, devices=[{"id": 0, "name": device}]), 0)
    for reach, share in (("roof", at_best), ("slot", at_worst)):
        before, after = weighed(replay, Change("pinned", {"reach": reach}))
        runs = of_activities(replay, EXECUTION, pageable(replay))
        assert after.device[runs] == pytest.approx(before.device[runs] * share, rel=0.02)


def test_a_pinned_copy_starts_without_what_nothing_explained() -> None:
    """Copies start 100 us after their calls; one starts 200 us after, and a kernel explains only the first 80 of them."""
    rows = [
        [launched("k", at, at + 11, 119 if late else 20, n + 1), call("cudaMemcpyAsync", at + 50, 8, correlation=n + 2),
         copy("HtoD (Pageable -> Device)", at + 150 + late, 100, correlation=n + 2)]
        for n, at in zip(range(0, 90, 3), range(0, 30_000, 1_000), strict=True) for late in [0 if n % 27 else 100]
    ]  # fmt: skip
    replay = Replay.of(analysed(rows), 0)
    before, after = weighed(replay, Change("pinned"))
    latency = of_activities(replay, LATENCY, pageable(replay))
    assert np.unique(before.rest[latency]).tolist() == [0, 100_000]
    assert np.unique(after.rest[latency]).tolist() == [0]


def test_a_call_that_stages_bytes_only_enqueues_where_they_are_pinned() -> None:
    """Calls of 400 us that return 150 us after their copy."""
    rows = [
        [launched("k", at, at + 11, 20, n + 1),
         call("cudaMemcpyAsync", at + 50, 400, correlation=n + 2), copy("HtoD (Pageable -> Device)", at + 200, 100, correlation=n + 2),
         call("cudaMemcpyAsync", at + 500, 8, correlation=n + 3), copy("HtoD (Pinned -> Device)", at + 511, 100, correlation=n + 3)]
        for n, at in zip(range(0, 90, 3), range(0, 30_000, 1_000), strict=True)
    ]  # fmt: skip
    replay = Replay.of(analysed(rows), 0)
    before, after = weighed(replay, Change("pinned"))
    copies = of_calls(replay, CALL, "cudaMemcpyAsync")
    assert np.unique(before.host[copies]).tolist() == [5_000, 8_000]
    assert same(before.host, after.host, replay.graph.kind == LATENCY)
    assert after.removed.any()
    latency = of_activities(replay, LATENCY, pageable(replay))
    assert np.unique((after.host + after.device)[latency]).tolist() == [11_000]


def resizing(first: str, second: str) -> Replay:
    """Replay six steps of 6 ms: Python collects garbage and an operator resizes images before the launch."""
    rows = [
        [annotation(f"ProfilerStep#{n}", 6_000 * n, 6_000), python(first, 6_000 * n + 100, 2_000),
         op_row(second, 6_000 * n + 2_200, 3_000), op_row("aten::mm", 6_000 * n + 5_300, 60),
         launched("ampere_sgemm_128x64_tn", 6_000 * n + 5_310, 6_000 * n + 5_330, 90, n + 1)]
        for n in range(6)
    ]  # fmt: skip
    return Replay.of(analysed(rows), 0)


def test_a_graph_leaves_garbage_collection_and_long_work_on_the_cpu() -> None:
    replay = resizing("<built-in function collect>", "aten::_upsample_bilinear2d_aa")
    before, after = weighed(replay, Change("graphs"))
    collecting = recording.HOST_PARTS.index("garbage-collection")
    assert before.parts[collecting].sum() == 5 * 2_000_000, "the replay begins with the first launch"
    assert before.parts[recording.COMPUTING].sum() == 5 * 3_000_000
    assert kept_parts(before, after, recording.DISPATCH, recording.PYTHON, recording.UNKNOWN, recording.RUNTIME)
    assert replay.predict((Change("graphs"),)).step_ns >= 5_000_000
    python_only = resizing("train.py(3): forward", "aten::view")
    assert python_only.weights(()).parts[collecting].sum() == 0


def test_an_operator_that_launches_does_not_compute_on_the_cpu() -> None:
    rows = [
        [annotation(f"ProfilerStep#{n}", 6_000 * n, 6_000), op_row("aten::mm", 6_000 * n + 100, 5_000),
         launched("ampere_sgemm_128x64_tn", 6_000 * n + 5_000, 6_000 * n + 5_020, 90, n + 1)]
        for n in range(6)
    ]  # fmt: skip
    parts = Replay.of(analysed(rows), 0).weights(()).parts
    assert parts[recording.COMPUTING].sum() == 0
    assert parts[recording.DISPATCH].sum() > 20_000_000


def test_a_graph_takes_the_launches_of_steady_steps_and_leaves_data_waits_allocations_and_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replay = program()
    with pytest.raises(NotApplicable, match="calls a step wait for the device"):
        replay.weights((Change("graphs"),))
    monkeypatch.setattr(changes, "SHORT_PIECE", 0)
    graph, steady = replay.graph, replay.scene.steady & ~of_updates(replay.scene)
    before, after = weighed(replay, Change("graphs"))
    thread = np.flatnonzero(graph.kind == THREAD)
    inside, outside = graph.ref[thread[steady[thread]]], graph.ref[thread[~steady[thread]]]
    for part in (recording.DISPATCH, recording.PYTHON, recording.UNKNOWN, recording.RUNTIME):
        assert after.parts[part, inside].max() == 0
    for part in (recording.DISPATCH, recording.PYTHON, recording.COMPILATION):
        assert before.parts[part, inside].sum() > 0
    assert same(before.parts[:, outside], after.parts[:, outside])
    assert kept_parts(before, after, recording.DISPATCH, recording.PYTHON, recording.UNKNOWN, recording.RUNTIME)
    queued = of_calls(replay, CALL, "cudaLaunchKernel", "cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent")
    blocking = np.zeros(graph.recorded.calls.start.size, dtype=bool)
    blocking[graph.ref[of_calls(replay, RETURN, "cudaMemcpyAsync")]] = True
    loading = graph.recorded.calls.end - graph.recorded.calls.start > SLOW_LAUNCH_NS // 2
    blocking |= loading  # of modules
    blocked = graph.kind == CALL
    blocked[blocked] = blocking[graph.ref[blocked]]
    taken = queued & steady & ~blocked
    assert np.unique(after.host[taken]).tolist() == [0, 10_000]
    calls, activities = graph.recorded.calls, graph.recorded.activities
    waits = set(graph.ref[(graph.kind == RETURN) & ~of_calls(replay, RETURN, "cudaMalloc", "cudaFree")].tolist())
    step_of = dict(zip(activities.call.tolist(), activities.step.tolist(), strict=True))
    taken_calls, begun, first = set(graph.ref[taken].tolist()), set(), 0
    for number in np.argsort(calls.start, kind="stable").tolist():
        if number in waits:
            first = number
        elif number in taken_calls and number in step_of:
            begun.add((step_of[number], first))
    assert len(begun) > replay.scene.steady_steps
    assert (after.host[taken] == 10_000).sum() == len(begun), "one launch a step, and one after each wait"
    assert after.device[taken].max() == 0
    handed = (graph.kind == HAND_OVER) & steady
    assert before.host[handed].min() > 0
    assert after.host[handed].max() == 0
    latency = graph.kind == LATENCY
    assert same(before.host, after.host, taken | handed | (latency & steady)), "what waits or allocates keeps its time"
    gaps = (graph.kind == GAP) & steady
    assert (after.device - after.rest)[gaps].max() <= 1_000
    assert (before.device - before.rest)[gaps].max() > 1_000
    cold = (graph.kind == GAP) & ~steady
    assert cold.any()
    assert same(before.device[cold], after.device[cold])
    assert (after.device <= before.device).all()
    loaded = latency & steady & of_activities(replay, LATENCY, loading[activities.call])
    assert (before.host + before.device)[loaded].max() > SLOW_LAUNCH_NS
    assert same((before.host + before.device)[loaded], (after.host + after.device)[loaded])
    launched_ = latency & steady & ~loaded & of_activities(replay, LATENCY, ~pageable(replay))
    assert (after.host + after.device)[launched_].max() < 20_000
    assert (after.host + after.device)[launched_].min() > 3_000, "a kernel still starts after its launch"
    staged = latency & steady & of_activities(replay, LATENCY, pageable(replay))
    assert same((before.host + before.device)[staged], (after.host + after.device)[staged])
    assert not after.removed.any()


def test_a_kernel_of_a_graph_starts_as_soon_as_usual() -> None:
    """One of ten launch calls takes 150 us, too short to load a module; the others take 5 us, and kernels start 3 us later."""
    rows = [
        [annotation(f"ProfilerStep#{n}", 3_000 * n, 3_000)] + [
            launched("ampere_sgemm_128x64_tn", at, at + takes + 3, 60, 10 * n + m + 1, takes=takes)
            for m, at in enumerate(range(3_000 * n, 3_000 * n + 2_500, 250)) for takes in [150 if m == 5 else 5]
        ]
        for n in range(6)
    ]  # fmt: skip
    replay = Replay.of(analysed(rows), 0)
    before, after = weighed(replay, Change("graphs"))
    latency = (replay.graph.kind == LATENCY) & replay.scene.steady
    assert np.unique((before.host + before.device)[latency]).tolist() == [8_000, 153_000]
    assert np.unique((after.host + after.device)[latency]).tolist() == [8_000]


def test_a_graph_needs_no_room_in_the_queue() -> None:
    replay = Replay.of(LazyReport.on(PAIRS["queue"].before(1), device=0), 0)
    room = replay.graph.kind == QUEUE
    removed = replay.weights((Change("graphs"),)).removed
    assert removed[room & replay.scene.steady].all()
    assert not removed[~(room & replay.scene.steady)].any()


def test_a_launch_that_waits_for_room_in_the_queue_loads_no_module() -> None:
    simulation = Simulation(costs=Costs(queue_limit=512), seed=1)
    main, stream = simulation.thread(), simulation.stream()
    for at in range(2_400):
        op(main, "aten::add", pointwise(4_000_000 if at % 400 == 300 else 30_000), stream, 1_000)
    main.synchronize_device()
    replay = Replay.of(LazyReport.on(simulation.json().encode(), device=0), 0)
    taken = replay.graph.recorded.calls.end - replay.graph.recorded.calls.start
    assert (taken[calls(replay, "cudaLaunchKernel")] > 1_000_000).any()
    with pytest.raises(NothingToChange, match="nothing was compiled, loaded or allocated"):
        replay.weights((Change("warm"),))


def test_a_step_takes_no_less_than_the_most_of_what_runs_beside_it() -> None:
    replay = program()
    loading, collectives = Change("prefetch", {"workers": 1.0}), Change("overlap")
    alone = [replay.weights((change,)).at_least_ns for change in (loading, collectives)]
    assert alone[0] > 2 * alone[1] > 0
    for both in ((loading, collectives), (Change("prefetch", {"workers": 7.0}), collectives)):
        floors = [replay.weights((change,)).at_least_ns for change in both]
        assert replay.weights(both).at_least_ns == max(floors)


ONCE = {
    None: (("cudaMalloc", "cudaFree"), recording.COMPILATION, True),
    "allocation": (("cudaMalloc", "cudaFree"), None, False),
    "compilation": ((), recording.COMPILATION, True),
}


@pytest.mark.parametrize("only", ONCE)
def test_of_what_happens_once_all_or_a_part_is_left_out(only: str | None) -> None:
    replay = program()
    names, part, loads = ONCE[only]
    before, after = weighed(replay, Change("warm", {} if only is None else {"only": only}))
    graph = replay.graph
    memory = of_calls(replay, CALL, *names)
    assert not after.host[memory].any()
    assert (after.removed == of_calls(replay, RETURN, *names)).all()
    length = graph.recorded.calls.end - graph.recorded.calls.start
    slow = calls(replay, "cudaLaunchKernel") & (length > 1_000_000)
    assert slow.sum() == 8
    loading = graph.kind == CALL
    loading[loading] = slow[graph.ref[loading]]
    launched = of_activities(replay, LATENCY, slow[graph.recorded.activities.call])
    if loads:
        assert after.host[loading].max() < 6_000
        assert after.host[launched].max() < 6_000
    else:
        loading = launched = np.zeros(graph.kind.size, dtype=bool)
    assert same(before.host, after.host, memory | loading | launched)
    assert same(before.device, after.device)
    assert kept_parts(before, after, *([] if part is None else [part]))
    if part is not None:
        assert after.parts[part].max() == 0


def test_fused_chains_move_less_and_are_launched_once() -> None:
    replay = program()
    graph = replay.graph
    before, after = weighed(replay, Change("fuse", {"of": "chain"}))
    chained = having(replay, "operator", "aten::mul", "aten::add")
    runs = of_activities(replay, EXECUTION, chained)
    once = before.device[runs] / 3
    assert after.device[runs] == pytest.approx(once, rel=0.02), "read and written once, not three times"
    inner = chained & np.append(False, chained[:-1])
    assert 2 * inner.sum() < 3 * chained.sum()
    gaps = of_activities(replay, GAP, inner)
    assert same(after.device[gaps], after.rest[gaps])
    assert same(before.device, after.device, runs | gaps)
    gone = np.zeros(graph.recorded.calls.start.size, dtype=bool)
    gone[graph.recorded.activities.call[inner]] = True
    launches = graph.kind == CALL
    launches[launches] = gone[graph.ref[launches]]
    assert after.host[launches].max() == 0
    assert same(before.host, after.host, launches)
    leads = np.zeros(graph.time.size, dtype=bool)
    leads[graph.call_starts[gone]] = True
    stretch = graph.ref[(graph.kind == THREAD) & leads[graph.target]]
    assert after.parts[:, stretch].sum() == 0, "nor does the CPU prepare them"
    others = np.ones(after.parts.shape[1], dtype=bool)
    others[stretch] = False
    assert same(before.parts[:, others], after.parts[:, others])


def test_fused_optimizers_and_chains_spare_launches_in_the_estimate() -> None:
    """Launching limits: 240 launches of an optimizer are one, and each three of a chain are one."""
    simulation = Simulation(header={"record_shapes": 1}, seed=5)
    main = simulation.thread()
    torch = Eager(simulation, main, simulation.stream(), BF16)

    def step(_: int) -> None:
        for _ in range(8):
            torch.mm(64, 64, 64)
            for operator, functor in (("aten::mul", MULTIPLY), ("aten::add", ADD_FLOAT), ("aten::mul", MULTIPLY)):
                torch.pointwise(operator, functor, 64, 64)
        with main.annotation("Optimizer.step#Adam.step"):
            for operator, functor in (("aten::mul", MULTIPLY), ("aten::add", ADD_FLOAT)):
                for _ in range(120):
                    torch.pointwise(operator, functor, 64, 64)

    replay = Replay.of(LazyReport.on(steps(simulation, main, step).json().encode(), device=0), 0)
    now = replay.identity.step_ns
    chain, optimizer, both = (
        replay.predict((Change("fuse", options),)) for options in ({"of": "chain"}, {"of": "optimizer"}, {})
    )
    assert chain.low_ns <= chain.step_ns < 0.97 * now
    assert chain.high_ns < now, "each launch that is spared takes time of the CPU, which limits"
    assert both.step_ns <= optimizer.step_ns < 0.2 * now


def test_before_a_launch_that_is_spared_a_long_stretch_does_something_else_as_well() -> None:
    """Five milliseconds of Python in the middle of each chain stay, but for what a launch needs."""
    simulation = Simulation(header={"record_shapes": 1}, seed=3, python_frames=True)
    main = simulation.thread()
    torch = Eager(simulation, main, simulation.stream(), BF16)

    def step(_: int) -> None:
        for at in range(8):
            torch.pointwise("aten::mul", MULTIPLY, 2_048, 1_024)
            if at == 4:
                main.spend(5_000_000)
            torch.pointwise("aten::add", ADD_FLOAT, 2_048, 1_024)

    replay = Replay.of(LazyReport.on(steps(simulation, main, step).json().encode(), device=0), 0)
    before, after = weighed(replay, Change("fuse"))
    lost = before.parts.sum() - after.parts.sum()
    assert 8 * 15 * 2_000 < lost < 8 * 15 * 20_000
    assert after.parts.sum() > 8 * 4_900_000


POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::Some<float>, x>(int)"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10>(float*)"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("operator", "name", "trains", "factor"),
    [
        ("aten::mul", POINTWISE, True, 0.5),
        ("aten::rsqrt", POINTWISE, True, 1.0),
        ("aten::rsqrt", POINTWISE, False, 0.5),
        ("aten::_softmax", SOFTMAX, True, 1.0),
        ("aten::_softmax", SOFTMAX, False, 0.5),
        (
            "aten::nll_loss_forward",
            "void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float, float>(x)",
            False,
            1.0,
        ),
    ],
)
def test_sixteen_bits_halve_what_is_converted(operator: str, name: str, trains: bool, factor: float) -> None:
    """Beside a matmul in FP32; memory limits all kernels. In training, autocast runs some operators in FP32."""
    shapes = {"Input Dims": [[4096, 4096]] * 2, "Input type": ["float"] * 2}
    rows = [
        [annotation(f"ProfilerStep#{n}", 2_000 * n, 2_000),
         op_row("aten::mm", 2_000 * n + 10, 30, **shapes, **({"Sequence number": n, "Fwd thread id": 0} if trains else {})),
         op_row("autograd::engine::evaluate_function: MmBackward0", 2_000 * n + 1_900, 5,
                **({"Sequence number": n, "Fwd thread id": 1} if trains else {})),
         launched("ampere_sgemm_128x64_tn", 2_000 * n + 12, 2_000 * n + 20, 900, 10 * n + 1, grid=[500, 1, 1]),
         op_row(operator, 2_000 * n + 50, 30, **shapes),
         *(launched(name, 2_000 * n + 52 + 5 * i, 2_000 * n + 920 + 110 * i, 100, 10 * n + 2 + i, grid=[500, 1, 1]) for i in range(5))]
        for n in range(10)
    ]  # fmt: skip
    replay = Replay.of(analysed(rows), 0)
    before, after = weighed(replay, Change("bf16"))
    runs = of_activities(replay, EXECUTION, having(replay, "operator", operator))
    assert runs.any()
    assert after.device[runs] == pytest.approx(factor * before.device[runs])


@pytest.mark.sampled
def test_sixteen_bits_halve_products_in_tf32_and_leave_what_optimizers_launch() -> None:
    shapes = {"Input Dims": [[4096, 4096]] * 2, "Input type": ["float"] * 2}
    rows = [
        [annotation(f"ProfilerStep#{n}", 2_000 * n, 2_000),
         op_row("aten::mm", 2_000 * n + 10, 30, **shapes),
         launched("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16", 2_000 * n + 12, 2_000 * n + 20, 900, 10 * n + 1, grid=[500, 1, 1]),
         op_row("aten::mul", 2_000 * n + 50, 30, **shapes),
         launched(POINTWISE, 2_000 * n + 52, 2_000 * n + 920, 100, 10 * n + 2, grid=[500, 1, 1]),
         annotation("Optimizer.step#SGD.step", 2_000 * n + 90, 50),
         op_row("aten::add_", 2_000 * n + 100, 30, **shapes),
         launched(POINTWISE, 2_000 * n + 102, 2_000 * n + 1_100, 500, 10 * n + 3, grid=[500, 1, 1])]
        for n in range(10)
    ]  # fmt: skip
    replay = Replay.of(analysed(rows), 0)
    before, after = weighed(replay, Change("bf16"))
    for operator, factor in (("aten::mm", 0.5), ("aten::mul", 0.5), ("aten::add_", 1.0)):
        runs = of_activities(replay, EXECUTION, having(replay, "operator", operator))
        assert runs.any()
        assert after.device[runs] == pytest.approx(factor * before.device[runs]), operator


def test_a_bigger_batch_grows_work_by_waves_loading_and_copies_in_proportion_and_no_update() -> None:
    replay = program()
    prefetched = replay.weights((Change("prefetch", {"workers": 4.0}),))
    before, after = weighed(replay, Change("batch", {"times": 2.0}))
    assert after.parts[recording.DATA] == pytest.approx(2 * before.parts[recording.DATA])
    assert kept_parts(before, after, recording.DATA)
    calls, recorded = replay.graph.recorded.calls, replay.graph.recorded.activities
    staging = np.zeros(calls.start.size, dtype=bool)
    staging[recorded.call[recorded.pageable]] = True
    own = replay.graph.kind == CALL
    own[own] = staging[replay.graph.ref[own]]
    delayed = of_activities(replay, LATENCY, recorded.pageable)
    assert same(before.host[~(own | delayed)], after.host[~(own | delayed)])
    assert (after.host[own] > 1.5 * before.host[own]).any()
    duration = np.array(column(replay, "duration_ns"), dtype=float)
    updates = having(replay, "operator", "aten::_fused_adamw_")
    kernels = having(replay, "kind", "kernel")
    runs = replay.graph.kind == EXECUTION
    ref: recording.Ints = replay.graph.ref[runs]
    grown = after.device[runs] / np.maximum(before.device[runs], 1)
    assert (grown[updates[ref]] == 1).all()
    assert (grown[kernels[ref]] > 1.5).any()
    assert ((grown >= 1) & (grown <= 2)).all(), "nothing grows faster than the batch"
    fixed = np.minimum(duration, 2_000)
    assert grown[~kernels[ref]] == pytest.approx((2 - fixed / duration)[ref][~kernels[ref]])
    both = replay.weights((Change("batch", {"times": 2.0}), Change("prefetch", {"workers": 4.0})))
    assert both.at_least_ns == pytest.approx(2 * prefetched.at_least_ns), "a batch twice as big is loaded twice as long"


def test_a_batch_that_exceeds_the_memory_of_the_device_is_refused() -> None:
    """Check the limit by the catalogue's memory, which is unknown for a partition with half of the multiprocessors."""
    replay, bigger = program(), (Change("batch", {"times": 1e5}),)
    with pytest.raises(NotApplicable, match="is more than the device's"):
        replay.weights(bigger)
    report = replay.scene.report
    halves = [replace(device, sm_count=54) for device in report.devices]
    partition = SimpleNamespace(tables=report.tables, trust=report.trust, devices=halves)
    assert Replay(replay.graph, partition).weights(bigger)
    with pytest.raises(NotApplicable, match=r"is more than the device's 1\.07 GB"):
        Replay(replay.graph, partition, memory_bytes=1 << 30).weights(bigger)


def test_floors_keep_what_belongs_to_the_other_side() -> None:
    replay = program()
    graph, before = replay.graph, replay.weights(())
    fast, slow = before.copy(), before.copy()
    infinite_gpu(fast, replay.scene)
    infinite_cpu(slow, replay.scene)
    runs = graph.kind == EXECUTION
    assert fast.device[runs].max() == 0
    assert fast.device[graph.kind == GAP].max() == 0
    assert same(before.host, fast.host)
    assert kept_parts(before, fast)
    assert same(before.device[runs], slow.device[runs])
    assert slow.host.max() == 0
    assert slow.parts.max() == 0
    assert slow.device[graph.kind == LATENCY].max() == 0
    assert (slow.removed == (graph.kind == RETURN)).all()
    assert (slow.device - slow.rest)[graph.kind == GAP].max() <= 1_000
