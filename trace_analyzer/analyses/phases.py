"""Divide steps: into data loading, forward pass, backward pass, optimizer, and the rest; of serving frameworks, by kind.

Prefill is compute-heavy and decoding is memory-heavy, so that one verdict for both would describe neither.
"""

import polars as pl

from trace_analyzer.analyses.chart_data import longest_intervals
from trace_analyzer.analyses.host import Context, Host
from trace_analyzer.analyses.roofline import known_sum
from trace_analyzer.analyses.steps import HostSteps, device_steps, outermost
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.catalog.event_names import DATA_LOADING, STEP_KINDS, serving_steps
from trace_analyzer.frames.intervals import (
    LENGTH_NS,
    clip,
    coalesce,
    cut_out,
    innermost,
    lookup_at,
    union,
    with_covered,
)
from trace_analyzer.schema import Table, columns
from trace_analyzer.sections import Section, Shown
from trace_analyzer.units import NS_PER_S
from trace_analyzer.vocabulary import EARLIER_WORK

SERVING = Table(
    "serving",
    "Steps of serving frameworks, summed up by what they do.",
    columns("""
        device
        step_kind str prefill, decode or mixed, from the annotation.
        count u32 Steps that launched work on the device.
        time_ns i64 Sum of their durations on the device, without work from before the recording.
        median_ns i64 Median of these.
        busy_ns i64 Part of that time in which the device worked.
        prefill_tokens i64 Tokens of prompts in the steps whose annotations have sizes; null for none.
        decode_tokens i64 Tokens of running requests in these.
        prefill_keys i64 Lengths of the keys and values that the prompts' tokens attend to, summed over requests.
        decode_keys i64 The same of running requests: decoding reads all of these from the cache.
        tokens_per_s f64 All tokens of these over their time.
        regime str What limits the steps of this kind; null when it is not known.
        cause str Cause within that regime.
        runner_up str Regime that came close to it, if any.
        confidence str high, medium or low: how sure that is; null without a regime.
        headline str What limits them, in one sentence; null where it is not known.
    """),
)

_STEP = ["process_id", "index", "name", "host_start_ns", "host_end_ns"]
_SUMS = ("prefill_tokens", "decode_tokens", "prefill_keys", "decode_keys")
_SIZES = (*_SUMS, "tokens")


def serving_marks(host: Host) -> pl.DataFrame:
    """Return the annotated steps in order: process_id, index, name, host_start_ns, host_end_ns, step_kind and tokens.

    Of nested annotations, such as those of two layers of a framework, the outermost is the step.
    """
    named = host.names.filter(pl.col("kind").is_in(["annotation", "operator"]))
    known = serving_steps(named.get_column("name"))
    ids = named.join(known, on="name").get_column("name_id")
    events = (
        host.those(pl.col("name_id").is_in(ids.implode()))
        .join(known, on="name", how="inner", maintain_order="left")
        .sort("process_id", "start_ns", pl.col("end_ns"), descending=[False, False, True], maintain_order=True)
        .with_columns(host_start_ns="start_ns", host_end_ns="end_ns")
    )
    number = pl.int_range(pl.len(), dtype=pl.Int64).over("process_id").alias("index")
    return outermost(events, "process_id").with_columns(number).select(*_STEP, "step_kind", *_SIZES)


def annotated_steps(
    serving_marks: pl.DataFrame, linked_events: pl.DataFrame, kernel_launches: pl.DataFrame, idle_causes: pl.DataFrame
) -> pl.DataFrame:
    """Return the steps on each device with busy_ns, earlier_ns, activity_count, step_kind and tokens.

    Bounds on a device are those of table `steps`; ``earlier_ns`` is work from before the recording, which belongs to no
    step.
    """
    spans = device_steps(serving_marks.select(_STEP), linked_events, kernel_launches)
    kinds = serving_marks.select("name", "host_start_ns", "step_kind", *_SIZES).unique(
        ["name", "host_start_ns"], keep="first", maintain_order=True
    )
    worked = spans.filter(pl.col("activity_count") > 0, pl.col("start_ns") < pl.col("end_ns"))
    earlier = idle_causes.filter(pl.col("cause") == EARLIER_WORK).select("device", "start_ns", "end_ns")
    columns = ["device", "index", "start_ns", "end_ns", "busy_ns", "earlier_ns", "activity_count", "step_kind", *_SIZES]
    steps = with_covered(worked.drop("step_kind"), earlier, ["device"], "earlier_ns")
    return steps.join(kinds, on=["name", "host_start_ns"], how="inner", maintain_order="left").select(columns)


def serving_table(annotated_steps: pl.DataFrame, serving_verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return table `serving`: the steps of each kind on each device, with their verdicts (device, step_kind, regime, ...)."""
    length = LENGTH_NS - pl.col("earlier_ns")
    sized = pl.col("tokens").is_not_null()
    sums = annotated_steps.group_by("device", "step_kind").agg(
        pl.len().alias("count"),
        length.sum().alias("time_ns"),
        length.median().round().alias("median_ns"),
        pl.col("busy_ns").sum(),
        *map(known_sum, _SUMS),
        pl.when(sized.any()).then(pl.col("tokens").sum() * NS_PER_S / length.filter(sized).sum()).alias("tokens_per_s"),
    )
    order = pl.col("step_kind").replace_strict({kind: n for n, kind in enumerate(STEP_KINDS)}, return_dtype=pl.Int8)
    return SERVING.conform(
        sums.join(serving_verdicts, on=["device", "step_kind"], how="left").sort("device", order, maintain_order=True)
    )


SERVING_SECTION = Section(
    "Serving steps",
    "Prefill computes, decoding reads weights: each kind of step is judged by itself.",
    show=(
        "step_kind",
        "count",
        "time_ns",
        "median_ns",
        "busy_ns",
        Shown("prefill_tokens", "prefill tokens", unless_zero=True),
        Shown("decode_tokens", "decode tokens", unless_zero=True),
        "tokens_per_s",
        "regime",
        "cause",
        "confidence",
        Shown("headline", "verdict", markdown=True),
    ),
)


PHASE_INTERVALS = Table(
    "phase_intervals",
    "Phases of steps on the host, in order and without overlaps: of the main thread, and of autograd's threads beside it.",
    columns("""
        process_id i32 Process, as in `threads`.
        thread_id i32 The process's main thread, a row of `threads`.
        step i64 `index` of the step.
        phase str data-loading, forward, backward or optimizer.
        start_ns end_ns
    """),
)

STEP_PHASES = Table(
    "step_phases",
    "Host time and device time of each step by phase.",
    columns("""
        device
        step i64 `index` of the step.
        phase str data-loading, forward, backward, optimizer, or other.
        host_ns i64 Time of the step on the host; phases and other add up to the step's annotation.
        device_ns i64 Durations of the activities that it launched and that started in the step's window on the device.
    """),
)

MEAN_PHASES = Table(
    "phases",
    "Phases of a step: the mean of the steady steps, else of whole ones after the first, else the first.",
    columns("""
        device
        phase str data-loading, forward, backward, optimizer, or other.
        host_ns i64 Time of a step on the host.
        host_ratio f64 Share of the step's annotation.
        device_ns i64 Durations, in a step, of the activities that it launched.
        device_ratio f64 Share of the durations of all activities.
        steps u32 Steps of the mean.
        start_ns i64 Start of the longest interval in it, ns since the trace's origin; null for other.
        end_ns i64 Its end.
    """),
)

OTHER = "other"
_IN_ORDER = (DATA_LOADING, "forward", "backward", "optimizer", OTHER)
_PASSES = ("forward", "backward")


def phase_intervals(context: Context, host_steps: HostSteps) -> pl.DataFrame:
    """Return table `phase_intervals`.

    The main thread of a process is the one with most time in phases other than backward. Where autograd runs the backward
    pass on threads of its own and the main thread is in no phase, the process is in the backward pass. In a step, what
    lies between two intervals of the same pass belongs to it.
    """
    events = context.events.select("process_id", "thread_id", "event_id", "kind", "phase", "start_ns", "end_ns")
    around = events.get_column("phase").gather(context.events.get_column("parent_id"))
    begins = events.filter(pl.col("phase").is_not_null() & pl.col("phase").ne_missing(around))
    marks = host_steps.marks.sort("process_id", "host_start_ns", "host_end_ns")
    steps = outermost(marks, "process_id").select(
        "process_id", step="index", start_ns="host_start_ns", end_ns="host_end_ns"
    )
    thread = ["process_id", "thread_id"]
    pieces = innermost(begins, thread, "event_id")
    pieces = pieces.with_columns(events.get_column("phase")[pieces.get_column("event_id")].cast(pl.String))
    is_backward = pl.col("phase") == "backward"
    main = (
        pieces.group_by(thread)
        .agg(LENGTH_NS.filter(~is_backward).sum().alias("ns"), LENGTH_NS.sum().alias("all_ns"))
        .sort("process_id", "ns", "all_ns", "thread_id", descending=[False, True, True, False])
        .unique("process_id", keep="first", maintain_order=True)
        .select(thread)
    )
    own = pieces.join(main, on=thread, how="semi", maintain_order="left")
    # Beside operators, threads of autograd have frames that wait for the next backward pass.
    ran = events.filter(is_backward & (pl.col("kind") == "operator"))
    beside = cut_out(union(ran.join(main, on=thread, how="anti"), ["process_id"]), own, ["process_id"])
    found = pl.concat(
        [own.select("process_id", "start_ns", "end_ns", "phase"), beside.with_columns(phase=pl.lit("backward"))],
        how="diagonal_relaxed",
    )
    inside = clip(found.sort("process_id", "start_ns"), steps, ["process_id"])
    same = (pl.col("phase").shift(-1) == pl.col("phase")) & pl.col("phase").is_in(_PASSES)
    following = pl.col("start_ns").shift(-1)
    joined = inside.with_columns(
        pl.when(same.over("process_id", "step"))
        .then(following.over("process_id", "step"))
        .otherwise("end_ns")
        .alias("end_ns")
    )
    merged = coalesce(joined, ["process_id", "step"], "phase")
    return PHASE_INTERVALS.conform(merged.join(main, on="process_id", how="left", maintain_order="left"))


def step_phases(
    phase_intervals: pl.DataFrame, device_steps: pl.DataFrame, activities: pl.DataFrame, context: Context
) -> pl.DataFrame:
    """Return table `step_phases`, in order of device, step and phase; empty where no phase is known."""
    if phase_intervals.is_empty() or device_steps.is_empty():
        return STEP_PHASES.empty()
    spans = device_steps.select(
        "device", "start_ns", "end_ns", "host_start_ns", "host_end_ns", step=pl.col("index")
    ).filter(pl.col("start_ns") < pl.col("end_ns"))
    # The steps of a device are those of the process that launched most of its work.
    process = activities.drop_nulls("process_id").group_by("device").agg(pl.col("process_id").mode().sort().first())
    host = (
        phase_intervals.join(process, on="process_id", how="inner")
        .group_by("device", "step", "phase")
        .agg(LENGTH_NS.sum().alias("host_ns"))
    )
    phase = context.events.get_column("phase")[activities.get_column("launch_id")].cast(pl.String).fill_null(OTHER)
    placed = lookup_at(activities.with_columns(phase.alias("phase")), "start_ns", spans, ["device"], ["step"])
    device = (
        placed.drop_nulls("step")
        .group_by("device", "step", "phase")
        .agg(pl.col("duration_ns").sum().alias("device_ns"))
    )
    every = spans.join(pl.DataFrame({"phase": _IN_ORDER}), how="cross", maintain_order="left")
    key = ["device", "step", "phase"]
    rows = (
        every.join(host, on=key, how="left", maintain_order="left")
        .join(device, on=key, how="left", maintain_order="left")
        .with_columns(pl.col("host_ns", "device_ns").fill_null(0))
    )
    rest = pl.col("host_end_ns") - pl.col("host_start_ns") - pl.col("host_ns").sum().over("device", "step")
    return STEP_PHASES.conform(
        rows.with_columns(pl.when(pl.col("phase") == OTHER).then(rest).otherwise("host_ns").alias("host_ns"))
    )


def mean_phases(step_phases: pl.DataFrame, device_steps: pl.DataFrame, phase_intervals: pl.DataFrame) -> pl.DataFrame:
    """Return table `phases`, in order of device and phase, without phases that no step has."""
    rank = pl.when("steady").then(0).when(pl.col("state") == "ok").then(1).when(pl.col("state") == "first").then(2)
    ranks = device_steps.select("device", rank.otherwise(3).alias("rank"), step=pl.col("index"))
    known = step_phases.join(ranks, on=["device", "step"], how="left", maintain_order="left")
    chosen = known.filter(pl.col("rank") == pl.col("rank").min().over("device"))
    means = chosen.group_by("device", "phase", maintain_order=True).agg(
        pl.col("host_ns", "device_ns").mean().round().cast(pl.Int64), pl.len().alias("steps")
    )
    share = (
        (pl.col(f"{kind}_ns") / pl.col(f"{kind}_ns").sum().over("device")).fill_nan(None).alias(f"{kind}_ratio")
        for kind in ("host", "device")
    )
    return MEAN_PHASES.conform(
        means.with_columns(share)
        .filter((pl.col("host_ns") > 0) | (pl.col("device_ns") > 0))
        .join(longest_intervals(phase_intervals, ["phase"]), on="phase", how="left", maintain_order="left")
    )


SECTION = Section(
    "Phases of a step",
    "What the CPU was in, and the device time that it launched there: the mean over steps.",
    show=(
        Shown("phase", "phase", "word", 0, markdown=True),
        Shown("host_ns", "on the CPU", terminal=0, markdown=True),
        Shown("host_ratio", "share of the step", "share", 0, markdown=True),
        Shown("device_ns", "device time", terminal=0, markdown=True),
        Shown("device_ratio", "share of device time", "share", 60, markdown=True),
        Shown("steps", "steps", terminal=90),
    ),
)

ANALYSES = (
    Value("serving_marks", serving_marks),
    Value("annotated_steps", annotated_steps),
    Analysis(SERVING, serving_table, json="serving", section=SERVING_SECTION),
    Analysis(PHASE_INTERVALS, phase_intervals),
    Analysis(STEP_PHASES, step_phases),
    Analysis(MEAN_PHASES, mean_phases, json="devices[].phases", section=SECTION),
)
