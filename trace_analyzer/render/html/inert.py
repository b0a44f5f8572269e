"""Make text inert for the page, as browsers execute bidirectional controls instead of showing them."""

from collections.abc import Mapping
from typing import Any

from trace_analyzer.units import visible_lines


def inert(value: Any) -> Any:
    """Escape control characters in all texts of a value visibly; line breaks stay.

    The value is of JSON's types or Markup.
    """
    if type(value) is str:
        return visible_lines(value)
    if isinstance(value, Mapping):
        return {inert(key): inert(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [inert(item) for item in value]
    return value
