"""Find runs of kernels that equal those of a graph replay, by names, grids and blocks in order.

Sequences are compared by rolling hashes (Karp and Rabin 1987): the sum of codes times powers of an odd number modulo
2**64. This module works on frames of codes; `trace_analyzer.analyses.replays` interprets the matches.
"""

from collections.abc import Callable

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.frames.lookups import map_unique

KEYS = ("name", "grid", "block")
CALL = ("operator", "input_dims", "input_types", "input_strides", "concrete_inputs")
"""Columns that identify a call: equal ones mean that the kernels do the same work."""

_STEP = 6_364_136_223_846_793_005
"""An odd number, which has an inverse modulo 2**64 (Knuth's MMIX multiplier)."""
_STEP_BACK = pow(_STEP, -1, 2**64)
_MOST_VERSIONS = 64
"""Most runs of different calls that are compared for one sequence; more would not agree in anything."""

_AGREED = ("call", "operator_code", "module_code")
_RUNS = {"sequence": pl.UInt64, "length": pl.UInt32, "first": pl.UInt32}


def is_replayed(kernels: pl.DataFrame) -> pl.Series:
    """Return whether a graph launch enqueued each kernel."""
    by_graph = pl.col("launch_name").str.contains("(?i)graph_?launch").fill_null(False)
    return map_unique(kernels.select("launch_name"), by_graph).to_series()


def sequences_of(graphs: pl.DataFrame) -> pl.DataFrame:
    """Return (launch_id, length, sequence): the hash of each graph launch with enough kernels.

    ``graphs`` has launch_id, place and code, in order of both.
    """
    return (
        graphs.group_by("launch_id", maintain_order=True)
        .agg(pl.len().cast(pl.UInt32).alias("length"), (pl.col("code") * _powers()).sum().alias("sequence"))
        .filter(pl.col("length") >= thresholds.REPLAY_KERNELS)
    )


def whole_matches(graphs: pl.DataFrame, executed: pl.DataFrame) -> pl.DataFrame:
    """Return (launch_id, place, position, sources, `_AGREED` flags) for graph launches whose whole sequence was also executed.

    ``executed`` has source, track, code, call, operator_code and module_code in order; positions are its rows. Where
    several runs equal the sequence, the position is in the first one, ``sources`` lists those of all runs, and the flags
    show for each place in which columns all runs agree.
    """
    sequences = sequences_of(graphs)
    wanted = sequences.select("length", "sequence").unique()
    matches = [_runs(executed, wanted, length) for length in wanted.get_column("length").unique().sort()]
    runs = pl.concat(matches) if matches else pl.DataFrame(schema=_RUNS)
    places = runs.with_columns(pl.int_ranges(0, "length").alias("place")).explode("place", empty_as_null=False)
    agreed = _agreement(places, executed, ["length", "sequence"])
    return sequences.join(agreed, on=["length", "sequence"], how="inner").drop("length", "sequence")


def part_matches(graphs: pl.DataFrame, executed: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of `whole_matches` for kernels in an executed run of enough neighbours, not of all kernels."""
    length = thresholds.REPLAY_NEIGHBOURS
    sequences = sequences_of(graphs)
    firsts = sequences.unique(["length", "sequence"], keep="first", maintain_order=True)
    kinds = graphs.join(firsts.select("launch_id"), on="launch_id", how="semi", maintain_order="left")
    windows = kinds.select(
        "launch_id",
        pl.col("place").alias("from"),
        _windows("code", length).alias("sequence"),
        (pl.col("launch_id") == pl.col("launch_id").shift(1 - length)).alias("whole"),
    ).filter("whole")
    wanted = windows.select("sequence", pl.lit(length, pl.UInt32).alias("length")).unique()
    runs = _runs(executed, wanted, length)
    pairs = windows.join(runs, on="sequence", how="inner").with_columns(pl.int_ranges(0, "length").alias("offset"))
    places = pairs.explode("offset", empty_as_null=False).with_columns(
        (pl.col("from") + pl.col("offset")).alias("place"), (pl.col("first") + pl.col("offset")).alias("position")
    )
    agreed = _agreement(places.drop("first"), executed, ["launch_id"])
    representative = sequences.join(
        firsts.select("length", "sequence", pl.col("launch_id").alias("like")), on=["length", "sequence"]
    )
    return (
        representative.select("launch_id", "like")
        .join(agreed.rename({"launch_id": "like"}), on="like", how="inner")
        .drop("like")
    )


def captured_matches(
    graphs: pl.DataFrame, captured: pl.DataFrame, fits: Callable[[pl.DataFrame], pl.Series]
) -> pl.DataFrame:
    """Return the columns of `whole_matches` for graph launches with as many kernels as a capture has launches.

    Kernels match launches in order. Of several captures, those count whose launches fit the kernels best (``fit``, the
    share): ``fits`` tells of rows with name and operator whether they do, null where they do not show it. ``captured`` has capture, place,
    operator, source, call, operator_code and module_code; positions are its rows.
    """
    sequences = sequences_of(graphs)
    firsts = sequences.unique(["length", "sequence"], keep="first", maintain_order=True)
    counts = captured.group_by("capture").len("length")
    rows = captured.select("capture", "place", "operator").with_row_index("position").join(counts, on="capture")
    kernels = graphs.select("launch_id", "place", "name").join(firsts, on="launch_id", how="inner")
    places = kernels.join(rows, on=["length", "place"], how="inner")
    fit = places.with_columns(fits(places).alias("fit")).group_by("launch_id", "capture").agg(pl.col("fit").mean())
    best = fit.filter((pl.col("fit") == pl.col("fit").max().over("launch_id")).fill_null(False))
    of_best = places.join(best, on=["launch_id", "capture"], how="inner")
    agreed = _agreement(of_best, captured, ["length", "sequence", "fit"])
    return sequences.join(agreed, on=["length", "sequence"], how="inner").drop("length", "sequence")


def _agreement(places: pl.DataFrame, executed: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return for each place the first position of its runs, and the columns in which all of them agree."""
    if "position" not in places.columns:
        places = places.with_columns((pl.col("first") + pl.col("place")).alias("position"))
    rows = executed.select("source", *_AGREED)[places.get_column("position").cast(pl.UInt32)]
    return (
        places.select(*by, "place", pl.col("position").cast(pl.UInt32))
        .hstack(rows)
        .sort("position")
        .group_by(*by, "place", maintain_order=True)
        .agg(
            pl.col("position").first(),
            pl.col("source").unique().sort().alias("sources"),
            *((pl.col(column).n_unique() == 1) for column in _AGREED),
        )
    )


def _runs(executed: pl.DataFrame, wanted: pl.DataFrame, length: int) -> pl.DataFrame:
    """Return (sequence, length, first): the rows at which executions of sequences of this length start.

    Of executions of one source with equal calls, only the first is returned. A window's sum of codes times powers, divided by the
    power at its start, is independent of its position.
    """
    windows = executed.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("first"),
        "source",
        (pl.col("track") == pl.col("track").shift(1 - length)).alias("whole"),
        _windows("code", length).alias("sequence"),
        _windows("call", length).alias("calls"),
    ).filter("whole")
    of_length = wanted.filter(pl.col("length") == length).select("sequence", "length")
    return (
        windows.join(of_length, on="sequence", how="inner")
        .group_by("sequence", "length", "calls", "source")
        .agg(pl.col("first").min())
        .sort("first")
        .group_by("sequence", "length", maintain_order=True)
        .head(_MOST_VERSIONS)
        .select(pl.col(column).cast(dtype) for column, dtype in _RUNS.items())
    )


def _windows(column: str, length: int) -> pl.Expr:
    """Return the hash of the ``length`` values from each row on; arithmetic wraps at 2**64."""
    terms = pl.col(column) * _powers()
    upto = terms.cum_sum()
    return (upto.shift(1 - length) - upto + terms) * pl.repeat(_STEP_BACK, pl.len(), dtype=pl.UInt64).cum_prod().shift(
        1, fill_value=1
    )


def _powers() -> pl.Expr:
    """Return 1, step, step**2, ... modulo 2**64."""
    return pl.repeat(_STEP, pl.len(), dtype=pl.UInt64).cum_prod().shift(1, fill_value=1)
