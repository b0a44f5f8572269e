"""Compute upper bounds on savings, and name the code concerned: helpers of all rules."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from trace_analyzer import thresholds
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.analyses.causes import behind_waits
from trace_analyzer.catalog import NAME_LIMIT
from trace_analyzer.catalog.event_names import CALLS, WITHIN_DEVICE, built_in_call, copy_direction, in_function
from trace_analyzer.catalog.fixes import PROFILE
from trace_analyzer.catalog.kernels import OWN_NAME, function_name, kernel_pattern
from trace_analyzer.frames.intervals import END_NS, LENGTH_NS, clip, lookup_at, union
from trace_analyzer.frames.lookups import as_strings, factorize, map_unique, sum_by_group
from trace_analyzer.report import Advice
from trace_analyzer.units import count, counted, duration, percent
from trace_analyzer.vocabulary import NAMED_WORK, phrase


class Opportunity(Struct, frozen=True):
    """The upper bound on a saving with its formula, figures and place; ``values`` fill the advice's placeholders.

    Without ``is_saving``, ``saves_ns`` is the time concerned, of which it saves nothing by itself. ``where`` names the
    code, with times per step for the number of steps that it takes; on demand, as most opportunities are too small to
    be shown. ``members`` are the intervals of the device concerned: device, start_ns, end_ns. ``is_replayed`` is true
    where the fix's change in the replay matches the rule, with its ``options``; where that ``is_part`` of the fix, it raises
    the bound alone. ``if_more`` explains why an estimate may
    far exceed the bound, and ``where_if_more`` then names the code. ``case`` selects the variant of the fix's code, or
    several. Fixes ``after`` which it comes are its preconditions; ``is_first`` is true where it comes before all others,
    ``is_first_of_bounds`` where it does so unless some of these have a known estimate.
    ``spares_launches`` is true of a fix for kernels that saves more than kernels that take no time.
    """

    saves_ns: int
    how_bound: str
    why: str
    where: Callable[[int], str]
    place: tuple[int | None, int | None]
    values: Mapping[str, object] = {}
    members: pl.DataFrame | None = None
    is_replayed: bool = True
    is_part: bool = False
    is_saving: bool = True
    options: Mapping[str, float] = {}
    if_more: str = ""
    where_if_more: Callable[[int], str] | None = None
    case: str | tuple[str, ...] = ""
    after: tuple[str, ...] = ()
    is_first: bool = False
    is_first_of_bounds: bool = False
    spares_launches: bool = False


_Reasoned = TypeVar("_Reasoned", Opportunity, Advice)


def merged(items: Sequence[_Reasoned], **figures: Any) -> _Reasoned:
    """Merge items on different work into the first one, with the reasons of all and these figures."""
    how_bound = "; and ".join(item.how_bound for item in items)
    texts = {"why": "; ".join(item.why for item in items), "how_bound": how_bound}
    return replace(items[0], **{**texts, **figures})


def combined(opportunities: Sequence[Opportunity]) -> Opportunity:
    """Merge opportunities with different work, with their total saving; one that is under a hundredth of it needs no words."""
    members = [one.members for one in opportunities if one.members is not None]
    all_ns = sum(one.saves_ns for one in opportunities)
    return merged(
        opportunities,
        saves_ns=all_ns,
        why="; ".join(one.why for one in opportunities if one is opportunities[0] or 100 * one.saves_ns >= all_ns),
        members=pl.concat(members) if members else None,
    )


def members_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Return device, start_ns, end_ns of rows with these columns, or with device, start_ns, duration_ns."""
    return (rows if "end_ns" in rows.columns else rows.with_columns(END_NS)).select("device", "start_ns", "end_ns")


def total(frame: pl.DataFrame | pl.LazyFrame, figure: str | pl.Expr) -> int:
    """Sum a column or an expression, ns; 0 for no rows."""
    sums = frame.lazy().select((pl.col(figure) if isinstance(figure, str) else figure).sum())
    return int(sums.collect().item() or 0)


def places_of(idle: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return device, start_ns, end_ns: the intervals that these cover together, united batch by batch."""
    of_batch = partial(union, by=["device"])
    places = idle.lazy().select("device", "start_ns", "end_ns").map_batches(of_batch, streamable=True)
    return of_batch(places.collect(engine="streaming"))


def longest(rows: pl.DataFrame, length: pl.Expr) -> tuple[int | None, int | None]:
    """Return start and end of the longest interval: a place on the timeline."""
    if rows.is_empty():
        return None, None
    longest = length.arg_max()
    start, ns = rows.select(pl.col("start_ns").get(longest), length.get(longest).alias("length_ns")).row(0)
    return int(start), int(start) + round(ns)


def a_step(ns: float, steps: int) -> str:
    """Write the time of so many steps as that of one."""
    return duration(ns / steps) + (" a step" if steps > 1 else "")


def steps_of(steps: int, number: int) -> int:
    """Return the steps among which so many things are divided: 1 where there are fewer of them than steps."""
    return steps if number >= steps else 1


def in_a_step(context: AdviceContext, number: int, one: str, many: str | None = None) -> str:
    """Write how many of the window a step has, with their noun: ``in a step, 36 kernels``; all where they are fewer."""
    steps = steps_of(context.steps, number)
    return f"{'in a step, ' if steps > 1 else ''}{counted(number / steps, one, many)}"


_NAME = pl.col("name").cast(pl.String)
_MOST, _HEAD, _TAIL = 96, 60, 16
"""Characters from which on a name fills lines, as those of Tensile (600) do, and those of its ends, which hold what differs."""
_OWN = pl.coalesce(_NAME.str.head(NAME_LIMIT).str.extract(OWN_NAME), _NAME)
KERNEL = (
    pl.when(_OWN.str.len_chars() < _MOST)
    .then(_OWN)
    .otherwise(pl.format("{}…{}", _OWN.str.head(_HEAD), _OWN.str.tail(_TAIL)))
    .alias("name")
)
"""Expression for a kernel's name without return type, namespaces, arguments and the middle of a long one; other names as they are."""


def kernel_word(name: str) -> str:
    """Return a kernel's own identifier, mangled or not, without the middle of a long one."""
    own = function_name(name)
    return own if len(own) < _MOST else f"{own[:_HEAD]}…{own[-_TAIL:]}"


def largest_names(rows: pl.DataFrame, name: pl.Expr, figure: pl.Expr, steps: int = 1) -> str:
    """Name the three names with most time, with their time in a step."""
    sums = (
        rows.group_by(name.alias("by"))
        .agg(figure.sum().alias("ns"))
        .with_columns(pl.col("by").cast(pl.String))
        .sort("ns", "by", descending=[True, False])
    )
    return "; ".join(f"{name or 'unknown operator'} ({a_step(ns, steps)})" for name, ns in sums.head(3).iter_rows())


def responsible_code(context: AdviceContext, idle: pl.DataFrame | pl.LazyFrame, steps: int) -> str:
    """Name the code that most of this idle time is attributed to, by function; else the work that waited."""
    rows = idle.lazy().select("event_id", "code", "gap_id", LENGTH_NS.alias("ns"))
    blamed = rows.filter(pl.col("event_id").is_not_null()).drop("gap_id").collect()
    if blamed.is_empty():
        unblamed = rows.collect()
        waiting = context.within.gaps.get_column("name")[unblamed.get_column("gap_id")]
        return "before " + largest_names(unblamed.with_columns(waiting), KERNEL, pl.col("ns"), steps)
    return code_of_events(context, blamed, blamed.get_column("code"), steps)


def code_of_events(context: AdviceContext, blamed: pl.DataFrame, codes: pl.Series, steps: int) -> str:
    """Name the code of the events of (event_id, ns) by function; without stacks, by the operator around each.

    A call that only launches is then part of that operator; a wait or an allocation in it has its own name. Events of one
    of ``codes`` have one function and one operator.
    """
    events, around = blamed.get_column("event_id"), context.around
    name_ids = context.host.events.get_column("name_id")[events]
    numbers, firsts = factorize(name_ids, codes)
    calls = context.host.events[events[firsts]]
    launches = calls.get_column("kind").is_in(CALLS) & calls.get_column("work").is_null()
    operators = context.host.texts(around.events.get_column("operator_id")[events[firsts]])
    who = ["name", "place"]
    sums = (
        pl.DataFrame(
            {
                "name": context.host.names.get_column("text")[name_ids[firsts]],
                "place": around.functions(events[firsts]),
                "operator": operators,
                "launches": launches & operators.is_not_null(),
                "ns": sum_by_group(numbers, blamed.get_column("ns"), firsts.len()),
            }
        )
        .with_columns(pl.col(*who, "operator").cast(pl.String))
        .with_columns(
            pl.when(pl.col("launches") & pl.col("place").is_null())
            .then(pl.col("operator"))
            .otherwise(built_in_call(pl.col("name")))
            .alias("name"),
            pl.coalesce("place", "operator"),
        )
        .group_by(who)
        .agg(pl.col("ns").sum())
        .sort("ns", *who, descending=[True, False, False])
    )
    return "; ".join(
        f"{name}{f' {in_function(place)}' if place and place != name else ''} ({a_step(ns, steps)})"
        for name, place, ns in sums.head(3).iter_rows()
    )


def largest_operators(kernels: pl.DataFrame, steps: int = 1) -> str:
    """Name the operators with most time, each with the class of its module; fused kernels with what they fuse.

    Time in which several kernels of a name run side by side counts once.
    """
    who = kernels.select("operator", "name", "module", "fused")
    numbers, firsts = factorize(*who)
    name = pl.coalesce("fused", "operator", KERNEL)
    operator_in_module = pl.coalesce(pl.format("{} in {}", name, "module"), name).cast(pl.Categorical).alias("by")
    texts = as_strings(who[firsts]).select(operator_in_module).to_series()
    spans = union(members_of(kernels).with_columns(texts[numbers]), ["device", "by"])
    return largest_names(spans, pl.col("by"), LENGTH_NS, steps)


def by_time(rows: pl.DataFrame) -> pl.DataFrame:
    """Return these kernels by name, operator and type: the name with most time first, and of each the rows with most."""
    sums = rows.group_by("name", "bucket", "operator", "dtype").agg(pl.col("duration_ns").sum(), pl.col("blocks").max())
    of_name = pl.col("duration_ns").sum().over("name")
    return sums.sort(of_name, "name", "duration_ns", "operator", descending=[True, False, True, False])


def profiled(context: AdviceContext, name: str) -> Mapping[str, str]:
    """Return the values of code that profiles a kernel: the command, ``profile``, whose pattern matches no other kernel.

    ``also`` is a comment on other kernels that match nevertheless.
    """
    if not name:
        return {"profile": "", "also": ""}
    pattern, others = kernel_pattern(name, context.names.unique().cast(pl.String).to_list())
    also = f"  # {counted(others, 'other kernel has', 'other kernels have')} such a name" if others else ""
    return {"profile": PROFILE[context.platform].format(pattern), "also": also}


def where_called(rows: pl.DataFrame, condition: pl.Expr) -> pl.DataFrame:
    """Keep the activities whose name, operator and dtype meet a condition."""
    return rows.filter(map_unique(rows.select("name", "operator", "dtype"), condition.alias("is called")).to_series())


def launched_within(context: AdviceContext, rows: pl.DataFrame, pattern: str) -> tuple[pl.DataFrame, int]:
    """Return the activities of ``rows`` launched within annotations or operators of that name, and their number."""
    named = pl.col("kind").is_in(["annotation", "operator"]) & pl.col("name").str.contains(pattern)
    spans = context.host.those(named, "thread_id", "start_ns", "end_ns").rename({"thread_id": "launch_thread"})
    within = union(spans, ["launch_thread"]).with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias("span"))
    inside = lookup_at(rows, "launch_ns", within, ["launch_thread"], ["span"]).drop_nulls("span")
    return inside.drop("span"), inside.get_column("span").n_unique()


def copies_of(context: AdviceContext, direction: str, *, inverted: bool = False) -> pl.DataFrame:
    """Return the window's copies that are no part of collectives in this direction, or in all others."""
    copies = context.within.activities.filter((pl.col("kind") == "memcpy") & (pl.col("bound") != "communication"))
    is_meant = (copy_direction() == direction).fill_null(False)
    return where_called(
        copies, (copy_direction() != WITHIN_DEVICE).fill_null(True) & ~is_meant if inverted else is_meant
    )


ANY_COPY = ".cpu(), .to() or .copy_()"
"""Source of waits that are copies which the program asks for; all other sources wait for what a copy brings."""


def for_results(context: AdviceContext, idle: pl.DataFrame) -> pl.Series:
    """Return whether idle time is a copy of a size or a value that an operator waits for, such as ``nonzero``."""
    written = context.around.sources(idle.get_column("event_id")).cast(pl.String)
    return idle.get_column("cause").cast(pl.String).eq("blocking-copy") & written.ne(ANY_COPY).fill_null(False)


def by_a_pipeline(context: AdviceContext, events: pl.Series, ns: pl.Series) -> bool:
    """Return whether most of the time of these events is in Hugging Face's pipelines, outside modules: nobody writes these copies."""
    functions = context.around.functions(events).cast(pl.String)
    of_pipeline = functions.str.contains(_PIPELINES) & context.around.modules(events).is_null()
    return bool(2 * ns.filter(of_pipeline.fill_null(False)).sum() > ns.sum())


OF_PIPELINE = "copies of a pipeline"
"""Case of code for them."""
_PIPELINES = r"transformers[/\\]pipelines[/\\]"


def worth_ns(context: AdviceContext) -> float:
    """Return the least saving of a recommended fix, ns."""
    return thresholds.WORTH_RATIO * context.window_ns


def share_of_window(context: AdviceContext, ns: float) -> str:
    """Write a time of the window as a share of its steps: ``60 % of a step (8.19 ms)``."""
    return f"{share_of_step(context, ns)} ({duration(min(ns, context.window_ns) / context.steps)})"


def share_of_step(context: AdviceContext, ns: float) -> str:
    """Write the share alone."""
    return f"{percent(min(1.0, ns / context.window_ns))} of {'a step' if context.has_steps else 'the window'}"


def idle_of(context: AdviceContext, causes: tuple[str, ...], why: str) -> Opportunity | None:
    """Return the opportunity to save idle time of some causes: at most all of it.

    Idle time that is charged to a wait counts too while such work was in progress: without the work it ends earlier.
    """
    charged, works = context.idle.lazy().filter(pl.col("cause").is_in(causes)), {*causes} & {*NAMED_WORK}
    waiting = behind_waits(context.idle, context.host, context.launch_threads, works)
    extra = ", and idle time after waits during such work" if waiting.height else ""
    if waiting.height:
        ns = duration(total(waiting, LENGTH_NS) / context.steps)
        why = f"{why}; {ns} of it follow a wait for the device, and are hidden too if that wait goes"
    return idle_opportunity(context, pl.concat([charged, waiting.lazy()]), causes, why, extra)


def idle_opportunity(
    context: AdviceContext, idle: pl.DataFrame | pl.LazyFrame, causes: tuple[str, ...], why: str, extra: str = "",
    beside: pl.DataFrame | None = None,
) -> Opportunity | None:  # fmt: skip
    """Return the opportunity to save intervals of idle time: at most all of them; None without any.

    ``beside`` has other intervals of the device that go with them. A query of many intervals takes no memory: each figure
    collects the columns that it needs.
    """
    saves, places = total(idle, LENGTH_NS), places_of(idle)
    saves += 0 if beside is None else total(beside, LENGTH_NS)
    if saves == 0:
        return None
    return Opportunity(
        saves,
        f"all idle time of the window with cause {' + '.join(map(phrase, causes))}{extra}",
        f"{share_of_window(context, saves)}: {why}",
        partial(responsible_code, context, idle) if places.height else lambda steps: "",
        longest(places, LENGTH_NS),
        members=places if beside is None else pl.concat([places, members_of(beside)]),
    )


_ALL_TIME = pl.col("duration_ns")


def kernel_opportunity(
    context: AdviceContext,
    rows: pl.DataFrame,
    how_bound: str,
    why: str,
    saves: pl.Expr = _ALL_TIME,
    /,
    **values: object,
) -> Opportunity | None:
    """Return the opportunity of some kernels; ``saves`` is the saving of each."""
    timed = rows.with_columns(END_NS, saves.alias("saves_ns"), pl.col("duration_ns").alias("time_ns"))
    bounds = timed.get_column("bound").unique().to_list()
    return _within_their_part(context, timed, how_bound, why, bounds, largest_operators, values)


def run_opportunity(
    context: AdviceContext,
    runs: pl.DataFrame,
    how_bound: str,
    why: str,
    bounds: Sequence[str] = ("memory", "latency"),
    **values: object,
) -> Opportunity | None:
    """Return the opportunity to replace each run of kernels by one; ``bounds`` are possible bounds of its kernels."""
    return _within_their_part(context, runs, how_bound, why, bounds, _patterns, values)


def _within_their_part(
    context: AdviceContext,
    rows: pl.DataFrame,
    how_bound: str,
    why: str,
    bounds: Sequence[str | None],
    where: Callable[[pl.DataFrame, int], str],
    values: Mapping[str, object],
) -> Opportunity | None:
    """Return the opportunity of rows, whose saving their part of the window bounds; None where they save nothing.

    ``rows`` has device, start_ns, end_ns, time_ns and saves_ns.

    The total saving is at most the part of the window that the rows occupy, as time next to other work is hidden,
    multiplied by the largest saved share of any row, as several may run at once.
    """
    best = rows.filter(pl.col("time_ns") > 0).select((pl.col("saves_ns") / pl.col("time_ns")).max()).item() or 0.0
    alone_ns = total(rows, "saves_ns")
    saves_ns = min(alone_ns, round(min(1.0, best) * held_ns(context, rows, bounds)))
    if saves_ns <= 0:
        return None
    # Rounding may differ by a nanosecond.
    is_cut = alone_ns > saves_ns + 1
    cut = "; limited to the part of the window that they hold, since other work runs beside them" if is_cut else ""
    # Kernels side by side take their time once, and a run leaves out the gaps between its kernels.
    taken_ns = min(total(rows, "time_ns"), total(union(members_of(rows), ["device"]), LENGTH_NS))
    return Opportunity(
        saves_ns, how_bound + cut, f"{why} ({share_of_step(context, taken_ns)})", partial(where, rows),
        longest(rows, LENGTH_NS), values, members_of(rows),
    )  # fmt: skip


def held(context: AdviceContext, rows: pl.DataFrame, bounds: Sequence[str | None]) -> pl.DataFrame:
    """Return device, start_ns, end_ns: the window's time in which these activities ran and work of these bounds led."""
    parts = context.busy_parts.filter(pl.col("part").is_in(bounds)).select("device", "start_ns", "end_ns")
    return clip(parts, union(members_of(rows), ["device"]), ["device"])


def held_ns(context: AdviceContext, rows: pl.DataFrame, bounds: Sequence[str | None]) -> int:
    """Return the length of this time, ns."""
    return total(held(context, rows, bounds), LENGTH_NS)


def _patterns(runs: pl.DataFrame, steps: int) -> str:
    """Name the three patterns with the largest saving, with their places in code."""
    keys = ["what", "module", "function"]
    sums = runs.group_by(keys).agg(pl.len().alias("runs"), pl.col("saves_ns").sum())
    top = sums.sort("saves_ns", *keys, descending=[True, False, False, False]).head(3)
    return "; ".join(
        f"{what}{f' in {module}' if module else ''}{f', {in_function(function)}' if function else ''},"
        f" {_times(times, saves, steps)}"
        for what, module, function, times, saves in top.iter_rows()
    )


def _times(times: int, saves: int, steps: int) -> str:
    """Write how often a pattern occurs, and what it saves: ``36 times a step (95.8 ms)``."""
    each = steps_of(steps, times)
    number = count(times / each)
    often = "once" if number == "1" else f"{number} times"
    return f"{often} a step ({duration(saves / each)})" if each > 1 else f"{often} ({a_step(saves, steps)})"


def outside(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Keep the rows that start outside all of the spans."""
    marked = spans.with_columns(pl.lit(True).alias("within"))
    return lookup_at(rows, "start_ns", marked, ["device"], ["within"]).filter(pl.col("within").is_null()).drop("within")


_ALL = 0.995
"""Least share of its time at which advice counts as entirely shared, to ignore gaps of nanoseconds between kernels."""


def with_claims(ranked: Sequence[Advice], members: Mapping[str, pl.DataFrame]) -> tuple[Advice, ...]:
    """Return the advice; each piece refers to an earlier one that already counts a large share of its time.

    ``members`` are the intervals of the device that each fix concerns: device, start_ns, end_ns. Of two fixes, the
    first, which saves more, counts the shared time; one that saves nothing by itself counts none.
    """
    counting = [item for item in ranked if item.id in members and item.saving.at_most_ns]
    spans = {item.id: union(members[item.id], ["device"]) for item in counting}
    return tuple(_claimed(item, ranked[:place], spans) for place, item in enumerate(ranked))


def _claimed(item: Advice, above: Sequence[Advice], spans: Mapping[str, pl.DataFrame]) -> Advice:
    own = spans.get(item.id)
    if own is None or not (length := total(own, LENGTH_NS)):
        return item
    shared = [
        (total(clip(own, spans[other.id], ["device"]), LENGTH_NS) / length, other)
        for other in above
        if other.id in spans
    ]
    ratio, first = max(shared, key=lambda pair: pair[0], default=(0.0, item))
    if ratio < thresholds.SHARED_RATIO:
        return item
    share = "all" if ratio > _ALL else percent(ratio)
    why = f"{item.why}; “{first.title}” already counts {share} of this time, which can be saved only once"
    return replace(item, why=why, shared_with=first.id, shared_ratio=ratio)


_DIVIDES = r"addcdiv|PointwiseOp\w*Functor<[^()]*divides"
"""Kernels that end an update of Adam and its kin, of one tensor or of a list; only optimizers have them."""


def replayed_updates(context: AdviceContext) -> pl.DataFrame:
    """Return the kernels by which graphs update parameters, with the number of their ``update``.

    A graph names no operators: these are pointwise kernels in a row, at least one of which only optimizers have.
    """
    passes = (pl.col("group") == "pointwise") & (pl.col("activity_count") > 1)
    rows = context.within.activities.sort("stream", "start_ns").with_columns(passes.fill_null(False).alias("passes"))
    if not rows.get_column("passes").any():
        return rows.clear().with_columns(pl.lit(0, pl.UInt32).alias("update"))
    is_update = map_unique(rows.select("name"), pl.col("name").str.contains(_DIVIDES).alias("divides"))
    rows = rows.hstack(is_update).with_columns(pl.struct("stream", "launch_id", "passes").rle_id().alias("update"))
    return rows.filter("passes", pl.col("divides").any().over("update"))
