"""Describe estimates of changes and calibrations of devices as documents."""

from functools import partial
from itertools import cycle
from typing import Any

from trace_analyzer import thresholds, units
from trace_analyzer.allocator.savings import OUTSIDE_BYTES, BatchMemory
from trace_analyzer.catalog.calibration import Calibration
from trace_analyzer.catalog.kernels import line_label
from trace_analyzer.documents import Chapter, Document, Figure, Notes, PlainTable
from trace_analyzer.replay.outcomes import only_removes, unless_below
from trace_analyzer.replay.whatif import Scenario, WhatIf
from trace_analyzer.report.verdicts import is_saving_known
from trace_analyzer.sections import Axis, Boxes, Chart, LineMark, Strokes
from trace_analyzer.units import counted, duration, memory_size, number, percent, saved_between

PATH_ROWS = 5
PATH_SPEEDUPS = {"1.11": "10 % less", "1.33": "25 % less", "2": "50 % less", "4": "75 % less", "inf": "without it"}
"""Labels of the speed-ups of a part of the critical path: the reduction of its time."""
_NS_PER_MS = 1e6
_ORDER = "The order is that of the middle of the intervals: a saving that is sure comes before one that may be larger."
_SENSITIVITY = "How much a part matters: the time if it were faster"


def document(result: WhatIf) -> Document:
    """Return the document: the answer, the replay, the critical path, each change, and the lower bounds."""
    memory = Chapter("memory", "Memory", [Notes([memory_sentence(result.memory)])] if result.memory else [])
    if result.status == "refused":
        replayed = Chapter("replay", "The replay", [Notes([_heading(result)])])
        return Document("what if", f"No estimate: {result.reason or ''}.", [replayed, memory])
    title = "Each change alone" if result.changes else "What would help most"
    others = () if result.changes else tuple(s for s in result.scenarios if s.what == "sensitivity")
    shown = result.scenarios if result.changes else result.helpful
    changes: list[object] = [_table(shown, "Change", result)] if shown else [Notes([_no_gain(result)])]
    if result.changes and len(shown) == 1:  # the headline says all
        changes = []
    if not result.changes and [s.step_ns for s in shown] != sorted(s.step_ns for s in shown):
        changes.append(Notes([_ORDER]))
    if result.step_ns is not None:
        caption = f"A bar goes from the time now, {duration(result.step_ns)}, to that with the change; a line is the interval of the estimate."
        changes.insert(0, Figure("Time with each change", caption, partial(tornado, result)))
    path = [
        (
            line_label(part.name),
            percent(part.ratio),
            duration(part.ns),
            *(duration(part.speedups[key]) for key in PATH_SPEEDUPS if key in part.speedups),
        )
        for part in result.critical_path[:PATH_ROWS]
    ]
    headings = ("Part", "Of the path", "Time", *(PATH_SPEEDUPS.values() if path and len(path[0]) > 3 else ()))
    return Document(
        "what if",
        _headline(result),
        (
            Chapter("replay", "The replay", [Notes([_heading(result), *_not_estimated(result), *_floors(result), *_refused(result)])]),
            memory,
            Chapter("path", "Critical path then" if result.changes else "Critical path", [PlainTable(headings, "l" + "r" * (len(headings) - 1), path)]),
            Chapter("changes", title, changes),
            Chapter("parts", _SENSITIVITY, [_table(others, "Part", result)]),
        ),
    )  # fmt: skip


def _table(scenarios: tuple[Scenario, ...], what: str, result: WhatIf) -> PlainTable:
    rows = [
        (
            s.label,
            duration(s.step_ns),
            f"{duration(s.low_ns)} to {duration(s.high_ns)}",
            _change(s.saves_ratio) if s.is_known else saved_between(result.step_ns or s.high_ns, s.low_ns, s.high_ns),
        )
        for s in scenarios
    ]
    return PlainTable((what, "Step", "Interval", "Change"), "lrrr", rows)


def _headline(result: WhatIf) -> str:
    """Return the answer in a line: the combined effect of the changes, or the best standard change."""
    if result.changes:
        return _prediction(result)
    if not result.helpful:
        return _no_gain(result)
    best = result.helpful[0]
    if not best.is_known:
        return f"What would help most is not known: {best.label} may take {duration(best.low_ns)} to {duration(best.high_ns)}, now {duration(result.step_ns)}."
    return (
        f"What would help most: {best.label}, {duration(result.step_ns)} → {duration(best.step_ns)} "
        f"({duration(best.low_ns)} to {duration(best.high_ns)}), an estimate."
    )


def _no_gain(result: WhatIf) -> str:
    return f"No standard change{' that has an estimate' if result.refused else ''} saves 2 % or more."


def _not_estimated(result: WhatIf) -> list[str]:
    """Return why a requested change is not in the estimate, or has no estimate of its own."""
    if not result.changes:
        return []
    return [f"{'Not estimated alone' if s.is_applied else 'Not changed'}: {s.reason}." for s in result.skipped]


def _refused(result: WhatIf) -> list[str]:
    """Return which standard changes cannot be predicted, and why."""
    if result.changes:
        return []
    return [f"No estimate of {labels}: {reason}." for reason, labels in result.refused.items()]


def _floors(result: WhatIf) -> list[str]:
    """Return the lower bounds of the step for fixes of one side only; of less than `WORTH_RATIO` of it they say nothing."""
    unit = "a step" if result.steps else "for the window"
    cpu_floor_ns = result.cpu_floor_ns or 0.0
    unless = unless_below(cpu_floor_ns, result.scenarios if result.changes else result.helpful)
    sides = (("CPU", result.device_floor_ns or 0.0, ""), ("GPU", cpu_floor_ns, unless))
    known = [row for row in sides if row[1] > thresholds.WORTH_RATIO * (result.step_ns or 0.0)]
    batch = ", with the batch as it is" if any(change.name == "batch" for change in result.changes) else ""
    first = [f"Floors{batch}: no {side} fix goes below {duration(ns)} {unit}{but}" for side, ns, but in known[:1]]
    rest = [f"no {side} fix below {duration(ns)}{but}" for side, ns, but in known[1:]]
    return [f"{', '.join([*first, *rest])}."] if known else []


def memory_sentence(memory: BatchMemory) -> str:
    """Return the peak with the batch, whether it fits, and the largest batch that does."""
    if memory.low_bytes is None or memory.high_bytes is None:
        return f"The peak with this batch is not known: {memory.reason}."
    ends = " to ".join(dict.fromkeys((memory_size(memory.low_bytes), memory_size(memory.high_bytes))))
    text = f"The peak with this batch: {ends}, now {memory_size(memory.now_bytes)}"
    if memory.device_bytes is None or memory.largest_low is None or memory.largest_high is None:
        return f"{text}; how much memory the device has is not recorded."
    large = " to ".join(dict.fromkeys(number(times) for times in (memory.largest_low, memory.largest_high)))
    return (
        f"{text}. Of the device's {memory_size(memory.device_bytes)}, {memory_size(OUTSIDE_BYTES)} is left for what is outside of"
        f" the allocator: {_FITS[memory.fits]}. The largest batch that fits is {large} times as large,"
        f" if what was live before the record ({memory_size(memory.before_bytes)}) does not grow with the batch."
    )


_FITS = {True: "the batch fits", False: "the batch does not fit", None: "whether the batch fits is open"}


def _heading(result: WhatIf) -> str:
    if result.step_ns is None:
        return "Nothing was replayed."
    what = counted(result.steps, "steady step") + " of" if result.steps else "The window of"
    each = " each" if result.steps > 1 else ""
    text = f"{what} device {result.device}: {duration(result.step_ns)}{each}."
    if result.replay is None:
        return text
    # Its length would round to another figure where it is off by next to nothing.
    return f"{text} The replay without changes is off by {percent(abs(result.replay.error_ratio))}."


def _prediction(result: WhatIf) -> str:
    assert result.predicted is not None
    then, saves, now = result.predicted, result.saves_ratio, result.step_ns or 0.0
    *others, last = (change.label for change in result.changes)
    names = " and ".join([", ".join(others), last]) if others else last
    ends = f"{duration(then.low_ns)} to {duration(then.high_ns)}"
    if only_removes(result.changes) and not is_saving_known(now, then.step_ns, then.low_ns, then.high_ns):
        return f"What {names} would save is not known: a step may take {ends}, now {duration(now)}."
    longer = f"{percent(-saves)} more" if saves > -1 else f"{number(1 - saves)} times as long"
    change = "no change" if abs(saves) < _NO_CHANGE else f"{percent(saves)} less" if saves > 0 else longer
    times = next((float(change.options["times"]) for change in result.changes if change.name == "batch"), None)
    as_many = f"; as many samples as now take {duration(then.step_ns / times)}" if times else ""
    return f"Estimate with {names}: {duration(now)} → {duration(then.step_ns)} ({ends}), {change}{as_many}."


def _change(saves_ratio: float) -> str:
    """Return the change of the step with its sign, or "no change" where a percentage does not show it."""
    if abs(saves_ratio) < _NO_CHANGE:
        return "no change"
    return f"-{percent(saves_ratio)}" if saves_ratio > 0 else f"+{percent(-saves_ratio)}"


_NO_CHANGE = 0.001
"""The smallest change that a percentage with one decimal shows."""


def tornado(result: WhatIf) -> Chart | None:
    """Declare each scenario's step as a bar, with its interval, largest saving on top; None without scenarios.

    A bar goes from the present step to the predicted one.
    """
    if not result.scenarios or result.step_ns is None:
        return None
    now = result.step_ns / _NS_PER_MS
    rows = sorted(result.scenarios, key=lambda s: -s.step_ns)
    names, places = [s.label for s in rows], range(len(rows))
    steps, low, high = (
        [ns / _NS_PER_MS for ns in each] for each in zip(*((s.step_ns, s.low_ns, s.high_ns) for s in rows), strict=True)
    )
    bars = Boxes(
        [min(now, step) for step in steps], [max(now, step) for step in steps], [at - 0.3 for at in places], [at + 0.3 for at in places],
        "p-compute", {"change": names, "step": [duration(s.step_ns) for s in rows]},
    )  # fmt: skip
    present = LineMark("now", [now, now], [-0.5, len(rows) - 0.5], "text-muted", "dashed")
    return Chart(
        Axis("step", "ms, estimated"), Axis("", ticks={float(at): name for at, name in zip(places, names, strict=True)}, names=True),
        (bars, Strokes(low, places, high, places), present), height=120 + 28 * len(rows), least_width=320,
    )  # fmt: skip


_TOP_DOUBTS = 3
_COLOURS = ("p-compute", "p-python", "p-copy", "p-communication", "p-latency", "p-memory")


def doubts_in_short(calibration: Calibration) -> list[str]:
    """Write why figures may be wrong (the first reasons), and what was left out, in a line each."""
    more = len(calibration.doubts) - _TOP_DOUBTS
    lines = list(calibration.doubts[:_TOP_DOUBTS])
    if more > 0:
        lines.append(f"{more} more measurements scatter; the file names them")
    if calibration.doubts:
        lines.append("measure again on a quiet machine")
    if calibration.left_out:
        first, count = calibration.left_out[0], len(calibration.left_out)
        rest = "" if count == 1 else f" and {count - 1} more"
        lines.append(f"no time was left for {first}{rest}; --budget gives more")
    return lines


def _rate(value: float | None, scale: float, form: Any) -> str:
    return str(form(None if value is None else value * scale))


def _sweep_rows(calibration: Calibration) -> list[tuple[str, str, str]]:
    """Return the number of multiply-adds per element above which arithmetic costs time."""
    if not calibration.sweep:
        return [("repeat sweep", "–", calibration.sweep_failure or "not measured")]
    best = max(point.gbps for point in calibration.sweep)
    free = max(point.repeats for point in calibration.sweep if point.gbps >= 0.8 * best)
    return [("repeat sweep", f"{free}", "multiply-adds per element that cost no time beside its memory traffic")]


def calibration_document(calibration: Calibration) -> Document:
    """Return the document: measurements, then bandwidth by size, FLOP/s of matmuls by size and dtype, and the sweep."""
    what = " (the CPU, as a device of its own; no GPU was measured)" if calibration.kind == "cpu" else ""
    latency = calibration.launch_latency_ns
    rows = [
        ("memory", _rate(calibration.memory_gbps, 1e9, units.bandwidth), "attained by large copies, read and write"),
        *((f"{dtype} matmuls", _rate(peak, 1e12, units.flops), "best size") for dtype, peak in calibration.peak_tflops.items()),
        ("operator", units.duration(calibration.launch_overhead_ns), "CPU time of one on a single element"),
        *([] if latency is None else [("launch latency", units.duration(latency), "launch end to kernel start, idle device")]),
        *_sweep_rows(calibration),
    ]  # fmt: skip
    headline = f"{calibration.name}{what}, measured{' quickly' if calibration.quick else ''}"
    return Document("calibration", headline, [
        Chapter("measured", "Memory and arithmetic", [PlainTable(("", "Attained", ""), "lrl", rows), *_figures(calibration)],
                "Each figure is the best of its batches."),
    ])  # fmt: skip


def _figures(calibration: Calibration) -> list[Figure]:
    figures = [
        Figure("Copies", "", partial(_copies, calibration)),
        Figure("Matmuls", "", partial(_matmuls, calibration)),
        Figure("Memory-bound to compute-bound", "", partial(_sweep, calibration)),
    ]
    return figures if calibration.sweep else figures[:-1]


def _copies(calibration: Calibration) -> Chart:
    copies = calibration.copies
    line = LineMark("copies", [c.bytes for c in copies], [c.gbps for c in copies], "p-memory")
    return Chart(Axis("bytes", log=True), Axis("rate", "GB/s"), (line,))


def _matmuls(calibration: Calibration) -> Chart:
    dtypes = dict.fromkeys(m.dtype for m in calibration.matmuls)
    colours = dict(zip(dtypes, cycle(_COLOURS), strict=False))
    products = tuple(
        LineMark(dtype, [m.size for m in own], [m.tflops for m in own], colours[dtype])
        for dtype in dtypes
        for own in [[m for m in calibration.matmuls if m.dtype == dtype]]
    )
    n = Axis("n of an n x n matmul", log=True)
    return Chart(n, Axis("rate", "TFLOP/s"), products, legend=tuple(colours.items()))


def _sweep(calibration: Calibration) -> Chart:
    points = calibration.sweep
    line = LineMark("sweep", [p.repeats for p in points], [p.tflops for p in points], "p-compute")
    return Chart(Axis("multiply-adds per element", log=True), Axis("rate", "TFLOP/s"), (line,))
