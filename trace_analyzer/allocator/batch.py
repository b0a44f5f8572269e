"""Say how much memory another batch takes, and the largest that fits, from a record of the allocator.

At every event, a batch K times as large has what is live now, and K - 1 times more of what grows with the batch.
Activations grow; temporaries of forward and backward passes, and what is unknown, may or may not.
"""

from dataclasses import dataclass
from typing import Annotated

import polars as pl

from trace_analyzer.allocator.attribution import BEFORE, ROUNDED, UNKNOWN
from trace_analyzer.allocator.replay import with_held
from trace_analyzer.allocator.result import LargerBatch
from trace_analyzer.schema import Table, columns

OUTSIDE_BYTES = 1 << 30
"""Device memory that is kept free: the context of CUDA, loaded kernels and buffers of NCCL are outside of the allocator.
An assumption, as no record has them."""
_BLOCK = 512
"""The allocator rounds blocks up to multiples of it (c10/cuda/CUDACachingAllocator.h, kMinBlockSize)."""
_GROWING = ("activations", "temporaries")
_CONSTANT = ("parameters", "gradients", "optimizer state", "library workspaces")
_NARROWER = (1, 2, 4)
"""FP32 parameters over their copies in FP32, in 16 bits and in 8 bits."""

_LEAST, _MOST = pl.col("growing_bytes"), pl.col("growing_bytes") + pl.col("open_bytes")
"""Least and most of the live bytes that grow with the batch."""

MEMORY_LEVELS = Table(
    "memory_levels",
    "Device memory after each event that changes it, and what of it grows with the batch.",
    columns("""
        torch_device i64 Number of the device in PyTorch, `cuda:N`.
        time_ns i64 When, ns since the trace's origin; null before the first event.
        live_bytes i64 Bytes live.
        reserved_bytes i64 Bytes that the allocator holds from the driver.
        growing_bytes i64 Live bytes of activations, which grow with the batch.
        open_bytes i64 Live bytes that may grow with it: temporaries of forward and backward passes, activations of the size
            of parameters, which may be copies of them, and what is unknown.
    """),
)


@dataclass(frozen=True)
class BatchMemory:
    """Hold the peak of device memory with another batch, and which batch fits."""

    times: Annotated[float, "The batch, as a multiple of that of the record."]
    now_bytes: Annotated[int, "Most bytes live at once in the record."]
    before_bytes: Annotated[int, "Bytes live before the record, which count as constant."]
    low_bytes: Annotated[int | None, "Least peak with that batch; null where the record does not tell."]
    high_bytes: Annotated[int | None, "Greatest peak with it."]
    device_bytes: Annotated[int | None, "Memory of the device; null where it is unknown."]
    fits: Annotated[bool | None, "Whether the batch fits; null where that is open."]
    largest_low: Annotated[float | None, "A batch that is so many times as large fits."]
    largest_high: Annotated[float | None, "One that is more than so many times as large does not."]
    reason: Annotated[str | None, "Why the peak is not known; null where it is."] = None


def growing(levels: pl.DataFrame, lives: pl.DataFrame) -> pl.DataFrame:
    """Return `levels` with ``torch_device``, ``growing_bytes`` and ``open_bytes``, as table `memory_levels` has them.

    ``lives`` has pass and category.
    """
    category, blocks = pl.col("category"), -(-pl.col("bytes") // _BLOCK)
    sizes = lives.filter(category.is_in(["gradients", "parameters"])).select("device", "bytes").unique()
    copies = pl.concat(sizes.select("device", blocks=-(-pl.col("bytes") // (n * _BLOCK))) for n in _NARROWER).unique()
    of_size = lives.with_columns(blocks=blocks).join(
        copies.with_columns(is_copy=True), on=["device", "blocks"], how="left"
    )
    in_pass = category.is_in(_GROWING) & pl.col("pass").ne_missing("optimizer")
    workspace = (category == "temporaries") & pl.col("operator").str.contains("conv").fill_null(False)
    grows = in_pass & pl.col("is_copy").is_null() & ~workspace
    is_constant = category.is_in(_CONSTANT) | pl.col("pass").eq_missing("optimizer")
    remains = (category == BEFORE) & pl.col("end_event").is_null()
    held = {
        "growing_bytes": of_size.filter(grows),
        "open_bytes": of_size.filter(~(grows | is_constant | remains)),
    }
    return with_held(levels, held).rename({"device": "torch_device"})


def batch_memory(
    levels: pl.DataFrame, device: int | str | None, times: float, device_bytes: int | None, reason: str | None = None
) -> BatchMemory | None:
    """Return the peak with a batch ``times`` as large from `growing`; None for a device of which it has nothing.

    A record of one device is that of ``device``, whatever number its profiler gives it. With a ``reason``, the record
    does not tell.
    """
    if levels.get_column("torch_device").n_unique() > 1:
        levels = levels.filter(pl.col("torch_device").cast(pl.String) == str(device))
    if levels.is_empty():
        return None
    peak = levels.row(int(levels.get_column("live_bytes").arg_max() or 0), named=True)
    now, before = peak["live_bytes"], levels.item(0, "live_bytes")
    if not levels.get_column("growing_bytes").max():
        reason = reason or "the record shows no activations that grow with the batch (with_stack=True names more)"
    if reason is not None:
        return BatchMemory(times, now, before, None, None, device_bytes, None, None, None, reason)
    low, high = sorted(
        int(levels.select((pl.col("live_bytes") + (times - 1) * grows).max()).item()) for grows in (_LEAST, _MOST)
    )
    if device_bytes is None:
        return BatchMemory(times, now, before, low, high, None, None, None, None)
    # What is reserved and not live at the peak may stay so: pieces that are too small.
    spread = max(peak["reserved_bytes"] / now, 1.0)
    usable = (device_bytes - OUTSIDE_BYTES) / spread
    fits = True if high <= usable else False if low > device_bytes else None
    ends = largest(levels, usable, _MOST), largest(levels, device_bytes, _LEAST)
    return BatchMemory(times, now, before, low, high, device_bytes, fits, min(ends), max(ends))


def largest(levels: pl.DataFrame, most_bytes: float, grows: pl.Expr) -> float:
    """Return how many times as large the batch is whose peak is ``most_bytes``, if ``grows`` of live bytes grow with it."""
    times = levels.filter(grows > 0).select(((most_bytes - pl.col("live_bytes")) / grows).min()).item()
    return float(max(1 + times, 0.0))


def larger_batch(lives: pl.DataFrame, levels: pl.DataFrame, at_peak: pl.DataFrame, peak: int) -> LargerBatch | None:
    """Return the batch that has the same peak without the line that holds most of it, for one device.

    None where no line of the program is known, or nothing else grows.
    """
    known = at_peak.filter(~pl.col("line").is_in([UNKNOWN, BEFORE, ROUNDED]))
    lines = known.group_by("line").agg(pl.col("bytes").sum()).sort("bytes", "line", descending=[True, False])
    for line in lines.get_column("line").head(1):
        gone = with_held(levels, {"gone": lives.filter(pl.col("line") == line)})
        left = gone.with_columns(pl.col("live_bytes") - pl.col("gone"))
        rest = growing(left, lives.filter(pl.col("line") != line))
        if rest.get_column("growing_bytes").max():
            return LargerBatch(line, largest(rest, peak, _MOST), largest(rest, peak, _LEAST))
    return None
