"""Prepare figures for charts: times in bins, stacks merged into trees, events to mark, and the intervals that each advice concerns."""

from collections.abc import Mapping
from os.path import commonpath
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer import analysis, schema
from trace_analyzer.analyses.blame import Attribution
from trace_analyzer.analyses.host import IS_MODULE, Context, Host
from trace_analyzer.catalog.event_names import CALLS, HOST_WAIT, INDUCTOR_FILE, PROFILER_STEP_NAME, named_code
from trace_analyzer.frames.arrays import call_tree, column
from trace_analyzer.frames.intervals import LENGTH_NS, innermost, longest_place
from trace_analyzer.frames.lookups import scatter

STACKS = schema.Table(
    "stacks",
    "Time by stack, as trees of merged frames: idle time of each device, CPU time of the threads without waits, kernel time of each device.",
    schema.columns("""
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

_INSTANCE = r"^(nn\.Module: .*?)(?:_\d+)?$"
"""Instance number: the same class in the same place is one frame."""


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
    idle = attribution.intervals.select("device", row="around_id", value_ns=LENGTH_NS, tip="cause")
    trees = [
        *(_tree("idle", device, parents, on_stack, texts, ends) for device, ends in _by_device(idle)),
        _tree("cpu", None, parents, on_stack, texts, _own_times(host, context)),
    ]
    if activities.height:
        in_program = host.each(IS_MODULE | (pl.col("kind") == "operator"))
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
    nodes = call_tree(parents, on_stack, texts, ends, ends.get_column("tip") if "tip" in ends.columns else None)
    return nodes.rename({"text": "frame"}).with_columns(
        pl.lit(view).alias("view"), pl.lit(device, pl.Int64).alias("device")
    )


def _own_times(host: Host, context: Context) -> pl.DataFrame:
    """Return row and value_ns: the self time of each host event that is no wait and in none.

    A thread counts once: where events cross instead of nesting, the last started one in progress has the time.
    """
    waits = context.tree.nearest((host.events.get_column("work") == HOST_WAIT).fill_null(False)).is_not_null()
    own = innermost(context.events, ["thread_id"], "event_id")
    own = own.filter(~waits[own.get_column("event_id")])
    return own.group_by(row="event_id").agg(LENGTH_NS.sum().alias("value_ns")).sort("row")


def _with_forward_modules(context: Context, parents: pl.Series) -> pl.Series:
    """Return ``parents``, with outermost backward work below the module of its forward operator."""
    events = context.events
    moved = events.select(parents.alias("parent_id"), "module_id", "event_id").filter(
        pl.col("module_id").is_not_null() & pl.col("parent_id").is_null() & (pl.col("module_id") != pl.col("event_id"))
    )
    under = scatter(moved.get_column("event_id"), moved.get_column("module_id"), parents.len())
    return parents.zip_with(under.is_null(), under)


def _kinds(host: Host) -> pl.DataFrame:
    name, kind = pl.col("name"), pl.col("kind")
    return (
        host.names.select(
            name.str.replace(_INSTANCE, "$1").alias("frame"),
            pl.when(IS_MODULE).then(pl.lit("module"))
            .when(kind.is_in(CALLS)).then(pl.lit("call")).otherwise(kind).alias("kind"),
        )
        .unique("frame", keep="first", maintain_order=True)
    )  # fmt: skip


def logarithmic_histogram(times: pl.DataFrame, bins_per_decade: int) -> pl.DataFrame:
    """Count positive times in bins of equal logarithmic width, over whole decades.

    ``times`` has value_ns, start_ns, end_ns and at least one row; if it has weight_ns, its sum is the height instead of
    the count. Returns low_ns, high_ns, height, and start_ns, end_ns of each bin's largest time, null for an empty bin.
    """
    edges = _edges(times.get_column("value_ns"), bins_per_decade)
    inside = np.searchsorted(edges[1:-1], times.get_column("value_ns").to_numpy(), side="right")
    bins = (
        times.with_columns(bin=column(inside))
        .group_by("bin")
        .agg(
            (pl.col("weight_ns").sum() if "weight_ns" in times.columns else pl.len()).alias("height"),
            pl.col("start_ns", "end_ns").get(pl.col("value_ns").arg_max()),
        )
        .with_columns(pl.exclude("bin").cast(pl.Float64))
    )
    return (
        pl.DataFrame(
            {"bin": column(np.arange(len(edges) - 1)), "low_ns": edges[:-1].tolist(), "high_ns": edges[1:].tolist()}
        )
        .join(bins, on="bin", how="left", maintain_order="left")
        .with_columns(pl.col("height").fill_null(0))
        .drop("bin")
    )


def highest_per_bin(steps: pl.DataFrame, column: str, bins: int) -> pl.DataFrame:
    """Reduce a step function of time to at most one change per bin, with the highest value in the bin.

    ``steps`` has time_ns and ``column``, in order of time, and at least one row. Returns the same columns, with the time of
    the first change in each of ``bins`` bins that has one.
    """
    start, end = steps.select(pl.min("time_ns").alias("start"), pl.max("time_ns").alias("end")).row(0)
    width = max((end - start) / bins, 1)
    return (
        steps.select("time_ns", column)
        .group_by(((pl.col("time_ns") - start) // width).alias("bin"), maintain_order=True)
        .agg(pl.col("time_ns").first(), pl.col(column).max())
        .drop("bin")
    )


def _edges(values: pl.Series, bins_per_decade: int) -> npt.NDArray[np.float64]:
    least, most = np.log10(values.min()), np.log10(values.max())  # type: ignore[arg-type]
    first, last = np.floor(least), max(np.ceil(most), np.floor(least) + 1)
    return 10 ** np.linspace(first, last, round((last - first) * bins_per_decade) + 1)


# Choose a place on the timeline that represents several events: the longest of them.


def longest_events(events: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the longest event per key: ``keys``, start_ns, end_ns; the first of equal ones.

    ``events`` have start_ns and duration_ns, ns.
    """
    return events.group_by(keys).agg(longest_place())


def longest_intervals(intervals: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the longest interval per key: ``keys``, start_ns, end_ns; the first of equal ones."""
    return longest_events(intervals.with_columns(duration_ns=LENGTH_NS), keys)


def named_events(events: pl.DataFrame, names: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Add start_ns and end_ns of the longest event with the same ``keys`` to each row of ``names``, in their order."""
    places = longest_events(events, keys)
    return names.join(places, on=keys, how="left", maintain_order="left", nulls_equal=True)


# Order host threads for display and title them.


def titled_threads(host_events: pl.DataFrame, launches: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """Return threads with events: thread_id, title; those that launch work first, then those with most events.

    Parameters are the tables of these names. A title includes the process where there are several.
    """
    launching = launches.group_by("thread_id").agg(launches=pl.len())
    with_events = threads.join(host_events.select("thread_id").unique(), on="thread_id", how="semi")
    several = with_events.get_column("process_id").n_unique() > 1
    process = pl.format("Process {} · ", "pid") if several else pl.lit("")
    thread = pl.when(pl.col("name").fill_null("") == "").then(pl.format("Thread {}", "tid")).otherwise(pl.col("name"))
    return (
        host_events.group_by("thread_id")
        .agg(events=pl.len())
        .join(launching, on="thread_id", how="left")
        .join(threads.select("thread_id", title=process + thread), on="thread_id", how="left")
        .sort(pl.col("launches").fill_null(0), "events", "thread_id", descending=[True, True, False])
        .select("thread_id", pl.col("title").fill_null("Thread"))
    )


# Name the package of each Python frame.

_FILE = r"^(.+)\(\d+\): "
_INSTALLED = r"^.*(?:site|dist)-packages/"
_STANDARD = r"^(?:.*/lib/python3\.\d+/|<frozen .*>)"


def frame_packages(host_events: pl.DataFrame) -> pl.DataFrame:
    """Return distinct Python frames of table `host_events`: name, count, package, is_own (no library by the rules).

    The package of a built-in function is null.
    """
    names = host_events.filter(pl.col("kind") == "python").group_by("kind", "name").agg(pl.len().alias("count"))
    return names.join(named_code(names), on=["kind", "name"], how="left").select(
        "name",
        "count",
        _package(_shared_folder(names.get_column("name"))).alias("package"),
        (~pl.col("library").fill_null(True) & pl.col("name").str.contains(_FILE)).alias("is_own"),
    )


def frames_by_package(frames: pl.DataFrame) -> pl.DataFrame:
    """Return package, count and is_own from the frames of `frame_packages`, the package with most frames first."""
    return (
        frames.filter(pl.col("package").is_not_null())
        .group_by("package")
        .agg(pl.col("count").sum(), pl.col("is_own").any())
        .sort("count", "package", descending=[True, False])
    )


def _package(shared: str) -> pl.Expr:
    """Return the package of a frame: its first folder below Python's path, else the file; null for built-ins.

    ``shared`` is the common folder of the program's own files.
    """
    file = pl.col("name").str.extract(_FILE).str.replace_all("\\", "/", literal=True)
    inside = (
        file.str.replace(_INSTALLED, "")
        .str.replace(_STANDARD, "python/")
        .str.strip_prefix(shared)
        .str.strip_prefix("/")
    )
    first = inside.str.split("/").list.first()
    return pl.when(file.str.contains(INDUCTOR_FILE)).then(pl.lit("compiled by Inductor")).otherwise(first)


def _shared_folder(names: pl.Series) -> str:
    """Return the common folder of all files with an absolute path, except installed packages and Python's own."""
    files = names.str.extract(_FILE).drop_nulls().str.replace_all("\\", "/", literal=True)
    installed = files.str.contains(_INSTALLED) | files.str.contains(_STANDARD) | files.str.contains(INDUCTOR_FILE)
    own = files.filter(files.str.starts_with("/") & ~installed).unique()
    return commonpath([PurePosixPath(file).parent for file in own]) if len(own) else ""


ADVICE_MEMBERS = schema.Table(
    "advice_members",
    "The intervals that each piece of advice is about: kernels, copies, runs of kernels, or idle time.",
    schema.columns("""
        advice str `id` of the advice.
        device start_ns end_ns
    """),
)


def advice_members(advice_intervals: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return table `advice_members`, each advice's intervals in order of time, from intervals by advice."""
    rows = [frame.select(pl.lit(advice).alias("advice"), pl.all()) for advice, frame in advice_intervals.items()]
    members = pl.concat(rows, how="diagonal_relaxed") if rows else ADVICE_MEMBERS.empty()
    return ADVICE_MEMBERS.conform(members).sort("advice", "device", "start_ns", "end_ns")


ANALYSES = (analysis.Analysis(ADVICE_MEMBERS, advice_members), analysis.Analysis(STACKS, stacks))
