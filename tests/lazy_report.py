"""Make the parts of a report on demand, as few tests read more than a table or the verdict.

Each is made within a query, as whole reports are, which takes a quarter less CPU time.
"""

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tiers import is_thorough

from trace_analyzer import analysis, ingest, installation, pipeline
from trace_analyzer.options import Options
from trace_analyzer.report import SCHEMA_VERSION, Report
from trace_analyzer.tuning import within_query


def report_on(source: Path | bytes, **options: Any) -> Report:
    """Return the report on a file, of which only the parts that are read are made, unless the run is thorough."""
    return pipeline.analyze(source, **options) if is_thorough() else LazyReport.on(source, **options)


class LazyReport(Report):
    """Make each field on first access, from one graph."""

    @classmethod
    def on(cls, source: Path | bytes, **options: Any) -> "LazyReport":
        """Return the report on this file."""
        report = object.__new__(cls)
        kept = [*PARTS.values(), "device_reports", "host_steps"]
        graph = pipeline.graph_of(ingest.load(source), Options(**options), kept=kept)
        made = pipeline.public_tables(graph)
        tables = analysis.LazyTables({name: partial(within_query, partial(made.__getitem__, name)) for name in made})
        report.__dict__.update(_graph=graph, tables=tables)
        return report


PARTS = {
    "trace": "trace_info", "trust": "checks", "notes": "notes", "verdict": "verdict", "steps": "step_reports",
    "blame": "blame_rows", "host_costs": "host_cost_rows", "advice": "advice",
}  # fmt: skip
"""Field of a report -> value of the graph."""


def _part(value: str) -> Callable[[LazyReport], Any]:
    return lambda report: within_query(lambda: _graph(report).take(value))


def _graph(report: LazyReport) -> analysis.TableGraph:
    graph: analysis.TableGraph = report.__dict__["_graph"]
    return graph


_MADE: dict[str, Callable[[LazyReport], Any]] = {
    **{field: _part(value) for field, value in PARTS.items()},
    "devices": lambda report: tuple(_part("device_reports")(report).values()),
    "steps_from": lambda report: _part("host_steps")(report).source,
    "schema_version": lambda report: SCHEMA_VERSION,
    "tool_version": lambda report: installation.tool_version(),
    "declared": lambda report: tuple(pipeline._declared(pipeline.ANALYSES)),
}

for _field, _make in _MADE.items():
    _made = cached_property(_make)
    _made.__set_name__(LazyReport, _field)
    setattr(LazyReport, _field, _made)
