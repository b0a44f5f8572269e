"""State what a replay reads of an analysed trace."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import polars as pl

from trace_analyzer.report import Check, DeviceReport


class Analysed(Protocol):
    """Hold an analysed trace: a `Report`, or the values of an analysis that is not finished."""

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Return the tables by name."""

    @property
    def trust(self) -> Sequence[Check]:
        """Return the checks of what the trace supports."""

    @property
    def devices(self) -> Sequence[DeviceReport]:
        """Return the figures of devices."""
