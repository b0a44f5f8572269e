"""Read traces of PyTorch Profiler and explain, with evidence, why a PyTorch program is slow.

>>> import trace_analyzer as ta
>>> report = ta.analyze("trace.json.gz")      # a path, bytes, a file, or a finished torch.profiler.profile
>>> report.verdict.regime
'overhead-bound'

>>> with ta.profile(steps=6) as profiler:                           # needs torch; so does the next
...     for batch in loader:
...         train_step(batch)
...         profiler.step()
>>> profiler.report.verdict.headline
>>> torch.profiler.profile(..., on_trace_ready=ta.trace_handler("traces"))

>>> ta.whatif("trace.json.gz", no_sync=True).predicted              # an estimate of the step, with an interval

In a notebook a report, its plots and its tables show themselves; ``%load_ext trace_analyzer`` adds ``%%analyze``, which
profiles a cell. Importing the package loads none of torch, polars, bokeh or holoviews; they are loaded when needed.
"""

from typing import TYPE_CHECKING, Any

import trace_analyzer.forks  # noqa: F401 (it watches for forks from here on)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trace_analyzer.capture.handler import trace_handler
    from trace_analyzer.capture.profiled import whatif
    from trace_analyzer.capture.session import profile
    from trace_analyzer.compare.api import compare, scaling
    from trace_analyzer.compare.comparison import Comparison
    from trace_analyzer.compare.scaling import Scaling
    from trace_analyzer.errors import InputError, InputTooLarge, NotATrace, TraceAnalyzerError, UsageError
    from trace_analyzer.explain.explanation import Explanation
    from trace_analyzer.ingest import Progress
    from trace_analyzer.ranks.api import analyze_ranks
    from trace_analyzer.ranks.job import JobReport
    from trace_analyzer.replay.whatif import WhatIf
    from trace_analyzer.report import Report
    from trace_analyzer.report_schema import json_schema

__all__ = [
    "Comparison",
    "Explanation",
    "InputError",
    "InputTooLarge",
    "JobReport",
    "NotATrace",
    "Report",
    "Scaling",
    "TraceAnalyzerError",
    "UsageError",
    "WhatIf",
    "__version__",
    "analyze",
    "analyze_ranks",
    "compare",
    "json_schema",
    "profile",
    "scaling",
    "trace_handler",
    "whatif",
]

_HOMES = {
    **dict.fromkeys(
        ("InputError", "InputTooLarge", "NotATrace", "TraceAnalyzerError", "UsageError"), "trace_analyzer.errors"
    ),
    "Comparison": "trace_analyzer.compare.comparison",
    "Explanation": "trace_analyzer.explain.explanation",
    "Report": "trace_analyzer.report",
    "json_schema": "trace_analyzer.report_schema",
    "Scaling": "trace_analyzer.compare.scaling",
    "compare": "trace_analyzer.compare.api",
    "scaling": "trace_analyzer.compare.api",
    "WhatIf": "trace_analyzer.replay.whatif",
    "JobReport": "trace_analyzer.ranks.job",
    "analyze_ranks": "trace_analyzer.ranks.api",
    "profile": "trace_analyzer.capture.session",
    "trace_handler": "trace_analyzer.capture.handler",
    "whatif": "trace_analyzer.capture.profiled",
}


def analyze(
    source: Any,
    *,
    device: int | str | None = None,
    step: int | str = "steady",
    gpu: str | None = None,
    peak_tflops: "Mapping[str, float] | None" = None,
    peak_gbps: float | None = None,
    measured_step_ms: float | None = None,
    calibration: "str | Path | None" = None,
    capture: Any = None,
    max_bytes: int = 16 << 30,
    progress: "Progress | None" = None,
) -> "Report":
    """Analyse a trace, or a finished ``torch.profiler.profile``.

    Parameters
    ----------
    source: a path, ``"-"`` for standard input, bytes, a binary file, or a finished profile.
    device: the device to judge, by the file's id; the one with most busy time by default.
    step: ``"steady"``, ``"all"`` (the whole trace) or a step's index: what the verdict is about.
    gpu: name of a device of the catalogue, instead of the one in the file.
    peak_tflops: dtype -> dense peak in TFLOP/s, instead of the catalogue's; key ``""`` is for all.
    peak_gbps: memory bandwidth in GB/s, instead of the catalogue's.
    measured_step_ms: time of a step without the profiler, ms.
    calibration: file of ``analyze calibrate``, or ``"none"``; by default the user's own for such a device.
    capture: a second trace of the program, eager or of the capture of its graphs: what graphs replay takes operators, modules and shapes from it.
    max_bytes: limit on the decompressed size of the source.
    progress: called with (stage, fraction or None).

    Raises ``InputError`` for input that is no readable trace, ``UsageError`` for a device, step or GPU that does not exist.
    """
    options: dict[str, Any] = {
        "device": device, "step": step, "gpu": gpu, "peak_tflops": peak_tflops, "peak_gbps": peak_gbps,
        "measured_step_ms": measured_step_ms, "calibration": calibration, "capture": capture, "max_bytes": max_bytes,
        "progress": progress,
    }  # fmt: skip
    if hasattr(source, "export_chrome_trace"):
        from trace_analyzer.capture.profiled import analyze_profile

        return analyze_profile(source, **options)
    from trace_analyzer.pipeline import analyze

    return analyze(source, **options)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    if name == "__version__":
        from trace_analyzer.version import tool_version

        return tool_version()
    raise AttributeError(f"module 'trace_analyzer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic ``%%analyze`` to IPython: ``%load_ext trace_analyzer`` calls this."""
    from trace_analyzer.capture.session import register_magic

    register_magic(shell)
