"""List kernels that were launched one by one, and launches that graphs captured, each with its operator's call.

A graph replays kernels that one of these ran or recorded; `trace_analyzer.analyses.replays` matches them.
"""

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from trace_analyzer.analyses.backward import BACKWARD_LINKS
from trace_analyzer.analyses.graph_capture import is_captured
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.kernel_bounds import with_buckets
from trace_analyzer.analyses.links import operators_of
from trace_analyzer.analyses.module_events import with_module_event
from trace_analyzer.analyses.work.replay_matching import CALL, KEYS, is_replayed
from trace_analyzer.analyses.work.sharing import INPUTS, SHARE_COLUMNS, LaunchedWork, recorded_inputs, work_of_kernels
from trace_analyzer.frames.intervals import lookup_at
from trace_analyzer.frames.lookups import lookup
from trace_analyzer.ingest.trace import Trace

_BUCKET = ("bucket", "group", "prior")
TAKEN = ("activity_id", *CALL, "module", *_BUCKET, *SHARE_COLUMNS)
"""Columns that a replayed kernel can take: the operator's call, the innermost module, the bucket, and its share of
the work."""
_KERNEL_LAUNCH = pl.col("name").str.contains("(?i)launch") & ~pl.col("name").str.contains("(?i)graph|host_?func")


@dataclass(frozen=True)
class Executions:
    """Hold the launches and captures of a recording, computed on demand, as few recordings replay graphs.

    ``launched_modules`` is (activity_id, module).
    """

    launched_work: LaunchedWork
    trace: Trace
    host: Host
    graph_captures: pl.DataFrame
    module_frames: pl.DataFrame
    launched_modules: pl.DataFrame

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """Return kernels launched one by one: `TAKEN`, `KEYS`, device, start_ns, launch_start_ns and duration_ns."""
        kernels = self.launched_work.kernels.filter(~is_replayed(self.launched_work.kernels))
        modules = self.launched_modules.with_columns(pl.col("module").cast(pl.Categorical))
        taken = (
            kernels.hstack(_inputs(kernels, recorded_inputs(self.trace)))
            .hstack(lookup(modules, kernels, "activity_id"))
            .hstack(lookup(self.launched_work.shares, kernels, "activity_id"))
        )
        return taken.select(*TAKEN, *KEYS, "device", "start_ns", "launch_start_ns", "duration_ns")

    @cached_property
    def captured(self) -> pl.DataFrame:
        """Return launches within captures, in order.

        The columns are capture, place, launch_id, launch_name, launch_thread, launch_start_ns, operator_id, `CALL` and module.
        """
        return _captured(self.host, self.graph_captures, self.module_frames, recorded_inputs(self.trace))

    def captured_work(self, kernels: pl.DataFrame) -> pl.DataFrame:
        """Return `TAKEN` without module and activity_id of captured launches, in order.

        ``kernels`` are rows of ``captured`` with the name, grid, block and duration_ns of the resulting kernel.
        """
        pseudo = with_buckets(
            kernels.select(
                pl.int_range(pl.len(), dtype=pl.UInt32).alias("activity_id"), pl.lit("kernel").alias("kind"), *KEYS,
                pl.lit(0, pl.Int64).alias("device"), pl.int_range(pl.len(), dtype=pl.Int64).alias("start_ns"), "duration_ns",
                "launch_id", "launch_name", "launch_thread", "launch_start_ns", "operator_id", "operator",
                pl.lit(None, pl.Int64).alias("graph_node_id"),
            )
        )  # fmt: skip
        shares = work_of_kernels(pseudo, self.trace, self.host, BACKWARD_LINKS.empty()).shares
        return pseudo.select(_BUCKET).hstack(lookup(shares, pseudo, "activity_id")).hstack(kernels.select(CALL))


def _inputs(rows: pl.DataFrame, inputs: pl.DataFrame) -> pl.DataFrame:
    """Return the recorded arguments of each row's operator; null without one."""
    return lookup(inputs, rows, "operator_id").select(pl.col(INPUTS).cast(pl.Categorical))


def _captured(host: Host, captures: pl.DataFrame, frames: pl.DataFrame, inputs: pl.DataFrame) -> pl.DataFrame:
    """Return the kernel launches within captures, in order of their calls."""
    calls = host.calls_of(_KERNEL_LAUNCH) if captures.height else host.calls.clear()
    calls = calls.filter(is_captured(calls, captures)).sort("start_ns", "event_id")
    # A driver call inside a runtime call has the same id.
    own_id = pl.when(pl.col("correlation") > 0).then("correlation").otherwise(-pl.col("event_id").cast(pl.Int64) - 1)
    calls = calls.with_columns(own_id.alias("id")).unique(["process_id", "id"], keep="first", maintain_order=True)
    places = calls.select(
        "process_id",
        "thread_id",
        "start_ns",
        pl.col("start_ns").alias("time_ns"),
        pl.col("event_id").alias("launch_id"),
        pl.col("name").cast(pl.String).alias("launch_name"),
    )
    numbered = captures.with_row_index("capture")
    located = lookup_at(places, "start_ns", numbered, ["process_id"], ["capture"])
    located = with_module_event(operators_of(host, located), frames)
    modules = frames.select(pl.col("event_id").alias("module_event"), pl.col("module").cast(pl.Categorical))
    located = located.hstack(_inputs(located, inputs)).join(
        modules, on="module_event", how="left", maintain_order="left"
    )
    return located.select(
        "capture",
        pl.int_range(pl.len()).over("capture").alias("place"),
        "launch_id",
        "launch_name",
        pl.col("thread_id").alias("launch_thread"),
        pl.col("start_ns").alias("launch_start_ns"),
        "operator_id",
        *CALL,
        "module",
    )
