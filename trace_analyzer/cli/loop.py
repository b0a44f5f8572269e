"""Implement `analyze loop start|apply|check`: a folder that keeps changes with their prediction and what came."""

from pathlib import Path

import click

from trace_analyzer.cli.options import Results, result_options, verb
from trace_analyzer.errors import UsageError

_LOOP = click.argument("folder", metavar="LOOP")
_results = result_options(
    "the history, the loop for scripts (docs/compare.md), or the history as LOOP/history.md has it",
    schema=("trace_analyzer.compare.loop", "Loop"),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False)
def loop() -> None:
    """Keep changes in a folder: prediction, change, what came, and the decision."""


@verb(loop, name="start")
@_LOOP
@click.argument("source", metavar="[TRACE]", required=False)
@click.option("--advice", metavar="ID", help="Follow this advice instead of the first one that saves time.")
@_results
def start(folder: str, source: str | None, advice: str | None, results: Results) -> int:
    """Begin a turn: keep TRACE (a folder or pattern, too; else what the last turn left) and what an advice on it predicts."""
    return _done("start", folder, results, source, advice)


@verb(loop, name="apply")
@_LOOP
@click.option("--note", metavar="TEXT", help="The change in words.")
@click.option("--patch", metavar="FILE", help="The change as a file, of which LOOP keeps a copy.")
@_results
def apply(folder: str, note: str | None, patch: str | None, results: Results) -> int:
    """Keep the change of the turn in words or as a patch; files of the program are left alone."""
    return _done("apply", folder, results, note, patch)


@verb(loop, name="check")
@_LOOP
@click.argument("source", metavar="TRACE")
@_results
def check(folder: str, source: str, results: Results) -> int:
    """Compare TRACE (a folder or pattern, too) with the recordings before the change; three of each side can decide."""
    return _done("check", folder, results, source)


def _done(step: str, folder: str, results: Results, *values: str | None) -> int:
    results.check(folder)
    if "-" in values:
        raise UsageError("a loop keeps copies: name files, not standard input")
    from trace_analyzer.compare import loop as turns

    result, _ = results.redacted(getattr(turns, step)(Path(folder), *values), [folder])
    results.deliver(result)
    return 0
