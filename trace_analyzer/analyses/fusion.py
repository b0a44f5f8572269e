"""Find fusion opportunities: kernels that write to memory what the next one reads back.

Three kinds: chains of memory-bound calls in which one's output is the next one's input; attention whose
scores go through memory between two batched products; and optimizers that update parameter by parameter.
"""

from collections.abc import Mapping

import polars as pl

from trace_analyzer.analyses.fused_attention import beyond_fused_roof
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.roofline import known_sum
from trace_analyzer.analyses.tensors import call_tensors
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.catalog.devices import Device
from trace_analyzer.catalog.fusions import COMPILE, named_fusion
from trace_analyzer.frames.intervals import innermost, lookup_at, sort_spans
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
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.schema import DEVICE, F64, PLACE, STR, TIME, U32, Column, Table
from trace_analyzer.sections import DEVICE_LABEL, WHOLE_TRACE, Section, Shown

FUSIONS = Table(
    "fusions",
    "Kernels that one kernel could replace, equal ones summed up; the most time saved first.",
    (
        DEVICE,
        Column("kind", STR, "chain, attention or optimizer."),
        Column("what", STR, "What it is, in the user's terms."),
        Column("operators", STR, "Its operators in order; of an optimizer, its name."),
        Column("tensors", STR, "Shape and type of the tensors that need not go through memory."),
        Column("module", STR, "Class of the nn.Module around it; null when not recorded."),
        Column("function", STR, "The user's Python function around it; null when not recorded."),
        Column("count", U32, "How often it ran."),
        Column("kernel_count", U32, "Kernels in all of these runs."),
        TIME,
        Column("moved_bytes", F64, "Bytes that their calls read and write, by shapes; null for optimizers."),
        Column("byte_per_s", F64, "These bytes over the time: the bandwidth they achieve."),
        Column("saved_bytes", F64, "Bytes of these that need not move; null for optimizers."),
        Column("saves_ns", F64, "Time saved at most."),
        Column("how", STR, "How that was computed."),
        Column("code", STR, "What to write instead."),
        *PLACE,
    ),
)

FUSIONS_SECTION = Section(
    "Fusion opportunities",
    show=(
        Shown("what", "what", "word", markdown=True),
        Shown("in", "in", "text", markdown=True, page=False, phrase="fusion-place"),
        DEVICE_LABEL,
        Shown("saves_ns", "saves at most", terminal=0, markdown=True, term="saves"),
        Shown("count", "count", terminal=0, markdown=True),
        Shown("says", "", "text", 0, page=False, phrase="fusion"),
        Shown("kernel_count", "kernels"),
        Shown("time_ns", "time", markdown=True),
        Shown("passes", "memory", "word", markdown=True, page=False, phrase="fusion-traffic"),
        Shown("saved_bytes", "bytes saved"),
        Shown("code", "instead", "code", markdown=True),
        Shown("tensors", "in between", "text"),
        Shown("module", "module", "name"),
        Shown("function", "in function", "frame"),
        Shown("operators", "operators", "text"),
    ),
    rows=5,
    scope=f"time saved at most, {WHOLE_TRACE}",
    top=True,
    key="fusions",
    table="fusions",
    lines=2,
)

_STREAM = ["device", "stream"]
_ATTENTION_CALLS = 8
"""Between the two products of one attention there are fewer calls: scale, mask, softmax, dropout, casts."""
_MASKS = ["add", "baddbmm", "masked_fill", "where"]
"""What may mask scores, between the products or in the first."""
_OPTIMIZER = r"^Optimizer\.step#(.+)\.step$"
_FUSED = r"(?i)_fused_|fused_?(?:adam|sgd|adagrad|lamb)"
_TORCH = r"^(?:<|nn\.Module: |(?:.*/)?(?:torch|torchvision|functools|contextlib)(?:/|\.py))"
"""Frames of torch and of built-in functions: the innermost other frame is the user's code, or a model library's."""
_NAMED_CHARACTERS = 2_000
"""What a chain is called shows in its first operators; the patterns take quadratic time."""
_FOUND = {
    "moved_bytes": pl.Float64, "saved_bytes": pl.Float64, "moving_ns": pl.Int64, "tensors": pl.String,
}  # fmt: skip
"""Columns that only some kinds have."""
_RUN = {
    **{c: dtype for c, dtype in FUSIONS.schema.items() if c not in ("count", "byte_per_s")},
    "moving_ns": pl.Int64(),
}
_ROW_KEYS = ["device", "kind", "operators", "tensors", "module", "function"]


def fusion_runs(
    trace: Trace,
    host: Host,
    activities: pl.DataFrame,
    places: pl.DataFrame,
    modules: pl.DataFrame,
    devices: Mapping[int, Device | None],
) -> pl.DataFrame:
    """Return each run of kernels that one kernel could replace: rows of table `fusions` before summing.

    ``places`` and ``modules`` are those of `analyses.modules`: where in the program an activity was launched.
    """
    calls, tensors = _calls(activities, trace.operator_inputs)
    attention = beyond_fused_roof(_attention(calls, tensors), activities, devices)
    inside = attention.select("call").explode("call")
    free = ~pl.col("call").is_in(inside.get_column("call").implode())
    chains = _chains(calls.with_columns(pl.col("fusible") & free), tensors)
    none = pl.DataFrame(schema=_FOUND)
    runs = pl.concat([none, chains, attention.drop("call"), _optimizers(host, activities)], how="diagonal_relaxed")
    if runs.is_empty():
        return pl.DataFrame(schema=_RUN)
    return _named(_located(host, runs, places, modules)).select(pl.col(c).cast(dtype) for c, dtype in _RUN.items())


def fusion_table(runs: pl.DataFrame) -> pl.DataFrame:
    """Return table `fusions`: runs summed, the most time saved first."""
    length = pl.col("end_ns") - pl.col("start_ns")
    frame = (
        runs.group_by(_ROW_KEYS, maintain_order=True)
        .agg(
            pl.col("what", "code", "how").first(),
            pl.len().alias("count"),
            pl.col("kernel_count", "time_ns", "moving_ns", "saves_ns").sum(),
            known_sum("moved_bytes"),
            known_sum("saved_bytes"),
            pl.col("start_ns", "end_ns").sort_by(length).last(),
        )
        .with_columns(
            pl.when((pl.col("moving_ns") > 0) & (pl.col("moved_bytes") > 0))
            .then(pl.col("moved_bytes") / pl.col("moving_ns") * 1e9)
            .alias("byte_per_s")
        )
        .sort("saves_ns", "start_ns", descending=[True, False])
    )
    return FUSIONS.conform(frame)


def _calls(activities: pl.DataFrame, operator_inputs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Group activities into calls per operator and stream, in order, with the tensors they read and write.

    ``tensors`` is the row of these; ``fusible`` says whether all of the run is work that a fused
    kernel can take in: pointwise, normalization or reduction, bound by memory or by its launch.
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
    """Return (operator_id, tensors) of operators with recorded arguments, and the rows that ``tensors`` numbers.

    These have ``reads`` and ``writes``, the tensors' keys, read_bytes and write_bytes, null where they are not known.
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


def _reads_previous(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.Series:
    """Return whether each call reads what the one before wrote, evaluated once per distinct pair."""
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


def _chains(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """Find two or more fusible calls in a row, each reading what the one before wrote.

    Fused, none of these tensors is written and read again. The time saved is their share of the bytes that
    the chain moves: at the bandwidth that its kernels achieve.
    """
    together = pl.all_horizontal(pl.col(c) == pl.col(c).shift(1) for c in (*_STREAM, "launch_thread"))
    follows = (pl.col("fusible") & pl.col("fusible").shift(1) & together & _reads_previous(calls, tensors)).fill_null(
        False
    )
    return (
        calls.with_columns(follows.alias("follows"))
        .with_columns(
            (~pl.col("follows")).cum_sum().alias("chain"),
            pl.col("follows").shift(-1, fill_value=False).alias("between"),
        )
        .filter(pl.col("follows") | pl.col("between"))
        .pipe(_with_tensors, tensors.drop("reads"))
        .pipe(_as_told)
        .group_by("chain", maintain_order=True)
        .agg(
            pl.col("device", "activity_id", "start_ns").first(),
            pl.col("end_ns").max(),
            _operators(),
            pl.col("writes").filter("between").unique(maintain_order=True).str.join(", ").alias("tensors"),
            pl.col("kernel_count", "time_ns").sum(),
            (pl.col("read_bytes") + pl.col("write_bytes").fill_null(0)).sum().alias("moved_bytes"),
            (2 * pl.col("write_bytes").filter("between").sum()).alias("saved_bytes"),
        )
        .drop("chain")
        .with_columns(
            (pl.col("time_ns") * pl.col("saved_bytes") / pl.col("moved_bytes")).alias("saves_ns"),
            pl.col("time_ns").alias("moving_ns"),
            pl.lit("chain").alias("kind"),
            pl.lit(
                "bytes of the tensors in between, written and read once, at the bandwidth these kernels achieve"
            ).alias("how"),
        )
    )


def _with_tensors(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """Add the tensors of `_tensors` to calls."""
    return calls.hstack(tensors[calls.get_column("tensors")]).drop("tensors")


def _attention(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """Find softmax between two batched products: a fused kernel keeps the scores on the chip.

    The scores must be the first product's output and the second's first input by number of elements.
    """
    if not calls.get_column("is_softmax").any():
        calls = calls.clear()
    writes = tensors.get_column("writes").is_not_null()[calls.get_column("tensors")]
    product = pl.col("operator").is_in(["aten::bmm", "aten::baddbmm"]) & writes
    position = pl.int_range(pl.len(), dtype=pl.Int64)
    marked = calls.with_columns(product.fill_null(False).alias("product"), position.alias("position")).with_columns(
        pl.when("product").then("position").forward_fill().over(_STREAM).alias("before"),
        pl.when("product").then("position").backward_fill().over(_STREAM).alias("after"),
        (~pl.col("fusible") & ~pl.col("product")).cum_sum().alias("strangers"),
    )
    sizes = _with_tensors(marked.filter("product"), tensors).select(
        "position", "writes", "reads", "write_bytes", "strangers", "call"
    )
    softmax = (
        marked.filter("is_softmax", pl.col("after") - pl.col("before") <= _ATTENTION_CALLS)
        .pipe(_with_tensors, tensors)
        .select("position", "before", "after", "device", elements=_elements(pl.col("writes")))
        .join(sizes.rename({"position": "before"}), on="before", how="inner", suffix="_before")
        .join(
            sizes.select(pl.col("position").alias("after"), "reads", "strangers", pl.col("call").alias("last_call")),
            on="after",
            how="inner",
            suffix="_after",
        )
        .filter(
            pl.col("strangers") == pl.col("strangers_after"),
            pl.col("elements") == _elements(pl.col("writes")),
            pl.col("elements") == _elements(pl.col("reads_after").list.first()),
        )
        .unique("before", keep="first", maintain_order=True)
        .unique("after", keep="first", maintain_order=True)
    )
    between = softmax.select(
        "before", "after", "write_bytes", pl.int_ranges("before", pl.col("after") + 1).alias("position")
    ).explode("position")
    inner = (pl.col("position") > pl.col("before")) & (pl.col("position") < pl.col("after"))
    # A fused kernel reads q, k and v and writes the output. Of the second product's inputs v is what is no scores, and
    # baddbmm's first input has the size of the scores, or is not read. What is doubtful is left out: the roof stays low.
    added = pl.when(pl.col("operator").first() == "baddbmm").then(pl.col("write_bytes").first()).otherwise(0)
    q_and_k = (pl.col("read_bytes").first() - added).clip(lower_bound=0)
    v = (pl.col("read_bytes").last() - pl.col("write_bytes").filter("inner").max()).clip(lower_bound=0).fill_null(0)
    fused_bytes = q_and_k + v + pl.col("write_bytes").last().fill_null(0)
    moved_bytes = (pl.col("read_bytes") + pl.col("write_bytes").fill_null(0)).sum()
    return (
        between.drop("write_bytes")
        .with_columns(inner.alias("inner"))
        .join(marked, on="position", how="inner", maintain_order="left")
        .pipe(_with_tensors, tensors)
        .pipe(_as_told)
        .group_by(pl.col("before").alias("first"), maintain_order=True)
        .agg(
            pl.col("device", "activity_id", "start_ns").first(),
            pl.col("end_ns").max(),
            _operators(),
            pl.col("writes").first().alias("tensors"),
            pl.col("kernel_count", "time_ns").sum(),
            moved_bytes.alias("moved_bytes"),
            (moved_bytes - fused_bytes).clip(lower_bound=0).alias("saved_bytes"),
            fused_bytes.alias("fused_bytes"),
            (pl.col("operator").is_in(_MASKS)).any().alias("masked"),
            pl.concat_list(pl.col("operator_id").first(), pl.col("operator_id").last()).alias("products"),
            pl.col("call").filter("inner"),
        )
        .drop("first")
    )


def _optimizers(host: Host, activities: pl.DataFrame) -> pl.DataFrame:
    """Find optimizer steps of several kernels: per-parameter or foreach loops.

    A fused kernel passes over parameters, gradients and state at least as often as the operator that takes
    longest, so that all but its time is saved at most.
    """
    steps = host.those((pl.col("kind") == "annotation") & pl.col("name").str.contains(_OPTIMIZER)).select(
        pl.col("thread_id").alias("launch_thread"),
        "start_ns",
        "end_ns",
        pl.col("event_id").alias("step_id"),
        pl.col("name").str.extract(_OPTIMIZER).alias("optimizer"),
    )
    if steps.is_empty():
        return pl.DataFrame()
    kernels = activities.select(
        "kind", "bucket", "name", "operator", "device", "activity_id", "start_ns", "duration_ns", "launch_thread",
        "launch_start_ns",
    ).filter(pl.col("kind") == "kernel", pl.col("bucket") != "communication")  # fmt: skip
    inside = lookup_at(kernels, "launch_start_ns", steps, ["launch_thread"], ["step_id", "optimizer"]).drop_nulls(
        "step_id"
    )
    fused = (pl.col("name").str.contains(_FUSED) | pl.col("operator").str.contains(_FUSED)).fill_null(False)
    foreach = pl.col("operator").str.contains("_foreach_").fill_null(False)
    labels = map_unique(inside.select("name", "operator"), fused.alias("fused"), foreach.alias("foreach"))
    operator_ns = pl.col("duration_ns").sum().over("step_id", "operator")
    return (
        inside.hstack(labels)
        .with_columns(operator_ns.alias("operator_ns"))
        .group_by("device", "step_id", maintain_order=True)
        .agg(
            pl.col("fused").any(),
            pl.col("optimizer").first(),
            pl.col("activity_id").first(),
            pl.col("start_ns").min(),
            (pl.col("start_ns") + pl.col("duration_ns")).max().alias("end_ns"),
            pl.len().alias("kernel_count"),
            pl.col("duration_ns").sum().alias("time_ns"),
            (pl.col("duration_ns").sum() - pl.col("operator_ns").max()).cast(pl.Float64).alias("saves_ns"),
            pl.when(pl.col("foreach").any()).then(pl.lit("foreach")).otherwise(pl.lit("loop")).alias("tensors"),
        )
        .filter(~pl.col("fused") & (pl.col("saves_ns") > 0))
        .select(
            "device", "activity_id", "start_ns", "end_ns", "kernel_count", "time_ns", "saves_ns", "tensors",
            pl.col("optimizer").alias("operators"), pl.lit("optimizer").alias("kind"),
            pl.lit("all of the optimizer's time but that of its longest operator: a fused kernel is one pass").alias("how"),
        )
    )  # fmt: skip


def _as_told(calls: pl.DataFrame) -> pl.DataFrame:
    """Return calls with strings for categories, and operators without namespace and in-place mark."""
    plain = pl.col("operator").str.strip_prefix("aten::").str.replace("_+$", "")
    return as_strings(calls.with_columns(map_unique(calls.select("operator"), plain).to_series()))


def _operators() -> pl.Expr:
    """Join the operators of a run into one text, as `catalog.fusions` wants it."""
    return pl.concat_str(pl.lit(">"), pl.col("operator").str.join(">"), pl.lit(">")).alias("operators")


def _elements(key: pl.Expr) -> pl.Expr:
    """Return the number of elements of a tensor's key."""
    sizes = key.str.extract(r"^\[([0-9, ]+)\]").str.replace_all(" ", "").str.split(",")
    return sizes.list.eval(pl.element().cast(pl.Float64).product()).list.first()


def _located(host: Host, runs: pl.DataFrame, places: pl.DataFrame, modules: pl.DataFrame) -> pl.DataFrame:
    """Add the module class and the user's Python function around the first launch."""
    where = places.join(runs.select("activity_id").unique(), on="activity_id", how="semi")
    of_user = (pl.col("kind") == "python") & ~pl.col("name").str.contains(_TORCH)
    spans = host.those(of_user, "thread_id", "start_ns", "end_ns", "event_id").filter(
        pl.col("thread_id").is_in(where.get_column("thread_id").unique().implode())
    )
    inside = lookup_at(
        where, "time_ns", innermost(spans, ["thread_id"], "event_id"), ["thread_id"], ["event_id"]
    ).drop_nulls("event_id")
    functions = inside.select(
        "activity_id", host.texts(inside.get_column("event_id")).cast(pl.String).alias("function")
    )
    classes = modules.select("activity_id", pl.col("module").str.replace(r"_\d+$", ""))
    return runs.join(classes, on="activity_id", how="left", maintain_order="left").join(
        functions, on="activity_id", how="left", maintain_order="left"
    )


def _named(runs: pl.DataFrame) -> pl.DataFrame:
    """Add the user's name for each run, and what to write instead."""
    patterns = runs.select("kind", "operators", "tensors").unique()
    words = [_words(*row) for row in patterns.iter_rows()]
    return runs.join(
        patterns.with_columns(
            pl.Series("what", [what for what, _ in words], dtype=pl.String),
            pl.Series("code", [code for _, code in words], dtype=pl.String),
        ),
        on=["kind", "operators", "tensors"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )


def _words(kind: str, operators: str, tensors: str | None) -> tuple[str, str]:
    if kind == "attention":
        return "unfused attention: softmax(q @ k.T) @ v", "F.scaled_dot_product_attention(q, k, v)"
    if kind == "optimizer":
        loop = "a kernel or more per parameter" if tensors == "loop" else "several passes over all parameters"
        return f"{operators}.step: {loop}", f"torch.optim.{operators}(..., fused=True)"
    head = operators[: operators.find(">", _NAMED_CHARACTERS) + 1] or operators
    if rule := named_fusion(head):
        return rule.what, rule.code
    return expression(operators.strip(">").split(">")), COMPILE


def expression(operators: list[str]) -> str:
    """Format a chain as the user may have written it, ``x.cos().cos()``; shorten repeats and long chains."""
    count = len(operators)
    times = next(n for n in range(count, 0, -1) if count % n == 0 and operators == operators[: count // n] * n)
    if times >= _REPEATS:
        return f"{expression(operators[: len(operators) // times])}, {times} times in a row"
    steps = [f".{_NAMES.get(o, o)}({_ARGUMENTS.get(o, '')})" for o in operators]
    shown = steps if len(steps) <= _LONG else [*steps[: _LONG - 2], " ... ", *steps[-2:]]
    return "x" + "".join(shown)


_REPEATS, _LONG = 3, 10
_NAMES = {"copy": "to"}
_ARGUMENTS = {
    "copy": "...",
    **dict.fromkeys(
        ("add", "sub", "mul", "div", "pow", "where", "maximum", "minimum", "lerp", "addcmul", "addcdiv"), "y"
    ),
}


ANALYSES = (
    Value("fusion_runs", fusion_runs, {"modules": "activity_modules", "devices": "device_models"}),
    Analysis(FUSIONS, fusion_table, {"runs": "fusion_runs"}, placed=(FUSIONS_SECTION,)),
)
