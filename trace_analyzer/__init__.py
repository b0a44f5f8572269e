"""Why is this PyTorch program slow? Reads traces of PyTorch Profiler and tells, with evidence.

>>> import trace_analyzer as ta
>>> report = ta.analyze("trace.json.gz")      # a path, bytes, a file, or a finished torch.profiler.profile
>>> report.verdict.regime
'overhead-bound'

Importing the package loads none of torch, polars, bokeh or holoviews; they are loaded when needed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trace_analyzer.errors import InputError, InputTooLarge, NotATrace, TraceAnalyzerError, UsageError
    from trace_analyzer.report import Report

__all__ = [
    "InputError",
    "InputTooLarge",
    "NotATrace",
    "Report",
    "TraceAnalyzerError",
    "UsageError",
    "__version__",
    "analyze",
]

_HOMES = {
    **dict.fromkeys(
        ("InputError", "InputTooLarge", "NotATrace", "TraceAnalyzerError", "UsageError"), "trace_analyzer.errors"
    ),
    "Report": "trace_analyzer.report",
}


def analyze(source: Any, **options: Any) -> "Report":
    """Analyse a trace, or a finished ``torch.profiler.profile``.

    ``options`` are those of `trace_analyzer.pipeline.analyze`: device, step, gpu, peak_tflops,
    peak_gbps, max_bytes, progress. Raises ``InputError`` for input that is no readable trace, ``UsageError`` for a
    device, step or GPU that does not exist.
    """
    if hasattr(source, "export_chrome_trace"):
        from trace_analyzer.capture import analyze_profile

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
