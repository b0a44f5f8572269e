"""Summarize one rank where it is read: from its trace and the report on it, on a device or with gloo on the host alone."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from msgspec.structs import replace

from trace_analyzer import errors, files, options, pipeline
from trace_analyzer.analyses.communication import collective_inputs, hiding_work, with_exposed
from trace_analyzer.catalog.event_names import PROFILER_STEP_NAME
from trace_analyzer.compare.profiles import CALLS, ROWS, Profile, profile_of
from trace_analyzer.compare.sides import units_of_rows
from trace_analyzer.frames.intervals import END_NS, LENGTH_NS, lookup_at, split_by, union
from trace_analyzer.ingest import Trace, load
from trace_analyzer.ingest.trace import Header, rank_of
from trace_analyzer.ranks import summary
from trace_analyzer.ranks.files import SUFFIX, local_copy, rank_in_label
from trace_analyzer.report import Report
from trace_analyzer.report.summaries import device_code
from trace_analyzer.schema import typed
from trace_analyzer.verdict.decide import is_too_little, is_undecided
from trace_analyzer.verdict.judge import judge

_NUMBERS = re.compile(r"^\[\s*\d+(?:\s*,\s*\d+)*\s*\]$")
_CUT = (*errors.DAMAGED, "gzip-truncated", "gzip-damaged", "zstd-truncated", "zstd-damaged")
_MOST_LINES = 120
"""Most lines of work that are kept per rank, the longest ones; the rest is summed by bucket, so that totals stay
exact."""
_MOST_RANKS = 1 << 20
"""A group said to be larger is not listed rank by rank."""
_MOST_PIECES = 8
"""Most exposed pieces that are kept per collective; of more, neighbours are merged."""


def summarize(path: str) -> bytes:
    """Return the summary of the trace, or of the summary, at ``path``, as bytes of `to_bytes`, one after the other for several ranks.

    Never raises: a failure becomes the summary's ``error``.
    """
    try:
        with local_copy(path) as file:
            if path.endswith(SUFFIX):
                return summary.with_path(file.read_bytes(), path)
            trace = replace(load(file), path=path)
            devices = [(label, rank) for label in trace.devices["label"] if (rank := rank_in_label(label)) is not None]
            if len({rank for _, rank in devices}) < max(2, len(devices)):
                return summary.to_bytes(summary_of(trace, pipeline.report_of(trace)))
            reports = ((pipeline.report_of(trace, options.Options(device=label)), rank) for label, rank in devices)
            return b"".join(summary.to_bytes(replace(summary_of(trace, report), rank=rank)) for report, rank in reports)
    except Exception as error:
        return summary.failed(path, _reason(error, path))


def _reason(error: Exception, path: str) -> str:
    """Return the reason for a failed read in one line without the path."""
    text = str(error) if isinstance(error, errors.TraceAnalyzerError | OSError) else f"{type(error).__name__}: {error}"
    lines = text.removeprefix(f"{path}: ").splitlines()
    return lines[0] if lines else type(error).__name__


def write_summary(trace: Trace, report: Report, path: Path) -> None:
    """Write the summary of a trace and the report on it to ``path`` in one step. Raises ``OSError``."""
    files.write_bytes(path, summary.to_bytes(summary_of(trace, report)))


def summary_of(trace: Trace, report: Report) -> summary.RankSummary:
    """Summarize a rank's trace and its report."""
    tables, code = report.tables, device_code(report, report.verdict.device)
    device = -1 if code is None else code
    header = trace.header
    steps = tables["steps"].filter(pl.col("device") == device).sort("start_ns")
    profile = profile_of(report)
    if device < 0:
        marked = steps_of(trace)
        hiding = work_of(trace)
        collectives, groups = collectives_of(trace, marked)
        collectives = with_exposed(collectives.with_columns(pl.lit(0).alias("device")), hiding)
    else:
        marked = typed(steps.rename({"index": "step", "steady": "is_steady"}), summary.STEPS)
        hiding = union(hiding_work(tables["activities"].filter(pl.col("device") == device)), ["device"])
        collectives, groups = _collectives(trace, report, device, steps)
    reduced = _reduced(profile)
    step_ns = profile.total_ns / profile.steps if profile.steps and profile.total_ns else None
    if device < 0:
        step_ns = marked.select(LENGTH_NS.mean().cast(pl.Float64)).item()
    parts = (
        tables["owners"]
        .filter(pl.col("device") == device)
        .group_by("step", "part")
        .agg(LENGTH_NS.sum().alias("total_ns"))
        .sort("step", "part", nulls_last=True)
    )
    verdict = report.verdict
    window, cost = verdict.window, verdict.debiased
    is_little = any(is_too_little(item) for item in report.devices if item.index == verdict.device)
    alone = judge(verdict.parts_ns) if is_little and verdict.parts_ns else None
    if alone is not None and not is_undecided(alone, verdict.parts_ns):
        verdict = replace(verdict, regime=alone.regime, cause=alone.cause)
    damage = next((note.message for note in report.notes if note.code in _CUT), None)
    return summary.RankSummary(
        path=report.trace.path,
        rank=rank_of(header, report.trace.path),
        world_size=header.world_size,
        host=header.host_name,
        damage=damage,
        base_ns=int(header.base_time_ns or 0) + trace.origin_ns,
        duration_ns=trace.duration_ns,
        device_name=profile.facts.device_name,
        regime=verdict.regime,
        cause=verdict.cause,
        is_little=is_little,
        headline=verdict.headline,
        step_ns=step_ns,
        recording_ns=cost.least_removed_ns / window.step_count if cost and window else None,
        levers=verdict.levers,
        steps_from="ProfilerStep" if device < 0 and marked.height else report.steps_from if steps.height else None,
        groups=groups,
        steps=marked,
        parts=typed(parts, summary.PARTS),
        collectives=typed(collectives, summary.COLLECTIVES),
        exposed=exposed_pieces(collectives, hiding),
        work=pl.DataFrame(schema=summary.WORK) if reduced is None else typed(reduced.work, summary.WORK),
        profile=reduced,
    )


def _collectives(
    trace: Trace, report: Report, device: int, steps: pl.DataFrame
) -> tuple[pl.DataFrame, tuple[summary.RankGroup, ...]]:
    """Return `COLLECTIVES` of the device and their process groups."""
    tables = report.tables
    own = tables["collectives"].filter(pl.col("device") == device).sort("start_ns", "activity_id")
    links = tables["activities"].select("activity_id", "launch_id", "operator_id")
    launches = tables["host_events"].select(
        pl.col("event_id").alias("launch_id"), pl.col("start_ns").alias("launch_ns")
    )
    own = own.join(links, on="activity_id", how="left", maintain_order="left")
    inputs = collective_inputs(trace, own).select(
        "activity_id", "process_group", "process_group_description", "process_group_ranks", "global_rank_start",
        "global_rank_stride", pl.col("message_elements").alias("elements"), pl.col("collective_seq").alias("seq"),
        "comms_id", pl.col("source_rank").alias("source"), pl.col("destination_rank").alias("destination"),
    )  # fmt: skip
    joined = (
        own.join(launches, on="launch_id", how="left", maintain_order="left")
        .join(inputs, on="activity_id", how="left", maintain_order="left")
        .with_columns(
            pl.coalesce("elements", pl.col("message_bytes").round().cast(pl.Int64, strict=False)).alias("elements")
        )
    )
    keyed, groups = _with_groups(joined, trace)
    # The step is the one whose annotation contains the launch, else the one in which the kernel starts.
    at_device = lookup_at(keyed, "start_ns", steps.rename({"index": "device_step"}), ["device"], ["device_step"])
    on_host = steps.select(
        "device", pl.col("host_start_ns").alias("start_ns"), pl.col("host_end_ns").alias("end_ns"), pl.col("index").alias("host_step")
    ).drop_nulls("start_ns")  # fmt: skip
    launched = at_device.with_columns(pl.coalesce("launch_ns", "start_ns").alias("at"))
    placed = lookup_at(launched, "at", on_host, ["device"], ["host_step"])
    step = pl.when(pl.col("launch_ns").is_not_null()).then("host_step").otherwise("device_step")
    numbered = placed.with_columns(step.alias("step"))
    order = pl.struct(pl.coalesce("launch_ns", "start_ns"), "start_ns").rank("ordinal").over("group", "step")
    return numbered.with_columns(
        (order.cast(pl.Int64) - 1).alias("ordinal"),
        pl.col("collective").fill_null("unknown").alias("kind"),
        pl.col("message_dtype").alias("dtype"),
    ), groups


def _with_groups(rows: pl.DataFrame, trace: Trace) -> tuple[pl.DataFrame, tuple[summary.RankGroup, ...]]:
    """Add ``group``, the key of the process group."""
    named = [
        "process_group", "process_group_description", "process_group_ranks", "global_rank_start", "global_rank_stride",
        "group_size",
    ]  # fmt: skip
    distinct = rows.select(named).unique(maintain_order=True)
    groups = [group_of(row, trace.header) for row in distinct.iter_rows(named=True)]
    keys = distinct.with_columns(pl.Series("group", [group and group.key for group in groups], dtype=pl.String))
    keyed = rows.join(keys, on=named, how="left", nulls_equal=True, maintain_order="left")
    return keyed, tuple({group.key: group for group in groups if group}.values())


def exposed_pieces(collectives: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Return `EXPOSED` of collectives in their order: the parts that the disjoint spans of ``work`` do not cover."""
    device, begin, length = pl.lit(0).alias("device"), pl.col("begin_ns"), pl.col("duration_ns")
    spans = collectives.select(device, "start_ns", END_NS, "duration_ns", begin_ns="start_ns").with_row_index("row")
    hiding = work.select(device, "start_ns", "end_ns", is_hidden=True)
    open_ = split_by(spans, hiding, ["device"], ["is_hidden"]).filter(pl.col("is_hidden").is_null())
    cut = open_.filter(LENGTH_NS.sum().over("row") < length)
    share = (pl.col("start_ns") - begin) * _MOST_PIECES // length
    piece = pl.when(pl.len().over("row") > _MOST_PIECES).then(share).otherwise(pl.int_range(pl.len()).over("row"))
    joined = cut.group_by("row", piece.alias("piece"), maintain_order=True).agg(
        LENGTH_NS.sum().alias("exposed_ns"),
        (pl.col("start_ns") - begin).min(),
        (pl.col("end_ns") - begin).max(),
    )
    return typed(joined, summary.EXPOSED)


def _reduced(profile: Profile) -> Profile | None:
    """Return the profile by phase, operator and bucket only, with its longest lines individually; None without work."""
    if not profile.total_ns:
        return None
    key = ["phase", "operator", "kind", "category", "group", "part"]
    calls = profile.calls.select("call", "phase", "operator", "count", "first").rename({"count": "calls"})
    rows = profile.rows.join(calls, on="call", how="left", maintain_order="left")
    ranked = rows.group_by(key).agg(pl.col("total_ns").sum()).sort("total_ns", *key, descending=[True] + [False] * 6)
    kept = ranked.head(_MOST_LINES).select(*key, pl.lit(True).alias("is_kept"))
    rows = rows.join(kept, on=key, how="left", nulls_equal=True, maintain_order="left").with_columns(
        pl.when("is_kept").then(pl.col(name)).alias(name) for name in ("phase", "operator")
    )
    named = pl.col("operator").is_not_null()
    called = (
        rows.filter(named)
        .unique("call", maintain_order=True)
        .group_by("phase", "operator", maintain_order=True)
        .agg(pl.col("calls").sum().alias("count"), pl.col("first").min())
        .with_row_index("call")
    )
    texts = {name: pl.lit(None, dtype) for name, dtype in CALLS.items() if name not in called.columns}
    numbers = called.select("phase", "operator", pl.col("call").alias("new_call"))
    sums = (
        rows.drop("call")
        .join(numbers, on=["phase", "operator"], how="left", nulls_equal=True, maintain_order="left")
        .group_by(pl.col("new_call").alias("call"), "kind", "category", "group", "part", maintain_order=True)
        .agg(pl.col("count", "total_ns", "roof_ns", "known_ns", "blocks").sum(), pl.col("row").alias("rows"))
        .with_row_index("row")
    )
    return replace(
        profile,
        calls=typed(called.with_columns(**texts), CALLS),
        rows=typed(sums.with_columns(pl.lit(None, pl.String).alias("kernel")), ROWS),
        units=units_of_rows(profile, sums),
        facts=replace(profile.facts, advice=(), attention=()),
        timeline=None,
    )


def group_of(record: Mapping[str, Any], header: Header) -> summary.RankGroup | None:
    """Return the group of a row of `operator_inputs`; None where the row has none.

    Its ranks come from the header's ``pg_config``, else from start and stride, else from the printed list if it is
    complete. The key is a hash of name and ranks, as disjoint groups may share a name; without ranks it is the name
    alone.
    """
    name = record["process_group"]
    if name is None:
        return None
    size = record["group_size"]
    known = next((group for group in header.process_groups if group.name == name and group.ranks), None)
    ranks = known.ranks if known else _ranks(record, size, header.world_size)
    key = hashlib.blake2b(f"{name}|{','.join(map(str, ranks))}".encode(), digest_size=6).hexdigest()
    description = record["process_group_description"] or (known.description if known else None)
    return summary.RankGroup(key, name, description, size or len(ranks) or None, ranks)


def _ranks(record: Mapping[str, Any], size: int | None, world_size: int | None) -> tuple[int, ...]:
    start, stride, listed = (record[key] for key in ("global_rank_start", "global_rank_stride", "process_group_ranks"))
    if size and 0 < size <= _MOST_RANKS and start is not None and stride is not None and stride > 0:
        return tuple(range(start, start + size * stride, stride))
    if listed and _NUMBERS.match(listed):
        ranks = tuple(int(rank) for rank in json.loads(listed))
        if size in (None, len(ranks)):
            return ranks
    return tuple(range(size)) if size and size == world_size else ()


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
        summary.STEPS,
    )  # fmt: skip


def collectives_of(trace: Trace, steps: pl.DataFrame) -> tuple[pl.DataFrame, tuple[summary.RankGroup, ...]]:
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
        group = summary.RankGroup(known.name, known.name, known.description, len(ranks), ranks)
    device = pl.lit(0).alias("device")
    at = lookup_at(rows.with_columns(device), "start_ns", steps.with_columns(device), ["device"], ["step"])
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
    return typed(frame, summary.COLLECTIVES), (group,) if group and frame.height else ()


def work_of(trace: Trace) -> pl.DataFrame:
    """Return start_ns and end_ns of intervals in which an operator ran, except operators that only wait for gloo."""
    events = trace.host_events.filter(pl.col("kind").cast(pl.String) == "operator")
    names = pl.col("name").cast(pl.String)
    own = events.filter(~names.str.contains(r"^(c10d::|gloo:|record_param_comms)"))
    spans = own.select(pl.lit(0).alias("device"), "start_ns", END_NS)
    return union(spans, ["device"])


def _marks(trace: Trace, pattern: str) -> pl.DataFrame:
    """Return annotations with a matching name, with the pattern's group (``match``) and end_ns."""
    events = trace.host_events.filter(pl.col("kind").cast(pl.String) == "annotation")
    return events.select(
        "event_id",
        pl.col("name").cast(pl.String).str.extract(pattern).alias("match"),
        "start_ns",
        "duration_ns",
        END_NS,
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
