"""Store remarks on a trace that is unusual but can be analysed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Note:
    """Hold one remark about the trace or the analysis.

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
DAMAGED = (TRUNCATED, SYNTAX, NUL_BYTES, CHANGED)
"""Codes of notes on files that lost an unknown number of events."""


def breaks_off(notes: Iterable[Note]) -> bool:
    """Return whether a trace's file is truncated: an unknown number of events is missing at its end."""
    return any(note.code == TRUNCATED for note in notes)


def is_damaged(notes: Iterable[Note]) -> bool:
    """Return whether a trace's file lost an unknown number of events."""
    return any(note.code in DAMAGED for note in notes)
