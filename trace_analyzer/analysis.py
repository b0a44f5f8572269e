"""Declare analyses, and make the values that they name.

An analysis is the table that it makes, its function, the metrics that it needs, and where its rows are shown. The graph
makes values on demand, each once, from the values that its function's parameters name. It schedules values in other
threads before they are needed, and frees a value after its last use. Its threads are the only ones of the analyses.
"""

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Any

import polars as pl
from msgspec import Struct

from trace_analyzer import forks
from trace_analyzer.errors import did_you_mean
from trace_analyzer.schema import Table
from trace_analyzer.sections import DEVICE_LABEL, Longest, Section
from trace_analyzer.tuning import within_query

# Metrics that a failed check of the trace can suppress.
BUSY_RATIO = "busy_ratio"
PARTITION = "partition"
"""Busy parts and idle causes of the device: the verdict's input."""
CAUSES_OF_IDLE = "idle_causes"
"""Causes of idle time, and its attribution to operators and modules."""
RUN_AHEAD = "run_ahead"
"""Launch lead, queue depth and queued work."""
KERNEL_TIMES = ("buckets", "groups", "bounds", "fusions", "tensor_cores")
"""Metrics that sum durations of kernels."""
UTILIZATION = ("mfu", "hfu")
"""FLOP/s utilization of the device and of its steps."""
MOVEMENTS = ("communication", "copies")
"""Exposed time and rates."""
ALL_METRICS = (BUSY_RATIO, PARTITION, CAUSES_OF_IDLE, RUN_AHEAD, *KERNEL_TIMES, *UTILIZATION, *MOVEMENTS)
"""Every metric that a failed check can suppress."""

Hide = Callable[[Any, Sequence[int]], Any]
"""Type of a function that takes a value and codes of devices, and returns the value without these devices."""


def without_devices(frame: pl.DataFrame, devices: Sequence[int]) -> pl.DataFrame:
    """Return the rows of all other devices."""
    return frame.filter(~pl.col("device").is_in(list(devices)))


class Node(Struct, frozen=True, dict=True):
    """Declare a value: its name, and a function whose parameters name the values that it is made from.

    ``make`` may be a class, whose fields name values. ``takes`` maps each parameter with another name than its
    value to the value's name. ``cost`` is the typical time as a multiple of most values' time; other threads first make
    what expensive values need.
    """

    name: str
    make: Callable[..., Any]
    takes: Mapping[str, str] = {}
    cost: int = 1

    @cached_property
    def sources(self) -> dict[str, str]:
        """Map each parameter to the value that it takes; parameters with a default take none."""
        parameters = inspect.signature(self.make).parameters.values()
        required = [p.name for p in parameters if p.default is p.empty or p.name in self.takes]
        return {name: self.takes.get(name, name) for name in required}


class Value(Node, frozen=True):
    """Declare a value that several analyses use: a table that is not public, or any object.

    ``needs`` lists metrics (`ALL_METRICS`). Where a failed check suppresses one of them for a device, ``hide`` removes
    the results of that device; the full value remains under the name ``unmasked_...``.
    """

    needs: tuple[str, ...] = ()
    hide: Hide = without_devices


class Analysis(Struct, frozen=True):
    """Declare a public table, the function that makes it, and where it is shown; fields of `Value` keep their meaning.

    ``json`` is the place of its rows in the JSON report: for example ``copies``, or ``devices[].copies`` for the rows
    of each device. It is None for tables whose figures are fields of the report's own classes. ``section`` lays the
    table out for the terminal, Markdown and the page, after the sections that these outputs place themselves;
    ``placed`` are the table's sections of that kind.
    """

    table: Table
    make: Callable[..., pl.DataFrame]
    takes: Mapping[str, str] = {}
    needs: tuple[str, ...] = ()
    hide: Hide = without_devices
    cost: int = 1
    json: str | None = None
    section: Section | None = None
    placed: tuple[Section, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a section with columns that the table lacks. Raises ``ValueError``."""
        if self.section is not None and not self.section.table:
            columns = {*self.table.schema, *([DEVICE_LABEL.column] if "device" in self.table.schema else [])}
            shown = (each if isinstance(each, str) else each.column for each in self.section.show)
            sort = (name.removeprefix("-") for name in self.section.sort)
            keys = self.section.place.keys if isinstance(self.section.place, Longest) else ()
            if unknown := sorted({*shown, *sort, *keys} - columns):
                raise ValueError(
                    f"section {self.section.title!r} shows {', '.join(unknown)}, and table {self.table.name} has {', '.join(self.table.schema)}"
                )

    @property
    def name(self) -> str:
        """Return the table's name."""
        return self.table.name


Declaration = Analysis | Value


class TableGraph:
    """Values by name: given ones, and those that nodes make on demand.

    ``kept`` names the values that the caller will `take`; every other value is freed when no kept value needs it any
    more. An exception is not stored: it is raised again at each request. All methods may be called from any thread.

    Raises ``LookupError`` for a parameter that names no value and ``graphlib.CycleError`` for a cycle.

    >>> graph = TableGraph([Node("double", lambda one: 2 * one), Node("sum", lambda one, double: one + double)], {"one": 1}, ["sum"])
    >>> graph.take("sum")
    3
    """

    def __init__(self, nodes: Iterable[Node], given: Mapping[str, Any], kept: Iterable[str]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._values = dict(given)
        for node in self._nodes.values():
            for source in node.sources.values():
                if source not in self._nodes and source not in self._values:
                    raise LookupError(
                        f"{node.name} is made from {source}, and nothing makes that{did_you_mean(source, (*self._nodes, *self._values))}"
                    )
        edges = {name: set(node.sources.values()) for name, node in self._nodes.items()}
        self._order = [name for name in TopologicalSorter(edges).static_order() if name in self._nodes]
        self._edges = edges
        self._locks = {name: threading.RLock() for name in self._nodes}
        self._changed = threading.Condition()
        self._done = set(given) - set(self._nodes)
        self._users: dict[str, int] = {}
        kept = list(kept)
        for name in (*kept, *(source for needed in self._needed(kept) for source in edges[needed])):
            self._users[name] = self._users.get(name, 0) + 1
        # Values that a thread has started to make: no other thread starts them.
        self._started: set[str] = set()

    def _needed(self, names: Iterable[str]) -> set[str]:
        """Return the named nodes and all nodes that they are made from."""
        left, needed = list(names), set()
        while left:
            name = left.pop()
            if name in self._nodes and name not in needed:
                needed.add(name)
                left.extend(self._edges[name])
        return needed

    def make(self, name: str) -> None:
        """Make a value, unless it exists."""
        if name not in self._done:
            self._value(name)

    def take(self, name: str) -> Any:
        """Return a kept value for the last time; it is freed when no other value needs it."""
        value = self._value(name)
        with self._changed:
            self._release(name)
        return value

    def _value(self, name: str) -> Any:
        forks.check()
        if name not in self._nodes:
            return self._values[name]
        node = self._nodes[name]
        with self._locks[name]:
            if name not in self._values:
                self._started.add(name)
                made = node.make(**{parameter: self._value(source) for parameter, source in node.sources.items()})
                with self._changed:
                    self._values[name] = made
                    if name not in self._done:
                        self._done.add(name)
                        for source in self._edges[name]:
                            self._release(source)
                    self._changed.notify_all()
                return made
            return self._values[name]

    def _release(self, name: str) -> None:
        """Decrease the count of readers, and free the value after the last one. The caller holds the lock."""
        if name in self._users:
            self._users[name] -= 1
            if self._users[name] == 0:
                self._values.pop(name, None)

    @contextmanager
    def prefetching(self, names: Iterable[str], threads: int) -> Iterator[Callable[[str | None], None]]:
        """Let other threads make values and their sources during the block, first those with the longest way to a value.

        The length of a way is the sum of its nodes' costs. Yields a function with which the caller's thread takes part
        until a value is made, or until all are (None), instead of waiting; without threads it does nothing.

        At the end of the block each thread stops after its current value. An exception ends these threads, and is
        raised again at the value's request.
        """
        if not threads:
            yield lambda last: None
            return
        needed = self._needed(names)
        height = {name: self._nodes[name].cost for name in needed}
        for user in reversed(self._order):
            if user in needed:
                for source in self._edges[user] & needed:
                    height[source] = max(height[source], height[user] + self._nodes[source].cost)
        left = sorted((name for name in self._order if name in needed), key=lambda name: -height[name])
        ended = threading.Event()

        def next_ready(last: str | None = None) -> str | None:
            """Return the next value that can be made without waiting; None when ``last`` or all are made."""
            with self._changed:
                while not ended.is_set() and last not in self._done:
                    left[:] = [n for n in left if n not in self._started and n not in self._done]
                    if not left:
                        return None
                    for candidate in left:
                        if self._edges[candidate] <= self._done:
                            self._started.add(candidate)
                            return candidate
                    self._changed.wait()
                return None

        def work() -> None:
            while (ready := next_ready()) is not None:
                try:
                    self._value(ready)
                except BaseException:  # a panic of Polars is a BaseException, but no Exception
                    end()

        def take_part(last: str | None) -> None:
            while (ready := next_ready(last)) is not None:
                self._value(ready)

        def end() -> None:
            with self._changed:
                ended.set()
                self._changed.notify_all()

        running = [threading.Thread(target=within_query, args=(work,), name="prefetch") for _ in range(threads)]
        try:
            for thread in running:
                thread.start()
            yield take_part
        finally:
            end()
            for thread in running:
                if thread.ident is not None:  # None for a thread that could not be started
                    thread.join()


class LazyTables(Mapping[str, pl.DataFrame]):
    """Map names to frames or to functions that make them, each called once.

    Pickling and copying turn it into the dict of all its frames.

    >>> tables = LazyTables({"one": pl.DataFrame({"a": [1]}), "two": lambda: pl.DataFrame({"a": [2, 2]})})
    >>> tables["two"].height
    2
    """

    def __init__(self, tables: Mapping[str, pl.DataFrame | Callable[[], pl.DataFrame]]) -> None:
        self._tables = dict(tables)
        self._locks = {name: threading.RLock() for name in self._tables}

    def __getitem__(self, name: str) -> pl.DataFrame:
        forks.check()
        if name not in self._locks:
            raise KeyError(f"no table {str(name)[:100]!r}{did_you_mean(str(name), self._tables)}")
        with self._locks[name]:
            table = self._tables[name]
            if not isinstance(table, pl.DataFrame):
                self._tables[name] = table = table()
            return table

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        return f"<{len(self)} tables: {', '.join(self)}>"

    def __reduce__(self) -> tuple[type[dict[str, pl.DataFrame]], tuple[dict[str, pl.DataFrame]]]:
        return dict, (dict(self),)
