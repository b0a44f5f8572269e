"""Link backward operators to their forward operators and modules."""

import polars as pl

from trace_analyzer.analyses.host import Host
from trace_analyzer.analysis import Analysis
from trace_analyzer.frames.intervals import innermost, lookup_at
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.schema import STR, U32, Column, Table

BACKWARD_LINKS = Table(
    "backward_links",
    "Backward operators with the forward operator they belong to.",
    (
        Column("event_id", U32, "The backward operator, a row of `host_events`."),
        Column("forward_id", U32, "The forward operator, a row of `host_events`."),
        Column("module", STR, "The nn.Module that the forward operator ran in; null when not recorded."),
    ),
)

_MODULE = "nn.Module: "


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
    return BACKWARD_LINKS.conform(_with_module(links, host).sort("event_id"))


def _by_arrow(flows: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """Pair operators whose starts are the ends of one arrow; of several forward operators the first counts."""
    arrows = flows.filter(pl.col("kind") == "forward-backward").rename({"time_ns": "start_ns"})
    place, first = ["thread_id", "start_ns"], pl.col("forward_id").min()
    if arrows.is_empty():
        return pl.DataFrame(schema={"event_id": pl.UInt32, "forward_id": pl.UInt32})
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


def _with_module(links: pl.DataFrame, host: Host) -> pl.DataFrame:
    """Add the innermost nn.Module frame around the forward operator; null where none was recorded."""
    modules = host.those((pl.col("kind") == "python") & pl.col("name").str.starts_with(_MODULE)).select(
        "thread_id", "start_ns", "end_ns", pl.col("event_id").alias("module_id")
    )
    forward = links.hstack(host.events.select("thread_id", "start_ns")[links.get_column("forward_id")])
    located = lookup_at(
        forward, "start_ns", innermost(modules, ["thread_id"], "module_id"), ["thread_id"], ["module_id"]
    )
    names = host.texts(located.get_column("module_id")).cast(pl.String)
    return located.with_columns(names.str.strip_prefix(_MODULE).alias("module"))


ANALYSES = (Analysis(BACKWARD_LINKS, backward_links),)
