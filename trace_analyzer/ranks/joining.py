"""Join summaries of ranks: problems first, then frames of all ranks that can be used."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from trace_analyzer.ranks.summary import RankSummary, from_bytes
from trace_analyzer.ranks.tables import EXPOSED, JOINED, PARTS, STEPS, typed

ProblemKind = Literal["missing", "cut", "duplicate", "foreign", "failed"]
WORK: Mapping[str, pl.DataType] = {
    "rank": pl.Int64(),
    "kind": pl.String(),
    "category": pl.String(),
    "operator": pl.String(),
    "count": pl.Float64(),
    "step_ns": pl.Float64(),
}
"""Work of ranks a step, by operator and bucket."""
_APART_NS = 3600 * 10**9
"""Recordings of one job lie no further apart: clocks of hosts differ by less, and a job's next recording often comes later."""


@dataclass(frozen=True)
class Problem:
    """A rank that is missing, cut, duplicate, foreign or failed: ``rank`` and ``path`` are null where there is none."""

    rank: int | None
    path: str | None
    kind: ProblemKind
    message: str


@dataclass(frozen=True)
class Joined:
    """Hold all ranks of a job that can be used, in order of rank.

    ``ranks`` have no frames of their own; ``contents`` are their summaries as they came. Frames have ``rank`` and the columns of
    `trace_analyzer.ranks.tables`; times of ``collectives`` and ``steps`` count from ``origin_ns``, the absolute time at which the first trace begins by
    its own clock: absolute times in ns do not fit a float64. ``left_out`` are summaries that are not used.
    """

    ranks: tuple[RankSummary, ...]
    left_out: tuple[RankSummary, ...]
    problems: tuple[Problem, ...]
    world_size: int | None
    origin_ns: int
    contents: Mapping[int, bytes]
    collectives: pl.DataFrame
    exposed: pl.DataFrame
    steps: pl.DataFrame
    parts: pl.DataFrame
    work: pl.DataFrame


def joined(contents: Iterable[bytes]) -> Joined:
    """Join summaries, in any order."""
    read = [from_bytes(content) for content in contents]
    raw = {id(summary): to for summary, to in zip(read, contents, strict=True)}
    used, left_out, problems, world_size = sorted_out(read)
    frames: dict[str, list[pl.DataFrame]] = {name: [] for name in ("collectives", "exposed", "steps", "parts", "work")}
    origin = min((summary.base_ns for summary in used), default=0)
    for summary in used:
        since = summary.base_ns - origin
        number = pl.lit(summary.rank, pl.Int64).alias("rank")
        frames["collectives"].append(
            summary.collectives.with_row_index("row").with_columns(number, pl.col("start_ns") + since)
        )
        frames["steps"].append(summary.steps.with_columns(number, pl.col("start_ns", "end_ns") + since))
        for name in ("exposed", "parts"):
            frames[name].append(getattr(summary, name).with_columns(number))
        frames["work"].append(_work(summary).with_columns(number))
    schemas: dict[str, Mapping[str, pl.DataType]] = {
        "collectives": JOINED,
        "exposed": {"rank": pl.Int64(), **EXPOSED},
        "steps": {"rank": pl.Int64(), **STEPS},
        "parts": {"rank": pl.Int64(), **PARTS},
        "work": WORK,
    }
    tables = {
        name: typed(pl.concat(some), schemas[name]) if some else pl.DataFrame(schema=schemas[name])
        for name, some in frames.items()
    }
    return Joined(
        ranks=tuple(_light(summary) for summary in used),
        left_out=tuple(_light(summary) for summary in left_out),
        problems=problems,
        world_size=world_size,
        origin_ns=origin,
        contents={summary.rank: raw[id(summary)] for summary in used if summary.rank is not None},
        **tables,
    )


def _light(summary: RankSummary) -> RankSummary:
    """Return the summary without its frames."""
    empty = RankSummary(summary.path)
    return replace(
        summary,
        collectives=empty.collectives,
        exposed=empty.exposed,
        steps=empty.steps,
        parts=empty.parts,
        profile=None,
    )


def _work(summary: RankSummary) -> pl.DataFrame:
    profile = summary.profile
    if profile is None:
        return pl.DataFrame(schema=WORK)
    named = profile.rows.join(profile.calls.select("call", "operator"), on="call", how="left")
    steps = max(1, profile.steps)
    return named.group_by("kind", "category", "operator").agg(
        (pl.col("count").sum() / steps).alias("count"), (pl.col("total_ns").sum() / steps).alias("step_ns")
    )


def sorted_out(
    summaries: Sequence[RankSummary],
) -> tuple[list[RankSummary], list[RankSummary], tuple[Problem, ...], int | None]:
    """Return the summaries that can be used by rank, those that cannot, what is wrong, and the size of the job.

    Of several traces of one rank the whole one, then the first is used. A trace is foreign where its world size is not that of most, where it
    says no rank or one beyond the world, or where it was recorded over an hour from the middle one.
    """
    problems = [Problem(s.rank, s.path, "failed", s.error) for s in summaries if s.error is not None]
    left_out = [summary for summary in summaries if summary.error is not None]
    sound = [summary for summary in summaries if summary.error is None]
    sizes = Counter(summary.world_size for summary in sound if summary.world_size is not None)
    world = max(sizes, key=lambda size: (sizes[size], size)) if sizes else None
    times = sorted(summary.base_ns for summary in sound)
    middle = times[len(times) // 2] if times else 0
    used: dict[int, RankSummary] = {}
    for summary in sorted(sound, key=lambda item: (item.damage is not None, item.path)):
        foreign = _foreign(summary, world, middle)
        rank = summary.rank
        if foreign is not None or rank is None:
            problems.append(Problem(rank, summary.path, "foreign", foreign or ""))
        elif rank in used:
            problems.append(
                Problem(rank, summary.path, "duplicate", f"rank {rank} is {used[rank].path} too: that one is used")
            )
        else:
            used[rank] = summary
            if summary.damage is not None:
                problems.append(Problem(rank, summary.path, "cut", summary.damage))
            continue
        left_out.append(summary)
    there = {summary.rank for summary in summaries}
    absent = [rank for rank in range(world or 0) if rank not in there]
    problems += [Problem(rank, None, "missing", f"no trace of rank {rank} of {world}") for rank in absent]
    order = ("missing", "failed", "cut", "duplicate", "foreign")
    problems.sort(key=lambda p: (order.index(p.kind), p.rank if p.rank is not None else -1, p.path or ""))
    return [used[rank] for rank in sorted(used)], left_out, tuple(problems), world


def _foreign(summary: RankSummary, world: int | None, middle_ns: int) -> str | None:
    """Return why the trace is not of this job; None where it is."""
    if summary.rank is None:
        return "says no rank: neither distributedInfo nor the file's name (rank3) has one"
    if world is not None and summary.world_size not in (None, world):
        return f"is of a job of {summary.world_size} ranks, most are of {world}"
    if world is not None and summary.rank >= world:
        return f"is rank {summary.rank} of a job of {world}"
    if abs(summary.base_ns - middle_ns) > _APART_NS:
        return f"was recorded {abs(summary.base_ns - middle_ns) / 3600e9:.1f} h from the others: of another run"
    return None
