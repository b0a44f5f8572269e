"""Find matmuls and convolutions that could use tensor cores better, and the most that this can save.

Three reasons: ``fp32`` operands where a narrower type is faster; ``vector-units`` although tensor
cores take the type; and ``unaligned`` rows, which kernels must load in pieces smaller than 16 bytes
(https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication, "Tensor Core requirements").
"""

from collections.abc import Mapping

import polars as pl

from trace_analyzer.analyses.host import input_dims
from trace_analyzer.analyses.roofline import known_sum, with_limits
from trace_analyzer.analysis import Analysis, Value
from trace_analyzer.catalog.devices import Device
from trace_analyzer.catalog.kernels import operand_type, says_tf32
from trace_analyzer.frames.lookups import as_strings, map_unique
from trace_analyzer.schema import Table, columns

TENSOR_CORES = Table(
    "tensor_cores",
    "Matmuls and convolutions that could use tensor cores, or use them better; the most time saved first.",
    columns("""
        device
        reason str fp32, vector-units or unaligned.
        name
        operator str Name of the innermost operator around the launch.
        dtype str Type it computes in.
        target_dtype str Type that it could compute in.
        input_dims str Shapes of the operator's inputs, as JSON text; null when not recorded.
        count time_ns flop
        could_ns f64 Time at the roof on tensor cores in that type.
        saves_ns f64 Time saved at most.
    """),
)

_TORCH = {"bf16": "bfloat16", "fp16": "float16"}
_NARROWER = ("tf32", "bf16", "fp16")
_ELEMENT_BYTES = {"tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
_VECTOR_WIDTH = 16
"""Bytes of the widest load of one thread; fast kernels need rows that are aligned to it."""
_ALIGNMENT = r"_align[ab]?(\d+)"
_FP32_NAMES = r"(?i)sgemm|scudnn|f32f32_f32f32_f32"
"""Kernels that multiply in FP32 according to their name, used where shapes are unknown."""
_KEYS = ["device", "reason", "name", "operator", "dtype", "target_dtype", "input_dims"]

_IN_FP32 = (
    r"^aten::(_(log_)?softmax(_backward_data)?|native_(layer|group)_norm(_backward)?|sum|prod|cumsum|cumprod|norm|linalg_vector_norm"
    r"|pow|exp|expm1|log|log10|log1p|log2|reciprocal|rsqrt|softplus|softplus_backward)_?$"
)
"""Operators that autocast runs in FP32 on CUDA devices, and their gradients (docs: "CUDA Ops that can autocast to float32")."""


def halved_in_16_bits(*, trains: bool) -> pl.Expr:
    """Return which FP32 kernels move half the bytes in 16 bits: pointwise and normalization kernels that memory limits.

    Losses and, in training, what autocast runs in FP32 stay; so do lookups, gathers and scatters, because they have the type
    of their tables.
    """
    stays = pl.col("operator").str.contains(_IN_FP32).fill_null(False) if trains else pl.lit(value=False)
    passes = pl.col("group").is_in(["pointwise", "normalization"]) & ~pl.col("bucket").is_in(["optimizer", "loss"])
    return (pl.col("bound") == "memory") & passes & ~stays


def mostly_narrow(kernels: pl.DataFrame) -> bool:
    """Return whether at most 16 bits take most of the matmul time with a type: the rest is then in FP32 on purpose.

    Where no shapes were recorded, the names of kernels show their types.
    """
    matmuls = kernels.filter(pl.col("group") == "matmul")
    named = map_unique(matmuls.select("name"), operand_type()).to_series()
    known = matmuls.select(
        pl.coalesce(pl.col("dtype").cast(pl.String), named).alias("type"), "duration_ns"
    ).drop_nulls()
    narrow = known.filter(pl.col("type").is_in(_NARROW)).get_column("duration_ns").sum()
    return bool(2 * narrow > known.get_column("duration_ns").sum())


_NARROW = ("bf16", "fp16", "fp8", "int8", "c10::BFloat16", "c10::Half")


def misses(rated: pl.DataFrame, device_models: Mapping[int, Device | None]) -> pl.DataFrame:
    """Return matmuls and convolutions with the reason for a better use of tensor cores, ``could_ns`` and ``saves_ns``.

    ``could_ns`` is the roof on tensor cores: the longer of FLOP over their peak and bytes over bandwidth. With unknown
    FLOP, it is the time divided by the ratio of the peaks. Matmuls and convolutions that memory limits equally on
    vector units, such as those of a decoding step, are excluded.
    """
    columns = ["activity_id", "device", "operator_id", "name", "operator", "group", "bound", "dtype", "duration_ns"]
    large = rated.filter((pl.col("group") == "matmul") & (pl.col("bound") != "latency"))
    matmuls = as_strings(large.select(*columns, "uses_tensor_cores", "flop", "moved_bytes"))
    by_name = pl.col("dtype").is_null() & ~pl.col("uses_tensor_cores") & pl.col("name").str.contains(_FP32_NAMES)
    typed = matmuls.with_columns(pl.when(by_name).then(pl.lit("fp32")).otherwise("dtype").alias("dtype"))
    named = with_limits(typed.with_columns(_reason().alias("reason")).drop_nulls("reason"), device_models)
    return (
        named.join(_targets(device_models), on=["device", "dtype"], how="inner", maintain_order="left")
        .with_columns(
            (pl.col("flop") / pl.col("target_flop_per_s") * 1e9).alias("compute_ns"),
            (pl.col("moved_bytes") / pl.col("byte_per_s") * 1e9).alias("memory_ns"),
            (pl.col("flop") / pl.col("vector_flop_per_s") * 1e9).alias("vector_ns"),
        )
        .with_columns(
            pl.when(pl.col("flop").is_null() & (pl.col("reason") == "fp32"))
            .then(pl.col("duration_ns") * pl.col("vector_flop_per_s") / pl.col("target_flop_per_s"))
            .otherwise(pl.max_horizontal("compute_ns", "memory_ns"))
            .alias("could_ns")
        )
        .filter(
            (pl.col("could_ns") < pl.col("duration_ns"))
            & ((pl.col("reason") == "unaligned") | ((pl.col("vector_ns") > pl.col("memory_ns")).fill_null(True)))
        )
        .with_columns((pl.col("duration_ns") - pl.col("could_ns")).alias("saves_ns"))
    )


def in_tf32(kernels: pl.DataFrame) -> pl.Series:
    """Return which of these kernels multiply in TF32, at a roof: by their names where no shapes were recorded."""
    named = map_unique(kernels.select("name"), says_tf32()).to_series()
    is_tf32 = (pl.col("dtype") == "tf32") | pl.col("dtype").is_null() & named
    large = (pl.col("group") == "matmul") & pl.col("bound").is_in(["compute", "memory"])
    return kernels.select((large & is_tf32).fill_null(False)).to_series()


def tensor_core_table(tensor_core_misses: pl.DataFrame, operator_inputs: pl.DataFrame) -> pl.DataFrame:
    """Return table `tensor_cores`: `misses` summed by reason, name, operator, dtype and shapes, largest saving first."""
    frame = (
        tensor_core_misses.with_columns(input_dims(operator_inputs, tensor_core_misses))
        .group_by(_KEYS, maintain_order=True)
        .agg(
            pl.len().alias("count"),
            pl.col("duration_ns").sum().alias("time_ns"),
            known_sum("flop"),
            pl.col("could_ns").sum(),
            pl.col("saves_ns").sum(),
        )
        .sort("saves_ns", *_KEYS, descending=[True, *[False] * len(_KEYS)])
    )
    return TENSOR_CORES.conform(frame)


def by_reason(table: pl.DataFrame) -> pl.DataFrame:
    """Sum table `tensor_cores` of one device by reason and target."""
    return (
        table.group_by("reason", "target_dtype", maintain_order=True)
        .agg(pl.col("count").sum().alias("kernel_count"), pl.col("time_ns", "saves_ns").sum())
        .sort("saves_ns", "reason", "target_dtype", descending=[True, False, False])
    )


def cure(reason: str, target_dtype: str) -> str:
    """Return the fix for a reason, as code where possible."""
    if reason == "vector-units":
        return "sizes that are multiples of 8 (16-bit types) or 16 (8-bit types), in contiguous tensors"
    if reason == "unaligned":
        return f"pad the innermost sizes to multiples of {_VECTOR_WIDTH // _ELEMENT_BYTES[target_dtype]} elements"
    if target_dtype == "tf32":
        return "torch.set_float32_matmul_precision('high')"
    return f"torch.autocast('cuda', dtype=torch.{_TORCH[target_dtype]})"


def _reason() -> pl.Expr:
    width = pl.col("dtype").replace_strict(_ELEMENT_BYTES, default=None, return_dtype=pl.Int64)
    narrow = pl.col("name").str.extract(_ALIGNMENT).cast(pl.Int64, strict=False) * width < _VECTOR_WIDTH
    return (
        pl.when(pl.col("dtype") == "fp32").then(pl.lit("fp32"))
        .when(~pl.col("uses_tensor_cores") & width.is_not_null()).then(pl.lit("vector-units"))
        .when(pl.col("uses_tensor_cores") & narrow).then(pl.lit("unaligned"))
    )  # fmt: skip


def _targets(devices: Mapping[int, Device | None]) -> pl.DataFrame:
    """Return device, dtype, target_dtype, target_flop_per_s, vector_flop_per_s: the peaks after and before the change.

    The target of FP32 is the nearest narrower type in which the device is faster; other types keep their type.
    """
    rows = [
        (code, dtype, target, peak, device.peak_flops(dtype, matrix=dtype == "fp32"))
        for code, device in devices.items()
        if device
        for dtype in ("fp32", *_ELEMENT_BYTES)
        for target, peak in _target(device, dtype)
    ]
    schema = {
        "device": pl.Int64, "dtype": pl.String, "target_dtype": pl.String, "target_flop_per_s": pl.Float64,
        "vector_flop_per_s": pl.Float64,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def _target(device: Device, dtype: str) -> list[tuple[str, float]]:
    """Return the target type and its tensor-core peak; empty where it is unknown or not faster."""
    own = device.peak_flops(dtype, matrix=True)
    candidates = _NARROWER if dtype == "fp32" else (dtype,)
    peaks = [(name, peak) for name in candidates if (peak := device.peak_flops(name)) is not None]
    faster = [(name, peak) for name, peak in peaks if dtype != "fp32" or (own is not None and peak > own)]
    return faster[:1]


ANALYSES = (Value("tensor_core_misses", misses), Analysis(TENSOR_CORES, tensor_core_table))
