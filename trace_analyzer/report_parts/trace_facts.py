"""State the facts about a trace file: its devices, and what was recorded."""

from collections.abc import Mapping

import polars as pl

from trace_analyzer.analyses.host import Host
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.devices import Device
from trace_analyzer.frames.lookups import factorize
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.report import (
    DeviceInfo,
    Recorded,
    TraceInfo,
)
from trace_analyzer.windows import device_id


def trace_info(
    trace: Trace, recorded: Recorded, reported_devices: pl.DataFrame, device_models: Mapping[int, Device | None]
) -> TraceInfo:
    """Return facts about the file, its devices and what was recorded."""
    worked = set(trace.devices.get_column("label"))
    return TraceInfo(
        path=trace.path,
        event_count=trace.event_count,
        duration_ns=trace.duration_ns,
        origin_ns=str(trace.origin_ns),
        base_time_ns=trace.header.base_time_ns,
        rank=trace.header.rank,
        world_size=trace.header.world_size,
        devices=tuple(
            DeviceInfo(
                device_id(label), name, model.name if (model := device_models.get(code)) and not model.assumed else None
            )
            for code, label, name in reported_devices.iter_rows()
        ),
        idle_devices=tuple(
            f"{entry.index}: {entry.name or 'unnamed'}" for entry in trace.header.devices if entry.index not in worked
        ),
        recorded=recorded,
        settings=trace.header.settings,
    )


def input_texts(trace: Trace) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Return the distinct shapes, call stacks and module hierarchies of operators."""
    inputs = (trace.operator_inputs.get_column(c) for c in ("input_dims", "call_stack", "module_hierarchy"))
    shapes, stacks, hierarchies = (column[factorize(column)[1]].cast(pl.String) for column in inputs)
    return shapes, stacks, hierarchies


def recorded(trace: Trace, host: Host, input_texts: tuple[pl.Series, pl.Series, pl.Series]) -> Recorded:
    """Determine from the events what was recorded, whatever the header states."""
    python, (shapes, stacks, hierarchies) = host.names.filter(pl.col("kind") == "python"), input_texts
    return Recorded(
        shapes=shapes.str.contains(r"\d").any(),
        stack=python.height > 0 or stacks.str.len_chars().gt(0).any(),
        memory=trace.memory_events.height > 0,
        modules=python.get_column("name").str.starts_with("nn.Module").any() or hierarchies.str.len_chars().gt(0).any(),
    )


VALUES = (Value("input_texts", input_texts), Value("recorded", recorded), Value("trace_info", trace_info))
