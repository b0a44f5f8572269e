"""`Trace`: what a file says, in typed tables, before anything is concluded from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from trace_analyzer.ingest.raw import SURROGATE
from trace_analyzer.notes import Note
from trace_analyzer.run_metadata import HEADER_KEY, RunMetadata, settings_of


@dataclass(frozen=True)
class DeviceProperties:
    """A device of the file's header."""

    index: str
    name: str | None
    memory_bytes: int | None
    compute_capability: str | None
    sm_count: int | None
    warp_size: int | None


@dataclass(frozen=True)
class Header:
    """Facts from outside the events."""

    devices: tuple[DeviceProperties, ...]
    rank: int | None
    world_size: int | None
    base_time_ns: str | None
    settings: RunMetadata | None = None


@dataclass(frozen=True)
class Trace:
    """One trace file. Tables are described in `trace_analyzer.tables`; texts of events and of operators' inputs are categorical.

    ``profiler_sessions`` are (start, end) of the profiler's own spans, ns; ``boundaries`` the instants at
    which it says that a recording began or ended.
    ``unsupported`` counts device events whose category this program cannot account for.
    """

    path: str
    header: Header
    event_count: int
    origin_ns: int
    duration_ns: int
    notes: tuple[Note, ...]
    threads: pl.DataFrame
    devices: pl.DataFrame
    host_events: pl.DataFrame
    operator_inputs: pl.DataFrame
    device_events: pl.DataFrame
    sync_events: pl.DataFrame
    device_annotations: pl.DataFrame
    flows: pl.DataFrame
    memory_events: pl.DataFrame
    profiler_sessions: tuple[tuple[int, int], ...]
    boundaries: tuple[int, ...]
    unsupported: Mapping[str, int]


def header_of(raw: Mapping[str, Any]) -> Header:
    """The header from the document's own keys; whatever is malformed there is missing."""
    distributed = raw.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    entries = raw.get("deviceProperties")
    entries = entries if isinstance(entries, list) else []
    base = _integer(raw.get("baseTimeNanoseconds"))
    return Header(
        devices=tuple(_device_properties(entry) for entry in entries if isinstance(entry, dict)),
        rank=_integer(distributed.get("rank")),
        world_size=_integer(distributed.get("world_size")),
        base_time_ns=None if base is None else str(base),
        settings=settings_of(raw.get(HEADER_KEY)),
    )


def _device_properties(entry: Mapping[str, Any]) -> DeviceProperties:
    major, minor = _integer(entry.get("computeMajor")), _integer(entry.get("computeMinor"))
    name = entry.get("name")
    return DeviceProperties(
        index=SURROGATE.sub("\ufffd", str(entry.get("id", ""))),
        name=SURROGATE.sub("\ufffd", name) if isinstance(name, str) and name.strip() else None,
        memory_bytes=_integer(entry.get("totalGlobalMem")),
        compute_capability=None if major is None else f"{major}.{minor or 0}",
        sm_count=_integer(entry.get("numSms")),
        warp_size=_integer(entry.get("warpSize")),
    )


def _integer(value: Any) -> int | None:
    try:
        return int(str(value)) if value is not None else None
    except ValueError:
        return None
