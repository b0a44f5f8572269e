"""Read JSON values as the types that dataclasses declare, so that damaged files are refused at reading."""

import dataclasses
import functools
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_LARGEST = (1 << 63) - 1
"""Integers are stored in 64 bits."""


def damage() -> tuple[type[Exception], ...]:
    """Return the exceptions that reading an edited or foreign document can raise."""
    import polars as pl

    return (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError, pl.exceptions.PolarsError)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its type without a message: Polars' messages are long."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def read_as(declared: type[T], value: object, place: str = "") -> T:
    """Return a JSON value as a dataclass, with its fields as declared.

    Lists become tuples. Raises ``TypeError`` for a value of another type, with its place in the document, for numbers that are not
    finite or too large, and for fields that are missing or unknown.

    >>> @dataclasses.dataclass
    ... class Point:
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
    return get_type_hints(declared)


def _typed(hint: Any, value: Any, place: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read_as(hint, value, place)
    if origin is Annotated:
        return _typed(arguments[0], value, place)
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
    elif _is(hint, value):
        return value
    raise TypeError(f"{place} is no {getattr(hint, '__name__', hint)}")


def _is(hint: Any, value: Any) -> bool:
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
    return isinstance(hint, type) and get_origin(hint) is None and isinstance(value, hint)


__all__ = ["read_as"]
