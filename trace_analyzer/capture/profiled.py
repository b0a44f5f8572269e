"""Analyze a finished profile."""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from trace_analyzer.capture import facts
from trace_analyzer.capture.export import FinishedProfile, export
from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report


def analyze_profile(profile: FinishedProfile, **options: Any) -> Report:
    """Analyze a finished profile, after its ``with`` block or in ``on_trace_ready``.

    ``options`` are those of `trace_analyzer.pipeline.analyze`. The trace is exported to a temporary file, which is
    deleted afterwards. Raises the error of ``export_chrome_trace`` when the profile is not finished.
    """
    with tempfile.TemporaryDirectory(prefix="trace-analyzer-") as folder:
        known = facts.settings() if "torch" in sys.modules else None
        report = analyze(export(profile, Path(folder, "trace.json"), known), **options)
    return replace(report, trace=replace(report.trace, path="torch.profiler.profile"))
