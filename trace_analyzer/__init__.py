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

Importing the package loads none of torch, polars, bokeh or holoviews; they are loaded when needed.
"""

from typing import TYPE_CHECKING, Any

import trace_analyzer.forks  # noqa: F401 (it watches for forks from here on)

if TYPE_CHECKING:
    from trace_analyzer.capture.handler import trace_handler
    from trace_analyzer.capture.session import profile
    from trace_analyzer.compare.api import compare, scaling
    from trace_analyzer.compare.comparison import Comparison
    from trace_analyzer.compare.scaling import Scaling
    from trace_analyzer.errors import InputError, InputTooLarge, NotATrace, TraceAnalyzerError, UsageError
    from trace_analyzer.ranks.api import analyze_ranks
    from trace_analyzer.ranks.job import JobReport
    from trace_analyzer.replay.whatif import WhatIf
    from trace_analyzer.report import Report
    from trace_analyzer.report_schema import json_schema

__all__ = [
    "Comparison",
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
}


def analyze(source: Any, **options: Any) -> "Report":
    """Analyse a trace, or a finished ``torch.profiler.profile``.

    ``options`` are those of `trace_analyzer.pipeline.analyze`: device, step, gpu, peak_tflops,
    peak_gbps, measured_step_ms, max_bytes, progress. Raises ``InputError`` for input that is no readable trace, ``UsageError`` for a
    device, step or GPU that does not exist.
    """
    if hasattr(source, "export_chrome_trace"):
        from trace_analyzer.capture.profiled import analyze_profile

        return analyze_profile(source, **options)
    from trace_analyzer.pipeline import analyze

    return analyze(source, **options)


def whatif(source: Any, *, speedup: Any = None, device: Any = None, **changes: Any) -> "WhatIf":
    """Estimate what changes would bring to the steps of a trace, of a finished profile or of a `Report`.

    ``changes`` are no_sync, pinned, prefetch (workers), graphs, fuse, tf32, bf16, batch (factor) and warm; ``speedup`` maps
    what gets faster to how many times: ``{"matmul": 2}``. Without any, the result holds an estimate for each standard
    change. Raises ``InputError`` for input that is no readable trace, ``UsageError`` for changes that make no sense.
    """
    from trace_analyzer.errors import UsageError
    from trace_analyzer.replay.whatif import changes_of
    from trace_analyzer.replay.whatif import whatif as estimated
    from trace_analyzer.report import Report

    asked = changes_of(speedup=speedup, **changes)
    if isinstance(source, Report):
        if device is not None and device != source.verdict.device:
            raise UsageError("a report is of one device; analyse the trace again for another")
        return estimated(source, asked)
    return estimated(analyze(source, device=device), asked)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    if name == "__version__":
        from trace_analyzer.version import tool_version

        return tool_version()
    raise AttributeError(f"module 'trace_analyzer' has no attribute {name!r}")
