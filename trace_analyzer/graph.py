"""What is made when it is first asked for, and only once: a verdict needs few of the tables that a page shows.

Who asks is free to ask from two threads: of things that do not need each other, one is made beside the other.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import polars as pl

T = TypeVar("T")
Maker = Callable[[], pl.DataFrame]
Change = Callable[[pl.DataFrame], pl.DataFrame]


class Later(Generic[T]):
    """A value that its first caller makes; others wait for it. What raises is not kept, and raises for all."""

    def __init__(self, make: Callable[[], T]) -> None:
        # The function goes once it was called, and with it what only it held.
        self._make: Callable[[], T] | None = make
        self._lock = threading.RLock()

    def __call__(self) -> T:
        with self._lock:
            if self._make is not None:
                self._value = self._make()
                self._make = None
        return self._value


@contextmanager
def beside(laters: tuple[Later[Any], ...], threads: int = 1) -> Iterator[None]:
    """While this lasts, other threads make these, each the next one that is left; at the end they stop after those in hand.

    They say nothing of what raises there, but that no more are begun: it raises again for who asks for it.
    """
    left: SimpleQueue[Later[Any]] = SimpleQueue()
    for later in laters:
        left.put(later)
    ended = threading.Event()

    def make() -> None:
        while not ended.is_set():
            try:
                later = left.get_nowait()
            except Empty:
                return
            try:
                later()
            except BaseException:  # a panic of Polars is no Exception
                ended.set()

    running = [threading.Thread(target=make, name="beside") for _ in range(min(threads, len(laters)))]
    try:
        for thread in running:
            thread.start()
        yield
    finally:
        ended.set()
        for thread in running:
            if thread.ident is not None:  # it was started
                thread.join()


class OnDemand(Mapping[str, pl.DataFrame]):
    """A mapping of frames, or of functions that make them. It is pickled and copied as the dict of all its frames.

    >>> tables = OnDemand({"one": pl.DataFrame({"a": [1]}), "two": lambda: pl.DataFrame({"a": [2, 2]})})
    >>> tables["two"].height
    2
    """

    def __init__(self, frames: Mapping[str, pl.DataFrame | Maker]) -> None:
        self._frames = {
            name: frame if isinstance(frame, pl.DataFrame | Later) else Later(frame) for name, frame in frames.items()
        }

    def __getitem__(self, name: str) -> pl.DataFrame:
        found = self._frames[name]
        return found if isinstance(found, pl.DataFrame) else found()

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __or__(self, others: Mapping[str, pl.DataFrame | Maker]) -> "OnDemand":
        """These and the others, which come in the place of those of the same name; nothing is made."""
        return OnDemand({**self._frames, **(others._frames if isinstance(others, OnDemand) else others)})

    def each(self, changes: Mapping[str, Change]) -> "OnDemand":
        """The named frames, changed; each is made and changed when it is asked for."""
        return OnDemand({name: partial(_changed, self._frames[name], change) for name, change in changes.items()})

    def __reduce__(self) -> tuple[type[dict[str, pl.DataFrame]], tuple[dict[str, pl.DataFrame]]]:
        return dict, (dict(self),)


def _changed(frame: pl.DataFrame | Maker, change: Change) -> pl.DataFrame:
    return change(frame if isinstance(frame, pl.DataFrame) else frame())


__all__ = ["Change", "Later", "Maker", "OnDemand", "beside"]
