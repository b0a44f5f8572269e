"""Measure the host's recorded time before a device's first activity and after its last.

A device's window lasts from its first activity to its last. The rest of a trace (driver initialization, preparation of
inputs) belongs to no part of the partition, but may be most of the recording.
"""

from dataclasses import dataclass

import polars as pl

from trace_analyzer.analyses.host import Host
from trace_analyzer.catalog.event_names import PROFILER_STEP_NAME

Interval = tuple[int, int]

"""Names of steps, which do not describe their content, so that they cannot name an interval."""


@dataclass(frozen=True)
class RecordedSpan:
    """Hold the recorded time of the threads that launch a device's work: from their first event to their last.

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
