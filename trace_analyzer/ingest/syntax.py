"""Follow the grammar of JSON token by token, to the end of a value or to the next complete event.

It reads text of any size and depth in linear time and without recursion, at about a microsecond per token. It is meant
for text that the JSON decoder refuses.
"""

import re

_STRING = r'"[^"\\]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\]*+)*+'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
"""Literals, including those that Python's decoder accepts beyond JSON's."""
_TOKEN = re.compile(rf'[ \t\r\n]*+(?:([{{}}\[\],:])|({_STRING}")|({"|".join(_WORDS)}|{_NUMBER}))')
_BEGUN = re.compile(
    rf"[ \t\r\n]*+(?:{_STRING}(?:\\(?:u[0-9a-fA-F]{{0,3}})?)?|{_NUMBER}(?:\.|(?:\.[0-9]+)?[eE][+-]?)|-|"
    + "|".join(word[:size] for word in _WORDS for size in range(1, len(word)))
    + r")?\Z"
)
"""Nothing, or the beginning of a token, at the end of the text."""

_ARRAY = -1
_PHASE = '"ph"'


class _Open:
    """Hold the open objects and arrays at a place of a text, and which tokens may follow."""

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
        match = _TOKEN.match(text, at)
        if match is None or (match[3] and _BEGUN.match(text, match.start(3))):
            return (len(text) if _BEGUN.match(text, at) else _blank_end(text, at)), False
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
        match = _TOKEN.match(text, at)
        if match is None:
            at, level = _blank_end(text, at), _Open()
            continue
        kind = match.lastindex or 0
        token, start, at = match[kind], match.start(kind), match.end()
        if token == level.closing:
            event = level.close()
            if event is not None:
                return event
        elif not level.take(token, start, kind == 2):
            at, level = start, _Open()


_BLANK = re.compile(r"[ \t\r\n]*+")


def _blank_end(text: str, at: int) -> int:
    return _BLANK.match(text, at).end()  # type: ignore[union-attr]
