"""Declare the sections of the package's own tables: title, columns, order, rows and where a row leads, for all outputs."""

from trace_analyzer.render.phrasing import blamed_place, drained_by, fusion_passes
from trace_analyzer.report import Fusion, HostCost
from trace_analyzer.sections import Longest, Section, Shown

_DEVICE = Shown("device_label", "device")

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
)

FUSIONS = Section(
    "Fusion opportunities",
    show=(
        Shown("what", "what", "word", markdown=True),
        Shown("in", "in", "text", markdown=True, page=False, text=lambda row: row["module"] or row["function"]),
        _DEVICE,
        Shown("count", "count", markdown=True),
        Shown("kernel_count", "kernels"),
        Shown("time_ns", "time", markdown=True),
        Shown("saves_ns", "saves at most", markdown=True, term="saves"),
        Shown("passes", "memory", "word", markdown=True, page=False, text=lambda row: fusion_passes(Fusion(**row))),
        Shown("saved_bytes", "bytes saved"),
        Shown("code", "instead", "code", markdown=True),
        Shown("tensors", "in between", "text"),
        Shown("module", "module", "name"),
        Shown("function", "in function", "frame"),
        Shown("operators", "operators", "text"),
    ),
    rows=5,
    top=True,
)
