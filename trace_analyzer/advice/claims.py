"""Say which advice is about time that advice above it counts already: both save it once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.advice.opportunity import length_ns, total
from trace_analyzer.frames.intervals import clip, union
from trace_analyzer.report import Advice
from trace_analyzer.units import percent

_ALL = 0.995
"""Gaps of nanoseconds between kernels are no difference."""


def with_claims(ranked: Sequence[Advice], members: Mapping[str, pl.DataFrame]) -> tuple[Advice, ...]:
    """Return the advice, each with the one above it that counts most of its time too, where that is a share worth a word.

    ``members`` are the intervals of the device that each is about, by fix: device, start_ns, end_ns. The first of two, which saves
    more, carries the time that they share.
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
