"""Implement `analyze export TRACE --perfetto OUT`: the trace with the analysis' results as tracks."""

from pathlib import Path

import click

from trace_analyzer import tuning
from trace_analyzer.cli import outputs
from trace_analyzer.cli.compare import read_sides
from trace_analyzer.cli.options import analysis_options, check_new, read_report, verb
from trace_analyzer.cli.progress import Progress
from trace_analyzer.errors import UsageError
from trace_analyzer.options import Options


@verb()
@click.argument("trace")
@click.option(
    "--perfetto",
    metavar="OUT",
    required=True,
    help="Write the trace with the added tracks to OUT (.json or .json.gz), for ui.perfetto.dev.",
)
@click.option(
    "--before",
    metavar="TRACE",
    help="Compare with this trace (or folder, report, baseline), and add the differences as a track.",
)
@click.option("--force", is_flag=True, help="Overwrite OUT.")
@analysis_options("device", "gpu", "capture")
def export(trace: str, perfetto: str, before: str | None, force: bool, chosen: Options) -> int:
    """Write TRACE with tracks of idle causes, queue depth and the regime of each step.

    The original events are unchanged.
    """
    if trace == "-":
        raise UsageError("export reads TRACE twice, and standard input can be read once; name a file")
    path = Path(perfetto)
    check_new(path, trace, "--perfetto", force)
    tuning.limit_threads(*(one for one in (trace, before) if one is not None))
    from trace_analyzer.render.exports import write_perfetto

    sides = [] if before is None else read_sides((before,), chosen)
    with Progress() as progress:
        report = read_report(trace, chosen, progress)
        differences = None
        if sides:
            from trace_analyzer.compare.decomposition import compare_profiles, differing_intervals
            from trace_analyzer.compare.profiles import profile_of

            result = compare_profiles(sides[0], profile_of(report))
            if result.status == "refused":
                raise UsageError(f"--before {before}: not compared: {result.reason}")
            differences = differing_intervals(report, result)
        progress("writing the trace", None)
        write_perfetto(trace, report, path, differences)
    outputs.complain(f"trace: {path}")
    return 0
