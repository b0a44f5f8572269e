"""Refuse traces that a replay cannot explain, with a reason for people."""

import numpy as np
import polars as pl

from trace_analyzer.catalog.event_names import CALLS
from trace_analyzer.frames.lookups import as_strings, factorize
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.host_edges import CLOCK_NS, last_of_thread
from trace_analyzer.replay.outcomes import MAX_UNEXPLAINED
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.recording import SYNC_DEVICE, SYNC_STREAM, Analysed, Recording, is_any
from trace_analyzer.units import percent

MIN_ACTIVITIES, MIN_STEPS = 50, 3
"""Least activities of a usable recording, and least steady steps of one with fewer: what repeats is no accident."""
MAX_ERROR = 0.05
"""Largest error of the replayed step: beyond it, the replay does not model the program."""
MIN_LINKED = 0.9
"""Least share of the measured device time that is linked to launches: with less, changes of CPU work cannot be followed to
the device."""
_WAITS = r"(?i)Event|Synchronize|Finish"
_CAPTURE = r"(?i)StreamBeginCapture|StreamEndCapture|GraphInstantiate"


def refusal(report: Analysed, replay: Replay, device: int, changes: tuple[Change, ...]) -> str | None:
    """Return why a trace cannot be replayed, for people; None where it can."""
    reasons = (refused_unseen(report, device), *(barred(report, replay.graph.recorded, change) for change in changes))
    return next(filter(None, reasons), None) or refused_replayed(replay)


def refused_replayed(replay: Replay) -> str | None:
    """Return why a trace that `refused_unseen` accepts cannot be replayed, for people; None where it can."""
    if replay.misses_measured:
        return "the step without the profiler is shorter than this CPU explains: recording slows others, such as peers, too"
    reason = unexplained(replay)
    if reason is not None and not replay.scene.communicates:
        return f"{reason}: {_why_unexplained(replay)}"
    if abs(replay.identity_ratio) > MAX_ERROR:
        return f"the replay misses the recorded step by {replay.identity_ratio:+.0%}"
    return None


def unexplained(replay: Replay) -> str | None:
    """Return why changes of the CPU's work cannot be estimated where too little of the path is explained; else None."""
    ratio = replay.summary.unexplained_ratio
    return f"nothing in the trace explains {percent(ratio)} of the critical path" if ratio > MAX_UNEXPLAINED else None


def _why_unexplained(replay: Replay) -> str:
    """Return why time may be unexplained: the clocks, where most waits return while their thread's last launch still runs."""
    activities, calls = replay.graph.recorded.activities, replay.graph.recorded.calls
    waits = np.flatnonzero(is_any(calls.kind, (SYNC_DEVICE, SYNC_STREAM)))
    last = last_of_thread(activities, calls, waits)
    until, last = calls.end[waits[last >= 0]], last[last >= 0]
    runs = (activities.start[last] < until) & (activities.end[last] > until + CLOCK_NS)
    if 2 * runs.sum() <= waits.size:
        return "events may be missing, as those of work that was launched before the recording"
    return "waits return before the work ends that was launched before them: the clocks of host and device may disagree"


def refused_unseen(report: Analysed, device: int) -> str | None:
    """Return the reason why a trace is not replayed (too little work, captures, failed checks), else None."""
    few = too_few(report, device)
    own = report.tables["activities"].filter(pl.col("device") == device)
    if few is not None and not own.get_column("kind").eq("memcpy").any():
        return few
    events = report.tables["host_events"]
    names = as_strings(events.select("kind", "name")[factorize(*events.select("kind", "name"))[1]])
    calls = names.filter(pl.col("kind").is_in(CALLS))
    captured = calls.filter(pl.col("name").str.contains(_CAPTURE)).sort("name")
    if captured.height:
        return f"the program captures CUDA graphs ({captured.item(0, 'name')}): what runs then does not run again"
    if _calls_removed(report, device, calls):
        return (
            "waits were removed from the file: it has collectives, but no call that records an event, awaits one, or synchronizes,"
            " and no launch arrows"
        )
    label = report.tables["devices"].filter(pl.col("device") == device).item(0, "label")
    failed = next(
        (c for c in report.trust if c.status == "fail" and (c.device is None or str(c.device) == label)), None
    )
    return None if failed is None else f"the check {failed.name} fails: {failed.meaning}"


def _calls_removed(report: Analysed, device: int, calls: pl.DataFrame) -> bool:
    """Return whether waiting calls were removed: PyTorch orders each collective with events, which Kineto records.

    Without these calls, a thread that waits for the device looks busy, and limits the step from below.
    """
    edited = any(check.name == "launch_arrows" and check.status == "warn" for check in report.trust)
    activities = report.tables["activities"].filter(pl.col("device") == device)
    communicates = activities.get_column("group").eq("communication").any()
    return edited and communicates and not calls.get_column("name").str.contains(_WAITS).any()


def barred(report: Analysed, recorded: Recording, change: Change) -> str | None:
    """Return why a change alone cannot be estimated: too little work, unless it is for copies, or unknown launches."""
    for_copies = change.name in ("pinned", "overlap-copies") or "copies" in str(change.options.get("target"))
    few = None if for_copies else too_few(report, recorded.device)
    return few or (without_links(recorded) if change.needs_links else None)


def too_few(report: Analysed, device: int) -> str | None:
    """Return why changes of other work than copies have no estimate; None where there is enough of it."""
    count = int((report.tables["activities"].get_column("device") == device).sum())
    if count >= MIN_ACTIVITIES or report.tables["steps"].filter("steady", device=device).height >= MIN_STEPS:
        return None
    return f"{count} activities on the device are too few to replay: at least {MIN_ACTIVITIES} are needed, or fewer that repeat {MIN_STEPS} times"


def without_links(recorded: Recording) -> str | None:
    """Return why changes of the CPU's work cannot be followed; None where enough launches of the measured time are known.

    Steady steps are measured, else the window. Work from before the recording precedes all steps: it stays as recorded.
    """
    activities, steps = recorded.activities, recorded.steps
    own = activities.device == recorded.device
    if steps.steady.any():
        own &= np.append(steps.steady, False)[activities.step]
    taken, is_linked = activities.end - activities.start, activities.call >= 0
    total, unknown = (int(taken[rows].sum()) for rows in (own, own & ~is_linked))
    if unknown <= (1 - MIN_LINKED) * total:
        return None
    first = int((is_linked & (activities.device == recorded.device)).argmax())  # the first: they are in order of start
    before = int(taken[:first][own[:first]].sum())
    if 2 * before > unknown:
        return (
            f"{percent(unknown / total)} of the device's time was launched before the recording: for changes of the CPU's work, record"
            " three steps or more, or synchronize before it begins"
        )
    return f"the launches of {percent(unknown / total)} of the device's time are not known: changes of the CPU's work cannot be followed"
