"""Generate JSON Schemas of the documents of comparisons and series of batches from their dataclasses."""

import dataclasses
import types
from collections.abc import Collection, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from trace_analyzer.compare.comparison import Comparison
from trace_analyzer.compare.documents import FRAMES
from trace_analyzer.compare.scaling import Scaling

DOCUMENTS: Mapping[str, type[Any]] = {"comparison": Comparison, "scaling": Scaling}
_SCALARS: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema(name: str) -> dict[str, Any]:
    """Return the schema of a document of `DOCUMENTS`."""
    return schema_of(name, DOCUMENTS[name], FRAMES)


def schema_of(name: str, cls: type[Any], frames: Collection[str]) -> dict[str, Any]:
    """Return the schema of a dataclass that is written without its fields ``frames``."""
    definitions: dict[str, Any] = {}
    root = _object(cls, definitions, frames)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **root, "$defs": definitions}


def _object(cls: type[Any], definitions: dict[str, Any], frames: Collection[str] = ()) -> dict[str, Any]:
    """Return a dataclass as an object with all of its fields but ``frames``."""
    hints = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls) if field.name not in frames]
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
            definitions[hint.__name__] = _object(hint, definitions)
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
