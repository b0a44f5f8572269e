"""Sum host work that costs device time, with its code: synchronization, data loaders, compilers, allocators."""

from collections.abc import Sequence

import polars as pl

from trace_analyzer.analyses.host import Context
from trace_analyzer.analysis import CAUSES_OF_IDLE, Analysis
from trace_analyzer.catalog.event_names import BLOCKING, GUARDS
from trace_analyzer.frames.intervals import END_NS, LENGTH_NS, innermost, lookup_at, union, with_covered
from trace_analyzer.frames.lookups import first_index, inverse_index, lookup
from trace_analyzer.schema import Table, columns
from trace_analyzer.sections import WHOLE_TRACE, Section, Shown
from trace_analyzer.vocabulary import NAMED_WORK

HOST_COSTS = Table(
    "host_costs",
    "What the host did that can leave the device idle, by kind and by the code that asked for it.",
    columns("""
        kind str synchronization, data-loading, compilation, allocation, garbage-collection, blocking-copy, profiler,
            host-wait or cpu-operator, as the causes of idle time are called; and two that are parts of these:
            recompilation for what Dynamo compiled again, guards for its lookups of what it compiled.
        source str Code that causes it, such as `.item()`; null when no rule names it.
        name str The event that cost most: a call, an operator, a frame.
        copy str What most of the calls copied, as in `HtoD (Pageable -> Device)`; null for nothing.
        operator module python_function
        count u32 How often it was asked for.
        host_ns i64 Time that the host spent in it; null when that is not recorded.
        hidden_ns i64 Part of that time in which some device worked.
        idle_ns i64 Idle time of this cause, over all devices: for a synchronization the drain that it left behind, not
            its waiting for a busy device.
        event_id u32 The event of most idle time, else of most host time; a row of `host_events`.
        start_ns i64 Its start.
        end_ns i64 Its end.
    """),
)

HOST_COSTS_SECTION = Section(
    "Synchronizing calls and other host work",
    show=(
        Shown("source", "what", "word", markdown=True, fallback="name"),
        Shown("kind", "kind", "part", markdown=True),
        Shown("at", "at", "text", markdown=True, page=False, phrase="place"),
        Shown("python_function", "in function", "frame"),
        Shown("count", "count", markdown=True),
        Shown("host_ns", "host time", markdown=True),
        Shown("idle_ns", "idle time", markdown=True, term="drain", unless_zero=True),
        Shown("name", "event", "name"),
        Shown("operator", "operator", "name"),
        Shown("copy", "copy", "text"),
        Shown("module", "module", "module"),
        Shown("hidden_ns", "hidden host time", term="hidden", unless_zero=True),
    ),
    sort=("-idle_ns", "-host_ns"),
    top=True,
    key="host",
    table="host_costs",
    scope=WHOLE_TRACE,
)

COSTS = ("synchronization", *NAMED_WORK, "cpu-operator")
"""Kinds of costs: the causes of idle time that name the host's work."""
PARTS = ("recompilation", "guards")
"""Kinds that are also included in other kinds: recompilation, and guard checks before compiled code."""
# Dynamo names a region by the frame that it compiled and the number of earlier compilations.
_REGION = r"^Torch-Compiled Region: (\d+)/(\d+)"
_KEYS = ["kind", "source", "operator", "module", "python_function"]


def host_costs(
    runtime_calls: pl.DataFrame, activities: pl.DataFrame, idle: pl.DataFrame, context: Context
) -> pl.DataFrame:
    """Return table `host_costs`: named host work by the code that caused it, most idle time first.

    The idle time of a kind sums to that of the cause with the same name, over all devices. For a blocking call it is
    the empty queue after the call, not the wait for a busy device. `PARTS` are listed in addition.
    """
    events = context.events
    kinds = _kinds(runtime_calls, events)
    stands_for = {kind: context.tree.outermost(is_kind) for kind, is_kind in kinds.items() if is_kind.any()}
    caused = _caused(idle, events, stands_for)
    ids = events.get_column("event_id")
    named = (
        ids.filter((outer == ids).fill_null(False)).to_frame().with_columns(pl.lit(kind).alias("kind"))
        for kind, outer in stands_for.items()
    )
    costs = pl.concat([caused.select("event_id", "kind").clear(), *named]).join(
        caused, on=["event_id", "kind"], how="full", coalesce=True
    )
    all_costs = pl.concat([costs, _guards(context, idle), _recompilations(costs, context)], how="diagonal")
    described = _described(all_costs.sort("kind", "event_id", "region_id"), context, activities)
    again = pl.col("kind") == "recompilation"
    rows = pl.concat([_summed(described.filter(~again)), _by_region(described.filter(again), events)], how="diagonal")
    order = ["idle_ns", "host_ns", *_KEYS]
    return HOST_COSTS.conform(rows.sort(order, descending=[True, True, *[False] * len(_KEYS)], nulls_last=True))


def _kinds(calls: pl.DataFrame, events: pl.DataFrame) -> dict[str, pl.Series]:
    """Return for each kind of cost whether a host event belongs to it; a call has at most one kind."""
    work = events.get_column("work")
    copies = calls.filter(pl.col("work") == "blocking-copy").get_column("launch_id")
    is_copy = inverse_index(copies, events.height).is_not_null()
    return {
        kind: is_copy | (work == kind) if kind == "blocking-copy" else (work == _WORK.get(kind, kind)) & ~is_copy
        for kind in COSTS
    }


_WORK = {"synchronization": BLOCKING}
"""Kinds of costs whose work has another name."""


def _caused(idle: pl.DataFrame, events: pl.DataFrame, stands_for: dict[str, pl.Series]) -> pl.DataFrame:
    """Return event_id, kind, idle_ns: idle time by the event that represents its cause.

    This is the outermost event of the kind around the innermost event; else a row of the profiler at that time; else
    the innermost event itself.
    """
    pieces = idle.filter(pl.col("cause").is_in(COSTS)).with_columns(pl.col("cause").cast(pl.String).alias("kind"))
    timed = events.select("kind", "work", "start_ns", "end_ns", "event_id")
    own_rows = timed.filter(pl.col("kind") == "overhead").select(
        pl.col("work").cast(pl.String).replace(BLOCKING, "synchronization").alias("kind"),
        "start_ns",
        "end_ns",
        pl.col("event_id").alias("overhead_id"),
    )
    overhead = innermost(own_rows.drop_nulls("kind"), ["kind"], "overhead_id")
    ids = pieces.get_column("event_id")
    outer = [pl.when(pl.col("kind") == kind).then(outer[ids]) for kind, outer in stands_for.items()]
    return (
        lookup_at(pieces, "start_ns", overhead, ["kind"], ["overhead_id"])
        .with_columns(pl.coalesce(*outer, "overhead_id", "event_id").alias("event_id"))
        .group_by("event_id", "kind")
        .agg(LENGTH_NS.sum().alias("idle_ns"))
    )


def _described(costs: pl.DataFrame, context: Context, activities: pl.DataFrame) -> pl.DataFrame:
    """Add times, the share during which a device worked, and the code."""
    ids, events = costs.get_column("event_id"), context.events
    of_events = events.select("start_ns", "end_ns", "duration_ns", "source_id")[ids]
    priced = costs.hstack(of_events).hstack(context.code(ids).cast(pl.String))
    priced = _with_copy(priced, events, activities)
    worked = union(activities.select("start_ns", END_NS), [])
    return with_covered(priced, worked, [], "hidden_ns").with_columns(pl.col("idle_ns").fill_null(0))


def _with_copy(costs: pl.DataFrame, events: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """Add ``copy``: the data copied by the call, else by its operator."""
    known = activities.select("kind", "name", "launch_id", "operator_id")
    copies = known.filter(pl.col("kind") == "memcpy").select(
        "launch_id", "operator_id", pl.col("name").cast(pl.String).str.strip_prefix("Memcpy ").alias("copy")
    )
    asked = costs.select("event_id", events.get_column("operator_id")[costs.get_column("event_id")])
    found = (
        lookup(copies[first_index(copies.get_column(of)).drop_nulls()].select(pl.col(of).alias(by), "copy"), asked, by)
        for of, by in (("launch_id", "event_id"), ("operator_id", "operator_id"))
    )
    is_copying = pl.col("kind").is_in(["synchronization", "blocking-copy"])
    copy = pl.coalesce(*(rows.get_column("copy") for rows in found))
    return costs.with_columns(pl.when(is_copying).then(copy).alias("copy"))


def _summed(costs: pl.DataFrame) -> pl.DataFrame:
    """Sum costs of one kind and place in the code, with the place of the largest one on the timeline."""
    return (
        costs.with_columns(pl.coalesce("source_id", "event_id").alias("asked_id"))
        .sort("idle_ns", "duration_ns", "start_ns", "event_id", descending=[True, True, False, False])
        .group_by(_KEYS, maintain_order=True)
        .agg(
            pl.col("asked_id").n_unique().alias("count"),
            pl.col("duration_ns").sum().alias("host_ns"),
            pl.col("hidden_ns").sum(),
            pl.col("idle_ns").sum(),
            pl.col("copy").mode(maintain_order=True).first(),
            pl.col("name", "event_id", "start_ns", "end_ns").first(),
        )
    )


def _guards(context: Context, idle: pl.DataFrame) -> pl.DataFrame:
    """Return event_id, kind, idle_ns: Dynamo's guard checks with all idle time during them, whatever its cause."""
    events = context.events
    outer = context.tree.outermost(events.get_column("work") == GUARDS)
    within = idle if outer.null_count() < outer.len() else idle.clear()
    looking = within.with_columns(outer[within.get_column("event_id")].alias("event_id")).drop_nulls("event_id")
    idle_ns = looking.group_by("event_id").agg(LENGTH_NS.sum().alias("idle_ns"))
    return (
        events.filter((outer == pl.col("event_id")).fill_null(False))
        .select("event_id", pl.lit(GUARDS).alias("kind"))
        .join(idle_ns, on="event_id", how="left")
    )


def _recompilations(costs: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Return event_id, kind, idle_ns, region_id, version of regions that Dynamo had compiled before.

    The event is the compilation before the region's first run of that version, on its thread; where it was not
    recorded, the event is the run itself, and the compilation's time is unknown.
    """
    version = pl.col("name").str.extract(_REGION, 2).cast(pl.UInt32, strict=False)
    first = (
        context.host.those(version.is_not_null())
        .with_columns(version.alias("version"), pl.col("name").str.extract(_REGION, 1).alias("region"))
        .sort("thread_id", "start_ns")
        .with_columns(pl.col("end_ns").shift(1).over("thread_id").fill_null(_EVER).alias("previous_ns"))
        .filter(pl.col("version") > 0)
        .unique(["region", "version"], keep="first", maintain_order=True)
        .select("thread_id", "start_ns", "previous_ns", "version", pl.col("event_id").alias("region_id"))
    )
    compiles = costs.filter(pl.col("kind") == "compilation").select("event_id", pl.col("idle_ns").fill_null(0))
    compiled = compiles.hstack(
        context.events.select("thread_id", "end_ns", pl.col("start_ns").alias("compile_ns"))[
            compiles.get_column("event_id")
        ]
    ).sort("end_ns")
    return (
        first.sort("start_ns")
        .join_asof(
            compiled.drop("end_ns").with_columns(compiled.get_column("end_ns").alias("compiled_ns")),
            left_on="start_ns", right_on="compiled_ns", by="thread_id", check_sortedness=False,
        )
        .with_columns((pl.col("compile_ns") >= pl.col("previous_ns")).fill_null(False).alias("seen"))
        .select(
            pl.when("seen").then("event_id").otherwise("region_id").alias("event_id"),
            pl.lit("recompilation").alias("kind"),
            pl.when("seen").then("idle_ns").alias("idle_ns"),
            "region_id", "version", "seen",
        )
        .sort("region_id")
    )  # fmt: skip


_EVER = -(1 << 63)


def _by_region(again: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Sum recompilations per region: the number of earlier compilations, and the recorded time."""
    named = again.with_columns(events.get_column("name")[again.get_column("region_id")].cast(pl.String))
    worst = pl.col("event_id", "start_ns", "end_ns", "operator", "module", "python_function")
    return (
        named.with_columns(pl.col("name").str.extract(_REGION, 1).alias("region"))
        .sort("seen", "idle_ns", "duration_ns", "version", descending=True)
        .group_by("region", maintain_order=True)
        .agg(
            pl.lit("recompilation").alias("kind"),
            pl.lit("torch.compile").alias("source"),
            pl.col("name").sort_by("version").last(),
            pl.col("version").max().alias("count"),
            *(pl.when(pl.col("seen").any()).then(pl.col(ns).filter("seen").sum()).alias(of)
              for of, ns in (("host_ns", "duration_ns"), ("hidden_ns", "hidden_ns"), ("idle_ns", "idle_ns"))),
            worst.first(),
        )
        .drop("region")
    )  # fmt: skip


def _without_idle_time(costs: pl.DataFrame, devices: Sequence[int]) -> pl.DataFrame:
    """Return the costs without their idle time, as the causes of one of the devices are suppressed."""
    idle = (pl.lit(None, dtype=pl.Int64).alias(column) for column in ("idle_ns", "hidden_ns"))
    return costs.with_columns(idle).sort("host_ns", descending=True, nulls_last=True, maintain_order=True)


ANALYSES = (
    Analysis(HOST_COSTS, host_costs, needs=(CAUSES_OF_IDLE,), hide=_without_idle_time, placed=(HOST_COSTS_SECTION,)),
)
