"""Look up the interconnect that copies and collectives go over, with its peak, to say what share of it they reached.

The peak is that of one direction over all links of the device (`trace_analyzer.catalog.interconnects`), for devices that the
catalogue knows by the header. A trace names neither slot nor board: a PCIe slot may have fewer lanes or an older
generation than the device, a mesh of links leads to each peer over some of them, and ranks on other hosts are behind a network. So
the share is of what the device could do at most.
"""

from collections.abc import Mapping

import polars as pl

from trace_analyzer.analyses.device_models import MatchedDevices
from trace_analyzer.catalog.devices import Device
from trace_analyzer.catalog.interconnects import Interconnect, interconnects_of
from trace_analyzer.schema import F64, STR, Column

LINK = (
    Column("link", STR, "Interconnect: pcie, c2c, nvlink, xgmi or xelink; null where the device is not known."),
    Column("link_byte_per_s", F64, "Its peak in one direction, all links of the device together."),
)

_TO_HOST = ("c2c", "pcie")
_TO_PEER = ("nvlink", "xgmi", "xelink", "pcie")


def host_links(matched: MatchedDevices) -> pl.DataFrame:
    """Return (device, link, link_byte_per_s): the way between each known device and the host."""
    return _links(matched.listed, _TO_HOST)


def peer_links(matched: MatchedDevices) -> pl.DataFrame:
    """Return (device, link, link_byte_per_s): the fastest way between each known device and its peers."""
    return _links(matched.listed, _TO_PEER)


def _links(devices: Mapping[int, Device | None], kinds: tuple[str, ...]) -> pl.DataFrame:
    rows = [
        (code, link.kind, link.byte_per_s)
        for code, device in devices.items()
        if device is not None and (link := _way(device.name, kinds)) is not None
    ]
    schema = {"device": pl.Int64, "link": pl.String, "link_byte_per_s": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _way(device: str, kinds: tuple[str, ...]) -> Interconnect | None:
    """Return the first of these kinds that a device of the catalogue has."""
    known = {link.kind: link for link in interconnects_of(device)}
    return next((known[kind] for kind in kinds if kind in known), None)


__all__ = ["LINK", "host_links", "peer_links"]
