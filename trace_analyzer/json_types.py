"""Types of JSON documents: their limits, allowed words and sentences; their JSON Schema (draft 2020-12); and reading them strictly.

A field is declared as ``Annotated[type, "What it is."]``: the sentence is its description in the JSON Schema and in the docs.
"""

import functools
import json
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import asdict

from trace_analyzer.results import Result, document_fields, field_names
from trace_analyzer.vocabulary import CAUSES, GROUPS, IDLE_CAUSES, PARTS, REGIMES, STATUSES, RegimeKey, StatusKey


class Limits(Struct, frozen=True):
    """Limit the values of a field, in keywords of JSON Schema; None means no limit."""

    minimum: float | None = None
    maximum: float | None = None
    exclusiveMinimum: float | None = None  # noqa: N815 (the keyword's name)
    pattern: str | None = None
    const: int | None = None

    def allows(self, number: float) -> bool:
        """Return whether a number is within the limits."""
        return (
            (self.minimum is None or number >= self.minimum)
            and (self.maximum is None or number <= self.maximum)
            and (self.exclusiveMinimum is None or number > self.exclusiveMinimum)
        )


class Definition(Struct, frozen=True):
    """Define a type that fields refer to by name, with its sentence and, for an enumeration, its allowed words."""

    name: str
    doc: str
    words: tuple[str, ...] = ()


class OneOf(Struct, frozen=True):
    """List the allowed words of a text field."""

    words: tuple[str, ...]


Amount = Annotated[int, Limits(minimum=0)]
Quantity = Annotated[float, Limits(minimum=0)]
Positive = Annotated[float, Limits(exclusiveMinimum=0)]
Ratio = Annotated[float, Limits(minimum=0, maximum=1)]
Utilization = Annotated[float, Limits(minimum=0, maximum=1.05)]
"""A share of a peak, which clocks above the datasheet's may exceed a little."""
DecimalText = Annotated[str, Limits(pattern="^-?[0-9]+$")]

Value = int | float | str | bool | None
DeviceIndex = Annotated[
    int | str, Definition("device_index", "The device's id in the file; a string where it is no number.")
]
Status = Annotated[
    StatusKey, Definition("status", "Whether the trace could be judged. Only `ok` has a regime.", tuple(STATUSES))
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
    """Return the sentence of each documented field of a record, by name, in order."""
    hints = get_type_hints(declared, include_extras=True)
    return {name: doc for name in field_names(declared) if (doc := doc_of(hints[name]))}


def doc_of(hint: Any) -> str:
    """Return the sentence of an ``Annotated`` type; "" for any other."""
    return next((mark for mark in reversed(getattr(hint, "__metadata__", ())) if isinstance(mark, str)), "")


Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", types.NoneType: "null"}


class TypeSchemas:
    """Translate types, and collect the named ones in ``definitions``.

    ``fields_of`` returns the names of a record's fields in its document. ``closed`` lists the classes that take no
    additional fields; None means all. With ``named``, nested records become definitions; else they are inlined.
    """

    def __init__(
        self, fields_of: Callable[[type], Iterable[str]], closed: Collection[type] | None = None, *, named: bool = False
    ) -> None:
        self.definitions: Schema = {}
        self._fields_of = fields_of
        self._closed = closed
        self._named = named

    def of_object(self, declared: type) -> Schema:
        """Return the schema of a record.

        The record's docstring is the description: its first paragraph where fields have sentences, else the whole.
        """
        hints = get_type_hints(declared, include_extras=True)
        names = list(self._fields_of(declared))
        text = declared.__doc__ or ""
        described = text.partition("\n\n")[0] if any(doc_of(hints[name]) for name in names) else text
        return {
            "description": " ".join(described.split()),
            "type": "object",
            "properties": {name: self.of_type(hints[name]) for name in names},
            "required": names,
            **({"additionalProperties": False} if self._closed is None or declared in self._closed else {}),
        }

    def of_type(self, hint: Any) -> Schema:
        """Return the schema of a type. Raises ``KeyError`` for a type that JSON lacks."""
        origin = get_origin(hint)
        if origin is Annotated:
            return self._annotated(hint)
        if origin in (Union, types.UnionType):
            return _union([self.of_type(choice) for choice in get_args(hint)])
        if origin is Literal:
            return {"enum": list(get_args(hint))}
        if origin is tuple:
            return self._array(get_args(hint))
        if origin is Mapping:
            return self._mapping(*get_args(hint))
        if isinstance(hint, type) and field_names(hint):
            return self._reference(hint) if self._named else self.of_object(hint)
        return {"type": _TYPES[hint]}

    def _reference(self, declared: type) -> Schema:
        name = declared.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # Reserve the place, so that definitions keep the order of first use.
            self.definitions[name] = self.of_object(declared)
        return {"$ref": f"#/$defs/{name}"}

    def _annotated(self, hint: Any) -> Schema:
        made = self.of_type(hint.__origin__)
        for mark in hint.__metadata__:
            if isinstance(mark, Limits):
                made |= {keyword: limit for keyword, limit in asdict(mark).items() if limit is not None}
            elif isinstance(mark, OneOf):
                made = {"enum": list(mark.words)}
            elif isinstance(mark, Definition):
                made = {"enum": list(mark.words)} if mark.words else made
                self.definitions[mark.name] = {"description": mark.doc} | made
                made = {"$ref": f"#/$defs/{mark.name}"}
        doc = doc_of(hint)
        return (
            {"description": doc} | {key: value for key, value in made.items() if key != "description"} if doc else made
        )

    def _array(self, items: tuple[Any, ...]) -> Schema:
        if items[-1] is Ellipsis:
            return {"type": "array", "items": self.of_type(items[0])}
        inner = [self.of_type(item) for item in items]
        return {"type": "array", "prefixItems": inner, "minItems": len(inner), "maxItems": len(inner)}

    def _mapping(self, key: Any, value: Any) -> Schema:
        names = self.of_type(key)
        allowed = {} if names == {"type": "string"} else {"propertyNames": names}
        return {"type": "object", **allowed, "additionalProperties": self.of_type(value)}


def _union(choices: list[Schema]) -> Schema:
    """Return one ``type`` with several names where the choices are plain types, else ``anyOf``."""
    plain = [choice for choice in choices if isinstance(choice.get("type"), str) and "properties" not in choice]
    limited = [choice for choice in plain if len(choice) > 1]
    if len(plain) < len(choices) or len(limited) > 1:
        return {"anyOf": choices}
    names = [choice["type"] for choice in plain]
    kept = [name for name in names if not (name == "integer" and "number" in names)]
    return {"type": kept, **{key: value for choice in limited for key, value in choice.items() if key != "type"}}


def schema_text(result: type[Result]) -> str:
    """Return the schema of a result's JSON (`result_schema`) as indented JSON text that ends in a newline."""
    return json.dumps(result_schema(result), indent=2) + "\n"


def result_schema(result: type[Result]) -> Schema:
    """Return the schema of `Result.document` for this class; its objects take no additional fields."""
    schemas = TypeSchemas(document_fields, named=True)
    root = schemas.of_object(result)
    return {"$schema": DRAFT, "title": result.__name__, **root, "$defs": schemas.definitions}


T = TypeVar("T")

_LARGEST = (1 << 63) - 1
"""Integers are stored in 64 bits."""


def damage() -> tuple[type[Exception], ...]:
    """Return the exceptions that reading an edited or foreign document can raise."""
    import polars as pl

    general = LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError
    return (*general, pl.exceptions.PolarsError)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its type without a message: Polars' messages are long."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def read_as(declared: type[T], value: object, place: str = "") -> T:
    """Return a JSON value as a record, with its fields as declared.

    Lists become tuples. Raises ``TypeError`` for a value of another type, with its place in the document, for numbers that are not
    finite, too large or beyond the field's `Limits`, and for fields that are missing or unknown.

    >>> class Point(msgspec.Struct):
    ...     x: float
    ...     label: str | None = None
    >>> read_as(Point, {"x": 1})
    Point(x=1, label=None)
    >>> read_as(Point, {"x": "1"})
    Traceback (most recent call last):
    TypeError: x is no float
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{place or 'the document'} is no object")
    hints = _hints(declared)  # type: ignore[arg-type]
    if unknown := value.keys() - hints.keys():
        raise TypeError(f"{place}{'.' if place else ''}{min(map(str, unknown))} is unknown")
    inner = f"{place}." if place else ""
    return declared(**{name: _typed(hints[name], item, f"{inner}{name}") for name, item in value.items()})


@functools.cache
def _hints(declared: type[Any]) -> dict[str, Any]:
    return get_type_hints(declared, include_extras=True)


def _typed(hint: Any, value: Any, place: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and field_names(hint):
        return read_as(hint, value, place)
    if origin is Annotated:
        read = _typed(arguments[0], value, place)
        if any(isinstance(mark, Limits) and not mark.allows(read) for mark in arguments[1:]):
            raise TypeError(f"{place} is {read}, which is out of range")
        return read
    if origin is Literal:
        if isinstance(value, str) and value in arguments:
            return value
    elif origin in (Union, types.UnionType):
        for argument in arguments:
            try:
                return _typed(argument, value, place)
            except TypeError:
                continue
    elif origin is tuple and isinstance(value, list):
        return tuple(_typed(arguments[0], item, f"{place}[{number}]") for number, item in enumerate(value))
    elif origin is Mapping and isinstance(value, Mapping):
        return {
            _typed(arguments[0], key, place): _typed(arguments[1], item, f"{place}.{key}")
            for key, item in value.items()
        }
    elif _is(hint, value):
        return value
    raise TypeError(f"{place} is no {getattr(hint, '__name__', hint)}")


def _is(hint: Any, value: Any) -> bool:
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
    return isinstance(hint, type) and get_origin(hint) is None and isinstance(value, hint)
