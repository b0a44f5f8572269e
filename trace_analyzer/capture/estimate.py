"""Estimate the effect of changes on any source: a trace, a finished profile, or a report."""

from typing import Any

from trace_analyzer import analyze
from trace_analyzer.errors import UsageError
from trace_analyzer.replay import whatif as replayed
from trace_analyzer.report import Report
from trace_analyzer.signatures import takes_options_of


@takes_options_of(replayed.changes_of)
def whatif(source: Any, *, device: int | str | None = None, **changes: Any) -> replayed.WhatIf:
    """Estimate the effect of changes on the steps of a trace, of a finished profile or of a `Report`.

    ``changes`` are those of `trace_analyzer.replay.whatif.changes_of`: ``prefetch`` is a number of workers, ``batch`` a
    factor; ``speedup`` maps parts to their factors: ``{"matmul": 2}``; ``fuse`` and ``warm`` may name one of their
    parts (`trace_analyzer.vocabulary.CHANGE_PARTS`). Without changes, the result has an estimate for each standard change.
    Raises ``InputError`` for input that is no readable trace, ``UsageError`` for invalid changes.
    """
    asked = replayed.changes_of(**changes)
    if not isinstance(source, Report):
        return replayed.whatif(analyze(source, device=device), asked)
    if device is not None and device != source.verdict.device:
        raise UsageError("a report is of one device; analyse the trace again for another")
    return replayed.whatif(source, asked)
