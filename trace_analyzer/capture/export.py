"""Write a finished profile to a file, whole or not at all, with facts that Kineto does not write."""

import gzip
import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, Protocol

from trace_analyzer.files import Outputs, temporary_folder
from trace_analyzer.run_metadata import HEADER_KEY, RunMetadata

_CHUNK = 1 << 20
_COMPRESSION = 1  # training waits for it; a third of the time of gzip's usual 6, for a fifth more bytes


class FinishedProfile(Protocol):
    """Declare what `export` needs of ``torch.profiler.profile``."""

    def export_chrome_trace(self, path: str) -> object:
        """Write the trace as Chrome's JSON."""


def export(profile: FinishedProfile, path: Path, settings: RunMetadata | None = None) -> Path:
    """Write the trace of a finished profile to ``path``, compressed if that ends in ``.gz``; return it.

    ``settings`` go into the header. ``add_metadata_json`` of the profiler would do so only before it stopped,
    which is too early for a callback like ``on_trace_ready``; so they are put behind the file's first brace.
    Raises what the export raises, ``OSError`` included; nothing half written is left.
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
    """Return what writes into the file, compressed if its name ends in ``.gz``."""
    if path.suffix != ".gz":
        return nullcontext(file)
    return gzip.GzipFile(path.name, "wb", _COMPRESSION, file)


def _with_facts(start: bytes, settings: RunMetadata | None) -> bytes:
    """Insert the facts as the trace's first entry; return a trace that is no object unchanged."""
    opening = len(start) - len(start.lstrip()) + 1
    known = {} if settings is None else {key: fact for key, fact in asdict(settings).items() if fact is not None}
    if not known or start[opening - 1 : opening] != b"{" or start[opening:].lstrip()[:1] == b"}":
        return start
    facts = json.dumps({HEADER_KEY: known}, allow_nan=False)[1:-1]
    return start[:opening] + facts.encode() + b"," + start[opening:]
