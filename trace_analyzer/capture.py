"""The side of the profiler: a finished ``torch.profiler.profile`` becomes a report."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report


class Profile(Protocol):
    """What is needed of ``torch.profiler.profile``."""

    def export_chrome_trace(self, path: str) -> object:
        """Write the trace as Chrome's JSON."""


def analyze_profile(profile: Profile, **options: Any) -> Report:
    """The report of a finished profile (after its ``with`` block, or in ``on_trace_ready``).

    ``options`` are those of `trace_analyzer.pipeline.analyze`. The trace is exported to a temporary file
    that is gone afterwards. Raises what ``export_chrome_trace`` raises when the profile is not finished.
    """
    with tempfile.TemporaryDirectory(prefix="trace-analyzer-") as folder:
        path = os.path.join(folder, "trace.json")
        profile.export_chrome_trace(path)
        report = analyze(Path(path), **options)
    return replace(report, trace=replace(report.trace, path="torch.profiler.profile"))
