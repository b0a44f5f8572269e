"""List all declared analyses, those of single questions and the replay, which uses them, and the JSON Schema of their report."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields

import polars as pl

from trace_analyzer.added_analyses import added_analyses
from trace_analyzer.analyses import registry
from trace_analyzer.analyses.registry import TRACE_TABLES
from trace_analyzer.analysis import Analysis, Declaration
from trace_analyzer.json_types import DRAFT, Schema, TypeSchemas, field_docs
from trace_analyzer.replay import critical_path, estimates
from trace_analyzer.report import SCHEMA_VERSION, DeviceReport, GroupTime, Report, Shares
from trace_analyzer.schema import Column
from trace_analyzer.sections import Section

OWN_ANALYSES: tuple[Declaration, ...] = (
    *registry.ANALYSES,
    *estimates.ANALYSES,
    *critical_path.ANALYSES,
)
"""Analyses of this package."""

_GIVEN = ("trace", "options", "matched_devices", "device_models", "capture_executions")
_PLACES = (
    *(field.name for field in fields(Report)),
    *(f"devices[].{field.name}" for field in fields(DeviceReport)),
)

ADDED_ANALYSES = added_analyses(OWN_ANALYSES, (*_GIVEN, *(table.name for table in TRACE_TABLES)), _PLACES)
"""Analyses of plug-ins."""

ANALYSES: tuple[Declaration, ...] = (*OWN_ANALYSES, *ADDED_ANALYSES)
"""Every table and value of the analyses, in the order of the reference of their tables."""

TABLES = (*(declared.table for declared in ANALYSES if isinstance(declared, Analysis)), *TRACE_TABLES)
"""The tables of a report, in the order of the reference."""

SECTIONS: Mapping[str, Section] = {
    section.key: section for declared in OWN_ANALYSES if isinstance(declared, Analysis) for section in declared.placed
}
"""Sections with a fixed place in renderers, by key."""


_CLOSED = (Shares, GroupTime)
"""Classes whose objects take no additional fields: shares sum to 1, and groups have the columns of the article's
table."""
_DOC = (
    "One trace, analysed. Times are integer nanoseconds, shares are ratios from 0 to 1, and null is what is not known."
    " Later versions of the program may add fields; those of one `schema_version` keep their names and meaning."
)


def json_schema(analyses: Iterable[Declaration] = ANALYSES) -> Schema:
    """Return the schema of `Report.to_json`: every field with its type, limits and sentence.

    It includes the rows of those ``analyses`` that declare a place in the JSON report.
    """
    schemas = TypeSchemas(field_docs, _CLOSED)
    report = schemas.of_object(Report)
    for analysis in analyses:
        if isinstance(analysis, Analysis):
            _add_rows(report, analysis)
    return {
        "$schema": DRAFT,
        "$id": f"urn:trace-analyzer:report:{SCHEMA_VERSION}",
        "title": "Report of analyze --format json",
        **report,
        "description": _DOC,
        "$defs": dict(sorted(schemas.definitions.items())),
    }


def json_schema_text() -> str:
    """Return the schema as indented JSON text that ends in a newline."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _add_rows(report: Schema, declared: Analysis) -> None:
    """Add the field that holds a declared table's rows."""
    if declared.json is None:
        return
    name = declared.json.removeprefix("devices[].")
    holder = report if name == declared.json else report["properties"]["devices"]["items"]
    columns = [column for column in declared.table.columns if holder is report or column.name != "device"]
    holder["properties"][name] = {
        "description": declared.table.doc,
        "type": "array",
        "items": _row(columns),
    }
    holder["required"] = [*holder["required"], name]


def _row(columns: Iterable[Column]) -> Schema:
    """Return the schema of a table's row; columns with a `Member` are nested in its object."""
    own: Schema = {}
    for column in columns:
        cell = {"description": column.doc, **_cell(column)}
        if column.member is None:
            own[column.name] = cell
        else:
            of = {"description": column.member.doc, "type": "object", "properties": {}, "required": []}
            nested = own.setdefault(column.member.object, of)
            nested["properties"][column.member.key] = cell
            nested["required"].append(column.member.key)
    return {"type": "object", "properties": own, "required": list(own)}


def _cell(column: Column) -> Schema:
    """Return the schema of a column's values, each of which may be missing; a device is written by its id."""
    if column.name == "device":
        return {"type": ["integer", "string", "null"]}
    of_dtype = column.dtype
    if isinstance(of_dtype, pl.List):
        return {"type": ["array", "null"]}
    kind = (
        "boolean"
        if of_dtype == pl.Boolean
        else "integer"
        if of_dtype.is_integer()
        else "number"
        if of_dtype.is_numeric()
        else "string"
    )
    return {"type": [kind, "null"]}
