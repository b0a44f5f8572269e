"""Write what the scripts of a page read: typed columns as text, and documents of Bokeh models.

A column is a sequence of non-negative integers, written as byte planes, deflated, in base64; `assets/common.js` decodes
them. Its bytes are stored plane by plane (all lowest bytes, then all second bytes, ...), without planes of zeros only.
Neighbours in a plane are similar, which deflate exploits, and every column has as many planes as its largest integer
needs.

Importing Bokeh's Python models, and making the plots of a page with them, takes a third of the time for a small trace
with its page (benchmarks/startup.py --tricks). Types, attributes and the format of values are Bokeh's
(https://docs.bokeh.org/en/latest/docs/reference/models.html and `bokeh.core.serialization`); omitted attributes have
BokehJS's defaults. Tests have Bokeh read every document.
"""

import base64
import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer.units import visible_lines

_LENGTH_BYTES = 4
_RAW_DEFLATE = -15
_LARGEST = 2**53 - 1  # Number.MAX_SAFE_INTEGER


class EncodedColumn(NamedTuple):
    """An integer column and its decoding: ``encoding`` is plain, delta or text.

    Delta columns have zigzag-encoded differences to the previous value; text columns have indices into ``values``.
    """

    encoding: str
    integers: npt.NDArray[np.uint64]
    values: tuple[str, ...] = ()


def plain(series: pl.Series) -> EncodedColumn:
    """Encode non-negative numbers.

    Null, negative and NaN become 0, and larger numbers the largest integer of JavaScript.
    """
    return EncodedColumn("plain", series.fill_null(0).fill_nan(0).clip(0, _LARGEST).cast(pl.UInt64).to_numpy())


def delta(series: pl.Series) -> EncodedColumn:
    """Encode signed numbers that are close to their predecessors."""
    numbers = series.cast(pl.Int64).to_numpy()
    steps = np.diff(numbers, prepend=np.int64(0))
    return EncodedColumn("delta", ((steps << 1) ^ (steps >> 63)).astype(np.uint64))


def text(series: pl.Series) -> EncodedColumn:
    """Encode strings as indices into a table of distinct ones; index 0 is null."""
    values = series.drop_nulls().unique(maintain_order=True)
    codes = series.cast(pl.Enum(values)).to_physical().cast(pl.Int64) + 1
    return EncodedColumn("text", codes.fill_null(0).cast(pl.UInt64).to_numpy(), ("", *values))


def inert(value: Any) -> Any:
    """Escape control characters in all texts of a value of JSON's types visibly; line breaks stay.

    Browsers execute bidirectional controls instead of showing them.
    """
    if type(value) is str:
        return visible_lines(value)
    if isinstance(value, Mapping):
        return {inert(key): inert(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [inert(item) for item in value]
    return value


def encode(header: Mapping[str, Any], columns: Mapping[str, EncodedColumn]) -> str:
    """Return header and columns as one base64 text."""
    planes = {name: _planes(column.integers) for name, column in columns.items()}
    described = {
        name: {
            "encoding": column.encoding,
            "length": len(column.integers),
            "width": len(planes[name]),
            "values": column.values,
        }
        for name, column in columns.items()
    }
    head = json.dumps(inert({**header, "columns": described}), ensure_ascii=False, allow_nan=False).encode()
    return deflated(
        len(head).to_bytes(_LENGTH_BYTES, "little"), head, *(plane for name in columns for plane in planes[name])
    )


def deflated(*pieces: bytes) -> str:
    """Return the concatenated bytes, deflated, as base64 text."""
    deflate = zlib.compressobj(level=6, wbits=_RAW_DEFLATE)
    packed = [deflate.compress(piece) for piece in pieces]
    return base64.b64encode(b"".join([*packed, deflate.flush()])).decode("ascii")


def _planes(integers: npt.NDArray[np.uint64]) -> list[bytes]:
    largest = int(integers.max()) if len(integers) else 0
    width = (largest.bit_length() + 7) // 8
    octets = np.ascontiguousarray(integers, dtype="<u8").view(np.uint8).reshape(-1, 8)
    return [octets[:, place].tobytes() for place in range(width)]


class Model:
    """A model: its class name in `bokeh.models`, and the attributes that differ from their defaults.

    A model that several others refer to is also one object in the browser.
    """

    def __init__(self, kind: str, /, **attributes: Any) -> None:
        self.kind = kind
        self.attributes = attributes


def column(name: str) -> dict[str, str]:
    """Return a reference to a data source's column, for an attribute of a glyph."""
    return _typed("field", field=name)


def constant(value: object) -> dict[str, object]:
    """Return a constant for an attribute that would interpret a text as a column's name."""
    return _typed("value", value=value)


def glyphs(glyph: Model, source: Model, **attributes: Any) -> Model:
    """Return a renderer that draws a glyph for each row of a source.

    Glyphs look the same in all states; otherwise Bokeh computes colours for each state at every redraw.
    """
    looks = dict.fromkeys(("selection_glyph", "nonselection_glyph", "muted_glyph"))
    return Model("GlyphRenderer", data_source=source, glyph=glyph, **looks, **attributes)


def data_source(columns: Mapping[str, Sequence[object] | npt.NDArray[Any]], **attributes: Any) -> Model:
    """Return a data source from columns of equal length, by name."""
    return Model("ColumnDataSource", data=dict(columns), **attributes)


def document(roots: Sequence[Model], prefix: str) -> dict[str, Any]:
    """Return models, with all their references, as a document for `Bokeh.embed.embed_items`.

    Their ids are ``prefix`` and a number, from 1 in the order of the document. All texts are made inert.
    """
    encode = _Encoder(prefix).encoded
    config = encode(Model("DocumentConfig"))
    written: dict[str, Any] = inert(
        {"version": version("bokeh"), "title": "", "config": config, "roots": [encode(root) for root in roots]}
    )
    return written


def bokeh_library() -> str:
    """Return BokehJS as JavaScript without extensions. Raises ``ModuleNotFoundError`` without Bokeh."""
    package = find_spec("bokeh")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'bokeh'", name="bokeh")
    script = Path(package.origin).parent / "server" / "static" / "js" / "bokeh.min.js"
    return script.read_text(encoding="utf-8")


class _Encoder:
    """Write values in the format of `bokeh.core.serialization`: a model first completely, then by its id."""

    def __init__(self, prefix: str) -> None:
        self._ids: dict[Model, str] = {}
        self._new_ids: Iterator[str] = (f"{prefix}{number}" for number in count(1))

    def encoded(self, value: Any) -> Any:
        match value:
            case Model():
                return self._model(value)
            case {"type": "field" | "value"}:
                return value
            case Mapping():
                entries = [[self.encoded(key), self.encoded(item)] for key, item in value.items()]
                return _typed("map", entries=entries)
            case list() | tuple():
                return [self.encoded(item) for item in value]
            case np.ndarray():
                return _array(value)
            case np.generic():
                return self.encoded(value.item())
            case float() if not math.isfinite(value):
                return _typed("number", value="nan" if math.isnan(value) else "+inf" if value > 0 else "-inf")
            case _:
                return value

    def _model(self, model: Model) -> dict[str, Any]:
        if model in self._ids:
            return {"id": self._ids[model]}
        self._ids[model] = own = next(self._new_ids)
        return _typed(
            "object",
            name=model.kind,
            id=own,
            attributes={name: self.encoded(value) for name, value in model.attributes.items()},
        )


def _array(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return numbers as 64-bit floats, deflated."""
    octets = np.ascontiguousarray(values, dtype="<f8").tobytes()
    data = base64.b64encode(gzip.compress(octets, mtime=1)).decode("ascii")
    array = _typed("bytes", data=data)
    return _typed("ndarray", array=array, shape=list(values.shape), dtype="float64", order="little")


def _typed(kind: str, **parts: Any) -> dict[str, Any]:
    return {"type": kind, **parts}
