"""Generate the JSON Schema (draft 2020-12) of the report from its dataclasses."""

import json
import types
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import polars as pl

from trace_analyzer.analysis import Analysis, Declaration
from trace_analyzer.field_types import Definition, Limits, OneOf, doc_of
from trace_analyzer.registry import ANALYSES
from trace_analyzer.report import SCHEMA_VERSION, GroupTime, Report, Shares
from trace_analyzer.schema import Column

Schema = dict[str, Any]

_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", types.NoneType: "null"}
_CLOSED = (Shares, GroupTime)
"""Objects that take no more fields: shares sum to 1, and groups have the columns of the article's table."""
_DOC = (
    "One trace, analysed. Times are integer nanoseconds, shares are ratios from 0 to 1, and null is what is not known."
    " Later versions may add fields; those named here keep their names and meaning."
)


def json_schema(analyses: Iterable[Declaration] = ANALYSES) -> Schema:
    """Return the schema of `Report.to_json`: every field with its type, its limits and its sentence.

    Those of ``analyses`` that declare a place in the JSON report are part of it.
    """
    definitions: Schema = {}
    report = _object(Report, definitions)
    for analysis in analyses:
        if isinstance(analysis, Analysis):
            _add_rows(report, analysis)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:trace-analyzer:report:{SCHEMA_VERSION}",
        "title": "Report of analyze --format json",
        **report,
        "description": _DOC,
        "$defs": dict(sorted(definitions.items())),
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
    """Return the schema of a table's row, with the columns that are members of another object in that."""
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
    """Return the schema of a column's values, each of which may be missing; a device is called by its id."""
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


def _schema(hint: Any, definitions: Schema) -> Schema:
    """Return the schema of a type; what it defines by name goes to ``definitions``."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _annotated(hint, definitions)
    if origin in (Union, types.UnionType):
        return _union([_schema(choice, definitions) for choice in get_args(hint)])
    if origin is Literal:
        return {"enum": list(get_args(hint))}
    if origin is tuple:
        return _array(get_args(hint), definitions)
    if origin is Mapping:
        key, value = get_args(hint)
        return _mapping(key, value, definitions)
    if isinstance(hint, type) and is_dataclass(hint):
        return _object(hint, definitions)
    return {"type": _TYPES[hint]}


def _annotated(hint: Any, definitions: Schema) -> Schema:
    made = _schema(hint.__origin__, definitions)
    for mark in hint.__metadata__:
        if isinstance(mark, Limits):
            made |= {keyword: limit for keyword, limit in asdict(mark).items() if limit is not None}
        elif isinstance(mark, OneOf):
            made = {"enum": list(mark.words)}
        elif isinstance(mark, Definition):
            made = {"enum": list(mark.words)} if mark.words else made
            definitions[mark.name] = {"description": mark.doc} | made
            made = {"$ref": f"#/$defs/{mark.name}"}
    doc = doc_of(hint)
    return {"description": doc} | {key: value for key, value in made.items() if key != "description"} if doc else made


def _union(choices: list[Schema]) -> Schema:
    """Return one ``type`` with several names where the choices are plain types; ``anyOf`` else."""
    plain = [choice for choice in choices if isinstance(choice.get("type"), str) and "properties" not in choice]
    limited = [choice for choice in plain if len(choice) > 1]
    if len(plain) < len(choices) or len(limited) > 1:
        return {"anyOf": choices}
    names = [choice["type"] for choice in plain]
    kept = [name for name in names if not (name == "integer" and "number" in names)]
    return {"type": kept, **{key: value for choice in limited for key, value in choice.items() if key != "type"}}


def _array(items: tuple[Any, ...], definitions: Schema) -> Schema:
    if items[-1] is Ellipsis:
        return {"type": "array", "items": _schema(items[0], definitions)}
    inner = [_schema(item, definitions) for item in items]
    return {"type": "array", "prefixItems": inner, "minItems": len(inner), "maxItems": len(inner)}


def _mapping(key: Any, value: Any, definitions: Schema) -> Schema:
    names = _schema(key, definitions)
    allowed = {} if names == {"type": "string"} else {"propertyNames": names}
    return {"type": "object", **allowed, "additionalProperties": _schema(value, definitions)}


def _object(declared: type, definitions: Schema) -> Schema:
    """Return an object with all documented fields of a dataclass; the others are not in the JSON."""
    hints = get_type_hints(declared, include_extras=True)
    shown = [field.name for field in fields(declared) if doc_of(hints[field.name])]
    summary = " ".join((declared.__doc__ or "").partition("\n\n")[0].split())
    return {
        "description": summary,
        "type": "object",
        "properties": {name: _schema(hints[name], definitions) for name in shown},
        "required": shown,
        **({"additionalProperties": False} if declared in _CLOSED else {}),
    }
