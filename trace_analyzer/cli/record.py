"""Implement `record` (run a script under the profiler, and judge it), `calibrate`, and verbs about the program itself.

These are `doctor`, `completion`, and `skill` and `mcp` for language models.
"""

import contextlib
import os
import signal
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from trace_analyzer import capture, errors, options
from trace_analyzer.capture.session import LEVELS, SKIP
from trace_analyzer.cli import outputs, process
from trace_analyzer.cli.options import PAGE, POSITIVE, Number, check_new, format_option, verb
from trace_analyzer.files import write_text

if TYPE_CHECKING:
    from trace_analyzer.capture.record import RecordedCommand

MOST_STEPS = 1_000_000_000


@verb(allow_interspersed_args=False)  # options after the command belong to the command
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
    type=POSITIVE,
    metavar="X",
    help="Record all threads for X seconds instead: for scripts without an optimizer.",
)
@click.option(
    "--after",
    type=Number(0, options.MOST),
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
    from trace_analyzer.capture.record import record as recorded, script_name
    from trace_analyzer.capture.recorder import Plan

    if seconds is not None and steps is not None:
        raise errors.UsageError("--steps contradicts --seconds")
    if seconds is None and after is not None:
        raise errors.UsageError("--after needs --seconds")
    process.check_environment()
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
    except errors.TraceAnalyzerError as error:  # the script's exit code is more important than this program's
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
    from trace_analyzer.pipeline import analyze

    first = recording.traces[0]
    with outputs.Progress() as progress:
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


@verb(plugin=False)
@click.option(
    "--device", type=click.Choice(["cuda", "xpu", "cpu"]), help="Measure this kind of device (a GPU if there is one)."
)
@click.option("--quick", is_flag=True, help="Measure fewer sizes, for a shorter time.")
@click.option(
    "--sweep/--no-sweep",
    default=None,
    help="Measure the repeat sweep, which compiles kernels (the default without --quick), or not.",
)
@click.option(
    "--budget",
    type=POSITIVE,
    metavar="S",
    default=capture.BUDGET_S,
    help="Omit measurements that would take longer than S seconds in total (60 by default).",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write the calibration to FILE instead of the user's folder, where reports find it.",
)
@click.option(*PAGE, "plot", metavar="FILE", help="Draw the calibration as one HTML file.")
@click.option("--force", is_flag=True, help="Overwrite the FILE of --html.")
def calibrate(
    device: str | None,
    quick: bool,
    sweep: bool | None,
    budget: float,
    output: str | None,
    plot: str | None,
    force: bool,
) -> int:
    """Measure what this machine's device attains: bandwidth, FLOP/s, launches.

    Needs torch, and exclusive use of the device. Reports on traces of the same device then show the measured peaks
    beside those of the datasheet. On a machine without a GPU, the CPU is measured as a device of its own.
    """
    from trace_analyzer.capture.calibrate import calibrate as measured
    from trace_analyzer.catalog.calibration import calibration_folder, file_name

    if output:
        outputs.check_writable(Path(output), "-", "--output")
    if plot:
        check_new(Path(plot), "-", PAGE[0], force)
    with outputs.Progress() as progress:
        sweeps = not quick if sweep is None else sweep
        calibration = measured(device, quick=quick, sweep=sweeps, budget_s=budget, progress=progress)
    path = Path(output) if output else calibration_folder() / file_name(calibration)
    if not output:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, calibration.to_json())
    from trace_analyzer.documents.whatif import calibration_document, doubts_in_short
    from trace_analyzer.render.documents import text, write_page

    outputs.say(text(calibration_document(calibration), outputs.text_width()))
    for doubt in doubts_in_short(calibration):
        outputs.complain(f"warning: {doubt}")
    outputs.complain(f"calibration: {path}")
    if plot:
        write_page(calibration, Path(plot))
        outputs.complain(f"plot: {plot}")
    return 0


SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_ANALYZE_COMPLETE"
"""Environment variable that requests completions from click (click.palletsprojects.com, Shell Completion)."""
PROBLEMS = 1


@verb()
@format_option("text, or JSON for scripts", ("text", "json"))
@click.option("--redact", is_flag=True, help="Omit paths and names of plug-ins, to share the output in an issue.")
def doctor(form: str, redact: bool) -> int:
    """Show what is active here, what is slow, missing or broken, and what to do.

    Checks versions, the compiled reader, plug-ins and their examples, calibrations and settings, without
    importing torch. Exits with 1 if there is a problem (lines with !), with 2 if a named plug-in is broken.
    """
    from trace_analyzer.doctor import items, redacted, to_json, to_text

    facts = redacted(items()) if redact else items()
    outputs.say(to_json(facts) if form == "json" else to_text(facts))
    return PROBLEMS if any(item.status == "problem" for item in facts) else 0


@verb(plugin=False)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete verbs, options, words and files.

    \b
      analyze completion bash > ~/.local/share/bash-completion/completions/analyze
      analyze completion zsh > ~/.zfunc/_analyze          # a folder of $fpath
      analyze completion fish > ~/.config/fish/completions/analyze.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "analyze", VARIABLE)
    outputs.say(type(script).source_template % script.source_vars() + "\n")


@verb(plugin=False)
def skill() -> None:
    """Print a guide for language models: recording, commands, and checking of answers.

    \b
      analyze skill > .claude/skills/torch-trace-analyzer/SKILL.md
    """
    outputs.say(files("trace_analyzer.agents").joinpath("SKILL.md").read_text("utf-8").rstrip("\n"))


@verb()
@click.option("--root", metavar="DIR", default=".", show_default=True, help="Read only traces in DIR.")
def mcp(root: str) -> None:
    """Serve the other verbs over the Model Context Protocol.

    \b
      claude mcp add traces -- analyze mcp --root ~/traces

    The tools are traces, which lists those in DIR, and analyze, explain, whatif, compare, scaling, ranks, memory, loop and record; record runs a command in
    DIR once the client's user consents to it. Needs the package mcp (pip install 'torch-trace-analyzer[mcp]'). Uses
    standard input and output, and ends when the client closes standard input.
    """
    try:
        from trace_analyzer.agents.server import server
    except ModuleNotFoundError:
        raise errors.UsageError("serving needs the package mcp: pip install 'torch-trace-analyzer[mcp]'") from None

    server(Path(root)).run("stdio")
