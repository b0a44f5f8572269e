"""List all declared analyses (of single questions, of the replay, of plug-ins), and make the JSON Schema of their report.

Declarations of plug-ins are checked, and a failing one does not break a report.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

import polars as pl
from msgspec.structs import replace

from trace_analyzer import errors, plugins, schema, sections
from trace_analyzer.allocator import trace as allocator
from trace_analyzer.analyses import registry
from trace_analyzer.analysis import Analysis, Declaration, Node, Value
from trace_analyzer.json_types import DRAFT, Schema, TypeSchemas, field_docs
from trace_analyzer.replay import critical_path, estimates
from trace_analyzer.report import SCHEMA_VERSION, DeviceReport, GroupTime, Report, Shares

_OF_DEVICES = "devices[]."


class _Failed:
    """Mark the place of a plug-in's value whose function failed."""


def added_analyses(own: Sequence[Declaration], given: Sequence[str], places: Sequence[str]) -> tuple[Declaration, ...]:
    """Return the analyses and values that plug-ins declare in addition to ``own``.

    ``given`` names the other values that their functions may take, ``places`` the existing fields of the JSON report. A
    plug-in with one invalid declaration adds none (`plugins.refuse`).
    """
    known, taken = {*given, *(made.name for made in own)}, set(places)
    taken |= {made.json for made in own if isinstance(made, Analysis) and made.json}
    made: list[Declaration] = []
    for plugin, module in plugins.modules("analyses"):
        try:
            declared = _checked(module.ANALYSES, known, taken)
        except Exception as error:  # a plug-in's module may raise anything
            plugins.refuse(plugin, "analyses.py", plugins.reason(error))
            continue
        known |= {item.name for item in declared}
        taken |= {item.json for item in declared if isinstance(item, Analysis) and item.json}
        made += [_guarded(item, plugin) for item in declared]
    return tuple(made)


def _checked(declared: Sequence[Declaration], known: set[str], taken: set[str]) -> Sequence[Declaration]:
    """Check the declarations and return them.

    Raises ``ValueError`` for an invalid one, ``TypeError`` for another type.
    """
    names: set[str] = set()
    for item in declared:
        if not isinstance(item, Analysis | Value):
            raise TypeError(f"ANALYSES holds {item!r}, which is no Analysis and no Value")
        if item.name in known or item.name in names:
            raise ValueError(f"{item.name} is there already: a table or value has a name of its own")
        names.add(item.name)
        if isinstance(item, Analysis):
            _check_places(item, taken)
    for item in declared:
        for source in Node(item.name, item.make, item.takes).sources.values():
            if source.removeprefix("unmasked_") not in known | names:
                raise ValueError(f"{item.name} is made from {source}, and nothing makes that")
    return declared


def _check_places(item: Analysis, taken: set[str]) -> None:
    """Refuse a place in the JSON report that is taken or invalid."""
    if item.json is not None:
        name = item.json.removeprefix(_OF_DEVICES)
        if item.json in taken or not name.isidentifier():
            raise ValueError(f"{item.name}: the place {item.json!r} in the JSON report is taken, or no name")
        if item.json != name and "device" not in item.table.schema:
            raise ValueError(f"{item.name}: rows in {item.json} need a column device")


def _guarded(item: Declaration, plugin: plugins.Plugin) -> Declaration:
    """Wrap a declaration's function, so that its failure leaves its result out (`plugins.refuse`)."""
    kind, nothing = ("analysis", item.table.empty()) if isinstance(item, Analysis) else ("value", _Failed())

    @wraps(item.make)
    def make(*args: Any, **values: Any) -> Any:
        try:
            if any(isinstance(value, _Failed) for value in values.values()):
                return nothing
            made = item.make(*args, **values)
            if isinstance(item, Analysis) and not isinstance(made, pl.DataFrame):
                raise TypeError(f"makes a {type(made).__name__}, no DataFrame")
            return item.table.conform(made) if isinstance(item, Analysis) else made
        except errors.TraceAnalyzerError:
            raise
        except BaseException as error:  # a panic of Polars is a BaseException, but no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            plugins.refuse(plugin, f"{kind} {item.name}", plugins.reason(error))
            return nothing

    made: Callable[..., Any] = make
    return replace(item, make=made)


OWN_ANALYSES: tuple[Declaration, ...] = (
    *registry.ANALYSES,
    *estimates.ANALYSES,
    *critical_path.ANALYSES,
    *allocator.ANALYSES,
)
"""Analyses of this package."""

_GIVEN = ("trace", "options", "matched_devices", "device_models", "capture_files", "capture_executions")
_PLACES = (*Report.__struct_fields__, *(f"devices[].{name}" for name in DeviceReport.__struct_fields__))

ADDED_ANALYSES = added_analyses(OWN_ANALYSES, (*_GIVEN, *(table.name for table in registry.TRACE_TABLES)), _PLACES)
"""Analyses of plug-ins."""

ANALYSES: tuple[Declaration, ...] = (*OWN_ANALYSES, *ADDED_ANALYSES)
"""Every table and value of the analyses, in the order of the reference of their tables."""

TABLES = (*(declared.table for declared in ANALYSES if isinstance(declared, Analysis)), *registry.TRACE_TABLES)
"""The tables of a report, in the order of the reference."""

SECTIONS: Mapping[str, sections.Section] = {
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
    holder["properties"][name] = {"description": declared.table.doc, "type": "array", "items": _row(columns)}
    holder["required"] = [*holder["required"], name]


def _row(columns: Iterable[schema.Column]) -> Schema:
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


def _cell(column: schema.Column) -> Schema:
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
