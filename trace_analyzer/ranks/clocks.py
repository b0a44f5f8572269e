"""Align the clocks of hosts by collectives, which end at the same time on all ranks."""

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]

PER_STEP, MOST = 200, 2_000
"""Most collectives per step, and in total, for aligning clocks: those shared by most clocks."""
MOST_ENDS, _LEAST_MATCHES = 400_000, 100
"""Most ends of collectives for aligning clocks, and least collectives: with many clocks, fewer collectives are
enough."""
_ROUNDS = 50
_CONVERGED_NS = 0.5
_LEAST_FOR_DRIFT = 8
"""Least collectives of a clock for computing its drift."""
_DRIFT_ERRORS = 4.0
"""Least drift, in standard errors of the difference between the medians of the recording's two halves."""
_MAD = 1.4826
"""Ratio of a normal distribution's standard deviation to its median absolute deviation."""


@dataclass(frozen=True)
class Fit:
    """Hold offsets and drifts of clocks relative to the first clock of their component, at its time ``origin_ns``.

    ``component`` numbers sets of clocks that share collectives; -1 for clocks that share none.
    """

    offset_ns: Floats
    drift: Floats
    component: npt.NDArray[np.int64]
    origin_ns: int


def fit_clocks(ends: pl.DataFrame, clocks: int, origin_ns: int) -> Fit:
    """Align clocks by ``ends``: match, step, clock, end_ns, one row per match and clock; offsets hold at ``origin_ns``.

    Model: end = common + offset + drift * (common - origin), solved by median polish (Tukey 1977), with the slope
    between the medians of the recording's two halves.
    """
    if clocks == 1:
        return Fit(np.zeros(1), np.zeros(1), np.zeros(1, dtype=np.int64), origin_ns)
    chosen = _chosen(ends, max(_LEAST_MATCHES, min(MOST, MOST_ENDS // max(1, clocks))))
    rows = chosen.get_column("match").rank("dense").cast(pl.Int64).to_numpy() - 1
    matrix = np.full((int(rows.max()) + 1 if len(rows) else 0, clocks), np.nan)
    matrix[rows, chosen.get_column("clock").to_numpy()] = (
        (chosen.get_column("end_ns") - origin_ns).cast(pl.Float64).to_numpy()
    )
    offset, component = _start(matrix)
    drift = np.zeros(clocks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the nanmedian of a clock without collectives is NaN
        for _ in range(_ROUNDS if len(matrix) else 0):
            common = np.nanmedian((matrix - offset) / (1 + drift), axis=1)
            new_offset, new_drift = _lines(matrix - common[:, None], common, component)
            change = np.nanmax(np.abs(new_offset - offset) + np.abs(new_drift - drift) * np.ptp(common))
            offset, drift = new_offset, new_drift
            if change < _CONVERGED_NS:
                break
    return Fit(offset, drift, component, origin_ns)


def aligned(rows: pl.DataFrame, fit: Fit, time: str = "end_ns") -> pl.Expr:
    """Return column ``time`` of rows with a ``clock``, converted to the common clock, in ns."""
    offset = pl.lit(pl.Series(fit.offset_ns).gather(rows.get_column("clock")))
    drift = pl.lit(pl.Series(fit.drift).gather(rows.get_column("clock")))
    since = (pl.col(time) - fit.origin_ns).cast(pl.Float64)
    return ((since - offset) / (1 + drift)).round().cast(pl.Int64) + fit.origin_ns


def _chosen(ends: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return the rows of at most ``most`` matches: those shared by most clocks, some from each step."""
    shared = (
        ends.group_by("match")
        .agg(pl.len().alias("clocks"), pl.col("step").first(), pl.col("end_ns").min())
        .filter(pl.col("clocks") > 1)
        .sort("clocks", "end_ns", "match", descending=[True, False, False])
    )
    kept = shared.filter(pl.int_range(pl.len()).over("step") < PER_STEP).sort("end_ns")
    every = -(-kept.height // most) if kept.height else 1
    return ends.join(kept.gather_every(every).select("match"), on="match", how="semi")


def _start(matrix: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return initial offsets, propagated over shared collectives, and the component of each clock."""
    known = ~np.isnan(matrix)
    offset = np.zeros(matrix.shape[1])
    component = np.full(matrix.shape[1], -1)
    number = 0
    for first in range(matrix.shape[1]):
        if component[first] >= 0 or not known[:, first].any():
            continue
        component[first] = number
        while True:
            inside = component == number
            shared = known[:, inside].any(axis=1)
            new = known[shared].any(axis=0) & ~inside
            if not new.any():
                break
            common = np.nanmedian((matrix - offset)[shared][:, inside], axis=1)
            offset[new] = np.nanmedian(matrix[shared][:, new] - common[:, None], axis=0)
            component[new] = number
        number += 1
    if not number and len(component):
        component[0] = 0  # the reference, even if no other clock shares a collective with it
    return offset, component


def _lines(residuals: Floats, common: Floats, component: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return offset and drift of each clock from its residuals; 0 for the first clock of a component."""
    is_late = common > np.median(common)
    times = np.where(np.isnan(residuals), np.nan, common[:, None])
    early_ns, late_ns = (np.nanmedian(residuals[half], axis=0) for half in (~is_late, is_late))
    early_at, late_at = (np.nanmedian(times[half], axis=0) for half in (~is_late, is_late))
    count = np.sum(~np.isnan(residuals), axis=0)
    drift = np.nan_to_num((late_ns - early_ns) / (late_at - early_at), posinf=0, neginf=0)
    rest = residuals - drift * common[:, None]
    centre = np.nanmedian(rest, axis=0)
    spread = _MAD * np.nanmedian(np.abs(rest - centre), axis=0)
    # The median of n values has a standard error of 1.25 standard deviations over sqrt(n); each half has n / 2.
    error = 1.2533 * spread * 2 / np.sqrt(np.maximum(count, 1))
    is_significant = (count >= _LEAST_FOR_DRIFT) & (np.abs(late_ns - early_ns) > _DRIFT_ERRORS * error)
    drift = np.where(is_significant, drift, 0.0)
    offset = np.nan_to_num(np.nanmedian(residuals - drift * common[:, None], axis=0))
    for number in range(int(component.max(initial=-1)) + 1):
        inside = np.flatnonzero(component == number)
        offset[inside] -= offset[inside[0]]
        drift[inside] -= drift[inside[0]]
    return offset, drift
