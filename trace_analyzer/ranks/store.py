"""Store the summaries of a job's ranks: in memory while they are few, else in a temporary file."""

import tempfile
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self, overload

_IN_MEMORY_BYTES = 64 << 20


class Store(Sequence[bytes]):
    """Hold contents by place; ``close`` removes them."""

    def __init__(self, contents: Iterable[bytes] = ()) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 (closed by `close`)
        self._places: list[tuple[int, int]] = []
        self._end = 0
        for content in contents:
            self.append(content)

    def append(self, content: bytes) -> None:
        """Add a content at the end."""
        self.put(len(self), content)

    def put(self, place: int, content: bytes) -> None:
        """Put a content at a place; skipped places are empty."""
        self._places += [(0, 0)] * (place + 1 - len(self._places))
        self._file.seek(self._end)
        self._file.write(content)
        self._places[place] = (self._end, len(content))
        self._end += len(content)

    def __len__(self) -> int:
        """Return the number of places."""
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        """Return the content at a place."""
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        start, size = self._places[place]
        self._file.seek(start)
        return self._file.read(size)

    def close(self) -> None:
        """Remove the contents."""
        self._file.close()

    def __enter__(self) -> Self:
        """Return the store, which is closed on exit."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()
