"""Look up the bandwidth between a device and its peers or the host, with the source of each figure.

The figures are in ``interconnects.toml``, whose header comment defines them.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from trace_analyzer.catalog.documents import document

Kind = Literal["nvlink", "xgmi", "xelink", "c2c", "pcie"]


@dataclass(frozen=True, kw_only=True)
class Interconnect:
    """Hold an interconnect of some devices; ``gbps`` is the peak per direction over all its links, GB/s (1e9)."""

    kind: Kind
    devices: tuple[str, ...]
    gbps: float
    links: int
    source: str

    @property
    def byte_per_s(self) -> float:
        """Return the peak per direction, byte/s."""
        return self.gbps * 1e9


@cache
def interconnects() -> tuple[Interconnect, ...]:
    """Return all rows of the catalogue in order."""
    rows = document("interconnects.toml")["interconnect"]
    return tuple(Interconnect(**{**row, "devices": tuple(row["devices"])}) for row in rows)


def interconnects_of(device: str) -> tuple[Interconnect, ...]:
    """Return the interconnects of a device by its name in the catalogue, fastest first; empty for unknown names."""
    return tuple(sorted((row for row in interconnects() if device in row.devices), key=lambda row: -row.gbps))
