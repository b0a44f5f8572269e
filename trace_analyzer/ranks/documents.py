"""Write the report on a job as JSON: the contract for scripts."""

import dataclasses
import json
from typing import Any

from trace_analyzer.compare.schemas import schema_of
from trace_analyzer.ranks.job import JobReport
from trace_analyzer.render.json import plain

FRAMES = ("by_step", "rows", "steps")


def to_json(report: JobReport) -> str:
    """Write the report as strict JSON text that ends in a newline; the same summaries give the same bytes."""
    names = [f.name for f in dataclasses.fields(report) if f.name not in FRAMES]
    return json.dumps({name: plain(getattr(report, name)) for name in names}, indent=2, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the document."""
    return schema_of("ranks", JobReport, FRAMES)
