"""List the analyses of single questions, in the order of the reference of their tables."""

from importlib import import_module

from trace_analyzer.analysis import Declaration
from trace_analyzer.ingest import tables as ingest

MODULES = (
    "activities", "links", "idle", "left_out", "causes", "blame", "host_costs", "compiled", "partition", "steps", "phases",
    "run_ahead", "kernel_bounds", "operators", "roofline", "modules", "communication", "fusion", "tensor_cores", "chart_data", "cpu",
    # Modules with shared values.
    "host", "consistency", "profiler_overhead", "earlier_work",
)  # fmt: skip
"""Modules of this package that declare ``ANALYSES``."""

ANALYSES: tuple[Declaration, ...] = tuple(
    declared for name in MODULES for declared in import_module(f"{__package__}.{name}").ANALYSES
)
"""Every table and value of the analyses."""

TRACE_TABLES = (
    ingest.DEVICES, ingest.THREADS, ingest.HOST_EVENTS, ingest.OPERATOR_INPUTS, ingest.COLLECTIVE_INPUTS,
    ingest.SYNC_EVENTS, ingest.DEVICE_ANNOTATIONS, ingest.FLOWS, ingest.MEMORY_EVENTS,
)  # fmt: skip
"""Tables of a report that come from the trace itself."""
