"""Measure what this machine's device attains, with torch, for ``analyze calibrate``.

Every rate is the best of several timed batches: what disturbs a batch only makes it slower.
"""

import os
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from trace_analyzer.capture.facts import synchronize
from trace_analyzer.catalog.calibration import Calibration, CopyRate, MatmulRate, SweepPoint
from trace_analyzer.errors import UsageError

Progress = Callable[[str, float | None], None]

_BATCHES = 5
_BATCH_S = {False: 0.05, True: 0.01}
"""Least time of a batch, full and quick: far above the resolution of the clock and a launch's latency."""
_COPY_BYTES = {
    ("cpu", True): (1 << 16, 1 << 20, 1 << 24, 1 << 26),
    ("cpu", False): tuple(1 << n for n in range(14, 29, 2)),
    ("device", True): (1 << 20, 1 << 24, 1 << 28),
    ("device", False): tuple(1 << n for n in range(14, 31, 2)),
}
_MATMUL_SIZES = {
    ("cpu", True): (128, 512),
    ("cpu", False): (64, 128, 256, 512, 1024, 2048),
    ("device", True): (1024, 4096),
    ("device", False): (256, 512, 1024, 2048, 4096, 8192),
}
_REPEATS = {True: (1, 16, 128), False: (1, 2, 4, 8, 16, 32, 64, 128, 256)}
_SLOWEST_S = 2.0
"""A product that takes longer ends its dtype: some CPUs emulate narrow types."""


def calibrate(
    kind: str | None = None, *, quick: bool = False, sweep: bool = True, progress: Progress | None = None
) -> Calibration:
    """Measure the device (``cuda``, ``xpu`` or ``cpu``; by default the first of them that there is).

    ``quick`` takes fewer sizes and shorter batches. ``sweep=False`` leaves out the repeat sweep, which
    compiles. Raises ``UsageError`` when there is no torch or no such device.
    """
    try:
        import torch
    except ImportError:
        raise UsageError("calibrating needs torch: pip install torch") from None
    kinds = [name for name in ("cuda", "xpu") if hasattr(torch, name) and getattr(torch, name).is_available()]
    kind = kind or (kinds[0] if kinds else "cpu")
    if kind not in (*kinds, "cpu"):
        raise UsageError(f"torch finds no device of kind {kind}: choose from {', '.join([*kinds, 'cpu'])}")
    tell = progress or (lambda stage, fraction: None)
    bench = _Bench(torch, kind, quick)
    with torch.inference_mode():
        tell("measuring copies", None)
        copies = tuple(bench.copies())
        tell("measuring matrix products", None)
        matmuls = tuple(bench.matmuls())
        tell("measuring launches", None)
        overhead, latency = bench.launch_overhead_ns(), bench.launch_latency_ns()
        points: tuple[SweepPoint, ...] = ()
        failure = None if sweep else "left out"
        if sweep:
            tell("measuring the sweep from memory- to compute-bound (compiles)", None)
            try:
                points = tuple(bench.sweep())
            except Exception as error:  # no compiler, or one that fails: the other figures stand by themselves
                failure = f"torch.compile failed: {(str(error).strip() or type(error).__name__).splitlines()[0][:200]}"
    return Calibration(
        **_identity(torch, kind),
        torch_version=torch.__version__,
        quick=quick,
        copies=copies,
        matmuls=matmuls,
        sweep=points,
        sweep_failure=failure,
        launch_overhead_ns=overhead,
        launch_latency_ns=latency,
    )


def _identity(torch: Any, kind: str) -> dict[str, Any]:
    """Return the device as a trace's header describes it."""
    if kind == "cpu":
        return {"name": _cpu_name(), "kind": kind, "sm_count": os.cpu_count()}
    properties = getattr(torch, kind).get_device_properties(0)
    major = getattr(properties, "major", None)
    return {
        "name": properties.name,
        "kind": kind,
        "sm_count": getattr(properties, "multi_processor_count", None),
        "memory_bytes": properties.total_memory,
        "compute_capability": None if major is None else f"{major}.{properties.minor}",
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, (*names, platform.processor(), platform.machine())), "CPU")


class _Bench:
    """Run the measurements on one device."""

    def __init__(self, torch: Any, kind: str, quick: bool) -> None:
        self.torch, self.kind, self.quick = torch, kind, quick
        self.sizes = ("cpu" if kind == "cpu" else "device", quick)

    def copies(self) -> Iterator[CopyRate]:
        """Time copies from small to large; each byte is read and written once."""
        for size in _COPY_BYTES[self.sizes]:
            source = self.torch.zeros(size, dtype=self.torch.uint8, device=self.kind)
            target = self.torch.empty_like(source)
            seconds = self._seconds(partial(target.copy_, source))
            yield CopyRate(size, 2 * size / seconds / 1e9)

    def matmuls(self) -> Iterator[MatmulRate]:
        """Time products of square matrices, 2 n^3 FLOP each."""
        for dtype, of, tf32 in self._dtypes():
            for size in _MATMUL_SIZES[self.sizes]:
                seconds = self._matmul_s(of, size, tf32)
                if seconds is None:
                    break
                yield MatmulRate(dtype, size, 2 * size**3 / seconds / 1e12)
                if seconds > _SLOWEST_S:
                    break

    def _dtypes(self) -> list[tuple[str, Any, bool]]:
        """Return name, torch dtype and whether TF32 is allowed, for each type to measure."""
        torch = self.torch
        kinds = [("fp64", torch.float64, False), ("fp32", torch.float32, False), ("bf16", torch.bfloat16, False)]
        if self.kind == "cpu":
            return kinds
        tf32 = [("tf32", torch.float32, True)] if self.kind == "cuda" and not torch.version.hip else []
        return [*kinds, *tf32, ("fp16", torch.float16, False)]

    def _matmul_s(self, dtype: Any, size: int, tf32: bool) -> float | None:
        """Return the seconds of one product; None when the device lacks the type or the memory."""
        torch = self.torch
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        try:
            left = torch.randn(size, size, device=self.kind).to(dtype)
            out = torch.empty_like(left)
            return self._seconds(lambda: torch.mm(left, left, out=out))
        except RuntimeError:
            return None
        finally:
            torch.set_float32_matmul_precision(before)

    def launch_overhead_ns(self) -> float:
        """Measure the CPU time of one operator on one element, few enough in a row that no queue fills up."""
        element = self.torch.zeros(1, device=self.kind)
        count, best = 200, float("inf")
        for _ in range(_BATCHES * 4):
            synchronize()
            start = time.perf_counter_ns()
            for _ in range(count):
                element.add_(1)
            best = min(best, (time.perf_counter_ns() - start) / count)
        synchronize()
        return best

    def launch_latency_ns(self) -> int | None:
        """Measure the median time from a launch's end to its kernel's start on an idle device."""
        if self.kind == "cpu":
            return None
        from trace_analyzer.capture.profiled import analyze_profile

        element = self.torch.zeros(1, device=self.kind)
        with self.torch.profiler.profile() as profiler:
            for _ in range(100):
                element.add_(1)
                synchronize()
        devices = analyze_profile(profiler, step="all").devices
        return devices[0].run_ahead.launch_lead_ns.p50 if devices else None

    def sweep(self) -> Iterator[SweepPoint]:
        """Run the article's experiment: more and more arithmetic per element that is read and written once."""
        os.environ.setdefault(
            "TORCHINDUCTOR_COMPILE_THREADS", "1"
        )  # a pool takes longer to start than these to compile
        size = _COPY_BYTES[self.sizes][-1] // 4
        source = self.torch.rand(size, device=self.kind)
        for repeats in _REPEATS[self.quick]:
            chain = self.torch.compile(_chain(repeats), dynamic=False)
            seconds = self._seconds(partial(chain, source))
            yield SweepPoint(repeats, 2 * 4 * size / seconds / 1e9, 2 * repeats * size / seconds / 1e12)

    def _seconds(self, work: Callable[[], object]) -> float:
        """Return the shortest time of the work, as the mean of a batch."""
        for _ in range(2):
            work()
        count, best = 1, float("inf")
        batches = 0
        while batches < _BATCHES:
            synchronize()
            start = time.perf_counter()
            for _ in range(count):
                work()
            synchronize()
            spent = time.perf_counter() - start
            if spent < _BATCH_S[self.quick] and count < 1 << 20:
                count = max(2 * count, min(100 * count, int(count * _BATCH_S[self.quick] / max(spent, 1e-9)) + 1))
                continue
            best = min(best, spent / count)
            batches += 1
        return best


def _chain(repeats: int) -> Callable[[Any], Any]:
    """Apply ``repeats`` multiply-adds that stay between 0 and 1 and that no compiler can fold.

    Each result is used once: torch.compile writes out an expression as often as it is used.
    """

    def chain(x: Any) -> Any:
        for _ in range(repeats):
            x = x * 0.75 + 0.25
        return x

    return chain
