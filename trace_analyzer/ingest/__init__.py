"""Ingest: bytes -> events -> tables; what is missing or odd becomes a note."""

from trace_analyzer.ingest.document import read_document
from trace_analyzer.ingest.events import trace_tables
from trace_analyzer.ingest.source import Progress, Source, read_content
from trace_analyzer.ingest.trace import Header, Trace

__all__ = ["Header", "Progress", "Source", "Trace", "load"]


def load(source: Source, *, progress: Progress | None = None) -> Trace:
    """Read a trace into typed tables.

    ``source`` is a path, ``"-"``, bytes or a binary file, compressed or not.
    Raises ``InputError`` (or a subclass) when it cannot be read as a trace.
    """
    content = read_content(source, progress=progress)
    if progress is not None:
        progress("parsing", None)
    document = read_document(content.data, content.name)
    return trace_tables(document, content.name, content.notes)
