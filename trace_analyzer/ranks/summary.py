"""The summary of one rank in some kilobytes: the input for judging a job."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import polars as pl
from msgspec import Struct
from msgspec.structs import asdict, replace

from trace_analyzer import errors, report
from trace_analyzer.compare import profiles, sides
from trace_analyzer.ingest.trace import rank_in_name
from trace_analyzer.json_types import damage, first_line, read_as
from trace_analyzer.ranks.files import numbered
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


_KIND, _VERSION = "rank_summary_version", 4
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


class RankGroup(Struct, frozen=True):
    """A process group: ``key`` is equal on all of its ranks; ``ranks`` is empty where unknown."""

    key: str
    name: str
    description: str | None
    size: int | None
    ranks: tuple[int, ...]


class RankSummary(Struct, frozen=True, eq=False):
    """The data of one rank for judging a job, or the ``error`` that prevented reading it.

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
    levers: tuple[report.Lever, ...] = ()
    steps_from: str | None = None
    groups: tuple[RankGroup, ...] = ()
    steps: pl.DataFrame = _EMPTY["steps"]
    parts: pl.DataFrame = _EMPTY["parts"]
    collectives: pl.DataFrame = _EMPTY["collectives"]
    exposed: pl.DataFrame = _EMPTY["exposed"]
    work: pl.DataFrame = _EMPTY["work"]
    profile: profiles.Profile | None = None


def mean_levers(ranks: Sequence[RankSummary]) -> tuple[report.Lever, ...]:
    """Return the mean of each lever over the ranks that have any."""
    with_any = [summary.levers for summary in ranks if summary.levers]
    if not with_any:
        return ()
    means = (pl.col("share_ratio", "path_ratio", "saves_ns", "saves_ratio").sum() / len(with_any),)
    table = pl.DataFrame([asdict(lever) for levers in with_any for lever in levers]).group_by("resource").agg(means)
    return tuple(report.Lever(*row) for row in table.sort("saves_ns", "resource", descending=[True, False]).iter_rows())


def failed(path: str, error: str) -> bytes:
    """Return the summary of a rank that could not be read."""
    return to_bytes(RankSummary(path, rank=rank_in_name(path), error=error))


def is_failed(content: bytes) -> bool:
    """Return whether a summary is that of a rank that could not be read."""
    return b'"error":null' not in _member(content)[0]


def to_bytes(summary: RankSummary) -> bytes:
    """Write a summary as gzip with two members.

    The first is its head, a line of JSON. The second has its profile and each of its frames as a line of JSON; a frame
    is an object of lists.
    """
    head = {name: getattr(summary, name) for name in RankSummary.__struct_fields__ if name not in _APART}
    head["levers"] = [asdict(lever) for lever in summary.levers]
    head["groups"] = [asdict(group) | {"ranks": runs_of(group.ranks)} for group in summary.groups]
    profile = sides.baseline_json(summary.profile).replace("\n", " ") if summary.profile else "null"
    frames = [getattr(summary, name).select(pl.all().implode()).write_ndjson() for name in _FRAMES]
    rest = gzip.compress(f"{profile}\n{''.join(frames)}".encode(), _LEVEL, mtime=0)
    return _line({_KIND: _VERSION, **head, "n_collectives": summary.collectives.height}) + rest


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
        document, lines = json.loads(head), _lines(rest)
        if (version := document.pop(_KIND)) != _VERSION:
            raise errors.InputError(f"{path}: a summary of version {version}; this program reads version {_VERSION}")
        frames = {name: typed(frame, _FRAMES[name]) for name, (frame, _) in _frames([lines]).items()}
        profile = json.loads(lines[0])
        summary = replace(_headed(document), profile=profile and sides.profile_from(profile), **cast(Any, frames))
        if document["n_collectives"] != summary.collectives.height:
            raise ValueError("the number of collectives is another")
    except damage() as error:
        raise errors.InputError(f"{path}: no summary of a rank that can be read ({first_line(error)})") from None
    return summary


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
    return _headed(document), document["n_collectives"]


def frames_of(contents: Sequence[bytes]) -> dict[str, tuple[pl.DataFrame, list[int]]]:
    """Return each frame of several summaries of `to_bytes`, concatenated, by name; texts are ``pl.Enum``.

    Also returns the number of rows from each summary. Raises ``ValueError`` or Polars' errors for other content.
    """
    return _frames([_lines(_member(content)[1]) for content in contents])


def _frames(lines: Sequence[Sequence[bytes]]) -> dict[str, tuple[pl.DataFrame, list[int]]]:
    return {name: _frame(name, [own[place] for own in lines]) for place, name in enumerate(_FRAMES, 1)}


def _lines(member: bytes) -> list[bytes]:
    """Return the lines of a summary's second member: its profile, and each of its frames."""
    lines = _member(member)[0].splitlines()
    if len(lines) != 1 + len(_FRAMES):
        raise ValueError("a frame is missing")
    return lines


def _frame(name: str, lines: Sequence[bytes]) -> tuple[pl.DataFrame, list[int]]:
    """Return a frame from its lines; texts become indices into the distinct ones, which are faster."""
    schema = _FRAMES[name]
    listed = pl.read_ndjson(b"\n".join(lines), schema={column: pl.List(dtype) for column, dtype in schema.items()})
    heights = listed.select(pl.first().list.len().fill_null(0)).to_series().to_list()
    frame = listed.explode(*schema, empty_as_null=False)
    if len(heights) != len(lines) or frame.height != sum(heights):
        raise ValueError(f"columns are not {', '.join(schema)}")
    if any(frame.get_column(column).null_count() for column in _KNOWN[name]):
        raise ValueError(f"a time is missing in a row of {name}")
    texts = frame.select(pl.col(pl.String))
    return frame.with_columns(own.cast(pl.Enum(own.drop_nulls().unique(maintain_order=True))) for own in texts), heights


def _headed(document: Mapping[str, Any]) -> RankSummary:
    rest = {key: value for key, value in document.items() if key not in ("n_collectives", "groups")}
    groups = (_group_of(json.dumps(group)) for group in document["groups"])
    return replace(read_as(RankSummary, rest), groups=tuple(groups))


@lru_cache(1 << 14)  # ranks of a job share equal groups
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
