"""Where device memory goes: snapshots of PyTorch's allocator and memory events of traces become tables and answers.

This module holds the answer of ``analyze memory``.
"""

from typing import Annotated, Any, Literal

import polars as pl
from msgspec import Struct

from trace_analyzer.errors import Note
from trace_analyzer.results import Result, used

SCHEMA_VERSION = 1
KINDS = ("category", "line", "module", "operator")


class Holder(Struct, frozen=True):
    """The bytes of what shares a line, module, operator or category. Those of one kind sum up to the peak."""

    key: Annotated[str, "Name of the line, module, operator or category."]
    kind: Annotated[Literal["line", "module", "operator", "category"], "What it names."]
    bytes: Annotated[int, "Bytes live at the peak."]
    count: Annotated[int, "Number of blocks."]


class SizeClass(Struct, frozen=True):
    """The blocks of a range of sizes or ages at the peak."""

    at_least: Annotated[int, "Smallest size in bytes, or age in events."]
    bytes: Annotated[int, "Bytes live at the peak."]
    count: Annotated[int, "Number of blocks."]


class Held(Struct, frozen=True):
    """A segment whose free part cannot go back to the driver, because a block lives in it."""

    address: Annotated[int, "Address of the segment."]
    bytes: Annotated[int, "Size of the segment."]
    free_bytes: Annotated[int, "Bytes of it that no block holds."]
    largest_free_bytes: Annotated[int, "Largest free piece."]
    line: Annotated[str | None, "Line with most bytes in it; null where unknown."]


class OutOfMemory(Struct, frozen=True):
    """An out-of-memory error of the record."""

    event: Annotated[int, "Row number in the record."]
    asked_bytes: Annotated[int, "Bytes that were asked for."]
    device_free_bytes: Annotated[int, "Bytes that the device had free."]
    live_bytes: Annotated[int, "Bytes live then."]
    reserved_bytes: Annotated[int, "Bytes that the allocator held from the driver."]
    pieces_bytes: Annotated[int, "Reserved bytes that no block held."]
    largest_piece_bytes: Annotated[int | None, "Largest free piece; null if memory changed before the snapshot."]
    cause: Annotated[
        Literal["need", "fragmentation", "limit"], "What it lacked: bytes, bytes in one piece, or permission."
    ]
    line: Annotated[str | None, "Line that asked; null where unknown."]


class PeakSaving(Struct, frozen=True):
    """A change that lowers the peak, by the record replayed with it."""

    name: Annotated[str, "Stable name: a row of `changes` in `catalog/allocations.toml`."]
    label: Annotated[str, "The change in words."]
    what: Annotated[str, "What it concerns: a module, a line, a setting."]
    low_bytes: Annotated[int, "Least peak with it; of reserved bytes for expandable segments."]
    high_bytes: Annotated[int, "Greatest peak with it."]
    condition: Annotated[str, "When it holds."]
    code: Annotated[str, "Code of the change."]


class Growth(Struct, frozen=True):
    """A line whose live bytes grow all through the record."""

    line: Annotated[str, "The line."]
    bytes: Annotated[int, "Its bytes live at the end."]
    count: Annotated[int, "Its blocks live at the end."]
    step_bytes: Annotated[int | None, "Bytes that it keeps in each step; null where no steps are known."]
    steps: Annotated[int, "Number of steps that it grew in; 0 where no steps are known."]


class PeakChange(Struct, frozen=True):
    """What a line, module, operator or category held at the peak before and after. Those of one kind sum up to the change."""

    device: Annotated[int, "Number of the device."]
    kind: Annotated[Literal["line", "module", "operator", "category"], "What the key names."]
    key: Annotated[str, "Name of the line, module, operator or category."]
    before_bytes: Annotated[int, "Bytes live at the peak before."]
    after_bytes: Annotated[int, "Bytes live at the peak after."]


class LargerBatch(Struct, frozen=True):
    """How much larger a batch has the same peak without the line that holds most of it."""

    line: Annotated[str, "The line."]
    low: Annotated[float, "A batch that is so many times as large has a peak that is no higher."]
    high: Annotated[float, "One that is more than so many times as large has a higher one."]


class PeakPlace(Struct, frozen=True):
    """Where the peak of a snapshot is in a trace of the same run, or why that is not known."""

    path: Annotated[str, "Path of the trace."]
    time_ns: Annotated[int | None, "When, ns since the trace's origin; null where it is not known."]
    step: Annotated[str | None, "Name of the step around it; null for none."]
    module: Annotated[str | None, "Path of the nn.Modules around it; null for none."]
    operator: Annotated[str | None, "Innermost operator around it; null for none."]
    python_function: Annotated[str | None, "Innermost function of the program around it; null for none."]
    matched: Annotated[int, "Allocations that both files have, by address and time."]
    compared: Annotated[int, "Allocations of the time that both files cover."]
    reason: Annotated[str | None, "Why the place is not known; null where it is."]


class StreamBytes(Struct, frozen=True):
    """The bytes of a stream at the peak."""

    stream: Annotated[int | None, "The stream; null where unknown."]
    bytes: Annotated[int, "Bytes live at the peak."]


class DeviceMemory(Struct, frozen=True):
    """The memory of one device."""

    device: Annotated[int, "Number of the device."]
    base_bytes: Annotated[int, "Bytes live before the record: those at the end less the net of the record."]
    peak_bytes: Annotated[int, "Most bytes live at once."]
    peak_event: Annotated[int | None, "Row number of the event that reached the peak; null before the record."]
    peak_time_us: Annotated[int | None, "Its time, us; null where unknown."]
    end_bytes: Annotated[int, "Bytes live at the end."]
    reserved_bytes: Annotated[int, "Bytes that the allocator holds from the driver at the end."]
    reserved_at_peak_bytes: Annotated[int, "The same at the peak."]
    fragmentation_bytes: Annotated[int, "Reserved less live bytes at the peak."]
    cached_bytes: Annotated[int, "Bytes of segments without a block at the end: torch.cuda.empty_cache() frees them."]
    stranded_bytes: Annotated[int, "Free bytes of segments with a block at the end."]
    events: Annotated[int, "Number of events in the record."]
    live_at_peak: Annotated[tuple[Holder, ...], "What is live at the peak, by kind, the most bytes first."]
    sizes_at_peak: Annotated[tuple[SizeClass, ...], "What is live at the peak by size."]
    ages_at_peak: Annotated[tuple[SizeClass, ...], "What of the record is live at the peak by age, in events."]
    streams_at_peak: Annotated[tuple[StreamBytes, ...], "What is live at the peak by stream."]
    held_segments: Annotated[tuple[Held, ...], "Segments with most stranded bytes at the end, at most ten."]
    out_of_memory: Annotated[tuple[OutOfMemory, ...], "Out-of-memory errors of the record, at most ten."]
    savings: Annotated[tuple[PeakSaving, ...], "What would lower the peak, the most first."]
    larger_batch: Annotated[LargerBatch | None, "A batch without the line that holds most; null where that is open."]
    growth: Annotated[tuple[Growth, ...], "Lines that grow all through the record, the most bytes first."]

    def held_by(self, kind: str) -> tuple[Holder, ...]:
        """Return what is live at the peak by category, line, module or operator."""
        return tuple(holder for holder in self.live_at_peak if holder.kind == kind)

    def ratio_of(self, holder: Holder) -> float | None:
        """Return its share of the peak; None for a peak of no bytes."""
        return holder.bytes / self.peak_bytes if self.peak_bytes else None


class Memory(Result, frozen=True):
    """Where device memory goes, by device. Charts need the frames."""

    PLOTTED = ("levels", "blocks", "lives", "at_peak")

    schema_version: Annotated[int, "Version of this document."]
    path: Annotated[str, "Path of the file, as it was given."]
    source: Annotated[Literal["snapshot", "trace"], "What was read: a snapshot, or the memory events of a trace."]
    devices: Annotated[tuple[DeviceMemory, ...], "Devices with memory, the one with the highest peak first."]
    notes: Annotated[tuple[Note, ...], "Remarks on the record."]
    changes: Annotated[
        tuple[PeakChange, ...],
        "What holds more or less than before, the largest changes first; empty without a side before.",
    ] = ()
    place: Annotated[PeakPlace | None, "Where the first device's peak is in a trace; null without one."] = None
    levels: Annotated[pl.DataFrame, "Table `levels`: live and reserved bytes in time."] = pl.DataFrame()
    blocks: Annotated[pl.DataFrame, "Table `blocks`: pieces of the segments at the end."] = pl.DataFrame()
    lives: Annotated[pl.DataFrame, "Every block of the record, with its attribution."] = pl.DataFrame()
    at_peak: Annotated[pl.DataFrame, "The blocks live at the peaks, with their attribution."] = pl.DataFrame()

    def parts_of(self, device: DeviceMemory, line: Holder) -> pl.DataFrame:
        """Return live_bytes and block_count of a line at the peak by category, operator and module, the most bytes first."""
        keys = ["category", "operator", "module"]
        own = self.at_peak.filter(pl.col("device") == device.device, pl.col("line") == line.key)
        return (
            own.group_by(keys)
            .agg(live_bytes=pl.col("bytes").sum(), block_count=pl.len())
            .sort("live_bytes", *keys, descending=[True, False, False, False], nulls_last=True)
            .select("live_bytes", "block_count", *keys)
        )

    def to_agent_text(self) -> str:
        """Return who holds the peak, why memory ran out and what would lower it in at most 2,000 bytes, with ids of `explain`."""
        return str(used("trace_analyzer.explain.agent:memory_text")(self))

    def explain(self, thing: str) -> Any:
        """Return the `Explanation` of ``memory:N``: the line of a snapshot that holds the N-th most. Raises ``UsageError``."""
        return used("trace_analyzer.explain.lookups:line_at_peak")(self, thing)
