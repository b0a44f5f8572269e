"""Measure the consistency of a trace: figures per device that show how reliable it is."""

import re
from collections.abc import Mapping

import polars as pl

from trace_analyzer import thresholds, vocabulary
from trace_analyzer.analyses import causes, links
from trace_analyzer.analyses.host import Host
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.devices import Device, assumed_devices
from trace_analyzer.frames import intervals, lookups
from trace_analyzer.ingest.trace import DeviceProperties, Trace

# Distinguish overlaps on one stream by design from those that indicate corrupt rows.
#
# A stream executes in order. From compute capability 9.0 on, programmatic dependent launch lets a kernel start in the
# tail of the previous one (CUDA Programming Guide, "Programmatic Dependent Launch and Synchronization"): the two are
# neighbours, and the later one starts and ends later. Rows that contain each other, are out of launch order, or overlap
# in larger numbers are wrong on any device.

_STREAM = ["device", "context", "stream"]
_FIRST_CAPABILITY = 9.0
_OTHER_VENDORS = r"(?i)AMD|Radeon|Instinct|Intel|gfx"


def dependent_launch_devices(trace: Trace, device_models: Mapping[int, Device | None]) -> tuple[int, ...]:
    """Return codes of devices that support dependent launches: NVIDIA's from compute capability 9.0 on.

    The catalogue determines this, else the header; AMD's gfx90a and gfx942 also have 9.x there, but warps of 64
    threads. Without either, the architecture in kernel names is used.
    """
    listed = {entry.index: entry for entry in trace.header.devices}
    rows = [
        (code, listed.get(label), name)
        for code, label, name in trace.devices.select("device", "label", "name").iter_rows()
    ]
    models = {code: model for code, model in device_models.items() if model is not None}
    silent = [code for code, entry, _ in rows if code not in models and (entry is None or not entry.compute_capability)]
    if silent:
        is_silent = pl.col("device").is_in(silent)
        models |= assumed_devices(trace.device_events.filter(is_silent, pl.col("kind") == "kernel"))

    def is_able(code: int, entry: DeviceProperties | None, name: str | None) -> bool:
        if (model := models.get(code)) is not None:
            capability, is_nvidia = model.compute_capability, model.vendor == "NVIDIA"
        elif entry is not None and entry.warp_size in (None, 0, 32):
            capability, is_nvidia = entry.compute_capability, not re.search(_OTHER_VENDORS, name or entry.name or "")
        else:
            return False
        try:
            return is_nvidia and float(capability or 0) >= _FIRST_CAPABILITY
        except ValueError:
            return False

    return tuple(code for code, entry, name in rows if is_able(code, entry, name))


def with_stream_overlaps(rows: pl.DataFrame, able: tuple[int, ...]) -> pl.DataFrame:
    """Return activities by stream and start with ``designed_ns``: their overlap by design with the previous one.

    ``rows`` (device, context, stream, kind, start_ns, end_ns, launch_start_ns) are those of devices whose streams
    execute in order; ``able`` are the devices that support dependent launches. An overlap of two kernels of a stream is
    by design if the later one starts and ends after the other, was not launched before it, starts when no third kernel
    runs, and starts within the other's last half or last 10 us.
    """
    streams, _ = lookups.factorize(*rows.select(_STREAM))
    # The shorter of activities with equal starts comes first.
    ordered = intervals.sort_spans(rows.with_columns(streams.alias("track")), ["track"], shortest_first=True)
    new = lookups.starts_group("track")
    earlier = {
        name: pl.when(~new).then(pl.col(name).shift(1)) for name in ("start_ns", "end_ns", "kind", "launch_start_ns")
    }
    reached = lookups.over_group(ordered, "track", pl.col("end_ns").cum_max().shift(2)).alias("reached_ns")
    overlap = earlier["end_ns"] - pl.col("start_ns")
    tail = pl.max_horizontal((earlier["end_ns"] - earlier["start_ns"]) // 2, thresholds.DEPENDENT_TAIL_NS)
    by_design = (
        pl.col("device").is_in(list(able))
        & (pl.col("kind") == "kernel")
        & (earlier["kind"] == "kernel")
        & (pl.col("start_ns") > earlier["start_ns"])
        & (pl.col("end_ns") >= earlier["end_ns"])
        & (pl.col("reached_ns").fill_null(0) <= pl.col("start_ns"))
        & (pl.col("launch_start_ns") >= earlier["launch_start_ns"]).fill_null(True)
        & (overlap <= tail)
    )
    designed = pl.when(by_design.fill_null(False)).then(overlap.clip(lower_bound=0)).otherwise(0)
    return ordered.with_columns(reached).with_columns(designed.fill_null(0).alias("designed_ns")).drop("reached_ns")


# Bound the offset of each device's clock relative to the host's.
#
# With aligned clocks, no activity begins before its launch call begins, and none ends after the return of a call that
# waited for it. If a device's clock is ahead by a constant offset, each launch gives an upper bound (the activity's start
# minus the call's start), and each wait a lower bound (the activity's end minus the wait's end). This is how a host
# bounds the offset of a time server by the times of its request and the answer (RFC 5905, section 8). There are no other
# assumptions, so the bounds hold for any program.
#
# Waits: a device synchronize, in a process with one device, waits for everything launched before; a copy to pageable host
# memory, and a copy by a synchronous call, wait for themselves (CUDA Runtime API, "API synchronization behavior").

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


def clock_bounds(host: Host, linked_events: pl.DataFrame) -> pl.DataFrame:
    """Bound each device's clock offset relative to the host's; negative where the device is behind.

    ``linked_events`` needs name, launch_id, launch_name, launch_start_ns and launch_end_ns. Returns `CLOCKS`: device,
    ahead_least_ns (null without waits), ahead_most_ns (null without launches), and ended_after_wait_ratio, the share of
    waits for which an awaited activity ends more than `CLOCK_TOLERANCE_NS` after their return. One bound in a hundred
    may be wrong.
    """
    process = host.events.get_column("process_id")[linked_events.get_column("launch_id").drop_nulls()]
    columns = ("device", "name", "launch_name", "launch_start_ns", "launch_end_ns", "start_ns", intervals.END_NS)
    linked = linked_events.filter(pl.col("launch_id").is_not_null()).select(*columns, process)
    rest = 1 - thresholds.SKEW_QUANTILE
    since_launch = (pl.col("start_ns") - pl.col("launch_start_ns")).quantile(rest, interpolation="nearest")
    late = pl.concat([_after_copies(linked), _after_synchronizes(host, linked)])
    waits = late.group_by("device").agg(
        pl.col("late_ns").quantile(thresholds.SKEW_QUANTILE, interpolation="nearest").alias("ahead_least_ns"),
        (pl.col("late_ns") > thresholds.CLOCK_TOLERANCE_NS).mean().alias("ended_after_wait_ratio"),
    )
    return (
        linked_events.select("device")
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
    unmasked_launches: pl.DataFrame,
    linked_events: pl.DataFrame,
    idle_gaps: pl.DataFrame,
    unmasked_gap_sums: pl.DataFrame,
    clock_bounds: pl.DataFrame,
) -> pl.DataFrame:
    """Return the share of idle time with work in the queue, where no launch of the trace shows a prompt start.

    A launch right after its thread made a stream wait for an event does not count, as its work may have waited for that
    event. Returns device and late_starts_ratio: 0
    where some activity begins within `LAUNCH_LATENCY_MAX_NS` of its launch, 1 where none does within `QUEUED_MAX_NS`,
    null without launches.
    """
    ended_by = idle_gaps.select("gap_id", linked_events.get_column("launch_id")[idle_gaps.get_column("activity_id")])
    waited = ended_by.join(causes.launches_after_waits(host, unmasked_launches), on="launch_id", how="semi")
    is_queued = pl.col("cause").is_in(["device-wait", "unexplained"])
    queued = (
        unmasked_gap_sums.filter(is_queued)
        .join(waited, on="gap_id", how="anti")
        .group_by("device")
        .agg(pl.col("idle_ns").sum())
    )
    shares = (
        unmasked_gap_sums.group_by("device")
        .agg(pl.col("idle_ns").sum().alias("all_ns"))
        .join(queued, on="device", how="left")
        .select("device", (pl.col("idle_ns").fill_null(0) / pl.col("all_ns")).alias("queued_ratio"))
    )
    soonest = pl.col("ahead_most_ns")
    ratio = (
        pl.when(soonest > thresholds.QUEUED_MAX_NS).then(1.0)
        .when(soonest > thresholds.LAUNCH_LATENCY_MAX_NS).then("queued_ratio")
        .when(soonest.is_not_null()).then(0.0)
    )  # fmt: skip
    return clock_bounds.join(shares, on="device", how="left").select("device", ratio.alias("late_starts_ratio"))


_GRAPH = r"(?i)graph"
_GRAPH_LAUNCH = r"(?i)^(cuda|cu|hip)GraphLaunch"
_NO_KERNEL = r"(?i)hostfunc|memcpy|memset|memprefetch|graph"


def device_figures(
    unmasked_gap_sums: pl.DataFrame,
    activities: pl.DataFrame,
    stream_figures: pl.DataFrame,
    clock_bounds: pl.DataFrame,
    late_starts: pl.DataFrame,
    drained_streams: pl.DataFrame,
) -> pl.DataFrame:
    """Return one row per device with the figures that `trace_analyzer.checks` judges; ratios are null where their base is 0.

    Each is called as its rule there, which says what it is the share of. ``activities`` are in order of start. Sums of
    device time include all of them.
    """
    rows = activities.select(
        "device", "stream", "start_ns", "duration_ns", "launch_id", "launch_start_ns", "group"
    ).join(drained_streams, on=["device", "stream"], how="left", maintain_order="left")
    time = pl.col("duration_ns").sum()
    linked = pl.col("launch_id").is_not_null()
    first_linked = pl.col("start_ns").filter(linked).min()
    longest = pl.col("duration_ns").filter(pl.col("group") != "communication").top_k(thresholds.FEW_ACTIVITIES).sum()
    of_device = rows.group_by("device").agg(
        (pl.col("duration_ns").filter(linked).sum() / time).alias("link_coverage_ratio"),
        (
            pl.col("duration_ns")
            .filter(~linked & (pl.col("start_ns") < pl.min_horizontal(first_linked, "drained_ns")))
            .sum()
            / time
        ).alias("unlinked_before_ratio"),
        (pl.col("start_ns") < pl.col("launch_start_ns")).filter(linked).mean().alias("started_before_launch_ratio"),
        (pl.col("duration_ns") < thresholds.SHORTEST_NS).mean().alias("short_durations_ratio"),
        pl.when(pl.len() >= thresholds.FEW_OF).then(longest / time).alias("few_long_activities_ratio"),
    )
    return (
        of_device.join(stream_figures, on="device", how="left")
        .join(clock_bounds, on="device", how="left")
        .join(_skewed_idle(rows, unmasked_gap_sums, clock_bounds), on="device", how="left")
        .join(late_starts, on="device", how="left")
        .join(_idle_shares(unmasked_gap_sums), on="device", how="left")
        .with_columns(pl.col("^.*_ratio$").fill_nan(None))
        .sort("device")
    )


def stream_figures(linked_events: pl.DataFrame, dependent_launch_devices: tuple[int, ...]) -> pl.DataFrame:
    """Return device and figures of its streams: ratios of graphs, overlaps and shortened activities.

    ``linked_events`` needs launch_name and launch_start_ns.
    """
    by_graph = pl.col("launch_name").str.contains(_GRAPH).fill_null(False)
    in_graph = lookups.map_unique(linked_events.select("launch_name"), by_graph.alias("in_graph")).to_series()
    time = pl.col("duration_ns")
    rows = linked_events.select(
        *_STREAM, "kind", "start_ns", intervals.END_NS, "duration_ns", "recorded_ns", "launch_start_ns", in_graph
    )
    shares = rows.group_by("device").agg(
        (time.filter("in_graph").sum() / time.sum()).alias("graph_share_ratio"),
        (time.filter(pl.col("recorded_ns").is_not_null()).sum() / time.sum()).alias("impossible_durations_ratio"),
    )
    return shares.join(_overlaps(rows.filter(~in_graph), dependent_launch_devices), on="device", how="left")


def _overlaps(in_order_only: pl.DataFrame, able: tuple[int, ...]) -> pl.DataFrame:
    """Return device and ratios of overlaps on its streams; only activities of graphs may be recorded out of order."""
    _, firsts = lookups.factorize(*in_order_only.select(_STREAM))
    ordered = with_stream_overlaps(in_order_only, able)
    covered = intervals.union(ordered, ["track"])
    end, length = pl.col("end_ns"), pl.col("duration_ns")
    time_ns = length.sum().alias("time_ns")
    covered_ns = covered.group_by(in_order_only.get_column("device")[firsts][covered.get_column("track")]).agg(
        (end - pl.col("start_ns")).sum().alias("covered_ns")
    )
    return (
        ordered.group_by("device")
        .agg(time_ns, pl.col("designed_ns").sum())
        .join(covered_ns, on="device", how="left")
        .select(
            "device",
            ((pl.col("time_ns") - pl.col("covered_ns").fill_null(0) - pl.col("designed_ns")) / pl.col("time_ns")).alias(
                "stream_overlap_ratio"
            ),
            (pl.col("designed_ns") / pl.col("time_ns")).alias("dependent_launches_ratio"),
        )
    )


def _skewed_idle(rows: pl.DataFrame, sums: pl.DataFrame, clocks: pl.DataFrame) -> pl.DataFrame:
    """Return device, skewed_idle_ratio: the idle time whose cause the disagreement of clocks may change.

    Causes cut each gap at the host's times of a launch's begin and end. These cuts are wrong by as much as the clocks
    disagree; idle time beyond that is correct.
    """
    early = pl.col("launch_start_ns") - pl.col("start_ns")
    skew = rows.group_by("device").agg(
        early.drop_nulls()
        .quantile(thresholds.SKEW_QUANTILE, interpolation="nearest")
        .clip(lower_bound=0)
        .alias("early_ns")
    )
    ahead = pl.col("ahead_least_ns")
    skew = skew.join(clocks, on="device", how="left").select(
        "device",
        pl.max_horizontal("early_ns", pl.when(ahead > thresholds.CLOCK_TOLERANCE_NS).then(ahead)).alias("skew_ns"),
    )
    known_ns = pl.when(~pl.col("cause").is_in(vocabulary.UNKNOWN_CAUSES)).then("idle_ns").otherwise(0)
    of_gap = (
        sums.select("gap_id", "device", known_ns.alias("known_ns"))
        .set_sorted("gap_id")
        .group_by("gap_id")
        .agg(pl.col("device").first(), pl.col("known_ns").sum())
        .join(skew, on="device", how="left")
    )
    skewed_ns = pl.min_horizontal("known_ns", pl.col("skew_ns").fill_null(0)).sum().alias("skewed_ns")
    return (
        of_gap.group_by("device")
        .agg(skewed_ns)
        .join(sums.group_by("device").agg(pl.col("idle_ns").sum()), on="device")
        .select("device", (pl.col("skewed_ns") / pl.col("idle_ns")).alias("skewed_idle_ratio"))
    )


def _idle_shares(sums: pl.DataFrame) -> pl.DataFrame:
    """Return device and shares of its idle time: in pauses, and in host time without an event."""
    idle_ns = pl.col("idle_ns")
    return sums.group_by("device").agg(
        (idle_ns.filter(pl.col("cause") == cause).sum() / idle_ns.sum()).alias(name)
        for cause, name in (("untraced", "untraced_ratio"), ("host-unknown", "unrecorded_host_time_ratio"))
    )


def kernel_launches(
    trace: Trace, host: Host, unmasked_launches: pl.DataFrame, graph_captures: pl.DataFrame
) -> pl.DataFrame:
    """Return process_id, start_ns, of_graph, missing, queued: launches of kernels and of graphs, and which have no activity.

    Those of the latter that were still ``queued`` when the recording ended lack none: they come after the last launch of
    their process whose work is recorded, and with its lead, and while the longest activity still runs, they begin after
    the recording's end.

    A call within one of ``graph_captures`` (see `links.captures`) adds its kernel to a graph, and launches nothing.
    Calls of one correlation id in one process count once: they are the runtime's and the driver's name of the same
    launch.
    """
    launching = pl.col("name").str.contains(links.LAUNCHING) & ~pl.col("name").str.contains(_NO_KERNEL)
    calls = host.calls_of(launching | pl.col("name").str.contains(_GRAPH_LAUNCH)).drop_nulls("correlation")
    calls = calls.filter(~links.is_captured(calls, graph_captures))
    names = host.names.select(pl.col("name").str.contains(_GRAPH_LAUNCH).alias("of_graph")).to_series()
    calls = calls.select(*links.BY_ID, "start_ns", names[calls.get_column("name_id")].alias("of_graph"))
    process = host.events.get_column("process_id")[unmasked_launches.get_column("launch_id")]
    numbered, launched = links.with_ids(calls, unmasked_launches.select(process, "correlation"))
    last = (
        unmasked_launches.select(process, pl.col("start_ns").alias("last_ns"), "first_start_ns")
        .group_by("process_id")
        .agg(pl.col("last_ns", "first_start_ns").sort_by("last_ns").last())
    )
    waits = pl.col("first_start_ns") - pl.col("last_ns") + (trace.device_events.get_column("duration_ns").max() or 0)
    after_end = (pl.col("start_ns") > pl.col("last_ns")) & (pl.col("start_ns") + waits >= trace.duration_ns)
    return (
        numbered.with_columns((~pl.col("id").is_in(launched.get_column("id").implode())).alias("missing"))
        .unique("id", keep="first", maintain_order=True)
        .join(last, on="process_id", how="left", maintain_order="left")
        .with_columns((pl.col("missing") & after_end.fill_null(False)).alias("queued"))
        .select("process_id", "start_ns", "of_graph", "missing", "queued")
    )


def missing_activities_ratio(kernel_launches: pl.DataFrame) -> float | None:
    """Return the share of kernel launches, or of graph launches if larger, that lack their activity; None without launches.

    Launches that were still queued when the recording ended lack none.
    """
    shares = kernel_launches.filter(~pl.col("queued")).group_by("of_graph").agg(pl.col("missing").mean())
    ratio: float | None = shares.get_column("missing").max()  # type: ignore[assignment]
    return ratio


ANALYSES = (
    Value("dependent_launch_devices", dependent_launch_devices),
    Value("clock_bounds", clock_bounds),
    Value("late_starts", late_starts),
    Value("stream_figures", stream_figures),
    Value("kernel_launches", kernel_launches),
    Value("missing_activities_ratio", missing_activities_ratio),
    Value("device_figures", device_figures),
)
