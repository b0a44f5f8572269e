"""The short cut: chunks of events, one per line, through Polars' own JSON reader.

Traces separate their events alike throughout a file, so replacing that separator by a line break makes
lines of JSON. The short cut must prove itself: every line of a chunk has to be a JSON object, digits must
have survived (Polars reads numbers as float64), and what is left around the events has to be a sound
JSON document. A chunk that fails is parsed strictly; a file that fails is left to the strict reader.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from trace_analyzer.ingest.raw import ARGUMENTS, FIELDS, RAW_SCHEMA, raw_frame, strict_decoder
from trace_analyzer.ingest.sorting import Sorted, joined, sorted_events

_WORTH_BYTES = 1 << 18
"""Smaller files are read strictly at once."""
_CHUNK = 8 << 20
_TAIL = 1 << 16
_HEAD = 1 << 20

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[\s*(?=\{)')
_BARE = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*(?=\{)")
_BETWEEN = re.compile(r"\s*,\s*\{")
_ARRAY_END = re.compile(r"\s*\]")

# A float64 of microseconds tells thousandths apart below 2^43; from there on only integers are safe.
_EXACT_BELOW_US = float(1 << 43)
_FRACTION_OF_MANY = re.compile(rb'"(?:ts|dur)"\s*:\s*-?[0-9]+(?:[eE]|(?<=[0-9]{13})\.|\.[0-9]*[eE])')
# Digits behind the nanosecond that lie so near to a half that float64 may round them to the other side.
_NEAR_HALF = r"\.\d{3}(4999|5$|5000)"

_LINE_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(FIELDS, pl.String()),
    "args": pl.Struct({key: pl.String for keys in ARGUMENTS.values() for key in keys}),
}


@dataclass(frozen=True)
class Lines:
    """Header and events of a sound document."""

    header: dict[str, Any]
    events: Sorted
    event_count: int


def read_lines(data: bytes) -> Lines | None:
    """The document by the short cut, or None where it is too small or does not prove itself."""
    opening = _EVENTS.search(data, 0, _HEAD) or _BARE.match(data)
    if len(data) < _WORTH_BYTES or opening is None:
        return None
    separator = _separator(data[opening.end() : opening.end() + _HEAD])
    if separator is None:
        return None
    *chunks, tail = _chunks(data, opening.end(), separator)
    end = _tail(data, tail)
    if end is None:
        return None
    last_events, tail_end = end
    header = _header(data, opening, tail_end)
    if header is None:
        return None
    parts: list[Sorted] = []
    rows = 0
    for start, stop in chunks:
        frame = _chunk_frame(data[start:stop], separator, rows)
        if frame is None:
            return None
        parts.append(sorted_events(frame))
        rows += frame.height
    parts.append(sorted_events(raw_frame(last_events, rows)))
    return Lines(header, joined(parts), rows + len(last_events))


def _separator(head: bytes) -> bytes | None:
    """What stands between the first two events: from the ``}`` of one to the ``{`` of the next."""
    text = head.decode("utf-8", "ignore")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    between = _BETWEEN.match(text, end)
    return b"}" + between[0].encode() if between else None


def _chunks(data: bytes, start: int, separator: bytes) -> Iterator[tuple[int, int]]:
    """Spans of whole events, from the ``{`` of the first to the ``}`` of the last; the tail runs to the file's end."""
    while (found := data.find(separator, start + _CHUNK)) >= 0:
        yield start, found + 1
        start = found + len(separator) - 1
    if (found := data.rfind(separator, start, len(data) - _TAIL)) >= 0:
        yield start, found + 1
        start = found + len(separator) - 1
    yield start, len(data)


def _tail(data: bytes, span: tuple[int, int]) -> tuple[list[Any], int] | None:
    """The last events, parsed strictly, and the offset behind the ``]`` that follows them."""
    text = data[span[0] :].decode("utf-8", "surrogateescape")
    decoder, at, events = strict_decoder(), 0, []
    try:
        while True:
            event, at = decoder.raw_decode(text, at)
            events.append(event)
            between = _BETWEEN.match(text, at)
            if between is None:
                break
            at = between.end() - 1
    except (ValueError, RecursionError):
        return None
    closing = _ARRAY_END.match(text, at)
    if closing is None or not all(isinstance(event, dict) for event in events):
        return None
    return events, span[0] + len(text[: closing.end()].encode("utf-8", "surrogateescape"))


def _header(data: bytes, opening: re.Match[bytes], tail_end: int) -> dict[str, Any] | None:
    """The document without its events, which must be sound JSON; an empty one for a bare array."""
    around = data[: opening.end()] + data[tail_end - 1 :]
    if around.count(b'"traceEvents"') > 1:
        return None
    try:
        value = strict_decoder().decode(around.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list):
        return {}
    return {k: v for k, v in value.items() if k != "traceEvents"} if value.get("traceEvents") == [] else None


def _chunk_frame(chunk: bytes, separator: bytes, first_row: int) -> pl.DataFrame | None:
    """Raw frame of a chunk, parsed strictly where the short cut does not prove itself; None where that fails too."""
    frame = _quick_frame(chunk, separator, first_row)
    if frame is not None:
        return frame
    try:
        events = strict_decoder().decode("[" + chunk.decode("utf-8") + "]")
    except (ValueError, RecursionError):
        return None
    return raw_frame(events, first_row) if all(isinstance(event, dict) for event in events) else None


def _quick_frame(chunk: bytes, separator: bytes, first_row: int) -> pl.DataFrame | None:
    # Lone surrogates would be read as NUL, and NUL stands for the line break here.
    if b"\\ud" in chunk or b"\\uD" in chunk or b"\x00" in chunk:
        return None
    # Tabs are blanks between tokens, and an error inside strings, as the line breaks that they replace.
    lines = chunk.replace(separator, b"}\x00{").replace(b"\r", b"\t").replace(b"\n", b"\t").replace(b"\x00", b"\n")
    try:
        frame = pl.read_ndjson(lines, schema=_LINE_SCHEMA)
    except PolarsError:
        return None
    if frame.height != lines.count(b"\n") + 1:
        return None
    arguments = pl.col("args").struct
    frame = frame.select(
        (pl.int_range(pl.len()) + first_row).cast(pl.UInt32).alias("row"),
        *FIELDS,
        *(pl.coalesce(arguments.field(key) for key in keys).alias(column) for column, keys in ARGUMENTS.items()),
    )
    near_half, large = frame.select(
        pl.any_horizontal(pl.col("ts", "dur").str.contains(_NEAR_HALF)).any().alias("near_half"),
        (pl.max_horizontal(pl.col("ts", "dur").cast(pl.Float64, strict=False).abs()) >= _EXACT_BELOW_US)
        .any()
        .alias("large"),
    ).row(0)
    if near_half or (large and _FRACTION_OF_MANY.search(chunk)):
        return None
    return frame.select(list(RAW_SCHEMA))
