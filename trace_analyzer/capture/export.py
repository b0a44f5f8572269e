"""Write a finished profile to a file atomically, with facts that Kineto does not write."""

import gzip
import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, Protocol

from trace_analyzer.files import Outputs, temporary_folder
from trace_analyzer.run_metadata import HEADER_KEY, RunMetadata

_CHUNK = 1 << 20
_COMPRESSION = 1  # training waits for it: a third of the time of gzip's default 6, for a fifth more bytes


class FinishedProfile(Protocol):
    """Declare the interface of ``torch.profiler.profile`` that `export` uses."""

    def export_chrome_trace(self, path: str) -> object:
        """Write the trace as Chrome's JSON."""


def export(profile: FinishedProfile, path: Path, settings: RunMetadata | None = None) -> Path:
    """Write the trace of a finished profile to ``path``, compressed if that ends in ``.gz``; return it.

    ``settings`` are written to the header, after the file's first brace. ``add_metadata_json`` of the profiler works
    only before it stops, which is too early for a callback such as ``on_trace_ready``. Raises errors of the export,
    including ``OSError``; no partial file is left.
    """
    with temporary_folder(path.parent) as folder, Outputs() as outputs:
        raw = folder / "trace.json"
        profile.export_chrome_trace(str(raw))
        with raw.open("rb") as source, outputs.open(path) as file, _compressed(file, path) as target:
            target.write(_with_facts(source.read(_CHUNK), settings))
            while chunk := source.read(_CHUNK):
                target.write(chunk)
    return path


def _compressed(file: BinaryIO, path: Path) -> gzip.GzipFile | AbstractContextManager[BinaryIO]:
    """Return a writer into the file, which compresses if the file's name ends in ``.gz``."""
    if path.suffix != ".gz":
        return nullcontext(file)
    return gzip.GzipFile(path.name, "wb", _COMPRESSION, file)


def _with_facts(start: bytes, settings: RunMetadata | None) -> bytes:
    """Insert the facts as the trace's first entry; a trace that is no object is returned unchanged."""
    opening = len(start) - len(start.lstrip()) + 1
    known = {} if settings is None else {key: fact for key, fact in asdict(settings).items() if fact is not None}
    if not known or start[opening - 1 : opening] != b"{" or start[opening:].lstrip()[:1] == b"}":
        return start
    facts = json.dumps({HEADER_KEY: known}, allow_nan=False)[1:-1]
    return start[:opening] + facts.encode() + b"," + start[opening:]
