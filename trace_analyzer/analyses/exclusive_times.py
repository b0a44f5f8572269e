"""Assign each busy instant of a device to one activity, so that exclusive times sum to its busy time.

Durations sum to more where activities overlap: on several streams, or on one stream where a dependent launch starts in
the tail of the previous kernel. An instant belongs to the first of the activities in progress by the order of the
partition (`partition.WORK`), then by start, then by row. The exclusive times of a bound therefore also sum to that part
of the partition.
"""

import polars as pl

from trace_analyzer.analysis import Value
from trace_analyzer.frames.intervals import sort_spans, union, with_covered
from trace_analyzer.frames.lookups import over_group, scatter
from trace_analyzer.vocabulary import WORK

_DEVICE = ["device"]


def exclusive_times(activities: pl.DataFrame) -> pl.Series:
    """Return exclusive_ns: the time assigned to each activity; ``activities`` are in order of activity_id."""
    spans = activities.select(
        "activity_id", "device", "start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"), "bound"
    )
    before = spans.clear().select(*_DEVICE, "start_ns", "end_ns")
    ids, times = [], []
    for bound in WORK:
        own = sort_spans(spans.filter(pl.col("bound") == bound), _DEVICE)
        # The first activity occupies the device until it ends: of a later one, only the time after that remains.
        reached = over_group(own, "device", pl.col("end_ns").cum_max().shift(1)).alias("reached_ns")
        since = pl.max_horizontal("start_ns", pl.col("reached_ns").fill_null(pl.col("start_ns")))
        left = own.with_columns(reached).with_columns(pl.min_horizontal(since, "end_ns").alias("start_ns"))
        hidden = with_covered(left, before, _DEVICE, "hidden_ns")
        length = pl.col("end_ns") - pl.col("start_ns") - pl.col("hidden_ns")
        ids.append(hidden.get_column("activity_id"))
        times.append(hidden.select(length.alias("exclusive_ns")).to_series())
        before = union(pl.concat([before, own.select(before.columns)]), _DEVICE)
    return scatter(pl.concat(ids), pl.concat(times), activities.height).fill_null(0).alias("exclusive_ns")


ANALYSES = (Value("exclusive_times", exclusive_times),)
