"""Repeated forward work in the backward pass, by each of its signs, and near misses."""

from itertools import count
from typing import Any

import pytest
from kineto import analysed, kernel, launch, op, python, rows

from trace_analyzer.report import Report

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
