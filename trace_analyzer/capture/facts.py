"""Collect facts on this process for a trace: versions, clocks, numeric modes, ranks."""

import os
import platform
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from trace_analyzer.capture import watch
from trace_analyzer.run_metadata import RunMetadata, settings_of

T = TypeVar("T")


def settings(
    level: str | None = None, measured_step_ms: float | None = None, autocast_dtype: str | None = None
) -> RunMetadata:
    """Return all facts on this process; null where its torch does not provide one.

    Flags have their present values. They are modes of the process, except autocast, which has regions: without
    ``autocast_dtype``, it is known only if this is called within one.
    """
    import torch

    facts: dict[str, Any] = {
        "level": level,
        "measured_step_ms": measured_step_ms,
        "torch_version": torch.__version__,
        "python_version": platform.python_version(),
        "cuda_version": torch.version.cuda or getattr(torch.version, "hip", None),
        "cudnn_version": _asked(torch.backends.cudnn.version),
        "float32_matmul_precision": _asked(torch.get_float32_matmul_precision),
        "tf32_matmul": _asked(lambda: torch.backends.cuda.matmul.allow_tf32),
        "tf32_cudnn": _asked(lambda: torch.backends.cudnn.allow_tf32),
        "cudnn_benchmark": _asked(lambda: torch.backends.cudnn.benchmark),
        "deterministic": _asked(torch.are_deterministic_algorithms_enabled),
        "autocast_dtype": autocast_dtype or watch.autocast_dtype("cuda", "xpu", "cpu"),
        "allocator_settings": os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF"),
        "cpu_threads": torch.get_num_threads(),
        **_of_device(torch),
    }
    return settings_of(facts) or RunMetadata()


def _of_device(torch: Any) -> Mapping[str, Any]:
    """Return facts on the current CUDA or HIP device; empty where it is missing or was never used."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return {}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    khz = {name: getattr(properties, name, None) for name in ("clock_rate", "memory_clock_rate")}
    return {
        "driver_version": _asked(lambda: torch._C._cuda_getDriverVersion()),
        "sm_clock_mhz": khz["clock_rate"] and khz["clock_rate"] / 1e3,
        "memory_clock_mhz": khz["memory_clock_rate"] and khz["memory_clock_rate"] / 1e3,
        "memory_bus_bits": getattr(properties, "memory_bus_width", None),
        "l2_cache_bytes": getattr(properties, "L2_cache_size", None),
        "allocator": _asked(torch.cuda.get_allocator_backend),
    }


def _asked(question: Callable[[], T]) -> T | None:
    """Return the answer, or None: builds of torch differ, and a fact must not fail the training."""
    try:
        return question()
    except Exception:
        return None


def synchronize() -> None:
    """Wait until the current accelerator is idle; do nothing on a machine without one."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif hasattr(torch, "xpu") and torch.xpu.is_available():
        torch.xpu.synchronize()


def world_size() -> int:
    """Return the number of processes of the job."""
    import torch

    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    ranks = os.environ.get("WORLD_SIZE", "")
    return int(ranks) if ranks.isdecimal() else 1


def rank() -> int | None:
    """Return this process's rank in its job; None when it is alone."""
    import torch

    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank() if distributed.get_world_size() > 1 else None
    number, ranks = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return int(number) if number.isdecimal() and ranks.isdecimal() and int(ranks) > 1 else None
