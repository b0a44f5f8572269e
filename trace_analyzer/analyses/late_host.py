"""Determine the host's work while a device waited for a late launch.

The threads that could have launched earlier are examined in turn: synchronization, then work that a rule names, then
the innermost event.
"""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.causes import with_cause
from trace_analyzer.analyses.host import Host
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.event_names import CAPTURE, HOST_WAIT
from trace_analyzer.frames.intervals import coalesce, count_until, innermost, sort_spans, split_by, union
from trace_analyzer.frames.lookups import inverse_index, lookup, starts_group
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.vocabulary import INNERMOST_WORK, NAMED_WORK

# Kind of the innermost host event -> its cause where no work is named.
_INNERMOST_WORK = {"python": "python", "operator": "dispatch", "runtime": "runtime-call", "driver": "runtime-call"}
_RANKS = {work: rank for rank, work in enumerate((*NAMED_WORK, *INNERMOST_WORK))}
_RANK = pl.Int8

_PROCESS, _THREAD = ["process_id"], ["thread_id"]
_ROLES = ("thread_id", "previous_thread", "main_thread")
"""Threads that could have launched earlier, in the order of their examination."""
_NO_THREAD = pl.lit(None, dtype=pl.Int32).alias("named_by")


def host_pieces(
    trace: Trace,
    host: Host,
    gap_segments: pl.DataFrame,
    unmasked_launches: pl.DataFrame,
    runtime_calls: pl.DataFrame,
    graph_captures: pl.DataFrame,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cut the host's segments among ``gap_segments``, in any order, and add their cause (`causes.with_cause`).

    Causes are synchronization, then named work, then the threads' innermost events; the second frame has thread_id,
    start_ns, end_ns and event_id of the latter.
    """
    gap_segments = gap_segments.filter(pl.col("cause") == "host")
    work = _host_work_rows(host, runtime_calls)
    waited_until = (pl.col("start_ns") + pl.col("waited_ns").fill_null(0)).clip(upper_bound=pl.col("end_ns"))
    synchronized = gap_segments.with_columns(
        waited_until.alias("end_ns"), pl.lit("synchronization").alias("cause"), pl.col("blocker_id").alias("event_id")
    ).filter(pl.col("start_ns") < pl.col("end_ns"))
    rest = gap_segments.with_columns(waited_until.alias("start_ns")).filter(pl.col("start_ns") < pl.col("end_ns"))
    rest = _with_threads(trace, host, rest, unmasked_launches)
    threads = pl.concat([rest.get_column(role) for role in _ROLES]).drop_nulls().unique()
    on_threads = pl.col("thread_id").is_in(threads.implode()) & (pl.col("kind") != "overhead")
    near = _near(work.filter(on_threads), rest)
    events = _innermost_events(near)
    doing = _overlaid(coalesce(events.drop("event_id"), _THREAD, "rank"), near, _THREAD)
    unknown = pl.lit(None, dtype=_RANK).alias("rank"), _NO_THREAD
    pieces = rest.select("gap_id", "device", "start_ns", "end_ns", "event_id", "process_id", *_ROLES, *unknown)
    for role in _ROLES:
        pieces = _filled(pieces, doing.rename({"thread_id": role}), role)
        doing = doing.filter(pl.col("rank") != _RANKS[HOST_WAIT])  # another thread may be waiting for this one
    anywhere = pl.lit(0).alias("anywhere")
    overhead = work.filter(pl.col("kind") == "overhead").with_columns(anywhere)
    pieces = _overlaid(pieces, graph_captures.with_columns(pl.lit(CAPTURE).alias("work")), _PROCESS)
    pieces = _overlaid(pieces.drop(*_ROLES, "process_id").with_columns(anywhere), overhead, ["anywhere"])
    names = pl.Series("cause", [*_RANKS, "host-unknown"], dtype=pl.Categorical)
    named = pieces.with_columns(names.gather(pieces.get_column("rank").fill_null(len(_RANKS))))
    return pl.concat([with_cause(synchronized), with_cause(named)]), events.drop("rank")


def _host_work_rows(host: Host, calls: pl.DataFrame) -> pl.DataFrame:
    """Return host events with their work, from a rule or from their own blocking."""
    copies = inverse_index(calls.filter(pl.col("work") == "blocking-copy").get_column("launch_id"), host.events.height)
    work = pl.when(copies.is_not_null()).then(pl.lit("blocking-copy")).otherwise("work")
    return host.events.select(
        "event_id",
        "kind",
        "thread_id",
        "start_ns",
        "end_ns",
        "marks",
        work.cast(host.events.schema["work"]).alias("work"),
    )


def _with_threads(trace: Trace, host: Host, stretches: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Add the thread of the process's previous launch, and its main thread if that differs."""
    process = trace.threads.get_column("process_id")[launches.get_column("thread_id")]
    previous = sort_spans(launches.select("launch_id", "thread_id", "start_ns", process), _PROCESS).select(
        "launch_id", pl.when(~starts_group(*_PROCESS)).then(pl.col("thread_id").shift(1)).alias("previous_thread")
    )
    own, before, main = (pl.col(role) for role in _ROLES)
    return (
        stretches.hstack(lookup(previous, stretches, "launch_id"))
        .join(main_threads(trace, host), on="process_id", how="left", maintain_order="left")
        .with_columns(
            pl.when(before.ne_missing(own)).then(before),
            pl.when(main.ne_missing(own) & main.ne_missing(before)).then(main),
        )
    )


def main_threads(trace: Trace, host: Host) -> pl.DataFrame:
    """Return process_id, main_thread: the thread with the process's number, else the one with most events."""
    # Events are sorted by thread.
    runs = host.events.get_column("thread_id").rle().struct.unnest()
    events = runs.group_by(pl.col("value").alias("thread_id")).agg(pl.col("len").sum())
    return (
        trace.threads.join(events, on="thread_id", how="inner")
        .sort((pl.col("pid") == pl.col("tid")), "len", descending=True)
        .unique("process_id", keep="first", maintain_order=True)
        .select("process_id", pl.col("thread_id").alias("main_thread"))
    )


def _near(work: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """Return the host events that overlap a segment or lie near one.

    Events farther away can neither be in progress there nor affect whether an operator counts as long.
    """
    margin = thresholds.CPU_OPERATOR_NS + 1
    anywhere = pl.lit(0).alias("anywhere")
    around = union(stretches.select(pl.col("start_ns") - margin, pl.col("end_ns") + margin, anywhere), ["anywhere"])
    started = count_until(around.get_column("start_ns"), work.get_column("end_ns"))
    over = count_until(around.get_column("end_ns"), work.get_column("start_ns") - 1)
    return work.filter(started > over)


def _innermost_events(work: pl.DataFrame) -> pl.DataFrame:
    """Return thread_id, start_ns, end_ns, event_id, rank: each thread's innermost work and its cause.

    An annotation without named work is ignored: its enclosing event is still in progress.
    """
    is_relevant = pl.col("kind").is_in(list(_INNERMOST_WORK)) & ~pl.col("marks")
    relevant = work.filter(is_relevant | pl.col("work").is_not_null())
    inner = innermost(relevant.with_row_index("row"), _THREAD, "row")
    kinds = {kind: _RANKS[cause] for kind, cause in _INNERMOST_WORK.items()}
    named = relevant.select(
        "event_id",
        pl.col("kind").replace_strict(kinds, default=None, return_dtype=_RANK).alias("rank"),
        (pl.col("kind") == "operator").alias("is_operator"),
    )[inner.get_column("row")]
    long = pl.col("is_operator") & (pl.col("end_ns") - pl.col("start_ns") > thresholds.CPU_OPERATOR_NS)
    rank = pl.when(long).then(pl.lit(_RANKS["cpu-operator"], dtype=_RANK)).otherwise("rank").alias("rank")
    return inner.drop("row").hstack(named).with_columns(rank).drop("is_operator")


def _overlaid(pieces: pl.DataFrame, work: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Cut pieces at the begin and end of named work on their track, and take the rank of the work that comes first.

    Named work includes all events nested in it.
    """
    for name in NAMED_WORK:
        spans = work.filter(pl.col("work") == name)
        if spans.is_empty():
            continue
        covered = union(spans, by).with_columns(pl.lit(_RANKS[name], dtype=_RANK).alias("named_rank"))
        first = pl.min_horizontal("rank", "named_rank").alias("rank")
        pieces = split_by(pieces, covered, by, ["named_rank"]).with_columns(first).drop("named_rank")
    return pieces


def _filled(pieces: pl.DataFrame, doing: pl.DataFrame, role: str) -> pl.DataFrame:
    """Cut pieces without a rank by the work of the thread in that role, and rank them by it."""
    is_open = pl.col("rank").is_null() & pl.col(role).is_not_null()
    open_, done = pieces.filter(is_open), pieces.filter(~is_open)
    if open_.is_empty():
        return pieces
    ranked = split_by(open_.drop("rank"), doing, [role], ["rank"]).with_columns(pl.col(role).alias("named_by"))
    return pl.concat([done, ranked.select(done.columns)])


ANALYSES = (
    Value("host_segments", host_pieces),
    Value("late_segments", lambda host_segments: host_segments[0]),
    Value("innermost_events", lambda host_segments: host_segments[1]),
)
