"""Find the files of a job: traces and summaries of ranks, in folders, by patterns, and at addresses for fsspec."""

import glob
from collections.abc import Sequence
from pathlib import Path

from trace_analyzer.errors import UsageError
from trace_analyzer.ranks.remote import file_system, is_remote
from trace_analyzer.ranks.summary import SUFFIX

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
    if path.exists() or not glob.has_magic(source):
        return [source]
    files = sorted(item for item in glob.glob(source, recursive=True) if Path(item).is_file())
    if not files:
        raise UsageError(f"{source}: no file matches this pattern")
    return files


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
