"""List the analyses of single questions, in the order of the reference of their tables."""

from importlib import import_module

from trace_analyzer.analysis import Declaration
from trace_analyzer.ingest import tables as ingest

MODULES = (
    "activities", "links", "idle", "causes", "blame", "host_costs", "partition", "owners", "steps", "serving",
    "run_ahead", "queue_underruns", "kernel_bounds", "operators", "roofline", "roof_shares", "modules",
    "communication", "copies", "fusion", "recomputation", "tensor_cores", "backward", "advice_members", "stacks",
    # Modules with shared values.
    "host", "context", "launch_latency", "gap_segments", "late_host", "recording_pauses", "clocks", "consistency", "cold_start",
    "profiler_overhead", "graph_capture", "earlier_work", "stream_overlaps", "exclusive_times",
)  # fmt: skip
"""Modules of this package that declare ``ANALYSES``."""

ANALYSES: tuple[Declaration, ...] = tuple(
    declared for name in MODULES for declared in import_module(f"{__package__}.{name}").ANALYSES
)
"""Every table and value of the analyses."""

TRACE_TABLES = (
    ingest.DEVICES,
    ingest.THREADS,
    ingest.HOST_EVENTS,
    ingest.OPERATOR_INPUTS,
    ingest.SYNC_EVENTS,
    ingest.DEVICE_ANNOTATIONS,
    ingest.FLOWS,
    ingest.MEMORY_EVENTS,
)
"""Tables of a report that come from the trace itself."""
