"""Parse bytes into the header and one row of text per event.

Compiled code (`fast`) reads the sound parts of all but small files. The rest is parsed as a whole if it is valid JSON;
else value by value (`tolerant`), skipping invalid parts, which a note names.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from trace_analyzer.errors import InputError, NotATrace
from trace_analyzer.ingest.classify import Classified, joined, sorted_objects
from trace_analyzer.ingest.fast import IS_COMPILED, Scanned, scanned
from trace_analyzer.ingest.mistaken import mistaken_document, mistaken_file
from trace_analyzer.ingest.raw import strict_decoder
from trace_analyzer.ingest.source import Content
from trace_analyzer.ingest.tolerant import TOO_DEEP, Walk, walk_document
from trace_analyzer.notes import SYNTAX, TRUNCATED, Note
from trace_analyzer.tuning import without_garbage_collection

_HEAD = 1 << 20
_LARGE = 20 << 20
"""Number of characters whose reading takes some seconds without the compiled reader."""
_SLOWLY = Note(
    "slow-reader",
    "info",
    "read without the compiled reader, which takes a tenth of the time and a sixth of the memory; install a C compiler, then this again",
)


@dataclass(frozen=True)
class Document:
    """Hold a file: its header, its classified events, and problems with its content."""

    header: dict[str, Any]
    events: Classified
    event_count: int
    notes: tuple[Note, ...]


def read_document(content: Content) -> Document:
    """Parse a Chrome trace: an object with ``traceEvents``, or a bare array of events.

    Numbers keep their digits as text. Raises ``NotATrace`` when the bytes are no JSON, or contain no list of events, an
    empty one, or one without a readable event. Errors from reading the content are raised unchanged.
    """
    name, blocks = content.name, content.blocks()
    head = _gathered(blocks, _HEAD)
    with without_garbage_collection():
        quick = scanned(head, blocks)
    if quick is None:
        if what := mistaken_file(head):
            raise NotATrace(f"{name}: is {what}")
        rest = head if len(head) < _HEAD else b"".join(content.blocks())
        if not rest or rest.isspace():
            raise InputError(f"{name}: " + (content.notes[0].message if content.notes else "is empty"))
        quick = Scanned([], 0, rest)
    text = quick.rest.decode("utf-8-sig", "replace")
    notes = [] if IS_COMPILED or len(text) < _LARGE else [_SLOWLY]
    notes += _encoding_notes(text.count("\ufffd") - quick.rest.count(b"\xef\xbf\xbd") + quick.replaced)
    with without_garbage_collection():
        walk = _whole(text) or walk_document(text, name)
        count = quick.event_count + len(walk.events)
        damage = [*_damage(walk, text, quick, count)]
        if damage and not count:
            raise NotATrace(
                f"{name}: holds no event that can be read: {damage[0].message}; expected a trace from torch.profiler"
            )
        if not walk.has_events:
            if what := mistaken_document(walk.header):
                raise NotATrace(f"{name}: is {what}")
            raise NotATrace(
                f"{name}: is JSON without a `traceEvents` list; expected a trace from torch.profiler"
                " (prof.export_chrome_trace)"
            )
        parts = quick.parts
        if walk.events or not parts:
            parts = [*parts, sorted_objects(walk.events, quick.event_count)]
    notes += damage
    events = joined(parts)
    too_deep = sum(event is TOO_DEEP for event in walk.events) + quick.too_deep
    odd = sum(not isinstance(event, dict) and event is not TOO_DEEP for event in walk.events) + quick.odd
    unknown = events.skipped.filter(pl.col("reason") == "unknown-phase").get_column("count").sum()
    if count and unknown + odd + too_deep == count:
        raise NotATrace(
            f"{name}: holds no trace events: none of {count:,} entries has a phase (`ph`) that PyTorch Profiler writes;"
            " expected a trace from torch.profiler (prof.export_chrome_trace)"
        )
    if odd:
        notes.append(Note("not-an-event", "warning", "entries of traceEvents are no objects: skipped", odd))
    if too_deep:
        notes.append(Note("too-deep", "warning", "events nest too deeply to be read: skipped", too_deep))
    return Document(walk.header, events, count, tuple(notes))


def _gathered(blocks: Iterator[bytes], size: int) -> bytes:
    """Return the first blocks, with at least ``size`` bytes in total if there are as many."""
    gathered = bytearray()
    for block in blocks:
        gathered += block
        if len(gathered) >= size:
            break
    return bytes(gathered)


def _whole(text: str) -> Walk | None:
    """Parse the document in one go; None when it is invalid JSON, or may contain two lists of events."""
    if text.count('"traceEvents"') > 1:  # the walker keeps both lists, where JSON keeps the last of equal keys
        return None
    try:
        value = strict_decoder().decode(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list):
        return Walk({}, value, has_events=True)
    if not isinstance(value, dict):
        return Walk()
    events = value.pop("traceEvents", None)
    return Walk(value, events if isinstance(events, list) else [], has_events=isinstance(events, list))


def _damage(walk: Walk, text: str, quick: Scanned, count: int) -> Iterator[Note]:
    """Note the unreadable parts of the document."""
    faults = [(fault.at, fault.end - fault.start) for fault in quick.faults]
    for fault in walk.faults:
        at = 0 if faults else quick.cut_bytes + _byte_place(quick.rest, text, fault.at)
        faults.append((at, len(text[fault.start : fault.end].encode("utf-8", "replace"))))
    if faults:
        unread, many = sum(size for _, size in faults), len(faults) > 1
        where = f"at byte {faults[0][0]:,}"
        yield Note(
            SYNTAX,
            "warning",
            (f"{len(faults):,} syntax errors, the first {where}" if many else f"syntax error {where}")
            + f": {unread:,} bytes around {'them' if many else 'it'} were not read",
            len(faults),
        )
    if walk.broken_at is not None:
        offset = quick.cut_bytes + _byte_place(quick.rest, text, walk.broken_at)
        yield Note(
            TRUNCATED,
            "warning",
            f"the file is truncated at byte {offset:,}, "
            + (f"after event {count:,}; everything before it was used" if count else "before its first whole event"),
        )
    if walk.deep_members:
        yield Note(
            "deep-header", "warning", "entries of the header nest too deeply to be read: skipped", walk.deep_members
        )
    if walk.trailing:
        yield Note("trailing-garbage", "warning", "text after the end of the JSON document was ignored")


def _byte_place(content: bytes, text: str, at: int) -> int:
    """Return the byte offset of the character at index ``at`` of the decoded content."""
    if len(content) == len(text):
        return at

    def characters(size: int) -> int:
        return len(content[:size].decode("utf-8-sig", "replace"))

    return bisect_left(range(len(content)), at + 1, key=characters) - 1 if at < len(text) else len(content)


def _encoding_notes(replaced: int) -> Iterator[Note]:
    if replaced:
        yield Note("invalid-utf8", "warning", "byte sequences are not UTF-8: shown as U+FFFD", replaced)
