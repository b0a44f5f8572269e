"""Build Kineto events as tests read them: one call per event, times in microseconds.

``analysed(kernel("k", 10, 5, correlation=1), launch(2, 3, correlation=1))`` is a report, and `idle_parts`,
`parts` and `rows` are what tests compare with literals.
"""

import json
from collections.abc import Iterable
from typing import Any

import polars as pl
from lazy_report import report_on

from trace_analyzer import ingest, pipeline
from trace_analyzer.report import Report

Event = dict[str, Any]
Microseconds = int | float

PROCESS, MAIN, DEVICE, STREAM = 100, 100, 0, 7
A100 = {
    "id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85198045184, "computeMajor": 8,
    "computeMinor": 0, "warpSize": 32, "numSms": 108,
}  # fmt: skip


def event(
    category: str, name: str, start: Microseconds, duration: Microseconds, *, pid: Any, tid: Any, **args: Any
) -> Event:
    """Build a complete event of any category."""
    row = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": duration}
    return row | ({"args": args} if args else {})


def kernel(
    name: str,
    start: Microseconds,
    duration: Microseconds,
    *,
    correlation: int = 0,
    device: Any = DEVICE,
    stream: int = STREAM,
    context: int = 1,
    category: str = "kernel",
    **args: Any,
) -> Event:
    """Build a kernel on a stream."""
    place = {"device": device, "context": context, "stream": stream, "correlation": correlation}
    return event(category, name, start, duration, pid=device, tid=stream, **place, **args)


def copy(direction: str, start: Microseconds, duration: Microseconds, **args: Any) -> Event:
    """Build a copy: ``HtoD (Pageable -> Device)``, ``DtoH (Device -> Pinned)``, ``DtoD (Device -> Device)``."""
    return kernel(f"Memcpy {direction}", start, duration, category="gpu_memcpy", **args)


def memset(start: Microseconds, duration: Microseconds, **args: Any) -> Event:
    """Build a memset."""
    return kernel("Memset (Device)", start, duration, category="gpu_memset", **args)


def call(
    name: str,
    start: Microseconds,
    duration: Microseconds,
    *,
    correlation: int = 0,
    tid: Any = MAIN,
    pid: Any = PROCESS,
    category: str = "cuda_runtime",
) -> Event:
    """Build a runtime call; ``category="cuda_driver"`` makes it a driver call."""
    return event(category, name, start, duration, pid=pid, tid=tid, correlation=correlation)


def launch(start: Microseconds, duration: Microseconds, correlation: int, **place: Any) -> Event:
    """Build a ``cudaLaunchKernel``."""
    return call("cudaLaunchKernel", start, duration, correlation=correlation, **place)


def op(
    name: str, start: Microseconds, duration: Microseconds, *, tid: Any = MAIN, pid: Any = PROCESS, **args: Any
) -> Event:
    """Build an operator; ``args`` with spaces go as ``**{"Input Dims": ...}``."""
    return event("cpu_op", name, start, duration, pid=pid, tid=tid, **args)


def python(name: str, start: Microseconds, duration: Microseconds, *, tid: Any = MAIN, pid: Any = PROCESS) -> Event:
    """Build a Python frame."""
    return event("python_function", name, start, duration, pid=pid, tid=tid)


def annotation(name: str, start: Microseconds, duration: Microseconds, *, tid: Any = MAIN, pid: Any = PROCESS) -> Event:
    """Build a ``record_function`` range, such as ``ProfilerStep#3``."""
    return event("user_annotation", name, start, duration, pid=pid, tid=tid)


def overhead(name: str, start: Microseconds, duration: Microseconds) -> Event:
    """Build a row of the profiler's own overhead."""
    return event("overhead", name, start, duration, pid=-1, tid=0)


def sync(name: str, start: Microseconds, duration: Microseconds, **args: Any) -> Event:
    """Build a ``cuda_sync`` row, which is no work."""
    return event("cuda_sync", name, start, duration, pid=DEVICE, tid=1_000_007, device=DEVICE, stream=STREAM, **args)


def flow(number: Any, tail: Event, head: Event, *, category: str = "ac2g") -> list[Event]:
    """Build an arrow from the start of one event to the start of another."""
    ends = [
        {"ph": phase, "id": number, "cat": category, "name": category, "ts": e["ts"], "pid": e["pid"], "tid": e["tid"]}
        for phase, e in (("s", tail), ("f", head))
    ]
    return [ends[0], ends[1] | {"bp": "e"}]


def launched(
    name: str,
    called: Microseconds,
    start: Microseconds,
    duration: Microseconds,
    correlation: int,
    *,
    takes: Microseconds = 5,
    **args: Any,
) -> list[Event]:
    """Build a kernel and its launch by the main thread; the launch is ``takes`` long."""
    return [launch(called, takes, correlation), kernel(name, start, duration, correlation=correlation, **args)]


def spread(events: Iterable[Any]) -> list[Event]:
    """Return the events of nested lists, in order."""
    return [row for item in events for row in (spread(item) if isinstance(item, list) else [item])]


def trace_bytes(events: Iterable[Any], **header: Any) -> bytes:
    """Build the file with these events; lists of events are flattened."""
    return json.dumps({"schemaVersion": 1, **header, "traceEvents": spread(events)}).encode()


def loaded(*events: Any, **header: Any) -> ingest.Trace:
    """Load the trace of these events."""
    return ingest.load(trace_bytes(events, **header))


def analysed(*events: Any, **options: Any) -> Report:
    """Return the report on these events; on an A100 unless ``devices`` says otherwise.

    Only the parts that are read are made, unless ``PROPERTY_EXAMPLES`` requests a thorough run.
    """
    devices = options.pop("devices", [A100])
    content = trace_bytes(events, deviceProperties=devices)
    return pipeline.analyze(content, **options) if "capture" in options else report_on(content, **options)


def rows(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of a frame as rows, ``_ns`` columns in microseconds."""
    in_us = [(pl.col(c) / 1_000).alias(c) if c.endswith("_ns") else pl.col(c) for c in columns]
    return frame.select(in_us).rows()


def idle_parts(report: Report) -> list[tuple[Any, ...]]:
    """Return (start, end, cause) of all idle time in us, with touching intervals of one gap and cause merged."""
    parts: list[list[Any]] = []
    for gap, start, end, cause in rows(
        report.tables["idle"].sort("device", "start_ns"), "gap_id", "start_ns", "end_ns", "cause"
    ):
        if parts and parts[-1][:2] == [gap, cause] and parts[-1][3] == start:
            parts[-1][3] = end
        else:
            parts.append([gap, cause, start, end])
    return [(start, end, cause) for _, cause, start, end in parts]


def partition_parts(report: Report) -> list[tuple[Any, ...]]:
    """Return (start, end, part) of the partition, in microseconds."""
    return rows(report.tables["partition"], "start_ns", "end_ns", "part")


def notes(trace: ingest.Trace | Report) -> dict[str, int]:
    """Return the count of all notes by code."""
    return {note.code: note.count for note in trace.notes}
