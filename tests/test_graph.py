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

from trace_analyzer import pipeline, registry
from trace_analyzer.analysis import LazyTables, Node, TableGraph

ONE = pl.DataFrame({"a": [1]})


class Counted:
    """Make values and count the calls."""

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
    make = Counted()
    graph = TableGraph([Node("one", make), Node("height", lambda one: one.height)], {}, ["one", "height"])
    assert make.calls == 0
    assert graph.take("height") == 1
    assert graph.take("one") is ONE
    assert make.calls == 1


def test_parameters_take_the_values_of_other_names_where_that_is_declared() -> None:
    graph = TableGraph(
        [Node("sum", lambda left, right: left + right, {"right": "other"})], {"left": 1, "other": 2}, ["sum"]
    )
    assert graph.take("sum") == 3


def test_the_fields_of_a_dataclass_name_values() -> None:
    @dataclass(frozen=True)
    class Both:
        one: int
        two: int

    graph = TableGraph([Node("two", lambda one: one + 1), Node("both", Both)], {"one": 1}, ["both"])
    assert graph.take("both") == Both(1, 2)


def test_a_parameter_that_names_nothing_is_an_error_at_once() -> None:
    with pytest.raises(LookupError, match="sum is made from nothing_of_this_name"):
        TableGraph([Node("sum", lambda nothing_of_this_name: 0)], {}, ["sum"])


def test_values_that_need_each_other_are_an_error_at_once() -> None:
    with pytest.raises(graphlib.CycleError):
        TableGraph([named("one", int, "two"), named("two", int, "one")], {}, ["one"])


def test_a_value_is_made_once_though_two_threads_ask_for_it() -> None:
    entered, go_on, calls = threading.Event(), threading.Event(), []

    def make() -> int:
        calls.append(1)
        entered.set()
        assert go_on.wait(10)
        return 7

    graph = TableGraph([Node("slow", make), Node("end", lambda slow: slow)], {}, ["end"])
    with graph.prefetching(["end"], 1):
        assert entered.wait(10)
        go_on.set()
        assert graph.take("end") == 7
    assert len(calls) == 1


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


def test_what_most_steps_follow_on_is_made_first() -> None:
    made: list[str] = []
    chain = [named("a", lambda: made.append("a")), named("b", lambda _: made.append("b"), "a")]
    single = named("single", lambda: made.append("single"))
    graph = TableGraph([single, *chain, named("end", lambda *_: made.append("end"), "single", "b")], {}, ["end"])
    with graph.prefetching(["end"], 1):
        while len(made) < 4:
            time.sleep(0.001)
    assert made[0] == "a"
    assert sorted(made[:3]) == ["a", "b", "single"]
    assert made[3] == "end"


def test_sources_of_an_expensive_value_are_made_first() -> None:
    made: list[str] = []
    chain = [named("a", lambda: made.append("a")), named("b", lambda _: made.append("b"), "a")]
    source = named("source", lambda: made.append("source"))
    expensive = Node("expensive", lambda source: made.append("expensive"), cost=3)
    graph = TableGraph([*chain, source, expensive, named("end", max, "b", "expensive")], {}, ["end"])
    with graph.prefetching(["b", "expensive"], 1):
        while len(made) < 4:
            time.sleep(0.001)
    assert made == ["source", "expensive", "a", "b"]


def test_the_caller_makes_values_until_the_one_it_names() -> None:
    """Check with a thread that is busy until the caller has made the others."""
    entered, go_on, made = threading.Event(), threading.Event(), dict[str, str]()

    def slow() -> None:
        entered.set()
        assert go_on.wait(10)

    def noted(name: str) -> Callable[..., None]:
        def make(*_: object) -> None:
            made[name] = threading.current_thread().name
            if name == "second":
                go_on.set()

        return make

    nodes = [Node("slow", slow, cost=9), named("first", noted("first")), named("second", noted("second"), "first")]
    graph = TableGraph([*nodes, named("end", noted("end"), "second", "slow")], {}, ["end"])
    with graph.prefetching(["end"], 1) as take_part:
        assert entered.wait(10)
        take_part("first")
        assert made == {"first": "MainThread"}
        take_part(None)
        graph.take("end")
    assert made["second"] == "MainThread"
    assert set(made) == {"first", "second", "end"}


def test_an_error_of_a_value_reaches_the_caller_that_takes_part() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        assert go_on.wait(10)

    def fail() -> int:
        go_on.set()
        return int("no number")

    nodes = [Node("slow", slow, cost=9), Node("failing", fail)]
    graph = TableGraph([*nodes, named("end", max, "failing", "slow")], {}, ["end"])
    with graph.prefetching(["end"], 1) as take_part:
        assert entered.wait(10)
        with pytest.raises(ValueError, match="no number"):
            take_part(None)


def test_without_threads_the_caller_makes_nothing_ahead() -> None:
    made = Counted()
    graph = TableGraph([Node("one", made)], {}, ["one"])
    with graph.prefetching(["one"], 0) as take_part:
        take_part(None)
    assert made.calls == 0


def test_at_the_end_what_was_not_begun_is_left() -> None:
    entered, go_on, left = threading.Event(), threading.Event(), Counted()

    def slow() -> int:
        entered.set()
        assert go_on.wait(10)
        return 1

    graph = TableGraph(
        [Node("slow", slow), Node("left", left), Node("next", lambda slow: slow), named("end", max, "next", "left")],
        {},
        ["end"],
    )
    with graph.prefetching(["end"], 1):
        assert entered.wait(10)
        threading.Timer(0.5, go_on.set).start()
    assert left.calls == 0


@pytest.mark.slow
def test_a_value_goes_when_nothing_will_read_it_again() -> None:
    class Large:
        pass

    held: list[weakref.ref[Large]] = []

    def make() -> Large:
        large = Large()
        held.append(weakref.ref(large))
        return large

    nodes = [Node("large", make), Node("now", lambda large: 1), Node("later", lambda large: 2)]
    graph = TableGraph(nodes, {}, ["now", "later"])
    graph.take("now")
    gc.collect()
    assert held[0]() is not None, "it will be read once more"
    assert graph.take("later") == 2
    gc.collect()
    assert held[0]() is None
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
    assert list(frames) == ["made", "there"]
    assert len(frames) == 2
    assert make.calls == 0
    assert frames["made"] is frames["made"] is ONE
    assert make.calls == 1
    with pytest.raises(KeyError):
        frames["other"]


def test_a_copy_holds_all_frames():
    for copied in (copy.deepcopy, lambda frames: pickle.loads(pickle.dumps(frames))):
        make = Counted()
        assert {name: frame.rows() for name, frame in copied(LazyTables({"made": make})).items()} == {"made": [(1,)]}
        assert make.calls == 1


def test_a_report_goes_to_another_process_with_all_its_tables():
    report = pipeline.analyze(trace_bytes([launch(0, 5, 1), kernel(10, 20, 1)], deviceProperties=[A100]))
    there = pickle.loads(pickle.dumps(report))
    assert there == report
    for table in registry.TABLES:
        assert there.tables[table.name].equals(report.tables[table.name])
        assert there.tables[table.name].schema == table.schema
