"""Write what a Kineto trace holds as an export of Nsight Systems, with its tables and spellings."""

import re
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from trace_analyzer.ingest import Trace

_COPIES = ["?", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"]
_MEMORY = ["Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown"]
_SYNCS = ["?", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync"]
PUSH_POP, START_END, RUNTIME, DRIVER = 59, 60, 0, 1


class Export:
    """An export that is being written: rows by table, with texts in `StringIds`."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self.tables: dict[str, list[Mapping[str, Any]]] = {}

    def text(self, value: str) -> int:
        """Return the number of a text."""
        return self._texts.setdefault(value, len(self._texts) + 1)

    def add(self, table: str, **row: Any) -> None:
        """Add a row; columns that another row of the table lacks are null there."""
        self.tables.setdefault(table, []).append(row)

    def write(self, path: Path) -> Path:
        """Write the database, and return its path."""
        with sqlite3.connect(path) as database:
            texts = [{"id": number, "value": value} for value, number in self._texts.items()]
            for table, rows in {"StringIds": texts, "META_DATA_EXPORT": [], **self.tables}.items():
                columns = list(dict.fromkeys(column for row in rows for column in row)) or ["name", "value"]
                database.execute(f'CREATE TABLE "{table}" ({", ".join(map(_quoted, columns))})')
                marks = ", ".join("?" * len(columns))
                values = ([row.get(column) for column in columns] for row in rows)
                database.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)
        database.close()
        return path


def _quoted(name: str) -> str:
    return f'"{name}"'


def thread(pid: int, tid: int) -> int:
    """Return a global id: of a process, with ``tid`` 0."""
    return (1 << 48) + (pid << 24) + tid


def exported(trace: Trace) -> Export:
    """Return the trace's kernels, copies, memsets, calls, waits, operators, annotations and devices as an export."""
    export, origin = Export(), trace.origin_ns
    threads = {row: (int(pid or 0), int(tid or 0)) for row, pid, tid in _threads(trace)}
    own = trace.host_events.filter(pl.col("kind").is_in(["runtime", "driver"])).get_column("thread_id")
    process = thread(threads[own.item(0)][0] if len(own) else 1, 0)
    for row in trace.device_events.sort("row").iter_rows(named=True):
        table, columns = _activity(export, row)
        place = {
            "deviceId": row["device"],
            "contextId": row["device"] + 1,
            "streamId": row["stream"],
            "globalPid": process,
        }
        ids = {"correlationId": row["correlation"] or 0, "graphNodeId": row["graph_node_id"]}
        export.add(table, **_span(row, origin), **place, **ids, **columns)
    inputs = dict(trace.operator_inputs.select("event_id", "input_dims").iter_rows())
    for row in trace.host_events.sort("row").iter_rows(named=True):
        if row["thread_id"] is None or row["kind"] not in ("runtime", "driver", "operator", "annotation"):
            continue
        at = {**_span(row, origin), "globalTid": thread(*threads[row["thread_id"]])}
        if row["kind"] in ("runtime", "driver"):
            name = export.text(row["name"] + "_v3020" * (row["kind"] == "runtime"))
            kind = RUNTIME if row["kind"] == "runtime" else DRIVER
            at |= {"nameId": name, "eventClass": kind, "correlationId": row["correlation"] or 0}
            export.add("CUPTI_ACTIVITY_KIND_RUNTIME", **at)
        else:
            text = _emitted(row, inputs.get(row["event_id"]))
            export.add("NVTX_EVENTS", **at, eventType=PUSH_POP, text=text, textId=None)
    for row in trace.sync_events.iter_rows(named=True):
        # Real files name the device of a wait by its context only.
        place = {"deviceId": 0, "contextId": row["device"] + 1, "streamId": row["stream"], "globalPid": process}
        kind = _SYNCS.index(row["name"]) if row["name"] in _SYNCS else 0
        ids = {"correlationId": row["correlation"], "syncType": kind, "eventSyncId": 0}
        export.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **_span(row, origin), **place, **ids)
    for entry in trace.header.devices:
        major, minor = (entry.compute_capability or "0.0").split(".")
        export.add(
            "TARGET_INFO_GPU", id=int(entry.index), name=entry.name, totalMemory=entry.memory_bytes, smCount=entry.sm_count,
            threadsPerWarp=entry.warp_size, maxWarpsPerSm=(entry.threads_per_sm or 0) // (entry.warp_size or 1),
            maxRegistersPerSm=entry.registers_per_sm, maxShmemPerSm=entry.shared_bytes_per_sm,
            computeMajor=int(major), computeMinor=int(minor),
        )  # fmt: skip
    return export


def _threads(trace: Trace) -> Iterable[tuple[int, str, str]]:
    numbers = (pl.col(name).str.extract(r"(\d+)") for name in ("pid", "tid"))
    return trace.threads.select("thread_id", *numbers).iter_rows()


def _span(row: Mapping[str, Any], origin: int) -> dict[str, int]:
    return {"start": row["start_ns"] + origin, "end": row["start_ns"] + origin + row["duration_ns"]}


def _emitted(row: Mapping[str, Any], sizes: str | None) -> str:
    """Return the text of a range as `emit_nvtx` writes it."""
    if row["kind"] == "annotation":
        return str(row["name"])
    seq = "" if row["sequence_number"] is None or row["sequence_number"] < 0 else f", seq = {row['sequence_number']}"
    return f"{row['name']}{seq}, op_id = {row['external_id'] or 1}" + (f", sizes = {sizes}" if sizes else "")


def _activity(export: Export, row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the table of an activity, and the columns of its kind."""
    name = str(row["name"])
    if row["kind"] == "memcpy":
        copy, source, target = re.fullmatch(r"Memcpy (\w+)(?: \((.*) -> (.*)\))?", name).groups()  # type: ignore[union-attr]
        kinds = {"srcKind": _MEMORY.index(source or "Unknown"), "dstKind": _MEMORY.index(target or "Unknown")}
        return "CUPTI_ACTIVITY_KIND_MEMCPY", {"copyKind": _COPIES.index(copy), **kinds, "bytes": row["bytes"]}
    if row["kind"] == "memset":
        memory = re.fullmatch(r"Memset \((.*)\)", name)[1]  # type: ignore[index]
        return "CUPTI_ACTIVITY_KIND_MEMSET", {"memKind": _MEMORY.index(memory), "bytes": row["bytes"]}
    sizes = {
        f"{kind}{axis}": int(number)
        for kind in ("grid", "block")
        for axis, number in zip("XYZ", re.findall(r"\d+", row[kind] or "[]"), strict=False)
    }
    numbers = {"registersPerThread": row["registers_per_thread"], "graphId": row["graph_id"]}
    shared = {"staticSharedMemory": 0, "dynamicSharedMemory": row["shared_memory_bytes"]}
    names = dict.fromkeys(("demangledName", "shortName"), export.text(name))
    return "CUPTI_ACTIVITY_KIND_KERNEL", {**names, **sizes, **numbers, **shared}
