"""Cache the tables of trace files, so that the next command on the same file starts at once.

An entry is a folder of Parquet files in the user's cache folder, named by a digest of the file's content, this
program's version, its reading code and the active plug-ins. It is written under a temporary name and renamed, so that
concurrent writers never mix. A damaged entry, or one that vanishes during reading, counts as missing.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import polars as pl

from trace_analyzer import ingest, plugins
from trace_analyzer.files import remove_abandoned, temporary_folder
from trace_analyzer.ingest import DEFAULT_MAX_BYTES, Progress, Trace
from trace_analyzer.ingest.trace import DeviceProperties, Header, ProcessGroup
from trace_analyzer.notes import CHANGED, Note
from trace_analyzer.run_metadata import RunMetadata
from trace_analyzer.units import printable
from trace_analyzer.user_folders import TEMPLATES, cache_folder
from trace_analyzer.version import tool_version

MAX_BYTES = 2 << 30
"""Limit on the size of all entries together; the environment variable `LIMIT` overrides it, in MB."""
LIMIT = "TRACE_ANALYZER_CACHE_MB"
_FORMAT = 1
_META = "trace.json"
_CHUNK = 1 << 20


def load_cached(path: str | Path, *, max_bytes: int = DEFAULT_MAX_BYTES, progress: Progress | None = None) -> Trace:
    """Read a trace as `trace_analyzer.ingest.load` does, from the cache if possible; else add it to the cache.

    Only regular files that do not change during reading are cached. An unusable cache is no failure. Raises like
    `load`.
    """
    try:
        entry = cache_folder() / _key(Path(path), max_bytes) if Path(path).is_file() else None
    except OSError:
        entry = None
    known = _read(entry, printable(str(path))) if entry is not None else None
    if known is not None:
        if progress is not None:
            progress("reading", None)
        return known
    trace = ingest.load(path, max_bytes=max_bytes, progress=progress)
    if entry is not None and all(note.code != CHANGED for note in trace.notes):
        with contextlib.suppress(OSError, pl.exceptions.PolarsError):
            _write(entry, trace)
            _evict(entry.parent)
    return trace


def _key(path: Path, max_bytes: int) -> str:
    """Return a digest of the file's bytes and of everything that determines how they are read."""
    digest = hashlib.blake2b(
        f"{_FORMAT} {tool_version()} {max_bytes} {_reader()} {plugins.fingerprint()}".encode(), digest_size=20
    )
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


@cache
def _reader() -> str:
    """Return a digest of the reading code: during development, the version does not change with the code."""
    package = Path(__file__).parent
    files = sorted(
        f
        for name in ("ingest", "frames")
        for f in (package / name).iterdir()
        if f.suffix in (".py", ".pyx", ".so", ".pyd")
    )
    return " ".join(f"{f.name} {(s := f.stat()).st_size} {s.st_mtime_ns}" for f in files)


def _frames(trace: Trace) -> Mapping[str, pl.DataFrame]:
    return {
        f.name: value for f in dataclasses.fields(trace) if isinstance(value := getattr(trace, f.name), pl.DataFrame)
    }


def _write(entry: Path, trace: Trace) -> None:
    """Write an entry: frames as Parquet, everything else as JSON with the digests of the frames and of itself."""
    entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with temporary_folder(entry.parent) as made:
        frames = _frames(trace)
        for name, frame in frames.items():
            frame.write_parquet(made / f"{name}.parquet", compression="lz4", statistics=False)
        facts = {f.name: _plain(getattr(trace, f.name)) for f in dataclasses.fields(trace) if f.name not in frames}
        digests = {name: _digest((made / f"{name}.parquet").read_bytes()) for name in frames}
        document = {"facts": facts, "frames": digests}
        text = json.dumps(document)
        (made / _META).write_text(f"{_digest(text.encode())}\n{text}", encoding="utf-8")
        made.rename(entry)  # the second of two concurrent writers fails here: the first entry is as good


def _read(entry: Path, path: str) -> Trace | None:
    """Read an entry; None where it is missing or damaged. A damaged one is removed."""
    if not entry.is_dir():
        return None
    try:
        trace = _trace(entry, path)
        os.utime(entry)
        return trace
    except Exception:  # any error: the trace file itself can still be read
        shutil.rmtree(entry, ignore_errors=True)
        return None


def _trace(entry: Path, path: str) -> Trace:
    digest, _, text = (entry / _META).read_text(encoding="utf-8").partition("\n")
    if digest != _digest(text.encode()):
        raise ValueError("damaged")
    document = json.loads(text)
    frames = {}
    for name, known in document["frames"].items():
        content = (entry / f"{name}.parquet").read_bytes()
        if _digest(content) != known:
            raise ValueError("damaged")
        frames[name] = pl.read_parquet(content)
    facts = document["facts"]
    header = facts["header"]
    return Trace(
        **{
            **facts,
            **frames,
            "path": path,
            "header": Header(
                **{
                    **header,
                    "devices": tuple(DeviceProperties(**device) for device in header["devices"]),
                    "settings": RunMetadata(**header["settings"]) if header["settings"] else None,
                    "process_groups": tuple(
                        ProcessGroup(**{**group, "ranks": tuple(group["ranks"])}) for group in header["process_groups"]
                    ),
                }
            ),
            "notes": tuple(Note(**note) for note in facts["notes"]),
            "profiler_sessions": tuple((start, end) for start, end in facts["profiler_sessions"]),
            "boundaries": tuple(facts["boundaries"]),
        }
    )


def _plain(value: object) -> object:
    """Return a header or notes in JSON's own types, other values unchanged."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=20).hexdigest()


def _evict(folder: Path) -> None:
    """Remove the least recently used entries until the rest fits, and temporary files of killed writers."""
    limit = limit_bytes()
    remove_abandoned(folder)
    entries = sorted(entries_of(folder), reverse=True)
    total = 0
    for _, size, entry in entries:
        total += size
        if total > limit:
            shutil.rmtree(entry, ignore_errors=True)


def limit_bytes() -> int:
    """Return the limit on the size of all entries."""
    with contextlib.suppress(ValueError):
        return int(float(os.environ[LIMIT]) * 1e6) if LIMIT in os.environ else MAX_BYTES
    return MAX_BYTES


def entries_of(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield the time of last use, size and folder of every entry."""
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):
            # a concurrent writer's temporary folder; compiled templates
            if entry.name.endswith(".tmp") or entry.name == TEMPLATES:
                continue
            used = entry.stat().st_mtime
            yield used, sum(file.stat().st_size for file in entry.iterdir()), entry


__all__ = ["LIMIT", "MAX_BYTES", "entries_of", "limit_bytes", "load_cached"]
