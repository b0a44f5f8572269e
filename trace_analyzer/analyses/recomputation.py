"""Find forward work that is repeated in the backward pass: activation checkpointing trades time for memory.

`torch.utils.checkpoint` runs a block's forward operators again when the backward pass needs their results.
Each of three signs is sufficient; the first one in a trace is reported:

- ``checkpoint-node``: the innermost autograd node around the launch is ``CheckpointFunctionBackward``
  (reentrant checkpointing; DeepSpeed's and Megatron's have the same name);
- ``checkpoint-frame``: it is Python code of ``torch/utils/checkpoint.py`` within an autograd node;
- ``forward-in-backward``: it is an operator that records for autograd within an autograd node (it has a sequence
  number of its own and no forward thread), and nearly all such operators ran with the same shapes in
  the forward pass; this excludes a backward pass that is itself differentiated.
"""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.roofline import known_sum
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.frames.intervals import innermost, longest_place, lookup_at
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.schema import COUNT, DEVICE, FLOP, PLACE, STR, TIME, Column, Table
from trace_analyzer.sections import DEVICE_LABEL, WHOLE_TRACE, Section, Shown

RECOMPUTATION = Table(
    "recomputation",
    "Forward work that ran again in the backward pass, summed up by operator and module.",
    (
        DEVICE,
        Column("sign", STR, "What tells: checkpoint-node, checkpoint-frame or forward-in-backward."),
        Column("operator", STR, "Name of the innermost operator around the launch."),
        Column("module", STR, "Class of the nn.Module around it; null when not recorded."),
        COUNT,
        TIME,
        FLOP,
        *PLACE,
    ),
)

RECOMPUTATION_SECTION = Section(
    "Forward work run again in the backward pass",
    show=(
        Shown("operator", "run again", "name"),
        Shown("module", "module", "name"),
        DEVICE_LABEL,
        Shown("sign", "seen by", "text"),
        Shown("count", "count"),
        Shown("time_ns", "time"),
        Shown("flop", "FLOP", "flop"),
    ),
    sort=("-time_ns",),
    key="recomputation",
    table="recomputation",
    scope=WHOLE_TRACE,
)

_NODE = r"^autograd::engine::evaluate_function|Backward\d*$"
_CHECKPOINT_NODE = r"Checkpoint\w*Backward\d*$"
_CHECKPOINT_FRAME = r"(?:^|/)(?:torch/utils|deepspeed/runtime/activation_checkpointing)/checkpoint(?:ing)?\.py\("
_SPAN = ["event_id", "thread_id", "start_ns", "end_ns"]
NODE, FRAME, REPEATED = "checkpoint-node", "checkpoint-frame", "forward-in-backward"


def recomputed(trace: Trace, host: Host, activities: pl.DataFrame) -> pl.DataFrame:
    """Return (activity_id, sign) of activities that do forward work again."""
    nodes = host.those((pl.col("kind") == "operator") & pl.col("name").str.contains(_NODE), *_SPAN, "name")
    nothing = pl.DataFrame(schema={"activity_id": pl.UInt32, "sign": pl.String})
    if nodes.is_empty() or activities.is_empty():
        return nothing
    frames = host.those((pl.col("kind") == "python") & pl.col("name").str.contains(_CHECKPOINT_FRAME), *_SPAN)
    within_checkpoint = pl.col("name").str.contains(_CHECKPOINT_NODE)
    marks = pl.concat(
        [
            nodes.select(*_SPAN, pl.when(within_checkpoint).then(pl.lit(NODE)).alias("sign")),
            _around(frames, nodes).drop_nulls("node").select(*_SPAN, pl.lit(FRAME).alias("sign")),
            _forward_again(trace, host, nodes).select(*_SPAN, "sign"),
        ]
    )
    if marks.get_column("sign").null_count() == marks.height:
        return nothing
    launched = activities.select("activity_id", pl.col("launch_thread").alias("thread_id"), "launch_start_ns")
    return _inside(launched, "launch_start_ns", marks, "sign").drop_nulls("sign").select("activity_id", "sign")


def recomputation_table(kernels: pl.DataFrame, again: pl.DataFrame, modules: pl.DataFrame) -> pl.DataFrame:
    """Return table `recomputation`: recomputed kernels summed by operator and module class, longest first."""
    keys = ["device", "sign", "operator", "module"]
    classes = modules.select("activity_id", pl.col("module").str.replace(r"_\d+$", ""))
    frame = (
        kernels.join(again, on="activity_id", how="inner", maintain_order="left")
        .join(classes, on="activity_id", how="left", maintain_order="left")
        .group_by(keys, maintain_order=True)
        .agg(
            pl.len().alias("count"),
            pl.col("duration_ns").sum().alias("time_ns"),
            known_sum("flop"),
            *longest_place(),
        )
        .sort("time_ns", *keys, descending=[True, *[False] * len(keys)])
    )
    return RECOMPUTATION.conform(frame)


def _forward_again(trace: Trace, host: Host, nodes: pl.DataFrame) -> pl.DataFrame:
    """Return operators that record for autograd within a node, with their sign; empty unless they also ran before.

    Within a checkpoint's node, this is certain. Elsewhere, nearly all must also have run outside the backward pass,
    with the same name and shapes.
    """
    records = trace.host_events.select(
        (pl.col("sequence_number") >= 0) & (pl.col("forward_thread").fill_null(0) == 0)
    ).to_series()
    is_operator = host.each((pl.col("kind") == "operator") & ~pl.col("name").str.contains(_NODE))
    operators = host.events.select(*_SPAN, "name")
    again = _around(operators.filter(is_operator & records), nodes).drop_nulls("node")
    if again.is_empty():
        return again.with_columns(pl.lit(None, dtype=pl.String).alias("sign"))
    sure = pl.col("node").str.contains(_CHECKPOINT_NODE)
    doubtful = again.filter(~sure)
    believed = doubtful.height > 0 and _ran_before(trace, doubtful, operators.filter(is_operator), nodes)
    sign = pl.when(sure).then(pl.lit(NODE)).otherwise(pl.lit(REPEATED if believed else None, dtype=pl.String))
    return again.with_columns(sign.alias("sign")).drop_nulls("sign")


def _ran_before(trace: Trace, doubtful: pl.DataFrame, operators: pl.DataFrame, nodes: pl.DataFrame) -> bool:
    """Return whether nearly all of these operators also ran outside the backward pass, with equal shapes."""
    shapes = trace.operator_inputs.select("event_id", "input_dims")
    within, outside = (
        part.select("event_id", "name").join(shapes, on="event_id", how="left", maintain_order="left")
        for part in (doubtful, _around(operators, nodes).filter(pl.col("node").is_null()))
    )
    known = within.join(outside, on=["name", "input_dims"], how="semi", nulls_equal=True)
    return known.height >= thresholds.GOOD_COVERAGE * doubtful.height


def _around(events: pl.DataFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    """Add ``node``, the name of the innermost autograd node around each start; null outside of all nodes."""
    return _inside(events, "start_ns", nodes.rename({"name": "node"}), "node")


def _inside(points: pl.DataFrame, time: str, spans: pl.DataFrame, column: str) -> pl.DataFrame:
    """Add a column of the thread's innermost span around ``time``; null outside of all spans."""
    segments = innermost(spans.with_row_index("span"), ["thread_id"], "span")
    located = lookup_at(points, time, segments, ["thread_id"], ["span"])
    return located.drop("span").with_columns(spans.get_column(column)[located.get_column("span")])


ANALYSES = (
    Value("recomputed", recomputed),
    Analysis(
        RECOMPUTATION,
        recomputation_table,
        {"kernels": "rated", "again": "recomputed", "modules": "activity_modules"},
        placed=(RECOMPUTATION_SECTION,),
    ),
)
