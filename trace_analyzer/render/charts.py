"""Describe the summary plots of a report, each from one or two of its tables, and the colours of everything drawn.

Points and boxes have their place in the trace, ``start_ns`` and ``end_ns`` (-1: none), so that a tap on the page can lead
there. The style sheet with the colours is `assets/palette.css` with the vocabulary's colours.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import cycle
from math import ceil, floor, log10
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer import units
from trace_analyzer.analyses.chart_data import highest_per_bin, logarithmic_histogram, named_events
from trace_analyzer.analyses.roofline import types_by_peak
from trace_analyzer.catalog.kernels import line_label
from trace_analyzer.render.phrasing import judged_device
from trace_analyzer.report import Report
from trace_analyzer.sections import SIGNS, Axis, Boxes, Chart, Labels, LineMark, Points
from trace_analyzer.vocabulary import ACTIVITIES, CPU_OPERATORS, GROUPS, PARTS, REGIMES

Theme = Literal["light", "dark"]

_COLOUR = re.compile(r"--([\w-]+):\s*(#[0-9a-f]{6});")
_DARK = '[data-theme="dark"]'


@cache
def palette_css() -> str:
    """Return the style sheet with the colours, where the vocabulary's replace the placeholders."""
    style = (files("trace_analyzer.render.html") / "assets" / "palette.css").read_text(encoding="utf-8")
    colours = {f"p-{part.key}": part.colour for part in PARTS.values()} | {
        f"k-{group.key}": group.colour for group in (*GROUPS.values(), *ACTIVITIES.values(), *CPU_OPERATORS.values())
    }
    light = " ".join(f"--{name}: {colour.light};" for name, colour in colours.items())
    dark = " ".join(f"--{name}: {colour.dark};" for name, colour in colours.items() if colour.dark)
    regimes = "\n".join(
        f".r-{regime.key}, .step.aside-step.r-{regime.key} {{ --c: var(--p-{regime.part}); }}"
        for regime in REGIMES.values()
    )
    return (
        style.replace("/* light vocabulary */", light)
        .replace("/* dark vocabulary */", dark)
        .replace("/* regimes */", regimes)
    )


@cache
def palette(theme: Theme = "light") -> Mapping[str, str]:
    """Return colours as ``#rrggbb`` by their CSS variable without dashes; dark colours override light ones."""
    light, _, dark = palette_css().partition(_DARK)
    return dict(_COLOUR.findall(light if theme == "light" else light + dark))


BINS_PER_DECADE = 6
MOST_POINTS = 2000
MOST_LABELS = 5  # per logarithmic axis: more would overlap on a phone
TIME_BINS = 900  # per curve over time: about one per pixel
NOTE_DECADES = 0.16  # least distance of two readable notes on one axis
NOTE_STEP = 0.4  # share of the axis by which a note moves to the left to avoid another
BAR = 0.4  # half of the width of a bar whose neighbours are 1 apart

_UNITS = ((1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s"))
_MARKERS = tuple(SIGNS)

Floats = npt.NDArray[np.float64]


def roofline(report: Report) -> Chart | None:
    """Return kernels with known work by intensity and FLOP/s, a point per row of table `roofline`, with their roofs.

    A point has the shape of its roof, where there are several.
    """
    rows = report.tables["roofline"].filter(pl.col("intensity_flop_per_byte") > 0, pl.col("achieved_flop_per_s") > 0)
    if rows.is_empty():
        return None
    rows = rows.sort("time_ns", descending=True).head(MOST_POINTS)
    rows = named_events(report.tables["activities"], rows, ["device", "name", "operator"])
    low, high = rows.select(
        (pl.min("intensity_flop_per_byte") / 3).alias("low"), (pl.max("intensity_flop_per_byte") * 3).alias("high")
    ).row(0)
    names = _roof_names(rows)
    peaks = sorted(names)
    shapes = dict(zip(peaks, cycle(_MARKERS), strict=False))
    points = tuple(
        _points(part, group, names, shapes)
        for (group,), part in rows.partition_by("group", as_dict=True, maintain_order=True).items()
    )
    bandwidth = _bandwidth(report)
    roofs = [_roof(name, peak, bandwidth, low, high) for peak, name in sorted(names.items())]
    measured = _measured_roofs(report, names, low, high)
    rates = [*rows.get_column("achieved_flop_per_s"), *peaks]
    lowest, highest = min(rates), max(rates)
    decades = range(floor(log10(lowest)), ceil(log10(highest)) + 1)
    return Chart(
        x=Axis("FLOP per byte", log=True, ends=(low, high)),
        y=Axis("FLOP/s", log=True, ticks={10.0**e: units.flops(10**e) for e in decades}, ends=(lowest / 2, highest * 3)),
        marks=(
            *roofs, *measured, *points,
            _notes({name: peak for peak, name in sorted(names.items(), reverse=True)}, low, high, "bottom"),
            *([_notes({line.label: max(line.y) for line in measured}, low, high, "top")] if measured else []),
        ),
        legend=tuple((GROUPS[each.label].label if each.label in GROUPS else each.label, each.colour) for each in points),
        signs=(*((SIGNS[shapes[peak]], name) for peak, name in sorted(names.items())), *(("╌", line.label) for line in measured)),
        width=1120,
        height=380,
    )  # fmt: skip


def launch_lead(report: Report) -> Chart | None:
    """Return launches by launch lead, on a logarithmic axis; late ones (lead of at most 0) are left out."""
    late_or_not = report.tables["launches"].select(
        value_ns="lead_ns", start_ns=pl.col("first_start_ns") - pl.col("lead_ns"), end_ns="first_start_ns"
    )
    return _histogram(late_or_not.filter(pl.col("value_ns") > 0), "Launch lead", "Launches", "k-matmul")


def gaps(report: Report) -> Chart | None:
    """Return the idle time by the length of its gap, to distinguish many short gaps from a few long ones."""
    length = report.tables["gaps"].select("start_ns", "end_ns", value_ns="duration_ns", weight_ns="duration_ns")
    return _histogram(length.filter(pl.col("value_ns") > 0), "Length of gap", "Idle time", "p-python")


def queue_depth(report: Report) -> Chart | None:
    """Return the queue depth over time: the maximum of each bin, one curve per device."""
    return _over_time(report, "depth", "Queue depth", 1, "")


def queued_work(report: Report) -> Chart | None:
    """Return queued work over time: the maximum of each bin, one curve per device."""
    highest = report.tables["queue"].get_column("queued_work_ns").max()
    factor, unit = _unit(highest if isinstance(highest, int) else 0)
    return _over_time(report, "queued_work_ns", "Queued work", factor, unit)


def step_times(report: Report) -> Chart | None:
    """Return the duration of each step, in its regime's colour."""
    several = len(report.devices) > 1
    bars = [
        (f"{step.device}: {step.index}" if several else str(step.index), step.duration_ns, f"p-{REGIMES[step.regime].part if step.regime else 'other'}")
        for step in report.steps
    ]  # fmt: skip
    return _bars("Step", "Duration", bars)


def buckets(report: Report) -> Chart | None:
    """Return kernel time by bucket, of the judged device."""
    device = judged_device(report)
    bars = [(line_label(b.bucket), b.time_ns, f"k-{b.group}") for b in device.buckets] if device else []
    return _bars("Bucket", "Kernel time", bars)


def _bars(label: str, height_label: str, bars: Sequence[tuple[str, int, str]]) -> Chart | None:
    """Return times as bars, each with its name below it."""
    if not bars:
        return None
    factor, unit = _unit(max(ns for _, ns, _ in bars))
    places = np.arange(len(bars))
    texts = {label: [name for name, _, _ in bars], height_label: [units.duration(ns) for _, ns, _ in bars]}
    boxes = Boxes(
        places - BAR,
        places + BAR,
        np.zeros(len(bars)),
        np.array([ns / factor for _, ns, _ in bars]),
        [c for *_, c in bars],
        texts,
    )
    names = {float(place): name for place, (name, *_) in enumerate(bars)}
    return Chart(Axis(label, ticks=names, names=True), Axis(height_label, unit, ends=(0, None)), (boxes,))  # fmt: skip


CHARTS: Mapping[str, Callable[[Report], Chart | None]] = {
    "roofline": roofline,
    "buckets": buckets,
    "steps": step_times,
    "gaps": gaps,
    "launch_lead": launch_lead,
    "queue_depth": queue_depth,
    "queued_work": queued_work,
}
"""Name -> the function that describes the plot, which returns None where the report has no data."""


def _roof_names(rows: pl.DataFrame) -> dict[float, str]:
    """Map each peak to its name: the types and units that have it, and its value."""
    by_peak = types_by_peak(rows)
    several = by_peak.height > 1
    names = {}
    for peak, dtypes, all_products, any_product in by_peak.iter_rows():
        kind = " matmuls" if all_products and several else " elsewhere" if several and not any_product else ""
        names[float(peak)] = f"{', '.join(dtypes) or 'any type'}{kind}: {units.flops(peak)}"
    return names


def _points(rows: pl.DataFrame, group: str | None, names: Mapping[float, str], shapes: Mapping[float, str]) -> Points:
    """Return the kernels of one group; the size of a point shows its time."""
    total = rows.get_column("time_ns").sum()
    peaks = rows.get_column("peak_flop_per_s").to_list()
    return Points(
        label=group or "other",
        colour=f"k-{group or 'other'}",
        x=rows.get_column("intensity_flop_per_byte").to_numpy(),
        y=rows.get_column("achieved_flop_per_s").to_numpy(),
        size=6 + 18 * np.sqrt(rows.get_column("time_ns").to_numpy() / max(total, 1)),
        texts={
            "kernel": rows.get_column("name").to_list(),
            "operator": rows.get_column("operator").fill_null("–").to_list(),
            "time": [units.duration(ns) for ns in rows.get_column("time_ns")],
            "of the roof": [units.percent(ratio) for ratio in rows.get_column("roof_ratio")],
            "peak": [names.get(peak, "–") for peak in peaks],
        },
        markers=[shapes.get(peak, _MARKERS[0]) for peak in peaks],
        start_ns=_times(rows, "start_ns"),
        end_ns=_times(rows, "end_ns"),
    )


def _bandwidth(report: Report) -> float | None:
    """Return the memory bandwidth for the kernels that it limits; None without any, as only the peaks then matter."""
    attainable, intensity = pl.col("attainable_flop_per_s"), pl.col("intensity_flop_per_byte")
    roofs = report.tables["roofs"].filter(attainable < pl.col("peak_flop_per_s"), intensity > 0)
    bandwidth: float | None = roofs.select((attainable / intensity).max()).item()
    return bandwidth


def _measured_roofs(report: Report, names: Mapping[float, str], low: float, high: float) -> list[LineMark]:
    """Return measured roofs as dashed lines below the datasheet's; empty for a device without a calibration."""
    device = judged_device(report)
    attained = device and device.attained
    if not attained:
        return []
    bandwidth = next((roof.measured_per_s for roof in attained.roofs if roof.dtype is None), None)
    met = {roof.datasheet_per_s: roof.measured_per_s for roof in attained.roofs if roof.datasheet_per_s in names}
    return [_roof(f"measured: {units.flops(peak)}", peak, bandwidth, low, high, dashed=True) for peak in met.values()]


def _roof(
    name: str, peak: float, bandwidth: float | None, low: float, high: float, *, dashed: bool = False
) -> LineMark:
    """Return the device's roof: intensity times bandwidth, up to its peak."""
    corners = [low, high] if bandwidth is None else sorted({low, min(max(peak / bandwidth, low), high), high})
    heights = [peak if bandwidth is None else min(peak, x * bandwidth) for x in corners]
    return LineMark(name, np.array(corners, float), np.array(heights, float), "queue", "dashed" if dashed else "solid")


def _notes(heights: Mapping[str, float], low: float, high: float, baseline: str) -> Labels:
    """Return texts at the right ends of lines; one that would overlap another is moved to the left."""
    y = list(heights.values())
    close = [sum(abs(log10(at / other)) < NOTE_DECADES for other in y[:place]) for place, at in enumerate(y)]
    x = [high * (low / high) ** (NOTE_STEP * many) for many in close]
    return Labels(x, y, list(heights), align="right", baseline=baseline, spare=True)


def _times(rows: pl.DataFrame, column: str) -> Floats:
    """Return times as JavaScript numbers; -1 for null."""
    return rows.get_column(column).cast(pl.Float64).fill_null(-1).to_numpy()


def _histogram(rows: pl.DataFrame, label: str, height_label: str, colour: str) -> Chart | None:
    """Return positive ``value_ns`` in logarithmic bins; with ``weight_ns`` their sum instead of the count."""
    if rows.is_empty():
        return None
    binned = logarithmic_histogram(rows, BINS_PER_DECADE)
    low, high, height = (binned.get_column(name).to_numpy() for name in ("low_ns", "high_ns", "height"))
    is_time = "weight_ns" in rows.columns
    factor, unit = _unit(height.max()) if is_time else (1, "")
    texts = {
        label: [f"{units.duration(a)} to {units.duration(b)}" for a, b in zip(low, high, strict=True)],
        height_label: [units.duration(each) if is_time else units.count(each) for each in height],
    }
    boxes = Boxes(
        low, high, np.zeros(len(low)), height / factor, colour, texts, _times(binned, "start_ns"), _times(binned, "end_ns")
    )  # fmt: skip
    edges = np.append(low, high[-1])
    exponents = range(round(np.log10(edges[0])), round(np.log10(edges[-1])) + 1)
    every = -(-len(exponents) // MOST_LABELS)
    ticks = {10.0**e: units.duration(10**e) if place % every == 0 else "" for place, e in enumerate(exponents)}
    return Chart(
        Axis(label, log=True, ticks=ticks), Axis(height_label, unit, counts=not is_time, ends=(0, None)), (boxes,)
    )


def reported_labels(report: Report) -> dict[int, str]:
    """Map codes to labels of the devices that are reported, which are not all that worked where these are very many."""
    ids = [str(device.index) for device in report.devices]
    devices = report.tables["devices"].filter(pl.col("label").cast(pl.String).is_in(ids))
    return dict(devices.select("device", "label").iter_rows())


def _over_time(report: Report, column: str, label: str, factor: int, unit: str) -> Chart | None:
    labels = reported_labels(report)
    queue = report.tables["queue"].drop_nulls(["time_ns", column]).filter(pl.col("device").is_in(list(labels)))
    if queue.is_empty():
        return None
    time_factor, time_unit = _unit(queue.get_column("time_ns").max())  # type: ignore[arg-type]
    lines = []
    devices = queue.sort("device", "time_ns").partition_by("device", as_dict=True).items()
    for ((device,), steps), colour in zip(
        devices, cycle(("k-matmul", "p-python", "p-copy", "p-communication")), strict=False
    ):
        changes = highest_per_bin(steps, column, TIME_BINS)
        x, y = (
            changes.get_column(name).to_numpy().astype(float) / by
            for name, by in (("time_ns", time_factor), (column, factor))
        )
        name = f"GPU {labels[device]}"
        lines.append(LineMark(name, x, y, colour, place=name, unit_ns=time_factor))
    legend = tuple((line.label, line.colour) for line in lines) if len(lines) > 1 else ()
    return Chart(Axis("Time", time_unit), Axis(label, unit, counts=not unit), tuple(lines), legend)


def _unit(ns: float) -> tuple[int, str]:
    """Return the largest unit of time that does not exceed ``ns``."""
    return next(((factor, unit) for factor, unit in reversed(_UNITS) if ns >= factor), _UNITS[0])
