"""Explain why a device idled: every instant of every gap gets one cause (docs/definitions.md defines the rules).

A gap is cut at the instants of its launch (`gap_segments`). Host time is further cut where the threads that could have
launched earlier change their work (`blame`), and each piece gets its cause.
"""

from collections.abc import Collection

import polars as pl

from trace_analyzer import schema, thresholds
from trace_analyzer.analyses.host import STREAM_WAITS, Host
from trace_analyzer.analysis import CAUSES_OF_IDLE, Analysis, Value
from trace_analyzer.catalog.event_names import BLOCKING, DATA_LOADING
from trace_analyzer.frames.intervals import END_NS, LENGTH_NS, clip, sort_spans, split_by, union, with_covered
from trace_analyzer.frames.lookups import lookup, over_group, scatter
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.vocabulary import EARLIER_WORK, TIME_SLICE, UNKNOWN_CAUSES, UNRECORDED, WITHHELD

# Cut each gap of a device at the instants of the launch that ends it.
#
# With l the launch of the activity that ends the gap, and L the typical latency of a launch::
#
#     gap start ──host──▶ l.start ──call──▶ l.end ──latency──▶ + L ──device──▶ gap end
#
# Once another linked activity of the device is queued, the rest of the gap is device time.

_DEVICE = ["device"]
_NO_ROW = pl.lit(None, dtype=pl.UInt32)
_NEVER = (1 << 63) - 1


def runtime_calls(host: Host, linked_events: pl.DataFrame) -> pl.DataFrame:
    """Return runtime and driver calls with their process, whether they block, and their work.

    A synchronize blocks, and so does a copy call that returns after its own copy ends (work ``blocking-copy``). Returns
    launch_id, thread_id, process_id, call_start_ns, call_end_ns, blocks, work.
    """
    own_copies = (
        linked_events.select("kind", "launch_id", "start_ns", "duration_ns")
        .filter(pl.col("kind") == "memcpy", pl.col("launch_id").is_not_null())
        .group_by("launch_id")
        .agg(END_NS.max().alias("copied_ns"))
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


def stretches_of(
    linked_events: pl.DataFrame, idle_gaps: pl.DataFrame, runtime_calls: pl.DataFrame, launch_latency_ns: int
) -> pl.DataFrame:
    """Cut gaps into host, call, launch-latency and device segments with their launch; host segments have their blocker."""
    idle_gaps = _with_launch(idle_gaps, linked_events, runtime_calls)
    until = pl.min_horizontal("end_ns", pl.col("queued_ns").fill_null(_NEVER)).clip(lower_bound=pl.col("start_ns"))
    cuts = idle_gaps.with_columns(until.alias("queue_ns"), _NO_ROW.alias("event_id")).with_columns(
        pl.col("call_start_ns").clip("start_ns", "queue_ns").alias("host_end"),
        pl.col("call_end_ns").clip("start_ns", "queue_ns").alias("call_end"),
        (pl.col("call_end_ns") + launch_latency_ns).clip("start_ns", "queue_ns").alias("latency_end"),
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


def _with_launch(gaps: pl.DataFrame, activities: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Add to gaps their launch, when another activity was queued, and how long a blocking call had waited."""
    launched = activities.select(
        "launch_id",
        "process_id",
        thread_id="launch_thread",
        call_start_ns="launch_start_ns",
        call_end_ns="launch_end_ns",
    )
    frame = gaps.hstack(launched[gaps.get_column("activity_id")]).with_columns(_queued_at(gaps, activities))
    return frame.hstack(lookup(_waited(frame, activities, calls), frame, "gap_id"))


def _queued_at(gaps: pl.DataFrame, activities: pl.DataFrame) -> pl.Series:
    """Return queued_ns: for each gap, the first instant at which another linked activity was queued.

    No activity starts inside a gap, so these are the activities from its end on, except the one that ends it.
    """
    queued = pl.when(pl.col("launch_end_ns") <= pl.col("start_ns")).then("launch_end_ns").fill_null(_NEVER)
    gap_ids = scatter(gaps.get_column("activity_id"), gaps.get_column("gap_id"), activities.height)
    # Of activities with equal starts, the one that ends the gap comes first.
    place = 2 * pl.col("start_ns") + gap_ids.is_null()
    ordered = sort_spans(
        activities.select("device", gap_ids, queued.alias("queued_ns"), place.alias("start_ns")), _DEVICE
    )
    ordered = ordered.with_columns(over_group(ordered, "device", pl.col("queued_ns").cum_min(reverse=True).shift(-1)))
    ends_gap = ordered.drop_nulls("gap_id")
    return scatter(ends_gap.get_column("gap_id"), ends_gap.get_column("queued_ns"), gaps.height)


def _waited(frame: pl.DataFrame, activities: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return gap_id, waited_ns, blocker_id: how long the device was busy during the blocking call.

    Of several calls in progress at the gap's start, the one that began first counts. On one thread, only the outermost
    of nested blocking calls is considered.
    """
    blocking = (
        calls.filter("blocks")
        .select(
            "process_id",
            "thread_id",
            block_start_ns="call_start_ns",
            block_end_ns="call_end_ns",
            blocker_id="launch_id",
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
    busy = union(activities.select("device", "start_ns", END_NS), _DEVICE)
    return with_covered(blocked, busy, _DEVICE, "waited_ns", start="block_start_ns", end="start_ns").select(
        "gap_id", "waited_ns", "blocker_id"
    )


IDLE = schema.Table(
    "idle",
    "The idle time of every gap, cut into intervals with one cause each.",
    schema.columns("""
        gap_id device start_ns end_ns
        cause str Why the device idled.
        event_id u32 The host event that was innermost then, where the cause is the host's.
        host_event str Name of that event.
    """),
)

NO_THREAD = pl.lit(None, dtype=pl.Int32).alias("named_by")
_IDLE_COLUMNS = [*(column for column in IDLE.schema if column != "host_event"), "named_by"]
"""Columns of idle time by cause: those of table `idle` without names, and the thread whose innermost events
determine the cause, where that is not the single event event_id."""


def idle_causes(
    gap_segments: pl.DataFrame,
    late_segments: pl.DataFrame,
    call_segments: pl.DataFrame,
    device_segments: pl.DataFrame,
    recording_pauses: pl.DataFrame,
    unrecorded_work: pl.DataFrame,
) -> pl.DataFrame:
    """Cut the gaps into intervals with one cause each, in order: table `idle` and ``named_by``, causes categorical.

    The intervals of a gap sum to it exactly.
    """
    rest = gap_segments.filter(pl.col("cause").is_in(["launch-latency", "unlinked", EARLIER_WORK]))
    pieces = [late_segments, *map(with_cause, (call_segments, device_segments, rest))]
    known = _overlaid(sort_spans(pl.concat(pieces), _DEVICE), unrecorded_work, UNRECORDED, ("unlinked", EARLIER_WORK))
    paused = recording_pauses.join(known.select("device").unique(), how="cross")
    return _overlaid(known, paused.sort("device", "start_ns"), "untraced", ("unlinked",))


def with_cause(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return pieces with their cause: table `idle` and ``named_by``; thread_id is null where it is not needed."""
    named = pieces if "named_by" in pieces.columns else pieces.with_columns(NO_THREAD)
    return named.select(_IDLE_COLUMNS).cast({"cause": pl.Categorical})


def with_events(idle_causes: pl.DataFrame, innermost_events: pl.DataFrame, host: Host) -> pl.DataFrame:
    """Return table `idle` with categorical texts: ``idle_causes`` cut where the innermost event changes."""
    events = innermost_events.rename({"thread_id": "named_by"})
    named = split_by(idle_causes.rename({"event_id": "known_id"}), events, ["named_by"], ["event_id"])
    ids = named.select(pl.coalesce("known_id", "event_id").alias("event_id")).to_series()
    return named.with_columns(ids, host.texts(ids).alias("host_event")).select(list(IDLE.schema))


def without_causes(idle: pl.DataFrame, devices: Collection[int]) -> pl.DataFrame:
    """Suppress the causes of some devices in ``idle``, except causes that mean unknown."""
    return idle.with_columns(causes_but(devices), pl.when(~_hidden(devices)).then(pl.col("event_id", "named_by")))


def causes_but(devices: Collection[int]) -> pl.Expr:
    """Return column ``cause`` with the causes of some devices suppressed."""
    return pl.when(_hidden(devices)).then(pl.lit(WITHHELD, dtype=pl.Categorical)).otherwise("cause").alias("cause")


def _hidden(devices: Collection[int]) -> pl.Expr:
    return pl.col("device").is_in(list(devices)) & ~pl.col("cause").is_in(UNKNOWN_CAUSES)


def call_pieces(
    gap_segments: pl.DataFrame, runtime_calls: pl.DataFrame, unmasked_launches: pl.DataFrame
) -> pl.DataFrame:
    """Determine the work of the launch call itself: a blocking copy, an allocation, loading of code, or launching."""
    gap_segments = gap_segments.filter(pl.col("cause") == "call")
    length = pl.col("call_end_ns") - pl.col("call_start_ns")
    typical = pl.lit(unmasked_launches.get_column("duration_ns").median(), dtype=pl.Float64)
    slow = (length > thresholds.SLOW_LAUNCH_NS) & (length > thresholds.SLOW_LAUNCH_MEDIANS * typical)
    return (
        gap_segments.drop("cause")
        .hstack(
            lookup(runtime_calls.select("launch_id", "call_start_ns", "call_end_ns", "work"), gap_segments, "launch_id")
        )
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


def device_pieces(
    gap_segments: pl.DataFrame, trace: Trace, host: Host, activities: pl.DataFrame, time_slices: pl.DataFrame
) -> pl.DataFrame:
    """Determine the cause of device time.

    Short time is inter-kernel latency; long time is a turn of another program (``time_slices``), or a wait, if there is
    something to wait for.
    """
    gap_segments = gap_segments.filter(pl.col("cause") == "device")
    communicates = activities.get_column("bucket").eq("communication").any()
    first_wait = first_event_wait_ns(host, trace.sync_events)
    wait = pl.lit(communicates) | (pl.lit(first_wait) < pl.col("end_ns")).fill_null(False)
    return gap_segments.with_columns(
        pl.when(LENGTH_NS < thresholds.DEVICE_GAP_NS).then(pl.lit("device-gap"))
        .when(pl.col("gap_id").is_in(time_slices.get_column("gap_id").implode())).then(pl.lit(TIME_SLICE))
        .when(wait).then(pl.lit("device-wait"))
        .otherwise(pl.lit("unexplained"))
        .alias("cause")
    )  # fmt: skip


def first_event_wait_ns(host: Host, sync_events: pl.DataFrame) -> int | None:
    """Return when a stream first waited for an event that was recorded in the trace; None without such a wait."""
    recorded, waited = (
        host.calls_of(pl.col("name").str.contains(word)).get_column("start_ns")
        for word in ("EventRecord", STREAM_WAITS)
    )
    rows = sync_events.filter(pl.col("name").str.contains("(?i)stream wait event")).get_column("start_ns")
    since = recorded.min()
    waits = waited.clear() if since is None else waited.filter(waited > since)
    first: int | None = pl.concat([waits, rows]).min()  # type: ignore[assignment]
    return first


def _overlaid(pieces: pl.DataFrame, windows: pl.DataFrame, cause: str, kept: Collection[str]) -> pl.DataFrame:
    """Cut pieces, in order, at windows of their device, whose cause replaces all causes but the ``kept`` ones."""
    stays = pl.col("cause").is_in(list(kept))
    marked = windows.select("device", "start_ns", "end_ns", pl.lit(True).alias("marked"))
    cut = split_by(pieces.filter(~stays), marked, _DEVICE, ["marked"]).with_columns(
        pl.when("marked").then(pl.lit(cause, dtype=pl.Categorical)).otherwise("cause").alias("cause"),
        pl.when(pl.col("marked").is_null()).then(pl.col("event_id", "named_by")),
    )
    same, cut = pieces.filter(stays), cut.select(pieces.columns)
    return sort_spans(pl.concat([same, cut]), _DEVICE) if same.height else cut


# Measure the latency from a launch to the start of its activity on an empty queue.


def launch_latency_ns(
    host: Host, linked_events: pl.DataFrame, unmasked_launches: pl.DataFrame, idle_gaps: pl.DataFrame
) -> int:
    """Return this trace's latency from launch end to start on an empty queue: the 99th percentile, at most 100 us.

    ``linked_events`` needs launch_id, launch_start_ns and launch_end_ns. Launches after a stream's wait for an event are
    excluded, as their activity may have waited for that event. Without other launches on an idle device, the maximum is
    used.
    """
    launched = linked_events.select("launch_id", "start_ns", "launch_start_ns", "launch_end_ns")
    latency = (
        idle_gaps.select(pl.col("start_ns").alias("gap_start_ns"))
        .hstack(launched[idle_gaps.get_column("activity_id")])
        .filter(pl.col("launch_start_ns") >= pl.col("gap_start_ns"), pl.col("launch_end_ns") <= pl.col("start_ns"))
        .join(launches_after_waits(host, unmasked_launches), on="launch_id", how="anti")
        .select(
            (pl.col("start_ns") - pl.col("launch_end_ns")).quantile(
                thresholds.LAUNCH_LATENCY_QUANTILE, interpolation="nearest"
            )
        )
        .item()
    )
    cap = thresholds.LAUNCH_LATENCY_MAX_NS
    return cap if latency is None else min(int(latency), cap)


def launches_after_waits(host: Host, launches: pl.DataFrame) -> pl.DataFrame:
    """Return launches before which, since the previous launch, their thread made a stream wait for an event."""
    waits = (
        host.calls_of(pl.col("name").str.contains(STREAM_WAITS))
        .select("thread_id", pl.col("start_ns").alias("wait_ns"))
        .sort("wait_ns")
    )
    # Calls are in order of thread and start.
    previous = pl.when(pl.col("thread_id") == pl.col("thread_id").shift(1)).then(pl.col("start_ns").shift(1))
    return (
        launches.select("launch_id", "thread_id", "start_ns", previous.alias("previous_ns"))
        .join_asof(waits, left_on="start_ns", right_on="wait_ns", by="thread_id", check_sortedness=False)
        .filter((pl.col("wait_ns") > pl.col("previous_ns")).fill_null(pl.col("wait_ns").is_not_null()))
        .select("launch_id")
    )


def behind_waits(idle: pl.DataFrame, host: Host, threads: pl.Series, works: Collection[str]) -> pl.DataFrame:
    """Return the idle time after waits in which one of the threads did such work, with that work's events.

    ``idle`` and the result have device, start_ns, end_ns, cause, event_id and what else ``idle`` has. Without the wait
    the work is hidden; without the work the idle time ends earlier.
    """
    waiting = idle.filter(pl.col("cause") == "synchronization")
    is_meant = pl.col("work").is_in(works) & pl.col("thread_id").is_in(threads.implode())
    events = host.events.filter(is_meant).sort("start_ns", "end_ns", descending=[False, True])
    outermost = events.filter((pl.col("start_ns") >= pl.col("end_ns").cum_max().shift(1)).fill_null(True))
    spans = outermost.select("start_ns", "end_ns", pl.col("event_id").alias("work_id"))
    return clip(waiting, spans, []).with_columns(pl.col("work_id").alias("event_id")).select(waiting.columns)


def loading_behind_waits(idle_causes: pl.DataFrame, host: Host, launches: pl.DataFrame) -> pl.DataFrame:
    """Return the idle time after waits in which a launching thread loaded data: `behind_waits`."""
    return behind_waits(idle_causes, host, launches.get_column("thread_id").drop_nulls().unique(), [DATA_LOADING])


ANALYSES = (
    Value("runtime_calls", runtime_calls),
    Value("unnamed_segments", stretches_of),
    Value("call_segments", call_pieces),
    Value("device_segments", device_pieces),
    Value("idle_causes", idle_causes, needs=(CAUSES_OF_IDLE,), hide=without_causes),
    Analysis(IDLE, with_events),
    Value("launch_latency_ns", launch_latency_ns),
    Value("loading_behind_waits", loading_behind_waits),
)
