"""Answer where device memory goes: from a snapshot or a trace to a `Memory`.

The peak of a snapshot is placed in a trace if the two files prove that they are of one run. Both have the address of every
allocation, and its time since 1970. Addresses are reused, times of the ranks of a job are alike; the two together are those
of one process.
"""

from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Literal

import polars as pl
from msgspec.structs import replace

from trace_analyzer import errors, forks, ingest
from trace_analyzer.allocator import (
    KINDS,
    SCHEMA_VERSION,
    DeviceMemory,
    Held,
    Holder,
    Memory,
    PeakChange,
    PeakPlace,
    SizeClass,
    StreamBytes,
    attribution,
    savings,
)
from trace_analyzer.allocator.attribution import BEFORE, ROUNDED
from trace_analyzer.allocator.snapshot import FREED, LIVE, Snapshot, levels_of, lives_of, peaks_of, snapshot_of
from trace_analyzer.ingest import build, strict
from trace_analyzer.ingest.source import Source, content_of
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.options import DEFAULT_MAX_BYTES, Options
from trace_analyzer.pipeline import graph_of
from trace_analyzer.units import NS_PER_US, counted, duration, memory_size

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


PICKLE = b"\x80"
"""First byte of pickles of protocol 2 and later; no JSON text begins with it."""
_SIZES = (0, 1 << 20, 10 << 20, 100 << 20, 1 << 30)
_AGES = (0, 100, 1_000, 10_000, 100_000)
_MOST = 10


def memory(
    source: Source, *, before: Source | None = None, trace: Source | None = None, max_bytes: int = DEFAULT_MAX_BYTES
) -> Memory:
    """Return where memory goes in a snapshot, or in a trace recorded with ``profile_memory=True``.

    ``source`` is a path, bytes or a binary file, compressed or not; with ``before``, the answer has what changed since,
    with ``trace`` where the peak of a snapshot is in this trace of the same run. Raises ``InputError``.
    """
    result = _read(source, max_bytes)
    if before is not None:
        result = replace(result, changes=_changes(_read(before, max_bytes), result))
    return result if trace is None else replace(result, place=placed(result, ingest.load(trace, max_bytes=max_bytes)))


def is_snapshot(path: str | Path, max_bytes: int = DEFAULT_MAX_BYTES) -> bool:
    """Return whether a file is a pickle, as snapshots are. Raises ``InputError``.

    A pipe, which can be read only once, is taken for a trace.
    """
    if not Path(path).is_file():
        return False
    with closing(content_of(path, max_bytes=max_bytes)) as content:
        return next(content.blocks(), b"")[:1] == PICKLE


def _changes(before: Memory, after: Memory) -> tuple[PeakChange, ...]:
    held = [
        {(device.device, h.kind, h.key): h.bytes for device in side.devices for h in device.live_at_peak}
        for side in (before, after)
    ]
    rows = [
        PeakChange(*key, held[0].get(key, 0), held[1].get(key, 0)) for key in sorted(held[0].keys() | held[1].keys())
    ]
    changed = [row for row in rows if row.before_bytes != row.after_bytes]
    return tuple(sorted(changed, key=lambda row: -abs(row.after_bytes - row.before_bytes)))


def _read(source: Source, max_bytes: int) -> Memory:
    forks.check()
    with closing(content_of(source, max_bytes=max_bytes)) as content:
        blocks = content.blocks()
        first = next(blocks, b"")
        if first[:1] == PICKLE:
            snapshot = snapshot_of(chain((first,), blocks), content.name)
            lives = attribution.attributed(lives_of(snapshot), snapshot)
            return _answer(content.name, "snapshot", snapshot, lives, levels_of(snapshot))
        del blocks  # it closes the file
        trace = build.trace_tables(strict.read_document(content), content.name, content.notes)
    return _answer(content.name, "trace", *graph_of(trace, Options(), kept=["memory_record"]).take("memory_record"))


def _answer(
    path: str, source: Literal["snapshot", "trace"], snapshot: Snapshot, blocks: pl.DataFrame, levels: pl.DataFrame
) -> Memory:
    peaks = peaks_of(levels)
    # A snapshot lists what was live before its record; the events of a trace do not.
    at_peak = attribution.live_at_peak(blocks, levels, ROUNDED if source == "snapshot" else BEFORE)
    # The state of an optimizer has no module: its category says more than that it is unknown.
    at_peak = at_peak.with_columns(pl.col(name).fill_null(pl.col("category")) for name in KINDS)
    devices = [
        _device(snapshot, peak, blocks, levels, at_peak)
        for peak in peaks.sort("live_bytes", "device", descending=[True, False]).rows(named=True)
        if peak["live_bytes"] or peak["reserved_bytes"]
    ]
    notes = _notes(snapshot, devices, blocks) if source == "snapshot" else _trace_notes(snapshot)
    return Memory(
        SCHEMA_VERSION, path, source, tuple(devices), notes, (), None, levels, snapshot.blocks, blocks, at_peak
    )


def _device(
    snapshot: Snapshot, peak: dict[str, int], blocks: pl.DataFrame, levels: pl.DataFrame, at_peak: pl.DataFrame
) -> DeviceMemory:
    device, is_device = peak["device"], pl.col("device") == peak["device"]
    # A filter would copy the frames, which are large, although nearly all records are of one device.
    is_only = levels.get_column("device").n_unique() == 1
    own, lived = (levels, blocks) if is_only else (levels.filter(is_device), blocks.filter(is_device))
    live = at_peak.filter(is_device)
    by_segment = _by_segment(snapshot, blocks).filter(is_device)
    size, reserved, last = peak["live_bytes"], peak["reserved_bytes"], own.row(-1, named=True)
    is_empty = pl.col("live") == 0
    n_events = snapshot.events.filter(is_device).height
    lines = blocks.select("stack", "line").unique("stack").drop_nulls()
    held = (
        by_segment.filter(~is_empty & (pl.col("free") > 0))
        .sort("free", "address", descending=[True, False])
        .head(_MOST)
    )
    return DeviceMemory(
        device=device, base_bytes=own.item(0, "live_bytes"), peak_bytes=size,
        peak_event=None if peak["event"] < 0 else peak["event"], peak_time_us=peak["time_us"],
        end_bytes=last["live_bytes"], reserved_bytes=last["reserved_bytes"],
        reserved_at_peak_bytes=reserved, fragmentation_bytes=max(reserved - size, 0),
        cached_bytes=int(by_segment.filter(is_empty).get_column("bytes").sum()),
        stranded_bytes=int(by_segment.filter(~is_empty).get_column("free").sum()),
        events=n_events,
        live_at_peak=tuple(
            Holder(key, kind, held_bytes, count)  # type: ignore[arg-type]
            for kind in KINDS
            for key, held_bytes, count in live.group_by(kind).agg(pl.col("bytes").sum(), count=pl.len()).sort("bytes", kind, descending=[True, False]).rows()
        ),
        sizes_at_peak=_classes(live.drop_nulls("address"), pl.col("bytes"), _SIZES),
        ages_at_peak=_classes(live.drop_nulls("start_event"), peak["event"] - pl.col("start_event"), _AGES),
        streams_at_peak=tuple(StreamBytes(*row) for row in live.drop_nulls("address").group_by("stream").agg(pl.col("bytes").sum()).sort("stream").rows()),
        held_segments=tuple(Held(*row) for row in held.select("address", "bytes", "free", "largest", "line").rows()),
        out_of_memory=savings.out_of_memory(snapshot, device, own, lines),
        savings=savings.savings(lived, own, reserved, size, snapshot),
        larger_batch=savings.larger_batch(lived, own, live, size),
        growth=savings.growth(lived, n_events),
    )  # fmt: skip


def _classes(live: pl.DataFrame, value: pl.Expr, bounds: tuple[int, ...]) -> tuple[SizeClass, ...]:
    """Return the blocks in each class that has any: from a bound to the next."""
    number = pl.sum_horizontal((value >= bound).cast(pl.Int64) for bound in bounds) - 1
    sums = live.group_by(at=number.clip(lower_bound=0)).agg(pl.col("bytes").sum(), count=pl.len()).sort("at")
    return tuple(SizeClass(bounds[at], size, count) for at, size, count in sums.rows())


def _by_segment(snapshot: Snapshot, blocks: pl.DataFrame) -> pl.DataFrame:
    """Return each segment with its live and free bytes, its largest free piece, and the line with most bytes in it."""
    is_live = pl.col("state").is_in(LIVE)
    at_end = (
        blocks.filter(pl.col("end_event").is_null())
        .select("device", "address", "line")
        .unique(["device", "address"], keep="last")
    )
    pieces = snapshot.blocks.join(at_end, on=["device", "address"], how="left")
    sums = pieces.group_by("device", "segment").agg(
        live=pl.col("bytes").filter(is_live).sum(),
        largest=pl.col("bytes").filter(~is_live).max().fill_null(0),
        line=pl.col("line").filter(is_live).sort_by(pl.col("bytes").filter(is_live), descending=True).first(),
    )
    return (
        snapshot.segments.join(sums, on=["device", "segment"], how="left")
        .with_columns(pl.col("live", "largest").fill_null(0))
        .with_columns(free=pl.col("bytes") - pl.col("live"))
    )


def _trace_notes(snapshot: Snapshot) -> tuple[errors.Note, ...]:
    if snapshot.events.height:
        return ()
    return (errors.Note("no-memory-events", "warning", "the trace has no memory events of a device; record with torch.profiler.profile(profile_memory=True)"),)  # fmt: skip


def _notes(snapshot: Snapshot, devices: list[DeviceMemory], blocks: pl.DataFrame) -> tuple[errors.Note, ...]:
    """Return what limits the record: no record, one that begins late, and one that contradicts the blocks."""
    notes = []
    changes = snapshot.events.filter(pl.col("action").is_in(["alloc", *FREED])).height
    if not changes:
        notes.append(errors.Note("no-record", "warning", "the snapshot has no record of allocations: the peak is what is live at the end; call torch.cuda.memory._record_memory_history() before the program"))  # fmt: skip
    lost = blocks.filter(
        pl.col("start_event").is_null() & pl.col("end_event").is_null() & pl.col("stack").is_not_null()
    )
    if changes and lost.height:
        notes.append(errors.Note("record-is-cut", "warning", f"the record has lost its beginning: {counted(lost.height, 'live block')} of {memory_size(int(lost.get_column('bytes').sum()))} have a call stack, but no allocation in it; the ring buffer was full, so an earlier peak is unseen (max_entries of _record_memory_history)", lost.height))  # fmt: skip
    before = blocks.filter(pl.col("start_event").is_null()).group_by("device").agg(known=pl.col("bytes").sum())
    live = snapshot.blocks.filter(pl.col("state").is_in(LIVE))
    rounded = pl.col("bytes") - pl.col("asked_bytes").fill_null(pl.col("bytes"))
    sums = before.join(live.group_by("device").agg(slack=rounded.sum()), on="device", how="full", coalesce=True)
    by_device = {device: (known or 0, slack or 0) for device, known, slack in sums.rows()}
    for device in devices:
        known, slack = by_device.get(device.device, (0, 0))
        rest = device.base_bytes - known
        differs = max(-rest, rest - slack, device.peak_bytes - device.reserved_at_peak_bytes)
        if differs > 0:
            notes.append(errors.Note("record-contradicts-blocks", "warning", f"device {device.device}: the record and the blocks differ by {memory_size(differs)}, and figures by line are as uncertain"))  # fmt: skip
    return tuple(notes)
