"""Find gaps in which a device executed work that was launched before the recording began.

The profiler records only work that is launched while it records. Previously queued work runs unrecorded: the first
recorded activities wait for it, and the device appears idle. Three facts together distinguish this from a device that
waits: the activity that ends the gap was launched at the gap's beginning, the device did hardly any recorded work
before the gap, and the CPU waited for the device in a call until the gap ended.
"""

from functools import partial

import polars as pl

from trace_analyzer import analysis, errors, thresholds, units, vocabulary
from trace_analyzer.analyses.host import Host
from trace_analyzer.catalog.event_names import BLOCKING
from trace_analyzer.frames.intervals import END_NS, LENGTH_NS, count_until, union, with_covered
from trace_analyzer.ingest.trace import Trace

_STREAM = ["device", "context", "stream"]
_COPIES = r"(?i)memcpy"


def drained_streams(host: Host, linked_events: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Return device, stream, drained_ns: when a recorded synchronize first returned, so that no earlier work was left.

    Rows of CUPTI name the stream, or all streams of a context. Of calls, those for a device count where their process
    uses one, and those for a stream where it uses one. Devices of several processes have none.
    """
    streams = linked_events.select("process_id", "device", "stream").drop_nulls().unique()
    streams = streams.filter(pl.col("process_id").n_unique().over("device") == 1)
    rows = trace.sync_events.select(pl.col("name").str.to_lowercase(), "device", "stream", END_NS)
    of_stream = rows.filter(pl.col("name").str.starts_with("stream sync"))
    of_all = rows.filter(pl.col("name").str.contains("^(context|device) sync")).drop("stream")
    calls = host.calls_of(pl.col("name").str.contains("(Device|Ctx)Synchronize$")).select("process_id", "end_ns")
    alone = host.calls_of(pl.col("name").str.contains("StreamSynchronize$")).select("process_id", "end_ns")
    of_one = streams.filter(pl.col("device").n_unique().over("process_id") == 1)
    waits = (
        of_stream,
        of_all.join(streams, on="device"),
        calls.join(of_one, on="process_id"),
        alone.join(of_one.filter(pl.len().over("process_id") == 1), on="process_id"),
    )
    ends = pl.concat([wait.select("device", "stream", "end_ns") for wait in waits])
    return ends.group_by("device", "stream").agg(pl.col("end_ns").min().alias("drained_ns"))


def earlier_work(
    idle_gaps: pl.DataFrame, linked_events: pl.DataFrame, host: Host, drained_streams: pl.DataFrame
) -> pl.DataFrame:
    """Return gap_id, launch_id, since_ns, blocker_id of the gaps that earlier work explains.

    ``since_ns`` is the later of the starts of the launch and of the gap, ``blocker_id`` the call in which the CPU waited
    longest from then on.

    All of these must hold:

    - No recorded synchronize had drained the activity's stream before.
    - The launch begins before the gap or within its first tenth, and the gap lasts at least 1 ms from then on.
    - Before the gap, the device was busy for less than a hundredth of the gap's length; or for less than a tenth, if no
      earlier activity was recorded on the stream of the activity that ends the gap, as a stream executes in order.
    - Synchronizing and copying calls of the launching process cover nine tenths of the rest of the gap. Where the only
      such call is the launch itself, a copy, the wait must exceed 10 ms, and the time for staging its bytes at 1 GB/s.
    """
    rows = (
        _near_the_beginning(idle_gaps, linked_events)
        .join(drained_streams, on=["device", "stream"], how="left", maintain_order="left")
        .filter((pl.col("drained_ns") > pl.col("since_ns")).fill_null(True))
    )
    calls = _waiting_calls(host, rows)
    covered = with_covered(rows, union(calls, ["process_id"]), ["process_id"], "covered_ns", start="since_ns")
    waited = pl.col("end_ns") - pl.col("since_ns")
    overlap = pl.min_horizontal("end_ns", "call_end_ns") - pl.max_horizontal("since_ns", "call_start_ns")
    own_copy = pl.col("blocker_id") == pl.col("launch_id")
    staged = pl.max_horizontal(pl.col("bytes").fill_null(0) * thresholds.STAGING_NS_PER_BYTE, thresholds.STAGING_NS)
    return (
        covered.filter(pl.col("covered_ns") >= thresholds.EARLIER_BLOCKED_RATIO * waited)
        .join(
            calls.rename({"start_ns": "call_start_ns", "end_ns": "call_end_ns", "event_id": "blocker_id"}),
            on="process_id",
        )
        .with_columns(overlap.alias("overlap_ns"))
        .sort("gap_id", "overlap_ns", "blocker_id", descending=[False, True, False])
        .unique("gap_id", keep="first", maintain_order=True)
        .filter(~own_copy | (waited > staged))
        .select("gap_id", "launch_id", "since_ns", "blocker_id")
    )


def with_earlier_work(unnamed_segments: pl.DataFrame, earlier_work: pl.DataFrame) -> pl.DataFrame:
    """Give device intervals of some gaps the cause `EARLIER_WORK`, with the call in which the CPU waited as event.

    The interval of the launch call is included where that call itself waited.
    """
    waits = pl.col("waiter_id").is_not_null()
    may_be_earlier = (pl.col("cause") == "device") | (
        (pl.col("cause") == "call") & (pl.col("waiter_id") == pl.col("launch_id"))
    )
    waiter = earlier_work.select("gap_id", pl.col("blocker_id").alias("waiter_id"))
    return (
        unnamed_segments.join(waiter, on="gap_id", how="left", maintain_order="left")
        .with_columns((waits & may_be_earlier).alias("is_held"))
        .with_columns(
            pl.when("is_held").then(pl.lit(vocabulary.EARLIER_WORK)).otherwise("cause").alias("cause"),
            pl.when("is_held").then("waiter_id").otherwise("event_id").alias("event_id"),
        )
        .drop("waiter_id", "is_held")
    )


def earlier_work_notes(
    earlier_work: pl.DataFrame, idle_gaps: pl.DataFrame, linked_events: pl.DataFrame, host: Host, devices: pl.DataFrame
) -> tuple[errors.Note, ...]:
    """Note for each gap of ``earlier_work`` which activity waited, since when, and in which call the CPU was.

    ``devices`` maps codes to labels.
    """
    labels = dict(devices.select("device", "label").iter_rows())
    rows = earlier_work.join(
        idle_gaps.select("gap_id", "device", "end_ns", "activity_id"), on="gap_id", maintain_order="left"
    ).with_columns(
        host.texts(earlier_work.get_column(of)).cast(pl.String).alias(name)
        for of, name in (("blocker_id", "call"), ("launch_id", "launch"))
    )
    names = linked_events.get_column("name")[rows.get_column("activity_id")].cast(pl.String)
    return tuple(
        errors.Note(
            vocabulary.EARLIER_WORK,
            "warning",
            f"device {labels[row['device']]} worked for {units.duration(row['end_ns'] - row['since_ns'])} on what was launched before the"
            f" recording began: {units.visible(row['name'])} was launched ({units.visible(row['launch'])}) at {units.duration(row['since_ns'])} and could not start before"
            f" {units.duration(row['end_ns'])}, while the CPU sat in {units.visible(row['call'])}; synchronize before the recording starts",
        )
        for row in rows.with_columns(names.alias("name")).iter_rows(named=True)
    )


def _near_the_beginning(gaps: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """Return long gaps after little recorded work, whose ending activity was launched early.

    They have the columns of that launch, and since_ns.
    """
    ends = activities.select(
        *_STREAM, "process_id", "launch_id", "launch_start_ns", "bytes", pl.col("start_ns").alias("begins_ns")
    )
    first = activities.group_by("device").agg(pl.col("start_ns").min().alias("first_ns"))
    idle_before = LENGTH_NS.cum_sum().shift(1, fill_value=0).over("device")
    long = (
        gaps.hstack(ends[gaps.get_column("activity_id")].drop("device"))
        .join(first, on="device", maintain_order="left")
        .with_columns(
            (pl.col("start_ns") - pl.col("first_ns") - idle_before).alias("busy_before_ns"),
            pl.max_horizontal("start_ns", "launch_start_ns").alias("since_ns"),
        )
        .filter(
            pl.col("launch_start_ns") <= pl.col("start_ns") + thresholds.EARLIER_LAUNCH_RATIO * LENGTH_NS,
            pl.col("end_ns") - pl.col("since_ns") >= thresholds.EARLIER_WORK_NS,
            pl.col("busy_before_ns") <= thresholds.EARLIER_STREAM_RATIO * LENGTH_NS,
        )
    )
    streams = activities.group_by(_STREAM).agg(pl.col("start_ns").min().alias("stream_ns"))
    is_first = pl.col("stream_ns") == pl.col("begins_ns")
    return long.join(streams, on=_STREAM, nulls_equal=True, how="left", maintain_order="left").filter(
        is_first | (pl.col("busy_before_ns") <= thresholds.EARLIER_DEVICE_RATIO * LENGTH_NS)
    )


def _waiting_calls(host: Host, rows: pl.DataFrame) -> pl.DataFrame:
    """Return synchronizing and copying calls that overlap the rows."""
    since, until = rows.select(pl.col("since_ns").min(), pl.col("end_ns").max())
    waits = host.calls_of((pl.col("work") == BLOCKING).fill_null(False) | pl.col("name").str.contains(_COPIES))
    return waits.filter(pl.col("end_ns") > since, pl.col("start_ns") < until).select(
        "event_id", "process_id", "start_ns", "end_ns"
    )


def unrecorded_work(host: Host, linked_events: pl.DataFrame) -> pl.DataFrame:
    """Return device, start_ns, end_ns: when a synchronizing call waited though all recorded work had ended.

    A synchronize returns when the work that it waits for ends. One that goes on for more than `UNRECORDED_NS` after the
    end of all work of its process on all devices proves work that the trace does not contain.
    """
    places = linked_events.select("process_id", "device").drop_nulls().unique()
    work = (
        linked_events.select("device", "start_ns", END_NS)
        .join(places, on="device")
        .sort("start_ns")
        .with_columns(pl.col("end_ns").cum_max().over("process_id").alias("worked_ns"))
        .select("process_id", pl.col("start_ns").alias("work_ns"), "worked_ns")
    )
    waits = host.calls.filter(pl.col("work") == BLOCKING).select("process_id", "start_ns", "end_ns").sort("end_ns")
    alone = (
        waits.join_asof(
            work,
            left_on="end_ns",
            right_on="work_ns",
            by="process_id",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .with_columns(pl.max_horizontal("start_ns", "worked_ns").alias("start_ns"))
        .filter(LENGTH_NS > thresholds.UNRECORDED_NS)
        .join(places, on="process_id")
    )
    return union(alone.select("device", "start_ns", "end_ns"), ["device"])


# Find the pauses of a recording: silences of a trace in which nothing was recorded.


def recording_pauses(trace: Trace) -> pl.DataFrame:
    """Return start_ns, end_ns of the silences that are recording pauses, by evidence.

    A silence is an interval in which no thread and no device has an event in progress. It is a pause when it lasts at
    least 10 ms and Python frames were recorded (some frame is always open while Python runs), or it covers over half of
    the trace, or it lies between two profiler sessions, or the profiler marks the begin or end of a recording within
    it, or correlation ids restart after it.
    """
    span = "start_ns", END_NS
    active = partial(union, apart_ns=thresholds.PAUSE_NS - 1)
    # A thread's events are in order and have few such intervals; only these are sorted.
    of_threads = active(trace.host_events.select("thread_id", *span), ["thread_id"]).drop("thread_id")
    of_devices = active(trace.device_events.select(*span), [])
    silences = (
        active(pl.concat([of_threads, of_devices]), [])
        .select(pl.col("end_ns").alias("start_ns"), pl.col("start_ns").shift(-1).alias("end_ns"))
        .head(-1)
    )
    if silences.is_empty() or trace.host_events.get_column("kind").eq("python").any():
        return silences
    sessions = pl.DataFrame(trace.profiler_sessions, schema={"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    covered = union(sessions, [])
    opened, closed = covered.get_column("end_ns").head(-1), covered.get_column("start_ns").tail(-1)
    before = opened.search_sorted(silences.get_column("end_ns"), side="left")
    instants = pl.Series(trace.boundaries, dtype=pl.Int64).sort()
    until = instants.search_sorted(silences.get_column("end_ns"), side="right")
    return silences.filter(
        (thresholds.PAUSE_SPAN_RATIO * trace.duration_ns < LENGTH_NS)
        | (before > closed.search_sorted(silences.get_column("start_ns"), side="right"))
        | (until > instants.search_sorted(silences.get_column("start_ns"), side="left"))
        | _correlations_restart(trace, silences)
    )


def _correlations_restart(trace: Trace, silences: pl.DataFrame) -> pl.Series:
    """Return whether every correlation id after a silence is lower than every one before it, per silence."""
    ends = silences.get_column("end_ns")
    calls = trace.host_events.select("start_ns", "correlation").drop_nulls("correlation")
    # Number of silences before each call.
    after = count_until(ends, calls.get_column("start_ns")).alias("after")
    bounds = calls.group_by(after).agg(
        pl.col("correlation").min().alias("lowest"), pl.col("correlation").max().alias("highest")
    )
    by_place = pl.DataFrame({"after": pl.int_range(silences.height + 1, dtype=pl.UInt32, eager=True)}).join(
        bounds, on="after", how="left", maintain_order="left"
    )
    lowest_before = pl.col("lowest").cum_min().forward_fill()
    highest_after = pl.col("highest").cum_max(reverse=True).backward_fill().shift(-1)
    return by_place.select((highest_after < lowest_before).fill_null(False)).to_series().head(-1)


ANALYSES = (
    analysis.Value("drained_streams", drained_streams),
    analysis.Value("earlier_work", earlier_work),
    analysis.Value("gap_segments", with_earlier_work),
    analysis.Value("earlier_work_notes", earlier_work_notes),
    analysis.Value("recording_pauses", recording_pauses),
    analysis.Value("unrecorded_work", unrecorded_work),
)
