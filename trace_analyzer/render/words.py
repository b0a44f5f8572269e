"""Words that the text renderers share: what a status asks for, how a fact, a part or a kernel is written."""

import re
from collections.abc import Mapping, Sequence

from trace_analyzer import units
from trace_analyzer.notes import Note
from trace_analyzer.report import Evidence, Report, Verdict, Window

WORK_PARTS = ("compute", "memory", "latency", "communication", "copy", "other")
"""Parts of the partition in which the device worked; every other part is a cause of idling."""

RECORD_INSTEAD: Mapping[str, Sequence[str]] = {
    "ok": (),
    "no-gpu-activity": (
        "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] (CUDA also on AMD).",
        "Check that the model and its inputs are on the device: next(model.parameters()).device",
    ),
    "gpu-timeline-missing": (
        "Record with ProfilerActivity.CUDA and without a range profiler (profiler_metrics).",
        "Close other users of CUPTI or roctracer: Nsight, DCGM profiling, a second profiler in the process.",
        "Check torch.profiler.supported_activities(): without CUDA in it, CUPTI could not be loaded.",
    ),
    "unsupported-accelerator": (
        "Record on a device with CUDA or HIP kernels, or export the accelerator's work as kernel events.",
    ),
    "insufficient": (
        "Record several whole steps: schedule(wait=1, warmup=2, active=5), and prof.step() after each step.",
        "Export the file as the profiler writes it, without removing events.",
    ),
}
"""What to record to get a verdict, per status."""

_NAMESPACES = re.compile(r"(?:\w+::|\(anonymous namespace\)::)+")
_WRAPPER = re.compile(r"Kernel\d*<(\w+)>")
"""``cutlass::Kernel2<cutlass_80_tensorop_...>``: an entry point around the kernel's own name."""

_SEVERITIES = ("error", "warning", "info")


def split_parts(parts_ns: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """The parts that took time, longest first: what the device did, and why it idled."""
    longest = sorted(((part, ns) for part, ns in parts_ns.items() if ns > 0), key=lambda item: -item[1])
    work = {part: ns for part, ns in longest if part in WORK_PARTS}
    return work, {part: ns for part, ns in longest if part not in WORK_PARTS}


def evidence_value(fact: Evidence) -> str:
    """The value of a fact as people write it."""
    value = fact.value
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    written = {"ns": units.duration, "ratio": units.percent, "count": units.count, "bytes": units.count,
               "FLOP/s": units.flops, "B/s": units.bandwidth}.get(fact.unit)  # fmt: skip
    if written is None:
        return f"{units.count(value) if isinstance(value, int) else f'{value:,.4g}'} {fact.unit}".rstrip()
    return written(value) + (" B" if fact.unit == "bytes" else "")


def headline(verdict: Verdict) -> str:
    """The headline without the regime before it, for where the regime stands right above."""
    text = verdict.headline
    prefix = f"{verdict.regime}: "
    if not text.lower().startswith(prefix):
        return text
    return text[len(prefix) : len(prefix) + 1].upper() + text[len(prefix) + 1 :]


def metric_label(metric: str) -> str:
    """The name of a metric without the unit, which its value shows."""
    return re.sub("_(ns|bytes)$", "", metric).replace("_", " ")


def reasons(texts: Sequence[str]) -> str:
    """Several reasons as one sentence."""
    return "; ".join(text.rstrip(".") for text in texts)


def window_phrase(report: Report) -> str:
    """Which interval the verdict is about: ``1.08 s, 3 steady steps``; the device where there are several."""
    verdict = report.verdict
    if verdict.window is None:
        return ""
    length = sum(end - start for start, end in verdict.window.intervals)
    device = f", device {verdict.device}" if len(report.devices) > 1 else ""
    return f"{units.duration(length)}, {_window_kind(verdict.window)}{device}"


def _window_kind(window: Window) -> str:
    if window.kind == "step":
        return f"step {', '.join(map(str, window.steps))}"
    if window.kind == "steady":
        return f"{len(window.steps)} steady steps"
    return "the whole trace"


def kernel_label(name: str, cells: int) -> str:
    """A kernel's name in at most ``cells`` cells: what tells it apart is kept longest.

    A C++ name loses its return type, its arguments and its namespaces, then its end: the functor that tells
    it apart comes first. Any other name loses its middle, because libraries put the tile at the end.
    """
    text = units.visible(name)
    if units.cell_width(text) <= cells:
        return text
    short = _NAMESPACES.sub("", _without_arguments(text.removeprefix("void ")))
    wrapper = _WRAPPER.fullmatch(short)
    if wrapper or "<" not in short:
        return middle_cut(wrapper[1] if wrapper else short, cells)
    return units.shorten(short, cells)


def _without_arguments(name: str) -> str:
    """The name without the parenthesised list that ends it, if one does."""
    if not name.endswith(")"):
        return name
    depth = 0
    for position in range(len(name) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(name[position], 0)
        if depth == 0:
            return name[:position]
    return name


def middle_cut(text: str, cells: int) -> str:
    """The text cut in its middle to at most ``cells`` cells, the cut marked by an ellipsis."""
    if units.cell_width(text) <= cells:
        return text
    head = units.shorten(text, max(1, cells * 3 // 5))
    tail = units.shorten(text[::-1], max(0, cells - units.cell_width(head)) + 1)[-2::-1]
    return head + tail


def sorted_notes(notes: Sequence[Note]) -> list[Note]:
    """The notes, the gravest first."""
    return sorted(notes, key=lambda note: _SEVERITIES.index(note.severity))
