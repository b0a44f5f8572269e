"""Test values made on demand, once, each from the values that its function's parameters name."""

import copy
import gc
import graphlib
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st
from kineto import A100, kernel, launch, trace_bytes
from msgspec.structs import replace

from trace_analyzer import pipeline, registry
from trace_analyzer.analysis import LazyTables, Node, TableGraph

ONE = pl.DataFrame({"a": [1]})


class Counted:
    calls = 0

    def __call__(self) -> pl.DataFrame:
        self.calls += 1
        return ONE


def named(name: str, make: Callable[..., Any], *sources: str) -> Node:
    """Build a node of a function whose parameters are called by the names of the values."""
    namespace: dict[str, Any] = {"make": make}
    exec(f"def made({', '.join(sources)}): return make({', '.join(sources)})", namespace)
    return Node(name, namespace["made"])


def test_a_value_is_made_from_what_its_parameters_name_and_once() -> None:
    @dataclass(frozen=True)
    class Both:
        one: pl.DataFrame
        height: int

    make = Counted()
    nodes = [Node("one", make), Node("height", lambda one: one.height), Node("both", Both)]
    graph = TableGraph(
        [*nodes, Node("sum", lambda left, right: left + right, {"right": "other"})],
        {"left": 1, "other": 2},
        ["both", "sum"],
    )
    with graph.prefetching(["both"], 0) as take_part:
        take_part(None)
    assert make.calls == 0, "without threads nothing is made ahead"
    both = graph.take("both")
    assert (both.one is ONE, both.height) == (True, 1), "fields of a dataclass name values"
    assert graph.take("sum") == 3, "a parameter takes the value of another name where that is declared"
    assert make.calls == 1


class Gate:
    """Make a value that takes until it is told to go on."""

    def __init__(self) -> None:
        self.entered, self.go_on, self.calls = threading.Event(), threading.Event(), 0

    def slow(self) -> int:
        self.calls += 1
        self.entered.set()
        assert self.go_on.wait(10)
        return 7


def test_a_parameter_that_names_nothing_and_values_that_need_each_other_are_an_error_at_once() -> None:
    with pytest.raises(LookupError, match="sum is made from nothing_of_this_name"):
        TableGraph([Node("sum", lambda nothing_of_this_name: 0)], {}, ["sum"])
    with pytest.raises(graphlib.CycleError):
        TableGraph([named("one", int, "two"), named("two", int, "one")], {}, ["one"])


def test_a_value_is_made_once_though_two_threads_ask_for_it() -> None:
    gate = Gate()
    graph = TableGraph([Node("slow", gate.slow), Node("end", lambda slow: slow)], {}, ["end"])
    with graph.prefetching(["end"], 1):
        assert gate.entered.wait(10)
        gate.go_on.set()
        assert graph.take("end") == 7
    assert gate.calls == 1


def test_what_raises_ahead_raises_for_who_asks_and_the_rest_is_left_to_them() -> None:
    tried, after = threading.Event(), Counted()

    def fail() -> int:
        tried.set()
        raise ValueError("no such figure")

    nodes = [Node("failing", fail), Node("longer", lambda failing: failing), Node("end", lambda longer, after: longer)]
    graph = TableGraph([*nodes, Node("after", after)], {}, ["end"])
    with graph.prefetching(["end"], 1):
        assert tried.wait(10)
        with pytest.raises(ValueError, match="no such figure"):
            graph.make("failing")
    assert after.calls == 0
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]
    for _ in range(2):
        with pytest.raises(ValueError, match="no such figure"):
            graph.take("end")


def test_several_threads_make_at_once_what_needs_not_each_other() -> None:
    meet = threading.Barrier(3)
    nodes = [Node(name, lambda: meet.wait(10)) for name in ("left", "right")]
    graph = TableGraph([*nodes, Node("end", lambda left, right: (left, right))], {}, ["end"])
    with graph.prefetching(["end"], 2):
        meet.wait(10)  # both threads are making the value
        assert sorted(graph.take("end")) != [2, 2]


def ahead(values: str, *targets: str, **costs: int) -> list[str]:
    """Return in which order one thread makes the values, each written before the names of its sources."""
    made: list[str] = []
    nodes = [
        replace(named(name, lambda *_, name=name: made.append(name), *sources), cost=costs.get(name, 1))
        for name, *sources in map(str.split, values.split(", "))
    ]
    graph = TableGraph(nodes, {}, ["end"])
    with graph.prefetching(targets, 1):
        while len(made) < 4:
            time.sleep(0.001)
    return made


def test_what_most_steps_follow_on_is_made_first_and_sources_of_an_expensive_value_before() -> None:
    made = ahead("single, a, b a, end single b", "end")
    assert (made[0], sorted(made[:3]), made[3]) == ("a", ["a", "b", "single"], "end")
    made = ahead("a, b a, source, expensive source, end b expensive", "b", "expensive", expensive=3)
    assert made == ["source", "expensive", "a", "b"]


def test_the_caller_makes_values_until_the_one_it_names() -> None:
    """Check with a thread that is busy until the caller has made the others."""
    gate, made = Gate(), dict[str, str]()

    def noted(name: str) -> Callable[..., None]:
        def make(*_: object) -> None:
            made[name] = threading.current_thread().name
            if name == "second":
                gate.go_on.set()

        return make

    nodes = [Node("slow", gate.slow, cost=9), named("first", noted("first")), named("second", noted("second"), "first")]
    graph = TableGraph([*nodes, named("end", noted("end"), "second", "slow")], {}, ["end"])
    with graph.prefetching(["end"], 1) as take_part:
        assert gate.entered.wait(10)
        take_part("first")
        assert made == {"first": "MainThread"}
        take_part(None)
        graph.take("end")
    assert made["second"] == "MainThread"
    assert set(made) == {"first", "second", "end"}


def test_an_error_of_a_value_reaches_the_caller_that_takes_part() -> None:
    gate = Gate()

    def fail() -> int:
        gate.go_on.set()
        return int("no number")

    nodes = [Node("slow", gate.slow, cost=9), Node("failing", fail)]
    graph = TableGraph([*nodes, named("end", max, "failing", "slow")], {}, ["end"])
    with graph.prefetching(["end"], 1) as take_part:
        assert gate.entered.wait(10)
        with pytest.raises(ValueError, match="no number"):
            take_part(None)


def test_at_the_end_what_was_not_begun_is_left() -> None:
    gate, left = Gate(), Counted()
    nodes = [Node("slow", gate.slow), Node("left", left), Node("next", lambda slow: slow)]
    graph = TableGraph([*nodes, named("end", max, "next", "left")], {}, ["end"])
    with graph.prefetching(["end"], 1):
        assert gate.entered.wait(10)
        threading.Timer(0.5, gate.go_on.set).start()
    assert left.calls == 0


@pytest.mark.slow
def test_a_value_goes_when_nothing_will_read_it_again() -> None:
    held: list[weakref.ref[Counted]] = []

    def make() -> Counted:
        held.append(weakref.ref(large := Counted()))
        return large

    nodes = [Node("large", make), Node("now", lambda large: 1), Node("later", lambda large: 2)]
    graph = TableGraph(nodes, {}, ["now", "later"])
    for name, is_held in (("now", True), ("later", False)):
        graph.take(name)
        gc.collect()
        assert (held[0]() is not None) is is_held, "it is read twice"
    assert len(held) == 1


@given(st.lists(st.sets(st.integers(0, 11), max_size=4), min_size=1, max_size=12), st.integers(0, 3))
def test_threads_make_the_same_values_each_once(edges: list[set[int]], threads: int) -> None:
    """Node i is made from those of its set that are before it; its value is the tuple of theirs."""
    calls: list[int] = []

    def maker(i: int) -> Callable[..., Any]:
        def make(*values: Any) -> Any:
            calls.append(i)
            return (i, *values)

        return make

    before = [sorted(n for n in numbers if n < i) for i, numbers in enumerate(edges)]
    nodes = [named(f"n{i}", maker(i), *(f"n{n}" for n in numbers)) for i, numbers in enumerate(before)]
    expected: list[Any] = []
    for i, numbers in enumerate(before):
        expected.append((i, *(expected[n] for n in numbers)))
    last = f"n{len(nodes) - 1}"
    graph = TableGraph(nodes, {}, [node.name for node in nodes])
    with graph.prefetching([last], threads) as take_part:
        take_part(None)
        assert graph.take(last) == expected[-1]
    assert [graph.take(node.name) for node in nodes[:-1]] == expected[:-1]
    assert sorted(calls) == list(range(len(nodes)))


def test_a_table_is_made_when_it_is_asked_for_and_once() -> None:
    make = Counted()
    frames = LazyTables({"made": make, "there": ONE})
    assert (list(frames), len(frames), make.calls) == (["made", "there"], 2, 0)
    assert frames["made"] is frames["made"] is ONE
    assert make.calls == 1
    with pytest.raises(KeyError):
        frames["other"]
    for copied in (copy.deepcopy, lambda frames: pickle.loads(pickle.dumps(frames))):
        again = copied(LazyTables({"made": Counted(), "there": ONE}))
        assert {name: frame.rows() for name, frame in again.items()} == {"made": [(1,)], "there": [(1,)]}


def test_a_report_goes_to_another_process_with_all_its_tables():
    report = pipeline.analyze(trace_bytes([launch(0, 5, 1), kernel(10, 20, 1)], deviceProperties=[A100]))
    there = pickle.loads(pickle.dumps(report))
    assert there == report
    for table in registry.TABLES:
        assert there.tables[table.name].equals(report.tables[table.name])
        assert there.tables[table.name].schema == table.schema
