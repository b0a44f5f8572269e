"""Tables by name, each made when it is first asked for: a verdict needs few of those that a page shows."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import polars as pl

Maker = Callable[[], pl.DataFrame]
Change = Callable[[pl.DataFrame], pl.DataFrame]


class OnDemand(Mapping[str, pl.DataFrame]):
    """A mapping of frames, or of functions that make them, called once at the most.

    It is pickled and copied as the dict of all its frames.

    >>> tables = OnDemand({"one": pl.DataFrame({"a": [1]}), "two": lambda: pl.DataFrame({"a": [2, 2]})})
    >>> tables["two"].height
    2
    """

    def __init__(self, frames: Mapping[str, pl.DataFrame | Maker]) -> None:
        self._frames = dict(frames)

    def __getitem__(self, name: str) -> pl.DataFrame:
        found = self._frames[name]
        if not isinstance(found, pl.DataFrame):
            # The function goes, and with it what only it held.
            self._frames[name] = found = found()
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __or__(self, others: Mapping[str, pl.DataFrame | Maker]) -> "OnDemand":
        """These and the others, which come in the place of those of the same name; nothing is made."""
        return OnDemand(self._frames | dict(others))

    def each(self, changes: Mapping[str, Change]) -> "OnDemand":
        """The named frames, changed; those that are not made yet are made and changed when they are asked for."""
        return OnDemand({name: partial(_changed, self._frames[name], change) for name, change in changes.items()})

    def __reduce__(self) -> tuple[type[dict[str, pl.DataFrame]], tuple[dict[str, pl.DataFrame]]]:
        return dict, (dict(self),)


def _changed(frame: pl.DataFrame | Maker, change: Change) -> pl.DataFrame:
    return change(frame if isinstance(frame, pl.DataFrame) else frame())


__all__ = ["Change", "Maker", "OnDemand"]
