"""Redact the report on a job for sharing.

Hosts become numbers, files keep only their names, and everything else is redacted as in `trace_analyzer.render.redact`.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TypeVar

from trace_analyzer.ranks.job import JobReport, Rank
from trace_analyzer.ranks.joining import Problem
from trace_analyzer.render.redact import Redaction

_HANDLER_NAME = re.compile(r"[^/]+?(?=_\d+\.\d+\.pt\.trace\.json)")
"""The host in a file name of ``tensorboard_trace_handler``."""
T = TypeVar("T", Rank, Problem)


def redacted(report: JobReport, sources: Sequence[str]) -> JobReport:
    """Return the report of `judge` with ``hides_hosts``, containing only data known to be harmless.

    ``sources`` are the user's paths, patterns and addresses.
    """
    redaction = Redaction(*sources)

    def named(item: T) -> T:
        if item.path is None:
            return item
        name = PurePosixPath(item.path.replace("\\", "/")).name
        return replace(item, path=redaction.text(_HANDLER_NAME.sub("host", name)))

    ranks = tuple(named(rank) for rank in report.ranks)
    problems = tuple(named(replace(p, message=redaction.text(p.message))) for p in report.problems)
    clean = redaction.result(replace(report, ranks=(), problems=()))
    return replace(
        clean, ranks=tuple(replace(redaction.result(rank), path=rank.path) for rank in ranks), problems=problems
    )
