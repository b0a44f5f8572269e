"""The report as strict JSON: the contract for scripts and CI (`trace_analyzer.report_schema` describes it)."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from trace_analyzer.report import Report


def to_json(report: Report) -> str:
    """Everything in the report but its tables, as JSON text that ends in a newline.

    The same report gives the same bytes. Only ASCII is written, so the text survives every terminal,
    pipe and locale; characters beyond it are escaped as JSON has it.
    """
    document = {
        f.name: _plain(getattr(report, f.name))
        for f in dataclasses.fields(report)
        if f.name not in ("tables", "declared")
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """The value in JSON's own types."""
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_encodable(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _encodable(text: str) -> str:
    """The text without lone surrogates, which a file name that is no UTF-8 brings in and parsers refuse."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
