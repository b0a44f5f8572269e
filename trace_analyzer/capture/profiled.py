"""Analyse a finished profile, and estimate changes on any source: a trace, a finished profile, or a report."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from trace_analyzer import errors, pipeline
from trace_analyzer.allocator.answer import memory as recorded_memory
from trace_analyzer.capture.facts import FinishedProfile, export, settings
from trace_analyzer.ingest.source import Source
from trace_analyzer.options import Options, number_in, takes_options_of
from trace_analyzer.replay import whatif as replayed
from trace_analyzer.report import Report


def analyze_profile(profile: FinishedProfile, **options: Any) -> Report:
    """Analyze a finished profile, after its ``with`` block or in ``on_trace_ready``.

    ``options`` are those of `trace_analyzer.pipeline.analyze`. The trace is exported to a temporary file, which is
    deleted afterwards. Raises ``UsageError`` for a profile that is not finished, or whose trace was saved before.
    """
    with tempfile.TemporaryDirectory(prefix="trace-analyzer-") as folder:
        known = settings() if "torch" in sys.modules else None
        report = pipeline.analyze(export(profile, Path(folder, "trace.json"), known), **options)
    return replace(report, trace=replace(report.trace, path="torch.profiler.profile"))


@takes_options_of(replayed.changes_of)
def whatif(
    source: Any, *, device: int | str | None = None, memory: Source | None = None, **changes: Any
) -> replayed.WhatIf:
    """Estimate the effect of changes on the steps of a trace, of a finished profile or of a `Report`.

    ``changes`` are those of `trace_analyzer.replay.whatif.changes_of`: ``prefetch`` is a number of workers, ``batch`` a
    factor; ``speedup`` maps parts to their factors: ``{"matmul": 2}``; ``fuse`` and ``warm`` may name one of their
    parts (`trace_analyzer.vocabulary.CHANGE_PARTS`). ``memory`` is a memory snapshot of the same program, which tells whether
    the batch fits. Without changes, the result has an estimate for each standard change.
    Raises ``InputError`` for input that is no readable trace, ``UsageError`` for invalid changes.
    """
    asked = replayed.changes_of(**changes)
    snapshot = None if memory is None else recorded_memory(memory)
    if hasattr(source, "export_chrome_trace"):
        source = analyze_profile(source, device=device)
    elif not isinstance(source, Report):
        options = Options(device=device)
        return pipeline.whatif_of(pipeline.loaded(source, options), asked, options, snapshot=snapshot)
    elif device is not None and number_in(device) != source.verdict.device:
        raise errors.UsageError("a report is of one device; analyse the trace again for another")
    return replayed.whatif(source, asked, snapshot=snapshot)
