"""Record traces: code that runs in, or next to, the profiled program.

torch is imported only in this package, and only inside functions: trace_analyzer works without it.

- `session`: ``with trace_analyzer.profile(...)``, the profiler set up and timed; ``%%analyze`` in notebooks
- `handler`: ``on_trace_ready=trace_analyzer.trace_handler(...)``, for a profiler that somebody else set up
- `facts`: a finished profile becomes a file, with facts on its process in the header
- `profiled`: the report of a finished profile, and what-if on any source
- `record`: ``analyze record``, a script under the profiler without a change
- `calibrate`: ``analyze calibrate``, what this machine's device can do
"""

BUDGET_S = 60.0
"""Longest time of `calibrate` by default, s."""
