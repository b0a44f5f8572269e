"""Prepare host events for all analyses: thread, end, and the results of rules on names.

A trace has a million host events and a thousand names, so rules are applied once per name; every event has the number
of its name for looking up the results.
"""

from dataclasses import dataclass

import polars as pl
from polars import selectors as cs

from trace_analyzer.analysis import Value
from trace_analyzer.catalog.event_names import (
    BLOCKING,
    GUARDS,
    HOST_WAIT,
    LOOKUP,
    PHASES,
    code_rules,
    host_work,
    is_annotation,
    named_code,
)
from trace_analyzer.frames.lookups import factorize, gather
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.thresholds import HOST_WAIT_NS
from trace_analyzer.vocabulary import NAMED_WORK

STREAM_WAITS = "StreamWaitEvent"
"""Substring of names of calls that make a stream wait for an event."""
CALLS = ("runtime", "driver")
"""Kinds of events that are calls of the device's API."""


@dataclass(frozen=True)
class Host:
    """Hold the host events of a trace, and their names.

    ``events`` has one row per host event, in order of event_id: event_id, kind and name, both categorical, thread_id,
    process_id, start_ns, end_ns, duration_ns, name_id, ``marks`` (whether it only marks other events) and ``work``,
    from rules, null for most. ``calls`` are those of `CALLS`, with their correlation. ``names`` has one row per kind
    and name, in order of name_id, with ``text``, the name as a categorical, and further results of rules: phase and
    source, null for most, and ``library``, whether it is library code.
    """

    events: pl.DataFrame
    calls: pl.DataFrame
    names: pl.DataFrame

    def each(self, of_name: pl.Expr, ids: pl.Series | None = None) -> pl.Series:
        """Evaluate an expression of kind and name for each event, or for the events ``ids``."""
        name_ids = self.events.get_column("name_id")
        return gather(self.names.select(of_name).to_series(), name_ids if ids is None else name_ids[ids])

    def by_name(self, column: str, ids: pl.Series) -> pl.Series:
        """Look up a column of ``names`` for events."""
        return self.names.get_column(column)[self.events.get_column("name_id")[ids]]

    def texts(self, ids: pl.Series) -> pl.Series:
        """Return the names of events, categorical."""
        return self.by_name("text", ids)

    def those(self, condition: pl.Expr, *columns: str) -> pl.DataFrame:
        """Return the events whose kind and name meet a condition, with these columns, or all."""
        events = self.events.select(columns) if columns else self.events
        return events.filter(self.each(condition)).with_columns(
            cs.by_name("kind", "name", require_all=False).cast(pl.String)
        )

    def calls_of(self, condition: pl.Expr) -> pl.DataFrame:
        """Return the calls whose name meets a condition."""
        return self.calls.filter(gather(self.names.select(condition).to_series(), self.calls.get_column("name_id")))


def host_of(trace: Trace) -> Host:
    """Return the host events of a trace with the columns that all analyses need."""
    rows = trace.host_events
    name_ids, names = _names(rows)
    process = trace.threads.get_column("process_id")[rows.get_column("thread_id").cast(pl.UInt32)]
    events = rows.select(
        "event_id",
        "kind",
        "name",
        "thread_id",
        process.alias("process_id"),
        "start_ns",
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
        "duration_ns",
        name_ids.alias("name_id"),
        *(gather(names.get_column(column), name_ids) for column in _NAME_COLUMNS),
    )
    too_short = (pl.col("work") == HOST_WAIT) & (pl.col("duration_ns") < HOST_WAIT_NS)
    events = events.with_columns(pl.when(~too_short.fill_null(False)).then("work").alias("work"))
    is_call = gather(names.get_column("kind").is_in(CALLS), name_ids)
    calls = events.with_columns(rows.get_column("correlation")).filter(is_call)
    return Host(events, calls, names)


_NAME_COLUMNS = ("work", "marks")
_WORK = pl.Enum((*NAMED_WORK, BLOCKING, GUARDS, LOOKUP))


def _names(rows: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """Assign numbers to pairs of kind and name; return them with the results of rules on each pair."""
    key = ["kind", "name"]
    ids, firsts = factorize(*rows.select(key))
    names = rows.select(key)[firsts].cast(pl.String).with_row_index("name_id")
    return ids, (
        names.join(host_work(names), on=key, how="left", maintain_order="left")
        .join(named_code(names), on=key, how="left", maintain_order="left")
        .with_columns(
            pl.col("work").cast(_WORK),
            pl.col("phase").cast(pl.Enum(PHASES)),
            pl.col("source").cast(pl.Enum(list(dict.fromkeys(rule.name for rule in code_rules("sources"))))),
            is_annotation().alias("marks"),
            pl.col("name").cast(pl.Categorical).alias("text"),
        )
    )


ANALYSES = (Value("host", host_of),)
