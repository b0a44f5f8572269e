"""Generate the JSON Schema (draft 2020-12) of the report from its dataclasses."""

import json
from collections.abc import Iterable

import polars as pl

from trace_analyzer.analysis import Analysis, Declaration
from trace_analyzer.field_types import field_docs
from trace_analyzer.registry import ANALYSES
from trace_analyzer.report import SCHEMA_VERSION, GroupTime, Report, Shares
from trace_analyzer.schema import Column
from trace_analyzer.type_schemas import DRAFT, Schema, TypeSchemas

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
            held = own.setdefault(column.member.object, of)
            held["properties"][column.member.key] = cell
            held["required"].append(column.member.key)
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
