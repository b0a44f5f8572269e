"""Tell devices apart that ranks write with the same number into one file.

Kineto draws a device's work in a process with the device's number. Programs that merge files of ranks leave
`args.device` as it was, and give each rank's processes a mark ("[TP00] 0") or a number of their own; or nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from trace_analyzer.ingest.classify import Classified
from trace_analyzer.ingest.trace import DeviceProperties

_NUMBER, _TRACK = pl.col("device_label").cast(pl.String), pl.col("pid").cast(pl.String)


def of_ranks(events: Classified, header: Sequence[DeviceProperties]) -> Classified:
    """Name devices of several ranks by their process: a number that several processes write is that of several devices.

    Where one process has the work of all ranks, it is named by the process that launched it, if the header lists the
    number more than once, or work of several processes runs at once on one stream.
    """
    tracks = events.device.select(_NUMBER.alias("number"), _TRACK.alias("track")).drop_nulls().unique()
    several = tracks.filter(pl.len().over("number") > 1)
    if several.height:
        track, number = pl.col("track"), pl.col("number")
        marked = (track == number) | track.str.ends_with(pl.lit(" ") + number)
        named = several.with_columns(
            pl.when(marked).then("track").otherwise(pl.format("{}/{}", "track", "number")).alias("rank")
        )
        return replace(events, device=_renamed(events.device, named), rest=_renamed(events.rest, named))
    twice = [number for number, count in Counter(entry.index for entry in header).items() if count > 1]
    owners = _owners(events, twice) if twice else _at_once(events)
    if owners is None:
        return events
    device = events.device.join(owners, on="row", how="left", maintain_order="left")
    return replace(
        events, device=device.with_columns(pl.coalesce("rank", "device_label").alias("device_label")).drop("rank")
    )


def _at_once(events: Classified) -> pl.DataFrame | None:
    """Return `_owners` where work of several processes overlaps on one stream, which runs one kernel at a time; else None.

    A stream is one of a context: databases number the contexts of all processes apart, merged files do not.
    """
    calls = events.host.filter(pl.col("kind").is_in(["runtime", "driver"])).get_column("pid")
    if calls.n_unique() < 2:
        return None
    owners = _owners(events, events.device.get_column("device_label").cast(pl.String).unique().drop_nulls().to_list())
    if owners is None:
        return None
    by = ["device_label", "context", "stream"]
    work = events.device.join(owners, on="row").sort("start_ns", "row")
    ended = (pl.col("start_ns") + pl.col("duration_ns")).cum_max().shift().over(by)
    overlaps = (pl.col("start_ns") < ended) & (pl.col("rank") != pl.col("rank").shift().over(by))
    several = work.filter(overlaps).select("device_label").unique()
    owned = work.join(several, on="device_label", how="semi").select("row", "rank")
    return owned if owned.height else None


def _renamed(events: pl.DataFrame, named: pl.DataFrame) -> pl.DataFrame:
    """Replace (number, track) of the rows that ``named`` has by its rank."""
    keys = events.select("row", _NUMBER.alias("number"), _TRACK.alias("track"))
    ranks = keys.join(named, on=["number", "track"], how="left", maintain_order="left").get_column("rank")
    return events.with_columns(
        pl.coalesce(ranks, "device_label").cast(events.schema["device_label"]).alias("device_label")
    )


def _owners(events: Classified, numbers: Sequence[str]) -> pl.DataFrame | None:
    """Return (row, rank) of activities with these device numbers, by the process that launched each.

    Ranks share correlation ids: the calls and the activities of one id belong together in order of time. None where some
    activity has no call, or where one process launched all.
    """
    # A driver call inside a runtime call has its id.
    calls = (
        events.host.filter(pl.col("kind").is_in(["runtime", "driver"]), pl.col("correlation") > 0)
        .select("correlation", "start_ns", pl.col("pid").cast(pl.String).alias("process"))
        .sort("start_ns")
        .unique(["process", "correlation"], keep="first", maintain_order=True)
        .with_columns(pl.int_range(pl.len()).over("correlation").alias("place"))
    )
    work = (
        events.device.filter(_NUMBER.is_in(list(numbers)))
        .select("row", "correlation", "start_ns", _NUMBER.alias("number"))
        .sort("start_ns", "row")
        .with_columns(pl.int_range(pl.len()).over("correlation").alias("place"))
    )
    owned = work.join(calls, on=["correlation", "place"], how="left")
    starts_before = (pl.col("start_ns_right") <= pl.col("start_ns")).fill_null(False)
    if not owned.select(starts_before.all()).item() or owned.get_column("process").n_unique() < 2:
        return None
    return owned.select("row", pl.format("{}/{}", "process", "number").alias("rank"))
