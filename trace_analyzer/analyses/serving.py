"""Sum steps of serving frameworks by kind (prefill, decode or both): time, work and verdict.

Prefill is compute-heavy and decoding is memory-heavy, so that one verdict for both would describe neither.
"""

import polars as pl

from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.steps import device_steps
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.catalog.event_names import STEP_KINDS, serving_steps
from trace_analyzer.frames.intervals import with_covered
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
    )
    reached = pl.col("end_ns").cum_max().shift(1).over("process_id")
    outermost = events.filter((pl.col("start_ns") >= reached).fill_null(True))
    return outermost.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).over("process_id").alias("index"),
        pl.col("start_ns").alias("host_start_ns"),
        pl.col("end_ns").alias("host_end_ns"),
    ).select(*_STEP, "step_kind", *_SIZES)


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
    length = pl.col("end_ns") - pl.col("start_ns") - pl.col("earlier_ns")
    sized = pl.col("tokens").is_not_null()
    sums = annotated_steps.group_by("device", "step_kind").agg(
        pl.len().alias("count"),
        length.sum().alias("time_ns"),
        length.median().round().alias("median_ns"),
        pl.col("busy_ns").sum(),
        *(pl.when(pl.col(column).is_not_null().any()).then(pl.col(column).sum()).alias(column) for column in _SUMS),
        pl.when(sized.any()).then(pl.col("tokens").sum() * NS_PER_S / length.filter(sized).sum()).alias("tokens_per_s"),
    )
    order = pl.col("step_kind").replace_strict({kind: n for n, kind in enumerate(STEP_KINDS)}, return_dtype=pl.Int8)
    return SERVING.conform(
        sums.join(serving_verdicts, on=["device", "step_kind"], how="left").sort("device", order, maintain_order=True)
    )


SECTION = Section(
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

ANALYSES = (
    Value("serving_marks", serving_marks),
    Value("annotated_steps", annotated_steps),
    Analysis(SERVING, serving_table, json="serving", section=SECTION),
)
