"""Check what the process's environment forbids: memory, and settings of libraries."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import NoReturn

from trace_analyzer import units
from trace_analyzer.cli.signals import ENDING, EXIT_BASE
from trace_analyzer.errors import UsageError

_SUPERVISED = "TRACE_ANALYZER_SUPERVISED"
"""Set in the environment of a process that another one of this program watches."""

_MOST_THREADS = 4096
_COUNTS = {"POLARS_MAX_THREADS": _MOST_THREADS, "POLARS_IDEAL_MORSEL_SIZE": 1 << 40}
"""Variables that Polars reads as whole numbers, each with the most that is sensible: at 0 it panics."""

_LIBRARIES = ("BOKEH_", "HOLOVIEWS_", "POLARS_")


def check_environment() -> None:
    """Refuse settings of Polars that it would panic at. Raises ``UsageError``."""
    for name, most in _COUNTS.items():
        text = os.environ.get(name, "")
        if text.isdecimal() and not 0 < int(text[:20]) <= most:
            raise UsageError(f"{name}={text}: must be from 1 to {most:,}; change it or unset it")


def library_settings() -> list[str]:
    """Return the unchecked environment variables that set up the libraries this program runs on."""
    return sorted(name for name in os.environ if name.startswith(_LIBRARIES) and name not in _COUNTS)


def memory_limit() -> int | None:
    """Return the bytes that the process may take, by ``ulimit -v`` or ``ulimit -d``; None for no limit."""
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)


def supervise(arguments: Iterable[str]) -> None:
    """Run the command in a child process where memory is limited, and report in one line if it does not suffice.

    What runs out of memory in native code aborts the process, after thousands of lines of it; a parent can tell. Where
    it is not limited, and in that child, nothing is done. A command that other programs' output passes through
    (``record``) is left alone.
    """
    limit = memory_limit()
    if limit is None or _SUPERVISED in os.environ or "record" in list(arguments)[:1]:
        return
    _end(*_watched(), limit)


def _watched() -> tuple[int, list[bytes]]:
    """Run the command again as a child; return its exit code and the lines in which it reports failure."""
    command = [sys.executable, *sys.orig_argv[1:]]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, _SUPERVISED: "1"})
    assert child.stderr is not None
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: child.send_signal(number))
    debug, lines = "--debug" in sys.argv, []
    for line in child.stderr:
        if debug:
            _tell(line)
        elif line.startswith(b"analyze: "):
            lines.append(line)
    return child.wait(), lines


def _end(code: int, lines: list[bytes], limit: int) -> NoReturn:
    ended = max(0, -code)  # by that signal
    if ended in ENDING:  # it came before the child could do anything
        lines = [b"analyze: interrupted; nothing half written was left\n"]
        code = EXIT_BASE + ended
    elif ended or any(b"a bug in this program" in line for line in lines):
        lines = [
            f"analyze: out of memory: this process may take {units.size(limit)} (ulimit -v); "
            "allow more, or record fewer steps\n".encode()
        ]
        code = 2
    for line in lines:
        _tell(line)
    os._exit(code)


def _tell(line: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(2, line)
