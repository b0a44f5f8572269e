"""Measure the cost of each value of an analysis: CPU time by value of the graph, largest first. Asserts nothing.

One process and one thread of the graph; a value's time excludes that of its sources. First times include one-time work
of the process, such as compiling patterns.

    python benchmarks/values.py TRACE [--rows 30]
"""

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from trace_analyzer import pipeline
from trace_analyzer.analysis import Node, TableGraph
from trace_analyzer.ingest import load

own: Counter[str] = Counter()
"""CPU seconds by value."""
_inner = [0.0]
"""For each value in progress, CPU seconds of the values that it requested."""


def timed(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes a value and adds its CPU time to `own`."""

    @wraps(make)
    def made(*args: Any, **values: Any) -> Any:
        start = time.process_time()
        _inner.append(0.0)
        value = make(*args, **values)
        whole = time.process_time() - start
        own[name] += whole - _inner.pop()
        _inner[-1] += whole
        return value

    return made


class TimedGraph(TableGraph):
    """Make values like a graph, and time them."""

    def __init__(self, nodes: Iterable[Node], given: Mapping[str, Any], kept: Iterable[str]) -> None:
        super().__init__((replace(node, make=timed(node.name, node.make)) for node in nodes), given, kept)


def main() -> None:
    """Analyse the trace and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--rows", type=int, default=30)
    options = parser.parse_args()
    start = time.process_time()
    trace = load(os.fspath(options.trace))
    loaded = time.process_time()
    pipeline.TableGraph = TimedGraph  # type: ignore[misc]
    pipeline.PREFETCHING_THREADS = 0  # type: ignore[misc]
    pipeline.report_of(trace)
    print(f"{options.trace.name}: load {_ms(loaded - start)}", end=", ")
    print(f"analysis {_ms(time.process_time() - loaded)} ms of CPU time\n\n| value | CPU ms |\n| --- | ---: |")
    for name, seconds in own.most_common(options.rows):
        print(f"| {name} | {_ms(seconds)} |")


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.0f}"


if __name__ == "__main__":
    main()
