"""Test the CPU time of operators, split as in the flame graph of one addition (microseconds)."""

from typing import Any

import polars as pl
import pytest
from kineto import Event, analysed, annotation, call, copy, flow, kernel, launch, launched, loaded, op, python, rows

from trace_analyzer.analyses import host, modules
from trace_analyzer.report import Report

COLUMNS = ("name", "host_ns", "host_self_ns", "python_ns", "dispatch_ns", "runtime_ns", "blocked_ns")


def operators(*events: Any, columns: tuple[str, ...] = COLUMNS) -> dict[str, tuple[Any, ...]]:
    return {name: figures for name, *figures in map(tuple, rows(analysed(*events).tables["operators"], *columns))}


ADD = [
    python("train.py(3): main", 0, 200),
    op("aten::mul", 2, 6),
    op("aten::add", 20, 15),
    launched("k", 25, 40, 3, 1, takes=6),
]


@pytest.mark.parametrize(
    ("events", "figures"),
    [
        (ADD, {"aten::mul": [6, 6, 0, 6, 0, 0], "aten::add": [15, 15, 12, 9, 6, 0]}),
        (
            [op("aten::linear", 20, 20), op("aten::addmm", 22, 10), launched("k", 25, 40, 3, 1, takes=3)],
            {"aten::linear": [20, 10, None, 10, 0, 0], "aten::addmm": [10, 10, None, 7, 3, 0]},
        ),
        (
            [
                op("MyFunction", 20, 20),
                python("f.py(8): forward", 22, 15),
                op("aten::mm", 25, 5),
                annotation("x", 32, 2),
            ],
            {"MyFunction": [20, 15, 8, 7, 0, 0], "aten::mm": [5, 5, 0, 5, 0, 0]},
        ),
        ([op("ProfilerStep#1", 0, 100), op("aten::mm", 5, 5)], {"aten::mm": [5, 5, None, 5, 0, 0]}),
    ],
    ids=["an addition", "operators within operators", "Python within an operator", "an annotation written as operator"],
)
def test_the_time_of_operators(events: list[Any], figures: dict[str, list[int | None]]) -> None:
    assert operators(events) == figures


def test_waiting_is_neither_launching_nor_python() -> None:
    """Check that a synchronize and a data loader between the two operators leave 15 us of 60 us."""
    between = [call("cudaDeviceSynchronize", 45, 20), annotation("enumerate(DataLoader)#_It.__next__", 66, 25)]
    assert operators(ADD, *between, op("aten::sub", 95, 5))["aten::sub"] == [5, 5, 15, 5, 0, 0]
    copied = copy("DtoH (Device -> Pageable)", 70, 2, correlation=2)
    blocking = [op("aten::copy_", 60, 30), call("cudaMemcpyAsync", 65, 20, correlation=2), copied]
    assert operators(ADD, blocking)["aten::copy_"] == [30, 30, 25, 10, 0, 20]


def test_short_launches() -> None:
    """Aten::add takes 15 us of CPU for 3 us of GPU, twice; aten::mm as much for 50."""
    twice = [op("aten::add", 60, 15), launched("k", 62, 70, 3, 2, takes=6)]
    large = [op("aten::mm", 80, 15), launched("k", 82, 90, 50, 3, takes=6)]
    table = analysed(ADD, twice, large).tables["operators"].filter(pl.col("launch_count") > 0)
    assert rows(table, "name", "launch_count", "short_launch_count") == [("aten::add", 2, 2), ("aten::mm", 1, 0)]
    ratios = dict(table.select("name", "host_device_ratio").iter_rows())
    assert ratios == {"aten::add": (12 + 25 + 30) / 6, "aten::mm": (5 + 15) / 50}


def forward(name: str, start: float, number: int | None = 1) -> Event:
    return op(name, start, 2, **_numbered(number, thread=0))


def backward(name: str, start: float, number: int | None = 1) -> Event:
    return op(name, start, 2, tid=7, **_numbered(number, thread=1))


def _numbered(number: int | None, thread: int) -> dict[str, Any]:
    return {} if number is None else {"Sequence number": number, "Fwd thread id": thread}


def pairs(*events: Any) -> list[tuple[Any, ...]]:
    trace = loaded(*events)
    names = trace.host_events.select("event_id", "name")
    links = modules.backward_links(trace, host.host_of(trace))
    named = links.join(names, on="event_id").join(names, left_on="forward_id", right_on="event_id", suffix="_forward")
    return rows(named.sort("name"), "name", "name_forward", "module")


TAIL, HEAD = forward("aten::mm", 1, None), backward("MmBackward0", 9, None)
FRAMES = [python("nn.Module: MLP_0", 1, 20), python("model.py(3): forward", 2, 18), python("nn.Module: Linear_0", 4, 6)]
MM = ("MmBackward0", "aten::mm")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # the last forward operator of a number made the node; where numbers start again, the last before
        ([forward("aten::empty", 1), forward("aten::mm", 4), backward("MmBackward0", 20)], [(*MM, None)]),
        (
            [forward("aten::a", 1), backward("ABackward", 5), forward("aten::b", 10), backward("BBackward", 15)],
            [("ABackward", "aten::a", None), ("BBackward", "aten::b", None)],
        ),
        # arrows tell where numbers are missing
        ([TAIL, HEAD, flow(1, TAIL, HEAD, category="fwdbwd")], [(*MM, None)]),
        ([TAIL, HEAD], []),
        # the module is the innermost around the forward operator
        *(
            ([*FRAMES, forward("aten::mm", start), backward("MmBackward0", 50)], [(*MM, module)])
            for start, module in ((5, "Linear_0"), (2, "MLP_0"), (30, None))
        ),
    ],
)
def test_a_node_is_of_the_forward_operator_that_made_it(events: list[Any], expected: list[tuple[Any, ...]]) -> None:
    assert pairs(*events) == expected


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
    numbers = {"Sequence number": 1, "Fwd thread id": 1}
    return [
        op(f"autograd::engine::evaluate_function: {name}", at, duration, **numbers),
        op(name, at + 1, duration - 2, **numbers),
    ]


def again(report: Report) -> list[tuple[Any, ...]]:
    return rows(report.tables["recomputation"], "sign", "operator", "count", "time_ns")


@pytest.mark.slow
def test_a_checkpoint_node_and_its_own_backward() -> None:
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
    shown = " ".join(report.summary(verbose=True).split())
    assert "recomputes forward work in the backward pass: 500 us (25 % of kernel time)" in shown
    assert "recomputes forward work" in report.to_markdown()


UNPACK = python("/opt/lib/torch/utils/checkpoint.py(1100): unpack_hook", 105, 60)
CHECKPOINT = python("torch/utils/checkpoint.py(10): checkpoint", 0, 50)


@pytest.mark.parametrize(
    ("events", "signs"),
    [
        ([product(0, 1), node("MmBackward0", 100, 200), UNPACK, product(110, 2), product(180, 3)], ["checkpoint-frame"]),
        (
            [product(0, 1, sequence=1), node("MmBackward0", 100, 200), product(110, 2, sequence=5), product(180, 3)],
            ["forward-in-backward"],
        ),
        # the forward pass itself is not again
        ([CHECKPOINT, product(5, 1, sequence=1), node("MmBackward0", 100, 50), product(110, 2)], []),
        # with create_graph the backward operators record too, but with shapes that no forward operator had
        (
            [
                product(0, 1, sequence=1), node("MmBackward0", 100, 200),
                *(product(110 + 20 * i, 2 + i, sequence=5, dims=[[64 + i, 64], [64, 64]]) for i in range(3)),
            ],
            [],
        ),
    ],
)  # fmt: skip
def test_forward_work_within_a_node_is_recomputed(events: list[Any], signs: list[str]) -> None:
    assert again(analysed(events)) == [(sign, "aten::mm", 1, 500) for sign in signs]


def products(durations: list[int]) -> Report:
    """Build a report on products of 440.5 us at peak, each under another name."""
    shapes = {"Input Dims": SHAPES, "Input type": ["c10::Half"] * 2}
    calls = [op("aten::mm", 20 * i, 10, **shapes) for i in range(len(durations))]
    kernels = [
        launched(f"{GEMM}_{i}", 20 * i + 2, 1000 + 1000 * i, duration, i + 1, grid=[500, 1, 1])
        for i, duration in enumerate(durations)
    ]
    return analysed(calls, kernels)


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
