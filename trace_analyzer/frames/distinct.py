"""Encode rows by their distinct values."""

import numpy as np
import numpy.typing as npt
import polars as pl


def distinct_rows(frame: pl.DataFrame) -> tuple[pl.DataFrame, npt.NDArray[np.int64]]:
    """Return the distinct rows in order of appearance, and for each row the index of its distinct row."""
    grouped = frame.with_row_index("row").group_by(frame.columns, maintain_order=True).agg("row")
    which = np.empty(frame.height, np.int64)
    lengths = grouped.get_column("row").list.len().to_numpy()
    if frame.height:
        which[grouped.get_column("row").explode().to_numpy()] = np.repeat(np.arange(grouped.height), lengths)
    return grouped.drop("row"), which
