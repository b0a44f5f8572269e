"""Match the devices of a trace with the catalogue, and with calibrations."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import polars as pl

from trace_analyzer.catalog.calibration import Calibration, known_calibrations, matching, read_calibration
from trace_analyzer.catalog.devices import (
    Device,
    Interconnect,
    assumed_devices,
    device_named,
    find_device,
    interconnects_of,
    with_overrides,
)
from trace_analyzer.catalog.event_names import CALLS
from trace_analyzer.catalog.fixes import platform_of
from trace_analyzer.ingest.trace import DeviceProperties, Trace
from trace_analyzer.options import Options
from trace_analyzer.schema import F64, columns
from trace_analyzer.thresholds import BEYOND_ROOF_RATIO

_T = TypeVar("_T")


class MatchedDevices(NamedTuple):
    """The known properties of each device, by its code.

    ``listed`` are rows of the catalogue, ``calibrations`` are measurements on such devices, and ``models`` are the base
    of metrics: the catalogue, else the calibration, else the device assumed from kernel names; with the caller's
    figures. ``sm_counts`` are numbers of multiprocessors: of the model, or of the header where the model is only
    assumed. ``entries`` are those of the header.
    """

    listed: Mapping[int, Device | None]
    calibrations: Mapping[int, Calibration]
    models: Mapping[int, Device | None]
    sm_counts: Mapping[int, int | None]
    entries: Mapping[int, DeviceProperties | None]


def match_devices(trace: Trace, options: Options) -> MatchedDevices:
    """Match each device by the header's properties, or as the caller specifies.

    Raises ``UsageError`` for a GPU that the catalogue lacks, and ``InputError`` for an unreadable calibration.
    """
    calibrations = _calibrations(trace, options)
    listed = _listed(trace, options)
    measured = {code: calibration.device(None) for code, calibration in calibrations.items()}
    assumed = {} if options.peak_tflops or options.peak_gbps else _assumed(trace)
    models = {
        code: with_overrides(
            device or measured.get(code) or assumed.get(code), options.peak_tflops or {}, options.peak_gbps
        )
        for code, device in listed.items()
    }
    return MatchedDevices(listed, calibrations, models, _sm_counts(trace, models), _entries(trace))


def _sm_counts(trace: Trace, models: Mapping[int, Device | None]) -> dict[int, int | None]:
    """Return each device's number of multiprocessors: of its model, or of the header if the model is assumed."""
    entries = _entries(trace)
    return {
        code: (None if model is None or model.assumed else model.sm_count)
        or (None if (entry := entries[code]) is None else entry.sm_count)
        or None
        for code, model in models.items()
    }


def _entries(trace: Trace) -> dict[int, DeviceProperties | None]:
    """Return each device's entry in the header; an unknown id gets the common entry if all others are equal."""
    known = {entry.index: entry for entry in trace.header.devices}
    alike = {(e.name, e.memory_bytes, e.compute_capability, e.sm_count, e.warp_size) for e in known.values()}
    shared = trace.header.devices[0] if len(alike) == 1 else None
    return {code: known.get(label) or shared for code, label, _ in trace.devices.iter_rows()}


def _assumed(trace: Trace) -> dict[int, Device]:
    """Return the usual device of the architecture in kernel names, where the header does not name the device."""
    entries = _entries(trace)
    silent = [
        code
        for code, _, name in trace.devices.iter_rows()
        if not name and ((entry := entries[code]) is None or not (entry.name or entry.sm_count))
    ]
    kernels = trace.device_events.filter(pl.col("kind") == "kernel", pl.col("device").is_in(silent))
    calls = trace.host_events.filter(pl.col("kind").is_in(CALLS)).get_column("name").unique().cast(pl.String)
    platform = platform_of(None, calls)
    # Names that contradict the runtime are those of another vendor's device.
    known = assumed_devices(kernels).items()
    return {code: device for code, device in known if platform_of(device.vendor, calls) == platform}


def _calibrations(trace: Trace, options: Options) -> dict[int, Calibration]:
    if options.calibration == "none" or trace.devices.is_empty():
        return {}
    if options.calibration is not None:
        given = read_calibration(Path(options.calibration))
        return dict.fromkeys(trace.devices.get_column("device"), given)
    listed = known_calibrations()
    attained = {
        code: matching(listed, entry.name, entry.sm_count, entry.memory_bytes)
        for code, entry in _entries(trace).items()
        if entry is not None
    }
    return {code: calibration for code, calibration in attained.items() if calibration is not None}


def _listed(trace: Trace, options: Options) -> dict[int, Device | None]:
    """Map device codes to rows of the catalogue, by the header's properties or as the caller specifies."""
    chosen = device_named(options.gpu) if options.gpu else None
    entries = _entries(trace)
    models: dict[int, Device | None] = {}
    for code, _, name in trace.devices.iter_rows():
        entry = entries[code]
        listed = (
            None
            if entry is None
            else find_device(
                name or entry.name,
                sm_count=entry.sm_count or None,
                memory_bytes=entry.memory_bytes or None,
                compute_capability=entry.compute_capability,
                warp_size=entry.warp_size or None,
            )
        )
        models[code] = chosen or listed
    return models


def of_device(
    devices: Mapping[int, _T | None], figure: Callable[[_T], float | None], dtype: pl.DataType = F64
) -> pl.Expr:
    """Return a figure of each row's ``device``; null where it is not known."""
    known = {code: None if device is None else figure(device) for code, device in devices.items()}
    return pl.col("device").replace_strict(known, default=None, return_dtype=dtype)


def by_type(
    devices: Mapping[int, Device | None],
    dtypes: Iterable[str],
    name: str,
    figure: Callable[[Device, str, bool], float | None],
) -> pl.DataFrame:
    """Return device, dtype, matrix (tensor cores or vector units) and ``name``: a figure of known devices."""
    rows = [
        (code, dtype, matrix, figure(device, dtype, matrix))
        for code, device in devices.items()
        if device
        for dtype in dtypes
        for matrix in (True, False)
    ]
    schema = {"device": pl.Int64, "dtype": pl.String, "matrix": pl.Boolean, name: pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


# Look up the interconnect of copies and collectives with its peak, to compute the share that they reach.
#
# The peak is that of one direction over all links of the device (`trace_analyzer.catalog.devices`), for devices
# that the header identifies in the catalogue. A trace names neither slot nor board: a PCIe slot may have fewer lanes or
# an older generation than the device, in a mesh only some links lead to each peer, and ranks on other hosts are behind a
# network. The share is therefore relative to the device's maximum.

LINK = columns("""
    link str Interconnect: pcie, c2c, nvlink, xgmi or xelink; null where the device is not known.
    link_byte_per_s f64 Its peak in one direction, all links of the device together.
""")


def host_links(matched: MatchedDevices) -> pl.DataFrame:
    """Return (device, link, link_byte_per_s): the link between each known device and the host."""
    return _links(matched, "c2c", "pcie")


def peer_links(matched: MatchedDevices) -> pl.DataFrame:
    """Return (device, link, link_byte_per_s): the fastest link between each known device and its peers."""
    return _links(matched, "nvlink", "xgmi", "xelink", "pcie")


def possible_share(share: pl.Expr, most: float = BEYOND_ROOF_RATIO) -> pl.Expr:
    """Return a share of a peak; null where it is above what a device can reach."""
    return pl.when(share <= most).then(share)


def possible_rate(rate: pl.Expr, share: pl.Expr) -> pl.Expr:
    """Return a rate; null where its share of a peak is above what a device can reach: the work or the peak is wrong."""
    return pl.when((share <= BEYOND_ROOF_RATIO).fill_null(True)).then(rate)


def _links(matched: MatchedDevices, *kinds: str) -> pl.DataFrame:
    rows = [
        (code, link.kind, link.byte_per_s)
        for code, device in matched.listed.items()
        if device is not None and (link := _way(device.name, kinds)) is not None
    ]
    schema = {"device": pl.Int64, "link": pl.String, "link_byte_per_s": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _way(device: str, kinds: tuple[str, ...]) -> Interconnect | None:
    """Return the first of these kinds of interconnect that a device has in the catalogue."""
    known = {link.kind: link for link in interconnects_of(device)}
    return next((known[kind] for kind in kinds if kind in known), None)
