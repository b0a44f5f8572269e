"""Host costs (blocking calls, data loaders and others) with their code, worked out by hand (microseconds)."""

from typing import Any

import polars as pl
import pytest
from kineto import Event, analysed, annotation, call, copy, launch, launched, op, overhead, python, rows

A, B = launched("a", 0, 10, 10, 1), launched("b", 80, 90, 10, 2)


def costs(
    *events: Any, columns: tuple[str, ...] = ("kind", "source", "count", "host_ns", "idle_ns")
) -> list[tuple[Any, ...]]:
    return rows(analysed(*events).tables["host_costs"], *columns)


def item(start: float) -> list[Event]:
    return [
        op("aten::item", start, 20), op("aten::_local_scalar_dense", start + 1, 18), call("cudaStreamSynchronize", start + 3, 15)
    ]  # fmt: skip


def test_a_blocking_call_costs_the_drain_that_it_leaves_behind() -> None:
    """In [8, 23) it waits 10 us for kernel a, and so delays everything after kernel a by 10 us."""
    columns = ("kind", "source", "name", "operator", "python_function", "count", "host_ns", "hidden_ns", "idle_ns")
    assert costs(A, B, item(5), python("train.py(3): main", 0, 200), columns=columns) == [
        ("synchronization", ".item()", "cudaStreamSynchronize", "aten::_local_scalar_dense", "train.py(3): main", 1, 15, 10, 10)
    ]  # fmt: skip


def test_waiting_for_a_busy_device_costs_nothing() -> None:
    """Kernel b is queued behind kernel a, so nothing idles after the call."""
    busy = [launched("a", 0, 10, 50, 1), launched("b", 6, 60, 10, 2), item(20)]
    assert costs(busy) == [("synchronization", ".item()", 1, 15, 0)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("around", "source"),
    [
        ([op("aten::nonzero", 4, 30)], "nonzero"),
        ([op("aten::index", 3, 40), op("aten::nonzero", 4, 30)], "boolean indexing"),
        ([python("torch/_tensor_str.py(120): __init__", 2, 50), op("aten::nonzero", 4, 30)], "print of a tensor"),
        ([op("aten::is_nonzero", 3, 40), op("aten::item", 4, 30)], "a tensor as a condition"),
        ([op("aten::to", 3, 40), op("aten::_to_copy", 4, 30), op("aten::copy_", 5, 28)], ".cpu(), .to() or .copy_()"),
        ([python("torch/cuda/__init__.py(792): synchronize", 3, 40)], "torch.cuda.synchronize()"),
        ([], "stream or event .synchronize()"),
    ],
)
def test_what_a_person_wrote(around: list[Event], source: str) -> None:
    (actual,) = costs(A, B, *around, call("cudaStreamSynchronize", 8, 15))
    assert actual[:2] == ("synchronization", source)


def test_two_calls_of_one_item_count_once() -> None:
    assert costs(A, B, item(5), call("cudaStreamSynchronize", 18.5, 1))[0][:3] == ("synchronization", ".item()", 1)


def test_pageable_copies_tell_what_they_copied() -> None:
    blocking = [
        op("aten::copy_", 24, 40), call("cudaMemcpyAsync", 25, 30, correlation=3), copy("HtoD (Pageable -> Device)", 30, 5, correlation=3)
    ]  # fmt: skip
    columns = ("kind", "source", "copy", "host_ns", "idle_ns")
    actual = costs(A, B, blocking, columns=columns)
    assert ("blocking-copy", ".cpu(), .to() or .copy_()", "HtoD (Pageable -> Device)", 30, 20) in actual


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "kind", "name", "idle"),
    [
        ([annotation("enumerate(DataLoader)#_It.__next__", 30, 40), op("aten::stack", 35, 10)], "data-loading", "enumerate(DataLoader)#_It.__next__", 40),
        ([call("cudaMalloc", 30, 40)], "allocation", "cudaMalloc", 40),
        ([annotation("Python GC", 30, 40)], "garbage-collection", "Python GC", 40),
        ([python("torch/_dynamo/convert_frame.py(1200): _compile", 30, 40)], "compilation", "torch/_dynamo/convert_frame.py(1200): _compile", 40),
        ([overhead("Lazy Function Loading", 30, 40)], "compilation", "Lazy Function Loading", 40),
        ([op("aten::mm", 25, 50), overhead("Lazy Function Loading", 30, 40)], "compilation", "Lazy Function Loading", 40),
        ([overhead("Buffer Flush", 30, 40)], "profiler", "Buffer Flush", 40),
    ],
)  # fmt: skip
def test_named_work(events: list[Event], kind: str, name: str, idle: int) -> None:
    assert costs(A, B, *events, columns=("kind", "name", "count", "host_ns", "idle_ns")) == [(kind, name, 1, 40, idle)]


def test_work_within_work_of_its_kind_counts_once() -> None:
    nested = [
        annotation("enumerate(DataLoader)#_It.__next__", 30, 40),
        python("torch/utils/data/dataloader.py(700): __next__", 32, 30),
    ]
    assert costs(A, B, *nested) == [("data-loading", None, 1, 40, 40)]


def test_a_slow_first_launch_is_the_compilation_of_its_operator() -> None:
    ordinary = [launched("k", 10_000 + 20 * i, 10_010 + 20 * i, 5, 10 + i) for i in range(5)]
    first = [
        op("aten::conv2d", 30, 5_000),
        launch(40, 4_000, 2),
        launched("b", 4_000, 4_050, 10, 3)[1] | {"args": {"device": 0, "context": 1, "stream": 7, "correlation": 2}},
    ]
    actual = costs(A, *ordinary, first, columns=("kind", "name", "operator", "host_ns", "idle_ns"))
    assert ("compilation", "cudaLaunchKernel", "aten::conv2d", 4_000, 4_000) in actual


def test_cpu_operators_are_named() -> None:
    late = launched("b", 3_000, 3_010, 10, 2)
    assert costs(A, late, op("aten::sort", 100, 2_000), columns=("kind", "operator", "host_ns", "idle_ns")) == [
        ("cpu-operator", "aten::sort", 2_000, 2_000)
    ]


def region(version: str, start: float) -> Event:
    return op(f"Torch-Compiled Region: {version}", start, 5)


def recompiled(*events: Any, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    table = analysed(A, B, *events).tables["host_costs"]
    return rows(table.filter(pl.col("kind") == "recompilation"), *columns)


def test_recompilations_are_read_from_the_names_of_regions() -> None:
    actual = recompiled(
        region("0/0", 30), region("0/3", 40), region("1/0", 50), region("1/99999999999999999999", 60),
        columns=("name", "count", "host_ns", "idle_ns", "start_ns")
    )  # fmt: skip
    assert actual == [("Torch-Compiled Region: 0/3", 3, None, None, 40)], "compiled before the recording began"


def test_a_recompilation_has_the_time_and_the_code_of_what_was_compiled_before_its_first_run() -> None:
    """Of [28, 48) all is idle; the compilation before the region ran first is not that of its second version."""
    compiling = "torch/_dynamo/convert_frame.py(1180): _compile"
    events = [
        python("train.py(7): step", 0, 200), python(compiling, 1, 7), region("0/0", 21), python(compiling, 28, 20),
        region("0/1", 50), region("0/1", 60), region("0/0", 70),
    ]  # fmt: skip
    columns = ("source", "name", "python_function", "count", "host_ns", "idle_ns", "start_ns", "end_ns")
    assert recompiled(*events, columns=columns) == [
        ("torch.compile", "Torch-Compiled Region: 0/1", "train.py(7): step", 1, 20, 20, 28, 48)
    ]
    assert costs(A, B, *events)[0] == ("compilation", None, 2, 27, 20), "its time is the compilation's as well"


def test_a_compilation_of_something_else_is_no_recompilation() -> None:
    compiling = python("torch/_dynamo/convert_frame.py(1180): _compile", 28, 10)
    actual = recompiled(compiling, region("1/0", 40), region("0/2", 50), columns=("name", "host_ns", "start_ns"))
    assert actual == [("Torch-Compiled Region: 0/2", None, 50)]


def test_guards_cost_all_idle_time_in_their_lookups() -> None:
    """From 30 to 60 the guards are looked up; a Python function runs in it, and an operator."""
    lookup = [op("TorchDynamo Cache Lookup", 30, 30), python("guard.py(2): check", 35, 10), op("aten::size", 50, 5)]
    table = analysed(A, B, lookup, python("train.py(7): step", 0, 200)).tables["host_costs"]
    columns = ("kind", "name", "operator", "python_function", "count", "host_ns", "hidden_ns", "idle_ns")
    assert rows(table, *columns) == [
        ("guards", "TorchDynamo Cache Lookup", "TorchDynamo Cache Lookup", "train.py(7): step", 1, 30, 0, 30)
    ]
