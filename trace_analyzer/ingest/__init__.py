"""Read bytes into events, and events into tables; missing and unusual data become notes."""

from contextlib import closing
from os import PathLike, fspath
from pathlib import Path

from msgspec.structs import replace

from trace_analyzer import forks
from trace_analyzer.ingest.build import trace_tables
from trace_analyzer.ingest.source import Progress, Source, content_of
from trace_analyzer.ingest.strict import NSYS_REPORT, exported_by_nsys, read_document
from trace_analyzer.ingest.trace import Header, Trace
from trace_analyzer.options import DEFAULT_MAX_BYTES
from trace_analyzer.units import printable

__all__ = ["DEFAULT_MAX_BYTES", "Header", "Progress", "Source", "Trace", "load"]


def load(
    source: Source, *, max_bytes: int = DEFAULT_MAX_BYTES, export: bool = False, progress: Progress | None = None
) -> Trace:
    """Read a trace into typed tables.

    ``source`` is a path, ``"-"``, bytes or a binary file, compressed or not. ``max_bytes`` limits its decompressed
    size. With ``export``, ``nsys`` exports a report of Nsight Systems first. Raises ``InputError`` (or a subclass) when it
    cannot be read as a trace.
    """
    forks.check()
    if export and isinstance(source, str | PathLike) and NSYS_REPORT.search(fspath(source)):
        with exported_by_nsys(Path(source)) as path:
            trace = load(path, max_bytes=max_bytes, progress=progress)
        return replace(trace, path=printable(fspath(source)))
    with closing(content_of(source, max_bytes=max_bytes, progress=progress)) as content:
        documents = [read_document(content)]
    if progress is not None:
        progress("sorting", None)
    # Keep no reference here, so that parts of the document can be freed once they are in tables.
    return trace_tables(documents.pop(), content.name, content.notes)
