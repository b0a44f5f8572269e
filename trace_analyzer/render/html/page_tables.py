"""Fill the sections of the page: their rows as cells, and the place on the timeline of each."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from trace_analyzer.analyses.places import named_events
from trace_analyzer.render.declared import DeclaredSection, LaidColumn, dataclass_rows, laid_column, section_rows
from trace_analyzer.render.html.page_cells import MOST_BESIDE, MOST_ROWS, Field, Listing, listing, written_rows
from trace_analyzer.render.html.timeline_rows import device_labels
from trace_analyzer.report import BucketTime, DeviceReport, GroupTime, Report
from trace_analyzer.report.device_overview import DeviceOverview
from trace_analyzer.sections import Form, Longest, Section, Shown

# Unit of a column -> form of the page's cells.
_FORMS: dict[str, Form] = {
    "ns": "duration",
    "ratio": "ratio",
    "count": "count",
    "bytes": "bytes",
    "byte/s": "bandwidth",
    "FLOP": "flop",
    "FLOP/s": "flops",
    "FLOP/byte": "number",
}


def declared_listing(declared: DeclaredSection) -> Listing:
    """Return the rows of a section that an analysis declares; a row leads to its ``start_ns`` and ``end_ns``."""
    fields = tuple(map(_field, declared.columns))
    rows = written_rows(fields, declared.rows[:MOST_ROWS])
    return Listing(f"declared-{declared.key}", declared.section.title, fields, rows, declared.total)


def section_listing(report: Report, section: Section, rows: pl.DataFrame | None = None) -> Listing:
    """Return the top rows of the section's table, or of ``rows``, as declared; a row leads to its declared place."""
    rows = section_rows(section, report.tables[section.table] if rows is None else rows)
    if "device" in rows.columns:
        rows = rows.with_columns(_device_column(report))
    shown = [
        each for each in section.show
        if isinstance(each, Shown) and each.page and each.column in rows.columns
        and not (each.unless_zero and rows.get_column(each.column).eq(0).all())
    ]  # fmt: skip
    rows = _led(report, section.place, rows).with_columns(
        pl.col(each.column).fill_null(pl.col(each.fallback)) for each in shown if each.fallback
    )
    fields = [_field(laid_column(each, rows.schema)) for each in shown]
    return replace(
        listing(section.key, section.title, rows, fields, section.record), beside=section.beside, scope=section.scope
    )


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


def device_rows(
    report: Report, device: DeviceReport, rows: Sequence[BucketTime | GroupTime | DeviceOverview]
) -> pl.DataFrame:
    """Return rows of a device's report as a table with the device's code."""
    codes = report.tables["devices"].filter(pl.col("label") == str(device.index)).get_column("device")
    return dataclass_rows(rows).with_columns(pl.lit(codes.first(), pl.Int64).alias("device"))


def _field(column: LaidColumn) -> Field:
    """Return the column as a field of the page."""
    shown, head = column.shown, column.heading
    unit = _FORMS.get(column.unit, "number" if column.side == "r" else "text")
    return Field(shown.column, head[:1].upper() + head[1:], shown.form or unit, shown.term, shown.mark, shown.phrase)


def _led(report: Report, place: tuple[str, str] | Longest, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with ``start_ns`` and ``end_ns`` of their place."""
    if not isinstance(place, Longest):
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
