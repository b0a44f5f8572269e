"""Declare the tables of a trace as read from the file, before any analysis."""

from trace_analyzer.schema import (
    ACTIVITY,
    BOOL,
    CORRELATION,
    DEVICE,
    DURATION,
    EXTERNAL,
    F64,
    I32,
    I64,
    NAME,
    START,
    STR,
    STREAM,
    THREAD,
    U32,
    Column,
    Table,
)

THREADS = Table(
    "threads",
    "Host threads and device rows that events name.",
    (
        Column("thread_id", I32, "Row number."),
        Column("process_id", I32, "Number of the process, in order of appearance."),
        Column("pid", STR, "`pid` as the file writes it."),
        Column("tid", STR, "`tid` as the file writes it."),
        Column("name", STR, "Name from the file's metadata events, if any."),
    ),
)

DEVICES = Table(
    "devices",
    "Devices that did work.",
    (
        DEVICE,
        Column("label", STR, "Id as the file writes it."),
        Column("name", STR, "Name from the file's header; null when unknown."),
    ),
)

HOST_EVENTS = Table(
    "host_events",
    "Everything with a duration that happened on the CPU.",
    (
        Column("event_id", U32, "Row number, in order of thread, start and nesting."),
        Column("kind", STR, "operator, annotation, python, runtime, driver, overhead or other."),
        NAME,
        THREAD,
        START,
        DURATION,
        CORRELATION,
        EXTERNAL,
        Column("sequence_number", I64, "Autograd sequence number that a forward and a backward operator share."),
        Column("forward_thread", I64, "Kineto's id of the forward thread, on backward operators; 0 elsewhere."),
        Column("python_id", I64, "Id of a Python frame."),
        Column("python_parent_id", I64, "Id of the Python frame that called it."),
        Column("row", U32, "Position of the event in the file, from 0."),
    ),
)

_COLLECTIVE = (
    Column("collective", STR, "Name of the collective, on communication operators."),
    Column("message_elements", I64, "Elements that the collective sends."),
    Column("message_dtype", STR, "Type of these elements."),
    Column("output_elements", I64, "Elements that the collective receives."),
    Column("input_splits", STR, "Elements sent to each rank, of an uneven all_to_all."),
    Column("output_splits", STR, "Elements received from each rank, of an uneven all_to_all."),
    Column("group_size", I64, "Ranks in the collective's process group."),
    Column("process_group", STR, "Name of the process group."),
    Column("process_group_description", STR, "Description of the process group, as the program gave it."),
    Column("process_group_ranks", STR, "Global ranks of the process group; long lists are cut by the profiler."),
    Column("global_rank_start", I64, "First global rank of the process group, where its ranks are evenly spaced."),
    Column("global_rank_stride", I64, "Distance of these ranks; not positive where they are not evenly spaced."),
    Column("collective_seq", I64, "Number of the collective in its process group, the same on every rank."),
    Column("comms_id", STR, "Identifier of the collective, the same on every rank."),
    Column("source_rank", I64, "Rank that sends, of a send or receive."),
    Column("destination_rank", I64, "Rank that receives, of a send or receive."),
)

OPERATOR_INPUTS = Table(
    "operator_inputs",
    "Recorded arguments of operators, as JSON text.",
    (
        Column("event_id", U32, "The operator, a row of `host_events`."),
        Column("input_dims", STR, "Shapes of the inputs."),
        Column("input_types", STR, "Types of the inputs."),
        Column("input_strides", STR, "Strides of the inputs."),
        Column("concrete_inputs", STR, "Values of scalar inputs."),
        *_COLLECTIVE,
        Column("call_stack", STR, "Python call stack text of PyTorch before 1.13."),
        Column("module_hierarchy", STR, "nn.Module path text of PyTorch before 1.13."),
    ),
)

DEVICE_EVENTS = Table(
    "device_events",
    "Work on devices: kernels, copies and memsets, in order of start.",
    (
        ACTIVITY,
        Column("kind", STR, "kernel, memcpy or memset."),
        NAME,
        DEVICE,
        STREAM,
        Column("context", I64, "Device context; null when the backend has none."),
        THREAD,
        START,
        DURATION,
        CORRELATION,
        EXTERNAL,
        Column("bytes", I64, "Bytes copied or set, as the profiler recorded them."),
        Column("blocks", I64, "Thread blocks in the grid."),
        Column("threads_per_block", I64, "Threads in a block."),
        Column("grid", STR, "Grid, as JSON text."),
        Column("block", STR, "Block, as JSON text."),
        Column("registers_per_thread", I64, "Registers that a thread uses."),
        Column("shared_memory_bytes", I64, "Shared memory that a block uses."),
        Column("occupancy_percent", F64, "Kineto's estimate of achieved occupancy."),
        Column("graph_id", I64, "Graph that replayed it."),
        Column("graph_node_id", I64, "Node in that graph."),
        Column(
            "annotation", STR, "What the program called that node (`torch.cuda.graph_annotations`), such as its module."
        ),
        Column("row", U32, "Position of the event in the file, from 0."),
    ),
)

COLLECTIVE_INPUTS = Table(
    "collective_inputs",
    "Arguments of collectives that the profiler wrote on their kernels, with or without an operator.",
    (ACTIVITY, *_COLLECTIVE),
)

SYNC_EVENTS = Table(
    "sync_events",
    "Synchronization rows that CUPTI writes on device tracks; they are no work.",
    (
        NAME,
        DEVICE,
        STREAM,
        START,
        DURATION,
        CORRELATION,
        Column("wait_on_stream", I64, "Stream that is waited for, for a stream-wait-event row."),
    ),
)

DEVICE_ANNOTATIONS = Table(
    "device_annotations",
    "Annotations as Kineto repeats them on device tracks, around the work that was launched in them; they are no work.",
    (NAME, DEVICE, Column("stream", I64, "Stream of that work."), START, DURATION),
)

FLOWS = Table(
    "flows",
    "Arrows of the file: launches and forward-backward pairs.",
    (
        Column("flow_id", STR, "Id as the file writes it."),
        Column("kind", STR, "launch or forward-backward."),
        Column("is_start", BOOL, "Whether this row is the tail of the arrow."),
        THREAD,
        Column("time_ns", I64, "Time of this end."),
    ),
)

MEMORY_EVENTS = Table(
    "memory_events",
    "Allocations and frees that `profile_memory` records.",
    (
        THREAD,
        Column("time_ns", I64, "When."),
        Column("device_type", I64, "c10 device type: 0 CPU, 1 CUDA."),
        DEVICE,
        Column("bytes", I64, "Bytes allocated; negative when freed."),
        Column("total_allocated_bytes", I64, "The allocator's total in use afterwards."),
        Column("total_reserved_bytes", I64, "The allocator's total reserved afterwards."),
    ),
)
