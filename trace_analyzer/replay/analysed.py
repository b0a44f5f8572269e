"""Define what a replay needs from an analysed trace."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import polars as pl

from trace_analyzer.report import Check, DeviceReport


class Analysed(Protocol):
    """Provide an analysed trace: a `Report`, or the values of an unfinished analysis."""

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Return the tables by name."""

    @property
    def trust(self) -> Sequence[Check]:
        """Return the checks of the trace's data."""

    @property
    def devices(self) -> Sequence[DeviceReport]:
        """Return the figures of devices."""
