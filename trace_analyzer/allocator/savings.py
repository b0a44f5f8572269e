"""Estimate what would lower a peak and what another batch takes, find lines that grow, and say why memory ran out.

Each estimate is the record replayed with changed blocks: live bytes less those of the blocks that the change removes, at
every event, and the most of that. `catalog/allocations.toml` has the words and the code of each change.

At every event, a batch K times as large has what is live now, and K - 1 times more of what grows with the batch.
Activations grow; temporaries of forward and backward passes, and what is unknown, may or may not.
"""

from functools import cache
from string import Template
from typing import Annotated

import polars as pl
from msgspec import Struct

from trace_analyzer.allocator import Growth, LargerBatch, OutOfMemory, PeakSaving, attribution
from trace_analyzer.allocator.snapshot import HELD, Snapshot, with_held
from trace_analyzer.catalog import fixes, rows
from trace_analyzer.catalog.event_names import OPTIMIZER_STEP
from trace_analyzer.schema import Table, columns

LEAST_SAVING = 0.02
"""Smallest share of the peak that a change must save to be shown."""
_MOST_ROWS = 10
_QUARTERS = 4
_SHALLOWEST = 2
"""Least number of modules in the path of a unit: the first is the whole model."""
_IN_8_BITS = ("Adagrad", "Adam", "AdamW", "RMSprop", "SGD")
"""Optimizers of `torch.optim` that bitsandbytes has with a state of 8 bits."""


class PeakFix(Struct, frozen=True):
    """A row of ``changes`` in ``catalog/allocations.toml``."""

    name: str
    label: str
    condition: str
    code: str


@cache
def peak_fixes() -> dict[str, PeakFix]:
    """Return the changes by name. Raises ``UsageError``."""
    return {row.name: row for row in rows("allocations.toml", "changes", PeakFix, lambda row: row.name)}


def _saving(name: str, what: str, low: int, high: int | None = None, optimizer: str = "") -> PeakSaving:
    """Return the saving of a change; ``high`` is ``low`` where the record determines it."""
    change, known = peak_fixes()[name], optimizer in _IN_8_BITS
    code = Template(change.code).substitute(
        fused_optimizer=fixes.optimizer_in_few_launches(optimizer),
        optimizer_in_8_bits=f"optimizer = bitsandbytes.optim.{optimizer}8bit(model.parameters(), **options)"
        if known
        else f"# the optimizer with a state of 8 bits: bitsandbytes has {', '.join(_IN_8_BITS)}",
    )
    return PeakSaving(name, change.label, what, low, low if high is None else high, change.condition, code)


def peak_without(levels: pl.DataFrame, removed: pl.DataFrame) -> int:
    """Return the peak of one device's ``levels`` without the ``removed`` bytes (bytes, start_event, end_event)."""
    left = with_held(levels, {"gone": removed}).select(pl.col("live_bytes") - pl.col("gone"))
    return int(left.to_series().max() or 0)  # type: ignore[arg-type]


def savings(
    blocks: pl.DataFrame, levels: pl.DataFrame, reserved: int, peak: int, snapshot: Snapshot
) -> tuple[PeakSaving, ...]:
    """Return the changes that lower the peak of one device by `LEAST_SAVING` or more, the most first.

    ``blocks`` has the attributed lives of the device, ``levels`` its levels. ``reserved`` and ``peak`` are bytes.
    """
    activations, optimizer = blocks.filter(pl.col("category") == "activations"), _optimizer(snapshot)
    # Without a backward pass in the record, what a forward pass keeps to its end may wait for one; the rest does not.
    has_backward = (blocks.get_column("pass") == "backward").any()
    kept = activations if has_backward else activations.filter(pl.col("end_event").is_null())
    found = _checkpoints(kept, levels, peak)
    attention = activations.filter("attention")
    if attention.get_column("softmax").any():  # else it is fused already
        low = peak_without(levels, attention)
        # Its output stays, and a number a row (Dao et al. 2022, arXiv:2205.14135): at most what its last line makes.
        last = attention.sort("start_event").item(-1, "line")
        high = peak_without(levels, attention.filter(pl.col("line") != last))
        found.append(_saving("fused-attention", "attention", low, high))
    state = blocks.filter(pl.col("category") == "optimizer state")
    if not optimizer or optimizer in _IN_8_BITS:
        most = state.with_columns(bytes=pl.col("bytes") * 3 // 4)
        half = most.with_columns(bytes=pl.col("bytes") * 2 // 3)
        found.append(
            _saving(
                "8-bit-optimizer", "optimizer state", peak_without(levels, most), peak_without(levels, half), optimizer
            )
        )
    in_step = blocks.filter((pl.col("pass") == "optimizer") & (pl.col("category") == "temporaries"))
    workspaces = blocks.filter(pl.col("category") == "library workspaces")
    found += [
        _saving("fused-optimizer", "optimizer", peak_without(levels, in_step), optimizer=optimizer),
        _saving("set-to-none", "gradients", peak_without(levels, _kept_into_forward(blocks))),
        _saving("no-grad", "evaluation", peak_without(levels, activations.filter("evaluation"))),
        _saving("workspaces", "library workspaces", peak_without(levels, workspaces), peak),
    ]
    if not snapshot.is_expandable and reserved > peak:
        found.append(_saving("expandable-segments", "reserved memory", peak, reserved))
    base = {"expandable-segments": reserved}
    worth = [s for s in found if base.get(s.name, peak) - s.low_bytes >= max(1, LEAST_SAVING * peak)]
    return tuple(sorted(worth, key=lambda s: s.high_bytes - base.get(s.name, peak)))[:_MOST_ROWS]


def _optimizer(snapshot: Snapshot) -> str:
    """Return the class of the only optimizer whose steps are marked in the record; "" for none or several."""
    names = snapshot.annotations.get_column("name").str.extract(OPTIMIZER_STEP).drop_nulls().unique()
    return str(names.item()) if names.len() == 1 else ""


def _checkpoints(activations: pl.DataFrame, levels: pl.DataFrame, peak: int) -> list[PeakSaving]:
    """Return what checkpointing each of the three largest kinds of modules saves.

    At best all of its activations go. At worst those of one call are there at the peak, as it is run again; and where a
    trace tells its modules apart, the output of each is kept by what follows.
    """
    activations = _in_units(activations)
    calls = activations.group_by("unit", "line").agg(pl.col("bytes").sum(), calls=pl.len())
    units = (
        calls.group_by("unit")
        .agg(pl.col("bytes").sum(), pl.col("calls").max())
        .sort("bytes", "unit", descending=[True, False])
    )
    found = []
    for unit, size, n in units.filter(pl.col("calls") > 1).head(3).rows():
        own = activations.filter(pl.col("unit") == unit)
        instances = own.get_column("instance").drop_nulls().n_unique()
        low = high = peak_without(levels, own)
        one = size // n
        if instances:
            one = int(with_held(levels, {"held": own}).get_column("held").max() or 0) // instances  # type: ignore[arg-type]
            last = pl.col("start_event") == pl.col("start_event").max().over("instance")
            high = peak_without(levels, own.filter(~last))
        found.append(_saving("checkpoint", unit, low, min(high + one, peak)))
    return found


def _in_units(activations: pl.DataFrame) -> pl.DataFrame:
    """Return the activations of each unit, with those of the units within it, and ``instance`` of that depth."""
    known, parts = activations.drop_nulls("unit"), []
    paths = known.filter(pl.col("instance").is_not_null()).with_columns(pl.col("unit", "instance").str.split("/"))
    deepest = paths.select(pl.col("unit").list.len().max()).item() or 0
    for depth in range(_SHALLOWEST, deepest + 1):
        within = paths.filter(pl.col("unit").list.len() >= depth)
        parts.append(within.with_columns(pl.col("unit", "instance").list.head(depth).list.join("/")))
    return pl.concat([known.filter(pl.col("instance").is_null()), *parts])


def _kept_into_forward(blocks: pl.DataFrame) -> pl.DataFrame:
    """Return the gradients that are live while a later forward pass allocates, from its start until they go."""
    forward = blocks.filter((pl.col("pass") == "forward") & pl.col("start_event").is_not_null()).select("start_event", at="start_event").sort("start_event")  # fmt: skip
    gradients = blocks.filter((pl.col("category") == "gradients") & pl.col("start_event").is_not_null()).sort(
        "start_event"
    )
    return (
        gradients.join_asof(forward, on="start_event", strategy="forward")
        .filter(pl.col("at").is_not_null() & (pl.col("end_event").is_null() | (pl.col("end_event") > pl.col("at"))))
        .with_columns(start_event="at")
    )


def growth(blocks: pl.DataFrame, events: int) -> tuple[Growth, ...]:
    """Return the lines that keep blocks in every step, or in every quarter of a record without steps.

    A step begins with the first forward allocation after backward or optimizer work. The first step warms up, the last may
    be cut: neither counts. What is kept once, as parameters are, is no growth, nor is a record that frees little: it may
    end within its only step.
    """
    made = (
        blocks.select("start_event", "end_event", "bytes", "line", "pass").drop_nulls("start_event").sort("start_event")
    )
    if events < _QUARTERS or 2 * made.get_column("end_event").null_count() > made.height:
        return ()
    passes = made.drop_nulls("pass").with_columns(is_forward=pl.col("pass") == "forward")
    begins = pl.col("is_forward") & ~pl.col("is_forward").shift(1, fill_value=False)
    starts = passes.filter(begins).get_column("start_event").to_list()
    known = len(starts) > _QUARTERS
    bounds = starts[1:] if known else [events * k // _QUARTERS for k in range(_QUARTERS + 1)]
    n = len(bounds) - 1
    grown = (
        made.filter(pl.col("end_event").is_null() & (pl.col("line") != attribution.UNKNOWN))
        .with_columns(part=pl.lit(pl.Series(bounds)).search_sorted(pl.col("start_event"), side="right"))
        .filter(pl.col("part").is_between(1, n))
        .group_by("line", "part").agg(pl.col("bytes").sum(), count=pl.len())
        .group_by("line").agg(pl.col("bytes").sum(), pl.col("count").sum(), parts=pl.len())
        .filter(pl.col("parts") == n)
        .sort("bytes", "line", descending=[True, False])
    )  # fmt: skip
    return tuple(
        Growth(line, size, count, size // n if known else None, n if known else 0)
        for line, size, count in grown.head(_MOST_ROWS).select("line", "bytes", "count").rows()
    )


def out_of_memory(
    snapshot: Snapshot, device: int, levels: pl.DataFrame, lines: pl.DataFrame
) -> tuple[OutOfMemory, ...]:
    """Return the out-of-memory errors of a device, the last first; ``lines`` has stack and line."""
    events = snapshot.events.filter(pl.col("device") == device)
    errors = events.filter(pl.col("action") == "oom").join_asof(
        levels.select("event", "live_bytes", "reserved_bytes"), on="event"
    )
    changed = events.filter(~pl.col("action").is_in(["oom", "snapshot"])).get_column("event").max()
    free = (
        snapshot.blocks.filter((pl.col("device") == device) & (pl.col("state") == "inactive")).get_column("bytes").max()
    )
    rows = errors.join(lines, on="stack", how="left").sort("event", descending=True).head(_MOST_ROWS)
    found = []
    for event, asked, spare, live, reserved, line in rows.select("event", "bytes", "address", "live_bytes", "reserved_bytes", "line").rows():  # fmt: skip
        pieces = max(reserved - live, 0)
        cause = "limit" if asked <= spare else "fragmentation" if asked <= pieces + spare else "need"
        largest = free or 0 if changed is None or event > changed else None
        found.append(OutOfMemory(event, asked, spare, live, reserved, pieces, largest, cause, line))  # type: ignore[arg-type]
    return tuple(found)


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


class BatchMemory(Struct, frozen=True):
    """The peak of device memory with another batch, and which batch fits."""

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
    in_pass = category.is_in(_GROWING) & pl.col("pass").ne_missing("optimizer")
    workspace = (category == "temporaries") & pl.col("operator").str.contains("conv").fill_null(False)
    grows = in_pass & pl.col("is_copy").is_null() & ~workspace
    is_constant = category.is_in(_CONSTANT) | pl.col("pass").eq_missing("optimizer")
    remains = (category == attribution.BEFORE) & pl.col("end_event").is_null()
    known = (
        lives.lazy()
        .with_columns(blocks=blocks)
        .join(copies.lazy().with_columns(is_copy=True), on=["device", "blocks"], how="left")
        .select(*HELD, grows=grows, is_open=~(grows | is_constant | remains))
        .collect()
    )
    held = {"growing_bytes": known.filter("grows"), "open_bytes": known.filter("is_open")}
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
    known = at_peak.filter(~pl.col("line").is_in([attribution.UNKNOWN, attribution.BEFORE, attribution.ROUNDED]))
    lines = known.group_by("line").agg(pl.col("bytes").sum()).sort("bytes", "line", descending=[True, False])
    for line in lines.get_column("line").head(1):
        is_gone, of_batch = pl.col("line") == line, [*HELD, "category", "pass", "operator"]
        gone = with_held(levels, {"gone": lives.lazy().filter(is_gone).select(HELD).collect()})
        left = gone.select("device", pl.col("live_bytes") - pl.col("gone"), "event")
        rest = growing(left, lives.lazy().filter(~is_gone).select(of_batch).collect())
        if rest.get_column("growing_bytes").max():
            return LargerBatch(line, largest(rest, peak, _MOST), largest(rest, peak, _LEAST))
    return None
