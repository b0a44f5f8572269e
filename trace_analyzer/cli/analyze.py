"""Implement `analyze report TRACE`, or `analyze TRACE`: summary, HTML report and gates of one trace."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from trace_analyzer import tuning
from trace_analyzer.cli import ARGUMENTS, outputs
from trace_analyzer.cli.hyperlinks import linked, wants_links
from trace_analyzer.cli.limits import check_environment
from trace_analyzer.cli.options import DEBUG, PLUGIN, format_option
from trace_analyzer.compiled import why_slow
from trace_analyzer.errors import UsageError
from trace_analyzer.files import Outputs
from trace_analyzer.packages import missing_for_pages
from trace_analyzer.units import printable
from trace_analyzer.vocabulary import REGIMES

if TYPE_CHECKING:
    from trace_analyzer.render.redact import Redaction
    from trace_analyzer.report import Report

GATE_BROKE = 1


def ratio(text: str) -> float:
    """Parse a number from 0 to 1; ``nan`` is invalid."""
    number = _number(text)
    if number is None or not 0 <= number <= 1:
        raise click.BadParameter(f"{text!r} is no number from 0 to 1 (0.2 is 20 %)")
    return number


LEAST, MOST = 1e-9, 1e9


def positive(text: str) -> float:
    """Parse a positive number within limits, so that no result overflows."""
    number = _number(text)
    if number is None or not LEAST <= number <= MOST:
        raise click.BadParameter(f"{text!r} is no number over 0 ({LEAST:g} to {MOST:g})")
    return number


def peak(text: str) -> tuple[str, float]:
    """Parse ``X`` or ``DTYPE=X``: a dtype ("" for all) and its peak."""
    dtype, _, number = text.rpartition("=")
    return dtype.strip(), positive(number)


def step(text: str) -> int | str:
    """Parse the index of a step, ``all`` or ``steady``."""
    if text in ("all", "steady"):
        return text
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a step's number nor 'all' nor 'steady'") from None


def device(text: str) -> int | str:
    """Parse the id of a device as the trace writes it, usually a number."""
    try:
        return int(text)
    except ValueError:
        return text


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(frozen=True)
class Destinations:
    """Hold the places where results are written.

    ``html`` is None where no HTML report is written, ``text`` is None for standard output, and ``tables`` is a folder.
    """

    html: Path | None
    text: Path | None
    tables: Path | None
    tables_format: Literal["parquet", "csv"]


@dataclass(frozen=True)
class Gates:
    """Hold the limits of a CI run; none by default."""

    regimes: tuple[str, ...]
    max_idle: float | None


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("traces", metavar="TRACE", nargs=-1, required=True)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Print details: evidence, kernels, operators, all advice with its reasons, steps, notes.",
)
@click.option(
    "--report",
    "report_path",
    metavar="PATH",
    help="Write the HTML report to PATH instead of <trace name>.report.html.",
)
@click.option("--open", "open_report", is_flag=True, help="Open the HTML report in the browser.")
@click.option("--no-report", is_flag=True, help="Write no HTML report.")
@click.option(
    "--max-report-mb",
    type=positive,
    metavar="N",
    help="Keep the HTML report under N MB: omit the shortest Python frames first, then details.",
)
@click.option(
    "--force", is_flag=True, help="Overwrite a file at the report's path that is not a report of this program."
)
@format_option(
    "the summary, the report for scripts (docs/json.md), a comment for CI, or 2 kB for language models, "
    "with ids for analyze explain",
    ("text", "json", "markdown", "agent"),
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write the output to FILE instead of printing it; to FILE.html, the HTML report.",
)
@click.option(
    "--tables",
    "tables_path",
    metavar="DIR",
    help="Write each table of the report (docs/tables.md) to a file in DIR.",
)
@click.option(
    "--tables-format",
    type=click.Choice(["parquet", "csv"]),
    help="Format of these files (parquet by default).",
)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(tuple(REGIMES)),
    metavar="REGIME",
    help=f"Exit with 1 if the verdict is REGIME: {', '.join(REGIMES)}. Repeatable.",
)
@click.option(
    "--max-idle",
    type=ratio,
    metavar="RATIO",
    help="Exit with 1 if the device idles more than this share (0 to 1) of the verdict's window.",
)
@click.option("--device", type=device, metavar="N", help="Judge this device instead of the one with most busy time.")
@click.option(
    "--step",
    type=step,
    metavar="N|all|steady",
    default="steady",
    show_default=True,
    help="Judge one step, the whole trace, or the steady steps.",
)
@click.option("--gpu", metavar="NAME", help="Use the peaks of this device in the catalogue.")
@click.option(
    "--peak-tflops",
    multiple=True,
    type=peak,
    metavar="[DTYPE=]X",
    help="Dense peak in TFLOP/s, for one dtype (bf16=989) or for all. Repeatable.",
)
@click.option("--peak-gbps", type=positive, metavar="X", help="Memory bandwidth in GB/s.")
@click.option(
    "--measured-step-ms",
    type=positive,
    metavar="X",
    help="Time of a step without the profiler, for the exact cost of recording instead of an estimate.",
)
@click.option(
    "--calibration",
    metavar="FILE|none",
    help="Use these measurements of the device (analyze calibrate); by default the user's own, if they are of this device.",
)
@click.option(
    "--capture",
    metavar="FILE",
    help="Take operators, modules and shapes of replayed kernels from a second trace of the same program, eager or of the"
    " capture of its graphs. Or take modules from annotations of graphs in JSON.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1),
    metavar="N",
    default=16 << 30,
    help="Refuse a trace of more than N bytes when decompressed (16 GiB by default).",
)
@click.option(
    "--rank-summary",
    metavar="FILE",
    help="Write a few kilobytes for `analyze ranks` to FILE (name it *.rank.gz).",
)
@click.option(
    "--redact",
    is_flag=True,
    help="Keep only data known to be harmless in all output: figures, shapes, and names made of public words of PyTorch "
    "and its kernels. Replace other names with name1, name2, ...; remove directories, hosts and arguments.",
)
@PLUGIN
@DEBUG
def report(
    traces: tuple[str, ...],
    verbose: bool,
    report_path: str | None,
    open_report: bool,
    no_report: bool,
    force: bool,
    form: str,
    output: str | None,
    tables_path: str | None,
    tables_format: Literal["parquet", "csv"] | None,
    fail_on: tuple[str, ...],
    max_idle: float | None,
    redact: bool,
    max_report_mb: float | None,
    **choices: Any,
) -> int:
    """Show what limits the workload in TRACE, and what to change first.

    TRACE is a PyTorch Profiler file (.json, .json.gz or .json.zst), or - for standard input. The HTML
    report embeds the names and times of all events in TRACE; see --redact to share it.
    """
    trace = _one_trace(traces)
    check_environment()
    report_path, output = outputs.page_asked_for(report_path, output, form, "--report")
    tuning.collect_garbage_rarely()
    if no_report and (report_path or open_report):
        raise UsageError("--no-report contradicts --report and --open")
    if choices["capture"] == "-":
        raise UsageError("--capture names a file: standard input is for TRACE")
    if redact and choices["rank_summary"]:
        raise UsageError(
            "--redact contradicts --rank-summary, which holds names of operators, process groups and the host"
        )
    redaction = _redaction(trace) if redact else None
    html = _report_path(report_path, redaction.file_name if redaction and trace != "-" else trace)
    text = None if output in (None, "-") else Path(str(output))
    if tables_format and tables_path is None:
        raise UsageError("--tables-format says how to write tables; --tables DIR says where")
    tables = None if tables_path is None else Path(tables_path)
    if not no_report and (lacking := missing_for_pages()):
        if report_path or open_report:
            raise UsageError(lacking)
        outputs.complain(f"no page: {lacking}")
        no_report = True
    destinations = Destinations(None if no_report else html, text, tables, tables_format or "parquet")
    _check(destinations, trace, force)
    if choices["rank_summary"]:
        outputs.check_writable(Path(choices["rank_summary"]), trace, "--rank-summary")
    result = _analysed(trace, choices)
    if redaction:
        result = redaction.report(result)
    _write(
        result,
        "details" if verbose and form == "text" else form,
        destinations,
        redaction.text if redaction else printable,
        max_report_mb,
    )
    if open_report:
        _open(html)
    broken = broken_gates(result, Gates(fail_on, max_idle))
    if broken:
        outputs.complain(f"gate broke: {broken}")
    return GATE_BROKE if broken else 0


def _one_trace(traces: Sequence[str]) -> str:
    """Return the trace argument. Raises ``UsageError`` for several."""
    if len(traces) == 1:
        return traces[0]
    named = shlex.join(printable(trace) for trace in traces)
    raise UsageError(
        f"one trace at a time, and {len(traces)} are named; 'analyze compare {named}' says what changed"
        if len(traces) == 2
        else f"one trace at a time, and {len(traces)} are named; 'analyze compare BEFORE AFTER' compares two"
    )


def _check(destinations: Destinations, trace: str, force: bool) -> None:
    """Refuse outputs that must not be written, before the analysis."""
    html, text = destinations.html, destinations.text
    if text is not None:
        outputs.check_writable(text, trace, "--output")
        if html is not None and outputs.same_file(html, text):
            raise UsageError(f"{text}: --output and the HTML report cannot be one file")
    if html is not None:
        outputs.check_report_path(html, trace, force)
    if destinations.tables is not None:
        outputs.check_folder(destinations.tables, "--tables")


def _analysed(trace: str, choices: Mapping[str, Any]) -> "Report":
    """Return the report of the trace, with progress on a terminal."""
    if trace == "-" and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("nothing is piped into standard input; pipe a trace into it, or name a file")
    if (reason := why_slow()) is not None:
        outputs.complain(reason)
    tuning.limit_threads(trace)
    from trace_analyzer.cli.progress import Progress
    from trace_analyzer.ingest import load
    from trace_analyzer.ingest.trace import read_capture

    captured = None
    options = {**choices, "peak_tflops": dict(choices["peak_tflops"])}
    max_bytes = options.pop("max_bytes")
    capture = options.pop("capture")
    summary = options.pop("rank_summary")
    with Progress() as progress:
        with tuning.beside(_prepare):
            loaded = load(trace, max_bytes=max_bytes, progress=progress)
            if capture is not None:
                captured = read_capture(
                    capture, partial(load, max_bytes=max_bytes, progress=progress), max_bytes=max_bytes
                )
        from trace_analyzer.pipeline import Options, report_of

        result = report_of(loaded, Options(**options), progress, capture=captured)
    if summary:
        from trace_analyzer.ranks.recording import write_summary

        write_summary(loaded, result, Path(summary))
    return result


def _prepare() -> None:
    """Import what analyses need, and read the largest catalogues."""
    import trace_analyzer.pipeline  # noqa: F401
    from trace_analyzer.catalog import devices, kernels

    devices.devices()
    kernels.rules()


def _redaction(trace: str) -> "Redaction":
    """Return the redaction of all outputs about the trace."""
    tuning.limit_threads(trace)
    from trace_analyzer.render.redact import Redaction

    return Redaction("" if trace == "-" else printable(trace))


def _report_path(given: str | None, trace: str) -> Path:
    return Path(given) if given else outputs.default_report_path(trace)


def _write(
    result: "Report",
    form: str,
    destinations: Destinations,
    shown: Callable[[str], str],
    max_report_mb: float | None,
) -> None:
    """Print or write the result, then the HTML report, which may take longer; a result file is completed only after it.

    ``shown`` formats paths.
    """
    command = shlex.join(shown(word) for word in ("analyze", *click.get_current_context().meta[ARGUMENTS]))
    with Outputs() as files:
        if destinations.text is None:
            text = _rendered(result, form, outputs.text_width(), outputs.wants_colour())
            outputs.say(linked(text) if form in ("text", "details") and wants_links() else text)
        else:
            files.write_text(destinations.text, _rendered(result, form, 100, colour=False))
        if destinations.tables is not None:
            written = result.write_tables(destinations.tables, destinations.tables_format)
            outputs.complain(f"tables: {len(written)} files in {shown(str(destinations.tables))}")
        if destinations.html is not None:
            from trace_analyzer.cli.progress import Progress

            with Progress() as progress:
                progress("writing the report")
                result.to_html(destinations.html, command=command, max_mb=max_report_mb)
            outputs.complain(f"report: {shown(str(destinations.html))}")
            size = destinations.html.stat().st_size / 1e6
            if max_report_mb is not None and size > max_report_mb:
                outputs.complain(f"--max-report-mb {max_report_mb:g}: the report takes {size:.1f} MB, the least it can")


def _rendered(result: "Report", form: str, width: int, colour: bool) -> str:
    if form == "json":
        return result.to_json()
    if form == "markdown":
        return result.to_markdown()
    if form == "agent":
        return result.to_agent_text()
    from trace_analyzer.render.terminal import summary

    return summary(result, width, colour, verbose=form == "details")


def _open(path: Path) -> None:
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        outputs.complain(f"no browser could be started; open {path} yourself")


def broken_gates(result: "Report", gates: Gates) -> str:
    """Name the gates that broke, with the figures; "" when none did."""
    if not gates.regimes and gates.max_idle is None:
        return ""
    verdict = result.verdict
    if verdict.regime is None:
        return f"the trace has no regime to hold against it (status {verdict.status}): {verdict.headline}"
    broken = []
    if verdict.regime in gates.regimes:
        cause = f", cause {verdict.cause}" if verdict.cause else ""
        broken.append(f"--fail-on {verdict.regime}: that is the regime{cause} ({verdict.confidence} confidence)")
    idle = verdict.shares.idle if verdict.shares else None
    if gates.max_idle is not None and (idle is None or idle > gates.max_idle):
        ratio_text = "unknown" if idle is None else f"{idle:.4g}"
        broken.append(f"--max-idle {gates.max_idle:g}: the device idles {ratio_text} of the verdict's window")
    return "; ".join(broken)
