"""Arrange every event of the report in rows that a browser can search by bisection.

Tracks (a stream, the idle row of a device, the operators of a thread) consist of rows; the events of a row are disjoint
and sorted by start. In the columns, activities come first, then the devices' other events, then the host's. Where the
file must be small, Python frames are left out first, then details of events, then other host events.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import asdict

from trace_analyzer import units
from trace_analyzer.analyses.host import IS_MODULE, MODULE
from trace_analyzer.frames import lookups
from trace_analyzer.frames.intervals import END_NS, LENGTH_NS
from trace_analyzer.render.html import codec
from trace_analyzer.render.html.tracks import (
    NO_PACKAGES,
    Packages,
    TrackEvents,
    device_labels,
    in_rows,
    packages,
    track_events,
)
from trace_analyzer.render.names import distinguishing_arguments, frame_label, short_name
from trace_analyzer.report import Report


class Thinning(NamedTuple):
    """The shares of Python frames and of other host events to keep (the longest), and whether to keep details."""

    python_ratio: float = 1.0
    details: bool = True
    host_ratio: float = 1.0


EVERYTHING = Thinning()

_SHARES = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 0.0)

LADDER = (
    EVERYTHING,
    *(Thinning(python_ratio=share) for share in _SHARES),
    Thinning(python_ratio=0.0, details=False),
    *(Thinning(python_ratio=0.0, details=False, host_ratio=share) for share in _SHARES),
)
"""Steps from everything to the minimum of a timeline: activities, their launches and idle time."""


def kept(report: Report, thinning: Thinning) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return the host events to show, and a description of those left out."""
    events = report.tables["host_events"]
    if thinning == EVERYTHING:
        return events, ()
    python = (pl.col("kind") == "python") & ~IS_MODULE
    launching = pl.col("event_id").is_in(report.tables["launches"].get_column("launch_id").implode())
    events, frames = _longest(events, python, thinning.python_ratio, "Python frames")
    events, others = _longest(events, ~python & ~launching, thinning.host_ratio, "other host events")
    details = () if thinning.details else ("shapes, grids, FLOP and other details of single events",)
    return events, (*frames, *others, *details)


def _longest(events: pl.DataFrame, chosen: pl.Expr, ratio: float, what: str) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Keep only this share of the chosen events, the longest; also return a description of the others."""
    durations = events.filter(chosen).get_column("duration_ns")
    if ratio == 1.0 or durations.is_empty():
        return events, ()
    least = durations.quantile(1 - ratio, "higher") if ratio else None
    short = pl.lit(True) if least is None else pl.col("duration_ns") < least
    left = events.filter(~(chosen & short))
    missing = events.height - left.height
    limit = "" if least is None else f" shorter than {units.duration(least)}"
    return left, (f"{units.count(missing)} {what}{limit}",) if missing else ()


ACTIVITY_TEXTS = ("bucket", "bound", "operator", "dtype", "grid", "block")
OPERATOR_TEXTS = ("input_dims", "input_types", "collective", "message_dtype", "call_stack")
PATH_TEXTS = ("edge", "module", "python_function")
NUMBERS = (
    "bytes", "registers_per_thread", "shared_memory_bytes", "flop", "moved_bytes", "occupancy_percent",
    "message_elements", "group_size",
)  # fmt: skip
_ACTIVITY_NUMBERS, _OPERATOR_NUMBERS = NUMBERS[:6], NUMBERS[6:]


class Track(Struct, frozen=True):
    """A labelled band of the timeline; ``rows`` are (first event, event count) from top to bottom."""

    group: str
    label: str
    family: str
    thread: int | None
    collapsed: bool
    rows: tuple[tuple[int, int], ...]


class Curve(NamedTuple):
    """A step function over time: ``place`` is the device or the CPU."""

    kind: str
    place: str
    steps: pl.DataFrame


class TimelineColumns(NamedTuple):
    """The content of the timeline: tracks from top to bottom, their events, and the curves below.

    ``events`` has name, kind, start, duration, and the gap to the row's previous event. ``link`` is the index of the
    launch, of the host event that explains idle time, of a backward operator's forward operator, or of the event of an
    interval of the critical path; -1 without one. ``detail`` is the row of ``details`` with further properties, from 1;
    0 without one. The first ``activity_count`` events are activities.
    """

    tracks: tuple[Track, ...]
    events: pl.DataFrame
    activity_count: int
    details: pl.DataFrame
    curves: tuple[Curve, ...]
    end_ns: int
    left_out: tuple[str, ...] = ()
    advice: tuple["AdviceMembers", ...] = ()
    packages: Packages = NO_PACKAGES
    steps: tuple[tuple[str, int, int, int], ...] = ()
    """Place, number, start_ns and end_ns of each step."""

    @property
    def curve_kinds(self) -> tuple[str, ...]:
        """Return the kinds of the curves, from top to bottom."""
        return tuple(dict.fromkeys(curve.kind for curve in self.curves))


class AdviceMembers(NamedTuple):
    """The intervals that an advice concerns: place (``GPU 0``), start_ns, end_ns; the longest of ``total``."""

    advice: str
    total: int
    members: pl.DataFrame


def timeline_columns(report: Report, thinning: Thinning = EVERYTHING) -> TimelineColumns:
    """Arrange every activity, idle interval, host event and interval of the critical path in rows.

    ``thinning`` determines what is left out.
    """
    host_events, left_out = kept(report, thinning)
    shown, more = _busiest(track_events(report, host_events))
    left_out += more
    laid = [track._replace(events=in_rows(track.events)) for track in shown]
    # Activities come first, so that their index identifies them; host events last, except the critical path.
    order = [0 if t.family == "stream" else 3 if t.family == "path" else 1 if t.thread is None else 2 for t in laid]
    stored = sorted(range(len(laid)), key=order.__getitem__)
    events = _stored([laid[place].events for place in stored])
    firsts = dict(zip(stored, np.cumsum([0, *(laid[place].events.height for place in stored)]).tolist(), strict=False))
    details, detail = _details(report, events) if thinning.details else _no_details(events)
    return TimelineColumns(
        tracks=tuple(_track(track, firsts[place]) for place, track in enumerate(laid)),
        events=events.select(
            "name", "kind", "start_ns", "duration_ns", "gap_ns",
            link=_links(report, events), detail=detail,
        ),
        activity_count=sum(track.events.height for track in laid if track.family == "stream"),
        details=details,
        curves=_curves(report),
        end_ns=events.select(END_NS.max()).item() or 0,
        left_out=left_out,
        advice=_advice_members(report),
        packages=packages(report),
        steps=tuple(
            (f"GPU {step.device}", step.index, step.start_ns, step.start_ns + step.duration_ns) for step in report.steps
        ),
    )  # fmt: skip


MOST_MEMBERS = 2000
"""Most intervals per advice that the timeline outlines, the longest ones: more cannot be distinguished."""


def _advice_members(report: Report) -> tuple[AdviceMembers, ...]:
    labels = device_labels(report)
    place = pl.col("device").replace_strict(labels, default="GPU", return_dtype=pl.String).alias("place")
    parts = report.tables["advice_members"].partition_by("advice", as_dict=True, maintain_order=True)
    return tuple(
        AdviceMembers(
            advice,
            rows.height,
            rows.select(place, "start_ns", "end_ns").top_k(MOST_MEMBERS, by=LENGTH_NS).sort("start_ns", "end_ns"),
        )
        for (advice,), rows in parts.items()
    )


MAX_TRACKS = 512
"""Most streams and threads on the timeline: each takes milliseconds to lay out, and nobody scrolls through more."""


def _busiest(tracks: tuple[TrackEvents, ...]) -> tuple[tuple[TrackEvents, ...], tuple[str, ...]]:
    """Keep the tracks with most time in events; also return a description of the others."""
    if len(tracks) <= MAX_TRACKS:
        return tracks, ()
    busy = [int(track.events.get_column("duration_ns").sum()) for track in tracks]
    least = sorted(range(len(tracks)), key=lambda place: -busy[place])[MAX_TRACKS:]
    missing = set(least)
    kept = tuple(track for place, track in enumerate(tracks) if place not in missing)
    return kept, (f"{units.count(len(least))} rows of streams and threads, those with the least time in events",)


def thinned_columns(report: Report, room_bytes: int) -> TimelineColumns:
    """Return the largest part of the timeline whose payload fits, else the smallest possible one."""

    def fits(step: int) -> bool:
        return len(payload(timeline_columns(report, LADDER[step]))) <= room_bytes

    step = bisect_left(range(len(LADDER)), True, key=fits)
    return timeline_columns(report, LADDER[min(step, len(LADDER) - 1)])


def payload(columns: TimelineColumns) -> str:
    """Return the columns as text for the page's script."""
    events, details = columns.events, columns.details
    names = codec.text(events.get_column("name"))
    steps = [curve.steps for curve in columns.curves]
    members = [advice.members for advice in columns.advice]
    places = sorted({place for frame in members for place in frame.get_column("place")})
    encoded = {
        "gap": codec.plain(events.get_column("gap_ns")),
        "duration": codec.plain(events.get_column("duration_ns")),
        "name": names,
        "kind": codec.text(events.get_column("kind")),
        "link": codec.delta(events.get_column("link")),
        "detail": codec.plain(events.get_column("detail")),
        **{name: codec.text(details.get_column(name)) for name in ACTIVITY_TEXTS + OPERATOR_TEXTS + PATH_TEXTS},
        **{name: codec.plain(details.get_column(name)) for name in NUMBERS},
        "curve_time": codec.delta(_joined(steps, "time_ns")),
        "curve_value": codec.plain(_joined(steps, "value")),
        "member_start": codec.delta(_joined(members, "start_ns")),
        "member_end": codec.delta(_joined(members, "end_ns")),
        "member_place": codec.plain(
            _joined(members, "place").replace_strict(places, range(len(places)), return_dtype=pl.Int64)
        ),
    }
    # Short names; those of different kernels differ.
    frames = [frame_label(name) for name in names.values]
    short = [short_name(name.removeprefix(MODULE)) for name in names.values]
    pairs = zip(names.values, frames, short, strict=True)
    arguments = distinguishing_arguments((name, label) for name, frame, label in pairs if not frame)
    header = {
        "end": columns.end_ns,
        "activities": columns.activity_count,
        "labels": [
            frame or (f"{label}, {arguments[name]}" if name in arguments else label)
            for name, frame, label in zip(names.values, frames, short, strict=True)
        ],
        "tracks": [asdict(track) for track in columns.tracks],
        "curves": [[curve.kind, curve.place, curve.steps.height] for curve in columns.curves],
        "advice": [[advice.advice, advice.total, advice.members.height] for advice in columns.advice],
        "places": places,
        "steps": columns.steps,
        "packages": columns.packages.labels,
        "own_kinds": sorted(columns.packages.own),
    }
    return codec.encode(header, encoded)


def _track(track: TrackEvents, first: int) -> Track:
    counts = np.bincount(track.events.get_column("depth").to_numpy())
    starts = first + np.cumsum([0, *counts[:-1]])
    rows = tuple(zip(starts.tolist(), counts.tolist(), strict=True))
    return Track(track.group, track.label, track.family, track.thread, track.collapsed, rows)


_IDS = ("event_id", "link_id", "activity_id", "path_row", "path_activity")
"""Columns of some tracks: see `TrackEvents`."""


def _stored(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the events of all tracks, with null in columns that only others have."""
    times = dict.fromkeys(("start_ns", "duration_ns", "gap_ns"), pl.Int64)
    empty = pl.DataFrame(schema={"name": pl.String, "kind": pl.String, **times})
    events = pl.concat(frames, how="diagonal") if frames else empty
    return events.with_columns(pl.lit(None, pl.UInt32).alias(name) for name in _IDS if name not in events.columns)


def _links(report: Report, events: pl.DataFrame) -> pl.Series:
    """Return the launch of an activity, the event behind idle time, and the forward operator of a backward one.

    For an interval of the critical path, return its activity or host event; -1 for none, and for events that are not shown.
    """
    places = events.with_row_index("place")
    of_host, of_work = (places.select(key, "place").drop_nulls() for key in ("event_id", "activity_id"))

    def place(ids: pl.Series, table: pl.DataFrame) -> pl.Series:
        key = table.columns[0]
        return lookups.lookup(table, pl.DataFrame({key: ids}), key).get_column("place")

    pairs = report.tables["backward_links"]
    forward = pairs.select("event_id", place=place(pairs.get_column("forward_id"), of_host))
    found = (
        place(events.get_column("path_activity"), of_work),
        place(events.get_column("event_id"), forward),
        place(events.get_column("link_id"), of_host),
    )
    return pl.select(pl.coalesce(found).cast(pl.Int64).fill_null(-1)).to_series()


def _details(report: Report, events: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Return the distinct combinations of properties other than name and time, and each event's combination."""
    tables = (
        ("activity_id", report.tables["activities"], ACTIVITY_TEXTS + _ACTIVITY_NUMBERS),
        ("event_id", report.tables["operator_inputs"], OPERATOR_TEXTS + _OPERATOR_NUMBERS),
        ("path_row", report.tables["critical_path"].with_row_index("path_row"), ("operator", *PATH_TEXTS)),
    )
    details: list[pl.DataFrame] = []
    found: list[pl.Series] = []
    first = 1
    for key, table, names in tables:
        numbers, firsts = lookups.factorize(*table.select(names))
        own = table.select(names)[firsts]
        details.append(own.with_columns(pl.col(name).cast(pl.Float64) for name in names if name in NUMBERS))
        of_each = table.select(key, detail=numbers.cast(pl.Int64) + first)
        found.append(lookups.lookup(of_each, events, key).get_column("detail"))
        first += own.height
    return pl.concat(details, how="diagonal"), pl.select(pl.coalesce(found).fill_null(0)).to_series()


def _no_details(events: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    schema = dict.fromkeys(ACTIVITY_TEXTS + OPERATOR_TEXTS + PATH_TEXTS, pl.String) | dict.fromkeys(NUMBERS, pl.Float64)
    return pl.DataFrame(schema=schema), pl.repeat(0, events.height, dtype=pl.Int64, eager=True)


def _curves(report: Report) -> tuple[Curve, ...]:
    """Return each device's queue, and the bytes allocated by each allocator, where they were recorded."""
    labels = device_labels(report)
    queues = report.tables["queue"].partition_by("device", as_dict=True, maintain_order=True)
    memory = (
        report.tables["memory_events"]
        .drop_nulls("total_allocated_bytes")
        .sort("device_type", "device", "time_ns", maintain_order=True)
        .partition_by("device_type", "device", as_dict=True, maintain_order=True)
    )
    return (
        *(
            Curve(kind, labels.get(device, "Device"), steps.select("time_ns", value=column))
            for (device,), steps in queues.items()
            for kind, column in (("queue", "depth"), ("queued_work", "queued_work_ns"))
        ),
        *(
            Curve("memory", place, steps.select("time_ns", value="total_allocated_bytes"))
            for (kind, device), steps in memory.items()
            for place in ["CPU" if kind == 0 else "GPU" if device is None else labels.get(device, f"GPU {device}")]
        ),
    )


def _joined(frames: Sequence[pl.DataFrame], column: str) -> pl.Series:
    return pl.concat([frame.get_column(column) for frame in frames]) if frames else pl.Series(dtype=pl.Int64)
