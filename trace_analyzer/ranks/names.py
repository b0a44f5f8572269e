"""Tell from names of files which rank and which recording a trace is of."""

import re

from trace_analyzer.ingest.trace import Header

_RANK_IN_NAME = re.compile(r"rank[-_.[]?(\d{1,7})(?!\d)", re.IGNORECASE)
_TENSOR_PARALLEL = re.compile(r"(?:^|-)TP-(\d{1,7})(?!\d)")
_OTHER_PARALLEL = re.compile(r"-(?:DP|PP)-\d")
"""Of SGLang's names: ``TP-`` is the rank where there is no other parallelism."""


def rank_in_name(path: str) -> int | None:
    """Return the rank that the name of a file says, else that of its folder; None without.

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
    """Return the rank that the header says, else the name; rank 0 without a world size says nothing."""
    named = rank_in_name(path)
    says = header.rank if header.rank or header.world_size is not None else None
    return says if says is not None else named if named is not None else header.rank


def recording_of(path: str) -> str:
    """Return the path without the numbers in the file's name: what the files of one recording have in common."""
    folder, slash, name = path.replace("\\", "/").rpartition("/")
    return folder + slash + re.sub(r"\d+", "", name)
