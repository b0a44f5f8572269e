"""Spool the collectives of all ranks to files by step, so that a job is reduced one group of steps at a time."""

import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from trace_analyzer.ranks.matching import WAYS, coded
from trace_analyzer.ranks.tables import EXPOSED, ROWS
from trace_analyzer.schema import typed

PART_ROWS = 1_000_000
"""Approximate number of collectives that are reduced at once, at least one step. A job with fewer is not spooled."""
SAMPLE_ROWS = 200_000
"""Number of collectives per group size for aligning clocks, in a job with more than `PART_ROWS`."""
_ALL = (1 << 64) - 1
_OUTSIDE = -1
_PIECES: dict[str, pl.DataType] = {"rank": pl.Int32(), **EXPOSED}


class Sample:
    """Sample the collectives with the smallest key hashes, which includes either all ranks of a collective or none.

    Where a group size has more than ``rows``, half of its keys are dropped.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._kept: dict[int | None, tuple[int, list[pl.DataFrame]]] = {}

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows of `ROWS`."""
        hashed = rows.with_columns(_hash(rows))
        bounds = [bound for bound, _ in self._kept.values()]
        sizes = rows.get_column("group_size").unique().to_list()
        if all(size in self._kept for size in sizes):  # drop most rows at once
            hashed = hashed.filter(pl.col("hash") <= max(bounds))
        for (size,), own in hashed.group_by("group_size"):
            bound, frames = self._kept.get(size, (_ALL, []))
            frames = [*frames, own.filter(pl.col("hash") <= bound)]
            while sum(frame.height for frame in frames) > self._rows and _several(frames):
                bound //= 2
                frames = [frame.filter(pl.col("hash") <= bound) for frame in frames]
            self._kept[size] = bound, frames

    def rows(self) -> pl.DataFrame:
        """Return the rows that were kept."""
        frames = [frame.select(*ROWS) for _, own in self._kept.values() for frame in own]
        return pl.concat(frames) if frames else pl.DataFrame(schema=ROWS)


def _hash(rows: pl.DataFrame) -> pl.Expr:
    """Return a hash that all rows of a collective share.

    Rows without a key share that of all rows of a signature in a step or part.
    """
    key = pl.col("key")
    if rows.get_column("key").has_nulls():
        within = pl.coalesce("step", "part") if "part" in rows.columns else pl.col("step")
        key = pl.coalesce("key", pl.struct("signature", within.alias("step")).hash())
    return key.hash().alias("hash")


def _several(frames: Sequence[pl.DataFrame]) -> bool:
    return pl.concat([frame.select("hash") for frame in frames]).get_column("hash").n_unique() > 2


class Spool:
    """Collect the collectives of ranks, some ranks at a time, and return them by parts of steps.

    ``rows`` is the expected number of rows. Rows with equal number are in one part, whatever their step. Rows of ranks
    without steps are divided by their position within the rank, so that memory is bounded without step marks as well.
    """

    def __init__(self, rows: int, part_rows: int = PART_ROWS) -> None:
        self._parts = math.ceil(rows / part_rows)
        self._steps_each = 0
        self._folder: Path | None = None
        self._frames: dict[int, list[pl.DataFrame]] = {}
        self._files: dict[int, list[Path]] = {}
        self._pieces: dict[int, list[pl.DataFrame | Path]] = {}
        self._placed = pl.DataFrame(
            schema={"key": pl.UInt64, "part": pl.Int32, "there": pl.Int64, "group_size": pl.Int32}
        )
        self._sample = Sample(SAMPLE_ROWS)
        self._groups: list[pl.DataFrame] = []
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
        exposed = typed(exposed, _PIECES)
        if self._parts <= 1:
            self._frames.setdefault(0, []).append(rows)
            self._pieces.setdefault(0, []).append(exposed)
            return
        parted = self._with_part(rows)
        self._sample.add(parted)
        self._write(parted, exposed.with_columns(_parts_of(exposed, parted)))

    def _with_part(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add ``part``: that of another rank's row with the same key, if there is one, else that of the row's step."""
        if not self._steps_each:
            steps = rows.get_column("step").drop_nulls().n_unique()
            self._steps_each = max(1, steps // self._parts)
        parted = rows.with_columns(self._own_part(rows).alias("own"))
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

    def _own_part(self, rows: pl.DataFrame) -> pl.Expr:
        """Return the part of the row's step; for a rank without steps, that of the row's position in the rank."""
        part = (pl.col("step") // self._steps_each).cast(pl.Int32)
        if rows.get_column("step").has_nulls():
            place = (pl.col("row").cast(pl.Int64) * self._parts // pl.len().over("rank")).cast(pl.Int32)
            part = pl.coalesce(part, pl.when(pl.col("step").is_null().all().over("rank")).then(place))
        return part.fill_null(_OUTSIDE)

    def _write(self, rows: pl.DataFrame, pieces: pl.DataFrame) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="analyze-ranks-"))
        for name, files, frame in (("rows", self._files, rows), ("pieces", self._pieces, pieces)):
            for (part,), own in frame.group_by("part", maintain_order=True):
                path = self._folder / f"{name}.{part}.{len(files.setdefault(int(part), []))}.parquet"
                own.drop("part").write_parquet(path, compression="uncompressed", statistics=False)
                files[int(part)].append(path)

    def sample(self) -> pl.DataFrame:
        """Return rows of `ROWS` for aligning clocks: all of them, or complete collectives of a large job."""
        return self._sample.rows() if self._folder else self._rows(0)

    def parts(self) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """Yield rows of `ROWS` and their exposed pieces, part by part, in order of steps; rows without a step first."""
        for part in sorted(self._files if self._folder else [0]):
            yield self._rows(part), _frame(self._pieces.get(part, []), _PIECES)

    def _rows(self, part: int) -> pl.DataFrame:
        return _frame(self._files.get(part, []) if self._folder else self._frames.get(part, []), ROWS)

    def groups(self) -> pl.DataFrame:
        """Return group, time_ns and collectives of process groups, longest first."""
        schema = {"group": pl.String, "time_ns": pl.Int64, "collectives": pl.Int64}
        together = pl.concat(self._groups) if self._groups else pl.DataFrame(schema=schema)
        return together.group_by("group").agg(pl.all().sum()).sort("time_ns", "group", descending=[True, False])

    def pairs(self) -> pl.DataFrame:
        """Return from, to, step and count of sends, as their ranks recorded them."""
        return pl.concat(self._pairs) if self._pairs else pl.DataFrame()

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _parts_of(pieces: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """Return the part of each piece's row; ``rows`` are all rows of some ranks, rank after rank."""
    ranks, firsts = np.unique(rows.get_column("rank").to_numpy(), return_index=True)
    first = firsts[np.searchsorted(ranks, pieces.get_column("rank").to_numpy())]
    return rows.get_column("part").gather(first + pieces.get_column("row").to_numpy())


def _frame(parts: Sequence[pl.DataFrame | Path], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the concatenation of frames, in memory or in files."""
    frames = [part if isinstance(part, pl.DataFrame) else pl.read_parquet(part) for part in parts]
    return pl.concat(frames) if frames else pl.DataFrame(schema=schema)
