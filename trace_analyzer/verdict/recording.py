"""Judge a partition again without the profiler's overhead."""

from collections.abc import Mapping

from trace_analyzer import thresholds as t
from trace_analyzer.analyses.profiler_overhead import ProfilerOverhead
from trace_analyzer.report import Debiased
from trace_analyzer.units import counted, duration
from trace_analyzer.verdict.judge import judge, shares


def debiased(parts_ns: Mapping[str, int], recording: ProfilerOverhead | None, cold_gap_ns: int = 0) -> Debiased | None:
    """Return the partition without the profiler's overhead, and whether its regime stays the same.

    ``survives`` is None where the regime changes with the estimate, but not with its lower bound.
    """
    judgement = judge(parts_ns, cold_gap_ns)
    if recording is None or judgement is None:
        return None
    parts, least = _without(parts_ns, recording.taken_ns), _without(parts_ns, recording.least_ns)
    after, at_least = judge(parts, cold_gap_ns), judge(least, cold_gap_ns)
    same = after is not None and after.regime == judgement.regime
    same_at_least = at_least is not None and at_least.regime == judgement.regime
    return Debiased(
        method=recording.method,
        event_cost_ns={kind: cost for kind, (_, cost) in recording.event_cost_ns.items()},
        events=recording.events,
        least_removed_ns=sum(parts_ns.values()) - sum(least.values()),
        removed_ns=sum(parts_ns.values()) - sum(parts.values()),
        window_ns=sum(parts.values()),
        shares=shares(parts),
        parts_ns=parts,
        regime=None if after is None else after.regime,
        cause=None if after is None else after.cause,
        survives=True if same else None if same_at_least else False,
        why=_recording_why(recording, sum(parts_ns.values())),
    )


_EVENT_NAMES = {"operator": "operator", "python": "Python frame", "runtime": "runtime call"}


def _recording_why(recording: ProfilerOverhead, window_ns: int) -> str:
    """Write what recording cost, and how that is known."""
    if recording.method == "measured":
        estimate = (
            f"a step takes {duration(recording.measured_step_ns)} without the profiler,"
            f" {duration(recording.step_ns)} with it"
        )
        beyond = recording.rest_ns > t.WORTH_RATIO * window_ns
        return (
            f"{estimate}; {duration(recording.rest_ns)} of that is not idle time caused by the CPU"
            if beyond
            else estimate
        )
    # A clock of whole microseconds measures the fastest events as 0.
    known = {kind: costs for kind, costs in recording.event_cost_ns.items() if costs[1] > 0}
    recorded = f"{counted(recording.events or 0, 'event was', 'events were')} recorded before late launches"
    if not known:
        return f"{recorded}, each in less than the trace's clock resolves"
    each = ", ".join(
        f"{f'{duration(least)} to ' if 0 < least < cost else 'up to '}{duration(cost)} per {_EVENT_NAMES[kind]}"
        for kind, (least, cost) in known.items()
    )
    calls = "; runtime calls by the cost of those that only query state" if "runtime" in known else ""
    return f"{recorded}, at {each} (from the distances between such events in this trace{calls})"


def _without(parts_ns: Mapping[str, int], taken_ns: Mapping[str, int]) -> dict[str, int]:
    """Subtract time from parts, and remove the profiler's own part."""
    taken = {"profiler": parts_ns.get("profiler", 0), **taken_ns}
    return {part: ns - min(ns, taken.get(part, 0)) for part, ns in parts_ns.items()}
