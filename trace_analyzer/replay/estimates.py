"""Estimate the effect of each change of the catalogue on the judged device, by its replay."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import polars as pl
from msgspec import Struct
from msgspec.structs import asdict, replace

from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.catalog.fixes import Fix
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.replay import whatif
from trace_analyzer.replay.changes import CHANGES, Change
from trace_analyzer.replay.outcomes import Prediction, unless_below
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.refusals import barred, refused_replayed, refused_unseen, too_few, unexplained, without_links
from trace_analyzer.report import Check, DeviceReport, Predicted, Verdict
from trace_analyzer.report.verdicts import is_saving_known
from trace_analyzer.schema import Table, columns
from trace_analyzer.sections import Section, Shown
from trace_analyzer.thresholds import WORTH_RATIO
from trace_analyzer.tuning import SMALL_EVENTS, return_freed_memory
from trace_analyzer.units import NS_PER_MS, duration
from trace_analyzer.windows import Judged

MAX_EVENTS = 2_000_000
"""Largest number of events for a replay in a report: at five million, it adds 2.1 GB to a peak of 3.1 GB, and 22 s to
41 s of CPU time.

``analyze whatif`` has no limit.
"""


class DeviceReplay(NamedTuple):
    """The replay of the judged device; ``reason`` is why it is missing.

    ``unlinked`` is why changes of CPU work have no predictions; ``barred`` returns why a change has none. ``outside_ns`` is
    time of the window outside all steps.
    """

    device: int | None
    window: tuple[int, int] = (0, 0)
    reason: str | None = None
    replay: Replay | None = None
    unlinked: str | None = None
    outside_ns: int = 0
    barred: Callable[[Change], str | None] = lambda _: None

    def trim(self) -> None:
        """Return the memory that a pass over a large replay freed, so that the next one does not add to it."""
        if self.replay is not None and self.replay.graph.recorded.segments.start.size > SMALL_EVENTS:
            return_freed_memory()


class ReplaySources(Struct, frozen=True):
    """The values for a replay, named like their tables; ``device_steps`` are the steps without verdicts."""

    judged: Judged | None
    checks: tuple[Check, ...]
    device_reports: Mapping[int, DeviceReport]
    activities: pl.DataFrame
    backward_links: pl.DataFrame
    collectives: pl.DataFrame
    launches: pl.DataFrame
    device_steps: pl.DataFrame
    fusions: pl.DataFrame
    roofs: pl.DataFrame
    first_launches: pl.DataFrame
    tensor_cores: pl.DataFrame
    host_events: pl.DataFrame
    threads: pl.DataFrame
    sync_events: pl.DataFrame
    reported_devices: pl.DataFrame
    measured_step_ms: float | None
    trace: Trace

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Return the tables by name."""
        by_name = asdict(self)
        tables = {name: value for name, value in by_name.items() if isinstance(value, pl.DataFrame)}
        return {**tables, "steps": self.device_steps, "devices": self.reported_devices}

    @property
    def trust(self) -> Sequence[Check]:
        """Return the checks of the trace's data."""
        return self.checks

    @property
    def devices(self) -> Sequence[DeviceReport]:
        """Return the figures of devices."""
        return tuple(self.device_reports.values())


def device_replay(replay_sources: ReplaySources) -> DeviceReplay:
    """Return the replay of the judged device, or why it is refused.

    It needs no verdict, so that it can run beside the making of one.
    """
    sources = replay_sources
    if sources.judged is None:
        return DeviceReplay(None)
    device = sources.judged.device
    events = sources.host_events.height + sources.activities.height
    too_many = (
        f"reports of over {MAX_EVENTS:,} events leave it out; `analyze whatif TRACE` estimates it"
        if events > MAX_EVENTS
        else None
    )
    intervals = sources.judged.window.intervals
    window = intervals[0][0], intervals[-1][1]
    if (reason := refused_unseen(sources, device) or too_many) is not None:
        return DeviceReplay(device, window, reason)
    if events > SMALL_EVENTS:
        return_freed_memory()
    measured_ns = sources.measured_step_ms and sources.measured_step_ms * NS_PER_MS
    name = sources.reported_devices.filter(device=device).item(0, "name")
    replay = Replay.of(sources, device, measured_ns, sources.trace.header.memory_bytes(name))
    if (reason := refused_replayed(replay)) is not None:
        return DeviceReplay(device, window, reason)
    made = DeviceReplay(
        device, window, None, replay, too_few(sources, device) or without_links(replay.graph.recorded) or unexplained(replay),
        _outside_ns(sources.judged, replay), partial(barred, sources, replay.graph.recorded),
    )  # fmt: skip
    made.trim()
    return made


def _outside_ns(judged: Judged, replay: Replay) -> int:
    """Return the time of the window outside the replayed steps; 0 where the window itself is replayed."""
    if not replay.has_steps:
        return 0
    window_ns = sum(end - start for start, end in judged.window.intervals)
    return max(0, round(window_ns - replay.recorded_step_ns * int(replay.graph.recorded.steps.steady.sum())))


WHAT_WOULD_HELP = Table(
    "what_would_help",
    "What the replay of the judged device estimates: the step now, with each change that saves 2 % or more, the floors, and what cannot be estimated.",
    columns("""
        device
        kind str now, change, cpu-floor (as if the device took no time), device-floor (as if the CPU took no time) or
            refused.
        change str The change, as `analyze whatif` calls it; null for other rows.
        label str The row in words, with the reason where no step is estimated.
        step_ns f64 Estimated length of the step, or of the window without steps; null without an estimate.
        low_ns f64 Start of its interval.
        high_ns f64 End of its interval.
        saves_ratio f64 Share of the step that the change saves; null where it is not known.
        start_ns i64 Start of the window whose steps these are, ns since the trace's origin.
        end_ns i64 Its end.
    """),
)  # fmt: skip
WHAT_WOULD_HELP_SECTION = Section(
    "What would help most",
    "Estimates from a replay of the trace; `analyze whatif` has more.",
    show=(
        Shown("label", "change", "text", 0, markdown=True),
        Shown("step_ns", "time", terminal=0, markdown=True),
        Shown("low_ns", "from", terminal=64, markdown=True),
        Shown("high_ns", "to", terminal=64, markdown=True),
        Shown("saves_ratio", "saves", terminal=0, markdown=True),
    ),
    whole=True,
)


class Estimates(Struct, frozen=True):
    """The results of the replay of one device; ``reason`` is why it, or its predictions on CPU work, are missing.

    ``now_ns`` is the replayed step, null where refused. ``outside_ns`` is time of the window outside all steps.
    ``workers`` are the fewest that load data fast enough, where known. ``predictions`` are by `key_of`; ``skipped`` are changes without a prediction.
    """

    device: int | None
    reason: str | None = None
    now_ns: float | None = None
    floors: tuple[float, float] | None = None
    predictions: Mapping[str, tuple[Change, Prediction]] = {}
    has_steps: bool = True
    window: tuple[int, int] = (0, 0)
    skipped: tuple[whatif.Skipped, ...] = ()
    outside_ns: int = 0
    workers: int | None = None

    def of(self, change: Change | None) -> Predicted | None:
        """Return the predicted step under a change; None where it is unknown."""
        key = "" if change is None else key_of(change.with_workers(lambda: self.workers))
        _, then = self.predictions.get(key, (None, None))
        if then is None or self.now_ns is None:
            return None
        # Of a cold start whose one-time work lies outside of operators, the trace does not tell how long it takes.
        if change == Change("warm") and then.step_ns > (1 - WORTH_RATIO) * self.now_ns:
            return None
        batch = float(change.options["times"]) if change is not None and change.name == "batch" else 1.0
        step_ns, low_ns, high_ns = (ns / batch for ns in (then.step_ns, then.low_ns, then.high_ns))
        if batch > 1:  # at best, a step with the bigger batch takes no longer than a present step
            step_ns, low_ns, high_ns = (max(ns, self.now_ns / batch) for ns in (step_ns, low_ns, high_ns))
        known = is_saving_known(self.now_ns, step_ns, low_ns, high_ns)
        return Predicted(step_ns, low_ns, high_ns, self.now_ns, self.has_steps, known, batch)


def change_of(fix: Fix) -> Change | None:
    """Return the change that a fix is estimated with; None where no change models it."""
    if fix.replayed is None or fix.replayed.get("name") not in CHANGES:
        return None
    return Change(str(fix.replayed["name"]), {name: value for name, value in fix.replayed.items() if name != "name"})


def key_of(change: Change) -> str:
    """Return a text that is equal exactly for equal changes."""
    return " ".join((change.name, *(f"{name}={value}" for name, value in sorted(change.options.items()))))


def standard_estimates(device_replay: DeviceReplay) -> Estimates:
    """Return the effects of the standard changes on the judged device."""
    replay, unlinked = device_replay.replay, device_replay.unlinked
    if replay is None:
        return Estimates(device_replay.device, device_replay.reason, window=device_replay.window)
    pairs, skipped = whatif.predict_each(replay, whatif.standard_changes(), device_replay.barred)
    device_replay.trim()
    return Estimates(
        device_replay.device,
        unlinked,
        replay.identity.step_ns,
        replay.floors if unlinked is None else None,
        {key_of(change): (change, then) for change, then in pairs},
        replay.has_steps,
        device_replay.window,
        tuple(skipped),
        device_replay.outside_ns,
        whatif.least_workers(replay),
    )


def estimates(verdict: Verdict, standard_estimates: Estimates) -> Estimates:
    """Return the estimates; none where too little of the trace can be judged."""
    return Estimates(None) if verdict.status == "insufficient" else standard_estimates


def with_changes(estimates: Estimates, device_replay: DeviceReplay, changes: Iterable[Change]) -> Estimates:
    """Return the estimates with the effects of further changes."""
    replay, known = device_replay.replay, {*estimates.predictions, *map(key_of, whatif.standard_changes())}
    further = {key_of(change): change for change in changes if key_of(change) not in known}
    if replay is None or estimates.now_ns is None:
        return estimates
    pairs, _ = whatif.predict_each(replay, tuple(further.values()), device_replay.barred)
    device_replay.trim()
    more = {key_of(change): (change, then) for change, then in pairs}
    return replace(estimates, predictions={**estimates.predictions, **more})


def _now_label(estimates: Estimates) -> str:
    """Describe the present step, where the window has time outside the steps."""
    if estimates.outside_ns < WORTH_RATIO * (estimates.now_ns or 0) or not estimates.outside_ns:
        return "now"
    return f"now, a step; {duration(estimates.outside_ns)} of the verdict's window lie outside of steps"


def what_would_help(estimates: Estimates) -> pl.DataFrame:
    """Return table `what_would_help`; empty where no device worked."""
    if estimates.device is None:
        return WHAT_WOULD_HELP.empty()
    rows, now = [], estimates.now_ns or 0.0
    shown = whatif.helpful(now, (whatif.scenario(now, change, then) for change, then in estimates.predictions.values()))
    if estimates.now_ns is not None:
        rows.append({"kind": "now", "label": _now_label(estimates), "step_ns": now})
        rows += [
            {"kind": "change", "change": one.name, "label": one.label if one.is_known else f"{one.label} (uncertain)",
             "step_ns": one.step_ns, "low_ns": one.low_ns, "high_ns": one.high_ns, "saves_ratio": one.saves_ratio if one.is_known else None}
            for one in shown
        ]  # fmt: skip
    if estimates.floors is not None:
        cpu, device = estimates.floors
        rows.append({"kind": "device-floor", "label": "no CPU fix goes below", "step_ns": device})
        if cpu >= WORTH_RATIO * now:
            label = f"no GPU fix goes below{unless_below(cpu, shown)}"
            rows.append({"kind": "cpu-floor", "label": label, "step_ns": cpu})
    if estimates.reason is not None:
        what = "no estimate" if estimates.now_ns is None else "no estimate of what the CPU does"
        rows.append({"kind": "refused", "label": f"{what}: {estimates.reason}"})
    rows += [
        {"kind": "refused", "label": f"no estimate of {labels}: {reason}"}
        for reason, labels in whatif.by_reason(estimates.skipped).items()
        if reason != estimates.reason
    ]
    none = dict.fromkeys(WHAT_WOULD_HELP.schema) | {
        "device": estimates.device, "start_ns": estimates.window[0], "end_ns": estimates.window[1]
    }  # fmt: skip
    return pl.DataFrame([none | row for row in rows], schema=WHAT_WOULD_HELP.schema)


ANALYSES = (
    Value("replay_sources", ReplaySources),
    Value("device_replay", device_replay, cost=10),
    Value("standard_estimates", standard_estimates, cost=7),
    Value("estimates", estimates),
    Analysis(WHAT_WOULD_HELP, what_would_help, json="what_would_help", section=WHAT_WOULD_HELP_SECTION),
)
