"""Every table of the program: its columns, their types and what they mean.

A table's schema and its prose are one object, so the reference in ``docs/`` is generated from here and
a frame can be checked against it. Columns carry their unit in their name (``_ns``, ``_bytes``,
``_ratio``); missing is null.
"""

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Column:
    """One column: its name, its type and what it means."""

    name: str
    dtype: pl.DataType
    doc: str


@dataclass(frozen=True)
class Table:
    """A named table with documented columns."""

    name: str
    doc: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """Column names to types, in order."""
        return {column.name: column.dtype for column in self.columns}

    def empty(self) -> pl.DataFrame:
        """The table without rows."""
        return pl.DataFrame(schema=self.schema)

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame with exactly this table's columns, in order and type.

        Raises ``polars.exceptions.ColumnNotFoundError`` for a missing column and
        ``InvalidOperationError`` for a value that does not fit its type.
        """
        if list(frame.schema.items()) == list(self.schema.items()):
            return frame
        return frame.select(pl.col(c.name).cast(c.dtype) for c in self.columns)


def nulls(height: int, dtype: pl.DataType) -> pl.Series:
    """A column without values. It is made at once, and takes no memory before it is written to."""
    return pl.Series([None], dtype=dtype).new_from_index(0, height)


_STR, _I64, _I32, _U32, _F64, _BOOL = pl.String(), pl.Int64(), pl.Int32(), pl.UInt32(), pl.Float64(), pl.Boolean()

_START = Column("start_ns", _I64, "Start, ns since the trace's origin.")
_END = Column("end_ns", _I64, "End (exclusive), ns since the trace's origin.")
_DURATION = Column("duration_ns", _I64, "Duration in ns.")
_NAME = Column("name", _STR, "Name, as the trace has it.")
_DEVICE = Column("device", _I64, "Device code: the file's id where that is a number (see `devices`).")
_STREAM = Column("stream", _I64, "Stream, as the file numbers it; null when it has none.")
_THREAD = Column("thread_id", _I32, "The host thread, a row of `threads`.")
_CORRELATION = Column("correlation", _I64, "Correlation id that ties a runtime call to its activities; 0 is null.")
_EXTERNAL = Column("external_id", _I64, "Kineto's external id: the operator that was running.")
_ACTIVITY = Column("activity_id", _U32, "Row number of the activity, in order of start.")
_LAUNCH = Column("launch_id", _U32, "`event_id` of the runtime call that enqueued it; null when unknown.")
_GAP = Column("gap_id", _U32, "Row number of the gap.")
_BUCKET = Column("bucket", _STR, "What the kernel does (catalog/kernels.toml); null for copies and memsets.")
_BOUND = Column("bound", _STR, "What limits it: compute, memory, latency, communication, copy or other.")
_FLOP = Column("flop", _F64, "Sum of their FLOP, where known; null when none is.")
_MOVED = Column("moved_bytes", _F64, "Sum of the bytes they must move at least, where known; null when none is.")
_TIME = Column("time_ns", _I64, "Sum of durations.")
_COUNT = Column("count", _U32, "Kernels.")
_RATES = (
    Column("known_ns", _I64, "Durations of those whose time at the roof is known."),
    Column("intensity_flop_per_byte", _F64, "Arithmetic intensity: FLOP over bytes."),
    Column("achieved_flop_per_s", _F64, "FLOP over the time of the kernels whose FLOP are known."),
    Column("achieved_byte_per_s", _F64, "Bytes over the time of the kernels whose bytes are known."),
    Column("peak_ratio", _F64, "Share of the peak FLOP/s of their dtypes that they reached."),
    Column("roof_ns", _F64, "Time that they would take at the roof: at peak FLOP/s or full bandwidth."),
    Column("roof_ratio", _F64, "That time over the time they took; above 1 when data came from the cache."),
    Column("lost_ns", _F64, "Time lost against the roof."),
)
_PART = Column("part", _STR, "Part of the partition: what the device did, or the cause of its idling.")

THREADS = Table(
    "threads",
    "Host threads and device rows that events name.",
    (
        Column("thread_id", _I32, "Row number."),
        Column("process_id", _I32, "Number of the process, in order of appearance."),
        Column("pid", _STR, "`pid` as the file writes it."),
        Column("tid", _STR, "`tid` as the file writes it."),
        Column("name", _STR, "Name from the file's metadata events, if any."),
    ),
)

HOST_EVENTS = Table(
    "host_events",
    "Everything with a duration that happened on the CPU.",
    (
        Column("event_id", _U32, "Row number, in order of thread, start and nesting."),
        Column("kind", _STR, "operator, annotation, python, runtime, driver, overhead or other."),
        _NAME,
        _THREAD,
        _START,
        _DURATION,
        _CORRELATION,
        _EXTERNAL,
        Column("sequence_number", _I64, "Autograd sequence number that a forward and a backward operator share."),
        Column("forward_thread", _I64, "Kineto's id of the forward thread, on backward operators; 0 elsewhere."),
        Column("python_id", _I64, "Id of a Python frame."),
        Column("python_parent_id", _I64, "Id of the Python frame that called it."),
        Column("row", _U32, "Position of the event in the file, from 0."),
    ),
)

OPERATOR_INPUTS = Table(
    "operator_inputs",
    "Recorded arguments of operators, as JSON text.",
    (
        Column("event_id", _U32, "The operator, a row of `host_events`."),
        Column("input_dims", _STR, "Shapes of the inputs."),
        Column("input_types", _STR, "Types of the inputs."),
        Column("input_strides", _STR, "Strides of the inputs."),
        Column("concrete_inputs", _STR, "Values of scalar inputs."),
        Column("collective", _STR, "Name of the collective, on communication operators."),
        Column("message_elements", _I64, "Elements that the collective sends."),
        Column("message_dtype", _STR, "Type of these elements."),
        Column("group_size", _I64, "Ranks in the collective's process group."),
        Column("call_stack", _STR, "Python call stack text of PyTorch before 1.13."),
        Column("module_hierarchy", _STR, "nn.Module path text of PyTorch before 1.13."),
    ),
)

DEVICE_EVENTS = Table(
    "device_events",
    "Work on devices: kernels, copies and memsets, in order of start.",
    (
        _ACTIVITY,
        Column("kind", _STR, "kernel, memcpy or memset."),
        _NAME,
        _DEVICE,
        _STREAM,
        Column("context", _I64, "Device context; null when the backend has none."),
        _THREAD,
        _START,
        _DURATION,
        _CORRELATION,
        _EXTERNAL,
        Column("bytes", _I64, "Bytes copied or set, as the profiler recorded them."),
        Column("blocks", _I64, "Thread blocks in the grid."),
        Column("threads_per_block", _I64, "Threads in a block."),
        Column("grid", _STR, "Grid, as JSON text."),
        Column("block", _STR, "Block, as JSON text."),
        Column("registers_per_thread", _I64, "Registers that a thread uses."),
        Column("shared_memory_bytes", _I64, "Shared memory that a block uses."),
        Column("occupancy_percent", _F64, "Kineto's estimate of achieved occupancy."),
        Column("graph_id", _I64, "Graph that replayed it."),
        Column("graph_node_id", _I64, "Node in that graph."),
        Column("row", _U32, "Position of the event in the file, from 0."),
    ),
)

SYNC_EVENTS = Table(
    "sync_events",
    "Synchronization rows that CUPTI writes on device tracks; they are no work.",
    (
        _NAME,
        _DEVICE,
        _STREAM,
        _START,
        _DURATION,
        _CORRELATION,
        Column("wait_on_stream", _I64, "Stream that is waited for, for a stream-wait-event row."),
    ),
)

DEVICE_ANNOTATIONS = Table(
    "device_annotations",
    "Annotations as Kineto repeats them on device tracks, around the work that was launched in them; they are no work.",
    (_NAME, _DEVICE, Column("stream", _I64, "Stream of that work."), _START, _DURATION),
)

FLOWS = Table(
    "flows",
    "Arrows of the file: launches and forward-backward pairs.",
    (
        Column("flow_id", _STR, "Id as the file writes it."),
        Column("kind", _STR, "launch or forward-backward."),
        Column("is_start", _BOOL, "Whether this row is the tail of the arrow."),
        _THREAD,
        Column("time_ns", _I64, "Time of this end."),
    ),
)

MEMORY_EVENTS = Table(
    "memory_events",
    "Allocations and frees that `profile_memory` records.",
    (
        _THREAD,
        Column("time_ns", _I64, "When."),
        Column("device_type", _I64, "c10 device type: 0 CPU, 1 CUDA."),
        _DEVICE,
        Column("bytes", _I64, "Bytes allocated; negative when freed."),
        Column("total_allocated_bytes", _I64, "The allocator's total in use afterwards."),
        Column("total_reserved_bytes", _I64, "The allocator's total reserved afterwards."),
    ),
)

ACTIVITIES = Table(
    "activities",
    "Work on devices with its launch, its bucket and what bounds it.",
    (
        *DEVICE_EVENTS.columns,
        _LAUNCH,
        Column("operator_id", _U32, "`event_id` of the innermost operator around its launch."),
        Column("operator", _STR, "Name of that operator."),
        _BUCKET,
        Column(
            "group", _STR, "The article's group of that bucket: matmul, normalization, pointwise, communication, other."
        ),
        _BOUND,
        Column("dtype", _STR, "Type it computes in, as the device catalogue names it; null when unknown."),
        Column(
            "uses_tensor_cores",
            _BOOL,
            "Whether it computes on matrix units (Tensor Cores, MFMA, XMX), as its name tells; null when it does not.",
        ),
        Column("flop", _F64, "FLOP that the operator's shapes ask of it; null when unknown."),
        Column("moved_bytes", _F64, "Bytes that it must move at least; null when unknown."),
        Column(
            "faster_than_memory",
            _STR,
            "Why it moved its bytes faster than the memory can: cache, clock (too short to time) or unexplained; else null.",
        ),
        Column("lead_ns", _I64, "Start minus the end of its launch; negative when the call was still running."),
    ),
)

LAUNCHES = Table(
    "launches",
    "Runtime and driver calls that enqueued work.",
    (
        _LAUNCH,
        _NAME,
        _THREAD,
        _START,
        _DURATION,
        _CORRELATION,
        Column("activity_count", _U32, "Activities that it enqueued: many for a graph launch."),
        _DEVICE,
        Column("first_start_ns", _I64, "Start of the first of them."),
        Column("lead_ns", _I64, "Launch lead: that start minus the call's end."),
        Column("operator_id", _U32, "`event_id` of the innermost operator around the call."),
    ),
)

GAPS = Table(
    "gaps",
    "Maximal idle intervals of a device.",
    (
        _GAP,
        _DEVICE,
        _START,
        _END,
        _DURATION,
        Column("activity_id", _U32, "The activity that ends the gap."),
        _LAUNCH,
        Column("cause", _STR, "The cause that holds most of it."),
    ),
)

IDLE = Table(
    "idle",
    "The idle time of every gap, cut into intervals with one cause each.",
    (
        _GAP,
        _DEVICE,
        _START,
        _END,
        Column("cause", _STR, "Why the device idled."),
        Column("event_id", _U32, "The host event that was innermost then, where the cause is the host's."),
    ),
)

_OPERATOR = Column("operator", _STR, "Name of the innermost operator around it; null for none.")
_MODULE = Column(
    "module", _STR, "Path of the nn.Modules around it, `Net_0/Block_3/Linear_7`; of the forward pass for backward work."
)
_FUNCTION = Column(
    "python_function",
    _STR,
    "Innermost function of the program around it, `file.py(12): f`: the line is that of its `def`, but that of the call"
    " where PyTorch before 1.13 recorded it. Of the forward pass for backward work; a library's function for want of any.",
)

BLAME = Table(
    "blame",
    "The intervals of `idle`, each with what the host did then and in whose name.",
    (
        _GAP,
        _DEVICE,
        _START,
        _END,
        Column("cause", _STR, "Why the device idled."),
        Column("event_id", _U32, "The host event to blame: the innermost then; the late launch, for its latency."),
        Column("thread_id", _I32, "Its thread, or that of the open annotation."),
        Column("operator_id", _U32, "`event_id` of the innermost operator around it."),
        _OPERATOR,
        _MODULE,
        _FUNCTION,
        Column("annotation", _STR, "Innermost annotation around it, steps left out."),
        Column("phase", _STR, "data-loading, forward, backward or optimizer; null when it cannot be told."),
        Column("step", _I64, "Index of the step of the device that it lies in; null outside of all."),
    ),
)

IDLE_BY = Table(
    "idle_by",
    "Idle time summed up in several ways; each sums to the idle time of the device.",
    (
        Column("by", _STR, "operator, module, python_function, annotation, phase or step."),
        _DEVICE,
        Column("key", _STR, "Its value as in `blame`; null is time that nobody is known to answer for."),
        Column("cause", _STR, "Why the device idled."),
        Column("idle_ns", _I64, "Idle time."),
        Column("count", _U32, "Intervals of `blame`."),
        Column("longest_start_ns", _I64, "Start of the longest of them ..."),
        Column("longest_end_ns", _I64, "... and its end."),
    ),
)

HOST_COSTS = Table(
    "host_costs",
    "What the host did that can leave the device idle, by kind and by the code that asked for it.",
    (
        Column(
            "kind",
            _STR,
            "synchronization, data-loading, compilation, allocation, garbage-collection, blocking-copy, profiler or"
            " cpu-operator, as the causes of idle time are called; and two that are"
            " parts of these: recompilation for what Dynamo compiled again, guards for its lookups of what it compiled.",
        ),
        Column("source", _STR, "What a person wrote there, such as `.item()`; null when no rule names it."),
        Column("name", _STR, "The event that cost most: a call, an operator, a frame."),
        Column("copy", _STR, "What a blocking call copied, as in `HtoD (Pageable -> Device)`; null for none."),
        _OPERATOR,
        _MODULE,
        _FUNCTION,
        Column("count", _U32, "How often it was asked for."),
        Column("host_ns", _I64, "Time that the host spent in it; null when that is not recorded."),
        Column("hidden_ns", _I64, "Part of that time in which some device worked."),
        Column(
            "idle_ns",
            _I64,
            "Idle time of this cause, over all devices: for a synchronization the drain that it left behind, not its"
            " waiting for a busy device.",
        ),
        Column("event_id", _U32, "The event of most idle time, else of most host time; a row of `host_events`."),
        Column("start_ns", _I64, "Its start."),
        Column("end_ns", _I64, "Its end."),
    ),
)

PARTITION = Table(
    "partition",
    "Each device's whole window as disjoint intervals.",
    (
        _DEVICE,
        _START,
        _END,
        _PART,
    ),
)

STEPS = Table(
    "steps",
    "Steps of the workload on each device.",
    (
        Column("index", _I64, "Number of the step: the annotation's own, else its position."),
        _NAME,
        _DEVICE,
        _START,
        _END,
        Column("host_start_ns", _I64, "Start of the annotation on the host."),
        Column("host_end_ns", _I64, "End of the annotation on the host."),
        Column("activity_count", _U32, "Activities that it launched on this device."),
        Column("busy_ns", _I64, "Time of the step in which the device worked."),
        Column("state", _STR, "ok, first, warm-up, cut, empty or outlier."),
        Column("steady", _BOOL, "Whether the step is part of the steady window."),
        Column("regime", _STR, "Regime of this step alone; null when it cannot be told."),
        Column("cause", _STR, "Cause within that regime."),
        Column("runner_up", _STR, "Regime that came close to it, if any."),
        Column("confidence", _STR, "high, medium or low: how sure that is; null without a regime."),
        Column("headline", _STR, "The verdict on this step alone, in a sentence."),
        Column("cold_start_ns", _I64, "Host time in gaps of 1 ms or more that end at the first use of a kernel name."),
        Column(
            "recording_ns",
            _I64,
            "What recording took of the step, estimated or measured; null where that cannot be told.",
        ),
        Column(
            "unrecorded_regime", _STR, "Regime of this step without that; null where that or the regime cannot be told."
        ),
    ),
)

QUEUE = Table(
    "queue",
    "Queue depth of a device as a step function.",
    (
        _DEVICE,
        Column("time_ns", _I64, "From this time on ..."),
        Column("depth", _I64, "... so many launched activities have not started yet."),
        Column("runway_ns", _I64, "Device time of these: how long it would stay busy if the CPU stopped."),
    ),
)

KERNELS = Table(
    "kernels",
    "Activities summed up by name.",
    (
        _DEVICE,
        _NAME,
        Column("kind", _STR, "kernel, memcpy or memset."),
        _BUCKET,
        _BOUND,
        Column("count", _U32, "How often it ran."),
        Column("time_ns", _I64, "Sum of durations."),
        Column("median_ns", _F64, "Median duration."),
        Column("time_ratio", _F64, "Share of the sum over all activities of the device."),
        Column("operator", _STR, "The operator that launched it most often."),
    ),
)

DRAINS = Table(
    "drains",
    "Where the runway ran out and the device idled: the queue was empty after the CPU had been ahead.",
    (
        _DEVICE,
        Column("start_ns", _I64, "When the last queued activity had started: nothing was left."),
        Column("end_ns", _I64, "When the next launch had ended."),
        Column("runway_ns", _I64, "Most device time that was queued since the queue had been empty before."),
        Column("idle_ns", _I64, "Idle time between start and end."),
        Column("cause", _STR, "The cause that holds most of that idle time."),
        Column("host_start_ns", _I64, "End of the last launch that was queued before ..."),
        Column("host_end_ns", _I64, "... and start of the next one: host time without a queued launch."),
        _LAUNCH,
        _THREAD,
        Column(
            "event_id", _U32, "What kept the launching thread in between: its longest event, or what is around many."
        ),
        _NAME,
        Column("source", _STR, "What a person wrote there, such as `.item()`; null when no rule names it."),
        _OPERATOR,
        _MODULE,
        _FUNCTION,
        Column("phase", _STR, "Its phase, as in `blame`."),
    ),
)

BACKWARD_LINKS = Table(
    "backward_links",
    "Backward operators with the forward operator they belong to.",
    (
        Column("event_id", _U32, "The backward operator, a row of `host_events`."),
        Column("forward_id", _U32, "The forward operator, a row of `host_events`."),
        Column("module", _STR, "The nn.Module that the forward operator ran in; null when not recorded."),
    ),
)

DEVICES = Table(
    "devices",
    "Devices that did work.",
    (
        _DEVICE,
        Column("label", _STR, "Id as the file writes it."),
        Column("name", _STR, "Name from the file's header; null when unknown."),
    ),
)

OPERATORS = Table(
    "operators",
    "Operators summed up by name.",
    (
        _NAME,
        Column("count", _U32, "How often it ran."),
        Column("host_ns", _I64, "CPU time, children included."),
        Column("host_self_ns", _I64, "CPU time without that of operators within it."),
        Column(
            "python_ns",
            _I64,
            "Python's time for it: within it, and since the thread's previous operator; null where no frames were recorded.",
        ),
        Column("dispatch_ns", _I64, "CPU time of the operator's own code."),
        Column("runtime_ns", _I64, "CPU time in runtime and driver calls that it made itself and that do not block."),
        Column("blocked_ns", _I64, "CPU time in calls of its own that wait for the device."),
        Column(
            "host_device_ratio", _F64, "Python, dispatch and runtime time per device time launched; null without any."
        ),
        Column("launch_count", _U32, "Launches made while it was the innermost operator."),
        Column(
            "short_launch_count", _U32, "Of these, those that took the CPU longer than the device: call and dispatch."
        ),
        Column("device_ns", _I64, "Device time of the activities of these launches."),
    ),
)

ROOFS = Table(
    "roofs",
    "Kernels of known FLOP or bytes against what their device can do.",
    (
        _ACTIVITY,
        Column("intensity_flop_per_byte", _F64, "Arithmetic intensity: FLOP over bytes."),
        Column("peak_flop_per_s", _F64, "Peak of the device for the dtype: of matrix units for the matmul group."),
        Column("attainable_flop_per_s", _F64, "The roof: that peak, or intensity times memory bandwidth if lower."),
        Column("achieved_flop_per_s", _F64, "FLOP over duration."),
        Column("achieved_byte_per_s", _F64, "Bytes over duration."),
        Column("compute_roof_ns", _F64, "Time of its FLOP at peak."),
        Column("roof_ns", _F64, "Time at the roof: at peak FLOP/s or full bandwidth, whichever takes longer."),
        Column("roof_ratio", _F64, "That time over the duration; above 1 when data came from the cache."),
        Column("lost_ns", _F64, "Duration minus time at the roof; 0 when it was faster than that."),
    ),
)

ROOFLINE = Table(
    "roofline",
    "Kernels summed up by name, operator, dtype and shapes, with their place in the roofline.",
    (
        _DEVICE,
        _NAME,
        Column("operator", _STR, "Name of the innermost operator around the launch."),
        Column("dtype", _STR, "Type it computes in; null when unknown."),
        Column("input_dims", _STR, "Shapes of the operator's inputs, as JSON text; null when not recorded."),
        _BUCKET,
        Column("group", _STR, "The article's group of that bucket."),
        Column("bound", _STR, "What limits the longest of them."),
        _COUNT,
        _TIME,
        _FLOP,
        _MOVED,
        Column("peak_flop_per_s", _F64, "Peak of the device for the dtype."),
        *_RATES,
    ),
)

STEP_WORK = Table(
    "step_work",
    "Kernels summed up by the step in whose window on the device they started.",
    (
        _DEVICE,
        Column("step", _I64, "`index` of the step."),
        _START,
        _END,
        _COUNT,
        _TIME,
        _FLOP,
        _MOVED,
        *_RATES,
        Column("mfu_ratio", _F64, "Model FLOP utilization: time of the contractions at peak, over the step's length."),
    ),
)

OPERATOR_WORK = Table(
    "operator_work",
    "Kernels summed up by the operator that launched them, longest first.",
    (
        _DEVICE,
        Column("operator", _STR, "Name of the operator; null when unknown."),
        _COUNT,
        _TIME,
        _FLOP,
        _MOVED,
        *_RATES,
    ),
)

MODULES = Table(
    "modules",
    "Kernels summed up by nn.Module, backward work with the module of its forward operator.",
    (
        _DEVICE,
        Column("module", _STR, "Name of the module instance, as the profiler numbers it."),
        Column("parent", _STR, "The module around it; null outermost."),
        Column("depth", _I64, "Modules around it."),
        Column("call_count", _U32, "Calls of it."),
        Column("host_ns", _I64, "CPU time of these calls, children included."),
        _COUNT,
        _TIME,
        Column("backward_ns", _I64, "The part of it in the backward pass."),
        Column("self_ns", _I64, "The part of it outside of child modules."),
        _FLOP,
        _MOVED,
        *_RATES,
    ),
)

_HIDDEN = Column("hidden_ns", _I64, "Time of it in which other work ran on the device.")
_EXPOSED = Column("exposed_ns", _I64, "The rest: time of it in which nothing else ran on the device.")

COLLECTIVES = Table(
    "collectives",
    "Communication kernels with their message, their bandwidth and what hid them.",
    (
        _ACTIVITY,
        _NAME,
        _DEVICE,
        _STREAM,
        _START,
        _DURATION,
        Column("collective", _STR, "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv, ..."),
        Column("message_dtype", _STR, "Type of the elements."),
        Column("group_size", _I64, "Ranks that take part; null when not recorded."),
        Column("message_bytes", _F64, "Size as nccl-tests counts it: of an all_gather what all ranks send together."),
        Column("algorithm_byte_per_s", _F64, "Size over duration."),
        Column("bus_byte_per_s", _F64, "That times 2(n-1)/n for all_reduce, (n-1)/n for the other n-to-n collectives."),
        _HIDDEN,
        _EXPOSED,
    ),
)

COMMUNICATION = Table(
    "communication",
    "Communication kernels summed up by collective, name, size and ranks.",
    (
        _DEVICE,
        Column("collective", _STR, "Which collective."),
        _NAME,
        Column("message_dtype", _STR, "Type of the elements."),
        Column("group_size", _I64, "Ranks that take part; null when not recorded."),
        Column("message_bytes", _F64, "Size of one, as nccl-tests counts it."),
        _COUNT,
        _TIME,
        Column("median_ns", _F64, "Median duration."),
        _HIDDEN,
        _EXPOSED,
        Column("algorithm_byte_per_s", _F64, "Size over time."),
        Column("bus_byte_per_s", _F64, "Bus bandwidth over their time."),
        Column("best_bus_byte_per_s", _F64, "Bus bandwidth of the fastest: with the least waiting for other ranks."),
    ),
)

_PLACE = (
    Column("start_ns", _I64, "Start of the longest of them, ns since the trace's origin."),
    Column("end_ns", _I64, "Its end."),
)

COPIES = Table(
    "copies",
    "Copies summed up by direction, host memory and operator.",
    (
        _DEVICE,
        Column("direction", _STR, "host-to-device, device-to-host, within-device, peer-to-peer, ..."),
        Column("host_memory", _STR, "pageable, pinned or managed; null when the profiler does not tell (AMD)."),
        Column("operator", _STR, "Name of the innermost operator around the launch."),
        Column("count", _U32, "Copies."),
        _TIME,
        Column("bytes", _I64, "Sum of their bytes, where recorded."),
        Column("byte_per_s", _F64, "Bytes over time."),
        _HIDDEN,
        _EXPOSED,
        Column("call_ns", _I64, "CPU time in the calls that started them."),
        Column("small_count", _U32, "Copies under 64 KiB, which take longer to start than to move."),
        Column("small_ns", _I64, "Time of these."),
        *_PLACE,
    ),
)

FUSIONS = Table(
    "fusions",
    "Kernels that one kernel could replace, equal ones summed up; the most time saved first.",
    (
        _DEVICE,
        Column("kind", _STR, "chain, attention or optimizer."),
        Column("what", _STR, "What it is, in the user's terms."),
        Column("operators", _STR, "Its operators in order; of an optimizer, its name."),
        Column("tensors", _STR, "Shape and type of the tensors that need not go through memory."),
        Column("module", _STR, "Class of the nn.Module around it; null when not recorded."),
        Column("function", _STR, "The user's Python function around it; null when not recorded."),
        Column("count", _U32, "How often it ran."),
        Column("kernel_count", _U32, "Kernels in all of these runs."),
        _TIME,
        Column("moved_bytes", _F64, "Bytes that their calls read and write, by shapes; null for optimizers."),
        Column("byte_per_s", _F64, "These bytes over the time: the bandwidth they achieve."),
        Column("saved_bytes", _F64, "Bytes of these that need not move; null for optimizers."),
        Column("saves_ns", _F64, "Time saved at most."),
        Column("how", _STR, "How that was computed."),
        Column("code", _STR, "What to write instead."),
        *_PLACE,
    ),
)

RECOMPUTATION = Table(
    "recomputation",
    "Forward work that ran again in the backward pass, summed up by operator and module.",
    (
        _DEVICE,
        Column("sign", _STR, "What tells: checkpoint-node, checkpoint-frame or forward-in-backward."),
        Column("operator", _STR, "Name of the innermost operator around the launch."),
        Column("module", _STR, "Class of the nn.Module around it; null when not recorded."),
        _COUNT,
        _TIME,
        _FLOP,
        *_PLACE,
    ),
)

TENSOR_CORES = Table(
    "tensor_cores",
    "Contractions that could use matrix units, or use them better; the most time saved first.",
    (
        _DEVICE,
        Column("reason", _STR, "fp32, vector-units or unaligned."),
        _NAME,
        Column("operator", _STR, "Name of the innermost operator around the launch."),
        Column("dtype", _STR, "Type it computes in."),
        Column("target_dtype", _STR, "Type that it could compute in."),
        Column("input_dims", _STR, "Shapes of the operator's inputs, as JSON text; null when not recorded."),
        _COUNT,
        _TIME,
        _FLOP,
        Column("could_ns", _F64, "Time at the roof on matrix units in that type."),
        Column("saves_ns", _F64, "Time saved at most."),
    ),
)

ALL = (
    ACTIVITIES,
    LAUNCHES,
    GAPS,
    IDLE,
    BLAME,
    IDLE_BY,
    HOST_COSTS,
    PARTITION,
    STEPS,
    QUEUE,
    DRAINS,
    KERNELS,
    OPERATORS,
    ROOFS,
    ROOFLINE,
    STEP_WORK,
    OPERATOR_WORK,
    MODULES,
    COLLECTIVES,
    COMMUNICATION,
    COPIES,
    FUSIONS,
    RECOMPUTATION,
    TENSOR_CORES,
    BACKWARD_LINKS,
    DEVICES,
    THREADS,
    HOST_EVENTS,
    OPERATOR_INPUTS,
    SYNC_EVENTS,
    DEVICE_ANNOTATIONS,
    FLOWS,
    MEMORY_EVENTS,
)
"""The tables of a report, in the order of the reference."""
