"""Declare the tables of a trace as read from the file, before any analysis."""

from trace_analyzer.schema import Table, columns

THREADS = Table(
    "threads",
    "Host threads and device rows that events name.",
    columns("""
        thread_id i32 Row number.
        process_id i32 Number of the process, in order of appearance.
        pid str `pid` as the file writes it.
        tid str `tid` as the file writes it.
        name str Name from the file's metadata events, if any.
    """),
)

DEVICES = Table(
    "devices",
    "Devices that did work.",
    columns("""
        device
        label str Id as the file writes it.
        name str Name from the file's header; null when unknown.
    """),
)

HOST_EVENTS = Table(
    "host_events",
    "Everything with a duration that happened on the CPU.",
    columns("""
        event_id u32 Row number, in order of thread, start and nesting.
        kind str operator, annotation, python, runtime, driver, overhead or other.
        name thread_id start_ns duration_ns correlation external_id
        sequence_number i64 Autograd sequence number that a forward and a backward operator share.
        forward_thread i64 Kineto's id of the forward thread, on backward operators; 0 elsewhere.
        python_id i64 Id of a Python frame.
        python_parent_id i64 Id of the Python frame that called it.
        row u32 Position of the event in the file, from 0.
    """),
)

_COLLECTIVE = columns("""
    collective str Name of the collective, on communication operators.
    message_elements i64 Elements that the collective sends.
    message_dtype str Type of these elements.
    output_elements i64 Elements that the collective receives.
    input_splits str Elements sent to each rank, of an uneven all_to_all.
    output_splits str Elements received from each rank, of an uneven all_to_all.
    group_size i64 Ranks in the collective's process group.
    process_group str Name of the process group.
    process_group_description str Description of the process group, as the program gave it.
    process_group_ranks str Global ranks of the process group; long lists are cut by the profiler.
    global_rank_start i64 First global rank of the process group, where its ranks are evenly spaced.
    global_rank_stride i64 Distance of these ranks; not positive where they are not evenly spaced.
    collective_seq i64 Number of the collective in its process group, the same on every rank.
    comms_id str Identifier of the collective, the same on every rank.
    source_rank i64 Rank that sends, of a send or receive.
    destination_rank i64 Rank that receives, of a send or receive.
""")

OPERATOR_INPUTS = Table(
    "operator_inputs",
    "Recorded arguments of operators, as JSON text.",
    columns(
        """
        event_id u32 The operator, a row of `host_events`.
        input_dims str Shapes of the inputs.
        input_types str Types of the inputs.
        input_strides str Strides of the inputs.
        concrete_inputs str Values of scalar inputs.
        """,
        *_COLLECTIVE,
        """
        call_stack str Python call stack text of PyTorch before 1.13.
        module_hierarchy str nn.Module path text of PyTorch before 1.13.
        kernel_file str File of the kernel that Inductor generated, on the operator that launches it.
        """,
    ),
)

DEVICE_EVENTS = Table(
    "device_events",
    "Work on devices: kernels, copies and memsets, in order of start.",
    columns("""
        activity_id
        kind str kernel, memcpy or memset.
        name device stream
        context i64 Device context; null when the backend has none.
        thread_id start_ns duration_ns correlation external_id
        bytes i64 Bytes copied or set, as the profiler recorded them.
        blocks i64 Thread blocks in the grid.
        threads_per_block i64 Threads in a block.
        grid str Grid, as JSON text.
        block str Block, as JSON text.
        registers_per_thread i64 Registers that a thread uses.
        shared_memory_bytes i64 Shared memory that a block uses.
        occupancy_percent f64 Kineto's estimate of achieved occupancy; null where it is 0, as for large shared memory: kernels occupy something.
        graph_id i64 Graph that replayed it.
        graph_node_id i64 Node in that graph.
        annotation str What the program called that node (`torch.cuda.graph_annotations`), such as its module.
        recorded_ns i64 Recorded duration, where it cannot be and was shortened; null elsewhere.
        row u32 Position of the event in the file, from 0.
    """),
)

COLLECTIVE_INPUTS = Table(
    "collective_inputs",
    "Arguments of collectives that the profiler wrote on their kernels, with or without an operator.",
    columns(
        """
        activity_id
        """,
        *_COLLECTIVE,
    ),
)

SYNC_EVENTS = Table(
    "sync_events",
    "Synchronization rows that CUPTI writes on device tracks; they are no work.",
    columns("""
        name device stream start_ns duration_ns correlation
        wait_on_stream i64 Stream that is waited for, for a stream-wait-event row.
    """),
)

DEVICE_ANNOTATIONS = Table(
    "device_annotations",
    "Annotations as Kineto repeats them on device tracks, around the work that was launched in them; they are no work.",
    columns("""
        name device
        stream i64 Stream of that work.
        start_ns duration_ns
    """),
)

FLOWS = Table(
    "flows",
    "Arrows of the file: launches and forward-backward pairs.",
    columns("""
        flow_id str Id as the file writes it.
        kind str launch or forward-backward.
        is_start bool Whether this row is the tail of the arrow.
        thread_id
        time_ns i64 Time of this end.
    """),
)

MEMORY_EVENTS = Table(
    "memory_events",
    "Allocations and frees that `profile_memory` records.",
    columns("""
        thread_id
        time_ns i64 When.
        device_type i64 c10 device type: 0 CPU, 1 CUDA.
        device
        address i64 Address of the block; null where it is not recorded.
        bytes i64 Bytes allocated; negative when freed.
        total_allocated_bytes i64 The allocator's total in use afterwards.
        total_reserved_bytes i64 The allocator's total reserved afterwards.
    """),
)
