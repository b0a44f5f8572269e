"""Check the destinations of results (writable paths, pipes that may close early), and show progress."""

import errno
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO
from urllib.parse import quote

from trace_analyzer import files, units
from trace_analyzer.errors import UsageError

_TRACE_SUFFIX = re.compile(r"(\.json)?(\.gz|\.zst)?$", re.IGNORECASE)

# https://gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda describes the sequence (OSC 8).
_PLACE = re.compile(
    r"(?<![^\s(\[\"'=])(?P<path>(?:[A-Za-z]:)?[^\s:()\[\]\"'<>\x00-\x1f\x7f-\x9f]+\.\w{1,4}):(?P<line>[0-9]{1,7})\b"
)
_START, _END = "\x1b]8;;", "\x1b\\"

# For terminals and pipes whose encoding lacks block characters.
_ASCII = str.maketrans({"█": "#", "…": "~", "–": "-", "·": "|", **dict.fromkeys("▏▎▍▌▋▊▉", "#")})


def default_report_path(trace: str) -> Path:
    """Return the default path of a trace's report: its name in the current directory, with other suffixes."""
    name = "stdin" if trace == "-" else _TRACE_SUFFIX.sub("", Path(trace).name) or "trace"
    return Path(f"{name}.report.html")


def check_writable(path: Path, trace: str, option: str) -> None:
    """Refuse a path that cannot or must not be written, before any work is done.

    Raises ``UsageError`` when the path is the trace itself, a directory, or in a directory that is not writable.
    """
    if trace != "-" and same_file(path, Path(trace)):
        raise UsageError(f"{option} {path}: is the trace itself; it is never overwritten")
    _check_name(path, option)
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a directory; name a file in it")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"{option} {path}: no directory {folder}")
    if not os.access(folder, os.W_OK) and not files.is_special(path):
        raise UsageError(f"{option} {path}: the directory {folder} cannot be written to")


def check_folder(folder: Path, option: str) -> None:
    """Refuse a folder that cannot be created or written, before any work is done. Raises ``UsageError``."""
    _check_name(folder, option)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{option} {folder}: is a file; name a directory")
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise UsageError(f"{option} {folder}: {nearest} is no directory that can be written to")


def check_report_path(path: Path, trace: str, force: bool) -> None:
    """Refuse to overwrite files of other programs, before any work is done.

    Raises ``UsageError``.
    """
    check_writable(path, trace, "--report")
    if files.is_special(path):
        raise UsageError(f"--report {path}: is no regular file; -o writes into pipes and devices")
    if force or not os.path.lexists(path):
        return
    from trace_analyzer.render.html import is_own_report

    if not is_own_report(path):
        raise UsageError(
            f"{path}: exists and is no report of this program; --force overwrites it, --report names another"
        )


def _check_name(path: Path, option: str) -> None:
    """Refuse names that the system refuses: cycles of links, and names that are too long.

    A file called ``-`` is refused as well, as it usually means standard output.
    """
    if str(path) == "-":
        raise UsageError(f"{option} -: only --output writes to standard output; name a file")
    try:
        path.stat()
    except FileNotFoundError as error:
        if path.is_symlink() and not Path(os.path.realpath(path)).parent.is_dir():
            raise UsageError(f"{option} {path}: leads to where no directory is") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise UsageError(f"{option} {path}: {error.strerror}") from error


def same_file(one: Path, other: Path) -> bool:
    """Return whether both paths lead to one file, which may not exist yet."""
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def say(text: str) -> None:
    """Write the text to standard output; a reader that closes early (``| head``) is no failure."""
    _write(text, sys.stdout)


def _write(text: str, stream: TextIO) -> None:
    try:
        stream.write(_encodable(text, stream))
        stream.flush()
    except BrokenPipeError:
        # Python flushes the stream again at exit, which would fail: redirect that flush to the null device.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_standard_output(output: str | None) -> bool:
    """Return whether ``--output`` means standard output: not given, or ``-``."""
    return output in (None, "-")


def deliver(text: str, output: str | None, *, links: bool = False) -> None:
    """Write the text to the file that ``--output`` names, or to standard output, where places in files may be links."""
    if is_standard_output(output):
        say(linked(text) if links and wants_links() else text)
    else:
        files.write_text(Path(str(output)), text)


def page_asked_for(page: str | None, output: str | None, form: str, option: str) -> tuple[str | None, str | None]:
    """Return the paths of page and text.

    If the output has a page's suffix, it becomes the page, and the text is printed.

    ``option`` is the option that names the page. Raises ``UsageError`` where both name a page.
    """
    if output is None or form != "text" or not output.lower().endswith((".html", ".htm")):
        return page, output
    if page is not None:
        raise UsageError(f"--output {output} names an HTML page, and so does {option} {page}")
    return output, None


def complain(message: str) -> None:
    """Write one line to standard error, after the command's name."""
    _write(f"analyze: {units.visible(message)}\n", sys.stderr)


def _encodable(text: str, stream: TextIO) -> str:
    """Replace characters that the stream cannot encode."""
    encoding = stream.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)
    return text


def wants_colour() -> bool:
    """Return whether standard output is a terminal that shows colours and NO_COLOR is unset (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def text_width() -> int:
    """Return cells per line on standard output: the terminal's within limits, or 100 without a terminal."""
    if not sys.stdout.isatty():
        return 100
    import shutil

    return max(40, min(160, shutil.get_terminal_size((100, 24)).columns))


def wants_links() -> bool:
    """Return whether standard output is a terminal that probably supports links, unlike Linux's own."""
    return wants_colour() and os.environ.get("TERM") != "linux"


def linked(text: str, address: Callable[[Path, int], str] | None = None) -> str:
    """Return the text with a link on each ``path:line`` of an existing file, relative to the current folder.

    The link is the file's percent-encoded address, so that no name can end it. The line is its fragment, as kitty and
    iTerm2 expect; within VS Code it is a VS Code address.
    """
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


_PATIENCE_S, _REDRAW_S = 0.5, 0.1
_CLEAR = "\r\x1b[K"


class Progress:
    """Show progress, (stage, fraction or None), as a callback that is also a context manager.

    A thread draws the line, because a stage may take seconds without calling back. The line appears after half a
    second, and is erased when the context ends.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._text = "reading"
        self._started = time.monotonic()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, stage: str, fraction: float | None = None) -> None:
        """Show the current stage and its progress."""
        self._text = stage if fraction is None else f"{stage} {units.percent(min(1.0, fraction))}"

    def __enter__(self) -> Self:
        if self._stream.isatty() and os.environ.get("TERM") != "dumb":
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _draw(self) -> None:
        """Redraw until the end; draw nothing if that comes soon."""
        if self._done.wait(_PATIENCE_S):
            return
        try:
            while not self._done.wait(_REDRAW_S):
                elapsed = time.monotonic() - self._started
                self._write(f"{_CLEAR}analyze: {self._text} ... {elapsed:.0f} s")
            self._write(_CLEAR)
        except OSError:  # the terminal is gone, but the result is written elsewhere
            return

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
