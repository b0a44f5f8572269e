"""Draw HoloViews objects of a report, to be shown, restyled and composed.

For example ``report.plots["gaps"].opts(color="red")``.

Each reads one table of the report. Importing this module
loads HoloViews with its Bokeh backend. Points and bars carry the place in the trace that they speak for, ``start_ns`` and
``end_ns`` (-1: none), so that a tap on the page can lead there; curves over time say in a tag of their renderer whose they
are and how many ns a unit of their axis has.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import holoviews as hv
import holoviews.plotting.bokeh
import numpy as np
import numpy.typing as npt
import polars as pl
from bokeh.models import FixedTicker

from trace_analyzer import units
from trace_analyzer.analyses.distributions import highest_per_bin, logarithmic_histogram
from trace_analyzer.analyses.places import named_events
from trace_analyzer.render.palette import palette
from trace_analyzer.render.phrasing import judged_device
from trace_analyzer.report import Report
from trace_analyzer.vocabulary import REGIMES

BINS_PER_DECADE = 6
MOST_POINTS = 2000
MOST_LABELS = 5  # of an axis of decades: more would run into each other on a phone
TIME_BINS = 900  # of a curve over time: about one per pixel

_UNITS = ((1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s"))


def plots(report: Report) -> dict[str, hv.Element]:
    """Draw all plots for which the report has data, by name."""
    made = {name: draw(report) for name, draw in PLOTS.items()}
    return {name: plot for name, plot in made.items() if plot is not None}


def roofline(report: Report) -> hv.Element | None:
    """Draw kernels of known work by intensity and FLOP/s, a point per row of table `roofline`, under their roofs."""
    rows = report.tables["roofline"].filter(pl.col("intensity_flop_per_byte") > 0, pl.col("achieved_flop_per_s") > 0)
    if rows.is_empty():
        return None
    rows = rows.sort("time_ns", descending=True).head(MOST_POINTS)
    keys = ["device", "name", "operator"]
    rows = named_events(report.tables["activities"], rows, keys)
    points = {
        group: _points(part, group)
        for (group,), part in rows.partition_by("group", as_dict=True, maintain_order=True).items()
    }
    low, high = rows.select(
        (pl.min("intensity_flop_per_byte") / 3).alias("low"), (pl.max("intensity_flop_per_byte") * 3).alias("high")
    ).row(0)
    peaks = rows.get_column("peak_flop_per_s").drop_nulls().unique().sort().to_list()
    roofs = [_roof(peak, report, low, high) for peak in peaks]
    names = [
        hv.Labels(
            {"FLOP per byte": [high], "FLOP/s": [peak], "peak": [units.flops(peak)]},
            ["FLOP per byte", "FLOP/s"], "peak",
        )
        for peak in peaks
    ]  # fmt: skip
    styled = [label.opts(text_align="right", text_baseline="bottom", text_font_size="9pt") for label in names]
    lowest = min([rows.get_column("achieved_flop_per_s").min(), *peaks])
    decades = range(int(np.floor(np.log10(lowest))), int(np.ceil(np.log10(max([lowest, *peaks])))) + 1)
    labels = {10.0**exponent: units.flops(10**exponent) for exponent in decades}
    overlay = hv.Overlay([*roofs, *_measured_roofs(report, peaks, low, high), *points.values(), *styled])
    return _framed(overlay).opts(logx=True, logy=True, hooks=[_ticks("yaxis", labels)], height=340, width=1120)


def launch_lead(report: Report) -> hv.Element | None:
    """Draw launches by launch lead, on a logarithmic axis; late ones (lead 0 or less) are left out."""
    late_or_not = report.tables["launches"].select(
        value_ns="lead_ns", start_ns=pl.col("first_start_ns") - pl.col("lead_ns"), end_ns="first_start_ns"
    )
    return _histogram(late_or_not.filter(pl.col("value_ns") > 0), "Launch lead", "Launches", "k-matmul")


def gaps(report: Report) -> hv.Element | None:
    """Draw idle time by the length of the gap that it is part of: many short gaps, or a few long ones?"""
    length = report.tables["gaps"].select("start_ns", "end_ns", value_ns="duration_ns", weight_ns="duration_ns")
    return _histogram(length.filter(pl.col("value_ns") > 0), "Length of gap", "Idle time", "p-python")


def queue_depth(report: Report) -> hv.Element | None:
    """Draw queue depth over time: of each bin the highest, one curve per device."""
    return _over_time(report, "depth", "Queue depth", 1, "")


def runway(report: Report) -> hv.Element | None:
    """Draw runway over time: of each bin the highest, one curve per device."""
    highest = report.tables["queue"].get_column("runway_ns").max()
    factor, unit = _unit(highest if isinstance(highest, int) else 0)
    return _over_time(report, "runway_ns", "Queued work", factor, unit)


def step_times(report: Report) -> hv.Element | None:
    """Draw the duration of each step, in the colour of its regime."""
    if not report.steps:
        return None
    factor, unit = _unit(max(step.duration_ns for step in report.steps))
    rows = [
        (f"{step.device}: {step.index}" if len(report.devices) > 1 else str(step.index), step.duration_ns / factor,
         f"p-{REGIMES[step.regime].part if step.regime else 'other'}")
        for step in report.steps
    ]  # fmt: skip
    colours = palette()
    bars = hv.Bars([(name, time, colours[colour]) for name, time, colour in rows], "Step", ["Duration", "colour"])
    return _framed(bars.opts(color="colour", line_color=None, ylabel=f"Duration ({unit})"))


def buckets(report: Report) -> hv.Element | None:
    """Draw kernel time by bucket, of the judged device."""
    judged = [device for device in report.devices if device.index == report.verdict.device and device.buckets]
    if not judged:
        return None
    factor, unit = _unit(max(bucket.time_ns for bucket in judged[0].buckets))
    colours = palette()
    rows = [(b.bucket, b.time_ns / factor, colours.get(f"k-{b.group}", colours["k-other"])) for b in judged[0].buckets]
    bars = hv.Bars(rows, "Bucket", ["Time", "colour"])
    return _framed(bars.opts(color="colour", line_color=None, ylabel=f"Kernel time ({unit})", xrotation=30))


PLOTS: Mapping[str, Callable[[Report], hv.Element | None]] = {
    "roofline": roofline,
    "buckets": buckets,
    "steps": step_times,
    "gaps": gaps,
    "launch_lead": launch_lead,
    "queue_depth": queue_depth,
    "runway": runway,
}
"""Name to the function that draws it, None where the report has no data."""


def _points(rows: pl.DataFrame, group: str | None) -> hv.Element:
    """Draw kernels of one group; the larger a point, the more time."""
    total = rows.get_column("time_ns").sum()
    frame = {
        "FLOP per byte": rows.get_column("intensity_flop_per_byte").to_numpy(),
        "FLOP/s": rows.get_column("achieved_flop_per_s").to_numpy(),
        "kernel": rows.get_column("name").to_list(),
        "operator": rows.get_column("operator").fill_null("–").to_list(),
        "time": [units.duration(ns) for ns in rows.get_column("time_ns")],
        "of the roof": [units.percent(ratio) for ratio in rows.get_column("roof_ratio")],
        "start_ns": _times(rows, "start_ns"),
        "end_ns": _times(rows, "end_ns"),
        "size": 6 + 18 * np.sqrt(rows.get_column("time_ns").to_numpy() / max(total, 1)),
    }
    colours = palette()
    points = hv.Points(
        frame,
        ["FLOP per byte", "FLOP/s"],
        ["kernel", "operator", "time", "of the roof", "start_ns", "end_ns", "size"],
        label=group or "other",
    )
    return points.opts(
        size="size", color=colours.get(f"k-{group}", colours["k-other"]), fill_alpha=0.6, line_alpha=0.9,
        tools=["hover", "tap"], hover_tooltips=["kernel", "operator", "time", "of the roof"],
    )  # fmt: skip


def _roof(peak: float, report: Report, low: float, high: float) -> hv.Element:
    """Draw what the device can do at most: intensity times bandwidth up to its peak.

    The bandwidth is that of the kernels whose roof it is; without one, the peak alone is known to matter.
    """
    roofs = report.tables["roofs"].filter(pl.col("attainable_flop_per_s") < pl.col("peak_flop_per_s"))
    bandwidth = roofs.select((pl.col("attainable_flop_per_s") / pl.col("intensity_flop_per_byte")).max()).item()
    return _line(peak, bandwidth, low, high)


def _measured_roofs(report: Report, peaks: Sequence[float], low: float, high: float) -> list[hv.Element]:
    """Draw measured roofs dashed under the datasheet's, with their figures; none for a device without these."""
    device = judged_device(report)
    attained = device and device.attained
    if not attained:
        return []
    bandwidth = next((roof.measured_per_s for roof in attained.roofs if roof.dtype is None), None)
    met = {roof.datasheet_per_s: roof.measured_per_s for roof in attained.roofs if roof.datasheet_per_s in peaks}
    lines = [_line(measured, bandwidth, low, high).opts(line_dash="dashed") for measured in met.values()]
    names = [
        hv.Labels(
            {"FLOP per byte": [high], "FLOP/s": [measured], "peak": [f"measured: {units.flops(measured)}"]},
            ["FLOP per byte", "FLOP/s"], "peak",
        ).opts(text_align="right", text_baseline="top", text_font_size="9pt")
        for measured in met.values()
    ]  # fmt: skip
    return [*lines, *names]


def _line(peak: float, bandwidth: float | None, low: float, high: float) -> hv.Element:
    corners = [low, high] if bandwidth is None else sorted({low, min(max(peak / bandwidth, low), high), high})
    heights = [peak if bandwidth is None else min(peak, x * bandwidth) for x in corners]
    return hv.Curve((corners, heights), "FLOP per byte", "FLOP/s").opts(color=palette()["queue"], line_width=1.5)


def _times(rows: pl.DataFrame, column: str) -> npt.NDArray[np.float64]:
    """Return times as JavaScript has them; -1 for none, since HoloViews takes the range of what it draws."""
    return rows.get_column(column).cast(pl.Float64).fill_null(-1).to_numpy()


def _histogram(rows: pl.DataFrame, label: str, height_label: str, colour: str) -> hv.Element | None:
    """Draw positive ``value_ns`` in logarithmic bins; with ``weight_ns`` their sum instead of the count.

    Each bin leads to the place (start_ns, end_ns) of its largest value.
    """
    if rows.is_empty():
        return None
    drawn = logarithmic_histogram(rows, BINS_PER_DECADE)
    edges = np.append(drawn.get_column("low_ns").to_numpy(), drawn.get_column("high_ns")[-1])
    height = drawn.get_column("height").to_numpy()
    factor, unit = _unit(height.max()) if "weight_ns" in rows.columns else (1, "")
    places = (_times(drawn, column) for column in ("start_ns", "end_ns"))
    histogram = hv.Histogram(
        (edges, height / factor, *places), kdims=[label], vdims=[height_label, "start_ns", "end_ns"]
    )
    return _framed(
        histogram.opts(
            logx=True, hooks=[_ticks("xaxis", _decades(edges))], color=palette()[colour], line_color=None,
            tools=["hover", "tap"], hover_tooltips=[label, height_label],
            ylabel=f"{height_label} ({unit})" if unit else height_label, ylim=(0, None),
        )
    )  # fmt: skip


def _decades(edges: npt.NDArray[np.float64]) -> dict[float, str]:
    """Return a tick at each power of ten, and labels at so many of them that a phone has room."""
    exponents = range(round(np.log10(edges[0])), round(np.log10(edges[-1])) + 1)
    every = -(-len(exponents) // MOST_LABELS)
    return {10.0**e: units.duration(10**e) if place % every == 0 else "" for place, e in enumerate(exponents)}


def _ticks(axis: str, labels: Mapping[float, str]) -> Callable[[Any, hv.Element], None]:
    """Return a hook that puts labels at these values of an axis.

    HoloViews' own option makes integers of them, and one over 2**53 is none that JavaScript knows.
    """

    def set_ticks(plot: Any, _: hv.Element) -> None:
        plot.handles[axis].update(ticker=FixedTicker(ticks=list(labels)), major_label_overrides=dict(labels))

    return set_ticks


def _tag(tag: Mapping[str, Any]) -> Callable[[Any, hv.Element], None]:
    """Return a hook that names, for the page's script, what the curve is of."""

    def set_tag(plot: Any, _: hv.Element) -> None:
        plot.handles["glyph_renderer"].tags = [dict(tag)]

    return set_tag


def _over_time(report: Report, column: str, label: str, factor: int, unit: str) -> hv.Element | None:
    queue = report.tables["queue"].drop_nulls(["time_ns", column])
    if queue.is_empty():
        return None
    labels = dict(report.tables["devices"].select("device", "label").iter_rows())
    time_factor, time_unit = _unit(queue.get_column("time_ns").max())  # type: ignore[arg-type]
    scales = (("time_ns", time_factor), (column, factor))
    curves = {
        f"GPU {labels.get(device, device)}": hv.Curve(
            tuple(changes.get_column(name).to_numpy().astype(float) / by for name, by in scales),
            f"Time ({time_unit})",
            f"{label} ({unit})" if unit else label,
        ).opts(
            interpolation="steps-post",
            color=palette()[colour],
            line_width=1.2,
            hooks=[_tag({"place": f"GPU {labels.get(device, device)}", "unit_ns": time_factor})],
        )
        for ((device,), steps), colour in zip(
            queue.sort("device", "time_ns").partition_by("device", as_dict=True).items(),
            _repeated(("k-matmul", "p-python", "p-copy", "p-communication")),
            strict=False,
        )
        for changes in [highest_per_bin(steps, column, TIME_BINS)]
    }
    if len(curves) == 1:
        return _framed(next(iter(curves.values())))
    return _framed(hv.NdOverlay(curves, kdims="Device"))


def _repeated(names: Sequence[str]) -> Sequence[str]:
    return tuple(names) * 16


def _unit(ns: float) -> tuple[int, str]:
    """Return the largest unit of time that is not larger than ``ns``."""
    return next(((factor, unit) for factor, unit in reversed(_UNITS) if ns >= factor), _UNITS[0])


def _framed(plot: hv.Element) -> hv.Element:
    """Apply what all plots share."""
    return plot.opts(
        width=560, height=260, toolbar=None, show_grid=True, fontsize={"labels": 11, "ticks": 10},
    )  # fmt: skip
