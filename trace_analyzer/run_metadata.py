"""Read facts about a run that `trace_analyzer.capture` wrote into a trace's header.

They are one object under one key of the header. The trace is not trusted: only the fields of `RunMetadata` are read,
each with its own type and limits; everything else in the object is ignored.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

HEADER_KEY = "trace_analyzer"
"""Key of the facts in a trace's header."""

_MAX_TEXT = 120
_MAX_NUMBER = 10**15


@dataclass(frozen=True)
class RunMetadata:
    """The facts that a recording by this package states about itself; null where unknown."""

    measured_step_ms: Annotated[float | None, "Mean time of a step without the profiler, ms."] = None
    level: Annotated[str | None, "How much was recorded: `light`, `standard` or `full`."] = None
    torch_version: Annotated[str | None, "Version of PyTorch."] = None
    python_version: Annotated[str | None, "Version of Python."] = None
    cuda_version: Annotated[str | None, "CUDA (or HIP) that PyTorch was built with."] = None
    cudnn_version: Annotated[int | None, "Version of cuDNN (or MIOpen), as a number."] = None
    driver_version: Annotated[int | None, "Newest CUDA that the driver can run, as a number: 12080 is 12.8."] = None
    sm_clock_mhz: Annotated[float | None, "Highest clock of the multiprocessors, MHz."] = None
    memory_clock_mhz: Annotated[float | None, "Highest clock of the device's memory, MHz."] = None
    memory_bus_bits: Annotated[int | None, "Width of the bus to the device's memory, bits."] = None
    l2_cache_bytes: Annotated[int | None, "L2 cache of the device."] = None
    float32_matmul_precision: Annotated[str | None, "`torch.get_float32_matmul_precision()`."] = None
    tf32_matmul: Annotated[bool | None, "Whether matmuls of FP32 matrices may use TF32."] = None
    tf32_cudnn: Annotated[bool | None, "Whether convolutions of FP32 may use TF32."] = None
    cudnn_benchmark: Annotated[bool | None, "Whether cuDNN tries its algorithms and keeps the fastest."] = None
    deterministic: Annotated[bool | None, "Whether only deterministic algorithms are allowed."] = None
    autocast_dtype: Annotated[
        str | None, "Type that autocast computed in, where it was seen to be on; null does not mean that it was off."
    ] = None
    allocator: Annotated[str | None, "Allocator of device memory: `native` or `cudaMallocAsync`."] = None
    allocator_settings: Annotated[str | None, "`PYTORCH_CUDA_ALLOC_CONF` (or `PYTORCH_ALLOC_CONF`)."] = None
    cpu_threads: Annotated[int | None, "Threads that an operator may use on the CPU."] = None


def settings_of(value: object) -> RunMetadata | None:
    """Return the facts in a header's entry; None without an entry.

    A field with an invalid value is null.
    """
    if not isinstance(value, Mapping):
        return None
    return RunMetadata(**{name: _typed(value.get(name), kind) for name, kind in _kinds().items()})


@cache
def _kinds() -> dict[str, type]:
    """Return the type of each field, without None, by name."""
    hints = get_type_hints(RunMetadata)
    return {field.name: get_args(hints[field.name])[0] for field in fields(RunMetadata)}


def _typed(value: object, kind: type) -> Any:
    """Return ``value`` as ``kind``, or None. Numbers may be given as strings of digits."""
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
