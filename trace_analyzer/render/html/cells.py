"""Write the tables of the report's page as cells: their text, their sort value, and the place that they lead to.

`assets/page.html.j2` lays out a `Listing`, and `assets/page.js` sorts and filters it. It contains the top rows of a table
of the report and the number of rows left out, which the page shows.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl
from msgspec import Struct
from msgspec.structs import replace
from polars import selectors as cs

from trace_analyzer import sections, units
from trace_analyzer.analyses.chart_data import named_events
from trace_analyzer.render.declared import LaidColumn, laid_column, section_rows
from trace_analyzer.render.html.tracks import device_labels
from trace_analyzer.render.layout import column_widths
from trace_analyzer.render.names import distinguishing_arguments, short_name
from trace_analyzer.report import DeviceReport, Report
from trace_analyzer.report.summaries import device_code
from trace_analyzer.vocabulary import ACTIVITIES, CPU_OPERATORS, GROUPS, Group, label

KINDS: Mapping[str, Group] = {**GROUPS, **ACTIVITIES, **CPU_OPERATORS}
"""Kinds of activities on the timeline, and of operators of a run on the CPU."""

MOST_ROWS = 100
MOST_BESIDE = 6
MANY, FEW = 10, 5
"""Number of columns from which headings wrap, and up to which a table takes half of the page's width."""
SHOWN_ROWS = 12
ROOM, HALF_ROOM = 134, 63
"""Characters per row of a table in a window of 1,280 pixels: at full width, and at half of it."""
SWATCH, SHARE = "xx", 15
LONG_NAME, NAME_END, ALIKE = 18, 11, 3
"""Characters of a name: length from which it may be cut, of its visible end, and before the first difference."""

NAMES = ("name", "text", "word", "code", "frame", "module")
"""Forms of texts, which are cut where they do not fit."""
LONG_NAMES = ("name", "frame", "module")
"""Forms of names whose end stays visible, as similar names differ there."""

_FRAME = re.compile(r"(?:.*[/\\\\])?([^/\\\\]+\(\d+\)): (.+)")


class Span(NamedTuple):
    """A place on the timeline to which a click leads."""

    start_ns: int
    end_ns: int


class Cell(Struct, frozen=True):
    """A value as written for people, its sort value (None: last), and its full text if it is shortened."""

    text: str
    sort: int | float | str | None
    full: str = ""
    key: str = ""
    head: str = ""
    end: str = ""
    """Second part of a long name, whose beginning stays visible because it distinguishes similar names; the first
    part is cut where it does not fit."""


class Row(Struct, frozen=True):
    """Cells in the order of the listing's columns."""

    cells: tuple[Cell, ...]
    span: Span | None


class Listing(Struct, frozen=True, dict=True):
    """A table of the page; ``total`` is its number of rows, ``record`` what to record if there are none.

    ``scope`` names what the figures cover. With ``beside``, rows are shown as columns, with the first column on top.
    """

    key: str
    title: str
    columns: tuple[LaidColumn, ...]
    rows: tuple[Row, ...]
    total: int
    record: str = ""
    beside: bool = False
    scope: str = ""

    @cached_property
    def is_wide(self) -> bool:
        """Return whether the table takes the page's whole width.

        It does with many columns, or where half of the width would cut several texts.
        """
        if self.beside:
            return len(self.rows) > 2
        is_cut = any(2 * room < len(text) for room, text in zip(self._room_of(HALF_ROOM), self._longest, strict=True))
        return len(self.columns) > FEW or (is_cut and len([each for each in self.columns if each.form in NAMES]) > 2)

    @property
    def room(self) -> tuple[int, ...]:
        """Return the characters of each column in a window of 1,280 pixels.

        Figures are never cut, and texts share the rest.
        """
        return self._room_of(ROOM if self.is_wide else HALF_ROOM)

    @cached_property
    def _longest(self) -> list[str]:
        return [
            max((_room_text(row.cells[place], column) for row in self.rows), key=len, default="")
            for place, column in enumerate(self.columns)
        ]

    def _room_of(self, room: int) -> tuple[int, ...]:
        is_dense = len(self.columns) >= MANY
        heads = [each.heading if is_dense else each.heading.replace(" ", "_") for each in self.columns]
        sides = "".join("l" if each.form in NAMES else "r" for each in self.columns)
        return tuple(column_widths([heads, self._longest], sides, room, 1 if is_dense else 2))

    @property
    def left_out(self) -> int:
        """Return the number of rows of the report that are not on the page."""
        return self.total - len(self.rows)


def _room_text(cell: Cell, column: LaidColumn) -> str:
    """Return a text as long as the content of the cell, including the sign of its colour, or the bar of a share."""
    return cell.text.ljust(SHARE) if column.form == "share" else f"{SWATCH if cell.key else ''}{cell.text}"


def listing(
    key: str, title: str, columns: Sequence[LaidColumn], rows: Sequence[Mapping[str, Any]], total: int, record: str = ""
) -> Listing:
    """Return the first of these rows as a table; a row leads to its ``start_ns`` and ``end_ns``."""
    written = tuple(_row(columns, row) for row in rows[:MOST_ROWS])
    for place in (place for place, column in enumerate(columns) if column.form in LONG_NAMES):
        if columns[place].form == "name":
            written = _distinct(written, place)
        cuts = distinguishing_cuts(row.cells[place].text for row in written)
        written = tuple(_with_end(row, place, cuts) for row in written)
    headed = tuple(replace(column, heading=units.capitalized(column.heading)) for column in columns)
    return Listing(key, title, headed, written, total, record)


def _distinct(rows: tuple[Row, ...], place: int) -> tuple[Row, ...]:
    """Return rows with distinct short names for distinct names."""
    cells = [row.cells[place] for row in rows]
    endings = distinguishing_arguments((str(cell.sort), cell.text) for cell in cells if cell.full)
    named = (
        replace(cell, text=f"{cell.text}, {endings[cell.sort]}") if cell.full and cell.sort in endings else cell
        for cell in cells
    )
    return tuple(
        replace(row, cells=(*row.cells[:place], cell, *row.cells[place + 1 :]))
        for row, cell in zip(rows, named, strict=True)
    )


def _with_end(row: Row, place: int, cuts: Mapping[str, int]) -> Row:
    cell = row.cells[place]
    end = cell.text[cuts.get(cell.text, len(cell.text)) :]
    named = replace(cell, head=cell.text[: len(cell.text) - len(end)], end=end)
    return replace(row, cells=(*row.cells[:place], named, *row.cells[place + 1 :]))


def distinguishing_cuts(names: Iterable[str]) -> dict[str, int]:
    """Return where to cut each long name in two, so that the second parts of similar names differ.

    The second part is the end or, for names with equal beginnings and ends, the part from shortly before the first
    difference.
    """
    by_head: dict[str, list[str]] = {}
    for name in sorted({name for name in names if len(name) > LONG_NAME}):
        by_head.setdefault(name[:NAME_END], []).append(name)
    cuts: dict[str, int] = {}
    for like in by_head.values():
        ends = Counter(name[-NAME_END:] for name in like)
        cuts |= {name: len(name) - NAME_END for name in like}
        cuts |= _at_the_difference([name for name in like if ends[name[-NAME_END:]] > 1])
    return cuts


def _at_the_difference(alike: Sequence[str]) -> dict[str, int]:
    """Return a common cut shortly before the first difference of sorted names.

    Names that are still alike get a later one.
    """
    if not alike:
        return {}
    least, most = alike[0], alike[-1]
    same = next((place for place, pair in enumerate(zip(least, most, strict=False)) if pair[0] != pair[1]), len(least))
    cut = max(0, same - ALIKE)
    by_part: dict[str, list[str]] = {}
    for name in alike:
        by_part.setdefault(name[cut : cut + NAME_END - 1], []).append(name)
    cuts = dict.fromkeys(alike, cut)
    for part in by_part.values():
        cuts |= _at_the_difference(part) if len(part) > 1 else {}
    return cuts


def _row(columns: Sequence[LaidColumn], row: Mapping[str, Any]) -> Row:
    start, end = row.get("start_ns"), row.get("end_ns")
    span = None if start is None or end is None else Span(start, end)
    return Row(tuple(_cell(column, row) for column in columns), span)


def _cell(column: LaidColumn, row: Mapping[str, Any]) -> Cell:
    value = row[column.name]
    write = _CELLS.get(column.form)
    cell = write(value) if write and not column.shown.phrase else Cell(column.cell(row), value)
    return replace(cell, key=row[column.shown.mark] or "other") if column.shown.mark else cell


def _name_cell(value: str | None) -> Cell:
    label = short_name(value) if value else "–"
    return Cell(label, value, value if value and label != value else "")


def _frame_cell(value: str | None) -> Cell:
    """Write ``dir/file.py(12): function`` as ``function · file.py(12)``."""
    match = _FRAME.fullmatch(value or "")
    return Cell(f"{match[2]} · {match[1]}", value, value or "") if match else _name_cell(value)


def _module_cell(value: str | None) -> Cell:
    """Return the end of a module's path, which distinguishes it."""
    parts = (value or "").split("/")
    return Cell("… / " + " / ".join(parts[-2:]), value, value or "") if len(parts) > 2 else _text_cell(value)


def _text_cell(value: Any) -> Cell:
    return Cell("–" if value in (None, "") else str(value), value)


def _code_cell(value: str | None) -> Cell:
    """Return the code without its comment; the full text includes it."""
    code = (value or "").partition("  #")[0].rstrip()
    return Cell(code, value, value or "") if code and code != value else _text_cell(value)


def _part_cell(value: str | None) -> Cell:
    return Cell("–", None) if value is None else Cell(label(value), value, key=value)


def _group_cell(value: str | None) -> Cell:
    word = KINDS.get(value or "other")
    return Cell(word.label if word else str(value), value, key=value or "other")


_CELLS: Mapping[str, Callable[[Any], Cell]] = {
    "name": _name_cell,
    "text": _text_cell,
    "word": _text_cell,
    "code": _code_cell,
    "frame": _frame_cell,
    "module": _module_cell,
    "part": _part_cell,
    "state": _part_cell,
    "group": _group_cell,
}
"""Forms of texts whose cells have more than their text."""


def section_listing(report: Report, section: sections.Section, rows: pl.DataFrame | None = None) -> Listing:
    """Return the top rows of the section's table, or of ``rows``, as declared; a row leads to its declared place."""
    rows = section_rows(section, report.tables[section.table] if rows is None else rows)
    if "device" in rows.columns:
        rows = rows.with_columns(_device_column(report))
    shown = [
        each for each in section.show
        if isinstance(each, sections.Shown) and each.page and each.column in rows.columns
        and not (each.unless_zero and rows.get_column(each.column).eq(0).all())
    ]  # fmt: skip
    rows = _led(report, section.place, rows).with_columns(
        pl.col(each.column).fill_null(pl.col(each.fallback)) for each in shown if each.fallback
    )
    empty = rows.with_columns(cs.string().replace("", None)).null_count().row(0, named=True)
    columns = [laid_column(each, rows.schema) for each in shown if empty[each.column] < rows.height]
    top = rows.head(MOST_ROWS).to_dicts()
    other = report.trace.profiler
    record = section.record if other is None else f"Not known from a recording of {other}."
    made = listing(section.key, section.title, columns, top, rows.height, record)
    return replace(made, beside=section.beside, scope=section.scope)


def pieces_beside(table: Listing, most: int = MOST_BESIDE) -> tuple[Listing, ...]:
    """Return tables of at most ``most`` rows, for rows that are shown as columns next to each other."""
    starts = range(0, len(table.rows), most)
    first, *rest = (
        replace(table, rows=table.rows[at : at + most], total=min(most, len(table.rows) - at)) for at in starts
    )
    more = (
        replace(each, key=f"{table.key}-{place}", title=f"{table.title}, {place}") for place, each in enumerate(rest, 2)
    )
    return (replace(first, total=first.total + table.left_out), *more)


def device_rows(report: Report, device: DeviceReport, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of a device's report with the device's code."""
    return rows.with_columns(pl.lit(device_code(report, device.index), pl.Int64).alias("device"))


def _led(report: Report, place: tuple[str, str] | sections.Longest, rows: pl.DataFrame) -> pl.DataFrame:
    if not isinstance(place, sections.Longest):
        return rows.rename({old: new for old, new in zip(place, ("start_ns", "end_ns"), strict=True) if old != new})
    events, keys = report.tables[place.table], list(place.keys)
    if place.kind:
        events = events.filter(kind=place.kind)
    if place.prefix:
        name = pl.col("name")
        events = events.filter(name.str.starts_with(place.prefix)).with_columns(
            name.str.strip_prefix(place.prefix).alias(keys[-1])
        )
    on_page = events.join(rows.head(MOST_ROWS), on=keys, how="semi", nulls_equal=True)
    return named_events(on_page, rows, keys)


def _device_column(report: Report) -> pl.Expr:
    """Return the device's label, or null (which leaves the column out) for a single device."""
    labels = device_labels(report)
    if len(labels) < 2:
        return pl.lit(None, pl.String).alias("device_label")
    return pl.col("device").replace_strict(labels, default="GPU", return_dtype=pl.String).alias("device_label")
