"""Measure the consistency of a trace: figures per device that show how reliable it is."""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.graph_capture import is_captured
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.links import BY_ID, LAUNCHING, with_ids
from trace_analyzer.analyses.stream_overlaps import with_stream_overlaps
from trace_analyzer.analysis import Value
from trace_analyzer.frames.intervals import union
from trace_analyzer.frames.lookups import count_distinct, factorize, map_unique, starts_group

_STREAM = ["device", "context", "stream"]
_GRAPH = r"(?i)graph"
_NO_KERNEL = r"(?i)hostfunc|memcpy|memset|memprefetch|graph"


def device_figures(
    sums: pl.DataFrame,
    activities: pl.DataFrame,
    streams: pl.DataFrame,
    clocks: pl.DataFrame,
    late_starts: pl.DataFrame,
) -> pl.DataFrame:
    """Return one row per device with the figures of its checks; ratios are null where their base is 0.

    `trace_analyzer.checks` judges them.

    ``activities`` needs launch_id, launch_start_ns and group, in order of start; ``sums`` come from `causes.gap_sums`,
    ``streams`` from `stream_figures`, ``clocks`` and ``late_starts`` from `clocks`. Sums of device time include all
    activities.

    - link_coverage_ratio: device time with a known launch;
    - unlinked_before_ratio: device time of unlinked activities that began before the first linked one;
    - stream_overlap_ratio: device time of overlaps within one stream, except by design;
    - dependent_launches_ratio: device time of overlaps within one stream by design (see `stream_overlaps`);
    - started_before_launch_ratio: linked activities that began before their launch;
    - ended_after_wait_ratio: waits that returned while an awaited activity still ran;
    - late_starts_ratio: idle time in which launched work waits without a recorded reason, where no activity begins soon
      after its launch;
    - skewed_idle_ratio: idle time within the disagreement of the clocks, per gap;
    - impossible_durations_ratio: device time of activities that later ones of their stream mostly overlap;
    - short_durations_ratio: activities shorter than any device allows;
    - few_long_activities_ratio: device time of the five longest activities, except collectives, if there are many;
    - graph_share_ratio: device time of activities enqueued by graph launches;
    - untraced_ratio: idle time in recording pauses;
    - unnamed_host_time_ratio: idle time in which the host was late without a recorded event.
    """
    rows = activities.select("device", "start_ns", "duration_ns", "launch_id", "launch_start_ns", "group")
    time = pl.col("duration_ns").sum()
    linked = pl.col("launch_id").is_not_null()
    first_linked = pl.col("start_ns").filter(linked).min()
    longest = pl.col("duration_ns").filter(pl.col("group") != "communication").top_k(thresholds.FEW_ACTIVITIES).sum()
    of_device = rows.group_by("device").agg(
        (pl.col("duration_ns").filter(linked).sum() / time).alias("link_coverage_ratio"),
        (pl.col("duration_ns").filter(~linked & (pl.col("start_ns") < first_linked)).sum() / time).alias(
            "unlinked_before_ratio"
        ),
        (pl.col("start_ns") < pl.col("launch_start_ns")).filter(linked).mean().alias("started_before_launch_ratio"),
        (pl.col("duration_ns") < thresholds.SHORTEST_NS).mean().alias("short_durations_ratio"),
        pl.when(pl.len() >= thresholds.FEW_OF).then(longest / time).alias("few_long_activities_ratio"),
    )
    return (
        of_device.join(streams, on="device", how="left")
        .join(clocks, on="device", how="left")
        .join(_skewed_idle(rows, sums, clocks), on="device", how="left")
        .join(late_starts, on="device", how="left")
        .join(_idle_shares(sums), on="device", how="left")
        .with_columns(pl.col("^.*_ratio$").fill_nan(None))
        .sort("device")
    )


def stream_figures(activities: pl.DataFrame, dependent_launch_devices: tuple[int, ...]) -> pl.DataFrame:
    """Return device and figures of its streams: ratios of graphs, overlaps and impossible durations.

    ``activities`` needs launch_name and launch_start_ns.
    """
    by_graph = pl.col("launch_name").str.contains(_GRAPH).fill_null(False)
    in_graph = map_unique(activities.select("launch_name"), by_graph.alias("in_graph")).to_series()
    end, time = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"), pl.col("duration_ns")
    rows = activities.select(*_STREAM, "kind", "start_ns", end, "duration_ns", "launch_start_ns", in_graph)
    shares = rows.group_by("device").agg((time.filter("in_graph").sum() / time.sum()).alias("graph_share_ratio"))
    return shares.join(_overlaps(rows.filter(~in_graph), dependent_launch_devices), on="device", how="left")


def _overlaps(in_order_only: pl.DataFrame, able: tuple[int, ...]) -> pl.DataFrame:
    """Return device and ratios of overlaps on its streams; only activities of graphs may be recorded out of order."""
    _, firsts = factorize(*in_order_only.select(_STREAM))
    ordered = with_stream_overlaps(in_order_only, able)
    covered = union(ordered, ["track"])
    next_ns = pl.when(~starts_group("track").shift(-1, fill_value=True)).then(pl.col("start_ns").shift(-1))
    end, length = pl.col("end_ns"), pl.col("duration_ns")
    impossible = (length >= thresholds.IMPOSSIBLE_NS) & (2 * (end - next_ns) > length)
    time_ns = length.sum().alias("time_ns")
    covered_ns = covered.group_by(in_order_only.get_column("device")[firsts][covered.get_column("track")]).agg(
        (end - pl.col("start_ns")).sum().alias("covered_ns")
    )
    return (
        ordered.with_columns(impossible.fill_null(False).alias("impossible"))
        .group_by("device")
        .agg(time_ns, length.filter("impossible").sum().alias("impossible_ns"), pl.col("designed_ns").sum())
        .join(covered_ns, on="device", how="left")
        .select(
            "device",
            ((pl.col("time_ns") - pl.col("covered_ns").fill_null(0) - pl.col("designed_ns")) / pl.col("time_ns")).alias(
                "stream_overlap_ratio"
            ),
            (pl.col("designed_ns") / pl.col("time_ns")).alias("dependent_launches_ratio"),
            (pl.col("impossible_ns") / pl.col("time_ns")).alias("impossible_durations_ratio"),
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
    known_ns = pl.when(~pl.col("cause").is_in(["unlinked", "untraced"])).then("idle_ns").otherwise(0)
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
        for cause, name in (("untraced", "untraced_ratio"), ("host-unknown", "unnamed_host_time_ratio"))
    )


def missing_activities_ratio(host: Host, launches: pl.DataFrame, captures: pl.DataFrame) -> float | None:
    """Return the share of kernel launches without a recorded activity; None without launches.

    A call within one of ``captures`` (see `graph_capture.captures`) adds its kernel to a graph, and launches nothing.
    Calls of one correlation id in one process count once: they are the runtime's and the driver's name of the same
    launch.
    """
    launching = pl.col("name").str.contains(LAUNCHING) & ~pl.col("name").str.contains(_NO_KERNEL)
    calls = host.calls_of(launching).drop_nulls("correlation")
    calls = calls.filter(~is_captured(calls, captures)).select(BY_ID)
    process = host.events.get_column("process_id")[launches.get_column("launch_id")]
    ids, call_ids = (rows.get_column("id") for rows in with_ids(calls, launches.select(process, "correlation")))
    if ids.is_empty():
        return None
    count = count_distinct(ids)
    return (count - count_distinct(call_ids)) / count


ANALYSES = (
    Value("stream_figures", stream_figures, {"activities": "linked_events"}),
    Value(
        "missing_activities_ratio",
        missing_activities_ratio,
        {"launches": "unmasked_launches", "captures": "graph_captures"},
    ),
    Value(
        "device_figures",
        device_figures,
        {"sums": "unmasked_gap_sums", "streams": "stream_figures", "clocks": "clock_bounds"},
    ),
)
