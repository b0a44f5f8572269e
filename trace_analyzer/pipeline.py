"""Analyse a trace: read it, make the graph of analyses, check the data, judge, and report."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Unpack

import polars as pl
from msgspec.structs import replace

from trace_analyzer import advice, checks, errors, findings, plugins, report_notes, report_parts, verdict, windows
from trace_analyzer.allocator import Memory
from trace_analyzer.analyses import device_models, registry, steps
from trace_analyzer.analysis import Analysis, Declaration, LazyTables, TableGraph, Value
from trace_analyzer.ingest import Progress, Source, Trace, load
from trace_analyzer.ingest.trace import Capture, CaptureFiles, GraphAnnotations, read_capture, read_captures
from trace_analyzer.installation import tool_version, why_slow
from trace_analyzer.options import Choices, Options, takes_options_of
from trace_analyzer.registry import ADDED_ANALYSES, ANALYSES
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.estimates import DeviceReplay
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.whatif import WhatIf, whatif
from trace_analyzer.report import (
    SCHEMA_VERSION,
    Advice,
    Blame,
    Check,
    DeclaredTable,
    DeviceReport,
    HostCost,
    Report,
    StepReport,
    TraceInfo,
    Verdict,
)
from trace_analyzer.schema import Table
from trace_analyzer.tuning import PREFETCHING_THREADS, SMALL_EVENTS, within_query

STAGES = {"linking launches": "linked_events", "explaining idle time": "gaps", "summing up": "attribution"}
"""Stages of the analyses in order, each with the value that ends it; judging follows."""


@takes_options_of(Options)
def analyze(source: Source, *, progress: Progress | None = None, **options: Unpack[Choices]) -> Report:
    """Analyse one trace of PyTorch Profiler: a path, ``"-"`` for standard input, bytes or a binary file.

    ``options`` are those of `trace_analyzer.options.Options`. ``progress`` is called with (stage, fraction or None).

    Warns with ``RuntimeWarning`` where this copy of the package is not compiled, and so is slow. Raises ``InputError``
    when the source is no readable trace and ``UsageError`` for a device, step or GPU that does not exist, or a measured
    step time where the trace has no steps.
    """
    chosen = Options(**options)
    trace = loaded(source, chosen, progress)
    return report_of(trace, chosen, progress, capture=captured(chosen, trace.rank, progress))


def loaded(source: Source, options: Options, progress: Progress | None = None) -> Trace:
    """Read a trace; warn where this copy of the package is not compiled."""
    if (reason := why_slow()) is not None:
        warnings.warn(reason, RuntimeWarning, stacklevel=4)
    return load(source, max_bytes=options.max_bytes, export=options.export, progress=progress)


def captured(options: Options, rank: int | None, progress: Progress | None = None) -> Capture | None:
    """Read what the options name: a second trace, those of a folder for this rank, annotations of graphs; None without."""
    if options.capture is None:
        return None
    read = partial(load, max_bytes=options.max_bytes, progress=progress)
    if isinstance(options.capture, str | Path) and Path(options.capture).is_dir():
        return read_captures(Path(options.capture), rank, read)
    return read_capture(options.capture, read, max_bytes=options.max_bytes)


def figures(
    trace_info: TraceInfo,
    checks: tuple[Check, ...],
    notes: tuple[errors.Note, ...],
    verdict: Verdict,
    device_reports: Mapping[int, DeviceReport],
    step_reports: tuple[StepReport, ...],
    blame_rows: tuple[Blame, ...],
    host_cost_rows: tuple[HostCost, ...],
    advice: tuple[Advice, ...],
    host_steps: steps.HostSteps,
) -> Report:
    """Return the report without its tables and the rows of declared places."""
    return Report(
        SCHEMA_VERSION, tool_version(), trace_info, checks, notes, verdict, tuple(device_reports.values()), step_reports,
        blame_rows, host_cost_rows, advice, tables={}, steps_from=host_steps.source,
    )  # fmt: skip


def replayable(
    trace_info: TraceInfo,
    checks: tuple[Check, ...],
    verdict: Verdict,
    device_reports: Mapping[int, DeviceReport],
    device_replay: DeviceReplay,
) -> tuple[Report, Replay | None]:
    """Return what `whatif` reads of a report, and the replay of its judged device."""
    devices = tuple(device_reports.values())
    report = Report(SCHEMA_VERSION, tool_version(), trace_info, checks, (), verdict, devices, (), (), (), (), tables={})
    return report, device_replay.replay


# Values that follow from the analyses, in order: checks, mask, verdict and window, advice, report.
_VALUES = (
    *windows.VALUES, *checks.VALUES, *findings.VALUES, *verdict.VALUES, *advice.VALUES,
    *report_parts.VALUES, *report_notes.VALUES,
    Value("figures", figures),
    Value("replayable", replayable),
)  # fmt: skip
_NODES = tuple(checks.masked((*ANALYSES, *_VALUES)))  # of most traces: each finds its sources once


def report_of(
    trace: Trace,
    options: Options | None = None,
    progress: Progress | None = None,
    analyses: Sequence[Declaration] = ANALYSES,
    capture: Capture | None = None,
) -> Report:
    """Return the report of a loaded trace.

    ``progress`` is called with the stages. ``analyses`` declare the nodes of the graph. ``capture`` has the operators and
    modules of replayed kernels.
    """
    tell = progress or (lambda stage, fraction: None)

    def made() -> Report:
        graph = graph_of(trace, options or Options(), analyses, capture)
        with graph.prefetching(["figures"], _threads(trace)) as take_part:
            for stage, value in STAGES.items():
                tell(stage, None)
                take_part(value)
                graph.make(value)
            tell("judging", None)
            take_part(None)
            report: Report = graph.take("figures")
        if options is not None and options.compile_log is not None:
            graph.make("compile_log")  # now, so that a folder without logs is an error whatever is shown
        for added in ADDED_ANALYSES:  # Make added analyses now, so that a failure becomes a note.
            if added in analyses:
                graph.make(added.name)
        notes, tables = (*report.notes, *_plugin_notes()), public_tables(graph, analyses)
        return replace(report, notes=notes, tables=tables, declared=tuple(_declared(analyses)))

    return within_query(made)


def whatif_of(
    trace: Trace,
    changes: tuple[Change, ...],
    options: Options | None = None,
    progress: Progress | None = None,
    snapshot: Memory | None = None,
) -> WhatIf:
    """Return `whatif` of a loaded trace. Of its report, only what that reads is made, and its replay once."""
    tell = progress or (lambda stage, fraction: None)

    def made() -> WhatIf:
        graph = graph_of(trace, options or Options(), kept=["replayable"])
        tell("judging", None)
        with graph.prefetching(["replayable"], _threads(trace)) as take_part:
            take_part(None)
            report, replay = graph.take("replayable")
        tell("replaying", None)
        # As the analyses make them: to make text of the categories of a long path takes longer than to find it.
        tables = LazyTables({table.name: partial(graph.take, table.name) for table in _public(ANALYSES)})
        return whatif(replace(report, tables=tables), changes, snapshot=snapshot, replay=replay)

    return within_query(made)


def _threads(trace: Trace) -> int:
    return PREFETCHING_THREADS if trace.event_count > SMALL_EVENTS else 0


def graph_of(
    trace: Trace,
    options: Options,
    analyses: Sequence[Declaration] = ANALYSES,
    capture: Capture | None = None,
    kept: Sequence[str] = ("figures",),
) -> TableGraph:
    """Return the graph of a loaded trace: its tables, with suppressed metrics masked, and the values derived from them.

    ``kept`` names the values to take from it, in addition to the public tables.
    """
    matched = device_models.match_devices(trace, options)
    if isinstance(capture, Trace):  # a second trace, launched one by one or captured
        capture = CaptureFiles((capture,))
    files = capture if isinstance(capture, CaptureFiles) else None
    executions = tuple(
        graph_of(file, Options(), analyses, kept=["executions"]).take("executions")
        for file in (files.traces if files else ())
    )
    given = {
        "trace": trace,
        "options": options,
        "matched_devices": matched,
        "device_models": matched.models,
        "capture_files": files,
        "capture_executions": executions,
        "graph_annotations": capture.names if isinstance(capture, GraphAnnotations) else None,
        **{table.name: getattr(trace, table.name) for table in registry.TRACE_TABLES},
    }
    names = [*kept, *(table.name for table in _public(analyses))]
    nodes = _NODES if analyses is ANALYSES else checks.masked((*analyses, *_VALUES))
    return TableGraph(nodes, given, names)


def public_tables(graph: TableGraph, analyses: Sequence[Declaration] = ANALYSES) -> LazyTables:
    """Return the public tables of a report, each made on demand."""

    def conformed(table: Table) -> pl.DataFrame:
        return table.conform(graph.take(table.name))

    return LazyTables({table.name: partial(conformed, table) for table in _public(analyses)})


def _public(analyses: Sequence[Declaration]) -> list[Table]:
    """Return the declarations of the report's tables."""
    return [*(analysis.table for analysis in analyses if isinstance(analysis, Analysis)), *registry.TRACE_TABLES]


def _declared(analyses: Sequence[Declaration]) -> Iterator[DeclaredTable]:
    """Yield the tables that the JSON report or a section of their own shows."""
    for analysis in analyses:
        if isinstance(analysis, Analysis) and (analysis.json is not None or analysis.section is not None):
            yield DeclaredTable(analysis.table, analysis.json, analysis.section)


def _plugin_notes() -> Iterator[errors.Note]:
    """Note the active plug-ins, as results depend on them, and the parts of plug-ins that were left out."""
    if active := plugins.active():
        yield errors.Note("plugins", "info", f"active plug-ins: {', '.join(map(str, active))}", len(active))
    for problem in plugins.problems():
        yield errors.Note("plugin-left-out", "warning", f"{problem}; left out")
