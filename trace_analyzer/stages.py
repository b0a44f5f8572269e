"""Measure this program's own time and memory through a progress callback.

>>> timer = StageTimer()
>>> report = analyze("trace.json.gz", progress=timer)
>>> print(timer.table())
"""

import sys
import time
from collections.abc import Callable
from typing import Self

from trace_analyzer.tuning import dataclass

Clock = Callable[[], float]


@dataclass(frozen=True)
class StageTiming:
    """Hold a stage of a run: wall and CPU seconds (of all threads), and the process's peak memory at its end.

    ``peak_bytes`` is None where the system does not report it.
    """

    name: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int | None

    def __add__(self, later: Self) -> "StageTiming":
        """Return the stage and a later part of it as one."""
        return StageTiming(
            self.name, self.seconds + later.seconds, self.cpu_seconds + later.cpu_seconds, later.peak_bytes
        )


class StageTimer:
    """Time the stages as a progress callback (stage, fraction or None); a repeated stage accumulates.

    The stage ``first`` lasts from the timer's creation to the first call.
    """

    def __init__(
        self, first: str = "starting", *, wall: Clock = time.perf_counter, cpu: Clock = time.process_time
    ) -> None:
        self._wall, self._cpu = wall, cpu
        self._done: dict[str, StageTiming] = {}
        self._name, self._since = first, (wall(), cpu())

    def __call__(self, stage: str, fraction: float | None = None) -> None:
        """Start a stage."""
        if stage != self._name:
            self._close()
            self._name = stage

    def stages(self) -> tuple[StageTiming, ...]:
        """Return all stages so far, in order of their first start."""
        self._close()
        return tuple(self._done.values())

    def table(self) -> str:
        """Return the stages and their sum as lines of text."""
        stages = self.stages()
        whole = StageTiming(
            "all", sum(s.seconds for s in stages), sum(s.cpu_seconds for s in stages), stages[-1].peak_bytes
        )
        rows = [
            (stage.name, f"{stage.seconds:.2f}", f"{stage.cpu_seconds:.2f}", _megabytes(stage.peak_bytes))
            for stage in (*stages, whole)
        ]
        cells = [("stage", "seconds", "CPU seconds", "peak memory"), *rows]
        width = max(len(name) for name, *_ in cells)
        return "\n".join(f"{name:<{width}}" + "".join(f"{cell:>13}" for cell in rest) for name, *rest in cells)

    def _close(self) -> None:
        now = self._wall(), self._cpu()
        part = StageTiming(self._name, now[0] - self._since[0], now[1] - self._since[1], peak_bytes())
        known = self._done.get(self._name)
        self._done[self._name] = part if known is None else known + part
        self._since = now


def peak_bytes() -> int | None:
    """Return the peak memory of this process; None on Windows, which does not report it."""
    try:
        import resource
    except ImportError:
        return None
    # ru_maxrss is in KiB on Linux and in bytes on macOS (getrusage(2)).
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _megabytes(size: int | None) -> str:
    return "–" if size is None else f"{size / 1e6:,.0f} MB"
