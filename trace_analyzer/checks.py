"""Check the data that a trace's metrics rest on, and hide what it does not support: rows and causes in tables, figures of devices and steps.

Checks read the unmasked tables. Everything else reads the masked ones.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
from msgspec.structs import replace

from trace_analyzer import analysis, errors, thresholds as t, vocabulary, windows
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.report import (
    Check,
    CheckStatus,
    DeviceReport,
    LaunchLead,
    RunAhead,
    StepReport,
    TimeWeighted,
    Withheld,
)
from trace_analyzer.units import count, duration, percent

# Notes of the reader about lost or unreadable events.
_LOST = (*errors.DAMAGED, "no-time", "implausible-time", "negative-duration", "unmatched")


class _Rule(NamedTuple):
    """Define the check of one figure: its limits for warning and failing, and the metrics that a failure suppresses.

    ``good`` is true where high values are good. ``meaning`` is the sentence for people.
    """

    name: str
    meaning: str
    warn: float | None = None
    fail: float | None = None
    good: bool = False
    withholds: tuple[str, ...] = ()

    def check(self, value: float | None, device: int | str | None) -> Check:
        """Return the check of a value; null passes, as there is nothing to check."""
        status: CheckStatus = "ok"
        if value is not None:
            if self.fail is not None and self._beyond(value, self.fail):
                status = "fail"
            elif self.warn is not None and self._beyond(value, self.warn):
                status = "warn"
        withholds = self.withholds if status == "fail" else ()
        return Check(self.name, device, status, value, "ratio", self.meaning, withholds)

    def _beyond(self, value: float, limit: float) -> bool:
        return value < limit if self.good else value > limit


_LINKS = "link_coverage"


def _rules_of_devices() -> tuple[_Rule, ...]:
    """Return the rules of each device, with the current thresholds."""
    return (
        _Rule(
            _LINKS,
            "share of device time whose launch is known: run-ahead and causes of idle time cover only that work; gaps that end with"
            " other work have no cause",
            t.GOOD_COVERAGE, t.POOR_COVERAGE, good=True, withholds=(analysis.RUN_AHEAD,),
        ),
        _Rule(
            "unlinked_before",
            "share of device time that was launched before the recording began: gaps before it cannot be explained",
            t.BEFORE_WARN_RATIO,
        ),
        _Rule(
            "stream_overlap",
            "share of device time in which earlier work of the same stream still ran (dependent launches aside): a little is normal,"
            " much means wrong times",
            t.OVERLAP_WARN_RATIO, t.OVERLAP_FAIL_RATIO, withholds=analysis.KERNEL_TIMES,
        ),
        _Rule(
            "started_before_launch",
            "share of activities that start before their launch: the clocks of host and device disagree",
            t.EARLY_WARN_RATIO, t.EARLY_FAIL_RATIO, withholds=(analysis.RUN_AHEAD,),
        ),
        _Rule(
            "ended_after_wait",
            "share of waiting calls that return before the work that they wait for ends: the device's clock is ahead of the host's",
            t.EARLY_WARN_RATIO, t.EARLY_FAIL_RATIO, withholds=(analysis.RUN_AHEAD,),
        ),
        _Rule(
            "late_starts",
            "share of idle time in which launched work waited for nothing recorded, in a trace where no work starts within 100 us of its"
            " launch: the device's clock may be ahead of the host's",
            t.LATE_WARN_RATIO, t.LATE_FAIL_RATIO, withholds=(analysis.RUN_AHEAD, analysis.CAUSES_OF_IDLE),
        ),
        _Rule(
            "skewed_idle",
            "share of idle time within the disagreement of the clocks of host and device: it may have another cause",
            t.SKEWED_WARN_RATIO, t.SKEWED_FAIL_RATIO, withholds=(analysis.CAUSES_OF_IDLE,),
        ),
        _Rule(
            "impossible_durations",
            "share of device time in activities whose recorded duration cannot be: each ends where its stream's next work begins",
            t.IMPOSSIBLE_WARN_RATIO, t.IMPOSSIBLE_FAIL_RATIO, withholds=analysis.ALL_METRICS,
        ),
        _Rule(
            "short_durations",
            "share of activities shorter than 100 ns, which no device work is: durations are missing or corrupt",
            t.SHORT_WARN_RATIO, t.SHORT_FAIL_RATIO, withholds=analysis.ALL_METRICS,
        ),
        _Rule(
            "few_long_activities",
            "share of device time in the five longest activities, without collectives: look at them first",
            t.FEW_WARN_RATIO,
        ),
        _Rule(
            "untraced",
            "share of idle time in recording pauses or between spliced recordings, where nothing is known",
            t.UNTRACED_WARN_RATIO, t.UNTRACED_FAIL_RATIO, withholds=(analysis.BUSY_RATIO, *analysis.UTILIZATION),
        ),
        _Rule(
            "unrecorded_host_time",
            "share of idle time in which the host was late and recorded no event: stacks or annotations would name it",
            t.UNKNOWN_DOUBT_RATIO,
        ),
        _Rule(
            "dependent_launches",
            "share of device time in which a kernel overlapped the tail of the one before it by design (programmatic dependent launch)",
        ),
        _Rule("graph_share", "share of device time that graph launches enqueued: one launch runs many kernels"),
    )  # fmt: skip


def _missing_rule() -> _Rule:
    return _Rule(
        "missing_activities",
        "share of launch calls (or of graph launches, if larger) without recorded work: the device may have been busier",
        t.MISSING_WARN_RATIO, t.MISSING_FAIL_RATIO, withholds=analysis.ALL_METRICS,
    )  # fmt: skip


def checks(
    devices: Mapping[int, int | str],
    figures: pl.DataFrame,
    notes: Sequence[errors.Note],
    *,
    event_count: int,
    missing_ratio: float | None,
    launch_arrows: int | None,
) -> tuple[Check, ...]:
    """Return all checks: those of the whole file first, and failures before warnings.

    ``devices`` are codes with the ids of the report, ``figures`` come from `analyses.consistency.device_figures`, ``launch_arrows`` is
    null where nothing was launched.
    """
    results = [_lost(notes, event_count), _missing_rule().check(missing_ratio, None), _arrows(launch_arrows)]
    rows = {row["device"]: row for row in figures.to_dicts()}
    for code, index in devices.items():
        results += [rule.check(rows[code][f"{rule.name}_ratio"], index) for rule in _rules_of_devices()]
    return tuple(sorted(results, key=lambda check: ("fail", "warn", "ok").index(check.status)))


def clock_notes(devices: Mapping[int, int | str], figures: pl.DataFrame) -> Iterator[errors.Note]:
    """Note each device whose clock differs from the host's, with the estimated offset; ``figures`` as in `checks`."""
    for row in figures.to_dicts():
        early, late, doubt = (
            (row[f"{name}_ratio"] or 0) > limit
            for name, limit in (
                ("started_before_launch", t.EARLY_WARN_RATIO),
                ("ended_after_wait", t.EARLY_WARN_RATIO),
                ("late_starts", t.LATE_WARN_RATIO),
            )
        )
        if row["device"] in devices and (early or late or doubt):
            message = _offset(row["ahead_least_ns"] if late or early else None, row["ahead_most_ns"], early)
            yield errors.Note("clock-offset", "warning", f"device {devices[row['device']]}: {message}")


def _offset(least: int | None, most: int, is_behind: bool) -> str:
    """Format the bounds of the offset between a device's clock and the host's."""
    if least is not None and least > most:
        return (
            "its clock has no constant offset from the host's: waits show that it is ahead by"
            f" {_signed(least)} or more, launches by {_signed(most)} or less"
        )
    if is_behind and most < 0:
        range_ = f"{duration(-most)} or more" if least is None else f"about {duration(-most)} to {duration(-least)}"
        return f"its clock is behind the host's by {range_}, as launches{'' if least is None else ' and waits'} show"
    if least is None:
        return (
            f"its clock may be ahead of the host's, by {duration(most)} or less: no work starts sooner after its launch"
        )
    return (
        f"its clock is ahead of the host's by about {duration(least)} to {duration(most)}, as waits and launches show"
    )


def _signed(ns: int) -> str:
    return f"-{duration(-ns)}" if ns < 0 else duration(ns)


def lost_count(notes: Iterable[errors.Note]) -> int:
    """Return how many events the reader left out: a lower bound where a damaged file lost an unknown number."""
    return sum(note.count for note in notes if note.code in _LOST)


def is_lossy(notes: Iterable[errors.Note], event_count: int) -> bool:
    """Return whether so many events were left out that no figure of a device holds."""
    return lost_count(notes) > t.LOST_FAIL_RATIO * event_count


def _lost(notes: Sequence[errors.Note], event_count: int) -> Check:
    """Check the share of events that the reader left out; null where a damaged file lost an unknown number."""
    missing = lost_count(notes)
    fails = is_lossy(notes, event_count)
    status: CheckStatus = "fail" if fails else "warn" if missing else "ok"
    return Check(
        "lost_events",
        None,
        status,
        None if errors.is_damaged(notes) else missing,
        "events",
        "events that are missing after the end of a truncated file, are unreadable or have an impossible time",
        analysis.ALL_METRICS if fails else (),
    )


def _arrows(launch_arrows: int | None) -> Check:
    """Check for launch arrows: Kineto writes one per launch; a file with launches and no arrows was edited."""
    return Check(
        "launch_arrows",
        None,
        "warn" if launch_arrows == 0 else "ok",
        launch_arrows,
        "arrows",
        "arrows from launches to activities: a file with launches and no arrows was edited, and other events may be missing",
        (),
    )


def of_device(checked: Sequence[Check], device: int | str | None) -> Iterator[Check]:
    """Return the checks of one device and of the whole file."""
    return (check for check in checked if check.device is None or check.device == device)


_DOUBTFUL = ("missing_activities", "impossible_durations")
"""Checks whose warning lowers the confidence: so much device time is unknown."""


def doubted_reasons(checked: Sequence[Check], device: int | str) -> tuple[str, ...]:
    """Return why a device's checks lower the confidence, except link coverage, which the verdict states itself."""
    return tuple(
        reason(check)
        for check in of_device(checked, device)
        if (check.status == "fail" or (check.status == "warn" and check.name in _DOUBTFUL)) and check.name != _LINKS
    )


def suppressed_metrics(checked: Sequence[Check], device: int | str) -> tuple[Withheld, ...]:
    """Return the suppressed metrics of a device, each once, with the first check that fails."""
    reasons = {metric: check for check in reversed([*of_device(checked, device)]) for metric in check.withholds}
    return tuple(
        Withheld(metric, reasons[metric].name, reason(reasons[metric]))
        for metric in analysis.ALL_METRICS
        if metric in reasons
    )


def reason(check: Check) -> str:
    """Format a check as its value and meaning: ``link coverage 25 %: share of ...``."""
    value = None if check.value is None else percent(check.value) if check.unit == "ratio" else count(check.value)
    name = vocabulary.check_label(check.name)
    return f"{name if value is None else f'{name} {value}'}: {check.meaning}"


def withholding_devices(checked: Sequence[Check], metric: str) -> frozenset[int | str | None]:
    """Return the devices for which a failed check suppresses a metric; None among them means all devices."""
    return frozenset(check.device for check in checked if metric in check.withholds)


def trace_checks(
    trace: Trace,
    reported_devices: pl.DataFrame,
    device_figures: pl.DataFrame,
    missing_activities_ratio: float | None,
    unmasked_launches: pl.DataFrame,
) -> tuple[Check, ...]:
    """Return all checks of a trace."""
    arrows = int(trace.flows.select(((pl.col("kind") == "launch") & pl.col("is_start")).sum()).item())
    return checks(
        windows.device_ids(reported_devices),
        device_figures,
        trace.notes,
        event_count=trace.event_count,
        missing_ratio=missing_activities_ratio,
        launch_arrows=arrows if unmasked_launches.height and trace.header.profiler is None else None,
    )


NO_RUN_AHEAD = RunAhead(
    None, LaunchLead(None, None, None), TimeWeighted(None, None, None), TimeWeighted(None, None, None), None
)


def suppressed(checks: Sequence[Check], devices: pl.DataFrame) -> Mapping[str, tuple[int, ...]]:
    """Return the codes of the devices for which a failed check suppresses each metric."""
    ids = windows.device_ids(devices)
    where = {metric: withholding_devices(checks, metric) for metric in analysis.ALL_METRICS}
    return {
        metric: tuple(code for code in ids if None in hidden or ids[code] in hidden) for metric, hidden in where.items()
    }


def masked(declarations: Iterable[analysis.Declaration]) -> Iterator[analysis.Node]:
    """Return the nodes of declared analyses and values; one that needs metrics is made unmasked first, then masked."""
    for declared in declarations:
        made = f"unmasked_{declared.name}" if declared.needs else declared.name
        yield analysis.Node(made, declared.make, declared.takes, declared.cost)
        if declared.needs:
            yield analysis.Node(declared.name, _masking(declared), {"value": made})


def _masking(declared: analysis.Declaration) -> Callable[[Any, Mapping[str, tuple[int, ...]]], Any]:
    def mask(value: Any, suppressed: Mapping[str, tuple[int, ...]]) -> Any:
        devices = sorted({code for metric in declared.needs for code in suppressed[metric]})
        return declared.hide(value, devices) if devices else value

    return mask


def suppress_metrics(report: DeviceReport, checks: Sequence[Check]) -> DeviceReport:
    """Return the report with unsupported metrics removed: null, or an empty list.

    The tables that the report aggregates already hide unsupported causes of idle time.
    """
    hidden = suppressed_metrics(checks, report.index)
    metrics = {item.metric for item in hidden}
    without: dict[str, Any] = {"partition_ns": {}, "run_ahead": NO_RUN_AHEAD, "mfu_at_most": None}
    without |= dict.fromkeys((*analysis.KERNEL_TIMES, "copies"), ())
    without |= dict.fromkeys((analysis.BUSY_RATIO, *analysis.UTILIZATION, "communication"))
    of_metric = {"partition_ns": analysis.PARTITION, "mfu_at_most": "mfu"}
    changed = {name: value for name, value in without.items() if of_metric.get(name, name) in metrics}
    return replace(report, **changed, withheld=hidden)


def suppress_step_metrics(steps: Sequence[StepReport], checks: Sequence[Check]) -> tuple[StepReport, ...]:
    """Return the steps without the metrics that a failed check of their device suppresses."""
    hidden = withholding_devices(checks, "mfu")
    return tuple(
        replace(step, mfu=None, mfu_at_most=None) if None in hidden or step.device in hidden else step for step in steps
    )


VALUES = (analysis.Value("checks", trace_checks), analysis.Value("suppressed", suppressed))
