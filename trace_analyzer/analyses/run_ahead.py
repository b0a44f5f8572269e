"""Judge whether the CPU runs ahead of the device: launch lead, queue depth and state."""

import polars as pl

from trace_analyzer import analysis, schema, thresholds
from trace_analyzer.analyses.host import Context
from trace_analyzer.frames.intervals import END_NS, LENGTH_NS, clip, filter_inside, split_by, sweep_sum, union
from trace_analyzer.frames.lookups import lookup, over_group
from trace_analyzer.sections import DEVICE_LABEL, WHOLE_TRACE, Section, Shown

QUEUE = schema.Table(
    "queue",
    "Queue depth of a device as a step function.",
    schema.columns("""
        device
        time_ns i64 From this time on ...
        depth i64 ... so many launched activities have not started yet.
        queued_work_ns i64 Device time of these: how long it would stay busy if the CPU stopped.
    """),
)

QUANTILES = (0.1, 0.5, 0.9)
_DEVICE = ["device"]
_SPAN = ["device", "start_ns", "end_ns"]


def queue_depths(linked_events: pl.DataFrame) -> pl.DataFrame:
    """Return table `queue`: depth and queued work after each launch's end and each activity's start.

    An activity that started before its launch returned (a blocking copy, clock skew) was never queued.
    """
    leads = linked_events.select("device", "start_ns", "duration_ns", "lead_ns")
    queued = leads.filter(pl.col("lead_ns") >= 0).select(
        "device",
        (pl.col("start_ns") - pl.col("lead_ns")).alias("start_ns"),
        pl.col("start_ns").alias("end_ns"),
        pl.lit(1).alias("depth"),
        pl.col("duration_ns").alias("queued_work_ns"),
    )
    frame = sweep_sum(queued, "device", ["depth", "queued_work_ns"]).rename({"start_ns": "time_ns"})
    return QUEUE.conform(frame)


def depth_within(queue: pl.DataFrame, spans: pl.DataFrame) -> float | None:
    """Return the mean queue depth over intervals (device, start_ns, end_ns), weighted by time; None without any."""
    cut = split_by(spans.select(_SPAN), _levels(queue), _DEVICE, ["depth"])
    mean: float | None = cut.select((pl.col("depth").fill_null(0) * LENGTH_NS).sum() / LENGTH_NS.sum()).item()
    return mean if cut.height else None


def _levels(queue: pl.DataFrame) -> pl.DataFrame:
    """Return the queue's steps as spans: start_ns and end_ns instead of time_ns."""
    end = over_group(queue, "device", pl.col("start_ns").shift(-1)).alias("end_ns")
    return queue.rename({"time_ns": "start_ns"}).with_columns(end).drop_nulls("end_ns")


def queue_statistics(queue: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the queue depth and queued work weighted by time within each window.

    Returns device, depth_mean, depth_p50, depth_max, queued_work_mean, queued_work_p50, queued_work_max (ns) and
    empty_queue_ratio.
    """
    inside = clip(_levels(queue), windows.select(_SPAN), _DEVICE)
    lengths = windows.select("device", LENGTH_NS.alias("window_ns"))
    depth = _weighted(inside, "depth", lengths, "depth").rename({"nothing_ratio": "empty_queue_ratio"})
    queued_work = _weighted(inside, "queued_work_ns", lengths, "queued_work").drop("nothing_ratio")
    return depth.join(queued_work, on="device", how="left", maintain_order="left")


def _weighted(spans: pl.DataFrame, figure: str, lengths: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return mean, p50 and max of a step function that is 0 outside ``spans``, and the share of time at 0."""
    nonzero = (
        spans.filter(pl.col(figure) > 0)
        .group_by("device", figure)
        .agg(LENGTH_NS.sum().alias("time_ns"))
        .sort("device", figure, descending=[False, True])
        .join(lengths, on="device", maintain_order="left")
        .with_columns(pl.col("time_ns").cum_sum().over("device").alias("at_least_ns"))
    )
    window = pl.col("window_ns").first()
    stats = nonzero.group_by("device").agg(
        ((pl.col(figure) * pl.col("time_ns")).sum() / window).alias(f"{name}_mean"),
        # The median is the largest value that the function reaches for at least half of the window.
        pl.col(figure).filter(2 * pl.col("at_least_ns") >= pl.col("window_ns")).max().fill_null(0).alias(f"{name}_p50"),
        pl.col(figure).max().alias(f"{name}_max"),
        (1 - pl.col("time_ns").sum() / window).alias("nothing_ratio"),
    )
    return (
        lengths.select("device")
        .join(stats, on="device", how="left", maintain_order="left")
        .with_columns(
            pl.col(f"{name}_mean").fill_null(0.0),
            pl.col(f"{name}_p50", f"{name}_max").fill_null(0),
            pl.col("nothing_ratio").fill_null(1.0),
        )
    )


def lead_quantiles(launches: pl.DataFrame) -> pl.DataFrame:
    """Return device, lead_p10, lead_p50, lead_p90 (ns, nearest) and call_p50: the median launch call."""
    leads = [
        pl.col("lead_ns").quantile(q, interpolation="nearest").cast(pl.Int64).alias(f"lead_p{round(100 * q)}")
        for q in QUANTILES
    ]
    return launches.group_by("device").agg(*leads, pl.col("duration_ns").median().alias("call_p50")).sort("device")


def run_ahead_state(
    busy_ratio: float, empty_queue_ratio: float, lead_p50: float | None, call_p50: float | None
) -> str | None:
    """Return ahead, keeping-up or behind; None where no launch is linked."""
    if lead_p50 is None or call_p50 is None:
        return None
    if empty_queue_ratio > thresholds.BEHIND_EMPTY_RATIO and busy_ratio < thresholds.BEHIND_BUSY_RATIO:
        return "behind"
    if lead_p50 > thresholds.AHEAD_LEAD_CALLS * call_p50 and empty_queue_ratio < thresholds.AHEAD_EMPTY_RATIO:
        return "ahead"
    return "keeping-up"


# Find where a device's queue ran empty after the CPU had been ahead, and the host work that caused it.

DRAINS = schema.Table(
    "drains",
    "Where the queue ran empty and the device idled, after the CPU had been ahead.",
    schema.columns("""
        device
        start_ns i64 When the last queued activity had started: nothing was left.
        end_ns i64 When the next launch had ended.
        queued_work_ns i64 Most device time that was queued since the queue had been empty before.
        idle_ns i64 Idle time between start and end.
        cause str The cause that holds most of that idle time.
        host_start_ns i64 End of the last launch that was queued before ...
        host_end_ns i64 ... and start of the next one: host time without a queued launch.
        launch_id thread_id
        event_id u32 What kept the launching thread in between: its longest event, or what is around many.
        name
        source str Code that causes it, such as `.item()`; null when no rule names it.
        operator module python_function
        phase str Its phase, as in `blame`.
    """),
)

DRAINS_SECTION = Section(
    "Where the queue ran empty",
    show=(
        Shown("start_ns", "empty at", markdown=True),
        DEVICE_LABEL,
        Shown("queued_work_ns", "queued before", markdown=True, term="queued_work"),
        Shown("idle_ns", "idle", markdown=True),
        Shown("cause", "cause", "part", markdown=True),
        Shown("by", "drained by", "text", markdown=True, page=False, phrase="drained-by"),
        Shown("python_function", "in function", "frame"),
        Shown("name", "event", "name"),
        Shown("source", "as written", "text"),
        Shown("operator", "operator", "name"),
        Shown("phase", "phase", "text"),
    ),
    sort=("-idle_ns", "start_ns"),
    rows=5,
    key="drains",
    table="drains",
    scope=WHOLE_TRACE,
)


def drains(queue: pl.DataFrame, launches: pl.DataFrame, idle_causes: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Return table `drains`: times at which a device ran out of queued work and idled, most idle time first.

    The cause is the longest event on the launching thread between the last queued launch and the next one. Where that
    event takes less than half of this time, the cause is its enclosing event, which contains many short ones.
    """
    empty = _with_idle(_empty_times(queue), idle_causes).filter(pl.col("idle_ns") > 0)
    stretches = _with_stretch(empty, launches)
    ids = _drained_by(stretches, context)
    phase = context.events.get_column("phase")[ids]
    attributed = stretches.with_columns(ids.alias("event_id"), phase).hstack(context.code(ids))
    return DRAINS.conform(attributed.sort("device", "idle_ns", "start_ns", descending=[False, True, False]))


def _empty_times(queue: pl.DataFrame) -> pl.DataFrame:
    """Return device, start_ns, end_ns, queued_work_ns: from a queue's last start to its next launch."""
    emptied = pl.col("depth") == 0
    return (
        _levels(queue)
        .with_columns((emptied.cum_sum() - emptied.cast(pl.UInt32)).over("device").alias("run"))
        .with_columns(pl.col("queued_work_ns").max().over("device", "run"))
        .filter(emptied & (pl.col("queued_work_ns") >= thresholds.DRAIN_QUEUED_WORK_NS))
        .select(*_SPAN, "queued_work_ns")
    )


def _with_idle(empty: pl.DataFrame, idle: pl.DataFrame) -> pl.DataFrame:
    """Add the idle time within each interval, and its largest cause."""
    rows = empty.with_row_index("drain_id")
    inside = clip(idle.select(*_SPAN, "cause"), rows.select(*_SPAN, "drain_id"), _DEVICE)
    causes = (
        inside.group_by("drain_id", "cause")
        .agg(LENGTH_NS.sum().alias("cause_ns"))
        .sort("drain_id", "cause_ns", "cause", descending=[False, True, False])
        .group_by("drain_id", maintain_order=True)
        .agg(pl.col("cause").first(), pl.col("cause_ns").sum().alias("idle_ns"))
    )
    return rows.join(causes, on="drain_id", how="left", maintain_order="left").with_columns(
        pl.col("idle_ns").fill_null(0)
    )


def _with_stretch(empty: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Add the launch that ended each interval, its thread, and the host time before it without a queued launch."""
    queued = (
        launches.filter(pl.col("lead_ns") >= 0)
        .with_columns(END_NS.alias("call_end_ns"))
        .sort("device", "call_end_ns", "launch_id")
        .with_columns(pl.col("call_end_ns").shift(1).over("device").alias("host_start_ns"))
        .select(
            "device", "call_end_ns", "launch_id", "thread_id", "host_start_ns", pl.col("start_ns").alias("host_end_ns")
        )
        .unique(["device", "call_end_ns"], keep="first", maintain_order=True)
    )
    return empty.join(
        queued, left_on=["device", "end_ns"], right_on=["device", "call_end_ns"], how="left", maintain_order="left"
    ).with_columns(pl.min_horizontal("host_start_ns", "host_end_ns").alias("host_start_ns"))


def _drained_by(stretches: pl.DataFrame, context: Context) -> pl.Series:
    """Return the event that drained each queue: the longest within its host time, or its enclosing event."""
    parents = context.events.get_column("parent_id")
    of_annotation = context.host.each(pl.col("kind") == "annotation")[parents]
    events = context.events.select(
        "event_id", "thread_id", "start_ns", "end_ns", pl.when(~of_annotation).then(parents).alias("parent_id")
    )
    known = stretches.select("device", "thread_id", "host_start_ns", "host_end_ns", "drain_id").drop_nulls(
        "host_start_ns"
    )
    around = known.select("thread_id", start_ns="host_start_ns", end_ns=pl.col("host_end_ns") + 1)
    events = filter_inside(events, "start_ns", union(around, ["thread_id"]), ["thread_id"])
    longest = (
        events.join(known.select("device").unique(), how="cross")
        .join_asof(
            known.sort("host_start_ns"),
            left_on="start_ns",
            right_on="host_start_ns",
            by=["device", "thread_id"],
            check_sortedness=False,
        )
        .filter(pl.col("end_ns") <= pl.col("host_end_ns"))
        .group_by("drain_id")
        .agg(pl.exclude("drain_id").get(LENGTH_NS.arg_max()))  # the first of several, as they are in order of event_id
        .with_columns(
            pl.when(pl.col("host_end_ns") - pl.col("host_start_ns") <= 2 * LENGTH_NS)
            .then("event_id")
            .otherwise(pl.coalesce("parent_id", "event_id"))
            .alias("event_id")
        )
    )
    return lookup(longest.select("drain_id", "event_id"), stretches, "drain_id").to_series()


ANALYSES = (
    analysis.Analysis(QUEUE, queue_depths, needs=(analysis.RUN_AHEAD,)),
    analysis.Value("queue_statistics", queue_statistics),
    analysis.Value("launch_leads", lead_quantiles),
    analysis.Analysis(DRAINS, drains, placed=(DRAINS_SECTION,)),
)
