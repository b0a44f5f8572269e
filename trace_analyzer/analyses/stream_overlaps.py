"""Distinguish overlaps on one stream by design from those that indicate corrupt rows.

A stream executes in order. From compute capability 9.0 on, programmatic dependent launch lets a kernel start in the
tail of the previous one (CUDA Programming Guide, "Programmatic Dependent Launch and Synchronization"): the two are
neighbours, and the later one starts and ends later. Rows that contain each other, are out of launch order, or overlap
in larger numbers are wrong on any device.
"""

from collections.abc import Mapping

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.devices import Device, assumed_device
from trace_analyzer.frames.intervals import sort_spans
from trace_analyzer.frames.lookups import factorize, over_group, starts_group
from trace_analyzer.ingest.trace import Trace

_STREAM = ["device", "context", "stream"]
_FIRST_CAPABILITY = 9.0
_OTHER_VENDORS = r"(?i)AMD|Radeon|Instinct|Intel|gfx"


def dependent_launch_devices(trace: Trace, device_models: Mapping[int, Device | None]) -> tuple[int, ...]:
    """Return codes of devices that support dependent launches: NVIDIA's from compute capability 9.0 on.

    The catalogue determines this, else the header; AMD's gfx90a and gfx942 also have 9.x there, but warps of 64
    threads. Without either, the architecture in kernel names is used.
    """
    listed = {entry.index: entry for entry in trace.header.devices}
    able = []
    for code, label, name in trace.devices.select("device", "label", "name").iter_rows():
        model, entry = device_models.get(code), listed.get(label)
        if model is not None:
            if model.vendor == "NVIDIA" and _version(model.compute_capability) >= _FIRST_CAPABILITY:
                able.append(code)
        elif entry is None or not entry.compute_capability:
            kernels = trace.device_events.filter(pl.col("device") == code, pl.col("kind") == "kernel")
            usual = assumed_device(kernels.get_column("name").unique().cast(pl.String))
            if (
                usual is not None
                and usual.vendor == "NVIDIA"
                and _version(usual.compute_capability) >= _FIRST_CAPABILITY
            ):
                able.append(code)
        elif entry.warp_size in (None, 0, 32):
            other = pl.Series([name or entry.name or ""]).str.contains(_OTHER_VENDORS).item()
            if not other and _version(entry.compute_capability) >= _FIRST_CAPABILITY:
                able.append(code)
    return tuple(able)


def _version(capability: str | None) -> float:
    try:
        return float(capability or 0)
    except ValueError:
        return 0.0


def with_stream_overlaps(rows: pl.DataFrame, able: tuple[int, ...]) -> pl.DataFrame:
    """Return activities by stream and start with ``designed_ns``: their overlap by design with the previous one.

    ``rows`` (device, context, stream, kind, start_ns, end_ns, launch_start_ns) are those of devices whose streams
    execute in order; ``able`` are the devices that support dependent launches. An overlap of two kernels of a stream is
    by design if the later one starts and ends after the other, was not launched before it, starts when no third kernel
    runs, and starts within the other's last half or last 10 us.
    """
    streams, _ = factorize(*rows.select(_STREAM))
    # The shorter of activities with equal starts comes first.
    ordered = sort_spans(rows.with_columns(streams.alias("track")), ["track"], shortest_first=True)
    new = starts_group("track")
    earlier = {
        name: pl.when(~new).then(pl.col(name).shift(1)) for name in ("start_ns", "end_ns", "kind", "launch_start_ns")
    }
    reached = over_group(ordered, "track", pl.col("end_ns").cum_max().shift(2)).alias("reached_ns")
    overlap = earlier["end_ns"] - pl.col("start_ns")
    tail = pl.max_horizontal((earlier["end_ns"] - earlier["start_ns"]) // 2, thresholds.DEPENDENT_TAIL_NS)
    by_design = (
        pl.col("device").is_in(list(able))
        & (pl.col("kind") == "kernel")
        & (earlier["kind"] == "kernel")
        & (pl.col("start_ns") > earlier["start_ns"])
        & (pl.col("end_ns") >= earlier["end_ns"])
        & (pl.col("reached_ns").fill_null(0) <= pl.col("start_ns"))
        & (pl.col("launch_start_ns") >= earlier["launch_start_ns"]).fill_null(True)
        & (overlap <= tail)
    )
    designed = pl.when(by_design.fill_null(False)).then(overlap.clip(lower_bound=0)).otherwise(0)
    return ordered.with_columns(reached).with_columns(designed.fill_null(0).alias("designed_ns")).drop("reached_ns")


ANALYSES = (Value("dependent_launch_devices", dependent_launch_devices),)
