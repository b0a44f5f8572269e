"""Write frames as plain columns of bytes and read them back: quick to read by the thousand, and safe whatever is in them."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

_TYPES = ("|i1", "<i2", "<i4", "<i8", "<f8")
_MOST_ROWS = 1 << 24


def packed(frame: pl.DataFrame) -> tuple[dict[str, Any], bytes]:
    """Return a frame of numbers and texts as its description, which is JSON, and bytes.

    A column of one value is kept as that value. Texts are places in a list of distinct ones; nulls of numbers are the least value of their type,
    which is the smallest that holds them.
    """
    columns: dict[str, Any] = {}
    parts = []
    for name in frame.columns:
        values = frame.get_column(name)
        if values.n_unique() <= 1:
            columns[name] = {"value": values[0] if len(values) else None}
            continue
        column: dict[str, Any] = {}
        if values.dtype == pl.String:
            texts = values.drop_nulls().unique(maintain_order=True)
            column["texts"] = texts.to_list()
            values = values.replace_strict(texts, pl.int_range(len(texts), eager=True), return_dtype=pl.Int64)
        array = _array(values)
        columns[name] = column | {"type": array.dtype.str, "nulls": values.null_count() > 0}
        parts.append(array.tobytes())
    return {"rows": frame.height, "columns": columns}, b"".join(parts)


def _array(values: pl.Series) -> npt.NDArray[Any]:
    if values.dtype.is_float():
        return values.fill_null(np.nan).to_numpy().astype("<f8")
    numbers = values.cast(pl.Int64)
    low, high = (int(numbers.min() or 0), int(numbers.max() or 0))  # type: ignore[call-overload]
    kind = next(t for t in _TYPES if np.iinfo(t).min < low and high <= np.iinfo(t).max)
    return numbers.fill_null(int(np.iinfo(kind).min)).to_numpy().astype(kind)


def unpacked(
    description: Mapping[str, Any], content: memoryview, schema: Mapping[str, pl.DataType]
) -> tuple[pl.DataFrame, int]:
    """Return the frame of ``schema`` that `packed` wrote, and how many bytes of ``content`` it took.

    Raises ``ValueError``, ``KeyError`` or ``TypeError`` where description and bytes are not what `packed` writes.
    """
    rows = description["rows"]
    if not isinstance(rows, int) or not 0 <= rows <= _MOST_ROWS:
        raise ValueError("a number of rows is none")
    if list(description["columns"]) != list(schema):
        raise ValueError(f"columns are not {', '.join(schema)}")
    columns, offset = [], 0
    for (name, dtype), column in zip(schema.items(), description["columns"].values(), strict=True):
        if "type" not in column:
            columns.append(_single(column["value"], dtype).new_from_index(0, rows).alias(name))
            continue
        if column["type"] not in _TYPES:
            raise ValueError(f"a column is of type {column['type']}")
        kind = np.dtype(column["type"])
        array = np.frombuffer(content, kind, rows, offset)
        offset += rows * kind.itemsize
        columns.append(_series(name, array, column, dtype))
    return pl.DataFrame(columns), offset


@lru_cache(4096)
def _single(value: str | float | None, dtype: pl.DataType) -> pl.Series:
    return pl.Series("", [_checked(value, dtype)], dtype=dtype)


def _checked(value: Any, dtype: pl.DataType) -> Any:
    """Return a value of a column. Raises ``TypeError`` where it is not of the column's type."""
    known = str if dtype == pl.String else bool if dtype == pl.Boolean else (int, float) if dtype.is_float() else int
    if value is not None and (not isinstance(value, known) or (dtype != pl.Boolean and isinstance(value, bool))):
        raise TypeError(f"{value!r} is not of type {dtype}")
    return value


def _series(name: str, array: npt.NDArray[Any], column: Mapping[str, Any], dtype: pl.DataType) -> pl.Series:
    if (array.dtype.kind == "f") != dtype.is_float():
        raise TypeError(f"{name} is of another type")
    values = pl.Series(name, array)
    if column["nulls"]:
        values = values.set(
            pl.Series(np.isnan(array) if dtype.is_float() else array == np.iinfo(array.dtype).min), None
        )
    if dtype != pl.String:
        return values.cast(dtype)
    texts = column["texts"]
    low, high = values.min(), values.max()
    if low is not None and not (int(low) >= 0 and int(high) < len(texts)):  # type: ignore[arg-type]
        raise ValueError(f"{name} has a text that is not listed")
    return pl.Series([_checked(text, dtype) for text in texts], dtype=dtype).gather(values).alias(name)
