"""Partition a device's window: each instant is one kind of work, or idle time with one cause."""

import polars as pl

from trace_analyzer import analysis, schema
from trace_analyzer.analyses.host import Context
from trace_analyzer.frames import intervals, lookups
from trace_analyzer.options import Options
from trace_analyzer.vocabulary import WORK

PARTITION = schema.Table(
    "partition",
    "Each device's whole window as disjoint intervals.",
    schema.columns("""
        device start_ns end_ns part
    """),
)


def partition(busy_parts: pl.DataFrame, idle_causes: pl.DataFrame) -> pl.DataFrame:
    """Return table `partition`: busy time by bound and idle time by cause, disjoint, covering each window."""
    caused = idle_causes.select("device", "start_ns", "end_ns", pl.col("cause").cast(pl.Categorical).alias("part"))
    parts = intervals.sort_spans(pl.concat([busy_parts, caused]), ["device"]).select(list(PARTITION.schema))
    return intervals.coalesce(parts, ["device"], "part")


def part_sums(busy: pl.DataFrame, idle: pl.DataFrame, windows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Sum both halves of the partition over the disjoint ``windows``: ``by``, part, time_ns."""
    sums = pl.concat(
        [
            intervals.overlap_sums(busy, "part", windows, ["device"]),
            intervals.overlap_sums(idle.rename({"cause": "part"}), "part", windows, ["device"]),
        ]
    )
    return (
        windows.select(by)[sums.get_column("row")]
        .with_columns(sums.get_column("part"), sums.get_column("overlap_ns").alias("time_ns"))
        .group_by(*by, "part")
        .agg(pl.col("time_ns").sum())
        .sort(*by, "part")
    )


def busy_parts(activities: pl.DataFrame) -> pl.DataFrame:
    """Return device, start_ns, end_ns, part: of the bounds in progress, the first in the order of `WORK`."""
    lasting = activities.select("device", "start_ns", "duration_ns", "bound").filter(pl.col("duration_ns") > 0)
    spans = lasting.select(
        "device",
        "start_ns",
        intervals.END_NS,
        *((pl.col("bound") == work).fill_null(False).cast(pl.Int32).alias(work) for work in WORK),
    )
    part = pl.coalesce(*(pl.when(pl.col(work) > 0).then(pl.lit(work, dtype=pl.Categorical)) for work in WORK))
    parts = (
        intervals.sweep_sum(spans, "device", list(WORK))
        .select("device", "start_ns", pl.col("start_ns").shift(-1).alias("end_ns"), part.alias("part"))
        .drop_nulls("part")
    )
    return intervals.coalesce(parts, ["device"], "part")


# Assign every instant of a device's steady steps to one owner: an activity, or idle time with its cause.
#
# Owners sum to the length of the steps in integer ns, so that the difference of two recordings is a sum without
# remainder.

OWNERS = schema.Table(
    "owners",
    "Each instant of a device's steady steps with its one owner: an activity, or an interval of `blame`. Without steps: of its window.",
    schema.columns("""
        device
        step i64 `index` of the step; null where the device has none.
        start_ns end_ns part
        activity_id u32 The activity; null for idle time. One that owns nothing has a row without length.
        gap_id u32 The gap; null for work.
        event_id u32 The host event to blame for idle time; null for work.
        operator_id u32 `event_id` of the innermost operator around the launch, or of the one to blame.
        outer_operator_id u32 `event_id` of the outermost operator around the launch; compiled regions are none.
        operator
        outer_operator str Name of the outermost operator around the launch; null for idle time.
        module str Path of the nn.Modules without numbers of instances, `Net/Block/Linear`.
        python_function str Of idle time, as in `blame`.
        phase str data-loading, forward, backward or optimizer; null when it is not known.
    """),
)

_DEVICE = ["device"]
_SPAN = ["device", "start_ns", "end_ns"]
_WITHOUT_INSTANCES = pl.col("module").str.replace_all(r"_\d+(/|$)", "$1")
"""Path of modules without the numbers that the profiler adds, as these differ between recordings: ``Net/Block/Linear``."""
_COMPILED = r"CompiledFunction|Torch-Compiled Region|CompiledFxGraph"
"""Names that `torch.compile` gives to regions, independent of their content (torch/_dynamo, torch/_functorch)."""


def owners(
    activities: pl.DataFrame, blame: pl.DataFrame, device_steps: pl.DataFrame, context: Context, options: Options
) -> pl.DataFrame:
    """Return table `owners`.

    Of the activities that run at an instant, the owner has the first bound in the order of the partition, then the
    earliest start, then the lowest id. An idle instant belongs to its row of ``blame``. Devices without steps, or
    all where the whole trace is judged, are covered from the first activity's start to the last one's end. An activity of the steps without owned time has one
    row of length 0.
    """
    windows = step_windows(activities, device_steps.clear() if options.step == "all" else device_steps)
    pieces = _busy(activities, windows)
    busy = pieces.hstack(_calls(activities, context)[pieces.get_column("activity_id")])
    idle = intervals.clip(blame.drop("step").rename({"cause": "part"}), windows, _DEVICE)
    idle = idle.with_columns(lookups.map_unique(idle.select("module"), _WITHOUT_INSTANCES))
    # Both consist of a few sorted runs; merging them takes a third of the time of sorting.
    return intervals.sort_spans(pl.concat([_conformed(idle), _conformed(busy)]), _DEVICE, shortest_first=True)


def step_windows(activities: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return device, start_ns, end_ns, step of the steady steps.

    For a device without steady steps, the whole window has step null.
    """
    end = intervals.END_NS.max()
    steady = steps.filter(pl.col("steady") & (pl.col("end_ns") > pl.col("start_ns"))).select(
        *_SPAN, pl.col("index").alias("step")
    )
    whole = (
        activities.group_by("device")
        .agg(pl.col("start_ns").min(), end)
        .filter(pl.col("start_ns") < pl.col("end_ns"))
        .join(steady, on="device", how="anti")
        .with_columns(pl.lit(None, pl.Int64).alias("step"))
    )
    return pl.concat([steady, whole.select(steady.columns)]).sort(_SPAN)


def _busy(activities: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return device, start_ns, end_ns, step, activity_id, part: the time owned by each activity.

    Each activity has at least one row.
    """
    inside = intervals.clip(_spans(activities), windows, _DEVICE)
    pieces = _owned(inside)
    hidden = inside.unique("activity_id", keep="first", maintain_order=True).join(pieces, on="activity_id", how="anti")
    return pl.concat([pieces, hidden.with_columns(pl.col("start_ns").alias("end_ns"))])


def _spans(activities: pl.DataFrame) -> pl.DataFrame:
    part = pl.col("bound").cast(pl.String).fill_null("other")
    return activities.select(*_SPAN[:2], intervals.END_NS, "activity_id", part.alias("part"))


def _owned(spans: pl.DataFrame) -> pl.DataFrame:
    """Cut activities to the instants that they own: the first part in progress, then the first start, then row."""
    taken, owned = spans.select(_SPAN).clear(), []
    for part in WORK:
        mine = intervals.sort_spans(
            spans.filter((pl.col("part") == part) & (pl.col("start_ns") < pl.col("end_ns"))), _DEVICE
        )
        # The first activity occupies the device until it ends: of a later one, only the time after that remains.
        reached = lookups.over_group(mine, "device", pl.col("end_ns").cum_max().shift(1))
        left = mine.with_columns(pl.max_horizontal(pl.col("start_ns"), reached).alias("start_ns")).filter(
            pl.col("start_ns") < pl.col("end_ns")
        )
        owned.append(intervals.cut_out(left, taken, _DEVICE))
        taken = intervals.union(pl.concat([taken, mine.select(_SPAN)]), _DEVICE)
    return pl.concat(owned)


def _calls(activities: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Return operator_id, outer_operator_id, operator, outer_operator, module and phase of each activity, by row.

    Activities outside operators have the module and the phase of their launch.
    """
    around = activities.select(pl.coalesce("operator_id", "launch_id")).to_series()
    ids = around.drop_nulls().unique()
    outer = context.outermost_operators(~pl.col("name").str.contains(_COMPILED))[ids]
    known = pl.DataFrame(
        {
            "id": ids,
            "outer_operator_id": outer,
            "outer_operator": context.host.texts(outer),
            "module": context.modules(ids),
            "phase": context.events.get_column("phase")[ids],
        }
    )
    known = known.with_columns(lookups.map_unique(known.select("module"), _WITHOUT_INSTANCES))
    rows = pl.DataFrame({"id": around}).join(known, on="id", how="left", maintain_order="left").drop("id")
    return rows.with_columns(activities.get_column("operator_id"), activities.get_column("operator"))


def _conformed(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of table `owners`; null where the rows lack one."""
    return rows.select(
        (pl.col(column.name) if column.name in rows.columns else pl.lit(None)).cast(column.dtype).alias(column.name)
        for column in OWNERS.columns
    )


def exclusive_times(activities: pl.DataFrame) -> pl.Series:
    """Return exclusive_ns, the time that each activity owns, in order of activity_id: it sums to the busy time.

    Durations sum to more where activities overlap: on several streams, or on one stream where a dependent launch starts
    in the tail of the previous kernel. The exclusive times of a bound sum to its part of the partition.
    """
    owned = _owned(_spans(activities))
    lengths = owned.select(intervals.LENGTH_NS).to_series()
    return lookups.sum_by_group(owned.get_column("activity_id"), lengths, activities.height).alias("exclusive_ns")


ANALYSES = (
    analysis.Value("busy_parts", busy_parts, needs=(analysis.PARTITION,)),
    analysis.Analysis(PARTITION, partition, needs=(analysis.PARTITION,)),
    analysis.Analysis(OWNERS, owners),
    analysis.Value("exclusive_times", exclusive_times),
)
