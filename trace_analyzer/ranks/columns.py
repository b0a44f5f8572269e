"""Write frames as plain columns of bytes and read them back: fast for thousands of files, and safe for any content."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

_TYPES = ("|i1", "<i2", "<i4", "<i8", "<f8")
_MOST_ROWS = 1 << 24
_Part = tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]


def packed(frame: pl.DataFrame) -> tuple[dict[str, Any], bytes]:
    """Return a frame of numbers and texts as a JSON description and bytes.

    A constant column is stored as its value. Texts are indices into a list of distinct ones. Numbers have the smallest
    type that fits; its least value means null.
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
    """Return the frames of ``schema`` written by `packed`, concatenated, and the number of bytes read for each.

    Texts become ``pl.Enum``, as indices are faster than texts. ``several`` are descriptions, and bytes that begin with
    those of the frame; thousands are read without a frame for each. Raises ``ValueError``, ``KeyError`` or
    ``TypeError`` for other content.
    """
    names = list(schema)
    rows = []
    for description, _ in several:
        rows.append(description["rows"])
        if not isinstance(rows[-1], int) or not 0 <= rows[-1] <= _MOST_ROWS:
            raise ValueError("a number of rows is none")
        if list(description["columns"]) != names:
            raise ValueError(f"columns are not {', '.join(names)}")
    offsets = [0] * len(several)
    columns = []
    for name, dtype in schema.items():
        described = [description["columns"][name] for description, _ in several]
        columns.append(_unpacked_column(name, dtype, described, [content for _, content in several], rows, offsets))
    return pl.DataFrame(columns), offsets


def _unpacked_column(
    name: str,
    dtype: pl.DataType,
    described: Sequence[Mapping[str, Any]],
    contents: Sequence[memoryview],
    rows: Sequence[int],
    offsets: list[int],
) -> pl.Series:
    """Return a column of all frames, and advance ``offsets`` past its bytes."""
    texts: dict[str, int] | None = {} if dtype == pl.String else None
    if not any("type" in column for column in described):
        return _series(name, [_repeated([column["value"] for column in described], rows, dtype, texts)], dtype, texts)
    is_float, parts = dtype.is_float(), []
    known: dict[tuple[str, ...], npt.NDArray[np.int64]] = {}
    for place, (column, content, own) in enumerate(zip(described, contents, rows, strict=True)):
        if "type" not in column:
            parts.append(_repeated([column["value"]], [own], dtype, texts))
            continue
        part = _stored(column, content, own, offsets[place], is_float)
        offsets[place] += part[0].nbytes
        parts.append(part if texts is None else _with_places(part, column["texts"], texts, known))
    return _series(name, parts, dtype, texts)


def _stored(column: Mapping[str, Any], content: memoryview, rows: int, offset: int, is_float: bool) -> _Part:
    """Return the values of a column and its nulls."""
    if column["type"] not in _TYPES:
        raise ValueError(f"a column is of type {column['type']}")
    array: npt.NDArray[Any] = np.frombuffer(content, column["type"], rows, offset)
    if (array.dtype.kind == "f") != is_float:
        raise TypeError(f"a column is of another type: {column['type']}")
    if not column["nulls"]:
        return array, None
    return array, np.isnan(array) if is_float else array == np.iinfo(array.dtype).min


def _repeated(values: Sequence[Any], rows: Sequence[int], dtype: pl.DataType, texts: dict[str, int] | None) -> _Part:
    """Return the concatenation of constant columns; for texts, their indices in ``texts``.

    New texts are added there. Raises ``TypeError`` for a value of another type.
    """
    known = str if dtype == pl.String else bool if dtype == pl.Boolean else (int, float) if dtype.is_float() else int
    for value in values:
        if value is not None and (not isinstance(value, known) or (dtype != pl.Boolean and isinstance(value, bool))):
            raise TypeError(f"{value!r} is not of type {dtype}")
    is_null = [value is None for value in values]
    if texts is None:
        numbers = [0 if value is None else value for value in values]
    else:
        numbers = [0 if value is None else texts.setdefault(value, len(texts)) for value in values]
    kind = np.float64 if dtype.is_float() else np.int64
    return np.repeat(np.array(numbers, dtype=kind), rows), np.repeat(is_null, rows) if any(is_null) else None


def _with_places(
    part: _Part,
    own: Sequence[Any],
    texts: dict[str, int],
    known: dict[tuple[str, ...], npt.NDArray[np.int64]],
) -> _Part:
    """Return a column of texts as indices in ``texts``, to which new texts are added.

    ``known`` caches the indices of earlier lists.
    """
    places, is_null = part
    listed = tuple(own)
    if listed not in known:
        if not all(isinstance(text, str) for text in listed):
            raise TypeError("a text is none")
        known[listed] = np.array([texts.setdefault(text, len(texts)) for text in listed], dtype=np.int64)
    valid = places if is_null is None else places[~is_null]
    if len(valid) and not (valid.min() >= 0 and valid.max() < len(listed)):
        raise ValueError("a text is not listed")
    if not listed:
        return np.zeros(len(places), dtype=np.int64), is_null
    return known[listed][places if is_null is None else np.where(is_null, 0, places)], is_null


def _series(name: str, parts: Sequence[_Part], dtype: pl.DataType, texts: Mapping[str, int] | None) -> pl.Series:
    """Return the values of parts as one column, texts as an Enum."""
    values = pl.Series(name, np.concatenate([array for array, _ in parts]) if parts else [], strict=False)
    if any(is_null is not None for _, is_null in parts):
        nulls = [np.zeros(len(array), dtype=np.bool_) if is_null is None else is_null for array, is_null in parts]
        values = values.set(pl.Series(np.concatenate(nulls)), None)
    if texts is None:
        return values.cast(dtype)
    return values.cast(pl.UInt32).cat.to(pl.Enum(list(texts)))
