"""Write frames as plain columns of bytes and read them back: quick to read by the thousand, and safe whatever is in them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

_TYPES = ("|i1", "<i2", "<i4", "<i8", "<f8")
_MOST_ROWS = 1 << 24
_Part = tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]


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
    low, high = (int(numbers.min() or 0), int(numbers.max() or 0))  # type: ignore[arg-type]
    kind = next(t for t in _TYPES if np.iinfo(t).min < low and high <= np.iinfo(t).max)
    return numbers.fill_null(int(np.iinfo(kind).min)).to_numpy().astype(kind)


def unpacked(
    several: Sequence[tuple[Mapping[str, Any], memoryview]], schema: Mapping[str, pl.DataType]
) -> tuple[pl.DataFrame, list[int]]:
    """Return the frames of ``schema`` that `packed` wrote, one under the other, and how many bytes each of them took.

    ``several`` are descriptions and the bytes that begin with those of the frame: thousands are read without a frame for each. Raises ``ValueError``,
    ``KeyError`` or ``TypeError`` where they are not what `packed` writes.
    """
    parts: dict[str, list[_Part]] = {name: [] for name in schema}
    texts: dict[str, dict[str, int]] = {name: {} for name, dtype in schema.items() if dtype == pl.String}
    sizes = []
    for description, content in several:
        rows = description["rows"]
        if not isinstance(rows, int) or not 0 <= rows <= _MOST_ROWS:
            raise ValueError("a number of rows is none")
        if list(description["columns"]) != list(schema):
            raise ValueError(f"columns are not {', '.join(schema)}")
        offset = 0
        for (name, dtype), column in zip(schema.items(), description["columns"].values(), strict=True):
            if "type" in column:
                part = _stored(column, content, rows, offset, dtype)
                offset += part[0].nbytes
            else:
                part = _repeated(column["value"], rows, dtype)
            parts[name].append(_with_places(part, column, texts[name]) if name in texts else part)
        sizes.append(offset)
    columns = [_series(name, parts[name], dtype, texts.get(name)) for name, dtype in schema.items()]
    return pl.DataFrame(columns), sizes


def _stored(column: Mapping[str, Any], content: memoryview, rows: int, offset: int, dtype: pl.DataType) -> _Part:
    """Return the values of a column and where they are null."""
    if column["type"] not in _TYPES:
        raise ValueError(f"a column is of type {column['type']}")
    array: npt.NDArray[Any] = np.frombuffer(content, np.dtype(column["type"]), rows, offset)
    if (array.dtype.kind == "f") != dtype.is_float():
        raise TypeError(f"a column is of another type: {column['type']}")
    if not column["nulls"]:
        return array, None
    return array, np.isnan(array) if array.dtype.kind == "f" else array == np.iinfo(array.dtype).min


def _repeated(value: Any, rows: int, dtype: pl.DataType) -> _Part:
    """Return a column of one value, for a text of 0. Raises ``TypeError`` where it is not of the column's type."""
    known = str if dtype == pl.String else bool if dtype == pl.Boolean else (int, float) if dtype.is_float() else int
    if value is not None and (not isinstance(value, known) or (dtype != pl.Boolean and isinstance(value, bool))):
        raise TypeError(f"{value!r} is not of type {dtype}")
    number = value if value is not None and dtype != pl.String else 0
    return np.full(rows, number, np.float64 if dtype.is_float() else np.int64), (
        np.ones(rows, dtype=np.bool_) if value is None else None
    )


def _with_places(part: _Part, column: Mapping[str, Any], known: dict[str, int]) -> _Part:
    """Return a column of texts with their places in ``known``, to which new ones are added."""
    places, is_null = part
    texts = column["texts"] if "type" in column else [column["value"] or ""]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a text is none")
    valid = places if is_null is None else places[~is_null]
    if len(valid) and not (valid.min() >= 0 and valid.max() < len(texts)):
        raise ValueError("a text is not listed")
    if not texts:
        return np.zeros(len(places), dtype=np.int64), is_null
    new = np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int64)
    return new[places if is_null is None else np.where(is_null, 0, places)], is_null


def _series(name: str, parts: Sequence[_Part], dtype: pl.DataType, texts: Mapping[str, int] | None) -> pl.Series:
    """Return the values of parts as one column."""
    if not parts:
        return pl.Series(name, [], dtype=dtype)
    values = pl.Series(name, np.concatenate([array for array, _ in parts]))
    if any(is_null is not None for _, is_null in parts):
        nulls = [np.zeros(len(array), dtype=np.bool_) if is_null is None else is_null for array, is_null in parts]
        values = values.set(pl.Series(np.concatenate(nulls)), None)
    if texts is None:
        return values.cast(dtype)
    return (
        pl.Series(name, list(texts), dtype=pl.String).gather(values)
        if texts
        else pl.Series(name, [None], dtype=pl.String).new_from_index(0, len(values))
    )
