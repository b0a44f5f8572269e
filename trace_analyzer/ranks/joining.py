"""Join summaries of ranks: find problems first, then join the frames of all usable ranks."""

import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import polars as pl
from msgspec import Struct

from trace_analyzer.ingest.trace import rank_in_name
from trace_analyzer.ranks.files import recording_of
from trace_analyzer.ranks.matching import WAYS, coded
from trace_analyzer.ranks.summary import EXPOSED, PARTS, ROWS, STEPS, WORK, RankSummary, frames_of, head_of
from trace_analyzer.schema import typed

PART_ROWS = 1_000_000
"""Approximate number of collectives that are reduced at once, at least one step. A job with fewer is not spooled."""
SAMPLE_ROWS, _LEAST_SAMPLED = 200_000, 16
"""Number of collectives per group size for aligning clocks, in a job with more than `PART_ROWS`; rows of at least so many
collectives of the whole group."""
_OUTSIDE = -1
_PIECES: dict[str, pl.DataType] = {"rank": pl.Int32(), **EXPOSED}


class Spool:
    """Collect the collectives of ranks, some ranks at a time, and return them by parts of steps, from files if several.

    ``rows`` is the expected number of rows. Rows with equal number are in one part, whatever their step. Rows of ranks
    without steps are divided by their position within the rank, so that memory is bounded without step marks as well.
    """

    def __init__(self, rows: int, part_rows: int = PART_ROWS) -> None:
        self._parts = math.ceil(rows / part_rows)
        self._steps_each = 0
        self._folder = tempfile.TemporaryDirectory(prefix="analyze-ranks-") if self._parts > 1 else None
        self._kept: dict[tuple[str, int], list[pl.DataFrame | Path]] = defaultdict(list)
        self._placed = pl.DataFrame(
            schema={"key": pl.UInt64, "part": pl.Int32, "there": pl.Int64, "group_size": pl.Int32}
        )
        self._sizes = Counter[int | None]()
        self._groups = [pl.DataFrame(schema={"group": pl.String, "time_ns": pl.Int64, "collectives": pl.Int64})]
        self._pairs: list[pl.DataFrame] = []
        self.kinds: list[str] = []

    def add(self, collectives: pl.DataFrame, exposed: pl.DataFrame) -> None:
        """Add rows of `JOINED` and of `EXPOSED` with rank, for new ranks."""
        rows, pairs = coded(collectives, self.kinds)
        self._pairs.append(pairs)
        self._groups.append(
            collectives.filter(pl.col("group").is_not_null())
            .group_by("group")
            .agg(pl.col("duration_ns").sum().alias("time_ns"), pl.len().cast(pl.Int64).alias("collectives"))
            .with_columns(pl.col("group").cast(pl.String))
        )
        pieces = typed(exposed, _PIECES)
        if self._folder is None:
            self._kept["rows", 0].append(rows)
            self._kept["pieces", 0].append(pieces)
            return
        self._sizes.update(dict(rows.group_by("group_size").len().iter_rows()))
        parted = self._with_part(rows)
        pieces = pieces.join(parted.select("rank", "row", "part"), on=["rank", "row"], maintain_order="left")
        for name, frame in (("rows", parted), ("pieces", pieces)):
            for (part,), own in frame.group_by("part", maintain_order=True):
                files = self._kept[name, int(part)]
                path = Path(self._folder.name) / f"{name}.{part}.{len(files)}.parquet"
                own.drop("part").write_parquet(path, compression="uncompressed", statistics=False)
                files.append(path)

    def _with_part(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add ``part``: that of another rank's row with the same key, if there is one, else that of the row's step.

        For a rank without steps, it is that of the row's position in the rank.
        """
        if not self._steps_each:
            self._steps_each = max(1, rows.get_column("step").drop_nulls().n_unique() // self._parts)
        own = (pl.col("step") // self._steps_each).cast(pl.Int32)
        if rows.get_column("step").has_nulls():
            place = (pl.col("row").cast(pl.Int64) * self._parts // pl.len().over("rank")).cast(pl.Int32)
            own = pl.coalesce(own, pl.when(pl.col("step").is_null().all().over("rank")).then(place))
        parted = rows.with_columns(own.fill_null(_OUTSIDE).alias("own"))
        is_numbered = pl.col("by").is_in([WAYS.index("seq"), WAYS.index("comms-id")])
        new = (
            parted.lazy()
            .filter(is_numbered, pl.col("own") != _OUTSIDE)
            .group_by("key")
            .agg(
                pl.col("own").first().alias("part"), pl.len().cast(pl.Int64).alias("there"), pl.col("group_size").max()
            )
            .collect()
        )
        placed = (
            pl.concat([self._placed, new])
            .group_by("key", maintain_order=True)
            .agg(pl.col("part").first(), pl.col("there").sum(), pl.col("group_size").max())
        )
        joined = parted.join(placed.select("key", "part"), on="key", how="left", maintain_order="left")
        # Keys whose whole group has arrived are not needed again.
        self._placed = placed.filter(pl.col("there") < pl.col("group_size").fill_null(1 << 30))
        return joined.with_columns(pl.coalesce("part", "own").alias("part")).drop("own")

    def sample(self) -> pl.DataFrame:
        """Return rows of `ROWS` for aligning clocks: all of them, or complete collectives of a large job.

        These are the collectives with the smallest key hashes, which includes either all ranks of a collective or none.
        Rows without a key share the hash of all rows of a signature in a step or part.
        """
        if self._folder is None:
            return self._rows(0)
        most = ((size, max(SAMPLE_ROWS, _LEAST_SAMPLED * (size or 0)) / rows) for size, rows in self._sizes.items())
        bound = {size: int(min(1.0, share) * ((1 << 64) - 2048)) for size, share in most}
        bounds = pl.col("group_size").replace_strict(list(bound), list(bound.values()), return_dtype=pl.UInt64)
        kept = []
        for part in self._numbers():
            within = pl.coalesce("step", pl.lit(part, pl.Int64)).alias("step")
            key = pl.coalesce("key", pl.struct("signature", within).hash())
            kept.append(self._rows(part).filter(key.hash() <= bounds))
        return pl.concat(kept) if kept else self._rows(0)

    def parts(self) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """Yield rows of `ROWS` and their exposed pieces, part by part, in order of steps; rows without a step first."""
        for part in self._numbers() if self._folder else [0]:
            yield self._rows(part), self._frame("pieces", part, _PIECES)

    def _numbers(self) -> list[int]:
        return sorted(part for name, part in self._kept if name == "rows")

    def _rows(self, part: int) -> pl.DataFrame:
        return self._frame("rows", part, ROWS)

    def _frame(self, name: str, part: int, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
        kept = self._kept.get((name, part), [])
        frames = [item if isinstance(item, pl.DataFrame) else pl.read_parquet(item) for item in kept]
        return pl.concat(frames) if frames else pl.DataFrame(schema=schema)

    def groups(self) -> pl.DataFrame:
        """Return group, time_ns and collectives of process groups, longest first."""
        sums = pl.concat(self._groups).group_by("group").agg(pl.all().sum())
        return sums.sort("time_ns", "group", descending=[True, False])

    def pairs(self) -> pl.DataFrame:
        """Return from, to, step and count of sends, as their ranks recorded them."""
        return pl.concat(self._pairs) if self._pairs else pl.DataFrame()

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            self._folder.cleanup()


ProblemKind = Literal["missing", "cut", "duplicate", "foreign", "failed"]
_SMALL: Mapping[str, Mapping[str, pl.DataType]] = {
    name: {"rank": pl.Int64(), **schema} for name, schema in (("steps", STEPS), ("parts", PARTS), ("work", WORK))
}
"""Frames that are in memory for all ranks at once."""
_BATCH_ROWS, _BATCH_RANKS = 300_000, 256
_APART_NS = 3600 * 10**9
"""Largest distance between recordings of one job: clocks of hosts differ by less, and a job's next recording often
comes later."""


class Problem(Struct, frozen=True):
    """A rank that is missing, or whose trace is not used."""

    rank: Annotated[int | None, "Number of the rank; null where it is not known."]
    path: Annotated[str | None, "File of the trace; null without a trace."]
    kind: Annotated[ProblemKind, "What is wrong."]
    message: Annotated[str, "The same in a sentence, with what to do."]


class Joined(Struct, frozen=True):
    """All usable ranks of a job, in order of rank.

    ``ranks`` have no frames; ``places`` are the positions of their summaries in the store. Frames have ``rank`` and the
    columns of `trace_analyzer.ranks.summary`. Times of ``collectives`` and ``steps`` count from ``origin_ns``, the
    absolute start of the first trace by its own clock, as absolute times in ns do not fit a float64. ``left_out`` are
    the unusable summaries.
    """

    ranks: tuple[RankSummary, ...]
    left_out: tuple[RankSummary, ...]
    problems: tuple[Problem, ...]
    world_size: int | None
    origin_ns: int
    places: Mapping[int, int]
    collectives: Spool
    steps: pl.DataFrame
    parts: pl.DataFrame
    work: pl.DataFrame


def joined(contents: Sequence[bytes], part_rows: int = PART_ROWS) -> Joined:
    """Join summaries in any order; collectives go to a spool, which the caller closes."""
    heads = [head_of(content) for content in contents]
    summaries = [head for head, _ in heads]
    rows = {id(head): count for head, count in heads}
    place_of = {id(head): place for place, head in enumerate(summaries)}
    used, left_out, problems, world_size = sorted_out(summaries)
    origin = min((summary.base_ns for summary in used), default=0)
    spool = Spool(sum(rows[id(summary)] for summary in used), part_rows)
    frames: dict[str, list[pl.DataFrame]] = {name: [] for name in _SMALL}
    whole = sorted(used, key=lambda summary: summary.damage is not None)  # a truncated file may lack its steps
    batches = _batches(whole, [rows[id(summary)] for summary in whole])
    with ThreadPoolExecutor(1) as ahead:  # reads the next ranks while these are spooled
        reading = None
        for some in chain(batches, [None]):
            read = reading and reading.result()
            reading = some and ahead.submit(_read, some, contents, place_of, origin)
            if read:
                spool.add(read["collectives"], read["exposed"])
                for name in _SMALL:
                    frames[name].append(read[name])
    tables = {
        name: typed(pl.concat(some), schema).sort("rank", maintain_order=True) if some else pl.DataFrame(schema=schema)
        for (name, schema), some in zip(_SMALL.items(), frames.values(), strict=True)
    }
    return Joined(
        ranks=tuple(used),
        left_out=tuple(left_out),
        problems=problems,
        world_size=world_size,
        origin_ns=origin,
        places={summary.rank: place_of[id(summary)] for summary in used if summary.rank is not None},
        collectives=spool,
        **tables,
    )


def _batches(ranks: Sequence[RankSummary], rows: Sequence[int]) -> Iterator[list[RankSummary]]:
    """Yield ranks in order, in batches of about `_BATCH_ROWS` collectives and at most `_BATCH_RANKS` ranks."""
    batch: list[RankSummary] = []
    count = 0
    for summary, own in zip(ranks, rows, strict=True):
        if batch and (count + own > _BATCH_ROWS or len(batch) >= _BATCH_RANKS):
            yield batch
            batch, count = [], 0
        batch.append(summary)
        count += own
    if batch:
        yield batch


def _read(
    ranks: Sequence[RankSummary], contents: Sequence[bytes], place_of: Mapping[int, int], origin_ns: int
) -> dict[str, pl.DataFrame]:
    """Return the frames of ranks by name, with ``rank`` and times from the origin; for collectives also ``row``."""
    numbers = np.array([summary.rank for summary in ranks], dtype=np.int64)
    since = np.array([summary.base_ns - origin_ns for summary in ranks], dtype=np.int64)
    frames = {}
    for name, (read, heights) in frames_of([contents[place_of[id(summary)]] for summary in ranks]).items():
        frame = read.with_columns(pl.Series("rank", np.repeat(numbers, heights)))
        if name in ("collectives", "steps"):
            times = [column for column in ("start_ns", "end_ns") if column in frame.columns]
            frame = frame.with_columns(pl.col(times) + pl.Series(np.repeat(since, heights)))
        if name == "collectives":
            places = np.concatenate([np.arange(height, dtype=np.uint32) for height in heights])
            frame = frame.with_columns(pl.Series("row", places))
        frames[name] = typed(frame, _SMALL[name]) if name in _SMALL else frame
    return frames


def sorted_out(
    summaries: Sequence[RankSummary],
) -> tuple[list[RankSummary], list[RankSummary], tuple[Problem, ...], int | None]:
    """Return the usable summaries by rank, the unusable ones, the problems, and the size of the job.

    Of several recordings of the job, the one with most ranks, then the first, is used; of several traces of one rank,
    the complete one, then the first. A trace is foreign where its world size differs from most others, where its rank
    is missing or too large, or where it was recorded over an hour from the median.
    """
    problems = [Problem(s.rank, s.path, "failed", s.error) for s in summaries if s.error is not None]
    left_out = [summary for summary in summaries if summary.error is not None]
    sound = [summary for summary in summaries if summary.error is None]
    sizes = Counter(summary.world_size for summary in sound if summary.world_size is not None)
    world = max(sizes, key=lambda size: (sizes[size], size)) if sizes else None
    times = sorted(summary.base_ns for summary in sound)
    middle = times[len(times) // 2] if times else 0
    chosen, again = _recordings([s for s in sound if _foreign(s, world, middle) is None])
    used: dict[int, RankSummary] = {}
    for summary in sorted(sound, key=lambda item: (item.damage is not None, item.path)):
        foreign = _foreign(summary, world, middle)
        rank = summary.rank
        if foreign is not None or rank is None:
            problems.append(Problem(rank, summary.path, "foreign", foreign or ""))
        elif recording_of(summary.path) in again:
            problems.append(Problem(rank, summary.path, "duplicate", f"another recording; that of {chosen} is used"))
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


def _recordings(ranks: Sequence[RankSummary]) -> tuple[str | None, frozenset[str]]:
    """Return the path of each rank in the largest recording, and the recordings whose ranks are mostly in larger ones.

    Recordings are named as by `recording_of`. A single rank with two traces is no recording of its own.
    """
    members: dict[str, dict[int, str]] = defaultdict(dict)
    for summary in sorted(ranks, key=lambda item: item.path):
        if summary.rank is not None:
            members[recording_of(summary.path)].setdefault(summary.rank, summary.path)
    taken: set[int] = set()
    again, chosen = [], None
    for recording, paths in sorted(members.items(), key=lambda item: -len(item[1])):
        both = taken & paths.keys()
        if len(both) > 1 and 2 * len(both) > len(paths):
            again.append(recording)
        else:
            chosen = chosen or min(paths.values())
            taken |= paths.keys()
    return chosen, frozenset(again)


def misnamed(ranks: Sequence[RankSummary]) -> dict[int, int]:
    """Return, by rank, a different rank in the file's name; ranks counted per host are no difference."""
    named = {s.rank: name for s in ranks if s.rank is not None and (name := rank_in_name(s.path)) is not None}
    of_host = max(named.values(), default=0) + 1
    wrong = {rank: name for rank, name in named.items() if rank != name}
    return wrong if any(rank % of_host != name for rank, name in wrong.items()) else {}


def _foreign(summary: RankSummary, world: int | None, middle_ns: int) -> str | None:
    """Return why the trace belongs to another job; None where it does not."""
    if summary.rank is None:
        return "says no rank: neither distributedInfo nor the file's name (rank3) has one; --rank-of PATTERN tells where it is"
    if world is not None and summary.world_size not in (None, world):
        return f"is of a job of {summary.world_size} ranks, most are of {world}"
    if world is not None and summary.rank >= world:
        return f"is rank {summary.rank} of a job of {world}"
    if (apart := abs(summary.base_ns - middle_ns)) > _APART_NS:
        hours = apart / 3600e9
        far = f"{hours:.1f} h" if hours < 48 else f"{hours / 24:,.0f} days"
        return f"was recorded {far} from the others: it is of another run"
    return None
