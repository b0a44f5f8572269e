"""Find graph captures, in which a process records launches into a graph instead of sending them to a device.

Between ``cudaStreamBeginCapture`` and ``cudaStreamEndCapture``, a launch adds a node to a graph, and the device idles
by design (CUDA Programming Guide, "Creating a Graph Using Stream Capture"; HIP is the same). The Python frame
``torch/_inductor/cudagraph_trees.py: _record`` encloses such a capture. Begin and end calls have no stream in a trace,
so a capture counts for the whole process: autograd's thread makes the backward launches of a captured pass.
"""

import polars as pl

from trace_analyzer.analyses.host import CALLS, Host
from trace_analyzer.analyses.links import LAUNCHES, LAUNCHING
from trace_analyzer.analysis import Value
from trace_analyzer.frames.intervals import lookup_at, union

_BEGINS, _ENDS = r"(?i)StreamBeginCapture", r"(?i)StreamEndCapture"
_RECORDS = r"torch/_inductor/cudagraph_trees\.py\(\d+\): _record$"
_CAPTURES = {"process_id": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64}


def captures(host: Host, launches: pl.DataFrame) -> pl.DataFrame:
    """Return process_id, start_ns, end_ns: disjoint intervals in which a process captures graphs, in order.

    ``launches`` is table `launches`. A capture lasts from the start of its begin call to the end of its end call on the
    same thread. Without an end call, it lasts until the thread launches work that a device executed, else until the
    thread's last event; without a begin call, it starts with the thread's first event.
    """
    calls = _by_call(host, launches)
    frames = host.those(pl.col("name").str.contains(_RECORDS), "name", "process_id", "start_ns", "end_ns").drop("name")
    return union(pl.concat([calls, frames.cast(_CAPTURES)]), ["process_id"])  # type: ignore[arg-type]


def launching_calls(host: Host) -> pl.DataFrame:
    """Return the calls that enqueue device work in a trace without activities, except calls within captures."""
    calls = host.calls_of(pl.col("name").str.contains(LAUNCHING))
    return calls.filter(~is_captured(calls, captures(host, LAUNCHES.empty())))


def is_captured(calls: pl.DataFrame, captures: pl.DataFrame) -> pl.Series:
    """Return whether each call (process_id, start_ns) begins within a capture of its process."""
    marked = captures.with_columns(pl.lit(True).alias("captured"))
    return lookup_at(calls, "start_ns", marked, ["process_id"], ["captured"]).get_column("captured").fill_null(False)


def _by_call(host: Host, launches: pl.DataFrame) -> pl.DataFrame:
    """Return process_id, start_ns, end_ns between begin and end calls, which may be nested; intervals may overlap."""
    begins = pl.col("name").str.contains(_BEGINS)
    marks = (
        host.those(pl.col("kind").is_in(CALLS) & (begins | pl.col("name").str.contains(_ENDS)))
        .select("process_id", "thread_id", "start_ns", "end_ns", begins.alias("begins"))
        .sort("thread_id", "start_ns")
    )
    if marks.is_empty():
        return pl.DataFrame(schema=_CAPTURES)
    thread = "thread_id"
    bounds = host.events.group_by(thread).agg(
        pl.col("start_ns").min().alias("first_ns"), pl.col("end_ns").max().alias("last_ns")
    )
    worked = launches.select(thread, pl.col("start_ns").alias("worked_ns")).sort("worked_ns")
    depth = pl.when("begins").then(1).otherwise(-1).cum_sum().over(thread)
    # An end without a begin closes a capture from before the recording, and does not affect later ones.
    is_open = depth > pl.min_horizontal(depth.cum_min().over(thread), 0)
    spans = (
        marks.with_columns(is_open.alias("is_open"), pl.col("end_ns").shift(-1).over(thread).alias("next_ns"))
        .join(bounds, on=thread)
        .sort("end_ns")
        .join_asof(
            worked, left_on="end_ns", right_on="worked_ns", by=thread, strategy="forward", check_sortedness=False
        )
    )
    opened = spans.filter("is_open").with_columns(pl.coalesce("next_ns", "worked_ns", "last_ns").alias("end_ns"))
    first = pl.col("start_ns") == pl.col("start_ns").min().over(thread)
    headless = spans.filter(first & ~pl.col("begins")).with_columns(pl.col("first_ns").alias("start_ns"))
    return pl.concat([part.select(list(_CAPTURES)).cast(_CAPTURES) for part in (opened, headless)])  # type: ignore[arg-type]


ANALYSES = (Value("graph_captures", captures, {"launches": "unmasked_launches"}),)
