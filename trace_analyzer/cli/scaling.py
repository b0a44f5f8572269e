"""Implement `analyze scaling TRACE TRACE...`: find overhead in a series of batches."""

from typing import Any

import click

from trace_analyzer import tuning
from trace_analyzer.cli import FAILED, outputs
from trace_analyzer.cli.compare import check_standard_input, paths_of, read_side
from trace_analyzer.cli.options import (
    PAGE_OUTPUT,
    READING,
    Results,
    format_option,
    json_schema_option,
    page_options,
    with_options,
)
from trace_analyzer.cli.progress import Progress
from trace_analyzer.errors import UsageError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("traces", nargs=-1, required=True, metavar="TRACE TRACE...")
@format_option("the summary, or the result for scripts", ("text", "json"))
@json_schema_option("trace_analyzer.compare.scaling", "Scaling")
@with_options(
    (
        PAGE_OUTPUT,
        *page_options("--plot", "Draw step, busy and idle time over the batch size as one HTML file."),
        *READING,
    )
)
def scaling(traces: tuple[str, ...], **options: Any) -> int:
    """Find the overhead of a program from recordings at several batch sizes.

    The batch size is recognised from the shapes of inputs (record_shapes=True). Time that stays constant while the work
    grows is overhead.
    """
    if len(traces) < 2:
        raise UsageError("scaling needs two traces or more, of one program at several batches")
    check_standard_input(traces)
    results = Results.taken(options, "--plot")
    results.check(traces[0])
    tuning.limit_threads(*traces)
    from trace_analyzer.compare.scaling import scale_profiles

    with Progress() as progress:
        sides = [read_side(trace, options, progress) for trace in traces]
        scaled, paths = scale_profiles(sides), (*traces, *paths_of(sides))
        result, shown = outputs.redacted(scaled, paths, results.is_redacted)
    text = result.to_json() if results.form == "json" else result.summary(outputs.width_of(results.output))
    outputs.deliver(text, results.output)
    if result.status == "refused":
        outputs.complain(shown(f"not scaled: {result.reason}"))
        return FAILED
    if results.page:
        result.to_html(results.page)
        outputs.complain(f"plot: {shown(results.page)}")
    return 0
