"""Attribute device time, FLOP and bytes to nn.Modules; backward operators belong to the module of their forward operator."""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.host import IS_MODULE, MODULE, Host
from trace_analyzer.analyses.roofline import known_sum, sums_of_sums, work_rates, work_sums
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.frames.intervals import LENGTH_NS, counts_until, innermost_at, longest_place
from trace_analyzer.frames.lookups import lookup
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.schema import PLACE, RATES, Table, columns
from trace_analyzer.sections import DEVICE_LABEL, WHOLE_TRACE, Longest, Section, Shown

BACKWARD_LINKS = Table(
    "backward_links",
    "Backward operators with the forward operator they belong to.",
    columns("""
        event_id u32 The backward operator, a row of `host_events`.
        forward_id u32 The forward operator, a row of `host_events`.
        module str The nn.Module that the forward operator ran in; null when not recorded.
    """),
)


def backward_links(trace: Trace, host: Host) -> pl.DataFrame:
    """Return table `backward_links`: each backward operator with its forward operator and that one's module.

    Autograd gives a node and the operator that created it the same sequence number. Operators that create no node have
    the number of the next one, so the creator is the last forward operator with that number that starts before the
    backward operator (torch/csrc/autograd/profiler_kineto.cpp, generateForwardBackwardLinks). Without recorded numbers,
    the file's forward-backward arrows are used.
    """
    is_operator = host.each(pl.col("kind") == "operator")
    operators = host.events.select("event_id", "process_id", "thread_id", "start_ns").filter(is_operator)
    numbers = trace.host_events.select("sequence_number", "forward_thread").filter(is_operator)
    numbered = operators.hstack(numbers).filter(pl.col("sequence_number") >= 0)
    is_backward = (pl.col("forward_thread") > 0).fill_null(False)
    by = ["process_id", "sequence_number"]
    by_number = (
        numbered.filter(is_backward)
        .select(*by, "event_id", "start_ns")
        .sort("start_ns")
        .join_asof(
            numbered.filter(~is_backward)
            .select(*by, "start_ns", pl.col("event_id").alias("forward_id"))
            .sort("start_ns"),
            on="start_ns",
            by=by,
            check_sortedness=False,
        )
        .drop_nulls("forward_id")
        .select("event_id", "forward_id")
    )
    by_arrow = _by_arrow(trace.flows, operators).join(by_number, on="event_id", how="anti")
    links = pl.concat([by_number, by_arrow]).unique("event_id", keep="first", maintain_order=True)
    modules = host.those(IS_MODULE).select("thread_id", "start_ns", "end_ns", pl.col("event_id").alias("module_id"))
    forward = links.hstack(host.events.select("thread_id", "start_ns")[links.get_column("forward_id")])
    located = innermost_at(forward, "start_ns", modules, "module_id")
    names = host.texts(located.get_column("module_id")).cast(pl.String)
    return BACKWARD_LINKS.conform(located.with_columns(names.str.strip_prefix(MODULE).alias("module")).sort("event_id"))


def _by_arrow(flows: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """Pair operators whose starts are the ends of one arrow; of several forward operators the first counts."""
    arrows = flows.filter(pl.col("kind") == "forward-backward").rename({"time_ns": "start_ns"})
    place, first = ["thread_id", "start_ns"], pl.col("forward_id").min()
    forward = (
        arrows.filter("is_start")
        .join(operators.group_by(place).agg(pl.col("event_id").min().alias("forward_id")), on=place, how="inner")
        .group_by("flow_id")
        .agg(first)
    )
    return (
        arrows.filter(~pl.col("is_start"))
        .join(forward, on="flow_id", how="inner")
        .group_by(place)
        .agg(first)
        .join(operators.select(*place, "event_id"), on=place, how="inner")
        .sort("event_id")
        .select("event_id", "forward_id")
    )


# Find forward work that is repeated in the backward pass: activation checkpointing trades time for memory.
#
# `torch.utils.checkpoint` runs a block's forward operators again when the backward pass needs their results.
# Each of three signs is sufficient; the first one in a trace is reported:
#
# - ``checkpoint-node``: the innermost autograd node around the launch is ``CheckpointFunctionBackward``
#   (reentrant checkpointing; DeepSpeed's and Megatron's have the same name);
# - ``checkpoint-frame``: it is Python code of ``torch/utils/checkpoint.py`` within an autograd node;
# - ``forward-in-backward``: it is an operator that records for autograd within an autograd node (it has a sequence
#   number of its own and no forward thread), and nearly all such operators ran with the same shapes in
#   the forward pass; this excludes a backward pass that is itself differentiated.

RECOMPUTATION = Table(
    "recomputation",
    "Forward work that ran again in the backward pass, summed up by operator and module.",
    columns(
        """
        device
        sign str How it was recognized: checkpoint-node, checkpoint-frame or forward-in-backward.
        operator str Name of the innermost operator around the launch.
        module str Class of the nn.Module around it; null when not recorded.
        count time_ns flop
        """,
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
        Shown("flop", "FLOP"),
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
    if nodes.is_empty():
        return pl.DataFrame(schema={"activity_id": pl.UInt32, "sign": pl.String})
    frames = host.those((pl.col("kind") == "python") & pl.col("name").str.contains(_CHECKPOINT_FRAME), *_SPAN)
    within_checkpoint = pl.col("name").str.contains(_CHECKPOINT_NODE)
    marks = pl.concat(
        [
            nodes.select(*_SPAN, pl.when(within_checkpoint).then(pl.lit(NODE)).alias("sign")),
            _around(frames, nodes).drop_nulls("node").select(*_SPAN, pl.lit(FRAME).alias("sign")),
            _forward_again(trace, host, nodes).select(*_SPAN, "sign"),
        ]
    )
    launched = activities.select("activity_id", pl.col("launch_thread").alias("thread_id"), "launch_start_ns")
    return _inside(launched, "launch_start_ns", marks, "sign").drop_nulls("sign").select("activity_id", "sign")


def recomputation_table(rated: pl.DataFrame, recomputed: pl.DataFrame, activity_modules: pl.DataFrame) -> pl.DataFrame:
    """Return table `recomputation`: recomputed kernels summed by operator and module class, longest first."""
    keys = ["device", "sign", "operator", "module"]
    classes = activity_modules.select("activity_id", MODULE_CLASS)
    frame = (
        rated.join(recomputed, on="activity_id", how="inner", maintain_order="left")
        .join(classes, on="activity_id", how="left", maintain_order="left")
        .group_by(keys, maintain_order=True)
        .agg(pl.len().alias("count"), pl.col("duration_ns").sum().alias("time_ns"), known_sum("flop"), *longest_place())
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
    located = innermost_at(points, time, spans.with_row_index("span"), "span")
    return located.drop("span").with_columns(spans.get_column(column)[located.get_column("span")])


MODULES = Table(
    "modules",
    "Kernels summed up by nn.Module, backward work with the module of its forward operator.",
    columns(
        """
        device
        module str Name of the module instance, as the profiler numbers it.
        class str Its class.
        parent str The module around it; null outermost.
        depth i64 Modules around it.
        call_count u32 Calls of it.
        host_ns i64 CPU time of these calls, children included.
        count time_ns
        backward_ns i64 The part of it in the backward pass.
        self_ns i64 The part of it outside of child modules.
        flop moved_bytes
        """,
        *RATES,
    ),
)

MODULES_SECTION = Section(
    "Modules",
    show=(
        Shown("module", "module", "name"),
        Shown("parent", "in", "name"),
        DEVICE_LABEL,
        Shown("call_count", "calls"),
        Shown("host_ns", "CPU time"),
        Shown("time_ns", "device time"),
        Shown("backward_ns", "backward", unless_zero=True),
        Shown("self_ns", "own device time"),
        Shown("achieved_flop_per_s", "FLOP/s", term="known-work"),
        Shown("lost_ns", "time over roof", term="lost"),
    ),
    sort=("-time_ns", "depth", "module"),
    place=Longest("host_events", ("module",), kind="python", prefix=MODULE),
    record="Record with with_stack=True to see time by nn.Module.",
    key="modules",
    table="modules",
    scope=WHOLE_TRACE,
)

MODULE_CLASS = pl.col("module").str.replace(r"_\d+$", "")
"""Class of a module: the profiler adds the number of the instance (torch/csrc/profiler/collection.cpp)."""


def launch_places(host: Host, linked_events: pl.DataFrame, backward_links: pl.DataFrame) -> pl.DataFrame:
    """Return the place in the program of each launched activity: (activity_id, thread_id, time_ns, is_backward).

    It is the launch or, for a backward operator, its forward operator, so that the enclosing modules are those of the
    forward pass.
    """
    launches = linked_events.drop_nulls("launch_id").select(
        "activity_id", pl.col("launch_thread").alias("thread_id"), pl.col("launch_start_ns").alias("time_ns")
    )
    spans = host.events.select("thread_id", "start_ns", "end_ns")[backward_links.get_column("event_id")].with_columns(
        backward_links.get_column("forward_id")
    )
    located = innermost_at(launches, "time_ns", spans, "forward_id")
    forward = host.events.select(
        pl.col("thread_id").alias("forward_thread_id"), pl.col("start_ns").alias("forward_ns")
    )[located.get_column("forward_id")]
    return located.hstack(forward).select(
        "activity_id",
        pl.coalesce("forward_thread_id", "thread_id").alias("thread_id"),
        pl.coalesce("forward_ns", "time_ns").alias("time_ns"),
        pl.col("forward_ns").is_not_null().alias("is_backward"),
    )


def module_table(module_frames: pl.DataFrame, rated: pl.DataFrame, located: pl.DataFrame) -> pl.DataFrame:
    """Return table `modules`: kernels (see `roofline.with_roofs`) summed by the modules around their place.

    For kernels of graphs, ``located`` has the places of the kernels that they match.
    """
    backward_ns = pl.col("duration_ns").filter("is_backward").sum().alias("backward_ns")
    own = (
        located.drop_nulls("module_event")
        .join(rated, on="activity_id", how="inner", maintain_order="left")
        .group_by("device", "module_event", maintain_order=True)
        .agg(*work_sums(), backward_ns)
    )
    around = _ancestors(own.select("module_event").unique(), module_frames)
    known = module_frames.group_by("module").agg(
        pl.len().cast(pl.UInt32).alias("call_count"),
        pl.col("depth").min(),
        pl.col("parent").drop_nulls().mode().sort().first(),
        LENGTH_NS.sum().alias("host_ns"),
    )
    frame = (
        own.join(around, on="module_event", how="inner", maintain_order="left_right")
        .group_by("device", "module", maintain_order=True)  # fixed order, so that floating-point sums are reproducible
        .agg(*sums_of_sums(), pl.col("backward_ns").sum(), pl.col("time_ns").filter("is_self").sum().alias("self_ns"))
        .join(known, on="module", how="left")
        .with_columns(*work_rates(), MODULE_CLASS.alias("class"))
        .sort("time_ns", "depth", "device", "module", descending=[True, False, False, False])
    )
    return MODULES.conform(frame)


def module_frames(host: Host) -> pl.DataFrame:
    """Return every module call: event_id, thread_id, start_ns, end_ns, module, depth, and the enclosing call.

    ``parent_id`` is the enclosing call's event and ``parent`` its module, null for the outermost. The enclosing call is
    the last earlier call with a depth less by one.
    """
    calls = (
        host.those(IS_MODULE)
        .filter(pl.col("duration_ns") > 0)
        .select("event_id", "thread_id", "start_ns", "end_ns", pl.col("name").str.strip_prefix(MODULE).alias("module"))
        .sort("thread_id", "start_ns", "end_ns", "event_id", descending=[False, False, True, False])
        .with_row_index("rank")
    )
    ends = calls.select("thread_id", start_ns="end_ns").sort("thread_id", "start_ns")
    opened, closed = pl.int_range(pl.len()).over("thread_id"), counts_until(calls, "start_ns", ends, ["thread_id"])
    deep = calls.with_columns((opened - closed).alias("depth"))
    outer = deep.select("thread_id", "rank", pl.col("depth") + 1, parent_id="event_id", parent="module")
    return deep.join_asof(outer, on="rank", by=["thread_id", "depth"], check_sortedness=False).select(
        "event_id", "thread_id", "start_ns", "end_ns", "module", "depth", "parent_id", "parent"
    )


def activity_modules(module_frames: pl.DataFrame, launched_located: pl.DataFrame) -> pl.DataFrame:
    """Return (activity_id, module): the innermost module around each activity's place, where there is one."""
    return launched_located.join(
        module_frames.select(pl.col("event_id").alias("module_event"), "module"),
        on="module_event",
        how="inner",
        maintain_order="left",
    ).select("activity_id", "module")


def _ancestors(calls: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    """Return (module_event, module, is_self): each call with its distinct enclosing modules."""
    rows = frames.select("event_id").with_row_index("row")
    outer = lookup(rows.rename({"event_id": "parent_id"}), frames, "parent_id").get_column("row")
    level = calls.select("module_event").join(
        rows.rename({"event_id": "module_event"}), on="module_event", how="inner", maintain_order="left"
    )
    levels: list[pl.DataFrame] = []
    # Joining with all frames at each level would make the cost of a deep nest quadratic.
    while level.height or not levels:
        levels.append(level.with_columns(pl.lit(not levels).alias("is_self")))
        level = level.with_columns(outer[level.get_column("row")].alias("row")).drop_nulls("row")
    around = pl.concat(levels)
    return around.select("module_event", frames.get_column("module")[around.get_column("row")], "is_self").unique(
        ["module_event", "module"], keep="first", maintain_order=True
    )


# Find the module call around a place in the program.


def with_module_event(places: pl.DataFrame, module_frames: pl.DataFrame) -> pl.DataFrame:
    """Add ``module_event``: the innermost module call around each place."""
    calls = module_frames.rename({"event_id": "module_event"})
    return innermost_at(places, "time_ns", calls, "module_event")


ANALYSES = (
    Value("places", launch_places),
    Value("module_frames", module_frames),
    Value("launched_located", with_module_event),
    Value("launched_modules", activity_modules),
    Analysis(MODULES, module_table, placed=(MODULES_SECTION,)),
    Analysis(BACKWARD_LINKS, backward_links),
    Value("recomputed", recomputed),
    Analysis(RECOMPUTATION, recomputation_table, placed=(RECOMPUTATION_SECTION,)),
)
