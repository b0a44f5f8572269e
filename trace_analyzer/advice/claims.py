"""Find advice about time that earlier advice already counts: such time can be saved only once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.advice.opportunity import length_ns, total
from trace_analyzer.frames.intervals import clip, union
from trace_analyzer.report import Advice
from trace_analyzer.units import percent

_ALL = 0.995
"""Least share of its time at which advice counts as entirely shared, to ignore gaps of nanoseconds between kernels."""


def with_claims(ranked: Sequence[Advice], members: Mapping[str, pl.DataFrame]) -> tuple[Advice, ...]:
    """Return the advice; each piece refers to an earlier one that already counts a large share of its time.

    ``members`` are the intervals of the device that each fix concerns: device, start_ns, end_ns. Of two fixes, the
    first, which saves more, counts the shared time.
    """
    spans = {item.id: union(members[item.id], ["device"]) for item in ranked if item.id in members}
    return tuple(_claimed(item, ranked[:place], spans) for place, item in enumerate(ranked))


def _claimed(item: Advice, above: Sequence[Advice], spans: Mapping[str, pl.DataFrame]) -> Advice:
    own = spans.get(item.id)
    if own is None or not (length := total(own, length_ns())):
        return item
    shared = [(_shared_ns(own, spans[other.id]) / length, other) for other in above if other.id in spans]
    ratio, first = max(shared, key=lambda pair: pair[0], default=(0.0, item))
    if ratio < thresholds.SHARED_RATIO:
        return item
    share = "all" if ratio > _ALL else percent(ratio)
    why = f"{item.why}; “{first.title}” already counts {share} of this time, which can be saved only once"
    return replace(item, why=why, shared_with=first.id, shared_ratio=ratio)


def _shared_ns(own: pl.DataFrame, other: pl.DataFrame) -> int:
    return total(clip(own, other, ["device"]), length_ns())
