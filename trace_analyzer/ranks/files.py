"""Find the files of a job: traces and summaries of ranks in folders, by patterns, and at addresses for fsspec."""

import glob
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trace_analyzer.compare.sides import distinct, files_matching
from trace_analyzer.errors import UsageError
from trace_analyzer.ingest.trace import SUFFIXES as TRACE_SUFFIXES, rank_in_name


def is_remote(path: str) -> bool:
    """Return whether the path is an address such as ``s3://...``, not a local file."""
    return "://" in path


def file_system(source: str) -> tuple[Any, str]:
    """Return the file system of an address and the path in it.

    Raises ``UsageError`` where fsspec, or the package that it needs for such addresses, is not installed.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UsageError(f"{source}: addresses need fsspec: pip install 'torch-trace-analyzer[remote]'") from None
    try:
        system, path = url_to_fs(source)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{source}: {error}") from None
    return system, str(path)


@contextmanager
def local_copy(path: str) -> Iterator[Path]:
    """Yield a temporary file with the content of an address; a local path is yielded unchanged.

    Raises ``UsageError`` like `file_system`, and ``OSError`` where the file cannot be read.
    """
    if not is_remote(path):
        yield Path(path)
        return
    system, place = file_system(path)
    with tempfile.TemporaryDirectory(prefix="analyze-") as folder:
        copy = Path(folder) / (Path(place).name or "trace.json")
        with system.open(place, "rb") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        yield copy


_LABEL = re.compile(r"^\[[A-Za-z]*[- ]?(\d{1,7})\]")


def rank_in_label(label: str) -> int | None:
    """Return the rank in the label of a process or device of a file that holds several ranks, as ``[TP01] 0``."""
    mark = _LABEL.match(label)
    return int(mark[1]) if mark else rank_in_name(label)


def numbered(paths: Sequence[str], pattern: str | None = None) -> dict[str, int]:
    """Return the ranks that names of files give where nothing else does: what the first group of ``pattern`` matches.

    Without a pattern, of names that are equal but for their numbers, the first number that counts them from 0 to the
    last. Raises ``UsageError`` for a pattern that is none.
    """
    if pattern is not None:
        try:
            marks = {path: re.search(pattern, path.replace("\\", "/")) for path in paths}
            return {path: int(mark[1]) for path, mark in marks.items() if mark}
        except (re.error, IndexError, ValueError, TypeError) as error:
            raise UsageError(f"--rank-of {pattern}: is no regular expression with a group of digits: {error}") from None
    numbers = [re.findall(r"\d+", path) for path in paths]
    if len(paths) < 2 or len({re.sub(r"\d+", "0", path) for path in paths}) > 1:
        return {}
    columns = [list(map(int, column)) for column in zip(*numbers, strict=True)]
    counting = next((column for column in columns if sorted(column) == list(range(len(paths)))), [])
    return dict(zip(paths, counting, strict=False))


def recording_of(path: str) -> str:
    """Return the path with the numbers in its file name removed, which is equal for all files of a recording."""
    folder, slash, name = path.replace("\\", "/").rpartition("/")
    return folder + slash + re.sub(r"\d+", "", name)


SUFFIX = ".rank.gz"
"""Suffix of files with a summary."""
SUFFIXES = (*TRACE_SUFFIXES, SUFFIX)
_NOT_TRACES = (".report.json", ".calibration.json")


def files_of(sources: Sequence[str]) -> list[str]:
    """Return the distinct traces and summaries in folders, patterns, files and addresses, in order.

    Of a trace and its summary, only the summary is read. Folders without traces are searched recursively. Raises
    ``UsageError`` where a source matches nothing.
    """
    files: dict[str, None] = {}
    for source in sources:
        files |= dict.fromkeys(_remote(source) if is_remote(source) else _local(source))
    files = dict.fromkeys(distinct(files))
    summarized = {path.removesuffix(SUFFIX) for path in files if path.endswith(SUFFIX)}
    return [path for path in files if path.endswith(SUFFIX) or stem(path) not in summarized]


def stem(path: str) -> str:
    """Return the path of a trace without its file extensions."""
    return re.sub(r"\.json(\.gz|\.zst)?\Z", "", path)


def _is_rank(path: str) -> bool:
    return path.endswith(SUFFIXES) and not path.endswith(_NOT_TRACES)


def _local(source: str) -> list[str]:
    path = Path(source)
    if path.is_dir():
        for items in (path.iterdir(), path.rglob("*")):
            if files := [str(item) for item in sorted(items) if item.is_file() and _is_rank(item.name)]:
                return files
        raise UsageError(
            f"{source}: no trace (*.json, *.json.gz, *.json.zst) and no summary (*{SUFFIX}) in this folder"
        )
    return [str(item) for item in files_matching(source)] if glob.has_magic(source) else [source]


def _remote(source: str) -> list[str]:
    system, root = file_system(source)
    try:
        if glob.has_magic(root):
            places = sorted(system.glob(root))
        elif system.isdir(root) and not _is_rank(root):
            places = sorted(item for item in system.find(root) if _is_rank(item))
        else:
            places = [root]
    except OSError as error:
        raise UsageError(f"{source}: cannot be listed: {error}") from None
    if not places:
        raise UsageError(f"{source}: nothing is there")
    return [str(system.unstrip_protocol(item)) for item in places]
