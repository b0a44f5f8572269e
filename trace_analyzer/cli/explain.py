"""Implement `analyze explain TRACE ID`: explain one item of a report in full."""

from pathlib import Path

import click

from trace_analyzer import tuning
from trace_analyzer.cli import outputs
from trace_analyzer.cli.hyperlinks import linked, wants_links
from trace_analyzer.cli.options import DEBUG, OUTPUT, PLUGIN, format_option


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("trace")
@click.argument("thing", metavar="ID", default="verdict")
@click.option("--device", metavar="N", help="Judge this device instead of the one with most busy time.")
@format_option("text, or JSON for scripts", ("text", "json"))
@OUTPUT
@PLUGIN
@outputs.redact_option
@DEBUG
def explain(trace: str, thing: str, device: str | None, form: str, output: str | None, **options: bool) -> None:
    """Explain one item of the report on TRACE, with its evidence and the next command.

    \b
      analyze explain trace.json verdict              why, and by which rule
      analyze explain trace.json advice:cuda-graphs   one piece of advice
      analyze explain trace.json gap:12               one idle interval (row of table gaps)
      analyze explain trace.json kernel:1a2b3c4d/3    all runs of a kernel, or the third
      analyze explain trace.json step:2               one step (step:2@1: of device 1)
      analyze explain trace.json check:link_coverage  one check of the trace

    `analyze TRACE --format agent` lists the most important ids, which are the same in every run. With --redact, kernels
    have the ids that `analyze TRACE --redact --format agent` lists, which reveal nothing of their names.
    """
    if not outputs.is_standard_output(output):
        outputs.check_writable(Path(str(output)), trace, "--output")
    tuning.limit_threads(trace)
    from trace_analyzer.cli.analyze import device as parsed
    from trace_analyzer.cli.progress import Progress
    from trace_analyzer.ingest import load
    from trace_analyzer.options import Options
    from trace_analyzer.pipeline import report_of
    from trace_analyzer.units import printable

    with Progress() as progress:
        loaded = load(trace, progress=progress)
        report = report_of(loaded, Options(device=None if device is None else parsed(device)), progress)
        if options["redact"]:
            from trace_analyzer.render.redact import Redaction

            report = Redaction("" if trace == "-" else printable(trace)).report(report)
        explanation = report.explain(thing)
    text = explanation.to_json() if form == "json" else explanation.summary(outputs.width_of(output))
    links = form == "text" and outputs.is_standard_output(output) and wants_links()
    outputs.deliver(linked(text) if links else text, output)
