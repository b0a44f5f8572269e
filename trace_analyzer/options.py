"""Define the options of an analysis."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trace_analyzer.errors import UsageError

_LONGEST_STEP_MS = 1e9  # Eleven days.


@dataclass(frozen=True)
class Options:
    """Hold the caller's options; `trace_analyzer.pipeline.analyze` documents them."""

    device: int | str | None = None
    step: int | str = "steady"
    gpu: str | None = None
    peak_tflops: Mapping[str, float] | None = None
    peak_gbps: float | None = None
    measured_step_ms: float | None = None
    calibration: str | Path | None = None

    def __post_init__(self) -> None:
        """Refuse an invalid step time. Raises ``UsageError``."""
        if self.measured_step_ms is not None and not 0 < self.measured_step_ms <= _LONGEST_STEP_MS:
            raise UsageError(
                f"measured_step_ms={self.measured_step_ms!r}: must be over 0, at most {_LONGEST_STEP_MS:g}"
            )
