"""Define the terms of the page for its tooltips and glossary, and shorten long symbols."""

import re
from collections.abc import Mapping

from trace_analyzer.render.cutlass_names import cutlass_label
from trace_analyzer.vocabulary import (
    ACTIVITIES,
    GROUPS,
    PARTS,
    REGIMES,
    RUN_AHEAD_STATES,
    STATUSES,
    Group,
    Term,
    by_key,
)

KINDS: Mapping[str, Group] = {**GROUPS, **ACTIVITIES}
"""Kinds of activities on the timeline: kernels by group, copies and memsets."""

TERMS: Mapping[str, Term] = by_key(
    Term("busy", "Busy", "Share of the window in which at least one activity ran on the device, over all its streams."),
    Term("window", "Window", "From the start of the device's first activity to the end of its last."),
    Term(
        "coverage",
        "Link coverage",
        "Share of activities whose launch on the CPU is known, by count and by device time.",
    ),
    Term("lead", "Launch lead", "How early work was launched: its start minus the end of its launch."),
    Term("queue", "Queue depth", "Activities launched and not yet started, weighted by time."),
    Term(
        "queued_work",
        "Queued work",
        "Device time of what is launched and not yet started: how long the device would stay busy if the CPU stopped.",
    ),
    Term("memory", "Memory in use", "Bytes that the allocator has handed out and that were not freed."),
    Term("empty-queue", "Queue empty", "Share of the window in which nothing was queued for the device."),
    Term("bound", "Bound", "What limits a kernel: arithmetic, memory bandwidth, or its own small size."),
    Term("bucket", "Bucket", "What a kernel does, by the operator that launched it, else by its name."),
    Term("saves", "Saves at most", "An upper bound on the time that the change saves in the window, not a prediction."),
    Term(
        "replay",
        "Replay",
        "The step now and with the change, as a replay of the trace estimates them; the interval is below.",
    ),
    Term("confidence", "Confidence", "How reliable the verdict is, given what this trace recorded."),
    Term("runner-up", "Runner-up", "The regime that came closest to the verdict."),
    Term("steady", "Steady steps", "Steps without the first, cut, empty and outlier ones."),
    Term("gap", "Gap", "An interval in which no stream of the device had work."),
    Term("activity", "Activity", "One piece of work on a device: a kernel, a memcpy or a memset."),
    Term("launch", "Launch", "The runtime or driver call on the CPU that enqueued one activity, or many."),
    Term("self", "Own CPU time", "CPU time of an operator without the operators and calls that it made."),
    Term(
        "device-time",
        "Device time",
        "Time on the device of what was launched while the operator was the innermost one.",
    ),
    Term(
        "known-work",
        "Known work",
        "FLOP and bytes follow from recorded shapes; rates cover kernels of known work only.",
    ),
    Term(
        "intensity",
        "Arithmetic intensity",
        "FLOP per byte that must be moved: kernels of low intensity are limited by memory bandwidth.",
    ),
    Term(
        "roof",
        "Of the roof",
        "Time at the device's peak FLOP/s or full bandwidth, whichever takes longer, over the time taken.",
    ),
    Term("lost", "Time over roof", "Time taken minus the time at the roof: the most that better kernels save."),
    Term(
        "mfu",
        "MFU",
        "Model FLOP utilization: time of matmuls, convolutions and attention at the device's peak, over the time that passed.",
    ),
    Term(
        "drain",
        "Device idle",
        "Idle time that the call caused; for a synchronization the idle time after the queue drained, not its wait.",
    ),
    Term(
        "short-launch",
        "Longer to launch",
        "Launches that took the CPU longer than the device: kernels too small for a launch each.",
    ),
    Term("waiting", "Waiting", "CPU time in calls that wait for the device."),
    Term("hidden", "Hidden host time", "Host time during which the device worked."),
    Term("exposed", "Exposed", "Time that nothing else on the device hides."),
    Term(
        "bus",
        "Bus bandwidth",
        "As nccl-tests counts it: independent of the number of ranks if the links are the limit.",
    ),
    Term(
        "article",
        "In the article",
        "BERT-large's encoder layers on a V100: Ivanov et al. 2020 (arXiv:2007.00072), table 1, as Making Deep Learning Go Brrrr shows it.",
    ),
    Term("regime", "Regime", "What limits the window: compute, memory bandwidth, communication or overhead."),
)

GLOSSARY: Mapping[str, Mapping[str, Term]] = {
    "term": TERMS,
    "regime": REGIMES,
    "status": STATUSES,
    "state": RUN_AHEAD_STATES,
    "part": PARTS,
    "kind": KINDS,
}
"""Every definition on the page by group and key, for its tooltips and its glossary."""

_PYTHON_FRAME = re.compile(r".*\.py\(\d+\): (.+)")
# In a C++ symbol, no word continues after a closing bracket, except for casts and lambdas in templates, which return
# void; annotations such as "enumerate(DataLoader)#..." do continue.
_CONTINUED = re.compile(r"\)[\w#]")
_SYMBOL = re.compile(r"void .*|\w+\(.*|.*::.*<.*", re.DOTALL)
_INNERMOST_BRACKETS = re.compile(r"<[^<>]*>|\([^()]*\)")
_WRAPPER = re.compile(r"[Kk]ernel\d?|\w*elementwise_kernel\w*|reduce_kernel")
_WRAPPED = re.compile(
    r"\b(?:cutlass_\w+|(?!(?:Binary|AUnary|BUnary)Functor\b)\w*[Ff]unctor\w*|\w+_kernel_cuda\b|\w+Ops\b|(?!gpu_)\w+_kernel\b)"
)


_LONGEST = 8_000
"""Number of characters of a name that are read: the longest symbols have fewer, and nested brackets take quadratic
time."""


def short_name(name: str) -> str:
    """Return the distinctive part of a name: the function of a Python frame, a C++ symbol without its types.

    A kernel that only applies another function to every element is also named for that function.
    """
    name = name[:_LONGEST]
    frame = _PYTHON_FRAME.fullmatch(name)
    if frame:
        return frame[1]
    if not _SYMBOL.fullmatch(name) or (not name.startswith("void ") and _CONTINUED.search(name)):
        return name
    if (label := cutlass_label(name)) is not None:
        return label
    bare = _without_brackets(name).split(" ")[-1].rsplit("::", 1)[-1]
    wrapped = _WRAPPED.search(name, name.find("<")) if _WRAPPER.fullmatch(bare) and "<" in name else None
    if wrapped is None:
        return bare or name
    return wrapped[0] if wrapped[0].startswith("cutlass_") else f"{bare} · {wrapped[0]}"


def _without_brackets(name: str) -> str:
    bare, count = _INNERMOST_BRACKETS.subn("", name)
    while count:
        bare, count = _INNERMOST_BRACKETS.subn("", bare)
    return bare
