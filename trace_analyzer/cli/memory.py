"""Implement the verb `memory`: where device memory goes."""

import re
from typing import Any

import click

from trace_analyzer import tuning
from trace_analyzer.cli import GATE_BROKE, outputs
from trace_analyzer.cli.options import Results, analysis_options, result_options, verb
from trace_analyzer.options import Options

_SIZE = re.compile(r"(?P<number>[0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(?P<unit>[KMGT]?)(?P<binary>i?)B?", re.IGNORECASE)


class _Bytes(click.ParamType[int]):
    """Parse ``20GiB``, ``500M`` or a number of bytes; GB are powers of ten, GiB and G of two."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no size such as 20GiB, 500MB or a number of bytes", param, ctx)
        decimal = str(value).strip().upper().endswith("B") and not match["binary"]
        return int(float(match["number"]) * (1000 if decimal else 1024) ** " KMGT".index(match["unit"].upper() or " "))


@verb()
@click.argument("source", metavar="SNAPSHOT|TRACE")
@click.option(
    "--max-peak", type=_Bytes(), metavar="SIZE", help="Exit with 1 if a device's peak is over SIZE (20GiB, 500MB)."
)
@click.option("--before", metavar="SNAPSHOT|TRACE", help="Say what changed at the peak since this recording.")
@click.option(
    "--trace", metavar="TRACE", help="Say where SNAPSHOT's peak is in this trace of the same run (profile_memory=True)."
)
@analysis_options("max_bytes")
@result_options(
    "the summary, the answer for scripts (docs/memory.md), or Markdown",
    schema=("trace_analyzer.allocator.result", "Memory"),
    page=("--html", "Write the peak, live bytes over time and a map of the segments to FILE."),
)
def memory(
    source: str, max_peak: int | None, before: str | None, trace: str | None, results: Results, chosen: Options
) -> int:
    """Say where device memory goes, why it ran out, and what would lower its peak.

    \b
      analyze memory snapshot.pickle                      who holds the peak, and what would lower it
      analyze memory snapshot.pickle --max-peak 20GiB     a gate for CI
      analyze memory snapshot.pickle --trace trace.json   where in the trace the peak is
      analyze memory snapshot.pickle -o memory.html       the page

    SNAPSHOT is a file of torch.cuda.memory._dump_snapshot, TRACE a trace recorded with profile_memory=True. A snapshot is
    read without making objects of any class, and so runs no code.
    """
    others = [each for each in (before, trace) if each is not None]
    if [source, *others].count("-") > 1:
        raise click.UsageError("- is standard input, which can be read once; name files")
    results.check(source)
    tuning.limit_threads(source)
    from trace_analyzer.allocator.answer import memory as answered
    from trace_analyzer.units import memory_size

    result, shown = results.redacted(
        answered(source, before=before, trace=trace, max_bytes=chosen.max_bytes), (source, *others)
    )
    results.deliver(result)
    results.deliver_page(result, "page", shown)
    over = [device for device in result.devices if max_peak is not None and device.peak_bytes > max_peak]
    for device in over:
        outputs.complain(
            f"the peak of device {device.device} is {memory_size(device.peak_bytes)}, over {memory_size(max_peak)}"
        )
    return GATE_BROKE if over else 0
