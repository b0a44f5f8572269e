"""Write the report as strict JSON: the contract for scripts and CI.

`trace_analyzer.report_schema` describes it.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from trace_analyzer.report import DeclaredRows, Report


def to_json(report: Report) -> str:
    """Return everything in the report but its tables, as JSON text that ends in a newline.

    The same report gives the same bytes. Only ASCII is written, so the text survives every terminal,
    pipe and locale; characters beyond it are escaped as JSON has it.
    """
    fields = (field.name for field in dataclasses.fields(report) if field.name not in ("tables", "declared"))
    document = {name: plain(getattr(report, name)) for name in fields}
    for declared in report.declared:
        _insert(document, declared)
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


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


def plain(value: Any) -> Any:
    """Return the value in JSON's own types."""
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_encodable(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _encodable(text: str) -> str:
    """Return the text without lone surrogates, which undecodable file names bring in and parsers refuse."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
