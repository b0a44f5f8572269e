"""Declare the sections of the package's own tables: title, columns, order, rows and where a row leads, for all outputs."""

from trace_analyzer.render.phrasing import (
    blamed_place,
    drained_by,
    evidence_value,
    fusion_passes,
    fusion_phrase,
    metric_label,
    part_label,
    step_limit,
)
from trace_analyzer.report import Blame, Evidence, Fusion, HostCost
from trace_analyzer.sections import Longest, Section, Shown

_DEVICE = Shown("device_label", "device")
_KERNEL_RATE = Shown("achieved_flop_per_s", "FLOP/s", "flops", term="known-work")
_KNOWN = Shown("known_ratio", "FLOP known for", markdown=True, term="known-work")

EVIDENCE = Section(
    "Evidence",
    show=(
        Shown("metric", "what", "word", 0, markdown=True, text=lambda row: metric_label(row["metric"])),
        Shown("value", "value", "number", 0, markdown=True, text=lambda row: evidence_value(Evidence(**row))),
        Shown("why", "why it matters", "word", 0, markdown=True),
    ),
    top=True,
    lines=2,
)

PARTITION = Section(
    "Where the time went",
    show=(
        Shown("part", "part", "word", markdown=True, text=lambda row: part_label(row["part"])),
        Shown("time_ratio", "share", markdown=True),
        Shown("time_ns", "time", markdown=True),
        Shown("unrecorded_ratio", "share without recording", markdown=True),
    ),
    top=True,
)

STEPS = Section(
    "Steps",
    show=(
        Shown("name", "step", "word", markdown=True),
        Shown("state", "state", "word", markdown=True),
        Shown("duration_ns", "length", markdown=True),
        Shown("busy_ratio", "busy", markdown=True),
        Shown("regime", "limited by", "word", markdown=True, text=step_limit),
        Shown("confidence", "confidence", "word", markdown=True),
        Shown("cold_start_ns", "cold start", markdown=True),
        Shown("recording_ns", "recording", markdown=True),
    ),
    top=True,
)

BLAME = Section(
    "Who kept the device waiting in the judged window",
    show=(
        Shown("idle_ns", "device idle", terminal=0, markdown=True),
        Shown("cause", "cause", "part", 0, markdown=True),
        Shown("at", "at", "text", 0, markdown=True, page=False, text=lambda row: blamed_place(Blame(**row))),
        Shown("python_function", "in function", "frame"),
        Shown("module", "module", "module"),
        Shown("operator", "operator", "name"),
        Shown("annotation", "annotation", "name"),
        Shown("phase", "phase", "text"),
    ),
    top=True,
    key="culprits",
    lines=1,
)

KERNELS = Section(
    "Top kernels and copies",
    show=(
        Shown("name", "name", "name", 0, markdown=True),
        _DEVICE,
        Shown("bucket", "bucket", "word", 80, markdown=True, fallback="kind", term="bucket"),
        Shown("bound", "bound", "part", 72, markdown=True, term="bound"),
        Shown("operator", "operator", "name"),
        Shown("count", "count", terminal=64, markdown=True),
        Shown("median_ns", "median", terminal=116),
        Shown("time_ns", "time", terminal=40, markdown=True),
        Shown("time_ratio", "share", "share", 40, markdown=True),
    ),
    sort=("-time_ns", "name"),
    place=Longest("activities", ("device", "name")),
    scope="of the whole trace",
    top=True,
    key="kernels",
    table="kernels",
)

BUCKETS = Section(
    "By bucket",
    show=(
        Shown("bucket", "bucket", "text", term="bucket", mark="group"),
        Shown("kernel_count", "kernels"),
        Shown("time_ns", "time"),
        Shown("time_ratio", "share", "share"),
        _KERNEL_RATE,
        Shown("achieved_byte_per_s", "bandwidth", "bandwidth", term="known-work"),
        Shown("roof_ratio", "of the roof", term="roof"),
        Shown("lost_ns", "time over roof", term="lost"),
        _KNOWN,
    ),
    place=Longest("activities", ("device", "bucket"), kind="kernel"),
    key="buckets",
)

GROUPS = Section(
    "What the kernels computed",
    show=(
        Shown("group", "group", "group", 0, markdown=True),
        Shown("time_ratio", "of time", "share", 0, markdown=True),
        Shown("flop_ratio", "of FLOP", "fine", 0, markdown=True, term="known-work"),
        Shown("achieved_flop_per_s", "FLOP/s", "flops", 56, markdown=True, term="known-work"),
        Shown("slower_ratio", "less than matmul", "times", 76, markdown=True),
        _KNOWN,
        Shown("article_time_ratio", "BERT: time", "ratio", 100, markdown=True, term="article"),
        Shown("article_flop_ratio", "BERT: FLOP", "fine", 100, markdown=True, term="article"),
        Shown("kernel_count", "kernels"),
        Shown("time_ns", "time"),
    ),
    place=Longest("activities", ("device", "group"), kind="kernel"),
    top=True,
    key="groups",
)

ROOFLINE = Section(
    "Time over the roof",
    show=(
        Shown("name", "kernel", "name", mark="group"),
        _DEVICE,
        Shown("operator", "operator", "name"),
        Shown("input_dims", "shapes", "text"),
        Shown("lost_ns", "time over roof", term="lost"),
        Shown("roof_ratio", "of the roof", "share", term="roof"),
        Shown("count", "count"),
        Shown("time_ns", "time"),
        Shown("bound", "bound", "part", term="bound"),
        Shown("dtype", "type", "text"),
        Shown("achieved_flop_per_s", "FLOP/s", "flops"),
        Shown("achieved_byte_per_s", "bandwidth", "bandwidth"),
        Shown("intensity_flop_per_byte", "FLOP per byte", "number", term="intensity"),
    ),
    sort=("-lost_ns", "name"),
    place=Longest("activities", ("device", "name", "operator")),
    record="Record with record_shapes=True, and on a device whose peaks are known (or name it: --gpu), to see FLOP, bytes"
    " and how far each kernel is from what the device can do.",
    key="roofline",
    table="roofline",
    known=("roof_ratio",),
)

FUSIONS = Section(
    "Fusion opportunities",
    show=(
        Shown("what", "what", "word", markdown=True),
        Shown("in", "in", "text", markdown=True, page=False, text=lambda row: row["module"] or row["function"]),
        _DEVICE,
        Shown("saves_ns", "saves at most", terminal=0, markdown=True, term="saves"),
        Shown("count", "count", terminal=0, markdown=True),
        Shown("says", "", "text", 0, page=False, text=lambda row: fusion_phrase(Fusion(**row))),
        Shown("kernel_count", "kernels"),
        Shown("time_ns", "time", markdown=True),
        Shown("passes", "memory", "word", markdown=True, page=False, text=lambda row: fusion_passes(Fusion(**row))),
        Shown("saved_bytes", "bytes saved"),
        Shown("code", "instead", "code", markdown=True),
        Shown("tensors", "in between", "text"),
        Shown("module", "module", "name"),
        Shown("function", "in function", "frame"),
        Shown("operators", "operators", "text"),
    ),
    rows=5,
    scope="time saved at most",
    top=True,
    key="fusions",
    table="fusions",
    lines=2,
)

RECOMPUTATION = Section(
    "Forward work run again in the backward pass",
    show=(
        Shown("operator", "run again", "name"),
        Shown("module", "module", "name"),
        _DEVICE,
        Shown("sign", "seen by", "text"),
        Shown("count", "count"),
        Shown("time_ns", "time"),
        Shown("flop", "FLOP", "flop"),
    ),
    sort=("-time_ns",),
    key="recomputation",
    table="recomputation",
)

CAUSES = Section(
    "By cause",
    show=(
        Shown("cause", "cause", "part"),
        _DEVICE,
        Shown("time_ns", "time"),
        Shown("idle_ratio", "share of idle", "share"),
    ),
    sort=("-time_ns",),
    key="causes",
    table="causes",
)

GAPS = Section(
    "Longest gaps",
    show=(
        Shown("cause", "main cause", "part"),
        _DEVICE,
        Shown("start_ns", "start", "time"),
        Shown("duration_ns", "length"),
        Shown("next_activity", "ended by", "name"),
    ),
    sort=("-duration_ns", "start_ns"),
    key="gaps",
    table="gaps",
)

IDLE_BY_FUNCTION = Section(
    "By function",
    show=(
        Shown("key", "function", "frame"),
        _DEVICE,
        Shown("cause", "cause", "part"),
        Shown("count", "intervals"),
        Shown("idle_ns", "device idle"),
    ),
    sort=("-idle_ns",),
    place=("longest_start_ns", "longest_end_ns"),
    record="Record with with_stack=True to see which function to blame.",
    key="idle-python-function",
    table="idle_by",
    only=(("by", "python_function"),),
    known=("key",),
)

IDLE_BY_MODULE = Section(
    "By module",
    show=(Shown("key", "module", "module"), *IDLE_BY_FUNCTION.show[1:]),
    sort=IDLE_BY_FUNCTION.sort,
    place=IDLE_BY_FUNCTION.place,
    record="Record with with_stack=True to see which module to blame.",
    key="idle-module",
    table="idle_by",
    only=(("by", "module"),),
    known=("key",),
)

HOST_COSTS = Section(
    "Synchronizing calls and other host work",
    show=(
        Shown("source", "what", "word", markdown=True, fallback="name"),
        Shown("kind", "kind", "part", markdown=True),
        Shown("at", "at", "text", markdown=True, page=False, text=lambda row: blamed_place(HostCost(**row))),
        Shown("python_function", "in function", "frame"),
        Shown("count", "count", markdown=True),
        Shown("host_ns", "host time", markdown=True),
        Shown("idle_ns", "idle time", markdown=True, term="drain"),
        Shown("name", "event", "name"),
        Shown("operator", "operator", "name"),
        Shown("copy", "copy", "text"),
        Shown("module", "module", "module"),
        Shown("hidden_ns", "host time while the device worked"),
    ),
    sort=("-idle_ns", "-host_ns"),
    top=True,
    record="Nothing of the kind was recorded.",
    key="host",
    table="host_costs",
)

DRAINS = Section(
    "Where the queue ran empty",
    show=(
        Shown("start_ns", "empty at", "time", markdown=True),
        _DEVICE,
        Shown("runway_ns", "queued before", markdown=True, term="runway"),
        Shown("idle_ns", "idle", markdown=True),
        Shown("cause", "cause", "part", markdown=True),
        Shown("by", "drained by", "text", markdown=True, page=False, text=drained_by),
        Shown("python_function", "in function", "frame"),
        Shown("name", "event", "name"),
        Shown("source", "as written", "text"),
        Shown("operator", "operator", "name"),
        Shown("phase", "phase", "text"),
    ),
    sort=("-idle_ns", "start_ns"),
    rows=5,
    key="drains",
    table="drains",
)

COMMUNICATION = Section(
    "Communication",
    show=(
        Shown("name", "kernel", "name"),
        _DEVICE,
        Shown("collective", "collective", "text"),
        Shown("message_bytes", "message"),
        Shown("group_size", "ranks", "count"),
        Shown("count", "count"),
        Shown("time_ns", "time"),
        Shown("exposed_ns", "exposed", term="exposed"),
        Shown("bus_byte_per_s", "bus bandwidth", term="bus"),
        Shown("best_bus_byte_per_s", "best", term="bus"),
        Shown("link_ratio", "best, of the link's peak"),
    ),
    sort=("-exposed_ns", "-time_ns"),
    place=Longest("collectives", ("device", "collective", "name", "message_dtype", "group_size", "message_bytes")),
    key="communication",
    table="communication",
)

COPIES = Section(
    "Copies",
    show=(
        Shown("direction", "copies", "text"),
        Shown("host_memory", "host memory", "text"),
        _DEVICE,
        Shown("operator", "operator", "name"),
        Shown("count", "count"),
        Shown("time_ns", "time"),
        Shown("exposed_ns", "exposed", term="exposed"),
        Shown("bytes", "bytes"),
        Shown("byte_per_s", "bandwidth"),
        Shown("link_ratio", "of the link's peak"),
        Shown("call_ns", "CPU time in the calls"),
        Shown("small_count", "under 64 KiB"),
    ),
    sort=("-exposed_ns", "-time_ns"),
    key="copies",
    table="copies",
)

MODULES = Section(
    "Modules",
    show=(
        Shown("module", "module", "name"),
        Shown("parent", "in", "name"),
        _DEVICE,
        Shown("call_count", "calls"),
        Shown("host_ns", "CPU time"),
        Shown("time_ns", "device time"),
        Shown("backward_ns", "backward"),
        Shown("self_ns", "own device time"),
        _KERNEL_RATE,
        Shown("lost_ns", "time over roof", term="lost"),
    ),
    sort=("-time_ns", "depth", "module"),
    place=Longest("host_events", ("module",), kind="python", prefix="nn.Module: "),
    record="Record with with_stack=True to see time by nn.Module.",
    key="modules",
    table="modules",
)

OPERATORS = Section(
    "What operators cost the CPU",
    show=(
        Shown("name", "operator", "name", terminal=0, markdown=True),
        Shown("count", "calls", terminal=40, markdown=True),
        Shown("launch_count", "launches", markdown=True, term="launch"),
        Shown("short_launch_count", "not worth it", markdown=True, term="short-launch"),
        Shown("host_ns", "CPU time", terminal=64),
        Shown("host_self_ns", "own CPU time", terminal=0, term="self"),
        Shown("python_ns", "Python", markdown=True),
        Shown("dispatch_ns", "dispatch", markdown=True),
        Shown("runtime_ns", "runtime calls", markdown=True),
        Shown("blocked_ns", "waiting", markdown=True, term="waiting"),
        Shown("device_ns", "device time", markdown=True, term="device-time"),
        Shown("host_device_ratio", "CPU per device time", "times"),
    ),
    sort=("-host_self_ns", "name"),
    rows=8,
    place=Longest("host_events", ("name",), kind="operator"),
    scope="of the whole trace",
    top=True,
    record="Record with activities=[ProfilerActivity.CPU, ...] to see operators.",
    key="operators",
    table="operators",
)
