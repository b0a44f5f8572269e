"""Find the module call around a place in the program."""

import polars as pl

from trace_analyzer.frames.intervals import innermost, lookup_at


def with_module_event(place_table: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    """Add ``module_event``: the innermost module call around each place."""
    segments = innermost(frames, ["thread_id"], "event_id").rename({"event_id": "module_event"})
    return lookup_at(place_table, "time_ns", segments, ["thread_id"], ["module_event"])
