"""Find steps that nothing marks: the period of the sequence of launches.

What a loop launches comes again in each iteration. A launch that is made once per iteration is an anchor:
it cuts the sequence into segments that launch the same things. Candidates are tried from the rarest on, so
an iteration is found before the layers in it. Layers of one single pass repeat too, but what follows the
last layer comes once, and no layer copies its input from the host or its result to it: a segment counts as
a step only with one of the things that bound steps, and only if nothing that was recorded encloses all of them.
"""

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.loops import is_loop
from trace_analyzer.catalog.host_work import BLOCKING

_CANDIDATES = 12
"""Anchors that are tried per process, so that the cost stays linear."""

SEQUENCE = ["process_id", "start_ns", "end_ns", "work", "device_ns", "bounds"]


def launch_sequence(activities: pl.DataFrame, host: Host) -> pl.DataFrame:
    """Return launches in order: process_id, start_ns, end_ns, work (what it launched), device_ns, bounds.

    ``bounds`` says whether the launch, or a blocking call since the one before, is of a kind that bounds
    steps: a copy between host and device, a graph, an optimizer's kernel, a synchronize. ``activities``
    needs launch_start_ns, launch_end_ns, process_id, bucket and bound.
    """
    launches = (
        activities.drop_nulls("launch_start_ns")
        .sort("start_ns", "activity_id")
        .group_by("process_id", "launch_id")
        .agg(
            pl.col("launch_start_ns").first().alias("start_ns"),
            pl.col("launch_end_ns").first().alias("end_ns"),
            pl.col("name").first().alias("work"),
            pl.col("duration_ns").sum().alias("device_ns"),
            ((pl.col("bound") == "copy") | (pl.col("bucket") == "optimizer").fill_null(False)).any().alias("bounds"),
            (pl.len() > 1).alias("graph"),
        )
        .sort("process_id", "start_ns", "launch_id")
    )
    blocking = (
        host.calls.filter(pl.col("work") == BLOCKING)
        .select("process_id", "start_ns", pl.col("start_ns").alias("blocked_ns"))
        .sort("start_ns")
    )
    return (
        launches.sort("start_ns")
        .join_asof(blocking, on="start_ns", by="process_id", check_sortedness=False)
        .sort("process_id", "start_ns", "launch_id")
        .with_columns(
            (
                pl.col("bounds")
                | pl.col("graph")
                | (pl.col("blocked_ns") > pl.col("start_ns").shift(1).over("process_id")).fill_null(False)
            ).alias("bounds")
        )
        .select(SEQUENCE)
    )


def periods(sequence: pl.DataFrame, host: Host) -> pl.DataFrame:
    """Return the steps of each process whose launches have a period.

    The columns are process_id, index, host_start_ns, host_end_ns.

    A period counts only where `loops.is_loop` does not find that a single pass encloses its repetitions.
    """
    periods = [_periods(part, host) for part in sequence.partition_by("process_id", maintain_order=True)]
    empty = pl.DataFrame(schema={"process_id": pl.Int32, **dict.fromkeys(_PERIOD[1:], pl.Int64)})
    return pl.concat([empty, *(part.select(_PERIOD).cast(empty.schema) for part in periods if part is not None)])


_PERIOD = ["process_id", "index", "host_start_ns", "host_end_ns"]


def _periods(sequence: pl.DataFrame, host: Host) -> pl.DataFrame | None:
    """Return the periods of one process by the rarest anchor that explains most of the device time; None for none."""
    for anchor in _anchors(sequence):
        cut = sequence.with_columns((pl.col("work") == anchor).cum_sum().alias("segment"))
        if _explains(cut) and is_loop(cut.filter(pl.col("work") == anchor), host):
            return (
                cut.group_by("process_id", "segment", maintain_order=True)
                .agg(pl.col("start_ns").first().alias("host_start_ns"), pl.col("end_ns").max().alias("host_end_ns"))
                .with_columns(
                    pl.int_range(pl.len(), dtype=pl.Int64).alias("index"),
                    pl.coalesce(pl.col("host_start_ns").shift(-1), pl.col("host_end_ns") + 1).alias("host_end_ns"),
                )
            )
    return None


def _anchors(sequence: pl.DataFrame) -> list[str]:
    """Return work to try as anchor, the rarest first: of the most shared counts, the name after the longest pause.

    Work that is launched once per step shares its count with others of that kind, but for one where the
    recording cut a step. Of these, the one before which the host typically paused longest stands at the
    seam of the loop.
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
    """Return whether the segments launch the same things, for most of the device time, and are steps.

    A segment is regular when its counts of each kind of work differ from the typical ones by little. Before
    the first anchor anything may stand; behind the last one only what a step does.
    """
    last = int(cut.get_column("segment").max() or 0)  # type: ignore[arg-type]
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
        .join(cut.group_by("segment").agg(pl.col("device_ns").sum(), pl.col("bounds").any()), on="segment", how="left")
        .with_columns((1 - (pl.col("more") + pl.col("missing")) / (pl.col("size") + size)).alias("likeness"))
    )
    alike = pl.col("likeness") >= thresholds.PERIOD_LIKENESS
    only_known = pl.col("more") <= (1 - thresholds.PERIOD_LIKENESS) * pl.col("size")
    regular = (alike & pl.col("bounds")) | (pl.col("segment").is_in([0, last]) & only_known)
    explained, tail_known, whole = segments.select(
        pl.col("device_ns").filter(regular).sum() / pl.col("device_ns").sum(),
        only_known.filter(pl.col("segment") == last).first(),
        (alike & pl.col("bounds") & (pl.col("segment") > 0)).sum(),
    ).row(0)
    return bool(tail_known) and whole >= thresholds.STEP_REPEATS and explained >= thresholds.STEP_COVERAGE


def _typical(counts: pl.DataFrame, segments: int) -> pl.DataFrame:
    """Return work, typical: the (lower) median over ``segments`` of its launches, absence counting as 0."""
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
