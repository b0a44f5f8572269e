"""Extract a trace's rank and recording from its file name."""

import re

from trace_analyzer.ingest.trace import Header

_RANK_IN_NAME = re.compile(r"rank[-_.[]?(\d{1,7})(?!\d)", re.IGNORECASE)
_TENSOR_PARALLEL = re.compile(r"(?:^|-)TP-(\d{1,7})(?!\d)")
_OTHER_PARALLEL = re.compile(r"-(?:DP|PP)-\d")
"""Pattern of other parallelism in SGLang's names: without it, ``TP-`` is the rank."""


def rank_in_name(path: str) -> int | None:
    """Return the rank in the name of a file, else in that of its folder; None without one.

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
    """Return the rank in the header, else in the name; the header's rank 0 without a world size does not count."""
    named = rank_in_name(path)
    says = header.rank if header.rank or header.world_size is not None else None
    return says if says is not None else named if named is not None else header.rank


def recording_of(path: str) -> str:
    """Return the path with the numbers in its file name removed, which is equal for all files of a recording."""
    folder, slash, name = path.replace("\\", "/").rpartition("/")
    return folder + slash + re.sub(r"\d+", "", name)
