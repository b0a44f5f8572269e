"""Measure collectives and copies: bytes, bandwidth, and exposed time.

Bandwidths are defined as in nccl-tests (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md): algorithm
bandwidth is size over time, and bus bandwidth is comparable with the hardware whatever the number of ranks. Waiting for
the slowest rank is included, so these are effective bandwidths, not those of the links.
"""

import polars as pl

from trace_analyzer import analysis, thresholds
from trace_analyzer.analyses.device_models import LINK, MatchedDevices, host_links, peer_links, possible_share
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.tensors import ELEMENT_BYTES, elements
from trace_analyzer.catalog.event_names import copy_direction
from trace_analyzer.frames.intervals import END_NS, innermost_at, longest_place, union, with_covered
from trace_analyzer.frames.lookups import as_strings, lookup_inner, map_unique
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.schema import PLACE, Table, columns
from trace_analyzer.sections import DEVICE_LABEL, WHOLE_TRACE, Longest, Section, Shown

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


COLLECTIVES = Table(
    "collectives",
    "Communication kernels with their message, their bandwidth and what hid them.",
    columns("""
        activity_id name device stream start_ns duration_ns
        collective str all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv, ...
        message_dtype str Type of the elements.
        group_size i64 Ranks that take part; null when not recorded.
        message_bytes f64 Size as nccl-tests counts it: of an all_gather what all ranks send together.
        algorithm_byte_per_s f64 Size over duration.
        bus_byte_per_s f64 That times 2(n-1)/n for all_reduce, (n-1)/n for the other n-to-n collectives.
        hidden_ns exposed_ns
    """),
)

COMMUNICATION = Table(
    "communication",
    "Communication kernels summed up by collective, name, size and ranks.",
    columns(
        """
        device
        collective str Which collective.
        name
        message_dtype str Type of the elements.
        group_size i64 Ranks that take part; null when not recorded.
        message_bytes f64 Size of one, as nccl-tests counts it.
        count time_ns
        median_ns f64 Median duration.
        hidden_ns exposed_ns
        algorithm_byte_per_s f64 Size over time.
        bus_byte_per_s f64 Bus bandwidth over their time.
        best_bus_byte_per_s f64 Bus bandwidth of the fastest: with the least waiting for other ranks.
        """,
        *LINK,
        """
        link_ratio f64 Share of that peak that the fastest reaches; above 1 where the switch reduces; ranks on other
            hosts are behind a network.
        """,
    ),
)

COMMUNICATION_SECTION = Section(
    "Communication",
    show=(
        Shown("name", "kernel", "name"),
        DEVICE_LABEL,
        Shown("collective", "collective", "text"),
        Shown("message_bytes", "message"),
        Shown("group_size", "ranks"),
        Shown("count", "count"),
        Shown("time_ns", "time"),
        Shown("exposed_ns", "exposed", term="exposed"),
        Shown("bus_byte_per_s", "bus bandwidth", term="bus"),
        Shown("best_bus_byte_per_s", "best", term="bus"),
        Shown("link_ratio", "best, of the link's peak"),
    ),
    sort=("-exposed_ns", "-time_ns"),
    place=Longest("collectives", ("device", "collective", "name", "message_dtype", "group_size", "message_bytes")),
    key="communication",
    table="communication",
    scope=WHOLE_TRACE,
)

# Name of the operation in the collective, the operator or the kernel -> the collective. The first match counts.
_COLLECTIVES = (
    ("reduce_scatter", r"reduce_?scatter"),
    ("all_reduce", r"all_?reduce|cross_?device_?reduce"),
    ("all_gather", r"all_?gather"),
    ("all_to_all", r"all_?to_?all|deep_?ep|[^a-z]ep(?:::|_|\d).*(?:dispatch|combine)|ep_?(?:dispatch|combine)"),
    ("broadcast", r"broadcast"),
    ("send_recv", r"send_?recv|(?:^|[^a-z])(?:send|recv)(?:[^a-z]|$)"),
    ("reduce", r"reduce"),
    ("barrier", r"barrier"),
)

_FIRST_TYPE = r'^\["([^"]*)"'


def collectives(trace: Trace, host: Host, activities: pl.DataFrame) -> pl.DataFrame:
    """Return table `collectives`: each communication kernel with its message, bandwidths and exposed time."""
    kernels = activities.filter(pl.col("bound") == "communication")
    if kernels.is_empty():
        return COLLECTIVES.empty()
    calls = host.those((pl.col("kind") == "operator") & pl.col("name").str.contains("c10d"))
    located = innermost_at(
        kernels, "launch_start_ns", calls.rename({"event_id": "call_id"}), "call_id", "launch_thread"
    )
    called = as_strings(located.with_columns(host.texts(located.get_column("call_id")).cast(pl.String).alias("call")))
    named = _with_message(called, trace).with_columns(_collective().alias("collective"))
    # Fewer than two ranks exchange nothing, whatever their message says.
    ranks = pl.when(pl.col("group_size") >= 2).then(pl.col("group_size").cast(pl.Float64))
    spread = pl.when(pl.col("collective") == "all_gather").then(ranks).otherwise(1.0)
    share = pl.col("duration_ns") / pl.col("duration_ns").sum().over("operator_id")
    alone = pl.when(pl.col("operator_id").is_null() | pl.col("is_own")).then(1.0).otherwise(share)
    frame = (
        named.with_columns((pl.col("input_bytes") * spread * alone).alias("message_bytes"))
        .with_columns(
            pl.when((pl.col("duration_ns") > 0) & (pl.col("message_bytes") > 0))
            .then(pl.col("message_bytes") / pl.col("duration_ns") * 1e9)
            .alias("algorithm_byte_per_s")
        )
        .with_columns((pl.col("algorithm_byte_per_s") * _bus_factor(ranks)).alias("bus_byte_per_s"))
    )
    return COLLECTIVES.conform(with_exposed(frame, hiding_work(activities)))


_SWITCHED = 2.1
"""Largest possible share of a link's peak: a switch that reduces halves the bytes on the link (NVIDIA, SHARP)."""


def communication_table(collectives: pl.DataFrame, matched_devices: MatchedDevices) -> pl.DataFrame:
    """Return table `communication`: collectives summed by kind, size and ranks, longest first."""
    keys = ["device", "collective", "name", "message_dtype", "group_size", "message_bytes"]

    def over_time(rate: str) -> pl.Expr:
        timed = pl.col("duration_ns").filter(pl.col(rate).is_not_null()).sum()
        return pl.when(timed > 0).then((pl.col(rate) * pl.col("duration_ns")).sum() / timed).alias(rate)

    frame = (
        collectives.with_columns(pl.col("message_bytes").round())
        .group_by(keys, maintain_order=True)
        .agg(
            pl.len().alias("count"),
            pl.col("duration_ns").sum().alias("time_ns"),
            pl.col("duration_ns").median().alias("median_ns"),
            pl.col("exposed_ns").sum(),
            pl.col("hidden_ns").sum(),
            over_time("algorithm_byte_per_s"),
            over_time("bus_byte_per_s"),
            pl.col("bus_byte_per_s").max().alias("best_bus_byte_per_s"),
        )
        .join(peer_links(matched_devices), on="device", how="left", maintain_order="left")
        .with_columns(
            possible_share(pl.col("best_bus_byte_per_s") / pl.col("link_byte_per_s"), _SWITCHED).alias("link_ratio")
        )
        .sort("time_ns", *keys, descending=[True, *[False] * len(keys)])
    )
    return COMMUNICATION.conform(frame)


def with_exposed(spans: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Add ``hidden_ns``, the time with concurrent ``work`` on the device, and ``exposed_ns``."""
    ends = spans.with_columns(END_NS)
    return with_covered(ends, union(work, ["device"]), ["device"], "hidden_ns").with_columns(
        (pl.col("duration_ns") - pl.col("hidden_ns")).alias("exposed_ns")
    )


def hiding_work(activities: pl.DataFrame) -> pl.DataFrame:
    """Return intervals with work that hides communication, as in the partition.

    This is work of kernels, and of copies within the device.
    """
    work = activities.select("device", "start_ns", "duration_ns", "bound")
    return work.filter(~pl.col("bound").is_in(["communication", "copy"])).select("device", "start_ns", END_NS)


def collective_inputs(trace: Trace, links: pl.DataFrame) -> pl.DataFrame:
    """Return the arguments of the collectives of kernels (activity_id, operator_id), and whether they are the kernel's own.

    An operator around the launch has them (`record_param_comms`); without one, as in graphs, kernels carry them.
    """
    ids = links.select("activity_id", "operator_id")
    called = lookup_inner(
        ids.select(pl.col("operator_id").alias("event_id")).drop_nulls().unique(maintain_order=True),
        trace.operator_inputs, "event_id",
    )  # fmt: skip
    inputs = ids.join(as_strings(called), left_on="operator_id", right_on="event_id", how="left", maintain_order="left")
    own = as_strings(lookup_inner(ids.select("activity_id"), trace.collective_inputs, "activity_id"))
    both = inputs.join(own, on="activity_id", how="left", maintain_order="left", suffix="_own")
    is_own = pl.col("collective").is_null() & pl.col("collective_own").is_not_null()
    names = [name for name in own.columns if name != "activity_id"]
    return both.with_columns(
        is_own.alias("is_own"), *(pl.when(is_own).then(f"{name}_own").otherwise(name).alias(name) for name in names)
    ).drop("operator_id", *(f"{name}_own" for name in names))


def _with_message(kernels: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Add the collective as recorded, and its message: bytes, dtype and ranks.

    Where the profiler did not record the collective's arguments, the operator's first input is the message (c10d's
    ``record_param_comms`` and the in-place ``symm_mem`` operators).
    """
    inputs = collective_inputs(trace, kernels).select(
        "activity_id",
        "is_own",
        pl.col("collective").alias("recorded_collective"),
        "group_size",
        pl.coalesce("message_dtype", pl.col("input_types").str.extract(_FIRST_TYPE)).alias("message_dtype"),
        pl.coalesce(
            pl.col("message_elements").cast(pl.Float64), elements(pl.col("input_dims").str.strip_prefix("["))
        ).alias("elements"),
    )
    size = (
        pl.col("message_dtype")
        .str.to_lowercase()
        .str.strip_prefix("c10::")
        .replace_strict(ELEMENT_BYTES, default=None, return_dtype=pl.Float64)
    )
    return kernels.join(inputs, on="activity_id", how="left", maintain_order="left").with_columns(
        (pl.col("elements") * size).alias("input_bytes")
    )


def _collective() -> pl.Expr:
    """Determine the collective: as recorded, else by the c10d operator, the operator or the kernel."""
    sources = [pl.col(c).str.head(4096).str.to_lowercase() for c in ("recorded_collective", "call", "operator", "name")]
    return pl.coalesce(
        pl.when(source.str.contains(pattern)).then(pl.lit(name)) for source in sources for name, pattern in _COLLECTIVES
    )


def _bus_factor(ranks: pl.Expr) -> pl.Expr:
    peers, kind = (ranks - 1) / ranks, pl.col("collective")
    times_peers = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
    of_peers = kind.replace_strict(times_peers, default=None, return_dtype=pl.Float64) * peers
    return pl.when(kind.is_in(["broadcast", "reduce", "send_recv"])).then(1.0).otherwise(of_peers)


ANALYSES = (
    analysis.Analysis(COLLECTIVES, collectives),
    analysis.Analysis(COMMUNICATION, communication_table, placed=(COMMUNICATION_SECTION,)),
    analysis.Analysis(COPIES, copy_table, placed=(COPIES_SECTION,)),
)
