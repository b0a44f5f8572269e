"""Run the command `analyze` as ``python -m trace_analyzer``."""

from trace_analyzer.cli import run

run()
