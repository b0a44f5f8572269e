"""Describe a calibration as a document."""

from functools import partial
from itertools import cycle
from typing import Any

from trace_analyzer import units
from trace_analyzer.catalog.calibration import Calibration
from trace_analyzer.documents import Chapter, Document, Figure, PlainTable
from trace_analyzer.sections import Axis, Chart, LineMark

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


def document(calibration: Calibration) -> Document:
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
