"""Host events with results of rules on their names, looked up once per name."""

import polars as pl
from kineto import annotation, call, loaded, op, python

from trace_analyzer.analyses.host import Tree, host_of
from trace_analyzer.frames.lookups import inverse_index, scatter


def test_each_event_takes_what_its_kind_and_name_say() -> None:
    names = [
        python("train.py(1): f", 0, 90),
        op("aten::mm", 1, 5),
        op("aten::mm", 10, 5),
        annotation("Optimizer.step#SGD.step", 20, 9),
        call("cudaDeviceSynchronize", 30, 5, correlation=7),
        call("cudaMalloc", 40, 5),
    ]
    host = host_of(loaded(names))
    assert host.events.select("kind", "name", "end_ns", "work", "marks").rows() == [
        ("python", "train.py(1): f", 90_000, None, False),
        ("operator", "aten::mm", 6_000, None, False),
        ("operator", "aten::mm", 15_000, None, False),
        ("annotation", "Optimizer.step#SGD.step", 29_000, None, True),
        ("runtime", "cudaDeviceSynchronize", 35_000, "blocking", False),
        ("runtime", "cudaMalloc", 45_000, "allocation", False),
    ]
    assert host.names.height == 5
    assert host.calls.select("name", "correlation").rows() == [("cudaDeviceSynchronize", 7), ("cudaMalloc", None)]
    assert host.each(pl.col("name").str.starts_with("aten")).to_list() == [False, True, True, False, False, False]
    assert host.those(pl.col("kind") == "operator").get_column("event_id").to_list() == [1, 2]
    assert host.calls_of(pl.col("name").str.contains("Malloc")).get_column("event_id").to_list() == [5]
    assert host.texts(pl.Series([4, None], dtype=pl.UInt32)).to_list() == ["cudaDeviceSynchronize", None]


def test_no_event_has_no_name() -> None:
    host = host_of(loaded([]))
    assert (host.events.height, host.names.height, host.calls.height) == (0, 0, 0)


def test_ancestors_of_a_deep_stack() -> None:
    """Check the ancestors of events in a deep stack.

    0 holds 1 holds 2 ... holds 999; 1000 stands alone.
    """
    parents = pl.Series([None, *range(999), None], dtype=pl.UInt32)
    tree = Tree(parents)
    wanted = pl.Series([row in (3, 500, 1000) for row in range(1001)])
    assert tree.nearest(wanted).to_list() == [*[None] * 3, *[3] * 497, *[500] * 500, 1000]
    assert tree.outermost(wanted).to_list() == [*[None] * 3, *[3] * 997, 1000]
    values = pl.Series([{3: 2, 500: 3, 700: 0, 1000: 1}.get(row, 4) for row in range(1001)])
    assert tree.least(values, 4).to_list() == [*[None] * 3, *[2] * 697, *[0] * 300, 1]


def test_numbered_rows_are_found_without_a_join() -> None:
    ids, values = pl.Series([4, 1], dtype=pl.UInt32), pl.Series("v", [1.5, None])
    assert scatter(ids, values, 5).to_list() == [None, None, None, None, 1.5]
    assert inverse_index(ids, 5).to_list() == [None, 1, None, None, 0]
