"""Bytes -> the header and one row of text per event.

All but small files are read by compiled code (`fast`), as far as they are sound. The rest is parsed as a whole
where it is sound JSON; else a walker reads value by value and keeps all events before the place where the file
breaks off, which a note names.
"""

import gc
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from trace_analyzer.errors import InputError, NotATrace
from trace_analyzer.ingest.classify import Classified, joined, sorted_objects
from trace_analyzer.ingest.fast import IS_COMPILED, Scanned, scanned
from trace_analyzer.ingest.mistaken import mistaken_document, mistaken_file
from trace_analyzer.ingest.raw import strict_decoder
from trace_analyzer.ingest.source import Content
from trace_analyzer.notes import TRUNCATED, Note

_SPACE = re.compile(r"[ \t\r\n]*")
_SEPARATOR = re.compile(r"[ \t\r\n,]*")
_HEAD = 1 << 20
_LARGE = 20 << 20
"""Characters that take some seconds without the compiled reader."""
_SLOWLY = Note(
    "slow-reader",
    "info",
    "read without the compiled reader, which takes a tenth of the time and a sixth of the memory; install a C compiler, then this again",
)


@dataclass(frozen=True)
class Document:
    """The file: its header, its events by what they are, and what was wrong with it."""

    header: dict[str, Any]
    events: Classified
    event_count: int
    notes: tuple[Note, ...]


@dataclass
class _Walk:
    """What the tolerant walker found."""

    header: dict[str, Any] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)
    has_events: bool = False
    broken_at: int | None = None
    trailing: bool = False


def read_document(content: Content) -> Document:
    """Parse a Chrome trace: an object with ``traceEvents``, or a bare array of events.

    Numbers keep their digits as text. Raises ``NotATrace`` when the bytes are no JSON, or hold no list of events
    or one without a single event, and what reading the content raises.
    """
    name, blocks = content.name, content.blocks()
    head = _gathered(blocks, _HEAD)
    with _no_gc():
        quick = scanned(head, blocks)
    if quick is None:
        if what := mistaken_file(head):
            raise NotATrace(f"{name}: is {what}")
        rest = head if len(head) < _HEAD else b"".join(content.blocks())
        if not rest or rest.isspace():
            raise InputError(f"{name}: " + (content.notes[0].message if content.notes else "is empty"))
        quick = Scanned([], 0, rest, 0, 0)
    text = quick.rest.decode("utf-8-sig", "replace")
    notes = [] if IS_COMPILED or len(text) < _LARGE else [_SLOWLY]
    notes += _encoding_notes(text.count("\ufffd") - quick.rest.count(b"\xef\xbf\xbd") + quick.replaced)
    with _no_gc():
        walk = _whole(text) or _walked(text, name)
        if not walk.has_events:
            if what := mistaken_document(walk.header):
                raise NotATrace(f"{name}: is {what}")
            raise NotATrace(
                f"{name}: is JSON without a `traceEvents` list; expected a trace from torch.profiler"
                " (prof.export_chrome_trace)"
            )
        count = quick.event_count + len(walk.events)
        notes += _walk_notes(walk, text, quick.cut_bytes, count)
        parts = quick.parts
        if walk.events or not parts:
            parts = [*parts, sorted_objects(walk.events, quick.event_count)]
    events = joined(parts)
    odd = sum(not isinstance(event, dict) for event in walk.events)
    unknown = events.skipped.filter(pl.col("reason") == "unknown-phase").get_column("count").sum()
    if count and unknown + odd == count:
        raise NotATrace(
            f"{name}: holds no trace events: none of {count:,} entries has a phase (`ph`) that PyTorch Profiler writes;"
            " expected a trace from torch.profiler (prof.export_chrome_trace)"
        )
    if odd:
        notes.append(Note("not-an-event", "warning", "entries of traceEvents are no objects: skipped", odd))
    return Document(walk.header, events, count, tuple(notes))


def _gathered(blocks: Iterator[bytes], size: int) -> bytes:
    """The first blocks, up to ``size`` bytes or a little more; less where there are no more."""
    gathered = bytearray()
    for block in blocks:
        gathered += block
        if len(gathered) >= size:
            break
    return bytes(gathered)


def _whole(text: str) -> _Walk | None:
    """The document parsed in one go, or None when it is not sound JSON, or might hold two lists of events."""
    if text.count('"traceEvents"') > 1:  # the walker keeps both, where JSON keeps the last of equal keys
        return None
    try:
        value = strict_decoder().decode(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list):
        return _Walk({}, value, has_events=True)
    if not isinstance(value, dict):
        return _Walk()
    events = value.pop("traceEvents", None)
    return _Walk(value, events if isinstance(events, list) else [], has_events=isinstance(events, list))


def _walked(text: str, name: str) -> _Walk:
    """The document read value by value up to where it breaks."""
    walk, decoder = _Walk(), strict_decoder()
    at = _skip(text, 0)
    opening = text[at : at + 1]
    if opening == "[":
        walk.has_events = True
        _read_events(text, at + 1, decoder, walk)
        return walk
    if opening != "{":
        shown = text[at : at + 20].split("\n")[0]
        raise NotATrace(f"{name}: is not JSON (starts with {shown!r}); expected a trace from torch.profiler")
    at += 1
    try:
        while True:
            at = _SEPARATOR.match(text, at).end()  # type: ignore[union-attr]
            if text[at : at + 1] == "}":
                walk.trailing = bool(text[at + 1 :].strip())
                return walk
            key, at = decoder.raw_decode(text, at)
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                raise json.JSONDecodeError("expected ':'", text, at)
            at = _skip(text, at + 1)
            if key == "traceEvents" and text[at : at + 1] == "[":
                walk.has_events = True
                at = _read_events(text, at + 1, decoder, walk)
                if walk.broken_at is not None:
                    return walk
            else:
                walk.header[str(key)], at = decoder.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        if not walk.has_events:
            raise NotATrace(
                f"{name}: is no readable JSON ({_why(error)}); expected a trace from torch.profiler"
            ) from error
        walk.broken_at = at
    return walk


def _read_events(text: str, at: int, decoder: json.JSONDecoder, walk: _Walk) -> int:
    """Append the events of the list that starts at ``at``; return where it ends."""
    while True:
        at = _SEPARATOR.match(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] == "]":
            return at + 1
        try:
            event, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            walk.broken_at = at
            return at
        walk.events.append(event)


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos:,}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _walk_notes(walk: _Walk, text: str, cut_bytes: int, count: int) -> Iterator[Note]:
    if walk.broken_at is not None:
        offset = cut_bytes + len(text[: walk.broken_at].encode("utf-8", "replace"))
        yield Note(
            TRUNCATED,
            "warning",
            f"the file breaks off at byte {offset:,}, after event {count:,}; everything before it was used",
        )
    if walk.trailing:
        yield Note("trailing-garbage", "warning", "text after the end of the JSON document was ignored")


def _encoding_notes(replaced: int) -> Iterator[Note]:
    if replaced:
        yield Note("invalid-utf8", "warning", "byte sequences are not UTF-8: shown as U+FFFD", replaced)


@contextmanager
def _no_gc() -> Iterator[None]:
    """Millions of new dicts make the cycle collector run over and over for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
