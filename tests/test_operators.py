"""Test the CPU time of operators, split as in the flame graph of one addition (microseconds)."""

from itertools import count
from typing import Any

import polars as pl
import pytest
from kineto import Event, analysed, annotation, call, copy, flow, kernel, launch, loaded, op, python, rows

from trace_analyzer.analyses import host, modules
from trace_analyzer.report import Report

COLUMNS = ("name", "host_ns", "host_self_ns", "python_ns", "dispatch_ns", "runtime_ns", "blocked_ns")


def operators(*events: Any, columns: tuple[str, ...] = COLUMNS) -> dict[str, tuple[Any, ...]]:
    return {name: figures for name, *figures in map(tuple, rows(analysed(*events).tables["operators"], *columns))}


ADD = [
    python("train.py(3): main", 0, 200),
    op("aten::mul", 2, 6),
    op("aten::add", 20, 15),
    launch(25, 6, 1),
    kernel("k", 40, 3, correlation=1),
]


def test_an_addition_is_python_dispatch_and_a_launch() -> None:
    assert operators(ADD) == {"aten::mul": [6, 6, 0, 6, 0, 0], "aten::add": [15, 15, 12, 9, 6, 0]}


def test_operators_within_operators_keep_their_own_time() -> None:
    nested = [
        op("aten::linear", 20, 20),
        op("aten::addmm", 22, 10),
        launch(25, 3, 1),
        kernel("k", 40, 3, correlation=1),
    ]
    assert operators(nested) == {"aten::linear": [20, 10, None, 10, 0, 0], "aten::addmm": [10, 10, None, 7, 3, 0]}


def test_python_within_an_operator_is_its_own() -> None:
    custom = [
        op("MyFunction", 20, 20),
        python("f.py(8): forward", 22, 15),
        op("aten::mm", 25, 5),
        annotation("x", 32, 2),
    ]
    assert operators(custom) == {"MyFunction": [20, 15, 8, 7, 0, 0], "aten::mm": [5, 5, 0, 5, 0, 0]}


def test_waiting_is_neither_launching_nor_python() -> None:
    """Check that a synchronize and a data loader between the two operators leave 15 us of 60 us."""
    between = [call("cudaDeviceSynchronize", 45, 20), annotation("enumerate(DataLoader)#_It.__next__", 66, 25)]
    actual = operators(ADD, *between, op("aten::sub", 95, 5))
    assert actual["aten::sub"] == [5, 5, 15, 5, 0, 0]
    blocking = [
        op("aten::copy_", 60, 30),
        call("cudaMemcpyAsync", 65, 20, correlation=2),
        copy("DtoH (Device -> Pageable)", 70, 2, correlation=2),
    ]
    assert operators(ADD, blocking)["aten::copy_"] == [30, 30, 25, 10, 0, 20]


def test_annotations_that_are_written_as_operators_are_none() -> None:
    assert operators(op("ProfilerStep#1", 0, 100), op("aten::mm", 5, 5)) == {"aten::mm": [5, 5, None, 5, 0, 0]}


def test_short_launches() -> None:
    """Aten::add takes 15 us of CPU for 3 us of GPU, twice; aten::mm as much for 50."""
    twice = [op("aten::add", 60, 15), launch(62, 6, 2), kernel("k", 70, 3, correlation=2)]
    large = [op("aten::mm", 80, 15), launch(82, 6, 3), kernel("k", 90, 50, correlation=3)]
    table = analysed(ADD, twice, large).tables["operators"].filter(pl.col("launch_count") > 0)
    assert rows(table, "name", "launch_count", "short_launch_count") == [("aten::add", 2, 2), ("aten::mm", 1, 0)]
    ratios = dict(table.select("name", "host_device_ratio").iter_rows())
    assert ratios == {"aten::add": (12 + 25 + 30) / 6, "aten::mm": (5 + 15) / 50}


BACKWARD = 7


def forward(name: str, start: float, number: int | None) -> Event:
    return op(name, start, 2, **_numbered(number, thread=0))


def backward(name: str, start: float, number: int | None) -> Event:
    return op(name, start, 2, tid=BACKWARD, **_numbered(number, thread=1))


def _numbered(number: int | None, thread: int) -> dict[str, Any]:
    return {} if number is None else {"Sequence number": number, "Fwd thread id": thread}


def pairs(*events: Any) -> list[tuple[Any, ...]]:
    trace = loaded(*events)
    names = trace.host_events.select("event_id", "name")
    links = modules.backward_links(trace, host.host_of(trace))
    named = links.join(names, on="event_id").join(names, left_on="forward_id", right_on="event_id", suffix="_forward")
    return rows(named.sort("name"), "name", "name_forward", "module")


def test_the_last_forward_operator_of_a_number_made_the_node() -> None:
    assert pairs(forward("aten::empty", 1, 5), forward("aten::mm", 4, 5), backward("MmBackward0", 20, 5)) == [
        ("MmBackward0", "aten::mm", None)
    ]


def test_numbers_that_start_again_belong_to_the_last_before() -> None:
    events = [
        forward("aten::a", 1, 5),
        backward("ABackward", 5, 5),
        forward("aten::b", 10, 5),
        backward("BBackward", 15, 5),
    ]
    assert pairs(*events) == [("ABackward", "aten::a", None), ("BBackward", "aten::b", None)]


def test_arrows_tell_where_numbers_are_missing() -> None:
    tail, head = forward("aten::mm", 1, None), backward("MmBackward0", 9, None)
    assert pairs(tail, head, flow(1, tail, head, category="fwdbwd")) == [("MmBackward0", "aten::mm", None)]
    assert pairs(tail, head) == []


@pytest.mark.parametrize(("start", "module"), [(5, "Linear_0"), (2, "MLP_0"), (30, None)])
def test_the_module_is_the_innermost_around_the_forward_operator(start: float, module: str | None) -> None:
    frames = [
        python("nn.Module: MLP_0", 1, 20),
        python("model.py(3): forward", 2, 18),
        python("nn.Module: Linear_0", 4, 6),
    ]
    assert pairs(*frames, forward("aten::mm", start, 1), backward("MmBackward0", 50, 1)) == [
        ("MmBackward0", "aten::mm", module)
    ]


def test_an_arrow_id_that_everything_shares_is_no_cross_product() -> None:
    """Check two thousand arrows of one id between two thousand operators at each end: 10^13 pairs otherwise."""
    ones = [op("forward", 1, 2) for _ in range(2_000)]
    others = [op("backward", 10, 2) for _ in range(2_000)]
    arrows = [flow(1, ones[0], others[0], category="fwdbwd") for _ in range(2_000)]
    trace = loaded(ones, others, arrows)
    links = modules.backward_links(trace, host.host_of(trace))
    assert (links.height, links.get_column("forward_id").unique().to_list()) == (2_000, [0])


GEMM = "ampere_fp16_s16816gemm_fp16_128x64"
SHAPES = [[4096, 4096], [4096, 4096]]
FLOP = 2 * 4096**3


def product(at: int, n: int, *, sequence: int | None = None, dims: list[list[int]] = SHAPES) -> list[Any]:
    """Build a product of 500 us; with a sequence number it records for autograd."""
    numbers = {} if sequence is None else {"Sequence number": sequence, "Fwd thread id": 0}
    return [
        op("aten::mm", at, 10, **{"Input Dims": dims, "Input type": ["c10::Half"] * 2}, **numbers),
        launch(at + 2, 5, n), kernel(GEMM, 1000 + 500 * n, 500, correlation=n, grid=[500, 1, 1]),
    ]  # fmt: skip


def node(name: str, at: int, duration: int) -> list[Any]:
    """Build an autograd node as the engine runs it."""
    numbers = {"Sequence number": 1, "Fwd thread id": 1}
    return [
        op(f"autograd::engine::evaluate_function: {name}", at, duration, **numbers),
        op(name, at + 1, duration - 2, **numbers),
    ]


def again(report: Report) -> list[tuple[Any, ...]]:
    return rows(report.tables["recomputation"], "sign", "operator", "count", "time_ns")


@pytest.mark.slow
def test_a_checkpoint_node_and_its_own_backward() -> None:
    """Check a node that runs the forward product again, and then the backward products in nodes of their own."""
    report = analysed(
        product(0, 1), node("CheckpointFunctionBackward", 100, 200), product(110, 2, sequence=7),
        node("MmBackward0", 150, 100), product(160, 3), product(180, 4),
    )  # fmt: skip
    assert again(report) == [("checkpoint-node", "aten::mm", 1, 500)]
    assert rows(report.tables["recomputation"], "start_ns", "end_ns") == [(2000, 2500)]
    device = report.devices[0]
    assert (device.recomputed_ns, device.recomputed_flop) == (500_000, FLOP)
    assert device.mfu == pytest.approx(3 * FLOP / 312e12 / 2000e-6)
    assert device.hfu == pytest.approx(4 * FLOP / 312e12 / 2000e-6)
    assert "recomputes forward work in the backward pass: 500 us (25 % of kernel time)" in " ".join(
        report.summary(verbose=True).split()
    )
    assert "recomputes forward work" in report.to_markdown()


def test_a_frame_of_checkpoint_within_a_node() -> None:
    frame = python("/opt/lib/torch/utils/checkpoint.py(1100): unpack_hook", 105, 60)
    report = analysed(product(0, 1), node("MmBackward0", 100, 200), frame, product(110, 2), product(180, 3))
    assert again(report) == [("checkpoint-frame", "aten::mm", 1, 500)]


def test_forward_operators_within_a_node() -> None:
    report = analysed(
        product(0, 1, sequence=1), node("MmBackward0", 100, 200), product(110, 2, sequence=5), product(180, 3)
    )
    assert again(report) == [("forward-in-backward", "aten::mm", 1, 500)]


def test_the_forward_pass_itself_is_not_again() -> None:
    frame = python("torch/utils/checkpoint.py(10): checkpoint", 0, 50)
    assert again(analysed(frame, product(5, 1, sequence=1), node("MmBackward0", 100, 50), product(110, 2))) == []


def test_a_backward_pass_that_is_differentiated_repeats_nothing() -> None:
    """With create_graph the backward operators record too, but with shapes that no forward operator had."""
    numbers = count(2)
    other = [product(110 + 20 * i, next(numbers), sequence=5, dims=[[64 + i, 64], [64, 64]]) for i in range(3)]
    assert again(analysed(product(0, 1, sequence=1), node("MmBackward0", 100, 200), other)) == []


def products(durations: list[int]) -> Report:
    """Build a report on products of 440.5 us at peak, each under another name."""
    return analysed(
        [
            [op("aten::mm", 20 * i, 10, **{"Input Dims": SHAPES, "Input type": ["c10::Half"] * 2}), launch(20 * i + 2, 5, i + 1),
             kernel(f"{GEMM}_{i}", 1000 + 1000 * i, duration, correlation=i + 1, grid=[500, 1, 1])]
            for i, duration in enumerate(durations)
        ]
    )  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("durations", "reported"),
    [
        ([700, 720, 740, 760], True), ([700, 720, 740], False), ([700, 720, 740, 900], False), ([500, 505, 510, 515], False),
    ],
)  # fmt: skip
def test_products_that_are_all_equally_far_from_peak(durations: list[int], reported: bool) -> None:
    notes = [note for note in products(durations).notes if note.code == "equally-far-from-peak"]
    assert bool(notes) == reported
    if reported:
        assert "58 % to 63 %" in notes[0].message
