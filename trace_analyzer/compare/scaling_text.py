"""Write series of batches as plain text."""

from trace_analyzer.compare.phrasing import scale_of, scaled
from trace_analyzer.compare.scaling import Exponent, Scaling
from trace_analyzer.compare.text import indented
from trace_analyzer.render.layout import folded
from trace_analyzer.units import duration, percent, shorten, visible

_OPERATORS = 12


def summary(result: Scaling, width: int = 100) -> str:
    """Write the series as plain text: points, exponents, lower bound, line, proof and contradictions."""
    if result.status == "refused":
        return "\n".join(folded(visible(result.headline), width)) + "\n"
    scale, unit = scale_of(max(point.step_ns for point in result.points))
    text = [
        *folded(visible(result.headline), width),
        "",
        f"  {'batch':>8}{f'step ({unit})':>12}{'busy':>9}{'idle':>9}{'busy %':>8}  verdict, trace",
    ]
    for point in result.points:
        text.append(
            f"  {point.batch:>8}{scaled(point.step_ns, scale):>12}{scaled(point.busy_ns, scale):>9}{scaled(point.idle_ns, scale):>9}"
            f"{percent(point.busy_ratio):>8}  {point.verdict or '–'}, {point.path}"
        )
    text += ["", "Exponents: 0 is flat, 1 grows with the work"]
    text += [_row(item) for item in (*result.step, *result.busy)]
    text += [_row(item) for item in result.operators[:_OPERATORS]]
    if result.host_floor_ns is not None:
        text += ["", f"  the host takes {duration(result.host_floor_ns)} a step, whatever the batch"]
    if result.device_line:
        line = result.device_line
        text.append(f"  the device takes {duration(line.fixed_ns)} + {duration(line.per_item_ns)} an item")
    if result.flip_batch:
        bound = ", an upper bound: kernels of small batches grow less than later ones" if result.is_upper_bound else ""
        text.append(f"  both take as long at batch {result.flip_batch:.0f}{bound}")
    text += [row for note in (*result.notes, *result.contradictions) for row in indented(note, width)]
    return "\n".join(visible(line) for line in text) + "\n"


def _row(item: Exponent) -> str:
    return (
        f"  {item.exponent:>6.2f}  {shorten(item.name, 40):<40} {item.from_batch} to {item.to_batch}: {duration(item.before_ns)} to"
        f" {duration(item.after_ns)}, {item.work} x {item.work_ratio:.3g}"
    )
