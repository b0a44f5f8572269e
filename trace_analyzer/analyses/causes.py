"""Explain why a device idled: every instant of every gap gets one cause (docs/definitions.md has the rules).

A gap is cut at five instants. With l the launch of the activity that ends it::

    gap start ──host──▶ l.start ──call──▶ l.end ──latency──▶ + L ──device──▶ gap end

Once another linked activity of the device is queued, the rest is device time. Host time is then cut
where the threads that could have launched sooner did something else, and each piece takes its cause.
"""

from collections.abc import Collection

import polars as pl

from trace_analyzer import metrics, thresholds
from trace_analyzer.analyses.host import STREAM_WAITS, Host
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.catalog.host_work import BLOCKING, CAPTURE, HOST_WAIT
from trace_analyzer.frames.intervals import (
    coalesce,
    count_until,
    innermost,
    sort_spans,
    split_by,
    union,
    with_covered,
)
from trace_analyzer.frames.lookups import inverse_index, lookup, over_group, scatter, starts_group
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.schema import DEVICE, END, GAP, START, STR, U32, Column, Table
from trace_analyzer.vocabulary import EARLIER_WORK, INNERMOST_WORK, NAMED_WORK, WITHHELD

IDLE = Table(
    "idle",
    "The idle time of every gap, cut into intervals with one cause each.",
    (
        GAP,
        DEVICE,
        START,
        END,
        Column("cause", STR, "Why the device idled."),
        Column("event_id", U32, "The host event that was innermost then, where the cause is the host's."),
        Column("host_event", STR, "Name of that event."),
    ),
)

# Kind of the innermost host event -> the cause that it stands for where no work is named.
_INNERMOST_WORK = {"python": "python", "operator": "dispatch", "runtime": "runtime-call", "driver": "runtime-call"}
_RANKS = {work: rank for rank, work in enumerate((*NAMED_WORK, *INNERMOST_WORK))}

_DEVICE, _PROCESS, _THREAD = ["device"], ["process_id"], ["thread_id"]
_ROLES = ("thread_id", "previous_thread", "main_thread")
"""Threads that could have launched sooner, in the order in which they are asked what they did."""
_NO_ROW = pl.lit(None, dtype=pl.UInt32)
_NO_THREAD = pl.lit(None, dtype=pl.Int32).alias("named_by")
_IDLE_COLUMNS = [*(column for column in IDLE.schema if column != "host_event"), "named_by"]
"""Columns of idle time by cause: those of table `idle` but names, with the thread whose innermost events name the cause, where
that is not a single event, event_id."""


def idle_causes(
    stretches: pl.DataFrame,
    late: pl.DataFrame,
    in_calls: pl.DataFrame,
    on_device: pl.DataFrame,
    pauses: pl.DataFrame,
) -> pl.DataFrame:
    """Cut the gaps into intervals with one cause each, in order: table `idle` and ``named_by``, causes categorical.

    ``stretches`` come from `stretches_of` and `earlier_work.with_earlier_work`, ``late`` from `host_pieces`,
    ``in_calls`` from `call_pieces`, ``on_device`` from `device_pieces`, and ``pauses`` from `recording_pauses`. The
    intervals of a gap add up to it exactly.
    """
    rest = stretches.filter(pl.col("cause").is_in(["launch-latency", "unlinked", EARLIER_WORK]))
    return _with_pauses(sort_spans(pl.concat([late, *map(_idle, (in_calls, on_device, rest))]), _DEVICE), pauses)


def _idle(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return pieces with their cause: table `idle` and ``named_by``; thread_id is null where they name none."""
    named = pieces if "named_by" in pieces.columns else pieces.with_columns(_NO_THREAD)
    return named.select(_IDLE_COLUMNS).cast({"cause": pl.Categorical})


def with_events(idle: pl.DataFrame, innermost_events: pl.DataFrame, host: Host) -> pl.DataFrame:
    """Return table `idle`, with categorical texts: ``idle`` cut where another of `host_pieces`' events is the innermost."""
    events = innermost_events.rename({"thread_id": "named_by"})
    named = split_by(idle.rename({"event_id": "known_id"}), events, ["named_by"], ["event_id"])
    ids = named.select(pl.coalesce("known_id", "event_id").alias("event_id")).to_series()
    return named.with_columns(ids, host.texts(ids).alias("host_event")).select(list(IDLE.schema))


def without_causes(idle: pl.DataFrame, devices: Collection[int]) -> pl.DataFrame:
    """Suppress the causes of some devices in ``idle``: all but those that say that nothing is known."""
    return idle.with_columns(causes_but(devices), pl.when(~_hidden(devices)).then(pl.col("event_id", "named_by")))


def causes_but(devices: Collection[int]) -> pl.Expr:
    """Return column ``cause`` with those of some devices suppressed."""
    return pl.when(_hidden(devices)).then(pl.lit(WITHHELD, dtype=pl.Categorical)).otherwise("cause").alias("cause")


def _hidden(devices: Collection[int]) -> pl.Expr:
    return pl.col("device").is_in(list(devices)) & ~pl.col("cause").is_in(["unlinked", "untraced"])


def runtime_calls(host: Host, activities: pl.DataFrame) -> pl.DataFrame:
    """Return runtime and driver calls with their process, whether they block, and the work that they are.

    A synchronize blocks, and so does a copy call that outlasts its own copy (work ``blocking-copy``). Returns
    launch_id, thread_id, process_id, call_start_ns, call_end_ns, blocks, work.
    """
    own_copies = (
        activities.select("kind", "launch_id", "start_ns", "duration_ns")
        .filter(pl.col("kind") == "memcpy", pl.col("launch_id").is_not_null())
        .group_by("launch_id")
        .agg((pl.col("start_ns") + pl.col("duration_ns")).max().alias("copied_ns"))
    )
    calls = host.calls.rename({"event_id": "launch_id"})
    return (
        calls.hstack(lookup(own_copies, calls, "launch_id"))
        .with_columns((pl.col("copied_ns") < pl.col("end_ns")).fill_null(False).alias("blocking_copy"))
        .select(
            "launch_id",
            "thread_id",
            "process_id",
            pl.col("start_ns").alias("call_start_ns"),
            pl.col("end_ns").alias("call_end_ns"),
            ((pl.col("work") == BLOCKING).fill_null(False) | pl.col("blocking_copy")).alias("blocks"),
            pl.when("blocking_copy")
            .then(pl.lit("blocking-copy", dtype=host.events.schema["work"]))
            .when(pl.col("work") != BLOCKING)
            .then("work")
            .alias("work"),
        )
    )


def _with_launch(gaps: pl.DataFrame, activities: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Add to gaps their launch, when another activity was queued, and how long a blocking call had waited."""
    launched = activities.select(
        "launch_id",
        "process_id",
        pl.col("launch_thread").alias("thread_id"),
        pl.col("launch_start_ns").alias("call_start_ns"),
        pl.col("launch_end_ns").alias("call_end_ns"),
    )
    frame = gaps.hstack(launched[gaps.get_column("activity_id")]).with_columns(_queued_at(gaps, activities))
    return frame.hstack(lookup(_waited(frame, activities, calls), frame, "gap_id"))


def _queued_at(gaps: pl.DataFrame, activities: pl.DataFrame) -> pl.Series:
    """Return queued_ns: for each gap the first instant at which another linked activity was queued.

    Nothing starts inside a gap, so these are the activities from its end on, without the one that ends it.
    """
    queued = pl.when(pl.col("launch_end_ns") <= pl.col("start_ns")).then("launch_end_ns").fill_null(_NEVER)
    gap_ids = scatter(gaps.get_column("activity_id"), gaps.get_column("gap_id"), activities.height)
    # Of those that start together, the one that ends the gap comes first.
    place = 2 * pl.col("start_ns") + gap_ids.is_null()
    ordered = sort_spans(
        activities.select("device", gap_ids, queued.alias("queued_ns"), place.alias("start_ns")),
        _DEVICE,
    )
    ordered = ordered.with_columns(over_group(ordered, "device", pl.col("queued_ns").cum_min(reverse=True).shift(-1)))
    ends_gap = ordered.drop_nulls("gap_id")
    return scatter(ends_gap.get_column("gap_id"), ends_gap.get_column("queued_ns"), gaps.height)


_NEVER = (1 << 63) - 1


def _waited(frame: pl.DataFrame, activities: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return gap_id, waited_ns, blocker_id: how long the device was busy while the blocking call waited.

    Of several calls in progress at the gap's start, the one that began first. On one thread that is the
    last to start, once calls within other blocking calls are left out.
    """
    blocking = (
        calls.filter("blocks")
        .select(
            "process_id",
            "thread_id",
            pl.col("call_start_ns").alias("block_start_ns"),
            pl.col("call_end_ns").alias("block_end_ns"),
            pl.col("launch_id").alias("blocker_id"),
        )
        .sort("thread_id", "block_start_ns", "block_end_ns", descending=[False, False, True])
        .filter((pl.col("block_end_ns") > pl.col("block_end_ns").cum_max().shift(1).over("thread_id")).fill_null(True))
    )
    blocked = (
        frame.drop_nulls("process_id")
        .select("gap_id", "device", "start_ns", "process_id")
        .join(blocking.select("process_id", "thread_id").unique(), on="process_id", how="inner")
        .sort("start_ns")
        .join_asof(
            blocking.sort("block_start_ns"),
            left_on="start_ns",
            right_on="block_start_ns",
            by=["process_id", "thread_id"],
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .filter(pl.col("block_end_ns") > pl.col("start_ns"))
        .sort("gap_id", "block_start_ns", "blocker_id")
        .unique("gap_id", keep="first", maintain_order=True)
    )
    spans = activities.select("device", "start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"))
    busy = union(spans, _DEVICE)
    return with_covered(blocked, busy, _DEVICE, "waited_ns", start="block_start_ns", end="start_ns").select(
        "gap_id", "waited_ns", "blocker_id"
    )


def stretches_of(activities: pl.DataFrame, gaps: pl.DataFrame, calls: pl.DataFrame, latency_ns: int) -> pl.DataFrame:
    """Cut gaps into host, call, launch-latency and device segments, with their launch, the first with its blocker.

    ``activities`` are linked device events, ``gaps`` come from `idle_gaps`, ``calls`` from `runtime_calls` and
    ``latency_ns`` from `launch_latency_ns`.
    """
    gaps = _with_launch(gaps, activities, calls)
    until = pl.min_horizontal("end_ns", pl.col("queued_ns").fill_null(_NEVER)).clip(lower_bound=pl.col("start_ns"))
    cuts = gaps.with_columns(until.alias("queue_ns"), _NO_ROW.alias("event_id")).with_columns(
        pl.col("call_start_ns").clip("start_ns", "queue_ns").alias("host_end"),
        pl.col("call_end_ns").clip("start_ns", "queue_ns").alias("call_end"),
        (pl.col("call_end_ns") + latency_ns).clip("start_ns", "queue_ns").alias("latency_end"),
    )
    linked, unlinked = cuts.drop_nulls("launch_id"), cuts.filter(pl.col("launch_id").is_null())
    shared = ["gap_id", "device", "launch_id", "thread_id", "process_id", "waited_ns", "blocker_id", "event_id"]

    def stretch(of: pl.DataFrame, cause: str, start: str, end: str) -> pl.DataFrame:
        return of.filter(pl.col(start) < pl.col(end)).select(
            *shared, pl.col(start).alias("start_ns"), pl.col(end).alias("end_ns"), pl.lit(cause).alias("cause")
        )

    return pl.concat(
        [
            stretch(linked, "host", "start_ns", "host_end"),
            stretch(linked, "call", "host_end", "call_end"),
            stretch(linked, "launch-latency", "call_end", "latency_end"),
            stretch(linked, "device", "latency_end", "end_ns"),
            stretch(unlinked, "unlinked", "start_ns", "end_ns"),
        ]
    )


def _host_work_rows(host: Host, calls: pl.DataFrame) -> pl.DataFrame:
    """Return host events with the work that a rule, or their own blocking, names."""
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


def host_pieces(
    trace: Trace,
    host: Host,
    stretches: pl.DataFrame,
    launches: pl.DataFrame,
    calls: pl.DataFrame,
    captures: pl.DataFrame,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cut and name the host's segments among ``stretches``, as rows of `_IDLE_COLUMNS` in any order.

    Synchronization, named work, then what the threads did innermost: the second frame has thread_id, start_ns, end_ns and
    event_id of that. ``captures`` come from `graph_capture.captures`.
    """
    stretches = stretches.filter(pl.col("cause") == "host")
    work = _host_work_rows(host, calls)
    waited_until = (pl.col("start_ns") + pl.col("waited_ns").fill_null(0)).clip(upper_bound=pl.col("end_ns"))
    synchronized = stretches.with_columns(
        waited_until.alias("end_ns"), pl.lit("synchronization").alias("cause"), pl.col("blocker_id").alias("event_id")
    ).filter(pl.col("start_ns") < pl.col("end_ns"))
    rest = stretches.with_columns(waited_until.alias("start_ns")).filter(pl.col("start_ns") < pl.col("end_ns"))
    rest = _with_threads(trace, host, rest, launches)
    threads = pl.concat([rest.get_column(role) for role in _ROLES]).drop_nulls().unique()
    on_threads = pl.col("thread_id").is_in(threads.implode()) & (pl.col("kind") != "overhead")
    near = _near(work.filter(on_threads), rest)
    events = _innermost_events(near)
    doing = _overlaid(coalesce(events.drop("event_id"), _THREAD, "rank"), near, _THREAD)
    unknown = pl.lit(None, dtype=_RANK).alias("rank"), _NO_THREAD
    pieces = rest.select("gap_id", "device", "start_ns", "end_ns", "event_id", "process_id", *_ROLES, *unknown)
    for role in _ROLES:
        pieces = _filled(pieces, doing.rename({"thread_id": role}), role)
        doing = doing.filter(pl.col("rank") != _RANKS[HOST_WAIT])  # another thread's wait may be for this one
    anywhere = pl.lit(0).alias("anywhere")
    overhead = work.filter(pl.col("kind") == "overhead").with_columns(anywhere)
    pieces = _overlaid(pieces, captures.with_columns(pl.lit(CAPTURE).alias("work")), _PROCESS)
    pieces = _overlaid(pieces.drop(*_ROLES, "process_id").with_columns(anywhere), overhead, ["anywhere"])
    names = pl.Series("cause", [*_RANKS, "host-unknown"], dtype=pl.Categorical)
    named = pieces.with_columns(names.gather(pieces.get_column("rank").fill_null(len(_RANKS))))
    return pl.concat([_idle(synchronized), _idle(named)]), events.drop("rank")


_RANK = pl.Int8


def _with_threads(trace: Trace, host: Host, stretches: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Add the thread of the process's previous launch, and its main thread where that is another."""
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


def _near(work: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """Return the host events that overlap a segment or lie near one.

    So near that what is left out can neither be in progress there nor tell whether an operator's is long.
    """
    margin = thresholds.CPU_OPERATOR_NS + 1
    anywhere = pl.lit(0).alias("anywhere")
    around = union(stretches.select(pl.col("start_ns") - margin, pl.col("end_ns") + margin, anywhere), ["anywhere"])
    begun = count_until(around.get_column("start_ns"), work.get_column("end_ns"))
    over = count_until(around.get_column("end_ns"), work.get_column("start_ns") - 1)
    return work.filter(begun > over)


def main_threads(trace: Trace, host: Host) -> pl.DataFrame:
    """Return process_id, main_thread: the thread numbered like its process, else the one with most events."""
    # Events come thread by thread.
    runs = host.events.get_column("thread_id").rle().struct.unnest()
    events = runs.group_by(pl.col("value").alias("thread_id")).agg(pl.col("len").sum())
    return (
        trace.threads.join(events, on="thread_id", how="inner")
        .sort((pl.col("pid") == pl.col("tid")), "len", descending=True)
        .unique("process_id", keep="first", maintain_order=True)
        .select("process_id", pl.col("thread_id").alias("main_thread"))
    )


def _innermost_events(work: pl.DataFrame) -> pl.DataFrame:
    """Return thread_id, start_ns, end_ns, event_id, rank: each thread's innermost work and the cause it stands for.

    An annotation that names no work says nothing: what is around it is still going on.
    """
    tells = pl.col("kind").is_in(list(_INNERMOST_WORK)) & ~pl.col("marks")
    telling = work.filter(tells | pl.col("work").is_not_null())
    inner = innermost(telling.with_row_index("row"), _THREAD, "row")
    kinds = {kind: _RANKS[cause] for kind, cause in _INNERMOST_WORK.items()}
    named = telling.select(
        "event_id",
        pl.col("kind").replace_strict(kinds, default=None, return_dtype=_RANK).alias("rank"),
        (pl.col("kind") == "operator").alias("is_operator"),
    )[inner.get_column("row")]
    long = pl.col("is_operator") & (pl.col("end_ns") - pl.col("start_ns") > thresholds.CPU_OPERATOR_NS)
    rank = pl.when(long).then(pl.lit(_RANKS["cpu-operator"], dtype=_RANK)).otherwise("rank").alias("rank")
    return inner.drop("row").hstack(named).with_columns(rank).drop("is_operator")


def _overlaid(pieces: pl.DataFrame, work: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Cut pieces where named work of their track begins and ends, taking the rank of that which comes first.

    Named work counts through everything nested in it.
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
    """Cut pieces without a rank by what the thread in that role did, and rank them by it."""
    is_open = pl.col("rank").is_null() & pl.col(role).is_not_null()
    open_, done = pieces.filter(is_open), pieces.filter(~is_open)
    if open_.is_empty():
        return pieces
    ranked = split_by(open_.drop("rank"), doing, [role], ["rank"]).with_columns(pl.col(role).alias("named_by"))
    return pl.concat([done, ranked.select(done.columns)])


def call_pieces(stretches: pl.DataFrame, calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Name what the launch call itself did: a blocking copy, an allocation, loading code, or launching."""
    stretches = stretches.filter(pl.col("cause") == "call")
    length = pl.col("call_end_ns") - pl.col("call_start_ns")
    typical = pl.lit(launches.get_column("duration_ns").median(), dtype=pl.Float64)
    slow = (length > thresholds.SLOW_LAUNCH_NS) & (length > thresholds.SLOW_LAUNCH_MEDIANS * typical)
    return (
        stretches.drop("cause")
        .hstack(lookup(calls.select("launch_id", "call_start_ns", "call_end_ns", "work"), stretches, "launch_id"))
        .with_columns(
            pl.when(pl.col("work").is_in(["blocking-copy", "allocation", "compilation"]))
            .then(pl.col("work").cast(pl.String))
            .when(slow)
            .then(pl.lit("compilation"))
            .otherwise(pl.lit("launch-latency"))
            .alias("cause"),
            pl.col("launch_id").alias("event_id"),
        )
    )


def device_pieces(stretches: pl.DataFrame, trace: Trace, host: Host, activities: pl.DataFrame) -> pl.DataFrame:
    """Name device time: short is inter-kernel latency; long is a wait where there is something to wait for."""
    stretches = stretches.filter(pl.col("cause") == "device")
    communicates = activities.get_column("bucket").eq("communication").any()
    first_wait = first_event_wait_ns(host, trace.sync_events)
    wait = pl.lit(communicates) | (pl.lit(first_wait) < pl.col("end_ns")).fill_null(False)
    return stretches.with_columns(
        pl.when(pl.col("end_ns") - pl.col("start_ns") < thresholds.DEVICE_GAP_NS)
        .then(pl.lit("device-gap"))
        .when(wait)
        .then(pl.lit("device-wait"))
        .otherwise(pl.lit("unexplained"))
        .alias("cause")
    )


def first_event_wait_ns(host: Host, sync_events: pl.DataFrame) -> int | None:
    """Return when a stream was first made to wait for an event recorded in the trace; None where none was."""
    recorded, waited = (
        host.calls_of(pl.col("name").str.contains(word)).get_column("start_ns")
        for word in ("EventRecord", STREAM_WAITS)
    )
    rows = sync_events.filter(pl.col("name").str.contains("(?i)stream wait event")).get_column("start_ns")
    since = recorded.min()
    waits = waited.clear() if since is None else waited.filter(waited > since)
    first: int | None = pl.concat([waits, rows]).min()  # type: ignore[assignment]
    return first


def _with_pauses(pieces: pl.DataFrame, pauses: pl.DataFrame) -> pl.DataFrame:
    """Cut pieces, in order, at recording pauses, which take over everything but unlinked time."""
    if pauses.is_empty():
        return pieces
    anywhere = pl.lit(0).alias("anywhere")
    is_linked = pl.col("cause") != "unlinked"
    windows = pauses.with_columns(anywhere, pl.lit(True).alias("paused"))
    cut = split_by(pieces.filter(is_linked).with_columns(anywhere), windows, ["anywhere"], ["paused"]).with_columns(
        pl.when("paused").then(pl.lit("untraced", dtype=pl.Categorical)).otherwise("cause").alias("cause"),
        pl.when(pl.col("paused").is_null()).then(pl.col("event_id", "named_by")),
    )
    unlinked, cut = pieces.filter(~is_linked), cut.select(pieces.columns)
    return sort_spans(pl.concat([unlinked, cut]), _DEVICE) if unlinked.height else cut


ANALYSES = (
    Value("runtime_calls", runtime_calls, {"activities": "linked_events"}),
    Value(
        "unnamed_segments",
        stretches_of,
        {
            "activities": "linked_events",
            "gaps": "idle_gaps",
            "calls": "runtime_calls",
            "latency_ns": "launch_latency_ns",
        },
    ),
    Value(
        "host_segments",
        host_pieces,
        {
            "stretches": "gap_segments",
            "launches": "unmasked_launches",
            "calls": "runtime_calls",
            "captures": "graph_captures",
        },
    ),
    Value("late_segments", lambda host_segments: host_segments[0]),
    Value("innermost_events", lambda host_segments: host_segments[1]),
    Value(
        "call_segments",
        call_pieces,
        {"stretches": "gap_segments", "calls": "runtime_calls", "launches": "unmasked_launches"},
    ),
    Value("device_segments", device_pieces, {"stretches": "gap_segments"}),
    Value(
        "idle_causes",
        idle_causes,
        {
            "stretches": "gap_segments",
            "late": "late_segments",
            "in_calls": "call_segments",
            "on_device": "device_segments",
            "pauses": "recording_pauses",
        },
        needs=(metrics.CAUSES_OF_IDLE,),
        hide=without_causes,
    ),
    Analysis(IDLE, with_events, {"idle": "idle_causes"}),
)
