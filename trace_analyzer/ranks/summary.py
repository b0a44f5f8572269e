"""Hold the summary of one rank, the input for judging a job, and write it as some kilobytes."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer.compare.profiles import Profile
from trace_analyzer.compare.sides import baseline_json, profile_from
from trace_analyzer.errors import InputError
from trace_analyzer.ingest.trace import rank_in_name
from trace_analyzer.json_types import damage, first_line, read_as
from trace_analyzer.ranks.files import numbered
from trace_analyzer.report import Lever
from trace_analyzer.schema import typed

STEPS: Mapping[str, pl.DataType] = {
    "step": pl.Int64(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "is_steady": pl.Boolean(),
    "regime": pl.String(),
}
"""Steps of the judged device, in order; times count from the start of the trace."""
PARTS: Mapping[str, pl.DataType] = {"step": pl.Int64(), "part": pl.String(), "total_ns": pl.Int64()}
"""Time of each part of the partition in each steady step; ``step`` is null where the trace has no steps."""
COLLECTIVES: Mapping[str, pl.DataType] = {
    "group": pl.String(),
    "seq": pl.Int64(),
    "comms_id": pl.String(),
    "step": pl.Int64(),
    "ordinal": pl.Int64(),
    "kind": pl.String(),
    "dtype": pl.String(),
    "elements": pl.Int64(),
    "group_size": pl.Int64(),
    "source": pl.Int64(),
    "destination": pl.Int64(),
    "start_ns": pl.Int64(),
    "duration_ns": pl.Int64(),
    "exposed_ns": pl.Int64(),
}
"""Communication kernels of the judged device, in order of start.

``ordinal`` counts those of one process group in one step (or of all groups where the group is not recorded), in order
of launch; ``group`` is the key of a `RankGroup`.
"""
EXPOSED: Mapping[str, pl.DataType] = {
    "row": pl.UInt32(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "exposed_ns": pl.Int64(),
}
"""Intervals of a collective (``row``) without other work, relative to its start; ``exposed_ns`` is less than the
length where a piece merges several. Collectives that are entirely exposed, or not at all, have no row."""

WORK: Mapping[str, pl.DataType] = {
    "kind": pl.String(),
    "category": pl.String(),
    "operator": pl.String(),
    "count": pl.Float64(),
    "step_ns": pl.Float64(),
}
"""Work of a rank per step, by operator and bucket."""

JOINED: Mapping[str, pl.DataType] = {"rank": pl.Int64(), "row": pl.UInt32(), **COLLECTIVES}
"""Collectives of all ranks; ``start_ns`` counts from the job's origin, on the clock of the rank's host."""

SYNCHRONIZING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Collectives that no rank can leave before the last one arrives: they have waits, and allow aligning clocks."""


ROWS: Mapping[str, pl.DataType] = {
    "rank": pl.Int32(),
    "row": pl.UInt32(),
    "step": pl.Int64(),
    "kind": pl.UInt8(),
    "is_split": pl.Boolean(),
    "by": pl.UInt8(),
    "key": pl.UInt64(),
    "signature": pl.UInt64(),
    "of": pl.UInt64(),
    "group_size": pl.Int32(),
    "start_ns": pl.Int64(),
    "duration_ns": pl.Int64(),
    "exposed_ns": pl.Int64(),
}
"""Collectives for matching and reduction, in order of rank and start.

``key`` is a hash that is equal for the rows of one collective, null where unknown; ``by`` is the index in
`matching.WAYS` of how the key was formed; ``of`` is the hash of the process group; ``kind`` is an index into the job's
kinds; ``is_split`` marks kinds that no rank can leave before the last one arrives.
"""


_KIND, _VERSION = "rank_summary_version", 3
_MOST_BYTES = 64 << 20
_LEVEL = 4
_MOST_RANKS = 1 << 20
_KNOWN = {
    "steps": ["start_ns", "end_ns"],
    "parts": ["part", "total_ns"],
    "collectives": ["ordinal", "kind", "start_ns", "duration_ns", "exposed_ns"],
    "exposed": ["row", "start_ns", "end_ns", "exposed_ns"],
    "work": ["kind", "count", "step_ns"],
}
"""Columns that must not be null."""
_FRAMES = {"steps": STEPS, "parts": PARTS, "collectives": COLLECTIVES, "exposed": EXPOSED, "work": WORK}
_EMPTY = {name: pl.DataFrame(schema=schema) for name, schema in _FRAMES.items()}
_APART = (*_FRAMES, "profile")


@dataclass(frozen=True)
class RankGroup:
    """Hold a process group: ``key`` is equal on all of its ranks; ``ranks`` is empty where unknown."""

    key: str
    name: str
    description: str | None
    size: int | None
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class RankSummary:
    """Hold the data of one rank for judging a job, or the ``error`` that prevented reading it.

    ``base_ns`` is the absolute time at which its times are 0. ``damage`` describes losses in its file;
    ``recording_ns`` what recording took of a step at least, by the verdict; ``is_little`` is true where its own work is too
    little for a verdict, and ``regime`` that of its shares of time. Frames have the schemas of this module; ``profile`` is its work per step, as a comparison's profile.
    """

    path: str
    rank: int | None = None
    world_size: int | None = None
    host: str | None = None
    error: str | None = None
    damage: str | None = None
    base_ns: int = 0
    duration_ns: int = 0
    device_name: str | None = None
    regime: str | None = None
    cause: str | None = None
    is_little: bool = False
    headline: str = ""
    step_ns: float | None = None
    recording_ns: float | None = None
    levers: tuple[Lever, ...] = ()
    steps_from: str | None = None
    groups: tuple[RankGroup, ...] = ()
    steps: pl.DataFrame = field(default_factory=lambda: _EMPTY["steps"], repr=False, compare=False)
    parts: pl.DataFrame = field(default_factory=lambda: _EMPTY["parts"], repr=False, compare=False)
    collectives: pl.DataFrame = field(default_factory=lambda: _EMPTY["collectives"], repr=False, compare=False)
    exposed: pl.DataFrame = field(default_factory=lambda: _EMPTY["exposed"], repr=False, compare=False)
    work: pl.DataFrame = field(default_factory=lambda: _EMPTY["work"], repr=False, compare=False)
    profile: Profile | None = field(default=None, repr=False, compare=False)


def mean_levers(ranks: Sequence[RankSummary]) -> tuple[Lever, ...]:
    """Return the mean of each lever over the ranks that have any."""
    with_any = [summary.levers for summary in ranks if summary.levers]
    if not with_any:
        return ()
    means = (pl.col("share_ratio", "path_ratio", "saves_ns", "saves_ratio").sum() / len(with_any),)
    table = pl.DataFrame([asdict(lever) for levers in with_any for lever in levers]).group_by("resource").agg(means)
    return tuple(Lever(*row) for row in table.sort("saves_ns", "resource", descending=[True, False]).iter_rows())


def failed(path: str, error: str) -> bytes:
    """Return the summary of a rank that could not be read."""
    return to_bytes(RankSummary(path, rank=rank_in_name(path), error=error))


def is_failed(content: bytes) -> bool:
    """Return whether a summary is that of a rank that could not be read."""
    return b'"error":null' not in _member(content)[0]


def to_bytes(summary: RankSummary) -> bytes:
    """Write a summary as gzip with two members.

    The first is its head, a line of JSON; the second has a line with its profile, and the columns of its frames as
    bytes.
    """
    head = {name: getattr(summary, name) for name in RankSummary.__dataclass_fields__ if name not in _APART}
    head["levers"] = [asdict(lever) for lever in summary.levers]
    head["groups"] = [asdict(group) | {"ranks": runs_of(group.ranks)} for group in summary.groups]
    frames = {name: packed(getattr(summary, name)) for name in _FRAMES}
    document = {_KIND: _VERSION, **head, "frames": {name: described for name, (described, _) in frames.items()}}
    profile = baseline_json(summary.profile).replace("\n", " ") if summary.profile else "null"
    content = b"".join(content for _, content in frames.values())
    return _line(document) + gzip.compress(f"{profile}\n".encode() + content, _LEVEL, mtime=0)


def _line(document: Mapping[str, Any]) -> bytes:
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return gzip.compress(f"{text}\n".encode(), _LEVEL, mtime=0)


def _member(content: bytes) -> tuple[bytes, bytes]:
    """Return the content of a gzip member, and the bytes after it.

    Raises ``ValueError`` where it is damaged, or larger than any summary.
    """
    inflater = zlib.decompressobj(wbits=31)  # 31 selects the gzip format
    try:
        text = inflater.decompress(content, _MOST_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not inflater.eof:
        raise ValueError("the file is truncated")
    return text, inflater.unused_data


def from_bytes(content: bytes, path: str = "summary") -> RankSummary:
    """Read a summary of `to_bytes`. Raises ``InputError`` for other content, or another version."""
    try:
        head, rest = _member(content)
        document = _document(json.loads(head), path)
        profile, columns = _member(rest)[0].split(b"\n", 1)
        frames = _frames([document["frames"]], [memoryview(columns)])
        return replace(
            _headed(document),
            **cast(Any, {name: typed(frame, _FRAMES[name]) for name, frame in frames.items()}),
            profile=profile_from(json.loads(profile)) if profile != b"null" else None,
        )
    except damage() as error:
        raise InputError(f"{path}: no summary of a rank that can be read ({first_line(error)})") from None


def separate(content: bytes) -> Iterator[bytes]:
    """Yield each of the summaries that stand one after the other, as those of a file of several ranks."""
    while content:
        rest = _member(_member(content)[1])[1]
        yield content[: len(content) - len(rest)]
        content = rest


def with_ranks(contents: Sequence[bytes], pattern: str | None) -> list[bytes]:
    """Return summaries with the ranks of `numbered`: of all files with a pattern, else of those that name none."""
    heads = [json.loads(_member(content)[0]) for content in contents]
    bare = [head["path"] for head in heads if pattern is not None or (head["rank"] is None and head["error"] is None)]
    ranks = numbered(bare, pattern)
    return [
        _line({**head, "rank": ranks[head["path"]]}) + _member(content)[1] if head["path"] in ranks else content
        for head, content in zip(heads, contents, strict=True)
    ]


def with_path(content: bytes, path: str) -> bytes:
    """Return a summary with ``path`` as its path. Raises ``InputError`` like `from_bytes`."""
    from_bytes(content, path)
    head, rest = _member(content)
    return _line({**json.loads(head), "path": path}) + rest


def head_of(content: bytes) -> tuple[RankSummary, int]:
    """Return a summary of `to_bytes` without its frames, and its number of collectives."""
    document = json.loads(_member(content)[0])
    del document[_KIND]
    return _headed(document), document["frames"]["collectives"]["rows"]


def frames_of(contents: Sequence[bytes]) -> dict[str, tuple[pl.DataFrame, list[int]]]:
    """Return each frame of several summaries of `to_bytes`, concatenated, by name; texts are ``pl.Enum``.

    Also returns the number of rows from each summary.
    """
    described, columns = [], []
    for content in contents:
        head, rest = _member(content)
        described.append(json.loads(head)["frames"])
        columns.append(memoryview(_member(rest)[0].split(b"\n", 1)[1]))
    frames = _frames(described, columns)
    return {name: (frame, [some[name]["rows"] for some in described]) for name, frame in frames.items()}


def _document(document: dict[str, Any], path: str) -> dict[str, Any]:
    version = document.pop(_KIND)
    if version != _VERSION:
        raise InputError(f"{path}: a summary of version {version}; this program reads version {_VERSION}")
    return document


def _headed(document: Mapping[str, Any]) -> RankSummary:
    rest = {key: value for key, value in document.items() if key not in ("frames", "groups")}
    return replace(read_as(RankSummary, rest), groups=tuple(_group(group) for group in document["groups"]))


def _frames(described: Sequence[Mapping[str, Any]], columns: Sequence[memoryview]) -> dict[str, pl.DataFrame]:
    frames = {}
    rest = list(columns)
    for name, schema in _FRAMES.items():
        several = [(some[name], content) for some, content in zip(described, rest, strict=True)]
        frames[name], sizes = unpacked(several, schema)
        rest = [content[size:] for content, size in zip(rest, sizes, strict=True)]
        if any(frames[name].get_column(column).null_count() for column in _KNOWN[name]):
            raise ValueError(f"a time is missing in a row of {name}")
    return frames


def _group(document: Mapping[str, Any]) -> RankGroup:
    """Return a process group from a summary's document; ranks of a job share equal ones.

    Raises errors that `from_bytes` handles.
    """
    return _group_of(json.dumps(document))


@lru_cache(1 << 14)
def _group_of(text: str) -> RankGroup:
    document = json.loads(text)
    runs = document["ranks"]
    if sum(abs(count) for _, _, count in runs) > _MOST_RANKS:
        raise ValueError("a process group has too many ranks")
    if not all(type(number) is int for run in runs for number in run):
        raise TypeError("a rank of a process group is no number")
    return replace(read_as(RankGroup, {**document, "ranks": []}), ranks=ranks_of(runs))


def runs_of(ranks: Iterable[int]) -> list[list[int]]:
    """Return ranks as runs (first, stride, count), in order."""
    runs: list[list[int]] = []
    for rank in ranks:
        last = runs[-1] if runs else None
        if last and last[2] == 1 and rank > last[0]:
            last[1:] = [rank - last[0], 2]
        elif last and last[2] > 1 and rank == last[0] + last[1] * last[2]:
            last[2] += 1
        else:
            runs.append([rank, 1, 1])
    return runs


def ranks_of(runs: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """Return the ranks of runs."""
    return tuple(first + stride * place for first, stride, count in runs for place in range(count))


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
    part: _Part, own: Sequence[Any], texts: dict[str, int], known: dict[tuple[str, ...], npt.NDArray[np.int64]]
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
