"""Estimate the cost of recording: the profiler slows the CPU for each recorded event, but not the GPU.

Cost of an event. Of two consecutive events of one kind on a thread, the second can begin once the first has been
recorded, so the fastest such pairs show the recording time, from start to start. Their lower quartile is the estimate,
and their 5th percentile the lower bound; where even these are farther apart than recording ever takes, the events do
real work, and the lower bound is unknown. (PyTorch 2.13 on a CPU, 7,000 to 10,000 events with and without shapes,
stacks and memory, compared with the same code without the profiler: the quartile is 0.96 to 1.28 times the true cost,
the 5th percentile 0.39 to 0.50 times.) Runtime and driver calls do real work, but those that only look something up
return at once, so the time until the next call is the cost of recording a call. A launch is recorded with its kernel:
programs that were also timed before any profiler ran show how many times the duration of a launch that takes.

Cost of a gap. The recording time of the CPU since it last waited for the device delays the launch that ends the gap.
Without recording, the gap would be shorter by that time, less what already shortened gaps in between, but by no more
than its host part.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeGuard

import polars as pl

from trace_analyzer import analysis, thresholds, vocabulary
from trace_analyzer.analyses.host import KERNEL_LAUNCH, Host
from trace_analyzer.catalog.event_names import BLOCKING, CALLS, LOOKUP
from trace_analyzer.frames import intervals, lookups
from trace_analyzer.units import counted, duration, percent

COSTLY_KINDS = {"operator": "operator", "python": "Python frame", "runtime": "runtime call", "launch": "launch"}
"""Kinds of events with a recording cost, and what one is called; driver calls, copies and launches of graphs cost as much as runtime calls."""

SLOWED = tuple(part.key for part in vocabulary.PARTS.values() if part.slowed)
"""Causes of idle time that recording lengthens."""


class ProfilerOverhead(NamedTuple):
    """The profiler overhead in the idle time of windows, by cause, ns.

    ``least_ns`` is the lower bound of an estimate, and ``event_cost_ns`` its (lower bound, estimate) per kind of event.
    A measurement instead has the time of a step with and without the profiler, and ``rest_ns``: the extra time of the
    steps beyond all idle time that recording can lengthen. Of that, ``peers_ns`` is waiting for peers.
    """

    method: Literal["estimated", "measured"]
    taken_ns: Mapping[str, int]
    least_ns: Mapping[str, int]
    event_cost_ns: Mapping[str, tuple[int, int]]
    events: int | None = None
    step_ns: int | None = None
    measured_step_ns: int | None = None
    rest_ns: int = 0
    peers_ns: int = 0

    def with_waits(self, most_ns: int) -> "ProfilerOverhead":
        """Return the overhead with what remains of it in waits for peers, of up to so many ns: recording slows them too."""
        waits = min(self.rest_ns, most_ns)
        taken = {**self.taken_ns, "communication": waits}
        return self._replace(taken_ns=taken, least_ns=taken, peers_ns=waits) if waits else self


def is_measured(recording: ProfilerOverhead | None) -> TypeGuard[ProfilerOverhead]:
    """Return whether the step without the profiler was measured."""
    return recording is not None and recording.method == "measured"


def explained(recording: ProfilerOverhead, window_ns: int) -> str:
    """Write what recording cost, and how that is known."""
    if is_measured(recording):
        estimate = f"a step takes {duration(recording.measured_step_ns)} without the profiler, {duration(recording.step_ns)} with it"
        if recording.rest_ns <= thresholds.WORTH_RATIO * window_ns:
            return estimate
        peers = (
            f", of which {percent(recording.peers_ns / recording.rest_ns)} may be waiting for peers, which it slows too"
        )
        return f"{estimate}; {percent(recording.rest_ns / window_ns)} of the steps is more than the CPU's idle time explains{peers if recording.peers_ns else ''}"
    # A clock of whole microseconds measures the fastest events as 0.
    known = {kind: costs for kind, costs in recording.event_cost_ns.items() if costs[1] > 0}
    recorded = f"{counted(recording.events or 0, 'event was', 'events were')} recorded before late launches"
    if not known:
        return f"{recorded}, each in less than the trace's clock resolves"
    each = ", ".join(
        f"{f'{duration(least)} to ' if 0 < least < cost else 'up to '}{duration(cost)} per {COSTLY_KINDS[kind]}"
        for kind, (least, cost) in known.items()
    )
    calls = "; runtime calls by the cost of those that only query state" if "runtime" in known else ""
    calls += "; launches by their durations" if "launch" in known else ""
    return f"{recorded}, at {each} (from the distances between such events in this trace{calls})"


class Prices(NamedTuple):
    """The cost of recording per kind of event, (lower bound, estimate) in ns, and idle time.

    ``gaps`` are those with `gap_costs`; ``idle`` are the intervals of all gaps.
    """

    events: Mapping[str, tuple[int, int]]
    gaps: pl.DataFrame
    idle: pl.DataFrame


def prices(
    gaps: pl.DataFrame,
    idle_causes: pl.DataFrame,
    gap_sums: pl.DataFrame,
    launches: pl.DataFrame,
    host: Host,
    event_costs: pl.DataFrame,
) -> Prices | None:
    """Return the recording costs that the events show; None where there are too few."""
    if event_costs.is_empty():
        return None
    priced = gaps.join(
        gap_costs(gaps, gap_sums, launches, host, event_costs), on="gap_id", how="inner", maintain_order="left"
    )
    return Prices({kind: (least, cost) for kind, least, cost in event_costs.iter_rows()}, priced, idle_causes)


def estimated(priced: Prices, windows: pl.DataFrame) -> dict[int, ProfilerOverhead]:
    """Estimate the profiler overhead within each of ``windows`` (device, window, start_ns, end_ns), by window."""
    gaps = intervals.clip(priced.gaps.drop("cause"), windows, ["device"])
    sums = _slowed(intervals.overlap_sums(priced.idle, "cause", gaps, ["device"]))
    late = gaps[sums.get_column("row").unique()]
    events = dict(late.group_by("window").agg(pl.col("events").sum()).sort("window").iter_rows())
    took = (
        sums.hstack(gaps[sums.get_column("row")])
        .group_by("window", "cause")
        .agg(
            (pl.col("overlap_ns") * pl.col(f"{name}_ratio")).sum().round().cast(pl.Int64).alias(name)
            for name in ("least", "cost")
        )
        .sort("window", "cause")
    )
    least_ns: dict[int, dict[str, int]] = {window: {} for window in windows.get_column("window").unique().sort()}
    taken_ns: dict[int, dict[str, int]] = {window: {} for window in least_ns}
    for window, cause, least, cost in took.iter_rows():
        least_ns[window][cause], taken_ns[window][cause] = least, cost
    return {
        window: ProfilerOverhead(
            method="estimated",
            taken_ns=taken_ns[window],
            least_ns=least_ns[window],
            event_cost_ns=priced.events,
            events=int(events.get(window, 0)),
        )
        for window in taken_ns
    }


def measured(
    idle: pl.DataFrame, windows: pl.DataFrame, recorded: Mapping[int, tuple[int, int]], measured_step_ns: int
) -> dict[int, ProfilerOverhead]:
    """Return, by window, the extra time of steps over the measured time, taken from all lengthened causes in proportion.

    ``recorded`` has the total length and the number of steps in each of ``windows`` (device, window, start_ns, end_ns).
    """
    slowed = _slowed(intervals.overlap_sums(idle, "cause", windows, ["device"]))
    by_window = windows.select("window")[slowed.get_column("row")].hstack(slowed).group_by("window", "cause")
    sums: dict[int, dict[str, int]] = {window: {} for window in recorded}
    for window, cause, ns in by_window.agg(pl.col("overlap_ns").sum()).sort("window", "cause").iter_rows():
        sums[window][cause] = ns
    return {window: extra_of(sums[window], *recorded[window], measured_step_ns) for window in recorded}


def extra_of(slowed_ns: Mapping[str, int], recorded_ns: int, steps: int, measured_step_ns: int) -> ProfilerOverhead:
    """Return the extra time of ``steps`` steps of total length ``recorded_ns`` over the measured time."""
    total = sum(slowed_ns.values())
    extra = max(0, recorded_ns - steps * measured_step_ns)
    ratio = min(1.0, extra / total) if total else 0.0
    taken = {cause: round(ns * ratio) for cause, ns in slowed_ns.items()}
    return ProfilerOverhead(
        method="measured",
        taken_ns=taken,
        least_ns=taken,
        event_cost_ns={},
        step_ns=round(recorded_ns / steps),
        measured_step_ns=measured_step_ns,
        rest_ns=max(0, extra - sum(taken.values())),
    )


def _slowed(sums: pl.DataFrame) -> pl.DataFrame:
    """Return the sums of idle time that recording lengthens."""
    return sums.filter(pl.col("cause").is_in(SLOWED))


def event_costs(host: Host) -> pl.DataFrame:
    """Return kind, least_ns, cost_ns: the time for recording an event; kinds with too few consecutive pairs are missing.

    Of runtime calls, only those that look something up are used; of launches, the lower quartile of their durations.
    """
    is_usable = (_recorded_kind() != "runtime") | (pl.col("work") == LOOKUP).fill_null(False)
    events = host.events.select("thread_id", "start_ns", "end_ns").with_columns(
        host.each(_recorded_kind()).alias("kind"), host.each(is_usable).alias("is_usable")
    )
    # Halves of pairs are slices of the same columns, so that nothing is copied before the selection.
    ones, others = events.head(-1), events.tail(-1)
    is_pair = (
        ones.get_column("is_usable")
        & (ones.get_column("thread_id") == others.get_column("thread_id"))
        & (ones.get_column("kind") == others.get_column("kind"))
        & (ones.get_column("end_ns") <= others.get_column("start_ns"))
    )
    pairs = (
        ones.select("kind", "start_ns")
        .hstack(others.select(pl.col("start_ns").alias("next_ns")))
        .filter(is_pair)
        .select("kind", (pl.col("next_ns") - pl.col("start_ns")).alias("apart_ns"))
    )
    least, typical = (
        pl.col("apart_ns").quantile(q, interpolation="lower")
        for q in (thresholds.RECORDING_LEAST_QUANTILE, thresholds.RECORDING_QUANTILE)
    )
    launches = host.calls_of(KERNEL_LAUNCH).select(
        pl.lit("launch", dtype=_PRICED).alias("kind"), pl.col("duration_ns").alias("apart_ns")
    )
    low, high = thresholds.RECORDING_LAUNCH_LEAST_RATIO * typical, thresholds.RECORDING_LAUNCH_RATIO * typical
    return (
        pl.concat(
            frame.group_by("kind").agg(
                pl.len().alias("count"),
                pl.when(of_least <= at_most).then(of_least).otherwise(0).round().cast(pl.Int64).alias("least_ns"),
                cost.clip(upper_bound=at_most).round().cast(pl.Int64).alias("cost_ns"),
            )
            for frame, of_least, cost, at_most in (
                (pairs, least, typical, thresholds.RECORDING_MAX_NS),
                (launches, low, high, thresholds.RECORDING_LAUNCH_MAX_NS),
            )
        )
        .filter(pl.col("count") >= thresholds.RECORDING_PAIRS)
        .select(pl.col("kind").cast(pl.String), "least_ns", "cost_ns")
        .sort("kind")
    )


_PRICED = pl.Enum(list(COSTLY_KINDS))


def _recorded_kind() -> pl.Expr:
    """Return as which of `COSTLY_KINDS` an event is recorded, launches as runtime calls; null for other kinds."""
    return pl.col("kind").replace("driver", "runtime").cast(_PRICED, strict=False)


def gap_costs(
    gaps: pl.DataFrame, sums: pl.DataFrame, launches: pl.DataFrame, host: Host, costs: pl.DataFrame
) -> pl.DataFrame:
    """Return gap_id, events (recorded ones that delayed its end), least_ratio and cost_ratio (their share of its lengthened time).

    Only gaps with time that recording lengthens (`SLOWED`) and with a known launch are included.
    """
    slowed = _slowed(sums).group_by("gap_id").agg(pl.col("idle_ns").sum().alias("slowed_ns"))
    starts = launches.select("launch_id", pl.col("start_ns").alias("launch_ns")).with_columns(
        host.events.get_column("process_id")[launches.get_column("launch_id")]
    )
    ends = (
        gaps.join(slowed, on="gap_id", how="inner")
        .join(starts, on="launch_id")
        .sort("device", "start_ns")
        # For work launched out of order, the latest launch counts, so that no delay is counted twice.
        .with_columns(pl.col("launch_ns").cum_max().shift(1).over("device", "process_id").alias("previous_ns"))
    )
    waits = (
        host.calls.filter(pl.col("work") == BLOCKING)
        .select("process_id", pl.col("end_ns").alias("waited_ns"))
        .sort("waited_ns")
    )
    first = starts.group_by("process_id").agg(pl.col("launch_ns").min().alias("first_ns"))
    since = (
        ends.join(first, on="process_id", how="left")
        .sort("launch_ns")
        .join_asof(waits, left_on="launch_ns", right_on="waited_ns", by="process_id", check_sortedness=False)
        .with_columns(pl.max_horizontal("first_ns", "previous_ns", "waited_ns").alias("since_ns"))
        .with_columns(pl.min_horizontal("since_ns", "launch_ns"))
    )
    # What a gap cannot take, the next one can, until the CPU waits for the device: both then begin anew.
    begins = (pl.col("waited_ns") >= pl.col("since_ns")).fill_null(False)
    track = ("device", "process_id", "since_wait")
    return (
        since.hstack(_recorded_between(since, host, launches.get_column("thread_id"), costs))
        .sort("device", "start_ns")
        .with_columns(begins.cum_sum().over("device", "process_id").alias("since_wait"))
        .select(
            "gap_id", "events", *(_taken(f"{name}_ns").over(track).alias(f"{name}_ratio") for name in ("least", "cost"))
        )
        .sort("gap_id")
    )


def _taken(cost: str) -> pl.Expr:
    """Return the share that recording took of each gap's lengthened time, with what previous gaps could not take."""
    rest = (pl.col(cost) - pl.col("slowed_ns")).cum_sum()
    left = rest - pl.min_horizontal(rest.cum_min(), 0)
    return ((pl.col(cost) + left.shift(1, fill_value=0)) / pl.col("slowed_ns")).clip(0, 1)


def _recorded_between(edges: pl.DataFrame, host: Host, threads: pl.Series, costs: pl.DataFrame) -> pl.DataFrame:
    """Sum the recordings of threads from since_ns to before launch_ns in each process: events, least_ns, cost_ns.

    Each event is added to its process's last edge up to it. Differences of running sums then give the time between two
    edges, without sorting a million events.
    """
    ends = [edges.select("process_id", pl.col(time).alias("start_ns")) for time in ("since_ns", "launch_ns")]
    numbers, places = intervals.rank_places(pl.concat(ends), ["process_id"])
    last = intervals.last_started(host.events, "start_ns", places, ["process_id"])
    is_there = host.events.get_column("thread_id").is_in(threads.unique().implode())
    nowhere = pl.Series([places.height], dtype=pl.UInt32)
    last = last.fill_null(places.height).zip_with(is_there, nowhere)
    prices = host.names.select(_prices(costs))
    before = pl.DataFrame(
        lookups.sum_by_group(last, price, places.height, codes=host.events.get_column("name_id"))
        .cum_sum()
        .shift(1, fill_value=0)
        .alias(price.name)
        for price in prices
    )
    since, until = numbers.head(edges.height), numbers.tail(edges.height)
    return before[until] - before[since]


def _prices(costs: pl.DataFrame) -> list[pl.Expr]:
    """Return for each kind and name how many events one counts for (0 without a cost), its least_ns and cost_ns.

    Where launches have no cost, they count as other calls.
    """
    kind, priced = pl.col("kind").replace("driver", "runtime"), costs.get_column("kind")
    if "launch" in priced:
        kind = pl.when(pl.col("kind").is_in(CALLS) & KERNEL_LAUNCH).then(pl.lit("launch")).otherwise(kind)
    return [
        kind.replace_strict(priced, values, default=0, return_dtype=pl.Int64).alias(name)
        for name, values in (("events", pl.ones(priced.len(), eager=True)), *costs.drop("kind").to_dict().items())
    ]


ANALYSES = (analysis.Value("event_costs", event_costs), analysis.Value("recording_prices", prices))
