"""Declare analyses: the table that each makes, its function, the metrics that it needs, and where its rows are shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from trace_analyzer.schema import Table
from trace_analyzer.sections import DEVICE_LABEL, Longest, Section

# Metrics that a failed check of the trace can suppress.
BUSY_RATIO = "busy_ratio"
PARTITION = "partition"
"""Busy parts and idle causes of the device: the verdict's input."""
CAUSES_OF_IDLE = "idle_causes"
"""Causes of idle time, and its attribution to operators and modules."""
RUN_AHEAD = "run_ahead"
"""Launch lead, queue depth and queued work."""
KERNEL_TIMES = ("buckets", "groups", "bounds", "fusions", "tensor_cores")
"""Metrics that sum durations of kernels."""
UTILIZATION = ("mfu", "hfu")
"""FLOP/s utilization of the device and of its steps."""
MOVEMENTS = ("communication", "copies")
"""Exposed time and rates."""
ALL_METRICS = (BUSY_RATIO, PARTITION, CAUSES_OF_IDLE, RUN_AHEAD, *KERNEL_TIMES, *UTILIZATION, *MOVEMENTS)
"""Every metric that a failed check can suppress."""

Hide = Callable[[Any, Sequence[int]], Any]
"""Type of a function that takes a value and codes of devices, and returns the value without these devices."""


def without_devices(frame: pl.DataFrame, devices: Sequence[int]) -> pl.DataFrame:
    """Return the rows of all other devices."""
    return frame.filter(~pl.col("device").is_in(list(devices)))


@dataclass(frozen=True)
class Value:
    """Declare a value that several analyses use: a table that is not public, or any object.

    The parameters of ``make`` name the values that it is made from; ``takes`` maps each parameter with another name to
    its value's name. ``needs`` lists metrics (`ALL_METRICS`). Where a failed check suppresses one of them
    for a device, ``hide`` removes the results of that device; the full value remains under the name ``unmasked_...``.
    ``cost`` is that of its `trace_analyzer.graph.Node`.
    """

    name: str
    make: Callable[..., Any]
    takes: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    hide: Hide = without_devices
    cost: int = 1


@dataclass(frozen=True)
class Analysis:
    """Declare a public table, the function that makes it, and where it is shown; fields of `Value` keep their meaning.

    ``json`` is the place of its rows in the JSON report: for example ``copies``, or ``devices[].copies`` for the rows
    of each device. It is None for tables whose figures are fields of the report's own dataclasses. ``section`` lays the
    table out for the terminal, Markdown and the page, after the sections that these outputs place themselves;
    ``placed`` are the table's sections of that kind.
    """

    table: Table
    make: Callable[..., pl.DataFrame]
    takes: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    hide: Hide = without_devices
    cost: int = 1
    json: str | None = None
    section: Section | None = None
    placed: tuple[Section, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a section with columns that the table lacks. Raises ``ValueError``."""
        if self.section is not None and not self.section.table:
            columns = {*self.table.schema, *([DEVICE_LABEL.column] if "device" in self.table.schema else [])}
            shown = (each if isinstance(each, str) else each.column for each in self.section.show)
            sort = (name.removeprefix("-") for name in self.section.sort)
            keys = self.section.place.keys if isinstance(self.section.place, Longest) else ()
            if unknown := sorted({*shown, *sort, *keys} - columns):
                raise ValueError(
                    f"section {self.section.title!r} shows {', '.join(unknown)}, and table {self.table.name} has {', '.join(self.table.schema)}"
                )

    @property
    def name(self) -> str:
        """Return the table's name."""
        return self.table.name


Declaration = Analysis | Value
