"""Read annotations of a graph's kernels, which PyTorch saves at capture, by their `graph node id`.

``torch.cuda.graph(..., enable_annotations=True)`` keeps the annotations that `mark_kernels` gave each node, and
``get_kernel_annotations()`` returns them: node id -> list of annotations, which are mappings with a ``name``, innermost
scope last (`torch/cuda/_graph_annotations.py`). In JSON the keys are strings. A profiler records the same ids for
kernels that the graph replays.
"""

import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from trace_analyzer.errors import InputError
from trace_analyzer.ingest.source import Source, content_of
from trace_analyzer.ingest.trace import Trace

_PICKLE = b"\x80"
"""First byte of a pickle of protocol 2 or later."""
_BY_NODE = re.compile(rb"\s*\{\s*(?:\"\d+\"\s*:|\}\s*$)")
_NAMES = ("name", "str")
"""Keys of an annotation's name; the first versions write ``str``."""
_LONGEST = 4_096
_MOST = 1 << 63
"""Limit on ids: they have 64 bits, and no profiler writes one with the highest bit set."""


@dataclass(frozen=True)
class GraphAnnotations:
    """Hold names of graphs' kernels: ``names`` has columns graph_node_id and name, with distinct ids."""

    names: pl.DataFrame


def read_capture(source: Source, read: Callable[[Source], Trace], *, max_bytes: int) -> Trace | GraphAnnotations:
    """Read a second trace with ``read``, or graph annotations from a regular file or bytes.

    Raises ``InputError`` for other content, and for a pickle, as unpickling can execute code.
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
    """Return (graph_node_id, name) from annotations as JSON text. Raises ``InputError`` for invalid text."""
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
    """Return the name of the innermost scope that has one; None without any."""
    scopes = annotations if isinstance(annotations, list) else [annotations]
    for scope in reversed(scopes):
        names = [scope.get(key) for key in _NAMES] if isinstance(scope, dict) else [scope]
        for name in names:
            if isinstance(name, str) and name:
                return name[:_LONGEST]
    return None
