"""Steps of the workload, on each device: where they lie, and which of them are representative."""

import polars as pl

from trace_analyzer import tables, thresholds
from trace_analyzer.analyses.intervals import covered_before, union
from trace_analyzer.ingest.trace import Trace

_PROFILER_STEP = r"^ProfilerStep#?\*?(\d+)$"


def host_steps(trace: Trace, activities: pl.DataFrame) -> tuple[pl.DataFrame, str | None]:
    """(process_id, index, name, host_start_ns, host_end_ns) in order, and what marks the steps.

    ``ProfilerStep#N``; else the annotation that repeats (but for numbers and arguments) and encloses
    most launches; else none.
    """
    marks = (
        trace.host_events.filter(pl.col("kind").is_in(["annotation", "operator"]))
        .join(trace.threads.select("thread_id", "process_id"), on="thread_id", how="left", maintain_order="left")
        .select(
            "process_id",
            "thread_id",
            "kind",
            "name",
            pl.col("start_ns").alias("host_start_ns"),
            (pl.col("start_ns") + pl.col("duration_ns")).alias("host_end_ns"),
        )
        .sort("process_id", "host_start_ns")
    )
    profiler = marks.with_columns(
        pl.col("name").str.extract(_PROFILER_STEP).cast(pl.Int64, strict=False).alias("index")
    ).drop_nulls("index")
    if profiler.height:
        return profiler.unique(["process_id", "index"], keep="first", maintain_order=True).select(
            _HOST_STEP
        ), "ProfilerStep"
    repeated = _repeated_annotation(marks.filter(pl.col("kind") == "annotation"), activities)
    return repeated.select(_HOST_STEP), None if repeated.is_empty() else str(repeated.get_column("pattern")[0])


_HOST_STEP = ["process_id", "index", "name", "host_start_ns", "host_end_ns"]


def _repeated_annotation(marks: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """Annotations of the one pattern that encloses most launches, the rarest of several alike."""
    pattern = pl.col("name").str.replace_all(r"\(.*\)|\[.*\]", "").str.replace_all(r"\d+", "#")
    key = ["process_id", "thread_id", "pattern"]
    grouped = (
        marks.with_columns(pattern.alias("pattern"))
        .filter(pl.len().over(key) >= thresholds.STEP_REPEATS)
        .with_columns(
            (pl.col("host_start_ns") < pl.col("host_end_ns").cum_max().shift(1))
            .fill_null(False)
            .any()
            .over(key)
            .alias("overlaps")
        )
        .filter(~pl.col("overlaps"))
        .with_columns(pl.int_range(pl.len()).over(key).alias("index"))
    )
    launched = activities.drop_nulls("launch_start_ns").sort("launch_start_ns").select("process_id", "launch_start_ns")
    if grouped.is_empty() or launched.is_empty():
        return grouped.clear()
    counted = grouped.with_columns(
        (
            launched.get_column("launch_start_ns").search_sorted(grouped.get_column("host_end_ns"))
            - launched.get_column("launch_start_ns").search_sorted(grouped.get_column("host_start_ns"))
        ).alias("launched")
    )
    best = (
        counted.group_by(key)
        .agg((pl.col("launched").sum() / launched.height).alias("coverage"), pl.len().alias("repeats"))
        .filter(pl.col("coverage") >= thresholds.STEP_COVERAGE)
        .sort("repeats", *key)
        .head(1)
    )
    return grouped.join(best, on=key, how="semi", maintain_order="left")


def device_steps(marks: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """Table `steps` (without regimes): work belongs to the step that launched it.

    On a device a step runs from the previous step's last activity end to its own (the first from its
    first activity), so the hole before a step's work belongs to it.
    """
    launched = (
        activities.drop_nulls("launch_start_ns")
        .sort("launch_start_ns")
        .join_asof(
            marks.sort("host_start_ns"),
            left_on="launch_start_ns",
            right_on="host_start_ns",
            by="process_id",
            check_sortedness=False,
        )
        .filter(pl.col("launch_start_ns") < pl.col("host_end_ns"))
    )
    processes = launched.select("device", "process_id").unique()
    work = launched.group_by("device", "process_id", "index").agg(
        pl.len().alias("activity_count"),
        pl.col("start_ns").min().alias("first_ns"),
        (pl.col("start_ns") + pl.col("duration_ns")).max().alias("last_ns"),
    )
    until = pl.col("last_ns").cum_max().forward_fill().over("device")
    bounds = (
        processes.join(marks, on="process_id", how="inner")
        .join(work, on=["device", "process_id", "index"], how="left")
        .sort("device", "host_start_ns", "index")
        .with_columns(until.alias("until_ns"))
        .with_columns(
            pl.coalesce(pl.col("until_ns").shift(1).over("device"), "first_ns").alias("start_ns"),
            pl.col("until_ns").alias("end_ns"),
            pl.col("activity_count").fill_null(0),
        )
        .drop_nulls("start_ns")
    )
    return tables.STEPS.conform(_with_states(_with_busy(bounds, activities)))


def _with_busy(steps: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    spans = activities.select("device", "start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"))
    busy = union(spans, ["device"])
    before = covered_before(steps, "start_ns", busy, ["device"], "busy_before_start")
    return covered_before(before, "end_ns", busy, ["device"], "busy_before_end").with_columns(
        (pl.col("busy_before_end") - pl.col("busy_before_start")).alias("busy_ns")
    )


def _with_states(steps: pl.DataFrame) -> pl.DataFrame:
    """first, cut, empty and outlier steps are set aside where two or more are left; else none is."""
    position = pl.int_range(pl.len()).over("device")
    is_last = position == pl.len().over("device") - 1
    few = pl.col("activity_count") < thresholds.CUT_RATIO * pl.col("activity_count").median().over("device")
    length = pl.col("end_ns") - pl.col("start_ns")
    state = (
        pl.when(pl.col("activity_count") == 0)
        .then(pl.lit("empty"))
        .when(position == 0)
        .then(pl.lit("first"))
        .when(is_last & few)
        .then(pl.lit("cut"))
        .otherwise(pl.lit("ok"))
    )
    typical = length.filter(pl.col("state") == "ok").median().over("device")
    slow = (pl.col("state") == "ok") & (length > thresholds.OUTLIER_MEDIANS * typical)
    enough = (pl.col("state") == "ok").sum().over("device") >= thresholds.MIN_STEADY_STEPS
    return (
        steps.with_columns(state.alias("state"))
        .with_columns(pl.when(slow).then(pl.lit("outlier")).otherwise("state").alias("state"))
        .with_columns(pl.when(enough).then(pl.col("state") == "ok").otherwise(True).alias("steady"))
        .with_columns(pl.lit(None, dtype=pl.String).alias("regime"))
    )
