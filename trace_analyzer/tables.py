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
        return frame.select(pl.col(c.name).cast(c.dtype) for c in self.columns)


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
        Column("flop", _F64, "FLOP that the operator's shapes ask of it; null when unknown."),
        Column("moved_bytes", _F64, "Bytes that it must move at least; null when unknown."),
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
        Column("state", _STR, "ok, first, cut, empty or outlier."),
        Column("steady", _BOOL, "Whether the step is part of the steady window."),
        Column("regime", _STR, "Regime of this step alone; null when it cannot be told."),
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
        Column("host_self_ns", _I64, "CPU time without its children."),
        Column("launch_count", _U32, "Launches made while it was the innermost operator."),
        Column("device_ns", _I64, "Device time of the activities of these launches."),
    ),
)

ALL = (
    ACTIVITIES,
    LAUNCHES,
    GAPS,
    IDLE,
    PARTITION,
    STEPS,
    QUEUE,
    KERNELS,
    OPERATORS,
    BACKWARD_LINKS,
    DEVICES,
    THREADS,
    HOST_EVENTS,
    OPERATOR_INPUTS,
    SYNC_EVENTS,
    FLOWS,
    MEMORY_EVENTS,
)
"""The tables of a report, in the order of the reference."""
