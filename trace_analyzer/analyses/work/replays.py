"""Give kernels of replayed graphs, which have no operator, the work of the same kernels launched one by one."""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.frames.intervals import sort_spans
from trace_analyzer.frames.lookups import factorize, lookup, map_unique

_STEP = 6_364_136_223_846_793_005
"""An odd number, so that it has an inverse modulo 2**64 (Knuth's MMIX multiplier)."""
_STEP_BACK = pow(_STEP, -1, 2**64)

_KEYS = ["name", "grid", "block"]
_CALL = ["operator", "input_dims", "input_types", "input_strides", "concrete_inputs"]


def is_replayed(kernels: pl.DataFrame) -> pl.Series:
    """Return whether a graph launch enqueued each kernel."""
    by_graph = pl.col("launch_name").str.contains("(?i)graph_?launch").fill_null(False)
    return map_unique(kernels.select("launch_name"), by_graph).to_series()


def replayed_work(
    kernels: pl.DataFrame, calls: pl.DataFrame, shares: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Return rows like ``shares`` for replayed kernels of which an equal sequence was launched one by one.

    A sequence is the kernels of one graph launch in order of start, by name, grid and block. Where it was launched one by
    one several times, all of these must come from the same calls: else it is not known which of them the graph holds.
    """
    by_graph = is_replayed(kernels)
    if not by_graph.any():
        return shares.clear(), _NO_TWINS, 0
    codes, _ = factorize(*kernels.select(_KEYS))
    kernels = kernels.select("activity_id", "device", "launch_id", "start_ns", codes.hash().alias("code"))
    replayed = (
        kernels.filter(by_graph)
        .sort("launch_id", maintain_order=True)
        .with_columns(pl.int_range(pl.len()).over("launch_id").alias("place"))
    )
    sequences = (
        replayed.group_by("launch_id")
        .agg(pl.len().alias("length"), (pl.col("code") * _powers(_STEP)).sum().alias("sequence"))
        .filter(pl.col("length") >= thresholds.REPLAY_KERNELS)
    )
    if sequences.is_empty():
        return shares.clear(), _NO_TWINS, 0
    made, _ = factorize(*calls.select(_CALL))
    eager = sort_spans(kernels.filter(~by_graph), ["device"])
    called = lookup(calls.select("activity_id", made.hash().alias("call")), eager, "activity_id").fill_null(0)
    eager = eager.hstack(called).with_row_index("position")
    if eager.is_empty():
        return shares.clear(), _NO_TWINS, 0
    runs = pl.concat(
        [_runs(eager, sequences, length) for length in sequences.get_column("length").unique().sort()]
        or [
            pl.DataFrame(
                schema={"length": pl.UInt32, "sequence": pl.UInt64, "position": pl.UInt32, "agrees": pl.Boolean}
            )
        ]
    )
    twins = (
        replayed.join(sequences, on="launch_id", how="inner", maintain_order="left")
        .join(runs.filter("agrees"), on=["length", "sequence"], how="inner", maintain_order="left")
        .with_columns((pl.col("position") + pl.col("place")).cast(pl.UInt32).alias("position"))
        .join(eager.select("position", pl.col("activity_id").alias("replayed_from")), on="position", how="inner")
        .select("activity_id", "replayed_from")
    )
    work = twins.join(shares, left_on="replayed_from", right_on="activity_id", how="inner").select(shares.columns)
    ambiguous = sequences.join(runs.filter(~pl.col("agrees")), on=["length", "sequence"], how="semi").height
    return work, twins, ambiguous


_NO_TWINS = pl.DataFrame(schema={"activity_id": pl.UInt32, "replayed_from": pl.UInt32})


def with_twins(activities: pl.DataFrame, twins: pl.DataFrame) -> pl.DataFrame:
    """Add ``replayed_from`` to replayed kernels, and of that kernel the operator's name and the bucket."""
    marked = activities.hstack(lookup(twins, activities, "activity_id"))
    if twins.is_empty():
        return marked
    own = ["operator", "bucket", "group", "prior"]
    theirs = marked.select("activity_id", *own).rename({"activity_id": "replayed_from"})
    twins_columns = lookup(theirs, marked, "replayed_from")
    return marked.with_columns(pl.coalesce(twins_columns.get_column(column), column).alias(column) for column in own)


def _runs(eager: pl.DataFrame, sequences: pl.DataFrame, length: int) -> pl.DataFrame:
    """Return where the sequences of this length were launched one by one, first of equals.

    The columns are length, sequence, position, agrees.

    A window's sum of codes times powers of a step, divided by the power at its start, does not depend on where it is.
    """
    wanted = sequences.filter(pl.col("length") == length).select("length", "sequence").unique()
    windows = eager.select(
        "position",
        (pl.col("device") == pl.col("device").shift(1 - length)).alias("whole"),
        _windows("code", length).alias("sequence"),
        _windows("call", length).alias("calls"),
    ).filter("whole")
    return (
        windows.join(wanted, on="sequence", how="inner")
        .group_by("length", "sequence")
        .agg(pl.col("position").min(), pl.col("calls").n_unique().alias("versions"))
        .select(
            pl.col("length").cast(pl.UInt32),
            "sequence",
            pl.col("position").cast(pl.UInt32),
            (pl.col("versions") == 1).alias("agrees"),
        )
    )


def _windows(column: str, length: int) -> pl.Expr:
    """Return the fingerprint of the ``length`` values from each row on; arithmetic wraps at 2**64."""
    terms = pl.col(column) * _powers(_STEP)
    upto = terms.cum_sum()
    return (upto.shift(1 - length) - upto + terms) * _powers(_STEP_BACK)


def _powers(step: int) -> pl.Expr:
    """Return 1, step, step**2, ... modulo 2**64."""
    return pl.repeat(step, pl.len(), dtype=pl.UInt64).cum_prod().shift(1, fill_value=1)
