"""List the analyses of single questions, in the order of the reference of their tables."""

from trace_analyzer.analyses import (
    activities,
    backward,
    blame,
    causes,
    clocks,
    cold_start,
    communication,
    consistency,
    context,
    copies,
    earlier_work,
    exclusive_times,
    fusion,
    graph_capture,
    host,
    host_costs,
    idle,
    kernel_bounds,
    launch_latency,
    links,
    modules,
    operators,
    owners,
    partition,
    profiler_overhead,
    queue_underruns,
    recomputation,
    recording_pauses,
    roof_shares,
    roofline,
    run_ahead,
    serving,
    steps,
    stream_overlaps,
    tensor_cores,
)
from trace_analyzer.analysis import Declaration
from trace_analyzer.ingest import tables as ingest

_MODULES = (
    activities, links, idle, causes, blame, host_costs, partition, owners, steps, serving, run_ahead, queue_underruns,
    kernel_bounds, operators, roofline, roof_shares, modules, communication, copies, fusion, recomputation, tensor_cores, backward,
    # Values that these share
    host, context, launch_latency, recording_pauses, clocks, consistency, cold_start, profiler_overhead, graph_capture,
    earlier_work, stream_overlaps, exclusive_times,
)  # fmt: skip

ANALYSES: tuple[Declaration, ...] = tuple(declared for module in _MODULES for declared in module.ANALYSES)
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
"""The tables of a report that are the trace's own."""
