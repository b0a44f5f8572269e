"""Read the bytes of a trace from a path, an open file or memory, decompressed by content instead of name."""

import io
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, TextIO

from trace_analyzer.errors import CHANGED, NUL_BYTES, InputError, InputTooLarge, Note
from trace_analyzer.options import DEFAULT_MAX_BYTES
from trace_analyzer.units import printable

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | TextIO
Progress = Callable[[str, float | None], None]
Part = tuple[bytes, Note | None]


_CHUNK = 4 << 20
_GZIP = b"\x1f\x8b"
# Data frames and skippable frames, which may come first (RFC 8878, 3.1.2); lz4 shares the latter.
_ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes([low]) + b"\x2a\x4d\x18" for low in range(0x50, 0x60)))
_CHANGED = Note(
    CHANGED,
    "warning",
    "the file changed while it was read, so this may mix what it was before and after; analyze it again",
)
_NUL = "{:,} NUL bytes, from byte {:,} on, as a crash or an interrupted copy leaves them: what stood there is lost"


class Content:
    """Yield the decompressed bytes of a trace in blocks, repeatedly, until it is closed."""

    def __init__(
        self,
        name: str,
        file: Callable[[], BinaryIO],
        max_bytes: int,
        progress: Progress | None,
        close: Callable[[], None] = lambda: None,
        path: Path | None = None,
    ) -> None:
        self.name = printable(name)
        self.path = path
        """Path of a regular file."""
        self._file = file
        self.close = close
        self._max_bytes = max_bytes
        self._progress = progress
        self.notes: tuple[Note, ...] = ()
        """Problems with the bytes during the last reading."""

    def blocks(self) -> Iterator[bytes]:
        """Yield all bytes, from the start.

        Raises ``InputError`` when they cannot be read and ``InputTooLarge`` beyond the limit.
        """
        self.notes, size, nul, first_nul = (), 0, 0, 0
        with self._file() as file:
            state = _state(file)
            for block, note in self._parts(file):
                if (at := block.find(0)) >= 0:  # counting immediately takes 15 times as long
                    if not nul:
                        first_nul = size + at
                    nul += block.count(0, at)
                size += len(block)
                self.check_size(size)
                if note is not None:
                    self.notes += (note,)
                if block:
                    yield block
            if size and _state(file) != state:
                self.notes += (_CHANGED,)
        # A file with NUL bytes only at its end is truncated, or contains its whole document before them.
        if nul and first_nul + nul < size:
            self.notes += (Note(NUL_BYTES, "warning", _NUL.format(nul, first_nul)),)

    def check_size(self, size: int) -> None:
        """Raise ``InputTooLarge`` for more bytes than the limit."""
        if size > self._max_bytes:
            raise InputTooLarge(
                f"{self.name}: more than {self._max_bytes:,} bytes when decompressed; raise the limit (--max-bytes)"
            )

    def _parts(self, file: BinaryIO) -> Iterator[Part]:
        chunks = self._chunks(file)
        head = next(chunks, b"")
        whole = chain((head,), chunks)
        if head.startswith(_ZSTD):
            return _unzstd(whole)
        if head.startswith(_GZIP):
            return _gunzipped(whole)
        return ((chunk, None) for chunk in whole)

    def _chunks(self, file: BinaryIO) -> Iterator[bytes]:
        seen, size = 0, _size(file)
        try:
            while chunk := file.read(_CHUNK):
                seen += len(chunk)
                if self._progress is not None:
                    self._progress("reading", seen / size if size and size >= seen else None)
                yield chunk
        except OSError as error:
            raise InputError(f"{self.name}: cannot be read: {error.strerror or error}") from error


class _Replayed(io.BytesIO):
    """Replay a stream from its start, by keeping the bytes read."""

    def __init__(self, stream: BinaryIO | TextIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._kept: list[bytes] = []
        self._next = 0

    def rewound(self) -> "_Replayed":
        self._next = 0
        return self

    def read(self, size: int | None = -1, /) -> bytes:  # positional, as in io.BytesIO
        if self._next == len(self._kept):
            self._kept.append(self._bytes_of(-1 if size is None else size))
        self._next += 1
        return self._kept[self._next - 1]

    def _bytes_of(self, size: int) -> bytes:
        """Read bytes from the stream, which may be a text stream, or misbehave."""
        try:
            block = self._stream.read(size)
        except ValueError as error:  # the stream is closed, or its text is no UTF-8
            raise InputError(f"{self._name}: cannot be read: {error}") from error
        if isinstance(block, str):
            return block.encode("utf-8", "surrogatepass")
        if not isinstance(block, (bytes, bytearray, memoryview)):
            raise InputError(f"{self._name}: cannot be read: it gives {type(block).__name__}, not bytes")
        return bytes(block)

    def close(self) -> None:
        """Do nothing: the stream stays open for the next reading, and its owner closes it."""


def content_of(source: Source, *, max_bytes: int = DEFAULT_MAX_BYTES, progress: Progress | None = None) -> Content:
    """Return the bytes of a trace, decompressed according to their content.

    ``source`` is a path, ``"-"`` for standard input, bytes (or a bytearray, a memoryview), or an open binary or text
    file. A gzip stream that is truncated or fails its checksum yields its readable part, with a note.

    Raises ``InputError`` for a source that cannot be opened or is of another type.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        content = bytes(source)
        return Content("bytes", lambda: io.BytesIO(content), max_bytes, progress)
    if isinstance(source, (str, os.PathLike)):
        name = os.fsdecode(source)
        if not name:
            raise InputError("no trace is named: the name is empty")
        if name == "-":
            return Content("stdin", _Replayed(sys.stdin.buffer, "stdin").rewound, max_bytes, progress)
        return _content_of_file(Path(name), max_bytes, progress)
    name = str(getattr(source, "name", "stream"))
    if not callable(getattr(source, "read", None)):
        raise InputError(
            f"cannot read a trace from an object of type {type(source).__name__}: expected a path, bytes or an open file"
            " (for parsed JSON: json.dumps(trace).encode())"
        )
    return Content(name, _Replayed(source, name).rewound, max_bytes, progress)


def _content_of_file(path: Path, max_bytes: int, progress: Progress | None) -> Content:
    file = _opened(path)
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        return Content(str(path), lambda: _opened(path), max_bytes, progress, path=path)
    return Content(str(path), _Replayed(file, str(path)).rewound, max_bytes, progress, file.close)


def _status(file: BinaryIO) -> os.stat_result | None:
    """Return the system's status of the file; None for an object that is no system file."""
    try:
        return os.fstat(file.fileno())
    except (OSError, AttributeError):
        return None


def _size(file: BinaryIO) -> int | None:
    """Return the size of a regular file or of memory; None for other sources."""
    if status := _status(file):
        return status.st_size or None
    return (len(file.getbuffer()) or None) if isinstance(file, io.BytesIO) else None


def _state(file: BinaryIO) -> tuple[int, int] | None:
    """Return the size and modification time of a regular file; None for other sources."""
    status = _status(file)
    return (status.st_size, status.st_mtime_ns) if status and stat.S_ISREG(status.st_mode) else None


def _opened(path: Path) -> BinaryIO:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{path}: is a directory; name one trace file in it")
        if stat.S_ISCHR(mode):
            raise InputError(f"{path}: is a device, not a trace file")
        # Without O_NONBLOCK, opening a FIFO without a writer would block forever.
        descriptor = os.open(path, os.O_RDONLY | (os.O_NONBLOCK if stat.S_ISFIFO(mode) else 0))
        if stat.S_ISFIFO(mode):
            _await_writer(descriptor, path)
        return os.fdopen(descriptor, "rb")
    except FileNotFoundError as error:
        if address := re.fullmatch(r"(?!file:)(\w{2,}):/+(.*)", str(path)):  # a `Path` keeps one slash of two
            raise InputError(
                f"{address[1]}://{address[2]}: is an address, not a file on this machine; download it and name the file"
            ) from error
        raise InputError(f"{path}: no such file") from error
    except ValueError as error:  # a NUL in the path
        raise InputError(f"{path}: is no path: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error.strerror or error}") from error


def _await_writer(descriptor: int, path: Path) -> None:
    """Wait for the first bytes of a FIFO, up to a limit, then read it like a file."""
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not any(event & select.POLLIN for _, event in poll.poll(800)):
        os.close(descriptor)
        raise InputError(f"{path}: is a pipe that nobody writes to")
    os.set_blocking(descriptor, True)


def _gunzipped(chunks: Iterable[bytes]) -> Iterator[Part]:
    """Yield (data, note) of a gzip stream with any number of members; damage ends it with a note."""
    inflater, total, pending = zlib.decompressobj(31), 0, False
    for chunk in chunks:
        while chunk:
            before = inflater.copy()
            try:
                data = inflater.decompress(chunk, _CHUNK)
            except zlib.error as error:
                if total and not pending:
                    yield b"", Note("trailing-garbage", "warning", "bytes after the gzip stream were ignored")
                    return
                data = _salvaged(before, chunk)
                total += len(data)
                yield (
                    data,
                    Note("gzip-damaged", "warning", f"the gzip stream is damaged after {total:,} bytes: {error}"),
                )
                return
            total += len(data)
            pending = True
            yield data, None
            if inflater.eof:
                chunk, inflater, pending = inflater.unused_data, zlib.decompressobj(31), False
            else:
                chunk = inflater.unconsumed_tail
    if pending:
        yield inflater.flush(), Note("gzip-truncated", "warning", f"the gzip stream is truncated after {total:,} bytes")


def _salvaged(inflater: "zlib._Decompress", chunk: bytes) -> bytes:
    """Return the data of a damaged chunk before the damage, which is located by bisection."""
    salvaged = bytearray()
    while len(chunk) > 1:
        half, ahead = len(chunk) // 2, inflater.copy()
        try:
            salvaged += ahead.decompress(chunk[:half])
        except zlib.error:
            chunk = chunk[:half]
        else:
            chunk, inflater = chunk[half:], ahead
    return bytes(salvaged)


def _unzstd(chunks: Iterable[bytes]) -> Iterator[Part]:
    """Yield (data, note) of a zstd stream with any number of frames; damage ends it with a note."""
    import zstandard

    inflater, total, pending = zstandard.ZstdDecompressor().decompressobj(), 0, False
    for chunk in chunks:
        while chunk:
            try:
                data = inflater.decompress(chunk)
            except zstandard.ZstdError as error:
                yield b"", Note("zstd-damaged", "warning", f"the zstd stream is damaged after {total:,} bytes: {error}")
                return
            total += len(data)
            pending = not inflater.eof
            yield data, None
            chunk = inflater.unused_data if inflater.eof else b""
            if inflater.eof:
                inflater = zstandard.ZstdDecompressor().decompressobj()
    if pending:
        yield b"", Note("zstd-truncated", "warning", f"the zstd stream is truncated after {total:,} bytes")
