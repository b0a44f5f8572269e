"""Turn places in source files into links, for terminals that can open them (OSC 8).

Each place is ``path:line``. Only existing files are linked, as a trace from another machine names that machine's files.
The link is the percent-encoded address of the file, so that no name can end it; the text does not change. The line is
its fragment, as kitty and iTerm2 expect; within VS Code it is a VS Code address.
https://gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda describes the sequence.
"""

import os
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from urllib.parse import quote

_PLACE = re.compile(
    r"(?<![^\s(\[\"'=])(?P<path>(?:[A-Za-z]:)?[^\s:()\[\]\"'<>\x00-\x1f\x7f-\x9f]+\.\w{1,4}):(?P<line>[0-9]{1,7})\b"
)
_START, _END = "\x1b]8;;", "\x1b\\"
_WITHOUT = ("dumb", "linux")
"""Values of TERM for terminals without links."""


def wants_links() -> bool:
    """Return whether standard output is a terminal that probably supports links, and NO_COLOR is unset."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in _WITHOUT


def linked(text: str, address: Callable[[Path, int], str] | None = None) -> str:
    """Return the text with a link on each ``path:line`` of an existing file, relative to the current folder."""
    of_place = address or (vscode_address if os.environ.get("TERM_PROGRAM") == "vscode" else file_address)

    @cache
    def link(path: str, line: int) -> str | None:
        try:
            file = Path(path)
            return of_place(file.resolve(), line) if file.is_file() else None
        except (OSError, ValueError):
            return None

    def of_match(match: re.Match[str]) -> str:
        target = link(match["path"], int(match["line"]))
        return match[0] if target is None else f"{_START}{target}{_END}{match[0]}{_START}{_END}"

    return _PLACE.sub(of_match, text)


def file_address(path: Path, line: int) -> str:
    """Return the address of a line in a file on this host."""
    import socket

    address = path.as_uri().removeprefix("file://")
    return f"file://{quote(socket.gethostname())}{address}#{line}"


def vscode_address(path: Path, line: int) -> str:
    """Return the address for opening a line of a file in VS Code."""
    return f"vscode://file{path.as_uri().removeprefix('file://')}:{line}"
