"""Lay the report out as the document that `Report.to_json` writes: the contract for scripts and CI.

`trace_analyzer.report_schema` describes it.
"""

from typing import Any

from trace_analyzer.report import DeclaredRows, Report
from trace_analyzer.results import document_fields, plain


def document(report: Report) -> dict[str, Any]:
    """Return everything in the report but its tables, in JSON's own types, with the rows of declared analyses at their places."""
    fields = {name: plain(getattr(report, name)) for name in document_fields(Report) if name != "declared"}
    for declared in report.declared:
        _insert(fields, declared)
    return fields


def _insert(document: dict[str, Any], declared: DeclaredRows) -> None:
    """Put the rows of a declared analysis at its place: into the document, or into each device those of the device."""
    if declared.json is None:
        return
    of_devices, name = declared.json.startswith("devices[]."), declared.json.removeprefix("devices[].")
    if not of_devices:
        document[name] = [plain(row) for row in declared.rows]
        return
    for device in document["devices"]:
        document_rows = (row for row in declared.rows if row["device"] == device["index"])
        device[name] = [plain({key: value for key, value in row.items() if key != "device"}) for row in document_rows]
