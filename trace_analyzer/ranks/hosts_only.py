"""Summarize a rank without a device: gloo's collectives, which it annotates on its own threads, and the steps."""

import json
import math

import polars as pl

from trace_analyzer.catalog.step_marks import PROFILER_STEP_NAME
from trace_analyzer.frames.intervals import union
from trace_analyzer.ingest import Trace
from trace_analyzer.ranks.groups import RankGroup
from trace_analyzer.ranks.tables import COLLECTIVES, STEPS
from trace_analyzer.schema import typed

_MARK = r"^gloo:(\w+)$"
_KINDS = {"all_to_all_base": "all_to_all", "send": "send_recv", "recv": "send_recv"}
_TYPES = {
    "float": "Float", "double": "Double", "c10::Half": "Half", "c10::BFloat16": "BFloat16", "int": "Int", "long int": "Long",
}  # fmt: skip


def steps_of(trace: Trace) -> pl.DataFrame:
    """Return `STEPS` from the trace's ``ProfilerStep`` annotations; all count as steady."""
    marks = _marks(trace, PROFILER_STEP_NAME)
    return typed(
        marks.select(
            pl.col("match").cast(pl.Int64).alias("step"), "start_ns", "end_ns",
            pl.lit(True).alias("is_steady"), pl.lit(None, pl.String).alias("regime"),
        ).unique("step", keep="first", maintain_order=True).sort("start_ns"),
        STEPS,
    )  # fmt: skip


def collectives_of(trace: Trace, steps: pl.DataFrame) -> tuple[pl.DataFrame, tuple[RankGroup, ...]]:
    """Return gloo's `COLLECTIVES`, with steps as in `steps_of`, and their process group: the job's, if it has no other.

    The time without a concurrent operator on another thread counts as exposed.
    """
    marks = _marks(trace, _MARK).sort("start_ns")
    inputs = trace.operator_inputs.select("event_id", pl.col("input_dims", "input_types").cast(pl.String))
    rows = marks.join(inputs, on="event_id", how="left", maintain_order="left")
    groups = trace.header.process_groups
    group = None
    if len(groups) == 1 and groups[0].ranks:
        known = groups[0]
        ranks = tuple(known.ranks)
        group = RankGroup(known.name, known.name, known.description, len(ranks), ranks)
    at = rows.sort("start_ns").join_asof(
        steps.select("step", pl.col("start_ns").alias("from"), "end_ns").rename({"end_ns": "to"}).sort("from"),
        left_on="start_ns", right_on="from", strategy="backward",
    ).with_columns(pl.when(pl.col("start_ns") < pl.col("to")).then("step").alias("step"))  # fmt: skip
    kind = pl.col("match").replace(_KINDS)
    frame = at.with_columns(
        pl.lit(group and group.key, pl.String).alias("group"),
        kind.alias("kind"),
        pl.Series("dtype", [_dtype(text) for text in at.get_column("input_types")], dtype=pl.String),
        pl.Series("elements", [_elements(text) for text in at.get_column("input_dims")], dtype=pl.Int64),
        pl.lit(group and group.size, pl.Int64).alias("group_size"),
        *(pl.lit(None).alias(name) for name in ("seq", "comms_id", "source", "destination")),
        (pl.int_range(pl.len()).over("step")).alias("ordinal"),
        pl.col("duration_ns").alias("exposed_ns"),
    )
    return typed(frame, COLLECTIVES), (group,) if group and frame.height else ()


def work_of(trace: Trace) -> pl.DataFrame:
    """Return start_ns and end_ns of intervals in which an operator ran, except operators that only wait for gloo."""
    events = trace.host_events.filter(pl.col("kind").cast(pl.String) == "operator")
    names = pl.col("name").cast(pl.String)
    own = events.filter(~names.str.contains(r"^(c10d::|gloo:|record_param_comms)"))
    spans = own.select(
        pl.lit(0).alias("device"), "start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    )
    return union(spans, ["device"])


def with_exposed(collectives: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Return the collectives with exposed_ns: the part of each that the disjoint spans of ``work`` do not cover."""
    starts, ends = work.get_column("start_ns"), work.get_column("end_ns")
    covered = pl.concat([pl.Series([0]), (ends - starts).cum_sum()])

    def until(times: pl.Series) -> pl.Series:
        """Return the time of work before each of ``times``."""
        place = starts.search_sorted(times, "right")
        inside = pl.concat([pl.Series([0]), ends]).gather(place) - times
        return covered.gather(place) - inside.clip(0) * (place > 0).cast(pl.Int64)

    begin = collectives.get_column("start_ns")
    end = begin + collectives.get_column("duration_ns")
    return collectives.with_columns((end - begin - (until(end) - until(begin))).alias("exposed_ns"))


def _marks(trace: Trace, pattern: str) -> pl.DataFrame:
    """Return annotations with a matching name, with the pattern's group (``match``) and end_ns."""
    events = trace.host_events.filter(pl.col("kind").cast(pl.String) == "annotation")
    return events.select(
        "event_id",
        pl.col("name").cast(pl.String).str.extract(pattern).alias("match"),
        "start_ns",
        "duration_ns",
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
    ).filter(pl.col("match").is_not_null())


def _dtype(text: str | None) -> str | None:
    """Return the type of the first input, in NCCL's notation."""
    types = json.loads(text) if text else []
    return _TYPES.get(str(types[0]), str(types[0])) if types else None


def _elements(text: str | None) -> int | None:
    """Return the number of elements of the first input."""
    dims = json.loads(text) if text else []
    first = dims[0] if dims and isinstance(dims[0], list) else None
    if first is None or not all(isinstance(size, int) for size in first):
        return None
    return math.prod(first)
