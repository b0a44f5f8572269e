"""Implement `analyze whatif TRACE`: estimate the effect of a change before making it."""

import math
from pathlib import Path
from typing import Any

import click

from trace_analyzer import tuning
from trace_analyzer.cli import outputs
from trace_analyzer.cli.options import DEBUG, PLUGIN, Results, output_options, page_options, with_options
from trace_analyzer.files import write_text
from trace_analyzer.replay.parts import PARTS
from trace_analyzer.units import printable

REFUSED = 3
"""Exit code where the trace does not determine the effect of a change."""


class _Speedup(click.ParamType[tuple[str, float]]):
    """Parse ``NAME=K``: a part of the program and its speed-up factor."""

    name = "NAME=K"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        """Return name and factor."""
        if isinstance(value, tuple):
            return value
        target, _, number = str(value).rpartition("=")
        try:
            factor = float(number)
        except ValueError:
            factor = math.nan
        if not target or not factor > 0:
            self.fail(f"{value!r} is not NAME=K with a factor K over 0", param, ctx)
        return printable(target), factor


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("trace")
@click.option("--no-sync", is_flag=True, help="No call waits for the device; blocking copies are enqueued.")
@click.option("--pinned", is_flag=True, help="Copies of pageable memory become pinned and asynchronous.")
@click.option("--prefetch", type=click.IntRange(min=1), metavar="K", help="K workers load data beside the loop.")
@click.option("--graphs", is_flag=True, help="Each steady step is one CUDA graph.")
@click.option("--fuse", is_flag=True, help="Each chain of table fusions is one kernel.")
@click.option("--fuse-only", type=click.Choice(PARTS["fuse"]), help="As --fuse, but of this kind of chain alone.")
@click.option("--tf32", is_flag=True, help="FP32 matmuls and convolutions run in TF32, at the roof.")
@click.option("--bf16", is_flag=True, help="FP32 work runs in bfloat16, at the roof.")
@click.option("--overlap", is_flag=True, help="All communication runs beside computation, at best.")
@click.option("--batch", type=click.FloatRange(min=0, min_open=True), metavar="K", help="The batch is K times as big.")
@click.option("--warm", is_flag=True, help="Nothing is compiled, loaded or allocated any more.")
@click.option("--warm-only", type=click.Choice(PARTS["warm"]), help="As --warm, but this part alone.")
@click.option(
    "--speedup",
    type=_Speedup(),
    multiple=True,
    help="A part is K times as fast: CPU, GPU, a bucket or group of kernels, copies, an operator, a module. Repeatable.",
)
@click.option("--device", metavar="N", help="Predict the steps of this device, not of the one with most busy time.")
@with_options(
    (
        *output_options("the estimate for scripts (docs/whatif.md)"),
        *page_options("--plot", "Draw a tornado plot of all scenarios, as one HTML file."),
        PLUGIN,
        DEBUG,
    )
)
@click.option("--no-cache", is_flag=True, help="Read the trace anew, and keep nothing of it for the next time.")
def whatif(
    trace: str, device: str | None, speedup: tuple[tuple[str, float], ...], no_cache: bool, **changes: Any
) -> int:
    """Estimate what a change would bring, before making it.

    \b
      analyze whatif trace.json.gz                              what would help most
      analyze whatif trace.json --no-sync --prefetch 4          the step with both
      analyze whatif trace.json --speedup matmul=2 --format json

    Replays the trace's dependencies with changed times. Changes compose. Without any, each standard change is estimated.
    Exits with 3, and a reason, where the trace does not say what a change would bring.
    """
    results = Results.taken(changes, "--plot")
    results.check(trace)
    tuning.limit_threads(trace)
    from trace_analyzer.cli.progress import Progress
    from trace_analyzer.ingest import load
    from trace_analyzer.pipeline import Options, report_of
    from trace_analyzer.render.whatif import tornado_html
    from trace_analyzer.replay.kernel_changes import target_key
    from trace_analyzer.replay.whatif import changes_of
    from trace_analyzer.replay.whatif import whatif as estimated
    from trace_analyzer.trace_cache import load_cached

    for name in PARTS:
        if (part := changes.pop(f"{name}_only")) and changes[name]:
            raise click.UsageError(f"--{name} and --{name}-only exclude each other")
        changes[name] = part or changes[name]
    targets = [target_key(target) for target, _ in speedup]
    twice = sorted({target for target in targets if targets.count(target) > 1})
    if twice:
        raise click.UsageError(f"--speedup {twice[0]} is asked for twice")
    asked = changes_of(**changes, speedup=dict(speedup))
    number = int(device) if device is not None and device.lstrip("-").isdecimal() else device
    with Progress() as progress:
        loaded = (load if no_cache else load_cached)(trace, progress=progress)
        report = report_of(loaded, Options(device=number), progress)
        progress("replaying")
        result, shown = outputs.redacted(estimated(report, asked), (trace,), results.is_redacted)
    if results.form == "json":
        text = result.to_json()
    elif results.form == "markdown":
        text = result.to_markdown()
    else:
        text = result.summary(outputs.width_of(results.output))
    outputs.deliver(text, results.output)
    page = tornado_html(result) if results.page else None
    if page is not None:
        write_text(Path(str(results.page)), page)
        outputs.complain(f"plot: {shown(str(results.page))}")
    if result.status == "refused":
        outputs.complain(shown(f"no estimate: {result.reason}"))
        return REFUSED
    return 0
