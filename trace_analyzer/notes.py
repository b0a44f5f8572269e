"""Keep what is odd about a trace, yet survivable, with the report."""

from collections.abc import Iterable
from typing import Annotated, Literal

from trace_analyzer.tuning import dataclass

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Note:
    """Hold one remark about the trace or the analysis.

    ``code`` is stable and meant for programs, ``message`` for people, ``count`` says how many events
    (or other things, as the message says) it is about.
    """

    code: Annotated[str, "Stable name, for programs."]
    severity: Annotated[Severity, "How grave it is."]
    message: Annotated[str, "For people."]
    count: Annotated[int, "How many events, or other things as the message says."] = 1


TRUNCATED = "truncated"
"""Code of the note on a file that breaks off."""
SYNTAX = "syntax-error"
"""Code of the note on a file with places that are no JSON."""
NUL_BYTES = "nul-bytes"
"""Code of the note on a file with NUL bytes in the place of text."""
CHANGED = "changed-while-read"
"""Code of the note on a file that changed while it was read."""
DAMAGED = (TRUNCATED, SYNTAX, NUL_BYTES, CHANGED)
"""Codes of notes on files that have lost events, nobody knows how many."""


def breaks_off(notes: Iterable[Note]) -> bool:
    """Return whether a trace's file breaks off: nobody knows how many events stood behind that."""
    return any(note.code == TRUNCATED for note in notes)


def is_damaged(notes: Iterable[Note]) -> bool:
    """Return whether a trace's file has lost events, nobody knows how many."""
    return any(note.code in DAMAGED for note in notes)
