"""Define the exceptions of this package, and notes on input that is unusual but can be analysed.

::

    TraceAnalyzerError          anything this package refuses to do
    ├── UsageError              a wrong option, argument or output path
    ├── ForkedError             this process was forked from one that had used Polars
    └── InputError              the input cannot be read as a trace
        ├── NotATrace           readable, but not a Chrome trace
        └── InputTooLarge       more bytes than the stated limit

Each exception carries one line for people: what is wrong, where, and what to do. The command prints that
line and exits with 2.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal


class TraceAnalyzerError(Exception):
    """Signal an error that this package raises on purpose: the base of all of them."""


class UsageError(TraceAnalyzerError):
    """Signal a wrong option, argument or output path."""


class ForkedError(TraceAnalyzerError):
    """Signal that this process was forked from one that had used Polars, whose threads it lacks."""


class InputError(TraceAnalyzerError):
    """Signal an input that cannot be read as a trace."""


class NotATrace(InputError):
    """Signal an input that can be read, but is no Chrome trace."""


class InputTooLarge(InputError):
    """Signal an input that holds more bytes than the stated limit."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` with the known name that is most like ``name``; empty where none is."""
    from difflib import get_close_matches

    close = get_close_matches(name[:_LONGEST_NAME], known, 1)
    return f"; did you mean {close[0]}?" if close else ""


_LONGEST_NAME = 100
"""Characters of a name that are compared, as that takes more than linear time."""

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Note:
    """One remark about the trace or the analysis.

    ``code`` is stable and meant for programs, ``message`` for people. ``count`` is the number of events (or other items
    that the message names).
    """

    code: Annotated[str, "Stable name, for programs."]
    severity: Annotated[Severity, "How grave it is."]
    message: Annotated[str, "For people."]
    count: Annotated[int, "Number of events, or of other items that the message names."] = 1


TRUNCATED = "truncated"
"""Code of the note on a truncated file."""
SYNTAX = "syntax-error"
"""Code of the note on a file with invalid JSON."""
NUL_BYTES = "nul-bytes"
"""Code of the note on a file with NUL bytes in place of text."""
CHANGED = "changed-while-read"
"""Code of the note on a file that changed during reading."""
UNIT = "display-time-unit"
"""Code of the note on a file whose times may be in another unit."""
DAMAGED = (TRUNCATED, SYNTAX, NUL_BYTES, CHANGED)
"""Codes of notes on files that lost an unknown number of events."""


def breaks_off(notes: Iterable[Note]) -> bool:
    """Return whether a trace's file is truncated: an unknown number of events is missing at its end."""
    return any(note.code == TRUNCATED for note in notes)


def is_damaged(notes: Iterable[Note]) -> bool:
    """Return whether a trace's file lost an unknown number of events."""
    return any(note.code in DAMAGED for note in notes)
