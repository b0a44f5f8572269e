"""Analyse a trace: read it, make the graph of analyses, check the data, judge, and report."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from trace_analyzer import advice, checks, findings, mask, plugins, report_parts, verdict, windows
from trace_analyzer.analyses.device_models import match_devices
from trace_analyzer.analyses.replays import Executions
from trace_analyzer.analyses.steps import HostSteps
from trace_analyzer.analysis import Analysis, Declaration, Value
from trace_analyzer.compiled import why_slow
from trace_analyzer.graph import LazyTables, TableGraph
from trace_analyzer.ingest import DEFAULT_MAX_BYTES, Progress, Source, Trace, load
from trace_analyzer.ingest.trace import GraphAnnotations, read_capture
from trace_analyzer.notes import Note
from trace_analyzer.options import Options
from trace_analyzer.registry import ADDED_ANALYSES, ANALYSES, TRACE_TABLES
from trace_analyzer.report import (
    SCHEMA_VERSION,
    Advice,
    Blame,
    Check,
    DeclaredRows,
    DeviceReport,
    HostCost,
    Report,
    StepReport,
    TraceInfo,
    Verdict,
)
from trace_analyzer.schema import Table
from trace_analyzer.tuning import PREFETCHING_THREADS, SMALL_EVENTS, within_query
from trace_analyzer.version import tool_version

STAGES = {"linking launches": "linked_events", "explaining idle time": "gaps", "summing up": "attribution"}
"""Stages of the analyses in order, each with the value that ends it; judging follows."""


def analyze(
    source: Source,
    *,
    device: int | str | None = None,
    step: int | str = "steady",
    gpu: str | None = None,
    peak_tflops: Mapping[str, float] | None = None,
    peak_gbps: float | None = None,
    measured_step_ms: float | None = None,
    calibration: str | Path | None = None,
    capture: Source | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    progress: Progress | None = None,
) -> Report:
    """Analyse one trace of PyTorch Profiler.

    Parameters
    ----------
    source: a path, ``"-"`` for standard input, bytes or a binary file; gzip or zstd or plain.
    device: the device to judge, by the file's id; the one with most busy time by default.
    step: ``"steady"``, ``"all"`` (the whole trace) or a step's index: the window of the verdict.
    gpu: name of a device of the catalogue, instead of the one in the file's header.
    peak_tflops: dtype -> dense peak in TFLOP/s, instead of the catalogue's; key ``""`` is for all.
    peak_gbps: memory bandwidth in GB/s, instead of the catalogue's.
    measured_step_ms: time of a step without the profiler, ms: tells exactly what recording cost; by default
        what the trace itself says, if `trace_analyzer.profile` recorded it.
    calibration: file of ``analyze calibrate`` for the trace's device; by default one in the user's folder
        that was measured on such a device; ``"none"`` for none.
    capture: a second trace of the same program, in which the kernels that graphs of ``source`` replay were launched one by one,
        or in which these graphs were captured: replayed kernels take operators, modules and shapes from there. Or JSON of
        ``torch.cuda.graph_annotations.get_kernel_annotations()``, which names their modules.
    max_bytes: limit on the decompressed size of the source.
    progress: called with (stage, fraction or None).

    Warns with ``RuntimeWarning`` where this copy of the package is not compiled, and so is slow. Raises ``InputError`` when the source is no readable trace and ``UsageError`` for a device, step or
    GPU that does not exist, or a measured step time where the trace has no steps.
    """
    if (reason := why_slow()) is not None:
        warnings.warn(reason, RuntimeWarning, stacklevel=3)
    options = Options(device, step, gpu, peak_tflops, peak_gbps, measured_step_ms, calibration)
    trace = load(source, max_bytes=max_bytes, progress=progress)
    read = partial(load, max_bytes=max_bytes, progress=progress)
    captured = None if capture is None else read_capture(capture, read, max_bytes=max_bytes)
    return report_of(trace, options, progress, capture=captured)


@dataclass(frozen=True)
class ReportParts:
    """Hold the values that make up the report."""

    trace_info: TraceInfo
    checks: tuple[Check, ...]
    notes: tuple[Note, ...]
    verdict: Verdict
    device_reports: Mapping[int, DeviceReport]
    step_reports: tuple[StepReport, ...]
    blame_rows: tuple[Blame, ...]
    host_cost_rows: tuple[HostCost, ...]
    advice: tuple[Advice, ...]
    host_steps: HostSteps


# Values that follow from the analyses, in order: checks, mask, verdict and window, advice, report.
_VALUES = (
    *windows.VALUES, *checks.VALUES, *mask.VALUES, *findings.VALUES, *verdict.VALUES, *advice.VALUES,
    *report_parts.VALUES,
    Value("report_parts", ReportParts),
)  # fmt: skip


def report_of(
    trace: Trace,
    options: Options | None = None,
    progress: Progress | None = None,
    analyses: Sequence[Declaration] = ANALYSES,
    capture: Trace | GraphAnnotations | None = None,
) -> Report:
    """Return the report of a loaded trace.

    ``progress`` is called with the stages. ``analyses`` declare the nodes of the graph. ``capture`` is a loaded trace,
    or annotations of graphs, with the operators and modules of replayed kernels.
    """
    return within_query(partial(_report_of, trace, options or Options(), progress or _silent, analyses, capture))


def _report_of(
    trace: Trace,
    options: Options,
    tell: Progress,
    analyses: Sequence[Declaration],
    capture: Trace | GraphAnnotations | None,
) -> Report:
    graph, shown = graph_of(trace, options, analyses, capture), _shown(analyses)
    threads = PREFETCHING_THREADS if trace.event_count > SMALL_EVENTS else 0
    with graph.prefetching(["report_parts", *(analysis.name for analysis in shown)], threads) as take_part:
        for stage, value in STAGES.items():
            tell(stage, None)
            take_part(value)
            graph.make(value)
        tell("judging", None)
        take_part(None)
        parts: ReportParts = graph.take("report_parts")
    for added in ADDED_ANALYSES:  # Make added analyses now, so that a failure becomes a note.
        if added in analyses:
            graph.make(added.name)
    rows = tuple(_declared_rows(analysis, graph.take(analysis.name), trace) for analysis in shown)
    return Report(
        schema_version=SCHEMA_VERSION,
        tool_version=tool_version(),
        trace=parts.trace_info,
        trust=parts.checks,
        notes=(*parts.notes, *_plugin_notes()),
        verdict=parts.verdict,
        devices=tuple(parts.device_reports.values()),
        steps=parts.step_reports,
        blame=parts.blame_rows,
        host_costs=parts.host_cost_rows,
        advice=parts.advice,
        tables=public_tables(graph, analyses),
        steps_from=parts.host_steps.source,
        declared=rows,
    )


def graph_of(
    trace: Trace,
    options: Options,
    analyses: Sequence[Declaration] = ANALYSES,
    capture: Trace | GraphAnnotations | None = None,
    kept: Sequence[str] = ("report_parts",),
) -> TableGraph:
    """Return the graph of a loaded trace: its tables, with suppressed metrics masked, and the values derived from them.

    ``kept`` names the values to take from it, in addition to the public tables and the analyses that outputs show.
    """
    matched = match_devices(trace, options)
    given = {
        "trace": trace,
        "options": options,
        "matched_devices": matched,
        "device_models": matched.models,
        "capture_executions": _executions_of(capture, analyses) if isinstance(capture, Trace) else None,
        "graph_annotations": capture.names if isinstance(capture, GraphAnnotations) else None,
        **{table.name: getattr(trace, table.name) for table in TRACE_TABLES},
    }
    names = [*kept, *(table.name for table in _public(analyses)), *(analysis.name for analysis in _shown(analyses))]
    return TableGraph(mask.masked((*analyses, *_VALUES)), given, names)


def public_tables(graph: TableGraph, analyses: Sequence[Declaration] = ANALYSES) -> LazyTables:
    """Return the public tables of a report, each made on demand."""
    return LazyTables({table.name: partial(_conformed, graph, table) for table in _public(analyses)})


def _public(analyses: Sequence[Declaration]) -> list[Table]:
    """Return the declarations of the report's tables."""
    return [*(analysis.table for analysis in analyses if isinstance(analysis, Analysis)), *TRACE_TABLES]


def _shown(analyses: Sequence[Declaration]) -> list[Analysis]:
    """Return the analyses that the JSON report or a section of their own shows."""
    declared = (analysis for analysis in analyses if isinstance(analysis, Analysis))
    return [analysis for analysis in declared if analysis.json is not None or analysis.section is not None]


def _executions_of(capture: Trace, analyses: Sequence[Declaration]) -> Executions:
    """Return the executions of a second trace, launched one by one or captured."""
    executions: Executions = graph_of(capture, Options(), analyses, kept=["executions"]).take("executions")
    return executions


def _conformed(graph: TableGraph, table: Table) -> pl.DataFrame:
    """Return a table of the report: the graph's frame, with exactly the declared columns."""
    return table.conform(graph.take(table.name))


def _declared_rows(analysis: Analysis, frame: pl.DataFrame, trace: Trace) -> DeclaredRows:
    """Return the rows of an analysis with a declared place, with ids of devices instead of codes."""
    ids = windows.device_ids(trace.devices)
    rows = analysis.table.conform(frame).to_dicts()
    named = (row | {"device": ids.get(row["device"])} if "device" in row else row for row in rows)
    return DeclaredRows(analysis.table, analysis.json, analysis.section, tuple(named))


def _plugin_notes() -> Iterator[Note]:
    """Note the active plug-ins, as results depend on them, and the parts of plug-ins that were left out."""
    if active := plugins.active():
        yield Note("plugins", "info", f"active plug-ins: {', '.join(map(str, active))}", len(active))
    for problem in plugins.problems():
        yield Note("plugin-left-out", "warning", f"{problem}; left out")


def _silent(stage: str, fraction: float | None) -> None:
    """Ignore progress."""


__all__ = ["Options", "ReportParts", "analyze", "graph_of", "public_tables", "report_of"]
