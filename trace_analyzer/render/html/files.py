"""Report files on disk: written in one step, recognised again by their first bytes."""

import os
import secrets
from pathlib import Path

GENERATOR = "trace-analyzer"

_HEAD_BYTES = 4096
_DOCTYPE = b"<!doctype html>"
_MARKER = f'<meta name="generator" content="{GENERATOR} '.encode()


def is_own_report(path: Path) -> bool:
    """Whether the file is a report that this program wrote; only its head is read."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return head.startswith(_DOCTYPE) and _MARKER in head


def write_text(path: Path, text: str) -> None:
    """Write the text in UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write the content beside ``path`` and rename it into place, so that no half-written file is ever seen."""
    target = path.resolve()
    temporary = target.with_name(f".{GENERATOR}-{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        os.replace(temporary, target)
    except BaseException:  # KeyboardInterrupt too: the temporary file must never stay
        temporary.unlink(missing_ok=True)
        raise
