"""Infer the architecture of a device from the names of its kernels, where the trace does not name the device.

The rules are data, in ``architectures.toml``.
"""

from dataclasses import dataclass, replace
from functools import cache

import polars as pl

from trace_analyzer.catalog.devices import Device, devices
from trace_analyzer.catalog.documents import document
from trace_analyzer.catalog.kernels import NAME_LIMIT
from trace_analyzer.catalog.patterns import matches


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Hold the name pattern of an architecture's kernels, and the device whose roofs represent it."""

    id: str
    device: str
    name: str
    examples: tuple[str, ...]


@cache
def architectures() -> tuple[Architecture, ...]:
    """Return all architectures, oldest first."""
    return tuple(
        Architecture(**{**row, "examples": tuple(row["examples"])})
        for row in document("architectures.toml")["architecture"]
    )


def architecture_of(kernels: pl.Series) -> Architecture | None:
    """Return the newest architecture among those that kernel names contain; None without any."""
    names = pl.DataFrame({"name": kernels.unique()}, schema={"name": pl.String})
    head = pl.col("name").str.head(NAME_LIMIT)
    named = names.select(matches(head, row.name).any().alias(row.id) for row in architectures())
    if names.is_empty():
        return None
    return next((row for row in reversed(architectures()) if named.get_column(row.id).item()), None)


def assumed_device(kernels: pl.Series) -> Device | None:
    """Return the usual device of the architecture that kernel names contain, marked as assumed."""
    architecture = architecture_of(kernels)
    if architecture is None:
        return None
    usual = next(device for device in devices() if device.name == architecture.device)
    return replace(usual, assumed=True)
