"""Implement verbs on several recordings: `compare`, `scaling`, `baseline save|check`, `ranks`, and `loop start|apply|check`."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trace_analyzer import files, tuning
from trace_analyzer.cli import FAILED, GATE_BROKE, outputs
from trace_analyzer.cli.options import Function, Results, analysis_options, read_report, result_options, verb
from trace_analyzer.errors import UsageError
from trace_analyzer.options import MOST, Options

if TYPE_CHECKING:
    from trace_analyzer.compare.gates import Gate
    from trace_analyzer.compare.profiles import Profile
    from trace_analyzer.ranks.engine import Executor


_RATIO = re.compile(r"^(?:(?P<line>.+)=)?(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<percent>\s*%)?$")


def bound(text: str) -> tuple[str | None, float]:
    """Parse ``5%``, ``0.05`` or ``LINE=5%``: a line (None for the step) and its largest growth relative to the step."""
    match = _RATIO.match(text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is no share such as 5% or 0.05, nor LINE=5%")
    value = float(match["number"])
    if value > MOST:
        raise click.BadParameter(f"{text!r} is more than {MOST:g}")
    if value >= 1 and not match["percent"]:
        raise click.BadParameter(f"{text!r} is {100 * value:g} %; write {match['number']}% or {100 * value:g}%")
    return match["line"], value / 100 if match["percent"] else value


def _gates(function: Function) -> Function:
    """Add the options of gates, and pass them as ``gates``."""

    @click.option(
        "--fail-if-slower",
        type=bound,
        multiple=True,
        metavar="[LINE=]R",
        help="Exit with 1 if the step, or LINE (a kind, cause, bucket, operator or module), grows by over R (5% or 0.05) of BEFORE's step. Repeatable.",
    )
    @click.option(
        "--fail-if-more-idle",
        type=bound,
        metavar="R",
        help="Exit with 1 if idle time per step grows by over R of BEFORE's step.",
    )
    @wraps(function)
    def call(*args: Any, fail_if_slower: Any, fail_if_more_idle: Any, **values: Any) -> Any:
        return function(*args, gates=_gates_of(fail_if_slower, fail_if_more_idle), **values)

    return call


_results = result_options(
    "the summary, the comparison for scripts (docs/compare.md), or a comment for a pull request",
    schema=("trace_analyzer.compare.comparison", "Comparison"),
    page="Write waterfalls, both timelines and a differential flame graph to FILE.",
)
_reading = analysis_options("device", "gpu", "capture", "export")


def _two_counts(text: str) -> tuple[int, ...]:
    """Parse ``N,M``."""
    if not re.fullmatch(r"\s*0*[1-9]\d{0,8}\s*,\s*0*[1-9]\d{0,8}\s*", text, re.ASCII):
        raise click.BadParameter(f"{text!r} is no pair of counts such as 10,12")
    return tuple(map(int, text.split(",")))


@verb()
@click.argument("before")
@click.argument("after")
@_results
@_gates
@click.option("--whole", is_flag=True, help="Compare whole recordings instead of steps.")
@click.option(
    "--units", type=_two_counts, metavar="N,M", help="Units of work that the recordings of each side hold, as whole."
)
@_reading
def compare(
    before: str,
    after: str,
    results: Results,
    gates: tuple["Gate", ...],
    whole: bool,
    units: tuple[int, int] | None,
    chosen: Options,
) -> int:
    """Show what changed from BEFORE to AFTER, and whether it is more than chance.

    Each is a trace, a folder or pattern ('runs/*.json.gz') of recordings, a report saved with --format json, or a
    baseline. Several recordings per side show whether the program differs; the steps of one recording per side only
    show whether the recordings differ.
    """
    results.check(before)
    return _finish((before, after), chosen, results, gates, whole=whole, units=units)


@verb()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE TRACE...")
@result_options(
    "the summary, or the result for scripts",
    ("text", "json"),
    schema=("trace_analyzer.compare.scaling", "Scaling"),
    page="Draw step, busy and idle time over the batch size as one HTML file.",
)
@_reading
def scaling(traces: tuple[str, ...], results: Results, chosen: Options) -> int:
    """Find the overhead of a program from recordings at several batch sizes.

    The batch size is recognised from the shapes of inputs (record_shapes=True). Time that stays constant while the work
    grows is overhead.
    """
    if len(traces) < 2:
        raise UsageError("scaling needs two traces or more, of one program at several batches")
    results.check(traces[0])
    sides = read_sides(traces, chosen)
    from trace_analyzer.compare.scaling import scale_profiles

    result, shown = results.redacted(scale_profiles(sides), (*traces, *_paths_of(sides)))
    results.deliver(result)
    if results.is_refusal(result, "not scaled", shown):
        return FAILED
    results.deliver_page(result, "plot", shown)
    return 0


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False)
def baseline() -> None:
    """Save recordings as a small file in the repository, and compare later ones with it."""


@verb(baseline, name="save")
@click.argument("source", metavar="TRACE")
@click.argument("file", metavar="FILE")
@_reading
def save(source: str, file: str, chosen: Options) -> int:
    """Save TRACE (a folder or pattern, too) as a baseline in FILE."""
    outputs.check_writable(Path(file), source, "FILE")
    (profile,) = read_sides((source,), chosen)
    if profile.facts.withheld or not profile.total_ns:
        raise UsageError(f"{source}: no baseline can be made of it: {profile.facts.withheld or 'no device worked'}")
    from trace_analyzer.compare.sides import baseline_json

    files.write_text(Path(file), baseline_json(profile))
    outputs.complain(f"baseline: {file}")
    return 0


@verb(baseline, name="check")
@click.argument("source", metavar="TRACE")
@click.argument("file", metavar="FILE")
@_results
@_gates
@_reading
def check(source: str, file: str, results: Results, gates: tuple["Gate", ...], chosen: Options) -> int:
    """Compare TRACE with the baseline in FILE.

    Exits with 1 if a gate breaks; without a gate, if the step is over 5 % slower.
    """
    results.check(source)
    return _finish((file, source), chosen, results, gates or _gates_of(((None, 0.05),), None))


def read_sides(sources: Sequence[str], chosen: Options) -> list["Profile"]:
    """Read the profile of each side. Raises ``UsageError`` for standard input twice, as it is exhausted after once."""
    if sum(source == "-" for source in sources) > 1:
        raise UsageError("- is standard input, which can be read once; name files")
    tuning.limit_threads(*sources)
    from trace_analyzer.compare.sides import profile_side

    with outputs.Progress() as progress:
        return [profile_side(source, lambda path: read_report(path, chosen, progress)) for source in sources]


def _gates_of(slower: Sequence[tuple[str | None, float]], idle: tuple[str | None, float] | None) -> tuple["Gate", ...]:
    from trace_analyzer.compare.gates import Gate

    gates = [
        Gate(f"--fail-if-slower {line + '=' if line else ''}{100 * ratio:g}%", ratio, line) for line, ratio in slower
    ]
    if idle is not None:
        gates.append(Gate(f"--fail-if-more-idle {100 * idle[1]:g}%", idle[1], is_idle=True))
    return tuple(gates)


def _paths_of(profiles: Iterable["Profile"]) -> list[str]:
    return [path for side in profiles for path in (side.path, *(recording.path for recording in side.recordings))]


def _finish(sources: tuple[str, str], chosen: Options, results: Results, gates: tuple["Gate", ...], **how: Any) -> int:
    """Compare, write the outputs, and check the gates; return the exit code."""
    from trace_analyzer.compare import gates as bounds
    from trace_analyzer.compare.decomposition import compare_read

    sides: list[Profile] = []

    def read(**changes: Any) -> list["Profile"]:
        # A pipe can be read once.
        if not sides or not any(source == "-" or Path(source).is_fifo() for source in sources):
            sides[:] = read_sides(sources, replace(chosen, **changes))
        return sides

    compared = compare_read(read, **how)
    result, shown = results.redacted(compared, _paths_of(sides))
    results.deliver(result)
    if results.is_refusal(result, "not compared", shown):
        return FAILED
    results.deliver_page(result, "comparison", shown)
    if not gates:
        return 0
    reason = bounds.refusal(compared, gates)
    if reason:
        outputs.complain(shown(f"no gate was held: {reason}"))
        return FAILED
    held = bounds.held(compared, gates)
    for item in held:
        outputs.complain(shown(f"gate {'broke' if item.broke else 'held'}: {item.why}"))
    return GATE_BROKE if any(item.broke for item in held) else 0


_PATIENCE_S = 20


@verb()
@click.argument("sources", nargs=-1, required=True, metavar="DIR|GLOB|URL...")
@result_options(
    "the summary, the report for scripts (docs/ranks.md), or a comment for a pull request",
    schema=("trace_analyzer.ranks.job", "JobReport"),
    page="Write a map of ranks by steps, the collectives of each step and all tables to FILE.",
)
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Read N ranks at a time (by default, one per processor)."
)
@click.option("--dask", metavar="SCHEDULER", help="Read ranks on the workers of this Dask scheduler (tcp://host:8786).")
@click.option(
    "--rank-of", metavar="PATTERN", help="Take each rank from its path, by the first group of this regular expression."
)
@analysis_options("measured_step_ms")
def ranks(
    sources: tuple[str, ...],
    results: Results,
    workers: int | None,
    dask: str | None,
    rank_of: str | None,
    chosen: Options,
) -> int:
    """Find which rank of a job is late, how often, why, and what a fix can save.

    Each file is the trace of one rank, or its summary (*.rank.gz). Ranks that are missing, truncated, duplicate,
    unreadable or of another job are listed, and the others are analysed without them.
    """
    results.check(sources[0])
    from trace_analyzer.ranks.job import analyze_ranks

    with outputs.Progress() as progress, _client(dask) as client:
        report = analyze_ranks(
            sources,
            executor=client,
            workers=workers,
            progress=progress,
            redact=results.is_redacted,
            rank_of=rank_of,
            measured_step_ms=chosen.measured_step_ms,
        )
    if not report.job.seen and results.form == "text" and len(report.problems) == 1:
        raise UsageError(f"{report.problems[0].path}: {report.problems[0].message}, so no trace of a rank is at hand")
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


_LOOP = click.argument("folder", metavar="LOOP")
_loop_results = result_options(
    "the history, the loop for scripts (docs/compare.md), or the history as LOOP/history.md has it",
    schema=("trace_analyzer.compare.loop", "Loop"),
    page="Write the history as a page to FILE.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False)
def loop() -> None:
    """Keep changes in a folder: prediction, change, what came, and the decision.

    \b
      analyze loop start LOOP before/               what the first advice on these recordings predicts
      analyze loop apply LOOP --note "4 workers"    the change
      analyze loop check LOOP after/                what came, and whether to keep it
    """


@verb(loop, name="start")
@_LOOP
@click.argument("source", metavar="[TRACE]", required=False)
@click.option("--advice", metavar="ID", help="Follow this advice instead of the first one that saves time.")
@_loop_results
def start_loop(folder: str, source: str | None, advice: str | None, results: Results) -> int:
    """Begin a turn: keep TRACE, and what an advice on it predicts.

    TRACE may be a folder or pattern; without it, the turn begins with what the last one left.
    """
    return _loop_step("start", folder, results, source, advice)


@verb(loop, name="apply")
@_LOOP
@click.option("--note", metavar="TEXT", help="The change in words.")
@click.option("--patch", metavar="FILE", help="The change as a file, of which LOOP keeps a copy.")
@_loop_results
def apply_loop(folder: str, note: str | None, patch: str | None, results: Results) -> int:
    """Keep the change of the turn, in words or as a patch.

    Files of the program are left alone.
    """
    return _loop_step("apply", folder, results, note, patch)


@verb(loop, name="check")
@_LOOP
@click.argument("source", metavar="TRACE")
@_loop_results
def check_loop(folder: str, source: str, results: Results) -> int:
    """Compare TRACE with the recordings before the change, and decide.

    TRACE may be a folder or pattern: three recordings of each side can decide.
    """
    return _loop_step("check", folder, results, source)


def _loop_step(step: str, folder: str, results: Results, *values: str | None) -> int:
    results.check(folder)
    if "-" in values:
        raise UsageError("a loop keeps copies: name files, not standard input")
    from trace_analyzer.compare import loop as turns

    result, shown = results.redacted(getattr(turns, step)(Path(folder), *values), [folder])
    results.deliver(result)
    results.deliver_page(result, "history", shown)
    return 0
