"""Compare each kernel's FLOP/s and byte/s with the device's peaks.

The roofline model (Williams, Waterman, Patterson 2009, https://doi.org/10.1145/1498765.1498785): a kernel with
arithmetic intensity I reaches at most min(peak FLOP/s, I * memory bandwidth), so it takes at least max(FLOP / peak,
bytes / bandwidth). FLOP and bytes are those of table `activities`; nothing is clamped.
"""

from collections.abc import Mapping

import polars as pl

from trace_analyzer import analysis, thresholds, vocabulary
from trace_analyzer.analyses.device_models import by_type, of_device, possible_rate, possible_share
from trace_analyzer.analyses.host import input_dims
from trace_analyzer.analyses.kernel_bounds import ALONE, on_matrix_units, tiles_ratio, working_ratio
from trace_analyzer.catalog.devices import PEAK_NAMES, Device
from trace_analyzer.frames.intervals import LENGTH_NS, lookup_at, union, with_covered
from trace_analyzer.frames.lookups import lookup
from trace_analyzer.schema import RATES, Table, columns
from trace_analyzer.sections import DEVICE_LABEL, WHOLE_TRACE, Longest, Section, Shown

BOUNDS = Table(
    "bounds",
    "Kernels summed up by what bounds them, with how near they come to their roof.",
    columns("""
        device bound count time_ns
        known_ns i64 Durations of those whose roof is known.
        roof_ratio f64 Time that these would take at their roof, over the time they took; null above 1.05.
        below_half_ratio f64 Share of their time in kernels that reach less than half of their roof.
        inefficient_ns i64 Durations of kernels that fill the device and stay far below both roofs.
        few_tiles_ns i64 Durations of kernels that stay there mostly because they have fewer tiles than the device multiprocessors.
        named_ns i64 Durations of those that count as compute by their names, as FLOP or bytes are unknown.
        near_ridge_ns i64 Durations of those that peaks somewhat off would move to the other bound.
    """),
)

ROOFED = ("compute", "memory")
"""Bounds with a roof."""


def _is_far_below() -> pl.Expr:
    """Return whether a kernel is long enough and stays below `thresholds.INEFFICIENT_ROOF_RATIO`.

    One that only streams through memory counts below half of the roof (`thresholds.HALF_ROOF_RATIO`): plain copies reach more.
    Of operators with several kernels, which share its minimum bytes though each may process all data (a radix sort),
    only matmuls count. False where the roof is unknown, or may be higher than the record shows.
    """
    streams = (pl.col("bound") == "memory") & (pl.col("group") == "pointwise")
    least = pl.when(streams).then(thresholds.HALF_ROOF_RATIO).otherwise(thresholds.INEFFICIENT_ROOF_RATIO)
    return (
        pl.col("bound").is_in(ROOFED)
        & (pl.col("duration_ns") >= thresholds.SMALL_KERNEL_NS)
        & (pl.col("work_from") != "at-least")
        & (ALONE | (pl.col("group") == "matmul"))
        & (pl.col("roof_ns") < least * pl.col("duration_ns"))
    ).fill_null(False)


def _is_near_ridge(devices: Mapping[int, Device | None]) -> pl.Expr:
    """Return whether the times at both roofs, of multiprocessors with a tile, differ by less than both peaks may be off.

    Needs the columns of activities, peak_flop_per_s, byte_per_s and intensity_flop_per_byte.
    """
    assumed, listed = thresholds.ASSUMED_PEAK_ERROR, thresholds.PEAK_ERROR
    off = of_device(devices, lambda device: assumed if device.assumed or device.matched == "likeness" else listed)
    peak = pl.col("peak_flop_per_s") * working_ratio(devices)
    ratio = pl.col("intensity_flop_per_byte") * pl.col("byte_per_s") / peak
    most = (1 + off) / (1 - off)
    return pl.col("bound").is_in(ROOFED) & ratio.is_between(1 / most, most)


def bound_table(rated: pl.DataFrame) -> pl.DataFrame:
    """Return table `bounds`: kernels (see `roofline.with_roofs`) summed by device and bound, longest first."""
    return BOUNDS.conform(_summed(rated, "device"))


def window_bounds(kernels: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return window, then the columns of table `bounds`, for the kernels that start in each window.

    ``windows`` are disjoint on each device: device, window, start_ns, end_ns.
    """
    inside = lookup_at(kernels, "start_ns", windows, ["device"], ["window"]).drop_nulls("window")
    sums = _summed(inside, "window", "device")
    return sums.select("window").hstack(BOUNDS.conform(sums))


def _summed(kernels: pl.DataFrame, *by: str) -> pl.DataFrame:
    sums = kernels.group_by(*by, "bound").agg(*_of_roofs()).with_columns(pl.col("bound").cast(pl.String))
    return sums.sort(*by, "time_ns", "bound", descending=[*[False] * len(by), True, False])


def _of_roofs() -> list[pl.Expr]:
    """Return sums of kernels, and how close those with a known roof come to it; null without any."""
    # A kernel that moved more than was recorded has an unknown roof.
    roof = pl.when((pl.col("work_from") != "at-least").fill_null(True)).then("roof_ns")
    time, known = pl.col("duration_ns"), roof.is_not_null()
    known_ns = time.filter(known).sum()
    below = time.filter(roof < thresholds.HALF_ROOF_RATIO * time).sum()
    return [
        pl.len().cast(pl.UInt32).alias("count"),
        time.sum().alias("time_ns"),
        known_ns.alias("known_ns"),
        possible_share(pl.when(known_ns > 0).then(roof.sum() / known_ns)).alias("roof_ratio"),
        pl.when(known_ns > 0).then(below / known_ns).alias("below_half_ratio"),
        time.filter(pl.col("inefficient").fill_null(False)).sum().alias("inefficient_ns"),
        time.filter(pl.col("few_tiles").fill_null(False)).sum().alias("few_tiles_ns"),
        time.filter((pl.col("bound") == "compute") & pl.any_horizontal(pl.col("flop", "moved_bytes").is_null()))
        .sum()
        .alias("named_ns"),
        time.filter(pl.col("near_ridge").fill_null(False)).sum().alias("near_ridge_ns"),
    ]


ROOFS = Table(
    "roofs",
    "Kernels of known FLOP or bytes against what their device can do.",
    columns("""
        activity_id
        intensity_flop_per_byte f64 Arithmetic intensity: FLOP over bytes.
        peak_flop_per_s f64 Peak of the device for the dtype: of tensor cores for the matmul group.
        attainable_flop_per_s f64 The roof: that peak, or intensity times memory bandwidth if lower.
        achieved_flop_per_s f64 FLOP over duration; null above 1.05 times the peak.
        achieved_byte_per_s f64 Bytes over duration.
        compute_roof_ns f64 Time of its FLOP at peak.
        roof_ns f64 Time at the roof: at peak FLOP/s or full bandwidth, whichever takes longer.
        roof_ratio f64 That time over the duration; null above 1.05, as where data came from the cache.
        lost_ns f64 Duration minus time at the roof; 0 when it was faster than that.
        inefficient bool Whether it fills the device, lasts, and stays far below both of its roofs.
        few_tiles bool Whether it stays there mostly because it has fewer tiles than the device multiprocessors.
        near_ridge bool Whether peaks that are 15 % off (50 % off where the device is assumed) would change its bound.
    """),
)

ROOFLINE = Table(
    "roofline",
    "Kernels summed up by name, operator, dtype and shapes, with their place in the roofline.",
    columns(
        """
        device name
        operator str Name of the innermost operator around the launch.
        dtype str Type it computes in; null when unknown.
        input_dims str Shapes of the operator's inputs, as JSON text; null when not recorded.
        bucket
        group str The article's group of that bucket.
        bound str What limits the longest of them.
        count time_ns flop moved_bytes
        peak_flop_per_s f64 Peak of the device for the dtype.
        """,
        *RATES,
    ),
)

ROOFLINE_SECTION = Section(
    "Time over roof",
    show=(
        Shown("name", "kernel", "name", mark="group"),
        DEVICE_LABEL,
        Shown("operator", "operator", "name"),
        Shown("input_dims", "shapes", "text"),
        Shown("lost_ns", "time over roof", term="lost"),
        Shown("roof_ratio", "of the roof", "share", term="roof"),
        Shown("count", "count"),
        Shown("time_ns", "time"),
        Shown("bound", "bound", "part", term="bound"),
        Shown("dtype", "type", "text"),
        Shown("achieved_flop_per_s", "FLOP/s"),
        Shown("achieved_byte_per_s", "bandwidth"),
        Shown("intensity_flop_per_byte", "FLOP per byte", term="intensity"),
    ),
    sort=("-lost_ns", "name"),
    place=Longest("activities", ("device", "name", "operator")),
    record="Record with record_shapes=True, on a device whose peaks are known (or name it with --gpu), to see FLOP,"
    " bytes and the roof of each kernel.",
    key="roofline",
    table="roofline",
    known=("roof_ratio",),
    scope=WHOLE_TRACE,
)

WORK_SUMS = columns("count time_ns flop moved_bytes", *RATES)
"""Columns of `work_sums` and `work_rates`."""

STEP_WORK = Table(
    "step_work",
    "Kernels summed up by the step in whose window on the device they started.",
    columns(
        """
        device
        step i64 `index` of the step.
        start_ns end_ns
        """,
        *WORK_SUMS,
        """
        mfu_ratio f64 Model FLOP utilization: time of matmuls and convolutions at peak, over the step's length.
        mfu_most_ratio f64 The same if matmuls and convolutions of unknown work, and work from before the recording,
            had run at their peak.
        """,
    ),
)

OPERATOR_WORK = Table(
    "operator_work",
    "Kernels summed up by the operator that launched them, longest first.",
    columns(
        """
        device
        operator str Name of the operator; null when unknown.
        count time_ns flop moved_bytes
        """,
        *RATES,
    ),
)

_WORK = ("flop", "moved_bytes", "roof_ns", "compute_roof_ns", "lost_ns")
_KNOWN = {
    "flop_time_ns": "flop",
    "bytes_time_ns": "moved_bytes",
    "known_ns": "roof_ns",
    "compute_time_ns": "compute_roof_ns",
}
"""Columns with the time of kernels for which a figure is known, and that figure."""
_KEYS = ["device", "name", "operator", "dtype", "input_dims"]


def roofs(activities: pl.DataFrame, device_models: Mapping[int, Device | None]) -> pl.DataFrame:
    """Return table `roofs`: each kernel with known FLOP or bytes, compared with its device's two roofs."""
    seconds = pl.when(pl.col("duration_ns") > 0).then(pl.col("duration_ns") / 1e9)
    by_bytes = pl.col("intensity_flop_per_byte") * pl.col("byte_per_s")
    far, tiles = _is_far_below(), tiles_ratio(device_models)
    return ROOFS.conform(
        with_limits(
            activities.filter(
                (pl.col("kind") == "kernel") & ~pl.all_horizontal(pl.col("flop", "moved_bytes").is_null())
            ),
            device_models,
        )
        .with_columns(
            (pl.col("flop") / pl.col("moved_bytes")).alias("intensity_flop_per_byte"),
            roof_ns().alias("roof_ns"),
            possible_rate(pl.col("flop") / seconds, pl.col("flop") / seconds / pl.col("peak_flop_per_s")).alias(
                "achieved_flop_per_s"
            ),
            (pl.col("moved_bytes") / seconds).alias("achieved_byte_per_s"),
        )
        .with_columns(
            pl.min_horizontal("peak_flop_per_s", by_bytes).alias("attainable_flop_per_s"),
            (pl.col("flop") / pl.col("peak_flop_per_s") * 1e9).alias("compute_roof_ns"),
            (pl.col("roof_ns") / pl.col("duration_ns")).alias("roof_ratio"),
            (pl.col("duration_ns") - pl.col("roof_ns")).clip(lower_bound=0).alias("lost_ns"),
        )
        .with_columns(
            possible_share(pl.when(pl.col("duration_ns") > 0).then("roof_ratio")).alias("roof_ratio"),
            (far & (tiles >= 1)).fill_null(False).alias("inefficient"),
            # Time over roof is (multiprocessors / tiles) times the rest: the larger factor is the reason.
            (far & (tiles**2 < pl.col("roof_ratio"))).fill_null(False).alias("few_tiles"),
            _is_near_ridge(device_models).alias("near_ridge"),
        )
    )


def with_limits(activities: pl.DataFrame, devices: Mapping[int, Device | None]) -> pl.DataFrame:
    """Add peak_flop_per_s (of tensor cores or vector units, by ``matrix``) and byte_per_s of the device; null where unknown."""
    known = [(code, device.bandwidth) for code, device in devices.items() if device]
    bandwidths = pl.DataFrame(known, schema={"device": pl.Int64, "byte_per_s": pl.Float64}, orient="row")
    types = [name for name in PEAK_NAMES if not name.endswith("_matrix")]
    peaks = by_type(devices, types, "peak_flop_per_s", lambda device, dtype, matrix: device.peak_flops(dtype, matrix))
    return (
        activities.with_columns(on_matrix_units().alias("matrix"))
        .join(peaks, on=["device", "dtype", "matrix"], how="left", maintain_order="left")
        .join(bandwidths, on="device", how="left", maintain_order="left")
    )


def roof_ns() -> pl.Expr:
    """Return the minimum time for the work: at peak FLOP/s or at full bandwidth, whichever is longer.

    Null where the bytes are unknown; for matmuls, convolutions and what is bound by compute, also where FLOP or peak
    are. For other kernels, unknown FLOP do not matter, as the vector units take little time next to the memory.
    """
    compute = pl.col("flop") / pl.col("peak_flop_per_s") * 1e9
    memory = pl.col("moved_bytes") / pl.col("byte_per_s") * 1e9
    known = memory.is_not_null() & (compute.is_not_null() | ~(pl.col("matrix") | (pl.col("bound") == "compute")))
    return pl.when(known).then(pl.max_horizontal(compute, memory))


def work_sums() -> list[pl.Expr]:
    """Return sums over kernels joined with `roofs`: time, work, time at the roof, and time of known figures."""
    return [
        pl.len().cast(pl.UInt32).alias("count"),
        pl.col("duration_ns").sum().alias("time_ns"),
        *(known_sum(column) for column in _WORK),
        *(pl.col("duration_ns").filter(pl.col(of).is_not_null()).sum().alias(name) for name, of in _KNOWN.items()),
    ]


def sums_of_sums() -> list[pl.Expr]:
    """Return the sums of `work_sums` over rows that already are such sums."""
    return [pl.col("count", "time_ns", *_KNOWN).sum(), *(known_sum(column) for column in _WORK)]


def work_rates() -> list[pl.Expr]:
    """Return rates of summed work, each over the time with known figures; null where that is 0."""
    return [
        _over("flop", "moved_bytes").alias("intensity_flop_per_byte"),
        possible_rate(_over("flop", "flop_time_ns") * 1e9, _over("compute_roof_ns", "compute_time_ns")).alias(
            "achieved_flop_per_s"
        ),
        (_over("moved_bytes", "bytes_time_ns") * 1e9).alias("achieved_byte_per_s"),
        possible_share(_over("compute_roof_ns", "compute_time_ns")).alias("peak_ratio"),
        possible_share(_over("roof_ns", "known_ns")).alias("roof_ratio"),
    ]


def beyond_roof(rated: pl.DataFrame) -> pl.DataFrame:
    """Return device, bucket, count of kernels (see `with_roofs`) that together take less time than at their roof.

    Their data came from a cache, or their FLOP, bytes or peaks are wrong: their share of the roof is not known.
    """
    known = rated.filter(pl.col("roof_ns").is_not_null()).group_by("device", "bucket")
    sums = known.agg(pl.len().alias("count"), share=pl.col("roof_ns").sum() / pl.col("duration_ns").sum())
    return sums.filter(pl.col("share") > thresholds.BEYOND_ROOF_RATIO).sort("device", "bucket").drop("share")


def known_sum(column: str) -> pl.Expr:
    """Sum the known values; null without any."""
    return pl.when(pl.col(column).count() > 0).then(pl.col(column).sum()).alias(column)


_OF_ROOF = (
    "peak_flop_per_s", "roof_ns", "compute_roof_ns", "lost_ns", "inefficient", "few_tiles", "near_ridge"
)  # fmt: skip


def with_roofs(activities: pl.DataFrame, roofs: pl.DataFrame, recomputed: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of activities with the columns of `roofs` needed for sums, and whether ``recomputed``.

    ``recomputed`` has the activity_id of recomputed kernels.
    """
    kernels = activities.filter(pl.col("kind") == "kernel")
    is_again = pl.col("activity_id").is_in(recomputed.get_column("activity_id").implode()).alias("recomputed")
    return kernels.with_columns(is_again).hstack(lookup(roofs.select("activity_id", *_OF_ROOF), kernels, "activity_id"))


def roofline_table(rated: pl.DataFrame, operator_inputs: pl.DataFrame) -> pl.DataFrame:
    """Return table `roofline`: kernels (see `with_roofs`) by name, operator, dtype and shapes, longest first."""
    own = input_dims(operator_inputs, rated)
    frame = (
        rated.with_columns(pl.coalesce(own, "replayed_dims").alias("input_dims"))
        .group_by(_KEYS, maintain_order=True)
        .agg(
            pl.col("bucket").first(),
            pl.col("group").first(),
            pl.col("bound").sort_by("duration_ns").last(),
            pl.col("peak_flop_per_s").first(),
            *work_sums(),
        )
        .with_columns(*work_rates())
        .sort("time_ns", *_KEYS[:4], descending=[True, False, False, False, False])
    )
    return ROOFLINE.conform(frame)


def step_work(rated: pl.DataFrame, device_steps: pl.DataFrame, idle_causes: pl.DataFrame) -> pl.DataFrame:
    """Return table `step_work`: kernels (see `with_roofs`) summed by the step in whose window they started.

    ``idle_causes`` are intervals with their cause; during work from before the recording, the device's work is unknown.
    """
    earlier = idle_causes.filter(pl.col("cause") == vocabulary.EARLIER_WORK).select("device", "start_ns", "end_ns")
    spans = with_covered(
        device_steps.filter(pl.col("start_ns") < pl.col("end_ns")), union(earlier, ["device"]), ["device"], "earlier_ns"
    )
    inside = lookup_at(rated, "start_ns", spans.with_columns(pl.col("index").alias("step")), ["device"], ["step"])
    sums = inside.drop_nulls("step").group_by("device", "step").agg(*work_sums(), mfu_ns(), mfu_most_ns())
    return STEP_WORK.conform(
        spans.select("device", pl.col("index").alias("step"), "start_ns", "end_ns", "earlier_ns")
        .join(sums, on=["device", "step"], how="inner", maintain_order="left")
        .with_columns(
            *work_rates(),
            possible_share(pl.col("mfu_ns") / LENGTH_NS).alias("mfu_ratio"),
            possible_share((pl.col("mfu_most_ns") + pl.col("earlier_ns")) / LENGTH_NS).alias("mfu_most_ratio"),
        )
    )


def operator_work(rated: pl.DataFrame) -> pl.DataFrame:
    """Return table `operator_work`: kernels (see `with_roofs`) summed by the operator that launched them."""
    sums = rated.group_by("device", "operator").agg(*work_sums()).with_columns(*work_rates())
    return OPERATOR_WORK.conform(
        sums.sort("time_ns", "device", "operator", descending=[True, False, False], nulls_last=True)
    )


def types_by_peak(rows: pl.DataFrame) -> pl.DataFrame:
    """Return peaks of table `roofline`: peak_flop_per_s, its dtypes, whether all and whether any are of group matmul."""
    known = rows.drop_nulls("peak_flop_per_s").with_columns(is_product=pl.col("group").fill_null("") == "matmul")
    return known.group_by("peak_flop_per_s").agg(
        pl.col("dtype").drop_nulls().unique().sort(),
        pl.col("is_product").all().alias("all_products"),
        pl.col("is_product").any().alias("any_product"),
    )


def utilization(kernels: pl.DataFrame, peak_ns: pl.Expr, window_ns: int, unrecorded_ns: int = 0) -> float | None:
    """Return a time at peak (`mfu_ns`, `hfu_ns`, `mfu_most_ns`) over the window's length; None where it is not known, or impossible.

    ``unrecorded_ns`` is time of the window in which the device did unrecorded work, which counts as work at peak.
    """
    total = kernels.select(peak_ns + unrecorded_ns).item()
    ratio = None if total is None or window_ns <= 0 else float(total) / window_ns
    return None if ratio is None or ratio > thresholds.BEYOND_ROOF_RATIO else ratio


def equally_slow(kernels: pl.DataFrame, operator_inputs: pl.DataFrame) -> pl.DataFrame:
    """Return device, kernel_count, lowest, typical, highest of devices whose compute-bound kernels are equally far from peak.

    There is one row per device on which several kinds of large matmuls reach nearly the same share of their peak, well
    below it. Kernels of different shapes rarely do: a common cause, such as the clock, may limit them.
    """
    columns = ("device", "name", "operator_id", "replayed_dims", "bound", "duration_ns", "compute_roof_ns")
    large = kernels.select(columns).filter(
        (pl.col("bound") == "compute")
        & (pl.col("duration_ns") >= thresholds.LARGE_KERNEL_NS)
        & (pl.col("compute_roof_ns") > 0)
    )
    own = input_dims(operator_inputs, large)
    kinds = (
        large.with_columns(pl.coalesce(own, "replayed_dims").alias("input_dims"))
        .group_by("device", "name", "input_dims", maintain_order=True)
        .agg((pl.col("compute_roof_ns").sum() / pl.col("duration_ns").sum()).alias("ratio"), pl.len().alias("kernels"))
    )
    ratio = pl.col("ratio")
    return (
        kinds.group_by("device", maintain_order=True)
        .agg(
            pl.len().alias("kinds"),
            pl.col("kernels").sum().alias("kernel_count"),
            ratio.min().alias("lowest"),
            ratio.median().alias("typical"),
            ratio.max().alias("highest"),
        )
        .filter(
            (pl.col("kinds") >= thresholds.EQUALLY_SLOW_KINDS)
            & (pl.col("typical") < thresholds.EQUALLY_SLOW_RATIO)
            & (pl.col("highest") - pl.col("lowest") <= thresholds.EQUALLY_SLOW_SPREAD * pl.col("typical"))
        )
        .select("device", "kernel_count", "lowest", "typical", "highest")
    )


# Numerators of FLOP utilizations: each kernel's FLOP are divided by the peak of its own dtype, so a mixture of dtypes is
# handled. Recomputed work counts only as hardware utilization, as it is no progress of the model (Chowdhery et al. 2022,
# PaLM, appendix B).


def hfu_ns() -> pl.Expr:
    """Return the time of matmul and convolution at peak; null without any (hardware FLOP utilization)."""
    own = pl.col("compute_roof_ns").filter(pl.col("group") == "matmul")
    return pl.when(own.count() > 0).then(own.sum()).alias("hfu_ns")


def mfu_ns() -> pl.Expr:
    """Return the same without recomputed work (model FLOP utilization)."""
    own = pl.col("compute_roof_ns").filter((pl.col("group") == "matmul") & ~pl.col("recomputed"))
    return pl.when(own.count() > 0).then(own.sum()).alias("mfu_ns")


def mfu_most_ns() -> pl.Expr:
    """Return the upper bound of `mfu_ns`: a kernel of unknown work does no more than its duration at peak allows."""
    own = (pl.col("group") == "matmul") & ~pl.col("recomputed")
    known = pl.col("compute_roof_ns").filter(own).count() > 0
    most = pl.coalesce("compute_roof_ns", pl.col("duration_ns").cast(pl.Float64)).filter(own).sum()
    return pl.when(known).then(most).alias("mfu_most_ns")


def _over(numerator: str, denominator: str) -> pl.Expr:
    return pl.when(pl.col(denominator) > 0).then(pl.col(numerator) / pl.col(denominator))


ANALYSES = (
    analysis.Analysis(BOUNDS, bound_table),
    analysis.Analysis(ROOFS, roofs),
    analysis.Value("rated", with_roofs),
    analysis.Analysis(ROOFLINE, roofline_table, placed=(ROOFLINE_SECTION,)),
    analysis.Analysis(STEP_WORK, step_work),
    analysis.Analysis(OPERATOR_WORK, operator_work),
)
