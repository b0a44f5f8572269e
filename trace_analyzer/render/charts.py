"""Describe the summary plots as data: `plots` draws them with HoloViews, `html.drawings` with Bokeh only.

Each reads one or two tables of the report. Points and bars have their place in the trace, ``start_ns`` and ``end_ns``
(-1: none), so that a tap on the page can lead there. Curves over time have their device, and the number of ns per unit
of the axis.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from math import ceil, floor, log10

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer import units
from trace_analyzer.analyses.distributions import highest_per_bin, logarithmic_histogram
from trace_analyzer.analyses.places import named_events
from trace_analyzer.analyses.roofline import types_by_peak
from trace_analyzer.catalog.line_labels import line_label
from trace_analyzer.render.phrasing import judged_device
from trace_analyzer.report import Report
from trace_analyzer.vocabulary import REGIMES

BINS_PER_DECADE = 6
MOST_POINTS = 2000
MOST_LABELS = 5  # per logarithmic axis: more would overlap on a phone
TIME_BINS = 900  # per curve over time: about one per pixel
NOTE_DECADES = 0.16  # least distance of two readable notes on one axis
NOTE_STEP = 0.4  # share of the axis by which a note moves to the left to avoid another

_UNITS = ((1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s"))
_SIGNS = {"circle": "●", "triangle": "▲", "square": "■", "diamond": "◆", "inverted_triangle": "▼"}
_MARKERS = tuple(_SIGNS)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """Hold the name of an axis with its unit, whether it is logarithmic, its labelled ticks, and its fixed ends."""

    label: str
    unit: str = ""
    log: bool = False
    ticks: Mapping[float, str] = field(default_factory=dict)
    ends: tuple[float, float] | None = None

    @property
    def title(self) -> str:
        """Return the label with its unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True)
class ChartLine:
    """Hold a curve; ``colour`` is a CSS variable. With a ``place``, it is a step function over time for that device."""

    label: str
    x: Floats
    y: Floats
    colour: str
    dashed: bool = False
    place: str = ""
    unit_ns: int = 1


@dataclass(frozen=True)
class Bins:
    """Hold a histogram: edges, heights, and the place of each bin's largest value."""

    edges: Floats
    height: Floats
    colour: str
    start_ns: Floats
    end_ns: Floats


@dataclass(frozen=True)
class Points:
    """Hold points of one group: ``texts`` are tooltips by heading; ``markers`` are shapes."""

    label: str
    colour: str
    x: Floats
    y: Floats
    size: Floats
    texts: Mapping[str, Sequence[str]]
    markers: Sequence[str]
    start_ns: Floats
    end_ns: Floats


@dataclass(frozen=True)
class EndLabel:
    """Hold a text at the right end of a line, above or below it."""

    x: float
    y: float
    text: str
    above: bool = True


@dataclass(frozen=True)
class Chart:
    """Hold the content of a plot.

    ``bars`` are (name, height, CSS variable) on an axis of names, ``marks`` are (sign, meaning).
    """

    x: Axis
    y: Axis
    lines: tuple[ChartLine, ...] = ()
    bins: Bins | None = None
    points: tuple[Points, ...] = ()
    notes: tuple[EndLabel, ...] = ()
    bars: tuple[tuple[str, float, str], ...] = ()
    marks: tuple[tuple[str, str], ...] = ()
    width: int = 560
    height: int = 260


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
    lowest = min([float(rows.get_column("achieved_flop_per_s").min()), *peaks])  # type: ignore[arg-type]
    highest = max([float(rows.get_column("achieved_flop_per_s").max()), *peaks])  # type: ignore[arg-type]
    decades = range(floor(log10(lowest)), ceil(log10(highest)) + 1)
    return Chart(
        x=Axis("FLOP per byte", log=True, ends=(low, high)),
        y=Axis("FLOP/s", log=True, ticks={10.0**e: units.flops(10**e) for e in decades}, ends=(lowest / 2, highest * 3)),
        lines=(*roofs, *measured),
        points=points,
        notes=_apart([*(EndLabel(high, peak, name) for peak, name in sorted(names.items(), reverse=True)),
                      *(EndLabel(high, float(line.y.max()), line.label, above=False) for line in measured)], low, high),
        marks=(*((_SIGNS[shapes[peak]], name) for peak, name in names.items()), *(("╌", line.label) for line in measured)),
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
    if not report.steps:
        return None
    factor, unit = _unit(max(step.duration_ns for step in report.steps))
    bars = tuple(
        (f"{step.device}: {step.index}" if len(report.devices) > 1 else str(step.index), step.duration_ns / factor,
         f"p-{REGIMES[step.regime].part if step.regime else 'other'}")
        for step in report.steps
    )  # fmt: skip
    return Chart(Axis("Step"), Axis("Duration", unit), bars=bars)


def buckets(report: Report) -> Chart | None:
    """Return kernel time by bucket, of the judged device."""
    judged = [device for device in report.devices if device.index == report.verdict.device and device.buckets]
    if not judged:
        return None
    factor, unit = _unit(max(bucket.time_ns for bucket in judged[0].buckets))
    bars = tuple((line_label(b.bucket), b.time_ns / factor, f"k-{b.group}") for b in judged[0].buckets)
    return Chart(Axis("Bucket"), Axis("Kernel time", unit), bars=bars)


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
    roofs = report.tables["roofs"].filter(pl.col("attainable_flop_per_s") < pl.col("peak_flop_per_s"))
    bandwidth: float | None = roofs.select(
        (pl.col("attainable_flop_per_s") / pl.col("intensity_flop_per_byte")).max()
    ).item()
    return bandwidth


def _measured_roofs(report: Report, names: Mapping[float, str], low: float, high: float) -> list[ChartLine]:
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
) -> ChartLine:
    """Return the device's roof: intensity times bandwidth, up to its peak."""
    corners = [low, high] if bandwidth is None else sorted({low, min(max(peak / bandwidth, low), high), high})
    heights = [peak if bandwidth is None else min(peak, x * bandwidth) for x in corners]
    return ChartLine(name, np.array(corners, float), np.array(heights, float), "queue", dashed)


def _apart(notes: Sequence[EndLabel], low: float, high: float) -> tuple[EndLabel, ...]:
    """Return the notes without overlaps: one that would overlap is moved to the left."""
    kept: list[EndLabel] = []
    for note in notes:
        close = sum(note.above == other.above and abs(log10(note.y / other.y)) < NOTE_DECADES for other in kept)
        kept.append(replace(note, x=high * (low / high) ** (NOTE_STEP * close)))
    return tuple(kept)


def _times(rows: pl.DataFrame, column: str) -> Floats:
    """Return times as JavaScript numbers; -1 for null."""
    return rows.get_column(column).cast(pl.Float64).fill_null(-1).to_numpy()


def _histogram(rows: pl.DataFrame, label: str, height_label: str, colour: str) -> Chart | None:
    """Return positive ``value_ns`` in logarithmic bins; with ``weight_ns`` their sum instead of the count."""
    if rows.is_empty():
        return None
    binned = logarithmic_histogram(rows, BINS_PER_DECADE)
    edges = np.append(binned.get_column("low_ns").to_numpy(), binned.get_column("high_ns")[-1])
    height = binned.get_column("height").to_numpy()
    factor, unit = _unit(height.max()) if "weight_ns" in rows.columns else (1, "")
    bins = Bins(edges, height / factor, colour, _times(binned, "start_ns"), _times(binned, "end_ns"))
    return Chart(Axis(label, log=True, ticks=_decades(edges)), Axis(height_label, unit), bins=bins)


def _decades(edges: Floats) -> dict[float, str]:
    """Return a tick at each power of ten, with labels at as many of them as fit on a phone."""
    exponents = range(round(np.log10(edges[0])), round(np.log10(edges[-1])) + 1)
    every = -(-len(exponents) // MOST_LABELS)
    return {10.0**e: units.duration(10**e) if place % every == 0 else "" for place, e in enumerate(exponents)}


def _over_time(report: Report, column: str, label: str, factor: int, unit: str) -> Chart | None:
    queue = report.tables["queue"].drop_nulls(["time_ns", column])
    if queue.is_empty():
        return None
    labels = dict(report.tables["devices"].select("device", "label").iter_rows())
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
        name = f"GPU {labels.get(device, device)}"
        lines.append(ChartLine(name, x, y, colour, place=name, unit_ns=time_factor))
    return Chart(Axis("Time", time_unit), Axis(label, unit), lines=tuple(lines))


def _unit(ns: float) -> tuple[int, str]:
    """Return the largest unit of time that does not exceed ``ns``."""
    return next(((factor, unit) for factor, unit in reversed(_UNITS) if ns >= factor), _UNITS[0])
