"""Read damaged JSON: all complete events, other readable parts of the document, and the places of unreadable bytes.

An invalid place costs only its event; reading resumes at the next complete event.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from trace_analyzer.errors import NotATrace
from trace_analyzer.ingest.raw import strict_decoder
from trace_analyzer.ingest.syntax import next_event, value_end

_SPACE = re.compile(r"[ \t\r\n]*")
_SEPARATOR = re.compile(r"[ \t\r\n,]*")


TOO_DEEP = object()
"""Placeholder for an event with too much nesting to be read."""


@dataclass(frozen=True)
class Fault:
    """Locate invalid JSON (``at``) in a part of the text that was not read (``start`` to ``end``)."""

    at: int
    start: int
    end: int

    def moved(self, by: int) -> "Fault":
        """Return the fault at the same place of a larger text, in which this text begins at ``by``."""
        return Fault(self.at + by, self.start + by, self.end + by)


@dataclass
class Walk:
    """Hold the content read from a text; places are counted in characters.

    ``broken_at`` is the start of the last value if the text ends within it. Valid events that nest deeper than Python
    can read are `TOO_DEEP`; ``deep_members`` counts such members of the header.
    """

    header: dict[str, Any] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)
    has_events: bool = False
    deep_members: int = 0
    faults: list[Fault] = field(default_factory=list)
    broken_at: int | None = None
    trailing: bool = False


def walk_document(text: str, name: str) -> Walk:
    """Read a document value by value, skipping invalid JSON.

    Raises ``NotATrace`` where the text does not begin like a JSON document, or is invalid and contains no event.
    """
    walk = Walk()
    at = _skip(text, 0)
    if text[at : at + 1] == "[":
        walk.has_events = True
        end = _events(text, at + 1, walk)
        walk.trailing = end is not None and bool(text[end:].strip())
        return walk
    if text[at : at + 1] != "{":
        shown = text[at : at + 20].split("\n")[0]
        raise NotATrace(f"{name}: is not JSON (starts with {shown!r}); expected a trace from torch.profiler")
    end = _members(text, at + 1, walk)
    walk.trailing = end is not None and bool(text[end:].strip())
    return walk


def recover(content: bytes, text: str, at: int) -> tuple[list[Any], list[Fault], int] | None:
    """Read entries of a list of events from ``at`` up to the next `{` or `]` at which a reader can resume.

    ``text`` is the content with one character per byte. Returns the entries, the faults and the place; None where the
    content ends before such a place.
    """
    entries: list[Any] = []
    faults: list[Fault] = []
    start = at
    while True:
        at = _SEPARATOR.match(text, at).end()  # type: ignore[union-attr]
        if at > start and text[at : at + 1] in ("{", "]"):
            return entries, faults, at
        end, is_sound = value_end(text, at)
        if is_sound:
            entries.append(_decoded(content[at:end]))
            at = end
            continue
        following = None if end == len(text) else next_event(text, end)
        if following is None:
            return None
        faults.append(Fault(end, at, following))
        at = following


def _decoded(content: bytes) -> Any:
    try:
        return strict_decoder().decode(content.decode("utf-8", "replace"))
    except RecursionError:
        return TOO_DEEP


def _members(text: str, at: int, walk: Walk) -> int | None:
    """Read the members of the document from ``at``; return the end of the document, None where it is not closed."""
    decoder = strict_decoder()
    while True:
        at = _SEPARATOR.match(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] == "}":
            return at + 1
        try:
            key, value_at = decoder.raw_decode(text, at)
            colon = _skip(text, value_at)
            if not isinstance(key, str) or text[colon : colon + 1] != ":":
                raise json.JSONDecodeError("expected ':'", text, colon)
            value_at = _skip(text, colon + 1)
            if key == "traceEvents" and text[value_at : value_at + 1] == "[":
                walk.has_events = True
                following = _events(text, value_at + 1, walk)
                if following is None:
                    return None
                at = following
                continue
            value, at = decoder.raw_decode(text, value_at)
            walk.header[key] = value
        except (ValueError, RecursionError):
            following = _past_member(text, at, walk)
            if following is None:
                return None
            at = following


def _past_member(text: str, at: int, walk: Walk) -> int | None:
    """Continue after the member at ``at`` that the decoder refuses, or after the list of the next complete event."""
    fault, is_sound = value_end(text, at) if text[at : at + 1] in ('"', "") else (at, False)
    if is_sound:  # the value read is a key
        fault = _skip(text, fault)
        if text[fault : fault + 1] == ":":
            fault, is_sound = value_end(text, _skip(text, fault + 1))
            if is_sound:
                walk.deep_members += 1
                return fault
    following = _recover(text, at, fault, walk)
    if following is None:
        return None
    walk.has_events = True
    return _events(text, following, walk)


def _events(text: str, at: int, walk: Walk) -> int | None:
    """Read the events of a list from ``at``; return the end of the list, None where it is not closed."""
    decoder = strict_decoder()
    while True:
        at = _SEPARATOR.match(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] == "]":
            return at + 1
        try:
            event, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end, is_sound = value_end(text, at)
            if is_sound:
                walk.events.append(TOO_DEEP)
                at = end
                continue
            following = _recover(text, at, end, walk)
            if following is None:
                return None
            at = following
        else:
            walk.events.append(event)


def _recover(text: str, start: int, fault: int, walk: Walk) -> int | None:
    """Record the unreadable part from ``start``; return the start of the next complete event, None without one."""
    if fault == len(text):
        walk.broken_at = start
        return None
    following = next_event(text, fault)
    walk.faults.append(Fault(fault, start, len(text) if following is None else following))
    return following


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]
