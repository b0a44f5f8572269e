"""Declare the frames of a rank's summary, and the frames that join summaries."""

from collections.abc import Mapping

import polars as pl

STEPS: Mapping[str, pl.DataType] = {
    "step": pl.Int64(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "is_steady": pl.Boolean(),
    "regime": pl.String(),
}
"""Steps of the judged device, in order; times count from the start of the trace."""
PARTS: Mapping[str, pl.DataType] = {"step": pl.Int64(), "part": pl.String(), "total_ns": pl.Int64()}
"""Time of each part of the partition in each steady step; ``step`` is null where the trace has no steps."""
COLLECTIVES: Mapping[str, pl.DataType] = {
    "group": pl.String(),
    "seq": pl.Int64(),
    "comms_id": pl.String(),
    "step": pl.Int64(),
    "ordinal": pl.Int64(),
    "kind": pl.String(),
    "dtype": pl.String(),
    "elements": pl.Int64(),
    "group_size": pl.Int64(),
    "source": pl.Int64(),
    "destination": pl.Int64(),
    "start_ns": pl.Int64(),
    "duration_ns": pl.Int64(),
    "exposed_ns": pl.Int64(),
}
"""Communication kernels of the judged device, in order of start.

``ordinal`` counts those of one process group in one step (or of all groups where the group is not recorded), in order
of launch; ``group`` is the key of a `RankGroup`.
"""
EXPOSED: Mapping[str, pl.DataType] = {
    "row": pl.UInt32(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "exposed_ns": pl.Int64(),
}
"""Intervals of a collective (``row``) without other work, relative to its start; ``exposed_ns`` is less than the
length where a piece merges several. Collectives that are entirely exposed, or not at all, have no row."""

WORK: Mapping[str, pl.DataType] = {
    "kind": pl.String(),
    "category": pl.String(),
    "operator": pl.String(),
    "count": pl.Float64(),
    "step_ns": pl.Float64(),
}
"""Work of a rank per step, by operator and bucket."""

JOINED: Mapping[str, pl.DataType] = {"rank": pl.Int64(), "row": pl.UInt32(), **COLLECTIVES}
"""Collectives of all ranks; ``start_ns`` counts from the job's origin, on the clock of the rank's host."""

SYNCHRONIZING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Collectives that no rank can leave before the last one arrives: they have waits, and allow aligning clocks."""


ROWS: Mapping[str, pl.DataType] = {
    "rank": pl.Int32(),
    "row": pl.UInt32(),
    "step": pl.Int64(),
    "kind": pl.UInt8(),
    "is_split": pl.Boolean(),
    "by": pl.UInt8(),
    "key": pl.UInt64(),
    "signature": pl.UInt64(),
    "of": pl.UInt64(),
    "group_size": pl.Int32(),
    "start_ns": pl.Int64(),
    "duration_ns": pl.Int64(),
    "exposed_ns": pl.Int64(),
}
"""Collectives for matching and reduction, in order of rank and start.

``key`` is a hash that is equal for the rows of one collective, null where unknown; ``by`` is the index in
`matching.WAYS` of how the key was formed; ``of`` is the hash of the process group; ``kind`` is an index into the job's
kinds; ``is_split`` marks kinds that no rank can leave before the last one arrives.
"""
