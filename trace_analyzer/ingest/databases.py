"""Read tables of SQLite databases in blocks, and collect what they hold as classified events."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence

import polars as pl
from msgspec.structs import replace

from trace_analyzer.ingest.classify import (
    KIND,
    Classified,
    joined,
    like,
    sorted_activities,
    sorted_calls,
    sorted_events,
    sorted_tracks,
)
from trace_analyzer.ingest.raw import RAW_SCHEMA

_BLOCK = 100_000
_NO_ID = (0, -1, (1 << 32) - 1)
"""What profilers write where there is no correlation."""
_PER_PROCESS = 1 << 32
_LIMIT_NS = 1 << 62


class Database:
    """An open database: the columns of its stored tables by name."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self.name = name
        self._connection = connection
        stored = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        names = [table for (table,) in connection.execute(stored) if isinstance(table, str)]
        self.tables = {
            table: tuple(str(row[1]) for row in connection.execute(f"PRAGMA table_info({_quoted(table)})"))
            for table in names
        }

    def blocks(
        self, table: str, columns: Mapping[str, str], texts: Sequence[str] = (), binary: Sequence[str] = ()
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows of a table in blocks: ``columns`` maps names to the table's columns.

        A column that the table lacks, and a value of another type, is null; a table that the file lacks has no rows.
        Columns are integers except for ``texts``, and ``binary`` ones, which are read as bytes whatever they are.
        """
        schema = {name: pl.String if name in texts else pl.Binary if name in binary else pl.Int64 for name in columns}
        there = self.tables.get(table, ())
        if not any(column in there for column in columns.values()):
            return
        read = {name: _quoted(column) if column in there else "NULL" for name, column in columns.items()}
        listed = (f"CAST({column} AS BLOB)" if name in binary else column for name, column in read.items())
        cursor = self._connection.execute(f"SELECT {', '.join(listed)} FROM {_quoted(table)}")
        while rows := cursor.fetchmany(_BLOCK):
            values = zip(*rows, strict=True)
            yield pl.DataFrame(
                pl.Series(name, column, dtype, strict=False)
                for (name, dtype), column in zip(schema.items(), values, strict=True)
            )

    def all(self, table: str, columns: Mapping[str, str], texts: Sequence[str] = ()) -> pl.DataFrame:
        """Return the rows of a small table."""
        empty = pl.DataFrame(schema={name: pl.String if name in texts else pl.Int64 for name in columns})
        return pl.concat([empty, *self.blocks(table, columns, texts)])

    def lookup(self, table: str, columns: Mapping[str, str], texts: Sequence[str] = ()) -> pl.DataFrame:
        """Return the rows of a small table, the first of each value of the first column."""
        return self.all(table, columns, texts).unique(next(iter(columns)), keep="first")

    def suffixes(self, prefix: str) -> list[str]:
        """Return what follows the prefix in names of tables, as schemas add a number or an id of the process."""
        return sorted(table.removeprefix(prefix) for table in self.tables if table.startswith(prefix))


class Events:
    """Collect the events of a database: `Classified` frames with row numbers in order of reading."""

    def __init__(self) -> None:
        self._parts = [sorted_events(pl.DataFrame(schema=RAW_SCHEMA))]
        self._processes: dict[int, int] = {}
        self.count = 0

    def numbered(self, processes: pl.Series, numbers: pl.Series) -> pl.Series:
        """Return ids that no two processes share; ids of the first process stay, and no id is null."""
        for process in processes.drop_nulls().unique(maintain_order=True):
            self._processes.setdefault(process, len(self._processes))
        index = processes.replace_strict(self._processes, default=0, return_dtype=pl.Int64).fill_null(0)
        known = pl.select(pl.when(~numbers.is_in(_NO_ID)).then(numbers)).to_series()
        return known + index * _PER_PROCESS

    @property
    def processes(self) -> int:
        """Return the number of processes whose ids were numbered."""
        return len(self._processes)

    def add_calls(self, frame: pl.DataFrame) -> None:
        """Add host events: kind, name, pid, tid, start_ns, end_ns and arguments of their kinds."""
        if (frame := self._spans(frame)).height:
            self._parts.append(sorted_calls(frame))  # type: ignore[arg-type]

    def add_activities(self, frame: pl.DataFrame) -> None:
        """Add device activities: the same columns, device, and arguments of activities."""
        if (frame := self._spans(frame)).height:
            texts = ("device", "grid", "block", "occupancy_percent")
            known = (pl.col(text) if text in frame.columns else pl.lit(None).alias(text) for text in texts)
            self._parts.append(sorted_activities(frame.with_columns(known).cast(dict.fromkeys(texts, pl.String))))  # type: ignore[arg-type]

    def add_waits(self, frame: pl.DataFrame) -> None:
        """Add synchronizations on devices (kind ``sync``): the columns of activities, and wait_on_stream."""
        if (frame := self._spans(frame)).height:
            self._add(rest=frame.rename({"device": "device_label"}))

    def name_threads(self, frame: pl.DataFrame) -> None:
        """Add names of threads: pid, tid, label."""
        kind, name = pl.lit("metadata", KIND).alias("kind"), pl.lit("thread_name").alias("name")
        self._add(rest=frame.select(pl.lit(0).alias("row"), kind, name, "pid", "tid", "label"))

    def skip(self, reason: str, count: int) -> None:
        """Count events that are left out."""
        if count:
            self._add(skipped=pl.DataFrame({"reason": [reason], "count": [count]}))
            self.count += count

    def joined(self) -> Classified:
        """Return all events."""
        return joined(self._parts)

    def _add(self, **frames: pl.DataFrame) -> None:
        """Add frames by their name in `Classified`; a column that one lacks is null."""
        nothing = self._parts[0]
        parts = {name: getattr(nothing, name) for name in frames}
        typed = {name: like(part, frames[name]).cast(part.schema) for name, part in parts.items()}
        self._parts.append(replace(nothing, **typed))

    def _spans(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the events that have a start and an end not before it, with rows; count the others by reason."""
        start, end = pl.col("start_ns"), pl.col("end_ns")
        frame = frame.with_columns(pl.when(time.is_between(-_LIMIT_NS, _LIMIT_NS)).then(time) for time in (start, end))
        self.skip("no-time", frame.select(start.is_null().sum()).item())
        self.skip("unmatched", frame.select((start.is_not_null() & end.is_null()).sum()).item())
        self.skip("negative-duration", frame.select((end < start).sum()).item())
        words = [name for name in ("name", "pid", "tid") if name in frame.columns]
        spans = frame.filter(end >= start).with_columns(
            (end - start).alias("duration_ns"),
            pl.col("kind").cast(KIND),
            pl.col(words).cast(pl.String).fill_null("").cast(pl.Categorical),
        )
        spans = spans.drop("end_ns").with_row_index("row", self.count)
        if spans.height:
            self._parts.append(
                sorted_tracks(spans.group_by("pid", "tid").agg(pl.col("row").min()).select("row", "pid", "tid"))
            )
        self.count += spans.height
        return spans


def labelled(block: pl.DataFrame, *tables: tuple[pl.DataFrame, str | list[str]]) -> pl.DataFrame:
    """Add the columns of each table (table, key) to the rows with its key, in their order."""
    for table, key in tables:
        block = block.join(table, on=key, how="left", maintain_order="left")
    return block


def sizes_of(axes: Sequence[str]) -> list[pl.Expr]:
    """Return grid and block as Kineto writes them, "[1, 2, 3]", of a column for each axis."""
    return [pl.format("[{}, {}, {}]", *(f"{kind}{axis}" for axis in axes)).alias(kind) for kind in ("grid", "block")]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
