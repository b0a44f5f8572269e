"""Sum operators by name, with their CPU and device time, and kernels by bucket and group, as the article does."""

import polars as pl

from trace_analyzer import analysis, schema, thresholds
from trace_analyzer.analyses.host import Context
from trace_analyzer.analyses.roofline import work_rates, work_sums
from trace_analyzer.catalog.event_names import CALLS
from trace_analyzer.frames import intervals, lookups
from trace_analyzer.sections import WHOLE_TRACE, Longest, Section, Shown

OPERATORS = schema.Table(
    "operators",
    "Operators summed up by name.",
    schema.columns("""
        name
        count u32 How often it ran.
        host_ns i64 CPU time, children included.
        host_self_ns i64 CPU time without that of operators within it.
        python_ns i64 Python's time for it: within it, and since the thread's previous operator; null where no frames
            were recorded.
        dispatch_ns i64 CPU time of the operator's own code.
        runtime_ns i64 CPU time in runtime and driver calls that it made itself and that do not block.
        blocked_ns i64 CPU time in calls of its own that wait for the device.
        host_device_ratio f64 Python, dispatch and runtime time per device time launched; null without any.
        launch_count u32 Launches made while it was the innermost operator.
        short_launch_count u32 Of these, those that took the CPU longer than the device: call and dispatch.
        device_ns i64 Device time of the activities of these launches.
    """),
)

OPERATORS_SECTION = Section(
    "What operators cost the CPU",
    show=(
        Shown("name", "operator", "name", terminal=0, markdown=True),
        Shown("count", "calls", terminal=40, markdown=True),
        Shown("launch_count", "launches", markdown=True, term="launch", unless_zero=True),
        Shown("short_launch_count", "not worth it", markdown=True, term="short-launch", unless_zero=True),
        Shown("host_ns", "CPU time", terminal=64),
        Shown("host_self_ns", "own CPU time", terminal=0, term="self"),
        Shown("python_ns", "Python", markdown=True, unless_zero=True),
        Shown("dispatch_ns", "dispatch", markdown=True),
        Shown("runtime_ns", "runtime calls", markdown=True, unless_zero=True),
        Shown("blocked_ns", "waiting", markdown=True, term="waiting", unless_zero=True),
        Shown("device_ns", "device time", markdown=True, term="device-time", unless_zero=True),
        Shown("host_device_ratio", "CPU per device time", "times"),
    ),
    sort=("-host_self_ns", "name"),
    rows=8,
    place=Longest("host_events", ("name",), kind="operator"),
    scope=WHOLE_TRACE,
    top=True,
    record="Record with activities=[ProfilerActivity.CPU, ...] to see operators.",
    key="operators",
    table="operators",
)

# Functions of the interpreter in which a thread waits, for another thread or for time to pass.
_WAITS = r"^<built-in (method|function) (run_backward|acquire|wait|sleep|select|poll|recv|read|join)\b"


def operator_table(
    runtime_calls: pl.DataFrame, activities: pl.DataFrame, launches: pl.DataFrame, context: Context
) -> pl.DataFrame:
    """Return table `operators` by CPU self time, split into Python, dispatch and runtime call time.

    The self time of an event is its duration without its children (of an annotation: it counts as dispatch). Python
    time is the time of frames within the operator, and the time since the thread's previous operator, without calls,
    named work and waiting in between. A launch is short when its device time is less than the time of the call and its
    share of the operator's dispatch.
    """
    host, events = context.host, context.events
    is_operator = host.each((pl.col("kind") == "operator") & ~pl.col("marks"))
    # The number of every operator's name, for sums; null for other events.
    name_of = events.select(pl.when(is_operator).then("name_id")).to_series()
    operators = events.filter(is_operator)
    blocks = lookups.inverse_index(runtime_calls.filter("blocks").get_column("launch_id"), events.height).is_not_null()
    spent = _spent(events, blocks)

    launched = _launched(launches, activities, spent, blocks)
    duration = pl.col("duration_ns")
    in_parts = [pl.col("self_ns").filter(pl.col("part") == part).sum().alias(part) for part in _PARTS]
    with_python = host.names.get_column("kind").eq("python").any()
    frame = operators.group_by("name_id").agg(
        pl.col("name").first(), pl.len().alias("count"), duration.sum().alias("host_ns")
    )
    for rows, figures in (
        (spent, in_parts),
        (_led_in(operators, context), [pl.col("led_in_ns").sum()]),
        (activities.select("operator_id", "duration_ns"), [duration.sum().alias("device_ns")]),
        (launched, [pl.len().alias("launch_count"), pl.col("short").sum().alias("short_launch_count")]),
    ):
        named = rows.with_columns(name_of.gather(rows.get_column("operator_id")).alias("name_id")).drop_nulls("name_id")
        frame = frame.join(named.group_by("name_id").agg(figures), on="name_id", how="left")
    cost = pl.col("dispatch_ns") + pl.col("runtime_ns") + pl.col("python_ns").fill_null(0)
    frame = (
        frame.fill_null(0)
        .with_columns(
            pl.sum_horizontal(_PARTS).alias("host_self_ns"),
            pl.when(pl.lit(with_python)).then(pl.col("inner_python_ns") + pl.col("led_in_ns")).alias("python_ns"),
        )
        .with_columns(pl.when(pl.col("device_ns") > 0).then(cost / pl.col("device_ns")).alias("host_device_ratio"))
        .sort("host_self_ns", "name", descending=[True, False])
    )
    return OPERATORS.conform(frame)


_PARTS = ("dispatch_ns", "runtime_ns", "blocked_ns", "inner_python_ns")
"""Kinds of self time of an operator's own events: its code, non-blocking calls, blocking calls, and Python."""


def _spent(events: pl.DataFrame, blocks: pl.Series) -> pl.DataFrame:
    """Return operator_id, self_ns (duration without children), and the kind of this time."""
    below = events.group_by("parent_id").agg(pl.col("duration_ns").sum()).drop_nulls("parent_id")
    inner = lookups.scatter(below.get_column("parent_id"), below.get_column("duration_ns"), events.height).fill_null(0)
    dispatch, runtime, blocked, python = (pl.lit(part, dtype=pl.Enum(_PARTS)) for part in _PARTS)
    called = pl.when(pl.col("kind").is_in(CALLS)).then(runtime)
    part = (
        pl.when(blocks)
        .then(blocked)
        .otherwise(called.when(pl.col("kind") == "python").then(python).otherwise(dispatch))
    )
    own = (pl.col("duration_ns") - inner).clip(lower_bound=0)
    return events.select("operator_id", own.alias("self_ns"), part.alias("part"))


def _launched(launches: pl.DataFrame, activities: pl.DataFrame, spent: pl.DataFrame, blocks: pl.Series) -> pl.DataFrame:
    """Return operator_id and short of each launch in an operator, except blocking calls."""
    made = launches.drop_nulls("operator_id").select("operator_id", "launch_id", "duration_ns")
    worked = activities.group_by("launch_id").agg(pl.col("duration_ns").sum().alias("worked_ns")).drop_nulls()
    launching = lookups.inverse_index(made.get_column("operator_id").unique(), blocks.len()).is_not_null()
    dispatch = (
        spent.filter((pl.col("part") == "dispatch_ns") & launching.gather(spent.get_column("operator_id")))
        .group_by("operator_id")
        .agg(pl.col("self_ns").sum().alias("dispatch_ns"))
    )
    share = pl.col("dispatch_ns").fill_null(0) // pl.len().over("operator_id")
    return (
        made.join(worked, on="launch_id", how="left", maintain_order="left")
        .join(dispatch, on="operator_id", how="left", maintain_order="left")
        .select(
            "operator_id",
            (pl.col("worked_ns") < pl.col("duration_ns") + share).alias("short")
            & ~blocks.gather(made.get_column("launch_id")),
        )
    )


def _led_in(operators: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Return operator_id, led_in_ns: host time since the thread's previous outermost operator, without other work."""
    around = context.events.get_column("operator_id").gather(operators.get_column("parent_id"))
    outer = (
        operators.filter(around.is_null())
        .sort("thread_id", "start_ns")
        .select(
            "operator_id",
            "thread_id",
            pl.col("end_ns").cum_max().shift(1).over("thread_id").alias("previous_ns"),
            "start_ns",
        )
        .drop_nulls()
        .filter(pl.col("previous_ns") < pl.col("start_ns"))
    )
    is_work = pl.col("kind").is_in(CALLS) | pl.col("work").is_not_null()
    other = intervals.union(context.host.those(is_work | pl.col("name").str.contains(_WAITS)), ["thread_id"])
    return intervals.with_covered(outer, other, ["thread_id"], "other_ns", start="previous_ns", end="start_ns").select(
        "operator_id", (pl.col("start_ns") - pl.col("previous_ns") - pl.col("other_ns")).alias("led_in_ns")
    )


def launch_counts(operators: pl.DataFrame) -> tuple[int, int]:
    """Return the number of launches in table `operators`, and of those that took the CPU longer than the device."""
    launches, short = operators.select(pl.col("launch_count", "short_launch_count").sum()).row(0)
    return int(launches), int(short)


ANALYSES = (analysis.Analysis(OPERATORS, operator_table, placed=(OPERATORS_SECTION,)),)


def bucket_work(kernels: pl.DataFrame) -> pl.DataFrame:
    """Sum kernels (see `roofline.with_roofs`) of one device by bucket, longest first.

    In addition to sums and rates: ``time_ratio`` and ``flop_ratio`` are shares of the total over all buckets (of known
    FLOP), and ``known_ratio`` is the share of the bucket's time with known FLOP. A rate is null where that is below
    `thresholds.KNOWN_RATE_RATIO`. Shares of FLOP are null where it is for all matmuls and convolutions together, which
    have nearly all FLOP.
    """
    return _summed(kernels, "bucket", pl.col("group").mode().sort().first()).with_columns(*_well_known())


def group_work(kernels: pl.DataFrame) -> pl.DataFrame:
    """Sum kernels by group, with ``slower_ratio``: the matmul group's FLOP/s divided by the group's.

    This is the article's "normalization achieves 250x less FLOP/s". It is null where too little of either group's time
    has known FLOP for its rate to represent the group.
    """
    rate = pl.when(pl.col("known_ratio") >= thresholds.KNOWN_RATE_RATIO).then("achieved_flop_per_s")
    matmul = rate.filter(pl.col("group") == "matmul").first()
    slower = pl.when(rate > 0).then(matmul / rate)
    return _summed(kernels, "group").with_columns(slower.alias("slower_ratio")).with_columns(*_well_known())


def _summed(kernels: pl.DataFrame, by: str, *figures: pl.Expr) -> pl.DataFrame:
    """Return sums, rates and shares of kernels with this key, longest first."""
    sums = kernels.drop_nulls(by).group_by(by).agg(*figures, *work_sums())
    return sums.sort("time_ns", by, descending=[True, False]).with_columns(*work_rates(), *_shares())


def _shares() -> list[pl.Expr]:
    time, flop = pl.col("time_ns"), pl.col("flop")
    return [
        pl.when(time.sum() > 0).then(time / time.sum()).otherwise(0.0).alias("time_ratio"),
        pl.when(flop.sum() > 0).then(flop / flop.sum()).alias("flop_ratio"),
        pl.when(time > 0).then(pl.col("flop_time_ns") / time).otherwise(0.0).alias("known_ratio"),
    ]


def _well_known() -> list[pl.Expr]:
    """Return rates and shares of FLOP, null where too little of a group's work is known to represent it."""
    enough = pl.col("known_ratio") >= thresholds.KNOWN_RATE_RATIO
    known, time = (pl.col(column).filter(pl.col("group") == "matmul").sum() for column in ("flop_time_ns", "time_ns"))
    products_known = (time == 0) | (known >= thresholds.KNOWN_RATE_RATIO * time)
    return [
        pl.when(enough).then("achieved_flop_per_s").alias("achieved_flop_per_s"),
        pl.when(products_known).then("flop_ratio").alias("flop_ratio"),
    ]
