"""Leave out what cannot be: events by their time, parts of durations, sizes.

Kineto writes 0 for a time before its base (`ChromeTraceLogger::transToRelativeTime`), and profilers lose the clock of
single records. Such a time must not decide how long the recording was.
"""

from typing import Any

import polars as pl
from msgspec.structs import replace

from trace_analyzer.catalog.event_names import CALLS
from trace_analyzer.ingest.classify import Classified
from trace_analyzer.thresholds import IMPOSSIBLE_NS
from trace_analyzer.units import NS_PER_S

_ORDINARY_NS = 60 * NS_PER_S
"""A recording of up to this length holds no time that is far from others."""
_FAR_NS = 3_600 * NS_PER_S
_FEW = 0.05
_LONGEST_NS = 30 * 24 * _FAR_NS
"""Events an hour from all others did not happen then if they are few beside the others, or a month away."""
_INSIDE = 0.1
"""Least share of the ids of events without a time that lie among the others' ids, where it matters that they are missing."""
_APART_NS = 2 * NS_PER_S
"""Least distance from 0 to all others of an instant at 0 that has no time."""
_EARLY_NS = NS_PER_S // 10
"""An activity begins after its launch; clocks of host and device differ by less, or by the same for most activities."""


def with_possible_times(events: Classified) -> Classified:
    """Leave out events whose time cannot be, and shorten impossible durations of activities.

    Left out are events at time 0 (or before) that are far from all others; a few events more than an hour from all
    others, or lasting until then; and activities that begin seconds before, or an hour after, their launch, unlike most
    activities of their device. They count as ``implausible-time``, or as ``outside-time`` where their correlation ids
    show that they happened before or after all that is left.
    """
    events = _without(events, _far(events))
    events = _without(events, _misplaced(events))
    return replace(events, device=_ended(events))


_SIZES = {
    "device": ("bytes", "registers_per_thread", "shared_memory_bytes"),
    "inputs": ("message_elements", "output_elements"),
    "collectives": ("message_elements", "output_elements"),
}
_LARGEST = 1 << 42
"""4 TiB: no device holds as much, and sums of a million such sizes do not overflow."""


def with_possible_sizes(events: Classified) -> tuple[Classified, int]:
    """Return the events without sizes below 0 or above 4 TiB, and how many there were."""
    count = 0
    frames: dict[str, Any] = {}
    for name, sizes in _SIZES.items():
        frame: pl.DataFrame = getattr(events, name)
        odd = frame.select((~pl.col(sizes).is_between(0, _LARGEST)).sum()).sum_horizontal().item()
        if odd:
            count += odd
            known = (pl.when(pl.col(size).is_between(0, _LARGEST)).then(size).alias(size) for size in sizes)
            frames[name] = frame.with_columns(known)
    return replace(events, **frames), count


def _without(events: Classified, odd: dict[str, pl.Series]) -> Classified:
    """Leave out the marked events, and count them."""
    if not (count := sum(int(marks.sum()) for marks in odd.values())):
        return events
    kept = {name: getattr(events, name).filter(~marks) for name, marks in odd.items()}
    reason = "implausible-time"
    if "host" in odd:
        number = pl.col("correlation").filter(pl.col("correlation") > 0)
        lost = pl.concat(getattr(events, name).filter(odd[name]).select(number) for name in ("host", "device"))
        least, most = kept["device"].select(number.min().alias("least"), number.max().alias("most")).row(0)
        if least is not None and lost.height and lost.select(number.is_between(least, most).mean()).item() < _INSIDE:
            reason = "outside-time"
    counted = pl.DataFrame({"reason": [reason], "cat": [None], "count": [count]}, schema=events.skipped.schema)
    return replace(events, **kept, skipped=pl.concat([events.skipped, counted]))


def _spans(events: Classified) -> dict[str, pl.DataFrame]:
    """Return start_ns and duration_ns of all timed events by frame; both null for metadata."""
    spans = {name: getattr(events, name).select("start_ns", "duration_ns") for name in ("python", "host", "device")}
    arrows = events.arrows.select("start_ns", duration_ns=pl.lit(0, dtype=pl.Int64))
    rest = events.rest.select(pl.when(pl.col("kind") != "metadata").then(pl.col("start_ns", "duration_ns")))
    return {**spans, "arrows": arrows, "rest": rest}


def _far(events: Classified) -> dict[str, pl.Series]:
    """Mark events at time 0, and few events, that are far from all others."""
    spans = _spans(events)
    start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("duration_ns")
    bounds = pl.concat(
        frame.select(start.min(), start.max().alias("last_ns"), end.max().alias("end_ns")) for frame in spans.values()
    )
    least, most = bounds.select(start.min(), pl.max_horizontal("last_ns", "end_ns").max()).row(0)
    if least is None or most - least <= (_ORDINARY_NS if least > 0 else _APART_NS):
        return {}
    starts = pl.concat(frame.get_column("start_ns") for frame in spans.values()).drop_nulls().sort().to_frame()
    # Clusters without a gap of an hour; the recording is the largest one, and others of comparable size near it.
    gaps = (start.diff().fill_null(0) > _FAR_NS).cum_sum().alias("cluster")
    clusters = starts.group_by(gaps, maintain_order=True).agg(
        start.min().alias("first_ns"), start.max().alias("last_ns"), pl.len()
    )
    after_zero = clusters.filter(pl.col("last_ns") > 0)
    largest = pl.col("first_ns").sort_by("len", descending=True, maintain_order=True).first()
    recorded = (after_zero if after_zero.height else clusters).filter(
        pl.col("len") >= _FEW * pl.col("len").max(), (pl.col("first_ns") - largest).abs() <= _LONGEST_NS
    )
    first_ns, last_ns = recorded.select(pl.col("first_ns").min(), pl.col("last_ns").max()).row(0)
    second = starts.filter(start > max(0, first_ns - 1)).get_column("start_ns").min()
    # In a file with times from 0 on, something may well happen at 0.
    is_zero = (start <= 0) & (pl.lit(second) >= _APART_NS) & (pl.col("duration_ns") == 0)
    away = (start < first_ns) | (start > last_ns)
    return {
        # An activity that lasts too long is shortened.
        name: frame.select(
            (is_zero | away | ((end > last_ns + _FAR_NS) & (name != "device"))).fill_null(False)
        ).to_series()
        for name, frame in spans.items()
    }


def _misplaced(events: Classified) -> dict[str, pl.Series]:
    """Mark activities that begin long before or after all calls with their correlation id, unlike most of their device."""
    device, calls = events.device, events.host.select("start_ns", "correlation", "kind")
    first, last = device.get_column("start_ns").min(), calls.get_column("start_ns").max()
    if first is None or last is None or last - first <= _EARLY_NS:  # type: ignore[operator]
        return {}
    called = (
        calls.filter(pl.col("kind").is_in(CALLS), pl.col("correlation") > 0)
        .group_by("correlation")
        .agg(pl.col("start_ns").min().alias("first_ns"), pl.col("start_ns").max().alias("last_ns"))
    )
    return {
        "device": device.select("start_ns", "correlation", "device_label")
        .join(called, on="correlation", how="left", maintain_order="left")
        .select(
            (
                (pl.col("start_ns") - pl.col("first_ns") < -_EARLY_NS)
                | (pl.col("start_ns") - pl.col("last_ns") > _FAR_NS)
            )
            .fill_null(False)
            .alias("odd"),
            pl.col("first_ns").is_not_null().sum().over("device_label").alias("linked"),
            "device_label",
        )
        .select(pl.col("odd") & (2 * pl.col("odd").sum().over("device_label") < pl.col("linked")))
        .to_series()
    }


def _ended(events: Classified) -> pl.DataFrame:
    """Return activities with ``recorded_ns``; one of impossible duration ends where its stream's next work begins.

    A stream executes in order: work in which later work of its stream runs for more than half of the time ended
    earlier, and the last of a stream does not outlast the recording by seconds. Only nodes of graphs run out of order,
    on the stream of their launch.
    """
    stream, length = ["device_label", "context", "stream"], pl.col("duration_ns")
    device = events.device.with_columns(pl.lit(None, dtype=pl.Int64).alias("recorded_ns"))
    if not device.select((length >= IMPOSSIBLE_NS).any()).item():
        return device
    by_graph = pl.col("graph_id").is_not_null() | (
        pl.struct(*stream, "correlation").is_duplicated() & (pl.col("correlation") > 0).fill_null(False)
    )
    others = (events.host, events.rest.filter(pl.col("kind") != "metadata"), events.python)
    ends = [frame.select((pl.col("start_ns") + length).max()) for frame in others]
    last_ns = pl.concat(ends).to_series().max()
    excess = pl.col("start_ns") + length - pl.coalesce("following_ns", pl.lit(last_ns, dtype=pl.Int64))
    placed = device.with_row_index("place")
    ended = (
        placed.filter(~by_graph)
        .select("place", *stream, "start_ns", length)
        .sort(*stream, "start_ns", "duration_ns")
        .with_columns(pl.col("start_ns").shift(-1).over(stream).alias("following_ns"))
        .filter(
            length >= IMPOSSIBLE_NS, 2 * excess > length, pl.col("following_ns").is_not_null() | (excess > _APART_NS)
        )
        .select("place", (length - excess).clip(lower_bound=0).alias("ended_ns"))
    )
    return (
        placed.join(ended, on="place", how="left", maintain_order="left")
        .with_columns(
            pl.when(pl.col("ended_ns").is_not_null()).then(length).alias("recorded_ns"),
            pl.coalesce("ended_ns", length).alias("duration_ns"),
        )
        .drop("place", "ended_ns")
    )
