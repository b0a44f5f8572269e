"""Implement `analyze ranks DIR|GLOB|URL...`: which rank of a job is late, and why."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trace_analyzer.cli import outputs
from trace_analyzer.cli.progress import Progress
from trace_analyzer.errors import UsageError

if TYPE_CHECKING:
    from trace_analyzer.ranks.job import JobReport


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("sources", nargs=-1, required=True, metavar="DIR|GLOB|URL...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="What to print: the summary, the report for scripts (docs/ranks.md), or a comment for a pull request.",
)
@click.option("-o", "--output", metavar="FILE", help="Write it into FILE instead of printing it.")
@click.option(
    "--html",
    metavar="FILE",
    help="Write a map of ranks by steps, the collectives of each step and all tables into FILE.",
)
@click.option("--force", is_flag=True, help="Overwrite the FILE of --html.")
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Read N ranks at a time; by default one a processor."
)
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def ranks(
    sources: tuple[str, ...], form: str, output: str | None, html: str | None, force: bool, workers: int | None
) -> int:
    """Tell from the traces of a job's ranks which rank is late, how often, why, and what a cure gives.

    Each file is the trace of one rank, or its summary (*.rank.zst). Ranks that are missing, cut, there twice, of another job or not to be read are
    listed, and cost only themselves.
    """
    if not outputs.is_standard_output(output):
        outputs.check_writable(Path(str(output)), sources[0], "--output")
    if html:
        outputs.check_writable(Path(html), sources[0], "--html")
        if Path(html).exists() and not force:
            raise UsageError(f"--html {html}: exists; --force overwrites it")
    from trace_analyzer.ranks.api import analyze_ranks

    with Progress() as progress:
        report = analyze_ranks(sources, workers=workers, progress=progress)
    outputs.deliver(_rendered(report, form, outputs.width_of(output)), output)
    if not report.job.seen:
        raise UsageError("no trace of a rank could be used: see the problems above")
    if html:
        report.to_html(html)
        outputs.complain(f"report: {html}")
    return 0


def _rendered(report: "JobReport", form: str, width: int) -> str:
    if form == "json":
        return report.to_json()
    return report.to_markdown() if form == "markdown" else report.summary(width)
