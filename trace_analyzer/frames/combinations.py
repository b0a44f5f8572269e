"""Assign numbers to combinations of codes and sum by them, for few rows, where a Polars call takes longer than the work."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer.frames.lookups import factorize

Codes = npt.NDArray[np.int64]
_MOST = 1 << 62


def codes_of(values: pl.Series) -> Codes:
    """Assign numbers to the values by appearance; null is a value."""
    return factorize(values)[0].to_numpy().astype(np.int64)


def combined(columns: Sequence[Codes]) -> Codes:
    """Assign numbers from 0 to the rows' combinations of codes, ordered by the first column, then by the next.

    >>> combined([np.array([7, 0, 7, 7]), np.array([1, 1, 0, 1])]).tolist()
    [2, 0, 1, 2]
    """
    numbers, count = np.zeros(len(columns[0]), np.int64), 1
    for codes in columns:
        width = int(codes.max(initial=0)) + 1
        if count * width > _MOST:
            numbers = np.unique(numbers, return_inverse=True)[1]
            count = len(numbers) + 1
        numbers, count = numbers * width + codes, count * width
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64)


def first_of_each(codes: Codes) -> Codes:
    """Return the first row of each code."""
    return np.unique(codes, return_index=True)[1].astype(np.int64)


def sums_by(codes: Codes, values: Codes, count: int) -> Codes:
    """Return the sum of the values for each code under ``count``."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, codes, values)
    return sums


def greatest_by(codes: Codes, values: Codes, count: int) -> Codes:
    """Return the greatest of the non-negative values for each code under ``count``; 0 where it has none."""
    greatest = np.zeros(count, np.int64)
    np.maximum.at(greatest, codes, values)
    return greatest
