"""Test the CPU time of operators, split as in the flame graph of one addition (microseconds)."""

from typing import Any

import polars as pl
from kineto import analysed, annotation, call, copy, kernel, launch, op, python, rows

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
    """Check that short launches are counted for each operator.

    aten::add takes 15 us of CPU for 3 us of GPU, twice; aten::mm as much for 50.
    """
    twice = [op("aten::add", 60, 15), launch(62, 6, 2), kernel("k", 70, 3, correlation=2)]
    large = [op("aten::mm", 80, 15), launch(82, 6, 3), kernel("k", 90, 50, correlation=3)]
    table = analysed(ADD, twice, large).tables["operators"].filter(pl.col("launch_count") > 0)
    assert rows(table, "name", "launch_count", "short_launch_count") == [("aten::add", 2, 2), ("aten::mm", 1, 0)]
    ratios = dict(table.select("name", "host_device_ratio").iter_rows())
    assert ratios == {"aten::add": (12 + 25 + 30) / 6, "aten::mm": (5 + 15) / 50}
