"""Read bytes into events, and events into tables; missing and unusual data become notes."""

from contextlib import closing

from trace_analyzer import forks
from trace_analyzer.ingest.build import trace_tables
from trace_analyzer.ingest.source import Progress, Source, content_of
from trace_analyzer.ingest.strict import read_document
from trace_analyzer.ingest.trace import Header, Trace
from trace_analyzer.options import DEFAULT_MAX_BYTES

__all__ = ["DEFAULT_MAX_BYTES", "Header", "Progress", "Source", "Trace", "load"]


def load(source: Source, *, max_bytes: int = DEFAULT_MAX_BYTES, progress: Progress | None = None) -> Trace:
    """Read a trace into typed tables.

    ``source`` is a path, ``"-"``, bytes or a binary file, compressed or not. ``max_bytes`` limits its decompressed
    size. Raises ``InputError`` (or a subclass) when it cannot be read as a trace.
    """
    forks.check()
    with closing(content_of(source, max_bytes=max_bytes, progress=progress)) as content:
        documents = [read_document(content)]
    if progress is not None:
        progress("sorting", None)
    # Keep no reference here, so that parts of the document can be freed once they are in tables.
    return trace_tables(documents.pop(), content.name, content.notes)
