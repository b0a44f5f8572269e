"""Translate the types of dataclass fields into JSON Schema (draft 2020-12), for the documents of all verbs."""

import json
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from trace_analyzer.field_types import Definition, Limits, OneOf, doc_of
from trace_analyzer.results import Result, document_fields

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", types.NoneType: "null"}


class TypeSchemas:
    """Translate types, and collect the named ones in ``definitions``.

    ``fields_of`` returns the names of a dataclass's fields in its document. ``closed`` lists the classes that take no
    additional fields; None means all. With ``named``, nested dataclasses become definitions; else they are inlined.
    """

    def __init__(
        self, fields_of: Callable[[type], Iterable[str]], closed: Collection[type] | None = None, *, named: bool = False
    ) -> None:
        self.definitions: Schema = {}
        self._fields_of = fields_of
        self._closed = closed
        self._named = named

    def of_object(self, declared: type) -> Schema:
        """Return the schema of a dataclass.

        The dataclass's docstring is the description: its first paragraph where fields have sentences, else the whole.
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
        if isinstance(hint, type) and is_dataclass(hint):
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
