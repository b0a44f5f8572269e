"""Bytes of a trace: from a path, an open file or memory, decompressed by what they are, not by their name."""

import io
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trace_analyzer.errors import InputError, InputTooLarge
from trace_analyzer.notes import Note

Source = str | os.PathLike[str] | bytes | BinaryIO
Progress = Callable[[str, float | None], None]
Part = tuple[bytes, Note | None]

DEFAULT_MAX_BYTES = 16 << 30
"""Limit on the decompressed size: far above any usable trace, far below what a gzip bomb makes."""

_CHUNK = 4 << 20
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Content:
    """The decompressed bytes, where they came from, and what was wrong with them."""

    name: str
    data: bytes
    notes: tuple[Note, ...] = ()


def read_content(source: Source, *, max_bytes: int = DEFAULT_MAX_BYTES, progress: Progress | None = None) -> Content:
    """All bytes of a trace, decompressed.

    ``source`` is a path, ``"-"`` for standard input, bytes, or a binary file. A gzip stream that breaks
    off or fails its checksum yields what could be read, with a note.

    Raises ``InputError`` when nothing can be read and ``InputTooLarge`` beyond ``max_bytes``.
    """
    if isinstance(source, bytes):
        return _inflated("bytes", io.BytesIO(source), len(source), max_bytes, progress)
    if isinstance(source, (str, os.PathLike)):
        if os.fspath(source) == "-":
            return _inflated("stdin", sys.stdin.buffer, None, max_bytes, progress)
        path = Path(source)
        with _opened(path) as file:
            try:
                return _inflated(str(path), file, os.fstat(file.fileno()).st_size or None, max_bytes, progress)
            except OSError as error:
                raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    return _inflated(str(getattr(source, "name", "stream")), source, None, max_bytes, progress)


def _opened(path: Path) -> BinaryIO:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{path}: is a directory; name one trace file in it")
        if stat.S_ISCHR(mode):
            raise InputError(f"{path}: is a device, not a trace file")
        # Without O_NONBLOCK, opening a FIFO that nobody writes to would hang for ever.
        descriptor = os.open(path, os.O_RDONLY | (os.O_NONBLOCK if stat.S_ISFIFO(mode) else 0))
        if stat.S_ISFIFO(mode):
            _await_writer(descriptor, path)
        return os.fdopen(descriptor, "rb")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except ValueError as error:  # a NUL in the path
        raise InputError(f"{path}: is no path: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error.strerror or error}") from error


def _await_writer(descriptor: int, path: Path) -> None:
    """Wait a moment for the first bytes of a FIFO, then read it like any file."""
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not any(event & select.POLLIN for _, event in poll.poll(800)):
        os.close(descriptor)
        raise InputError(f"{path}: is a pipe that nobody writes to")
    os.set_blocking(descriptor, True)


def _inflated(name: str, file: BinaryIO, size: int | None, max_bytes: int, progress: Progress | None) -> Content:
    head = file.read(_CHUNK)
    if not head:
        raise InputError(f"{name}: is empty")
    chunks = _reported(head, file, size, progress)
    if head.startswith(_ZSTD):
        return _collected(name, _unzstd(chunks), max_bytes)
    if head.startswith(_GZIP):
        return _collected(name, _gunzipped(chunks), max_bytes)
    return _collected(name, ((chunk, None) for chunk in chunks), max_bytes)


def _reported(head: bytes, file: BinaryIO, size: int | None, progress: Progress | None) -> Iterator[bytes]:
    seen, chunk = 0, head
    while chunk:
        seen += len(chunk)
        if progress is not None:
            progress("reading", seen / size if size and size >= seen else None)
        yield chunk
        chunk = file.read(_CHUNK)


def _collected(name: str, parts: Iterable[Part], max_bytes: int) -> Content:
    whole, notes = bytearray(), []
    for data, note in parts:
        whole += data
        if note is not None:
            notes.append(note)
        if len(whole) > max_bytes:
            raise InputTooLarge(
                f"{name}: more than {max_bytes:,} bytes when decompressed; raise the limit (--max-bytes)"
            )
    if not whole or whole.isspace():
        raise InputError(f"{name}: " + (notes[0].message if notes else "is empty"))
    return Content(name, bytes(whole), tuple(notes))


def _gunzipped(chunks: Iterable[bytes]) -> Iterator[Part]:
    """Yield (data, note) of a gzip stream of any number of members; damage ends it with a note."""
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
        yield inflater.flush(), Note("gzip-truncated", "warning", f"the gzip stream breaks off after {total:,} bytes")


def _salvaged(inflater: "zlib._Decompress", chunk: bytes) -> bytes:
    """What a damaged chunk still yields before the damage, found by halving it."""
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
    """Yield (data, note) of a zstd stream of any number of frames; damage ends it with a note."""
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
        yield b"", Note("zstd-truncated", "warning", f"the zstd stream breaks off after {total:,} bytes")
