"""Write the events of all ranks of a job as one timeline on a common clock, with their waits in collectives, for Perfetto."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

from trace_analyzer.errors import InputError
from trace_analyzer.ingest import source, tolerant, trace
from trace_analyzer.ranks import files, job, lateness
from trace_analyzer.ranks.clocks import RankClock
from trace_analyzer.render.exports import PROCESS, Event, document_of, named_process, write_blocks
from trace_analyzer.render.html.tracks import first_fit

_USED = ("ok", "cut")
"""Status of ranks whose traces are used."""
_PER_RANK = 1_000
"""Places of a rank's processes in the order of all."""
_LARGEST = (1 << 32) - 1
"""Largest number of a thread that Perfetto reads; others get numbers from `_OTHERS` on."""
_OTHERS = 1 << 31
_MOST_NS = Decimal(1 << 62)


def write_job_perfetto(report: job.JobReport, path: Path) -> tuple[str, ...]:
    """Write the events of all ranks and their waits to ``path``, and return notes on ranks whose events are missing.

    The events are those of the ranks' own files; processes, flows and threads of names get numbers of their own, and
    times are those of the common clock, from the first event of all. Raises ``OSError`` when it cannot be written; no
    partial file is left.
    """
    notes: list[str] = []
    write_blocks(path, document_of(_events(report, notes), {}))
    return tuple(notes)


def _events(report: job.JobReport, notes: list[str]) -> Iterator[Event]:
    """Yield the waits of each rank, then its own events; a file that holds several ranks follows the first of them."""
    clocks = report.rank_clocks
    first_ns = min((clock.common_ns(clock.first_ns) for clock in clocks.values()), default=0)
    waits = lateness.named_waits(report.rows).partition_by("rank", as_dict=True)
    numbers: defaultdict[tuple[str, Any], int] = defaultdict(lambda: len(numbers) + 1)
    paths: dict[str, list[int]] = {}
    for own in report.ranks:
        if own.rank is not None and own.status in _USED:
            paths.setdefault(own.path, []).append(own.rank)
    for path, ranks in paths.items():
        for rank in ranks:
            if (rank,) in waits:
                yield from _waits(waits[rank,], rank, first_ns)
        try:
            events, base_ns = _read(path)
        except (InputError, OSError) as error:
            notes.append(f"rank {ranks[0]}: only its collectives are there: {error}")
            continue
        clock = clocks[ranks[0]]

        def moved(ns: int, clock: RankClock = clock, base_ns: int = base_ns) -> int:
            return clock.common_ns(base_ns + ns) - first_ns

        yield from _moved(events, ranks[0], moved, numbers)


def _waits(rows: pl.DataFrame, rank: int, first_ns: int) -> Iterator[Event]:
    """Yield a track of the rank's collectives; what each waited for its last rank is a slice within it."""
    process = PROCESS + rank
    lanes = first_fit(rows.get_column("start_ns").to_numpy(), rows.get_column("end_ns").to_numpy())
    yield from named_process(process, f"rank {rank}: collectives", rank * _PER_RANK)
    for lane in range(int(lanes.max(initial=-1)) + 1):
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": lane, "args": {"name": "waits and transfers"}}
    columns = ("kind", "step", "last_rank", "start_ns", "duration_ns", "wait_ns", "own_late_ns")
    for row, lane in zip(rows.select(columns).iter_rows(named=True), lanes.tolist(), strict=True):
        at = {"ph": "X", "cat": "analyze", "pid": process, "tid": lane, "ts": row["start_ns"] - first_ns}
        known = {key: row[key] for key in ("step", "last_rank", "wait_ns", "own_late_ns") if row[key] is not None}
        yield {**at, "name": row["kind"], "dur": row["duration_ns"], "args": known}
        if row["wait_ns"]:
            whom = "others" if row["last_rank"] is None else f"rank {row['last_rank']}"
            yield {**at, "name": f"waits for {whom}", "dur": row["wait_ns"], "args": {}}


def _read(path: str) -> tuple[list[Any], int]:
    """Return the events of a trace (of a summary: of the trace beside it), and the base of their times, ns.

    Raises ``InputError`` where there is none.
    """
    if path.endswith(files.SUFFIX):
        beside = [f"{path.removesuffix(files.SUFFIX)}{suffix}" for suffix in trace.SUFFIXES]
        path = next((name for name in beside if Path(name).is_file()), path)
    if path.endswith(files.SUFFIX):
        raise InputError(f"{path}: a summary, without its trace beside it")
    with files.local_copy(path) as file:
        text = b"".join(source.content_of(file).blocks()).decode("utf-8", "replace")
    try:
        document = json.loads(text, parse_float=Decimal, parse_constant=str)
    except (ValueError, RecursionError):
        walk = tolerant.walk_document(text, path)
        document = {**walk.header, "traceEvents": walk.events}
    header, events = (document, document.get("traceEvents")) if isinstance(document, dict) else ({}, document)
    return events if isinstance(events, list) else [], int(trace.header_of(header)[0].base_time_ns or 0)


def _moved(
    events: list[Any], rank: int, moved: Callable[[int], int], numbers: defaultdict[tuple[str, Any], int]
) -> Iterator[Event]:
    """Yield the events with the numbers and times of the job, then the names of processes that have none.

    ``moved`` returns the time of the job for one of the file, ns.
    """
    names: dict[int, str] = {}
    for event in events:
        if not isinstance(event, dict) or not isinstance(event.get("ph"), str):
            continue
        process, thread = numbers["process", (rank, str(event.get("pid")))], event.get("tid")
        if not (type(thread) is int and 0 <= thread <= _LARGEST):
            thread = _OTHERS + numbers["thread", (rank, str(thread))]
        own = {**event, "pid": process, "tid": thread}
        if "id" in event:
            own["id"] = numbers["flow", (rank, str(event["id"]))]
        if event["ph"] == "M":
            own.pop("ts", None)
            if event.get("name") in ("process_name", "process_sort_index"):
                if event["name"] == "process_name" and isinstance(args := event.get("args"), dict):
                    names[process] = str(args.get("name"))
                continue
            names.setdefault(process, str(event.get("pid")))
            yield own
            continue
        start, length = _ns(event.get("ts")), _ns(event.get("dur", 0))
        if start is None or length is None:
            continue
        names.setdefault(process, str(event.get("pid")))
        own["ts"] = moved(start)
        if "dur" in event:
            own["dur"] = moved(start + length) - own["ts"]
        yield own
    for place, (process, name) in enumerate(names.items(), 1):
        yield from named_process(process, f"rank {rank}: {name}", rank * _PER_RANK + place)


def _ns(microseconds: Any) -> int | None:
    """Return a time in ns; None where it is no number, or none of a recording."""
    try:
        time = Decimal(str(microseconds)) * 1000
        return round(time) if abs(time) < _MOST_NS else None
    except ArithmeticError:
        return None
