"""Show the current stage in one line on standard error, only on a terminal and only for long work."""

import os
import sys
import threading
import time
from types import TracebackType
from typing import Self, TextIO

from trace_analyzer.units import percent

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
        self._text = stage if fraction is None else f"{stage} {percent(min(1.0, fraction))}"

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
