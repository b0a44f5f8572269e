"""Write a report as JSON's document, as files of tables, and as tracks in the original trace.

The JSON document is the contract for scripts and CI; `trace_analyzer.registry` describes it. Tracks are for Perfetto
and chrome://tracing: the original bytes do not change, new events are inserted before the first one. What other profilers
than PyTorch's recorded is written as PyTorch Profiler does. Format: Trace Event
Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

import gzip
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from trace_analyzer.errors import NotATrace
from trace_analyzer.files import Outputs
from trace_analyzer.ingest.raw import ARGUMENTS
from trace_analyzer.ingest.source import content_of
from trace_analyzer.options import DEFAULT_MAX_BYTES
from trace_analyzer.render.declared import declared_rows
from trace_analyzer.report import Report
from trace_analyzer.results import document_fields, plain
from trace_analyzer.schema import Table


def document(report: Report) -> dict[str, Any]:
    """Return the report without its tables, in JSON's own types, with the rows of declared analyses at their places."""
    fields = {name: plain(getattr(report, name)) for name in document_fields(Report) if name != "declared"}
    for declared in report.declared:
        if declared.json is not None:
            _insert(fields, declared.json, declared.table, declared_rows(report, declared.table))
    return fields


def _insert(document: dict[str, Any], place: str, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Put the rows of a table at its place: in the document, or in the devices that they belong to."""
    of_devices, name = place.startswith("devices[]."), place.removeprefix("devices[].")
    if not of_devices:
        document[name] = [plain(_object(table, row)) for row in rows]
        return
    for device in document["devices"]:
        objects = (_object(table, row) for row in rows if row["device"] == device["index"])
        device[name] = [plain({key: value for key, value in made.items() if key != "device"}) for made in objects]


def _object(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as an object; columns with a `Member` are nested in its object."""
    made: dict[str, Any] = {}
    for column in table.columns:
        if column.member is None:
            made[column.name] = row[column.name]
        else:
            made.setdefault(column.member.object, {})[column.member.key] = row[column.name]
    return made


Format = Literal["parquet", "csv"]
FORMATS: tuple[str, ...] = get_args(Format)


def write_tables(report: Report, folder: Path, form: Format = "parquet") -> tuple[Path, ...]:
    """Write every table of the report into ``folder``, which is created if needed, and return the files.

    They appear together when all of them are written, or none does. Existing files of these names are replaced, others
    stay. Raises ``ValueError`` for an unknown format and ``OSError`` when a file cannot be written.
    """
    if form not in FORMATS:
        raise ValueError(f"unknown format {form!r}: choose from {', '.join(FORMATS)}")
    paths = []
    with Outputs() as outputs:
        outputs.make_folder(folder)
        for name, table in report.tables.items():
            paths.append(folder / f"{name}.{form}")
            with outputs.open(paths[-1]) as file:
                if form == "csv":
                    table.write_csv(file)
                else:
                    table.write_parquet(file)
    return tuple(paths)


Event = Mapping[str, Any]
PROCESS = 2_000_000_000
"""Process id of the added tracks, which neither systems give to processes nor Kineto to devices."""
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BLANK = b" \t\r\n"
_HEAD_BYTES = 64 << 20
_TIMES = ("ts", "dur")
_CAUSES, _REGIMES, _QUEUE, _DIFFERENCES = range(4)
_OTHERS, _DEVICES = 1 << 31, 1_900_000_000
"""First number for processes and threads whose own is none of 31 bits, and for the processes of devices."""
_CATEGORIES = {
    "operator": "cpu_op", "annotation": "user_annotation", "python": "python_function", "runtime": "cuda_runtime",
    "driver": "cuda_driver", "overhead": "overhead", "other": "other", "kernel": "kernel", "memcpy": "gpu_memcpy",
    "memset": "gpu_memset", "sync": "cuda_sync",
}  # fmt: skip
_NESTED = {
    ARGUMENTS[column][0]
    for column in ("grid", "block", "input_dims", "input_types", "input_strides", "concrete_inputs")
}
"""Arguments whose text is JSON."""
_TRACKS = {_CAUSES: "why it is idle", _REGIMES: "regime of the step", _DIFFERENCES: "difference from before"}


def write_perfetto(
    source: str | os.PathLike[str], report: Report, path: Path, differences: pl.DataFrame | None = None
) -> Path:
    """Write the trace at ``source`` with the added tracks to ``path``, and return it.

    It is compressed where its name ends in ``.gz``. Of a file of another profiler, the events are those of the report's
    tables.

    ``differences`` (device, start_ns, end_ns, name) become a separate track. Raises ``NotATrace`` where the file has no
    array of events, and ``OSError`` when it cannot be written; no partial file is left.
    """
    if report.trace.profiler is not None:
        return write_blocks(path, document_of(chain(events(report, differences), _recorded(report)), _header(report)))
    added = b",\n".join(map(event_text, events(report, differences)))
    return write_blocks(path, _with_added(content_of(source, max_bytes=DEFAULT_MAX_BYTES).blocks(), added, str(source)))


def write_blocks(path: Path, blocks: Iterable[bytes]) -> Path:
    """Write bytes to ``path``, compressed where its name ends in ``.gz``, and return it; no partial file is left."""
    with Outputs() as outputs, outputs.open(path) as file:
        if path.name.endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                packed.writelines(blocks)
        else:
            file.writelines(blocks)
    return path


def document_of(rows: Iterable[Event], header: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the text of a trace of these events, with times in ns."""
    lead = json.dumps({**header, "traceEvents": []})[:-2].encode()
    for event in rows:
        yield lead + b"\n" + event_text(event)
        lead = b","
    yield (b"" if lead == b"," else lead) + b"\n]}\n"


def _header(report: Report) -> Mapping[str, Any]:
    devices = ({"id": d.index, "name": d.name, "totalGlobalMem": d.memory_bytes} for d in report.trace.devices)
    return {
        "schemaVersion": 1,
        "deviceProperties": [{key: value for key, value in row.items() if value is not None} for row in devices],
    }


def _recorded(report: Report) -> Iterator[Event]:
    """Yield the recorded events as PyTorch Profiler writes them, with times in ns: host, devices, waits, launches."""
    tables, threads = report.tables, {}
    for row in tables["threads"].iter_rows(named=True):
        process, thread = (
            int(text) if text.isdecimal() and int(text) < _OTHERS else _OTHERS + place
            for text, place in ((row["pid"], row["process_id"]), (row["tid"], row["thread_id"]))
        )
        threads[row["thread_id"]] = place = {"pid": process, "tid": thread}
        if row["name"] is not None:
            yield {"ph": "M", "name": "thread_name", **place, "args": {"name": row["name"]}}
    for number, label in tables["devices"].select("device", "label").iter_rows():
        yield {"ph": "M", "name": "process_name", "pid": _DEVICES + number, "tid": 0, "args": {"name": f"GPU {label}"}}
    host = tables["host_events"].join(tables["operator_inputs"], on="event_id", how="left")
    work = tables["activities"].join(tables["collective_inputs"], on="activity_id", how="left")
    origin_ns = int(report.trace.origin_ns)

    def places(row: Mapping[str, Any]) -> Mapping[str, int]:
        return threads.get(row["thread_id"]) or {
            "pid": _DEVICES + row["device"],
            "tid": (row["stream"] or 0) % (1 << 32),
        }

    for rows in (host, work, tables["sync_events"].with_columns(kind=pl.lit("sync"), thread_id=None)):
        for row in rows.iter_rows(named=True):
            named = {keys[0]: row[column] for column, keys in ARGUMENTS.items() if row.get(column) is not None}
            args = {key: json.loads(value) if key in _NESTED else value for key, value in named.items()}
            at = {**places(row), "ts": origin_ns + row["start_ns"], "dur": row["duration_ns"]}
            yield {"ph": "X", "cat": _CATEGORIES[row["kind"]], "name": row["name"], **at, "args": args}
    launches = tables["launches"].select("launch_id", "thread_id", launched_ns="start_ns")
    arrows = work.select("launch_id", "activity_id", "device", "stream", "start_ns").join(launches, on="launch_id")
    for row in arrows.iter_rows(named=True):
        arrow = {"cat": "ac2g", "name": "ac2g", "id": row["activity_id"]}
        yield {**arrow, "ph": "s", **places(row), "ts": origin_ns + row["launched_ns"]}
        yield {**arrow, "ph": "f", "bp": "e", **places({**row, "thread_id": None}), "ts": origin_ns + row["start_ns"]}


def _with_added(blocks: Iterable[bytes], added: bytes, name: str) -> Iterator[bytes]:
    """Yield the original bytes with the added events before the first one."""
    head, rest = b"", iter(blocks)
    for block in rest:
        head += block
        place = _first_event(head)
        if place is not None:
            following = head[place:].lstrip(_BLANK)
            comma = b"" if not added or following.startswith(b"]") else b","
            yield head[:place] + (b"\n" + added + comma if added else b"")
            yield head[place:]
            yield from rest
            return
        if len(head) > _HEAD_BYTES:
            break
    raise NotATrace(
        f"{name}: holds no array of trace events that tracks can be added to; only JSON of PyTorch Profiler does"
    )


def _first_event(head: bytes) -> int | None:
    """Return the start of the array's first event, or the end of an empty array; None where more bytes are needed."""
    text = head.lstrip(_BLANK)
    if text.startswith(b"["):
        place = len(head) - len(text) + 1
    else:
        match = _EVENTS.search(head)
        if match is None:
            return None
        place = match.end()
    return place if head[place:].lstrip(_BLANK) else None


def events(report: Report, differences: pl.DataFrame | None = None) -> Iterator[Event]:
    """Yield the added events, with times in ns.

    They are the tracks' names, idle intervals by cause, queue depth, regimes of steps, and differences.
    """
    origin_ns = int(report.trace.origin_ns)
    tables = report.tables
    for device, label in tables["devices"].select("device", "label").iter_rows():
        if not tables["activities"].get_column("device").eq(device).any():
            continue
        process = PROCESS + device
        yield from _names(process, f"analyze: GPU {label}", differences is not None)
        idle = tables["blame"].filter(pl.col("device") == device)
        yield from _slices(
            idle, process, _CAUSES, origin_ns, "cause", ("operator", "module", "python_function", "phase")
        )
        steps = tables["steps"].filter((pl.col("device") == device) & (pl.col("start_ns") < pl.col("end_ns")))
        regimes = steps.with_columns(pl.col("regime").fill_null("no regime"))
        yield from _slices(regimes, process, _REGIMES, origin_ns, "regime", ("name", "state", "headline"))
        for time, depth in tables["queue"].filter(pl.col("device") == device).select("time_ns", "depth").iter_rows():
            yield {
                "ph": "C",
                "name": "queue depth",
                "pid": process,
                "tid": _QUEUE,
                "ts": origin_ns + time,
                "args": {"launched, not started": depth},
            }
        if differences is not None:
            yield from _slices(
                differences.filter(pl.col("device") == device), process, _DIFFERENCES, origin_ns, "name", ()
            )


def named_process(process: int, name: str, place: int) -> Iterator[Event]:
    """Yield the name of a process and its place among the others."""
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": place}}


def _names(process: int, name: str, has_differences: bool) -> Iterator[Event]:
    yield from named_process(process, name, -1)
    for track, title in _TRACKS.items():
        if track != _DIFFERENCES or has_differences:
            yield {"ph": "M", "name": "thread_name", "pid": process, "tid": track, "args": {"name": title}}


def _slices(
    spans: pl.DataFrame, process: int, track: int, origin_ns: int, name: str, details: tuple[str, ...]
) -> Iterator[Event]:
    for row in spans.select("start_ns", "end_ns", pl.col(name).alias("is called"), *details).iter_rows(named=True):
        args = {key: row[key] for key in details if row[key] is not None}
        start, end = row["start_ns"], row["end_ns"]
        yield {
            "ph": "X",
            "cat": "analyze",
            "name": row["is called"],
            "pid": process,
            "tid": track,
            "ts": origin_ns + start,
            "dur": end - start,
            "args": args,
        }


def _microseconds(time_ns: int) -> str:
    """Convert ns to microseconds.

    >>> _microseconds(1_234_567), _microseconds(-1)
    ('1234.567', '-0.001')
    """
    whole, rest = divmod(abs(time_ns), 1000)
    return f"{'-' if time_ns < 0 else ''}{whole}.{rest:03d}"


def event_text(event: Event) -> bytes:
    """Return the event as JSON; times in ns become microseconds with all digits, more than a double has."""
    head = json.dumps({key: value for key, value in event.items() if key not in _TIMES}, default=float)
    times = "".join(f', "{key}": {_microseconds(event[key])}' for key in _TIMES if key in event)
    return f"{head[:-1]}{times}}}".encode()
