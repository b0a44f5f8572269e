"""Judge a job from the traces of its ranks."""

from collections.abc import Sequence
from pathlib import Path

from trace_analyzer.ranks.engine import Executor, Progress, summaries
from trace_analyzer.ranks.job import JobReport, judge
from trace_analyzer.ranks.sources import files_of
from trace_analyzer.ranks.store import Store


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
    with Store() as contents:
        summaries(files_of(sources), contents, executor, workers=workers, progress=progress)
        if progress is not None:
            progress("judging the job", None)
        report = judge(contents, hides_hosts=redact)
    if not redact:
        return report
    from trace_analyzer.ranks.redaction import redacted

    return redacted(report, sources)
