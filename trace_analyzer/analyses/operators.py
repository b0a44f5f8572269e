"""Operators summed up by name: where their CPU time went, and the device time that they launched."""

import polars as pl

from trace_analyzer import tables
from trace_analyzer.analyses.context import Context
from trace_analyzer.analyses.intervals import union, with_covered
from trace_analyzer.catalog.code import is_annotation

# Functions of the interpreter in which a thread waits for another one, or for nothing.
_WAITS = r"^<built-in (method|function) (run_backward|acquire|wait|sleep|select|poll|recv|read|join)\b"


def operator_table(
    calls: pl.DataFrame, activities: pl.DataFrame, launches: pl.DataFrame, context: Context
) -> pl.DataFrame:
    """Table `operators`, by CPU self time: the flame graph of one addition (Python, dispatch, runtime call) for each.

    What an event spends by itself is its duration without what hangs below it (of an annotation: a part of dispatch). Python time is that of frames
    within the operator, and the time since the thread's previous operator, without calls, named work and
    waiting in between: what it took to get there. A launch is short when its device time is less than the call
    and its share of the operator's dispatch. ``calls`` come from `causes.runtime_calls`.
    """
    blocking = calls.filter("blocks").get_column("launch_id")
    events = _with_self(context).with_columns(pl.col("event_id").is_in(blocking.implode()).alias("blocks"))
    operators = events.filter((pl.col("kind") == "operator") & ~is_annotation())
    is_call = pl.col("kind").is_in(["runtime", "driver"])
    below = events.join(operators.select(pl.col("event_id").alias("operator_id")), on="operator_id", how="semi")
    shares = below.group_by("operator_id").agg(
        pl.col("self_ns").filter(~pl.col("kind").is_in(["runtime", "driver", "python"])).sum().alias("dispatch_ns"),
        pl.col("self_ns").filter(is_call & ~pl.col("blocks")).sum().alias("runtime_ns"),
        pl.col("self_ns").filter("blocks").sum().alias("blocked_ns"),
        pl.col("self_ns").filter(pl.col("kind") == "python").sum().alias("inner_python_ns"),
    )
    device = activities.group_by("operator_id").agg(pl.col("duration_ns").sum().alias("device_ns"))
    rows = (
        operators.join(shares, left_on="event_id", right_on="operator_id", how="left")
        .join(device.drop_nulls("operator_id"), left_on="event_id", right_on="operator_id", how="left")
        .join(_launched(launches, activities, shares, blocking), left_on="event_id", right_on="operator_id", how="left")
        .join(_led_in(events, operators), on="event_id", how="left")
    )
    with_python = events.get_column("kind").eq("python").any()
    python = pl.col("inner_python_ns").sum() + pl.col("led_in_ns").sum()
    frame = (
        rows.group_by("name")
        .agg(
            pl.len().alias("count"),
            pl.col("duration_ns").sum().alias("host_ns"),
            pl.sum_horizontal("dispatch_ns", "runtime_ns", "blocked_ns", "inner_python_ns").sum().alias("host_self_ns"),
            pl.when(pl.lit(with_python)).then(python).alias("python_ns"),
            pl.col("dispatch_ns", "runtime_ns", "blocked_ns").sum(),
            pl.col("launch_count", "short_launch_count", "device_ns").sum(),
        )
        .with_columns(
            pl.when(pl.col("device_ns") > 0)
            .then(
                (pl.col("dispatch_ns") + pl.col("runtime_ns") + pl.col("python_ns").fill_null(0)) / pl.col("device_ns")
            )
            .alias("host_device_ratio")
        )
        .sort("host_self_ns", "name", descending=[True, False])
    )
    return tables.OPERATORS.conform(frame)


def _with_self(context: Context) -> pl.DataFrame:
    """Events with self_ns: their duration without that of the events below them."""
    inner = context.events.group_by("parent_id").agg(pl.col("duration_ns").sum().alias("inner_ns")).drop_nulls()
    return context.events.join(
        inner, left_on="event_id", right_on="parent_id", how="left", maintain_order="left"
    ).with_columns((pl.col("duration_ns") - pl.col("inner_ns").fill_null(0)).clip(lower_bound=0).alias("self_ns"))


def _launched(
    launches: pl.DataFrame, activities: pl.DataFrame, shares: pl.DataFrame, blocking: pl.Series
) -> pl.DataFrame:
    """operator_id, launch_count, short_launch_count; how long a blocking call takes says nothing about launching."""
    worked = activities.group_by("launch_id").agg(pl.col("duration_ns").sum().alias("worked_ns")).drop_nulls()
    dispatch = pl.col("dispatch_ns").fill_null(0) // pl.len().over("operator_id")
    return (
        launches.drop_nulls("operator_id")
        .join(worked, on="launch_id", how="left")
        .join(shares.select("operator_id", "dispatch_ns"), on="operator_id", how="left")
        .with_columns(
            (pl.col("worked_ns") < pl.col("duration_ns") + dispatch).alias("short")
            & ~pl.col("launch_id").is_in(blocking.implode())
        )
        .group_by("operator_id")
        .agg(pl.len().alias("launch_count"), pl.col("short").sum().alias("short_launch_count"))
    )


def _led_in(events: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """event_id, led_in_ns of outermost operators: host time since the thread's previous one, but for other work."""
    around = events.get_column("operator_id").gather(operators.get_column("parent_id"))
    outer = (
        operators.filter(around.is_null())
        .sort("thread_id", "start_ns")
        .select(
            "event_id",
            "thread_id",
            pl.col("end_ns").cum_max().shift(1).over("thread_id").alias("previous_ns"),
            "start_ns",
        )
        .drop_nulls()
        .filter(pl.col("previous_ns") < pl.col("start_ns"))
    )
    is_work = pl.col("kind").is_in(["runtime", "driver"]) | pl.col("work").is_not_null()
    other = union(events.filter(is_work | pl.col("name").str.contains(_WAITS)), ["thread_id"])
    return with_covered(outer, other, ["thread_id"], "other_ns", start="previous_ns", end="start_ns").select(
        "event_id", (pl.col("start_ns") - pl.col("previous_ns") - pl.col("other_ns")).alias("led_in_ns")
    )
