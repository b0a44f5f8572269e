"""Read damaged JSON: all complete events, other readable parts of the document, and the places of unreadable bytes.

Values that are no JSON although their extent is clear (nan and inf as C prints them, backslashes without an escape) are
mended. An invalid place costs only its event; reading resumes at the next complete event.
"""

import json
import re
from collections import Counter
from typing import Any, NamedTuple

from msgspec import Struct

from trace_analyzer.errors import NotATrace
from trace_analyzer.ingest.raw import strict_decoder

_STRING = r'"[^"\\]*+(?:\\[\s\S][^"\\]*+)*+'
"""A string without its closing quote; any character may follow a backslash, as in unescaped paths of Windows."""
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
"""Literals, including those that Python's decoder accepts beyond JSON's."""
_UNKNOWN = r"[+-]?(?:inf(?:inity)?+|nan(?:\([0-9a-z_]*\))?+|1\.#(?:inf|ind|qnan|snan)[0-9]*+)"
"""Infinities and NaN as the C libraries of Unix and of Windows print them, in lower or upper case."""
_TOKEN = re.compile(
    rf'[ \t\r\n]*+(?:([{{}}\[\],:])|({_STRING}")|((?i:{_UNKNOWN})(?![\w.])|{"|".join(_WORDS)}|{_NUMBER}))'
)
_MENDED = re.compile(rf'({_STRING}")|((?i:{_UNKNOWN})(?![\w.]))')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_BACKSLASH = re.compile(r'\\(?:(["\\])|)')
_SCALAR = rf'(?:{_STRING}"|{"|".join(_WORDS)}|{_NUMBER})[ \t\r\n]*+'
_FLAT = (
    rf"(?:{_SCALAR}|\[[ \t\r\n]*+(?:{_SCALAR}(?:,[ \t\r\n]*+{_SCALAR})*+)?+\][ \t\r\n]*+"
    rf"|\{{[ \t\r\n]*+\}}[ \t\r\n]*+)"
)
_ITEMS = re.compile(rf"(?:[ \t\r\n]*+{_FLAT},)++")
"""Items of an array, each with its comma: most of what is long in a file, read at once."""
_UNFINISHED = re.compile(
    rf"[ \t\r\n]*+(?:{_STRING}(?:\\(?:u[0-9a-fA-F]{{0,3}})?)?|{_NUMBER}(?:\.|(?:\.[0-9]+)?[eE][+-]?)|-|"
    + "|".join(word[:size] for word in _WORDS for size in range(1, len(word)))
    + r")?\Z"
)
"""Nothing, or the beginning of a token, at the end of the text."""

_ARRAY = -1
_DEEPEST, _MOST_ODD = 1_000_000, 100_000
"""Levels and entries of a list beyond which a file is refused, as reading it takes time and memory for nothing."""
_PIECE = 4096
"""Characters that hold most events."""
_PHASE = '"ph"'


class Hopeless(Exception):
    """Signal a text that no trace has, worded to follow the name of its file."""


class _Open:
    """The open objects and arrays at a place of a text, and which tokens may follow."""

    __slots__ = ("closing", "due", "phases", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        """Start of each open object; `_ARRAY` for an array."""
        self.phases: list[int] = []
        """Starts of the open objects that have a key ``ph``, as events do."""
        self.due = "value"
        self.closing = ""
        """The bracket that may follow instead of the expected token."""

    def take(self, token: str, at: int, is_string: bool) -> bool:
        """Take a token that begins at ``at`` and closes nothing; return whether the grammar allows it here."""
        due = self.due
        if due == "value":
            if token in "}],:":
                return False
            if token in "{[" and len(self.starts) == _DEEPEST:
                raise Hopeless(f"nests {_DEEPEST:,} levels deep, which no trace does")
            if token == "{":
                self.starts.append(at)
                self.due, self.closing = "key", "}"
            elif token == "[":
                self.starts.append(_ARRAY)
                self.closing = "]"
            else:
                self.end_value()
        elif due == "key" and is_string:
            if token == _PHASE and self.phases[-1:] != self.starts[-1:]:
                self.phases.append(self.starts[-1])
            self.due, self.closing = "colon", ""
        elif due == "comma" and token == ",":
            self.due, self.closing = ("value" if self.starts[-1] == _ARRAY else "key"), ""
        elif due == "colon" and token == ":":
            self.due = "value"
        else:
            return False
        return True

    def past_items(self, text: str, at: int) -> int:
        """Take the items with a comma that follow in an array; return the place behind them."""
        if self.due != "value" or not self.starts or self.starts[-1] != _ARRAY:
            return at
        match = _ITEMS.match(text, at)
        if match is None:
            return at
        self.closing = ""
        return match.end()

    def close(self) -> int | None:
        """Close the innermost object or array; return its start if it is an event."""
        start = self.starts.pop()
        self.end_value()
        if start == _ARRAY or self.phases[-1:] != [start]:
            return None
        self.phases.pop()
        return None if self.starts and self.starts[-1] != _ARRAY else start

    def end_value(self) -> None:
        """Expect what follows a value: the end of the outermost value, a comma, or a closing bracket."""
        self.due, self.closing = "comma", "" if not self.starts else "]" if self.starts[-1] == _ARRAY else "}"


def value_end(text: str, at: int) -> tuple[int, bool]:
    """Return the end of the value that begins at ``at`` and True, or the place where it stops being JSON and False.

    A value that stops at the end of the text could be valid if the text continued.
    """
    level = _Open()
    while True:
        at = level.past_items(text, at)
        match = _TOKEN.match(text, at)
        if match is None or (match[3] and _UNFINISHED.match(text, match.start(3))):
            return (len(text) if _UNFINISHED.match(text, at) else _skip(text, at)), False
        kind = match.lastindex or 0
        token, start = match[kind], match.start(kind)
        if token == level.closing:
            level.close()
        elif not level.take(token, start, kind == 2):
            return start, False
        at = match.end()
        if not level.starts:
            return at, True


def next_event(text: str, at: int) -> int | None:
    """Return the start of the first complete object with a key ``ph`` at or after ``at``; None without one.

    Objects that are values of a key in another object are skipped, so that an event's arguments are not taken for an
    event.
    """
    level = _Open()
    while True:
        if not level.starts:
            at = text.find("{", at)
            if at < 0:
                return None
            level = _Open()
        at = level.past_items(text, at)
        match = _TOKEN.match(text, at)
        if match is None:
            at, level = _skip(text, at), _Open()
            continue
        kind = match.lastindex or 0
        token, start, at = match[kind], match.start(kind), match.end()
        if token == level.closing:
            event = level.close()
            if event is not None:
                return event
        elif not level.take(token, start, kind == 2):
            at, level = start, _Open()


_SPACE = re.compile(r"[ \t\r\n]*")
_SEPARATOR = re.compile(r"[ \t\r\n,]*")


_UNKNOWN_VALUES = "nan or inf as C prints them, which are unknown values"
_NO_ESCAPES = "backslashes without an escape"


class Mended(dict[str, Any]):
    """An event with values that were no JSON; ``held`` says which."""

    held = ""


TOO_DEEP = object()
"""Placeholder for an event with too much nesting to be read."""
NO_OBJECT, NESTED = "entries of traceEvents are no objects: skipped", "events nest too deeply to be read: skipped"


def oddities(entries: list[Any]) -> Counter[str]:
    """Count entries that are no sound events: by `NO_OBJECT`, `NESTED`, or what mended ones held."""
    odd = (entry for entry in entries if type(entry) is not dict)
    return Counter(NESTED if entry is TOO_DEEP else entry.held if type(entry) is Mended else NO_OBJECT for entry in odd)


class Fault(NamedTuple):
    """Locate invalid JSON (``at``) in a part of the text that was not read (``start`` to ``end``)."""

    at: int
    start: int
    end: int

    def moved(self, by: int) -> "Fault":
        """Return the fault at the same place of a larger text, in which this text begins at ``by``."""
        return Fault(self.at + by, self.start + by, self.end + by)


class Walk(Struct):
    """The content read from a text; places are counted in characters.

    ``broken_at`` is the start of the last value if the text ends within it. Valid events that nest deeper than Python
    can read are `TOO_DEEP`; ``deep_members`` counts such members of the header.
    """

    header: dict[str, Any] = {}
    events: list[Any] = []
    has_events: bool = False
    deep_members: int = 0
    faults: list[Fault] = []
    broken_at: int | None = None
    trailing: bool = False


def walk_document(text: str, name: str) -> Walk:
    """Read a document value by value, skipping invalid JSON.

    Raises ``NotATrace`` where the text does not begin like a JSON document, or is invalid and contains no event.
    """
    walk = Walk()
    at = _skip(text, 0)
    if text[at : at + 1] not in ("[", "{"):
        shown = text[at : at + 20].split("\n")[0]
        raise NotATrace(f"{name}: is not JSON (starts with {shown!r}); expected a trace from torch.profiler")
    walk.has_events = text[at] == "["
    end = (_events if walk.has_events else _members)(text, at + 1, walk)
    walk.trailing = end is not None and bool(text[end:].strip())
    return walk


def recover(content: bytes, text: str, at: int, least: int) -> tuple[list[Any], list[Fault], int] | None:
    """Read ``least`` entries or faults of a list of events from ``at``, up to a `{` or `]` at which a reader can resume.

    ``text`` is the content with one character per byte. Returns the entries, the faults and the place; None where the
    content ends within the first.
    """
    entries: list[Any] = []
    faults: list[Fault] = []
    start = at
    while True:
        at = _SEPARATOR.match(text, at).end()  # type: ignore[union-attr]
        sign = text[at : at + 1]
        if (sign == "]" and at > start) or (sign == "{" and len(entries) + len(faults) >= least):
            return entries, faults, at
        _, end, is_sound = _entry(text, at)
        if is_sound:
            entries.append(decoded(content[at:end].decode("utf-8", "replace")))
            if len(entries) > _MOST_ODD:
                raise Hopeless(
                    f"holds more than {_MOST_ODD:,} entries in a row that are no objects, which no trace has"
                )
            at = end
            continue
        following = None if end == len(text) else next_event(text, end)
        if following is None:
            return (entries, faults, at) if entries or faults else None
        faults.append(Fault(end, at, following))
        at = following


def decoded(text: str) -> Any:
    """Return a value whose extent `value_end` found; `TOO_DEEP` where it nests too deeply.

    Numbers that only C can read become null. In a string with an invalid escape, each backslash stands for itself unless
    a quote or a backslash follows it.
    """
    try:
        try:
            return strict_decoder().decode(text)
        except ValueError:
            value = strict_decoder().decode(_MENDED.sub(_mended, text))
            if isinstance(value, dict):
                value = Mended(value)
                value.held = ", and ".join(sorted({_wrong(match) for match in _MENDED.finditer(text)} - {""}))
            return value
    except RecursionError:
        return TOO_DEEP


def _wrong(match: re.Match[str]) -> str:
    if match[2]:
        return "" if match[2] in _WORDS else _UNKNOWN_VALUES
    return _NO_ESCAPES if "\\" in _ESCAPE.sub("", match[1]) else ""


def _mended(match: re.Match[str]) -> str:
    if not _wrong(match):
        return match[0]
    return "null" if match[2] else _BACKSLASH.sub(lambda sign: sign[0] if sign[1] else r"\\", match[1])


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
    while True:
        at = _SEPARATOR.match(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] == "]":
            return at + 1
        event, end, is_sound = _entry(text, at)
        if is_sound:
            walk.events.append(decoded(text[at:end]) if event is None else event)
            at = end
            continue
        following = _recover(text, at, end, walk)
        if following is None:
            return None
        at = following


def _entry(text: str, at: int) -> tuple[Any, int, bool]:
    """Return the event that begins at ``at``, None where it is to be `decoded`, and what `value_end` returns of it.

    The decoder gets a piece, as the error that it raises counts the lines of all that it got.
    """
    if text.startswith("{", at):
        try:
            event, size = strict_decoder().raw_decode(text[at : at + _PIECE])
        except (ValueError, RecursionError):
            pass
        else:
            return event, at + size, True
    return None, *value_end(text, at)


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
