"""Look up the interconnect of copies and collectives with its peak, to compute the share that they reach.

The peak is that of one direction over all links of the device (`trace_analyzer.catalog.devices`), for devices
that the header identifies in the catalogue. A trace names neither slot nor board: a PCIe slot may have fewer lanes or
an older generation than the device, in a mesh only some links lead to each peer, and ranks on other hosts are behind a
network. The share is therefore relative to the device's maximum.
"""

from collections.abc import Mapping

import polars as pl

from trace_analyzer.analyses.device_models import MatchedDevices
from trace_analyzer.catalog.devices import Device, Interconnect, interconnects_of
from trace_analyzer.schema import F64, STR, Column

LINK = (
    Column("link", STR, "Interconnect: pcie, c2c, nvlink, xgmi or xelink; null where the device is not known."),
    Column("link_byte_per_s", F64, "Its peak in one direction, all links of the device together."),
)

_TO_HOST = ("c2c", "pcie")
_TO_PEER = ("nvlink", "xgmi", "xelink", "pcie")


def host_links(matched: MatchedDevices) -> pl.DataFrame:
    """Return (device, link, link_byte_per_s): the link between each known device and the host."""
    return _links(matched.listed, _TO_HOST)


def peer_links(matched: MatchedDevices) -> pl.DataFrame:
    """Return (device, link, link_byte_per_s): the fastest link between each known device and its peers."""
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
    """Return the first of these kinds of interconnect that a device has in the catalogue."""
    known = {link.kind: link for link in interconnects_of(device)}
    return next((known[kind] for kind in kinds if kind in known), None)


__all__ = ["LINK", "host_links", "peer_links"]
