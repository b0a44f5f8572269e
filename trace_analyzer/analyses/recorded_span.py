"""Measure what the host recorded beside a device's work: before its first activity and after its last.

A device's window reaches from its first activity to its last. What a trace holds beside it (a driver that starts, inputs
that are prepared) belongs to no part of the partition, and may be most of the recording.
"""

import polars as pl

from trace_analyzer.analyses.host import Host
from trace_analyzer.catalog.step_marks import PROFILER_STEP_NAME
from trace_analyzer.tuning import dataclass

Interval = tuple[int, int]

"""A step says nothing of what was done in it."""


@dataclass(frozen=True)
class RecordedSpan:
    """Hold what the threads that launch a device's work recorded, from the first event's start to the last one's end.

    ``device_ns`` is the device's own window in it, or beyond it. ``before`` and ``after`` name the innermost event that fills half
    or more of what was recorded before the device's first work and after its last; None where none does.
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
    """Return what was recorded beside a device's ``window`` by the threads of its ``launches`` (event ids); None without any."""
    threads = host.events.get_column("thread_id")[launches.unique()].unique()
    own = host.events.filter(pl.col("thread_id").is_in(threads.implode()), pl.col("kind") != "overhead")
    if own.is_empty():
        return None
    first, last = own.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    before, after = _filling(own, host, (first, window[0])), _filling(own, host, (window[1], last))
    return RecordedSpan((first, last), window, before, after)


def _filling(events: pl.DataFrame, host: Host, interval: Interval) -> str | None:
    """Return the name of the innermost event that fills half or more of an interval; None where none does."""
    start, end = interval
    inside = pl.min_horizontal("end_ns", pl.lit(end)) - pl.max_horizontal("start_ns", pl.lit(start))
    filling = events.filter(2 * inside >= end - start) if start < end else events.clear()
    steps = host.names.filter(pl.col("name").str.contains(PROFILER_STEP_NAME)).get_column("name_id")
    filling = filling.filter(~pl.col("name_id").is_in(steps.implode()))
    if filling.is_empty():
        return None
    innermost = filling.sort("start_ns", "end_ns", "event_id", descending=[False, True, False]).get_column("event_id")
    return str(host.texts(innermost.tail(1)).cast(pl.String).item())
