"""Encode typed columns as text: byte planes, deflated, in base64. `assets/codec.js` decodes them.

A column is a sequence of non-negative integers. Its bytes are stored plane by plane (all lowest bytes, then all second
bytes, ...), without planes of zeros only. Neighbours in a plane are similar, which deflate exploits, and every column
has as many planes as its largest integer needs.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer.units import visible_lines

_LENGTH_BYTES = 4
_RAW_DEFLATE = -15
_LARGEST = 2**53 - 1  # Number.MAX_SAFE_INTEGER


@dataclass(frozen=True)
class EncodedColumn:
    """Hold an integer column and its decoding: ``encoding`` is plain, delta or text.

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
