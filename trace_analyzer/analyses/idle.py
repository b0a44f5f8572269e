"""Find when each device worked and when it idled, over all its streams, and for another program in turn (time-slicing).

A turn of another program interrupts this one anywhere: its work is queued, waits for nothing recorded, and goes on after a
gap of one length. What a program itself waits for comes before the same work each time, or varies.
"""

from collections.abc import Sequence

import polars as pl

from trace_analyzer import errors, schema, thresholds, units, vocabulary
from trace_analyzer.analyses.causes import causes_but, launches_after_waits
from trace_analyzer.analyses.host import Host
from trace_analyzer.analysis import CAUSES_OF_IDLE, Analysis, Value
from trace_analyzer.frames.intervals import END_NS, LENGTH_NS, longest_place, sort_spans, union
from trace_analyzer.frames.lookups import over_group, scatter, starts_group, sum_runs
from trace_analyzer.sections import DEVICE_LABEL, WHOLE_TRACE, Section, Shown

GAPS = schema.Table(
    "gaps",
    "Maximal idle intervals of a device, of the 256 busiest.",
    schema.columns("""
        gap_id device start_ns end_ns duration_ns
        activity_id u32 The activity that ends the gap.
        launch_id
        cause str The cause that holds most of it.
        next_activity str Name of the activity that ends it.
        next_launch_ns i64 When the launch of that activity began; null without one.
    """),
)

GAPS_SECTION = Section(
    "Longest gaps",
    show=(
        Shown("cause", "main cause", "part"),
        DEVICE_LABEL,
        Shown("start_ns", "start"),
        Shown("duration_ns", "length"),
        Shown("next_activity", "ended by", "name"),
    ),
    sort=("-duration_ns", "start_ns"),
    key="gaps",
    table="gaps",
    scope=WHOLE_TRACE,
)


CAUSES = schema.Table(
    "causes",
    "Idle time of each device by cause.",
    schema.columns(
        """
        device
        cause str Why the device idled.
        time_ns i64 Idle time with this cause.
        idle_ratio f64 Share of the device's idle time.
        """,
        *schema.PLACE,
    ),
)

CAUSES_SECTION = Section(
    "By cause",
    show=(
        Shown("cause", "cause", "part"),
        DEVICE_LABEL,
        Shown("time_ns", "time"),
        Shown("idle_ratio", "share of idle", "share"),
    ),
    sort=("-time_ns",),
    key="causes",
    table="causes",
    scope=WHOLE_TRACE,
)


MAX_DEVICES = 256
"""Most devices of a report: each costs milliseconds and idles while others are served, and a damaged file may name a million."""


def device_windows(linked_events: pl.DataFrame) -> pl.DataFrame:
    """Return device, start_ns, end_ns, busy_ns of the `MAX_DEVICES` busiest, from the first activity's start to the last one's end."""
    spans = linked_events.select("device", "start_ns", END_NS)
    busy = union(spans, ["device"]).group_by("device").agg(LENGTH_NS.sum().alias("busy_ns"))
    return (
        spans.group_by("device")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .join(busy, on="device", how="left")
        .with_columns(pl.col("busy_ns").fill_null(0))
        .sort("busy_ns", "device", descending=[True, False])
        .head(MAX_DEVICES)
        .sort("device")
    )


def idle_gaps(linked_events: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return maximal idle intervals of the devices of ``windows``: gap_id, device, start_ns, end_ns, activity_id (the activity that ends it).

    A gap is where an activity starts after all earlier activities of its device have ended, so an activity of duration
    0 splits an idle interval. Of several activities with equal starts, the one with the earliest launch ends the gap,
    then that of the lowest stream, then of the lowest correlation id. ``linked_events`` needs launch_start_ns.
    """
    place, merit = ("device", "start_ns"), ("launch_start_ns", "stream", "correlation", "activity_id")
    if windows.height == MAX_DEVICES:
        linked_events = linked_events.join(windows, on="device", how="semi", maintain_order="left")
    ordered = sort_spans(linked_events.select(*place, *merit, END_NS), ["device"])
    until = over_group(ordered, "device", pl.col("end_ns").cum_max().shift(1))
    is_first = starts_group(*place)
    together = ordered.filter(~is_first | ~is_first.shift(-1, fill_value=True)).sort(*place, *merit, nulls_last=True)
    best = together.unique(place, keep="first", maintain_order=True).select(*place, pl.col("activity_id").alias("best"))
    return (
        ordered.with_columns(until.alias("busy_until"))
        .filter(pl.col("start_ns") > pl.col("busy_until"))
        .join(best, on=place, how="left", maintain_order="left")
        .select(
            pl.int_range(pl.len(), dtype=pl.UInt32).alias("gap_id"),
            "device",
            pl.col("busy_until").alias("start_ns"),
            pl.col("start_ns").alias("end_ns"),
            pl.coalesce("best", "activity_id").alias("activity_id"),
        )
    )


def gap_sums(idle_gaps: pl.DataFrame, unmasked_idle_causes: pl.DataFrame) -> pl.DataFrame:
    """Return gap_id, cause, idle_ns, device: the time of each cause in each gap, in order."""
    lengths = unmasked_idle_causes.select("gap_id", "cause", LENGTH_NS.alias("idle_ns"))
    sums = sum_runs(lengths, "gap_id", "cause", "idle_ns")
    return sums.with_columns(idle_gaps.get_column("device")[sums.get_column("gap_id")])


def gap_table(idle_gaps: pl.DataFrame, gap_sums: pl.DataFrame, linked_events: pl.DataFrame) -> pl.DataFrame:
    """Return table `gaps` with categorical texts: each gap with its largest cause and the activity that ended it.

    ``gap_sums`` are `gap_sums`.
    """
    causes = (
        gap_sums.sort("gap_id", "idle_ns", "cause", descending=[False, True, False])
        .unique("gap_id", keep="first", maintain_order=True)
        .select("gap_id", "cause")
    )
    ends = linked_events.select(
        "launch_id", pl.col("name").alias("next_activity"), pl.col("launch_start_ns").alias("next_launch_ns")
    )
    frame = idle_gaps.with_columns(
        scatter(causes.get_column("gap_id"), causes.get_column("cause"), idle_gaps.height),
        LENGTH_NS.alias("duration_ns"),
    ).hstack(ends[idle_gaps.get_column("activity_id")])
    return frame.select(list(GAPS.schema))


def cause_table(idle: pl.DataFrame) -> pl.DataFrame:
    """Return table `causes`: intervals of table `idle` summed by device and cause, each device's longest cause first."""
    lengths = idle.with_columns(LENGTH_NS.alias("duration_ns"))
    time = pl.col("time_ns")
    sums = (
        lengths.group_by("device", pl.col("cause").cast(pl.String))
        .agg(pl.col("duration_ns").sum().alias("time_ns"), *longest_place())
        .sort("device", "time_ns", "cause", descending=[False, True, False])
    )
    return CAUSES.conform(sums.with_columns((time / time.sum().over("device")).alias("idle_ratio")))


def _sums_without_causes(sums: pl.DataFrame, devices: Sequence[int]) -> pl.DataFrame:
    owners = sums.select("gap_id", "device").unique(maintain_order=True)
    merged = sum_runs(sums.with_columns(causes_but(devices)), "gap_id", "cause", "idle_ns")
    return merged.join(owners, on="gap_id", how="left", maintain_order="left")


def time_slices(
    gap_segments: pl.DataFrame,
    idle_gaps: pl.DataFrame,
    activities: pl.DataFrame,
    host: Host,
    unmasked_launches: pl.DataFrame,
) -> pl.DataFrame:
    """Return gap_id of the gaps that are turns of another program.

    Of the gaps of a device with work queued from their start, of `DEVICE_GAP_NS` or more, that no communication and no
    launch after a wait for an event ends, `TIME_SLICES` or more, with at least half of the time, must have one length
    (within `TIME_SLICE_SPREAD` of the median by time) and most of these one distance (within
    `TIME_SLICE_DISTANCE_SPREAD`). Most pairs of activities with the names before and after them must follow each other
    without such a gap: turns come anywhere in the program, waits of its own at certain places.
    """
    queued = (
        gap_segments.filter(pl.col("cause") == "device", LENGTH_NS >= thresholds.DEVICE_GAP_NS)
        .join(idle_gaps.select("gap_id", "start_ns", "activity_id"), on=["gap_id", "start_ns"])
        .join(launches_after_waits(host, unmasked_launches), on="launch_id", how="anti")
    )
    if queued.height < thresholds.TIME_SLICES:
        return queued.select("gap_id").clear()
    follows = ["device", "before", "name"]
    before = pl.col("name").shift(1).over("device", order_by="start_ns").alias("before")
    works = activities.select("device", before, "name", "bucket")
    sizes = LENGTH_NS.sort()
    waits = (
        queued.hstack(works.drop("device")[queued.get_column("activity_id")])
        .filter(pl.col("bucket").ne_missing("communication"))
        .sort("device", "start_ns")
        .with_columns(sizes.filter(2 * sizes.cum_sum() >= sizes.sum()).first().over("device").alias("usual"))
    )
    equal = _near(waits.with_columns(LENGTH_NS.alias("value")), thresholds.TIME_SLICE_SPREAD)
    equal = equal.filter((2 * LENGTH_NS.filter("near").sum() >= LENGTH_NS.sum()).over("device"), "near").with_columns(
        pl.col("start_ns").diff().over("device").alias("value")
    )
    turns = _near(
        equal.with_columns(pl.col("value").median().over("device").alias("usual")),
        thresholds.TIME_SLICE_DISTANCE_SPREAD,
    ).filter(pl.len().over("device") >= thresholds.TIME_SLICES, pl.col("near").mean().over("device") > 0.5)
    named = works.join(turns, on=follows, how="semi", nulls_equal=True).group_by("device").len("named")
    return turns.join(named, on="device").filter(2 * pl.len().over("device") < pl.col("named")).select("gap_id")


def _near(rows: pl.DataFrame, ratio: float) -> pl.DataFrame:
    """Return the rows with ``near``: whether their value is within this ratio of the usual one."""
    return rows.with_columns(((pl.col("value") - pl.col("usual")).abs() <= ratio * pl.col("usual")).alias("near"))


def time_slice_notes(idle_causes: pl.DataFrame, devices: pl.DataFrame) -> tuple[errors.Note, ...]:
    """Note for each device how many turns of another program there are, and of which length and distance."""
    turns = (
        idle_causes.filter(pl.col("cause") == vocabulary.TIME_SLICE)
        .join(devices.select("device", "label"), on="device")
        .group_by("device", "label")
        .agg(pl.len(), LENGTH_NS.median().alias("ns"), pl.col("start_ns").sort().diff().median().alias("every_ns"))
        .sort("device")
    )
    return tuple(
        errors.Note(
            "time-sliced-device",
            "warning",
            f"device {label} idles {count:,} times for {units.duration(ns)}, every {units.duration(every)}, before queued work that usually"
            " starts at once: another program seems to use it in turn (time-slicing), and kernels may hold such turns too;"
            " nvidia-smi or rocm-smi lists the programs; record again with the device to yourself",
            count,
        )
        for _, label, count, ns, every in turns.iter_rows()
    )


ANALYSES = (
    Value("windows", device_windows),
    Value("idle_gaps", idle_gaps),
    Value("gap_sums", gap_sums, needs=(CAUSES_OF_IDLE,), hide=_sums_without_causes),
    Value("time_slices", time_slices),
    Value("time_slice_notes", time_slice_notes),
    Analysis(CAUSES, cause_table, placed=(CAUSES_SECTION,)),
    Analysis(GAPS, gap_table, placed=(GAPS_SECTION,)),
)
