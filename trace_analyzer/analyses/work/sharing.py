"""Share the work of operator calls among their kernels."""

from typing import NamedTuple

import polars as pl
from msgspec.structs import asdict

from trace_analyzer import errors, units
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.work import MATMUL_FORMULAS, Record, call_work, completion, replay_matching
from trace_analyzer.catalog.kernels import arithmetic
from trace_analyzer.frames.intervals import lookup_at
from trace_analyzer.frames.lookups import factorize, lookup, lookup_inner, map_unique, sum_by_group
from trace_analyzer.ingest.trace import Trace

INPUTS = ("input_dims", "input_types", "input_strides", "concrete_inputs")
SHARE_COLUMNS = (
    "flop", "moved_bytes", "doubtful_bytes", "call_dtype", "work_from", "is_matmul", "key_bytes", "queries"
)  # fmt: skip
"""Columns of a kernel's share of its operator's work."""
_CALL = Record._fields
_WORK = {
    "flop": pl.Float64, "moved_bytes": pl.Float64, "dtype": pl.String, "least": pl.Boolean, "doubtful_bytes": pl.Float64,
    "key_bytes": pl.Float64, "queries": pl.Int64,
}  # fmt: skip
_KERNEL = (
    "activity_id", "name", "device", "start_ns", "duration_ns", "launch_id", "launch_name", "launch_thread",
    "launch_start_ns", "operator_id", "operator", "bucket", "group", "prior", "grid", "block", "graph_node_id",
)  # fmt: skip
"""Columns of activities that determine whose work a kernel did."""
_CONTRACTING = "matmul"

# Element types in C++ template arguments -> bytes.
_TEMPLATE_TYPES = {
    "double": 8.0, "float": 4.0, "c10::Half": 2.0, "__half": 2.0, "c10::BFloat16": 2.0, "__nv_bfloat16": 2.0, "long": 8.0,
    "int": 4.0, "bool": 1.0, "unsigned char": 1.0, "signed char": 1.0,
}  # fmt: skip
_NAMED = "|".join(sorted(_TEMPLATE_TYPES, key=len, reverse=True))


def list_element_bytes(name: str = "name") -> pl.Expr:
    """Return the element size of a tensor list from the template arguments of its kernel, else null.

    ATen's multi-tensor kernels have the type in their functor (`BinaryOpScalarFunctor<float, ...>`), `CatArray` kernels
    have an opaque size, or the number of elements in an aligned vector (`..., 16, 8>`: 16 bytes with 8 elements).
    """
    column = pl.col(name)
    vector = column.str.extract_groups(r"CatArray\w*_vectorized<.*?,\s*([0-9]{1,3}),\s*([1-9][0-9]{0,2})>")
    functor = column.str.extract(rf"(?:Functor|CatArray\w*|::Copy)<({_NAMED})[,>]")
    return pl.coalesce(
        vector.struct.field("1").cast(pl.Float64) / vector.struct.field("2").cast(pl.Float64),
        column.str.extract(r"CatArray.*?OpaqueType<([0-9]{1,3})(?:[^0-9]|$)").cast(pl.Float64),
        functor.replace_strict(_TEMPLATE_TYPES, default=None, return_dtype=pl.Float64),
    )


class LaunchedWork(NamedTuple):
    """Kernels with the arithmetic in their names, and the shares of work of those launched one by one.

    ``kernels`` has the columns `_KERNEL` and those of `trace_analyzer.catalog.kernels`, ``shares`` has activity_id
    and `SHARE_COLUMNS`; ``notes`` report damaged arguments.
    """

    kernels: pl.DataFrame
    shares: pl.DataFrame
    notes: tuple[errors.Note, ...]


def work_of_kernels(activities: pl.DataFrame, trace: Trace, host: Host, backward_links: pl.DataFrame) -> LaunchedWork:
    """Return the work of kernels that were launched one by one.

    Needs launch_name, launch_thread and launch_start_ns. The work is that of the innermost operator around the launch
    with a formula and the inputs for it. Several kernels of one operator share its work by duration; for a matmul,
    convolution or attention only those that multiply. Its helpers (split-K sums, layout changes, fills) have none of
    its FLOP, and their bytes are unknown. Winograd's algorithm and Fourier transforms need fewer operations than the
    convolution's definition, so their FLOP are unknown.
    """
    kernels = activities.select("kind", *_KERNEL).filter(pl.col("kind") == "kernel")
    numbers, firsts = factorize(kernels.get_column("name"))
    names = kernels.get_column("name")[firsts].cast(pl.String)
    kernels = kernels.hstack(arithmetic(names).drop("name")[numbers])
    launched = kernels.filter(~replay_matching.is_replayed(kernels))
    inputs = recorded_inputs(trace)
    calls = completion.with_context(_calls(launched, inputs), host, inputs, backward_links)
    own, notes = _works(calls)
    shares = _shares(own)
    outer = _outer_calls(launched, shares, host, inputs)
    if outer.height:
        outer_shares = _shares(_works(completion.with_context(outer, host, inputs, backward_links))[0])
        outer_shares = outer_shares.with_columns(
            pl.when(pl.col("work_from") == "call").then(pl.lit("outer-call")).otherwise("work_from").alias("work_from")
        )
        shares = pl.concat([shares.join(outer_shares, on="activity_id", how="anti"), outer_shares])
    return LaunchedWork(kernels, shares, notes)


def recorded_inputs(trace: Trace) -> pl.DataFrame:
    """Return the recorded arguments of operators: operator_id and `INPUTS`."""
    return trace.operator_inputs.select(pl.col("event_id").alias("operator_id"), *INPUTS)


def with_work(
    activities: pl.DataFrame, launched: LaunchedWork, replayed: pl.DataFrame, serving_marks: pl.DataFrame
) -> pl.DataFrame:
    """Add flop, moved_bytes, dtype and uses_tensor_cores to activities; graphs' kernels take those of their matches.

    ``replayed`` has the columns of `trace_analyzer.analyses.replays.REPLAYED`, ``serving_marks`` the sums of keys that
    attention reads from a cache in each step.
    """
    kernels = launched.kernels
    works = pl.concat([launched.shares, replayed.select("activity_id", *SHARE_COLUMNS)], how="vertical_relaxed")
    shared = kernels.hstack(lookup(works, kernels, "activity_id")).select(
        "activity_id",
        "flop",
        "moved_bytes",
        "doubtful_bytes",
        "work_from",
        "key_bytes",
        "queries",
        _dtype().alias("dtype"),
        _tensor_cores().alias("uses_tensor_cores"),
    )
    worked = _with_keys(activities.hstack(lookup(shared, activities, "activity_id")), serving_marks)
    marks = replayed.drop(*SHARE_COLUMNS, *_OVERRULED).rename(
        {"input_dims": "replayed_dims", "module": "replayed_module"}
    )
    worked = worked.hstack(lookup(marks, worked, "activity_id"))
    if replayed.is_empty():
        return worked
    theirs = lookup(replayed.select("activity_id", *_OVERRULED), worked, "activity_id")
    return worked.with_columns(pl.coalesce(theirs.get_column(column), column).alias(column) for column in _OVERRULED)


def _with_keys(activities: pl.DataFrame, serving_marks: pl.DataFrame) -> pl.DataFrame:
    """Add the bytes of a step's keys and values to its attention, which then has no unrecorded part.

    A call of as many queries as the step has tokens, up to twice as many with padding, reads the keys of all its requests;
    one of as many as its prompts or its running requests have, theirs. A window reads fewer: these bytes are doubtful.
    """
    tokens, keys = ([f"{kind}_{of}" for kind in ("prefill", "decode")] for of in ("tokens", "keys"))
    marks = serving_marks.drop_nulls("tokens").rename({"host_start_ns": "start_ns", "host_end_ns": "end_ns"})
    if marks.is_empty():
        return activities.drop("key_bytes", "queries")
    steps = lookup_at(
        activities.select("process_id", "launch_start_ns"), "launch_start_ns", marks, ["process_id"], [*tokens, *keys]
    )
    each = [
        pl.when(pl.col(size).fill_null(0) > 0).then(pl.col(of)).otherwise(0)
        for size, of in zip(tokens, keys, strict=True)
    ]
    total, asks = pl.sum_horizontal(tokens), pl.col("queries")
    of_kind = [pl.when(asks == pl.col(size)).then(of) for size, of in zip(tokens, each, strict=True)]
    read = pl.col("key_bytes") * (
        pl.when(asks.is_between(total, 2 * total) & (total > 0)).then(each[0] + each[1])
        .when(pl.col(tokens[0]) != pl.col(tokens[1])).then(pl.coalesce(of_kind))
    )  # fmt: skip
    return (
        activities.hstack(steps.select(*tokens, *keys))
        .with_columns(read.alias("read"))
        .with_columns(
            *((pl.col(name) + pl.col("read").fill_null(0)).alias(name) for name in ("moved_bytes", "doubtful_bytes")),
            pl.when(pl.col("read").is_not_null() & (pl.col("work_from") == "at-least"))
            .then(pl.lit("inferred-shape"))
            .otherwise("work_from")
            .alias("work_from"),
        )
        .drop("read", "key_bytes", "queries", *tokens, *keys)
    )


_OVERRULED = ("operator", "bucket", "group", "prior")
"""Columns of graphs' kernels that their matches override."""


def _calls(kernels: pl.DataFrame, inputs: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels whose operator (operator_id, operator) has recorded arguments, with these arguments."""
    calls = lookup_inner(kernels, inputs, "operator_id")
    lists = pl.col("input_types").str.contains("TensorList")
    sizes = pl.when(lists).then(list_element_bytes()).alias("list_element_bytes")
    return calls.hstack(map_unique(calls.select("input_types", "name"), sizes))


def _works(calls: pl.DataFrame) -> tuple[pl.DataFrame, tuple[errors.Note, ...]]:
    """Return calls with their work, and a note per kind of damage with its number of kernels."""
    numbers, firsts = factorize(*calls.select(_CALL))
    counts = sum_by_group(numbers, pl.ones(calls.height, eager=True), firsts.len())
    unique = calls.select(_CALL)[firsts].with_columns(counts.alias("kernels"))
    outcomes = [call_work(Record(*row)) for row in unique.select(_CALL).iter_rows()]
    works = pl.DataFrame([{} if outcome.work is None else asdict(outcome.work) for outcome in outcomes], _WORK)
    known = (
        unique.hstack(works.rename({"dtype": "call_dtype"}))
        .with_columns(
            pl.Series("problem", [outcome.problem for outcome in outcomes], dtype=pl.String),
            pl.Series("known", [outcome.work is not None for outcome in outcomes], dtype=pl.Boolean),
        )
        .with_columns((pl.col("known") & pl.col("operator").is_in(list(MATMUL_FORMULAS))).alias("is_matmul"))
    )
    problems = known.drop_nulls("problem").group_by("problem").agg(pl.col("kernels").sum()).sort("problem")
    notes = tuple(
        errors.Note(
            "damaged-operator-inputs",
            "info",
            f"FLOP and bytes of {units.counted(count, 'kernel')} are unknown: their operators were recorded with {problem}",
            count,
        )
        for problem, count in problems.iter_rows()
    )
    return calls.hstack(known.drop(*_CALL, "kernels", "problem")[numbers]), notes


def _shares(calls: pl.DataFrame) -> pl.DataFrame:
    """Return each kernel's share of its operator's work: activity_id and `SHARE_COLUMNS`."""
    owners, firsts = factorize(calls.get_column("operator_id"))

    def of_owner(rows: pl.DataFrame, figure: pl.Expr) -> pl.Series:
        """Sum an integer figure over all kernels of each kernel's operator."""
        return sum_by_group(owners, rows.select(figure.fill_null(0).cast(pl.Int64)).to_series(), firsts.len())[owners]

    # Where no name indicates a matmul, the unclassified kernels of such an operator must compute it.
    nameless = pl.col("bucket") == "other"
    works = (
        pl.when(~pl.col("is_matmul")).then(pl.col("bucket") != "communication")
        .when(of_owner(calls, _multiplies()) > 0).then(_multiplies())
        .otherwise(nameless)
    )  # fmt: skip
    calls = calls.with_columns(works.alias("works"))
    return (
        calls.with_columns(
            of_owner(calls, pl.when("works").then("duration_ns")).alias("total_ns"),
            of_owner(calls, pl.col("works")).alias("count"),
            (of_owner(calls, pl.col("fast")) > 0).alias("fast"),
        )
        .with_columns(
            pl.when("works")
            .then(
                pl.when(pl.col("total_ns") > 0)
                .then(pl.col("duration_ns") / pl.col("total_ns"))
                .otherwise(1 / pl.col("count"))
            )
            .alias("share")
        )
        .with_columns(
            pl.when(pl.col("is_matmul") & pl.col("fast")).then(None)
            .when("works").then(pl.col("flop") * pl.col("share"))
            .when("is_matmul").then(0.0)
            .alias("flop"),
            pl.col("moved_bytes", "doubtful_bytes", "key_bytes") * pl.col("share"),
            _source().alias("work_from"),
            (pl.col("is_matmul") & pl.col("works")).alias("is_matmul"),
        )
        .select("activity_id", *SHARE_COLUMNS)
    )  # fmt: skip


def _source() -> pl.Expr:
    """Return the source of a call's work: ``call`` or how the record was completed; null where the work is unknown."""
    return (
        pl.when(~pl.col("known")).then(None)
        .when("least").then(pl.lit("at-least"))
        .when(pl.col("assumed_type").is_not_null()).then(pl.lit("assumed-dtype"))
        .when(pl.any_horizontal(pl.col("result_dims", "outer_dims", "gradients").is_not_null()))
        .then(pl.lit("inferred-shape"))
        .otherwise(pl.lit("call"))
    )  # fmt: skip


def _outer_calls(kernels: pl.DataFrame, shares: pl.DataFrame, host: Host, inputs: pl.DataFrame) -> pl.DataFrame:
    """Return matmul and convolution kernels without work, as calls of the innermost enclosing such operator.

    An operator is excluded if one of its kernels already has work of a matmul, convolution or attention: then the
    multiplying kernel is known, and a composite operator would count twice.
    """
    known = shares.filter("is_matmul").select("activity_id")
    needy = kernels.filter(_multiplies()).join(known, on="activity_id", how="anti")
    if needy.is_empty():
        return _calls(kernels.clear(), inputs)
    around, spans = completion.within_operators(needy, host, MATMUL_FORMULAS)
    launches = pl.col("launch_thread").alias("thread_id"), pl.col("launch_start_ns").alias("start_ns")
    done = kernels.join(known, on="activity_id", how="semi").select(*launches).drop_nulls()
    free = _without_launches(spans.join(around, on="outer_id", how="semi"), done)
    return _calls(
        needy.drop("operator_id", "operator")
        .join(around.select("activity_id", "outer_id"), on="activity_id", how="inner", maintain_order="left")
        .join(free.select("outer_id", "outer"), on="outer_id", how="inner", maintain_order="left")
        .rename({"outer_id": "operator_id", "outer": "operator"}),
        inputs,
    )


def _without_launches(spans: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Return the spans without any of these launches (thread_id, start_ns)."""
    following = launches.select("thread_id", pl.col("start_ns").alias("next_ns")).sort("next_ns")
    return (
        spans.sort("start_ns")
        .join_asof(
            following,
            left_on="start_ns",
            right_on="next_ns",
            by="thread_id",
            strategy="forward",
            check_sortedness=False,
        )
        .filter(pl.col("next_ns").is_null() | (pl.col("next_ns") >= pl.col("end_ns")))
    )


def _multiplies() -> pl.Expr:
    return (pl.col("group") == _CONTRACTING) & ~pl.col("helper")


def _dtype() -> pl.Expr:
    """Return the operand type, unless the kernel's name indicates narrower multiplications."""
    rounded = pl.when(pl.col("call_dtype") == "fp32").then(pl.coalesce("fp32", "call_dtype")).otherwise("call_dtype")
    return pl.when(_multiplies()).then(pl.coalesce("precision", rounded)).otherwise("call_dtype")


def _tensor_cores() -> pl.Expr:
    """Return whether tensor cores are used, for matmul and convolution only; null where no rule matches."""
    return pl.when(_multiplies()).then("tensor_cores").when(pl.col("bucket") != "other").then(pl.lit(False))
