"""Write output files atomically: each file is complete or absent, even after a failure or a signal.

A file is written under a temporary name in its own folder, synchronized with the disk and renamed. Temporary names are
registered while they exist, so that `remove_temporaries` can delete them at once, also from a signal handler. Only a
SIGKILL or a power cut can leave one, called ``.analyze-*.tmp``; the next writer to the same folder deletes it.
"""

import contextlib
import errno
import io
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from trace_analyzer.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_BUFFER_BYTES = 1 << 20  # Libraries write a few bytes at a time.

_READER_PATIENCE_S = 1.0
"""Longest wait for a pipe's reader before the pipe is refused: the reader may start after this program."""

ABANDONED_S = 86_400
"""Age at which a temporary file counts as abandoned where its process cannot be looked up: no output takes a day."""

_TEMPORARY = re.compile(r"\.analyze-(?P<machine>[0-9a-f]{8})-(?P<process>[0-9]+)-[0-9a-f]{12}\.tmp")

_temporaries: dict[Path, tuple[int, Callable[[Path], object]]] = {}
"""Temporary paths, each with the process that made it (a forked child leaves its parent's alone) and its deletion."""


class Outputs:
    """Collect files that appear together when the ``with`` block ends; if the block fails, none appears.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with Outputs() as outputs:
    ...     with outputs.open(folder / "a.txt") as file:
    ...         n_bytes = file.write(b"text")
    ...     assert not (folder / "a.txt").exists()
    >>> (folder / "a.txt").read_bytes(), len(list(folder.iterdir()))
    (b'text', 1)
    """

    def __init__(self) -> None:
        self._finished: list[tuple[Path, Path]] = []
        self._made: list[Path] = []
        self._tidied: set[Path] = set()

    def make_folder(self, folder: Path) -> None:
        """Make the folder and its parents; a failing block removes those made here. Raises ``OSError``."""
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            self._register(path, os.rmdir)  # rmdir fails if another process put a file into the folder
            path.mkdir(exist_ok=True)

    def _register(self, path: Path, delete: Callable[[Path], object]) -> None:
        self._made.append(path)
        _temporaries[path] = (os.getpid(), delete)

    @contextlib.contextmanager
    def open(self, path: Path) -> Iterator[BinaryIO]:
        """Open a file for writing bytes; it becomes ``path`` at the end of the block.

        Pipes and devices are written directly.

        An existing file keeps its permissions, and a link stays a link. Raises ``OSError`` with the system's message,
        whatever error a library made of it, and ``UsageError`` for a pipe without a reader.
        """
        special = is_special(path)
        target = path if special else _through_links(path)
        temporary = _temporary(target.parent)
        if not special:
            if target.parent not in self._tidied:
                self._tidied.add(target.parent)
                remove_abandoned(target.parent)
            self._register(temporary, os.unlink)
        sink = Sink(_descriptor_of_special(path) if special else _descriptor(temporary, target), target)
        file = io.BufferedWriter(sink, _BUFFER_BYTES)
        try:
            yield file
            file.flush()
            sink.check()
            if not special:
                sink.synchronize()
        except Exception:
            sink.check()
            raise
        finally:
            with contextlib.suppress(OSError):  # the failed write was reported above
                file.close()
        if not special:
            self._finished.append((temporary, target))

    def write_bytes(self, path: Path, content: bytes) -> None:
        """Write the content; a pipe's reader that stops early is no failure. Raises like `open`."""
        with contextlib.suppress(BrokenPipeError), self.open(path) as file:
            file.write(content)

    def write_text(self, path: Path, text: str) -> None:
        r"""Write the text in UTF-8, like `write_bytes`; lone surrogates, which UTF-8 lacks, become ``\udc80``."""
        self.write_bytes(path, text.encode("utf-8", "backslashreplace"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                for temporary, target in self._finished:
                    os.replace(temporary, target)
                    del _temporaries[temporary]
                for path in self._made:
                    _temporaries.pop(path, None)
        finally:
            _remove(self._made)


class Sink(io.RawIOBase):
    """Write to a file and remember the system's error, as libraries lose its message.

    The file descriptor stays hidden, as libraries would write past this object.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._failure: OSError | None = None

    def write(self, content: "ReadableBuffer", /) -> int:
        """Write all of the content, and return its length in bytes. Raises ``OSError``."""
        with memoryview(content).cast("B") as view:
            done = 0
            while done < len(view):
                try:
                    done += os.write(self._descriptor, view[done:])
                except OSError as error:
                    error.filename = str(self._path)
                    self._failure = error
                    raise
            return len(view)

    def check(self) -> None:
        """Raise the ``OSError`` of an earlier write, if one failed."""
        if self._failure is not None:
            raise self._failure

    def synchronize(self) -> None:
        """Wait until the data is on the disk. Raises ``OSError``."""
        os.fsync(self._descriptor)

    def writable(self) -> bool:
        """Return that it is writable: always True."""
        return True

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            super().close()
            os.close(self._descriptor)


def write_bytes(path: Path, content: bytes) -> None:
    """Write the content in one step, like `Outputs.write_bytes`: an older file stays until the new one is complete."""
    with Outputs() as outputs:
        outputs.write_bytes(path, content)


def write_text(path: Path, text: str) -> None:
    """Write the text in one step, like `Outputs.write_text`."""
    with Outputs() as outputs:
        outputs.write_text(path, text)


@contextlib.contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Make a private folder in ``parent`` that is deleted with its contents at the end.

    Raises ``OSError`` when it cannot be made.
    """
    folder = _temporary(parent.absolute())
    _temporaries[folder] = (os.getpid(), shutil.rmtree)
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        _remove((folder,))


def remove_temporaries() -> None:
    """Delete all unfinished outputs of this process; never raises."""
    _remove([path for path, (process, _) in list(_temporaries.items()) if process == os.getpid()])


def remove_abandoned(folder: Path) -> None:
    """Delete the unfinished outputs of killed processes in the folder; never raises.

    Only this user's files and folders with temporary names are deleted: at once where their process ran on this machine
    and has ended, else when they are `ABANDONED_S` old.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            named = _TEMPORARY.fullmatch(entry.name)
            if named and _is_abandoned(entry, named["machine"], int(named["process"])):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)


def _is_abandoned(entry: os.DirEntry[str], machine: str, process: int) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:  # another process deleted it first
        return False
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        return False
    return (machine == _machine() and not _runs(process)) or time.time() - status.st_mtime > ABANDONED_S


def _runs(process: int) -> bool:
    """Return whether a process with that number may be running; always True outside Unix, where the query would end it."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _temporary(folder: Path) -> Path:
    """Return a new temporary name in the folder that contains this process's number."""
    import secrets

    return folder / f".analyze-{_machine()}-{os.getpid()}-{secrets.token_hex(6)}.tmp"


@cache
def _machine() -> str:
    """Return a digest of the scope of process numbers: the machine since its last boot, and the container."""
    import hashlib
    import platform

    parts = [platform.node()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.blake2b(" ".join(parts).encode(), digest_size=4).hexdigest()


def _remove(paths: Iterable[Path]) -> None:
    """Delete the paths that are still temporary, the last first: files before their folder."""
    for path in reversed(list(paths)):
        if path in _temporaries:
            with contextlib.suppress(OSError):
                _temporaries[path][1](path)
            _temporaries.pop(path, None)


def is_special(path: Path) -> bool:
    """Return whether the path leads to a pipe, a device or a socket, which is written to and not replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _through_links(path: Path) -> Path:
    """Resolve links in the path. Raises ``OSError`` for a cycle of links."""
    target = os.path.realpath(path)
    if os.path.islink(target):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return Path(target)


def _descriptor(temporary: Path, target: Path) -> int:
    """Open the temporary file with the permissions of the file that it will replace."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(temporary, flags, 0o666)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None
    with contextlib.suppress(OSError):  # the file system has no permissions, or the file belongs to another user
        temporary.chmod(stat.S_IMODE(target.stat().st_mode))
    return descriptor


def _descriptor_of_special(path: Path) -> int:
    """Open a pipe or a device; refuse a pipe without a reader, as opening it would block."""
    if not stat.S_ISFIFO(path.stat().st_mode):
        return os.open(path, os.O_WRONLY)
    deadline = time.monotonic() + _READER_PATIENCE_S
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > deadline:
                raise UsageError(f"{path}: is a pipe that nobody reads") from None
            time.sleep(0.02)
        else:
            os.set_blocking(descriptor, True)
            return descriptor


def config_folder() -> Path:
    """Return the folder for settings, by the XDG convention; it need not exist.

    Raises ``RuntimeError`` without a home.
    """
    base = os.environ.get("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "trace-analyzer"
