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
from trace_analyzer.ingest.trace import Header


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


_RANK_IN_NAME = re.compile(r"rank[-_.[]?(\d{1,7})(?!\d)", re.IGNORECASE)
_TENSOR_PARALLEL = re.compile(r"(?:^|-)TP-(\d{1,7})(?!\d)")
_OTHER_PARALLEL = re.compile(r"-(?:DP|PP)-\d")
"""Pattern of other parallelism in SGLang's names: without it, ``TP-`` is the rank."""


def rank_in_name(path: str) -> int | None:
    """Return the rank in the name of a file, else in that of its folder; None without one.

    ``rank3``, ``rank_3``, ``rank-3``, ``rank[3]``, or ``TP-3``.
    """
    *folders, name = path.replace("\\", "/").split("/")[-2:]
    numbers = _RANK_IN_NAME.findall(name)
    if not _OTHER_PARALLEL.search(name):
        numbers = numbers or _TENSOR_PARALLEL.findall(name)
    for folder in folders:
        numbers = numbers or _RANK_IN_NAME.findall(folder)
    return int(numbers[-1]) if numbers else None


def rank_of(header: Header, path: str) -> int | None:
    """Return the rank in the header, else in the name; the header's rank 0 without a world size does not count."""
    named = rank_in_name(path)
    says = header.rank if header.rank or header.world_size is not None else None
    return says if says is not None else named if named is not None else header.rank


def recording_of(path: str) -> str:
    """Return the path with the numbers in its file name removed, which is equal for all files of a recording."""
    folder, slash, name = path.replace("\\", "/").rpartition("/")
    return folder + slash + re.sub(r"\d+", "", name)


SUFFIX = ".rank.gz"
"""Suffix of files with a summary."""
SUFFIXES = (".json", ".json.gz", ".json.zst", SUFFIX)
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
    return next(
        (path.removesuffix(suffix) for suffix in (".json.gz", ".json.zst", ".json") if path.endswith(suffix)), path
    )


def _is_rank(path: str) -> bool:
    return path.endswith(SUFFIXES) and not path.endswith(_NOT_TRACES)


def _local(source: str) -> list[str]:
    path = Path(source)
    if path.is_dir():
        files = [str(item) for item in sorted(path.iterdir()) if item.is_file() and _is_rank(item.name)]
        files = files or [str(item) for item in sorted(path.rglob("*")) if item.is_file() and _is_rank(item.name)]
        if not files:
            raise UsageError(
                f"{source}: no trace (*.json, *.json.gz, *.json.zst) and no summary (*{SUFFIX}) in this folder"
            )
        return files
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
