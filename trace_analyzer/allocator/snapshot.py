"""Read a snapshot of PyTorch's caching allocator as tables, and replay its record: which blocks live when.

The format is that of ``torch.cuda.memory._dump_snapshot``: PyTorch's ``torch/csrc/cuda/memory_snapshot.cpp`` writes it,
``torch/cuda/_memory_viz.py`` reads it. Sizes of events are those that the program asked for; sizes of blocks and segments
are the allocator's, rounded up. What was live before the record is therefore the allocated bytes at the end less the net of
the record, and contains what the allocator rounded up.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from trace_analyzer.allocator._pickle_reader import EVENT_COLUMNS, UNKNOWN, Pickle, RefusedError
from trace_analyzer.errors import NotATrace
from trace_analyzer.schema import I64, STR, Table, columns

MOST_BYTES = 1 << 50
"""Largest size of one block: a petabyte is no size of a device's memory, and sums stay within 64 bits."""
LIVE = ("active_allocated", "active_awaiting_free", "active_pending_free")
"""States of blocks that hold a tensor, or wait for a stream that still uses them."""

EVENTS = Table(
    "events",
    "What the allocator did, in order.",
    columns("""
    device i64 Number of the device.
    event i64 Row number in the record of its device.
    action str What was done: alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, oom, snapshot.
    address i64 Address; of an out-of-memory error the bytes that the device had free.
    bytes i64 Size that was asked for.
    stream i64 Stream; null where it is not recorded.
    time_us i64 Time, us; null where it is not recorded.
    stack i64 Number of the call stack; null where none was recorded.
    """),
)
SEGMENTS = Table(
    "segments",
    "Memory that the allocator holds from the driver when the snapshot is taken.",
    columns("""
    device i64 Number of the device.
    segment i64 Row number.
    address i64 Address.
    bytes i64 Size.
    stream i64 Stream that it belongs to.
    kind str Pool: small (for blocks up to 1 MiB) or large.
    expandable bool Whether it can grow.
    """),
)
BLOCKS = Table(
    "blocks",
    "Pieces of the segments when the snapshot is taken.",
    columns("""
    device i64 Number of the device.
    segment i64 Row number of its segment.
    address i64 Address.
    bytes i64 Size.
    asked_bytes i64 Size that the program asked for; null where it is not recorded.
    state str inactive, or what it holds.
    stack i64 Number of the call stack that allocated it; null where none was recorded.
    """),
)
ANNOTATIONS = Table(
    "annotations",
    "Ranges that PyTorch marks in the record, such as the steps of optimizers.",
    columns("""
    name str Name.
    device i64 Number of the device.
    stage str START or END.
    time_us i64 Time, us.
    """),
)
FRAMES: dict[str, pl.DataType] = {"name": STR, "file": STR, "line": I64}
STACK_FRAMES: dict[str, pl.DataType] = {"stack": I64, "frame": I64}


class Snapshot(Struct, frozen=True):
    """The tables of a snapshot, and its call stacks: ``stacks`` has rows of ``frames``, the innermost of each first."""

    events: pl.DataFrame
    segments: pl.DataFrame
    blocks: pl.DataFrame
    annotations: pl.DataFrame
    frames: pl.DataFrame
    stacks: pl.DataFrame
    is_expandable: bool


def snapshot_of(blocks: Iterator[bytes], name: str) -> Snapshot:
    """Return the snapshot in the bytes of a pickle. Raises ``NotATrace``."""
    pickle = Pickle(blocks)
    try:
        pickle.read()
        return _tables(pickle)
    except RefusedError as error:
        raise NotATrace(
            f"{name}: no memory snapshot: {error}; write one with torch.cuda.memory._dump_snapshot(FILE)"
        ) from None


def _tables(pickle: Pickle) -> Snapshot:
    root = pickle.root
    document: Mapping[Any, Any] = root if isinstance(root, dict) else {"segments": root}  # PyTorch 1: the list alone
    segments, blocks = _segments(_rows(document.get("segments"), "segments"))
    settings = document.get("allocator_settings")
    return Snapshot(
        _events(pickle, document),
        SEGMENTS.conform(segments),
        BLOCKS.conform(blocks),
        _annotations(document.get("external_annotations")),
        pl.DataFrame(pickle.frames, schema=FRAMES, orient="row"),
        pl.DataFrame(
            {
                "stack": np.arange(len(pickle.stacks)).repeat([len(stack) // 8 for stack in pickle.stacks]),
                "frame": np.frombuffer(b"".join(pickle.stacks), np.int64),
            },
            schema=STACK_FRAMES,
        ),
        isinstance(settings, dict) and settings.get("expandable_segments") is True,
    )


def _events(pickle: Pickle, document: Mapping[Any, Any]) -> pl.DataFrame:
    """Return table `events`, and take its columns away from the reader."""
    devices: dict[int, int] = {}
    for device, trace in enumerate(_rows(document.get("device_traces", []), "device_traces", list)):
        if trace and (len(trace) != 1 or type(trace[0]) is not int or trace[0] in devices):
            raise RefusedError(f"device_traces[{device}] is no list of events of its own")
        devices |= {trace[0]: device} if trace else {}
    traces = pl.DataFrame(pickle.traces, schema={"trace": pl.Int64, "count": pl.Int64}, orient="row")
    owners = traces.select(pl.col("trace").replace_strict(devices, default=None).repeat_by("count").explode())
    columns = [pl.Series(name, np.frombuffer(pickle.events.pop(0), np.int64)) for name in EVENT_COLUMNS]
    frame = pl.DataFrame([owners.to_series().rename("device"), *columns]).drop_nulls("device")
    wrong = pl.col("bytes").is_between(0, MOST_BYTES).not_() | (pl.col("address") == UNKNOWN)
    frame = frame.with_columns(
        pl.Series("action", pickle.texts, pl.String).gather(frame.get_column("action")),
        *(pl.when(pl.col(name) != UNKNOWN).then(name) for name in ("stream", "time_us", "stack")),
        event=pl.int_range(pl.len()).over("device"),
    )
    for device, event in frame.filter(wrong).select("device", "event").head(1).rows():
        raise RefusedError(f"device_traces[{device}][{event}] has no address, or a size that no memory has")
    return EVENTS.conform(frame)


def _segments(rows: Sequence[Mapping[Any, Any]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    segments, blocks = [], []
    for number, row in enumerate(rows):
        place = f"segments[{number}]"
        device = _number(row, "device", place, default=0)
        start = address = _number(row, "address", place)
        total = _number(row, "total_size", place)
        kind = str(row.get("segment_type", "large"))
        segments.append((device, number, start, total, _number(row, "stream", place, default=0), kind, row.get("is_expandable") is True))  # fmt: skip
        for k, block in enumerate(_rows(row.get("blocks"), f"{place}.blocks")):
            at = f"{place}.blocks[{k}]"
            size = _number(block, "size", at)
            state, stack, asked = block.get("state"), block.get("frames"), block.get("requested_size")
            history = block.get("history")  # until PyTorch 2.0
            if isinstance(history, list) and history and isinstance(history[0], dict):
                stack = history[0].get("frames")
            if type(state) is not str:
                raise RefusedError(f"{at} has no state")
            asked = None if asked is None else _number(block, "requested_size", at)
            blocks.append((device, number, _number(block, "address", at, default=address), size, asked, state, stack if type(stack) is int else None))  # fmt: skip
            address += size
        if address > start + total:
            raise RefusedError(f"{place} has blocks of {address - start:,} bytes in {total:,}")
    return (
        pl.DataFrame(segments, schema=SEGMENTS.schema, orient="row"),
        pl.DataFrame(blocks, schema=BLOCKS.schema, orient="row"),
    )


def _annotations(rows: object) -> pl.DataFrame:
    """Return the annotations; those of another form are left out, as no figure rests on them alone."""
    kept = [
        tuple(row.get(name) for name in ANNOTATIONS.schema)
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict) and all(type(row.get(c.name)) is (str if c.dtype == pl.String() else int) for c in ANNOTATIONS.columns)
    ]  # fmt: skip
    return pl.DataFrame(kept, schema=ANNOTATIONS.schema, orient="row")


def _rows(value: object, place: str, kind: type = dict) -> Sequence[Any]:
    if not isinstance(value, list) or not all(isinstance(row, kind) for row in value):
        raise RefusedError(f"{place} is no list of {'lists' if kind is list else 'objects'}")
    return value


def _number(row: Mapping[Any, Any], key: str, place: str, default: int | None = None) -> int:
    value = row.get(key, default)
    limit = 1 << 62 if key == "address" else MOST_BYTES
    if type(value) is not int or not 0 <= value <= limit:
        raise RefusedError(f"{place} has no {key} from 0 to {limit:,}")
    return value


FREED = ("free_completed", "free")
"""Actions after which memory can be used again: `free_requested` waits for streams that still use it."""
GROWS, SHRINKS = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")

LIVES = Table(
    "lives",
    "Every block of the record with its life.",
    columns("""
    device i64 Number of the device.
    address i64 Address; null for the bytes of which the record tells no block.
    bytes i64 Size that was asked for; for blocks from before the record that are never freed, the allocator's.
    stream i64 Stream; null where unknown.
    stack i64 Number of its call stack; null where none was recorded.
    start_event i64 Event that allocated it; null before the record.
    end_event i64 Event that freed it; null if it is live at the end.
    time_us i64 When it was allocated, us; null where unknown.
    """),
)
LEVELS = Table(
    "levels",
    "What is live and reserved after each event that changes either.",
    columns("""
    device i64 Number of the device.
    event i64 The event; -1 before the record.
    time_us i64 Its time, us; null where unknown.
    live_bytes i64 Bytes live.
    reserved_bytes i64 Bytes that the allocator holds from the driver.
    """),
)


def lives_of(snapshot: Snapshot) -> pl.DataFrame:
    """Return table `lives`: an allocation ends with the next event at its address."""
    place = ["device", "address"]
    changes = (
        snapshot.events.lazy()
        .filter(pl.col("action").is_in(["alloc", *FREED]))
        .with_columns(is_start=pl.col("action") == "alloc")
        .drop("action")
        .sort(*place, "event")
        .with_columns(
            end_event=pl.when(*(pl.col(each) == pl.col(each).shift(-1) for each in place)).then(pl.col("event").shift(-1)),
            after_start=pl.all_horizontal(pl.col(each) == pl.col(each).shift(1) for each in place) & pl.col("is_start").shift(1),
        )
        .filter(pl.col("is_start") | pl.col("after_start").ne_missing(True))  # else the end of the block before
        .collect()
    )  # fmt: skip
    begun = changes.filter("is_start").rename({"event": "start_event"})
    nothing = pl.lit(None, pl.Int64)
    freed = changes.filter(~pl.col("is_start")).with_columns(
        start_event=nothing, end_event="event", stack=nothing, time_us=nothing
    )
    held = (
        snapshot.blocks.filter(pl.col("state").is_in(LIVE))
        .join(begun.filter(pl.col("end_event").is_null()), on=place, how="anti")
        .join(snapshot.segments.select("device", "segment", "stream"), on=["device", "segment"])
        .with_columns(start_event=nothing, end_event=nothing, time_us=nothing)
    )
    return pl.concat([LIVES.conform(each) for each in (begun, freed, held)]).sort(
        "device", "start_event", "end_event", "address"
    )


def levels_of(snapshot: Snapshot) -> pl.DataFrame:
    """Return table `levels`, in the order of devices and events."""
    size, action = pl.col("bytes"), pl.col("action")
    steps = snapshot.events.select(
        "device", "event", "time_us",
        live=pl.when(action == "alloc").then(size).when(action.is_in(FREED)).then(-size).otherwise(0),
        reserved=pl.when(action.is_in(GROWS)).then(size).when(action.is_in(SHRINKS)).then(-size).otherwise(0),
    )  # fmt: skip
    none = pl.lit(0, pl.Int64)
    at_end = (
        snapshot.segments.select("device", live=none, reserved="bytes"),
        snapshot.blocks.filter(pl.col("state").is_in(LIVE)).select("device", live="bytes", reserved=none),
        steps.select("device", -pl.col("live", "reserved")),
    )
    before = pl.concat(at_end).group_by("device").agg(pl.col("live", "reserved").sum().clip(lower_bound=0))
    return LEVELS.conform(
        pl.concat(
            [
                before.with_columns(event=pl.lit(-1, pl.Int64)),
                steps.filter((pl.col("live") != 0) | (pl.col("reserved") != 0)),
            ],
            how="diagonal",
        )
        .sort("device", "event")
        .with_columns(
            live_bytes=pl.col("live").cum_sum().over("device"),
            reserved_bytes=pl.col("reserved").cum_sum().over("device"),
        )
    )


HELD = ("device", "bytes", "start_event", "end_event")
"""Columns of `lives` that tell what is live when."""


def with_held(levels: pl.DataFrame, blocks: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return rows of `levels` with a column for each table of blocks: the bytes of these that are live then.

    ``levels`` are in the order of events. A table of blocks has the columns `HELD`.
    """
    for name, some in blocks.items():
        changes = pl.concat(
            [
                some.select("device", "bytes", event=pl.col("start_event").fill_null(-1)),
                some.select("device", -pl.col("bytes"), event="end_event").drop_nulls("event"),
            ]
        )
        held = (
            changes.group_by("device", "event")
            .agg(pl.col("bytes").sum())
            .sort("device", "event")
            .select("device", "event", pl.col("bytes").cum_sum().over("device").alias(name))
        )
        levels = levels.join_asof(held, on="event", by="device", check_sortedness=False)
    return levels.with_columns(pl.col(blocks.keys()).fill_null(0))


def peaks_of(levels: pl.DataFrame) -> pl.DataFrame:
    """Return the first row of `levels` with the most live bytes, for each device."""
    most = pl.col("live_bytes") == pl.col("live_bytes").max().over("device")
    return levels.filter(most).unique("device", keep="first", maintain_order=True)


def live_at(lives: pl.DataFrame, moments: pl.DataFrame) -> pl.DataFrame:
    """Return the blocks that live after the event of `moments` (a row a device), with the remainder that no block explains."""
    starts, ends = pl.col("start_event"), pl.col("end_event")
    event = pl.col("device").replace_strict(moments.get_column("device"), moments.get_column("event"), default=None)
    levels = moments.select("device", "event", "live_bytes")
    blocks = lives.filter((starts.is_null() | (starts <= event)) & (ends.is_null() | (ends > event)))
    blocks = blocks.join(levels, on="device")
    rest = (
        levels.join(blocks.group_by("device").agg(known=pl.col("bytes").sum()), on="device", how="left")
        .select("device", "event", "live_bytes", bytes=pl.col("live_bytes") - pl.col("known").fill_null(0))
        .filter(pl.col("bytes") != 0)
    )
    return pl.concat([blocks, rest], how="diagonal")
