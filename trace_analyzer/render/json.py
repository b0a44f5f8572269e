"""Lay out the report as the document of `Report.to_json`: the contract for scripts and CI.

`trace_analyzer.report_schema` describes it.
"""

from collections.abc import Mapping
from typing import Any

from trace_analyzer.report import DeclaredRows, Report
from trace_analyzer.results import document_fields, plain
from trace_analyzer.schema import Table


def document(report: Report) -> dict[str, Any]:
    """Return the report without its tables, in JSON's own types, with the rows of declared analyses at their places."""
    fields = {name: plain(getattr(report, name)) for name in document_fields(Report) if name != "declared"}
    for declared in report.declared:
        _insert(fields, declared)
    return fields


def _insert(document: dict[str, Any], declared: DeclaredRows) -> None:
    """Put the rows of a declared analysis at its place: in the document, or in the devices that they belong to."""
    if declared.json is None:
        return
    of_devices, name = declared.json.startswith("devices[]."), declared.json.removeprefix("devices[].")
    if not of_devices:
        document[name] = [plain(_object(declared.table, row)) for row in declared.rows]
        return
    for device in document["devices"]:
        objects = (_object(declared.table, row) for row in declared.rows if row["device"] == device["index"])
        device[name] = [plain({key: value for key, value in made.items() if key != "device"}) for made in objects]


def _object(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as an object; columns with a `Member` are nested in its object."""
    made: dict[str, Any] = {}
    for column in table.columns:
        if column.member is None:
            made[column.name] = row[column.name]
        else:
            made.setdefault(column.member.object, {})[column.member.key] = row[column.name]
    return made
