"""Cut each gap of a device at the instants of the launch that ends it.

With l the launch of the activity that ends the gap, and L the typical latency of a launch::

    gap start ──host──▶ l.start ──call──▶ l.end ──latency──▶ + L ──device──▶ gap end

Once another linked activity of the device is queued, the rest of the gap is device time.
"""

import polars as pl

from trace_analyzer.analyses.host import Host
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.event_names import BLOCKING
from trace_analyzer.frames.intervals import sort_spans, union, with_covered
from trace_analyzer.frames.lookups import lookup, over_group, scatter

_DEVICE = ["device"]
_NO_ROW = pl.lit(None, dtype=pl.UInt32)
_NEVER = (1 << 63) - 1


def runtime_calls(host: Host, activities: pl.DataFrame) -> pl.DataFrame:
    """Return runtime and driver calls with their process, whether they block, and their work.

    A synchronize blocks, and so does a copy call that returns after its own copy ends (work ``blocking-copy``). Returns
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


def stretches_of(activities: pl.DataFrame, gaps: pl.DataFrame, calls: pl.DataFrame, latency_ns: int) -> pl.DataFrame:
    """Cut gaps into host, call, launch-latency and device segments.

    They have their launch; host segments have their blocker.

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
    """Return queued_ns: for each gap, the first instant at which another linked activity was queued.

    No activity starts inside a gap, so these are the activities from its end on, except the one that ends it.
    """
    queued = pl.when(pl.col("launch_end_ns") <= pl.col("start_ns")).then("launch_end_ns").fill_null(_NEVER)
    gap_ids = scatter(gaps.get_column("activity_id"), gaps.get_column("gap_id"), activities.height)
    # Of activities with equal starts, the one that ends the gap comes first.
    place = 2 * pl.col("start_ns") + gap_ids.is_null()
    ordered = sort_spans(
        activities.select("device", gap_ids, queued.alias("queued_ns"), place.alias("start_ns")),
        _DEVICE,
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
)
