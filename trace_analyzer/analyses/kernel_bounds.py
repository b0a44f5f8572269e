"""Add the kind of work (bucket), the required work (FLOP, bytes) and the limit (bound) of each activity."""

import json
import re
from collections.abc import Mapping
from math import prod

import polars as pl

from trace_analyzer import analysis, errors, schema, thresholds
from trace_analyzer.analyses.device_models import MatchedDevices, by_type, of_device
from trace_analyzer.analyses.host import input_dims
from trace_analyzer.catalog.devices import Device
from trace_analyzer.catalog.event_names import WITHIN_DEVICE, copy_direction, is_collective_copy
from trace_analyzer.catalog.kernels import kernel_buckets
from trace_analyzer.frames.lookups import as_strings, factorize, lookup, map_unique
from trace_analyzer.sections import DEVICE_LABEL, WHOLE_TRACE, Longest, Section, Shown
from trace_analyzer.units import NS_PER_US

KERNELS = schema.Table(
    "kernels",
    "Activities summed up by name.",
    schema.columns("""
        device name
        kind str kernel, memcpy or memset.
        bucket bound
        count u32 How often it ran.
        time_ns i64 Sum of durations.
        exclusive_ns i64 Part of that time that is credited to it alone: over all kernels this adds up to the device's
            busy time.
        median_ns f64 Median duration.
        time_ratio f64 Share of the sum over all activities of the device.
        operator str The operator that launched it most often.
    """),
)

KERNELS_SECTION = Section(
    "Top kernels and copies",
    show=(
        Shown("name", "name", "name", 0, markdown=True),
        DEVICE_LABEL,
        Shown("bucket", "bucket", "line", 80, markdown=True, fallback="kind", term="bucket"),
        Shown("bound", "bound", "part", 72, markdown=True, term="bound"),
        Shown("operator", "operator", "name"),
        Shown("count", "count", terminal=64, markdown=True),
        Shown("median_ns", "median", terminal=116),
        Shown("time_ns", "time", terminal=40, markdown=True),
        Shown("time_ratio", "share", "share", 40, markdown=True),
    ),
    sort=("-time_ns", "name"),
    place=Longest("activities", ("device", "name")),
    scope=WHOLE_TRACE,
    top=True,
    key="kernels",
    table="kernels",
)

# Of HIP's launch calls, this one takes its grid in threads, and the profiler records it unchanged (HIP API reference,
# hipExtModuleLaunchKernel: globalWorkSizeX).
_GRID_IN_THREADS = "hipExtModuleLaunchKernel"


def with_blocks(activities: pl.DataFrame) -> pl.DataFrame:
    """Add ``blocks``, the number of blocks, also where the launch specified threads. Needs launch_name.

    A kernel without a known launch counts as the others of its name. A grid of none is one that was not recorded.
    """
    activities = activities.with_columns(pl.when(pl.col("blocks") > 0).then("blocks").alias("blocks"))
    blocks = (pl.col("blocks") / pl.col("threads_per_block")).ceil().cast(pl.Int64, strict=False)
    in_threads = (pl.col("launch_name") == _GRID_IN_THREADS).fill_null(False)
    names = activities.filter(in_threads).get_column("name").unique()
    is_unlinked = pl.col("launch_name").is_null() & pl.col("name").is_in(names.implode())
    return activities.with_columns(
        pl.when((in_threads | is_unlinked) & (pl.col("threads_per_block") > 0))
        .then(blocks)
        .otherwise("blocks")
        .alias("blocks")
    )


_REGISTERS, _THREADS, _BLOCKS = 65_536, 2_048, 32
"""Registers, threads and blocks of a multiprocessor, where the header does not tell (CUDA C++ Programming Guide,
"Technical Specifications per Compute Capability"; the most of any)."""
_WARP_REGISTERS, _BLOCK_BYTES = 256, 1_024
"""Registers come in such units per warp; the runtime keeps so much shared memory per block (same source)."""


def with_waves(activities: pl.DataFrame, devices: MatchedDevices) -> pl.DataFrame:
    """Add ``waves``: blocks over those that the device holds at once, by their threads, registers and shared memory."""
    warps = (pl.col("threads_per_block") / 32).ceil()
    registers = (pl.col("registers_per_thread") * 32 / _WARP_REGISTERS).ceil() * _WARP_REGISTERS * warps
    limits = devices.entries
    resident = pl.min_horizontal(
        pl.lit(float(_BLOCKS)),
        (of_device(limits, lambda entry: entry.threads_per_sm).fill_null(_THREADS) / (32 * warps)).floor(),
        (of_device(limits, lambda entry: entry.registers_per_sm).fill_null(_REGISTERS) / registers).floor(),
        (of_device(limits, lambda entry: entry.shared_bytes_per_sm) / (pl.col("shared_memory_bytes") + _BLOCK_BYTES)).floor(),
    )  # fmt: skip
    count = pl.col("device").replace_strict(devices.sm_counts, default=None, return_dtype=pl.Float64)
    is_kernel = (pl.col("kind") == "kernel") & (pl.col("blocks") > 0) & (pl.col("threads_per_block") > 0)
    return activities.with_columns(
        pl.when(is_kernel).then(pl.col("blocks") / (count * resident.clip(lower_bound=1))).alias("waves")
    )


FACTORS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
"""Matmul operators, and the index of their first factor among the arguments."""
_TILE = re.compile(r"(?:_MT|tilesize|_)([1-9]\d{1,2})x([1-9]\d{1,2})(?:x\d+)?(?=_|$)")
"""Tile of the output in names of Tensile, cuBLAS and CUTLASS; columns first, as BLAS is column-major."""
_SPLITS = re.compile(r"_GSU([1-9]\d{0,2})(?=_|$)")
"""Blocks that share the inner size of a tile, in names of Tensile (parameter GlobalSplitU)."""
_MOST_TILES = 2**40


def with_tiles(activities: pl.DataFrame, operator_inputs: pl.DataFrame) -> pl.DataFrame:
    """Add ``tiles``: blocks of the grid, or by a matmul's name and sizes tiles of its output and their splits, if more.

    A persistent kernel has fewer blocks than tiles. Null where neither is known.
    """
    keys = activities.select("name", "operator", input_dims(operator_inputs, activities))
    numbers, firsts = factorize(*keys)
    named = pl.Series([_tiles(*key) for key in as_strings(keys[firsts]).iter_rows()], dtype=pl.Int64)
    return activities.with_columns(pl.max_horizontal("blocks", named[numbers].alias("tiles")).alias("tiles"))


ALONE = pl.col("operator_id").is_null() | (pl.len().over("operator_id") == 1)
"""Whether a kernel is the only one of its operator."""


def tiles_ratio(devices: Mapping[int, Device | None]) -> pl.Expr:
    """Return a kernel's tiles over the device's multiprocessors; null where that is unknown.

    Without a grid, a kernel beside others of its operator, or by its name, may split its tiles, unless its name says how.
    """
    ratio = pl.col("tiles") / of_device(devices, lambda device: device.sm_count)
    name = pl.col("name").cast(pl.String)
    splits = ~ALONE & ~name.str.contains(r"_GSU[1-9]") | name.str.contains(r"(?i)GSUAMBSK|_SK[1-9]|split_?k|stream_?k")
    return pl.when((ratio >= 1) | pl.col("blocks").is_not_null() | ~splits).then(ratio)


def working_ratio(devices: Mapping[int, Device | None]) -> pl.Expr:
    """Return the share of the device's multiprocessors that have a tile of a kernel; 1 where that is unknown."""
    return tiles_ratio(devices).fill_null(1.0).clip(upper_bound=1.0)


def _tiles(name: str, operator: str | None, input_dims: str | None) -> int | None:
    tile, first = _TILE.search(name), FACTORS.get(operator or "")
    if tile is None or first is None or input_dims is None:
        return None
    match json.loads(input_dims)[first : first + 2]:
        case [[*batch, int(rows), int()], [*_, int(), int(columns)]] if all(isinstance(n, int) for n in batch):
            wide, high = map(int, tile.groups())
            splits = _SPLITS.search(name)
            blocks = -(-columns // wide) * -(-rows // high) * (int(splits[1]) if splits else 1)
            return min(int(prod(batch)) * blocks, _MOST_TILES)
    return None


def with_buckets(activities: pl.DataFrame) -> pl.DataFrame:
    """Add bucket, group and prior of each kernel; null for copies and memsets."""
    keys = activities.select("kind", "name", "operator")
    numbers, firsts = factorize(*keys)
    keys = as_strings(keys[firsts])
    buckets = kernel_buckets(keys.filter(pl.col("kind") == "kernel")).with_columns(pl.lit("kernel").alias("kind"))
    bucketed = keys.join(buckets, on=keys.columns, how="left", nulls_equal=True, maintain_order="left")
    return activities.hstack(bucketed.select(pl.col("bucket", "group", "prior").cast(pl.Categorical))[numbers])


def on_matrix_units() -> pl.Expr:
    """Return whether a kernel's FLOP are compared with the peak of tensor cores.

    This applies to matmul and convolution, unless they are known not to use them.
    """
    return (pl.col("group") == "matmul").fill_null(False) & pl.col("uses_tensor_cores").fill_null(True)


def time_by_type(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return dtype, matrix (see `on_matrix_units`) and duration_ns of the kernels with known FLOP, longest first."""
    return (
        kernels.filter(pl.col("flop") > 0)
        .drop_nulls("dtype")
        .group_by("dtype", on_matrix_units().alias("matrix"))
        .agg(pl.col("duration_ns").sum())
        .sort("duration_ns", "dtype", "matrix", descending=[True, False, False])
    )


def with_bounds(activities: pl.DataFrame, devices: Mapping[int, Device | None]) -> pl.DataFrame:
    """Add the bound of each activity.

    Where FLOP and bytes are known, the arithmetic intensity relative to the device's machine balance, for the units and
    the dtype in use and by the tiles, determines compute or memory. Otherwise other executions of the kernel do (`_bounds_elsewhere`), then
    the bucket's prior. Copies of collectives are communication. A kernel that is too short to matter, or short with fewer blocks than the device has SMs, is bound
    by latency.
    """
    intensity = pl.when(pl.col("moved_bytes") > 0).then(pl.col("flop") / pl.col("moved_bytes"))
    short = (pl.col("duration_ns") < thresholds.TINY_KERNEL_NS) | (
        (pl.col("duration_ns") < thresholds.SMALL_KERNEL_NS)
        & (pl.col("blocks") < of_device(devices, lambda device: device.sm_count, pl.Int64()))
    )
    # Multiprocessors without a tile compute nothing, while the others may have all of the bandwidth.
    balance = pl.col("balance") * working_ratio(devices)
    by_work = pl.when(intensity < balance).then(_bound("memory")).when(intensity >= balance).then(_bound("compute"))
    kernel = (
        pl.when(pl.col("bucket") == "communication").then(_bound("communication"))
        .when(short).then(_bound("latency"))
        .otherwise(pl.coalesce("by_work", "elsewhere", pl.col("prior").cast(_BOUNDS)))
    )  # fmt: skip
    is_inner = (pl.col("kind") == "memset") | (copy_direction() == WITHIN_DEVICE).fill_null(False)
    within = map_unique(activities.select("kind", "name"), is_inner).to_series()
    copied = activities.filter(pl.col("kind") == "memcpy").select("activity_id", "name", "operator")
    of_collectives = copied.filter(map_unique(copied.select("name", "operator"), is_collective_copy()).to_series())
    is_collective = pl.col("activity_id").is_in(of_collectives.get_column("activity_id").implode())
    keys = activities.select("device", "dtype", on_matrix_units().alias("matrix"))
    numbers, firsts = factorize(*keys)
    # FLOP per byte at which compute and memory take the same time.
    balance_of = by_type(
        devices, _DTYPES, "balance", lambda device, dtype, matrix: device.balance(dtype, matrix=matrix)
    )
    balances = keys[firsts].join(balance_of, on=keys.columns, how="left", maintain_order="left")
    bound = (
        pl.when(pl.col("kind") == "kernel").then(kernel)
        .when(is_collective).then(_bound("communication"))
        .when(within).then(_bound("memory"))
        .otherwise(_bound("copy"))
    )  # fmt: skip
    rated = activities.with_columns(balances.get_column("balance")[numbers]).with_columns(by_work.alias("by_work"))
    return (
        rated.with_columns(_bounds_elsewhere(rated))
        .with_columns(bound.alias("bound"))
        .drop("balance", "by_work", "elsewhere")
    )


_SAME_KERNEL = ("device", "name", "blocks", "threads_per_block")
_SAME_SIZE = 2
"""Executions of one kernel and grid whose times differ by more than this factor may be of other sizes."""


def _bounds_elsewhere(activities: pl.DataFrame) -> pl.Series:
    """Return the bound by work of other executions of each kernel (``elsewhere``); null where work decides or none fits.

    These have its name, grid and block on its device, all the same bound, and times within a factor of `_SAME_SIZE`. A kernel
    launched before the recording has no shapes, but often runs again in it.
    """
    is_asked = pl.col("by_work").is_null() & (pl.col("kind") == "kernel") & pl.col("blocks").is_not_null()
    asked, known = activities.filter(is_asked), activities.filter(pl.col("by_work").is_not_null())
    duration = pl.col("duration_ns")
    executions = (
        known.group_by(_SAME_KERNEL)
        .agg(
            pl.col("by_work").n_unique().alias("bounds"),
            pl.col("by_work").first().alias("elsewhere"),
            (duration.min() / _SAME_SIZE).alias("least_ns"),
            (duration.max() * _SAME_SIZE).alias("most_ns"),
        )
        .filter(pl.col("bounds") == 1)
    )
    same = asked.select("activity_id", "duration_ns", *_SAME_KERNEL).join(
        executions, on=_SAME_KERNEL, how="inner", nulls_equal=True
    )
    of_size = same.filter(duration.is_between("least_ns", "most_ns"))
    return lookup(of_size.select("activity_id", "elsewhere"), activities, "activity_id").to_series()


_BOUNDS = pl.Enum(["compute", "memory", "latency", "communication", "copy", "other"])


def _bound(bound: str) -> pl.Expr:
    return pl.lit(bound, dtype=_BOUNDS)


def _tick_ns() -> pl.Expr:
    """Return the resolution of durations: a microsecond where all are whole ones."""
    return pl.when((pl.col("duration_ns") % NS_PER_US == 0).all()).then(NS_PER_US).otherwise(thresholds.DEVICE_CLOCK_NS)


def with_memory_excess(activities: pl.DataFrame, devices: Mapping[int, Device | None]) -> pl.DataFrame:
    """Add faster_than_memory: why a kernel moved its bytes faster than the device's memory can.

    A duration of a few clock ticks shows no rate at all. Otherwise the bytes beyond the memory's bandwidth must have
    been on the chip before, or still be there afterwards: at most as many as the L2 cache holds.
    """
    bandwidth = of_device(devices, lambda device: device.bandwidth)
    cache = of_device(devices, lambda device: device.l2_mib and device.l2_mib * 2**20)
    excess = pl.col("moved_bytes") - bandwidth * pl.col("duration_ns") / 1e9
    return activities.with_columns(
        pl.when((pl.col("kind") == "kernel") & (excess > 0))
        .then(
            pl.when(pl.col("duration_ns") < thresholds.CLOCK_TICKS * _tick_ns()).then(pl.lit("clock"))
            .when(excess <= cache).then(pl.lit("cache"))
            .otherwise(pl.lit("unexplained"))
        )
        .alias("faster_than_memory")
    )  # fmt: skip


def without_impossible_work(
    activities: pl.DataFrame, devices: Mapping[int, Device | None]
) -> tuple[pl.DataFrame, tuple[errors.Note, ...]]:
    """Return activities without FLOP and bytes that no device can do in their time, and a note that counts them.

    Shapes that are wrong, or of another kernel, give such work. Datasheets and clocks are off by less than
    `IMPOSSIBLE_RATE`, caches move bytes some times as fast as the memory.
    """
    peak = of_device(
        devices,
        lambda device: max(
            (rate for dtype in _DTYPES for matrix in (True, False) if (rate := device.peak_flops(dtype, matrix))),
            default=None,
        ),
    )
    bandwidth = of_device(devices, lambda device: device.bandwidth)
    # A duration of a few clock ticks shows no rate.
    seconds = pl.when(pl.col("duration_ns") >= thresholds.CLOCK_TICKS * _tick_ns()).then(pl.col("duration_ns") / 1e9)
    most = thresholds.IMPOSSIBLE_RATE * seconds
    impossible = activities.select(
        (
            (pl.col("flop") > most * peak)
            | (pl.col("moved_bytes") > most * bandwidth * thresholds.CACHE_RATE)
            | (pl.col("flop") < 0)
            | (pl.col("moved_bytes") < 0)
        ).fill_null(False)
    ).to_series()
    if not (count := int(impossible.sum())):
        return activities, ()
    message = "kernels with more FLOP or bytes, by their operator's shapes, than the device can do in their time: unknown work"
    unknown = pl.when(~pl.lit(impossible)).then(pl.col("flop", "moved_bytes", "doubtful_bytes"))
    return activities.with_columns(unknown), (errors.Note("impossible-work", "warning", message, count),)


def without_refuted_reads(activities: pl.DataFrame, devices: Mapping[int, Device | None]) -> pl.DataFrame:
    """Return activities whose moved_bytes exclude repeated reads of operands that cannot have taken place.

    It is unknown whether operands of one shape, type and strides are one tensor and, without strides, whether they are
    expanded. They count as read, unless the kernel would then exceed what memory and cache allow: then their
    doubtful_bytes are excluded. That column is dropped.
    """
    doubt = with_memory_excess(activities.filter(pl.col("doubtful_bytes") > 0), devices)
    refuted = doubt.filter(pl.col("faster_than_memory") == "unexplained").get_column("activity_id")
    fewer = pl.col("moved_bytes") - pl.col("doubtful_bytes")
    return activities.with_columns(
        pl.when(pl.col("activity_id").is_in(refuted.implode()))
        .then(fewer)
        .otherwise("moved_bytes")
        .alias("moved_bytes")
    ).drop("doubtful_bytes")


def kernel_table(activities: pl.DataFrame, exclusive_times: pl.Series) -> pl.DataFrame:
    """Return table `kernels`: activities summed by device and name, longest first."""
    frame = (
        activities.with_columns(exclusive_times)
        .group_by("device", "name", "kind", maintain_order=True)
        .agg(
            pl.col("bucket").drop_nulls().mode().sort().first(),
            pl.col("bound").sort_by("duration_ns").last(),
            pl.len().alias("count"),
            pl.col("duration_ns").sum().alias("time_ns"),
            pl.col("exclusive_ns").sum(),
            pl.col("duration_ns").median().alias("median_ns"),
            pl.col("operator").drop_nulls().mode().sort().first(),
        )
        .with_columns((pl.col("time_ns") / pl.col("time_ns").sum().over("device")).fill_nan(0.0).alias("time_ratio"))
        .sort("time_ns", "device", "name", descending=[True, False, False])
    )
    return KERNELS.conform(frame)


_DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")


ANALYSES = (analysis.Analysis(KERNELS, kernel_table, placed=(KERNELS_SECTION,)),)
