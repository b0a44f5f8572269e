"""Gather the inputs of the rules: the verdict, and the tables of its window."""

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import polars as pl
from msgspec import Struct

from trace_analyzer import thresholds
from trace_analyzer.analyses.blame import Attribution
from trace_analyzer.analyses.host import Context, Host
from trace_analyzer.analyses.left_out import cold_idle
from trace_analyzer.analyses.modules import MODULE_CLASS
from trace_analyzer.analysis import Value
from trace_analyzer.catalog import event_names
from trace_analyzer.catalog.devices import Device
from trace_analyzer.catalog.fixes import Platform, Program, platform_of
from trace_analyzer.findings import DeviceFindings
from trace_analyzer.frames.intervals import LENGTH_NS, clip, cut_out, filter_inside, split_by, union
from trace_analyzer.frames.lookups import lookup, lookup_inner, map_unique, where_equal
from trace_analyzer.report import Verdict
from trace_analyzer.report.summaries import judged_parts
from trace_analyzer.vocabulary import shortened_by
from trace_analyzer.windows import Judged

_ACTIVITY = (
    "activity_id", "kind", "name", "device", "stream", "start_ns", "duration_ns", "bytes", "launch_id", "operator_id",
    "operator", "bucket", "group", "bound", "dtype", "flop", "moved_bytes", "blocks", "tiles",
)  # fmt: skip
"""Columns of activities that rules use."""
_IDLE = ("gap_id", "device", "start_ns", "end_ns", "cause", "event_id", "code")
"""Columns of idle time that rules use."""


class WindowTables(NamedTuple):
    """The tables of a device's window, independent of its verdict.

    ``activities`` are those that start in the window, with the thread and the time of their launch, the class of their
    ``module``, whether they are ``recomputed``, and what a fused one is made of (``fused``); ``collectives``, ``roofs`` and ``missed`` (matmuls and convolutions
    that could use tensor cores better) belong to these activities. ``fusions`` are the runs of kernels that start in
    the window. ``gaps`` has a row per gap, with the activity that waited and its name. ``shapes`` has the shapes of
    operators' arguments as JSON text, and the process group's description, for the whole trace.
    """

    gaps: pl.DataFrame
    activities: pl.DataFrame
    collectives: pl.DataFrame
    roofs: pl.DataFrame
    missed: pl.DataFrame
    fusions: pl.DataFrame
    shapes: pl.DataFrame


def window_tables(
    judged: Judged | None, launches: pl.DataFrame, activities: pl.DataFrame, activity_modules: pl.DataFrame,
    rated: pl.DataFrame, fused_kernels: pl.DataFrame, gaps: pl.DataFrame, collectives: pl.DataFrame, roofs: pl.DataFrame,
    tensor_core_misses: pl.DataFrame, fusion_runs: pl.DataFrame, operator_inputs: pl.DataFrame,
) -> WindowTables | None:  # fmt: skip
    """Return the tables of the verdict's window; None where no device worked."""
    if judged is None:
        return None
    device, spans = judged.device, judged.spans
    launched = launches.select(
        "launch_id", "activity_count", pl.col("thread_id").alias("launch_thread"), pl.col("start_ns").alias("launch_ns")
    )
    own = filter_inside(where_equal(activities.select(_ACTIVITY), "device", device), "start_ns", spans, ["device"])
    modules, ids = activity_modules.select("activity_id", "module"), own.select("activity_id")
    classes = modules.with_columns(map_unique(modules.select("module"), MODULE_CLASS.cast(pl.Categorical)))
    names = activities.get_column("name")
    return WindowTables(
        gaps=gaps.select("gap_id", "activity_id", names[gaps.get_column("activity_id")]),
        activities=own.hstack(lookup(launched, own, "launch_id"))
        .hstack(lookup(classes, own, "activity_id"))
        .hstack(lookup(rated.select("activity_id", "recomputed"), own, "activity_id"))
        .join(_provenance(fused_kernels), on="name", how="left", maintain_order="left"),
        collectives=lookup_inner(collectives, ids, "activity_id"),
        roofs=lookup_inner(roofs, ids, "activity_id"),
        missed=lookup_inner(tensor_core_misses, ids, "activity_id"),
        fusions=filter_inside(where_equal(fusion_runs, "device", device), "start_ns", spans, ["device"]),
        shapes=operator_inputs.select(
            pl.col("event_id").alias("operator_id"), "input_dims", "process_group_description"
        ),
    )


def _provenance(fused_kernels: pl.DataFrame) -> pl.DataFrame:
    """Return name, fused: each kernel that Inductor generated with its operators and the file of its code."""
    file = pl.coalesce(pl.format(", in {}", "kernel_file"), pl.lit(""))
    return fused_kernels.select(
        pl.col("name").cast(pl.Categorical), pl.format("{}, which fuses {}{}", "name", "fuses", file).alias("fused")
    )


def replayed_ratio(activities: pl.DataFrame) -> float:
    """Return the share of activities that graph launches enqueued."""
    launched = activities.drop_nulls("launch_id")
    return launched.filter(pl.col("activity_count") > 1).height / launched.height if launched.height else 0.0


class AdviceContext(Struct, frozen=True, dict=True):
    """The inputs of the rules: the verdict, and the tables of its window (``within``).

    ``regimes`` are the verdict's regime and its runner-up. ``has_steps`` says whether the window has steps, whose number is
    ``steps``. ``idle`` and ``cold`` are its idle intervals outside and inside a cold start, with a row of ``codes``, as in
    `trace_analyzer.analyses.blame.Attribution`. ``busy_parts`` are the busy parts of the window's partition, ``step_spans`` (start_ns, end_ns) its steps, and ``recompiled`` the number of regions that had
    been compiled before. ``names`` are those of all activities of the trace. ``around`` is the context of host events.
    ``profiler`` is what recorded, None for PyTorch Profiler.
    ``peer_wait_ratio`` is that of `trace_analyzer.findings.DeviceFindings`.
    ``program`` is the kind of program that the trace shows, None where it is unknown.
    ``is_torch_1`` says whether the file shows a release before PyTorch 2.0, ``is_compiled`` whether TorchInductor made
    any of its code, ``is_scripted`` whether TorchScript ran any.
    """

    within: WindowTables
    verdict: Verdict
    regimes: frozenset[str]
    window_ns: int
    busy_parts: pl.DataFrame
    codes: pl.DataFrame
    idle: pl.DataFrame
    cold: pl.DataFrame
    host: Host
    steps: int
    has_steps: bool
    step_spans: pl.DataFrame
    recompiled: int
    model: Device | None
    peer_wait_ratio: float | None
    platform: Platform
    names: pl.Series
    around: Context
    profiler: str | None
    program: Program | None
    is_torch_1: bool
    is_compiled: bool
    is_scripted: bool

    @cached_property
    def launch_count(self) -> int:
        """Return the number of launches of the window's activities."""
        return self.within.activities.get_column("launch_id").drop_nulls().n_unique()

    @property
    def replays_graphs(self) -> bool:
        """Return whether graphs launch nearly all of the window's work in a program that no compiler made graphs of."""
        return not self.is_compiled and replayed_ratio(self.within.activities) > thresholds.REPLAYED_RATIO

    @cached_property
    def wait_count(self) -> int:
        """Return the number of calls that wait for the device, made by its threads in the steps, else between the window's launches."""
        launches = self.within.activities.drop_nulls("launch_ns").get_column("launch_ns")
        window = pl.DataFrame({"start_ns": launches.min(), "end_ns": launches.max()}, schema=self.step_spans.schema)
        # On AMD a copy of PyTorch waits in one call; CUDA's waits in a synchronize of its own.
        waits = r"(Stream|Device|Event)Synchronize$|^(cuda|hip)Memcpy(WithStream)?$"
        calls = self.host.calls_of(pl.col("name").str.contains(waits))
        made = calls.filter(pl.col("thread_id").is_in(self.launch_threads.implode()))
        return filter_inside(made, "start_ns", self.step_spans if self.has_steps else window, []).height

    @cached_property
    def optimizer(self) -> str:
        """Return the class whose ``Optimizer.step`` takes most of the host's time; "" where the trace names none."""
        steps = self.host.those(pl.col("name").str.contains(event_names.OPTIMIZER_STEP), "name", "duration_ns")
        sums = steps.group_by(pl.col("name").str.extract(event_names.OPTIMIZER_STEP).alias("class")).agg(
            pl.col("duration_ns").sum()
        )
        return str(sums.sort("duration_ns", "class", descending=[True, False]).get_column("class").first() or "")

    @property
    def half(self) -> str:
        """Return torch's name of the 16-bit type to compute in: fp16 on a device that is known to have no bf16."""
        return "float16" if self.model is not None and not self.model.peak_flops("bf16") else "bfloat16"

    @property
    def launch_threads(self) -> pl.Series:
        """Return the threads that launch the window's activities."""
        return self.within.activities.get_column("launch_thread").drop_nulls().unique()

    @cached_property
    def silences(self) -> pl.DataFrame:
        """Return start_ns, end_ns: 1 ms and more in which no launching thread is in an operator or a call."""
        calls = self.host.events.filter(
            pl.col("thread_id").is_in(self.launch_threads.implode()),
            pl.col("kind").is_in(["operator", *event_names.CALLS]) & ~pl.col("marks"),
        )
        silent = union(calls, []).select(start_ns="end_ns", end_ns=pl.col("start_ns").shift(-1))
        return silent.filter(LENGTH_NS >= thresholds.CPU_OPERATOR_NS)

    @property
    def launching_idle(self) -> pl.DataFrame:
        """Return the idle time of launches and of the operators around them, without silences: what a graph saves."""
        # Cut first: silences are most of it where Python is the limit.
        working = cut_out(self.idle, self.silences, [])
        return working.filter(pl.col("cause").is_in(shortened_by("cuda-graphs")))

    @cached_property
    def prepared(self) -> pl.Series:
        """Return the data that the CPU prepares in each interval of ``idle`` outside of launching operators, or null."""
        by_event = self.host.each(event_names.preparation_of(pl.col("name")), self.idle.get_column("event_id"))
        function = pl.col("python_function").cast(pl.String)
        by_function = self.codes.select(event_names.preparation_of(function)).to_series()[self.idle.get_column("code")]
        kind = pl.coalesce(by_event.alias("prepared"), by_function)
        return self.idle.select(pl.when(~self.is_launching.fill_null(False)).then(kind)).to_series()

    @property
    def is_launching(self) -> pl.Expr:
        """Return whether operator ``event_id`` launches activities of the window; null without an event."""
        return pl.col("event_id").is_in(self.within.activities.get_column("operator_id").drop_nulls().implode())


def window_attribution(attribution: Attribution, judged: Judged | None) -> Attribution | None:
    """Attribute the idle time of the verdict's window to code; None where no device worked."""
    return None if judged is None else attribution.within(judged.spans)


def advice_context(
    verdict: Verdict, judged: Judged | None, window_tables: WindowTables | None, window_attribution: Attribution | None,
    gaps: pl.DataFrame, first_launches: pl.DataFrame, activities: pl.DataFrame, busy_parts: pl.DataFrame,
    device_steps: pl.DataFrame, host_costs: pl.DataFrame, host: Host, context: Context,
    device_findings: Mapping[int, DeviceFindings], device_models: Mapping[int, Device | None],
) -> AdviceContext | None:  # fmt: skip
    """Gather the inputs of the rules; None without a regime."""
    if verdict.regime is None or judged is None or window_tables is None or window_attribution is None:
        return None
    device, model = judged.device, device_models.get(judged.device)
    names = [host.names.get_column("name").cast(pl.String), activities.get_column("name").unique().cast(pl.String)]
    idle, is_cold = _unrecorded(window_attribution.intervals.select(_IDLE), verdict), verdict.cause == "cold-start"
    cold = idle.clear()
    if is_cold:
        cold = cold_idle(idle, where_equal(gaps, "device", device), first_launches)
    else:
        idle = _with_captures(idle, host)
    calls = host.names.filter(pl.col("kind").is_in(event_names.CALLS))
    return AdviceContext(
        within=window_tables,
        verdict=verdict,
        regimes=frozenset(filter(None, (verdict.regime, verdict.runner_up))),
        window_ns=sum(judged_parts(verdict).values()),
        busy_parts=clip(where_equal(busy_parts, "device", device), judged.spans, ["device"]),
        codes=window_attribution.codes,
        idle=idle.join(cold, on=["gap_id", "start_ns"], how="anti", maintain_order="left") if is_cold else idle,
        cold=cold,
        host=host,
        steps=judged.window.step_count,
        has_steps=bool(judged.window.steps),
        step_spans=where_equal(device_steps, "device", device)
        .filter(pl.col("index").is_in(judged.window.steps))
        .select("start_ns", "end_ns"),
        recompiled=host_costs.filter(pl.col("kind") == "recompilation").height,
        model=model,
        peer_wait_ratio=device_findings[device].peer_wait_ratio,
        platform=platform_of(model.vendor if model else None, calls.get_column("name")),
        names=activities.get_column("name"),
        around=context,
        profiler=device_findings[device].profiler,
        program=_program(host.names, *names),
        is_torch_1=_is_torch_1(host, context),
        is_compiled=_shows(names, BY_INDUCTOR),
        is_scripted=_shows(names, BY_TORCHSCRIPT),
    )


_SEEDS = 8
"""Most launches between the wait by which ``torch.cuda.graph`` begins and its capture: it sets the generators' seeds."""


def captures_of(host: Host) -> pl.DataFrame:
    """Return the calls that begin captures: start_ns, and begun_ns, the start of the wait by which ``torch.cuda.graph`` began."""
    calls = host.calls_of(pl.col("name").str.contains("StreamBeginCapture|DeviceSynchronize$|Launch"))
    name, order = host.names.get_column("name")[calls.get_column("name_id")], ["thread_id", "start_ns"]
    calls = calls.select(*order, name.cast(pl.String)).sort(order).with_row_index("row")
    waited = pl.when(pl.col("name").str.ends_with("Synchronize")).then(pl.struct("row", "start_ns")).forward_fill()
    captures = calls.with_columns(waited.over("thread_id").alias("wait")).filter(pl.col("name").str.contains("Capture"))
    near = pl.col("row") - pl.col("wait").struct["row"] <= _SEEDS
    return captures.select("start_ns", pl.when(near).then(pl.col("wait").struct["start_ns"]).alias("begun_ns"))


def _with_captures(idle: pl.DataFrame, host: Host) -> pl.DataFrame:
    """Charge to a capture what ``torch.cuda.graph`` does before it: it waits, collects garbage and empties the cache itself."""
    begun = captures_of(host).drop_nulls("begun_ns").select(start_ns="begun_ns", end_ns="start_ns")
    pieces = split_by(idle, union(begun, []).with_columns(pl.lit(True).alias("begins")), [], ["begins"])
    cause = pl.when("begins").then(pl.lit("graph-capture", idle.schema["cause"])).otherwise("cause").alias("cause")
    return pieces.with_columns(cause).select(idle.columns)


def _unrecorded(idle: pl.DataFrame, verdict: Verdict) -> pl.DataFrame:
    """Return the idle intervals without what recording took of their cause: each keeps its last part."""
    judged = judged_parts(verdict)
    if judged is verdict.parts_ns:
        return idle
    left = {part: judged[part] / ns for part, ns in verdict.parts_ns.items() if ns}
    kept = pl.col("cause").cast(pl.String).replace_strict(left, default=1.0, return_dtype=pl.Float64)
    length = (LENGTH_NS * kept).round().cast(pl.Int64)
    return idle.with_columns((pl.col("end_ns") - length).alias("start_ns"))


def _is_torch_1(host: Host, context: Context) -> bool:
    """Return whether the file shows PyTorch 1: stacks as text (until 1.12), or scopes as operators (until 1.10)."""
    is_scope = (pl.col("kind") == "operator") & pl.col("name").str.contains(event_names.SCOPES_OF_TORCH)
    return not context.stacks.is_empty() or not host.names.filter(is_scope).is_empty()


COMPILED = r"^Torch-Compiled Region|^## Call CompiledFxGraph"
"""Names that Dynamo and Inductor give to their compiled code at run time."""
BY_INDUCTOR = rf"{COMPILED}|^CompiledFunction(Backward)?$|{event_names.INDUCTOR_FILE}|^triton_(poi|red|per|tem|for)_|^triton__0d|^nn\.Module: OptimizedModule_\d+$|torch/_dynamo/eval_frame\.py\(\d+\): compile_wrapper$"
"""The same, files that Inductor writes, names of its kernels, and what calls them, also where no code could be compiled."""
OF_SCRIPTED = "of the module itself, instead of torch.jit.script"


BY_TORCHSCRIPT = r"^(prim::\w+|TensorExpr\w*|fallback_function|fused_\w+_\d{9,})$|torch[/\\]jit[/\\]_script\.py\(\d+\): (__call__|forward)$|^<built-in method \w* ?of ScriptMethod"
"""Operators of TorchScript, groups that its fusers made, and frames that call its methods."""


def _shows(names: list[pl.Series], pattern: str) -> bool:
    """Return whether a host event or an activity has a name that matches the pattern."""
    return any(texts.str.contains(pattern).any() for texts in names)


GRADIENTS = ("backward", "optimizer")
"""Phases that occur in training only."""
_GRADIENT_KERNELS = r"(?i)backward|[_-]bwd|wgrad|adam"
"""Names of kernels for gradients and optimizers.

Kernels for gradients of inputs (dgrad) are not among them, as transposed convolutions use them in inference.
"""

_ENGINES = r"(^|[/ ])(vllm|sglang|tensorrt_llm)/|\b(vllm|sgl_kernel|trtllm)::"
"""Files, operators and kernels of inference engines for language models."""


def _program(host_names: pl.DataFrame, texts: pl.Series, kernels: pl.Series) -> Program | None:
    """Return the kind of program: training; inference, where operators but no training were recorded; else None."""
    if host_names.get_column("phase").is_in(GRADIENTS).any() or kernels.str.contains(_GRADIENT_KERNELS).any():
        return "training"
    if pl.concat([texts, kernels]).str.contains(_ENGINES).any() or event_names.serving_steps(texts).height:
        return "serving"
    return "inference" if (host_names.get_column("kind") == "operator").any() else None


VALUES = (
    Value("window_tables", window_tables),
    Value("window_attribution", window_attribution),
    Value("advice_context", advice_context),
)
