"""What each activity does (bucket), what it had to do (work) and what limits it (bound)."""

from collections.abc import Mapping

import polars as pl

from trace_analyzer import tables, thresholds
from trace_analyzer.analyses.formulas import call_work
from trace_analyzer.catalog.devices import Device
from trace_analyzer.catalog.kernels import kernel_buckets

_DEVICE_TO_DEVICE = r"(?i)DtoD|DeviceToDevice|Device -> Device"
_BETWEEN_PEERS = r"(?i)PtoP|PeerToPeer|MemcpyPeer"


# Of HIP's launch calls this one takes its grid in threads, and the profiler writes it down as it is
# (HIP API reference, hipExtModuleLaunchKernel: globalWorkSizeX).
_GRID_IN_THREADS = "hipExtModuleLaunchKernel"


def with_blocks(activities: pl.DataFrame) -> pl.DataFrame:
    """Activities with ``blocks`` in blocks, also where the launch counted threads. Needs launch_name."""
    blocks = (pl.col("blocks") / pl.col("threads_per_block")).ceil().cast(pl.Int64, strict=False)
    return activities.with_columns(
        pl.when((pl.col("launch_name") == _GRID_IN_THREADS) & (pl.col("threads_per_block") > 0))
        .then(blocks)
        .otherwise("blocks")
        .alias("blocks")
    )


def with_buckets(activities: pl.DataFrame) -> pl.DataFrame:
    """Activities with bucket, group and prior of each kernel; null for copies and memsets."""
    kernels = activities.filter(pl.col("kind") == "kernel")
    buckets = kernel_buckets(kernels.select("name", "operator")).with_columns(pl.lit("kernel").alias("kind"))
    return activities.join(
        buckets.select("kind", "name", "operator", "bucket", "group", "prior"),
        on=["kind", "name", "operator"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )


def with_work(activities: pl.DataFrame, operator_inputs: pl.DataFrame) -> pl.DataFrame:
    """Activities with flop, moved_bytes and dtype of the operator that launched them, where a formula is known.

    The matmul kernels of an operator share its work by duration; its other kernels have none of their own.
    """
    calls = (
        activities.filter(pl.col("group") == "matmul")
        .join(operator_inputs, left_on="operator_id", right_on="event_id", how="inner", maintain_order="left")
        .select("activity_id", "operator_id", "operator", "input_dims", "input_types", "duration_ns")
    )
    keys = ["operator", "input_dims", "input_types"]
    unique = calls.select(keys).unique()
    works = [call_work(*row) for row in unique.iter_rows()]
    known = unique.with_columns(
        pl.Series("flop", [w and w.flop for w in works], dtype=pl.Float64),
        pl.Series("moved_bytes", [w and w.moved_bytes for w in works], dtype=pl.Float64),
        pl.Series("dtype", [w and w.dtype for w in works], dtype=pl.String),
    )
    share = pl.col("duration_ns") / pl.col("duration_ns").sum().over("operator_id")
    work = calls.join(known, on=keys, how="left", nulls_equal=True).select(
        "activity_id", "dtype", (pl.col("flop", "moved_bytes") * share)
    )
    return activities.join(work, on="activity_id", how="left", maintain_order="left")


def with_bounds(activities: pl.DataFrame, devices: Mapping[int, Device | None]) -> pl.DataFrame:
    """Activities with their bound.

    Intensity against the device's balance decides compute or memory where FLOP and bytes are known; the
    bucket's prior elsewhere. A kernel too short to matter, or short with fewer blocks than the device
    has SMs, is bound by latency.
    """
    sms = _per_device(devices, lambda device: device.sm_count)
    intensity = pl.col("flop") / pl.col("moved_bytes")
    short = (pl.col("duration_ns") < thresholds.TINY_KERNEL_NS) | (
        (pl.col("duration_ns") < thresholds.SMALL_KERNEL_NS)
        & (pl.col("blocks") < pl.col("device").replace_strict(sms, default=None, return_dtype=pl.Int64))
    )
    kernel = (
        pl.when(pl.col("bucket") == "communication")
        .then(pl.lit("communication"))
        .when(short)
        .then(pl.lit("latency"))
        .when(intensity < pl.col("balance"))
        .then(pl.lit("memory"))
        .when(intensity >= pl.col("balance"))
        .then(pl.lit("compute"))
        .otherwise("prior")
    )
    within = (pl.col("kind") == "memset") | (
        pl.col("name").str.contains(_DEVICE_TO_DEVICE) & ~pl.col("name").str.contains(_BETWEEN_PEERS)
    )
    return (
        activities.join(_balances(devices), on=["device", "dtype"], how="left", maintain_order="left")
        .with_columns(
            pl.when(pl.col("kind") == "kernel")
            .then(kernel)
            .when(within)
            .then(pl.lit("memory"))
            .otherwise(pl.lit("copy"))
            .alias("bound")
        )
        .drop("balance")
    )


def kernel_table(activities: pl.DataFrame) -> pl.DataFrame:
    """Table `kernels`: activities summed up by device and name, longest first."""
    frame = (
        activities.group_by("device", "name", "kind", maintain_order=True)
        .agg(
            pl.col("bucket").drop_nulls().mode().sort().first(),
            pl.col("bound").sort_by("duration_ns").last(),
            pl.len().alias("count"),
            pl.col("duration_ns").sum().alias("time_ns"),
            pl.col("duration_ns").median().alias("median_ns"),
            pl.col("operator").drop_nulls().mode().sort().first(),
        )
        .with_columns((pl.col("time_ns") / pl.col("time_ns").sum().over("device")).fill_nan(0.0).alias("time_ratio"))
        .sort("time_ns", "device", "name", descending=[True, False, False])
    )
    return tables.KERNELS.conform(frame)


def _per_device(devices: Mapping[int, Device | None], figure) -> dict[int, int | None]:  # type: ignore[no-untyped-def]
    return {code: None if device is None else figure(device) for code, device in devices.items()}


def _balances(devices: Mapping[int, Device | None]) -> pl.DataFrame:
    """device, dtype, balance (FLOP per byte at which compute and memory take equally long)."""
    dtypes = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
    rows = [(code, dtype, device.balance(dtype)) for code, device in devices.items() if device for dtype in dtypes]
    return pl.DataFrame(rows, schema={"device": pl.Int64, "dtype": pl.String, "balance": pl.Float64}, orient="row")
