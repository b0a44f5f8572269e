"""Bound the offset of each device's clock relative to the host's.

With aligned clocks, no activity begins before its launch call begins, and none ends after the return of a call that
waited for it. If a device's clock is ahead by a constant offset, each launch gives an upper bound (the activity's start
minus the call's start), and each wait a lower bound (the activity's end minus the wait's end). This is how a host
bounds the offset of a time server by the times of its request and the answer (RFC 5905, section 8). There are no other
assumptions, so the bounds hold for any program.

Waits: a device synchronize, in a process with one device, waits for everything launched before; a copy to pageable host
memory, and a copy by a synchronous call, wait for themselves (CUDA Runtime API, "API synchronization behavior").
"""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.launch_latency import launches_after_waits
from trace_analyzer.analysis import Value

_TO_HOST = r"DtoH|DeviceToHost"
_TO_PAGEABLE = r"DtoH \(Device -> Pageable\)"
_SYNCHRONOUS = r"^(cuda|hip)Memcpy(2D|3D)?$|^hipMemcpyWithStream$"
_SYNCHRONIZE = r"^(cuda|hip)DeviceSynchronize$|^cuCtxSynchronize$"

CLOCKS = {
    "device": pl.Int64,
    "ahead_least_ns": pl.Int64,
    "ahead_most_ns": pl.Int64,
    "ended_after_wait_ratio": pl.Float64,
}


def clock_bounds(host: Host, activities: pl.DataFrame) -> pl.DataFrame:
    """Bound each device's clock offset relative to the host's; negative where the device is behind.

    ``activities`` needs name, launch_id, launch_name, launch_start_ns and launch_end_ns. Returns `CLOCKS`: device,
    ahead_least_ns (null without waits), ahead_most_ns (null without launches), and ended_after_wait_ratio, the share of
    waits for which an awaited activity ends more than `CLOCK_TOLERANCE_NS` after their return. One bound in a hundred
    may be wrong.
    """
    linked = activities.filter(pl.col("launch_id").is_not_null()).select(
        "device",
        "name",
        "launch_name",
        "launch_start_ns",
        "launch_end_ns",
        "start_ns",
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
        host.events.get_column("process_id")[activities.get_column("launch_id").drop_nulls()],
    )
    rest = 1 - thresholds.SKEW_QUANTILE
    since_launch = (pl.col("start_ns") - pl.col("launch_start_ns")).quantile(rest, interpolation="nearest")
    late = pl.concat([_after_copies(linked), _after_synchronizes(host, linked)])
    waits = late.group_by("device").agg(
        pl.col("late_ns").quantile(thresholds.SKEW_QUANTILE, interpolation="nearest").alias("ahead_least_ns"),
        (pl.col("late_ns") > thresholds.CLOCK_TOLERANCE_NS).mean().alias("ended_after_wait_ratio"),
    )
    return (
        activities.select("device")
        .unique()
        .join(linked.group_by("device").agg(since_launch.alias("ahead_most_ns")), on="device", how="left")
        .join(waits, on="device", how="left")
        .select(list(CLOCKS))
        .cast(CLOCKS)  # type: ignore[arg-type]
        .sort("device")
    )


def _after_copies(linked: pl.DataFrame) -> pl.DataFrame:
    """Return device, late_ns: from the return of each waiting copy call to the copy's end."""
    name, call = pl.col("name").cast(pl.String), pl.col("launch_name").cast(pl.String)
    waits = name.str.contains(_TO_PAGEABLE) | (name.str.contains(_TO_HOST) & call.str.contains(_SYNCHRONOUS))
    return linked.filter(waits).select("device", (pl.col("end_ns") - pl.col("launch_end_ns")).alias("late_ns"))


def _after_synchronizes(host: Host, linked: pl.DataFrame) -> pl.DataFrame:
    """Return device, late_ns: from each synchronize's return to the end of the last activity launched before it."""
    waits = (
        host.calls_of(pl.col("name").str.contains(_SYNCHRONIZE))
        .select("process_id", pl.col("start_ns").alias("wait_ns"), pl.col("end_ns").alias("waited_ns"))
        .sort("wait_ns")
    )
    of_one_device = linked.filter(pl.col("device").n_unique().over("process_id") == 1)
    return (
        of_one_device.select("device", "process_id", "launch_end_ns", "end_ns")
        .sort("launch_end_ns")
        .join_asof(
            waits,
            left_on="launch_end_ns",
            right_on="wait_ns",
            by="process_id",
            strategy="forward",
            check_sortedness=False,
        )
        .drop_nulls("waited_ns")
        .group_by("device", "process_id", "wait_ns")
        .agg((pl.col("end_ns").max() - pl.col("waited_ns").first()).alias("late_ns"))
        .select("device", "late_ns")
    )


def late_starts(
    host: Host,
    launches: pl.DataFrame,
    activities: pl.DataFrame,
    gaps: pl.DataFrame,
    sums: pl.DataFrame,
    clock_bounds: pl.DataFrame,
) -> pl.DataFrame:
    """Return the share of idle time with work in the queue, where no launch of the trace shows a prompt start.

    A launch right after its thread made a stream wait for an event does not count, as its work may have waited for that
    event. ``gaps`` come from `idle.idle_gaps`, ``sums`` from `causes.gap_sums`. Returns device and late_starts_ratio: 0
    where some activity begins within `LAUNCH_LATENCY_MAX_NS` of its launch, 1 where none does within `QUEUED_MAX_NS`,
    null without launches.
    """
    ended_by = gaps.select("gap_id", activities.get_column("launch_id")[gaps.get_column("activity_id")])
    waited = ended_by.join(launches_after_waits(host, launches), on="launch_id", how="semi")
    is_queued = pl.col("cause").is_in(["device-wait", "unexplained"])
    queued = (
        sums.filter(is_queued).join(waited, on="gap_id", how="anti").group_by("device").agg(pl.col("idle_ns").sum())
    )
    shares = (
        sums.group_by("device")
        .agg(pl.col("idle_ns").sum().alias("all_ns"))
        .join(queued, on="device", how="left")
        .select("device", (pl.col("idle_ns").fill_null(0) / pl.col("all_ns")).alias("queued_ratio"))
    )
    soonest = pl.col("ahead_most_ns")
    ratio = (
        pl.when(soonest > thresholds.QUEUED_MAX_NS)
        .then(1.0)
        .when(soonest > thresholds.LAUNCH_LATENCY_MAX_NS)
        .then("queued_ratio")
        .when(soonest.is_not_null())
        .then(0.0)
    )
    return clock_bounds.join(shares, on="device", how="left").select("device", ratio.alias("late_starts_ratio"))


ANALYSES = (
    Value("clock_bounds", clock_bounds, {"activities": "linked_events"}),
    Value(
        "late_starts",
        late_starts,
        {
            "launches": "unmasked_launches",
            "activities": "linked_events",
            "gaps": "idle_gaps",
            "sums": "unmasked_gap_sums",
        },
    ),
)
