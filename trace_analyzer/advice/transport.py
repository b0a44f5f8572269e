"""Define the rule for collectives over a path that is far slower than the device's links."""

from functools import partial

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.advice.opportunity import Opportunity, end_ns_of, held_ns, largest_names, longest, members_of
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.catalog.interconnects import interconnects_of
from trace_analyzer.units import bandwidth, percent


def transport(context: AdviceContext) -> Opportunity | None:
    """Propose the device's links for large collectives, where even the fastest is far below their bandwidth."""
    links = interconnects_of(context.model.name) if context.model is not None else ()
    rows = context.within.collectives.filter(
        (pl.col("message_bytes") >= thresholds.SMALL_MESSAGE_BYTES) & pl.col("bus_byte_per_s").is_not_null()
    )
    if not links or rows.is_empty():
        return None
    link = links[0]
    best = float(rows.select(pl.col("bus_byte_per_s").max()).item())
    if best >= thresholds.SLOW_TRANSPORT_RATIO * link.byte_per_s:
        return None
    alone = held_ns(context, rows.with_columns(end_ns_of()), ["communication"])
    return Opportunity(
        round(alone * (1 - best / link.byte_per_s)),
        f"time in which these collectives run alone, minus their time at the {bandwidth(link.byte_per_s)} of {link.kind}",
        f"the fastest collective of 4 MiB or more moves {bandwidth(best)}, {percent(best / link.byte_per_s)} of {link.kind}'s"
        " peak: neither waiting for peers nor latency explains that",
        partial(largest_names, rows, pl.coalesce("collective", "name"), pl.col("exposed_ns")),
        longest(rows, pl.col("duration_ns")),
        members=members_of(rows),
    )
