"""Make text inert before it goes into the page: in a browser bidirectional controls act instead of being read."""

from collections.abc import Mapping
from typing import Any

from trace_analyzer.units import visible_lines


def inert(value: Any) -> Any:
    """Return the value with visible escapes for control characters in all its texts; line breaks stay.

    It is of JSON's types or Markup.
    """
    if type(value) is str:
        return visible_lines(value)
    if isinstance(value, Mapping):
        return {inert(key): inert(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [inert(item) for item in value]
    return value
