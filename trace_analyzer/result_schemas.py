"""Generate JSON Schemas of the documents of comparisons, series of batches and jobs from their dataclasses."""

import dataclasses
import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from trace_analyzer.results import Result, document_fields

_SCALARS: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_of(name: str, result: type[Result]) -> dict[str, Any]:
    """Return the schema of what `Result.document` returns for this class."""
    definitions: dict[str, Any] = {}
    root = _object(result, document_fields(result), definitions)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **root, "$defs": definitions}


def _object(cls: type[Any], fields: Iterable[str], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a dataclass as an object with these fields."""
    hints = get_type_hints(cls)
    names = list(fields)
    return {
        "type": "object",
        "description": " ".join((cls.__doc__ or "").split()),
        "properties": {name: _type(hints[name], definitions) for name in names},
        "required": names,
        "additionalProperties": False,
    }


def _type(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}
            definitions[hint.__name__] = _object(hint, (field.name for field in dataclasses.fields(hint)), definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type(argument, definitions) for argument in arguments]}
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return {"type": "array", "items": _type(arguments[0], definitions)}
        return {
            "type": "array",
            "prefixItems": [_type(argument, definitions) for argument in arguments],
            "minItems": len(arguments),
            "maxItems": len(arguments),
        }
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _type(arguments[1], definitions)}
    return {"type": _SCALARS[hint]}
