"""The timeline's data: every event of the report in rows that a browser can search by bisection.

Tracks (a stream, the idle row of a device, the operators of a thread) hold rows; the events of a row are
disjoint and sorted by start. Activities come first in the columns, then idle time, then the host's events.
"""

from dataclasses import asdict, dataclass

import polars as pl

from trace_analyzer.render.html import codec
from trace_analyzer.render.html.lanes import with_depth
from trace_analyzer.render.html.words import short_name
from trace_analyzer.report import Report

_FAMILIES = {
    "runtime": "calls",
    "driver": "calls",
    "operator": "operators",
    "annotation": "operators",
    "python": "python",
}
_FAMILY_ORDER = ("calls", "operators", "python", "other")
_COLLAPSED = frozenset({"python", "other"})
_OPEN_THREADS = 4  # of these the operators are shown at once; a loader's dozens of workers stay folded

_ACTIVITY_TEXTS = ("bucket", "bound", "operator", "grid", "block")
_ACTIVITY_NUMBERS = ("bytes", "registers_per_thread", "shared_memory_bytes", "flop", "moved_bytes")


@dataclass(frozen=True)
class Track:
    """A labelled band of the timeline; ``rows`` are (first event, event count) of its rows, top down."""

    group: str
    label: str
    family: str
    collapsed: bool
    rows: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class TimelineColumns:
    """What the timeline shows: tracks from top to bottom, the events that their rows refer to, queue depths.

    ``events`` has name, kind, start, duration and ``link`` (position of the launch, or of the host event
    that explains idle time); ``activities`` describes the first events further; ``queue`` is one step
    function per device.
    """

    tracks: tuple[Track, ...]
    events: pl.DataFrame
    activities: pl.DataFrame
    queue: pl.DataFrame
    end_ns: int


def timeline_columns(report: Report) -> TimelineColumns:
    """Every activity, idle interval and host event of the report, arranged in rows."""
    device_tracks = _device_tracks(report)
    thread_tracks = _thread_tracks(report, first_track=device_tracks.height)
    activities, idle, host = (
        _activities(report, device_tracks),
        _idle(report, device_tracks),
        _host(report, thread_tracks),
    )
    parts = [_in_rows(part) for part in (activities, idle, host)]
    events = _with_links(pl.concat(parts, how="diagonal_relaxed"))
    rows = _rows(events)
    return TimelineColumns(
        tracks=_tracks(device_tracks, rows) + _tracks(thread_tracks, rows),
        events=events.select("name", "kind", "start_ns", "duration_ns", "gap_ns", "link"),
        activities=events.head(activities.height).select(*_ACTIVITY_TEXTS, *_ACTIVITY_NUMBERS),
        queue=report.tables["queue"].sort("device", "time_ns"),
        end_ns=_end_ns(events),
    )


def payload(columns: TimelineColumns) -> str:
    """The columns as text for the page's script."""
    events, queue = columns.events, columns.queue
    names = codec.text(events.get_column("name"))
    devices = queue.get_column("device").unique(maintain_order=True)
    encoded = {
        "gap": codec.plain(events.get_column("gap_ns")),
        "duration": codec.plain(events.get_column("duration_ns")),
        "name": names,
        "kind": codec.text(events.get_column("kind")),
        "link": codec.delta(events.get_column("link").fill_null(-1)),
        **{name: codec.text(columns.activities.get_column(name)) for name in _ACTIVITY_TEXTS},
        **{name: codec.plain(columns.activities.get_column(name)) for name in _ACTIVITY_NUMBERS},
        "queue_time": codec.delta(queue.get_column("time_ns")),
        "queue_depth": codec.plain(queue.get_column("depth")),
    }
    header = {
        "end": columns.end_ns,
        "labels": [short_name(name) for name in names.values],
        "tracks": [asdict(track) for track in columns.tracks],
        "queues": [[device, queue.filter(device=device).height] for device in devices],
    }
    return codec.encode(header, encoded)


def device_labels(report: Report) -> dict[int, str]:
    """Device codes to what people call them: ``GPU 0``."""
    frame = report.tables["devices"]
    return {code: f"GPU {label}" for code, label in frame.select("device", "label").iter_rows()}


def _device_tracks(report: Report) -> pl.DataFrame:
    """One track per stream and one for the idle time of each device, in the order of display."""
    labels, names = device_labels(report), dict(report.tables["devices"].select("device", "name").iter_rows())
    streams = (
        report.tables["activities"]
        .select("device", "stream")
        .unique()
        .with_columns(
            family=pl.lit("stream"),
            label=pl.format("Stream {}", pl.col("stream").cast(pl.String).fill_null("–")),
        )
    )
    idle = (
        report.tables["idle"]
        .select("device")
        .unique()
        .with_columns(stream=pl.lit(None, pl.Int64), family=pl.lit("idle"), label=pl.lit("Idle, by cause"))
    )
    titles = {code: " · ".join(filter(None, (label, names.get(code)))) for code, label in labels.items()}
    return (
        pl.concat([streams, idle], how="diagonal")
        .sort("device", pl.col("family") == "idle", "stream", nulls_last=True)
        .with_columns(
            group=pl.col("device").replace_strict(titles, default=None, return_dtype=pl.String).fill_null("Device"),
            collapsed=pl.lit(False),
        )
        .with_row_index("track")
    )


def _thread_tracks(report: Report, first_track: int) -> pl.DataFrame:
    """Up to four tracks per host thread, those that launch work first."""
    launches = report.tables["launches"].group_by("thread_id").agg(launches=pl.len())
    threads = (
        report.tables["host_events"]
        .group_by("thread_id")
        .agg(events=pl.len())
        .join(launches, on="thread_id", how="left")
        .sort(pl.col("launches").fill_null(0), "events", "thread_id", descending=[True, True, False])
        .with_row_index("place")
        .join(_thread_titles(report), on="thread_id", how="left")
    )
    return (
        report.tables["host_events"]
        .select("thread_id", family=_family())
        .unique()
        .join(threads, on="thread_id")
        .sort("place", pl.col("family").cast(pl.Enum(_FAMILY_ORDER)))
        .with_columns(
            label=pl.col("family").replace_strict(
                {
                    "calls": "Runtime calls",
                    "operators": "Operators",
                    "python": "Python",
                    "other": "Profiler, other",
                }
            ),
            collapsed=pl.col("family").is_in(list(_COLLAPSED)) | (pl.col("place") >= _OPEN_THREADS),
        )
        .with_row_index("track", offset=first_track)
    )


def _thread_titles(report: Report) -> pl.DataFrame:
    threads = report.tables["threads"]
    several = threads.join(report.tables["host_events"].select("thread_id").unique(), on="thread_id", how="semi")
    process = pl.format("Process {} · ", "pid") if several.get_column("process_id").n_unique() > 1 else pl.lit("")
    thread = pl.when(pl.col("name").fill_null("") == "").then(pl.format("Thread {}", "tid")).otherwise(pl.col("name"))
    return threads.select("thread_id", group=process + thread)


def _family() -> pl.Expr:
    return pl.col("kind").replace_strict(_FAMILIES, default="other")


def _activities(report: Report, tracks: pl.DataFrame) -> pl.DataFrame:
    """Kernels in the colour of their bucket's group, copies and memsets in their own."""
    kind = pl.when(pl.col("kind") == "kernel").then(pl.col("group").fill_null("other")).otherwise("kind")
    return (
        report.tables["activities"]
        .join(
            tracks.filter(family="stream").select("track", "device", "stream"),
            on=["device", "stream"],
            nulls_equal=True,
        )
        .select(
            "track",
            "name",
            "start_ns",
            "duration_ns",
            *_ACTIVITY_TEXTS,
            *_ACTIVITY_NUMBERS,
            kind=kind,
            link_id="launch_id",
        )
    )


def _idle(report: Report, tracks: pl.DataFrame) -> pl.DataFrame:
    return (
        report.tables["idle"]
        .join(tracks.filter(family="idle").select("track", "device"), on="device")
        .select(
            "track",
            "start_ns",
            name="cause",
            kind=pl.format("idle-{}", "cause"),
            duration_ns=pl.col("end_ns") - pl.col("start_ns"),
            link_id="event_id",
        )
    )


def _host(report: Report, tracks: pl.DataFrame) -> pl.DataFrame:
    return (
        report.tables["host_events"]
        .with_columns(family=_family())
        .join(tracks.select("track", "thread_id", "family"), on=["thread_id", "family"])
        .select(
            "track",
            "name",
            "start_ns",
            "duration_ns",
            "event_id",
            kind=pl.col("kind").replace("other", "host"),
        )
    )


def _in_rows(part: pl.DataFrame) -> pl.DataFrame:
    """The events with their row, and the time since the row's previous event ended."""
    nested = part.sort("track", "start_ns", -pl.col("duration_ns"), maintain_order=True)
    end = pl.col("start_ns") + pl.col("duration_ns")
    return (
        with_depth(nested)
        .sort("track", "depth", "start_ns", "duration_ns", maintain_order=True)
        .with_columns(gap_ns=pl.col("start_ns") - end.shift(1, fill_value=0).over("track", "depth"))
    )


def _with_links(events: pl.DataFrame) -> pl.DataFrame:
    """Links by id become positions among the events; what links to nothing has null."""
    if "event_id" not in events.columns:
        return events.with_columns(link=pl.lit(None, pl.Int64))
    targets = events.with_row_index("link").filter(pl.col("event_id").is_not_null()).select("link", link_id="event_id")
    return events.join(targets, on="link_id", how="left", maintain_order="left").with_columns(
        pl.col("link").cast(pl.Int64)
    )


def _rows(events: pl.DataFrame) -> pl.DataFrame:
    return (
        events.with_row_index("position")
        .group_by("track", "depth")
        .agg(first=pl.col("position").min(), count=pl.len())
        .sort("track", "depth")
    )


def _tracks(tracks: pl.DataFrame, rows: pl.DataFrame) -> tuple[Track, ...]:
    spans = rows.group_by("track").agg(rows=pl.struct("first", "count").sort_by("depth"))
    return tuple(
        Track(group, label, family, collapsed, tuple((row["first"], row["count"]) for row in track_rows))
        for group, label, family, collapsed, track_rows in tracks.join(spans, on="track", maintain_order="left")
        .select("group", "label", "family", "collapsed", "rows")
        .iter_rows()
    )


def _end_ns(events: pl.DataFrame) -> int:
    end: int | None = events.select((pl.col("start_ns") + pl.col("duration_ns")).max()).item()
    return end or 0
