"""Implement the verbs about one recording other than `report`: `explain`, `whatif`, `export` and `memory`."""

import glob
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import click

from trace_analyzer import options, tuning, units
from trace_analyzer.cli import GATE_BROKE, compare, outputs
from trace_analyzer.cli.options import Results, analysis_options, check_new, read_report, result_options, verb
from trace_analyzer.errors import UsageError
from trace_analyzer.vocabulary import CHANGE_PARTS


@verb()
@click.argument("trace")
@click.argument("thing", metavar="ID", default="verdict")
@analysis_options("device", "export")
@result_options("text, or JSON for scripts", ("text", "json"), page="Write the explanation as a page to FILE.")
def explain(trace: str, thing: str, results: Results, chosen: options.Options) -> None:
    """Explain one item of the report on TRACE, with its evidence and the next command.

    \b
      analyze explain trace.json verdict              why, and by which rule
      analyze explain trace.json advice:cuda-graphs   one piece of advice
      analyze explain trace.json gap:12               one idle interval (row of table gaps)
      analyze explain trace.json kernel:1a2b3c4d/3    all runs of a kernel, or the third
      analyze explain trace.json kernel:gemm          the kernel with this in its name
      analyze explain trace.json step:2               one step (step:2@1: of device 1)
      analyze explain trace.json check:link_coverage  one check of the trace
      analyze explain trace.json memory:0             what holds most memory at the peak (row of table memory)
      analyze explain snapshot.pickle memory:0        the line that holds most of it, in a memory snapshot

    `analyze TRACE --format agent` lists the most important ids, which are the same in every run. With --redact, kernels
    have the ids that `analyze TRACE --redact --format agent` lists, which reveal nothing of their names.
    """
    results.check(trace)
    tuning.limit_threads(trace)
    from trace_analyzer.allocator.answer import is_snapshot, memory as answered

    with outputs.Progress() as progress:
        if trace != "-" and is_snapshot(trace, chosen.max_bytes):
            held: Any = answered(trace, max_bytes=chosen.max_bytes)
        else:
            held = read_report(trace, chosen, progress)
        held, shown = results.redacted(held, [trace])
        explanation = held.explain(thing)
    results.deliver(explanation, links=True)
    results.deliver_page(explanation, "explanation", shown)


REFUSED = 3
"""Exit code where the trace does not determine the effect of a change."""


def _speedup(text: str) -> tuple[str, float]:
    """Parse ``NAME=K``: a part of the program and its speed-up factor."""
    target, _, number = text.rpartition("=")
    with suppress(ValueError):
        if target and (factor := float(number)) > 0:
            return units.printable(target), factor
    raise click.BadParameter(f"{text!r} is not NAME=K with a factor K over 0")


def _workers(text: Any) -> Any:
    """Parse a number of workers from 1 on, or ``auto``."""
    return text if text == "auto" else click.IntRange(min=1).convert(text, None, None)


@verb()
@click.argument("trace")
@click.option("--no-sync", is_flag=True, help="Remove waits for the device; only enqueue blocking copies.")
@click.option("--pinned", is_flag=True, help="Make copies of pageable memory pinned and asynchronous.")
@click.option(
    "--prefetch", type=_workers, metavar="K", help="Load data in K workers beside the loop; auto: as few as suffice."
)
@click.option("--graphs", is_flag=True, help="Replay each steady step, but for its optimizers, as one CUDA graph.")
@click.option("--fuse", is_flag=True, help="Run each group of table fusions as one kernel.")
@click.option(
    "--fuse-only", type=click.Choice(CHANGE_PARTS["fuse"]), help="Like --fuse, but only for this kind of group."
)
@click.option("--tf32", is_flag=True, help="Run FP32 matmuls and convolutions in TF32, at the roof.")
@click.option("--bf16", is_flag=True, help="Run FP32 work in bfloat16, at the roof.")
@click.option("--overlap", is_flag=True, help="Overlap all communication with computation, at best.")
@click.option("--overlap-copies", is_flag=True, help="Overlap all copies of pinned memory with computation, at best.")
@click.option("--buckets", is_flag=True, help="Send small messages that nothing awaits in between as one.")
@click.option("--batch", type=click.FloatRange(min=0, min_open=True), metavar="K", help="Multiply the batch by K.")
@click.option("--memory", metavar="SNAPSHOT", help="Say by this memory snapshot of the program whether --batch fits.")
@click.option("--warm", is_flag=True, help="Remove compilation, loading and allocation.")
@click.option("--warm-only", type=click.Choice(CHANGE_PARTS["warm"]), help="Like --warm, but only for this part.")
@click.option(
    "--speedup",
    type=_speedup,
    metavar="NAME=K",
    multiple=True,
    help="Make a part K times as fast: CPU, GPU, a bucket or group of kernels, copies, an operator, a module. Repeatable.",
)
@analysis_options("device", "export")
@result_options(
    "the summary, the estimate for scripts (docs/whatif.md), or a comment for CI",
    page="Draw a tornado plot of all scenarios as one HTML file.",
)
def whatif(
    trace: str,
    speedup: tuple[tuple[str, float], ...],
    memory: str | None,
    results: Results,
    chosen: options.Options,
    **changes: Any,
) -> int:
    """Estimate the effect of a change before making it.

    \b
      analyze whatif trace.json.gz                              what would help most
      analyze whatif trace.json --no-sync --prefetch 4          the step with both
      analyze whatif trace.json --speedup matmul=2 --format json

    Replays the trace's dependencies with changed times. Changes can be combined; without any, each standard change is
    estimated. Exits with 3 and a reason where the trace does not determine the effect.
    """
    results.check(trace)
    tuning.limit_threads(trace)
    from trace_analyzer import ingest, pipeline
    from trace_analyzer.replay.kernel_changes import target_key
    from trace_analyzer.replay.whatif import changes_of

    for name in CHANGE_PARTS:
        if (part := changes.pop(f"{name}_only")) and changes[name]:
            raise click.UsageError(f"--{name} and --{name}-only exclude each other")
        changes[name] = part or changes[name]
    targets = [target_key(target) for target, _ in speedup]
    twice = sorted({target for target in targets if targets.count(target) > 1})
    if twice:
        raise click.UsageError(f"--speedup {twice[0]} is asked for twice")
    asked = changes_of(**changes, speedup=dict(speedup))
    if memory is not None and (changes["batch"] is None or memory == "-"):
        raise click.UsageError("--memory names a file, and says whether the batch of --batch fits")
    with outputs.Progress() as progress:
        loaded = ingest.load(trace, max_bytes=chosen.max_bytes, export=chosen.export, progress=progress)
        snapshot = None
        if memory is not None:
            from trace_analyzer.allocator.answer import memory as recorded

            snapshot = recorded(memory, max_bytes=chosen.max_bytes)
            if not snapshot.devices:
                raise click.UsageError(f"--memory {memory}: records no memory of a device")
        result, shown = results.redacted(pipeline.whatif_of(loaded, asked, chosen, progress, snapshot), (trace,))
    results.deliver(result)
    results.deliver_page(result, "plot", shown)
    return REFUSED if results.is_refusal(result, "no estimate", shown) else 0


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
@analysis_options("device", "gpu", "capture", "export")
def export(trace: str, perfetto: str, before: str | None, force: bool, chosen: options.Options) -> int:
    """Write TRACE with tracks of idle causes, queue depth and the regime of each step.

    The original events are unchanged. Of a folder or pattern of a job's ranks, write one timeline of all: clocks are
    aligned, and what each rank waited for in collectives is a track.
    """
    path = Path(perfetto)
    check_new(path, trace, "--perfetto", force)
    if trace == "-" or Path(trace).is_fifo():
        # The file is read twice: to analyse it, and to copy its events.
        with (
            NamedTemporaryFile(prefix="pipe-") as copy,
            sys.stdin.buffer if trace == "-" else open(trace, "rb") as pipe,
        ):
            shutil.copyfileobj(pipe, copy)
            copy.flush()
            return _export_one(copy.name, path, before, chosen)
    if Path(trace).is_dir() or (glob.has_magic(trace) and not Path(trace).exists()):
        if before is not None or chosen != options.Options():
            raise UsageError(f"{trace}: --before, --device, --gpu and --capture are of one trace, not of a job's ranks")
        return _export_job(trace, path)
    return _export_one(trace, path, before, chosen)


def _export_one(trace: str, path: Path, before: str | None, chosen: options.Options) -> int:
    """Write one trace with the added tracks."""
    tuning.limit_threads(*(one for one in (trace, before) if one is not None))
    from trace_analyzer.render.exports import write_perfetto

    sides = [] if before is None else compare.read_sides((before,), chosen)
    with outputs.Progress() as progress:
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


def _export_job(source: str, path: Path) -> int:
    """Write the timeline of all ranks in a folder or of a pattern."""
    from trace_analyzer.documents.ranks import doubt_lines
    from trace_analyzer.ranks.job import analyze_ranks
    from trace_analyzer.render.rank_timeline import write_job_perfetto

    with outputs.Progress() as progress:
        report = analyze_ranks(source, progress=progress)
        inputs = [Path(rank.path) for rank in report.ranks if rank.rank in report.rank_clocks]
        if path.exists() and any(item.exists() and item.samefile(path) for item in inputs):
            raise UsageError(f"--perfetto {path}: is the trace of a rank")
        if not report.job.seen:
            raise UsageError(f"{source}: no trace of a rank could be used; `analyze ranks` says why")
        progress("writing the timeline", None)
        notes = write_job_perfetto(report, path)
    for note in (*doubt_lines(report), *notes, *report.notes):
        outputs.complain(note)
    outputs.complain(f"trace: {path}")
    return 0


_SIZE = re.compile(r"(?P<number>[0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(?P<unit>[KMGT]?)(?P<binary>i?)B?", re.IGNORECASE)


def _bytes(text: str) -> int:
    """Parse ``20GiB``, ``500M`` or a number of bytes; GB are powers of ten, GiB and G of two."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is no size such as 20GiB, 500MB or a number of bytes")
    decimal = text.strip().upper().endswith("B") and not match["binary"]
    return int(float(match["number"]) * (1000 if decimal else 1024) ** " KMGT".index(match["unit"].upper() or " "))


@verb()
@click.argument("source", metavar="SNAPSHOT|TRACE")
@click.option(
    "--max-peak", type=_bytes, metavar="SIZE", help="Exit with 1 if a device's peak is over SIZE (20GiB, 500MB)."
)
@click.option("--before", metavar="SNAPSHOT|TRACE", help="Say what changed at the peak since this recording.")
@click.option(
    "--trace", metavar="TRACE", help="Say where SNAPSHOT's peak is in this trace of the same run (profile_memory=True)."
)
@analysis_options("max_bytes")
@result_options(
    "the summary, the answer for scripts (docs/memory.md), Markdown, or 2 kB for language models, with ids for explain",
    ("text", "json", "markdown", "agent"),
    schema=("trace_analyzer.allocator", "Memory"),
    page="Write the peak, live bytes over time and a map of the segments to FILE.",
)
def memory(
    source: str, max_peak: int | None, before: str | None, trace: str | None, results: Results, chosen: options.Options
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
