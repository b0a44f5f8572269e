"""Link activities to the runtime or driver calls that enqueued them."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from trace_analyzer import analysis, errors, thresholds
from trace_analyzer.analyses.host import Host
from trace_analyzer.catalog.event_names import CALLS
from trace_analyzer.frames.intervals import innermost_at, last_started, lookup_at, rank_places, union
from trace_analyzer.frames.lookups import count_distinct, first_index, inverse_index, lookup_inner, sum_by_group
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.schema import Table, columns

LAUNCHES = Table(
    "launches",
    "Runtime and driver calls that enqueued work.",
    columns("""
        launch_id name thread_id start_ns duration_ns correlation
        activity_count u32 Activities that it enqueued: many for a graph launch.
        device
        first_start_ns i64 Start of the first of them.
        lead_ns i64 Launch lead: that start minus the call's end.
        operator_id u32 `event_id` of the innermost operator around the call.
    """),
)

# Calls that enqueue work, in CUDA, HIP, Level Zero and SYCL's unified runtime.
LAUNCHING = r"(?i)launch|memcpy|memset|memprefetch|enqueue|appendmemory"
BY_ID = ["process_id", "correlation"]
_MOST_PAIRS = 1 << 22
"""Most pairs of activity and call that are tried in total where arrows do not determine an activity's process."""
_PAIRS_PER_EVENT = 32
"""Most such pairs per activity and call of the trace, so that memory stays proportional to the file."""


def launch_links(trace: Trace, host: Host) -> tuple[pl.DataFrame, tuple[errors.Note, ...]]:
    """Return (activity_id, launch_id) of every linked activity, and notes on ambiguities.

    Links use the correlation id within the activity's process. Of the calls that launch, copy or set memory, the latest
    one that starts up to the activity's start (or, if nearer, up to `CLOCK_TOLERANCE_NS` later) counts, else the earliest; calls of other kinds count only without such a
    call. Without any call, a flow whose ends match in thread and time counts.
    """
    calls = _calls(host)
    activities, notes = _with_process(trace, calls)
    launching = calls.filter("launches")
    by_launch = _by_correlation(activities, launching)
    rest = _without(activities, by_launch, trace.device_events.height)
    by_call = _by_correlation(rest, calls.filter(~pl.col("launches")))
    rest = _without(rest, by_call, trace.device_events.height)
    links = pl.concat([by_launch, by_call, _by_flow(rest, calls, trace.flows)])
    return links.sort("activity_id"), notes


def _without(activities: pl.DataFrame, links: pl.DataFrame, height: int) -> pl.DataFrame:
    """Return those of the ``height`` activities that are not yet linked."""
    linked = inverse_index(links.get_column("activity_id"), height)[activities.get_column("activity_id")]
    return activities.filter(linked.is_null())


def launches(trace: Trace, linked_events: pl.DataFrame) -> pl.DataFrame:
    """Return table `launches`: every call that enqueued work, with its lead (one row per launch)."""
    events = trace.host_events
    owners = linked_events.get_column("launch_id")
    # The first activity of each event, as activities are in order of start.
    firsts = first_index(owners, events.height)
    counts = sum_by_group(owners, pl.ones(owners.len(), eager=True), events.height)
    ids = firsts.is_not_null().arg_true()
    first = linked_events.select("launch_id", "device", pl.col("start_ns").alias("first_start_ns"), "operator_id")
    calls = events.select("name", "thread_id", "start_ns", "duration_ns", "correlation")
    frame = (
        first[firsts.drop_nulls()]
        .hstack(calls[ids])
        .with_columns(
            counts[ids].alias("activity_count"),
            (pl.col("first_start_ns") - pl.col("start_ns") - pl.col("duration_ns")).alias("lead_ns"),
        )
    )
    return LAUNCHES.conform(frame)


def operators_of(host: Host, events: pl.DataFrame) -> pl.DataFrame:
    """Add operator_id and operator: the innermost operator around each event (thread_id, start_ns)."""
    spans = host.those(pl.col("kind") == "operator", "thread_id", "start_ns", "end_ns", "event_id").rename(
        {"event_id": "operator_id"}
    )
    located = innermost_at(events, "start_ns", spans, "operator_id")
    return located.with_columns(host.texts(located.get_column("operator_id")).alias("operator"))


def _calls(host: Host) -> pl.DataFrame:
    launches = host.names.select(pl.col("name").str.contains(LAUNCHING).alias("launches")).to_series()
    calls = host.calls.select("process_id", "thread_id", "correlation", "start_ns", "end_ns", launch_id="event_id")
    return calls.with_columns(launches[host.calls.get_column("name_id")])


def _by_correlation(activities: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Link to the latest call with the id that starts up to the activity's start, else to the earliest.

    Clocks may disagree: a call that starts up to `CLOCK_TOLERANCE_NS` later is linked if it is nearer.
    """
    calls = calls.select("launch_id", *BY_ID, "start_ns")
    activities, calls = with_ids(activities.drop_nulls(BY_ID), calls.drop_nulls(BY_ID))
    if count_distinct(calls.get_column("id")) == calls.height:
        # Usual case: every id has one call. Joining first would make all pairs where all calls have one id.
        return lookup_inner(activities, calls.select("id", "launch_id"), "id").select("activity_id", "launch_id")
    calls = calls.select("id", pl.col("start_ns").alias("called_ns"), "launch_id").sort("called_ns", "launch_id")
    earliest = calls.group_by("id", maintain_order=True).agg(pl.col("launch_id").first().alias("earliest_id"))
    at: Any = {"left_on": "start_ns", "right_on": "called_ns", "by": "id", "check_sortedness": False}
    is_nearer = (pl.col("called_ns_later") - pl.col("start_ns")) < (pl.col("start_ns") - pl.col("called_ns"))
    return (
        activities.sort("start_ns")
        .join_asof(calls, **at)
        .join_asof(calls, **at, strategy="forward", tolerance=thresholds.CLOCK_TOLERANCE_NS, suffix="_later")
        .join(earliest, on="id", how="left", maintain_order="left")
        .with_columns(pl.when(is_nearer).then("launch_id_later").otherwise("launch_id").alias("launch_id"))
        .select("activity_id", pl.coalesce("launch_id", "earliest_id").alias("launch_id"))
        .drop_nulls()
    )


def with_ids(known: pl.DataFrame, others: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add ``id``, the number of process and correlation among the ``known`` rows; drop others without one.

    Looking up an id by its rank takes a third of the time of a join, as rows are sorted or nearly sorted.
    """
    by, place = ["process_id"], pl.col("correlation").alias("start_ns")
    ids, distinct = rank_places(known.select(*by, place), by)
    rows = last_started(others.select(*by, place), "start_ns", distinct, by)
    is_same = distinct.get_column("start_ns")[rows] == others.get_column("correlation")
    return known.with_columns(ids.alias("id")), others.with_columns(rows.alias("id")).filter(is_same)


def _by_flow(activities: pl.DataFrame, calls: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """Link by the file's arrows: tail at the call's start, head at the activity's start.

    Arrow ids collide between processes, and activities with equal starts share heads. A call of the activity's own
    process has precedence, then one that launches, then one without a link by correlation id.
    """
    tails, heads = _ends(flows, activities.select(_PLACE))
    merit, descending = ["launches", "numbered", "launch_id"], [True, True, False]
    # Only the best call of an instant and arrow id can win, which bounds the cost of shared ids.
    best_calls = (
        calls.join(tails, on=_PLACE, how="semi")
        .with_columns(pl.col("correlation").is_not_null().alias("numbered"))
        .sort(merit, descending=descending)
        .unique(_PLACE, keep="first", maintain_order=True)
    )
    by_id = (
        tails.join(best_calls, on=_PLACE, how="inner")
        .sort(merit, descending=descending)
        .unique(["flow_id", "process_id"], keep="first", maintain_order=True)
        .select("flow_id", "process_id", *merit)
    )
    by_place = (
        heads.join(by_id, on="flow_id", how="inner")
        .sort(merit, descending=descending)
        .unique([*_PLACE, "process_id"], keep="first", maintain_order=True)
        .select(*_PLACE, pl.col("process_id").alias("calling_process"), *merit)
    )
    return (
        activities.join(by_place, on=_PLACE, how="inner")
        .with_columns((pl.col("process_id") != pl.col("calling_process")).fill_null(False).alias("foreign"))
        .sort("activity_id", "foreign", *merit, descending=[False, False, *descending])
        .group_by("activity_id", maintain_order=True)
        .agg(pl.col("launch_id").first())
    )


_PLACE = ["thread_id", "start_ns"]


def _ends(flows: pl.DataFrame, places: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return tails and heads of the launch arrows that lead to these places: flow_id, thread_id, start_ns."""
    starts, is_launch = places.get_column("start_ns").unique(), pl.col("kind") == "launch"
    columns = ["flow_id", "thread_id", pl.col("time_ns").alias("start_ns")]
    # Mostly few places are needed: filtering by time alone excludes nearly all arrows.
    leading = flows.filter(~pl.col("is_start"), pl.col("time_ns").is_in(starts.implode()), is_launch).select(columns)
    heads = leading.join(places.unique(), on=_PLACE, how="semi").unique()
    leads_there = pl.col("flow_id").is_in(heads.get_column("flow_id").implode())
    tails = flows.filter("is_start", leads_there, is_launch).select(columns).unique()
    return tails, heads


def _with_process(trace: Trace, calls: pl.DataFrame) -> tuple[pl.DataFrame, tuple[errors.Note, ...]]:
    """Add the process that launched each activity.

    Several processes in one file share correlation numbers, so each (device, context) is assigned to one process as a
    whole: to the one with most flows, else to the one with the fewest activities without a call or before their call,
    then with the smallest median lead. A tie leaves it unlinked.
    """
    activities = trace.device_events.select("activity_id", "thread_id", "device", "context", "correlation", "start_ns")
    processes = calls.drop_nulls("correlation").get_column("process_id").unique()
    if processes.len() < 2 or activities.is_empty():
        only = processes.item() if processes.len() == 1 else None
        return activities.with_columns(pl.lit(only, dtype=pl.Int32).alias("process_id")), ()
    owner = ["row_process", "device", "context"]
    rows = trace.threads.select("thread_id", pl.col("process_id").alias("row_process"))
    activities = activities.join(rows, on="thread_id", how="left", maintain_order="left")
    flows = _flow_votes(activities, calls, trace.flows, owner)
    most = flows.filter(pl.col("flows") == pl.col("flows").max().over(owner)).with_columns(
        pl.len().over(owner).alias("n")
    )
    # Only owners that arrows do not determine are tried with every process.
    clear = most.filter(pl.col("n") == 1).select(*owner, "process_id", pl.lit(False).alias("tie"))
    left = activities.join(clear, on=owner, how="anti", nulls_equal=True)
    votes = clear if left.is_empty() else pl.concat([clear, _by_merit(left, calls, flows, owner)])
    ties = votes.filter(pl.col("tie").fill_null(False))
    notes = tuple(
        errors.Note(
            "ambiguous-process",
            "warning",
            f"device {device}, context {context}: two processes fit its correlation ids equally well; left unlinked",
        )
        for device, context in ties.select("device", "context").iter_rows()
    )
    decided = votes.with_columns(pl.when(~pl.col("tie").fill_null(False)).then("process_id").alias("process_id"))
    return activities.join(decided.drop("tie"), on=owner, how="left", nulls_equal=True, maintain_order="left"), notes


def _by_merit(activities: pl.DataFrame, calls: pl.DataFrame, flows: pl.DataFrame, owner: list[str]) -> pl.DataFrame:
    """Return the best process of every owner, and whether another one is equally good."""
    return (
        _leads(activities, calls, owner)
        .join(flows, on=[*owner, "process_id"], how="left", nulls_equal=True)
        .sort("flows", "misses", "median_lead_ns", descending=[True, False, False], nulls_last=True)
        .with_columns(pl.struct("flows", "misses", "median_lead_ns").rank("min").alias("merit"))
        .group_by(owner, maintain_order=True)
        .agg(
            pl.col("process_id").first(),
            (pl.col("merit").first() == pl.col("merit").get(1, null_on_oob=True)).alias("tie"),
        )
    )


def _leads(activities: pl.DataFrame, calls: pl.DataFrame, owner: list[str]) -> pl.DataFrame:
    """Return for every (owner, process) the number of activities without a plausible call, and the others' median lead.

    Of owners with many activities, an evenly spaced sample is tried; none where even one of each would be too many.
    """
    numbers = calls.select("process_id", "correlation").drop_nulls().unique(maintain_order=True)
    candidates = pl.col("len").fill_null(0).cast(pl.Int64)
    counted = activities.select(*owner, "correlation", "start_ns").join(
        numbers.group_by("correlation").len(), on="correlation", how="left", maintain_order="left"
    )
    most = min(_MOST_PAIRS, _PAIRS_PER_EVENT * (activities.height + calls.height))
    step = max(1, -(-int(counted.select(candidates.sum()).item()) // most))
    tried = counted.filter(pl.int_range(pl.len()).over(owner) % step == 0)
    if tried.select(candidates.sum()).item() > most:
        tried = tried.clear()
    tried = tried.with_columns(pl.len().over(owner).alias("tried"))
    pairs = tried.join(numbers, on="correlation", how="inner", maintain_order="left").with_row_index("activity_id")
    ends = calls.select("launch_id", "end_ns")
    lead = pl.col("start_ns") - pl.col("end_ns")
    return (
        pairs.join(_by_correlation(pairs, calls), on="activity_id", how="inner")
        .join(ends, on="launch_id", how="left")
        .group_by(*owner, "process_id")
        .agg(
            (pl.col("tried").first() - (lead >= 0).sum()).alias("misses"),
            lead.filter(lead >= 0).median().alias("median_lead_ns"),
        )
    )


def _flow_votes(activities: pl.DataFrame, calls: pl.DataFrame, flows: pl.DataFrame, owner: list[str]) -> pl.DataFrame:
    """Count for every (owner, process) the arrows from a call of the process to the owner's activities."""
    tails, heads = _ends(flows, activities.select(_PLACE))
    called = tails.join(calls.select(*_PLACE, "process_id").unique(), on=_PLACE, how="inner")
    worked = heads.join(activities.select(*_PLACE, *owner).unique(), on=_PLACE, how="inner")
    # Arrow ids collide between processes like correlation ids: only unambiguous arrows count.
    sole = called.group_by("flow_id").agg(pl.col("process_id").unique()).filter(pl.col("process_id").list.len() == 1)
    return (
        worked.join(sole.with_columns(pl.col("process_id").list.first()), on="flow_id", how="inner")
        .group_by(*owner, "process_id")
        .agg(pl.len().alias("flows"))
    )


def _without_leads(launches: pl.DataFrame, devices: Sequence[int]) -> pl.DataFrame:
    return launches.with_columns(pl.when(~pl.col("device").is_in(list(devices))).then("lead_ns").alias("lead_ns"))


# Find graph captures, in which a process records launches into a graph instead of sending them to a device.
#
# Between ``cudaStreamBeginCapture`` and ``cudaStreamEndCapture``, a launch adds a node to a graph, and the device idles
# by design (CUDA Programming Guide, "Creating a Graph Using Stream Capture"; HIP is the same). The Python frame
# ``torch/_inductor/cudagraph_trees.py: _record`` encloses such a capture. Begin and end calls have no stream in a trace,
# so a capture counts for the whole process: autograd's thread makes the backward launches of a captured pass.

_BEGINS, _ENDS = r"(?i)StreamBeginCapture", r"(?i)StreamEndCapture"
_RECORDS = r"torch/_inductor/cudagraph_trees\.py\(\d+\): _record$"
_CAPTURES = {"process_id": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64}


def captures(host: Host, unmasked_launches: pl.DataFrame) -> pl.DataFrame:
    """Return process_id, start_ns, end_ns: disjoint intervals in which a process captures graphs, in order.

    A capture lasts from the start of its begin call to the end of its end call on the
    same thread. Without an end call, it lasts until the thread launches work that a device executed, else until the
    thread's last event; without a begin call, it starts with the thread's first event.
    """
    calls = _by_call(host, unmasked_launches)
    frames = host.those(pl.col("name").str.contains(_RECORDS), "process_id", "start_ns", "end_ns")
    return union(pl.concat([calls, frames.cast(_CAPTURES)]), ["process_id"])  # type: ignore[arg-type]


def launching_calls(host: Host) -> pl.DataFrame:
    """Return the calls that enqueue device work in a trace without activities, each launch once, except within captures.

    A driver's call within a runtime's call, or with its id, is the same launch.
    """
    calls = host.calls_of(pl.col("name").str.contains(LAUNCHING))
    calls = calls.filter(~is_captured(calls, captures(host, LAUNCHES.empty())))
    calls = calls.sort("thread_id", "start_ns", -pl.col("end_ns"), "event_id")
    inside = (pl.col("start_ns") < pl.col("end_ns").cum_max().shift().over("thread_id")).fill_null(False)
    return first_of_id(calls.filter(~inside))


def first_of_id(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the first call of each id in a process: a driver call inside a runtime call has its id."""
    own = pl.when(pl.col("correlation") > 0).then("correlation").otherwise(-pl.col("event_id").cast(pl.Int64) - 1)
    numbered = calls.with_columns(own.alias("id")).unique(["process_id", "id"], keep="first", maintain_order=True)
    return numbered.drop("id")


def is_captured(calls: pl.DataFrame, captures: pl.DataFrame) -> pl.Series:
    """Return whether each call (process_id, start_ns) begins within a capture of its process."""
    marked = captures.with_columns(pl.lit(True).alias("captured"))
    return lookup_at(calls, "start_ns", marked, ["process_id"], ["captured"]).get_column("captured").fill_null(False)


def _by_call(host: Host, launches: pl.DataFrame) -> pl.DataFrame:
    """Return process_id, start_ns, end_ns between begin and end calls, which may be nested; intervals may overlap."""
    begins = pl.col("name").str.contains(_BEGINS)
    marks = (
        host.those(pl.col("kind").is_in(CALLS) & (begins | pl.col("name").str.contains(_ENDS)))
        .select("process_id", "thread_id", "start_ns", "end_ns", begins.alias("begins"))
        .sort("thread_id", "start_ns")
    )
    thread = "thread_id"
    bounds = host.events.group_by(thread).agg(
        pl.col("start_ns").min().alias("first_ns"), pl.col("end_ns").max().alias("last_ns")
    )
    worked = launches.select(thread, pl.col("start_ns").alias("worked_ns")).sort("worked_ns")
    depth = pl.when("begins").then(1).otherwise(-1).cum_sum().over(thread)
    # An end without a begin closes a capture from before the recording, and does not affect later ones.
    is_open = depth > pl.min_horizontal(depth.cum_min().over(thread), 0)
    spans = (
        marks.with_columns(is_open.alias("is_open"), pl.col("end_ns").shift(-1).over(thread).alias("next_ns"))
        .join(bounds, on=thread)
        .sort("end_ns")
        .join_asof(
            worked, left_on="end_ns", right_on="worked_ns", by=thread, strategy="forward", check_sortedness=False
        )
    )
    opened = spans.filter("is_open").with_columns(pl.coalesce("next_ns", "worked_ns", "last_ns").alias("end_ns"))
    first = pl.col("start_ns") == pl.col("start_ns").min().over(thread)
    headless = spans.filter(first & ~pl.col("begins")).with_columns(pl.col("first_ns").alias("start_ns"))
    return pl.concat([part.select(list(_CAPTURES)).cast(_CAPTURES) for part in (opened, headless)])  # type: ignore[arg-type]


ANALYSES = (
    analysis.Value("launch_links", launch_links),
    analysis.Analysis(LAUNCHES, launches, needs=(analysis.RUN_AHEAD,), hide=_without_leads),
    analysis.Value("graph_captures", captures),
)
