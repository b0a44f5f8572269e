"""Handle Ctrl-C and similar signals: end at once, in one line, without partial files."""

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import NoReturn

from trace_analyzer import files

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
        signal.signal(other, signal.SIG_IGN)
    files.remove_temporaries()
    name = signal.Signals(number).name
    clear = b"\r\x1b[K" if os.isatty(2) else b""
    line = f"analyze: {_WORDS.get(name, f'ended by {name}')}; nothing half written was left\n"
    with contextlib.suppress(OSError):
        os.write(2, clear + line.encode())
    os._exit(EXIT_BASE + number)
