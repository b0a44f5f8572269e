"""Render a calibration: a few lines of text, and three HoloViews figures on one offline page."""

from typing import TYPE_CHECKING, Any

from trace_analyzer import units
from trace_analyzer.catalog.calibration import Calibration

if TYPE_CHECKING:
    import holoviews as hv


def calibration_text(calibration: Calibration) -> str:
    """Write the measurements in lines."""
    name = units.visible(calibration.name)
    kind = f"{name} (the CPU, as a device of its own; no GPU was measured)" if calibration.kind == "cpu" else name
    latency = calibration.launch_latency_ns
    rows = [
        ("memory", _rate(calibration.memory_gbps, 1e9, units.bandwidth), "attained by large copies, read and write"),
        *(
            (f"{dtype} matmuls", _rate(peak, 1e12, units.flops), "best size")
            for dtype, peak in calibration.peak_tflops.items()
        ),
        ("operator", units.duration(calibration.launch_overhead_ns), "CPU time of one on a single element"),
        *(
            []
            if latency is None
            else [("launch latency", units.duration(latency), "launch end to kernel start, idle device")]
        ),
        *_sweep_rows(calibration),
    ]
    lines = [f"  {label:<16}{figure:>14}  {meaning}" for label, figure, meaning in rows]
    return "\n".join([kind + (", measured quickly" if calibration.quick else ""), *lines, ""])


_TOP_DOUBTS = 3


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


def calibration_plots(calibration: Calibration) -> "hv.Layout":
    """Draw bandwidth by size, FLOP/s of matmuls by size and dtype, and the repeat sweep."""
    import holoviews as hv
    import holoviews.plotting.bokeh

    hv.Store.set_current_backend("bokeh")
    size, rate, flops = (
        hv.Dimension("size", label="bytes"),
        hv.Dimension("rate", label="GB/s"),
        hv.Dimension("flops", label="TFLOP/s"),
    )
    wide = {"width": 430, "height": 340, "logx": True, "tools": ["hover"], "show_grid": True}
    copies = hv.Curve([(c.bytes, c.gbps) for c in calibration.copies], size, rate, label="Copies").opts(**wide)
    side = hv.Dimension("n", label="n of an n x n matmul")
    by_dtype = {
        dtype: hv.Curve([(m.size, m.tflops) for m in calibration.matmuls if m.dtype == dtype], side, flops).opts(**wide)
        for dtype in dict.fromkeys(m.dtype for m in calibration.matmuls)
    }
    products = hv.NdOverlay(by_dtype, kdims="dtype", label="Matmuls").opts(legend_position="top_left")
    figures = [copies, products]
    if calibration.sweep:
        repeats = hv.Dimension("repeats", label="multiply-adds per element")
        points = [(p.repeats, p.tflops) for p in calibration.sweep]
        figures.append(hv.Curve(points, repeats, flops, label="Memory-bound to compute-bound").opts(**wide))
    return hv.Layout(figures).cols(3).opts(shared_axes=False)


def calibration_html(calibration: Calibration) -> str:
    """Return the figures on one offline page."""
    from trace_analyzer.render.offline import figures_page  # text needs only Polars

    title = f"{units.visible(calibration.name)}, measured"
    caption = "Each figure is the best of its batches."
    return figures_page(
        title,
        None,
        [("Memory and arithmetic", caption, calibration_plots(calibration))],
        calibration_text(calibration),
    )
