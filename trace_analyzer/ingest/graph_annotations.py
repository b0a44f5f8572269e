"""Read what PyTorch saved of a graph's capture: annotations of its kernels, by their `graph node id`.

``torch.cuda.graph(..., enable_annotations=True)`` keeps the annotations that `mark_kernels` gave each node, and ``get_kernel_annotations()`` returns
it: node id -> list of annotations, mappings with a ``name``, the innermost scope last (`torch/cuda/_graph_annotations.py`). Saved as JSON its
keys are strings. A profiler names the same ids in kernels that the graph replays.
"""

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl

from trace_analyzer.errors import InputError
from trace_analyzer.ingest.source import Source, content_of
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.tuning import dataclass

_PICKLE = b"\x80"
"""First byte of a pickle of protocol 2 or later."""
_BY_NODE = re.compile(rb"\s*\{\s*(?:\"\d+\"\s*:|\}\s*$)")
_NAMES = ("name", "str")
"""Keys of an annotation's name; ``str`` is that of the first versions."""
_LONGEST = 4_096
_MOST = 1 << 63
"""Ids are 64 bits wide; no profiler writes one with the highest bit set."""


@dataclass(frozen=True)
class GraphAnnotations:
    """Hold names of graphs' kernels: ``names`` has graph_node_id and name, each id once."""

    names: pl.DataFrame


def read_capture(source: Source, read: Callable[[Source], Trace], *, max_bytes: int) -> Trace | GraphAnnotations:
    """Read a second trace with ``read``, or the graph annotations that a regular file or bytes hold instead.

    Raises ``InputError`` for what is neither, and for a pickle: to read one can run code.
    """
    if not isinstance(source, bytes) and not (isinstance(source, str | Path) and Path(source).is_file()):
        return read(source)
    with closing(content_of(source, max_bytes=max_bytes)) as content:
        head, name = next(content.blocks(), b""), content.name
    if head.startswith(_PICKLE):
        raise InputError(
            f"{name}: is a pickle, and to read one can run code; save the annotations as JSON:"
            " json.dump(dict(torch.cuda.graph_annotations.get_kernel_annotations()), file)"
        )
    if not _BY_NODE.match(head):
        return read(source)
    with closing(content_of(source, max_bytes=max_bytes)) as content:
        return GraphAnnotations(_names(b"".join(content.blocks()), name))


def _names(text: bytes, source: str) -> pl.DataFrame:
    """Return (graph_node_id, name) of annotations as JSON text. Raises InputError for what is no such text."""
    try:
        by_node = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{source}: begins like graph annotations, and is no JSON: {problem}") from None
    known = [
        (int(node), name)
        for node, annotations in by_node.items()
        if len(node) < 20 and node.isascii() and node.isdigit() and int(node) < _MOST and (name := _name(annotations))
    ]
    rows = pl.DataFrame(known, schema={"graph_node_id": pl.Int64, "name": pl.String}, orient="row")
    return rows.unique("graph_node_id", keep="last", maintain_order=True)


def _name(annotations: Any) -> str | None:
    """Return the name that the innermost scope gave; None where none did."""
    scopes = annotations if isinstance(annotations, list) else [annotations]
    for scope in reversed(scopes):
        names = [scope.get(key) for key in _NAMES] if isinstance(scope, dict) else [scope]
        for name in names:
            if isinstance(name, str) and name:
                return name[:_LONGEST]
    return None
