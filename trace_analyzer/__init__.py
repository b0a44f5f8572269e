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

from typing import TYPE_CHECKING, Any, Unpack

import trace_analyzer.forks  # noqa: F401 (it watches for forks from here on)
from trace_analyzer.options import Choices, Options, takes_options_of

if TYPE_CHECKING:
    from trace_analyzer.allocator import Memory
    from trace_analyzer.allocator.answer import memory
    from trace_analyzer.capture.handler import trace_handler
    from trace_analyzer.capture.profiled import whatif
    from trace_analyzer.capture.session import profile
    from trace_analyzer.compare.comparison import Comparison
    from trace_analyzer.compare.decomposition import compare
    from trace_analyzer.compare.scaling import Scaling, scaling
    from trace_analyzer.errors import InputError, InputTooLarge, NotATrace, TraceAnalyzerError, UsageError
    from trace_analyzer.explain import Explanation
    from trace_analyzer.ingest import Progress
    from trace_analyzer.ranks.job import JobReport, analyze_ranks
    from trace_analyzer.registry import json_schema
    from trace_analyzer.replay.whatif import WhatIf
    from trace_analyzer.report import Report

__all__ = [
    "Comparison", "Explanation", "InputError", "InputTooLarge", "JobReport", "Memory", "NotATrace", "Report",
    "Scaling", "TraceAnalyzerError", "UsageError", "WhatIf", "__version__", "analyze", "analyze_ranks",
    "compare", "json_schema", "memory", "profile", "scaling", "trace_handler", "whatif",
]  # fmt: skip

_HOMES = {
    **dict.fromkeys(
        ("InputError", "InputTooLarge", "NotATrace", "TraceAnalyzerError", "UsageError"), "trace_analyzer.errors"
    ),
    "Comparison": "trace_analyzer.compare.comparison",
    "Explanation": "trace_analyzer.explain",
    "Report": "trace_analyzer.report",
    "json_schema": "trace_analyzer.registry",
    "Scaling": "trace_analyzer.compare.scaling",
    "compare": "trace_analyzer.compare.decomposition",
    "scaling": "trace_analyzer.compare.scaling",
    "WhatIf": "trace_analyzer.replay.whatif",
    "JobReport": "trace_analyzer.ranks.job",
    "Memory": "trace_analyzer.allocator",
    "memory": "trace_analyzer.allocator.answer",
    "analyze_ranks": "trace_analyzer.ranks.job",
    "profile": "trace_analyzer.capture.session",
    "trace_handler": "trace_analyzer.capture.handler",
    "whatif": "trace_analyzer.capture.profiled",
}


@takes_options_of(Options)
def analyze(source: Any, *, progress: "Progress | None" = None, **options: Unpack[Choices]) -> "Report":
    """Analyse a trace, or a finished ``torch.profiler.profile``.

    Parameters
    ----------
    source: a path, ``"-"`` for standard input, bytes, a binary file, or a finished profile.
    progress: called with (stage, fraction or None).
    options: the device, the step, peaks, a calibration ...: those of `trace_analyzer.options.Options`.

    Raises ``InputError`` for input that is no readable trace, ``UsageError`` for a device, step or GPU that does not exist.
    """
    if hasattr(source, "export_chrome_trace"):
        from trace_analyzer.capture.profiled import analyze_profile

        return analyze_profile(source, progress=progress, **options)
    from trace_analyzer.pipeline import analyze

    return analyze(source, progress=progress, **options)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    if name == "__version__":
        from trace_analyzer.installation import tool_version

        return tool_version()
    from trace_analyzer.errors import did_you_mean

    raise AttributeError(f"module 'trace_analyzer' has no attribute {name!r}{did_you_mean(name, __all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic ``%%analyze`` to IPython: ``%load_ext trace_analyzer`` calls this."""
    from trace_analyzer.capture.session import register_magic

    register_magic(shell)
