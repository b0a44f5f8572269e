"""Lay out the sections that analyses declare, for all renderers: which columns and rows, under which headings.

How a value is written follows from its column's unit; the terminal, Markdown and the page only place the texts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trace_analyzer import units
from trace_analyzer.report import DeclaredRows, Report
from trace_analyzer.schema import Column
from trace_analyzer.sections import Section

_UNIT_ENDINGS = ("_flop_per_s", "_byte_per_s", "_ns", "_bytes", "_ratio", "_percent")
_PLACE = ("start_ns", "end_ns")


@dataclass(frozen=True)
class DeclaredSection:
    """Hold a declared section with its rows, in the order of display."""

    key: str
    section: Section
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]

    @property
    def headings(self) -> tuple[str, ...]:
        """Return what stands over each column."""
        return tuple(heading(column) for column in self.columns)

    @property
    def alignment(self) -> str:
        """Return ``r`` for each column of quantities, ``l`` for each other."""
        return "".join("r" if column.dtype.is_numeric() and column.name != "device" else "l" for column in self.columns)

    def cells(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the row's values as people read them; names are still those of the trace."""
        return tuple(units.written(row[column.name], column.unit or "") for column in self.columns)


def declared_sections(report: Report) -> tuple[DeclaredSection, ...]:
    """Return the sections that the report's analyses declare, in their order; those without rows are left out."""
    return tuple(
        _laid_out(declared, declared.section, len(report.devices) > 1)
        for declared in report.declared
        if declared.section is not None and declared.rows
    )


def heading(column: Column) -> str:
    """Return the heading of a column: its name as words, without the unit that its values show."""
    name = column.name
    ending = next((ending for ending in _UNIT_ENDINGS if name.endswith(ending)), "")
    words = name.removesuffix(ending).replace("_", " ").replace("flop", "FLOP")
    return words[:1].upper() + words[1:]


def _laid_out(declared: DeclaredRows, section: Section, several_devices: bool) -> DeclaredSection:
    by_name = {column.name: column for column in declared.table.columns}
    shown = section.show or tuple(name for name in by_name if name not in _PLACE)
    columns = tuple(by_name[name] for name in shown if name != "device" or several_devices)
    return DeclaredSection(declared.table.name, section, columns, _ordered(declared.rows, section.sort))


def _ordered(rows: tuple[Mapping[str, Any], ...], sort: str | None) -> tuple[Mapping[str, Any], ...]:
    """Sort rows, those with the largest value of the column first and those without any last."""
    if sort is None:
        return rows
    known = [row for row in rows if row[sort] is not None]
    return (*sorted(known, key=lambda row: row[sort], reverse=True), *(row for row in rows if row[sort] is None))
