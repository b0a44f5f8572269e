"""Replay an allocator's record: which blocks live when, and how much is live and reserved at each event.

The record holds requested sizes, the segments hold the allocator's. What was live before the record is therefore the
allocated bytes at the end less the net of the record, and contains what the allocator rounded up.
"""

from collections.abc import Mapping

import polars as pl

from trace_analyzer.allocator.snapshot import LIVE, Snapshot
from trace_analyzer.schema import Table, columns

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


def lives(snapshot: Snapshot) -> pl.DataFrame:
    """Return table `lives`: an allocation ends with the next event at its address."""
    place = ["device", "address"]
    changes = (
        snapshot.events.filter(pl.col("action").is_in(["alloc", *FREED]))
        .sort(*place, "event")
        .with_columns(
            is_start=pl.col("action") == "alloc",
            end_event=pl.col("event").shift(-1).over(place),
            after_start=(pl.col("action") == "alloc").shift(1).over(place).fill_null(False),
        )
    )
    begun = changes.filter("is_start").rename({"event": "start_event"})
    freed = changes.filter(~pl.col("is_start") & ~pl.col("after_start")).with_columns(
        start_event=pl.lit(None, pl.Int64), end_event="event", stack=pl.lit(None, pl.Int64)
    )
    held = (
        snapshot.blocks.filter(pl.col("state").is_in(LIVE))
        .join(begun.filter(pl.col("end_event").is_null()), on=place, how="anti")
        .join(snapshot.segments.select("device", "segment", "stream"), on=["device", "segment"])
        .with_columns(start_event=pl.lit(None, pl.Int64), end_event=pl.lit(None, pl.Int64))
    )
    return pl.concat([LIVES.conform(each) for each in (begun, freed, held)]).sort(
        "device", "start_event", "end_event", "address"
    )


def levels(snapshot: Snapshot) -> pl.DataFrame:
    """Return table `levels`, in the order of devices and events."""
    size, action = pl.col("bytes"), pl.col("action")
    steps = snapshot.events.select(
        "device", "event", "time_us",
        live=pl.when(action == "alloc").then(size).when(action.is_in(FREED)).then(-size).otherwise(0),
        reserved=pl.when(action.is_in(GROWS)).then(size).when(action.is_in(SHRINKS)).then(-size).otherwise(0),
    )  # fmt: skip
    net = steps.group_by("device").agg(pl.col("live", "reserved").sum())
    at_end = (
        snapshot.segments.group_by("device").agg(held=pl.col("bytes").sum())
        .join(snapshot.blocks.filter(pl.col("state").is_in(LIVE)).group_by("device").agg(used=pl.col("bytes").sum()), on="device", how="left")
    )  # fmt: skip
    before = (
        pl.concat([net.select("device"), at_end.select("device")]).unique()
        .join(net, on="device", how="left").join(at_end, on="device", how="left")
        .select(
            "device", event=pl.lit(-1, pl.Int64), time_us=pl.lit(None, pl.Int64),
            live=(pl.col("used").fill_null(0) - pl.col("live").fill_null(0)).clip(lower_bound=0),
            reserved=(pl.col("held").fill_null(0) - pl.col("reserved").fill_null(0)).clip(lower_bound=0),
        )
    )  # fmt: skip
    return LEVELS.conform(
        pl.concat([before, steps.filter((pl.col("live") != 0) | (pl.col("reserved") != 0))])
        .sort("device", "event")
        .with_columns(
            live_bytes=pl.col("live").cum_sum().over("device"),
            reserved_bytes=pl.col("reserved").cum_sum().over("device"),
        )
    )


def with_held(levels: pl.DataFrame, blocks: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return rows of `levels` with a column for each table of blocks: the bytes of these that are live then.

    A table of blocks has device, bytes, start_event (null: before the record) and end_event.
    """
    for name, some in blocks.items():
        changes = pl.concat(
            [
                some.select("device", "bytes", event=pl.col("start_event").fill_null(-1)),
                some.drop_nulls("end_event").select("device", -pl.col("bytes"), event="end_event"),
            ]
        )
        held = (
            changes.group_by("device", "event")
            .agg(pl.col("bytes").sum())
            .sort("event")
            .select("device", "event", pl.col("bytes").cum_sum().over("device").alias(name))
        )
        levels = levels.sort("event").join_asof(held, on="event", by="device", check_sortedness=False)
    return levels.with_columns(pl.col(blocks.keys()).fill_null(0)).sort("device", "event")


def peaks(levels: pl.DataFrame) -> pl.DataFrame:
    """Return the first row of `levels` with the most live bytes, for each device."""
    most = pl.col("live_bytes") == pl.col("live_bytes").max().over("device")
    return levels.filter(most).unique("device", keep="first", maintain_order=True)


def live_at(lives: pl.DataFrame, moments: pl.DataFrame) -> pl.DataFrame:
    """Return the blocks that live after the event of `moments` (a row a device), with the remainder that no block explains."""
    starts, ends, event = pl.col("start_event"), pl.col("end_event"), pl.col("event")
    blocks = lives.join(moments.select("device", "event", "live_bytes"), on="device").filter(
        (starts.is_null() | (starts <= event)) & (ends.is_null() | (ends > event))
    )
    rest = (
        moments.select("device", "event", "live_bytes")
        .join(blocks.group_by("device").agg(known=pl.col("bytes").sum()), on="device", how="left")
        .select("device", "event", "live_bytes", bytes=pl.col("live_bytes") - pl.col("known").fill_null(0))
        .filter(pl.col("bytes") != 0)
    )
    return pl.concat([blocks, rest], how="diagonal")
