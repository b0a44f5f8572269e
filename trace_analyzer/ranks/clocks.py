"""Align the clocks of a job's hosts by its collectives, which end at the same time on all ranks."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from trace_analyzer.frames.intervals import END_NS
from trace_analyzer.ranks.matching import WAYS, matched_by_ends, matched_by_key, most_frequent_difference
from trace_analyzer.ranks.summary import RankSummary
from trace_analyzer.units import duration

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


class Fit(Struct, frozen=True):
    """Offsets and drifts of clocks relative to the first clock of their component, at its time ``origin_ns``.

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


def aligned(rows: pl.DataFrame, fit: Fit) -> pl.Expr:
    """Return ``end_ns`` of rows with a ``clock``, converted to the common clock, in ns."""
    offset = pl.lit(pl.Series(fit.offset_ns).gather(rows.get_column("clock")))
    drift = pl.lit(pl.Series(fit.drift).gather(rows.get_column("clock")))
    since = (pl.col("end_ns") - fit.origin_ns).cast(pl.Float64)
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


RANKS_PER_HOST = 8
"""Assumed ranks per host where traces do not name hosts: most servers have eight devices."""
_GUESS_NS = 50_000
"""Largest residual for assumed hosts: a larger one suggests ranks of several hosts on one."""
_LEAST_NS = 2_000
"""Least residual: timestamps of older traces are whole microseconds, so ends differ by up to two."""
_SHARED_NS = 500_000
"""Least residual that points to shared devices: ends agree within 40 us in recordings, and turns last 1 ms or more."""
_QUANTILE = 0.95
_MOST_GROUPS = 8
"""Most process groups per rank: data, tensor, pipeline, context and expert parallelism, and some combinations of
two."""


class Clock(Struct, frozen=True):
    """The clock of a host relative to the first host's."""

    host: Annotated[str, "The host."]
    offset_ns: Annotated[int | None, "Offset at the first matched collective, ns; null where they share none."]
    drift_ppm: Annotated[float | None, "Drift, millionths; null where they share no collective."]
    residual_ns: Annotated[
        int | None,
        "95 % of the ends of its collectives lie no further from those of other ranks, ns; null without any.",
    ]


class RankClock(Struct, frozen=True):
    """The clock of a rank: what it shows, ns, as the common clock shows 0, its drift, and its trace's first event."""

    zero_ns: int
    drift: float
    first_ns: int

    def common_ns(self, time_ns: int) -> int:
        """Return the time on the common clock at an absolute time of this one, ns; only the drift is rounded."""
        since = time_ns - self.zero_ns
        return since - round(since * self.drift / (1 + self.drift))


class Alignment(Struct, frozen=True):
    """The common clock of a job: ``fit`` of the clocks, and the clock of each rank (``clock_of``, by rank).

    ``residual_ns`` is the resolution of statements on single collectives, None without a match. ``allowed_ns`` is the
    most by which a rank of a collective may end before another one starts.
    """

    fit: Fit
    clock_of: npt.NDArray[np.int64]
    clocks: tuple[Clock, ...]
    hosts: Mapping[int, str]
    residual_ns: int | None
    allowed_ns: int

    def rank_clocks(self, ranks: Sequence[RankSummary], origin_ns: int) -> dict[int, RankClock]:
        """Return the clock of each rank; times of the job count from ``origin_ns``."""
        clocks = {}
        for summary in ranks:
            if summary.rank is not None:
                offset, drift = (
                    float(values[self.clock_of[summary.rank]]) for values in (self.fit.offset_ns, self.fit.drift)
                )
                zero = origin_ns + round(offset - self.fit.origin_ns * drift)
                clocks[summary.rank] = RankClock(zero, drift, summary.base_ns)
        return clocks

    def notes(self, *, has_devices: bool) -> list[str]:
        """Write which clocks no collective ties to others, and that ends of collectives lie apart within a host."""
        apart, notes = [clock.host for clock in self.clocks if clock.offset_ns is None], []
        if apart and len(self.clocks) > 1:
            more = " and others" if len(apart) > 4 else ""
            notes.append(f"no collective ties the clock of {', '.join(apart[:4])}{more} to the others'")
        if has_devices and self.residual_ns is not None and self.residual_ns > _SHARED_NS:
            notes.append(
                f"collectives end {duration(self.residual_ns)} apart on their ranks, which clocks do not explain: devices seem"
                " to be shared with other programs, and to work in turns (time-slicing); waits may be these turns"
            )
        return notes


def hosts_of(ranks: Sequence[RankSummary], is_hidden: bool = False) -> tuple[dict[int, str], bool]:
    """Return the host of each rank, and whether it is assumed: by `RANKS_PER_HOST` where a trace does not name it.

    Hidden hosts are called host1, host2, ..., in order of their first ranks.
    """
    if all(summary.host for summary in ranks):
        named = {summary.rank: summary.host or "" for summary in ranks if summary.rank is not None}
        places = {host: place for place, host in enumerate(dict.fromkeys(named.values()), 1)}
        return {rank: f"host{places[host]}" if is_hidden else host for rank, host in named.items()}, False
    numbers = [summary.rank for summary in ranks if summary.rank is not None]
    firsts = {rank: rank // RANKS_PER_HOST * RANKS_PER_HOST for rank in numbers}
    return {rank: f"ranks {first} to {first + RANKS_PER_HOST - 1}" for rank, first in firsts.items()}, True


def align(rows: pl.DataFrame, hosts: dict[int, str], is_guess: bool = False) -> Alignment:
    """Align the clocks of ranks by collectives (`ROWS`), per host; per rank where assumed hosts prove wrong."""
    keyed = matched_by_key(rows)
    result = _align(keyed, hosts)
    if is_guess and (result.residual_ns is None or result.residual_ns > _GUESS_NS):
        single = _align(keyed, {rank: f"rank {rank}" for rank in hosts})
        if single.residual_ns is not None and 2 * single.residual_ns < (result.residual_ns or 2**62):
            return single
    return result


def _align(keyed: pl.DataFrame, hosts: Mapping[int, str]) -> Alignment:
    names = {host: place for place, host in enumerate(dict.fromkeys(hosts[rank] for rank in sorted(hosts)))}
    clock_of = np.zeros(max(hosts, default=0) + 1, dtype=np.int64)
    clock_of[list(hosts)] = [names[host] for host in hosts.values()]
    rows = _with_clock(keyed, clock_of).with_columns(END_NS)
    origin = rows.select(pl.col("end_ns").min()).item() or 0
    fit = _with_frequent(rows, fit_clocks(_host_ends(rows), len(names), origin))
    matched = _by_ends(rows, fit)
    if matched.get_column("match").null_count() < rows.get_column("match").null_count():
        fit = _with_frequent(matched, fit_clocks(_host_ends(matched), len(names), origin))
    spread = _spread(matched, fit)
    allowed = max(3 * (_residual(spread) or 0), _LEAST_NS)
    start = (pl.col("end_ns") - pl.col("duration_ns")).max().over("match")
    is_wrong = (start - pl.col("end_ns").min().over("match") > allowed) & pl.col("apart_ns").is_not_null()
    sound = spread.with_columns(pl.when(~is_wrong).then(name).alias(name) for name in ("match", "by", "apart_ns"))
    return Alignment(fit, clock_of, _clocks(list(names), fit, sound), hosts, _residual(sound), allowed)


def _with_clock(rows: pl.DataFrame, clock_of: npt.NDArray[np.int64]) -> pl.DataFrame:
    return rows.with_columns(pl.Series("clock", clock_of[rows.get_column("rank").to_numpy()]))


def matched(rows: pl.DataFrame, alignment: Alignment) -> pl.DataFrame:
    """Return `ROWS` with match, by, clock, and end_ns on the common clock."""
    keyed = _with_clock(matched_by_key(rows), alignment.clock_of)
    timed = keyed.with_columns(END_NS)
    together = _with_members(_by_ends(timed, alignment.fit))
    return together.with_columns(aligned(together, alignment.fit).alias("end_ns"))


def _with_members(rows: pl.DataFrame) -> pl.DataFrame:
    """Replace the process group by the set of ranks that met, where collectives are matched by their ends.

    Where this set changes too often from one collective to the next, it is no group, and ``of`` stays as recorded.
    """
    is_met = pl.col("by") == WAYS.index("ends")
    met = rows.lazy().filter(is_met)
    # Hashes of 48 bits: the sum of up to 65,536 hashes does not overflow.
    members = met.group_by("match").agg((pl.col("rank").hash() // (1 << 16)).sum().hash().alias("members")).collect()
    if members.is_empty():
        return rows
    joined = rows.join(members, on="match", how="left", maintain_order="left")
    groups = joined.lazy().filter(is_met).group_by("rank").agg(pl.col("members").n_unique()).collect()
    if groups.get_column("members").max() > _MOST_GROUPS:  # type: ignore[operator]
        return rows
    return joined.with_columns(pl.coalesce("members", "of").alias("of")).drop("members")


def _host_ends(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the median end of each collective on each clock."""
    ends = rows.filter(pl.col("match").is_not_null(), pl.col("is_split"))
    return ends.group_by("match", "clock").agg(pl.col("end_ns").median().cast(pl.Int64), pl.col("step").first())


def _main(fit: Fit) -> int:
    """Return the component with most clocks; -1 where no clock has a collective."""
    known = fit.component[fit.component >= 0]
    return int(np.bincount(known).argmax()) if len(known) else -1


def _with_frequent(rows: pl.DataFrame, fit: Fit) -> Fit:
    """Return the fit, with clocks outside its main component set by their most frequent difference of ends."""
    main = _main(fit)
    inside = fit.component == main if main >= 0 else np.arange(len(fit.component)) == 0
    if inside.all():
        return fit
    ends = rows.filter(pl.col("match").is_null(), pl.col("is_split")).select(
        "rank", "clock", "signature", "step", "end_ns"
    )
    firsts = ends.group_by("clock").agg(pl.col("rank").min())
    ends = ends.join(firsts, on=["clock", "rank"])
    reference = ends.filter(pl.col("clock").is_in(np.flatnonzero(inside).tolist()))
    if reference.is_empty():
        return fit
    first = int(reference.get_column("clock").min())  # type: ignore[arg-type]
    reference = reference.filter(pl.col("clock") == first)
    offset, component = fit.offset_ns.copy(), fit.component.copy()
    component[inside] = max(main, 0)
    for clock in np.flatnonzero(~inside):
        apart = most_frequent_difference(ends.filter(pl.col("clock") == int(clock)), reference)
        if apart is not None:
            offset[clock], component[clock] = offset[first] + apart, max(main, 0)
    return Fit(offset, fit.drift, component, fit.origin_ns)


def _by_ends(rows: pl.DataFrame, fit: Fit) -> pl.DataFrame:
    """Match the unmatched rows by their ends, among clocks that are aligned with each other."""
    if rows.filter(pl.col("match").is_null(), pl.col("is_split")).is_empty():
        return rows
    clocks = np.arange(len(fit.component))
    apart = pl.Series(np.where(fit.component >= 0, fit.component, len(clocks) + clocks))
    on_one = rows.with_columns(
        aligned(rows, fit).alias("end_ns"), pl.lit(apart.gather(rows.get_column("clock"))).alias("component")
    )
    first = rows.select(pl.col("match").max() + 1).item() or 0
    matched = matched_by_ends(on_one, first)
    return matched.drop("component").with_columns(END_NS)


def _spread(rows: pl.DataFrame, fit: Fit) -> pl.DataFrame:
    """Convert ends to the common clock and add apart_ns: the distance of each from its collective's median end."""
    rows = rows.with_columns(aligned(rows, fit).alias("end_ns"))
    is_placed = pl.col("match").is_not_null() & pl.col("is_split")
    apart = (pl.col("end_ns") - pl.col("end_ns").median().over("match")).abs()
    return rows.with_columns(pl.when(is_placed).then(apart).alias("apart_ns"))


def _residual(rows: pl.DataFrame) -> int | None:
    apart = rows.get_column("apart_ns").quantile(_QUANTILE, "higher")
    return None if apart is None else int(apart)


def _clocks(names: list[str], fit: Fit, rows: pl.DataFrame) -> tuple[Clock, ...]:
    by_clock = rows.group_by("clock").agg(pl.col("apart_ns").quantile(_QUANTILE, "higher"))
    residuals = dict(by_clock.iter_rows())
    main = _main(fit)
    return tuple(
        Clock(
            host=name,
            offset_ns=round(float(fit.offset_ns[number])) if is_known else None,
            drift_ppm=float(fit.drift[number]) * 1e6 if is_known else None,
            residual_ns=None if residual is None else int(residual),
        )
        for number, name in enumerate(names)
        for is_known, residual in [(main >= 0 and fit.component[number] == main, residuals.get(number))]
    )
