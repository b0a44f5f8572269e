"""Place the peak of a snapshot in a trace of the same run, if the two files prove that they are of one.

Both have the address of every allocation, and its time since 1970. Addresses are reused, times of the ranks of a job are
alike; the two together are those of one process.
"""

import polars as pl

from trace_analyzer.allocator.result import Memory, PeakPlace
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.options import Options
from trace_analyzer.pipeline import graph_of
from trace_analyzer.units import NS_PER_US, duration

TOLERANCE_NS = 10_000_000
"""Largest difference between the two times of an allocation: each file converts the processor's counter on its own, and
a program allocates at an address again a step later."""
LEAST_MATCHES = 10
LEAST_RATIO = 0.9
"""Fewest allocations, and least share of those of the time that both cover, that must match."""


def placed(snapshot: Memory, trace: Trace) -> PeakPlace:
    """Return where in the trace the peak of the snapshot's first device is, or the reason why that is not known."""

    def refused(reason: str) -> PeakPlace:
        return PeakPlace(trace.path, None, None, None, None, None, matched, compared, reason)

    matched = compared = 0
    if not snapshot.devices or snapshot.source != "snapshot":
        return refused("a snapshot with a record is placed in a trace")
    device = snapshot.devices[0]
    graph = graph_of(trace, Options(), kept=["memory_record", "host_steps"])
    _, lives, levels = graph.take("memory_record")
    base_ns = int(trace.header.base_time_ns or 0) + trace.origin_ns
    theirs = _allocations(lives, levels, device.device, pl.col("time_ns") + base_ns)
    own = _allocations(snapshot.lives, snapshot.levels, device.device, pl.col("time_us") * NS_PER_US)
    if theirs.is_empty():
        return refused(f"the trace has no memory events of device {device.device} (profile_memory=True records them)")
    if own.is_empty():
        return refused("the snapshot has no allocations with a time")
    start = max(theirs.item(0, "at_ns"), own.item(0, "at_ns"))
    both = pl.col("at_ns").is_between(start, min(theirs.item(-1, "at_ns"), own.item(-1, "at_ns")))
    of_trace = theirs.select("address", "at_ns", "module", "operator", "python_function", their_ns="at_ns")
    pairs = (
        own.filter(both)
        .select("address", "at_ns", "start_event")
        .join_asof(
            of_trace, on="at_ns", by="address", strategy="nearest", tolerance=TOLERANCE_NS, check_sortedness=False
        )
    )
    matched = pairs.get_column("their_ns").n_unique() - pairs.get_column("their_ns").has_nulls()
    compared = max(pairs.height, theirs.filter(both).height)
    if not compared:
        return refused("the records of the two files have no common time")
    if matched < LEAST_MATCHES or matched < LEAST_RATIO * compared:
        return refused(
            f"the files are not of one run: of {compared:,} allocations of the time that both cover, {matched:,} match in address and time"
        )
    row = pairs.filter(pl.col("start_event") == device.peak_event)
    if row.is_empty() or row.item(0, "their_ns") is None:
        at_ns = (device.peak_time_us or 0) * NS_PER_US - base_ns
        where = f"{duration(-at_ns)} before it" if at_ns < 0 else f"{duration(at_ns - trace.duration_ns)} after it"
        outside = device.peak_time_us is not None and not 0 <= at_ns <= trace.duration_ns
        return refused(
            f"the peak is outside of the trace: {where}" if outside else "no allocation of the trace reaches the peak"
        )
    time_ns = row.item(0, "their_ns") - base_ns
    steps = graph.take("host_steps").marks.filter(pl.lit(time_ns).is_between("host_start_ns", "host_end_ns"))
    module, operator, function = row.select("module", "operator", "python_function").row(0)
    step = next(iter(steps.get_column("name")), None)
    return PeakPlace(trace.path, time_ns, step, module, operator, function, matched, compared, None)


def _allocations(lives: pl.DataFrame, levels: pl.DataFrame, device: int, at: pl.Expr) -> pl.DataFrame:
    """Return the blocks of the record of a device with the time of their allocation, in order of time."""
    times = levels.select("device", start_event="event", at_ns=at)
    made = lives.filter(pl.col("device") == device).join(times, on=["device", "start_event"])
    return made.drop_nulls("at_ns").sort("at_ns")
