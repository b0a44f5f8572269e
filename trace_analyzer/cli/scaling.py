"""Implement `analyze scaling TRACE TRACE...`: find overhead in a series of batches."""

from pathlib import Path
from typing import Any

import click

from trace_analyzer.cli import FAILED, outputs
from trace_analyzer.cli.compare import READING, check_standard_input, paths_of, read_side, with_options
from trace_analyzer.cli.progress import Progress
from trace_analyzer.errors import UsageError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("traces", nargs=-1, required=True, metavar="TRACE TRACE...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What to print: the summary, or the result for scripts.",
)
@click.option("-o", "--output", metavar="FILE", help="Write it into FILE instead of printing it.")
@click.option("--plot", metavar="FILE", help="Draw step, busy and idle time over the batch, as one HTML file.")
@click.option("--force", is_flag=True, help="Overwrite the FILE of --plot.")
@outputs.redact_option
@with_options(READING)
def scaling(
    traces: tuple[str, ...], form: str, output: str | None, plot: str | None, force: bool, redact: bool, **reading: Any
) -> int:
    """Tell from recordings of one program at several batches what is overhead.

    The batch is recognised from the shapes of inputs (record_shapes=True). What stays flat while the work grows is overhead.
    """
    if len(traces) < 2:
        raise UsageError("scaling needs two traces or more, of one program at several batches")
    check_standard_input(traces)
    if not outputs.is_standard_output(output):
        outputs.check_writable(Path(str(output)), traces[0], "--output")
    if plot:
        outputs.check_writable(Path(plot), traces[0], "--plot")
        if Path(plot).exists() and not force:
            raise UsageError(f"--plot {plot}: exists; --force overwrites it")
    from trace_analyzer.compare.scaling import scale_profiles

    with Progress() as progress:
        sides = [read_side(trace, reading, progress) for trace in traces]
        result, shown = outputs.redacted(scale_profiles(sides), (*traces, *paths_of(sides)), redact)
    text = result.to_json() if form == "json" else result.summary(outputs.text_width())
    outputs.deliver(text, output)
    if result.status == "refused":
        outputs.complain(shown(f"not scaled: {result.reason}"))
        return FAILED
    if plot:
        result.to_html(plot)
        outputs.complain(f"plot: {shown(plot)}")
    return 0
