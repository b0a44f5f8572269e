"""Write the phrases shared by text renderers: what a status requires, and how facts, parts and windows are written."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from trace_analyzer import analysis, errors, thresholds, units, vocabulary
from trace_analyzer.catalog.kernels import line_phrase
from trace_analyzer.report import (
    Advice,
    Attained,
    Check,
    DeviceReport,
    Evidence,
    MeasuredRoof,
    Report,
    RunAhead,
    Verdict,
    summaries,
)

_MORE_STEPS = "Record several whole steps: schedule(wait=1, warmup=2, active=5, repeat=1), and prof.step() after each."
_RECORD_INSTEAD: Mapping[str, Sequence[str]] = {
    "no-gpu-activity": (
        "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] (CUDA also on AMD).",
        "Check that the model and its inputs are on the device: next(model.parameters()).device",
    ),
    "gpu-timeline-missing": (
        "Record with ProfilerActivity.{activity} and without a range profiler (profiler_metrics).",
        "Close other users of {profiler}: {users}, a second profiler in the process.",
        "Check torch.profiler.supported_activities(): without {activity} in it, {profiler} could not be loaded.",
    ),
    "unsupported-accelerator": (
        "This is the host alone: look at the device's work with its own tools, or at its events in Perfetto (ui.perfetto.dev).",
    ),
    "insufficient": (_MORE_STEPS, "Export the file as the profiler writes it, without removing events."),
}
_OWN_KERNELS = "Profile kernels that no operator launches (Triton, {language}) with {tool}."
# By status, and accelerator or largest unknown part (shapes: other kernels, although those were recorded).
_RECORD_ELSEWHERE: Mapping[tuple[str, str | None], Sequence[str]] = {
    ("no-gpu-activity", "mps"): (
        "Record the GPU's work with torch.mps.profiler.profile() and Instruments: PyTorch Profiler has no activity of MPS.",
    ),
    ("insufficient", "other"): (
        "Record operators with their shapes: activities=[..., ProfilerActivity.CPU], record_shapes=True.",
        _OWN_KERNELS,
    ),
    ("insufficient", "shapes"): (_OWN_KERNELS,),
    ("insufficient", vocabulary.UNRECORDED): (
        "Record fewer steps at once, with no other profiler attached: records were lost.",
    ),
    ("unsupported-accelerator", "npu"): (
        "Read the folder of this trace with Ascend's tools (MindStudio Insight, msprof-analyze), which know its work.",
    ),
}
_PROFILERS: Mapping[str | None, Mapping[str, str]] = {
    "hip": {
        "activity": "CUDA",
        "profiler": "roctracer",
        "users": "rocprof",
        "tool": "rocprof-compute",
        "language": "HIP",
    },
    "xpu": {"activity": "XPU", "profiler": "PTI", "users": "unitrace, VTune", "tool": "unitrace", "language": "SYCL"},
}
_CUPTI = {"activity": "CUDA", "profiler": "CUPTI", "users": "Nsight, DCGM profiling", "tool": "ncu", "language": "CUDA"}
_INSTEAD_OF_CHECK: Mapping[str, str] = {
    **dict.fromkeys(
        ("skewed_idle", "late_starts"),
        "Export one file per process on the machine that recorded it, and do not merge or shift files: the clocks disagree.",
    ),
    **dict.fromkeys(
        ("impossible_durations", "short_durations"),
        "Record again, with no other profiler attached: durations of this file cannot be right.",
    ),
    "missing_activities": "Record the GPU's work from before the first launch to a torch.cuda.synchronize() after the last.",
    "lost_events": "Export the file again as the profiler writes it: events of this one cannot be read.",
}
_GPU_WORK = "Record the GPU's work: nsys profile --trace=cuda,nvtx,osrt, or rocprofv3 --runtime-trace."
_WITH_RANGES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("no-gpu-activity", "gpu-timeline-missing"), (_GPU_WORK,)),
    "insufficient": ('Record whole steps after a warm-up, each in a range: with torch.cuda.nvtx.range("step").',),
}
"""What to do where another profiler recorded, whose ranges are NVTX or roctx (both by ``torch.cuda.nvtx``)."""
_EXPORT_AGAIN = (
    "Copy the file again from where it was recorded, and compare the sizes: it is truncated.",
    "If it is truncated there too, export it again, and let the program live until export_chrome_trace() has returned.",
)

_REASONS = {
    "fp32": "{matmuls} in fp32, {time}",
    "vector-units": "{matmuls} on vector units, {time}",
    "unaligned": "{matmuls} with unaligned rows, {time}",
}
_ONE = {"calls": "call", "events": "event", "launches": "launch"}

_SEVERITIES = ("error", "warning", "info")


def evidence_label(fact: Evidence) -> str:
    """Return the label of a fact without the unit, which its value shows."""
    end = next((end for end in ("_ns", "_bytes", "_ratio") if fact.metric.endswith(end)), "")
    return fact.metric.removesuffix(end).replace("_", " ").replace("-", " ").replace("flop", "FLOP")


def evidence_value(fact: Evidence) -> str:
    """Write the value of a fact."""
    value = fact.value
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return vocabulary.phrase(value) if value in vocabulary.CAUSES or value in vocabulary.RUN_AHEAD_STATES else value
    if fact.unit == "count" and isinstance(value, float):
        return units.number(value)
    written = {"ns": units.duration, "ratio": units.percent, "count": units.count, "bytes": units.count,
               "FLOP": units.flop, "FLOP/s": units.flops, "B/s": units.bandwidth}.get(fact.unit)  # fmt: skip
    if written is None:
        number = units.count(value) if isinstance(value, int) or value >= 1000 else f"{value:,.3g}"
        return f"{number} {_ONE.get(fact.unit, fact.unit) if number == '1' else fact.unit}".rstrip()
    return written(value) + (" B" if fact.unit == "bytes" else "")


def judged_device(report: Report) -> DeviceReport | None:
    """Return the verdict's device, else the first one; None where no device worked."""
    judged = [device for device in report.devices if device.index == report.verdict.device]
    return next(iter([*judged, *report.devices]), None)


def judged_work(report: Report) -> tuple[DeviceReport, list[str]] | None:
    """Return the judged device with what is said of its groups of kernels; None where nothing of their work is known."""
    device = judged_device(report)
    measured = measured_roofs(device) if device else ""
    if device is None or not device.groups or not (device.flop_time_ratio or device.recomputed_ns or measured):
        return None
    return device, [text for text in (measured, recomputation(device), *tensor_cores(device)) if text]


def known_work(device: DeviceReport) -> str:
    """Write the share of kernel time with known FLOP, their sum, and the recomputed part."""
    known = f"FLOP known for {units.percent(device.flop_time_ratio)} of kernel time"
    if device.mfu is None:
        return known
    if _is_too_wide(device.mfu, device.mfu_at_most):
        return f"{known}; MFU not known: {_why_unknown(device)}"
    return f"{known}; MFU {mfu(device.mfu, device.mfu_at_most)}"


def _why_unknown(device: DeviceReport) -> str:
    """Write why the MFU is uncertain: matmuls with unknown work, else work that was launched before the recording."""
    products = next((group for group in device.groups if group.group == "matmul"), None)
    if products is not None and products.known_ratio < _MOSTLY_KNOWN:
        return f"only {units.percent(products.known_ratio)} of the time of matmuls and convolutions has known FLOP"
    return "the device may have multiplied in time of which nothing was recorded"


def mfu(least: float, most: float | None) -> str:
    """Write an MFU: one figure, or the interval if matmuls and convolutions with unknown work could change it.

    Of an interval that is too wide, only the upper end is written if it is low, else ``not known``.
    """
    low, high = units.percent(least), units.percent(least if most is None else most)
    if low == high or (most is not None and most - least <= _MFU_CLOSE * least):
        return low
    if _is_too_wide(least, most):
        return "not known"
    if most is not None and most > _MFU_OPEN_FACTOR * least:
        return f"at most {high}"
    # "less than" cannot be the end of an interval.
    return f"{f'{100 * least:.1g} %' if 0 < least < 0.001 else low} to {high}"


def _is_too_wide(least: float, most: float | None) -> bool:
    return most is not None and most - least > _MFU_OPEN and most > _MFU_OPEN_FACTOR * least


_MFU_CLOSE = 0.05
"""Ends of an interval with a smaller relative difference are written as one figure."""
_MFU_OPEN, _MFU_OPEN_FACTOR = 0.10, 3.0
"""Ends with a larger ratio do not determine the MFU; the upper end is still written if they differ by at most so
many points."""
_MOSTLY_KNOWN = 0.9
"""Known share of matmul and convolution time above which the unknown rest is not the reason for a wide interval."""


def measured_roofs(device: DeviceReport) -> str:
    """Write the measured roofs next to the datasheet's, and how close the largest buckets come to them.

    It is "" without a calibration.
    """
    attained = device.attained
    if attained is None or not attained.roofs:
        return ""
    roofs = ", ".join(map(_roof_phrase, attained.roofs))
    nearest = [
        f"{line_phrase(bucket.bucket)} {units.percent(attained.roof_ratio[bucket.bucket])}"
        + ("" if bucket.roof_ratio is None or alone(attained) else f" (datasheet: {units.percent(bucket.roof_ratio)})")
        for bucket in device.buckets
        if bucket.bucket in attained.roof_ratio
    ][:3]
    known = "; not in the catalogue, so all roofs are these" if alone(attained) else ""
    near = f"; of these roofs, {', '.join(nearest)}" if nearest else ""
    return f"Measured by analyze calibrate: {roofs}{known}{near}"


def alone(attained: Attained) -> bool:
    """Return whether the measured roofs have no datasheet to compare with."""
    return all(roof.datasheet_per_s is None for roof in attained.roofs)


def _roof_phrase(roof: MeasuredRoof) -> str:
    of_memory = roof.dtype is None
    form = units.bandwidth if of_memory else units.flops
    name = "memory" if of_memory else f"{roof.dtype} on {'tensor cores' if roof.matrix_units else 'vector units'}"
    beside, ratio = roof.datasheet_per_s, roof.datasheet_ratio
    share = "" if beside is None else f" ({units.percent(ratio)} of the datasheet's {form(beside)})"
    return f"{name} {form(roof.measured_per_s)}{share}"


def recomputation(device: DeviceReport) -> str:
    """Write the cost of checkpointing; "" without any."""
    if not device.recomputed_ns:
        return ""
    ratio = summaries.recomputed_ratio(device)
    flop = "" if device.recomputed_flop is None else f", {units.flop(device.recomputed_flop)}"
    share = "" if ratio is None else f" ({units.percent(ratio)} of kernel time)"
    cost = f"{units.duration(device.recomputed_ns)}{share}{flop}"
    return f"Activation checkpointing recomputes forward work in the backward pass: {cost}"


LINKS = {"pcie": "PCIe", "c2c": "NVLink-C2C", "nvlink": "NVLink", "xgmi": "xGMI", "xelink": "Xe Link"}
"""Labels of interconnects in reports."""


def record_instead(report: Report) -> Sequence[str]:
    """Write what to do for a verdict, where there is none.

    A truncated file does not show how it was recorded.
    """
    if report.verdict.status != "ok" and errors.breaks_off(report.notes):
        return _EXPORT_AGAIN
    failed = [check for check in report.trust if {analysis.PARTITION, analysis.CAUSES_OF_IDLE} & {*check.withholds}]
    judged = [check.name for check in failed if check.device in (None, report.verdict.device)]
    instructions = tuple(dict.fromkeys(_INSTEAD_OF_CHECK[name] for name in judged))
    status, accelerator = report.verdict.status, report.trace.accelerator
    ways = _RECORD_INSTEAD if report.trace.profiler is None else _WITH_RANGES
    window, known = report.verdict.window, _PROFILERS.get(accelerator, _CUPTI)
    needs_steps = window is None or len(window.steps) < thresholds.MIN_STEADY_STEPS
    is_unknown = status == "insufficient" and report.trace.profiler is None
    why = summaries.largest_unknown(report.verdict) if is_unknown else accelerator
    why = "shapes" if why == "other" and report.trace.recorded.shapes else why
    general = _RECORD_ELSEWHERE.get((status, why)) or ways.get(status, ())
    if status == "gpu-timeline-missing" and any(check.name == "lost_events" and check.value for check in report.trust):
        general = (_INSTEAD_OF_CHECK["lost_events"], *general)
    tips = instructions if status == "insufficient" and instructions else general
    tips = [tip.format_map(known) for tip in tips if needs_steps or tip != _MORE_STEPS]
    if accelerator != "xpu":
        return tips
    return [tip.replace("Activity.CUDA", "Activity.XPU").replace("torch.cuda", "torch.xpu") for tip in tips]


def check_phrase(check: Check) -> str:
    """Write a check in a few words: ``device 0: link coverage 69 %``."""
    where = "" if check.device is None else f"device {check.device}: "
    withheld = f"({withheld_metrics(check)} withheld)" if check.withholds else ""
    return where + " ".join(filter(None, (vocabulary.check_label(check.name), check_value(check), withheld)))


def check_phrases(report: Report, checks: Iterable[Check]) -> list[str]:
    """Write each check in a few words, without the device if there is only one."""
    is_one = len(report.devices) <= 1
    return [check_phrase(replace(check, device=None) if is_one else check) for check in checks]


def withheld_metrics(check: Check) -> str:
    """Name the metrics that a check suppresses."""
    is_all = set(check.withholds) == set(analysis.ALL_METRICS)
    return "all figures of devices" if is_all else ", ".join(check.withholds).replace("_", " ")


def check_value(check: Check) -> str:
    """Write the value of a check; "" where it is unknown."""
    if check.value is None:
        return ""
    return units.percent(check.value) if check.unit == "ratio" else units.count(check.value)


def trust_phrase(report: Report) -> str:
    """Write the number of passed checks."""
    passed, count = [check.status for check in report.trust].count("ok"), len(report.trust)
    return f"{f'all {count}' if passed == count else f'{passed} of {count}'} checks of the trace hold"


def step_limit(step: Mapping[str, Any]) -> str:
    """Write the limit of a step, from the fields of its report: ``Overhead-bound: launch``; "" where it is unknown.

    Where the limit differs without profiler overhead, that limit is added.
    """
    regime, unrecorded = step["regime"], step["unrecorded_regime"]
    if regime is None:
        return ""
    limit = regime_label(regime, step["cause"])
    second = f", runner-up {vocabulary.phrase(step['runner_up'])}" if step["runner_up"] else ""
    return (
        limit + second
        if unrecorded in (None, regime)
        else f"{limit}, without recording perhaps {vocabulary.phrase(unrecorded)}"
    )


def regime_label(regime: str, cause: str | None) -> str:
    """Write the limit of a window and its cause: ``Overhead-bound: data loading``, ``Copy-bound``."""
    limit = vocabulary.limit_label(regime, cause)
    return limit + (f": {vocabulary.phrase(cause)}" if cause and limit == vocabulary.label(regime) else "")


def verdict_label(verdict: Verdict) -> str:
    """Write regime and cause, or the status without a verdict: ``No verdict: not enough to judge``."""
    if verdict.status == "cpu-run":
        return vocabulary.STATUSES[verdict.status].label
    if verdict.regime is None:
        return f"No verdict: {vocabulary.STATUSES[verdict.status].phrase}"
    return regime_label(verdict.regime, verdict.cause)


def advised_place(item: Advice) -> str:
    """Write where to make the change: ``at aten::mm (8.66 ms)``; "" if unknown."""
    return item.where if not item.where or item.where.startswith("before ") else f"at {item.where}"


def predicted_step(item: Advice) -> str:
    """Write the prediction for a change: ``estimate: 152 ms a step (148 ms to 156 ms), now 176 ms``; "" without one."""
    then = item.predicted
    if then is None:
        return ""
    low, high, now = map(units.duration, (then.low_ns, then.high_ns, then.now_ns))
    unit = "a step" if then.has_steps else "for the window"
    if then.batch > 1:
        unit = f"for as many samples, at {then.batch:g} times the batch"
    if not then.is_known:
        return f"estimate: {low} to {high} {unit}, now {now}: {units.saved_between(then.now_ns, then.low_ns, then.high_ns)}, too wide for one figure"
    gain = f"{_NO_GAIN}, " if summaries.saves_nothing(then) else ""
    saves = "" if gain else f": saves {units.duration(item.saving.ns)}, {units.percent(item.saving.ratio)}"
    return f"estimate: {gain}{units.duration(then.step_ns)} {unit} ({low} to {high}), now {now}{saves}"


def predicted_briefly(item: Advice) -> str:
    """Write the same in a few words: ``estimate: 176 → 119 ms a step (113 to 138)``; "" without a prediction."""
    then = item.predicted
    if then is None:
        return ""
    if summaries.saves_nothing(then):
        return f"estimate: {_NO_GAIN}"
    texts = [units.duration(ns) for ns in (then.now_ns, then.step_ns, then.low_ns, then.high_ns)]
    one_unit = len({text.split()[-1] for text in texts}) == 1
    now, step, low, high = (text.split()[0] if one_unit and place != 1 else text for place, text in enumerate(texts))
    unit = " for as many samples" if then.batch > 1 else " a step" if then.has_steps else ""
    if not then.is_known:
        return f"estimate: {texts[2]} to {texts[3]}{unit}, now {texts[0]}: {units.saved_between(then.now_ns, then.low_ns, then.high_ns)}, too wide for one figure"
    return f"estimate: {now} → {step}{unit}, {units.percent(item.saving.ratio)} less ({low} to {high})"


_NO_GAIN = f"no measurable gain (under {100 * thresholds.WORTH_RATIO:g} %)"
"""Text for an estimate that saves less than advice is worth."""


def tensor_cores(device: DeviceReport) -> list[str]:
    """Write the cost of poor use of tensor cores in matmuls and convolutions, where it deserves a line."""
    return [
        f"{_REASONS[item.reason].format(matmuls=units.counted(item.kernel_count, 'matmul or convolution', 'matmuls and convolutions'), time=units.duration(item.time_ns))}:"
        f" {item.target_dtype} on tensor cores saves at most {units.duration(item.saves_ns)}; {item.code}"
        for item in summaries.tensor_cores(device)
    ]


def headline(verdict: Verdict) -> str:
    """Return the headline without the leading regime, for places where the regime is shown directly above."""
    text = verdict.headline
    prefix = f"{vocabulary.limit_label(str(verdict.regime), verdict.cause).lower()}: "
    if not text.lower().startswith(prefix):
        return text
    return text[len(prefix) : len(prefix) + 1].upper() + text[len(prefix) + 1 :]


def sentences(headline: str) -> tuple[str, str]:
    """Return the first sentence of a headline, and the others; "" for none."""
    first, end, rest = headline.partition(". ")
    return first + end.rstrip(), rest


def debiased_phrase(verdict: Verdict) -> str:
    """Write the profiler overhead, the idle share with and without it, and whether the regime stays; "" without a line."""
    unbiased, raw = summaries.debiased_worth_a_line(verdict), verdict.shares
    if unbiased is None or unbiased.shares is None or raw is None:
        return ""
    least, took, most = map(units.duration, (unbiased.least_removed_ns, unbiased.removed_ns, unbiased.most_removed_ns))
    took += f" ({least} to {most})" if least != most else ""
    regime = vocabulary.phrase(unbiased.regime) if unbiased.regime else "of no regime"
    survives = {True: f"still {regime}", False: f"then {regime}", None: f"then perhaps {regime}"}[unbiased.survives]
    if unbiased.is_measured:  # its levers are those without the profiler: nothing says what they were with it
        survives = regime
    cause = f" ({vocabulary.phrase(unbiased.cause)})" if unbiased.cause else ""
    return (
        f"idle {units.percent(raw.idle)} → {units.percent(unbiased.shares.idle)}, {survives}{cause};"
        f" {unbiased.method} at {took}: {unbiased.why}"
    )


def reasons(texts: Sequence[str]) -> str:
    """Join several reasons to one sentence."""
    return "; ".join(text.rstrip(".") for text in texts)


def confidence(verdict: Verdict) -> tuple[str, str]:
    """Return the confidence and its reasons, which together read as one text; "" without reasons.

    Remarks on a high confidence do not lower it: they are a sentence of their own.
    """
    why, sure = reasons(verdict.confidence_why), f"{verdict.confidence.capitalize()} confidence"
    if verdict.confidence == "high" and why:
        return f"{sure}.", why[0].upper() + why[1:]
    return sure + (":" if why else ""), why


def sorted_notes(notes: Sequence[errors.Note]) -> list[errors.Note]:
    """Sort the notes, the most serious first."""
    return sorted(notes, key=lambda note: _SEVERITIES.index(note.severity))


def run_ahead_phrase(ahead: RunAhead) -> str:
    """Write whether the CPU runs ahead of the device; "" where it is unknown."""
    if ahead.state is None:
        return ""
    lead, empty = units.duration(ahead.launch_lead_ns.p50), units.percent(ahead.empty_queue_ratio)
    return f"CPU {ahead.state.replace('-', ' ')} (median lead {lead}, queue empty {empty})"


def window_phrase(report: Report) -> str:
    """Write the verdict's window, ``1.08 s, 3 steady steps``, and the device where there are several."""
    verdict = report.verdict
    if verdict.window is None:
        return ""
    return ", ".join(filter(None, [window_length(report), window_kind(report), _device_named(report)]))


def window_length(report: Report) -> str:
    """Write the length of the verdict's window; for a window of activities with the trace's.

    For example ``12.9 of 43.5 s traced``.
    """
    window, trace_ns = report.verdict.window, report.trace.duration_ns
    if window is None:
        return ""
    return units.duration(window.length_ns) if window.steps else length_of_trace(window.length_ns, trace_ns)


def window_kind(report: Report) -> str:
    """Write the kind of the verdict's window: ``3 steady steps``; "" for the whole trace."""
    window = report.verdict.window
    if window is None or (
        window.kind == "whole" and units.duration(window.length_ns) == units.duration(report.trace.duration_ns)
    ):
        return ""
    if window.kind == "step":
        return f"step {', '.join(map(str, window.steps))}"
    return f"{len(window.steps)} {window.steps_noun}" if window.kind == "steady" else _WINDOWS[window.kind]


def short_window_phrase(report: Report) -> str:
    """Write the verdict's window in few words: like `window_phrase`, but only lengths for a window of activities."""
    window = report.verdict.window
    if window is None or window.steps:
        return window_phrase(report)
    return ", ".join(filter(None, [window_length(report), _device_named(report)]))


def length_of_trace(length_ns: int, trace_ns: int) -> str:
    """Write the lengths of a window and its trace: ``12.9 of 43.5 s traced``, with a shared unit written once."""
    length, whole = units.duration(length_ns), units.duration(trace_ns)
    if length == whole:
        return f"{length}, the whole trace"
    share_unit = length.split()[1:] == whole.split()[1:]
    return f"{length.split()[0] if share_unit else length} of {whole} traced"


def _device_named(report: Report) -> str:
    return f"device {report.verdict.device}" if len(report.devices) > 1 else ""


_WINDOWS = {
    "whole": "from the first device work to the last",
    "trimmed": "from the first device work to the last, without idle edges",
}
