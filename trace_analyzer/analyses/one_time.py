"""Find the one-time work of the host: what precedes the first launch of a kernel, beyond what usually does.

A first launch loads the kernel's code; the first of a library's starts the library; a kernel that was compiled is launched
first after that, in the second call of a TorchScript function too; the first use of a size grows the allocator.
"""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.host import Host
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.catalog.event_names import HOST_WAIT
from trace_analyzer.frames.intervals import clip
from trace_analyzer.schema import Table, columns
from trace_analyzer.vocabulary import HOST_CAUSES

FIRST_LAUNCHES = Table(
    "first_launches",
    "First launches of kernels, with others of the same operator: how long the thread took for each, beside later ones.",
    columns("""
        activity_id launch_id device name thread_id
        start_ns i64 End of the thread's launch before it; its own start where there is none.
        operator_start_ns i64 Start of the innermost operator around it, in that time; `start_ns` without one.
        end_ns i64 Its end.
        usual_ns f64 Median of that time for later launches of the kernel; where there are none, of all launches, at most
            250 us.
        is_slow bool Whether it took so much longer that it contains one-time work.
    """),
)
_UNLIKE_NS = thresholds.COLD_START_GAP_NS / thresholds.SLOW_FIRST_MEDIANS
"""Most that a launch usually takes where no later one of its kernel tells: all may be first ones."""
_ORDER = ["thread_id", "launch_start_ns", "launch_id", "start_ns", "activity_id"]


def first_launches(linked_events: pl.DataFrame, host: Host) -> pl.DataFrame:
    """Return table `first_launches` by thread and time."""
    launches = (
        linked_events.select(
            "activity_id", "launch_id", "operator_id", "device", "name", "start_ns",
            pl.col("launch_thread").alias("thread_id"), "launch_start_ns", pl.col("launch_end_ns").alias("end_ns"),
        )
        .drop_nulls("launch_id")
        .sort(_ORDER)
        .unique("launch_id", keep="first", maintain_order=True)
    )  # fmt: skip
    before = pl.col("end_ns").shift(1).over("thread_id")
    named = ["device", "name"]
    starts_first = pl.col("launch_start_ns") == pl.col("launch_start_ns").min().over(named)
    begun = host.events.get_column("start_ns").alias("operator_start_ns")[launches.get_column("operator_id")]
    known = launches.with_columns(
        pl.min_horizontal(before, "launch_start_ns").fill_null(pl.col("launch_start_ns")).alias("start_ns"),
        starts_first.alias("is_first"),
    ).with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("took"))
    within = pl.col("is_first").any().over("operator_id") & pl.col("operator_id").is_not_null()
    later = pl.col("took").filter(~pl.col("is_first")).median().over(named)
    slow = (pl.col("took") >= thresholds.COLD_START_GAP_NS) & (
        pl.col("took") > thresholds.SLOW_FIRST_MEDIANS * pl.col("usual_ns")
    )
    return FIRST_LAUNCHES.conform(
        known.with_columns(
            pl.coalesce(later, pl.min_horizontal(pl.col("took").median(), _UNLIKE_NS)).alias("usual_ns"),
            (within | pl.col("is_first")).alias("is_first"),
            pl.max_horizontal("start_ns", begun).alias("operator_start_ns"),
        )
        .filter("is_first")
        .with_columns(slow.alias("is_slow"))
    )


def cold_idle(idle_causes: pl.DataFrame, gaps: pl.DataFrame, first_launches: pl.DataFrame) -> pl.DataFrame:
    """Return host time in ``idle_causes`` within gaps of at least 1 ms that a kernel's slow first launch ends.

    Waits of the host for other threads or processes are excluded, as they can recur.
    """
    long = gaps.filter(pl.col("duration_ns") >= thresholds.COLD_START_GAP_NS)
    cold = long.join(first_launches.filter("is_slow"), on="activity_id", how="semi")
    within = idle_causes.filter(pl.col("gap_id").is_in(cold.get_column("gap_id").implode()))
    return within.filter(pl.col("cause").is_in(HOST_CAUSES), pl.col("cause") != HOST_WAIT)


def cold_gap_ns(cold: pl.DataFrame, windows: pl.DataFrame) -> dict[int, int]:
    """Return the time of ``cold``, which is `cold_idle`, by window: (device, window, start_ns, end_ns); 0 is left out."""
    inside = clip(cold, windows, ["device"])
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    return dict(inside.group_by("window").agg(length).sort("window").iter_rows())


ANALYSES = (
    Analysis(FIRST_LAUNCHES, first_launches),
    Value("cold_idle", cold_idle),
)
