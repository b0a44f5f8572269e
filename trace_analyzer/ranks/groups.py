"""Determine the ranks of a process group, and its key, which is equal on all its ranks."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trace_analyzer.ingest.trace import Header

_NUMBERS = re.compile(r"^\[\s*\d+(?:\s*,\s*\d+)*\s*\]$")


@dataclass(frozen=True)
class RankGroup:
    """Hold a process group: ``key`` is equal on all of its ranks; ``ranks`` is empty where unknown."""

    key: str
    name: str
    description: str | None
    size: int | None
    ranks: tuple[int, ...]


def group_of(record: Mapping[str, Any], header: Header) -> RankGroup | None:
    """Return the group of a row of `operator_inputs`; None where the row has none.

    Its ranks come from the header's ``pg_config``, else from start and stride, else from the printed list if it is
    complete. The key is a hash of name and ranks, as disjoint groups may share a name; without ranks it is the name
    alone.
    """
    name = record["process_group"]
    if name is None:
        return None
    size = record["group_size"]
    known = next((group for group in header.process_groups if group.name == name and group.ranks), None)
    ranks = known.ranks if known else _ranks(record, size, header.world_size)
    key = hashlib.blake2b(f"{name}|{','.join(map(str, ranks))}".encode(), digest_size=6).hexdigest()
    description = record["process_group_description"] or (known.description if known else None)
    return RankGroup(key, name, description, size or len(ranks) or None, ranks)


def _ranks(record: Mapping[str, Any], size: int | None, world_size: int | None) -> tuple[int, ...]:
    start, stride, listed = (record[key] for key in ("global_rank_start", "global_rank_stride", "process_group_ranks"))
    if size and start is not None and stride is not None and stride > 0:
        return tuple(range(start, start + size * stride, stride))
    if listed and _NUMBERS.match(listed):
        ranks = tuple(int(rank) for rank in json.loads(listed))
        if size in (None, len(ranks)):
            return ranks
    return tuple(range(size)) if size and size == world_size else ()


def packed(ranks: Iterable[int]) -> list[list[int]]:
    """Return ranks as runs (first, stride, count), in order."""
    runs: list[list[int]] = []
    for rank in ranks:
        last = runs[-1] if runs else None
        if last and last[2] == 1 and rank > last[0]:
            last[1:] = [rank - last[0], 2]
        elif last and last[2] > 1 and rank == last[0] + last[1] * last[2]:
            last[2] += 1
        else:
            runs.append([rank, 1, 1])
    return runs


def unpacked(runs: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """Return the ranks of runs."""
    return tuple(first + stride * place for first, stride, count in runs for place in range(count))
