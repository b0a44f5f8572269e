"""Explain why a device idled: every instant of every gap gets one cause (docs/definitions.md defines the rules).

A gap is cut at the instants of its launch (`gap_segments`). Host time is further cut where the threads that could have
launched earlier change their work (`late_host`), and each piece gets its cause.
"""

from collections.abc import Collection

import polars as pl

from trace_analyzer import metrics, thresholds
from trace_analyzer.analyses.host import STREAM_WAITS, Host
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.frames.intervals import sort_spans, split_by
from trace_analyzer.frames.lookups import lookup
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.schema import DEVICE, END, GAP, START, STR, U32, Column, Table
from trace_analyzer.vocabulary import EARLIER_WORK, WITHHELD

IDLE = Table(
    "idle",
    "The idle time of every gap, cut into intervals with one cause each.",
    (
        GAP,
        DEVICE,
        START,
        END,
        Column("cause", STR, "Why the device idled."),
        Column("event_id", U32, "The host event that was innermost then, where the cause is the host's."),
        Column("host_event", STR, "Name of that event."),
    ),
)

_DEVICE = ["device"]
_NO_THREAD = pl.lit(None, dtype=pl.Int32).alias("named_by")
_IDLE_COLUMNS = [*(column for column in IDLE.schema if column != "host_event"), "named_by"]
"""Columns of idle time by cause: those of table `idle` without names, and the thread whose innermost events
determine the cause, where that is not the single event event_id."""


def idle_causes(
    stretches: pl.DataFrame,
    late: pl.DataFrame,
    in_calls: pl.DataFrame,
    on_device: pl.DataFrame,
    pauses: pl.DataFrame,
) -> pl.DataFrame:
    """Cut the gaps into intervals with one cause each, in order: table `idle` and ``named_by``, causes categorical.

    ``stretches`` come from `gap_segments.stretches_of` and `earlier_work.with_earlier_work`, ``late`` from
    `late_host.host_pieces`, ``in_calls`` from `call_pieces`, ``on_device`` from `device_pieces`, and ``pauses`` from
    `recording_pauses`. The intervals of a gap sum to it exactly.
    """
    rest = stretches.filter(pl.col("cause").is_in(["launch-latency", "unlinked", EARLIER_WORK]))
    return _with_pauses(sort_spans(pl.concat([late, *map(with_cause, (in_calls, on_device, rest))]), _DEVICE), pauses)


def with_cause(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return pieces with their cause: table `idle` and ``named_by``; thread_id is null where it is not needed."""
    named = pieces if "named_by" in pieces.columns else pieces.with_columns(_NO_THREAD)
    return named.select(_IDLE_COLUMNS).cast({"cause": pl.Categorical})


def with_events(idle: pl.DataFrame, innermost_events: pl.DataFrame, host: Host) -> pl.DataFrame:
    """Return table `idle` with categorical texts: ``idle`` cut where the innermost event changes."""
    events = innermost_events.rename({"thread_id": "named_by"})
    named = split_by(idle.rename({"event_id": "known_id"}), events, ["named_by"], ["event_id"])
    ids = named.select(pl.coalesce("known_id", "event_id").alias("event_id")).to_series()
    return named.with_columns(ids, host.texts(ids).alias("host_event")).select(list(IDLE.schema))


def without_causes(idle: pl.DataFrame, devices: Collection[int]) -> pl.DataFrame:
    """Suppress the causes of some devices in ``idle``, except causes that mean unknown."""
    return idle.with_columns(causes_but(devices), pl.when(~_hidden(devices)).then(pl.col("event_id", "named_by")))


def causes_but(devices: Collection[int]) -> pl.Expr:
    """Return column ``cause`` with the causes of some devices suppressed."""
    return pl.when(_hidden(devices)).then(pl.lit(WITHHELD, dtype=pl.Categorical)).otherwise("cause").alias("cause")


def _hidden(devices: Collection[int]) -> pl.Expr:
    return pl.col("device").is_in(list(devices)) & ~pl.col("cause").is_in(["unlinked", "untraced"])


def call_pieces(stretches: pl.DataFrame, calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Determine the work of the launch call itself: a blocking copy, an allocation, loading of code, or launching."""
    stretches = stretches.filter(pl.col("cause") == "call")
    length = pl.col("call_end_ns") - pl.col("call_start_ns")
    typical = pl.lit(launches.get_column("duration_ns").median(), dtype=pl.Float64)
    slow = (length > thresholds.SLOW_LAUNCH_NS) & (length > thresholds.SLOW_LAUNCH_MEDIANS * typical)
    return (
        stretches.drop("cause")
        .hstack(lookup(calls.select("launch_id", "call_start_ns", "call_end_ns", "work"), stretches, "launch_id"))
        .with_columns(
            pl.when(pl.col("work").is_in(["blocking-copy", "allocation", "compilation"]))
            .then(pl.col("work").cast(pl.String))
            .when(slow)
            .then(pl.lit("compilation"))
            .otherwise(pl.lit("launch-latency"))
            .alias("cause"),
            pl.col("launch_id").alias("event_id"),
        )
    )


def device_pieces(stretches: pl.DataFrame, trace: Trace, host: Host, activities: pl.DataFrame) -> pl.DataFrame:
    """Determine the cause of device time.

    Short time is inter-kernel latency; long time is a wait, if there is something to wait for.
    """
    stretches = stretches.filter(pl.col("cause") == "device")
    communicates = activities.get_column("bucket").eq("communication").any()
    first_wait = first_event_wait_ns(host, trace.sync_events)
    wait = pl.lit(communicates) | (pl.lit(first_wait) < pl.col("end_ns")).fill_null(False)
    return stretches.with_columns(
        pl.when(pl.col("end_ns") - pl.col("start_ns") < thresholds.DEVICE_GAP_NS)
        .then(pl.lit("device-gap"))
        .when(wait)
        .then(pl.lit("device-wait"))
        .otherwise(pl.lit("unexplained"))
        .alias("cause")
    )


def first_event_wait_ns(host: Host, sync_events: pl.DataFrame) -> int | None:
    """Return when a stream first waited for an event that was recorded in the trace; None without such a wait."""
    recorded, waited = (
        host.calls_of(pl.col("name").str.contains(word)).get_column("start_ns")
        for word in ("EventRecord", STREAM_WAITS)
    )
    rows = sync_events.filter(pl.col("name").str.contains("(?i)stream wait event")).get_column("start_ns")
    since = recorded.min()
    waits = waited.clear() if since is None else waited.filter(waited > since)
    first: int | None = pl.concat([waits, rows]).min()  # type: ignore[assignment]
    return first


def _with_pauses(pieces: pl.DataFrame, pauses: pl.DataFrame) -> pl.DataFrame:
    """Cut pieces, in order, at recording pauses, which replace all causes except unlinked time."""
    if pauses.is_empty():
        return pieces
    anywhere = pl.lit(0).alias("anywhere")
    is_linked = pl.col("cause") != "unlinked"
    windows = pauses.with_columns(anywhere, pl.lit(True).alias("paused"))
    cut = split_by(pieces.filter(is_linked).with_columns(anywhere), windows, ["anywhere"], ["paused"]).with_columns(
        pl.when("paused").then(pl.lit("untraced", dtype=pl.Categorical)).otherwise("cause").alias("cause"),
        pl.when(pl.col("paused").is_null()).then(pl.col("event_id", "named_by")),
    )
    unlinked, cut = pieces.filter(~is_linked), cut.select(pieces.columns)
    return sort_spans(pl.concat([unlinked, cut]), _DEVICE) if unlinked.height else cut


ANALYSES = (
    Value(
        "call_segments",
        call_pieces,
        {"stretches": "gap_segments", "calls": "runtime_calls", "launches": "unmasked_launches"},
    ),
    Value("device_segments", device_pieces, {"stretches": "gap_segments"}),
    Value(
        "idle_causes",
        idle_causes,
        {
            "stretches": "gap_segments",
            "late": "late_segments",
            "in_calls": "call_segments",
            "on_device": "device_segments",
            "pauses": "recording_pauses",
        },
        needs=(metrics.CAUSES_OF_IDLE,),
        hide=without_causes,
    ),
    Analysis(IDLE, with_events, {"idle": "idle_causes"}),
)
