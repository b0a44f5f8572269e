"""Attribute device time, FLOP and bytes to nn.Modules, with and without their children."""

import polars as pl

from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.roofline import sums_of_sums, work_rates, work_sums
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.frames.intervals import innermost_at
from trace_analyzer.frames.lookups import lookup
from trace_analyzer.schema import RATES, Table, columns
from trace_analyzer.sections import DEVICE_LABEL, WHOLE_TRACE, Longest, Section, Shown

MODULES = Table(
    "modules",
    "Kernels summed up by nn.Module, backward work with the module of its forward operator.",
    columns(
        """
        device
        module str Name of the module instance, as the profiler numbers it.
        class str Its class.
        parent str The module around it; null outermost.
        depth i64 Modules around it.
        call_count u32 Calls of it.
        host_ns i64 CPU time of these calls, children included.
        count time_ns
        backward_ns i64 The part of it in the backward pass.
        self_ns i64 The part of it outside of child modules.
        flop moved_bytes
        """,
        *RATES,
    ),
)

MODULES_SECTION = Section(
    "Modules",
    show=(
        Shown("module", "module", "name"),
        Shown("parent", "in", "name"),
        DEVICE_LABEL,
        Shown("call_count", "calls"),
        Shown("host_ns", "CPU time"),
        Shown("time_ns", "device time"),
        Shown("backward_ns", "backward", unless_zero=True),
        Shown("self_ns", "own device time"),
        Shown("achieved_flop_per_s", "FLOP/s", term="known-work"),
        Shown("lost_ns", "time over roof", term="lost"),
    ),
    sort=("-time_ns", "depth", "module"),
    place=Longest("host_events", ("module",), kind="python", prefix="nn.Module: "),
    record="Record with with_stack=True to see time by nn.Module.",
    key="modules",
    table="modules",
    scope=WHOLE_TRACE,
)

MODULE = "nn.Module: "
MODULE_CLASS = pl.col("module").str.replace(r"_\d+$", "")
"""Class of a module: the profiler adds the number of the instance (torch/csrc/profiler/collection.cpp)."""


def launch_places(host: Host, linked_events: pl.DataFrame, backward_links: pl.DataFrame) -> pl.DataFrame:
    """Return the place in the program of each launched activity: (activity_id, thread_id, time_ns, is_backward).

    It is the launch or, for a backward operator, its forward operator, so that the enclosing modules are those of the
    forward pass.
    """
    launches = linked_events.drop_nulls("launch_id").select(
        "activity_id", pl.col("launch_thread").alias("thread_id"), pl.col("launch_start_ns").alias("time_ns")
    )
    if backward_links.is_empty():
        return launches.with_columns(pl.lit(False).alias("is_backward"))
    spans = host.events.select("thread_id", "start_ns", "end_ns")[backward_links.get_column("event_id")].with_columns(
        backward_links.get_column("forward_id")
    )
    located = innermost_at(launches, "time_ns", spans, "forward_id")
    forward = host.events.select(
        pl.col("thread_id").alias("forward_thread_id"), pl.col("start_ns").alias("forward_ns")
    )[located.get_column("forward_id")]
    return located.hstack(forward).select(
        "activity_id",
        pl.coalesce("forward_thread_id", "thread_id").alias("thread_id"),
        pl.coalesce("forward_ns", "time_ns").alias("time_ns"),
        pl.col("forward_ns").is_not_null().alias("is_backward"),
    )


def module_table(module_frames: pl.DataFrame, rated: pl.DataFrame, located: pl.DataFrame) -> pl.DataFrame:
    """Return table `modules`: kernels (see `roofline.with_roofs`) summed by the modules around their place.

    For kernels of graphs, ``located`` has the places of the kernels that they match.
    """
    if module_frames.is_empty():
        return MODULES.empty()
    backward_ns = pl.col("duration_ns").filter("is_backward").sum().alias("backward_ns")
    own = (
        located.drop_nulls("module_event")
        .join(rated, on="activity_id", how="inner", maintain_order="left")
        .group_by("device", "module_event", maintain_order=True)
        .agg(*work_sums(), backward_ns)
    )
    around = _ancestors(own.select("module_event").unique(), module_frames)
    known = module_frames.group_by("module").agg(
        pl.len().cast(pl.UInt32).alias("call_count"),
        pl.col("depth").min(),
        pl.col("parent").drop_nulls().mode().sort().first(),
        (pl.col("end_ns") - pl.col("start_ns")).sum().alias("host_ns"),
    )
    frame = (
        own.join(around, on="module_event", how="inner", maintain_order="left_right")
        .group_by("device", "module", maintain_order=True)  # fixed order, so that floating-point sums are reproducible
        .agg(*sums_of_sums(), pl.col("backward_ns").sum(), pl.col("time_ns").filter("is_self").sum().alias("self_ns"))
        .join(known, on="module", how="left")
        .with_columns(*work_rates(), MODULE_CLASS.alias("class"))
        .sort("time_ns", "depth", "device", "module", descending=[True, False, False, False])
    )
    return MODULES.conform(frame)


def module_frames(host: Host) -> pl.DataFrame:
    """Return every module call: event_id, thread_id, start_ns, end_ns, module, depth, and the enclosing call.

    ``parent_id`` is the enclosing call's event and ``parent`` its module, null for the outermost. The enclosing call is
    the last earlier call with a depth less by one.
    """
    calls = (
        host.those((pl.col("kind") == "python") & pl.col("name").str.starts_with(MODULE))
        .filter(pl.col("duration_ns") > 0)
        .select("event_id", "thread_id", "start_ns", "end_ns", pl.col("name").str.strip_prefix(MODULE).alias("module"))
        .sort("thread_id", "start_ns", "end_ns", "event_id", descending=[False, False, True, False])
        .with_row_index("rank")
    )
    closed = (
        calls.sort("end_ns")
        .select("thread_id", "end_ns", pl.int_range(1, pl.len() + 1).over("thread_id").alias("closed"))
        .unique(["thread_id", "end_ns"], keep="last", maintain_order=True)
    )
    opened = pl.int_range(pl.len()).over("thread_id")
    deep = (
        calls.with_columns(opened.alias("opened"))
        .sort("start_ns")
        .join_asof(closed, left_on="start_ns", right_on="end_ns", by="thread_id", check_sortedness=False)
        .with_columns((pl.col("opened") - pl.col("closed").fill_null(0)).alias("depth"))
        .sort("rank")
    )
    outer = deep.select(
        "thread_id",
        "rank",
        pl.col("depth") + 1,
        pl.col("event_id").alias("parent_id"),
        pl.col("module").alias("parent"),
    )
    return deep.join_asof(outer, on="rank", by=["thread_id", "depth"], check_sortedness=False).select(
        "event_id", "thread_id", "start_ns", "end_ns", "module", "depth", "parent_id", "parent"
    )


def activity_modules(module_frames: pl.DataFrame, launched_located: pl.DataFrame) -> pl.DataFrame:
    """Return (activity_id, module): the innermost module around each activity's place, where there is one."""
    return launched_located.join(
        module_frames.select(pl.col("event_id").alias("module_event"), "module"),
        on="module_event",
        how="inner",
        maintain_order="left",
    ).select("activity_id", "module")


def _ancestors(calls: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    """Return (module_event, module, is_self): each call with its distinct enclosing modules."""
    rows = frames.select("event_id").with_row_index("row")
    outer = lookup(rows.rename({"event_id": "parent_id"}), frames, "parent_id").get_column("row")
    level = calls.select("module_event").join(
        rows.rename({"event_id": "module_event"}), on="module_event", how="inner", maintain_order="left"
    )
    levels: list[pl.DataFrame] = []
    # Joining with all frames at each level would make the cost of a deep nest quadratic.
    while level.height:
        levels.append(level.with_columns(pl.lit(not levels).alias("is_self")))
        level = level.with_columns(outer[level.get_column("row")].alias("row")).drop_nulls("row")
    if not levels:
        return calls.select(
            "module_event", pl.lit(None, dtype=frames.schema["module"]).alias("module"), is_self=True
        ).clear()
    around = pl.concat(levels)
    return around.select("module_event", frames.get_column("module")[around.get_column("row")], "is_self").unique(
        ["module_event", "module"], keep="first", maintain_order=True
    )


# Find the module call around a place in the program.


def with_module_event(places: pl.DataFrame, module_frames: pl.DataFrame) -> pl.DataFrame:
    """Add ``module_event``: the innermost module call around each place."""
    calls = module_frames.rename({"event_id": "module_event"})
    return innermost_at(places, "time_ns", calls, "module_event")


ANALYSES = (
    Value("places", launch_places),
    Value("module_frames", module_frames),
    Value("launched_located", with_module_event),
    Value("launched_modules", activity_modules),
    Analysis(MODULES, module_table, placed=(MODULES_SECTION,)),
)
