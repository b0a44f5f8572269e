"""``python -m trace_analyzer``: the command `analyze`."""

from trace_analyzer.cli import run

run()
