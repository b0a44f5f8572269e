"""Implement `analyze ranks DIR|GLOB|URL...`: which rank of a job is late, and why."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from trace_analyzer.cli.options import Results, result_options, verb
from trace_analyzer.cli.progress import Progress
from trace_analyzer.errors import UsageError

if TYPE_CHECKING:
    from trace_analyzer.ranks.engine import Executor

_PATIENCE_S = 20


@verb()
@click.argument("sources", nargs=-1, required=True, metavar="DIR|GLOB|URL...")
@result_options(
    "the summary, the report for scripts (docs/ranks.md), or a comment for a pull request",
    schema=("trace_analyzer.ranks.job", "JobReport"),
    page=("--html", "Write a map of ranks by steps, the collectives of each step and all tables to FILE."),
)
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Read N ranks at a time (by default, one per processor)."
)
@click.option("--dask", metavar="SCHEDULER", help="Read ranks on the workers of this Dask scheduler (tcp://host:8786).")
def ranks(sources: tuple[str, ...], results: Results, workers: int | None, dask: str | None) -> int:
    """Find which rank of a job is late, how often, why, and what a fix can save.

    Each file is the trace of one rank, or its summary (*.rank.gz). Ranks that are missing, truncated, duplicate,
    unreadable or of another job are listed, and the others are analysed without them.
    """
    results.check(sources[0])
    from trace_analyzer.ranks.api import analyze_ranks

    with Progress() as progress, _client(dask) as client:
        report = analyze_ranks(sources, executor=client, workers=workers, progress=progress, redact=results.is_redacted)
    results.deliver(report)
    if not report.job.seen:
        raise UsageError("no trace of a rank could be used: see the problems above")
    results.deliver_page(report, "report")
    return 0


@contextmanager
def _client(scheduler: str | None) -> "Iterator[Executor | None]":
    """Yield the client of a Dask scheduler; None without a scheduler, to use processes of this machine."""
    if scheduler is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("--dask needs distributed: pip install 'torch-trace-analyzer[distributed]'") from None
    try:
        client = Client(scheduler, timeout=_PATIENCE_S)
    except (OSError, ValueError) as error:
        raise UsageError(f"--dask {scheduler}: no scheduler answers: {error}") from None
    with client:
        yield client
