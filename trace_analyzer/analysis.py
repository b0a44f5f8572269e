"""Declare analyses: the table that each makes, its function, the metrics that it rests on, and where its rows show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import polars as pl

from trace_analyzer.schema import Table
from trace_analyzer.sections import DEVICE_LABEL, Section
from trace_analyzer.tuning import dataclass

Hide = Callable[[Any, Sequence[int]], Any]
"""Hide the values of some devices, by their codes: the value with everything, and those devices -> the value without."""


def without_devices(frame: pl.DataFrame, devices: Sequence[int]) -> pl.DataFrame:
    """Return the rows of the other devices."""
    return frame.filter(~pl.col("device").is_in(list(devices)))


@dataclass(frozen=True)
class Value:
    """Declare a value that analyses share: a table that is not public, or any object.

    The parameters of ``make`` name the values that it is made from; ``takes`` maps those that are called otherwise to their
    value's name. ``needs`` are metrics (`trace_analyzer.metrics`): of devices for which a failed check suppresses one of
    them, ``hide`` leaves out what rests on it, and only the value's name with ``unmasked_`` before it still has that.
    """

    name: str
    make: Callable[..., Any]
    takes: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    hide: Hide = without_devices


@dataclass(frozen=True)
class Analysis:
    """Declare a public table, what makes it, and where it shows; the fields that `Value` has mean the same.

    ``json`` is the place of its rows in the JSON report, such as ``copies``, or ``devices[].copies`` for those of each
    device: None for tables whose figures the report's own dataclasses carry. ``section`` lays it out for the terminal,
    Markdown and the page, behind the sections that these place themselves: ``placed`` are those of this table.
    """

    table: Table
    make: Callable[..., pl.DataFrame]
    takes: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    hide: Hide = without_devices
    json: str | None = None
    section: Section | None = None
    placed: tuple[Section, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a section that shows or sorts by columns that the table lacks. Raises ``ValueError``."""
        if self.section is not None and not self.section.table:
            columns = {*self.table.schema, DEVICE_LABEL.column}
            shown = (each if isinstance(each, str) else each.column for each in self.section.show)
            if unknown := sorted({*shown, *(name.removeprefix("-") for name in self.section.sort)} - columns):
                raise ValueError(
                    f"section {self.section.title!r} shows {', '.join(unknown)}, and table {self.table.name} has {', '.join(self.table.schema)}"
                )

    @property
    def name(self) -> str:
        """Return the table's name."""
        return self.table.name


Declaration = Analysis | Value

__all__ = ["Analysis", "Declaration", "Hide", "Value", "without_devices"]
