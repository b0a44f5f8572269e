"""Group device activities into calls of operators, with the tensors that each reads and writes."""

import polars as pl

from trace_analyzer.analyses.tensors import call_tensors
from trace_analyzer.frames.intervals import sort_spans
from trace_analyzer.frames.lookups import (
    argmax_by_group,
    as_strings,
    factorize,
    first_index,
    lookup,
    lookup_inner,
    map_unique,
    sum_by_group,
)

_STREAM = ["device", "stream"]


def calls_with_tensors(activities: pl.DataFrame, operator_inputs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Group activities into calls per operator and stream, in order, with the tensors that they read and write.

    ``tensors`` is the row of these. ``fusible`` is true where a fused kernel can include all of the call's work:
    pointwise, normalization or reduction, bound by memory or latency.
    """
    fusible = (
        pl.col("group").is_in(["pointwise", "normalization"])
        & pl.col("bound").is_in(["memory", "latency"])
        & (pl.col("bucket") != "optimizer")
    ).fill_null(False)
    begins = pl.any_horizontal(
        pl.col("operator_id").is_null(),
        *(pl.col(c).ne_missing(pl.col(c).shift(1)) for c in (*_STREAM, "operator_id")),
    )
    ordered = sort_spans(
        activities.select(
            *_STREAM, "start_ns", "activity_id", "operator_id", "operator", "launch_thread", "duration_ns",
            (~fusible).cast(pl.Int64).alias("unfit"),
            (pl.col("bucket") == "softmax").fill_null(False).cast(pl.Int64).alias("softmax"),
        ),
        _STREAM,
    )  # fmt: skip
    first = ordered.select(begins).to_series()
    calls, count = (first.cum_sum() - 1).cast(pl.UInt32), int(first.sum())
    ends = ordered.get_column("start_ns") + ordered.get_column("duration_ns")

    def summed(column: str) -> pl.Series:
        return sum_by_group(calls, ordered.get_column(column), count)

    runs = (
        ordered.filter(first)
        .select(*_STREAM, "operator_id", "operator", "launch_thread", "activity_id", "start_ns")
        .with_columns(
            pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).alias("call"),
            ends[argmax_by_group(calls, ends, count)].alias("end_ns"),
            summed("duration_ns").alias("time_ns"),
            sum_by_group(calls, pl.ones(ordered.height, eager=True), count).alias("kernel_count"),
            (summed("unfit") == 0).alias("fusible"),
            (summed("softmax") > 0).alias("is_softmax"),
        )
    )
    numbers, tensors = _tensors(runs, operator_inputs)
    runs = runs.hstack(lookup(numbers, runs, "operator_id"))
    known = tensors.get_column("reads").is_not_null()[runs.get_column("tensors")]
    return runs.with_columns(pl.col("fusible") & known.fill_null(False)), tensors


def _tensors(runs: pl.DataFrame, operator_inputs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return (operator_id, tensors) of operators with recorded arguments, and the rows that ``tensors`` refers to.

    The rows have ``reads`` and ``writes``, the tensors' keys, and read_bytes and write_bytes, null where unknown.
    """
    keys = ["operator", "input_dims", "input_types", "concrete_inputs"]
    recorded = operator_inputs.select(pl.col("event_id").alias("operator_id"), *keys[1:])
    ids = runs.get_column("operator_id")
    inputs = lookup_inner(
        runs.select("operator_id", "operator")[first_index(ids).drop_nulls()].drop_nulls(), recorded, "operator_id"
    )
    numbers, firsts = factorize(*inputs.select(keys))
    calls = [call_tensors(*row) for row in inputs.select(keys)[firsts].iter_rows()]
    known = pl.DataFrame(
        [
            pl.Series("reads", [call and [t.key for t in call.inputs] for call in calls], dtype=pl.List(pl.String)),
            pl.Series("writes", [call and call.output and call.output.key for call in calls], dtype=pl.String),
            pl.Series(
                "read_bytes", [call and float(sum(t.bytes for t in call.inputs)) for call in calls], dtype=pl.Float64
            ),
            pl.Series(
                "write_bytes", [call and call.output and float(call.output.bytes) for call in calls], dtype=pl.Float64
            ),
        ]
    )
    return inputs.select("operator_id", numbers.alias("tensors")), known


def reads_previous(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.Series:
    """Return whether each call reads the previous call's output, evaluated once per distinct pair."""
    pairs = calls.select("tensors", pl.col("tensors").shift(1).alias("before"))
    numbers, firsts = factorize(*pairs)
    reads, written = (
        tensors.get_column(column)[pairs.get_column(number)[firsts]]
        for column, number in (("reads", "tensors"), ("writes", "before"))
    )
    is_shared = pl.DataFrame([reads, written]).select(
        pl.col("reads").list.contains(pl.col("writes")) & pl.col("writes").is_not_null()
    )
    return is_shared.to_series().fill_null(False)[numbers]


def with_tensors(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """Add the tensors of `_tensors` to calls."""
    return calls.hstack(tensors[calls.get_column("tensors")]).drop("tensors")


def plain_operators(calls: pl.DataFrame) -> pl.DataFrame:
    """Return calls with strings instead of categoricals, and operators without namespace and in-place suffix."""
    plain = pl.col("operator").str.strip_prefix("aten::").str.replace("_+$", "")
    return as_strings(calls.with_columns(map_unique(calls.select("operator"), plain).to_series()))


def operators_in_order() -> pl.Expr:
    """Join the operators of a run into one text, in the notation of `catalog.fusions`."""
    return pl.concat_str(pl.lit(">"), pl.col("operator").str.join(">"), pl.lit(">")).alias("operators")


def elements(key: pl.Expr) -> pl.Expr:
    """Return the number of elements of a tensor's key."""
    sizes = key.str.extract(r"^\[([0-9, ]+)\]").str.replace_all(" ", "").str.split(",")
    return sizes.list.eval(pl.element().cast(pl.Float64).product()).list.first()
