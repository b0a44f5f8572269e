"""Implement `analyze compare BEFORE AFTER` and `analyze baseline save|check`: compare recordings, and gate on it."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trace_analyzer import tuning
from trace_analyzer.cli import FAILED, outputs
from trace_analyzer.cli.options import READING, Results, json_schema_option, output_options, page_options, with_options
from trace_analyzer.cli.progress import Progress
from trace_analyzer.errors import UsageError
from trace_analyzer.files import write_text

if TYPE_CHECKING:
    from trace_analyzer.compare.gates import Gate
    from trace_analyzer.compare.profiles import Profile
    from trace_analyzer.ingest import Trace
    from trace_analyzer.report import Report

GATE_BROKE = 1

MOST = 1e9
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


_GATES = (
    click.option(
        "--fail-if-slower",
        type=bound,
        multiple=True,
        metavar="[LINE=]R",
        help="Exit with 1 if the step, or LINE (a kind, cause, bucket, operator or module), grows by over R (5% or 0.05) of BEFORE's step. Repeatable.",
    ),
    click.option(
        "--fail-if-more-idle",
        type=bound,
        metavar="R",
        help="Exit with 1 if idle time per step grows by over R of BEFORE's step.",
    ),
)
_COMMON = (
    *output_options("the comparison for scripts (docs/compare.md)", comment="a comment for a pull request"),
    *page_options("--html", "Write waterfalls, both timelines and a differential flame graph to FILE."),
    *_GATES,
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("before")
@click.argument("after")
@json_schema_option("trace_analyzer.compare.comparison", "Comparison")
@with_options((*_COMMON, *READING))
def compare(before: str, after: str, **options: Any) -> int:
    """Show what changed from BEFORE to AFTER, and whether it is more than chance.

    Each is a trace, a folder or pattern ('runs/*.json.gz') of recordings, a report saved with --format json, or a
    baseline. Several recordings per side show whether the program differs; the steps of one recording per side only
    show whether the recordings differ.
    """
    tuning.limit_threads(before, after)
    results, gates = Results.taken(options, "--html"), _gates_taken(options)
    results.check(before)
    check_standard_input((before, after))
    with Progress() as progress:
        sides = [read_side(side, options, progress) for side in (before, after)]
    return _finish(sides[0], sides[1], results, gates)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False)
def baseline() -> None:
    """Save recordings as a small file in the repository, and compare later ones with it."""


@baseline.command("save", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("source", metavar="TRACE")
@click.argument("file", metavar="FILE")
@with_options(READING)
def save(source: str, file: str, **reading: Any) -> int:
    """Save TRACE (or a folder or pattern of recordings) as a JSON baseline in FILE."""
    tuning.limit_threads(source)
    from trace_analyzer.compare.sides import baseline_json

    outputs.check_writable(Path(file), source, "FILE")
    with Progress() as progress:
        profile = read_side(source, reading, progress)
    if profile.facts.withheld or not profile.total_ns:
        raise UsageError(f"{source}: no baseline can be made of it: {profile.facts.withheld or 'no device worked'}")
    write_text(Path(file), baseline_json(profile))
    outputs.complain(f"baseline: {file}")
    return 0


@baseline.command("check", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("source", metavar="TRACE")
@click.argument("file", metavar="FILE")
@with_options((*_COMMON, *READING))
def check(source: str, file: str, **options: Any) -> int:
    """Compare TRACE with the baseline in FILE, and exit with 1 if a gate breaks.

    Without a gate, that is the case if the step is over 5 % slower.
    """
    tuning.limit_threads(source)
    results = Results.taken(options, "--html")
    results.check(source)
    gates = _gates_taken(options) or _gates(((None, 0.05),), None)
    check_standard_input((file, source))
    with Progress() as progress:
        sides = [read_side(side, options, progress) for side in (file, source)]
    return _finish(sides[0], sides[1], results, gates)


def check_standard_input(sources: Sequence[str]) -> None:
    """Refuse to read standard input twice, as it is exhausted after the first time. Raises ``UsageError``."""
    if sum(source == "-" for source in sources) > 1:
        raise UsageError("- is standard input, which can be read once; name files")


def read_side(source: str, reading: dict[str, Any], progress: Progress) -> "Profile":
    """Read the profile of one side."""
    from trace_analyzer.compare.sides import profile_side

    return profile_side(source, lambda path: read_report(path, reading, progress))


def read_report(path: str | Path, reading: dict[str, Any], progress: Progress) -> "Report":
    """Read the report on one trace."""
    from trace_analyzer.ingest import load
    from trace_analyzer.pipeline import Options, report_of

    captured = None if reading["capture"] is None else _captured(reading["capture"])
    return report_of(
        load(path, progress=progress), Options(device=reading["device"], gpu=reading["gpu"]), progress, capture=captured
    )


@lru_cache(maxsize=1)
def _captured(path: str) -> "Trace":
    """Read the trace of ``--capture`` once for all sides and recordings."""
    if path == "-":
        raise UsageError("--capture names a file: standard input is for a trace")
    from trace_analyzer.ingest import load

    return load(path)


def _gates_taken(options: dict[str, Any]) -> tuple["Gate", ...]:
    """Take the gates from a verb's options."""
    return _gates(options.pop("fail_if_slower"), options.pop("fail_if_more_idle"))


def _gates(slower: Sequence[tuple[str | None, float]], idle: tuple[str | None, float] | None) -> tuple["Gate", ...]:
    from trace_analyzer.compare.gates import Gate

    gates = [
        Gate(f"--fail-if-slower {line + '=' if line else ''}{100 * ratio:g}%", ratio, line) for line, ratio in slower
    ]
    if idle is not None:
        gates.append(Gate(f"--fail-if-more-idle {100 * idle[1]:g}%", idle[1], is_idle=True))
    return tuple(gates)


def paths_of(profiles: Iterable["Profile"]) -> list[str]:
    """Return the paths of profiles and of their recordings."""
    return [path for side in profiles for path in (side.path, *(recording.path for recording in side.recordings))]


def _finish(before: "Profile", after: "Profile", results: Results, gates: tuple["Gate", ...]) -> int:
    """Compare, write the outputs, and check the gates; return the exit code."""
    from trace_analyzer.compare import gates as bounds
    from trace_analyzer.compare.decomposition import compare_profiles

    compared = compare_profiles(before, after)
    result, shown = outputs.redacted(compared, paths_of((before, after)), results.is_redacted)
    outputs.deliver_result(result, results.form, results.output)
    if result.status == "refused":
        outputs.complain(shown(f"not compared: {result.reason}"))
        return FAILED
    if results.page:
        result.to_html(results.page)
        outputs.complain(f"comparison: {shown(results.page)}")
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
