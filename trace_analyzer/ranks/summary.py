"""Summarize one rank where it is read: the input for judging a job, some kilobytes."""

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import polars as pl

from trace_analyzer.compare import baselines
from trace_analyzer.compare.profiles import CALLS, ROWS, UNITS, Profile, profile_of
from trace_analyzer.errors import InputError, TraceAnalyzerError
from trace_analyzer.files import write_bytes
from trace_analyzer.frames.intervals import union
from trace_analyzer.frames.lookups import as_strings
from trace_analyzer.ingest import Trace, load
from trace_analyzer.notes import DAMAGED
from trace_analyzer.pipeline import report_of
from trace_analyzer.ranks import hosts_only
from trace_analyzer.ranks.columns import packed as packed_columns
from trace_analyzer.ranks.columns import unpacked as unpacked_columns
from trace_analyzer.ranks.groups import RankGroup, group_of, packed, unpacked
from trace_analyzer.ranks.names import rank_in_name, rank_of
from trace_analyzer.ranks.remote import local_copy
from trace_analyzer.ranks.tables import COLLECTIVES, EXPOSED, PARTS, STEPS, WORK
from trace_analyzer.report import Report
from trace_analyzer.schema import typed
from trace_analyzer.typed import damage, first_line, read_as

SUFFIX = ".rank.gz"
"""Suffix of files with a summary."""
_KIND, _VERSION = "rank_summary_version", 2
_MOST_BYTES = 64 << 20
_LEVEL = 4
_MOST_RANKS = 1 << 20
_KNOWN = {
    "steps": ["start_ns", "end_ns"],
    "parts": ["part", "total_ns"],
    "collectives": ["ordinal", "kind", "start_ns", "duration_ns", "exposed_ns"],
    "exposed": ["row", "start_ns", "end_ns", "exposed_ns"],
    "work": ["kind", "count", "step_ns"],
}
"""Columns that must not be null."""
_FRAMES = {"steps": STEPS, "parts": PARTS, "collectives": COLLECTIVES, "exposed": EXPOSED, "work": WORK}
_EMPTY = {name: pl.DataFrame(schema=schema) for name, schema in _FRAMES.items()}
_APART = (*_FRAMES, "profile")
_CUT = (*DAMAGED, "gzip-truncated", "gzip-damaged", "zstd-truncated", "zstd-damaged")
_MOST_LINES = 120
"""Most lines of work that are kept per rank, the longest ones; the rest is summed by bucket, so that totals stay
exact."""
_MOST_PIECES = 8
"""Most exposed pieces that are kept per collective; of more, neighbours are merged."""


@dataclass(frozen=True)
class RankSummary:
    """Hold the data of one rank for judging a job, or the ``error`` that prevented reading it.

    ``base_ns`` is the absolute time at which its times are 0. ``damage`` describes losses in its file. Frames have the
    schemas of `trace_analyzer.ranks.tables`; ``profile`` is its work per step, as a comparison's profile.
    """

    path: str
    rank: int | None = None
    world_size: int | None = None
    host: str | None = None
    error: str | None = None
    damage: str | None = None
    base_ns: int = 0
    duration_ns: int = 0
    device_name: str | None = None
    regime: str | None = None
    cause: str | None = None
    headline: str = ""
    step_ns: float | None = None
    steps_from: str | None = None
    groups: tuple[RankGroup, ...] = ()
    steps: pl.DataFrame = field(default_factory=lambda: _EMPTY["steps"], repr=False, compare=False)
    parts: pl.DataFrame = field(default_factory=lambda: _EMPTY["parts"], repr=False, compare=False)
    collectives: pl.DataFrame = field(default_factory=lambda: _EMPTY["collectives"], repr=False, compare=False)
    exposed: pl.DataFrame = field(default_factory=lambda: _EMPTY["exposed"], repr=False, compare=False)
    work: pl.DataFrame = field(default_factory=lambda: _EMPTY["work"], repr=False, compare=False)
    profile: Profile | None = field(default=None, repr=False, compare=False)


def summarize(path: str) -> bytes:
    """Return the summary of the trace, or of the summary, at ``path``, as bytes of `to_bytes`.

    Never raises: a failure becomes the summary's ``error``.
    """
    try:
        with local_copy(path) as file:
            if path.endswith(SUFFIX):
                return with_path(file.read_bytes(), path)
            trace = replace(load(file), path=path)
            return to_bytes(summary_of(trace, report_of(trace)))
    except Exception as error:
        return failed(path, _reason(error, path))


def failed(path: str, error: str) -> bytes:
    """Return the summary of a rank that could not be read."""
    return to_bytes(RankSummary(path, rank=rank_in_name(path), error=error))


def _reason(error: Exception, path: str) -> str:
    """Return the reason for a failed read in one line without the path."""
    text = str(error) if isinstance(error, TraceAnalyzerError | OSError) else f"{type(error).__name__}: {error}"
    lines = text.removeprefix(f"{path}: ").splitlines()
    return lines[0] if lines else type(error).__name__


def write_summary(trace: Trace, report: Report, path: Path) -> None:
    """Write the summary of a trace and the report on it to ``path`` in one step. Raises ``OSError``."""
    write_bytes(path, to_bytes(summary_of(trace, report)))


def summary_of(trace: Trace, report: Report) -> RankSummary:
    """Summarize a rank's trace and its report."""
    tables, device = report.tables, _device(report)
    header = trace.header
    steps = tables["steps"].filter(pl.col("device") == device).sort("start_ns")
    profile = profile_of(report)
    if device < 0:
        marked = hosts_only.steps_of(trace)
        hiding = hosts_only.work_of(trace)
        collectives, groups = hosts_only.collectives_of(trace, marked)
        collectives = hosts_only.with_exposed(collectives, hiding)
    else:
        marked = typed(steps.rename({"index": "step", "steady": "is_steady"}), STEPS)
        hiding = _hiding(tables["activities"], device)
        collectives, groups = _collectives(trace, report, device, steps)
    reduced = _reduced(profile)
    damage = next((note.message for note in report.notes if note.code in _CUT), None)
    return RankSummary(
        path=report.trace.path,
        rank=rank_of(header, report.trace.path),
        world_size=header.world_size,
        host=header.host_name,
        damage=damage,
        base_ns=int(header.base_time_ns or 0) + trace.origin_ns,
        duration_ns=trace.duration_ns,
        device_name=profile.facts.device_name,
        regime=report.verdict.regime,
        cause=report.verdict.cause,
        headline=report.verdict.headline,
        step_ns=_step_ns(profile, marked if device < 0 else None),
        steps_from="ProfilerStep" if device < 0 and marked.height else report.steps_from if steps.height else None,
        groups=groups,
        steps=marked,
        parts=_parts(tables["owners"].filter(pl.col("device") == device)),
        collectives=typed(collectives, COLLECTIVES),
        exposed=exposed_pieces(collectives, hiding),
        work=_work(reduced),
        profile=reduced,
    )


def _step_ns(profile: Profile, marked: pl.DataFrame | None) -> float | None:
    """Return the mean length of a step; of annotated steps where no device worked."""
    if marked is not None:
        mean = marked.select((pl.col("end_ns") - pl.col("start_ns")).mean()).item()
        return None if mean is None else float(mean)
    return profile.total_ns / profile.steps if profile.steps and profile.total_ns else None


def _device(report: Report) -> int:
    """Return the code of the judged device; -1 without one."""
    labels = report.tables["devices"].filter(pl.col("label") == str(report.verdict.device))
    return int(labels.get_column("device")[0]) if report.verdict.device is not None and labels.height else -1


def _parts(owners: pl.DataFrame) -> pl.DataFrame:
    lengths = owners.select("step", "part", (pl.col("end_ns") - pl.col("start_ns")).alias("total_ns"))
    return typed(
        lengths.group_by("step", "part").agg(pl.col("total_ns").sum()).sort("step", "part", nulls_last=True), PARTS
    )


def _hiding(activities: pl.DataFrame, device: int) -> pl.DataFrame:
    """Return the intervals with device work that hides communication, as in the partition.

    This is work of kernels, and of copies within the device.
    """
    work = activities.filter(pl.col("device") == device, ~pl.col("bound").is_in(["communication", "copy"]))
    spans = work.select("device", "start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"))
    return union(spans, ["device"])


def _collectives(
    trace: Trace, report: Report, device: int, steps: pl.DataFrame
) -> tuple[pl.DataFrame, tuple[RankGroup, ...]]:
    """Return `COLLECTIVES` of the device and their process groups."""
    tables = report.tables
    own = tables["collectives"].filter(pl.col("device") == device).sort("start_ns", "activity_id")
    links = tables["activities"].select("activity_id", "launch_id", "operator_id")
    launches = tables["host_events"].select(
        pl.col("event_id").alias("launch_id"), pl.col("start_ns").alias("launch_ns")
    )
    inputs = as_strings(
        trace.operator_inputs.select(
            pl.col("event_id").alias("operator_id"), "process_group", "process_group_description", "process_group_ranks",
            "global_rank_start", "global_rank_stride", pl.col("message_elements").alias("elements"),
            pl.col("collective_seq").alias("seq"), "comms_id", pl.col("source_rank").alias("source"),
            pl.col("destination_rank").alias("destination"),
        )
    )  # fmt: skip
    joined = (
        own.join(links, on="activity_id", how="left", maintain_order="left")
        .join(launches, on="launch_id", how="left", maintain_order="left")
        .join(inputs, on="operator_id", how="left", maintain_order="left")
        .with_columns(pl.coalesce("elements", _elements()).alias("elements"))
    )
    keyed, groups = _with_groups(joined, trace)
    numbered = _with_steps(keyed, steps)
    order = pl.struct(pl.coalesce("launch_ns", "start_ns"), "start_ns").rank("ordinal").over("group", "step")
    return numbered.with_columns(
        (order.cast(pl.Int64) - 1).alias("ordinal"),
        pl.col("collective").fill_null("unknown").alias("kind"),
        pl.col("message_dtype").alias("dtype"),
    ), groups


def _elements() -> pl.Expr:
    """Return the bytes of the message, from shapes where elements were not recorded."""
    return pl.col("message_bytes").round().cast(pl.Int64, strict=False)


def _with_groups(rows: pl.DataFrame, trace: Trace) -> tuple[pl.DataFrame, tuple[RankGroup, ...]]:
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


def _with_steps(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add ``step``: the one whose annotation contains the launch, else the one in which the kernel starts."""
    bounds = {"host": ("host_start_ns", "host_end_ns"), "device": ("start_ns", "end_ns")}
    placed = rows
    for name, (first, last) in bounds.items():
        places = steps.select(
            pl.col("index").alias(f"{name}_step"), pl.col(first).alias("from"), pl.col(last).alias("to")
        )
        at = pl.coalesce("launch_ns", "start_ns") if name == "host" else pl.col("start_ns")
        asked = placed.with_row_index("place").with_columns(at.alias("at")).sort("at")
        placed = (
            asked.join_asof(places.drop_nulls("from").sort("from"), left_on="at", right_on="from", strategy="backward")
            .with_columns(pl.when(pl.col("at") < pl.col("to")).then(f"{name}_step").alias(f"{name}_step"))
            .sort("place")
            .drop("place", "at", "from", "to", strict=False)
        )
    step = pl.when(pl.col("launch_ns").is_not_null()).then("host_step").otherwise("device_step")
    return placed.with_columns(step.alias("step"))


def exposed_pieces(collectives: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Return `EXPOSED` of collectives in their order: the parts that the disjoint spans of ``work`` do not cover."""
    if collectives.is_empty():
        return pl.DataFrame(schema=EXPOSED)
    work = work.sort("start_ns")
    edges = pl.Series([-(2**62)]), pl.Series([2**62])
    idle_from = pl.concat([edges[0], work.get_column("end_ns")])
    idle_to = pl.concat([work.get_column("start_ns"), edges[1]])
    starts = collectives.get_column("start_ns")
    ends = starts + collectives.get_column("duration_ns")
    first, last = idle_to.search_sorted(starts, "right"), idle_from.search_sorted(ends, "left")
    pieces = (
        pl.DataFrame({"start": starts, "end": ends, "first": first, "last": last})
        .with_row_index("row")
        .with_columns(pl.int_ranges("first", "last").alias("gap"))
        .explode("gap")
        .drop_nulls("gap")
    )
    if pieces.is_empty():
        return pl.DataFrame(schema=EXPOSED)
    gaps = pieces.get_column("gap")
    cut = pieces.with_columns(
        pl.max_horizontal("start", idle_from.gather(gaps)).alias("from_ns"),
        pl.min_horizontal("end", idle_to.gather(gaps)).alias("to_ns"),
    ).filter(pl.col("from_ns") < pl.col("to_ns"))
    length = pl.col("end") - pl.col("start")
    cut = cut.filter((pl.col("to_ns") - pl.col("from_ns")).sum().over("row") < length)
    share = ((pl.col("from_ns") - pl.col("start")) * _MOST_PIECES // length).cast(pl.Int64)
    piece = pl.when(pl.len().over("row") > _MOST_PIECES).then(share).otherwise(pl.int_range(pl.len()).over("row"))
    joined = cut.group_by("row", piece.alias("piece"), maintain_order=True).agg(
        (pl.col("from_ns") - pl.col("start")).min().alias("start_ns"),
        (pl.col("to_ns") - pl.col("start")).max().alias("end_ns"),
        (pl.col("to_ns") - pl.col("from_ns")).sum().alias("exposed_ns"),
    )
    return typed(joined, EXPOSED)


def _work(profile: Profile | None) -> pl.DataFrame:
    """Return `WORK` of a reduced profile."""
    if profile is None:
        return pl.DataFrame(schema=WORK)
    named = profile.rows.join(profile.calls.select("call", "operator"), on="call", how="left")
    steps = max(1, profile.steps)
    sums = named.group_by("kind", "category", "operator", maintain_order=True).agg(
        (pl.col("count").sum() / steps).alias("count"), (pl.col("total_ns").sum() / steps).alias("step_ns")
    )
    return typed(sums, WORK)


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
    zeros = {"outer_count": pl.col("count")}
    numbers = called.select("phase", "operator", pl.col("call").alias("new_call"))
    sums = (
        rows.drop("call")
        .join(numbers, on=["phase", "operator"], how="left", nulls_equal=True, maintain_order="left")
        .group_by(pl.col("new_call").alias("call"), "kind", "category", "group", "part", maintain_order=True)
        .agg(pl.col("count", "total_ns", "roof_ns", "known_ns", "blocks").sum(), pl.col("row").alias("rows"))
        .with_row_index("row")
    )
    units = None
    if profile.units is not None:
        places = sums.select(pl.col("row").alias("new_row"), pl.col("rows").alias("row")).explode("row")
        units = typed(
            profile.units.join(places, on="row")
            .group_by(pl.col("new_row").alias("row"), "unit")
            .agg(pl.col("total_ns").sum())
            .sort("row", "unit"),
            UNITS,
        )
    return replace(
        profile,
        calls=typed(called.with_columns(**{**texts, **zeros}), CALLS),
        rows=typed(sums.with_columns(pl.lit(None, pl.String).alias("kernel")), ROWS),
        units=units,
        facts=replace(profile.facts, advice=(), attention=()),
        timeline=None,
    )


def is_failed(content: bytes) -> bool:
    """Return whether a summary is that of a rank that could not be read."""
    return b'"error":null' not in _member(content)[0]


def to_bytes(summary: RankSummary) -> bytes:
    """Write a summary as gzip with two members.

    The first is its head, a line of JSON; the second has a line with its profile, and the columns of its frames as
    bytes.
    """
    head = {name: getattr(summary, name) for name in RankSummary.__dataclass_fields__ if name not in _APART}
    head["groups"] = [asdict(group) | {"ranks": packed(group.ranks)} for group in summary.groups]
    frames = {name: packed_columns(getattr(summary, name)) for name in _FRAMES}
    document = {_KIND: _VERSION, **head, "frames": {name: described for name, (described, _) in frames.items()}}
    profile = baselines.to_json(summary.profile).replace("\n", " ") if summary.profile else "null"
    content = b"".join(content for _, content in frames.values())
    return _line(document) + gzip.compress(f"{profile}\n".encode() + content, _LEVEL, mtime=0)


def _line(document: Mapping[str, Any]) -> bytes:
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return gzip.compress(f"{text}\n".encode(), _LEVEL, mtime=0)


def _member(content: bytes) -> tuple[bytes, bytes]:
    """Return the content of a gzip member, and the bytes after it.

    Raises ``ValueError`` where it is damaged, or larger than any summary.
    """
    inflater = zlib.decompressobj(wbits=31)  # 31 selects the gzip format
    try:
        text = inflater.decompress(content, _MOST_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not inflater.eof:
        raise ValueError("the file is truncated")
    return text, inflater.unused_data


def from_bytes(content: bytes, path: str = "summary") -> RankSummary:
    """Read a summary of `to_bytes`. Raises ``InputError`` for other content, or another version."""
    try:
        head, rest = _member(content)
        document = _document(json.loads(head), path)
        profile, columns = _member(rest)[0].split(b"\n", 1)
        return replace(
            _headed(document),
            **cast(Any, _with_texts(_frames([document["frames"]], [memoryview(columns)]))),
            profile=baselines.profile_from(json.loads(profile)) if profile != b"null" else None,
        )
    except damage() as error:
        raise InputError(f"{path}: no summary of a rank that can be read ({first_line(error)})") from None


def with_path(content: bytes, path: str) -> bytes:
    """Return a summary with ``path`` as its path. Raises ``InputError`` like `from_bytes`."""
    from_bytes(content, path)
    head, rest = _member(content)
    return _line({**json.loads(head), "path": path}) + rest


def head_of(content: bytes) -> tuple[RankSummary, int]:
    """Return a summary of `to_bytes` without its frames, and its number of collectives."""
    document = json.loads(_member(content)[0])
    del document[_KIND]
    return _headed(document), document["frames"]["collectives"]["rows"]


def frames_of(contents: Sequence[bytes]) -> dict[str, tuple[pl.DataFrame, list[int]]]:
    """Return each frame of several summaries of `to_bytes`, concatenated, by name; texts are ``pl.Enum``.

    Also returns the number of rows from each summary.
    """
    described, columns = [], []
    for content in contents:
        head, rest = _member(content)
        described.append(json.loads(head)["frames"])
        columns.append(memoryview(_member(rest)[0].split(b"\n", 1)[1]))
    frames = _frames(described, columns)
    return {name: (frame, [some[name]["rows"] for some in described]) for name, frame in frames.items()}


def _document(document: dict[str, Any], path: str) -> dict[str, Any]:
    version = document.pop(_KIND)
    if version != _VERSION:
        raise InputError(f"{path}: a summary of version {version}; this program reads version {_VERSION}")
    return document


def _headed(document: Mapping[str, Any]) -> RankSummary:
    rest = {key: value for key, value in document.items() if key not in ("frames", "groups")}
    return replace(read_as(RankSummary, rest), groups=tuple(_group(group) for group in document["groups"]))


def _frames(described: Sequence[Mapping[str, Any]], columns: Sequence[memoryview]) -> dict[str, pl.DataFrame]:
    frames = {}
    rest = list(columns)
    for name, schema in _FRAMES.items():
        several = [(some[name], content) for some, content in zip(described, rest, strict=True)]
        frames[name], sizes = unpacked_columns(several, schema)
        rest = [content[size:] for content, size in zip(rest, sizes, strict=True)]
        if any(frames[name].get_column(column).null_count() for column in _KNOWN[name]):
            raise ValueError(f"a time is missing in a row of {name}")
    return frames


def _with_texts(frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    return {name: typed(frame, _FRAMES[name]) for name, frame in frames.items()}


def _group(document: Mapping[str, Any]) -> RankGroup:
    """Return a process group from a summary's document; ranks of a job share equal ones.

    Raises errors that `from_bytes` handles.
    """
    return _group_of(json.dumps(document))


@lru_cache(1 << 14)
def _group_of(text: str) -> RankGroup:
    document = json.loads(text)
    runs = document["ranks"]
    if sum(abs(count) for _, _, count in runs) > _MOST_RANKS:
        raise ValueError("a process group has too many ranks")
    if not all(type(number) is int for run in runs for number in run):
        raise TypeError("a rank of a process group is no number")
    return replace(read_as(RankGroup, {**document, "ranks": []}), ranks=unpacked(runs))
