"""Give the results of all verbs the same methods: text for people, and strict JSON for scripts and CI."""

import json
import math
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

_LAYOUTS = "trace_analyzer.render.documents"


def used(place: str) -> Any:
    """Return a function or value by its place, ``module:name``: what lays out a result is looked up when it is used.

    A result is data, and imports no renderer.
    """
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


class Result(Struct, frozen=True, eq=False):
    """Offer what every result has: `summary`, `to_json`, and ``print``. Results are immutable."""

    PLOTTED: ClassVar[tuple[str, ...]] = ()
    """Fields with frames for plots, which are no part of the document."""

    def summary(self, width: int = 100) -> str:
        """Return the result as plain text, in lines of at most ``width`` cells."""
        return used(f"{_LAYOUTS}:text")(used(f"{_LAYOUTS}:document_of")(self), width)

    def to_markdown(self) -> str:
        """Return the result as Markdown, for issues and comments."""
        return used(f"{_LAYOUTS}:markdown")(used(f"{_LAYOUTS}:document_of")(self))

    def to_html(self, path: str | Path) -> Path:
        """Write the result as one offline HTML file and return its path. Raises ``OSError`` when it cannot be written."""
        return used(f"{_LAYOUTS}:write_page")(self, Path(path))

    @property
    def plot(self) -> Any:
        """Return the first chart of the result as a HoloViews element; None without one. A notebook displays it."""
        return used(f"{_LAYOUTS}:plot")(self)

    def _repr_html_(self) -> str:
        return used(f"{_LAYOUTS}:notebook")(self)

    def document(self) -> dict[str, Any]:
        """Return the content of `to_json` in JSON's own types."""
        return {name: plain(getattr(self, name)) for name in document_fields(type(self))}

    def to_json(self) -> str:
        """Return strict JSON text that ends in a newline; the same result gives the same bytes.

        Only ASCII is written, so that the text survives every terminal, pipe and locale; other characters are escaped.
        """
        return json.dumps(self.document(), indent=2, allow_nan=False) + "\n"

    def __eq__(self, other: object) -> bool:
        """Compare the documents' fields: frames for plots are left out."""
        names = document_fields(type(self))
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in names)

    def __str__(self) -> str:
        return self.summary().rstrip("\n")

    def __repr__(self) -> str:
        return used(f"{_LAYOUTS}:brief")(self)


def document_fields(result: type[Any]) -> tuple[str, ...]:
    """Return the names of a class's fields that its JSON document contains."""
    plotted = getattr(result, "PLOTTED", ())
    return tuple(name for name in field_names(result) if name not in plotted)


def field_names(record: Any) -> tuple[str, ...]:
    """Return the names of the fields of a record or its class, in order; empty for anything else.

    Records are structs. Those of modules that a recorded process imports are dataclasses, as it may lack all packages.
    """
    names: tuple[str, ...] = getattr(record, "__struct_fields__", ()) or (*getattr(record, "__dataclass_fields__", ()),)
    return names


def plain(value: Any) -> Any:
    """Return the value in JSON's own types."""
    if names := field_names(value):
        return {name: plain(getattr(value, name)) for name in names}
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
    """Escape lone surrogates, which come from undecodable file names and which parsers refuse."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
