"""Measure how much time or work of a recording a window leaves out, and of what kind."""

from collections.abc import Mapping
from dataclasses import dataclass

from trace_analyzer import thresholds
from trace_analyzer.analyses.recorded_span import RecordedSpan
from trace_analyzer.vocabulary import WORK


@dataclass(frozen=True)
class LeftOut:
    """Hold what a window leaves out: ``time_ns`` of ``total_ns``, of the recorded time or of the device's work.

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
