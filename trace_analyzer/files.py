"""Write outputs so that each file is whole or not there, whatever happens meanwhile.

A file is written under a temporary name in its own folder, synchronized with the disk and renamed into place.
Temporary names are registered while they exist: `remove_temporaries` deletes them at once, from a signal handler too.
Only what no process can catch (SIGKILL, a power cut) leaves one, called ``.analyze-*.tmp``; whoever writes into the same
folder next deletes it.
"""

import contextlib
import errno
import hashlib
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

_BUFFER_BYTES = 1 << 20  # libraries write a few bytes at a time

_READER_PATIENCE_S = 1.0
"""How long a pipe may have no reader before it is refused: a reader may be started after this program."""

ABANDONED_S = 86_400
"""Age from which a temporary name counts as abandoned where its process cannot be looked up: no output takes a day."""

_TEMPORARY = re.compile(r"\.analyze-(?P<machine>[0-9a-f]{8})-(?P<process>[0-9]+)-[0-9a-f]{12}\.tmp")

_temporaries: dict[Path, tuple[int, Callable[[Path], object]]] = {}
"""What must not stay: the process that made it (a fork leaves its parent's alone) and how it is deleted."""


class Outputs:
    """Collect files that appear when the ``with`` block ends, and of which none appears when it fails.

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
        """Make the folder and its parents; those made here go again if the block fails. Raises ``OSError``."""
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            self._register(path, os.rmdir)  # which fails if somebody put something into it
            path.mkdir(exist_ok=True)

    def _register(self, path: Path, delete: Callable[[Path], object]) -> None:
        self._made.append(path)
        _temporaries[path] = (os.getpid(), delete)

    @contextlib.contextmanager
    def open(self, path: Path) -> Iterator[BinaryIO]:
        """Open a file to write bytes into that will be ``path``; a pipe or a device is written into at once.

        A file that exists keeps its permissions, a link stays a link. Raises ``OSError`` for what the system refuses, in
        the place of whatever a library made of that, and ``UsageError`` for a pipe that nobody reads.
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
            with contextlib.suppress(OSError):  # that it could not be written was reported above
                file.close()
        if not special:
            self._finished.append((temporary, target))

    def write_bytes(self, path: Path, content: bytes) -> None:
        """Write the content; nobody reading the rest of a pipe is no failure. Raises as `open`."""
        with contextlib.suppress(BrokenPipeError), self.open(path) as file:
            file.write(content)

    def write_text(self, path: Path, text: str) -> None:
        """Write the text in UTF-8 as `write_bytes` does; lone surrogates, which UTF-8 has not, as ``\\udc80``."""
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
    """Remember why a file could not be written: libraries lose the message of the system.

    It hides its descriptor, past which they would write.
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
        """Raise the ``OSError`` that a write met, if one did."""
        if self._failure is not None:
            raise self._failure

    def synchronize(self) -> None:
        """Wait until the disk has it. Raises ``OSError``."""
        os.fsync(self._descriptor)

    def writable(self) -> bool:
        """Return whether it can be written to: always."""
        return True

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            super().close()
            os.close(self._descriptor)


def write_bytes(path: Path, content: bytes) -> None:
    """Write the content in one step, as `Outputs.write_bytes`: an earlier file stays as it was until the new one is whole."""
    with Outputs() as outputs:
        outputs.write_bytes(path, content)


def write_text(path: Path, text: str) -> None:
    """Write the text in one step, as `Outputs.write_text`."""
    with Outputs() as outputs:
        outputs.write_text(path, text)


@contextlib.contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Make a private folder in ``parent`` that goes with all that is in it.

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
    """Delete everything that this process has begun to write and not finished; never raises."""
    _remove([path for path, (process, _) in list(_temporaries.items()) if process == os.getpid()])


def remove_abandoned(folder: Path) -> None:
    """Delete what processes that were killed have left half written in the folder; never raises.

    Only this user's files and folders with temporary names are touched: at once where their process ran on this machine
    and no longer does, else once they are `ABANDONED_S` old.
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
    except OSError:  # somebody else was faster
        return False
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        return False
    return (machine == _machine() and not _runs(process)) or time.time() - status.st_mtime > ABANDONED_S


def _runs(process: int) -> bool:
    """Return whether a process of that number may be running; to ask would end it where this is no Unix."""
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
    """Return a new name in the folder that tells which process writes under it."""
    import secrets

    return folder / f".analyze-{_machine()}-{os.getpid()}-{secrets.token_hex(6)}.tmp"


@cache
def _machine() -> str:
    """Return a digest of what process numbers are unique in: the machine since it was booted, and the container."""
    import platform

    parts = [platform.node()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.blake2b(" ".join(parts).encode(), digest_size=4).hexdigest()


def _remove(paths: Iterable[Path]) -> None:
    """Delete those that are still temporary, the last first: what is in a folder, then the folder."""
    for path in reversed(list(paths)):
        if path in _temporaries:
            with contextlib.suppress(OSError):
                _temporaries[path][1](path)
            _temporaries.pop(path, None)


def is_special(path: Path) -> bool:
    """Return whether the path leads to a pipe, a device or a socket: what is written into, not replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _through_links(path: Path) -> Path:
    """Return where the path leads. Raises ``OSError`` for links that lead to each other."""
    target = os.path.realpath(path)
    if os.path.islink(target):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return Path(target)


def _descriptor(temporary: Path, target: Path) -> int:
    """Open the temporary file, with the permissions of the file that it will replace."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(temporary, flags, 0o666)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None
    with contextlib.suppress(OSError):  # a file system without permissions, or a file of somebody else
        temporary.chmod(stat.S_IMODE(target.stat().st_mode))
    return descriptor


def _descriptor_of_special(path: Path) -> int:
    """Open a pipe or a device. Opening a pipe that nobody reads would wait for ever."""
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
