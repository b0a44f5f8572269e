"""Set steps aside, and measure how much a window leaves out, and of what kind: one-time work of the host, say.

One-time work precedes the first launch of a kernel, beyond what usually does. A first launch loads the kernel's code; the
first of a library's starts the library; a kernel that was compiled is launched first after that, in the second call of a
TorchScript function too; the first use of a size grows the allocator.
"""

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from trace_analyzer import analysis, errors, schema, thresholds, units
from trace_analyzer.analyses.host import Host
from trace_analyzer.catalog.event_names import DATA_LOADING, HOST_WAIT, PROFILER_STEP_NAME
from trace_analyzer.frames.intervals import LENGTH_NS, clip
from trace_analyzer.vocabulary import HOST_CAUSES, PARTS, WORK

FIRST_LAUNCHES = schema.Table(
    "first_launches",
    "First launches of kernels, with others of the same operator: how long the thread took for each, beside later ones.",
    schema.columns("""
        activity_id launch_id device name thread_id
        start_ns i64 End of the thread's launch before it; its own start where there is none.
        operator_start_ns i64 Start of the innermost operator around it, in that time; `start_ns` without one.
        end_ns i64 Its end.
        usual_ns f64 Median of that time for later launches of the kernel; where there are none, of all launches, at most
            250 us.
        is_slow bool Whether it took so much longer that it contains one-time work.
    """),
)
_UNLIKE_NS = thresholds.COLD_START_GAP_NS / thresholds.SLOW_FIRST_MEDIANS
"""Most that a launch usually takes where no later one of its kernel tells: all may be first ones."""
_ORDER = ["thread_id", "launch_start_ns", "launch_id", "start_ns", "activity_id"]


def first_launches(linked_events: pl.DataFrame, host: Host) -> pl.DataFrame:
    """Return table `first_launches` by thread and time."""
    launches = (
        linked_events.select(
            "activity_id", "launch_id", "operator_id", "device", "name", "start_ns",
            pl.col("launch_thread").alias("thread_id"), "launch_start_ns", pl.col("launch_end_ns").alias("end_ns"),
        )
        .drop_nulls("launch_id")
        .sort(_ORDER)
        .unique("launch_id", keep="first", maintain_order=True)
    )  # fmt: skip
    before = pl.col("end_ns").shift(1).over("thread_id")
    named = ["device", "name"]
    starts_first = pl.col("launch_start_ns") == pl.col("launch_start_ns").min().over(named)
    begun = host.events.get_column("start_ns").alias("operator_start_ns")[launches.get_column("operator_id")]
    known = launches.with_columns(
        pl.min_horizontal(before, "launch_start_ns").fill_null(pl.col("launch_start_ns")).alias("start_ns"),
        starts_first.alias("is_first"),
    ).with_columns(LENGTH_NS.alias("took"))
    within = pl.col("is_first").any().over("operator_id") & pl.col("operator_id").is_not_null()
    later = pl.col("took").filter(~pl.col("is_first")).median().over(named)
    slow = (pl.col("took") >= thresholds.COLD_START_GAP_NS) & (
        pl.col("took") > thresholds.SLOW_FIRST_MEDIANS * pl.col("usual_ns")
    )
    return FIRST_LAUNCHES.conform(
        known.with_columns(
            pl.coalesce(later, pl.min_horizontal(pl.col("took").median(), _UNLIKE_NS)).alias("usual_ns"),
            (within | pl.col("is_first")).alias("is_first"),
            pl.max_horizontal("start_ns", begun).alias("operator_start_ns"),
        )
        .filter("is_first")
        .with_columns(slow.alias("is_slow"))
    )


def cold_idle(idle_causes: pl.DataFrame, gaps: pl.DataFrame, first_launches: pl.DataFrame) -> pl.DataFrame:
    """Return host time in ``idle_causes`` within gaps of at least 1 ms that a kernel's slow first launch ends.

    Loading of data and waits of the host for other threads or processes are excluded, as they can recur.
    """
    long = gaps.filter(pl.col("duration_ns") >= thresholds.COLD_START_GAP_NS)
    cold = long.join(first_launches.filter("is_slow"), on="activity_id", how="semi")
    within = idle_causes.filter(pl.col("gap_id").is_in(cold.get_column("gap_id").implode()))
    return within.filter(pl.col("cause").is_in(HOST_CAUSES), ~pl.col("cause").is_in([DATA_LOADING, HOST_WAIT]))


def ns_in_windows(idle: pl.DataFrame, windows: pl.DataFrame) -> dict[int, int]:
    """Return the time of these intervals by window (device, window, start_ns, end_ns); 0 is left out."""
    inside = clip(idle, windows, ["device"])
    return dict(inside.group_by("window").agg(LENGTH_NS.sum()).sort("window").iter_rows())


def with_states(steps: pl.DataFrame) -> pl.DataFrame:
    """Return steps (device, start_ns, end_ns, activity_count, lost, step_kind) with state and steady.

    Set aside unusual steps; the others are steady where they are at least two, as one alone may not be typical.

    Of a serving framework's steps, only those of the kind with most time count. One of them is enough, as its name says
    what it does.

    A step without activities is empty, or ``lost`` where it launched some. The first step, and slow ones directly after
    it, are warm-up. A last step with few activities was cut by the recording's end; elsewhere, few or many activities or
    a long duration mean that the step did something else, unless slow steps recur and take most of the time, or others
    come back at equal distances. Of two steps the shorter is the typical one.
    """
    kind = pl.col("step_kind")
    leading = kind.eq_missing(kind.sort_by(LENGTH_NS.sum().over("device", kind), kind).last().over("device"))
    is_serving = kind.is_not_null().any().over("device")
    position = pl.int_range(pl.len()).over("device")
    is_last = position == pl.len().over("device") - 1
    worked = pl.col("activity_count").filter(leading & (pl.col("activity_count") > 0))
    alone = is_serving & leading & (worked.len().over("device") == 1)
    low, high = (worked.quantile(0.5, side).over("device") for side in ("lower", "higher"))
    few = pl.col("activity_count") < thresholds.CUT_RATIO * high
    many = pl.col("activity_count") > low / thresholds.CUT_RATIO
    state = (
        pl.when("lost").then(pl.lit("lost"))
        .when(pl.col("activity_count") == 0).then(pl.lit("empty"))
        .when((position == 0) & ~alone).then(pl.lit("first"))
        .when(is_last & few).then(pl.lit("cut"))
        .when(~leading).then(pl.lit("outlier"))
        .when(few).then(pl.lit("few"))
        .when(many).then(pl.lit("many"))
        .otherwise(pl.lit("ok"))
    )  # fmt: skip
    is_other = pl.col("state").is_in(["few", "many"])
    settled = pl.when(is_other & ~_returns()).then(pl.lit("outlier")).otherwise("state")
    typical = LENGTH_NS.filter(pl.col("state") == "ok").quantile(0.5, "lower").over("device")
    slow = (pl.col("state") == "ok") & (thresholds.OUTLIER_MEDIANS * typical < LENGTH_NS)
    unlike = (
        pl.when(pl.col("usual") == 0).then(pl.lit("warm-up"))
        .when("recurs").then(pl.lit("ok"))
        .otherwise(pl.lit("outlier"))
    )  # fmt: skip
    least = pl.when(is_serving).then(1).otherwise(thresholds.MIN_STEADY_STEPS)
    enough = (pl.col("state") == "ok").sum().over("device") >= least
    return (
        steps.with_columns(state.alias("state"), position.alias("position"))
        .with_columns(settled.alias("state"))
        .with_columns(slow.alias("slow"))
        .with_columns(pl.when(is_other).then(pl.lit("ok")).otherwise("state").alias("state"))
        .with_columns(((pl.col("state") == "ok") & ~pl.col("slow")).cum_sum().over("device").alias("usual"))
        .with_columns(_recurs(LENGTH_NS).alias("recurs"))
        .with_columns(pl.when("slow").then(unlike).otherwise("state").alias("state"))
        .with_columns(((pl.col("state") == "ok") & enough).alias("steady"))
    )


def _returns() -> pl.Expr:
    """Return whether the steps of this state come at equal distances, over 1, with about as many activities.

    These are parts of the program: one optimizer step for several steps that add up gradients, say.
    """
    apart, counts = pl.col("position").diff(), pl.col("activity_count")
    regular = (apart.min() == apart.max()) & (apart.min() > 1)
    alike = counts.min() >= thresholds.PERIOD_LIKENESS * counts.max()
    return ((pl.len() >= thresholds.RECURRENCES) & regular & alike).over("device", "state")


def _recurs(length: pl.Expr) -> pl.Expr:
    """Return whether slow steps recur after usual ones and take most of the time since the first usual one.

    This happens where workers load batches for several steps at once. Such steps are typical of the program.
    """
    counts = pl.col("usual") > 0
    is_slow = pl.col("slow") & counts
    apart = is_slow & ~is_slow.shift(1, fill_value=False)
    slow_ns = length.filter(is_slow).sum()
    usual_ns = length.filter(counts & (pl.col("state") == "ok") & ~pl.col("slow")).sum()
    return ((apart.sum() >= thresholds.RECURRENCES) & (slow_ns > usual_ns)).over("device")


ANALYSES = (analysis.Analysis(FIRST_LAUNCHES, first_launches), analysis.Value("cold_idle", cold_idle))


# Measure the host's recorded time before a device's first activity and after its last.
#
# A device's window lasts from its first activity to its last. The rest of a trace (driver initialization, preparation of
# inputs) belongs to no part of the partition, but may be most of the recording.

Interval = tuple[int, int]


class RecordedSpan(NamedTuple):
    """The recorded time of the threads that launch a device's work: from their first event to their last.

    ``device_ns`` is the device's own window within it, or beyond it. ``before`` and ``after`` name the innermost event
    that fills at least half of the time before the device's first work and after its last; None without such an event.
    """

    host_ns: Interval
    device_ns: Interval
    before: str | None = None
    after: str | None = None

    @property
    def length_ns(self) -> int:
        """Return the time from the first event of host or device to the last."""
        return max(self.host_ns[1], self.device_ns[1]) - min(self.host_ns[0], self.device_ns[0])

    @property
    def before_ns(self) -> int:
        """Return the time before the device's first work."""
        return max(0, self.device_ns[0] - self.host_ns[0])

    @property
    def after_ns(self) -> int:
        """Return the time after the device's last work."""
        return max(0, self.host_ns[1] - self.device_ns[1])


def recorded_span(window: Interval, launches: pl.Series, host: Host) -> RecordedSpan | None:
    """Return the recorded span of the threads that made the ``launches`` (event ids); None without events."""
    threads = host.events.get_column("thread_id")[launches.unique()].unique()
    own = host.events.filter(pl.col("thread_id").is_in(threads.implode()), pl.col("kind") != "overhead")
    if own.is_empty():
        return None
    first, last = own.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    before, after = _filling(own, host, (first, window[0])), _filling(own, host, (window[1], last))
    return RecordedSpan((first, last), window, before, after)


def _filling(events: pl.DataFrame, host: Host, interval: Interval) -> str | None:
    """Return the name of the innermost event that fills at least half of an interval; None without one."""
    start, end = interval
    inside = pl.min_horizontal("end_ns", pl.lit(end)) - pl.max_horizontal("start_ns", pl.lit(start))
    filling = events.filter(2 * inside >= end - start) if start < end else events.clear()
    steps = host.names.filter(pl.col("name").str.contains(PROFILER_STEP_NAME)).get_column("name_id")
    filling = filling.filter(~pl.col("name_id").is_in(steps.implode()))
    if filling.is_empty():
        return None
    innermost = filling.sort("start_ns", "end_ns", "event_id", descending=[False, True, False]).get_column("event_id")
    return str(host.texts(innermost.tail(1)).cast(pl.String).item())


class LeftOut(NamedTuple):
    """What a window leaves out: ``time_ns`` of ``total_ns``, of the recorded time or of the device's work.

    The larger share of the two is used. ``parts_ns`` is the partition of the left-out time between the device's first
    and last work, ``cold_gap_ns`` its cold start; ``span`` has the time before and after, where it is known.
    """

    time_ns: int
    total_ns: int
    of_device_time: bool
    parts_ns: Mapping[str, int]
    cold_gap_ns: int
    span: RecordedSpan | None = None

    @property
    def ratio(self) -> float:
        """Return the left-out share."""
        return self.time_ns / self.total_ns

    @property
    def is_most(self) -> bool:
        """Return whether the window covers the smaller part."""
        return self.ratio > thresholds.LEFT_OUT_RATIO

    @property
    def is_outside(self) -> bool:
        """Return whether most left-out time is before the device's first work and after its last."""
        return not self.of_device_time and 2 * self.inside_ns < self.time_ns

    @property
    def inside_ns(self) -> int:
        """Return the left-out time between the device's first work and its last."""
        outside_ns = 0 if self.span is None or self.of_device_time else self.span.before_ns + self.span.after_ns
        return self.time_ns - outside_ns


def left_out(
    spans_ns: tuple[int, int],
    parts_ns: Mapping[str, int],
    whole_ns: Mapping[str, int],
    cold_gap_ns: int,
    span: RecordedSpan | None = None,
) -> LeftOut | None:
    """Return what a window with partition ``parts_ns`` leaves out of the partition ``whole_ns``; None for nothing.

    ``spans_ns`` are the lengths of the window and of the whole, as partitions may be suppressed. ``cold_gap_ns`` is the
    cold start outside the window. ``span`` is the recorded time around the whole, which counts as left out.
    """
    window_ns, whole_length_ns = spans_ns
    length_ns = whole_length_ns if span is None else span.length_ns
    rest = {part: ns - parts_ns.get(part, 0) for part, ns in whole_ns.items()}
    busy, busy_rest = (sum(ns for part, ns in parts.items() if part in WORK) for parts in (whole_ns, rest))
    shares = [(length_ns - window_ns, length_ns, False), (busy_rest, busy, True)]
    time_ns, total_ns, of_device_time = max(
        (share for share in shares if share[1]), key=lambda share: share[0] / share[1], default=(0, 0, False)
    )
    return LeftOut(time_ns, total_ns, of_device_time, rest, cold_gap_ns, span) if time_ns > 0 else None


# Choose the part of a trace for the verdict where no steps are known.

NAMED = tuple(part.key for part in PARTS.values() if part.per != "step" and not part.is_work and part.replay != "wait")
"""Causes of idle time with an actionable name: such time is never trimmed."""


def trimmed(window: Interval, gaps: pl.DataFrame, sums: pl.DataFrame) -> Interval:
    """Return the window of a device without idle time before its first real work and after its last.

    ``gaps`` are those of the device, in order, ``sums`` their `idle.gap_sums`. Work before a gap is not real if the
    device was busy there for at most a hundredth of its total busy time; likewise for work after a gap. Idle time at an
    edge is trimmed up to its innermost gap of at least a tenth of the window, if at least half of it has causes outside
    `NAMED`.
    """
    start, end = window
    before = pl.col("start_ns") - start - LENGTH_NS.cum_sum().shift(1, fill_value=0)
    busy = (end - start) - gaps.select(LENGTH_NS.sum()).item()
    if not busy:
        return window
    named = sums.filter(pl.col("cause").cast(pl.String).is_in(NAMED)).group_by("gap_id").agg(pl.col("idle_ns").sum())
    rows = (
        gaps.select("gap_id", "start_ns", "end_ns", before.alias("before_ns"))
        .join(named, on="gap_id", how="left", maintain_order="left")
        .with_columns(pl.col("idle_ns").fill_null(0).alias("named_ns"), (busy - pl.col("before_ns")).alias("after_ns"))
    )
    few, long = thresholds.EDGE_WORK_RATIO * busy, thresholds.EDGE_IDLE_RATIO * (end - start)

    def is_trimmed(edge: pl.DataFrame) -> bool:
        idle, named_ns = edge.select(LENGTH_NS.sum(), pl.col("named_ns").sum()).row(0)
        return bool(edge.height) and 2 * named_ns <= idle

    head, tail = rows.filter(pl.col("before_ns") <= few), rows.filter(pl.col("after_ns") <= few)
    # Up to the last long gap; short gaps after it belong to the work.
    is_long = (long <= LENGTH_NS).cast(pl.Int8)
    head, tail = head.filter(is_long.cum_max(reverse=True) == 1), tail.filter(is_long.cum_max() == 1)
    return (
        int(head.get_column("end_ns").item(-1)) if is_trimmed(head) else start,
        int(tail.get_column("start_ns").item(0)) if is_trimmed(tail) else end,
    )


def trim_notes(device: int | str, window: Interval, judged: Interval) -> tuple[errors.Note, ...]:
    """Note the time that `trimmed` removed from the window of a device."""
    edges = (("before its first real work", judged[0] - window[0]), ("after its last", window[1] - judged[1]))
    taken = [f"{units.duration(ns)} {where}" for where, ns in edges if ns]
    return (
        errors.Note(
            "trimmed-window",
            "info",
            f"device {device} idled, but for {units.percent(thresholds.EDGE_WORK_RATIO)} of its work at most, for {' and '.join(taken)}: the verdict leaves"
            " this out (--step all judges everything); with prof.step() in the loop, steps mark what belongs to it",
        ),
    )
