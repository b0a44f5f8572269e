"""Join device activities with their launch, kind of work (bucket), required work (FLOP, bytes) and limit (bound)."""

from collections.abc import Mapping

import polars as pl

from trace_analyzer import errors, schema
from trace_analyzer.analyses import kernel_bounds, links
from trace_analyzer.analyses.device_models import MatchedDevices
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.replays import Executions, Replays, replays
from trace_analyzer.analyses.work.sharing import LaunchedWork, with_work, work_of_kernels
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.catalog.devices import Device
from trace_analyzer.frames.lookups import scatter
from trace_analyzer.ingest.tables import DEVICE_EVENTS
from trace_analyzer.ingest.trace import Trace

ACTIVITIES = schema.Table(
    "activities",
    "Work on devices with its launch, its bucket and what bounds it.",
    schema.columns(
        *DEVICE_EVENTS.columns,
        """
        launch_id
        operator_id u32 `event_id` of the innermost operator around its launch.
        operator str Name of that operator.
        bucket
        group str The article's group of that bucket: matmul, normalization, pointwise, communication, other.
        bound
        waves f64 Blocks over those that the device holds at once, by their threads, registers and shared memory; null
            where its multiprocessors or the blocks are unknown.
        tiles i64 Blocks of its grid, or tiles of a matmul's output by its name and sizes, if these are more; null when
            neither is known.
        dtype str Type it computes in, as the device catalogue names it; null when unknown.
        uses_tensor_cores bool Whether it computes on tensor cores (MFMA on AMD, XMX on Intel), inferred from its name;
            null when the name indicates neither.
        flop f64 FLOP that the operator's shapes ask of it; null when unknown.
        moved_bytes f64 Bytes that it must move at least; null when unknown.
        work_from str What FLOP and bytes rest on: call (its recorded shapes), inferred-shape (what was recorded around
            it too), at-least (without what has no recorded size), assumed-dtype (of the kernel's name), outer-call,
            replay (an equal sequence launched one by one); null when unknown.
        replayed_from u32 `activity_id` of the kernel that was launched one by one at its place of an equal sequence:
            whose operator, bucket and work a kernel of a graph has; null for others, and where it is in another file
            or runs differ.
        replay_match str How a kernel of a graph was matched: sequence (names, grids and blocks in order), names (in
            order), capture (order of captured launches), part (runs of neighbours) or annotation (of its graph node
            id); null for others.
        replay_confidence f64 Share of its graph launch for which that match holds, 0 to 1.
        replayed_module str Innermost nn.Module around the launch that a kernel of a graph was matched to, else its
            annotation's name.
        faster_than_memory str Why it moved its bytes faster than the memory can: cache, clock (too short to time) or
            unexplained; else null.
        lead_ns i64 Start minus the end of its launch; negative when the call was still running.
        """,
    ),
)


def linked_events(trace: Trace, host: Host, launch_links: tuple[pl.DataFrame, tuple[errors.Note, ...]]) -> pl.DataFrame:
    """Return device events with their launch and its operator."""
    linked, _ = launch_links
    launch_ids = scatter(linked.get_column("activity_id"), linked.get_column("launch_id"), trace.device_events.height)
    calls = host.events.select(
        "process_id", launch_name="name", launch_thread="thread_id", launch_start_ns="start_ns", launch_end_ns="end_ns"
    )[launch_ids]
    places = calls.select(thread_id="launch_thread", start_ns="launch_start_ns")
    return (
        trace.device_events.with_columns(launch_ids)
        .hstack(calls)
        .hstack(links.operators_of(host, places).select("operator_id", "operator"))
        .with_columns((pl.col("start_ns") - pl.col("launch_end_ns")).alias("lead_ns"))
    )


def device_work(
    bucketed: pl.DataFrame,
    launched_work: LaunchedWork,
    replays: Replays,
    serving_marks: pl.DataFrame,
    device_models: Mapping[int, Device | None],
) -> tuple[pl.DataFrame, tuple[errors.Note, ...]]:
    """Add bucket, FLOP, bytes and bound to each activity: table `activities` with additional columns, and notes."""
    worked = with_work(bucketed, launched_work, replays.kernels, serving_marks)
    worked, impossible = kernel_bounds.without_impossible_work(worked, device_models)
    worked = kernel_bounds.without_refuted_reads(worked, device_models)
    notes = (*launched_work.notes, *replays.notes, *impossible)
    return kernel_bounds.with_memory_excess(kernel_bounds.with_bounds(worked, device_models), device_models), notes


def with_replayed_places(launched_located: pl.DataFrame, replays: Replays) -> pl.DataFrame:
    """Add the places of kernels in graphs, from the launched kernels of this file that they match."""
    twins = replays.kernels.select("activity_id", "replayed_from").drop_nulls()
    theirs = launched_located.rename({"activity_id": "replayed_from"})
    own = launched_located.join(twins, on="activity_id", how="anti", maintain_order="left")
    placed = twins.join(theirs, on="replayed_from", how="inner", maintain_order="left")
    return pl.concat([own, placed.select(own.columns)])


def with_replayed_modules(launched_modules: pl.DataFrame, replays: Replays) -> pl.DataFrame:
    """Add the modules of kernels in graphs, from the launches that they match."""
    replayed = replays.kernels.select("activity_id", "module").drop_nulls()
    own = launched_modules.join(replayed, on="activity_id", how="anti", maintain_order="left")
    return pl.concat([own, replayed.cast(own.schema)])


def bucketed(
    linked_events: pl.DataFrame, matched_devices: MatchedDevices, operator_inputs: pl.DataFrame
) -> pl.DataFrame:
    """Add buckets, block counts, their waves and tiles to linked device events."""
    return kernel_bounds.with_tiles(
        kernel_bounds.with_buckets(kernel_bounds.with_waves(kernel_bounds.with_blocks(linked_events), matched_devices)),
        operator_inputs,
    )


ANALYSES = (
    Value("linked_events", linked_events),
    Value("bucketed", bucketed),
    Value("launched_work", work_of_kernels, {"activities": "bucketed"}),
    Value("executions", Executions),
    Value("replays", replays),
    Value("device_work", device_work),
    Value("located", with_replayed_places),
    Value("activity_modules", with_replayed_modules),
    Analysis(ACTIVITIES, lambda device_work: device_work[0]),
)
