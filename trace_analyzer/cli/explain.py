"""Implement `analyze explain TRACE ID`: explain one item of a report in full."""

import click

from trace_analyzer import tuning
from trace_analyzer.cli.options import Results, analysis_options, read_report, result_options, verb
from trace_analyzer.cli.progress import Progress
from trace_analyzer.options import Options
from trace_analyzer.units import printable


@verb()
@click.argument("trace")
@click.argument("thing", metavar="ID", default="verdict")
@analysis_options("device")
@result_options("text, or JSON for scripts", ("text", "json"))
def explain(trace: str, thing: str, results: Results, chosen: Options) -> None:
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
    results.check(trace)
    tuning.limit_threads(trace)
    with Progress() as progress:
        report = read_report(trace, chosen, progress)
        if results.is_redacted:
            from trace_analyzer.redact import Redaction

            report = Redaction("" if trace == "-" else printable(trace)).report(report)
        explanation = report.explain(thing)
    results.deliver(explanation, links=True)
