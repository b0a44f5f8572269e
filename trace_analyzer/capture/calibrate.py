"""Measure the rates that this machine's device attains, with torch, for ``analyze calibrate``.

Every rate is the best of several timed batches, as disturbances only slow a batch down.
"""

import contextlib
import logging
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import replace

from trace_analyzer import capture, errors, units
from trace_analyzer.capture.facts import synchronize
from trace_analyzer.catalog.calibration import Calibration, CopyRate, MatmulRate, SweepPoint

Progress = Callable[[str, float | None], None]

_BATCHES = 5
_BATCH_S = {False: 0.05, True: 0.01}
"""Least time of a batch, full and quick: far above the clock's resolution and a launch's latency."""
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
_SMALL = 512
"""Largest size of a matmul whose time does not predict that of larger ones, as the call dominates."""
_SLOWEST_S = 2.0
"""Longest time of a matmul: a slower one ends its dtype, as some CPUs emulate narrow types."""


_COPIES_UNTIL, _MATMULS_UNTIL = 0.2, 0.6
"""Shares of the budget at which copies and matmuls end; the sweep, which compiles, gets the rest."""
_SCATTERED = 0.25
"""Largest relative difference between the median and the best batch without a note on disturbance."""
_CPU_FP32_GAIN = 1.3
"""Least ratio of FP32 to FP64 rates of a CPU: vector units have twice as many FP32 lanes, so a lower ratio is
disturbed."""


def calibrate(
    kind: str | None = None,
    *,
    quick: bool = False,
    sweep: bool = True,
    budget_s: float = capture.BUDGET_S,
    progress: Progress | None = None,
) -> Calibration:
    """Measure the device (``cuda``, ``xpu`` or ``cpu``; by default the first that is available).

    ``quick`` uses fewer sizes and shorter batches. ``sweep=False`` leaves out the repeat sweep, which compiles.
    Measurements that would exceed ``budget_s`` in total are left out and listed in ``left_out``; only a running
    compilation may exceed it. Raises ``UsageError`` without torch or such a device.
    """
    try:
        import torch
    except ImportError:
        raise errors.UsageError("calibrating needs torch: pip install torch") from None
    kinds = [name for name in ("cuda", "xpu") if hasattr(torch, name) and getattr(torch, name).is_available()]
    kind = kind or (kinds[0] if kinds else "cpu")
    if kind not in (*kinds, "cpu"):
        raise errors.UsageError(f"torch finds no device of kind {kind}: choose from {', '.join([*kinds, 'cpu'])}")
    bench = _Bench(torch, kind, quick, _Budget(budget_s, progress or (lambda stage, fraction: None)))
    with torch.inference_mode(), _quiet():
        copies = tuple(sorted(bench.copies(), key=lambda copy: copy.bytes))
        matmuls = tuple(bench.matmuls())
        overhead, latency = bench.launch_overhead_ns(), bench.launch_latency_ns()
        points: tuple[SweepPoint, ...] = ()
        failure = None if sweep else "left out"
        if sweep:
            try:
                points = tuple(bench.sweep())
            except Exception as error:  # the compiler is missing or fails; the other figures remain valid
                failure = f"torch.compile failed: {(str(error).strip() or type(error).__name__).splitlines()[0][:200]}"
    calibration = Calibration(
        **_identity(torch, kind),
        torch_version=torch.__version__,
        quick=quick,
        copies=copies,
        matmuls=matmuls,
        sweep=points,
        sweep_failure=failure if points or failure else "the budget left no time for it",
        launch_overhead_ns=overhead,
        launch_latency_ns=latency,
        left_out=tuple(bench.left_out),
    )
    return replace(calibration, doubts=(*bench.doubts, *implausible(calibration)))


def implausible(calibration: Calibration) -> list[str]:
    """Return reasons to distrust rates that contradict properties of all devices of the kind."""
    best = calibration.peak_tflops
    if calibration.kind != "cpu" or not {"fp32", "fp64"} <= best.keys():
        return []
    if best["fp32"] >= _CPU_FP32_GAIN * best["fp64"]:
        return []
    return [
        f"fp32 is hardly faster than fp64 ({best['fp32']:.3g} and {best['fp64']:.3g} TFLOP/s), and a CPU's vector units are"
        " twice as fast: other work ran beside the measurement"
    ]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings and torch's log messages, as recompilation is the purpose of the sweep."""
    loggers = [logging.getLogger(name) for name in ("torch._dynamo", "torch._inductor")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.CRITICAL)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


class _Budget:
    """The time budget and its progress."""

    def __init__(self, seconds: float, progress: Progress) -> None:
        self._seconds, self._progress = seconds, progress
        self._start = time.monotonic()

    def left_s(self, until: float = 1.0) -> float:
        """Return the seconds until a share of the budget has passed."""
        return self._start + until * self._seconds - time.monotonic()

    def tell(self, stage: str) -> None:
        """Report the current measurement."""
        self._progress(stage, min(1.0, max(0.0, 1 - self.left_s() / self._seconds)))


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

    def __init__(self, torch: Any, kind: str, quick: bool, budget: _Budget) -> None:
        self.torch, self.kind, self.quick, self.budget = torch, kind, quick, budget
        self.sizes = ("cpu" if kind == "cpu" else "device", quick)
        self.left_out: list[str] = []
        self.doubts: list[str] = []

    def copies(self) -> Iterator[CopyRate]:
        """Time copies, which read and write each byte once; the largest, which measure the memory, come first."""
        sizes = _COPY_BYTES[self.sizes][::-1]
        for place, size in enumerate(sizes):
            what = f"copies of {units.size(size)}"
            left = self.budget.left_s(_COPIES_UNTIL)
            if self._is_left_out(what, left):
                continue
            source = self.torch.zeros(size, dtype=self.torch.uint8, device=self.kind)
            target = self.torch.empty_like(source)
            seconds = self._seconds(partial(target.copy_, source), what, left / (len(sizes) - place))
            yield CopyRate(size, 2 * size / seconds / 1e9)

    def matmuls(self) -> Iterator[MatmulRate]:
        """Time matmuls of square matrices, 2 n^3 FLOP each."""
        dtypes = self._dtypes()
        for place, (dtype, of, tf32) in enumerate(dtypes):
            share = self.budget.left_s(_MATMULS_UNTIL) / (len(dtypes) - place)
            ends = time.monotonic() + share
            seconds: float | None = 0.0
            for size in _MATMUL_SIZES[self.sizes]:
                what = f"{dtype} matmuls of {size}"
                # A matmul has eight times the work of the previous size: twice for warm-up, and once for measuring.
                left = ends - time.monotonic()
                if self._is_left_out(what, left - 3 * (8 if size > _SMALL else 1) * (seconds or 0.0)):
                    continue
                seconds = self._matmul_s(of, size, tf32, partial(self._seconds, what=what, limit_s=left))
                if seconds is None:
                    break
                yield MatmulRate(dtype, size, 2 * size**3 / seconds / 1e12)
                if seconds > _SLOWEST_S:
                    break

    def _is_left_out(self, what: str, left_s: float) -> bool:
        """Return whether a measurement is left out for lack of time, and record that; else report it as current."""
        if left_s <= 0:
            self.left_out.append(what)
            return True
        self.budget.tell(f"measuring {what}")
        return False

    def _dtypes(self) -> list[tuple[str, Any, bool]]:
        """Return name, torch dtype and whether TF32 is allowed, for each type to measure."""
        torch = self.torch
        kinds = [("fp64", torch.float64, False), ("fp32", torch.float32, False), ("bf16", torch.bfloat16, False)]
        if self.kind == "cpu":
            return kinds
        tf32 = [("tf32", torch.float32, True)] if self.kind == "cuda" and not torch.version.hip else []
        return [*kinds, *tf32, ("fp16", torch.float16, False)]

    def _matmul_s(self, dtype: Any, size: int, tf32: bool, timed: Callable[..., float]) -> float | None:
        """Return the seconds of one matmul; None when the device lacks the type or the memory."""
        torch = self.torch
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        try:
            left = torch.randn(size, size, device=self.kind).to(dtype)
            out = torch.empty_like(left)
            return timed(lambda: torch.mm(left, left, out=out))
        except RuntimeError:
            return None
        finally:
            torch.set_float32_matmul_precision(before)

    def launch_overhead_ns(self) -> float:
        """Measure the CPU time of one operator on one element, in runs short enough not to fill the queue."""
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
        """Run the article's experiment: increase the arithmetic per element, which is read and written once."""
        os.environ.setdefault(
            "TORCHINDUCTOR_COMPILE_THREADS", "1"
        )  # starting a pool takes longer than these compilations
        size = _COPY_BYTES[self.sizes][-1] // 4
        source = self.torch.rand(size, device=self.kind)
        took = 0.0
        for repeats in _REPEATS[self.quick]:
            what = f"{repeats} multiply-adds per element (compiles)"
            if self._is_left_out(what, self.budget.left_s() - took):
                continue
            start = time.monotonic()
            self.torch.compiler.reset()  # each chain is separate code, so dropping the old code causes no recompilation
            chain = self.torch.compile(_chain(repeats), dynamic=False)
            seconds = self._seconds(partial(chain, source), what, max(1.0, self.budget.left_s()))
            took = time.monotonic() - start
            yield SweepPoint(repeats, 2 * 4 * size / seconds / 1e9, 2 * repeats * size / seconds / 1e12)

    def _seconds(self, work: Callable[[], object], what: str, limit_s: float = capture.BUDGET_S) -> float:
        """Return the shortest mean time of the work over several batches; note large differences between batches.

        No further batch begins after ``limit_s``.
        """
        ends = time.monotonic() + limit_s
        for _ in range(2):
            work()
        count = 1
        batches: list[float] = []
        while len(batches) < _BATCHES and (not batches or time.monotonic() < ends):
            synchronize()
            start = time.perf_counter()
            for _ in range(count):
                work()
            synchronize()
            spent = time.perf_counter() - start
            if spent < _BATCH_S[self.quick] and count < 1 << 20 and time.monotonic() < ends:
                count = max(2 * count, min(100 * count, int(count * _BATCH_S[self.quick] / max(spent, 1e-9)) + 1))
                continue
            batches.append(spent / count)
        if (more := median(batches) / min(batches) - 1) > _SCATTERED:
            self.doubts.append(f"{what}: the median batch took {units.percent(more)} longer than the best one")
        return min(batches)


def _chain(repeats: int) -> Callable[[Any], Any]:
    """Apply ``repeats`` multiply-adds that stay between 0 and 1 and that compilers cannot fold.

    Each result is used once, as torch.compile duplicates an expression for each use.
    """

    def chain(x: Any) -> Any:
        for _ in range(repeats):
            x = x * 0.75 + 0.25
        return x

    return chain
