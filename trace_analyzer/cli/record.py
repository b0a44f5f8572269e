"""Implement `analyze record -- COMMAND`: run a script under the profiler, unchanged, and judge it."""

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from trace_analyzer.capture.session import LEVELS, SKIP
from trace_analyzer.cli import outputs
from trace_analyzer.cli.analyze import positive
from trace_analyzer.cli.limits import check_environment
from trace_analyzer.cli.options import DEBUG, PLUGIN
from trace_analyzer.errors import TraceAnalyzerError, UsageError

if TYPE_CHECKING:
    from trace_analyzer.capture.record import RecordedCommand


MOST_STEPS = 1_000_000_000


def delay(text: str) -> float:
    """Parse seconds, including 0."""
    return 0.0 if text.strip() in ("0", "0.0") else positive(text)


@click.command(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "allow_interspersed_args": False,  # options after the command belong to the command
    }
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--steps",
    type=click.IntRange(1, MOST_STEPS),
    metavar="N",
    help="Record N steps of the script's first optimizer (6 by default), after as many without the profiler.",
)
@click.option(
    "--skip",
    type=click.IntRange(0, MOST_STEPS),
    metavar="N",
    default=SKIP,
    show_default=True,
    help="Skip N steps first.",
)
@click.option(
    "--seconds",
    type=positive,
    metavar="X",
    help="Record all threads for X seconds instead: for scripts without an optimizer.",
)
@click.option(
    "--after",
    type=delay,
    metavar="X",
    help="With --seconds: start X seconds after the import of torch.",
)
@click.option(
    "--level",
    type=click.Choice(list(LEVELS)),
    default="light",
    show_default=True,
    help="light slows the CPU least; standard adds shapes, full Python stacks and allocations.",
)
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    default=".",
    help="Write the trace and the report to FOLDER (the current one by default).",
)
@click.option("--no-report", is_flag=True, help="Write no HTML report.")
@PLUGIN
@DEBUG
def record(
    command: tuple[str, ...],
    steps: int | None,
    skip: int,
    seconds: float | None,
    after: float | None,
    level: str,
    output: str,
    no_report: bool,
) -> int:
    """Run COMMAND unchanged under the profiler, and show what limits it.

    \b
      analyze record -- python train.py --lr 0.1
      analyze record -- -m package.train
      analyze record --seconds 5 --after 30 -- python serve.py
      analyze record -- torchrun --nproc-per-node 2 train.py

    The exit code, standard input and output, signals and arguments are the command's own; the summary goes to standard
    error. PYTHONPATH makes each Python process of COMMAND watch itself (not with python -I or -E); those whose
    optimizer takes enough steps are recorded.
    """
    from trace_analyzer.capture.record import record as recorded
    from trace_analyzer.capture.record import script_name
    from trace_analyzer.capture.recorder import Plan

    if seconds is not None and steps is not None:
        raise UsageError("--steps contradicts --seconds")
    if seconds is None and after is not None:
        raise UsageError("--after needs --seconds")
    check_environment()
    plan = Plan(
        folder=output,
        steps=None if seconds is not None else steps or 6,
        seconds=seconds,
        after=after or 0.0,
        skip=skip,
        level=level,
    )
    recording = recorded(command, plan)
    try:
        _write_summaries(recording, script_name(command), no_report)
    except TraceAnalyzerError as error:  # the script's exit code is more important than this program's
        outputs.complain(f"{recording.traces[0]} was kept, but not analysed: {error}")
    except OSError as error:
        outputs.complain(f"no report: {error}")
    if recording.returncode < 0:
        sys.stdout.flush()
        with contextlib.suppress(OSError):  # SIGKILL cannot be caught
            signal.signal(-recording.returncode, signal.SIG_DFL)
        os.kill(os.getpid(), -recording.returncode)
    return recording.returncode


def _write_summaries(recording: "RecordedCommand", name: str, no_report: bool) -> None:
    """Write the first rank's summary, and the paths of all files, to standard error."""
    if not recording.traces:
        why = recording.reasons[0] if recording.reasons else "no optimizer took a step; try --seconds"
        outputs.complain(f"{name} was not recorded: {why}")
        return
    from trace_analyzer.cli.progress import Progress
    from trace_analyzer.pipeline import analyze

    first = recording.traces[0]
    with Progress() as progress:
        result = analyze(first, progress=progress)
    print(result.summary(), file=sys.stderr, flush=True)
    if recording.without_device and not result.devices:
        outputs.complain(f"{recording.without_device}: only the CPU was recorded")
    for trace in recording.traces:
        outputs.complain(f"trace: {trace}")
    if not no_report:
        path = first.with_name(outputs.default_report_path(first.name).name)
        result.to_html(path)
        outputs.complain(f"report: {path}")
