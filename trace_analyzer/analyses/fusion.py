"""Find fusion opportunities: kernels that write data to memory that the next kernel reads.

There are three kinds: chains of memory-bound calls in which the output of one is an input of the next; attention whose
scores pass through memory between two batched matmuls; and optimizers that update parameters one by one.
"""

from collections.abc import Mapping

import polars as pl

from trace_analyzer.analyses.device_models import of_device
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.modules import MODULE_CLASS
from trace_analyzer.analyses.roofline import known_sum, with_limits
from trace_analyzer.analyses.tensors import (
    calls_with_tensors,
    elements,
    operators_in_order,
    plain_operators,
    reads_previous,
    with_tensors,
)
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.catalog.devices import Device
from trace_analyzer.catalog.event_names import OPTIMIZER_STEP
from trace_analyzer.catalog.fixes import COMPILE, named_fusion
from trace_analyzer.frames import intervals, lookups
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.schema import PLACE, Table, columns
from trace_analyzer.sections import DEVICE_LABEL, WHOLE_TRACE, Section, Shown

FUSIONS = Table(
    "fusions",
    "Kernels that one kernel could replace, equal ones summed up; the most time saved first.",
    columns(
        """
        device
        kind str chain, attention or optimizer.
        what str What it is, in the user's terms.
        operators str Its operators in order; of an optimizer, its name.
        tensors str Shape and type of the tensors that need not go through memory.
        module str Class of the nn.Module around it; null when not recorded.
        function str The user's Python function around it; null when not recorded.
        count u32 How often it ran.
        kernel_count u32 Kernels in all of these runs.
        time_ns
        moved_bytes f64 Bytes that their calls read and write, by shapes; null for optimizers.
        byte_per_s f64 These bytes over the time: the bandwidth they achieve.
        saved_bytes f64 Bytes of these that need not move; null for optimizers.
        saves_ns f64 Time saved at most.
        how str How that was computed.
        code str What to write instead.
        """,
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
_FUSED = r"(?i)_fused_|fused_?(?:adam|sgd|adagrad|lamb)"
_TORCH = r"^(?:<|nn\.Module: |(?:.*/)?(?:torch|torchvision|functools|contextlib)(?:/|\.py))"
"""Frames of torch and of built-in functions: the innermost other frame is the user's code, or a model library's."""
_NAMED_CHARACTERS = 2_000
"""Number of characters of a chain for matching: its first operators determine its name, and matching takes quadratic
time."""
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
    activity_modules: pl.DataFrame,
    step_marks: pl.DataFrame,
    device_models: Mapping[int, Device | None],
) -> pl.DataFrame:
    """Return each run of kernels that one kernel could replace: the rows of table `fusions` before summing.

    ``places`` and ``activity_modules`` are those of `analyses.modules`: where in the program each activity was launched.
    """
    calls, tensors = calls_with_tensors(activities, trace.operator_inputs)
    attention = beyond_fused_roof(unfused_attention(calls, tensors), activities, device_models)
    updates = _updates(host, activities)
    taken = {"call": attention.select("call").explode("call"), "activity_id": updates}
    free = [~pl.col(key).is_in(rows.get_column(key).implode()) for key, rows in taken.items()]
    marks = step_marks.select("process_id", start_ns="host_start_ns").sort("process_id", "start_ns")
    step = intervals.last_started(calls, "launch_start_ns", marks, ["process_id"])
    chains = _chains(calls.with_columns(pl.all_horizontal("fusible", *free), step.alias("step")), tensors)
    runs = pl.concat([chains, attention.drop("call"), _optimizers(updates)], how="diagonal_relaxed")
    return _named(_located(host, runs, places, activity_modules)).select(
        pl.col(c).cast(dtype) for c, dtype in _RUN.items()
    )


def fusion_table(fusion_runs: pl.DataFrame) -> pl.DataFrame:
    """Return table `fusions`: runs summed, largest saving first."""
    frame = (
        fusion_runs.group_by(_ROW_KEYS, maintain_order=True)
        .agg(
            pl.col("what", "code", "how").first(),
            pl.len().alias("count"),
            pl.col("kernel_count", "time_ns", "moving_ns", "saves_ns").sum(),
            known_sum("moved_bytes"),
            known_sum("saved_bytes"),
            pl.col("start_ns", "end_ns").sort_by(intervals.LENGTH_NS).last(),
        )
        .with_columns(
            pl.when((pl.col("moving_ns") > 0) & (pl.col("moved_bytes") > 0))
            .then(pl.col("moved_bytes") / pl.col("moving_ns") * 1e9)
            .alias("byte_per_s")
        )
        .sort("saves_ns", "start_ns", descending=[True, False])
    )
    return FUSIONS.conform(frame)


def _chains(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """Find at least two consecutive fusible calls of a step, each of which reads the output of the previous one.

    Equal calls in a row, `_REPEATS` or more, show no chain by their shapes: they may be a loop over tensors, or one call
    repeated. A fused kernel does not write and read the tensors in between. The saving is the chain's time multiplied
    by their share of its bytes, at the bandwidth that its kernels achieve.
    """
    together = pl.all_horizontal(
        pl.col("step").eq_missing(pl.col("step").shift(1)),
        *(pl.col(c) == pl.col(c).shift(1) for c in (*_STREAM, "launch_thread")),
    )
    alike = pl.all_horizontal(pl.col(c) == pl.col(c).shift(1) for c in ("operator", "tensors"))
    equal = (together & alike).fill_null(False)
    again = equal & (pl.len().over((~equal).cum_sum()) >= _REPEATS)
    both = pl.col("fusible") & pl.col("fusible").shift(1)
    follows = (both & together & ~again & reads_previous(calls, tensors)).fill_null(False)
    return (
        calls.with_columns(follows.alias("follows"))
        .with_columns(
            (~pl.col("follows")).cum_sum().alias("chain"),
            pl.col("follows").shift(-1, fill_value=False).alias("between"),
        )
        .filter(pl.col("follows") | pl.col("between"))
        .pipe(with_tensors, tensors.drop("reads"))
        .pipe(plain_operators)
        .group_by("chain", maintain_order=True)
        .agg(
            pl.col("device", "activity_id", "start_ns").first(),
            pl.col("end_ns").max(),
            operators_in_order(),
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


def _updates(host: Host, activities: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels that steps of optimizers launch, and of which step; no rows of steps with a fused kernel."""
    steps = host.those((pl.col("kind") == "annotation") & pl.col("name").str.contains(OPTIMIZER_STEP)).select(
        pl.col("name").str.extract(OPTIMIZER_STEP).alias("optimizer"), "start_ns", "end_ns",
        launch_thread="thread_id", step_id="event_id",
    )  # fmt: skip
    kernels = activities.select(
        "kind", "bucket", "name", "operator", "device", "activity_id", "start_ns", "duration_ns", "launch_thread",
        "launch_start_ns",
    ).filter(pl.col("kind") == "kernel", pl.col("bucket") != "communication")  # fmt: skip
    inside = intervals.lookup_at(
        kernels, "launch_start_ns", steps, ["launch_thread"], ["step_id", "optimizer"]
    ).drop_nulls("step_id")
    fused = (pl.col("name").str.contains(_FUSED) | pl.col("operator").str.contains(_FUSED)).fill_null(False)
    foreach = pl.col("operator").str.contains("_foreach_").fill_null(False)
    labels = lookups.map_unique(inside.select("name", "operator"), fused.alias("fused"), foreach.alias("foreach"))
    return inside.hstack(labels).filter(~pl.col("fused").any().over("device", "step_id"))


def _optimizers(updates: pl.DataFrame) -> pl.DataFrame:
    """Find optimizer steps of several kernels: loops over parameters, or foreach.

    A fused kernel passes over parameters, gradients and state at least as often as the longest operator, so that at
    most the remaining time is saved.
    """
    operator_ns = pl.col("duration_ns").sum().over("step_id", "operator")
    return (
        updates.with_columns(operator_ns.alias("operator_ns"))
        .group_by("device", "step_id", maintain_order=True)
        .agg(
            pl.col("optimizer").first(),
            pl.col("activity_id").first(),
            pl.col("start_ns").min(),
            intervals.END_NS.max(),
            pl.len().alias("kernel_count"),
            pl.col("duration_ns").sum().alias("time_ns"),
            (pl.col("duration_ns").sum() - pl.col("operator_ns").max()).cast(pl.Float64).alias("saves_ns"),
            pl.when(pl.col("foreach").any()).then(pl.lit("foreach")).otherwise(pl.lit("loop")).alias("tensors"),
        )
        .filter(pl.col("saves_ns") > 0)
        .select(
            "device", "activity_id", "start_ns", "end_ns", "kernel_count", "time_ns", "saves_ns", "tensors",
            pl.col("optimizer").alias("operators"), pl.lit("optimizer").alias("kind"),
            pl.lit("all of the optimizer's time but that of its longest operator: a fused kernel is one pass").alias("how"),
        )
    )  # fmt: skip


def _located(host: Host, runs: pl.DataFrame, places: pl.DataFrame, modules: pl.DataFrame) -> pl.DataFrame:
    """Add the module class and the user's Python function of the first launch."""
    where = places.join(runs.select("activity_id").unique(), on="activity_id", how="semi")
    of_user = (pl.col("kind") == "python") & ~pl.col("name").str.contains(_TORCH)
    spans = host.those(of_user, "thread_id", "start_ns", "end_ns", "event_id").filter(
        pl.col("thread_id").is_in(where.get_column("thread_id").unique().implode())
    )
    inside = intervals.innermost_at(where, "time_ns", spans, "event_id").drop_nulls("event_id")
    functions = inside.select(
        "activity_id", host.texts(inside.get_column("event_id")).cast(pl.String).alias("function")
    )
    classes = modules.select("activity_id", MODULE_CLASS)
    return runs.join(classes, on="activity_id", how="left", maintain_order="left").join(
        functions, on="activity_id", how="left", maintain_order="left"
    )


def _named(runs: pl.DataFrame) -> pl.DataFrame:
    """Add the common name of each run, and its replacement."""
    patterns = runs.select("kind", "operators", "tensors")
    numbers, firsts = lookups.factorize(*patterns)
    words = [_words(*row) for row in patterns[firsts].iter_rows()]
    return runs.hstack(pl.DataFrame(words, {"what": pl.String, "code": pl.String}, orient="row")[numbers])


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
    """Format a chain as in source code, ``x.cos().cos()``; shorten repetitions and long chains."""
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


# Bound the saving of a fused kernel for unfused attention.


def beyond_fused_roof(
    attention: pl.DataFrame, activities: pl.DataFrame, devices: Mapping[int, Device | None]
) -> pl.DataFrame:
    """Return attention as `fusions` has it, with the most that a fused kernel saves.

    That is the time of the calls minus the fused kernel's roof.

    The roof is max(FLOP of both matmuls / peak of their type, bytes of q, k, v and the output / bandwidth): the
    roofline model of `analyses.roofline`. A causal kernel skips half of the pairs, so a mask halves the FLOP. Unknown
    figures count as 0.
    """
    runs = attention.with_row_index("run")
    ids = runs.select("run", "device", "products").explode("products", empty_as_null=True, keep_nulls=True)
    products = activities.filter(pl.col("operator_id").is_in(ids.get_column("products").implode()))
    compute = (
        with_limits(products, devices)
        .select("operator_id", (pl.col("flop") / pl.col("peak_flop_per_s") * 1e9).alias("compute_ns"))
        .group_by("operator_id")
        .agg(pl.col("compute_ns").sum())
    )
    sums = (
        ids.join(compute, left_on="products", right_on="operator_id", how="left")
        .group_by("run")
        .agg(pl.col("compute_ns").sum())
    )
    memory_ns = pl.col("fused_bytes") / pl.col("byte_per_s") * 1e9
    compute_ns = pl.col("compute_ns").fill_null(0) / pl.when("masked").then(2).otherwise(1)
    roof_ns = pl.max_horizontal(compute_ns, memory_ns.fill_null(0))
    return (
        runs.join(sums, on="run", how="left", maintain_order="left")
        .with_columns(of_device(devices, lambda device: device.bandwidth).alias("byte_per_s"))
        .with_columns(
            (pl.col("time_ns") - roof_ns).clip(lower_bound=0).cast(pl.Float64).alias("saves_ns"),
            pl.col("time_ns").alias("moving_ns"),
            pl.lit("attention").alias("kind"),
            pl.lit("time of all its calls, the two matmuls too, less that of a fused kernel at its roof").alias("how"),
        )
        .drop("run", "products", "masked", "fused_bytes", "compute_ns", "byte_per_s")
    )


# Find attention whose scores pass through memory between two batched matmuls.

_ATTENTION_CALLS = 12
"""Most calls between the two matmuls of one attention: scale, mask, softmax, dropout, casts, layout of the values."""
_BESIDE = [f"aten::{name}" for name in ("arange", "copy_", "fill_", "tril", "triu")]
"""Operators that make a mask, or copy scores or values; a fused kernel needs none of them."""
MASKS = frozenset(("add", "baddbmm", "masked_fill", "where"))
"""Operators that may mask scores, between the matmuls or in the first one."""


def unfused_attention(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """Find softmax between two batched matmuls: a fused kernel keeps the scores on the chip.

    The scores must be the first matmul's output and an input of the second (in the backward pass the second one), by number
    of elements. ``calls`` and ``tensors`` come from `tensors.calls_with_tensors`.
    """
    marked = _with_products(calls, tensors)
    softmax = _softmax_between(marked, tensors)
    between = softmax.select(
        "before", "after", "write_bytes", pl.int_ranges("before", pl.col("after") + 1).alias("position")
    ).explode("position")
    inner = (pl.col("position") > pl.col("before")) & (pl.col("position") < pl.col("after"))
    # A fused kernel reads q, k and v and writes the output. Of the second matmul's inputs, v is the one that is not the
    # scores; baddbmm's first input has the size of the scores, or is not read. Uncertain bytes are excluded, which
    # keeps the roof low.
    added = pl.when(pl.col("operator").first() == "baddbmm").then(pl.col("write_bytes").first()).otherwise(0)
    q_and_k = (pl.col("read_bytes").first() - added).clip(lower_bound=0)
    v = (pl.col("read_bytes").last() - pl.col("write_bytes").filter("inner").max()).clip(lower_bound=0).fill_null(0)
    fused_bytes = q_and_k + v + pl.col("write_bytes").last().fill_null(0)
    moved_bytes = (pl.col("read_bytes") + pl.col("write_bytes").fill_null(0)).sum()
    return (
        between.drop("write_bytes")
        .with_columns(inner.alias("inner"))
        .join(marked, on="position", how="inner", maintain_order="left")
        .pipe(with_tensors, tensors)
        .pipe(plain_operators)
        .group_by(pl.col("before").alias("first"), maintain_order=True)
        .agg(
            pl.col("device", "activity_id", "start_ns").first(),
            pl.col("end_ns").max(),
            operators_in_order(),
            pl.col("writes").first().alias("tensors"),
            pl.col("kernel_count", "time_ns").sum(),
            moved_bytes.alias("moved_bytes"),
            (moved_bytes - fused_bytes).clip(lower_bound=0).alias("saved_bytes"),
            fused_bytes.alias("fused_bytes"),
            (pl.col("operator").is_in(list(MASKS))).any().alias("masked"),
            pl.concat_list(pl.col("operator_id").first(), pl.col("operator_id").last()).alias("products"),
            pl.col("call").filter("inner"),
        )
        .drop("first")
    )


def _with_products(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """Add each call's index, whether it is a batched matmul, and the indices of the surrounding matmuls."""
    if not calls.get_column("is_softmax").any():
        calls = calls.clear()
    writes = tensors.get_column("writes").is_not_null()[calls.get_column("tensors")]
    product = pl.col("operator").is_in(["aten::bmm", "aten::baddbmm"]) & writes
    position = pl.int_range(pl.len(), dtype=pl.Int64)
    return calls.with_columns(product.fill_null(False).alias("product"), position.alias("position")).with_columns(
        pl.when("product").then("position").forward_fill().over(_STREAM).alias("before"),
        pl.when("product").then("position").backward_fill().over(_STREAM).alias("after"),
        (~pl.col("fusible") & ~pl.col("product") & ~pl.col("operator").is_in(_BESIDE).fill_null(False))
        .cum_sum()
        .alias("strangers"),
    )


def _softmax_between(marked: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """Return each softmax of scores that one matmul wrote and the next one reads, by the indices of the two."""
    sizes = with_tensors(marked.filter("product"), tensors).select(
        "position", "writes", "reads", "write_bytes", "strangers"
    )
    return (
        marked.filter("is_softmax", pl.col("after") - pl.col("before") <= _ATTENTION_CALLS)
        .pipe(with_tensors, tensors)
        .select("before", "after", elements=elements(pl.col("writes")))
        .join(sizes.rename({"position": "before"}), on="before", how="inner", suffix="_before")
        .join(
            sizes.select(pl.col("position").alias("after"), "reads", "strangers"),
            on="after",
            how="inner",
            suffix="_after",
        )
        .filter(
            pl.col("strangers") == pl.col("strangers_after"),
            pl.col("elements") == elements(pl.col("writes")),
            pl.any_horizontal(
                pl.col("elements") == elements(pl.col("reads_after").list.get(at, null_on_oob=True)) for at in range(3)
            ),
        )
        .unique("before", keep="first", maintain_order=True)
        .unique("after", keep="first", maintain_order=True)
    )


ANALYSES = (Value("fusion_runs", fusion_runs), Analysis(FUSIONS, fusion_table, placed=(FUSIONS_SECTION,)))
