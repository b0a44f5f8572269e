"""Begin and end the process: signals, limits of memory, and settings of libraries."""

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable
from types import FrameType
from typing import NoReturn

from trace_analyzer import errors, files, units

_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated"}

ENDING = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGXCPU", "SIGUSR1", "SIGUSR2", "SIGALRM")
    if hasattr(signal, name)
)
"""Signals that end a process and can be caught: from a terminal, an operator or a batch system."""

EXIT_BASE = 128
"""Base of the exit code of a process that a signal ends, to which shells add the signal's number."""


def end_cleanly() -> None:
    """Make each signal that ends this process delete unfinished outputs first.

    Signals that the starter of the process has set to be ignored (``nohup``) stay ignored. Only the main thread can set
    handlers; elsewhere nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and hasattr(signal, "pthread_sigmask"):
        # Polars handles Ctrl-C itself during a query; a blocked signal does not reach it either.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _end(number: int, _: FrameType | None) -> NoReturn:
    """End the process from within the handler.

    An exception would allow a second signal to interrupt the deletion.
    """
    for other in ENDING:
        signal.signal(other, lambda *_: None)  # of one that has come, CPython prints that SIG_IGN lost it
    files.remove_temporaries()
    name = signal.Signals(number).name
    clear = b"\r\x1b[K" if os.isatty(2) else b""
    line = f"analyze: {_WORDS.get(name, f'ended by {name}')}; nothing half written was left\n"
    with contextlib.suppress(OSError):
        os.write(2, clear + line.encode())
    os._exit(EXIT_BASE + number)


_SUPERVISED = "TRACE_ANALYZER_SUPERVISED"
"""Environment variable of a process that another process of this program supervises."""

_MOST_THREADS = 4096
_COUNTS = {"POLARS_MAX_THREADS": _MOST_THREADS, "POLARS_IDEAL_MORSEL_SIZE": 1 << 40}
"""Variables that Polars reads as integers, each with its largest sensible value; Polars panics at 0."""

_LIBRARIES = ("BOKEH_", "HOLOVIEWS_", "POLARS_")


def check_environment() -> None:
    """Refuse settings that would make Polars panic. Raises ``UsageError``."""
    for name, most in _COUNTS.items():
        text = os.environ.get(name, "")
        if text.isdecimal() and not 0 < int(text[:20]) <= most:
            raise errors.UsageError(f"{name}={text}: must be from 1 to {most:,}; change it or unset it")


def library_settings() -> list[str]:
    """Return the unchecked environment variables that configure the libraries of this program."""
    return sorted(name for name in os.environ if name.startswith(_LIBRARIES) and name not in _COUNTS)


def memory_limit() -> int | None:
    """Return the memory limit of the process, from ``ulimit -v`` or ``ulimit -d``; None without one."""
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)


def supervise(arguments: Iterable[str]) -> None:
    """Run the command in a child process where memory is limited, and report in one line if it runs out.

    Native code that runs out of memory aborts the process after thousands of lines of output; a parent process can
    replace them by one. Without a limit, and in the child itself, nothing is done. ``record`` is not supervised, as it
    passes on other programs' output.
    """
    limit = memory_limit()
    if limit is None or _SUPERVISED in os.environ or "record" in list(arguments)[:1]:
        return
    _report(*_watched(), limit)


def _watched() -> tuple[int, list[bytes]]:
    """Run the command again as a child process; return its exit code and its lines that tell why it failed."""
    import subprocess

    command = [sys.executable, *sys.orig_argv[1:]]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, _SUPERVISED: "1"})
    assert child.stderr is not None
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: child.send_signal(number))
    debug, lines = "--debug" in sys.argv, []
    for line in child.stderr:
        if debug:
            _write_error(line)
        elif line.startswith(b"analyze: ") or _OUT_OF_MEMORY.search(line):
            lines.append(line)
    return child.wait(), lines


_OUT_OF_MEMORY = re.compile(
    rb"(?i)MemoryError|alloc|out of memory|(start|spawn)\w* .*thread|ENOMEM|temporarily unavailable|failed to map segment"
    rb"|name '(Py|_POLARS|plr)|error return without exception"
)
"""What libraries write where memory runs out, besides ``MemoryError``: a bug or crash of another kind stays one."""


def _report(code: int, lines: list[bytes], limit: int) -> NoReturn:
    """Write what ended the child in its own lines, else in one, and end with its code."""
    ended = max(0, -code)  # the number of that signal
    told = [line for line in lines if line.startswith(b"analyze: ")]
    # Without memory, not even the words for it can be imported: an exit without any is a failure of the interpreter.
    is_silent = code != 0 and not told
    failed = lines if ended or is_silent else [line for line in told if b"a bug in this program" in line]
    if ended in ENDING:  # the signal arrived before the child could handle it
        lines = [b"analyze: interrupted; nothing half written was left\n"]
        code = EXIT_BASE + ended
    elif ended == getattr(signal, "SIGKILL", None) or any(map(_OUT_OF_MEMORY.search, failed)):
        lines = [
            f"analyze: out of memory: this process may take {units.size(limit)} (ulimit -v); "
            "allow more, or record fewer steps\n".encode()
        ]
        code = 2
    elif ended:
        name = signal.Signals(ended).name
        lines = [f"analyze: a bug in this program or in a library: ended by {name}\n".encode()]
        code = EXIT_BASE + ended
    else:
        lines = told
    for line in lines:
        _write_error(line)
    os._exit(code)


def _write_error(line: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(2, line)
