"""Facts about a run that a trace of PyTorch Profiler lacks: `trace_analyzer.capture` writes them into the header.

They stand under one key of the header, as one object. A trace is nobody's friend: of that object only the
fields of `Settings` are read, each with its own type and limits, and everything else in it is passed over.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

HEADER_KEY = "trace_analyzer"
"""Where the facts stand in a trace's header."""

_MAX_TEXT = 120
_MAX_NUMBER = 10**15


def _fact(doc: str, kind: type) -> Any:
    return field(default=None, metadata={"doc": doc, "kind": kind})


@dataclass(frozen=True)
class RunMetadata:
    """What a recording by this package says about itself; null is what it could not tell."""

    measured_step_ms: float | None = _fact("Mean time of a step without the profiler, ms.", float)
    level: str | None = _fact("How much was recorded: `light`, `standard` or `full`.", str)
    torch_version: str | None = _fact("Version of PyTorch.", str)
    python_version: str | None = _fact("Version of Python.", str)
    cuda_version: str | None = _fact("CUDA (or HIP) that PyTorch was built with.", str)
    cudnn_version: int | None = _fact("Version of cuDNN (or MIOpen), as a number.", int)
    driver_version: int | None = _fact("Newest CUDA that the driver can run, as a number: 12080 is 12.8.", int)
    sm_clock_mhz: float | None = _fact("Highest clock of the multiprocessors, MHz.", float)
    memory_clock_mhz: float | None = _fact("Highest clock of the device's memory, MHz.", float)
    memory_bus_bits: int | None = _fact("Width of the bus to the device's memory, bits.", int)
    l2_cache_bytes: int | None = _fact("L2 cache of the device.", int)
    float32_matmul_precision: str | None = _fact("`torch.get_float32_matmul_precision()`.", str)
    tf32_matmul: bool | None = _fact("Whether products of FP32 matrices may use TF32.", bool)
    tf32_cudnn: bool | None = _fact("Whether convolutions of FP32 may use TF32.", bool)
    cudnn_benchmark: bool | None = _fact("Whether cuDNN tries its algorithms and keeps the fastest.", bool)
    deterministic: bool | None = _fact("Whether only deterministic algorithms are allowed.", bool)
    autocast_dtype: str | None = _fact(
        "Type that autocast computed in, where it was seen to be on; null does not mean that it was off.", str
    )
    allocator: str | None = _fact("Allocator of device memory: `native` or `cudaMallocAsync`.", str)
    allocator_settings: str | None = _fact("`PYTORCH_CUDA_ALLOC_CONF` (or `PYTORCH_ALLOC_CONF`).", str)
    cpu_threads: int | None = _fact("Threads that an operator may use on the CPU.", int)


def settings_of(value: object) -> RunMetadata | None:
    """The facts in a header's entry; None when there is no entry, a field null when it is not what it must be."""
    if not isinstance(value, Mapping):
        return None
    return RunMetadata(
        **{entry.name: _typed(value.get(entry.name), entry.metadata["kind"]) for entry in fields(RunMetadata)}
    )


def _typed(value: object, kind: type) -> Any:
    """``value`` as ``kind``, or None. Numbers come as numbers or as their digits."""
    if kind is bool:
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if kind is str:
        return "".join(c if c.isprintable() else "\ufffd" for c in str(value)[:_MAX_TEXT]) or None
    try:
        number = float(str(value)[:_MAX_TEXT])
    except ValueError:
        return None
    if not (math.isfinite(number) and 0 < number < _MAX_NUMBER):
        return None
    return number if kind is float else int(number) or None
