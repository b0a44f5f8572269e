"""Write comparisons as JSON: the contract for scripts and CI."""

import dataclasses
import json
from typing import Any

from trace_analyzer.render.json import plain

FRAMES = ("matches", "sides", "profiles")


def to_json(result: Any) -> str:
    """Write a result as strict JSON text that ends in a newline; the same comparison gives the same bytes."""
    return json.dumps(document(result), indent=2, allow_nan=False) + "\n"


def document(result: Any) -> dict[str, Any]:
    """Return the fields of a result in JSON's own types, without its frames."""
    return {f.name: plain(getattr(result, f.name)) for f in dataclasses.fields(result) if f.name not in FRAMES}
