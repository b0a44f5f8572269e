"""Build the timeline's tracks, each with one kind of event on one device or host thread, in rows without overlaps.

Python frames have the colour of their package, the program's own files first.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer.analyses.chart_data import frame_packages, frames_by_package, titled_threads
from trace_analyzer.analyses.host import IS_MODULE
from trace_analyzer.catalog.event_names import CALLS
from trace_analyzer.frames.arrays import column
from trace_analyzer.frames.intervals import END_NS, LENGTH_NS
from trace_analyzer.render.charts import reported_labels
from trace_analyzer.report import Report

COLOURED = 7
"""Number of packages with their own colour: ``--k-py-1`` and so on in assets/palette.css."""
OWN_COLOURED = 4
"""Most of these for the program's own code, so that libraries have different colours."""
PLAIN = "python"
"""Kind of all other frames."""


class Packages(NamedTuple):
    """The kind of each Python frame by name, the package of each kind, and the kinds of the program's own code."""

    kinds: pl.DataFrame
    labels: Mapping[str, str]
    own: frozenset[str]


NO_PACKAGES = Packages(pl.DataFrame(schema={"name": pl.String, "kind": pl.String}), {}, frozenset())


def packages(report: Report) -> Packages:
    """Return the packages of a report's Python frames: own code first, then by number of frames."""
    known = frame_packages(report.tables["host_events"])
    counted = frames_by_package(known)
    first = counted.filter("is_own").head(OWN_COLOURED)
    others = counted.join(first, on="package", how="anti", maintain_order="left").head(COLOURED - first.height)
    ranked = pl.concat([first, others]).with_row_index("place", offset=1)
    ranked = ranked.select("package", "is_own", slot=pl.format("py-{}", "place"))
    kinds = known.join(ranked.select("package", "slot"), on="package", how="left").select(
        "name", kind=pl.col("slot").fill_null(PLAIN)
    )
    own = ranked.filter("is_own").get_column("slot")
    return Packages(kinds, dict(ranked.select("slot", "package").iter_rows()), frozenset(own))


_FAMILIES = {
    "annotation": "annotations",
    "runtime": "calls",
    "driver": "calls",
    "operator": "operators",
    "overhead": "overhead",
    "python": "python",
}
_HOST_LABELS = {
    "phases": "Phases of steps",
    "annotations": "Annotations",
    "calls": "Runtime calls",
    "operators": "Operators",
    "modules": "Modules",
    "overhead": "Profiler",
    "python": "Python",
    "other": "Other",
}
"""Families of a thread's tracks and their labels, from top to bottom."""

_COLLAPSED = frozenset({"python", "other"})
_OPEN_THREADS = 4  # of these, operators are shown initially; a data loader's dozens of workers stay folded

_EVENT = ("name", "start_ns", "duration_ns")


class TrackEvents(NamedTuple):
    """A track and its events by start, the enclosing one first: name, kind, start and duration.

    Activities and idle time also have ``link_id`` (the host event that launched or explains them), host events
    ``event_id``, activities ``activity_id``, and intervals of the critical path ``path_row`` and ``path_activity``.
    """

    group: str
    label: str
    family: str
    thread: int | None
    collapsed: bool
    events: pl.DataFrame


def track_events(report: Report, host_events: pl.DataFrame) -> tuple[TrackEvents, ...]:
    """Return every event of the timeline by track; ``host_events`` are given, since some may be left out."""
    return (*_device_tracks(report), *_host_tracks(report, host_events))


def device_labels(report: Report) -> dict[int, str]:
    """Map device codes to labels."""
    frame = report.tables["devices"]
    return {code: f"GPU {label}" for code, label in frame.select("device", "label").iter_rows()}


def _device_tracks(report: Report) -> Iterator[TrackEvents]:
    """Yield the critical path, each device's streams below their annotations, then the tracks of the device itself.

    The latter are exposed communication, synchronizations and idle time.
    """
    names = dict(report.tables["devices"].select("device", "name").iter_rows())
    labels: dict[int | None, str] = dict(device_labels(report).items())
    activities = _by_device(_activities(report))
    path = _by_device(_critical_path(report))
    annotations = _by_device(_annotations(report))
    others = {
        ("exposed", "Communication only"): _by_device(_exposed(report)),
        ("sync", "Synchronization"): _by_device(_synchronizations(report)),
        ("idle", "Idle, by cause"): _by_device(_idle(report)),
    }
    unreported = activities.keys() - reported_labels(report).keys()
    devices = {device for frames in (activities, annotations, *others.values()) for device in frames} - unreported
    for device in _in_order(devices):
        group = " · ".join(filter(None, (labels.get(device, "Device"), names.get(device))))
        marked, works = _streams(annotations.get(device)), _streams(activities.get(device))
        if device in path:
            yield TrackEvents(group, "Critical path", "path", None, False, path[device])
        for stream in _in_order(marked.keys() | works.keys()):
            number = "–" if stream is None else stream
            if stream in marked:
                label = f"Annotations, {number}" if len(marked) > 1 else "Annotations"
                yield TrackEvents(group, label, "annotations", None, False, marked[stream])
            if stream in works:
                yield TrackEvents(group, f"Stream {number}", "stream", None, False, works[stream])
        for (family, label), frames in others.items():
            if device in frames:
                yield TrackEvents(group, label, family, None, False, frames[device])


def _by_device(events: pl.DataFrame) -> dict[int | None, pl.DataFrame]:
    parts = events.sort("start_ns", -pl.col("duration_ns"), maintain_order=True).partition_by("device", as_dict=True)
    return {device: part for (device,), part in parts.items()}


def _streams(events: pl.DataFrame | None) -> dict[int | None, pl.DataFrame]:
    parts = {} if events is None else events.partition_by("stream", as_dict=True, maintain_order=True)
    return {stream: part for (stream,), part in parts.items()}


def _in_order(numbers: Iterable[int | None]) -> list[int | None]:
    return sorted(numbers, key=lambda number: (number is None, number))


def _activities(report: Report) -> pl.DataFrame:
    """Return kernels in the colour of their bucket's group, and copies and memsets in their own."""
    kind = pl.when(pl.col("kind") == "kernel").then(pl.col("group").fill_null("other")).otherwise("kind")
    return report.tables["activities"].select(
        "device", "stream", *_EVENT, "activity_id", kind=kind, link_id="launch_id"
    )


def _critical_path(report: Report) -> pl.DataFrame:
    """Return the intervals of the critical path: work in its kernels' colour, waits and CPU time in their cause's.

    ``path_row`` is the row of table `critical_path`, ``path_activity`` the activity of an interval, if any.
    """
    table = report.tables["critical_path"].with_row_index("path_row")
    kinds = _activities(report).select(pl.col("activity_id").alias("path_activity"), pl.col("kind").cast(pl.String))
    rows = table.select(
        "device", "start_ns", "name", "path_row", kind_of_path="kind", duration_ns=LENGTH_NS,
        path_activity="activity_id", link_id="event_id",
    ).join(kinds, on="path_activity", how="left", maintain_order="left")  # fmt: skip
    cause = pl.col("name").replace(UNCAUSED)
    of_work = pl.when(pl.col("kind_of_path") == "device").then(pl.col("kind"))
    return rows.with_columns(of_work.otherwise(pl.format("path-{}", cause)).alias("kind")).drop("kind_of_path")


UNCAUSED = {"polling": "synchronization", "hand-over": "host-unknown", "queue-room": "runtime-call"}
"""Waits of a critical path without a matching cause of idle time, and the cause whose colour they have."""


def _annotations(report: Report) -> pl.DataFrame:
    """Return Kineto's copies of annotations on devices' tracks.

    They last from the first to the last activity launched in an annotation.
    """
    return report.tables["device_annotations"].select("device", "stream", *_EVENT, kind=pl.lit("annotation"))


def _exposed(report: Report) -> pl.DataFrame:
    """Return the time in which a device only communicated, as in the partition."""
    return (
        report.tables["partition"]
        .filter(part="communication")
        .select("device", "start_ns", name="part", kind="part", duration_ns=LENGTH_NS)
    )


def _synchronizations(report: Report) -> pl.DataFrame:
    """Return CUPTI's synchronization events, with the call of the same correlation id if it is the only one."""
    calls = (
        report.tables["host_events"]
        .filter(pl.col("kind").is_in(CALLS), pl.col("correlation").is_not_null())
        .join(report.tables["sync_events"].select("correlation").unique(), on="correlation", how="semi")
        .unique("correlation", keep="none")
        .select("correlation", link_id="event_id")
    )
    return (
        report.tables["sync_events"]
        .join(calls, on="correlation", how="left", maintain_order="left")
        .select("device", *_EVENT, "link_id", kind=pl.lit("sync"))
    )


def _idle(report: Report) -> pl.DataFrame:
    return report.tables["idle"].select(
        "device",
        "start_ns",
        name="cause",
        kind=pl.format("idle-{}", "cause"),
        duration_ns=LENGTH_NS,
        link_id="event_id",
    )


def _host_tracks(report: Report, host_events: pl.DataFrame) -> Iterator[TrackEvents]:
    """Yield the tracks of each host thread, those that launch work first."""
    kinds = packages(report).kinds
    its_family = pl.col("kind").replace_strict(_FAMILIES, default="other")
    kind = pl.col("kind").replace("other", "host")
    of_package = pl.when(pl.col("kind") == "python").then(
        pl.col("name").replace_strict(kinds.get_column("name"), kinds.get_column("kind"), default="python")
    )
    parts = host_events.select(
        "thread_id",
        *_EVENT,
        "event_id",
        kind=pl.when(IS_MODULE).then(pl.lit("module")).otherwise(pl.coalesce(of_package, kind)),
        family=pl.when(IS_MODULE).then(pl.lit("modules")).otherwise(its_family),
    ).partition_by("thread_id", "family", as_dict=True, include_key=False)
    phases = report.tables["phase_intervals"].select(
        "thread_id",
        "start_ns",
        name="phase",
        kind=pl.format("phase-{}", "phase"),
        duration_ns=LENGTH_NS,
    )
    for (thread,), part in phases.partition_by("thread_id", as_dict=True, include_key=False).items():
        parts[thread, "phases"] = part.sort("start_ns")
    threads = titled_threads(*(report.tables[name] for name in ("host_events", "launches", "threads")))
    for place, (thread, title) in enumerate(threads.iter_rows()):
        for family, label in _HOST_LABELS.items():
            if (thread, family) in parts:
                collapsed = family in _COLLAPSED or place >= _OPEN_THREADS
                yield TrackEvents(title, label, family, thread, collapsed, parts[thread, family])


def in_rows(track: pl.DataFrame) -> pl.DataFrame:
    """Return the track's events row by row, with ``depth`` (row) and ``gap_ns`` (since the row's previous end).

    Events are in order of start, the enclosing one first, and each gets the topmost free row: if all are properly nested,
    that is their nesting depth, which takes no walk.
    """
    laid = track.with_columns(depth=nesting_depth()).sort("depth", maintain_order=True)
    if laid.select(_clashes().any()).item():
        depth = first_fit(track.get_column("start_ns").to_numpy(), track.select(END_NS).to_series().to_numpy())
        laid = track.with_columns(depth=column(depth)).sort("depth", maintain_order=True)
    continues_row = (pl.col("depth") == pl.col("depth").shift(1)).fill_null(False)
    return laid.with_columns(gap_ns=pl.col("start_ns") - pl.when(continues_row).then(END_NS.shift(1)).otherwise(0))


def nesting_depth() -> pl.Expr:
    """Return the number of open events at each start: those started before it minus those ended by then."""
    solid = pl.col("duration_ns") > 0  # an event of duration 0 is never open
    started = solid.cast(pl.Int64).cum_sum() - solid.cast(pl.Int64)
    ends = END_NS.filter(solid).sort()
    return started - ends.search_sorted(pl.col("start_ns"), side="right").cast(pl.Int64)


def first_fit(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the topmost free row for each event, in order of start.

    A row is a chain from its first event to the next one that starts after it ends, and so on; the events outside the
    chain are processed in the same way, one row further down.
    """
    rows = np.zeros(len(start), dtype=np.int64)
    left = np.arange(len(start))
    row = 0
    while len(left):
        following = np.maximum(np.searchsorted(start[left], end[left]), np.arange(1, len(left) + 1))
        chain = _chain(following.tolist())
        rows[left[chain]] = row
        left = np.delete(left, chain)
        row += 1
    return rows


def _chain(following: list[int]) -> list[int]:
    """Return the indices reached from 0 by following the chain: a sequential walk."""
    position, chain = 0, []
    while position < len(following):
        chain.append(position)
        position = following[position]
    return chain


def _clashes() -> pl.Expr:
    """Return whether an event starts before an earlier one of its row ends, for rows sorted one after the other.

    Rows are shifted by ``stride`` each, so that they do not overlap in time and one running maximum covers all.
    """
    stride = END_NS.max() - pl.col("start_ns").min() + 1
    offset = pl.col("depth") * stride
    return (pl.col("start_ns") + offset < (END_NS + offset).cum_max().shift(1)).fill_null(False)
