"""Refuse to work in a forked process, which lacks the thread pool of Polars.

Polars starts a pool of threads at its first use. A forked child does not inherit these threads, so each task for the
pool waits there forever. See https://docs.pola.rs/user-guide/misc/multiprocessing/.
"""

import os
import re
import sys
import threading
import time

from trace_analyzer.errors import ForkedError

_POOL = re.compile(r"polars-\d")
"""Pattern of the names of the pool's threads."""
_NAMING_S = 0.01
"""Longest time that a new thread may lack its name."""


class _Fork:
    """The state that a child inherits from its parent: memory, but no threads."""

    pool_runs = False
    pool_is_lost = False
    polars_was_used = False


def check() -> None:
    """Record that Polars is about to be used. Raises ``ForkedError`` where it would hang."""
    if _Fork.pool_is_lost:
        raise ForkedError(
            "this process was forked from one that had used Polars, and would hang: start processes with the method "
            "'spawn' or 'forkserver' (multiprocessing.set_start_method), or fork before the first analysis"
        )
    _Fork.polars_was_used = True


def _before() -> None:
    _Fork.pool_runs = _pool_runs()


def _in_child() -> None:
    _Fork.pool_is_lost = _Fork.pool_is_lost or _Fork.pool_runs


def _pool_runs() -> bool:
    """Return whether Polars' threads run: by their names where these are listed, else by earlier use."""
    if "polars" not in sys.modules:
        return False
    until = time.monotonic() + _NAMING_S
    while True:
        try:
            names = [_name(thread) for thread in os.listdir("/proc/self/task")]
        except OSError:
            return _Fork.polars_was_used
        if any(map(_POOL.match, names)):
            return True
        # A new thread has the name of the process until it sets its own.
        unnamed = names.count(_name(str(os.getpid()))) - threading.active_count()
        if unnamed <= 0 or time.monotonic() > until:
            return False
        time.sleep(0)


def _name(thread: str) -> str:
    try:
        with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # the thread ended meanwhile
        return ""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)
