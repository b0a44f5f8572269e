"""Describe one device over the whole trace, and show devices next to each other."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from trace_analyzer.json_types import (
    Amount,
    CopyDirection,
    DeviceIndex,
    HostMemory,
    IdleCause,
    KernelGroup,
    Limits,
    Link,
    Part,
    Positive,
    Quantity,
    Ratio,
    Utilization,
)
from trace_analyzer.report.verdicts import Withheld
from trace_analyzer.sections import WHOLE_TRACE, Longest, Section, Shown
from trace_analyzer.vocabulary import RunAheadKey


class Gaps(Struct, frozen=True):
    """Idle time of a device by cause; the causes sum to the device's idle time."""

    count: Annotated[Amount, "How many."]
    longest_ns: Annotated[Amount, "The longest."]
    by_cause_ns: Annotated[
        Mapping[IdleCause, Amount],
        "Idle time by cause; sums to `idle_ns`. `withheld` is that of a device whose trace does not support causes.",
    ]


class LaunchLead(Struct, frozen=True):
    """Quantiles of the launch lead, ns."""

    p10: Annotated[int | None, "10th percentile."]
    p50: Annotated[int | None, "Median."]
    p90: Annotated[int | None, "90th percentile."]


class TimeWeighted(Struct, frozen=True):
    """A mean and quantiles weighted by time: a number of activities, or their device time, ns."""

    mean: Annotated[float | None, "Mean."]
    p50: Annotated[int | None, "Median."]
    max: Annotated[int | None, "Maximum."]


class RunAhead(Struct, frozen=True):
    """Whether the CPU runs ahead of the device; all fields are null where a check of the trace withholds them."""

    state: Annotated[
        RunAheadKey | None, "In one word; null when too few launches are known, or another check withholds it."
    ]
    launch_lead_ns: Annotated[
        LaunchLead, "Quantiles of the launch lead: start of a launch's first activity minus the call's end."
    ]
    queue_depth: Annotated[TimeWeighted, "Activities launched and not yet started, weighted by time."]
    queued_work_ns: Annotated[
        TimeWeighted,
        "Device time of the queued work, ns, weighted by time: how long the device would stay busy if the CPU stopped.",
    ]
    empty_queue_ratio: Annotated[Ratio | None, "Share of the window in which nothing was queued."]


KnownFlop = Annotated[Quantity | None, "FLOP of the kernels with known shapes; null without such kernels."]
KnownFlopRatio = Annotated[
    Ratio | None, "Share of the device's known FLOP; null where less than half of the matmuls' time has known FLOP."
]
AchievedFlop = Annotated[
    Quantity | None,
    "FLOP over the time of the kernels with known FLOP; null where these take less than half of the time, or the rate is"
    " above 1.05 times the peak.",
]


class BucketTime(Struct, frozen=True):
    """Kernel time of one bucket, and its work where known."""

    bucket: Annotated[str, "What the kernels do (catalog/kernels.toml)."]
    group: Annotated[KernelGroup, "The bucket's group."]
    kernel_count: Annotated[Amount, "Kernels in it."]
    time_ns: Annotated[Amount, "Sum of their durations."]
    time_ratio: Annotated[Ratio, "Share of the sum over all kernels of the device."]
    flop: KnownFlop = None
    bytes: Annotated[Quantity | None, "Bytes that these kernels must move at least."] = None
    flop_ratio: KnownFlopRatio = None
    achieved_flop_per_s: AchievedFlop = None
    achieved_byte_per_s: Annotated[Quantity | None, "Bytes over the time of the kernels whose bytes are known."] = None
    peak_ratio: Annotated[Utilization | None, "Share of the peak FLOP/s of their dtypes that they reached."] = None
    roof_ratio: Annotated[
        Utilization | None, "Time at the roof (peak FLOP/s or full memory bandwidth) over time taken; null above 1.05."
    ] = None
    lost_ns: Annotated[Quantity | None, "Time over that at the roof."] = None
    known_ratio: Annotated[Ratio, "Share of the bucket's time whose FLOP are known."] = 0.0


BUCKETS_SECTION = Section(
    "By bucket",
    show=(
        Shown("bucket", "bucket", "line", term="bucket", mark="group"),
        Shown("kernel_count", "kernels"),
        Shown("time_ns", "time"),
        Shown("time_ratio", "share", "share"),
        Shown("achieved_flop_per_s", "FLOP/s", term="known-work"),
        Shown("achieved_byte_per_s", "bandwidth", term="known-work"),
        Shown("roof_ratio", "of the roof", term="roof"),
        Shown("lost_ns", "time over roof", term="lost"),
        Shown("known_ratio", "FLOP known for", markdown=True, term="known-work", unless_zero=True),
    ),
    place=Longest("activities", ("device", "bucket"), kind="kernel"),
    key="buckets",
    scope=WHOLE_TRACE,
)


class GroupTime(Struct, frozen=True):
    """One row of the article's table: the shares of FLOP and of kernel time of a group of buckets."""

    group: Annotated[KernelGroup, "Group of buckets."]
    kernel_count: Annotated[Amount, "Kernels in it."]
    time_ns: Annotated[Amount, "Sum of their durations."]
    time_ratio: Annotated[Ratio, "Share of the sum over all kernels of the device."]
    flop: KnownFlop
    flop_ratio: KnownFlopRatio
    achieved_flop_per_s: AchievedFlop
    slower_ratio: Annotated[Quantity | None, "FLOP/s of the matmul group over those of this one."]
    known_ratio: Annotated[Ratio, "Share of the group's time whose FLOP are known."]
    article_flop_ratio: Annotated[Ratio | None, "Share of FLOP in the article's table for BERT (arXiv:2007.00072)."]
    article_time_ratio: Annotated[Ratio | None, "Share of time in that table."]


GROUPS_SECTION = Section(
    "What the kernels computed",
    show=(
        Shown("group", "group", "group", 0, markdown=True),
        Shown("time_ratio", "of time", "share", 0, markdown=True),
        Shown("flop_ratio", "of FLOP", "fine", 0, markdown=True, term="known-work"),
        Shown("achieved_flop_per_s", "FLOP/s", terminal=56, markdown=True, term="known-work"),
        Shown("slower_ratio", "less than matmul", "times", 76, markdown=True),
        Shown("known_ratio", "FLOP known for", markdown=True, term="known-work", unless_zero=True),
        Shown("article_time_ratio", "BERT: time", terminal=100, markdown=True, term="article"),
        Shown("article_flop_ratio", "BERT: FLOP", "fine", 100, markdown=True, term="article"),
        Shown("kernel_count", "kernels"),
        Shown("time_ns", "time"),
    ),
    place=Longest("activities", ("device", "group"), kind="kernel"),
    top=True,
    key="groups",
    scope=WHOLE_TRACE,
)


class BoundShare(Struct, frozen=True):
    """The kernels of one bound, and how closely they approach their roof."""

    bound: Annotated[Literal["compute", "memory", "latency", "communication", "other"], "What bounds them."]
    kernel_count: Annotated[Amount, "Kernels of this bound."]
    time_ns: Annotated[Amount, "Sum of their durations."]
    known_ns: Annotated[Amount, "Durations of those whose roof is known."]
    roof_ratio: Annotated[
        Utilization | None,
        "Time of these kernels at the roof, over their actual time; null when no roof is known, and above 1.05.",
    ]
    below_half_ratio: Annotated[Ratio | None, "Share of their time in kernels that reach less than half of their roof."]
    inefficient_ns: Annotated[
        Amount, "Durations of kernels that fill the device and stay far below both of their roofs."
    ]
    named_ns: Annotated[
        Amount, "Durations of those that count as compute by their names, as FLOP or bytes are unknown."
    ] = 0
    near_ridge_ns: Annotated[Amount, "Durations of those that peaks somewhat off would move to the other bound."] = 0
    few_tiles_ns: Annotated[Amount, "Durations of those with too few tiles to fill the device."] = 0


class Communication(Struct, frozen=True):
    """Communication kernels of one device, as unions over its streams."""

    kernel_count: Annotated[Amount, "Communication kernels."]
    time_ns: Annotated[Amount, "Time in which at least one ran."]
    exposed_ns: Annotated[Amount, "Time of it in which nothing else ran."]
    hidden_ns: Annotated[Amount, "The rest."]
    known_ns: Annotated[Amount, "Sum of durations of those whose bus bandwidth is known."]
    message_bytes: Annotated[Quantity | None, "Sum of their messages, as nccl-tests counts sizes, where known."]
    bus_byte_per_s: Annotated[Quantity | None, "Bus bandwidth (nccl-tests) of those, waiting for other ranks included."]
    best_bus_byte_per_s: Annotated[Quantity | None, "Bus bandwidth of the fastest of those."] = None
    link: Annotated[Link | None, "Interconnect to peers; null where the device is not known."] = None
    link_ratio: Annotated[
        Annotated[float, Limits(minimum=0, maximum=2.1)] | None,
        "Share of its peak in one direction that the fastest reaches; a switch that reduces doubles it.",
    ] = None


class Copies(Struct, frozen=True):
    """Copies of one device in one direction, to or from one kind of host memory (null where unknown)."""

    direction: Annotated[CopyDirection, "Direction."]
    host_memory: Annotated[HostMemory | None, "Kind of host memory; null where the profiler does not record it."]
    count: Annotated[Amount, "Copies."]
    time_ns: Annotated[Amount, "Sum of durations."]
    bytes: Annotated[Amount | None, "Bytes copied, where recorded."]
    byte_per_s: Annotated[Quantity | None, "Bytes over time."]
    exposed_ns: Annotated[Amount, "Time in which no kernel ran."]
    call_ns: Annotated[Amount, "CPU time in the calls that started them."]
    small_count: Annotated[Amount, "Copies under 64 KiB, which take longer to start than to move."]
    small_ns: Annotated[Amount, "Time of these."]
    link: Annotated[Link | None, "Interconnect that they take; null within the device, and where it is not known."] = (
        None
    )
    link_ratio: Annotated[
        Utilization | None, "Share of its peak in one direction that copies of 64 KiB and more reach."
    ] = None


class FusionOpportunity(Struct, frozen=True):
    """Kernels that one kernel could replace: a row of table `fusions`."""

    kind: Annotated[Literal["chain", "attention", "optimizer"], "What kind of opportunity."]
    what: Annotated[str, "What it is, in the user's terms."]
    operators: Annotated[str, "Its operators in order; of an optimizer, its name."]
    tensors: Annotated[
        str | None,
        "Shape and type of the tensors that need not go through memory; of an optimizer, `foreach` or `loop`.",
    ]
    module: Annotated[str | None, "Class of the nn.Module around it."]
    function: Annotated[str | None, "The user's Python function around it."]
    count: Annotated[Amount, "How often it ran."]
    kernel_count: Annotated[Amount, "Kernels in all of these runs."]
    time_ns: Annotated[Amount, "Their time."]
    moved_bytes: Annotated[Quantity | None, "Bytes that their calls read and write, by shapes."]
    byte_per_s: Annotated[Quantity | None, "The bandwidth they achieve."]
    saved_bytes: Annotated[Quantity | None, "Bytes of these that need not move."]
    saves_ns: Annotated[Quantity, "Time saved at most."]
    how: Annotated[str, "How that was computed."]
    code: Annotated[str, "What to write instead."]
    start_ns: Annotated[int, "Start of the longest of them."]
    end_ns: Annotated[int, "Its end."]


class WorkCoverage(Struct, frozen=True):
    """The shares of kernel time with known FLOP, with known bytes, and with at least one of them.

    One share is of all kernels, another of those linked to an operator; null where these took no time. FLOP of 0 alone
    do not count as known work.
    """

    flop_ratio: Annotated[Ratio | None, "Share of the time of all kernels whose FLOP are known."]
    bytes_ratio: Annotated[Ratio | None, "The same for bytes."]
    either_ratio: Annotated[Ratio | None, "Where the bytes are known, or FLOP other than 0."]
    linked_flop_ratio: Annotated[Ratio | None, "Share of the time of those kernels whose operator is known."]
    linked_bytes_ratio: Annotated[Ratio | None, "The same for bytes."]
    linked_either_ratio: Annotated[Ratio | None, "The same for either."]


class TensorCores(Struct, frozen=True):
    """Matmuls and convolutions that could use tensor cores better, for one reason (sum over table `tensor_cores`)."""

    reason: Annotated[
        Literal["fp32", "vector-units", "unaligned"],
        "FP32 operands, a type that has tensor cores on vector units, or rows that do not start at 16 bytes.",
    ]
    target_dtype: Annotated[str, "Type that they could compute in."]
    kernel_count: Annotated[Amount, "Kernels."]
    time_ns: Annotated[Amount, "Their time."]
    saves_ns: Annotated[Quantity, "Time saved at most: down to the roof on tensor cores."]
    code: Annotated[str, "What to do."]


class MeasuredRoof(Struct, frozen=True):
    """One measured roof next to that of the datasheet: byte/s of the memory, else FLOP/s of a dtype."""

    dtype: Annotated[str | None, "Type of the arithmetic; null for the memory."]
    matrix_units: Annotated[bool | None, "Whether of tensor cores, not vector units; null for the memory."]
    measured_per_s: Annotated[Positive, "What was measured: FLOP/s, byte/s for the memory."]
    datasheet_per_s: Annotated[
        Positive | None,
        "Roof of the datasheet (or of `--peak-tflops`, `--peak-gbps`), which all other metrics use; null for a device"
        " that is not in the catalogue, for which they use the measured roof.",
    ]

    @property
    def datasheet_ratio(self) -> float | None:
        """Return the measured figure as a share of the datasheet's; None where the datasheet is unknown."""
        return None if self.datasheet_per_s is None else self.measured_per_s / self.datasheet_per_s


class Attained(Struct, frozen=True):
    """The measured limits of the device (``analyze calibrate``), and how closely its kernels approached them."""

    memory_gbps: Annotated[Quantity | None, "Memory bandwidth of large copies, GB/s."]
    peak_tflops: Annotated[Mapping[str, float], "TFLOP/s of matmuls, by dtype."]
    launch_overhead_ns: Annotated[Quantity | None, "CPU time of one operator on one element."]
    launch_latency_ns: Annotated[
        Amount | None, "Median time from a launch's end to its kernel's start on the idle device."
    ]
    roof_ratio: Annotated[
        Mapping[str, Utilization],
        "By bucket: time at the measured roofs over time taken, of the kernels whose work is known; none above 1.05.",
    ]
    roofs: Annotated[
        tuple[MeasuredRoof, ...], "The measured roofs that the kernels met, beside the datasheet's: the memory's first."
    ] = ()


class DeviceReport(Struct, frozen=True):
    """The metrics of one device over the whole trace, with times exact to the nanosecond."""

    index: Annotated[DeviceIndex, "The device's id in the file; a string where it is no number."]
    name: Annotated[str | None, "Name from the file's header."]
    window_ns: Annotated[Amount, "Length of the device's window."]
    busy_ns: Annotated[Amount, "Time in which at least one activity ran, over all streams."]
    idle_ns: Annotated[Amount, "The rest: `window_ns - busy_ns`."]
    busy_ratio: Annotated[
        Ratio | None, "`busy_ns / window_ns`; null for an empty window, and where a check withholds it."
    ]
    activity_count: Annotated[Amount, "Kernels, copies and memsets."]
    kernel_count: Annotated[Amount, "Kernels only."]
    linked_count: Annotated[Amount, "Activities whose launch is known."]
    link_coverage_ratio: Annotated[Ratio | None, "`linked_count / activity_count`."]
    link_coverage_time_ratio: Annotated[Ratio | None, "The same, weighted by the activities' durations."]
    gaps: Annotated[Gaps, "Maximal idle intervals."]
    partition_ns: Annotated[
        Mapping[Part, Amount],
        "What the device did and why it idled; sums to `window_ns`. Empty where a check withholds it.",
    ]
    run_ahead: Annotated[RunAhead, "How far the CPU runs ahead of the device."]
    buckets: Annotated[
        tuple[BucketTime, ...], "Kernel time by what the kernels do, longest first; empty where a check withholds it."
    ]
    groups: Annotated[
        tuple[GroupTime, ...],
        "The article's table: share of FLOP against share of time, longest first; empty where a check withholds it.",
    ] = ()
    bounds: Annotated[
        tuple[BoundShare, ...],
        "Kernels by what bounds them, longest first, and how near they come to their roof; empty where a check withholds it.",
    ] = ()
    mfu: Annotated[
        Utilization | None,
        "Model FLOP utilization: time of matmuls and convolutions at the peak of their dtype, without recomputed ones,"
        " over the window; a lower bound where FLOP are unknown.",
    ] = None
    mfu_at_most: Annotated[
        Utilization | None,
        "The same if matmuls and convolutions of unknown work had run at their peak: the MFU lies between the two.",
    ] = None
    hfu: Annotated[Utilization | None, "Hardware FLOP utilization: the same with recomputed ones."] = None
    flop_time_ratio: Annotated[Ratio | None, "Share of kernel time whose FLOP are known."] = None
    recomputed_ns: Annotated[Amount, "Time of kernels that did forward work again in the backward pass."] = 0
    recomputed_flop: Annotated[Quantity | None, "FLOP of these, where known."] = None
    communication: Annotated[Communication | None, "Communication kernels; null without any."] = None
    copies: Annotated[tuple[Copies, ...], "Copies by direction and kind of host memory, longest first."] = ()
    fusions: Annotated[tuple[FusionOpportunity, ...], "The fusion opportunities that save most, at most 10."] = ()
    work_coverage: Annotated[
        WorkCoverage | None,
        "For how much of the kernel time it is known what the kernels had to do; null when that was not looked into.",
    ] = None
    tensor_cores: Annotated[
        tuple[TensorCores, ...],
        "Matmuls and convolutions that could use tensor cores (MFMA on AMD), or use them better.",
    ] = ()
    attained: Annotated[
        Attained | None,
        "What this kind of device was measured to do by `analyze calibrate`; null without a calibration.",
    ] = None
    withheld: Annotated[
        tuple[Withheld, ...], "Metrics of the device that are withheld, because their inputs fail a check."
    ] = ()
    sm_count: Annotated[
        int | None,
        "Its multiprocessors (compute units, Xe cores): those of its row of the device catalogue or of --gpu, else the header's;"
        " null where neither is known.",
    ] = None


DEVICES_SECTION = Section(
    "Work and run-ahead by device",
    show=(
        Shown("label", "device", "text"),
        Shown("model", "model", "text"),
        Shown("busy_ratio", "busy", term="busy"),
        Shown("window_ns", "window", term="window"),
        Shown("activity_count", "activities", term="activity"),
        Shown("link_coverage_ratio", "linked", term="coverage"),
        Shown("link_coverage_time_ratio", "linked, of time", term="coverage"),
        Shown("mfu", "MFU", term="mfu", phrase="mfu"),
        Shown("state", "run-ahead", "state"),
        Shown("empty_queue_ratio", "queue empty", term="empty-queue"),
        Shown("mean_queue_depth", "depth, mean", term="queue"),
        Shown("max_queue_depth", "depth, most", term="queue"),
        Shown("mean_queued_work_ns", "queued work, mean", term="queued_work"),
        Shown("max_queued_work_ns", "queued work, most", term="queued_work"),
        Shown("p10_launch_lead_ns", "lead, p10", term="lead"),
        Shown("p50_launch_lead_ns", "lead, p50", term="lead"),
        Shown("p90_launch_lead_ns", "lead, p90", term="lead"),
    ),
    place=Longest("activities", ("device",)),
    key="device-work",
    beside=True,
    scope=WHOLE_TRACE,
)


_OF_DEVICE = {shown.column for shown in DEVICES_SECTION.show if isinstance(shown, Shown)} | {"mfu_at_most"}


def overview(device: DeviceReport) -> dict[str, Any]:
    """Return a device's row of `DEVICES_SECTION`."""
    ahead = device.run_ahead
    depth, work = ahead.queue_depth, ahead.queued_work_ns
    return {
        "label": f"GPU {device.index}",
        "model": device.name,
        **{name: value for name, value in asdict(device).items() if name in _OF_DEVICE},
        "state": ahead.state,
        "empty_queue_ratio": ahead.empty_queue_ratio,
        "mean_queue_depth": depth.mean,
        "max_queue_depth": depth.max,
        "mean_queued_work_ns": work.mean,
        "max_queued_work_ns": work.max,
        **{f"{name}_launch_lead_ns": ns for name, ns in asdict(ahead.launch_lead_ns).items()},
    }
