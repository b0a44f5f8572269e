"""Estimate what would lower a peak, find lines that grow, and say why memory ran out.

Each estimate is the record replayed with changed blocks: live bytes less those of the blocks that the change removes, at
every event, and the most of that. `catalog/allocations.toml` has the words and the code of each change.
"""

from dataclasses import dataclass
from functools import cache
from string import Template

import polars as pl

from trace_analyzer.allocator.attribution import UNKNOWN
from trace_analyzer.allocator.replay import with_held
from trace_analyzer.allocator.result import Growth, OutOfMemory, PeakSaving
from trace_analyzer.allocator.snapshot import Snapshot
from trace_analyzer.catalog.fixes import optimizer_in_few_launches
from trace_analyzer.catalog.tables import rows

LEAST_SAVING = 0.02
"""Smallest share of the peak that a change must save to be shown."""
_MOST = 10
_QUARTERS = 4
_IN_8_BITS = ("Adagrad", "Adam", "AdamW", "RMSprop", "SGD")
"""Optimizers of `torch.optim` that bitsandbytes has with a state of 8 bits."""


@dataclass(frozen=True)
class PeakFix:
    """Hold a row of ``changes`` in ``catalog/allocations.toml``."""

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
        fused_optimizer=optimizer_in_few_launches(optimizer),
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
    found = [*_checkpoints(activations, levels)]
    attention = activations.filter("attention")
    if attention.height:
        low = peak_without(levels, attention)
        # Its output stays, and a number a row (Dao et al. 2022, arXiv:2205.14135): at most what its last line makes.
        last = attention.sort("start_event").item(-1, "line")
        high = peak_without(levels, attention.filter(pl.col("line") != last))
        found.append(_saving("fused-attention", "attention", low, high))
    state = blocks.filter(pl.col("category") == "optimizer state")
    if state.height and (not optimizer or optimizer in _IN_8_BITS):
        most = state.with_columns(bytes=pl.col("bytes") * 3 // 4)
        half = most.with_columns(bytes=pl.col("bytes") * 2 // 3)
        found.append(
            _saving(
                "8-bit-optimizer", "optimizer state", peak_without(levels, most), peak_without(levels, half), optimizer
            )
        )
    in_step = blocks.filter((pl.col("pass") == "optimizer") & (pl.col("category") == "temporaries"))
    if in_step.height:
        found.append(_saving("fused-optimizer", "optimizer", peak_without(levels, in_step), optimizer=optimizer))
    gradients = _kept_into_forward(blocks)
    if gradients.height:
        found.append(_saving("set-to-none", "gradients", peak_without(levels, gradients)))
    evaluated = activations.filter("evaluation")
    if evaluated.height:
        found.append(_saving("no-grad", "evaluation", peak_without(levels, evaluated)))
    workspaces = blocks.filter(pl.col("category") == "library workspaces")
    if workspaces.height:
        found.append(_saving("workspaces", "library workspaces", peak_without(levels, workspaces), peak))
    if not snapshot.is_expandable and reserved > peak:
        found.append(_saving("expandable-segments", "reserved memory", peak, reserved))
    base = {"expandable-segments": reserved}
    worth = [s for s in found if base.get(s.name, peak) - s.low_bytes >= LEAST_SAVING * peak]
    return tuple(sorted(worth, key=lambda s: s.high_bytes - base.get(s.name, peak)))[:_MOST]


def _optimizer(snapshot: Snapshot) -> str:
    """Return the class of the only optimizer whose steps are marked in the record; "" for none or several."""
    names = snapshot.annotations.get_column("name").str.extract(r"^Optimizer\.step#(\w+)\.step$").drop_nulls().unique()
    return str(names.item()) if names.len() == 1 else ""


def _checkpoints(activations: pl.DataFrame, levels: pl.DataFrame) -> list[PeakSaving]:
    """Return what checkpointing each of the three largest modules saves.

    At best all of its activations go; at worst those of one call are there at the peak, as it is run again.
    """
    calls = activations.drop_nulls("module").group_by("module", "line").agg(pl.col("bytes").sum(), calls=pl.len())
    modules = (
        calls.group_by("module")
        .agg(pl.col("bytes").sum(), pl.col("calls").max())
        .sort("bytes", "module", descending=[True, False])
    )
    found = []
    for module, size, n in modules.filter(pl.col("calls") > 1).head(3).rows():
        low = peak_without(levels, activations.filter(pl.col("module") == module))
        found.append(_saving("checkpoint", module, low, low + size // n))
    return found


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
    made = blocks.filter(pl.col("start_event").is_not_null()).sort("start_event")
    if events < _QUARTERS or 2 * made.get_column("end_event").null_count() > made.height:
        return ()
    passes = made.drop_nulls("pass").with_columns(is_forward=pl.col("pass") == "forward")
    begins = pl.col("is_forward") & ~pl.col("is_forward").shift(1, fill_value=False)
    starts = passes.filter(begins).get_column("start_event").to_list()
    known = len(starts) > _QUARTERS
    bounds = starts[1:] if known else [events * k // _QUARTERS for k in range(_QUARTERS + 1)]
    n = len(bounds) - 1
    grown = (
        made.filter(pl.col("end_event").is_null() & (pl.col("line") != UNKNOWN))
        .with_columns(part=pl.lit(pl.Series(bounds)).search_sorted(pl.col("start_event"), side="right"))
        .filter(pl.col("part").is_between(1, n))
        .group_by("line", "part").agg(pl.col("bytes").sum(), count=pl.len())
        .group_by("line").agg(pl.col("bytes").sum(), pl.col("count").sum(), parts=pl.len())
        .filter(pl.col("parts") == n)
        .sort("bytes", "line", descending=[True, False])
    )  # fmt: skip
    return tuple(
        Growth(line, size, count, size // n if known else None, n if known else 0)
        for line, size, count in grown.head(_MOST).select("line", "bytes", "count").rows()
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
    rows = errors.join(lines, on="stack", how="left").sort("event", descending=True).head(_MOST)
    found = []
    for event, asked, spare, live, reserved, line in rows.select("event", "bytes", "address", "live_bytes", "reserved_bytes", "line").rows():  # fmt: skip
        pieces = max(reserved - live, 0)
        cause = "limit" if asked <= spare else "fragmentation" if asked <= pieces + spare else "need"
        largest = free or 0 if changed is None or event > changed else None
        found.append(OutOfMemory(event, asked, spare, live, reserved, pieces, largest, cause, line))  # type: ignore[arg-type]
    return tuple(found)
