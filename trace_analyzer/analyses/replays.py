"""Match kernels of replayed graphs, which have no operator, with the same kernels launched one by one or captured.

For each graph launch, these are tried in order:

1. ``sequence``: the same names, grids and blocks in order, launched one by one.
2. ``names``: the same names in order, where the profiler records no grids of replayed kernels (ROCm). Durations then
   indicate the sizes: the confidence is the share of kernels that take between half and twice as long.
3. ``capture``: as many launches as the graph has kernels, within a capture. A capture executes nothing, so its launches
   have no kernel names: the confidence is the share of kernels whose names fit the operator at their index.
4. ``part``: runs of neighbouring kernels, where the whole sequence was not recorded. The confidence is the share of
   kernels in such runs.

Annotations of the graph's nodes (``annotation``), which the exporter wrote on their kernels or the program saved, name
the module of kernels without one: by `graph node id`, thus exactly.
"""

from functools import cached_property
from typing import NamedTuple

import polars as pl
from msgspec import Struct

from trace_analyzer import errors, thresholds
from trace_analyzer.analyses import kernel_bounds, links
from trace_analyzer.analyses.host import KERNEL_LAUNCH, Host
from trace_analyzer.analyses.modules import BACKWARD_LINKS, with_module_event
from trace_analyzer.analyses.work.replay_matching import (
    CALL,
    KEYS,
    annotation_note,
    captured_matches,
    file_notes,
    is_replayed,
    match_notes,
    part_matches,
    whole_matches,
)
from trace_analyzer.analyses.work.sharing import INPUTS, SHARE_COLUMNS, LaunchedWork, recorded_inputs, work_of_kernels
from trace_analyzer.catalog.kernels import kernel_buckets
from trace_analyzer.frames.intervals import lookup_at
from trace_analyzer.frames.lookups import factorize, lookup
from trace_analyzer.ingest.trace import CaptureFiles, Trace

# List kernels that were launched one by one, and launches that graphs captured, each with its operator's call.
#
# A graph replays kernels that one of these ran or recorded.

_BUCKET = ("bucket", "group", "prior")
TAKEN = ("activity_id", *CALL, "module", *_BUCKET, *SHARE_COLUMNS)
"""Columns that a replayed kernel can take: the operator's call, the innermost module, the bucket, and its share of
the work."""


class Executions(Struct, frozen=True, dict=True):
    """The launches and captures of a recording, computed on demand, as few recordings replay graphs.

    ``launched_modules`` is (activity_id, module).
    """

    launched_work: LaunchedWork
    trace: Trace
    host: Host
    graph_captures: pl.DataFrame
    module_frames: pl.DataFrame
    launched_modules: pl.DataFrame

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """Return kernels launched one by one: `TAKEN`, `KEYS`, device, start_ns, launch_start_ns and duration_ns."""
        kernels = self.launched_work.kernels.filter(~is_replayed(self.launched_work.kernels))
        modules = self.launched_modules.with_columns(pl.col("module").cast(pl.Categorical))
        taken = (
            kernels.hstack(_inputs(kernels, recorded_inputs(self.trace)))
            .hstack(lookup(modules, kernels, "activity_id"))
            .hstack(lookup(self.launched_work.shares, kernels, "activity_id"))
        )
        return taken.select(*TAKEN, *KEYS, "device", "start_ns", "launch_start_ns", "duration_ns")

    @cached_property
    def captured(self) -> pl.DataFrame:
        """Return launches within captures, in order.

        The columns are capture, place, launch_id, launch_name, launch_thread, launch_start_ns, operator_id, `CALL` and module.
        """
        calls = self.host.calls_of(KERNEL_LAUNCH) if self.graph_captures.height else self.host.calls.clear()
        calls = calls.filter(links.is_captured(calls, self.graph_captures)).sort("start_ns", "event_id")
        places = links.first_of_id(calls).select(
            "process_id", "thread_id", "start_ns", pl.col("name").cast(pl.String).alias("launch_name"),
            time_ns="start_ns", launch_id="event_id",
        )  # fmt: skip
        numbered = self.graph_captures.with_row_index("capture")
        located = lookup_at(places, "start_ns", numbered, ["process_id"], ["capture"])
        located = with_module_event(links.operators_of(self.host, located), self.module_frames)
        modules = self.module_frames.select(
            pl.col("event_id").alias("module_event"), pl.col("module").cast(pl.Categorical)
        )
        return (
            located.hstack(_inputs(located, recorded_inputs(self.trace)))
            .join(modules, on="module_event", how="left", maintain_order="left")
            .select(
                "capture",
                pl.int_range(pl.len()).over("capture").alias("place"),
                "launch_id",
                "launch_name",
                pl.col("thread_id").alias("launch_thread"),
                pl.col("start_ns").alias("launch_start_ns"),
                "operator_id",
                *CALL,
                "module",
            )
        )

    def captured_work(self, kernels: pl.DataFrame) -> pl.DataFrame:
        """Return `TAKEN` without module and activity_id of captured launches, in order.

        ``kernels`` are rows of ``captured`` with the name, grid, block and duration_ns of the resulting kernel.
        """
        pseudo = kernel_bounds.with_buckets(
            kernels.select(
                pl.int_range(pl.len(), dtype=pl.UInt32).alias("activity_id"), pl.lit("kernel").alias("kind"), *KEYS,
                pl.lit(0, pl.Int64).alias("device"), pl.int_range(pl.len(), dtype=pl.Int64).alias("start_ns"), "duration_ns",
                "launch_id", "launch_name", "launch_thread", "launch_start_ns", "operator_id", "operator",
                pl.lit(None, pl.Int64).alias("graph_node_id"),
            )
        )  # fmt: skip
        shares = work_of_kernels(pseudo, self.trace, self.host, BACKWARD_LINKS.empty()).shares
        return pseudo.select(_BUCKET).hstack(lookup(shares, pseudo, "activity_id")).hstack(kernels.select(CALL))


def _inputs(rows: pl.DataFrame, inputs: pl.DataFrame) -> pl.DataFrame:
    return lookup(inputs, rows, "operator_id").select(pl.col(INPUTS).cast(pl.Categorical))


_TAKEN_TEXTS = ("operator", "input_dims", "module", "bucket", "group", "prior")
REPLAYED: dict[str, pl.DataType | type[pl.DataType]] = {
    "activity_id": pl.UInt32,
    "replayed_from": pl.UInt32,
    "replay_match": pl.String,
    "replay_confidence": pl.Float64,
    **{name: pl.Categorical() for name in _TAKEN_TEXTS},
    "flop": pl.Float64,
    "moved_bytes": pl.Float64,
    "doubtful_bytes": pl.Float64,
    "call_dtype": pl.String,
    "work_from": pl.String,
    "is_matmul": pl.Boolean,
    "key_bytes": pl.Float64,
    "queries": pl.Int64,
}
"""Columns that replayed kernels take."""


class Replays(NamedTuple):
    """The columns that kernels of graphs take from executions, one row each (`REPLAYED`), and notes."""

    kernels: pl.DataFrame
    notes: tuple[errors.Note, ...]


def replays(
    launched_work: LaunchedWork,
    executions: Executions,
    capture_files: CaptureFiles | None,
    capture_executions: tuple[Executions, ...],
    graph_annotations: pl.DataFrame | None,
) -> Replays:
    """Match kernels that graphs replayed with the same kernels in this file or in ``capture_executions``.

    ``capture_files`` are those that were read for them, and ``graph_annotations`` are (graph_node_id, name).
    """
    kernels = launched_work.kernels
    graphs = kernels.filter(is_replayed(kernels))
    nothing = pl.DataFrame(schema=REPLAYED)
    if graphs.is_empty():
        is_given = capture_files is not None or graph_annotations is not None
        unused = errors.Note(
            "capture-unused", "warning", "no graph is replayed in this trace: the capture file says nothing of it"
        )
        return Replays(nothing, (unused,) if is_given else ())
    sources = [executions, *capture_executions]
    matched = _matched(graphs, sources)
    taken = nothing if matched.is_empty() else matched.select(pl.col(c).cast(dtype) for c, dtype in REPLAYED.items())
    notes = (*file_notes(matched, capture_files, executions.trace.rank), *match_notes(graphs, matched, capture_files))
    own = executions.trace.device_events.get_column("annotation")[graphs.get_column("activity_id")]
    graphs = graphs.with_columns(own.cast(pl.String))
    if graph_annotations is not None:
        graphs = graphs.join(
            graph_annotations.rename({"name": "saved"}), on="graph_node_id", how="left", maintain_order="left"
        ).with_columns(pl.coalesce("annotation", "saved").alias("annotation"))
    named = graphs.drop_nulls("annotation")
    if named.is_empty() and graph_annotations is None:
        return Replays(taken, notes)
    return Replays(_annotated(taken, named), (*notes, annotation_note(graphs, named)))


def _annotated(taken: pl.DataFrame, named: pl.DataFrame) -> pl.DataFrame:
    """Return `REPLAYED` with the ``annotation`` of the kernels in ``named`` as module, where they have none."""
    annotations = named.select("activity_id", pl.col("annotation").cast(pl.Categorical))
    both = taken.join(annotations, on="activity_id", how="left", maintain_order="left")
    both = both.with_columns(pl.coalesce("module", "annotation").alias("module")).drop("annotation")
    alone = annotations.join(taken, on="activity_id", how="anti", maintain_order="left").select(
        "activity_id",
        pl.lit("annotation").alias("replay_match"),
        pl.lit(1.0).alias("replay_confidence"),
        pl.col("annotation").alias("module"),
    )
    return pl.concat([both, alone], how="diagonal").select(*REPLAYED)


def _matched(graphs: pl.DataFrame, sources: list[Executions]) -> pl.DataFrame:
    """Return the matched kernels with `REPLAYED`, launch_id, duration_ns and the columns in which all runs agree."""
    # A track is one device in one recording.
    launched_ns = pl.col("launch_start_ns").fill_null(pl.col("start_ns"))
    executed, captured = (
        pl.concat(
            [
                rows.with_columns(pl.lit(n).alias("source"), (pl.col(of).cast(pl.Int64) * len(sources) + n).alias(name))
                for n, rows in enumerate(parts)
            ]
        )
        for parts, of, name in (
            ([source.kernels for source in sources], "device", "track"),
            ([source.captured for source in sources], "capture", "capture"),
        )
    )
    executed = executed.with_columns(launched_ns)
    graphs = graphs.sort("launch_id", "start_ns", maintain_order=True)
    graphs = graphs.with_columns(pl.int_range(pl.len()).over("launch_id").alias("place"))
    coded, executed = _coded(graphs, executed, captured)
    captured = captured.hstack(executed[len(executed) - len(captured) :].select(*_CODES))
    executed = executed.head(len(executed) - len(captured))
    done: list[pl.DataFrame] = []
    for how, codes, order in (
        ("sequence", "key_code", "start_ns"),
        ("sequence", "key_code", "launch_start_ns"),
        ("names", "name_code", "start_ns"),
        ("names", "name_code", "launch_start_ns"),
    ):
        left = _left(coded, done).rename({codes: "code"})
        left = left.filter(~_HAS_GRIDS if how == "names" else _HAS_GRIDS)
        rows = executed.sort("track", order, maintain_order=True).rename({codes: "code"})
        if order == "launch_start_ns":
            left = _by_node(left)
        if left.height and rows.height:
            matches = whole_matches(left, rows)
            done.append(_taken(left, matches, rows, how))
    left = _by_node(_left(coded, done))
    if left.height and captured.height:
        done.append(_taken_from_captures(left, captured, sources))
    left = _left(coded, done).rename({"key_code": "code"}).filter(_HAS_GRIDS)
    rows = executed.sort("track", "start_ns", maintain_order=True).rename({"key_code": "code"})
    if left.height and rows.height:
        done.append(_taken(left, part_matches(left, rows), rows, "part"))
    return pl.concat(done) if done else pl.DataFrame()


_HAS_GRIDS = pl.col("grid").is_not_null().any().over("launch_id")
"""Whether grids of a graph launch were recorded; without them, equal keys mean only equal names."""
_CODES = ("call", "operator_code", "module_code")


def _by_node(graphs: pl.DataFrame) -> pl.DataFrame:
    """Order kernels of graph launches by their nodes, which are numbered in order of capture, where all have one."""
    node = pl.col("graph_node_id")
    known = (node.is_not_null().all() & (node.n_unique() == pl.len())).over("launch_id")
    ordered = graphs.with_columns(pl.when(known).then(node).otherwise("place").alias("node"))
    ordered = ordered.sort("launch_id", "node", maintain_order=True).drop("node")
    return ordered.with_columns(pl.int_range(pl.len()).over("launch_id").alias("place"))


def _coded(graphs: pl.DataFrame, executed: pl.DataFrame, captured: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add codes of keys and names to both, and of calls, operators and modules to executed, then captured kernels."""
    both = pl.concat([graphs.select(KEYS), executed.select(KEYS)])
    key_codes = factorize(*both)[0].hash().alias("key_code")
    name_codes = factorize(both.get_column("name"))[0].hash().alias("name_code")
    coded = graphs.hstack([key_codes.head(graphs.height), name_codes.head(graphs.height)])
    columns = (*CALL, "module", "source")
    called = pl.concat([executed.select(columns), captured.select(columns)])
    of_calls = [
        factorize(*called.select(CALL))[0].hash().alias("call"),
        factorize(called.get_column("operator"))[0].alias("operator_code"),
        factorize(called.get_column("module"))[0].alias("module_code"),
    ]
    rest = pl.concat(
        [executed.hstack([key_codes[graphs.height :], name_codes[graphs.height :]]), captured], how="diagonal"
    )
    return coded, rest.hstack(of_calls)


def _left(coded: pl.DataFrame, done: list[pl.DataFrame]) -> pl.DataFrame:
    """Return the kernels of graph launches without a match so far."""
    for matched in done:
        coded = coded.join(matched.select("launch_id").unique(), on="launch_id", how="anti", maintain_order="left")
    return coded


def _taken(graphs: pl.DataFrame, matches: pl.DataFrame, executed: pl.DataFrame, how: str) -> pl.DataFrame:
    """Return the matched kernels with the columns that they take, where the confidence is high enough."""
    pairs = graphs.select(
        "activity_id", "launch_id", "place", "duration_ns", pl.len().over("launch_id").alias("kernels")
    )
    pairs = pairs.join(matches, on=["launch_id", "place"], how="inner", maintain_order="left")
    twins = executed.select(*(pl.col(column).alias(f"twin_{column}") for column in (*TAKEN, "source", "duration_ns")))
    rows = pairs.hstack(twins[pairs.get_column("position")])
    lasts, lasted = pl.col("duration_ns"), pl.col("twin_duration_ns")
    alike = ((lasts <= 2 * lasted) & (lasted <= 2 * lasts)).mean()
    fits = alike if how == "names" else pl.len() / pl.col("kernels").first()
    rows = rows.with_columns(fits.over("launch_id").alias("replay_confidence"), pl.lit(how).alias("replay_match"))
    enough = pl.col("replay_confidence") >= thresholds.REPLAY_CONFIDENCE
    rows = rows.filter(enough) if how == "part" else rows.with_columns((pl.col("call") & enough).alias("call"))
    own = pl.col("call") & (pl.col("twin_source") == 0)
    return _result(rows.with_columns(pl.when(own).then("twin_activity_id").alias("replayed_from")))


def _taken_from_captures(graphs: pl.DataFrame, captured: pl.DataFrame, sources: list[Executions]) -> pl.DataFrame:
    """Return the kernels of graphs with as many kernels as a capture launched, with the calls at their indices."""
    matches = captured_matches(graphs.rename({"key_code": "code"}), captured, _fits)
    pairs = graphs.join(matches, on=["launch_id", "place"], how="inner", maintain_order="left")
    twins = captured.select(
        *(pl.col(column).alias(f"twin_{column}") for column in (*CALL, "module", "source")),
        "operator_id", "launch_name", "launch_thread", pl.col("launch_id").alias("twin_launch_id"), "launch_start_ns",
    )  # fmt: skip
    pairs = pairs.drop("operator", "operator_id", "launch_name", "launch_thread", "launch_start_ns")
    rows = pairs.hstack(twins[pairs.get_column("position")])
    rows = rows.with_columns(
        pl.col("fit").alias("replay_confidence"),
        pl.lit("capture").alias("replay_match"),
        pl.lit(None, pl.UInt32).alias("replayed_from"),
    ).filter(pl.col("replay_confidence") >= thresholds.REPLAY_CONFIDENCE)
    parts = [_with_captured_work(rows.filter(pl.col("twin_source") == n), source) for n, source in enumerate(sources)]
    return _result(pl.concat(parts)) if rows.height else _result(parts[0])


def _with_captured_work(rows: pl.DataFrame, source: Executions) -> pl.DataFrame:
    """Add bucket and work of captured calls, shared among the resulting kernels.

    Launches of one graph share work like the first of them, so that a frequently replayed graph is processed once.
    """
    in_order = (pl.col("key_code") + pl.col("place").cast(pl.UInt64)).hash().sum().over("launch_id")
    rows = rows.with_columns(in_order.alias("graph"))
    firsts = rows.select("graph", "launch_id").unique("graph", keep="first", maintain_order=True)
    of_graph = rows.join(firsts, on=["graph", "launch_id"], how="semi", maintain_order="left")
    called = of_graph.select(
        *KEYS, "duration_ns", pl.col("twin_launch_id").alias("launch_id"), "launch_name", "launch_thread", "launch_start_ns",
        "operator_id", *(pl.col(f"twin_{column}").alias(column) for column in CALL), "graph", "place",
    )  # fmt: skip
    parts = called.partition_by("graph", maintain_order=True) or [called]
    names = ("bucket", "group", "prior", *SHARE_COLUMNS)
    work = pl.concat(
        [
            source.captured_work(part).select(pl.col(name).alias(f"twin_{name}") for name in names)
            .hstack(part.select("graph", "place"))
            for part in parts
        ]
    )  # fmt: skip
    return rows.drop("bucket", "group").join(work, on=["graph", "place"], how="left", maintain_order="left")


def _fits(rows: pl.DataFrame) -> pl.Series:
    """Return whether each kernel's name agrees with its operator; null where either is uninformative.

    Compared is whether each is a matmul, communication, or neither.
    """
    keys = rows.select(pl.col("name").cast(pl.String), pl.col("operator").cast(pl.String))
    numbers, firsts = factorize(*keys)
    kinds = keys[firsts]
    none = pl.lit(None, pl.String)
    by_name = kernel_buckets(kinds.with_columns(none.alias("operator"))).select(
        "name", pl.col("group").alias("by_name")
    )
    by_operator = kernel_buckets(kinds.with_columns(pl.lit("").alias("name"))).select(
        "operator", pl.col("group").alias("by_operator")
    )
    known = kinds.join(by_name, on="name", how="left", maintain_order="left").join(
        by_operator, on="operator", how="left", maintain_order="left", nulls_equal=True
    )
    decisive = ["matmul", "communication"]
    says = pl.col("by_name") != "other", pl.col("by_operator") != "other"
    agree = (pl.col("by_name") == pl.col("by_operator")) | ~(
        pl.col("by_name").is_in(decisive) | pl.col("by_operator").is_in(decisive)
    )
    return known.select(pl.when(says[0] & says[1]).then(agree)).to_series()[numbers]


def _result(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `REPLAYED` and the columns for notes; where runs differ, only the values in which all agree."""
    same = pl.col("call")
    known = {
        **dict.fromkeys(("operator", "bucket", "group", "prior"), pl.col("operator_code")),
        "module": pl.col("module_code"),
    }
    return rows.select(
        "activity_id", "replayed_from", "replay_match", "replay_confidence",
        *(pl.when(known.get(name, same)).then(f"twin_{name}").alias(name).cast(pl.Categorical) for name in _TAKEN_TEXTS),
        *(pl.when(same).then(f"twin_{name}").alias(name) for name in ("flop", "moved_bytes", "doubtful_bytes", "call_dtype", "key_bytes", "queries")),
        pl.when(same & pl.col("twin_work_from").is_not_null()).then(pl.lit("replay")).alias("work_from"),
        pl.when(same).then("twin_is_matmul").alias("is_matmul"),
        "launch_id", "duration_ns", "sources", same.alias("agrees"),
    )  # fmt: skip
