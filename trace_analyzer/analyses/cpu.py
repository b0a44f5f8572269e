"""Say where the main thread of a trace without device work spends its time: data, Python, dispatch, operators."""

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

from trace_analyzer import analysis, schema, thresholds
from trace_analyzer.analyses.host import Context, Host
from trace_analyzer.analyses.left_out import with_states
from trace_analyzer.analyses.steps import HostSteps
from trace_analyzer.analyses.work import MATMUL_FORMULAS, Record, call_work
from trace_analyzer.catalog.event_names import CALLS, INDUCTOR_FILE, built_in_call, serving_steps
from trace_analyzer.catalog.fixes import OF_OPERATORS
from trace_analyzer.catalog.kernels import kernel_buckets
from trace_analyzer.frames.intervals import END_NS, LENGTH_NS, clip, cut_out, innermost, split_by
from trace_analyzer.frames.lookups import lookup, scatter
from trace_analyzer.sections import Section, Shown
from trace_analyzer.units import visible
from trace_analyzer.vocabulary import NAMED_WORK

CPU_TIME = schema.Table(
    "cpu_time",
    "Where the main thread of a trace without device work spends its steady steps, or its whole time; parts add up to it.",
    schema.columns("""
        part str A cause of idle time (data-loading, python, dispatch, host-unknown, ...), what operators do, tiny-operators, first-calls or stalled-operators.
        time_ns i64 Time in which an event of this kind is the innermost one.
        time_ratio f64 Share of the window.
        forward_ns i64 Part of it in the forward pass.
        backward_ns i64 Part of it in the backward pass.
        optimizer_ns i64 Part of it in the optimizer.
        count u32 Events with such time.
        operator str The event with the largest share of it; ``compiled code`` for all that Inductor generated.
    """),
)

UNRECORDED, DISPATCH, TINY, FIRST = "host-unknown", "dispatch", "tiny-operators", "first-calls"
STALLED = "stalled-operators"
_GENERATED = r"^## Call CompiledFxGraph|^<built-in function kernel>$"
"""Annotation around the code that Inductor generated, and each of its C++ functions (torch/_inductor/codecache.py)."""
COMPILED_CODE = "compiled code"
"""Its name in table `cpu_time`: that of a graph is a hash."""
_NO_WORK = r"""(?x) ^aten::_?(?: alias | as_strided | chunk | conj | detach | diagonal | empty | empty_like | empty_strided | expand | lift_fresh
    | movedim | narrow | new_empty | new_empty_strided | permute | reshape_alias | resolve_(?:conj|neg) | select | set | slice | split
    | split_with_sizes | squeeze | swapaxes | t | transpose | unbind | unfold | unsafe_view | unsqueeze | view | view_as_(?:complex|real)
    )_?$"""
"""Operators that make a view or allocate: however long they take, it is their call."""
_LEAST_CALLS = 4
"""Least number of calls of an operator that are compared: all of them where no shapes are known, else those of one shape."""
_STALLING = ["matmul", "pointwise", "normalization"]
"""Groups of operators whose work follows from their shapes: that of sorting or indexing depends on the data."""
_FILE = r"\.py\(\d+\): "
_CALLING = (
    rf"{INDUCTOR_FILE}|(?:^|/)torch/(?:__init__|autograd|functional|fx|nn|overrides|utils/(?:_config_module|_pytree|hooks)"
    r"|_(?:compile|dynamo|functorch|guards|higher_order_ops|inductor|library|logging|ops|subclasses|tensor))\b"
)
"""Files of PyTorch, and those that it writes, whose Python surrounds calls of modules, operators and compiled code."""
_ENGINE = r"^<built-in method run_backward of |^autograd::engine::evaluate_function: "
"""Autograd's engine in C++, which calls backward operators."""
_MESSAGE = r"^(gloo|mpi|ucc):"
"""Annotations of collectives on the CPU, on threads of their libraries (torch/csrc/distributed/c10d)."""
_NOT_COMPILED = r"^aten::(_sparse_\w*mm|gru|rnn_(tanh|relu))$"
"""Products of sparse matrices, which neither autocast nor Inductor handles, and recurrent layers that Dynamo leaves as they are."""
_TABLE_GRADIENT = r"^aten::_?embedding(_bag)?_dense_backward$"
"""Operators that make the gradient of an embedding's whole table, of which a batch changes few rows."""

_OF_DEVICES = "|".join([
    r"(?i)cuda|cudnn|cublas|miopen|hipblas|[nrh]ccl|triton_|::[xnh]pu|^xpu::|pin_memory|record_stream",
    r"_(flash|efficient)_attention(_forward|_backward)?$", *OF_OPERATORS.values(),
])  # fmt: skip
"""Operators and annotations of programs that use a device: a trace with these is no run on the CPU.

The CPU's attention is `_scaled_dot_product_flash_attention_for_cpu` (aten/src/ATen/native/native_functions.yaml)."""
_RUNS_ON_DEVICES = (
    r"torch[/\\](cuda|xpu)[/\\](graphs\.py\(\d+\): (replay|capture_begin)$|streams\.py)"
    r"|^<built-in function (_cuda_getCurrentRawStream|_empty_strided_cuda)>$"
)
"""Python frames of such programs: they use streams, events, graphs or memory of a device, and do not only ask for one."""
_ASKS_FOR_DEVICES = r"_is_acceptable$|::_use_\w+_ctc_loss$"
"""Operators that ask whether a library could be used, on the CPU too: `nn.LSTM` and `ctc_loss` call them first."""
_COMPILER_TIMER = r"( \(dynamo_timed\)|_data:.*)$"
"""What `torch._dynamo.utils.dynamo_timed` adds to the name of a compiler pass, which may name the devices that it is for."""


class CpuRun(Struct, frozen=True):
    """The main thread's window: its steps (0 for none), their bounds, and each piece of its time.

    ``pieces`` has start_ns, end_ns, event_id, kind, name, phase, part, bits (of the first operand, if it is of floats: 64,
    32 or 16; null for complex, quantized and sparse ones, and in recurrent layers; else 0), flop (of its whole event, where
    known), in_torch (whether the innermost file that Python runs is one of PyTorch that calls modules, operators or
    compiled code), of_table (whether it is part of the gradient of an embedding's whole table). Pieces add up to the
    window; event_id is null where nothing was recorded. ``others_ns`` is the time of other threads' operators.
    """

    steps: int
    step_kind: str
    """What they do, if a serving framework says so; else steady."""
    steps_from: str | None
    window_ns: int
    others_ns: int
    pieces: pl.DataFrame
    flop: float | None
    """FLOP of matmuls and convolutions in the window, and their time, ns; None where no shapes are known."""
    flop_ns: int
    rest_ns: Mapping[str, int]
    """Time of the thread outside of the window, from its first operator to its last, by part, ns; the largest is the last."""
    meant: str
    """What shows that the program uses a device, whose work is missing; "" for a run on the CPU."""


def cpu_run(
    activities: pl.DataFrame, context: Context, host_steps: HostSteps, operator_inputs: pl.DataFrame
) -> CpuRun | None:
    """Return the main thread's time; None for a trace with device work or without operators.

    The main thread is the one whose outermost operators take most time, of those with marks of steps if any has some: a
    thread that loads data may compute for longer than the loop that it loads for.
    """
    events = context.events
    is_generated = pl.col("name").str.contains(_GENERATED)
    is_operator = context.host.each(((pl.col("kind") == "operator") & ~pl.col("marks")) | is_generated)
    around = events.get_column("operator_id").gather(events.get_column("parent_id"))
    outer = events.filter(is_operator & around.is_null())
    if activities.height or outer.is_empty():
        return None
    is_marked = pl.col("thread_id").is_in(host_steps.marks.get_column("thread_id").implode())
    by_thread = outer.group_by("thread_id").agg(is_marked.first().alias("marked"), pl.col("duration_ns").sum())
    main = by_thread.sort("marked", "duration_ns", "thread_id").item(-1, "thread_id")
    own = events.filter(pl.col("thread_id") == main)
    whole, steady = _windows(own, host_steps.marks, outer.filter(pl.col("thread_id") == main))
    spans = steady.drop("step_kind") if steady.height else whole
    others = clip(
        outer.filter(pl.col("thread_id") != main).with_columns(pl.lit(main).alias("thread_id")), spans, ["thread_id"]
    )
    recorded = clip(innermost(own, ["thread_id"], "event_id"), whole, ["thread_id"])
    meant = _meant_device(context.host)
    pieces = _classified(recorded, context, is_operator, operator_inputs, meant).with_columns(
        recorded.get_column("thread_id")
    )
    messages = context.host.each((pl.col("kind") == "annotation") & pl.col("name").str.contains(_MESSAGE))
    pieces = _with_messages(pieces, events.filter(messages), whole, context)
    called = clip(pieces, spans, ["thread_id"])
    known = called.filter(pl.col("flop").is_not_null()).unique("event_id")
    rest = pl.concat([pieces.select("part", ns=LENGTH_NS), called.select("part", ns=-LENGTH_NS)])
    whole_ns, window_ns = (_total(one) for one in (whole, spans))
    silent = pl.DataFrame({"part": [UNRECORDED], "ns": [whole_ns - window_ns - rest.get_column("ns").sum()]})
    return CpuRun(
        steady.height,
        next(iter(steady.get_column("step_kind")), None) or "steady",
        host_steps.source if steady.height else None,
        window_ns,
        _total(others),
        called.drop("thread_id"),
        float(known.get_column("flop").sum()) if known.height else None,
        _total(called.filter(pl.col("event_id").is_in(known.get_column("event_id").implode()))),
        dict(pl.concat([rest, silent]).group_by("part").agg(pl.col("ns").sum()).sort("ns", "part").iter_rows()),
        meant,
    )


def _meant_device(host: Host) -> str:
    """Return a name that only programs on a device have; "" without one."""
    name = pl.col("name").cast(pl.String)
    timer = name.str.replace(_COMPILER_TIMER, "")
    passes = timer.is_in(timer.filter(name.str.ends_with(" (dynamo_timed)")).implode())
    uses = name.str.contains(_OF_DEVICES) & ~name.str.contains(_ASKS_FOR_DEVICES) & ~passes
    runs = (pl.col("kind") == "python") & name.str.contains(_RUNS_ON_DEVICES)
    using = host.names.filter(runs | (pl.col("kind").is_in(["operator", "annotation"]) & uses))
    named = using.get_column("name").cast(pl.String).sort().head(1).to_list()
    return visible(named[0]) if named else "it calls the runtime" if host.calls.height else ""


def _with_messages(pieces: pl.DataFrame, messages: pl.DataFrame, whole: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Return the pieces, with those added or renamed in which the thread shows nothing, and a collective is in progress.

    Libraries on the CPU send from threads of their own, for which the main thread waits.
    """
    columns = ["start_ns", "end_ns", "thread_id"]
    waits = clip(innermost(messages.select("start_ns", END_NS, message="event_id"), [], "message"), whole, [])
    known = pieces.sort("start_ns")
    cut = split_by(known.filter(pl.col("part") == UNRECORDED), waits, [], ["message"])
    silent = cut_out(waits, known, [])
    waited = pl.concat([cut.drop_nulls("message").select(*columns, "message"), silent.select(*columns, "message")])
    added = waited.rename({"message": "event_id"}).with_columns(
        context.host.texts(waited.get_column("message")).cast(pl.String).alias("name"),
        pl.lit("communication").alias("part"),
    )
    rest = [known.filter(pl.col("part") != UNRECORDED), cut.filter(pl.col("message").is_null()).drop("message")]
    return pl.concat([*rest, added], how="diagonal_relaxed").sort("start_ns")


def _total(spans: pl.DataFrame) -> int:
    return int(spans.select(LENGTH_NS.sum()).item())


def _windows(own: pl.DataFrame, marks: pl.DataFrame, outer: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return thread_id, start_ns, end_ns of all the thread's operators together, with the steady steps, and of each of
    these, with its step_kind.

    States are those of steps on a device, with operators for activities.
    """
    thread = pl.lit(own.item(0, "thread_id"), own.schema["thread_id"]).alias("thread_id")
    kinds = serving_steps(marks.get_column("name")).select("name", "step_kind")
    mine = marks.filter(pl.col("process_id") == own.item(0, "process_id")).sort("host_start_ns")
    mine = mine.join(kinds, on="name", how="left", maintain_order="left")
    starts = outer.get_column("start_ns").sort()
    counts = starts.search_sorted(mine.get_column("host_end_ns")) - starts.search_sorted(
        mine.get_column("host_start_ns")
    )
    steps = mine.select(
        pl.lit(0).alias("device"),
        pl.col("host_start_ns").alias("start_ns"),
        pl.col("host_end_ns").alias("end_ns"),
        counts.cast(pl.Int64).alias("activity_count"),
        pl.lit(False).alias("lost"),
        "step_kind",
    )
    steady = with_states(steps).filter("steady").select(thread, "start_ns", "end_ns", "step_kind")
    # Work of the same thread between operators is a part of the run; a module or frame around all of it is, too.
    worked = pl.concat([outer.select("start_ns", END_NS), steady.select("start_ns", "end_ns")])
    return worked.select(thread.first(), pl.col("start_ns").min(), pl.col("end_ns").max()), steady


def _classified(
    pieces: pl.DataFrame, context: Context, is_operator: pl.Series, operator_inputs: pl.DataFrame, meant: str
) -> pl.DataFrame:
    """Return the pieces with kind, name, phase, part and bits, and with the FLOP of their operator's call.

    What nothing names between operators is Python where its frames were recorded, else unknown. An operator passes its
    work on (``calls``) where it launches some or those within it take half of its time, else does it itself, as code that
    Inductor generated always does between the operators that it calls: a run under `thresholds.TINY_OPERATOR_NS`, or one
    whose shapes usually take so little, is hardly more than a call, and launches where a device is ``meant``. Where calls
    are missing, too, code of Inductor and operators whose work a device does launch; long copies wait for it. First calls
    that far outlast the median of their shapes, or of four or more calls where none are known, started threads or a
    library. Any that far outlast a tenth of the calls with their shapes, or multiply or move more slowly than any core
    does, stall: threads of theirs wait for cores.
    """
    events = context.events.with_columns(is_operator.alias("is_operator"))
    within = events.filter("is_operator").group_by("parent_id").agg(pl.col("duration_ns").sum()).drop_nulls("parent_id")
    inner = scatter(within.get_column("parent_id"), within.get_column("duration_ns"), events.height).fill_null(0)
    launching = events.filter(pl.col("kind").is_in(CALLS)).get_column("operator_id").drop_nulls().unique()
    generated = pl.col("name").str.contains(_GENERATED)
    passes_on = (2 * inner >= pl.col("duration_ns")) & ~context.host.each(generated)
    calls = (passes_on | pl.col("event_id").is_in(launching.implode())).alias("calls")
    # Named work includes all that is nested in it: a compiler's Python, a loader's operators.
    ranks = {name: rank for rank, name in enumerate(NAMED_WORK)}
    rank = events.get_column("work").replace_strict(ranks, default=len(ranks), return_dtype=pl.UInt8)
    named = pl.Series("named", NAMED_WORK)[context.tree.least(rank, len(ranks))]
    of_event = events.select("kind", "name", "phase", "duration_ns", "is_operator", calls, named)
    rows = pieces.hstack(of_event[pieces.get_column("event_id")]).with_columns(
        pl.col("name", "kind", "phase").cast(pl.String)
    )
    names = rows.filter("is_operator").select("name", pl.col("name").alias("operator")).unique()
    groups = kernel_buckets(names).select(
        "name", "bucket", pl.col("group").replace({"other": "other-operators"}).alias("group")
    )
    # A run of known shapes that takes longer than its median was probably interrupted: its work is that of the others.
    length, call = pl.col("duration_ns"), pl.struct("name", "input_dims", "input_types")
    usual = (
        pl.when(pl.col("input_dims").is_null())
        .then(length)
        .otherwise(pl.min_horizontal(length, length.median().over(call)))
    )
    # A later call that takes as long again is work, or an interruption.
    least = pl.max_horizontal(thresholds.FIRST_CALL_RATIO * length.quantile(0.5, "lower"), thresholds.FIRST_CALL_NS)
    is_known = pl.col("input_dims").is_not_null() | (pl.col("event_id").n_unique() >= _LEAST_CALLS)
    starts_up = (is_known & (length >= least)).cum_min().over(call, "calls")
    # Reference kernels multiply 16 bits more slowly than any core does FP32.
    types, dims = (pl.col(column).cast(pl.String) for column in ("input_types", "input_dims"))
    is_slow = types.str.contains(r'^\["(?:float|double)"') & (pl.col("flop") < thresholds.STALLED_FLOP_PER_NS * length)
    are_enough = pl.col("event_id").n_unique() >= _LEAST_CALLS
    shortest = pl.when(are_enough & dims.is_not_null().all()).then(length.quantile(0.1, "lower")).over(call)
    is_idle = pl.col("moved_bytes") < thresholds.STALLED_BYTES_PER_NS * length
    is_unusual = length >= thresholds.FIRST_CALL_RATIO * shortest
    stalls = (is_slow | is_idle | is_unusual) & (length >= thresholds.FIRST_CALL_NS) & (not meant)
    # Parameters are often drawn and filled on the CPU, before they go to the device.
    fills = pl.col("bucket").is_in(["rng_dropout", "fill"]) & (length >= thresholds.CPU_OPERATOR_NS)
    may_launch = (pl.col("group").is_in(_STALLING) & ~fills) | generated
    only_launches = may_launch & (bool(meant) and context.host.calls.is_empty())
    waits = only_launches & (pl.col("bucket") == "copy_cast") & (length >= thresholds.HOST_WAIT_NS)
    part = (
        pl.when(pl.col("named").is_not_null()).then("named")
        .when(pl.col("name").str.contains(_ENGINE)).then(pl.lit(DISPATCH))
        .when(pl.col("is_operator") & pl.col("calls")).then(pl.lit(DISPATCH))
        .when(pl.col("is_operator") & waits).then(pl.lit("blocking-copy"))
        .when(pl.col("is_operator") & starts_up).then(pl.lit(FIRST))
        .when(pl.col("is_operator") & (usual < thresholds.TINY_OPERATOR_NS)).then(pl.lit(DISPATCH if meant else TINY))
        .when(pl.col("is_operator") & (pl.col("name").str.contains(_NO_WORK) | only_launches)).then(pl.lit(DISPATCH))
        .when(pl.col("is_operator") & pl.col("group").is_in(_STALLING) & stalls).then(pl.lit(STALLED))
        .when("is_operator").then("group")
        .when(pl.col("kind") == "python").then(pl.lit("python"))
        .when(pl.col("kind").is_in(CALLS)).then(pl.lit("runtime-call"))
        .otherwise(pl.lit(UNRECORDED))
    )  # fmt: skip
    inputs = lookup(operator_inputs, rows, "event_id").select(
        "input_dims", "input_types", "input_strides", "concrete_inputs"
    )
    typed = rows.join(groups, on="name", how="left", maintain_order="left").hstack(inputs)
    typed = typed.hstack(_work(typed))
    # Numbers of Python are FP64 tensors without dimensions.
    is_double = types.str.starts_with('["double"') & ~dims.str.starts_with("[[]")
    is_half = types.str.contains(r'^\["c10::(BFloat16|Half)"')
    is_single = types.str.starts_with('["float"')
    # Neither autocast nor Inductor computes with complex or quantized numbers.
    is_other = types.str.contains(r'^\["c10::(complex|q)') | pl.col("name").str.contains("^quantized::")
    floats = pl.when(is_double).then(64).when(is_half).then(16).when(is_single).then(32).otherwise(0)
    left = context.tree.nearest(context.host.each(pl.col("name").str.contains(_NOT_COMPILED)))[
        rows.get_column("event_id")
    ]
    bits = pl.when(~is_other.fill_null(False) & left.is_null()).then(floats)
    frames = context.tree.nearest(context.host.each((pl.col("kind") == "python") & pl.col("name").str.contains(_FILE)))
    files = context.host.texts(frames[rows.get_column("event_id")]).cast(pl.String)
    tables = context.tree.nearest(context.host.each(pl.col("name").str.contains(_TABLE_GRADIENT)))
    return typed.with_columns(
        built_in_call(pl.col("name")),
        part.alias("part"),
        bits.alias("bits"),
        files.str.contains(_CALLING).fill_null(False).alias("in_torch"),
        tables[rows.get_column("event_id")].is_not_null().alias("of_table"),
    ).select("start_ns", "end_ns", "event_id", "kind", "name", "phase", "part", "bits", "flop", "in_torch", "of_table")


def _work(rows: pl.DataFrame) -> pl.DataFrame:
    """Return flop and moved_bytes by the recorded shapes, of operators that call no other: of matmuls and convolutions
    the FLOP, of long ones of `_STALLING` the bytes.
    """
    call = ["name", "input_dims", "input_types", "input_strides", "concrete_inputs"]
    is_matmul = pl.col("name").is_in(list(MATMUL_FORMULAS))
    is_long = pl.col("group").is_in(_STALLING) & ~is_matmul & (pl.col("duration_ns") >= thresholds.FIRST_CALL_NS)
    asked = rows.select(pl.when(~pl.col("calls") & (is_matmul | is_long)).then("name"), *call[1:]).cast(pl.String)
    unique = asked.drop_nulls("name").unique()
    works = [call_work(Record(*row)).work for row in unique.iter_rows()]
    known = [(work.flop, None if work.least else work.moved_bytes) if work else (None, None) for work in works]
    figures = pl.DataFrame(known, {"flop": pl.Float64, "moved_bytes": pl.Float64}, orient="row")
    of_call = unique.hstack(figures).with_columns(pl.when(is_matmul).then("flop").alias("flop"))
    return asked.join(of_call, on=call, how="left", nulls_equal=True, maintain_order="left").select(figures.columns)


def cpu_time(cpu_run: CpuRun | None) -> pl.DataFrame:
    """Return table `cpu_time`, longest part first."""
    if cpu_run is None:
        return CPU_TIME.empty()
    name = pl.when(pl.col("name").str.contains(_GENERATED)).then(pl.lit(COMPILED_CODE)).otherwise("name")
    pieces = cpu_run.pieces.with_columns(LENGTH_NS.alias("time_ns"), name.alias("name"))
    by_name = (
        pieces.group_by("part", "name").agg(pl.col("time_ns").sum()).sort("time_ns", "name", descending=[True, False])
    )
    leading = (
        by_name.filter(pl.col("part") != UNRECORDED)
        .unique("part", keep="first")
        .select("part", pl.col("name").alias("operator"))
    )
    phases = (
        pl.col("time_ns").filter(pl.col("phase") == phase).sum().alias(f"{phase}_ns")
        for phase in ("forward", "backward", "optimizer")
    )
    sums = pieces.group_by("part").agg(
        pl.col("time_ns").sum(), *phases, pl.col("event_id").n_unique().cast(pl.UInt32).alias("count")
    )
    rest = cpu_run.window_ns - sums.get_column("time_ns").sum()
    silent = pl.DataFrame({"part": [UNRECORDED], "time_ns": [rest]})
    frame = (
        pl.concat([sums, silent], how="diagonal_relaxed")
        .fill_null(0)
        .group_by("part")
        .agg(pl.all().sum())
        .filter(pl.col("time_ns") > 0)
        .join(leading, on="part", how="left")
        .with_columns((pl.col("time_ns") / max(1, cpu_run.window_ns)).alias("time_ratio"))
        .sort("time_ns", "part", descending=[True, False])
    )
    return CPU_TIME.conform(frame)


SECTION = Section(
    "Where the main thread's time goes",
    "Each instant counts once, by its innermost event.",
    show=(
        Shown("part", "part", "part", 0, markdown=True),
        Shown("time_ratio", "share", "share", 0, markdown=True),
        Shown("time_ns", "time", terminal=0, markdown=True),
        Shown("forward_ns", "forward", terminal=76, markdown=True, unless_zero=True),
        Shown("backward_ns", "backward", terminal=76, markdown=True, unless_zero=True),
        Shown("optimizer_ns", "optimizer", terminal=76, markdown=True, unless_zero=True),
        Shown("count", "events", terminal=92, markdown=True),
        Shown("operator", "led by", "name", terminal=100, markdown=True),
    ),
)

ANALYSES = (analysis.Value("cpu_run", cpu_run), analysis.Analysis(CPU_TIME, cpu_time, json="cpu_time", section=SECTION))
