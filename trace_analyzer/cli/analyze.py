"""Implement `analyze report TRACE`, or `analyze TRACE`: summary, HTML report and gates of one trace."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from trace_analyzer import installation, tuning, units, vocabulary
from trace_analyzer.cli import ARGUMENTS, GATE_BROKE, options, outputs, process
from trace_analyzer.errors import UsageError
from trace_analyzer.files import Outputs
from trace_analyzer.options import Options

if TYPE_CHECKING:
    from trace_analyzer.report import Report


@options.verb()
@click.argument("traces", metavar="TRACE", nargs=-1, required=True)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Print details: evidence, kernels, operators, all advice with its reasons, steps, notes.",
)
@click.option(
    "--report",
    "--html",
    "report_path",
    metavar="PATH",
    help="Write the HTML report to PATH instead of <trace name>.report.html.",
)
@click.option("--open", "open_report", is_flag=True, help="Open the HTML report in the browser.")
@click.option("--no-report", is_flag=True, help="Write no HTML report.")
@click.option(
    "--max-report-mb",
    type=options.POSITIVE,
    metavar="N",
    help="Keep the HTML report under N MB: omit the shortest Python frames first, then details.",
)
@click.option(
    "--force", is_flag=True, help="Overwrite a file at the report's path that is not a report of this program."
)
@options.format_option(
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
    type=click.Path(path_type=Path),
    help="Write each table of the report (docs/tables.md) to a file in DIR.",
)
@click.option(
    "--tables-format", type=click.Choice(["parquet", "csv"]), help="Format of these files (parquet by default)."
)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(tuple(vocabulary.REGIMES)),
    metavar="REGIME",
    help=f"Exit with 1 if the verdict is REGIME: {', '.join(vocabulary.REGIMES)}. Repeatable.",
)
@click.option(
    "--max-idle",
    type=options.Number(0, 1),
    metavar="RATIO",
    help="Exit with 1 if the device idles more than this share (0 to 1) of the verdict's window.",
)
@options.analysis_options()
@click.option(
    "--rank-summary", metavar="FILE", help="Write a few kilobytes for `analyze ranks` to FILE (name it *.rank.gz)."
)
@click.option(
    "--redact",
    is_flag=True,
    help="Keep only data known to be harmless in all output: figures, shapes, and names made of public words of PyTorch "
    "and its kernels. Replace other names with name1, name2, ...; remove directories, hosts and arguments.",
)
def report(
    traces: tuple[str, ...],
    verbose: bool,
    report_path: str | None,
    open_report: bool,
    no_report: bool,
    max_report_mb: float | None,
    force: bool,
    form: str,
    output: str | None,
    tables_path: Path | None,
    tables_format: Literal["parquet", "csv"] | None,
    fail_on: tuple[str, ...],
    max_idle: float | None,
    rank_summary: str | None,
    redact: bool,
    chosen: Options,
) -> int:
    """Show what limits the workload in TRACE, and what to change first.

    TRACE is a PyTorch Profiler file (.json, .json.gz or .json.zst), or - for standard input. The HTML
    report embeds the names and times of all events in TRACE; see --redact to share it.
    """
    if len(traces) > 1:
        named = shlex.join(map(units.printable, traces)) if len(traces) == 2 else "BEFORE AFTER"
        raise UsageError(
            f"one trace at a time, and {len(traces)} are named; 'analyze compare {named}'"
            f" {'says what changed' if len(traces) == 2 else 'compares two'}"
        )
    trace = traces[0]
    process.check_environment()
    report_path, output = outputs.page_asked_for(report_path, output, form, "--report")
    tuning.collect_garbage_rarely()
    if no_report and (report_path or open_report):
        raise UsageError("--no-report contradicts --report and --open")
    if redact and rank_summary:
        raise UsageError(
            "--redact contradicts --rank-summary, which holds names of operators, process groups and the host"
        )
    if tables_format and tables_path is None:
        raise UsageError("--tables-format says how to write tables; --tables DIR says where")
    if not no_report and (lacking := installation.missing_for_pages()):
        if report_path or open_report:
            raise UsageError(lacking)
        outputs.complain(f"no page: {lacking}")
        no_report = True
    tuning.limit_threads(trace)
    redaction = None
    if redact:
        from trace_analyzer.redact import Redaction

        redaction = Redaction("" if trace == "-" else units.printable(trace))
    shown = redaction.text if redaction else units.printable
    name = redaction.file_name if redaction and trace != "-" else trace
    html = None if no_report else Path(report_path) if report_path else outputs.default_report_path(name)
    text = None if output is None or outputs.is_standard_output(output) else Path(output)
    _check(trace, html, text, tables_path, force)
    if rank_summary:
        outputs.check_writable(Path(rank_summary), trace, "--rank-summary")
    result = _analysed(trace, chosen, rank_summary)
    if redaction:
        result = redaction.report(result)
    command = shlex.join(shown(word) for word in ("analyze", *click.get_current_context().meta[ARGUMENTS]))
    details = verbose and form == "text"
    with Outputs() as files:  # the HTML report may take longer; a result file is completed only after it
        if text is None:
            outputs.deliver(
                _rendered(result, form, outputs.text_width(), outputs.wants_colour(), details),
                None,
                links=form == "text",
            )
        else:
            files.write_text(text, _rendered(result, form, 100, False, details))
        if tables_path is not None:
            written = result.write_tables(tables_path, tables_format or "parquet")
            outputs.complain(f"tables: {len(written)} files in {shown(str(tables_path))}")
        if html is not None:
            with outputs.Progress() as progress:
                progress("writing the report")
                result.to_html(html, command=command, max_mb=max_report_mb)
            outputs.complain(f"report: {shown(str(html))}")
            size = html.stat().st_size / 1e6
            if max_report_mb is not None and size > max_report_mb:
                outputs.complain(f"--max-report-mb {max_report_mb:g}: the report takes {size:.1f} MB, the least it can")
    if open_report and html is not None:
        import webbrowser

        if not webbrowser.open(html.resolve().as_uri()):
            outputs.complain(f"no browser could be started; open {html} yourself")
    if broken := broken_gates(result, fail_on, max_idle):
        outputs.complain(f"gate broke: {broken}")
    return GATE_BROKE if broken else 0


def _check(trace: str, html: Path | None, text: Path | None, tables: Path | None, force: bool) -> None:
    """Refuse outputs that must not be written, before the analysis."""
    if text is not None:
        outputs.check_writable(text, trace, "--output")
        if html is not None and outputs.same_file(html, text):
            raise UsageError(f"{text}: --output and the HTML report cannot be one file")
    if html is not None:
        outputs.check_report_path(html, trace, force)
    if tables is not None:
        outputs.check_folder(tables, "--tables")


def _analysed(trace: str, chosen: Options, summary: str | None) -> "Report":
    """Return the report of the trace, with progress on a terminal; write the input of ``analyze ranks`` if asked."""
    if trace == "-" and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("nothing is piped into standard input; pipe a trace into it, or name a file")
    if (reason := installation.why_slow()) is not None:
        outputs.complain(reason)
    from trace_analyzer.ingest import load

    with outputs.Progress() as progress:
        with tuning.beside(_prepare):
            loaded = load(trace, max_bytes=chosen.max_bytes, export=chosen.export, progress=progress)
        from trace_analyzer import pipeline

        captured = None if chosen.capture is None else pipeline.captured(chosen, loaded.rank, progress)
        result = pipeline.report_of(loaded, chosen, progress, capture=captured)
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


def _rendered(result: "Report", form: str, width: int, colour: bool, details: bool) -> str:
    if form == "json":
        return result.to_json()
    if form == "markdown":
        return result.to_markdown()
    if form == "agent":
        return result.to_agent_text()
    from trace_analyzer.render.terminal import summary

    return summary(result, width, colour, verbose=details)


def broken_gates(result: "Report", regimes: tuple[str, ...], max_idle: float | None) -> str:
    """Name the gates that broke, with the figures; "" when none did."""
    if not regimes and max_idle is None:
        return ""
    verdict = result.verdict
    if verdict.regime is None:
        return f"the trace has no regime to hold against it (status {verdict.status}): {verdict.headline}"
    broken = []
    if verdict.regime in regimes:
        cause = f", cause {verdict.cause}" if verdict.cause else ""
        broken.append(f"--fail-on {verdict.regime}: that is the regime{cause} ({verdict.confidence} confidence)")
    idle = verdict.shares.idle if verdict.shares else None
    if max_idle is not None and (idle is None or idle > max_idle):
        ratio_text = "unknown" if idle is None else f"{idle:.4g}"
        broken.append(f"--max-idle {max_idle:g}: the device idles {ratio_text} of the verdict's window")
    return "; ".join(broken)
