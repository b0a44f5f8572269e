"""Judge a job from the traces of its ranks."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TypeVar

from trace_analyzer.ranks.engine import Executor, Progress, summaries
from trace_analyzer.ranks.files import files_of
from trace_analyzer.ranks.job import JobReport, Rank, judge
from trace_analyzer.ranks.joining import Problem
from trace_analyzer.redact import Redaction

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


def analyze_ranks(
    source: str | Path | Sequence[str | Path],
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    redact: bool = False,
) -> JobReport:
    """Judge a job: which rank is late, how often, by how much, why, and the gain of a fix.

    Parameters
    ----------
    source: a folder, a pattern (``"traces/*rank*.json.gz"``), an address that fsspec knows (``"s3://..."``), or several of them. Each file is the trace
        of one rank, or its summary (``*.rank.gz``).
    executor: runs ``submit(function, path).result()``: a `concurrent.futures` executor, a `dask.distributed.Client`, ...; new processes by default.
    workers: processes of the default executor, or ranks that the given one has at a time.
    progress: called with (stage, fraction or None).
    redact: keep only what is known to be harmless: hosts get numbers, and other names, directories and addresses go as in a redacted report.

    A file that cannot be read is a problem of the report, never an exception. Raises ``UsageError`` where a source names no file.
    """
    several = [source] if isinstance(source, str | Path) else list(source)
    sources = [str(item) for item in several]
    contents = summaries(files_of(sources), executor, workers=workers, progress=progress)
    if progress is not None:
        progress("judging the job", None)
    report = judge(contents, hides_hosts=redact)
    return redacted(report, sources) if redact else report
