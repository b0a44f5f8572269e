"""Define the types of the report's fields, with the limits and allowed words that the JSON Schema states.

A field is declared as ``Annotated[type, "What it is."]``: the sentence is its description in the JSON Schema and in the docs.
"""

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_type_hints

from trace_analyzer.vocabulary import CAUSES, GROUPS, IDLE_CAUSES, PARTS, REGIMES, STATUSES, RegimeKey, StatusKey


@dataclass(frozen=True)
class Limits:
    """Limit the values of a field, in keywords of JSON Schema; None means no limit."""

    minimum: float | None = None
    maximum: float | None = None
    exclusiveMinimum: float | None = None  # noqa: N815 (the keyword's name)
    pattern: str | None = None
    const: int | None = None


@dataclass(frozen=True)
class Definition:
    """Define a type that fields refer to by name, with its sentence and, for an enumeration, its allowed words."""

    name: str
    doc: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class OneOf:
    """List the allowed words of a text field."""

    words: tuple[str, ...]


Amount = Annotated[int, Limits(minimum=0)]
Quantity = Annotated[float, Limits(minimum=0)]
Positive = Annotated[float, Limits(exclusiveMinimum=0)]
Ratio = Annotated[float, Limits(minimum=0, maximum=1)]
DecimalText = Annotated[str, Limits(pattern="^-?[0-9]+$")]

Value = int | float | str | bool | None
DeviceIndex = Annotated[
    int | str, Definition("device_index", "The device's id in the file; a string where it is no number.")
]
Status = Annotated[
    StatusKey,
    Definition("status", "Whether the trace could be judged. Only `ok` has a regime.", tuple(STATUSES)),
]
Regime = Annotated[RegimeKey, Definition("regime", "What limits the window.", tuple(REGIMES))]
Cause = Annotated[str, Definition("cause", "What makes it so.", tuple(CAUSES))]
IdleCause = Annotated[str, Definition("idle_cause", "Why a device idled.", IDLE_CAUSES)]
Part = Annotated[str, Definition("part", "Part of a window: what the device did, or why it idled.", tuple(PARTS))]
KernelGroup = Annotated[str, Definition("kernel_group", "Group of kernel buckets.", tuple(GROUPS))]
CopyDirection = Annotated[
    str, OneOf(("host-to-device", "device-to-host", "peer-to-peer", "within-device", "host-to-host", "unknown"))
]
Link = Annotated[str, OneOf(("pcie", "c2c", "nvlink", "xgmi", "xelink"))]
HostMemory = Annotated[str, OneOf(("pageable", "pinned", "managed"))]
Confidence = Literal["high", "medium", "low"]
CheckStatus = Literal["ok", "warn", "fail"]


def field_docs(declared: type) -> dict[str, str]:
    """Return the sentence of each documented field of a dataclass, by name, in order."""
    hints = get_type_hints(declared, include_extras=True)
    return {field.name: doc for field in fields(declared) if (doc := doc_of(hints[field.name]))}


def doc_of(hint: Any) -> str:
    """Return the sentence of an ``Annotated`` type; "" for any other."""
    return next((mark for mark in reversed(getattr(hint, "__metadata__", ())) if isinstance(mark, str)), "")
