"""Measure copies: direction, kind of host memory, bandwidth, and exposed time."""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.communication import with_exposed
from trace_analyzer.analyses.device_models import LINK, MatchedDevices, host_links, peer_links, possible_share
from trace_analyzer.analysis import Analysis
from trace_analyzer.catalog.event_names import copy_direction
from trace_analyzer.frames.intervals import END_NS, longest_place
from trace_analyzer.frames.lookups import map_unique
from trace_analyzer.schema import PLACE, Table, columns
from trace_analyzer.sections import DEVICE_LABEL, WHOLE_TRACE, Section, Shown

COPIES = Table(
    "copies",
    "Copies summed up by direction, host memory and operator.",
    columns(
        """
        device
        direction str host-to-device, device-to-host, within-device, peer-to-peer, ...
        host_memory str pageable, pinned or managed; null when the profiler does not record it (AMD).
        operator str Name of the innermost operator around the launch.
        count u32 Copies.
        time_ns
        bytes i64 Sum of their bytes, where recorded.
        byte_per_s f64 Bytes over time.
        """,
        *LINK,
        """
        link_ratio f64 Share of that peak that copies of 64 KiB and more reach; null within the device.
        hidden_ns exposed_ns
        call_ns i64 CPU time in the calls that started them.
        small_count u32 Copies under 64 KiB, which take longer to start than to move.
        small_ns i64 Time of these.
        """,
        *PLACE,
    ),
)

COPIES_SECTION = Section(
    "Copies",
    show=(
        Shown("direction", "copies", "line"),
        Shown("host_memory", "host memory", "text"),
        DEVICE_LABEL,
        Shown("operator", "operator", "name"),
        Shown("count", "count"),
        Shown("time_ns", "time"),
        Shown("exposed_ns", "exposed", term="exposed"),
        Shown("bytes", "bytes"),
        Shown("byte_per_s", "bandwidth"),
        Shown("link_ratio", "of the link's peak"),
        Shown("call_ns", "CPU time in the calls"),
        Shown("small_count", "under 64 KiB", unless_zero=True),
    ),
    sort=("-exposed_ns", "-time_ns"),
    key="copies",
    table="copies",
    scope=WHOLE_TRACE,
)


_HOST_DIRECTIONS, _PEER_DIRECTION = ("host-to-device", "device-to-host"), "peer-to-peer"


def copy_table(activities: pl.DataFrame, matched_devices: MatchedDevices) -> pl.DataFrame:
    """Return table `copies`: copies summed by device, direction, host memory and operator, longest first.

    A copy is exposed while no kernel runs on its device; ``small`` copies take longer to start than to transfer.
    """
    copies = activities.filter(pl.col("kind") == "memcpy")
    if copies.is_empty():
        return COPIES.empty()
    kernels = activities.select("kind", "device", "start_ns", END_NS).filter(pl.col("kind") == "kernel")
    keys = ["device", "direction", "host_memory", "operator"]
    small = pl.col("bytes") < thresholds.SMALL_COPY_BYTES
    timed = pl.col("duration_ns").filter(pl.col("bytes").is_not_null()).sum()
    host_memory = (
        pl.col("name").str.extract(r"(?i)\b(pageable|pinned|managed)\b").str.to_lowercase().alias("host_memory")
    )
    direction = copy_direction().fill_null("unknown").alias("direction")
    to_peers = peer_links(matched_devices).with_columns(pl.lit(_PEER_DIRECTION).alias("direction"))
    with_host = host_links(matched_devices).join(pl.DataFrame({"direction": _HOST_DIRECTIONS}), how="cross")
    # Copies above the small size show the bandwidth that the link reaches.
    rate = pl.when(pl.col("large_ns") > 0).then(pl.col("large_bytes") / pl.col("large_ns") * 1e9)
    frame = (
        with_exposed(copies.hstack(map_unique(copies.select("name"), direction, host_memory)), kernels)
        .group_by(keys, maintain_order=True)
        .agg(
            pl.len().alias("count"),
            pl.col("duration_ns").sum().alias("time_ns"),
            pl.when(pl.col("bytes").count() > 0).then(pl.col("bytes").sum()).alias("bytes"),
            pl.when(timed > 0).then(pl.col("bytes").sum() / timed * 1e9).alias("byte_per_s"),
            pl.col("bytes").filter(~small).sum().alias("large_bytes"),
            pl.col("duration_ns").filter(~small).sum().alias("large_ns"),
            pl.col("exposed_ns").sum(),
            pl.col("hidden_ns").sum(),
            (pl.col("launch_end_ns") - pl.col("launch_start_ns")).sum().alias("call_ns"),
            small.sum().cast(pl.UInt32).alias("small_count"),
            pl.col("duration_ns").filter(small).sum().alias("small_ns"),
            *longest_place(),
        )
        .sort("time_ns", *keys, descending=[True, *[False] * len(keys)])
        .join(
            pl.concat([with_host, to_peers.select(with_host.columns)]),
            on=["device", "direction"],
            how="left",
            maintain_order="left",
        )
        .with_columns(
            possible_share(pl.when(pl.col("large_bytes") > 0).then(rate / pl.col("link_byte_per_s"))).alias(
                "link_ratio"
            )
        )
    )
    return COPIES.conform(frame)


def copy_sums(copies: pl.DataFrame) -> pl.DataFrame:
    """Sum table `copies` of one device over its operators."""
    keys = ["direction", "host_memory"]
    sums = ("count", "time_ns", "exposed_ns", "call_ns", "small_count", "small_ns")
    timed = pl.col("time_ns").filter(pl.col("bytes").is_not_null()).sum()
    # The mean share of the link's peak, weighted by the time of copies that are not small.
    known = pl.col("link_ratio").is_not_null()
    large_ns = (pl.col("time_ns") - pl.col("small_ns")).filter(known)
    mean = (pl.col("link_ratio").filter(known) * large_ns).sum() / large_ns.sum()
    return (
        copies.group_by(keys, maintain_order=True)
        .agg(
            pl.col(*sums).sum(),
            pl.when(pl.col("bytes").count() > 0).then(pl.col("bytes").sum()).alias("bytes"),
            pl.when(timed > 0).then(pl.col("bytes").sum() / timed * 1e9).alias("byte_per_s"),
            pl.col("link").first(),
            pl.when(large_ns.sum() > 0).then(mean).alias("link_ratio"),
        )
        .sort("time_ns", *keys, descending=[True, False, False])
    )


ANALYSES = (Analysis(COPIES, copy_table, placed=(COPIES_SECTION,)),)
