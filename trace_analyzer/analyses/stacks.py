"""Merge the stacks of idle time, CPU time and kernel time into trees for flame graphs."""

import polars as pl

from trace_analyzer.analyses.blame import Attribution
from trace_analyzer.analyses.host import Context, Host
from trace_analyzer.analysis import Analysis
from trace_analyzer.catalog.event_names import HOST_WAIT, PROFILER_STEP_NAME
from trace_analyzer.frames.lookups import scatter, sum_by_group
from trace_analyzer.schema import Table, columns

STACKS = Table(
    "stacks",
    "Time by stack, as trees of merged frames: idle time of each device, CPU time of the threads without waits, kernel time of each device.",
    columns("""
        view str `idle`, `cpu` or `kernels`: whose time is divided.
        device i64 As in `devices`; null for CPU time.
        node_id i64 Number of the node in its tree, from 0; what calls comes before what it calls.
        parent_id i64 The node that called it; null outermost.
        frame str Python function, module, operator or call as the trace names it; at the tips a cause or a kernel.
        kind str `python`, `module`, `operator`, `call`, `annotation`, `cause` or `kernel`.
        value_ns i64 Time with it on the stack.
        self_ns i64 The part of it in nothing that it called.
    """),
)

_MODULE = r"^nn\.Module: "
_INSTANCE = r"^(nn\.Module: .*?)(?:_\d+)?$"
"""Instance number: the same class in the same place is one frame."""
_CALLS = ["runtime", "driver"]


def stacks(host: Host, context: Context, attribution: Attribution, activities: pl.DataFrame) -> pl.DataFrame:
    """Return table `stacks`.

    Idle time has the stack of the host event that it is attributed to, with its cause as leaf. CPU time is the self
    time of each event, but for waits for another thread, a process, the network or a timer, which take no CPU.
    Kernel time has the modules and operators of its launch (for backward work, those of the forward
    operator), with the kernel as leaf.
    """
    parents = context.events.get_column("parent_id")
    on_stack = host.each((pl.col("kind") != "overhead") & ~pl.col("name").str.contains(PROFILER_STEP_NAME))
    texts = host.each(pl.col("name").str.replace(_INSTANCE, "$1").cast(pl.Categorical))
    is_module = (pl.col("kind") == "python") & pl.col("name").str.contains(_MODULE)
    idle = attribution.intervals.select(
        "device", row="around_id", value_ns=pl.col("end_ns") - pl.col("start_ns"), tip="cause"
    )
    trees = [
        *(_tree("idle", device, parents, on_stack, texts, ends) for device, ends in _by_device(idle)),
        _tree("cpu", None, parents, on_stack, texts, _own_times(host, context)),
    ]
    if activities.height:
        in_program = host.each(is_module | (pl.col("kind") == "operator"))
        called_by = _with_forward_modules(context, parents)
        kernels = activities.select("device", row="launch_id", value_ns="duration_ns", tip="name")
        trees += [_tree("kernels", d, called_by, in_program, texts, ends) for d, ends in _by_device(kernels)]
    kinds = _kinds(host)
    return STACKS.conform(pl.concat(trees).join(kinds, on="frame", how="left", maintain_order="left").with_columns(
        pl.when("is_tip").then(pl.when(pl.col("view") == "idle").then(pl.lit("cause")).otherwise(pl.lit("kernel")))
        .otherwise("kind").alias("kind")
    ))  # fmt: skip


def _by_device(rows: pl.DataFrame) -> list[tuple[int, pl.DataFrame]]:
    """Yield each device and its rows; rows with equal place and leaf are summed."""
    sums = (
        rows.with_columns(pl.col("tip").cast(pl.String)).group_by("device", "row", "tip").agg(pl.col("value_ns").sum())
    )
    parts = sums.sort("device", "row", "tip").partition_by("device", as_dict=True, maintain_order=True)
    return [(device, part) for (device,), part in parts.items()]


def _tree(
    view: str, device: int | None, parents: pl.Series, on_stack: pl.Series, texts: pl.Series, ends: pl.DataFrame
) -> pl.DataFrame:
    from trace_analyzer.frames.arrays import call_tree  # needs NumPy, which a report without a page does not import

    nodes = call_tree(parents, on_stack, texts, ends, ends.get_column("tip") if "tip" in ends.columns else None)
    return nodes.rename({"text": "frame"}).with_columns(
        pl.lit(view).alias("view"), pl.lit(device, pl.Int64).alias("device")
    )


def _own_times(host: Host, context: Context) -> pl.DataFrame:
    """Return row and value_ns: the self time of each host event that is no wait and in none."""
    parents = context.events.get_column("parent_id")
    waits = context.tree.nearest((host.events.get_column("work") == HOST_WAIT).fill_null(False)).is_not_null()
    lengths = host.events.get_column("duration_ns")
    inside = pl.DataFrame({"parent": parents, "ns": lengths}).drop_nulls("parent")
    sums = sum_by_group(inside.get_column("parent"), inside.get_column("ns"), lengths.len())
    own = (lengths - sums).clip(lower_bound=0)
    return pl.DataFrame({"row": host.events.get_column("event_id"), "value_ns": own}).filter(
        ~waits & (pl.col("value_ns") > 0)
    )


def _with_forward_modules(context: Context, parents: pl.Series) -> pl.Series:
    """Return ``parents``, with outermost backward work below the module of its forward operator."""
    events = context.events
    moved = events.select(parents.alias("parent_id"), "module_id", "event_id").filter(
        pl.col("module_id").is_not_null() & pl.col("parent_id").is_null() & (pl.col("module_id") != pl.col("event_id"))
    )
    if moved.is_empty():
        return parents
    under = scatter(moved.get_column("event_id"), moved.get_column("module_id"), parents.len())
    return parents.zip_with(under.is_null(), under)


def _kinds(host: Host) -> pl.DataFrame:
    """Return the distinct frames with their kind."""
    name, kind = pl.col("name"), pl.col("kind")
    return (
        host.names.select(
            name.str.replace(_INSTANCE, "$1").alias("frame"),
            pl.when((kind == "python") & name.str.contains(_MODULE)).then(pl.lit("module"))
            .when(kind.is_in(_CALLS)).then(pl.lit("call")).otherwise(kind).alias("kind"),
        )
        .unique("frame", keep="first", maintain_order=True)
    )  # fmt: skip


ANALYSES = (Analysis(STACKS, stacks),)
