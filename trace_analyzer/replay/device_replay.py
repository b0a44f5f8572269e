"""Replay the judged device during an analysis, or say why this is refused."""

from collections.abc import Mapping, Sequence
from dataclasses import fields

import polars as pl

from trace_analyzer.analysis import Value
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.refusals import refused_replayed, refused_unseen, without_links
from trace_analyzer.report import Check, DeviceReport
from trace_analyzer.tuning import SMALL_EVENTS, dataclass, return_freed_memory
from trace_analyzer.windows import Judged

MAX_EVENTS = 2_000_000
"""Largest number of events for a replay in a report: at five million, it adds 2.1 GB to a peak of 3.1 GB, and 22 s to
41 s of CPU time.

``analyze whatif`` has no limit.
"""


@dataclass(frozen=True)
class DeviceReplay:
    """Hold the replay of the judged device; ``reason`` is why it is missing.

    ``unlinked`` is why changes of CPU work have no predictions. ``outside_ns`` is time of the window outside all steps.
    """

    device: int | None
    window: tuple[int, int] = (0, 0)
    reason: str | None = None
    replay: Replay | None = None
    unlinked: str | None = None
    outside_ns: int = 0

    def trim(self) -> None:
        """Return the memory that a pass over a large replay freed, so that the next one does not add to it."""
        if self.replay is not None and self.replay.graph.recorded.segments.start.size > SMALL_EVENTS:
            return_freed_memory()


@dataclass(frozen=True)
class ReplaySources:
    """Hold the values for a replay, named like their tables; ``device_steps`` are the steps without verdicts."""

    judged: Judged | None
    checks: tuple[Check, ...]
    device_reports: Mapping[int, DeviceReport]
    activities: pl.DataFrame
    backward_links: pl.DataFrame
    launches: pl.DataFrame
    device_steps: pl.DataFrame
    fusions: pl.DataFrame
    tensor_cores: pl.DataFrame
    host_events: pl.DataFrame
    threads: pl.DataFrame
    sync_events: pl.DataFrame
    reported_devices: pl.DataFrame

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Return the tables by name."""
        by_name = {field.name: getattr(self, field.name) for field in fields(self)}
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
    replay = Replay.of(sources, device)
    if (reason := refused_replayed(sources, replay, device, ())) is not None:
        return DeviceReplay(device, window, reason)
    return DeviceReplay(
        device, window, None, replay, without_links(sources, device), _outside_ns(sources.judged, replay)
    )


def _outside_ns(judged: Judged, replay: Replay) -> int:
    """Return the time of the window outside the replayed steps; 0 where the window itself is replayed."""
    if not replay.has_steps:
        return 0
    window_ns = sum(end - start for start, end in judged.window.intervals)
    return max(0, round(window_ns - replay.recorded_step_ns * int(replay.graph.recorded.steps.steady.sum())))


VALUES = (
    Value("replay_sources", ReplaySources),
    Value("device_replay", device_replay, cost=10),
)
