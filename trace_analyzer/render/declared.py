"""Lay out declared sections for all renderers: columns, rows and headings.

A column's unit determines how its values are written; the terminal, Markdown and the page only place the texts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import polars as pl
from msgspec import Struct
from msgspec.structs import asdict, replace

from trace_analyzer import forks, units, windows
from trace_analyzer.catalog.kernels import line_label
from trace_analyzer.render.row_phrases import PHRASES
from trace_analyzer.report import Report
from trace_analyzer.schema import Column, Table, unit_of
from trace_analyzer.sections import DEVICE_LABEL, TEXTS, Form, Section, Shown
from trace_analyzer.vocabulary import label

_WRITTEN: Mapping[str, Callable[[Any], str]] = {"times": units.factor, "fine": units.fine_percent}
"""Forms that no unit implies -> how their values are written."""

_LABELS: Mapping[str, Callable[[str], str]] = {"part": label, "line": line_label, "state": label, "group": label}
"""Forms of keys -> their labels for people."""

_UNIT_ENDINGS = {
    "_flop_per_s": "FLOP/s", "_byte_per_s": "bandwidth", "_ns": "time", "_bytes": "bytes", "_ratio": "ratio", "_percent": "percent",
}  # fmt: skip
"""Ends of names that headings leave out, as values show their unit, and the words for them where headings would be equal."""
_PLACE = ("start_ns", "end_ns")


class LaidColumn(Struct, frozen=True):
    """A column of a section with the properties from its table."""

    shown: Shown
    heading: str
    unit: str
    side: Literal["l", "r"]

    @property
    def name(self) -> str:
        """Return the column's name in its table."""
        return self.shown.column

    @property
    def form(self) -> Form:
        """Return the declared form of the values, else ``number`` for quantities and ``text`` for other values."""
        return self.shown.form or ("number" if self.side == "r" else "text")

    def value(self, row: Mapping[str, Any]) -> Any:
        """Return the row's value, or that of the fallback column where it is missing."""
        value = row[self.name]
        return row[self.shown.fallback] if value in (None, "") and self.shown.fallback else value

    def has_value(self, row: Mapping[str, Any]) -> bool:
        """Return whether the row has a value, and one other than 0 where a column of zeros is left out."""
        if self.shown.phrase:
            return self.cell(row) != "–"
        value = self.value(row) if self.name in row else None
        return value not in ((None, "", 0) if self.shown.unless_zero else (None, ""))

    def cell(self, row: Mapping[str, Any]) -> str:
        """Return the row's value as written for people; names are still those of the trace."""
        if self.shown.phrase:
            return PHRASES[self.shown.phrase](row) or "–"
        value = self.value(row)
        if self.shown.form in _LABELS and value:
            return _LABELS[self.shown.form](value)
        return _WRITTEN[self.shown.form](value) if self.shown.form in _WRITTEN else units.written(value, self.unit)


class DeclaredSection(Struct, frozen=True):
    """A section with its rows in the order of display; ``total`` includes rows that are left out."""

    key: str
    section: Section
    columns: tuple[LaidColumn, ...]
    rows: tuple[Mapping[str, Any], ...]
    total: int

    @property
    def headings(self) -> tuple[str, ...]:
        """Return the headings of the columns."""
        return tuple(column.heading for column in self.columns)

    @property
    def alignment(self) -> str:
        """Return ``r`` for each column of quantities, ``l`` for each other column."""
        return "".join(column.side for column in self.columns)

    def cells(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the row's values as written for people."""
        return tuple(column.cell(row) for column in self.columns)

    def top(self, rows: int) -> "DeclaredSection":
        """Return the section with at most ``rows`` rows, and at most its declared number."""
        return self if self.section.whole else replace(self, rows=self.rows[: min(rows, self.section.rows or rows)])

    def for_terminal(self, width: int) -> "DeclaredSection":
        """Return the section with the columns that a terminal of ``width`` cells shows, in their order.

        A long name comes last, where it can be cut. Before it come the figures, then words, in each case first those
        that narrow terminals also show.
        """
        columns = [column for column in self.columns if column.shown.terminal is not None]
        columns = [column for column in columns if width >= (column.shown.terminal or 0)]
        if any(column.shown.form == "name" for column in columns):
            columns.sort(key=lambda c: (c.shown.form == "name", c.side == "l", c.shown.terminal))
        return replace(self, columns=tuple(columns))

    def for_markdown(self) -> "DeclaredSection":
        """Return the section with the columns that Markdown shows."""
        return replace(self, columns=tuple(column for column in self.columns if column.shown.markdown))


def declared_sections(report: Report) -> tuple[DeclaredSection, ...]:
    """Return the sections that the report's analyses declare, in their order, without empty ones."""
    return tuple(
        _laid_out(declared.table, rows, declared.section, len(report.devices) > 1)
        for declared in report.declared
        if declared.section is not None and (rows := declared_rows(report, declared.table, declared.section.sort))
    )


def declared_rows(report: Report, table: Table, sort: tuple[str, ...] = ()) -> tuple[dict[str, Any], ...]:
    """Return the rows of a table of the report in a section's order, with the devices' ids instead of their codes."""
    rows = sorted_rows(report.tables[table.name], sort).to_dicts()
    ids = windows.device_ids(report.tables["devices"])
    return tuple(row | {"device": ids.get(row["device"])} if "device" in row else row for row in rows)


def table_section(section: Section, table: pl.DataFrame | None, rows: int) -> DeclaredSection | None:
    """Return the section with at most ``rows`` rows, and at most its declared number; None without rows."""
    table = None if table is None or table.is_empty() else section_rows(section, table)
    if table is None or table.is_empty():
        return None
    top = tuple(table.head(min(rows, section.rows or rows)).to_dicts())
    return _with_rows(section, table.schema, top, table.height)


def row_section(section: Section, rows: Sequence[Mapping[str, Any]]) -> DeclaredSection | None:
    """Return the section with all of these rows, in their order; None without rows."""
    return _with_rows(section, {}, tuple(rows), len(rows)) if rows else None


def record_rows(rows: Sequence[Struct]) -> pl.DataFrame:
    """Return records as a table; a column without any value has type Null."""
    return pl.DataFrame([asdict(row) for row in rows], infer_schema_length=None)


def section_rows(section: Section, table: pl.DataFrame) -> pl.DataFrame:
    """Return the table's rows that the section shows, in its order. Raises ``ForkedError`` where Polars would hang."""
    forks.check()
    is_shown = [pl.col(column) == value for column, value in section.only]
    is_known = [pl.col(column).is_not_null() for column in section.known]
    return sorted_rows(table.filter(*is_shown, *is_known), section.sort)


def sorted_rows(table: pl.DataFrame, sort: tuple[str, ...]) -> pl.DataFrame:
    """Return the table's rows in a section's order; those without a value come last."""
    if not sort:
        return table
    names = [name.removeprefix("-") for name in sort]
    return table.sort(names, descending=[name.startswith("-") for name in sort], nulls_last=True, maintain_order=True)


def laid_column(shown: Shown, schema: Mapping[str, pl.DataType]) -> LaidColumn:
    """Return the column with its properties from a table's schema.

    A column that the table lacks gets its type from its form, and its unit from its name; one without values is a
    figure.
    """
    is_figure = (shown.form and shown.form not in TEXTS) or unit_of(shown.column)
    dtype = schema.get(shown.column, pl.Float64() if is_figure else pl.String())
    return _laid_column(shown, Column(shown.column, pl.Float64() if dtype == pl.Null else dtype, ""))


def headings(names: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return distinct headings of columns: the ``given`` ones; for "", the name as words without its unit.

    Headings that would be equal have a word for the unit; where that is not enough, the whole name.

    >>> headings(["busy_ns", "busy_ratio", "idle_ns"], ["", "", ""])
    ['Busy time', 'Busy ratio', 'Idle']
    """

    def forms(name: str) -> tuple[str, str, str]:
        ending = next((ending for ending in _UNIT_ENDINGS if name.endswith(ending)), "")
        words = name.removesuffix(ending).replace("_", " ").replace("flop", "FLOP")
        words = words[:1].upper() + words[1:]
        return words, f"{words} {_UNIT_ENDINGS[ending]}" if ending else words, name

    written = [(heading,) if heading else forms(name) for name, heading in zip(names, given, strict=True)]
    for rank in (0, 1, 2):
        shown = [each[min(rank, len(each) - 1)] for each in written]
        # A column whose heading is its own keeps it: its longer forms are never needed.
        written = [(head,) if shown.count(head) == 1 else each for head, each in zip(shown, written, strict=True)]
    return [each[-1] for each in written]


def _laid_column(shown: Shown, column: Column) -> LaidColumn:
    is_figure = column.dtype.is_numeric() and column.name != "device" and shown.form not in TEXTS
    side: Literal["l", "r"] = "r" if is_figure else "l"
    return LaidColumn(shown, headings([column.name], [shown.heading])[0], column.unit or "", side)


def _distinct(columns: Sequence[LaidColumn]) -> tuple[LaidColumn, ...]:
    """Return the columns with distinct headings, except for those that a section gives."""
    distinct = headings([column.name for column in columns], [column.shown.heading for column in columns])
    return tuple(replace(column, heading=heading) for column, heading in zip(columns, distinct, strict=True))


def _with_rows(
    section: Section, schema: Mapping[str, pl.DataType], rows: tuple[Mapping[str, Any], ...], total: int
) -> DeclaredSection:
    columns = _distinct([laid_column(shown, schema) for shown in section.show if isinstance(shown, Shown)])
    return DeclaredSection(section.title, section, _with_values(columns, rows), rows, total)


def _with_values(columns: Iterable[LaidColumn], rows: Sequence[Mapping[str, Any]]) -> tuple[LaidColumn, ...]:
    """Return the columns with a value in any of the rows."""
    return tuple(column for column in columns if any(map(column.has_value, rows)))


def _laid_out(
    table: Table, rows: tuple[Mapping[str, Any], ...], section: Section, several_devices: bool
) -> DeclaredSection:
    by_name = {column.name: column for column in table.columns}
    named = section.show or tuple(name for name in by_name if name not in _PLACE)
    shown = [Shown(each, terminal=0, markdown=True) if isinstance(each, str) else each for each in named]
    # These rows have the devices' ids in column device.
    shown = [replace(each, column="device") if each.column == DEVICE_LABEL.column else each for each in shown]
    if all(each.terminal is None and not each.markdown for each in shown):
        shown = [replace(each, terminal=0, markdown=True) for each in shown]
    columns = _distinct([_laid_column(each, by_name[each.column]) for each in shown])
    columns = tuple(column for column in columns if column.name != "device" or several_devices)
    columns = _with_values(columns, rows)
    return DeclaredSection(table.name, section, columns, rows, len(rows))
