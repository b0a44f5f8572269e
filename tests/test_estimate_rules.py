"""Rules of estimates: what a graph holds, what links and kernels reach, and what is not known; each has a plant that needs it."""

from math import inf
from random import Random
from typing import Any

import pytest
from kineto import A100, analysed, annotation, call, copy, kernel, launched, op, python, trace_bytes
from lazy_report import LazyReport, report_on
from make_samples import FP32, Eager
from replay_pairs import PAIRS, beginning, gemm, op as operator, steps
from simulator import Kernel, Simulation

from trace_analyzer import thresholds
from trace_analyzer.replay import refusals, weights
from trace_analyzer.replay.changes import Change, in_pieces
from trace_analyzer.replay.estimates import Estimates
from trace_analyzer.replay.graph import EXECUTION, RETURN
from trace_analyzer.replay.outcomes import Prediction
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.whatif import whatif
from trace_analyzer.report import Report
from trace_analyzer.report.verdicts import is_saving_known

pytestmark = pytest.mark.slow

GRAPHS = (Change("graphs"),)


def paced(before: str | None, length: int, *, steps: int = 8, launches: int = 10, marked: bool = True) -> Replay:
    """Replay rounds in which something takes ``length`` us, then operators launch kernels of 5 us every 10 us."""
    rows, of_step = [], length + 10 * launches + 20
    for number in range(steps):
        start = number * of_step
        if marked:
            rows.append(annotation(f"ProfilerStep#{number}", start, of_step - 1))
        if before is not None:
            rows.append(python(before, start + 1, length - 2))
        for at in range(launches):
            begin = start + length + 10 * at
            rows += [op("aten::add", begin, 8), launched("k", begin + 2, begin + 6, 5, number * launches + at + 1)]
    return Replay.of(analysed(rows), 0)


@pytest.mark.parametrize(
    ("name", "marked"), [("env.py(3): reward", True), ("train.py(7): log", False), ("cache.py(1): batch", True)]
)
def test_python_without_a_launch_stays_outside_of_a_graph_whatever_its_name(name: str, marked: bool) -> None:
    """Without marks it is all the Python that is recorded, and a window of 8 rounds begins with the first launch."""
    replay = paced(name, 2_000, marked=marked)
    predicted = replay.predict(GRAPHS)
    assert predicted.low_ns >= 2_000_000 * 0.98 * (1 if marked else 7)
    assert predicted.step_ns < replay.identity.step_ns - 20_000, "what surrounds launches goes"


@pytest.mark.parametrize(
    "before", [op("aten::mm", 0, 1_995), call("cudaFuncGetAttributes", 0, 1_980)], ids=["operator", "call"]
)
def test_what_takes_longer_than_any_launch_stays_outside_of_a_graph(before: dict[str, Any]) -> None:
    rows = [
        [annotation(f"ProfilerStep#{n}", 3_000 * n, 2_999), before | {"ts": before["ts"] + 3_000 * n},
         *(launched("k", 3_000 * n + 1_985 + 100 * i, 3_000 * n + 1_991 + 100 * i, 5, 10 * n + i + 1) for i in range(10))]
        for n in range(8)
    ]  # fmt: skip
    replay = Replay.of(analysed(rows), 0)
    assert 1_950_000 < replay.predict(GRAPHS).step_ns < 2_100_000


def test_python_around_launches_goes_into_a_graph() -> None:
    replay = paced("model.py(3): forward", 40)
    assert replay.predict(GRAPHS).step_ns < 0.6 * replay.identity.step_ns


@pytest.mark.parametrize(
    ("length", "every", "stays"),
    [(1_500, 10, True), (900, 10, True), (60, 10, False), (300, 1, False), (1_500, 1, True)],
    ids=["long", "longer than usual", "short", "as usual", "longer than what may surround a launch"],
)
def test_a_silence_is_no_part_of_a_graph_where_it_is_longer_than_usual(length: int, every: int, stays: bool) -> None:
    """It is in no step at best, as nothing says what it was."""
    of_round = 10 // every * length + 120
    rounds = [
        [launched("k", at := of_round * n + 10 * i + i // every * length, at + 6, 5, 10 * n + i + 1) for i in range(10)]
        for n in range(10)
    ]
    replay = Replay.of(analysed(rounds), 0)
    predicted, now = replay.predict(GRAPHS), replay.identity.step_ns
    assert predicted.low_ns < 0.7 * now
    assert (predicted.step_ns > 0.7 * now) is stays


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        ("reward", True),
        ("env.step", True),
        ("log", True),
        ("Pregraph bytecode", False),
        ("gpu_model_runner: preprocess", False),
        (None, False),
    ],
)
def test_what_an_annotation_without_a_launch_names_is_no_part_of_a_graph(name: str | None, stays: bool) -> None:
    """Of silences of 300 us around each launch, and one of 800 us, nothing but the annotation tells which is the program's own."""
    rows = []
    for n in range(8):
        start = 4_020 * n
        rows += [annotation(f"ProfilerStep#{n}", start, 4_019), *([annotation(name, start + 1, 798)] if name else [])]
        for i in range(10):
            begin = start + 800 + 320 * i
            rows += [op("aten::add", begin, 8), launched("k", begin + 2, begin + 6, 5, 10 * n + i + 1)]
    predicted = Replay.of(analysed(rows), 0).predict(GRAPHS)
    assert (predicted.low_ns >= 800_000) is stays


def updated(before: int, graphs: bool = False) -> Report:
    """Analyse rounds of ``before`` launches (or one of a graph of as many kernels), and 60 in an optimizer, every 10 us."""
    rows, of_step = [], 10 * (before + 60) + 40
    for number in range(8):
        start = number * of_step
        update = start + 10 * before + 10
        rows += [
            annotation(f"ProfilerStep#{number}", start, of_step - 1),
            annotation("Optimizer.step#Adam.step", update, 601),
        ]
        for at in range(before + 60):
            begin, flow = start + 10 * at + 12 * (at >= before), 100 * number + at + 1
            if at >= before or not graphs:
                rows += [op("aten::add", begin, 8), launched("k", begin + 2, begin + 6, 1, flow)]
            elif at == 0:
                rows.append(call("cudaGraphLaunch", begin + 2, 3, correlation=flow))
                rows += [kernel("k", begin + 6 + 9 * one, 9, correlation=flow) for one in range(before)]
    return analysed(rows)


def test_a_graph_of_the_model_leaves_its_optimizer() -> None:
    """Of 100 launches of 10 us each, 60 are the optimizer's: a graph of the others saves all but one of 0.4 ms, and waits around them."""
    report = updated(40)
    replay = Replay.of(report, 0)
    saves = replay.identity.step_ns - replay.predict(GRAPHS).step_ns
    assert 390_000 < saves < 440_000
    (graphs,) = (item for item in report.advice if item.id == "cuda-graphs")
    assert "(40 launches per step, without those of optimizers)" in graphs.why
    assert graphs.saves_ns_at_most <= 8 * 450_000


def test_a_model_in_a_graph_needs_no_other_for_its_optimizer() -> None:
    report = updated(40, graphs=True)
    with pytest.raises(weights.NothingToChange, match="graphs launch the work already"):
        Replay.of(report, 0).predict(GRAPHS)
    assert "cuda-graphs" not in [item.id for item in report.advice]


def test_a_program_that_replays_graphs_has_no_use_for_more() -> None:
    simulation = PAIRS["graphs"].after(1)
    with pytest.raises(weights.NothingToChange, match="graphs launch the work already"):
        Replay.of(LazyReport.on(simulation, device=0), 0).predict(GRAPHS)


@pytest.mark.parametrize(
    ("waits", "launches", "refused"), [(2, 19, True), (2, 20, False), (1.9, 1, False), (20, 199, True)]
)
def test_pieces_between_waits_hold_ten_launches(waits: float, launches: int, refused: bool) -> None:
    assert in_pieces(waits, launches, 1) == refused
    assert in_pieces(3 * waits, 3 * launches, 3) == refused


def test_a_wait_every_few_launches_leaves_no_graph() -> None:
    with pytest.raises(weights.NotApplicable, match="4 calls a step wait for the device, which no graph can contain"):
        Replay.of(LazyReport.on(PAIRS["no-sync"].before(1), device=0), 0).predict(GRAPHS)


@pytest.mark.parametrize(
    ("operator", "shapes", "name", "ns", "factor"),
    [
        ("aten::mm", [[2_048, 2_048], [2_048, 2_048]], "ampere_sgemm_128x64_tn", 881_000, 2.0),
        ("aten::add", [[4_096, 4_096], [4_096, 4_096]], "void at::native::vectorized_elementwise_kernel<4, Add, x>(int)", 99_000, 2.0),
        ("aten::mm", [[1, 8_192], [8_192, 8_192]], "ampere_sgemm_128x64_tn", 132_000, 1.0),
    ],
    ids=["FLOP", "bytes", "bytes of weights"],
)  # fmt: skip
def test_no_kernel_of_another_batch_beats_its_roof(
    operator: str, shapes: list[list[int]], name: str, ns: int, factor: float
) -> None:
    """Half of the device's multiprocessors have a block, so that one wave holds twice as many; of weights there are no more."""
    types = {"Input Dims": shapes, "Input type": ["float", "float"]}
    rows = [
        [op(operator, 2_000 * n, 30, **types),
         launched(name, 2_000 * n + 5, 2_000 * n + 15, ns // 1_000, n + 1, grid=[54, 1, 1], block=[1_024, 1, 1])]
        for n in range(60)
    ]  # fmt: skip
    replay = Replay.of(analysed(rows), 0)
    runs = replay.graph.kind == EXECUTION
    grown = replay.weights((Change("batch", {"times": 2.0}),)).device[runs] / replay.weights(()).device[runs]
    assert grown == pytest.approx(factor, rel=0.03)


@pytest.mark.parametrize(("marked", "length", "share"), [(True, 5, 0.1), (False, 5, 0.2), (True, 95, 0.1)])
def test_another_batch_is_known_no_better_than_recordings_of_one_program_agree(
    marked: bool, length: int, share: float
) -> None:
    """The CPU's time differs by a tenth of a step and a fifth of a window, and the model of kernels misses by a tenth."""
    rows = [
        [*([annotation(f"ProfilerStep#{n}", 1_000 * n, 999)] if marked else []),
         *(launched("k", 1_000 * n + (10 if length > 50 else 100) * i, 1_000 * n + 100 * i + 5, length, 10 * n + i + 1, grid=[108, 1, 1], block=[1_024, 1, 1])
           for i in range(10))]
        for n in range(8)
    ]  # fmt: skip
    then = Replay.of(analysed(rows), 0).predict((Change("batch", {"times": 1.01}),))
    assert then.step_ns - then.low_ns > 0.95 * share * then.step_ns
    assert then.high_ns - then.step_ns > 0.95 * share * then.step_ns


def copies(pinned: bool, count: int = 20) -> LazyReport:
    """Return a trace of nothing but copies: 8 MiB of pageable memory each at 5 GB/s, or one of them pinned at 20."""
    rows, length = [], 1_678
    for number in range(count):
        start = number * (length + 120)
        is_pinned = pinned and number == count - 1
        rows += [
            call("cudaMemcpyAsync", start, 10 if is_pinned else length + 60, correlation=number + 1),
            copy(
                f"HtoD ({'Pinned' if is_pinned else 'Pageable'} -> Device)", start + 50, length // 4 if is_pinned else length,
                correlation=number + 1, bytes=8 << 20,
            ),
        ]  # fmt: skip
    return LazyReport.on(trace_bytes(rows, deviceProperties=[A100]), device=0)


@pytest.mark.parametrize("pinned", [True, False])
def test_copies_alone_are_enough_for_estimates_of_copies(pinned: bool) -> None:
    """Pinned copies take the rate of those in the trace, else 80 % of the link's 31.5 GB/s; at most it stays as it is."""
    report = copies(pinned)
    result = whatif(report)
    assert result.status == "ok"
    (row,) = (scenario for scenario in result.scenarios if scenario.name == "pinned")
    taken = sum(8 * 1.048576e6 / (20 if pinned else 0.8 * 31.5) for _ in range(20))
    assert row.step_ns == pytest.approx(taken, rel=0.05)
    assert row.low_ns < row.step_ns
    assert (row.high_ns > 1.3 * row.step_ns) == (not pinned)
    assert {one.name for one in result.skipped if one.is_refused} >= {"graphs", "no-sync", "fuse"}
    recorded = Replay.of(report, 0).graph.recorded
    assert "too few" in str(refusals.barred(report, recorded, Change("graphs")))
    assert refusals.barred(report, recorded, Change("pinned")) is None


@pytest.mark.parametrize(
    ("size", "between", "refused", "reason"),
    [
        ("In msg nelems", (), None, ""),
        ("unknown", (), weights.NotApplicable, "sizes of messages are not recorded"),
        ("In msg nelems", ("ampere_sgemm_128x64_tn",), weights.NothingToChange, "no small messages"),
    ],
    ids=["in a row", "of unknown size", "each needed by a kernel"],
)
def test_small_messages_are_one_if_nothing_needs_them_before(
    size: str, between: tuple[str, ...], refused: type[weights.NotApplicable] | None, reason: str
) -> None:
    """Of 30 messages of 50 to 79 us, one latency of 50 us and what is beyond it stays."""
    message = {"Collective name": "allreduce", size: 1_000, "dtype": "Float", "Group size": 8}
    rows = [
        [op("record_param_comms", 100 * n, 20, **message), launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100 * n + 5, 100 * n + 10, 50 + n, n + 1),
         *(launched(name, 100 * n + 30, 100 * n + 92, 5, n + 100) for name in between)]
        for n in range(30)
    ]  # fmt: skip
    replay = Replay.of(analysed(rows), 0)
    if refused is not None:
        with pytest.raises(refused, match=reason):
            replay.predict((Change("buckets"),))
        return
    ran = replay.weights((Change("buckets"),)).device[replay.graph.kind == EXECUTION]
    assert sorted(ran.tolist()) == [*[0] * 29, pytest.approx((50 + sum(range(30))) * 1_000)]
    predicted = replay.predict((Change("buckets"),))
    assert predicted.low_ns < predicted.step_ns < predicted.high_ns < replay.identity.step_ns


@pytest.mark.parametrize(("elements", "steps", "left_us"), [(1_000_000, 1, [209, 326]), (1_000, 3, [95, 195, 295])])
def test_a_message_is_of_one_step_and_of_100_mb_at_most(elements: int, steps: int, left_us: list[int]) -> None:
    message = {"Collective name": "allreduce", "In msg nelems": elements, "dtype": "Float", "Group size": 8}
    rows = [
        [op("record_param_comms", 100 * n, 20, **message), launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100 * n + 5, 100 * n + 10, 50 + n, n + 1)]
        for n in range(30)
    ]  # fmt: skip
    marks = [annotation(f"ProfilerStep#{n}", 3_000 // steps * n, 3_000 // steps - 1) for n in range(steps)]
    replay = Replay.of(analysed(rows, marks), 0)
    ran = replay.weights((Change("buckets"),)).device[replay.graph.kind == EXECUTION]
    assert sorted(ran[ran > 0].tolist()) == pytest.approx([1_000 * us for us in left_us])


@pytest.mark.parametrize("change", [Change("speedup", {"target": "communication", "factor": 2.0}), Change("overlap")])
def test_what_one_rank_waits_for_its_peers_is_not_known(change: Change) -> None:
    replay = Replay.of(LazyReport.on(PAIRS["overlap"].before(1), device=0), 0)
    predicted, now = replay.predict((change,)), replay.identity.step_ns
    assert predicted.step_ns < 0.95 * now
    assert predicted.high_ns == now
    assert not is_saving_known(now, predicted.step_ns, predicted.low_ns, predicted.high_ns)


def test_overlap_at_best_is_not_worse_than_faster_links() -> None:
    replay = Replay.of(LazyReport.on(PAIRS["overlap, links limit"].before(1), device=0), 0)
    faster = replay.predict((Change("speedup", {"target": "communication", "factor": inf}),))
    assert replay.predict((Change("overlap"),)).low_ns <= faster.step_ns


@pytest.mark.parametrize("reached", [1.0, 0.5, 0.05])
def test_a_narrower_type_reaches_what_matmuls_reach_here(reached: float) -> None:
    """FP32 products at half of their roof are at half of TF32's, and at all of it at best; a tenth is the least."""
    simulation = Simulation(header={"record_shapes": 1}, seed=1)
    main, stream = simulation.thread(), simulation.stream()
    torch = Eager(simulation, main, stream, FP32)
    ns = round(2e9 * 2_048**3 / 19.5e12 / reached)

    def step(_: int) -> None:
        for _ in range(10):
            with main.op("aten::mm", [torch.tensor(2_048, 2_048)] * 2, before_ns=4_000):
                main.launch(Kernel("ampere_sgemm_128x64_tn", ns, (432, 1, 1), (256, 1, 1)), stream)

    replay = Replay.of(report_on(steps(simulation, main, step).json().encode(), device=0), 0)
    predicted, now = replay.predict((Change("tf32"),)), replay.identity.step_ns
    assert predicted.step_ns == pytest.approx(now * 19.5 / 156 * min(1, 10 * reached), rel=0.1)
    assert predicted.low_ns <= now * 19.5 / 156 * reached * 1.1


def test_what_is_in_fp32_beside_products_in_16_bits_stays() -> None:
    """Autocast leaves it so on purpose."""
    rows = [
        [op("aten::mm", 2_000 * n, 30, **{"Input Dims": [[4_096, 4_096]] * 2, "Input type": ["c10::BFloat16"] * 2}),
         launched("ampere_bf16_s16816gemm_bf16_128x256_tn", 2_000 * n + 5, 2_000 * n + 15, 900, 2 * n + 1),
         op("aten::add", 2_000 * n + 50, 30, **{"Input Dims": [[4_096, 4_096]] * 2, "Input type": ["float"] * 2}),
         launched("void at::native::vectorized_elementwise_kernel<4, Add<float>, x>(int)", 2_000 * n + 55, 2_000 * n + 920, 110, 2 * n + 2)]
        for n in range(30)
    ]  # fmt: skip
    with pytest.raises(weights.NothingToChange, match="no kernel is known to compute in FP32"):
        Replay.of(analysed(rows), 0).predict((Change("bf16"),))


def test_what_is_behind_a_copy_waits_for_it_only_where_it_is_pageable() -> None:
    """A synchronize right behind the copy is that of ``to()`` without ``non_blocking``; one behind a kernel stays."""
    rows = [
        [call("cudaMemcpyAsync", 1_000 * n, 10, correlation=3 * n + 1), copy("HtoD (Pageable -> Device)", 1_000 * n + 12, 300, correlation=3 * n + 1),
         call("cudaStreamSynchronize", 1_000 * n + 12, 305), launched("k", 1_000 * n + 330, 1_000 * n + 340, 400, 3 * n + 2),
         call("cudaStreamSynchronize", 1_000 * n + 345, 400)]
        for n in range(30)
    ]  # fmt: skip
    replay = Replay.of(analysed(rows), 0)
    then = replay.weights((Change("pinned"),))
    waits = replay.graph.kind == RETURN
    assert (waits.sum(), then.removed.sum()) == (60, 30)
    assert then.removed[waits].sum() == 30


@pytest.mark.parametrize(("step_ns", "estimated"), [(99.0, False), (97.0, True)])
def test_a_cold_start_has_no_estimate_that_reads_as_no_gain(step_ns: float, estimated: bool) -> None:
    change, then = Change("warm"), Prediction(step_ns, 90, 100)
    known = Estimates(0, now_ns=100, predictions={"warm": (change, then), "graphs": (Change("graphs"), then)})
    assert (known.of(change) is not None) == estimated
    assert known.of(Change("graphs")) is not None


def test_a_faster_device_stays_above_the_cpu_s_floor() -> None:
    simulation, main, stream = beginning(Random(1))

    def step(_: int) -> None:
        for _ in range(30):
            operator(main, "aten::mm", gemm(4_000), stream, 9_000)

    replay = Replay.of(LazyReport.on(steps(simulation, main, step).json().encode(), device=0), 0)
    for target in ("gpu", "matmul"):
        assert replay.predict((Change("speedup", {"target": target, "factor": inf}),)).step_ns >= replay.floors[0]


@pytest.mark.parametrize("factor", [1.5, 4.0, inf])
def test_what_is_faster_makes_no_step_longer_whose_begin_moves_more_than_its_end(factor: float) -> None:
    """The step before the first measured one ends with a long collective, and the CPU limits the others."""
    steps_ = [
        [annotation(f"ProfilerStep#{n}", 1_000 * n, 999),
         *(launched("k", 1_000 * n + 90 * i, 1_000 * n + 90 * i + 5, 5, 100 * n + i + 1) for i in range(10)),
         launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1_000 * n + 905, 1_000 * n + 910, 30 if n else 300, 100 * n + 99)]
        for n in range(7)
    ]  # fmt: skip
    replay, change = Replay.of(analysed(steps_), 0), Change("speedup", {"target": "communication", "factor": factor})
    assert replay.outcome((change,)).step_ns > 1.01 * replay.identity.step_ns
    assert replay.predict((change,)).step_ns <= replay.identity.step_ns


def test_an_estimate_ends_at_the_floor_though_the_device_catches_up_within_the_recording() -> None:
    """A device that is behind when the steps begin catches up once: a long recording would take no less than the CPU."""
    name = "void at::native::vectorized_elementwise_kernel<4, Add, x>(int)"
    rows = [[annotation("ProfilerStep#0", 0, 999), launched("ampere_sgemm_128x64_tn", 5, 10, 1_300, 1)]]
    for n in range(1, 7):
        rows.append([annotation(f"ProfilerStep#{n}", 1_000 * n, 999)])
        rows += [[launched(name, 1_000 * n + 100 * i, 990 * n + 330 + 99 * i, 98, 100 * n + i)] for i in range(10)]
    replay, change = Replay.of(analysed(rows), 0), Change("speedup", {"target": "pointwise", "factor": inf})
    assert replay.outcome((change,)).step_ns < 0.97 * replay.floors[0]
    slowed = weights.least_factor(replay.graph, replay.scene.tables["host_events"])
    assert replay.predict((change,)).low_ns >= (1 - abs(replay.identity_ratio)) * slowed * replay.floors[0]


@pytest.mark.parametrize("operator_ns", [9_000, 900_000])
def test_a_recorded_cpu_is_an_upper_bound_of_the_cpu(operator_ns: int) -> None:
    """Where a faster device ends at the CPU, the interval starts at what recording may leave of that, unless it is measured."""
    simulation, main, stream = beginning(Random(1))

    def step(_: int) -> None:
        for _ in range(30):
            operator(main, "aten::mm", gemm(10 * operator_ns), stream, operator_ns)

    replay = Replay.of(LazyReport.on(steps(simulation, main, step).json().encode(), device=0), 0)
    change = Change("speedup", {"target": "gpu", "factor": inf})
    floor, predicted = replay.floors[0], replay.predict((change,))
    least = 1 - thresholds.RECORDING_MOST_RATIO if operator_ns < 10_000 else 0.97  # few events cost little
    assert predicted.step_ns >= floor > predicted.low_ns >= 0.99 * least * floor
    known = replay.without_profiler(replay.recorded_step_ns)
    assert known.predict((change,)).low_ns >= (1 - abs(known.identity_ratio)) * known.floors[0]


def test_where_the_path_is_inferred_the_error_is_that_of_a_round_trip() -> None:
    replay = Replay.of(LazyReport.on(PAIRS["contention"].before(1), device=0), 0)
    assert replay.summary.inferred_ratio > 0.01
    replay.__dict__["round_trip"] = 0.03
    predicted = replay.predict((Change("speedup", {"target": "gpu", "factor": 1.05}),))
    assert predicted.low_ns < 0.975 * predicted.step_ns


def test_what_nothing_explains_widens_an_interval() -> None:
    """Two of 30 kernels start 50 us after the one before them, beside a CPU that launches one each 100 us."""
    ended, rows = 0, []
    for n in range(30):
        start = max(ended + (51 if n in (10, 20) else 1), 100 * n + 6)
        ended = start + (130 if n in (9, 19) else 80)
        rows += [op("aten::add", 100 * n, 99), launched("k", 100 * n + 1, start, ended - start, n + 1)]
    replay = Replay.of(analysed(rows), 0)
    predicted = replay.predict((Change("speedup", {"target": "cpu", "factor": inf}),))
    assert replay.summary.unexplained_ratio == 0, "the CPU limits"
    assert predicted.step_ns - predicted.low_ns > 90_000, "they start late then, too, or not"


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def job(compute: int, wait: int, transfer: int = 20, *, steps: int = 8, collective: str = ALL_REDUCE) -> Report:
    """Analyse ten rounds a step of a matmul, what a peer is later, which nothing records, and a collective; all is queued.

    Before them, kernels start at once.
    """
    of_round, rows = compute + wait + transfer, [launched("k", 20 * i, 20 * i + 10, 5, 900 + i) for i in range(20)]
    for at in range(10 * steps):
        launches, start = 400 + 12 * at, 420 + of_round * at
        if at % 10 == 0:
            rows.append(annotation(f"ProfilerStep#{at // 10}", launches, 119))
        rows += [op("aten::mm", launches, 4), launched("sgemm_128x128", launches + 1, start, compute, 2 * at + 1),
                 op("c10d::allreduce_", launches + 5, 4), launched(collective, launches + 6, start + compute + wait, transfer, 2 * at + 2),
                 call("cudaEventRecord", launches + 10, 1)]  # fmt: skip
    return analysed(rows)


def test_an_estimate_holds_what_peers_make_of_it_where_they_are_awaited() -> None:
    """Matmuls twice as fast save half of all that the ranks compute, or nothing where only this rank has them."""
    report = job(60, 100)
    replay, faster = Replay.of(report, 0), Change("speedup", {"target": "matmul", "factor": 2.0})
    predicted = replay.predict((faster,))
    for then in (job(30, 50), job(30, 130)):
        assert predicted.low_ns <= Replay.of(then, 0).recorded_step_ns <= predicted.high_ns
    assert not is_saving_known(replay.identity.step_ns, predicted.step_ns, predicted.low_ns, predicted.high_ns)
    result = whatif(report)
    assert result.critical_path[0].name == "unexplained"
    assert result.critical_path[0].ratio == pytest.approx(100 / 180, abs=0.01)
    assert {"graphs", "speedup"} == {
        each.name for each in result.skipped if "nothing in the trace explains" in each.reason
    }
    assert report.verdict.levers == (), "of what is awaited, nobody knows which resource it needs"
    told = whatif(report, (faster,)).summary(200)
    assert told.startswith(
        "What Matmul 2 times as fast would save is not known: a step may take 1 ms to 1.80 ms, now 1.80 ms."
    )


def test_without_a_collective_nothing_tells_what_unexplained_time_waits_for() -> None:
    alone = job(60, 100, collective="elementwise_kernel")
    with pytest.raises(weights.NotApplicable, match="nothing in the trace explains 56 % of the critical path"):
        Replay.of(alone, 0).predict((Change("speedup", {"target": "matmul", "factor": 2.0}),))
    assert "events may be missing" in str(whatif(alone).reason)


@pytest.mark.parametrize("target", ["communication", "c10d::allreduce_"])
@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_link_may_change_nothing_where_collectives_wait_for_peers(target: str, factor: float) -> None:
    replay = Replay.of(job(60, 0), 0)
    link, matmuls = (Change("speedup", {"target": one, "factor": factor}) for one in (target, "matmul"))
    now, alone, other, both = (replay.predict(changes) for changes in ((), (link,), (matmuls,), (link, matmuls)))
    assert alone.low_ns <= now.step_ns <= alone.high_ns
    assert (alone.step_ns < now.step_ns) is (factor > 1)
    assert both.low_ns <= other.low_ns <= other.high_ns <= both.high_ns


@pytest.mark.parametrize(
    ("step", "low", "high", "known"),
    [
        (90, 85, 95, True),
        (90, 84, 95, False),
        (90, 90, 100, False),
        (99.5, 98.5, 100, True),
        (99.5, 97.9, 100, False),
        (100, 100, 100, True),
    ],
)
def test_a_saving_is_known_where_the_interval_is_at_most_as_wide(
    step: float, low: float, high: float, known: bool
) -> None:
    assert is_saving_known(100, step, low, high) == known
