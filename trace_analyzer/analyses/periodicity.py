"""Find steps without marks: the period of the sequence of launches.

The launches of a loop recur in each iteration. A launch that occurs once per iteration is an anchor: it cuts the
sequence into segments with the same launches. Candidates are tried from the rarest on, so that an iteration is found
before the layers in it. Layers of a single pass repeat too, but the work after the last layer occurs once. A segment
therefore counts as a step only if it contains a typical boundary of steps, no recorded event encloses all segments, and
there is a proof: layers, too, may wait for the device or copy a result to the host.
"""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.loops import called_in_each, is_loop
from trace_analyzer.analyses.pass_proofs import POOLED_LOOKUPS, PROOF_COLUMNS, TABLE_LOOKUP, proven
from trace_analyzer.catalog.copy_directions import FROM_HOST, copy_direction
from trace_analyzer.catalog.host_work import BLOCKING
from trace_analyzer.frames.lookups import map_unique
from trace_analyzer.notes import Note

_CANDIDATES = 12
"""Number of anchors that are tried per process, to keep the cost linear."""

_CANDIDATES_IN_TURNS = 4
_LONGEST_TURN = 12
"""Number of anchors of which every n-th launch is tried, and the largest n."""

SEQUENCE = ["process_id", "start_ns", "end_ns", "work", "device_ns", "bounds", *PROOF_COLUMNS]
_ENDS_OF_PASSES = ("loss", "optimizer")
"""Buckets of work at the end of a pass, which no layer has."""
_WHOLE_DEVICE = r"(?i)DeviceSynchronize|CtxSynchronize"
"""Calls that wait for all streams: programs make them around timed code, and layers do not."""
_POOLED = r"(?i)embedding_?bag|split_embedding|pooled_emb|(?:^|_)tbe_"
"""Kernels of lookups that sum rows for each sample, in PyTorch and FBGEMM."""


def launch_sequence(activities: pl.DataFrame, host: Host) -> pl.DataFrame:
    """Return launches in order with the columns `SEQUENCE`; ``work`` is the launched work.

    ``bounds`` is true where the launch, or a blocking call since the previous one, is a typical boundary of steps: a
    copy between host and device, a graph, an optimizer's kernel, a synchronize. ``activities`` needs kind, name, bytes,
    launch_start_ns, launch_end_ns, process_id, bucket, group, operator, operator_id, graph_id and bound.
    """
    bucket = pl.col("bucket").cast(pl.String)
    linked = _lookups_named(activities.drop_nulls("launch_start_ns"), host)
    is_pooled = pl.col("operator").is_in(POOLED_LOOKUPS) | pl.col("name").cast(pl.String).str.contains(_POOLED)
    is_lookup = (bucket == "embedding") | pl.col("operator").is_in([TABLE_LOOKUP, *POOLED_LOOKUPS])
    from_host = map_unique(linked.select("name"), (copy_direction() == FROM_HOST).fill_null(False)).to_series()
    copied = from_host & (linked.get_column("bound") == "copy").fill_null(False)
    launches = (
        linked.with_columns(copied.alias("from_host"))
        .sort("start_ns", "activity_id")
        .group_by("process_id", "launch_id")
        .agg(
            pl.col("launch_start_ns").first().alias("start_ns"),
            pl.col("launch_end_ns").first().alias("end_ns"),
            pl.col("name").first().alias("work"),
            pl.col("duration_ns").sum().alias("device_ns"),
            ((pl.col("bound") == "copy") | (pl.col("bucket") == "optimizer").fill_null(False)).any().alias("bounds"),
            pl.col("operator", "operator_id").first(),
            pl.col("duration_ns").filter("from_host").sum().alias("copied_ns"),
            pl.col("bytes").filter("from_host").max().alias("copied_bytes"),
            pl.col("graph_id").first(),
            is_lookup.fill_null(False).any().alias("is_lookup"),
            is_pooled.fill_null(False).any().alias("is_pooled"),
            bucket.is_in(_ENDS_OF_PASSES).fill_null(False).any().alias("ends_pass"),
            (pl.col("group") == "matmul").fill_null(False).any().alias("multiplies"),
            (pl.len() > 1).alias("graph"),
        )
        .sort("process_id", "start_ns", "launch_id")
    )
    blocking = host.calls.filter(pl.col("work") == BLOCKING)
    of_device = host.calls_of(pl.col("name").str.contains(_WHOLE_DEVICE))
    waited, waited_for_all = _called_since(launches, blocking), _called_since(launches, of_device)
    return launches.with_columns(
        (pl.col("bounds") | pl.col("graph") | waited).alias("bounds"), waited_for_all.alias("waited_for_all")
    ).select(SEQUENCE)


def _lookups_named(linked: pl.DataFrame, host: Host) -> pl.DataFrame:
    """Return the activities with ``operator`` as text.

    It is `TABLE_LOOKUP` where that encloses the innermost operator (``aten::index_select``).
    """
    lookups = host.those(
        (pl.col("kind") == "operator") & (pl.col("name") == TABLE_LOOKUP), "event_id", "thread_id", "start_ns", "end_ns"
    )
    linked = linked.with_columns(pl.col("operator").cast(pl.String))
    if lookups.is_empty():
        return linked
    called = host.events.select(pl.col("event_id").alias("operator_id"), "thread_id", "start_ns", "end_ns")
    inner = (
        linked.filter(pl.col("operator") != TABLE_LOOKUP).select(pl.col("operator_id").unique()).join(called, on="operator_id").sort("start_ns")
        .join_asof(
            lookups.select(pl.col("event_id").alias("lookup_id"), "thread_id", "start_ns", pl.col("end_ns").alias("until_ns")).sort("start_ns"),
            on="start_ns", by="thread_id", check_sortedness=False,
        )
        .filter(pl.col("end_ns") <= pl.col("until_ns"))
        .select("operator_id", "lookup_id")
    )  # fmt: skip
    named = linked.join(inner, on="operator_id", how="left", maintain_order="left")
    within = pl.col("lookup_id").is_not_null()
    return named.with_columns(
        pl.when(within).then(pl.lit(TABLE_LOOKUP)).otherwise("operator").alias("operator"),
        pl.coalesce("lookup_id", "operator_id").alias("operator_id"),
    ).drop("lookup_id")


def _called_since(launches: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    """Return for each launch, in order, whether one of the calls began since the previous launch of its process."""
    latest = calls.select("process_id", "start_ns", pl.col("start_ns").alias("called_ns")).sort("start_ns")
    return (
        launches.with_row_index("place")
        .sort("start_ns")
        .join_asof(latest, on="start_ns", by="process_id", check_sortedness=False)
        .sort("place")
        .select((pl.col("called_ns") > pl.col("start_ns").shift(1).over("process_id")).fill_null(False))
        .to_series()
    )


class Periods(NamedTuple):
    """Hold the steps of all processes, and notes on repetitions without proof.

    ``steps`` has process_id, index, host_start_ns, host_end_ns.
    """

    steps: pl.DataFrame
    notes: tuple[Note, ...]


def periods(sequence: pl.DataFrame, host: Host, operator_inputs: pl.DataFrame) -> Periods:
    """Return the steps of each process whose launches are periodic.

    A period counts only where `loops.is_loop` finds no single pass around its repetitions, and where they are proven to
    be separate passes: by work that only a pass has in each (`pass_proofs.proven`), or by the same module called in
    each. Alternating passes of several kinds are no steps, as it is unknown with which a turn begins; they are noted.
    """
    empty = pl.DataFrame(schema={"process_id": pl.Int32, **dict.fromkeys(_PERIOD[1:], pl.Int64)})
    steps, notes = [empty], []
    bounded = sequence.filter(pl.col("bounds").sum().over("process_id") >= thresholds.STEP_REPEATS)
    for part in bounded.partition_by("process_id", maintain_order=True):
        unproven = 0
        for cut in _regular(part, host):
            repetitions = _repetitions(cut)
            if proven(cut, operator_inputs) or called_in_each(repetitions, host):
                steps.append(_steps(cut).select(_PERIOD).cast(empty.schema))
                break
            unproven = unproven or repetitions.height
        else:
            unproven = unproven or next((_repetitions(cut).height for cut in _in_turns(part, host)), 0)
            notes += [_unproven_note(unproven)] if unproven else []
    return Periods(pl.concat(steps), tuple(notes))


_PERIOD = ["process_id", "index", "host_start_ns", "host_end_ns"]


def _regular(sequence: pl.DataFrame, host: Host) -> Iterator[pl.DataFrame]:
    """Yield the launches of one process, cut by each anchor that explains most device time and may belong to a loop."""
    for anchor in _anchors(sequence):
        yield from _cut(sequence, anchor, 1, host)


def _in_turns(sequence: pl.DataFrame, host: Host) -> Iterator[pl.DataFrame]:
    """Yield the same, cut by every n-th launch of a regularly recurring anchor: alternating passes."""
    for anchor in _anchors(sequence)[:_CANDIDATES_IN_TURNS]:
        places = sequence.select((pl.col("work") == anchor).arg_true()).to_series().cast(pl.Int64)
        for every in range(2, _LONGEST_TURN + 1):
            apart = (places - places.shift(every)).drop_nulls()
            if apart.len() and apart.eq(apart.mode().item(0)).mean() >= thresholds.PERIOD_LIKENESS:
                yield from _cut(sequence, anchor, every, host)


def _cut(sequence: pl.DataFrame, anchor: str, every: int, host: Host) -> Iterator[pl.DataFrame]:
    """Yield the launches with segment and anchor.

    The anchor must explain most device time and may belong to a loop.
    """
    launched = (pl.col("work") == anchor).cum_sum().cast(pl.Int64)
    cut = sequence.with_columns(((launched + every - 1) // every).alias("segment"), pl.lit(anchor).alias("anchor"))
    if _explains(cut) and is_loop(_repetitions(cut), host):
        yield cut


def _repetitions(cut: pl.DataFrame) -> pl.DataFrame:
    """Return the anchor's launch at the beginning of each segment."""
    return cut.filter(pl.col("work") == pl.col("anchor"), pl.col("segment") != pl.col("segment").shift(1, fill_value=0))


def _steps(cut: pl.DataFrame) -> pl.DataFrame:
    """Return the segments as steps, each up to the beginning of the next."""
    return (
        cut.group_by("process_id", "segment", maintain_order=True)
        .agg(pl.col("start_ns").first().alias("host_start_ns"), pl.col("end_ns").max().alias("host_end_ns"))
        .with_columns(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("index"),
            pl.coalesce(pl.col("host_start_ns").shift(-1), pl.col("host_end_ns") + 1).alias("host_end_ns"),
        )
    )


def _unproven_note(repetitions: int) -> Note:
    return Note(
        "unproven-steps",
        "info",
        f"the same launches repeat {repetitions:,} times, and nothing recorded tells steps from layers of one pass: the verdict is"
        " for the whole trace; prof.step() marks steps",
        repetitions,
    )


def _anchors(sequence: pl.DataFrame) -> list[str]:
    """Return work to try as anchor, rarest first; of kinds with equal counts, the one after the longest pause.

    Work that is launched once per step has the same count as other such work, except for one where the recording cut a
    step. Of these, the work before which the host typically paused longest is at the boundary of iterations.
    """
    names = (
        sequence.with_columns((pl.col("start_ns") - pl.col("end_ns").shift(1)).alias("pause_ns"))
        .group_by("work", maintain_order=True)
        .agg(pl.len().cast(pl.Int64).alias("count"), pl.col("pause_ns").median().fill_null(0))
    )
    by_count = (
        pl.concat([names, names.with_columns(pl.col("count") - 1).join(names, on="count", how="semi")])
        .filter(pl.col("count") >= thresholds.STEP_REPEATS)
        .with_columns(pl.len().over("count").alias("support"))
        .sort("count", "pause_ns", descending=[False, True], maintain_order=True)
        .unique("count", keep="first", maintain_order=True)
    )
    counts = by_count.sort("support", "count", descending=[True, False]).head(_CANDIDATES).select("count")
    anchors = by_count.join(counts, on="count", how="semi", maintain_order="left").get_column("work")
    return anchors.unique(maintain_order=True).to_list()


def _explains(cut: pl.DataFrame) -> bool:
    """Return whether the segments launch the same work, for most of the device time, and contain boundaries of steps.

    A segment is regular when its count of each kind of work differs little from the typical one. Any work may precede
    the first anchor; after the last one, only work of a step may follow.
    """
    last = int(cut.get_column("segment").max() or 0)  # type: ignore[arg-type]
    wholes = cut.group_by("segment").agg(pl.col("device_ns").sum(), pl.col("bounds").any())
    at_end = pl.col("segment").is_in([0, last])
    explainable, bounded = wholes.select(
        pl.col("device_ns").filter(pl.col("bounds") | at_end).sum() / pl.col("device_ns").sum(),
        (pl.col("bounds") & (pl.col("segment") > 0)).sum(),
    ).row(0)
    if not (bounded >= thresholds.STEP_REPEATS and explainable >= thresholds.STEP_COVERAGE):
        return False
    counts = cut.group_by("segment", "work").agg(pl.len().alias("count"))
    typical = _typical(counts.filter(pl.col("segment").is_between(1, last - 1)), last - 1)
    size = int(typical.get_column("typical").sum())
    expected = pl.col("typical").fill_null(0)
    segments = (
        counts.join(typical, on="work", how="left")
        .group_by("segment")
        .agg(
            pl.col("count").sum().alias("size"),
            (pl.col("count") - expected).clip(lower_bound=0).sum().alias("more"),
            (expected - pl.col("count")).clip(lower_bound=0).sum().alias("fewer"),
            expected.sum().alias("expected"),
        )
        .with_columns((pl.col("fewer") + size - pl.col("expected")).alias("missing"))
        .join(wholes, on="segment", how="left")
        .with_columns((1 - (pl.col("more") + pl.col("missing")) / (pl.col("size") + size)).alias("likeness"))
    )
    alike = pl.col("likeness") >= thresholds.PERIOD_LIKENESS
    only_known = pl.col("more") <= (1 - thresholds.PERIOD_LIKENESS) * pl.col("size")
    regular = (alike & pl.col("bounds")) | (at_end & only_known)
    explained, tail_known, whole = segments.select(
        pl.col("device_ns").filter(regular).sum() / pl.col("device_ns").sum(),
        only_known.filter(pl.col("segment") == last).first(),
        (alike & pl.col("bounds") & (pl.col("segment") > 0)).sum(),
    ).row(0)
    return bool(tail_known) and whole >= thresholds.STEP_REPEATS and explained >= thresholds.STEP_COVERAGE


def _typical(counts: pl.DataFrame, segments: int) -> pl.DataFrame:
    """Return work, typical: the (lower) median over ``segments`` of its launches, where absence counts as 0."""
    absent = segments - pl.len().cast(pl.Int64)
    position = (segments - 1) // 2 - absent
    return (
        counts.group_by("work")
        .agg(
            pl.col("count").sort().cast(pl.Int64).get(position.clip(lower_bound=0)).alias("typical"),
            position.alias("p"),
        )
        .filter(pl.col("p") >= 0)
        .select("work", "typical")
    )
