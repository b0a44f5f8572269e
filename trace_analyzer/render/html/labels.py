"""What things are called on the page: labels, definitions for tooltips, short names for long symbols."""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    """A label for people and what it means, in one sentence."""

    label: str
    definition: str


PARTS: Mapping[str, Word] = {
    "compute": Word("Compute", "Kernels limited by the device's arithmetic."),
    "memory": Word("Memory", "Kernels limited by memory bandwidth; device-to-device copies and memsets too."),
    "latency": Word("Small kernels", "Kernels too short or too small to fill the device."),
    "other": Word("Other kernels", "Kernels whose limit could not be told."),
    "communication": Word("Communication", "Collectives and other traffic between devices that nothing else hides."),
    "copy": Word("Copies", "Copies between host and device, or between devices, that nothing else hides."),
    "synchronization": Word("Synchronization", "The CPU waited for the device before it launched more work."),
    "data-loading": Word("Data loading", "The launching thread waited for input data."),
    "allocation": Word("Allocation", "Device memory was being allocated or freed."),
    "compilation": Word("Compilation", "Code was being compiled or loaded: Dynamo, Inductor, Triton, lazy loading."),
    "blocking-copy": Word("Blocking copy", "A copy call held the CPU until it was done."),
    "cpu-operator": Word(
        "Work on the CPU",
        "An operator held the CPU for over 1 ms without a runtime call: it computed there, or prepared its launch for long.",
    ),
    "python": Word("Python", "The launching thread was in Python code."),
    "dispatch": Word("Dispatch", "The launching thread was inside PyTorch's operators, on the way to a launch."),
    "runtime-call": Word("Runtime calls", "The launching thread was in a driver or runtime call."),
    "garbage-collection": Word("Garbage collection", "Python collected garbage."),
    "launch-latency": Word(
        "Launch latency", "A launch was under way: the call itself, and the time until its kernel starts."
    ),
    "host-unknown": Word("Host, unrecorded", "The host recorded nothing: often plain Python without stacks."),
    "profiler": Word("Profiler", "The profiler itself was working; without it this time is gone."),
    "device-gap": Word("Between kernels", "The next kernel was queued already: the device's own gap between kernels."),
    "device-wait": Word("Device waits", "Queued work waited for communication or for an event of another stream."),
    "unexplained": Word("Unexplained", "Work was queued, yet nothing recorded says why it did not start."),
    "unlinked": Word("No launch known", "The next activity has no known launch, so its delay has no known cause."),
    "untraced": Word("Not recorded", "The recording was paused."),
    "withheld": Word("Withheld", "A check of the trace fails that causes of idle time rest on."),
}

WORK_PARTS = ("compute", "memory", "latency", "other", "communication", "copy")
"""The parts in which the device works; all others are causes of its idling."""

UNKNOWN_PARTS = ("unexplained", "unlinked", "untraced", "withheld")
"""The parts that say that something is not known; they are drawn hatched."""

KINDS: Mapping[str, Word] = {
    "matmul": Word("Matmul, convolution, attention", "Kernels that contract: the ones matrix units are made for."),
    "normalization": Word("Normalization, reduction", "Normalization, softmax and reduction kernels."),
    "pointwise": Word("Pointwise", "Elementwise kernels, casts, fills, dropout, optimizer updates."),
    "communication": Word("Communication", "Collectives and point-to-point transfers."),
    "other": Word("Other kernels", "Embedding, gather, sort, cache and unrecognised kernels."),
    "memcpy": Word("Copy", "Memory copies."),
    "memset": Word("Memset", "Memory fills."),
}

REGIMES: Mapping[str, Word] = {
    "overhead-bound": Word("Overhead-bound", "The device waits for the CPU, or for work too small to fill it."),
    "memory-bandwidth-bound": Word(
        "Memory-bandwidth-bound", "Most time goes to moving data to and from device memory."
    ),
    "compute-bound": Word("Compute-bound", "Most time goes to arithmetic: the device does what it was bought for."),
    "communication-bound": Word("Communication-bound", "The device waits for other devices, or for copies."),
}

STATUSES: Mapping[str, Word] = {
    "ok": Word("Judged", "The trace holds what a verdict needs."),
    "no-gpu-activity": Word("No GPU work", "Nothing ran on a GPU while this trace was recorded."),
    "gpu-timeline-missing": Word("GPU timeline missing", "Work was launched, but the trace holds no GPU activity."),
    "unsupported-accelerator": Word(
        "Unsupported accelerator", "The accelerator's events are of a kind this program cannot read."
    ),
    "insufficient": Word("Not enough to judge", "Too little of the trace can be judged for a verdict."),
}

STATES: Mapping[str, Word] = {
    "ahead": Word("Ahead", "The CPU launches well before the device gets there: its overhead is hidden."),
    "keeping-up": Word("Keeping up", "The CPU launches in time, with little to spare."),
    "behind": Word("Behind", "The queue is empty most of the time: the device waits for launches."),
}

TERMS: Mapping[str, Word] = {
    "busy": Word("Busy", "Share of the window in which at least one activity ran on the device, over all its streams."),
    "window": Word("Window", "From the start of the device's first activity to the end of its last."),
    "coverage": Word(
        "Link coverage", "Share of activities whose launch on the CPU is known, by count and by device time."
    ),
    "lead": Word("Launch lead", "How long before its start work was launched: its start minus the end of its launch."),
    "queue": Word("Queue depth", "Activities launched and not yet started, weighted by time."),
    "runway": Word("Runway", "Device time of the queued work: how long the device would stay busy if the CPU stopped."),
    "memory": Word("Memory in use", "Bytes that the allocator has given out and not got back."),
    "empty-queue": Word("Queue empty", "Share of the window in which nothing was queued for the device."),
    "bound": Word("Bound", "What limits a kernel: arithmetic, memory bandwidth, or its own small size."),
    "bucket": Word("Bucket", "What a kernel does, told by the operator that launched it, else by its name."),
    "saves": Word("Saves at most", "An upper bound: what is left cannot be less than nothing."),
    "confidence": Word("Confidence", "How far the verdict can be trusted with what this trace recorded."),
    "runner-up": Word("Runner-up", "The regime that came closest to the verdict."),
    "steady": Word("Steady steps", "Steps without the first, cut, empty and outlier ones."),
    "gap": Word("Gap", "An interval in which no stream of the device had work."),
    "activity": Word("Activity", "One piece of work on a device: a kernel, a memcpy or a memset."),
    "launch": Word("Launch", "The runtime or driver call on the CPU that enqueued one activity, or many."),
    "self": Word("Own CPU time", "CPU time of an operator without the operators and calls that it made."),
    "device-time": Word(
        "Device time", "Time on the device of what was launched while the operator was the innermost one."
    ),
    "known-work": Word(
        "Known work", "FLOP and bytes follow from recorded shapes; rates speak for the kernels of known work only."
    ),
    "intensity": Word(
        "Arithmetic intensity", "FLOP per byte that must be moved: low ones are limited by memory bandwidth."
    ),
    "roof": Word(
        "Of the roof",
        "Time at the device's peak FLOP/s or full bandwidth, whichever takes longer, over the time taken.",
    ),
    "lost": Word("Lost to the roof", "Time taken minus the time at the roof: what perfect kernels would save."),
    "mfu": Word(
        "MFU", "Model FLOP utilization: time of all contractions at the device's peak, over the time that passed."
    ),
    "drain": Word(
        "Device idle", "Idle time that it caused: for a synchronization the drain that it left behind, not its waiting."
    ),
    "short-launch": Word(
        "Not worth it", "Launches that took the CPU longer than the device: kernels too small for a launch each."
    ),
    "waiting": Word("Waiting", "CPU time in calls that wait for the device: more launches would not have fitted in."),
    "exposed": Word("Exposed", "Time in which nothing else on the device hid it."),
    "bus": Word(
        "Bus bandwidth", "As nccl-tests counts it: the same for all numbers of ranks if the links are the limit."
    ),
    "article": Word(
        "In the article",
        "BERT-large's encoder layers on a V100: Ivanov et al. 2020 (arXiv:2007.00072), table 1, as Making Deep Learning Go Brrrr shows it.",
    ),
    "regime": Word("Regime", "What limits the window: compute, memory bandwidth, communication or overhead."),
}

GLOSSARY: Mapping[str, Mapping[str, Word]] = {
    "term": TERMS,
    "regime": REGIMES,
    "status": STATUSES,
    "state": STATES,
    "part": PARTS,
    "kind": KINDS,
}
"""Every definition of the page by group and key: the one source of its tooltips and its glossary."""

_PYTHON_FRAME = re.compile(r".*\.py\(\d+\): (.+)")
# In a C++ symbol no word goes on behind a closing bracket; annotations such as "enumerate(DataLoader)#..." do.
_CONTINUED = re.compile(r"\)[\w#]")
_SYMBOL = re.compile(r"void .*|\w+\(.*|.*::.*<.*", re.DOTALL)
_INNERMOST_BRACKETS = re.compile(r"<[^<>]*>|\([^()]*\)")
_WRAPPER = re.compile(r"[Kk]ernel\d?|\w*elementwise_kernel\w*|reduce_kernel")
_WRAPPED = re.compile(
    r"\b(?:cutlass_\w+|(?!(?:Binary|AUnary|BUnary)Functor\b)\w*[Ff]unctor\w*|\w+_kernel_cuda\b|(?!gpu_)\w+_kernel\b)"
)


_LONGEST = 8_000
"""Characters of a name that are read: the longest symbols have fewer, and nested brackets take quadratic time."""


def short_name(name: str) -> str:
    """The telling part of a name: the function of a Python frame, a C++ symbol without its types.

    A kernel that only applies another function to every element is named for that function too.
    """
    name = name[:_LONGEST]
    frame = _PYTHON_FRAME.fullmatch(name)
    if frame:
        return frame[1]
    if not _SYMBOL.fullmatch(name) or _CONTINUED.search(name):
        return name
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
