"""Recognise report files on disk by their first bytes."""

from pathlib import Path

GENERATOR = "trace-analyzer"

_HEAD_BYTES = 4096
_DOCTYPE = b"<!doctype html>"
_MARKER = f'<meta name="generator" content="{GENERATOR} '.encode()


def is_own_report(path: Path) -> bool:
    """Return whether the file is a report written by this program; only its head is read."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return head.startswith(_DOCTYPE) and _MARKER in head
