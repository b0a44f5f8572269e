"""What the caller of an analysis may choose."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """What the caller may choose; `trace_analyzer.pipeline.analyze` documents it."""

    device: int | str | None = None
    step: int | str = "steady"
    gpu: str | None = None
    peak_tflops: Mapping[str, float] | None = None
    peak_gbps: float | None = None
    measured_step_ms: float | None = None
    calibration: str | Path | None = None
